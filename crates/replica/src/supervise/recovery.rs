//! Recovery: from an alarm to a group that agrees again, or to a stop.
//!
//! ```text
//!   alarm ──► everybody pauses at the disputed event, or is dead, or hangs
//!         ──► each paused replica counts the claims and names losers
//!         ──► losers are killed and made again as copies of the leader ──┐ somebody died meanwhile:
//!         ──► rings cleared, alarm off, all start the event again        └──► from the top, without those yet unmade
//! ```
//!
//! A copy counts when its donor lived after the last byte was read, and both digest to the same.
//!
//! The verdict is the replicas' count (log.c, `vote`); a majority of counts is carried out.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use steadfast_contract::event::{
    Cause, CoreSuspect, Difference, Divergence, Judgement, LogCheck, Recovery, RecoveryAction,
    Role, SuspectAction, Vote, What,
};
use steadfast_contract::plan::StopReason;
use steadfast_fault::ids::{EventIndex, GuestAddr, Site};
use steadfast_sys::memory::Remote;
use steadfast_sys::{child, cpu, descriptor, procfs, signals};

use crate::abi::{self, alarm, cmd, kind, phase};
use crate::group::{Claim, at, core_id, id, ns};
use crate::pace::{Finding, Late, Look, Pace, SECOND_NS};
use crate::supervise::tree::Fate;
use crate::supervise::{Supervisor, WATCH};
use crate::transplant::{self, remap_list, transplanted};

/// A paused replica answers a command at once; this is long enough for a loaded machine and a
/// copy of a large address space.
pub(crate) const ANSWER: Duration = Duration::from_secs(20);
/// A core that loses this often is avoided: once is a particle, twice is a pattern.
const STRIKES: u32 = 2;

/// One event may be disputed anew by another fault, and a damaged record read twice; more
/// than this is a repair that does not repair.
const REPEATS_MAX: u32 = 4;

/// Deaths in the course of one repair, each of which begins it again; more is somebody who kills faster than can be mended.
const LOSSES_MAX: u32 = 8;

/// A leader that has burned this much between two repairs was not held up by what the first one was to mend: starting an
/// event again takes microseconds, and a memory check of some hundred MiB as long as this.
const PROGRESS_NS: u64 = 200_000_000;

/// What the watchdog and recovery remember between looks.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    repaired_at: u64,
    /// When a child is next asked for its parent, and whether it was made to leave a keeper behind.
    looks_at: Duration,
    asked_to_keep: bool,
    /// The leader's process and what it had burned then.
    burned: (i32, u64),
    repeats: u32,
    pub(crate) pace: Pace,
    looked: Option<Instant>,
    /// The event and the CPU time of each at the last look, and looks since one that read more of them.
    glance: Vec<(u64, u64)>,
    glances: u32,
    /// Who hangs, or is in doubt, as it was found last.
    found: Option<Finding>,
    /// Who hangs by the alarm that was raised last.
    accused: Option<usize>,
    /// Losers that are yet to be made again, because somebody died during that, as they were found.
    unmade: BTreeMap<usize, Standing>,
    /// The leader is a new process that holds no whole copy of anybody yet.
    hollow: bool,
    /// A follower that was being made died before it stood.
    stillborn: bool,
    /// Where everybody was at the last look, and the CPU time of each.
    still: Vec<u64>,
    still_burned: Vec<u64>,
    /// Looks in a row, without anybody having moved, at which all waited in the log, and at which
    /// this replica alone did not wait there: asleep, and at work.
    still_looks: u32,
    asleep: (usize, u32),
    at_work: Option<(usize, u64)>,
}

/// Looks (every 100 ms) at which all have to wait for each other before that is a standstill: a
/// hand-over takes microseconds, and milliseconds where cores are short.
const STILL_LOOKS: u32 = 10;
/// A tenth of the time between two looks.
const GLANCE_NS: u64 = 10_000_000;
/// CPU time between two looks below which a replica does not compute: a hundredth of it. Two wakings of who waits in the log take 0.04 ms.
const MOMENT_NS: u64 = 1_000_000;
/// The same for a replica that sleeps where no claim of it says so.
const STRAY_LOOKS: u32 = 20;
/// What the agent may compute between a claim and its result while all others wait for that: copies
/// and sums of 128 MiB take a tenth of it.
const BUSY_NS: u64 = 3_000_000_000;
/// A bell that rings is answered at once; whoever sleeps on for so long will not answer.
pub(crate) const DEAF: Duration = Duration::from_secs(1);

/// How often a child is asked whether its parent has ended.
const ORPHANED: Duration = Duration::from_millis(300);
/// One that hangs, and can be called at all, pauses within so much CPU time.
const CALLED: Duration = Duration::from_millis(50);
const CALLED_LOOK: Duration = Duration::from_millis(5);
/// From this process SIGSYS makes the leader look at the alarm, and replicas pause that are to meet (signal.c, `IS_NUDGE`).
pub(crate) const NUDGE: i32 = libc::SIGSYS;

/// Where a replica stands when everybody should be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Paused,
    Died(child::Change),
    Hung { cpu_ns: u64, limit_ns: u64 },
}

impl Standing {
    fn hung(late: Late) -> Self {
        Self::Hung {
            cpu_ns: late.cpu_ns,
            limit_ns: late.limit_ns,
        }
    }
}

impl Supervisor<'_> {
    /// How a replica ended, if it did. A follower's end is known to its namespace's init, which
    /// passes on what wait(2) told it.
    pub(crate) fn died(&self, r: usize) -> Option<child::Change> {
        let change = self.gone.get(&self.replicas[r].child).copied()?;
        let status = self.group.get32(at!(seen r, exit_status)).cast_signed();
        let init = r > 0 && self.replicas[r].pid != self.replicas[r].child;
        Some(if init && libc::WIFSIGNALED(status) {
            child::Change::Signaled(libc::WTERMSIG(status))
        } else {
            change
        })
    }

    /// A replica that is gone without the program having ended raises the alarm.
    pub(crate) fn look_for_the_dead(&mut self) {
        for r in 0..self.replicas.len() {
            if self.died(r).is_some() {
                self.raise(alarm::DIED, r);
                return;
            }
        }
    }

    /// Nobody else can make a leader anew: everybody pauses until there is a keeper again.
    pub(crate) fn look_for_the_keeper(&mut self) {
        let lost = self.keeper != 0 && self.gone.contains_key(&self.keeper);
        if lost {
            self.keeper = 0;
            self.group.set_pid(abi::KEEPER, 0);
            self.group.set32(at!(slot abi::KEEPER, phase), 0);
        }
        if lost || self.lacks_a_keeper() {
            self.raise(alarm::REQUEST, 0);
        }
    }

    /// Whether this is a child that could be made again if it had a keeper. Looked at now and then, and asked for once: who cannot make one now cannot later.
    fn lacks_a_keeper(&mut self) -> bool {
        let since = self.stands_since.elapsed();
        if !self.is_child()
            || self.keeper != 0
            || self.watch.asked_to_keep
            || since < self.watch.looks_at
        {
            return false;
        }
        self.watch.looks_at = since + ORPHANED;
        self.watch.asked_to_keep = since > ORPHANED && self.may_have_a_keeper();
        self.watch.asked_to_keep
    }

    /// The leader of a child stays its parent's, where this process is its parent, or that one can have a proxy for it.
    fn may_have_a_keeper(&self) -> bool {
        let own = i32::try_from(std::process::id()).ok();
        let is_ours = || procfs::parent(self.replicas[0].pid) == own;
        let alone = self.acting() == self.replicas[0].pid && !self.has_lost_the_domain();
        !self.is_child() || self.replicas.len() > 1 && alone && (is_ours() || self.can_be_a_ward())
    }

    fn raise(&mut self, why: u32, r: usize) {
        self.watch.accused = (why == alarm::HUNG).then_some(r);
        let from = match (why, r) {
            (alarm::DIED, 0) if self.shares_memory() => self.behind_the_dead_leader(),
            _ => 0,
        };
        self.group.set64(at!(alarm_seq), from);
        self.group
            .set32(at!(alarm_slot), u32::try_from(r).expect("few replicas"));
        self.group.set32(at!(alarm), why);
        for r in 0..self.replicas.len() {
            self.group.ring(r);
        }
        self.nudge();
        self.group.ring_launcher();
    }

    /// Makes a leader that sleeps in the kernel look at the alarm.
    fn nudge(&self) {
        if self.leader_end.is_none() {
            child::kill(self.acting(), NUDGE);
        }
    }

    /// A replica that burns far more than another one needed between the same two events hangs (pace.rs).
    /// Other things have the launcher look about more often.
    pub(crate) fn look_for_the_hung(&mut self) {
        let looked = self.watch.looked.map(|at| at.elapsed());
        if looked.is_some_and(|since| since < WATCH) {
            return;
        }
        self.watch.looked = Some(Instant::now());
        if self.all_have_moved() {
            return;
        }
        let n = self.replicas.len();
        let place: Vec<u64> = (0..n).map(|r| self.group.get64(at!(own r, next))).collect();
        let mut looks = Vec::with_capacity(n);
        for r in 0..n {
            let pid = self.process_of(r);
            let cpu_ns = procfs::burned_ns(pid);
            // Job control stops the leader, and the others through us: a follower that was
            // stopped alone burns nothing and would never hang by the rule below.
            if cpu_ns.is_some() && r > 0 && procfs::is_stopped(pid) {
                child::kill(pid, libc::SIGCONT);
            }
            let place = self.come_to(r);
            looks.push(cpu_ns.map(|cpu_ns| Look { pid, place, cpu_ns }));
        }
        self.note_efforts(&looks);
        let Some(found) = self.watch.pace.look(&looks) else {
            let burned = looks
                .iter()
                .map(|look| look.as_ref().map_or(0, |look| look.cpu_ns));
            return self.look_for_a_standstill(place, burned.collect());
        };
        self.watch.pace.clear();
        match &found {
            Finding::Hung(late) => self.raise(alarm::HUNG, late.replica),
            Finding::Doubt { .. } | Finding::Apart { .. } => self.raise(alarm::REQUEST, 0),
        }
        self.watch.found = Some(found);
    }

    /// Replicas that were to meet differ.
    pub(super) fn are_apart(&mut self, late: Late, lost: bool) {
        self.watch.found = Some(Finding::Apart { late, lost });
        self.raise(alarm::REQUEST, 0);
    }

    /// Whether every replica has come to events since the last look, and hardly computed: none of them hangs. What events need
    /// is known from looks that read more, so each tenth does.
    fn all_have_moved(&mut self) -> bool {
        let now: Vec<_> = (0..self.replicas.len())
            .map_while(|r| {
                let used = cpu::process_time_ns(self.process_of(r))?;
                Some((self.group.get64(at!(own r, next)), used))
            })
            .collect();
        let before = std::mem::replace(&mut self.watch.glance, now);
        let moved = before.len() == self.replicas.len()
            && before.len() == self.watch.glance.len()
            && before.iter().zip(&self.watch.glance).all(|(before, now)| {
                now.0 > before.0 && now.1.saturating_sub(before.1) < GLANCE_NS
            });
        self.watch.glances = match moved {
            true => (self.watch.glances + 1) % 10,
            false => 0,
        };
        let moved = self.watch.glances > 0;
        if moved {
            self.watch.still_looks = 0;
        }
        moved
    }

    /// The event that a slot has come to last. One that has just been made stands before the event that its word names,
    /// and has not come to it.
    pub(crate) fn come_to(&self, slot: usize) -> u64 {
        let place = self.group.get64(at!(own slot, next));
        place - u64::from(place > 0 && self.group.claim(slot, place).is_none())
    }

    /// Everybody waits for somebody in the log and nobody comes: what one of them waits for, or
    /// the waiter, is damaged. All start their events again; who cannot is given up.
    fn look_for_a_standstill(&mut self, place: Vec<u64>, burned: Vec<u64>) {
        let n = self.replicas.len();
        let moved = self.watch.still != place;
        let awake: Vec<usize> = (0..n)
            .filter(|&r| !self.waits_in_the_log(r) && !self.wakes_for_a_moment(r, burned[r]))
            .collect();
        let waits = n > 1 && !moved && awake.is_empty();
        self.watch.still_looks = if waits { self.watch.still_looks + 1 } else { 0 };
        if self.watch.still_looks > STILL_LOOKS {
            self.watch.still_looks = 0;
            self.raise(alarm::REQUEST, 0);
        }
        match awake[..] {
            [r] if n > 1 && !moved => self.look_at_the_last(r, place[r]),
            _ => {
                self.watch.asleep = (0, 0);
                self.watch.at_work = None;
            }
        }
        self.watch.still = place;
        self.watch.still_burned = burned;
    }

    /// Who waits in the log looks around many times a second, and may do so whenever the launcher looks. One that gets no
    /// processor at all burns nothing, and is not meant.
    fn wakes_for_a_moment(&self, r: usize, burned: u64) -> bool {
        let before = self.watch.still_burned.get(r).copied().unwrap_or(0);
        procfs::runs(self.process_of(r)) && is_a_moment(burned.saturating_sub(before))
    }

    /// All others wait for this one. It may be in the call that all have claimed, or compute on; it
    /// hangs if it sleeps anywhere else, or if it works on in an event that it has claimed.
    fn look_at_the_last(&mut self, r: usize, place: u64) {
        let pid = self.process_of(r);
        let claimed = |nr: u32| {
            // A write-back makes several calls. A file is looked at before it is opened, and a child before it is reaped.
            let before = [libc::SYS_openat, libc::SYS_waitid].contains(&i64::from(nr));
            let of = |claim: Claim| claim.nr == nr || claim.kind != kind::SYSCALL || before;
            (0..self.replicas.len()).any(|r| self.group.claim(r, place).is_some_and(of))
        };
        let in_turn = procfs::waits_on(pid, &(abi::DOMAIN..abi::DOMAIN + 4096));
        let stray = !in_turn
            && procfs::sleeps(pid)
            && procfs::sleeps_in(pid).is_some_and(|nr| r > 0 || !claimed(nr));
        let (who, looks) = self.watch.asleep;
        self.watch.asleep = (
            r,
            if stray {
                if who == r { looks + 1 } else { 1 }
            } else {
                0
            },
        );
        // Time in the kernel is the call's: its results may be large.
        let user = procfs::times(pid).map_or(0, |(user, _)| user);
        let in_event = self.group.claim(r, place).is_some() && !self.is_done(r, place);
        let since = match self.watch.at_work {
            Some((of, since)) if in_event && of == r => since,
            _ => user,
        };
        self.watch.at_work = in_event.then_some((r, since));
        if self.watch.asleep.1 > STRAY_LOOKS || user.saturating_sub(since) > BUSY_NS {
            self.watch.asleep = (0, 0);
            self.watch.at_work = None;
            self.raise(alarm::HUNG, r);
        }
    }

    /// Whether a replica is through with an event: the leader has published its result, a follower has
    /// taken it.
    fn is_done(&self, r: usize, seq: u64) -> bool {
        if r > 0 {
            return self.group.get64(at!(own r, done)) > seq;
        }
        self.group.published(self.group.get64(at!(base)), seq)
    }

    fn waits_in_the_log(&self, r: usize) -> bool {
        procfs::waits_on(
            self.process_of(r),
            &(abi::SHARED..abi::SHARED + abi::SHARED_BYTES as u64),
        )
    }

    /// Waits until every replica is paused or known to be out.
    fn gather(&mut self) -> Vec<Standing> {
        let n = self.replicas.len();
        let start: Vec<u64> = (0..n)
            .map(|r| procfs::burned_ns(self.process_of(r)).unwrap_or(0))
            .collect();
        // Of shared memory this is not believed: a stray store of one replica would be the end of another.
        let hung_slot = self.watch.accused;
        let mut standing: Vec<Option<Standing>> = vec![None; n];
        let mut silence = Instant::now();
        // An event that nobody is near was struck on its way here: it would be waited for in vain.
        let furthest = (0..n)
            .map(|r| self.group.get64(at!(own r, next)))
            .max()
            .unwrap_or(0);
        if self.group.get64(at!(alarm_seq)) > furthest + 1 {
            self.group.set64(at!(alarm_seq), 0);
            (0..n).for_each(|r| self.group.ring(r));
        }
        loop {
            let seen = self.group.bell();
            self.take_news();
            // The leader may wait for an answer, and was not nudged by a follower's alarm.
            self.answer_request();
            // It has left this program behind, and the others with it.
            if self.has_become_another() {
                return Vec::new();
            }
            // Looked at before it is nudged again: a nudge wakes also who goes back to sleep at once.
            let asleep = (0..n)
                .filter(|r| standing[*r].is_none())
                .all(|r| procfs::sleeps(self.process_of(r)));
            if standing[0].is_none() {
                self.nudge();
            }
            self.call_those_who_have_their_turn();
            // Nobody's claim is asked for: who computes may pause where it is.
            if self.group.get64(at!(alarm_seq)) == 0 {
                for r in (1..n).filter(|r| standing[*r].is_none()) {
                    self.signal_replica(r, NUDGE);
                }
            }
            for (r, one) in standing
                .iter_mut()
                .enumerate()
                .filter(|(_, one)| one.is_none())
            {
                if r > 0 && procfs::is_stopped(self.replicas[r].pid) {
                    child::kill(self.replicas[r].pid, libc::SIGCONT);
                }
                if let Some(standing) = self.watch.unmade.get(&r) {
                    *one = Some(*standing);
                } else if let Some(change) = self.died(r) {
                    *one = Some(Standing::Died(change));
                } else if hung_slot == Some(r) {
                    // Called out of its loop it may pause now; it has lost all the same.
                    *one = Some(match self.watch.found {
                        Some(Finding::Hung(late)) if late.replica == r => Standing::hung(late),
                        _ => Standing::Hung {
                            cpu_ns: 0,
                            limit_ns: 0,
                        },
                    });
                } else if self.group.phase(r) == phase::PAUSED && !self.is_going(r) {
                    *one = Some(Standing::Paused);
                }
            }
            if standing.iter().all(Option::is_some) {
                return standing.into_iter().flatten().collect();
            }
            // The leader's call ends when it is nudged: who sleeps on does not hear.
            if !asleep {
                silence = Instant::now();
            } else if silence.elapsed() > DEAF {
                for one in &mut standing {
                    one.get_or_insert(Standing::Hung {
                        cpu_ns: 0,
                        limit_ns: 0,
                    });
                }
                continue;
            }
            let paused = standing.iter().flatten().count();
            for (r, one) in standing
                .iter_mut()
                .enumerate()
                .filter(|(_, one)| one.is_none())
            {
                // The others wait: a straggler may burn twice as much as in the run so far, at least a
                // second, before it is given up. Who is late already has only to pause.
                let now = procfs::burned_ns(self.process_of(r)).unwrap_or(0);
                let late = matches!(&self.watch.found, Some(Finding::Doubt { late, .. }) if late.iter().any(|late| late.replica == r));
                let limit_ns = if late {
                    SECOND_NS
                } else {
                    (2 * start[r]).max(SECOND_NS)
                };
                if paused > 0 && now.saturating_sub(start[r]) > limit_ns {
                    *one = Some(Standing::Hung {
                        cpu_ns: now - start[r],
                        limit_ns,
                    });
                }
            }
            self.group.sleep(seen, Duration::from_millis(5));
        }
    }

    /// Whose place nobody can have come to: farther ahead than the rings allow, behind an event whose
    /// result does not exist. The count of events of such a replica was struck.
    fn out_of_reach(&self, paused: &[usize]) -> u32 {
        let place = |r: &usize| self.group.get64(at!(own * r, again));
        let base = self.group.get64(at!(base));
        let Some(last) = paused.iter().map(place).min() else {
            return 0;
        };
        let impossible =
            |at: u64| at > last + abi::RING as u64 && !self.group.published(base, at - 1);
        paused
            .iter()
            .filter(|r| impossible(place(r)))
            .map(|r| 1 << r)
            .sum()
    }

    /// Everything between an alarm and the next instruction of the program.
    pub(crate) fn recover(&mut self) {
        let settled = (0..LOSSES_MAX).any(|_| {
            let settled = self.settle();
            self.watch.accused = None;
            settled
        });
        if !settled {
            self.give_up(StopReason::Unrecoverable, Instant::now());
        }
        self.watch.unmade.clear();
        self.watch.hollow = false;
    }

    /// Whether a replica is dying or dead, reaped or not: what is read of its memory means nothing.
    pub(crate) fn is_going(&self, r: usize) -> bool {
        let pid = self.replicas[r].pid;
        pid > 1 && (procfs::has_ended(pid) || procfs::has_no_memory(pid))
    }

    /// One attempt at everything; `false`: somebody died in it, and what is left of the group begins again.
    fn settle(&mut self) -> bool {
        let begun = Instant::now();
        self.divergences += 1;
        self.mend_constants();
        let standing = self.gather();
        let found = self.watch.found.take();
        if self.has_become_another() {
            self.divergences -= 1;
            return true;
        }
        // The program had ended, agreed on by all, before whoever raised this was struck.
        if self.leader_end.is_some()
            && matches!(self.group.end(), abi::end::EXITED | abi::end::SIGNALED)
        {
            self.divergences -= 1;
            self.group.set32(at!(alarm), alarm::QUIET);
            return true;
        }
        if self.leader_end.is_some()
            && standing
                .iter()
                .all(|one| *one == Standing::Died(child::Change::Signaled(libc::SIGKILL)))
        {
            self.divergences -= 1;
            self.killed = true;
            self.group.set32(at!(alarm), alarm::QUIET);
            return true;
        }
        // A child that was killed before it could be made again has ended, as bare.
        if self.is_child() && self.leader_end.is_some() && !self.is_kept() {
            self.divergences -= 1;
            self.group.set32(at!(alarm), alarm::QUIET);
            return true;
        }
        self.mend_agents(&standing);
        if self.keeper == 0 && standing[0] == Standing::Paused && self.may_have_a_keeper() {
            // It was killed alone, or there was none. Made now, it is ready before the leader needs it.
            self.group.order(0, cmd::KEEPER, 0, ANSWER);
            self.adopt_keeper();
            if self.keeper != 0 {
                self.becomes_a_ward();
            }
            if self.keeper != 0 && self.ward.is_none() {
                self.hearing.tree.keeps(self.hearing.post());
            }
        }
        let n = self.replicas.len();
        let apart = match found {
            Some(Finding::Apart { late, lost }) if paused_all(&standing) => Some((late, lost)),
            _ => None,
        };
        let doubt = self.doubt(found, &standing);
        let seq = self.group.get64(at!(alarm_seq));
        let all = (1_u32 << n) - 1;
        // A repair that leads to the same event again is none: stop rather than try for ever.
        let again = self.group.get64(at!(own 0, next));
        // Computing on since the last one is progress as well.
        let leader = self.replicas[0].pid;
        let burned = procfs::burned_ns(leader).unwrap_or(0);
        let (repaired, before) = self.watch.burned;
        let went_on =
            burned.saturating_sub(if repaired == leader { before } else { 0 }) > PROGRESS_NS;
        self.watch.repeats = if self.watch.repaired_at == again && !went_on {
            self.watch.repeats + 1
        } else {
            0
        };
        self.watch.repaired_at = again;
        self.watch.burned = (leader, burned);
        if self.watch.repeats > REPEATS_MAX + LOSSES_MAX * u32::from(!self.watch.unmade.is_empty())
        {
            return self.gives_up(StopReason::Unrecoverable, begun);
        }
        let paused: Vec<usize> = (0..n)
            .filter(|r| standing[*r] == Standing::Paused)
            .collect();
        let absent: u32 = (0..n)
            .filter(|r| standing[*r] != Standing::Paused)
            .map(|r| 1 << r)
            .sum();
        let absent = absent
            | self.out_of_reach(&paused)
            | self.watch.unmade.keys().map(|r| 1 << r).sum::<u32>();

        let decided = match apart {
            Some((late, true)) => Some((1 << late.replica, None)),
            Some((_, false)) => Some((all, None)),
            None => self.decide(seq, &paused, absent, &doubt),
        };
        let Some((losers, reran)) = decided else {
            self.divergences -= 1;
            self.resume();
            return true;
        };
        // For the report: where it pauses now it can be put right all the same.
        let mut found = standing.clone();
        for late in doubt
            .iter()
            .filter(|late| losers != all && losers & 1 << late.replica != 0)
        {
            found[late.replica] = Standing::hung(*late);
        }
        if let Some((late, _)) = apart {
            found[late.replica] = Standing::hung(late);
        }
        let claims: Vec<Option<Claim>> = (0..n).map(|r| self.group.claim(r, seq)).collect();
        let judgement = if losers == all {
            Judgement::Unresolvable
        } else {
            Judgement::Blamed(id(losers.trailing_zeros() as usize))
        };
        self.tell(&found, &claims, seq, losers, judgement);

        if !self.recovers() {
            return self.gives_up(StopReason::Mismatch, begun);
        }
        if self.shares_memory() && !self.can_be_mended(&standing, losers) {
            return self.gives_up(StopReason::Shared, begun);
        }
        // Of those who are right the one that has seen most: what the leader did is in its past,
        // and must not be done again.
        let ahead = |r: &usize| (self.group.get64(at!(own * r, again)), std::cmp::Reverse(*r));
        let Some(winner) = (0..n).filter(|r| losers & 1 << r == 0).max_by_key(ahead) else {
            return self.gives_up(StopReason::Unrecoverable, begun);
        };
        let losers: Vec<usize> = (0..n).filter(|r| losers & 1 << r != 0).collect();
        for (index, r) in losers.iter().copied().enumerate() {
            if self.make_anew(
                r,
                winner,
                standing[r],
                &found[r],
                reran.map(|events| (seq, events)),
                begun,
            ) {
                self.watch.unmade.remove(&r);
                continue;
            }
            // The donor has died, or the copy: whoever is left begins again.
            let (donor, copy) = if r == 0 {
                (winner, self.watch.hollow && self.is_going(0))
            } else {
                (0, self.watch.stillborn)
            };
            if !copy && !self.is_going(donor) {
                let why = if self.shares_memory() {
                    StopReason::Shared
                } else {
                    StopReason::Unrecoverable
                };
                return self.gives_up(why, begun);
            }
            for other in &losers[index..] {
                self.watch.unmade.insert(*other, found[*other]);
            }
            return false;
        }
        self.resume();
        let pause = begun.elapsed();
        self.pause_max = Some(self.pause_max.map_or(pause, |max| max.max(pause)));
        true
    }

    fn gives_up(&mut self, why: StopReason, begun: Instant) -> bool {
        self.give_up(why, begun);
        true
    }

    /// Who is late at an event that others have come to, if that is in doubt: everybody counts who is there and who is
    /// not. Who has come meanwhile, to the same end, was slow.
    fn doubt(&self, found: Option<Finding>, standing: &[Standing]) -> Vec<Late> {
        let Some(Finding::Doubt { place, late }) = found else {
            return Vec::new();
        };
        let ours = self.group.get32(at!(alarm)) == alarm::REQUEST && paused_all(standing);
        if !ours {
            return Vec::new();
        }
        self.group.set64(at!(alarm_seq), place + 1);
        late.into_iter()
            .filter(|late| self.group.claim(late.replica, place + 1).is_none())
            .collect()
    }

    /// Who has lost, as a set, and how many events were run again to know it; nothing when everybody agrees
    /// after all.
    fn decide(
        &mut self,
        seq: u64,
        paused: &[usize],
        absent: u32,
        doubt: &[Late],
    ) -> Option<(u32, Option<u64>)> {
        let n = self.replicas.len();
        let all = (1_u32 << n) - 1;
        let mut reran = None;
        // An alarm about an event at which nobody stands is none: its words were struck.
        let at_it = |r: &usize| {
            self.group.get64(at!(own * r, next)) <= seq && self.group.claim(*r, seq).is_some()
        };
        let disputed = paused.iter().any(at_it);
        let standstill = doubt.is_empty() && self.group.get32(at!(alarm)) == alarm::REQUEST
            || absent == 0 && !disputed;
        let reader = self.group.get32(at!(alarm_slot));
        let follower = (1..n).any(|r| u32::try_from(r) == Ok(reader));
        let damaged =
            self.group.get32(at!(alarm)) == alarm::LOG && self.watch.repeats > 0 && follower;
        let losers = if absent != 0 {
            // Who is gone or hangs has lost, whatever the others think of each other; they
            // meet again at the event and vote then.
            absent
        } else if standstill {
            0
        } else {
            let counted = self.count(paused);
            if counted == all && n == 2 && self.recovers() && !self.shares_memory() {
                let (losers, events) =
                    self.replay_vote(seq, paused, doubt.first().map(|late| late.limit_ns));
                reran = Some(events);
                losers
            } else {
                counted
            }
        };
        let losers = match losers {
            // Everybody agrees, and one cannot read what the leader wrote and will not write
            // again: it becomes what those are who have read it.
            0 if damaged => 1 << reader,
            // They came to a standstill at the same place again: what one of them waits for does
            // not exist. All become what the leader is, who has acted for all so far.
            0 if standstill && n > 1 && self.watch.repeats > 0 => all & !1,
            // Everybody agrees after all: a record was damaged on its way to one reader, and
            // its owner is about to write it again.
            0 => return None,
            losers => losers,
        };
        Some((losers, reran))
    }

    /// Makes a loser again, and says so; `reran` is the event that was disputed and how many were run
    /// again for it. Whether it worked.
    fn make_anew(
        &mut self,
        r: usize,
        winner: usize,
        standing: Standing,
        found: &Standing,
        reran: Option<(u64, u64)>,
        begun: Instant,
    ) -> bool {
        let cause = match found {
            Standing::Paused => Cause::Outvoted,
            Standing::Died(child::Change::Signaled(signal)) => Cause::Killed(*signal),
            Standing::Died(_) => Cause::Killed(0),
            Standing::Hung { .. } => Cause::Hung,
        };
        let core = self.replicas[r].core;
        // The leader first (it is the lowest): followers are then made again from it.
        let repaired = if r == 0 {
            self.replace_leader(winner, standing)
        } else if self.shares_memory() && !matches!(standing, Standing::Died(_)) {
            self.overwrite(r, 0).unwrap_or(false)
        } else {
            self.replace(r)
        };
        if !repaired {
            return false;
        }
        self.recoveries += 1;
        let action = match reran {
            Some((seq, events)) => RecoveryAction::RolledBack {
                to: EventIndex(self.event(seq).0.saturating_sub(events)),
                reran: events,
            },
            None if r == 0 => RecoveryAction::Reforked { from: id(winner) },
            None => RecoveryAction::Reforked { from: id(0) },
        };
        let recovery = Recovery {
            divergence: self.divergences,
            action,
            cause,
            replica: Some(id(r)),
            core: core_id(core),
            pause_ns: ns(begun.elapsed()),
        };
        self.emit(What::Recovery(recovery));
        self.strike(core);
        true
    }

    /// Writes the agent's code and constants anew where they have changed: a repair in place
    /// brings back the program's memory alone.
    fn mend_agents(&self, standing: &[Standing]) {
        let right = &self.agent_fixed;
        let mut found = vec![0; right.len()];
        for (r, _) in standing
            .iter()
            .enumerate()
            .filter(|(_, one)| !matches!(one, Standing::Died(_)))
        {
            let Ok(memory) = Remote::open(self.replicas[r].pid) else {
                continue;
            };
            if memory.read(abi::BASE, &mut found).is_err() || found == *right {
                continue;
            }
            for page in (0..right.len()).step_by(4096) {
                let end = right.len().min(page + 4096);
                if found[page..end] != right[page..end] {
                    // What cannot be mended is outvoted again, and at last given up.
                    let _ = memory.write(abi::BASE + page as u64, &right[page..end]);
                }
            }
        }
    }

    /// The leader found what the kernel had given it and the log to differ: one is wrong, nobody
    /// has used either yet.
    pub(crate) fn torn(&mut self) {
        let begun = Instant::now();
        self.divergences += 1;
        let n = self.replicas.len();
        let seq = self.group.get64(at!(own 0, next));
        let claims: Vec<Option<Claim>> = (0..n).map(|r| self.group.claim(r, seq)).collect();
        let all = (1_u32 << n) - 1;
        self.tell(
            &vec![Standing::Paused; n],
            &claims,
            seq,
            all,
            Judgement::Unresolvable,
        );
        self.give_up(StopReason::Unrecoverable, begun);
    }

    /// Has every paused replica count the claims; the losers that most of all replicas name. Who does not answer names nobody.
    pub(crate) fn count(&self, paused: &[usize]) -> u32 {
        for r in paused {
            self.group.command(*r, cmd::VOTE, 0);
        }
        let named: Vec<u32> = paused
            .iter()
            .filter(|r| self.group.obeyed(**r, ANSWER).is_some())
            .map(|r| self.group.get32(at!(own * r, losers)))
            .collect();
        verdict(&named, self.replicas.len())
    }

    /// Kills a follower and makes it again as a copy of the leader.
    fn replace(&mut self, r: usize) -> bool {
        self.charge_follower(r);
        self.put_down(r);
        let turn = if self.shares_memory() {
            let Some(holds) = self.inherited_turn(r, 0) else {
                return false;
            };
            Some(holds)
        } else {
            None
        };
        self.replicas[r].child = 0;
        self.group.set_pid(r, 0);
        self.group.set32(at!(own r, init_pid), 0);
        self.group.set32(at!(slot r, phase), 0);
        self.group.set32(at!(slot r, cmd), 0);
        self.group.set32(at!(seen r, exit_status), 0);
        self.group.set32(at!(seen r, fault_signo), 0);
        self.group.clear_ring(r);
        if r + 1 == self.replicas.len() {
            // The snapshot was its child and has gone with it; the next epoch makes another.
            self.group.set64(at!(snapshot_seq), 0);
            self.group.set32(at!(snapshot_broken), 1);
            self.group.set32(at!(slot r + 1, phase), 0);
        }
        self.watch.stillborn = false;
        if self.group.order(0, cmd::FORK, r as u64, ANSWER) != Some(0) {
            self.disown(r);
            return false;
        }
        let gone = || {
            let said = self.said_child(r);
            said > 1 && !child::exists(said)
        };
        let stands = self
            .group
            .wait_until(ANSWER, || self.group.phase(r) == phase::PAUSED || gone())
            && !gone();
        if stands {
            self.adopt(r);
        } else {
            self.watch.stillborn = gone();
            self.disown(r);
        }
        stands && turn.is_none_or(|holds| self.joins_its_index(r, 0, holds).unwrap_or(false))
    }

    /// Ends what was made of a follower that does not come to stand.
    fn disown(&mut self, r: usize) {
        let child = self.said_child(r);
        let known = child == self.keeper || self.replicas.iter().any(|info| info.child == child);
        if !known {
            self.kill_child(child);
        }
    }

    /// Kills a follower and waits until it can do no harm; that it is reaped is for later, since its
    /// namespaces take 10 ms to die.
    fn put_down(&mut self, r: usize) {
        let (child, pid) = (self.replicas[r].child, self.replicas[r].pid);
        if self.gone.remove(&child).is_some() || !child::is_child(child) {
            return;
        }
        child::kill(child, libc::SIGKILL);
        self.leaving.push(child);
        let deadline = Instant::now() + ANSWER;
        while !(procfs::has_no_memory(child) && procfs::has_no_memory(pid))
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
    }

    /// Makes the leader what `winner` is: the process stays, and with it its number, its
    /// children, timers, descriptors and locks; memory, registers and the agent's state of
    /// the program come from the winner. A leader that is gone or does not answer is made
    /// again by the keeper, which holds its descriptors.
    fn replace_leader(&mut self, winner: usize, standing: Standing) -> bool {
        if !self.settle_last_call(winner) {
            return false;
        }
        if matches!(standing, Standing::Died(_)) {
            self.settle_last_write(winner);
            if !self.settle_last_spawn(winner) {
                return false;
            }
        }
        if self.group.order(winner, cmd::SEND, 0, ANSWER).is_none() {
            return false;
        }
        let usable = !self.watch.hollow && (standing == Standing::Paused || self.recall_leader());
        if self.shares_memory() && usable {
            return self.overwrite(0, winner).unwrap_or(false);
        }
        if self.shares_memory() {
            let made = matches!(standing, Standing::Died(_))
                && self.led_by_another(winner).unwrap_or(false);
            let received = made && self.receives(0, winner);
            self.watch.hollow &= !received;
            return received;
        }
        let copied = usable && self.copy_memory(winner, 0, false).unwrap_or(false);
        if !copied {
            if self.is_going(winner) {
                return false; // the process is there for the next donor
            }
            let made =
                self.spawn_leader(winner) && self.copy_memory(winner, 0, true).unwrap_or(false);
            if !made {
                return false;
            }
        }
        let received = self.receives(0, winner);
        self.watch.hollow &= !received;
        received
    }

    /// A replica whose memory is `donor`'s by now takes its registers and the agent's state.
    pub(crate) fn receives(&self, r: usize, donor: usize) -> bool {
        self.group.clear_ring(r);
        if r == 0 {
            let next = self.group.get64(at!(own donor, again));
            self.group
                .clear_results(self.group.get64(abi::OFF_TRANSFER + 8), next);
        }
        self.group.order(r, cmd::RECEIVE, 0, ANSWER) == Some(0) && self.is_copy(donor, r)
    }

    /// Whether a replica's memory digests to what the donor's does, each by its own reading. The donor answers: it
    /// has lived to the end of the copy.
    fn is_copy(&self, donor: usize, to: usize) -> bool {
        for r in [donor, to] {
            self.group.command(r, cmd::HASH, 0);
        }
        let [Some(right), Some(copy)] = [donor, to].map(|r| {
            self.group.obeyed(r, ANSWER)?;
            Some([0, 8].map(|word| self.group.get64(at!(own r, hash) + word)))
        }) else {
            return false;
        };
        // A program that has changed its root directory cannot look at its own map: each then says its own number.
        let blind = right[0] == donor as u64 && copy[0] == to as u64;
        right == copy || blind
    }

    /// A leader that was killed inside a write may have written without having said so. The
    /// kernel's account of it tells: its result is published in its place, the others take it
    /// and stop at the event after it, and nothing is written twice. What was left is that event.
    fn settle_last_write(&mut self, winner: usize) {
        let seq = self.group.get64(at!(wrote_seq));
        let before = self.group.get64(at!(wrote_before));
        let (Some(claim), Some(written)) = (
            self.group.claim(winner, seq),
            self.hearing
                .tree
                .accounts
                .final_count(self.replicas[0].child),
        ) else {
            return;
        };
        let moved = written.saturating_sub(before);
        if self.group.get64(at!(own winner, next)) != seq || moved == 0 {
            return;
        }
        let Some(base) = self.log_base(winner, seq) else {
            return;
        };
        if self.group.published(base, seq) {
            return; // the winner has taken it, and computes on
        }
        let payload_at = self.group.payload_end(base, seq);
        let whole = self.bytes_to_write(winner, &claim);
        let flags = if whole > moved { abi::REST } else { 0 };
        let result = (moved.cast_signed(), flags);
        self.group.publish(base, seq, &claim, result, payload_at);
        self.pass(winner, seq);
    }

    /// A child of vfork(2) stands in for a leader until it is another program. A leader that was killed just then has not told that it
    /// is one: its number is published as the result of the event that it has left by. Where it died with the leader, the next
    /// leader makes it anew (spawn.c). `false`: nobody knows.
    fn settle_last_spawn(&mut self, winner: usize) -> bool {
        let seq = self.group.get64(at!(own winner, next));
        let Some(child) = self.on_its_way.take().filter(|child| child.event == seq) else {
            return true;
        };
        match child.fate() {
            Some(Fate::Another) => {}
            Some(Fate::Ended) => {
                child.is_unborn(&self.hearing.tree);
                return true;
            }
            Some(Fate::Unknown) | None => return false,
        }
        let (Some(base), Some(claim)) = (self.log_base(winner, seq), self.group.claim(winner, seq))
        else {
            return false;
        };
        if self.group.published(base, seq) {
            return true;
        }
        let result = (i64::from(child.pid), abi::SPAWNED);
        let payload_at = self.group.payload_end(base, seq);
        self.group.publish(base, seq, &claim, result, payload_at);
        self.pass(winner, seq);
        true
    }

    /// How many bytes a call writes that does not come back before all of them are written, by its claim; 0: it may, or nobody knows.
    /// Of a vector that was written in part before it is too many: the rest of none is written then, to a stream.
    fn bytes_to_write(&self, winner: usize, claim: &Claim) -> u64 {
        const MOST: u64 = 1024; // UIO_MAXIOV
        let [_, at, count, ..] = claim.args;
        match i64::from(claim.nr) {
            libc::SYS_write | libc::SYS_pwrite64 => count,
            libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 if count <= MOST => {
                let mut vector = vec![0; usize::try_from(16 * count).unwrap_or(0)];
                let read = Remote::open(self.replicas[winner].pid)
                    .and_then(|memory| memory.read(at, &mut vector));
                let lengths = vector.chunks_exact(16).map(|one| {
                    u64::from_le_bytes(one[8..].try_into().expect("eight of sixteen bytes"))
                });
                read.map_or(0, |()| lengths.fold(0, u64::saturating_add))
            }
            _ => 0,
        }
    }

    /// A leader that was struck when the kernel had acted for it has left the answer behind: it is
    /// published in its place, so that its successor does not act again. Where bytes came with the
    /// answer they are lost with it, and what the kernel has given once it does not give again:
    /// `false`.
    fn settle_last_call(&mut self, winner: usize) -> bool {
        let seq = self.group.get64(at!(own winner, next));
        let made = self.group.get64(at!(seen 0, made));
        if made & !abi::MADE_OUT != seq {
            return true;
        }
        let Some(base) = self.log_base(winner, seq) else {
            return true;
        };
        if self.group.published(base, seq) {
            return true;
        }
        let Some(claim) = self.group.claim(winner, seq) else {
            return true;
        };
        let ret = self.group.get64(at!(seen 0, made_ret)).cast_signed();
        if made & abi::MADE_OUT != 0 && ret >= 0 {
            return false;
        }
        self.group.publish(
            base,
            seq,
            &claim,
            (ret, 0),
            self.group.payload_end(base, seq),
        );
        self.pass(winner, seq);
        true
    }

    /// Where the log begins, as the winner knows it, if event `seq` has a place there. The control
    /// block's word is the leader's, which is in doubt.
    fn log_base(&self, winner: usize, seq: u64) -> Option<u64> {
        self.group.order(winner, cmd::SEND, 0, ANSWER)?;
        let base = self.group.get64(abi::OFF_TRANSFER + 8);
        (base <= seq && seq - base < abi::RESULTS_MAX as u64).then_some(base)
    }

    /// Lets the others take the result of event `seq` and stop behind it.
    fn pass(&mut self, winner: usize, seq: u64) {
        self.group.echo(winner, seq);
        self.group.set64(at!(alarm_seq), seq + 1);
        let n = self.replicas.len();
        let passed: Vec<usize> = (1..n)
            .filter(|r| self.died(*r).is_none() && self.group.phase(*r) == phase::PAUSED)
            .collect();
        for r in &passed {
            self.group.order(*r, cmd::RESUME, 0, ANSWER);
        }
        // Then wherever they are: their next event may be far.
        let group = &self.group;
        group.wait_until(ANSWER, || {
            passed.iter().all(|r| {
                group.get64(at!(own * r, done)) > seq
                    || group.is_gone(*r)
                    || group.phase(*r) == phase::PAUSED
            })
        });
        self.group.set64(at!(alarm_seq), 0);
        self.gather();
    }

    /// A leader that was given up may still answer a nudge from inside its endless loop.
    fn recall_leader(&mut self) -> bool {
        if self.leader_end.is_some() {
            return false;
        }
        child::kill(self.acting(), NUDGE);
        self.pauses_when_called(0)
    }

    /// Whether a replica that was called comes to pause. Time in which it gets no processor is not its own.
    pub(crate) fn pauses_when_called(&self, r: usize) -> bool {
        let pid = self.process_of(r);
        let begun = Instant::now();
        let mut silence = begun;
        let before = cpu::process_time_ns(pid);
        loop {
            let paused = || self.group.phase(r) == phase::PAUSED;
            if self.group.wait_until(CALLED_LOOK, paused) {
                return true;
            }
            let Some(used) = cpu::process_time_ns(pid).zip(before) else {
                return false;
            };
            if !procfs::sleeps(pid) {
                silence = Instant::now();
            }
            if used.0.saturating_sub(used.1) > ns(CALLED)
                || silence.elapsed() > DEAF
                || begun.elapsed() > ANSWER
            {
                return false;
            }
        }
    }

    /// Signals that a leader had yet to take when it was killed are the new one's. Nobody knows who had sent them. Not the kernel's
    /// word of children, whose ends the new leader hears of itself, or of what it was doing.
    fn inherit_signals(&mut self, pending: u64) {
        const OWN: [i32; 10] = [
            libc::SIGKILL,
            libc::SIGSTOP,
            libc::SIGCHLD,
            libc::SIGSYS,
            libc::SIGSEGV,
            libc::SIGBUS,
            libc::SIGILL,
            libc::SIGFPE,
            libc::SIGTRAP,
            libc::SIGPIPE,
        ];
        let waits = |signal: &i32| pending >> (signal - 1) & 1 == 1 && !OWN.contains(signal);
        for signal in (1..=64).filter(waits) {
            self.outbox.push_back(signals::Taken {
                signal,
                code: libc::SI_USER,
                pid: 0,
                uid: 0,
                value: 0,
            });
        }
    }

    pub(crate) fn spawn_leader(&mut self, winner: usize) -> bool {
        // Nobody else holds what the leader holds.
        if self.keeper == 0 || self.gone.contains_key(&self.keeper) {
            return false;
        }
        let Ok(maps) = procfs::maps(self.replicas[winner].pid) else {
            return false;
        };
        let Some(bytes) = remap_list(&maps) else {
            return false;
        };
        let old = self.replicas[0].child;
        if self.leader_end.is_none() {
            self.replaced.insert(old);
            self.kill_child(old);
        }
        self.gone.remove(&old);
        self.leader_end = None;
        self.group.set32(at!(seen 0, fault_signo), 0);
        self.group.memory.write(abi::OFF_REMAP, &bytes);
        self.group.set32(at!(slot 0, phase), 0);
        let Some(pid) = self.group.order(abi::KEEPER, cmd::SPAWN, 0, ANSWER) else {
            return false;
        };
        self.replicas[0].child = 0;
        let pid = self.new_child(i32::try_from(pid).unwrap_or(0));
        if pid <= 0 {
            return false;
        }
        self.replicas[0].child = pid;
        self.replicas[0].pid = pid;
        self.watch.hollow = true;
        self.hearing.tree.accounts.look(old); // nobody may have heard of its end yet
        self.inherit_signals(self.hearing.tree.accounts.pending(old));
        self.hearing.tree.accounts.close(old);
        self.hearing.tree.accounts.open(pid);
        self.hearing.tree.led_anew(self.hearing.post(), pid);
        self.leads_a_ward();
        if !self.adopts_children() {
            return false;
        }
        self.promotions += 1;
        self.group.set32(at!(remade), 1);
        self.group.wait_until(ANSWER, || {
            self.group.phase(0) == phase::PAUSED || !child::exists(pid)
        });
        if self.group.phase(0) != phase::PAUSED || !child::exists(pid) {
            return false;
        }
        self.adopt(0);
        // The keeper's copy of the agent is as old as the run, and nobody has looked at it since.
        self.mend_agents(&[Standing::Paused]);
        self.group.order(0, cmd::REMAP, 0, ANSWER) == Some(0) && self.watches_signals()
    }

    /// A set for polling watches signals for the process that has told it to: the new leader tells it again (epoll_ctl(2)).
    fn watches_signals(&self) -> bool {
        const POLLED_BYTES: usize = 24; // struct sf_polled
        let leader = self.replicas[0].pid;
        let of_kind = |kind| descriptor::of_kind(leader, kind).unwrap_or_default();
        let signals = of_kind("anon_inode:[signalfd]");
        if signals.is_empty() {
            return true;
        }
        let mut list: Vec<u8> = Vec::new();
        // One that another process has as well, by fork, may watch that one's signals.
        let others = self.hearing.tree.others(self.hearing.post());
        let has = |crew: &Vec<i32>, set: u32| {
            let number = set.cast_signed();
            let other = crew.first().copied().filter(|other| *other > 1);
            other.is_some_and(|other| {
                descriptor::is_one_file((leader, number), (other, number)).unwrap_or(false)
            })
        };
        let sets = of_kind("anon_inode:[eventpoll]").into_iter();
        for set in sets.filter(|set| !others.iter().any(|crew| has(crew, *set))) {
            let polled = descriptor::polled(leader, set).unwrap_or_default();
            for one in polled.iter().filter(|one| signals.contains(&one.fd)) {
                list.extend(
                    [set, one.fd, one.events, 0]
                        .map(u32::to_le_bytes)
                        .as_flattened(),
                );
                list.extend(one.data.to_le_bytes());
            }
        }
        let count = (list.len() / POLLED_BYTES) as u64;
        if abi::OFF_REMAP + list.len() > abi::REMAP_END {
            return false;
        }
        self.group.memory.write(abi::OFF_REMAP, &list);
        self.group.order(0, cmd::WATCH, count, ANSWER) == Some(0)
    }

    /// Copies what differs from the winner's memory to that of `loser`. `false`: their mappings
    /// differ, so it has to be made anew. An error if the winner did not live to the end of it.
    pub(crate) fn copy_memory(&self, winner: usize, loser: usize, fresh: bool) -> io::Result<bool> {
        let (from, to) = (self.replicas[winner].pid, self.replicas[loser].pid);
        let copied = transplant::copy(&self.group, from, (loser, to), fresh)?;
        // A dying process has no mappings, and reads as zeros.
        if copied.is_some() && self.is_going(winner) {
            return Err(io::Error::other("it died while it was copied"));
        }
        Ok(copied.is_some())
    }

    fn resume(&mut self) {
        self.watch.pace.clear();
        for r in 0..self.replicas.len() {
            self.group.withdraw(r);
        }
        self.group.set32(at!(alarm), alarm::QUIET);
        self.group.set64(at!(alarm_seq), 0);
        for r in 0..self.replicas.len() {
            self.group.command(r, cmd::RESUME, 0);
        }
        for r in 0..self.replicas.len() {
            self.group.wait_until(ANSWER, || {
                self.group.acknowledged(r) || self.group.is_gone(r)
            });
        }
    }

    fn give_up(&mut self, why: StopReason, begun: Instant) {
        let recovery = Recovery {
            divergence: self.divergences,
            action: RecoveryAction::Stopped,
            cause: Cause::Outvoted,
            replica: None,
            core: None,
            pause_ns: ns(begun.elapsed()),
        };
        self.emit(What::Recovery(recovery));
        self.stop = Some(why);
    }

    fn strike(&mut self, core: Option<usize>) {
        let Some(core) = core else { return };
        let strikes = self.strikes.entry(core).or_default();
        *strikes += 1;
        let strikes = *strikes;
        let core = core_id(Some(core)).expect("given");
        if strikes >= STRIKES && !self.suspects.contains(&core) {
            self.suspects.push(core);
            let action = if self.cores.len() > self.suspects.len() {
                SuspectAction::Avoided
            } else {
                SuspectAction::Reported
            };
            let suspect = CoreSuspect {
                core,
                strikes: strikes.into(),
                divergences: self.divergences,
                action,
            };
            self.emit(What::CoreSuspect(suspect));
        }
    }

    fn tell(
        &mut self,
        standing: &[Standing],
        claims: &[Option<Claim>],
        seq: u64,
        losers: u32,
        judgement: Judgement,
    ) {
        let first = claims.iter().flatten().next().copied();
        let call = first.map(|claim| kind::name(claim.kind, claim.nr));
        let mut camps: Vec<Claim> = Vec::new();
        for claim in claims.iter().flatten() {
            if !camps.contains(claim) {
                camps.push(*claim);
            }
        }
        let votes = (0..standing.len())
            .map(|r| {
                // Who has come to no event, and whose absence is no accident.
                let absent = camps.len() + usize::from(standing[r] != Standing::Paused);
                let camp = claims[r].map_or(absent, |claim| {
                    camps.iter().position(|c| *c == claim).unwrap_or(absent)
                });
                Vote {
                    replica: id(r),
                    role: if r == 0 { Role::Leader } else { Role::Follower },
                    core: core_id(self.replicas[r].core),
                    camp: u8::try_from(camp.min(255)).expect("bounded"),
                    site: claims[r].map(|claim| Site::at(GuestAddr(claim.ip))),
                    value: claims[r].map(|claim| format!("{:#x}", claim.state ^ claim.bytes[0])),
                }
            })
            .collect();
        let divergence = Divergence {
            id: self.divergences,
            event: (seq != 0).then(|| self.event(seq)),
            call,
            difference: self.difference(standing, claims, losers),
            votes,
            judgement,
            latency_ns: self.modules.flips.latency_ns(&self.group.memory),
        };
        self.emit(What::Divergence(divergence));
    }

    /// The first page in which the memories of two paused replicas differ, and how many do.
    fn differing_pages(&self, a: usize, b: usize) -> Option<(u64, u64)> {
        let left = Remote::open(self.replicas[a].pid).ok()?;
        let right = Remote::open(self.replicas[b].pid).ok()?;
        let (mut first, mut count) = (None, 0);
        let (mut x, mut y) = ([0; 4096], [0; 4096]);
        for map in procfs::maps(self.replicas[a].pid)
            .ok()?
            .iter()
            .filter(|m| m.writable && transplanted(m))
        {
            let mut runs = left.owned(map.range.clone()).ok()?;
            runs.extend(right.owned(map.range.clone()).ok()?);
            let pages: std::collections::BTreeSet<u64> =
                runs.into_iter().flat_map(|run| run.step_by(4096)).collect();
            for page in pages {
                if left.read(page, &mut x).is_ok() && right.read(page, &mut y).is_ok() && x != y {
                    first.get_or_insert(page);
                    count += 1;
                }
            }
        }
        first.map(|page| (page, count))
    }

    /// The first word of memory that differs between two paused replicas, and what it is in the second.
    pub(crate) fn differing_word(&self, a: usize, b: usize) -> Option<(u64, u64)> {
        let (page, _) = self.differing_pages(a, b)?;
        let (mut x, mut y) = ([0; 4096], [0; 4096]);
        Remote::open(self.replicas[a].pid)
            .ok()?
            .read(page, &mut x)
            .ok()?;
        Remote::open(self.replicas[b].pid)
            .ok()?
            .read(page, &mut y)
            .ok()?;
        let at = (0..4096)
            .step_by(8)
            .find(|at| x[*at..at + 8] != y[*at..at + 8])?;
        Some((
            page + at as u64,
            u64::from_le_bytes(y[at..at + 8].try_into().expect("eight bytes")),
        ))
    }

    fn difference(
        &self,
        standing: &[Standing],
        claims: &[Option<Claim>],
        losers: u32,
    ) -> Difference {
        let torn = self.group.end() == abi::end::TORN;
        if torn || self.group.get32(at!(alarm)) == alarm::LOG {
            return Difference::Log {
                check: LogCheck::Checksum,
            };
        }
        for one in standing {
            match one {
                Standing::Died(child::Change::Signaled(signal)) => {
                    return Difference::Death {
                        signal: Some(*signal),
                    };
                }
                Standing::Died(_) => return Difference::Death { signal: None },
                Standing::Hung { cpu_ns, limit_ns } => {
                    return Difference::Hang {
                        cpu_ns: *cpu_ns,
                        limit_ns: *limit_ns,
                    };
                }
                Standing::Paused => {}
            }
        }
        let Some(odd) = claims
            .iter()
            .enumerate()
            .filter(|(r, _)| losers & 1 << r != 0)
            .find_map(|(_, c)| *c)
        else {
            return Difference::Call;
        };
        if odd.kind == kind::FAULT {
            return Difference::Fault {
                signal: odd.nr.cast_signed(),
                address: GuestAddr(odd.args[1]),
            };
        }
        if claims.iter().any(Option::is_none) && claims.iter().flatten().all(|claim| *claim == odd)
        {
            return Difference::Early;
        }
        for other in claims.iter().flatten().filter(|c| **c != odd) {
            if other.kind == kind::FAULT {
                return Difference::Fault {
                    signal: other.nr.cast_signed(),
                    address: GuestAddr(other.args[1]),
                };
            }
            if (other.nr, other.kind, other.ip) != (odd.nr, odd.kind, odd.ip) {
                return Difference::Call;
            }
            if let Some(index) = (0..6).find(|i| other.args[*i] != odd.args[*i]) {
                return Difference::Argument {
                    index: u8::try_from(index).expect("below six"),
                };
            }
            if odd.kind == kind::CHECK {
                let differ = |c: &Option<Claim>| c.is_some_and(|c| c.bytes != odd.bytes);
                let pair = claims
                    .iter()
                    .position(|c| *c == Some(odd))
                    .zip(claims.iter().position(differ));
                if let Some((page, pages)) = pair.and_then(|(a, b)| self.differing_pages(a, b)) {
                    return Difference::Memory {
                        page: GuestAddr(page),
                        pages,
                    };
                }
            }
            if other.bytes != odd.bytes {
                return Difference::Buffer {
                    argument: 1,
                    offset: None,
                };
            }
            if other.sp != odd.sp {
                return Difference::Register { name: "rsp".into() };
            }
        }
        Difference::Stack
    }
}

/// The losers that most of `n` replicas named; all of them where no most agree. A silent one counts among `n`.
fn verdict(named: &[u32], n: usize) -> u32 {
    let most = |losers: &u32| 2 * named.iter().filter(|other| *other == losers).count() > n;
    named.iter().copied().find(most).unwrap_or((1 << n) - 1)
}

fn paused_all(standing: &[Standing]) -> bool {
    standing.iter().all(|one| *one == Standing::Paused)
}

/// Whether somebody who has a processor, or waits for one, has only looked around with so much CPU time.
fn is_a_moment(burned_ns: u64) -> bool {
    (1..MOMENT_NS).contains(&burned_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losers_are_those_that_most_replicas_name_and_silence_is_no_vote() {
        assert_eq!(verdict(&[0b100, 0b100, 0b001], 3), 0b100);
        assert_eq!(verdict(&[0b100, 0b100], 3), 0b100);
        assert_eq!(verdict(&[0b100], 3), 0b111, "one of three is no majority");
        assert_eq!(verdict(&[0b10, 0b01], 2), 0b11);
        assert_eq!(verdict(&[], 2), 0b11);
    }

    #[test]
    fn who_gets_no_processor_and_who_computes_do_not_look_around() {
        assert!(is_a_moment(11_000));
        assert!(!is_a_moment(0), "others kept its core for themselves");
        assert!(!is_a_moment(MOMENT_NS), "it computes");
    }
}
