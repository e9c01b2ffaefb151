//! Statistics: medians, ratios within a round, bootstrap intervals. Pure functions.
//!
//! The interval is the percentile bootstrap's: resample the rounds with replacement, take the
//! statistic each time, report the 2.5th and 97.5th percentile. With ten rounds it is a rough
//! tool, and an honest one: it is wide when the rounds disagree. See Efron and Tibshirani,
//! *An Introduction to the Bootstrap*, chapter 13.

use serde::{Deserialize, Serialize};
use steadfast_workloads::inputs::Rng;

/// Enough that the 2.5th percentile itself moves by less than a tenth of the interval's width
/// from seed to seed, and 12 programs of 10 rounds still take well under a second.
const RESAMPLES: usize = 4_000;

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

/// The value below which a share `q` of the list lies, interpolated.
///
/// Returns `None` for an empty list.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "position is within the list"
    )]
    let below = position as usize;
    let share = position - below as f64;
    Some(sorted[below] + (sorted[(below + 1).min(last)] - sorted[below]) * share)
}

/// The median of a list, with its interval.
#[must_use]
pub fn median_estimate(values: &[f64], rng: &mut Rng) -> Option<Estimate> {
    bootstrap(&[values], rng, |lists| median(&lists[0]))
}

/// The geometric mean of the medians of several lists of ratios, with its interval: each list is
/// resampled on its own, because each program had its own rounds.
#[must_use]
pub fn geometric_mean_estimate(lists: &[&[f64]], rng: &mut Rng) -> Option<Estimate> {
    bootstrap(lists, rng, |lists| {
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

fn bootstrap(
    lists: &[&[f64]],
    rng: &mut Rng,
    statistic: impl Fn(&[Vec<f64>]) -> Option<f64>,
) -> Option<Estimate> {
    if lists.is_empty() || lists.iter().any(|list| list.is_empty()) {
        return None;
    }
    let mut drawn: Vec<Vec<f64>> = lists.iter().map(|list| list.to_vec()).collect();
    let value = statistic(&drawn)?;
    let mut outcomes = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for (draw, list) in drawn.iter_mut().zip(lists) {
            draw.fill_with(|| *rng.pick(list));
        }
        outcomes.push(statistic(&drawn)?);
    }
    Some(Estimate {
        value,
        low: quantile(&outcomes, 0.025)?,
        high: quantile(&outcomes, 0.975)?,
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
