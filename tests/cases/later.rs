//! Handlers whose second run comes later (`--validate=async`), with and without `--hold-output`.
//!
//! cc/tests/later.c sends a message after each of 300 events. What a struck event and those after it may send is
//! bounded: by the lag without the hold, by nothing at all with it.
//!
//! Invariants
//!  1. A clean run says nothing, prints what the plain build prints, and shows the program no child and no descriptor.
//!  2. A struck run ends with 122 and the name of the handler; no message of an earlier event is lost or changed.
//!
//! Not covered: servers, and flips of registers drawn at random (make campaign).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use libtest_mimic::Failed;
use steadfast_contract::event::{Line, What};

use crate::bench::Bench;
use crate::harden::{
    Refused, WAYS, build, compiler, ended, own_program, program, random_source, run,
};
use crate::sample::all;
use crate::trial::Trial;

/// The ways of ending up with messages.
const MODES: &[(&str, &[&str])] = &[
    ("async", &["--validate=async:16"]),
    ("hold", &["--validate=async:16", "--hold-output"]),
];

const LAG: usize = 16;

/// What is struck at an event, and what the verdict must name when that happens in the first or in the second run.
struct Strike {
    place: &'static str,
    event: usize,
    first: Option<&'static str>,
    second: Option<&'static str>,
}

const STRIKES: &[Strike] = &[
    Strike {
        place: "value",
        event: 66,
        first: Some("leave different values"),
        second: Some("leave different values"),
    },
    Strike {
        place: "byte",
        event: 66,
        first: Some("in the first run only"),
        second: Some("in the second run only"),
    },
    Strike {
        place: "bulk",
        event: 66,
        first: Some("in the first run only"),
        second: Some("in the second run only"),
    },
    Strike {
        place: "length",
        event: 66,
        first: Some("different ranges"),
        second: Some("in the second run only"),
    },
    Strike {
        place: "branch",
        event: 66,
        first: Some("in the first run only"),
        second: Some("in the second run only"),
    },
    Strike {
        place: "size",
        event: 3,
        first: Some("malloc"),
        second: Some("malloc"),
    },
    Strike {
        place: "pointer",
        event: 66,
        first: Some("memory is read in the second run only"),
        second: Some("memory is read in the second run only"),
    },
    Strike {
        place: "extra_call",
        event: 66,
        first: Some("different functions"),
        second: Some("different functions"),
    },
    Strike {
        place: "extra_write",
        event: 66,
        first: Some("different functions"),
        second: Some("in the second run only"),
    },
    Strike {
        place: "output",
        event: 11,
        first: Some("in the second run only"),
        second: Some("in the second run only"),
    },
    Strike {
        place: "result",
        event: 66,
        first: Some("different results"),
        second: Some("different results"),
    },
    Strike {
        place: "crash",
        event: 66,
        first: None,
        second: Some("in the second run only"),
    },
    Strike {
        place: "killed",
        event: 66,
        first: None,
        second: Some("the second run has crashed, by signal"),
    },
    Strike {
        place: "endless",
        event: 66,
        first: None,
        second: Some("the second run does not end in"),
    },
    // The last event: there is nothing after it, but the program's end, which waits.
    Strike {
        place: "value",
        event: 299,
        first: Some("leave different values"),
        second: Some("leave different values"),
    },
];

/// Where the second run has no core of its own such a program is refused; that is tested by itself.
fn one_core() -> bool {
    steadfast_sys::cpu::allowed().len() < 2
}

fn hardened(guest: &str, way: &str, flags: &[&str], mode: usize) -> Result<PathBuf, String> {
    let (name, words) = MODES[mode];
    let flags = [flags, words].concat();
    program(guest, &format!("{way}-{name}"), &flags, true)
}

fn same(guest: &str, way: &str, flags: &[&str], mode: usize) -> Result<(), Failed> {
    let plain = run(&program(guest, way, flags, false)?, &[])?;
    let later = run(&hardened(guest, way, flags, mode)?, &[])?;
    if one_core() {
        return ended(&later, 121, &["one core only"], &[]);
    }
    ended(&later, 0, &[], &["steadfast"])?;
    if later.stdout != plain.stdout || plain.stdout.is_empty() {
        return Err(format!("{guest} ({way}) prints other bytes than the plain build").into());
    }
    Ok(())
}

/// Messages, by the event that they begin with.
fn messages(of: &[u8]) -> usize {
    String::from_utf8_lossy(of)
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()) && line.contains(' '))
        .count()
}

/// What the plain program prints before the message of an event, and before what its handler prints.
fn before(golden: &[u8], event: usize) -> usize {
    let text = String::from_utf8_lossy(golden);
    let last = format!("{} ", event - 1);
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if line.starts_with(&last) {
            return at;
        }
    }
    golden.len()
}

fn struck(mode: usize, strike: &Strike, in_run: u8, names: &str) -> Result<(), Failed> {
    let &Strike { place, event, .. } = strike;
    let golden = run(&program("later.c", "O2", &["-O2"], false)?, &[])?.stdout;
    let arguments = [place, &in_run.to_string(), &event.to_string()];
    let ran = run(&hardened("later.c", "O2", &["-O2"], mode)?, &arguments)?;
    if one_core() {
        return ended(&ran, 121, &["one core only"], &[]);
    }
    ended(
        &ran,
        122,
        &[
            names,
            "handler handle (",
            &format!("event {}:", event + 1),
            if mode == 0 {
                "what it sent may have left"
            } else {
                "nothing of this event has left"
            },
        ],
        &[],
    )?;
    let sound = before(&golden, event);
    let late = messages(&ran.stdout).saturating_sub(event);
    let fine = match mode {
        0 => ran.stdout.starts_with(&golden[..sound]) && late <= LAG,
        _ => ran.stdout == golden[..sound],
    };
    if !fine {
        return Err(format!(
            "{late} messages after the event, or earlier ones are not as they should be: {} of {sound} bytes",
            ran.stdout.len()
        )
        .into());
    }
    Ok(())
}

fn random_program(seed: u64) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("harden-later-{seed}"));
    let source = dir.join("random.c");
    fs::write(&source, random_source(seed))?;
    let mut golden: Option<Vec<u8>> = None;
    for (hardened, words) in [
        (false, &["-O2"][..]),
        (true, &["-O0", "--validate=async:1"]),
        (true, &["-O2", "--validate=async:100"]),
        (true, &["-O2", "--validate=async:7", "--hold-output"]),
    ] {
        let out = dir.join("random");
        let flags = [words, &["-w", "-ftrivial-auto-var-init=zero"]].concat();
        build(
            compiler(hardened, false),
            &flags,
            std::slice::from_ref(&source),
            &out,
        )?;
        let ran = run(&out, &[])?;
        if hardened && one_core() {
            continue;
        }
        ended(&ran, 0, &[], &["steadfast"])?;
        if golden.get_or_insert_with(|| ran.stdout.clone()) != &ran.stdout {
            return Err(format!("seed {seed} prints other bytes with {words:?}").into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn event_line() -> Result<(), Failed> {
    if one_core() {
        return Ok(());
    }
    let dir = Bench::get().case_dir("harden-later-events");
    let events = dir.join("events");
    for mode in 0..MODES.len() {
        let _ = fs::remove_file(&events);
        let ran = Command::new(hardened("later.c", "O2", &["-O2"], mode)?)
            .args(["value", "2", "66"])
            .env("STEADFAST_EVENTS", &events)
            .output()?;
        let line: Line = serde_json::from_str(&fs::read_to_string(&events)?)?;
        let What::HardenMismatch(what) = &line.event.what else {
            return Err(format!("{line:?}").into());
        };
        let later = what.later.map(|n| n >= 1 && n <= LAG as u64);
        let right = what.handler == "handle"
            && (what.event, what.run) == (67, 2)
            && later == (mode == 0).then_some(true);
        if ran.status.code() != Some(122) || !right {
            return Err(format!("{line:?}").into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Children of a process that have no name of the program's: its validator.
fn validator_of(parent: u32) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (name, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let (state, above) = (words.next()?, words.next()?);
        (name.ends_with("(sf-validator") && state != "Z" && above.parse::<u32>().ok()? == parent)
            .then_some(pid)
    })
}

/// Looks until there is something; a run that hangs is ended by the test bed.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn waiting() -> Result<(Child, u32), Failed> {
    let child = Command::new(hardened("later.c", "O2", &["-O2"], 0)?)
        .arg("wait")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let validator = until(|| validator_of(child.id()));
    Ok((child, validator))
}

fn kill(pid: u32) -> Result<(), Failed> {
    let done = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status()?;
    done.success()
        .then_some(())
        .ok_or_else(|| format!("{pid} cannot be killed").into())
}

/// A validator that is killed from outside is told apart from a difference, and the program does not go on without it.
fn validator_killed() -> Result<(), Failed> {
    if one_core() {
        return Ok(());
    }
    let (child, validator) = waiting()?;
    kill(validator)?;
    let ran = child.wait_with_output()?;
    ended(&ran, 122, &["by signal", "0x9"], &["the runs"])
}

/// It has nothing of the program's but standard error, and goes when the program is killed.
fn validator_goes() -> Result<(), Failed> {
    if one_core() {
        return Ok(());
    }
    let (mut child, validator) = waiting()?;
    let folder = PathBuf::from(format!("/proc/{validator}"));
    until(|| {
        let open: Vec<_> = fs::read_dir(folder.join("fd")).ok()?.flatten().collect();
        (open.len() == 1 && open[0].file_name() == "2").then_some(())
    });
    child.kill()?;
    child.wait()?;
    until(|| validator_of(child.id()).is_none().then_some(()));
    until(|| {
        // A zombie is its new parent's to collect.
        let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
        stat.rsplit_once(')')
            .is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
            .then_some(())
    });
    Ok(())
}

/// A child of fork gets a validator of its own; what only printing reads is kept; signals, waits and descriptors are as they are without one; `_exit` waits.
const FORKS: &str = include_str!("../../cc/tests/programs/later/forks.c");

fn forks() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-later-fork");
    let out = own_program(&dir, "run.c", FORKS, &["-O2", "--validate=async"])?;
    let ran = run(&out, &[])?;
    if !one_core() {
        ended(&ran, 0, &["handler wrong ("], &[])?;
        if ran.stdout != b"4001 200 7 2 1 122\n" {
            return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Frames of a handler larger than any table of the runtime, and a copy of them.
const LARGE: &str = include_str!("../../cc/tests/programs/later/large.c");

fn large() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-later-large");
    for words in [&["-O2"][..], &["-O2", "--validate=async"]] {
        let out = own_program(&dir, "run.c", LARGE, words)?;
        let ran = run(&out, &[])?;
        if words.len() == 2 && one_core() {
            continue;
        }
        ended(&ran, 0, &[], &["steadfast"])?;
        if ran.stdout != b"292409964517884\n" {
            return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Refused at run time: what a record cannot say.
fn threads() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-later-threads");
    let out = own_program(
        &dir,
        "run.c",
        include_str!("../../cc/tests/programs/later/thread.c"),
        &["-O2", "--validate=async"],
    )?;
    let words: &[&str] = if one_core() {
        &["one core only"]
    } else {
        &["a second thread runs handlers", "fix:"]
    };
    ended(&run(&out, &[])?, 121, words, &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

fn needs_two_cores() -> Result<(), Failed> {
    let first = steadfast_sys::cpu::allowed()[0];
    let ran = Command::new("taskset")
        .args(["-c", &first.to_string()])
        .arg(hardened("later.c", "O2", &["-O2"], 0)?)
        .output()?;
    ended(&ran, 121, &["one core only", "fix:"], &[])
}

const ASYNC: &[&str] = &["--validate=async"];

/// Programs that are not linked.
const REFUSED: &[Refused] = &[
    Refused {
        name: "lock",
        text: include_str!("../../cc/tests/programs/later/lock.c"),
        flags: ASYNC,
        says: &["pthread_mutex_lock", "does not keep", "fix:"],
    },
    Refused {
        name: "sorting",
        text: include_str!("../../cc/tests/programs/later/sorting.c"),
        flags: ASYNC,
        says: &["qsort", "memory of its own"],
    },
    Refused {
        name: "reader",
        text: include_str!("../../cc/tests/programs/later/reader.c"),
        flags: ASYNC,
        says: &["reader", "does not keep"],
    },
    Refused {
        name: "cxx",
        text: include_str!("../../cc/tests/programs/probes/main.c"),
        flags: &["--validate=async", "-xc++"],
        says: &["for C programs", "fix:"],
    },
];

/// A module that does not keep what it reads makes no program whose second runs come later.
fn mixed() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-later-mixed");
    let object = |name: &str, text: &str, flags: &[&str]| -> Result<PathBuf, Failed> {
        let source = dir.join(name);
        fs::write(&source, text)?;
        let out = source.with_extension("o");
        build(
            compiler(true, false),
            &[flags, &["-c"]].concat(),
            &[source],
            &out,
        )?;
        Ok(out)
    };
    let one = object(
        "one.c",
        include_str!("../../cc/tests/programs/later/one.c"),
        &["--validate=async"],
    )?;
    let two = object(
        "two.c",
        include_str!("../../cc/tests/programs/probes/unit.c"),
        &[],
    )?;
    let link = |flags: &[&str], out: &Path| {
        compiler(true, false)
            .args(flags)
            .args([&one, &two])
            .arg("-o")
            .arg(out)
            .output()
    };
    let out = dir.join("program");
    let ran = link(&["--validate=async"], &out)?;
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    if ran.status.success() || out.exists() || !said.contains("two.c was compiled without") {
        return Err(said.into());
    }
    // Without the flag at the link all second runs come at once, whatever the objects keep.
    link(&[], &out)?;
    ended(&run(&out, &[])?, 0, &[], &["steadfast"])?;
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (mode, (name, _)) in MODES.iter().enumerate() {
        for (column, (way, flags)) in WAYS.iter().enumerate() {
            // Each way in one of the two modes, -O2 in both.
            if column != 1 && column % 2 != mode && !all() {
                continue;
            }
            trials.push(Trial::test(
                format!("harden::later::{name}::later.c::{way}"),
                move || same("later.c", way, flags, mode),
            ));
        }
        for guest in ["libsei.c", "inputs.c"] {
            trials.push(Trial::test(
                format!("harden::later::{name}::{guest}"),
                move || same(guest, "O2", &["-O2"], mode),
            ));
        }
        for strike in STRIKES {
            for (in_run, names) in [(1, strike.first), (2, strike.second)] {
                let Some(names) = names else { continue };
                let Strike { place, event, .. } = strike;
                trials.push(Trial::test(
                    format!("harden::later::{name}::{place}_{in_run}_{event}"),
                    move || struck(mode, strike, in_run, names),
                ));
            }
        }
    }
    for seed in 1..=if all() { 6 } else { 2 } {
        trials.push(Trial::test(
            format!("harden::later::random_{seed}"),
            move || random_program(seed),
        ));
    }
    trials.extend(REFUSED.iter().map(|row| row.trial("harden::later")));
    trials.push(Trial::test("harden::later::refuse::mixed", mixed));
    trials.push(Trial::test("harden::later::refuse::threads", threads));
    trials.push(Trial::test(
        "harden::later::refuse::one_core",
        needs_two_cores,
    ));
    trials.push(Trial::test("harden::later::event", event_line));
    trials.push(Trial::test("harden::later::forks", forks));
    trials.push(Trial::test("harden::later::large", large));
    trials.push(Trial::test(
        "harden::later::validator_killed",
        validator_killed,
    ));
    trials.push(Trial::test("harden::later::validator_goes", validator_goes));
    trials
}
