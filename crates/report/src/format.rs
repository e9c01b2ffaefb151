//! Numbers for people: one way to write each kind, on every page.
//!
//! Three digits that mean something, never more than the data carry; a zero always with what it is
//! below.
//!
//! Not covered: other languages' marks for thousands and decimals.

use crate::report::{Extent, Rate};

/// `12,345`.
#[must_use]
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `9.66 %`, `0.0374 %`, `100 %`.
#[must_use]
pub fn percent(rate: f64) -> String {
    format!("{} %", percent_digits(rate))
}

fn percent_digits(rate: f64) -> String {
    let percent = 100.0 * rate;
    if percent == 0.0 {
        return "0".to_owned();
    }
    // A weighted sum of ones may miss 1 by its last bits.
    if rate > 1.0 - 1e-12 {
        return "100".to_owned();
    }
    // A rate next to 1 must not be rounded to it: what is missing is what matters there.
    if rate < 1.0 && rate > 0.999 {
        let digits = digits_after_point(100.0 - percent).min(10);
        return format!("{percent:.digits$}");
    }
    let digits = digits_after_point(percent).min(10);
    format!("{percent:.digits$}")
}

/// As many as make three digits that count, and never more than ten.
fn digits_after_point(value: f64) -> usize {
    let mut reach = value.abs();
    let mut digits = 0;
    // 99.95 is written 100.0 with one digit: it has its three without any.
    while reach < 99.95 && digits < 10 {
        reach *= 10.0;
        digits += 1;
    }
    digits
}

/// `9.66 % (8.91 to 10.5)`, `0 (< 0.0374 %)`, or a dash before the first run.
#[must_use]
pub fn rate(rate: &Rate) -> String {
    match rate.rate {
        None => "–".to_owned(),
        Some(_) if rate.hits == 0 => format!("0 (< {})", percent(rate.upper95)),
        Some(value) => format!("{} ({})", percent(value), between(rate)),
    }
}

/// `8.91 to 10.5`.
#[must_use]
pub fn between(rate: &Rate) -> String {
    format!(
        "{} to {}",
        percent_digits(rate.low),
        percent_digits(rate.high)
    )
}

/// `1,234`, `45.1M` or `1.20e-4`: failures that were extrapolated, executions.
#[must_use]
pub fn quantity(value: f64) -> String {
    if !value.is_finite() {
        return "∞".to_owned();
    }
    let size = value.abs();
    for (unit, suffix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        // Up to a hundred thousand a number is still read as one.
        if size >= unit * 0.9995 && size >= 99_999.5 {
            let value = value / unit;
            if value.abs() >= 1e5 {
                return format!("{:.2e}", value * unit);
            }
            return format!("{value:.*}{suffix}", digits_after_point(value));
        }
    }
    if size >= 999.5 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between a thousand and a hundred thousand"
        )]
        let whole = size.round() as u64;
        return format!("{}{}", if value < 0.0 { "-" } else { "" }, count(whole));
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    if size < 0.001 {
        return format!("{value:.2e}");
    }
    format!("{value:.*}", digits_after_point(value).min(6))
}

/// `4.52M (4.21M to 4.84M)`, `0 (< 120)`, or a dash.
#[must_use]
pub fn extent(extent: &Extent) -> String {
    match extent.failures {
        None => "–".to_owned(),
        Some(0.0) => format!("0 (< {})", quantity(extent.upper95)),
        Some(value) => format!(
            "{} ({} to {})",
            quantity(value),
            quantity(extent.low),
            quantity(extent.high)
        ),
    }
}

/// `812 µs`, `1.3 s`.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = if ns >= 1e9 {
        (ns / 1e9, "s")
    } else if ns >= 1e6 {
        (ns / 1e6, "ms")
    } else if ns >= 1e3 {
        (ns / 1e3, "µs")
    } else {
        (ns, "ns")
    };
    let digits = if value >= 99.95 || unit == "ns" {
        0
    } else {
        digits_after_point(value).min(1)
    };
    format!("{value:.digits$} {unit}")
}

/// `2026-03-01 12:00 UTC`, from milliseconds since 1970.
#[must_use]
pub fn date(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    let (days, minute) = (minutes / 1_440, minutes % 1_440);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02} UTC",
        minute / 60,
        minute % 60
    )
}

/// Days since 1970 to a date of the Gregorian calendar.
fn civil(mut days: u64) -> (u64, usize, u64) {
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    for (month, length) in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
        .into_iter()
        .enumerate()
    {
        if days < length {
            return (year, month + 1, days + 1);
        }
        days -= length;
    }
    unreachable!("a year has as many days as its months")
}

/// A symbol as its source has it, without the hash of Rust's; as it is, where no compiler has mangled it.
///
/// Faults name symbols as they are.
#[must_use]
pub fn readable(symbol: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(symbol) {
        return format!("{rust:#}");
    }
    let cxx = cpp_demangle::Symbol::new(symbol)
        .ok()
        .and_then(|cxx| cxx.demangle(&cpp_demangle::DemangleOptions::new()).ok());
    cxx.unwrap_or_else(|| symbol.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_shown_as_their_source_has_them() {
        for (symbol, text) in [
            ("deflate", "deflate"),
            ("(no symbol)", "(no symbol)"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            (
                "_ZN4core5slice4sort6stable9quicksort9quicksort17h5a75a622aec75bd0E",
                "core::slice::sort::stable::quicksort::quicksort",
            ),
        ] {
            assert_eq!(readable(symbol), text);
        }
    }

    #[test]
    fn numbers_are_written_as_promised() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        for (value, text) in [
            (0.0, "0 %"),
            (1.0, "100 %"),
            (1.0 - 1e-15, "100 %"),
            (0.4418, "44.2 %"),
            (0.0966, "9.66 %"),
            (0.00375, "0.375 %"),
            (0.000_374, "0.0374 %"),
            (0.000_000_94, "0.0000940 %"),
            (0.999_95, "99.99500 %"),
        ] {
            assert_eq!(percent(value), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.500"),
            (3.0, "3.00"),
            (42.0, "42.0"),
            (1_234.0, "1,234"),
            (99_999.0, "99,999"),
            (100_000.0, "100k"),
            (999_700.0, "1.00M"),
            (4_520_000.0, "4.52M"),
            (-45_100_000.0, "-45.1M"),
            (7e15, "7000T"),
            (7e18, "7.00e18"),
            (0.000_12, "1.20e-4"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(quantity(value), text);
        }
        for (ns, text) in [
            (9.0, "9 ns"),
            (812_000.0, "812 µs"),
            (1_300_000.0, "1.3 ms"),
            (2.5e9, "2.5 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_782_400, "2000-02-29 00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59 UTC"),
            (4_102_444_800, "2100-01-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000), text);
        }
    }
}
