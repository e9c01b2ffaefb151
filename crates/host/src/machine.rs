//! `steadfast host check` without an application: what this machine allows, found out by trying.
//!
//! Not covered: what an application needs beyond that, such as a port that is free.

use std::process::ExitCode;

use steadfast_restart::Engine;
use steadfast_sys::inherit::PiMutex;
use steadfast_sys::{cpu, procfs};

/// What was tried, and what came of it.
struct Row {
    name: &'static str,
    /// The error says what is missing.
    found: Result<String, String>,
    /// What helps; none where nothing but a task with a priority needs it.
    fix: Option<&'static str>,
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
            (Ok(told), "")
        }
        Err(error) => (Err(error.to_string()), error.fix()),
    };
    Row {
        name: "signal pad",
        found,
        fix: Some(fix),
    }
}

/// A component's lock lends priority, and knows its holder.
fn lending() -> Row {
    let found = match PiMutex::new(()) {
        Ok(lock) => {
            let held = lock.lock();
            // Whoever has it is told so, in place of waiting for itself.
            match (held.is_ok(), lock.lock().is_err()) {
                (true, true) => Ok("a lock lends its holder the priority of whoever waits".into()),
                _ => Err("a lock with priority inheritance does not know its holder".into()),
            }
        }
        Err(error) => Err(error.to_string()),
    };
    Row {
        name: "priority inheritance",
        found,
        fix: Some("a kernel with CONFIG_FUTEX_PI, and a sandbox that lets futex(2) through"),
    }
}

/// Tasks with a priority.
fn urgent() -> Row {
    let tried = cpu::run_at(1);
    if tried.is_ok() {
        cpu::run_ordinarily();
    }
    Row {
        name: "real-time priority",
        found: match tried {
            Ok(()) => Ok("a thread ran at SCHED_FIFO".into()),
            Err(error) => Err(format!(
                "{error}: tasks with a priority need CAP_SYS_NICE or LimitRTPRIO="
            )),
        },
        fix: None,
    }
}

/// Code is mapped from files: with the pad in place no page is both.
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
        fix: Some("a mounted /proc, and no tool that writes code into this process"),
    }
}

/// Prints all of it. Status 1 where components would not run as they should.
pub(crate) fn check() -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for row in [pad(), lending(), urgent(), code()] {
        match (&row.found, row.fix) {
            (Ok(told), _) => println!("works    {:<24}{told}", row.name),
            (Err(told), None) => println!("absent   {:<24}{told}", row.name),
            (Err(told), Some(fix)) => {
                println!("absent   {:<24}{told}\n  fix:   {fix}", row.name);
                status = ExitCode::FAILURE;
            }
        }
    }
    status
}
