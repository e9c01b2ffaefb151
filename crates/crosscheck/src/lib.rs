//! CrossCheck: replicas vote on every object that a request touched before its reply leaves, and repair each other's.
//!
//! A service whose replicas execute one ordered log hands each executed entry to [`Core`]: the latest digest of every object that
//! the entry touched, and the digest of every reply. The core compares them with the other replicas' and says when the replies may
//! leave, which replica is wrong, which of its objects, and when those have been repaired from another's.
//!
//! ```text
//!   log ──► execute ──► executed(index, objects, replies) ──► CHECK, 16 bytes an entry ──► peers
//!                                     │
//!            equal at f+1 ◄───────────┴──────────► different: DETAIL, the object lists
//!            Release(index)                                   │
//!                                            Order(Recover) ──► log ──► recover(index)
//!                                                                        REPORT: digests from bytes, voted on object by object
//!                                                                        FETCH, REPAIR: checked against the voted digest
//!                                                                        Resume
//! ```
//!
//! Invariants
//!  1. The core is a function of its calls: no clock, socket, disk or thread. Time is [`Core::tick`].
//!  2. Replies leave when f+1 of 2f+1 replicas have computed the same entry; a wrong own reply waits for the right one.
//!  3. Bytes from another replica are stored only if their digest is the one that was voted for.
//!
//! Not covered: clients that lie, and more than f replicas wrong in the same way at the same entry.
//! See Martens et al., "CrossCheck", EDCC 2016, Section IV; docs/concepts/crosscheck.md says where this differs.

#![forbid(unsafe_code)]

// What the derives write names this crate.
extern crate self as steadfast_crosscheck;

pub mod core;
pub mod guarded;
pub mod ids;
pub mod message;
pub mod sim;
#[cfg(test)]
mod tests;

pub use crate::core::{Action, Core, Objects, Standing, Status, refresh};
pub use crate::guarded::{Arena, Critical, Encode, Ref, State};
pub use crate::ids::{Digest, Index, Node, ObjectId};
pub use crate::message::{Message, Pair, Recover, Run, To, Tuple};
pub use steadfast_crosscheck_derive::{Critical, State, critical};

/// The guide's code compiles and does what it says.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/protect.md")]
pub struct Guide;
