//! A component in a process of its own, behind the same stubs.
//!
//! ```text
//!   host: stubs, slot table, keeper ──Start, Call, Discard, Reset──► process: Store, instance, memory
//!         edges to others, journal  ◄──Ask────────────────────────── (serve.rs)
//! ```
//!
//! Flips in a component, wild stores and jumps included, then reach nothing of the host. A process that ends is one more failure: it is started
//! again, and objects come back as after any reset.
//!
//! | Tier | When |
//! |---|---|
//! | reset in the process | a failure that the process itself has reported |
//! | a new process | it has ended, is silent for too long, says what is no message, or did not come back by a reset |
//! | give up | so many tries in a row have failed, or too many failures in a window (`Policy`) |
//!
//! Invariants
//!  1. The host waits no longer for a process than [`SILENT`] beyond its own limit of a call.
//!  2. What a process holds at others is known here, so it is given back when the process is gone.
//!  3. A process ends with its host: its socket says so.
//!
//! Not covered: the priority of the caller, which another process does not inherit.

mod message;
mod remote;
mod serve;
#[cfg(test)]
mod tests;

pub(crate) use self::remote::{Function, Remote, Start};
pub use self::remote::{Process, SILENT};
pub use self::serve::serve;
