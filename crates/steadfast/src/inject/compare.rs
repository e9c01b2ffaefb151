//! `steadfast inject compare`.

use std::path::PathBuf;

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_report::compare::{Comparison, Input};
use steadfast_report::html;

use super::{load, write_all};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Directory of the baseline
    #[arg(value_name = "A")]
    a: PathBuf,

    /// Directory of the campaign that is held against it
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Units of work that one run of A does, such as requests served
    #[arg(long, value_name = "N", default_value = "1", value_parser = work)]
    work_a: f64,

    /// Units of work that one run of B does
    #[arg(long, value_name = "N", default_value = "1", value_parser = work)]
    work_b: f64,

    /// Write one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write Markdown to FILE or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    markdown: Option<PathBuf>,

    /// Write JSON to FILE or to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
}

fn work(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|work: &f64| work.is_finite() && *work > 0.0)
        .ok_or_else(|| "work is a number above 0".to_owned())
}

/// Makes the pages that were asked for; a summary when none goes to standard output.
pub(super) fn compare(args: &CompareArgs, console: &mut Console<'_>) -> Exit {
    let (a, b) = match (load(&args.a), load(&args.b)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => return console.refuse(&why),
    };
    let (a_name, b_name) = (args.a.display().to_string(), args.b.display().to_string());
    let comparison = Comparison::new(
        Input {
            results: &a,
            name: &a_name,
            work: args.work_a,
        },
        Input {
            results: &b,
            name: &b_name,
            work: args.work_b,
        },
    );
    let pages: [(&Option<PathBuf>, &dyn Fn() -> String); 3] = [
        (&args.html, &|| html::comparison(&comparison)),
        (&args.markdown, &|| comparison.text(true)),
        (&args.json, &|| comparison.json()),
    ];
    match write_all(console, &pages, || comparison.text(false)) {
        Ok(()) => Exit::Status(0),
        Err(why) => console.refuse(&why),
    }
}
