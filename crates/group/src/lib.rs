//! Replicas of one service on several hosts: the log that they execute, how they find each other, and what they tell each other.
//!
//! ```text
//!   sequencer   who orders: openraft behind a trait
//!   entry       what the log is made of
//!   disk        what a replica keeps across its end: the log, its vote, the last state
//!   state       the digest that goes with a whole state
//!   meet        how a process finds its group, or founds one
//!   gate        what a member answers such a process
//!   driver      executes the log, votes, lets replies go: for a service that has no loop of its own
//!   links       connections to other replicas, with the secret of the group
//!   accept      connections from them
//!   net         the network under both: tokio's, or one that is simulated
//!   who         who belongs to the group, and who wants to
//!   tls         certificates from files, both sides shown
//!   peers       messages of the vote, to every other replica
//!   wire        frames: length, CRC32C, bytes
//! ```
//!
//! Invariants
//!  1. Nothing here knows what the replicas execute: `crates/kv` and `crates/crosscheck-c` do.
//!  2. A process never has a node number that another one has had, unless it has that one's log and vote.
//!  3. Nothing here prints: what a person is to be told goes to a function of the caller.
//!
//! Not covered: secrecy without TLS. The secret then keeps out only who does not listen: it goes over the network in the clear.

#![forbid(unsafe_code)]

pub mod accept;
pub mod disk;
pub mod driver;
pub mod entry;
pub mod gate;
pub mod links;
pub mod meet;
pub mod net;
pub mod peers;
pub mod secret;
pub mod sequencer;
pub mod state;
mod sync;
pub mod tls;
pub mod who;
pub mod wire;

pub use links::{Heard, Links};
pub use peers::Peers;
pub use sequencer::{Delivery, Sequencer};
pub use who::{Kept, Member, Met, Who};
pub use wire::{Post, ReadAt};

/// What cannot be done, with the requirement, what was found, and the fix.
pub type Failure = anyhow::Error;
