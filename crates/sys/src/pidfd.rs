//! A process by a descriptor: it names this one, whoever gets its number later.

#![allow(
    unsafe_code,
    reason = "pidfd_open(2) and pidfd_send_signal(2) have no wrappers in libc"
)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A process, alive or not.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// The process that has this number now.
    ///
    /// # Errors
    /// As pidfd_open(2).
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open takes two numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match i32::try_from(fd) {
            // SAFETY: the call returns a new descriptor that nobody else owns.
            Ok(fd) if fd >= 0 => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sends a signal; a process that is gone already is as good as reached.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the descriptor is open, and no siginfo is given.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                std::ptr::null::<u8>(),
                0,
            )
        };
    }

    /// Whether it has ended, or does within so long.
    #[must_use]
    pub fn ends_within(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: one entry and a time, valid for the call.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) > 0 }
    }
}
