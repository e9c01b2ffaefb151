//! Calls that changed the table, written down for the next process of the host ([`crate::keep`]), and repeated there.
//!
//! Invariants
//!  1. A call is written down when it has succeeded and is recorded, before its caller has the answer.
//!  2. What is repeated calls no component: objects come back later, when they are used.

use super::core::Core;
use crate::engine::LoadError;
use crate::keep::Kept;
use crate::model::{Effect, Model, Role};
use crate::table::{Slot, Table};
use crate::value::{Handle, Value};
use crate::wire::{Bytes, Rest, Wire, parsed, part, variants};
use crate::words::Kept as State;

/// What is written down.
enum Entry {
    Table(Bytes),
    /// Client, function, arguments, result with the handle that the client has.
    Call(u32, usize, Vec<Value>, Option<Value>),
    Discard(Handle),
}
variants!(Entry {
    1 Table(bytes),
    2 Call(client, function, args, result),
    3 Discard(handle),
});

fn bytes(of: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    of.put(&mut out);
    out
}

impl Core {
    /// Repeats what the last process has kept. False where it has kept nothing.
    pub(super) fn take_over(&mut self, kept: &Kept) -> Result<bool, LoadError> {
        let entries = kept.entries().map_err(|error| error.to_string());
        let repeated = entries.and_then(|all| {
            let any = !all.is_empty();
            for entry in all {
                let entry = parsed(&entry).ok_or("an entry that is none")?;
                self.repeat_entry(entry)?;
            }
            Ok(any)
        });
        repeated.map_err(|found| LoadError::Kept {
            component: self.name.clone(),
            found,
        })
    }

    /// Keeps from now on, with the objects that were restored or without. Those of components are gone: they hold nothing yet, and make
    /// new ones.
    pub(super) fn keep(&mut self, kept: Kept, restored: bool, component: impl Fn(u32) -> bool) {
        if restored {
            // No object is in the bodies.
            self.whole.fill(0);
            for handle in self.table.handles() {
                let theirs = |slot: &mut Slot| component(slot.owner());
                if self.table.slot(handle).is_ok_and(theirs) {
                    self.forget(handle);
                }
            }
        } else {
            self.table = Table::default();
            kept.forget();
        }
        self.kept = Some(kept);
        self.stats.kept = State::On;
        self.begin_anew();
    }

    fn repeat_entry(&mut self, entry: Entry) -> Result<(), String> {
        match entry {
            Entry::Table(Bytes(bytes)) => {
                self.table = parsed(&bytes).ok_or("a table that is none")?;
            }
            Entry::Discard(handle) => self.forget(handle),
            Entry::Call(client, function, args, result) => {
                let known = self.model.functions.get(function);
                if known.is_none_or(|known| known.params.len() != args.len()) {
                    return Err("a call of a function that is not there".into());
                }
                // Lost from the start: the next epoch is the first in which anything is there.
                let epoch = std::mem::take(&mut self.epoch);
                let made = result.as_ref().and_then(Value::handle);
                let recorded = self.record_again(client, function, &args, result, made);
                self.epoch = epoch;
                recorded.ok_or("a handle that no process can have had")?;
            }
        }
        Ok(())
    }

    /// Writes a call down that was recorded.
    pub(super) fn write_down(
        &mut self,
        client: u32,
        function: usize,
        args: &[Value],
        result: Option<&Value>,
    ) {
        if self.kept.is_none() || !changes(&self.model, function) {
            return;
        }
        let made = result.and_then(Value::handle);
        let given = self.model.functions[function].given();
        let known = match (given, made) {
            // As its identity made it: what its maker was given says nothing any more.
            (Some(resource), Some(handle)) if self.model.resources[resource].identity.is_some() => {
                let record = self
                    .table
                    .slot(handle)
                    .ok()
                    .map(|slot| slot.record().cloned());
                record.and_then(Result::ok)
            }
            _ => None,
        };
        let ends = matches!(self.model.functions[function].role, Role::Terminal { .. });
        if let Some(record) = known {
            let entry = Entry::Call(client, record.creator, record.args, result.cloned());
            self.write_entry(&entry);
            if !ends {
                return;
            }
        }
        let entry = Entry::Call(client, function, args.to_vec(), result.cloned());
        self.write_entry(&entry);
    }

    pub(super) fn write_discard(&mut self, handle: Handle) {
        if self.kept.is_some() {
            self.write_entry(&Entry::Discard(handle));
        }
    }

    fn write_entry(&mut self, entry: &Entry) {
        let entry = bytes(entry);
        if self.kept.as_mut().is_some_and(|kept| !kept.append(&entry)) {
            self.begin_anew();
        }
    }

    /// The whole table in place of all entries; the call that found no room is in it.
    pub(super) fn begin_anew(&mut self) {
        let table = bytes(&Entry::Table(Bytes(bytes(&self.table))));
        if let Some(kept) = &mut self.kept
            && kept.begin(&table).is_err()
        {
            // Old handles will be stale, which is told; a part of them would not be.
            self.kept = None;
            self.stats.kept = State::TooLarge;
        }
    }

    /// Another version: what is kept is of the new one.
    pub(super) fn keep_version(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.renamed(&fingerprint(&self.model));
            self.begin_anew();
        }
    }
}

/// Whether a function leaves anything in the table.
fn changes(model: &Model, function: usize) -> bool {
    let function = &model.functions[function];
    match function.role {
        Role::Create { .. } | Role::Terminal { .. } => true,
        Role::Method { .. } | Role::Free => {
            !matches!(function.effect, Effect::None | Effect::All { .. })
        }
    }
}

/// What makes a model another one: all that it says.
pub(super) fn fingerprint(model: &Model) -> String {
    format!("{model:?}")
}
