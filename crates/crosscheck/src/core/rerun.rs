//! A second run of an entry, where neither a vote nor what changed at rest says who is wrong.
//!
//! Each replica executes the entry again, beside its state, on the objects as they were before it, and tells what came of it. A fault that
//! has passed does not strike twice. So f+1 second runs that agree say what is right, and a replica whose first run was something else has
//! wrong objects now. They are in doubt there, as is what later entries have made of them, and a recovery repairs them as any other.
//!
//! Invariants
//!  1. A second run changes no object and lets no reply out: it is evidence. What leaves has a first run behind it.
//!  2. Entries are judged in their order: what one has made wrong would come out of the second run of a later one as well.
//!  3. Where second runs differ as the first ones did (a CPU that is wrong each time), nothing is decided by them.
//!
//! Not covered: a caller that keeps no undo. It never says [`Core::keeps_undo`], and is never asked.

use std::collections::BTreeSet;

use super::Core;
use super::doubts::Doubts;
use super::recovery::Recovery;
use crate::ids::{Index, Node, ObjectId};
use crate::message::{Message, To, Tuple};

impl Core {
    /// The caller keeps what objects were before each entry that is open, and answers `Action::Rerun`.
    pub fn keeps_undo(&mut self) {
        self.reruns = true;
    }

    /// The first entry that was executed here and not agreed on by all: what objects were before it may still be asked for.
    #[must_use]
    pub fn first_open(&self) -> Option<Index> {
        let mut open = self.votes.iter().filter(|(_, vote)| vote.mine.is_some());
        open.next().map(|(index, _)| *index)
    }

    /// What came of the second run of an entry; nothing where it could not be run again, which says what the first run has said.
    pub fn reran(&mut self, index: Index, tuple: Option<&Tuple>) {
        let epoch = self.epoch;
        let Some(vote) = self.votes.get_mut(&index) else {
            return;
        };
        let Some((_, own)) = &vote.mine else { return };
        let digest = tuple.unwrap_or(own).digest(epoch, index);
        vote.again.insert(self.me, digest);
        self.send(To::All, Message::Reran { index, digest });
        self.look(index);
    }

    /// Another replica has run an entry again.
    pub(super) fn heard_again(&mut self, index: Index, from: Node, digest: u128) {
        // All have executed it before anybody runs it again.
        if let Some(vote) = self.votes.get_mut(&index) {
            vote.again.insert(from, digest);
            self.look(index);
        }
    }

    /// Whether an entry before this one is not judged yet.
    pub(super) fn is_behind_another(&self, index: Index) -> bool {
        let mut before = self.votes.range(..index);
        before.any(|(_, vote)| vote.mine.is_some() && !vote.released && !vote.blamed)
    }

    /// The own run of an entry was wrong about these, or may have been: so is what later entries have made of them, and the others are told.
    /// A recovery has made right what it has looked at since, but for the entries before it.
    pub(super) fn was_wrong(&mut self, index: Index, objects: BTreeSet<ObjectId>) {
        let own = |recovery: &Recovery| recovery.reports.get(&self.me).cloned();
        let open = self.recoveries.range(index..).map(|(_, recovery)| recovery);
        let open: BTreeSet<ObjectId> = open
            .filter(|recovery| !recovery.resumed)
            .filter_map(own)
            .flatten()
            .map(|pair| pair.object)
            .collect();
        let covered = &self.covered;
        let right_since = |id: ObjectId| covered.get(&id).filter(|_| !open.contains(&id)).copied();
        let mut wrong = Doubts::default();
        wrong.left(index, &objects.into_iter().collect::<Vec<_>>());
        let mut told = Vec::new();
        for (later, vote) in self.votes.range_mut(Index(index.0 + 1)..) {
            let Some((_, own)) = &mut vote.mine else {
                continue;
            };
            let marks = |tuple: &Tuple| tuple.objects.iter().filter(|pair| pair.doubt).count();
            let before = marks(own);
            wrong.looked_at(*later, right_since);
            wrong.executed(*later, own);
            if vote.told && marks(own) > before {
                let (index, tuple, again) = (*later, own.clone(), false);
                told.push(Message::Detail {
                    index,
                    tuple,
                    again,
                });
            }
        }
        wrong.looked_at(Index(u64::MAX), right_since);
        for (at, recovery) in self.recoveries.range_mut(index..) {
            let (false, Some(pairs)) = (recovery.resumed, recovery.reports.get_mut(&self.me))
            else {
                continue;
            };
            let mut marked = false;
            for pair in pairs.iter_mut().filter(|it| wrong.contains(it.object)) {
                marked |= !std::mem::replace(&mut pair.doubt, true);
            }
            if marked {
                let (index, pairs, again) = (*at, pairs.clone(), false);
                told.push(Message::Report {
                    index,
                    pairs,
                    again,
                });
            }
        }
        self.doubts.extend(wrong);
        for message in told {
            self.send(To::All, message);
        }
    }
}
