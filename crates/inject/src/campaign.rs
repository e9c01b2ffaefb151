//! A campaign from its command to its last line.
//!
//! ```text
//!   golden runs ──► profile, twice ──► plan ──► audit ──► control runs ──► runs
//!   (stable?)       (native counts)   (drawn)  (n exists?) (limits)   (one line each)
//! ```
//!
//! Invariants
//!  1. The plan is on disk before the first run, and follows from seed and profile alone.
//!  2. A directory that has a plan is gone on with: finished runs are not repeated, others are
//!     not lost.
//!  3. Limits come from armed runs under the campaign's own load, not from bare ones.
//!  4. One caller at a time fills a directory; anybody may read it meanwhile.
//!
//! Not covered: callers on two machines who share a directory; a run that both do counts once, as the one who wrote
//! last says.

mod golden;
mod machine;
mod one;
mod order;
mod plan;
mod population;
mod victims;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast_contract::outcome::Outcome;
use steadfast_fault::{Fault, PathGlob, Trigger};

use self::machine::commit;
pub use self::machine::machine;
use self::one::Standard;
pub use self::order::Order;
pub(crate) use self::order::{KEPT, Kept};
use self::order::{command, patterns, same};
pub use self::plan::Drafted;
use self::plan::looked_through;
use crate::judge::Captured;
use crate::module::Module;
use crate::payload;
use crate::record::{
    self, Campaign, ControlRuns, Dir, Engine, Golden, Limits, Planned, Protection, RecordError,
    Run, SCHEMA,
};
use crate::sandbox::{Ask, Sandbox, SandboxError, Tell};
use crate::scratch::{self, Held, Scratch};
use crate::target::Discovered;

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
    Sandbox(#[from] SandboxError),
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
            Self::Sandbox(SandboxError::Failed { fix, .. }) => fix.as_deref(),
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

/// A target with its sandboxes.
#[derive(Debug)]
pub struct Field {
    order: Order,
    sandboxes: Vec<Sandbox>,
    /// What the target said first in the first counted run that did not end with 0.
    said: Option<String>,
    /// What the target maps.
    pub discovered: Discovered,
    modules: Vec<Module>,
    /// Where the sandboxes work: dropped after them.
    _scratch: Scratch,
}

impl Field {
    /// Makes sandboxes and looks at the target. The caller has one thread.
    ///
    /// # Errors
    /// When the sandbox or the target cannot be set up.
    pub fn open(order: &Order) -> Result<Self, CampaignError> {
        let scratch = Scratch::make(&order.scratch, scratch::RUNS).map_err(os(format!(
            "{} has to be writable",
            order.scratch.display()
        )))?;
        let mut sandboxes = Vec::new();
        for job in 0..order.jobs.max(1) {
            let dir = scratch.path().join(job.to_string());
            fs::create_dir_all(&dir)
                .map_err(os(format!("{} has to be writable", dir.display())))?;
            sandboxes.push(
                Sandbox::new(&order.spec, &dir, order.network)
                    .map_err(os("a sandbox for the target"))?,
            );
        }
        let Tell::Discovered(discovered) = sandboxes[0].ask(&Ask::Discover, order.patience)? else {
            return Err(needs("an answer about modules", "another", "report this"));
        };
        let modules = discovered
            .modules
            .iter()
            .map(Module::open)
            .collect::<io::Result<Vec<_>>>()
            .map_err(os("the target's files have to be readable"))?;
        for sandbox in &mut sandboxes[1..] {
            sandbox.ask(&Ask::Adopt(discovered.clone(), Vec::new()), order.patience)?;
        }
        Ok(Self {
            order: order.clone(),
            sandboxes,
            said: None,
            discovered,
            modules,
            _scratch: scratch,
        })
    }

    /// What the sandbox closed off, and what it could not.
    ///
    /// # Errors
    /// When the sandbox is gone.
    pub fn isolation(&mut self) -> Result<(Vec<String>, Vec<String>), CampaignError> {
        match self.sandboxes[0].ask(&Ask::Isolation, Duration::ZERO)? {
            Tell::Isolation(closed, open) => Ok((closed, open)),
            _ => Err(needs(
                "an answer about the sandbox",
                "another",
                "report this",
            )),
        }
    }

    /// The first sandbox.
    pub fn sandbox(&mut self) -> &mut Sandbox {
        &mut self.sandboxes[0]
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
    /// When it began to be prepared: the budget is one for all.
    begun: Instant,
    /// Nobody else fills the directory; of one that is only read, nothing.
    _held: Option<Held>,
}

impl Field {
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
            victim: order.victim,
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
            fault_types: drafted.fault_types.clone(),
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
            control_runs: ControlRuns::default(),
        }
    }
}

impl Running {
    /// What the sandbox closed off, and what it could not.
    ///
    /// # Errors
    /// When the sandbox is gone.
    pub fn isolation(&mut self) -> Result<(Vec<String>, Vec<String>), CampaignError> {
        self.field.isolation()
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
        let begun = Instant::now();
        let dir = Dir::new(&order.dir);
        let mut field = Field::open(order)?;
        let known =
            order.dir.join("campaign.json").exists() && order.dir.join("plan.jsonl").exists();
        if known {
            return Self::resume(order, dir, field, begun);
        }
        let (closed, open) = field.isolation()?;
        tell(Progress::Stage("running without a fault".into()));
        let (golden, captured) = field.golden()?;
        field.doubted(&golden, &captured, tell)?;
        let (drafted, profile) = field.draft(tell)?;
        field.countable(&golden, &drafted, &profile)?;
        let campaign = field.campaign(version, golden, &drafted, closed, open);
        let held = hold(order)?;
        order.keep()?;
        let golden_dir = order.dir.join("golden");
        // An order that was refused after this point may have left one.
        let _ = fs::remove_dir_all(&golden_dir);
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
            begun,
            _held: held,
        };
        running.share()?;
        if order.engine == Engine::Plant && order.protect.is_empty() {
            for line in &order.lines {
                running
                    .field
                    .sandbox()
                    .ask(&Ask::Arm(vec![line.clone()]), order.patience)?;
            }
        }
        tell(Progress::Stage("runs with faults that never come".into()));
        running.control_runs()?;
        running.dir.write_plan(&running.plan)?;
        running.dir.write_campaign(&running.campaign)?;
        Ok(running)
    }

    fn resume(
        order: &Order,
        dir: Dir,
        mut field: Field,
        begun: Instant,
    ) -> Result<Self, CampaignError> {
        let held = hold(order)?;
        let mut campaign = dir.campaign()?;
        let plan = dir.plan()?;
        same(order, &campaign, &plan)?;
        looked_through(&campaign, &plan)?;
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
            begun,
            _held: held,
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

    /// Tells the sandboxes what faults in a class need to know.
    fn share(&mut self) -> Result<(), CampaignError> {
        if !self.plan.iter().any(|p| p.fault.contains("class=")) {
            return Ok(());
        }
        let discovered = self.field.discovered.clone();
        for sandbox in &mut self.field.sandboxes {
            sandbox.ask(
                &Ask::Adopt(discovered.clone(), self.executed.clone()),
                Duration::ZERO,
            )?;
        }
        Ok(())
    }

    /// How much of the budget its preparation has taken.
    #[must_use]
    pub fn taken(&self) -> Duration {
        self.begun.elapsed()
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
        let begun = self.begun;
        let limits = self.campaign.limits;
        let limit = if limits.wall_ns == 0 {
            self.field.order.patience
        } else {
            Duration::from_nanos(limits.wall_ns)
        };
        let order = self.field.order.clone();
        let standard = Standard {
            order: &order,
            campaign: &self.campaign,
            golden: &self.golden,
            dir: &self.dir,
            limit,
        };
        let result = parallel(&mut self.field.sandboxes, |sandbox, _| {
            loop {
                // Each call gets on, however short its time is.
                let budget = order.budget.is_some_and(|budget| {
                    begun.elapsed() >= budget && next.load(Ordering::Relaxed) > 0
                });
                if budget || stop.load(Ordering::Relaxed) || over.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let Some(planned) = left.get(next.fetch_add(1, Ordering::Relaxed)) else {
                    return Ok(());
                };
                let judged = standard.judged(sandbox, planned);
                let run = judged
                    .and_then(|judged| standard.kept(judged, sandbox, planned))
                    .inspect_err(|_| over.store(true, Ordering::Relaxed))?;
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
        let planned = self.planned(id)?;
        let faults = planned.faults()?;
        // gdb counts for all threads of the process that it starts.
        let other = |fault: &Fault| !matches!(payload::bound(fault), None | Some((0, None)));
        if faults.iter().any(other) {
            return Err(needs(
                "a fault of any thread of the first process, for gdb",
                planned.fault.clone(),
                "replay without --gdb",
            ));
        }
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

    fn planned(&self, id: u64) -> Result<&Planned, CampaignError> {
        self.plan.iter().find(|p| p.id == id).ok_or_else(|| {
            needs(
                "a run of the plan",
                format!("id {id}"),
                &format!("an id from 0 to {}", self.plan.len().saturating_sub(1)),
            )
        })
    }

    /// Repeats one run; its line, and what it wrote. The directory stays as it is.
    ///
    /// # Errors
    /// When there is no such run, or it cannot be set up.
    pub fn replay(&mut self, id: u64) -> Result<(Planned, Run, Captured), CampaignError> {
        let planned = self.planned(id)?.clone();
        let order = self.field.order.clone();
        let standard = Standard {
            order: &order,
            campaign: &self.campaign,
            golden: &self.golden,
            dir: &self.dir,
            limit: Duration::from_nanos(self.campaign.limits.wall_ns).max(Duration::from_secs(1)),
        };
        let judged = standard.judged(&mut self.field.sandboxes[0], &planned)?;
        Ok((planned, judged.run, judged.captured))
    }
}

/// The directory of an order that is to be filled, for this caller alone: runs that two do at a time are done
/// twice.
fn hold(order: &Order) -> Result<Option<Held>, CampaignError> {
    if order.models.is_empty() && order.lines.is_empty() {
        return Ok(None);
    }
    let writable = || os(format!("{} has to be writable", order.dir.display()));
    fs::create_dir_all(&order.dir).map_err(writable())?;
    match Held::alone(&order.dir).map_err(writable())? {
        Some(held) => Ok(Some(held)),
        None => Err(needs(
            "a directory that nobody else fills at the same time",
            format!("another call that works in {}", order.dir.display()),
            "another --out, or this call again when that one has ended",
        )),
    }
}

/// Runs `work` on each sandbox in a thread of its own.
fn parallel(
    sandboxes: &mut [Sandbox],
    work: impl Fn(&mut Sandbox, usize) -> Result<(), CampaignError> + Sync,
) -> Result<(), CampaignError> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = sandboxes
            .iter_mut()
            .enumerate()
            .map(|(i, sandbox)| scope.spawn(move || work(sandbox, i)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|t| t.join().expect("no panics inside"))
    })
}
