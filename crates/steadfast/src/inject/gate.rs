//! `steadfast inject gate`: one line in, one exit status out.
//!
//! Invariant: 0 is said only for a gate that holds. A campaign that cannot be read is 3, a gate
//! that cannot be asked is 64.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use steadfast_integrity::exit::Exit;
use steadfast_report::format::count;
use steadfast_report::gate::{Answer, Gate, Judgement};
use steadfast_report::tabulate::Table;

use super::{PageError, load};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// What must hold, such as 'sdc.upper95 < 0.1%'
    #[arg(value_name = "EXPR")]
    gate: String,

    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    dir: PathBuf,

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
        Err(why) => return console.refuse(&why),
    };
    let tables = load(&args.dir).and_then(|results| {
        let baseline = args.against.as_ref().map(|dir| load(dir)).transpose()?;
        Ok((Table::new(&results), baseline.map(|b| Table::new(&b))))
    });
    let (table, baseline) = match tables {
        Ok(tables) => tables,
        Err(why) => return unreadable(console, &why),
    };
    match gate.judge(&table, baseline.as_ref()) {
        Ok(judgement) => {
            let text = if args.json {
                json(&judgement)
            } else {
                words(&judgement)
            };
            console.result(&text);
            Exit::Status(judgement.answer.code())
        }
        Err(why) => console.refuse(&why),
    }
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

fn json(judgement: &Judgement) -> String {
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
        "findings": findings,
    });
    format!("{answer}\n")
}
