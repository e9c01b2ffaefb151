//! A descriptor of another process, duplicated into this one.

#![allow(
    unsafe_code,
    reason = "pidfd_open(2) and pidfd_getfd(2) have no wrappers in libc"
)]

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

fn checked(rc: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(rc) {
        // SAFETY: both calls return a new descriptor that nobody else owns.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Duplicates descriptor `fd` of process `pid`: the same open file, in this process's table.
/// Where the kernel will not (before Linux 5.6, or Yama in the way), the file is opened anew.
///
/// # Errors
/// As ptrace(2) access checks decide, and as open(2) for the second attempt.
pub fn duplicate(pid: i32, fd: i32) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    // SAFETY: pidfd_open takes two numbers.
    let pidfd = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
    let direct = pidfd.and_then(|pidfd| {
        // SAFETY: pidfd_getfd takes three numbers; `pidfd` is open across the call.
        checked(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) })
    });
    match direct {
        Ok(file) => Ok(file.into()),
        Err(_) => File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/fd/{fd}")),
    }
}
