//! `steadfast-host bench`, small: every series has a value of each round, and they are those of this machine.

use std::collections::BTreeMap;
use std::process::Command;

use crate::{HOST, components, err};

#[test]
fn each_series_has_a_value_of_each_round_and_resets_leave_nothing() {
    let file = components().join("bench.json");
    let mut bench = Command::new(HOST);
    bench.args(["bench", "--rounds", "2", "--components"]);
    bench.arg(components()).arg("--json").arg(&file);
    let output = bench.output().expect("it runs");
    assert!(output.status.success(), "{}", err(&output));
    let told = std::fs::read_to_string(&file).expect("written");
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    let series = told["series"].as_array().expect("a list").iter();
    let values: BTreeMap<&str, Vec<f64>> = series
        .map(|one| {
            let values = one["values"].as_array().expect("a list").iter();
            let values = values.map(|value| value.as_f64().expect("a number"));
            (one["key"].as_str().expect("a text"), values.collect())
        })
        .collect();
    for (key, values) in &values {
        assert_eq!(values.len(), 2, "{key}");
    }
    for key in [
        "fork",
        "reset.probe",
        "reset.over-fork",
        "swap.over-fork",
        "object.lock",
        "object.file-first",
        "object.thread",
        "object.page",
        "iterate.file",
        "iterate.ping-pong",
        "iterate.page",
        "call.over-bare",
        "iterate.http",
        "http.fault-a-second",
        "http.fault-longest",
        "process.call",
        "process.call.over",
        "process.ping-pong",
        "process.page",
        "process.file",
        "process.http",
        "reset.scheduler.memory",
        "reset.memory.execution",
        "keep.call",
        "keep.object",
        "detect.pad",
        "detect.hang",
        "detect.result",
        "detect.range",
        "detect.read-back",
        "detect.audit",
        "detect.dual",
        "detect.memory",
        "fault.trap",
        "fault.pad",
        "fault.assert",
        "interference.on-demand",
        "interference.eager",
    ] {
        assert!(values.contains_key(key), "{key} is missing");
    }
    // The unoptimised build says nothing about cost, but an order that no machine changes.
    assert!(values["interference.eager.10000"][0] > 10.0 * values["reset.probe"][0]);
    assert!(values["fault.assert"][0] > 0.0);
}

#[test]
fn a_series_alone_is_measured_alone_and_an_unknown_one_is_refused() {
    let file = components().join("bench-only.json");
    let only = |names: &str| {
        let mut bench = Command::new(HOST);
        bench.args(["bench", "--rounds", "1", "--only", names, "--components"]);
        bench.arg(components()).arg("--json").arg(&file);
        bench.output().expect("it runs")
    };
    let output = only("resets,calls");
    assert!(output.status.success(), "{}", err(&output));
    let told = std::fs::read_to_string(&file).expect("written");
    for (key, there) in [
        ("reset.probe", true),
        ("call.bare", true),
        ("fork", false),
        ("swap.probe", false),
    ] {
        assert_eq!(told.contains(&format!("\"{key}\"")), there, "{key}: {told}");
    }
    let refused = only("reset");
    assert!(!refused.status.success());
    assert!(err(&refused).contains("interference"), "{}", err(&refused));
}

#[test]
fn a_bench_without_its_component_says_what_to_build() {
    let folder = components().join("no-probe");
    std::fs::create_dir_all(&folder).expect("made");
    let mut bench = Command::new(HOST);
    bench.args(["bench", "--components"]).arg(&folder);
    let output = bench.output().expect("it runs");
    assert_eq!(output.status.code(), Some(121));
    let told = err(&output);
    assert!(told.contains("probe.cwasm, which does not exist"), "{told}");
    assert!(told.contains("fix:   make build-host"), "{told}");
}
