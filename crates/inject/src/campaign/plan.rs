//! The plan: which execution of which instruction each run strikes, and where.
//!
//! ```text
//!   profile, twice ──► pool of each fault type ──► draws ──► audit: does the n-th execution come?
//!                                                    ▲           │ drawn again where it does not
//!                                                    └───────────┘
//! ```
//!
//! Invariants
//!  1. A plan follows from seed, profile and audit alone.
//!  2. Fault types take turns, so that a campaign cut short is a smaller one of the same kind.
//!
//! Not covered: drawing over time (state times residence); pruning.

use std::collections::{BTreeSet, HashMap};

use steadfast_fault::{Fault, Trigger};

use super::golden::unanswered;
use super::{CampaignError, Field, Progress, needs};
use crate::chacha::Draw;
use crate::models::Model;
use crate::profile::Profile;
use crate::record::{Campaign, Engine, FaultType, Place, Planned, Population, SCHEMA};
use crate::sandbox::{Ask, Tell};
use crate::storage::Transfers;

/// A plan, and what was found on the way.
#[derive(Debug)]
pub struct Drafted {
    /// By id.
    pub plan: Vec<Planned>,
    /// One for each fault type.
    pub fault_types: Vec<FaultType>,
    /// What was drawn from.
    pub population: Population,
    /// By module and address.
    pub executed: Vec<(usize, u64)>,
    /// Whether instructions were counted.
    pub counted: bool,
}

pub(super) struct Candidate {
    pub(super) module: usize,
    pub(super) addr: u64,
    pub(super) count: u64,
}

/// Executions that are certain, by module and address: the fewest that any pass counted.
pub(super) type Certain = HashMap<(usize, u64), u64>;

/// What faults of one type are drawn from: instructions, and the sum of executions up to each.
pub(super) struct Pool {
    model: Model,
    pub(super) from: Vec<Candidate>,
    pub(super) ends: Vec<u64>,
    /// Executions that can have the fault, and those of them that the engine reaches.
    all: u64,
    reachable: u64,
}

impl Pool {
    /// Executions that can have the fault.
    pub(super) fn all(&self) -> u64 {
        self.all
    }
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
        tell(Progress::Stage("looking for code without a counter".into()));
        self.beyond(&profile, &mut population)?;
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
        let mut fault_types = Vec::new();
        let mut drawn: Vec<Vec<Planned>> = Vec::new();
        let mut nowhere = None;
        if !self.order.victim.is_program() {
            (fault_types, drawn) = self.of_victim(&profile, &certain)?;
            let mut plan = in_turns(drawn, &mut fault_types);
            tell(Progress::Stage("auditing the plan's sites".into()));
            self.audit(&mut plan, &profile, &mut certain)?;
            return Ok((
                Drafted {
                    plan,
                    fault_types,
                    population,
                    executed,
                    counted: true,
                },
                profile,
            ));
        }
        for (number, model) in (0..).zip(self.order.models.clone()) {
            let found = match &transfers {
                Some(transfers) if model.is_storage() => self.drawn_from(model, number, transfers),
                _ => self.drawn(self.pool(model, &profile, &certain), number),
            };
            match found {
                Ok((fault_type, planned)) => {
                    fault_types.push(fault_type);
                    drawn.push(planned);
                }
                // Of several types one may have no place: a program without vectors is struck elsewhere.
                Err(Undrawn::Nowhere(why)) => {
                    tell(Progress::Stage(format!(
                        "{} is left out: nothing that the target executes can have it",
                        model.word()
                    )));
                    nowhere = Some(why);
                }
                Err(Undrawn::Failed(why)) => return Err(why),
            }
        }
        if let Some(why) = nowhere.filter(|_| fault_types.is_empty()) {
            return Err(why);
        }
        let mut plan = in_turns(drawn, &mut fault_types);
        tell(Progress::Stage("auditing the plan's sites".into()));
        self.audit(&mut plan, &profile, &mut certain)?;
        Ok((
            Drafted {
                plan,
                fault_types,
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
                let (fault_type, planned) = match self.drawn_from(model, number, transfers) {
                    Ok(found) => found,
                    Err(Undrawn::Nowhere(why) | Undrawn::Failed(why)) => return Err(why),
                };
                drafted.fault_types.push(fault_type);
                drawn.push(planned);
            }
            drafted.plan = in_turns(drawn, &mut drafted.fault_types);
        }
        Ok(drafted)
    }

    /// The instructions that can have a fault of this type.
    pub(super) fn pool(&self, model: Model, profile: &Profile, certain: &Certain) -> Pool {
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
    fn drawn(&self, pool: Pool, number: u32) -> Result<(FaultType, Vec<Planned>), Undrawn> {
        if pool.from.is_empty() {
            return Err(Undrawn::Nowhere(needs(
                &format!(
                    "a campaign of {} needs an executed instruction that can have it",
                    pool.model.word()
                ),
                format!("{} executions, none reachable", pool.all),
                "another --fault, or a wider --only",
            )));
        }
        let mut planned = Vec::new();
        for run in 0..self.order.runs {
            planned.extend(self.draw(&pool, &mut self.order.seed.stream(number, run))?);
        }
        let fault_type = FaultType {
            name: pool.model.word().into(),
            population: pool.all,
            reachable: pool.reachable,
            planned: planned.len() as u64,
            weight: 0.0,
        };
        Ok((fault_type, planned))
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
            self.sandboxes[0].ask(&Ask::Transfers, self.order.patience)?
        else {
            return Err(needs("an answer about transfers", "another", "report this"));
        };
        if let Some(no) = unanswered(&self.sandboxes[0], &ran)? {
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
    ) -> Result<(FaultType, Vec<Planned>), Undrawn> {
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
            return Err(Undrawn::Nowhere(needs(
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
            )));
        }
        let mut out = Vec::new();
        for run in 0..self.order.runs {
            let mut draw = self.order.seed.stream(number, run);
            let place = draw.below(all);
            let which = ends.partition_point(|end| *end <= place);
            let Some((fault, drawn, n)) = transfers.draw(model, which, self.order.shape, &mut draw)
            else {
                return Err(Undrawn::Failed(needs(
                    "a drawn fault has to be one of the grammar",
                    &transfers.paths[transfers.list[which].path],
                    "report this; --files leaves a file out",
                )));
            };
            let one = &transfers.list[which];
            let like = |other: &&crate::storage::Transfer| {
                other.path == one.path && other.write == one.write
            };
            out.push(Planned {
                schema: SCHEMA,
                id: 0,
                fault_type: model.word().into(),
                fault,
                site: None,
                register: None,
                bits: drawn.bits,
                n: Some(n),
                executions: Some(transfers.list.iter().filter(like).count() as u64),
                strike: None,
            });
        }
        let fault_type = FaultType {
            name: model.word().into(),
            population: all,
            reachable: all,
            planned: out.len() as u64,
            weight: 0.0,
        };
        Ok((fault_type, out))
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
        let parsed: Fault = fault.parse().map_err(|why: steadfast_fault::FaultError| {
            needs(
                "a drawn fault has to be one of the grammar",
                why.to_string(),
                "report this",
            )
        })?;
        Ok(Some(Planned {
            schema: SCHEMA,
            id: 0,
            fault_type: model.word().into(),
            fault: parsed.to_string(),
            site: Some(self.place(candidate.module, candidate.addr)),
            register: drawn.register,
            bits: drawn.bits,
            n: Some(n),
            executions: Some(candidate.count),
            strike: None,
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
        let mut fault_types = Vec::new();
        for (number, line) in self.order.lines.iter().enumerate() {
            let faults = Fault::parse_all(line).map_err(|why| {
                needs(
                    "a fault of docs/reference/fault-grammar.md",
                    why.to_string(),
                    &why.fix,
                )
            })?;
            let Some(first) = faults.first() else {
                return Err(needs(
                    "a fault of docs/reference/fault-grammar.md",
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
            fault_types.push(FaultType {
                name: name.clone(),
                population: population.counts.dynamic,
                reachable: population.counts.reachable,
                planned: self.order.runs,
                weight: 0.0,
            });
            let text: Vec<String> = faults.iter().map(Fault::to_string).collect();
            for run in 0..self.order.runs {
                plan.push(Planned {
                    schema: SCHEMA,
                    id: run * self.order.lines.len() as u64 + number as u64,
                    fault_type: name.clone(),
                    fault: text.join("; "),
                    site: self.site_of(first),
                    register: None,
                    bits: Vec::new(),
                    n: None,
                    executions: None,
                    strike: None,
                });
            }
        }
        plan.sort_by_key(|planned| planned.id);
        #[allow(clippy::cast_precision_loss, reason = "shares")]
        let share = 1.0 / fault_types.len().max(1) as f64;
        fault_types.iter_mut().for_each(|s| s.weight = share);
        Ok(Drafted {
            plan,
            fault_types,
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
                self.sandboxes[0].ask(&Ask::Audit(part.to_vec()), self.order.patience)?
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
                let drawn = planned
                    .n
                    .filter(|_| planned.fault_type != Model::Code.word());
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
            let of = |i: &&usize| plan[**i].fault_type == model.word();
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

/// Why faults of one type are not drawn.
enum Undrawn {
    /// Nothing can have one.
    Nowhere(CampaignError),
    Failed(CampaignError),
}

impl From<CampaignError> for Undrawn {
    fn from(why: CampaignError) -> Self {
        Self::Failed(why)
    }
}

/// Puts the runs of several types in one order and gives them numbers.
#[allow(clippy::cast_precision_loss, reason = "shares")]
fn in_turns(drawn: Vec<Vec<Planned>>, fault_types: &mut [FaultType]) -> Vec<Planned> {
    let total: u64 = fault_types.iter().map(|s| s.population).sum();
    // Instructions, bytes and transfers cannot be weighed against each other.
    let alike = |s: &FaultType| Model::from_word(&s.name).is_some_and(|model| !model.is_storage());
    let even = (!fault_types.iter().all(alike)).then(|| 1.0 / fault_types.len() as f64);
    fault_types
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

/// Refuses a plan that somebody changed so that not all of it can be run.
pub(super) fn looked_through(campaign: &Campaign, plan: &[Planned]) -> Result<(), CampaignError> {
    let mut ids = BTreeSet::new();
    for planned in plan {
        planned.faults()?;
        if !ids.insert(planned.id) {
            return Err(needs(
                "a plan in which each run stands once",
                format!("run {} twice", planned.id),
                "the plan.jsonl that was written here",
            ));
        }
        if !campaign
            .fault_types
            .iter()
            .any(|s| s.name == planned.fault_type)
        {
            return Err(needs(
                "runs of the campaign's fault types in its plan",
                format!("'{}' in run {}", planned.fault_type, planned.id),
                "the plan.jsonl that was written here",
            ));
        }
    }
    Ok(())
}
