//! Bench: commits of sqlite3 on the demo's two hosts, in turns: bare, two bare copies side by side, and the pair; how long a
//! download stands still when its host dies; what it costs that acknowledgements are held back.
//!
//! Each round runs every column once, in an order that rotates. Timed is the answer to the first statement to the
//! answer to the last, so starts are left out. The interval is that of the median: of seven
//! rounds it goes from the smallest to the largest.
//!
//! Not measured: recording alone, and hosts with cores of their own.

use std::fs;
use std::time::Instant;

use crate::cli::{Bench, Demo, Lose, Switch};
use crate::error::PairError;
use crate::hosts::{Host, Images, SCHEMA, Scratch, check, connect, sqlite};
use crate::say::say;
use crate::turns;

/// Puts of eight bytes in a round.
const SMALL: u32 = 200;

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

fn bad(source: std::io::Error) -> PairError {
    PairError::Kernel {
        part: "the bench's processes and files",
        source,
    }
}

fn demo(options: &Bench) -> Demo {
    Demo {
        strike: "b".into(),
        keep: None,
        lost_after: options.lost_after,
        turns: false,
        lost_at: None,
        lost_joined: false,
        hold_acks: options.hold_acks,
        six: false,
        lose: options.lose,
        command: options.command.clone(),
    }
}

/// Each round is a demo of its own: the download of its server stands still while the host dies and is replaced.
fn outages(options: &Bench) -> Result<u8, PairError> {
    let demo = demo(options);
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
    let key = |name: &str| match options.lose {
        Lose::Power => format!("outage.{name}"),
        Lose::Cable => format!("outage.cable.{name}"),
        Lose::Freeze => format!("outage.freeze.{name}"),
    };
    let returned = match options.lose {
        Lose::Power => "return.pause".to_owned(),
        _ => key("return"),
    };
    let rows = serde_json::json!([
        { "key": key("median"), "what": "a download stands still when its host dies, between two reads of a client that always reads", "value": middle, "low": low, "high": high, "unit": "ms", "n": n },
        { "key": key("worst"), "what": "the longest of these", "value": worst, "low": worst, "high": worst, "unit": "ms", "n": n },
        { "key": returned, "what": "the program stands still when its other host comes back", "value": pause, "low": pause_low, "high": pause_high, "unit": "ms", "n": n },
        { "key": key("wrong"), "what": "downloads that did not complete, or were wrong", "value": wrong, "low": wrong, "high": wrong, "unit": "", "n": n },
    ]);
    write(options, &rows)?;
    say!("{rows:#}");
    Ok(u8::from(wrong > 0))
}

/// One put of many bytes, and the median of many small ones.
#[derive(Debug, Clone, Copy)]
struct Puts {
    many_ms: f64,
    small_us: f64,
}

fn puts(options: &Bench, hold_acks: Switch) -> Result<Puts, PairError> {
    let demo = Demo {
        // Nobody is lost here.
        lost_after: 10_000,
        hold_acks,
        ..demo(options)
    };
    let scratch = Scratch::new(None).map_err(bad)?;
    let dir = scratch.path.as_path();
    let mut stage = turns::begin(dir, &demo)?;
    let told = |error| crate::stage::told(dir, error);
    let odd = |line: String| told(std::io::Error::other(format!("the client says {line}")));
    stage.c.say(&format!("ask {SMALL}")).map_err(told)?;
    let line = stage.c.line().map_err(told)?;
    let small = line.strip_prefix("median ").and_then(|us| us.parse().ok());
    let small: f64 = small.ok_or_else(|| odd(line))?;
    let began = Instant::now();
    stage
        .c
        .say(&format!("put {}", turns::BYTES))
        .map_err(told)?;
    stage.c.line().map_err(told)?;
    let line = stage.c.line().map_err(told)?;
    if line != "put" {
        return Err(odd(line));
    }
    Ok(Puts {
        many_ms: 1e3 * began.elapsed().as_secs_f64(),
        small_us: small,
    })
}

/// The same with and without the hold, in turns.
fn hold(options: &Bench) -> Result<u8, PairError> {
    let mut rounds = Vec::new();
    for round in 0..options.rounds.max(1) {
        let (first, second) = if round % 2 == 0 {
            (Switch::On, Switch::Off)
        } else {
            (Switch::Off, Switch::On)
        };
        let mut both = [puts(options, first)?, puts(options, second)?];
        if first == Switch::Off {
            both.reverse();
        }
        rounds.push(both);
    }
    let of = |value: fn(&[Puts; 2]) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>());
    let rows = [
        row(
            "hold.put",
            "12 MiB from a client to a server of a pair, acknowledgements held back",
            of(|[on, _]| on.many_ms),
            "ms",
            rounds.len(),
        ),
        row(
            "hold.put.off",
            "the same, not held back",
            of(|[_, off]| off.many_ms),
            "ms",
            rounds.len(),
        ),
        row(
            "hold.put.added",
            "added to it by holding them back, in turns",
            of(|[on, off]| 100.0 * (on.many_ms / off.many_ms - 1.0)),
            "%",
            rounds.len(),
        ),
        row(
            "hold.ask",
            "connect, 8 bytes and their answer from a pair, the median of 200, held back",
            of(|[on, _]| on.small_us),
            "µs",
            rounds.len(),
        ),
        row(
            "hold.ask.added",
            "added to it by holding them back, in turns",
            of(|[on, off]| on.small_us - off.small_us),
            "µs",
            rounds.len(),
        ),
    ];
    finish(options, &rows)
}

fn row(
    key: &str,
    what: &str,
    (value, low, high): (f64, f64, f64),
    unit: &str,
    n: usize,
) -> serde_json::Value {
    serde_json::json!({ "key": key, "what": what, "value": value, "low": low, "high": high, "unit": unit, "n": n })
}

/// Says the rows, and keeps them.
fn finish(options: &Bench, rows: &[serde_json::Value]) -> Result<u8, PairError> {
    let rows = serde_json::Value::from(rows);
    write(options, &rows)?;
    say!("{rows:#}");
    Ok(0)
}

fn write(options: &Bench, rows: &serde_json::Value) -> Result<(), PairError> {
    let Some(path) = &options.json else {
        return Ok(());
    };
    fs::write(path, format!("{rows:#}\n")).map_err(bad)
}

pub(crate) fn run(options: &Bench) -> Result<u8, PairError> {
    check()?;
    if options.hold {
        return hold(options);
    }
    if !options.command.is_empty() {
        return outages(options);
    }
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
    let added = |over: usize| {
        median(
            &rounds
                .iter()
                .map(|round| 100.0 * (round[2] / round[over] - 1.0))
                .collect::<Vec<_>>(),
        )
    };
    let n = rounds.len();
    let rows = [
        row("commit.bare", "one commit of sqlite3, bare", ms(0), "ms", n),
        row(
            "commit.two",
            "one commit, two bare copies side by side",
            ms(1),
            "ms",
            n,
        ),
        row("commit.pair", "one commit, pair", ms(2), "ms", n),
        row(
            "commit.over-floor",
            "added by the pair over two bare copies",
            added(1),
            "%",
            n,
        ),
        row(
            "commit.over-bare",
            "added by the pair over bare",
            added(0),
            "%",
            n,
        ),
    ];
    finish(options, &rows)
}
