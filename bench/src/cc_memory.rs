//! `bench cc-memory`: what the runtime of `steadfast cc` keeps for a thread.
//!
//! cc/tests/memory.c prints it, a mean of 100 threads each time: after small handlers, after one that writes 16,384 words, and after small
//! ones again. Both ways of running a handler twice take turns, and each round is a process of its own.
//!
//! Not covered: what is shared by threads.

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

/// What a key ends with, and the flags.
const BUILDS: [(&str, &[&str]); 2] = [("", &[]), (".other-core", &["--other-core"])];

/// What a line of the program has, in its order: the key, and what was done before.
const MOMENTS: [(&str, &str); 3] = [
    ("small", "after small handlers"),
    ("large", "after a handler that writes 16,384 words"),
    ("again", "after that, and 4,000 small ones"),
];

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CcMemoryReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    /// KiB a thread, by key.
    pub kept: BTreeMap<String, Vec<f64>>,
}

/// The numbers of `KiB a thread: small handlers 29.8, after large ones (16384 words) 522.0, small again 29.8`.
fn numbers(line: &str) -> Option<[f64; 3]> {
    let told = line.strip_prefix("KiB a thread: ")?;
    let last = |part: &str| part.split_whitespace().last()?.parse().ok();
    let found: Option<Vec<f64>> = told.trim_end().split(", ").map(last).collect();
    found?.try_into().ok()
}

fn ask(program: &Path) -> Result<[f64; 3]> {
    let ran = Command::new(program)
        .output()
        .with_context(|| format!("{} could not be started", program.display()))?;
    ensure!(
        ran.status.success(),
        "{}: {}",
        program.display(),
        ran.status
    );
    let said = String::from_utf8_lossy(&ran.stdout);
    numbers(&said).with_context(|| format!("three numbers are needed, found {said:?}"))
}

/// Builds and runs both.
///
/// # Errors
/// When the program cannot be built or run.
pub fn measure(
    product: &Product,
    dir: &Path,
    rounds: usize,
    seed: u64,
    machine: Machine,
    mut says: impl FnMut(&str),
) -> Result<CcMemoryReport> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("cc/tests/memory.c");
    let mut programs: Vec<PathBuf> = Vec::new();
    for (suffix, flags) in BUILDS {
        let out = dir.join(format!("cc-memory{suffix}"));
        let built = Command::new(product.path())
            .arg("cc")
            .args(flags)
            .env_remove("STEADFAST_POLICY")
            .args(["-O2", "-w", "-pthread", "-o"])
            .arg(&out)
            .arg(&source)
            .output()
            .context("the compiler could not be started")?;
        ensure!(
            built.status.success(),
            "{} does not compile:\n{}",
            source.display(),
            String::from_utf8_lossy(&built.stderr)
        );
        programs.push(out);
    }
    let mut kept: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for round in 1..=rounds {
        says(&format!("round {round} of {rounds}"));
        for ((suffix, _), program) in BUILDS.iter().zip(&programs) {
            for ((key, _), kib) in MOMENTS.iter().zip(ask(program)?) {
                kept.entry(format!("{key}{suffix}")).or_default().push(kib);
            }
        }
    }
    Ok(CcMemoryReport {
        bench: "cc-memory".to_owned(),
        machine,
        rounds,
        seed,
        kept,
    })
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &CcMemoryReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for (suffix, flags) in BUILDS {
        for (key, when) in MOMENTS {
            let key = format!("{key}{suffix}");
            let what = match flags.first() {
                None => format!("{when}, mean of 100 threads"),
                Some(flag) => format!("with {flag}: {when}, mean of 100 threads"),
            };
            let found = report
                .kept
                .get(&key)
                .and_then(|kib| median_estimate(kib, &mut rng));
            rows.extend(results::row(key, what, "KiB", found));
        }
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &CcMemoryReport) -> String {
    let cells: Vec<Vec<String>> = rows(report)
        .iter()
        .map(|row| vec![row.what.clone(), row.text()])
        .collect();
    report.machine.render() + "\n" + &table::render(&["kept for a thread", "median [95 %]"], &cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_line_has_three_numbers() {
        let line = "KiB a thread: small handlers 29.8, after large ones (16384 words) 522.0, small again 29.9\n";
        assert_eq!(numbers(line), Some([29.8, 522.0, 29.9]));
        assert_eq!(numbers("KiB a thread: small handlers 29.8\n"), None);
    }
}
