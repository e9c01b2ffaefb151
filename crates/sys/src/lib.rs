//! The operating system behind safe types: three fifths of the unsafe Rust is here (ARCHITECTURE.md says where the rest is).
//!
//! Each module wraps one facility of Linux.
//!
//! Invariants
//!  1. A value's type says what state a process is in: [`ptrace::Stopped`] can be read and
//!     resumed, and resuming consumes it.
//!  2. Addresses in another process are plain `u64`, never pointers.

pub mod address;
pub mod attributes;
pub mod bpf;
pub mod child;
pub mod connection;
pub mod cpu;
pub mod descriptor;
pub mod disk;
pub mod futex;
pub mod inherit;
pub mod ipc;
pub mod layout;
pub mod limit;
pub mod linear;
pub mod manager;
pub mod memfd;
pub mod memory;
mod neighbour;
mod netlink;
pub mod pad;
pub mod pagemap;
pub mod pidfd;
pub mod procfs;
pub mod ptrace;
pub mod publish;
pub mod random;
pub mod segment;
pub mod shared;
pub mod signals;
pub mod step;
pub mod terminal;
pub mod tick;
pub mod unix_diag;
pub mod write_faults;
