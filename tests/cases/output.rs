//! What the command does where its words cannot be written, and where a terminal interrupts a campaign.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use steadfast_contract::exit::Own;

use crate::bench::Bench;
use crate::trial::Trial;

/// How long a campaign may take to its first run, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn said(output: &Output) -> String {
    format!(
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A result that nobody can read is no success, and says so. Whoever has left has seen what it wanted.
fn results_that_are_lost() -> Result<(), Failed> {
    let binary = Bench::get().binary();
    let gate = ["inject", "gate", "sdc.count == 0"];
    for (words, code) in [
        (&["ps"][..], Own::Setup.code()),
        (&["top", "--count", "1"], Own::Setup.code()),
        (&["check"], Own::Setup.code()),
        (&["run", "--explain", "--", "true"], Own::Setup.code()),
        (&["man", "run"], Own::Setup.code()),
        (&["--help"], Own::Setup.code()),
        // It had something worse to say.
        (&gate, 2),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full")?;
        let output = Command::new(binary).args(words).stdout(full).output()?;
        let told = String::from_utf8_lossy(&output.stderr).contains("No space left on device");
        if output.status.code() != Some(code.into()) || !told {
            return Err(format!("{words:?} on a full device: {}", said(&output)).into());
        }
        let output = Command::new("sh")
            .args(["-c", "exec \"$@\" >&-", "sh"])
            .arg(binary)
            .args(words)
            .output()?;
        let told = String::from_utf8_lossy(&output.stderr).contains("Bad file descriptor");
        if output.status.code() != Some(code.into()) || !told {
            return Err(format!("{words:?} without one: {}", said(&output)).into());
        }
        let (reader, writer) = std::io::pipe()?;
        drop(reader);
        let output = Command::new(binary).args(words).stdout(writer).output()?;
        let meant = if code == 2 { 2 } else { 0 };
        if output.status.code() != Some(meant) || !output.stderr.is_empty() {
            return Err(format!("{words:?} without a reader: {}", said(&output)).into());
        }
    }
    Ok(())
}

/// Whether a campaign has had its first runs.
fn has_runs(dir: &Path) -> bool {
    let files = fs::read_dir(dir).into_iter().flatten().flatten();
    files
        .filter(|file| file.file_name().to_string_lossy().starts_with("runs"))
        .any(|file| file.metadata().is_ok_and(|meta| meta.len() > 0))
}

/// ^C reaches the whole process group. The campaign ends with what it has, by SIGINT, and the same call goes on.
fn interrupted_campaign() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("output-interrupted");
    let out = dir.join("campaign");
    let mut campaign = Command::new(Bench::get().binary())
        .args(["inject", "run", "--runs", "100000", "--out"])
        .arg(&out)
        .args(["--", "/bin/echo", "a"])
        .process_group(0)
        .stdout(File::create(dir.join("stdout"))?)
        .stderr(File::create(dir.join("stderr"))?)
        .stdin(Stdio::null())
        .spawn()?;
    let group = nix::unistd::Pid::from_raw(i32::try_from(campaign.id())?);
    let until = Instant::now() + LIMIT;
    while !has_runs(&out) && Instant::now() < until && campaign.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(20));
    }
    nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGINT)?;
    let status = campaign.wait()?;
    let tally = fs::read_to_string(dir.join("stdout"))?;
    if status.signal() != Some(2) || !tally.contains(" of 700000 runs in ") {
        let why = fs::read_to_string(dir.join("stderr"))?;
        return Err(format!("{status}\n{tally}{why}").into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A flag that there is not is none of a program's name; a campaign without runs or without a place does not begin.
fn wrong_words() -> Result<(), Failed> {
    let binary = Bench::get().binary();
    let own = binary.display().to_string();
    for (words, code, holds, lacks) in [
        (
            &["run", "--bogus", "--", "true"][..],
            Own::Usage,
            "unexpected argument '--bogus'",
            "-- --bogus",
        ),
        (
            &["inject", "run", "--runs", "0", "--", "true"],
            Own::Usage,
            "--runs",
            "running",
        ),
        (
            &["inject", "run", "--out", "/proc/x", "--", "true"],
            Own::Usage,
            "--out must be a directory that can be written",
            "running",
        ),
        (
            &["run", "--", &own, "run", "--", "true"],
            Own::Setup,
            "found itself under steadfast run already",
            "docker",
        ),
    ] {
        let output = Command::new(binary).args(words).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(code.code().into())
            || !text.contains(holds)
            || text.contains(lacks)
        {
            return Err(format!("{words:?}: {}", said(&output)).into());
        }
    }
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test(
            "command::output_results_that_are_lost",
            results_that_are_lost,
        ),
        Trial::test("command::output_interrupted_campaign", interrupted_campaign),
        Trial::test("command::output_wrong_words", wrong_words),
    ]
}
