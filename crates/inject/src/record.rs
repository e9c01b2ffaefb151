//! What a campaign leaves on disk: the contract between the engines and the reports.
//!
//! ```text
//!   DIR/campaign.json     what was asked for, on which machine, of which population
//!   DIR/profile.jsonl     one executed function per line
//!   DIR/plan.jsonl        one planned run per line, written before the first run
//!   DIR/runs.jsonl        one finished run per line, appended
//!   DIR/golden/           streams and files of the run without a fault
//!   DIR/evidence/ID/      streams, files and events of a run that is not plainly masked
//! ```
//!
//! Invariants
//!  1. Every file says its `schema`; a reader refuses a higher one and ignores unknown fields.
//!  2. A line of `runs.jsonl` is written at once and ends with a newline: a last line without one,
//!     or that is no JSON, was cut off by a crash, and its run is done again.
//!  3. Among lines of one id the last counts.
//!  4. Numbers that may need more than 53 bits are strings.
//!
//! Not covered: how the numbers come about (docs/reference/campaign-format.md says what they mean).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use steadfast_contract::outcome::Leaf;
use steadfast_fault::Fault;
pub use steadfast_report::results::{
    Detection, Group as FaultType, Machine, Place, Population as Counts,
};

use crate::victim::{Strike, Victim};

/// The version of all files of a campaign directory.
pub const SCHEMA: u32 = 2;

/// `campaign.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Version of Steadfast that made it.
    pub steadfast: String,
    /// Commit of the tree that the campaign was started from, if it was one, `-dirty` included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When it was planned, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The target: program and arguments, as given.
    pub command: Vec<String>,
    /// File that standard input comes from; nothing is /dev/null.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Variables the target has beside the fixed ones.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// How the target is protected.
    pub protection: Protection,
    /// Whose state faults strike.
    #[serde(default, skip_serializing_if = "Victim::is_program")]
    pub victim: Victim,
    /// Files that were executed from, the program first.
    pub modules: Vec<Module>,
    /// Where it ran.
    pub machine: Machine,
    /// 256 bits, 64 hexadecimal digits: the source of every random choice.
    pub seed: String,
    /// What carries the faults out.
    pub engine: Engine,
    /// What faults are drawn from.
    pub population: Population,
    /// One for each fault type, in the order of the plan.
    pub fault_types: Vec<FaultType>,
    /// Lines of `plan.jsonl`, over all shards.
    pub planned: u64,
    /// Which part of the plan this directory runs: ids with `id % of == index`.
    pub shard: Shard,
    /// The run without a fault.
    pub golden: Golden,
    /// How an output is compared with the golden one.
    pub comparator: Comparator,
    /// Files that are the target's state, not its output, as patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    /// When a run is given up.
    pub limits: Limits,
    /// What the sandbox around each run could and could not close off.
    pub sandbox: Vec<String>,
    /// Runs that were armed with a fault that cannot fire: the base of limits and false alarms.
    pub control_runs: ControlRuns,
}

/// What stands between a fault and the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// `bare`, or a name that tables print: `run -n 2`, `cc`.
    pub name: String,
    /// Replicas of `steadfast run`; 0 when the target is started by itself.
    #[serde(default)]
    pub replicas: u8,
}

/// A file that was executed from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// File name without its directory: what fault lines say.
    pub name: String,
    /// Where it was.
    pub path: String,
    /// GNU build id, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// What carries faults out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// Countdowns planted in the program, which runs natively.
    Plant,
    /// Single steps from outside.
    Step,
    /// Stops at moments of time.
    Timer,
    /// `steadfast run` plants them.
    Run,
}

impl Engine {
    /// The word in files and reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Plant => "plant",
            Self::Step => "step",
            Self::Timer => "timer",
            Self::Run => "run",
        }
    }
}

/// What a count pass found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Population {
    /// What reports show of it; fields of the same object.
    #[serde(flatten)]
    pub counts: Counts,
    /// Executions by module name.
    pub by_module: BTreeMap<String, u64>,
    /// Transfers between the target and its files, where faults of storage are drawn from them.
    #[serde(default, skip_serializing_if = "none")]
    pub transfers: u64,
    /// Executions in code without a counter, not part of `dynamic`: exact with `surplus`, else estimated from a sample of moments.
    #[serde(default, skip_serializing_if = "none")]
    pub uncounted: u64,
    /// What counters make the target execute besides; nothing where that was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surplus: Option<Surplus>,
}

/// Executions from the entry point on, of a run with counters against one without, by single steps.
///
/// They differ where the target looks at itself: `/proc/self/maps` has more lines in a run with counters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surplus {
    /// Without counters.
    pub bare: u64,
    /// More of them with counters, or fewer, by module; modules without a difference are left out.
    pub by_module: BTreeMap<String, i64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn none(count: &u64) -> bool {
    *count == 0
}

impl Population {
    /// With executions in code without a counter: the share of what the processor executed.
    #[must_use]
    pub fn with_uncounted(mut self) -> Self {
        if self.uncounted > 0 {
            self.counts.dynamic = self.counts.dynamic.saturating_add(self.uncounted);
            let exact = self.surplus.is_some();
            let why = if exact { UNCOUNTED } else { UNCOUNTED_ABOUT };
            self.counts.unreachable.insert(why.into(), self.uncounted);
        }
        self
    }

    /// Share of the population that is drawn from.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a share for display")]
    pub fn reachable_share(&self) -> f64 {
        if self.counts.dynamic == 0 {
            1.0
        } else {
            self.counts.reachable as f64 / self.counts.dynamic as f64
        }
    }
}

/// Why executions are [`Population::uncounted`], as a reason beside those of `unreachable`.
pub const UNCOUNTED: &str = "in code without a counter, or before the entry point";
/// The same where nobody stepped through the program.
pub const UNCOUNTED_ABOUT: &str =
    "in code without a counter, or before the entry point (about: by a sample)";

/// `index` of `of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// From 0.
    pub index: u32,
    /// From 1.
    pub of: u32,
}

/// How the run without a fault ends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Golden {
    /// Runs that were compared for stability.
    pub runs: u32,
    /// Exit status.
    pub status: i32,
    /// Digests of what it wrote.
    pub outputs: Outputs,
    /// Wall time of the slowest, nanoseconds.
    pub wall_ns_max: u64,
    /// CPU time of the slowest.
    pub cpu_ns_max: u64,
}

/// Digests (`crc32c:` and eight digits, then `/` and the length) by name: `stdout`, `stderr`, and
/// files by path from the scratch directory.
pub type Outputs = BTreeMap<String, String>;

/// How outputs are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Comparator {
    /// Equal byte for byte.
    Byte,
    /// Equal after everything that matches these expressions is taken out.
    Masked {
        /// The expressions.
        patterns: Vec<Pattern>,
    },
    /// Numbers in the text may differ by this share; everything else is equal.
    Numeric {
        /// Relative tolerance.
        tolerance: f64,
    },
    /// The same lines in any order.
    Lines,
    /// A command that gets the golden directory and the run's, and exits with 0 for equal, 1 for
    /// different, 2 for different and rejected by the client's own checks.
    Command {
        /// Program and arguments.
        command: Vec<String>,
    },
}

/// A regular expression, a string in files. It is compiled where it is read, so a wrong one goes no further.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: String,
    regex: regex_lite::Regex,
}

/// What is no [`Pattern`].
#[derive(Debug, thiserror::Error)]
pub enum PatternError {
    /// It would match everywhere.
    #[error("a regular expression is needed, found an empty text")]
    Empty,
    /// It does not compile.
    #[error("a regular expression is needed, found '{text}': {source}")]
    Wrong {
        /// What it was to be.
        text: String,
        /// Why it is none.
        source: regex_lite::Error,
    },
}

impl Pattern {
    /// Whether it matches anywhere; bytes that are no text are taken for `U+FFFD`.
    #[must_use]
    pub fn is_in(&self, bytes: &[u8]) -> bool {
        self.regex.is_match(&String::from_utf8_lossy(bytes))
    }

    /// The text without what matches.
    #[must_use]
    pub fn taken_out_of(&self, text: &str) -> String {
        self.regex.replace_all(text, "").into_owned()
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        match regex_lite::Regex::new(&text) {
            Ok(regex) => Ok(Self { text, regex }),
            Err(source) => Err(PatternError::Wrong { text, source }),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        text.to_owned().try_into()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.text
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

/// When a run is given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time.
    pub wall_ns: u64,
    /// CPU time of all processes.
    pub cpu_ns: u64,
    /// Later than this a right output is `slow`.
    pub slow_ns: u64,
    /// Address space of a process, bytes; 0: unlimited.
    pub memory: u64,
    /// Largest file it may write, bytes.
    pub file_size: u64,
}

/// Armed with a fault that is never reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRuns {
    /// How many.
    pub runs: u64,
    /// Those with output, status and silence as the golden run has them. The rest are
    /// false alarms or the injector's own fault.
    pub masked: u64,
    /// Those in which a detector spoke.
    pub false_alarms: u64,
    /// 99th percentile of wall time.
    pub wall_ns_p99: u64,
    /// Median wall time.
    pub wall_ns_p50: u64,
}

/// A line of `profile.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// [`SCHEMA`].
    pub schema: u32,
    /// File name of the module.
    pub module: String,
    /// Symbol; nothing where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Executed instructions.
    pub executions: u64,
    /// Those at reachable sites.
    pub reachable: u64,
}

/// A line of `plan.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// [`SCHEMA`].
    pub schema: u32,
    /// From 0, without gaps over all shards.
    pub id: u64,
    /// Name of its [`FaultType`].
    pub fault_type: String,
    /// The faults of the run, `; ` between several.
    pub fault: String,
    /// Where the first of them strikes; nothing for triggers that are not a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<Place>,
    /// Register that is hit, as the fault names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register: Option<String>,
    /// Bits that are hit, counted within the target.
    #[serde(default)]
    pub bits: Vec<u16>,
    /// Which execution of the site is hit, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Executions the site has in a run without a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<u64>,
    /// What is struck from outside, beside the faults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strike: Option<Strike>,
}

/// A line of `runs.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The plan's id.
    pub id: u64,
    /// Name of its fault type, as in the plan.
    pub fault_type: String,
    /// What became of it.
    pub outcome: Leaf,
    /// Times that its faults fired.
    pub hits: u64,
    /// The first hit of each fault.
    #[serde(default)]
    pub fired: Vec<Fired>,
    /// Exit status; nothing if it did not exit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<i32>,
    /// Signal that it died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// From start to end, the sandbox not counted.
    pub wall_ns: u64,
    /// Of all its processes.
    pub cpu_ns: u64,
    /// What it cost to set up: sandbox, planting.
    pub setup_ns: u64,
    /// Digests of what it wrote; empty when all are as in the golden run.
    #[serde(default)]
    pub outputs: Outputs,
    /// Which of them differ.
    #[serde(default)]
    pub differ: Vec<String>,
    /// Who spoke up first, if anybody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection: Option<Detection>,
    /// Directory under the campaign's, with what the run left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

/// A fault that fired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// Which execution, from 1.
    pub n: u64,
    /// The 64 bits around the lowest one that was hit, before and after, `0x...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// After.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// On which CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Of storage, and of code that was mapped after the start: the file and the place in it, `PATH+0x...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Run {
    /// The plan's line without anything having come of it.
    #[must_use]
    pub fn new(planned: &Planned, outcome: Leaf) -> Self {
        Self {
            schema: SCHEMA,
            id: planned.id,
            fault_type: planned.fault_type.clone(),
            outcome,
            hits: 0,
            fired: Vec::new(),
            status: None,
            signal: None,
            wall_ns: 0,
            cpu_ns: 0,
            setup_ns: 0,
            outputs: Outputs::new(),
            differ: Vec::new(),
            detection: None,
            evidence: None,
        }
    }

    /// Whether another run of the same fault ended alike. How long it took is the machine's affair.
    #[must_use]
    pub fn ends_as(&self, other: &Self) -> bool {
        let end = |leaf| match leaf {
            Leaf::Slow => Leaf::MaskedClean,
            other => other,
        };
        end(self.outcome) == end(other.outcome) && self.outputs == other.outputs
    }
}

impl Planned {
    /// The faults, and what is struck from outside, for people.
    #[must_use]
    pub fn told(&self) -> String {
        let strike = self.strike.map(|strike| {
            let whom = format!("{:?}", strike.whom).to_lowercase();
            format!("{whom} struck from outside at {} of 1000", strike.permille)
        });
        let faults = (!self.fault.is_empty()).then(|| self.fault.clone());
        let all: Vec<String> = faults.into_iter().chain(strike).collect();
        all.join("; ")
    }

    /// The faults, parsed.
    ///
    /// # Errors
    /// When the line is none of the grammar.
    pub fn faults(&self) -> Result<Vec<Fault>, RecordError> {
        if self.fault.is_empty() && self.strike.is_some() {
            return Ok(Vec::new());
        }
        Fault::parse_all(&self.fault).map_err(|why| RecordError::Wrong {
            path: PathBuf::from("plan.jsonl"),
            line: self.id + 1,
            needed: "faults of docs/reference/fault-grammar.md",
            found: why.to_string(),
        })
    }
}

impl Shard {
    /// Whether a run belongs to this part.
    #[must_use]
    pub const fn has(self, id: u64) -> bool {
        id % self.of as u64 == self.index as u64
    }
}

/// Why a campaign directory cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What stands there is not of this format.
    #[error("{path}, line {line}: {needed} is needed, found {found}")]
    Wrong {
        /// Which file.
        path: PathBuf,
        /// From 1.
        line: u64,
        /// What should be there.
        needed: &'static str,
        /// What is.
        found: String,
    },
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> RecordError + '_ {
    |source| RecordError::Io {
        path: path.to_owned(),
        source,
    }
}

/// A campaign directory.
#[derive(Debug, Clone)]
pub struct Dir(PathBuf);

impl Dir {
    /// Names it; nothing is looked at.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// `campaign.json`.
    ///
    /// # Errors
    /// When it cannot be read or is of a later schema.
    pub fn campaign(&self) -> Result<Campaign, RecordError> {
        let path = self.0.join("campaign.json");
        let text = fs::read_to_string(&path).map_err(io_at(&path))?;
        value(&path, 1, &text)
    }

    /// Writes `campaign.json`, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_campaign(&self, campaign: &Campaign) -> Result<(), RecordError> {
        let mut text = serde_json::to_string_pretty(campaign).unwrap_or_default();
        text.push('\n');
        self.replace("campaign.json", text.as_bytes())
    }

    /// `plan.jsonl`.
    ///
    /// # Errors
    /// When it cannot be read or a line is wrong.
    pub fn plan(&self) -> Result<Vec<Planned>, RecordError> {
        lines(&self.0.join("plan.jsonl"), LastLine::Whole)
    }

    /// Writes `plan.jsonl`, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_plan(&self, plan: &[Planned]) -> Result<(), RecordError> {
        self.replace("plan.jsonl", &joined(plan))
    }

    /// Writes any list as lines, whole or not at all.
    pub(crate) fn write_lines<T: Serialize>(
        &self,
        name: &str,
        items: &[T],
    ) -> Result<(), RecordError> {
        self.replace(name, &joined(items))
    }

    /// `profile.jsonl`; empty if there is none.
    ///
    /// # Errors
    /// When it cannot be read or a line is wrong.
    pub fn profile(&self) -> Result<Vec<Function>, RecordError> {
        let path = self.0.join("profile.jsonl");
        if path.exists() {
            lines(&path, LastLine::Whole)
        } else {
            Ok(Vec::new())
        }
    }

    /// Writes `profile.jsonl`, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_profile(&self, profile: &[Function]) -> Result<(), RecordError> {
        self.replace("profile.jsonl", &joined(profile))
    }

    /// Finished runs by id, the last line of each; empty before the first run.
    ///
    /// # Errors
    /// When the file cannot be read or a line other than the last is wrong.
    pub fn runs(&self) -> Result<BTreeMap<u64, Run>, RecordError> {
        let path = self.0.join("runs.jsonl");
        if !path.exists() {
            return Ok(BTreeMap::new());
        }
        let runs: Vec<Run> = lines(&path, LastLine::MayBeCut)?;
        Ok(runs.into_iter().map(|run| (run.id, run)).collect())
    }

    /// Opens `runs.jsonl` to append to; a line that a crash cut off is taken away first.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn append(&self) -> Result<Appender, RecordError> {
        let path = self.0.join("runs.jsonl");
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(io_at(&path)(error)),
        };
        let file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(io_at(&path))?;
        let whole = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(io_at(&path))?;
        }
        Ok(Appender { file, path })
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        let path = self.0.join(name);
        let new = self.0.join(format!(".{name}.new"));
        fs::create_dir_all(&self.0).map_err(io_at(&self.0))?;
        let mut file = fs::File::create(&new).map_err(io_at(&new))?;
        file.write_all(bytes).map_err(io_at(&new))?;
        file.sync_all().map_err(io_at(&new))?;
        fs::rename(&new, &path).map_err(io_at(&path))
    }
}

/// The end of `runs.jsonl`.
#[derive(Debug)]
pub struct Appender {
    file: fs::File,
    path: PathBuf,
}

impl Appender {
    /// Adds a run with one write(2): a reader sees all of it or, after a crash, none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, run: &Run) -> Result<(), RecordError> {
        let mut text = serde_json::to_vec(run).unwrap_or_default();
        text.push(b'\n');
        self.file.write_all(&text).map_err(io_at(&self.path))
    }
}

fn joined<T: Serialize>(items: &[T]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        out.extend(serde_json::to_vec(item).unwrap_or_default());
        out.push(b'\n');
    }
    out
}

/// Reads lines that were written by [`Dir::write_lines`].
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, RecordError> {
    lines(path, LastLine::Whole)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LastLine {
    Whole,
    MayBeCut,
}

fn lines<T: DeserializeOwned>(path: &Path, last: LastLine) -> Result<Vec<T>, RecordError> {
    let mut file = BufReader::new(fs::File::open(path).map_err(io_at(path))?);
    let mut out = Vec::new();
    let mut text = Vec::new();
    for number in 1.. {
        text.clear();
        if file.read_until(b'\n', &mut text).map_err(io_at(path))? == 0 {
            break;
        }
        if text.last() != Some(&b'\n') && last == LastLine::MayBeCut {
            break;
        }
        out.push(value(path, number, &String::from_utf8_lossy(&text))?);
    }
    Ok(out)
}

fn value<T: DeserializeOwned>(path: &Path, line: u64, text: &str) -> Result<T, RecordError> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    let wrong = |needed, found: String| RecordError::Wrong {
        path: path.to_owned(),
        line,
        needed,
        found,
    };
    let version: Version = serde_json::from_str(text)
        .map_err(|why| wrong("a JSON object with a schema", why.to_string()))?;
    // Schema 1 had other names; no release wrote it.
    if version.schema != SCHEMA {
        let needed = if version.schema > SCHEMA {
            "schema 2, or a newer steadfast"
        } else {
            "schema 2, or a new campaign (before 0.1.0 the names were others)"
        };
        return Err(wrong(needed, version.schema.to_string()));
    }
    serde_json::from_str(text).map_err(|why| {
        wrong(
            "an object of docs/reference/campaign-format.md",
            why.to_string(),
        )
    })
}

#[cfg(test)]
mod tests;
