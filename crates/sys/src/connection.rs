//! A TCP connection of another process, which is to fall silent while that process lives, or to be set up by a process that may not.
//!
//! See tcp(7), TCP_REPAIR: a connection in repair says nothing, not even when it is closed.

#![allow(
    unsafe_code,
    reason = "socket options and recv(2) with flags have no wrappers in the standard library"
)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use crate::descriptor;

const REPAIR: libc::c_int = 19;
const REPAIR_QUEUE: libc::c_int = 20;
const RECV_QUEUE: libc::c_int = 1;
const NO_QUEUE: libc::c_int = 0;
const OFF_WITHOUT_PROBE: libc::c_int = -1;
/// TCP_ESTABLISHED, first byte of struct tcp_info.
const ESTABLISHED: u8 = 1;

fn checked(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn set(
    socket: &File,
    (level, name): (libc::c_int, libc::c_int),
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: `value` is an int, as all options want it that are named here, and lives across the call.
    checked(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            4,
        )
    })
}

/// Options that the kernel keeps from whoever has no CAP_NET_ADMIN, and a connection is set up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    Repair,
    SendBuffer,
}

impl Guarded {
    #[must_use]
    pub fn of(level: i32, name: i32) -> Option<Self> {
        [Self::Repair, Self::SendBuffer]
            .into_iter()
            .find(|one| one.option() == (level, name))
    }

    fn option(self) -> (libc::c_int, libc::c_int) {
        match self {
            Self::Repair => (libc::IPPROTO_TCP, REPAIR),
            Self::SendBuffer => (libc::SOL_SOCKET, libc::SO_SNDBUFFORCE),
        }
    }
}

/// Sets an option of descriptor `fd` of a process.
///
/// # Errors
/// As setsockopt(2), and where the descriptor cannot be had (pidfd_getfd(2)).
pub fn set_for(pid: i32, fd: i32, what: Guarded, value: i32) -> io::Result<()> {
    set(&descriptor::duplicate(pid, fd)?, what.option(), value)
}

/// Binds descriptor `fd` of a process to an address, as sockaddr(3type) has it.
///
/// # Errors
/// As bind(2), and where the descriptor cannot be had (pidfd_getfd(2)).
pub fn bind_for(pid: i32, fd: i32, address: &[u8]) -> io::Result<()> {
    let socket = descriptor::duplicate(pid, fd)?;
    let len = u32::try_from(address.len()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `len` bytes of `address`, of any alignment.
    checked(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), len) })
}

#[derive(Debug)]
pub struct Connection {
    file: File,
    pub fd: i32,
}

impl Connection {
    /// Of the descriptor `fd` of a process, if it is one that has a peer.
    #[must_use]
    pub fn of(pid: i32, fd: i32) -> Option<Self> {
        let file = descriptor::duplicate(pid, fd).ok()?;
        let this = Self { file, fd };
        let state = this.state()?;
        // TCP_CLOSE is 7, TCP_LISTEN 10.
        (state != 7 && state != 10).then_some(this)
    }

    fn state(&self) -> Option<u8> {
        let mut info = [0_u8; 8];
        let mut len = 8_u32;
        // SAFETY: `info` has room for the `len` bytes that the kernel may write.
        let rc = unsafe {
            libc::getsockopt(
                self.file.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut len,
            )
        };
        (rc == 0).then_some(info[0])
    }

    fn set(&self, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set(&self.file, (libc::IPPROTO_TCP, name), value)
    }

    /// Says nothing from now on.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN.
    pub fn hush(&self) -> io::Result<()> {
        self.set(REPAIR, 1)
    }

    /// Speaks again, as if nothing had been.
    ///
    /// # Errors
    /// As [`Self::hush`].
    pub fn speak(&self) -> io::Result<()> {
        self.set(REPAIR, OFF_WITHOUT_PROBE)
    }

    /// Of a silent connection: what has come and nobody has read. Nothing: its peer has said that no more will come.
    ///
    /// # Errors
    /// As recv(2).
    pub fn unread(&self) -> io::Result<Option<Vec<u8>>> {
        if self.state() != Some(ESTABLISHED) {
            return Ok(None);
        }
        self.set(REPAIR_QUEUE, RECV_QUEUE)?;
        let bytes = self.waiting();
        self.set(REPAIR_QUEUE, NO_QUEUE)?;
        bytes.map(Some)
    }

    /// What has come and nobody has read.
    ///
    /// # Errors
    /// As recv(2).
    pub fn waiting(&self) -> io::Result<Vec<u8>> {
        let mut waits: libc::c_int = 0;
        // SAFETY: FIONREAD stores an int.
        let rc = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::FIONREAD, &raw mut waits) };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut bytes = vec![0; usize::try_from(waits).unwrap_or(0)];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        // SAFETY: `bytes` has room for the length that is given.
        let n = unsafe {
            libc::recv(
                self.file.as_raw_fd(),
                bytes.as_mut_ptr().cast(),
                bytes.len(),
                libc::MSG_PEEK | libc::MSG_DONTWAIT,
            )
        };
        match usize::try_from(n) {
            Ok(n) if n == bytes.len() => Ok(bytes),
            Ok(n) => Err(io::Error::other(format!("{n} bytes of {waits} came"))),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// The connections of a process.
///
/// # Errors
/// When its descriptors cannot be listed.
pub fn all(pid: i32) -> io::Result<Vec<Connection>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|link| link.to_string_lossy().starts_with("socket:"));
        let fd = entry.file_name().to_string_lossy().parse().ok();
        found.extend(
            fd.filter(|_| is_socket)
                .and_then(|fd| Connection::of(pid, fd)),
        );
    }
    Ok(found)
}
