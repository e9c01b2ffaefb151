//! `bench sei`: what hardening adds to one handler.
//!
//! One guest is built twice with the same clang and flags, plain and by `steadfast cc`; both are run in turns. What is
//! reported is the median over the rounds of CPU nanoseconds a call. A store's cost is the slope between 16 and 256
//! stores of a handler to words of distinct objects, hardened less plain, both runs and all checks included. A byte's in a loop is that
//! between loops of 256 and of 4,096 bytes, which includes the loop itself.
//!
//! Not covered: whole programs (memcached, dnsmasq), which have rows of their own.

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
use crate::stats::{Estimate, median_estimate};
use crate::table;
use crate::verdict::{self, Promise};

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeiReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    /// Nanoseconds a call in each round, by "name count".
    pub plain: BTreeMap<String, Vec<f64>>,
    pub hardened: BTreeMap<String, Vec<f64>>,
}

/// Builds the guest both ways.
fn build(dir: &Path, product: &Product) -> Result<[PathBuf; 2]> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("guests/sei.c");
    let mut plain = Command::new("clang-19");
    plain.args(["-DSTEADFAST_PLAIN", "-I"]);
    plain.arg(root.with_file_name("harden").join("include"));
    let mut hardened = Command::new(product.path());
    hardened.arg("cc").env_remove("STEADFAST_POLICY");
    let mut programs = [dir.join("sei-plain"), dir.join("sei-hardened")];
    for (mut compiler, program) in [plain, hardened].into_iter().zip(&mut programs) {
        let out = compiler
            .args(["-O2", "-Wall", "-Wextra", "-o"])
            .arg(&*program)
            .arg(&source)
            .output()
            .context("the compiler could not be started")?;
        ensure!(
            out.status.success(),
            "{} does not compile:\n{}",
            source.display(),
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(programs)
}

/// Runs both programs in turns.
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
) -> Result<SeiReport> {
    let [plain, hardened] = build(dir, product)?;
    let mut report = SeiReport {
        bench: "sei".to_owned(),
        machine,
        rounds,
        seed,
        plain: BTreeMap::new(),
        hardened: BTreeMap::new(),
    };
    for round in 0..rounds {
        says(&format!("round {} of {rounds}", round + 1));
        for (program, into) in [
            (&plain, &mut report.plain),
            (&hardened, &mut report.hardened),
        ] {
            let out = Command::new(program)
                .arg(scale.to_string())
                .output()
                .with_context(|| format!("{} could not be started", program.display()))?;
            ensure!(
                out.status.success(),
                "{} ends with {}:\n{}",
                program.display(),
                out.status,
                String::from_utf8_lossy(&out.stderr)
            );
            for line in String::from_utf8_lossy(&out.stdout).lines() {
                let (what, ns) = line.rsplit_once(' ').context("a line without a number")?;
                into.entry(what.to_owned()).or_default().push(ns.parse()?);
            }
        }
    }
    Ok(report)
}

/// Per round, the nanoseconds that one more store costs between two sizes.
fn slopes(of: &BTreeMap<String, Vec<f64>>, name: &str, from: usize, to: usize) -> Vec<f64> {
    let none = Vec::new();
    let low = of.get(&format!("{name} {from}")).unwrap_or(&none);
    let high = of.get(&format!("{name} {to}")).unwrap_or(&none);
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    let stores = (to - from) as f64;
    low.iter()
        .zip(high)
        .map(|(a, b)| (b - a) / stores)
        .collect()
}

fn less(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The promises, judged.
#[must_use]
pub fn promises(report: &SeiReport) -> Vec<Promise> {
    let mut rng = Rng::new(report.seed);
    let mut of = |values: &[f64]| -> Option<Estimate> { median_estimate(values, &mut rng) };
    let none = Vec::new();
    let get = |name: &str| report.hardened.get(name).unwrap_or(&none).as_slice();
    let store = less(
        &slopes(&report.hardened, "stores", 16, 256),
        &slopes(&report.plain, "stores", 16, 256),
    );
    let byte = slopes(&report.hardened, "bytes", 256, 4096);
    vec![
        Promise::at_most("empty handler", "ns", 30.0, 0.0, of(get("empty 0"))),
        Promise::at_most(
            "added per logged store, slope 16 to 256",
            "ns",
            4.0,
            0.0,
            of(&store),
        ),
        Promise::at_most("a byte stored in a loop", "ns", 2.0, 0.0, of(&byte)),
        Promise::at_most(
            "copy of 4 KiB in a handler",
            "ns",
            350.0,
            0.0,
            of(get("copy 4096")),
        ),
    ]
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &SeiReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut one = |name: &str| {
        let values = report.hardened.get(name)?;
        median_estimate(values, &mut rng)
    };
    let empty = one("empty 0");
    let copy = one("copy 4096").map(|found| found.map(|ns| ns / 1e3));
    let store = less(
        &slopes(&report.hardened, "stores", 16, 256),
        &slopes(&report.plain, "stores", 16, 256),
    );
    let store = median_estimate(&store, &mut rng);
    let mut byte = |of| median_estimate(&slopes(of, "bytes", 256, 4096), &mut rng);
    let (hardened, plain) = (byte(&report.hardened), byte(&report.plain));
    [
        results::row("empty", "hardened handler that does nothing", "ns", empty),
        results::row(
            "store",
            "added per logged store of 8 bytes, slope from 16 to 256",
            "ns",
            store,
        ),
        results::row("copy4k", "copy of 4 KiB in a hardened handler", "µs", copy),
        results::row(
            "byte",
            "a byte stored in a loop of a hardened handler, slope from 256 to 4,096",
            "ns",
            hardened,
        ),
        results::row("byte.plain", "the same, plain", "ns", plain),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The report as text.
#[must_use]
pub fn render(report: &SeiReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut cell = |values: Option<&Vec<f64>>| {
        values
            .and_then(|values| median_estimate(values, &mut rng))
            .map_or("error".to_owned(), |found| {
                format!("{:.1} [{:.1}, {:.1}]", found.value, found.low, found.high)
            })
    };
    let mut rows = Vec::new();
    for name in report.hardened.keys() {
        rows.push(vec![
            name.clone(),
            cell(report.plain.get(name)),
            cell(report.hardened.get(name)),
        ]);
    }
    for (from, to) in [(16, 256), (256, 1024)] {
        rows.push(vec![
            format!("a store, {from} to {to}"),
            cell(Some(&slopes(&report.plain, "stores", from, to))),
            cell(Some(&slopes(&report.hardened, "stores", from, to))),
        ]);
    }
    rows.push(vec![
        "a byte, 256 to 4096".to_owned(),
        cell(Some(&slopes(&report.plain, "bytes", 256, 4096))),
        cell(Some(&slopes(&report.hardened, "bytes", 256, 4096))),
    ]);
    let mut text = report.machine.render();
    text += "\nCPU nanoseconds a call, median [95 %]\n";
    text += &table::render(&["handler", "plain", "hardened"], &rows);
    text += "\n";
    text += &verdict::render(&promises(report));
    text
}
