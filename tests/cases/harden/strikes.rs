//! Strikes at places of cc/tests/faults.c, and at every instruction of an event: each is masked, or named, or repaired.

use libtest_mimic::Failed;

use super::compile::{
    REPAIRING, WAYS, build, compiler, ended, named, own_program, program, run, source,
};
use crate::bench::Bench;
use crate::sample::{all, apart, sampled};
use crate::trial::Trial;
use std::path::Path;
use std::process::Command;

/// A fault at a place of faults.c.
pub(crate) struct Strike {
    pub(crate) place: &'static str,
    /// The run of the handler that is struck, 1 or 2.
    pub(crate) run: u8,
    /// What the verdict names. Empty: nothing depends on it any more.
    pub(crate) says: &'static str,
}

#[rustfmt::skip]
pub(crate) const STRIKES: &[Strike] = &[
    // Values of the state, in either run (V 4).
    Strike { place: "value", run: 1, says: "the runs" },
    Strike { place: "value", run: 2, says: "the runs" },
    Strike { place: "byte", run: 1, says: "leave different values" },
    Strike { place: "byte", run: 2, says: "leave different values" },
    Strike { place: "bulk", run: 1, says: "different bytes in a range" },
    Strike { place: "bulk", run: 2, says: "different bytes in a range" },
    // Messages (V 2, V 3, R7).
    Strike { place: "message", run: 2, says: "an input has changed" },
    Strike { place: "message", run: 1, says: "the runs" },
    Strike { place: "reply", run: 1, says: "leave different values" },
    Strike { place: "reply", run: 2, says: "leave different values" },
    Strike { place: "output", run: 1, says: "fwrite" },
    Strike { place: "output", run: 2, says: "fwrite" },
    Strike { place: "leaves", run: 1, says: "different bytes with fputc" },
    Strike { place: "leaves", run: 2, says: "not what the second run has written" },
    Strike { place: "leaves_where", run: 1, says: "different places with fwrite" },
    Strike { place: "leaves_where", run: 2, says: "not what the second run has written" },
    Strike { place: "leaves_what", run: 1, says: "different bytes with fwrite" },
    Strike { place: "leaves_what", run: 2, says: "not what the second run has written" },
    Strike { place: "result", run: 1, says: "different results" },
    Strike { place: "result", run: 2, says: "different results" },
    // The log itself (R2, R6, Figure 4b).
    Strike { place: "old", run: 1, says: "the log of old values has changed" },
    Strike { place: "old", run: 2, says: "" },
    Strike { place: "where", run: 1, says: "the log of old values has changed" },
    Strike { place: "where", run: 2, says: "event 4: " },
    Strike { place: "grown_old", run: 1, says: "the log of old values has changed" },
    Strike { place: "grown_where", run: 1, says: "the log of old values has changed" },
    Strike { place: "entry_lost", run: 1, says: "the log of old values has changed" },
    Strike { place: "entry_lost", run: 2, says: "the log has grown" },
    Strike { place: "sum", run: 1, says: "the log of old values has changed" },
    Strike { place: "end", run: 1, says: "the log has lost its end" },
    Strike { place: "frames", run: 1, says: "the bounds of the run's frames have changed" },
    Strike { place: "frames", run: 2, says: "the bounds of the run's frames have changed" },
    Strike { place: "stack", run: 1, says: "the bounds of the run's frames have changed" },
    Strike { place: "stack", run: 2, says: "the bounds of the run's frames have changed" },
    Strike { place: "table", run: 1, says: "memory is written" },
    Strike { place: "table", run: 2, says: "memory is written" },
    Strike { place: "table_small", run: 1, says: "the table of the log has lost its size" },
    Strike { place: "table_small", run: 2, says: "memory is written" },
    Strike { place: "range_at", run: 1, says: "different ranges" },
    Strike { place: "range_old", run: 1, says: "" },
    Strike { place: "news", run: 1, says: "" },
    Strike { place: "news", run: 2, says: "leave different values" },
    Strike { place: "epoch", run: 2, says: "in the first run only" },
    // Sets of writes and calls (V 5).
    Strike { place: "extra_store", run: 1, says: "in the second run only" },
    Strike { place: "extra_store", run: 2, says: "in the second run only" },
    Strike { place: "length", run: 1, says: "different ranges" },
    Strike { place: "length", run: 2, says: "different ranges" },
    Strike { place: "branch", run: 1, says: "memory is written" },
    Strike { place: "branch", run: 2, says: "memory is written" },
    Strike { place: "size", run: 1, says: "malloc" },
    Strike { place: "size", run: 2, says: "malloc" },
    Strike { place: "extra_call", run: 1, says: "call" },
    Strike { place: "extra_call", run: 2, says: "call" },
    Strike { place: "read_where", run: 1, says: "the runs read different places at" },
    Strike { place: "read_where", run: 2, says: "the runs read different places at" },
    Strike { place: "read_width", run: 1, says: ": 0x2 and 0x4" },
    Strike { place: "read_width", run: 2, says: ": 0x4 and 0x2" },
    // Locks (R3, R4, R8, R9).
    Strike { place: "unlock", run: 1, says: "does not hold" },
    Strike { place: "unlock", run: 2, says: "does not hold" },
    Strike { place: "not_taken", run: 1, says: "in the list" },
    Strike { place: "not_taken", run: 2, says: "in the list" },
    Strike { place: "other_lock", run: 1, says: "does not hold" },
    Strike { place: "other_lock", run: 2, says: "pthread_mutex_lock" },
    // Gates (Figure 4a), by the variables and by jumps.
    Strike { place: "gate_enter", run: 1, says: "control flow" },
    Strike { place: "gate_enter", run: 2, says: "control flow" },
    Strike { place: "gate_leave", run: 1, says: "control flow" },
    Strike { place: "gate_leave", run: 2, says: "control flow" },
    Strike { place: "gate_effects", run: 1, says: "what it sent may have left" },
    // The list of locks, between V and their release: a lock that is not given back is a hang.
    Strike { place: "locks_lock", run: 1, says: "the list of locks has changed" },
    Strike { place: "locks_count", run: 1, says: "the list of locks has changed" },
    Strike { place: "locks_held", run: 1, says: "the list of locks has changed" },
    Strike { place: "locks_kind", run: 1, says: "the list of locks has changed" },
    Strike { place: "locks_used", run: 1, says: "the list of locks has changed" },
    Strike { place: "jump_to_mid", run: 1, says: "control flow" },
    Strike { place: "jump_to_mid", run: 2, says: "control flow" },
    Strike { place: "jump_to_end", run: 1, says: "control flow" },
    Strike { place: "jump_out", run: 1, says: "has ended" },
    Strike { place: "jump_out", run: 2, says: "has ended" },
    Strike { place: "phase", run: 1, says: "control flow" },
    Strike { place: "phase", run: 2, says: "control flow" },
];

/// Strikes that `--recover` cannot repair: the input is itself damaged, the event before was never validated, or this one's
/// effects have begun. It stops as ever.
const FINAL: &[(&str, u8)] = &[
    ("message", 1),
    ("message", 2),
    ("jump_out", 1),
    ("jump_out", 2),
    ("not_taken", 1),
    ("not_taken", 2),
    ("locks_lock", 1),
    ("locks_count", 1),
    ("locks_held", 1),
    ("locks_kind", 1),
    ("locks_used", 1),
];

fn struck(
    &Strike {
        place,
        run: in_run,
        says: names,
    }: &Strike,
) -> Result<(), Failed> {
    let golden = run(&program("faults.c", "O2", &["-O2"], false)?, &[])?;
    let hardened = program("faults.c", "O2", &["-O2"], true)?;
    let ran = run(&hardened, &[place, &in_run.to_string(), "3"])?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let fine = if names.is_empty() {
        ran.status.success() && ran.stdout == golden.stdout && said.is_empty()
    } else {
        ran.status.code() == Some(122)
            && golden.stdout.starts_with(&ran.stdout)
            && said.contains(names)
            && said.contains("handler handle (")
    };
    if fine {
        Ok(())
    } else {
        Err(format!(
            "{place} in run {in_run}: {}, expected {names:?}\n{said}",
            ran.status
        )
        .into())
    }
}

/// With `--recover` the program ends as if nothing had happened, and says so; or it stops.
fn recovered(
    &Strike {
        place, run: in_run, ..
    }: &Strike,
) -> Result<(), Failed> {
    const FLAGS: &[&str] = &["-O2", "--recover"];
    let golden = run(&program("faults.c", "O2", &["-O2"], false)?, &[])?;
    let hardened = program("faults.c", "recover", FLAGS, true)?;
    let ran = run(&hardened, &[place, &in_run.to_string(), "3"])?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let stays_wrong = FINAL.contains(&(place, in_run));
    let fine = if stays_wrong {
        ran.status.code() == Some(122) && golden.stdout.starts_with(&ran.stdout)
    } else {
        ran.status.success()
            && ran.stdout == golden.stdout
            && if place.starts_with("gate_") {
                said.contains("; repaired") /* where it is */
            } else {
                said.contains("runs again") && said.contains("recovered")
            }
    };
    if fine {
        Ok(())
    } else {
        Err(format!(
            "{place} in run {in_run}: {}, stays wrong: {stays_wrong}\n{said}",
            ran.status
        )
        .into())
    }
}

/// Objects that were built without `--recover` do not look at the log before a store: what may have gone by it is not repaired.
fn unguarded() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-recover-unguarded");
    let (object, linked) = (dir.join("faults.o"), dir.join("faults"));
    build(
        compiler(true, false),
        &["-O2", "-c"],
        &[source("faults.c")],
        &object,
    )?;
    build(compiler(true, false), &["--recover"], &[object], &linked)?;
    ended(
        &run(&linked, &["epoch", "1", "3"])?,
        122,
        &["not repaired: stores of this run may have been taken for logged ones"],
        &["recovered"],
    )?;
    ended(&run(&linked, &["old", "1", "3"])?, 0, &["recovered"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A log that is an entry short or long, and has its sum all the same: cc/tests/itself.c.
fn entries_of_no_weight() -> Result<(), Failed> {
    let right = run(&program("itself.c", "O2", &["-O2"], false)?, &[])?;
    let out = program("itself.c", REPAIRING.0, REPAIRING.1, true)?;
    for how in ["fewer", "more"] {
        for event in 1..=6 {
            let ran = run(&out, &[how, &event.to_string()])?;
            ended(&ran, 0, &["recovered"], &[])?;
            if ran.stdout != right.stdout || right.stdout.is_empty() {
                let said = String::from_utf8_lossy(&ran.stdout);
                return Err(format!("{how} {event}: {said}").into());
            }
        }
    }
    Ok(())
}

/// A handler that writes a part of its message twice has not written all of it: what changes in the rest behind the call is no write of its.
fn half_an_output_twice() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-half-output");
    std::fs::write(dir.join("policy"), "output give 0:1\n")?;
    let text = include_str!("../../../cc/tests/programs/half_an_output.c");
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    let out = own_program(&dir, "half.c", text, &["-O1", &policy])?;
    ended(&run(&out, &["x"])?, 122, &["an output has changed"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// Every instruction of an event is as likely to be struck: cc/tests/strikes.c. No wrong message has a right checksum, and no program goes
/// on with a wrong state.
fn struck_anywhere(how: &str, count: &str, way: &str, flags: &[&str]) -> Result<(), Failed> {
    unnoticed(&program("strikes.c", way, flags, true)?, &[how, count, "1"])
}

/// All of them, one after the other: cc/tests/skips.c.
fn struck_everywhere(how: &[&str], way: &str, flags: &[&str]) -> Result<(), Failed> {
    unnoticed(&program("skips.c", way, flags, true)?, how)
}

/// Where the stack lies, and so the environment, decides what a stack pointer that was struck finds: it is the same everywhere here.
/// With others one strike of 10,800 has been unnoticed, of rsp (row 50 of the specification counts such).
fn unnoticed(program: &Path, how: &[&str]) -> Result<(), Failed> {
    let ran = Command::new(program)
        .args(how)
        .env_clear()
        .output()
        .map_err(|why| format!("{}: {why}", program.display()))?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if ran.status.success()
        && said.contains("wrong state 0, wrong message 0,")
        && (!said.contains("repaired without it") || said.contains("repaired without it 0,"))
        && !said.contains(" stopped 0,")
    {
        return Ok(());
    }
    Err(format!("{how:?}: {}\n{said}", ran.status).into())
}

/// A handler that is not deterministic is not blamed on a core, and does not run for ever.
fn recover_tells_nondeterminism() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-recover-nondeterminism");
    let out = own_program(
        &dir,
        "run.c",
        include_str!("../../../cc/tests/programs/runs_differ.c"),
        &["-O1", "--recover"],
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 122, &["not deterministic"], &["recovered"])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A retry that crashes elsewhere is another fault, one that crashes in the same place is not.
fn crashes_again() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-crashes-again");
    std::fs::write(
        dir.join("main.c"),
        include_str!("../../../cc/tests/programs/crashes_again.c"),
    )?;
    let out = dir.join("main");
    let built = compiler(true, false)
        .args(["-O1", "--recover"])
        .arg(named(&dir, "local-handler handle\nignore crashes\n")?)
        .arg(dir.join("main.c"))
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&built, 0, &[], &["steadfast"])?;
    let other = run(&out, &["16", "4096"])?;
    ended(&other, 0, &["recovered, both runs of retry 2 agree"], &[])?;
    if other.stdout != b"45\n" {
        return Err(String::from_utf8_lossy(&other.stdout).into_owned().into());
    }
    ended(
        &run(&out, &["16", "16"])?,
        122,
        &["the same difference in a retry"],
        &["recovered"],
    )
}

/// Strikes that only a build with `--recover` is asked about.
#[rustfmt::skip]
const RECOVERED: &[Strike] = &[
    Strike { place: "crash", run: 1, says: "crashed" },
    Strike { place: "crash", run: 2, says: "crashed" },
    Strike { place: "lock", run: 1, says: "crashed" },
    Strike { place: "range_old", run: 1, says: "old bytes" },
];

/// A build of skips.c, and how each of its instructions is struck.
struct Loops {
    way: &'static str,
    flags: &'static [&'static str],
    how: Vec<&'static str>,
}

/// Of loops that fill ranges, and of stores that are looked up with their neighbours.
#[rustfmt::skip]
fn loops() -> [Loops; 5] {
    [
        Loops { way: "loops", flags: &["-O2", "-DLOOPS"], how: vec!["skip"] },
        Loops { way: "loops", flags: &["-O2", "-DLOOPS"], how: vec!["register", "3", apart("13", "29")] },
        Loops { way: "loops", flags: &["-O2", "-DLOOPS"], how: vec!["register", "12", apart("13", "29")] },
        Loops { way: "loops_recover", flags: &["-O2", "-DLOOPS", "--recover"], how: vec!["register", "5", "101"] },
        Loops { way: "loops_avx2", flags: &["-O3", "-mavx2", "-static", "-DLOOPS"], how: vec!["register", "5", apart("13", "29")] },
    ]
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = at_places();
    trials.extend(at_instructions());
    trials.extend([
        Trial::test("harden::recover::unguarded", unguarded),
        Trial::test(
            "harden::recover::entries_of_no_weight",
            entries_of_no_weight,
        ),
        Trial::test(
            "harden::recover::nondeterminism",
            recover_tells_nondeterminism,
        ),
        Trial::test("harden::half_an_output_twice", half_an_output_twice),
        Trial::test("harden::crashes_again", crashes_again),
    ]);
    trials
}

fn at_places() -> Vec<Trial> {
    let mut trials = Vec::new();
    for strike in STRIKES {
        trials.push(Trial::test(
            format!("harden::strike::{}_{}", strike.place, strike.run),
            || struck(strike),
        ));
    }
    for strike in STRIKES.iter().chain(RECOVERED) {
        if !strike.says.is_empty() {
            trials.push(Trial::test(
                format!("harden::recover::{}_{}", strike.place, strike.run),
                || recovered(strike),
            ));
        }
    }
    trials
}

fn at_instructions() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, (how, count)) in [("register", "500"), ("jump", "150")]
        .into_iter()
        .enumerate()
    {
        for (column, (way, flags)) in WAYS[1..3].iter().enumerate() {
            if row != column && !all() {
                continue;
            }
            trials.push(Trial::test(
                format!("harden::strike::any_{how}::{way}"),
                move || struck_anywhere(how, count, way, flags),
            ));
        }
    }
    for (column, (way, flags)) in WAYS[1..3].iter().copied().chain([REPAIRING]).enumerate() {
        // Instructions left out everywhere; each bit of registers in one of the three.
        for (row, how) in [
            &["register", "3", "9"][..],
            &["register", "5", "9"],
            &["register", "6", "9"],
            &["register", "39", "13"],
            &["skip"],
        ]
        .into_iter()
        .enumerate()
        {
            if row < 4 && !sampled(row, 3 - column) {
                continue;
            }
            let mut how = how.to_vec();
            // With a repair an event has three times as many instructions, and many strikes run it again.
            if way == REPAIRING.0 && row < 4 {
                how[2] = apart(how[2], "61");
            }
            trials.push(Trial::test(
                format!("harden::strike::every_{}::{way}", how.join("_")),
                move || struck_everywhere(&how, way, flags),
            ));
        }
    }
    // A repair of an event that was opened wrongly makes its message too.
    trials.push(Trial::test("harden::strike::opening::recover", || {
        let how = ["opening", apart("3", "53")];
        struck_everywhere(&how, REPAIRING.0, REPAIRING.1)
    }));
    for Loops { way, flags, how } in loops() {
        trials.push(Trial::test(
            format!("harden::strike::every_{}::{way}", how.join("_")),
            move || struck_everywhere(&how, way, flags),
        ));
    }
    trials
}
