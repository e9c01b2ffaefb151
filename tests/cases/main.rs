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
//!  4. Groups of two and more replicas run one at a time: this machine may have two cores only.
//!
//! Not covered: performance (bench/), campaigns of random flips (make campaign).

#![allow(
    clippy::print_stderr,
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
mod outside;
mod packages;
mod pass;
mod programs;
mod returns;
mod run;
mod sample;
mod sanitize;
mod service;
mod spawns;
mod state;
mod status;
mod tree;
mod unprotected;
mod user;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use bench::Bench;

/// A name and what makes its cases.
type Module = (&'static str, fn() -> Vec<Trial>);

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
    let modules: [Module; 7] = [
        ("guests", guests::trials),
        ("programs", programs::trials),
        ("faults", faults::trials),
        ("outside", outside::trials),
        ("command", command::trials),
        ("harden", harden::trials),
        ("user", user::trials),
    ];
    let mut failed = false;
    for (name, trials) in modules {
        if bench.is_bare_only() && !matches!(name, "guests" | "programs") {
            continue;
        }
        if !arguments.list {
            eprintln!("{name}: {}", bench.describe());
        }
        failed |= libtest_mimic::run(&arguments, trials()).has_failed();
    }
    bench.tidy();
    if failed {
        ExitCode::from(101)
    } else {
        ExitCode::SUCCESS
    }
}
