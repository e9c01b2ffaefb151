//! ptrace(2) from exec to the program's first instruction, with the state in the type.

#![allow(unsafe_code, reason = "ptrace(2) is only reachable through raw pointers")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub use libc::user_regs_struct as Regs;

/// A traced process that stands still.
#[derive(Debug)]
pub struct Stopped {
    pid: i32,
    memory: Option<File>,
}

/// What a wait on a traced process brought.
#[derive(Debug)]
pub enum Waited {
    Stopped { stop: Stopped, signal: i32, event: i32 },
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
    let mut status = 0;
    loop {
        // SAFETY: `status` is a valid int for the call.
        let rc = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        match check(rc.into()) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(if libc::WIFEXITED(status) {
        Waited::Exited(libc::WEXITSTATUS(status))
    } else if libc::WIFSIGNALED(status) {
        Waited::Signaled(libc::WTERMSIG(status))
    } else {
        Waited::Stopped {
            stop: Stopped { pid, memory: None },
            signal: libc::WSTOPSIG(status),
            event: status >> 16,
        }
    })
}

impl Stopped {
    /// Process id, in this namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Kill the tracee with the tracer, and report exec.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn set_options(&self) -> io::Result<()> {
        let options = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
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

    /// Lets it run on untraced.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn detach(self) -> io::Result<()> {
        // SAFETY: PTRACE_DETACH takes no pointer; `self` proves ptrace-stop and is consumed.
        let rc = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.pid, 0, 0) };
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
        let rc = unsafe { libc::ptrace(libc::PTRACE_SETREGS, self.pid, 0, std::ptr::from_ref(regs)) };
        check(rc).map(drop)
    }

    fn memory(&mut self) -> io::Result<&File> {
        if self.memory.is_none() {
            let file = File::options().read(true).write(true).open(format!("/proc/{}/mem", self.pid))?;
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
        let pid = self.pid;
        let memory = self.memory.take();
        self.resume()?;
        let Waited::Stopped { mut stop, signal: libc::SIGTRAP, .. } = wait(pid)? else {
            return Err(io::Error::other("the process did not reach its entry point"));
        };
        stop.memory = memory;
        stop.write(regs.rip, &code)?;
        let rip = regs.rip;
        regs = stop.regs()?;
        regs.rip = rip;
        stop.set_regs(&regs)?;
        Ok(stop)
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
        let pid = self.pid;
        let memory = self.memory.take();
        self.resume()?;
        let Waited::Stopped { mut stop, signal, .. } = wait(pid)? else {
            return Err(io::Error::other("the process ended during a remote call"));
        };
        stop.memory = memory;
        if signal != libc::SIGTRAP {
            return Err(io::Error::other(format!("signal {signal} during a remote call")));
        }
        let result = stop.regs()?.rax.cast_signed();
        stop.write(saved.rip, &code)?;
        stop.set_regs(&saved)?;
        Ok((stop, result))
    }
}
