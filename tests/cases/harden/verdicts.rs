//! What a verdict says: the place, the address, the event's line.

use std::process::Command;

use libtest_mimic::Failed;
use steadfast_contract::event::{HardenAction, HardenMismatch, Line, What};

use super::compile::{ended, own_program, program, run};
use crate::bench::Bench;
use crate::trial::Trial;

/// A handler that depends on an address: the flag names the store and its line.
fn nondeterminism() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-nondeterminism");
    let out = own_program(
        &dir,
        "clock.c",
        include_str!("../../../cc/tests/programs/ticks.c"),
        &["-O1", "--find-nondeterminism"],
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 122, &["clock.c:11", "0x1 and 0x2"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A byte of a message that changes behind the log's back, while others of the message are overwritten by the handler.
/// Silent where there is none, also behind an event that stores nothing.
fn no_nondeterminism() -> Result<(), Failed> {
    let plain = run(&program("loops.c", "O2", &["-O2"], false)?, &[])?;
    let flags = ["-O2", "--find-nondeterminism"];
    let ran = run(&program("loops.c", "find", &flags, true)?, &[])?;
    ended(&ran, 0, &[], &["nondeterminism"])?;
    if ran.stdout == plain.stdout {
        Ok(())
    } else {
        Err(format!("it prints {}", String::from_utf8_lossy(&ran.stdout)).into())
    }
}

/// A verdict as a line of the events file.
fn event_line() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-events");
    let events = dir.join("events");
    let ran = Command::new(program("faults.c", "O2", &["-O2"], true)?)
        .args(["byte", "2", "1"])
        .env("STEADFAST_EVENTS", &events)
        .output()?;
    let line: Line = serde_json::from_str(&std::fs::read_to_string(&events)?)?;
    let right = |what: &HardenMismatch| {
        what.handler == "handle"
            && what.event == 2
            && what.action == HardenAction::Stopped
            && what.tsc.as_deref().is_some_and(|tsc| tsc.len() > 8)
    };
    let told = matches!(&line.event.what, What::HardenMismatch(what) if right(what));
    if ran.status.code() != Some(122) || !told || (line.v, line.seq) != (1, 0) {
        return Err(format!("{line:?}").into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// The file is the one that the name meant at the start, wherever the program goes and whatever it does to its environment.
fn event_line_elsewhere() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-events-elsewhere");
    let out = own_program(
        &dir,
        "run.c",
        include_str!("../../../cc/tests/programs/elsewhere.c"),
        &["-O1"],
    )?;
    let ran = Command::new(&out)
        .current_dir(&dir)
        .env("STEADFAST_EVENTS", "events")
        .output()?;
    let told = std::fs::read_to_string(dir.join("events"))?;
    if ran.status.code() != Some(122) || !told.contains("harden_mismatch") {
        return Err(format!("{}: {told}", ran.status).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("harden::nondeterminism", nondeterminism),
        Trial::test("harden::nondeterminism::none", no_nondeterminism),
        Trial::test("harden::event_line", event_line),
        Trial::test("harden::event_line_elsewhere", event_line_elsewhere),
    ]
}
