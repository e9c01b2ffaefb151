//! `bench start`: what starting a program under protection costs, on a program that does nothing.

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

/// Measures `true`, bare and under 1 to 3 replicas.
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
    let turns = Turns::of("true", &job, &columns, pairs);
    let series = rounds::run(runner, &turns, &mut Rng::new(seed), progress);
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

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &StartReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    report
        .series
        .iter()
        .filter_map(|series| {
            let found = median_estimate(&series.values(|sample| sample.wall * 1e3), &mut rng);
            let what = match series.column.strip_prefix('n') {
                Some("1") => "true(1), 1 replica".to_owned(),
                Some(n) => format!("true(1), {n} replicas"),
                None => "true(1), bare".to_owned(),
            };
            results::row(&series.column, what, "ms", found)
        })
        .collect()
}

/// The report as text.
#[must_use]
pub fn render(report: &StartReport) -> String {
    let mut rng = Rng::new(report.seed);
    let bare = find(&report.series, "bare");
    let mut rows = Vec::new();
    for series in &report.series {
        let milliseconds = |values: &[f64], rng: &mut Rng| {
            median_estimate(values, rng).map_or("error".to_owned(), |found| {
                let found = found.map(|seconds| seconds * 1e3);
                format!("{:.2} [{:.2}, {:.2}]", found.value, found.low, found.high)
            })
        };
        let added = bare.map_or(Vec::new(), |bare| {
            series.paired(bare, |mine, base| mine.wall - base.wall)
        });
        let setup: Vec<f64> = series
            .samples
            .iter()
            .flatten()
            .filter_map(|sample| Some(sample.report.as_ref()?.timings.setup_ns as f64 / 1e6))
            .collect();
        rows.push(vec![
            series.column.clone(),
            milliseconds(&series.values(|sample| sample.wall), &mut rng),
            if series.column == "bare" {
                String::new()
            } else {
                milliseconds(&added, &mut rng)
            },
            median(&setup).map_or(String::new(), |ms| format!("{ms:.2}")),
        ]);
    }
    let mut out = report.machine.render();
    out += &format!(
        "true(1), {} rounds, seed {}{}\n\n",
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
