//! The first process of a sandbox, which starts targets, and the caller's end of it.
//!
//! The two talk in lines of JSON. A sandbox serves one run at a time; parallel jobs have one each.
//!
//! Invariant: sandboxes are made while the caller has one thread.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_fault::Fault;
use steadfast_sandbox::{self as sandbox, Caller, Isolation, Rules, Unanswered};

use crate::profile::{self, Profile};
use crate::reach::{self, Reach, Stepped};
use crate::step;
use crate::storage::Transfers;
use crate::target::{Bench, Discovered, Ran, SetupError, Spec};
use crate::victim::Strike;

/// What a sandbox can be asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Ask {
    /// What stands around it.
    Isolation,
    /// Run it to see its modules and threads.
    Discover,
    /// Take over what another sandbox found; executed instructions, for faults in a class.
    Adopt(Discovered, Vec<(usize, u64)>),
    /// Count what it executes.
    Profile,
    /// Look for about so long how much of what is executed no counter knows.
    Reach(Duration),
    /// Count these instructions.
    Audit(Vec<(usize, u64)>),
    /// Count these, and what no counter knows, by single steps from outside: the oracle. At most so many steps.
    Steps { sites: Vec<(usize, u64)>, most: u64 },
    /// Write down what it transfers between itself and its files.
    Transfers,
    /// Run this around it, with these faults of storage.
    Around(PathBuf, Vec<String>, Vec<String>),
    /// Run this around it, and strike one of its processes so long after its first event.
    Strike(PathBuf, Vec<String>, Strike, Duration),
    /// Run it with other arguments, untraced.
    Bare(Option<(PathBuf, Vec<String>)>),
    /// Whether these faults can be planted.
    Arm(Vec<String>),
    /// Run it with these faults.
    Plant(Vec<String>),
    /// Run it with these faults by breakpoints and single steps from outside.
    Step(Vec<String>),
    /// Run it with these faults at moments of time.
    Timer(Vec<String>),
}

/// What it answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Tell {
    /// Closed and open.
    Isolation(Vec<String>, Vec<String>),
    /// Modules and threads.
    Discovered(Discovered),
    /// Done.
    Done,
    /// Counts.
    Profile(Box<Profile>),
    /// What a sample of moments showed.
    Reach(Reach),
    /// What single steps showed, and the run.
    Stepped(Stepped, Ran),
    /// What it transfers, and the run.
    Transfers(Box<Transfers>, Ran),
    /// Counts, and the run.
    Counts(Vec<Option<u64>>, Ran),
    /// How a run went.
    Ran(Ran),
    /// It could not be set up: why, and what would help.
    Failed(String, Option<String>),
}

/// The caller's end. First the sandbox ends, then its directory goes.
#[derive(Debug)]
pub struct Sandbox {
    caller: Caller,
    place: Place,
}

/// The directory that a sandbox can write to. It goes with the value.
#[derive(Debug)]
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = crate::scratch::remove_tree(&self.0);
        // The last sandbox of a campaign leaves nothing behind.
        if let Some(parent) = self.0.parent() {
            let _ = std::fs::remove_dir(parent);
        }
    }
}

/// Why a sandbox did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It is gone.
    #[error("the process that runs targets is gone: {0}")]
    Gone(io::Error),
    /// It could not.
    #[error("{why}")]
    Failed {
        /// Why not.
        why: String,
        /// What would help.
        fix: Option<String>,
    },
}

impl Sandbox {
    /// Makes one, with a scratch directory of its own.
    ///
    /// # Errors
    /// When a process or the directory is refused.
    pub fn new(spec: &Spec, scratch: &Path, network: bool) -> io::Result<Self> {
        std::fs::create_dir_all(scratch)?;
        let scratch = scratch.canonicalize()?;
        let rules = Rules {
            scratch: sandbox::c_path(&scratch)?,
            user: spec.user,
            network,
            nested: spec.nested,
        };
        let spec = spec.clone();
        let dir = scratch.clone();
        fill_tables();
        let caller = Caller::new(&rules, move |stream, isolation| {
            serve(stream, Bench::new(spec, dir), &isolation)
        })?;
        Ok(Self {
            caller,
            place: Place(scratch),
        })
    }

    /// Where its runs leave `stdout`, `stderr` and `run`.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        &self.place.0
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When it is gone or could not.
    pub fn ask(&mut self, ask: &Ask, limit: Duration) -> Result<Tell, SandboxError> {
        let ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let line = serde_json::to_string(&(ask, ns)).unwrap_or_default();
        let answer = self.caller.ask(&line).map_err(|why| match why {
            Unanswered::Gone(why) => SandboxError::Gone(why),
            Unanswered::Traced => SandboxError::Failed {
                why: "the target traces process 1 of its sandbox, which runs it".into(),
                fix: Some("--user UID: an ordinary user may not trace it".into()),
            },
        })?;
        match serde_json::from_str(&answer) {
            Ok(Tell::Failed(why, fix)) => Err(SandboxError::Failed { why, fix }),
            Ok(tell) => Ok(tell),
            Err(why) => Err(SandboxError::Gone(io::Error::other(why))),
        }
    }

    /// A run.
    ///
    /// # Errors
    /// As [`Sandbox::ask`].
    pub fn run(&mut self, ask: &Ask, limit: Duration) -> Result<Ran, SandboxError> {
        match self.ask(ask, limit)? {
            Tell::Ran(ran) => Ok(ran),
            other => Err(SandboxError::Gone(io::Error::other(format!(
                "an answer to something else: {other:?}"
            )))),
        }
    }
}

/// Has the decoder make its tables now: they are made at first use, behind a lock. Where callers
/// have other threads after all (tests do), a fork while one of them holds it would leave the
/// sandbox waiting for a thread that it does not have.
fn fill_tables() {
    use iced_x86::{Decoder, DecoderOptions, Encoder, Formatter as _, IntelFormatter};
    // cmpltps xmm0, [rax]: a register, memory, and a name of its own for an immediate.
    let insn = Decoder::with_ip(64, &[0x0f, 0xc2, 0x00, 0x01], 0, DecoderOptions::NONE).decode();
    let mut text = String::new();
    IntelFormatter::new().format(&insn, &mut text);
    let encoded = Encoder::new(64).encode(&insn, 0);
    debug_assert!(encoded.is_ok() && !text.is_empty());
}

/// The sandbox's life.
fn serve(stream: UnixStream, bench: io::Result<Bench>, isolation: &Isolation) -> i32 {
    let mut bench = bench.map_err(|why| Tell::Failed(why.to_string(), None));
    let mut executed = Vec::new();
    sandbox::serve(stream, |line| {
        let (ask, ns) = serde_json::from_str::<(Ask, u64)>(line).ok()?;
        let tell = match &mut bench {
            Ok(bench) => {
                let limit = Duration::from_nanos(ns);
                answer(bench, ask, limit, isolation, &mut executed)
                    .unwrap_or_else(|why| failed(&why))
            }
            Err(tell) => tell.clone(),
        };
        Some(serde_json::to_string(&tell).unwrap_or_default())
    })
}

/// What is told of an error: its causes, and what would help.
fn failed(error: &SetupError) -> Tell {
    let fix = match error {
        SetupError::Fault(refusal) => Some(refusal.fix.clone()),
        SetupError::NotStarted(_) => {
            Some("run it by hand as the user that the sandbox uses (--user), or --user keep".into())
        }
        SetupError::NotEnded(_) => {
            Some("--patience SECONDS; for a server --driver and --ready".into())
        }
        SetupError::Os { .. } => None,
    };
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        let text = error.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = error.source();
    }
    Tell::Failed(why, fix)
}

fn answer(
    bench: &mut Bench,
    ask: Ask,
    limit: Duration,
    isolation: &Isolation,
    executed: &mut Vec<(usize, u64)>,
) -> Result<Tell, SetupError> {
    let parse = |lines: &[String]| -> Result<Vec<Fault>, SetupError> {
        let parsed = lines
            .iter()
            .map(|line| Fault::parse_all(line))
            .collect::<Result<Vec<_>, _>>();
        let faults = parsed.map_err(|why| SetupError::NotStarted(why.to_string()))?;
        Ok(faults.into_iter().flatten().collect())
    };
    Ok(match ask {
        Ask::Isolation => Tell::Isolation(isolation.closed.clone(), isolation.open.clone()),
        Ask::Discover => Tell::Discovered(bench.discover(limit)?),
        Ask::Adopt(discovered, sites) => {
            bench.adopt(&discovered).map_err(|source| SetupError::Os {
                what: "the target's files have to be readable",
                source,
            })?;
            *executed = sites;
            Tell::Done
        }
        Ask::Reach(patience) => Tell::Reach(reach::sample(bench, patience, limit)?),
        Ask::Profile => Tell::Profile(Box::new(profile::take(bench, limit)?)),
        Ask::Audit(sites) => {
            let (counts, ran) = profile::audit(bench, &sites, limit)?;
            Tell::Counts(counts, ran)
        }
        Ask::Steps { sites, most } => {
            let (stepped, ran) = reach::stepped(bench, &sites, most, limit)?;
            Tell::Stepped(stepped, ran)
        }
        Ask::Bare(other) => {
            let kept = bench.spec.clone();
            if let Some((path, argv)) = other {
                (bench.spec.path, bench.spec.argv) = (path, argv);
            }
            let ran = bench.bare(limit);
            bench.spec = kept;
            Tell::Ran(ran?)
        }
        Ask::Arm(lines) => {
            bench.arm(&parse(&lines)?, executed)?;
            Tell::Done
        }
        Ask::Plant(lines) => {
            let faults = parse(&lines)?;
            let laid = bench.arm(&faults, executed)?;
            bench.watch(&faults);
            let storage = laid.is_empty() && faults.iter().any(Fault::is_storage);
            Tell::Ran(if storage {
                bench.unplanted(limit, faults.len())?
            } else {
                bench.planted(&laid, limit, faults.len())?
            })
        }
        Ask::Transfers => {
            let (found, ran) = bench.transfers(limit)?;
            Tell::Transfers(Box::new(found), ran)
        }
        Ask::Around(path, argv, lines) => {
            let faults = parse(&lines)?;
            bench.arm(&faults, executed)?;
            bench.watch(&faults);
            let kept = bench.spec.clone();
            (bench.spec.path, bench.spec.argv) = (path, argv);
            let ran = bench.unplanted(limit, faults.len());
            bench.spec = kept;
            Tell::Ran(ran?)
        }
        Ask::Strike(path, argv, strike, after) => {
            let kept = bench.spec.clone();
            (bench.spec.path, bench.spec.argv) = (path, argv);
            let ran = bench.struck(&strike, after, limit);
            bench.spec = kept;
            Tell::Ran(ran?)
        }
        Ask::Step(lines) => Tell::Ran(step::run(bench, &parse(&lines)?, limit)?),
        Ask::Timer(lines) => Tell::Ran(step::timer(bench, &parse(&lines)?, limit)?),
    })
}
