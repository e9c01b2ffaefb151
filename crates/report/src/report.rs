//! A campaign added up: the one object behind every page, and the published JSON.
//!
//! docs/report.schema.json is made from these types; `"schema"` rises when a reader of the old one
//! would misread the new one. Fields may be added without that.
//!
//! Invariants
//!  1. Rates per injection count valid runs only; the others stand in `runs`.
//!  2. `all` weighs groups by their share of the fault space, not by their runs.
//!  3. Failures of functions add up to those of the campaign: each run stands for the same part of
//!     its group's population, wherever it struck.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_contract::outcome::{Leaf, Outcome};

use crate::results::{Detection, Place, Population, Provenance, Results, Run};
use crate::stats::bootstrap::quantile_sorted;
use crate::stats::{Confidence, Share, Shares, Tally};
use crate::tabulate::{GroupTable, Table, Which};

/// Version of the JSON.
pub const SCHEMA: u32 = 1;

const P95: Confidence = Confidence::P95;

/// Outcomes of valid runs, from the best to the worst: the order of tables and bars.
pub const SHOWN: [Outcome; 6] = [
    Outcome::Masked,
    Outcome::Corrected,
    Outcome::Detected,
    Outcome::Hang,
    Outcome::Crash,
    Outcome::Sdc,
];

/// A campaign, added up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Where it came from.
    pub provenance: Provenance,
    /// What faults were drawn from, in executed instructions.
    pub population: Population,
    /// How many runs there were of which use.
    pub runs: Runs,
    /// Runs without a fault.
    pub control: Control,
    /// All fault types together, by their weight.
    pub all: Group,
    /// Each fault type.
    pub groups: Vec<Group>,
    /// Functions that were struck, those with most extrapolated wrong answers first.
    pub functions: Vec<Function>,
    /// By register that was hit.
    pub registers: Vec<Cell>,
    /// By bit that was hit, counted within the target; runs that hit several count in each.
    pub bits: Vec<Cell>,
    /// By mnemonic.
    pub opcodes: Vec<Cell>,
    /// From fault to alarm; nothing if nobody spoke or no times were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
    /// Who spoke first, with numbers of runs.
    pub detectors: BTreeMap<String, u64>,
    /// Every run that ended in a wrong answer.
    pub wrong: Vec<Wrong>,
}

/// From the plan to what counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Runs {
    /// Asked for by the plan.
    pub planned: u64,
    /// Made.
    pub finished: u64,
    /// Made, fault fired, test bed sound: the denominator of every rate per injection.
    pub valid: u64,
    /// Valid, and the fault became visible.
    pub manifested: u64,
    /// The fault did not fire: says nothing.
    pub not_fired: u64,
    /// The test bed failed: says nothing.
    pub infra: u64,
    /// CPU time of all of them, nanoseconds.
    pub cpu_ns: u64,
}

/// Runs without a fault that fires.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Control {
    /// How many.
    pub runs: u64,
    /// Those that ended like the golden run. Anything less is the injector's own fault or a false
    /// alarm.
    pub masked: u64,
    /// Detectors that spoke without a reason.
    pub false_alarms: Rate,
}

/// A rate and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rate {
    /// Runs that ended so.
    pub hits: u64,
    /// Of these many.
    pub runs: u64,
    /// The estimate, weighted where groups are; nothing before the first run.
    pub rate: Option<f64>,
    /// Lower end of the 95 % interval (Wilson).
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// The rate is above this with at least 95 % confidence, one-sided (Clopper and Pearson).
    pub lower95: f64,
    /// The rate is below this with at least 95 % confidence, one-sided.
    pub upper95: f64,
}

/// Failures if every place and moment of one run were struck once.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Extent {
    /// The estimate.
    pub failures: Option<f64>,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Below this with at least 95 % confidence, one-sided.
    pub upper95: f64,
}

/// One fault type, or all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Group {
    /// Its name; `all` for the whole.
    pub name: String,
    /// Share of the fault space.
    pub weight: f64,
    /// Executions that can have such a fault, times copies that run.
    pub population: u64,
    /// Executions that faults were drawn from.
    pub reachable: u64,
    /// Runs that count.
    pub valid: u64,
    /// Those that became visible.
    pub manifested: u64,
    /// Each word, in the order of the bars.
    pub outcomes: Vec<Row>,
    /// Wrong answers, crashes and hangs together: what a user suffers.
    pub failed: Row,
}

/// One outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Row {
    /// Its word.
    pub outcome: String,
    /// Runs.
    pub count: u64,
    /// Of valid runs.
    pub per_injection: Rate,
    /// Of those that became visible; nothing for `masked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_manifested: Option<Rate>,
    /// Extrapolated to the fault space.
    pub absolute: Extent,
    /// The leaves under it that occurred.
    pub leaves: Vec<LeafRow>,
}

/// One leaf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LeafRow {
    /// Its word.
    pub leaf: String,
    /// Runs.
    pub count: u64,
    /// Of valid runs.
    pub per_injection: Rate,
}

/// Runs by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counts {
    /// All valid ones.
    pub valid: u64,
    /// Nothing came of it.
    pub masked: u64,
    /// Repaired.
    pub corrected: u64,
    /// Stopped.
    pub detected: u64,
    /// Out of time.
    pub hang: u64,
    /// Died.
    pub crash: u64,
    /// Wrong answer.
    pub sdc: u64,
}

/// One row of a heat map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// What was hit.
    pub key: String,
    /// What came of it.
    pub counts: Counts,
    /// Wrong answers per injection here.
    pub sdc: Rate,
}

/// One function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Function {
    /// File name of its module.
    pub module: String,
    /// Its symbol; nothing where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Executed instructions; nothing where they were not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<u64>,
    /// What came of faults here.
    pub counts: Counts,
    /// Wrong answers per injection here.
    pub sdc: Rate,
    /// Wrong answers that this function contributes to the whole.
    pub absolute: Extent,
    /// Instructions that were struck, in the order of addresses.
    pub lines: Vec<Line>,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line {
    /// Distance from the module's lowest address.
    pub offset: String,
    /// `file.c:123`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// The instruction.
    pub disassembly: String,
    /// What came of faults here.
    pub counts: Counts,
}

/// From fault to alarm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    /// Alarms with a time.
    pub count: u64,
    /// Median, nanoseconds.
    pub p50_ns: f64,
    /// 90th percentile.
    pub p90_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// The longest.
    pub max_ns: f64,
    /// Points of the distribution: nanoseconds, and the share of alarms that came by then.
    pub curve: Vec<(f64, f64)>,
}

/// A run that ended in a wrong answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Wrong {
    /// Its number in the plan.
    pub id: u64,
    /// Its fault type.
    pub group: String,
    /// Its leaf.
    pub leaf: String,
    /// The fault.
    pub fault: String,
    /// The command that repeats it.
    pub replay: String,
    /// Where it struck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// Which outputs differ.
    pub differ: Vec<String>,
    /// Who noticed, too late or wrongly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detection: Option<Detection>,
    /// Directory with what it left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<String>,
}

impl Rate {
    /// A rate of runs.
    #[must_use]
    pub fn of(shares: &Shares) -> Self {
        let pooled = shares.pooled();
        let shown = shares.interval(P95);
        Self {
            hits: pooled.hits,
            runs: pooled.runs,
            rate: shares.rate(),
            low: shown.low,
            high: shown.high,
            lower95: shares.lower(P95),
            upper95: shares.upper(P95),
        }
    }

    fn single(hits: u64, runs: u64) -> Self {
        Self::of(&Shares::single(Tally::new(hits, runs)))
    }
}

impl Extent {
    /// A rate times a fault space.
    #[must_use]
    pub fn of(shares: &Shares, space: f64) -> Self {
        let shown = shares.interval(P95).times(space);
        Self {
            // Nothing was counted, so there is nothing to extrapolate to.
            failures: shares
                .rate()
                .filter(|_| space > 0.0)
                .map(|rate| rate * space),
            low: shown.low,
            high: shown.high,
            upper95: shares.upper(P95) * space,
        }
    }
}

impl Counts {
    /// Counts a run that is valid.
    pub fn add(&mut self, leaf: Leaf) {
        let one = match leaf.outcome() {
            Outcome::Masked => &mut self.masked,
            Outcome::Corrected => &mut self.corrected,
            Outcome::Detected => &mut self.detected,
            Outcome::Hang => &mut self.hang,
            Outcome::Crash => &mut self.crash,
            Outcome::Sdc => &mut self.sdc,
            Outcome::FalseAlarm | Outcome::NotFired | Outcome::Infra => return,
        };
        *one += 1;
        self.valid += 1;
    }

    /// Runs of one outcome.
    #[must_use]
    pub const fn of(&self, outcome: Outcome) -> u64 {
        match outcome {
            Outcome::Masked => self.masked,
            Outcome::Corrected => self.corrected,
            Outcome::Detected => self.detected,
            Outcome::Hang => self.hang,
            Outcome::Crash => self.crash,
            Outcome::Sdc => self.sdc,
            Outcome::FalseAlarm | Outcome::NotFired | Outcome::Infra => 0,
        }
    }
}

impl Report {
    /// Adds a campaign up.
    #[must_use]
    pub fn new(results: &Results) -> Self {
        let table = Table::new(results);
        let valid: Vec<&Run> = results.runs.iter().filter(|r| r.leaf.is_valid()).collect();
        Self {
            schema: SCHEMA,
            provenance: results.provenance.clone(),
            population: results.population.clone(),
            runs: Runs {
                planned: results.planned,
                finished: table.finished(),
                valid: table.valid(),
                manifested: table.count(Which::Manifested),
                not_fired: table.count(Which::Outcome(Outcome::NotFired)),
                infra: table.count(Which::Outcome(Outcome::Infra)),
                cpu_ns: results.runs.iter().map(|run| run.cpu_ns).sum(),
            },
            control: Control {
                runs: results.control.runs,
                masked: results.control.masked,
                false_alarms: Rate::of(&table.shares(Which::Outcome(Outcome::FalseAlarm), None)),
            },
            all: group(results, &table, None),
            groups: table
                .groups
                .iter()
                .map(|one| group(results, &table, Some(one)))
                .collect(),
            functions: functions(results, &table, &valid),
            registers: cells(&valid, |run| run.register.clone().into_iter().collect()),
            bits: bits(&valid),
            opcodes: cells(&valid, |run| {
                run.place.iter().map(|place| place.opcode.clone()).collect()
            }),
            latency: latency(&valid),
            detectors: detectors(&valid),
            wrong: wrong(results),
        }
    }

    /// A rate of the whole.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> Option<&Row> {
        self.all.row(outcome)
    }

    /// As JSON, for `--json`.
    #[must_use]
    pub fn json(&self) -> String {
        // Strings, numbers and lists: nothing in here can fail to be JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl Group {
    /// One outcome.
    #[must_use]
    pub fn row(&self, outcome: Outcome) -> Option<&Row> {
        self.outcomes
            .iter()
            .find(|row| row.outcome == outcome.word())
    }
}

fn group(results: &Results, table: &Table, one: Option<&GroupTable>) -> Group {
    let name = one.map(|group| group.name.as_str());
    let members: Vec<&GroupTable> = table
        .groups
        .iter()
        .filter(|g| name.is_none_or(|name| g.name == name))
        .collect();
    let row = |which: Which| {
        let (by_population, space) = table.space(which, name);
        let leaves = Leaf::ALL
            .iter()
            .filter(|leaf| which.has(**leaf) && leaf.is_valid())
            .filter_map(|leaf| {
                let which = Which::Leaf(*leaf);
                let count: u64 = members.iter().map(|g| g.count(which)).sum();
                (count > 0).then(|| LeafRow {
                    leaf: leaf.word().to_owned(),
                    count,
                    per_injection: Rate::of(&table.shares(which, name)),
                })
            })
            .collect();
        Row {
            outcome: which.word().to_owned(),
            count: members.iter().map(|g| g.count(which)).sum(),
            per_injection: Rate::of(&table.shares(which, name)),
            per_manifested: (which != Which::Outcome(Outcome::Masked))
                .then(|| table.of_manifested(which, name))
                .flatten()
                .map(|shares| Rate::of(&shares)),
            absolute: Extent::of(&by_population, space),
            leaves,
        }
    };
    Group {
        name: name.unwrap_or("all").to_owned(),
        weight: one.map_or(1.0, |group| group.weight),
        population: members.iter().map(|g| g.population).sum::<u64>() * u64::from(table.copies),
        reachable: results
            .groups
            .iter()
            .filter(|g| name.is_none_or(|name| g.name == name))
            .map(|g| g.reachable)
            .sum(),
        valid: members.iter().map(|g| g.valid()).sum(),
        manifested: members.iter().map(|g| g.count(Which::Manifested)).sum(),
        outcomes: SHOWN
            .iter()
            .map(|outcome| row(Which::Outcome(*outcome)))
            .collect(),
        failed: row(Which::Failed),
    }
}

fn functions(results: &Results, table: &Table, valid: &[&Run]) -> Vec<Function> {
    type Key<'a> = (&'a str, Option<&'a str>);
    #[derive(Default)]
    struct Seen<'a> {
        counts: Counts,
        sdc_by_group: Vec<u64>,
        lines: BTreeMap<(u64, &'a str), (&'a Place, Counts)>,
    }
    let executions: BTreeMap<Key<'_>, u64> = results
        .functions
        .iter()
        .map(|f| ((f.module.as_str(), f.function.as_deref()), f.executions))
        .collect();
    let mut seen: BTreeMap<Key<'_>, Seen<'_>> = BTreeMap::new();
    for run in valid {
        let Some(place) = &run.place else { continue };
        let one = seen
            .entry((place.module.as_str(), place.function.as_deref()))
            .or_default();
        one.counts.add(run.leaf);
        one.sdc_by_group.resize(table.groups.len(), 0);
        if run.leaf.outcome() == Outcome::Sdc {
            one.sdc_by_group[run.group] += 1;
        }
        let digits = place.offset.trim_start_matches("0x");
        let address = u64::from_str_radix(digits, 16).unwrap_or(u64::MAX);
        one.lines
            .entry((address, place.offset.as_str()))
            .or_insert((place, Counts::default()))
            .1
            .add(run.leaf);
    }
    let space: f64 = table.groups.iter().map(|g| g.population as f64).sum();
    let mut rows: Vec<Function> = seen
        .into_iter()
        .map(|((module, function), one)| {
            // Wrong answers here among all draws of a group: these shares add up.
            let shares = Shares::new(table.groups.iter().zip(&one.sdc_by_group).map(
                |(group, hits)| Share {
                    weight: group.population as f64,
                    tally: Tally::new(*hits, group.valid()),
                },
            ));
            let shares = shares.unwrap_or_else(|| Shares::single(Tally::default()));
            Function {
                module: module.to_owned(),
                function: function.map(ToOwned::to_owned),
                executions: executions.get(&(module, function)).copied(),
                sdc: Rate::single(one.counts.sdc, one.counts.valid),
                absolute: Extent::of(&shares, space * f64::from(table.copies)),
                counts: one.counts,
                lines: one
                    .lines
                    .into_values()
                    .map(|(place, counts)| Line {
                        offset: place.offset.clone(),
                        line: place.line.clone(),
                        disassembly: place.disassembly.clone(),
                        counts,
                    })
                    .collect(),
            }
        })
        .collect();
    rows.sort_by(|a, b| {
        let failures = |f: &Function| f.absolute.failures.unwrap_or(0.0);
        failures(b)
            .total_cmp(&failures(a))
            .then(b.counts.valid.cmp(&a.counts.valid))
            .then_with(|| (&a.module, &a.function).cmp(&(&b.module, &b.function)))
    });
    rows
}

fn tally_by<K: Ord>(valid: &[&Run], keys: impl Fn(&Run) -> Vec<K>) -> BTreeMap<K, Counts> {
    let mut counts: BTreeMap<K, Counts> = BTreeMap::new();
    for run in valid {
        for key in keys(run) {
            counts.entry(key).or_default().add(run.leaf);
        }
    }
    counts
}

fn cell(key: String, counts: Counts) -> Cell {
    Cell {
        key,
        sdc: Rate::single(counts.sdc, counts.valid),
        counts,
    }
}

/// The most frequently struck first.
fn cells(valid: &[&Run], keys: impl Fn(&Run) -> Vec<String>) -> Vec<Cell> {
    let mut cells: Vec<Cell> = tally_by(valid, keys)
        .into_iter()
        .map(|(key, counts)| cell(key, counts))
        .collect();
    cells.sort_by(|a, b| {
        b.counts
            .valid
            .cmp(&a.counts.valid)
            .then_with(|| a.key.cmp(&b.key))
    });
    cells
}

fn bits(valid: &[&Run]) -> Vec<Cell> {
    tally_by(valid, |run| run.bits.clone())
        .into_iter()
        .map(|(bit, counts)| cell(bit.to_string(), counts))
        .collect()
}

fn latency(valid: &[&Run]) -> Option<Latency> {
    // Enough for a smooth line on a wide screen.
    const POINTS_MAX: usize = 200;
    let mut times: Vec<f64> = valid
        .iter()
        .filter_map(|run| run.detection.as_ref()?.latency_ns)
        .map(|ns| ns as f64)
        .collect();
    times.sort_by(f64::total_cmp);
    let at = |q: f64| quantile_sorted(&times, q);
    let points = times.len().min(POINTS_MAX);
    Some(Latency {
        count: times.len() as u64,
        p50_ns: at(0.5)?,
        p90_ns: at(0.9)?,
        p99_ns: at(0.99)?,
        max_ns: at(1.0)?,
        curve: (1..=points)
            .map(|i| {
                let last = i * times.len() / points;
                (times[last - 1], last as f64 / times.len() as f64)
            })
            .collect(),
    })
}

fn detectors(valid: &[&Run]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for detection in valid.iter().filter_map(|run| run.detection.as_ref()) {
        *counts.entry(detection.by.clone()).or_default() += 1;
    }
    counts
}

fn wrong(results: &Results) -> Vec<Wrong> {
    results
        .runs
        .iter()
        .filter(|run| run.leaf.outcome() == Outcome::Sdc)
        .map(|run| Wrong {
            id: run.id,
            group: results
                .groups
                .get(run.group)
                .map(|g| g.name.clone())
                .unwrap_or_default(),
            leaf: run.leaf.word().to_owned(),
            fault: run.fault.clone(),
            replay: run.replay.clone(),
            place: run.place.clone(),
            differ: run.differ.clone(),
            detection: run.detection.clone(),
            evidence: run.evidence.clone(),
        })
        .collect()
}
