//! `--protect=sei`: the paper's rules and no more; `--protect=full`, which all other tests are about, has what these leave out as well.
//!
//! Invariants
//!  1. At sei the paper's faults ring: state, messages, both logs, the sets of writes and calls, locks and gates.
//!  2. What is beyond the paper's rules is silent at sei, and rings at full: so the level takes out what it says.
//!  3. One program has one level: the link says so, and the program itself where another linker made it.
//!
//! Not covered: how much of drawn faults is found (`bench sei-tables`), and what each check costs (`bench sei-servers`).

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::Failed;

use crate::bench::{Bench, workspace};
use crate::harden::{STRIKES, Strike, build, compiler, ended, program, run, source};
use crate::pass::pieces;
use crate::sample::sampled;
use crate::trial::Trial;

const SEI: &[&str] = &["-O2", "--protect=sei"];

/// What `--protect=full` alone looks at: both records of the frames' bounds.
const BEYOND: &[&str] = &["frames", "stack"];

fn at_sei(guest: &str) -> Result<PathBuf, String> {
    program(guest, "sei", SEI, true)
}

fn as_plain(guest: &str) -> Result<(), Failed> {
    let plain = run(&program(guest, "O2", &["-O2"], false)?, &[])?;
    let ran = run(&at_sei(guest)?, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    if ran.stdout == plain.stdout && !plain.stdout.is_empty() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&ran.stdout).into_owned().into())
}

fn struck(place: &str, in_run: u8, names: &str) -> Result<(), Failed> {
    let golden = run(&program("faults.c", "O2", &["-O2"], false)?, &[])?;
    let ran = run(&at_sei("faults.c")?, &[place, &in_run.to_string(), "3"])?;
    if names.is_empty() || BEYOND.contains(&place) {
        ended(&ran, 0, &[], &["steadfast"])?;
    } else {
        ended(&ran, 122, &[names, "handler handle ("], &[])?;
    }
    if golden.stdout.starts_with(&ran.stdout) {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&ran.stdout).into_owned().into())
}

/// Between the receiver's check and a handler, and between a handler and the sender, nothing is kept at sei (cc/tests/provenance.c).
/// `messages_outside` has the same strikes at full.
fn nothing_kept_outside() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-level-provenance");
    let policy = format!(
        "--steadfast-policy={}",
        source("provenance.policy").display()
    );
    let out = dir.join("provenance");
    build(
        compiler(true, false),
        &["-O2", "--protect=sei", &policy],
        &[source("provenance.c")],
        &out,
    )?;
    for mode in ["1", "3", "5", "11"] {
        ended(&run(&out, &[mode])?, 0, &[], &["steadfast"])?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Each instruction of an event left out once, by cc/tests/skips.c: at full nothing of it is missed. At sei most is found, as by the
/// paper, and something is not.
fn some_are_missed() -> Result<(), Failed> {
    let ran = run(&at_sei("skips.c")?, &["skip"])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    let last = said.lines().last().unwrap_or_default();
    let numbers: Vec<u32> = last
        .split([' ', ','])
        .filter_map(|word| word.parse().ok())
        .collect();
    let [_, state, message, _, _, stopped, _] = numbers[..] else {
        return Err(said.into_owned().into());
    };
    let missed = state + message;
    if ran.status.success() && missed > 0 && missed * 100 < stopped {
        return Ok(());
    }
    Err(format!("{}: {last}", ran.status).into())
}

fn one_level() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-level-mixed");
    let out = dir.join("mixed");
    let object = |name: &str, flags: &[&str]| {
        let object = dir.join(name);
        build(compiler(true, false), flags, &[source("libsei.c")], &object)?;
        Ok::<_, String>(object)
    };
    let sei = object("sei.o", &["-O2", "-c", "--protect=sei"])?;
    let full = object("full.o", &["-O2", "-c"])?;
    struct Row<'a> {
        object: &'a PathBuf,
        level: &'static str,
        other: &'static str,
    }
    for Row {
        object,
        level,
        other,
    } in [
        Row {
            object: &sei,
            level: "full",
            other: "sei",
        },
        Row {
            object: &full,
            level: "sei",
            other: "full",
        },
    ] {
        let linked = compiler(true, false)
            .arg(format!("--protect={level}"))
            .args([object, &PathBuf::from("-o"), &out])
            .output()?;
        let needs = format!("--protect={level} is needed for all its files");
        ended(&linked, 1, &["not linked", &needs, "fix:"], &[])?;
        if out.exists() {
            return Err("a program of two levels was left behind".into());
        }
        // By another linker's command, which does not ask.
        let runtime = if level == "full" {
            "libsteadfast-sei.a"
        } else {
            "libsteadfast-level-sei.a"
        };
        let by_hand = dir.join(format!("by-hand-{level}"));
        let linked = Command::new("clang-19")
            .arg(object)
            .arg(pieces().join(runtime))
            .args(["-pthread", "-o"])
            .arg(&by_hand)
            .output()?;
        ended(&linked, 0, &[], &[])?;
        let found = format!("found a file with {other} and a link with {level}");
        ended(&run(&by_hand, &[])?, 121, &[&found, "fix:"], &[])?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn the_program_says() -> Result<(), Failed> {
    struct Row {
        flags: &'static [&'static str],
        way: &'static str,
        level: &'static str,
    }
    for Row { flags, way, level } in [
        Row {
            flags: SEI,
            way: "sei",
            level: "sei",
        },
        Row {
            flags: &["-O2"],
            way: "O2",
            level: "full",
        },
    ] {
        let program = program("libsei.c", way, flags, true)?;
        for (form, line) in [
            ("text", format!("--protect={level}\n")),
            ("json", format!("\"protect\": \"{level}\"")),
        ] {
            let told = compiler(true, false)
                .arg(format!("--coverage={form}"))
                .arg(&program)
                .output()?;
            if !String::from_utf8_lossy(&told.stdout).contains(&line) {
                return Err(String::from_utf8_lossy(&told.stdout).into_owned().into());
            }
        }
    }
    Ok(())
}

/// What rests on the checks that are left out.
fn refused() -> Result<(), Failed> {
    let source = workspace().join("cc/tests/libsei.c");
    struct Row {
        flags: &'static [&'static str],
        status: i32,
        words: &'static str,
    }
    for Row {
        flags,
        status,
        words,
    } in [
        Row {
            flags: &["--protect=sei", "--recover"],
            status: 121,
            words: "leaves out checks that --recover rests on",
        },
        Row {
            flags: &["--protect=sei", "--validate=async"],
            status: 121,
            words: "leaves out checks that --validate=async rests on",
        },
        Row {
            flags: &["--protect=half"],
            status: 64,
            words: "--protect takes sei or full, found half",
        },
    ] {
        let ran = compiler(true, false).args(flags).arg(&source).output()?;
        ended(&ran, status, &[words, "fix:"], &[])?;
    }
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, guest) in crate::harden::GUESTS.iter().enumerate() {
        if sampled(row, 0) {
            trials.push(Trial::test(
                format!("harden::level::{guest}::sei"),
                move || as_plain(guest),
            ));
        }
    }
    for &Strike { place, run, says } in STRIKES {
        // A lock that the list has lost is never given back, so a thread waits for it.
        if !place.starts_with("locks_") {
            trials.push(Trial::test(
                format!("harden::level::strike::{place}_{run}"),
                move || struck(place, run, says),
            ));
        }
    }
    trials.push(Trial::test("harden::level::skips", some_are_missed));
    trials.push(Trial::test(
        "harden::level::nothing_kept_outside",
        nothing_kept_outside,
    ));
    trials.push(Trial::test("harden::level::one_level", one_level));
    trials.push(Trial::test(
        "harden::level::the_program_says",
        the_program_says,
    ));
    trials.push(Trial::test("harden::level::refused", refused));
    trials
}
