//! All of wasmtime's API that this crate uses: one Store per component, and bodies that are reset in place.
//!
//! ```text
//!   Engine ──load──► Code (a .cwasm, mapped) ──► Body (Store, instance, memory) ──call──► Ok | Failure
//!                                                  ▲                                        │
//!                                                  └──────────── reset ◄────────────────────┘
//! ```
//!
//! wasmtime 48 poisons the whole Store when a component traps, so a body has a Store of its own and a reset makes a new one. The memory is
//! the host's ([`memory`]): it stays mapped, and is filled from the image that was taken after the component's `init`.
//!
//! Invariants
//!  1. A body that failed is never called again before it was reset.
//!  2. Backtraces are off: walking frames with a damaged frame pointer would fault inside the signal handler.
//!  3. Nothing of a failed call is kept: results are read only after success.
//!
//! Not covered: component-model async, shared memory, several components in one Store.
//! See wasmtime's `Store`, `StoreExt::set_signal_handler`, `MemoryCreator`.

mod body;
mod error;
mod fits;
mod imports;
mod linked;
mod load;
mod memory;
mod quick;
mod value;
mod watch;

pub(crate) use self::body::{Body, Image, Inner, Memories, Mold};
pub use self::body::{Failure, Limits};
pub use self::error::LoadError;
pub(crate) use self::imports::{
    Asked, Callee, ENTRIES_MAX, Import, ImportFunction, Journal, Wanted, answered, open, put,
};
pub(crate) use self::linked::{Numbers, link, take_all};
pub use self::load::{Code, Engine, SelfTest};
pub(crate) use self::watch::at_next_tick;
