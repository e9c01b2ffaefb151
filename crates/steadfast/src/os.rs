//! The few system calls that the command itself needs.
//!
//! Invariant: nothing here allocates or locks, so it may run before `main` and on the way out.

#![allow(
    unsafe_code,
    reason = "signal dispositions and effective access have no safe interface in std"
)]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use steadfast_contract::plan::Ambient;

/// Bits 0 to 2: the standard stream was closed. Bit 3: SIGPIPE was ignored. Bit 4: SIGCHLD was.
static AMBIENT: AtomicU8 = AtomicU8::new(0);

const SIGPIPE_IGNORED: u8 = 1 << 3;
const SIGCHLD_IGNORED: u8 = 1 << 4;

/// The standard library opens closed standard streams on /dev/null and ignores SIGPIPE before
/// `main`; both are right for us and wrong for the program, which must find what the caller left.
/// The loader calls this before that happens. A SIGCHLD that is ignored is wrong for us: nobody could
/// wait for a child (wait(2)).
extern "C" fn look_around() {
    let mut seen = 0;
    for stream in 0..3 {
        // SAFETY: F_GETFD takes no third argument and touches no memory (fcntl(2)).
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1 {
            seen |= 1 << stream;
        }
    }
    if is_ignored(libc::SIGPIPE) {
        seen |= SIGPIPE_IGNORED;
    }
    if is_ignored(libc::SIGCHLD) {
        seen |= SIGCHLD_IGNORED;
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    AMBIENT.store(seen, Ordering::Relaxed);
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old one, into `action`, which is large enough.
    let known = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) } == 0;
    // SAFETY: all-zero bytes are a valid `sigaction`, and the call has filled it where it has not failed.
    known && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

// SAFETY: the section holds pointers to functions that take nothing they need and return nothing;
// the loader calls each once, before `main` and on one thread (System V ABI, initialisation).
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK_AROUND: extern "C" fn() = look_around;

/// What the caller handed down, as it was before the runtime changed it.
pub(crate) fn ambient() -> Ambient {
    let seen = AMBIENT.load(Ordering::Relaxed);
    Ambient {
        closed: [0, 1, 2].map(|stream| seen & (1 << stream) != 0),
        sigpipe_ignored: seen & SIGPIPE_IGNORED != 0,
        sigchld_ignored: seen & SIGCHLD_IGNORED != 0,
        handed_on: true,
    }
}

/// Standard output as the caller left it: the runtime has opened a closed one on /dev/null.
pub(crate) struct Output(pub(crate) io::Stdout);

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if ambient().closed[1] {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Whether this process may execute a file, by its effective identity as execve(2) judges.
pub(crate) fn may_execute(path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is terminated by its type, and the call keeps no pointer to it.
    let rc =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Ends this process as the program ended: of the same signal, so that a caller who looks at
/// `WTERMSIG` sees it. The program has dumped its core if it was to; ours would tell nothing and
/// might overwrite it.
pub(crate) fn die_of(signal: i32) -> ! {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `no_core` lives across the call, which only reads it.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const no_core) };
    // A piped core pattern ignores the limit (core(5)), but not this.
    // SAFETY: PR_SET_DUMPABLE takes one integer and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the call fills the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: `set` was made a valid set just above; an impossible number leaves it empty.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: `set` is a valid set, and a null old set is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut()) };
    // SAFETY: raising a signal touches no memory.
    unsafe { libc::raise(signal) };
    // Still here: the signal does not kill by default. Say it as a shell would.
    process::exit(128 + signal)
}

/// Whether this process is root's.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Set by the first interrupt from now on; the second one ends the process as ever.
pub(crate) fn interrupted() -> &'static AtomicBool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = interrupt as *const () as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: `action` is valid for the call, and its handler only stores to an atomic.
        unsafe { libc::sigaction(signal, action, std::ptr::null_mut()) };
    }
    &INTERRUPTED
}

/// What stops a user who owns nothing from running this file: a directory on its way, or itself.
pub(crate) fn closed_to(path: &std::path::Path, user: u32) -> Option<std::path::PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let may = |path: &std::path::Path| {
        std::fs::metadata(path).is_ok_and(|meta| {
            let shift = if meta.uid() == user { 6 } else { 0 };
            // A file has to be readable as well: its code is looked at.
            let needed = if meta.is_dir() { 0o1 } else { 0o5 };
            user == 0 || meta.mode() >> shift & needed == needed
        })
    };
    path.ancestors()
        .filter(|part| !part.as_os_str().is_empty())
        .filter(|part| !may(part))
        .last()
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The wait status of a child that ends by `die_of`.
    fn wait_status(signal: i32) -> i32 {
        // SAFETY: the child calls only async-signal-safe functions until it is gone, so it does
        // not matter which locks other test threads held.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            die_of(signal);
        }
        let mut status = 0;
        // SAFETY: `status` is writable for the call, and `child` is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    }

    #[test]
    fn a_death_by_signal_is_died_again_without_a_core() {
        for signal in [
            libc::SIGTERM,
            libc::SIGSEGV,
            libc::SIGABRT,
            libc::SIGKILL,
            libc::SIGPIPE,
        ] {
            let status = wait_status(signal);
            assert!(libc::WIFSIGNALED(status), "{signal}: {status:#x}");
            assert_eq!(libc::WTERMSIG(status), signal);
            assert!(!libc::WCOREDUMP(status), "{signal}");
        }
    }

    #[test]
    fn execution_is_judged_by_the_kernel() {
        assert!(may_execute(c"/bin/sh").is_ok());
        assert_eq!(
            may_execute(c"/etc/passwd").map_err(|e| e.raw_os_error()),
            Err(Some(libc::EACCES))
        );
        assert_eq!(
            may_execute(c"/no/such").map_err(|e| e.raw_os_error()),
            Err(Some(libc::ENOENT))
        );
    }
}
