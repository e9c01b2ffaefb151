//! Rates over groups that were drawn with unequal chances.
//!
//! Group h makes up the share W_h of the population and got n_h of the runs. The estimate is
//! Σ W_h k_h / n_h (Horvitz and Thompson 1952), whatever the allocation was; counting all runs
//! alike would answer a question about the plan, not about the program.
//!
//! Two intervals, as for one rate:
//!  * shown: the score limits of the groups combined by their distances from the estimates
//!    (Zou, Huang and Zhang 2009). One group alone gives Wilson's interval.
//!  * decided on: [`Shares::upper`] and [`Shares::lower`], which hold at any size:
//!    Σ W_h p_h = Σ (W_h/n_h)·(n_h p_h) ≤ max(W_h/n_h) · Σ n_h p_h, and the sum on the right
//!    belongs to a tally of all these runs together, whose Clopper–Pearson bound also holds when
//!    runs have different chances (Hoeffding 1956, theorem 5, for bounds that are not within one
//!    run of certainty). With proportional allocation all W_h/n_h are equal and nothing is lost.
//!    Otherwise there are two bounds, all runs together with the heaviest weight, and groups of
//!    similar weight each with their own, and the better one is taken. The first is sharp when
//!    little was seen, the second when a light group saw most. Both hold together because they
//!    share α: four fifths for the first, which is the one that gates on rare events live on.

use super::interval::{Confidence, Interval, Tally};
use super::sequential::Sequential;

/// One group: its share of the population, and what its runs gave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// Its weight; the shares are these over their sum.
    pub weight: f64,
    /// Its runs.
    pub tally: Tally,
}

/// All groups of a population.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares(Vec<Share>);

impl Shares {
    /// Groups with positive weight; the others are no part of the population. Nothing if none is
    /// left, or a weight is not a number.
    #[must_use]
    pub fn new(shares: impl IntoIterator<Item = Share>) -> Option<Self> {
        let mut kept: Vec<Share> = Vec::new();
        for share in shares {
            if !share.weight.is_finite() || share.weight < 0.0 {
                return None;
            }
            if share.weight > 0.0 {
                kept.push(share);
            }
        }
        let sum: f64 = kept.iter().map(|s| s.weight).sum();
        for share in &mut kept {
            share.weight /= sum;
        }
        (!kept.is_empty()).then_some(Self(kept))
    }

    /// One group: the simple case.
    #[must_use]
    pub fn single(tally: Tally) -> Self {
        Self(vec![Share { weight: 1.0, tally }])
    }

    /// All runs as if they were alike.
    #[must_use]
    pub fn pooled(&self) -> Tally {
        self.0
            .iter()
            .fold(Tally::default(), |sum, s| sum.and(s.tally))
    }

    /// The weighted rate; nothing while a group has no runs.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        self.0
            .iter()
            .map(|s| s.tally.rate().map(|rate| s.weight * rate))
            .sum()
    }

    /// The interval that is shown.
    #[must_use]
    pub fn interval(&self, confidence: Confidence) -> Interval {
        let Some(rate) = self.rate() else {
            return Interval::UNKNOWN;
        };
        let (mut below, mut above) = (0.0, 0.0);
        for s in &self.0 {
            let wilson = s.tally.wilson(confidence);
            let one = s.tally.rate().unwrap_or(0.0);
            below += (s.weight * (one - wilson.low)).powi(2);
            above += (s.weight * (wilson.high - one)).powi(2);
        }
        Interval {
            low: (rate - below.sqrt()).max(0.0),
            high: (rate + above.sqrt()).min(1.0),
        }
    }

    /// The weighted rate is below this with at least this confidence, one-sided.
    #[must_use]
    pub fn upper(&self, confidence: Confidence) -> f64 {
        self.bound(confidence, Tally::upper, Side::Upper)
    }

    /// The weighted rate is above this with at least this confidence, one-sided.
    #[must_use]
    pub fn lower(&self, confidence: Confidence) -> f64 {
        self.bound(confidence, Tally::lower, Side::Lower)
    }

    /// As [`Shares::upper`], and however often one looks. Nothing is lost by looking, provided
    /// that the groups grow in step.
    #[must_use]
    pub fn upper_any_time(&self, confidence: Confidence) -> f64 {
        let any_time = |tally, confidence| Sequential::new(confidence).upper(tally);
        self.bound(confidence, any_time, Side::Upper)
    }

    /// As [`Shares::lower`], and however often one looks.
    #[must_use]
    pub fn lower_any_time(&self, confidence: Confidence) -> f64 {
        let any_time = |tally, confidence| Sequential::new(confidence).lower(tally);
        self.bound(confidence, any_time, Side::Lower)
    }

    fn bound(
        &self,
        confidence: Confidence,
        of: impl Fn(Tally, Confidence) -> f64,
        side: Side,
    ) -> f64 {
        // How much of α the first of two bounds gets.
        const TOGETHER: f64 = 0.8;
        let groups = self.merged();
        let Some(together) = groups.iter().copied().reduce(Merged::with) else {
            return Interval::UNKNOWN.high;
        };
        if groups.len() == 1 {
            return together.bound(confidence, &of, side);
        }
        let one = together.bound(confidence.portion(TOGETHER), &of, side);
        let each = confidence.portion((1.0 - TOGETHER) / groups.len() as f64);
        let apart: f64 = groups.iter().map(|g| g.bound(each, &of, side)).sum();
        match side {
            Side::Upper => one.min(apart),
            Side::Lower => one.max(apart),
        }
    }

    /// Groups of similar weight per run, taken together. A function of weights and numbers of
    /// runs alone.
    fn merged(&self) -> Vec<Merged> {
        // What a bound may lose by treating a run as if it weighed as much as the heaviest of its
        // group. Proportional allocation rounds to whole runs and stays within it from four runs
        // a group on.
        const SPREAD_MAX: f64 = 1.25;
        let mut sorted: Vec<Merged> = self.0.iter().map(Merged::from).collect();
        sorted.sort_by(|a, b| a.per_run_max.total_cmp(&b.per_run_max));
        let mut groups: Vec<Merged> = Vec::new();
        for next in sorted {
            match groups.last_mut() {
                Some(last) if next.per_run_max <= SPREAD_MAX * last.per_run_min => {
                    *last = last.with(next);
                }
                _ => groups.push(next),
            }
        }
        groups
    }
}

#[derive(Clone, Copy)]
enum Side {
    Upper,
    Lower,
}

/// Shares taken together.
#[derive(Debug, Clone, Copy)]
struct Merged {
    weight: f64,
    per_run_min: f64,
    per_run_max: f64,
    tally: Tally,
}

impl Merged {
    fn with(self, other: Self) -> Self {
        Self {
            weight: self.weight + other.weight,
            per_run_min: self.per_run_min.min(other.per_run_min),
            per_run_max: self.per_run_max.max(other.per_run_max),
            tally: self.tally.and(other.tally),
        }
    }

    /// A bound of what these groups contribute to the whole.
    fn bound(
        &self,
        confidence: Confidence,
        of: impl Fn(Tally, Confidence) -> f64,
        side: Side,
    ) -> f64 {
        if self.tally.runs == 0 {
            // No run says nothing: all of it may have failed, or none.
            return match side {
                Side::Upper => self.weight,
                Side::Lower => 0.0,
            };
        }
        let per_run = match side {
            Side::Upper => self.per_run_max,
            Side::Lower => self.per_run_min,
        };
        // A rate is at most 1, whatever the heaviest weight suggests.
        let runs = self.tally.runs as f64;
        (per_run * runs * of(self.tally, confidence)).min(self.weight)
    }
}

impl From<&Share> for Merged {
    fn from(share: &Share) -> Self {
        let per_run = share.weight / share.tally.runs as f64;
        Self {
            weight: share.weight,
            per_run_min: per_run,
            per_run_max: per_run,
            tally: share.tally,
        }
    }
}
