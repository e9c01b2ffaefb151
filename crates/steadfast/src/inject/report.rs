//! `steadfast inject report`.

use std::path::PathBuf;

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_report::gate::{Gate, GateError, Judgement};
use steadfast_report::report::Report;
use steadfast_report::tabulate::Table;
use steadfast_report::{html, junit, rows, text};

use super::{load, write_all};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Write one HTML file that needs nothing else, no network and no scripts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write every run as a row of CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Write JUnit XML: one case for each gate and each fault type
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,

    /// Write Markdown, for the summary of a job, to FILE or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    markdown: Option<PathBuf>,

    /// Write JSON (docs/report.schema.json) to FILE or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Show in HTML, JUnit XML and Markdown whether this gate passes; may be given several times
    #[arg(long, value_name = "EXPR")]
    gate: Vec<String>,
}

/// Makes the pages that were asked for; a summary when none goes to standard output.
pub(super) fn report(args: &ReportArgs, console: &mut Console<'_>) -> Exit {
    let results = match load(&args.dir) {
        Ok(results) => results,
        Err(why) => return console.refuse(&why),
    };
    let gates = match judge(&args.gate, &Table::new(&results)) {
        Ok(gates) => gates,
        Err(why) => return console.refuse(&why),
    };
    let report = Report::new(&results);
    let pages: [(&Option<PathBuf>, &dyn Fn() -> String); 5] = [
        (&args.html, &|| html::report(&report, &gates)),
        (&args.csv, &|| rows::csv(&results)),
        (&args.junit, &|| junit::junit(&report, &gates)),
        (&args.markdown, &|| text::markdown(&report, &gates)),
        (&args.json, &|| report.json()),
    ];
    match write_all(console, &pages, || text::plain(&report)) {
        Ok(()) => Exit::Status(0),
        Err(why) => console.refuse(&why),
    }
}

fn judge(gates: &[String], table: &Table) -> Result<Vec<Judgement>, GateError> {
    gates
        .iter()
        .map(|text| Gate::parse(text)?.judge(table, None))
        .collect()
}
