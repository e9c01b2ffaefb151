//! What the command prints, as text first: errors in one shape, the explanation of a plan.
//!
//! ```text
//! steadfast: requirement, value found
//!   cause: the chain of sources, once
//!   fix:   what to do about it
//!   or:    an alternative   (and what it costs)
//! ```
//!
//! Invariants
//!  1. Writing never fails the run of a program. A closed stderr loses the text, not the status.
//!  2. A result that standard output did not take is told, and is no success, unless its reader has left.

use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::panic::PanicHookInfo;
use std::path::Path;

use clap::error::ErrorKind;
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::{Exit, Own};
use steadfast_contract::plan::Coverage;

use crate::remedies;

/// The two streams that the command may write to.
pub(crate) struct Console<'a> {
    /// For results.
    pub(crate) out: &'a mut dyn io::Write,
    /// For everything else.
    pub(crate) err: &'a mut dyn io::Write,
    /// Why a result was not written, the first time.
    pub(crate) lost: Option<io::Error>,
}

/// Standard output did not take a result.
#[derive(Debug, thiserror::Error)]
#[error("standard output has to take the result, and it could not be written to the end")]
struct Unwritten(#[source] io::Error);

impl Advise for Unwritten {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(
            "standard output that is open, on a device with room",
        ))
    }
}

impl Console<'_> {
    /// A result.
    pub(crate) fn result(&mut self, text: &str) {
        let written = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        if let Err(why) = written {
            self.lost.get_or_insert(why);
        }
    }

    /// How the command ends, which would have ended so: not well where a result was lost. Whoever has closed a pipe has seen
    /// what it wanted.
    pub(crate) fn settle(&mut self, exit: Exit) -> Exit {
        match self.lost.take() {
            Some(why) if why.kind() != io::ErrorKind::BrokenPipe => {
                let lost = self.refuse(&Unwritten(why));
                if exit == Exit::Status(0) { lost } else { exit }
            }
            _ => exit,
        }
    }

    /// Anything else; in one piece, so that other writers do not cut in.
    pub(crate) fn say(&mut self, text: &str) {
        if !text.is_empty() {
            let _ = self.err.write_all(text.as_bytes());
        }
    }

    /// An error, and the exit that it leads to.
    pub(crate) fn refuse(&mut self, why: &dyn Advise) -> Exit {
        self.say(&error(why));
        Exit::Own(why.exit())
    }
}

/// A program chooses its arguments: none of them speaks to the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// An error in the common shape.
pub(crate) fn error(error: &dyn Advise) -> String {
    let mut text = format!("steadfast: {error}\n");
    let mut causes: Vec<String> = Vec::new();
    let mut source = Error::source(error);
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    // A wrapper that only repeats its source adds nothing.
    causes.dedup();
    if !causes.is_empty() {
        let _ = writeln!(text, "  cause: {}", causes.join(": "));
    }
    let remedies: Vec<(&str, Remedy)> = error
        .fix()
        .into_iter()
        .map(|fix| ("fix:", fix))
        .chain(error.alternatives().into_iter().map(|other| ("or:", other)))
        .collect();
    // Notes stand in one column, unless an action is so long that it would push them off.
    const WHAT_COLUMNS_MAX: usize = 60;
    let width = remedies
        .iter()
        .map(|(_, r)| r.what.chars().count())
        .filter(|&w| w <= WHAT_COLUMNS_MAX)
        .max();
    for (label, remedy) in &remedies {
        let line = match remedy.note.as_str() {
            "" => format!("  {label:<6} {}", remedy.what),
            note => format!(
                "  {label:<6} {:<width$}   ({note})",
                remedy.what,
                width = width.unwrap_or(0)
            ),
        };
        let _ = writeln!(text, "{line}");
    }
    text
}

/// A wrong command line, or a request for help.
pub(crate) fn usage(console: &mut Console<'_>, said: &clap::Error) -> Exit {
    let text = said.render().to_string();
    match said.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            console.result(&text);
            Exit::Status(0)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            console.say(&text);
            Exit::Own(Own::Usage)
        }
        _ => {
            console.say(&format!("steadfast: {}", steadfast_manual::usage(said)));
            Exit::Own(Own::Usage)
        }
    }
}

/// Our own failure.
pub(crate) fn bug(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let what = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a message");
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    format!(
        "steadfast: bug: {what}\n  cause: {place}, version {}\n  fix:   please report it with the command line and the program's version\n",
        env!("CARGO_PKG_VERSION"),
    )
}

/// `--explain`: what is patched, trapped, denied and unknown, and what the program may start.
pub(crate) fn explain(coverage: &Coverage, program: &Path) -> String {
    let mut text = format!(
        "{} sites jump to the agent, {} trap into it; {} executable bytes were not decoded\n",
        coverage.patched, coverage.slow_path, coverage.unpatched_bytes
    );
    if !coverage.modules.is_empty() {
        let width = coverage
            .modules
            .iter()
            .map(|m| m.module.chars().count())
            .max()
            .unwrap_or(0)
            .max("module".len());
        let _ = writeln!(
            text,
            "\n{:<width$} {:>7} {:>5} {:>11} {:>11}  instructions",
            "module", "patched", "trap", "bytes", "not decoded"
        );
        for module in &coverage.modules {
            let patched: u64 = module.patched.values().sum();
            let kinds: Vec<String> = module
                .patched
                .iter()
                .map(|(kind, count)| format!("{kind} {count}"))
                .collect();
            let _ = writeln!(
                text,
                "{:<width$} {patched:>7} {:>5} {:>11} {:>11}  {}",
                module.module,
                module.slow_path,
                module.executable_bytes,
                module.unpatched_bytes,
                kinds.join(", ")
            );
        }
    }
    let starters: Vec<_> = coverage
        .modules
        .iter()
        .filter(|module| !module.starts.is_empty())
        .collect();
    if !starters.is_empty() {
        text.push_str("\nmay start threads or processes (code loaded later is not seen)\n");
        for module in starters {
            let _ = writeln!(text, "  {}: {}", module.module, module.starts.join(", "));
        }
        text.push_str(
            "  of a replica's threads one runs at a time; each process is a group of its own\n",
        );
    }
    if let Some(flag) = remedies::one_thread(program) {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(text, "\nto do without threads: {name} {flag}");
    }
    if !coverage.slow_sites.is_empty() {
        text.push_str("\non the slow path\n");
        for slow in &coverage.slow_sites {
            let _ = writeln!(
                text,
                "  {} {}: {}",
                slow.instruction, slow.site, slow.reason
            );
        }
    }
    if !coverage.denied_calls.is_empty() {
        text.push_str("\nanswered with an error\n");
        for denied in &coverage.denied_calls {
            let _ = writeln!(text, "  {} {}", denied.errno, denied.call);
        }
    }
    text
}
