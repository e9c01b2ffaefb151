//! Bench: commits of sqlite3 on the demo's two hosts, in turns: bare, two bare copies side by side, and the pair.
//!
//! Each round runs every column once, in an order that rotates. Timed is the answer to the first statement to the
//! answer to the last, so starts are left out. The interval is that of the median: of seven
//! rounds it goes from the smallest to the largest.
//!
//! Not measured: recording alone, and hosts with cores of their own.

use std::fs;
use std::time::Instant;

use crate::cli::{Bench, Demo};
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

/// The median, and its 95 % interval by order statistics (sign test; the normal approximation of the binomial).
fn median(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    let skip = (0..n / 2)
        .take_while(|skip| (*skip as f64) < n as f64 / 2.0 - 0.98 * (n as f64).sqrt() - 1.0)
        .count();
    (sorted[n / 2], sorted[skip], sorted[n - 1 - skip])
}

/// Each round is a demo of its own: the download of its server stands still while the host dies and is replaced.
fn outages(options: &Bench) -> Result<u8, PairError> {
    let demo = Demo {
        strike: "b".into(),
        keep: None,
        lost_after: options.lost_after,
        turns: false,
        lost_at: None,
        lost_joined: false,
        hold_acks: options.hold_acks,
        lose: options.lose,
        command: options.command.clone(),
    };
    let (mut outages, mut pauses, mut wrong) = (Vec::new(), Vec::new(), 0);
    let n = options.rounds.max(1);
    for _ in 0..n {
        let shown = crate::loss::show(&demo)?;
        wrong += u32::from(shown.status != 0);
        // A download that did not complete has no length; it counts as wrong.
        outages.extend(shown.outage_ms);
        pauses.extend(shown.pause_ms);
    }
    if outages.is_empty() || pauses.is_empty() {
        return Err(PairError::Bug("no download has completed".into()));
    }
    let (middle, low, high) = median(&outages);
    let (pause, pause_low, pause_high) = median(&pauses);
    let worst = outages.iter().copied().fold(0.0, f64::max);
    let rows = serde_json::json!([
        { "key": "outage.median", "what": "a download stands still when its host dies, between two reads of a client that always reads", "value": middle, "low": low, "high": high, "unit": "ms", "n": n },
        { "key": "outage.worst", "what": "the longest of these", "value": worst, "low": worst, "high": worst, "unit": "ms", "n": n },
        { "key": "return.pause", "what": "the program stands still when its other host comes back", "value": pause, "low": pause_low, "high": pause_high, "unit": "ms", "n": n },
        { "key": "outage.wrong", "what": "downloads that did not complete, or were wrong", "value": wrong, "low": wrong, "high": wrong, "unit": "", "n": n },
    ]);
    write(options, &rows)?;
    println!("{rows:#}");
    Ok(u8::from(wrong > 0))
}

fn write(options: &Bench, rows: &serde_json::Value) -> Result<(), PairError> {
    let Some(path) = &options.json else {
        return Ok(());
    };
    fs::write(path, format!("{rows:#}\n")).map_err(|source| PairError::Kernel {
        part: "the bench's processes and files",
        source,
    })
}

pub(crate) fn run(options: &Bench) -> Result<u8, PairError> {
    check()?;
    if !options.command.is_empty() {
        return outages(options);
    }
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
    let rows: Vec<_> = rows
        .iter()
        .map(|(key, what, (value, low, high), unit)| {
            serde_json::json!({ "key": key, "what": what, "value": value, "low": low, "high": high, "unit": unit, "n": rounds.len() })
        })
        .collect();
    write(options, &serde_json::Value::from(rows))?;
    Ok(0)
}
