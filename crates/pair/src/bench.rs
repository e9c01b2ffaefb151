//! Bench: commits of sqlite3 on the demo's two hosts, in turns: bare, two bare copies side by side, and the pair.
//!
//! Each round runs every column once, in an order that rotates. Timed is the answer to the first statement to the
//! answer to the last, so starts are left out. The interval is that of the ratios' median: from the smallest to the
//! largest of seven rounds it covers 98 % (sign test).
//!
//! Not measured: recording alone, and hosts with cores of their own.

use std::fs;
use std::time::Instant;

use crate::cli::Bench;
use crate::demo::{Host, Images, SCHEMA, Scratch, check, connect, sqlite};
use crate::error::PairError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Bare,
    Two,
    Pair,
}

fn commits(n: usize, seed: usize) -> String {
    (0..n)
        .map(|i| {
            format!(
                "INSERT INTO t(b) VALUES(hex(zeroblob(200)) || {});\n",
                seed + i
            )
        })
        .collect()
}

fn timed(column: Column, dir: &std::path::Path, script: &str) -> std::io::Result<f64> {
    let bare = column != Column::Pair;
    let mut b = Host::start(dir, "b", bare)?;
    let mut a = Host::start(dir, "a", bare)?;
    connect(&mut a, &mut b)?;
    let mut runs: Vec<&mut Host> = if column == Column::Two {
        vec![&mut a, &mut b]
    } else {
        vec![&mut a]
    };
    for host in &mut runs {
        host.say("SELECT 'start';")?;
        host.line()?;
    }
    let began = Instant::now();
    for host in &mut runs {
        host.say(&format!("{script}SELECT 'done';"))?;
    }
    for host in &mut runs {
        if host.line()? != "done" {
            return Err(std::io::Error::other("sqlite3 answered something else"));
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    for host in [&mut a, &mut b] {
        host.say(".quit")?;
    }
    a.wait()?;
    b.wait()?;
    Ok(seconds)
}

fn median(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    (
        sorted[sorted.len() / 2],
        sorted[0],
        sorted[sorted.len() - 1],
    )
}

pub(crate) fn run(options: &Bench) -> Result<u8, PairError> {
    check()?;
    let bad = |source| PairError::Kernel {
        part: "the bench's processes and files",
        source,
    };
    let scratch = Scratch::new(None).map_err(bad)?;
    let dir = scratch.path.as_path();
    let seed = dir.join("seed");
    fs::create_dir_all(&seed).map_err(bad)?;
    sqlite(&seed, "x.db", SCHEMA)?;
    let columns = [Column::Bare, Column::Two, Column::Pair];
    let mut rounds = Vec::new();
    for round in 0..options.rounds.max(1) {
        Images { dir }.make(&seed)?;
        let script = commits(options.commits, 1000 * round);
        let mut seconds = [0.0; 3];
        for turn in 0..columns.len() {
            let index = (round + turn) % columns.len();
            // Every column starts from the same files.
            Images { dir }.make(&seed)?;
            seconds[index] = timed(columns[index], dir, &script).map_err(bad)?;
        }
        rounds.push(seconds);
    }
    let ms = |index: usize| {
        median(
            &rounds
                .iter()
                .map(|round| 1e3 * round[index] / options.commits as f64)
                .collect::<Vec<_>>(),
        )
    };
    let ratio = |over: usize| {
        median(
            &rounds
                .iter()
                .map(|round| round[2] / round[over])
                .collect::<Vec<_>>(),
        )
    };
    let rows = [
        ("commit.bare", "one commit of sqlite3, bare", ms(0), "ms"),
        (
            "commit.two",
            "one commit, two bare copies side by side",
            ms(1),
            "ms",
        ),
        ("commit.pair", "one commit, pair", ms(2), "ms"),
        (
            "commit.over-floor",
            "pair over two bare copies",
            ratio(1),
            "",
        ),
        ("commit.over-bare", "pair over bare", ratio(0), ""),
    ];
    for (_, what, (value, low, high), unit) in &rows {
        println!("{what:45} {value:8.3} [{low:.3}, {high:.3}] {unit}");
    }
    if let Some(path) = &options.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(key, what, (value, low, high), unit)| {
                serde_json::json!({ "key": key, "what": what, "value": value, "low": low, "high": high, "unit": unit, "n": rounds.len() })
            })
            .collect();
        let text = serde_json::to_string_pretty(&rows).expect("plain data");
        fs::write(path, text + "\n").map_err(bad)?;
    }
    Ok(0)
}
