//! How programs inside end: waited for, given up, killed with all that they left.

use std::thread;
use std::time::{Duration, Instant};

use steadfast_sys::child;
use steadfast_sys::pidfd::Process;

/// Time between two looks at a child that no descriptor tells of.
const LOOK: Duration = Duration::from_millis(5);

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

/// Waits for a child, `limit` at most.
pub fn await_end(pid: i32, limit: Duration) -> Ended {
    let mut ended = Ended::default();
    let deadline = Instant::now() + limit;
    let process = Process::open(pid);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let ready = match &process {
            Ok(process) => process.ends_within(left),
            // No descriptor is free, or the child is gone already.
            Err(_) => {
                thread::sleep(left.min(LOOK));
                false
            }
        };
        if take(pid, &mut ended, libc::WNOHANG) {
            break;
        }
        if left.is_zero() && !ready {
            ended.timed_out = true;
            break;
        }
    }
    ended
}

/// Whether a child still runs after so long.
#[must_use]
pub fn alive_after(pid: i32, wait: Duration) -> bool {
    match Process::open(pid) {
        Ok(process) => !process.ends_within(wait),
        Err(_) => {
            thread::sleep(wait);
            true
        }
    }
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
