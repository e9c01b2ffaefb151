//! Runs guests and real programs bare, then protected, and compares what the world could see.
//!
//! `cargo test -p steadfast-tests` runs everything; a part of a name selects, as with any Rust test:
//! `cargo test -p steadfast-tests -- write_loop`. The bare run decides what is right; nothing here knows an expected
//! output, except where a documented table answers a call with an errno of its own.
//!
//! ```text
//! STEADFAST_BIN=PATH    the command under test            (default: target/release/steadfast of this workspace)
//! STEADFAST_BIN=none    bare runs only: checks the guests themselves, and says so in every name
//! GUESTS_KEEP=1         keeps the files of cases that passed as well
//! STEADFAST_ALL=1       every case of products that are sampled otherwise (sample.rs)
//! ```
//!
//! Invariants
//!  1. No case is skipped: what is not supported is asserted to be refused, with its words.
//!  2. After every protected run nothing is left: no process, mount, shared memory or file (`left`).
//!  3. A failing case prints the one command that repeats it, and keeps its files.
//!  4. Groups of two and more replicas take turns: this machine may have two cores only. Where a case says when something
//!     happens its group runs alone, elsewhere beside another.
//!  5. The slowest cases of each module are told behind its result.
//!
//! Not covered: performance (bench/), campaigns of random flips (make campaign).

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test harness talks to the person who runs it"
)]

mod adopted;
mod around;
mod awaited;
mod bench;
mod between;
mod build;
mod check;
mod children;
mod command;
mod csmith;
mod denied;
mod faults;
mod frames;
mod guests;
mod harden;
mod install;
mod kills;
mod late;
mod later;
mod left;
mod levels;
mod link;
mod notify;
mod nudges;
mod output;
mod outside;
mod packages;
mod pass;
mod pool;
mod programs;
mod returns;
mod run;
mod sample;
mod sanitize;
mod schedules;
mod scripts;
mod service;
mod spawns;
mod state;
mod status;
mod tree;
mod trial;
mod unprotected;
mod user;

use std::process::ExitCode;
use std::thread;

use libtest_mimic::Arguments;

use bench::Bench;
use trial::Trial;

/// Cases that run side by side, for each core.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// They compute, or say when something happens.
    Computes,
    /// They wait for a program most of the time, or for the turn of a group.
    Waits,
}

impl Pace {
    const fn a_core(self) -> usize {
        match self {
            Self::Computes => 1,
            Self::Waits => 2,
        }
    }
}

struct Module {
    name: &'static str,
    trials: fn() -> Vec<Trial>,
    /// What they do most of the time.
    pace: Pace,
}

const fn module(name: &'static str, trials: fn() -> Vec<Trial>, pace: Pace) -> Module {
    Module { name, trials, pace }
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let bench = match Bench::prepare(&arguments) {
        Ok(bench) => bench,
        Err(why) => {
            eprintln!("{why}");
            // 3: the test bed is at fault, not the product.
            return ExitCode::from(3);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let modules = [
        module("guests", guests::trials, Pace::Waits),
        module("programs", programs::trials, Pace::Waits),
        module("faults", faults::trials, Pace::Waits),
        module("outside", outside::trials, Pace::Computes),
        module("command", command::trials, Pace::Computes),
        module("harden", harden::trials, Pace::Computes),
        module("user", user::trials, Pace::Waits),
    ];
    let mut failed = false;
    for Module { name, trials, pace } in modules {
        if bench.is_bare_only() && !matches!(name, "guests" | "programs") {
            continue;
        }
        if !arguments.list {
            eprintln!("{name}: {}", bench.describe());
        }
        let trials: Vec<libtest_mimic::Trial> = trials().into_iter().map(Into::into).collect();
        // `make test` asks for modules by these names: a case of another name would never run.
        for case in trials.iter().map(libtest_mimic::Trial::name) {
            assert!(
                case.starts_with(&format!("{name}::")),
                "{case} is in {name}"
            );
        }
        let mut arguments = arguments.clone();
        arguments.test_threads.get_or_insert(pace.a_core() * cores);
        failed |= libtest_mimic::run(&arguments, trials).has_failed();
        for (took, case) in trial::slowest() {
            println!("{:>8.1} s  {case}", took.as_secs_f64());
        }
    }
    bench.tidy();
    if failed {
        ExitCode::from(101)
    } else {
        ExitCode::SUCCESS
    }
}
