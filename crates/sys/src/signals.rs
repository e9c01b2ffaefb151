//! Signals of this process, taken by a thread instead of a handler.

#![allow(unsafe_code, reason = "sigset_t and sigwaitinfo(2) have no safe wrapper in libc")]

/// Blocks every signal in this thread (threads made later inherit that) and gives the mask
/// that was in force.
#[must_use]
pub fn block_all() -> libc::sigset_t {
    // SAFETY: sigset_t is plain bits, for which zero is a value.
    let mut old: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    // SAFETY: both sets are valid for the call.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old) };
    old
}

/// A signal and where it came from.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    pub signal: i32,
    /// Positive: the kernel, for instance a terminal; else a process (sigaction(2)).
    pub code: i32,
    pub pid: i32,
}

/// Waits for the next signal of this process. All must be blocked.
#[must_use]
pub fn next() -> Taken {
    // SAFETY: sigset_t is plain bits.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `all` is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: both pointers are valid for the call.
        let signal = unsafe { libc::sigwaitinfo(&raw const all, info.as_mut_ptr()) };
        if signal > 0 {
            // SAFETY: zeroed, then filled by the kernel.
            let info = unsafe { info.assume_init() };
            return Taken {
                signal,
                code: info.si_code,
                // SAFETY: the field is valid for signals of processes, and plain bits otherwise.
                pid: unsafe { info.si_pid() },
            };
        }
    }
}
