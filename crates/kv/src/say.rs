//! The only place that prints what a running replica or group has to say: one line each, on standard error, or as JSON on standard output.

use std::io::Write as _;

/// One event, as a sentence or as an object. An event without a sentence is for programs only.
pub(crate) fn line(json: bool, text: &str, object: &serde_json::Value) {
    // There is nobody left to tell if this fails.
    if json {
        let mut out = std::io::stdout().lock();
        let _ = writeln!(out, "{object}");
        let _ = out.flush();
    } else if !text.is_empty() {
        let _ = writeln!(std::io::stderr().lock(), "steadfast kv: {text}");
    }
}

/// A result for standard output.
pub(crate) fn result(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// An error with what to do about it.
pub(crate) fn error(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "steadfast kv: {text}");
}
