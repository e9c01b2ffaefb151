//! A child that becomes a program when its parent traces it.
//!
//! ```text
//!   fork ──► what the program inherits ──► waits for a byte ──► execve ──► stop
//!                                              ▲
//!   parent: seizes it, sees that it is traced ─┘
//! ```
//!
//! Invariant: without that byte the child never executes anything. A parent that is refused, or gone, writes none.

#![allow(
    unsafe_code,
    reason = "fork(2), execve(2) and what happens between them"
)]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use crate::limit;
use crate::signals::{self, RawInfo, Taken};

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
    /// Whose process group it is in, where that is not this process's.
    pub group_of: Option<i32>,
}

/// A child that waits to be let go. Its number stays its own until it has been waited for.
#[derive(Debug)]
pub struct Waiting {
    pid: i32,
    gate: File,
    report: File,
}

/// What a child says that ends before it has executed anything.
#[derive(Debug)]
pub enum Failed {
    /// Not even tried: something that the program inherits could not be arranged.
    Before(io::Error),
    Exec(io::Error),
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// The byte that lets a child go.
const GO: u8 = b'x';
/// How long a child that was killed may take to go: a tracer that does not wait for it holds it back.
const GOING: Duration = Duration::from_millis(300);

/// Forks a child that waits for [`Waiting::let_go`].
///
/// # Errors
/// As pipe2(2) and fork(2).
pub fn spawn(spawn: &Spawn<'_>) -> io::Result<Waiting> {
    let argv: Vec<*const libc::c_char> = spawn
        .argv
        .iter()
        .map(|arg| arg.as_ptr())
        .chain([std::ptr::null()])
        .collect();
    let (waits_at, gate) = pipe()?;
    let (report, report_to) = pipe()?;
    // SAFETY: getpid(2) cannot fail.
    let parent = unsafe { libc::getpid() };
    // SAFETY: this process has one thread here, so the child may do anything; it only makes
    // system calls on memory prepared above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: only reached in the child. Its copy of the other end would keep the gate from closing.
            unsafe { libc::close(gate.as_raw_fd()) };
            let ends = [waits_at.as_raw_fd(), report_to.as_raw_fd()];
            // SAFETY: only reached in the child.
            unsafe { become_program(spawn, &argv, parent, ends) }
        }
        pid => Ok(Waiting { pid, gate, report }),
    }
}

impl Waiting {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it execute the program. Its parent traces it by now.
    ///
    /// # Errors
    /// When it is gone.
    pub fn let_go(&mut self) -> io::Result<()> {
        self.gate.write_all(&[GO])
    }

    /// Why it ended, if it knew; it has ended.
    pub fn why(&mut self) -> Option<Failed> {
        let mut said = [0; 8];
        self.report.read_exact(&mut said).ok()?;
        let [stage, errno] =
            [0, 4].map(|at| i32::from_le_bytes([0, 1, 2, 3].map(|i| said[at + i])));
        let error = io::Error::from_raw_os_error(errno);
        Some(if stage == 0 {
            Failed::Exec(error)
        } else {
            Failed::Before(error)
        })
    }
}

/// # Safety
/// Called in a freshly forked child only.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one straight line between fork and exec"
)]
unsafe fn become_program(
    spawn: &Spawn<'_>,
    argv: &[*const libc::c_char],
    parent: i32,
    [gate, report]: [RawFd; 2],
) -> ! {
    let fail = |stage: i32| -> ! {
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
        let said = (i64::from(errno) << 32 | i64::from(stage)).to_le_bytes();
        // SAFETY: `said` lives across the call; then this process ends, whoever could be told.
        unsafe {
            libc::write(report, said.as_ptr().cast(), said.len());
            libc::_exit(127)
        }
    };
    let need = |holds: bool| {
        if !holds {
            fail(1);
        }
    };
    // SAFETY: system calls on valid arguments; nothing is shared with the parent.
    unsafe {
        need(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0);
        if libc::getppid() != parent {
            libc::_exit(127); // it died before it could take this process with it
        }
        if let Some(cpu) = spawn.cpu {
            // Placed again when the group stands: a core that has gone meanwhile is no reason to stop.
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
        if let Some(pid) = spawn.group_of {
            need(libc::setpgid(0, libc::getpgid(pid)) == 0);
        }
        if !spawn.sigpipe_ignored {
            need(libc::signal(libc::SIGPIPE, libc::SIG_DFL) != libc::SIG_ERR);
        }
        if spawn.sigchld_ignored {
            need(libc::signal(libc::SIGCHLD, libc::SIG_IGN) != libc::SIG_ERR);
        }
        // Its number is nobody else's here, and the agent closes it before the program's first instruction.
        need(libc::fcntl(spawn.inherit, libc::F_SETFD, 0) == 0);
        for (fd, closed) in (0..).zip(spawn.closed) {
            if closed {
                need(
                    libc::close(fd) == 0
                        || io::Error::last_os_error().raw_os_error() == Some(libc::EBADF),
                );
            }
        }
        let mut word = 0_u8;
        let heard = loop {
            let n = libc::read(gate, (&raw mut word).cast(), 1);
            if n >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break n;
            }
        };
        need(heard >= 0);
        if heard != 1 || word != GO {
            libc::_exit(127);
        }
        need(limit::give_back());
        libc::execve(spawn.path.as_ptr(), argv.as_ptr(), environ);
        fail(0)
    }
}

/// A pipe that exec closes.
///
/// # Errors
/// As pipe2(2).
pub fn pipe() -> io::Result<(File, File)> {
    use std::os::fd::FromRawFd;
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for two descriptors.
    if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pipe2 returned two descriptors nobody else owns.
    let reader = unsafe { File::from_raw_fd(fds[0]) };
    // SAFETY: as above.
    let writer = unsafe { File::from_raw_fd(fds[1]) };
    Ok((reader, writer))
}

/// Ends a child that may be somebody else's tracee, who is then told of its end first: waits a moment for it.
pub fn end_soon(pid: i32) {
    kill(pid, libc::SIGKILL);
    let until = Instant::now() + GOING;
    // SAFETY: no status is asked for.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL | libc::WNOHANG) } == 0
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(1));
    }
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

/// A call that something answers instead of the kernel, of those whose results nobody looks at later.
#[must_use]
pub fn unanswered() -> Option<(&'static str, io::Error)> {
    // Above what a process number can be (proc(5), pid_max): the kernel's own answer is ESRCH, whoever asks.
    // SAFETY: kill(2) takes two numbers; signal 0 is none.
    let rc = unsafe { libc::kill(i32::MAX, 0) };
    let answer = io::Error::last_os_error();
    if rc == 0 {
        return Some((
            "kill",
            io::Error::other("it found a process that cannot be"),
        ));
    }
    if answer.raw_os_error() != Some(libc::ESRCH) {
        return Some(("kill", answer));
    }
    // SAFETY: getpid(2) takes nothing, and cannot fail.
    let own = unsafe { libc::syscall(libc::SYS_getpid) };
    (own <= 0).then(|| ("getpid", io::Error::last_os_error()))
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
    // code was travels beside the mark (crates/agent/src/signals/signal.c, `restore_sender`).
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

/// Whether a process is in another one's process group; 0 is this process.
#[must_use]
pub fn in_group_of(pid: i32, other: i32) -> bool {
    // SAFETY: both calls take numbers.
    let theirs = unsafe { libc::getpgid(pid) };
    // SAFETY: as above.
    theirs == unsafe { libc::getpgid(other) }
}

/// Has this process join a process group; 0 is one of its own.
///
/// # Errors
/// As setpgid(2).
pub fn join_group(group: i32) -> io::Result<()> {
    // SAFETY: setpgid(2) takes numbers.
    match unsafe { libc::setpgid(0, group) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process group of a process.
#[must_use]
pub fn group_of(pid: i32) -> Option<i32> {
    // SAFETY: getpgid(2) takes a number.
    let group = unsafe { libc::getpgid(pid) };
    (group > 0).then_some(group)
}

/// Forks this process, which has one thread: the child's number, and nothing in the child.
///
/// # Errors
/// As fork(2).
pub fn divide() -> io::Result<Option<i32>> {
    // SAFETY: where there is one thread, nobody holds a lock that the child would wait for.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// How a child has ended, if it has; it is reaped then.
///
/// # Errors
/// As waitpid(2): ECHILD where there is no such child.
pub fn ended(pid: i32) -> io::Result<Option<Change>> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    Ok(
        match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
            -1 => return Err(io::Error::last_os_error()),
            0 => None,
            _ if libc::WIFSIGNALED(status) => Some(Change::Signaled(libc::WTERMSIG(status))),
            _ => Some(Change::Exited(libc::WEXITSTATUS(status))),
        },
    )
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

/// Has this process die with its parent, whose number is `parent`.
///
/// # Errors
/// As prctl(2), and when the parent is dead already.
pub fn die_with(parent: i32) -> io::Result<()> {
    // SAFETY: prctl(2) with two numbers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if self::parent() == parent {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Has orphans among the descendants of this process become its children.
pub fn adopt_orphans() {
    // SAFETY: prctl(2) with two numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Forks a process that runs `after` when this one has ended, with no descriptor open, every signal blocked, and a session of its own:
/// what ends the process group of this one, SIGKILL included, does not end it. Its number.
///
/// # Errors
/// As fork(2).
pub fn survivor(after: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: getpid(2) cannot fail.
    let us = unsafe { libc::getpid() };
    let mask = signals::try_block_all();
    // SAFETY: the child runs `after`, which the caller keeps to memory and system calls, and exits.
    let forked = match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: numbers only; whatever was open belongs to the parent.
            unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
            // SAFETY: without arguments; a process that was just forked leads no group, and may have a session.
            unsafe { libc::setsid() };
            while parent() == us {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            after();
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    };
    if let Ok(mask) = mask {
        signals::restore(mask);
    }
    forked
}

/// Forks a process that runs `life` and ends: fork(2) and nothing else. Its number.
///
/// # Errors
/// As fork(2).
pub fn forked(life: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: the child runs `life`, which the caller keeps to memory and system calls, and exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            life();
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid),
    }
}

/// Waits until a child has ended by itself, and leaves it to be reaped.
pub fn await_end(pid: i32) {
    let id = libc::id_t::from(pid.unsigned_abs());
    let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOWAIT;
    // SAFETY: `info` has room for what the kernel writes.
    while unsafe { libc::waitid(libc::P_PID, id, info.as_mut_ptr(), how) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

/// Waits for a child that ends by itself.
pub fn reap(pid: i32) {
    // SAFETY: no status is asked for. A child that somebody else waits for is gone as well.
    while unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
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
