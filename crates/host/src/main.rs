//! `steadfast-host`: runs components that come back when they fail. `steadfast host` executes it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command prints"
)]

mod analyse;
mod app;
mod bench;
mod board;
mod campaign;
mod cli;
mod clients;
mod compile;
mod control;
mod demo;
mod dumps;
mod events;
mod generate;
mod guard;
mod keep;
mod listen;
mod load;
mod machine;
mod output;
mod run;
mod script;
mod strike;
mod tasks;
mod told;
mod top;
mod upgrade;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
