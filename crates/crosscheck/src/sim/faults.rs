//! Faults of each class, and when none may be made.

use std::collections::VecDeque;

use super::Group;
use super::service::Entry;
use crate::ids::Node;
use crate::message::Message;

/// Steps for which a replica may do nothing: thousands of messages of the others.
const SILENCE_MAX: u64 = 4000;

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The bytes of an object at rest.
    Object,
    /// The digest stored with an object.
    Digest,
    /// An object is gone.
    Lost,
    /// A request, between the log and its execution.
    Queue,
    /// A reply, between its execution and the vote.
    Reply,
    /// A digest in a CHECK.
    Check,
    /// An object list.
    Detail,
    /// A digest in a REPORT.
    Report,
    /// Bytes in a REPAIR.
    Repair,
    /// Bytes of replies that another replica asked for.
    Replies,
    /// A message is lost, as one that a connection had in it when it broke.
    Loss,
    /// A replica does nothing for a while, and nobody hears it: so slow is one whose machine is busy with something else.
    Silence,
    /// Every REPAIR to one replica, until that is replaced: what it receives with changes all that comes.
    Receiver,
}

impl Class {
    /// Each that leaves 2f others that have nothing wrong and speak. Beside a silent one only faults are stood that are evident; a receiver
    /// that changes everything is made once in a run.
    pub const ALL: [Self; 11] = [
        Self::Object,
        Self::Digest,
        Self::Lost,
        Self::Queue,
        Self::Reply,
        Self::Check,
        Self::Detail,
        Self::Report,
        Self::Repair,
        Self::Replies,
        Self::Loss,
    ];
}

impl Class {
    /// Its word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Digest => "digest",
            Self::Lost => "lost",
            Self::Queue => "queue",
            Self::Reply => "reply",
            Self::Check => "check",
            Self::Detail => "detail",
            Self::Report => "report",
            Self::Repair => "repair",
            Self::Replies => "replies",
            Self::Loss => "loss",
            Self::Silence => "silence",
            Self::Receiver => "receiver",
        }
    }
}

impl Group {
    pub(super) fn fault(&mut self) {
        let class = self.plan.classes[self.dice.below(self.plan.classes.len())];
        let who = self.dice.below(self.plan.size);
        // Where f have crashed nobody outvotes what is wrong at rest. What is wrong once, while it is computed, a second run shows.
        let crashed = self.plan.crash && self.replicas.iter().any(|r| r.crashed);
        if self.replicas[who].crashed || (crashed && class != Class::Queue) {
            return;
        }
        let bit = self.dice.next();
        let done = match class {
            // One that is being replaced is the one that may be wrong.
            Class::Object | Class::Lost | Class::Digest | Class::Queue if self.joining() => false,
            Class::Object | Class::Lost | Class::Digest => self.strike(who, class, bit),
            Class::Queue => {
                // Wrong in no object that is wrong elsewhere, which a changed key could be: only while all agree.
                let calm = self.is_calm() && (0..self.keys).all(|key| self.may_strike(who, key));
                // And in one replica at an entry, where nobody is left who outvotes two.
                let live = self.replicas.iter().filter(|replica| !replica.crashed);
                let calm = calm && live.map(|it| it.next).min() >= Some(self.computed);
                let before = self.replicas[who].next;
                if crashed && calm {
                    self.computed = before + 1;
                }
                if calm && matches!(self.log.get(before), Some(Entry::Batch(_))) {
                    self.execute(who, Some(bit));
                }
                self.replicas[who].next > before && calm
            }
            Class::Reply => {
                let last = self.replicas[who].replies.values_mut().next_back();
                last.and_then(|replies| replies.first_mut())
                    .is_some_and(|reply| flip(reply, bit))
            }
            Class::Check | Class::Detail | Class::Report | Class::Repair | Class::Replies => {
                self.strike_message(class, bit)
            }
            Class::Loss => {
                let from = self.dice.below(self.plan.size);
                let queue = self.network.get_mut(&(from, who));
                queue.and_then(VecDeque::pop_front).is_some()
            }
            Class::Receiver => {
                let made = self.receiver.is_none();
                self.receiver.get_or_insert((who, bit));
                made
            }
            Class::Silence if self.silent.is_some() || self.joining() => false,
            Class::Silence => {
                self.silence(who, bit);
                true
            }
        };
        if done {
            *self.outcome.faults.entry(class.name()).or_default() += 1;
        }
    }

    fn silence(&mut self, who: usize, bit: u64) {
        self.silent = Some((who, self.steps + 1 + bit % SILENCE_MAX));
        let node = self.replicas[who].node;
        self.heard(node, false);
    }

    /// The replica that did nothing goes on, if its time is over.
    pub(super) fn speak(&mut self, at: u64) {
        if let Some((who, until)) = self.silent
            && at >= until
        {
            self.silent = None;
            let node = self.replicas[who].node;
            self.heard(node, true);
        }
    }

    fn heard(&mut self, node: Node, alive: bool) {
        for replica in self.replicas.iter_mut().filter(|it| !it.crashed) {
            replica.core.set_alive(node, alive);
        }
        for other in 0..self.plan.size {
            self.act(other);
        }
    }

    /// Whether no object is wrong anywhere, and nothing is under way.
    fn is_calm(&self) -> bool {
        let live = || self.replicas.iter().filter(|replica| !replica.crashed);
        live().all(|replica| !replica.core.is_repairing() && replica.held.is_empty())
            && live().all(|replica| replica.store.0 == replica.shadow.0)
            && !self
                .log
                .iter()
                .skip(live().map(|r| r.next).min().unwrap_or(0))
                .any(|e| matches!(e, Entry::Recover(_)))
    }

    fn strike(&mut self, who: usize, class: Class, bit: u64) -> bool {
        let keys: Vec<u64> = self.replicas[who].store.0.keys().copied().collect();
        let Some(key) = keys
            .get(usize::try_from(bit >> 32).unwrap_or(0) % keys.len().max(1))
            .copied()
        else {
            return false;
        };
        if !self.may_strike(who, key) {
            return false;
        }
        let Some((value, digest)) = self.replicas[who].store.0.get_mut(&key) else {
            return false;
        };
        match class {
            Class::Object => flip(value, bit),
            Class::Digest => {
                digest.0 ^= 1 << (bit % 128);
                true
            }
            _ => self.replicas[who].store.0.remove(&key).is_some(),
        }
    }

    /// An object is wrong in one replica at a time, and at one entry: another replica's is struck once every replica has executed what
    /// was in the log when it was last found right everywhere.
    fn may_strike(&mut self, who: usize, key: u64) -> bool {
        let clean = self
            .replicas
            .iter()
            .all(|r| r.crashed || r.store.0.get(&key) == r.shadow.0.get(&key));
        let executed = self
            .replicas
            .iter()
            .filter(|r| !r.crashed)
            .map(|r| r.next)
            .min()
            .unwrap_or(0);
        let held = self
            .replicas
            .iter()
            .any(|r| r.held.values().flatten().any(|id| id.0 == u128::from(key)));
        let now = self.log.len();
        match self.struck.get_mut(&key) {
            Some((_, since)) if !clean || held => {
                *since = None;
                false
            }
            Some((victim, since)) if *victim == who && clean => {
                // Wrong once more: what was found right before says nothing.
                *since = None;
                true
            }
            Some((_, since @ None)) => {
                *since = Some(now);
                false
            }
            Some((_, Some(since))) if executed < *since => false,
            _ => {
                self.struck.insert(key, (who, None));
                clean
            }
        }
    }

    fn strike_message(&mut self, class: Class, bit: u64) -> bool {
        let pair = (
            self.dice.below(self.plan.size),
            self.dice.below(self.plan.size),
        );
        let Some(queue) = self.network.get_mut(&pair) else {
            return false;
        };
        for message in queue.iter_mut() {
            match (class, message) {
                (Class::Check, Message::Check { runs, .. }) => {
                    runs[0].digests[0] ^= 1 << (bit % 128);
                    return true;
                }
                (Class::Detail, Message::Detail { tuple, .. }) => {
                    if let Some(pair) = tuple.objects.first_mut() {
                        pair.digest.0 ^= 1 << (bit % 128);
                        return true;
                    }
                }
                (Class::Report, Message::Report { pairs, .. }) => {
                    if let Some(pair) = pairs.first_mut() {
                        pair.digest.0 ^= 1 << (bit % 128);
                        return true;
                    }
                }
                (Class::Repair, Message::Repair { objects, .. }) => {
                    if let Some((_, Some(bytes))) = objects.first_mut() {
                        return flip(bytes, bit);
                    }
                }
                (Class::Replies, Message::Replies { replies, .. }) => {
                    if let Some(reply) = replies.first_mut() {
                        return flip(reply, bit);
                    }
                }
                _ => {}
            }
        }
        false
    }
}

/// Strikes the first object of a REPAIR that has bytes.
pub(super) fn spoil(message: &mut Message, bit: u64) {
    if let Message::Repair { objects, .. } = message
        && let Some(bytes) = objects.iter_mut().find_map(|(_, bytes)| bytes.as_mut())
    {
        flip(bytes, bit);
    }
}

fn flip(bytes: &mut [u8], bit: u64) -> bool {
    let length = bytes.len() as u64 * 8;
    if length == 0 {
        return false;
    }
    let at = bit % length;
    bytes[usize::try_from(at / 8).unwrap_or(0)] ^= 1 << (at % 8);
    true
}
