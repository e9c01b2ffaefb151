//! `steadfast host top`: every component of an application that runs, once in an interval: what it does, and how it failed.
//!
//! Invariant: a rate is of one process; where another one has taken its place there is none for that interval.
//!
//! Not covered: history. `/metrics` is for that.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value as Json, json};

use crate::control::{self, Question};
use crate::told::Told;

/// Home, then nothing below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Shows the components and tasks of an application that runs: calls, failures, objects.
#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The socket that its `host run --control` names
    socket: PathBuf,
    /// One JSON object a line instead of tables
    #[arg(long)]
    json: bool,
    /// Time between two looks, 0.2 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// How often to look; without it, until Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.2..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("seconds from 0.2 to 3600 are needed".into()),
    }
}

/// What the application said, and when.
struct Seen {
    at: Instant,
    status: Json,
}

impl Top {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let live = !self.json && std::io::stdout().is_terminal();
        let mut before: Option<Seen> = None;
        let mut shown = 0;
        loop {
            let status = control::ask(&self.socket, &Question::Status)?;
            let now = Seen {
                at: Instant::now(),
                status,
            };
            let status = rates(&now, before.as_ref());
            let text = if self.json {
                status.to_string() + "\n"
            } else {
                format!("{}{}", if live { CLEAR } else { "" }, page(&status))
            };
            let mut out = std::io::stdout().lock();
            if out
                .write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .is_err()
            {
                return Ok(ExitCode::SUCCESS);
            }
            shown += 1;
            if self.count.is_some_and(|count| shown >= count) {
                return Ok(ExitCode::SUCCESS);
            }
            before = Some(now);
            std::thread::sleep(self.interval);
        }
    }
}

/// The status with a rate for each counter of calls and jobs.
fn rates(now: &Seen, before: Option<&Seen>) -> Json {
    let mut status = now.status.clone();
    let before = before.filter(|before| before.status["pid"] == now.status["pid"]);
    for (group, key, counter) in [
        ("components", "component", "calls"),
        ("tasks", "task", "jobs"),
    ] {
        for row in status[group].as_array_mut().into_iter().flatten() {
            let rate = before.and_then(|before| {
                let same = |other: &&Json| other[key] == row[key];
                let other = before.status[group].as_array()?.iter().find(same)?;
                let more = row[counter]
                    .as_u64()?
                    .checked_sub(other[counter].as_u64()?)?;
                #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
                let rate = more as f64 / now.at.duration_since(before.at).as_secs_f64().max(1e-3);
                Some(rate.round())
            });
            row[format!("{counter}_per_s")] = json!(rate);
        }
    }
    status
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => "-".into(),
        Json::String(text) => text.clone(),
        Json::Number(number) if number.is_f64() => {
            format!("{:.0}", number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time for people")]
fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

fn page(status: &Json) -> String {
    let mut out = String::new();
    let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let _ = writeln!(
        out,
        "{}, up {} s",
        cell(&status["state"]),
        cell(&status["uptime_s"])
    );
    let _ = writeln!(
        out,
        "{:<16} {:<7} {:>10} {:>9} {:>8} {:>8} {:>10} {:>10}  failures",
        "component", "state", "calls/s", "objects", "resets", "rebuilt", "reset us", "longest us"
    );
    for row in rows("components") {
        let number = |name: &str| row[name].as_u64().unwrap_or(0);
        let mean = number("reset_ns_sum").checked_div(number("resets_total"));
        let causes: Vec<_> = row["resets"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(cause, count)| format!("{count} {cause}"))
            .collect();
        let _ = writeln!(
            out,
            "{:<16} {:<7} {:>10} {:>9} {:>8} {:>8} {:>10} {:>10}  {}",
            cell(&row["component"]),
            cell(&row["state"]),
            cell(&row["calls_per_s"]),
            cell(&row["objects"]),
            cell(&row["resets_total"]),
            cell(&row["rebuilt"]),
            mean.map_or("-".into(), micros),
            mean.map_or("-".into(), |_| micros(number("reset_ns_max"))),
            causes.join(", ")
        );
    }
    let tasks = rows("tasks");
    if tasks.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "{:<16} {:>18} {:>9} {:>8} {:>10}",
        "task", "jobs/s", "missed", "failed", "longest us"
    );
    for row in tasks {
        let _ = writeln!(
            out,
            "{:<16} {:>18} {:>9} {:>8} {:>10}",
            cell(&row["task"]),
            cell(&row["jobs_per_s"]),
            cell(&row["missed"]),
            cell(&row["failed"]),
            micros(row["worst_ns"].as_u64().unwrap_or(0)),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, calls: u64, at: Instant) -> Seen {
        let status = json!({
            "pid": pid, "state": "serving", "uptime_s": 3,
            "components": [{
                "component": "fs", "state": "serves", "calls": calls, "objects": 2, "resets": {"trap": 2}, "resets_total": 2,
                "rebuilt": 4, "reset_ns_sum": 8000, "reset_ns_max": 5000,
            }],
            "tasks": [{ "task": "a", "jobs": calls, "missed": 1, "failed": 0, "worst_ns": 1500 }],
        });
        Seen { at, status }
    }

    #[test]
    fn a_rate_is_of_one_process() {
        let begin = Instant::now();
        let now = seen(7, 300, begin + Duration::from_secs(2));
        let same = rates(&now, Some(&seen(7, 100, begin)));
        assert_eq!(same["components"][0]["calls_per_s"], 100.0);
        assert_eq!(same["tasks"][0]["jobs_per_s"], 100.0);
        let other = rates(&now, Some(&seen(6, 100, begin)));
        assert_eq!(other["components"][0]["calls_per_s"], Json::Null);
        let text = page(&same);
        assert!(text.contains("2 trap") && text.contains("4.0"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 160), "{text}");
    }
}
