//! Processes: start one pinned, wait for several at once, learn what each used.
//!
//! The standard library starts processes but cannot pin them, has no wait with a time limit, and
//! hides wait4(2), which is the only way to learn what one child used.
//!
//! Invariants
//!  1. Every process started here has ended and been waited for when [`wait_all`] returns.
//!  2. While they run, this process sleeps in poll(2): it takes no CPU time from them.
//!
//! See sched_setaffinity(2), PR_SET_THP_DISABLE in prctl(2), pidfd_open(2), wait4(2).

#![allow(
    unsafe_code,
    reason = "pinning, pidfds and wait4 are only reachable through libc"
)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a process has between being asked to end and being killed.
const GRACE: Duration = Duration::from_secs(2);

/// What is set up in the child between fork and exec.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// The only CPU it may run on.
    pub cpu: Option<usize>,
    /// Whether it and what it starts are kept from getting huge pages.
    pub no_huge_pages: bool,
}

/// A process that was started and not yet waited for.
#[derive(Debug)]
pub struct Running {
    pid: libc::pid_t,
    pidfd: OwnedFd,
    started: Instant,
}

impl Running {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }
}

/// A process that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub wall: Duration,
    /// CPU time of the process and every descendant that was waited for.
    pub user: Duration,
    pub system: Duration,
    /// Largest resident set of any one of them, in KiB.
    pub max_rss_kib: u64,
    /// Whether it was ended from here.
    pub cut_short: Option<CutShort>,
}

/// Why a process was ended from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutShort {
    TimeLimit,
    Interrupt,
}

/// Starts a process.
///
/// # Errors
/// When it cannot be started with that setting.
pub fn start(command: &mut Command, setting: Setting) -> io::Result<Running> {
    // SAFETY: between fork and exec only async-signal-safe calls are allowed; `apply` makes two
    // raw system calls through libc wrappers, allocates nothing and takes no lock.
    unsafe { command.pre_exec(move || apply(setting)) };
    let started = Instant::now();
    let child = command.spawn()?;
    let pid = child.id().cast_signed();
    // SAFETY: pidfd_open(2) takes two numbers and touches no memory. The child has not been
    // waited for, so its number cannot have been given to another process.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        let error = io::Error::last_os_error();
        signal(pid, libc::SIGKILL);
        reap(pid)?;
        return Err(error);
    }
    // SAFETY: the kernel has just returned this descriptor and nobody else knows it.
    let pidfd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(Running {
        pid,
        pidfd,
        started,
    })
}

fn apply(setting: Setting) -> io::Result<()> {
    if let Some(cpu) = setting.cpu {
        // SAFETY: a cpu_set_t is an array of integers, for which all bits zero is a value.
        let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
        if cpu >= 8 * mem::size_of_val(&set) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // SAFETY: `cpu` is below the number of bits of `set`, checked above.
        unsafe { libc::CPU_SET(cpu, &mut set) };
        // SAFETY: `set` is a whole cpu_set_t and its size is given; 0 is the calling process.
        check(unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &raw const set) })?;
    }
    if setting.no_huge_pages {
        // SAFETY: PR_SET_THP_DISABLE takes numbers only; it is kept across exec.
        check(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) })?;
    }
    Ok(())
}

/// Has a process that is started killed when the thread that starts it ends, however that comes about.
pub fn dies_with_us(command: &mut Command) {
    let us = std::process::id();
    let ask = move || {
        // SAFETY: prctl(2) with numbers only.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })?;
        // This process may have ended before the kernel was asked.
        // SAFETY: getppid(2) takes nothing and cannot fail.
        let parent = unsafe { libc::getppid() };
        if i64::from(parent) == i64::from(us) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: between fork and exec only two system calls are made, and nothing is allocated.
    unsafe { command.pre_exec(ask) };
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Waits for all of the processes, ending them when the limit has passed or `stop` is set.
///
/// The results are in the order of `running`.
///
/// # Errors
/// When the kernel will not let us wait, which means that they are not our children.
pub fn wait_all(
    running: Vec<Running>,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Vec<Ended>> {
    let mut ended: Vec<Option<Ended>> = running.iter().map(|_| None).collect();
    let mut cut_short = None;
    let mut deadline = Instant::now() + limit;
    loop {
        let left: Vec<usize> = (0..running.len())
            .filter(|&index| ended[index].is_none())
            .collect();
        if left.is_empty() {
            return Ok(ended.into_iter().flatten().collect());
        }
        let now = Instant::now();
        let why = match (stop.load(Ordering::Relaxed), now >= deadline) {
            (true, _) => Some(CutShort::Interrupt),
            (_, true) => Some(CutShort::TimeLimit),
            _ => None,
        };
        if let Some(why) = why {
            // First asked, then, after the grace, killed.
            let how = if cut_short.is_none() {
                libc::SIGTERM
            } else {
                libc::SIGKILL
            };
            if cut_short.is_none() || now >= deadline {
                for &index in &left {
                    signal(running[index].pid, how);
                }
                cut_short = cut_short.or(Some(why));
                deadline = now + GRACE;
            }
        }
        for index in poll(&running, &left, deadline)? {
            let process = &running[index];
            let wall = process.started.elapsed();
            ended[index] = Some(Ended {
                wall,
                cut_short,
                ..reap(process.pid)?
            });
        }
    }
}

/// Sleeps until one of the processes ends, a signal comes in or the deadline passes; says which
/// have ended.
fn poll(running: &[Running], which: &[usize], deadline: Instant) -> io::Result<Vec<usize>> {
    let watch = |&index: &usize| libc::pollfd {
        fd: running[index].pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut watched: Vec<libc::pollfd> = which.iter().map(watch).collect();
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout_ms = libc::c_int::try_from(left.as_millis() + 1).unwrap_or(libc::c_int::MAX);
    let count = watched.len() as libc::nfds_t;
    // SAFETY: the pointer and the count describe `watched`, which outlives the call.
    let rc = unsafe { libc::poll(watched.as_mut_ptr(), count, timeout_ms) };
    if rc < 0 {
        let error = io::Error::last_os_error();
        // A signal handler ran; the caller looks at what it set.
        return if error.kind() == io::ErrorKind::Interrupted {
            Ok(Vec::new())
        } else {
            Err(error)
        };
    }
    let ready = which.iter().zip(&watched).filter(|(_, fd)| fd.revents != 0);
    Ok(ready.map(|(&index, _)| index).collect())
}

/// Asks a child that was started elsewhere, and not yet waited for, to end.
pub(crate) fn terminate(pid: u32) {
    if let Ok(pid) = libc::pid_t::try_from(pid) {
        signal(pid, libc::SIGTERM);
    }
}

fn signal(pid: libc::pid_t, signal: libc::c_int) {
    // SAFETY: kill(2) takes two numbers. The process has not been waited for, so the number is
    // still its own. A failure means that it has ended, which is what was wanted.
    unsafe { libc::kill(pid, signal) };
}

fn reap(pid: libc::pid_t) -> io::Result<Ended> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    loop {
        // SAFETY: both pointers are to locals of the right types that outlive the call.
        let rc = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
        if rc == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: wait4 returned the process's number, so it has filled in the whole structure.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(Ended {
        status: ExitStatus::from_raw(status),
        wall: Duration::ZERO,
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss.unsigned_abs(),
        cut_short: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn status_and_pinning_reach_the_child() {
        let setting = Setting {
            cpu: Some(0),
            no_huge_pages: true,
        };
        let script = "grep -q 'Cpus_allowed_list:.0$' /proc/self/status && \
                      grep -q 'THP_enabled:.0' /proc/self/status && exit 7";
        let running = start(&mut shell(script), setting).unwrap();
        let ended = wait_all(
            vec![running],
            Duration::from_secs(20),
            &AtomicBool::new(false),
        )
        .unwrap();
        assert_eq!(ended[0].status.code(), Some(7));
        assert_eq!(ended[0].cut_short, None);
    }

    #[test]
    fn results_are_in_the_order_of_starting() {
        let scripts = ["sleep 0.2; exit 1", "exit 2", "sleep 0.1; exit 3"];
        let running = scripts.map(|script| start(&mut shell(script), Setting::default()).unwrap());
        let ended = wait_all(
            running.into(),
            Duration::from_secs(20),
            &AtomicBool::new(false),
        )
        .unwrap();
        let codes: Vec<_> = ended.iter().map(|one| one.status.code().unwrap()).collect();
        assert_eq!(codes, [1, 2, 3]);
    }

    #[test]
    fn a_process_that_ignores_the_limit_is_killed() {
        let running = start(
            &mut shell("trap '' TERM; while :; do sleep 0.05; done"),
            Setting::default(),
        );
        let limit = Duration::from_millis(200);
        let ended = wait_all(vec![running.unwrap()], limit, &AtomicBool::new(false)).unwrap();
        assert_eq!(ended[0].cut_short, Some(CutShort::TimeLimit));
        assert_eq!(ended[0].status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn an_interrupt_ends_what_runs() {
        let running = start(&mut shell("exec sleep 60"), Setting::default()).unwrap();
        let ended = wait_all(
            vec![running],
            Duration::from_secs(60),
            &AtomicBool::new(true),
        )
        .unwrap();
        assert_eq!(ended[0].cut_short, Some(CutShort::Interrupt));
        assert!(ended[0].wall < Duration::from_secs(10));
    }
}
