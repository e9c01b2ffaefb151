//! `bench rest`: state at rest, what protecting it costs and what it stops.
//!
//! Cost: the guest of `bench sei`, its objects trusted, with copies and with checksums, by a policy of three lines; CPU
//! nanoseconds a call, in turns.
//!
//! Coverage: cc/tests/state.c, a key-value store. Each run has one bit changed before a request drawn at random, in
//! the live protected memory (objects and copies alike), by no store of the program. What the run prints is compared with
//! the plain build's. The same numbers strike all builds.
//!
//! Invariant: a run counts as undetected when anything it printed differs from the golden output's beginning, whatever
//! its status.
//!
//! Not covered: changes of the runtime's own tables, and faults of the processor (`make campaign`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_workloads::inputs::Rng;

use crate::machine::Machine;
use crate::product::Product;
use crate::stats::median_estimate;
use crate::table;

/// The store's requests; it is struck before one of them.
const REQUESTS: usize = 400;

/// What became of the runs of one build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    /// Right, and nothing was said.
    pub masked: u64,
    /// Right, after a repair.
    pub corrected: u64,
    /// Stopped by a verdict before anything wrong was out.
    pub detected: u64,
    /// Died of a signal before anything wrong was out.
    pub crash: u64,
    /// Something wrong was out.
    pub sdc: u64,
}

impl Outcomes {
    fn manifested(&self) -> u64 {
        self.corrected + self.detected + self.crash + self.sdc
    }
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    pub runs: usize,
    /// Nanoseconds a call in each round, by build and "name count".
    pub cost: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
    /// By build.
    pub outcomes: BTreeMap<String, Outcomes>,
}

fn compile(mut compiler: Command, flags: &[&str], source: &Path, out: &Path) -> Result<()> {
    let ran = compiler
        .args(["-O2", "-o"])
        .arg(out)
        .args(flags)
        .arg(source)
        .output()
        .context("the compiler could not be started")?;
    ensure!(
        ran.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&ran.stderr)
    );
    Ok(())
}

/// Name, flags, and what the store is told.
const BUILDS: &[(&str, &[&str], bool)] = &[
    ("ecc", &["-DTRUSTED"], false),
    ("dup,crc", &["--state=dup,crc"], false),
    (
        "dup,crc, --recover, scrubbed",
        &["--state=dup,crc", "--recover"],
        true,
    ),
];

fn judge(ran: &Output, golden: &[u8]) -> impl FnOnce(&mut Outcomes) + use<> {
    let prefix = golden.starts_with(&ran.stdout);
    let whole = ran.status.success() && ran.stdout == golden;
    let (quiet, verdict) = (ran.stderr.is_empty(), ran.status.code() == Some(122));
    let died = ran.status.signal().is_some();
    move |into| {
        *match (whole, prefix) {
            (true, _) if quiet => &mut into.masked,
            (true, _) => &mut into.corrected,
            (false, true) if verdict => &mut into.detected,
            (false, true) if died => &mut into.crash,
            _ => &mut into.sdc,
        } += 1;
    }
}

/// Builds and runs everything.
///
/// # Errors
/// When a guest cannot be built or run.
#[expect(clippy::too_many_arguments, reason = "the settings of one command")]
pub fn measure(
    product: &Product,
    dir: &Path,
    rounds: usize,
    runs: usize,
    seed: u64,
    scale: f64,
    machine: Machine,
    mut says: impl FnMut(&str),
) -> Result<RestReport> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ours = || {
        let mut compiler = Command::new(product.path());
        compiler.arg("cc").env_remove("STEADFAST_POLICY");
        compiler
    };
    let mut report = RestReport {
        bench: "rest".to_owned(),
        machine,
        rounds,
        seed,
        runs,
        cost: BTreeMap::new(),
        outcomes: BTreeMap::new(),
    };

    let guest = root.join("guests/sei.c");
    let mut programs: Vec<(&str, PathBuf)> = Vec::new();
    for kind in ["ecc", "dup", "crc"] {
        let out = dir.join(format!("rest-{kind}"));
        let policy = dir.join(format!("{kind}.policy"));
        let named = if kind == "ecc" {
            "# trusted".to_owned()
        } else {
            format!("{kind} objects order from to")
        };
        fs::write(&policy, named + "\n")
            .with_context(|| format!("cannot write {}", policy.display()))?;
        let flags = [
            format!("--state={kind}"),
            format!("--steadfast-policy={}", policy.display()),
        ];
        compile(ours(), &[&flags[0], &flags[1]], &guest, &out)?;
        programs.push((kind, out));
    }
    for round in 0..rounds {
        says(&format!("cost, round {} of {rounds}", round + 1));
        for (kind, program) in &programs {
            let out = Command::new(program)
                .arg(scale.to_string())
                .output()
                .with_context(|| format!("{} could not be started", program.display()))?;
            ensure!(
                out.status.success(),
                "{kind} ends with {}:\n{}",
                out.status,
                String::from_utf8_lossy(&out.stderr)
            );
            let into = report.cost.entry((*kind).to_owned()).or_default();
            for line in String::from_utf8_lossy(&out.stdout).lines() {
                let (what, ns) = line.rsplit_once(' ').context("a line without a number")?;
                into.entry(what.to_owned()).or_default().push(ns.parse()?);
            }
        }
    }

    let store = root.with_file_name("cc").join("tests/state.c");
    let plain = dir.join("rest-store-plain");
    let mut compiler = Command::new("clang-19");
    compiler
        .args(["-DSTEADFAST_PLAIN", "-w", "-I"])
        .arg(root.with_file_name("cc").join("include"));
    compile(compiler, &[], &store, &plain)?;
    let golden = Command::new(&plain).output()?.stdout;
    ensure!(!golden.is_empty(), "the store prints nothing");
    for (index, &(name, flags, scrubbed)) in BUILDS.iter().enumerate() {
        let program = dir.join(format!("rest-store-{index}"));
        compile(ours(), flags, &store, &program)?;
        let mut rng = Rng::new(seed);
        let mut outcomes = Outcomes::default();
        for run in 0..runs {
            if run % 500 == 0 {
                says(&format!("{name}: run {run} of {runs}"));
            }
            let request = rng.below(REQUESTS).to_string();
            let number = rng.below(usize::MAX).to_string();
            let mut command = Command::new(&program);
            command
                .args(["any", &request, &number])
                .env_remove("STEADFAST_EVENTS");
            if scrubbed {
                command.env("STATE_SCRUB", "0");
            } else {
                command.env_remove("STATE_SCRUB");
            }
            judge(&command.output()?, &golden)(&mut outcomes);
        }
        report.outcomes.insert(name.to_owned(), outcomes);
    }
    Ok(report)
}

/// The share that may be behind so many of so many, at 95 % one-sided: exact for none (1 - 0.05^(1/n)), else Wilson's.
#[allow(clippy::cast_precision_loss, reason = "counts of runs")]
fn upper(k: u64, n: u64) -> f64 {
    if n == 0 {
        return 1.0;
    }
    let (p, n, z) = (k as f64 / n as f64, n as f64, 1.645_f64);
    if k == 0 {
        return 1.0 - 0.05_f64.powf(1.0 / n);
    }
    let middle = p + z * z / (2.0 * n);
    let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
    (middle + half) / (1.0 + z * z / n)
}

/// The report as text.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of runs")]
pub fn render(report: &RestReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut cell = |kind: &str, name: &str| {
        report
            .cost
            .get(kind)
            .and_then(|rows| rows.get(name))
            .and_then(|values| median_estimate(values, &mut rng))
            .map_or("error".to_owned(), |found| {
                format!("{:.1} [{:.1}, {:.1}]", found.value, found.low, found.high)
            })
    };
    let names: Vec<&String> = report
        .cost
        .values()
        .next()
        .map(|rows| rows.keys().collect())
        .unwrap_or_default();
    let rows: Vec<Vec<String>> = names
        .iter()
        .map(|name| {
            let mut row = vec![(*name).clone()];
            row.extend(["ecc", "dup", "crc"].map(|kind| cell(kind, name)));
            row
        })
        .collect();
    let mut text = report.machine.render();
    text += "\nCPU nanoseconds a call, median [95 %]; its objects trusted, with copies, with checksums\n";
    text += &table::render(&["handler", "ecc", "dup", "crc"], &rows);
    text += "\nBits changed at rest, one a run\n";
    let rows: Vec<Vec<String>> = report
        .outcomes
        .iter()
        .map(|(name, of)| {
            let n = of.manifested();
            vec![
                name.clone(),
                of.masked.to_string(),
                of.corrected.to_string(),
                of.detected.to_string(),
                of.crash.to_string(),
                of.sdc.to_string(),
                format!(
                    "{:.2} %",
                    if n == 0 {
                        0.0
                    } else {
                        of.sdc as f64 / n as f64 * 100.0
                    }
                ),
                format!("{:.2} %", upper(of.sdc, n) * 100.0),
            ]
        })
        .collect();
    text += &table::render(
        &[
            "store",
            "masked",
            "corrected",
            "detected",
            "crash",
            "undetected",
            "of manifested",
            "95 % below",
        ],
        &rows,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_none_is_the_exact_one() {
        assert!((upper(0, 2995) - 0.001).abs() < 1e-5);
        assert!(upper(3, 1000) > 0.003 && upper(3, 1000) < 0.01);
        assert!((upper(0, 0) - 1.0).abs() < f64::EPSILON);
    }
}
