//! A campaign directory: killed, interrupted, shared between callers, cut in parts, gone on with.

use super::*;

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
