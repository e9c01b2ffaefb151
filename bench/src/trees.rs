//! `bench trees`: what programs with children and threads cost: a spawn, `make -j2`, a switch between threads, a free mutex.
//!
//! | Job | What is run |
//! |---|---|
//! | `spawn` | a shell that starts `true` again and again |
//! | `make` | `make -j2` of a C project of 16 files by gcc, in a directory of its own |
//! | `cond` | two threads that take turns by a condition variable |
//! | `mutex` | one thread, and a mutex that nobody else wants |
//!
//! Columns: bare; two unconnected copies side by side, the floor; two replicas. Copies and replicas are pinned alike, one to a CPU.
//!
//! Invariant: every column runs the same words, and what it prints is compared with the bare run's.
//!
//! Not covered: servers under load (redis, nginx, PostgreSQL).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::Invocation;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, Pages};
use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::rounds::{self, Progress, Series, Turns, find};
use crate::sample::{Runner, Sample};
use crate::stats::{Estimate, median_estimate};
use crate::table;

/// Children of one run of `spawn`: the start of the run itself is then some percent of it.
const SPAWNS: usize = 200;
const SWITCHES: usize = 100_000;
const LOCKS: usize = 20_000_000;
const FILES: usize = 16;

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TreesReport {
    pub bench: String,
    pub machine: Machine,
    pub pairs: usize,
    pub seed: u64,
    pub complete: bool,
    /// By job.
    pub jobs: Vec<(String, Vec<Series>)>,
}

/// Measures all jobs.
///
/// # Errors
/// When the guest does not build, or the project cannot be written.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    pairs: usize,
    seed: u64,
    machine: Machine,
    progress: &mut dyn Progress,
) -> Result<TreesReport> {
    let switch = guest::build(guests, "switch")?;
    let project = project(&guests.join("project"))?;
    let shell = |script: &str| guest::invocation("/bin/sh".as_ref(), &["-c", script]);
    let spawn =
        format!("i=0; while [ $i -lt {SPAWNS} ]; do /bin/true; i=$((i + 1)); done; echo $i");
    let make = format!(
        "d=$(mktemp -d) && cp {}/* $d && make -s -j2 -C $d && $d/project; rm -rf $d",
        project.display()
    );
    let jobs: [(&str, Invocation); 4] = [
        ("spawn", shell(&spawn)),
        ("make", shell(&make)),
        (
            "cond",
            guest::invocation(&switch, &["cond", &SWITCHES.to_string()]),
        ),
        (
            "mutex",
            guest::invocation(&switch, &["mutex", &LOCKS.to_string()]),
        ),
    ];
    let columns = [
        Column::bare("bare", 1, Pages::AsIs),
        Column::bare("corun2", 2, Pages::AsIs),
        Column::protected("n2", 2, &[]),
    ];
    let mut rng = Rng::new(seed);
    let mut report = TreesReport {
        bench: "trees".to_owned(),
        machine,
        pairs,
        seed,
        complete: true,
        jobs: Vec::new(),
    };
    for (name, job) in jobs {
        let turns = Turns::of(name, &job, &columns, pairs);
        let series = rounds::run(runner, &turns, &mut rng, progress);
        report.jobs.push((name.to_owned(), series));
        report.complete = !runner.interrupted();
    }
    Ok(report)
}

/// Writes a C project of some files that gcc takes a while for.
fn project(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut objects = String::from("main.o");
    let mut parts = String::new();
    for n in 0..FILES {
        let source = format!(
            "#define PART {n}\n#define STRIDE {}\n{}",
            n % 5 + 1,
            include_str!("../guests/project_part.c")
        );
        fs::write(dir.join(format!("part{n}.c")), source)?;
        objects += &format!(" part{n}.o");
        parts += &format!("PART({n})\n");
    }
    fs::write(dir.join("parts.h"), parts)?;
    fs::write(dir.join("main.c"), include_str!("../guests/project_main.c"))?;
    fs::write(
        dir.join("Makefile"),
        format!("CFLAGS = -O2\nproject: {objects}\n\t$(CC) -o $@ {objects}\n"),
    )?;
    Ok(dir.to_owned())
}

impl TreesReport {
    fn series(&self, job: &str, column: &str) -> Option<&Series> {
        let (_, series) = self.jobs.iter().find(|(name, _)| name == job)?;
        find(series, column)
    }

    /// The median of a number of a run.
    fn value(
        &self,
        job: &str,
        column: &str,
        rng: &mut Rng,
        of: impl Fn(&Sample) -> f64,
    ) -> Option<Estimate> {
        median_estimate(&self.series(job, column)?.values(of), rng)
    }

    /// Percent by which two replicas take longer.
    fn over(&self, job: &str, base: &str, rng: &mut Rng) -> Option<Estimate> {
        let ratios = self
            .series(job, "n2")?
            .ratios(self.series(job, base)?, |sample| sample.wall);
        let percent: Vec<f64> = ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect();
        median_estimate(&percent, rng)
    }
}

/// Nanoseconds that a guest measured itself, in its slowest copy.
fn own_ns(sample: &Sample) -> f64 {
    sample
        .said
        .iter()
        .filter_map(|said| {
            said.lines()
                .find_map(|line| line.strip_prefix("ns ")?.trim().parse().ok())
        })
        .fold(f64::NAN, f64::max)
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &TreesReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for column in ["bare", "corun2", "n2"] {
        let each = |count: usize, unit: f64| move |value: f64| value / count as f64 * unit;
        let spawn = report.value("spawn", column, &mut rng, |sample| {
            each(SPAWNS, 1e3)(sample.wall)
        });
        rows.extend(results::row(
            format!("spawn.{column}"),
            format!("one true(1) from a shell, {column}"),
            "ms",
            spawn,
        ));
        let cond = report.value("cond", column, &mut rng, |sample| {
            each(SWITCHES, 1e-3)(own_ns(sample))
        });
        rows.extend(results::row(
            format!("cond.{column}"),
            format!("one switch by a condition variable, {column}"),
            "µs",
            cond,
        ));
        let mutex = report.value("mutex", column, &mut rng, |sample| {
            each(LOCKS, 1.0)(own_ns(sample))
        });
        rows.extend(results::row(
            format!("mutex.{column}"),
            format!("a free mutex taken and given, {column}"),
            "ns",
            mutex,
        ));
    }
    for (base, key) in [("corun2", "make.floor"), ("bare", "make.bare")] {
        let what = format!("make -j2 of {FILES} C files, two replicas over {base}");
        rows.extend(results::row(
            key,
            what,
            "%",
            report.over("make", base, &mut rng),
        ));
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &TreesReport) -> String {
    let lines: Vec<Vec<String>> = rows(report)
        .into_iter()
        .map(|row| vec![row.what.clone(), row.text()])
        .collect();
    let mut out = report.machine.render();
    out += &format!(
        "{} rounds, seed {}{}\n\n",
        report.pairs,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(&["what", "median [95 %]"], &lines);
    out.push('\n');
    for (job, series) in &report.jobs {
        for series in series {
            for failure in &series.failures {
                out += &format!("error   {job}, {}: {failure}\n", series.column);
            }
        }
    }
    out
}
