//! Components that come back in microseconds, and whose clients keep their handles.
//!
//! ```text
//!   client ──call──► Host ──► stub: slot table, model ──► body of the component (a Store of its own)
//!                               │                             │ trap, wild fault, hang, mismatch
//!                               └── rebuild what this call ◄──┘ reset in place, epoch + 1
//!                                   names, then redo
//! ```
//!
//! A component keeps the live state; the host keeps, for each object behind a handle, only what is needed to make it again through the
//! interface's own functions. What that is follows from the WIT and a sidecar file ([`model`]).
//!
//! Invariants
//!  1. A handle names a slot, never an object inside a component ([`table`]).
//!  2. What a failed call returned, or did to its arguments, is never recorded.
//!  3. A body that failed is never called again before it was reset.
//!  4. Recovery happens in the caller's thread, under the component's lock, which lends priority.
//!
//! A body runs in this process, or in one of its own ([`process`]).
//!
//! Not covered: `docs/concepts/restart.md`, "What in-process isolation does not confine".
//! See Song, Wittrock and Parmer, "Predictable, efficient system-level fault tolerance in C3", RTSS 2013.

mod body;
pub mod engine;
pub mod host;
pub mod keep;
pub mod model;
pub mod package;
pub mod process;
pub mod shape;
mod table;
pub mod trial;
pub mod value;
mod wire;
mod words;

pub use engine::{Engine, Failure, LoadError};
pub use host::{
    Answer, Bare, CallError, Cause, Component, Console, Dump, Edge, Host, Linked, Policy, Stats,
    Stream, UpgradeError, Upgraded,
};
pub use model::{Model, ModelError, Samples};
pub use process::Process;
pub use shape::Shape;
pub use value::{Handle, Value};
/// Of the version that [`Edge::link`] takes a linker of.
pub use wasmtime;
