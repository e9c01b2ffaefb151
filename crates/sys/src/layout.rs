//! What decides where the kernel places the memory of a program that is executed next.

#![allow(unsafe_code, reason = "personality(2) and setrlimit(2)")]

use std::io;

/// Has every program that this process executes from now on laid out alike on every host with the same
/// kernel: no randomization (personality(2)), and a stack limit, below which mappings begin, of 8 MiB.
/// Descriptors are limited to `descriptors`.
///
/// # Errors
/// As personality(2) and setrlimit(2).
pub fn settle(descriptors: u64) -> io::Result<()> {
    let failed = |rc: i32| {
        if rc < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    fixed()?;
    let stack = libc::rlimit {
        rlim_cur: 8 << 20,
        rlim_max: 8 << 20,
    };
    // SAFETY: the limit lives across the call.
    failed(unsafe { libc::setrlimit(libc::RLIMIT_STACK, &raw const stack) })?;
    let files = libc::rlimit {
        rlim_cur: descriptors,
        rlim_max: descriptors,
    };
    // SAFETY: as above.
    failed(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) })
}

/// Has every program that this process executes from now on laid out alike on this machine (personality(2)).
///
/// # Errors
/// As personality(2).
pub fn fixed() -> io::Result<()> {
    // SAFETY: takes a number.
    if unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE.cast_unsigned().into()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
