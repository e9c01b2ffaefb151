//! What is said about a component: why it was reset, why a call has no result, how it is watched, what happened so far.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use steadfast_sys::pad::Seen;

/// Why a component was reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A trap that the compiler had planned: a bounds check, an assertion.
    Trap,
    /// A fault where none was planned; the signal pad made an error of it.
    WildFault,
    /// A call took longer than its limit.
    Hang,
    /// Two bodies returned different results to the same call.
    Mismatch,
    /// Two bodies returned the same and hold different memory.
    Memory,
    /// A result or an argument that the interface does not allow.
    Range,
    /// A result that the slot table knows to be wrong.
    Wrong,
    /// An object did not come back as it was.
    Replay,
    /// Another component, which it had called, gave no answer.
    Callee,
    /// An assertion of its own, told by [`crate::host::ASSERTION`].
    Assertion,
    /// The process that it ran in has ended, was silent for too long, or did not speak as it must.
    Process,
    /// A reset that was asked for.
    Asked,
}

impl Cause {
    /// The word for it in events and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::WildFault => "wild fault",
            Self::Hang => "hang",
            Self::Mismatch => "results differ",
            Self::Memory => "memory differs",
            Self::Range => "out of range",
            Self::Wrong => "wrong result",
            Self::Replay => "replay failed",
            Self::Callee => "callee failed",
            Self::Assertion => "assertion",
            Self::Process => "process ended",
            Self::Asked => "asked for",
        }
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("{from} may not call {function} of {to}: no edge of the application allows it")]
    NoEdge {
        from: String,
        to: String,
        function: String,
    },
    #[error("{component} has no function {function}")]
    NoFunction { component: String, function: String },
    #[error("{component} is not part of the application")]
    NoComponent { component: String },
    #[error("{function} takes {needed} arguments, found {found}")]
    Count {
        function: String,
        needed: usize,
        found: usize,
    },
    #[error("argument {parameter} of {function} is not of the type that the interface has for it")]
    Type { function: String, parameter: String },
    #[error(
        "an object of {component} cannot come back: the object it was made from was given back"
    )]
    Orphan { component: String },
    #[error("the handle names no object of {component} any more")]
    Stale { component: String },
    #[error("the record of an object of {component} is damaged; the object is lost")]
    Corrupt { component: String },
    #[error("{component} failed {attempts} times in a row in {function}, last by {}; this request is given up", cause.word())]
    Poison {
        component: String,
        function: String,
        attempts: u32,
        cause: Cause,
    },
    #[error("{component} failed in {function} by {}; its objects are lost", cause.word())]
    Failed {
        component: String,
        function: String,
        cause: Cause,
    },
    #[error("{component} is called while it calls: components may not be re-entered")]
    Reentered { component: String },
    #[error("{component} was reset more than {max} times in {} s and is given up", window.as_secs())]
    GaveUp {
        component: String,
        max: u32,
        window: Duration,
    },
    #[error("{component} failed too often and rests for another {} ms", rest.as_millis())]
    Resting { component: String, rest: Duration },
    #[error(
        "{component} has no result for {function}, since a component that it called has none: {source}"
    )]
    Callee {
        component: String,
        function: String,
        source: Box<CallError>,
    },
    #[error("{component} failed in {function} by {} after {max} calls of other components, too many to be repeated", cause.word())]
    TooLong {
        component: String,
        function: String,
        cause: Cause,
        max: usize,
    },
    #[error("a component with two bodies called others more than {max} times in one call")]
    TooMany { max: usize },
    #[error("an argument of {function} is an object of another client of {component}")]
    Foreign { component: String, function: String },
    /// Between a component and its host; callers see what follows from it.
    #[error("an assertion failed: {text}")]
    Asserted { text: String },
    #[error("{component} does not come back: {found}")]
    Dead { component: String, found: String },
    #[error("argument {parameter} of {function} is {found}, at most {max} is allowed")]
    Argument {
        function: String,
        parameter: String,
        found: u64,
        max: u64,
    },
}

/// How a component is watched and brought back.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Two bodies execute every call and are compared.
    pub dual: bool,
    /// With `dual`: memories are compared every so many calls; 0 for never.
    pub compare_every: u32,
    /// Before every so many calls one object is asked what the host knows the answer to, each in its turn; 0 for never.
    pub audit_every: u32,
    /// A failed call is repeated so often before its caller gets an error.
    pub redo_max: u32,
    /// After more failures than this in `window` the component rests: `rest` at first, twice as long each time.
    pub resets_max: u32,
    pub window: Duration,
    pub rest: Duration,
    /// After so many rests in a row the component is given up.
    pub rests_max: u32,
    /// A second set of bodies stands ready, so that a reset is a swap.
    pub spare: bool,
    /// All objects come back at once, instead of each when it is used next.
    pub eager: bool,
    /// Objects that nobody has used since a reset come back one by one when the machine is idle.
    pub idle: bool,
    /// Without: a failure is an error, and all objects are lost. For comparisons.
    pub recover: bool,
    /// Results are held against their bounds, the slot's state and the keeper.
    pub checks: bool,
    /// A failure's report carries registers and memories, copied before the reset.
    pub dump: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            dual: false,
            compare_every: 16,
            audit_every: 0,
            redo_max: 3,
            resets_max: 1000,
            window: Duration::from_secs(10),
            rest: Duration::from_millis(100),
            rests_max: 6,
            spare: true,
            eager: false,
            idle: false,
            recover: true,
            checks: true,
            dump: false,
        }
    }
}

/// Whether the next process of the host will know the component's objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kept {
    /// Nobody has asked for it.
    #[default]
    Off,
    On,
    /// There is no room for them.
    TooLarge,
}

impl Kept {
    /// The word for it in reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "no",
            Self::On => "yes",
            Self::TooLarge => "too large",
        }
    }
}

/// What happened to a component so far.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    pub calls: u64,
    pub resets: BTreeMap<Cause, u64>,
    /// From the moment when a failure was noticed to the result of the repeated call, in ns: the last few thousand.
    pub recovery_ns: Vec<u64>,
    /// Making a body ready again, alone.
    pub reset_ns: Vec<u64>,
    /// Of it: the linear memory, of all bodies. Not with a spare, whose memory was filled before.
    pub reset_memory_ns: Vec<u64>,
    /// Objects that came back.
    pub rebuilt: u64,
    /// What one of them took.
    pub rebuild_ns: Vec<u64>,
    /// Resets that found a spare ready.
    pub swapped: u64,
    /// Resets that took a new process.
    pub renewed: u64,
    /// How often it rested.
    pub rests: u64,
    pub objects: usize,
    pub kept: Kept,
}

/// Whether a component serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum State {
    #[default]
    Serves,
    /// It failed too often, and refuses calls for a while.
    Rests,
    /// It was given up.
    Gone,
}

impl State {
    /// The word for it in events and reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Serves => "serves",
            Self::Rests => "rests",
            Self::Gone => "gone",
        }
    }
}

/// [`Stats`] without samples: cheap enough to be asked for all the time.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    pub state: State,
    pub rebuilt: u64,
    pub swapped: u64,
    pub renewed: u64,
    pub rests: u64,
    pub objects: usize,
    pub kept: Kept,
    /// Where it runs, if not in this process: one number a body.
    pub processes: Vec<u32>,
}

impl Stats {
    /// Resets of all causes.
    #[must_use]
    pub fn resets_total(&self) -> u64 {
        self.resets.values().sum()
    }
}

impl CallError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::NoEdge { .. } => "an [[edge]] whose allow lists the function, or has no allow",
            Self::NoFunction { .. } | Self::Count { .. } | Self::Type { .. } => {
                "the WIT of the component; steadfast host generate --explain lists its functions"
            }
            Self::NoComponent { .. } => "a [component.NAME] of that name",
            Self::Orphan { .. } => {
                "children_end = true, or children_stay = true, in the sidecar file; or keep the parent"
            }
            Self::Stale { .. } | Self::Foreign { .. } => {
                "a handle that a call of this client returned and that was not given back"
            }
            Self::Corrupt { .. } => "open the object again; memory with ECC",
            Self::Poison { .. } => "a request that fails each time is a bug of the component",
            Self::Failed { .. } => "recover = true",
            Self::Reentered { .. } => "edges without a cycle",
            Self::GaveUp { .. } | Self::Resting { .. } | Self::Dead { .. } => {
                "--events FILE tells the failures; resets_max and window_s say how many are too many"
            }
            Self::Callee { .. } | Self::Asserted { .. } => "see the cause",
            Self::TooLong { .. } | Self::TooMany { .. } => {
                "several shorter calls in place of one that calls others so often"
            }
            Self::Argument { .. } => "argument_max in the sidecar file is the bound",
        }
    }
}

/// Samples are kept for a median, not for an archive.
const SAMPLES: usize = 8192;

pub(super) fn sample(to: &mut Vec<u64>, took: Duration) {
    if to.len() < SAMPLES {
        to.push(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// A failure, for whoever logs.
#[derive(Debug, Clone)]
pub struct Report {
    pub component: String,
    /// The function that was called, where one was.
    pub function: Option<String>,
    pub cause: Cause,
    pub detail: String,
    pub epoch: u64,
    /// From the failure to bodies that are ready again.
    pub reset_ns: u64,
    /// Whether a spare stood ready.
    pub swapped: bool,
    /// Whether a new process was started.
    pub renewed: bool,
    /// Where [`Policy::dump`] asks for it, and the component itself failed.
    pub dump: Option<Arc<Dump>>,
}

/// What a component held when it failed.
#[derive(Debug, Clone)]
pub struct Dump {
    /// Where its instructions lie.
    pub text: Range<u64>,
    /// One, or two that are compared.
    pub bodies: Vec<BodyDump>,
}

/// What one body held.
#[derive(Debug, Clone)]
pub struct BodyDump {
    /// Registers at the signal that ended it, where one did.
    pub seen: Option<Seen>,
    pub memories: Vec<Vec<u8>>,
}

/// Who hears of failures.
pub type Listener = Arc<dyn Fn(&Report) + Send + Sync>;
