//! All objects of one component: places, names, and what was made from what.

use std::collections::BTreeMap;

use super::keeper::Keeper;
use super::sealed::{Bad, Sealed};
use super::slot::{Named, Record, Slot, share};
use crate::body::Inners;
use crate::value::Handle;

/// All objects of one component.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// By resource and name.
    pub(crate) names: BTreeMap<(usize, String), Named>,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u32>,
    pub(super) live: usize,
    /// How many of these were given back, and are there for what was made from them.
    pub(super) ended: usize,
}

impl Table {
    pub(crate) fn insert(&mut self, record: Record, epoch: u64, inner: Inners) -> Handle {
        let checksum = record.checksum();
        let parent = record.parent;
        let handle = self.place(record, checksum, epoch, inner);
        self.join(handle, parent);
        handle
    }

    fn join(&mut self, child: Handle, parent: Option<Handle>) {
        if let Some(parent) = parent.and_then(|parent| self.slot(parent).ok()) {
            parent.children.push(child);
            parent.children_sum = parent.children_sum.wrapping_add(share(child));
        }
    }

    /// The parent, where it was given back and is there for nobody any more.
    fn leave(&mut self, child: Handle, parent: Option<Handle>) -> Option<Handle> {
        let handle = parent?;
        let parent = self.slot(handle).ok()?;
        if let Some(place) = parent.children.iter().rposition(|one| *one == child) {
            parent.children.swap_remove(place);
            parent.children_sum = parent.children_sum.wrapping_sub(share(child));
        }
        let ended = parent.record().is_ok_and(|record| record.ended);
        (ended && parent.children.is_empty()).then_some(handle)
    }

    /// Keeps an object that was given back as long as something that was made from it is there. False where nothing is.
    pub(crate) fn stay(&mut self, handle: Handle) -> bool {
        let Ok(slot) = self.slot(handle) else {
            return false;
        };
        if slot.children.is_empty() {
            return false;
        }
        slot.inner.clear();
        slot.epoch = Sealed::of(0);
        if !slot.record.ended {
            let whole = slot.record().is_ok();
            slot.record.ended = true;
            // One that was damaged stays an error of whoever needs it.
            if whole {
                slot.checksum = slot.record.checksum();
            }
            self.ended += 1;
        }
        true
    }

    /// Whether an object was given back, and is there for what was made from it. One whose record was damaged is not taken for one: it would be
    /// left out in silence.
    pub(crate) fn ended(&self, handle: Handle) -> bool {
        let slot = self.slots.get(handle.index as usize);
        slot.is_some_and(|slot| {
            slot.live
                && slot.generation == u64::from(handle.generation)
                && slot.record.ended
                && slot.record().is_ok()
        })
    }

    /// The object is the child of another one from here on, whose handle is the argument `place` of its maker.
    pub(crate) fn move_to(&mut self, child: Handle, parent: Handle, place: usize) {
        // One whose record has changed is refused at its next use.
        let Ok(Ok(before)) = self
            .slot(child)
            .map(|slot| slot.record().map(|record| record.parent))
        else {
            return;
        };
        let over = self.leave(child, before);
        if let Ok(slot) = self.slot(child) {
            slot.update(|record| {
                record.parent = Some(parent);
                if let Some(arg) = record.args.get_mut(place) {
                    *arg = parent.into();
                }
            });
        }
        self.join(child, Some(parent));
        if let Some(over) = over {
            self.remove(over);
        }
    }

    pub(super) fn place(
        &mut self,
        record: Record,
        checksum: u64,
        epoch: u64,
        inner: Inners,
    ) -> Handle {
        self.live += 1;
        let epoch = Sealed::of(epoch);
        if let Some(index) = self.vacant() {
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

    /// A place that was given back. One that has changed by itself names a live object, or none: two objects would have one handle.
    fn vacant(&mut self) -> Option<u32> {
        while let Some(index) = self.free.pop() {
            let slot = self.slots.get(index as usize);
            // Of a generation that has changed no handle would fit.
            if slot.is_some_and(|slot| !slot.live && slot.generation.get().is_some()) {
                return Some(index);
            }
        }
        None
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

    /// Whether it names an object.
    pub(crate) fn has(&self, handle: Handle) -> bool {
        let slot = self.slots.get(handle.index as usize);
        slot.is_some_and(|slot| slot.live && slot.generation == u64::from(handle.generation))
    }

    /// Takes an object out, with those before it that were there for it alone.
    pub(crate) fn remove(&mut self, handle: Handle) {
        let mut over = Some(handle);
        while let Some(handle) = over.take() {
            let Ok(slot) = self.slot(handle) else {
                return;
            };
            slot.live = false;
            // After 2^32 objects a place would begin to repeat its names: it is used no more.
            let next = slot.number().checked_add(1);
            slot.generation = Sealed::of(u64::from(next.unwrap_or(u32::MAX)));
            slot.inner.clear();
            slot.keeper = Keeper::default();
            slot.children.clear();
            slot.children_sum = 0;
            let record = std::mem::take(&mut slot.record);
            self.free.extend(next.map(|_| handle.index));
            self.live -= 1;
            self.ended = self.ended.saturating_sub(usize::from(record.ended));
            over = self.leave(handle, record.parent);
        }
    }

    /// Everything that was made from an object, and from that: parents first.
    pub(crate) fn descendants(&mut self, of: Handle) -> Result<Vec<Handle>, Bad> {
        let mut all = self.slot(of)?.children()?.to_vec();
        let mut next = 0;
        while let Some(&child) = all.get(next) {
            // No more than there are: what goes round in a circle has changed by itself.
            if all.len() > self.live {
                return Err(Bad::Corrupt);
            }
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

    /// How many objects clients have.
    pub(crate) fn len(&self) -> usize {
        self.live.saturating_sub(self.ended)
    }

    /// The object at a place, which begins again behind the last one.
    pub(crate) fn at(&self, place: &mut usize) -> Option<Handle> {
        if *place >= self.slots.len() {
            *place = 0;
        }
        let slot = self.slots.get(*place).filter(|slot| slot.live)?;
        Some(Handle {
            index: u32::try_from(*place).ok()?,
            generation: slot.number(),
        })
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

#[cfg(test)]
mod tests {
    use super::super::keeper::BLOCK;
    use super::*;
    use crate::value::Value;

    #[test]
    fn a_place_that_was_given_back_has_another_name() {
        let mut table = Table::default();
        let first = table.insert(Record::default(), 0, Inners::new());
        table.remove(first);
        assert_eq!(table.slot(first).err(), Some(Bad::Stale));
        let second = table.insert(Record::default(), 0, Inners::new());
        assert_eq!(second.index, first.index);
        assert_ne!(second, first);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_vacant_place_that_changed_by_itself_takes_no_live_one() {
        for wrong in [0, 2, 1 << 31] {
            let mut table = Table::default();
            let all: Vec<_> = (0..3)
                .map(|_| table.insert(Record::default(), 0, Inners::new()))
                .collect();
            table.remove(all[1]);
            table.free[0] = wrong;
            let next = table.insert(Record::default(), 0, Inners::new());
            assert_eq!((next.index, table.len()), (3, 3), "{wrong}");
            assert!(table.has(all[0]) && table.has(all[2]));
        }
        let mut table = Table::default();
        let first = table.insert(Record::default(), 0, Inners::new());
        table.remove(first);
        table.slots[0].generation.0 ^= 2;
        let next = table.insert(Record::default(), 0, Inners::new());
        assert!(next.index == 1 && table.has(next));
    }

    #[test]
    fn no_place_repeats_a_name() {
        let mut table = Table::default();
        let first = table.insert(Record::default(), 0, Inners::new());
        table.slots[0].generation = Sealed::of(u64::from(u32::MAX));
        let last = Handle {
            generation: u32::MAX,
            ..first
        };
        assert!(table.has(last));
        table.remove(last);
        assert!(!table.has(last) && !table.has(first));
        let next = table.insert(Record::default(), 0, Inners::new());
        assert_eq!((next.index, table.len()), (1, 1));
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
            Inners::new(),
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
            table.insert(record, 0, Inners::new())
        };
        let root = child(&mut table, None);
        let (a, b) = (child(&mut table, Some(root)), child(&mut table, Some(root)));
        let c = child(&mut table, Some(a));
        assert_eq!(table.descendants(root), Ok(vec![a, b, c]));
        assert_eq!(table.descendants(b), Ok(vec![]));
        table.remove(b);
        assert_eq!(table.descendants(root), Ok(vec![a, c]));
        // Another parent: what was made from it goes along.
        table.move_to(a, c, 0);
        assert_eq!(table.descendants(c), Err(Bad::Corrupt), "a circle");
        table.move_to(a, root, 0);
        let other = child(&mut table, None);
        table.move_to(a, other, 0);
        assert_eq!(table.descendants(root), Ok(vec![]));
        assert_eq!(table.descendants(other), Ok(vec![a, c]));
        table.move_to(a, root, 0);
        assert_eq!(table.descendants(root), Ok(vec![a, c]));
        table.slot(a).expect("live").children.clear();
        assert_eq!(table.descendants(root), Err(Bad::Corrupt));
    }

    #[test]
    fn what_was_given_back_is_there_as_long_as_something_that_was_made_from_it() {
        let mut table = Table::default();
        let child = |table: &mut Table, parent| {
            let record = Record {
                parent,
                ..Record::default()
            };
            table.insert(record, 1, Inners::new())
        };
        let root = child(&mut table, None);
        let a = child(&mut table, Some(root));
        let (b, c) = (child(&mut table, Some(a)), child(&mut table, Some(a)));
        assert!(table.stay(root) && table.stay(a) && !table.stay(b));
        assert!(table.ended(root) && table.ended(a) && !table.ended(b));
        assert_eq!((table.len(), table.handles().len()), (2, 4));
        assert!(table.slot(a).expect("there").record().is_ok());
        assert_eq!(table.descendants(root), Ok(vec![a, b, c]));
        table.remove(b);
        assert!(table.has(a), "another one needs it");
        // The last one goes elsewhere: nobody needs either of them.
        let other = child(&mut table, None);
        table.move_to(c, other, 0);
        assert!(!table.has(root) && !table.has(a) && table.has(c));
        assert_eq!((table.len(), table.handles().len()), (2, 2));
        // One whose record was damaged is told when it is needed, and not taken away, nor left out.
        assert!(table.stay(other));
        table.slot(other).expect("there").spoil();
        assert!(!table.ended(other));
        table.remove(c);
        assert!(table.has(other));
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
