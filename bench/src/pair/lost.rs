//! Sites that are lost: the tests of crates/pair that cut the link, and that kill a site, by the hundred.
//!
//! A piece is some rounds, each at another moment of the program's work. What was done is kept, a JSON object a line, and
//! a later call goes on behind it.
//!
//! Invariants
//!  1. The first wrong end fails the bench, and its piece is not kept.
//!  2. Only pieces of the commit that is checked out count.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use steadfast_report::published::Row;

use crate::machine;

/// Rounds of a piece: two minutes at most.
const PIECE: u64 = 25;

/// One test, and what its rounds are published as.
struct Kind {
    key: &'static str,
    what: &'static str,
    test: &'static str,
    many: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        key: "partitions",
        what: "two primaries, lost commits and false alarms, where the link is cut",
        test: "a_cut_link",
        many: "PAIR_CUTS",
    },
    Kind {
        key: "crashes",
        what: "lost commits and false alarms, where a site is killed at any moment",
        test: "killed_at_any_moment",
        many: "PAIR_CRASHES",
    },
];

#[derive(Debug, Deserialize, Serialize)]
struct Piece {
    commit: String,
    key: String,
    first: u64,
    rounds: u64,
}

/// Test program and product, copied: the campaign goes on while others are built.
struct Built {
    test: PathBuf,
    product: PathBuf,
}

fn build(place: &Path) -> Result<Built> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "-q", "-p", "steadfast-pair", "--test", "pair"]);
    let output = cargo.args(["--no-run", "--message-format=json"]).output()?;
    ensure!(
        output.status.success(),
        "cargo test --no-run: {}",
        output.status
    );
    let said = String::from_utf8(output.stdout)?;
    let copy = |name: &str| -> Result<PathBuf> {
        let mut told = said.lines().filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let program = line["executable"].as_str()?;
            (line["target"]["name"] == name).then(|| program.to_owned())
        });
        let program = told
            .next()
            .with_context(|| format!("cargo has built no {name}"))?;
        let copy = place.join(format!("lost-{name}"));
        fs::copy(program, &copy)?;
        Ok(copy)
    };
    Ok(Built {
        test: copy("pair")?,
        product: copy("steadfast-pair")?,
    })
}

fn run(built: &Built, kind: &Kind, first: u64, rounds: u64) -> Result<()> {
    let status = Command::new(&built.test)
        .arg(kind.test)
        .env("STEADFAST_PAIR", &built.product)
        .env(kind.many, rounds.to_string())
        .env("PAIR_FIRST", first.to_string())
        .stdout(Stdio::null())
        .status()
        .context("the tests")?;
    ensure!(
        status.success(),
        "{}: {status}\n  again: PAIR_FIRST={first} {}={rounds} cargo test -p steadfast-pair --test pair -- {}",
        kind.what,
        kind.many,
        kind.test
    );
    Ok(())
}

/// Runs each test so many times; a file in `place` has what was done before.
///
/// # Errors
/// When a test fails, or the file cannot be read or written.
pub fn lost(times: u64, place: &Path, step: &mut dyn FnMut(&str)) -> Result<Vec<Row>> {
    let commit = machine::commit();
    fs::create_dir_all(place)?;
    let built = build(place)?;
    let lines = place.join("pair-lost.jsonl");
    let before = fs::read_to_string(&lines).unwrap_or_default();
    let mut done: Vec<Piece> = Vec::new();
    for line in before.lines() {
        done.push(serde_json::from_str(line).with_context(|| lines.display().to_string())?);
    }
    done.retain(|piece| piece.commit == commit);
    let mut kept = OpenOptions::new().create(true).append(true).open(lines)?;
    for kind in &KINDS {
        for first in (0..times).step_by(usize::try_from(PIECE)?) {
            let rounds = PIECE.min(times - first);
            let same = |piece: &&Piece| piece.key == kind.key && piece.first == first;
            if done
                .iter()
                .find(same)
                .is_some_and(|piece| piece.rounds >= rounds)
            {
                continue;
            }
            run(&built, kind, first, rounds)?;
            step(&format!("{} of {times} {}", first + rounds, kind.key));
            let piece = Piece {
                commit: commit.clone(),
                key: kind.key.to_owned(),
                first,
                rounds,
            };
            writeln!(kept, "{}", serde_json::to_string(&piece)?)?;
        }
    }
    let row = |kind: &Kind| Row::share(kind.key, kind.what, 0, times);
    Ok(KINDS.iter().map(row).collect())
}
