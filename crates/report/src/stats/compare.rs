//! Two programs, compared by what their users suffer.
//!
//! Shares of runs do not compare programs. A program that spends longer, or keeps more state, is
//! struck by more faults for the same work, and one that crashes more has fewer wrong answers per
//! fault and is no better. What compares is the number of failures that one unit of work would
//! meet if every place and moment of it were struck once: the fault space of that work times the
//! share of faults that fail (Schirmeier, Borchert and Spinczyk 2015). Padding a program with
//! instructions that do nothing doubles the space and halves the share; the product stays.
//!
//! ```text
//! failures per unit of work = fault space of a run / units of work in it × failures / injections
//! ```
//!
//! The fault space is counted, not sampled: its error is that of the count pass, which the
//! provenance of a campaign states. Replicas add their spaces up: three copies are struck three
//! times as often.
//!
//! Intervals: ratio and difference that are shown combine the two intervals by their distances
//! from the estimates (Newcombe 1998 for differences, Donner and Zou 2012 for ratios); the bounds
//! that gates use divide α over the two exact ones and hold at any size.

use super::interval::{Confidence, Interval};
use super::shares::Shares;
use super::special::ln_beta_reg;

/// One of two programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    failures: Shares,
    space_per_work: f64,
}

impl Arm {
    /// A program whose faults fail as in `failures`, with `space` places and moments per run that
    /// does `work` units. Nothing unless both are positive numbers.
    #[must_use]
    pub fn new(failures: Shares, space: f64, work: f64) -> Option<Self> {
        let space_per_work = space / work;
        (space > 0.0 && work > 0.0 && space_per_work.is_finite()).then_some(Self {
            failures,
            space_per_work,
        })
    }

    /// Failures if each place and moment of one unit of work were struck once.
    #[must_use]
    pub fn absolute(&self) -> Option<f64> {
        Some(self.failures.rate()? * self.space_per_work)
    }

    /// Its interval, to be shown.
    #[must_use]
    pub fn interval(&self, confidence: Confidence) -> Interval {
        self.failures
            .interval(confidence)
            .times(self.space_per_work)
    }

    fn upper(&self, confidence: Confidence) -> f64 {
        self.failures.upper(confidence) * self.space_per_work
    }

    fn lower(&self, confidence: Confidence) -> f64 {
        self.failures.lower(confidence) * self.space_per_work
    }
}

/// Failures of `b` over failures of `a`, per unit of work; nothing if `a` had none.
#[must_use]
pub fn ratio(a: &Arm, b: &Arm) -> Option<f64> {
    let (x, y) = (b.absolute()?, a.absolute()?);
    (y > 0.0).then_some(x / y)
}

/// The interval of the ratio, to be shown. Its upper end is infinite when `a` may have none.
#[must_use]
pub fn ratio_interval(a: &Arm, b: &Arm, confidence: Confidence) -> Interval {
    let unknown = Interval {
        low: 0.0,
        high: f64::INFINITY,
    };
    let (Some(p1), Some(p2)) = (b.absolute(), a.absolute()) else {
        return unknown;
    };
    let (one, two) = (b.interval(confidence), a.interval(confidence));
    // Donner and Zou (2012), with the ends of both intervals.
    let end = |l1: f64, u2: f64, sign: f64| {
        let under = u2 * (2.0 * p2 - u2);
        let inner = (p1 * p2).powi(2) - l1 * (2.0 * p1 - l1) * under;
        (p1 * p2 + sign * inner.max(0.0).sqrt()) / under
    };
    // The formula needs each end within twice the estimate; beyond that the end of the ratio is
    // bounded by the ends of the arms.
    let low = if two.high < 2.0 * p2 && p1 > 0.0 {
        end(one.low, two.high, -1.0)
    } else if two.high > 0.0 {
        one.low / two.high
    } else {
        0.0
    };
    let high = if two.low > 0.0 {
        end(one.high, two.low, 1.0)
    } else {
        f64::INFINITY
    };
    Interval {
        low: low.max(0.0),
        high,
    }
}

/// Failures of `b` over those of `a` are below this with at least this confidence, one-sided.
#[must_use]
pub fn ratio_upper(a: &Arm, b: &Arm, confidence: Confidence) -> f64 {
    let each = confidence.shared_by(2);
    let below = a.lower(each);
    if below > 0.0 {
        b.upper(each) / below
    } else {
        f64::INFINITY
    }
}

/// Failures of `b` over those of `a` are above this with at least this confidence, one-sided.
#[must_use]
pub fn ratio_lower(a: &Arm, b: &Arm, confidence: Confidence) -> f64 {
    let each = confidence.shared_by(2);
    b.lower(each) / a.upper(each)
}

/// Failures of `b` less those of `a`, with its interval, per unit of work.
#[must_use]
pub fn difference(a: &Arm, b: &Arm, confidence: Confidence) -> Option<(f64, Interval)> {
    let (p1, p2) = (b.absolute()?, a.absolute()?);
    let (one, two) = (b.interval(confidence), a.interval(confidence));
    let value = p1 - p2;
    Some((
        value,
        Interval {
            low: value - (p1 - one.low).hypot(two.high - p2),
            high: value + (one.high - p1).hypot(p2 - two.low),
        },
    ))
}

/// The chance that a binomial variable is at most `k`: for planning and tests.
#[must_use]
pub fn at_most(k: u64, runs: u64, p: f64) -> f64 {
    if k >= runs {
        return 1.0;
    }
    // P(X ≤ k) = 1 − I_p(k + 1, n − k) = I_{1−p}(n − k, k + 1).
    let (k, n) = (k as f64, runs as f64);
    ln_beta_reg(n - k, k + 1.0, 1.0 - p).exp()
}
