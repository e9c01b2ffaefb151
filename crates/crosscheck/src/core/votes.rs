//! The vote on entries: what was computed, what others say they have computed, and which replies may leave.

use std::collections::{BTreeMap, BTreeSet};

use super::{ASK_AGAIN_TICKS, Action, Core, RETELL_TICKS, VOTE_TICKS, winner};
use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Recover, Run, To, Tuple};

/// Ticks after which somebody else than the first in line orders a recovery.
const ORDER_TICKS: u32 = 4;
/// Objects after which an order takes those of no other entry: each replica keeps copies of them.
const ORDERED_MAX: usize = 512;
/// Ticks that a released entry keeps its replies for a replica that needs them.
const KEEP_TICKS: u32 = 400;
/// Agreed entries whose digests are kept.
pub(super) const AGREED_MAX: usize = 4096;

#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(super) struct Vote {
    pub(super) mine: Option<(u128, Tuple)>,
    pub(super) heard: BTreeMap<Node, u128>,
    pub(super) details: BTreeMap<Node, Tuple>,
    pub(super) released: bool,
    pub(super) told: bool,
    pub(super) blamed: bool,
    /// Objects that replicas differ on and that no recovery has looked at since.
    pub(super) pending: BTreeSet<ObjectId>,
    /// Whether this replica is the first in line to order one.
    pub(super) leads: bool,
    /// The digests of the right replies, once known to differ from the own.
    pub(super) expected: Option<Vec<Digest>>,
    /// Those that other replicas have sent.
    pub(super) gathered: BTreeMap<usize, Vec<u8>>,
    /// What second runs came to, the own one among them.
    pub(super) again: BTreeMap<Node, u128>,
    /// Whether the own one was asked for.
    pub(super) runs_again: bool,
    pub(super) asked: Option<u32>,
    pub(super) asks: usize,
    pub(super) age: u32,
}

impl Core {
    /// An entry has been executed: what it touched, and its replies. Its replies stay until `Release`.
    pub fn executed(&mut self, index: Index, mut tuple: Tuple) {
        self.doubts.executed(index, &mut tuple);
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

    pub(super) fn votes_tick(&mut self) {
        let mut again = Vec::new();
        let mut over = Vec::new();
        for (index, vote) in &mut self.votes {
            vote.age += 1;
            if let Some(asked) = &mut vote.asked {
                *asked += 1;
            }
            let unused = vote.mine.is_none() && *index < self.highest && vote.age > KEEP_TICKS;
            // What differs is remembered for longer than callers wait: a recovery may be behind others.
            let limit = if vote.pending.is_empty() {
                VOTE_TICKS
            } else {
                4 * VOTE_TICKS
            };
            if vote.age > VOTE_TICKS && vote.mine.is_some() && !vote.released {
                vote.released = true;
                self.out.push(Action::Undecided(*index));
            }
            if unused || vote.age > limit {
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
                let reran = vote.again.get(&self.me).copied();
                self.send(
                    To::All,
                    Message::Detail {
                        index,
                        tuple,
                        again,
                    },
                );
                if let Some(digest) = reran {
                    self.send(To::All, Message::Reran { index, digest });
                }
            }
        }
        for index in again {
            self.look(index);
        }
    }

    pub(super) fn drop_vote(&mut self, index: Index) {
        let Some(vote) = self.votes.remove(&index) else {
            return;
        };
        if vote.mine.is_none() {
            return;
        }
        let silent = self.silent(&vote);
        self.unvoted |= self.members.len() < self.quorum + silent.len();
        if !silent.is_empty() {
            self.unheard.insert(index, silent);
            if self.unheard.len() > AGREED_MAX {
                self.unheard.pop_first();
            }
        }
        self.out.push(Action::Forget(index));
    }

    pub(super) fn look_again(&mut self) {
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
    pub(super) fn look(&mut self, index: Index) {
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
            self.doubts.won(index, own);
            // A digest that was hit beside bytes that are right would count as evidence in a later vote.
            for pair in own.objects.iter().filter(|pair| pair.passive) {
                self.out.push(Action::Refresh(pair.object, pair.digest));
            }
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
        let is_behind = self.reruns && winner_digest.is_none() && self.is_behind_another(index);
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
        let mut ran_wrong = false;
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
                let mut clean: Vec<&(Node, &Tuple)> = lists
                    .iter()
                    .filter(|(_, tuple)| tuple.objects.iter().all(|pair| !pair.passive))
                    .collect();
                let beyond_doubt =
                    |(_, tuple): &&(Node, &Tuple)| tuple.objects.iter().all(|pair| !pair.doubt);
                if clean.iter().any(beyond_doubt) {
                    clean.retain(beyond_doubt);
                }
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
                // Of an object that nobody has found changed the recovery would find no evidence either. What is in doubt may be so for
                // another reason, which goes away.
                let is_unmarked =
                    |(_, list): &(Node, &Tuple)| list.objects.iter().all(|pair| !pair.passive);
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
                } else if let Some(right) = winner(vote.again.values().copied(), quorum) {
                    // Of which second runs say that the first was right.
                    let of = |(_, list): &&(Node, &Tuple)| list.digest(epoch, index) == right;
                    let right: Vec<Node> = lists.iter().filter(of).map(|(n, _)| *n).collect();
                    ran_wrong = !right.is_empty() && !right.contains(&me);
                    right
                } else if self.reruns
                    && !vote.blamed
                    && !vote.released
                    && (!by_reply || (!lost.is_empty() && lists.iter().all(is_unmarked)))
                    && !speakers.iter().all(|node| vote.again.contains_key(node))
                {
                    if !is_behind && !vote.runs_again {
                        vote.runs_again = true;
                        self.out.push(Action::Rerun(index));
                    }
                    return;
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

        // What a recovery behind this entry has looked at already needs no other one.
        let covered = &self.covered;
        let open = |objects: &BTreeSet<ObjectId>| -> BTreeSet<ObjectId> {
            let objects = objects.iter().copied();
            objects
                .filter(|id| covered.get(id).is_none_or(|at| *at <= index))
                .collect()
        };
        // What this replica may have left wrong, which nothing has marked so far.
        let mut wrong_here = BTreeSet::new();
        if !vote.blamed && reference.is_some() && !blamed.is_empty() && told_all {
            vote.blamed = true;
            vote.pending = open(&objects);
            wrong_here.extend(self.doubts.compared(index, own, &objects));
            if ran_wrong {
                wrong_here.extend(objects.iter().copied());
            }
            self.out.push(Action::Blame {
                index,
                nodes: blamed,
                objects: objects.iter().copied().collect(),
            });
        } else if !vote.blamed && reference.is_none() && winner_digest.is_none() {
            vote.blamed = true;
            vote.pending = open(&objects);
            wrong_here.extend(self.doubts.compared(index, own, &objects));
            self.out.push(Action::Blame {
                index,
                nodes: Vec::new(),
                objects: objects.iter().copied().collect(),
            });
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

        // The first of the right ones orders a recovery at once, the others if nothing comes.
        vote.leads = if right.is_empty() {
            speakers.first()
        } else {
            right.first()
        } == Some(&me);
        let is_pending = !vote.pending.is_empty();
        let is_over = vote.released && all_heard && told_all && vote.age > KEEP_TICKS;
        if !wrong_here.is_empty() {
            self.was_wrong(index, wrong_here);
        }
        if is_pending {
            self.order();
        } else if is_over {
            // Nothing is left to be found out; the replies stay a while for whoever still needs them.
            self.drop_vote(index);
        }
    }

    /// Orders a recovery of what no order covers yet. One at a time: what is found to differ until the log has delivered it goes into the
    /// next one, so that entries by the hundred that one fault has made differ are a few recoveries. Those hold requests back one by one.
    pub(super) fn order(&mut self) {
        if !self.ordered.is_empty() {
            return;
        }
        let due = self.votes.iter().filter(|(_, vote)| {
            !vote.pending.is_empty() && (vote.leads || vote.age >= ORDER_TICKS)
        });
        let mut objects = self.unrepaired.clone();
        let mut cause = (!objects.is_empty()).then_some(self.highest);
        for (index, vote) in due {
            cause = cause.or(Some(*index));
            objects.extend(vote.pending.iter().copied());
            if objects.len() >= ORDERED_MAX {
                break;
            }
        }
        let Some(cause) = cause else { return };
        self.ordered = objects.iter().map(|id| (*id, 0)).collect();
        let objects = objects.into_iter().collect();
        self.out.push(Action::Order(Recover { cause, objects }));
    }

    /// The replies that another replica has sent, if they are the right ones.
    pub(super) fn take_replies(&mut self, index: Index, replies: Vec<Vec<u8>>) {
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
}

impl Vote {
    pub(super) fn digests(&self, me: Node) -> Vec<(Node, u128)> {
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

/// Objects on which two lists differ, or that only one of them has.
fn differences(one: &Tuple, other: &Tuple) -> BTreeSet<ObjectId> {
    one.objects
        .iter()
        .chain(&other.objects)
        .map(|pair| pair.object)
        .filter(|id| one.of(*id) != other.of(*id))
        .collect()
}
