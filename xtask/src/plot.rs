//! Cost against coverage: what hardened memcached needs more, and which share of the errors gets out, as one figure of the docs.
//!
//! Invariant: each point is made of published values. A build of which either is missing has no point.
//!
//! Not covered: choosing what is measured (`bench sei-servers --checks`, `bench sei-tables table2`).

use std::fmt::Write as _;

use steadfast_report::published::{Files, Row};
use steadfast_report::stats::{Confidence, Tally};

pub(crate) const COSTS: &str = "results/sei-servers.json";
pub(crate) const ERRORS: &str = "results/table2.json";

/// Builds of the figure: the keys of their errors and of their price, and their name in it.
const BUILDS: [(&str, Cost, &str); 8] = [
    ("mc", Cost::Nothing, "plain"),
    ("level", Cost::Less("level"), "--protect=sei"),
    (
        "without-inputs",
        Cost::Less("inputs"),
        "full without inputs",
    ),
    (
        "without-outputs",
        Cost::Less("outputs"),
        "full without outputs",
    ),
    (
        "without-places",
        Cost::Less("places"),
        "full without places",
    ),
    (
        "without-frames",
        Cost::Less("frames"),
        "full without frames",
    ),
    ("without-locks", Cost::Less("locks"), "full without locks"),
    ("sei", Cost::Whole, "--protect=full"),
];

#[derive(Clone, Copy)]
enum Cost {
    Nothing,
    /// What `--protect=full` costs.
    Whole,
    /// That, less the share of a request that this check takes.
    Less(&'static str),
}

/// One build, as it is drawn.
struct Point {
    name: &'static str,
    /// CPU time added to a request, percent of the plain build's.
    cost: f64,
    /// Errors that got out, and those that anybody could notice.
    errors: Tally,
}

pub(crate) fn find<'a>(files: &'a Files, file: &str, key: &str) -> Option<&'a Row> {
    Some(files.get(file)?.find(key)?.1)
}

fn cost(files: &Files, of: Cost) -> Option<f64> {
    let whole = || Some(find(files, COSTS, "mc1k.cpu")?.value);
    match of {
        Cost::Nothing => Some(0.0),
        Cost::Whole => whole(),
        Cost::Less(check) => {
            let price = find(files, COSTS, &format!("mc1k.price.{check}"))?.value;
            Some((100.0 + whole()?) * (1.0 - price / 100.0) - 100.0)
        }
    }
}

/// Of control flow, data flow and reads together.
fn errors(files: &Files, build: &str) -> Option<Tally> {
    let mut sum = (0, 0);
    for group in ["cf", "df", "rd"] {
        let row = find(files, ERRORS, &format!("{build}.{group}"))?;
        sum = (sum.0 + row.hits?, sum.1 + row.n?);
    }
    Some(Tally::new(sum.0, sum.1))
}

fn points(files: &Files) -> Vec<Point> {
    BUILDS
        .iter()
        .filter_map(|&(build, of, name)| {
            Some(Point {
                name,
                cost: cost(files, of)?,
                errors: errors(files, build)?,
            })
        })
        .collect()
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 696.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 312.0;
/// The shares of the axis, in percent: four decades.
const LOWEST: f64 = 0.001;
const DECADES: f64 = 4.0;

fn y(percent: f64) -> f64 {
    let decades = (percent.max(LOWEST) / LOWEST).log10().min(DECADES);
    BOTTOM - (BOTTOM - TOP) * decades / DECADES
}

/// The figure.
#[must_use]
pub fn cost_against_coverage(files: &Files) -> String {
    let points = points(files);
    let most = points.iter().map(|point| point.cost).fold(10.0, f64::max);
    let step = if most > 40.0 { 20.0 } else { 10.0 };
    let last = (most / step).ceil() * step;
    let x = |cost: f64| LEFT + (RIGHT - LEFT) * cost / last;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>memcached, 1 KiB: CPU time added to a request, and undetected errors of those that manifest, with 95 % intervals</title>\n\
         <!-- Generated from results/*.json by `cargo run -p steadfast-xtask -- docs`. -->\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    for decade in 0..=4 {
        let percent = LOWEST * 10_f64.powi(decade);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{0:.1}\" x2=\"{RIGHT}\" y2=\"{0:.1}\" stroke=\"#ddd\"/><text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{percent} %</text>",
            y(percent),
            LEFT - 6.0,
            y(percent) + 4.0,
        );
    }
    let mut tick = 0.0;
    while tick <= last {
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.1}\" y1=\"{TOP}\" x2=\"{0:.1}\" y2=\"{BOTTOM}\" stroke=\"#ddd\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{tick} %</text>",
            x(tick),
            BOTTOM + 16.0,
        );
        tick += step;
    }
    let _ = writeln!(
        svg,
        "<text x=\"{0}\" y=\"{1}\" text-anchor=\"middle\">CPU time added to a request of 1 KiB; up: undetected of manifested errors</text>",
        f64::midpoint(LEFT, RIGHT),
        HEIGHT - 8.0,
    );
    for (letter, point) in ('A'..).zip(&points) {
        svg += &drawn(letter, point, x(point.cost));
    }
    // Below the plain build, left of the hardened ones.
    let legend = BOTTOM - 16.0 * points.len() as f64;
    for (row, (letter, point)) in ('A'..).zip(&points).enumerate() {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\">{letter}  {}: {}</text>",
            LEFT + 16.0,
            legend + 16.0 * row as f64,
            point.name,
            said(point.errors)
        );
    }
    svg + "</svg>\n"
}

fn said(errors: Tally) -> String {
    let interval = errors.clopper_pearson(Confidence::P95);
    match errors.rate() {
        Some(rate) if errors.hits > 0 => format!("{:.2} %", rate * 100.0),
        _ => format!("0 (&lt; {:.3} %)", interval.high * 100.0),
    }
}

/// An interval with a dot, or, of none that got out, the upper bound with an arrow.
fn drawn(letter: char, point: &Point, x: f64) -> String {
    let interval = point.errors.clopper_pearson(Confidence::P95);
    let (low, high) = (y(interval.low * 100.0), y(interval.high * 100.0));
    let mark = match point.errors.rate() {
        Some(rate) if point.errors.hits > 0 => format!(
            "<line x1=\"{x:.1}\" y1=\"{low:.1}\" x2=\"{x:.1}\" y2=\"{high:.1}\" stroke=\"#333\"/><circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#1f5fa8\"/>",
            y(rate * 100.0)
        ),
        _ => format!(
            "<path d=\"M{x:.1} {high:.1}v12m-4 -5l4 5l4 -5\" stroke=\"#1f5fa8\" fill=\"none\"/>"
        ),
    };
    format!(
        "{mark}<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{letter}</text>\n",
        high - 4.0
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use steadfast_report::published::{File, Run};

    use super::*;

    pub(crate) fn run(rows: Vec<Row>) -> File {
        let mut file = File::new("test");
        file.add(Run {
            date: "2026-01-01".into(),
            commit: "0000000".into(),
            machine: "m".into(),
            load: "l".into(),
            command: "c".into(),
            rows,
            ..Run::default()
        });
        file
    }

    fn files(price: f64) -> Files {
        let errors = |build: &str, hits| {
            ["cf", "df", "rd"].map(|group| Row::share(format!("{build}.{group}"), "", hits, 1000))
        };
        let mut rows = errors("mc", 20).to_vec();
        rows.extend(errors("sei", 0));
        rows.extend(errors("without-outputs", 1));
        let costs = vec![
            Row::new("mc1k.cpu", "", 50.0, "%"),
            Row::new("mc1k.price.outputs", "", price, "%"),
        ];
        Files::from([
            (ERRORS.to_owned(), run(rows)),
            (COSTS.to_owned(), run(costs)),
        ])
    }

    #[test]
    fn a_build_without_a_check_costs_what_is_left() {
        let points = points(&files(10.0));
        let found: Vec<(&str, f64)> = points.iter().map(|p| (p.name, p.cost.round())).collect();
        assert_eq!(
            found,
            [
                ("plain", 0.0),
                ("full without outputs", 35.0),
                ("--protect=full", 50.0)
            ]
        );
        assert_eq!((points[1].errors.hits, points[1].errors.runs), (3, 3000));
    }

    #[test]
    fn none_that_got_out_is_drawn_as_a_bound() {
        let svg = cost_against_coverage(&files(10.0));
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        assert_eq!(svg.matches("<path").count(), 1, "{svg}");
        assert!(svg.contains("--protect=full: 0 (&lt; 0.123 %)"), "{svg}");
    }
}
