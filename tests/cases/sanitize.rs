//! The runtime of `steadfast cc` under ThreadSanitizer, AddressSanitizer and UndefinedBehaviorSanitizer.
//!
//! The C of cc/runtime is built once more with `make runtime SANITIZE=…`. Guests are hardened as ever and linked with the same
//! `-fsanitize` against it: what is watched is the runtime, in whole programs, and the calls that it makes of the C library.
//!
//! Invariants
//!  1. A guest prints what its plain build prints, and nothing on standard error: any report fails.
//!  2. A struck guest ends by a verdict or repaired, and nothing is reported on the way.
//!  3. Each sanitizer reports a defect that is there (`notices`).
//!
//! Not covered: assembly (store.S, hand.S, `rep stosb`); `--validate=async`, whose second run is in a process that is given the memory of
//! blocks which it has not allocated; under ThreadSanitizer `--state`, whose memory lies where it keeps its own, and `--other-core`,
//! where a run changes threads in the middle.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use libtest_mimic::Failed;

use crate::bench::{Bench, workspace};
use crate::harden::{STRIKES, Strike, build, compiler, ended, program, run};
use crate::pass::pieces;
use crate::trial::Trial;

type Folder = Mutex<Option<Result<PathBuf, String>>>;

/// A way to watch, and the runtime that was built for it.
struct Sanitizer {
    name: &'static str,
    flag: &'static str,
    folder: Folder,
}

static ADDRESS: Sanitizer = Sanitizer {
    name: "address",
    flag: "address,undefined",
    folder: Mutex::new(None),
};
static THREAD: Sanitizer = Sanitizer {
    name: "thread",
    flag: "thread",
    folder: Mutex::new(None),
};

/// Leaks: blocks that only a mapping of the runtime knows look lost. Mismatch: `new` in a handler takes what `malloc` gives, and
/// `delete` is `free` (cxx.c); a program with operators of its own is not meant here.
const OPTIONS: &str = "detect_leaks=0:alloc_dealloc_mismatch=0";

/// A guest that is built with a sanitizer, and has to run without a word from it.
struct Case {
    by: &'static Sanitizer,
    guest: &'static str,
    name: &'static str,
    flags: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        by: &ADDRESS,
        guest: "libsei.c",
        name: "memory",
        flags: &[],
    },
    Case {
        by: &ADDRESS,
        guest: "library.c",
        name: "strings",
        flags: &["--barrier"],
    },
    Case {
        by: &ADDRESS,
        guest: "threads.c",
        name: "threads",
        flags: &[],
    },
    Case {
        by: &ADDRESS,
        guest: "threads.c",
        name: "other_core",
        flags: &["-msse4.2", "--other-core"],
    },
    Case {
        by: &ADDRESS,
        guest: "conditions.c",
        name: "recover",
        flags: &["--recover"],
    },
    Case {
        by: &ADDRESS,
        guest: "state.c",
        name: "state",
        flags: &["--state=dup,crc", "--recover"],
    },
    Case {
        by: &ADDRESS,
        guest: "exceptions.cc",
        name: "exceptions",
        flags: &[],
    },
    Case {
        by: &ADDRESS,
        guest: "loops.c",
        name: "loops",
        flags: &[],
    },
    Case {
        by: &THREAD,
        guest: "threads.c",
        name: "threads",
        flags: &[],
    },
    Case {
        by: &THREAD,
        guest: "threads.c",
        name: "barrier",
        flags: &["--barrier", "--recover"],
    },
    Case {
        by: &THREAD,
        guest: "once.c",
        name: "once",
        flags: &[],
    },
    Case {
        by: &THREAD,
        guest: "conditions.c",
        name: "waits",
        flags: &[],
    },
    Case {
        by: &THREAD,
        guest: "conditions.cc",
        name: "waits_cxx",
        flags: &[],
    },
];

impl Sanitizer {
    /// The pieces that `steadfast cc` links, with this runtime among them.
    fn pieces(&self) -> Result<PathBuf, String> {
        let mut folder = self
            .folder
            .lock()
            .map_err(|_| format!("building the runtime for {} panicked", self.name))?;
        folder.get_or_insert_with(|| self.make()).clone()
    }

    fn make(&self) -> Result<PathBuf, String> {
        let out = Bench::get()
            .shared_folder()?
            .join(format!("harden-{}", self.name));
        let made = Command::new("make")
            .args(["-s", "-j2", "-C"])
            .arg(workspace().join("cc"))
            .arg(format!("SANITIZE={}", self.flag))
            .arg(format!("OUT={}", out.display()))
            .arg("runtime")
            .env_remove("MAKEFLAGS")
            .output()
            .map_err(|why| format!("make: {why}"))?;
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            return Err(format!("the runtime for {}: {said}", self.name));
        }
        for piece in [
            "steadfast-pass.so",
            "libsteadfast-level-sei.a",
            "libsteadfast-plain.a",
            "include",
            "complete",
        ] {
            let from = std::path::absolute(pieces().join(piece))
                .map_err(|why| format!("{piece}: {why}"))?;
            symlink(from, out.join(piece)).map_err(|why| format!("{piece}: {why}"))?;
        }
        Ok(out)
    }

    /// The source hardened as ever, then linked with this runtime.
    fn program(&self, source: &Path, flags: &[&str], dir: &Path) -> Result<PathBuf, String> {
        let cxx = source.extension().is_some_and(|end| end == "cc");
        let (object, out) = (dir.join("guest.o"), dir.join("guest"));
        let compile = [&["-O1", "-g", "-c"], flags].concat();
        build(
            compiler(true, cxx),
            &compile,
            &[source.to_path_buf()],
            &object,
        )?;
        let mut linker = compiler(true, cxx);
        linker.env("STEADFAST_HARDEN", self.pieces()?);
        let sanitize = format!("-fsanitize={}", self.flag);
        build(
            linker,
            &[flags, &[sanitize.as_str()]].concat(),
            &[object],
            &out,
        )?;
        Ok(out)
    }
}

fn watched(program: &Path, arguments: &[&str]) -> Result<Output, String> {
    Command::new(program)
        .args(arguments)
        .env("ASAN_OPTIONS", OPTIONS)
        .output()
        .map_err(|why| format!("{}: {why}", program.display()))
}

fn clean(case: &Case) -> Result<(), Failed> {
    let &Case {
        by,
        guest,
        name,
        flags,
    } = case;
    let dir = Bench::get().case_dir(&format!("sanitize-{}-{name}", by.name));
    let plain = run(&program(guest, "O2", &["-O2"], false)?, &[])?;
    let source = workspace().join("cc/tests").join(guest);
    let ran = watched(&by.program(&source, flags, &dir)?, &[])?;
    if ran.status != plain.status || ran.stdout != plain.stdout || !ran.stderr.is_empty() {
        return Err(format!(
            "{guest} ends with {}, prints {} of {} bytes\n{}",
            ran.status,
            ran.stdout.len(),
            plain.stdout.len(),
            String::from_utf8_lossy(&ran.stderr)
        )
        .into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// The ways from a fault to its end: verdicts, and with `--recover` repairs.
fn struck(by: &Sanitizer, flags: &[&str]) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("sanitize-{}-struck{}", by.name, flags.concat()));
    let source = workspace().join("cc/tests/faults.c");
    let guest = by.program(&source, flags, &dir)?;
    for Strike {
        place, run: in_run, ..
    } in STRIKES
    {
        let ran = watched(&guest, &[place, &in_run.to_string(), "3"])?;
        let said = String::from_utf8_lossy(&ran.stderr);
        let reported = said.contains("Sanitizer") || said.contains("runtime error");
        if reported || !matches!(ran.status.code(), Some(0 | 122)) {
            return Err(format!("{place} in run {in_run}: {}\n{said}", ran.status).into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// An input that is longer than its block: the runtime takes its checksum.
const TOO_LONG: &str = include_str!("../../cc/tests/programs/too_long.c");

/// A variable without a lock, one thread after the other: no run differs, but nothing orders what the runtime puts back.
const NO_LOCK: &str = include_str!("../../cc/tests/programs/no_lock.c");

fn notices(by: &Sanitizer, text: &str, status: i32, words: &[&str]) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("sanitize-{}-notices", by.name));
    let source = dir.join("wrong.c");
    std::fs::write(&source, text)?;
    ended(
        &watched(&by.program(&source, &[], &dir)?, &[])?,
        status,
        words,
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = Vec::new();
    for case in CASES {
        all.push(Trial::test(
            format!("harden::sanitize::{}::{}", case.by.name, case.name),
            move || clean(case),
        ));
    }
    all.push(Trial::test("harden::sanitize::address::struck", || {
        struck(&ADDRESS, &[])
    }));
    all.push(Trial::test("harden::sanitize::address::recovered", || {
        struck(&ADDRESS, &["--recover"])
    }));
    all.push(Trial::test("harden::sanitize::thread::recovered", || {
        struck(&THREAD, &["--recover"])
    }));
    all.push(Trial::test("harden::sanitize::address::notices", || {
        notices(
            &ADDRESS,
            TOO_LONG,
            1,
            &["heap-buffer-overflow", "sf_crc32c"],
        )
    }));
    all.push(Trial::test("harden::sanitize::thread::notices", || {
        notices(&THREAD, NO_LOCK, 66, &["data race", "__sf_mid"])
    }));
    all
}
