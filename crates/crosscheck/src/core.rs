//! The vote on entries and the repair of objects, of one replica.
//!
//! An entry begins UNKNOWN. Digests of two replicas that differ make both SUSPECT; f+1 equal ones make their replicas VALID and every
//! other one FAILED ([`Core::status`], Table I and Fig. 2 of the paper, for any odd n). Where replicas differ they send what is behind
//! their digests, and the objects that differ become a [`crate::message::Recover`] in the log.
//!
//! A recovery is a place in the log at which every replica computes the digests of those objects anew, from their bytes. They are voted
//! on one by one, so it does not matter which replica was wrong, how many, or whether an entry in between has already healed one: this is
//! also the paper's answer to entries at which all differ (Section IV-D). Who is outvoted fetches the objects as they were at that place,
//! from one of those that agree, and takes only bytes with the digest that was voted for.
//!
//! Where no f+1 agree and nothing changed at rest, each runs the entry again on what its objects were before (`rerun`).
//!
//! Invariants
//!  1. `Release` and `ReleaseWith` come at most once an entry; what they let out is what f+1 replicas computed, or, where no f+1 agree
//!     and all that live have spoken, what those computed that found nothing wrong with their own objects, or what f+1 second runs say.
//!  2. An object is replaced only by bytes whose digest won its vote at that recovery.
//!  3. Everything that waits has a limit in ticks, and everything kept is dropped at the latest when it is reached.
//!
//! Not covered: execution. The caller holds back requests for objects of a recovery between [`Core::recover`] and `Action::Resume`.

mod action;
mod doubts;
mod recovery;
mod rerun;
mod votes;

use std::collections::{BTreeMap, BTreeSet};

use self::doubts::Doubts;
use self::recovery::{Recovery, are_about};
use self::votes::Vote;
use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Pair, Run, To};

pub use self::action::{Action, Objects, Standing, Status, refresh};

/// Ticks after which a question is asked again, of another replica.
const ASK_AGAIN_TICKS: u32 = 8;
/// Ticks after which an order that the log has not delivered is given again.
const ORDER_AGAIN_TICKS: u32 = 200;
/// Ticks for which an entry waits for replicas that say nothing.
const VOTE_TICKS: u32 = 2000;
/// Ticks after which a list is told again while the vote hangs.
const RETELL_TICKS: u32 = 32;
/// Bytes after which the rest of a repair waits for another question: an answer arrives before the question is asked again.
const REPAIR_BYTES: usize = 1 << 18;
/// How far ahead of the own execution digests are kept. Beyond it a replica has lost touch and is replaced.
const AHEAD_MAX: u64 = 1 << 16;

/// One replica's part of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Core {
    me: Node,
    epoch: u32,
    /// f+1 of the 2f+1 that the group was set up with.
    quorum: usize,
    /// Since which entry each takes part.
    members: BTreeMap<Node, Index>,
    gone: BTreeSet<Node>,
    /// Members whose digests are made in another way: they say nothing about who is wrong.
    others: BTreeSet<Node>,
    votes: BTreeMap<Index, Vote>,
    recoveries: BTreeMap<Index, Recovery>,
    doubts: Doubts,
    /// Objects in orders that the log has not delivered, and their age.
    ordered: BTreeMap<ObjectId, u32>,
    /// Objects that are known to be wrong here and that no recovery has looked at since.
    unrepaired: BTreeSet<ObjectId>,
    /// The last recovery that has looked at an object, as far as is remembered.
    covered: BTreeMap<ObjectId, Index>,
    highest: Index,
    /// Digests of the last entries that all have agreed on, for whoever is in doubt about one.
    agreed: BTreeMap<Index, u128>,
    /// Members that had said nothing of one of the last entries when its vote ended, where there were any.
    unheard: BTreeMap<Index, Vec<Node>>,
    /// Whether something was executed or taken over here that was not voted on here.
    unvoted: bool,
    /// Whether the caller can run an entry again on what its objects were before.
    reruns: bool,
    /// Winners of recoveries that are over.
    settled: BTreeMap<Index, Vec<Digest>>,
    unsent: Vec<(Index, u128)>,
    /// How many of these a member has been sent already.
    ahead: BTreeMap<Node, usize>,
    repairs_refused: u64,
    out: Vec<Action>,
}

impl Core {
    /// For a group of `size` replicas, an odd number.
    ///
    /// # Panics
    /// When `size` is even: the command line refuses that before.
    #[must_use]
    pub fn new(me: Node, size: usize, epoch: u32) -> Self {
        assert!(
            size % 2 == 1,
            "a vote needs an odd number of replicas, found {size}"
        );
        Self {
            me,
            epoch,
            quorum: size / 2 + 1,
            members: BTreeMap::from([(me, Index(0))]),
            gone: BTreeSet::new(),
            others: BTreeSet::new(),
            votes: BTreeMap::new(),
            recoveries: BTreeMap::new(),
            doubts: Doubts::default(),
            ordered: BTreeMap::new(),
            unrepaired: BTreeSet::new(),
            covered: BTreeMap::new(),
            highest: Index(0),
            agreed: BTreeMap::new(),
            unheard: BTreeMap::new(),
            unvoted: false,
            reruns: false,
            settled: BTreeMap::new(),
            unsent: Vec::new(),
            ahead: BTreeMap::new(),
            repairs_refused: 0,
            out: Vec::new(),
        }
    }

    /// Who takes part from entry `at` on. A member that was one before keeps its beginning.
    pub fn set_members(&mut self, nodes: &[Node], at: Index) {
        self.members.retain(|node, _| nodes.contains(node));
        for node in nodes {
            self.members.entry(*node).or_insert(at);
        }
        self.gone.retain(|node| nodes.contains(node));
        self.others.retain(|node| nodes.contains(node));
        self.highest = self.highest.max(at);
        self.look_again();
    }

    /// Whether a member's digests are made as here. One whose are not is neither waited for nor listened to.
    pub fn set_comparable(&mut self, node: Node, comparable: bool) {
        if comparable {
            self.others.remove(&node);
        } else if self.others.insert(node) {
            for vote in self.votes.values_mut() {
                vote.heard.remove(&node);
                vote.details.remove(&node);
                vote.again.remove(&node);
            }
            for recovery in self.recoveries.values_mut() {
                recovery.reports.remove(&node);
            }
            self.look_again();
        }
    }

    /// Whether a member's digests are made as here.
    #[must_use]
    pub fn is_comparable(&self, node: Node) -> bool {
        !self.others.contains(&node)
    }

    /// Members whose digests are made as here, this replica among them.
    #[must_use]
    pub fn comparable(&self) -> usize {
        let others = self
            .members
            .keys()
            .filter(|node| self.others.contains(node));
        self.members.len() - others.count()
    }

    /// The caller has taken another replica's state over, in place of its own: what was open up to there is about nothing any more.
    pub fn installed(&mut self, at: Index) {
        let old: Vec<Index> = self.votes.range(..=at).map(|(index, _)| *index).collect();
        for index in old {
            self.drop_vote(index);
        }
        self.recoveries.retain(|index, _| *index > at);
        self.unsent.clear();
        self.ahead.clear();
        self.ordered.clear();
        self.unrepaired.clear();
        self.covered.clear();
        self.doubts.clear();
        self.unvoted = true;
        self.highest = self.highest.max(at);
    }

    /// An entry was executed here without a voice.
    pub fn missed(&mut self) {
        self.unvoted = true;
    }

    /// A member has been started again and takes part anew, from entry `at` on: about what was before nobody waits for it.
    pub fn returned(&mut self, node: Node, at: Index) {
        if let Some(since) = self.members.get_mut(&node) {
            *since = at;
            self.gone.remove(&node);
            self.highest = self.highest.max(at);
            self.look_again();
        }
    }

    /// Whether a member can be reached. One that cannot is not waited for.
    pub fn set_alive(&mut self, node: Node, alive: bool) {
        let changed = if alive {
            self.gone.remove(&node)
        } else {
            node != self.me && self.members.contains_key(&node) && self.gone.insert(node)
        };
        if changed {
            self.look_again();
        }
    }

    /// What this replica knows about `node` at an entry. Entries that all agreed on are forgotten, hence VALID.
    #[must_use]
    pub fn status(&self, index: Index, node: Node) -> Status {
        let Some(vote) = self.votes.get(&index) else {
            return if index <= self.highest {
                Status::Valid
            } else {
                Status::Unknown
            };
        };
        let digests = vote.digests(self.me);
        let winner = winner(digests.iter().map(|(_, digest)| *digest), self.quorum);
        match (digests.iter().find(|(n, _)| *n == node), winner) {
            (None, _) => Status::Unknown,
            (Some((_, own)), Some(right)) if *own == right => Status::Valid,
            (Some(_), Some(_)) => Status::Failed,
            (Some((_, own)), None) if digests.iter().any(|(_, other)| other != own) => {
                Status::Suspect
            }
            (Some(_), None) => Status::Unknown,
        }
    }

    /// Entries that have been executed here and not been agreed on by all.
    #[must_use]
    pub fn open(&self) -> usize {
        self.votes
            .values()
            .filter(|vote| vote.mine.is_some())
            .count()
    }

    /// Whether this entry has been executed here and not been agreed on by all.
    #[must_use]
    pub fn is_open(&self, index: Index) -> bool {
        self.votes
            .get(&index)
            .is_some_and(|vote| vote.mine.is_some())
    }

    /// Members that have said nothing of an entry that was executed here, as far as is remembered: 4,096 entries that are over.
    #[must_use]
    pub fn unheard(&self, index: Index) -> Vec<Node> {
        match self.votes.get(&index) {
            Some(vote) => self.silent(vote),
            None => self.unheard.get(&index).cloned().unwrap_or_default(),
        }
    }

    fn silent(&self, vote: &Vote) -> Vec<Node> {
        let others = self.members.keys().filter(|node| **node != self.me);
        others
            .filter(|node| !vote.heard.contains_key(node))
            .copied()
            .collect()
    }

    /// Whether something was executed or taken over here that this replica had no vote on, and not everything was compared since: an entry that
    /// ended before f+1 had spoken, one from before it was a member, another replica's state.
    #[must_use]
    pub fn is_unvoted(&self) -> bool {
        self.unvoted
    }

    /// Everything has been compared with at least f others.
    pub fn compared(&mut self) {
        self.unvoted = false;
    }

    /// Other members that have said what came of a later entry than this one.
    #[must_use]
    pub fn further(&self, index: Index) -> usize {
        let later = self.votes.range(Index(index.0 + 1)..);
        let nodes: BTreeSet<&Node> = later.flat_map(|(_, vote)| vote.heard.keys()).collect();
        nodes.len()
    }

    /// Whether the state behind this entry may be handed to somebody: it may once f+1 replicas have had every entry up to here as this one.
    #[must_use]
    pub fn standing(&self, upto: Index) -> Standing {
        if self.is_repairing() {
            return Standing::Doubtful;
        }
        let mut standing = Standing::Agreed;
        for vote in self.votes.range(..=upto).map(|(_, vote)| vote) {
            let Some((mine, _)) = &vote.mine else {
                continue;
            };
            let digests = vote.digests(self.me);
            match winner(digests.iter().map(|(_, digest)| *digest), self.quorum) {
                Some(right) if right == *mine => {}
                // What differed was voted on again, object by object, and no recovery is open.
                _ if vote.blamed && vote.pending.is_empty() => {}
                None if !vote.told => standing = Standing::Open,
                _ => return Standing::Doubtful,
            }
        }
        standing
    }

    /// Whether a recovery is under way, here or for another replica.
    #[must_use]
    pub fn is_repairing(&self) -> bool {
        // Reports alone make no recovery: it is one once the log has it.
        self.recoveries
            .values()
            .any(|recovery| !recovery.resumed && recovery.reports.contains_key(&self.me))
            || !self.ordered.is_empty()
            || !self.unrepaired.is_empty()
    }

    /// Objects that have come in a REPAIR and did not have the digest that was voted for: none of them was taken.
    #[must_use]
    pub fn repairs_refused(&self) -> u64 {
        self.repairs_refused
    }

    /// Recoveries and votes that are not over, in words: for a report of what does not go on.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let votes = self.votes.iter().filter(|(_, vote)| vote.mine.is_some()).map(|(index, vote)| {
            format!(
                "entry {index}: heard {:?}, lists of {:?}, released {}, blamed {}, {} pending, right replies {}, asked {:?}, {} ticks old",
                vote.heard.keys().collect::<Vec<_>>(),
                vote.details.keys().collect::<Vec<_>>(),
                vote.released,
                vote.blamed,
                vote.pending.len(),
                vote.expected.is_some(),
                vote.asked,
                vote.age
            )
        });
        self.recoveries
            .iter()
            .map(|(index, recovery)| {
                format!(
                    "recovery {index}: {} objects, reports of {:?}, {} wrong here, source {:?}, asked {} times, {} ticks old",
                    recovery.objects.len(),
                    recovery.reports.keys().collect::<Vec<_>>(),
                    recovery.wrong.len(),
                    recovery.source,
                    recovery.asks,
                    recovery.age,
                )
            })
            .chain(votes)
            .collect()
    }

    /// What is to be done since the last call.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.out)
    }

    /// Another replica has said something.
    pub fn receive(&mut self, from: Node, message: Message, objects: &mut dyn Objects) {
        if from == self.me || !self.members.contains_key(&from) || self.others.contains(&from) {
            return;
        }
        match message {
            // Digests of another epoch say nothing about who is wrong.
            Message::Check { epoch, .. } if epoch != self.epoch => {}
            Message::Check { runs, epoch } => {
                for run in runs {
                    for (i, digest) in run.digests.into_iter().enumerate() {
                        let index = Index(run.first.0.saturating_add(i as u64));
                        if index.0 > self.highest.0.saturating_add(AHEAD_MAX) {
                            continue;
                        }
                        let vote = self.votes.entry(index).or_default();
                        vote.heard.insert(from, digest);
                        if vote
                            .details
                            .get(&from)
                            .is_some_and(|tuple| tuple.digest(epoch, index) != digest)
                        {
                            vote.details.remove(&from);
                        }
                        if vote.mine.is_some() {
                            self.look(index);
                        }
                    }
                }
            }
            Message::Detail {
                index,
                tuple,
                again,
            } => {
                if let Some(digest) = self.agreed.get(&index).copied() {
                    // The sender is in doubt about what all others agreed on, itself among them.
                    let runs = vec![Run {
                        first: index,
                        digests: vec![digest],
                    }];
                    let epoch = self.epoch;
                    self.send(To::One(from), Message::Check { epoch, runs });
                } else if index.0 <= self.highest.0.saturating_add(AHEAD_MAX) {
                    let digest = tuple.digest(self.epoch, index);
                    let vote = self.votes.entry(index).or_default();
                    // Its own list is what a replica is held to: a digest that was hit on the way is corrected by it.
                    vote.heard.insert(from, digest);
                    vote.details.insert(from, tuple);
                    if again && let Some((_, own)) = &vote.mine {
                        let (tuple, again) = (own.clone(), false);
                        self.send(
                            To::One(from),
                            Message::Detail {
                                index,
                                tuple,
                                again,
                            },
                        );
                    }
                    self.look(index);
                }
            }
            Message::Report {
                index,
                pairs,
                again,
            } => {
                if index.0 > self.highest.0.saturating_add(AHEAD_MAX) {
                    return;
                }
                if pairs.is_empty() {
                    self.denied(index, from);
                } else if let Some(winners) = self.settled.get(&index) {
                    // Over for all others; the sender missed why.
                    if again || *winners != pairs.iter().map(|pair| pair.digest).collect::<Vec<_>>()
                    {
                        let again = false;
                        let pairs = pairs
                            .iter()
                            .zip(winners)
                            .map(|(pair, digest)| Pair {
                                digest: *digest,
                                passive: false,
                                doubt: false,
                                unproven: false,
                                ..*pair
                            })
                            .collect();
                        self.send(
                            To::One(from),
                            Message::Report {
                                index,
                                pairs,
                                again,
                            },
                        );
                    }
                } else if index > self.highest || self.takes_part(index) {
                    let recovery = self.recoveries.entry(index).or_insert_with(Recovery::empty);
                    // One on other objects is about another recovery: its number was hit.
                    let known = recovery.reports.contains_key(&self.me);
                    if known && !are_about(&pairs, &recovery.objects) {
                        return;
                    }
                    recovery.reports.insert(from, pairs);
                    if again && let Some(pairs) = recovery.reports.get(&self.me).cloned() {
                        let again = false;
                        self.send(
                            To::One(from),
                            Message::Report {
                                index,
                                pairs,
                                again,
                            },
                        );
                    }
                    self.look_at_recovery(index);
                } else {
                    // The sender takes for a recovery what was none here: what it had of the log was hit. It may have said so before this
                    // replica came to that entry.
                    self.recoveries.remove(&index);
                    self.deny(index, from);
                }
            }
            Message::Fetch {
                index,
                objects: wanted,
            } => {
                if let Some(recovery) = self.recoveries.get(&index) {
                    let mut room = REPAIR_BYTES;
                    let found: Vec<_> = recovery
                        .objects
                        .iter()
                        .zip(&recovery.copies)
                        .filter(|(id, _)| wanted.contains(id))
                        .take_while(|(_, copy)| {
                            let has_room = room > 0;
                            room = room.saturating_sub(copy.as_ref().map_or(0, Vec::len));
                            has_room
                        })
                        .map(|(id, copy)| (*id, copy.clone()))
                        .collect();
                    self.send(
                        To::One(from),
                        Message::Repair {
                            index,
                            objects: found,
                        },
                    );
                }
            }
            Message::Repair {
                index,
                objects: bytes,
            } => self.store(index, from, &bytes, objects),
            // Replies are the caller's to keep, so it answers these; see `replies`.
            Message::FetchReplies { .. } => {}
            Message::Replies { index, replies } => self.take_replies(index, replies),
            Message::Reran { index, digest } => self.heard_again(index, from, digest),
        }
    }

    /// Time passes. A tick is a few milliseconds.
    pub fn tick(&mut self) {
        for age in self.ordered.values_mut() {
            *age += 1;
        }
        self.ordered.retain(|_, age| *age < ORDER_AGAIN_TICKS);

        self.votes_tick();
        self.recoveries_tick();
        self.repair();
        self.order();
    }

    fn send(&mut self, to: To, message: Message) {
        self.out.push(Action::Send(to, message));
    }

    /// Members from before an entry on whose digests are made as here, heard or not.
    fn comparable_since(&self, index: Index) -> impl Iterator<Item = Node> + '_ {
        let members = self.members.iter();
        members
            .filter(move |(node, since)| **since <= index && !self.others.contains(node))
            .map(|(node, _)| *node)
    }

    /// The members that have to speak about an entry.
    fn speakers(&self, index: Index) -> impl Iterator<Item = Node> + '_ {
        self.comparable_since(index)
            .filter(|node| !self.gone.contains(node))
    }
}

/// What at least `quorum` have.
fn winner<T: Copy + Eq>(values: impl Iterator<Item = T>, quorum: usize) -> Option<T> {
    let values: Vec<T> = values.collect();
    values
        .iter()
        .find(|value| values.iter().filter(|other| other == value).count() >= quorum)
        .copied()
}
