//! Where a fault is made.

use super::head::PACKED;
use super::item::{Place, place};
use super::{Head, Store, item_id, shard_of};

impl Store {
    /// Flips one bit of the head of the log, behind the back of its digest, or of what all items weigh.
    pub(crate) fn strike_head(&mut self, byte: usize, bit: u8) {
        if let Some(at) = byte.checked_sub(PACKED) {
            self.weight.sum ^= 1 << (8 * at + usize::from(bit));
        }
        let mut bytes = self.head.pack();
        if let Some(at) = bytes.get_mut(byte) {
            *at ^= 1 << bit;
        }
        if let Some(head) = Head::unpack(&bytes) {
            self.head = head;
        }
    }

    /// Flips one bit of an item's stored bytes, behind the back of its digest: an injected fault. Where it was hit.
    pub(crate) fn strike(
        &mut self,
        key: &[u8],
        field: &str,
        byte: usize,
        bit: u8,
    ) -> Result<Place, String> {
        let id = item_id(key);
        let name = String::from_utf8_lossy(key).into_owned();
        let Some(item) = self.shards[shard_of(id)].get_mut(&id.0) else {
            let name = crate::once::name(&name).unwrap_or_else(|| format!("item:{name}"));
            return Err(format!("object {name} does not exist here"));
        };
        let places: Vec<usize> = (0..item.bytes.len())
            .filter(|at| place(&item.bytes, *at).field == field)
            .collect();
        let Some(at) = places.get(byte).copied() else {
            return Err(format!(
                "byte= must be below {}, the length of {field} of {}, found {byte}",
                places.len(),
                crate::once::name(&name).unwrap_or_else(|| format!("item:{name}"))
            ));
        };
        item.bytes[at] ^= 1 << bit;
        Ok(Place {
            field: place(&item.bytes, at).field,
            byte,
        })
    }
}
