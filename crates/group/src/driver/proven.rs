//! Whether a replica's state may be handed to another process: only what was voted on, and has not changed at rest since.
//!
//! A process that joins executes entries without a voice, on a state that it was given. It compares everything once, part by part, when it
//! is a member. An object that does not fit its digest is compared alone.

use std::time::Duration;

use steadfast_crosscheck::{Index, ObjectId, Objects as _, Recover, Standing};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Machine;
use super::log::Body;
use super::turn::{Driver, PARTS};
use crate::sequencer::Sequencer;

/// Between two orders to compare what does not fit its digest.
const AGAIN: Duration = Duration::from_secs(1);
/// A comparison of everything that has come to no end after this begins anew: more than an entry waits for its vote.
const LOST: Duration = Duration::from_secs(20);

/// A comparison of everything that is under way.
#[derive(Debug)]
pub(super) struct Comparison {
    began: Instant,
    /// The numbers of its submissions.
    numbers: std::ops::Range<u64>,
    /// Where they are in the log.
    indexes: Vec<Index>,
}

impl<M: Machine, S: Sequencer> Driver<M, S> {
    /// Has everything compared once where something of this state was never voted on here.
    pub(super) fn make_up(&mut self) {
        if !self.core.is_unvoted() || !self.is_member() || self.engine.leader().is_none() {
            self.comparison = None;
            return;
        }
        let quorum = self.size / 2 + 1;
        let Some(comparison) = &self.comparison else {
            let first = self.next;
            for part in 0..PARTS {
                self.submit(Body::Scrub(part), Vec::new());
            }
            self.comparison = Some(Comparison {
                began: Instant::now(),
                numbers: first..self.next,
                indexes: Vec::new(),
            });
            return;
        };
        let came = comparison.indexes.len() == usize::from(PARTS);
        let open = comparison
            .indexes
            .iter()
            .any(|index| self.core.is_open(*index));
        if came && !open && !self.core.is_repairing() {
            let silent = comparison
                .indexes
                .iter()
                .map(|index| self.core.unheard(*index).len());
            if silent.max().unwrap_or(0) + quorum <= self.members.len() {
                self.core.compared();
            }
            self.comparison = None;
        } else if comparison.began.elapsed() > LOST {
            self.comparison = None;
        }
    }

    /// An own submission has been executed.
    pub(super) fn compared_part(&mut self, sequence: u64, index: Index) {
        if let Some(comparison) = &mut self.comparison
            && comparison.numbers.contains(&sequence)
        {
            comparison.indexes.push(index);
        }
    }

    /// Hands the state out once f+1 replicas agree on it. One with an object that does not fit its digest is handed to nobody: there nothing
    /// would show that it changed.
    pub(super) fn snapshot(&mut self, want: oneshot::Sender<Option<Vec<u8>>>) {
        let index = Index(self.executed);
        let objects = self.whole.objects();
        let spoilt: Vec<ObjectId> = objects
            .into_iter()
            .filter(|id| !self.whole.intact(*id))
            .collect();
        let doubtful = self.core.standing(index) == Standing::Doubtful;
        if !spoilt.is_empty() && !doubtful && self.compared_at.elapsed() > AGAIN {
            self.compared_at = Instant::now();
            let order = Recover {
                cause: index,
                objects: spoilt.clone(),
            };
            self.submit(Body::Recover(order), Vec::new());
        }
        if doubtful || !spoilt.is_empty() || self.core.is_unvoted() {
            drop(want.send(None));
        } else {
            let bytes = self.whole.snapshot();
            self.snapshots.push((index, bytes, want));
        }
    }
}
