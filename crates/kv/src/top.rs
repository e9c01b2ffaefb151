//! `steadfast kv top`: every replica of a group, once in an interval: what it does, and what it has found.
//!
//! Invariants
//!  1. A replica that does not answer is a row that says so; the others are shown.
//!  2. A rate is of one process: where another one has taken its place there is none for that interval.
//!
//! Not covered: history. `/metrics` is for that.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::ask::ask_within;
use crate::cli::At;
use crate::say;

/// Home, then nothing below.
const CLEAR: &str = "\x1b[H\x1b[J";
/// A replica that takes longer is shown as one that does not answer.
const ANSWER: Duration = Duration::from_secs(2);
/// Counts that are shown as they are: each of them may be a fault.
const FOUND: [&str; 5] = ["mismatches", "repairs", "passive", "single_bit", "refused"];

/// What one replica said, and when.
struct Seen {
    at: Instant,
    status: Value,
}

/// Shows the group until it has been shown `count` times, or for ever.
pub(crate) fn run(at: &At, as_json: bool, interval: Duration, count: Option<u64>) -> Result<()> {
    let live = !as_json && std::io::stdout().is_terminal();
    // Members are asked for anew each time: any of them may be replaced, the first one asked included.
    let mut known = vec![at.at.clone()];
    let mut before: BTreeMap<u64, Seen> = BTreeMap::new();
    let mut shown = 0;
    loop {
        let (members, now) = look(at, &known)?;
        let rows: Vec<Value> = members
            .iter()
            .map(|(slot, client)| row(*slot, client, now.get(slot), before.get(slot)))
            .collect();
        let text = if as_json {
            json!({"replicas": rows}).to_string()
        } else {
            let clear = if live { CLEAR } else { "" };
            format!("{clear}{}", table(&rows))
        };
        say::result(&text);
        shown += 1;
        if say::lost().is_some() || count.is_some_and(|count| shown >= count) {
            return Ok(());
        }
        known = members.values().chain([&at.at]).cloned().collect();
        before = now;
        std::thread::sleep(interval);
    }
}

fn status(at: &At) -> Result<Value> {
    let answer = ask_within(at, "sf status", ANSWER)?;
    serde_json::from_str(&answer)
        .with_context(|| format!("{} is no replica of steadfast kv; it says: {answer}", at.at))
}

type Looked = (BTreeMap<u64, String>, BTreeMap<u64, Seen>);

/// The members as the first that answers names them, and what each of them says.
fn look(how: &At, known: &[String]) -> Result<Looked> {
    let mut last = None;
    for at in known {
        let first = match status(&how.also(at)) {
            Ok(first) => first,
            Err(why) => {
                last = Some(why);
                continue;
            }
        };
        let members: BTreeMap<u64, String> = first["members"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|m| Some((m["replica"].as_u64()?, m["client"].as_str()?.to_owned())))
            .collect();
        let mut now = BTreeMap::new();
        for (slot, client) in &members {
            if let Ok(status) = status(&how.also(client)) {
                let at = Instant::now();
                now.insert(*slot, Seen { at, status });
            }
        }
        return Ok((members, now));
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("no replica answers")))
}

fn row(slot: u64, client: &str, now: Option<&Seen>, before: Option<&Seen>) -> Value {
    let Some(now) = now else {
        return json!({"replica": slot, "client": client, "state": "does not answer"});
    };
    let status = &now.status;
    let counts = &status["counts"];
    let same = before.filter(|before| before.status["node"] == status["node"]);
    // From two looks at one process.
    let rate = |read: &dyn Fn(&Value) -> Option<u64>| {
        let before = same?;
        let more = read(status)?.checked_sub(read(&before.status)?)?;
        let seconds = now.at.duration_since(before.at).as_secs_f64();
        Some((more as f64 / seconds.max(1e-3)).round())
    };
    let reads = |status: &Value| {
        let sum: u64 = ["reads_local", "reads_plain"]
            .iter()
            .filter_map(|name| status[*name].as_u64())
            .sum();
        Some(sum)
    };
    let state = match status["unready"].as_str() {
        Some(why) => why,
        None if status["leader"] == slot => "leads",
        None => "ready",
    };
    let mut row = json!({
        "replica": slot,
        "client": client,
        "state": state,
        "requests_per_s": rate(&|status| status["counts"]["requests"].as_u64()),
        "entries_per_s": rate(&|status| status["counts"]["entries"].as_u64()),
        "reads_beside_per_s": rate(&reads),
        "check_bytes_per_s": rate(&|status| status["counts"]["check_bytes"].as_u64()),
        "open": status["open"],
        "behind": status["behind"],
        "held": status["held"],
        "items": status["items"],
        "bytes": status["bytes"],
        "uptime_s": status["uptime_s"],
        "scrub_shard": status["scrub"]["next_shard"],
    });
    for name in FOUND {
        row[name] = counts[name].clone();
    }
    row
}

fn table(rows: &[Value]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "replica  state            requests/s  entries/s  reads beside/s  open  behind  held     items  mismatches  repairs (at rest, one bit)  refused"
    );
    for row in rows {
        let text = |name: &str| match &row[name] {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            Value::Number(number) => number
                .as_f64()
                .filter(|_| number.is_f64())
                .map_or_else(|| number.to_string(), |value| format!("{value:.0}")),
            other => other.to_string(),
        };
        let repairs = format!(
            "{} ({}, {})",
            text("repairs"),
            text("passive"),
            text("single_bit")
        );
        let _ = writeln!(
            out,
            "{:>7}  {:<15}  {:>10}  {:>9}  {:>14}  {:>4}  {:>6}  {:>4}  {:>8}  {:>10}  {:<26}  {:>7}",
            text("replica"),
            text("state"),
            text("requests_per_s"),
            text("entries_per_s"),
            text("reads_beside_per_s"),
            text("open"),
            text("behind"),
            text("held"),
            text("items"),
            text("mismatches"),
            repairs,
            text("refused"),
        );
    }
    // `result` ends the last line.
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(node: u64, requests: u64, at: Instant) -> Seen {
        let status = json!({
            "node": node, "leader": 1, "unready": null, "open": 0, "behind": 2, "held": 0, "items": 5, "bytes": 900, "uptime_s": 3,
            "reads_local": requests, "reads_plain": 0, "scrub": {"next_shard": 9},
            "counts": {"requests": requests, "entries": requests, "check_bytes": 0, "mismatches": 1, "repairs": 1, "passive": 1, "single_bit": 1, "refused": 0},
        });
        Seen { at, status }
    }

    #[test]
    fn a_rate_is_of_one_process_and_one_that_is_silent_has_a_row() {
        let began = Instant::now();
        let later = began + Duration::from_secs(2);
        let row_of = |before: &Seen| row(1, "h:1", Some(&seen(7, 300, later)), Some(before));
        let same = row_of(&seen(7, 100, began));
        assert_eq!(
            (&same["requests_per_s"], &same["state"]),
            (&json!(100.0), &json!("leads"))
        );
        let replaced = row_of(&seen(6, 100, began));
        assert_eq!(replaced["requests_per_s"], Value::Null);
        let silent = row(2, "h:2", None, None);
        let text = table(&[same, replaced, silent]);
        assert!(
            text.contains("does not answer") && text.contains("1 (1, 1)"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.len() <= 160), "{text}");
    }
}
