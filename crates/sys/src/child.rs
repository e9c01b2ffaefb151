//! A child that stops itself at exec for its parent to trace.

#![allow(
    unsafe_code,
    reason = "fork(2), execve(2) and what happens between them"
)]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;

use crate::signals::{RawInfo, Taken};

/// What the child does between fork and exec.
#[derive(Debug)]
pub struct Spawn<'a> {
    pub path: &'a CStr,
    pub argv: &'a [CString],
    /// Kept open across exec.
    pub inherit: RawFd,
    /// Core to start on.
    pub cpu: Option<usize>,
    /// Whether SIGPIPE stays ignored, as the caller of the tool had it.
    pub sigpipe_ignored: bool,
    /// Whether SIGCHLD is ignored, as the caller of the tool had it.
    pub sigchld_ignored: bool,
    /// Which standard streams the caller had closed.
    pub closed: [bool; 3],
}

/// Why a child did not reach its exec stop.
#[derive(Debug)]
pub enum SpawnError {
    Fork(io::Error),
    Exec(io::Error),
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Forks; the child asks to be traced, stops, and execs when resumed.
///
/// # Errors
/// As fork(2). A failed exec is told by the child's exit with 127 and its errno on `report`.
pub fn spawn(spawn: &Spawn<'_>, report: RawFd) -> Result<i32, SpawnError> {
    let argv: Vec<*const libc::c_char> = spawn
        .argv
        .iter()
        .map(|arg| arg.as_ptr())
        .chain([std::ptr::null()])
        .collect();
    // SAFETY: this process has one thread here, so the child may do anything; it only makes
    // system calls on memory prepared above.
    match unsafe { libc::fork() } {
        -1 => Err(SpawnError::Fork(io::Error::last_os_error())),
        // SAFETY: only reached in the child.
        0 => unsafe { become_program(spawn, &argv, report) },
        pid => Ok(pid),
    }
}

/// # Safety
/// Called in a freshly forked child only.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one straight line between fork and exec"
)]
unsafe fn become_program(spawn: &Spawn<'_>, argv: &[*const libc::c_char], report: RawFd) -> ! {
    // SAFETY: system calls on valid arguments; nothing is shared with the parent.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if let Some(cpu) = spawn.cpu {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
        if !spawn.sigpipe_ignored {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        if spawn.sigchld_ignored {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
        }
        // Its number is nobody else's here, and the agent closes it before the program's first instruction.
        libc::fcntl(spawn.inherit, libc::F_SETFD, 0);
        for (fd, closed) in (0..).zip(spawn.closed) {
            if closed {
                libc::close(fd);
            }
        }
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
        libc::raise(libc::SIGSTOP);
        libc::execve(spawn.path.as_ptr(), argv.as_ptr(), environ);
        let errno = *libc::__errno_location();
        libc::write(report, (&raw const errno).cast(), 4);
        libc::_exit(127)
    }
}

/// A pipe that exec closes.
///
/// # Errors
/// As pipe2(2).
pub fn pipe() -> io::Result<(std::fs::File, std::fs::File)> {
    use std::os::fd::FromRawFd;
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pipe2 returned two descriptors nobody else owns.
    let reader = unsafe { std::fs::File::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let writer = unsafe { std::fs::File::from_raw_fd(fds[1]) };
    Ok((reader, writer))
}

/// Ends a child, and waits until it is gone.
pub fn end(pid: i32) {
    kill(pid, libc::SIGKILL);
    // SAFETY: no status is asked for. A child that somebody else waits for is gone as well.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// CPU time a child and those it waited for have used, as wait4(2) tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_ns: u64,
    pub system_ns: u64,
}

/// How a child ended or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Exited(i32),
    Signaled(i32),
    Stopped(i32),
    Continued,
    /// It stands still for its tracer, who has yet to take that.
    Traced,
}

/// Blocks until any child changes, shows a child that has ended to `witness` while its last
/// accounts can still be read, and takes the change; nothing when there are no children.
#[must_use]
pub fn wait_any(witness: impl Fn(i32)) -> Option<(i32, Change, Usage)> {
    let mut status = 0;
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `info` has room for what the kernel writes.
        let rc = unsafe {
            libc::waitid(
                libc::P_ALL,
                0,
                info.as_mut_ptr(),
                libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED | libc::WNOWAIT | libc::__WALL,
            )
        };
        let mut which = -1;
        if rc == 0 {
            // SAFETY: zeroed, then filled by the kernel.
            let info = unsafe { info.assume_init() };
            // SAFETY: waitid fills the child's fields.
            which = unsafe { info.si_pid() };
            if matches!(
                info.si_code,
                libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED
            ) {
                witness(which);
            }
            if info.si_code == libc::CLD_TRAPPED {
                return Some((which, Change::Traced, Usage::default()));
            }
        }
        // SAFETY: rusage is plain numbers, for which zero is a value.
        let mut used: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `status` and `used` are valid for the call.
        let pid = unsafe {
            libc::wait4(
                which,
                &raw mut status,
                libc::WUNTRACED | libc::WCONTINUED | libc::__WALL,
                &raw mut used,
            )
        };
        if pid > 0 {
            let change = if libc::WIFEXITED(status) {
                Change::Exited(libc::WEXITSTATUS(status))
            } else if libc::WIFSIGNALED(status) {
                Change::Signaled(libc::WTERMSIG(status))
            } else if libc::WIFSTOPPED(status) {
                Change::Stopped(libc::WSTOPSIG(status))
            } else {
                Change::Continued
            };
            let ns = |t: libc::timeval| {
                t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_usec.cast_unsigned() * 1000
            };
            let usage = Usage {
                user_ns: ns(used.ru_utime),
                system_ns: ns(used.ru_stime),
            };
            return Some((pid, change, usage));
        }
        if io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return None;
        }
    }
}

/// The CPU time at which the kernel kills a process (setrlimit(2), `RLIMIT_CPU`, hard); none where it is
/// unlimited, or not to be learned.
#[must_use]
pub fn cpu_limit(pid: i32) -> Option<std::time::Duration> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: no new limit is given, and `limit` is valid for the call.
    let rc = unsafe { libc::prlimit(pid, libc::RLIMIT_CPU, std::ptr::null(), &raw mut limit) };
    (rc == 0 && limit.rlim_max != libc::RLIM_INFINITY)
        .then(|| std::time::Duration::from_secs(limit.rlim_max))
}

/// What a process may have only so much of (setrlimit(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limited {
    AddressSpace,
    Data,
    Stack,
    Descriptors,
}

/// How much of it this process may have (the soft limit); none where it is unlimited.
#[must_use]
pub fn limit_of(what: Limited) -> Option<u64> {
    let resource = match what {
        Limited::AddressSpace => libc::RLIMIT_AS,
        Limited::Data => libc::RLIMIT_DATA,
        Limited::Stack => libc::RLIMIT_STACK,
        Limited::Descriptors => libc::RLIMIT_NOFILE,
    };
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid for the call.
    let rc = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (rc == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Whether a number is that of a child, alive or not yet reaped.
#[must_use]
pub fn is_child(pid: i32) -> bool {
    let Ok(id) = libc::id_t::try_from(pid) else {
        return false;
    };
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` has room for what the kernel writes.
    let rc = unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), how) };
    rc == 0
}

/// Sends a signal; a process that is gone already is as good as reached.
pub fn kill(pid: i32, signal: i32) {
    assert!(pid > 1, "never a group, never everybody: {pid}");
    // SAFETY: kill(2) takes two numbers.
    unsafe { libc::kill(pid, signal) };
}

/// Sends a signal that says it comes from somebody else; `false` if the kernel has no room.
#[must_use]
pub fn queue(pid: i32, taken: &Taken) -> bool {
    assert!(pid > 1, "never a group, never everybody: {pid}");
    // The kernel lets a process put any sender into a siginfo whose code is SI_QUEUE; what the
    // code was travels beside the mark (crates/agent/src/signal.c, `restore_sender`).
    const FORWARDED: i32 = 0x5346 << 16;
    let info = RawInfo {
        signal: taken.signal,
        errno: FORWARDED | taken.code & 0xffff,
        code: libc::SI_QUEUE,
        pid: taken.pid,
        uid: taken.uid,
        value: taken.value,
        ..RawInfo::default()
    };
    // SAFETY: `info` has the size of a siginfo and lives across the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_rt_sigqueueinfo,
            pid,
            taken.signal,
            &raw const info,
        )
    };
    if rc == 0 {
        return true;
    }
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::EAGAIN) => false,
        Some(libc::ESRCH) => true,
        _ => {
            kill(pid, taken.signal);
            true
        }
    }
}

/// Whether a process, or its unreaped rest, is there.
#[must_use]
pub fn exists(pid: i32) -> bool {
    // SAFETY: kill(2) takes two numbers; signal 0 is none.
    unsafe {
        libc::kill(pid, 0) == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    }
}

/// Stops this process by a stop signal, as its parent will see, until somebody continues it.
/// A signal of the terminal stops nobody whose process group is orphaned (setpgid(2)).
pub fn stop_self(signal: i32) {
    // SAFETY: sigset_t is plain bits, for which zero is a value.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid, and so are the numbers.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    // To this thread: another one takes what is sent to the process.
    // SAFETY: this thread exists.
    let own = unsafe { libc::pthread_self() };
    // SAFETY: the thread is this one, so it exists.
    unsafe { libc::pthread_kill(own, signal) };
    // SAFETY: `set` is valid for the call. The signal is delivered here, to its default action.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()) };
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Whether a process is in this one's process group.
#[must_use]
pub fn in_our_group(pid: i32) -> bool {
    // SAFETY: both calls take numbers.
    let theirs = unsafe { libc::getpgid(pid) };
    // SAFETY: getpgrp(2) takes nothing and cannot fail.
    theirs == unsafe { libc::getpgrp() }
}

/// The parent of this process.
#[must_use]
pub fn parent() -> i32 {
    // SAFETY: getppid(2) cannot fail.
    unsafe { libc::getppid() }
}

/// Asks for a signal when the parent of this process dies; 0 for none.
pub fn when_parent_dies(signal: i32) {
    // SAFETY: prctl(2) with two numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
}

/// Forks a process that runs `life` with no descriptor open and every signal blocked, and dies
/// with this one; its number.
///
/// # Errors
/// As fork(2).
pub fn helper(life: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: getpid(2) cannot fail.
    let us = unsafe { libc::getpid() };
    // SAFETY: the child runs `life`, which the caller keeps to memory and system calls, and exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            when_parent_dies(libc::SIGKILL);
            // SAFETY: numbers only; whatever was open belongs to the parent.
            unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
            if parent() == us {
                life();
            }
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}
