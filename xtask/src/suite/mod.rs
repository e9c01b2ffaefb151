//! `xtask test`: every test of the repository, in parts, each with a time limit.
//!
//! A part is one command. The result lines that Rust's test runners print are added up, and the last line of all is
//! `N passed, N failed`. A part without such a line counts as one test.
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
//! No core is idle while there is something to do. Three rows of work run side by side, and what a part says is told in one piece
//! when it has ended:
//!
//! ```text
//! build of the tests ─┬─ crates that wait ([`WAITING`]), then host's ─┬─ cases of tests/, module by module
//!                     └─ the other crates, and checks of pages ───────┤
//! make build, examples in comments, build of host's tests ────────────┘   compiled at the lowest priority
//! ```
//!
//! A case that fails is a failure. It is run once more at the end, alone, only to say whether it needs company to fail.
//! What failed is told again below the table, where a reader of the last lines finds it.
//!
//! Invariants
//!  1. Every part runs, whatever the parts before it said, except where there is nothing to run.
//!  2. A part that ends badly without a failed test, or past its limit, counts as a failure.
//!  3. Nothing that failed even once goes untold.
//!
//! Not covered: which tests exist. Cargo finds those of the crates, tests/cases/main.rs names its modules. Examples in comments of other
//! crates than [`EXAMPLES`]: they have none.

mod part;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use part::{Failure, Outcome, Program, Tally, execute, say};

/// What a part may take on two cores beside others; alone, measured parts stay below five minutes.
const LIMIT: Duration = Duration::from_secs(900);
/// A first build of everything, dependencies included, beside others.
const BUILD_LIMIT: Duration = Duration::from_secs(1500);

/// So many failed cases are run again, alone. Where there are more, one cause is likely, and it would explain nothing.
const AGAIN_MAX: usize = 3;
/// Lines that are told again of one failure.
const TOLD: usize = 12;
/// The slowest cases that are told.
const SLOWEST: usize = 10;

/// Crates with examples in comments, which only cargo can build and run.
const EXAMPLES: [&str; 1] = ["steadfast-crosscheck"];

/// Crates whose tests wait for a network, a disk or a time limit most of the time. The longest is first.
const WAITING: [&str; 4] = ["pair", "kv", "group", "crosscheck-c"];

/// How many cases of a test program run side by side, where each waits most of the time: for elections, disks, and others' silence.
struct SideBySide {
    krate: &'static str,
    target: &'static str,
    cases: &'static str,
}

#[rustfmt::skip]
const SIDE_BY_SIDE: [SideBySide; 2] = [
    SideBySide { krate: "kv", target: "group", cases: "5" },
    SideBySide { krate: "pair", target: "pair", cases: "6" },
];

/// The manifest of the workspace that has wasmtime.
const HOST: &str = "crates/host/Cargo.toml";

/// Cargo's own switch for a compiler of the workspace's crates. Clippy's is rustc with more lints; it makes the same programs.
const CLIPPY: &str = "build.rustc-workspace-wrapper='clippy-driver'";

/// The modules of tests/cases that need the command, in the order of main.rs.
const MODULES: [&str; 7] = [
    "command", "guests", "programs", "faults", "outside", "harden", "user",
];

/// Runs everything; the status is that of the worst part.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut outcomes = thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let (to_cases, product) = mpsc::channel();
        let (to_row, host) = mpsc::channel();
        let beside = scope.spawn(move || compile_beside(root, &begun, &to_cases, &to_row));
        let (mut outcomes, of_tests) = build_of_tests(root);
        // Cargo has one lock for all that it builds of one profile.
        let _ = begin.send(());
        let (waiting, others): (Crates, Crates) = of_tests
            .crates
            .into_iter()
            .partition(|(krate, _)| WAITING.contains(&krate.as_str()));
        let waits = scope.spawn(move || {
            let mut outcomes: Vec<_> = WAITING
                .iter()
                .filter_map(|&krate| Some(crate_by_crate(krate, waiting.get(krate)?)))
                .collect();
            outcomes.extend(crates_of_host(host.recv().ok().flatten()));
            outcomes
        });
        outcomes.extend(
            others
                .iter()
                .map(|(krate, programs)| crate_by_crate(krate, programs)),
        );
        outcomes.extend(checks(root));
        outcomes.extend(joined("crates that wait", waits));
        let built = product.recv() == Ok(true);
        outcomes.extend(cases(root, of_tests.harness.as_deref(), built));
        outcomes.extend(joined("what is compiled beside", beside));
        outcomes
    });
    let failures = outcomes.iter().flat_map(|outcome| &outcome.failures);
    let cases = failures.filter(|failure| failure.program.is_some());
    if cases.count() <= AGAIN_MAX {
        for outcome in &mut outcomes {
            outcome.again(&mut io::stdout());
        }
    }
    summary(&outcomes)
}

/// What a row of parts has come to.
fn joined(name: &str, row: thread::ScopedJoinHandle<'_, Vec<Outcome>>) -> Vec<Outcome> {
    row.join()
        .unwrap_or_else(|_| vec![Outcome::missing(name, "this program panicked: see above")])
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// The command that builds a workspace's tests.
fn build(root: &Path, manifest: &str) -> Command {
    let mut build = cargo(root);
    build.args(["test", "--config", CLIPPY, "--manifest-path", manifest]);
    build.args(["--workspace", "--no-run"]);
    build
}

fn build_of_tests(root: &Path) -> (Vec<Outcome>, Built) {
    let build = || build(root, "Cargo.toml");
    let ran = execute(
        "build of the tests",
        BUILD_LIMIT,
        &build(),
        &mut io::stdout(),
    );
    let mut built = built(&mut build(), root);
    let lints = linted("lints", std::mem::take(&mut built.lints));
    (vec![ran, lints], built)
}

/// What else has to be compiled, one after the other: cargo and make use all cores that others leave. What shares a lock with
/// the build of the tests waits until that has ended. Whoever waits for one of them is told as soon as it is there.
fn compile_beside(
    root: &Path,
    begun: &Receiver<()>,
    product: &Sender<bool>,
    host: &Sender<Option<Built>>,
) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    let mut run = |name: &str, command: &Command| {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(command.get_program());
        nice.args(command.get_args()).current_dir(root);
        let outcome = in_one_piece(name, BUILD_LIMIT, &nice);
        let good = outcome.tally.failed == 0;
        outcomes.push(outcome);
        good
    };
    // Not as a part of the make that may have called this, nor with the libraries that cargo has chosen for this program.
    let mut make = Command::new("env");
    for name in ["MAKEFLAGS", "MAKELEVEL", "LD_LIBRARY_PATH"] {
        make.args(["-u", name]);
    }
    make.args(["make", "build"]);
    // Nobody hears it where the other row has panicked.
    let _ = product.send(run("make build", &make));
    let _ = begun.recv();
    let made = run("build of host's tests", &build(root, HOST));
    let _ = host.send(made.then(|| built(&mut build(root, HOST), root)));
    for krate in EXAMPLES {
        let mut examples = cargo(root);
        examples.args(["test", "-q", "--config", CLIPPY, "-p", krate, "--doc"]);
        run(&format!("examples of {krate}"), &examples);
    }
    outcomes
}

/// Runs a part whose lines are told when it has ended: others run beside it.
fn in_one_piece(name: &str, limit: Duration, command: &Command) -> Outcome {
    let mut told = Vec::new();
    let outcome = execute(name, limit, command, &mut told);
    say(String::from_utf8_lossy(&told).trim_end());
    outcome
}

/// The lints and crates of the workspace that has wasmtime, if it was built.
fn crates_of_host(built: Option<Built>) -> Vec<Outcome> {
    let Some(of_host) = built else {
        return vec![Outcome::missing(HOST, "it could not be compiled")];
    };
    let mut outcomes = vec![linted("lints of host", of_host.lints)];
    let crates = of_host.crates.iter();
    outcomes.extend(crates.map(|(krate, programs)| crate_by_crate(krate, programs)));
    outcomes
}

/// The checks of this program.
fn checks(root: &Path) -> Vec<Outcome> {
    let check = |name: &str, words: &[&str]| {
        let mut xtask = Command::new(std::env::current_exe().unwrap_or_else(|_| "xtask".into()));
        xtask.args(words).current_dir(root);
        in_one_piece(name, LIMIT, &xtask)
    };
    vec![
        check("generated documents", &["docs", "--check"]),
        check("pages and formatting", &["tidy"]),
    ]
}

/// The cases of tests/, module by module.
fn cases(root: &Path, harness: Option<&Path>, product: bool) -> Vec<Outcome> {
    let Some(harness) = harness else {
        return vec![Outcome::missing(
            "tests/",
            "cargo named no test program: the tests do not build",
        )];
    };
    if !product {
        return vec![Outcome::missing(
            "tests/",
            "there is no command to test: make build failed",
        )];
    }
    let mut outcomes = Vec::new();
    for (user, prefix) in users() {
        let program = Program {
            prefix,
            executable: harness.to_owned(),
            dir: root.to_owned(),
        };
        for module in MODULES {
            // What root does as user 65534 an ordinary user has done already.
            if module == "user" && user != User::Root {
                continue;
            }
            let mut command = program.command();
            command.arg(format!("{module}::"));
            if module != "user" {
                // A filter is any part of a name, and that module repeats others' names.
                command.args(["--skip", "user::"]);
            }
            let name = format!("{module}, as {}", user.name());
            outcomes.push(execute(&name, LIMIT, &command, &mut io::stdout()).of(&program));
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

fn output(command: &mut Command) -> Option<String> {
    let out = command.stdin(Stdio::null()).output().ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// The test programs of crates: for each the library, the command, and files in tests/ by name.
type Crates = BTreeMap<String, Vec<(String, Program)>>;

/// What the build of a workspace's tests has made and said.
#[derive(Debug, Default)]
struct Built {
    crates: Crates,
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
        let name = lines.next().unwrap_or_default();
        outcome.failures.push(Failure::new(name, lines.collect()));
    }
    outcome
}

/// Runs the programs of a crate: a line of the summary.
fn crate_by_crate(krate: &str, programs: &[(String, Program)]) -> Outcome {
    let mut whole = Outcome::new(krate);
    for (target, program) in programs {
        let name = format!("{krate}, {target}");
        let mut command = program.command();
        let known = SIDE_BY_SIDE.iter();
        for known in known.filter(|known| (known.krate, known.target) == (krate, target)) {
            command.args(["--test-threads", known.cases]);
        }
        whole.add(in_one_piece(&name, LIMIT, &command).of(program));
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
        let program = Program {
            prefix: Vec::new(),
            executable,
            dir,
        };
        let programs = built.crates.entry(krate).or_default();
        programs.push((target.to_owned(), program));
    }
    built
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
        let took = outcome.took.as_secs_f64();
        let cores = outcome.computed.as_secs_f64() / took.max(0.01);
        say(&format!(
            "{:>5} passed {:>4} failed {took:>5.0} s on {cores:.1} cores  {}{why}",
            outcome.tally.passed, outcome.tally.failed, outcome.name,
        ));
    }
    slowest(outcomes);
    for failure in outcomes.iter().flat_map(|outcome| &outcome.failures) {
        let word = if failure.passed_alone {
            "failed, passed alone"
        } else {
            "failed"
        };
        say(&format!("{word}: {}", failure.name));
        for line in failure.said.iter().take(TOLD) {
            say(&format!("    {line}"));
        }
    }
    if total.ignored > 0 {
        say(&format!("{} ignored", total.ignored));
    }
    say(&format!("{} passed, {} failed", total.passed, total.failed));
    if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Who makes the suite slower finds it here: test programs of crates, and cases of tests/.
fn slowest(outcomes: &[Outcome]) {
    let all = outcomes.iter().flat_map(|outcome| &outcome.slowest);
    let mut all: Vec<_> = all.collect();
    all.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    say("\nslowest:");
    for (seconds, name) in all.into_iter().take(SLOWEST) {
        say(&format!("{seconds:>8.1} s  {name}"));
    }
}
