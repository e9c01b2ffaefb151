//! Flips in processes that no plan of the tool can reach: launcher, sentry, keeper, the first process of
//! a follower's namespace; in the code planted into replicas; and two faults in one run.
//!
//! ```text
//!   keeper    a bit of its memory or registers; then the leader crashes, so that it is needed
//!   init      a bit of the process that owns a follower's namespace
//!   sentry    a bit of the process that watches for stops
//!   launcher  a bit of the launcher, nothing else
//!   mending   a bit of the launcher, and a value flip in a replica, at moments drawn independently
//!   arena     a bit of the trampolines in one replica
//!   repair    a value flip in a replica, and one in the agent's code that a repair executes
//!   pair      value flips in two replicas, each at a moment of its own
//! ```
//!
//! Memory is struck from outside (proc_pid_mem(5)), uniformly over the bits of private pages that are
//! there; registers, one strike in four, by way of ptrace(2). The moment is uniform over a run without
//! a fault. The last two groups need no strike: both faults are the tool's own.
//!
//! Not covered: faults in the kernel, in shared memory that these processes have in common with the
//! replicas (ours.rs), and in threads of the launcher other than its first when registers are struck.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use object::{Object, ObjectSymbol};
use serde::{Deserialize, Serialize};
use steadfast_integrity::event::{Line, What};

use super::{Drawer, Planned, Reach, turns};
use crate::draw::Draw;
use crate::operands::Group;
use crate::profile::Population;
use steadfast_sys::procfs::children;

/// What the agent runs while everybody is paused (crates/agent/src/log.c, recover.c, epoch.c).
const REPAIR: [&str; 9] = [
    "sf_pause",
    "sf_send",
    "sf_receive",
    "sf_fork_follower",
    "fork_follower",
    "sf_again",
    "sf_as_event",
    "sf_inherit_arrivals",
    "sleep_as_snapshot",
];
const GROUPS: [Group; 6] = [
    Group::Keeper,
    Group::Init,
    Group::Sentry,
    Group::Launcher,
    Group::Mending,
    Group::Arena,
];
/// Shared with crates/agent/src/abi.h: the agent's own addresses.
const AGENT: Range<u64> = 0x2a00_0000_0000..0x2e10_0000_0000;
const PAGE: usize = 4096;

/// One strike from outside.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Strike {
    /// When, in thousandths of a run.
    pub(crate) permille: u64,
    pub(crate) seed: u64,
}

/// `runs` faults of each group.
pub(crate) fn make(
    population: &Population,
    runs: u64,
    seed: u64,
) -> anyhow::Result<(Vec<Planned>, Reach)> {
    let mut drawer = Drawer::new(population)?;
    let mut plan = Vec::new();
    for group in GROUPS {
        for i in 0..runs {
            let mut draw = Draw::new(seed, (group as u64) << 40 | i);
            let strike = Strike {
                permille: draw.below(1000),
                seed: draw.next(),
            };
            let fault = match group {
                Group::Keeper => drawer
                    .site("kind=crash", &mut draw)?
                    .map(|site| format!("replica=leader {site} kind=crash")),
                Group::Mending => value(&mut drawer, &mut draw, None)?,
                _ => Some(String::new()),
            };
            let Some(fault) = fault else { continue };
            plan.push(Planned {
                id: 0,
                group,
                fault,
                victim: draw.next(),
                strike: Some(strike),
            });
        }
    }
    let file = object::File::parse(steadfast_agent::ELF)?;
    let base = AGENT.start;
    let code: Vec<Range<u64>> = file
        .symbols()
        .filter(|symbol| {
            symbol.name().is_ok_and(|name| REPAIR.contains(&name)) && symbol.size() > 0
        })
        .map(|symbol| symbol.address() - base..symbol.address() - base + symbol.size())
        .collect();
    let instructions = super::ours::instructions_of(&code)?;
    for i in 0..runs {
        let mut draw = Draw::new(seed, (Group::Repair as u64) << 40 | i);
        let Some(first) = value(&mut drawer, &mut draw, None)? else {
            continue;
        };
        for _ in 0..50 {
            let (offset, insn) = draw.one_of(&instructions);
            let kind = *draw.one_of(&Group::INSTRUCTIONS);
            if !kind.has(insn) {
                continue;
            }
            let Some(effect) = kind.draw(insn, &mut draw) else {
                continue;
            };
            let line = format!("at=agent+{offset:#x} n={} {effect}", 1 + draw.below(2));
            if steadfast_replica::plantable_in_agent(&line.parse()?).is_ok() {
                let second = format!("replica={} {line}", draw.below(2));
                plan.push(Planned {
                    id: 0,
                    group: Group::Repair,
                    fault: format!("{first}; {second}"),
                    victim: draw.next(),
                    strike: None,
                });
                break;
            }
        }
    }
    for i in 0..runs {
        let mut draw = Draw::new(seed, (Group::Pair as u64) << 40 | i);
        let (first, second) = (
            value(&mut drawer, &mut draw, Some(0))?,
            value(&mut drawer, &mut draw, Some(1))?,
        );
        if let (Some(first), Some(second)) = (first, second) {
            plan.push(Planned {
                id: 0,
                group: Group::Pair,
                fault: format!("{first}; {second}"),
                victim: draw.next(),
                strike: None,
            });
        }
    }
    Ok((turns(plan), Reach::default()))
}

/// A register of a replica, at an instruction drawn uniformly over the program.
fn value(
    drawer: &mut Drawer,
    draw: &mut Draw,
    replica: Option<u64>,
) -> anyhow::Result<Option<String>> {
    let register = draw.one_of(&[
        "rax", "rcx", "rdx", "rbx", "rsi", "rdi", "rbp", "r8", "r12", "r13",
    ]);
    let effect = format!("reg={register} bit={}", draw.below(48));
    let replica = replica.unwrap_or_else(|| draw.below(2));
    Ok(drawer
        .site(&effect, draw)?
        .map(|site| format!("replica={replica} {site} {effect}")))
}

/// A run that a strike is meant for.
pub(crate) struct Target<'a> {
    /// The process that was started.
    pub(crate) front: i32,
    pub(crate) events: &'a Path,
    /// From the first event to the end, without a fault.
    pub(crate) length: Duration,
}

/// Strikes, if the run has come to where it is to be struck: whether a bit was changed.
#[derive(Debug)]
pub(crate) struct Striker {
    strike: Strike,
    group: Group,
    victim: u64,
    started: Option<Instant>,
    pub(crate) done: bool,
    pub(crate) hit: Option<String>,
}

impl Striker {
    pub(crate) fn new(one: &Planned) -> Option<Self> {
        let strike = one.strike?;
        Some(Self {
            strike,
            group: one.group,
            victim: one.victim,
            started: None,
            done: false,
            hit: None,
        })
    }

    pub(crate) fn look(&mut self, target: &Target<'_>) {
        if self.done {
            return;
        }
        let started = match self.started {
            Some(started) => started,
            None if fs::metadata(target.events).is_ok_and(|file| file.len() > 0) => {
                *self.started.insert(Instant::now())
            }
            None => return,
        };
        let when = target.length * u32::try_from(self.strike.permille).unwrap_or(0) / 1000;
        if started.elapsed() < when {
            return;
        }
        self.done = true;
        // A process that is gone by now was not hit.
        self.hit = self.strike(target).ok().flatten();
    }

    fn strike(&self, target: &Target<'_>) -> anyhow::Result<Option<String>> {
        let text = fs::read_to_string(target.events)?;
        let line: Line = serde_json::from_str(text.lines().next().context("an event")?)?;
        let What::RunStart(start) = line.event.what else {
            return Ok(None);
        };
        let replicas: Vec<i32> = start
            .replicas
            .iter()
            .filter_map(|one| i32::try_from(one.pid).ok())
            .collect();
        let Some(pid) = self.victim(target.front, &replicas) else {
            return Ok(None);
        };
        let mut draw = Draw::new(self.strike.seed, 0);
        if self.group != Group::Arena && draw.below(4) == 0 {
            return register(pid, &mut draw).map(Some);
        }
        memory(pid, self.group == Group::Arena, &mut draw)
    }

    fn victim(&self, front: i32, replicas: &[i32]) -> Option<i32> {
        let launcher = launcher_of(front);
        let own = fs::read_link(format!("/proc/{launcher}/exe")).ok()?;
        let all = children(launcher);
        let is_init = |pid: &i32| children(*pid).iter().any(|child| replicas.contains(child));
        let like_us =
            |pid: &i32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == own);
        match self.group {
            Group::Launcher | Group::Mending => Some(launcher),
            Group::Sentry => all.into_iter().find(like_us),
            Group::Init => all.into_iter().find(is_init),
            Group::Keeper => all
                .into_iter()
                .find(|pid| !replicas.contains(pid) && !is_init(pid) && !like_us(pid)),
            _ => replicas
                .get(usize::try_from(self.victim).ok()? % replicas.len())
                .copied(),
        }
    }
}

/// The launcher is a child of the process that was started, and a copy of it.
pub(crate) fn launcher_of(front: i32) -> i32 {
    let exe = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = exe(front);
    let copy = |pid: &i32| own.is_some() && exe(*pid) == own;
    children(front).into_iter().find(copy).unwrap_or(front)
}

/// One bit of the private pages that a process has; in the arena, of the code that no file backs.
fn memory(pid: i32, arena: bool, draw: &mut Draw) -> anyhow::Result<Option<String>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap"))?;
    let mut pages: Vec<(u64, &str)> = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(flags), Some(_), Some(_), Some(inode)) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            continue;
        };
        let name = words.next().unwrap_or("");
        let hex = |text: &str| u64::from_str_radix(text, 16);
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let (from, to) = (hex(from)?, hex(to)?);
        let wanted = if arena {
            flags.starts_with("r-xp") && inode == "0" && name.is_empty() && !AGENT.contains(&from)
        } else {
            flags.starts_with('r') && flags.ends_with('p')
        };
        // The kernel's own pages are nobody's to write.
        if !wanted || name.starts_with("[v") || from >> 47 != 0 {
            continue;
        }
        let mut entries = vec![0; usize::try_from((to - from) / PAGE as u64)? * 8];
        let read = pagemap.read_at(&mut entries, from / PAGE as u64 * 8)?;
        for (index, entry) in entries[..read].chunks_exact(8).enumerate() {
            // Bit 63: present (proc_pid_pagemap(5)).
            if entry[7] & 0x80 != 0 {
                pages.push((from + (index * PAGE) as u64, name));
            }
        }
    }
    if pages.is_empty() {
        return Ok(None);
    }
    let (page, name) = draw.one_of(&pages);
    let (at, bit) = (page + draw.below(PAGE as u64), draw.below(8));
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

/// One bit of a register of a process's first thread.
fn register(pid: i32, draw: &mut Draw) -> anyhow::Result<String> {
    let pid = Pid::from_raw(pid);
    ptrace::seize(pid, ptrace::Options::empty())?;
    ptrace::interrupt(pid)?;
    waitpid(pid, Some(WaitPidFlag::__WALL))?;
    let mut regs = ptrace::getregs(pid)?;
    let bit = draw.below(64);
    let places = [
        ("rax", &mut regs.rax),
        ("rbx", &mut regs.rbx),
        ("rcx", &mut regs.rcx),
        ("rdx", &mut regs.rdx),
        ("rsi", &mut regs.rsi),
        ("rdi", &mut regs.rdi),
        ("rbp", &mut regs.rbp),
        ("rsp", &mut regs.rsp),
        ("r8", &mut regs.r8),
        ("r9", &mut regs.r9),
        ("r10", &mut regs.r10),
        ("r11", &mut regs.r11),
        ("r12", &mut regs.r12),
        ("r13", &mut regs.r13),
        ("r14", &mut regs.r14),
        ("r15", &mut regs.r15),
        ("rip", &mut regs.rip),
    ];
    let index = usize::try_from(draw.below(places.len() as u64))?;
    let mut places = places;
    let (name, place) = &mut places[index];
    **place ^= 1 << bit;
    let hit = format!("{name} bit {bit}");
    // A non-canonical address is refused: then no bit was changed.
    let set = ptrace::setregs(pid, regs);
    ptrace::detach(pid, None)?;
    set?;
    Ok(hit)
}
