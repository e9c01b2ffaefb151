//! `steadfast host check` without an application: what this machine allows, found out by trying.
//!
//! Not covered: what an application needs beyond that, such as a port that is free.

use std::process::ExitCode;

use steadfast_probe::{Finding, State};
use steadfast_restart::Engine;
use steadfast_sys::procfs;

/// What was tried, and what came of it.
struct Row {
    name: &'static str,
    /// The error says what is missing.
    found: Result<String, String>,
    /// What helps.
    fix: String,
    /// Whether components do not run as they should without it.
    needed: bool,
}

/// Wild faults become errors: the pad tests itself with one of each kind.
fn pad() -> Row {
    let (found, fix) = match Engine::new(true) {
        Ok(engine) => {
            let test = engine.self_test().unwrap_or_default();
            let us = test.slowest_ns / 1000;
            let told = format!(
                "{} wild faults became errors, the slowest in {us} us",
                test.diverted
            );
            (Ok(told), String::new())
        }
        Err(error) => (Err(error.to_string()), error.fix().to_string()),
    };
    Row {
        name: "signal pad",
        found,
        fix,
        needed: true,
    }
}

/// Code is mapped from files: with the pad in place no page of this process is both.
fn code() -> Row {
    let own = procfs::maps(std::process::id().cast_signed());
    let found = match own {
        Ok(all) => {
            let both = all.iter().filter(|map| map.writable && map.executable);
            match both.count() {
                0 => Ok("no page is both writable and executable".into()),
                n => Err(format!("{n} mappings are both writable and executable")),
            }
        }
        Err(error) => Err(format!("/proc/self/maps: {error}")),
    };
    Row {
        name: "code from files alone",
        found,
        fix: "a mounted /proc, and no tool that writes code into this process".into(),
        needed: true,
    }
}

/// What `steadfast check` says of components as well, but for what is tried above with wasmtime.
fn others(here: &[Row]) -> Vec<Row> {
    let found = steadfast_probe::components();
    let others = found
        .into_iter()
        .filter(|one| here.iter().all(|row| row.name != one.name));
    others.map(Row::from).collect()
}

impl From<Finding> for Row {
    fn from(finding: Finding) -> Self {
        let works = finding.state == State::Works;
        Self {
            name: finding.name,
            found: if works {
                Ok(finding.seen)
            } else {
                Err(finding.seen)
            },
            fix: finding.fix.unwrap_or_default(),
            // Nothing but a task with a priority needs one.
            needed: finding.name != "real-time priority",
        }
    }
}

/// Prints all of it. Status 1 where components would not run as they should.
pub(crate) fn check() -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    let mut rows = vec![pad(), code()];
    rows.extend(others(&rows));
    for row in rows {
        match row.found {
            Ok(told) => println!("works    {:<24}{told}", row.name),
            Err(told) => {
                println!("absent   {:<24}{told}\n  fix:   {}", row.name, row.fix);
                if row.needed {
                    status = ExitCode::FAILURE;
                }
            }
        }
    }
    status
}
