//! State at rest: copies, checksums and the scrubber of programs built with `--state`.
//!
//! tests/harden/state.c is a small key-value store, state.cc a bank in containers of C++, state_threads.c has four threads.
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

use libtest_mimic::{Failed, Trial};
use steadfast_integrity::event::{Line, StateAction, What};

use crate::bench::{Bench, workspace};
use crate::harden::{WAYS, build, compiler, ended, random_source, run, source};
use crate::sample::all;

fn guest(name: &str) -> PathBuf {
    workspace().join("tests/harden").join(name)
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
        let plain = run(&built(&dir, source, &[])?, &[])?;
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

/// Place, whether it is scrubbed, what has to be said.
const STRIKES: &[(&str, bool, &str)] = &[
    (
        "object",
        false,
        "the runs write different bytes with printf",
    ),
    ("copy", false, "the runs write different bytes with printf"),
    ("pointer", false, "handler handle"),
    ("pointer_copy", false, "handler handle"),
    ("root", false, "object and copy differ, at"),
    ("root_copy", false, "(order at 0x8)"),
    ("limit", false, "its checksum does not fit, at"),
    ("count", false, "its checksum does not fit, at"),
    ("count", true, "outside handlers: state has changed at rest"),
    (
        "unused",
        false,
        "outside handlers: state has changed at rest",
    ),
    (
        "unused_copy",
        false,
        "outside handlers: state has changed at rest",
    ),
    (
        "object",
        true,
        "no checksum tells which is right, memory at",
    ),
];

fn strikes() -> Result<(), Failed> {
    let store = Store::new("strikes", &["--state=dup,crc", "-O2"])?;
    for &(place, scrubbed, words) in STRIKES {
        let ran = store.struck(place, 205, 3, scrubbed.then_some("0"))?;
        let text = String::from_utf8_lossy(&ran.stderr);
        if !store.stopped(&ran) || !text.contains(words) {
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
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let out = dir.join(level);
        build(
            compiler(false, true),
            &[level, "-std=c++17"],
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

/// What cannot be protected: flags, source, words. The link fails.
const REFUSED: &[(&str, &[&str], &str, &[&str])] = &[
    (
        "no_flag",
        &[],
        include_str!("../harden/programs/state/flag.c"),
        &["compiler was not told so", "--state=dup"],
    ),
    (
        "other_flag",
        &["--state=crc"],
        include_str!("../harden/programs/state/flag.c"),
        &["variable x", "add dup to --state"],
    ),
    (
        "thread_local",
        &["--state=dup"],
        include_str!("../harden/programs/state/thread_local.c"),
        &["variable x", "thread-local"],
    ),
    (
        "word",
        &["--state=copy"],
        "int main(void) { return 0; }\n",
        &["--state takes ecc, dup, crc or dup,crc, found copy"],
    ),
];

fn refused(name: &str, flags: &[&str], text: &str, words: &[&str]) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("state-refused-{name}"));
    let (source, out) = (dir.join("refused.c"), dir.join("refused"));
    std::fs::write(&source, text)?;
    let ran = compiler(true, false)
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .output()?;
    let text = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() || out.exists() || !words.iter().all(|word| text.contains(word)) {
        return Err(said(&ran).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Modules that disagree do not become a program.
fn mixed() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-mixed");
    let (one, two, out) = (dir.join("one.c"), dir.join("two.c"), dir.join("mixed"));
    std::fs::write(&one, include_str!("../harden/programs/state/mixed.c"))?;
    std::fs::write(&two, "int other(int k) { return k; }\n")?;
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

/// What only shows at run time stops there, with a reason.
const STOPPED: &[(&str, &str, &str)] = &[
    (
        "lock",
        "SF_DUP struct { pthread_mutex_t lock; int x; } s;\nSF_LOCAL_HANDLER void handle(void) { pthread_mutex_lock(&s.lock); s.x++; pthread_mutex_unlock(&s.lock); }\nint main(void) { handle(); }\n",
        "pthread_mutex_lock",
    ),
    (
        "outside_write",
        "SF_DUP char *rest;\nSF_LOCAL_HANDLER int handle(void) { return !rest; }\nint main(void) { char text[] = \"a b\"; rest = text; strsep(&rest, \" \"); return handle(); }\n",
        "would write by itself: strsep",
    ),
    (
        "list",
        "SF_DUP char s[8];\nstatic int f(char *to, const char *how, ...) { va_list l; va_start(l, how); int n = vsnprintf(to, 8, how, l); va_end(l); return n; }\nSF_LOCAL_HANDLER int handle(void) { char b[8]; int n; return f(b, \"%s%n\", s, &n); }\nint main(void) { return handle(); }\n",
        "not known for a list of arguments",
    ),
    (
        "pure_by_pointer",
        "SF_DUP char s[8];\nint (*volatile compare)(const char *, const char *) = strcmp;\nSF_LOCAL_HANDLER int handle(void) { int (*c)(const char *, const char *) = compare; return c(s, \"x\"); }\nint main(void) { return handle(); }\n",
        "has no hardened code",
    ),
];

fn stopped(name: &str, text: &str, words: &str) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("state-stopped-{name}"));
    let (source, out) = (dir.join("stopped.c"), dir.join("stopped"));
    std::fs::write(
        &source,
        format!(
            "#include <steadfast/sei.h>\n#include <pthread.h>\n#include <stdarg.h>\n#include <stdio.h>\n#include <string.h>\n#include <time.h>\n{text}"
        ),
    )?;
    build(
        compiler(true, false),
        &["--state=dup", "-O1"],
        &[source],
        &out,
    )?;
    ended(&run(&out, &[])?, 121, &[words, "fix:"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// The same by a policy, the source untouched: variables, and the memory that a function allocates.
fn by_policy() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-policy");
    let (source, policy, out) = (dir.join("own.c"), dir.join("own.policy"), dir.join("own"));
    std::fs::write(&source, include_str!("../harden/programs/state/own.c"))?;
    std::fs::write(
        &policy,
        "local-handler push\ndup list\ndup-memory make\ncrc total\n",
    )?;
    let plain = dir.join("plain");
    build(
        compiler(false, false),
        &["-O2"],
        std::slice::from_ref(&source),
        &plain,
    )?;
    let golden = run(&plain, &[])?.stdout;
    let flag = format!("--steadfast-policy={}", policy.display());
    build(
        compiler(true, false),
        &[&flag, "--state=dup,crc", "-O2"],
        &[source],
        &out,
    )?;
    let ran = run(&out, &[])?;
    if !ran.status.success() || ran.stdout != golden || golden.is_empty() || !ran.stderr.is_empty()
    {
        return Err(said(&ran).into());
    }
    ended(
        &run(&out, &["n"])?,
        122,
        &["object and copy differ", "memory at"],
        &[],
    )?;
    ended(
        &run(&out, &["t"])?,
        122,
        &["its checksum does not fit", "(total at 0x0)"],
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A part of an object that a library keeps has no copy, the rest has, and the next object in its place as well.
fn kept_by_a_library() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-keeps");
    let library = dir.join("library.o");
    let source = source("keeps.c");
    build(
        compiler(false, false),
        &["-O2", "-c", "-DLIBRARY"],
        std::slice::from_ref(&source),
        &library,
    )?;
    let make = |name: &str, policy: &str, hardened: bool| -> Result<PathBuf, Failed> {
        let (file, out) = (dir.join(format!("{name}.policy")), dir.join(name));
        std::fs::write(&file, policy)?;
        let flag = format!("--steadfast-policy={}", file.display());
        let words: &[&str] = if hardened {
            &[&flag, "--state=dup", "-O2"]
        } else {
            &["-O2"]
        };
        build(
            compiler(hardened, false),
            words,
            &[source.clone(), library.clone()],
            &out,
        )?;
        Ok(out)
    };
    let golden = run(&make("plain", "", false)?, &[])?.stdout;
    let state = "local-handler handle\ndup-memory make\n";
    let out = make("kept", &format!("{state}keeps hook_set 0:#16\n"), true)?;
    let scrubbed = |arguments: &[&str]| {
        Command::new(&out)
            .args(arguments)
            .env("STEADFAST_SCRUB", "1000000000")
            .output()
    };
    for ran in [run(&out, &[])?, scrubbed(&[])?] {
        if !ran.status.success() || ran.stdout != golden || !ran.stderr.is_empty() {
            return Err(said(&ran).into());
        }
    }
    for strike in ["before", "after", "reused"] {
        // What nobody touches again the scrubber alone can see: it repairs that, or stops.
        let ran = scrubbed(&[strike])?;
        if !String::from_utf8_lossy(&ran.stderr).contains("changed at rest") {
            return Err(format!("{strike}: {}", said(&ran)).into());
        }
    }
    let ran = scrubbed(&["beside"])?;
    if !ran.status.success() || !String::from_utf8_lossy(&ran.stderr).contains("repaired") {
        return Err(format!("beside: {}", said(&ran)).into());
    }
    // The library's own bytes are the library's: as without protection.
    let ran = run(&out, &["hook"])?;
    if !ran.status.success() || !ran.stderr.is_empty() {
        return Err(said(&ran).into());
    }
    let unsaid = make("unsaid", state, true)?;
    ended(
        &run(&unsaid, &[])?,
        122,
        &["object and copy differ", "memory at"],
        &[],
    )?;
    let long = make("long", &format!("{state}keeps hook_set 0:#4096\n"), true)?;
    ended(
        &run(&long, &[])?,
        121,
        &["more bytes than the object has", "fix:"],
        &[],
    )?;
    match make("mistyped", &format!("{state}keeps hook_sett 0:#16\n"), true) {
        Err(why)
            if why
                .message()
                .is_some_and(|why| why.contains("the policy's hook_sett")) => {}
        other => return Err(format!("a mistyped name of `keeps`: {other:?}").into()),
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Strings through lists of arguments, what the C library writes outside handlers, constants.
fn lists() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-lists");
    let (policy, plain) = (dir.join("constants.policy"), dir.join("plain"));
    std::fs::write(&policy, "dup-constants\n")?;
    let source = source("lists.c");
    let sources = std::slice::from_ref(&source);
    build(
        compiler(false, false),
        &["-DSTEADFAST_PLAIN", "-O2"],
        sources,
        &plain,
    )?;
    let golden = run(&plain, &[])?.stdout;
    let constants = format!("--steadfast-policy={}", policy.display());
    let ways: [(&str, &[&str]); 8] = [
        ("dup-O0", &["--state=dup", "-O0"]),
        ("dup-O2", &["--state=dup", "-O2"]),
        ("crc-O2", &["--state=crc", "-DKEPT=SF_CRC", "-O2"]),
        ("constants-O0", &["--state=dup", &constants, "-O0"]),
        ("constants-O2", &["--state=dup", &constants, "-O2"]),
        (
            "constants-fortified",
            &["--state=dup", &constants, "-O2", "-D_FORTIFY_SOURCE=2"],
        ),
        ("masks", &["--state=dup,crc", "-O3", "-mavx2"]),
        (
            "crc-masks",
            &["--state=crc", "-DKEPT=SF_CRC", "-O3", "-mavx2"],
        ),
    ];
    for (way, words) in ways {
        let out = dir.join(way);
        build(compiler(true, false), words, sources, &out)?;
        let ran = run(&out, &[])?;
        if !ran.status.success() || ran.stdout != golden || golden.is_empty() {
            return Err(format!("{way}: {}", said(&ran)).into());
        }
        ended(&run(&out, &["string"])?, 122, &["handler handle"], &[])?;
        ended(&run(&out, &["tail"])?, 122, &["outside handlers"], &[])?;
        if way.starts_with("constants") {
            ended(&run(&out, &["constant"])?, 122, &["handler handle"], &[])?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Types that no other module knows are thrown, and found again, by what is in neither run.
fn constants_of_types() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-types");
    let policy = dir.join("constants.policy");
    std::fs::write(&policy, "dup-constants\n")?;
    let constants = format!("--steadfast-policy={}", policy.display());
    let golden = run(&built(&dir, "exceptions.cc", &[])?, &[])?.stdout;
    let ran = run(
        &built(&dir, "exceptions.cc", &["--state=dup", &constants, "-O2"])?,
        &[],
    )?;
    if !ran.status.success() || ran.stdout != golden || golden.is_empty() {
        return Err(said(&ran).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What threads hold of the allocator of protected memory is no child's.
fn forks() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("state-forks");
    let (policy, out) = (dir.join("forks.policy"), dir.join("forks"));
    std::fs::write(&policy, "local-handler handle\ndup-memory take\n")?;
    let flag = format!("--steadfast-policy={}", policy.display());
    build(
        compiler(true, false),
        &[&flag, "--state=dup", "-O2", "-pthread"],
        &[source("forks.c")],
        &out,
    )?;
    let ran = run(&out, &[])?;
    if !ran.status.success() || !ran.stderr.is_empty() {
        return Err(said(&ran).into());
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
        if column % 2 == 0 && column != 0 && !all() {
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
    for &(name, flags, text, words) in REFUSED {
        trials.push(Trial::test(
            format!("harden::state::refuse::{name}"),
            move || refused(name, flags, text, words),
        ));
    }
    for &(name, text, words) in STOPPED {
        trials.push(Trial::test(
            format!("harden::state::stop::{name}"),
            move || stopped(name, text, words),
        ));
    }
    trials.push(Trial::test("harden::state::mixed", mixed));
    trials.push(Trial::test("harden::state::policy", by_policy));
    trials.push(Trial::test("harden::state::lists", lists));
    trials.push(Trial::test("harden::state::forks", forks));
    trials.push(Trial::test("harden::state::types", constants_of_types));
    trials.push(Trial::test("harden::state::keeps", kept_by_a_library));
    trials
}
