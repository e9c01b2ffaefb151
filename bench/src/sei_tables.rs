//! `bench sei-tables`: the tables and the figure of the paper on scalable error isolation, each by one command, with our
//! injector and our load, beside the paper's values.
//!
//! ```text
//!   table2    one thread: mc, mc-sei, mc-sei-dup, and of ours mc-sei-between, mc-sei-dup-between and mc-sei-recover; faults of control flow, data
//!             flow, data at rest, and of code
//!   table3    four threads, with the checking barrier (mc-sei) and without (mc-seil)
//!   table4    a processor that computes wrongly from some moment on, in place of an undervolted one
//!   table5    cycles of a request in a name server's three phases
//!   figure6   highest rate with a mean response time under 1 ms, over threads, keys and sizes of values
//! ```
//!
//! Campaigns are `steadfast inject run` in a directory each, so a call goes on where the last one stopped, and every run can
//! be replayed. Servers are built from Debian's untouched sources.
//!
//! Invariants
//!  1. What is printed is what the campaigns' directories hold: a table of an unfinished campaign says how many runs it has.
//!  2. Measured and published values stand in columns of their own; nothing is computed from both.
//!
//! Not covered: Table 1 (the fault types: docs/guide/inject.md), and the voltage of Table 4. Lowering it needs a processor that can be spared; that faults were isolated is shown here with
//! faults whose place is known.

pub mod phases;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_contract::outcome::{Leaf, Outcome};
use steadfast_inject::record::Dir;
use steadfast_report::published::Row;
use steadfast_report::stats::{Confidence, Tally};
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::replay;

use crate::machine::Machine;
use crate::table;

/// Requests of the trace; reading every key follows.
pub const REQUESTS: usize = 1000;

/// Workers of Table 3, and connections among which its requests are divided: memcached deals them out in turn.
const THREADS: usize = 4;

/// A server under faults.
#[derive(Clone, Debug)]
pub struct Variant {
    /// As the paper calls it.
    pub name: String,
    pub program: PathBuf,
    /// Whether it was built with `steadfast cc`: it speaks the envelope, and its alarms are read.
    pub hardened: bool,
}

/// What a campaign is asked for.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where campaigns lie.
    pub out: PathBuf,
    /// Of each fault type and variant; none: what is there is summed up.
    pub runs: u64,
    pub seed: u64,
    pub jobs: Option<usize>,
    /// As `steadfast inject run --budget`, for each campaign.
    pub budget: Option<String>,
    /// Of Table 2, the campaigns that are run, sei and code; all if empty. The others are summed up.
    pub faults: Vec<String>,
}

/// Counts of one variant, by fault type and leaf.
pub type Counts = BTreeMap<String, BTreeMap<String, u64>>;

/// One line of a table of outcomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// Runs whose fault fired.
    pub runs: u64,
    /// Of them, those that anybody could notice.
    pub manifested: u64,
    /// Wrong bytes that the client accepted.
    pub undetected: u64,
    /// Stopped or repaired by the hardening, or rejected by the client's check.
    pub by_hardening: u64,
    /// Crashes, hangs, error replies, short replies.
    pub otherwise: u64,
    /// Of the manifested: replies that the client's check rejects, short ones, error replies.
    pub invalid: u64,
    pub truncated: u64,
    pub error_replies: u64,
}

impl Errors {
    fn add(&mut self, leaf: Leaf, count: u64) {
        if !leaf.is_valid() {
            return;
        }
        self.runs += count;
        if !leaf.is_manifested() {
            return;
        }
        self.manifested += count;
        match leaf.outcome() {
            Outcome::Sdc => self.undetected += count,
            Outcome::Detected | Outcome::Corrected => self.by_hardening += count,
            _ => self.otherwise += count,
        }
        match leaf {
            Leaf::DetectedClient => self.invalid += count,
            Leaf::Truncated => self.truncated += count,
            Leaf::ErrorMsg => self.error_replies += count,
            _ => {}
        }
    }

    /// Of some fault types.
    #[must_use]
    pub fn of(counts: &Counts, types: &[&str]) -> Self {
        let mut sum = Errors::default();
        for (name, leaves) in counts {
            if !types.is_empty() && !types.contains(&name.as_str()) {
                continue;
            }
            for leaf in Leaf::ALL {
                sum.add(*leaf, leaves.get(leaf.word()).copied().unwrap_or(0));
            }
        }
        sum
    }
}

/// The paper's line for a group and a variant: undetected, found by the library, found otherwise, in percent; errors.
struct Published {
    group: &'static str,
    variant: &'static str,
    shares: [f64; 3],
    errors: u64,
}

const fn published(
    group: &'static str,
    variant: &'static str,
    shares: [f64; 3],
    errors: u64,
) -> Published {
    Published {
        group,
        variant,
        shares,
        errors,
    }
}

const TABLE2: [Published; 9] = [
    published("CF", "mc", [9.66, 0.0, 90.34], 6690),
    published("CF", "mc-sei", [0.06, 14.70, 85.23], 6515),
    published("CF", "mc-sei-dup", [0.0, 9.87, 90.13], 6594),
    published("DF", "mc", [44.18, 0.0, 55.82], 15_180),
    published("DF", "mc-sei", [0.15, 57.55, 42.29], 20_264),
    published("DF", "mc-sei-dup", [0.0, 45.81, 54.19], 15_991),
    published("RD", "mc", [33.04, 0.0, 66.95], 10_614),
    published("RD", "mc-sei", [0.52, 46.78, 52.70], 11_508),
    published("RD", "mc-sei-dup", [0.0, 49.13, 50.87], 11_442),
];

/// Four threads. mc-seil has no checking barrier.
const TABLE3: [Published; 4] = [
    published("CF", "mc-sei", [0.02, 13.78, 86.20], 6366),
    published("CF", "mc-seil", [0.05, 12.84, 87.11], 6330),
    published("DF", "mc-sei", [0.16, 58.58, 41.26], 19_484),
    published("DF", "mc-seil", [0.28, 58.61, 41.11], 19_088),
];

/// Undervolting, the nearest thing published: of 468 errors each.
const TABLE4: [Published; 2] = [
    published("voltage", "mc", [0.85, 0.0, 99.15], 468),
    published("voltage", "mc-sei", [0.0, 2.35, 97.65], 468),
];

/// The groups of Table 1, and faults of code, which the paper names in its text.
const GROUPS: [(&str, &[&str]); 4] = [
    ("CF", &["cf"]),
    ("DF", &["wreg", "wval", "waddr", "raddr"]),
    ("RD", &["rreg", "rval"]),
    ("code", &["code"]),
];

/// A table of outcomes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutcomeTable {
    pub lines: Vec<OutcomeLine>,
    /// Runs that were asked for, of each fault type.
    pub planned: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OutcomeLine {
    pub group: String,
    pub variant: String,
    pub errors: Errors,
    /// Undetected, found by the library, found otherwise (percent), errors.
    pub published: Option<([f64; 3], u64)>,
}

/// What a call measured or summed up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeiTablesReport {
    pub bench: String,
    pub machine: Machine,
    pub seed: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table2: Option<OutcomeTable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table3: Option<OutcomeTable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table4: Option<OutcomeTable>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table5: Option<phases::Phases>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figure6: Option<crate::sei_servers::SeiServersReport>,
    pub complete: bool,
}

/// The words behind `steadfast inject` that play the trace against a memcached: also what docs/guide/inject.md shows.
fn campaign(
    steadfast: &Path,
    variant: &Variant,
    settings: &Settings,
    dir: &Path,
    threads: usize,
    faults: &[String],
    runs: u64,
) -> Command {
    let mut command = Command::new(steadfast);
    command.args(["inject", "run", "--out"]).arg(dir);
    command.arg(format!("--runs={runs}"));
    command.arg(format!("--seed={:x}", settings.seed));
    if let Some(jobs) = settings.jobs {
        command.arg(format!("--jobs={jobs}"));
    }
    if let Some(budget) = &settings.budget {
        command.arg(format!("--budget={budget}"));
    }
    for fault in faults {
        command.arg(format!("--fault={fault}"));
    }
    let trace = settings.out.join(requests(threads));
    command.arg(format!("--driver=trace:{}", trace.display()));
    if variant.hardened {
        command.args(["--envelope", "--detect=cc"]);
    }
    if variant.name.contains("dup") {
        // The runtime reserves 200 GiB of addresses for objects and copies.
        command.arg("--memory=262144");
    }
    command.args(["--ready=11211", "--stop=KILL"]);
    command.arg("--error-reply=^(SERVER_|CLIENT_)?ERROR");
    command.arg("--").arg(&variant.program);
    // No thread that works by the clock, so that executions can be counted. Chunks of a KiB at least: the
    // thousands of small ones into which a slab page is cut would otherwise be most of what faults are drawn from.
    command.args(["-u", "nobody", "-l", "127.0.0.1", "-p", "11211", "-U", "0"]);
    command.args(["-t", &threads.to_string()]);
    command.args(["-m", "64", "-n", "1024"]);
    command.args(["-o", "no_lru_crawler,no_lru_maintainer,no_slab_reassign"]);
    command
}

/// Runs the campaign, or goes on with it, and gives its counts. A campaign that nobody began has none.
fn counted(
    steadfast: &Path,
    variant: &Variant,
    settings: &Settings,
    name: &str,
    threads: usize,
    faults: &[String],
    runs: u64,
) -> Result<Counts> {
    let dir = settings.out.join(name);
    if runs > 0 {
        let mut command = campaign(steadfast, variant, settings, &dir, threads, faults, runs);
        let status = command
            .stdout(std::process::Stdio::null())
            .status()
            .with_context(|| format!("{} could not be started", steadfast.display()))?;
        ensure!(
            status.success(),
            "the campaign in {} ended with {status}; the same call goes on with it",
            dir.display()
        );
    }
    let mut counts = Counts::new();
    if !dir.join("campaign.json").exists() {
        return Ok(counts);
    }
    for run in Dir::new(&dir).runs()?.into_values() {
        let of = counts.entry(run.fault_type).or_default();
        *of.entry(run.outcome.word().to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// The file with the trace for so many threads.
fn requests(threads: usize) -> String {
    match threads {
        1 => "requests".to_owned(),
        _ => format!("requests-{threads}"),
    }
}

fn prepare(settings: &Settings, threads: usize) -> Result<()> {
    fs::create_dir_all(&settings.out)
        .with_context(|| format!("cannot create {}", settings.out.display()))?;
    let trace = settings.out.join(requests(threads));
    let text = match threads {
        1 => replay::written(&replay::memcached::swept(1, REQUESTS)),
        _ => replay::written_apart(&replay::memcached::swept_apart(1, REQUESTS, threads)),
    };
    if fs::read(&trace).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(&trace, text).with_context(|| format!("cannot write {}", trace.display()))
}

fn line(group: &str, variant: &Variant, errors: Errors, paper: &[Published]) -> OutcomeLine {
    // The paper's rules and no more are its mc-sei, too.
    let name = match variant.name.as_str() {
        "mc-sei-level" => "mc-sei",
        name => name,
    };
    let known = paper
        .iter()
        .find(|known| known.group == group && known.variant == name);
    OutcomeLine {
        group: group.to_owned(),
        variant: variant.name.clone(),
        errors,
        published: known.map(|known| (known.shares, known.errors)),
    }
}

/// Table 2: one thread.
///
/// # Errors
/// When a campaign cannot be run or read.
pub fn table2(
    steadfast: &Path,
    variants: &[Variant],
    settings: &Settings,
    say: &mut dyn FnMut(&str),
) -> Result<OutcomeTable> {
    prepare(settings, 1)?;
    let mut counts = Vec::new();
    for variant in variants {
        let mut all = Counts::new();
        for (fault, suffix, said) in [
            ("sei", "", "the paper's seven types"),
            ("code", "-code", "code"),
        ] {
            let faults = [fault.to_owned()];
            let is_run = settings.faults.is_empty() || settings.faults.contains(&faults[0]);
            say(&format!("{}: {said}", variant.name));
            all.extend(counted(
                steadfast,
                variant,
                settings,
                &format!("{}{suffix}", variant.name),
                1,
                &faults,
                if is_run { settings.runs } else { 0 },
            )?);
        }
        counts.push(all);
    }
    let lines = GROUPS.iter().flat_map(|(group, types)| {
        variants
            .iter()
            .zip(&counts)
            .map(move |(variant, counts)| line(group, variant, Errors::of(counts, types), &TABLE2))
    });
    Ok(OutcomeTable {
        lines: lines.collect(),
        planned: settings.runs,
    })
}

/// Table 3: four threads, with and without the checking barrier.
///
/// # Errors
/// When a campaign cannot be run or read.
pub fn table3(
    steadfast: &Path,
    variants: &[Variant],
    settings: &Settings,
    say: &mut dyn FnMut(&str),
) -> Result<OutcomeTable> {
    prepare(settings, THREADS)?;
    let groups = &GROUPS[..2];
    let faults: Vec<String> = groups
        .iter()
        .flat_map(|(_, types)| types.iter().map(|name| (*name).to_owned()))
        .collect();
    let mut lines: Vec<OutcomeLine> = Vec::new();
    for variant in variants {
        say(&format!("{}: {THREADS} threads", variant.name));
        let name = format!("{}-{THREADS}", variant.name);
        let counts = counted(
            steadfast,
            variant,
            settings,
            &name,
            THREADS,
            &faults,
            settings.runs,
        )?;
        lines.extend(
            groups
                .iter()
                .map(|(group, types)| line(group, variant, Errors::of(&counts, types), &TABLE3)),
        );
    }
    lines.sort_by(|a, b| a.group.cmp(&b.group));
    Ok(OutcomeTable {
        lines,
        planned: settings.runs,
    })
}

/// Faults of a processor that computes wrongly from some moment on: one class of instruction, one bit, always or now and
/// then.
#[must_use]
pub fn mercurial(seed: u64, count: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let registers = ["rax", "rcx", "rdx", "rsi", "rdi", "r8"];
    (0..count)
        .map(|_| {
            let (class, effect) = match rng.below(6) {
                0 => ("int-alu", format!("reg={} after", rng.pick(&registers))),
                1 => ("int-mul", "reg=rax after".to_owned()),
                2 => ("vec-int", "reg=xmm0 after".to_owned()),
                3 => ("load", format!("reg={} after", rng.pick(&registers))),
                4 => ("store", "wval".to_owned()),
                _ => ("crc", format!("reg={} after", rng.pick(&registers))),
            };
            // The paper's voltage was lowered when the server ran: not in the first thousands of executions.
            let from = 1000 * (1 + rng.below(400));
            let often = [1, 10, 100, 1000, 10_000][rng.below(5)];
            let bit = rng.below(32);
            let draw = 1 + rng.below(1_000_000);
            format!("class={class} n={from}.. one-in={often} seed={draw} {effect} bit={bit}")
        })
        .collect()
}

/// In place of Table 4.
///
/// # Errors
/// When a campaign cannot be run or read.
pub fn table4(
    steadfast: &Path,
    variants: &[Variant],
    settings: &Settings,
    say: &mut dyn FnMut(&str),
) -> Result<OutcomeTable> {
    prepare(settings, 1)?;
    let faults = mercurial(settings.seed, settings.runs);
    let mut lines = Vec::new();
    for variant in variants {
        say(&format!("{}: a core that computes wrongly", variant.name));
        let name = format!("{}-core", variant.name);
        let once = u64::from(settings.runs > 0);
        let counts = counted(steadfast, variant, settings, &name, 1, &faults, once)?;
        let mut shown = line("voltage", variant, Errors::of(&counts, &[]), &TABLE4);
        "core".clone_into(&mut shown.group);
        lines.push(shown);
    }
    Ok(OutcomeTable {
        lines,
        planned: settings.runs,
    })
}

/// A share with its interval (Clopper and Pearson's, two-sided, 95 %).
#[must_use]
pub fn share(count: u64, of: u64) -> String {
    let tally = Tally::new(count, of);
    let Some(rate) = tally.rate() else {
        return "-".to_owned();
    };
    let interval = tally.clopper_pearson(Confidence::P95);
    let percent = |value: f64| {
        let value = value * 100.0;
        if value >= 10.0 {
            format!("{value:.1}")
        } else {
            format!("{value:.2}")
        }
    };
    if count == 0 {
        return format!("0 (< {} %)", percent(interval.high));
    }
    format!(
        "{} [{}, {}] %",
        percent(rate),
        percent(interval.low),
        percent(interval.high)
    )
}

/// A table of outcomes as text.
#[must_use]
pub fn render_outcomes(title: &str, table: &OutcomeTable) -> String {
    let plain = |count: u64, of: u64| {
        Tally::new(count, of)
            .rate()
            .map_or("-".to_owned(), |rate| format!("{:.2}", rate * 100.0))
    };
    let rows: Vec<Vec<String>> = table
        .lines
        .iter()
        .map(|line| {
            let e = &line.errors;
            let mut row = vec![
                format!("{} {}", line.group, line.variant),
                e.runs.to_string(),
                e.manifested.to_string(),
                e.undetected.to_string(),
                share(e.undetected, e.manifested),
                share(e.undetected, e.runs),
                plain(e.by_hardening, e.manifested),
                plain(e.otherwise, e.manifested),
            ];
            match &line.published {
                Some((shares, errors)) => {
                    row.push(format!("{errors}"));
                    row.extend(shares.iter().map(|share| format!("{share:.2}")));
                }
                None => row.extend(std::iter::repeat_n(String::new(), 4)),
            }
            row
        })
        .collect();
    let mut text = format!("{title}\n");
    text += &table::render(
        &[
            "group",
            "runs",
            "errors",
            "undetected",
            "of errors",
            "of runs",
            "library %",
            "other %",
            "paper: errors",
            "undet. %",
            "library %",
            "other %",
        ],
        &rows,
    );
    text += "\nKinds of errors, % of errors (paper, mc-sei: invalid 0.7 to 3.4, truncated and error messages up to 1.2)\n";
    let rows: Vec<Vec<String>> = table
        .lines
        .iter()
        .map(|line| {
            let e = &line.errors;
            vec![
                format!("{} {}", line.group, line.variant),
                plain(e.invalid, e.manifested),
                plain(e.truncated, e.manifested),
                plain(e.error_replies, e.manifested),
            ]
        })
        .collect();
    text += &table::render(&["group", "invalid", "truncated", "error reply"], &rows);
    text.push('\n');
    text
}

/// What is kept in `results/`: undetected of manifested errors, by variant and group of faults; Table 5's ratios.
#[must_use]
pub fn rows(report: &SeiTablesReport) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |variant: &str, line: &OutcomeLine| rows.extend(undetected_row(variant, line));
    for line in report.table2.iter().flat_map(|table| &table.lines) {
        // mc, mc-sei, mc-sei-dup: mc, sei, dup.
        let variant = line
            .variant
            .trim_start_matches("mc-")
            .trim_start_matches("sei-");
        add(variant, line);
    }
    for line in report.table3.iter().flat_map(|table| &table.lines) {
        add(
            if line.variant == "mc-seil" {
                "plain"
            } else {
                "barrier"
            },
            line,
        );
    }
    if let Some(phases) = &report.table5 {
        rows.extend(phase_rows(phases, report.seed));
    }
    rows
}

/// Nothing for a group that no campaign has struck.
fn undetected_row(variant: &str, line: &OutcomeLine) -> Option<Row> {
    let key = format!("{variant}.{}", line.group.to_lowercase());
    let what = format!("{}, {}: undetected of manifested", line.variant, line.group);
    let errors = &line.errors;
    (errors.runs > 0).then(|| Row::share(key, what, errors.undetected, errors.manifested))
}

/// Builds of Table 5, and what the keys of their rows begin with.
const PHASED: [(&str, &str); 2] = [(phases::FULL, ""), (phases::LEVEL, "sei.")];

fn phase_rows(phases: &phases::Phases, seed: u64) -> Vec<Row> {
    let mut rng = Rng::new(seed);
    let mut rows = Vec::new();
    for (build, prefix) in PHASED {
        for (key, what, number) in [
            (
                "handler",
                "handler phase",
                (|cycles| cycles.handling) as fn(&phases::Cycles) -> f64,
            ),
            ("request", "all cycles of a request", |cycles| {
                cycles.total()
            }),
        ] {
            let found = phases.over_native(build, number, &mut rng);
            let what = format!("{what}, {build} over native");
            rows.extend(crate::results::row(
                format!("{prefix}{key}"),
                what,
                "",
                found,
            ));
        }
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &SeiTablesReport) -> String {
    let mut text = report.machine.render();
    if let Some(table) = &report.table2 {
        text += &render_outcomes(
            "Table 2: one thread. code: flips of the instruction's own bytes (paper: 3 of 7,000 undetected)",
            table,
        );
    }
    if let Some(table) = &report.table3 {
        text += &render_outcomes(
            "Table 3: four threads, mc-sei with the checking barrier, mc-seil without",
            table,
        );
    }
    if let Some(table) = &report.table4 {
        text += &render_outcomes(
            "In place of Table 4: a core that computes one class of instruction wrongly; the paper lowered the voltage",
            table,
        );
    }
    if let Some(phases) = &report.table5 {
        text += &phases::render(phases);
    }
    if let Some(servers) = &report.figure6 {
        text += "Figure 6: get requests; kreq/s < 1 ms. Paper, 8 threads: 8 B 25 % less (20 % without barrier), also with\n\
                 1 M keys; 128 B and more negligible; 10 keys limited by contention for all\n";
        text += &crate::sei_servers::render(servers);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_is_in_one_column_of_the_paper() {
        for leaf in Leaf::ALL {
            let mut errors = Errors::default();
            errors.add(*leaf, 3);
            assert_eq!(
                errors.manifested,
                errors.undetected + errors.by_hardening + errors.otherwise,
                "{leaf:?}"
            );
            assert_eq!(errors.manifested > 0, leaf.is_manifested(), "{leaf:?}");
        }
    }

    #[test]
    fn shares_of_none_have_a_bound() {
        assert_eq!(share(0, 388), "0 (< 0.95 %)");
        assert_eq!(share(0, 0), "-");
        assert_eq!(share(19, 7680), "0.25 [0.15, 0.39] %");
    }

    #[test]
    fn a_group_that_was_not_struck_has_no_row() {
        let mut line = OutcomeLine {
            group: "CF".to_owned(),
            variant: "mc-sei-level".to_owned(),
            errors: Errors::default(),
            published: None,
        };
        assert!(undetected_row("level", &line).is_none());
        line.errors.add(Leaf::DetectedClient, 3);
        assert!(undetected_row("level", &line).is_some_and(|row| row.key == "level.cf"));
    }

    #[test]
    fn cores_are_lines_of_the_fault_grammar() {
        let lines = mercurial(7, 50);
        assert_eq!(lines, mercurial(7, 50));
        for line in lines {
            steadfast_fault::Fault::parse_all(&line).expect(&line);
        }
    }
}
