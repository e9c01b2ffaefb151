//! Calls of another process that wait for this one's answer: seccomp's user notification.
//!
//! ```text
//!   program ── call ──► kernel ── next() ──► watcher ── go_on() or answer() ──► kernel ──► program
//! ```
//!
//! The program hands its listener over by itself, between fork and exec ([`hand_over`]); what it
//! starts later is watched as well.
//!
//! Invariants
//!  1. A call is answered once: answering consumes it.
//!  2. When the watcher is gone, watched calls fail with ENOSYS; none is done unwatched.
//!
//! Not covered: calls by 32-bit entries. Linux 5.6 and newer (`pidfd_getfd`).
//! See `seccomp_unotify(2)`.

#![allow(
    unsafe_code,
    reason = "seccomp(2), its ioctls and memory of other processes"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use steadfast_sys::descriptor::{self, RIGHTS_BYTES};
use steadfast_sys::procfs;

use crate::ok;

/// Puts the filter around this process and sends its listener through a socket. `false`: it could
/// not.
///
/// # Safety
/// Called in a freshly forked child, with `no_new_privs` set; `filter` is a whole program.
pub(crate) unsafe fn hand_over(filter: &[libc::sock_filter], socket: RawFd) -> bool {
    const NEW_LISTENER: u64 = 1 << 3;
    const WAIT_KILLABLE: u64 = 1 << 5; // Linux 5.19: a signal does not restart a call being answered
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).unwrap_or(0),
        filter: filter.as_ptr().cast_mut(),
    };
    let install = |flags: u64| {
        // SAFETY: the program is whole and outlives the call.
        unsafe { libc::syscall(libc::SYS_seccomp, 1, flags, &raw const program) }
    };
    let mut fd = install(NEW_LISTENER | WAIT_KILLABLE);
    if fd < 0 {
        fd = install(NEW_LISTENER);
    }
    let Ok(fd) = i32::try_from(fd) else {
        return false;
    };
    if fd < 0 {
        return false;
    }
    // SAFETY: it is open until it is closed below.
    let listener = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: as above.
    let to = unsafe { BorrowedFd::borrow_raw(socket) };
    let sent = descriptor::hand_over(to, listener).is_ok();
    // SAFETY: both descriptors are this process's own, and not used again.
    unsafe { libc::close(fd) };
    // SAFETY: as above.
    unsafe { libc::close(socket) };
    sent
}

/// The end at which calls are answered.
#[derive(Debug)]
pub struct Listener(OwnedFd);

/// A call that waits.
#[derive(Debug)]
pub struct Call {
    id: u64,
    /// The thread that makes it.
    pub tid: i32,
    /// Its number.
    pub number: i64,
    /// What it was given.
    pub args: [u64; 6],
}

#[repr(C)]
#[derive(Default)]
struct Notice {
    id: u64,
    pid: u32,
    flags: u32,
    nr: i32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

#[repr(C)]
struct Reply {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

// The kernel's ioctl numbers carry these sizes (linux/seccomp.h).
const _: () = assert!(size_of::<Notice>() == 80 && size_of::<Reply>() == 24);
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const SET_FLAGS: u64 = 0x4008_2104;

impl Listener {
    /// Waits for a program to hand its listener over; nothing comes if it ended before.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub fn receive(socket: &UnixStream) -> io::Result<Option<Self>> {
        let mut byte = 0_u8;
        let mut data = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        let mut control = [0_u64; RIGHTS_BYTES / 8];
        // SAFETY: a message header is plain pointers and numbers, for which zero is a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &raw mut data;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = RIGHTS_BYTES;
        // SAFETY: the header and all it points to are valid for the call.
        let got = ok(unsafe {
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC)
        } as i64)?;
        if got == 0 || control[0] != 20 {
            return Ok(None);
        }
        let fd = i32::try_from(control[2] & 0xffff_ffff).map_err(io::Error::other)?;
        // SAFETY: SCM_RIGHTS gave this process a descriptor that nobody else owns.
        let listener = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // The two take turns: waking on the same CPU costs 6 us a call instead of 70. Linux 6.6.
        // SAFETY: this ioctl takes a number.
        unsafe { libc::ioctl(fd, SET_FLAGS, 1_u64) };
        Ok(Some(listener))
    }

    /// The next call; nothing when nobody is left to make one.
    ///
    /// # Errors
    /// As ioctl(2).
    pub fn next(&self) -> io::Result<Option<Call>> {
        loop {
            let mut poll = libc::pollfd {
                fd: self.0.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one valid pollfd.
            if unsafe { libc::poll(&raw mut poll, 1, -1) } < 0 {
                continue;
            }
            if poll.revents & libc::POLLIN == 0 {
                return Ok(None);
            }
            let mut notice = Notice::default();
            // SAFETY: the kernel writes one notice, zeroed before as it wants.
            if unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut notice) } < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    // Its caller was killed meanwhile.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    _ => return Err(error),
                }
            }
            return Ok(Some(Call {
                id: notice.id,
                tid: notice.pid.cast_signed(),
                number: notice.nr.into(),
                args: notice.args,
            }));
        }
    }

    fn send(&self, reply: &Reply) {
        // A caller that was killed meanwhile needs no answer.
        // SAFETY: the kernel reads one reply.
        unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw const *reply) };
    }

    /// Lets the kernel do the call.
    #[allow(clippy::needless_pass_by_value, reason = "a call is answered once")]
    pub fn go_on(&self, call: Call) {
        self.send(&Reply {
            id: call.id,
            value: 0,
            error: 0,
            flags: 1,
        });
    }

    /// Answers in the kernel's place: a value, or an errno.
    #[allow(clippy::needless_pass_by_value, reason = "a call is answered once")]
    pub fn answer(&self, call: Call, answer: Result<i64, i32>) {
        let (value, error) = match answer {
            Ok(value) => (value, 0),
            Err(errno) => (0, -errno),
        };
        self.send(&Reply {
            id: call.id,
            value,
            error,
            flags: 0,
        });
    }
}

impl Call {
    /// The caller's descriptor: the same open file, in this process's table.
    ///
    /// # Errors
    /// As ptrace(2) access checks decide.
    pub fn descriptor(&self, fd: i32) -> io::Result<File> {
        const THREAD: i32 = libc::O_EXCL; // Linux 6.9
        let open = |pid: i32, flags: i32| {
            // SAFETY: two numbers.
            ok(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) })
        };
        let process = match open(self.tid, THREAD) {
            Ok(fd) => fd,
            Err(_) => open(procfs::leader(self.tid)?, 0)?,
        };
        let process = i32::try_from(process).map_err(io::Error::other)?;
        // SAFETY: pidfd_open returned a descriptor that nobody else owns.
        let process = unsafe { OwnedFd::from_raw_fd(process) };
        // SAFETY: three numbers; `process` is open across the call.
        let copy = ok(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) })?;
        let copy = i32::try_from(copy).map_err(io::Error::other)?;
        // SAFETY: as above.
        Ok(unsafe { File::from_raw_fd(copy) })
    }

    /// Copies the caller's memory out.
    ///
    /// # Errors
    /// Where it has none.
    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let ours = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: to.len(),
        };
        let theirs = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(usize::try_from(at).unwrap_or(0)),
            iov_len: to.len(),
        };
        // SAFETY: `ours` is valid for its length; the other address is looked up in the caller.
        let got = ok(unsafe {
            libc::process_vm_readv(self.tid, &raw const ours, 1, &raw const theirs, 1, 0)
        } as i64)?;
        whole(got, to.len())
    }

    /// Copies into the caller's memory.
    ///
    /// # Errors
    /// Where it has none that can be written.
    pub fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let ours = libc::iovec {
            iov_base: from.as_ptr().cast_mut().cast(),
            iov_len: from.len(),
        };
        let theirs = libc::iovec {
            iov_base: std::ptr::without_provenance_mut(usize::try_from(at).unwrap_or(0)),
            iov_len: from.len(),
        };
        // SAFETY: `ours` is only read from; the other address is looked up in the caller.
        let got = ok(unsafe {
            libc::process_vm_writev(self.tid, &raw const ours, 1, &raw const theirs, 1, 0)
        } as i64)?;
        whole(got, from.len())
    }
}

fn whole(got: i64, wanted: usize) -> io::Result<()> {
    if usize::try_from(got).is_ok_and(|got| got == wanted) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EFAULT))
    }
}

/// Whether what is written goes to the end of the file, wherever the position is.
///
/// # Errors
/// As fcntl(2).
pub fn appends(file: &File) -> io::Result<bool> {
    // SAFETY: the descriptor is open, and the command takes no argument.
    let flags = ok(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }.into())?;
    Ok(flags & i64::from(libc::O_APPEND) != 0)
}
