//! Strikes from outside, by a process of the sandbox, at processes that no fault of `run --flip` can reach.
//!
//! Memory is struck uniformly over the bits of private pages that are there (proc_pid_mem(5)); a register, one strike in four, by way of
//! ptrace(2). The moment is counted from the first line of the event file, which tells who the replicas are.
//!
//! Invariant: what is told is what was changed; a process that has ended, or refuses, was not hit.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_contract::event::{Line, What};
use steadfast_sys::procfs::{self, children};
use steadfast_sys::ptrace::{self, Regs};

use crate::chacha::{Draw, Seed};

/// One strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strike {
    /// The process.
    pub whom: Whom,
    /// When, in thousandths of a run without a fault.
    pub permille: u64,
    /// Of the place.
    pub seed: u64,
}

/// A process around the replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Whom {
    /// Watches and repairs.
    Launcher,
    /// Watches for stops.
    JobControl,
    /// Holds descriptors in case the leader dies.
    Keeper,
    /// Trampolines in one replica.
    Arena,
}

/// Where the sandbox writes down what was struck.
pub(crate) const TOLD: &str = "struck";

/// Addresses of the agent and the shared memory (crates/agent/src/layout/abi.h).
const AGENT: Range<u64> = 0x2a00_0000_0000..0x2e10_0000_0000;
const PAGE: u64 = 4096;
const LOOK: Duration = Duration::from_micros(500);

/// The life of the process that strikes.
pub(crate) fn wait_and_strike(front: i32, scratch: &Path, strike: &Strike, after: Duration) -> i32 {
    let events = scratch.join("events");
    while !fs::metadata(&events).is_ok_and(|file| file.len() > 0) {
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(after);
    // A process that is gone by now was not hit.
    let Ok(Some(hit)) = strike.carry_out(front, &events) else {
        return 0;
    };
    i32::from(fs::write(scratch.join(TOLD), hit).is_err())
}

/// What was struck in the last run.
pub(crate) fn told(scratch: &Path) -> Option<String> {
    fs::read_to_string(scratch.join(TOLD)).ok()
}

impl Strike {
    fn carry_out(&self, front: i32, events: &Path) -> io::Result<Option<String>> {
        let text = fs::read_to_string(events)?;
        let Some(Ok(line)) = text.lines().next().map(serde_json::from_str::<Line>) else {
            return Ok(None);
        };
        let What::RunStart(start) = line.event.what else {
            return Ok(None);
        };
        let replicas: Vec<i32> = start
            .replicas
            .iter()
            .filter_map(|one| i32::try_from(one.pid).ok())
            .collect();
        let mut draw = Seed::parse(&format!("{:x}", self.seed))
            .ok_or_else(|| io::Error::other("a seed"))?
            .stream(0, 0);
        let Some(pid) = self.pid(front, &replicas, &mut draw) else {
            return Ok(None);
        };
        if self.whom != Whom::Arena && draw.below(4) == 0 {
            return register(pid, &mut draw);
        }
        memory(pid, self.whom == Whom::Arena, &mut draw)
    }

    fn pid(&self, front: i32, replicas: &[i32], draw: &mut Draw) -> Option<i32> {
        let launcher = launcher_of(front);
        let own = exe(launcher)?;
        let all = children(launcher);
        let is_init = |pid: &i32| children(*pid).iter().any(|child| replicas.contains(child));
        let like_us = |pid: &i32| exe(*pid).is_some_and(|exe| exe == own);
        match self.whom {
            Whom::Launcher => Some(launcher),
            Whom::JobControl => all.into_iter().find(like_us),
            Whom::Keeper => all
                .into_iter()
                .find(|pid| !replicas.contains(pid) && !is_init(pid) && !like_us(pid)),
            Whom::Arena => (!replicas.is_empty()).then(|| *draw.one_of(replicas)),
        }
    }
}

fn exe(pid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// The launcher is a child of the process that was started, and a copy of it.
fn launcher_of(front: i32) -> i32 {
    let own = exe(front);
    let copy = |pid: &i32| own.is_some() && exe(*pid) == own;
    children(front).into_iter().find(copy).unwrap_or(front)
}

/// One bit of the private pages that a process has; in the arena, of the code that no file backs.
fn memory(pid: i32, arena: bool, draw: &mut Draw) -> io::Result<Option<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut pages: Vec<(u64, &str)> = Vec::new();
    for line in maps.lines() {
        let Some((range, name)) = private(line, arena) else {
            continue;
        };
        let pages_of = usize::try_from((range.end - range.start) / PAGE).unwrap_or(0);
        let mut entries = vec![0; pages_of * 8];
        let read = pagemap.read_at(&mut entries, range.start / PAGE * 8)?;
        for (page, entry) in (0..).zip(entries[..read].chunks_exact(8)) {
            // Bit 63: present (proc_pid_pagemap(5)).
            if entry[7] & 0x80 != 0 {
                pages.push((range.start + page * PAGE, name));
            }
        }
    }
    if pages.is_empty() {
        return Ok(None);
    }
    let (page, name) = *draw.one_of(&pages);
    let (at, bit) = (page + draw.below(PAGE), draw.below(8));
    let file = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    byte[0] ^= 1 << bit;
    file.write_all_at(&byte, at)?;
    Ok(Some(format!("{at:#x} bit {bit} {name}")))
}

/// The range and name of a line of /proc/PID/maps, if a strike may hit it.
pub(super) fn private(line: &str, arena: bool) -> Option<(Range<u64>, &str)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let (flags, inode) = (words.next()?, words.nth(2)?);
    let name = words.next().unwrap_or("");
    let from = u64::from_str_radix(from, 16).ok()?;
    let to = u64::from_str_radix(to, 16).ok()?;
    let wanted = if arena {
        flags.starts_with("r-xp") && inode == "0" && name.is_empty() && !AGENT.contains(&from)
    } else {
        flags.starts_with('r') && flags.ends_with('p')
    };
    // The kernel's own pages are nobody's to write.
    (wanted && !name.starts_with("[v") && from >> 47 == 0).then_some((from..to, name))
}

/// A register's name, and its place in a register set.
type Register = (&'static str, fn(&mut Regs) -> &mut u64);

const REGISTERS: [Register; 17] = [
    ("rax", |regs| &mut regs.rax),
    ("rbx", |regs| &mut regs.rbx),
    ("rcx", |regs| &mut regs.rcx),
    ("rdx", |regs| &mut regs.rdx),
    ("rsi", |regs| &mut regs.rsi),
    ("rdi", |regs| &mut regs.rdi),
    ("rbp", |regs| &mut regs.rbp),
    ("rsp", |regs| &mut regs.rsp),
    ("r8", |regs| &mut regs.r8),
    ("r9", |regs| &mut regs.r9),
    ("r10", |regs| &mut regs.r10),
    ("r11", |regs| &mut regs.r11),
    ("r12", |regs| &mut regs.r12),
    ("r13", |regs| &mut regs.r13),
    ("r14", |regs| &mut regs.r14),
    ("r15", |regs| &mut regs.r15),
    ("rip", |regs| &mut regs.rip),
];

/// One bit of a register of a process's first thread.
fn register(pid: i32, draw: &mut Draw) -> io::Result<Option<String>> {
    if procfs::has_ended(pid) {
        return Ok(None);
    }
    let Some(stop) = ptrace::interrupt(pid)? else {
        return Ok(None);
    };
    let mut regs = stop.regs()?;
    let (name, place) = *draw.one_of(&REGISTERS);
    let bit = draw.below(64);
    *place(&mut regs) ^= 1 << bit;
    // A non-canonical address is refused: then no bit was changed.
    let set = stop.set_regs(&regs);
    stop.detach()?;
    Ok(set.is_ok().then(|| format!("{name} bit {bit}")))
}
