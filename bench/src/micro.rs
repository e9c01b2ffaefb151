//! `bench micro`: what protection adds to one event.
//!
//! A guest makes the same event very often and times the loop itself; what is reported is the
//! median over the rounds of (protected less bare) per event. The loop is far longer than the
//! log, so a follower cannot hide its own cost by lagging: a full log makes the leader wait.
//!
//! The columns are bare, and one and two replicas under each backstop. The bare loop is pinned to
//! the CPU of the leader.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, Pages};
use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::rounds::{self, Progress, Series, Turns};
use crate::sample::{Runner, Sample};
use crate::stats::{Estimate, median, median_estimate, slope};
use crate::table;
use crate::verdict::Promise;

/// The backstops, weakest first.
pub const BACKSTOPS: [&str; 4] = ["none", "seccomp", "token", "both"];

/// One kind of event, and how often it is made: enough for a tenth of a second and more, bare.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub name: &'static str,
    what: &'static str,
    bytes: usize,
    count: usize,
}

/// The events that are measured.
pub const EVENTS: [Event; 11] = [
    Event {
        name: "getppid",
        what: "getppid",
        bytes: 0,
        count: 1_000_000,
    },
    Event {
        name: "write 64 B",
        what: "write",
        bytes: 64,
        count: 500_000,
    },
    Event {
        name: "write 1 KiB",
        what: "write",
        bytes: 1 << 10,
        count: 300_000,
    },
    Event {
        name: "write 4 KiB",
        what: "write",
        bytes: 4 << 10,
        count: 200_000,
    },
    Event {
        name: "write 16 KiB",
        what: "write",
        bytes: 16 << 10,
        count: 100_000,
    },
    Event {
        name: "write 64 KiB",
        what: "write",
        bytes: 64 << 10,
        count: 30_000,
    },
    Event {
        name: "read 1 KiB",
        what: "read",
        bytes: 1 << 10,
        count: 300_000,
    },
    Event {
        name: "read 16 KiB",
        what: "read",
        bytes: 16 << 10,
        count: 100_000,
    },
    Event {
        name: "read 64 KiB",
        what: "read",
        bytes: 64 << 10,
        count: 30_000,
    },
    Event {
        name: "clock_gettime",
        what: "clock",
        bytes: 0,
        count: 10_000_000,
    },
    Event {
        name: "rdtsc",
        what: "rdtsc",
        bytes: 0,
        count: 10_000_000,
    },
];

/// Everything measured about one kind of event.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub event: String,
    pub count: usize,
    pub bytes: usize,
    /// Nanoseconds per event, by column and round; `None` where a round failed.
    pub ns: BTreeMap<String, Vec<Option<f64>>>,
    /// What failed, by column.
    pub failures: BTreeMap<String, Vec<String>>,
}

impl Measured {
    fn new(event: &Event, count: usize, series: &[Series]) -> Self {
        let per_event = |sample: &Sample| Some(sample.guest_ns()? / count as f64);
        let ns = |series: &Series| {
            let rounds = series.samples.iter();
            rounds
                .map(|sample| sample.as_ref().and_then(per_event))
                .collect()
        };
        let failed = series.iter().filter(|series| !series.failures.is_empty());
        Measured {
            event: event.name.to_owned(),
            count,
            bytes: event.bytes,
            ns: series
                .iter()
                .map(|series| (series.column.clone(), ns(series)))
                .collect(),
            failures: failed
                .map(|series| (series.column.clone(), series.failures.clone()))
                .collect(),
        }
    }

    /// Nanoseconds that a column takes more than another, for each round in which both succeeded.
    #[must_use]
    pub fn added(&self, column: &str, base: &str) -> Vec<f64> {
        let (Some(mine), Some(base)) = (self.ns.get(column), self.ns.get(base)) else {
            return Vec::new();
        };
        mine.iter()
            .zip(base)
            .filter_map(|(mine, base)| Some((*mine)? - (*base)?))
            .collect()
    }

    fn total(&self, column: &str) -> Vec<f64> {
        self.ns.get(column).map_or(Vec::new(), |rounds| {
            rounds.iter().flatten().copied().collect()
        })
    }
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MicroReport {
    pub bench: String,
    pub machine: Machine,
    pub pairs: usize,
    pub seed: u64,
    pub complete: bool,
    pub events: Vec<Measured>,
    /// Nanoseconds that two replicas add per further KiB, for `write` and `read`.
    pub slopes: BTreeMap<String, Estimate>,
    pub promises: Vec<Promise>,
}

/// The columns: bare, then each number of replicas under each backstop.
#[must_use]
pub fn columns(replicas_max: u8) -> Vec<Column> {
    let mut columns = vec![Column::bare("bare", 1, Pages::AsIs)];
    for replicas in 1..=replicas_max {
        for backstop in BACKSTOPS {
            let flag = format!("--backstop={backstop}");
            columns.push(Column::protected(
                &format!("n{replicas}-{backstop}"),
                replicas,
                &[&flag],
            ));
        }
    }
    columns
}

/// How `bench micro` is run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub pairs: usize,
    pub seed: u64,
    /// Multiplies how often each event is made.
    pub scale: f64,
    /// Highest number of replicas.
    pub replicas_max: u8,
    /// Only events whose name begins with one of these; empty means all.
    pub only: Vec<String>,
}

/// Measures every event in every column.
///
/// # Errors
/// When the guest does not build.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    settings: &Settings,
    machine: Machine,
    progress: &mut dyn Progress,
) -> Result<MicroReport> {
    let program = guest::build(guests, "micro")?;
    let mut rng = Rng::new(settings.seed);
    let columns = columns(settings.replicas_max);
    let wanted = |event: &&Event| {
        settings.only.is_empty()
            || settings
                .only
                .iter()
                .any(|name| event.name.starts_with(name.as_str()))
    };
    let mut events = Vec::new();
    for event in EVENTS.iter().filter(wanted) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count that was scaled"
        )]
        let count = ((event.count as f64 * settings.scale) as usize).max(1_000);
        let words = [
            event.what.to_owned(),
            count.to_string(),
            event.bytes.to_string(),
        ];
        let job = guest::invocation(&program, &words.each_ref().map(String::as_str));
        let turns = Turns::of(event.name, &job, &columns, settings.pairs);
        let series = rounds::run(runner, &turns, &mut rng, progress);
        events.push(Measured::new(event, count, &series));
    }
    let mut report = MicroReport {
        bench: "micro".to_owned(),
        machine,
        pairs: settings.pairs,
        seed: settings.seed,
        complete: !runner.interrupted(),
        events,
        slopes: BTreeMap::new(),
        promises: Vec::new(),
    };
    conclude(&mut report);
    Ok(report)
}

fn conclude(report: &mut MicroReport) {
    let mut rng = Rng::new(report.seed);
    for what in ["write", "read"] {
        let per_round = slopes(&report.events, what, "n2-none");
        if let Some(found) = median_estimate(&per_round, &mut rng) {
            report.slopes.insert(what.to_owned(), found);
        }
    }
    let event = |name: &str| report.events.iter().find(|measured| measured.event == name);
    let mut added = |name: &str, column: &str, base: &str| {
        median_estimate(&event(name)?.added(column, base), &mut rng)
    };
    let two = "added by 2 replicas, every comparison on, backstop apart";
    let mut promises = vec![
        Promise::at_most(
            &format!("getppid (followers may lag), {two}"),
            "ns",
            60.0,
            0.0,
            added("getppid", "n2-none", "bare"),
        ),
        Promise::at_most(
            &format!("64-byte write (lockstep), {two}"),
            "ns",
            250.0,
            0.0,
            added("write 64 B", "n2-none", "bare"),
        ),
        Promise::at_most(
            "backstop (token less none, getppid, 2 replicas)",
            "ns",
            60.0,
            0.0,
            added("getppid", "n2-token", "n2-none"),
        ),
    ];
    let reads = event("clock_gettime").map_or(Vec::new(), |measured| measured.total("n2-token"));
    let reads = median_estimate(&reads, &mut rng);
    promises.push(Promise::at_most(
        "one clock_gettime, 2 replicas",
        "ns",
        50.0,
        0.0,
        reads,
    ));
    let cores = report.machine.cores;
    report.promises = promises
        .into_iter()
        .map(|promise| match () {
            () if cores < 2 => promise.pending("the two replicas had no core each"),
            () if report.pairs < 10 || !report.complete => {
                promise.pending("fewer than 10 complete rounds")
            }
            () => promise,
        })
        .collect();
}

/// The slope over the sizes of what a column adds, in each round in which all sizes succeeded.
fn slopes(events: &[Measured], what: &str, column: &str) -> Vec<f64> {
    let sizes: Vec<&Measured> = events
        .iter()
        .filter(|measured| measured.bytes >= 1024 && measured.event.starts_with(what))
        .collect();
    let rounds = sizes
        .iter()
        .filter_map(|size| Some(size.ns.get(column)?.len()))
        .min()
        .unwrap_or(0);
    let point = |size: &Measured, round: usize| {
        let at = |column: &str| size.ns.get(column)?.get(round).copied().flatten();
        Some((size.bytes as f64 / 1024.0, at(column)? - at("bare")?))
    };
    let line = |round: usize| {
        let points: Option<Vec<_>> = sizes.iter().map(|size| point(size, round)).collect();
        slope(&points?)
    };
    (0..rounds).filter_map(line).collect()
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &MicroReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    let event = |name: &str| report.events.iter().find(|measured| measured.event == name);
    let mut added = |key: &str, what: &str, name: &str, column: &str, base: &str| {
        let found =
            event(name).and_then(|event| median_estimate(&event.added(column, base), &mut rng));
        rows.extend(results::row(key, what, "ns", found));
    };
    let lag = "added per event, followers may lag (getppid)";
    added(
        "getppid.n2",
        &format!("{lag}, 2 replicas"),
        "getppid",
        "n2-none",
        "bare",
    );
    added(
        "getppid.n1",
        &format!("{lag}, 1 replica"),
        "getppid",
        "n1-none",
        "bare",
    );
    let lockstep = "added per event in lockstep (64-byte write), 2 replicas";
    added("write64.n2", lockstep, "write 64 B", "n2-none", "bare");
    for backstop in BACKSTOPS.iter().filter(|name| **name != "none") {
        for n in ["n1", "n2"] {
            let key = format!("backstop.{backstop}.{n}");
            let what = format!("added by the backstop alone: {backstop}, {n}");
            let (column, base) = (format!("{n}-{backstop}"), format!("{n}-none"));
            added(&key, &what, "getppid", &column, &base);
        }
    }
    for column in ["bare", "n1-token", "n2-token"] {
        let Some(clock) = event("clock_gettime") else {
            continue;
        };
        let key = format!("clock.{}", column.trim_end_matches("-token"));
        let found = median_estimate(&clock.total(column), &mut rng);
        rows.extend(results::row(
            key,
            format!("one clock_gettime, {column}"),
            "ns",
            found,
        ));
    }
    for (name, slope) in &report.slopes {
        let what = format!("added per further KiB of a {name}, 2 replicas");
        rows.extend(results::row(
            format!("{name}.kib"),
            what,
            "ns",
            Some(*slope),
        ));
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &MicroReport) -> String {
    let columns: Vec<&String> = report
        .events
        .first()
        .map_or(Vec::new(), |event| event.ns.keys().collect());
    let replicas: Vec<u8> = (1..=8)
        .filter(|n| {
            columns
                .iter()
                .any(|column| **column == format!("n{n}-none"))
        })
        .collect();
    let mut header = vec!["event".to_owned(), "bare ns".to_owned()];
    for n in &replicas {
        header.extend(BACKSTOPS.map(|backstop| format!("n{n} {backstop}")));
    }
    let mut rows = Vec::new();
    for event in &report.events {
        let cell = |values: Vec<f64>, column: &str| match median(&values) {
            Some(ns) if column == "bare" => format!("{ns:.1}"),
            Some(ns) => format!("{ns:+.1}"),
            None if event.failures.contains_key(column) => "error".to_owned(),
            None => "-".to_owned(),
        };
        let mut row = vec![event.event.clone(), cell(event.total("bare"), "bare")];
        for n in &replicas {
            row.extend(BACKSTOPS.map(|backstop| {
                let column = format!("n{n}-{backstop}");
                cell(event.added(&column, "bare"), &column)
            }));
        }
        rows.push(row);
    }
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut out = report.machine.render();
    out += &format!(
        "{} rounds, seed {}{}; nanoseconds per event: bare, then added by N replicas under a backstop\n\n",
        report.pairs,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(&header, &rows);
    out.push('\n');
    for (what, slope) in &report.slopes {
        out += &format!(
            "{what}: {:.1} [{:.1}, {:.1}] ns added by 2 replicas per further KiB\n",
            slope.value, slope.low, slope.high
        );
    }
    for event in &report.events {
        for (column, failures) in &event.failures {
            for failure in failures {
                out += &format!("error   {}, {column}: {failure}\n", event.event);
            }
        }
    }
    out + &crate::verdict::render(&report.promises)
}

/// Nanoseconds that N replicas add per event when nothing waits: t_master of the model.
#[must_use]
pub fn master_ns(report: &MicroReport, replicas: u8) -> Option<f64> {
    let event = report
        .events
        .iter()
        .find(|measured| measured.event == "getppid")?;
    median(&event.added(&format!("n{replicas}-token"), "bare"))
}
