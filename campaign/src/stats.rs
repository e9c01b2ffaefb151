//! Rates with their intervals, from the library that all reports use.

use steadfast_report::stats::{Confidence, Tally};

/// Wilson's score interval for `k` of `n`, 95 %.
pub(crate) fn wilson(k: u64, n: u64) -> (f64, f64) {
    let interval = Tally::new(k, n).wilson(Confidence::P95);
    (interval.low, interval.high)
}

/// What a rate is below with 95 % confidence when `n` runs showed none.
pub(crate) fn zero_upper(n: u64) -> f64 {
    Tally::new(0, n).upper(Confidence::P95)
}
