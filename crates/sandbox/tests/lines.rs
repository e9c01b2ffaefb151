//! What a caller hears from the first process of its sandbox.

use std::fs;
use std::path::PathBuf;

use steadfast_sandbox::{Caller, Isolation, Rules, Unanswered, c_path, serve};

/// A sandbox whose first process answers like this, and its directory.
fn sandbox(name: &str, answer: impl Fn(&Isolation, &str) -> Option<String>) -> (Caller, PathBuf) {
    let dir = std::env::temp_dir().join(format!("steadfast-sandbox-{}-{name}", std::process::id()));
    fs::create_dir_all(&dir).expect("a directory");
    let rules = Rules {
        scratch: c_path(&dir).expect("a path"),
        user: None,
        network: false,
        nested: false,
    };
    let caller = Caller::new(&rules, |stream, isolation| {
        serve(stream, |line| answer(&isolation, line))
    });
    (caller.expect("a sandbox"), dir)
}

#[test]
fn each_line_is_answered_from_inside() {
    let (mut caller, dir) = sandbox("answers", |isolation, line| {
        if line == "open" {
            return Some(isolation.open.join(", "));
        }
        let written = fs::write(line, "x").map_err(|why| why.kind());
        Some(format!("{} {written:?}", std::process::id()))
    });
    let inside = dir.join("file").display().to_string();
    let outside = std::env::temp_dir().join("steadfast-sandbox-outside");
    assert_eq!(caller.ask(&inside).expect("an answer"), "1 Ok(())\n");
    assert!(dir.join("file").exists());
    let said = caller
        .ask(&outside.display().to_string())
        .expect("an answer");
    assert_eq!(said, "1 Err(ReadOnlyFilesystem)\n");
    let open = caller.ask("open").expect("an answer");
    assert!(!open.contains("files can be written"), "{open}");
    drop(caller);
    fs::remove_dir_all(dir).expect("nobody holds it");
}

#[test]
fn one_that_gives_up_is_gone_for_its_caller() {
    let (mut caller, dir) = sandbox("gone", |_, line| (line != "end").then(|| line.to_owned()));
    assert_eq!(caller.ask("go on").expect("an answer"), "go on\n");
    for _ in 0..2 {
        let gone = caller.ask("end");
        assert!(matches!(gone, Err(Unanswered::Gone(_))), "{gone:?}");
    }
    drop(caller);
    fs::remove_dir_all(dir).expect("nobody holds it");
}
