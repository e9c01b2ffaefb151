//! The flags, each defined once: help, manual and completions come from here.
//!
//! Invariant: what leaves this module is checked. [`RunArgs::plan`] either gives a plan that
//! passes [`Plan::check`], or an error that nothing was started for.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand};
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;
use steadfast_contract::plan::{
    Backstop, CheckMemory, EpochBudget, EqualPids, HugePages, OnMismatch, Placement, Plan,
    PlanError, Private, SmtSiblings,
};
use steadfast_fault::{Fault, FaultError};

use crate::find::{self, FindError};
use crate::inject;
use crate::os;

/// Keep Linux programs correct on faulty hardware
#[derive(Debug, Parser)]
#[command(
    name = "steadfast",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "Programs of their own, each with --help:\n  \
        kv      A replicated memcached server whose replicas vote on every object before a reply leaves\n  \
        pair    One program on two hosts, each with a disk of its own\n  \
        host    WebAssembly components that come back in microseconds when they fail"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program as several replicas that check and repair each other
    ///
    /// CMD runs unchanged, as N replicas that are compared at every system call. No byte leaves
    /// before the replicas agree on it. A replica that is wrong is repaired, and CMD goes on.
    ///
    /// The exit status is that of CMD, and so is a death by signal. Steadfast speaks for itself
    /// with 64 (usage), 121 (setup), 122 (stopped on a mismatch), 123 (a bug of Steadfast), 126
    /// and 127 (as env(1) does).
    #[command(override_usage = "steadfast run [OPTIONS] [--] CMD [ARGS]...")]
    Run(Box<RunArgs>),
    /// Find out what this machine allows, at which cost, and how to get the rest
    ///
    /// Each feature of the kernel and the processor is used once, in a process of its own, the way
    /// `run` uses it. The exit status is 0 if `run` can work here, and 121 if not.
    Check(CheckArgs),
    /// List the running programs that this user protects
    ///
    /// One line is one process of a program: a group of replicas. LAUNCHER is the `steadfast run` that
    /// it belongs to, PID its own number, CORES where its replicas run, EVENTS what they have agreed on.
    /// It takes a third of a second, in which EVENTS/S is measured. Programs in a container are listed
    /// inside it, and those of other users never.
    ///
    ///   steadfast ps
    ///   steadfast ps --json | jq '.trees[].groups[] | select(.repairs > 0)'
    #[command(verbatim_doc_comment)]
    Ps(PsArgs),
    /// Show the running programs that this user protects, again and again
    ///
    /// The same lines as `steadfast ps`, in place on a terminal, one below the other elsewhere. Ctrl-C
    /// ends it.
    ///
    /// With --http it shows nothing, and answers monitors until it is ended: /metrics in Prometheus' text
    /// format, /healthz. Counters of a program include processes that have ended.
    ///
    ///   steadfast top
    ///   steadfast top --interval 0.5 --count 10 --json > rates.jsonl
    ///   steadfast top --http 127.0.0.1:9460
    #[command(verbatim_doc_comment)]
    Top(TopArgs),
    /// Find out how often faults lead to wrong answers, and how much protection helps
    ///
    /// A campaign strikes a program with one planned fault a run, thousands of times, and judges
    /// each run by its output. What it leaves in its directory is all that these commands read.
    #[command(override_usage = "steadfast inject COMMAND")]
    Inject {
        #[command(subcommand)]
        verb: inject::Verb,
    },
    /// Compile C so that event handlers run twice and are compared: CC="steadfast cc"
    ///
    /// Takes clang's arguments. Handlers, their input and output are named by annotations
    /// (steadfast/sei.h) or by a policy file: --steadfast-policy=FILE, or STEADFAST_POLICY. A program
    /// whose handlers reach code that is not hardened is not linked, and the way there is named.
    ///
    /// The exit status is clang's, or 1 where a link is refused.
    #[command(
        override_usage = "steadfast cc [CLANG'S ARGUMENTS]...",
        disable_help_flag = true
    )]
    Cc {
        /// clang's arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<OsString>,
    },
    /// Compile C++ in the same way: CXX="steadfast c++"
    ///
    /// Takes clang++'s arguments, and the flags of `steadfast cc` but for --validate=async, which is for C.
    #[command(
        name = "c++",
        override_usage = "steadfast c++ [CLANG'S ARGUMENTS]...",
        disable_help_flag = true
    )]
    Cxx {
        /// clang's arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<OsString>,
    },
    /// Write the completions of a shell to standard output
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write a page of the manual to standard output
    #[command(hide = true)]
    Man {
        /// A subcommand; without it, the page of the command itself
        page: Option<String>,
    },
}

/// A flag that takes one of the words of a shared enum; help shows each word with its meaning.
macro_rules! one_of {
    ($words:ty) => {
        PossibleValuesParser::new(
            <$words>::ALL
                .iter()
                .map(|word| PossibleValue::new(word.word()).help(word.meaning())),
        )
        .try_map(|word| <$words>::from_word(&word).ok_or("not a known word"))
    };
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Number of replicas: 2 detect every disagreement and repair it by running again against the
    /// log, 3 and more repair it by majority
    #[arg(short = 'n', long, value_name = "N", default_value_t = Plan::REPLICAS_DEFAULT,
          value_parser = clap::value_parser!(u8).range(1..=i64::from(Plan::REPLICAS_MAX)))]
    replicas: u8,

    /// What a disagreement leads to
    #[arg(long, value_name = "ACTION", default_value_t, value_parser = one_of!(OnMismatch))]
    on_mismatch: OnMismatch,

    /// Also compare memory between events, to find damage that has not reached one yet
    #[arg(long, value_name = "WHAT", default_value_t, value_parser = one_of!(CheckMemory))]
    check_memory: CheckMemory,

    /// Share of CPU time, in percent, that comparing memory may take
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = epoch_budget)]
    epoch_budget: EpochBudget,

    /// Memory of which every replica gets a physical copy of its own, so that a flip in a page strikes one of them only
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = PossibleValuesParser::new(["text", "rodata", "all"]))]
    private: Vec<String>,

    /// Where replicas run: auto, spread, pack, or a list of CPUs such as 0,2-3
    #[arg(long, value_name = "WHERE", default_value = "auto", value_parser = placement)]
    placement: Placement,

    /// Whether two replicas may share one physical core
    #[arg(long, value_name = "HOW", default_value_t, value_parser = one_of!(SmtSiblings))]
    smt_siblings: SmtSiblings,

    /// Whether large regions ask for huge pages
    #[arg(long, value_name = "HOW", default_value_t, value_parser = one_of!(HugePages))]
    huge_pages: HugePages,

    /// What keeps a system call that does not come through the gate from reaching the kernel
    #[arg(long, value_name = "WHAT", default_value_t, value_parser = one_of!(Backstop))]
    backstop: Backstop,

    /// Whether followers see the leader's process numbers
    #[arg(long, value_name = "HOW", default_value_t, value_parser = one_of!(EqualPids))]
    equal_pids: EqualPids,

    /// Run this program bare where a child process becomes it: a name, or a path; may be given several times
    #[arg(long, value_name = "NAME")]
    unprotected: Vec<PathBuf>,

    /// Inject a fault, such as "replica=1 event=12 reg=rax bit=17"; may be given several times
    #[arg(long, value_name = "FAULT")]
    flip: Vec<String>,

    /// Write events to FILE, one JSON object per line
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,

    /// Write the final report as one JSON object to FILE, or to standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,

    /// Say on standard output what would be patched, trapped and denied, and exit: CMD itself does
    /// not run
    #[arg(long)]
    explain: bool,

    /// Say how the run went even when nothing happened
    #[arg(short, long)]
    verbose: bool,

    /// Do not sum up what happened; errors are still reported
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,

    /// The program and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl PsArgs {
    pub(crate) const fn json(&self) -> bool {
        self.json
    }
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Write one JSON object a line instead of tables
    #[arg(long)]
    json: bool,

    /// Time between two looks, 0.2 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// How often to look; without it, until Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Answer monitors at this address and port instead
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["json", "interval", "count"])]
    http: Option<SocketAddr>,
}

impl TopArgs {
    pub(crate) const fn http(&self) -> Option<SocketAddr> {
        self.http
    }

    pub(crate) const fn json(&self) -> bool {
        self.json
    }

    pub(crate) const fn interval(&self) -> Duration {
        self.interval
    }

    pub(crate) const fn count(&self) -> Option<u64> {
        self.count
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    // Launchers write ten times a second: a shorter look would see nothing new.
    text.parse()
        .ok()
        .filter(|seconds| (0.2..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "an interval is 0.2 to 3600 seconds".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Whether costs are measured, which takes about a second
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"], hide_possible_values = true)]
    costs: String,
}

impl CheckArgs {
    /// Whether the result is JSON.
    pub(crate) const fn json(&self) -> bool {
        self.json
    }

    /// Whether costs are measured.
    pub(crate) fn costs(&self) -> bool {
        self.costs == "on"
    }
}

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Volume {
    Quiet,
    Events,
    Always,
}

/// Why arguments are not a plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgsError {
    #[error("--flip: {0}")]
    Flip(Box<FaultError>),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Find(#[from] FindError),
}

impl Advise for ArgsError {
    fn exit(&self) -> Own {
        match self {
            Self::Flip(_) => Own::Usage,
            Self::Plan(why) => why.exit(),
            Self::Find(why) => why.exit(),
        }
    }

    fn fix(&self) -> Option<Remedy> {
        match self {
            Self::Flip(why) => Some(Remedy::new(&why.fix)),
            Self::Plan(why) => why.fix(),
            Self::Find(why) => why.fix(),
        }
    }
}

impl RunArgs {
    /// The plan that these arguments ask for.
    pub(crate) fn plan(&self, path: Option<&OsStr>) -> Result<Plan, ArgsError> {
        let mut flips = Vec::new();
        for text in &self.flip {
            let faults = match Fault::parse_all(text) {
                // A plan may be empty; a fault that was asked for may not.
                Ok(faults) if faults.is_empty() => text.parse().map(|fault| vec![fault]),
                other => other,
            };
            flips.extend(faults.map_err(|why| ArgsError::Flip(Box::new(why)))?);
        }
        let (program, args) = match self.command.split_first() {
            Some((program, args)) => (program.clone(), args.to_vec()),
            None => (OsString::new(), Vec::new()),
        };
        let chosen = |what: &str| self.private.iter().any(|word| word == what);
        let plan = Plan {
            ambient: os::ambient(),
            replicas: self.replicas,
            on_mismatch: self.on_mismatch,
            check_memory: self.check_memory,
            private: if chosen("all") {
                Private::ALL
            } else {
                Private {
                    text: chosen("text"),
                    rodata: chosen("rodata"),
                    rest: false,
                }
            },
            placement: self.placement.clone(),
            smt_siblings: self.smt_siblings,
            huge_pages: self.huge_pages,
            backstop: self.backstop,
            equal_pids: self.equal_pids,
            unprotected: self.unprotected.clone(),
            flips,
            explain: self.explain,
            epoch_budget: self.epoch_budget,
            ..Plan::new(program.clone(), PathBuf::new(), args)
        };
        // A wrong flag is reported before a missing program: it needs no second run to be found.
        plan.check()?;
        Ok(Plan {
            path: find::find(&program, path)?,
            ..plan
        })
    }

    /// Where events go.
    pub(crate) const fn events(&self) -> Option<&PathBuf> {
        self.events.as_ref()
    }

    /// Where the final report goes; `-` is standard error.
    pub(crate) const fn json(&self) -> Option<&PathBuf> {
        self.json.as_ref()
    }

    /// How much is said on stderr.
    pub(crate) const fn volume(&self) -> Volume {
        match (self.quiet, self.verbose) {
            (true, _) => Volume::Quiet,
            (false, true) => Volume::Always,
            (false, false) => Volume::Events,
        }
    }
}

fn epoch_budget(text: &str) -> Result<EpochBudget, String> {
    // Thousandths are exact; floating point would make 0.3 something else.
    let (whole, tenths) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |s: &str| {
        s.bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| s.parse::<u16>().ok())
            .flatten()
    };
    let permille = match (digits(whole), digits(tenths)) {
        (Some(whole), Some(tenths)) if tenths < 10 => {
            whole.checked_mul(10).and_then(|w| w.checked_add(tenths))
        }
        _ => None,
    };
    permille
        .and_then(EpochBudget::from_permille)
        .ok_or_else(|| "a share is 0.1 to 100, with one decimal".to_owned())
}

fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "auto" => Ok(Placement::Auto),
        "spread" => Ok(Placement::Spread),
        "pack" => Ok(Placement::Pack),
        list if list.starts_with(|c: char| c.is_ascii_digit()) => list.parse().map(Placement::Cpus),
        _ => Err("a placement is auto, spread, pack, or a list of CPUs such as 0,2-3".to_owned()),
    }
}

/// Reads the command line.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, clap::Error> {
    Cli::try_parse_from(args).map(|cli| cli.command)
}

/// The definition, for the manual and the completions.
pub(crate) fn definition() -> clap::Command {
    // Second runs that come later are for C.
    let for_c = ["validate", "hold-output"];
    let cxx = compiler_flags()
        .into_iter()
        .filter(|arg| !for_c.contains(&arg.get_id().as_str()));
    Cli::command()
        .mut_subcommand("cc", |command| command.args(compiler_flags()))
        .mut_subcommand("c++", |command| command.args(cxx))
}

/// Flags of the compiler driver, for the manual and the completions.
fn compiler_flags() -> Vec<clap::Arg> {
    steadfast_cc_driver::flags::FLAGS
        .iter()
        .map(|flag| {
            let arg = clap::Arg::new(flag.name).long(flag.name).help(flag.help);
            match flag.value {
                Some(value) => arg
                    .value_name(value.name)
                    .require_equals(value.same_argument),
                None => arg.action(clap::ArgAction::SetTrue),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
