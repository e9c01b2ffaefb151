//! Hardened programs: `steadfast cc` builds what plain clang builds, and stops what a fault would let out.
//!
//! tests/harden/*.c are the guests. Each is built plain first (the same source with STEADFAST_PLAIN); what that prints is
//! what the hardened build must print, at every level of optimisation and in both ways of linking.
//!
//! Invariants
//!  1. A clean run says nothing on standard error and ends as the plain one.
//!  2. A struck run either ends as the plain one (the fault was masked), or is stopped with status 122 and a name, and
//!     what it printed before is the beginning of what the plain one prints.
//!
//! Not covered: flips of registers and addresses drawn at random (make campaign).

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex};

use libtest_mimic::{Failed, Trial};
use steadfast_integrity::event::{HardenAction, HardenMismatch, Line, What};

use crate::bench::{Bench, workspace};
use crate::sample::{all, sampled};
use crate::{between, csmith, late, later, levels, link, pass, sanitize, service, state};

/// Ways to build, plain and hardened alike.
pub(crate) const WAYS: &[(&str, &[&str])] = &[
    ("O0", &["-O0"]),
    ("O2", &["-O2"]),
    ("O3_thinlto", &["-O3", "-flto=thin", "-fuse-ld=lld"]),
    ("O2_nopie", &["-O2", "-fno-pie", "-no-pie", "-DNDEBUG"]),
    ("O2_avx2", &["-O2", "-mavx2", "-static"]),
];

/// As O2, but that a difference is repaired.
const REPAIRING: (&str, &[&str]) = ("recover", &["-O2", "--recover"]);

/// Further ways, for some guests: one module at the end, and what distributions build with (dpkg-buildflags(1)).
const MORE_WAYS: &[(&str, &[&str])] = &[
    ("O2_lto", &["-O2", "-flto", "-fuse-ld=lld"]),
    (
        "O2_debian",
        &[
            "-O2",
            "-g",
            "-fstack-protector-strong",
            "-fstack-clash-protection",
            "-fcf-protection",
            "-D_FORTIFY_SOURCE=2",
            "-D_GLIBCXX_ASSERTIONS",
            "-Wl,-z,relro,-z,now",
        ],
    ),
];

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

/// Place, run, and what the verdict must name; an empty text is a fault that nothing depends on any more.
pub(crate) const STRIKES: &[(&str, u8, &str)] = &[
    // Values of the state, in either run (V 4).
    ("value", 1, "the runs"),
    ("value", 2, "the runs"),
    ("byte", 1, "leave different values"),
    ("byte", 2, "leave different values"),
    ("bulk", 1, "different bytes in a range"),
    ("bulk", 2, "different bytes in a range"),
    // Messages (V 2, V 3, R7).
    ("message", 2, "an input has changed"),
    ("message", 1, "the runs"),
    ("reply", 1, "leave different values"),
    ("reply", 2, "leave different values"),
    ("output", 1, "fwrite"),
    ("output", 2, "fwrite"),
    ("leaves", 1, "different bytes with fputc"),
    ("leaves", 2, "not what the second run has written"),
    ("leaves_where", 1, "different places with fwrite"),
    ("leaves_where", 2, "not what the second run has written"),
    ("leaves_what", 1, "different bytes with fwrite"),
    ("leaves_what", 2, "not what the second run has written"),
    ("result", 1, "different results"),
    ("result", 2, "different results"),
    // The log itself (R2, R6, Figure 4b).
    ("old", 1, "the log of old values has changed"),
    ("old", 2, ""),
    ("where", 1, "the log of old values has changed"),
    ("where", 2, "event 4: "),
    ("grown_old", 1, "the log of old values has changed"),
    ("grown_where", 1, "the log of old values has changed"),
    ("entry_lost", 1, "the log of old values has changed"),
    ("entry_lost", 2, "the log has grown"),
    ("sum", 1, "the log of old values has changed"),
    ("end", 1, "the log has lost its end"),
    ("frames", 1, "the bounds of the run's frames have changed"),
    ("frames", 2, "the bounds of the run's frames have changed"),
    ("stack", 1, "the bounds of the run's frames have changed"),
    ("stack", 2, "the bounds of the run's frames have changed"),
    ("table", 1, "memory is written"),
    ("table", 2, "memory is written"),
    ("table_small", 1, "the table of the log has lost its size"),
    ("table_small", 2, "memory is written"),
    ("range_at", 1, "different ranges"),
    ("range_old", 1, ""),
    ("news", 1, ""),
    ("news", 2, "leave different values"),
    ("epoch", 2, "in the first run only"),
    // Sets of writes and calls (V 5).
    ("extra_store", 1, "in the second run only"),
    ("extra_store", 2, "in the second run only"),
    ("length", 1, "different ranges"),
    ("length", 2, "different ranges"),
    ("branch", 1, "memory is written"),
    ("branch", 2, "memory is written"),
    ("size", 1, "malloc"),
    ("size", 2, "malloc"),
    ("extra_call", 1, "call"),
    ("extra_call", 2, "call"),
    // Locks (R3, R4, R8, R9).
    ("unlock", 1, "does not hold"),
    ("unlock", 2, "does not hold"),
    ("not_taken", 1, "in the list"),
    ("not_taken", 2, "in the list"),
    ("other_lock", 1, "does not hold"),
    ("other_lock", 2, "pthread_mutex_lock"),
    // Gates (Figure 4a), by the variables and by jumps.
    ("gate_enter", 1, "control flow"),
    ("gate_enter", 2, "control flow"),
    ("gate_leave", 1, "control flow"),
    ("gate_leave", 2, "control flow"),
    ("gate_effects", 1, "what it sent may have left"),
    // The list of locks, between V and their release: a lock that is not given back is a hang.
    ("locks_lock", 1, "the list of locks has changed"),
    ("locks_count", 1, "the list of locks has changed"),
    ("locks_held", 1, "the list of locks has changed"),
    ("locks_kind", 1, "the list of locks has changed"),
    ("locks_used", 1, "the list of locks has changed"),
    ("jump_to_mid", 1, "control flow"),
    ("jump_to_mid", 2, "control flow"),
    ("jump_to_end", 1, "control flow"),
    ("jump_out", 1, "has ended"),
    ("jump_out", 2, "has ended"),
    ("phase", 1, "control flow"),
    ("phase", 2, "control flow"),
];

/// The same around a wait for a condition: place, run, event, what the verdict must name, and whether `--recover` repairs it.
/// Frames that a wait has kept are each run's own: what was wrong in them before stays so.
const WAITS: &[(&str, u8, u8, &str, bool)] = &[
    ("local_before", 1, 7, "leave different values", false),
    ("local_before", 2, 7, "leave different values", false),
    ("local_after", 1, 7, "leave different values", true),
    ("local_after", 2, 8, "leave different values", true),
    ("state", 1, 9, "leave different values", true),
    ("state", 2, 9, "leave different values", true),
    ("message", 1, 10, "an input has changed", false),
    ("message", 2, 10, "an input has changed", false),
    ("other_condition", 1, 0, "different conditions", true),
    ("other_condition", 2, 2, "different conditions", true),
    ("no_wait", 1, 15, "only the second run waits", true),
    ("no_wait", 2, 18, "only the first run waits", true),
];

type Built = Arc<Mutex<Option<Result<PathBuf, String>>>>;
static PROGRAMS: LazyLock<Mutex<HashMap<String, Built>>> = LazyLock::new(Mutex::default);

pub(crate) fn source(guest: &str) -> PathBuf {
    workspace().join("tests/harden").join(guest)
}

/// A compiler: plain clang, or ours.
pub(crate) fn compiler(hardened: bool, cxx: bool) -> Command {
    let mut command = if hardened {
        let mut ours = Command::new(Bench::get().binary());
        ours.arg(if cxx { "c++" } else { "cc" });
        ours.env_remove("STEADFAST_POLICY");
        ours
    } else {
        let mut plain = Command::new(if cxx { "clang++-19" } else { "clang-19" });
        plain.args(["-DSTEADFAST_PLAIN", "-w", "-pthread", "-I"]);
        plain.arg(workspace().join("harden/include"));
        plain
    };
    command.env("LC_ALL", "C");
    command
}

/// The program of a guest, built once.
pub(crate) fn program(
    guest: &str,
    way: &str,
    flags: &[&str],
    hardened: bool,
) -> Result<PathBuf, String> {
    let name = format!(
        "harden-{}-{way}-{}",
        guest.replace('.', "_"),
        if hardened { "hardened" } else { "plain" }
    );
    let slot = Arc::clone(
        PROGRAMS
            .lock()
            .expect("no holder panics")
            .entry(name.clone())
            .or_default(),
    );
    let mut slot = slot
        .lock()
        .map_err(|_| format!("building {name} panicked"))?;
    slot.get_or_insert_with(|| {
        let out = Bench::get().shared_folder()?.join(&name);
        let ran = compiler(hardened, guest.ends_with(".cc"))
            .args(flags)
            .arg(source(guest))
            .arg("-o")
            .arg(&out)
            .output()
            .map_err(|why| format!("{name}: {why}"))?;
        if !ran.status.success() || !ran.stderr.is_empty() {
            return Err(format!(
                "{name}: {}\n{}",
                ran.status,
                String::from_utf8_lossy(&ran.stderr)
            ));
        }
        Ok(out)
    })
    .clone()
}

/// Compiles and links; the compiler has to succeed.
pub(crate) fn build(
    mut compiler: Command,
    flags: &[&str],
    sources: &[PathBuf],
    out: &Path,
) -> Result<(), String> {
    let built = compiler
        .args(flags)
        .args(sources)
        .arg("-o")
        .arg(out)
        .output()
        .map_err(|why| format!("{}: {why}", out.display()))?;
    if built.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&built.stderr);
    Err(format!("{}: {}\n{said}", out.display(), built.status))
}

/// It ended with this status, and said these words and none of those.
pub(crate) fn ended(
    ran: &Output,
    status: i32,
    words: &[&str],
    never: &[&str],
) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&ran.stderr);
    let fine = ran.status.code() == Some(status)
        && words.iter().all(|word| said.contains(word))
        && !never.iter().any(|word| said.contains(word));
    if fine {
        Ok(())
    } else {
        Err(format!("{}, expected {status} and {words:?}\n{said}", ran.status).into())
    }
}

/// A program of one source, built hardened in a folder of its own.
pub(crate) fn own_program(
    dir: &Path,
    name: &str,
    text: &str,
    flags: &[&str],
) -> Result<PathBuf, Failed> {
    let source = dir.join(name);
    std::fs::write(&source, text)?;
    let out = source.with_extension("");
    build(compiler(true, false), flags, &[source], &out)?;
    Ok(out)
}

pub(crate) fn run(program: &Path, arguments: &[&str]) -> Result<Output, String> {
    Command::new(program)
        .args(arguments)
        .output()
        .map_err(|why| format!("{}: {why}", program.display()))
}

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

fn struck(place: &str, in_run: u8, names: &str) -> Result<(), Failed> {
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

/// With `--recover` the program ends as if nothing had happened, and says so; or it stops.
fn recovered(place: &str, in_run: u8) -> Result<(), Failed> {
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

/// A log that is an entry short or long, and has its sum all the same: tests/harden/itself.c.
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

/// A fault before, at or after a wait for a condition.
fn struck_waiting(
    flags: &'static [&str],
    (place, in_run, event, names, repaired): (&str, u8, u8, &str, bool),
) -> Result<(), Failed> {
    let way = if flags.contains(&"--recover") {
        "recover"
    } else {
        "O2"
    };
    let golden = run(&program("conditions.c", "O2", &["-O2"], false)?, &[])?;
    let hardened = program("conditions.c", way, flags, true)?;
    let ran = run(&hardened, &[place, &in_run.to_string(), &event.to_string()])?;
    if way == "recover" && repaired {
        ended(&ran, 0, &[names, "recovered"], &[])?;
        if ran.stdout != golden.stdout {
            return Err(format!("{place}: {}", String::from_utf8_lossy(&ran.stdout)).into());
        }
        return Ok(());
    }
    ended(&ran, 122, &[names], &["recovered", "not deterministic"])
}

/// A handler that writes a part of its message twice has not written all of it: what changes in the rest behind the call is no write of its.
fn half_an_output_twice() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-half-output");
    std::fs::write(dir.join("policy"), "output give 0:1\n")?;
    let text = "#include <steadfast/sei.h>\n#include <string.h>\nchar out[160];\nstatic int strikes;\nint give(const char *p, int n);\n\
        int give(const char *p, int n) { return p[n - 1]; }\nSF_LOCAL void strike(void);\n\
        void strike(void) { if (strikes && sf_run() == 2) out[100] ^= 4; }\n\
        __attribute__((noinline)) static void fill(char *p, int c, unsigned long n) { memset(p, c, n); }\n\
        SF_LOCAL_HANDLER int handle(int k) { fill(out, k, 80); int r = give(out, sizeof out); fill(out, k + 1, 80); strike(); return r; }\n\
        int main(int argc, char **argv) { strikes = argc > 1; handle(argc); return out[100]; }\n";
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    let out = own_program(&dir, "half.c", text, &["-O1", &policy])?;
    ended(&run(&out, &["x"])?, 122, &["an output has changed"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// Every instruction of an event is as likely to be struck: tests/harden/strikes.c. No wrong message has a right checksum, and no program goes
/// on with a wrong state.
fn struck_anywhere(how: &str, count: &str, way: &str, flags: &[&str]) -> Result<(), Failed> {
    unnoticed(&program("strikes.c", way, flags, true)?, &[how, count, "1"])
}

/// All of them, one after the other: tests/harden/skips.c.
fn struck_everywhere(how: &[&str], way: &str, flags: &[&str]) -> Result<(), Failed> {
    unnoticed(&program("skips.c", way, flags, true)?, how)
}

fn unnoticed(program: &Path, how: &[&str]) -> Result<(), Failed> {
    let ran = run(program, how)?;
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

/// Waits that are refused when they happen: in the middle of a message, and without the lock.
fn waits_refused() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-wait-refused");
    let source = |before: &str| {
        format!(
            "#include <steadfast/sei.h>\n#include <pthread.h>\nstatic pthread_cond_t c; static pthread_mutex_t m; static char x;\n\
             SF_LOCAL_HANDLER int handle(void) {{ {before} return pthread_cond_wait(&c, &m); }}\nint main(void) {{ return handle(); }}\n"
        )
    };
    let message = own_program(
        &dir,
        "message.c",
        &source("pthread_mutex_lock(&m); sf_output_append(&x, 1);"),
        &["-O1"],
    )?;
    ended(
        &run(&message, &[])?,
        121,
        &["sf_output_done before the wait"],
        &[],
    )?;
    let lock = own_program(&dir, "lock.c", &source("x++;"), &["-O1"])?;
    ended(
        &run(&lock, &[])?,
        122,
        &["a lock that this thread does not hold"],
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

/// What waits for validation is not in the file yet.
fn file_asked_about() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-file-asked");
    let text = "#define _GNU_SOURCE\n#include <steadfast/sei.h>\n#include <unistd.h>\n#include <sys/mman.h>\n\
                static int fd; SF_LOCAL_HANDLER int handle(void) { return write(fd, \"x\", 1) == 1 && lseek(fd, 0, SEEK_END) == 1; }\n\
                int main(void) { fd = memfd_create(\"file\", 0); return !handle(); }\n";
    let program = own_program(&dir, "asked.c", text, &["-O1"])?;
    ended(
        &run(&program, &[])?,
        121,
        &["asks about a file to which it has written"],
        &[],
    )?;
    let text = "#include <steadfast/sei.h>\n#include <stdio.h>\n\
                static FILE *f; SF_LOCAL_HANDLER int handle(void) { fputs(\"x\", f); return fgetc(f); }\n\
                int main(void) { f = tmpfile(); return !handle(); }\n";
    let program = own_program(&dir, "stream.c", text, &["-O1"])?;
    ended(
        &run(&program, &[])?,
        121,
        &["reads a stream to which it has written"],
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A handler that is not deterministic is not blamed on a core, and does not run for ever.
fn recover_tells_nondeterminism() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-recover-nondeterminism");
    let out = own_program(
        &dir,
        "run.c",
        "#include <steadfast/sei.h>\nunsigned long a;\nSF_LOCAL_HANDLER void handle(void) { a = sf_run() == 2; }\n\
         int main(void) { handle(); return 0; }\n",
        &["-O1", "--recover"],
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 122, &["not deterministic"], &["recovered"])?;
    Bench::get().passed(&dir);
    Ok(())
}

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

/// The flags of what `--other-core` is compared with; one guest counts checksums by the processor's instruction.
const CORES: &[&str] = &["-O2", "-msse4.2"];

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
        "#include <steadfast/sei.h>\n#include <signal.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         static unsigned long n; static volatile int hits;\n\
         SF_LOCAL_HANDLER void handle(unsigned long k) { n += k; }\n\
         static void on(int s) { hits += s == SIGUSR1; }\n\
         int main(void) {\n\
           signal(SIGUSR1, on); handle(1);\n\
           pid_t child = fork();\n\
           for (int i = 0; i < 2000; i++) { handle(2); raise(SIGUSR1); }\n\
           if (child == 0) _exit(n == 4001 && hits == 2000 ? 7 : 1);\n\
           int status = 0; waitpid(child, &status, 0);\n\
           printf(\"%lu %d %d\\n\", n, hits, WEXITSTATUS(status)); return 0; }\n",
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
        "#include <steadfast/sei.h>\n#include <fcntl.h>\n#include <pthread.h>\n#include <stdio.h>\n#include <time.h>\n\
         #include <unistd.h>\n\
         static volatile int inside; static unsigned long sum; static double took;\n\
         static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec / 1e9; }\n\
         SF_LOCAL_HANDLER void handle(unsigned long n) {\n\
           inside = 1; unsigned long s = sum;\n\
           for (unsigned long i = 0; i < n; i++) s = s * 31 + i;\n\
           sum = s; }\n\
         static void *work(void *none) { double from = now(); handle(200000000); took = now() - from; return none; }\n\
         int main(void) {\n\
           int fd = open(\"/dev/null\", O_WRONLY); pthread_t other;\n\
           pthread_create(&other, NULL, work, NULL);\n\
           while (!inside) ;\n\
           double from = now(); long put = write(fd, \"x\", 1); double waited = now() - from;\n\
           pthread_join(other, NULL);\n\
           puts(put == 1 && waited * 8 > took ? \"held\" : \"left\"); return 0; }\n",
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

/// Numbers from a seed (Knuth's 64-bit linear congruence; the upper bits are good enough for choices).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A program of random statements over state of all widths; the seed is in its name.
pub(crate) fn random_source(seed: u64) -> String {
    random_text(seed, false).0
}

/// What strikes a random program: in one event and one run, a value changes at one place. The places are numbered.
const STRIKER: &str = "static unsigned long event, struck_event, mask; static int struck_run, struck_at;\n\
    SF_LOCAL unsigned long strike(int at);\n\
    unsigned long strike(int at) { return at == struck_at && event == struck_event && sf_run() == struck_run ? mask : 0; }\n";

/// The program, and how many places of it can be struck.
fn random_text(seed: u64, strikes: bool) -> (String, u64) {
    let mut dice = Dice(seed);
    let mut places = 0;
    let mut text = String::from(
        "#include <steadfast/sei.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         struct s { unsigned char a; unsigned b; unsigned long c; unsigned short d; double e; };\n\
         unsigned char u8[256]; unsigned short u16[128]; unsigned u32[64]; unsigned long u64[32]; double f64[16];\n\
         struct s st[8]; void *blocks[8]; unsigned long in, calls;\n",
    );
    if strikes {
        text += STRIKER;
    }
    let functions = 4 + dice.below(5);
    for f in 0..functions {
        text += &format!(
            "static unsigned long f{f}(unsigned long x) {{\n  unsigned long l[4] = {{x, 1, 2, 3}}; struct s t = st[x % 8];\n  calls++;\n"
        );
        for _ in 0..3 + dice.below(10) {
            let (i, j, k) = (dice.below(256), dice.below(256), 1 + dice.below(90));
            if strikes {
                text += &format!("  x ^= strike({places});\n");
                places += 1;
            }
            text += &match dice.below(21) {
                0 => format!(
                    "  u8[(x + {i}) % 256] += (unsigned char)(x >> {});\n",
                    j % 60
                ),
                1 => format!(
                    "  u16[(x * {k}) % 128] ^= (unsigned short)(l[{}] + {i});\n",
                    j % 4
                ),
                2 => format!("  u32[{}] = u32[x % 64] * {k}u + {j};\n", i % 64),
                3 => format!("  u64[(x + {i}) % 32] += u64[{}] + {k};\n", j % 32),
                4 => format!("  f64[{}] = f64[x % 16] * 0.5 + {j};\n", i % 16),
                5 => format!("  memcpy(u8 + {}, u64, {});\n", i % 100, k),
                6 => format!("  memset(u32 + {}, (int)x, {});\n", i % 30, k),
                7 => format!("  memmove(u8 + {}, u8 + {}, {});\n", i % 150, j % 150, k),
                8 => format!("  t.a += {}; t.c ^= x; st[{}] = t;\n", i % 200, j % 8),
                9 => format!(
                    "  free(blocks[{}]); blocks[{}] = calloc(1, {}); memset(blocks[{}], {}, {});\n",
                    i % 8,
                    i % 8,
                    k + 8,
                    i % 8,
                    j % 100,
                    k
                ),
                10 => format!(
                    "  if (blocks[{}]) u64[{}] += *(unsigned char *)blocks[{}];\n",
                    i % 8,
                    j % 32,
                    i % 8
                ),
                11 => format!("  l[{}] = u32[{}] + u16[{}];\n", i % 4, j % 64, k),
                12 => format!(
                    "  snprintf((char *)u8 + {}, {}, \"%lu-%s\", x, \"text\");\n",
                    i % 100,
                    1 + k % 40
                ),
                13 => format!(
                    "  for (unsigned i = 0; i < {k} && u8[{} + i] != (unsigned char)x; i++) u8[{} + i] = u8[{} + i] + 1;\n",
                    i % 150,
                    j % 150,
                    i % 150
                ),
                14 => format!(
                    "  for (unsigned i = 0; i < {}; i++) u64[i] = x * i ^ u64[31 - i];\n",
                    1 + k % 31
                ),
                15 => format!(
                    "  {{ struct s *p = &st[(x + {i}) % 8]; p->b = (unsigned)x; p->a = {}; p->c = {k}; p->d = 7; ((unsigned *)&p->c)[{}] ^= {j}; }}\n",
                    j % 200,
                    i % 2
                ),
                16 => format!(
                    "  for (unsigned r = 0; r < 3; r++) for (unsigned i = 0; i < x % {}; i++) u16[{} * r + i] ^= (unsigned short)(x * r);\n",
                    1 + k % 40,
                    i % 40
                ),
                17 => format!(
                    "  for (unsigned i = 0; i < {}; i++) {{ u32[{} + i] = (unsigned)x * i; u16[i] = u8[i]; u8[(x + {j} * i) % 256] += 3; }}\n",
                    k % 32,
                    i % 32
                ),
                18 => format!(
                    "  for (unsigned i = 0; i < {k}; i++) {{ u8[{} + i] = (unsigned char)(x + i); u8[(x + {j} * i) % 256] ^= 5; }}\n",
                    i % 150
                ),
                19 => format!(
                    "  {{ struct s *p = malloc({k} * sizeof *p); for (unsigned i = 0; i < {k}; i++) {{ p[i].a = 1; p[i].b = i; p[i].c = x; p[i].d = 2; p[i].e = 3; }} \
                     l[1] += p[x % {k}].b; free(p); }}\n"
                ),
                _ if f > 0 => format!("  x += f{}(x + {k}) % 1000;\n", dice.below(f)),
                _ => format!(
                    "  for (unsigned i = 0; i < {k}; i++) u16[i] += (unsigned short)(x * i);\n"
                ),
            };
        }
        text += "  return x + l[0] + l[x % 4] + t.c;\n}\n";
    }
    text += "static unsigned long (*const table[])(unsigned long) = {";
    for f in 0..functions {
        text += &format!("f{f},");
    }
    let (arguments, begin, next) = if strikes {
        (
            "int argc, char **argv",
            "struck_at = argc > 4 ? atoi(argv[1]) : -1; if (argc > 4) { struck_run = atoi(argv[2]); \
             struck_event = strtoul(argv[3], 0, 10); mask = strtoul(argv[4], 0, 16); }",
            "event = i;",
        )
    } else {
        ("void", "", "")
    };
    text += &format!(
        "}};\nSF_LOCAL_HANDLER unsigned long handle(unsigned long x) {{ return table[x % {functions}](x) + f{}(x * 3); }}\n\
         int main({arguments}) {{\n  unsigned long sum = 0;\n  {begin}\n  for (unsigned long i = 0; i < 400; i++) {{\n    {next}\n\
         \x20   sum = sum * 31 + handle(i * 2654435761u % 1000);\n\
         \x20   for (int k = 0; k < 256; k++) sum += u8[k];\n    printf(\"%lu %lu %u %f\\n\", sum, u64[i % 32], u32[i % 64], f64[i % 16]);\n  }}\n  return 0;\n}}\n",
        functions - 1
    );
    (text, places)
}

/// Accuracy (Section 4 of the paper): a random program prints hardened what it prints plain, at -O0 and -O2, and no alarm.
fn random_program(seed: u64) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("harden-random-{seed}"));
    let source = dir.join("random.c");
    std::fs::write(&source, random_source(seed))?;
    let mut golden: Option<Vec<u8>> = None;
    for (hardened, level) in [(false, "-O2"), (true, "-O0"), (true, "-O2")] {
        let out = dir.join(format!("random-{hardened}{level}"));
        let flags = [level, "-w", "-ftrivial-auto-var-init=zero"];
        build(
            compiler(hardened, false),
            &flags,
            std::slice::from_ref(&source),
            &out,
        )?;
        let ran = run(&out, &[])?;
        let same = golden.get_or_insert_with(|| ran.stdout.clone()) == &ran.stdout;
        if !same || !ran.status.success() || !ran.stderr.is_empty() {
            return Err(format!(
                "seed {seed}, hardened {hardened} {level}: {}, the same output: {same}\n{}",
                ran.status,
                String::from_utf8_lossy(&ran.stderr)
            )
            .into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Error isolation (Section 4 of the paper): whatever one value becomes in one run of one event, what leaves is what the plain
/// program says, or the beginning of it, before the program is stopped by name.
fn error_isolation(seed: u64) -> Result<(), Failed> {
    const RUNS: u64 = 60;
    let dir = Bench::get().case_dir(&format!("harden-isolation-{seed}"));
    let source = dir.join("struck.c");
    let (text, places) = random_text(seed, true);
    std::fs::write(&source, text)?;
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    let flags = ["-O2", "-w"];
    for (compiler, out) in [
        (compiler(false, false), &plain),
        (compiler(true, false), &hardened),
    ] {
        build(compiler, &flags, std::slice::from_ref(&source), out)?;
    }
    let golden = run(&plain, &[])?;
    let mut dice = Dice(seed ^ 0xfa17);
    let mut stopped = 0;
    for _ in 0..RUNS {
        let (place, in_run, event) = (dice.below(places), 1 + dice.below(2), dice.below(400));
        let mask = format!("{:x}", 1_u64 << dice.below(64));
        let words = [
            place.to_string(),
            in_run.to_string(),
            event.to_string(),
            mask,
        ];
        let ran = run(&hardened, &words.each_ref().map(String::as_str))?;
        let masked = ran.status.success() && ran.stdout == golden.stdout && ran.stderr.is_empty();
        let isolated = ran.status.code() == Some(122)
            && golden.stdout.starts_with(&ran.stdout)
            && String::from_utf8_lossy(&ran.stderr).contains("handler handle (");
        if !masked && !isolated {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!(
                "seed {seed}, struck {}: {}\n{said}",
                words.join(" "),
                ran.status
            )
            .into());
        }
        stopped += u64::from(isolated);
    }
    // Otherwise nothing was struck.
    if stopped < RUNS / 10 {
        return Err(format!("seed {seed}: {stopped} of {RUNS} strikes were noticed").into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Compiling this must fail, with these words on standard error, and leave no program.
fn refused(name: &str, text: &str, flags: &[&str], words: &[&str]) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("harden-{name}"));
    let source = dir.join("refused.c");
    std::fs::write(&source, text)?;
    let out = dir.join("refused");
    let ran = compiler(true, false)
        .arg("-O1")
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() || out.exists() || !words.iter().all(|word| said.contains(word)) {
        return Err(format!("{name}: {}, expected {words:?}\n{said}", ran.status).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Sources that must not become programs: name, text, words of the error.
const REFUSED: &[(&str, &str, &[&str])] = &[
    (
        "unhardened_callee",
        "#include <steadfast/sei.h>\nint elsewhere(int);\nstatic int middle(int k) { return elsewhere(k) + 1; }\n\
         SF_LOCAL_HANDLER int handle(int k) { return k > 3 ? middle(k) : 0; }\nint main(void) { return handle(1); }\n\
         __asm__(\".globl elsewhere\\nelsewhere: ret\\n\");\n",
        &["handle", "elsewhere", "no hardened code", "refused.c:3"],
    ),
    (
        "inline_assembly",
        "#include <steadfast/sei.h>\nint x;\nSF_LOCAL_HANDLER void handle(void) {\n  __asm__ volatile(\"movl $1, %0\" : \"=m\"(x));\n}\n\
         int main(void) { handle(); return x; }\n",
        &["inline assembly", "refused.c:4"],
    ),
    (
        "atomic_operation",
        "#include <steadfast/sei.h>\nint x;\nSF_LOCAL_HANDLER void handle(void) {\n  __atomic_fetch_add(&x, 1, 5);\n}\n\
         int main(void) { handle(); return x; }\n",
        &["an atomic operation", "refused.c:4"],
    ),
    (
        "fork",
        "#include <steadfast/sei.h>\n#include <unistd.h>\nSF_LOCAL_HANDLER int handle(void) { return fork(); }\n\
         int main(void) { return handle(); }\n",
        &["a call of fork", "outside handlers"],
    ),
    (
        "setjmp",
        "#include <steadfast/sei.h>\n#include <setjmp.h>\nstatic jmp_buf j;\n\
         SF_LOCAL_HANDLER int handle(void) { return setjmp(j); }\nint main(void) { return handle(); }\n",
        &["returns twice"],
    ),
    (
        "kept_label",
        "#include <steadfast/sei.h>\nstatic void *at;\nstatic int n;\nSF_LOCAL_HANDLER int handle(int k) {\n  if (at)\n    goto *at;\n\
         at = k ? &&one : &&two;\ntwo:\n  n += k;\none:\n  return n;\n}\nint main(void) { handle(1); return handle(2); }\n",
        &["a label that is kept in memory", "use switch"],
    ),
];

/// What the pass finds wrong in a policy is said in its own words, without the compiler's stack around them.
fn policy_that_does_not_fit() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-policy-fields");
    std::fs::write(
        dir.join("main.c"),
        "struct record { int size; };\nstruct job { struct record head, *next; char text[20]; };\nint total;\n\
         void handle(struct job *j) { for (int i = 0; i < j->head.size; i++) total += j->text[i]; }\n\
         int main(void) {\n  struct job j = {.head = {3}, .text = \"abc\"};\n  handle(&j);\n  return total != 'a' + 'b' + 'c';\n}\n",
    )?;
    let out = dir.join("main");
    for (length, why) in [
        ("0->head.size", ""),
        ("0->head.length", "'record' has no member 'length'"),
        ("0->next.size", "'.size' is taken of is no structure"),
        (
            "0->head->size",
            "'->size' is taken of is no pointer to a structure",
        ),
    ] {
        let ran = compiler(true, false)
            .arg("-O1")
            .arg(named(
                &dir,
                &format!("handler handle input=0->text:{length}\n"),
            )?)
            .arg(dir.join("main.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        if why.is_empty() {
            ended(&ran, 0, &[], &["steadfast"])?;
            ended(&run(&out, &[])?, 0, &[], &["steadfast"])?;
        } else {
            ended(
                &ran,
                1,
                &[
                    "steadfast: the policy's input of handler handle does not fit: ",
                    why,
                ],
                &["Stack dump", "bug report"],
            )?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A pointer leads to a call of what has no hardened code: the place that is told is that of this call, not of another module's.
fn place_of_a_missing_clone() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-missing-clone");
    let files = [
        (
            "main.c",
            "#include <steadfast/sei.h>\nextern int (*way)(int);\nSF_LOCAL_HANDLER int handle(int k) { return way(k); }\n\
                    int main(int n, char **v) { return handle(n); }\n",
        ),
        (
            "other.c",
            "#include <unistd.h>\nint other(int k) {\n  return chdir(\"/\") + k;\n}\n",
        ),
        (
            "far.c",
            "#include <unistd.h>\nint far(int k) {\n\n  return chdir(\"/tmp\") + k;\n}\nint (*way)(int) = far;\n",
        ),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text)?;
    }
    let out = dir.join("main");
    for flag in ["-fPIE", "-no-pie"] {
        let built = compiler(true, false)
            .args(["-g", "-O1", flag])
            .args(files.map(|(name, _)| dir.join(name)))
            .arg("-o")
            .arg(&out)
            .output()?;
        ended(&built, 0, &[], &["steadfast"])?;
        let ran = run(&out, &[])?;
        ended(
            &ran,
            121,
            &["reaches a call of a function that has no hardened code: chdir"],
            &[],
        )?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let place = said
            .split_whitespace()
            .find(|word| word.starts_with("0x"))
            .ok_or("no address")?;
        let line = Command::new("addr2line")
            .arg("-e")
            .arg(&out)
            .arg(place)
            .output()?;
        let line = String::from_utf8_lossy(&line.stdout).into_owned();
        if !line.trim_end().ends_with("/far.c:4") {
            return Err(format!("{said}{line}").into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn refused_by_driver(name: &str, flags: &[&str], words: &[&str]) -> Result<(), Failed> {
    refused(name, "int main(void) { return 0; }\n", flags, words)
}

/// A retry that crashes elsewhere is another fault, one that crashes in the same place is not.
fn crashes_again() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-crashes-again");
    std::fs::write(
        dir.join("main.c"),
        "#include <stdio.h>\n#include <stdlib.h>\nint crashes, total;\nint *wrong[3];\n\
         void handle(int n) {\n  total += n;\n  if (n == 5 && crashes < 2)\n    total += *wrong[crashes++];\n}\n\
         int main(int argc, char **argv) {\n  for (int i = 0; i < 2; i++)\n    wrong[i] = (int *)strtoul(argv[1 + i], 0, 0);\n\
         \x20 for (int i = 0; i < 10; i++)\n    handle(i);\n  printf(\"%d\\n\", total);\n  return argc == 0;\n}\n",
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

/// A shared library is plain code: a program's handlers reach it by a policy's word alone, and none are in it.
fn shared_library() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-shared-library");
    std::fs::write(
        dir.join("library.c"),
        "#include <string.h>\nint kept;\nstatic void keep(int n) { kept += n; }\n\
         int twice(int n) { keep(n); return 2 * n; }\nint length(const char *s) { return (int)strlen(s); }\n",
    )?;
    std::fs::write(
        dir.join("main.c"),
        "#include <stdio.h>\nint twice(int);\nint length(const char *);\nextern int kept;\nint total;\n\
         void handle(int n) { total += length(\"four\") + n; }\nvoid reach(int n) { total += twice(n); }\n\
         int main(void) {\n  for (int i = 0; i < 100; i++)\n    handle(i);\n  reach(1);\n  total += twice(4);\n\
         \x20 printf(\"%d %d\\n\", total, kept);\n}\n",
    )?;
    let library = dir.join("libours.so");
    let out = dir.join("main");
    let made = |policy: &str, arguments: &[&str]| {
        Ok::<_, Failed>(
            compiler(true, false)
                .arg("-O2")
                .arg(named(&dir, policy)?)
                .args(arguments)
                .current_dir(&dir)
                .output()?,
        )
    };
    let as_library = [
        "-fPIC",
        "-shared",
        "-Wl,-z,defs",
        "library.c",
        "-o",
        "libours.so",
    ];
    ended(&made("", &as_library)?, 0, &[], &["steadfast"])?;
    let names = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()?;
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    if !names.contains("twice") || names.contains(".sf") || names.contains("__sf_") {
        return Err(names.into());
    }
    // Many of them may be opened: each takes next to nothing of the thread-local memory that there is for these.
    const MANY: usize = 40;
    for n in 0..MANY {
        std::fs::copy(&library, dir.join(format!("l{n}.so")))?;
    }
    std::fs::write(
        dir.join("many.c"),
        "#include <dlfcn.h>\n#include <stdio.h>\n#include <stdlib.h>\nint main(int argc, char **argv) {\n  int sum = 0;\n\
         \x20 for (int i = 0; i < atoi(argv[1]); i++) {\n    char name[32];\n    snprintf(name, sizeof name, \"./l%d.so\", i);\n\
         \x20   void *at = dlopen(name, RTLD_NOW);\n    if (!at)\n      return puts(dlerror()), 1;\n\
         \x20   sum += ((int (*)(int))dlsym(at, \"twice\"))(i);\n  }\n  printf(\"%d\\n\", sum);\n  return argc != 2;\n}\n",
    )?;
    let opener = compiler(false, false)
        .args(["many.c", "-o", "many"])
        .current_dir(&dir)
        .output()?;
    ended(&opener, 0, &[], &[])?;
    let opened = Command::new("./many")
        .arg(MANY.to_string())
        .current_dir(&dir)
        .output()?;
    if opened.stdout != format!("{}\n", MANY * (MANY - 1)).as_bytes() {
        return Err(String::from_utf8_lossy(&opened.stdout).into_owned().into());
    }
    let rpath = format!("-Wl,-rpath,{}", dir.display());
    let as_program = ["main.c", "-L.", "-lours", &rpath, "-o", "main"];
    ended(
        &made("local-handler handle\npure length\n", &as_program)?,
        0,
        &[],
        &["steadfast"],
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    if ran.stdout != b"5360 5\n" {
        return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
    }
    for statements in ["local-handler handle\n", "local-handler reach\n"] {
        std::fs::remove_file(&out).or_else(|why| {
            (why.kind() == std::io::ErrorKind::NotFound)
                .then_some(())
                .ok_or(why)
        })?;
        let ran = made(statements, &as_program)?;
        if ran.status.success() || out.exists() {
            return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
        }
    }
    ended(
        &made("local-handler twice\n", &as_library)?,
        1,
        &["a shared library has no handlers, found twice"],
        &[],
    )?;
    if library.exists() {
        return Err("a library with a handler was left behind".into());
    }
    Ok(())
}

/// What is struck between the receiver's check and a handler, and between a handler and the sender: tests/harden/carry.c.
fn messages_outside() -> Result<(), Failed> {
    const AGAIN: &str = "an input holds bytes that were not received, or were handled before";
    const STRUCK: [(&str, &str); 13] = [
        ("1", "an input has changed since it was received"),
        ("2", "an input ends where no line has ended"),
        ("3", "an output has changed after its handler"),
        ("4", "an output has changed after its handler"),
        ("5", "bytes leave that no handler has sent"),
        ("6", "bytes leave that no handler has sent"),
        ("7", "bytes leave that no handler has sent"),
        ("8", "an input has changed since it was received"),
        ("9", "an output has changed after its handler"),
        ("10", "an output has changed after its handler"),
        ("11", AGAIN),
        ("12", AGAIN),
        ("13", "an input holds a byte of its line's end"),
    ];
    let dir = Bench::get().case_dir("harden-carry");
    let guests = workspace().join("tests/harden");
    let policy = format!(
        "--steadfast-policy={}",
        guests.join("carry.policy").display()
    );
    let out = dir.join("carry");
    let plain = dir.join("plain");
    let built = compiler(false, false)
        .args(["-O1", "-o"])
        .arg(&plain)
        .arg(guests.join("carry.c"))
        .output()?;
    ended(&built, 0, &[], &[])?;
    let right = run(&plain, &[])?;
    let state = format!(
        "--steadfast-policy={}",
        guests.join("carry-state.policy").display()
    );
    for flags in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-flto=thin"],
        &["-O1", "--state=dup", &state],
    ] {
        let built = compiler(true, false)
            .args(flags)
            .arg(&policy)
            .arg(guests.join("carry.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        ended(&built, 0, &[], &["steadfast"])?;
        let clean = run(&out, &[])?;
        ended(&clean, 0, &[], &["steadfast"])?;
        if clean.stdout != right.stdout || right.stdout.is_empty() {
            return Err(String::from_utf8_lossy(&clean.stdout).into_owned().into());
        }
        for (mode, says) in STRUCK {
            ended(&run(&out, &[mode])?, 122, &[says], &[]).map_err(|why| {
                Failed::from(format!(
                    "{flags:?} {mode}: {}",
                    why.message().unwrap_or_default()
                ))
            })?;
        }
    }
    build(
        compiler(true, false),
        &["-O2", "--recover", &policy],
        &[guests.join("carry.c")],
        &out,
    )?;
    for mode in ["1", "8"] {
        let ran = run(&out, &[mode])?;
        ended(&ran, 0, &["since it was received", "two of three"], &[])?;
        if ran.stdout != right.stdout {
            return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
        }
    }
    /* A program that itself writes where it receives is not put right each time. */
    ended(&run(&out, &["14"])?, 122, &["since it was received"], &[])?;
    refused(
        "carry-name",
        "int x;\nvoid handle(void) { x++; }\nint main(void) { handle(); }\n",
        &[&named(&dir, "local-handler handle\ncarries no_such\n")?],
        &["the policy's no_such"],
    )
}

/// Plain datagrams beneath the envelope: tests/harden/datagrams.c.
fn datagrams() -> Result<(), Failed> {
    const WRAPPED: &str = "-Wl,--wrap=read,--wrap=write,--wrap=send,--wrap=sendmsg,--wrap=recvmsg,--wrap=recvfrom,\
        --wrap=accept,--wrap=accept4,--wrap=close";
    const AGAIN: &str = "an input holds bytes that were not received, or were handled before";
    let dir = Bench::get().case_dir("harden-datagrams");
    let (plain, out) = (dir.join("plain"), dir.join("datagrams"));
    build(
        compiler(false, false),
        &["-O1"],
        &[source("datagrams.c")],
        &plain,
    )?;
    let right = run(&plain, &["0"])?;
    let policy = format!(
        "--steadfast-policy={}",
        source("datagrams.policy").display()
    );
    let mut sources = vec![source("datagrams.c")];
    for part in ["wrap.c", "stream.c", "dns.c", "crc32c.c"] {
        sources.push(workspace().join("harden/envelope").join(part));
    }
    build(
        compiler(true, false),
        &["-O2", &policy, WRAPPED],
        &sources,
        &out,
    )?;
    let clean = run(&out, &["0"])?;
    ended(&clean, 0, &[], &["steadfast"])?;
    if clean.stdout != right.stdout || right.stdout.is_empty() {
        return Err(String::from_utf8_lossy(&clean.stdout).into_owned().into());
    }
    for mode in ["1", "2"] {
        ended(&run(&out, &[mode])?, 122, &[AGAIN], &[])?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn named(dir: &Path, statements: &str) -> Result<String, Failed> {
    let policy = dir.join("policy");
    std::fs::write(&policy, statements)?;
    Ok(format!("--steadfast-policy={}", policy.display()))
}

/// Inputs and outputs that a policy finds in fields; `strike` changes a byte of either behind the log's back.
fn policy_fields() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-fields");
    std::fs::write(
        dir.join("main.c"),
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
         struct head { unsigned short flags; int bytes; union { struct head *next; long number; }; char data[40]; };\n\
         typedef struct { int kind; const char *name; char *end; void *item; } connection;\n\
         static int what, total;\nint struck;\n\
         void strike(struct head *h, int now) { if (now == what && struck++ == 1) h->data[3] ^= 1; }\n\
         void send_out(struct head *h, int n) { total += n + h->data[0]; }\n\
         void handle(connection *c) {\n  struct head *h = c->item;\n  h->data[0]++;\n  total += (int)strlen(c->name) + h->data[1];\n\
         \x20 strike(h, 1);\n  send_out(h, 2);\n  strike(h, 2);\n}\n\
         int main(int argc, char **argv) {\n  what = argc > 1 ? atoi(argv[1]) : 0;\n  struct head h = {.bytes = 12, .data = \"some words!\"};\n\
         \x20 h.flags = argc > 2 ? 32 : 0;\n  connection c = {.name = \"n\", .item = &h, .end = h.data + 12};\n\
         \x20 for (int i = 0; i < 300; i++)\n    handle(&c);\n  printf(\"%d\\n\", total);\n}\n",
    )?;
    let policy = dir.join("policy");
    let flag = format!("--steadfast-policy={}", policy.display());
    let built = |statements: &str, flags: &[&str]| {
        std::fs::write(
            &policy,
            format!("{statements}\nlocal strike\nignore struck\n"),
        )?;
        let out = dir.join("program");
        let ran = compiler(true, false)
            .args(flags)
            .arg(&flag)
            .arg(dir.join("main.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        Ok::<_, Failed>((ran, out))
    };
    let input = "handler handle input=0->end-0->item(head)->bytes:0->item(head)->bytes unless=0->item(head)->flags&32";
    let output = "local-handler handle\noutput send_out 0->data:0->bytes-#2 unless=0->flags&32";
    for (statements, place, says) in [
        (input, "1", "an input has changed"),
        (output, "2", "an output has changed"),
    ] {
        for level in ["-O0", "-O2"] {
            let (ran, out) = built(statements, &[level])?;
            ended(&ran, 0, &[], &["steadfast"])?;
            let clean = run(&out, &[])?;
            ended(&clean, 0, &[], &["steadfast"])?;
            if clean.stdout != b"31930\n" {
                return Err(String::from_utf8_lossy(&clean.stdout).into_owned().into());
            }
            ended(&run(&out, &[place])?, 122, &[says], &[])?;
            // Under the condition there is none.
            ended(&run(&out, &[place, "flags"])?, 0, &[], &["steadfast"])?;
        }
    }
    for (statements, flags, says) in [
        (
            "handler handle input=0->no_such:#1",
            &["-O2"][..],
            "no member 'no_such'",
        ),
        (
            "handler handle input=0->item->bytes:#1",
            &["-O2"],
            "no pointer to a structure",
        ),
        (
            "handler handle input=0->item(tail)->bytes:#1",
            &["-O2"],
            "about 'tail'",
        ),
        ("handler handle input=1->item:#1", &["-O2"], "no argument 1"),
        (input, &["-O2", "-g1"], "debug information"),
    ] {
        let (ran, _) = built(statements, flags)?;
        ended(&ran, 1, &[says], &[])?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A program without annotations, hardened by a policy file; what was hardened is reported.
fn by_policy() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-policy");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text);
    write(
        "main.c",
        "#include <stdio.h>\nint handle(char *text);\nint racy;\nint main(void) {\n  char text[] = \"some words\";\n\
         \x20 for (int i = 0; i < 3; i++) { text[0]++; printf(\"%d\\n\", handle(text)); }\n}\n",
    )?;
    write(
        "handle.c",
        "#include <string.h>\nextern int racy;\nstatic int total;\nint send_out(const char *bytes, int n);\nint handle(char *text) {\n\
         \x20 total += (int)strlen(text) + racy;\n  text[1] = '_';\n  return send_out(text, (int)strlen(text)) + total;\n}\n",
    )?;
    write(
        "send.c",
        "int sent;\nint send_out(const char *bytes, int n) { sent += n; return bytes[0]; }\n",
    )?;
    write(
        "policy",
        "handler handle input=0:strlen # the text\noutput send_out 0:1\nracy racy\n",
    )?;
    let out = dir.join("program");
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    let ran = compiler(true, false)
        .args(["-O2", &policy])
        .args(["main.c", "handle.c", "send.c"].map(|name| dir.join(name)))
        .arg("-o")
        .arg(&out)
        .output()?;
    let built = String::from_utf8_lossy(&ran.stderr).into_owned();
    let said = run(&out, &[])?;
    if !ran.status.success()
        || !built.is_empty()
        || said.stdout != b"126\n137\n148\n"
        || !said.stderr.is_empty()
    {
        return Err(format!(
            "{}\n{built}{}",
            ran.status,
            String::from_utf8_lossy(&said.stdout)
        )
        .into());
    }
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(&out)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    let handler = &json["handlers"][0];
    if handler["name"] != "handle"
        || handler["kind"] != "edge"
        || json["functions_reached"] != 2
        || json["gaps"] != serde_json::json!([])
    {
        return Err(format!("{json:#}").into());
    }
    let explain = Command::new(Bench::get().binary())
        .args(["cc", "--explain", "handle.c:6"])
        .arg(&out)
        .output()?;
    let explained = String::from_utf8_lossy(&explain.stdout).into_owned();
    for word in ["store, logged", "racy load, replayed", "calls strlen: pure"] {
        if !explained.contains(word) {
            return Err(format!("--explain does not say {word:?}:\n{explained}").into());
        }
    }
    // A handler that only the policy knows: an error, since the others are there.
    write("policy", "handler handle\nhandler handel\n")?;
    let ran = compiler(true, false)
        .args(["-O2", &policy])
        .args(["main.c", "handle.c", "send.c"].map(|name| dir.join(name)))
        .arg("-o")
        .arg(&out)
        .output()?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() || out.exists() || !said.contains("handel") {
        return Err(format!("a handler that is not there: {}\n{said}", ran.status).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Without its pieces the driver compiles nothing.
fn a_missing_piece() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-missing");
    let object = dir.join("x.o");
    std::fs::write(dir.join("x.c"), "int x;\n")?;
    let ran = compiler(true, false)
        .env("STEADFAST_HARDEN", &dir)
        .arg("-c")
        .arg(dir.join("x.c"))
        .arg("-o")
        .arg(&object)
        .output()?;
    ended(&ran, 121, &["make build"], &[])?;
    if object.exists() {
        return Err("an object was made all the same".into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What configure scripts ask a compiler: silence and success where there is nothing to say, failure where there is.
fn configure() -> Result<(), Failed> {
    /// Source, flags, whether it compiles.
    const PROBES: &[(&str, &[&str], bool)] = &[
        ("int main(void) { return 0; }\n", &[], true),
        ("int main(void) { return 0; }\n", &["-c"], true),
        (
            "#include <stdint.h>\nint main(void) { return sizeof(int64_t) != 8; }\n",
            &["-O2", "-g"],
            true,
        ),
        ("#include <no-such-header.h>\n", &["-E"], false),
        (
            "char strlcpyx(); int main(void) { return strlcpyx(); }\n",
            &[],
            false,
        ),
        (
            "char socket(); int main(void) { return socket(); }\n",
            &["-w"],
            true,
        ),
        ("int main(void) { return nothing; }\n", &["-c"], false),
        ("int a[1 - 2 * !(sizeof(long) == 8)];\n", &["-c"], true),
        ("int main(void) { return 0; }\n", &["-fno-such-flag"], false),
        (
            "#include <math.h>\nint main(int n, char **v) { (void)v; return cos(n) > 2; }\n",
            &["-lm"],
            true,
        ),
    ];
    let dir = Bench::get().case_dir("harden-configure");
    for (index, (text, flags, compiles)) in PROBES.iter().enumerate() {
        let source = dir.join(format!("conftest{index}.c"));
        std::fs::write(&source, text)?;
        let ran = compiler(true, false)
            .arg(&source)
            .args(*flags)
            .arg("-o")
            .arg(dir.join(format!("conftest{index}")))
            .output()?;
        let silent = ran.stderr.is_empty();
        if ran.status.success() != *compiles || silent != *compiles {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("probe {index} {flags:?}: {}\n{said}\n{text}", ran.status).into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A CMake project of C and C++ by the toolchain file, as it lies when it is installed.
fn cmake() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-cmake");
    let (bin, lib, tree) = (dir.join("bin"), dir.join("lib/steadfast"), dir.join("tree"));
    for folder in [&bin, &lib, &tree] {
        std::fs::create_dir_all(folder)?;
    }
    for name in ["steadfast-cc", "steadfast-c++"] {
        std::os::unix::fs::symlink(Bench::get().binary(), bin.join(name))?;
    }
    let toolchain = lib.join("steadfast-toolchain.cmake");
    std::fs::copy(
        workspace().join("harden/steadfast-toolchain.cmake"),
        &toolchain,
    )?;
    let write = |name: &str, text: &str| std::fs::write(tree.join(name), text);
    write(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.13)\nproject(served C CXX)\nadd_library(state state.c)\nadd_executable(serve main.cc)\n\
         target_link_libraries(serve state)\n",
    )?;
    write(
        "state.c",
        "#include <steadfast/sei.h>\nstatic long total;\nSF_LOCAL_HANDLER long handle(long k) { return total += k; }\n",
    )?;
    write(
        "main.cc",
        "#include <cstdio>\nextern \"C\" long handle(long);\nint main() { handle(3); std::printf(\"%ld\\n\", handle(4)); }\n",
    )?;
    let made = dir.join("made");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&tree).arg("-B").arg(&made);
    configure.arg(format!("-DCMAKE_TOOLCHAIN_FILE={}", toolchain.display()));
    let mut make = Command::new("cmake");
    make.arg("--build").arg(&made);
    for mut command in [configure, make] {
        let ran = command
            .env_remove("STEADFAST_POLICY")
            .output()
            .map_err(|why| format!("cmake is required: {why}"))?;
        if !ran.status.success() || !ran.stderr.is_empty() {
            let told = String::from_utf8_lossy(&ran.stdout).into_owned();
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}\n{told}{said}", ran.status).into());
        }
    }
    adds_to_seven(&made.join("serve"))?;
    Bench::get().passed(&dir);
    Ok(())
}

/// What the projects of other build tools make: handle(3) and handle(4), hardened.
fn adds_to_seven(program: &Path) -> Result<(), Failed> {
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(program)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    let ran = run(program, &[])?;
    if ran.stdout != b"7\n" || json["handlers"][0]["name"] != "handle" {
        return Err(format!("{:?}\n{json:#}", ran.stdout).into());
    }
    Ok(())
}

/// A meson project of C and C++, found by CC and CXX.
fn meson() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-meson");
    let (bin, tree, made) = (dir.join("bin"), dir.join("tree"), dir.join("made"));
    for folder in [&bin, &tree] {
        std::fs::create_dir_all(folder)?;
    }
    for name in ["steadfast-cc", "steadfast-c++"] {
        std::os::unix::fs::symlink(Bench::get().binary(), bin.join(name))?;
    }
    let write = |name: &str, text: &str| std::fs::write(tree.join(name), text);
    write(
        "meson.build",
        "project('served', 'c', 'cpp', default_options : ['buildtype=debugoptimized'])\n\
         state = static_library('state', 'state.c')\n\
         executable('serve', 'main.cc', link_with : state, dependencies : dependency('threads'))\n",
    )?;
    write(
        "state.c",
        "#include <steadfast/sei.h>\nstatic long total;\nSF_LOCAL_HANDLER long handle(long k) { return total += k; }\n",
    )?;
    write(
        "main.cc",
        "#include <cstdio>\nextern \"C\" long handle(long);\nint main() { handle(3); std::printf(\"%ld\\n\", handle(4)); }\n",
    )?;
    let meson = crate::packages::program("/usr/bin/meson")?;
    let mut setup = Command::new(&meson);
    setup.arg("setup").args([&made, &tree]);
    let mut compile = Command::new(&meson);
    compile.arg("compile").arg("-C").arg(&made);
    for mut command in [setup, compile] {
        let ran = command
            .env_remove("STEADFAST_POLICY")
            .env("CC", bin.join("steadfast-cc"))
            .env("CXX", bin.join("steadfast-c++"))
            .env("HOME", &dir)
            .output()?;
        if !ran.status.success() {
            let told = String::from_utf8_lossy(&ran.stdout).into_owned();
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!("{}\n{told}{said}", ran.status).into());
        }
    }
    adds_to_seven(&made.join("serve"))?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A handler that depends on an address: the flag names the store and its line.
fn nondeterminism() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-nondeterminism");
    let out = own_program(
        &dir,
        "clock.c",
        "#include <steadfast/sei.h>\n#include <stdio.h>\nunsigned long a[4];\n\
         SF_PURE unsigned long ticks(void);\nunsigned long ticks(void) { static unsigned long t; return ++t; }\n\
         SF_LOCAL_HANDLER void handle(void) {\n  a[0] = 1;\n  a[1] = ticks();\n  a[2] = a[1];\n}\n\
         int main(void) { handle(); return 0; }\n",
        &["-O1", "--find-nondeterminism"],
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 122, &["clock.c:8", "0x1 and 0x2"], &[])?;
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

fn changed_input() -> Result<(), Failed> {
    let hardened = program("inputs.c", "O2", &["-O2"], true)?;
    for event in ["0", "1", "2", "4", "7", "8", "16", "31", "62"] {
        for offset in ["100", "103"] {
            let ran = run(&hardened, &[event, offset])?;
            ended(&ran, 122, &["an input has changed"], &[]).map_err(|why| {
                format!(
                    "event {event}, byte {offset}: {}",
                    why.message().unwrap_or_default()
                )
            })?;
        }
    }
    Ok(())
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
        "#include <steadfast/sei.h>\n#include <string.h>\n#include <unistd.h>\n\
         extern char **environ; static unsigned long last;\n\
         SF_LOCAL_HANDLER void handle(void) { last = sf_run() == 1; }\n\
         int main(void) {\n\
           for (char **e = environ; *e; e++) memset(*e, 'x', strlen(*e));\n\
           if (chdir(\"/\")) return 1;\n\
           handle(); return (int)last; }\n",
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

/// What a policy says of a function without hardened code holds behind a pointer, too; a variadic one is refused there by name.
fn classes_by_pointer() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-by-pointer");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text);
    write(
        "plain.c",
        "int counted, noted;\nint count(int by) { return counted += by; }\nvoid note(int k) { noted += k; }\n\
         int read_it(void) { return noted; }\nint any(int k, ...) { return k; }\nint twice(int k) { return 2 * k; }\n",
    )?;
    write(
        "main.c",
        "#include <steadfast/sei.h>\n#include <stdio.h>\n\
         int count(int); void note(int); int read_it(void); int any(int, ...); int twice(int);\n\
         struct { int (*count)(int); void (*note)(int); int (*read)(void); int (*any)(int, ...); int (*twice)(int); }\n\
         \x20 how = {count, note, read_it, any, twice};\nint out[5], made;\n\
         int in_place(int k) { made++; return 3 * k; }\n\
         SF_LOCAL_HANDLER void handle(int all) {\n  out[0] = how.count(2);\n  how.note(5);\n  out[1] = how.read();\n\
         \x20 out[2] = how.twice(7);\n  if (all) out[3] = how.any(1, 2);\n}\n\
         int main(int argc, char **argv) {\n  if (argc > 9) how.count = 0, how.note = 0, how.read = 0, how.any = 0, how.twice = 0;\n\
         \x20 for (int i = 0; i < 2; i++) handle(0), printf(\"%d %d %d %d\\n\", out[0], out[1], out[2], made);\n\
         \x20 fflush(stdout); handle(1);\n}\n",
    )?;
    write(
        "policy",
        "once count any\ndefer note\npure read_it\nwrap twice in_place\n",
    )?;
    let object = dir.join("plain.o");
    build(
        compiler(false, false),
        &["-c"],
        &[dir.join("plain.c")],
        &object,
    )?;
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    for way in ["-O0", "-O2"] {
        let out = dir.join("program");
        let sources = [dir.join("main.c"), object.clone()];
        // The name is that of the dynamic symbol table.
        build(
            compiler(true, false),
            &[way, &policy, "-rdynamic"],
            &sources,
            &out,
        )?;
        let ran = run(&out, &[])?;
        if ran.stdout != b"2 0 21 1\n4 5 21 2\n" {
            return Err(format!("{way}: {}", String::from_utf8_lossy(&ran.stdout)).into());
        }
        ended(
            &ran,
            121,
            &["reaches any through a pointer", "main.c:13"],
            &[],
        )?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What copies, compares and sums up bytes, around all seams: tests/harden/checksums.c.
fn checksums() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-checksums");
    let program = dir.join("checksums");
    let sources = [
        source("checksums.c"),
        workspace().join("harden/envelope/crc32c.c"),
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

/// What sscanf would allocate by itself is refused when it is called; differ.c has what works.
fn scan_refuses() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-scan");
    let out = own_program(
        &dir,
        "run.c",
        "#include <steadfast/sei.h>\n#include <stdio.h>\n\
         static int n; static char *word;\n\
         SF_LOCAL_HANDLER void handle(void) { n = sscanf(\"12 abc\", \"%d %ms\", &n, &word); }\n\
         int main(void) { handle(); return n; }\n",
        &["-O1"],
    )?;
    ended(&run(&out, &[])?, 121, &["knows no %m", "fix:"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
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
    for &(place, in_run, names) in STRIKES {
        trials.push(Trial::test(
            format!("harden::strike::{place}_{in_run}"),
            move || struck(place, in_run, names),
        ));
    }
    for &(place, in_run, names) in STRIKES.iter().chain(&[
        ("crash", 1, "crashed"),
        ("crash", 2, "crashed"),
        ("lock", 1, "crashed"),
        ("range_old", 1, "old bytes"),
    ]) {
        if !names.is_empty() {
            trials.push(Trial::test(
                format!("harden::recover::{place}_{in_run}"),
                move || recovered(place, in_run),
            ));
        }
    }
    trials.push(Trial::test("harden::recover::unguarded", unguarded));
    trials.push(Trial::test(
        "harden::recover::entries_of_no_weight",
        entries_of_no_weight,
    ));
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
            if way == REPAIRING.0 && row < 4 && !all() {
                how[2] = "29";
            }
            trials.push(Trial::test(
                format!("harden::strike::every_{}::{way}", how.join("_")),
                move || struck_everywhere(&how, way, flags),
            ));
        }
    }
    // A repair of an event that was opened wrongly makes its message too.
    let every = if all() { "3" } else { "29" };
    trials.push(Trial::test("harden::strike::opening::recover", move || {
        struck_everywhere(&["opening", every], REPAIRING.0, REPAIRING.1)
    }));
    // The same of an event of loops that fill ranges, and of stores that are looked up with their neighbours.
    for (way, flags, how) in [
        ("loops", &["-O2", "-DLOOPS"][..], &["skip"][..]),
        ("loops", &["-O2", "-DLOOPS"], &["register", "3", "13"]),
        ("loops", &["-O2", "-DLOOPS"], &["register", "12", "13"]),
        (
            "loops_recover",
            &["-O2", "-DLOOPS", "--recover"],
            &["register", "5", "97"],
        ),
        (
            "loops_avx2",
            &["-O3", "-mavx2", "-static", "-DLOOPS"],
            &["register", "5", "13"],
        ),
    ] {
        trials.push(Trial::test(
            format!("harden::strike::every_{}::{way}", how.join("_")),
            move || struck_everywhere(how, way, flags),
        ));
    }
    for &fault in WAITS {
        let (place, in_run, ..) = fault;
        trials.push(Trial::test(
            format!("harden::strike::wait_{place}_{in_run}"),
            move || struck_waiting(&["-O2"], fault),
        ));
        trials.push(Trial::test(
            format!("harden::recover::wait_{place}_{in_run}"),
            move || struck_waiting(&["-O2", "--recover"], fault),
        ));
    }
    trials.extend(csmith::trials());
    trials.extend(late::trials());
    trials.extend(later::trials());
    trials.extend(levels::trials());
    trials.push(Trial::test("harden::refuse::wait", waits_refused));
    trials.push(Trial::test("harden::refuse::file", file_asked_about));
    trials.push(Trial::test(
        "harden::refuse::fields",
        policy_that_does_not_fit,
    ));
    trials.push(Trial::test(
        "harden::refuse::pointer",
        place_of_a_missing_clone,
    ));
    trials.push(Trial::test("harden::conditions.c::state", waits_with_state));
    trials.push(Trial::test(
        "harden::recover::nondeterminism",
        recover_tells_nondeterminism,
    ));
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
                    other_core(
                        "faults.c",
                        &[place, in_run, "3"],
                        true,
                        0,
                        &[names, "recovered"],
                    )
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
    trials.push(Trial::test(
        "harden::other_core::recover_names_cores",
        || other_core("cores.c", &["always"], true, 122, &["one of its two cores"]),
    ));
    trials.push(Trial::test("harden::other_core::forks", other_core_forks));
    trials.push(Trial::test("harden::barrier::holds", || barrier(true)));
    trials.push(Trial::test("harden::barrier::is_not_there_without", || {
        barrier(false)
    }));
    trials.push(Trial::test(
        "harden::other_core::needs_two",
        other_core_needs_two,
    ));
    trials.push(Trial::test("harden::one_core", one_core_agrees_with_itself));
    for &(name, text, words) in REFUSED {
        trials.push(Trial::test(format!("harden::refuse::{name}"), move || {
            refused(name, text, &[], words)
        }));
    }
    for (name, text, words) in [
        (
            "exception_ptr",
            "#include <steadfast/sei.h>\n#include <exception>\nstd::exception_ptr kept;\n\
             SF_LOCAL_HANDLER void handle(void) { try { throw 1; } catch (...) { kept = std::current_exception(); } }\n\
             int main() { handle(); }\n",
            &["current_exception", "keeps an exception of one run"][..],
        ),
        (
            "pool_of_memory",
            "#include <steadfast/sei.h>\n#include <memory_resource>\n#include <vector>\nunsigned long size;\n\
             SF_LOCAL_HANDLER void handle(int n) { std::pmr::monotonic_buffer_resource pool; std::pmr::vector<int> v(n, 1, &pool); size = v.size(); }\n\
             int main() { handle(3); }\n",
            &["std::pmr has no hardened form"],
        ),
    ] {
        trials.push(Trial::test(format!("harden::refuse::{name}"), move || {
            refused(name, text, &["-xc++", "-std=c++17", "-lstdc++"], words)
        }));
    }
    trials.push(Trial::test("harden::refuse::shared_library", || {
        refused_by_driver("shared", &["-shared", "--recover"], &["-shared", "static"])
    }));
    trials.push(Trial::test("harden::refuse::policy_that_is_none", || {
        refused_by_driver(
            "no-policy",
            &["--steadfast-policy=/no/such/file"],
            &["/no/such/file", "fix:"],
        )
    }));
    for seed in 1..=if all() { 8 } else { 3 } {
        trials.push(Trial::test(
            format!("harden::accuracy::{seed}"),
            move || random_program(seed),
        ));
        trials.push(Trial::test(
            format!("harden::error_isolation::{seed}"),
            move || error_isolation(seed),
        ));
    }
    trials.push(Trial::test(
        "harden::half_an_output_twice",
        half_an_output_twice,
    ));
    trials.push(Trial::test("harden::uncaught", uncaught));
    trials.push(Trial::test("harden::policy", by_policy));
    trials.push(Trial::test("harden::policy_fields", policy_fields));
    trials.push(Trial::test("harden::messages_outside", messages_outside));
    trials.push(Trial::test("harden::shared_library", shared_library));
    trials.push(Trial::test("harden::crashes_again", crashes_again));
    trials.push(Trial::test("harden::a_missing_piece", a_missing_piece));
    trials.push(Trial::test("harden::nondeterminism", nondeterminism));
    trials.push(Trial::test(
        "harden::nondeterminism::none",
        no_nondeterminism,
    ));
    trials.push(Trial::test("harden::event_line", event_line));
    trials.push(Trial::test("harden::scan_refuses", scan_refuses));
    trials.push(Trial::test("harden::checksums", checksums));
    trials.push(Trial::test(
        "harden::classes_by_pointer",
        classes_by_pointer,
    ));
    trials.push(Trial::test("harden::datagrams", datagrams));
    trials.push(Trial::test(
        "harden::event_line_elsewhere",
        event_line_elsewhere,
    ));
    trials.push(Trial::test("harden::changed_input", changed_input));
    trials.push(Trial::test("harden::configure", configure));
    trials.push(Trial::test("harden::cmake", cmake));
    trials.push(Trial::test("harden::meson", meson));
    trials.push(Trial::test("harden::http", service::http));
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
    trials.extend(link::trials());
    trials.extend(pass::trials());
    trials.extend(state::trials());
    trials.extend(between::trials());
    trials.extend(sanitize::trials());
    trials
}
