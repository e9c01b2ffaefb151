//! One bit of what the host remembers of objects, changed behind all checksums: a fault, for tests and campaigns.
//!
//! Not covered: pointers and lengths of the host's own structures, whose change ends the process or is the allocator's business.

use super::keeper::Keeper;
use super::slot::{Record, Slot};
use super::slots::Table;
use crate::body::Inner;
use crate::value::Value;

/// A number below the one given.
pub(crate) type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

fn place(draw: Draw<'_>, of: usize) -> usize {
    usize::try_from(draw(of as u64)).unwrap_or(0)
}

fn in_word(word: &mut u64, draw: Draw<'_>) -> bool {
    *word ^= 1 << draw(64);
    true
}

fn in_place(word: &mut usize, draw: Draw<'_>) -> bool {
    *word ^= 1 << draw(u64::from(usize::BITS));
    true
}

fn in_half(word: &mut u32, draw: Draw<'_>) -> bool {
    *word ^= 1 << draw(32);
    true
}

fn in_bytes(bytes: &mut [u8], draw: Draw<'_>) -> bool {
    if bytes.is_empty() {
        return false;
    }
    let at = place(draw, bytes.len());
    bytes[at] ^= 1 << draw(8);
    true
}

fn in_value(value: &mut Value, draw: Draw<'_>) -> bool {
    match value {
        Value::Bool(b) => {
            *b = !*b;
            true
        }
        Value::U32(n) => in_half(n, draw),
        Value::U64(n) => in_word(n, draw),
        Value::Bytes(bytes) => in_bytes(bytes, draw),
        Value::String(text) => {
            let mut bytes = std::mem::take(text).into_bytes();
            let done = in_bytes(&mut bytes, draw);
            // What is no UTF-8 any more no caller could tell apart from a trap: it is read with replacements.
            *text = String::from_utf8_lossy(&bytes).into_owned();
            done
        }
        Value::Handle(handle) => in_half(&mut handle.index, draw),
        Value::Option(Some(inner)) | Value::Result(Ok(Some(inner))) => in_value(inner, draw),
        Value::List(items) | Value::Tuple(items) if !items.is_empty() => {
            let at = place(draw, items.len());
            in_value(&mut items[at], draw)
        }
        _ => false,
    }
}

const IN_RECORD: u64 = 8;

fn in_record(record: &mut Record, which: u64, draw: Draw<'_>) -> bool {
    match which {
        0 => in_place(&mut record.state, draw),
        1 => in_place(&mut record.creator, draw),
        2 => in_place(&mut record.resource, draw),
        3 => in_half(&mut record.owner, draw),
        4 if !record.args.is_empty() => {
            let at = place(draw, record.args.len());
            in_value(&mut record.args[at], draw)
        }
        5 => match record.remembered.first_mut() {
            Some((_, args)) => args.first_mut().is_some_and(|(_, v)| in_value(v, draw)),
            None => false,
        },
        6 if !record.fields.is_empty() => {
            let at = place(draw, record.fields.len());
            in_word(&mut record.fields[at], draw)
        }
        7 => match &mut record.parent {
            Some(parent) => in_half(&mut parent.index, draw),
            None => false,
        },
        _ => false,
    }
}

const IN_KEEPER: u64 = 6;

fn in_keeper(keeper: &mut Keeper, which: u64, draw: Draw<'_>) -> bool {
    let blocks = keeper.blocks.len();
    let cells = keeper.keys.len();
    match which {
        0 if blocks > 0 => in_bytes(&mut keeper.blocks[place(draw, blocks)].bytes, draw),
        1 if blocks > 0 => in_half(&mut keeper.blocks[place(draw, blocks)].crc, draw),
        2 => in_place(&mut keeper.length, draw),
        3..IN_KEEPER if cells > 0 => {
            let cell = keeper.keys.values_mut().nth(place(draw, cells));
            cell.is_some_and(|cell| match which {
                3 => in_bytes(&mut cell.bytes, draw),
                4 => in_half(&mut cell.crc, draw),
                _ => in_word(&mut cell.epoch.0, draw),
            })
        }
        _ => false,
    }
}

/// What a process calls the object; what it is in this process is wasmtime's, and cannot be struck from here.
fn in_inner(inner: Option<&mut Inner>, draw: Draw<'_>) -> bool {
    match inner {
        Some(Inner::There(number)) => {
            let which = place(draw, 2);
            let mut words = number.both().into_iter();
            words.nth(which).is_some_and(|word| in_half(word, draw))
        }
        _ => false,
    }
}

const IN_SLOT: u64 = 6;

fn in_slot(slot: &mut Slot, draw: Draw<'_>) -> bool {
    let which = draw(IN_SLOT + IN_RECORD + IN_KEEPER + 1);
    match which {
        0 => in_word(&mut slot.generation.0, draw),
        1 => in_word(&mut slot.checksum, draw),
        2 => in_word(&mut slot.epoch.0, draw),
        3 => in_word(&mut slot.children_sum, draw),
        4 => match slot.children.first_mut() {
            Some(child) => in_half(&mut child.index, draw),
            None => false,
        },
        5 => in_inner(slot.inner.first_mut(), draw),
        _ if which < IN_SLOT + IN_RECORD => in_record(&mut slot.record, which - IN_SLOT, draw),
        _ if which < IN_SLOT + IN_RECORD + IN_KEEPER => {
            in_keeper(&mut slot.keeper, which - IN_SLOT - IN_RECORD, draw)
        }
        _ => {
            slot.record.ended = !slot.record.ended;
            true
        }
    }
}

impl Table {
    /// Changes one bit of one object or name. False where there is nothing at the place that was drawn.
    pub(crate) fn flip(&mut self, draw: Draw<'_>) -> bool {
        let live: Vec<_> = self.slots.iter_mut().filter(|slot| slot.live).collect();
        let (slots, names) = (live.len(), self.names.len());
        if slots + names == 0 {
            return false;
        }
        let which = place(draw, slots + names);
        if let Some(slot) = live.into_iter().nth(which) {
            return in_slot(slot, draw);
        }
        let named = self.names.values_mut().nth(which - slots);
        named.is_some_and(|named| match draw(2 + IN_RECORD + IN_KEEPER) {
            0 => in_word(&mut named.checksum, draw),
            1 => in_word(&mut named.epoch.0, draw),
            which if which < 2 + IN_RECORD => in_record(&mut named.record, which - 2, draw),
            which => in_keeper(&mut named.keeper, which - 2 - IN_RECORD, draw),
        })
    }
}
