//! How the cases build: plain clang, or ours, each program once.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, LazyLock, Mutex};

use libtest_mimic::Failed;

use crate::bench::{Bench, workspace};

/// Ways to build, plain and hardened alike.
pub(crate) const WAYS: &[(&str, &[&str])] = &[
    ("O0", &["-O0"]),
    ("O2", &["-O2"]),
    ("O3_thinlto", &["-O3", "-flto=thin", "-fuse-ld=lld"]),
    ("O2_nopie", &["-O2", "-fno-pie", "-no-pie", "-DNDEBUG"]),
    ("O2_avx2", &["-O2", "-mavx2", "-static"]),
];

/// As O2, but that a difference is repaired.
pub(super) const REPAIRING: (&str, &[&str]) = ("recover", &["-O2", "--recover"]);

/// Further ways, for some guests: one module at the end, and what distributions build with (dpkg-buildflags(1)).
pub(super) const MORE_WAYS: &[(&str, &[&str])] = &[
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

type Built = Arc<Mutex<Option<Result<PathBuf, String>>>>;

static PROGRAMS: LazyLock<Mutex<HashMap<String, Built>>> = LazyLock::new(Mutex::default);

pub(crate) fn source(guest: &str) -> PathBuf {
    workspace().join("cc/tests").join(guest)
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
        plain.arg(workspace().join("cc/include"));
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

pub(super) fn named(dir: &Path, statements: &str) -> Result<String, Failed> {
    let policy = dir.join("policy");
    std::fs::write(&policy, statements)?;
    Ok(format!("--steadfast-policy={}", policy.display()))
}
