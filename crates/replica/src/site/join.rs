//! Join: a program that one site runs alone, handed on to a site that comes back.
//!
//! ```text
//!   survivor                                        joiner
//!   runs      give (memory as it is)  ──pages──►    started, and nobody yet: map, mappings and memory
//!   pause     give (what has changed) ──pages──►
//!             hand_on: descriptors, registers ────► become: what has changed, descriptors, registers
//!   resume                                          go_on
//! ```
//!
//! Invariants
//!  1. A page that was handed on is handed on again if it differs from what was handed on, by its digest; what the joiner
//!     has is read back and summed: while the survivor's program still runs, and what comes later when it stands.
//!  2. Both logs begin at the event that the survivor stands at.
//!
//! Not covered: files (crates/pair), and where a page's digest is equal by accident (128 bits).

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use steadfast_digest::vote128;
use steadfast_sys::memory::Remote;
use steadfast_sys::{child, descriptor, procfs};

use super::named::Segments;
use super::several::Attached;
use super::{News, Place, Site};
use crate::abi::{self, alarm, cmd, phase};
use crate::group::at;
use crate::supervise::recovery::NUDGE;
use crate::transplant::{of_the_kernel, remap_list, transplanted};

const PAGE: usize = 4096;
/// Half of a second-level cache: read, digested and sent at a time.
const PIECE: usize = 256 << 10;
/// A paused program answers at once; descriptors may be a thousand.
const ORDER: Duration = Duration::from_secs(10);
/// For a program that is to stand, and makes processes or becomes another one until then: on a busy host that takes seconds.
const GROWS: Duration = Duration::from_secs(10);
/// struct sf_held_area and its parts (abi.h).
pub(super) const AREA: usize = abi::OFF_PAYLOAD;
const AREA_END: usize = AREA + 8;
const SUM: usize = 4144;
const REGISTERS_SUM: usize = SUM + 8;
pub(super) const HELD: usize = 4160;
pub(super) const HELD_BYTES: usize = 256;
const HELD_MAX: usize = 1024;
const POLLED: usize = HELD + HELD_BYTES * HELD_MAX;
const POLLED_BYTES: usize = 24;
const POLLED_MAX: usize = 4096;
pub(super) const AREA_BYTES: usize = POLLED + POLLED_BYTES * POLLED_MAX;
/// The descriptor class of a set for polling (storage.h, `F_POLL`).
const POLL: u32 = 9;
/// Registers and the agent's state; the words of a search come behind them.
const TRANSFER_BYTES: usize = abi::OFF_SEEK_WORDS - abi::OFF_TRANSFER;

/// Why a program that stands cannot be handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotGiven {
    /// Bytes are under way between its processes, or threads: at another moment they are not.
    UnderWay(String),
    Never(String),
}

impl From<String> for NotGiven {
    fn from(why: String) -> Self {
        Self::Never(why)
    }
}

impl From<&str> for NotGiven {
    fn from(why: &str) -> Self {
        Self::Never(why.into())
    }
}

/// What the joiner needs besides pages and files.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The event that both stand at.
    pub event: u64,
    /// The number that the program goes by.
    pub number: u32,
    /// Mappings, as the agent takes them.
    pub mappings: Vec<u8>,
    /// Where the program has pages.
    pub ranges: Vec<Range<u64>>,
    /// Over all pages there that are not zeros.
    pub sum: u128,
    pub descriptors: Vec<u8>,
    pub registers: Vec<u8>,
    /// Memory that it has in common with other processes.
    pub attached: Vec<Attached>,
}

/// CRC32C as the agent has it (join.c, `sum_of`): neither its start value nor its result is inverted.
fn crc(sum: u64, bytes: &[u8]) -> u64 {
    let sum = u32::try_from(sum).expect("32 bits");
    u64::from(!crc32c::crc32c_append(!sum, bytes))
}

fn sum_of_area(area: &[u8]) -> u64 {
    crc(crc(0, &area[..SUM]), &area[REGISTERS_SUM..])
}

fn word(area: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(area[at..at + 8].try_into().expect("eight bytes"))
}

/// Whether a list is as it was sealed.
pub(super) fn is_sealed(area: &[u8]) -> bool {
    area.len() >= AREA_BYTES && word(area, SUM) == sum_of_area(area)
}

/// What an agent says that does not find a list as it was sealed.
pub(super) fn damaged(answer: i64) -> Option<String> {
    (answer == -i64::from(libc::EBADMSG)).then(|| "the list of it is damaged".into())
}

/// Survivor: the joiner's agent finds a list of descriptors as it is now, or makes none of them.
pub(super) fn seal(area: &mut [u8]) {
    let sum = sum_of_area(area);
    area[SUM..SUM + 8].copy_from_slice(&sum.to_le_bytes());
}

/// Pages that were handed on.
#[derive(Debug, Default)]
pub struct Handed(HashMap<u64, u128>);

/// Pages of the joiner's process that were read back, by their digests. It stands still, so they are as they were.
#[derive(Debug, Default)]
pub struct Known(HashMap<u64, u128>);

/// Pages that have come.
#[derive(Debug, Default)]
pub struct Pages(BTreeMap<u64, Box<[u8]>>);

impl Pages {
    /// Takes pages from `address` on.
    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        for (index, page) in (0..).zip(bytes.chunks_exact(PAGE)) {
            self.0.insert(address + index * PAGE as u64, page.into());
        }
    }

    /// Those from here to there.
    pub(super) fn between(&self, range: Range<u64>) -> impl Iterator<Item = (u64, &[u8])> {
        let all = self.0.range(range);
        all.map(|(address, page)| (*address, &page[..]))
    }

    /// Writes those that stand in `ranges`, in address order.
    fn write(&self, memory: &Remote, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut run: Vec<u8> = Vec::with_capacity(PIECE);
        let mut from = 0;
        for (address, page) in ranges.iter().flat_map(|range| self.0.range(range.clone())) {
            if run.len() == PIECE || *address != from + run.len() as u64 {
                memory.write(from, &run)?;
                run.clear();
                from = *address;
            }
            run.extend_from_slice(page);
        }
        memory.write(from, &run)
    }

    /// Pages that had come, and that the program has no more where it has a mapping still.
    fn clear_stale(&self, memory: &Remote, given: &Given) -> io::Result<()> {
        let inside = |ranges: &[Range<u64>], address: u64| {
            let index = ranges.partition_point(|range| range.end <= address);
            ranges
                .get(index)
                .is_some_and(|range| range.contains(&address))
        };
        for address in self.0.keys().filter(|at| !inside(&given.ranges, **at)) {
            // Of a mapping that the joiner has not, there is nothing to clear.
            if memory.read(*address, &mut [0]).is_ok() {
                memory.write(*address, &[0; PAGE])?;
            }
        }
        Ok(())
    }
}

pub(super) fn weighed(address: u64, digest: u128) -> u128 {
    digest.wrapping_mul(u128::from(address) | 1)
}

pub(super) fn is_zero(page: &[u8]) -> bool {
    static ZEROS: [u8; PAGE] = [0; PAGE];
    *page == ZEROS[..page.len()]
}

/// How a process is while its memory is read.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// No child shares pages with it, of which a fast read would make copies.
    pub is_one: bool,
    /// It stands; else what is read may have gone, and is read again when it does.
    pub stands: bool,
}

/// Reads a piece, of which so many bytes are there, and zeros behind them. Where nobody says how many, a page that cannot be read is one of
/// zeros.
fn read(
    memory: &Remote,
    at: u64,
    (bytes, there): (&mut [u8], Option<u64>),
    Now { is_one, stands }: Now,
) -> io::Result<()> {
    let Some(there) = there.filter(|_| stands) else {
        return if is_one {
            memory.read_living(at, bytes)
        } else {
            memory.read_sparse(at, bytes)
        };
    };
    let (pages, none) = bytes.split_at_mut(usize::try_from(there).expect("of the piece"));
    none.fill(0);
    if pages.is_empty() {
        return Ok(());
    }
    memory.read_all(at, pages, is_one)
}

impl Handed {
    /// Hands on what is not as it was handed on last. Where the program has pages, and the sum over them, which mean
    /// something if it stands.
    ///
    /// # Errors
    /// When a page of the program cannot be read, or `put` fails.
    pub fn give(
        &mut self,
        site: &Site,
        now: Now,
        mut put: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<(Vec<Range<u64>>, u128)> {
        let memory = Remote::open(site.pid)?;
        let (mut ranges, mut sum) = (Vec::new(), 0_u128);
        let mut bytes = vec![0; PIECE];
        for map in procfs::maps(site.pid)?.iter().filter(|m| transplanted(m)) {
            let readable = procfs::end_of_pages(site.pid, map);
            // Of a file the joiner has nothing mapped.
            let runs = if map.readable && map.inode != 0 {
                vec![map.range.clone()]
            } else {
                memory.owned(map.range.clone())?
            };
            for run in runs {
                for at in run.clone().step_by(PIECE) {
                    let len = usize::try_from((run.end - at).min(PIECE as u64))
                        .expect("bounded by PIECE");
                    let there = readable.map(|end| end.saturating_sub(at).min(len as u64));
                    read(&memory, at, (&mut bytes[..len], there), now)?;
                    sum = sum.wrapping_add(self.give_piece(at, &bytes[..len], &mut put)?);
                }
                ranges.push(run);
            }
        }
        Ok((ranges, sum))
    }

    fn give_piece(
        &mut self,
        at: u64,
        bytes: &[u8],
        put: &mut impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<u128> {
        let mut sum = 0_u128;
        let mut from = 0;
        for index in 0..bytes.len() / PAGE {
            let page = &bytes[index * PAGE..(index + 1) * PAGE];
            let address = at + (index * PAGE) as u64;
            let zero = is_zero(page);
            let digest = vote128(page);
            if !zero {
                sum = sum.wrapping_add(weighed(address, digest));
            }
            let same = match self.0.get(&address) {
                Some(before) => *before == digest,
                None => zero,
            };
            if same {
                if from < index {
                    put(at + (from * PAGE) as u64, &bytes[from * PAGE..index * PAGE])?;
                }
                from = index + 1;
            } else {
                self.0.insert(address, digest);
            }
        }
        if from * PAGE < bytes.len() {
            put(at + (from * PAGE) as u64, &bytes[from * PAGE..])?;
        }
        Ok(sum)
    }
}

impl Site {
    /// Survivor: has the program stand between two events, or wherever it computes. The event that it comes to next.
    /// Whoever stands in for the other site goes on meanwhile. `grow` takes processes that it makes until then.
    ///
    /// # Errors
    /// When it does not stand in time, or ends: it goes on.
    pub fn pause(
        &self,
        limit: Duration,
        mut grow: impl FnMut(News) -> Result<(), String>,
    ) -> Result<u64, String> {
        self.ask_to_pause();
        let mut deadline = Instant::now() + limit;
        let last = deadline + GROWS;
        loop {
            if let Some(event) = self.stands_at() {
                return Ok(event);
            }
            self.nudge();
            let why = match self.news(Duration::from_millis(1)) {
                None if Instant::now() < deadline => continue,
                None => "the program does not come to a halt".into(),
                Some(news @ (News::Born(_) | News::Exec(_))) => match grow(news) {
                    Ok(()) => {
                        // To make it has taken its time; and another program has not heard that it is to stand.
                        self.ask_to_pause();
                        deadline = (Instant::now() + limit).min(last);
                        continue;
                    }
                    Err(why) => why,
                },
                Some(other) => format!("it has come to something else: {other:?}"),
            };
            self.pause_no_more();
            return Err(why);
        }
    }

    /// It is to stand at its next event: who asks nudges it until it does.
    pub fn ask_to_pause(&self) {
        self.group().set64(at!(alarm_seq), 0);
        self.group().set32(at!(alarm), alarm::REQUEST);
    }

    pub fn nudge(&self) {
        self.group().ring(0);
        child::kill(self.pid, NUDGE);
    }

    /// The event that it stands at, where it has been asked to.
    #[must_use]
    pub fn stands_at(&self) -> Option<u64> {
        let stands = self.group().phase(0) == phase::PAUSED;
        stands.then(|| self.group().get64(at!(own 0, again)))
    }

    /// It was asked to stand, and is not to any more.
    pub(super) fn pause_no_more(&self) {
        self.group().set32(at!(alarm), alarm::QUIET);
        // It may have come to stand in this moment.
        let stands = || self.group().phase(0) == phase::PAUSED;
        if self.group().wait_until(Duration::from_millis(50), stands) {
            self.group().order(0, cmd::RESUME, 0, ORDER);
        }
    }

    /// Survivor, paused: begins the log anew and tells what the joiner needs, as far as it is not in memory and files.
    ///
    /// # Errors
    /// When something of the program cannot be handed on: what.
    pub fn hand_on(&self) -> Result<Given, NotGiven> {
        match self.order(0, cmd::GIVE, 0, ORDER) {
            Some(0) => {}
            Some(refused) if refused <= -abi::UNDER_WAY => {
                return Err(NotGiven::UnderWay(format!(
                    "in descriptor {} of process {} of the program bytes are under way",
                    -abi::UNDER_WAY - refused,
                    self.program_number()
                )));
            }
            Some(refused) if refused <= -1000 => {
                return Err(NotGiven::Never(format!(
                    "descriptor {} of process {} cannot be made on another host now: a file without a name, or bytes are under way in it",
                    -1000 - refused,
                    self.program_number()
                )));
            }
            Some(error) => {
                let error = i32::try_from(-error).unwrap_or(0);
                return Err(NotGiven::Never(format!(
                    "its descriptors cannot be listed now: {}",
                    io::Error::from_raw_os_error(error)
                )));
            }
            None => return Err("the program does not answer".into()),
        }
        let end = usize::try_from(self.group().get64(AREA_END)).unwrap_or(usize::MAX);
        if !(AREA_BYTES..abi::PAYLOAD_BYTES).contains(&end) {
            return Err("the list of its descriptors is damaged".into());
        }
        let mut descriptors = vec![0; end];
        self.group().memory.read(AREA, &mut descriptors);
        let mut registers = vec![0; TRANSFER_BYTES];
        self.group().memory.read(abi::OFF_TRANSFER, &mut registers);
        if word(&descriptors, SUM) != sum_of_area(&descriptors)
            || word(&descriptors, REGISTERS_SUM) != crc(0, &registers)
        {
            return Err("the list of its descriptors, or its registers, are damaged".into());
        }
        self.add_polled(&mut descriptors)
            .map_err(|error| format!("what it polls cannot be read: {error}"))?;
        Ok(Given {
            event: self.group().get64(at!(own 0, again)),
            number: self.program_number(),
            mappings: self.mappings()?,
            descriptors,
            registers,
            ..Given::default()
        })
    }

    /// What each set for polling waits for, behind the descriptors (proc_pid_fdinfo(5)).
    fn add_polled(&self, area: &mut [u8]) -> io::Result<()> {
        let word = |area: &[u8], at: usize| {
            u32::from_le_bytes(area[at..at + 4].try_into().expect("four bytes"))
        };
        let mut n = 0;
        for held in (0..word(area, 0) as usize).map(|index| HELD + index * HELD_BYTES) {
            // A second descriptor of the same set has the same.
            if word(area, held + 8) != POLL || word(area, held + 4) != u32::MAX {
                continue;
            }
            let set = word(area, held);
            let mut of_one: HashMap<u32, u32> = HashMap::new();
            for descriptor::Polled { fd, events, data } in descriptor::polled(self.pid, set)? {
                let nth = of_one.entry(fd).or_default();
                *nth += 1;
                // Another process's, or of a descriptor that is closed.
                if !descriptor::is_polled(self.pid, set, fd, *nth - 1)? {
                    continue;
                }
                if n == POLLED_MAX {
                    return Err(io::Error::other("too much"));
                }
                let at = POLLED + n * POLLED_BYTES;
                area[at..at + 4].copy_from_slice(&set.to_le_bytes());
                area[at + 4..at + 8].copy_from_slice(&fd.to_le_bytes());
                area[at + 8..at + 12].copy_from_slice(&events.to_le_bytes());
                area[at + 16..at + 24].copy_from_slice(&data.to_le_bytes());
                n += 1;
            }
        }
        area[4..8].copy_from_slice(&u32::try_from(n).expect("few").to_le_bytes());
        Ok(())
    }

    /// Survivor, paused: goes on. Nobody has claimed the event that it stands at. Where its log is.
    ///
    /// # Errors
    /// When it does not.
    pub fn resume(&self) -> Result<Place, String> {
        let place = self.begin_anew();
        self.group()
            .order(0, cmd::RESUME, 0, ORDER)
            .ok_or("its program does not go on")?;
        Ok(place)
    }

    /// Survivor, whose process has stood and may have ended since: its log alone.
    #[must_use]
    pub fn begin_anew(&self) -> Place {
        let seq = self.group().get64(at!(own 0, again));
        let base = self.group().get64(at!(base));
        self.group().clear_ring(1);
        self.group().set64(at!(own 1, next), seq - 1);
        self.group().set64(at!(own 1, done), seq);
        self.group().set32(at!(alarm), alarm::QUIET);
        Place {
            seq,
            base,
            strand: self.strand(),
        }
    }

    /// Joiner: waits until its process stands, of whose program nothing will be left.
    ///
    /// # Errors
    /// When it does not.
    pub fn stand(&self) -> Result<(), String> {
        let stands = self
            .group()
            .wait_until(ORDER, || self.group().phase(1) == phase::PAUSED);
        stands
            .then_some(())
            .ok_or_else(|| "its process does not come to a halt".into())
    }

    /// Survivor: the mappings of its program, as the agent takes them.
    ///
    /// # Errors
    /// When they cannot be read, or are too many.
    pub fn mappings(&self) -> Result<Vec<u8>, String> {
        let maps = procfs::maps(self.pid).map_err(|error| error.to_string())?;
        remap_list(&maps).ok_or_else(|| "it has too many mappings, or no stack".into())
    }

    /// Joiner, whose process stands: makes the mappings, and gives it what has come of their pages.
    ///
    /// # Errors
    /// When it does not, and why; then it is nobody, and has to be ended.
    pub fn map(&self, mappings: &[u8], pages: &Pages) -> Result<(), String> {
        let failed = |error: io::Error| format!("its memory cannot be written: {error}");
        let own = procfs::maps(self.pid).map_err(failed)?;
        let stack = check_layout(mappings, &own)?;
        self.group().memory.write(abi::OFF_REMAP, mappings);
        self.obeys(cmd::REMAP, 0, "make the mappings")?;
        self.obeys(cmd::TOUCH, stack, "have the stack")?;
        let memory = Remote::open(self.pid).map_err(failed)?;
        let maps = procfs::maps(self.pid).map_err(failed)?;
        let ranges: Vec<_> = maps
            .iter()
            .filter(|m| transplanted(m))
            .map(|m| m.range.clone())
            .collect();
        pages.write(&memory, &ranges).map_err(failed)
    }

    /// Joiner, whose process has these pages: what is read back of them.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn known(&self, pages: &Pages) -> Result<Known, String> {
        let failed = |error: io::Error| format!("its memory cannot be read: {error}");
        let memory = Remote::open(self.pid).map_err(failed)?;
        let mut known = HashMap::with_capacity(pages.0.len());
        let mut addresses = pages.0.keys().copied().peekable();
        let mut bytes = vec![0; PIECE];
        while let Some(from) = addresses.next() {
            let mut len = PAGE;
            while len < PIECE && addresses.next_if_eq(&(from + len as u64)).is_some() {
                len += PAGE;
            }
            // One that the survivor has closed meanwhile has no mapping here.
            if memory.read_living(from, &mut bytes[..len]).is_err() {
                continue;
            }
            for (index, page) in (0..).zip(bytes[..len].chunks_exact(PAGE)) {
                if !is_zero(page) {
                    known.insert(from + index * PAGE as u64, vote128(page));
                }
            }
        }
        Ok(Known(known))
    }

    /// Joiner: its process, which has `mapped` and `pages`, becomes the survivor's program. `fresh`: what has come since, and the
    /// segments of the program. All pages, which nobody needs any more.
    ///
    /// # Errors
    /// When it does not, and why; then it is nobody, and has to be ended.
    pub fn become_given(
        &self,
        given: &Given,
        mapped: &[u8],
        (mut pages, mut known): (Pages, Known),
        (mut fresh, segments): (Pages, &Segments),
    ) -> Result<[Pages; 2], String> {
        let failed = |error: io::Error| format!("its memory cannot be written: {error}");
        self.group()
            .memory
            .write(abi::OFF_TRANSFER, &given.registers);
        let memory = Remote::open(self.pid).map_err(failed)?;
        if given.mappings == mapped {
            fresh.write(&memory, &given.ranges).map_err(failed)?;
            for address in fresh.0.keys() {
                known.0.remove(address);
            }
        } else {
            known.0.clear();
            pages.0.append(&mut fresh.0);
            self.map(&given.mappings, &pages)?;
        }
        pages.clear_stale(&memory, given).map_err(failed)?;
        if read_back(&memory, given, &known).map_err(failed)? != given.sum {
            return Err("its memory is not what was sent".into());
        }
        self.group().memory.write(AREA, &given.descriptors);
        self.obeys(cmd::TAKE, 0, "make the descriptors")?;
        self.attach(&given.attached, segments)?;
        self.set_program_number(given.number);
        self.obeys(cmd::RECEIVE, 0, "have the rights of the program")?;
        self.group().set64(at!(own 0, next), given.event - 1);
        self.group().set64(at!(own 1, next), given.event - 1);
        self.group().set64(at!(own 1, done), given.event);
        Ok([pages, fresh])
    }

    pub(super) fn obeys(&self, command: u32, arg: u64, what: &str) -> Result<(), String> {
        match self.group().order(1, command, arg, ORDER) {
            Some(0) => Ok(()),
            Some(refused) if refused <= -1000 => Err(format!(
                "its process cannot {what}: descriptor {}",
                -1000 - refused
            )),
            Some(error) => Err(format!(
                "its process cannot {what}: {}",
                damaged(error).unwrap_or_else(|| {
                    io::Error::from_raw_os_error(i32::try_from(-error).unwrap_or(0)).to_string()
                })
            )),
            None => Err(format!("its process does not answer (to {what})")),
        }
    }

    /// Joiner: goes on as the follower that it is now.
    ///
    /// # Errors
    /// When it does not.
    pub fn go_on(&self) -> Result<(), String> {
        self.obeys(cmd::RESUME, 0, "go on")
    }

    /// The log of a site that has joined, or whose other site has.
    #[must_use]
    pub fn begun_at(strand: u64, event: u64) -> Place {
        Place {
            strand,
            seq: event,
            base: event,
        }
    }
}

/// The kernel's own mappings and the end of the stack cannot be moved. Where the stack begins.
fn check_layout(mappings: &[u8], own: &[procfs::Mapping]) -> Result<u64, String> {
    let word = |index: usize| {
        let bytes = mappings.get(8 * index..8 * index + 8);
        bytes.map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let (Some(stack), Some(stack_end), Some(from), Some(to)) = (word(1), word(2), word(4), word(5))
    else {
        return Err("the list of mappings is damaged".into());
    };
    let kernel = own.iter().filter(|m| of_the_kernel(m));
    let here = kernel.fold((u64::MAX, 0), |(from, to), m| {
        (from.min(m.range.start), to.max(m.range.end))
    });
    let end = own
        .iter()
        .find(|m| m.path == Path::new("[stack]"))
        .map(|m| m.range.end);
    if here != (from, to) || end != Some(stack_end) {
        return Err(format!(
            "the kernel lays processes out otherwise than on the other site: its own mappings at {:#x} and {from:#x}, the stack's end at {:#x} and {stack_end:#x}",
            here.0,
            end.unwrap_or(0)
        ));
    }
    Ok(stack)
}

fn read_back(memory: &Remote, given: &Given, known: &Known) -> io::Result<u128> {
    let mut bytes = vec![0; PIECE];
    let mut sum = 0_u128;
    for range in &given.ranges {
        let mut at = range.start;
        while at < range.end {
            if let Some(digest) = known.0.get(&at) {
                sum = sum.wrapping_add(weighed(at, *digest));
                at += PAGE as u64;
                continue;
            }
            let most = usize::try_from((range.end - at).min(PIECE as u64));
            let most = most.expect("bounded by PIECE");
            let is_new = |len: &usize| !known.0.contains_key(&(at + *len as u64));
            let more = (PAGE..most).step_by(PAGE).take_while(is_new).count();
            let len = PAGE * (1 + more);
            memory.read_living(at, &mut bytes[..len])?;
            for (index, page) in (0..).zip(bytes[..len].chunks_exact(PAGE)) {
                if !is_zero(page) {
                    sum = sum.wrapping_add(weighed(at + index * PAGE as u64, vote128(page)));
                }
            }
            at += len as u64;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two pages of a file, private, and the file has lost the second one.
    const CUT: &str = "import mmap,os,sys; f=open(sys.argv[1],'r+b'); f.truncate(8192)
m=mmap.mmap(f.fileno(),8192,flags=mmap.MAP_PRIVATE); m[0]=7; f.truncate(4096); print(flush=True); sys.stdin.read()";

    #[test]
    fn a_page_that_cannot_be_read_is_told_and_one_behind_the_end_of_a_file_is_zeros() {
        use std::process::{Command, Stdio};
        let path = std::env::temp_dir().join(format!("steadfast-cut-{}", std::process::id()));
        std::fs::File::create(&path).expect("a file");
        let mut program = Command::new("python3");
        let mut child = program
            .args(["-c", CUT])
            .arg(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python is installed");
        let out = child.stdout.as_mut().expect("piped");
        io::Read::read_exact(out, &mut [0]).expect("it is mapped");
        let pid = i32::try_from(child.id()).expect("a number");
        let maps = procfs::maps(pid).expect("its mappings");
        let map = maps.iter().find(|map| map.path == path).expect("its file");
        let end = procfs::end_of_pages(pid, map);
        assert_eq!(end, Some(map.range.start + PAGE as u64));

        let memory = Remote::open(pid).expect("a child");
        let mut bytes = vec![1; 2 * PAGE];
        for is_one in [true, false] {
            let now = Now {
                is_one,
                stands: true,
            };
            let there = Some(PAGE as u64);
            read(&memory, map.range.start, (&mut bytes, there), now).expect("it is there");
            assert!(bytes[0] == 7 && is_zero(&bytes[PAGE..]));
            let all = Some(2 * PAGE as u64);
            let read = read(&memory, map.range.start, (&mut bytes, all), now);
            let why = read.expect_err("there is none").to_string();
            let which = format!(
                "the page at {:#x} cannot be read",
                map.range.start + PAGE as u64
            );
            assert!(why.contains(&which), "{why}");
            bytes.fill(1);
        }
        // While it runs, its mappings come and go.
        let now = Now {
            is_one: true,
            stands: false,
        };
        let all = Some(2 * PAGE as u64);
        read(&memory, map.range.start, (&mut bytes, all), now).expect("it lives");
        assert!(bytes[0] == 7 && is_zero(&bytes[PAGE..]));
        drop(child.stdin.take());
        child.wait().expect("a child");
        std::fs::remove_file(&path).expect("clean");
    }

    #[test]
    fn a_bit_of_a_list_that_was_sealed_is_found() {
        let mut area = vec![7; AREA_BYTES + 64];
        seal(&mut area);
        assert_eq!(word(&area, SUM), sum_of_area(&area));
        for at in [0, SUM - 1, REGISTERS_SUM, HELD, AREA_BYTES + 63] {
            area[at] ^= 8;
            assert_ne!(word(&area, SUM), sum_of_area(&area), "{at}");
            area[at] ^= 8;
        }
    }

    #[test]
    fn a_page_goes_once_and_again_when_it_has_changed() {
        let mut handed = Handed::default();
        let mut memory = vec![0; 4 * PAGE];
        memory[PAGE] = 1;
        memory[2 * PAGE] = 2;
        let give = |handed: &mut Handed, memory: &[u8]| {
            let mut sent = Vec::new();
            let mut put = |at: u64, bytes: &[u8]| {
                sent.push((at, bytes.len() / PAGE));
                Ok(())
            };
            let sum = handed
                .give_piece(0x1000_0000, memory, &mut put)
                .expect("nothing fails");
            (sent, sum)
        };
        let (sent, sum) = give(&mut handed, &memory);
        assert_eq!(sent, [(0x1000_1000, 2)]);
        assert_eq!(give(&mut handed, &memory), (vec![], sum));
        memory[PAGE] = 0; // zeros, where there was something
        memory[3 * PAGE + 7] = 9;
        let (sent, other) = give(&mut handed, &memory);
        assert_eq!(sent, [(0x1000_1000, 1), (0x1000_3000, 1)]);
        assert_ne!(sum, other);
    }
}
