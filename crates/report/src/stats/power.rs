//! How many runs a question needs, before the first one is made.
//!
//! | Question | Runs |
//! |---|---|
//! | to claim < 1 % / < 0.1 % at 95 %, all clean and looked at after each | 339 / 3,402 |
//! | to claim < 1 % / < 0.1 % / < 0.01 % at 95 %, all clean | 299 / 2,995 / 29,956 |

use super::compare::at_most;
use super::interval::{Confidence, Tally};
use super::sequential::{Decision, Sequential};

/// Answers beyond this are no plan: at a thousand runs a second it is a month.
pub const RUNS_MAX: u64 = 2_000_000_000;

/// Clean runs that claim a rate below `limit`: the smallest n with 1 − α^(1/n) < limit.
/// Nothing for limits that are no rates, or that would take more than [`RUNS_MAX`].
#[must_use]
pub fn clean_runs(limit: f64, confidence: Confidence) -> Option<u64> {
    first(|n| Tally::new(0, n).upper(confidence) < limit, limit)
}

/// Runs that claim it with so many hits among them.
#[must_use]
pub fn runs_with(hits: u64, limit: f64, confidence: Confidence) -> Option<u64> {
    first(
        |n| n > hits && Tally::new(hits, n).upper(confidence) < limit,
        limit,
    )
}

/// Clean runs that claim a rate below `limit` to somebody who looks after each of them and may
/// stop at any.
#[must_use]
pub fn watched_runs(limit: f64, confidence: Confidence) -> Option<u64> {
    let watch = Sequential::new(confidence);
    first(
        |n| watch.decide(Tally::new(0, n), limit) == Decision::Below,
        limit,
    )
}

/// Runs after which the upper bound falls below `limit` if hits go on coming at `rate`.
#[must_use]
pub fn runs_if(rate: f64, limit: f64, confidence: Confidence) -> Option<u64> {
    if rate >= limit {
        return None;
    }
    first(
        |n| Tally::new(expected(rate, n), n).upper(confidence) < limit,
        limit,
    )
}

/// Runs that make the upper bound fall below `limit` with the chance `power`, when the true rate
/// is `rate`. Exact, by the binomial distribution.
#[must_use]
pub fn runs_for(rate: f64, limit: f64, power: f64, confidence: Confidence) -> Option<u64> {
    if rate >= limit {
        return None;
    }
    first(
        |n| {
            hits_allowed(n, limit, confidence)
                .is_some_and(|allowed| at_most(allowed, n, rate) >= power)
        },
        limit,
    )
}

/// The most hits among `n` runs that still claim a rate below `limit`.
#[must_use]
pub fn hits_allowed(runs: u64, limit: f64, confidence: Confidence) -> Option<u64> {
    let passes = |hits: u64| Tally::new(hits, runs).upper(confidence) < limit;
    if runs == 0 || !passes(0) {
        return None;
    }
    let (mut yes, mut no) = (0, runs);
    while no - yes > 1 {
        let middle = u64::midpoint(yes, no);
        if passes(middle) {
            yes = middle;
        } else {
            no = middle;
        }
    }
    Some(yes)
}

/// Hits that come to be expected, at the rate seen so far.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate below 1 times runs stays below runs"
)]
fn expected(rate: f64, runs: u64) -> u64 {
    ((rate * runs as f64).round().max(0.0) as u64).min(runs)
}

/// The smallest number of runs from which on a condition holds, found by doubling and halving.
///
/// Conditions on whole hits wobble by a few runs around the crossing; what is returned satisfies
/// the condition, and is the smallest that does up to that wobble.
fn first(holds: impl Fn(u64) -> bool, limit: f64) -> Option<u64> {
    if !(limit > 0.0 && limit < 1.0) {
        return None;
    }
    let mut high = 1_u64;
    while !holds(high) {
        high = high.checked_mul(2).filter(|&n| n <= RUNS_MAX)?;
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}
