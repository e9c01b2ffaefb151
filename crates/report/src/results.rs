//! What a campaign hands in: where it came from, what it was drawn from, and every run.
//!
//! These are the inputs of all pages. They say what was seen and add nothing up; reading them
//! from a directory is its owner's business.
//!
//! Invariant: a run has one outcome, and its place, type and fault as they were planned.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steadfast_contract::outcome::Leaf;

/// A campaign, finished or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// Where it came from.
    pub provenance: Provenance,
    /// What faults were drawn from.
    pub population: Population,
    /// One for each fault type.
    pub groups: Vec<Group>,
    /// Functions that were executed; may be empty.
    pub functions: Vec<FunctionCount>,
    /// Runs that the plan asks for in this directory's part of it.
    pub planned: u64,
    /// Runs that are finished, by ascending id.
    pub runs: Vec<Run>,
    /// Runs without a fault.
    pub control: ControlCount,
}

/// Everything that somebody needs to make the same campaign again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Provenance {
    /// Version of Steadfast.
    pub steadfast: String,
    /// Commit of the tree it was started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When it was planned, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The target: program and arguments.
    pub command: Vec<String>,
    /// How the target is protected: `bare`, `run -n 2`, ...
    pub protection: String,
    /// How many copies of the target run at once: faults strike each of them.
    pub copies: u32,
    /// What carried the faults out.
    pub engine: String,
    /// The source of every random choice.
    pub seed: String,
    /// How outputs were compared.
    pub comparator: String,
    /// Which part of the plan this is, as `index/of`; nothing for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
    /// How the target ends without a fault.
    #[serde(default)]
    pub golden: Golden,
    /// Files that were executed from, the program first.
    pub modules: Vec<Module>,
    /// Where it ran.
    pub machine: Machine,
    /// What the sandbox around each run closed off, and what it could not.
    pub sandbox: Vec<String>,
    /// Limits and other settings, by name, ready to be shown.
    pub settings: BTreeMap<String, String>,
}

/// What a run without a fault is like: all that a fault can get wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Golden {
    /// Exit status.
    pub status: i32,
    /// Bytes of standard output, standard error, files and replies that are compared.
    pub output_bytes: u64,
}

/// A file that was executed from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Module {
    /// Name without directory.
    pub name: String,
    /// GNU build id, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Executed instructions in it.
    pub executions: u64,
}

/// Where a campaign ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Logical CPUs.
    pub cpus: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// `ID VERSION_ID` of the distribution.
    pub os: String,
    /// Whether it ran as root.
    pub root: bool,
}

/// What faults were drawn from, in executed instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Population {
    /// All of them; 0 where an engine does not count.
    pub dynamic: u64,
    /// Those at which a fault can be planted.
    pub reachable: u64,
    /// The others, by reason.
    pub unreachable: BTreeMap<String, u64>,
    /// Left out on request.
    pub excluded: u64,
    /// At places whose counts differed between two passes.
    pub unstable: u64,
    /// Different instructions.
    pub sites: u64,
}

/// One fault type: faults are drawn within it, uniformly over the executions that can have it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// `wreg`, `cf`, ..., unique in a campaign.
    pub name: String,
    /// Executions that can have such a fault, reachable or not: what failures are extrapolated to.
    pub population: u64,
    /// Those that were drawn from.
    pub reachable: u64,
    /// Runs planned over all shards.
    pub planned: u64,
    /// Share of the campaign's fault space, all summing to 1: for weighted estimates.
    pub weight: f64,
}

/// A function that was executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionCount {
    /// File name of its module.
    pub module: String,
    /// Its symbol; nothing where there is none.
    pub function: Option<String>,
    /// Executed instructions.
    pub executions: u64,
    /// Those at which a fault can be planted.
    pub reachable: u64,
}

/// Runs without a fault that fires.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlCount {
    /// How many.
    pub runs: u64,
    /// Those that ended like the golden run.
    pub masked: u64,
    /// Those in which a detector spoke.
    pub false_alarms: u64,
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number in the plan.
    pub id: u64,
    /// Position of its group.
    pub group: usize,
    /// What became of it.
    pub leaf: Leaf,
    /// The line that makes the fault again.
    pub fault: String,
    /// The command that repeats the run.
    pub replay: String,
    /// Where the fault struck; nothing for faults that have no place.
    pub place: Option<Place>,
    /// Register that was hit.
    pub register: Option<String>,
    /// Bits that were hit, counted within the target.
    pub bits: Vec<u16>,
    /// How it ended, if by itself.
    pub status: Option<i32>,
    /// The signal that it died of.
    pub signal: Option<i32>,
    /// Which outputs differ from the golden run's.
    pub differ: Vec<String>,
    /// Who noticed first.
    pub detection: Option<Detection>,
    /// From start to end.
    pub wall_ns: u64,
    /// CPU time of all its processes.
    pub cpu_ns: u64,
    /// Directory with what it left behind.
    pub evidence: Option<String>,
}

/// An instruction.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Place {
    /// File name of the module.
    pub module: String,
    /// Its GNU build id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// Distance from the lowest address at which the module is mapped, `0x...`.
    pub offset: String,
    /// Enclosing symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// `file.c:123`, where the module has line tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The instruction, Intel syntax.
    pub disassembly: String,
    /// Its mnemonic.
    pub opcode: String,
}

/// A detector that spoke.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Detection {
    /// `replicas`, `cc`, or the name the detector gives itself.
    pub by: String,
    /// In what it saw the difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// From the first hit to the alarm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
}
