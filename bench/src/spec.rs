//! `bench spec`: what protecting whole programs costs.
//!
//! | Column | What runs |
//! |---|---|
//! | `bare` | the program alone, pinned |
//! | `corun2-4k`, `corun2-huge` | two copies that know nothing of each other, pinned as the replicas are |
//! | `n1` | one replica |
//! | `n2-stop` | two replicas that only detect |
//! | `n2` | two replicas that recover: the default |
//! | `corun3-*`, `n3` | the same with three |
//!
//! The floor of N replicas is the faster of the two co-running columns: what the hardware takes
//! for doing the work N times, with the better of both page sizes. An overhead is the median over
//! the rounds of (protected / floor), less one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, Pages};
use crate::machine::Machine;
use crate::results;
use crate::rounds::{Series, find};
use crate::sample::Sample;
use crate::stats::{Estimate, geometric_mean_estimate, median, median_estimate};
use crate::table;
use crate::verdict::{Promise, SLACK_POINTS, Verdict};

/// All columns, in the order of the table.
#[must_use]
pub fn columns() -> Vec<Column> {
    vec![
        Column::bare("bare", 1, Pages::AsIs),
        Column::bare("corun2-4k", 2, Pages::Small),
        Column::bare("corun2-huge", 2, Pages::Huge),
        Column::protected("n1", 1, &[]),
        Column::protected("n2-stop", 2, &["--on-mismatch=stop"]),
        Column::protected("n2", 2, &["--on-mismatch=recover"]),
        Column::bare("corun3-4k", 3, Pages::Small),
        Column::bare("corun3-huge", 3, Pages::Huge),
        Column::protected("n3", 3, &["--on-mismatch=recover"]),
    ]
}

/// Everything measured about one program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub stands_for: String,
    /// Why it could not be run at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub series: Vec<Series>,
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpecReport {
    pub bench: String,
    pub machine: Machine,
    pub size: String,
    pub pairs: usize,
    pub seed: u64,
    /// False when the run was interrupted.
    pub complete: bool,
    pub programs: Vec<Program>,
    pub promises: Vec<Promise>,
    /// Geometric means over the floor, by protected column, as ratios.
    pub means: BTreeMap<String, Estimate>,
}

/// The floor that a protected column is measured against, and its name.
#[must_use]
pub fn floor<'a>(program: &'a Program, column: &str) -> Option<&'a Series> {
    let wall = |series: &&Series| median(&series.values(|sample| sample.wall)).unwrap_or(f64::MAX);
    let candidates: &[&str] = match column {
        "n1" => &["bare"],
        "n2" | "n2-stop" => &["corun2-4k", "corun2-huge"],
        "n3" => &["corun3-4k", "corun3-huge"],
        _ => return None,
    };
    let known = candidates
        .iter()
        .filter_map(|name| find(&program.series, name));
    let measured = known.filter(|series| series.last().is_some());
    measured.min_by(|one, other| wall(one).total_cmp(&wall(other)))
}

/// Ratios of a protected column to its floor, one per round.
#[must_use]
pub fn over_floor(program: &Program, column: &str) -> Vec<f64> {
    match (find(&program.series, column), floor(program, column)) {
        (Some(mine), Some(base)) => mine.ratios(base, |sample| sample.wall),
        _ => Vec::new(),
    }
}

/// Works out means and promises from the programs measured.
pub fn conclude(report: &mut SpecReport, announced: usize) {
    let mut rng = Rng::new(report.seed);
    report.means.clear();
    let mut verdicts = Vec::new();
    for (column, what, target) in [
        ("n1", "geometric mean over bare, 1 replica", None),
        (
            "n2-stop",
            "geometric mean over the floor, 2 replicas, detection only",
            Some(1.0),
        ),
        (
            "n2",
            "geometric mean over the floor, 2 replicas with recovery",
            Some(1.0),
        ),
        ("n3", "geometric mean over the floor, 3 replicas", Some(2.0)),
    ] {
        if !report
            .programs
            .iter()
            .any(|program| find(&program.series, column).is_some())
        {
            continue;
        }
        let lists: Vec<Vec<f64>> = report
            .programs
            .iter()
            .map(|program| over_floor(program, column))
            .collect();
        let filled: Vec<&[f64]> = lists
            .iter()
            .filter(|list| !list.is_empty())
            .map(Vec::as_slice)
            .collect();
        let mean = geometric_mean_estimate(&filled, &mut rng);
        if let Some(mean) = mean {
            report.means.insert(column.to_owned(), mean);
        }
        let Some(target) = target else { continue };
        let percent = mean.map(|mean| mean.map(|ratio| (ratio - 1.0) * 100.0));
        let promise = Promise::at_most(what, "%", target, SLACK_POINTS, percent);
        verdicts.push(qualify(promise, report, column, filled.len(), announced));
    }
    report.promises = verdicts;
}

/// One report of several that measured other programs in the same way: rounds are interleaved within a
/// program, so it does not matter whether programs shared a run.
///
/// # Errors
/// When two do not go together, in words.
pub fn join(reports: Vec<SpecReport>, announced: usize) -> Result<SpecReport, String> {
    let mut reports = reports.into_iter();
    let mut all = reports
        .next()
        .ok_or("at least one report is needed, found none")?;
    for next in reports {
        let way = |report: &SpecReport| {
            (
                report.size.clone(),
                report.pairs,
                report.machine.kernel.clone(),
            )
        };
        if way(&next) != way(&all) {
            return Err(format!(
                "reports of one size, number of rounds and kernel are needed, found {:?} and {:?}",
                way(&all),
                way(&next)
            ));
        }
        if let Some(twice) = next
            .programs
            .iter()
            .find(|one| all.programs.iter().any(|other| other.name == one.name))
        {
            return Err(format!(
                "each program in one report is needed, found {} in two",
                twice.name
            ));
        }
        all.complete &= next.complete;
        all.programs.extend(next.programs);
    }
    conclude(&mut all, announced);
    Ok(all)
}

/// A promise is about all programs, in full size, in at least ten rounds, without a failure.
fn qualify(
    promise: Promise,
    report: &SpecReport,
    column: &str,
    measured: usize,
    announced: usize,
) -> Promise {
    let failed: Vec<&str> = report
        .programs
        .iter()
        .filter(|program| {
            let failed = |series: &Series| series.column == column && !series.failures.is_empty();
            program.error.is_some() || program.series.iter().any(failed)
        })
        .map(|program| program.name.as_str())
        .collect();
    if !failed.is_empty() {
        let mut promise = promise.pending(format!("failed runs: {}", failed.join(" ")));
        // A program that cannot be protected is a promise broken, not one not yet measured.
        promise.verdict = Verdict::Missed;
        return promise;
    }
    if measured < announced {
        return promise.pending(format!("{measured} of {announced} programs measured"));
    }
    if report.size != "full" {
        return promise.pending(format!("inputs of size {}", report.size));
    }
    if report.pairs < 10 || !report.complete {
        return promise.pending("fewer than 10 complete rounds");
    }
    if column == "n3" && report.machine.cores < 3 {
        return promise.pending(format!(
            "{} cores: measured over 3 co-running copies, a machine with 3 is needed",
            report.machine.cores
        ));
    }
    promise
}

/// What is kept in `results/`: each program over its floor, and the geometric means.
#[must_use]
pub fn rows(report: &SpecReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let mut rows = Vec::new();
    for (column, mean) in &report.means {
        // Three replicas on two cores have a key of their own.
        let key = match column.as_str() {
            "n3" if report.machine.cores < 3 => "n3.two-cores",
            name => name,
        };
        let what = format!("geometric mean over the floor, {column}");
        rows.extend(results::row(key, what, "%", Some(mean.map(percent))));
    }
    for program in &report.programs {
        for column in ["n2", "n3"] {
            let over = median_estimate(&over_floor(program, column), &mut rng);
            let what = format!("{} over the floor, {column}", program.name);
            let key = format!("{column}.{}", program.name);
            rows.extend(results::row(
                key,
                what,
                "%",
                over.map(|over| over.map(percent)),
            ));
        }
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &SpecReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut rows: Vec<Vec<String>> = report
        .programs
        .iter()
        .map(|program| row(program, &mut rng))
        .collect();
    let mut mean = vec!["geometric mean".to_owned()];
    let cell = |column: &str| report.means.get(column).map_or(String::new(), percent);
    mean.extend(["", ""].map(str::to_owned));
    mean.extend(["n1", "n2-stop", "n2"].map(cell));
    mean.extend(["".to_owned(), cell("n3")]);
    mean.resize(HEADER.len(), String::new());
    rows.push(mean);
    let mut out = report.machine.render();
    out += &format!(
        "inputs:  size {}, {} rounds, seed {}{}\n\n",
        report.size,
        report.pairs,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(&HEADER, &rows);
    out += "\nfloor N: N copies co-running, the faster of 4 KiB (4k) and huge pages; n1 is over bare\n\
            CPU: CPU time of n2 over its floor's; RSS: largest process, bare and n2, MiB\n\
            coverage of n2: sites patched / on the slow path / executable bytes not decoded\n\n";
    for program in &report.programs {
        if let Some(error) = &program.error {
            out += &format!("error   {}: {error}\n", program.name);
        }
        for series in &program.series {
            for failure in &series.failures {
                out += &format!("error   {}, {}: {failure}\n", program.name, series.column);
            }
        }
    }
    out + &crate::verdict::render(&report.promises)
}

const HEADER: [&str; 12] = [
    "program",
    "bare s",
    "floor 2 s",
    "n1 %",
    "n2-stop %",
    "n2 %",
    "floor 3 s",
    "n3 %",
    "CPU n2 %",
    "RSS",
    "events",
    "coverage",
];

fn row(program: &Program, rng: &mut Rng) -> Vec<String> {
    let seconds = |series: Option<&Series>| {
        let found = series.and_then(|series| {
            let pages = series.column.split_once('-').map_or("", |(_, pages)| pages);
            Some(format!(
                "{:.2} {pages}",
                median(&series.values(|sample| sample.wall))?
            ))
        });
        found.unwrap_or("-".to_owned()).trim_end().to_owned()
    };
    let mut overhead = |column: &str| match find(&program.series, column) {
        None => "-".to_owned(),
        Some(series) if series.last().is_none() => "error".to_owned(),
        Some(series) => {
            let ratio = median_estimate(&over_floor(program, column), rng);
            let failed = if series.failures.is_empty() { "" } else { "!" };
            ratio.map_or("-".to_owned(), |ratio| percent(&ratio) + failed)
        }
    };
    let n2 = find(&program.series, "n2");
    let protected = n2.and_then(Series::last);
    let report = protected.and_then(|sample| sample.report.as_ref());
    let cpu = n2
        .zip(floor(program, "n2"))
        .and_then(|(mine, base)| median(&mine.ratios(base, Sample::cpu)))
        .filter(|ratio| ratio.is_finite());
    let rss = |sample: Option<&Sample>| {
        sample.map_or("-".to_owned(), |sample| {
            format!("{}", sample.max_rss_kib / 1024)
        })
    };
    let bare = find(&program.series, "bare");
    vec![
        program.name.clone(),
        seconds(bare),
        seconds(floor(program, "n2")),
        overhead("n1"),
        overhead("n2-stop"),
        overhead("n2"),
        seconds(floor(program, "n3")),
        overhead("n3"),
        cpu.map_or("-".to_owned(), |ratio| {
            format!("{:+.1}", (ratio - 1.0) * 100.0)
        }),
        format!("{} {}", rss(bare.and_then(Series::last)), rss(protected)),
        report.map_or("-".to_owned(), |report| report.events.to_string()),
        report.map_or("-".to_owned(), |report| {
            let coverage = &report.coverage;
            format!(
                "{}/{}/{}",
                coverage.patched, coverage.slow_path, coverage.unpatched_bytes
            )
        }),
    ]
}

fn percent(ratio: &Estimate) -> String {
    let found = ratio.map(|ratio| (ratio - 1.0) * 100.0);
    format!(
        "{:+.2} [{:+.2}, {:+.2}]",
        found.value, found.low, found.high
    )
}
