//! Effects that fail after validation, names of a policy that the program lacks, and what handlers meet in a daemon.
//!
//! Invariant: no error of a deferred effect is dropped. It stops the program with errno, descriptor and handler, or it is the
//! result of the next call on that descriptor (cc/runtime/late.c).

use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

use crate::bench::Bench;
use crate::harden::{build, compiler, ended, run, source};
use crate::trial::Trial;

/// Built with a policy of these statements.
fn built(name: &str, policy: &str) -> Result<PathBuf, Failed> {
    let dir = Bench::get().case_dir(&format!("harden-late-{name}"));
    std::fs::write(dir.join("policy"), policy)?;
    let flag = format!("--steadfast-policy={}", dir.join("policy").display());
    let out = dir.join("late");
    build(
        compiler(true, false),
        &["-O2", &flag],
        &[source("late.c")],
        &out,
    )?;
    Ok(out)
}

/// What is said of it, by default: which descriptor, which error, which handler.
const STOPS: &[(&str, &[&str])] = &[
    (
        "full",
        &[
            "handler record (",
            "write to descriptor",
            "ENOSPC",
            "0 of 9 bytes have left",
        ],
    ),
    (
        "closed",
        &["handler record (", "write to descriptor 77", "EBADF"],
    ),
    (
        "pipe",
        &["handler record (", "write to descriptor", "EPIPE"],
    ),
    ("stream", &["handler to_stream (", "fflush", "ENOSPC"]),
    ("fclose", &["handler closes (", "fclose", "ENOSPC"]),
    (
        "unlink",
        &["handler removes (", "unlink of /proc/self/status", "(E"],
    ),
];

fn stops() -> Result<(), Failed> {
    let program = built("stops", "")?;
    ended(&run(&program, &["fine"])?, 0, &[], &["steadfast"])?;
    for (how, words) in STOPS {
        ended(&run(&program, &[how])?, 121, words, &[])?;
    }
    Ok(())
}

/// What the program prints in place of a stop, when `next` follows an error of that kind.
fn told(program: &Path, how: &str, next: &str, says: &str) -> Result<(), Failed> {
    let ran = run(program, &[how, next])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if said.trim_end() != says {
        return Err(format!("{how} {next}: {said}").into());
    }
    Ok(())
}

/// A peer that is gone is told by the next call; the first and the third succeed as seen from the handler: the third asks anew.
fn peers_are_told() -> Result<(), Failed> {
    let program = built("default", "")?;
    told(&program, "peer", "handler", "said 2, failed EPIPE")?;
    let program = built("stop", "late-errors stop\n")?;
    ended(
        &run(&program, &["peer"])?,
        121,
        &["handler message (", "send to descriptor", "EPIPE"],
        &[],
    )
}

fn next_call() -> Result<(), Failed> {
    let program = built("next-call", "late-errors next-call")?;
    let told = |how, next, says| told(&program, how, next, says);
    told("full", "handler", "said 2, failed ENOSPC")?;
    told("full", "outside", "outside: ENOSPC\nsaid 2, failed ENOSPC")?;
    told("full", "close", "close: ENOSPC")?;
    told("pipe", "handler", "said 2, failed EPIPE")?;
    told("fine", "outside", "outside: written\nsaid 3, failed not")?;
    told("fine", "last", "went on")?;
    told("peer", "last", "went on")?;
    let program = built("next-call-closed", "late-errors next-call\n")?;
    ended(
        &run(&program, &["full", "last"])?,
        121,
        &["handler last (", "that the same event closes", "ENOSPC"],
        &[],
    )?;
    ended(
        &run(&program, &["closed"])?,
        121,
        &["descriptor 77", "EBADF"],
        &[],
    )
}

/// A name that is not there, in any statement, is an error of the link; one that may be missing says so.
fn misspelt() -> Result<(), Failed> {
    const ROWS: &[(&str, Option<&str>)] = &[
        ("local-handler handel\n", Some("handler handel")),
        ("local-handler handle\nonce cuont\n", Some("`once cuont`")),
        ("local-handler handle\nignore totl\n", Some("`ignore totl`")),
        (
            "local-handler handle\nignore handle\n",
            Some("no variable handle"),
        ),
        (
            "local-handler handle\npure total\n",
            Some("no function total"),
        ),
        ("local-handler handle\npure lenght\n", Some("`pure lenght`")),
        ("local-handler handle\nracy totl\n", Some("`racy totl`")),
        (
            "local-handler handle\nwrap cuont handle\n",
            Some("`wrap cuont`"),
        ),
        ("local-handler handle\nown stlren\n", Some("`own stlren`")),
        (
            "local-handler handle\nonce ?cuont count\nignore total\n",
            None,
        ),
        ("programs another\nlocal-handler handel\nonce cuont\n", None),
    ];
    let dir = Bench::get().case_dir("harden-misspelt");
    std::fs::write(
        dir.join("main.c"),
        include_str!("../../cc/tests/programs/late_count.c"),
    )?;
    for (policy, names) in ROWS {
        std::fs::write(dir.join("policy"), policy)?;
        let out = dir.join("program");
        let ran = compiler(true, false)
            .args([
                "-O2",
                &format!("--steadfast-policy={}", dir.join("policy").display()),
            ])
            .arg(dir.join("main.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        match names {
            Some(names) => ended(&ran, 1, &[names, "fix:"], &[])?,
            None => ended(&ran, 0, &[], &["error"])?,
        }
        if out.exists() != names.is_none() {
            return Err(format!("{policy}: {}", ran.status).into());
        }
        if names.is_none() {
            ended(&run(&out, &[])?, 0, &[], &["steadfast"])?;
            std::fs::remove_file(&out)?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A protected variable that atomic operations reach, and the name of a part that only the optimiser makes.
fn state_names() -> Result<(), Failed> {
    const ROWS: &[(&str, &str)] = &[
        (
            "dup count\n",
            "main.c:9 changes or reads it by an atomic operation",
        ),
        ("dup s.0\n", "`dup s.0`: no variable s.0"),
        ("dup handle\n", "`dup handle`: no variable handle"),
        ("dup s\n", ""),
    ];
    let dir = Bench::get().case_dir("harden-state-names");
    std::fs::write(
        dir.join("main.c"),
        include_str!("../../cc/tests/programs/late_fields.c"),
    )?;
    for (policy, names) in ROWS {
        std::fs::write(
            dir.join("policy"),
            format!("local-handler handle\n{policy}"),
        )?;
        let out = dir.join("program");
        let ran = compiler(true, false)
            .args(["-O2", "--state=dup"])
            .arg(format!(
                "--steadfast-policy={}",
                dir.join("policy").display()
            ))
            .arg(dir.join("main.c"))
            .arg("-o")
            .arg(&out)
            .output()?;
        if names.is_empty() {
            ended(&ran, 0, &[], &["steadfast"])?;
            ended(&run(&out, &[])?, 0, &[], &["steadfast"])?;
        } else {
            ended(&ran, 1, &[names, "fix:"], &["Stack dump"])?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// One word, written plainly and by atomic operations: cc/tests/atomics.cc.
fn atomics() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-atomics");
    std::fs::write(dir.join("policy"), "local-handler handle\natomics-once\n")?;
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    let (plain, out) = (dir.join("plain"), dir.join("hardened"));
    build(
        compiler(false, true),
        &["-O2"],
        &[source("atomics.cc")],
        &plain,
    )?;
    let right = run(&plain, &[])?;
    for flags in [
        &["-O0", &policy][..],
        &["-O2", &policy],
        &["-O2", "--recover", &policy],
    ] {
        build(compiler(true, true), flags, &[source("atomics.cc")], &out)?;
        let ran = run(&out, &[])?;
        ended(&ran, 0, &[], &["steadfast"])?;
        if ran.stdout != right.stdout || right.stdout.is_empty() {
            return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A daemon that has called chroot, where there is no /proc: cc/tests/chroot.c.
fn chroot() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-chroot");
    let (out, empty) = (dir.join("daemon"), dir.join("empty"));
    std::fs::create_dir_all(&empty)?;
    let later = ["-DLATER", "--validate=async"];
    for (flags, says) in [
        (&["-O0"][..], "4035 0 3\n"),
        (&["-O2"], "4035 0 3\n"),
        (&["-O0", later[0], later[1]], "4035 0 20002\n"),
        (&["-O2", later[0], later[1]], "4035 0 20002\n"),
    ] {
        build(compiler(true, false), flags, &[source("chroot.c")], &out)?;
        for folder in ["/", &empty.to_string_lossy()] {
            let ran = run(&out, &[folder])?;
            ended(&ran, 0, &[], &["steadfast"])?;
            if ran.stdout != says.as_bytes() {
                return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
            }
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("harden::late::stops", stops),
        Trial::test("harden::late::peers_are_told", peers_are_told),
        Trial::test("harden::late::next_call", next_call),
        Trial::test("harden::policy_names", misspelt),
        Trial::test("harden::state_names", state_names),
        Trial::test("harden::atomics", atomics),
        Trial::test("harden::chroot", chroot),
    ]
}
