//! `steadfast inject` with real programs: campaigns that are stopped, killed, cut in parts and gone
//! on with, outputs compared in each way, and orders that are refused before any run.
//!
//! Nothing here judges by the clock. Faulty runs are boxed, as root and as an ordinary user.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use steadfast_inject::record::{Dir, Planned, Run};
use steadfast_inject::server::Trace;
use steadfast_integrity::outcome::Leaf;
use tempfile::TempDir;

/// A directory that the box's user can reach, with some input in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("inject-")
            .tempdir()
            .expect("a directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        let text: String = (0..400)
            .map(|i| format!("{} line {i}\n", i * 7919 % 1000))
            .collect();
        fs::write(dir.path().join("in.txt"), text).expect("input");
        steadfast_inject::doctor::control(dir.path(), false, None).expect("the control program");
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command
            .arg("inject")
            .args(words)
            .current_dir(self.0.path())
            .stdin(Stdio::null());
        command.env("TMPDIR", self.0.path());
        command
    }

    fn does(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("it starts")
    }

    /// Does it with status 0; what it said.
    fn well(&self, words: &[&str]) -> String {
        let out = self.does(words);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{words:?}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn refused(&self, words: &[&str], status: i32, text: &str) {
        let out = self.does(words);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{words:?}: {said}");
        assert!(said.contains(text), "{words:?}: {said}");
        let runs = self.path("inject-results/runs.jsonl");
        assert!(!runs.exists(), "{words:?} ran something");
    }

    fn runs(&self, dir: &str) -> BTreeMap<u64, Run> {
        Dir::new(self.path(dir)).runs().unwrap_or_default()
    }

    fn plan(&self, dir: &str) -> Vec<Planned> {
        Dir::new(self.path(dir)).plan().expect("a plan")
    }

    /// Lines of a results file, whole ones.
    fn lines(&self, dir: &str) -> usize {
        fs::read(self.path(dir).join("runs.jsonl"))
            .map_or(0, |bytes| bytes.iter().filter(|b| **b == b'\n').count())
    }

    /// Waits until so many runs are written, or the command is over.
    fn wait_for(&self, child: &mut Child, dir: &str, lines: usize) {
        while self.lines(dir) < lines && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    /// No directory of a run is left.
    fn clean(&self) {
        let left: Vec<_> = fs::read_dir(self.0.path())
            .expect("readable")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("steadfast-"))
            .collect();
        assert!(left.is_empty(), "{left:?} left behind");
    }
}

/// A small program without a library, so that surveying it takes no time: it prints a sum.
const TARGET: [&str; 7] = [
    "--fault",
    "wreg",
    "--seed",
    "7",
    "--",
    "./control",
    "silent",
];

fn on<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb, "--quiet", "--stdin", "in.txt"], more, &TARGET].concat()
}

fn of(run: &Run) -> (u64, String, Option<i32>, Option<i32>, Vec<String>) {
    (
        run.id,
        ending(run),
        run.status,
        run.signal,
        run.differ.clone(),
    )
}

/// What a loaded machine does not change: being slow is no wrong answer.
fn ending(run: &Run) -> String {
    match run.outcome {
        Leaf::Slow => Leaf::MaskedClean.to_string(),
        other => other.to_string(),
    }
}

#[test]
fn a_runner_that_is_killed_loses_nothing_and_repeats_nothing() {
    let place = Place::new();
    let words = on("run", &["--out", "killed", "--runs", "60", "--jobs", "2"]);
    let mut least = 0;
    for more in [1, 9, 17] {
        let mut child = place
            .command(&words)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        place.wait_for(&mut child, "killed", least + more);
        child.kill().expect("killed");
        let _ = child.wait();
        let done = place.runs("killed").len();
        assert!(done >= least, "{done} of {least} runs are left");
        least = done;
    }
    place.well(&words);
    place.clean();
    let runs = place.runs("killed");
    assert_eq!(runs.len(), 60);
    // One line a run but for what was cut off: nothing was done twice.
    assert_eq!(place.lines("killed"), 60);
    let whole = on("run", &["--out", "whole", "--runs", "60"]);
    place.well(&whole);
    let ends = |dir| place.runs(dir).values().map(of).collect::<Vec<_>>();
    assert_eq!(ends("killed"), ends("whole"));
}

#[test]
fn an_interrupt_ends_between_two_runs_and_a_second_call_goes_on() {
    let place = Place::new();
    let words = on("run", &["--out", "stopped", "--runs", "80"]);
    let mut child = place
        .command(&words)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    place.wait_for(&mut child, "stopped", 3);
    let pid = i32::try_from(child.id()).expect("a pid");
    steadfast_sys::child::kill(pid, libc::SIGINT);
    let status = child.wait().expect("it ends");
    assert!(
        status.signal() == Some(libc::SIGINT) || status.code() == Some(0),
        "{status}"
    );
    place.clean();
    assert_eq!(place.lines("stopped"), place.runs("stopped").len());
    place.well(&words);
    assert_eq!(
        (place.runs("stopped").len(), place.lines("stopped")),
        (80, 80)
    );
}

#[test]
fn one_caller_at_a_time_fills_a_directory() {
    let place = Place::new();
    let words = on("run", &["--out", "busy", "--runs", "20000", "--jobs", "1"]);
    let mut child = place
        .command(&words)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    place.wait_for(&mut child, "busy", 1);
    place.refused(&words, 121, "nobody else");
    // Whoever repeats a run fills nothing.
    let told = place.well(&["replay", "busy", "0"]);
    assert!(told.contains("as before"), "{told}");
    let pid = i32::try_from(child.id()).expect("a pid");
    steadfast_sys::child::kill(pid, libc::SIGINT);
    child.wait().expect("it ends");
    place.clean();
}

#[test]
fn parts_and_budgets_add_up_to_the_whole() {
    let place = Place::new();
    place.well(&on("run", &["--out", "whole", "--runs", "12"]));
    for part in ["0/3", "1/3", "2/3"] {
        let out = format!("part-{}", &part[..1]);
        place.well(&on(
            "run",
            &["--out", &out, "--runs", "12", "--shard", part],
        ));
    }
    place.well(&["merge", "part-0", "part-1", "part-2", "--out", "merged"]);
    assert_eq!(place.plan("whole"), place.plan("merged"));
    let ends = |dir| place.runs(dir).values().map(of).collect::<Vec<_>>();
    assert_eq!(ends("whole"), ends("merged"));
    // Runs of the whole can be repeated, and those that no part has be done.
    let told = place.well(&["replay", "merged", "0"]);
    assert!(told.contains("as before"), "{told}");
    place.well(&["merge", "part-0", "part-2", "--out", "most"]);
    place.well(&on("run", &["--out", "most", "--runs", "12"]));
    assert_eq!(ends("whole"), ends("most"));
    let other = ["--out", "other", "--runs", "12", "--shard", "1/3"];
    let other = [&other[..], &["--detect", "exit=99"]].concat();
    place.well(&on("run", &other));
    let out = place.does(&["merge", "part-0", "other", "--out", "none"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && said.contains("the detector"),
        "{said}"
    );
    // One plan, copied to where its parts are run; a part is gone on with as what it is.
    place.well(&on("plan", &["--out", "copy-0", "--runs", "12"]));
    let copied = Command::new("cp")
        .args(["-a", "copy-0", "copy-1"])
        .current_dir(place.0.path())
        .status();
    assert!(copied.is_ok_and(|status| status.success()));
    for (dir, part) in [("copy-0", "0/2"), ("copy-1", "1/2")] {
        let words = ["--out", dir, "--runs", "12", "--shard", part];
        place.well(&on("run", &words));
        place.well(&on("run", &words[..4]));
        assert_eq!(place.runs(dir).len(), 6);
    }
    let other = ["--out", "copy-0", "--runs", "12", "--shard", "1/2"];
    place.refused(&on("run", &other), 121, "the part of the plan");
    place.well(&["merge", "copy-0", "copy-1", "--out", "joined"]);
    assert_eq!(ends("whole"), ends("joined"));
    // What a second call asks for otherwise is not left out in silence.
    for (more, text) in [
        (["--runs", "13"], "--runs 12"),
        (["--env", "X=1"], "environment"),
        (["--engine", "step"], "--engine plant"),
        (["--compare", "lines"], "comparison"),
        (["--detect", "exit=9"], "detector"),
        (["--only", "control"], "scope"),
        (["--bits", "2"], "--bits 1"),
        (["--memory", "100"], "--memory 4096"),
    ] {
        let words = [&["--out", "whole"], more.as_slice()].concat();
        let runs: &[&str] = if more[0] == "--runs" {
            &[]
        } else {
            &["--runs", "12"]
        };
        place.refused(&on("run", &[words.as_slice(), runs].concat()), 121, text);
    }
    // No time at all: the plan is made, one run is done so that calls come to an end, and a second call does the rest.
    place.well(&on(
        "run",
        &["--out", "slow", "--runs", "12", "--budget", "0s"],
    ));
    assert_eq!(
        (place.plan("slow").len(), place.runs("slow").len()),
        (12, 1)
    );
    place.well(&on("run", &["--out", "slow", "--runs", "12"]));
    assert_eq!(ends("whole"), ends("slow"));
}

#[test]
fn stopping_early_allows_for_having_looked() {
    let place = Place::new();
    let words = [
        "run",
        "--quiet",
        "--out",
        "until",
        "--runs",
        "600",
        "--jobs",
        "2",
        "--until",
        "sdc.upper95 < 1%",
        "--fault",
        "wreg",
        "--only",
        "control!work",
        "--only",
        "control!mix",
        "--seed",
        "7",
        "--",
        "./control",
        "guarded",
    ];
    let out = place.does(&words);
    assert_eq!(
        out.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let runs = place.runs("until");
    let valid = runs.values().filter(|run| run.hits > 0).count();
    // 299 would do for a number fixed in advance, and that was looked at, too.
    assert!(
        (339..600).contains(&valid),
        "{valid} of {} runs",
        runs.len()
    );
    place.refused(
        &["run", "--until", "sdc.count == 0", "--", "true"],
        64,
        "bounds",
    );
    place.refused(
        &["run", "--until", "ratio.sdc.upper95 < 1", "--", "true"],
        64,
        "baseline",
    );
    // Whoever means the program is not given the launcher's share of faults.
    place.refused(
        &[
            "run",
            "--",
            env!("CARGO_BIN_EXE_steadfast"),
            "run",
            "--",
            "true",
        ],
        121,
        "--replicas 2",
    );
}

#[test]
fn the_planner_says_how_many_runs_a_bound_takes() {
    let place = Place::new();
    let out = place.does(&["gate", "sdc.upper95 < 0.1%"]);
    assert_eq!(out.status.code(), Some(2), "nothing is known yet");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        said.contains("2,995 clean runs needed, 3,402 if looked at after each, 4,742"),
        "{said}"
    );
    let out = place.does(&["gate", "--json", "sdc.upper95 < 1% and hang.count == 0"]);
    let said: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(
        (
            &said["needed"][0]["clean"],
            said["needed"].as_array().map(Vec::len)
        ),
        (&299.into(), Some(1))
    );
}

#[test]
fn files_lie_and_replays_say_where() {
    let place = Place::new();
    let line = "write=stdout n=1 byte=2 bit=0";
    let cat = |more: &[&'static str]| {
        [
            &["run", "--quiet", "--runs", "2", "--seed", "7"],
            more,
            &["--", "cat", "in.txt"],
        ]
        .concat()
    };
    fs::create_dir(place.path("input")).expect("a directory");
    fs::copy(place.path("in.txt"), place.path("input/in.txt")).expect("a file");
    let input = ["--input", "input"];
    let one = [&["--out", "one", "--fault", line], &input[..]].concat();
    assert!(place.well(&cat(&one)).contains("2 sdc"));
    let mark = place.path("one/evidence/0/mark");
    fs::write(&mark, b"").expect("a file");
    let told = place.well(&["replay", "one", "0"]);
    assert!(
        told.contains(line) && told.contains("in /dev/stdout+0x2") && told.contains("as before"),
        "{told}"
    );
    assert!(
        mark.exists(),
        "a repeated run leaves what the first one left"
    );
    // Drawn ones: what is lost or wrong in the output shows, whatever the replicas above agree on.
    for (dir, replicas) in [("bare", "0"), ("two", "2")] {
        let drawn = [
            "--fault",
            "wdata,lost",
            "--files",
            "stdout",
            "--replicas",
            replicas,
        ];
        let said = place.well(&cat(&[&["--out", dir], &input[..], &drawn].concat()));
        assert!(said.contains("4 of 4") && said.contains("4 sdc"), "{said}");
    }
    place.clean();
}

#[test]
fn impossible_orders_are_refused_before_any_run() {
    let place = Place::new();
    let control_with = |words: &[&'static str]| {
        [&["run", "--quiet"], words, &["--", "./control", "silent"]].concat()
    };
    for (words, status, text) in [
        (control_with(&["--fault", "at=control n=1"]), 64, "fault"),
        (control_with(&["--fault", "nonsense"]), 64, "nonsense"),
        (
            control_with(&["--fault", "wreg,at=control+1 n=1 ip bit=1"]),
            64,
            "fault",
        ),
        (
            control_with(&["--fault", "at=control+0x1 n=1 reg=rax bit=3"]),
            121,
            "needs",
        ),
        (
            control_with(&["--fault", "at=nowhere+0x10 n=1 reg=rax bit=3"]),
            121,
            "no module",
        ),
        (
            control_with(&["--fault", "class=gather n=1.. reg=rax bit=3"]),
            121,
            "class",
        ),
        (
            control_with(&["--only", "nowhere"]),
            121,
            "the modules control",
        ),
        (
            control_with(&["--fault", "lost", "--files", "*.none"]),
            121,
            "transfer",
        ),
        (
            control_with(&["--fault", "lost", "--engine", "step"]),
            121,
            "plant",
        ),
        (
            control_with(&["--fault", "lost", "--files", "a b"]),
            64,
            "files",
        ),
        (
            control_with(&["--fault", "cpu=0 write=* n=1 kind=lost"]),
            121,
            "storage",
        ),
        (control_with(&["--compare", "masked=["]), 64, "compare"),
        (control_with(&["--compare", "guess"]), 64, "compare"),
        (control_with(&["--engine", "timer"]), 64, "time="),
        (control_with(&["--engine", "step", "--aslr"]), 64, "aslr"),
        (
            control_with(&[
                "--engine",
                "timer",
                "--replicas",
                "2",
                "--fault",
                "time=1ms reg=rax bit=1",
            ]),
            64,
            "replicas",
        ),
        (
            control_with(&[
                "--replicas",
                "2",
                "--driver",
                "true",
                "--ready",
                "7",
                "--stop",
                "KILL",
            ]),
            64,
            "report after",
        ),
        (control_with(&["--seed", "xyz"]), 64, "seed"),
        (control_with(&["--shard", "3/3"]), 64, "shard"),
        (control_with(&["--until", "sdc.upper95 <"]), 64, "until"),
        (
            vec!["run", "--quiet", "--", "no-such-program"],
            127,
            "no-such-program",
        ),
        (
            vec!["run", "--quiet", "--", "date", "+%N"],
            121,
            "same output",
        ),
        (
            vec!["run", "--quiet", "--", "cat", "in.txt"],
            121,
            "in.txt in the caller's alone",
        ),
        (
            control_with(&["--compare", "command=false"]),
            121,
            "equals itself",
        ),
        (
            vec!["run", "--quiet", "--patience", "1", "--", "sleep", "9"],
            121,
            "ends",
        ),
        (
            vec!["run", "--quiet", "--", "sh", "-c", "kill -9 $$"],
            121,
            "exits by itself",
        ),
    ] {
        place.refused(&words, status, text);
    }
    // A plan that somebody changed is looked through first.
    place.well(&on("plan", &["--out", "changed", "--runs", "3"]));
    let path = place.path("changed/plan.jsonl");
    let text = fs::read_to_string(&path).expect("a plan");
    let (head, tail) = text.rsplit_once(" n=").expect("a fault");
    fs::write(&path, format!("{head} m={tail}")).expect("changed");
    let words = on("run", &["--out", "changed", "--runs", "3"]);
    place.refused(&words, 121, "plan.jsonl, line 3");
    assert!(!place.path("changed/runs.jsonl").exists());
    place.clean();
}

#[test]
fn the_program_is_the_one_that_its_own_path_names() {
    let place = Place::new();
    // A program of that name comes first on the caller's PATH, where the box's user cannot go.
    let hidden = place.path("hidden");
    fs::create_dir(&hidden).expect("a directory");
    fs::copy("/bin/true", hidden.join("sort")).expect("a program");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("its mode");
    let path = format!(
        "{}:{}",
        hidden.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = place.command(&["profile", "--json", "--", "sort", "in.txt"]);
    let out = command.env("PATH", &path).output().expect("it starts");
    assert_eq!(
        out.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    if steadfast_sys::procfs::is_privileged() {
        let direct = hidden.join("sort").display().to_string();
        place.refused(&["profile", "--", &direct], 121, "closed to others");
    }
}

#[test]
fn each_comparator_sees_what_it_is_for() {
    let place = Place::new();
    let check = place.path("check");
    let mut file = fs::File::create(&check).expect("a file");
    // Equal if there are as many lines, rejected if there is nothing.
    file.write_all(
        b"#!/bin/sh\n[ -s $2/stdout ] || exit 2\n[ $(wc -l < $1/stdout) = $(wc -l < $2/stdout) ] || exit 1\n",
    )
    .expect("written");
    drop(file);
    fs::set_permissions(&check, fs::Permissions::from_mode(0o755)).expect("its mode");
    let by_command = format!("command={}", check.display());
    let mut found = BTreeMap::new();
    for how in [
        "byte",
        "lines",
        "masked=[0-9a-f]+",
        "numeric=1",
        &by_command,
    ] {
        let out = how.split('=').next().unwrap_or(how).to_owned();
        place.well(&on(
            "run",
            &["--out", &out, "--runs", "40", "--compare", how],
        ));
        let runs = place.runs(&out);
        let wrong: Vec<u64> = runs
            .values()
            .filter(|run| run.outcome.outcome().to_string() == "sdc")
            .map(|run| run.id)
            .collect();
        found.insert(out, wrong);
    }
    // The time is another in each run, but always one line.
    let clock = [
        "run", "--quiet", "--out", "clock", "--runs", "2", "--seed", "7",
    ];
    let by = [
        "--fault",
        "wreg",
        "--compare",
        &by_command,
        "--",
        "date",
        "+%N",
    ];
    place.well(&[&clock[..], &by].concat());
    let wrong = |how: &str| found[how].clone();
    // It prints one line of digits: a line in another order is the same, without digits nothing is left.
    assert!(
        !wrong("byte").is_empty() && wrong("lines") == wrong("byte"),
        "{found:?}"
    );
    assert!(
        wrong("masked").is_empty() && wrong("command").is_empty(),
        "{found:?}"
    );
    for how in ["lines", "masked", "numeric", "command"] {
        let all = wrong(how).iter().all(|id| wrong("byte").contains(id));
        assert!(
            all,
            "{how} objects to what is equal byte for byte: {found:?}"
        );
    }
}

#[test]
fn a_doctor_comes_to_an_end_and_finds_the_injector_well() {
    let place = Place::new();
    let out = place.does(&["doctor", "--json"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let found: serde_json::Value = serde_json::from_str(&said).expect("one object");
    let answers = found["answers"].as_array().expect("answers");
    assert_eq!(answers.len(), 9, "{said}");
    for answer in answers {
        // Where there are no namespaces the box is open, and is said to be.
        let boxed = answer["name"] == "faulty programs are boxed in";
        assert!(boxed || answer["ok"] == true, "{answer}");
    }
    let well = answers.iter().all(|answer| answer["ok"] == true);
    assert_eq!(out.status.code(), Some(i32::from(!well)), "{said}");
    place.clean();
}

#[test]
fn gdb_stands_just_before_the_fault() {
    let place = Place::new();
    if Command::new("gdb")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        place.well(&on("plan", &["--out", "plan", "--runs", "1"]));
        place.refused(&["replay", "plan", "0", "--gdb"], 121, "apt install gdb");
        return;
    }
    place.well(&on("run", &["--out", "runs", "--runs", "12"]));
    let runs = place.runs("runs");
    let plan = place.plan("runs");
    let planned = plan
        .iter()
        .filter(|p| p.n.is_some())
        .min_by_key(|p| p.n)
        .expect("an early one");
    let id = planned.id.to_string();
    let mut child = place
        .command(&["replay", "runs", &id, "--gdb"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let register = planned.register.as_deref().expect("a register");
    // The fault is in a register after the instruction: one step on there stands what it had before.
    let words = format!("p/x $rip\nstepi\np/x ${register}\nkill\nquit\n");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(words.as_bytes())
        .expect("taken");
    let out = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    let value = |n: u32| {
        let mark = format!("${n} = 0x");
        said.lines()
            .find_map(|l| u64::from_str_radix(l.split_once(&mark)?.1.trim(), 16).ok())
    };
    let site = planned.site.as_ref().expect("a site");
    let offset = u64::from_str_radix(site.offset.trim_start_matches("0x"), 16).expect("an offset");
    assert_eq!(
        value(1).map(|rip| rip & 0xfff),
        Some(offset & 0xfff),
        "{said}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let before = runs[&planned.id].fired[0].before.as_deref().expect("fired");
    let before = u64::from_str_radix(before.trim_start_matches("0x"), 16).expect("a number");
    assert_eq!(value(2), Some(before), "{said}");
    place.clean();
}

#[test]
fn a_moment_of_time_strikes_a_program_that_waits_for_it() {
    let place = Place::new();
    // It waits in the kernel; the stack pointer is wrong when it comes back.
    let words = [
        "run",
        "--quiet",
        "--out",
        "timer",
        "--engine",
        "timer",
        "--runs",
        "2",
        "--fault",
        "time=50ms reg=rsp bit=46",
        "--",
        "sleep",
        "0.5",
    ];
    place.well(&words);
    let runs = place.runs("timer");
    assert!(
        runs.len() == 2 && runs.values().all(|run| run.hits == 1),
        "{runs:?}"
    );
    assert!(
        runs.values()
            .all(|run| run.outcome.outcome().to_string() != "not_fired")
    );
    let campaign = Dir::new(place.path("timer"))
        .campaign()
        .expect("a campaign");
    assert_eq!(
        campaign.population.dynamic, 0,
        "moments are drawn from no instructions"
    );
    place.well(&["report", "timer"]);
}

#[test]
fn a_replicated_target_is_counted_once() {
    let place = Place::new();
    let of = |replicas: &str| {
        let out = format!("plan-{replicas}");
        place.well(&on(
            "plan",
            &["--out", &out, "--runs", "2", "--replicas", replicas],
        ));
        Dir::new(place.path(&out))
            .campaign()
            .expect("a campaign")
            .population
    };
    let (bare, two) = (of("0"), of("2"));
    assert_eq!((bare.dynamic, bare.sites), (two.dynamic, two.sites));
}

/// A group carries out what its lines say: in the replica that they name, by the clock, in code. What it cannot is said
/// before any run.
#[test]
fn a_replicated_target_is_struck_as_its_lines_say() {
    let place = Place::new();
    let under = |out: &str, faults: &[&str]| {
        let mut words = vec!["run", "--quiet", "--replicas", "2", "--runs", "1", "--out"];
        words.push(out);
        for fault in faults {
            words.extend(["--fault", fault]);
        }
        words.extend(["--", "./control", "silent"]);
        words.into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        place.well(&words);
    };
    all(&under(
        "lines",
        &[
            "replica=1 at=control!mix n=100 kind=crash",
            "replica=0 at=control!mix n=100 code bit=0",
            "replica=1 time=1us kind=crash",
            "at=control!mix n=100 reg=rsp bit=40",
            "replica=0 at=control!mix n=100 kind=hang",
        ],
    ));
    let runs = place.runs("lines");
    assert_eq!(runs.len(), 5);
    assert_eq!(runs[&4].outcome.word(), "corrected", "{:?}", runs[&4]);
    for (id, run) in &runs {
        let ended = run.outcome.outcome().to_string();
        let over = *id == 2 && ended == "not_fired";
        assert!(over || ended == "corrected" || ended == "masked", "{run:?}");
    }
    let planned = place.plan("lines");
    assert!(
        planned[0].fault.starts_with("replica=1 at="),
        "{:?}",
        planned[0]
    );
    let mixed = "replica=0 at=control!mix n=9 kind=crash; read=in.txt n=1 byte=0 bit=0";
    let words = under("mixed", &[mixed]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = place.does(&words);
    assert_ne!(said.status.code(), Some(0));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("faults of storage, or others"), "{said}");
    place.clean();
}

/// A DNS question over TCP for a name's address, and dnsmasq's answer to it.
fn dns(id: u8, name: &str) -> (Vec<u8>, Vec<u8>) {
    let labels: Vec<u8> = name
        .split('.')
        .flat_map(|label| {
            let length = u8::try_from(label.len()).expect("short");
            std::iter::once(length).chain(label.bytes())
        })
        .collect();
    let message = |head: [u8; 10], tail: &[u8]| {
        let mut body = vec![0, id];
        body.extend(head);
        body.extend(&labels);
        body.extend([0, 0, 1, 0, 1]); // the root; an address, of the internet
        body.extend(tail);
        let length = u16::try_from(body.len()).expect("short");
        [&length.to_be_bytes()[..], &body].concat()
    };
    // Flags, then how many questions, answers, authorities and additions.
    let ask = message([1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &[]);
    // The name again, by its place; kind and class; no time to live; four bytes of address.
    let said = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 10, 1, 2, 3];
    (ask, message([0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0], &said))
}

#[test]
fn a_server_runs_as_replicas_and_its_clients_see_no_wrong_answer() {
    let place = Place::new();
    let steps = (0..20)
        .map(|i| dns(i, &format!("host{i}.example.test")))
        .collect();
    fs::write(place.path("trace"), Trace(vec![steps]).to_bytes()).expect("written");
    for replicas in ["0", "2"] {
        let out = format!("served-{replicas}");
        place.well(&[
            "run",
            "--quiet",
            "--out",
            &out,
            "--runs",
            "3",
            "--seed",
            "21",
            "--jobs",
            "1",
            "--replicas",
            replicas,
            "--driver",
            "trace:trace",
            "--ready",
            "5353",
            "--",
            "/usr/sbin/dnsmasq",
            "--no-daemon", // one process, for queries over TCP as well
            "--conf-file=/dev/null",
            "--port=5353",
            "--listen-address=127.0.0.1",
            "--bind-interfaces",
            "--no-resolv",
            "--no-hosts",
            "--address=/example.test/10.1.2.3",
            "--log-facility=/dev/null",
        ]);
    }
    let (bare, two) = (place.runs("served-0"), place.runs("served-2"));
    // Seven fault types; both campaigns have the same plan.
    assert_eq!((bare.len(), two.len()), (21, 21));
    let failed = |run: &&Run| !matches!(run.outcome, Leaf::MaskedClean | Leaf::Slow);
    assert!(bare.values().any(|run| failed(&run)), "no fault did harm");
    // Nothing is said about time: on a busy machine a run may count as slow or hung.
    let wrong = |leaf: Leaf| matches!(leaf, Leaf::Sdc | Leaf::SdcLate | Leaf::CorrectedWrong);
    for run in two.values() {
        assert!(!wrong(run.outcome), "run {}: {:?}", run.id, run.outcome);
    }
    assert!(
        two.values().any(|run| run.outcome == Leaf::Corrected
            && run
                .detection
                .as_ref()
                .is_some_and(|detection| detection.by == "replicas")),
        "nothing was repaired"
    );
    place.clean();
}
