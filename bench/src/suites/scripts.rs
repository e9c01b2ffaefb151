//! The tests that bash, make, GNU programs, servers and Go come with, as scripts in `bench/suites` run them: bare, then protected.
//!
//! A script says one line of each suite: `NAME: N tests pass bare, M end differently protected`. Those that differ follow, indented.
//!
//! Not covered: tests that fail bare. They are not counted.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use steadfast_report::published::Row;

/// Scripts that say such lines.
pub const SCRIPTS: [&str; 3] = ["gnu", "trees", "servers"];

/// What came of one suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged {
    pub name: String,
    pub bare: u64,
    pub different: u64,
}

/// Runs a script over these suites of it, all if none is named, and shows what it says.
pub fn judge(
    root: &Path,
    script: &str,
    out: &Path,
    steadfast: &Path,
    suites: &[String],
) -> anyhow::Result<Vec<Judged>> {
    let steadfast = steadfast
        .canonicalize()
        .with_context(|| format!("{} is needed; fix: make build", steadfast.display()))?;
    let mut child = Command::new(root.join("bench/suites").join(script))
        .arg(out)
        .args(suites)
        .env("STEADFAST", steadfast)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("bench/suites/{script}"))?;
    let said = child.stdout.take().context("its standard output")?;
    let mut judged = Vec::new();
    for line in BufReader::new(said).lines() {
        let line = line?;
        writeln!(std::io::stderr(), "{line}")?;
        judged.extend(read(&line));
    }
    let status = child.wait()?;
    // 1: some differ.
    ensure!(
        matches!(status.code(), Some(0 | 1)),
        "bench/suites/{script} ended with {status}: what it said is above"
    );
    ensure!(
        !judged.is_empty(),
        "bench/suites/{script} judged nothing: what it said is above"
    );
    Ok(judged)
}

fn read(line: &str) -> Option<Judged> {
    let (name, counts) = line.split_once(": ")?;
    let (bare, rest) = counts.split_once(" tests pass bare, ")?;
    let (different, _) = rest.split_once(" end differently protected")?;
    Some(Judged {
        name: name.to_owned(),
        bare: bare.parse().ok()?,
        different: different.parse().ok()?,
    })
}

pub fn render(judged: &[Judged]) -> String {
    judged
        .iter()
        .map(|one| {
            format!(
                "{:12} {:6} tests pass bare, {} of them end differently protected\n",
                one.name, one.bare, one.different
            )
        })
        .collect()
}

pub fn rows(judged: &[Judged]) -> Vec<Row> {
    judged
        .iter()
        .map(|one| {
            let what = format!(
                "{}: tests that pass bare and end differently with 2 replicas",
                one.name
            );
            Row::share(&one.name, what, one.different, one.bare)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_suite_is_read_and_others_are_not() {
        let said = [
            "bash: 83 tests pass bare, 2 end differently protected",
            "  array",
            "servers: debian, bare: 10 pass, 3 s",
            "sed: 209 tests pass bare, 0 end differently protected; 4 runs refused or stopped",
        ];
        let judged: Vec<Judged> = said.into_iter().filter_map(read).collect();
        assert_eq!(
            judged,
            [("bash", 83, 2), ("sed", 209, 0)].map(|(name, bare, different)| Judged {
                name: name.to_owned(),
                bare,
                different
            })
        );
        let rows = rows(&judged);
        assert_eq!((rows[0].hits, rows[0].n), (Some(2), Some(83)));
    }
}
