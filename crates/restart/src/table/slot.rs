//! One object and one name, as the host remembers them.

use super::keeper::Keeper;
use super::sealed::{Bad, Sealed};
use crate::body::Inners;
use crate::value::{Handle, Sum, Value};

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
    /// Its client has given it back, and it is there for what was made from it alone.
    pub(crate) ended: bool,
}

impl Record {
    pub(super) fn checksum(&self) -> u64 {
        // One product a word: a call of a method looks at its object's record, or changes it, three times.
        let (index, generation) = match self.parent {
            Some(parent) => (
                u64::from(parent.index) | 1 << 32,
                u64::from(parent.generation),
            ),
            None => (0, 0),
        };
        let mut sum = Sum::NEW
            .word(self.resource as u64)
            // No resource has 2^63 states.
            .word(self.state as u64 ^ u64::from(self.ended) << 63)
            .word(self.creator as u64)
            .word(self.args.len() as u64)
            .word(self.remembered.len() as u64)
            .word(u64::from(self.owner) | generation << 32)
            .word(index);
        for arg in &self.args {
            sum = arg.feed(sum);
        }
        for (function, args) in &self.remembered {
            sum = sum.word(*function as u64).word(args.len() as u64);
            for (place, value) in args {
                sum = value.feed(sum.word(*place as u64));
            }
        }
        self.fields
            .iter()
            .fold(sum, |sum, field| sum.word(*field))
            .0
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
    pub(super) generation: Sealed,
    pub(super) live: bool,
    pub(super) record: Record,
    pub(super) checksum: u64,
    pub(crate) keeper: Keeper,
    /// The epoch in which `inner` is valid.
    pub(crate) epoch: Sealed,
    pub(crate) inner: Inners,
    /// What was made from it, and a sum over these handles that says whether they are still all of them.
    pub(super) children: Vec<Handle>,
    pub(super) children_sum: u64,
}

/// A handle in a sum that does not depend on the order. The constant is 2^64 over the golden ratio (Knuth, vol. 3, section 6.4).
pub(super) fn share(handle: Handle) -> u64 {
    let word = u64::from(handle.index) | u64::from(handle.generation) << 32;
    (word.wrapping_add(1)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What a name stands for: data that outlive the objects made with it.
#[derive(Debug)]
pub(crate) struct Named {
    /// How an object of that name is made.
    pub(super) record: Record,
    pub(super) checksum: u64,
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

impl Slot {
    /// How often its place was used before. Of one that has changed no handle fits.
    pub(super) fn number(&self) -> u32 {
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

    pub(super) fn children(&self) -> Result<&[Handle], Bad> {
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
