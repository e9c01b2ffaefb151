//! Recovery: from an alarm to a group that agrees again, or to a stop.
//!
//! ```text
//!   alarm ──► everybody pauses at the disputed event, or is dead, or hangs
//!         ──► each paused replica counts the arrivals and names losers
//!         ──► losers are killed and made again as copies of the leader
//!         ──► rings cleared, alarm off, all start the event again
//! ```
//!
//! The verdict is the replicas' count (log.c, `vote`); a majority of counts is carried out.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use steadfast_integrity::event::{
    Cause, CoreSuspect, Difference, Divergence, Judgement, Recovery, RecoveryAction, Role, SuspectAction, Vote, What,
};
use steadfast_integrity::ids::{EventIndex, GuestAddr};
use steadfast_integrity::plan::StopReason;
use steadfast_sys::{child, procfs};

use crate::abi::{alarm, cmd, kind, phase};
use crate::group::{Claim, at};
use crate::supervise::{Supervisor, core_id, id, ns};

/// A paused replica answers a command at once; this is long enough for a loaded machine and a
/// copy of a large address space.
const ANSWER: Duration = Duration::from_secs(20);
/// A core that loses this often is avoided: once is a particle, twice is a pattern.
const STRIKES: u32 = 2;

/// What the watchdog remembers between looks.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Per replica: the event it was about to arrive at, and its CPU time when first seen there.
    at: HashMap<usize, (u64, u64)>,
}

/// Where a replica stands when everybody should be paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Paused,
    Died(child::Change),
    Hung { cpu_ns: u64, limit_ns: u64 },
}

impl Supervisor<'_> {
    pub(crate) fn died(&self, r: usize) -> Option<child::Change> {
        self.gone.get(&self.replicas[r].child).copied()
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

    fn raise(&self, why: u32, r: usize) {
        self.group.set64(at!(alarm_seq), 0);
        self.group.set32(at!(alarm_slot), u32::try_from(r).expect("few replicas"));
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
            child::kill(self.replicas[0].pid, 64);
        }
    }

    /// A replica that has burned more than twice, and a second more than, what the first
    /// arriver needed between the same two events hangs. CPU time, never wall time.
    pub(crate) fn look_for_the_hung(&mut self) {
        let n = self.replicas.len();
        let place: Vec<u64> = (0..n).map(|r| self.group.get64(at!(own r, next))).collect();
        let Some(first) = place.iter().max().copied() else { return };
        let mut fastest: Option<u64> = None;
        let mut burned = vec![0; n];
        for r in 0..n {
            let Some(now) = procfs::cpu_ns(self.replicas[r].pid) else { continue };
            let entry = self.watch.at.entry(r).or_insert((place[r], now));
            if entry.0 != place[r] {
                // It has moved: what it burned until here belongs to the way here.
                let spent = now - entry.1;
                *entry = (place[r], now);
                if place[r] == first {
                    fastest = Some(fastest.map_or(spent, |f| f.min(spent)));
                }
            }
            burned[r] = now - entry.1;
        }
        let allowed = |spent: u64| (2 * spent).max(spent + 1_000_000_000);
        let limit = allowed(fastest.unwrap_or(0));
        for r in 0..n {
            if place[r] < first && burned[r] > limit && n > 1 {
                self.watch.at.clear();
                self.raise(alarm::HUNG, r);
                return;
            }
        }
    }

    /// Waits until every replica is paused or known to be out.
    fn gather(&mut self) -> Vec<Standing> {
        let n = self.replicas.len();
        let start: Vec<u64> = (0..n).map(|r| procfs::cpu_ns(self.replicas[r].pid).unwrap_or(0)).collect();
        let hung_slot = (self.group.get32(at!(alarm)) == alarm::HUNG)
            .then(|| self.group.get32(at!(alarm_slot)) as usize);
        let mut standing: Vec<Option<Standing>> = vec![None; n];
        loop {
            let seen = self.group.bell();
            self.take_news();
            for r in 0..n {
                if standing[r].is_some() {
                    continue;
                }
                if let Some(change) = self.died(r) {
                    standing[r] = Some(Standing::Died(change));
                } else if self.group.phase(r) == phase::PAUSED {
                    standing[r] = Some(Standing::Paused);
                } else if hung_slot == Some(r) {
                    standing[r] = Some(Standing::Hung { cpu_ns: 0, limit_ns: 0 });
                }
            }
            if standing.iter().all(Option::is_some) {
                return standing.into_iter().flatten().collect();
            }
            let paused = standing.iter().flatten().count();
            for r in 0..n {
                // The others wait: a straggler may burn as much as twice the run so far, and a
                // second more, before it is given up.
                let now = procfs::cpu_ns(self.replicas[r].pid).unwrap_or(0);
                let limit_ns = (2 * start[r]).max(1_000_000_000);
                if standing[r].is_none() && paused > 0 && now.saturating_sub(start[r]) > limit_ns {
                    standing[r] = Some(Standing::Hung { cpu_ns: now - start[r], limit_ns });
                }
            }
            self.group.sleep(seen, Duration::from_millis(5));
        }
    }

    /// Everything between an alarm and the next instruction of the program.
    pub(crate) fn recover(&mut self) {
        let begun = Instant::now();
        self.divergences += 1;
        let standing = self.gather();
        let n = self.replicas.len();
        let seq = self.group.get64(at!(alarm_seq));
        let paused: Vec<usize> = (0..n).filter(|r| standing[*r] == Standing::Paused).collect();
        let absent: u32 = (0..n).filter(|r| standing[*r] != Standing::Paused).map(|r| 1 << r).sum();

        let losers = if absent != 0 {
            // Who is gone or hangs has lost, whatever the others think of each other; they
            // meet again at the event and vote then.
            absent
        } else {
            for r in &paused {
                self.group.order(*r, cmd::VOTE, 0, ANSWER);
            }
            self.verdict(&paused, n)
        };
        let all = (1_u32 << n) - 1;
        let claims: Vec<Option<Claim>> = (0..n).map(|r| self.group.claim(r, seq)).collect();
        let judgement = if losers == all {
            Judgement::Unresolvable
        } else {
            Judgement::Blamed(id(losers.trailing_zeros() as usize))
        };
        self.tell(&standing, &claims, seq, losers, judgement);

        if !self.recovers() {
            return self.give_up(StopReason::Mismatch, begun);
        }
        if losers == all || losers & 1 != 0 {
            return self.give_up(StopReason::Unrecoverable, begun);
        }
        for r in (1..n).filter(|r| losers & 1 << r != 0) {
            let cause = match standing[r] {
                Standing::Paused => Cause::Outvoted,
                Standing::Died(child::Change::Signaled(signal)) => Cause::Killed(signal),
                Standing::Died(_) => Cause::Killed(0),
                Standing::Hung { .. } => Cause::Hung,
            };
            let core = self.replicas[r].core;
            if !self.replace(r) {
                return self.give_up(StopReason::Unrecoverable, begun);
            }
            self.recoveries += 1;
            let recovery = Recovery {
                divergence: self.divergences,
                action: RecoveryAction::Reforked { from: id(0) },
                cause,
                replica: Some(id(r)),
                core: core_id(core),
                pause_ns: ns(begun.elapsed()),
            };
            self.emit(What::Recovery(recovery));
            self.strike(core);
        }
        self.resume();
        let pause = begun.elapsed();
        self.pause_max = Some(self.pause_max.map_or(pause, |max| max.max(pause)));
    }

    /// The losers that most replicas named.
    fn verdict(&self, paused: &[usize], n: usize) -> u32 {
        let mut votes: HashMap<u32, usize> = HashMap::new();
        for r in paused {
            *votes.entry(self.group.get32(at!(own *r, losers))).or_default() += 1;
        }
        votes
            .into_iter()
            .find(|(_, count)| 2 * count > n)
            .map_or((1 << n) - 1, |(losers, _)| losers)
    }

    /// Kills a follower and makes it again as a copy of the leader.
    fn replace(&mut self, r: usize) -> bool {
        let old = self.replicas[r].child;
        self.kill_child(old);
        self.gone.remove(&old);
        self.replicas[r].child = 0;
        self.group.set32(at!(slot r, phase), 0);
        self.group.set32(at!(slot r, cmd), 0);
        self.group.clear_ring(r);
        if self.group.order(0, cmd::FORK, r as u64, ANSWER) != Some(0) {
            return false;
        }
        let stands = self.group.wait_until(ANSWER, || self.group.phase(r) == phase::PAUSED);
        if stands {
            self.adopt(r);
        }
        stands
    }

    fn resume(&mut self) {
        self.watch = Watch::default();
        self.group.set32(at!(alarm), alarm::QUIET);
        self.group.set64(at!(alarm_seq), 0);
        for r in 0..self.replicas.len() {
            self.group.command(r, cmd::RESUME, 0);
        }
        for r in 0..self.replicas.len() {
            self.group.wait_until(ANSWER, || self.group.acknowledged(r));
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
            let suspect = CoreSuspect { core, strikes: strikes.into(), divergences: self.divergences, action };
            self.emit(What::CoreSuspect(suspect));
        }
    }

    fn tell(&mut self, standing: &[Standing], claims: &[Option<Claim>], seq: u64, losers: u32, judgement: Judgement) {
        let first = claims.iter().flatten().next().copied();
        let call = first.map(|claim| match claim.kind {
            kind::SYSCALL => steadfast_agent::call(claim.nr).0.to_owned(),
            kind::ENTROPY => "entropy".to_owned(),
            kind::FAULT => format!("signal {}", claim.nr),
            _ => "memory check".to_owned(),
        });
        let mut camps: Vec<Claim> = Vec::new();
        let votes = (0..standing.len())
            .map(|r| {
                let camp = claims[r].map_or(usize::MAX, |claim| {
                    camps.iter().position(|c| *c == claim).unwrap_or_else(|| {
                        camps.push(claim);
                        camps.len() - 1
                    })
                });
                Vote {
                    replica: id(r),
                    role: if r == 0 { Role::Leader } else { Role::Follower },
                    core: core_id(self.replicas[r].core),
                    camp: u8::try_from(camp.min(255)).expect("bounded"),
                    site: claims[r].map(|claim| self.modules.site(claim.ip)),
                    value: claims[r].map(|claim| format!("{:#x}", claim.state ^ claim.bytes[0])),
                }
            })
            .collect();
        let divergence = Divergence {
            id: self.divergences,
            event: (seq != 0).then_some(EventIndex(seq)),
            call,
            difference: self.difference(standing, claims, losers),
            votes,
            judgement,
            latency_ns: None,
        };
        self.emit(What::Divergence(divergence));
    }

    fn difference(&self, standing: &[Standing], claims: &[Option<Claim>], losers: u32) -> Difference {
        for one in standing {
            match one {
                Standing::Died(child::Change::Signaled(signal)) => return Difference::Death { signal: Some(*signal) },
                Standing::Died(_) => return Difference::Death { signal: None },
                Standing::Hung { cpu_ns, limit_ns } => {
                    return Difference::Hang { cpu_ns: *cpu_ns, limit_ns: *limit_ns };
                }
                Standing::Paused => {}
            }
        }
        let Some(odd) = claims.iter().enumerate().find(|(r, _)| losers & 1 << r != 0).and_then(|(_, c)| *c) else {
            return Difference::Call;
        };
        if odd.kind == kind::FAULT {
            return Difference::Fault {
                signal: odd.nr.cast_signed(),
                address: GuestAddr(odd.args[1]),
            };
        }
        for other in claims.iter().flatten().filter(|c| **c != odd) {
            if other.kind == kind::FAULT {
                return Difference::Fault { signal: other.nr.cast_signed(), address: GuestAddr(other.args[1]) };
            }
            if (other.nr, other.kind, other.ip) != (odd.nr, odd.kind, odd.ip) {
                return Difference::Call;
            }
            if let Some(index) = (0..6).find(|i| other.args[*i] != odd.args[*i]) {
                return Difference::Argument { index: u8::try_from(index).expect("below six") };
            }
            if other.bytes != odd.bytes {
                return Difference::Buffer { argument: 1, offset: None };
            }
            if other.sp != odd.sp {
                return Difference::Register { name: "rsp".into() };
            }
        }
        Difference::Stack
    }
}
