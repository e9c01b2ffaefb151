//! The incomplete beta function in logarithms, and what is found by halving.
//!
//! Why not a library's: campaigns reach a million runs, where a continued fraction that gives up
//! after some hundred terms is wrong in the middle, and test martingales need the logarithm of
//! probabilities far below the smallest float. The tests hold it against statrs where both work.

use statrs::function::beta::ln_beta;

/// ln I_x(a, b): the logarithm of the regularised incomplete beta function.
///
/// For whole numbers this is a binomial tail: P(X ≥ k) = I_p(k, n − k + 1).
pub(super) fn ln_beta_reg(a: f64, b: f64, x: f64) -> f64 {
    debug_assert!(a > 0.0 && b > 0.0, "the shape of a beta is positive");
    if x <= 0.0 {
        return f64::NEG_INFINITY;
    }
    if x >= 1.0 {
        return 0.0;
    }
    // The fraction converges fast below the mean; above it, its mirror image does.
    if x <= (a + 1.0) / (a + b + 2.0) {
        below(a, b, x, (-x).ln_1p())
    } else {
        // 1 - x is exact enough only because x is not close to 0 here.
        let mirrored = below(b, a, 1.0 - x, x.ln());
        ln_1m_exp(mirrored)
    }
}

/// The fraction itself, times its leading term. `ln_1m_x` is ln(1 − x), given by whoever has it
/// without cancellation.
fn below(a: f64, b: f64, x: f64, ln_1m_x: f64) -> f64 {
    a * x.ln() + b * ln_1m_x - a.ln() - ln_beta(a, b) + fraction(a, b, x).ln()
}

/// Continued fraction of the incomplete beta function (DLMF 8.17.22), by the modified Lentz method.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    // Terms needed grow with the square root of the larger shape: 100,000 would serve 10^9 runs.
    const TERMS_MAX: u32 = 100_000;
    const TINY: f64 = 1e-300;
    let away_from_zero = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away_from_zero(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..=TERMS_MAX {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away_from_zero(1.0 + term * d);
            c = away_from_zero(1.0 + term / c);
            change = c * d;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// ln(1 − e^v) for v ≤ 0, without cancellation (Mächler 2012).
pub(super) fn ln_1m_exp(v: f64) -> f64 {
    if v > -std::f64::consts::LN_2 {
        (-v.exp_m1()).ln()
    } else {
        (-v.exp()).ln_1p()
    }
}

/// Where a function that rises over `low..high` crosses zero, to the last bit that matters.
pub(super) fn crossing(mut low: f64, mut high: f64, rises: impl Fn(f64) -> f64) -> f64 {
    // Rates of one in a billion are halved towards on a logarithmic scale, or the first forty
    // steps would go into leading zeros.
    for _ in 0..200 {
        let middle = if low > 0.0 && high / low > 4.0 {
            (low * high).sqrt()
        } else if low == 0.0 && high > 1e-12 {
            high / 16.0
        } else {
            f64::midpoint(low, high)
        };
        if middle <= low || middle >= high {
            break;
        }
        if rises(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}
