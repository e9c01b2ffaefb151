//! What is asked for, and what a directory keeps of it.
//!
//! Invariant: a directory is gone on with by the order that it was begun with, or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use steadfast_fault::{Fault, PathGlob};

use super::one::is_storage;
use super::{CampaignError, needs, os};
use crate::chacha::Seed;
use crate::judge::Detector;
use crate::models::{Model, Shape};
use crate::record::{Campaign, Comparator, Dir, Engine, Planned, SCHEMA, Shard};
use crate::target::Spec;
use crate::victim::Victim;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Order {
    /// The target.
    pub spec: Spec,
    /// Where everything goes.
    pub dir: PathBuf,
    /// Where targets run; a directory of its own is made in it.
    pub scratch: PathBuf,
    /// Fault types to draw from.
    pub models: Vec<Model>,
    /// Faults to be run as they are written, instead of drawn ones.
    pub lines: Vec<String>,
    /// Bits of each.
    pub shape: Shape,
    /// Runs of each fault type (or of each line).
    pub runs: u64,
    /// Seed.
    pub seed: Seed,
    /// Engine.
    pub engine: Engine,
    /// Runs at the same time.
    pub jobs: usize,
    /// How outputs are compared.
    pub comparator: Comparator,
    /// How the program says that it detected something.
    pub detector: Detector,
    /// Only faults in these: `module` or `module!function`.
    pub only: Vec<String>,
    /// No faults in these.
    pub except: Vec<String>,
    /// Faults of storage only in these; empty: in all.
    pub files: Vec<PathGlob>,
    /// Files that are the target's state, not its output.
    pub state: Vec<PathGlob>,
    /// This part of the plan.
    pub shard: Shard,
    /// Command that protects: it gets `--events` and `--flip` and the target. Empty: bare.
    pub protect: Vec<String>,
    /// Replicas that it makes.
    pub replicas: u8,
    /// Whose state faults strike; another than the program is one of replicas.
    pub victim: Victim,
    /// Longest run that is waited for before limits are known.
    pub patience: Duration,
    /// Exit status of a run without a fault.
    pub golden_exit: i32,
    /// Network of the machine inside the sandbox.
    pub network: bool,
    /// Stop after so long.
    pub budget: Option<Duration>,
}

/// What `order.json` keeps of an order: enough to repeat a run, and to tell another order from it.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Kept {
    schema: u32,
    pub(crate) spec: Spec,
    engine: Engine,
    comparator: Comparator,
    pub(crate) detector: Detector,
    protect: Vec<String>,
    replicas: u8,
    patience_ms: u64,
    pub(crate) network: bool,
    /// Of each fault type; what a plan holds may be less.
    #[serde(default)]
    runs: Option<u64>,
    #[serde(default)]
    drawn: Option<Drawn>,
}

/// How faults are drawn, beside their types, and where.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Drawn {
    shape: Shape,
    only: Vec<String>,
    except: Vec<String>,
    files: Vec<String>,
}

impl Drawn {
    fn of(order: &Order) -> Self {
        Self {
            shape: order.shape,
            only: order.only.clone(),
            except: order.except.clone(),
            files: order.files.iter().map(PathGlob::to_string).collect(),
        }
    }
}

impl Kept {
    /// Of a directory that has one.
    pub(crate) fn read(dir: &Path) -> Option<Self> {
        let bytes = fs::read(dir.join(KEPT)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }
}

/// Where a directory keeps its order.
pub(crate) const KEPT: &str = "order.json";

/// Patterns that were written down.
pub(super) fn patterns(texts: &[String]) -> Vec<PathGlob> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// A replica that hangs is repaired when it has slept for two seconds, or burned three (docs/fault-model.md);
/// on a machine that others use it takes longer to burn them.
const REPLICAS_NOTICE_NS: u64 = 10_000_000_000;

impl Order {
    /// How much longer than any other a run may take in which a hang is repaired.
    pub(super) fn notices(&self) -> u64 {
        if self.protect.is_empty() {
            0
        } else {
            REPLICAS_NOTICE_NS
        }
    }

    /// An argument that names a file of the caller's directory, which the target does not find in its own.
    pub(super) fn left_behind(&self) -> Option<&str> {
        let there = |arg: &str| {
            let input = self.spec.input.as_ref();
            input.is_some_and(|input| input.join(arg).exists())
        };
        let args = self.spec.argv.iter().skip(1).map(String::as_str);
        args.filter(|arg| Path::new(arg).is_relative() && Path::new(arg).file_name().is_some())
            .find(|arg| Path::new(arg).is_file() && !there(arg))
    }

    /// Whether instructions have no part in it.
    pub(super) fn only_storage(&self) -> bool {
        if self.lines.is_empty() {
            !self.models.is_empty() && self.models.iter().all(|model| model.is_storage())
        } else {
            self.lines.iter().all(|line| is_storage(line))
        }
    }

    pub(super) fn keep(&self) -> Result<(), CampaignError> {
        let kept = Kept {
            schema: SCHEMA,
            spec: self.spec.clone(),
            engine: self.engine,
            comparator: self.comparator.clone(),
            detector: self.detector.clone(),
            protect: self.protect.clone(),
            replicas: self.replicas,
            patience_ms: u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX),
            network: self.network,
            runs: Some(self.runs),
            drawn: Some(Drawn::of(self)),
        };
        let path = self.dir.join(KEPT);
        fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&path, serde_json::to_vec_pretty(&kept)?))
            .map_err(os(format!("{} has to be writable", path.display())))
    }

    /// The order that a campaign was begun with, for one run of it.
    ///
    /// # Errors
    /// When the directory holds none.
    pub fn of(dir: &Path, scratch: &Path) -> Result<Self, CampaignError> {
        let path = dir.join(KEPT);
        let bytes = fs::read(&path).map_err(|_| {
            needs(
                &format!("{} has to be a campaign directory", dir.display()),
                format!("no {KEPT} in it"),
                "the directory that `steadfast inject run --out DIR` wrote",
            )
        })?;
        let kept: Kept = serde_json::from_slice(&bytes).map_err(|why| {
            needs(
                &format!("{} has to be of this version", path.display()),
                why.to_string(),
                "a new campaign",
            )
        })?;
        let campaign = Dir::new(dir).campaign()?;
        let golden_exit = campaign.golden.status;
        let seed = campaign.seed;
        Ok(Self {
            spec: kept.spec,
            dir: dir.to_owned(),
            scratch: scratch.to_owned(),
            models: Vec::new(),
            lines: Vec::new(),
            shape: Shape::default(),
            runs: 0,
            seed: Seed::parse(&seed)
                .ok_or_else(|| needs("64 hexadecimal digits of seed", seed, "a new campaign"))?,
            engine: kept.engine,
            jobs: 1,
            comparator: kept.comparator,
            detector: kept.detector,
            only: Vec::new(),
            except: Vec::new(),
            files: Vec::new(),
            state: patterns(&campaign.state),
            shard: Shard { index: 0, of: 1 },
            protect: kept.protect,
            replicas: kept.replicas,
            victim: campaign.victim,
            patience: Duration::from_millis(kept.patience_ms),
            golden_exit,
            network: kept.network,
            budget: None,
        })
    }
}

/// The target as it is written down.
pub(super) fn command(order: &Order) -> Vec<String> {
    let args = order.spec.argv.iter().skip(1).cloned();
    [order.spec.path.display().to_string()]
        .into_iter()
        .chain(args)
        .collect()
}

/// One thing that an order says, beside what a directory was begun with.
struct Said {
    what: &'static str,
    same: bool,
    /// What it was begun with.
    was: String,
    /// The flag that says it.
    flag: &'static str,
}

fn said(what: &'static str, same: bool, was: impl Into<String>, flag: &'static str) -> Said {
    let was = was.into();
    Said {
        what,
        same,
        was,
        flag,
    }
}

fn listed(items: &[String]) -> String {
    if items.is_empty() {
        "none".into()
    } else {
        items.join(" ")
    }
}

/// Refuses an order that is not the one that a directory was begun with: what it asks for otherwise would
/// be left out in silence.
pub(super) fn same(
    order: &Order,
    campaign: &Campaign,
    plan: &[Planned],
) -> Result<(), CampaignError> {
    let mut all = vec![said(
        "command",
        campaign.command == command(order),
        campaign.command.join(" "),
        "the command",
    )];
    // A repeated run takes everything else from the directory.
    if !order.models.is_empty() || !order.lines.is_empty() {
        all.extend(of_faults(order, campaign, plan));
        all.extend(of_target(order, campaign));
        if let Some(kept) = Kept::read(&order.dir) {
            all.extend(of_runs(order, &kept));
            all.extend(of_draw(order, &kept));
        }
    }
    match all.into_iter().find(|one| !one.same) {
        None => Ok(()),
        Some(Said {
            what, was, flag, ..
        }) => Err(needs(
            &format!("a directory of the same {what}, to go on with"),
            was,
            &format!("another --out, or {flag} that it was begun with"),
        )),
    }
}

/// What is to go wrong.
fn of_faults(order: &Order, campaign: &Campaign, plan: &[Planned]) -> [Said; 2] {
    let (is, was): (Vec<String>, Vec<String>) = if order.lines.is_empty() {
        let types = order.victim.fault_types(&order.models);
        let begun = campaign.fault_types.iter().map(|s| s.name.clone());
        (types, begun.collect())
    } else {
        let spelled = |line: &String| {
            let all = Fault::parse_all(line).unwrap_or_default();
            let text: Vec<String> = all.iter().map(Fault::to_string).collect();
            text.join("; ")
        };
        let first = plan.iter().take(campaign.fault_types.len());
        let begun = first.map(|planned| planned.fault.clone());
        (order.lines.iter().map(spelled).collect(), begun.collect())
    };
    let seed = format!("--seed {}", campaign.seed);
    let seeded = order.seed.to_string() == campaign.seed;
    [
        said("faults", is == was, was.join(","), "the --fault"),
        said("seed", seeded, seed, "the --seed"),
    ]
}

/// What `campaign.json` says of the target.
fn of_target(order: &Order, campaign: &Campaign) -> [Said; 6] {
    let replicas = if order.protect.is_empty() {
        0
    } else {
        order.replicas
    };
    let environment: BTreeMap<String, String> = order.spec.env.iter().cloned().collect();
    let begun = campaign.environment.iter().map(|(k, v)| format!("{k}={v}"));
    let stdin = order.spec.stdin.as_ref().map(|p| p.display().to_string());
    [
        said(
            "state",
            order.state == patterns(&campaign.state),
            listed(&campaign.state),
            "the --state",
        ),
        said(
            "standard input",
            stdin == campaign.stdin,
            campaign.stdin.as_deref().unwrap_or("none"),
            "the --stdin",
        ),
        said(
            "environment",
            environment == campaign.environment,
            begun.collect::<Vec<_>>().join(" "),
            "the --env",
        ),
        said(
            "protection",
            replicas == campaign.protection.replicas,
            format!("--replicas {}", campaign.protection.replicas),
            "the --replicas",
        ),
        said(
            "engine",
            replicas > 0 || order.engine == campaign.engine,
            format!("--engine {}", campaign.engine.word()),
            "the --engine",
        ),
        said(
            "exit status without a fault",
            order.golden_exit == campaign.golden.status,
            format!("--golden-exit {}", campaign.golden.status),
            "the --golden-exit",
        ),
    ]
}

/// How each run is started and judged.
fn of_runs(order: &Order, kept: &Kept) -> [Said; 8] {
    let (is, was) = (&order.spec, &kept.spec);
    let json = |value: serde_json::Result<String>| value.unwrap_or_default();
    let input = was.input.as_ref().map(|dir| dir.display().to_string());
    [
        said(
            "comparison",
            order.comparator == kept.comparator,
            json(serde_json::to_string(&kept.comparator)),
            "the --compare",
        ),
        said(
            "detector",
            order.detector == kept.detector,
            json(serde_json::to_string(&kept.detector)),
            "the --detect",
        ),
        said(
            "client",
            is.driver == was.driver,
            json(serde_json::to_string(&was.driver)),
            "the --driver and what goes with it",
        ),
        said(
            "files at the start",
            is.input == was.input,
            input.unwrap_or("none".into()),
            "the --input",
        ),
        said(
            "addresses",
            is.aslr == was.aslr,
            if was.aslr { "--aslr" } else { "fixed ones" },
            "those",
        ),
        said(
            "memory",
            is.memory == was.memory,
            format!("--memory {}", was.memory >> 20),
            "the --memory",
        ),
        said(
            "user",
            is.user == was.user,
            was.user.map_or("keep".into(), |user| user.to_string()),
            "the --user",
        ),
        said(
            "network",
            order.network == kept.network,
            if kept.network { "--network" } else { "none" },
            "the one",
        ),
    ]
}

/// How many faults were drawn, how, and where.
fn of_draw(order: &Order, kept: &Kept) -> Vec<Said> {
    let runs = kept.runs.unwrap_or(order.runs);
    let mut all = vec![said(
        "number of runs",
        order.runs == runs,
        format!("--runs {runs}"),
        "the --runs",
    )];
    // Directories that older versions began do not say more.
    let Some(was) = &kept.drawn else { return all };
    let is = Drawn::of(order);
    let Shape {
        count,
        burst,
        stuck,
    } = was.shape;
    let burst = if burst { " --burst" } else { "" };
    let stuck = stuck.map_or_else(String::new, |to| format!(" --stuck {}", u8::from(to)));
    all.extend([
        said(
            "bits",
            is.shape == was.shape,
            format!("--bits {count}{burst}{stuck}"),
            "the ones",
        ),
        said(
            "scope",
            (&is.only, &is.except) == (&was.only, &was.except),
            format!(
                "--only {} --except {}",
                listed(&was.only),
                listed(&was.except)
            ),
            "the ones",
        ),
        said(
            "files",
            is.files == was.files,
            listed(&was.files),
            "the --files",
        ),
    ]);
    all
}
