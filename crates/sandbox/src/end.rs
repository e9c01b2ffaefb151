//! How programs inside end: waited for, given up, killed with all that they left.

use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use steadfast_sys::child;

use crate::ok;

/// How a program ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ended {
    pub status: Option<i32>,
    pub signal: Option<i32>,
    /// Nobody waited longer.
    pub timed_out: bool,
    /// Of the program and of all processes it left behind or waited for.
    pub cpu_ns: u64,
}

/// Waits for a child, `limit` at most; then kills everything in this pid namespace but process
/// 1, which the caller has to be, and collects the dead.
pub fn finish(pid: i32, limit: Duration) -> Ended {
    let mut ended = await_end(pid, limit);
    let main = ended.timed_out.then_some(pid);
    end_all(&mut ended, main);
    ended
}

/// A process that is watched by its descriptor: its number may be another's by now.
#[derive(Debug)]
pub struct Watched(OwnedFd);

impl Watched {
    /// Takes hold of a process.
    ///
    /// # Errors
    /// As `pidfd_open(2)`.
    pub fn new(pid: i32) -> io::Result<Self> {
        // SAFETY: pidfd_open(2) takes numbers.
        let fd = ok(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
        let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Whether it has ended, or does within so long.
    #[must_use]
    pub fn ends_within(&self, wait: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        };
        // SAFETY: one valid pollfd and a valid time.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) > 0 }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: numbers and no siginfo.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.0.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }
}

/// Waits for a child, `limit` at most.
pub fn await_end(pid: i32, limit: Duration) -> Ended {
    let mut ended = Ended::default();
    let deadline = Instant::now() + limit;
    // SAFETY: pidfd_open(2) takes numbers.
    let fd = i32::try_from(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).unwrap_or(-1);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = i32::try_from(left.as_millis().min(1_000_000)).unwrap_or(i32::MAX)
            + i32::from(!left.is_zero());
        // SAFETY: one valid pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, if fd < 0 { ms.min(5) } else { ms }) };
        if take(pid, &mut ended, libc::WNOHANG) {
            break;
        }
        if left.is_zero() && ready <= 0 {
            ended.timed_out = true;
            break;
        }
    }
    if fd >= 0 {
        // SAFETY: this descriptor is ours.
        unsafe { libc::close(fd) };
    }
    ended
}

/// Whether a child still runs after so long.
#[must_use]
pub fn alive_after(pid: i32, wait: Duration) -> bool {
    // SAFETY: pidfd_open(2) takes numbers.
    let fd = i32::try_from(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).unwrap_or(-1);
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = libc::timespec {
        tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: wait.subsec_nanos().into(),
    };
    // SAFETY: one valid pollfd and a valid time.
    let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const limit, std::ptr::null()) };
    // SAFETY: this descriptor is ours.
    unsafe { libc::close(fd) };
    ready == 0
}

/// Kills what is left and collects it.
pub fn end_all(ended: &mut Ended, main: Option<i32>) {
    // SAFETY: getpid(2) cannot fail.
    if unsafe { libc::getpid() } == 1 {
        // SAFETY: from process 1 of a pid namespace this reaches that namespace and no more.
        unsafe { libc::kill(-1, libc::SIGKILL) };
    } else if let Some(pid) = main {
        // SAFETY: a child's session, started by setsid(2); it is not reaped yet.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        child::kill(pid, libc::SIGKILL);
    }
    while take(-1, ended, 0) {}
}

/// Reaps; adds what CPU time was used. Only the program itself tells how it ended.
fn take(pid: i32, ended: &mut Ended, flags: i32) -> bool {
    let mut status = 0;
    // SAFETY: rusage is plain numbers, for which zero is a value.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `status` and `used` are valid for the call.
    let rc = unsafe { libc::wait4(pid, &raw mut status, flags | libc::__WALL, &raw mut used) };
    if rc <= 0 {
        return false;
    }
    ended.cpu_ns += cpu_ns(&used);
    if pid > 0 && libc::WIFEXITED(status) {
        ended.status = Some(libc::WEXITSTATUS(status));
    } else if pid > 0 && libc::WIFSIGNALED(status) {
        ended.signal = Some(libc::WTERMSIG(status));
    }
    true
}

/// CPU time in all.
pub(crate) fn cpu_ns(used: &libc::rusage) -> u64 {
    let ns = |t: libc::timeval| {
        t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_usec.cast_unsigned() * 1000
    };
    ns(used.ru_utime) + ns(used.ru_stime)
}
