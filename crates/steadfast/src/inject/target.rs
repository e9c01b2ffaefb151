//! What the verbs that run a target share: flags in, a checked order out.
//!
//! Invariant: an order that leaves this module is complete; what is wrong with it is said before
//! anything starts.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::{Exit, Own};
use steadfast_fault::Fault;
use steadfast_inject::campaign::{CampaignError, Order, Progress};
use steadfast_inject::chacha::Seed;
use steadfast_inject::judge::Detector;
use steadfast_inject::models::{Model, Shape};
use steadfast_inject::record::{Comparator, Engine, Shard};
use steadfast_inject::target::Spec;
use steadfast_inject::victim::Victim;

use super::server::ServerArgs;
use crate::find::{self, FindError};
use crate::os;
use crate::report::Console;

#[derive(Debug, Clone, Args)]
pub(crate) struct TargetArgs {
    /// Fault types to draw from: wreg, rreg, wval, rval, waddr, raddr, cf, flags, code. sei stands for the first seven. Of files: rdata,
    /// wdata, stale, misread, miswrite, lost, torn. A line of docs/reference/fault-grammar.md is run as it is
    #[arg(long, value_name = "TYPE|LINE", default_value = "sei")]
    fault: Vec<String>,

    /// Bits that a fault hits
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    bits: u16,

    /// Those bits are side by side
    #[arg(long)]
    burst: bool,

    /// Force bits to 0 or 1 instead of inverting them
    #[arg(long, value_name = "0|1", value_parser = ["0", "1"])]
    stuck: Option<String>,

    /// Seed of every choice: up to 64 hexadecimal digits
    #[arg(long, value_name = "HEX")]
    seed: Option<String>,

    /// How faults are made: plant runs at native speed; step goes by single steps, for code that must stay as it is; timer strikes at
    /// moments of time, for lines with time= or every=
    #[arg(long, value_name = "ENGINE", default_value = "plant", value_parser = ["plant", "step", "timer"])]
    engine: String,

    /// Run the target as N replicas of `steadfast run`; 0 is bare
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=8))]
    replicas: u8,

    /// Whose state faults strike, where the target runs as replicas: the program's, the agent's, that of log and control block, or that of
    /// the processes around them. The last includes two faults in one run, and needs root
    #[arg(long, value_name = "WHOSE", default_value = "program", value_parser = Victim::ALL.map(Victim::word))]
    victim: String,

    /// Only faults in this module or function, * and ? standing for other characters; may be given
    /// several times
    #[arg(long, value_name = "MODULE[!FUNCTION]")]
    only: Vec<String>,

    /// No faults in this module or function
    #[arg(long, value_name = "MODULE[!FUNCTION]")]
    except: Vec<String>,

    /// Faults of files only in those that match this, such as '*.db'; may be given several times
    #[arg(long, value_name = "PATTERN")]
    files: Vec<String>,

    /// Files of the working directory that are state, not output: a difference in these alone is masked and
    /// latent; may be given several times
    #[arg(long, value_name = "PATTERN")]
    state: Vec<String>,

    /// How output is compared: byte, lines, numeric=TOLERANCE, masked=REGEX, or command=CMD. The command gets two directories, golden and
    /// this run's, and exits with 0 (equal), 1 (different) or 2 (rejected)
    #[arg(long, value_name = "HOW", default_value = "byte")]
    compare: String,

    /// How the target says that it detected something: exit=N, signal=N, stderr=TEXT, or cc for
    /// programs built with `steadfast cc`
    #[arg(long, value_name = "HOW")]
    detect: Vec<String>,

    #[command(flatten)]
    server: ServerArgs,

    /// Standard input of the target
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,

    /// Directory whose contents are in the target's working directory when it starts
    #[arg(long, value_name = "DIR")]
    input: Option<PathBuf>,

    /// A variable of the target's environment, which else holds PATH, HOME, LANG and TZ alone
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,

    /// Let addresses differ from run to run
    #[arg(long)]
    aslr: bool,

    /// User that faulty runs have, for root: a number, or keep
    #[arg(long, value_name = "UID|keep")]
    user: Option<String>,

    /// Let the target reach the network
    #[arg(long)]
    network: bool,

    /// Address space of the target, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,

    /// Longest run without a fault, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,

    /// Exit status of a run without a fault; a target that ends otherwise is refused
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..=255))]
    golden_exit: i32,

    /// Where targets run; must be a place that their user can reach
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// The target and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Why arguments are not an order.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrderError {
    #[error("--{flag} must be {needed}, found '{found}'")]
    Flag {
        flag: &'static str,
        needed: String,
        found: String,
    },
    #[error(transparent)]
    Find(#[from] FindError),
    #[error("{0}")]
    Campaign(String, Option<String>),
}

impl Advise for OrderError {
    fn exit(&self) -> Own {
        match self {
            Self::Flag { .. } => Own::Usage,
            Self::Find(why) => why.exit(),
            Self::Campaign(..) => Own::Setup,
        }
    }

    fn fix(&self) -> Option<Remedy> {
        match self {
            Self::Flag { .. } => None,
            Self::Find(why) => why.fix(),
            Self::Campaign(_, fix) => fix.as_ref().map(Remedy::new),
        }
    }
}

impl From<CampaignError> for OrderError {
    fn from(why: CampaignError) -> Self {
        Self::Campaign(why.to_string(), why.fix().map(str::to_owned))
    }
}

pub(super) fn flag(flag: &'static str, needed: &str, found: &str) -> OrderError {
    OrderError::Flag {
        flag,
        needed: needed.into(),
        found: found.into(),
    }
}

/// How much of it, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub(crate) dir: PathBuf,
    pub(crate) runs: u64,
    pub(crate) jobs: Option<usize>,
    pub(crate) shard: Shard,
    pub(crate) budget: Option<Duration>,
}

impl Extent {
    /// For verbs that look at a target without a campaign.
    pub(crate) fn one() -> Self {
        Self {
            dir: PathBuf::new(),
            runs: 1,
            jobs: Some(1),
            shard: Shard { index: 0, of: 1 },
            budget: None,
        }
    }
}

/// The user that faulty runs have where root does not say: one that nobody is.
const NOBODY_ELSE: u32 = 61_000;

/// The program that the target's own PATH names, or else the caller's.
fn look_up(program: &OsStr, env: &[(String, String)]) -> Result<PathBuf, FindError> {
    let own = env
        .iter()
        .find(|(name, _)| name == "PATH")
        .map(|(_, path)| OsStr::new(path));
    let path = find::find(program, own)
        .or_else(|_| find::find(program, std::env::var_os("PATH").as_deref()))?;
    Ok(path.canonicalize().unwrap_or(path))
}

impl TargetArgs {
    /// The order that these arguments ask for.
    pub(crate) fn order(&self, extent: Extent) -> Result<Order, OrderError> {
        let (program, args) = self
            .command
            .split_first()
            .ok_or_else(|| flag("", "a command", ""))?;
        let env = self.environment()?;
        let path = look_up(program, &env)?;
        let ourselves = std::env::current_exe().and_then(|own| own.canonicalize());
        if ourselves.is_ok_and(|own| own == path) && args.first().is_some_and(|verb| verb == "run")
        {
            return Err(OrderError::Campaign(
                "a target needs to be the program itself, found 'steadfast run', of which the launcher alone would be struck".into(),
                Some("--replicas 2 -- CMD".into()),
            ));
        }
        let user = self.user(self.replicas == 0)?;
        if let Some(user) = user
            && let Some(closed) = os::closed_to(&path, user)
        {
            return Err(OrderError::Campaign(
                format!(
                    "{} needs to be a program that user {user} may run, found {} closed to others",
                    path.display(),
                    closed.display()
                ),
                Some(
                    "a program outside of it, by its path; or --user keep, with your own rights"
                        .into(),
                ),
            ));
        }
        let (models, lines) = self.faults()?;
        self.of_use(&models, &lines)?;
        let patterns = |name: &'static str, texts: &[String]| {
            let one = |text: &String| text.parse().map_err(|why: String| flag(name, &why, text));
            texts.iter().map(one).collect::<Result<Vec<_>, _>>()
        };
        let files = patterns("files", &self.files)?;
        let state = patterns("state", &self.state)?;
        let engine = match self.engine.as_str() {
            "step" => Engine::Step,
            "timer" => Engine::Timer,
            _ => Engine::Plant,
        };
        if self.aslr && engine != Engine::Plant {
            return Err(flag(
                "engine",
                "plant where --aslr lets addresses differ",
                &self.engine,
            ));
        }
        if engine != Engine::Plant && self.replicas > 0 {
            return Err(flag(
                "engine",
                "plant with --replicas: they carry faults out themselves",
                &self.engine,
            ));
        }
        if engine == Engine::Timer && lines.is_empty() {
            return Err(flag(
                "fault",
                "a line with time= or every=, for the timer engine",
                "a fault type",
            ));
        }
        let victim = Victim::from_word(&self.victim).unwrap_or_default();
        self.of_victim(victim, &models, &lines)?;
        let seed = match &self.seed {
            Some(text) => {
                Seed::parse(text).ok_or_else(|| flag("seed", "1 to 64 hexadecimal digits", text))?
            }
            // Whoever names none goes on with the one that is there.
            None => begun(&extent.dir)
                .map_or_else(Seed::fresh, Ok)
                .map_err(|why| {
                    OrderError::Campaign(
                        format!("a random seed is needed: {why}"),
                        Some("--seed 1".into()),
                    )
                })?,
        };
        let absolute = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
        let text = |arg: &OsStr| {
            arg.to_str()
                .map(str::to_owned)
                .ok_or_else(|| flag("", "a command in UTF-8", &arg.to_string_lossy()))
        };
        let mut argv = vec![text(program)?];
        for arg in args {
            argv.push(text(arg)?);
        }
        let own = std::env::current_exe().unwrap_or_default();
        let protect: Vec<String> = if self.replicas == 0 {
            Vec::new()
        } else {
            [own.to_string_lossy().as_ref(), "run", "--quiet", "-n"]
                .map(str::to_owned)
                .into_iter()
                .chain([self.replicas.to_string()])
                .collect()
        };
        let jobs = extent
            .jobs
            .unwrap_or_else(|| (steadfast_probe_cpus() / usize::from(self.replicas.max(1))).max(1));
        Ok(Order {
            spec: Spec {
                path,
                argv,
                env,
                stdin: self.stdin.as_ref().map(absolute),
                input: self.input.as_ref().map(absolute),
                aslr: self.aslr,
                // The address space of replicas holds more than the target's.
                memory: if protect.is_empty() {
                    self.memory << 20
                } else {
                    0
                },
                file_size: if protect.is_empty() {
                    1 << 30
                } else {
                    u64::MAX
                },
                nested: !protect.is_empty(),
                processes: 4096,
                user,
                driver: self.server.driver(self.network, self.replicas)?,
            },
            dir: extent.dir,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            models,
            lines,
            shape: Shape {
                count: self.bits,
                burst: self.burst,
                stuck: self.stuck.as_deref().map(|to| to == "1"),
            },
            runs: extent.runs,
            seed,
            engine,
            jobs,
            comparator: self.comparator()?,
            detector: self.detector()?,
            only: self.only.clone(),
            except: self.except.clone(),
            files,
            state,
            shard: extent.shard,
            protect,
            replicas: self.replicas,
            victim,
            patience: Duration::from_secs(self.patience),
            golden_exit: self.golden_exit,
            network: self.network,
            budget: extent.budget,
        })
    }

    /// Refuses what does not go with a victim other than the program.
    fn of_victim(
        &self,
        victim: Victim,
        models: &[Model],
        lines: &[String],
    ) -> Result<(), OrderError> {
        let wrong = |needed: &str| Err(flag("victim", needed, victim.word()));
        if victim.is_program() {
            return Ok(());
        }
        if !(2..=3).contains(&self.replicas) {
            return wrong("program without --replicas 2 or 3");
        }
        if !lines.is_empty() || models.iter().any(|model| model.is_storage()) {
            return wrong("program for lines and for faults of files");
        }
        if models.contains(&Model::Code) {
            return wrong("program for faults of code: agent-fixed strikes the agent's");
        }
        if victim != Victim::Agent && *models != Model::SEI {
            return wrong(
                "program or agent with --fault: the other victims have types of their own",
            );
        }
        if self.server.is_driven() {
            return wrong("program for a server");
        }
        if victim == Victim::Processes && !os::is_root() {
            return wrong("another one without root, which alone may write to other processes");
        }
        Ok(())
    }

    /// Refuses flags that nothing of what is asked for would follow.
    fn of_use(&self, models: &[Model], lines: &[String]) -> Result<(), OrderError> {
        let shaped = self.bits > 1 || self.burst || self.stuck.is_some();
        let narrowed = self.only.first().or(self.except.first());
        let line = lines.first().map_or("", String::as_str);
        if !lines.is_empty() && shaped {
            return Err(flag(
                "bits",
                "with fault types: a line names its bits",
                line,
            ));
        }
        if let Some(files) = self.files.first()
            && !models.iter().any(|model| model.is_storage())
        {
            return Err(flag(
                "files",
                "with fault types of files, such as rdata",
                files,
            ));
        }
        if let Some(scope) = narrowed
            && models.iter().all(|model| model.is_storage())
        {
            let needed = "with fault types of instructions: a line says itself where (at=, in=)";
            return Err(flag("only", needed, scope));
        }
        Ok(())
    }

    fn faults(&self) -> Result<(Vec<Model>, Vec<String>), OrderError> {
        let mut models = Vec::new();
        let mut lines = Vec::new();
        for word in &self.fault {
            if word.contains('=') {
                Fault::parse_all(word).map_err(|why| {
                    flag(
                        "fault",
                        "a line of docs/reference/fault-grammar.md",
                        &format!("{word} ({why})"),
                    )
                })?;
                lines.push(word.clone());
                continue;
            }
            for word in word.split(',') {
                match (word, Model::from_word(word)) {
                    ("sei", _) => models.extend(Model::SEI),
                    ("all", _) => models.extend(Model::ALL),
                    (_, Some(model)) => models.push(model),
                    _ => {
                        let words: Vec<&str> = Model::ALL
                            .iter()
                            .chain(&Model::STORAGE)
                            .map(|model| model.word())
                            .collect();
                        return Err(flag(
                            "fault",
                            &format!(
                                "sei, all, a line of docs/reference/fault-grammar.md, or of {}",
                                words.join(", ")
                            ),
                            word,
                        ));
                    }
                }
            }
        }
        if !lines.is_empty() && !models.is_empty() {
            return Err(flag(
                "fault",
                "types or lines, not both",
                &self.fault.join(" "),
            ));
        }
        let mut seen = std::collections::BTreeSet::new();
        models.retain(|model| seen.insert(*model));
        Ok((models, lines))
    }

    fn environment(&self) -> Result<Vec<(String, String)>, OrderError> {
        let mut env: Vec<(String, String)> = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", "/"),
            ("LANG", "C"),
            ("TZ", "UTC0"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .to_vec();
        for one in &self.env {
            let (name, value) = one
                .split_once('=')
                .ok_or_else(|| flag("env", "NAME=VALUE", one))?;
            env.retain(|(known, _)| known != name);
            env.push((name.to_owned(), value.to_owned()));
        }
        if self.detect.iter().any(|how| how == "cc") {
            let (name, value) = steadfast_inject::detector::EVENTS;
            env.push((name.to_owned(), value.to_owned()));
        }
        Ok(env)
    }

    fn user(&self, bare: bool) -> Result<Option<u32>, OrderError> {
        match self.user.as_deref() {
            Some("keep") => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| flag("user", "a number, or keep", text)),
            // Replicas make namespaces of their own, which a user in a sandbox may not.
            None if bare && os::is_root() => Ok(Some(NOBODY_ELSE)),
            None => Ok(None),
        }
    }

    fn comparator(&self) -> Result<Comparator, OrderError> {
        let wrong = || {
            flag(
                "compare",
                "byte, lines, numeric=TOLERANCE, masked=REGEX or command=CMD",
                &self.compare,
            )
        };
        match self.compare.split_once('=') {
            None if self.compare == "byte" => Ok(Comparator::Byte),
            None if self.compare == "lines" => Ok(Comparator::Lines),
            Some(("numeric", text)) => text
                .parse()
                .map(|tolerance| Comparator::Numeric { tolerance })
                .map_err(|_| wrong()),
            Some(("masked", text)) => text
                .parse()
                .map(|pattern| Comparator::Masked {
                    patterns: vec![pattern],
                })
                .map_err(|_| wrong()),
            Some(("command", text)) if !text.is_empty() => Ok(Comparator::Command {
                command: text.split_whitespace().map(str::to_owned).collect(),
            }),
            _ => Err(wrong()),
        }
    }

    fn detector(&self) -> Result<Detector, OrderError> {
        let mut out = Detector::default();
        for how in &self.detect {
            let wrong = || flag("detect", "exit=N, signal=N, stderr=TEXT or cc", how);
            match how.split_once('=') {
                Some(("exit", n)) => out.status = Some(n.parse().map_err(|_| wrong())?),
                Some(("signal", n)) => out.signal = Some(n.parse().map_err(|_| wrong())?),
                Some(("stderr", text)) => out.stderr = Some(text.to_owned()),
                None if how == "cc" => out.cc = true,
                _ => return Err(wrong()),
            }
        }
        Ok(out)
    }
}

fn steadfast_probe_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A duration such as `90s`, `10m` or `2h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "a time is a number with s, m or h, such as 10m".to_owned();
    let (digits, unit) = text.split_at(text.len().saturating_sub(1));
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    digits
        .parse::<u64>()
        .map(|n| Duration::from_secs(n * factor))
        .map_err(|_| wrong())
}

/// `I/N`, counted from 0.
pub(crate) fn shard(text: &str) -> Result<Shard, String> {
    let wrong = || "a shard is I/N with I below N, such as 0/4".to_owned();
    let (index, of) = text.split_once('/').ok_or_else(wrong)?;
    let shard = Shard {
        index: index.parse().map_err(|_| wrong())?,
        of: of.parse().map_err(|_| wrong())?,
    };
    if shard.index < shard.of {
        Ok(shard)
    } else {
        Err(wrong())
    }
}

/// Shows stages as they begin, for people.
pub(crate) fn stages<'a>(console: &'a mut Console<'_>, quiet: bool) -> impl FnMut(Progress) + 'a {
    move |progress| {
        if let (Progress::Stage(stage), false) = (progress, quiet) {
            console.say(&format!("inject: {stage}\n"));
        }
    }
}

/// The seed of a campaign that a directory holds.
fn begun(dir: &std::path::Path) -> Option<Seed> {
    let campaign = steadfast_inject::record::Dir::new(dir).campaign().ok()?;
    Seed::parse(&campaign.seed)
}

/// Does what a verb does with a target; a refusal is told and is its exit status.
pub(super) fn finish(
    console: &mut Console<'_>,
    work: impl FnOnce(&mut Console<'_>) -> Result<Exit, OrderError>,
) -> Exit {
    work(console).unwrap_or_else(|why| console.refuse(&why))
}
