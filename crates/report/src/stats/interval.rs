//! One rate and how well it is known.
//!
//! Wilson's score interval is shown, Clopper and Pearson's decides: the first is close to its
//! nominal coverage on average over rates, the second never below it for any rate (Brown, Cai and
//! DasGupta 2001). One-sided bounds are what gates are made of; they are not the ends of the
//! two-sided interval of the same confidence.
//!
//! Not covered: runs that are not independent; shares have `shares.rs`.

use statrs::distribution::{ContinuousCDF, Normal};

use super::special::{crossing, ln_beta_reg};

/// How often a statement made this way is right.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Confidence(f64);

impl Confidence {
    /// What every report uses.
    pub const P95: Self = Self(0.95);

    /// A confidence strictly between 0 and 1.
    #[must_use]
    pub fn new(confidence: f64) -> Option<Self> {
        (confidence > 0.0 && confidence < 1.0).then_some(Self(confidence))
    }

    /// As a number between 0 and 1.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// How often it may be wrong.
    #[must_use]
    pub const fn alpha(self) -> f64 {
        1.0 - self.0
    }

    /// The confidence that each of `parts` statements needs so that all of them hold together
    /// with this one: the union bound.
    #[must_use]
    pub fn shared_by(self, parts: usize) -> Self {
        Self(1.0 - self.alpha() / parts.max(1) as f64)
    }

    /// The confidence of a statement that may be wrong with this part of the chance.
    #[must_use]
    pub fn portion(self, part: f64) -> Self {
        Self(1.0 - self.alpha() * part.clamp(0.0, 1.0))
    }

    /// The confidence of a one-sided bound that is one end of a two-sided interval of this one.
    #[must_use]
    pub fn one_end(self) -> Self {
        self.shared_by(2)
    }

    /// How many standard deviations a two-sided normal interval reaches.
    #[must_use]
    pub fn z(self) -> f64 {
        Normal::standard().inverse_cdf(1.0 - self.alpha() / 2.0)
    }
}

/// From low to high, both ends included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// What is known of a rate before any run.
    pub const UNKNOWN: Self = Self {
        low: 0.0,
        high: 1.0,
    };

    /// Whether a value lies within.
    #[must_use]
    pub fn contains(self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Both ends times a factor that is not negative.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            high: self.high * factor,
        }
    }
}

/// `hits` of `runs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Runs that ended the way in question.
    pub hits: u64,
    /// All runs.
    pub runs: u64,
}

impl Tally {
    /// `hits` of `runs`.
    ///
    /// # Panics
    /// If there are more hits than runs: the caller counted two different things.
    #[must_use]
    pub const fn new(hits: u64, runs: u64) -> Self {
        assert!(hits <= runs, "more hits than runs");
        Self { hits, runs }
    }

    /// Both as floating point: exact below 2^53.
    fn parts(self) -> (f64, f64) {
        (self.hits as f64, self.runs as f64)
    }

    /// The share of hits; nothing when there were no runs.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        let (k, n) = self.parts();
        (self.runs > 0).then(|| k / n)
    }

    /// The two together, for runs of the same kind.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self::new(self.hits + other.hits, self.runs + other.runs)
    }

    /// Wilson's score interval (1927; method 3 of Newcombe 1998), without continuity correction.
    #[must_use]
    pub fn wilson(self, confidence: Confidence) -> Interval {
        if self.runs == 0 {
            return Interval::UNKNOWN;
        }
        let (k, n) = self.parts();
        let z = confidence.z();
        let p = k / n;
        let middle = p + z * z / (2.0 * n);
        let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        Interval {
            // Rounding must not make a zero look like something that was seen.
            low: if self.hits == 0 {
                0.0
            } else {
                (middle - half) / scale
            },
            high: if self.hits == self.runs {
                1.0
            } else {
                (middle + half) / scale
            },
        }
    }

    /// The interval of Clopper and Pearson (1934): covers with at least this confidence.
    #[must_use]
    pub fn clopper_pearson(self, confidence: Confidence) -> Interval {
        let end = confidence.one_end();
        Interval {
            low: self.lower(end),
            high: self.upper(end),
        }
    }

    /// The rate is below this with at least this confidence, one-sided: the largest rate under
    /// which so few hits still have the chance α.
    #[must_use]
    pub fn upper(self, confidence: Confidence) -> f64 {
        if self.hits == self.runs {
            return 1.0;
        }
        let (k, n) = self.parts();
        if self.hits == 0 {
            // (1 − p)^n = α.
            return -(confidence.alpha().ln() / n).exp_m1();
        }
        // P(X > k) = I_p(k + 1, n − k) reaches 1 − α.
        let target = confidence.get().ln();
        crossing(k / n, 1.0, |p| ln_beta_reg(k + 1.0, n - k, p) - target)
    }

    /// The rate is above this with at least this confidence, one-sided.
    #[must_use]
    pub fn lower(self, confidence: Confidence) -> f64 {
        if self.hits == 0 {
            return 0.0;
        }
        let (k, n) = self.parts();
        if self.hits == self.runs {
            // p^n = α.
            return (confidence.alpha().ln() / n).exp();
        }
        // P(X ≥ k) = I_p(k, n − k + 1) reaches α.
        let target = confidence.alpha().ln();
        crossing(0.0, k / n, |p| ln_beta_reg(k, n - k + 1.0, p) - target)
    }
}
