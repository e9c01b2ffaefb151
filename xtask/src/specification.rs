//! The specification: promises of `docs/specification.toml`, values of `results/*.json`, as pages.
//!
//! Invariants
//!  1. No value of the pages is typed: each comes from a file that names commit, machine and command.
//!  2. "met" and "missed" are computed by the rule in `steadfast_report::published`.
//!
//! Not covered: measuring. `results/README.md` says how a bench writes a file.

use std::fs;
use std::path::Path;

use steadfast_report::published::{self, Files, Promises};

use crate::{checks, plot};

const TABLE: &str = "docs/specification.toml";

/// The page with the table of checks.
const HARDENING: &str = "docs/concepts/hardening.md";

/// The costs of the front page, by id.
const COSTS: &[u32] = &[15, 11, 19, 30, 34];
const BEGIN: &str = "<!-- costs: rendered by `make docs` -->";
const END: &str = "<!-- end of costs -->";

const HEAD: &str = "<!-- Generated from docs/specification.toml and results/*.json by `cargo run -p steadfast-xtask -- docs`: edit those. -->
# Specification
What Steadfast promises, what was measured, and the command that measures it.
A promise is met when the upper end of the 95 % interval lies within the target; relative costs have 0.5 points of slack.
*pending* never counts as met: no value yet, or one that has no interval and is no exact count. Losing rows stay. Ids are never used twice.
Commands run from the repository after `make build`; `bench` stands for `cargo run --release -p steadfast-bench --`.
Costs of whole programs stand over a floor: as many unconnected copies side by side, pinned as replicas are, the faster of two page sizes.
Coverage (sites patched, on the slow path, denied) is printed beside every measurement of a whole program.

Every value, with its commit, machine, load, date and the value before: [results](reference/results.md). What was tried: [notes](notes/README.md).

";

const VALUES_HEAD: &str =
    "<!-- Generated from results/*.json by `cargo run -p steadfast-xtask -- docs`: edit those. -->
# Results

Every published value, file by file. Promises and targets: [specification](../specification.md).
The schema, and how a bench adds a file: [results/README.md](../../results/README.md).
";

/// Reads promises and results, and writes the pages that are made of them: path in the repository, and text.
///
/// # Errors
/// What is wrong with the files, one line each.
pub fn all(root: &Path) -> Result<Vec<(&'static str, String)>, Vec<String>> {
    let (promises, files) = read(root)?;
    let readme = fs::read_to_string(root.join("README.md"))
        .map_err(|error| vec![format!("README.md: {error}")])?;
    let readme = rendered(
        &readme,
        "README.md",
        BEGIN,
        END,
        &promises.summary(&files, COSTS),
    )?;
    let hardening = fs::read_to_string(root.join(HARDENING))
        .map_err(|error| vec![format!("{HARDENING}: {error}")])?;
    let table = checks::table(&files);
    let hardening = rendered(&hardening, HARDENING, checks::BEGIN, checks::END, &table)?;
    let errors = promises.errors(&files, |path| root.join(path).exists());
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(vec![
        ("README.md", readme),
        (HARDENING, hardening),
        (
            "docs/specification.md",
            format!("{HEAD}{}", promises.page(&files)),
        ),
        (
            "docs/reference/results.md",
            format!("{VALUES_HEAD}{}", published::values_page(&files)),
        ),
        (
            "docs/concepts/cost-coverage.svg",
            plot::cost_against_coverage(&files),
        ),
    ])
}

/// A page with a table between its two marks.
fn rendered(
    page: &str,
    path: &str,
    begin: &str,
    end: &str,
    table: &str,
) -> Result<String, Vec<String>> {
    let parts = page.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some(format!("{before}{begin}\n{table}{end}{after}"))
    });
    parts.ok_or_else(|| vec![format!("{path} has no lines {begin:?} and {end:?}")])
}

fn read(root: &Path) -> Result<(Promises, Files), Vec<String>> {
    let mut errors = Vec::new();
    let promises = fs::read_to_string(root.join(TABLE))
        .map_err(|error| error.to_string())
        .and_then(|text| toml::from_str(&text).map_err(|error| error.to_string()))
        .map_err(|error| errors.push(format!("{TABLE}: {error}")));
    let mut files = Files::new();
    match fs::read_dir(root.join("results")) {
        Err(error) => errors.push(format!("results/: {error}")),
        Ok(entries) => {
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if !name.ends_with(".json") {
                    continue;
                }
                let name = format!("results/{name}");
                let file = fs::read_to_string(entry.path())
                    .map_err(|error| error.to_string())
                    .and_then(|text| serde_json::from_str(&text).map_err(|e| e.to_string()));
                match file {
                    Ok(file) => {
                        files.insert(name, file);
                    }
                    Err(error) => errors.push(format!("{name}: {error}")),
                }
            }
        }
    }
    match (promises, errors.is_empty()) {
        (Ok(promises), true) => Ok((promises, files)),
        _ => Err(errors),
    }
}
