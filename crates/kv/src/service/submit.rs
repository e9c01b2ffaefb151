//! What this replica puts into the log: requests that were collected, and orders of its own.
//!
//! Invariant: an entry is kept, and sent again, until it comes out of the log; its number is never left out.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use steadfast_digest::crc32c;
use steadfast_fault::Passing;
use steadfast_group::Sequencer as _;

use super::{Body, Entry, Group, Service, Waiting, deliver, execute, struck};

/// Own entries in the log at a time; what comes meanwhile is collected into the next one.
pub(super) const IN_FLIGHT: usize = 8;
/// Entries that have not come out of the log after this are submitted again.
const RESUBMIT: Duration = Duration::from_millis(300);
/// Numbers that are given to empty entries at a time: many times what can be in flight, and little enough for one turn.
const GAP_MAX: usize = 8 * IN_FLIGHT;
/// Clients wait no longer than this for a reply: as long as an entry waits for its vote, 2,000 ticks of 4 ms.
const PATIENCE: Duration = Duration::from_secs(8);

pub(super) struct Unacked {
    pub(super) bytes: Vec<u8>,
    pub(super) groups: Waiting,
    pub(super) verify: bool,
    since: Instant,
}

impl Service {
    /// Requests that are to be in the next entry.
    pub(super) fn collect(&mut self, group: Group) {
        if self.collecting.is_empty() {
            self.collecting_since = Instant::now();
        }
        self.collected += group.requests.len();
        self.collecting.push(group);
    }

    pub(super) fn submit_collected(&mut self) {
        while !self.collecting.is_empty()
            && (self.collected >= self.batch || self.collecting_since.elapsed() >= self.batch_time)
            && self.unacked.len() < IN_FLIGHT
            && self.is_member()
            && self.returning.is_none()
            && !self.is_unproven()
        {
            let mut requests = Vec::new();
            let mut groups = Vec::new();
            let mut taken = 0;
            for group in &self.collecting {
                if taken > 0 && requests.len() + group.requests.len() > self.batch {
                    break;
                }
                requests.extend(group.requests.iter().cloned());
                taken += 1;
            }
            for group in self.collecting.drain(..taken) {
                self.collected -= group.requests.len();
                groups.push((group.requests.len(), group.reply));
            }
            self.collecting_since = Instant::now();
            self.submit(Body::Requests(requests), groups, false);
        }
    }

    pub(super) fn submit(&mut self, body: Body, groups: Waiting, verify: bool) {
        let passing = struck::on_the_way(&body);
        let Some(mut bytes) = sealed(self.me.0, self.next, body) else {
            return;
        };
        if passing == Some(Passing::Entry) {
            self.struck.bytes(Passing::Submit, &mut bytes);
        }
        let mut leaves = bytes.clone();
        if let Some(passing) = passing {
            self.struck.bytes(passing, &mut leaves);
        }
        if self.unacked.is_empty() {
            self.submitted_at = Instant::now();
        }
        self.unacked.insert(
            self.next,
            Unacked {
                bytes,
                groups,
                verify,
                since: Instant::now(),
            },
        );
        self.next += 1;
        self.engine.submit(leaves);
    }

    /// Tells clients that their requests wait for too long: for an order, or for a repair that holds the log back here. What is in the log
    /// stays there, so it may still be executed; what was only collected is dropped.
    pub(super) fn give_up(&mut self) {
        let late = |own: &Unacked| own.since.elapsed() >= PATIENCE;
        let first = self.unacked.values().next();
        if first.is_some_and(late) || self.collecting_since.elapsed() >= PATIENCE {
            for group in self.collecting.drain(..) {
                self.counts.refused += 1;
                let why = "the request was not executed: those before it have waited too long";
                let _ = group.reply.send(Err(why));
            }
            self.collected = 0;
        }
        for own in self.unacked.values_mut().filter(|own| late(own)) {
            self.counts.refused += own.groups.len() as u64;
            let why = "the request has waited too long, and may still be executed";
            deliver(std::mem::take(&mut own.groups), Err(why));
        }
    }

    /// Sends what has not come out of the log for too long once more. Where a repair holds the log back, less and less often: it has come, and
    /// each copy waits as well.
    pub(super) fn submit_again(&mut self) {
        if self.submitted_at.elapsed() <= RESUBMIT * (1 << self.resubmits.min(4)) {
            return;
        }
        self.submitted_at = Instant::now();
        self.fill_gap();
        self.resubmits = if self.held.is_empty() {
            0
        } else {
            self.resubmits + 1
        };
        for (sequence, unacked) in &mut self.unacked {
            // Who executes entries in order waits for this number for ever: another entry takes it.
            if execute::opened(&unacked.bytes).is_none()
                && let Some(bytes) = sealed(self.me.0, *sequence, Body::Requests(Vec::new()))
            {
                self.counts.refused += 1;
                unacked.bytes = bytes;
                let why =
                    "the request was damaged on its way to the log: read the item to see its state";
                deliver(std::mem::take(&mut unacked.groups), Err(why));
            }
            self.engine.submit(unacked.bytes.clone());
        }
    }

    /// Whoever executes entries in order waits for each number. One that was executed here alone, and undone by a repair since, is kept by
    /// nobody: an empty entry takes it.
    fn fill_gap(&mut self) {
        let last = self.store.last(self.me.0);
        // A number that was hit would have half of all that were ever given submitted again.
        if last + 1 >= self.next || !self.store.is_certain(self.me.0) {
            return;
        }
        let first = (last + 1).max(self.first);
        for number in gap(first..self.next, &self.unacked) {
            if let Some(bytes) = sealed(self.me.0, number, Body::Requests(Vec::new())) {
                let unacked = Unacked {
                    bytes,
                    groups: Waiting::new(),
                    verify: false,
                    since: Instant::now(),
                };
                self.unacked.insert(number, unacked);
            }
        }
    }
}

/// Numbers that nobody keeps, as many as are filled at a time.
fn gap<T>(numbers: Range<u64>, kept: &BTreeMap<u64, T>) -> Vec<u64> {
    let missing = numbers.filter(|number| !kept.contains_key(number));
    missing.take(GAP_MAX).collect()
}

/// An entry with the check of its origin.
fn sealed(origin: u64, sequence: u64, body: Body) -> Option<Vec<u8>> {
    let entry = Entry {
        origin,
        sequence,
        body,
    };
    let mut bytes = postcard::to_extend(&entry, vec![0; 4]).ok()?;
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_keeps_is_filled_a_turn_s_worth_at_a_time() {
        let kept = BTreeMap::from([(5, ()), (7, ())]);
        assert_eq!(gap(5..9, &kept), [6, 8]);
        assert_eq!(gap(9..9, &kept), [] as [u64; 0]);
        // A number that was hit lies as far back as there are numbers.
        let storm = gap(1..1 << 60, &kept);
        assert_eq!(storm.len(), GAP_MAX);
        assert_eq!((storm[0], storm[GAP_MAX - 1]), (1, GAP_MAX as u64 + 2));
    }
}
