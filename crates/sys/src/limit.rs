//! Limits of a process (setrlimit(2)), and what a launcher needs of them.
//!
//! Invariant: a program has the limits of the caller. Where this process has raised its own, a child gives them back before exec.

#![allow(unsafe_code, reason = "getrlimit(2), setrlimit(2), prlimit(2)")]

use std::sync::OnceLock;

/// What a process may have only so much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    AddressSpace,
    Data,
    Stack,
    Descriptors,
    FileSize,
}

/// What the replicas of one process share; crates/replica/src/limits.rs holds it against the layout.
pub const SHARED_BYTES: u64 = 268 << 20;

impl Limited {
    fn resource(self) -> libc::__rlimit_resource_t {
        match self {
            Limited::AddressSpace => libc::RLIMIT_AS,
            Limited::Data => libc::RLIMIT_DATA,
            Limited::Stack => libc::RLIMIT_STACK,
            Limited::Descriptors => libc::RLIMIT_NOFILE,
            Limited::FileSize => libc::RLIMIT_FSIZE,
        }
    }

    /// Below this a launcher has too little.
    #[must_use]
    pub const fn least(self) -> u64 {
        match self {
            // For a program of one process: what its replicas share, and what the launcher has beside (26 MiB when it was
            // measured, and the library that it looks at).
            Limited::AddressSpace => SHARED_BYTES + (64 << 20),
            // A shell with a pipeline did not run with 20 MiB, and ran with 40.
            Limited::Data => 64 << 20,
            // Arguments are parsed with 128 KiB, and not with 96.
            Limited::Stack => 256 << 10,
            // A group stands with 8. A shell with a pipeline did not run with 24, and ran with 30.
            Limited::Descriptors => 64,
            Limited::FileSize => SHARED_BYTES,
        }
    }

    /// With this a launcher has enough for a shell and its pipelines. Where it has less, it takes what the hard limit allows.
    #[must_use]
    pub const fn wanted(self) -> u64 {
        match self {
            // The shared memory of each process of the program is mapped twice: room for six of them, and what the launcher
            // has beside. With four of them it had 2,490 MiB.
            Limited::AddressSpace => 14 * SHARED_BYTES + (64 << 20),
            _ => self.least(),
        }
    }

    /// What lifts it.
    #[must_use]
    pub const fn fix(self) -> &'static str {
        match self {
            Limited::AddressSpace => "ulimit -v unlimited",
            Limited::Data => "ulimit -d unlimited",
            Limited::Stack => "ulimit -s 8192",
            Limited::Descriptors => "ulimit -n 1024",
            Limited::FileSize => "ulimit -f unlimited",
        }
    }

    /// Whether a launcher may have more than its caller has left, since nothing of the program depends on it.
    const fn raised(self) -> Option<usize> {
        match self {
            Limited::AddressSpace => Some(0),
            Limited::Data => Some(1),
            Limited::Descriptors => Some(2),
            Limited::Stack | Limited::FileSize => None,
        }
    }
}

const RAISED: [Limited; 3] = [Limited::AddressSpace, Limited::Data, Limited::Descriptors];

/// What the caller had, of what this process has raised.
static CALLERS: [OnceLock<libc::rlimit>; RAISED.len()] = [const { OnceLock::new() }; RAISED.len()];

fn get(what: Limited) -> Option<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for the call.
    let rc = unsafe { libc::getrlimit(what.resource(), &raw mut limit) };
    (rc == 0).then_some(limit)
}

fn set(what: Limited, limit: &libc::rlimit) -> bool {
    // SAFETY: `limit` is valid for the call, which only reads it.
    unsafe { libc::setrlimit(what.resource(), limit) == 0 }
}

/// How much of it this process may have (the soft limit); none where it is unlimited.
#[must_use]
pub fn limit_of(what: Limited) -> Option<u64> {
    get(what)
        .map(|limit| limit.rlim_cur)
        .filter(|&found| found != libc::RLIM_INFINITY)
}

/// How much of it a launcher may have: where that is too little, what the hard limit allows.
#[must_use]
pub fn reach_of(what: Limited) -> Option<u64> {
    let found = limit_of(what)?;
    if found >= what.least() || what.raised().is_none() {
        return Some(found);
    }
    get(what)
        .map(|limit| limit.rlim_max)
        .filter(|&found| found != libc::RLIM_INFINITY)
}

/// Gives this process what its hard limit allows where it has too little. A program that it starts gets what the caller had.
pub fn raise(what: Limited) {
    let Some((at, limit)) = what.raised().zip(get(what)) else {
        return;
    };
    if limit.rlim_cur >= what.wanted() || limit.rlim_cur == limit.rlim_max {
        return;
    }
    let most = libc::rlimit {
        rlim_cur: limit.rlim_max,
        ..limit
    };
    if set(what, &most) {
        CALLERS[at].get_or_init(|| limit);
    }
}

/// In a child: the limits of the caller again. Calls nothing that a fork could have left locked.
pub(crate) fn give_back() -> bool {
    RAISED
        .iter()
        .zip(&CALLERS)
        .all(|(&what, limit)| match limit.get() {
            Some(limit) => set(what, limit),
            None => true,
        })
}

/// Where another process may have less than `least` of it, it may have so much more from here on.
///
/// # Errors
/// What it may have, if that cannot be changed: its hard limit is as low, and this process may not raise it.
pub fn allow_more(pid: i32, what: Limited, least: u64) -> Result<(), u64> {
    let resource = what.resource();
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: no new limit is given, and `limit` is valid for the call.
    let rc = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limit) };
    let found = limit.rlim_cur;
    if rc != 0 || found == libc::RLIM_INFINITY || found >= least {
        return Ok(());
    }
    limit.rlim_cur += least;
    limit.rlim_max = limit.rlim_max.max(limit.rlim_cur);
    // SAFETY: the old limit is not asked for, and `limit` is valid for the call.
    let rc = unsafe { libc::prlimit(pid, resource, &raw const limit, std::ptr::null_mut()) };
    if rc == 0 { Ok(()) } else { Err(found) }
}
