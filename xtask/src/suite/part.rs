//! A part of the suite: one command, what it said, and how it went.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A case that runs alone: twice the limit that tests/cases/check.rs gives one run.
const ALONE: Duration = Duration::from_secs(240);
/// Times of a process in /proc are counted in ticks of this (USER_HZ is 100 on x86).
const TICK: Duration = Duration::from_millis(10);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// The numbers of `test result: ok. 12 passed; 0 failed; 0 ignored; ...`.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let mut tally = Self::default();
        for count in counts.split(';') {
            let mut words = count.split_whitespace();
            let (Some(Ok(n)), Some(what)) = (words.next().map(str::parse), words.next()) else {
                continue;
            };
            match what {
                "passed" => tally.passed = n,
                "failed" => tally.failed = n,
                "ignored" => tally.ignored = n,
                _ => {}
            }
        }
        Some(tally)
    }
}

/// A test program, and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Program {
    /// Words before it, as `sudo -n`.
    pub(super) prefix: Vec<String>,
    pub(super) executable: PathBuf,
    /// Where cargo would run it.
    pub(super) dir: PathBuf,
}

impl Program {
    pub(super) fn command(&self) -> Command {
        let mut command = match self.prefix.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(&self.executable);
                command
            }
            None => Command::new(&self.executable),
        };
        command.current_dir(&self.dir);
        command
    }
}

/// How a part went.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) tally: Tally,
    pub(super) took: Duration,
    /// Time on processors, of all its processes that somebody has waited for.
    pub(super) computed: Duration,
    /// Past its limit, or why it did not start.
    pub(super) why: Option<String>,
    pub(super) failures: Vec<Failure>,
    /// Seconds, and of what: its slowest cases, or its programs.
    pub(super) slowest: Vec<(f64, String)>,
}

impl Outcome {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tally: Tally::default(),
            took: Duration::ZERO,
            computed: Duration::ZERO,
            why: None,
            failures: Vec::new(),
            slowest: Vec::new(),
        }
    }

    /// Of what there is nothing to run of.
    pub(super) fn missing(name: &str, why: &str) -> Self {
        Self {
            tally: Tally {
                failed: 1,
                ..Tally::default()
            },
            why: Some(why.to_owned()),
            ..Self::new(name)
        }
    }

    /// Adds a program of the same part.
    pub(super) fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.took += other.took;
        self.computed += other.computed;
        self.why = self.why.take().or(other.why);
        self.failures.extend(other.failures);
        self.slowest.push((other.took.as_secs_f64(), other.name));
    }

    /// Runs each failed case once more. None counts as passed for it.
    pub(super) fn again(&mut self, to: &mut dyn Write) {
        for failure in &mut self.failures {
            failure.again(to);
        }
    }

    /// The cases that failed are this program's.
    pub(super) fn of(mut self, program: &Program) -> Self {
        for failure in &mut self.failures {
            failure.program = Some(program.clone());
        }
        self
    }
}

/// A test that failed, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) name: String,
    pub(super) said: Vec<String>,
    /// Whose case it is.
    pub(super) program: Option<Program>,
    /// Run once more with nothing beside it, it passed.
    pub(super) passed_alone: bool,
}

impl Failure {
    pub(super) const fn new(name: String, said: Vec<String>) -> Self {
        Self {
            name,
            said,
            program: None,
            passed_alone: false,
        }
    }

    /// Runs the case once more: whoever reads of it knows then whether it needs company to fail.
    fn again(&mut self, to: &mut dyn Write) {
        let Some(program) = &self.program else {
            return;
        };
        let mut command = program.command();
        command.args(["--exact", &self.name]);
        let name = format!("{} once more, alone", self.name);
        let alone = execute(&name, ALONE, &command, to);
        let Tally { passed, failed, .. } = alone.tally;
        self.passed_alone = alone.why.is_none() && (passed, failed) == (1, 0);
    }
}

/// Finds the block of each failed test in what Rust's test runners print: `---- NAME ----`, then what it said; and the
/// times that tests/ prints behind its result: `12.3 s  NAME`.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) failures: Vec<Failure>,
    pub(super) slowest: Vec<(f64, String)>,
    inside: bool,
    ended: bool,
}

impl Reader {
    pub(super) fn line(&mut self, line: &str) {
        let name = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" ----"));
        if let Some(name) = name {
            let name = name.trim_end_matches(" stdout").to_owned();
            self.failures.push(Failure::new(name, Vec::new()));
            self.inside = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.inside = false;
            self.ended |= line.starts_with("test result: ");
        } else if self.inside
            && !line.trim().is_empty()
            && let Some(last) = self.failures.last_mut()
        {
            last.said.push(line.to_owned());
        } else if self.ended
            && let Some((seconds, name)) = line.trim_start().split_once(" s  ")
            && let Ok(seconds) = seconds.parse()
        {
            self.slowest.push((seconds, name.to_owned()));
        }
    }
}

/// Runs a part, whose lines go `to` somebody as they come.
pub(super) fn execute(
    name: &str,
    limit: Duration,
    command: &Command,
    to: &mut dyn Write,
) -> Outcome {
    say_to(to, &format!("\n== {name}"));
    let start = Instant::now();
    let mut outcome = Outcome::new(name);
    let mut seen = false;
    // timeout(1) ends the whole group of processes, whatever the part has started.
    let mut timed = Command::new("timeout");
    timed
        .args(["--kill-after=10", &limit.as_secs().to_string()])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    if let Some(dir) = command.get_current_dir() {
        timed.current_dir(dir);
    }
    let mut good = false;
    let mut reader = Reader::default();
    match timed.spawn() {
        Ok(mut child) => {
            if let Some(out) = child.stdout.take() {
                for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line);
                    if let Some(counted) = Tally::of_line(&line) {
                        outcome.tally.add(counted);
                        seen = true;
                    }
                    reader.line(&line);
                    say_to(to, &line);
                }
            }
            outcome.computed = computed(child.id());
            match child.wait() {
                Ok(status) => {
                    good = status.success();
                    // timeout(1): 124 when the limit passed, 137 when it had to kill.
                    if matches!(status.code(), Some(124 | 137)) {
                        outcome.why = Some(format!("took longer than {} s", limit.as_secs()));
                    }
                }
                Err(error) => outcome.why = Some(error.to_string()),
            }
        }
        Err(error) => outcome.why = Some(format!("did not start: {error}")),
    }
    if good && !seen {
        outcome.tally.passed += 1;
    }
    if !good && outcome.tally.failed == 0 {
        outcome.tally.failed += 1;
    }
    outcome.took = start.elapsed();
    outcome.failures = reader.failures;
    outcome.slowest = reader.slowest;
    outcome
}

/// Waits until a child has ended, and says how long it and its descendants have computed. It is still to be waited for:
/// what has been waited for has no times any more.
fn computed(child: u32) -> Duration {
    while let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) {
        // Behind the name, proc_pid_stat(5): the state is field 3; 14 to 17 are its own times and those of its children.
        let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split(' ').collect();
        if fields[0] == "Z" {
            let ticks = fields.iter().skip(11).take(4);
            return TICK * ticks.filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
        }
        thread::sleep(TICK);
    }
    Duration::ZERO
}

pub(super) fn say(line: &str) {
    say_to(&mut io::stdout(), line);
}

pub(super) fn say_to(out: &mut dyn Write, line: &str) {
    // Nobody is left to tell if standard output is gone; the exit status still says it.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}
