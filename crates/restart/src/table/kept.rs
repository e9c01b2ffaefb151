//! The table as bytes, for the next process of a host: every object is lost there, and comes back as after a reset.
//!
//! Checksums go along as they are, so that a record that was damaged here is damaged there.

use std::collections::BTreeMap;

use super::keeper::{Cell, Extent, Keeper};
use super::sealed::Sealed;
use super::slot::{Named, Record, Slot};
use super::slots::Table;
use crate::body::Inners;
use crate::value::Handle;
use crate::wire::{Bytes, Rest, Wire};

/// The epoch of what the component has lost.
const LOST: Sealed = Sealed::of(0);

impl Wire for Extent {
    fn put(&self, out: &mut Vec<u8>) {
        (Bytes(self.bytes.clone()), self.crc).put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (Bytes(bytes), crc) = Wire::take(rest)?;
        Some(Self { bytes, crc })
    }
}

impl Wire for Keeper {
    fn put(&self, out: &mut Vec<u8>) {
        (self.length, self.length_not, self.keys.len()).put(out);
        self.blocks.put(out);
        for (key, cell) in &self.keys {
            (key.clone(), Bytes(cell.bytes.clone()), cell.crc).put(out);
        }
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (length, length_not, count): (usize, usize, usize) = Wire::take(rest)?;
        let blocks = Wire::take(rest)?;
        let mut keys = BTreeMap::new();
        for _ in 0..count {
            let (key, Bytes(bytes), crc) = Wire::take(rest)?;
            let epoch = LOST;
            keys.insert(key, Cell { bytes, crc, epoch });
        }
        Some(Self {
            blocks,
            length,
            length_not,
            keys,
        })
    }
}

impl Wire for Record {
    fn put(&self, out: &mut Vec<u8>) {
        (self.owner, self.resource, self.state, self.creator).put(out);
        self.args.put(out);
        self.remembered.put(out);
        self.fields.put(out);
        self.parent.put(out);
        self.ended.put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (owner, resource, state, creator) = Wire::take(rest)?;
        Some(Self {
            owner,
            resource,
            state,
            creator,
            args: Wire::take(rest)?,
            remembered: Wire::take(rest)?,
            fields: Wire::take(rest)?,
            parent: Wire::take(rest)?,
            ended: Wire::take(rest)?,
        })
    }
}

impl Wire for Slot {
    fn put(&self, out: &mut Vec<u8>) {
        (self.generation.0, self.live, self.checksum).put(out);
        self.record.put(out);
        self.keeper.put(out);
        self.children.put(out);
        self.children_sum.put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let (generation, live, checksum) = Wire::take(rest)?;
        Some(Self {
            generation: Sealed(generation),
            live,
            checksum,
            record: Wire::take(rest)?,
            keeper: Wire::take(rest)?,
            children: Wire::take(rest)?,
            children_sum: Wire::take(rest)?,
            epoch: LOST,
            inner: Inners::new(),
        })
    }
}

impl Wire for Table {
    fn put(&self, out: &mut Vec<u8>) {
        self.names.len().put(out);
        for (key, named) in &self.names {
            key.put(out);
            named.checksum.put(out);
            named.record.put(out);
            named.keeper.put(out);
        }
        self.slots.put(out);
    }

    fn take(rest: &mut Rest<'_>) -> Option<Self> {
        let mut names = BTreeMap::new();
        for _ in 0..usize::take(rest)? {
            let key = Wire::take(rest)?;
            let named = Named {
                checksum: Wire::take(rest)?,
                record: Wire::take(rest)?,
                keeper: Wire::take(rest)?,
                epoch: LOST,
            };
            names.insert(key, named);
        }
        let mut table = Self {
            names,
            slots: Wire::take(rest)?,
            ..Self::default()
        };
        table.count();
        Some(table)
    }
}

impl Table {
    /// Which places are free, and how many are not.
    fn count(&mut self) {
        let places = self.slots.iter().enumerate();
        let free = places.filter(|(_, slot)| !slot.live);
        self.free = free
            .filter_map(|(place, _)| u32::try_from(place).ok())
            .collect();
        self.live = self.slots.len() - self.free.len();
        let ended = self
            .slots
            .iter()
            .filter(|slot| slot.live && slot.record.ended);
        self.ended = ended.count();
    }

    /// Puts an object where another process had it. None where that place is taken, or no process can have had it.
    pub(crate) fn insert_at(&mut self, handle: Handle, record: Record) -> Option<()> {
        let place = handle.index as usize;
        // A process hands out a new place only where none is free.
        if place > self.slots.len() + GAP {
            return None;
        }
        while self.slots.len() <= place {
            self.slots.push(Slot::free());
        }
        let slot = &mut self.slots[place];
        if slot.live || slot.number() > handle.generation {
            return None;
        }
        let parent = record.parent;
        *slot = Slot {
            generation: Sealed::of(handle.generation.into()),
            live: true,
            checksum: record.checksum(),
            record,
            ..Slot::free()
        };
        if let Some(parent) = parent.and_then(|parent| self.slot(parent).ok()) {
            parent.children.push(handle);
            parent.children_sum = parent.children_sum.wrapping_add(super::slot::share(handle));
        }
        self.count();
        Some(())
    }
}

/// Places that replays had for a moment.
const GAP: usize = 64;

impl Slot {
    fn free() -> Self {
        Self {
            generation: Sealed::of(0),
            live: false,
            record: Record::default(),
            checksum: 0,
            keeper: Keeper::default(),
            epoch: LOST,
            inner: Inners::new(),
            children: Vec::new(),
            children_sum: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Bad;
    use crate::value::Value;
    use crate::wire::parsed;

    #[test]
    fn a_table_arrives_with_its_handles_data_and_damage() {
        let mut table = Table::default();
        let record = |parent| Record {
            args: vec![Value::U32(3)],
            parent,
            ..Record::default()
        };
        let gone = table.insert(record(None), 1, Inners::new());
        let root = table.insert(record(None), 1, Inners::new());
        let child = table.insert(record(Some(root)), 1, Inners::new());
        table.remove(gone);
        table.name((0, "a".into()), &record(None), 1);
        table.keeper(root, None).expect("one").write(1, b"bytes");
        table.slot(child).expect("live").spoil();
        let mut bytes = Vec::new();
        table.put(&mut bytes);
        let mut there: Table = parsed(&bytes).expect("whole");
        assert_eq!((there.len(), there.handles()), (2, vec![root, child]));
        assert_eq!(there.descendants(root), Ok(vec![child]));
        let slot = there.slot(root).expect("live");
        assert_eq!((slot.epoch, slot.record().is_ok()), (LOST, true));
        assert_eq!(slot.keeper.read(0, 9).as_deref(), Some(&b"\0bytes"[..]));
        let slot = there.slot(child).expect("live");
        assert_eq!(slot.record().err(), Some(Bad::Corrupt));
        assert!(there.names[&(0, "a".into())].record().is_ok());
        assert_eq!(there.slot(gone).err(), Some(Bad::Stale));
        // Its place has a new name, which an older process cannot have had.
        assert_eq!(there.insert_at(gone, record(None)), None);
        let next = Handle {
            generation: gone.generation + 1,
            ..gone
        };
        assert_eq!(there.insert_at(next, record(None)), Some(()));
        assert_eq!(there.insert_at(next, record(None)), None);
        assert_eq!(there.len(), 3);
    }
}
