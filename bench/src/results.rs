//! Keeps rows in a file of `results/`, with what has to stand beside them: date, commit, machine, load, command.
//!
//! Invariant: a file is written only when it passes the checks of `steadfast_report::published`.
//!
//! Not covered: whether the program that was measured is of that commit; `make bench` builds it first.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use steadfast_report::published::{File, Row, Run};

use crate::machine;
use crate::stats::Estimate;

/// How rows came about.
#[derive(Clone, Debug)]
pub struct How {
    pub command: String,
    /// What was checked out when the measurement began.
    pub commit: String,
    /// What else the machine did.
    pub load: String,
    pub seed: u64,
}

/// Adds rows to a file, or begins it. Older rows of the same keys move to `earlier`.
///
/// # Errors
/// When the file cannot be read or written, or would not pass its checks.
pub fn add(path: &Path, about: &str, rows: Vec<Row>, how: How) -> Result<()> {
    let mut file = match fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).with_context(|| path.display().to_string())?,
        Err(_) => File::new(about),
    };
    let date = Command::new("date").args(["-u", "+%F"]).output()?.stdout;
    file.add(Run {
        date: String::from_utf8(date)?.trim().to_owned(),
        commit: how.commit,
        machine: machine::sentence(),
        load: how.load,
        command: how.command,
        seed: Some(how.seed),
        typed: false,
        rows,
    });
    let errors = file.errors();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    // One space, as the other files have it.
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut writer = serde_json::Serializer::with_formatter(&mut out, formatter);
    serde::Serialize::serialize(&file, &mut writer)?;
    out.push(b'\n');
    fs::write(path, out).with_context(|| path.display().to_string())
}

/// A row of an estimate; none where nothing was measured. Four digits are kept, more than any interval here is worth.
#[must_use]
pub fn row(
    key: impl Into<String>,
    what: impl Into<String>,
    unit: &str,
    found: Option<Estimate>,
) -> Option<Row> {
    let found = found?.map(digits);
    let n = u64::try_from(found.rounds).unwrap_or(u64::MAX);
    Some(Row::new(key, what, found.value, unit).within(found.low, found.high, n))
}

/// A value with four significant digits.
#[must_use]
pub fn digits(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_four_digits() {
        assert_eq!(
            [109.2584, -0.000_123_456, 0.0].map(digits),
            [109.3, -0.000_123_5, 0.0]
        );
    }

    #[test]
    fn what_was_not_measured_has_no_row() {
        assert_eq!(row("a", "an event", "ns", None), None);
        let found = Estimate {
            value: 2.0,
            low: 1.0,
            high: 3.0,
            rounds: 10,
        };
        let row = row("a", "an event", "ns", Some(found)).unwrap();
        assert_eq!(
            (row.value, row.low, row.high, row.n),
            (2.0, Some(1.0), Some(3.0), Some(10))
        );
    }
}
