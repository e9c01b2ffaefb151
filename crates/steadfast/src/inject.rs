//! `steadfast inject`: its verbs, each defined once.
//!
//! Verbs that read a campaign (report, compare, gate, merge) look at its directory and at nothing
//! else, so they work anywhere and years later.

mod compare;
mod count_agent;
mod doctor;
mod gate;
mod merge;
mod profile;
mod replay;
mod report;
mod run;
mod server;
mod target;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::{Exit, Own};
use steadfast_inject::record::{Dir, RecordError};
use steadfast_inject::results::{self, ResultsError};
use steadfast_report::results::Results;

use crate::report::Console;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Strike a program with planned faults, one a run, and judge each run
    ///
    /// CMD is run without a fault first, its executed instructions are counted, faults are drawn
    /// uniformly over them and written down, and then each is run in a sandbox: its own user and
    /// namespaces, no network, nothing writable but a scratch directory. The directory can be gone
    /// on with after an interrupt.
    ///
    /// The exit status is 0, or with --until that of `gate`.
    ///
    /// Examples:
    ///   steadfast inject run -- gzip -c /usr/share/dict/words
    ///   steadfast inject run --fault wreg,cf --runs 3000 --until 'sdc.upper95 < 1%' -- ./prog
    ///   steadfast inject run --replicas 2 --out protected --seed 7 -- ./prog
    ///   steadfast inject run --replicas 2 --victim agent --out agent -- ./prog
    ///   steadfast inject run --driver ./client --ready 7000 -- ./server --port 7000
    ///   steadfast inject run --fault 'class=int-mul n=1.. reg=rax after bit=13' --runs 1 -- ./prog
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject run [OPTIONS] [--] CMD [ARGS]..."
    )]
    Run(Box<run::RunArgs>),
    /// Draw and write down the faults of a campaign, without running them
    ///
    /// Example:
    ///   steadfast inject plan --out results --seed 7 --runs 1000 -- gzip -c /usr/share/dict/words
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject plan [OPTIONS] [--] CMD [ARGS]..."
    )]
    Plan(Box<run::RunArgs>),
    /// Count what a program executes, at native speed, and how much of it faults can reach
    ///
    /// Example:
    ///   steadfast inject profile -- gzip -c /usr/share/dict/words
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject profile [OPTIONS] [--] CMD [ARGS]..."
    )]
    Profile(Box<profile::ProfileArgs>),
    /// Repeat one run of a campaign
    ///
    /// The exit status is 0 if the run ends as it did before, and 122 if it does not.
    ///
    /// Examples:
    ///   steadfast inject replay results 17
    ///   steadfast inject replay results 17 --gdb
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject replay [OPTIONS] DIR ID"
    )]
    Replay(replay::ReplayArgs),
    /// Find out whether the injector can be believed on this machine
    ///
    /// Targets with known answers are struck: one that checks nothing must show wrong outputs, one
    /// that checks everything must not; flips of code and of a file's bytes must show; planted faults
    /// must do what single steps do, and native counts must be those of single steps. The exit status
    /// is 0 if all is well, and 1 if not.
    ///
    /// With the directory of a campaign, each of its planned faults is carried out by single steps
    /// as well: the n-th execution must be hit, with the same values before and after, and the
    /// same end.
    #[command(override_usage = "steadfast inject doctor [OPTIONS] [DIR]")]
    Doctor(doctor::DoctorArgs),
    /// Show what a campaign adds up to: rates with intervals, where faults struck, wrong answers
    ///
    /// DIR may still be growing: what is finished by now is shown.
    ///
    /// Examples:
    ///   steadfast inject report results
    ///   steadfast inject report results --html results.html --junit results.xml
    ///   steadfast inject report results --json | jq .all.failed
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject report [OPTIONS] DIR"
    )]
    Report(report::ReportArgs),
    /// Hold one campaign against another, by failures per unit of work
    ///
    /// Shares of runs do not compare programs: one that runs longer or is kept in more copies is
    /// struck more often. Compared are failures if every executed instruction of one unit of work
    /// were struck once.
    ///
    /// Examples:
    ///   steadfast inject compare bare protected
    ///   steadfast inject compare bare protected --html compared.html
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject compare [OPTIONS] A B"
    )]
    Compare(compare::CompareArgs),
    /// Decide whether a campaign shows what it must, for build servers
    ///
    /// EXPR compares a measure of an outcome with a limit; comparisons are joined by `and`, `or`
    /// and brackets. Outcomes: sdc, crash, hang, detected, corrected, masked, failed (sdc, crash
    /// and hang), false_alarm, or a leaf such as crash_signal; [TYPE] restricts them to a fault
    /// type. Measures: rate, count, and the guaranteed bounds upper95 and lower95 (90 and 99).
    /// Also: valid.count, unreachable.rate, and ratio.OUTCOME over a baseline.
    ///
    /// The exit status is 0 if EXPR holds, 1 if it does not, 2 if more runs are needed to tell,
    /// and 3 if the campaign cannot be read or its test bed failed.
    ///
    /// Examples:
    ///   steadfast inject gate 'sdc.upper95 < 0.1%'             (how many runs that takes)
    ///   steadfast inject gate 'sdc.upper95 < 0.1%' results
    ///   steadfast inject gate 'sdc.count == 0 and hang.upper95 < 1%' results
    ///   steadfast inject gate 'sdc[rval].upper95 < 0.5%' results
    ///   steadfast inject gate 'ratio.failed.upper95 < 0.5' protected --against bare
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject gate [OPTIONS] EXPR [DIR]"
    )]
    Gate(gate::GateArgs),
    /// Put parts of one plan together, as one campaign
    ///
    /// Parts of another plan, seed, program or version are refused, and so is a run that two parts
    /// have. Parts that are missing are counted and may be merged later.
    ///
    /// Example:
    ///   steadfast inject merge part-0 part-1 part-2 --out results
    #[command(
        verbatim_doc_comment,
        override_usage = "steadfast inject merge SHARD... --out DIR"
    )]
    Merge(merge::MergeArgs),
    /// Count what replicas execute of the agent, for a campaign whose victim that is
    #[command(hide = true)]
    CountAgent(count_agent::CountAgentArgs),
}

/// Carries a verb out.
pub(crate) fn inject(verb: &Verb, console: &mut Console<'_>) -> Exit {
    match verb {
        Verb::Run(args) => run::run(args, console),
        Verb::Plan(args) => run::plan(args, console),
        Verb::Profile(args) => profile::profile(args, console),
        Verb::Replay(args) => replay::replay(args, console),
        Verb::Doctor(args) => doctor::doctor(args, console),
        Verb::Report(args) => report::report(args, console),
        Verb::Compare(args) => compare::compare(args, console),
        Verb::Gate(args) => gate::gate(args, console),
        Verb::Merge(args) => merge::merge(args, console),
        Verb::CountAgent(args) => count_agent::count(args, console),
    }
}

/// A campaign that cannot be read, or a page that cannot be written.
#[derive(Debug, thiserror::Error)]
enum PageError {
    #[error("{dir} must be a campaign directory, found no campaign.json in it")]
    NoCampaign { dir: String },
    #[error("{0}")]
    Read(String, #[source] Option<io::Error>),
    #[error("{path} cannot be written")]
    Write { path: String, source: io::Error },
    #[error("one result at a time can go to standard output, found --json and --markdown")]
    TwoOutputs,
    #[error("the gate has to come before the directory, found {dir} before it")]
    Swapped { gate: String, dir: String },
}

impl Advise for PageError {
    fn exit(&self) -> Own {
        match self {
            Self::TwoOutputs | Self::Swapped { .. } => Own::Usage,
            _ => Own::Setup,
        }
    }

    fn fix(&self) -> Option<Remedy> {
        match self {
            Self::NoCampaign { .. } => Some(Remedy::new(
                "the directory that `steadfast inject run --out DIR` wrote",
            )),
            Self::Read(..) => Some(Remedy::with_note(
                "restore the file from where the campaign ran",
                "docs/reference/campaign-format.md says what each line must hold",
            )),
            Self::Write { .. } => Some(Remedy::new(
                "a file in a directory that exists and may be written",
            )),
            Self::TwoOutputs => Some(Remedy::new(
                "--json=FILE or --markdown=FILE for one of them",
            )),
            Self::Swapped { gate, dir } => {
                Some(Remedy::new(format!("steadfast inject gate '{gate}' {dir}")))
            }
        }
    }
}

fn read_error(why: ResultsError) -> PageError {
    if let ResultsError::Record(RecordError::Io { path, source }) = why {
        let missing = source.kind() == io::ErrorKind::NotFound;
        return match path
            .parent()
            .filter(|_| missing && path.ends_with("campaign.json"))
        {
            Some(dir) => PageError::NoCampaign {
                dir: dir.display().to_string(),
            },
            None => PageError::Read(format!("{} cannot be read", path.display()), Some(source)),
        };
    }
    PageError::Read(why.to_string(), None)
}

fn load(dir: &Path) -> Result<Results, PageError> {
    let name = dir.display().to_string();
    results::load(&Dir::new(dir), &name).map_err(read_error)
}

/// Writes a page, whole or not at all; `-` is standard output.
fn write(console: &mut Console<'_>, path: &Path, text: &str) -> Result<(), PageError> {
    if path == Path::new("-") {
        console.result(text);
        return Ok(());
    }
    let failed = |source| PageError::Write {
        path: path.display().to_string(),
        source,
    };
    // Not renamed into place: FILE may be a pipe or /dev/stdout. Half a page has no end tag.
    fs::write(path, text).map_err(failed)
}

/// Where each page goes.
fn write_all(
    console: &mut Console<'_>,
    pages: &[(&Option<PathBuf>, &dyn Fn() -> String)],
    summary: impl FnOnce() -> String,
) -> Result<(), PageError> {
    let to_stdout = pages
        .iter()
        .filter(|(path, _)| path.as_deref() == Some(Path::new("-")))
        .count();
    if to_stdout > 1 {
        return Err(PageError::TwoOutputs);
    }
    for (path, text) in pages {
        if let Some(path) = path {
            write(console, path, &text())?;
        }
    }
    if to_stdout == 0 {
        console.result(&summary());
    }
    Ok(())
}
