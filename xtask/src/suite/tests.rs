//! The suite over what test runners and cargo print.

use std::process::Command;
use std::time::Duration;

use super::named;
use super::part::{Failure, Outcome, Program, Reader, Tally, execute};

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
    assert_eq!(of_kv[0].1.executable.to_str(), Some("/t/group-1"));
    assert_eq!(of_kv[0].1.dir.to_str(), Some("/r/crates/kv"));
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

#[test]
fn the_slowest_cases_are_those_told_behind_the_result() {
    let mut reader = Reader::default();
    for line in [
        "    7.0 s  of what a case has printed",
        "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 12 s",
        "    11.5 s  faults::one",
        "     0.2 s  faults::two",
        "nothing",
    ] {
        reader.line(line);
    }
    let found = [(11.5, "faults::one"), (0.2, "faults::two")];
    assert_eq!(
        reader.slowest,
        found.map(|(seconds, name)| (seconds, name.to_owned()))
    );
}

#[test]
fn a_part_tells_how_it_ended_and_what_its_processes_have_computed() {
    let run = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        execute("a part", Duration::from_secs(60), &command, &mut Vec::new())
    };
    let busy = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
    assert_eq!((busy.tally.passed, busy.tally.failed), (1, 0));
    assert!(busy.computed > Duration::ZERO && busy.why.is_none());
    let bad = run("exit 3");
    assert_eq!((bad.tally.passed, bad.tally.failed), (0, 1));
}

#[test]
fn a_case_that_fails_is_run_again_alone_and_stays_a_failure() {
    let dir = std::env::temp_dir().join(format!("xtask-again-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for (numbers, passes) in [("1 passed; 0 failed", true), ("0 passed; 1 failed", false)] {
        let executable = dir.join("program");
        let text = format!("echo 'test result: it ended. {numbers}; 0 ignored'\n");
        std::fs::write(&executable, text).unwrap();
        let mut outcome = Outcome::new("a part");
        outcome.tally.failed = 1;
        let failure = Failure::new("a::case".to_owned(), vec!["no".to_owned()]);
        outcome.failures.push(failure);
        let mut outcome = outcome.of(&Program {
            prefix: vec!["sh".to_owned()],
            executable,
            dir: dir.clone(),
        });
        outcome.again(&mut Vec::new());
        assert_eq!((outcome.tally.passed, outcome.tally.failed), (0, 1));
        assert_eq!(outcome.failures[0].passed_alone, passes);
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
