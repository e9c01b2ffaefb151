//! Objects of this replica that may be wrong because another one was.
//!
//! What an entry makes of an object that changed at rest fits its own digest: the bytes alone would not show that they are wrong. So all that
//! such an entry touches is in doubt, and so is what later entries make of it, until a vote or a repair says otherwise. Where no f+1 agree
//! an object in doubt counts as one that changed at rest.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Index, ObjectId};
use crate::message::Tuple;

/// Why an object is in doubt, and where it was touched last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Doubt {
    /// The entry that touched an object which had changed at rest.
    since: Index,
    /// The last entry that touched this one.
    last: Index,
}

/// The objects in doubt.
#[derive(Debug, Default, Clone, PartialEq, Eq, Hash)]
pub(super) struct Doubts(BTreeMap<ObjectId, Doubt>);

impl Doubts {
    pub(super) fn contains(&self, object: ObjectId) -> bool {
        self.0.contains_key(&object)
    }

    /// An entry has been executed. Its objects that are in doubt are marked in its list.
    pub(super) fn executed(&mut self, index: Index, tuple: &mut Tuple) {
        let at_rest = tuple.objects.iter().any(|pair| pair.passive);
        if !at_rest && self.0.is_empty() {
            return;
        }
        let mut causes = BTreeSet::new();
        for pair in &mut tuple.objects {
            if let Some(doubt) = self.0.get(&pair.object) {
                pair.doubt = true;
                causes.insert(doubt.since);
            }
        }
        // With one cause alone the vote on that entry answers for this one as well.
        let since = match causes.len() {
            0 if !at_rest => return,
            1 if !at_rest => causes.pop_first().unwrap_or(index),
            _ => index,
        };
        for pair in &tuple.objects {
            let last = index;
            self.0.insert(pair.object, Doubt { since, last });
        }
    }

    /// f+1 replicas have this entry as it is here: its objects are right, and so is all that was in doubt because of it.
    pub(super) fn won(&mut self, index: Index, tuple: &Tuple) {
        if self.0.is_empty() {
            return;
        }
        self.0.retain(|_, doubt| doubt.since != index);
        self.compared(index, tuple, &BTreeSet::new());
    }

    /// Replicas differ on these objects of an entry, and on no other. Those that come to be in doubt now.
    pub(super) fn compared(
        &mut self,
        index: Index,
        tuple: &Tuple,
        differ: &BTreeSet<ObjectId>,
    ) -> Vec<ObjectId> {
        for pair in &tuple.objects {
            let is_right = !differ.contains(&pair.object);
            if is_right && self.0.get(&pair.object).is_some_and(|it| it.last == index) {
                self.0.remove(&pair.object);
            }
        }
        // What this replica has not touched, and others have, it may have left out because of what was struck.
        if !tuple.objects.iter().any(|pair| pair.passive || pair.doubt) {
            return Vec::new();
        }
        let left_out = differ
            .iter()
            .filter(|id| tuple.objects.iter().all(|pair| pair.object != **id));
        let left_out: Vec<ObjectId> = left_out.copied().collect();
        self.left(index, &left_out);
        left_out
    }

    /// These have lost a vote, and could not be repaired.
    pub(super) fn left(&mut self, index: Index, objects: &[ObjectId]) {
        let (since, last) = (index, index);
        self.0
            .extend(objects.iter().map(|id| (*id, Doubt { since, last })));
    }

    /// A recovery has looked at some of these before entry `later`: what nobody has touched between the last doubtful entry and that
    /// recovery is right since.
    pub(super) fn looked_at(&mut self, later: Index, recovery: impl Fn(ObjectId) -> Option<Index>) {
        self.0
            .retain(|id, doubt| recovery(*id).is_none_or(|at| at <= doubt.last || at >= later));
    }

    /// These as well.
    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// The bytes are the ones that were voted for.
    pub(super) fn repaired(&mut self, object: ObjectId) {
        self.0.remove(&object);
    }

    /// Another state has been taken over.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Digest;
    use crate::message::Pair;

    const STRUCK: ObjectId = ObjectId(1);
    const MADE: ObjectId = ObjectId(2);
    const LATER: ObjectId = ObjectId(3);

    fn entry(objects: &[(ObjectId, bool)]) -> Tuple {
        let pair = |(object, passive): &(ObjectId, bool)| Pair {
            object: *object,
            digest: Digest(0),
            passive: *passive,
            doubt: false,
            unproven: false,
        };
        Tuple {
            objects: objects.iter().map(pair).collect(),
            replies: Vec::new(),
        }
    }

    /// Entry 1 makes an object of a struck one, entry 2 another one of that.
    fn two_entries() -> (Doubts, Tuple, Tuple) {
        let mut doubts = Doubts::default();
        let mut first = entry(&[(STRUCK, true), (MADE, false)]);
        doubts.executed(Index(1), &mut first);
        let mut second = entry(&[(MADE, false), (LATER, false)]);
        doubts.executed(Index(2), &mut second);
        (doubts, first, second)
    }

    #[test]
    fn what_is_made_of_a_struck_object_is_in_doubt_and_what_is_made_of_that() {
        let (doubts, first, second) = two_entries();
        assert!([STRUCK, MADE, LATER].iter().all(|id| doubts.contains(*id)));
        assert!(!first.objects[1].doubt && second.objects[0].doubt);
    }

    #[test]
    fn nothing_is_in_doubt_where_nothing_was_struck() {
        let mut doubts = Doubts::default();
        doubts.executed(Index(1), &mut entry(&[(MADE, false), (LATER, false)]));
        assert_eq!(doubts, Doubts::default());
    }

    #[test]
    fn a_recovery_ends_a_doubt_behind_it_and_not_before() {
        let (doubts, _, _) = two_entries();
        let doubtful = |recovery: u64, later: u64| {
            let mut doubts = doubts.clone();
            doubts.looked_at(Index(later), |id| (id == MADE).then_some(Index(recovery)));
            assert!(doubts.contains(STRUCK), "nothing has looked at it");
            doubts.contains(MADE)
        };
        // The second entry was the last to touch it.
        assert!(doubtful(1, 9) && doubtful(5, 4) && doubtful(5, 5));
        assert!(!doubtful(5, 6));
    }

    #[test]
    fn a_vote_that_is_won_ends_all_doubts_that_the_entry_began() {
        let (mut doubts, first, _) = two_entries();
        doubts.won(Index(1), &first);
        assert_eq!(doubts, Doubts::default());
    }

    #[test]
    fn a_vote_that_is_lost_ends_those_about_objects_on_which_nobody_differs() {
        let (mut doubts, first, second) = two_entries();
        // Touched again since: what it is now the second entry's vote says.
        doubts.compared(Index(1), &first, &BTreeSet::from([STRUCK]));
        assert!([STRUCK, MADE, LATER].iter().all(|id| doubts.contains(*id)));
        doubts.compared(Index(2), &second, &BTreeSet::from([LATER]));
        assert!(!doubts.contains(MADE) && doubts.contains(LATER));
        doubts.repaired(LATER);
        doubts.repaired(STRUCK);
        assert_eq!(doubts, Doubts::default());
    }
}
