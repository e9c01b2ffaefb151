//! The detector channel of programs built with `steadfast cc`: what they left in the file that
//! STEADFAST_EVENTS named.
//!
//! The first line of a mismatch is the detection; a handler that recovered and one that stopped
//! the program have both spoken. It names the handler, which the line on standard error that every
//! campaign looks for does not give away when the program's own words are cut off.
//!
//! Fault and alarm have one clock, the processor's time-stamp counter: the time from one to the other is
//! that from the first hit to the comparison that failed.
//!
//! Not covered: machines whose processors do not share it.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::record::Detection;

/// What the variable is set to: from the working directory of the target, `scratch/run`.
pub const EVENTS: (&str, &str) = ("STEADFAST_EVENTS", "../events");

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    what: String,
    #[serde(default)]
    handler: String,
    tsc: Option<String>,
}

/// What the target said; `hit` is when the first fault struck.
pub(crate) fn spoke(scratch: &Path, hit: Option<u64>) -> Option<Detection> {
    let rate = || steadfast_sys::cpu::ticks_per_us().max(1).into();
    let text = fs::read_to_string(scratch.join("events")).ok()?;
    first(&text, hit, rate)
}

fn first(text: &str, hit: Option<u64>, ticks_per_us: impl Fn() -> u64) -> Option<Detection> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .find(|line| line.kind == "harden_mismatch" || line.kind == "harden_state")
        .map(|line| Detection {
            by: "cc".into(),
            what: Some(match &*line.handler {
                "" => line.what, // state at rest, seen outside handlers
                handler => format!("{} in {handler}", line.what),
            }),
            latency_ns: line
                .tsc
                .and_then(|tsc| u64::from_str_radix(tsc.strip_prefix("0x")?, 16).ok())
                .zip(hit)
                .and_then(|(alarm, hit)| alarm.checked_sub(hit))
                .map(|ticks| ticks * 1000 / ticks_per_us()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mismatch_is_the_detection() {
        let text = concat!(
            "{\"v\":1,\"type\":\"harden_mismatch\",\"handler\":\"h\",\"what\":\"a store differs\",\"action\":\"stopped\"}\n",
            "not json\n",
        );
        let found = first(text, Some(5), || 1).expect("found");
        assert_eq!(
            (found.by.as_str(), found.what.as_deref()),
            ("cc", Some("a store differs in h"))
        );
        assert_eq!(found.latency_ns, None, "an alarm without a time");
        assert!(first("{\"v\":1,\"type\":\"other\"}\n", None, || 1).is_none());
        let timed = r#"{"v":1,"type":"harden_mismatch","handler":"h","what":"w","tsc":"0x2328"}"#;
        let latency = |hit| first(timed, hit, || 2000).expect("found").latency_ns;
        assert_eq!(latency(Some(5000)), Some(2000), "4,000 ticks at 2 GHz");
        assert_eq!(latency(None), None);
        assert_eq!(latency(Some(9001)), None, "another fault's alarm");
    }
}
