//! `steadfast pair`: one program on two hosts, each with a disk of its own.
//!
//! The primary runs the program; the secondary runs it too, on its own files, from the primary's
//! log. What one disk returns wrong is found when it is read, attributed by a ledger of page
//! digests, and repaired before either program goes on. docs/concepts/pair.md says what holds and
//! what does not.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command"
)]

mod alone;
mod arbiter;
mod asks;
mod attributes;
mod bench;
mod board;
mod bring;
mod check;
mod cli;
mod control;
mod crew;
mod demo;
mod disk;
mod dispute;
mod door;
mod error;
mod files;
mod given;
mod hex;
mod hold;
mod hosts;
mod incident;
mod join;
mod lead;
mod ledger;
mod link;
mod loss;
mod mosaic;
mod page;
mod prepare;
mod primary;
mod relay;
mod say;
mod scrub;
mod secondary;
mod shared;
mod stage;
mod status;
mod tls;
mod turns;
mod verify;
mod witness;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};
use steadfast_contract::advice::Advise;
use steadfast_contract::exit::Own;
use steadfast_replica::site::{DESCRIPTORS_MAX, End};

use board::What;
use cli::{Cli, Command, Side};
use control::Outcome;
use error::PairError;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(said) if said.use_stderr() => {
            eprintln!(
                "steadfast pair: {}",
                steadfast_manual::usage(&said).trim_end()
            );
            return ExitCode::from(Own::Usage.code());
        }
        Err(said) => {
            say::result(format_args!("{}", said.render()));
            return ExitCode::from(say::end(0));
        }
    };
    let result = match &cli.command {
        Command::Primary(side) => settle(side)
            .and_then(|()| primary::run(side))
            .and_then(ended),
        Command::Secondary(side) => settle(side)
            .and_then(|()| secondary::run(side))
            .and_then(ended),
        Command::Join(side) => settle(side).and_then(|()| join::run(side)).and_then(ended),
        Command::Switch(order) => control::ask(order, What::Switch),
        Command::Detach(order) => control::ask(order, What::Detach),
        Command::Check(side) => check::run(side),
        Command::Verify(options) => verify::run(options),
        Command::Status(options) => status::show(options),
        Command::Top(options) => status::top(options),
        Command::Demo(options) => demo::run(options),
        Command::Bench(options) => bench::run(options),
        Command::DemoHost(host) => demo::host(host),
        Command::Completions { shell } => {
            print(Ok(steadfast_manual::completions(*shell, Cli::command())))
        }
        Command::Man => print(steadfast_manual::page_with_verbs(&Cli::command())),
    };
    match result {
        Ok(code) => ExitCode::from(say::end(code)),
        Err(error) => {
            error::print(&error);
            ExitCode::from(say::end(error.exit().code()))
        }
    }
}

/// Prints what is made from the definition of the flags.
fn print(text: std::io::Result<String>) -> Result<u8, PairError> {
    let text = text.map_err(|source| PairError::Kernel {
        part: "the manual",
        source,
    })?;
    say::result(format_args!("{text}"));
    Ok(0)
}

/// Executes this command again with the environment that the program is to have: both sites then lay out
/// the program's stack alike. What systemd has said goes along as flags.
fn settle(side: &Side) -> Result<(), PairError> {
    let wanted = prepare::environment(&side.env);
    let kernel = |source| PairError::Kernel {
        part: "the memory layout of the program",
        source,
    };
    if std::env::vars().collect::<std::collections::BTreeMap<_, _>>() != wanted {
        let own = std::fs::read_link("/proc/self/exe").map_err(kernel)?;
        return Err(kernel(
            std::process::Command::new(own)
                .args(std::env::args_os().skip(1).take(1))
                .args(manager())
                .args(std::env::args_os().skip(2))
                .env_clear()
                .envs(wanted)
                .exec(),
        ));
    }
    steadfast_sys::layout::settle(DESCRIPTORS_MAX).map_err(kernel)?;
    if let Some(line) = check::unlisted(side) {
        eprintln!("steadfast pair: {line}");
    }
    Ok(())
}

fn manager() -> Vec<String> {
    [
        ("NOTIFY_SOCKET", "--notify-socket"),
        ("WATCHDOG_USEC", "--watchdog-usec"),
    ]
    .into_iter()
    .filter_map(|(name, flag)| Some(format!("{flag}={}", std::env::var(name).ok()?)))
    .collect()
}

fn ended(outcome: Outcome) -> Result<u8, PairError> {
    match outcome {
        Outcome::Ended(end) => status(end),
        Outcome::Left => Ok(0),
        Outcome::Follows => Err(control::follow()),
    }
}

fn status(end: End) -> Result<u8, PairError> {
    match end {
        End::Exited(status) => Ok(status.to_le_bytes()[0]),
        // As a shell tells it.
        End::Signaled(signal) => Ok(128_u8.wrapping_add(signal.to_le_bytes()[0])),
        End::Refused(what, fix) => Err(PairError::Unsupported(what, fix)),
        End::Failed(what) => Err(PairError::Bug(what)),
    }
}
