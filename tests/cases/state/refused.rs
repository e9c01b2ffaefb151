//! What cannot be protected at rest: the link refuses it, or the program stops with a reason.

use libtest_mimic::Failed;

use super::said;
use crate::bench::Bench;
use crate::harden::{Refused, build, compiler, ended, run};
use crate::trial::Trial;

/// Programs that do not link.
const REFUSED: &[Refused] = &[
    Refused {
        name: "no_flag",
        flags: &[],
        text: include_str!("../../../cc/tests/programs/state/flag.c"),
        says: &["compiler was not told so", "--state=dup"],
    },
    Refused {
        name: "other_flag",
        flags: &["--state=crc"],
        text: include_str!("../../../cc/tests/programs/state/flag.c"),
        says: &["variable x", "add dup to --state"],
    },
    Refused {
        name: "thread_local",
        flags: &["--state=dup"],
        text: include_str!("../../../cc/tests/programs/state/thread_local.c"),
        says: &["variable x", "thread-local"],
    },
    Refused {
        name: "word",
        flags: &["--state=copy"],
        text: include_str!("../../../cc/tests/programs/state/flag.c"),
        says: &["--state takes ecc, dup, crc or dup,crc, found copy"],
    },
];

/// A program that stops where it only shows at run time.
struct Stopped {
    name: &'static str,
    text: &'static str,
    words: &'static str,
}

const STOPPED: &[Stopped] = &[
    Stopped {
        name: "lock",
        text: include_str!("../../../cc/tests/programs/state/lock.c"),
        words: "pthread_mutex_lock",
    },
    Stopped {
        name: "outside_write",
        text: include_str!("../../../cc/tests/programs/state/outside_write.c"),
        words: "would write by itself: strsep",
    },
    Stopped {
        name: "list",
        text: include_str!("../../../cc/tests/programs/state/list.c"),
        words: "not known for a list of arguments",
    },
    Stopped {
        name: "pure_by_pointer",
        text: include_str!("../../../cc/tests/programs/state/pure_by_pointer.c"),
        words: "has no hardened code",
    },
];

/// Modules that disagree do not become a program.
fn mixed() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-mixed");
    let (one, two, out) = (dir.join("one.c"), dir.join("two.c"), dir.join("mixed"));
    std::fs::write(
        &one,
        include_str!("../../../cc/tests/programs/state/mixed.c"),
    )?;
    std::fs::write(
        &two,
        include_str!("../../../cc/tests/programs/probes/other.c"),
    )?;
    let object = dir.join("two.o");
    build(compiler(true, false), &["-c"], &[two], &object)?;
    let ran = compiler(true, false)
        .arg("--state=dup")
        .arg(&one)
        .arg(&object)
        .arg("-o")
        .arg(&out)
        .output()?;
    let text = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() || out.exists() || !text.contains("another --state than") {
        return Err(said(&ran).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn stopped(row: &Stopped) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("state-stopped-{}", row.name));
    let (source, out) = (dir.join("stopped.c"), dir.join("stopped"));
    std::fs::write(&source, row.text)?;
    build(
        compiler(true, false),
        &["--state=dup", "-O1"],
        &[source],
        &out,
    )?;
    ended(&run(&out, &[])?, 121, &[row.words, "fix:"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    let refuse = REFUSED.iter().map(|row| row.trial("harden::state"));
    let stop = STOPPED.iter().map(|row| {
        Trial::test(format!("harden::state::stop::{}", row.name), || {
            stopped(row)
        })
    });
    let mixed = Trial::test("harden::state::mixed", mixed);
    refuse.chain(stop).chain([mixed]).collect()
}
