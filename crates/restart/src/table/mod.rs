//! The slot table: what the host knows of each object behind a handle, enough to make it again.
//!
//! Invariants
//!  1. A record changes only together with its checksum, after a call that succeeded.
//!  2. A record whose checksum does not fit is never used: the handle's caller gets a typed error.
//!  3. A place that was given back gets another generation, so an old handle names nothing.
//!
//! Not covered: the objects inside the bodies; `Slot::inner` is a cache of them that one reset makes void.

mod flip;
mod keeper;
mod kept;
mod sealed;
mod slot;
mod slots;

pub(crate) use self::keeper::{Keeper, PIECE};
pub(crate) use self::sealed::{Bad, Sealed};
pub(crate) use self::slot::{Record, Slot};
pub(crate) use self::slots::Table;
