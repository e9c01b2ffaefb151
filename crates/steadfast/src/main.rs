//! The command: flags in, verdict and exit code out.
//!
//! Raw arguments become a checked [`Plan`](steadfast_contract::plan::Plan) before anything
//! starts; the engine runs it; what it saw is written to `--events` and `--json`, and summed up
//! on stderr when there is something to say.
//!
//! Invariants
//!  1. No crate below it prints. `kv`, `pair` and `host` are commands of their own.
//!  2. Between the program's first instruction and its last, nothing is written to its streams.
//!     When replicas agreed and nobody asked, nothing is written at all.
//!  3. The program's status passes through untouched, its death by a signal is died again, and
//!     what Steadfast says for itself is one of [`Own`](steadfast_contract::exit::Own).
//!
//! Not covered: how a plan is carried out. That is behind [`engine`].

mod cc;
mod check;
mod cli;
mod engine;
mod find;
mod inject;
mod manual;
mod metrics;
mod os;
mod parts;
mod remedies;
mod report;
mod run;
mod status;
mod summary;

use std::io::{self, Write as _};
use std::panic;
use std::process;

use steadfast_contract::exit::{Exit, Own};

use report::Console;

fn main() {
    panic::set_hook(Box::new(|info| {
        // There is nobody left to tell if this fails.
        let _ = io::stderr().write_all(report::bug(info).as_bytes());
    }));
    end(panic::catch_unwind(command).unwrap_or(Exit::Own(Own::Bug)))
}

/// Ends this process so.
fn end(exit: Exit) -> ! {
    match exit {
        Exit::Status(status) => process::exit(status.into()),
        Exit::Own(own) => process::exit(own.code().into()),
        Exit::Signal(signal) => os::die_of(signal),
    }
}

fn command() -> Exit {
    let mut out = os::Output(io::stdout());
    let mut console = Console {
        out: &mut out,
        err: &mut io::stderr(),
        lost: None,
    };
    let exit = carry_out(&mut console);
    console.settle(exit)
}

fn carry_out(console: &mut Console<'_>) -> Exit {
    // A compiler's arguments are clang's to read, so they never meet our own parser.
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(cxx) = arguments.first().and_then(cc::by_name) {
        return cc::compile(cxx, &arguments[1..], console);
    }
    match arguments.get(1).and_then(|word| word.to_str()) {
        Some("cc") => return cc::compile(false, &arguments[2..], console),
        Some("c++") => return cc::compile(true, &arguments[2..], console),
        Some(word) if let Some(part) = parts::named(word) => {
            let Err(missing) = part.execute(&arguments[2..]);
            return console.refuse(&missing);
        }
        _ => {}
    }
    if let Err(why) = steadfast_replica::limits::stack() {
        return console.refuse(&why);
    }
    match cli::parse(arguments) {
        Ok(cli::Command::Run(args)) => run::run(&args, console, engine::run),
        Ok(cli::Command::Check(args)) => check::check(&args, console),
        Ok(cli::Command::Ps(args)) => status::ps(&args, console),
        Ok(cli::Command::Top(args)) => status::top(&args, console),
        Ok(cli::Command::Inject { verb }) => inject::inject(&verb, console),
        // Only reached by a form that is not a call of a compiler: help has been printed already.
        Ok(cli::Command::Cc { arguments }) => cc::compile(false, &arguments, console),
        Ok(cli::Command::Cxx { arguments }) => cc::compile(true, &arguments, console),
        Ok(cli::Command::Completions { shell }) => manual::completions(console, shell),
        Ok(cli::Command::Man { page }) => manual::man(console, page.as_deref()),
        Err(said) => report::usage(console, &said),
    }
}
