//! Fault injection: how often does a program give a wrong answer when hardware fails?
//!
//! ```text
//!   profile ──► plan ──► runs ──► report, gate
//!   (count)   (written   (one line each,
//!              first)     resumable)
//! ```
//!
//! Invariants
//!  1. Everything a later step needs is in the campaign directory ([`record`]); reports never
//!     look at the target again.
//!  2. The plan is written before the first run and follows from the seed and the profile alone.
//!  3. A fault that did not fire never counts.

pub mod merge;
pub mod record;
pub mod results;
