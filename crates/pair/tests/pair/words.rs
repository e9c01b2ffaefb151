//! What the command says of itself: words that it does not know, and results that nobody can read.

use std::fs::{self, OpenOptions};
use std::process::{Child, Command, Output, Stdio};

use crate::sites::*;

fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    format!("{}\n{text}", output.status)
}

#[test]
fn a_word_that_it_does_not_know_is_told_as_every_part_tells_it() {
    for words in [&["primary", "--bogus"][..], &["nothing"], &["switch"]] {
        let output = Command::new(pair()).args(words).output().expect("it runs");
        assert_eq!(output.status.code(), Some(64), "{}", said(&output));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.starts_with("steadfast pair: "), "{text}");
        assert!(!text.contains("error:"), "{text}");
    }
}

/// With a ledger and data of a site that runs.
fn words(what: &str, site: &Child) -> Vec<String> {
    let ledger = format!("/proc/{}/root/mnt/ledger", site.id());
    let all: &[&str] = match what {
        "top" => &["--ledger", &ledger, "--every", "10", "--count", "1"],
        "man" | "--help" => &[],
        _ => &["--ledger", &ledger],
    };
    [what]
        .iter()
        .chain(all)
        .map(|word| (*word).to_owned())
        .collect()
}

#[test]
fn a_result_that_standard_output_does_not_take_is_told_and_is_no_success() {
    let dir = with_table("words");
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    for what in ["status", "top", "man", "--help"] {
        let run = |out: Stdio| {
            let mut command = Command::new(pair());
            command.args(words(what, &both.a)).stdout(out);
            command.output().expect("it runs")
        };
        let full = OpenOptions::new().write(true).open("/dev/full");
        let output = run(full.expect("a device").into());
        assert_eq!(output.status.code(), Some(121), "{what}: {}", said(&output));
        let text = said(&output);
        assert!(text.contains("No space left on device"), "{what}: {text}");
        // Whoever has left has seen what it wanted.
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = run(writer.into());
        assert_eq!(output.status.code(), Some(0), "{what}: {}", said(&output));
        assert_eq!(output.stderr, b"", "{what}");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}
