//! A guest with data races shows more than one schedule bare: only then does it say something that its replicas agree.
//!
//! Invariant: the binary that shows two schedules bare is the one whose replicas have to agree.
//!
//! Not covered: how many schedules there are, and which of them replicas take.

use std::collections::BTreeSet;
use std::time::Duration;

use libtest_mimic::Failed;
use steadfast_contract::exit::Verdict;

use crate::bench::{Bench, some_groups};
use crate::build::{self, Variant};
use crate::check::{Log, last_lines, protector};
use crate::run::{Invocation, Ran};
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
/// Bare runs until two of them differ; most differ from each other.
const RUNS: usize = 100;

/// The line that is the schedule's own, if all checks held.
fn schedule(ran: &Ran) -> Result<String, String> {
    let text = String::from_utf8_lossy(&ran.stdout);
    let line = text.lines().find(|line| line.starts_with("schedule "));
    match line {
        Some(line) if ran.end() == "status 0" => Ok(line.to_owned()),
        _ => Err(last_lines(ran)),
    }
}

fn a_race_has_two() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("schedules");
    let mut invocation = Invocation {
        program: build::guest("threads_race.c", Variant::Dynamic)?,
        args: vec!["show".to_owned()],
        ..Invocation::default()
    };
    let mut seen = BTreeSet::new();
    for _ in 0..RUNS {
        seen.insert(schedule(&invocation.run(&dir, LIMIT)?)?);
        if seen.len() > 1 {
            break;
        }
    }
    if seen.len() < 2 {
        return Err(format!("{RUNS} bare runs, and one schedule: {seen:?}").into());
    }
    let events = dir.join("events");
    for replicas in [2, 3] {
        let _group = some_groups();
        invocation.protector = protector(replicas, &events, &["--quiet"]);
        let ran = invocation.run(&dir, LIMIT)?;
        ran.nothing_left(GRACE)?;
        schedule(&ran)?;
        let report = Log::read(&events)?.report;
        if report.verdict != Verdict::Agreed {
            return Err(format!("{replicas} replicas: {report:?}").into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test(
        "outside::a_race_has_two_schedules",
        a_race_has_two,
    )]
}
