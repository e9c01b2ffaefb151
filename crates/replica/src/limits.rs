//! Limits: what the caller may leave us too little of (setrlimit(2)).
//!
//! With less, something fails at some allocation, without a word about why. The program may have such a limit for itself.

use steadfast_sys::limit::{self, Limited, allow_more, limit_of};

use crate::{LaunchError, abi};

const _: () = assert!(abi::SHARED_BYTES as u64 <= limit::SHARED_BYTES);

/// What a process of the program has beside its own: what the replicas share, and the agent.
const BESIDE: u64 = abi::SHARED_BYTES as u64 + (64 << 20);

pub(crate) fn told(what: Limited, found: u64) -> String {
    let least = what.least();
    match what {
        Limited::AddressSpace => format!(
            "an address space of {} MiB is needed for the launcher, and {} MiB for each process beside its own, found a limit of {} MiB",
            least >> 20,
            BESIDE >> 20,
            found >> 20
        ),
        Limited::Data => format!(
            "{} MiB of data are needed, found a limit of {} KiB",
            least >> 20,
            found >> 10
        ),
        Limited::Stack => format!(
            "a stack of {} KiB is needed, found a limit of {} KiB",
            least >> 10,
            found >> 10
        ),
        Limited::Descriptors => format!("{least} descriptors are needed, found a limit of {found}"),
        Limited::FileSize => format!(
            "files of {} MiB are needed (memory that the replicas share), found a limit of {} KiB",
            least >> 20,
            found >> 10
        ),
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
    limit::raise(what);
    match limit_of(what) {
        Some(found) if found < what.least() => Err(LaunchError::Limit { what, found }),
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

/// Whether there is room for groups: asked before anything is made, since a file that is too large is a signal.
pub(crate) fn room() -> Result<(), LaunchError> {
    [
        Limited::Descriptors,
        Limited::Data,
        Limited::AddressSpace,
        Limited::FileSize,
    ]
    .into_iter()
    .try_for_each(enough)
}

/// What a program of ours has set for those that it starts (dovecot sets 256 MiB) leaves no room for a group: such a process
/// may have that much beside.
pub(crate) fn room_in(pid: i32) -> Result<(), LaunchError> {
    let what = Limited::AddressSpace;
    allow_more(pid, what, BESIDE).map_err(|found| LaunchError::Limit { what, found })
}

/// Which limit of the caller has probably made the kernel refuse something.
pub(crate) fn behind(source: &std::io::Error) -> Option<&'static str> {
    match source.raw_os_error()? {
        libc::EMFILE => Some(Limited::Descriptors.fix()),
        libc::ENOMEM if limit_of(Limited::AddressSpace).is_some() => {
            Some(Limited::AddressSpace.fix())
        }
        libc::ENOMEM if limit_of(Limited::Data).is_some() => Some(Limited::Data.fix()),
        libc::EAGAIN => Some("ulimit -u unlimited, and pids.max of the control group"),
        _ => None,
    }
}
