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
    try_block_all().unwrap_or(0)
}

/// The same, for one who cannot go on where a filter refuses it.
///
/// # Errors
/// As rt_sigprocmask(2).
pub fn try_block_all() -> std::io::Result<u64> {
    let mut old = 0;
    let all = u64::MAX;
    // The C library keeps its own two signals to itself; the system call does not.
    // SAFETY: both sets have the eight bytes that the call is told of.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const all,
            &raw mut old,
            8,
        )
    };
    match rc {
        0 => Ok(old),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Lets every signal through again, for a command that this process is about to become.
pub fn unblock_all() {
    restore(0);
}

/// Puts a mask in force that [`block_all`] has given.
pub fn restore(mask: u64) {
    // SAFETY: the set has the eight bytes that the call is told of.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            std::ptr::null_mut::<u64>(),
            8,
        )
    };
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

impl Taken {
    /// What one takes in a pipe.
    pub const BYTES: usize = 24;

    /// For a process that takes them elsewhere.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (at, word) in [self.signal, self.code, self.pid, self.uid.cast_signed()]
            .into_iter()
            .enumerate()
        {
            bytes[4 * at..][..4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..].copy_from_slice(&self.value.to_le_bytes());
        bytes
    }

    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let word = |at: usize| i32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * at + byte]));
        Self {
            signal: word(0),
            code: word(1),
            pid: word(2),
            uid: word(3).cast_unsigned(),
            value: u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[16 + byte])),
        }
    }
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

/// Waits for the next signal of this process, for one who has something else to look at where that fails.
#[must_use]
pub fn try_next() -> Option<Taken> {
    wait(u64::MAX, None)
}

/// Keeps these signals from this thread, and from threads made later, for [`within`].
pub fn block(which: &[i32]) {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set lives across the call, which initialises it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in which {
        // SAFETY: the set is initialised.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: as above; nobody asks for the old mask.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) };
}

/// Waits so long for one of these signals, which must be blocked.
#[must_use]
pub fn within(which: &[i32], limit: Duration) -> Option<Taken> {
    let mask = which
        .iter()
        .fold(0, |mask, signal| mask | 1 << (signal - 1));
    wait(mask, Some(limit))
}

/// Takes a signal if it is pending.
#[must_use]
pub fn take(signal: i32) -> Option<Taken> {
    wait(1 << (signal - 1), Some(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_comes_out_of_a_pipe_as_it_went_in() {
        let taken = Taken {
            signal: 34,
            code: -1,
            pid: 77,
            uid: u32::MAX,
            value: 1 << 63 | 5,
        };
        assert_eq!(Taken::from_bytes(taken.to_bytes()), taken);
    }
}
