//! Sockets that a parent has opened and a child takes over by number, so that a replica that is replaced keeps its address.

#![allow(
    unsafe_code,
    reason = "a descriptor that is known by number alone can only be taken over by from_raw_fd(3)"
)]

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Takes a listening socket over.
pub(crate) fn listener(number: RawFd) -> io::Result<TcpListener> {
    if number < 3 {
        return Err(io::Error::other(format!(
            "descriptor {number} is a standard stream"
        )));
    }
    // SAFETY: only used to ask the kernel whether the number is open; not kept.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(borrowed)?;
    // SAFETY: the number is open, as just seen, and the command line that named it is the only one that knows it: nothing else owns it.
    let listener = unsafe { TcpListener::from_raw_fd(number) };
    // Not for this process's own children.
    fcntl_setfd(&listener, FdFlags::CLOEXEC)?;
    listener.local_addr()?;
    Ok(listener)
}

/// Whether children inherit it.
pub(crate) fn share(socket: &impl AsFd, shared: bool) -> io::Result<()> {
    fcntl_setfd(
        socket,
        if shared {
            FdFlags::empty()
        } else {
            FdFlags::CLOEXEC
        },
    )?;
    Ok(())
}
