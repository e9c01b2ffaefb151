//! Spawns by the thousand: what the launcher keeps for a child that has ended.
//!
//! The launcher is looked at while they are made: descriptors, threads, children, mappings and memory in the last quarter of the time are
//! what they were in the second. System V segments of the machine are as many afterwards as before.
//!
//! ```text
//! SPAWNS=100000 cargo test -p steadfast-tests -- faults::in_children::spawns
//! ```

use std::fs;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use steadfast_sys::procfs;

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{last_lines, output_difference, protector, repeat};
use crate::kills::number;
use crate::run::{Invocation, Running};
use crate::trial::Trial;

/// In the suite; a campaign asks for a hundred times as many.
const SPAWNS: u64 = 1000;
/// For each of them: a protected spawn takes some milliseconds on idle cores.
const LIMIT_EACH: Duration = Duration::from_millis(60);
const GRACE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);
const WHAT: [&str; 5] = [
    "descriptors",
    "threads",
    "children",
    "mappings",
    "KiB of memory",
];
/// By how much each may differ: children are alive when one looks, and the allocator has an area for each of the launcher's threads, whose
/// sizes settle after some thousand spawns.
const MORE: [u64; 5] = [12, 4, 8, 24, 4096];
/// Fewer looks tell nothing.
const LOOKS: usize = 16;

type Look = [u64; 5];

fn look(launcher: i32) -> Option<Look> {
    let of = |name: &str| format!("/proc/{launcher}/{name}");
    let entries = |name: &str| Some(fs::read_dir(of(name)).ok()?.count() as u64);
    let status = fs::read_to_string(of("status")).ok()?;
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some([
        entries("fd")?,
        entries("task")?,
        procfs::children(launcher).len() as u64,
        fs::read_to_string(of("maps")).ok()?.lines().count() as u64,
        resident.split_whitespace().next()?.parse().ok()?,
    ])
}

fn looks(run: &mut Running) -> Vec<Look> {
    let (front, mut launcher) = (run.pid(), run.pid());
    let mut all = Vec::new();
    while run.is_running() {
        // It is there a moment after the process that the caller waits for.
        if launcher == front {
            launcher = run.supervisor();
        } else {
            all.extend(look(launcher));
        }
        thread::sleep(LOOK);
    }
    all
}

/// In the middle of what was seen: a child may just be on its way.
fn median(looks: &[Look], of: usize) -> u64 {
    let mut all: Vec<u64> = looks.iter().map(|look| look[of]).collect();
    all.sort_unstable();
    all[all.len() / 2]
}

fn segments() -> usize {
    fs::read_to_string("/proc/sysvipc/shm")
        .unwrap_or_default()
        .lines()
        .count()
}

fn spawns() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("children-spawns");
    let spawns = number("SPAWNS", SPAWNS);
    let limit = LIMIT_EACH * u32::try_from(spawns)?;
    let mut invocation = Invocation {
        program: build::guest("many_spawns.c", Variant::Dynamic)?,
        args: vec![spawns.to_string()],
        ..Invocation::default()
    };
    let bare = invocation.run(&dir, limit)?;
    invocation.protector = protector(2, &dir.join("events"), &["--quiet"]);
    let _group = one_group();
    let before = segments();
    let mut run = invocation.start(&dir)?;
    let looks = looks(&mut run);
    let ran = run.wait(limit)?;
    ran.nothing_left(GRACE)?;
    let failed = |why: String| {
        let (line, again) = (
            invocation.shell_line(),
            repeat("faults::in_children::spawns"),
        );
        Failed::from(format!(
            "{why}\n{}  run:    {line}\n  repeat: SPAWNS={spawns} {again}",
            last_lines(&ran)
        ))
    };
    if let Some(why) = output_difference(&bare, &ran) {
        return Err(failed(why));
    }
    let quarter = looks.len() / 4;
    if quarter < LOOKS {
        return Err(failed(format!(
            "the launcher was seen {} times",
            looks.len()
        )));
    }
    let (early, late) = (&looks[quarter..2 * quarter], &looks[3 * quarter..]);
    for (of, what) in WHAT.iter().enumerate() {
        let (then, now) = (median(early, of), median(late, of));
        if now > then + MORE[of] {
            return Err(failed(format!(
                "the launcher's {what}: {then}, and {now} later"
            )));
        }
    }
    if spawns != SPAWNS {
        let all = |looks: &[Look]| {
            (0..WHAT.len())
                .map(|of| median(looks, of))
                .collect::<Vec<_>>()
        };
        eprintln!(
            "{spawns} spawns, {WHAT:?}: {:?}, then {:?}",
            all(early),
            all(late)
        );
    }
    // Other programs may have made some as well, but not so many.
    if segments() > before + 8 {
        return Err(failed(format!(
            "{} System V segments, {before} before",
            segments()
        )));
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("faults::in_children::spawns", spawns)]
}
