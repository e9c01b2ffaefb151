//! What a run of Steadfast promises and says.
//!
//! What the command line asked for, once checked, is one [`plan`]; what was seen on the way is one versioned JSON-lines schema
//! ([`event`]); what became of a fault is one enum ([`outcome`]); what the process says at the end is one table of exit codes
//! ([`exit`]). Errors that reach a user carry a fix ([`advice`]), and what monitors ask over HTTP is answered in one way ([`monitor`]).
//!
//! Invariants
//!  1. Everything here but [`monitor`] is a pure function of its inputs: no clock, no file, no socket, no thread, no
//!     environment, no unsafe. A caller hands in text and gets values back.
//!  2. Whatever can be printed can be parsed back to the same value.
//!  3. No protection is known by name: only `steadfast-fault` lies below.
//!
//! Not covered: statistics over outcomes (`crates/report`), and how a fault is carried out (`crates/strike`, `inject`,
//! `replica`).

#![forbid(unsafe_code)]

pub mod advice;
pub mod event;
pub mod exit;
pub mod monitor;
pub mod outcome;
pub mod plan;
