//! Code outside handlers that is computed twice (`--between=duplicate`).
//!
//! cc/tests/between.c strikes every instruction of a loop outside handlers in every register that calls do not keep, by
//! single steps, and says how the strikes ended.
//!
//! Invariants
//!  1. Unstruck, the program prints what the plain build prints, also while threads store what others read.
//!  2. Struck, it stops with a verdict that names file and line in most of the cases in which the plain build goes wrong.
//!
//! Not covered: the one instruction between a comparison and what it guards; it is where wrong results are left.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::Failed;
use steadfast_contract::event::{Line, What};

use crate::bench::{Bench, workspace};
use crate::harden::{build, compiler, run};
use crate::trial::Trial;

fn built(name: &str, flags: &[&str], hardened: bool) -> Result<PathBuf, String> {
    let out = Bench::get()
        .case_dir(&format!("between-{name}"))
        .join("guest");
    let source = workspace().join("cc/tests/between.c");
    build(compiler(hardened, false), flags, &[source], &out)?;
    Ok(out)
}

/// How the strikes ended: right, detected, wrong, crashed. Their events go to `events`, beside the program.
fn struck(name: &str, flags: &[&str], hardened: bool) -> Result<([f64; 4], PathBuf), Failed> {
    let program = built(name, flags, hardened)?;
    let events = program.with_file_name("events");
    let ran = Command::new(&program)
        .env("STEADFAST_EVENTS", &events)
        .output()?;
    let text = String::from_utf8_lossy(&ran.stdout);
    let counts: Vec<f64> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let counts = counts
        .try_into()
        .map_err(|_| format!("{}: {text}", ran.status))?;
    Ok((counts, events))
}

fn rings() -> Result<(), Failed> {
    let (plain, _) = struck("plain", &["-O2"], false)?;
    let (hardened, events) = struck("rings", &["-O2", "--between=duplicate"], true)?;
    let share = |counts: [f64; 4], which: usize| counts[which] / counts.iter().sum::<f64>();
    let all = format!("plain {plain:?}, duplicated {hardened:?}");
    if plain[1] != 0.0 || share(plain, 2) < 0.1 {
        return Err(format!("the plain build does not go wrong: {all}").into());
    }
    if share(hardened, 2) * 5.0 > share(plain, 2) || share(hardened, 1) < 0.2 {
        return Err(format!("too few strikes are detected: {all}").into());
    }
    event(&events)
}

fn quiet(name: &str, flags: &[&str]) -> Result<(), Failed> {
    let ran = run(&built(name, flags, true)?, &["quiet"])?;
    if !ran.status.success() || ran.stdout != b"quiet 0\n" {
        let said = String::from_utf8_lossy(&ran.stderr);
        return Err(format!("{}: {said}", ran.status).into());
    }
    Ok(())
}

/// The verdict's event is one of the schema, with file and line.
fn event(events: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(events)?;
    let line: Line = serde_json::from_str(text.lines().next().ok_or("no event")?)?;
    match line.event.what {
        What::HardenMismatch(told)
            if told.r#where.contains("between.c:")
                && told.what == "two computations of one value differ"
                && told.run == 0 =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}").into()),
    }
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = vec![Trial::test("harden::between::rings", rings)];
    for (name, flags) in [
        ("O0", &["-O0", "--between=duplicate"][..]),
        ("O2", &["-O2", "--between=duplicate"]),
        ("O3_thinlto", &["-O3", "-flto=thin", "--between=duplicate"]),
        ("off", &["-O2", "--between=off"]),
    ] {
        all.push(Trial::test(
            format!("harden::between::quiet::{name}"),
            move || quiet(name, flags),
        ));
    }
    all
}
