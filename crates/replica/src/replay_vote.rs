//! Replay vote: two replicas disagree, and the past is asked.
//!
//! ```text
//!   snapshot ──► two copies, on two cores ──► run against the log ──► their claims at the disputed event
//! ```
//!
//! Invariants
//!  1. Three of the four have to agree, so a core that always computes wrongly cannot win by being asked twice.
//!  2. Nothing that a re-run does leaves.
//!
//! Not covered: programs without a snapshot at hand. Nobody is blamed then.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use steadfast_sys::{child, procfs};

use crate::abi::{cmd, phase};
use crate::group::at;
use crate::supervise::Supervisor;
use crate::supervise::recovery::{ANSWER, DEAF};

/// Two runs from a snapshot to an event.
struct Reruns {
    slots: [usize; 2],
    snapshot: i32,
    seq: u64,
}

impl Supervisor<'_> {
    /// Who is wrong about an event, as a set, and how many events were run again to know it; everybody, if that cannot be
    /// known. Where one of the replicas is late there, re-runs have the time that it had, `late_ns`: if neither comes, or
    /// none to the same claim, the other replica is wrong.
    pub(crate) fn replay_vote(
        &mut self,
        seq: u64,
        paused: &[usize],
        late_ns: Option<u64>,
    ) -> (u32, u64) {
        let all = (1_u32 << self.replicas.len()) - 1;
        let from = self.group.get64(at!(snapshot_seq));
        if from == 0 || from > seq || self.group.get32(at!(snapshot_broken)) != 0 {
            return (all, 0);
        }
        let Some(reruns) = self.run_again(seq) else {
            return (all, 0);
        };
        let late = self.wait_for_reruns(&reruns, late_ns);
        let alone = late_ns.and_then(|_| {
            paused
                .iter()
                .copied()
                .find(|r| self.group.claim(*r, seq).is_some())
        });
        let losers = match alone {
            Some(r)
                if reruns
                    .slots
                    .iter()
                    .all(|slot| self.contradicts(&reruns, *slot, r, late)) =>
            {
                1 << r
            }
            Some(_)
                if reruns
                    .slots
                    .iter()
                    .any(|slot| self.group.claim(*slot, seq).is_none()) =>
            {
                all
            }
            _ => {
                self.group.set32(
                    at!(wait live),
                    reruns.slots.iter().fold(all, |set, slot| set | 1 << slot),
                );
                let losers = self.count(paused);
                self.group.set32(at!(wait live), all);
                losers
            }
        };
        self.end_reruns(&reruns);
        // Everybody losing includes the re-runs; only the replicas are ours to name.
        (losers & all, seq - from)
    }

    fn run_again(&mut self, seq: u64) -> Option<Reruns> {
        let n = self.replicas.len();
        let used: Vec<_> = self.replicas.iter().filter_map(|r| r.core).collect();
        let mut cores: Vec<_> = self
            .cores
            .iter()
            .filter(|c| !used.contains(c))
            .chain(&self.cores)
            .copied()
            .collect();
        cores.truncate(2);
        self.group.set64(at!(rerun_until), seq);
        let slots = [n + 1, n + 2];
        for (slot, core) in slots.iter().zip(cores.iter().cycle()) {
            self.group.clear_ring(*slot);
            self.group.set32(at!(slot * slot, phase), 0);
            self.group
                .command2(n, cmd::RERUN, *slot as u64, *core as u64);
            if !self.group.wait_until(ANSWER, || self.group.acknowledged(n)) {
                return None;
            }
        }
        // They are children of the last follower's child, which is the snapshot.
        Some(Reruns {
            slots,
            snapshot: procfs::only_child(self.replicas[n - 1].pid).unwrap_or(0),
            seq,
        })
    }

    fn is_out(&self, slot: usize) -> bool {
        self.group.phase(slot) != phase::PAUSED
    }

    /// Until both pause; or one has died; or all that are still out are late, which is the result.
    fn wait_for_reruns(&self, reruns: &Reruns, late_ns: Option<u64>) -> bool {
        // As long as the run since the snapshot took, and as much again, and a second.
        let limit = Duration::from_secs(3) + self.started.elapsed() * 2;
        // Who has died on the way has no vote, and is not waited for: seen for a while, since the
        // kernel's list of children is no snapshot (proc_tid_children(5)).
        let mut short: Option<Instant> = None;
        let (mut since, mut late) = (HashMap::new(), false);
        self.group.wait_until(limit, || {
            let there = reruns
                .slots
                .iter()
                .filter(|slot| !self.is_out(**slot))
                .count();
            let alive = procfs::children(reruns.snapshot)
                .into_iter()
                .filter(|pid| !procfs::has_ended(*pid))
                .count();
            if reruns.snapshot <= 1 || alive == 0 || alive > there {
                short = None;
            }
            late = late_ns.is_some_and(|ns| self.are_late(reruns, ns, &mut since));
            let given = there == reruns.slots.len() || late;
            given
                || alive > 0
                    && alive <= there
                    && short.get_or_insert_with(Instant::now).elapsed() > DEAF
        });
        late
    }

    /// Whether all that have not come to the event have had more time for it than `late_ns`.
    fn are_late(&self, reruns: &Reruns, late_ns: u64, since: &mut HashMap<i32, u64>) -> bool {
        let out: Vec<usize> = reruns
            .slots
            .iter()
            .copied()
            .filter(|slot| self.is_out(*slot))
            .collect();
        if out.is_empty() || out.iter().any(|slot| self.come_to(*slot) + 1 != reruns.seq) {
            return false;
        }
        let burned = procfs::children(reruns.snapshot)
            .into_iter()
            .filter_map(|pid| Some((pid, procfs::burned_ns(pid)?)));
        let late = burned
            .filter(|(pid, ns)| ns.saturating_sub(*since.entry(*pid).or_insert(*ns)) > late_ns);
        late.count() >= out.len()
    }

    /// Whether a re-run has come to the event with another claim than this replica, or is late where it should have come.
    fn contradicts(&self, reruns: &Reruns, slot: usize, r: usize, late: bool) -> bool {
        let claim = |slot| self.group.claim(slot, reruns.seq);
        if self.is_out(slot) {
            late
        } else {
            claim(slot).is_some_and(|own| Some(own) != claim(r))
        }
    }

    fn end_reruns(&self, reruns: &Reruns) {
        for slot in reruns.slots {
            if self.is_out(slot) {
                procfs::children(reruns.snapshot)
                    .into_iter()
                    .for_each(|pid| child::kill(pid, libc::SIGKILL));
            } else {
                self.group.command(slot, cmd::EXIT, 0);
            }
            self.group.set32(at!(slot slot, phase), 0);
        }
    }
}
