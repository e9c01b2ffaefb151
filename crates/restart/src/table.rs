//! The slot table: what the host knows of each object behind a handle, enough to make it again.
//!
//! Invariants
//!  1. A record changes only together with its checksum, after a call that succeeded.
//!  2. A record whose checksum does not fit is never used: the handle's caller gets a typed error.
//!  3. A place that was given back gets another generation, so an old handle names nothing.
//!
//! Not covered: the objects inside the bodies; `Slot::inner` is a cache of them that one reset makes void.

mod flip;
mod kept;
mod sealed;

use std::collections::BTreeMap;

pub(crate) use self::sealed::Sealed;
use crate::body::Inner;
use crate::value::{Handle, Value};

/// A piece of data that the keeper holds, with its checksum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) bytes: Vec<u8>,
    crc: u32,
}

/// Data of an object, in blocks: a change costs the checksums of the blocks that it touches, before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keeper {
    blocks: Vec<Extent>,
    length: usize,
    /// The length's complement.
    length_not: usize,
    keys: BTreeMap<String, Cell>,
}

/// What one key holds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cell {
    bytes: Vec<u8>,
    /// Over the key as well, so that no cell stands for another one.
    crc: u32,
    /// The epoch in which the component has it.
    epoch: Sealed,
}

impl Cell {
    fn checksum(key: &str, bytes: &[u8]) -> u32 {
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
    fn whole(&self) -> bool {
        crc32c::crc32c(&self.bytes) == self.crc
    }

    /// One that has changed by itself keeps the checksum that says so: another one would make its damage right.
    fn change(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
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

    fn set_length(&mut self, length: usize) {
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

/// What is remembered of one object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Record {
    /// The client whose object it is.
    pub(crate) owner: u32,
    pub(crate) resource: usize,
    pub(crate) state: usize,
    /// The function that made it, and its arguments.
    pub(crate) creator: usize,
    pub(crate) args: Vec<Value>,
    /// Arguments of the functions on the way to its state.
    pub(crate) remembered: Vec<(usize, Vec<(usize, Value)>)>,
    pub(crate) fields: Vec<u64>,
    pub(crate) parent: Option<Handle>,
}

impl Record {
    fn checksum(&self) -> u32 {
        let mut head = [0; 64];
        let numbers = [
            self.resource as u64,
            self.state as u64,
            self.creator as u64,
            self.args.len() as u64,
            self.remembered.len() as u64,
            u64::from(self.owner),
        ];
        for (place, number) in head.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        if let Some(parent) = self.parent {
            head[48..52].copy_from_slice(&parent.index.to_le_bytes());
            head[52..56].copy_from_slice(&parent.generation.to_le_bytes());
            head[56] = 1;
        }
        let mut crc = crc32c::crc32c(&head);
        for arg in &self.args {
            crc = arg.feed(crc);
        }
        for (function, args) in &self.remembered {
            crc = crc32c::crc32c_append(crc, &(*function as u64).to_le_bytes());
            for (place, value) in args {
                crc = value.feed(crc32c::crc32c_append(crc, &(*place as u64).to_le_bytes()));
            }
        }
        for field in &self.fields {
            crc = crc32c::crc32c_append(crc, &field.to_le_bytes());
        }
        crc
    }

    pub(crate) fn remembered(&self, function: usize, parameter: usize) -> Option<&Value> {
        let (_, args) = self.remembered.iter().find(|(f, _)| *f == function)?;
        args.iter()
            .find(|(place, _)| *place == parameter)
            .map(|(_, value)| value)
    }
}

/// One object.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Of 32 bits.
    generation: Sealed,
    live: bool,
    record: Record,
    checksum: u32,
    pub(crate) keeper: Keeper,
    /// The epoch in which `inner` is valid.
    pub(crate) epoch: Sealed,
    pub(crate) inner: Vec<Inner>,
    /// What was made from it, and a sum over these handles that says whether they are still all of them.
    children: Vec<Handle>,
    children_sum: u64,
}

/// A handle in a sum that does not depend on the order. The constant is 2^64 over the golden ratio (Knuth, vol. 3, section 6.4).
fn share(handle: Handle) -> u64 {
    let word = u64::from(handle.index) | u64::from(handle.generation) << 32;
    (word.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a name stands for: data that outlive the objects made with it.
#[derive(Debug)]
pub(crate) struct Named {
    /// How an object of that name is made.
    record: Record,
    checksum: u32,
    pub(crate) keeper: Keeper,
    /// The epoch in which the component has it.
    pub(crate) epoch: Sealed,
}

impl Named {
    pub(crate) fn record(&self) -> Result<&Record, Bad> {
        if self.record.checksum() == self.checksum {
            Ok(&self.record)
        } else {
            Err(Bad::Corrupt)
        }
    }
}

/// All objects of one component.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By resource and name.
    pub(crate) names: BTreeMap<(usize, String), Named>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
}

/// Why a handle cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    Stale,
    Corrupt,
}

impl Table {
    pub(crate) fn insert(&mut self, record: Record, epoch: u64, inner: Vec<Inner>) -> Handle {
        let checksum = record.checksum();
        let parent = record.parent;
        let handle = self.place(record, checksum, epoch, inner);
        if let Some(parent) = parent.and_then(|parent| self.slot(parent).ok()) {
            parent.children.push(handle);
            parent.children_sum = parent.children_sum.wrapping_add(share(handle));
        }
        handle
    }

    fn place(&mut self, record: Record, checksum: u32, epoch: u64, inner: Vec<Inner>) -> Handle {
        self.live += 1;
        let epoch = Sealed::of(epoch);
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            (
                slot.live,
                slot.record,
                slot.checksum,
                slot.epoch,
                slot.inner,
            ) = (true, record, checksum, epoch, inner);
            slot.keeper = Keeper::default();
            return Handle {
                index,
                generation: slot.number(),
            };
        }
        let index = u32::try_from(self.slots.len()).expect("fewer than 2^32 objects");
        self.slots.push(Slot {
            generation: Sealed::of(0),
            live: true,
            record,
            checksum,
            keeper: Keeper::default(),
            epoch,
            inner,
            children: Vec::new(),
            children_sum: 0,
        });
        Handle {
            index,
            generation: 0,
        }
    }

    /// Notes that the component has this name now.
    pub(crate) fn name(&mut self, key: (usize, String), record: &Record, epoch: u64) {
        let fresh = || Named {
            checksum: record.checksum(),
            record: record.clone(),
            keeper: Keeper::default(),
            epoch: Sealed::of(epoch),
        };
        self.names.entry(key).or_insert_with(fresh).epoch = Sealed::of(epoch);
    }

    /// The data of an object: its own, or its name's.
    pub(crate) fn keeper(
        &mut self,
        handle: Handle,
        name: Option<&(usize, String)>,
    ) -> Option<&mut Keeper> {
        match name {
            Some(key) => self.names.get_mut(key).map(|named| &mut named.keeper),
            None => self.slot(handle).ok().map(|slot| &mut slot.keeper),
        }
    }

    pub(crate) fn slot(&mut self, handle: Handle) -> Result<&mut Slot, Bad> {
        match self.slots.get_mut(handle.index as usize) {
            Some(slot) if slot.live && slot.generation == u64::from(handle.generation) => Ok(slot),
            Some(slot) if slot.generation.get().is_none() => Err(Bad::Corrupt),
            _ => Err(Bad::Stale),
        }
    }

    pub(crate) fn remove(&mut self, handle: Handle) {
        if let Ok(slot) = self.slot(handle) {
            slot.live = false;
            slot.generation = Sealed::of(u64::from(slot.number().wrapping_add(1)));
            slot.inner.clear();
            slot.keeper = Keeper::default();
            slot.children.clear();
            slot.children_sum = 0;
            let parent = std::mem::take(&mut slot.record).parent;
            self.free.push(handle.index);
            self.live -= 1;
            if let Some(parent) = parent.and_then(|parent| self.slot(parent).ok())
                && let Some(place) = parent.children.iter().rposition(|child| *child == handle)
            {
                parent.children.swap_remove(place);
                parent.children_sum = parent.children_sum.wrapping_sub(share(handle));
            }
        }
    }

    /// Everything that was made from an object, and from that: parents first.
    pub(crate) fn descendants(&mut self, of: Handle) -> Result<Vec<Handle>, Bad> {
        let mut all = self.slot(of)?.children()?.to_vec();
        let mut next = 0;
        while let Some(&child) = all.get(next) {
            all.extend_from_slice(self.slot(child)?.children()?);
            next += 1;
        }
        Ok(all)
    }

    /// Forgets all objects and names; every handle is stale from here on.
    pub(crate) fn clear(&mut self) {
        self.names.clear();
        for handle in self.handles() {
            self.remove(handle);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// All live handles.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        let live = self.slots.iter().enumerate().filter(|(_, slot)| slot.live);
        live.filter_map(|(index, slot)| {
            Some(Handle {
                index: u32::try_from(index).ok()?,
                generation: slot.number(),
            })
        })
        .collect()
    }
}

impl Slot {
    /// How often its place was used before. Of one that has changed no handle fits.
    fn number(&self) -> u32 {
        let number = self.generation.get().and_then(|n| u32::try_from(n).ok());
        number.unwrap_or(u32::MAX)
    }

    /// The record, if its checksum fits.
    pub(crate) fn record(&self) -> Result<&Record, Bad> {
        if self.record.checksum() == self.checksum {
            Ok(&self.record)
        } else {
            Err(Bad::Corrupt)
        }
    }

    /// The record for the time of a replay, which changes the table: give it back with [`Slot::put`].
    pub(crate) fn take(&mut self) -> Record {
        std::mem::take(&mut self.record)
    }

    pub(crate) fn put(&mut self, record: Record) {
        self.record = record;
    }

    fn children(&self) -> Result<&[Handle], Bad> {
        let sum = self
            .children
            .iter()
            .fold(0, |sum: u64, child| sum.wrapping_add(share(*child)));
        if sum == self.children_sum {
            Ok(&self.children)
        } else {
            Err(Bad::Corrupt)
        }
    }

    /// Which resource it is, unchecked: a hint before the record is read.
    pub(crate) fn resource(&self) -> usize {
        self.record.resource
    }

    /// Whose object it is, unchecked as well.
    pub(crate) fn owner(&self) -> u32 {
        self.record.owner
    }

    /// Changes the record.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Record)) {
        change(&mut self.record);
        self.checksum = self.record.checksum();
    }

    /// Changes a bit behind the checksum's back: a fault, for tests.
    #[cfg(test)]
    pub(crate) fn spoil(&mut self) {
        self.record.state ^= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_was_given_back_has_another_name() {
        let mut table = Table::default();
        let first = table.insert(Record::default(), 0, Vec::new());
        table.remove(first);
        assert_eq!(table.slot(first).err(), Some(Bad::Stale));
        let second = table.insert(Record::default(), 0, Vec::new());
        assert_eq!(second.index, first.index);
        assert_ne!(second, first);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_record_that_changed_by_itself_is_not_used() {
        let mut table = Table::default();
        let handle = table.insert(
            Record {
                args: vec![Value::U32(3)],
                ..Record::default()
            },
            0,
            Vec::new(),
        );
        let slot = table.slot(handle).expect("live");
        assert!(slot.record().is_ok());
        slot.update(|record| record.state = 2);
        assert!(slot.record().is_ok());
        slot.spoil();
        assert_eq!(slot.record().err(), Some(Bad::Corrupt));
    }

    #[test]
    fn children_are_known_until_one_is_missing() {
        let mut table = Table::default();
        let child = |table: &mut Table, parent| {
            let record = Record {
                parent,
                ..Record::default()
            };
            table.insert(record, 0, Vec::new())
        };
        let root = child(&mut table, None);
        let (a, b) = (child(&mut table, Some(root)), child(&mut table, Some(root)));
        let c = child(&mut table, Some(a));
        assert_eq!(table.descendants(root), Ok(vec![a, b, c]));
        assert_eq!(table.descendants(b), Ok(vec![]));
        table.remove(b);
        assert_eq!(table.descendants(root), Ok(vec![a, c]));
        table.slot(a).expect("live").children.clear();
        assert_eq!(table.descendants(root), Err(Bad::Corrupt));
    }

    #[test]
    fn the_keeper_reads_what_was_written_and_nothing_that_changed() {
        let mut keeper = Keeper::default();
        keeper.write(BLOCK - 2, b"abcd");
        keeper.write(0, b"x");
        keeper.write(BLOCK * 2, b"");
        assert_eq!(keeper.length(), Some(BLOCK + 2));
        assert_eq!(keeper.read(BLOCK - 2, 10).as_deref(), Some(&b"abcd"[..]));
        assert_eq!(keeper.read(0, 3).as_deref(), Some(&b"x\0\0"[..]));
        keeper.truncate(BLOCK - 1);
        assert_eq!(keeper.read(BLOCK - 2, 10).as_deref(), Some(&b"a"[..]));
        keeper.write(BLOCK, b"z");
        assert_eq!(keeper.read(BLOCK - 2, 10).as_deref(), Some(&b"a\0z"[..]));
        keeper.spoil();
        assert_eq!(keeper.read(0, 1), None);
        // What is written beside the damage does not make it right.
        keeper.write(BLOCK / 2, b"beside");
        assert_eq!(keeper.read(0, 1), None);
        keeper.truncate(7);
        assert_eq!(keeper.read(0, 1), None);
        let mut keeper = Keeper::default();
        keeper.write(0, b"bytes");
        keeper.length ^= 1 << 40;
        assert_eq!((keeper.length(), keeper.read(0, 1)), (None, None));
        keeper.truncate(3);
        assert_eq!(keeper.length(), None);
    }

    #[test]
    fn a_key_is_lost_once_an_epoch_and_its_value_never_changes_by_itself() {
        let mut keeper = Keeper::default();
        keeper.put("a", b"1", 1);
        keeper.put("b", b"2", 2);
        assert!(keeper.lost("a", 2) && !keeper.lost("b", 2) && !keeper.lost("c", 2));
        assert_eq!(keeper.all_lost(2), ["a"]);
        keeper.back("a", 2);
        assert!(keeper.all_lost(2).is_empty());
        keeper.put("a", b"34", 2);
        assert_eq!(keeper.key("a"), Ok(Some(&b"34"[..])));
        keeper.delete("b");
        assert_eq!(keeper.key("b"), Ok(None));
        keeper.spoil();
        assert_eq!(keeper.key("a"), Err(Bad::Corrupt));
    }
}
