//! The detector channel of programs built with `steadfast cc`: what they left in the file that
//! STEADFAST_EVENTS named.
//!
//! The first line of a mismatch is the detection; a handler that recovered and one that stopped
//! the program have both spoken. It names the handler, which the line on standard error that every
//! campaign looks for does not give away when the program's own words are cut off.
//!
//! Not covered: latency, for which fault and alarm need one clock.

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
}

/// What the target said.
pub(crate) fn spoke(scratch: &Path) -> Option<Detection> {
    first(&fs::read_to_string(scratch.join("events")).ok()?)
}

fn first(text: &str) -> Option<Detection> {
    text.lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .find(|line| line.kind == "harden_mismatch")
        .map(|line| Detection {
            by: "cc".into(),
            what: Some(format!("{} in {}", line.what, line.handler)),
            latency_ns: None,
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
        let found = first(text).expect("found");
        assert_eq!(
            (found.by.as_str(), found.what.as_deref()),
            ("cc", Some("a store differs in h"))
        );
        assert!(first("{\"v\":1,\"type\":\"other\"}\n").is_none());
    }
}
