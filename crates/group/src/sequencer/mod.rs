//! Who orders: the log that all replicas execute.
//!
//! The service hands bytes in and gets them back, in one order, in every replica. Everything else about the engine stays behind
//! [`Sequencer`], so that a service with a log of its own can supply that.
//!
//! Invariants
//!  1. What is delivered is delivered to every replica with the same index, in ascending order.
//!  2. What is submitted may be lost or delivered late: its origin numbers it, and submits again.

mod hand;
mod log;
mod machine;
pub mod raft;

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_crosscheck::Node;
use tokio::sync::oneshot;

use crate::who::Member;

/// What comes out of the log.
#[derive(Debug)]
pub enum Delivery {
    /// An entry, with the time that the leader stamped it with.
    Entry { index: u64, bytes: Vec<u8> },
    /// A place in the log without anything to execute.
    Blank { index: u64 },
    /// Who belongs to the group from this index on.
    Members {
        index: u64,
        members: BTreeMap<Node, Member>,
    },
    /// The state at this place is wanted; nothing is answered if it is in doubt here.
    Snapshot(oneshot::Sender<Option<Vec<u8>>>),
    /// The state of another replica replaces this one's.
    Install {
        index: u64,
        members: BTreeMap<Node, Member>,
        bytes: Arc<Vec<u8>>,
        done: oneshot::Sender<Result<(), String>>,
    },
}

/// Bits of a submission's number that count within one start of its process; those above them count the starts.
const START_BITS: u32 = 40;

/// The number of the first submission of a process that has been started so often with its node number.
#[must_use]
pub const fn first_sequence(starts: u64) -> u64 {
    (starts << START_BITS) | 1
}

/// Whether a submission is the next one of its origin: the one behind `last`, or the first of a later start. What an earlier start has
/// left under way is none.
#[must_use]
pub const fn is_next(last: u64, sequence: u64) -> bool {
    let starts = sequence >> START_BITS;
    sequence == last + 1 || (starts > last >> START_BITS && sequence == first_sequence(starts))
}

/// An engine that orders: [`raft::Engine`], or the log that a service has already. What it orders comes out as [`Delivery`].
pub trait Sequencer: Clone + Send + Sync + 'static {
    /// Hands bytes to whoever leads now, who puts its time before them ([`stamped`]). They may get lost, or come out twice.
    fn submit(&self, bytes: Vec<u8>);

    /// Who leads, as far as this replica knows.
    fn leader(&self) -> Option<Node>;

    /// Whether this replica leads.
    fn is_leader(&self) -> bool;

    /// Who belongs to the group as far as the log has come to this replica, executed or not.
    fn members(&self) -> BTreeMap<Node, Member>;

    /// The group gets a new member in place of an old one.
    fn replace(
        &self,
        old: Option<Node>,
        new: Node,
        member: Member,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// A member is reached by clients at another address.
    fn readdress(
        &self,
        node: Node,
        member: Member,
    ) -> impl Future<Output = Result<(), String>> + Send;
}

/// The leader's time goes before an entry, with a check of its own.
#[must_use]
pub fn stamped(time_ms: u64, bytes: &[u8]) -> Vec<u8> {
    let time = time_ms.to_le_bytes();
    let check = steadfast_digest::crc32c(&time).to_le_bytes();
    [&time[..], &check, bytes].concat()
}

/// The leader's time and the entry; a time that does not fit its check is no time.
#[must_use]
pub fn unstamped(bytes: &[u8]) -> (u64, &[u8]) {
    let Some((time, rest)) = bytes.split_first_chunk::<8>() else {
        return (0, &[]);
    };
    let Some((check, rest)) = rest.split_first_chunk::<4>() else {
        return (0, &[]);
    };
    if steadfast_digest::crc32c(time) == u32::from_le_bytes(*check) {
        (u64::from_le_bytes(*time), rest)
    } else {
        (0, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_hit_is_no_time_and_its_entry_is_whole() {
        let bytes = stamped(1_700_000_000_123, b"entry");
        assert_eq!(unstamped(&bytes), (1_700_000_000_123, &b"entry"[..]));
        for bit in 0..12 * 8 {
            let mut hit = bytes.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unstamped(&hit), (0, &b"entry"[..]));
        }
        assert_eq!(unstamped(&bytes[..11]), (0, &b""[..]));
    }

    #[test]
    fn a_later_start_begins_anew_and_an_earlier_one_is_over() {
        assert!(is_next(0, 1) && is_next(6, 7));
        assert!(!is_next(6, 6) && !is_next(6, 8) && !is_next(6, 1));
        let (second, third) = (first_sequence(2), first_sequence(3));
        assert!(is_next(first_sequence(1) + 5, second) && is_next(0, third));
        assert!(!is_next(0, third + 1), "its first one has to come first");
        assert!(
            !is_next(third, second) && !is_next(third, second + 1),
            "of the start before"
        );
    }
}
