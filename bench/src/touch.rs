//! `bench touch`: reading and writing every page of 800 MB, the paper's Table 1.
//!
//! Rows are the numbers of replicas; columns are 4 KiB and huge pages. Bare copies get huge pages
//! by asking for them, replicas because the product asks for large regions. With 4 KiB pages both
//! are kept from huge ones altogether (PR_SET_THP_DISABLE, and the product's own flag). Each run follows
//! one of its own kind that does not count, so that the machine has the memory.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::Invocation;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, Pages};
use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::rounds::{self, Progress, Series, Turns, find};
use crate::sample::Runner;
use crate::stats::{median, median_estimate};
use crate::table;
use crate::verdict::Promise;

/// Seconds in the paper: 32-bit L4, two sockets of 2.67 GHz, 4 KiB and 4 MiB pages.
const PAPER: [(&str, f64, f64); 4] = [
    ("native", 0.72, 0.38),
    ("1 replica", 0.80, 0.38),
    ("2 replicas", 2.23, 0.58),
    ("3 replicas", 3.12, 0.91),
];

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TouchReport {
    pub bench: String,
    pub machine: Machine,
    pub mib: usize,
    pub pairs: usize,
    pub seed: u64,
    pub complete: bool,
    pub series: Vec<Series>,
    pub promises: Vec<Promise>,
}

/// The columns with their programs.
fn columns(program: &Path, mib: usize) -> Vec<(Column, Invocation)> {
    let mib = mib.to_string();
    let job = |how: &str| guest::invocation(program, &[&mib, how]);
    let mut columns = Vec::new();
    for copies in 1..=3 {
        columns.push((
            Column::bare(&format!("corun{copies}-4k"), copies, Pages::Small),
            job("plain"),
        ));
        columns.push((
            Column::bare(&format!("corun{copies}-huge"), copies, Pages::AsIs),
            job("huge"),
        ));
    }
    for replicas in 1..=3 {
        let small = Column::protected(&format!("n{replicas}-4k"), replicas, &["--huge-pages=off"]);
        columns.push((
            Column {
                pages: Pages::Small,
                ..small
            },
            job("plain"),
        ));
        let huge = Column::protected(
            &format!("n{replicas}-huge"),
            replicas,
            &["--huge-pages=auto"],
        );
        columns.push((huge, job("plain")));
    }
    columns
}

/// Measures all of it.
///
/// # Errors
/// When the guest does not build.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    mib: usize,
    pairs: usize,
    seed: u64,
    machine: Machine,
    progress: &mut dyn Progress,
) -> Result<TouchReport> {
    let program = guest::build(guests, "touch")?;
    let turns = Turns {
        name: format!("touch {mib} MiB"),
        columns: columns(&program, mib),
        rounds: pairs,
        warm: true,
    };
    let mut rng = Rng::new(seed);
    let series = rounds::run(runner, &turns, &mut rng, progress);
    let mut report = TouchReport {
        bench: "touch".to_owned(),
        machine,
        mib,
        pairs,
        seed,
        complete: !runner.interrupted(),
        series,
        promises: Vec::new(),
    };
    for replicas in [2, 3] {
        let over = over_floor(&report, replicas, "huge");
        let percent =
            median_estimate(&over, &mut rng).map(|over| over.map(|ratio| (ratio - 1.0) * 100.0));
        let what = format!("touch {mib} MiB over the floor, {replicas} replicas, huge pages");
        let mut promise = Promise::at_most(&what, "%", 10.0, 0.0, percent);
        if report.machine.cores < replicas {
            promise = promise.pending(format!(
                "{} cores: over {replicas} co-running copies",
                report.machine.cores
            ));
        } else if pairs < 10 || !report.complete || mib < 800 {
            promise = promise.pending("fewer than 10 complete rounds, or less than 800 MiB");
        }
        report.promises.push(promise);
    }
    Ok(report)
}

fn over_floor(report: &TouchReport, replicas: usize, pages: &str) -> Vec<f64> {
    let mine = find(&report.series, &format!("n{replicas}-{pages}"));
    let base = find(&report.series, &format!("corun{replicas}-{pages}"));
    mine.zip(base).map_or(Vec::new(), |(mine, base)| {
        mine.ratios(base, |sample| sample.wall)
    })
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &TouchReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for n in 1..=3 {
        for (pages, key) in [("huge", format!("n{n}")), ("4k", format!("n{n}.small"))] {
            let over: Vec<f64> = over_floor(report, n, pages)
                .iter()
                .map(|ratio| (ratio - 1.0) * 100.0)
                .collect();
            let what = format!("{n} replicas over as many copies, {pages} pages");
            rows.extend(results::row(
                key,
                what,
                "%",
                median_estimate(&over, &mut rng),
            ));
        }
    }
    for (column, key) in [
        ("corun1-huge", "native.s"),
        ("n1-huge", "n1.s"),
        ("n2-huge", "n2.s"),
        ("n3-huge", "n3.s"),
        ("corun2-huge", "copies2.s"),
        ("corun3-huge", "copies3.s"),
    ] {
        let seconds = find(&report.series, column)
            .and_then(|series| median_estimate(&series.values(|sample| sample.wall), &mut rng));
        rows.extend(results::row(
            key,
            format!("{column}, whole run"),
            "s",
            seconds,
        ));
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &TouchReport) -> String {
    let seconds = |column: &str| match find(&report.series, column) {
        Some(series) if !series.failures.is_empty() && series.last().is_none() => {
            "error".to_owned()
        }
        Some(series) => median(&series.values(|sample| sample.wall))
            .map_or("-".to_owned(), |s| format!("{s:.3}")),
        None => "-".to_owned(),
    };
    let over = |replicas: usize, pages: &str| {
        median(&over_floor(report, replicas, pages))
            .map_or("-".to_owned(), |r| format!("{:+.1}", (r - 1.0) * 100.0))
    };
    let mut rows = Vec::new();
    for (copies, (label, paper_small, paper_huge)) in PAPER.into_iter().enumerate() {
        let paper = [format!("{paper_small}"), format!("{paper_huge}")];
        let mut row = vec![label.to_owned()];
        if copies == 0 {
            row.extend([seconds("corun1-4k"), seconds("corun1-huge")]);
            row.extend(["", "", "", ""].map(str::to_owned));
        } else {
            for pages in ["4k", "huge"] {
                row.push(seconds(&format!("n{copies}-{pages}")));
            }
            for pages in ["4k", "huge"] {
                row.extend([
                    seconds(&format!("corun{copies}-{pages}")),
                    over(copies, pages),
                ]);
            }
        }
        row.extend(paper);
        rows.push(row);
    }
    let header = [
        "run",
        "4 KiB s",
        "huge s",
        "floor 4 KiB",
        "over %",
        "floor huge",
        "over %",
        "paper 4 KiB",
        "paper 4 MiB",
    ];
    let mut out = report.machine.render();
    out += &format!(
        "{} MiB, {} rounds, seed {}{}; whole run, in seconds; the floor of N is N co-running copies\n\n",
        report.mib,
        report.pairs,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(&header, &rows);
    out.push('\n');
    for series in &report.series {
        for failure in &series.failures {
            out += &format!("error   {}: {failure}\n", series.column);
        }
    }
    out + &crate::verdict::render(&report.promises)
}
