//! Can a program be started, stopped at its first instruction, read and written?

#![allow(unsafe_code, reason = "ptrace(2), fork(2) and execve(2)")]

use std::io;

use steadfast_sys::ptrace::{self, Denial};

use crate::boxed::{self, Answer, Outcome};
use crate::{Finding, read};

pub(crate) fn findings() -> Vec<Finding> {
    vec![procfs(), tracing(), vm_read()]
}

pub(crate) fn kernel() -> Finding {
    // SUD came with 5.11; everything else that is needed is older.
    const OLDEST: (u32, u32) = (5, 11);
    let release = read::release();
    let mut parts = release.split(['.', '-']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST => Finding::slower(
            "kernel",
            format!(
                "{release} is older than {}.{}, the oldest that is tested",
                OLDEST.0, OLDEST.1
            ),
            "what works below works, but no release before it is tested",
        ),
        _ => Finding::works("kernel", release),
    }
}

/// Whether there can be children at all: without them nothing else can be tried.
pub(crate) fn child() -> Finding {
    match boxed::run(boxed::LIMIT, || Answer::fine([0; 6])) {
        Outcome::Answered(_) => {
            Finding::works("child processes", "fork(2) and waitpid(2) work").needed()
        }
        other => Finding::missing("child processes", other.why(&[]))
            .needed()
            .fix("ulimit -u unlimited"),
    }
}

fn tracing() -> Finding {
    const STEPS: [&str; 7] = [
        "fork",
        "PTRACE_TRACEME",
        "PTRACE_SETOPTIONS",
        "stop at exec",
        "PTRACE_GETREGSET",
        "/proc/PID/mem",
        "detach",
    ];
    let outcome = boxed::run(boxed::LIMIT, trace_an_exec);
    if outcome.fine().is_some() {
        return Finding::works(
            "ptrace",
            "a child was stopped at its first instruction, read and written",
        )
        .needed();
    }
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let fix = match ptrace::why_denied(own) {
        _ if matches!(outcome, Outcome::Answered(Answer { step: 6, .. })) => {
            "mount -t proc proc /proc".to_owned()
        }
        // Whoever traces this process and follows its children has the one that was tried.
        Denial::Tracer { pid, name } => {
            format!(
                "run without {name} (process {pid}) tracing every child: a process has one tracer"
            )
        }
        Denial::Filter => {
            "the container's seccomp profile must allow ptrace: docker run --cap-add SYS_PTRACE"
                .to_owned()
        }
        Denial::Yama(2) => "sysctl kernel.yama.ptrace_scope=1, or run as root".to_owned(),
        Denial::Yama(_) => {
            "a reboot without kernel.yama.ptrace_scope=3 (it cannot be lowered)".to_owned()
        }
        Denial::Unknown => {
            "find out which security module denies ptrace(2): dmesg, ausearch".to_owned()
        }
    };
    Finding::missing("ptrace", outcome.why(&STEPS))
        .needed()
        .fix(fix)
}

/// Follows a child to its exec stop, as the launcher does.
#[allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one straight line between fork and exec"
)]
fn trace_an_exec() -> Answer {
    // SAFETY: the child only makes system calls on constants until it is another program.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Answer::failed(1),
        0 => {
            let program = c"/proc/self/exe".as_ptr();
            let argv = [program, std::ptr::null()];
            // SAFETY: terminated strings and arrays that live until exec. The program is never
            // let run: it is killed at its first stop.
            unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) == -1 {
                    libc::_exit(boxed::errno());
                }
                libc::raise(libc::SIGSTOP);
                libc::execve(program, argv.as_ptr(), argv[1..].as_ptr());
                libc::_exit(boxed::errno());
            }
        }
        _ => {}
    }
    let mut status = 0;
    boxed::wait(child, &mut status);
    if !libc::WIFSTOPPED(status) {
        let errno = if libc::WIFEXITED(status) {
            libc::WEXITSTATUS(status)
        } else {
            0
        };
        return Answer {
            step: 2,
            errno,
            ..Answer::default()
        };
    }
    let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
    // SAFETY: the child is in ptrace-stop, as PTRACE_SETOPTIONS requires; numbers only.
    if unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options) } == -1 {
        return Answer::failed(3);
    }
    // SAFETY: the child is in ptrace-stop; numbers only.
    if unsafe { libc::ptrace(libc::PTRACE_CONT, child, 0, 0) } == -1 {
        return Answer::failed(4);
    }
    boxed::wait(child, &mut status);
    if status >> 8 != libc::SIGTRAP | libc::PTRACE_EVENT_EXEC << 8 {
        return Answer::wrong(4);
    }
    // SAFETY: all-zero bytes are a valid register set.
    let mut regs: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let mut iov = libc::iovec {
        iov_base: (&raw mut regs).cast(),
        iov_len: size_of_val(&regs),
    };
    const NT_PRSTATUS: i32 = 1;
    // SAFETY: the child is in ptrace-stop, and `iov` describes `regs`, both alive across the call.
    if unsafe { libc::ptrace(libc::PTRACE_GETREGSET, child, NT_PRSTATUS, &raw mut iov) } == -1 {
        return Answer::failed(5);
    }
    if let Err(error) = write_where_it_stands(child, regs.rsp) {
        return Answer {
            step: 6,
            errno: error.raw_os_error().unwrap_or(0),
            ..Answer::default()
        };
    }
    // SAFETY: takes numbers; the child is ours and not yet waited for to its end.
    unsafe { libc::kill(child, libc::SIGKILL) };
    boxed::wait(child, &mut status);
    Answer::fine([0; 6])
}

/// Writes a word of another process's stack back as it was.
fn write_where_it_stands(pid: i32, address: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let memory = std::fs::File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    let mut word = [0; 8];
    memory.read_exact_at(&mut word, address)?;
    memory.write_all_at(&word, address)
}

fn procfs() -> Finding {
    // What the launcher reads of a program before it starts.
    for file in ["maps", "auxv", "stat", "status"] {
        if let Err(error) = std::fs::read(format!("/proc/self/{file}")) {
            return Finding::missing("procfs", format!("/proc/self/{file}: {error}"))
                .needed()
                .fix("mount -t proc proc /proc");
        }
    }
    // A pid namespace without a procfs of its own sees the processes of another one.
    let own = std::fs::read_link("/proc/self")
        .ok()
        .and_then(|link| link.to_str()?.parse().ok());
    if own != Some(std::process::id()) {
        return Finding::missing("procfs", "/proc belongs to another pid namespace")
            .needed()
            .fix("mount -t proc proc /proc");
    }
    Finding::works("procfs", "maps, auxv, stat and status can be read").needed()
}

fn vm_read() -> Finding {
    let outcome = boxed::run(boxed::LIMIT, || {
        let value: u64 = 0x5afe;
        // SAFETY: the child of this probe only sleeps until it is killed with the group.
        let child = unsafe { libc::fork() };
        if child == -1 {
            return Answer::failed(1);
        }
        if child == 0 {
            loop {
                // SAFETY: waits for the signal that ends this process.
                unsafe { libc::pause() };
            }
        }
        let mut copy: u64 = 0;
        let local = libc::iovec {
            iov_base: (&raw mut copy).cast(),
            iov_len: 8,
        };
        let remote = libc::iovec {
            iov_base: (&raw const value).cast_mut().cast(),
            iov_len: 8,
        };
        // SAFETY: `local` describes `copy`, which is ours; `remote` is only an address to the
        // kernel, which checks it in the child, where fork has put the same value.
        let got =
            unsafe { libc::process_vm_readv(child, &raw const local, 1, &raw const remote, 1, 0) };
        match got {
            8 if copy == value => Answer::fine([0; 6]),
            -1 => Answer::failed(2),
            _ => Answer::wrong(2),
        }
    });
    match outcome.fine() {
        Some(_) => Finding::works(
            "process_vm_readv",
            "the memory of a child was read in one call",
        ),
        None => Finding::slower(
            "process_vm_readv",
            outcome.why(&["fork", "process_vm_readv"]),
            "memory of replicas is read through /proc/PID/mem",
        ),
    }
}
