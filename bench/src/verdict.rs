//! Verdicts: is a promise kept?

use serde::{Deserialize, Serialize};

use crate::stats::Estimate;

/// How far above the target the upper end of the interval may lie, in the unit of the target
/// (percentage points for the overheads): room for the noise of a shared virtual machine, and
/// too little to hide a missed target.
pub const SLACK_POINTS: f64 = 0.5;

/// One promise and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Promise {
    pub what: String,
    pub unit: String,
    pub target: f64,
    /// Added to the target before the comparison.
    pub slack: f64,
    pub measured: Option<Estimate>,
    pub verdict: Verdict,
    /// Why it is pending, or what an error was.
    pub note: String,
}

/// Whether a promise is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Met,
    Missed,
    /// Not measured as promised; never counts as met.
    Pending,
}

impl Verdict {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Pending => "pending",
        }
    }
}

impl Promise {
    /// Judges a measured value against an upper limit.
    #[must_use]
    pub fn at_most(
        what: &str,
        unit: &str,
        target: f64,
        slack: f64,
        measured: Option<Estimate>,
    ) -> Self {
        let (verdict, note) = match measured {
            None => (Verdict::Pending, "no measurement"),
            Some(found) if found.high <= target + slack => (Verdict::Met, ""),
            Some(_) => (Verdict::Missed, ""),
        };
        Promise {
            what: what.to_owned(),
            unit: unit.to_owned(),
            target,
            slack,
            measured,
            verdict,
            note: note.to_owned(),
        }
    }

    /// The same, when the measurement cannot settle the promise for a reason of its own.
    #[must_use]
    pub fn pending(mut self, why: impl Into<String>) -> Self {
        self.verdict = Verdict::Pending;
        self.note = why.into();
        self
    }
}

/// The promises as lines of text.
#[must_use]
pub fn render(promises: &[Promise]) -> String {
    let mut out = String::new();
    for promise in promises {
        let found = promise.measured.map_or("no value".to_owned(), |found| {
            format!("{:.2} [{:.2}, {:.2}]", found.value, found.low, found.high)
        });
        out += &format!(
            "{:<8} {}: {found} {unit}, target {} {unit}",
            promise.verdict.word(),
            promise.what,
            promise.target,
            unit = promise.unit,
        );
        if promise.slack > 0.0 {
            out += &format!(" (+{} for the upper end)", promise.slack);
        }
        if !promise.note.is_empty() {
            out += &format!("; {}", promise.note);
        }
        out.push('\n');
    }
    out
}
