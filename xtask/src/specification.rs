//! The specification: promises of `docs/specification.toml`, values of `results/*.json`, as pages.
//!
//! Invariants
//!  1. No value of the pages is typed: each comes from a file that names commit, machine and command.
//!  2. "met" and "missed" are computed by the rule in `steadfast_report::published`.
//!  3. Each commit that a value names is an ancestor of what is checked out, where there is a whole history to ask.
//!
//! Not covered: measuring. `results/README.md` says how a bench writes a file.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

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
What Steadfast promises, what was measured, and the command that measures it, run from the repository after `make build`.
A promise is met when the upper end of the 95 % interval lies within the target; relative costs have 0.5 points of slack.
*pending* never counts as met: no value yet, or one that has no interval and is no exact count. Losing rows stay. Ids are never used twice.
Costs of whole programs stand over a floor: as many unconnected copies side by side, pinned as replicas are, the faster of two page sizes.
`bench` stands for `cargo run --release -p steadfast-bench --`. Sites patched, on the slow path and denied are printed beside whole programs.

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
    let mut errors = promises.errors(&files, |path| root.join(path).exists());
    if let Some(history) = history(root) {
        errors.extend(strangers(&files, &history));
    }
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

/// The hashes of the commits that led here, in order. None without git, or where a shallow clone leaves some out.
fn history(root: &Path) -> Option<Vec<String>> {
    let git = |words: &[&str]| {
        let out = Command::new("git").current_dir(root).args(words).output();
        let out = out.ok().filter(|out| out.status.success())?;
        String::from_utf8(out.stdout).ok()
    };
    if git(&["rev-parse", "--is-shallow-repository"])?.trim() != "false" {
        return None;
    }
    let mut hashes: Vec<String> = git(&["rev-list", "HEAD"])?
        .lines()
        .map(str::to_owned)
        .collect();
    hashes.sort();
    Some(hashes)
}

/// Commits of results that are not in the `history`: who rebased after a measurement left a hash behind that nobody can check out.
fn strangers(files: &Files, history: &[String]) -> Vec<String> {
    let mut errors = Vec::new();
    for (name, file) in files {
        for commit in file.commits().collect::<BTreeSet<_>>() {
            let at = history.partition_point(|hash| hash.as_str() < commit);
            if !history.get(at).is_some_and(|hash| hash.starts_with(commit)) {
                errors.push(format!(
                    "{name}: commit {commit} is not an ancestor of HEAD; name the commit that has what was measured"
                ));
            }
        }
    }
    errors
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

#[cfg(test)]
mod tests {
    use steadfast_report::published::{File, Files};

    use super::strangers;

    #[test]
    fn a_commit_outside_the_history_is_named_and_an_ancestor_is_not() {
        let file: File = serde_json::from_str(
            r#"{"schema": 1, "about": "x", "runs": [{"date": "2026-11-22", "commit": "2b34567 with changes", "machine": "m", "load": "l",
                "command": "c", "rows": [{"key": "k", "what": "w", "value": 1, "unit": "", "earlier":
                [{"date": "2026-11-21", "commit": "1a23456", "value": 1}]}]}]}"#,
        )
        .unwrap();
        let files = Files::from([("results/x.json".to_owned(), file)]);
        let long = |short: &str| format!("{short}{}", "0".repeat(33));
        assert!(strangers(&files, &[long("1a23456"), long("2b34567")]).is_empty());
        assert_eq!(
            strangers(&files, &[long("0000000"), long("2b34567")]),
            [
                "results/x.json: commit 1a23456 is not an ancestor of HEAD; name the commit that has what was measured"
            ]
        );
    }
}
