//! One question to the kernel, and its answers (netlink(7)).
//!
//! Invariant: a socket asks once, so that what comes is an answer to it.
//!
//! Not covered: how a message is made and read, which is its protocol's.

#![allow(unsafe_code, reason = "netlink(7) is only reachable through libc")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A socket that has asked.
#[derive(Debug)]
pub(crate) struct Asked(OwnedFd);

/// Asks by `protocol` (`NETLINK_ROUTE`, ...).
pub(crate) fn ask(protocol: i32, message: &[u8]) -> io::Result<Asked> {
    // SAFETY: takes numbers.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is new, and nobody else's.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: `message` is read, within its length; the kernel is the peer of a netlink socket without an address.
    let sent = unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Asked(socket))
}

impl Asked {
    /// The next datagram, which may hold several messages; how long it is.
    pub(crate) fn answer(&self, bytes: &mut [u8]) -> io::Result<usize> {
        // SAFETY: `bytes` has room for the length that is given.
        let got = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                0,
            )
        };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }
}
