//! Who orders: the log that all replicas execute.
//!
//! The service hands bytes in and gets them back, in one order, in every replica. Everything else about the engine stays behind
//! [`Sequencer`], so that a service with a log of its own can supply that.
//!
//! Invariants
//!  1. What is delivered is delivered to every replica with the same index, in ascending order.
//!  2. What is submitted may be lost or delivered late: its origin numbers it, and submits again.

pub mod raft;

use std::collections::BTreeMap;

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
        bytes: Vec<u8>,
        done: oneshot::Sender<Result<(), String>>,
    },
}

/// An engine that orders.
pub trait Sequencer {
    /// Hands bytes to whoever leads now. They may get lost.
    fn submit(&self, bytes: Vec<u8>);

    /// Who leads, as far as this replica knows.
    fn leader(&self) -> Option<Node>;

    /// The group gets a new member in place of an old one.
    fn replace(
        &self,
        old: Option<Node>,
        new: Node,
        member: Member,
    ) -> impl Future<Output = Result<(), String>> + Send;
}
