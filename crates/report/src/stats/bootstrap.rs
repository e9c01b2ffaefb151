//! Medians, quantiles and bootstrap intervals of measured values.
//!
//! The interval is the percentile bootstrap's: resample with replacement, take the statistic each
//! time, report the 2.5th and 97.5th percentile (Efron and Tibshirani 1993, chapter 13). With ten
//! rounds it is a rough tool, and an honest one: it is wide when the rounds disagree.
//!
//! Randomness comes from the caller, so that a report repeats from its printed seed.
//!
//! Not covered: values that depend on one another; rounds have to be run in turns.

use super::interval::Interval;

/// Enough that the 2.5th percentile itself moves by less than a tenth of the interval's width
/// from seed to seed.
pub const RESAMPLES: usize = 4_000;

/// The value below which a share `q` of the list lies, interpolated. Nothing for an empty list.
#[must_use]
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_sorted(&sorted, q)
}

/// As [`quantile`], of a list in ascending order.
#[must_use]
pub fn quantile_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = q.clamp(0.0, 1.0) * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "position is within the list"
    )]
    let below = position as usize;
    let share = position - below as f64;
    Some(sorted[below] + (sorted[(below + 1).min(last)] - sorted[below]) * share)
}

/// A statistic of several lists, each resampled on its own, with its 95 % interval.
///
/// `pick(n)` draws a number below n. Nothing if a list is empty or the statistic has no value.
pub fn bootstrap(
    lists: &[&[f64]],
    mut pick: impl FnMut(usize) -> usize,
    statistic: impl Fn(&[Vec<f64>]) -> Option<f64>,
) -> Option<(f64, Interval)> {
    if lists.is_empty() || lists.iter().any(|list| list.is_empty()) {
        return None;
    }
    let mut drawn: Vec<Vec<f64>> = lists.iter().map(|list| list.to_vec()).collect();
    let value = statistic(&drawn)?;
    let mut outcomes = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for (draw, list) in drawn.iter_mut().zip(lists) {
            draw.fill_with(|| list[pick(list.len())]);
        }
        outcomes.push(statistic(&drawn)?);
    }
    outcomes.sort_by(f64::total_cmp);
    Some((
        value,
        Interval {
            low: quantile_sorted(&outcomes, 0.025)?,
            high: quantile_sorted(&outcomes, 0.975)?,
        },
    ))
}
