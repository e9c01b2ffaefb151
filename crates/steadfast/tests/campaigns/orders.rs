//! What an order asks for: bounds, files, and what is refused before any run.

use super::*;

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
    let refused = |words: &[&str], status, text| {
        let words = [&["run", "--quiet"], words, &["--", "./control", "silent"]].concat();
        place.refused(&words, status, text);
    };
    refused(&["--fault", "at=control n=1"], 64, "fault");
    refused(&["--fault", "nonsense"], 64, "nonsense");
    refused(&["--fault", "wreg,at=control+1 n=1 ip bit=1"], 64, "fault");
    refused(
        &["--fault", "at=control+0x1 n=1 reg=rax bit=3"],
        121,
        "needs",
    );
    refused(
        &["--fault", "at=nowhere+0x10 n=1 reg=rax bit=3"],
        121,
        "no module",
    );
    refused(
        &["--fault", "class=gather n=1.. reg=rax bit=3"],
        121,
        "class",
    );
    refused(&["--only", "nowhere"], 121, "the modules control");
    refused(&["--fault", "lost", "--files", "*.none"], 121, "transfer");
    refused(&["--fault", "lost", "--engine", "step"], 121, "plant");
    refused(&["--fault", "lost", "--files", "a b"], 64, "files");
    refused(&["--fault", "cpu=0 write=* n=1 kind=lost"], 121, "storage");
    refused(&["--compare", "masked=["], 64, "compare");
    refused(&["--compare", "guess"], 64, "compare");
    refused(&["--engine", "timer"], 64, "time=");
    refused(&["--engine", "step", "--aslr"], 64, "aslr");
    refused(
        &[
            "--engine",
            "timer",
            "--replicas",
            "2",
            "--fault",
            "time=1ms reg=rax bit=1",
        ],
        64,
        "replicas",
    );
    refused(
        &[
            "--replicas",
            "2",
            "--driver",
            "true",
            "--ready",
            "7",
            "--stop",
            "KILL",
        ],
        64,
        "report after",
    );
    refused(&["--seed", "xyz"], 64, "seed");
    refused(&["--shard", "3/3"], 64, "shard");
    refused(&["--until", "sdc.upper95 <"], 64, "until");
    place.refused(
        &["run", "--quiet", "--", "no-such-program"],
        127,
        "no-such-program",
    );
    place.refused(&["run", "--quiet", "--", "date", "+%N"], 121, "same output");
    place.refused(
        &["run", "--quiet", "--", "cat", "in.txt"],
        121,
        "in.txt in the caller's alone",
    );
    refused(&["--compare", "command=false"], 121, "equals itself");
    place.refused(
        &["run", "--quiet", "--patience", "1", "--", "sleep", "9"],
        121,
        "ends",
    );
    place.refused(
        &["run", "--quiet", "--", "sh", "-c", "kill -9 $$"],
        121,
        "exits by itself",
    );
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
    // A program of that name comes first on the caller's PATH, where the sandbox's user cannot go.
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
