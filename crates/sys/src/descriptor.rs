//! A descriptor of another process, duplicated into this one, and one of this process, given to another.

#![allow(
    unsafe_code,
    reason = "pidfd_open(2) and pidfd_getfd(2) have no wrappers in libc; sendmsg(2) takes pointers"
)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
/// Of the first attempt: as ptrace(2) access checks decide.
pub fn duplicate(pid: i32, fd: i32) -> io::Result<File> {
    // SAFETY: pidfd_open takes two numbers.
    let pidfd = checked(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
    let direct = pidfd.and_then(|pidfd| {
        // SAFETY: pidfd_getfd takes three numbers; `pidfd` is open across the call.
        checked(unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd.as_raw_fd(), fd, 0) })
    });
    match direct {
        Ok(file) => Ok(file.into()),
        Err(refused) => File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/fd/{fd}"))
            .map_err(|_| refused),
    }
}

/// Whether two processes' descriptors are one open file: they share its place and its flags.
///
/// # Errors
/// As kcmp(2).
pub fn is_one_file((pid, fd): (i32, i32), (other, its): (i32, i32)) -> io::Result<bool> {
    const KCMP_FILE: libc::c_int = 0;
    // SAFETY: kcmp takes numbers for this kind.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_FILE, fd, its) } {
        0 => Ok(true),
        order if order > 0 => Ok(false),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a set for polling has been told of a descriptor, whichever that is by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polled {
    pub fd: u32,
    pub events: u32,
    pub data: u64,
}

/// `tfd: 5 events: 19 data: 5 pos:0 ...`, numbers of events and data hexadecimal.
fn polled_in(line: &str) -> Option<Polled> {
    let mut words = line.strip_prefix("tfd:")?.split_ascii_whitespace();
    let fd = words.next()?.parse().ok()?;
    let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
    let data = u64::from_str_radix(words.nth(1)?, 16).ok()?;
    Some(Polled { fd, events, data })
}

/// What a set for polling waits for (proc_pid_fdinfo(5)).
///
/// # Errors
/// When the process does not have it.
pub fn polled(pid: i32, set: u32) -> io::Result<Vec<Polled>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{set}"))?;
    Ok(text.lines().filter_map(polled_in).collect())
}

/// What an instance of inotify watches: an inode, by a handle of its file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    pub number: i32,
    pub inode: u64,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    pub mask: u32,
    kind: i32,
    handle: Vec<u8>,
}

/// `inotify wd:2 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:7e9e0000640d1b6d`, all of it
/// hexadecimal.
fn watch_in(line: &str) -> Option<Watch> {
    let words = line.strip_prefix("inotify ")?.split_ascii_whitespace();
    let fields: std::collections::HashMap<_, _> =
        words.filter_map(|word| word.split_once(':')).collect();
    let number = |name| u32::from_str_radix(fields.get(name)?, 16).ok();
    let device = number("sdev")?;
    let text = fields.get("f_handle").copied().unwrap_or_default();
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    Some(Watch {
        number: number("wd")?.cast_signed(),
        inode: u64::from_str_radix(fields.get("ino")?, 16).ok()?,
        device: (device >> 20, device & 0xf_ffff),
        mask: number("mask")?,
        kind: number("fhandle-type").unwrap_or(0).cast_signed(),
        handle: (0..text.len()).step_by(2).map_while(byte).collect(),
    })
}

/// What a descriptor of inotify(7) watches, by the numbers of the watches (proc_pid_fdinfo(5)).
///
/// # Errors
/// When the process does not have it.
pub fn watches(pid: i32, fd: i32) -> io::Result<Vec<Watch>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}"))?;
    let mut all: Vec<Watch> = text.lines().filter_map(watch_in).collect();
    all.sort_by_key(|watch| watch.number);
    Ok(all)
}

impl Watch {
    /// What is watched, found by way of a file or directory of the same file system.
    ///
    /// # Errors
    /// As open_by_handle_at(2): CAP_DAC_READ_SEARCH, and a file system that has handles.
    pub fn open(&self, mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        // struct file_handle: how many bytes, their kind, and the bytes.
        let bytes = u32::try_from(self.handle.len()).map_err(io::Error::other)?;
        let mut handle = [&bytes.to_ne_bytes()[..], &self.kind.to_ne_bytes()].concat();
        handle.extend_from_slice(&self.handle);
        let words: Vec<u64> = handle
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_ne_bytes(word)
            })
            .collect();
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        // SAFETY: the handle is as long as it says, aligned, and read alone.
        checked(unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                mount.as_raw_fd(),
                words.as_ptr(),
                flags,
            )
        })
    }
}

/// Descriptors of a process that are objects of this kind, as procfs names them: `anon_inode:[eventpoll]`.
///
/// # Errors
/// When they cannot be read.
pub fn of_kind(pid: i32, kind: &str) -> io::Result<Vec<u32>> {
    let is = |fd: &std::fs::DirEntry| {
        std::fs::read_link(fd.path()).is_ok_and(|link| link.as_os_str() == kind)
    };
    let number = |fd: std::fs::DirEntry| fd.file_name().to_str()?.parse().ok();
    let all = std::fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    Ok(all.filter(is).filter_map(number).collect())
}

/// Whether a registration of a set for polling is for the file that its process has at that number: the `nth` of those for `fd`, as
/// proc_pid_fdinfo(5) lists them. A set that several processes have lists what each of them has added.
///
/// # Errors
/// As kcmp(2), but for a number that the process does not have.
pub fn is_polled(pid: i32, set: u32, fd: u32, nth: u32) -> io::Result<bool> {
    const KCMP_EPOLL_TFD: libc::c_int = 7;
    let slot = [set, fd, nth]; // struct kcmp_epoll_slot
    // SAFETY: kcmp reads `slot`, which has the length that this kind asks for.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, pid, KCMP_EPOLL_TFD, fd, slot.as_ptr()) } {
        0 => Ok(true),
        order if order > 0 => Ok(false),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::EBADF) => Ok(false),
            error => Err(error),
        },
    }
}

/// Lets go of what the caller has handed down for a child, which has it now: a pipe whose last writer closes it ends, a
/// lock is released. Standard input and output are /dev/null from here on; standard error stays, and so does whatever exec
/// would close. Where there is no /dev/null, input and output stay as well.
///
/// # Errors
/// When /proc/self/fd cannot be read.
pub fn let_go_of_inherited() -> io::Result<()> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        numbers.extend(
            entry?
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<i32>().ok()),
        );
    }
    for fd in numbers.into_iter().filter(|fd| *fd > 2) {
        // SAFETY: numbers only. What this process has opened itself is closed by exec, and stays.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == 0 {
            // SAFETY: it was open when this process began, and no value here owns it.
            unsafe { libc::close(fd) };
        }
    }
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        for stream in 0..2 {
            // SAFETY: two open descriptors.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
    Ok(())
}

/// Closes every descriptor but one. Standard streams are /dev/null from here on, where there is one.
pub fn keep_only(kept: RawFd) {
    let null = File::options().read(true).write(true).open("/dev/null");
    if let Ok(null) = &null {
        for stream in (0..3).filter(|stream| *stream != kept) {
            // SAFETY: two open descriptors.
            unsafe { libc::dup2(null.as_raw_fd(), stream) };
        }
    }
    let first = if null.is_ok() { 3 } else { 0 };
    drop(null);
    let Ok(kept) = u32::try_from(kept) else {
        return;
    };
    if kept > first {
        // SAFETY: numbers only; no value of this process that owns one of them is used from here on.
        unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) };
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_close_range, first.max(kept + 1), u32::MAX, 0) };
}

/// Lets go of standard error as well.
pub fn let_go_of_standard_error() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        // SAFETY: two open descriptors.
        unsafe { libc::dup2(null.as_raw_fd(), 2) };
    }
}

/// Sends a datagram with descriptors (unix(7), `SCM_RIGHTS`).
///
/// # Errors
/// As sendmsg(2).
pub fn send_with(socket: BorrowedFd<'_>, text: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut data = libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    };
    // cmsghdr: length of 64 bits, SOL_SOCKET, SCM_RIGHTS, then the numbers, padded.
    let mut control = vec![
        16 + 4 * fds.len() as u64,
        (u64::from(libc::SCM_RIGHTS.cast_unsigned()) << 32)
            | u64::from(libc::SOL_SOCKET.cast_unsigned()),
    ];
    let number = |fd: &BorrowedFd<'_>| u64::from(fd.as_raw_fd().cast_unsigned());
    let pairs = fds.chunks(2);
    control.extend(pairs.map(|pair| number(&pair[0]) | pair.get(1).map_or(0, number) << 32));
    // SAFETY: a message header is plain pointers and numbers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = 8 * control.len();
    // SAFETY: the header and all it points to are valid for the call, which writes to none of it.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What this process was started with as descriptor `fd`. It is the caller's from here on, and exec closes it.
///
/// # Errors
/// Where it is not open.
pub fn inherited(fd: RawFd) -> io::Result<File> {
    // SAFETY: numbers only.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and whoever started this process opened it for the caller alone.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Has every child of this process inherit a descriptor, under its number.
///
/// # Errors
/// As fcntl(2).
pub fn hand_down(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: numbers only.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Bytes of a control message that carries one descriptor (cmsg(3)): a header of 16, a number of 4, padding.
pub const RIGHTS_BYTES: usize = 24;

/// Sends one byte with descriptor `fd` over a socket of the Unix domain (unix(7), `SCM_RIGHTS`): whoever takes
/// the message has the same open file. Allocates nothing.
///
/// # Errors
/// As sendmsg(2).
pub fn hand_over(socket: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = 0_u8;
    let mut data = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // cmsghdr: length 20 of 64 bits, SOL_SOCKET, SCM_RIGHTS, then the descriptor.
    let mut control: [u64; RIGHTS_BYTES / 8] = [
        20,
        (u64::from(libc::SCM_RIGHTS.cast_unsigned()) << 32)
            | u64::from(libc::SOL_SOCKET.cast_unsigned()),
        u64::from(fd.as_raw_fd().cast_unsigned()),
    ];
    // SAFETY: a message header is plain pointers and numbers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = RIGHTS_BYTES;
    // SAFETY: the header and all it points to are valid for the call.
    match unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_set_waits_for_is_read_as_the_kernel_writes_it() {
        let line = "tfd:        5 events: 8000201d data:         1f00000005  pos:0 ino:2a sdev:9";
        let polled = Polled {
            fd: 5,
            events: 0x8000_201d,
            data: 0x1f_0000_0005,
        };
        assert_eq!(polled_in(line), Some(polled));
        assert_eq!(polled_in("flags:\t02000002"), None);
    }

    #[test]
    fn what_is_watched_is_read_as_the_kernel_writes_it() {
        let line = "inotify wd:1f ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:8 fhandle-type:1 f_handle:7e9e0000640d1b6d";
        let watch = watch_in(line).expect("a watch");
        assert_eq!(
            (watch.number, watch.inode, watch.mask),
            (31, 0x9e7e, 0x0800_afce)
        );
        assert_eq!((watch.device, watch.kind), ((8, 19), 1));
        assert_eq!(watch.handle, [0x7e, 0x9e, 0, 0, 0x64, 0x0d, 0x1b, 0x6d]);
        assert_eq!(watch_in("pos:\t0"), None);
    }
}
