//! Small files of the kernel, read for explanations only: what works is decided by trying.

#![allow(unsafe_code, reason = "uname(2)")]

use std::fs;
use std::mem::MaybeUninit;

/// The first word of a file such as a sysctl; nothing if it cannot be read.
pub(crate) fn word(path: &str) -> Option<String> {
    fs::read_to_string(path)
        .ok()?
        .split_whitespace()
        .next()
        .map(str::to_owned)
}

/// Kernel release, from uname(2): /proc/sys may be masked.
pub(crate) fn release() -> String {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `name` is large enough for the call to fill.
    if unsafe { libc::uname(name.as_mut_ptr()) } != 0 {
        return "unknown".to_owned();
    }
    // SAFETY: all-zero bytes are a valid `utsname`, and the call has filled it since.
    let name = unsafe { name.assume_init() };
    name.release
        .iter()
        .map_while(|&c| (c != 0).then(|| char::from(c.cast_unsigned())))
        .collect()
}

/// A sysctl that is a number.
pub(crate) fn number(path: &str) -> Option<u64> {
    word(path)?.parse().ok()
}

/// The value after `key:` in this process's status.
pub(crate) fn status(key: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(':')
            .map(|value| value.trim().to_owned())
    })
}

/// CAP_SYS_ADMIN of capability.h.
const CAP_SYS_ADMIN: u32 = 21;

/// Whether this process may make namespaces without a user namespace.
pub(crate) fn is_admin() -> bool {
    let effective = status("CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok());
    effective.is_some_and(|set| set >> CAP_SYS_ADMIN & 1 == 1)
}

/// Whether somebody put this process under a seccomp filter, as container runtimes do.
pub(crate) fn is_filtered() -> bool {
    status("Seccomp").as_deref() == Some("2")
}
