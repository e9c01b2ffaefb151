//! Several: the processes beside the first one of a program that a site joins (join.rs has what each of them becomes).
//!
//! ```text
//!   survivor, all paused                                joiner: the first process, which is nobody yet
//!   sort_out: what is open in common (open.rs) ───────► pool
//!   shared: which memory is common, and its bytes ────► InCommon::make (named.rs: what has a name)
//!   who is whose child ───────────────────────────────► bear ──► each is nobody ──► map, become_given
//! ```
//!
//! Invariant: a process is forked by the one that is to be its parent, while both are nobody. So it is the child that the program
//! knows, and has inherited what stands in the pool.
//!
//! Not covered: a process that has become another program.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use steadfast_digest::vote128;
use steadfast_sys::memory::Remote;
use steadfast_sys::pidfd::Process;
use steadfast_sys::shared::Shared;
use steadfast_sys::{child, procfs};

use super::join::{AREA, Pages, damaged, is_zero, weighed};
use super::memfd::Memfds;
use super::named::{Segment, Segments, Source};
use super::open::name_in;
use super::{Body, Site};
use crate::abi::{self, cmd, phase};
use crate::group::at;
use crate::launch;
use crate::segments;
use crate::supervise::control_block_in;
use crate::transplant::is_segment;

const PAGE: usize = 4096;
const PIECE: usize = 256 << 10;
/// With the number of a process: its parent has ended (abi.h, `SF_ORPHAN`).
const ORPHAN: u64 = 1 << 32;
/// A process that stands answers at once; a fork copies its page tables.
const ORDER: Duration = Duration::from_secs(10);

/// Where a process has memory that others have as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub at: u64,
    pub bytes: u64,
    /// In the segment, which goes by its place in the list of all.
    pub offset: u64,
    pub segment: usize,
    /// 1 to read, 2 to write, 4 to execute.
    pub rights: u64,
}

/// The memory that processes have in common, where they stand.
#[derive(Debug, Default)]
pub struct InCommon {
    pub segments: Vec<Segment>,
    /// Of each process.
    pub attached: Vec<Vec<Attached>>,
    /// Survivor: where each is read.
    sources: Vec<Source>,
}

impl InCommon {
    /// Joiner: what the survivor has told.
    #[must_use]
    pub fn told(segments: Vec<Segment>) -> Self {
        Self {
            segments,
            ..Self::default()
        }
    }

    fn push(&mut self, (segment, source): (Segment, Source)) -> usize {
        self.segments.push(segment);
        self.sources.push(source);
        self.segments.len() - 1
    }

    /// Survivor, all paused: what of their memory is common, and what they may have by a name.
    ///
    /// # Errors
    /// When some of it cannot be made on another host.
    pub fn of(sites: &[&Site], objects: Memfds) -> Result<Self, String> {
        let mut known: HashMap<(u64, PathBuf), usize> = HashMap::new();
        let mut this = Self::default();
        for (inode, link, told) in objects.into_told() {
            known.insert((inode, link), this.push(told));
        }
        let own = sites.first().ok_or("no process")?.own_memory();
        for site in sites {
            let mut attached = Vec::new();
            let maps = procfs::maps(site.pid).map_err(|error| error.to_string())?;
            for map in maps.into_iter().filter(is_segment) {
                let segment = match known.entry((map.inode, map.path.clone())) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        let nameless = || {
                            let segment = Segment {
                                bytes: 0,
                                name: None,
                            };
                            (segment, Source::Processes)
                        };
                        let told = own.named(&map)?.unwrap_or_else(nameless);
                        *new.insert(this.push(told))
                    }
                };
                attached.push(this.attach(&map, segment));
            }
            this.attached.push(attached);
        }
        for told in own.unmapped(&this.segments) {
            this.push(told);
        }
        Ok(this)
    }

    fn attach(&mut self, map: &procfs::Mapping, segment: usize) -> Attached {
        let bytes = map.range.end - map.range.start;
        let whole = &mut self.segments[segment];
        if whole.name.is_none() {
            whole.bytes = whole.bytes.max(map.offset + bytes);
        }
        Attached {
            at: map.range.start,
            bytes,
            offset: map.offset,
            segment,
            rights: u64::from(map.readable)
                | u64::from(map.writable) << 1
                | u64::from(map.executable) << 2,
        }
    }

    /// Where each segment's pages stand when they travel: one behind the other.
    fn starts(&self) -> Vec<u64> {
        let mut next = 0;
        let one = |segment: &Segment| {
            let at = next;
            next += segment.bytes.next_multiple_of(PAGE as u64);
            at
        };
        self.segments.iter().map(one).collect()
    }

    /// Survivor: hands its bytes on, but for zeros. The sum over all pages.
    ///
    /// # Errors
    /// When a process cannot be read, or `put` fails.
    pub fn give(
        &self,
        sites: &[&Site],
        mut put: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u128> {
        let starts = self.starts();
        let mut given = HashSet::new();
        let (mut sum, mut bytes) = (0_u128, vec![0; PIECE]);
        let mut hand_on = |given: &mut HashSet<(u64, usize)>, place, bytes: &[u8]| {
            for (index, page) in (0..).zip(bytes.chunks_exact(PAGE)) {
                let place = place + index * PAGE as u64;
                if !is_zero(page) && given.insert((place, 0)) {
                    sum = sum.wrapping_add(weighed(place, vote128(page)));
                    put(place, page)?;
                }
            }
            Ok::<_, io::Error>(())
        };
        for ((segment, source), start) in self.segments.iter().zip(&self.sources).zip(&starts) {
            for (from, len) in pieces(segment.bytes.next_multiple_of(PAGE as u64)) {
                match source.read(from, &mut bytes[..len]) {
                    None => break,
                    Some(read) => read?,
                }
                hand_on(&mut given, start + from, &bytes[..len])?;
            }
        }
        for (site, attached) in sites.iter().zip(&self.attached) {
            let memory = Remote::open(site.pid())?;
            let of_processes =
                |part: &&Attached| matches!(self.sources[part.segment], Source::Processes);
            // What the program may not read now it may have stored to: /proc/PID/mem reads it all the same.
            for part in attached.iter().filter(of_processes) {
                for (from, len) in pieces(part.bytes) {
                    let place = starts[part.segment] + part.offset + from;
                    if !given.insert((place, len)) {
                        continue;
                    }
                    memory.read(part.at + from, &mut bytes[..len])?;
                    hand_on(&mut given, place, &bytes[..len])?;
                }
            }
        }
        Ok(sum)
    }

    /// Joiner: the same memory, with these pages.
    ///
    /// # Errors
    /// When it cannot be had, or is not what was sent.
    pub fn make(&self, pages: &Pages, sum: u128) -> Result<Segments, String> {
        let failed =
            |error: io::Error| format!("memory that its processes share cannot be had: {error}");
        let own = i32::try_from(std::process::id()).expect("a number");
        let owner = procfs::effective_ids(own).ok_or("procfs does not tell who this is")?;
        let mut made = Segments::default();
        let mut own_sum = 0_u128;
        for (segment, start) in self.segments.iter().zip(self.starts()) {
            let whole = segment.bytes.next_multiple_of(PAGE as u64);
            made.add(segment, owner).map_err(failed)?;
            let back = |address, page: &[u8]| {
                own_sum = own_sum.wrapping_add(weighed(address, vote128(page)));
            };
            made.fill(start, pages.between(start..start + whole), back)
                .map_err(failed)?;
        }
        if own_sum != sum {
            return Err("the memory that its processes share is not what was sent".into());
        }
        made.seal(true).map_err(failed)?;
        Ok(made)
    }
}

/// Where each piece of so many bytes begins, and how long it is.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes).step_by(PIECE).map(move |from| {
        let len = usize::try_from((bytes - from).min(PIECE as u64));
        (from, len.expect("bounded by PIECE"))
    })
}

impl Site {
    /// Joiner: attaches what its process has in common with others.
    pub(super) fn attach(&self, attached: &[Attached], common: &Segments) -> Result<(), String> {
        if attached.is_empty() {
            return Ok(());
        }
        let places = attached.iter().map(|part| {
            Some(segments::Place {
                at: part.at,
                bytes: part.bytes,
                offset: part.offset,
                rights: part.rights,
                way: common.way(part.segment)?,
            })
        });
        let places: Option<Vec<_>> = places.collect();
        let places = places.ok_or("the list of its memory is damaged")?;
        let list = segments::list(&places).ok_or("it has too many mappings")?;
        self.group().memory.write(abi::OFF_REMAP, &list);
        self.obeys(cmd::SEGMENTS, 0, "share memory")
    }

    /// Joiner, whose first process is nobody: what several will have open is made there, for its children to inherit.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn pool(&self, area: &[u8]) -> Result<(), String> {
        if area.is_empty() {
            return Ok(());
        }
        self.group().memory.write(AREA, area);
        match self.group().order(1, cmd::POOL, 0, ORDER) {
            Some(0) => Ok(()),
            Some(refused) => Err(format!(
                "what its processes have in common cannot be made: {}",
                damaged(refused).unwrap_or_else(|| name_in(area, -1000 - refused))
            )),
            None => Err("its process does not answer".into()),
        }
    }

    /// From here on calls on files take turns: there are other processes.
    pub fn has_others(&self) {
        if self.turns.get32(4) == 0 {
            self.turns.set32(4, 1);
        }
    }

    /// Joiner: this process, which is nobody, has a child that is nobody as well; the program knows it by `number`. The first process
    /// makes those whose parent has ended.
    ///
    /// # Errors
    /// When there is none.
    pub fn bear(&self, strand: u64, number: u32, is_orphan: bool) -> Result<Self, String> {
        let failed = |error: io::Error| format!("it cannot have another process: {error}");
        let (plan, modules) = self
            .for_a_child()
            .ok_or("the faults of its plan cannot be another process's")?;
        let cores = launch::cores(&plan).map_err(|error| error.to_string())?;
        let owner = procfs::effective_ids(self.pid).ok_or("its process is gone")?;
        let memory = Shared::attachable(abi::SHARED_BYTES, owner, 0o600).map_err(failed)?;
        let id = u64::try_from(memory.id().expect("a segment")).expect("a number");
        let options = self.options(false);
        let group = control_block_in(memory, &plan, &cores, false, false, options);
        self.hand_down(&self.group(), &group);
        modules.flips.write(&group.memory);
        group.set32(at!(remade), 1);
        group.set32(at!(go), 1);
        let parent = self.group();
        let orphan = if is_orphan { ORPHAN } else { 0 };
        parent.command2(1, cmd::BEAR, id, orphan | u64::from(number));
        let pid = parent
            .obeyed(1, ORDER)
            .ok_or("its process does not answer")?;
        let pid = i32::try_from(pid)
            .ok()
            .filter(|pid| *pid > 1)
            .ok_or_else(|| {
                failed(io::Error::from_raw_os_error(
                    i32::try_from(-pid).unwrap_or(0),
                ))
            })?;
        let mut site = self.with(Body { strand, group }, modules, plan);
        site.pid = pid;
        site.process = Process::open(pid).ok();
        site.group().set_pid(1, pid);
        let stands = site
            .group()
            .wait_until(ORDER, || site.group().phase(1) == phase::PAUSED);
        if !stands || site.process.is_none() || self.tree.list(pid).is_none() {
            child::kill(pid, libc::SIGKILL);
            return Err("another process of it does not come to a halt".into());
        }
        Ok(site)
    }
}
