//! Signals of this process, taken by a thread instead of a handler.

#![allow(
    unsafe_code,
    reason = "sigset_t and sigwaitinfo(2) have no safe wrapper in libc"
)]

use std::time::Duration;

/// Blocks every signal in this thread (threads made later inherit that) and gives the mask
/// that was in force, bit 0 for signal 1.
#[must_use]
pub fn block_all() -> u64 {
    let mut old = 0;
    let all = u64::MAX;
    // The C library keeps its own two signals to itself; the system call does not.
    // SAFETY: both sets have the eight bytes that the call is told of.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            &raw mut old,
            8,
        )
    };
    old
}

/// What the kernel fills in for a signal of a process (siginfo_t, 128 bytes).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct RawInfo {
    pub(crate) signal: i32,
    pub(crate) errno: i32,
    pub(crate) code: i32,
    pub(crate) pad: i32,
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) value: u64,
    pub(crate) rest: [u64; 12],
}
const _: () = assert!(
    size_of::<RawInfo>() == size_of::<libc::siginfo_t>(),
    "siginfo_t"
);

/// A signal and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub signal: i32,
    /// Positive: the kernel, for instance a terminal; else a process (sigaction(2)).
    pub code: i32,
    pub pid: i32,
    pub uid: u32,
    /// What sigqueue(3) sent along.
    pub value: u64,
}

fn wait(set: u64, limit: Option<Duration>) -> Option<Taken> {
    let mut info = RawInfo::default();
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    // SAFETY: the set has eight bytes, the other two pointers are valid or null.
    let signal = unsafe {
        libc::syscall(
            libc::SYS_rt_sigtimedwait,
            &raw const set,
            &raw mut info,
            limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref),
            8,
        )
    };
    (signal > 0).then_some(Taken {
        signal: info.signal,
        code: info.code,
        pid: info.pid,
        uid: info.uid,
        value: info.value,
    })
}

/// Waits for the next signal of this process. All must be blocked.
#[must_use]
pub fn next() -> Taken {
    loop {
        if let Some(taken) = wait(u64::MAX, None) {
            return taken;
        }
    }
}

/// Takes a signal if it is pending.
#[must_use]
pub fn take(signal: i32) -> Option<Taken> {
    wait(1 << (signal - 1), Some(Duration::ZERO))
}
