//! `steadfast inject gate`: one line in, one exit status out.
//!
//! Invariant: 0 is said only for a gate that holds. A campaign that cannot be read is 3, a gate
//! that cannot be asked is 64.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_report::format::count;
use steadfast_report::gate::{Answer, Gate, Judgement};
use steadfast_report::results::Golden;
use steadfast_report::tabulate::Table;
use steadfast_report::text;

use super::{PageError, load};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// What must hold, such as 'sdc.upper95 < 0.1%'
    #[arg(value_name = "EXPR")]
    gate: String,

    /// Directory of the campaign; without one, how many runs EXPR asks for
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Directory of the baseline that ratios are over
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,

    /// Write the answer as one JSON object
    #[arg(long)]
    json: bool,
}

/// Answers.
pub(super) fn gate(args: &GateArgs, console: &mut Console<'_>) -> Exit {
    let gate = match Gate::parse(&args.gate) {
        Ok(gate) => gate,
        Err(why) => {
            let second = args.dir.as_ref().map(|dir| dir.display().to_string());
            return match second.filter(|text| Gate::parse(text).is_ok()) {
                Some(gate) => console.refuse(&PageError::Swapped {
                    gate,
                    dir: args.gate.clone(),
                }),
                None => console.refuse(&why),
            };
        }
    };
    let Some(dir) = &args.dir else {
        return planned(&gate, args.json, console);
    };
    let tables = load(dir).and_then(|results| {
        let baseline = args.against.as_ref().map(|dir| load(dir)).transpose()?;
        let golden = results.provenance.golden;
        Ok((
            golden,
            Table::new(&results),
            baseline.map(|b| Table::new(&b)),
        ))
    });
    let (golden, table, baseline) = match tables {
        Ok(tables) => tables,
        Err(why) => return unreadable(console, &why),
    };
    match gate.judge(&table, baseline.as_ref()) {
        Ok(judgement) => {
            let text = if args.json {
                json(&judgement, &golden)
            } else {
                format!("{}{}\n", words(&judgement), text::golden(&golden))
            };
            console.result(&text);
            Exit::Status(judgement.answer.code())
        }
        Err(why) => console.refuse(&why),
    }
}

/// What has to be run before the gate can hold. Nothing is known yet: that is inconclusive.
fn planned(gate: &Gate, json: bool, console: &mut Console<'_>) -> Exit {
    let needed = gate.needed();
    let mut text = String::new();
    if json {
        let all: Vec<serde_json::Value> = needed
            .iter()
            .map(|one| {
                serde_json::json!({
                    "asked": one.asked, "clean": one.clean, "watched": one.watched, "one_hit": one.one_hit,
                })
            })
            .collect();
        let answer =
            serde_json::json!({ "schema": 1, "answer": "inconclusive", "exit": 2, "needed": all });
        text = format!("{answer}\n");
    } else {
        for one in &needed {
            let _ = writeln!(
                text,
                "{}: {} clean runs needed, {} if looked at after each, {} if it happens once",
                one.asked,
                count(one.clean),
                count(one.watched),
                count(one.one_hit)
            );
        }
        if needed.is_empty() {
            text.push_str(
                "no upper bound in it: how many runs it takes depends on what they show\n",
            );
        }
    }
    console.result(&text);
    Exit::Status(Answer::Inconclusive.code())
}

fn unreadable(console: &mut Console<'_>, why: &PageError) -> Exit {
    console.refuse(why);
    Exit::Status(Answer::Infrastructure.code())
}

fn words(judgement: &Judgement) -> String {
    let mut text = String::new();
    for finding in &judgement.findings {
        let _ = write!(
            text,
            "{}: {}: {}",
            finding.answer, finding.asked, finding.found
        );
        if let Some(more) = finding.more_runs {
            let _ = write!(
                text,
                "; {} more runs decide it if nothing new happens",
                count(more)
            );
        }
        text.push('\n');
    }
    if judgement.findings.len() > 1 {
        let _ = writeln!(text, "{}", judgement.answer);
    }
    text
}

fn json(judgement: &Judgement, golden: &Golden) -> String {
    let findings: Vec<serde_json::Value> = judgement
        .findings
        .iter()
        .map(|finding| {
            serde_json::json!({
                "asked": finding.asked,
                "found": finding.found,
                "answer": finding.answer.word(),
                "more_runs": finding.more_runs,
            })
        })
        .collect();
    let answer = serde_json::json!({
        "schema": 1,
        "answer": judgement.answer.word(),
        "exit": judgement.answer.code(),
        "golden": golden,
        "findings": findings,
    });
    format!("{answer}\n")
}
