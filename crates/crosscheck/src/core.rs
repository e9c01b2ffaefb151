//! The vote on entries and the repair of objects, of one replica.
//!
//! An entry begins UNKNOWN. Digests of two replicas that differ make both SUSPECT; f+1 equal ones make their replicas VALID and every
//! other one FAILED ([`Core::status`], Table I and Fig. 2 of the paper, for any odd n). Where replicas differ they send what is behind
//! their digests, and the objects that differ become a [`Recover`] in the log.
//!
//! A recovery is a place in the log at which every replica computes the digests of those objects anew, from their bytes. They are voted
//! on one by one, so it does not matter which replica was wrong, how many, or whether an entry in between has already healed one: this is
//! also the paper's answer to entries at which all differ (Section IV-D). Who is outvoted fetches the objects as they were at that place,
//! from one of those that agree, and takes only bytes with the digest that was voted for.
//!
//! Invariants
//!  1. `Release` and `ReleaseWith` come at most once an entry; what they let out is what f+1 replicas computed, or, where no f+1 agree
//!     and all that live have spoken, what those computed that found nothing wrong with their own objects.
//!  2. An object is replaced only by bytes whose digest won its vote at that recovery.
//!  3. Everything that waits has a limit in ticks, and everything kept is dropped at the latest when it is reached.
//!
//! Not covered: execution. The caller holds back requests for objects of a recovery between [`Core::recover`] and `Action::Resume`.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Pair, Recover, Run, To, Tuple};

/// Ticks after which a question is asked again, of another replica.
const ASK_AGAIN_TICKS: u32 = 8;
/// Ticks after which somebody else than the first in line orders a recovery.
const ORDER_TICKS: u32 = 4;
/// Ticks after which an order that the log has not delivered is given again.
const ORDER_AGAIN_TICKS: u32 = 200;
/// Ticks for which an entry waits for replicas that say nothing.
const VOTE_TICKS: u32 = 2000;
/// Ticks that a released entry keeps its replies for a replica that needs them.
const KEEP_TICKS: u32 = 400;
/// Ticks after which a list is told again while the vote hangs.
const RETELL_TICKS: u32 = 32;
/// Bytes after which the rest of a repair waits for another question: an answer arrives before the question is asked again.
const REPAIR_BYTES: usize = 1 << 18;
/// Agreed entries whose digests are kept.
const AGREED_MAX: usize = 4096;
/// Times that everybody looks again at objects on which no vote decides, before they count as stuck.
const LOOKS: usize = 4;
/// How far ahead of the own execution digests are kept. Beyond it a replica has lost touch and is replaced.
const AHEAD_MAX: u64 = 1 << 16;

/// What a replica knows about another, or itself, at one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Not verified.
    Unknown,
    /// Somebody is wrong, nobody knows who.
    Suspect,
    /// As f+1 replicas have it.
    Valid,
    /// f+1 replicas have it otherwise.
    Failed,
}

/// What is known about the state behind an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// f+1 replicas have it so.
    Agreed,
    /// Not all have said so far what they have.
    Open,
    /// Something in it differs, or is being repaired.
    Doubtful,
}

/// What the caller is asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Tell another replica.
    Send(To, Message),
    /// The replies of this entry may leave. These are the digests of what leaves: compare before it does.
    Release(Index, Vec<Digest>),
    /// Some own replies of this entry were wrong: these may leave in their place. Where there is none the own one is right; the digests are
    /// those of what leaves.
    ReleaseWith(Index, Vec<(Option<Vec<u8>>, Digest)>),
    /// Nobody can tell what the right replies are: answer with an error.
    Undecided(Index),
    /// Nobody will ask for the replies of this entry any more.
    Forget(Index),
    /// Put this into the log.
    Order(Recover),
    /// Replicas differ at this entry.
    Mismatch(Index),
    /// These replicas are wrong at this entry, on these objects.
    Blame {
        /// The entry.
        index: Index,
        /// Who.
        nodes: Vec<Node>,
        /// On what; empty if only replies differ.
        objects: Vec<ObjectId>,
    },
    /// An own object was wrong and is right now.
    Repaired {
        /// The recovery.
        index: Index,
        /// What was repaired.
        object: ObjectId,
        /// The bytes that were wrong, packed.
        was: Option<Vec<u8>>,
        /// The bytes that are right.
        is: Option<Vec<u8>>,
        /// The object changed while nobody used it.
        passive: bool,
        /// From whom.
        source: Node,
    },
    /// Nothing of this recovery holds requests back any longer.
    Resume(Index),
    /// No vote and no evidence decides on these objects: they stay held.
    Stuck(Index, Vec<ObjectId>),
    /// This replica cannot be repaired by others: replace it.
    Replace(Node, &'static str),
}

/// The objects of the service, by their numbers.
pub trait Objects {
    /// The object as bytes, the same in every replica; nothing if there is none.
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>>;

    /// Whether the digest that is stored with the object fits its bytes.
    fn intact(&self, object: ObjectId) -> bool;

    /// Makes the object what these bytes say, or removes it.
    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>);
}

#[derive(Debug, Default)]
struct Vote {
    mine: Option<(u128, Tuple)>,
    heard: BTreeMap<Node, u128>,
    details: BTreeMap<Node, Tuple>,
    released: bool,
    told: bool,
    blamed: bool,
    /// Objects that replicas differ on and that no recovery has looked at since.
    pending: BTreeSet<ObjectId>,
    /// The digests of the right replies, once known to differ from the own.
    expected: Option<Vec<Digest>>,
    /// Those that other replicas have sent.
    gathered: BTreeMap<usize, Vec<u8>>,
    asked: Option<u32>,
    asks: usize,
    age: u32,
}

#[derive(Debug)]
struct Recovery {
    objects: Vec<ObjectId>,
    /// As they were at this place of the log, for others.
    copies: Vec<Option<Vec<u8>>>,
    reports: BTreeMap<Node, Vec<Pair>>,
    /// Who has executed something else at this place.
    denied: BTreeSet<Node>,
    /// Winners of the votes, object by object.
    winners: Vec<Option<Digest>>,
    wrong: BTreeSet<usize>,
    resumed: bool,
    stuck: bool,
    asked: Option<u32>,
    source: Option<Node>,
    asks: usize,
    age: u32,
}

/// One replica's part of the protocol.
#[derive(Debug)]
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
    /// Objects in orders that the log has not delivered, and their age.
    ordered: BTreeMap<ObjectId, u32>,
    highest: Index,
    /// Digests of the last entries that all have agreed on, for whoever is in doubt about one.
    agreed: BTreeMap<Index, u128>,
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
            ordered: BTreeMap::new(),
            highest: Index(0),
            agreed: BTreeMap::new(),
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

    /// An entry has been executed: what it touched, and its replies. Its replies stay until `Release`.
    pub fn executed(&mut self, index: Index, tuple: Tuple) {
        let digest = tuple.digest(self.epoch, index);
        self.highest = self.highest.max(index);
        self.unsent.push((index, digest));
        let vote = self.votes.entry(index).or_default();
        vote.mine = Some((digest, tuple));
        self.look(index);
    }

    /// Sends what [`Core::executed`] has collected to everybody who has not been sent it.
    pub fn flush(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        if self.ahead.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            self.check(To::All, unsent);
            return;
        }
        let others: Vec<Node> = self.members.keys().copied().collect();
        for node in others {
            self.flush_to(node);
        }
        self.unsent.clear();
        self.ahead.clear();
    }

    /// Sends it to one that waits for it. The others may be told later, together with what comes meanwhile.
    pub fn flush_to(&mut self, node: Node) {
        let from = self.ahead.get(&node).copied().unwrap_or(0);
        if node == self.me || from >= self.unsent.len() {
            return;
        }
        let unsent = self.unsent[from..].to_vec();
        self.ahead.insert(node, self.unsent.len());
        self.check(To::One(node), unsent);
    }

    fn check(&mut self, to: To, mut unsent: Vec<(Index, u128)>) {
        unsent.sort_unstable_by_key(|(index, _)| *index);
        let mut runs: Vec<Run> = Vec::new();
        for (index, digest) in unsent {
            match runs.last_mut() {
                Some(run) if run.first.0 + run.digests.len() as u64 == index.0 => {
                    run.digests.push(digest)
                }
                _ => runs.push(Run {
                    first: index,
                    digests: vec![digest],
                }),
            }
        }
        let epoch = self.epoch;
        self.send(to, Message::Check { epoch, runs });
    }

    /// A recovery has come out of the log: looks at its objects, tells the others, and holds requests for them back until `Resume`.
    pub fn recover(&mut self, index: Index, recover: &Recover, objects: &dyn Objects) {
        self.highest = self.highest.max(index);
        let copies: Vec<_> = recover.objects.iter().map(|id| objects.pack(*id)).collect();
        let pairs: Vec<Pair> = recover
            .objects
            .iter()
            .zip(&copies)
            .map(|(id, packed)| Pair {
                object: *id,
                digest: Digest::of_packed(packed.as_deref()),
                passive: !objects.intact(*id),
            })
            .collect();
        for id in &recover.objects {
            self.ordered.remove(id);
        }
        for (_, vote) in self.votes.range_mut(..index) {
            for id in &recover.objects {
                vote.pending.remove(id);
            }
        }
        let recovery = self.recoveries.entry(index).or_insert_with(Recovery::empty);
        recovery.objects.clone_from(&recover.objects);
        recovery
            .reports
            .retain(|_, pairs| are_about(pairs, &recover.objects));
        recovery.copies = copies;
        recovery.winners = vec![None; recover.objects.len()];
        recovery.reports.insert(self.me, pairs.clone());
        self.send(
            To::All,
            Message::Report {
                index,
                pairs,
                again: false,
            },
        );
    }

    /// Votes on the recoveries that have come out of the log, and repairs.
    pub fn repair(&mut self) {
        let open: Vec<Index> = self.recoveries.keys().copied().collect();
        for index in open {
            self.look_at_recovery(index);
        }
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
                } else if self.recoveries.contains_key(&index) || index > self.highest {
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
                } else if again {
                    // The sender takes for a recovery what was none here: what it had of the log was hit.
                    let (pairs, again) = (Vec::new(), false);
                    self.send(
                        To::One(from),
                        Message::Report {
                            index,
                            pairs,
                            again,
                        },
                    );
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
        }
    }

    /// Time passes. A tick is a few milliseconds.
    pub fn tick(&mut self) {
        for age in self.ordered.values_mut() {
            *age += 1;
        }
        self.ordered.retain(|_, age| *age < ORDER_AGAIN_TICKS);

        let mut again = Vec::new();
        let mut over = Vec::new();
        for (index, vote) in &mut self.votes {
            vote.age += 1;
            if let Some(asked) = &mut vote.asked {
                *asked += 1;
            }
            let unused = vote.mine.is_none() && *index < self.highest && vote.age > KEEP_TICKS;
            if unused || vote.age > VOTE_TICKS {
                over.push(*index);
            } else if vote.told
                || (!vote.released && vote.mine.is_some() && vote.age >= RETELL_TICKS)
                || vote
                    .heard
                    .values()
                    .any(|digest| Some(digest) != vote.mine.as_ref().map(|(own, _)| own))
            {
                again.push(*index);
            }
        }
        for index in over {
            if let Some(vote) = self.votes.get(&index)
                && vote.mine.is_some()
                && !vote.released
            {
                self.out.push(Action::Undecided(index));
            }
            self.drop_vote(index);
        }
        // What a broken connection has swallowed is told and asked for again.
        for index in &again {
            if let Some(vote) = self.votes.get(index)
                && !vote.released
                && vote.age.is_multiple_of(RETELL_TICKS)
                && let Some((_, own)) = &vote.mine
            {
                let (index, tuple, again) = (*index, own.clone(), true);
                self.send(
                    To::All,
                    Message::Detail {
                        index,
                        tuple,
                        again,
                    },
                );
            }
        }
        for index in again {
            self.look(index);
        }
        for recovery in self.recoveries.values_mut() {
            recovery.age += 1;
            if let Some(asked) = &mut recovery.asked {
                *asked += 1;
            }
        }
        let me = self.me;
        let highest = self.highest;
        let over: Vec<Index> = self
            .recoveries
            .iter()
            .filter(|(index, recovery)| {
                if recovery.reports.contains_key(&me) {
                    recovery.age >= VOTE_TICKS && recovery.resumed
                } else {
                    // Reports on an entry that was no recovery: the number in them was hit.
                    recovery.age >= VOTE_TICKS && **index <= highest
                }
            })
            .map(|(index, _)| *index)
            .collect();
        for index in over {
            if let Some(recovery) = self.recoveries.remove(&index)
                && recovery.resumed
            {
                self.settle(index, recovery);
            }
        }
        // A report that a broken connection has swallowed is asked for.
        let waiting: Vec<(Index, Vec<Pair>)> = self
            .recoveries
            .iter()
            .filter(|(index, recovery)| {
                // Less and less often: a network that is behind is not helped by more of it.
                recovery.age >= RETELL_TICKS
                    && recovery.age.is_power_of_two()
                    && self
                        .speakers(**index)
                        .any(|node| !recovery.reports.contains_key(&node))
            })
            .filter_map(|(index, recovery)| Some((*index, recovery.reports.get(&me)?.clone())))
            .collect();
        for (index, pairs) in waiting {
            let again = true;
            self.send(
                To::All,
                Message::Report {
                    index,
                    pairs,
                    again,
                },
            );
        }
        self.repair();
    }

    fn send(&mut self, to: To, message: Message) {
        self.out.push(Action::Send(to, message));
    }

    fn drop_vote(&mut self, index: Index) {
        if let Some(vote) = self.votes.remove(&index)
            && vote.mine.is_some()
        {
            self.out.push(Action::Forget(index));
        }
    }

    /// The members that have to speak about an entry.
    fn speakers(&self, index: Index) -> impl Iterator<Item = Node> + '_ {
        self.members
            .iter()
            .filter(move |(node, since)| {
                **since <= index && !self.gone.contains(node) && !self.others.contains(node)
            })
            .map(|(node, _)| *node)
    }

    fn look_again(&mut self) {
        let open: Vec<Index> = self
            .votes
            .iter()
            .filter(|(_, vote)| vote.mine.is_some())
            .map(|(index, _)| *index)
            .collect();
        for index in open {
            self.look(index);
        }
    }

    /// What can be said about one entry now.
    fn look(&mut self, index: Index) {
        let me = self.me;
        let quorum = self.quorum;
        let speakers: Vec<Node> = self.speakers(index).collect();
        let epoch = self.epoch;
        let Some(vote) = self.votes.get_mut(&index) else {
            return;
        };
        let Some((kept, own)) = &mut vote.mine else {
            return;
        };
        // A kept digest may have been hit itself: where it stands alone, what it was made from is asked once more.
        if vote.heard.values().any(|digest| digest != kept) {
            *kept = own.digest(epoch, index);
        }
        let Some((mine, own)) = &vote.mine else {
            return;
        };
        let mine = *mine;
        let digests = vote.digests(me);
        let differ = digests.iter().any(|(_, digest)| *digest != mine);
        let winner_digest = winner(digests.iter().map(|(_, digest)| *digest), quorum);

        if winner_digest == Some(mine) && !vote.released {
            vote.released = true;
            self.out.push(Action::Release(index, own.replies.clone()));
        }
        let all_heard = speakers
            .iter()
            .all(|node| *node == me || vote.heard.contains_key(node));
        if !differ {
            if all_heard && vote.released {
                self.drop_vote(index);
                self.agreed.insert(index, mine);
                if self.agreed.len() > AGREED_MAX {
                    self.agreed.pop_first();
                }
            }
            return;
        }

        if !vote.told {
            vote.told = true;
            let tuple = own.clone();
            self.out.push(Action::Mismatch(index));
            self.out.push(Action::Send(
                To::All,
                Message::Detail {
                    index,
                    tuple,
                    again: false,
                },
            ));
        }
        // Lists of all that differ, or of all that live where nobody has won.
        let Some(vote) = self.votes.get_mut(&index) else {
            return;
        };
        let Some((_, own)) = &vote.mine else { return };
        let mut lists: Vec<(Node, &Tuple)> = vote
            .details
            .iter()
            .map(|(node, tuple)| (*node, tuple))
            .collect();
        lists.push((me, own));
        lists.sort_unstable_by_key(|(node, _)| *node);
        let right: Vec<Node> = match winner_digest {
            Some(digest) => digests
                .iter()
                .filter(|(_, d)| *d == digest)
                .map(|(node, _)| *node)
                .collect(),
            None if all_heard
                && speakers
                    .iter()
                    .all(|node| lists.iter().any(|(n, _)| n == node)) =>
            {
                // Nobody has a majority and all have spoken: those that found their own objects intact, if they agree.
                let clean: Vec<&(Node, &Tuple)> = lists
                    .iter()
                    .filter(|(_, tuple)| tuple.objects.iter().all(|pair| !pair.passive))
                    .collect();
                let same = clean.windows(2).all(|two| {
                    two[0].1.digest(self.epoch, index) == two[1].1.digest(self.epoch, index)
                });
                // A majority for each reply says more than that.
                let by_reply = (0..own.replies.len()).all(|k| {
                    winner(
                        lists.iter().filter_map(|(_, list)| list.replies.get(k)),
                        quorum,
                    )
                    .is_some()
                });
                // Unless it is one of replicas that all lost the same object, each in its own way, and those that did not say otherwise.
                let touched: BTreeSet<ObjectId> = lists
                    .iter()
                    .flat_map(|(_, list)| list.objects.iter().map(|pair| pair.object))
                    .collect();
                let lost: BTreeSet<ObjectId> = touched
                    .into_iter()
                    .filter(|id| {
                        winner(lists.iter().map(|(_, list)| list.of(*id)), quorum).is_none()
                    })
                    .collect();
                let is_hit = |list: &Tuple| {
                    list.objects
                        .iter()
                        .any(|pair| pair.passive && lost.contains(&pair.object))
                };
                let contradicted = (0..own.replies.len()).any(|k| {
                    let chosen = winner(
                        lists.iter().filter_map(|(_, list)| list.replies.get(k)),
                        quorum,
                    );
                    !clean.is_empty()
                        && lists
                            .iter()
                            .filter(|(_, list)| list.replies.get(k) == chosen)
                            .all(|(_, list)| is_hit(list))
                });
                if (!by_reply || contradicted) && same && !clean.is_empty() && lists.len() >= quorum
                {
                    clean.iter().map(|(node, _)| *node).collect()
                } else {
                    Vec::new()
                }
            }
            None => return,
        };
        let reference = lists
            .iter()
            .find(|(node, _)| right.contains(node))
            .map(|(_, tuple)| *tuple);

        // Which objects differ.
        let mut objects: BTreeSet<ObjectId> = BTreeSet::new();
        let mut blamed = Vec::new();
        match reference {
            Some(reference) => {
                for (node, list) in lists.iter().filter(|(node, _)| !right.contains(node)) {
                    blamed.push(*node);
                    objects.extend(differences(reference, list));
                }
            }
            None => {
                for (_, list) in &lists {
                    objects.extend(differences(lists[0].1, list));
                }
            }
        }

        // The right replies: of the winners, or reply by reply.
        let expected: Option<Vec<Digest>> = match reference {
            Some(reference) => Some(reference.replies.clone()),
            None if winner_digest.is_none() => (0..own.replies.len())
                .map(|k| {
                    winner(
                        lists
                            .iter()
                            .filter_map(|(_, list)| list.replies.get(k).copied()),
                        quorum,
                    )
                })
                .collect(),
            None => None,
        };
        let own_replies = own.replies.clone();
        // Who has the first reply that is still missing.
        let missing = expected.as_ref().and_then(|expected| {
            (0..expected.len()).find(|k| {
                own_replies.get(*k) != Some(&expected[*k]) && !vote.gathered.contains_key(k)
            })
        });
        let sources: Vec<Node> = lists
            .iter()
            .filter(|(node, list)| {
                let has = missing.is_some_and(|k| {
                    list.replies.get(k) == expected.as_ref().and_then(|expected| expected.get(k))
                });
                *node != me && has && !self.gone.contains(node)
            })
            .map(|(node, _)| *node)
            .collect();
        let told_all = speakers
            .iter()
            .all(|node| *node == me || right.contains(node) || vote.details.contains_key(node));

        if !vote.blamed && reference.is_some() && !blamed.is_empty() && told_all {
            vote.blamed = true;
            vote.pending = objects.clone();
            self.out.push(Action::Blame {
                index,
                nodes: blamed,
                objects: objects.iter().copied().collect(),
            });
        } else if !vote.blamed && reference.is_none() && winner_digest.is_none() {
            vote.blamed = true;
            vote.pending = objects.clone();
        }
        if !vote.released {
            match expected {
                Some(expected) if expected == own_replies => {
                    vote.released = true;
                    self.out.push(Action::Release(index, own_replies));
                }
                Some(expected) => {
                    vote.expected = Some(expected);
                    if !sources.is_empty()
                        && vote.asked.is_none_or(|ticks| ticks >= ASK_AGAIN_TICKS)
                    {
                        let source = sources[vote.asks % sources.len()];
                        vote.asks += 1;
                        vote.asked = Some(0);
                        self.out.push(Action::Send(
                            To::One(source),
                            Message::FetchReplies { index },
                        ));
                    }
                }
                None if winner_digest.is_none() => {
                    vote.released = true;
                    self.out.push(Action::Undecided(index));
                }
                None => {}
            }
        }

        // Orders a recovery of what no order covers yet. The first of the right ones does it at once, the others if nothing comes.
        let leads = if right.is_empty() {
            speakers.first()
        } else {
            right.first()
        } == Some(&me);
        let open: Vec<ObjectId> = vote
            .pending
            .iter()
            .copied()
            .filter(|id| !self.ordered.contains_key(id))
            .collect();
        if !open.is_empty() && (leads || vote.age >= ORDER_TICKS) {
            for id in &open {
                self.ordered.insert(*id, 0);
            }
            self.out.push(Action::Order(Recover {
                cause: index,
                objects: open,
            }));
        }

        // Nothing is left to be found out; the replies stay a while for whoever still needs them.
        if vote.released
            && all_heard
            && told_all
            && vote.pending.is_empty()
            && vote.age > KEEP_TICKS
        {
            self.drop_vote(index);
        }
    }

    /// The replies that another replica has sent, if they are the right ones.
    fn take_replies(&mut self, index: Index, replies: Vec<Vec<u8>>) {
        let Some(vote) = self.votes.get_mut(&index) else {
            return;
        };
        let Some(expected) = &vote.expected else {
            return;
        };
        if vote.released {
            return;
        }
        let own = vote
            .mine
            .as_ref()
            .map_or(&[][..], |(_, own)| own.replies.as_slice());
        for (k, reply) in replies.into_iter().enumerate() {
            let right = expected.get(k).copied();
            if right != own.get(k).copied() && right == Some(Digest::of(&reply)) {
                vote.gathered.insert(k, reply);
            }
        }
        let complete = (0..expected.len())
            .all(|k| own.get(k) == Some(&expected[k]) || vote.gathered.contains_key(&k));
        if complete {
            vote.released = true;
            let expected = expected.clone();
            let replies = (0..expected.len()).map(|k| vote.gathered.remove(&k));
            let replies = replies.zip(expected).collect();
            self.out.push(Action::ReleaseWith(index, replies));
        } else {
            // Of another replica, at once.
            vote.asked = None;
        }
        self.look(index);
    }

    fn look_at_recovery(&mut self, index: Index) {
        let me = self.me;
        let quorum = self.quorum;
        let speakers: Vec<Node> = self.speakers(index).collect();
        let Some(recovery) = self.recoveries.get_mut(&index) else {
            return;
        };
        if !recovery.reports.contains_key(&me) {
            return;
        }
        let all = speakers
            .iter()
            .all(|node| recovery.reports.contains_key(node));
        let mut undecided = Vec::new();
        for i in 0..recovery.objects.len() {
            if recovery.winners[i].is_some() {
                continue;
            }
            let reports: Vec<(Node, Pair)> = recovery
                .reports
                .iter()
                .filter_map(|(node, pairs)| pairs.get(i).map(|pair| (*node, *pair)))
                .collect();
            let mut right = winner(reports.iter().map(|(_, pair)| pair.digest), quorum);
            if right.is_none() && all && reports.len() >= quorum {
                let clean: Vec<Digest> = reports
                    .iter()
                    .filter(|(_, pair)| !pair.passive)
                    .map(|(_, pair)| pair.digest)
                    .collect();
                if let Some(first) = clean.first()
                    && clean.iter().all(|digest| digest == first)
                {
                    right = Some(*first);
                }
            }
            match right {
                Some(digest) => {
                    recovery.winners[i] = Some(digest);
                    if recovery.reports[&me][i].digest != digest {
                        recovery.wrong.insert(i);
                    }
                }
                None => undecided.push(recovery.objects[i]),
            }
        }
        if !undecided.is_empty()
            && all
            && recovery.asked.is_none_or(|ticks| ticks >= ASK_AGAIN_TICKS)
        {
            // Every list is told anew: one that was hit on its way is another one now (Section IV-D: recompute and exchange).
            recovery.asked = Some(0);
            recovery.asks += 1;
            if recovery.asks > LOOKS && !recovery.stuck {
                recovery.stuck = true;
                self.out.push(Action::Stuck(index, undecided.clone()));
            }
            for (pair, packed) in recovery
                .reports
                .get_mut(&me)
                .into_iter()
                .flatten()
                .zip(&recovery.copies)
            {
                pair.digest = Digest::of_packed(packed.as_deref());
            }
            if let Some(pairs) = recovery.reports.get(&me).cloned() {
                let again = true;
                self.out.push(Action::Send(
                    To::All,
                    Message::Report {
                        index,
                        pairs,
                        again,
                    },
                ));
            }
        }
        if !recovery.wrong.is_empty() {
            // Longer each time, and all of it shorter than the others keep their copies.
            let patience = ASK_AGAIN_TICKS << recovery.asks.min(4);
            if recovery.asked.is_none_or(|ticks| ticks >= patience) {
                // A source for the first wrong object, and with it for all on which that source is right.
                let is_right = |node: &Node, i: usize| {
                    recovery
                        .reports
                        .get(node)
                        .and_then(|pairs| pairs.get(i))
                        .map(|pair| pair.digest)
                        == recovery.winners[i]
                };
                let Some(first) = recovery.wrong.iter().next().copied() else {
                    return;
                };
                let sources: Vec<Node> = recovery
                    .reports
                    .keys()
                    .copied()
                    .filter(|node| *node != me && is_right(node, first))
                    .collect();
                if sources.is_empty() {
                    return;
                }
                if recovery.asks > 4 * self.members.len() {
                    recovery.asked = Some(0);
                    self.out
                        .push(Action::Replace(me, "no other replica could repair it"));
                    return;
                }
                let source = sources[recovery.asks % sources.len()];
                let wanted: Vec<ObjectId> = recovery
                    .wrong
                    .iter()
                    .filter(|i| is_right(&source, **i))
                    .map(|i| recovery.objects[*i])
                    .collect();
                recovery.asks += 1;
                recovery.asked = Some(0);
                recovery.source = Some(source);
                self.out.push(Action::Send(
                    To::One(source),
                    Message::Fetch {
                        index,
                        objects: wanted,
                    },
                ));
            }
            return;
        }
        if undecided.is_empty() && !recovery.resumed {
            recovery.resumed = true;
            self.out.push(Action::Resume(index));
        }
        let healed = recovery.resumed
            && speakers.iter().all(|node| {
                recovery.reports.get(node).is_some_and(|pairs| {
                    pairs
                        .iter()
                        .zip(&recovery.winners)
                        .all(|(pair, right)| Some(pair.digest) == *right)
                })
            });
        if healed && let Some(recovery) = self.recoveries.remove(&index) {
            self.settle(index, recovery);
        }
    }

    /// Another replica knows of no recovery there. What f+1 of them know nothing of holds nothing back here either: what differs is found
    /// by the vote on that entry.
    fn denied(&mut self, index: Index, from: Node) {
        let speakers: Vec<Node> = self.speakers(index).collect();
        let Some(recovery) = self.recoveries.get_mut(&index) else {
            return;
        };
        recovery.denied.insert(from);
        let deniers = speakers
            .iter()
            .filter(|node| recovery.denied.contains(node));
        if deniers.count() < self.quorum || !recovery.reports.contains_key(&self.me) {
            return;
        }
        if !recovery.resumed {
            self.out.push(Action::Resume(index));
        }
        self.recoveries.remove(&index);
    }

    /// A recovery is over here; who asks is told what won.
    fn settle(&mut self, index: Index, recovery: Recovery) {
        self.settled
            .insert(index, recovery.winners.into_iter().flatten().collect());
        if self.settled.len() > AGREED_MAX {
            self.settled.pop_first();
        }
    }

    /// Objects from another replica: stored where they are the ones that were voted for.
    fn store(
        &mut self,
        index: Index,
        from: Node,
        bytes: &[(ObjectId, Option<Vec<u8>>)],
        objects: &mut dyn Objects,
    ) {
        let me = self.me;
        let Some(recovery) = self.recoveries.get_mut(&index) else {
            return;
        };
        let mut repaired: Vec<(ObjectId, Option<Vec<u8>>)> = Vec::new();
        for (id, packed) in bytes {
            let Some(i) = recovery.objects.iter().position(|o| o == id) else {
                continue;
            };
            if !recovery.wrong.contains(&i) {
                continue;
            }
            if Some(Digest::of_packed(packed.as_deref())) != recovery.winners[i] {
                self.repairs_refused += 1;
                continue;
            }
            let was = objects.pack(*id);
            objects.replace(*id, packed.as_deref());
            // From the bytes that are stored now, not from those that came.
            let now = objects.pack(*id);
            if Some(Digest::of_packed(now.as_deref())) != recovery.winners[i] {
                continue;
            }
            recovery.wrong.remove(&i);
            recovery.copies[i].clone_from(&now);
            repaired.push((*id, now.clone()));
            let Some(pairs) = recovery.reports.get_mut(&me) else {
                continue;
            };
            let passive = pairs[i].passive;
            pairs[i].digest = Digest::of_packed(now.as_deref());
            pairs[i].passive = false;
            self.out.push(Action::Repaired {
                index,
                object: *id,
                was,
                is: now,
                passive,
                source: from,
            });
        }
        if !repaired.is_empty() {
            // Of large objects not all come at once, nor before the question is asked again: what counts is that something comes.
            recovery.asks = 0;
            recovery.asked = None;
        } else if recovery.source == Some(from) {
            recovery.asked = None;
        } else {
            return;
        }
        if recovery.wrong.is_empty()
            && let Some(pairs) = recovery.reports.get(&me).cloned()
        {
            self.out.push(Action::Send(
                To::All,
                Message::Report {
                    index,
                    pairs,
                    again: false,
                },
            ));
        }
        // A later recovery of the same object has reported the bytes that were wrong: requests for it are held back since this one, so
        // what it is now is what it was there. Of what an earlier answer has repaired that is not so: this one may have gone on since.
        let later: Vec<Index> = self
            .recoveries
            .range(Index(index.0 + 1)..)
            .filter(|(_, recovery)| recovery.reports.contains_key(&me) && !recovery.resumed)
            .map(|(index, _)| *index)
            .collect();
        for index in later {
            self.amend(index, &repaired);
        }
        self.look_at_recovery(index);
    }

    /// Tells what objects of a recovery are, now that an earlier one has repaired them.
    fn amend(&mut self, index: Index, repaired: &[(ObjectId, Option<Vec<u8>>)]) {
        let me = self.me;
        let Some(recovery) = self.recoveries.get_mut(&index) else {
            return;
        };
        let mut changed = false;
        for (id, packed) in repaired {
            let Some(i) = recovery.objects.iter().position(|o| o == id) else {
                continue;
            };
            let digest = Digest::of_packed(packed.as_deref());
            let Some(pair) = recovery
                .reports
                .get_mut(&me)
                .and_then(|pairs| pairs.get_mut(i))
            else {
                continue;
            };
            if pair.digest != digest {
                pair.digest = digest;
                pair.passive = false;
                changed = true;
                recovery.copies[i].clone_from(packed);
                if recovery.winners[i] == Some(digest) {
                    recovery.wrong.remove(&i);
                }
            }
        }
        if changed {
            if let Some(pairs) = recovery.reports.get(&me).cloned() {
                self.out.push(Action::Send(
                    To::All,
                    Message::Report {
                        index,
                        pairs,
                        again: false,
                    },
                ));
            }
            self.look_at_recovery(index);
        }
    }
}

impl Vote {
    fn digests(&self, me: Node) -> Vec<(Node, u128)> {
        let mut all: Vec<(Node, u128)> = self
            .heard
            .iter()
            .map(|(node, digest)| (*node, *digest))
            .collect();
        if let Some((digest, _)) = &self.mine {
            all.push((me, *digest));
        }
        all.sort_unstable_by_key(|(node, _)| *node);
        all
    }
}

impl Recovery {
    const fn empty() -> Self {
        Self {
            objects: Vec::new(),
            copies: Vec::new(),
            reports: BTreeMap::new(),
            denied: BTreeSet::new(),
            winners: Vec::new(),
            wrong: BTreeSet::new(),
            resumed: false,
            stuck: false,
            asked: None,
            source: None,
            asks: 0,
            age: 0,
        }
    }
}

fn are_about(pairs: &[Pair], objects: &[ObjectId]) -> bool {
    pairs.iter().map(|pair| &pair.object).eq(objects)
}

/// What at least `quorum` have.
fn winner<T: Copy + Eq>(values: impl Iterator<Item = T>, quorum: usize) -> Option<T> {
    let values: Vec<T> = values.collect();
    values
        .iter()
        .find(|value| values.iter().filter(|other| other == value).count() >= quorum)
        .copied()
}

/// Objects on which two lists differ, or that only one of them has.
fn differences(one: &Tuple, other: &Tuple) -> BTreeSet<ObjectId> {
    one.objects
        .iter()
        .chain(&other.objects)
        .map(|pair| pair.object)
        .filter(|id| one.of(*id) != other.of(*id))
        .collect()
}
