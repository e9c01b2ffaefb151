//! Pictures, drawn by hand: each is one inline element with a label that says what it shows.
//!
//! Nothing from a campaign but numbers gets in here, so there is nothing to escape.
//!
//! Not covered: anything that moves or answers to a pointer: pages work without scripts.

use std::fmt::Write as _;

use steadfast_contract::outcome::Outcome;

use crate::compare::Pair;
use crate::format::{percent, rate, time};
use crate::report::{Cell, Latency, Rate, SHOWN};

/// A rate as a dot with its interval, on a scale from 0 to `most`.
pub(super) fn whisker(value: &Rate, most: f64) -> String {
    let Some(estimate) = value.rate.filter(|_| most > 0.0) else {
        return String::new();
    };
    let x = |rate: f64| 4.0 + 192.0 * (rate / most).min(1.0);
    format!(
        "<svg class=\"whisker\" viewBox=\"0 0 200 16\" role=\"img\" aria-label=\"{}\">\
         <line x1=\"4\" y1=\"8\" x2=\"196\" y2=\"8\" class=\"axis\"/>\
         <line x1=\"{:.1}\" y1=\"8\" x2=\"{:.1}\" y2=\"8\" class=\"reach\"/>\
         <circle cx=\"{:.1}\" cy=\"8\" r=\"4\" class=\"dot\"/></svg>",
        rate(value),
        x(value.low),
        x(value.high),
        x(estimate)
    )
}

/// The ratio of two programs with its interval, on a logarithmic scale around 1.
pub(super) fn ratio(pair: &Pair) -> String {
    // A thousandth to a thousandfold: beyond that the ends are arrows.
    const DECADES: f64 = 3.0;
    let x = |ratio: f64| {
        let decades = ratio.max(1e-12).log10().clamp(-DECADES, DECADES);
        100.0 + decades / DECADES * 92.0
    };
    let Some(low_high) = pair
        .ratio_high
        .or(pair.ratio_upper95)
        .map(|high| (pair.ratio_low, high))
    else {
        return String::new();
    };
    let mut svg = format!(
        "<svg class=\"whisker\" viewBox=\"0 0 200 16\" role=\"img\" aria-label=\"{} times\">\
         <line x1=\"4\" y1=\"8\" x2=\"196\" y2=\"8\" class=\"axis\"/>\
         <line x1=\"100\" y1=\"1\" x2=\"100\" y2=\"15\" class=\"one\"/>\
         <line x1=\"{:.1}\" y1=\"8\" x2=\"{:.1}\" y2=\"8\" class=\"reach\"/>",
        pair.ratio_text(),
        x(low_high.0),
        x(low_high.1)
    );
    if let Some(ratio) = pair.ratio.filter(|ratio| *ratio > 0.0) {
        let _ = write!(
            svg,
            "<circle cx=\"{:.1}\" cy=\"8\" r=\"4\" class=\"dot\"/>",
            x(ratio)
        );
    }
    svg + "</svg>"
}

/// Shares of outcomes by bit: one row for each outcome that occurs, one column for each bit.
pub(super) fn bits(cells: &[Cell]) -> String {
    let numbered: Vec<(u32, &Cell)> = cells
        .iter()
        .filter_map(|cell| Some((cell.key.parse().ok()?, cell)))
        .collect();
    let Some(last) = numbered.iter().map(|(bit, _)| *bit).max() else {
        return String::new();
    };
    // Lanes of vectors fold: eight rows of 64 say more than one line of 512.
    let columns = (last + 1).clamp(8, 64);
    let folded = last >= 64;
    let mut sums: Vec<(u64, [u64; SHOWN.len()])> = vec![(0, [0; SHOWN.len()]); columns as usize];
    for (bit, cell) in &numbered {
        let (valid, counts) = &mut sums[(bit % columns) as usize];
        *valid += cell.counts.valid;
        for (sum, outcome) in counts.iter_mut().zip(SHOWN) {
            *sum += cell.counts.of(outcome);
        }
    }
    let rows: Vec<(usize, Outcome, f64)> = SHOWN
        .into_iter()
        .enumerate()
        .rev()
        .filter_map(|(i, outcome)| {
            let most = sums
                .iter()
                .map(|(valid, counts)| share(counts[i], *valid))
                .fold(0.0, f64::max);
            (most > 0.0).then_some((i, outcome, most))
        })
        .collect();
    const WIDTH: f64 = 640.0;
    let left = 72.0;
    let cell = (WIDTH - left - 76.0) / f64::from(columns);
    let height = 22.0 * rows.len() as f64 + 22.0;
    let mut svg = format!(
        "<svg class=\"bits\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Share of outcomes by bit, from bit 0 on the left{}; the numbers are in the table below.\">",
        if folded {
            ", bits of vectors modulo 64"
        } else {
            ""
        }
    );
    for (row, (i, outcome, most)) in rows.iter().enumerate() {
        let y = 22.0 * row as f64;
        let _ = write!(svg, "<text x=\"0\" y=\"{:.0}\">{outcome}</text>", y + 14.0);
        for (column, (valid, counts)) in sums.iter().enumerate() {
            let value = share(counts[*i], *valid);
            let _ = write!(
                svg,
                "<rect x=\"{:.2}\" y=\"{y:.0}\" width=\"{:.2}\" height=\"19\" class=\"{outcome}\" fill-opacity=\"{:.3}\"><title>bit {column}: {} {outcome}</title></rect>",
                left + cell * column as f64,
                (cell - 0.7).max(0.8),
                // Even the palest cell is seen to be one.
                0.05 + 0.95 * value / most,
                percent(value)
            );
        }
        let _ = write!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\">≤ {}</text>",
            WIDTH - 70.0,
            y + 14.0,
            percent(*most)
        );
    }
    for bit in (0..columns).filter(|bit| bit % 8 == 0 || *bit + 1 == columns) {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.0}\" class=\"tick\">{bit}</text>",
            left + cell * (f64::from(bit) + 0.5),
            height - 6.0
        );
    }
    svg + "</svg>"
}

fn share(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

/// How many alarms had come by when, on a logarithmic time axis.
pub(super) fn curve(latency: &Latency) -> String {
    let (left, right, top, bottom) = (44.0, 612.0, 12.0, 196.0);
    let decade = |ns: f64| ns.max(1.0).log10();
    let first = latency
        .curve
        .first()
        .map_or(0.0, |point| decade(point.0))
        .floor();
    let last = decade(latency.max_ns).ceil().max(first + 1.0);
    let x = |ns: f64| left + (right - left) * (decade(ns) - first) / (last - first);
    let y = |share: f64| bottom - (bottom - top) * share;
    let mut svg = format!(
        "<svg class=\"curve\" viewBox=\"0 0 640 224\" role=\"img\" aria-label=\"Share of {} alarms by time since the fault: half within {}, 99 % within {}, all within {}\">",
        latency.count,
        time(latency.p50_ns),
        time(latency.p99_ns),
        time(latency.max_ns)
    );
    for quarter in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let _ = write!(
            svg,
            "<line x1=\"{left}\" y1=\"{0:.1}\" x2=\"{right}\" y2=\"{0:.1}\" class=\"grid\"/><text x=\"{1}\" y=\"{2:.1}\" class=\"end\">{3} %</text>",
            y(quarter),
            left - 6.0,
            y(quarter) + 4.0,
            100.0 * quarter
        );
    }
    let mut tick = first;
    while tick <= last {
        let ns = 10_f64.powf(tick);
        let _ = write!(
            svg,
            "<line x1=\"{0:.1}\" y1=\"{top}\" x2=\"{0:.1}\" y2=\"{bottom}\" class=\"grid\"/><text x=\"{0:.1}\" y=\"216\" class=\"tick\">{1}</text>",
            x(ns),
            time(ns).replace(".0 ", " ")
        );
        tick += 1.0;
    }
    let mut path = String::new();
    let mut before = 0.0;
    for (ns, share) in &latency.curve {
        let start = if path.is_empty() { "M" } else { "L" };
        let _ = write!(
            path,
            "{start}{0:.1} {1:.1}L{0:.1} {2:.1}",
            x(*ns),
            y(before),
            y(*share)
        );
        before = *share;
    }
    let _ = write!(svg, "<path d=\"{path}\" class=\"line\"/>");
    let _ = write!(
        svg,
        "<line x1=\"{0:.1}\" y1=\"{1:.1}\" x2=\"{0:.1}\" y2=\"{bottom}\" class=\"median\"/>",
        x(latency.p50_ns),
        y(0.5)
    );
    svg + "</svg>"
}
