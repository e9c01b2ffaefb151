//! The event schema: one JSON object per line, the same for every part.
//!
//! A line says what was seen, where, how it was judged, what was done and how long it took.
//! docs/events.schema.json is generated from these types and a test holds the two together.
//!
//! ```json
//! {"v":1,"seq":3,"t_ns":812345678,"type":"recovery","divergence":1,"action":{"reforked":{"from":0}},...}
//! ```
//!
//! Invariants
//!  1. `v` is raised when a field is removed or changes its meaning. New fields and new types
//!     may appear at any time; a reader ignores what it does not know.
//!  2. `seq` counts from 0 without gaps: a missing line is noticed. `run_start` is first, and
//!     `run_end` is last unless the launcher died.
//!  3. Addresses, digests and register values are strings, since 64 bits do not fit the numbers
//!     of every JSON reader. Names that are not UTF-8 are shown with replacement characters.
//!
//! Not covered: a clock. Whoever emits an event says when it happened.

use std::io;

use serde::{Deserialize, Serialize};

use crate::plan::{Coverage, RunReport};
use steadfast_fault::Fault;
use steadfast_fault::ids::{CoreId, EventIndex, GuestAddr, ReplicaId, Site};

/// The version of the schema.
pub const SCHEMA_VERSION: u32 = 1;

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Event {
    /// Nanoseconds since the run started, on a clock that does not jump.
    pub t_ns: u64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// One line of an event file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(
    test,
    derive(schemars::JsonSchema),
    schemars(title = "Steadfast event, one per line")
)]
pub struct Line {
    /// Version of the schema.
    pub v: u32,
    /// Position in the file, from 0.
    pub seq: u64,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// The replicas are ready to run.
    RunStart(RunStart),
    /// What is intercepted, and how; again whenever code is mapped later.
    Coverage(Coverage),
    /// The program has become another one: execve(2).
    Exec(Exec),
    /// A process of the program has become one that runs unprotected, as `--unprotected` asks.
    Unprotected(Unprotected),
    /// Something happened in a process that the program has started.
    Process(Box<OfProcess>),
    /// An injected fault hit.
    Fault(FaultHit),
    /// Replicas disagreed.
    Divergence(Divergence),
    /// Something was done about a divergence.
    Recovery(Recovery),
    /// A signal from outside was delivered to the program.
    Signal(Signal),
    /// The program asked for something that is not supported.
    Refused(Refused),
    /// A core has lost more than once.
    CoreSuspect(CoreSuspect),
    /// The run is over.
    RunEnd(Box<RunReport>),
    /// The two runs of a hardened handler differ (`steadfast cc`).
    HardenMismatch(HardenMismatch),
    /// Retries of that handler agree with each other; it has taken effect.
    HardenRecovered(HardenRecovered),
    /// Protected state has changed at rest; seen outside handlers (`--state`).
    HardenState(HardenState),
}

/// What happened in a process of the program that is not its first: each is a group of replicas of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OfProcess {
    /// The process's number, which is its leader's.
    pub pid: u32,
    /// What.
    pub what: What,
}

/// The beginning of a run: enough to tell what ran where, and to run it again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunStart {
    /// Version of Steadfast.
    pub steadfast: String,
    /// The program's file.
    pub program: String,
    /// `argv`, with `argv[0]`.
    pub args: Vec<String>,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Kernel release, as uname(2) gives it.
    pub kernel: String,
    /// The replicas.
    pub replicas: Vec<ReplicaStart>,
    /// Faults that are armed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// Another program in the place of the one that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Exec {
    /// The event at which it happened; events go on being counted from there.
    pub event: EventIndex,
    /// The new program's file.
    pub program: String,
    /// Its `argv`, with `argv[0]`.
    pub args: Vec<String>,
    /// The replicas; the leader's process is the one that it was.
    pub replicas: Vec<ReplicaStart>,
}

/// A program that nobody compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Unprotected {
    /// What the process has executed.
    pub program: String,
    /// The process's number.
    pub pid: u32,
}

/// One replica at the beginning of a run, or of another program in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ReplicaStart {
    /// Which.
    pub replica: ReplicaId,
    /// Whether it executes for the group.
    pub role: Role,
    /// Its process, as seen by the caller.
    pub pid: u32,
    /// Where it is placed; nothing if the kernel chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreId>,
}

steadfast_fault::words! {
    /// What a replica is to the group.
    Role {
        /// executes what has an effect outside
        Leader = "leader",
        /// copies the results
        Follower = "follower",
    }
}

/// A fault hit its target: the proof without which its outcome means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FaultHit {
    /// The line that makes it again.
    pub fault: Box<Fault>,
    /// Whom it hit.
    pub replica: ReplicaId,
    /// On which core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreId>,
    /// Where it was executing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Site>,
    /// The execution, or the event, at which it hit.
    pub n: u64,
    /// The value before, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// The value after, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// Replicas disagreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Divergence {
    /// Number of the divergence in this run, from 1.
    pub id: u64,
    /// The event at which it was seen; nothing between events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventIndex>,
    /// The call or instruction of that event, as `write` or `rdtsc`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// In what they differ.
    pub difference: Difference,
    /// What each replica brought to the vote.
    pub votes: Vec<Vote>,
    /// How it was judged.
    pub judgement: Judgement,
    /// From the injected fault to this divergence; nothing if none was injected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
}

/// In what replicas differ: the first difference that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// They came to different calls or instructions.
    Call,
    /// An argument of a call.
    Argument {
        /// Which, from 0.
        index: u8,
    },
    /// Bytes that an argument points to.
    Buffer {
        /// Which argument, from 0.
        argument: u8,
        /// First byte that differs; nothing if only digests were compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        offset: Option<u64>,
    },
    /// A register that a call preserves.
    Register {
        /// Its name.
        name: String,
    },
    /// The bytes at the top of the stack.
    Stack,
    /// The result of a call that every replica executes.
    Result,
    /// One faulted where the others did not, or elsewhere.
    Fault {
        /// The signal.
        signal: i32,
        /// The address that it carries.
        address: GuestAddr,
    },
    /// One died.
    Death {
        /// Of this signal, if of one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
    },
    /// One ended where the others did not, or with another status.
    Exit,
    /// One burned more CPU time than the others explain.
    Hang {
        /// What it burned since the last event.
        cpu_ns: u64,
        /// What it was allowed.
        limit_ns: u64,
    },
    /// One came to an event that the others did not come to in twice its CPU time, at least a second more than it.
    Early,
    /// Memory that has not reached an event yet.
    Memory {
        /// First page that differs.
        page: GuestAddr,
        /// How many differ.
        pages: u64,
    },
    /// An entry of the log is damaged.
    Log {
        /// What does not fit.
        check: LogCheck,
    },
    /// A call reached the gate without having come through the agreed entry.
    Gate,
}

steadfast_fault::words! {
    /// What protects an entry of the log.
    LogCheck {
        /// the checksum over the entry
        Checksum = "checksum",
        /// the sequence number and its inverse
        Sequence = "sequence",
    }
}

/// What one replica brought to a vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Vote {
    /// Which.
    pub replica: ReplicaId,
    /// What it was to the group at the time.
    pub role: Role,
    /// Where it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreId>,
    /// Replicas with the same number agree with each other.
    pub camp: u8,
    /// Where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Site>,
    /// The value that differs, in hexadecimal; nothing from one that never arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// How a divergence was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// This replica is wrong.
    Blamed(ReplicaId),
    /// No camp is in the majority; a re-run against the log will tell.
    Undecided,
    /// No camp is in the majority, and nothing can tell.
    Unresolvable,
}

/// Something was done about a divergence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Recovery {
    /// Number of the divergence.
    pub divergence: u64,
    /// What was done.
    pub action: RecoveryAction,
    /// Because of what.
    pub cause: Cause,
    /// Who was wrong; nothing if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<ReplicaId>,
    /// On which core it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<CoreId>,
    /// How long the program stood still for it.
    pub pause_ns: u64,
}

/// What recovery did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RecoveryAction {
    /// The loser was killed and made again from a winner.
    Reforked {
        /// The winner.
        from: ReplicaId,
    },
    /// All went back to a snapshot and ran again against the retained log.
    RolledBack {
        /// The event after which the snapshot was taken.
        to: EventIndex,
        /// Events that were run again.
        reran: u64,
    },
    /// A follower took over from the leader.
    Promoted {
        /// The new leader.
        to: ReplicaId,
    },
    /// A replica was placed elsewhere, away from a core under suspicion.
    Moved {
        /// The new core.
        to: CoreId,
    },
    /// An entry of the log was written again from the replicas that hold it.
    LogRepaired {
        /// Which.
        event: EventIndex,
    },
    /// The run was stopped.
    Stopped,
}

/// Why recovery was needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The replica brought something else to the vote.
    Outvoted,
    /// It faulted.
    Crashed(i32),
    /// It was killed from outside by this signal.
    Killed(i32),
    /// The kernel killed it for want of memory.
    OutOfMemory,
    /// It did not arrive.
    Hung,
    /// It ended early.
    Exited(i32),
    /// Its memory differs from the others'.
    MemoryDiffers,
    /// Its log is damaged.
    LogDamaged,
    /// It reached the gate without having come through the agreed entry.
    GateBypassed,
    /// Its core is under suspicion.
    SuspectCore,
}

/// A signal from outside was delivered to the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Signal {
    /// Its number.
    pub signal: i32,
    /// The event before which all replicas saw it; nothing if it acted by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventIndex>,
    /// The sender's process, if the kernel names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_pid: Option<u32>,
    /// From when it came to its delivery.
    pub latency_ns: u64,
}

/// The program asked for something that is not supported, and was stopped before it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Refused {
    /// What it asked for, as `clone(CLONE_THREAD)`.
    pub what: String,
    /// Why that is not supported.
    pub reason: String,
    /// The event that would have come next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventIndex>,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Site>,
    /// What the user can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// A core has lost more than once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CoreSuspect {
    /// Which.
    pub core: CoreId,
    /// Divergences blamed on replicas that ran there.
    pub strikes: u64,
    /// Divergences of the run so far.
    pub divergences: u64,
    /// What was done about it.
    pub action: SuspectAction,
}

steadfast_fault::words! {
    /// What was done about a core under suspicion.
    SuspectAction {
        /// no replica runs there any more
        Avoided = "avoided",
        /// there is no other core: reported only
        Reported = "reported",
    }
}

/// The two runs of a hardened handler differ. Written by the program itself, to the file that
/// `STEADFAST_EVENTS` names (cc/runtime/fail.c): its `seq` counts what this process wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HardenMismatch {
    /// The handler, by its symbol.
    pub handler: String,
    /// Where it is defined, as `file:line`.
    pub r#where: String,
    /// Number of the handler among those of its thread, from 1.
    pub event: u64,
    /// The run in which it was seen: 1 or 2; 0 outside.
    pub run: u8,
    /// In what they differ.
    pub what: String,
    /// The function or handler that is concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The address that is concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The object that the address lies in, if it is protected at rest: a variable, or `memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// What the first run had, in hexadecimal.
    pub first: String,
    /// What the second run had.
    pub second: String,
    /// The processor's time-stamp counter when it was seen, in hexadecimal: the clock of injected
    /// faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc: Option<String>,
    /// With `--validate=async` and without `--hold-output`: handlers that had run by then, from this
    /// one on. What they have sent may have left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub later: Option<u64>,
    /// What was done.
    pub action: HardenAction,
}

steadfast_fault::words! {
    /// What was done about a handler whose runs differ.
    HardenAction {
        /// it was rolled back and runs again
        Retry = "retry",
        /// the program was stopped, with nothing of this handler outside
        Stopped = "stopped",
    }
}

/// Retries of a hardened handler agree with each other; it has taken effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HardenRecovered {
    /// The handler, by its symbol.
    pub handler: String,
    /// Number of the handler among those of its thread, from 1.
    pub event: u64,
    /// How often it had to begin again.
    pub retries: u64,
}

/// Protected state has changed at rest, and the scrubber or code outside handlers has met it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HardenState {
    /// The handler: empty, it was seen outside.
    pub handler: String,
    /// What was found.
    pub what: String,
    /// The variable, or `memory`.
    pub object: String,
    /// The address of the object, in hexadecimal.
    pub at: String,
    /// Where in the variable.
    pub offset: String,
    /// The object's byte, or the checksum that was kept.
    pub first: String,
    /// The copy's byte, or the checksum of what is there.
    pub second: String,
    /// The processor's time-stamp counter when it was seen, in hexadecimal.
    pub tsc: String,
    /// What was done.
    pub action: StateAction,
}

steadfast_fault::words! {
    /// What was done about state that has changed at rest.
    StateAction {
        /// one of object and copy was made like the other, which has its checksum
        Repaired = "repaired",
        /// nothing tells what is right: the program was stopped
        Stopped = "stopped",
    }
}

/// The report of a run as one line of JSON: the last line of an event file, without its place
/// there.
#[must_use]
pub fn report_line(report: &RunReport) -> String {
    #[derive(Serialize)]
    struct Final<'a> {
        v: u32,
        r#type: &'static str,
        #[serde(flatten)]
        report: &'a RunReport,
    }
    let line = Final {
        v: SCHEMA_VERSION,
        r#type: "run_end",
        report,
    };
    // A report is made of strings, numbers and lists: it always has a JSON form.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Takes events as they happen. Called from the supervising thread only.
pub trait EventSink {
    /// Takes one event. A sink that cannot keep it remembers that and says so at the end: the
    /// guest must not suffer for it.
    fn emit(&mut self, event: Event);

    /// The program's first process has ended and others go on: the caller's command ends now, and this is what it knows.
    fn first_ended(&mut self, _report: &RunReport) {}
}

/// Collects events: for tests.
impl EventSink for Vec<Event> {
    fn emit(&mut self, event: Event) {
        self.push(event);
    }
}

/// Drops events.
impl EventSink for () {
    fn emit(&mut self, _: Event) {}
}

/// Writes events as JSON lines to whatever was handed in.
#[derive(Debug)]
pub struct JsonLines<W> {
    out: W,
    seq: u64,
    failed: Option<io::Error>,
}

impl<W: io::Write> JsonLines<W> {
    /// Starts at `seq` 0.
    pub const fn new(out: W) -> Self {
        Self {
            out,
            seq: 0,
            failed: None,
        }
    }

    /// The writer, or the first error that writing met.
    ///
    /// # Errors
    /// Whatever the writer said first; nothing was written after that.
    pub fn finish(mut self) -> io::Result<W> {
        match self.failed.take() {
            Some(error) => Err(error),
            None => self.out.flush().map(|()| self.out),
        }
    }

    fn write(&mut self, event: Event) -> io::Result<()> {
        let line = Line {
            v: SCHEMA_VERSION,
            seq: self.seq,
            event,
        };
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        // One write per line: a reader that follows the file never sees half of one from us.
        self.out.write_all(&bytes)?;
        self.out.flush()?;
        self.seq += 1;
        Ok(())
    }
}

impl<W: io::Write> EventSink for JsonLines<W> {
    fn emit(&mut self, event: Event) {
        // After a failed write the file may end in half a line; going on would spoil the next.
        if self.failed.is_none()
            && let Err(error) = self.write(event)
        {
            self.failed = Some(error);
        }
    }
}

#[cfg(test)]
mod tests;
