//! A promise's plot: how values grow with a count, on two logarithmic axes, published and of this machine.
//!
//! A series is a key of the promise's file; its points are the rows `KEY.N`, at N.
//!
//! Not covered: what is not positive, which has no place on such an axis; units, which the points of all series share.

use std::fmt::Write as _;

use steadfast_report::published::{File, Promise, Row};

const WIDTH: f64 = 620.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;

/// The points of one series in one file.
struct Series<'a> {
    key: &'a str,
    whose: &'a str,
    colour: &'a str,
    /// The count and its row, in order.
    points: Vec<(f64, &'a Row)>,
}

fn series<'a>(file: Option<&'a File>, key: &'a str, whose: &'a str, colour: &'a str) -> Series<'a> {
    let points = file.map(|file| file.points(key)).unwrap_or_default();
    let points = points.into_iter();
    let points = points
        .filter(|(count, row)| *count > 0 && row.value > 0.0)
        .map(|(count, row)| (f64::from(count), row))
        .collect();
    Series {
        key,
        whose,
        colour,
        points,
    }
}

/// The whole decades around values, as exponents. None without values.
fn decades(values: impl Iterator<Item = f64>) -> Option<(i32, i32)> {
    let ends = values.map(f64::log10).fold(None, |ends, at| {
        let (low, high) = ends.unwrap_or((at, at));
        Some((at.min(low), at.max(high)))
    });
    let (low, high) = ends?;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a logarithm of a finite number"
    )]
    let (low, high) = (low.floor() as i32, high.ceil() as i32);
    Some((low, high.max(low + 1)))
}

/// 10, 100, 1,000: what stands at an axis.
fn decade(exponent: i32) -> String {
    match exponent {
        ..0 => format!("{}", 10_f64.powi(exponent)),
        0..=3 => format!("{}", 10_u64.pow(exponent.unsigned_abs())),
        _ => format!("10<tspan dy=-4 font-size=9>{exponent}</tspan><tspan dy=4></tspan>"),
    }
}

/// The plot of a promise that names one, empty otherwise. `of` gives a file of published values, and one of today's.
pub(crate) fn svg<'a>(
    promise: &'a Promise,
    of: [(&'a str, &'a str, Option<&'a File>); 2],
) -> String {
    let all: Vec<Series<'a>> = promise
        .plot
        .iter()
        .flat_map(|key| of.map(|(whose, colour, file)| series(file, key, whose, colour)))
        .filter(|series| !series.points.is_empty())
        .collect();
    let points = || all.iter().flat_map(|series| &series.points);
    let (Some((left, right)), Some((low, high))) = (
        decades(points().map(|(count, _)| *count)),
        decades(points().flat_map(|(_, row)| {
            [Some(row.value), row.low, row.high]
                .into_iter()
                .flatten()
                .filter(|value| *value > 0.0)
        })),
    ) else {
        return String::new();
    };
    let x = |count: f64| {
        let share = (count.log10() - f64::from(left)) / f64::from(right - left);
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |value: f64| {
        let share = (value.log10() - f64::from(low)) / f64::from(high - low);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    };
    let unit = points().next().map_or("", |(_, row)| &*row.unit);
    let mut out = format!(
        "<svg width={WIDTH} height={HEIGHT} role=img font-size=12 fill=currentColor aria-label='{}; the values are in results/'>",
        escape(&promise.what)
    );
    for exponent in left..=right {
        let at = x(10_f64.powi(exponent));
        let _ = write!(
            out,
            "<path d='M{at:.1} {TOP}V{:.1}' stroke=currentColor opacity=.15 /><text x={at:.1} y={:.1} text-anchor=middle>{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - 6.0,
            decade(exponent)
        );
    }
    for exponent in low..=high {
        let at = y(10_f64.powi(exponent));
        let _ = write!(
            out,
            "<path d='M{LEFT} {at:.1}H{:.1}' stroke=currentColor opacity=.15 /><text x={:.1} y={:.1} text-anchor=end>{} {}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            decade(exponent),
            escape(unit)
        );
    }
    let mut taken = Vec::new();
    for series in &all {
        let colour = series.colour;
        let path: Vec<String> = series
            .points
            .iter()
            .map(|(count, row)| format!("{:.1} {:.1}", x(*count), y(row.value)))
            .collect();
        let _ = write!(
            out,
            "<path d='M{}' fill=none stroke='{colour}' stroke-width=2 />",
            path.join("L")
        );
        for (count, row) in &series.points {
            let (at, value) = (x(*count), y(row.value));
            if let (Some(from), Some(to)) = (row.low.filter(|low| *low > 0.0), row.high) {
                let _ = write!(
                    out,
                    "<path d='M{at:.1} {:.1}V{:.1}' stroke='{colour}' />",
                    y(from),
                    y(to)
                );
            }
            let _ = write!(
                out,
                "<circle cx={at:.1} cy={value:.1} r=3.5 fill='{colour}'><title>{}</title></circle>",
                escape(&row.text())
            );
        }
        if let Some((count, row)) = series.points.last() {
            // Series that end at one place are named one below the other.
            let mut at = y(row.value) + 4.0;
            while taken.iter().any(|other: &f64| (at - other).abs() < 13.0) {
                at -= 13.0;
            }
            taken.push(at);
            let _ = write!(
                out,
                "<text x={:.1} y={at:.1} fill='{colour}'>{}, {}</text>",
                x(*count) + 8.0,
                escape(series.key.rsplit('.').next().unwrap_or(series.key)),
                series.whose
            );
        }
    }
    out + "</svg>"
}

/// Text for a page.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_report::published::{Run, SCHEMA};

    fn file(rows: &[(&str, f64)]) -> File {
        let rows = rows.iter().map(|(key, value)| Row {
            key: (*key).into(),
            what: "a value".into(),
            value: *value,
            unit: "µs".into(),
            ..Row::default()
        });
        let run = Run {
            date: "2026-01-01".into(),
            commit: "0".into(),
            machine: "one".into(),
            load: "none".into(),
            command: "bench".into(),
            rows: rows.collect(),
            ..Run::default()
        };
        File {
            schema: SCHEMA,
            about: "a test".into(),
            runs: vec![run],
        }
    }

    fn promise(plot: &[&str]) -> Promise {
        let plot: Vec<String> = plot.iter().map(|key| format!("'{key}'")).collect();
        toml::from_str(&format!(
            "id = 1\npart = 'host'\nwhat = 'what grows'\ncommand = ''\nplot = [{}]",
            plot.join(",")
        ))
        .expect("a promise")
    }

    #[test]
    fn a_series_is_a_line_through_its_points_in_the_order_of_their_counts() {
        let file = file(&[
            ("a.100", 100.0),
            ("a.10", 10.0),
            ("a", 1.0),
            ("a.b.10", 3.0),
            ("ab.10", 3.0),
        ]);
        let drawn = svg(
            &promise(&["a"]),
            [("published", "grey", Some(&file)), ("here", "blue", None)],
        );
        assert_eq!(drawn.matches("<circle").count(), 2, "{drawn}");
        // From the lower left corner to the upper right one.
        let line = format!(
            "M{LEFT:.1} {:.1}L{:.1} {TOP:.1}",
            HEIGHT - BOTTOM,
            WIDTH - RIGHT
        );
        assert!(drawn.contains(&line), "{line}: {drawn}");
        assert!(drawn.contains("a, published") && !drawn.contains("here"));
    }

    #[test]
    fn without_a_series_or_a_value_nothing_is_drawn() {
        let some = file(&[("a.10", 10.0), ("b.10", -1.0), ("c.0", 1.0)]);
        let of = || [("published", "grey", Some(&some)), ("here", "blue", None)];
        for plot in [&[][..], &["b"], &["c"], &["d"]] {
            assert_eq!(svg(&promise(plot), of()), "", "{plot:?}");
        }
        assert_ne!(svg(&promise(&["a"]), of()), "");
    }
}
