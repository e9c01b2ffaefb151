//! The comparison: a case runs bare, then under some of 1, 2, 3 and 5 replicas, and the world must not see a difference.
//!
//! Standard output, standard error, status or signal, and the files that were written are compared byte by byte. The
//! event file must say that the replicas agreed: a repaired false alarm would be right on the outside and is a failure
//! here.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use steadfast_contract::event::{Line, RunStart, What};
use steadfast_contract::exit::{Own, Verdict};
use steadfast_contract::plan::RunReport;
use steadfast_sys::procfs::children;

use crate::bench::{Bench, copy, some_groups};
use crate::left::Places;
use crate::run::{Invocation, Ran, Stdin};
use crate::tree::Tree;

/// How long a process may take to vanish after its group has ended: the kernel's own work at exit. On a quiet machine
/// that is a few milliseconds; a machine whose processors are all taken needs a turn for each process.
const GRACE: Duration = Duration::from_secs(5);

/// What a protected run is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// As the bare run, in everything.
    Supported,
    /// As the bare run up to a point; there the group stops with status 121 and these words on standard error.
    Refused(&'static str),
    /// The documented table answers a call with an errno: this is the output then, and the status is 0.
    Denied(&'static str),
    /// A documented limit: as the bare run, or refused with words; never anything else. The text says what the limit is.
    Limit(&'static str),
    /// As the bare run in status and agreement, but output and files are random by nature.
    Random,
}

/// A command to compare.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) invocation: Invocation,
    pub(crate) expect: Expect,
    /// How the bare run must end: `status 0`, `signal 6`.
    pub(crate) bare: String,
    pub(crate) replicas: Vec<u8>,
    pub(crate) limit: Duration,
    /// Copied into the working directory before each run.
    pub(crate) inputs: Vec<PathBuf>,
    /// The user to run as; nothing for whoever runs the tests.
    pub(crate) user: Option<u32>,
}

impl Case {
    pub(crate) fn new(name: impl Into<String>, program: PathBuf) -> Self {
        Self {
            name: name.into(),
            invocation: Invocation {
                program,
                ..Invocation::default()
            },
            expect: Expect::Supported,
            bare: "status 0".to_owned(),
            replicas: vec![1, 2, 3, 5],
            // Five replicas on two cores that others use as well wait a scheduler's turn at each event.
            limit: Duration::from_secs(120),
            inputs: Vec::new(),
            user: None,
        }
    }

    /// Runs and compares.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        let bench = Bench::get();
        let dir = bench.case_dir(&self.name);
        self.check_in(&dir).map_err(|why| {
            Failed::from(format!(
                "{why}\n  files:  {}\n  repeat: {}",
                dir.display(),
                repeat(&self.name)
            ))
        })?;
        bench.passed(&dir);
        Ok(())
    }

    fn check_in(&self, dir: &Path) -> Result<(), String> {
        let bench = Bench::get();
        let bare = self.once(dir, "bare", &self.invocation)?;
        let found = bare.ran.end();
        if found != self.bare {
            return Err(format!(
                "the bare run ended with {found}, expected {}\n{}",
                self.bare,
                last_lines(&bare.ran)
            ));
        }
        // A guest that differs from itself could not be compared with anything.
        let again = self.once(dir, "bare-again", &self.invocation)?;
        if self.expect != Expect::Random
            && let Some(why) = difference(&bare, &again)
        {
            return Err(format!("two bare runs differ: {why}"));
        }
        if bench.is_bare_only() {
            return Ok(());
        }
        // All of them, also after one has failed: which numbers fail is half of the diagnosis.
        let failures: Vec<String> = self
            .replicas
            .iter()
            .filter_map(|&n| self.compare(dir, n, &bare).err())
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        Err(failures.join("\n"))
    }

    /// One protected run against the bare one.
    fn compare(&self, dir: &Path, n: u8, bare: &Seen) -> Result<(), String> {
        let run = format!("n{n}");
        let events = dir.join(format!("{run}.events"));
        let mut protected = self.invocation.clone();
        protected.protector = protector(n, &events, &[]);
        let seen = {
            let _group = (n > 1).then(some_groups);
            let before = Places::look();
            self.once(dir, &run, &protected).and_then(|seen| {
                match Places::look().grown_since(&before) {
                    Some(left) => Err(left),
                    None => Ok(seen),
                }
            })
        };
        seen.and_then(|seen| {
            self.judge(n, bare, &seen, &events)
                .map_err(|why| format!("{why}\n{}", last_lines(&seen.ran)))
        })
        .map_err(|why| {
            format!(
                "with {n} replicas: {why}\n  run:    cd {} && {}",
                run_dir(dir).display(),
                protected.shell_line()
            )
        })
    }

    /// One run in a fresh working directory, which is then renamed after the run.
    fn once(&self, dir: &Path, run: &str, invocation: &Invocation) -> Result<Seen, String> {
        let cwd = run_dir(dir);
        let io = |error: std::io::Error| format!("scratch: {error}");
        if cwd.exists() {
            // The run before failed and left its files here.
            fs::rename(&cwd, dir.join(format!("before-{run}"))).map_err(io)?;
        }
        fs::create_dir(&cwd).map_err(io)?;
        for input in &self.inputs {
            let name = input.file_name().ok_or("an input is a file")?;
            copy(input, &cwd.join(name))?;
        }
        if let Some(user) = self.user {
            std::os::unix::fs::chown(&cwd, Some(user), Some(user)).map_err(io)?;
            // The event file is the user's as well.
            std::os::unix::fs::chown(dir, Some(user), Some(user)).map_err(io)?;
        }
        if let Stdin::Bytes(bytes) = &invocation.stdin {
            fs::write(dir.join("stdin"), bytes).map_err(io)?;
        }
        let ran = invocation.run(&cwd, self.limit)?;
        fs::write(dir.join(format!("{run}.stdout")), &ran.stdout).map_err(io)?;
        fs::write(dir.join(format!("{run}.stderr")), &ran.stderr).map_err(io)?;
        ran.nothing_left(GRACE)?;
        let tree = Tree::read(&cwd).map_err(io)?;
        if tree.is_empty() {
            fs::remove_dir(&cwd).map_err(io)?;
        } else {
            fs::rename(&cwd, dir.join(run)).map_err(io)?;
        }
        Ok(Seen { ran, tree })
    }

    fn judge(&self, n: u8, bare: &Seen, run: &Seen, events: &Path) -> Result<(), String> {
        let refused = run.ran.status.code() == Some(i32::from(Own::Setup.code()));
        match self.expect {
            Expect::Supported => match difference(bare, run) {
                Some(why) => Err(why),
                None => agreed(n, events),
            },
            Expect::Random => {
                if bare.ran.end() != run.ran.end() {
                    return Err(format!(
                        "ended with {}, bare {}",
                        run.ran.end(),
                        bare.ran.end()
                    ));
                }
                agreed(n, events)
            }
            Expect::Denied(output) => {
                if run.ran.end() != "status 0" {
                    return Err(format!("ended with {}, expected status 0", run.ran.end()));
                }
                if let Some(why) = first_difference(output.as_bytes(), &run.ran.stdout) {
                    return Err(format!("standard output is not the documented one: {why}"));
                }
                agreed(n, events)
            }
            Expect::Limit(_) if !refused => match difference(bare, run) {
                Some(why) => Err(format!("neither as the bare run nor refused: {why}")),
                None => agreed(n, events),
            },
            Expect::Limit(_) => refusal("steadfast:", bare, run, events),
            Expect::Refused(words) => {
                if !refused {
                    return Err(format!(
                        "ended with {}, expected a refusal, status 121",
                        run.ran.end()
                    ));
                }
                refusal(words, bare, run, events)
            }
        }
    }
}

/// The working directory of a run while it runs: the same path each time, since programs print it.
fn run_dir(dir: &Path) -> PathBuf {
    dir.join("work")
}

/// The protecting command up to `--`.
pub(crate) fn protector(n: u8, events: &Path, flags: &[&str]) -> Vec<String> {
    let binary = Bench::get().binary().display().to_string();
    let mut words = vec![binary, "run".to_owned(), "-n".to_owned(), n.to_string()];
    words.extend(["--events".to_owned(), events.display().to_string()]);
    words.extend(flags.iter().map(|&flag| flag.to_owned()));
    words.push("--".to_owned());
    words
}

/// The command that runs one case again.
pub(crate) fn repeat(name: &str) -> String {
    format!("cargo test -p steadfast-tests -- --exact {name}")
}

/// A run and the files it left.
#[derive(Debug)]
struct Seen {
    ran: Ran,
    tree: Tree,
}

fn difference(bare: &Seen, run: &Seen) -> Option<String> {
    if let Some(why) = output_difference(&bare.ran, &run.ran) {
        return Some(why);
    }
    bare.tree.difference(&run.tree)
}

/// The first difference between what two runs showed on their descriptors and at their end.
pub(crate) fn output_difference(bare: &Ran, run: &Ran) -> Option<String> {
    if bare.end() != run.end() {
        return Some(format!("ended with {}, bare {}", run.end(), bare.end()));
    }
    first_difference(&bare.stdout, &run.stdout)
        .map(|why| format!("standard output differs: {why}"))
        .or_else(|| {
            first_difference(&bare.stderr, &run.stderr)
                .map(|why| format!("standard error differs: {why}"))
        })
}

/// Where two byte strings part, with what stands there.
pub(crate) fn first_difference(bare: &[u8], run: &[u8]) -> Option<String> {
    if bare == run {
        return None;
    }
    let at = bare
        .iter()
        .zip(run)
        .position(|(a, b)| a != b)
        .unwrap_or(bare.len().min(run.len()));
    let shown = |bytes: &[u8]| {
        String::from_utf8_lossy(&bytes[at.min(bytes.len())..bytes.len().min(at + 60)]).into_owned()
    };
    Some(format!(
        "at byte {at} of {} (bare {}): {:?}, bare {:?}",
        run.len(),
        bare.len(),
        shown(run),
        shown(bare)
    ))
}

/// That a refusal is what it should be: words with cause and fix, an event, and nothing shown that was not agreed.
fn refusal(words: &str, bare: &Seen, run: &Seen, events: &Path) -> Result<(), String> {
    let said = String::from_utf8_lossy(&run.ran.stderr);
    if !said.contains(words) {
        return Err(format!("the refusal does not say {words:?}"));
    }
    if !said.contains("fix:") {
        return Err("the refusal names no fix".to_owned());
    }
    // What had been agreed before must have left, and no byte that bare runs do not show. Guests say "before" and flush.
    let said_before = b"before";
    if !bare.ran.stdout.starts_with(&run.ran.stdout)
        || (bare.ran.stdout.starts_with(said_before) && !run.ran.stdout.starts_with(said_before))
    {
        return Err("standard output is not what had been agreed before the refusal".to_owned());
    }
    let log = Log::read(events)?;
    if log.report.verdict != Verdict::Refused {
        return Err(format!(
            "the verdict is {:?}, expected refused",
            log.report.verdict
        ));
    }
    let refused = |what: &What| match what {
        What::Process(of) => matches!(of.what, What::Refused(_)),
        what => matches!(what, What::Refused(_)),
    };
    if !log.lines.iter().any(|line| refused(&line.event.what)) {
        return Err("no event says what was refused".to_owned());
    }
    Ok(())
}

/// That the event file tells of a run without any disagreement.
fn agreed(n: u8, events: &Path) -> Result<(), String> {
    let log = Log::read(events)?;
    let expected = if n == 1 {
        Verdict::Unprotected
    } else {
        Verdict::Agreed
    };
    if log.report.verdict != expected || log.report.divergences != 0 || log.report.recoveries != 0 {
        return Err(format!(
            "nothing was injected, yet: verdict {:?} (expected {expected:?}), {} divergences, {} repairs\n{}",
            log.report.verdict,
            log.report.divergences,
            log.report.recoveries,
            log.divergences()
        ));
    }
    if log.start.replicas.len() != usize::from(n) {
        return Err(format!(
            "{} replicas started, expected {n}",
            log.start.replicas.len()
        ));
    }
    Ok(())
}

/// An event file, whole and in order.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) lines: Vec<Line>,
    pub(crate) start: RunStart,
    pub(crate) report: RunReport,
}

impl Log {
    /// Reads it and holds it to its schema: nothing missing, a beginning and an end.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path)
            .map_err(|error| format!("events: {}: {error}", path.display()))?;
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line: Line = serde_json::from_str(line)
                .map_err(|error| format!("events, line {}: {error}: {line}", number + 1))?;
            if line.seq != number as u64 {
                return Err(format!("events, line {}: seq is {}", number + 1, line.seq));
            }
            lines.push(line);
        }
        let start = match lines.first().map(|line| &line.event.what) {
            Some(What::RunStart(start)) => start.clone(),
            other => return Err(format!("events begin with {other:?}")),
        };
        let report = match lines.last().map(|line| &line.event.what) {
            Some(What::RunEnd(report)) => (**report).clone(),
            other => return Err(format!("events end with {other:?}")),
        };
        Ok(Self {
            lines,
            start,
            report,
        })
    }

    /// Lines about disagreements, for a person.
    pub(crate) fn divergences(&self) -> String {
        self.lines
            .iter()
            .filter(|line| matches!(line.event.what, What::Divergence(_) | What::Recovery(_)))
            .filter_map(|line| serde_json::to_string(line).ok())
            .take(4)
            .map(|line| format!("  {line}\n"))
            .collect()
    }
}

/// What a run said last, for a person.
pub(crate) fn last_lines(ran: &Ran) -> String {
    let tail = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(600)..]).into_owned();
        text.lines()
            .map(|line| format!("    {line}\n"))
            .collect::<String>()
    };
    format!(
        "  took {} ms\n  standard output ends:\n{}  standard error ends:\n{}",
        ran.wall.as_millis(),
        tail(&ran.stdout),
        tail(&ran.stderr)
    )
}

/// Waits until a run's events tell of so many repairs.
pub(crate) fn await_repairs(events: &Path, count: usize, limit: Duration) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(events).unwrap_or_default();
        let told = text.matches(r#""type":"recovery""#).count();
        if told >= count {
            return Ok(());
        }
        if begun.elapsed() > limit {
            return Err(format!("{told} repairs within {limit:?}, expected {count}"));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// From the keeper's being there to its being noted.
const NOTED: Duration = Duration::from_millis(100);

/// Waits until the leader of a child process has a keeper: it is one of `others`, processes of the same command that are none of
/// its children.
pub(crate) fn await_keeper(leader: i32, others: usize, limit: Duration) -> Result<(), String> {
    let command = |pid: i32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let begun = Instant::now();
    loop {
        let (own, below) = (command(leader), children(leader));
        let is_other = |pid: &i32| *pid != leader && !below.contains(pid) && command(*pid) == own;
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let found = pids.filter(is_other).count();
        if !own.is_empty() && found >= others {
            thread::sleep(NOTED);
            return Ok(());
        }
        if begun.elapsed() > limit {
            return Err(format!(
                "process {leader} has {found} others of its command after {limit:?}, expected {others}"
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// How many processes of its command a child has beside its leader, once it has a keeper: followers, that one, and with two replicas
/// the last snapshot.
pub(crate) const fn others_of(replicas: u8) -> usize {
    match replicas {
        2 => 3,
        n => n as usize,
    }
}
