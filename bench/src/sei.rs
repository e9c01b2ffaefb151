//! `bench sei`: what hardening adds to one handler.
//!
//! One guest is built with the same clang and flags, plain and by `steadfast cc`: with all checks, at the level of the paper's rules
//! (`--protect=sei`), and with `--recover`; with libsei where its source is given ([`crate::libsei`]). All are run in turns; each of ours says
//! of itself what level it has. What is reported is the median over the rounds of CPU nanoseconds a call.
//!
//! A store's cost is the slope between 16 and 256 stores of a handler to words of distinct objects, hardened less plain, both runs and all
//! checks included. A byte's in a loop is that between loops of 256 and of 4,096 bytes, which includes the loop itself.
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

use crate::libsei;
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
    /// With `--protect=sei`.
    #[serde(default)]
    pub sei: BTreeMap<String, Vec<f64>>,
    /// With `--recover`.
    #[serde(default)]
    pub recover: BTreeMap<String, Vec<f64>>,
    /// With libsei; empty where its source was not given.
    #[serde(default)]
    pub libsei: BTreeMap<String, Vec<f64>>,
}

/// The guest, built in all ways.
#[derive(Debug)]
pub struct Guests {
    /// Plain, hardened, at the paper's level, with repairs.
    ours: [PathBuf; 4],
    libsei: Option<PathBuf>,
}

/// The level that a program says it has.
///
/// # Errors
/// When it says none, or another than this.
pub fn has_level(product: &Product, program: &Path, level: &str) -> Result<()> {
    let told = Command::new(product.path())
        .args(["cc", "--coverage=json"])
        .arg(program)
        .output()
        .context("the coverage of a program could not be asked for")?;
    let coverage: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap_or_default();
    ensure!(
        coverage["protect"] == level,
        "a program with --protect={level} is needed, found {} in {}\n  fix:   leave the option out: the bench builds it itself",
        coverage["protect"],
        program.display()
    );
    Ok(())
}

/// Builds the guest in all ways.
///
/// # Errors
/// When a compiler fails, or `libsei` is not the source that is asked for.
pub fn build(dir: &Path, product: &Product, libsei: Option<&Path>) -> Result<Guests> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = root.join("guests/sei.c");
    let mut plain = Command::new("clang-19");
    plain.args(["-DSTEADFAST_PLAIN", "-I"]);
    plain.arg(root.with_file_name("cc").join("include"));
    let ours = |flags: &[&str]| {
        let mut ours = Command::new(product.path());
        ours.arg("cc").args(flags).env_remove("STEADFAST_POLICY");
        ours
    };
    let mut programs =
        ["plain", "hardened", "sei", "recover"].map(|name| dir.join(format!("sei-{name}")));
    let compilers = [
        plain,
        ours(&[]),
        ours(&["--protect=sei"]),
        ours(&["--recover"]),
    ];
    for (mut compiler, program) in compilers.into_iter().zip(&mut programs) {
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
    for (program, level) in programs.iter().skip(1).zip(["full", "sei", "full"]) {
        has_level(product, program, level)?;
    }
    let libsei = libsei.map(|given| libsei::build(given, dir, &source));
    Ok(Guests {
        ours: programs,
        libsei: libsei.transpose()?,
    })
}

/// Runs all programs in turns.
///
/// # Errors
/// When one cannot be run.
pub fn measure(
    guests: &Guests,
    rounds: usize,
    seed: u64,
    scale: f64,
    machine: Machine,
    mut says: impl FnMut(&str),
) -> Result<SeiReport> {
    let [plain, hardened, sei, recover] = &guests.ours;
    let mut report = SeiReport {
        bench: "sei".to_owned(),
        machine,
        rounds,
        seed,
        plain: BTreeMap::new(),
        hardened: BTreeMap::new(),
        sei: BTreeMap::new(),
        recover: BTreeMap::new(),
        libsei: BTreeMap::new(),
    };
    for round in 0..rounds {
        says(&format!("round {} of {rounds}", round + 1));
        let ours = [
            (plain, &mut report.plain),
            (hardened, &mut report.hardened),
            (sei, &mut report.sei),
            (recover, &mut report.recover),
        ];
        let theirs = guests.libsei.iter().zip([&mut report.libsei]);
        for (program, into) in ours.into_iter().chain(theirs) {
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

fn over(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

/// What a logged store adds, by round.
fn store(report: &SeiReport, of: &BTreeMap<String, Vec<f64>>) -> Vec<f64> {
    less(
        &slopes(of, "stores", 16, 256),
        &slopes(&report.plain, "stores", 16, 256),
    )
}

/// A logged store with `--recover`, in those without.
fn recovering(report: &SeiReport) -> Vec<f64> {
    over(
        &store(report, &report.recover),
        &store(report, &report.hardened),
    )
}

/// The promises, judged.
#[must_use]
pub fn promises(report: &SeiReport) -> Vec<Promise> {
    let mut rng = Rng::new(report.seed);
    let mut of = |values: &[f64]| -> Option<Estimate> { median_estimate(values, &mut rng) };
    let none = Vec::new();
    let mut all = Vec::new();
    for (level, times) in [("", &report.hardened), (", --protect=sei", &report.sei)] {
        let get = |name: &str| times.get(name).unwrap_or(&none).as_slice();
        for (what, most, values) in [
            ("empty handler", 30.0, get("empty 0").to_vec()),
            (
                "added per logged store, slope 16 to 256",
                4.0,
                store(report, times),
            ),
            (
                "a byte stored in a loop",
                2.0,
                slopes(times, "bytes", 256, 4096),
            ),
            (
                "copy of 4 KiB in a handler",
                350.0,
                get("copy 4096").to_vec(),
            ),
        ] {
            let name = format!("{what}{level}");
            all.push(Promise::at_most(&name, "ns", most, 0.0, of(&values)));
        }
    }
    all.push(Promise::at_most(
        "a logged store with --recover, in those without",
        "",
        2.5,
        0.0,
        of(&recovering(report)),
    ));
    all
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &SeiReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut of = |values: &[f64]| median_estimate(values, &mut rng);
    let mut rows = Vec::new();
    for (key, at, times) in [
        ("", "", &report.hardened),
        ("sei.", ", --protect=sei", &report.sei),
        ("recover.", ", --recover", &report.recover),
        ("libsei.", ", by libsei", &report.libsei),
    ] {
        let mut add = |name: &str, what: &str, unit: &str, found: Option<Estimate>| {
            let what = format!("{what}{at}");
            rows.extend(results::row(format!("{key}{name}"), what, unit, found));
        };
        let one = |name: &str| times.get(name).cloned().unwrap_or_default();
        add(
            "empty",
            "hardened handler that does nothing",
            "ns",
            of(&one("empty 0")),
        );
        add(
            "store",
            "added per logged store of 8 bytes, slope from 16 to 256",
            "ns",
            of(&store(report, times)),
        );
        add(
            "copy4k",
            "copy of 4 KiB in a hardened handler",
            "µs",
            of(&one("copy 4096")).map(|found| found.map(|ns| ns / 1e3)),
        );
        add(
            "byte",
            "a byte stored in a loop of a hardened handler, slope from 256 to 4,096",
            "ns",
            of(&slopes(times, "bytes", 256, 4096)),
        );
    }
    rows.extend(results::row(
        "byte.plain",
        "a byte stored in a loop, plain, slope from 256 to 4,096",
        "ns",
        of(&slopes(&report.plain, "bytes", 256, 4096)),
    ));
    rows.extend(results::row(
        "recover.times",
        "a logged store with --recover, in those without",
        "",
        of(&recovering(report)),
    ));
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &SeiReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut cell = |values: Option<&Vec<f64>>| {
        values
            .and_then(|values| median_estimate(values, &mut rng))
            .map_or("-".to_owned(), |found| {
                format!("{:.1} [{:.1}, {:.1}]", found.value, found.low, found.high)
            })
    };
    let mut rows = Vec::new();
    for name in report.hardened.keys() {
        rows.push(vec![
            name.clone(),
            cell(report.plain.get(name)),
            cell(report.hardened.get(name)),
            cell(report.sei.get(name)),
            cell(report.recover.get(name)),
            cell(report.libsei.get(name)),
        ]);
    }
    for (from, to) in [(16, 256), (256, 1024)] {
        rows.push(vec![
            format!("a store, {from} to {to}"),
            cell(Some(&slopes(&report.plain, "stores", from, to))),
            cell(Some(&slopes(&report.hardened, "stores", from, to))),
            cell(Some(&slopes(&report.sei, "stores", from, to))),
            cell(Some(&slopes(&report.recover, "stores", from, to))),
            cell(Some(&slopes(&report.libsei, "stores", from, to))),
        ]);
    }
    rows.push(vec![
        "a byte, 256 to 4096".to_owned(),
        cell(Some(&slopes(&report.plain, "bytes", 256, 4096))),
        cell(Some(&slopes(&report.hardened, "bytes", 256, 4096))),
        cell(Some(&slopes(&report.sei, "bytes", 256, 4096))),
        cell(Some(&slopes(&report.recover, "bytes", 256, 4096))),
        cell(Some(&slopes(&report.libsei, "bytes", 256, 4096))),
    ]);
    let mut text = report.machine.render();
    text += "\nCPU nanoseconds a call, median [95 %]\n";
    text += &table::render(
        &["handler", "plain", "full", "sei", "recover", "libsei"],
        &rows,
    );
    text += "\n";
    text += &verdict::render(&promises(report));
    text
}
