//! A child for each probe: it may crash, hang or be killed.
//!
//! The child reports by a few numbers through a pipe. Whatever it started is in its process
//! group, which is killed when the answer is in or the deadline has passed.
//!
//! Not covered: a child in uninterruptible sleep. The kernel has to let it go first.

#![allow(
    unsafe_code,
    reason = "fork(2), waitpid(2) and what happens between them"
)]

use std::io;
use std::time::{Duration, Instant};

/// Numbers that a probe may report.
pub(crate) const VALUES: usize = 6;

/// What a probe says: how far it got, the errno that stopped it, and what it measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Answer {
    /// The step that failed, in the probe's own count.
    pub(crate) step: u32,
    /// Why; 0 if nothing failed.
    pub(crate) errno: i32,
    /// Results.
    pub(crate) values: [u64; VALUES],
}

impl Answer {
    /// Everything worked.
    pub(crate) const fn fine(values: [u64; VALUES]) -> Self {
        Self {
            step: 0,
            errno: 0,
            values,
        }
    }

    /// A step failed with the errno of the last call.
    pub(crate) fn failed(step: u32) -> Self {
        Self {
            step,
            errno: errno(),
            values: [0; VALUES],
        }
    }

    /// A step succeeded and did not do what it should.
    pub(crate) const fn wrong(step: u32) -> Self {
        Self {
            step,
            errno: 0,
            values: [0; VALUES],
        }
    }

    const BYTES: usize = 8 + 8 * VALUES;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.step.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.errno.to_le_bytes());
        for (to, value) in bytes[8..].chunks_exact_mut(8).zip(self.values) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let word = |at: usize| bytes[at..at + 4].try_into().unwrap_or_default();
        let mut values = [0; VALUES];
        for (value, from) in values.iter_mut().zip(bytes[8..].chunks_exact(8)) {
            *value = u64::from_le_bytes(from.try_into().unwrap_or_default());
        }
        Self {
            step: u32::from_le_bytes(word(0)),
            errno: i32::from_le_bytes(word(4)),
            values,
        }
    }
}

/// How a probe ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Outcome {
    /// It answered.
    Answered(Answer),
    /// It died of a signal before it answered.
    Died(i32),
    /// It ended without an answer.
    Silent,
    /// Its time was up.
    TimedOut,
    /// There was no child; the errno says why.
    NoChild(i32),
}

impl Outcome {
    /// The answer of a probe that came through.
    pub(crate) fn fine(self) -> Option<Answer> {
        match self {
            Self::Answered(answer) if answer.step == 0 => Some(answer),
            _ => None,
        }
    }

    /// What kept it from coming through, given names for its steps.
    pub(crate) fn why(self, steps: &[&str]) -> String {
        match self {
            Self::Answered(answer) => {
                let step = usize::try_from(answer.step)
                    .ok()
                    .and_then(|step| steps.get(step.checked_sub(1)?));
                let step = step.copied().unwrap_or("it");
                match answer.errno {
                    0 => format!("{step} had no effect"),
                    errno => format!("{step}: {}", name(errno)),
                }
            }
            Self::Died(signal) => format!("the probe died of signal {signal}"),
            Self::Silent => "the probe ended without an answer".to_owned(),
            Self::TimedOut => "the probe did not end in time".to_owned(),
            Self::NoChild(errno) => format!("no child process: {}", name(errno)),
        }
    }

    /// The errno that stopped it.
    pub(crate) fn errno(self) -> Option<i32> {
        match self {
            Self::Answered(answer) if answer.step != 0 => Some(answer.errno),
            Self::NoChild(errno) => Some(errno),
            _ => None,
        }
    }
}

/// The errno of the last call.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An errno as a user knows it.
pub(crate) fn name(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// Long enough for a loaded machine: the slowest probe takes about 0.1 s on an idle one.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

/// Runs a probe in a child.
///
/// The probe may do anything: the child has the one thread that forked, and glibc makes its
/// allocator usable after fork(2).
pub(crate) fn run(limit: Duration, probe: impl FnOnce() -> Answer) -> Outcome {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Outcome::NoChild(errno());
    }
    let [reader, writer] = ends;
    // SAFETY: getpid has no failure and no arguments.
    let parent = unsafe { libc::getpid() };
    // SAFETY: the child runs `probe` and leaves by _exit: it never returns into the caller.
    match unsafe { libc::fork() } {
        -1 => {
            let errno = errno();
            close(reader);
            close(writer);
            Outcome::NoChild(errno)
        }
        0 => {
            settle(parent);
            let answer = probe().to_bytes();
            // SAFETY: `answer` is readable for its length, which is below PIPE_BUF: one write.
            unsafe { libc::write(writer, answer.as_ptr().cast(), answer.len()) };
            // SAFETY: ends this process without running what the parent registered.
            unsafe { libc::_exit(0) }
        }
        child => {
            close(writer);
            // Both sides do this, so that the group exists whoever comes first.
            // SAFETY: takes two numbers.
            unsafe { libc::setpgid(child, child) };
            let answer = listen(reader, child, limit);
            close(reader);
            end(child, answer)
        }
    }
}

/// A child that has nothing of its parent's to lose and does not outlive it.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a row of calls on numbers and locals"
)]
fn settle(parent: libc::pid_t) {
    // SAFETY: calls that take numbers, or pointers to locals that live across the call.
    unsafe {
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(1);
        }
        let no_core = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core);
        // A caller may have ignored SIGCHLD, and the probe waits for children of its own.
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        // The runtime looks for stack overflows in these; a crash is to be just that.
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Reads an answer, or says why there is none.
fn listen(reader: i32, child: libc::pid_t, limit: Duration) -> Result<Answer, NoAnswer> {
    /// A child that died may leave the pipe open in a child of its own, so the end of the pipe
    /// alone does not tell: its death is asked for this often.
    const SLICE_MS: i32 = 10;
    let deadline = Instant::now() + limit;
    let mut bytes = [0; Answer::BYTES];
    let mut ended = false;
    loop {
        let mut poll = libc::pollfd {
            fd: reader,
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one pollfd, which lives across the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, if ended { 0 } else { SLICE_MS }) };
        if ready == 1 {
            // SAFETY: `bytes` is writable for its length.
            let got = unsafe { libc::read(reader, bytes.as_mut_ptr().cast(), bytes.len()) };
            return match usize::try_from(got) {
                Ok(Answer::BYTES) => Ok(Answer::from_bytes(&bytes)),
                _ => Err(NoAnswer::Ended),
            };
        }
        // Only once the pipe has been looked at after the end: the answer may be in it.
        if ended {
            return Err(NoAnswer::Ended);
        }
        ended = has_ended(child);
        if !ended && Instant::now() >= deadline {
            return Err(NoAnswer::TimedOut);
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoAnswer {
    Ended,
    TimedOut,
}

/// Whether a child has ended; it can still be waited for.
fn has_ended(child: libc::pid_t) -> bool {
    // SAFETY: all-zero bytes are a valid siginfo, and the call writes no more than one.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is writable for the call.
    let rc = unsafe { libc::waitid(libc::P_PID, child.unsigned_abs(), &raw mut info, options) };
    // With SIGCHLD ignored the kernel has reaped it: then it has ended, too.
    // SAFETY: the kernel fills the pid, or leaves it zero when there is nothing to report.
    rc == -1 || unsafe { info.si_pid() } == child
}

/// Ends the child and all it started, and says how it went.
fn end(child: libc::pid_t, answer: Result<Answer, NoAnswer>) -> Outcome {
    // SAFETY: takes two numbers. The group is the child's own, by setpgid above, and its number
    // is taken until the child has been waited for. One that has ended keeps its status.
    unsafe { libc::kill(-child, libc::SIGKILL) };
    let mut status = 0;
    let waited = wait(child, &mut status);
    match answer {
        Ok(answer) => Outcome::Answered(answer),
        Err(NoAnswer::TimedOut) => Outcome::TimedOut,
        Err(NoAnswer::Ended) if waited == child && libc::WIFSIGNALED(status) => {
            Outcome::Died(libc::WTERMSIG(status))
        }
        Err(NoAnswer::Ended) => Outcome::Silent,
    }
}

/// waitpid(2), again when interrupted. A caller that ignores SIGCHLD has its children reaped by
/// the kernel; then there is nothing to wait for.
pub(crate) fn wait(child: libc::pid_t, status: &mut i32) -> libc::pid_t {
    loop {
        // SAFETY: `status` is writable for the call.
        let waited = unsafe { libc::waitpid(child, status, libc::__WALL) };
        if waited != -1 || errno() != libc::EINTR {
            return waited;
        }
    }
}

/// Closes a descriptor that this module opened.
fn close(fd: i32) {
    // SAFETY: the descriptor is ours and not used after this.
    unsafe { libc::close(fd) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was_given() {
        let answer = Answer {
            step: 3,
            errno: libc::EPERM,
            values: [1, u64::MAX, 3, 4, 5, 6],
        };
        assert_eq!(run(LIMIT, || answer), Outcome::Answered(answer));
    }

    #[test]
    fn a_probe_may_crash_end_or_hang() {
        let died = run(LIMIT, || {
            // SAFETY: raising a signal touches no memory.
            unsafe { libc::raise(libc::SIGSEGV) };
            Answer::default()
        });
        assert_eq!(died, Outcome::Died(libc::SIGSEGV));
        // SAFETY: ends the child.
        assert_eq!(run(LIMIT, || unsafe { libc::_exit(3) }), Outcome::Silent);
        let started = Instant::now();
        let hung = run(Duration::from_millis(50), || {
            loop {
                std::thread::sleep(Duration::from_secs(60));
            }
        });
        assert_eq!(hung, Outcome::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_probe_that_dies_is_noticed_although_its_child_lives() {
        let started = Instant::now();
        let died = run(LIMIT, || {
            // SAFETY: the child only sleeps, and raising a signal touches no memory.
            if unsafe { libc::fork() } == 0 {
                std::thread::sleep(Duration::from_secs(60));
            }
            // SAFETY: as above.
            unsafe { libc::raise(libc::SIGKILL) };
            Answer::default()
        });
        assert_eq!(died, Outcome::Died(libc::SIGKILL));
        assert!(started.elapsed() < LIMIT);
    }

    #[test]
    fn what_a_probe_started_ends_with_it() {
        let outcome = run(LIMIT, || {
            // SAFETY: both sides only sleep or answer.
            match unsafe { libc::fork() } {
                0 => loop {
                    std::thread::sleep(Duration::from_secs(60));
                },
                pid => Answer::fine([u64::try_from(pid).unwrap_or(0), 0, 0, 0, 0, 0]),
            }
        });
        let pid = outcome
            .fine()
            .map(|answer| answer.values[0])
            .expect("a grandchild");
        let pid = i32::try_from(pid).expect("a pid");
        let gone = |pid| {
            // A zombie that init has not reaped yet is as good as gone.
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        };
        let deadline = Instant::now() + Duration::from_secs(5);
        while !gone(pid) {
            assert!(Instant::now() < deadline, "process {pid} is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
