//! What this replica is in its group: a member or not, ready or not, draining, back from its log.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_crosscheck::{Index, Node};
use steadfast_group::gate::LetIn;
use steadfast_group::{Member, Met, Sequencer as _, Who};
use tokio::sync::oneshot;

use super::submit::IN_FLIGHT;
use super::{BEHIND_MAX, Body, DRAIN, LOST, SILENT, Service, Stage};
use crate::alive::Beat;
use crate::news::{self, News};
use crate::say;

/// A turn that loads a state of some GiB takes seconds.
const LONGEST_TURN: Duration = Duration::from_secs(10);
/// What a comparison says that f+1 replicas took part in.
const FINISHED: &str = "\"finished\":true";

/// How far this replica has executed, and for how long it has not gone on while others have.
pub(super) struct Watermark {
    executed: u64,
    stood: Duration,
    looked: Instant,
    /// Half of the limit is over, and somebody has been told.
    told: bool,
}

impl Watermark {
    pub(super) fn at(executed: u64) -> Self {
        Self {
            executed,
            stood: Duration::ZERO,
            looked: Instant::now(),
            told: false,
        }
    }
}

impl Service {
    /// A process that belongs to no group asks about this one's.
    pub(super) fn meet(&mut self, other: &Who) -> Met {
        let Some(mut gate) = self.gate.take() else {
            return Met::Refused("this is a group of --local".to_owned());
        };
        let json = self.json;
        let told = move |(slot, done): LetIn| match done {
            Ok(took) => {
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                crate::say::line(
                    json,
                    &format!(
                        "replica {slot} is a fresh process and belongs to the group after {took_ms} ms"
                    ),
                    &News::Joined {
                        replica: slot,
                        took_ms,
                    },
                );
            }
            Err(why) => crate::say::line(
                json,
                &format!("replica {slot} could not be let in: {why}"),
                &News::NotJoined {
                    replica: slot,
                    why: why.to_string(),
                },
            ),
        };
        let met = gate.meet(
            other,
            &self.members,
            |node| self.alive(node),
            &self.engine,
            told,
        );
        self.gate = Some(gate);
        met
    }

    pub(super) fn alive(&self, node: Node) -> bool {
        self.heard
            .get(&node)
            .is_some_and(|last| last.elapsed() < SILENT)
    }

    pub(super) fn end(&self, why: &str) -> ! {
        let event = News::Ended {
            replica: self.slot,
            why: why.to_owned(),
        };
        self.say(why, &event);
        say::exit(steadfast_contract::exit::Own::Setup);
    }

    /// Ends where the group can never agree on anything again: more than f of its processes have been followed by new ones.
    pub(super) fn end_if_lost(&mut self) {
        let is_member = self.is_member();
        let Some(slots) = self.gate.as_mut().and_then(|gate| gate.lost(is_member)) else {
            return;
        };
        let (lost, fix) = if self.durable {
            (
                "",
                "bring the others back with their --data; or stop all, and steadfast kv restore a backup",
            )
        } else {
            (
                ", and with it what was stored",
                "start it again (systemd does): when all are new they found a group",
            )
        };
        self.say(
            &format!(
                "replicas {slots:?} have begun anew at the same time: the group has lost its majority{lost}; replica {} ends\n  fix:   {fix}",
                self.slot
            ),
            &News::Lost {
                replica: self.slot,
                fresh: slots,
            },
        );
        say::exit(steadfast_contract::exit::Own::Setup);
    }

    /// Ends where this replica executes nothing of what the log has delivered while f+1 others go on: they do without it, and what holds it
    /// back here is nothing that they know of. Time in which they could not do without it does not count.
    pub(super) fn end_if_stalled(&mut self) {
        let Some(limit) = self.watchdog else { return };
        let mark = &mut self.watermark;
        let since = std::mem::replace(&mut mark.looked, Instant::now());
        if self.executed != mark.executed || self.queue.is_empty() {
            *mark = Watermark::at(self.executed);
            return;
        }
        let (executed, quorum) = (mark.executed, self.size / 2 + 1);
        let others = self.members.keys().filter(|node| **node != self.me);
        let alive = others.filter(|node| self.alive(**node)).count();
        if alive < quorum || self.core.further(Index(executed)) < quorum {
            return;
        }
        let mark = &mut self.watermark;
        mark.stood += since.elapsed();
        let (entry, stood) = (mark.executed + 1, mark.stood);
        let ends = stood >= limit;
        let warns = stood >= limit / 2 && !std::mem::replace(&mut mark.told, true);
        if !ends && !warns {
            return;
        }
        let standing = news::Standing {
            replica: self.slot,
            entry,
            waits_for: self.waits_for(),
        };
        let waits_for = standing.waits_for.join(", ");
        let (event, what) = if ends {
            (
                News::Stalled(standing),
                "it ends, for a fresh process to take its place".to_owned(),
            )
        } else {
            let what = format!("it ends at {} s", limit.as_secs());
            (News::Waits(standing), what)
        };
        self.say(
            &format!(
                "replica {} has executed nothing for {:.1} s, and the others have: {what}\n  waits: entry {entry}, for {waits_for}",
                self.slot,
                stood.as_secs_f64(),
            ),
            &event,
        );
        if ends {
            say::exit(steadfast_contract::exit::Own::Mismatch);
        }
    }

    /// Has a thread beside this one end the process if this one takes no turn any more. Nobody else here would notice.
    pub(super) fn watch(&self) -> Beat {
        let beat = Beat::default();
        let Some(limit) = self.watchdog else {
            return beat;
        };
        let limit = limit.max(LONGEST_TURN);
        let (slot, json) = (self.slot, self.json);
        let watches = beat.watch(limit, move || {
            say::line(
                json,
                &format!("replica {slot} has taken no turn for {} s: it ends, for a fresh process to take its place", limit.as_secs()),
                &News::Hung { replica: slot },
            );
            say::exit(steadfast_contract::exit::Own::Mismatch);
        });
        if let Err(why) = watches {
            self.end(&format!("replica {slot} cannot have a thread that watches it: {why}\n  fix:   ulimit -u, or pids.max of its cgroup"));
        }
        beat
    }

    /// Why this replica should not be given requests, if so.
    pub(super) fn unready(&self) -> Option<&'static str> {
        if !self.is_member() {
            Some("joining")
        } else if self.is_alone() {
            Some("mixed")
        } else if self.returning.is_some() || self.is_unproven() {
            Some("joining")
        } else if self.drain.is_some() {
            Some("draining")
        } else if self.engine.leader().is_none() {
            Some("no leader")
        } else if self.core.is_repairing() || !self.held.is_empty() {
            Some("repairing")
        } else if self.engine.behind(self.executed) > BEHIND_MAX {
            Some("behind")
        } else {
            None
        }
    }

    /// Orders the comparison of the next shard when it is due. Only the leader does; the others know by the log where it is.
    pub(super) fn scrub(&mut self) {
        let due = self
            .scrub_every
            .is_some_and(|every| self.scrub_at.elapsed() >= every);
        // An order is lost with the leader that had it.
        let asked = self.scrub_asked.is_some_and(|at| at.elapsed() < LOST);
        if due
            && !asked
            && self.engine.is_leader()
            && self.is_member()
            && !self.core.is_repairing()
            && self.unacked.len() < IN_FLIGHT
        {
            self.scrub_asked = Some(Instant::now());
            let shard = u16::try_from(self.scrub_next).unwrap_or(0);
            self.submit(Body::Scrub(shard, shard + 1), Vec::new(), false);
        }
    }

    /// Whether nothing of this replica's clients is under way any more.
    pub(super) fn drained(&mut self) {
        let others: Vec<Node> = self
            .members
            .keys()
            .copied()
            .filter(|node| *node != self.me && self.alive(*node))
            .collect();
        let leads = self.engine.is_leader();
        let idle = self.busy.load(Ordering::Relaxed) == 0
            && self.unacked.is_empty()
            && self.collecting.is_empty()
            && self.reads_are_idle();
        let Some(drain) = &mut self.drain else { return };
        let again = drain
            .handed_on
            .is_none_or(|at| at.elapsed() > Duration::from_secs(1));
        if leads
            && again
            && idle
            && let Some(to) = others.first()
        {
            drain.handed_on = Some(Instant::now());
            self.engine.transfer(*to);
        }
        let answer = if idle && (!leads || others.is_empty()) {
            "DRAINED"
        } else if drain.since.elapsed() > DRAIN {
            "ERROR some requests are still under way, or nobody takes the lead"
        } else {
            return;
        };
        for reply in drain.replies.drain(..) {
            let _ = reply.send(answer.to_owned());
        }
    }

    /// Whether fewer than f+1 members make digests as this one does, so that it has nobody to vote with.
    pub(super) fn is_alone(&self) -> bool {
        self.stage == Stage::Rdgx && self.is_member() && self.core.comparable() <= self.size / 2
    }

    /// Whether this process has a voice. One that was started again has none before its mark: about what it executes until then the others
    /// have voted long ago.
    pub(super) fn is_member(&self) -> bool {
        self.members.contains_key(&self.me)
            && self.returning.as_ref().is_none_or(|again| again.back)
    }

    /// Asks for a place in the log from which on this process, started again, votes. Once f+1 replicas vote, everything is compared: what it
    /// has executed until then without a voice may be wrong. Then it takes requests.
    pub(super) fn come_back(&mut self) {
        let votes = self.stage == Stage::Rdgx;
        let quorum = if votes { self.size / 2 + 1 } else { 1 };
        let leads = self.engine.leader().is_some();
        let idle = self.verify.is_none();
        let Some(again) = &mut self.returning else {
            return;
        };
        if !again.back || again.voters.len() < quorum {
            if leads && !std::mem::replace(&mut again.asked, leads) {
                self.submit(Body::Returned, Vec::new(), false);
            }
            return;
        }
        let ended = again.compared.as_mut().map(oneshot::Receiver::try_recv);
        match ended {
            _ if !votes => self.returning = None,
            Some(Ok(said)) if said.contains(FINISHED) => {
                self.returning = None;
                self.core.compared();
            }
            Some(Err(oneshot::error::TryRecvError::Empty)) => {}
            // Not yet, or not everybody has answered in time.
            _ if idle => {
                let (reply, compared) = oneshot::channel();
                again.compared = Some(compared);
                self.verify(reply);
            }
            _ => {}
        }
    }

    /// Whether something of this state was never voted on here: it is handed to nobody, and no request is taken until everything was compared.
    pub(super) fn is_unproven(&self) -> bool {
        self.stage == Stage::Rdgx && self.core.is_unvoted()
    }

    /// Compares everything once where something was never voted on here.
    pub(super) fn make_up(&mut self) {
        if !self.is_unproven() || self.returning.is_some() {
            self.made_up = None;
            return;
        }
        match self.made_up.as_mut().map(oneshot::Receiver::try_recv) {
            Some(Ok(said)) if said.contains(FINISHED) => self.core.compared(),
            Some(Err(oneshot::error::TryRecvError::Empty)) => {}
            _ if self.verify.is_none() && self.is_member() && self.engine.leader().is_some() => {
                let (reply, made_up) = oneshot::channel();
                self.made_up = Some(made_up);
                self.verify(reply);
            }
            _ => {}
        }
    }

    /// The mark of a process that was started again has come out of the log.
    pub(super) fn returned(&mut self, node: Node, index: Index) {
        self.core.returned(node, index);
        if let Some(again) = &mut self.returning
            && index.0 > again.last
        {
            again.back |= node == self.me;
            if self.core.is_comparable(node) {
                again.voters.insert(node);
            }
        }
        self.standing.send_replace(self.is_member());
    }

    pub(super) fn set_members(&mut self, index: u64, members: BTreeMap<Node, Member>) {
        let nodes: Vec<Node> = members.keys().copied().collect();
        self.core.set_members(&nodes, Index(index));
        self.heard.retain(|node, _| members.contains_key(node));
        self.peers.set(&members);
        if let Some(gate) = &mut self.gate {
            gate.members_changed(&self.members, &members);
        }
        self.members = members;
        self.keep_sessions();
        self.standing.send_replace(self.is_member());
    }

    /// Origins that are no members any more are forgotten.
    pub(super) fn keep_sessions(&mut self) {
        let origins: Vec<u64> = self.members.keys().map(|node| node.0).collect();
        self.store.keep_sessions(&origins);
    }
}
