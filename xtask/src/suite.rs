//! `xtask test`: every test of the repository, in parts, each with a time limit.
//!
//! A part is one command. Its output passes through as it comes; the result lines that Rust's test runners print are
//! added up, and the last line of all is `N passed, N failed`. A part without such a line counts as one test.
//!
//! The cases of tests/ run as whoever calls. Called by root they contain a pass as user 65534; called by anybody else
//! they are run a second time as root, through sudo(8), where it asks for no password.
//!
//! The tests of a workspace are built once, by one call of cargo, and the programs that came of it are run by themselves: cargo would
//! choose the features of dependencies anew for each choice of packages, and compile them again. There are two workspaces:
//! wasmtime takes minutes to compile, and only the crates of [`HOST`] need it.
//!
//! Clippy compiles the crates of this repository in that build ([`CLIPPY`]), so that nothing has to be looked at a second time for its lints:
//! a warning is a failure of the part `lints`.
//!
//! Much of what is tested waits for something. What else has to be compiled (wasmtime, examples in comments) is compiled meanwhile,
//! at the lowest priority, and told in one piece when it is done; the crates of [`HOST`] are tested last.
//!
//! A case that fails is run once more, alone. If it passes then, it is counted as passed and named as flaky
//! with what it said the first time: replicas share two cores with whatever else the machine does. More than `FLAKY`
//! of them are a failure. What failed is told again below the table, where a reader of the last lines finds it.
//!
//! Invariants
//!  1. Every part runs, whatever the parts before it said, except where there is nothing to run.
//!  2. A part that ends badly without a failed test, or past its limit, counts as a failure.
//!  3. Nothing that failed even once goes untold.
//!
//! Not covered: which tests exist. Cargo finds those of the crates, tests/cases/main.rs names its modules. Examples in comments of other
//! crates than [`EXAMPLES`]: they have none.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What a part may take on two cores; measured parts stay below five minutes.
const LIMIT: Duration = Duration::from_secs(420);
/// A first build of everything, dependencies included.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// A case that runs alone: twice the limit that tests/cases/check.rs gives one run.
const ALONE: Duration = Duration::from_secs(240);
/// Cases that may fail once and pass alone, in the whole suite.
const FLAKY: usize = 3;
/// Lines that are told again of one failure.
const TOLD: usize = 12;

/// Crates with examples in comments, which only cargo can build and run.
const EXAMPLES: [&str; 1] = ["steadfast-crosscheck"];

/// Programs whose cases wait most of the time, for elections and for replicas that are silent, and how many of them run side by side.
const WAITS: [(&str, &str, &str); 1] = [("kv", "group", "5")];

/// The manifest of the workspace that has wasmtime.
const HOST: &str = "crates/host/Cargo.toml";

/// Cargo's own switch for a compiler of the workspace's crates. Clippy's is rustc with more lints; it makes the same programs.
const CLIPPY: &str = "build.rustc-workspace-wrapper='clippy-driver'";

/// The modules of tests/cases that need the command, in the order of main.rs.
const MODULES: [&str; 7] = [
    "command", "guests", "programs", "faults", "outside", "harden", "user",
];

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// The numbers of `test result: ok. 12 passed; 0 failed; 0 ignored; ...`.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
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

/// How a part went.
#[derive(Debug)]
struct Outcome {
    name: String,
    tally: Tally,
    took: Duration,
    /// Past its limit, or why it did not start.
    why: Option<String>,
    failures: Vec<Failure>,
}

impl Outcome {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            tally: Tally::default(),
            took: Duration::ZERO,
            why: None,
            failures: Vec::new(),
        }
    }

    /// Of what there is nothing to run of.
    fn missing(name: &str, why: &str) -> Self {
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
    fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.took += other.took;
        self.why = self.why.take().or(other.why);
        self.failures.extend(other.failures);
    }
}

/// A test that failed, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Failure {
    name: String,
    said: Vec<String>,
    /// Alone it passed.
    flaky: bool,
}

/// Finds the block of each failed test in what Rust's test runners print: `---- NAME ----`, then what it said.
#[derive(Debug, Default)]
struct Reader {
    failures: Vec<Failure>,
    inside: bool,
}

impl Reader {
    fn line(&mut self, line: &str) {
        let name = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" ----"));
        if let Some(name) = name {
            self.failures.push(Failure {
                name: name.trim_end_matches(" stdout").to_owned(),
                said: Vec::new(),
                flaky: false,
            });
            self.inside = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.inside = false;
        } else if self.inside
            && !line.trim().is_empty()
            && let Some(last) = self.failures.last_mut()
        {
            last.said.push(line.to_owned());
        }
    }
}

/// Runs everything; the status is that of the worst part.
pub(crate) fn run(root: &Path) -> ExitCode {
    let cargo = || {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root);
        cargo
    };
    let build = |manifest: &str| {
        let mut build = cargo();
        build.args(["test", "--config", CLIPPY, "--manifest-path", manifest]);
        build.args(["--workspace", "--no-run"]);
        build
    };
    let mut outcomes = vec![execute(
        "build of the tests",
        BUILD_LIMIT,
        &build("Cargo.toml"),
        &mut io::stdout(),
    )];
    let Built {
        crates,
        harness,
        lints,
    } = built(&mut build("Cargo.toml"), root);
    outcomes.push(linted("lints", lints));
    let meanwhile = std::thread::scope(|scope| {
        let meanwhile = scope.spawn(|| compile_meanwhile(&build(HOST), &cargo));
        outcomes.extend(crates.iter().map(crate_by_crate));
        outcomes.extend(checks(root));
        outcomes.extend(cases(root, harness.as_deref()));
        meanwhile.join()
    });
    match meanwhile {
        Ok((told, compiled)) => {
            say(String::from_utf8_lossy(&told).trim_end());
            outcomes.extend(compiled);
            let of_host = built(&mut build(HOST), root);
            outcomes.push(linted("lints of host", of_host.lints));
            outcomes.extend(of_host.crates.iter().map(crate_by_crate));
        }
        Err(_) => outcomes.push(Outcome::missing(
            HOST,
            "it could not be compiled: see above",
        )),
    }
    summary(&outcomes)
}

/// What only cargo can do, after the build of the tests: it has one lock. Gives what was told beside the outcomes.
fn compile_meanwhile(
    build_host: &Command,
    cargo: &(dyn Fn() -> Command + Sync),
) -> (Vec<u8>, Vec<Outcome>) {
    let mut told = Vec::new();
    let mut outcomes = Vec::new();
    let mut run = |name: &str, command: &Command| {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(command.get_program());
        nice.args(command.get_args());
        if let Some(dir) = command.get_current_dir() {
            nice.current_dir(dir);
        }
        outcomes.push(execute(name, BUILD_LIMIT, &nice, &mut told));
    };
    for krate in EXAMPLES {
        let mut examples = cargo();
        examples.args(["test", "-q", "--config", CLIPPY, "-p", krate, "--doc"]);
        run(&format!("examples of {krate}"), &examples);
    }
    run("build of host's tests", build_host);
    (told, outcomes)
}

/// The checks of this program.
fn checks(root: &Path) -> Vec<Outcome> {
    let check = |name: &str, words: &[&str]| {
        let mut xtask = Command::new(std::env::current_exe().unwrap_or_else(|_| "xtask".into()));
        xtask.args(words).current_dir(root);
        execute(name, LIMIT, &xtask, &mut io::stdout())
    };
    vec![
        check("generated documents", &["docs", "--check"]),
        check("pages and formatting", &["tidy"]),
    ]
}

/// The cases of tests/, module by module.
fn cases(root: &Path, harness: Option<&Path>) -> Vec<Outcome> {
    let Some(harness) = harness else {
        return vec![Outcome::missing(
            "tests/",
            "cargo named no test program: the tests do not build",
        )];
    };
    let mut outcomes = Vec::new();
    for (user, prefix) in users() {
        for module in MODULES {
            // What root does as user 65534 an ordinary user has done already.
            if module == "user" && user != User::Root {
                continue;
            }
            let mut command = prefixed(&prefix, harness);
            command.arg(format!("{module}::")).current_dir(root);
            if module != "user" {
                // A filter is any part of a name, and that module repeats others' names.
                command.args(["--skip", "user::"]);
            }
            let name = format!("{module}, as {}", user.name());
            let mut outcome = execute(&name, LIMIT, &command, &mut io::stdout());
            again(&mut outcome, || {
                let mut command = prefixed(&prefix, harness);
                command.current_dir(root);
                command
            });
            outcomes.push(outcome);
        }
    }
    outcomes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Ordinary,
}

impl User {
    const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Ordinary => "an ordinary user",
        }
    }
}

/// As whom the cases run, and the words that make it so.
fn users() -> Vec<(User, Vec<String>)> {
    if output(Command::new("id").arg("-u")).is_some_and(|uid| uid == "0") {
        return vec![(User::Root, Vec::new())];
    }
    let mut users = vec![(User::Ordinary, Vec::new())];
    if output(Command::new("sudo").args(["-n", "true"])).is_some() {
        let mut words: Vec<String> = ["sudo", "-n", "env"].map(str::to_owned).to_vec();
        for name in ["PATH", "STEADFAST_BIN", "RUSTUP_HOME", "CARGO_HOME", "HOME"] {
            if let Ok(value) = std::env::var(name) {
                words.push(format!("{name}={value}"));
            }
        }
        users.push((User::Root, words));
    } else {
        say(
            "\nnote: the cases run as an ordinary user only: sudo(8) is missing or asks for a password",
        );
    }
    users
}

fn prefixed(prefix: &[String], program: &Path) -> Command {
    match prefix.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    }
}

fn output(command: &mut Command) -> Option<String> {
    let out = command.stdin(Stdio::null()).output().ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// A test program of a crate.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    /// The library, the command, or the file in tests/.
    target: String,
    executable: PathBuf,
    /// The folder of the crate, where cargo runs its tests.
    dir: PathBuf,
}

/// What the build of a workspace's tests has made and said.
#[derive(Debug, Default)]
struct Built {
    crates: BTreeMap<String, Vec<Binary>>,
    /// The program of tests/, which runs by modules.
    harness: Option<PathBuf>,
    /// Each warning once, as the compiler words it.
    lints: BTreeSet<String>,
}

/// The lints of a workspace: a part of one test.
fn linted(name: &str, lints: BTreeSet<String>) -> Outcome {
    say(&format!("\n== {name}: {} warnings", lints.len()));
    let mut outcome = Outcome::new(name);
    if lints.is_empty() {
        outcome.tally.passed = 1;
    } else {
        outcome.tally.failed = 1;
    }
    for lint in lints {
        say(&lint);
        let mut lines = lint.lines().map(str::to_owned);
        outcome.failures.push(Failure {
            name: lines.next().unwrap_or_default(),
            said: lines.collect(),
            flaky: false,
        });
    }
    outcome
}

/// Runs the programs of a crate: a line of the summary.
fn crate_by_crate((krate, binaries): (&String, &Vec<Binary>)) -> Outcome {
    let mut whole = Outcome::new(krate);
    for binary in binaries {
        let program = || {
            let mut command = Command::new(&binary.executable);
            command.current_dir(&binary.dir);
            let waits = WAITS
                .iter()
                .find(|(of, target, _)| of == krate && *target == binary.target);
            if let Some((.., cases)) = waits {
                command.args(["--test-threads", cases]);
            }
            command
        };
        let mut outcome = execute(
            &format!("{krate}, {}", binary.target),
            LIMIT,
            &program(),
            &mut io::stdout(),
        );
        again(&mut outcome, program);
        whole.add(outcome);
    }
    whole
}

/// What the build has made, in the order of the crates' names; nothing is built by this, but cargo repeats each warning.
fn built(build: &mut Command, root: &Path) -> Built {
    let told = output(build.args(["-q", "--message-format=json"]));
    told.as_deref()
        .map_or_else(Built::default, |told| named(told, root))
}

/// The programs and warnings in cargo's messages, one JSON object a line.
fn named(messages: &str, root: &Path) -> Built {
    let mut built = Built::default();
    for message in messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        // What a crate's warnings add up to has no place in the code.
        if message["message"]["level"] == "warning"
            && message["message"]["spans"][0].is_object()
            && let Some(rendered) = message["message"]["rendered"].as_str()
        {
            built.lints.insert(rendered.trim_end().to_owned());
        }
        if message["profile"]["test"] != true {
            continue;
        }
        let (Some(executable), Some(manifest), Some(target)) = (
            message["executable"].as_str(),
            message["manifest_path"].as_str(),
            message["target"]["name"].as_str(),
        ) else {
            continue;
        };
        let executable = PathBuf::from(executable);
        let dir = Path::new(manifest)
            .parent()
            .map(Path::to_owned)
            .unwrap_or_default();
        if target == "protect" {
            built.harness = Some(executable);
            continue;
        }
        // The folder says which: two crates may have a last word in common.
        let folder = dir.strip_prefix(root).unwrap_or(&dir);
        let krate = folder.strip_prefix("crates").unwrap_or(folder);
        let krate = krate.to_string_lossy().into_owned();
        built.crates.entry(krate).or_default().push(Binary {
            target: target.to_owned(),
            executable,
            dir,
        });
    }
    built
}

/// Runs a part, whose lines go `to` somebody as they come.
fn execute(name: &str, limit: Duration, command: &Command, to: &mut dyn Write) -> Outcome {
    say_to(to, &format!("\n== {name}"));
    let start = Instant::now();
    let mut tally = Tally::default();
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
    let mut why = None;
    let mut good = false;
    let mut reader = Reader::default();
    match timed.spawn() {
        Ok(mut child) => {
            if let Some(out) = child.stdout.take() {
                for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                    let line = String::from_utf8_lossy(&line);
                    if let Some(counted) = Tally::of_line(&line) {
                        tally.add(counted);
                        seen = true;
                    }
                    reader.line(&line);
                    say_to(to, &line);
                }
            }
            match child.wait() {
                Ok(status) => {
                    good = status.success();
                    // timeout(1): 124 when the limit passed, 137 when it had to kill.
                    if matches!(status.code(), Some(124 | 137)) {
                        why = Some(format!("took longer than {} s", limit.as_secs()));
                    }
                }
                Err(error) => why = Some(error.to_string()),
            }
        }
        Err(error) => why = Some(format!("did not start: {error}")),
    }
    if good && !seen {
        tally.passed += 1;
    }
    if !good && tally.failed == 0 {
        tally.failed += 1;
    }
    Outcome {
        name: name.to_owned(),
        tally,
        took: start.elapsed(),
        why,
        failures: reader.failures,
    }
}

/// Runs each failed case of a part once more, alone, and counts those that pass as passed.
fn again(outcome: &mut Outcome, harness: impl Fn() -> Command) {
    // Of more than these few, running alone would explain nothing and take long.
    if outcome.why.is_some() || outcome.failures.len() > FLAKY {
        return;
    }
    for failure in &mut outcome.failures {
        let mut command = harness();
        command.args(["--exact", &failure.name]);
        let name = format!("{} once more, alone", failure.name);
        let alone = execute(&name, ALONE, &command, &mut io::stdout());
        if alone.why.is_none() && alone.tally.failed == 0 && alone.tally.passed == 1 {
            failure.flaky = true;
            outcome.tally.failed -= 1;
            outcome.tally.passed += 1;
        }
    }
}

fn summary(outcomes: &[Outcome]) -> ExitCode {
    let mut total = Tally::default();
    say("");
    for outcome in outcomes {
        total.add(outcome.tally);
        let why = outcome
            .why
            .as_ref()
            .map_or(String::new(), |why| format!("  ({why})"));
        say(&format!(
            "{:>5} passed {:>4} failed {:>5.0} s  {}{why}",
            outcome.tally.passed,
            outcome.tally.failed,
            outcome.took.as_secs_f64(),
            outcome.name,
        ));
    }
    let told: Vec<&Failure> = outcomes.iter().flat_map(|o| &o.failures).collect();
    for failure in &told {
        let word = if failure.flaky {
            "flaky, passed alone"
        } else {
            "failed"
        };
        say(&format!("{word}: {}", failure.name));
        for line in failure.said.iter().take(TOLD) {
            say(&format!("    {line}"));
        }
    }
    let flaky = told.iter().filter(|failure| failure.flaky).count();
    if total.ignored > 0 {
        say(&format!("{} ignored", total.ignored));
    }
    if flaky > FLAKY {
        say(&format!(
            "{flaky} cases failed once and passed alone; more than {FLAKY} are a failure"
        ));
        total.failed += 1;
    }
    say(&format!("{} passed, {} failed", total.passed, total.failed));
    if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn say(line: &str) {
    say_to(&mut io::stdout(), line);
}

fn say_to(out: &mut dyn Write, line: &str) {
    // Nobody is left to tell if standard output is gone; the exit status still says it.
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

#[cfg(test)]
mod tests {
    use super::{Reader, Tally, named};

    #[test]
    fn test_programs_are_found_in_what_cargo_says() {
        let said = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/kv/Cargo.toml","target":{"name":"group"},"profile":{"test":true},"executable":"/t/group-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/kv/Cargo.toml","target":{"name":"steadfast-kv"},"profile":{"test":false},"executable":"/t/steadfast-kv"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/r/tests/Cargo.toml","target":{"name":"protect"},"profile":{"test":true},"executable":"/t/protect-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/r/cc/driver/Cargo.toml","target":{"name":"driver"},"profile":{"test":true},"executable":"/t/driver-1"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let built = named(said, std::path::Path::new("/r"));
        assert!(built.lints.is_empty());
        assert_eq!(built.harness.unwrap().to_str(), Some("/t/protect-1"));
        let of_kv = &built.crates["kv"];
        let names: Vec<&String> = built.crates.keys().collect();
        assert_eq!(names, ["cc/driver", "kv"]);
        assert_eq!(of_kv.len(), 1);
        assert_eq!(of_kv[0].executable.to_str(), Some("/t/group-1"));
        assert_eq!(of_kv[0].dir.to_str(), Some("/r/crates/kv"));
    }

    #[test]
    fn a_warning_counts_once_and_errors_and_sums_do_not() {
        let lint = r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: dead\n --> a.rs:1\n","spans":[{"file_name":"a.rs"}]}}"#;
        let sum = r#"{"reason":"compiler-message","message":{"level":"warning","rendered":"warning: 1 warning emitted","spans":[]}}"#;
        let error = r#"{"reason":"compiler-message","message":{"level":"error","rendered":"error: no","spans":[{"file_name":"a.rs"}]}}"#;
        let said = [lint, lint, sum, error].join("\n");
        let built = named(&said, std::path::Path::new("/r"));
        assert_eq!(Vec::from_iter(built.lints), ["warning: dead\n --> a.rs:1"]);
    }

    #[test]
    fn the_words_of_a_failed_test_are_kept() {
        let mut reader = Reader::default();
        for line in [
            "test a::b ... FAILED",
            "failures:",
            "",
            "---- a::b ----",
            "with 2 replicas: status 0, bare 1",
            "  run: x",
            "",
            "failures:",
            "    a::b",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1 s",
        ] {
            reader.line(line);
        }
        assert_eq!(reader.failures.len(), 1);
        assert_eq!(reader.failures[0].name, "a::b");
        assert_eq!(
            reader.failures[0].said,
            ["with 2 replicas: status 0, bare 1", "  run: x"]
        );
    }

    #[test]
    fn result_lines_are_counted() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 40 filtered out; finished in 0.01s";
        assert_eq!(
            Tally::of_line(line),
            Some(Tally {
                passed: 12,
                failed: 3,
                ignored: 1
            })
        );
    }

    #[test]
    fn other_lines_are_not() {
        assert_eq!(Tally::of_line("test guests::nothing ... ok"), None);
        assert_eq!(Tally::of_line("test result: "), None);
    }
}
