//! ptrace(2) from exec to the program's first instruction, with the state in the type.

#![allow(
    unsafe_code,
    reason = "ptrace(2) is only reachable through raw pointers"
)]

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub use libc::user_regs_struct as Regs;

/// What an [`io::Error`] holds where a process was killed while it was held.
#[derive(Clone, Copy, Debug)]
pub struct Killed {
    pub signal: i32,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the process was killed meanwhile, by signal {}",
            self.signal
        )
    }
}

impl Error for Killed {}

/// A traced process that stands still.
#[derive(Debug)]
pub struct Stopped {
    pid: i32,
    memory: Option<File>,
    /// Signals that came while it worked for the tracer: delivered when it is let go.
    held: Vec<i32>,
}

/// What a wait on a traced process brought.
#[derive(Debug)]
pub enum Waited {
    Stopped {
        stop: Stopped,
        signal: i32,
        event: i32,
    },
    Exited(i32),
    Signaled(i32),
}

fn check(rc: i64) -> io::Result<i64> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

/// Waits for a traced child to stop or end.
///
/// # Errors
/// As waitpid(2).
pub fn wait(pid: i32) -> io::Result<Waited> {
    Ok(take(pid, 0)?.expect("it waits"))
}

/// Takes what there is to be known about a traced child now; nothing if nothing happened.
///
/// # Errors
/// As waitpid(2).
pub fn poll(pid: i32) -> io::Result<Option<Waited>> {
    take(pid, libc::WNOHANG)
}

fn take(pid: i32, flags: i32) -> io::Result<Option<Waited>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid int for the call.
        let rc = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | flags) };
        match check(rc.into()) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(if libc::WIFEXITED(status) {
        Waited::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Waited::Signaled(libc::WTERMSIG(status))
    } else {
        Waited::Stopped {
            stop: Stopped {
                pid,
                memory: None,
                held: Vec::new(),
            },
            signal: libc::WSTOPSIG(status),
            event: status >> 16,
        }
    }))
}

/// A signal that is not delivered to this thread for as long as the value lives, and can be waited for instead.
pub(crate) struct HeldBack {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

impl HeldBack {
    pub(crate) fn new(signal: i32) -> Self {
        // SAFETY: sets of signals are plain words, for which zero is a value.
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is valid for the call.
        unsafe { libc::sigemptyset(&raw mut set) };
        // SAFETY: `set` is valid for the call.
        unsafe { libc::sigaddset(&raw mut set, signal) };
        // SAFETY: both sets are valid for the call.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        Self { set, before }
    }

    /// Waits until it comes, so long at most.
    fn comes_within(&self, limit: std::time::Duration) {
        let limit = libc::timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        // SAFETY: the set and the time are valid for the call, and nobody asks who sent it.
        unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const limit) };
    }
}

impl Drop for HeldBack {
    fn drop(&mut self) {
        // SAFETY: the mask that was there before.
        unsafe {
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            )
        };
    }
}

/// Seizes a thread that runs and stops it; nothing comes back if it has ended.
///
/// # Errors
/// As ptrace(2).
pub fn interrupt(pid: i32) -> io::Result<Option<Stopped>> {
    // A first thread's end is for whoever waits for its process; another thread's is for nobody but its tracer, and
    // until it is collected its process does not end.
    let awaited = crate::child::is_child(pid);
    // SAFETY: PTRACE_SEIZE takes options as a number.
    let rc = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_EXITKILL) };
    if rc < 0 {
        let error = io::Error::last_os_error();
        // A first thread that has ended while others of its process go on is refused with EPERM.
        let dead = error.raw_os_error() == Some(libc::ESRCH)
            || error.raw_os_error() == Some(libc::EPERM) && crate::procfs::has_ended(pid);
        return if dead { Ok(None) } else { Err(error) };
    }
    // A thread that ends meanwhile refuses whatever is asked of it with ESRCH; the wait then tells of its end.
    let unless_gone = |rc| match check(rc) {
        Err(error) if error.raw_os_error() != Some(libc::ESRCH) => Err(error),
        _ => Ok(()),
    };
    // SAFETY: PTRACE_INTERRUPT takes no pointer.
    let rc = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) };
    unless_gone(rc)?;
    loop {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT | libc::__WALL;
        // SAFETY: `info` has room for what the kernel writes.
        let rc =
            unsafe { libc::waitid(libc::P_PID, pid.cast_unsigned(), info.as_mut_ptr(), flags) };
        check(rc.into())?;
        // SAFETY: zeroed, then filled by the kernel.
        let code = unsafe { info.assume_init() }.si_code;
        if matches!(code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
            if !awaited {
                wait(pid)?;
            }
            return Ok(None);
        }
        match wait(pid)? {
            // The stop that was asked for; a signal on its way is delivered first.
            Waited::Stopped { stop, event, .. } if event == libc::PTRACE_EVENT_STOP => {
                return Ok(Some(stop));
            }
            Waited::Stopped { stop, signal, .. } => {
                // SAFETY: PTRACE_CONT takes no pointer; `stop` proves ptrace-stop and is consumed.
                let rc = unsafe { libc::ptrace(libc::PTRACE_CONT, stop.pid, 0, signal) };
                unless_gone(rc)?;
            }
            _ => return Ok(None),
        }
    }
}

/// Traces a child that runs on, until it stops in exec; it dies with the tracer.
///
/// # Errors
/// As ptrace(2), and where the kernel has said yes and does not trace: a filter answers in its place.
pub fn seize_for_exec(pid: i32) -> io::Result<()> {
    let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
    // SAFETY: PTRACE_SEIZE takes options as a number.
    let rc = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) };
    check(rc)?;
    // SAFETY: gettid(2) cannot fail.
    let this_thread = unsafe { libc::gettid() };
    match crate::procfs::tracer(pid) {
        Some(tracer) if tracer == this_thread && !filtered() => Ok(()),
        // Whoever waits for what such a request brings would wait for ever.
        Some(tracer) if tracer == this_thread => Err(io::Error::other(
            "a request that it needs does not reach the kernel",
        )),
        _ => Err(io::Error::other(
            "the call succeeded, and nothing is traced",
        )),
    }
}

/// Whether something answers a request of the way to the first instruction instead of the kernel.
fn filtered() -> bool {
    const REQUESTS: [libc::c_uint; 9] = [
        libc::PTRACE_SEIZE,
        libc::PTRACE_INTERRUPT,
        libc::PTRACE_CONT,
        libc::PTRACE_SETOPTIONS,
        libc::PTRACE_GETREGS,
        libc::PTRACE_SETREGS,
        libc::PTRACE_GETSIGMASK,
        libc::PTRACE_SETSIGMASK,
        libc::PTRACE_DETACH,
    ];
    REQUESTS.into_iter().any(|request| {
        // No process has the number 0, so the kernel's own answer is ESRCH, whoever asks.
        // SAFETY: the request fails before it reads its arguments.
        let rc = unsafe { libc::ptrace(request, 0, 0, 0) };
        rc == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    })
}

/// Why a child cannot be traced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// Somebody else traces it: a process has one tracer (ptrace(2)).
    Tracer { pid: i32, name: String },
    /// A filter answers instead of the kernel (seccomp(2)).
    Filter,
    /// `kernel.yama.ptrace_scope`, from 2 on, without the right that it asks for.
    Yama(u8),
    /// Something that does not show, such as a security module's policy.
    Unknown,
}

/// Why [`seize_for_exec`] has failed for a child that is still there.
#[must_use]
pub fn why_denied(pid: i32) -> Denial {
    // SAFETY: gettid(2) cannot fail.
    let this_thread = unsafe { libc::gettid() };
    let tracer = crate::procfs::tracer(pid).filter(|tracer| ![0, this_thread].contains(tracer));
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    denial(
        tracer,
        filtered(),
        scope.ok().and_then(|scope| scope.trim().parse().ok()),
    )
}

fn denial(tracer: Option<i32>, filtered: bool, scope: Option<u8>) -> Denial {
    match (tracer, filtered, scope) {
        (Some(pid), ..) => Denial::Tracer {
            pid,
            name: crate::procfs::name(pid),
        },
        (None, true, _) => Denial::Filter,
        (None, false, Some(scope @ 2..)) => Denial::Yama(scope),
        _ => Denial::Unknown,
    }
}

/// Has a child that was seized stop soon; the wait tells.
///
/// # Errors
/// As ptrace(2).
pub fn request_stop(pid: i32) -> io::Result<()> {
    // SAFETY: PTRACE_INTERRUPT takes no pointer.
    let rc = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0) };
    check(rc).map(drop)
}

/// Signals from outside are few in the microseconds of a remote call.
const HELD_MAX: usize = 32;

impl Stopped {
    /// A traced thread of which a wait has just said that it stands.
    #[must_use]
    pub fn standing(pid: i32) -> Self {
        Self {
            pid,
            memory: None,
            held: Vec::new(),
        }
    }

    /// Process id, in this namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Kill the tracee with the tracer; exec stops by SIGTRAP at the new program's first
    /// instruction. `threads`: report when the first further thread starts.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn set_plain_options(&self, threads: bool) -> io::Result<()> {
        let options = libc::PTRACE_O_EXITKILL
            | if threads {
                libc::PTRACE_O_TRACECLONE
            } else {
                0
            };
        // SAFETY: PTRACE_SETOPTIONS takes no pointer.
        let rc = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, self.pid, 0, options) };
        check(rc).map(drop)
    }

    /// Options that tell of every thread and process it makes, before they execute anything.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn set_following_options(&self) -> io::Result<()> {
        // Without TRACEEXEC an exec would look like a SIGTRAP of the program's own.
        let options = libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACEEXEC;
        // SAFETY: PTRACE_SETOPTIONS takes no pointer.
        let rc = unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, self.pid, 0, options) };
        check(rc).map(drop)
    }

    /// Lets it run on.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn resume(self) -> io::Result<()> {
        // SAFETY: PTRACE_CONT takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0) };
        check(rc).map(drop)
    }

    /// Lets it run on, with a signal that is on its way to it (0 for none).
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn resume_with(self, signal: i32) -> io::Result<()> {
        // SAFETY: PTRACE_CONT takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_CONT, self.pid, 0, signal) };
        check(rc).map(drop)
    }

    /// Lets it run on untraced.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn detach(self) -> io::Result<()> {
        self.detach_with(0)
    }

    /// The same, with a signal that is on its way to it (0 for none).
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn detach_with(self, signal: i32) -> io::Result<()> {
        for signal in &self.held {
            // SAFETY: kill(2) takes two numbers.
            unsafe { libc::kill(self.pid, *signal) };
        }
        // SAFETY: PTRACE_DETACH takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, signal) };
        check(rc).map(drop)
    }

    /// The general registers.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn regs(&self) -> io::Result<Regs> {
        let mut regs = std::mem::MaybeUninit::<Regs>::uninit();
        // SAFETY: `self` proves ptrace-stop, and `regs` has room for one register set.
        let rc = unsafe { libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, regs.as_mut_ptr()) };
        check(rc)?;
        // SAFETY: PTRACE_GETREGS filled the whole structure.
        Ok(unsafe { regs.assume_init() })
    }

    /// Replaces the general registers.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn set_regs(&self, regs: &Regs) -> io::Result<()> {
        // SAFETY: `self` proves ptrace-stop, and the kernel only reads `regs`.
        let rc =
            unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, std::ptr::from_ref(regs)) };
        check(rc).map(drop)
    }

    fn memory(&mut self) -> io::Result<&File> {
        if self.memory.is_none() {
            let file = File::options()
                .read(true)
                .write(true)
                .open(format!("/proc/{}/mem", self.pid))?;
            self.memory = Some(file);
        }
        Ok(self.memory.as_ref().expect("just set"))
    }

    /// Copies memory out.
    ///
    /// # Errors
    /// When the range is not mapped.
    pub fn read(&mut self, addr: u64, to: &mut [u8]) -> io::Result<()> {
        self.memory()?.read_exact_at(to, addr)
    }

    /// Copies memory in; pages without write permission too, as for a breakpoint.
    ///
    /// # Errors
    /// When the range is not mapped, or the kernel forbids forced writes.
    pub fn write(&mut self, addr: u64, from: &[u8]) -> io::Result<()> {
        self.memory()?.write_all_at(from, addr)
    }

    /// From the exec event, which stops inside execve(2), to the new program's first
    /// instruction: registers set earlier would be overwritten by the call's return.
    ///
    /// # Errors
    /// As ptrace(2), or when the process ends meanwhile.
    pub fn leave_exec(mut self) -> io::Result<Self> {
        let mut regs = self.regs()?;
        let mut code = [0];
        self.read(regs.rip, &mut code)?;
        self.write(regs.rip, &[0xcc])?;
        let mut stop = self.run_to_trap()?;
        stop.write(regs.rip, &code)?;
        let rip = regs.rip;
        regs = stop.regs()?;
        regs.rip = rip;
        stop.set_regs(&regs)?;
        Ok(stop)
    }

    /// Runs to a breakpoint that was set for the purpose. Stops of job control are passed over, and other
    /// signals wait until the process is let go.
    fn run_to_trap(mut self) -> io::Result<Self> {
        let pid = self.pid;
        let (memory, mut held) = (self.memory.take(), std::mem::take(&mut self.held));
        self.resume()?;
        loop {
            match wait(pid)? {
                Waited::Stopped {
                    stop,
                    event: 0,
                    signal: libc::SIGTRAP,
                } => {
                    return Ok(Self {
                        memory,
                        held,
                        ..stop
                    });
                }
                Waited::Stopped {
                    stop,
                    event,
                    signal,
                } => {
                    // One that comes back each time is the process's own fault.
                    if held.len() == HELD_MAX {
                        return Err(io::Error::other(format!(
                            "signal {signal} during a remote call"
                        )));
                    }
                    if event == 0 {
                        held.push(signal);
                    }
                    stop.resume()?;
                }
                Waited::Exited(status) => {
                    return Err(io::Error::other(format!(
                        "the process ended meanwhile, status {status}"
                    )));
                }
                Waited::Signaled(signal) => {
                    return Err(io::Error::other(Killed { signal }));
                }
            }
        }
    }

    /// Makes the process execute one system call and gives its result (or `-errno`).
    ///
    /// A `syscall; int3` is lent to the page at rip for the purpose, then taken back.
    ///
    /// # Errors
    /// As ptrace(2), or when the process ends meanwhile.
    pub fn call(mut self, nr: i64, args: [u64; 6]) -> io::Result<(Self, i64)> {
        let saved = self.regs()?;
        let mut code = [0; 3];
        self.read(saved.rip, &mut code)?;
        self.write(saved.rip, &[0x0f, 0x05, 0xcc])?;
        let mut regs = saved;
        regs.rax = nr.cast_unsigned();
        // The kernel would restart an interrupted call; there is none.
        regs.orig_rax = u64::MAX;
        [regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9] = args;
        self.set_regs(&regs)?;
        let mut stop = self.run_to_trap()?;
        let result = stop.regs()?.rax.cast_signed();
        stop.write(saved.rip, &code)?;
        stop.set_regs(&saved)?;
        Ok((stop, result))
    }
}

/// A word of `struct user`: the debug registers (ptrace(2), PTRACE_POKEUSER).
const DEBUG_REGISTERS: usize = std::mem::offset_of!(libc::user, u_debugreg);
/// A debug register has met its address.
pub const TRAP_HWBKPT: i32 = 4;
/// `NT_X86_XSTATE`: vector state in the standard format of xsave.
const XSTATE: i32 = 0x202;

impl Stopped {
    /// Executes one instruction and stops again; what that brought.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn step(self, signal: i32) -> io::Result<Waited> {
        let pid = self.pid;
        // SAFETY: PTRACE_SINGLESTEP takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, signal) };
        check(rc)?;
        self.follow(pid)
    }

    /// As [`Self::step`], of one thread of several: nothing if its process has ended, of which the first
    /// thread tells when all others have been collected.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn step_among(self) -> io::Result<Option<Waited>> {
        let pid = self.pid;
        // SAFETY: PTRACE_SINGLESTEP takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
        check(rc)?;
        loop {
            let ended = crate::procfs::has_ended(pid);
            if let Some(waited) = poll(pid)? {
                return Ok(Some(waited));
            }
            if ended {
                return Ok(None);
            }
            std::thread::sleep(std::time::Duration::from_micros(10));
        }
    }

    /// Runs on until it stops again, delivering a signal if there is one.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn run(self, signal: i32) -> io::Result<Waited> {
        let pid = self.pid;
        // SAFETY: PTRACE_CONT takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, signal) };
        check(rc)?;
        self.follow(pid)
    }

    /// As [`Self::run`], or with `stepping` as [`Self::step`]; nothing if it still runs at a deadline, which is asked
    /// for again when it has passed.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn run_until(
        self,
        stepping: bool,
        signal: i32,
        deadline: impl Fn() -> std::time::Instant,
    ) -> io::Result<Option<Waited>> {
        let pid = self.pid;
        let mut until = deadline();
        let request = if stepping {
            libc::PTRACE_SINGLESTEP
        } else {
            libc::PTRACE_CONT
        };
        // Held back for the wait alone: whoever is started has the mask of who starts it.
        let held = HeldBack::new(libc::SIGCHLD);
        // SAFETY: both requests take no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(request, pid, 0, signal) };
        check(rc)?;
        loop {
            if let Some(waited) = poll(pid)? {
                return Ok(Some(self.keeping(waited)));
            }
            let now = std::time::Instant::now();
            if until <= now {
                until = deadline();
            }
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(None);
            }
            held.comes_within(left);
        }
    }

    fn follow(self, pid: i32) -> io::Result<Waited> {
        let waited = wait(pid)?;
        Ok(self.keeping(waited))
    }

    /// The next stop, with what this one had open.
    fn keeping(self, waited: Waited) -> Waited {
        let (memory, held) = (self.memory, self.held);
        match waited {
            Waited::Stopped {
                stop,
                signal,
                event,
            } => Waited::Stopped {
                stop: Self {
                    pid: stop.pid,
                    memory,
                    held,
                },
                signal,
                event,
            },
            other => other,
        }
    }

    /// Stops before the instruction at `addr`, from now on, leaving its bytes alone; 0 for none.
    ///
    /// # Errors
    /// Where debug registers are not to be had.
    pub fn watch_execution(&self, addr: u64) -> io::Result<()> {
        let poke = |register: usize, value: u64| {
            // SAFETY: `self` proves ptrace-stop; offset and value are numbers.
            let rc = unsafe {
                libc::ptrace(
                    libc::PTRACE_POKEUSER,
                    self.pid,
                    DEBUG_REGISTERS + 8 * register,
                    value,
                )
            };
            check(rc).map(drop)
        };
        poke(7, 0)?;
        if addr != 0 {
            poke(0, addr)?;
            // Local enable of breakpoint 0, kind 0: execution (Intel SDM vol. 3, 18.2.4).
            poke(7, 1)?;
        }
        Ok(())
    }

    /// What a SIGTRAP came of (sigaction(2), `si_code`): `TRAP_TRACE` behind a step, [`TRAP_HWBKPT`] before the
    /// instruction that a debug register waits for.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn trap_code(&self) -> io::Result<i32> {
        let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: `self` proves ptrace-stop, and `info` has room for what the kernel writes.
        let rc = unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0, info.as_mut_ptr()) };
        check(rc)?;
        // SAFETY: zeroed, then filled by the kernel.
        Ok(unsafe { info.assume_init() }.si_code)
    }

    /// The signals that it blocks, one bit each, signal 1 in bit 0.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn blocked(&self) -> io::Result<u64> {
        let mut set = 0_u64;
        // SAFETY: `self` proves ptrace-stop, and `set` has the size that is given.
        let rc = unsafe {
            libc::ptrace(
                libc::PTRACE_GETSIGMASK,
                self.pid,
                size_of::<u64>(),
                &raw mut set,
            )
        };
        check(rc)?;
        Ok(set)
    }

    /// Has it block these signals and no others.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn set_blocked(&self, set: u64) -> io::Result<()> {
        // SAFETY: `self` proves ptrace-stop, and the kernel only reads `set`, of the size that is given.
        let rc = unsafe {
            libc::ptrace(
                libc::PTRACE_SETSIGMASK,
                self.pid,
                size_of::<u64>(),
                &raw const set,
            )
        };
        check(rc).map(drop)
    }

    /// Vector state, in the standard format.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn xstate(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0_u8; 16384];
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: `self` proves ptrace-stop, and `part` describes memory that is there.
        let rc = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, self.pid, XSTATE, &raw mut part) };
        check(rc)?;
        bytes.truncate(part.iov_len);
        Ok(bytes)
    }

    /// Replaces vector state.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn set_xstate(&self, bytes: &mut [u8]) -> io::Result<()> {
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        // SAFETY: `self` proves ptrace-stop, and the kernel only reads what `part` describes.
        let rc = unsafe { libc::ptrace(libc::PTRACE_SETREGSET, self.pid, XSTATE, &raw mut part) };
        check(rc).map(drop)
    }

    /// Makes the process execute several system calls in a row, none of which may fail, with one
    /// round trip for all of them.
    ///
    /// # Errors
    /// The first that failed, as ptrace(2), or when the process ends meanwhile.
    pub fn calls(mut self, list: &[(i64, [u64; 6])]) -> io::Result<Self> {
        let saved = self.regs()?;
        let code = call_list(list);
        let mut kept = vec![0; code.len()];
        self.read(saved.rip, &mut kept)?;
        self.write(saved.rip, &code)?;
        let mut regs = saved;
        regs.orig_rax = u64::MAX;
        self.set_regs(&regs)?;
        let Waited::Stopped {
            mut stop, signal, ..
        } = self.run(0)?
        else {
            return Err(io::Error::other("the process ended during remote calls"));
        };
        let after = stop.regs()?;
        stop.write(saved.rip, &kept)?;
        stop.set_regs(&saved)?;
        if signal != libc::SIGTRAP {
            return Err(io::Error::other(format!(
                "signal {signal} during remote calls"
            )));
        }
        let result = after.rax.cast_signed();
        if (-4095..0).contains(&result) {
            return Err(io::Error::from_raw_os_error(
                i32::try_from(-result).unwrap_or(libc::EIO),
            ));
        }
        Ok(stop)
    }
}

/// Loads the registers of each call, makes it, and traps at the first error or at the end.
fn call_list(list: &[(i64, [u64; 6])]) -> Vec<u8> {
    // movabs rdi, rsi, rdx, r10, r8, r9
    const REGISTERS: [[u8; 2]; 6] = [
        [0x48, 0xbf],
        [0x48, 0xbe],
        [0x48, 0xba],
        [0x49, 0xba],
        [0x49, 0xb8],
        [0x49, 0xb9],
    ];
    let mut out = Vec::new();
    for (nr, args) in list {
        out.push(0xb8); // mov eax, imm32
        out.extend(u32::try_from(*nr).unwrap_or(u32::MAX).to_le_bytes());
        for (opcode, value) in REGISTERS.iter().zip(args) {
            out.extend(opcode);
            out.extend(value.to_le_bytes());
        }
        out.extend([0x0f, 0x05]); // syscall
        out.extend([0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]); // cmp rax, -4095
        out.extend([0x72, 0x01, 0xcc]); // jb +1; int3
    }
    out.push(0xcc);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_is_named_before_a_filter_and_a_filter_before_yama() {
        let own = i32::try_from(std::process::id()).expect("a process number");
        assert!(
            matches!(denial(Some(own), true, Some(3)), Denial::Tracer { pid, name } if pid == own && !name.is_empty())
        );
        assert_eq!(denial(None, true, Some(3)), Denial::Filter);
        assert_eq!(denial(None, false, Some(3)), Denial::Yama(3));
        assert_eq!(denial(None, false, Some(2)), Denial::Yama(2));
        // Descendants may be traced.
        assert_eq!(denial(None, false, Some(1)), Denial::Unknown);
        assert_eq!(denial(None, false, None), Denial::Unknown);
    }
}
