//! From evidence to one leaf: the first rule that matches.

use serde::{Deserialize, Serialize};
use steadfast_integrity::outcome::Leaf;

/// What a run left behind.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) timed_out: bool,
    pub(crate) status: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) output: Vec<u8>,
    pub(crate) events: Seen,
}

/// What the event file says.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// The run was reported to its end.
    pub(crate) ended: bool,
    pub(crate) verdict: String,
    pub(crate) hits: u64,
    pub(crate) divergences: u64,
    pub(crate) recoveries: u64,
    /// In what the first divergence showed, and how long after the fault.
    pub(crate) difference: String,
    pub(crate) latency_ns: Option<u64>,
    pub(crate) action: String,
    /// What was struck from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) strike: Option<String>,
}

/// How a run without a fault ends.
#[derive(Debug)]
pub(crate) struct Golden {
    pub(crate) status: i32,
    pub(crate) output: Vec<u8>,
}

/// Exit codes of the tool itself (crates/integrity/src/exit.rs).
const SETUP: i32 = 121;
const STOPPED: i32 = 122;
const BUG: i32 = 123;

/// The leaf of a run with an armed fault.
pub(crate) fn leaf(golden: &Golden, seen: &Evidence) -> Leaf {
    let spoke = seen.events.divergences > 0;
    let right = seen.output == golden.output;
    let prefix = golden.output.starts_with(&seen.output);
    // However it ended: a byte that no run without a fault shows has left.
    if !prefix {
        return match (
            spoke,
            seen.events.verdict == "corrected" && seen.status == Some(golden.status),
        ) {
            (true, true) => Leaf::CorrectedWrong,
            (true, false) => Leaf::SdcLate,
            (false, _) => Leaf::Sdc,
        };
    }
    if seen.timed_out {
        return Leaf::HangDeadlock;
    }
    let ours = seen.events.verdict == "stopped" || seen.events.verdict == "refused";
    match seen.status {
        // Told apart from a program's own 121 by the report, which a failed setup does not have.
        Some(SETUP) if !seen.events.ended => return Leaf::Infra,
        Some(BUG) if !seen.events.ended => return Leaf::CrashAssert,
        _ => {}
    }
    if seen.events.ended && seen.events.hits == 0 && !spoke {
        return if right { Leaf::NotFired } else { Leaf::Infra };
    }
    if ours {
        return match (prefix, seen.status) {
            (true, Some(STOPPED | SETUP)) => Leaf::DetectedStop,
            _ => Leaf::SdcLate,
        };
    }
    if seen.signal.is_some() {
        return Leaf::CrashSignal;
    }
    if seen.status != Some(golden.status) {
        return Leaf::ErrorExit;
    }
    match (right, spoke) {
        (true, true) => Leaf::Corrected,
        (true, false) => Leaf::MaskedClean,
        (false, true) => Leaf::CorrectedWrong,
        (false, false) => Leaf::Sdc,
    }
}

/// Reads an event file.
pub(crate) fn read(text: &str) -> Seen {
    let mut seen = Seen::default();
    for line in text.lines() {
        let Ok(event) = serde_json::from_str::<serde_json::Value>(line) else {
            continue;
        };
        let number = |key: &str| event[key].as_u64().unwrap_or(0);
        match event["type"].as_str() {
            Some("divergence") if seen.difference.is_empty() => {
                seen.difference = match &event["difference"] {
                    serde_json::Value::String(word) => word.clone(),
                    serde_json::Value::Object(one) => {
                        one.keys().next().cloned().unwrap_or_default()
                    }
                    _ => String::new(),
                };
                seen.latency_ns = event["latency_ns"].as_u64();
            }
            Some("recovery") if seen.action.is_empty() => {
                seen.action = match &event["action"] {
                    serde_json::Value::String(word) => word.clone(),
                    serde_json::Value::Object(one) => {
                        one.keys().next().cloned().unwrap_or_default()
                    }
                    _ => String::new(),
                };
            }
            Some("run_end") => {
                seen.ended = true;
                seen.verdict = event["verdict"].as_str().unwrap_or_default().to_owned();
                seen.divergences = number("divergences");
                seen.recoveries = number("recoveries");
                seen.hits = event["faults"].as_array().map_or(0, |faults| {
                    faults.iter().filter_map(|f| f["hits"].as_u64()).sum()
                });
            }
            _ => {}
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(output: &[u8], verdict: &str, hits: u64, divergences: u64) -> Evidence {
        let events = Seen {
            ended: true,
            verdict: verdict.into(),
            hits,
            divergences,
            ..Seen::default()
        };
        Evidence {
            status: Some(0),
            output: output.to_vec(),
            events,
            ..Evidence::default()
        }
    }

    #[test]
    fn each_rule_rings() {
        let golden = Golden {
            status: 0,
            output: b"right".to_vec(),
        };
        assert_eq!(
            leaf(&golden, &seen(b"right", "agreed", 1, 0)),
            Leaf::MaskedClean
        );
        assert_eq!(
            leaf(&golden, &seen(b"right", "corrected", 1, 1)),
            Leaf::Corrected
        );
        assert_eq!(
            leaf(&golden, &seen(b"wrong", "corrected", 1, 1)),
            Leaf::CorrectedWrong
        );
        assert_eq!(leaf(&golden, &seen(b"wrong", "agreed", 1, 0)), Leaf::Sdc);
        assert_eq!(
            leaf(&golden, &seen(b"right", "agreed", 0, 0)),
            Leaf::NotFired
        );
        let stopped = |output: &[u8]| Evidence {
            status: Some(122),
            ..seen(output, "stopped", 1, 1)
        };
        assert_eq!(leaf(&golden, &stopped(b"rig")), Leaf::DetectedStop);
        assert_eq!(leaf(&golden, &stopped(b"rag")), Leaf::SdcLate);
        let died = Evidence {
            status: None,
            signal: Some(11),
            ..seen(b"", "unprotected", 1, 0)
        };
        assert_eq!(leaf(&golden, &died), Leaf::CrashSignal);
        let hung = Evidence {
            timed_out: true,
            ..Evidence::default()
        };
        assert_eq!(leaf(&golden, &hung), Leaf::HangDeadlock);
    }
}
