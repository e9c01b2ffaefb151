//! One HTML file that needs nothing else: no network, no scripts, no fonts.
//!
//! Light and dark by the reader's setting, readable on a telephone, on paper and by a screen
//! reader: every picture has its numbers in a table or in its label, and no colour stands alone.
//!
//! Invariant: everything that comes from a campaign is escaped. Function names, file names and
//! commands are chosen by others.

mod svg;

use std::collections::BTreeMap;

use minijinja::value::{Value, ViaDeserialize};
use minijinja::{Environment, context};
use serde::Serialize;
use steadfast_contract::outcome::Outcome;

use crate::compare::{Comparison, Pair};
use crate::format;
use crate::gate::Judgement;
use crate::report::{Cell, Counts, Extent, Function, Line, Rate, Report, SHOWN};
use crate::text;

/// How much of long lists is shown; the rest is in JSON and CSV, and the page says so.
const FUNCTIONS_MAX: usize = 25;
const LINES_MAX: usize = 40;
const CELLS_MAX: usize = 24;
const WRONG_MAX: usize = 100;

/// A campaign as a page, with what its gates said.
#[must_use]
pub fn report(report: &Report, gates: &[Judgement]) -> String {
    let most = report
        .groups
        .iter()
        .filter_map(|group| group.row(Outcome::Sdc))
        .map(|row| row.per_injection.high)
        .fold(0.0, f64::max);
    let whiskers: Vec<Value> = report
        .groups
        .iter()
        .map(|group| {
            let rate = group.row(Outcome::Sdc).map(|row| row.per_injection);
            safe(rate.map_or(String::new(), |rate| svg::whisker(&rate, most)))
        })
        .collect();
    let findings: Vec<Value> = gates
        .iter()
        .flat_map(|judgement| &judgement.findings)
        .map(|finding| {
            context! {
                answer => finding.answer.word(),
                asked => finding.asked,
                found => together(&finding.found),
                more => finding.more_runs,
            }
        })
        .collect();
    render(
        "report.html",
        context! {
            report => report,
            headline => together(&text::headline(report)),
            doubts => text::doubts(report).iter().map(|doubt| together(doubt)).collect::<Vec<_>>(),
            gates => findings,
            shown => SHOWN.map(Outcome::word),
            whiskers => whiskers,
            scale => most,
            functions => functions(&report.functions),
            functions_more => report.functions.len().saturating_sub(FUNCTIONS_MAX),
            registers => most_struck(&report.registers),
            opcodes => most_struck(&report.opcodes),
            bits => safe(svg::bits(&report.bits)),
            latency => report.latency.as_ref().map(|latency| safe(svg::curve(latency))),
            wrong => &report.wrong[..report.wrong.len().min(WRONG_MAX)],
            wrong_more => report.wrong.len().saturating_sub(WRONG_MAX),
            command => report.provenance.command.join(" "),
        },
    )
}

/// Two campaigns as a page.
#[must_use]
pub fn comparison(comparison: &Comparison) -> String {
    let pictures: Vec<Value> = comparison
        .rows
        .iter()
        .map(|pair| safe(svg::ratio(pair)))
        .collect();
    let groups: Vec<Value> = comparison
        .groups
        .iter()
        .map(|group| {
            context! {
                name => group.name,
                rows => [(&group.sdc, "wrong answers"), (&group.failed, "all failures")]
                    .map(|(pair, what)| context! {
                        what => what, pair => pair, picture => safe(svg::ratio(pair)),
                    }),
            }
        })
        .collect();
    render(
        "compare.html",
        context! {
            c => comparison,
            headline => comparison.headline().iter().map(|line| together(line)).collect::<Vec<_>>(),
            tone => comparison.tone(),
            pictures => pictures,
            groups => groups,
        },
    )
}

/// Keeps a number and its unit on one line.
fn together(text: &str) -> String {
    text.replace(" %", "\u{a0}%")
        .replace(" ms", "\u{a0}ms")
        .replace(" µs", "\u{a0}µs")
}

fn safe(text: String) -> Value {
    Value::from_safe_string(text)
}

fn render(name: &str, context: Value) -> String {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    for (name, text) in [
        ("base.html", include_str!("../templates/base.html")),
        ("style.css", include_str!("../templates/style.css")),
        ("macros.html", include_str!("../templates/macros.html")),
        ("report.html", include_str!("../templates/report.html")),
        ("compare.html", include_str!("../templates/compare.html")),
    ] {
        environment
            .add_template(name, text)
            .expect("templates are part of the program");
    }
    environment.add_filter("count", format::count);
    environment.add_filter("percent", |rate: f64| together(&format::percent(rate)));
    environment.add_filter("quantity", format::quantity);
    environment.add_filter("time", |ns: f64| together(&format::time(ns)));
    environment.add_filter("date", format::date);
    environment.add_filter("rate", |rate: ViaDeserialize<Rate>| {
        together(&format::rate(&rate))
    });
    environment.add_filter("extent", |extent: ViaDeserialize<Extent>| {
        format::extent(&extent)
    });
    environment.add_filter("ratio", |pair: ViaDeserialize<Pair>| pair.ratio_text());
    environment.add_filter("readable", |symbol: &str| format::readable(symbol));
    environment.add_filter("bar", |counts: ViaDeserialize<Counts>| safe(bar(&counts)));
    environment.add_function("meaning", |word: &str| meaning(word));
    environment
        .get_template(name)
        .and_then(|template| template.render(context))
        .expect("a template asks for what it is given")
}

/// A bar of all outcomes, with its numbers as a label.
fn bar(counts: &Counts) -> String {
    let present: Vec<(Outcome, u64)> = SHOWN
        .iter()
        .map(|outcome| (*outcome, counts.of(*outcome)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let label: Vec<String> = present
        .iter()
        .rev()
        .map(|(outcome, count)| format!("{outcome} {}", format::count(*count)))
        .collect();
    let mut html = format!(
        "<div class=\"bar\" role=\"img\" aria-label=\"{0}\" title=\"{0}\">",
        label.join(", ")
    );
    for (outcome, count) in present {
        html.push_str(&format!(
            "<i class=\"{outcome}\" style=\"flex-grow:{count}\"></i>"
        ));
    }
    html + "</div>"
}

/// What a word means, for people who see it the first time.
fn meaning(word: &str) -> &'static str {
    match word {
        "masked" => "output right, nobody noticed",
        "corrected" => "noticed and repaired, output right",
        "detected" => "stopped before a wrong byte left",
        "hang" => "did not end in time",
        "crash" => "died or gave up by itself",
        "sdc" => "wrong answer, and nobody noticed in time",
        "failed" => "wrong answer, crash or hang",
        _ => "",
    }
}

#[derive(Serialize)]
struct FunctionView<'a> {
    function: &'a Function,
    lines: Vec<&'a Line>,
    more: usize,
}

fn functions(functions: &[Function]) -> Vec<FunctionView<'_>> {
    functions
        .iter()
        .take(FUNCTIONS_MAX)
        .map(|function| {
            let worst = |line: &Line| {
                let counts = &line.counts;
                (counts.sdc, counts.crash + counts.hang, counts.valid)
            };
            let mut chosen: Vec<(usize, &Line)> = function.lines.iter().enumerate().collect();
            chosen.sort_by_key(|(at, line)| (std::cmp::Reverse(worst(line)), *at));
            chosen.truncate(LINES_MAX);
            chosen.sort_by_key(|(at, _)| *at);
            FunctionView {
                function,
                more: function.lines.len() - chosen.len(),
                lines: chosen.into_iter().map(|(_, line)| line).collect(),
            }
        })
        .collect()
}

#[derive(Serialize)]
struct CellsView<'a> {
    rows: Vec<&'a Cell>,
    more: usize,
    /// Outcomes that occur at all: empty columns are left out.
    columns: Vec<&'static str>,
    shares: Vec<BTreeMap<&'static str, f64>>,
}

fn most_struck(cells: &[Cell]) -> CellsView<'_> {
    let rows: Vec<&Cell> = cells.iter().take(CELLS_MAX).collect();
    let columns: Vec<Outcome> = SHOWN
        .into_iter()
        .rev()
        .filter(|outcome| cells.iter().any(|cell| cell.counts.of(*outcome) > 0))
        .collect();
    let shares = rows
        .iter()
        .map(|cell| {
            columns
                .iter()
                .map(|outcome| {
                    let share = cell.counts.of(*outcome) as f64 / cell.counts.valid.max(1) as f64;
                    (outcome.word(), share)
                })
                .collect()
        })
        .collect();
    CellsView {
        more: cells.len() - rows.len(),
        rows,
        columns: columns.into_iter().map(Outcome::word).collect(),
        shares,
    }
}

#[cfg(test)]
mod tests;
