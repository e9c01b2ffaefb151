//! Several: the processes beside the first one of a program that a site joins (join.rs has what each of them becomes).
//!
//! ```text
//!   survivor, all paused                                joiner: the first process, which is nobody yet
//!   sort_out: what is open in common (open.rs) ───────► pool
//!   shared: which memory is common, and its bytes ────► Segments::make
//!   who is whose child ───────────────────────────────► bear ──► each is nobody ──► map, become_given
//! ```
//!
//! Invariant: a process is forked by the one that is to be its parent, while both are nobody. So it is the child that the program
//! knows, and has inherited what stands in the pool.
//!
//! Not covered: memory that has a name; a process that has become another program.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use steadfast_digest::vote128;
use steadfast_sys::memory::Remote;
use steadfast_sys::pidfd::Process;
use steadfast_sys::shared::Shared;
use steadfast_sys::{child, procfs};

use super::join::{AREA, Pages, is_zero, weighed};
use super::open::name_in;
use super::{Body, Site};
use crate::abi::{self, cmd, option, phase};
use crate::group::at;
use crate::launch;
use crate::supervise::control_block_in;
use crate::transplant::is_segment;

const PAGE: usize = 4096;
const PIECE: usize = 256 << 10;
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
    /// Bytes of each segment.
    pub segments: Vec<u64>,
    /// Of each process.
    pub attached: Vec<Vec<Attached>>,
}

impl InCommon {
    /// Survivor, all paused: what of their memory is common.
    ///
    /// # Errors
    /// When some of it has a name, and so cannot be made on another host.
    pub fn of(sites: &[&Site]) -> Result<Self, String> {
        let mut known: BTreeMap<u64, usize> = BTreeMap::new();
        let mut this = Self::default();
        for site in sites {
            let mut attached = Vec::new();
            for map in site.segments()? {
                let segment = *known.entry(map.inode).or_insert_with(|| {
                    this.segments.push(0);
                    this.segments.len() - 1
                });
                let bytes = map.range.end - map.range.start;
                this.segments[segment] = this.segments[segment].max(map.offset + bytes);
                attached.push(Attached {
                    at: map.range.start,
                    bytes,
                    offset: map.offset,
                    segment,
                    rights: u64::from(map.readable)
                        | u64::from(map.writable) << 1
                        | u64::from(map.executable) << 2,
                });
            }
            this.attached.push(attached);
        }
        Ok(this)
    }

    /// Where each segment's pages stand when they travel: one behind the other.
    fn starts(&self) -> Vec<u64> {
        let mut next = 0;
        let one = |bytes: &u64| {
            let at = next;
            next += bytes.next_multiple_of(PAGE as u64);
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
        let mut given = std::collections::HashSet::new();
        let (mut sum, mut bytes) = (0_u128, vec![0; PIECE]);
        for (site, attached) in sites.iter().zip(&self.attached) {
            let memory = Remote::open(site.pid())?;
            // What the program may not read now it may have stored to: /proc/PID/mem reads it all the same.
            for part in attached {
                for from in (0..part.bytes).step_by(PIECE) {
                    let len = usize::try_from((part.bytes - from).min(PIECE as u64));
                    let len = len.expect("bounded by PIECE");
                    let place = starts[part.segment] + part.offset + from;
                    if !given.insert((place, len)) {
                        continue;
                    }
                    memory.read(part.at + from, &mut bytes[..len])?;
                    for (index, page) in (0..).zip(bytes[..len].chunks_exact(PAGE)) {
                        let place = place + index * PAGE as u64;
                        if !is_zero(page) && given.insert((place, 0)) {
                            sum = sum.wrapping_add(weighed(place, vote128(page)));
                            put(place, page)?;
                        }
                    }
                }
            }
        }
        Ok(sum)
    }

    /// Joiner: the same memory, with these pages.
    ///
    /// # Errors
    /// When it cannot be had, or is not what was sent.
    pub fn make(&self, pages: &Pages, sum: u128) -> Result<Vec<Shared>, String> {
        let failed =
            |error: io::Error| format!("memory that its processes share cannot be had: {error}");
        let own = i32::try_from(std::process::id()).expect("a number");
        let owner = procfs::effective_ids(own).ok_or("procfs does not tell who this is")?;
        let mut made = Vec::new();
        let mut own_sum = 0_u128;
        for (bytes, start) in self.segments.iter().zip(self.starts()) {
            let whole = bytes.next_multiple_of(PAGE as u64);
            let len = usize::try_from(whole).map_err(|error| error.to_string())?;
            let shared = Shared::attachable(len, owner, 0o600).map_err(failed)?;
            for (address, page) in pages.between(start..start + whole) {
                let at = usize::try_from(address - start).expect("inside the segment");
                shared.write(at, page);
                let mut back = [0; PAGE];
                shared.read(at, &mut back);
                own_sum = own_sum.wrapping_add(weighed(address, vote128(&back)));
            }
            made.push(shared);
        }
        if own_sum != sum {
            return Err("the memory that its processes share is not what was sent".into());
        }
        Ok(made)
    }
}

impl Site {
    /// Survivor, paused: its memory that others have as well.
    fn segments(&self) -> Result<Vec<procfs::Mapping>, String> {
        let maps = procfs::maps(self.pid).map_err(|error| error.to_string())?;
        let segments: Vec<_> = maps.into_iter().filter(is_segment).collect();
        // Of its own files each site has one of its own, and of System V segments the program knows the number.
        let named = self.group().get32(at!(domain)) > abi::DOMAIN_ANONYMOUS;
        let is_nameless =
            |map: &procfs::Mapping| map.path.to_string_lossy().starts_with("/SYSV00000000");
        match segments.iter().find(|map| named || !is_nameless(map)) {
            None => Ok(segments),
            Some(map) => Err(format!(
                "the program has memory at {:#x} that it shares with others by a name ({})",
                map.range.start,
                map.path.display()
            )),
        }
    }

    /// Joiner: attaches what its process has in common with others.
    pub(super) fn attach(&self, attached: &[Attached], segments: &[Shared]) -> Result<(), String> {
        if attached.is_empty() {
            return Ok(());
        }
        let mut words = vec![attached.len() as u64];
        for part in attached {
            let number = segments
                .get(part.segment)
                .and_then(Shared::id)
                .and_then(|id| u64::try_from(id).ok())
                .ok_or("the list of its memory is damaged")?;
            words.extend([part.at, part.bytes, part.offset, number, part.rights]);
        }
        let list: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        if abi::OFF_REMAP + list.len() > abi::OFF_UNDO {
            return Err("it has too many mappings".into());
        }
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
                name_in(area, -1000 - refused)
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

    /// Joiner: this process, which is nobody, has a child that is nobody as well; the program knows it by `number`.
    ///
    /// # Errors
    /// When there is none.
    pub fn bear(&self, strand: u64, number: u32) -> Result<Self, String> {
        let failed = |error: io::Error| format!("it cannot have another process: {error}");
        let (plan, modules) = self
            .for_a_child()
            .ok_or("the faults of its plan cannot be another process's")?;
        let cores = launch::cores(&plan).map_err(|error| error.to_string())?;
        let owner = procfs::effective_ids(self.pid).ok_or("its process is gone")?;
        let memory = Shared::attachable(abi::SHARED_BYTES, owner, 0o600).map_err(failed)?;
        let id = u64::try_from(memory.id().expect("a segment")).expect("a number");
        let options = option::PAIR | option::TREE | option::PAIR_SECONDARY;
        let group = control_block_in(memory, &plan, &cores, false, false, options);
        self.hand_down(&self.group(), &group);
        modules.flips.write(&group.memory);
        group.set32(at!(remade), 1);
        group.set32(at!(go), 1);
        let parent = self.group();
        parent.command2(1, cmd::BEAR, id, number.into());
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
