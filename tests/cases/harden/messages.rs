//! Messages between the receiver's check and the handler, and between the handler and the sender.

use libtest_mimic::Failed;

use super::compile::{build, compiler, ended, named, own_program, program, run, source};
use super::refuse::refused;
use crate::bench::{Bench, workspace};
use crate::trial::Trial;

/// What is struck between the receiver's check and a handler, and between a handler and the sender: cc/tests/provenance.c.
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
    let dir = Bench::get().case_dir("harden-provenance");
    let guests = workspace().join("cc/tests");
    let policy = format!(
        "--steadfast-policy={}",
        guests.join("provenance.policy").display()
    );
    let out = dir.join("provenance");
    let plain = dir.join("plain");
    let built = compiler(false, false)
        .args(["-O1", "-o"])
        .arg(&plain)
        .arg(guests.join("provenance.c"))
        .output()?;
    ended(&built, 0, &[], &[])?;
    let right = run(&plain, &[])?;
    let state = format!(
        "--steadfast-policy={}",
        guests.join("provenance-state.policy").display()
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
            .arg(guests.join("provenance.c"))
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
        &[guests.join("provenance.c")],
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
        include_str!("../../../cc/tests/programs/probes/handler.c"),
        &[&named(&dir, "local-handler handle\ncarries no_such\n")?],
        &["the policy's no_such"],
    )
}

/// Plain datagrams beneath the envelope: cc/tests/datagrams.c.
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
        sources.push(workspace().join("cc/envelope").join(part));
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

/// What waits for validation is not in the file yet.
fn file_asked_about() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-file-asked");
    let text = include_str!("../../../cc/tests/programs/file_asked_about.c");
    let program = own_program(&dir, "asked.c", text, &["-O1"])?;
    ended(
        &run(&program, &[])?,
        121,
        &["asks about a file to which it has written"],
        &[],
    )?;
    let text = include_str!("../../../cc/tests/programs/stream_read_back.c");
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

/// What sscanf would allocate by itself is refused when it is called; differ.c has what works.
fn scan_refuses() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-scan");
    let out = own_program(
        &dir,
        "run.c",
        include_str!("../../../cc/tests/programs/scan.c"),
        &["-O1"],
    )?;
    ended(&run(&out, &[])?, 121, &["knows no %m", "fix:"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// An argument that the policy reads and the handler does not: cc/tests/unread.c. The optimiser removed it from the call.
fn unread_length() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-unread");
    let out = dir.join("unread");
    let policy = format!("--steadfast-policy={}", source("unread.policy").display());
    build(
        compiler(true, false),
        &["-O2", &policy],
        &[source("unread.c")],
        &out,
    )?;
    let ran = run(&out, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    if ran.stdout != b"2130\n" {
        return Err(String::from_utf8_lossy(&ran.stdout).into_owned().into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("harden::unread_length", unread_length),
        Trial::test("harden::messages_outside", messages_outside),
        Trial::test("harden::datagrams", datagrams),
        Trial::test("harden::changed_input", changed_input),
        Trial::test("harden::refuse::file", file_asked_about),
        Trial::test("harden::scan_refuses", scan_refuses),
    ]
}
