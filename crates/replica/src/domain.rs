//! Domain: the repair of a process that shares writable memory with others of its tree (crates/agent, domain.c).
//!
//! ```text
//!   wrong, crashed, hung ──► overwritten in place: it maps the segments of its index, and nobody else can
//!   a dead follower      ──► its turn is ended, or awaited ──► the leader copies itself
//!                        ──► the copy attaches the segments of its own index in place of the leader's
//!   a dead leader        ──► a follower ends its turn ──► the keeper copies itself ──► memory is the follower's
//!                        ──► the copy attaches the segments of the leaders, and maps their files
//! ```
//!
//! A segment of index `r` is found by what other processes map: where their leader has the memory that this leader has, their
//! replica `r` has what this replica `r` had. If no other process has it, nothing is left of it, and it is made anew. Files are found
//! by their copies (segments.rs).
//!
//! One that kills itself dies with the baton: its turn is ended at every index.
//!
//! Invariant: segments are copied only between replicas that hold the same ticket, or where no other process has them.
//!
//! Not covered: a leader that has died while followers took their turns, or with a System V segment of the program's that no other
//! process has attached: its number is not known here.

use std::io;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use steadfast_digest as digest;
use steadfast_sys::memory::Remote;
use steadfast_sys::procfs::{self, Mapping};
use steadfast_sys::segment;
use steadfast_sys::shared::Shared;

use crate::abi::{self, cmd};
use crate::group::at;
use crate::segments::{self, Way};
use crate::supervise::recovery::{ANSWER, Standing};
use crate::supervise::{LEAVES, Supervisor};
use crate::transplant;

/// How often who is waited for is looked at.
const LOOK: Duration = Duration::from_millis(1);
/// Replicas of a process come to a mapping one after the other, within this.
const SOON: Duration = Duration::from_secs(1);

/// Of a word of the domain's page; the other bits are its check.
const TICKET: u64 = 0xff_ffff_ffff;

/// A ticket as replicas keep it (domain.c, `seal`).
fn sealed(ticket: u64) -> [u8; 8] {
    let check = u64::from(!digest::crc32c_append(u32::MAX, &ticket.to_le_bytes()));
    (ticket & TICKET | check << 40).to_le_bytes()
}

/// A segment's part that a new replica is to map.
struct Part {
    map: Mapping,
    from: From,
}

enum From {
    Number(i32),
    File(PathBuf),
    /// Nobody else maps it: its bytes are the donor's.
    Made(Shared),
}

impl Part {
    fn place(&self) -> Option<segments::Place<'_>> {
        let map = &self.map;
        let (offset, way) = match &self.from {
            From::Number(number) => (map.offset, Way::Number(*number)),
            From::File(path) => (map.offset, Way::Path(path)),
            From::Made(made) => (0, Way::Number(made.id()?)),
        };
        Some(segments::Place {
            at: map.range.start,
            bytes: map.range.end - map.range.start,
            offset,
            rights: u64::from(map.readable)
                | u64::from(map.writable) << 1
                | u64::from(map.executable) << 2,
            way,
        })
    }
}

impl Supervisor<'_> {
    /// Whether `losers` can be mended: they are dead followers, or all others stand where what they share is of one moment.
    pub(crate) fn can_be_mended(&self, standing: &[Standing], losers: u32) -> bool {
        let dead = |r: &usize| matches!(standing[*r], Standing::Died(_));
        let all = 0..self.replicas.len();
        let followers = !dead(&0)
            && all
                .clone()
                .filter(|r| losers & 1 << r != 0)
                .all(|r| dead(&r));
        followers || self.is_of_one_moment(standing, all.filter(|r| !dead(r)))
    }

    /// Each holds the baton of its index, and then the same ticket, or none does, and has stored nothing since all agreed.
    /// One that hangs was called to pause where it is, and has the baton as long as it has come to no event.
    fn is_of_one_moment(
        &self,
        standing: &[Standing],
        mut replicas: impl Iterator<Item = usize> + Clone,
    ) -> bool {
        let held = |r: usize| self.group.get32(at!(baton_held) + 4 * r) != 0;
        let first = replicas.clone().next();
        let stands = |r: usize| match standing[r] {
            Standing::Paused => true,
            Standing::Died(_) => false,
            Standing::Hung { .. } => self.pauses_when_called(r),
        };
        replicas.all(|r| stands(r) && first.is_some_and(|first| held(r) == held(first)))
    }

    /// Makes a replica of a domain what `donor` is, in its own process. While it holds the baton what it shares is copied
    /// too, since nobody else of either index stores to it.
    pub(crate) fn overwrite(&self, r: usize, donor: usize) -> io::Result<bool> {
        if self.group.order(donor, cmd::SEND, 0, ANSWER).is_none()
            || !self.copy_memory(donor, r, false)?
        {
            return Ok(false);
        }
        if self.group.get32(at!(baton_held) + 4 * r) != 0 && !self.copy_segments(donor, r)? {
            return Ok(false);
        }
        Ok(self.receives(r, donor))
    }

    /// The program has killed itself, at a call to which all replicas had come with the baton of their indexes: nothing of its
    /// turn is left to be done.
    pub(crate) fn end_the_turn(&self) -> io::Result<()> {
        let all = 0..self.replicas.len();
        let holds = |r: usize| self.group.get32(at!(baton_held) + 4 * r) != 0;
        let Some(follower) = self.replicas.get(1).filter(|_| all.clone().all(holds)) else {
            return Ok(());
        };
        let page = Remote::open(follower.pid)?;
        let place = |r: usize| abi::DOMAIN + abi::DOMAIN_SERVED + 8 * r as u64;
        let mut word = [0; 8];
        page.read(place(0), &mut word)?;
        let ticket = u64::from_le_bytes(word) & TICKET;
        for r in all.clone() {
            page.read(place(r), &mut word)?;
            if word != sealed(ticket) {
                return Ok(());
            }
        }
        for r in all {
            page.write(place(r), &sealed(ticket + 1))?;
            self.group.set64(at!(baton_given) + 8 * r, ticket + 1);
            self.group.set32(at!(baton_held) + 4 * r, 0);
        }
        Ok(())
    }

    fn copy_segments(&self, donor: usize, r: usize) -> io::Result<bool> {
        let (from, to) = (self.replicas[donor].pid, self.replicas[r].pid);
        Ok(transplant::copy_segments(from, to)?.is_some() && !self.is_going(donor))
    }

    /// The event at which followers are to pause when the leader has died: they take all that it has published, and so their
    /// turns.
    pub(crate) fn behind_the_dead_leader(&self) -> u64 {
        let place = self.group.get64(at!(own 0, next));
        let base = self.group.get64(at!(base));
        place + u64::from(self.group.published(base, place))
    }

    /// Followers that have taken all that a dead leader has published may pause where they are.
    pub(crate) fn call_those_who_have_their_turn(&self) {
        let from = self.group.get64(at!(alarm_seq));
        let mut followers = 1..self.replicas.len();
        let has_taken =
            |r: usize| self.died(r).is_some() || self.group.get64(at!(own r, done)) >= from;
        if self.shares_memory() && self.died(0).is_some() && from != 0 && followers.all(has_taken) {
            self.group.set64(at!(alarm_seq), 0);
        }
    }

    /// Makes a leader that has died again from a follower, whose registers it takes after this.
    pub(crate) fn led_by_another(&mut self, winner: usize) -> io::Result<bool> {
        let Some(holds) = self.inherited_turn(0, winner) else {
            return Ok(false);
        };
        Ok(self.spawn_leader(winner)
            && self.joins_its_index(0, winner, holds)?
            && self.copy_memory(winner, 0, true)?)
    }

    /// `heir` ends the turn of a replica that has died, or waits until it is its turn. Whether its successor has the baton;
    /// nothing: nobody can tell whose turn it is.
    pub(crate) fn inherited_turn(&self, r: usize, heir: usize) -> Option<bool> {
        let since = Instant::now();
        let not_yet = -i64::from(libc::EAGAIN);
        loop {
            match self.group.order(heir, cmd::INHERIT, r as u64, ANSWER)? {
                0 => return Some(false),
                1 => return Some(true),
                answer if answer == not_yet && since.elapsed() < LEAVES => sleep(LOOK),
                _ => return None,
            }
        }
    }

    /// A replica that is just being made from `donor` maps what the others of its index map.
    pub(crate) fn joins_its_index(&self, r: usize, donor: usize, holds: bool) -> io::Result<bool> {
        let Some(parts) = self.parts(r, donor)? else {
            return Ok(false);
        };
        let places: Option<Vec<_>> = parts.iter().map(Part::place).collect();
        let Some(list) = places.and_then(|places| segments::list(&places)) else {
            return Ok(false);
        };
        self.group.memory.write(abi::OFF_REMAP, &list);
        if self.group.order(r, cmd::SEGMENTS, 0, ANSWER) != Some(0) {
            return Ok(false);
        }
        if holds {
            return self.copy_segments(donor, r);
        }
        let (from, to) = (self.replicas[donor].pid, self.replicas[r].pid);
        let made = parts
            .iter()
            .filter(|part| matches!(part.from, From::Made(_)));
        transplant::copy_ranges(from, to, made.map(|part| &part.map.range))?;
        Ok(!self.is_going(donor))
    }

    /// What replica `r` is to map where `donor` maps segments. Nothing: of one of them nobody knows the number.
    fn parts(&self, r: usize, donor: usize) -> io::Result<Option<Vec<Part>>> {
        let pid = self.replicas[donor].pid;
        let owner =
            procfs::effective_ids(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
        let mut parts = Vec::new();
        for map in procfs::maps(pid)?
            .into_iter()
            .filter(transplant::is_segment)
        {
            let from = match self.found(&map, r, donor) {
                Found::Number(number) => {
                    segment::give_to(number, owner)?;
                    From::Number(number)
                }
                Found::File(path) => From::File(path),
                Found::Nowhere => {
                    let bytes = map.range.end - map.range.start;
                    let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
                    From::Made(Shared::attachable(bytes, owner, 0o600)?)
                }
                Found::Unknown => return Ok(None),
            };
            parts.push(Part { map, from });
        }
        Ok(Some(parts))
    }

    fn found(&self, map: &Mapping, r: usize, donor: usize) -> Found {
        let tree = &self.hearing.tree;
        if donor == 0
            && let Some(number) = tree.segments.copy_of(map.inode, r)
        {
            return Found::Number(number);
        }
        if r == 0
            && let Ok(copy) = i32::try_from(map.inode)
            && let Some(path) = tree.segments.path_of(copy, donor)
        {
            return Found::File(path);
        }
        // What only this leader had may be one that the program knows by its number.
        let may_have_a_number = r == 0 && self.group.get32(at!(domain)) > abi::DOMAIN_ANONYMOUS;
        // Others may be on their way to map it.
        let since = Instant::now();
        loop {
            match elsewhere(map, &tree.others(self.hearing.post()), r, donor) {
                Found::Unknown if since.elapsed() < SOON => sleep(LOOK),
                Found::Nowhere if may_have_a_number => return Found::Unknown,
                found => return found,
            }
        }
    }
}

enum Found {
    Number(i32),
    File(PathBuf),
    Nowhere,
    /// Another process has it, and its replica `r` does not say by which number.
    Unknown,
}

/// The number of the segment that replica `r` of another process has where its replica `donor` has the memory of `wanted`.
fn elsewhere(wanted: &Mapping, others: &[Vec<i32>], r: usize, donor: usize) -> Found {
    let mut found = Found::Nowhere;
    for crew in others {
        let Some(like) = crew.get(donor).filter(|pid| **pid > 1) else {
            found = Found::Unknown; // a copy that has just been asked for
            continue;
        };
        let theirs = procfs::maps(*like).unwrap_or_default();
        let same = |map: &&Mapping| {
            transplant::is_segment(map) && (map.inode, &map.path) == (wanted.inode, &wanted.path)
        };
        let Some(same) = theirs.iter().find(same) else {
            continue;
        };
        found = Found::Unknown;
        let at = same.range.start;
        let its = crew.get(r).and_then(|pid| procfs::maps(*pid).ok());
        let its = its.unwrap_or_default();
        let its = its.iter().find(|map| map.range.contains(&at));
        // Of a System V segment the number is what stands for the inode (proc_pid_maps(5)).
        if let Some(its) = its
            && its.shared
            && its.path.to_string_lossy().starts_with("/SYSV")
            && its.offset + (at - its.range.start) == same.offset
            && let Ok(number) = i32::try_from(its.inode)
        {
            return Found::Number(number);
        }
    }
    found
}
