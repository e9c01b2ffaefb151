//! State alignment: a handled signal waits, or another thread, and the program computes on without an event.
//!
//! ```text
//!   the leader holds a signal, or burns CPU time while another thread could run, and has not moved for a while
//!     ──► all pause where the launcher's word finds them
//!     ──► one of them says where it stands, the others step or run on to there: same place, registers, memory
//!     ──► all hear signals there, as one event, and another thread has its turn
//! ```
//!
//! Invariants
//!  1. Replicas meet where every register and all memory are equal, or not at all.
//!  2. What does not come about is tried again later, less and less often; everybody computes on meanwhile.
//!
//! Not covered: replicas that are seconds apart, code of no file, a fault's handler that goes back to somewhere else than to
//! where the fault was.

mod apart;

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use steadfast_sys::memory::Remote;
use steadfast_sys::{cpu, procfs};

use self::apart::{Efforts, Outcome};
use crate::abi::{self, alarm, cmd, option, phase, seek};
use crate::group::at;
use crate::modules::{PlannedHook, protection_at};
use crate::supervise::recovery::NUDGE;
use crate::supervise::{Supervisor, WATCH};

/// A signal that waits so long without an event has the replicas meet. Most programs have an event by then.
const PATIENCE: Duration = Duration::from_millis(20);
/// Where passes of payloads are counted it is heard in 40 ms, if the program still comes by one (thread.c, `HEARS`).
const PATIENCE_COUNTED: Duration = Duration::from_millis(150);
/// Attempts that fail are at most so far apart.
const PATIENCE_MAX: Duration = Duration::from_secs(10);
/// An alignment holds everybody up, for as long as it takes to read all memory at least: the program computes on for so
/// many times as long before the next one. Costs a tenth at most where a timer goes off all the time. What somebody who
/// is behind runs meanwhile does not count: he would have to run it before the next event anyway, if not as slowly.
const SPACING: u32 = 10;
/// A replica that computes pauses at once, one that waits in the log or in the kernel does not.
const PAUSES: Duration = Duration::from_millis(100);
/// Instructions stepped at most, once around a loop that only looks at a variable: 5 to 10 µs each.
const STEPS: u64 = 2_000;
/// Time for these on a core that others use as well, or to come by a planted payload.
const SEARCH: Duration = Duration::from_secs(1);
/// How long one that may be behind runs to come to where another one stands, at first: replicas on cores of their own are
/// apart by what interrupts them, microseconds to milliseconds. Then the other one runs, four times as long each time: it
/// has to make up for what the first one has run on. In all that is some times as long as they were apart.
const RUN: Duration = Duration::from_millis(5);
const RUNS: u32 = 7;
const RUN_MAX: Duration = Duration::from_secs(16);
/// An attempt that fails leaves them as far apart as its last run went: the next one begins with a part of that.
const REACH: u32 = 16;
/// What counts is looked at after these; what it has counted is in proportion to its time on a core, but for this factor: to
/// pause and to go on takes some time as well.
const PROBES: [Duration; 3] = [
    Duration::from_millis(1),
    Duration::from_millis(4),
    Duration::from_millis(10),
];
const PROPORTION: i64 = 3;
/// Who is known to be behind runs on freely until what is left takes less than this; these passes are looked at one by one,
/// which takes up to a hundred times as long.
const CLOSE_MS: i64 = 3;
/// CPU time that a thread has without an event before it is made to give way: with what an alignment takes less than 100 ms
/// where replicas have cores of their own.
const SHARE: Duration = Duration::from_millis(40);
/// One that has hardly run since the last look is looked at so much later: with SHARE that is 100 ms, and an idle server costs
/// less.
const WAITING: Duration = Duration::from_millis(60);
const MOMENT_NS: u64 = 1_000_000;
/// What the first attempt to have other threads run may take, and each later one twice as long.
const TURN: Duration = Duration::from_millis(200);
const IN_VAIN_MAX: u32 = 6;
/// One attempt in so many before an event has all the time that it takes, and says who is wrong where they differ.
const SETTLES: u32 = 3;
const NO_LIMIT: Duration = Duration::from_secs(3600);
/// A leader that computes answers in microseconds once it runs.
const ASKED: Duration = Duration::from_millis(10);
/// How often somebody who is to pause is looked at, and called again.
const LOOK: Duration = Duration::from_millis(2);
const LOOK_MIN: Duration = Duration::from_micros(100);
/// Times that registers may agree and memory not, before another place is tried.
const LOOKS: u32 = 12;
/// A payload that is planted serves loops around it; more of them than this, and the program is no loop.
const NEAR: u64 = 64;
const SITES_MAX: usize = 32;
/// Some places of a loop's body, for each payload.
const PASSED_OVER_MAX: usize = 8 * SITES_MAX;
/// A jump takes the place of a few instructions.
const STEPS_ASIDE: u32 = 8;
const INSTRUCTION_MAX: u64 = 15;
/// Where the transfer area says what instruction its sender stands at.
const SENT_RIP: usize = abi::OFF_TRANSFER + 16 + 8 * abi::REG_RIP;
/// ... and where its stack begins.
const SENT_RSP: usize = abi::OFF_TRANSFER + 16 + 8 * abi::REG_RSP;
/// Of the stack that is looked at for callers.
const STACK_WORDS: u64 = 512;
/// A stopped process hears its call when it is continued; looks are a tenth of a second apart.
const STRAY_LOOKS: u32 = 20;
/// A paused replica answers at once; a digest of a large memory takes a while.
const ANSWER: Duration = Duration::from_secs(20);

/// Something that changes by the same from one pass of a payload to the next, and so tells who is behind, and by how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    /// As `struct sf_regs` numbers them.
    Register(usize),
    Word(u64),
}

/// A replica has to come by a payload so many times until a counter is what it is in another one.
#[derive(Debug, Clone, Copy)]
struct Distance {
    counter: Counter,
    wanted: u64,
    /// Negative: it has been past that.
    passes: i64,
}

/// What is remembered between looks.
#[derive(Debug, Default)]
pub(crate) struct Alignment {
    /// The event before which a signal waits, and since when.
    waits: Option<(u64, Instant)>,
    /// Attempts since one came about.
    failed: u32,
    /// Nobody is held up before.
    not_before: Option<Instant>,
    /// What was run in the newest one by who was behind.
    ran: Duration,
    /// Who is behind is believed so many times more of a counter.
    trusted: usize,
    /// What counts, and how often in a millisecond.
    rate: Option<(Counter, i64)>,
    /// How long the last run of one was that failed.
    reach: Duration,
    /// The event before which the leader computes, and what it had burned when it was seen there first.
    computes: Option<(u64, u64)>,
    /// CPU time of its process at the last look.
    had_ns: u64,
    /// The event before which other threads had waited too long last, with the attempts since that were in vain.
    starves: Option<u64>,
    in_vain: u32,
    /// What of them was in vain before this event.
    in_vain_here: u32,
    efforts: Efforts,
    /// The payload at which somebody stood last for others to come to.
    met_at: Option<u64>,
    /// Nothing can be planted where the program computes.
    hopeless: bool,
    /// Everybody goes on then, together or not.
    deadline: Option<Instant>,
    /// Payloads that a replica has not come by, and where it was: they are in another loop near it.
    passed_over: BTreeSet<(u64, u64)>,
    /// Where signals were heard: their handlers go back there.
    heard: BTreeSet<u64>,
    /// Looks in which somebody may still pause who did not do so in time.
    strays: u32,
}

impl Alignment {
    /// Whether others wait for their turn: then an alignment has its time.
    fn is_for_others(&self) -> bool {
        self.deadline.is_some()
    }
}

impl Supervisor<'_> {
    /// Has the replicas meet if a signal has waited for long enough. Says when to look again at the latest.
    pub(crate) fn look_for_a_waiting_signal(&mut self) -> Duration {
        if self.alignment.strays > 0 {
            self.alignment.strays -= 1;
            self.send_on();
        }
        if self.group.get32(at!(alarm)) != alarm::QUIET {
            return Duration::MAX;
        }
        let place = self.group.get64(at!(own 0, next));
        // What processes share is of one moment only where it is this one's turn at every index.
        let turn = !self.shares_memory() || self.has_its_turn();
        if self.group.get32(at!(hand)) == 0 || !turn {
            self.alignment.waits = None;
            return Duration::MAX;
        }
        let since = match self.alignment.waits {
            Some((at, since)) if at == place => since,
            _ => self.alignment.waits.insert((place, Instant::now())).1,
        };
        let patience = if self.counts() {
            PATIENCE_COUNTED
        } else {
            PATIENCE
        };
        let due = self
            .alignment
            .not_before
            .map_or(since + patience, |earliest| earliest.max(since + patience));
        let now = Instant::now();
        if now < due {
            return due - now;
        }
        let met = self.meet(false);
        self.alignment.failed = if met { 0 } else { self.alignment.failed + 1 };
        let pause = (PATIENCE * 2_u32.saturating_pow(self.alignment.failed)).min(PATIENCE_MAX);
        let ran = std::mem::take(&mut self.alignment.ran);
        // One that is to die is held up for nothing else, and replicas that share cores go apart while it computes on.
        let spacing = if self.group.get32(at!(dying)) == 0 {
            pause.max(SPACING * now.elapsed().saturating_sub(ran) + ran / 2)
        } else {
            SHARE
        };
        self.alignment.not_before = Some(Instant::now() + spacing);
        self.alignment.waits = None;
        self.alignment.computes = None;
        PATIENCE
    }

    /// Has the replicas meet if a thread has computed for a while without an event, and another one could go on, or a file
    /// that it may wait for has changed. Says when to look again at the latest.
    pub(crate) fn look_for_a_waiting_thread(&mut self, rests: bool) -> Duration {
        // What processes share is of one moment only where it is this one's turn at every index.
        let alone = self.group.get32(at!(threads)) < 2 && !self.shares_memory();
        if alone && self.group.get64(at!(settled)) == 0
            || self.group.get32(at!(alarm)) != alarm::QUIET
            || self.shares_memory() && !self.has_its_turn()
        {
            self.alignment.computes = None;
            return Duration::MAX;
        }
        let place = self.group.get64(at!(own 0, next));
        // One that has come to an event waits for the others there: who does not come hangs (pace.rs).
        if (1..self.replicas.len()).any(|r| self.group.get64(at!(own r, next)) != place) {
            self.alignment.computes = None;
            return SHARE;
        }
        if rests {
            return Duration::MAX;
        }
        let Some(has_ns) = cpu::process_time_ns(self.replicas[0].pid) else {
            return Duration::MAX;
        };
        let had_ns = std::mem::replace(&mut self.alignment.had_ns, has_ns);
        if (had_ns..had_ns + MOMENT_NS).contains(&has_ns) {
            return WAITING;
        }
        let Some(burned) = procfs::burned_ns(self.replicas[0].pid) else {
            return Duration::MAX;
        };
        let since = match self.alignment.computes {
            Some((at, since)) if at == place => since,
            _ => self.alignment.computes.insert((place, burned)).1,
        };
        let left = SHARE.saturating_sub(Duration::from_nanos(burned.saturating_sub(since)));
        if !left.is_zero() {
            return left.max(LOOK);
        }
        if let Some(left) = self
            .alignment
            .not_before
            .map(|earliest| earliest.saturating_duration_since(Instant::now()))
            && !left.is_zero()
        {
            return left;
        }
        self.alignment.computes = None;
        if !self.another_could_run() {
            return SHARE;
        }
        // Most programs have an event soon: nobody is held up for long by the first attempts.
        if self.alignment.starves.is_none_or(|at| at != place) {
            self.alignment.in_vain /= 2;
            self.alignment.in_vain_here = 0;
        }
        let settles = self.alignment.in_vain_here % SETTLES == SETTLES - 1;
        self.alignment.starves = Some(place);
        let begun = Instant::now();
        let time = if settles {
            NO_LIMIT
        } else {
            TURN * 2_u32.pow(self.alignment.in_vain)
        };
        self.alignment.deadline = Some(begun + time);
        self.alignment.hopeless = false;
        let met = self.meet(settles);
        self.alignment.deadline = None;
        let took = begun.elapsed();
        // Replicas that share cores go apart meanwhile: what they do must fit into the next attempt.
        let pause = match (met, self.alignment.hopeless) {
            (true, _) => Duration::ZERO,
            (false, true) => SPACING * took,
            (false, false) => took / 4,
        };
        if self.group.get32(at!(alarm)) != alarm::QUIET {
            return SHARE;
        }
        self.alignment.in_vain_here += u32::from(!met);
        if met {
            self.alignment.in_vain = 0;
        } else if !self.alignment.hopeless {
            self.alignment.in_vain = (self.alignment.in_vain + 1).min(IN_VAIN_MAX);
        }
        self.alignment.ran = Duration::ZERO;
        self.alignment.not_before = Some(Instant::now() + pause.max(SHARE));
        SHARE
    }

    /// Whether the last attempt found nowhere to plant a payload.
    pub(super) fn meets_in_vain(&self) -> bool {
        self.alignment.hopeless
    }

    /// Whether every replica holds the baton of its index (domain.c).
    fn has_its_turn(&self) -> bool {
        let held = |r: usize| self.group.get32(at!(baton_held) + 4 * r) != 0;
        (0..self.replicas.len()).all(held)
    }

    /// Asks the leader, who computes.
    fn another_could_run(&mut self) -> bool {
        let number = self.group.get32(at!(look_asked)).wrapping_add(1);
        self.group.set32(at!(look_asked), number);
        self.signal_replica(0, NUDGE);
        let begun = Instant::now();
        while begun.elapsed() < ASKED && self.group.get32(at!(look_heard)) != number {
            std::thread::sleep(LOOK_MIN);
        }
        // It answers in the same breath.
        let seen = self.group.bell();
        if self.group.get32(at!(look_found)) != number {
            self.group.sleep(seen, LOOK);
        }
        self.group.get32(at!(look_found)) == number
    }

    /// Replicas count how often they come by payloads.
    fn counts(&self) -> bool {
        self.group.get32(at!(counts)) != 0
    }

    /// Brings all to one place. `settles`: with all the time that it takes, or who is wrong is known then.
    fn meet(&mut self, settles: bool) -> bool {
        let n = self.replicas.len();
        (0..n).for_each(|r| self.lets_go(r));
        self.group.set32(at!(alignment), 1);
        let outcome = match self.all_pause(if settles { SEARCH } else { PAUSES }) {
            true if settles => self.settle_who_differs(),
            true if self.come_together() => Outcome::Together,
            _ => Outcome::Nothing,
        };
        let together = outcome == Outcome::Together;
        self.group.set32(at!(alignment), 0);
        if together {
            self.alignment.heard.insert(self.group.get64(SENT_RIP));
            if self.alignment.is_for_others() {
                self.plant_locks();
            }
            for r in 0..n {
                self.group.order(r, cmd::HEAR, 1, ANSWER);
            }
        }
        if let Outcome::Apart { late, lost } = outcome {
            // They stand close to each other once it is made again.
            (self.alignment.in_vain, self.alignment.in_vain_here) = (0, 0);
            self.are_apart(late, lost);
            return false;
        }
        self.alignment.strays = if (0..n).all(|r| self.pauses(r)) {
            0
        } else {
            STRAY_LOOKS
        };
        self.send_on();
        // What was burned on the way says nothing about who hangs.
        self.watch.pace.clear();
        together
    }

    fn pauses(&self, r: usize) -> bool {
        self.group.phase(r) == phase::PAUSED && self.group.acknowledged(r)
    }

    /// Calls everybody who computes.
    fn all_pause(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let seen = self.group.bell();
            let out: Vec<usize> = (0..self.replicas.len())
                .filter(|r| !self.pauses(*r))
                .collect();
            if out.is_empty() {
                return !self.disturbed();
            }
            if begun.elapsed() > limit || self.disturbed() {
                return false;
            }
            for r in out {
                self.call(r);
            }
            self.group.sleep(seen, Duration::from_millis(5));
        }
    }

    /// Has a replica that computes pause where it is. Somebody else's signal does not: it may end no search.
    fn call(&self, r: usize) {
        self.group.set32(at!(slot r, called), 1);
        self.signal_replica(r, NUDGE);
    }

    /// It goes on, and was not called since.
    fn lets_go(&self, r: usize) {
        self.group.set32(at!(slot r, called), 0);
    }

    fn send_on(&self) {
        let here: Vec<usize> = (0..self.replicas.len())
            .filter(|r| self.pauses(*r))
            .collect();
        for r in &here {
            self.group.command(*r, cmd::RESUME, 0);
        }
        for r in here {
            self.group.obeyed(r, ANSWER);
        }
    }

    /// Something else has come up, which goes first.
    fn disturbed(&mut self) -> bool {
        self.group.get32(at!(alarm)) != alarm::QUIET
            || self.group.end() != abi::end::RUNNING
            || self.group.get32(at!(dying)) != 0 && !self.shares_memory()
            || self.group.get32(at!(rpc rpc)) != 0
            || (0..self.replicas.len()).any(|r| self.group.is_gone(r))
            || self.has_news()
    }

    /// From wherever all have paused to one place.
    fn come_together(&mut self) -> bool {
        let n = self.replicas.len();
        let place = |r: usize| self.group.get64(at!(own r, next));
        if (0..n).any(|r| place(r) != place(0)) {
            return false;
        }
        // A loop that only looks at a variable brings everybody to the same state again and again.
        let Some(stands) = self.stands_at(0) else {
            return false;
        };
        // A jump that was planted, or the way through an arena, is nobody's state.
        let rip = self.modules.original(stands);
        let planted = rip != stands || self.modules.ours(rip) || self.planted_near(rip).is_some();
        // Who waits for another thread does so again and again: from now on it finds such a place by itself.
        let planted = planted || self.alignment.is_for_others() && self.plant(rip).is_some();
        if !planted && (1..n).all(|r| self.comes_to(r, 0, seek::HERE, SEARCH)) {
            return true;
        }
        // One that counts does not: who is behind has to run. What they have burned says who that may be; whoever does
        // not come to another one's state in time has been past it.
        let planted = self.plant(rip);
        self.alignment.hopeless = planted.is_none();
        let Some(site) = planted else { return false };
        let burned: Vec<u64> = (0..n).map(|r| self.burned(r)).collect();
        let most = burned.iter().max().copied().unwrap_or(0);
        let apart = Duration::from_nanos(most - burned.iter().min().copied().unwrap_or(0));
        self.alignment.trusted = 2 * n;
        self.alignment.rate = None;
        let mut ahead = burned.iter().position(|ns| *ns == most).unwrap_or(0);
        // Looks are a tenth of a second apart: what is more than that is no error. Past a payload a loop takes up to
        // eight times as long.
        let first = RUN
            .max(apart * if apart > WATCH { 8 } else { 2 })
            .max(self.alignment.reach / REACH);
        let mut run = 0;
        while run < RUNS && !self.is_late() {
            let trusted = self.alignment.trusted;
            if !self.goes_to(ahead, site) || self.stands_at(ahead) != Some(site) {
                // Who stands at a payload is in its loop, and who was called away may be.
                let elsewhere = run == 0 && site != rip && !self.disturbed();
                if elsewhere && self.alignment.passed_over.len() < PASSED_OVER_MAX {
                    self.alignment.passed_over.insert((site, rip));
                }
                return false;
            }
            self.group.set64(abi::OFF_SEEK_WORDS + 8, 0);
            let limit = (first * 4_u32.pow(run)).min(RUN_MAX);
            self.alignment.reach = limit;
            match (0..n)
                .filter(|r| *r != ahead)
                .find(|r| !self.catches_up(*r, ahead, site, limit))
            {
                None => {
                    self.alignment.reach = Duration::ZERO;
                    return true;
                }
                // It has come to an event, or is somewhere that nobody can call it from.
                Some(other) if !self.pauses(other) || self.disturbed() => return false,
                Some(other) => ahead = other,
            }
            // Nobody has run for so long who was told from a counter.
            run += u32::from(self.alignment.trusted == trusted);
        }
        false
    }

    fn is_late(&self) -> bool {
        self.alignment
            .deadline
            .is_some_and(|at| Instant::now() > at)
    }

    fn burned(&self, r: usize) -> u64 {
        let now = procfs::burned_ns(self.replicas[r].pid).unwrap_or(0);
        self.watch.pace.burned(r, now)
    }

    /// Has a replica say all about where it stands, which is what others then look for.
    fn stands_at(&self, r: usize) -> Option<u64> {
        if !self.pauses(r) {
            return None;
        }
        self.group.order(r, cmd::SEND, 0, ANSWER)?;
        Some(self.group.get64(SENT_RIP))
    }

    fn planted_near(&self, rip: u64) -> Option<u64> {
        self.modules
            .meets
            .iter()
            .map(|(site, _)| *site)
            .find(|site| {
                site.abs_diff(rip) < NEAR && !self.alignment.passed_over.contains(&(*site, rip))
            })
    }

    /// A payload in the loop around an address, in all replicas: one that is there, or a new one. It stays, and is
    /// passed by in a few instructions when nobody looks for anything.
    fn plant(&mut self, rip: u64) -> Option<u64> {
        if let Some(site) = self.planted_near(rip) {
            return Some(site);
        }
        if self.modules.meets.len() == SITES_MAX {
            return None;
        }
        let maps = procfs::maps(self.replicas[0].pid).ok()?;
        let number = self.modules.meets_given;
        let (site, hook) = self
            .modules
            .plan_hook(rip, &payload(number), &taken(&maps))?;
        self.modules.meets_given += 1;
        self.put(hook, &maps)?;
        self.modules.meets.push((site, number));
        Some(site)
    }

    /// All replicas stand at a payload, and others wait for one that computes in that loop. It may own a lock there each time that
    /// it gives way: payloads before the instructions around it that may take one, so that it does so there as well (thread.c, `aims`).
    fn plant_locks(&mut self) -> Option<()> {
        let site = self.group.get64(SENT_RIP);
        if !self.modules.locks_sought.insert(site) {
            return None;
        }
        let maps = procfs::maps(self.replicas[0].pid).ok()?;
        let memory = Remote::open(self.replicas[0].pid).ok()?;
        let word = |at: u64| {
            let mut bytes = [0; 8];
            memory.read(at, &mut bytes).ok()?;
            Some(u64::from_le_bytes(bytes))
        };
        let top = self.group.get64(SENT_RSP);
        let stack: Vec<u64> = (0..STACK_WORDS)
            .map_while(|i| word(top.wrapping_add(8 * i)))
            .collect();
        let found = self.modules.locks_around(site, &stack, word);
        let hooks = self.modules.plan_locks(&found, lock_payload, &taken(&maps));
        self.group.set32(at!(locks), self.modules.locks);
        for hook in hooks {
            self.put(hook, &maps);
        }
        Some(())
    }

    /// Writes a payload to all replicas, if nobody stands in its way.
    fn put(&mut self, hook: PlannedHook, maps: &[procfs::Mapping]) -> Option<()> {
        let n = self.replicas.len();
        let first = hook.windows.first()?.start;
        let plan = hook.prepared.encode(protection_at(maps, first));
        let free = hook.windows.iter().all(|window| {
            !self.may_return_into(window) && (0..n).all(|r| self.steps_aside(r, window))
        });
        if !free || abi::OFF_REMAP + plan.len() > abi::OFF_UNDO {
            return None;
        }
        // Replicas that count passes of payloads begin anew (log.c, SF_C_PATCH); a re-run would not.
        if self.group.get32(at!(options)) & option::RETAIN != 0
            && (self.group.get32(at!(threads)) > 1 || self.counts())
        {
            self.group.set32(at!(snapshot_broken), 1);
        }
        self.group.memory.write(abi::OFF_REMAP, &plan);
        self.modules.hooked(hook);
        self.note_planted();
        for r in 0..n {
            self.group
                .command2(r, cmd::PATCH, abi::OFF_REMAP as u64, plan.len() as u64);
            self.group.obeyed(r, ANSWER)?;
        }
        Some(())
    }

    /// Whether a handler that has not returned yet may do so to bytes that are replaced, other than the first one: where
    /// a signal was heard, or about where a fault was, whose handler may pass over the instruction.
    fn may_return_into(&self, window: &Range<u64>) -> bool {
        let heard = self
            .alignment
            .heard
            .iter()
            .any(|rip| window.contains(rip) && *rip != window.start);
        let known = self.group.get32(at!(faults_n)) as usize;
        let near = window.start.saturating_sub(INSTRUCTION_MAX)..window.end;
        let fault = |i| self.group.get64(at!(fault_at) + 8 * i);
        heard || known > abi::FAULTS_MAX || (0..known).any(|i| near.contains(&fault(i)))
    }

    /// Nobody may stand on bytes that are replaced, but for the first one.
    fn steps_aside(&mut self, r: usize, window: &Range<u64>) -> bool {
        for _ in 0..STEPS_ASIDE {
            let Some(rip) = self.stands_at(r) else {
                return false;
            };
            if rip == window.start || !window.contains(&rip) {
                return true;
            }
            self.seek(r, 1, seek::ON, SEARCH);
        }
        false
    }

    /// Has a replica run until it comes by a payload.
    fn goes_to(&mut self, r: usize, site: u64) -> bool {
        let number = self
            .modules
            .meets
            .iter()
            .find(|(other, _)| *other == site)
            .map_or(u32::MAX, |(_, number)| *number);
        self.group.set64(abi::OFF_SEEK_WORDS, number.into());
        self.group.set64(SENT_RIP, site);
        self.seek(r, STEPS, seek::PLACE, SEARCH)
    }

    /// Brings a replica to where another has said that it stands.
    fn comes_to(&mut self, r: usize, to: usize, how: u64, limit: Duration) -> bool {
        for look in 0..LOOKS {
            let how = if how == seek::HERE && look > 0 {
                seek::ON
            } else {
                how
            };
            let begun = Instant::now();
            let found = self.seek(r, STEPS, how, limit);
            if how == seek::FREE {
                self.alignment.ran += begun.elapsed();
            }
            if !found {
                return false;
            }
            if self
                .digest(r)
                .is_some_and(|own| Some(own) == self.digest(to))
            {
                return true;
            }
            if how == seek::FREE && !self.learn(r, to) {
                return false;
            }
        }
        false
    }

    /// Brings a replica to where another one stands at a payload. What counts there is believed, since it spares
    /// everybody the time in which somebody looks for what lies behind him; only as long as it proves true.
    fn catches_up(&mut self, r: usize, to: usize, site: u64, limit: Duration) -> bool {
        let distance = if self.alignment.trusted > 0 {
            self.distance(r, to, site)
        } else {
            None
        };
        match distance {
            Some(distance) if distance.passes < 0 => {
                self.alignment.trusted -= 1;
                return false;
            }
            // Where one stands nobody comes by again.
            Some(distance)
                if distance.passes == 0
                    && self
                        .digest(r)
                        .is_some_and(|own| Some(own) == self.digest(to)) =>
            {
                return self.stands_at(to) == Some(site);
            }
            Some(distance) if !self.approaches(r, site, distance) => {
                self.alignment.trusted -= 1;
                return false;
            }
            _ => {}
        }
        if !self.pauses(r) || self.stands_at(to) != Some(site) {
            return false;
        }
        let found = self.comes_to(
            r,
            to,
            seek::FREE,
            if distance.is_some() {
                limit.max(SEARCH)
            } else {
                limit
            },
        );
        if distance.is_some() && !found {
            self.alignment.trusted = 0; // one that begins anew again and again
        }
        found
    }

    /// How far a replica is behind another one, if something counts.
    fn distance(&mut self, r: usize, to: usize, site: u64) -> Option<Distance> {
        let mut counters: Vec<Counter> = (0..abi::REGISTERS).map(Counter::Register).collect();
        let mut wanted = counters
            .iter()
            .map(|counter| self.sent(to, *counter))
            .collect::<Option<Vec<u64>>>()?;
        let mut seen = Vec::new();
        // Where the first one is taken it may have paused just before it came by the payload.
        for sample in 0..4 {
            let there = if sample == 0 {
                self.goes_to(r, site)
            } else {
                self.seek(r, STEPS, seek::NEXT, SEARCH)
            };
            if !there || self.stands_at(r) != Some(site) {
                return None;
            }
            if sample == 0 {
                continue;
            }
            if sample == 1
                && let Some((address, value)) = self.differing_word(r, to)
            {
                counters.push(Counter::Word(address));
                wanted.push(value);
            }
            seen.push(
                counters
                    .iter()
                    .map(|counter| self.sent(r, *counter))
                    .collect::<Option<Vec<u64>>>()?,
            );
        }
        let distances = counters.iter().enumerate().filter_map(|(i, counter)| {
            let step = seen[1][i].wrapping_sub(seen[0][i]).cast_signed();
            let left = wanted[i].wrapping_sub(seen[2][i]).cast_signed();
            let counts = step != 0 && seen[2][i].wrapping_sub(seen[1][i]).cast_signed() == step;
            (counts && left.checked_rem(step) == Some(0)).then(|| Distance {
                counter: *counter,
                wanted: wanted[i],
                passes: left / step,
            })
        });
        // What begins anew inside of something else that counts is never as far.
        let distance = distances.max_by_key(|distance| distance.passes.unsigned_abs())?;
        if self
            .alignment
            .rate
            .is_some_and(|(counter, _)| counter == distance.counter)
        {
            return Some(distance);
        }
        let i = counters
            .iter()
            .position(|counter| *counter == distance.counter)?;
        let step = seen[1][i].wrapping_sub(seen[0][i]).cast_signed();
        let (rate, now) = self.goes_on_counting(r, site, distance.counter, seen[2][i], step)?;
        self.alignment.rate = Some((distance.counter, rate));
        Some(Distance {
            passes: distance.wanted.wrapping_sub(now).cast_signed() / step,
            ..distance
        })
    }

    /// How many passes a replica makes in a millisecond, and what the counter is then. None where it does not count on in
    /// proportion to the time: one of an inner loop begins anew.
    fn goes_on_counting(
        &mut self,
        r: usize,
        site: u64,
        counter: Counter,
        from: u64,
        step: i64,
    ) -> Option<(i64, u64)> {
        let mut before = from;
        let mut rates = Vec::new();
        for time in PROBES {
            let begun = procfs::cpu_ns(self.replicas[r].pid)?;
            let now = self.runs_to(r, site, time, counter)?;
            let ns = i64::try_from(
                procfs::cpu_ns(self.replicas[r].pid)?
                    .saturating_sub(begun)
                    .max(1),
            )
            .ok()?;
            let moved = now.wrapping_sub(before).cast_signed();
            if moved % step != 0 || moved / step < 1 {
                return None;
            }
            rates.push((moved / step).saturating_mul(1_000_000) / ns);
            before = now;
        }
        let (least, most) = (*rates.iter().min()?, *rates.iter().max()?);
        (least > 0 && most / PROPORTION <= least).then_some((most, before))
    }

    /// Lets a replica go on for a while, and to the payload again. What a counter is there.
    fn runs_to(&mut self, r: usize, site: u64, time: Duration, counter: Counter) -> Option<u64> {
        let there =
            self.runs_for(r, time) && self.goes_to(r, site) && self.stands_at(r) == Some(site);
        if there { self.sent(r, counter) } else { None }
    }

    /// What a counter is in the replica that has said all about itself last.
    fn sent(&self, r: usize, counter: Counter) -> Option<u64> {
        match counter {
            Counter::Register(number) => {
                Some(self.group.get64(abi::OFF_TRANSFER + 16 + 8 * number))
            }
            Counter::Word(address) => {
                let mut bytes = [0; 8];
                Remote::open(self.replicas[r].pid)
                    .ok()?
                    .read(address, &mut bytes)
                    .ok()?;
                Some(u64::from_le_bytes(bytes))
            }
        }
    }

    /// Has a replica run on, without looking for anything, until few of the passes that it lacks are left.
    fn approaches(&mut self, r: usize, site: u64, mut distance: Distance) -> bool {
        let Some((_, rate)) = self.alignment.rate else {
            return false;
        };
        let begun = Instant::now();
        while distance.passes / rate >= CLOSE_MS && begun.elapsed() < RUN_MAX && !self.is_late() {
            let Some(before) = self.sent(r, distance.counter) else {
                return false;
            };
            // Short of it: whoever is called runs on until he hears it.
            let ms = u64::try_from(distance.passes / rate).unwrap_or(0);
            let Some(now) =
                self.runs_to(r, site, Duration::from_millis(ms) * 3 / 4, distance.counter)
            else {
                return false;
            };
            // Of what was left so much is done: a share, since steps may be of any size and sign.
            let part = |from: u64, to: u64| i128::from(to.wrapping_sub(from).cast_signed());
            let (done, all) = (part(before, now), part(before, distance.wanted));
            distance.passes -=
                i64::try_from(i128::from(distance.passes) * done / all).unwrap_or(i64::MAX);
        }
        self.alignment.ran += begun.elapsed();
        distance.passes >= 0
    }

    /// Lets a replica go on for a while; afterwards it pauses, or something else has come up.
    fn runs_for(&mut self, r: usize, time: Duration) -> bool {
        let place = self.group.get64(at!(own r, next));
        self.lets_go(r);
        self.group.command(r, cmd::RESUME, 0);
        self.group.obeyed(r, ANSWER).is_some() && self.pauses_after(r, place, time)
    }

    /// Has whoever looks for a state look at a word as well in which another state differed from it.
    fn learn(&self, other: usize, to: usize) -> bool {
        let known = self.group.get64(abi::OFF_SEEK_WORDS + 8);
        let at = abi::OFF_SEEK_WORDS + 16 + 16 * usize::try_from(known).unwrap_or(abi::SEEK_WORDS);
        let Some((address, value)) = self.differing_word(other, to) else {
            return false;
        };
        if known < abi::SEEK_WORDS as u64 {
            self.group.set64(at, address);
            self.group.set64(at + 8, value);
            self.group.set64(abi::OFF_SEEK_WORDS + 8, known + 1);
        }
        true
    }

    /// Has a replica look for what stands in the transfer area. Afterwards it pauses again, or something else has
    /// come up.
    fn seek(&mut self, r: usize, steps: u64, how: u64, limit: Duration) -> bool {
        if !self.pauses(r) {
            return false;
        }
        let place = self.group.get64(at!(own r, next));
        self.group.set32(at!(own r, sought), 0);
        self.lets_go(r);
        self.group.command2(r, cmd::SEEK, steps, how);
        self.pauses_after(r, place, limit) && self.group.get32(at!(own r, sought)) != 0
    }

    /// Waits for a replica to pause that has come to no event since `place`, and calls it when `limit` is over.
    fn pauses_after(&mut self, r: usize, place: u64, limit: Duration) -> bool {
        let begun = Instant::now();
        let limit = self
            .alignment
            .deadline
            .map_or(limit, |at| limit.min(at.saturating_duration_since(begun)));
        while !self.pauses(r) {
            let seen = self.group.bell();
            // One that comes to an event seeks no longer, and everybody has one soon.
            let over = self.disturbed() || self.group.get64(at!(own r, next)) != place;
            if over || begun.elapsed() > limit + PAUSES {
                return false;
            }
            if begun.elapsed() > limit {
                self.call(r);
            }
            if !self.pauses(r) {
                self.group.sleep(
                    seen,
                    limit.saturating_sub(begun.elapsed()).clamp(LOOK_MIN, LOOK),
                );
            }
        }
        !self.disturbed()
    }

    fn digest(&self, r: usize) -> Option<[u64; 2]> {
        self.group.order(r, cmd::HASH, 0, ANSWER)?;
        Some([
            self.group.get64(at!(own r, hash)),
            self.group.get64(at!(own r, hash) + 8),
        ])
    }
}

/// Where no arena may come to lie.
fn taken(maps: &[procfs::Mapping]) -> Vec<Range<u64>> {
    let agent = abi::BASE..abi::AGENT_END;
    maps.iter()
        .map(|map| map.range.clone())
        .chain([agent])
        .collect()
}

const DESC_FOUND: u32 = 0xfb;
const DESC_YIELD: u32 = 0xf7;
const MOV_GS_RCX: [u8; 5] = [0x65, 0x48, 0x89, 0x0c, 0x25];
const MOV_RCX_GS: [u8; 5] = [0x65, 0x48, 0x8b, 0x0c, 0x25];
const LEA_RCX_LESS: [u8; 3] = [0x48, 0x8d, 0x49];
const JRCXZ: u8 = 0xe3;
const JMP: u8 = 0xe9;
const JMP_SHORT: u8 = 0xeb;
/// mov gs:[..], imm32; lea; jmp and its target.
const ENTER: usize = 12 + 7 + 6 + 8;

/// A load or store of rcx in the thread's page.
fn gs(out: &mut Vec<u8>, opcode: [u8; 5], at: u32) {
    out.extend(opcode);
    out.extend(at.to_le_bytes());
}

/// Enters the agent, which comes back to what follows.
fn enter(out: &mut Vec<u8>, desc: u32) {
    const MOV_GS_IMM: [u8; 4] = [0x65, 0xc7, 0x04, 0x25];
    const LEA_RCX_RIP: [u8; 3] = [0x48, 0x8d, 0x0d];
    const JMP_RIP: [u8; 2] = [0xff, 0x25];
    out.extend(MOV_GS_IMM);
    out.extend(abi::tls::DESC.to_le_bytes());
    out.extend(desc.to_le_bytes());
    out.extend(LEA_RCX_RIP);
    out.extend(14_u32.to_le_bytes());
    out.extend(JMP_RIP);
    out.extend(0_u32.to_le_bytes());
    out.extend(abi::ENTRY_ENTROPY.to_le_bytes());
}

/// Keeps the program's rcx, and takes one from the budget, which is in rcx then.
fn count(out: &mut Vec<u8>) {
    gs(out, MOV_GS_RCX, abi::tls::RCX);
    gs(out, MOV_RCX_GS, abi::tls::BUDGET);
    out.extend(LEA_RCX_LESS);
    out.push(0xff);
    gs(out, MOV_GS_RCX, abi::tls::BUDGET);
}

/// Before an instruction that may take a lock: counts, and enters the agent where the budget is used up, or where the running thread is to
/// give way at this lock (thread.c, `aims`).
fn lock_payload(number: u32) -> Vec<u8> {
    /// mov, lea, jrcxz, mov, jmp.
    const PAST: u8 = 9 + 4 + 2 + 9 + 2;
    let one_more = i8::try_from(number + 1).expect("numbers are below 64");
    let mut out = Vec::new();
    count(&mut out);
    out.extend([JRCXZ, PAST]);
    gs(&mut out, MOV_RCX_GS, abi::tls::AIM);
    out.extend(LEA_RCX_LESS);
    out.extend((-one_more).to_le_bytes());
    out.extend([JRCXZ, 9 + 2]);
    gs(&mut out, MOV_RCX_GS, abi::tls::RCX);
    out.extend([JMP_SHORT, u8::try_from(ENTER).expect("short")]);
    enter(&mut out, DESC_YIELD);
    out
}

/// Counts, and enters the agent where a thread's budget is used up (thread.c, `sf_threads_yield`), which comes back to what
/// follows. That passes on unless any state will do, or the registers are those that this replica looks for, all but rcx, which it
/// needs: flags stay as they are, and nothing is pushed. Then it enters the agent (align.c, `sf_found`).
fn payload(number: u32) -> Vec<u8> {
    /// Registers as the processor numbers them, with their places in `struct sf_regs`; those that change most often first.
    const REGISTERS: [(u8, u32); 15] = [
        (0, 10),
        (2, 12),
        (6, 13),
        (7, 14),
        (8, 9),
        (9, 8),
        (10, 7),
        (11, 6),
        (3, 5),
        (5, 4),
        (12, 3),
        (13, 2),
        (14, 1),
        (15, 0),
        (4, 15),
    ];
    /// mov, lea, jrcxz; mov, jmp.
    const BLOCK: usize = 9 + 5 + 2 + GO_ON;
    const GO_ON: usize = 9 + 5;

    let rel = |bytes: usize| u32::try_from(bytes).expect("short").to_le_bytes();
    let mut out = Vec::new();
    count(&mut out);
    out.extend([JRCXZ, 2, JMP_SHORT, u8::try_from(ENTER + 9).expect("short")]);
    enter(&mut out, DESC_YIELD);
    gs(&mut out, MOV_GS_RCX, abi::tls::RCX);
    gs(&mut out, MOV_RCX_GS, abi::tls::SEEK_ANY);
    out.extend([JRCXZ, 5, JMP]);
    out.extend(rel(REGISTERS.len() * BLOCK));
    for (i, (number, place)) in REGISTERS.into_iter().enumerate() {
        gs(&mut out, MOV_RCX_GS, abi::tls::SEEK_LESS + 8 * place);
        // lea rcx, [register + rcx]
        out.extend([0x48 | number >> 3, 0x8d, 0x4c, 0x08 | number & 7, 0]);
        out.extend([JRCXZ, u8::try_from(GO_ON).expect("short")]);
        gs(&mut out, MOV_RCX_GS, abi::tls::RCX);
        out.push(JMP);
        out.extend(rel((REGISTERS.len() - 1 - i) * BLOCK + ENTER));
    }
    enter(&mut out, DESC_FOUND | number << 8);
    out
}

#[cfg(test)]
mod tests {
    use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};

    use super::*;

    fn decoded() -> Vec<Instruction> {
        instructions(&payload(3))
    }

    fn instructions(code: &[u8]) -> Vec<Instruction> {
        let mut list = Vec::new();
        let mut at = 0;
        while at < code.len() {
            let insn = Decoder::with_ip(64, &code[at..], at as u64, DecoderOptions::NONE).decode();
            assert!(!insn.is_invalid(), "{at:#x}");
            at += insn.len();
            // Behind the jump into the agent stands its target.
            at += if insn.code() == Code::Jmp_rm64 { 8 } else { 0 };
            list.push(insn);
        }
        assert_eq!(at, code.len());
        list
    }

    #[test]
    fn whatever_differs_gives_rcx_back_and_leads_to_the_end() {
        let (list, end) = (decoded(), payload(3).len() as u64);
        let jumps: Vec<_> = (0..list.len())
            .filter(|i| list[*i].code() == Code::Jmp_rel32_64)
            .collect();
        assert_eq!(jumps.len(), 16);
        // The first one is for any state, and leads to the way in.
        let enters = list
            .iter()
            .position(|insn| insn.ip() == list[jumps[0]].near_branch_target())
            .expect("an instruction");
        assert_eq!(list[enters].code(), Code::Mov_rm32_imm32);
        for jump in jumps.into_iter().skip(1) {
            assert_eq!(list[jump].near_branch_target(), end);
            assert_eq!(
                (
                    list[jump - 1].op0_register(),
                    list[jump - 1].memory_displacement64()
                ),
                (Register::RCX, 0)
            );
        }
        // What is equal leads past such a jump.
        for equal in list
            .iter()
            .filter(|insn| insn.code() == Code::Jrcxz_rel8_64)
            .skip(1)
        {
            let to = list
                .iter()
                .position(|insn| insn.ip() == equal.near_branch_target())
                .expect("an instruction");
            assert_eq!(list[to - 1].code(), Code::Jmp_rel32_64);
        }
        // The agent goes back behind all of it.
        let resume = list
            .iter()
            .rfind(|insn| insn.is_ip_rel_memory_operand() && insn.code() == Code::Lea_r64_m);
        assert_eq!(resume.map(Instruction::ip_rel_memory_address), Some(end));
    }

    #[test]
    fn a_budget_that_is_used_up_enters_the_agent_and_what_follows_begins_with_its_own_rcx() {
        let list = decoded();
        let at = |address: u64| {
            list.iter()
                .position(|insn| insn.ip() == address)
                .expect("an instruction")
        };
        let counts = list
            .iter()
            .position(|insn| insn.code() == Code::Jrcxz_rel8_64)
            .expect("a look at the budget");
        assert_eq!(
            (
                list[counts - 2].code(),
                list[counts - 2].memory_displacement64()
            ),
            (Code::Lea_r64_m, u64::MAX)
        );
        assert_eq!(
            (
                list[counts - 1].memory_displacement64(),
                list[counts - 3].memory_displacement64()
            ),
            (112, 112)
        );
        let enters = at(list[counts].near_branch_target());
        assert_eq!(
            (
                list[enters].memory_displacement64(),
                list[enters].immediate32()
            ),
            (8, 0xf7)
        );
        // From the agent rcx comes back as the program's, past it as what it is in the page.
        let back = at(list[enters + 1].ip_rel_memory_address());
        assert_eq!(
            (list[back].code(), list[back].memory_displacement64()),
            (Code::Mov_rm64_r64, 0)
        );
        assert_eq!(list[counts + 1].near_branch_target(), list[back + 1].ip());
    }

    #[test]
    fn a_lock_enters_the_agent_by_its_number_or_with_the_budget_and_gives_rcx_back_else() {
        for number in [0, 63] {
            let code = lock_payload(number);
            let list = instructions(&code);
            let at = |address: u64| list.iter().position(|insn| insn.ip() == address);
            let looks: Vec<_> = (0..list.len())
                .filter(|i| list[*i].code() == Code::Jrcxz_rel8_64)
                .collect();
            let enters = at(list[looks[0]].near_branch_target()).expect("an instruction");
            assert_eq!(list[enters].immediate32(), 0xf7);
            assert_eq!(
                (looks.len(), at(list[looks[1]].near_branch_target())),
                (2, Some(enters))
            );
            let places = [looks[0] - 1, looks[1] - 2].map(|i| list[i].memory_displacement64());
            assert_eq!(places, [112, 120]);
            let less = list[looks[1] - 1].memory_displacement64();
            assert_eq!(less.wrapping_add(u64::from(number) + 1), 0);
            // The way past.
            let past = &list[enters - 2..enters];
            assert_eq!(
                (past[0].op0_register(), past[0].memory_displacement64()),
                (Register::RCX, 0)
            );
            let end = code.len() as u64;
            assert_eq!(past[1].near_branch_target(), end);
            assert_eq!(list[enters + 1].ip_rel_memory_address(), end);
            assert!(list.iter().all(|insn| insn.rflags_modified() == 0));
        }
    }

    #[test]
    fn every_register_but_rcx_is_compared_once_and_nothing_else_is_touched() {
        let list = decoded();
        let compared = list
            .iter()
            .filter(|insn| insn.code() == Code::Lea_r64_m && insn.memory_index() != Register::None);
        let mut seen: Vec<_> = compared
            .inspect(|insn| assert_eq!(insn.memory_index(), Register::RCX))
            .map(Instruction::memory_base)
            .collect();
        seen.sort_by_key(|register| register.number());
        let all = (0..16)
            .filter(|number| *number != 1)
            .map(|number| Register::RAX + number);
        assert!(seen.into_iter().eq(all));
        for insn in &list {
            let branches = insn.flow_control() != FlowControl::Next;
            let to_rcx =
                insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RCX;
            let to_page =
                insn.op0_kind() == OpKind::Memory && insn.memory_segment() == Register::GS;
            assert!(branches || to_rcx || to_page, "{insn}");
            assert_eq!(insn.rflags_modified(), 0, "{insn}");
        }
    }
}
