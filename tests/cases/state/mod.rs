//! State at rest: copies, checksums and the scrubber of programs built with `--state`.
//!
//! cc/tests/state.c is a small key-value store, state.cc a bank in containers of C++, state_threads.c has four threads.
//! Memory is changed as a particle does it, by no store that the compiler knows. containers.cc holds the trees and lists of
//! steadfast/containers.h to the rules of theirs.
//!
//! Invariants
//!  1. A clean run says nothing and prints what the plain build prints, whoever scrubs meanwhile.
//!  2. A struck run prints what the plain build prints, or stops with status 122 after a beginning of that.
//!
//! Not covered: flips of registers and addresses drawn at random (make campaign).

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libtest_mimic::Failed;
use steadfast_contract::event::{Line, StateAction, What};

use crate::bench::{Bench, workspace};
use crate::harden::{WAYS, build, compiler, ended, program, random_source, run, source};
use crate::sample::all;
use crate::trial::Trial;

mod named;
mod refused;

fn guest(name: &str) -> PathBuf {
    workspace().join("cc/tests").join(name)
}

/// A guest built in `dir`; plain without flags.
fn built(dir: &Path, name: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let hardened = !flags.is_empty();
    let out = dir.join(if hardened { "hardened" } else { "plain" });
    let cxx = name.ends_with(".cc");
    let mut flags = if hardened { flags } else { &["-O2"][..] }.to_vec();
    if cxx {
        flags.push("-std=c++17");
    }
    build(compiler(hardened, cxx), &flags, &[guest(name)], &out)?;
    Ok(out)
}

/// The store, its plain output, and the folder.
struct Store {
    dir: PathBuf,
    program: PathBuf,
    golden: Vec<u8>,
}

impl Store {
    fn new(name: &str, flags: &[&str]) -> Result<Self, Failed> {
        Self::of("state.c", name, flags)
    }

    fn of(source: &str, name: &str, flags: &[&str]) -> Result<Self, Failed> {
        let dir = Bench::get().case_dir(&format!("state-{name}"));
        let words = ["-O2", "-std=c++17"];
        let words = &words[..if source.ends_with(".cc") { 2 } else { 1 }];
        let plain = run(&program(source, "store", words, false)?, &[])?;
        if !plain.status.success() || plain.stdout.len() < 10_000 {
            return Err(format!("the plain store ends with {}", plain.status).into());
        }
        let program = built(&dir, source, flags)?;
        Ok(Self {
            dir,
            program,
            golden: plain.stdout,
        })
    }

    /// Before this request this bit of this place changes; it scrubs by itself so many bytes each ten requests.
    fn struck(
        &self,
        place: &str,
        request: u32,
        bit: u32,
        scrub: Option<&str>,
    ) -> Result<Output, Failed> {
        let mut command = Command::new(&self.program);
        command.args([place, &request.to_string(), &bit.to_string()]);
        if let Some(bytes) = scrub {
            command.env("STATE_SCRUB", bytes);
        }
        Ok(command
            .env("STEADFAST_EVENTS", self.dir.join("events"))
            .output()?)
    }

    /// As the plain one.
    fn whole(&self, ran: &Output) -> bool {
        ran.status.success() && ran.stdout == self.golden
    }

    /// Stopped by a verdict before anything wrong was out.
    fn stopped(&self, ran: &Output) -> bool {
        ran.status.code() == Some(122) && self.golden.starts_with(&ran.stdout)
    }

    /// A pointer into nowhere: the run that followed it crashed, or was stopped at it, before anything was out.
    fn lost(&self, ran: &Output) -> bool {
        use std::os::unix::process::ExitStatusExt as _;
        let ended = matches!(ran.status.signal(), Some(7 | 11)) || ran.status.code() == Some(121);
        ended && self.golden.starts_with(&ran.stdout)
    }
}

fn said(ran: &Output) -> String {
    let text = String::from_utf8_lossy(&ran.stderr);
    format!("{}, {} bytes\n{text}", ran.status, ran.stdout.len())
}

fn clean(way: &str, flags: &[&str]) -> Result<(), Failed> {
    let all: Vec<&str> = ["--state=dup,crc"]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let store = Store::new(&format!("clean-{way}"), &all)?;
    for scrub in [None, Some("0"), Some("5000")] {
        let ran = store.struck("none", 0, 0, scrub)?;
        if !store.whole(&ran) || !ran.stderr.is_empty() {
            return Err(said(&ran).into());
        }
    }
    let ran = Command::new(&store.program)
        .env("STEADFAST_SCRUB", "1000000000")
        .output()?;
    if !store.whole(&ran) || !ran.stderr.is_empty() {
        return Err(format!("with the scrubber's thread: {}", said(&ran)).into());
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

/// Each kind of object by itself, where the other is trusted.
fn one_kind(kind: &str) -> Result<(), Failed> {
    let store = Store::new(
        &format!("only-{kind}"),
        &[
            &format!("--state={kind}"),
            "-O2",
            if kind == "dup" {
                "-DONLY=1"
            } else {
                "-DONLY=2"
            },
        ],
    )?;
    let ran = store.struck("none", 0, 0, Some("0"))?;
    if !store.whole(&ran) || !ran.stderr.is_empty() {
        return Err(said(&ran).into());
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

struct Strike {
    place: &'static str,
    /// By the scrubber, before a handler uses it.
    scrubbed: bool,
    says: &'static str,
}

const STRIKES: &[Strike] = &[
    Strike {
        place: "object",
        scrubbed: false,
        says: "the runs write different bytes with printf",
    },
    Strike {
        place: "copy",
        scrubbed: false,
        says: "the runs write different bytes with printf",
    },
    Strike {
        place: "pointer",
        scrubbed: false,
        says: "handler handle",
    },
    Strike {
        place: "pointer_copy",
        scrubbed: false,
        says: "handler handle",
    },
    Strike {
        place: "root",
        scrubbed: false,
        says: "object and copy differ, at",
    },
    Strike {
        place: "root_copy",
        scrubbed: false,
        says: "(order at 0x8)",
    },
    Strike {
        place: "limit",
        scrubbed: false,
        says: "its checksum does not fit, at",
    },
    Strike {
        place: "count",
        scrubbed: false,
        says: "its checksum does not fit, at",
    },
    Strike {
        place: "count",
        scrubbed: true,
        says: "outside handlers: state has changed at rest",
    },
    Strike {
        place: "unused",
        scrubbed: false,
        says: "outside handlers: state has changed at rest",
    },
    Strike {
        place: "unused_copy",
        scrubbed: false,
        says: "outside handlers: state has changed at rest",
    },
    Strike {
        place: "object",
        scrubbed: true,
        says: "no checksum tells which is right, memory at",
    },
];

fn strikes() -> Result<(), Failed> {
    let store = Store::new("strikes", &["--state=dup,crc", "-O2"])?;
    for &Strike {
        place,
        scrubbed,
        says,
    } in STRIKES
    {
        let ran = store.struck(place, 205, 3, scrubbed.then_some("0"))?;
        let text = String::from_utf8_lossy(&ran.stderr);
        if !store.stopped(&ran) || !text.contains(says) {
            return Err(format!("{place}, scrubbed {scrubbed}: {}", said(&ran)).into());
        }
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

/// Where a checksum tells which copy is right the other is repaired: by the scrubber, or before a retry.
fn repairs() -> Result<(), Failed> {
    let store = Store::new("repairs", &["--state=dup,crc", "-O2", "--recover"])?;
    let events = store.dir.join("events");
    for place in [
        "unused",
        "unused_copy",
        "pointer",
        "pointer_copy",
        "root",
        "root_copy",
    ] {
        let _ = std::fs::remove_file(&events);
        let ran = store.struck(place, 201, 3, Some("0"))?;
        let retried = !place.starts_with("unused");
        let text = String::from_utf8_lossy(&ran.stderr);
        if !store.whole(&ran)
            || !text.contains("; repaired")
            || text.contains("both runs of retry 1 agree") != retried
        {
            return Err(format!("{place}: {}", said(&ran)).into());
        }
        let lines = std::fs::read_to_string(&events)?;
        let line: Line = serde_json::from_str(lines.lines().next().unwrap_or_default())?;
        let told = matches!(&line.event.what, What::HardenState(s)
            if s.action == StateAction::Repaired && s.handler.is_empty() && s.tsc.len() > 8
                && s.object == if place.starts_with("root") { "order" } else { "memory" });
        if !told {
            return Err(format!("{place}: {line:?}").into());
        }
    }
    // Without a checksum nobody can tell; what is on the way to a retry is not overwritten with what is wrong.
    let ran = store.struck("root", 205, 3, None)?;
    if !store.stopped(&ran) {
        return Err(format!("without a checksum: {}", said(&ran)).into());
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

/// Each bit of a word of each place, early and late: nothing wrong gets out.
fn no_strike_gets_out() -> Result<(), Failed> {
    let store = Store::new("campaign", &["--state=dup,crc", "-O2"])?;
    let (mut whole, mut stopped) = (0, 0);
    for place in [
        "object",
        "copy",
        "pointer",
        "pointer_copy",
        "root",
        "root_copy",
        "limit",
        "count",
    ] {
        for bit in (0..64).step_by(5) {
            let ran = store.struck(place, 40 + bit * 5, bit, None)?;
            if store.whole(&ran) {
                whole += 1;
            } else if store.stopped(&ran) || store.lost(&ran) {
                stopped += 1;
            } else {
                return Err(format!("{place}, bit {bit}: {}", said(&ran)).into());
            }
        }
    }
    if stopped < 60 {
        return Err(format!("{whole} strikes had no effect, {stopped} were noticed").into());
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

/// Containers of C++: as the plain build without a fault, whoever scrubs.
fn clean_cxx(way: &str, flags: &[&str]) -> Result<(), Failed> {
    let all: Vec<&str> = ["--state=dup,crc"]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let store = Store::of("state.cc", &format!("cxx-{way}"), &all)?;
    for scrub in ["", "1000000000"] {
        let ran = Command::new(&store.program)
            .env("STEADFAST_SCRUB", scrub)
            .output()?;
        if !store.whole(&ran) || !ran.stderr.is_empty() {
            return Err(format!("STEADFAST_SCRUB={scrub}: {}", said(&ran)).into());
        }
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

/// Nodes of trees, lists and hash tables, their headers, texts and objects with virtual functions, struck at rest.
fn strikes_cxx() -> Result<(), Failed> {
    let store = Store::of("state.cc", "cxx-strikes", &["--state=dup,crc", "-O2"])?;
    for place in ["money", "link", "item", "table", "root", "fee", "text"] {
        for place in [place.to_owned(), format!("{place}_copy")] {
            for (request, bit) in [(206, 0), (206, 20), (433, 7), (433, 40)] {
                let ran = store.struck(&place, request, bit, None)?;
                if !store.stopped(&ran) && !store.lost(&ran) {
                    return Err(format!("{place}, bit {bit}: {}", said(&ran)).into());
                }
            }
        }
    }
    Bench::get().passed(&store.dir);
    Ok(())
}

/// Trees and lists in the place of libstdc++'s.
fn containers() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-containers");
    let levels: &[&str] = if all() {
        &["-O0", "-O1", "-O2", "-O3"]
    } else {
        &["-O0", "-O2"]
    };
    for level in levels {
        let out = dir.join(level);
        build(
            compiler(false, true),
            &[*level, "-std=c++17"],
            &[guest("containers.cc")],
            &out,
        )?;
        let ran = run(&out, &[])?;
        if !ran.status.success()
            || !ran
                .stdout
                .starts_with(b"trees and lists are as they should be")
        {
            return Err(format!("{level}: {}", String::from_utf8_lossy(&ran.stdout)).into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn threads() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-threads");
    let golden = run(&built(&dir, "state_threads.c", &[])?, &[])?;
    let hardened = built(&dir, "state_threads.c", &["--state=dup,crc", "-O2"])?;
    for scrub in ["", "100000000", "2000000000"] {
        let ran = Command::new(&hardened)
            .env("STEADFAST_SCRUB", scrub)
            .output()?;
        if !ran.status.success() || ran.stdout != golden.stdout || !ran.stderr.is_empty() {
            return Err(format!("STEADFAST_SCRUB={scrub}: {}", said(&ran)).into());
        }
    }
    let ran = Command::new(&hardened)
        .env("STEADFAST_SCRUB", "fast")
        .output()?;
    ended(&ran, 121, &["STEADFAST_SCRUB needs a number"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A random program whose variables are protected, some by copies and some by checksums.
fn random(seed: u64) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("state-random-{seed}"));
    let source = dir.join("random.c");
    let text = random_source(seed)
        .replacen("unsigned char u8[256]; unsigned short u16[128]; unsigned u32[64]; unsigned long u64[32]; double f64[16];",
            "SF_DUP unsigned char u8[256]; SF_CRC unsigned short u16[128]; SF_DUP unsigned u32[64]; unsigned long u64[32]; SF_CRC double f64[16];", 1);
    if !text.contains("SF_DUP unsigned char u8") {
        return Err("random_source declares its variables in another way now".into());
    }
    std::fs::write(&source, text)?;
    let mut golden: Option<Vec<u8>> = None;
    for (hardened, flags) in [
        (false, &["-O2", "-w"][..]),
        (true, &["-O0", "-w", "--state=dup,crc"]),
        (true, &["-O2", "-w", "--state=dup,crc"]),
    ] {
        let out = dir.join(format!("random-{hardened}{}", flags[0]));
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .chain(["-ftrivial-auto-var-init=zero"])
            .collect();
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
                "seed {seed}, {flags:?}, the same output: {same}: {}",
                said(&ran)
            )
            .into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (way, flags) in WAYS.iter().take(if all() { WAYS.len() } else { 3 }) {
        trials.push(Trial::test(
            format!("harden::state::clean::{way}"),
            move || clean(way, flags),
        ));
    }
    trials.push(Trial::test("harden::state::clean::recover", || {
        clean("recover", &["-O2", "--recover"])
    }));
    for kind in ["dup", "crc"] {
        trials.push(Trial::test(
            format!("harden::state::only_{kind}"),
            move || one_kind(kind),
        ));
    }
    trials.push(Trial::test("harden::state::strikes", strikes));
    trials.push(Trial::test("harden::state::repairs", repairs));
    trials.push(Trial::test(
        "harden::state::no_strike_gets_out",
        no_strike_gets_out,
    ));
    for (column, (way, flags)) in WAYS.iter().enumerate() {
        // The store has been built in the ways before the fourth.
        if column != 3 && !all() {
            continue;
        }
        trials.push(Trial::test(
            format!("harden::state::clean_cxx::{way}"),
            move || clean_cxx(way, flags),
        ));
    }
    trials.push(Trial::test("harden::state::clean_cxx::recover", || {
        clean_cxx("recover", &["-O2", "--recover"])
    }));
    trials.push(Trial::test("harden::state::strikes_cxx", strikes_cxx));
    trials.push(Trial::test("harden::state::containers", containers));
    trials.push(Trial::test("harden::state::threads", threads));
    for seed in 1..=if all() { 6 } else { 2 } {
        trials.push(Trial::test(
            format!("harden::state::random::{seed}"),
            move || random(seed),
        ));
    }
    trials.extend(refused::trials());
    trials.extend(named::trials());
    trials
}
