//! Where a fault is made.

use super::item::{Place, place};
use super::{Store, item_id, shard_of};

impl Store {
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
            return Err(format!("object item:{name} does not exist here"));
        };
        let places: Vec<usize> = (0..item.bytes.len())
            .filter(|at| place(&item.bytes, *at).field == field)
            .collect();
        let Some(at) = places.get(byte).copied() else {
            return Err(format!(
                "byte must be below {}, the length of {field} of item:{name}, found {byte}",
                places.len()
            ));
        };
        item.bytes[at] ^= 1 << bit;
        Ok(Place {
            field: place(&item.bytes, at).field,
            byte,
        })
    }
}
