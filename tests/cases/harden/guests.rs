//! Guests print hardened what they print plain, whatever way they are built.

use std::os::unix::process::ExitStatusExt;

use libtest_mimic::Failed;

use super::compile::{MORE_WAYS, REPAIRING, WAYS, build, compiler, ended, program, run, source};
use crate::bench::{Bench, workspace};
use crate::sample::{all, sampled};
use crate::trial::Trial;

/// Guests whose output is compared.
pub(crate) const GUESTS: &[&str] = &[
    "libsei.c",
    "inputs.c",
    "calls.c",
    "descriptors.c",
    "threads.c",
    "once.c",
    "streams.c",
    "sizes.c",
    "loops.c",
    "conditions.c",
    "faults.c",
    "constructs.c",
    "library.c",
    "differ.c",
    "exceptions.cc",
    "conditions.cc",
    "constructs.cc",
];

/// An exception that leaves a handler and that nobody catches ends the program as it ends the plain one.
fn uncaught() -> Result<(), Failed> {
    let (way, flags) = WAYS[1];
    for hardened in [false, true] {
        let ran = run(&program("exceptions.cc", way, flags, hardened)?, &["x"])?;
        let said = String::from_utf8_lossy(&ran.stderr);
        if ran.status.signal() != Some(6) || !said.contains("'(anonymous namespace)::Odd'") {
            return Err(format!("hardened {hardened}: {}\n{said}", ran.status).into());
        }
    }
    Ok(())
}

fn same(guest: &str, way: &str, flags: &[&str]) -> Result<(), Failed> {
    let as_plain = if way == REPAIRING.0 {
        WAYS[1]
    } else {
        (way, flags)
    };
    let plain = run(&program(guest, as_plain.0, as_plain.1, false)?, &[])?;
    let hardened = run(&program(guest, way, flags, true)?, &[])?;
    if !plain.status.success() || plain.stdout.is_empty() {
        return Err(format!("the plain build of {guest} ends with {}", plain.status).into());
    }
    if hardened.status != plain.status
        || hardened.stdout != plain.stdout
        || !hardened.stderr.is_empty()
    {
        return Err(format!(
            "{guest} hardened ({way}) ends with {}, prints {} of {} bytes\n{}",
            hardened.status,
            hardened.stdout.len(),
            plain.stdout.len(),
            String::from_utf8_lossy(&hardened.stderr)
        )
        .into());
    }
    Ok(())
}

/// Waits between handlers whose state at rest has copies and checksums.
fn waits_with_state() -> Result<(), Failed> {
    let plain = run(&program("conditions.c", "O2", &["-O2"], false)?, &[])?;
    let flags = &["-O2", "--state=dup,crc"];
    let ran = run(&program("conditions.c", "state", flags, true)?, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    if ran.stdout != plain.stdout {
        return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
    }
    Ok(())
}

/// After a large handler and many small ones a thread keeps what it kept before.
fn memory_is_given_back(way: &str, flags: &[&str]) -> Result<(), Failed> {
    let ran = run(&program("memory.c", way, flags, true)?, &[])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    ended(&ran, 0, &[], &["steadfast"]).map_err(|_| said.into_owned().into())
}

/// What copies, compares and sums up bytes, around all seams: cc/tests/checksums.c.
fn checksums() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-checksums");
    let program = dir.join("checksums");
    let sources = [
        source("checksums.c"),
        workspace().join("cc/envelope/crc32c.c"),
    ];
    build(compiler(true, false), &["-O2"], &sources, &program)?;
    let ran = run(&program, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if said
        .lines()
        .filter(|line| line.ends_with(" 0 wrong"))
        .count()
        != 3
    {
        return Err(said.into_owned().into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, guest) in GUESTS.iter().enumerate() {
        for (column, (way, flags)) in WAYS.iter().copied().chain([REPAIRING]).enumerate() {
            // -O2 has each: the strikes and other modes are held against it.
            if way != "O2" && !sampled(row, column) {
                continue;
            }
            trials.push(Trial::test(format!("harden::{guest}::{way}"), move || {
                same(guest, way, flags)
            }));
        }
    }
    for (row, guest) in [
        "libsei.c",
        "constructs.c",
        "library.c",
        "exceptions.cc",
        "constructs.cc",
    ]
    .into_iter()
    .enumerate()
    {
        for (column, (way, flags)) in MORE_WAYS.iter().enumerate() {
            if row % 2 != column && !all() {
                continue;
            }
            trials.push(Trial::test(format!("harden::{guest}::{way}"), move || {
                same(guest, way, flags)
            }));
        }
    }
    trials.extend([
        Trial::test("harden::conditions.c::state", waits_with_state),
        Trial::test("harden::uncaught", uncaught),
        Trial::test("harden::checksums", checksums),
        Trial::test("harden::memory.c::O2", || {
            memory_is_given_back("O2", &["-O2"])
        }),
        Trial::test("harden::memory.c::other_core", || {
            memory_is_given_back("other_core", &["-O2", "--other-core"])
        }),
    ]);
    trials
}
