//! `bench later`: what a handler costs when its second run comes later (`--validate=async`), beside the other ways.
//!
//! guests/later.c, built plain, synchronous, with the second run on another core, and later, with and without
//! `--hold-output`. Saturated, one event after the other: processor time of the serving thread and of all processes (both
//! cores count), wall time. Then at a rate: from an event's due time to the end of its message. All builds take turns.
//!
//! Not covered: servers over sockets (`bench sei-servers`), lag in time: the histogram counts handlers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use crate::machine::Machine;
use crate::product::Product;
use crate::results;
use crate::stats::median_estimate;
use crate::table;

/// Name and flags; none for the plain build.
const BUILDS: &[(&str, Option<&[&str]>)] = &[
    ("plain", None),
    ("synchronous", Some(&[])),
    ("--other-core", Some(&["--other-core"])),
    ("async", Some(&["--validate=async"])),
    ("async, held", Some(&["--validate=async", "--hold-output"])),
];

/// Handlers, and events of one run at scale 1: some tenths of a second each.
const HANDLERS: &[(&str, f64)] = &[("count", 4e5), ("request", 1e5), ("compute", 4e4)];

/// Events a second where response times are measured: below what every build can do.
const RATE: u32 = 10_000;

/// What one line of the guest says, in nanoseconds an event.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cost {
    pub thread: f64,
    pub all: f64,
    pub wall: f64,
    /// At `RATE`.
    pub response: f64,
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LaterReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    /// By handler, then by build.
    pub cost: BTreeMap<String, BTreeMap<String, Vec<Cost>>>,
    /// By "handler, build": handlers by the power of two of how many waited when they were validated.
    pub behind: BTreeMap<String, BTreeMap<u32, u64>>,
}

fn ask(program: &Path, handler: &str, events: f64, rate: u32, lag: &Path) -> Result<[f64; 4]> {
    let ran = Command::new(program)
        .args([handler, &format!("{events:.0}"), &rate.to_string()])
        .env("STEADFAST_LAG", lag)
        .output()
        .with_context(|| format!("{} could not be started", program.display()))?;
    ensure!(
        ran.status.success(),
        "{} ends with {}:\n{}",
        program.display(),
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
    let numbers: Vec<f64> = String::from_utf8_lossy(&ran.stdout)
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    <[f64; 4]>::try_from(numbers)
        .map_err(|found| anyhow::anyhow!("four numbers are needed, found {found:?}"))
}

/// Builds and runs everything.
///
/// # Errors
/// When the guest cannot be built or run.
pub fn measure(
    product: &Product,
    dir: &Path,
    rounds: usize,
    seed: u64,
    scale: f64,
    machine: Machine,
    mut says: impl FnMut(&str),
) -> Result<LaterReport> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut programs: Vec<PathBuf> = Vec::new();
    for (index, (_, flags)) in BUILDS.iter().enumerate() {
        let out = dir.join(format!("later-{index}"));
        let mut compiler = Command::new(if flags.is_some() {
            product.path().to_owned()
        } else {
            PathBuf::from("clang-19")
        });
        if let Some(flags) = flags {
            compiler
                .arg("cc")
                .args(*flags)
                .env_remove("STEADFAST_POLICY");
        } else {
            compiler
                .args(["-DSTEADFAST_PLAIN", "-w", "-I"])
                .arg(root.with_file_name("cc").join("include"));
        }
        let ran = compiler
            .args(["-O2", "-o"])
            .arg(&out)
            .arg(root.join("guests/later.c"))
            .output()
            .context("the compiler could not be started")?;
        ensure!(
            ran.status.success(),
            "{} does not compile:\n{}",
            out.display(),
            String::from_utf8_lossy(&ran.stderr)
        );
        programs.push(out);
    }
    let mut report = LaterReport {
        bench: "later".to_owned(),
        machine,
        rounds,
        seed,
        cost: BTreeMap::new(),
        behind: BTreeMap::new(),
    };
    let lag = dir.join("later-lag");
    for round in 0..rounds {
        says(&format!("round {} of {rounds}", round + 1));
        for &(handler, events) in HANDLERS {
            for ((name, _), program) in BUILDS.iter().zip(&programs) {
                let events = (events * scale).max(100.0);
                let _ = fs::remove_file(&lag);
                let [thread, all, wall, _] = ask(program, handler, events, 0, &lag)?;
                let into = report
                    .behind
                    .entry(format!("{handler}, {name}"))
                    .or_default();
                for line in fs::read_to_string(&lag).unwrap_or_default().lines() {
                    if let ["behind", power, count] =
                        line.split_whitespace().collect::<Vec<_>>()[..]
                    {
                        *into.entry(power.parse()?).or_default() += count.parse::<u64>()?;
                    }
                }
                let [.., response] = ask(
                    program,
                    handler,
                    2000.0 * scale.clamp(0.05, 1.0),
                    RATE,
                    &lag,
                )?;
                report
                    .cost
                    .entry(handler.to_owned())
                    .or_default()
                    .entry((*name).to_owned())
                    .or_default()
                    .push(Cost {
                        thread,
                        all,
                        wall,
                        response,
                    });
            }
        }
    }
    report.behind.retain(|_, counts| !counts.is_empty());
    let _ = fs::remove_file(&lag);
    Ok(report)
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &LaterReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for (handler, builds) in &report.cost {
        for (build, costs) in builds {
            let mut add = |kind: &str, of: fn(&Cost) -> f64| {
                let values: Vec<f64> = costs.iter().map(of).collect();
                let what = format!("{handler}, {build}: {kind}, an event");
                let found = median_estimate(&values, &mut rng);
                rows.extend(results::row(
                    format!("{handler}.{build}.{kind}"),
                    what,
                    "ns",
                    found,
                ));
            };
            add("thread", |cost| cost.thread);
            add("all", |cost| cost.all);
            add("response", |cost| cost.response);
        }
    }
    rows
}

/// The report as text.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of handlers")]
pub fn render(report: &LaterReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut text = report.machine.render();
    text += "\nNanoseconds an event, median [95 %]: of the serving thread, of all processors, of wall time when saturated;\n\
             from due time to message at 10,000 a second\n";
    let mut rows = Vec::new();
    for (handler, builds) in &report.cost {
        for (name, _) in BUILDS {
            let Some(costs) = builds.get(*name) else {
                continue;
            };
            let mut row = vec![handler.clone(), (*name).to_owned()];
            for of in [
                |c: &Cost| c.thread,
                |c: &Cost| c.all,
                |c: &Cost| c.wall,
                |c: &Cost| c.response,
            ] {
                let values: Vec<f64> = costs.iter().map(of).collect();
                row.push(
                    median_estimate(&values, &mut rng).map_or("error".to_owned(), |found| {
                        format!("{:.0} [{:.0}, {:.0}]", found.value, found.low, found.high)
                    }),
                );
            }
            rows.push(row);
        }
    }
    text += &table::render(
        &["handler", "build", "thread", "all", "wall", "response"],
        &rows,
    );
    text += "\nHandlers waiting when one was validated, itself among them, share of all\n";
    let rows: Vec<Vec<String>> = report
        .behind
        .iter()
        .map(|(name, counts)| {
            let all: u64 = counts.values().sum();
            let shares: Vec<String> = counts
                .iter()
                .map(|(power, count)| {
                    format!(
                        "{}+: {:.1} %",
                        1u64 << power,
                        *count as f64 / all as f64 * 100.0
                    )
                })
                .collect();
            vec![name.clone(), shares.join(", ")]
        })
        .collect();
    text += &table::render(&["handler, build", "waiting"], &rows);
    text
}
