//! `bench repair`: how long a repair holds the program up, and how late a fault is detected.
//!
//! *Pause.* A guest with a fixed amount of live memory gets one flip in a register that is
//! compared at an event; the pause is what the product reports for the repair. With three
//! replicas the loser is forked anew from a winner, with two all roll back and run again. The
//! victim is the leader in every other run.
//!
//! *A server.* The same of redis with values of so many MiB, while a client writes (servers/pauses.rs).
//!
//! *Latency.* A guest gets one flip at a moment drawn uniformly over its running time, in a
//! register drawn uniformly: most are masked, some are detected, and for those the time from the
//! flip to the divergence goes into a histogram. These are moments of a clock, which is as near as
//! a benchmark comes to uniform over instructions; campaigns that count instructions are the
//! injector's.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use steadfast_contract::event::{Line, What};
use steadfast_report::published::Row;
use steadfast_workloads::Invocation;
use steadfast_workloads::inputs::Rng;

use crate::column::{Column, Pages};
use crate::guest;
use crate::machine::Machine;
use crate::product::Product;
use crate::results;
use crate::sample::{Failure, Runner, Sample};
use crate::servers::pauses::{self, Pauses};
use crate::stats::{Estimate, median, median_estimate, quantile};
use crate::table;
use crate::verdict::Promise;

/// The size that the promise is about.
const PROMISED_MIB: usize = 16;

/// What became of the faults drawn uniformly over time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    pub runs: usize,
    pub not_fired: usize,
    /// It hit, all replicas agreed, and the output is right.
    pub masked: usize,
    /// It was noticed and the output is right.
    pub corrected: usize,
    /// It was noticed and the run stopped, or could not be repaired.
    pub detected: usize,
    /// The output is wrong. One is one too many.
    pub sdc: usize,
    /// From the flip to the divergence, in nanoseconds.
    pub latency_ns: Vec<f64>,
    pub errors: Vec<String>,
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RepairReport {
    pub bench: String,
    pub machine: Machine,
    pub seed: u64,
    pub complete: bool,
    pub pauses: Vec<Pauses>,
    /// Of redis.
    #[serde(default)]
    pub server: Vec<Pauses>,
    pub latencies: Latencies,
    pub promises: Vec<Promise>,
}

/// How `bench repair` is run.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Repairs for each size and number of replicas.
    pub repairs: usize,
    /// Faults for the histogram.
    pub faults: usize,
    pub sizes_mib: Vec<usize>,
    /// Of values in redis; 0 leaves it out.
    pub redis_mib: usize,
}

/// Measures pauses and latencies.
///
/// # Errors
/// When the guest does not build.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    settings: &Settings,
    machine: Machine,
    mut step: impl FnMut(&str),
) -> Result<RepairReport> {
    let program = guest::build(guests, "steady")?;
    let mut rng = Rng::new(settings.seed);
    let mut found = Vec::new();
    for &mib in &settings.sizes_mib {
        for replicas in [3, 2] {
            step(&format!("repair: {mib} MiB, {replicas} replicas"));
            found.push(pauses_at(
                runner,
                &program,
                mib,
                replicas,
                settings.repairs,
                &mut rng,
            ));
        }
    }
    let mut server = Vec::new();
    let product = Product::find();
    let plan = pauses::Plan {
        product: &product,
        dir: &guests.with_file_name("redis"),
        mib: settings.redis_mib,
        repairs: settings.repairs,
    };
    for replicas in [3, 2].into_iter().filter(|_| plan.mib > 0) {
        step(&format!(
            "repair: redis, {} MiB, {replicas} replicas",
            plan.mib
        ));
        let stop = || runner.interrupted();
        server.push(pauses::measure(&plan, replicas, &mut rng, &stop));
    }
    step("repair: detection latency");
    let latencies = latencies(runner, &program, settings.faults, &mut rng);
    let at_promised: Vec<f64> = found
        .iter()
        .filter(|row| row.mib == PROMISED_MIB && row.replicas == 3)
        .flat_map(|row| row.pause_ns.iter().map(|ns| ns / 1e6))
        .collect();
    let measured = median_estimate(&at_promised, &mut rng);
    let mut promise = Promise::at_most(
        "repair pause at 16 MiB, 3 replicas",
        "ms",
        1.0,
        0.0,
        measured,
    );
    if machine.cores < 3 {
        // On fewer cores the pause also holds the time that the others wait for a core; the
        // promise can be met there all the same, so it is judged, and the table says so.
        promise.note = format!("measured on {} cores", machine.cores);
    }
    if at_promised.len() < 10 {
        promise = promise.pending("fewer than 10 repairs");
    }
    let complete = !runner.interrupted();
    Ok(RepairReport {
        bench: "repair".to_owned(),
        machine,
        seed: settings.seed,
        complete,
        pauses: found,
        server,
        latencies,
        promises: vec![promise],
    })
}

fn pauses_at(
    runner: &Runner,
    program: &Path,
    mib: usize,
    replicas: u8,
    repairs: usize,
    rng: &mut Rng,
) -> Pauses {
    // A quarter of a second of events, and the flip somewhere in its middle half.
    let rounds = 40_000;
    let job = guest::invocation(program, &[&mib.to_string(), &rounds.to_string()]);
    let mut row = Pauses {
        mib,
        replicas,
        pause_ns: Vec::new(),
        without_repair: 0,
        errors: Vec::new(),
    };
    let bare = match runner.run(&Column::bare("bare", 1, Pages::AsIs), &job, false) {
        Ok(sample) => sample,
        Err(why) => {
            row.errors.push(format!("bare: {why}"));
            return row;
        }
    };
    for repair in 0..repairs {
        // Callee-saved registers are compared at every event, so the fault is found where it is made.
        let event = rng.between(rounds / 4, rounds * 3 / 4);
        let victim = if repair % 2 == 0 {
            "follower"
        } else {
            "leader"
        };
        let register = rng.pick(&["rbx", "rbp", "r12", "r13"]);
        let flip = format!(
            "--flip=replica={victim} event={event} reg={register} bit={}",
            rng.below(32)
        );
        let column = Column::protected(&format!("n{replicas}"), replicas, &[&flip]);
        match runner.run(&column, &job, true) {
            Ok(sample) if sample.output != bare.output => {
                row.errors.push(format!("wrong output after {flip}"))
            }
            Ok(sample) => match pause_of(&sample) {
                Some(ns) => row.pause_ns.push(ns),
                None => row.without_repair += 1,
            },
            Err(Failure::Interrupted) => break,
            Err(why) => {
                row.errors.push(why.to_string());
                if row.errors.len() > 2 && row.pause_ns.is_empty() {
                    break;
                }
            }
        }
    }
    row
}

/// The time for which repairs held the program up: those of one divergence may be several.
fn pause_of(sample: &Sample) -> Option<f64> {
    let pauses = sample
        .events
        .iter()
        .filter_map(|line| match &line.event.what {
            What::Recovery(recovery) => Some(recovery.pause_ns as f64),
            _ => None,
        });
    let sum: f64 = pauses.clone().sum();
    match pauses.count() {
        0 => Some(sample.report.as_ref()?.timings.repair_pause_ns_max? as f64),
        _ => Some(sum),
    }
}

fn latencies(runner: &Runner, program: &Path, faults: usize, rng: &mut Rng) -> Latencies {
    const REGISTERS: [&str; 15] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];
    let mut found = Latencies::default();
    const ROUNDS: i64 = 40_000;
    const WORDS_PER_ROUND: i64 = 2048; // guests/bench/steady.c
    let job: Invocation = guest::invocation(program, &["16", &ROUNDS.to_string()]);
    let bare = match runner.run(&Column::bare("bare", 1, Pages::AsIs), &job, false) {
        Ok(sample) => sample,
        Err(why) => {
            found.errors.push(format!("bare: {why}"));
            return found;
        }
    };
    for _ in 0..faults {
        let victim = rng.pick(&["follower", "leader"]);
        let register = rng.pick(&REGISTERS);
        let n = rng.between(1, ROUNDS * WORDS_PER_ROUND);
        let flip = format!(
            "--flip=replica={victim} at=steady!steady_word+0x0 n={n} reg={register} bit={}",
            rng.below(64)
        );
        let column = Column::protected("n2", 2, &[&flip]);
        match runner.run(&column, &job, true) {
            Ok(sample) => {
                found.runs += 1;
                count(&mut found, &sample, sample.output == bare.output);
            }
            Err(Failure::Interrupted) => break,
            Err(Failure::Status { status, .. }) if status.contains("122") => {
                found.runs += 1;
                found.detected += 1;
                found.latency_ns.extend(
                    runner
                        .files(true)
                        .read_events()
                        .ok()
                        .and_then(|lines| latency_of(&lines)),
                );
            }
            Err(why) => {
                found.errors.push(why.to_string());
                if found.errors.len() > 2 && found.runs == 0 {
                    break;
                }
            }
        }
    }
    found
}

fn count(found: &mut Latencies, sample: &Sample, right: bool) {
    let report = sample.report.as_ref();
    let fired = report.is_some_and(|report| report.faults.iter().any(|fault| fault.hits > 0));
    let noticed = report.is_some_and(|report| report.divergences > 0);
    found.latency_ns.extend(latency_of(&sample.events));
    match (fired, noticed, right) {
        (_, _, false) => found.sdc += 1,
        (false, _, _) => found.not_fired += 1,
        (true, true, _) => found.corrected += 1,
        (true, false, _) => found.masked += 1,
    }
}

/// From the flip to the first divergence: as the product says, or else between the two events.
fn latency_of(lines: &[Line]) -> Option<f64> {
    let hit = lines
        .iter()
        .find_map(|line| matches!(line.event.what, What::Fault(_)).then_some(line.event.t_ns));
    lines.iter().find_map(|line| match &line.event.what {
        What::Divergence(divergence) => {
            let between = hit.map(|hit| line.event.t_ns.saturating_sub(hit));
            divergence.latency_ns.or(between).map(|ns| ns as f64)
        }
        _ => None,
    })
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &RepairReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    let mut median = |key: String, what: &str, pauses: &Pauses| {
        let ms: Vec<f64> = pauses.pause_ns.iter().map(|ns| ns / 1e6).collect();
        let what = format!("{what}, {} replicas", pauses.replicas);
        rows.extend(results::row(
            key,
            what,
            "ms",
            median_estimate(&ms, &mut rng),
        ));
    };
    for pauses in &report.pauses {
        let what = format!("pause at {} MiB of live memory", pauses.mib);
        median(
            format!("n{}.{}", pauses.replicas, pauses.mib),
            &what,
            pauses,
        );
    }
    for pauses in &report.server {
        let key = format!("redis.n{}.{}", pauses.replicas, pauses.mib);
        let what = format!("pause of redis with {} MiB of values", pauses.mib);
        median(key, &what, pauses);
    }
    for pauses in &report.server {
        let key = format!("redis.n{}.{}", pauses.replicas, pauses.mib);
        if let Some(longest) = pauses.pause_ns.iter().copied().reduce(f64::max) {
            rows.push(extreme(
                &format!("{key}.longest"),
                "the longest of them",
                longest / 1e6,
                "ms",
                pauses.pause_ns.len(),
            ));
        }
    }
    let late: Vec<f64> = report
        .latencies
        .latency_ns
        .iter()
        .map(|ns| ns / 1e3)
        .collect();
    let what = "from the fault to its detection, median";
    rows.extend(results::row(
        "detection.median",
        what,
        "µs",
        median_estimate(&late, &mut rng),
    ));
    for (key, what, at) in [
        ("detection.p95", "95 % are below", 0.95),
        ("detection.longest", "the longest", 1.0),
    ] {
        if let Some(us) = quantile(&late, at) {
            rows.push(extreme(key, what, us / 1e3, "ms", late.len()));
        }
    }
    rows
}

/// A value of the tail, which has no interval.
fn extreme(key: &str, what: &str, value: f64, unit: &str, of: usize) -> Row {
    let mut row = Row::new(key, what, results::digits(value), unit);
    row.note = Some(format!("of {of}"));
    row
}

/// The report as text.
#[must_use]
pub fn render(report: &RepairReport) -> String {
    let mut rows = Vec::new();
    let mut rng = Rng::new(report.seed);
    let guests = report.pauses.iter().map(|row| ("", row));
    let servers = report.server.iter().map(|row| ("redis, ", row));
    for (of, row) in guests.chain(servers) {
        let ms: Vec<f64> = row.pause_ns.iter().map(|ns| ns / 1e6).collect();
        let middle = median_estimate(&ms, &mut rng).map_or("-".to_owned(), |found: Estimate| {
            format!("{:.3} [{:.3}, {:.3}]", found.value, found.low, found.high)
        });
        let worst = ms
            .iter()
            .copied()
            .reduce(f64::max)
            .map_or("-".to_owned(), |worst| format!("{worst:.3}"));
        rows.push(vec![
            format!("{of}{} MiB, N = {}", row.mib, row.replicas),
            middle,
            worst,
            ms.len().to_string(),
            row.without_repair.to_string(),
            row.errors.len().to_string(),
        ]);
    }
    let mut out = report.machine.render();
    out += &format!(
        "seed {}{}; N = 3: forked from a winner, N = 2: rolled back and run again\n\n",
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    out += &table::render(
        &[
            "guest", "pause ms", "worst ms", "repairs", "without", "errors",
        ],
        &rows,
    );
    out += &render_latencies(&report.latencies);
    for row in report.pauses.iter().chain(&report.server) {
        for error in &row.errors {
            out += &format!("error   {} MiB, N = {}: {error}\n", row.mib, row.replicas);
        }
    }
    for error in &report.latencies.errors {
        out += &format!("error   latency: {error}\n");
    }
    out + &crate::verdict::render(&report.promises)
}

fn render_latencies(found: &Latencies) -> String {
    let mut out = format!(
        "\nfaults at uniformly drawn steps of the computation, 2 replicas, {} runs: {} corrected, {} detected, {} masked, {} sdc, {} not_fired\n",
        found.runs, found.corrected, found.detected, found.masked, found.sdc, found.not_fired
    );
    let Some(middle) = median(&found.latency_ns) else {
        return out + "no detection, so no latency\n\n";
    };
    let micros = |ns: f64| format!("{:.1} us", ns / 1e3);
    out += &format!(
        "detection latency: median {}, 95 % below {}, longest {}\n",
        micros(middle),
        micros(quantile(&found.latency_ns, 0.95).unwrap_or(middle)),
        micros(quantile(&found.latency_ns, 1.0).unwrap_or(middle)),
    );
    for (from, to, count) in decades(&found.latency_ns) {
        let bar = "#".repeat((count * 50).div_ceil(found.latency_ns.len()));
        out += &format!("{:>9} to {:<9} {count:>5} {bar}\n", unit(from), unit(to));
    }
    out.push('\n');
    out
}

/// How many values fall into each decade, from the first that holds one to the last.
fn decades(values: &[f64]) -> Vec<(f64, f64, usize)> {
    let decade = |value: f64| value.max(1.0).log10().floor();
    let (Some(first), Some(last)) = (
        values.iter().copied().map(decade).reduce(f64::min),
        values.iter().copied().map(decade).reduce(f64::max),
    ) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    let mut at = first;
    while at <= last {
        let count = values.iter().filter(|&&value| decade(value) == at).count();
        out.push((10_f64.powf(at), 10_f64.powf(at + 1.0), count));
        at += 1.0;
    }
    out
}

fn unit(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.0} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        ns => format!("{:.0} s", ns / 1e9),
    }
}
