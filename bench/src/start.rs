//! `bench start`: what starting a program under protection costs, on a program that does nothing: a small one, and one
//! whose code has to be looked through first, a hundred megabytes of it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, Pages};
use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::rounds::{self, Progress, Series, Turns, find};
use crate::sample::Runner;
use crate::stats::{median, median_estimate};
use crate::table;

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartReport {
    pub bench: String,
    pub machine: Machine,
    pub pairs: usize,
    pub seed: u64,
    pub complete: bool,
    pub series: Vec<Series>,
}

/// The large program, where Debian's package puts it; without it the small one is measured alone.
const LARGE: &str = "/usr/lib/llvm-19/bin/clang";

/// Measures `true` bare and under 1 to 3 replicas, `clang --version` bare and under 2.
pub fn measure(
    runner: &Runner,
    pairs: usize,
    seed: u64,
    machine: Machine,
    progress: &mut dyn Progress,
) -> StartReport {
    let mut columns = vec![Column::bare("bare", 1, Pages::AsIs)];
    columns.extend((1..=3).map(|n| Column::protected(&format!("n{n}"), n, &[])));
    let job = guest::invocation("/bin/true".as_ref(), &[]);
    let mut rng = Rng::new(seed);
    let turns = Turns::of("true", &job, &columns, pairs);
    let mut series = rounds::run(runner, &turns, &mut rng, progress);
    let large = Path::new(LARGE);
    if large.exists() {
        let columns = [
            Column::bare("clang-bare", 1, Pages::AsIs),
            Column::protected("clang-n2", 2, &[]),
        ];
        let job = guest::invocation(large, &["--version"]);
        let turns = Turns::of("clang", &job, &columns, pairs);
        series.extend(rounds::run(runner, &turns, &mut rng, progress));
    }
    let complete = !runner.interrupted();
    StartReport {
        bench: "start".to_owned(),
        machine,
        pairs,
        seed,
        complete,
        series,
    }
}

/// The program of a column, and how it ran.
fn program(column: &str) -> (&'static str, &str) {
    match column.strip_prefix("clang-") {
        Some(column) => ("clang --version", column),
        None => ("true(1)", column),
    }
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &StartReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    report
        .series
        .iter()
        .filter_map(|series| {
            let found = median_estimate(&series.values(|sample| sample.wall * 1e3), &mut rng);
            let (program, column) = program(&series.column);
            let what = match column.strip_prefix('n') {
                Some("1") => format!("{program}, 1 replica"),
                Some(n) => format!("{program}, {n} replicas"),
                None => format!("{program}, bare"),
            };
            results::row(&series.column, what, "ms", found)
        })
        .collect()
}

/// The report as text.
#[must_use]
pub fn render(report: &StartReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for series in &report.series {
        let milliseconds = |values: &[f64], rng: &mut Rng| {
            median_estimate(values, rng).map_or("error".to_owned(), |found| {
                let found = found.map(|seconds| seconds * 1e3);
                format!("{:.2} [{:.2}, {:.2}]", found.value, found.low, found.high)
            })
        };
        let (program, column) = program(&series.column);
        let bare = series.column.strip_suffix(column).unwrap_or_default();
        let added = find(&report.series, &format!("{bare}bare")).map_or(Vec::new(), |bare| {
            series.paired(bare, |mine, base| mine.wall - base.wall)
        });
        let setup: Vec<f64> = series
            .samples
            .iter()
            .flatten()
            .filter_map(|sample| Some(sample.report.as_ref()?.timings.setup_ns as f64 / 1e6))
            .collect();
        rows.push(vec![
            format!("{program}, {column}"),
            milliseconds(&series.values(|sample| sample.wall), &mut rng),
            if column == "bare" {
                String::new()
            } else {
                milliseconds(&added, &mut rng)
            },
            median(&setup).map_or(String::new(), |ms| format!("{ms:.2}")),
        ]);
    }
    let mut out = report.machine.render();
    out += &format!(
        "{} rounds, seed {}{}\n\n",
        report.pairs,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(
        &[
            "run",
            "wall ms",
            "added ms",
            "of it, until the first instruction ms",
        ],
        &rows,
    );
    out.push('\n');
    for series in &report.series {
        for failure in &series.failures {
            out += &format!("error   {}: {failure}\n", series.column);
        }
    }
    out
}
