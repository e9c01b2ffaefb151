//! What a run was asked to do, once checked, and what became of it.
//!
//! The command line makes a [`Plan`]; the replica engine takes one and gives a [`RunReport`]
//! back, telling an [`EventSink`] on the way. The types stand here, below both, so that neither
//! side depends on the other.
//!
//! Invariants
//!  1. [`Plan::check`] passes before anything starts.
//!  2. Defaults protect: whoever gives something up has said so.
//!
//! Not covered: whether this machine can carry a plan out; that is the engine's to find out.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::advice::{Advise, Remedy};
use crate::exit::{Exit, Own, Verdict};
use steadfast_fault::cpus::CpuSet;
use steadfast_fault::ids::{CoreId, ReplicaId};
use steadfast_fault::{Fault, Replicas};

/// A checked request to protect one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The program as typed: its `argv[0]`.
    pub program: OsString,
    /// The file that was found for it.
    pub path: PathBuf,
    /// Its arguments, without `argv[0]`.
    pub args: Vec<OsString>,
    /// What the caller handed down beside them.
    pub ambient: Ambient,
    /// How many copies run: 1 to [`Plan::REPLICAS_MAX`].
    pub replicas: u8,
    /// What a disagreement leads to.
    pub on_mismatch: OnMismatch,
    /// Whether memory is compared between events.
    pub check_memory: CheckMemory,
    /// Which memory every replica has a physical copy of.
    pub private: Private,
    /// Which CPUs the replicas use.
    pub placement: Placement,
    /// Whether two replicas may share one physical core.
    pub smt_siblings: SmtSiblings,
    /// Whether large regions ask for huge pages.
    pub huge_pages: HugePages,
    /// What stands behind the patched sites.
    pub backstop: Backstop,
    /// Whether followers see the leader's process numbers.
    pub equal_pids: EqualPids,
    /// Programs that run bare where a child of the program becomes one: names, or paths with a slash.
    pub unprotected: Vec<PathBuf>,
    /// Faults to inject.
    pub flips: Vec<Fault>,
    /// Whether only to say what was patched, and to end where the program would begin.
    pub explain: bool,
    /// Share of CPU time that memory epochs may take.
    pub epoch_budget: EpochBudget,
}

impl Plan {
    /// One byte of the log's entry holds the votes of all replicas, a bit each.
    pub const REPLICAS_MAX: u8 = 8;

    /// Two detect every disagreement, and a replay vote (a snapshot run again against the log) repairs it.
    pub const REPLICAS_DEFAULT: u8 = 2;

    /// A plan with every default.
    #[must_use]
    pub fn new(program: OsString, path: PathBuf, args: Vec<OsString>) -> Self {
        Self {
            program,
            path,
            args,
            ambient: Ambient::default(),
            replicas: Self::REPLICAS_DEFAULT,
            on_mismatch: OnMismatch::default(),
            check_memory: CheckMemory::default(),
            private: Private::default(),
            placement: Placement::default(),
            smt_siblings: SmtSiblings::default(),
            huge_pages: HugePages::default(),
            backstop: Backstop::default(),
            equal_pids: EqualPids::default(),
            unprotected: Vec::new(),
            flips: Vec::new(),
            explain: false,
            epoch_budget: EpochBudget::default(),
        }
    }

    /// Whether the parts of the plan go together.
    ///
    /// # Errors
    /// The first thing that does not.
    pub fn check(&self) -> Result<(), PlanError> {
        if !(1..=Self::REPLICAS_MAX).contains(&self.replicas) {
            return Err(PlanError::Replicas {
                found: self.replicas,
            });
        }
        for fault in &self.flips {
            match &fault.victim().replicas {
                // Storage has no replica: who cannot carry that out refuses the line for what it is.
                None if self.replicas > 1 && !fault.is_storage() => {
                    return Err(PlanError::FlipWithoutVictim {
                        fault: Box::new(fault.clone()),
                        replicas: self.replicas,
                    });
                }
                Some(Replicas::Follower) if self.replicas == 1 => {
                    return Err(PlanError::FlipOutOfRange {
                        fault: Box::new(fault.clone()),
                        replicas: self.replicas,
                    });
                }
                Some(chosen)
                    if chosen
                        .highest()
                        .is_some_and(|highest| highest.0 >= self.replicas) =>
                {
                    return Err(PlanError::FlipOutOfRange {
                        fault: Box::new(fault.clone()),
                        replicas: self.replicas,
                    });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Why the parts of a plan do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The number of replicas is out of range.
    #[error("the number of replicas is {found}, 1 to {max} are possible", max = Plan::REPLICAS_MAX)]
    Replicas {
        /// What was asked for.
        found: u8,
    },
    /// A fault does not say whom it strikes.
    #[error("a fault under {replicas} replicas says which of them it strikes, found \"{fault}\"")]
    FlipWithoutVictim {
        /// The fault.
        fault: Box<Fault>,
        /// How many replicas run.
        replicas: u8,
    },
    /// A fault strikes a replica that does not exist.
    #[error("a fault under {replicas} replicas strikes one of them, found \"{fault}\"")]
    FlipOutOfRange {
        /// The fault.
        fault: Box<Fault>,
        /// How many replicas run.
        replicas: u8,
    },
}

impl Advise for PlanError {
    fn exit(&self) -> Own {
        Own::Usage
    }

    fn fix(&self) -> Option<Remedy> {
        Some(match self {
            Self::Replicas { .. } => Remedy::new(format!("--replicas {}", Plan::REPLICAS_DEFAULT)),
            Self::FlipWithoutVictim { fault, .. } => {
                Remedy::new(format!("--flip \"replica=leader {fault}\""))
            }
            Self::FlipOutOfRange { replicas, .. } => match replicas {
                1 => Remedy::new("replica=leader"),
                n => Remedy::new(format!(
                    "replica=leader, follower, all, or a number from 0 to {}",
                    n - 1
                )),
            },
        })
    }
}

/// What the caller of the command handed down, and a language runtime changes before `main`: it
/// opens closed standard streams and ignores SIGPIPE. The program gets it back as it was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ambient {
    /// Whether standard input, output and error were closed.
    pub closed: [bool; 3],
    /// Whether SIGPIPE was ignored.
    pub sigpipe_ignored: bool,
    /// Whether SIGCHLD was ignored, which the command itself has undone.
    pub sigchld_ignored: bool,
    /// Whether descriptors that this process has inherited are the program's alone once it has them.
    pub handed_on: bool,
}

steadfast_fault::words! {
    /// What a disagreement leads to.
    #[derive(Default)]
    OnMismatch {
        /// the loser is repaired and the program goes on
        #[default]
        Recover = "recover",
        /// the program is stopped before a wrong byte leaves
        Stop = "stop",
    }
}

steadfast_fault::words! {
    /// Whether memory is compared between events.
    #[derive(Default)]
    CheckMemory {
        /// only what reaches an event is compared
        #[default]
        Off = "off",
        /// pages written since the last epoch are hashed
        Dirty = "dirty",
        /// all memory is hashed
        Full = "full",
    }
}

steadfast_fault::words! {
    /// Whether two replicas may share one physical core.
    #[derive(Default)]
    SmtSiblings {
        /// one physical core per replica as far as there are enough
        #[default]
        Avoid = "avoid",
        /// sibling threads of one core are as good as two cores
        Allow = "allow",
    }
}

steadfast_fault::words! {
    /// Whether large regions ask for huge pages.
    #[derive(Default)]
    HugePages {
        /// ask for them where the kernel leaves the choice to the program
        #[default]
        Auto = "auto",
        /// leave memory as the program asked for it
        Off = "off",
    }
}

steadfast_fault::words! {
    /// What keeps a call that does not come through the gate from reaching the kernel.
    #[derive(Default)]
    Backstop {
        /// a one-time token opens the gate, and only while it is open the kernel takes calls
        #[default]
        Token = "token",
        /// an instruction-pointer filter in the kernel
        Seccomp = "seccomp",
        /// token and filter, should the word that opens the gate be hit itself
        Both = "both",
        /// nothing: a wild jump may reach the kernel unseen
        None = "none",
    }
}

steadfast_fault::words! {
    /// Whether followers see the leader's process numbers.
    #[derive(Default)]
    EqualPids {
        /// equal where the machine allows it, else answered by the agent
        #[default]
        Auto = "auto",
        /// equal, or the run does not start
        On = "on",
        /// unequal: programs that print or hash their pid diverge
        Off = "off",
    }
}

/// Which memory every replica has a physical copy of. Without one, all replicas read the same
/// frame of the page cache, and a flip in it is common to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Private {
    /// Executable code.
    pub text: bool,
    /// Read-only data.
    pub rodata: bool,
    /// Everything else that is still shared between replicas: copy-on-write and file pages.
    pub rest: bool,
}

impl Private {
    /// Every kind of memory.
    pub const ALL: Self = Self {
        text: true,
        rodata: true,
        rest: true,
    };
}

/// Which CPUs the replicas use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// By measured cost on this machine.
    #[default]
    Auto,
    /// As far apart as possible: own caches.
    Spread,
    /// As close as possible: shared last-level cache.
    Pack,
    /// Replica i on the i-th of these, starting over when there are too few.
    Cpus(CpuSet),
}

/// Share of CPU time that memory epochs may take, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EpochBudget(u16);

impl EpochBudget {
    /// A budget in thousandths, 1 to 1000.
    #[must_use]
    pub const fn from_permille(permille: u16) -> Option<Self> {
        if 1 <= permille && permille <= 1000 {
            Some(Self(permille))
        } else {
            None
        }
    }

    /// The budget in thousandths.
    #[must_use]
    pub const fn permille(self) -> u16 {
        self.0
    }
}

impl Default for EpochBudget {
    /// 1 %: the whole overhead that two replicas are allowed over the floor.
    fn default() -> Self {
        Self(10)
    }
}

/// What became of a run: the last line of `--events`, and the whole of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunReport {
    /// The judgement.
    pub verdict: Verdict,
    /// How the program ended.
    pub end: ProgramEnd,
    /// Events that the replicas agreed on; at the end of a run those of all its processes.
    pub events: u64,
    /// Disagreements.
    pub divergences: u64,
    /// Repairs that let the program go on.
    pub recoveries: u64,
    /// How often another replica became leader.
    pub promotions: u64,
    /// Asynchronous signals delivered to the program.
    pub signals: u64,
    /// What became of each injected fault, in the order of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultReport>,
    /// Cores that lost more than once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<CoreId>,
    /// What was intercepted, and how.
    pub coverage: Coverage,
    /// Where the time went.
    pub timings: Timings,
}

impl RunReport {
    /// How the command ends after this run.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match &self.end {
            // Only the low byte of a status reaches the parent (exit(3)).
            ProgramEnd::Exited(status) => Exit::Status(status.to_le_bytes()[0]),
            ProgramEnd::Signaled(signal) => Exit::Signal(*signal),
            ProgramEnd::Stopped(StopReason::Refused) => Exit::Own(Own::Setup),
            ProgramEnd::Stopped(
                StopReason::Mismatch | StopReason::Unrecoverable | StopReason::Shared,
            ) => Exit::Own(Own::Mismatch),
        }
    }
}

/// How the program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ProgramEnd {
    /// By itself, with this status; all replicas agreed on it.
    Exited(i32),
    /// Of this signal; all replicas agreed on it, or it came from outside.
    Signaled(i32),
    /// Steadfast stopped it.
    Stopped(StopReason),
}

/// Why Steadfast stopped a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Replicas disagreed, and stopping was what the user had asked for.
    Mismatch,
    /// Replicas disagreed, and no repair was possible: no majority, no snapshot, or the repair
    /// itself failed.
    Unrecoverable,
    /// Replicas disagreed, or one of them died, in a process that shares memory with others, where
    /// what they share is not of one moment: those cannot be repaired.
    Shared,
    /// The program asked for something that is not supported.
    Refused,
}

/// What became of one injected fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultReport {
    /// The line that makes it again.
    pub fault: Fault,
    /// How often it hit. Zero proves nothing about the program.
    pub hits: u64,
}

/// What was intercepted, and how: stands beside every overhead.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Coverage {
    /// Sites that jump to the agent.
    pub patched: u64,
    /// Sites that trap into the agent.
    pub slow_path: u64,
    /// Calls answered with an error instead of being executed.
    pub denied: u64,
    /// Executable bytes that were not decoded, so a site may hide in them.
    pub unpatched_bytes: u64,
    /// The same per module.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleCoverage>,
    /// Each site on the slow path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow_sites: Vec<SlowSite>,
    /// What may differ between replicas without a fault and is not intercepted; looked for when replicas have disagreed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_sites: Vec<OpenSite>,
    /// Each kind of call that was denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_calls: Vec<DeniedCall>,
}

/// Coverage of one mapped object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ModuleCoverage {
    /// File name without directory.
    pub module: String,
    /// GNU build id in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Patched sites by instruction: `syscall`, `rdtsc`, `cpuid`, ...
    pub patched: std::collections::BTreeMap<String, u64>,
    /// Sites on the slow path.
    pub slow_path: u64,
    /// Executable bytes in all.
    pub executable_bytes: u64,
    /// Executable bytes that were not decoded.
    pub unpatched_bytes: u64,
    /// Functions of other modules that it may call to start threads or processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<String>,
}

/// A site on the slow path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlowSite {
    /// Where it is.
    pub site: steadfast_fault::ids::Site,
    /// The instruction there.
    pub instruction: String,
    /// Why it could not be patched.
    pub reason: String,
}

/// An instruction, or a pointer, whose answer may differ between replicas without a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenSite {
    /// Where it is.
    pub site: steadfast_fault::ids::Site,
    /// The instruction there.
    pub instruction: String,
}

/// A kind of call that was answered with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeniedCall {
    /// Its name, with the command for multiplexed ones, as `prctl(PR_SET_SECCOMP)`.
    pub call: String,
    /// The answer, as `ENOSYS`.
    pub errno: String,
    /// How often it was asked for.
    pub count: u64,
}

/// Where the time went, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Timings {
    /// From start to end.
    pub wall_ns: u64,
    /// Until the program's first instruction.
    pub setup_ns: u64,
    /// CPU time of each replica and those it replaced.
    pub cpu_ns: Vec<ReplicaTime>,
    /// Longest time for which a repair held the program up; nothing if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair_pause_ns_max: Option<u64>,
}

/// CPU time of one replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplicaTime {
    /// Whose.
    pub replica: ReplicaId,
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel.
    pub system_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(replicas: u8, flips: &[&str]) -> Plan {
        let flips = flips
            .iter()
            .map(|line| line.parse().expect("a fault"))
            .collect();
        Plan {
            replicas,
            flips,
            ..Plan::new("true".into(), "/bin/true".into(), Vec::new())
        }
    }

    #[test]
    fn a_flip_names_one_of_the_replicas_that_run() {
        let flip = "event=1 reg=rax bit=0";
        assert_eq!(plan(1, &[flip]).check(), Ok(()));
        assert!(matches!(
            plan(2, &[flip]).check(),
            Err(PlanError::FlipWithoutVictim { .. })
        ));
        assert_eq!(
            plan(2, &["replica=1 event=1 reg=rax bit=0"]).check(),
            Ok(())
        );
        assert!(matches!(
            plan(2, &["replica=0,2 event=1 ip bit=0"]).check(),
            Err(PlanError::FlipOutOfRange { .. })
        ));
        assert!(matches!(
            plan(1, &["replica=follower event=1 ip bit=0"]).check(),
            Err(PlanError::FlipOutOfRange { .. })
        ));
        assert_eq!(plan(1, &["replica=all event=1 ip bit=0"]).check(), Ok(()));
    }

    #[test]
    fn zero_and_nine_replicas_are_refused() {
        for (replicas, right) in [(0, false), (1, true), (8, true), (9, false)] {
            assert_eq!(plan(replicas, &[]).check().is_ok(), right, "{replicas}");
        }
    }

    #[test]
    fn the_fix_for_a_flip_without_victim_is_a_flip_with_one() {
        let error = plan(2, &["event=1 reg=rax bit=0"])
            .check()
            .expect_err("no victim");
        assert_eq!(
            error.fix().map(|fix| fix.what).as_deref(),
            Some("--flip \"replica=leader event=1 reg=rax bit=0\"")
        );
    }

    #[test]
    fn every_end_has_its_exit() {
        let exit = |end| {
            let report = RunReport {
                verdict: Verdict::Agreed,
                end,
                events: 0,
                divergences: 0,
                recoveries: 0,
                promotions: 0,
                signals: 0,
                faults: Vec::new(),
                suspects: Vec::new(),
                coverage: Coverage::default(),
                timings: Timings::default(),
            };
            report.exit()
        };
        assert_eq!(exit(ProgramEnd::Exited(0)), Exit::Status(0));
        assert_eq!(exit(ProgramEnd::Exited(122)), Exit::Status(122));
        assert_eq!(exit(ProgramEnd::Exited(-1)), Exit::Status(255));
        assert_eq!(exit(ProgramEnd::Signaled(11)), Exit::Signal(11));
        assert_eq!(
            exit(ProgramEnd::Stopped(StopReason::Mismatch)),
            Exit::Own(Own::Mismatch)
        );
        assert_eq!(
            exit(ProgramEnd::Stopped(StopReason::Unrecoverable)),
            Exit::Own(Own::Mismatch)
        );
        assert_eq!(
            exit(ProgramEnd::Stopped(StopReason::Refused)),
            Exit::Own(Own::Setup)
        );
    }
}
