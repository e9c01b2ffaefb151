//! What whoever runs an application has of it: dumps of failures, files for what components print.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::{APP, components, err, host, out};

fn fresh(name: &str) -> PathBuf {
    let folder = components().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

fn names(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<_> = all
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    names
}

fn json(path: &Path) -> Json {
    let text = std::fs::read_to_string(path).expect("written");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_failure_leaves_registers_and_memory_within_bounds_and_a_good_run_nothing() {
    let dumps = fresh("dumps");
    let events = components().join("dumps.jsonl");
    let crash = APP.replace("#run\"", "#crash\"");
    let more = [
        "--dumps",
        text(&dumps),
        "--dumps-max",
        "2",
        "--events",
        text(&events),
    ];
    let output = host("run", "dumps", &crash, &more);
    assert_eq!(output.status.code(), Some(121), "{}", err(&output));
    let last = "000003-client";
    assert_eq!(names(&dumps), ["000002-client", last], "the newest stay");
    let failure = json(&dumps.join(last).join("failure.json"));
    assert_eq!(failure["cause"], "trap");
    assert_eq!(failure["function"], "crash");
    let body = &failure["bodies"][0];
    assert_eq!(body["signal"], 4, "{failure:#}");
    assert!(body["offset"].is_string(), "{failure:#}");
    assert_eq!(
        body["registers"].as_object().map(serde_json::Map::len),
        Some(16)
    );
    let memory = &body["memories"][0];
    let file = dumps
        .join(last)
        .join(memory["file"].as_str().expect("a name"));
    let bytes = std::fs::read(file).expect("written");
    assert_eq!(Some(bytes.len() as u64), memory["bytes"].as_u64());
    // The word that the component's code reads (tests/components/client).
    assert!(
        bytes
            .windows(4)
            .any(|word| word == 0x5ca1_ab1e_u32.to_le_bytes())
    );
    let events = std::fs::read_to_string(events).expect("written");
    assert!(events.contains(&format!("\"dump\":\"{last}\"")), "{events}");
    assert!(events.contains("\"dumps_lost\":0"), "{events}");
    // Too little room: registers alone. Numbers go on.
    let output = host(
        "run",
        "dumps",
        &crash,
        &["--dumps", text(&dumps), "--dumps-mib", "0"],
    );
    assert_eq!(output.status.code(), Some(121), "{}", err(&output));
    assert_eq!(names(&dumps), ["000007-client"]);
    assert_eq!(names(&dumps.join("000007-client")), ["failure.json"]);
    let silent = fresh("dumps-silent");
    let output = host("run", "dumps", APP, &["--dumps", text(&silent)]);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(names(&silent), [""; 0]);
}

#[test]
fn what_components_print_goes_to_two_streams_or_into_files_that_events_name() {
    let crash = APP.replace("#run\"", "#crash\"");
    let output = host("run", "streams", &crash, &[]);
    assert_eq!(out(&output), "client: about to crash\n");
    assert!(
        err(&output).starts_with("client: no way out\n"),
        "{}",
        err(&output)
    );
    let folder = fresh("output");
    let events = components().join("output.jsonl");
    let more = ["--output", text(&folder), "--events", text(&events)];
    let output = host("run", "streams", &crash, &more);
    assert_eq!(out(&output), "");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("written");
    assert_eq!(read("client.out"), "about to crash\n");
    assert_eq!(read("client.err"), "no way out\n");
    let events = std::fs::read_to_string(events).expect("written");
    let start: Json = serde_json::from_str(events.lines().next().expect("a line")).expect("JSON");
    assert_eq!(
        start["output"]["client"]["stdout"],
        text(&folder.join("client.out"))
    );
}

#[test]
fn places_that_cannot_be_written_are_refused_before_anything_runs() {
    for (option, fix) in [("--dumps", "--dumps DIR"), ("--output", "--output DIR")] {
        let output = host("run", "unwritable", APP, &[option, "/proc/steadfast"]);
        assert_eq!(output.status.code(), Some(121), "{}", err(&output));
        assert_eq!(out(&output), "");
        assert!(err(&output).contains(fix), "{}", err(&output));
    }
}
