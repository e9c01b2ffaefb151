//! What the bench has measured: a value of each series a round.

use serde::Serialize;

/// One quantity, a value a round.
#[derive(Debug, Serialize)]
struct Series {
    key: String,
    what: String,
    unit: String,
    values: Vec<f64>,
}

/// What the file holds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) rounds: usize,
    /// Whether the task of the interference series ran under SCHED_FIFO.
    pub(super) fifo: bool,
    series: Vec<Series>,
}

impl Report {
    /// An empty one.
    pub(super) fn of(rounds: usize) -> Self {
        Self {
            rounds,
            ..Self::default()
        }
    }

    /// Notes a value; the text is the same each time.
    pub(super) fn put(&mut self, key: &str, what: &str, unit: &str, value: f64) {
        if let Some(series) = self.series.iter_mut().find(|series| series.key == key) {
            series.values.push(value);
            return;
        }
        self.series.push(Series {
            key: key.into(),
            what: what.into(),
            unit: unit.into(),
            values: vec![value],
        });
    }

    /// The value of the present round.
    pub(super) fn last(&self, key: &str) -> Option<f64> {
        let series = self.series.iter().find(|series| series.key == key);
        series.and_then(|series| series.values.last()).copied()
    }

    /// A ratio of two values of the present round, in percent.
    pub(super) fn percent(&mut self, key: &str, what: &str, of: &str, over: &str) {
        if let (Some(of), Some(over)) = (self.last(of), self.last(over)) {
            self.put(key, what, "%", 100.0 * of / over);
        }
    }

    pub(super) fn print(&self) {
        println!(
            "{} rounds; median, then smallest and largest round",
            self.rounds
        );
        for series in &self.series {
            let mut sorted = series.values.clone();
            sorted.sort_by(f64::total_cmp);
            let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
                continue;
            };
            println!(
                "{:<26} {:>10.3} [{low:.3}, {high:.3}] {:<4} {}",
                series.key,
                sorted[sorted.len() / 2],
                series.unit,
                series.what
            );
        }
        let interferes = |series: &Series| series.key.starts_with("interference");
        if !self.fifo && self.series.iter().any(interferes) {
            println!(
                "the task of the interference series ran as an ordinary thread: SCHED_FIFO was refused"
            );
        }
    }
}

/// The median of times, in µs.
pub(super) fn median_us(ns: Vec<u64>) -> Option<f64> {
    quantile_us(ns, 2)
}

/// The time that one in so many is below, in µs.
pub(super) fn quantile_us(mut ns: Vec<u64>, one_in: usize) -> Option<f64> {
    ns.sort_unstable();
    #[allow(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
    ns.get(ns.len() / one_in).map(|ns| *ns as f64 / 1000.0)
}
