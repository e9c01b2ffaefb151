//! `--other-core` and `--barrier`: the second run elsewhere, and outputs that wait for it.

use std::process::Command;

use libtest_mimic::Failed;

use super::compile::{ended, own_program, program, run};
use super::guests::GUESTS;
use crate::bench::Bench;
use crate::sample::sampled;
use crate::trial::Trial;

/// The flags of what `--other-core` is compared with; one guest counts checksums by the processor's instruction.
const CORES: &[&str] = &["-O2", "-msse4.2"];

/// `--other-core`: guests behave as ever, one that crashes in its second run is repaired, and what is wrong on one core
/// only is found. A machine with one core refuses, which is as much as it can show.
fn other_core(
    guest: &str,
    arguments: &[&str],
    recover: bool,
    status: i32,
    names: &[&str],
) -> Result<(), Failed> {
    let golden = run(&program(guest, "sse4", CORES, false)?, &[])?;
    let (way, flags): (_, &[&str]) = if recover {
        (
            "cores-recover",
            &["-O2", "-msse4.2", "--other-core", "--recover"],
        )
    } else {
        ("cores", &["-O2", "-msse4.2", "--other-core"])
    };
    let ran = run(&program(guest, way, flags, true)?, arguments)?;
    if ran.status.code() == Some(121) {
        return ended(
            &ran,
            121,
            &["another core", "fix:", "without --other-core"],
            &[],
        );
    }
    ended(&ran, status, names, &[])?;
    let fine = if status == 0 {
        ran.stdout == golden.stdout && (ran.stderr.is_empty() || !names.is_empty())
    } else {
        golden.stdout.starts_with(&ran.stdout)
    };
    if fine {
        return Ok(());
    }
    Err(format!(
        "prints {} of {} bytes\n{}",
        ran.stdout.len(),
        golden.stdout.len(),
        String::from_utf8_lossy(&ran.stderr)
    )
    .into())
}

/// With one core the second run is as wrong as the first: what `--other-core` is for.
fn one_core_agrees_with_itself() -> Result<(), Failed> {
    let golden = run(&program("cores.c", "sse4", CORES, false)?, &[])?;
    let ran = run(&program("cores.c", "sse4", CORES, true)?, &["always"])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    if ran.stdout == golden.stdout {
        return Err("the simulated core computes rightly".into());
    }
    Ok(())
}

/// A child of fork has no partner and gets its own; signals come when the second run has ended, none is lost.
fn other_core_forks() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-other-core-fork");
    let out = own_program(
        &dir,
        "run.c",
        include_str!("../../../cc/tests/programs/forks_and_signals.c"),
        &["-O2", "--other-core"],
    )?;
    let ran = run(&out, &[])?;
    if ran.status.code() != Some(121) {
        ended(&ran, 0, &[], &["steadfast"])?;
        if ran.stdout != b"4001 2000 7\n" {
            return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What leaves one thread waits for another's handler with `--barrier`, and does not without. Times are compared with how long
/// that handler took on this machine; a thread that lost its processor for so long may look held, so that is tried again.
fn barrier(on: bool) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(if on {
        "harden-barrier"
    } else {
        "harden-no-barrier"
    });
    let flags: &[&str] = if on { &["-O2", "--barrier"] } else { &["-O2"] };
    let out = own_program(
        &dir,
        "run.c",
        include_str!("../../../cc/tests/programs/barrier.c"),
        flags,
    )?;
    let want: &[u8] = if on { b"held\n" } else { b"left\n" };
    for _ in 0..3 {
        let ran = run(&out, &[])?;
        ended(&ran, 0, &[], &["steadfast"])?;
        if ran.stdout == want {
            Bench::get().passed(&dir);
            return Ok(());
        }
    }
    Err(format!(
        "three times not {}",
        String::from_utf8_lossy(want).trim_end()
    )
    .into())
}

/// Never unprotected in silence: without a second core the program does not begin.
fn other_core_needs_two() -> Result<(), Failed> {
    let out = program(
        "cores.c",
        "cores",
        &["-O2", "-msse4.2", "--other-core"],
        true,
    )?;
    let first = steadfast_sys::cpu::allowed()[0];
    let ran = Command::new("taskset")
        .args(["-c", &first.to_string()])
        .arg(&out)
        .output()?;
    ended(&ran, 121, &["one core only", "fix:"], &[])
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, guest) in GUESTS.iter().chain(&["cores.c"]).enumerate() {
        if !sampled(row, 2) {
            continue;
        }
        trials.push(Trial::test(
            format!("harden::other_core::{guest}"),
            move || other_core(guest, &[], false, 0, &[]),
        ));
    }
    for (place, names) in [("value", "runs again"), ("crash", "crashed")] {
        for in_run in ["1", "2"] {
            trials.push(Trial::test(
                format!("harden::other_core::{place}_{in_run}"),
                move || {
                    let says = &[names, "recovered"];
                    other_core("faults.c", &[place, in_run, "3"], true, 0, says)
                },
            ));
        }
    }
    for how in ["always", "some"] {
        trials.push(Trial::test(
            format!("harden::other_core::wrong_{how}"),
            move || other_core("cores.c", &[how], false, 122, &["memory is written"]),
        ));
    }
    trials.extend([
        Trial::test("harden::other_core::recover_names_cores", || {
            other_core("cores.c", &["always"], true, 122, &["one of its two cores"])
        }),
        Trial::test("harden::other_core::forks", other_core_forks),
        Trial::test("harden::other_core::needs_two", other_core_needs_two),
        Trial::test("harden::one_core", one_core_agrees_with_itself),
        Trial::test("harden::barrier::holds", || barrier(true)),
        Trial::test("harden::barrier::is_not_there_without", || barrier(false)),
    ]);
    trials
}
