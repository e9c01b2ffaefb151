//! A campaign from its command to its last line.
//!
//! ```text
//!   golden runs ──► profile, twice ──► plan ──► audit ──► dummies ──► runs
//!   (stable?)       (native counts)   (drawn)  (n exists?) (limits)   (one line each)
//! ```
//!
//! Invariants
//!  1. The plan is on disk before the first run, and follows from seed and profile alone.
//!  2. A directory that has a plan is gone on with: finished runs are not repeated, others are
//!     not lost.
//!  3. Limits come from armed runs under the campaign's own load, not from bare ones.
//!
//! Not covered: drawing over time (state times residence); pruning.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use iced_x86::{Formatter as _, IntelFormatter};
use steadfast_integrity::fault::{Effect, Fault, PathGlob, Target, Trigger};
use steadfast_integrity::outcome::{Leaf, Outcome};

use crate::chacha::{Draw, Seed};
use crate::detector;
use crate::judge::{self, Captured, Detector, Evidence};
use crate::models::{Model, Shape};
use crate::module::Module;
use crate::profile::Profile;
use crate::record::{
    self, Campaign, Comparator, Dir, Dummies, Engine, Fired, Function, Golden, Limits, Machine,
    Place, Planned, Population, Protection, RecordError, Run, SCHEMA, Shard, Stratum,
};
use crate::scratch::{self, Scratch};
use crate::server;
use crate::storage::Transfers;
use crate::target::{Discovered, Ran, Spec};
use crate::warden::{Ask, Tell, Warden, WardenError};

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
    /// Longest run that is waited for before limits are known.
    pub patience: Duration,
    /// Network of the machine inside the box.
    pub network: bool,
    /// Stop after so long.
    pub budget: Option<Duration>,
}

/// What `order.json` keeps of an order: enough to repeat a run.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Kept {
    schema: u32,
    spec: Spec,
    engine: Engine,
    comparator: Comparator,
    detector: Detector,
    protect: Vec<String>,
    replicas: u8,
    patience_ms: u64,
    network: bool,
    /// Of each fault type; what a plan holds may be less.
    #[serde(default)]
    runs: Option<u64>,
}

/// Patterns that were written down.
fn patterns(texts: &[String]) -> Vec<PathGlob> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// A replica that hangs is repaired when it has slept for two seconds, or burned three (docs/fault-model.md);
/// on a machine that others use it takes longer to burn them.
const REPLICAS_NOTICE_NS: u64 = 10_000_000_000;

impl Order {
    /// How much longer than any other a run may take in which a hang is repaired.
    fn notices(&self) -> u64 {
        if self.protect.is_empty() {
            0
        } else {
            REPLICAS_NOTICE_NS
        }
    }

    /// Whether instructions have no part in it.
    fn only_storage(&self) -> bool {
        if self.lines.is_empty() {
            !self.models.is_empty() && self.models.iter().all(|model| model.is_storage())
        } else {
            self.lines.iter().all(|line| is_storage(line))
        }
    }

    fn keep(&self) -> Result<(), CampaignError> {
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
        };
        let path = self.dir.join("order.json");
        fs::create_dir_all(&self.dir)
            .and_then(|()| fs::write(&path, serde_json::to_vec_pretty(&kept)?))
            .map_err(os(format!("{} has to be writable", path.display())))
    }

    /// The order that a campaign was begun with, for one run of it.
    ///
    /// # Errors
    /// When the directory holds none.
    pub fn of(dir: &Path, scratch: &Path) -> Result<Self, CampaignError> {
        let path = dir.join("order.json");
        let bytes = fs::read(&path).map_err(|_| {
            needs(
                &format!("{} has to be a campaign directory", dir.display()),
                "no order.json in it",
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
            patience: Duration::from_millis(kept.patience_ms),
            network: kept.network,
            budget: None,
        })
    }
}

/// What there is to tell meanwhile.
#[derive(Debug, Clone)]
pub enum Progress {
    /// A stage begins.
    Stage(String),
    /// Runs done, of how many, and what became of them.
    Runs {
        /// Done.
        done: u64,
        /// Of this call.
        of: u64,
        /// By outcome.
        tally: BTreeMap<Outcome, u64>,
    },
}

/// Why a campaign cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// Something is needed that is not there.
    #[error("{needed}, found {found}")]
    Needs {
        /// The requirement.
        needed: String,
        /// What there is.
        found: String,
        /// What would help.
        fix: String,
    },
    /// The directory.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The process that runs targets.
    #[error(transparent)]
    Warden(#[from] WardenError),
    /// The operating system.
    #[error("{what}: {source}")]
    Os {
        /// What was being done.
        what: String,
        /// Why not.
        source: io::Error,
    },
}

impl CampaignError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> Option<&str> {
        match self {
            Self::Needs { fix, .. } => Some(fix),
            Self::Warden(WardenError::Failed { fix, .. }) => fix.as_deref(),
            _ => None,
        }
    }
}

fn needs(needed: &str, found: impl Into<String>, fix: &str) -> CampaignError {
    CampaignError::Needs {
        needed: needed.into(),
        found: found.into(),
        fix: fix.into(),
    }
}

fn os(what: impl Into<String>) -> impl FnOnce(io::Error) -> CampaignError {
    let what = what.into();
    move |source| CampaignError::Os { what, source }
}

/// Which run of a warden a fault has to go through.
fn ask(engine: Engine, lines: Vec<String>) -> Ask {
    match engine {
        Engine::Plant | Engine::Run => Ask::Plant(lines),
        Engine::Step => Ask::Step(lines),
        Engine::Timer => Ask::Timer(lines),
    }
}

/// A target with its wardens.
#[derive(Debug)]
pub struct Field {
    order: Order,
    wardens: Vec<Warden>,
    /// What the target said first in the first counted run that did not end with 0.
    said: Option<String>,
    /// What the target maps.
    pub discovered: Discovered,
    modules: Vec<Module>,
    /// Where the wardens work: dropped after them.
    _scratch: Scratch,
}

/// More executions than any run has.
const NEVER: u64 = 1 << 60;
/// Golden runs that are compared.
const GOLDEN: u32 = 3;
/// Armed runs that limits are taken from.
const DUMMIES: u64 = 20;

impl Field {
    /// Makes wardens and looks at the target. The caller has one thread.
    ///
    /// # Errors
    /// When the box or the target cannot be set up.
    pub fn open(order: &Order) -> Result<Self, CampaignError> {
        let scratch = Scratch::make(&order.scratch, scratch::RUNS).map_err(os(format!(
            "{} has to be writable",
            order.scratch.display()
        )))?;
        let mut wardens = Vec::new();
        for job in 0..order.jobs.max(1) {
            let dir = scratch.path().join(job.to_string());
            fs::create_dir_all(&dir)
                .map_err(os(format!("{} has to be writable", dir.display())))?;
            wardens.push(
                Warden::new(&order.spec, &dir, order.network)
                    .map_err(os("a box for the target"))?,
            );
        }
        let Tell::Discovered(discovered) = wardens[0].ask(&Ask::Discover, order.patience)? else {
            return Err(needs("an answer about modules", "another", "report this"));
        };
        let modules = discovered
            .modules
            .iter()
            .map(Module::open)
            .collect::<io::Result<Vec<_>>>()
            .map_err(os("the target's files have to be readable"))?;
        for warden in &mut wardens[1..] {
            warden.ask(&Ask::Adopt(discovered.clone(), Vec::new()), order.patience)?;
        }
        Ok(Self {
            order: order.clone(),
            wardens,
            said: None,
            discovered,
            modules,
            _scratch: scratch,
        })
    }

    /// What the box closed off, and what it could not.
    ///
    /// # Errors
    /// When the warden is gone.
    pub fn walls(&mut self) -> Result<(Vec<String>, Vec<String>), CampaignError> {
        match self.wardens[0].ask(&Ask::Walls, Duration::ZERO)? {
            Tell::Walls(closed, open) => Ok((closed, open)),
            _ => Err(needs("an answer about the box", "another", "report this")),
        }
    }

    /// The first warden.
    pub fn warden(&mut self) -> &mut Warden {
        &mut self.wardens[0]
    }

    /// Counts what the target executes.
    ///
    /// # Errors
    /// When it cannot, or when the target ends in another way while it is counted.
    pub fn profile(&mut self) -> Result<Profile, CampaignError> {
        let Tell::Profile(profile) = self.wardens[0].ask(&Ask::Profile, self.order.patience)?
        else {
            return Err(needs("an answer about counts", "another", "report this"));
        };
        if let Some(no) = unanswered(&self.wardens[0], &profile.ran)? {
            return Err(no);
        }
        // Nobody asked for a fault here: what it had counted until then is not what it executes.
        if let Some(signal) = profile.ran.signal {
            return Err(needs(
                "a target that ends by itself while it is counted",
                format!("death by signal {signal}"),
                if matches!(signal, libc::SIGKILL | libc::SIGXCPU) {
                    "--patience or --memory: counting takes up to six times as long"
                } else {
                    "--engine timer (lines with time= or every=) for what makes or reads its own code as it runs, \
                     or --patience and --memory, if it is slow or large"
                },
            ));
        }
        if self.said.is_none() && profile.ran.status != Some(0) {
            let said = fs::read(self.wardens[0].scratch().join("stderr")).unwrap_or_default();
            let said = String::from_utf8_lossy(&said);
            self.said = said.lines().next().map(str::to_owned);
        }
        Ok(*profile)
    }

    /// The instruction at a place, as people read it.
    #[must_use]
    pub fn place(&self, module: usize, addr: u64) -> Place {
        let m = &self.modules[module];
        let (disassembly, opcode) =
            m.instruction(addr)
                .map_or_else(Default::default, |(insn, _)| {
                    let mut text = String::new();
                    IntelFormatter::new().format(&insn, &mut text);
                    (text, format!("{:?}", insn.mnemonic()).to_lowercase())
                });
        Place {
            module: m.name.clone(),
            build_id: m.build_id.clone(),
            offset: format!("{:#x}", addr - m.found.lowest),
            function: m.symbol(addr).map(str::to_owned),
            line: None,
            disassembly,
            opcode,
        }
    }

    /// Executed functions, the busiest first.
    #[must_use]
    pub fn functions(&self, profile: &Profile) -> Vec<Function> {
        let mut by: BTreeMap<(usize, Option<&str>), (u64, u64)> = BTreeMap::new();
        for site in &profile.sites {
            let entry = by
                .entry((site.module, self.modules[site.module].symbol(site.addr)))
                .or_default();
            entry.0 += site.count;
            entry.1 += if site.refused.is_none() {
                site.count
            } else {
                0
            };
        }
        let mut out: Vec<Function> = by
            .into_iter()
            .map(|((module, function), (executions, reachable))| Function {
                schema: SCHEMA,
                module: self.modules[module].name.clone(),
                function: function.map(str::to_owned),
                executions,
                reachable,
            })
            .collect();
        out.sort_by_key(|f| std::cmp::Reverse(f.executions));
        out
    }

    fn chosen(&self, module: usize, addr: u64) -> bool {
        let within = |scope: &String| self.within(scope, module, addr);
        (self.order.only.is_empty() || self.order.only.iter().any(within))
            && !self.order.except.iter().any(within)
    }

    /// Whether an address lies in what `--only` or `--except` names.
    fn within(&self, scope: &str, module: usize, addr: u64) -> bool {
        let m = &self.modules[module];
        match scope.split_once('!') {
            Some((name, function)) => {
                wild(name, &m.name) && m.symbol(addr).is_some_and(|own| wild(function, own))
            }
            None => wild(scope, &m.name),
        }
    }

    /// Refuses a selector that selects nothing of what was executed: it is a slip.
    fn select(&self, profile: &Profile) -> Result<(), CampaignError> {
        let empty = self
            .order
            .only
            .iter()
            .chain(&self.order.except)
            .find(|scope| {
                !profile
                    .sites
                    .iter()
                    .any(|site| self.within(scope, site.module, site.addr))
            });
        let Some(scope) = empty else { return Ok(()) };
        let modules: BTreeSet<&str> = profile
            .sites
            .iter()
            .map(|site| self.modules[site.module].name.as_str())
            .collect();
        let functions = self.functions(profile);
        let (module, of) = scope.split_once('!').unwrap_or((scope, ""));
        let mut busiest = functions
            .iter()
            .filter(|f| wild(module, &f.module))
            .filter_map(|f| f.function.as_deref())
            .take(6)
            .peekable();
        let found = if of.is_empty() || !modules.iter().any(|name| wild(module, name)) {
            let names: Vec<&str> = modules.into_iter().collect();
            format!("the modules {}", names.join(", "))
        } else if busiest.peek().is_none() {
            format!("no names of functions in {module}")
        } else {
            format!(
                "of its functions {} and others",
                busiest.collect::<Vec<_>>().join(", ")
            )
        };
        Err(needs(
            &format!("--only and --except have to name what the target executes, not '{scope}'"),
            found,
            "MODULE or MODULE!FUNCTION of `steadfast inject profile`; * and ? stand for other characters",
        ))
    }

    /// What faults can be drawn from.
    #[must_use]
    pub fn population(&self, profile: &Profile, again: Option<&Profile>) -> Population {
        let mut out = Population {
            unreachable: BTreeMap::new(),
            ..Population::default()
        };
        let second: HashMap<(usize, u64), u64> = again
            .iter()
            .flat_map(|p| &p.sites)
            .map(|s| ((s.module, s.addr), s.count))
            .collect();
        for site in &profile.sites {
            out.dynamic += site.count;
            out.sites += 1;
            *out.by_module
                .entry(self.modules[site.module].name.clone())
                .or_default() += site.count;
            if !self.chosen(site.module, site.addr) {
                out.excluded += site.count;
            } else if let Some(reason) = &site.refused {
                *out.unreachable
                    .entry(format!("window: {reason}"))
                    .or_default() += site.count;
            } else {
                out.reachable += site.count;
                if again.is_some() && second.get(&(site.module, site.addr)) != Some(&site.count) {
                    out.unstable += site.count;
                }
            }
        }
        if profile.unknown > 0 {
            out.dynamic += profile.unknown;
            out.unreachable
                .insert("not counted (at most)".into(), profile.unknown);
        }
        out
    }
}

/// A plan, and what was found on the way.
#[derive(Debug)]
pub struct Drafted {
    /// By id.
    pub plan: Vec<Planned>,
    /// One for each fault type.
    pub strata: Vec<Stratum>,
    /// What was drawn from.
    pub population: Population,
    /// By module and address.
    pub executed: Vec<(usize, u64)>,
    /// Whether instructions were counted.
    pub counted: bool,
}

struct Candidate {
    module: usize,
    addr: u64,
    count: u64,
}

/// Executions that are certain, by module and address: the fewest that any pass counted.
type Certain = HashMap<(usize, u64), u64>;

/// What faults of one type are drawn from: instructions, and the sum of executions up to each.
struct Pool {
    model: Model,
    from: Vec<Candidate>,
    ends: Vec<u64>,
    /// Executions that can have the fault, and those of them that the engine reaches.
    all: u64,
    reachable: u64,
}

/// Passes over a plan's sites in a target with threads: how often what waits for something goes round
/// differs from run to run, and draws beyond what came in each pass are drawn again. Three have been
/// enough for small Go programs, whose runtime does that.
const AUDITS: u64 = 5;

impl Field {
    /// Draws a plan and audits it: every site of it is counted once more, exactly.
    ///
    /// # Errors
    /// When there is nothing to draw from.
    pub fn draft(
        &mut self,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(Drafted, Profile), CampaignError> {
        if self.order.engine == Engine::Timer {
            // Moments are not drawn from instructions, and what the timer is for may not be countable.
            return Ok((
                self.written(Population::default(), Vec::new(), false)?,
                Profile::default(),
            ));
        }
        let transfers = self.watched(tell)?;
        if self.order.only_storage() {
            return Ok((self.of_storage(transfers.as_ref())?, Profile::default()));
        }
        tell(Progress::Stage("counting what the target executes".into()));
        let profile = self.profile()?;
        self.select(&profile)?;
        let again = self.profile()?;
        let mut population = self.population(&profile, Some(&again));
        population.transfers = transfers.as_ref().map_or(0, |t| t.list.len() as u64);
        let executed: Vec<(usize, u64)> =
            profile.sites.iter().map(|s| (s.module, s.addr)).collect();
        if !self.order.lines.is_empty() {
            return Ok((self.written(population, executed, true)?, profile));
        }
        // A site that is executed less often in some runs is drawn from for what is certain.
        let mut certain: Certain = again
            .sites
            .iter()
            .map(|s| ((s.module, s.addr), s.count))
            .collect();
        for site in &profile.sites {
            let least = certain.entry((site.module, site.addr)).or_default();
            *least = site.count.min(*least);
        }
        tell(Progress::Stage("drawing the plan".into()));
        let mut strata = Vec::new();
        let mut drawn: Vec<Vec<Planned>> = Vec::new();
        for (number, model) in (0..).zip(self.order.models.clone()) {
            let (stratum, planned) = match &transfers {
                Some(transfers) if model.is_storage() => {
                    self.drawn_from(model, number, transfers)?
                }
                _ => self.drawn(self.pool(model, &profile, &certain), number)?,
            };
            strata.push(stratum);
            drawn.push(planned);
        }
        let mut plan = in_turns(drawn, &mut strata);
        tell(Progress::Stage("auditing the plan's sites".into()));
        self.audit(&mut plan, &profile, &mut certain)?;
        Ok((
            Drafted {
                plan,
                strata,
                population,
                executed,
                counted: true,
            },
            profile,
        ))
    }

    /// A plan whose faults are all of storage: instructions have no part in it.
    fn of_storage(&self, transfers: Option<&Transfers>) -> Result<Drafted, CampaignError> {
        let mut drafted = self.written(Population::default(), Vec::new(), false)?;
        if let Some(transfers) = transfers {
            drafted.population.transfers = transfers.list.len() as u64;
        }
        if let Some(transfers) = transfers.filter(|_| self.order.lines.is_empty()) {
            let mut drawn = Vec::new();
            for (number, model) in (0..).zip(self.order.models.clone()) {
                let (stratum, planned) = self.drawn_from(model, number, transfers)?;
                drafted.strata.push(stratum);
                drawn.push(planned);
            }
            drafted.plan = in_turns(drawn, &mut drafted.strata);
        }
        Ok(drafted)
    }

    /// The instructions that can have a fault of this type.
    fn pool(&self, model: Model, profile: &Profile, certain: &Certain) -> Pool {
        let mut pool = Pool {
            model,
            from: Vec::new(),
            ends: Vec::new(),
            all: 0,
            reachable: 0,
        };
        let mut sum = 0;
        for site in profile
            .sites
            .iter()
            .filter(|s| self.chosen(s.module, s.addr))
        {
            let Some((insn, _)) = self.modules[site.module].instruction(site.addr) else {
                continue;
            };
            if !model.concerns(&insn) {
                continue;
            }
            pool.all += site.count;
            // Bare, code is written over where it stands; replicas have it go wrong on the way.
            let in_place = model == Model::Code && self.order.protect.is_empty();
            let windowed = site.refused.is_none() || self.order.engine == Engine::Step || in_place;
            if !windowed || model.obstacle(&insn).is_some() {
                continue;
            }
            pool.reachable += site.count;
            let count = certain
                .get(&(site.module, site.addr))
                .copied()
                .unwrap_or(0)
                .min(site.count);
            if count > 0 {
                sum += count;
                pool.ends.push(sum);
                pool.from.push(Candidate {
                    module: site.module,
                    addr: site.addr,
                    count,
                });
            }
        }
        pool
    }

    /// Draws the faults of one type from executed instructions.
    fn drawn(&self, pool: Pool, number: u32) -> Result<(Stratum, Vec<Planned>), CampaignError> {
        if pool.from.is_empty() {
            return Err(needs(
                &format!(
                    "a campaign of {} needs an executed instruction that can have it",
                    pool.model.word()
                ),
                format!("{} executions, none reachable", pool.all),
                "another --fault, or a wider --only",
            ));
        }
        let mut planned = Vec::new();
        for run in 0..self.order.runs {
            planned.extend(self.draw(&pool, &mut self.order.seed.stream(number, run))?);
        }
        let stratum = Stratum {
            name: pool.model.word().into(),
            population: pool.all,
            reachable: pool.reachable,
            planned: planned.len() as u64,
            weight: 0.0,
        };
        Ok((stratum, planned))
    }

    /// What the target transfers between itself and its files, where faults are drawn from that.
    fn watched(
        &mut self,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Option<Transfers>, CampaignError> {
        let drawn = self.order.models.iter().any(|model| model.is_storage());
        let written: Vec<Fault> = self
            .order
            .lines
            .iter()
            .filter_map(|line| Fault::parse_all(line).ok())
            .flatten()
            .filter(Fault::is_storage)
            .collect();
        if !drawn && (written.is_empty() || self.order.engine != Engine::Plant) {
            return Ok(None);
        }
        if self.order.engine != Engine::Plant {
            return Err(needs(
                "the plant engine, for faults of storage",
                self.order.engine.word(),
                "--engine plant",
            ));
        }
        tell(Progress::Stage("watching what the target transfers".into()));
        let Tell::Transfers(transfers, ran) =
            self.wardens[0].ask(&Ask::Transfers, self.order.patience)?
        else {
            return Err(needs("an answer about transfers", "another", "report this"));
        };
        if let Some(no) = unanswered(&self.wardens[0], &ran)? {
            return Err(no);
        }
        for fault in &written {
            if let Some(file) = transfers.only_mapped(fault) {
                return Err(needs(
                    &format!("calls that move what \"{fault}\" waits for"),
                    format!("{file} mapped: what goes through a mapping is not struck"),
                    "a setting that has the program read or write it (sqlite3: PRAGMA mmap_size=0), or a fault of memory",
                ));
            }
        }
        if drawn {
            for file in transfers.mapped.iter().filter(|file| self.of_use(file)) {
                tell(Progress::Stage(format!(
                    "{file} is mapped: what goes through the mapping is not struck"
                )));
            }
        }
        Ok(Some(*transfers))
    }

    /// Whether faults are drawn from transfers of a file.
    fn of_use(&self, path: &str) -> bool {
        self.order.files.is_empty() || self.order.files.iter().any(|files| files.matches(path))
    }

    /// Draws the faults of one type from what was transferred: uniformly over the bytes for wrong
    /// data, else over the transfers that can have it.
    fn drawn_from(
        &self,
        model: Model,
        number: u32,
        transfers: &Transfers,
    ) -> Result<(Stratum, Vec<Planned>), CampaignError> {
        let chosen: Vec<bool> = transfers
            .paths
            .iter()
            .map(|path| self.of_use(path))
            .collect();
        let ends: Vec<u64> = transfers
            .list
            .iter()
            .scan(0, |sum, one| {
                if chosen[one.path] {
                    *sum += transfers.weight(model, one);
                }
                Some(*sum)
            })
            .collect();
        let all = ends.last().copied().unwrap_or(0);
        if all == 0 {
            let mut mapped = transfers.mapped.iter().filter(|file| self.of_use(file));
            return Err(needs(
                &format!(
                    "a campaign of {} needs a transfer between the target and a file that can have it",
                    model.word()
                ),
                match mapped.next() {
                    Some(file) => format!(
                        "none of {}; {file} is mapped, and what goes through a mapping is not struck",
                        transfers.list.len()
                    ),
                    None => format!("none of {}", transfers.list.len()),
                },
                "another --fault or --files",
            ));
        }
        let mut out = Vec::new();
        for run in 0..self.order.runs {
            let mut draw = self.order.seed.stream(number, run);
            let place = draw.below(all);
            let which = ends.partition_point(|end| *end <= place);
            let Some((fault, drawn, n)) = transfers.draw(model, which, self.order.shape, &mut draw)
            else {
                return Err(needs(
                    "a drawn fault has to be one of the grammar",
                    &transfers.paths[transfers.list[which].path],
                    "report this; --files leaves a file out",
                ));
            };
            let one = &transfers.list[which];
            let like = |other: &&crate::storage::Transfer| {
                other.path == one.path && other.write == one.write
            };
            out.push(Planned {
                schema: SCHEMA,
                id: 0,
                stratum: model.word().into(),
                fault,
                site: None,
                register: None,
                bits: drawn.bits,
                n: Some(n),
                executions: Some(transfers.list.iter().filter(like).count() as u64),
            });
        }
        let stratum = Stratum {
            name: model.word().into(),
            population: all,
            reachable: all,
            planned: out.len() as u64,
            weight: 0.0,
        };
        Ok((stratum, out))
    }

    /// One fault: an execution, then a place of its instruction, then bits; none where the instruction
    /// has no such place after all.
    fn draw(&self, pool: &Pool, draw: &mut Draw) -> Result<Option<Planned>, CampaignError> {
        let Pool { model, ends, .. } = pool;
        let execution = draw.below(ends.last().copied().unwrap_or(0));
        let at = ends.partition_point(|end| *end <= execution);
        let candidate = &pool.from[at];
        let n = execution - (ends[at] - candidate.count) + 1;
        let module = &self.modules[candidate.module];
        let drawn = module
            .instruction(candidate.addr)
            .and_then(|(insn, _)| model.draw(&insn, self.order.shape, draw));
        let Some(drawn) = drawn else { return Ok(None) };
        let hits = if *model == Model::Code {
            "n=1..".to_owned()
        } else {
            format!("n={n}")
        };
        let fault = format!(
            "at={}+{:#x} {hits} {}",
            module.spelled(),
            candidate.addr - module.found.lowest,
            drawn.effect
        );
        let parsed: Fault =
            fault
                .parse()
                .map_err(|why: steadfast_integrity::fault::FaultError| {
                    needs(
                        "a drawn fault has to be one of the grammar",
                        why.to_string(),
                        "report this",
                    )
                })?;
        Ok(Some(Planned {
            schema: SCHEMA,
            id: 0,
            stratum: model.word().into(),
            fault: parsed.to_string(),
            site: Some(self.place(candidate.module, candidate.addr)),
            register: drawn.register,
            bits: drawn.bits,
            n: Some(n),
            executions: Some(candidate.count),
        }))
    }

    /// Faults that were written down, each as often as asked for.
    fn written(
        &self,
        population: Population,
        executed: Vec<(usize, u64)>,
        counted: bool,
    ) -> Result<Drafted, CampaignError> {
        let mut plan = Vec::new();
        let mut strata = Vec::new();
        for (number, line) in self.order.lines.iter().enumerate() {
            let faults = Fault::parse_all(line).map_err(|why| {
                needs(
                    "a fault of docs/fault-grammar.md",
                    why.to_string(),
                    &why.fix,
                )
            })?;
            let Some(first) = faults.first() else {
                return Err(needs(
                    "a fault of docs/fault-grammar.md",
                    "an empty line",
                    "at=MODULE+OFFSET n=1 reg=rax bit=3",
                ));
            };
            let below = faults.iter().filter(|fault| fault.is_storage()).count();
            if !self.order.protect.is_empty() && below > 0 && below < faults.len() {
                return Err(needs(
                    "faults of storage, or others, in a line of a campaign with --replicas",
                    "both: the first are below all replicas, the second in one",
                    "a line for each, or the campaign without --replicas",
                ));
            }
            let name = format!("{}-{number}", first.model());
            strata.push(Stratum {
                name: name.clone(),
                population: population.dynamic,
                reachable: population.reachable,
                planned: self.order.runs,
                weight: 0.0,
            });
            let text: Vec<String> = faults.iter().map(Fault::to_string).collect();
            for run in 0..self.order.runs {
                plan.push(Planned {
                    schema: SCHEMA,
                    id: run * self.order.lines.len() as u64 + number as u64,
                    stratum: name.clone(),
                    fault: text.join("; "),
                    site: self.site_of(first),
                    register: None,
                    bits: Vec::new(),
                    n: None,
                    executions: None,
                });
            }
        }
        plan.sort_by_key(|planned| planned.id);
        #[allow(clippy::cast_precision_loss, reason = "shares")]
        let share = 1.0 / strata.len().max(1) as f64;
        strata.iter_mut().for_each(|s| s.weight = share);
        Ok(Drafted {
            plan,
            strata,
            population,
            executed,
            counted,
        })
    }

    fn site_of(&self, fault: &Fault) -> Option<Place> {
        let Trigger::Site { at, .. } = fault.trigger() else {
            return None;
        };
        let (module, addr) = self
            .modules
            .iter()
            .find_map(|m| Some((m.found.index, m.address(at)?.ok()?)))?;
        Some(self.place(module, addr))
    }

    /// The instruction of a planned fault.
    fn site(&self, planned: &Planned) -> Option<(usize, u64)> {
        let site = planned.site.as_ref()?;
        let module = self
            .modules
            .iter()
            .find(|m| m.name == site.module && m.build_id == site.build_id)?;
        let offset = u64::from_str_radix(site.offset.trim_start_matches("0x"), 16).ok()?;
        Some((module.found.index, module.found.lowest + offset))
    }

    /// How often the sites of a plan are executed in a run in which nothing else is counted.
    fn counted(&mut self, plan: &[Planned]) -> Result<Certain, CampaignError> {
        let sites: Vec<(usize, u64)> = plan
            .iter()
            .filter_map(|p| self.site(p))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        // One site a window: those that share one are counted in another pass.
        let mut counts = Certain::new();
        for part in sites.chunks(20_000) {
            let Tell::Counts(found, _) =
                self.wardens[0].ask(&Ask::Audit(part.to_vec()), self.order.patience)?
            else {
                return Err(needs("an answer about counts", "another", "report this"));
            };
            counts.extend(
                part.iter()
                    .zip(found)
                    .filter_map(|(site, count)| Some((*site, count?))),
            );
        }
        Ok(counts)
    }

    /// Counts every site of the plan; what was drawn beyond a site's executions is drawn again.
    fn audit(
        &mut self,
        plan: &mut [Planned],
        profile: &Profile,
        certain: &mut Certain,
    ) -> Result<(), CampaignError> {
        let rounds = if self.discovered.threads { AUDITS } else { 1 };
        let mut beyond = Vec::new();
        for round in 1..=rounds {
            let counts = self.counted(plan)?;
            for (site, count) in &counts {
                let least = certain.entry(*site).or_default();
                *least = *count.min(least);
            }
            beyond.clear();
            for (i, planned) in plan.iter_mut().enumerate() {
                let count = self.site(planned).and_then(|site| counts.get(&site));
                let Some(&count) = count else { continue };
                planned.executions = Some(count);
                let drawn = planned.n.filter(|_| planned.stratum != Model::Code.word());
                // One that is not executed at all can only be drawn elsewhere.
                if drawn.is_some_and(|n| n > count) && (count > 0 || rounds > 1) {
                    beyond.push(i);
                }
            }
            if beyond.is_empty() {
                return Ok(());
            }
            if round < rounds {
                self.draw_again(plan, &beyond, round, profile, certain)?;
            }
        }
        // A profile that is wrong about many sites is wrong.
        if beyond.len() * 20 > plan.len() && beyond.len() > 2 {
            return Err(needs(
                "a target that executes the same instructions in each run",
                format!(
                    "{} of {} drawn executions that did not happen in another run",
                    beyond.len(),
                    plan.len()
                ),
                "fix its seed, its clock and its threads (PYTHONHASHSEED=0, --env), --only what does not \
                 wait for others, or --engine timer",
            ));
        }
        for i in beyond {
            let planned = &mut plan[i];
            let count = planned.executions.unwrap_or(0);
            if count == 0 {
                continue;
            }
            let n = self.order.seed.stream(u32::MAX, planned.id).below(count) + 1;
            planned.n = Some(n);
            let (head, rest) = planned
                .fault
                .split_once(" n=")
                .unwrap_or((&planned.fault, ""));
            let tail = rest.split_once(' ').map_or("", |(_, tail)| tail);
            planned.fault = format!("{head} n={n} {tail}");
        }
        Ok(())
    }

    /// Draws some faults of a plan anew, from what is certain by now.
    fn draw_again(
        &self,
        plan: &mut [Planned],
        which: &[usize],
        round: u64,
        profile: &Profile,
        certain: &Certain,
    ) -> Result<(), CampaignError> {
        for model in &self.order.models {
            let of = |i: &&usize| plan[**i].stratum == model.word();
            let ours: Vec<usize> = which.iter().filter(of).copied().collect();
            if ours.is_empty() {
                continue;
            }
            let pool = self.pool(*model, profile, certain);
            if pool.from.is_empty() {
                continue;
            }
            for i in ours {
                let id = plan[i].id;
                let mut draw = self.order.seed.stream(u32::MAX - 2, id * AUDITS + round);
                if let Some(planned) = self.draw(&pool, &mut draw)? {
                    plan[i] = Planned { id, ..planned };
                }
            }
        }
        Ok(())
    }
}

/// The state of a directory that is being filled.
#[derive(Debug)]
pub struct Running {
    field: Field,
    dir: Dir,
    /// What stands in `campaign.json`.
    pub campaign: Campaign,
    plan: Vec<Planned>,
    golden: Captured,
    executed: Vec<(usize, u64)>,
}

/// The target as it is written down.
fn command(order: &Order) -> Vec<String> {
    let args = order.spec.argv.iter().skip(1).cloned();
    [order.spec.path.display().to_string()]
        .into_iter()
        .chain(args)
        .collect()
}

/// Refuses an order that is not the one that a directory was begun with: what it asks for otherwise would
/// be left out in silence.
fn same(order: &Order, campaign: &Campaign, plan: &[Planned]) -> Result<(), CampaignError> {
    let begun = |what: &str, was: String, fix: &str| {
        Err(needs(
            &format!("a directory of the same {what}, to go on with"),
            was,
            &format!("another --out, or {fix} that it was begun with"),
        ))
    };
    if campaign.command != command(order) {
        return begun("command", campaign.command.join(" "), "the command");
    }
    // A repeated run takes everything else from the directory.
    if order.models.is_empty() && order.lines.is_empty() {
        return Ok(());
    }
    let environment: BTreeMap<String, String> = order.spec.env.iter().cloned().collect();
    let stdin = order.spec.stdin.as_ref().map(|p| p.display().to_string());
    let replicas = if order.protect.is_empty() {
        0
    } else {
        order.replicas
    };
    let faults: Vec<String> = if order.lines.is_empty() {
        let names = order.models.iter().map(|model| model.word().to_owned());
        names.collect()
    } else {
        let spelled = |line: &String| {
            let all = Fault::parse_all(line).unwrap_or_default();
            let text: Vec<String> = all.iter().map(Fault::to_string).collect();
            text.join("; ")
        };
        order.lines.iter().map(spelled).collect()
    };
    let was: Vec<String> = if order.lines.is_empty() {
        campaign.strata.iter().map(|s| s.name.clone()).collect()
    } else {
        let first = plan.iter().take(campaign.strata.len());
        first.map(|planned| planned.fault.clone()).collect()
    };
    let kept = fs::read(order.dir.join("order.json")).unwrap_or_default();
    let kept = serde_json::from_slice::<Kept>(&kept).ok();
    let runs = kept.and_then(|kept| kept.runs).unwrap_or(order.runs);
    if faults != was {
        return begun("faults", was.join(","), "the --fault");
    }
    if order.runs != runs {
        return begun("number of runs", format!("--runs {runs}"), "the --runs");
    }
    if order.state != patterns(&campaign.state) {
        let was = match &campaign.state[..] {
            [] => "none".into(),
            some => some.join(" "),
        };
        return begun("state", was, "the --state");
    }
    if order.seed.to_string() != campaign.seed {
        return begun("seed", format!("--seed {}", campaign.seed), "the --seed");
    }
    if stdin != campaign.stdin {
        let was = campaign.stdin.clone().unwrap_or("none".into());
        return begun("standard input", was, "the --stdin");
    }
    if environment != campaign.environment {
        let was = campaign.environment.iter();
        let was: Vec<String> = was.map(|(k, v)| format!("{k}={v}")).collect();
        return begun("environment", was.join(" "), "the --env");
    }
    if replicas != campaign.protection.replicas {
        let was = format!("--replicas {}", campaign.protection.replicas);
        return begun("protection", was, "the --replicas");
    }
    if replicas == 0 && order.engine != campaign.engine {
        let was = format!("--engine {}", campaign.engine.word());
        return begun("engine", was, "the --engine");
    }
    Ok(())
}

/// Looks at the machine.
#[must_use]
pub fn machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let field = |text: &str, key: &str| {
        text.lines()
            .find(|l| l.starts_with(key))
            .and_then(|l| l.split_once([':', '=']))
            .map_or(String::new(), |(_, v)| {
                v.trim().trim_matches('"').to_owned()
            })
    };
    let release = read("/etc/os-release");
    Machine {
        cpu: field(&cpuinfo, "model name"),
        cpus: u32::try_from(steadfast_sys::cpu::allowed().len()).unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        os: format!(
            "{} {}",
            field(&release, "ID="),
            field(&release, "VERSION_ID=")
        ),
        root: steadfast_sys::procfs::is_privileged(),
    }
}

fn commit(dir: &Path) -> Option<String> {
    let git = |args: &[&str]| {
        let out = std::process::Command::new("git")
            .arg("-C")
            .arg(dir)
            .args(args)
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let head = git(&["rev-parse", "HEAD"])?;
    let dirty = git(&["status", "--porcelain", "-uno"]).is_some_and(|s| !s.is_empty());
    Some(if dirty { format!("{head}-dirty") } else { head })
}

impl Field {
    /// Refuses a target that ends in another way while it is counted, or executes nothing.
    fn countable(
        &self,
        golden: &Golden,
        drafted: &Drafted,
        profile: &Profile,
    ) -> Result<(), CampaignError> {
        let counted = self.order.protect.is_empty() && drafted.counted;
        if counted && profile.ran.status != Some(golden.status) {
            return Err(needs(
                "a counted run that ends as the others do",
                format!(
                    "status {:?}, signal {:?}, {} where it should be {}; it said {:?}",
                    profile.ran.status,
                    profile.ran.signal,
                    if profile.ran.timed_out {
                        "given up"
                    } else {
                        "ended"
                    },
                    golden.status,
                    self.said.as_deref().unwrap_or("nothing")
                ),
                "report this, with the program: a counter changed what it does",
            ));
        }
        if drafted.population.dynamic == 0 && drafted.counted {
            return Err(needs(
                "a target that executes something",
                "no instructions",
                "another command",
            ));
        }
        Ok(())
    }

    /// What is written down about a campaign before its first run.
    fn campaign(
        &self,
        version: &str,
        golden: Golden,
        drafted: &Drafted,
        closed: Vec<String>,
        open: Vec<String>,
    ) -> Campaign {
        let order = &self.order;
        Campaign {
            schema: SCHEMA,
            steadfast: version.into(),
            commit: std::env::current_dir().ok().and_then(|dir| commit(&dir)),
            unix_ms: std::time::SystemTime::now()
                .duration_since(std::time::UNIX_EPOCH)
                .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(0)),
            command: command(order),
            stdin: order.spec.stdin.as_ref().map(|p| p.display().to_string()),
            environment: order.spec.env.iter().cloned().collect(),
            protection: Protection {
                name: if order.protect.is_empty() {
                    "bare".into()
                } else {
                    format!("run -n {}", order.replicas)
                },
                replicas: if order.protect.is_empty() {
                    0
                } else {
                    order.replicas
                },
            },
            modules: self
                .modules
                .iter()
                .map(|m| record::Module {
                    name: m.name.clone(),
                    path: m.path().display().to_string(),
                    build_id: m.build_id.clone(),
                })
                .collect(),
            machine: machine(),
            seed: order.seed.to_string(),
            engine: if order.protect.is_empty() {
                order.engine
            } else {
                Engine::Run
            },
            population: drafted.population.clone(),
            strata: drafted.strata.clone(),
            planned: drafted.plan.len() as u64,
            shard: order.shard,
            golden,
            comparator: order.comparator.clone(),
            state: order.state.iter().map(PathGlob::to_string).collect(),
            limits: Limits::default(),
            sandbox: closed
                .into_iter()
                .chain(open.into_iter().map(|o| format!("not closed: {o}")))
                .collect(),
            dummies: Dummies::default(),
        }
    }
}

impl Running {
    /// What the box closed off, and what it could not.
    ///
    /// # Errors
    /// When the warden is gone.
    pub fn walls(&mut self) -> Result<(Vec<String>, Vec<String>), CampaignError> {
        self.field.walls()
    }

    /// Plans a campaign, or takes up the one that is in the directory.
    ///
    /// # Errors
    /// Whatever is in the way, before any run with a fault.
    pub fn prepare(
        order: &Order,
        version: &str,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<Self, CampaignError> {
        let dir = Dir::new(&order.dir);
        let mut field = Field::open(order)?;
        let known =
            order.dir.join("campaign.json").exists() && order.dir.join("plan.jsonl").exists();
        if known {
            return Self::resume(order, dir, field);
        }
        let (closed, open) = field.walls()?;
        tell(Progress::Stage("running without a fault".into()));
        let (golden, captured) = field.golden()?;
        let (drafted, profile) = field.draft(tell)?;
        field.countable(&golden, &drafted, &profile)?;
        let campaign = field.campaign(version, golden, &drafted, closed, open);
        order.keep()?;
        let golden_dir = order.dir.join("golden");
        captured
            .write(&golden_dir)
            .map_err(os(format!("{} has to be writable", golden_dir.display())))?;
        dir.write_profile(&field.functions(&profile))?;
        let mut running = Self {
            field,
            dir,
            campaign,
            plan: drafted.plan,
            golden: captured,
            executed: drafted.executed,
        };
        running.share()?;
        if order.engine == Engine::Plant && order.protect.is_empty() {
            for line in &order.lines {
                running
                    .field
                    .warden()
                    .ask(&Ask::Arm(vec![line.clone()]), order.patience)?;
            }
        }
        tell(Progress::Stage("runs with faults that never come".into()));
        running.dummies()?;
        running.dir.write_plan(&running.plan)?;
        running.dir.write_campaign(&running.campaign)?;
        Ok(running)
    }

    fn resume(order: &Order, dir: Dir, mut field: Field) -> Result<Self, CampaignError> {
        let mut campaign = dir.campaign()?;
        let plan = dir.plan()?;
        same(order, &campaign, &plan)?;
        field.order.state = patterns(&campaign.state);
        for (was, is) in campaign.modules.iter().zip(&field.modules) {
            if was.name != is.name || was.build_id != is.build_id {
                return Err(needs(
                    "the same files as when it was planned",
                    format!("another build of {}", is.name),
                    "another --out: this is a new campaign",
                ));
            }
        }
        if order.shard.of == 1 {
            // Whoever names no part goes on with the one that is there.
            field.order.shard = campaign.shard;
        } else if order.shard != campaign.shard {
            if !dir.runs()?.is_empty() {
                return Err(needs(
                    "the part of the plan that was begun with",
                    format!("--shard {}/{}", campaign.shard.index, campaign.shard.of),
                    "that --shard or none, or another --out",
                ));
            }
            campaign.shard = order.shard;
            dir.write_campaign(&campaign)?;
        }
        let golden = Captured::read_back(&order.dir.join("golden"))
            .map_err(os("the golden output has to be readable"))?;
        let mut running = Self {
            field,
            dir,
            campaign,
            plan,
            golden,
            executed: Vec::new(),
        };
        if running.plan.iter().any(|p| p.fault.contains("class=")) {
            running.executed = running
                .field
                .profile()?
                .sites
                .iter()
                .map(|s| (s.module, s.addr))
                .collect();
            running.share()?;
        }
        Ok(running)
    }

    /// Tells the wardens what faults in a class need to know.
    fn share(&mut self) -> Result<(), CampaignError> {
        if !self.plan.iter().any(|p| p.fault.contains("class=")) {
            return Ok(());
        }
        let discovered = self.field.discovered.clone();
        for warden in &mut self.field.wardens {
            warden.ask(
                &Ask::Adopt(discovered.clone(), self.executed.clone()),
                Duration::ZERO,
            )?;
        }
        Ok(())
    }

    /// Faults that are armed and never reached: the measure of time, and of false alarms.
    fn dummies(&mut self) -> Result<(), CampaignError> {
        let lines = self.never();
        let patience = self.field.order.patience;
        let golden = self.golden.clone();
        let status = self.campaign.golden.status;
        let comparator = self.campaign.comparator.clone();
        let order = self.field.order.clone();
        let next = AtomicUsize::new(0);
        let walls = Mutex::new((Vec::new(), 0_u64, 0_u64, None::<String>));
        let total = usize::try_from(DUMMIES).unwrap_or(0);
        let failed = parallel(&mut self.field.wardens, |warden, _| {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= total {
                    return Ok(());
                }
                let line = lines
                    .get(i % lines.len().max(1))
                    .map(|line| victim(&order, i as u64, line));
                let (ran, seen) = one(warden, &order, line.as_deref(), Engine::Plant, patience)?;
                let captured =
                    Captured::read(warden.scratch()).map_err(os("outputs have to be readable"))?;
                let compared = judge::compare(&comparator, &order.state, &golden, &captured);
                let alarm = seen.as_ref().is_some_and(|seen| seen.divergences > 0)
                    || heard(&order, warden, &ran).is_some()
                    || order.detector.spoke(&ran, &captured).is_some();
                let mut walls = walls.lock().expect("no panics inside");
                walls.0.push(ran.wall_ns);
                walls.1 += u64::from(ran.status == Some(status) && !compared.wrong() && !alarm);
                walls.2 += u64::from(alarm);
                if ran.status != Some(status) || compared.wrong() {
                    walls.3 = Some(format!(
                        "status {:?}, signal {:?}, {} differ, under {}",
                        ran.status,
                        ran.signal,
                        compared.differ.join(", "),
                        line.as_deref().unwrap_or("no fault")
                    ));
                }
            }
        });
        failed?;
        let (mut times, masked, false_alarms, wrong) =
            walls.into_inner().expect("no panics inside");
        if let Some(found) = wrong {
            return Err(needs(
                "runs with a fault that is never reached have to be as those without",
                found,
                "report this; --engine step leaves the program's code alone",
            ));
        }
        times.sort_unstable();
        self.limit_by(&times, masked, false_alarms);
        Ok(())
    }

    /// Faults of the plan, at an execution that never comes.
    fn never(&self) -> Vec<String> {
        let never = |p: &Planned| {
            let (head, rest) = p.fault.split_once(" n=")?;
            let tail = rest.split_once(' ').map_or("", |(_, tail)| tail);
            let usable = (p.site.is_some() || is_storage(&p.fault))
                && !p.fault.contains(';')
                && p.stratum != "code";
            usable.then(|| format!("{head} n={NEVER} {tail}"))
        };
        let most = usize::try_from(DUMMIES).unwrap_or(0);
        self.plan.iter().filter_map(never).take(most).collect()
    }

    /// Sets the campaign's limits by how long armed runs took, the shortest first.
    fn limit_by(&mut self, times: &[u64], masked: u64, false_alarms: u64) {
        let at = |share: usize| {
            times
                .get((times.len().saturating_sub(1)) * share / 100)
                .copied()
                .unwrap_or(0)
        };
        let (p50, p99) = (at(50), at(99));
        // Five times the slowest of ordinary runs, and a second for the machine's other work.
        let wall = (5 * p99).max(p99 + 1_000_000_000) + self.field.order.notices();
        self.campaign.dummies = Dummies {
            runs: times.len() as u64,
            masked,
            false_alarms,
            wall_ns_p99: p99,
            wall_ns_p50: p50,
        };
        self.campaign.limits = Limits {
            wall_ns: wall,
            cpu_ns: wall,
            slow_ns: 3 * p99,
            memory: self.field.order.spec.memory,
            file_size: self.field.order.spec.file_size,
        };
    }

    /// Runs what is left of the plan, until `stop` or the budget.
    ///
    /// # Errors
    /// When the test bed fails.
    pub fn run(
        &mut self,
        stop: &AtomicBool,
        decided: &(dyn Fn() -> bool + Sync),
        tell: &(dyn Fn(Progress) + Sync),
    ) -> Result<u64, CampaignError> {
        let done = self.dir.runs()?;
        let shard = self.field.order.shard;
        let left: Vec<&Planned> = self
            .plan
            .iter()
            .filter(|p| shard.has(p.id) && !done.contains_key(&p.id))
            .collect();
        let file = Mutex::new(self.dir.append()?);
        let next = AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        let tally: Mutex<BTreeMap<Outcome, u64>> = Mutex::default();
        let started = Instant::now();
        let limits = self.campaign.limits;
        let limit = if limits.wall_ns == 0 {
            self.field.order.patience
        } else {
            Duration::from_nanos(limits.wall_ns)
        };
        let engine = self.field.order.engine;
        let order = self.field.order.clone();
        let (golden, campaign, dir) = (&self.golden, &self.campaign, &self.dir);
        let result = parallel(&mut self.field.wardens, |warden, _| {
            loop {
                let budget = order
                    .budget
                    .is_some_and(|budget| started.elapsed() >= budget);
                if budget || stop.load(Ordering::Relaxed) || over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let Some(planned) = left.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return Ok(());
                };
                let run = judged(
                    warden, &order, planned, engine, campaign, golden, dir, limit,
                )
                .inspect_err(|_| {
                    over.store(true, Ordering::Relaxed);
                })?;
                file.lock().expect("no panics inside").add(&run)?;
                let mut tally = tally.lock().expect("no panics inside");
                *tally.entry(run.outcome.outcome()).or_default() += 1;
                let done: u64 = tally.values().sum();
                tell(Progress::Runs {
                    done,
                    of: left.len() as u64,
                    tally: tally.clone(),
                });
                // A gate is looked at now and then only: it reads the whole directory.
                if done.is_multiple_of(100) && decided() {
                    over.store(true, Ordering::Relaxed);
                }
            }
        });
        result?;
        Ok(tally.into_inner().expect("no panics inside").values().sum())
    }

    /// What a debugger needs to stand just before a run's fault: the address of its site and the
    /// execution.
    ///
    /// # Errors
    /// When there is no such run, or its fault has no site.
    pub fn whereabouts(&self, id: u64) -> Result<(u64, u64, String), CampaignError> {
        let planned = self.plan.iter().find(|p| p.id == id);
        let Some(planned) = planned else {
            return Err(needs(
                "a run of the plan",
                format!("id {id}"),
                &format!("an id from 0 to {}", self.plan.len().saturating_sub(1)),
            ));
        };
        let faults = planned.faults()?;
        let at = faults.first().and_then(|fault| match fault.trigger() {
            Trigger::Site { at, hits } => {
                let addr = self
                    .field
                    .modules
                    .iter()
                    .find_map(|m| m.address(at)?.ok())?;
                Some((addr, hits.first.get()))
            }
            _ => None,
        });
        at.map(|(addr, n)| (addr, n, planned.fault.clone()))
            .ok_or_else(|| {
                needs(
                    "a fault at one instruction, to stop there",
                    planned.fault.clone(),
                    "replay without --gdb",
                )
            })
    }

    /// Repeats one run; its line, and what it wrote.
    ///
    /// # Errors
    /// When there is no such run, or it cannot be set up.
    pub fn replay(&mut self, id: u64) -> Result<(Planned, Run, Captured), CampaignError> {
        let Some(planned) = self.plan.iter().find(|p| p.id == id).cloned() else {
            return Err(needs(
                "a run of the plan",
                format!("id {id}"),
                &format!("an id from 0 to {}", self.plan.len().saturating_sub(1)),
            ));
        };
        let limit = Duration::from_nanos(self.campaign.limits.wall_ns).max(Duration::from_secs(1));
        let order = self.field.order.clone();
        let warden = &mut self.field.wardens[0];
        let run = judged(
            warden,
            &order,
            &planned,
            order.engine,
            &self.campaign,
            &self.golden,
            &self.dir,
            limit,
        )?;
        let captured =
            Captured::read(warden.scratch()).map_err(os("outputs have to be readable"))?;
        Ok((planned, run, captured))
    }
}

impl Field {
    /// Runs without a fault until it is clear that they are alike.
    fn golden(&mut self) -> Result<(Golden, Captured), CampaignError> {
        let order = self.order.clone();
        let warden = &mut self.wardens[0];
        let mut golden = Golden {
            runs: GOLDEN,
            ..Golden::default()
        };
        let mut first: Option<(Ran, Captured)> = None;
        for _ in 0..GOLDEN {
            let (ran, seen) = one(warden, &order, None, Engine::Plant, order.patience)?;
            if seen.is_some_and(|seen| !seen.ended) {
                let said = fs::read(warden.scratch().join("stderr")).unwrap_or_default();
                let said = String::from_utf8_lossy(&said);
                return Err(needs(
                    "a target that `steadfast run` can run in the box",
                    format!(
                        "status {:?}: {}",
                        ran.status,
                        said.lines().next().unwrap_or("nothing said")
                    ),
                    "steadfast run -n 2 -- CMD, by hand; steadfast check",
                ));
            }
            if let Some(no) = unanswered(warden, &ran)? {
                return Err(no);
            }
            if ran.timed_out {
                return Err(needs(
                    "a target that ends",
                    format!("one that runs longer than {:?}", order.patience),
                    "--patience SECONDS, or a client that ends it",
                ));
            }
            let captured =
                Captured::read(warden.scratch()).map_err(os("outputs have to be readable"))?;
            golden.wall_ns_max = golden.wall_ns_max.max(ran.wall_ns);
            golden.cpu_ns_max = golden.cpu_ns_max.max(ran.cpu_ns);
            let Some(status) = ran.status else {
                return Err(needs(
                    "a target that exits by itself",
                    format!("death by signal {:?}", ran.signal),
                    "another command",
                ));
            };
            golden.status = status;
            if let Some((before, output)) = &first {
                let compared = judge::compare(&order.comparator, &[], output, &captured);
                if before.status != ran.status || compared.wrong() {
                    let name = compared
                        .differ
                        .first()
                        .cloned()
                        .unwrap_or_else(|| "the exit status".into());
                    return Err(needs(
                        "a target with the same output in each run without a fault",
                        format!(
                            "{name} differs between two of them{}",
                            first_difference(output.0.get(&name), captured.0.get(&name))
                        ),
                        "--compare masked=REGEX, lines or numeric=TOLERANCE; or fix its clock, seed or threads",
                    ));
                }
            } else {
                first = Some((ran, captured));
            }
        }
        let (_, captured) = first.expect("at least one golden run");
        golden.outputs = captured.digests();
        Ok((golden, captured))
    }
}

fn first_difference(a: Option<&Vec<u8>>, b: Option<&Vec<u8>>) -> String {
    let (Some(a), Some(b)) = (a, b) else {
        return String::new();
    };
    let at = a
        .iter()
        .zip(b)
        .position(|(x, y)| x != y)
        .unwrap_or(a.len().min(b.len()));
    let near = |bytes: &[u8]| {
        let from = at.saturating_sub(12);
        String::from_utf8_lossy(&bytes[from..bytes.len().min(at + 24)]).into_owned()
    };
    format!(" at byte {at}: {:?} and {:?}", near(a), near(b))
}

/// Whether a name is the one that a selector means: `*` stands for any characters, `?` for one.
fn wild(pattern: &str, name: &str) -> bool {
    // The place to go on from, when what a star stands for has to grow.
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    p = at + 1;
                    n = from + 1;
                    star = Some((at, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Why a server's run without a fault is not as it has to be.
fn unanswered(warden: &Warden, ran: &Ran) -> Result<Option<CampaignError>, CampaignError> {
    if ran.served.is_none() {
        return Ok(None);
    }
    let mut captured =
        Captured::read(warden.scratch()).map_err(os("outputs have to be readable"))?;
    if let Ok(words) = fs::read(warden.scratch().join(server::CLIENT)) {
        captured.0.insert(server::CLIENT.into(), words);
    }
    Ok(server::obstacle(ran, &captured)
        .map(|(found, fix)| needs("a server that answers its client", found, fix)))
}

/// What a program built with `steadfast cc` says by itself.
fn heard(order: &Order, warden: &Warden, ran: &Ran) -> Option<record::Detection> {
    let hit = ran
        .hits
        .iter()
        .filter(|hit| hit.hits > 0)
        .map(|hit| hit.tsc)
        .min();
    order
        .detector
        .cc
        .then(|| detector::spoke(warden.scratch(), hit))
        .flatten()
}

/// One run: bare, or under what protects.
fn one(
    warden: &mut Warden,
    order: &Order,
    line: Option<&str>,
    engine: Engine,
    limit: Duration,
) -> Result<(Ran, Option<judge::Seen>), WardenError> {
    let lines: Vec<String> = line.iter().map(|line| (*line).to_owned()).collect();
    let Some(first) = order.protect.first() else {
        return Ok((warden.run(&ask(engine, lines), limit)?, None));
    };
    let below = line.is_some_and(is_storage);
    let events = warden.scratch().join("events");
    let _ = fs::remove_file(&events);
    let mut argv = order.protect.clone();
    argv.push(format!("--events={}", events.display()));
    if let Some(line) = line.filter(|_| !below) {
        argv.push("--flip".into());
        argv.push(line.to_owned());
    }
    argv.push("--".into());
    argv.push(order.spec.path.display().to_string());
    argv.extend(order.spec.argv.iter().skip(1).cloned());
    let first = PathBuf::from(first);
    // Storage goes wrong below the replicas.
    let ask = if below {
        Ask::Around(first, argv, lines)
    } else {
        Ask::Bare(Some((first, argv)))
    };
    let ran = warden.run(&ask, limit)?;
    let seen = judge::events(&fs::read_to_string(&events).unwrap_or_default());
    Ok((ran, Some(seen)))
}

#[allow(clippy::too_many_arguments, reason = "one run's whole surroundings")]
fn judged(
    warden: &mut Warden,
    order: &Order,
    planned: &Planned,
    engine: Engine,
    campaign: &Campaign,
    golden: &Captured,
    dir: &Dir,
    limit: Duration,
) -> Result<Run, CampaignError> {
    let line = victim(order, planned.id, &planned.fault);
    let (ran, seen) = match one(warden, order, Some(&line), engine, limit) {
        Ok(done) => done,
        Err(WardenError::Failed { why, .. }) => (
            Ran {
                error: Some(why),
                ..Ran::default()
            },
            None,
        ),
        Err(gone) => return Err(gone.into()),
    };
    let captured = Captured::read(warden.scratch()).map_err(os("outputs have to be readable"))?;
    let mut compared = judge::compare(&campaign.comparator, &order.state, golden, &captured);
    if let Comparator::Command { command } = &campaign.comparator
        && compared.wrong()
    {
        asked(command, dir, warden, &captured, &mut compared)?;
    }
    let hits = hits(planned, &line, &ran, seen.as_ref())?;
    let detection = seen
        .as_ref()
        .and_then(|seen| seen.detection.clone())
        .or_else(|| heard(order, warden, &ran))
        .or_else(|| order.detector.spoke(&ran, &captured));
    let error_reply = server::said_so(order.spec.driver.as_ref(), golden, &captured, &compared);
    let outcome = judge::leaf(&Evidence {
        ran: &ran,
        hits,
        compared: &compared,
        status: campaign.golden.status,
        detection: detection.as_ref(),
        seen: seen.as_ref(),
        limits: &campaign.limits,
        error_reply,
    });
    let plain = matches!(outcome, Leaf::MaskedClean | Leaf::NotFired | Leaf::Slow);
    let mut run = Run {
        hits,
        fired: fired(&ran),
        status: ran.status,
        signal: ran.signal,
        wall_ns: ran.wall_ns,
        cpu_ns: ran.cpu_ns,
        setup_ns: ran.setup_ns,
        differ: [&compared.differ[..], &compared.latent[..]].concat(),
        detection,
        ..Run::new(planned, outcome)
    };
    if !compared.differ.is_empty() {
        run.outputs = captured.digests();
    }
    if !plain {
        run.evidence = Some(keep(dir, warden, planned, &ran, &captured, &compared)?);
    }
    Ok(run)
}

/// Keeps what shows how a run went wrong; the name of its directory.
fn keep(
    dir: &Dir,
    warden: &Warden,
    planned: &Planned,
    ran: &Ran,
    captured: &Captured,
    compared: &judge::Compared,
) -> Result<String, CampaignError> {
    let name = format!("evidence/{}", planned.id);
    let place = dir.path().join(&name);
    let failed = |source| CampaignError::Os {
        what: format!("{} has to be writable", place.display()),
        source,
    };
    fs::create_dir_all(&place).map_err(failed)?;
    // Whole outputs by the thousand would fill the disk: what differs is kept, up to a size.
    const KEPT_BYTES: usize = 1 << 20;
    let kept = Captured(
        captured
            .0
            .iter()
            .filter(|(name, bytes)| {
                let differs = compared.differ.contains(name) || compared.latent.contains(name);
                differs && bytes.len() <= KEPT_BYTES
            })
            .map(|(name, bytes)| (name.clone(), bytes.clone()))
            .collect(),
    );
    kept.write(&place).map_err(failed)?;
    let mut why = format!("{}\n", planned.fault);
    if let Some(error) = &ran.error {
        why.push_str(error);
        why.push('\n');
    }
    fs::write(place.join("fault"), why).map_err(failed)?;
    let events = warden.scratch().join("events");
    if events.exists() {
        fs::copy(events, place.join("events.jsonl")).map_err(failed)?;
    }
    Ok(name)
}

/// How often a run's faults hit.
fn hits(
    planned: &Planned,
    line: &str,
    ran: &Ran,
    seen: Option<&judge::Seen>,
) -> Result<u64, CampaignError> {
    // Written before the program begins: nothing inside it could tell.
    let code = planned.faults()?.iter().all(|f| {
        let hits = match f.trigger() {
            Trigger::Site { hits, .. } | Trigger::Class { hits, .. } => hits,
            _ => return false,
        };
        let code = matches!(
            f.effect(),
            Effect::Bits {
                target: Target::Code,
                ..
            }
        );
        code && hits.first.get() == 1
    });
    Ok(match seen {
        Some(seen) if !is_storage(line) => seen.hits,
        None if code && ran.error.is_none() => 1,
        _ => ran.hits.iter().map(|hit| hit.hits).sum(),
    })
}

/// The first hit of each fault that hit.
fn fired(ran: &Ran) -> Vec<Fired> {
    let hex = |value: u64| Some(format!("{value:#x}"));
    let first = |hit: &crate::target::Hit| Fired {
        n: hit.n,
        before: hex(hit.before),
        after: hex(hit.after),
        cpu: hit.file.is_none().then_some(hit.cpu),
        file: hit.file.clone(),
    };
    ran.hits
        .iter()
        .filter(|hit| hit.hits > 0)
        .map(first)
        .collect()
}

/// The client's own check of an output that differs.
fn asked(
    command: &[String],
    dir: &Dir,
    warden: &Warden,
    captured: &Captured,
    compared: &mut judge::Compared,
) -> Result<(), CampaignError> {
    let place = warden.scratch().with_extension("compared");
    let failed = || os(format!("{} has to be writable", place.display()));
    let _ = fs::remove_dir_all(&place);
    captured.write(&place).map_err(failed())?;
    let Some((program, args)) = command.split_first() else {
        return Ok(());
    };
    let status = std::process::Command::new(program)
        .args(args)
        .arg(dir.path().join("golden"))
        .arg(&place)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status()
        .map_err(os(format!("the comparing command {program} has to run")))?;
    let _ = fs::remove_dir_all(&place);
    match status.code() {
        Some(0) => compared.differ.clear(),
        Some(2) => compared.rejected = true,
        _ => {}
    }
    Ok(())
}

/// Runs `work` on each warden in a thread of its own.
fn parallel(
    wardens: &mut [Warden],
    work: impl Fn(&mut Warden, usize) -> Result<(), CampaignError> + Sync,
) -> Result<(), CampaignError> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = wardens
            .iter_mut()
            .enumerate()
            .map(|(i, warden)| scope.spawn(move || work(warden, i)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().expect("no panics inside"))
    })
}

/// Whether a line's faults are all of storage.
fn is_storage(line: &str) -> bool {
    Fault::parse_all(line).is_ok_and(|all| !all.is_empty() && all.iter().all(Fault::is_storage))
}

/// Puts the runs of several types in one order and gives them numbers.
#[allow(clippy::cast_precision_loss, reason = "shares")]
fn in_turns(drawn: Vec<Vec<Planned>>, strata: &mut [Stratum]) -> Vec<Planned> {
    let total: u64 = strata.iter().map(|s| s.population).sum();
    // Instructions, bytes and transfers cannot be weighed against each other.
    let storage = |s: &Stratum| Model::from_word(&s.name).is_some_and(Model::is_storage);
    let even = strata
        .iter()
        .any(storage)
        .then(|| 1.0 / strata.len() as f64);
    strata
        .iter_mut()
        .for_each(|s| s.weight = even.unwrap_or(s.population as f64 / total.max(1) as f64));
    // Types take turns, so that a campaign cut short is a smaller one of the same kind.
    let most = drawn.iter().map(Vec::len).max().unwrap_or(0);
    let mut plan: Vec<Planned> = Vec::new();
    for turn in 0..most {
        plan.extend(drawn.iter().filter_map(|list| list.get(turn)).cloned());
    }
    for (id, planned) in (0..).zip(&mut plan) {
        planned.id = id;
    }
    plan
}

/// The line with the replica that it strikes, which follows from the seed like everything else.
fn victim(order: &Order, id: u64, line: &str) -> String {
    if order.protect.is_empty() || is_storage(line) {
        return line.to_owned();
    }
    let replicas = u64::from(order.replicas.max(1));
    let victim = order.seed.stream(u32::MAX - 1, id).below(replicas);
    let faults = Fault::parse_all(line).unwrap_or_default();
    let lines = faults.iter().map(|fault| {
        if fault.victim().replicas.is_some() {
            fault.to_string()
        } else {
            format!("replica={victim} {fault}")
        }
    });
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_wildcards() {
        for (pattern, name, same) in [
            ("libc.so.6", "libc.so.6", true),
            ("libc*", "libc.so.6", true),
            ("*c*6", "libc.so.6", true),
            ("lib?.so.?", "libc.so.6", true),
            ("*", "", true),
            ("", "", true),
            ("lib", "libc", false),
            ("lib?", "lib", false),
            ("*x", "libc", false),
            ("a*b*c", "abbc", true),
        ] {
            assert_eq!(wild(pattern, name), same, "{pattern} {name}");
        }
    }
}
