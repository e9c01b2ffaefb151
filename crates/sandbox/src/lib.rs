//! A sandbox for programs that do wrong things: namespaces of its own, a read-only file system, no
//! privilege, no network, and an end that takes everything along.
//!
//! ```text
//!   caller ── fork ──► keeper (waits) ── fork ──► first process: pid 1 of a pid namespace
//!                                                         └─ spawn ──► program, traced, unprivileged
//! ```
//!
//! Invariants
//!  1. Nothing inside can signal, trace or see a process outside.
//!  2. When the first process or its caller dies, the kernel kills everything inside.
//!  3. A signal to the caller's process group reaches nobody inside.
//!  4. What the kernel would not give is told ([`Isolation`]), never assumed.
//!
//! Not covered: denial of service beyond the limits given, kernel bugs.

#![allow(
    unsafe_code,
    reason = "namespaces, seccomp and what happens between fork and exec"
)]

mod caller;
mod end;
mod enter;
mod filter;
mod follow;
pub mod notify;
mod program;

use std::io;

pub use caller::{Caller, Unanswered, serve};
pub use end::{Ended, alive_after, await_end, end_all, finish};
pub use enter::{Isolation, Rules, aside, c_path, enter};
pub use follow::{Born, Follower, Trapped, follow};
pub use program::{Limits, Program, start};

fn ok(rc: i64) -> io::Result<i64> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends this process without running what its parent left to run at exit.
    unsafe { libc::_exit(code) }
}
