//! Rates with their intervals.

/// Normal quantile for 95 %, two-sided.
const Z: f64 = 1.959_964;

/// Wilson's score interval for `k` of `n`.
pub(crate) fn wilson(k: u64, n: u64) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of runs are far below 2^52"
    )]
    let (k, n) = (k as f64, n as f64);
    let p = k / n;
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (
        ((middle - half) / scale).max(0.0),
        ((middle + half) / scale).min(1.0),
    )
}

/// What a rate is below with 95 % confidence when `n` runs showed none: 1 - 0.05^(1/n).
pub(crate) fn zero_upper(n: u64) -> f64 {
    if n == 0 {
        return 1.0;
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "counts of runs are far below 2^52"
    )]
    let n = n as f64;
    1.0 - 0.05_f64.powf(1.0 / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_of_2995_is_below_a_thousandth() {
        assert!(zero_upper(2_995) < 0.001 && zero_upper(2_990) > 0.001);
    }

    #[test]
    fn wilson_as_in_the_textbook() {
        // 10 of 100: 5.5 % to 17.4 % (Newcombe 1998, method 3).
        let (low, high) = wilson(10, 100);
        assert!(
            (low - 0.0552).abs() < 0.0002 && (high - 0.1744).abs() < 0.0002,
            "{low} {high}"
        );
    }
}
