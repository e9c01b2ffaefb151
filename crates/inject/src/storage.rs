//! Storage that lies: transfers between the target and its files, carried out wrong by a watcher.
//!
//! ```text
//!   target ── read, write, ... ──► kernel ── seccomp notification ──► watcher, in the same sandbox
//!      ▲                                                                │ not this one: the kernel does it
//!      └──────── data, or an acknowledgement ◄──────────────────────────┘ this one: done here, wrongly
//! ```
//!
//! The watcher is a process of the sandbox, not the tracer: the target stays free for planted faults
//! and for `steadfast run`, and whatever it forks or executes is watched as well. A call that is
//! asked about costs 6 us where a ptrace stop costs 25 (and 70 to 210 across CPUs).
//!
//! Invariants
//!  1. A transfer without a fault is done by the kernel, as ever.
//!  2. What the watcher does in the kernel's place moves the file's position as the call would.
//!  3. A hit is recorded before the target hears of it.
//!  4. Ways around the watched calls are closed, so that programs fall back to these: of the files
//!     concerned, `copy_file_range` answers EXDEV, `sendfile` and `splice` EINVAL; io_uring ENOSYS.
//!
//! Not covered: what goes through a mapping of a file, which is noticed, so that nobody waits for it in vain; pipes
//! and sockets; what was in a file that was truncated (for `kind=stale`); transfers above 256 MiB; limits on
//! file size.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use steadfast_fault::{
    Access, Bits, Change, Effect, Extent, Fault, Hits, PathGlob, Storage, Target, Trigger,
};
use steadfast_sandbox::notify::{self, Call, Listener};
use steadfast_strike::{Refusal, record, refuse};
use steadfast_sys::shared::Shared;

use crate::chacha::Draw;
use crate::models::{Drawn, Model, Shape};
use crate::payload;

/// Calls that the watcher is asked about.
pub(crate) const CALLS: [i64; 15] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_readv,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_pwrite64,
    libc::SYS_writev,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_io_uring_setup,
    libc::SYS_mmap,
];

/// The most that a transfer moves: MAX_RW_COUNT of the kernel's would be 2 GiB in this process.
const TRANSFER_MAX: u64 = 256 << 20;
/// The largest file whose past is kept.
const PAST_MAX: u64 = 256 << 20;
/// The most transfers that are recorded.
const RECORDED_MAX: usize = 1 << 20;

/// What a run's watcher does.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// Writes down what is transferred.
    Record,
    /// Carries faults out.
    Strike(Vec<Rule>),
}

/// A fault of storage.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    /// Its number among the run's faults.
    index: usize,
    access: Access,
    path: PathGlob,
    offset: Option<Extent>,
    hits: Hits,
    effect: Effect,
}

/// What can be said of a fault without the target.
pub(crate) fn check(fault: &Fault) -> Result<(), Refusal> {
    let victim = fault.victim();
    let clause = [
        (victim.process.is_some(), "process="),
        (victim.thread.is_some(), "thread="),
        (victim.cpus.is_some(), "cpu="),
        (victim.replicas.is_some(), "replica="),
    ];
    match clause.iter().find(|(there, _)| *there) {
        Some((_, clause)) => Err(refuse(
            fault,
            "storage that all processes share",
            *clause,
            "the line without it",
        )),
        None => Ok(()),
    }
}

/// The faults of storage among these.
pub(crate) fn rules(faults: &[Fault]) -> Vec<Rule> {
    faults
        .iter()
        .enumerate()
        .filter_map(|(index, fault)| match fault.trigger() {
            Trigger::File {
                access,
                path,
                offset,
                hits,
            } => Some(Rule {
                index,
                access: *access,
                path: path.clone(),
                offset: *offset,
                hits: *hits,
                effect: fault.effect().clone(),
            }),
            _ => None,
        })
        .collect()
}

/// What was transferred in a run without a fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// Files, by the paths that fault lines know.
    pub paths: Vec<String>,
    /// In order.
    pub list: Vec<Transfer>,
    /// Files that are mapped, but for programs and libraries.
    #[serde(default)]
    pub mapped: BTreeSet<String>,
}

/// A line of what was written down.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Line {
    /// The next file.
    Path(String),
    One(Transfer),
    Mapped(Mapped),
}

/// A file that was mapped, to be executed or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Mapped {
    mapped: String,
    code: bool,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// To the file.
    #[serde(rename = "w")]
    pub write: bool,
    /// Index of its path.
    #[serde(rename = "p")]
    pub path: usize,
    /// Position in the file.
    #[serde(rename = "a")]
    pub at: u64,
    /// Bytes.
    #[serde(rename = "n")]
    pub len: u64,
    /// Size of the file before.
    #[serde(rename = "s")]
    pub size: u64,
    /// It reads something that was written over before.
    #[serde(rename = "o")]
    pub old: bool,
}

impl Transfer {
    /// Index within the transfer of the byte that a fault in data begins at.
    fn first_byte(&self, offset: Option<Extent>, byte: u64) -> Option<u64> {
        match offset {
            None => Some(byte),
            Some(extent) => extent.first.checked_add(byte)?.checked_sub(self.at),
        }
    }

    /// Where the bytes go to, or come from, instead.
    fn elsewhere(&self, by: i64) -> Option<u64> {
        let other = self.at.checked_add_signed(by)?;
        (other.checked_add(self.len)? <= self.size).then_some(other)
    }

    /// Whether it can have this fault: the only transfers that `n=` counts.
    fn can_have(&self, access: Access, offset: Option<Extent>, effect: &Effect) -> bool {
        if self.write != (access == Access::Write)
            || offset.is_some_and(|extent| !extent.meets(self.at, self.len))
        {
            return false;
        }
        match effect {
            Effect::Bits {
                target: Target::Data(byte),
                bits,
                ..
            } => self.first_byte(offset, *byte).is_some_and(|first| {
                let last = first.saturating_add(u64::from(bits.highest().unwrap_or(0) / 8));
                last < self.len
            }),
            Effect::Storage(Storage::Stale) => self.old,
            Effect::Storage(Storage::Lost) => true,
            Effect::Storage(Storage::Torn { keep }) => self.len > *keep,
            Effect::Storage(Storage::Misdirected { by }) => self.elsewhere(by.get()).is_some(),
            _ => false,
        }
    }
}

/// What a fault of storage did first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) index: usize,
    pub(crate) file: String,
}

/// Where a watcher writes what it sees. It is there before the watcher is: a target that transfers nothing can end sooner than that begins.
pub(crate) fn log(scratch: &Path) -> io::Result<File> {
    File::create(scratch.join("transfers"))
}

/// The watcher's life: until nobody is left to watch.
pub(crate) fn watch(
    socket: &UnixStream,
    task: &Task,
    scratch: &Path,
    log: File,
    shared: &Shared,
) -> i32 {
    let Ok(Some(listener)) = Listener::receive(socket) else {
        return 1;
    };
    let mut watcher = Watcher {
        task,
        shared,
        scratch: scratch.to_owned(),
        counts: vec![0; payload::FAULTS_MAX],
        pasts: HashMap::new(),
        known: HashMap::new(),
        mapped: BTreeSet::new(),
        written: 0,
        log,
    };
    while let Ok(Some(call)) = listener.next() {
        watcher.meet(&listener, call);
    }
    0
}

/// What stood in a file before it was written over, byte by byte.
#[derive(Default)]
struct Past {
    bytes: Vec<u8>,
    known: Vec<bool>,
}

impl Past {
    /// Takes down what stands where `len` bytes are about to be written.
    fn keep(&mut self, file: &File, at: u64, len: u64, size: u64) {
        let end = at.saturating_add(len).min(size);
        if end > PAST_MAX || at >= end {
            return;
        }
        let (from, to) = (index(at), index(end));
        if self.bytes.len() < to {
            self.bytes.resize(to, 0);
            self.known.resize(to, false);
        }
        let mut now = vec![0; to - from];
        if file.read_exact_at(&mut now, at).is_ok() {
            self.bytes[from..to].copy_from_slice(&now);
            self.known[from..to].fill(true);
        }
    }

    /// Puts it over what was read; whether that changed anything.
    fn lay_over(&self, at: u64, data: &mut [u8]) -> bool {
        let from = index(at);
        let mut changed = false;
        for (i, byte) in data.iter_mut().enumerate() {
            if self.known.get(from + i) == Some(&true) && *byte != self.bytes[from + i] {
                *byte = self.bytes[from + i];
                changed = true;
            }
        }
        changed
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

struct Watcher<'a> {
    task: &'a Task,
    shared: &'a Shared,
    scratch: PathBuf,
    /// Transfers that could have had it, by fault.
    counts: Vec<u64>,
    pasts: HashMap<(u64, u64), Past>,
    known: HashMap<String, usize>,
    mapped: BTreeSet<Mapped>,
    written: usize,
    log: File,
}

/// A call as a transfer of a regular file.
struct Moved {
    transfer: Transfer,
    path: String,
    /// The caller's open file, and the same one opened anew, at no position of its own.
    shared: File,
    own: File,
    id: (u64, u64),
    /// The caller's buffers.
    parts: Vec<(u64, u64)>,
    /// The call moves the file's position.
    walks: bool,
}

impl Watcher<'_> {
    fn meet(&mut self, listener: &Listener, call: Call) {
        match call.number {
            libc::SYS_io_uring_setup => return listener.answer(call, Err(libc::ENOSYS)),
            libc::SYS_mmap => {
                if matches!(self.task, Task::Record) {
                    self.record_mapping(&call);
                }
                return listener.go_on(call);
            }
            libc::SYS_copy_file_range | libc::SYS_sendfile | libc::SYS_splice => {
                let second = usize::from(call.number != libc::SYS_sendfile) + 1;
                let concerned = [call.args[0], call.args[second]]
                    .into_iter()
                    .any(|fd| self.concerned(&call, fd));
                if !concerned {
                    return listener.go_on(call);
                }
                let errno = if call.number == libc::SYS_copy_file_range {
                    libc::EXDEV
                } else {
                    libc::EINVAL
                };
                return listener.answer(call, Err(errno));
            }
            _ => {}
        }
        let Some(mut moved) = self.moved(&call) else {
            return listener.go_on(call);
        };
        let firing = match self.task {
            Task::Record => {
                self.record(&moved);
                Vec::new()
            }
            Task::Strike(rules) => self.firing(rules, &moved),
        };
        if moved.transfer.write && self.keeps_past() {
            let t = moved.transfer;
            let past = self.pasts.entry(moved.id).or_default();
            past.keep(&moved.own, t.at, t.len, t.size);
        }
        if firing.is_empty() {
            return listener.go_on(call);
        }
        let answer = if moved.transfer.write {
            self.write(&call, &mut moved, &firing)
        } else {
            self.read(&call, &mut moved, &firing)
        };
        listener.answer(
            call,
            answer.map_err(|why| why.raw_os_error().unwrap_or(libc::EIO)),
        );
    }

    fn keeps_past(&self) -> bool {
        match self.task {
            Task::Record => true,
            Task::Strike(rules) => rules
                .iter()
                .any(|rule| matches!(rule.effect, Effect::Storage(Storage::Stale))),
        }
    }

    fn wanted(&self, path: &str) -> bool {
        match self.task {
            Task::Record => true,
            Task::Strike(rules) => rules.iter().any(|rule| rule.path.matches(path)),
        }
    }

    /// The path by which fault lines know an open file.
    fn name(&self, file: &File) -> Option<String> {
        let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        let text = path.to_string_lossy();
        let text = text.strip_suffix(" (deleted)").unwrap_or(&text);
        let path = Path::new(text);
        if let Ok(inside) = path.strip_prefix(self.scratch.join("run")) {
            return Some(inside.to_string_lossy().into_owned());
        }
        if let Ok(stream) = path.strip_prefix(&self.scratch) {
            return Some(format!("/dev/{}", stream.to_string_lossy()));
        }
        Some(text.to_owned())
    }

    fn concerned(&self, call: &Call, fd: u64) -> bool {
        let open = call.descriptor(i32::try_from(fd & 0xffff_ffff).unwrap_or(-1));
        open.is_ok_and(|file| {
            file.metadata().is_ok_and(|meta| meta.is_file())
                && self.name(&file).is_some_and(|path| self.wanted(&path))
        })
    }

    /// What the call transfers; nothing if it is not one that faults can be in.
    fn moved(&self, call: &Call) -> Option<Moved> {
        let fd = i32::try_from(call.args[0] & 0xffff_ffff).ok()?;
        let mut shared = call.descriptor(fd).ok()?;
        let meta = shared.metadata().ok()?;
        if !meta.is_file() {
            return None;
        }
        let path = self.name(&shared)?;
        if !self.wanted(&path) {
            return None;
        }
        let write = matches!(
            call.number,
            libc::SYS_write
                | libc::SYS_pwrite64
                | libc::SYS_writev
                | libc::SYS_pwritev
                | libc::SYS_pwritev2
        );
        let parts = match call.number {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_write | libc::SYS_pwrite64 => {
                vec![(call.args[1], call.args[2])]
            }
            _ => {
                // IOV_MAX: more are refused by the kernel.
                let count = index(call.args[2]);
                if count > 1024 {
                    return None;
                }
                let mut bytes = vec![0; 16 * count];
                call.read(call.args[1], &mut bytes).ok()?;
                let word = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("eight bytes"));
                bytes
                    .chunks_exact(16)
                    .map(|one| (word(&one[..8]), word(&one[8..])))
                    .collect()
            }
        };
        let total = parts
            .iter()
            .try_fold(0_u64, |sum, (_, len)| sum.checked_add(*len))?;
        let placed = match call.number {
            libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => {
                Some(call.args[3])
            }
            libc::SYS_preadv2 | libc::SYS_pwritev2 => {
                (call.args[3] != u64::MAX).then_some(call.args[3])
            }
            _ => None,
        };
        let (size, position) = (meta.len(), shared.stream_position().ok()?);
        const RWF_APPEND: u64 = 0x10;
        let at = if write
            && (notify::appends(&shared).ok()?
                || call.number == libc::SYS_pwritev2 && call.args[5] & RWF_APPEND != 0)
        {
            size
        } else {
            placed.unwrap_or(position)
        };
        let len = if write {
            total
        } else {
            total.min(size.saturating_sub(at))
        };
        if len == 0 || len > TRANSFER_MAX || i64::try_from(at).is_err() {
            return None;
        }
        let own = format!("/proc/self/fd/{}", shared.as_raw_fd());
        let own = File::options().read(true).write(write).open(own).ok()?;
        let old = !write
            && self.keeps_past()
            && self
                .pasts
                .get(&(meta.dev(), meta.ino()))
                .is_some_and(|past| {
                    let mut data = vec![0; index(len)];
                    own.read_exact_at(&mut data, at).is_ok() && past.lay_over(at, &mut data)
                });
        Some(Moved {
            transfer: Transfer {
                write,
                path: 0,
                at,
                len,
                size,
                old,
            },
            path,
            shared,
            own,
            id: (meta.dev(), meta.ino()),
            parts,
            walks: placed.is_none(),
        })
    }

    fn record_mapping(&mut self, call: &Call) {
        // As in mmap(2) on x86-64.
        const PROT_EXEC: u64 = 4;
        const MAP_ANONYMOUS: u64 = 0x20;
        let [_, _, protection, flags, fd, _] = call.args;
        if flags & MAP_ANONYMOUS != 0 {
            return;
        }
        let open = call.descriptor(i32::try_from(fd & 0xffff_ffff).unwrap_or(-1));
        let Some(path) = open
            .ok()
            .filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))
            .and_then(|file| self.name(&file))
        else {
            return;
        };
        let one = Mapped {
            mapped: path,
            code: protection & PROT_EXEC != 0,
        };
        if self.mapped.len() < RECORDED_MAX && self.mapped.insert(one.clone()) {
            self.note(&Line::Mapped(one));
        }
    }

    fn record(&mut self, moved: &Moved) {
        self.written += 1;
        if self.written > RECORDED_MAX {
            return;
        }
        let next = self.known.len();
        let path = *self.known.entry(moved.path.clone()).or_insert(next);
        if path == next {
            self.note(&Line::Path(moved.path.clone()));
        }
        self.note(&Line::One(Transfer {
            path,
            ..moved.transfer
        }));
    }

    /// Writes a line at once: the watcher may be ended with the target.
    fn note(&mut self, what: &impl Serialize) {
        let mut line = serde_json::to_vec(what).unwrap_or_default();
        line.push(b'\n');
        let _ = self.log.write_all(&line);
    }

    /// The faults that this transfer has, with the number it has for each.
    fn firing(&mut self, rules: &[Rule], moved: &Moved) -> Vec<(Rule, u64)> {
        let mut out = Vec::new();
        for rule in rules {
            if !rule.path.matches(&moved.path)
                || !moved
                    .transfer
                    .can_have(rule.access, rule.offset, &rule.effect)
            {
                continue;
            }
            self.counts[rule.index] += 1;
            let n = self.counts[rule.index];
            let drawn = rule.hits.odds.is_none_or(|odds| {
                steadfast_strike::draw(odds.seed, n).is_multiple_of(odds.one_in.get())
            });
            if rule.hits.includes(n) && drawn {
                out.push((rule.clone(), n));
            }
        }
        out
    }

    fn read(&mut self, call: &Call, moved: &mut Moved, firing: &[(Rule, u64)]) -> io::Result<i64> {
        let t = moved.transfer;
        let mut data = vec![0; index(t.len)];
        moved.own.read_exact_at(&mut data, t.at)?;
        for (rule, n) in firing {
            let before = data.clone();
            match &rule.effect {
                Effect::Storage(Storage::Stale) => {
                    if let Some(past) = self.pasts.get(&moved.id) {
                        past.lay_over(t.at, &mut data);
                    }
                }
                Effect::Storage(Storage::Misdirected { by }) => {
                    if let Some(other) = t.elsewhere(by.get()) {
                        moved.own.read_exact_at(&mut data, other)?;
                    }
                }
                effect => change(effect, &t, rule.offset, &mut data),
            }
            self.hit(rule, *n, moved, &before, &data);
        }
        let mut from = 0;
        for (addr, len) in &moved.parts {
            let part = &data[from..data.len().min(from + index(*len))];
            if !part.is_empty() {
                call.write(*addr, part)?;
            }
            from += part.len();
        }
        moved.step()
    }

    fn write(&mut self, call: &Call, moved: &mut Moved, firing: &[(Rule, u64)]) -> io::Result<i64> {
        let t = moved.transfer;
        let mut data = vec![0; index(t.len)];
        let mut from = 0;
        for (addr, len) in &moved.parts {
            let to = from + index(*len);
            call.read(*addr, &mut data[from..to])?;
            from = to;
        }
        let stood = {
            let mut stood = vec![0; data.len()];
            let there = index(t.size.saturating_sub(t.at).min(t.len));
            moved.own.read_exact_at(&mut stood[..there], t.at)?;
            stood
        };
        let (mut place, mut keep) = (t.at, data.len());
        for (rule, n) in firing {
            match &rule.effect {
                Effect::Storage(Storage::Lost) => keep = 0,
                Effect::Storage(Storage::Torn { keep: first }) => keep = keep.min(index(*first)),
                Effect::Storage(Storage::Misdirected { by }) => {
                    place = t.elsewhere(by.get()).unwrap_or(place);
                }
                effect => {
                    let before = data.clone();
                    change(effect, &t, rule.offset, &mut data);
                    self.hit(rule, *n, moved, &before, &data);
                    continue;
                }
            }
            // What should have arrived in its place, and what stands there instead.
            let mut stands = stood.clone();
            if place == t.at {
                stands[..keep].copy_from_slice(&data[..keep]);
            }
            self.hit(rule, *n, moved, &data, &stands);
        }
        // The file grows as it should have: its size is kept elsewhere than its data.
        if t.at + t.len > t.size {
            moved.own.set_len(t.at + t.len)?;
        }
        moved.own.write_all_at(&data[..keep], place)?;
        moved.step()
    }

    fn hit(&mut self, rule: &Rule, n: u64, moved: &Moved, before: &[u8], after: &[u8]) {
        let word = |w: usize| payload::OFF_HITS + record::HIT_BYTES * rule.index + 8 * w;
        let hits = self.shared.get64(word(0));
        if hits == 0 {
            let at = before
                .iter()
                .zip(after)
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            let near = |bytes: &[u8]| {
                let mut eight = [0; 8];
                let some = &bytes[at.min(bytes.len())..bytes.len().min(at + 8)];
                eight[..some.len()].copy_from_slice(some);
                u64::from_le_bytes(eight)
            };
            self.shared.set64(word(1), n);
            self.shared.set64(word(2), steadfast_sys::cpu::ticks());
            self.shared.set64(word(3), moved.transfer.at + at as u64);
            self.shared.set64(word(4), near(before));
            self.shared.set64(word(5), near(after));
            let done = Done {
                index: rule.index,
                file: format!("{}+{:#x}", moved.path, moved.transfer.at + at as u64),
            };
            self.note(&done);
        }
        self.shared.set64(word(0), hits + 1);
    }
}

impl Moved {
    /// Moves the position as the call would have, and says what it would have said.
    fn step(&mut self) -> io::Result<i64> {
        let t = self.transfer;
        if self.walks {
            self.shared.seek(SeekFrom::Start(t.at + t.len))?;
        }
        i64::try_from(t.len).map_err(io::Error::other)
    }
}

/// Bits of the data.
fn change(effect: &Effect, transfer: &Transfer, offset: Option<Extent>, data: &mut [u8]) {
    let Effect::Bits {
        target: Target::Data(byte),
        bits,
        change,
        ..
    } = effect
    else {
        return;
    };
    let Some(first) = transfer.first_byte(offset, *byte) else {
        return;
    };
    let masks: Vec<u8> = Bits::words(bits)
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for (byte, mask) in data.iter_mut().skip(index(first)).zip(masks) {
        match change {
            Change::Flip => *byte ^= mask,
            Change::Stuck0 => *byte &= !mask,
            Change::Stuck1 => *byte |= mask,
        }
    }
}

/// What the watcher left about its hits.
pub(crate) fn done(scratch: &Path) -> Vec<Done> {
    std::fs::read_to_string(scratch.join("transfers"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// What the watcher wrote down.
pub(crate) fn recorded(scratch: &Path) -> io::Result<Transfers> {
    let mut found = Transfers::default();
    let mut code = BTreeSet::new();
    for line in std::fs::read_to_string(scratch.join("transfers"))?.lines() {
        match serde_json::from_str(line).map_err(io::Error::other)? {
            Line::Path(path) => found.paths.push(path),
            Line::One(one) => found.list.push(one),
            Line::Mapped(one) => {
                let seen = if one.code {
                    &mut code
                } else {
                    &mut found.mapped
                };
                seen.insert(one.mapped);
            }
        }
    }
    found.mapped.retain(|path| !code.contains(path));
    if found.list.len() >= RECORDED_MAX {
        return Err(io::Error::other(format!(
            "more than {RECORDED_MAX} transfers; faults can be written down as lines instead"
        )));
    }
    Ok(found)
}

/// The size of a disk's block, by which other places are drawn.
const BLOCK: u64 = 4096;
/// The size of a sector: what arrives of a torn write is a number of these.
const SECTOR: u64 = 512;

impl Transfers {
    /// A file that this fault waits for and that is mapped, where no call moves its bytes that way.
    pub(crate) fn only_mapped(&self, fault: &Fault) -> Option<&str> {
        let Trigger::File { access, path, .. } = fault.trigger() else {
            return None;
        };
        let moved = |one: &Transfer| {
            one.write == (*access == Access::Write) && path.matches(&self.paths[one.path])
        };
        if self.list.iter().any(moved) {
            return None;
        }
        let mut mapped = self.mapped.iter().map(String::as_str);
        mapped.find(|file| path.matches(file))
    }

    /// What there is to draw from, in the unit that is drawn: bytes for wrong data, else transfers.
    pub(crate) fn weight(&self, model: Model, one: &Transfer) -> u64 {
        match model {
            Model::Rdata if !one.write => one.len,
            Model::Wdata if one.write => one.len,
            Model::Stale => u64::from(!one.write && one.old),
            Model::Lost => u64::from(one.write),
            Model::Torn => u64::from(one.write && one.len > SECTOR),
            Model::Misread => u64::from(!one.write && !elsewheres(one).is_empty()),
            Model::Miswrite => u64::from(one.write && !elsewheres(one).is_empty()),
            _ => 0,
        }
    }

    /// The line of a fault in one of them.
    pub(crate) fn draw(
        &self,
        model: Model,
        which: usize,
        shape: Shape,
        draw: &mut Draw,
    ) -> Option<(String, Drawn, u64)> {
        let one = &self.list[which];
        let path = PathGlob::of(&spelled(&self.paths[one.path]))?;
        let plain = |effect: String| Drawn {
            effect,
            register: None,
            bits: Vec::new(),
        };
        let drawn = match model {
            Model::Rdata | Model::Wdata => {
                let byte = draw.below(one.len);
                let domain = if shape.count == 1 {
                    8
                } else {
                    (8 * (one.len - byte)).min(512)
                };
                shape.drawn(&format!("byte={byte}"), None, domain, draw)
            }
            Model::Stale => plain("kind=stale".into()),
            Model::Lost => plain("kind=lost".into()),
            Model::Torn => {
                let sectors = (one.len - 1) / SECTOR;
                plain(format!(
                    "kind=torn keep={}",
                    SECTOR * (1 + draw.below(sectors))
                ))
            }
            _ => {
                let places = elsewheres(one);
                plain(format!("kind=misdirected by={}", draw.one_of(&places)))
            }
        };
        let access = if one.write { "write" } else { "read" };
        let line = format!("{access}={path} n=1 {}", drawn.effect);
        let fault: Fault = line.parse().ok()?;
        let [rule] = &rules(std::slice::from_ref(&fault))[..] else {
            return None;
        };
        // Its number among those that could have the same fault.
        let same: Vec<bool> = self.paths.iter().map(|p| rule.path.matches(p)).collect();
        let n = self.list[..=which]
            .iter()
            .filter(|other| same[other.path] && other.can_have(rule.access, None, &rule.effect))
            .count() as u64;
        Some((format!("{access}={path} n={n} {}", drawn.effect), drawn, n))
    }
}

/// A path as a pattern: what the grammar cannot carry is left open.
fn spelled(path: &str) -> String {
    let odd = |c: char| c.is_whitespace() || c.is_control() || ";#*".contains(c);
    path.replace(odd, "?")
}

/// Whole blocks away, within the file.
fn elsewheres(one: &Transfer) -> Vec<i64> {
    const FARTHEST: i64 = 64;
    (-FARTHEST..=FARTHEST)
        .filter(|blocks| *blocks != 0)
        .map(|blocks| blocks * BLOCK.cast_signed())
        .filter(|by| one.elsewhere(*by).is_some())
        .collect()
}
