//! Recoveries: objects that replicas differ on are reported by all, voted on, and fetched by who was outvoted.

use std::collections::{BTreeMap, BTreeSet};

use super::votes::AGREED_MAX;
use super::{AHEAD_MAX, ASK_AGAIN_TICKS, Action, Core, Objects, RETELL_TICKS, VOTE_TICKS, winner};
use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Pair, Recover, To};

/// Ticks after which a report is asked for. Requests wait for it, so it is sooner than a list.
const REASK_TICKS: u32 = 8;
/// Ticks between two times that a report is asked for, at most. Were it longer each time without an end, one that is lost twice late would
/// hold requests back for as long again as all before.
const RETELL_TICKS_MAX: u32 = 256;
/// Ticks for which a replica that goes on keeps its copies for one that lives and has not been repaired. By then that one has asked so often
/// in vain that it has been replaced, or is the last one that the group can do without.
const COPIES_TICKS: u32 = 4 * VOTE_TICKS;
/// Times that everybody looks again at objects on which no vote decides, before they count as stuck.
const LOOKS: usize = 4;
/// Times that each member is asked before that counts as many.
const ASKS: usize = 4;
/// Ticks without anything that repairs, after which a replica gives up: a second. A burst of faults that hits every answer is shorter.
const GIVE_UP_TICKS: u32 = 250;
/// Why a replica gives up: something near it flips what it is sent, and a fresh process may have other memory.
const CHANGED: &str =
    "what others sent to repair it was other than what was voted for, again and again for a second";
/// Why it gives up: its connections carry nothing, or the others have no copies any more.
const UNANSWERED: &str = "no other replica has sent what is to repair it";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Recovery {
    pub(super) objects: Vec<ObjectId>,
    /// As they were at this place of the log, for others.
    pub(super) copies: Vec<Option<Vec<u8>>>,
    pub(super) reports: BTreeMap<Node, Vec<Pair>>,
    /// Who has executed something else at this place.
    pub(super) denied: BTreeSet<Node>,
    /// Winners of the votes, object by object.
    pub(super) winners: Vec<Option<Digest>>,
    pub(super) wrong: BTreeSet<usize>,
    pub(super) resumed: bool,
    pub(super) stuck: bool,
    pub(super) asked: Option<u32>,
    pub(super) source: Option<Node>,
    /// Times that the others were asked for bytes of what is wrong here.
    pub(super) asks: usize,
    /// Answers among them that were not what was voted for.
    pub(super) refused: usize,
    /// How old this was when something was repaired last.
    pub(super) came: u32,
    /// Times that everybody was asked to look again at what no vote decides.
    pub(super) looks: usize,
    pub(super) age: u32,
}

impl Core {
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
                doubt: self.doubts.contains(*id),
                unproven: self.unvoted,
            })
            .collect();
        for id in &recover.objects {
            self.ordered.remove(id);
            self.unrepaired.remove(id);
            self.covered.insert(*id, index);
        }
        if self.covered.len() > AGREED_MAX {
            let oldest = Index(index.0.saturating_sub(AHEAD_MAX));
            self.covered.retain(|_, at| *at >= oldest);
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
        self.order();
    }

    /// Whether the log has this recovery here too.
    pub(super) fn takes_part(&self, index: Index) -> bool {
        self.recoveries
            .get(&index)
            .is_some_and(|recovery| recovery.reports.contains_key(&self.me))
    }

    /// Votes on the recoveries that have come out of the log, and repairs.
    pub fn repair(&mut self) {
        let open = self.recoveries.iter().filter(|(_, it)| !it.resumed);
        let open: Vec<Index> = open.map(|(index, _)| *index).collect();
        for index in open {
            self.look_at_recovery(index);
        }
    }

    pub(super) fn recoveries_tick(&mut self) {
        for recovery in self.recoveries.values_mut() {
            recovery.age += 1;
            if let Some(asked) = &mut recovery.asked {
                *asked += 1;
            }
        }
        let me = self.me;
        let highest = self.highest;
        // Reports that came before the entry, which was no recovery here: the senders wait for an answer.
        let none: Vec<Index> = self
            .recoveries
            .range(..=highest)
            .filter(|(_, recovery)| !recovery.reports.contains_key(&me))
            .map(|(index, _)| *index)
            .collect();
        for index in none {
            let senders = self.recoveries.remove(&index).map(|it| it.reports);
            for node in senders.into_iter().flat_map(BTreeMap::into_keys) {
                self.deny(index, node);
            }
        }
        let over: Vec<Index> = self
            .recoveries
            .iter()
            .filter(|(_, recovery)| recovery.age >= COPIES_TICKS && recovery.resumed)
            .map(|(index, _)| *index)
            .collect();
        for index in over {
            if let Some(recovery) = self.recoveries.remove(&index) {
                self.settle(index, recovery);
            }
        }
        // Who was waited for may have gone meanwhile.
        let done = self.recoveries.iter();
        let done = done.filter(|(_, it)| it.resumed && it.age.is_multiple_of(RETELL_TICKS));
        let done: Vec<Index> = done.map(|(index, _)| *index).collect();
        for index in done {
            self.look_at_recovery(index);
        }
        // A report that a broken connection has swallowed is asked for; also one that says that all is well now.
        let waiting: Vec<(Index, Vec<Pair>)> = self
            .recoveries
            .iter()
            .filter(|(index, recovery)| {
                retells(recovery.age)
                    && self
                        .speakers(**index)
                        .any(|node| !recovery.denied.contains(&node) && !recovery.has_healed(node))
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
    }

    pub(super) fn look_at_recovery(&mut self, index: Index) {
        let me = self.me;
        let quorum = self.quorum;
        let speakers: Vec<Node> = self.speakers(index).collect();
        let owed: Vec<Node> = self.comparable_since(index).collect();
        let Some(recovery) = self.recoveries.get_mut(&index) else {
            return;
        };
        if !recovery.reports.contains_key(&me) {
            return;
        }
        // One that has no such recovery, since it took over a later state, has nothing to say about it.
        let all = speakers
            .iter()
            .all(|node| recovery.reports.contains_key(node) || recovery.denied.contains(node));
        let mut undecided = Vec::new();
        for i in 0..recovery.objects.len() {
            // Who is outvoted counts anew with each report until it is repaired: two that were hit alike on their way would have it wait for
            // what nobody has. What has won stays until another one does: a report that was hit since does not undo the vote.
            let won = recovery.winners[i];
            if won.is_some() && !recovery.wrong.remove(&i) {
                continue;
            }
            let reports: Vec<(Node, Pair)> = recovery
                .reports
                .iter()
                .filter_map(|(node, pairs)| pairs.get(i).map(|pair| (*node, *pair)))
                .collect();
            let mut right = winner(reports.iter().map(|(_, pair)| pair.digest), quorum);
            if right.is_none() && all && reports.len() >= quorum {
                right = evidence(&reports);
            }
            match right.or(won) {
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
            recovery.looks += 1;
            if recovery.looks > LOOKS && !recovery.stuck {
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
            self.out.extend(recovery.ask_reports(index, me));
        }
        if !recovery.wrong.is_empty() {
            // Longer each time, and all of it shorter than the others keep their copies.
            let many = recovery.asks > ASKS * self.members.len();
            let hit = recovery.refused * 2 > recovery.asks;
            let patience = if many && hit {
                1
            } else {
                ASK_AGAIN_TICKS << recovery.asks.min(4)
            };
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
                let others = speakers.iter().filter(|node| **node != me).count();
                if many && recovery.age - recovery.came >= GIVE_UP_TICKS {
                    recovery.asked = Some(0);
                    // The group must go on without this replica. Where it could not, the objects are compared once more, at another place
                    // of the log: as they were at this one nobody has them any more.
                    if others >= quorum {
                        let why = if hit { CHANGED } else { UNANSWERED };
                        self.out.push(Action::Replace(me, why));
                    } else {
                        self.begin_anew(index);
                    }
                    return;
                }
                let source = sources.get(recovery.asks % sources.len().max(1)).copied();
                recovery.asks += 1;
                recovery.asked = Some(0);
                recovery.source = source;
                if source.is_none() || recovery.asks > LOOKS {
                    self.out.extend(recovery.ask_reports(index, me));
                }
                let Some(source) = source else { return };
                let wanted: Vec<ObjectId> = recovery
                    .wrong
                    .iter()
                    .filter(|i| is_right(&source, **i))
                    .map(|i| recovery.objects[*i])
                    .collect();
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
            for pair in recovery.reports.get_mut(&me).into_iter().flatten() {
                self.doubts.repaired(pair.object);
                pair.doubt = false;
                pair.unproven = false;
                if std::mem::take(&mut pair.passive) {
                    self.out.push(Action::Refresh(pair.object, pair.digest));
                }
            }
            self.out.push(Action::Resume(index));
        }
        // One that is not heard may only be slow: it will ask for copies of what was found wrong in it.
        let is_over = |node: &Node| recovery.denied.contains(node) || recovery.has_healed(*node);
        let healed = recovery.resumed && owed.iter().all(is_over);
        if healed && let Some(recovery) = self.recoveries.remove(&index) {
            self.settle(index, recovery);
        }
    }

    /// Nobody has the bytes any more that this replica was outvoted with: it goes on with its own, which are in doubt, and has them compared
    /// at a later place.
    fn begin_anew(&mut self, index: Index) {
        let Some(recovery) = self.recoveries.remove(&index) else {
            return;
        };
        let objects: Vec<ObjectId> = recovery
            .wrong
            .iter()
            .map(|i| recovery.objects[*i])
            .collect();
        self.doubts.left(index, &objects);
        self.unrepaired.extend(objects);
        self.out.push(Action::Resume(index));
        self.order();
    }

    /// Tells another replica that this one knows of no recovery there.
    pub(super) fn deny(&mut self, index: Index, node: Node) {
        let (pairs, again) = (Vec::new(), false);
        self.send(
            To::One(node),
            Message::Report {
                index,
                pairs,
                again,
            },
        );
    }

    /// Another replica knows of no recovery there. What f+1 of them know nothing of holds nothing back here either: what differs is found
    /// by the vote on that entry.
    pub(super) fn denied(&mut self, index: Index, from: Node) {
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
        self.covered.retain(|_, at| *at != index);
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
    pub(super) fn store(
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
            let passive = !objects.intact(*id);
            objects.replace(*id, packed.as_deref());
            // From the bytes that are stored now, not from those that came.
            let now = objects.pack(*id);
            if Some(Digest::of_packed(now.as_deref())) != recovery.winners[i] {
                continue;
            }
            recovery.wrong.remove(&i);
            self.doubts.repaired(*id);
            recovery.copies[i].clone_from(&now);
            repaired.push((*id, now.clone()));
            let Some(pairs) = recovery.reports.get_mut(&me) else {
                continue;
            };
            pairs[i].digest = Digest::of_packed(now.as_deref());
            pairs[i].passive = false;
            pairs[i].doubt = false;
            pairs[i].unproven = false;
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
            recovery.refused = 0;
            recovery.came = recovery.age;
            recovery.asked = None;
        } else if recovery.source == Some(from) {
            recovery.refused += 1;
            // At once, of another replica; after many, with the next tick.
            recovery.asked = (recovery.asks > ASKS * self.members.len()).then_some(0);
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
                pair.doubt = false;
                pair.unproven = false;
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

impl Recovery {
    /// Tells everybody the own report, and asks for theirs.
    fn ask_reports(&self, index: Index, me: Node) -> Option<Action> {
        let pairs = self.reports.get(&me).cloned()?;
        let again = true;
        Some(Action::Send(
            To::All,
            Message::Report {
                index,
                pairs,
                again,
            },
        ))
    }

    /// Whether a replica has reported what has won, of every object.
    fn has_healed(&self, node: Node) -> bool {
        self.reports.get(&node).is_some_and(|pairs| {
            pairs
                .iter()
                .zip(&self.winners)
                .all(|(pair, right)| Some(pair.digest) == *right)
        })
    }

    pub(super) const fn empty() -> Self {
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
            refused: 0,
            came: 0,
            looks: 0,
            age: 0,
        }
    }
}

/// What decides where no majority does: what those have that found nothing wrong, if they agree. Where all have, an object that changed at
/// rest says more than one that was made of others.
fn evidence(reports: &[(Node, Pair)]) -> Option<Digest> {
    let agreed = |is_clean: &dyn Fn(&Pair) -> bool| {
        let clean = reports
            .iter()
            .map(|(_, pair)| pair)
            .filter(|pair| is_clean(pair));
        let digests: BTreeSet<Digest> = clean.map(|pair| pair.digest).collect();
        (!digests.is_empty()).then_some(digests)
    };
    // Then what nobody has voted on yet, where no fault is known of it.
    let digests = agreed(&|pair| !pair.passive && !pair.doubt && !pair.unproven)
        .or_else(|| agreed(&|pair| !pair.passive && !pair.doubt))
        .or_else(|| agreed(&|pair| !pair.passive))?;
    let only = digests.first().copied();
    only.filter(|_| digests.len() == 1)
}

/// Whether missing reports are asked for at this age: less and less often, since a network that is behind is not helped by more of it.
fn retells(age: u32) -> bool {
    age >= REASK_TICKS && (age.is_power_of_two() || age.is_multiple_of(RETELL_TICKS_MAX))
}

pub(super) fn are_about(pairs: &[Pair], objects: &[ObjectId]) -> bool {
    pairs.iter().map(|pair| &pair.object).eq(objects)
}
