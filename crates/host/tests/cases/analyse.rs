//! `steadfast-host analyse`: what is measured of an application, and which deadlines that allows.

use std::process::Output;

use serde_json::Value as Json;

use crate::{Refused, components, err, host, out};

/// An urgent task with one lock, and so many that nobody uses.
fn app(component: &str, deadline_us: u64) -> String {
    format!(
        r#"
        [component.lock]
        process = false
        {component}
        [[edge]]
        from = "script"
        to = "lock"
        [[call]]
        to = "lock"
        function = "steadfast:lock/locks@0.1.0#[constructor]lock"
        as = "a"
        [[call]]
        to = "lock"
        function = "steadfast:lock/locks@0.1.0#[constructor]lock"
        repeat = 400
        [[task]]
        name = "urgent"
        to = "lock"
        function = "steadfast:lock/locks@0.1.0#[method]lock.take"
        args = ["$a", 7]
        period_us = 10000000
        deadline_us = {deadline_us}
        priority = 20
        [[task]]
        name = "ordinary"
        to = "lock"
        function = "steadfast:lock/locks@0.1.0#[method]lock.holder"
        args = ["$a"]
        period_us = 5000
        "#
    )
}

fn analyse(name: &str, app: &str, more: &[&str]) -> (Output, Json) {
    let file = components().join(format!("{name}.json"));
    let args = ["--jobs", "20", "--json", file.to_str().expect("a path")];
    let output = host("analyse", name, app, &[&args[..], more].concat());
    let told = std::fs::read_to_string(&file).unwrap_or_default();
    (output, serde_json::from_str(&told).unwrap_or_default())
}

#[test]
fn a_task_meets_its_deadline_unless_a_hang_takes_longer_to_be_found() {
    let app = app("call_ms = 2000", 1_900_000);
    let (output, found) = analyse("meets", &app, &["--without-hangs"]);
    assert!(output.status.success(), "{}{}", out(&output), err(&output));
    let lock = &found["components"][0];
    assert_eq!(lock["objects"], 401);
    for time in ["detect_ns", "ready_ns", "object_ns"] {
        assert!(lock[time].as_u64() > Some(0), "{time}: {lock}");
    }
    let urgent = found["tasks"]
        .as_array()
        .expect("tasks")
        .iter()
        .find(|task| task["task"] == "urgent");
    let urgent = urgent.expect("a row");
    let time = |of: &Json| of["response_ns"].as_u64().expect("a bound");
    let (bare, lazy, eager) = (&urgent["no_fault"], &urgent["on_demand"], &urgent["eager"]);
    assert!(
        time(bare) < time(lazy) && time(lazy) < time(eager),
        "{urgent}"
    );
    // Two jobs, one of them of the other task, bring one lock back each; eagerly 401 come back.
    let object = lock["object_ns"].as_u64().expect("a time");
    let more = eager["fault_ns"].as_u64().expect("") - lazy["fault_ns"].as_u64().expect("");
    assert_eq!(more, 399 * object);
    assert_eq!(
        urgent["blocked_ns"],
        found["tasks"].as_array().expect("tasks")[1]["job_ns"]
    );
    let (output, _) = analyse("hangs", &app, &[]);
    assert_eq!(output.status.code(), Some(1), "{}", out(&output));
    assert!(out(&output).contains("MISSES"), "{}", out(&output));
}

#[test]
fn a_component_that_is_eager_is_measured_as_any_other_and_judged_as_it_is() {
    // An edge is judged as its component: which objects are those of the edge is not measured.
    let edge = app("", 9_000_000).replacen("[[edge]]", "[[edge]]\neager = true", 1);
    for (name, app) in [
        ("eager", app("eager = true", 9_000_000)),
        ("eager-edge", edge),
    ] {
        let (output, found) = analyse(name, &app, &["--without-hangs"]);
        assert!(output.status.success(), "{}{}", out(&output), err(&output));
        let urgent = &found["tasks"][0];
        assert_eq!(urgent["configured"], urgent["eager"], "{urgent}");
        assert_ne!(urgent["configured"], urgent["on_demand"], "{urgent}");
    }
}

#[test]
fn a_priority_that_a_component_cannot_inherit_is_refused_and_an_ordinary_thread_is_not() {
    let own = |priority: &str| {
        let app = app("", 1000).replace("process = false", "");
        app.replace("priority = 20", priority)
    };
    for command in ["analyse", "check", "run"] {
        let output = host(command, "inherit", &own("priority = 20"), &[]);
        assert_eq!(output.status.code(), Some(121), "{command}");
        let told = err(&output);
        assert!(
            told.contains("task urgent has a priority, which lock cannot inherit")
                && told.contains("process = false in [component.lock]"),
            "{command}: {told}"
        );
    }
    let checked = host("check", "inherit", &own(""), &[]);
    assert!(checked.status.success(), "{}", err(&checked));
}

#[test]
fn what_has_no_bound_is_refused_by_name() {
    let refused = |app: &str| Refused::by(&analyse("no-bound", app, &[]).0);
    refused(&app("", 1000).replace("priority = 20", ""))
        .says("an ordinary thread has no bound")
        .fix("priority = N");
    let run = "[run]\ncomponent = \"lock\"\nfunction = \"steadfast:lock/locks@0.1.0#run\"\n";
    refused(&(app("", 1000) + run))
        .says("found [run]")
        .fix("a [[task]]");
}
