//! Medians, ratios within a round, geometric means over programs, each with the interval of
//! `steadfast_report::stats::bootstrap`. Pure functions.

use serde::{Deserialize, Serialize};
pub use steadfast_report::stats::bootstrap::quantile;
use steadfast_workloads::inputs::Rng;

/// A value with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// How many rounds it rests on.
    pub rounds: usize,
}

impl Estimate {
    /// The estimate after a change of unit.
    #[must_use]
    pub fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Estimate {
            value: change(self.value),
            low: change(self.low),
            high: change(self.high),
            rounds: self.rounds,
        }
    }
}

/// The middle value; the mean of the two in the middle when there is an even number.
///
/// Returns `None` for an empty list.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The median of a list, with its interval.
#[must_use]
pub fn median_estimate(values: &[f64], rng: &mut Rng) -> Option<Estimate> {
    estimate(&[values], rng, |lists| median(&lists[0]))
}

/// The geometric mean of the medians of several lists of ratios, with its interval: each list is
/// resampled on its own, because each program had its own rounds.
#[must_use]
pub fn geometric_mean_estimate(lists: &[&[f64]], rng: &mut Rng) -> Option<Estimate> {
    estimate(lists, rng, |lists| {
        let medians: Option<Vec<f64>> = lists.iter().map(|list| median(list)).collect();
        geometric_mean(&medians?)
    })
}

/// The geometric mean; `None` for an empty list.
#[must_use]
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (logs / values.len() as f64).exp())
}

/// Any statistic of several lists, each resampled on its own, with its interval.
#[must_use]
pub fn estimate(
    lists: &[&[f64]],
    rng: &mut Rng,
    statistic: impl Fn(&[Vec<f64>]) -> Option<f64>,
) -> Option<Estimate> {
    let (value, interval) =
        steadfast_report::stats::bootstrap::bootstrap(lists, |below| rng.below(below), statistic)?;
    Some(Estimate {
        value,
        low: interval.low,
        high: interval.high,
        rounds: lists.iter().map(|list| list.len()).min()?,
    })
}

/// The slope of the least-squares line through points.
///
/// Returns `None` when fewer than two different abscissae are given.
#[must_use]
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|point| (point.0 - mean_x).powi(2)).sum();
    let common: f64 = points
        .iter()
        .map(|point| (point.0 - mean_x) * (point.1 - mean_y))
        .sum();
    (spread > 0.0).then(|| common / spread)
}
