//! The driver of `steadfast cc`: from a compiler's command line to hardened code, or to an error.
//!
//! ```text
//! arguments ──► Request (command.rs)   what is asked: compile, link, coverage, explain
//!               flags    (flags.rs)     ours among clang's, each defined once; the manual has them from here
//! policies  ──► Policy  (policy.rs)    what is a handler, how the C library is called
//! machine   ──► Tools   (tools.rs)     clang 19, the pass, the runtime; all of them or an error
//!               Report  (coverage.rs)  after a link: what handlers reach, and what is not hardened there
//! ```
//!
//! Invariants
//!  1. clang is never called without the pass where code is made: a missing piece is an error.
//!  2. A program whose handlers reach code that is not hardened is not left on disk.
//!  3. This crate prints nothing and never changes what clang printed.
//!
//! Not covered: what the pass and the runtime do (cc/).

mod asked;
pub mod command;
pub mod coverage;
mod error;
pub mod flags;
pub mod policy;
pub mod tools;
