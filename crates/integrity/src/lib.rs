//! The words every part of Steadfast shares.
//!
//! A fault is described once, by one grammar ([`fault`]); what became of it is one enum
//! ([`outcome`]); what was seen on the way is one versioned JSON-lines schema ([`event`]);
//! what the process says at the end is one table of exit codes ([`exit`]); and what the
//! command line asked for, once checked, is one [`plan`]. Errors that reach a user carry a
//! fix ([`advice`]).
//!
//! Invariants
//!  1. Everything here is a pure function of its inputs: no clock, no file, no socket, no
//!     thread, no environment, no unsafe. A caller hands in text and gets values back.
//!  2. Whatever can be printed can be parsed back to the same value.
//!  3. No protection is known by name: this crate is at the bottom of the dependency graph.
//!
//! Not covered: statistics over outcomes (`crates/report`), and how a fault is carried out (`crates/strike`, `inject`,
//! `replica`).

#![forbid(unsafe_code)]

#[macro_use]
mod macros;

pub mod advice;
pub mod cpus;
pub mod digest;
pub mod envelope;
pub mod event;
pub mod exit;
pub mod fault;
pub mod ids;
pub mod monitor;
pub mod outcome;
pub mod plan;
mod text;
