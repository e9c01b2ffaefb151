//! Data of an object, which the host keeps in blocks and by keys, each with a checksum.

use std::collections::BTreeMap;

use super::sealed::{Bad, Sealed};

/// A piece of data that the keeper holds, with its checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) bytes: Vec<u8>,
    pub(super) crc: u32,
}

/// Data of an object, in blocks: a change costs the checksums of the blocks that it touches, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keeper {
    pub(super) blocks: Vec<Extent>,
    pub(super) length: usize,
    /// The length's complement.
    pub(super) length_not: usize,
    pub(super) keys: BTreeMap<String, Cell>,
}

/// What one key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) bytes: Vec<u8>,
    /// Over the key as well, so that no cell stands for another one.
    pub(super) crc: u32,
    /// The epoch in which the component has it.
    pub(super) epoch: Sealed,
}

impl Cell {
    pub(super) fn checksum(key: &str, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), bytes)
    }
}

/// Small enough that a short write costs little, large enough that checksums take a fraction of the room.
pub(crate) const BLOCK: usize = 512;
/// What is read or given back at once.
pub(crate) const PIECE: usize = 16 << 10;

impl Default for Keeper {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            length: 0,
            length_not: !0,
            keys: BTreeMap::new(),
        }
    }
}

impl Extent {
    pub(super) fn whole(&self) -> bool {
        crc32c::crc32c(&self.bytes) == self.crc
    }

    /// One that has changed by itself keeps the checksum that says so: another one would make its damage right.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        let whole = self.whole();
        change(&mut self.bytes);
        if whole {
            self.crc = crc32c::crc32c(&self.bytes);
        } else if self.whole() {
            self.crc = !self.crc;
        }
    }
}

impl Keeper {
    /// How much there is; none where that has changed by itself.
    pub(crate) fn length(&self) -> Option<usize> {
        (self.length == !self.length_not).then_some(self.length)
    }

    pub(super) fn set_length(&mut self, length: usize) {
        // One that is damaged stays so.
        if self.length().is_some() {
            (self.length, self.length_not) = (length, !length);
        }
    }

    /// Nothing written changes nothing, beyond the end as well.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK, at % BLOCK);
            let n = rest.len().min(BLOCK - within);
            if self.blocks.len() <= block {
                self.blocks.resize_with(block + 1, Extent::default);
            }
            self.blocks[block].change(|bytes| {
                if bytes.len() < within + n {
                    bytes.resize(within + n, 0);
                }
                bytes[within..within + n].copy_from_slice(&rest[..n]);
            });
            at += n;
            rest = &rest[n..];
        }
        self.set_length(self.length.max(offset + bytes.len()));
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        self.blocks.truncate(length.div_ceil(BLOCK));
        if let Some(last) = self.blocks.get_mut(length / BLOCK) {
            last.change(|bytes| bytes.truncate(length % BLOCK));
        }
        self.set_length(length);
    }

    /// What a read at this place must give; none where a checksum does not fit.
    pub(crate) fn read(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        let end = offset.saturating_add(length).min(self.length()?);
        let mut out = Vec::with_capacity(end.saturating_sub(offset));
        let mut at = offset;
        while at < end {
            let (block, within) = (at / BLOCK, at % BLOCK);
            let n = (end - at).min(BLOCK - within);
            match self.blocks.get(block) {
                Some(extent) if extent.whole() => {
                    let have = extent
                        .bytes
                        .get(within..(within + n).min(extent.bytes.len()))
                        .unwrap_or_default();
                    out.extend_from_slice(have);
                    out.resize(out.len() + n - have.len(), 0);
                }
                Some(_) => return None,
                None => out.resize(out.len() + n, 0),
            }
            at += n;
        }
        Some(out)
    }

    pub(crate) fn put(&mut self, key: &str, bytes: &[u8], epoch: u64) {
        let crc = Cell::checksum(key, bytes);
        if let Some(cell) = self.keys.get_mut(key) {
            cell.bytes.clear();
            cell.bytes.extend_from_slice(bytes);
            (cell.crc, cell.epoch) = (crc, Sealed::of(epoch));
            return;
        }
        let (bytes, epoch) = (bytes.to_vec(), Sealed::of(epoch));
        self.keys.insert(key.into(), Cell { bytes, crc, epoch });
    }

    pub(crate) fn delete(&mut self, key: &str) {
        self.keys.remove(key);
    }

    /// What a key must hold, if it must be there.
    pub(crate) fn key(&self, key: &str) -> Result<Option<&[u8]>, Bad> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(cell) if Cell::checksum(key, &cell.bytes) == cell.crc => Ok(Some(&cell.bytes)),
            Some(_) => Err(Bad::Corrupt),
        }
    }

    /// Whether the component has lost a key.
    pub(crate) fn lost(&self, key: &str, epoch: u64) -> bool {
        self.keys.get(key).is_some_and(|cell| cell.epoch != epoch)
    }

    /// All keys that the component has lost.
    pub(crate) fn all_lost(&self, epoch: u64) -> Vec<String> {
        let lost = self.keys.iter().filter(|(_, cell)| cell.epoch != epoch);
        lost.map(|(key, _)| key.clone()).collect()
    }

    /// Notes that the component has it again.
    pub(crate) fn back(&mut self, key: &str, epoch: u64) {
        if let Some(cell) = self.keys.get_mut(key) {
            cell.epoch = Sealed::of(epoch);
        }
    }

    /// Changes a bit behind the checksum's back: a fault, for tests.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self) {
        if let Some(byte) = self
            .keys
            .values_mut()
            .next()
            .and_then(|cell| cell.bytes.first_mut())
        {
            *byte ^= 4;
        }
        if let Some(byte) = self.blocks.first_mut().and_then(|b| b.bytes.first_mut()) {
            *byte ^= 4;
        }
    }
}
