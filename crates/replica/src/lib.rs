//! Replicas of an unmodified program: launch, supervise, vote, recover.
//!
//! [`run`] takes a checked plan and returns when the program has ended. The hot path is not
//! here: replicas meet in shared memory (crates/agent); this side starts them, answers the
//! leader's rare requests, forwards signals, watches for death and hangs, and directs repairs
//! while everybody is paused.
//!
//! Invariants
//!  1. Whatever ends a run, no process of the group outlives it.
//!  2. A verdict is the replicas' own count; this side only carries it out.
//!  3. Nothing is printed here.

mod abi;
mod domain;
mod flips;
pub mod front;
mod group;
mod held;
mod image;
mod job_control;
mod launch;
pub mod limits;
mod locks;
mod modules;
mod pace;
mod profile;
mod replay_vote;
mod segments;
pub mod site;
pub mod status;
mod supervise;
mod transplant;

use std::io;
use std::path::PathBuf;

pub use flips::{OwnPlaces, own_places, plantable, plantable_in_agent};
pub use profile::{Executed, Profile, profile};

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::event::EventSink;
use steadfast_contract::exit::Own;
use steadfast_contract::plan::{EqualPids, Plan, ProgramEnd, RunReport};
pub use steadfast_strike::Refusal;
use steadfast_sys::limit::Limited;
use steadfast_sys::ptrace::Denial;
use steadfast_sys::terminal::Terminal;

use crate::supervise::Supervisor;

/// What was being done when the operating system refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Memory,
    Fork,
    Thread,
    Trace,
    Inherit,
    Exec,
    Read,
    Inject,
    Patch,
    Replicate,
    Give,
    HandOn,
    Attach,
}

impl Step {
    fn text(self) -> &'static str {
        match self {
            Step::Memory => "the replicas need shared memory",
            Step::Fork => "a process for the program is needed",
            Step::Thread => "threads for children and signals are needed",
            Step::Trace => "the program has to be traced until it starts (ptrace)",
            Step::Inherit => "signals and descriptors have to be handed on to the program",
            Step::Exec => "the program has to reach its first instruction",
            Step::Read => "the program's memory map has to be readable",
            Step::Inject => "the agent has to be placed in the program",
            Step::Patch => "system calls of the program have to be patched",
            Step::Replicate => "the leader has to be copied",
            Step::Attach => "a child process has to attach the memory of its replicas (shmat(2))",
            Step::HandOn => {
                "descriptors that are handed on to the program have to be known (/proc/self/fd)"
            }
            Step::Give => {
                "a program that takes the place of another has to be given the group's memory (by this command's /proc/PID/fd, or pidfd_getfd(2))"
            }
        }
    }
}

/// Why a run did not start, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The kernel refused a step.
    #[error("{}, and the kernel refused", .step.text())]
    Step { step: Step, source: io::Error },
    /// The program was not let run: nobody could hold it at its first instruction.
    #[error("the program has to be traced until it starts (ptrace), found {}", untraced(.why))]
    Untraceable { why: Denial, source: io::Error },
    /// This command is itself a protected program, which cannot trace.
    #[error(
        "steadfast run has to be outside of other runs, found itself under steadfast run already"
    )]
    Nested,
    /// A call that cannot fail has failed, or one that has to fail has not.
    #[error("{call}(2) has to reach the kernel, found something that answers in its place")]
    Filtered {
        call: &'static str,
        source: io::Error,
    },
    /// Cores that are not there, or not for this process.
    #[error("--placement takes CPUs that this command may run on, {}, found {}", list(.allowed), list(.wanted))]
    Placement {
        wanted: Vec<usize>,
        allowed: Vec<usize>,
    },
    /// execve(2) failed.
    #[error("{} cannot be executed", .path.display())]
    Exec { path: PathBuf, source: io::Error },
    /// A child that somebody has killed: its parent hears of it as of a bare one, and the tree goes on.
    #[error("the process ended before it had started")]
    Gone,
    /// Another architecture.
    #[error("64-bit x86-64 programs are supported, found ELF class {class}, machine {machine}")]
    NotX86_64 { machine: u16, class: u8 },
    /// A program that runs with another user's rights.
    #[error(
        "programs with set-user-id or set-group-id need root to be protected, found mode {mode:o}"
    )]
    SetId { mode: u32 },
    /// A program that nobody but root may look at.
    #[error(
        "programs that may be executed and not read need root to be protected, found no right to read this one's file"
    )]
    Unreadable { source: io::Error },
    /// The kernel places mappings where the agent and the log are.
    #[error(
        "addresses from {:#x} to {:#x} have to be free, found {what} at {at:#x} (the legacy layout of memory, personality(2))",
        crate::abi::BASE,
        crate::abi::AGENT_END
    )]
    Layout { what: String, at: u64 },
    /// A limit below what a group needs.
    #[error("{}", limits::told(*.what, *.found))]
    Limit { what: Limited, found: u64 },
    /// No memory for what `--private` asks for.
    #[error("--private needs a copy of what the program has, and the kernel refused")]
    Private { source: io::Error },
    /// An argument holds a NUL byte.
    #[error("arguments hold no NUL bytes, found one")]
    NulInArguments,
    /// The agent could not set up a replica.
    #[error("replica {replica} needs a process of its own, step {step} failed")]
    Agent {
        replica: u32,
        step: u32,
        source: io::Error,
    },
    /// Calls that come past the agent would reach the kernel.
    #[error("the backstop needs {what}, and the kernel refused")]
    Backstop {
        what: &'static str,
        source: io::Error,
    },
    /// The agent stopped on an assertion.
    #[error(
        "the agent of replica {replica} failed its own check at line {line} (value {value:#x})"
    )]
    Bug { replica: u32, line: u32, value: i64 },
    /// A fault that was asked for cannot be injected.
    #[error(transparent)]
    Flip(#[from] Refusal),
    /// Nothing that is read there would be about the replicas.
    #[error("/proc has to show the processes of this pid namespace, found {found}")]
    Procfs { found: String },
    /// A child process is what cannot be protected.
    #[error("{name}, which a child process has become: {why}")]
    Child { name: String, why: Box<LaunchError> },
    /// A replica ended before the program started.
    #[error("replica {replica} ended before the program started ({how})")]
    Early { replica: usize, how: String },
}

impl LaunchError {
    /// The same, of a child that has become another program.
    pub(crate) fn of_child(self, name: String) -> Self {
        if !matches!(
            self,
            Self::SetId { .. } | Self::NotX86_64 { .. } | Self::Unreadable { .. }
        ) {
            return self;
        }
        Self::Child {
            name,
            why: Box::new(self),
        }
    }
}

fn untraced(why: &Denial) -> String {
    match why {
        Denial::Tracer { pid, name } => format!("{name} (process {pid}) tracing it already"),
        Denial::Filter => "a seccomp filter that refuses it".to_owned(),
        Denial::Yama(scope) => format!("kernel.yama.ptrace_scope={scope}"),
        Denial::Unknown => "that the kernel refuses it".to_owned(),
    }
}

/// What lets a program be traced again.
fn traceable(why: &Denial) -> Remedy {
    match why {
        Denial::Tracer { name, .. } => Remedy::with_note(
            format!(
                "steadfast run without {name} above it, or with {name} not following its children"
            ),
            "a process has one tracer: strace without -f, gdb with detach-on-fork on",
        ),
        Denial::Filter => Remedy::with_note(
            "docker run --cap-add SYS_PTRACE",
            "elsewhere a profile that allows ptrace(2): --security-opt seccomp=FILE, or SystemCallFilter=ptrace in a unit",
        ),
        Denial::Yama(2) => Remedy::with_note(
            "sysctl kernel.yama.ptrace_scope=1",
            "or run steadfast with the right CAP_SYS_PTRACE, as root has it",
        ),
        Denial::Yama(_) => Remedy::with_note(
            "kernel.yama.ptrace_scope = 1 in /etc/sysctl.d, and a reboot",
            "a scope of 3 cannot be lowered while the system runs",
        ),
        Denial::Unknown => Remedy::with_note(
            "steadfast check",
            "which security module refuses ptrace(2): dmesg, ausearch",
        ),
    }
}

/// CPUs as the flag takes them: `0-3,6`.
fn list(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *cpu => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(usize, usize)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

impl Advise for LaunchError {
    fn exit(&self) -> Own {
        match self {
            LaunchError::Exec { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Own::NotFound,
                _ => Own::NotExecutable,
            },
            LaunchError::Bug { .. } => Own::Bug,
            LaunchError::Child { why, .. } => why.exit(),
            _ => Own::Setup,
        }
    }

    fn fix(&self) -> Option<Remedy> {
        Some(match self {
            LaunchError::Procfs { .. } => Remedy::with_note(
                "mount -t proc proc /proc",
                "in the pid namespace that the program runs in; unshare --mount-proc does it at once",
            ),
            LaunchError::Nested => Remedy::with_note(
                "the inner command without steadfast run",
                "what a protected program starts is protected with it",
            ),
            LaunchError::Step { source, .. }
            | LaunchError::Agent { source, .. }
            | LaunchError::Untraceable { source, .. }
                if limits::behind(source).is_some() =>
            {
                Remedy::new(limits::behind(source).unwrap_or_default())
            }
            LaunchError::Untraceable { why, .. } => traceable(why),
            LaunchError::Filtered { call, .. } => Remedy::with_note(
                format!("a seccomp profile that allows {call}(2)"),
                "docker run --security-opt seccomp=FILE, or SystemCallFilter in a unit",
            ),
            LaunchError::Placement { allowed, .. } => Remedy::with_note(
                format!("--placement={}", list(allowed)),
                "taskset(1) and cpusets say which CPUs a command may run on",
            ),
            LaunchError::Step {
                step: Step::Memory,
                source,
            } if source.raw_os_error() == Some(libc::EFBIG) => Remedy::with_note(
                "ulimit -f unlimited",
                "the program may have its limit: run -- sh -c 'ulimit -f 8; exec …'",
            ),
            LaunchError::Step {
                step: Step::Inject | Step::Patch,
                source,
            } if source.kind() == io::ErrorKind::PermissionDenied => Remedy::with_note(
                "MemoryDenyWriteExecute=no in the unit",
                "code that was written has to become executable: PR_SET_MDWE, or a seccomp filter like it, forbids that",
            ),
            LaunchError::Step {
                step: Step::Attach,
                source,
            } if source.kind() == io::ErrorKind::PermissionDenied => Remedy::with_note(
                "a seccomp profile that allows shmat(2)",
                "docker run --security-opt seccomp=FILE, or SystemCallFilter in a unit",
            ),
            LaunchError::Limit { what, .. } => Remedy::with_note(what.fix(), limits::note(*what)),
            LaunchError::Private { .. } => {
                Remedy::new("more memory, or copies of less of it (--private=text)")
            }
            LaunchError::Agent { .. } => Remedy::with_note(
                "sysctl user.max_user_namespaces=64 user.max_pid_namespaces=64",
                "to keep it: a file in /etc/sysctl.d, see sysctl.d(5)",
            ),
            LaunchError::Backstop { what, .. } if what.contains("seccomp") => {
                Remedy::new("--backstop=token")
            }
            LaunchError::Backstop { .. } => Remedy::new("--backstop=seccomp"),
            LaunchError::Flip(error) => Remedy::new(error.fix.clone()),
            LaunchError::NotX86_64 { .. } => Remedy::new("install the amd64 build of the program"),
            LaunchError::Layout { .. } => Remedy::with_note(
                "sysctl vm.legacy_va_layout=0",
                "and run without setarch --addr-compat-layout",
            ),
            LaunchError::Child { name, .. } => Remedy::with_note(
                format!("--unprotected={name}"),
                "it then runs bare: what it does is not compared",
            ),
            LaunchError::SetId { .. } => Remedy::new("run steadfast as root"),
            LaunchError::Unreadable { .. } => Remedy::with_note(
                "chmod +r FILE",
                "or run steadfast as root: the kernel lets nobody else look at such a process",
            ),
            LaunchError::Bug { .. } => {
                Remedy::new("report this with the program and its arguments")
            }
            _ => Remedy::new("steadfast check"),
        })
    }

    fn alternatives(&self) -> Vec<Remedy> {
        match self {
            LaunchError::Child { why, .. } => why.fix().into_iter().collect(),
            LaunchError::Agent { .. } => vec![Remedy::with_note(
                "--equal-pids=off",
                "replicas then live in the caller's namespaces",
            )],
            _ => Vec::new(),
        }
    }
}

/// Divides this process into one that the caller waits for and one that calls [`run`] (front.rs). To be called while there
/// is one thread.
///
/// # Errors
/// When the kernel refuses the second process.
pub fn divide() -> Result<front::Side, LaunchError> {
    limits::room()?;
    launch::calls_reach_the_kernel()?;
    front::divide().map_err(|source| LaunchError::Step {
        step: Step::Fork,
        source,
    })
}

/// Runs the planned program to its end. With a front, the caller goes on when the program's first process has ended.
///
/// # Errors
/// When the program could not be started under protection, or Steadfast itself failed.
pub fn run(
    plan: &Plan,
    front: Option<front::Front>,
    sink: &mut dyn EventSink,
) -> Result<RunReport, LaunchError> {
    let own = steadfast_sys::procfs::own_number();
    if own != i32::try_from(std::process::id()).ok() {
        let found = own.map_or_else(
            || "none of them: another pid namespace's, or no procfs at all".to_owned(),
            |number| {
                format!(
                    "another one's: it calls process {} number {number}",
                    std::process::id()
                )
            },
        );
        return Err(LaunchError::Procfs { found });
    }
    // The group that the caller has put the command into; this process leads one of its own where it has a front.
    let ours = front.as_ref().map_or(0, front::Front::pid);
    let ours = steadfast_sys::child::group_of(ours).unwrap_or(0);
    let hearing = supervise::Hearing::start(plan, front);
    // The agent answers for process numbers: namespaces are for who asks for them.
    let equal_pids = plan.equal_pids == EqualPids::On;
    let terminal = Terminal::as_found();
    let result =
        Supervisor::start(plan, &hearing, equal_pids, 0, sink).and_then(Supervisor::until_end);
    let by_itself = result
        .as_ref()
        .is_ok_and(|report| !matches!(report.end, ProgramEnd::Stopped(_)));
    if let Some(terminal) = terminal
        && !by_itself
    {
        // A terminal that has hung up has nobody to be put back for.
        let _ = terminal.put_back(ours);
    }
    result
}
