//! futex(2) on words shared between processes.

#![allow(unsafe_code, reason = "futex(2) has no wrapper in libc")]

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, for at most `limit`. Wakes early without a reason.
pub fn wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    // SAFETY: the word and the time live across the call, which keeps neither.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const limit,
        )
    };
}

/// Wakes everybody who sleeps on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: only the address matters.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
