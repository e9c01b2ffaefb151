//! Limits: what the caller may leave us too little of (setrlimit(2)).
//!
//! With less, something fails at some allocation, without a word about why. The program may have such a limit for itself.

use steadfast_sys::child::{Limited, allow_more, limit_of};

use crate::{LaunchError, abi};

/// Below this a process has too little.
pub(crate) const fn least(what: Limited) -> u64 {
    match what {
        // What the replicas share, and what the launcher has beside (26 MiB when it was measured, and the library that it
        // looks at).
        Limited::AddressSpace => abi::SHARED_BYTES as u64 + (64 << 20),
        // The launcher has two threads with stacks of 2 MiB; it started with 12 MiB, and not with 8.
        Limited::Data => 16 << 20,
        // Arguments are parsed with 128 KiB, and not with 96.
        Limited::Stack => 256 << 10,
        // A group stands with 8.
        Limited::Descriptors => 16,
    }
}

pub(crate) fn told(what: Limited, found: u64) -> String {
    let least = least(what);
    match what {
        Limited::AddressSpace => format!(
            "an address space of {} MiB is needed, and what the program needs, found a limit of {} MiB",
            least >> 20,
            found >> 20
        ),
        Limited::Data => format!(
            "{} MiB of data are needed, found a limit of {} MiB",
            least >> 20,
            found >> 20
        ),
        Limited::Stack => format!(
            "a stack of {} KiB is needed, found a limit of {} KiB",
            least >> 10,
            found >> 10
        ),
        Limited::Descriptors => format!("{least} descriptors are needed, found a limit of {found}"),
    }
}

pub(crate) const fn fix(what: Limited) -> &'static str {
    match what {
        Limited::AddressSpace => "ulimit -v unlimited",
        Limited::Data => "ulimit -d unlimited",
        Limited::Stack => "ulimit -s 8192",
        Limited::Descriptors => "ulimit -n 1024",
    }
}

pub(crate) const fn note(what: Limited) -> &'static str {
    match what {
        // Raised where the program starts (room_in); a hard one by CAP_SYS_RESOURCE alone.
        Limited::AddressSpace => {
            "the program may have a soft limit: run -- sh -c 'ulimit -Sv …; exec …'"
        }
        _ => "the program may have its limit: run -- sh -c 'ulimit …; exec …'",
    }
}

fn enough(what: Limited) -> Result<(), LaunchError> {
    match limit_of(what) {
        Some(found) if found < least(what) => Err(LaunchError::Limit { what, found }),
        _ => Ok(()),
    }
}

/// Whether the stack is large enough for what comes before a group: asked first, since the rest needs it.
///
/// # Errors
/// When it is not.
pub fn stack() -> Result<(), LaunchError> {
    enough(Limited::Stack)
}

/// Whether there is room for a group.
pub(crate) fn room() -> Result<(), LaunchError> {
    [Limited::Descriptors, Limited::Data, Limited::AddressSpace]
        .into_iter()
        .try_for_each(enough)
}

/// What a program of ours has set for those that it starts (dovecot sets 256 MiB) leaves no room for a group: such a process
/// may have that much beside.
pub(crate) fn room_in(pid: i32) -> Result<(), LaunchError> {
    let what = Limited::AddressSpace;
    allow_more(pid, what, least(what)).map_err(|found| LaunchError::Limit { what, found })
}
