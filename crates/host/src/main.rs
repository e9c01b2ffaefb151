//! `steadfast-host`: runs components that come back when they fail. `steadfast host` executes it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command prints"
)]

mod app;
mod cli;
mod clients;
mod compile;
mod demo;
mod generate;
mod load;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
