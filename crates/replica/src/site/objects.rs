//! Objects: sets of semaphores and queues of messages of System V that a program has made, for a site that joins (ipc.c).
//!
//! ```text
//!   survivor: values, what is to be taken back of them, messages ──► bytes ──► joiner: made anew, by the same key and number
//!   joiner: each process does what is to be taken back of it (SF_C_TAKE) ──► settle: the survivor's values
//! ```
//!
//! Invariants
//!  1. What is made here goes again, unless the site has joined.
//!  2. The joiner's are read back, and are what the survivor's were.
//!
//! Not covered: by which process and when one was used last.

use std::io;

use steadfast_sys::ipc::{self, About, Kind, Made, Message, VALUE_MAX};
use steadfast_sys::{procfs, segment};

use super::Site;

/// struct sf_tree (abi.h): segments, sets and queues, each number in the lower half.
const NUMBERS: usize = 12_312;
const NUMBERS_MAX: usize = 128;
const UNDO: usize = 15_384;
const UNDO_BYTES: usize = 12;
const UNDO_MAX: usize = 256;
const UNDO_LOST: usize = 18_456;
const KINDS: [Kind; 2] = [Kind::Set, Kind::Queue];

/// What the kernel takes back of a semaphore when its process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Undo {
    /// Its place of all processes.
    process: usize,
    which: u16,
    by: i16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Holds {
    Set(Vec<u16>, Vec<Undo>),
    Queue(Vec<Message>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Object {
    /// As the program knows it.
    number: i32,
    about: About,
    holds: Holds,
}

/// All that a program has.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Objects(Vec<Object>);

/// What a joiner has made of them.
#[derive(Debug, Default)]
pub struct Counterparts {
    made: Vec<Made>,
    told: Objects,
    /// Of a set, by which each semaphore is above the survivor's until all processes have done theirs.
    above: Vec<Vec<u16>>,
}

fn half(word: u64) -> i32 {
    let half = u32::try_from(word & 0xffff_ffff).expect("half a word");
    half.wrapping_sub(1).cast_signed()
}

impl Site {
    /// Own numbers, and the program's.
    fn numbered(&self, table: usize) -> impl Iterator<Item = (i32, i32)> {
        let words = (0..NUMBERS_MAX).map(move |index| {
            self.turns
                .get64(NUMBERS + 8 * (table * NUMBERS_MAX + index))
        });
        words
            .filter(|word| *word != 0)
            .map(|word| (half(word >> 32), half(word)))
    }

    /// By process, set (the program's number), semaphore and how much.
    fn undone(&self) -> Vec<(i32, i32, u16, i16)> {
        let one = |index| {
            let at = UNDO + index * UNDO_BYTES;
            let last = self.turns.get32(at + 8);
            let [a, b, c, d] = last.to_le_bytes();
            (
                self.turns.get32(at).cast_signed(),
                self.turns.get32(at + 4).cast_signed(),
                u16::from_le_bytes([a, b]),
                i16::from_le_bytes([c, d]),
            )
        };
        (0..UNDO_MAX).map(one).filter(|undo| undo.0 != 0).collect()
    }

    /// Nobody of this site has the program any more, and another one may: what it has made of System V goes.
    pub fn forget_objects(&self) {
        for (table, kind) in (1..).zip(KINDS) {
            for (own, _) in self.numbered(table) {
                let _ = ipc::remove(kind, own);
            }
        }
        for (own, _) in self.numbered(0) {
            let about = segment::about(own);
            if about.is_ok_and(|about| about.attached == 0 && procfs::has_ended(about.creator)) {
                let _ = segment::remove(own);
            }
        }
    }
}

impl Objects {
    /// Survivor, all paused: what its processes have.
    ///
    /// # Errors
    /// When some of it cannot be read.
    pub fn of(sites: &[&Site]) -> Result<Self, String> {
        let first = sites.first().ok_or("no process")?;
        let failed = |what: &str, number: i32, error: io::Error| {
            format!("{what} of System V ({number}) cannot be handed on: {error}")
        };
        if first.turns.get32(UNDO_LOST) != 0 {
            return Err("its processes have done too much to semaphores of System V that is to be undone when they end".into());
        }
        let undone = first.undone();
        let mut all = Vec::new();
        for (own, number) in first.numbered(1) {
            // What the kernel has no more nobody can have.
            let Ok(about) = ipc::about(Kind::Set, own) else {
                continue;
            };
            let values =
                ipc::values(own).map_err(|error| failed("a set of semaphores", number, error))?;
            let its = undone.iter().filter(|(_, set, ..)| *set == number);
            let undo = its.filter_map(|(pid, _, which, by)| {
                let process = sites.iter().position(|site| site.pid() == *pid)?;
                Some(Undo {
                    process,
                    which: *which,
                    by: *by,
                })
            });
            all.push(Object {
                number,
                about,
                holds: Holds::Set(values, undo.collect()),
            });
        }
        for (own, number) in first.numbered(2) {
            let Ok(about) = ipc::about(Kind::Queue, own) else {
                continue;
            };
            let messages: io::Result<_> = (0..about.count)
                .map(|place| ipc::peek(own, place))
                .collect();
            let messages = messages.map_err(|error| failed("a queue", number, error))?;
            all.push(Object {
                number,
                about,
                holds: Holds::Queue(messages),
            });
        }
        Ok(Self(all))
    }

    /// As it travels.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |words: &[i64]| out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        put(&[signed(self.0.len())]);
        for object in &self.0 {
            let about = object.about;
            put(&[
                i64::from(object.number),
                i64::from(about.key),
                i64::from(about.owner.0),
                i64::from(about.owner.1),
                i64::from(about.rights),
                about.room.cast_signed(),
            ]);
            match &object.holds {
                Holds::Set(values, undo) => {
                    put(&[0, signed(values.len()), signed(undo.len())]);
                    values.iter().for_each(|value| put(&[i64::from(*value)]));
                    for one in undo {
                        put(&[signed(one.process), i64::from(one.which), i64::from(one.by)]);
                    }
                }
                Holds::Queue(messages) => {
                    put(&[1, signed(messages.len()), 0]);
                    for (kind, bytes) in messages {
                        put(&[*kind, signed(bytes.len())]);
                        bytes.iter().for_each(|byte| put(&[i64::from(*byte)]));
                    }
                }
            }
        }
        out
    }

    /// Nothing: it is damaged.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().expect("eight bytes");
            i64::from_le_bytes(word)
        });
        let mut next = || words.next();
        let mut all = Vec::new();
        for _ in 0..next()? {
            let number = next()?.try_into().ok()?;
            let key = next()?.try_into().ok()?;
            let owner = (next()?.try_into().ok()?, next()?.try_into().ok()?);
            let rights = next()?.try_into().ok()?;
            let room = next()?.cast_unsigned();
            let (is_queue, count, others) = (next()? == 1, next()?, next()?);
            let holds = if is_queue {
                let mut messages = Vec::new();
                for _ in 0..count {
                    let (kind, len) = (next()?, next()?);
                    let bytes: Option<Vec<u8>> =
                        (0..len).map(|_| next()?.try_into().ok()).collect();
                    messages.push((kind, bytes?));
                }
                Holds::Queue(messages)
            } else {
                let values: Option<Vec<u16>> =
                    (0..count).map(|_| next()?.try_into().ok()).collect();
                let one = |_| {
                    Some(Undo {
                        process: next()?.try_into().ok()?,
                        which: next()?.try_into().ok()?,
                        by: next()?.try_into().ok()?,
                    })
                };
                let undo: Option<Vec<Undo>> = (0..others).map(one).collect();
                Holds::Set(values?, undo?)
            };
            all.push(Object {
                number,
                about: About {
                    key,
                    owner,
                    rights,
                    count: usize::try_from(count).ok()?,
                    room,
                },
                holds,
            });
        }
        Some(Self(all))
    }

    /// Joiner: the same, for processes that have not done yet what is to be taken back of them.
    ///
    /// # Errors
    /// When one cannot be had.
    pub fn make(self) -> Result<Counterparts, String> {
        let mut counterparts = Counterparts::default();
        for object in &self.0 {
            let failed = |what: &str, error: io::Error| {
                let why = match error.raw_os_error() {
                    Some(libc::EEXIST) => format!(
                        "one by that key is there already; fix: ipcrm on this host, if an earlier run has left it behind ({error})"
                    ),
                    _ => error.to_string(),
                };
                format!(
                    "{what} of System V (key {:#x}) cannot be had: {why}",
                    object.about.key
                )
            };
            let made = match &object.holds {
                Holds::Set(values, undo) => {
                    let (begin, above) = begins(values, undo)
                        .ok_or("a set of semaphores of System V holds too much")?;
                    counterparts.above.push(above);
                    Made::set(&object.about, &begin)
                        .map_err(|error| failed("a set of semaphores", error))?
                }
                Holds::Queue(messages) => {
                    counterparts.above.push(Vec::new());
                    Made::queue(&object.about, messages)
                        .map_err(|error| failed("a queue", error))?
                }
            };
            counterparts.made.push(made);
        }
        counterparts.told = self;
        Ok(counterparts)
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).expect("bounded by memory")
}

/// Where semaphores begin that come to these values when each process has done its part, in any order and without waiting; and by how
/// much they are above them then.
fn begins(values: &[u16], undo: &[Undo]) -> Option<(Vec<u16>, Vec<u16>)> {
    let one = |(which, value): (usize, &u16)| {
        let of = undo.iter().filter(|one| usize::from(one.which) == which);
        let (up, down) = of.fold((0_i32, 0_i32), |(up, down), one| {
            let by = i32::from(one.by);
            (up + by.max(0), down + by.min(0))
        });
        let above = (-(i32::from(*value) + down)).max(0);
        let begin = i32::from(*value) + up + down + above;
        // The highest that it comes to: whoever lets go before the others take.
        if begin - down > i32::from(VALUE_MAX) {
            return None;
        }
        Some((u16::try_from(begin).ok()?, u16::try_from(above).ok()?))
    };
    values.iter().enumerate().map(one).collect()
}

impl Counterparts {
    /// Which number is whose, and what each process, which stands, is to do.
    ///
    /// # Errors
    /// When there are too many.
    pub fn tell(&self, first: &Site, sites: &[i32]) -> Result<(), String> {
        let (mut counts, mut owed) = ([0; 3], 0);
        for (made, object) in self.made.iter().zip(&self.told.0) {
            let (table, undo): (usize, &[Undo]) = match &object.holds {
                Holds::Set(_, undo) => (1, undo),
                Holds::Queue(_) => (2, &[]),
            };
            let word = |id: i32| u64::from(id.cast_unsigned()) + 1;
            let index = counts[table];
            if index == NUMBERS_MAX || owed + undo.len() > UNDO_MAX {
                return Err("the program has too many objects of System V".into());
            }
            counts[table] += 1;
            let at = NUMBERS + 8 * (table * NUMBERS_MAX + index);
            let numbers = word(made.id()) << 32 | word(object.number);
            first.turns.set64(at, numbers);
            for one in undo {
                let pid = sites.get(one.process).ok_or("a process is missing")?;
                let at = UNDO + owed * UNDO_BYTES;
                let [a, b] = one.which.to_le_bytes();
                let [c, d] = one.by.to_le_bytes();
                first.turns.set32(at + 4, object.number.cast_unsigned());
                first.turns.set32(at + 8, u32::from_le_bytes([a, b, c, d]));
                first.turns.set32(at, pid.cast_unsigned());
                owed += 1;
            }
        }
        Ok(())
    }

    /// All processes have done theirs: each holds what the survivor's does.
    ///
    /// # Errors
    /// When one does not.
    pub fn settle(&self) -> Result<(), String> {
        let objects = self.made.iter().zip(&self.told.0);
        for ((made, object), above) in objects.zip(&self.above) {
            let is_right = match &object.holds {
                Holds::Set(values, _) => lowered(made.id(), above).map(|now| now == *values),
                Holds::Queue(messages) => (0..messages.len())
                    .map(|place| ipc::peek(made.id(), place))
                    .collect::<io::Result<Vec<_>>>()
                    .map(|now| now == *messages),
            };
            if !is_right.map_err(|error| error.to_string())? {
                return Err("what it has of System V is not what was sent".into());
            }
        }
        Ok(())
    }

    /// The site has joined: it stays.
    pub fn keep(&mut self) {
        self.made.iter_mut().for_each(Made::keep);
    }
}

fn lowered(id: i32, above: &[u16]) -> io::Result<Vec<u16>> {
    for (which, above) in (0..).zip(above) {
        let mut left = *above;
        while left > 0 {
            let part = left.min(VALUE_MAX);
            ipc::add(id, which, -part.cast_signed())?;
            left -= part;
        }
    }
    ipc::values(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undo(process: usize, which: u16, by: i16) -> Undo {
        Undo { process, which, by }
    }

    fn object(number: i32, holds: Holds) -> Object {
        let own = i32::try_from(std::process::id()).expect("a number");
        let count = match &holds {
            Holds::Set(values, _) => values.len(),
            Holds::Queue(messages) => messages.len(),
        };
        Object {
            number,
            about: About {
                key: 0,
                owner: procfs::effective_ids(own).expect("procfs tells"),
                rights: 0o600,
                count,
                room: if matches!(holds, Holds::Queue(_)) {
                    9000
                } else {
                    0
                },
            },
            holds,
        }
    }

    fn all() -> Objects {
        Objects(vec![
            object(
                7,
                Holds::Set(vec![0, 5], vec![undo(0, 0, 1), undo(1, 1, -3)]),
            ),
            object(
                -1,
                Holds::Queue(vec![(3, b"abc".to_vec()), (1 << 40, Vec::new())]),
            ),
        ])
    }

    #[test]
    fn what_travels_is_what_was_sent() {
        assert_eq!(Objects::decode(&all().encode()), Some(all()));
        let bytes = all().encode();
        assert_eq!(Objects::decode(&bytes[..bytes.len() - 8]), None);
        assert_eq!(Objects::decode(&[]), None);
    }

    /// In whichever order the processes come.
    #[test]
    fn semaphores_come_to_their_values_when_each_process_has_done_its_part() {
        let cases: [(u16, &[i16]); 6] = [
            (0, &[1]),
            (0, &[-1]),
            (2, &[-3, 1, 1]),
            (0, &[5, -9, 2]),
            (32767, &[1]),
            (1, &[]),
        ];
        for (value, by) in cases {
            let undo: Vec<Undo> = by.iter().map(|by| undo(0, 0, *by)).collect();
            let begun = begins(&[value], &undo);
            if value == 32767 {
                assert_eq!(begun, None, "nothing is above it");
                continue;
            }
            let (begin, above) = begun.expect("it fits");
            let mut sorted = by.to_vec();
            sorted.sort_unstable();
            for order in [
                by.to_vec(),
                sorted.clone(),
                sorted.into_iter().rev().collect(),
            ] {
                let mut now = i32::from(begin[0]);
                for by in order {
                    now -= i32::from(by);
                    assert!((0..=32767).contains(&now), "{value} {by}");
                }
                assert_eq!(now, i32::from(value) + i32::from(above[0]), "{value}");
            }
        }
    }

    #[test]
    fn counterparts_hold_what_was_told_and_go_unless_they_are_kept() {
        let told = Objects(vec![
            object(3, Holds::Set(vec![4, 0], vec![])),
            object(4, Holds::Queue(vec![(1, b"x".to_vec())])),
        ]);
        let made = told.make().expect("it is new");
        made.settle().expect("nobody had anything to do");
        let ids: Vec<i32> = made.made.iter().map(Made::id).collect();
        ipc::add(ids[0], 1, 1).expect("it is there");
        let why = made.settle().expect_err("it holds something else");
        assert!(why.contains("not what was sent"), "{why}");
        drop(made);
        assert!(ipc::about(Kind::Set, ids[0]).is_err());
        assert!(ipc::about(Kind::Queue, ids[1]).is_err());
    }
}
