//! A campaign as text: for a terminal, and as Markdown for the page of a job.
//!
//! Not covered: figures and heat maps, which are the HTML page's.

use std::fmt::Write as _;

use steadfast_contract::outcome::Outcome;

use crate::format::{between, count, extent, percent, quantity, rate, readable, time};
use crate::gate::Judgement;
use crate::report::Report;
use crate::results::Golden;

/// What came out, in one or two sentences.
#[must_use]
pub fn headline(report: &Report) -> String {
    let runs = &report.runs;
    let mut text = match report.outcome(Outcome::Sdc) {
        Some(sdc) if runs.valid > 0 => {
            let per = &sdc.per_injection;
            match per.rate {
                _ if sdc.count == 0 => format!(
                    "None of {} faults led to a wrong answer: the rate is below {} with 95 % confidence.",
                    count(runs.valid),
                    percent(per.upper95)
                ),
                Some(value) => {
                    let weighted = if report.groups.len() > 1 {
                        ", weighted by fault type"
                    } else {
                        ""
                    };
                    format!(
                        "{} of {} faults led to a wrong answer: {}{weighted}, 95 % interval {} %.",
                        count(sdc.count),
                        count(runs.valid),
                        percent(value),
                        between(per)
                    )
                }
                None => format!(
                    "{} of {} faults led to a wrong answer; a fault type has no runs yet.",
                    count(sdc.count),
                    count(runs.valid)
                ),
            }
        }
        _ => "No run says anything about the target yet.".to_owned(),
    };
    if runs.finished < runs.planned {
        let _ = write!(
            text,
            " {} of {} planned runs are finished.",
            count(runs.finished),
            count(runs.planned)
        );
    }
    text
}

/// What makes a reader doubt the rest, one sentence each; empty when there is nothing.
#[must_use]
pub fn doubts(report: &Report) -> Vec<String> {
    let mut doubts = Vec::new();
    let runs = &report.runs;
    if runs.infra > 0 {
        doubts.push(format!(
            "The test bed failed in {} of {} runs.",
            count(runs.infra),
            count(runs.finished)
        ));
    }
    if runs.not_fired > 0 {
        doubts.push(format!(
            "The fault did not fire in {} of {} runs; they count for nothing.",
            count(runs.not_fired),
            count(runs.finished)
        ));
    }
    let control = &report.control;
    if control.runs == 0 {
        doubts.push("There were no runs without a fault to compare with.".to_owned());
    } else if control.masked < control.runs {
        doubts.push(format!(
            "{} of {} runs without a fault ended differently from the golden run, {} of them as false alarms.",
            count(control.runs - control.masked),
            count(control.runs),
            count(control.false_alarms.hits)
        ));
    }
    let golden = &report.provenance.golden;
    if golden.status != 0 {
        doubts.push(format!(
            "Without a fault the target ends with status {}.",
            golden.status
        ));
    }
    if golden.output_bytes == 0 {
        doubts.push("The golden run writes nothing: only the exit status can be wrong.".to_owned());
    }
    let population = &report.population;
    let lost: u64 = population.unreachable.values().sum();
    if population.dynamic > 0 && lost > 0 {
        doubts.push(format!(
            "No fault can be planted at {} of the executed instructions; the rates say nothing about them.",
            percent(lost as f64 / population.dynamic as f64)
        ));
    }
    if population.dynamic == 0 {
        doubts.push(
            "Executed instructions were not counted: failures cannot be extrapolated.".to_owned(),
        );
    }
    doubts
}

/// What there was to get wrong, for reports and gates.
#[must_use]
pub fn golden(golden: &Golden) -> String {
    format!(
        "golden run: exit status {}, {} bytes of output",
        golden.status,
        count(golden.output_bytes)
    )
}

/// A table whose columns line up, as text or as Markdown.
pub(crate) fn table(head: Vec<&'static str>, rows: Vec<Vec<String>>, markdown: bool) -> String {
    Columns { head, rows }.render(markdown)
}

struct Columns {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    fn render(&self, markdown: bool) -> String {
        let mut widths: Vec<usize> = self.head.iter().map(|h| h.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |cells: Vec<&str>| {
            let padded: Vec<String> = cells
                .iter()
                .zip(&widths)
                .enumerate()
                .map(|(i, (cell, width))| {
                    // Words on the left, numbers on the right.
                    let pad = " ".repeat(width - cell.chars().count());
                    if i == 0 {
                        format!("{cell}{pad}")
                    } else {
                        format!("{pad}{cell}")
                    }
                })
                .collect();
            if markdown {
                format!("| {} |\n", padded.join(" | "))
            } else {
                format!("  {}\n", padded.join("  ")).trim_end().to_owned() + "\n"
            }
        };
        let mut text = line(self.head.clone());
        if markdown {
            let rules: Vec<String> = widths
                .iter()
                .enumerate()
                .map(|(i, w)| {
                    if i == 0 {
                        "-".repeat(*w)
                    } else {
                        "-".repeat(w.saturating_sub(1)) + ":"
                    }
                })
                .collect();
            let _ = writeln!(text, "| {} |", rules.join(" | "));
        }
        for row in &self.rows {
            text.push_str(&line(row.iter().map(String::as_str).collect()));
        }
        text
    }
}

fn outcomes(report: &Report) -> Columns {
    let all = report.all.outcomes.iter().chain([&report.all.failed]);
    Columns {
        head: vec![
            "outcome",
            "runs",
            "per injection",
            "per manifested error",
            "extrapolated",
        ],
        rows: all
            .map(|row| {
                vec![
                    row.outcome.clone(),
                    count(row.count),
                    rate(&row.per_injection),
                    row.per_manifested.as_ref().map_or("–".to_owned(), rate),
                    extent(&row.absolute),
                ]
            })
            .collect(),
    }
}

fn groups(report: &Report) -> Columns {
    Columns {
        head: vec![
            "fault type",
            "runs",
            "manifested",
            "sdc",
            "crash",
            "hang",
            "sdc per injection",
        ],
        rows: report
            .groups
            .iter()
            .map(|group| {
                let of = |outcome| group.row(outcome).map_or(0, |row| row.count);
                vec![
                    group.name.clone(),
                    count(group.valid),
                    count(group.manifested),
                    count(of(Outcome::Sdc)),
                    count(of(Outcome::Crash)),
                    count(of(Outcome::Hang)),
                    group
                        .row(Outcome::Sdc)
                        .map_or("–".to_owned(), |row| rate(&row.per_injection)),
                ]
            })
            .collect(),
    }
}

fn target(report: &Report) -> String {
    format!(
        "{} ({}, engine {})",
        report.provenance.command.join(" "),
        report.provenance.protection,
        report.provenance.engine
    )
}

/// For a terminal.
#[must_use]
pub fn plain(report: &Report) -> String {
    let mut text = format!("{}\n{}\n", target(report), headline(report));
    let _ = writeln!(text, "{}", golden(&report.provenance.golden));
    for doubt in doubts(report) {
        let _ = writeln!(text, "{doubt}");
    }
    let _ = write!(text, "\n{}", outcomes(report).render(false));
    if report.groups.len() > 1 {
        let _ = write!(text, "\n{}", groups(report).render(false));
    }
    if let Some(latency) = &report.latency {
        let _ = writeln!(text, "\n{}", alarms(latency));
    }
    if let Some(wrong) = report.wrong.first() {
        let _ = writeln!(
            text,
            "\nto see the first wrong answer again: {}",
            wrong.replay
        );
    }
    text
}

fn alarms(latency: &crate::report::Latency) -> String {
    format!(
        "from fault to alarm: median {}, 99th percentile {}, longest {} ({} alarms)",
        time(latency.p50_ns),
        time(latency.p99_ns),
        time(latency.max_ns),
        count(latency.count)
    )
}

/// Markdown, for the summary of a job.
#[must_use]
pub fn markdown(report: &Report, gates: &[Judgement]) -> String {
    // What people choose must not become markup.
    let code = |text: &str| format!("`{}`", text.replace('`', "'").replace(['\n', '\r'], " "));
    let mut text = format!(
        "## Faults in {}\n\n**{}**\n",
        code(&target(report)),
        headline(report)
    );
    for finding in gates.iter().flat_map(|judgement| &judgement.findings) {
        let _ = write!(
            text,
            "\n- {}: {}, {}",
            finding.answer,
            code(&finding.asked),
            finding.found
        );
    }
    if !gates.is_empty() {
        text.push('\n');
    }
    for doubt in doubts(report) {
        let _ = write!(text, "\n{doubt}\n");
    }
    let _ = write!(text, "\n{}", outcomes(report).render(true));
    if report.groups.len() > 1 {
        let _ = write!(text, "\n{}", groups(report).render(true));
    }
    if let Some(latency) = &report.latency {
        let _ = write!(text, "\n{}\n", alarms(latency));
    }
    // A page of a job is no archive: the rest stands in the other formats.
    const WRONG_MAX: usize = 20;
    if !report.wrong.is_empty() {
        text.push_str("\nWrong answers:\n\n");
        for wrong in report.wrong.iter().take(WRONG_MAX) {
            let place = wrong.place.as_ref().map_or(String::new(), |place| {
                format!(
                    " in {}",
                    code(&readable(
                        place.function.as_deref().unwrap_or(&place.module)
                    ))
                )
            });
            let _ = writeln!(
                text,
                "- {}{place}: {}",
                code(&wrong.replay),
                code(&wrong.fault)
            );
        }
        if let Some(more) = report.wrong.len().checked_sub(WRONG_MAX + 1) {
            let _ = writeln!(text, "- and {} more", count(more as u64 + 1));
        }
    }
    let _ = write!(
        text,
        "\nSeed {}, {} of {} executions reachable, steadfast {}{}.\n",
        code(&report.provenance.seed),
        quantity(report.population.reachable as f64),
        quantity(report.population.dynamic as f64),
        report.provenance.steadfast,
        report
            .provenance
            .commit
            .as_ref()
            .map_or(String::new(), |commit| format!(", commit {}", code(commit)))
    );
    text
}
