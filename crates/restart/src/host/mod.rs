//! The host: components, edges between them and their clients, and the path of a call.
//!
//! ```text
//!   lock ─► rebuild what the arguments name ─► check arguments ─► call (each body) ─► compare, check ─► record ─► unlock
//!              ▲                                                        │
//!              └── reset, epoch + 1 ◄── cause: trap, wild fault, hang, mismatch, invalid
//! ```
//!
//! Invariants
//!  1. A component is a monitor: one call at a time, under a lock that lends priority; a call back into it is an error, never a deadlock.
//!  2. A slot is changed only after a call that succeeded in every body, with equal results.
//!  3. A call that fails again and again is answered with an error to its caller alone; the component stays in service for others.
//!  4. More failures than the policy allows within its window make the component rest, longer each time, and then end it.
//!  5. A client reaches its own objects alone: a handle of another client is refused.
//!  6. A component calls those alone that were added before it, so no two wait for each other.
//!
//! Not covered: what a component has asked others for is not undone when it fails; its repetition gets the same answers (the journal).

mod bare;
mod check;
mod clock;
mod component;
mod core;
mod edge;
mod ending;
mod idle;
mod keeping;
mod keys;
mod parts;
mod rebuild;
mod record;
mod unit;
mod upgrade;

pub use self::bare::Bare;
pub use self::clock::{WALL_CLOCK, stopped_clock, wall_clock};
pub use self::component::{ASSERTION, Answer, CONSOLE, Component, Console, Stream};
pub use self::edge::{Edge, Linked};
pub use self::unit::Host;
pub use self::upgrade::{UpgradeError, Upgraded};
pub use crate::words::{
    BodyDump, CallError, Cause, Counts, Dump, Kept, Listener, Policy, Report, State, Stats,
};
