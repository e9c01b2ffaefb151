//! What this replica puts into the log: requests that were collected, and orders of its own.
//!
//! Invariant: an entry is kept, and sent again, until it comes out of the log; its number is never left out.

use std::time::{Duration, Instant};

use steadfast_group::Sequencer as _;
use steadfast_integrity::digest::crc32c;

use super::{Body, Entry, Group, Service, Waiting, deliver, execute};
use crate::strike::Kind;

/// Own entries in the log at a time; what comes meanwhile is collected into the next one.
pub(super) const IN_FLIGHT: usize = 8;
/// Entries that have not come out of the log after this are submitted again.
const RESUBMIT: Duration = Duration::from_millis(300);

pub(super) struct Unacked {
    pub(super) bytes: Vec<u8>,
    pub(super) groups: Waiting,
    pub(super) verify: bool,
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
        let kind = Kind::of(&body);
        let Some(mut bytes) = sealed(self.me.0, self.next, body) else {
            return;
        };
        if kind == Some(Kind::Entry) {
            self.struck.bytes(Kind::Submit, &mut bytes);
        }
        let mut leaves = bytes.clone();
        if let Some(kind) = kind {
            self.struck.bytes(kind, &mut leaves);
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
            },
        );
        self.next += 1;
        self.engine.submit(leaves);
    }

    /// Sends what has not come out of the log for too long once more.
    pub(super) fn submit_again(&mut self) {
        if self.unacked.is_empty() || self.submitted_at.elapsed() <= RESUBMIT {
            return;
        }
        self.submitted_at = Instant::now();
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
