//! Verify: does a workload keep the promises of the list?
//!
//! Runs it several times, compares the outputs, and runs it once under strace(1) to count the
//! calls that make threads, children or a new image.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::store::sha256;
use crate::{Invocation, Size, Store, Workload};

/// What was found out about one workload.
#[derive(Debug)]
pub struct Findings {
    /// SHA-256 of each run's output, after [`crate::Normalise`]; equal runs share one.
    pub digests: BTreeSet<String>,
    pub output_bytes: usize,
    /// Wall time of the fastest run.
    pub wall: Duration,
    /// Calls of clone, clone3, fork, vfork, execve and execveat after the first execve;
    /// `None` when strace is not installed.
    pub spawning_calls: Option<usize>,
}

impl Findings {
    /// Whether every promise holds as far as it could be checked.
    #[must_use]
    pub fn kept(&self) -> bool {
        self.digests.len() == 1 && self.spawning_calls.unwrap_or(0) == 0
    }
}

/// Runs a workload `runs` times and once under strace.
///
/// # Errors
/// When it cannot be started or ends with anything but status 0.
pub fn verify(store: &Store, workload: &Workload, size: Size, runs: usize) -> Result<Findings> {
    let invocation = store.invocation(workload, size)?;
    let mut digests = BTreeSet::new();
    let (mut wall, mut output_bytes) = (Duration::MAX, 0);
    for _ in 0..runs {
        let start = Instant::now();
        let output = output_of(&invocation)?;
        wall = wall.min(start.elapsed());
        output_bytes = output.len();
        digests.insert(sha256(&invocation.normalise.apply(output)));
    }
    Ok(Findings {
        digests,
        output_bytes,
        wall,
        spawning_calls: spawning_calls(&invocation)?,
    })
}

fn output_of(invocation: &Invocation) -> Result<Vec<u8>> {
    let output = invocation
        .command()?
        .stderr(Stdio::piped())
        .output()
        .with_context(|| format!("{} could not be started", invocation.program.display()))?;
    ensure!(
        output.status.success(),
        "{} ended with {}: {}",
        invocation.program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

fn spawning_calls(invocation: &Invocation) -> Result<Option<usize>> {
    if Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        return Ok(None);
    }
    let trace = std::env::temp_dir().join(format!("workload-strace.{}", std::process::id()));
    let strace = [
        "strace",
        "-f",
        "-e",
        "trace=clone,clone3,fork,vfork,execve,execveat",
        "-o",
    ];
    let mut wrapper: Vec<_> = strace.iter().map(Into::into).collect();
    wrapper.push(trace.clone().into_os_string());
    let status = invocation
        .command_under(&wrapper)?
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let text = fs::read_to_string(&trace).unwrap_or_default();
    let _ = fs::remove_file(&trace);
    ensure!(
        status?.success(),
        "{} failed under strace",
        invocation.program.display()
    );
    Ok(Some(count_spawns(&text)))
}

/// How many processes, threads and images a trace made beyond the first.
fn count_spawns(trace: &str) -> usize {
    // Lines about signals and exits have no opening bracket after the process number; a call
    // that another process interrupts has a second line, `<... resumed>`, with none either.
    let is_call = |line: &&str| {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        call.starts_with(|c: char| c.is_ascii_lowercase()) && call.contains('(')
    };
    // The first execve is strace's own start of the program.
    trace.lines().filter(is_call).count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::count_spawns;

    #[test]
    fn one_process_with_one_thread_spawns_nothing() {
        let trace = "12 execve(\"/usr/bin/bzip2\", [\"bzip2\"], 0x7f /* 5 vars */) = 0\n\
                     12 --- SIGALRM {si_signo=SIGALRM} ---\n12 +++ exited with 0 +++\n";
        assert_eq!(count_spawns(trace), 0);
    }

    #[test]
    fn threads_forks_and_execs_are_counted() {
        let trace = "12 execve(\"/bin/sh\", [\"sh\"], 0x7f /* 5 vars */) = 0\n\
                     12 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>\n\
                     13 execve(\"/bin/ls\", [\"ls\"], 0x7f /* 5 vars */) = 0\n\
                     12 <... clone resumed>) = 13\n12 clone3({flags=CLONE_VM}, 88) = 14\n";
        assert_eq!(count_spawns(trace), 3);
    }
}
