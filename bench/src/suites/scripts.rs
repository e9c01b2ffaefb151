//! The tests that bash, make, GNU programs, servers and Go come with, as scripts in `bench/suites` run them: bare, then protected.
//!
//! A script says one line of each suite: `NAME: N tests pass bare, M end differently protected`. Those that differ follow, indented.
//! Debian's tests of dnsmasq compare builds: `NAME: N tests pass with the archive's packages, M fail with hardened ones`.
//!
//! Not covered: tests that fail bare. They are not counted.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use serde::Serialize;
use steadfast_report::published::Row;

/// Scripts that say such lines.
pub const SCRIPTS: [&str; 4] = ["gnu", "trees", "servers", "autopkgtest"];

/// What came of one suite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judged {
    pub name: String,
    /// What was beside the bare program.
    pub beside: Beside,
    pub bare: u64,
    pub different: u64,
}

/// What ran the tests beside the bare program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Beside {
    Replicas,
    Hardened,
}

impl Beside {
    /// What stands behind the two counts of a line.
    fn words(self) -> [&'static str; 2] {
        match self {
            Beside::Replicas => [" tests pass bare, ", " end differently protected"],
            Beside::Hardened => [
                " tests pass with the archive's packages, ",
                " fail with hardened ones",
            ],
        }
    }
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
    let judged = |beside: Beside| {
        let [behind_bare, behind_different] = beside.words();
        let (bare, rest) = counts.split_once(behind_bare)?;
        let (different, _) = rest.split_once(behind_different)?;
        Some(Judged {
            name: name.to_owned(),
            beside,
            bare: bare.parse().ok()?,
            different: different.parse().ok()?,
        })
    };
    [Beside::Replicas, Beside::Hardened]
        .into_iter()
        .find_map(judged)
}

pub fn render(judged: &[Judged]) -> String {
    judged
        .iter()
        .map(|one| {
            let [behind_bare, behind_different] = one.beside.words();
            format!(
                "{:12} {:6}{behind_bare}{}{behind_different}\n",
                one.name, one.bare, one.different
            )
        })
        .collect()
}

pub fn rows(judged: &[Judged]) -> Vec<Row> {
    judged
        .iter()
        .map(|one| match one.beside {
            Beside::Replicas => {
                let what = format!(
                    "{}: tests that pass bare and end differently with 2 replicas",
                    one.name
                );
                Row::share(&one.name, what, one.different, one.bare)
            }
            Beside::Hardened => {
                let pass = one.bare.saturating_sub(one.different);
                let what = "tests that pass, as with the archive's packages";
                Row::share("pass", what, pass, one.bare)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(name: &str, beside: Beside, bare: u64, different: u64) -> Judged {
        Judged {
            name: name.to_owned(),
            beside,
            bare,
            different,
        }
    }

    #[test]
    fn a_line_of_a_suite_is_read_and_others_are_not() {
        let said = [
            "bash: 83 tests pass bare, 2 end differently protected",
            "  array",
            "servers: debian, bare: 10 pass, 3 s",
            "sed: 209 tests pass bare, 0 end differently protected; 4 runs refused or stopped",
            "dnsmasq: 5 tests pass with the archive's packages, 1 fail with hardened ones",
        ];
        let judged: Vec<Judged> = said.into_iter().filter_map(read).collect();
        assert_eq!(
            judged,
            [
                suite("bash", Beside::Replicas, 83, 2),
                suite("sed", Beside::Replicas, 209, 0),
                suite("dnsmasq", Beside::Hardened, 5, 1),
            ]
        );
        let rows = rows(&judged);
        assert_eq!((rows[0].hits, rows[0].n), (Some(2), Some(83)));
        assert_eq!(
            (rows[2].key.as_str(), rows[2].hits, rows[2].n),
            ("pass", Some(4), Some(5))
        );
    }
}
