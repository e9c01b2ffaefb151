//! The command from outside: exit codes, help, errors, and what it leaves of its surroundings.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output, Stdio};

fn steadfast(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    // Help wraps at the width of the terminal, which a test must not depend on.
    command
        .args(args)
        .env("COLUMNS", "100")
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Arguments, exit code, and a name for what is said.
#[test]
fn every_wrong_start_has_its_code_and_says_what_to_do() {
    struct Start {
        name: &'static str,
        args: &'static [&'static str],
        code: i32,
    }
    for Start { name, args, code } in [
        Start {
            name: "nothing",
            args: &[],
            code: 64,
        },
        Start {
            name: "unknown_command",
            args: &["walk"],
            code: 64,
        },
        Start {
            name: "no_program",
            args: &["run"],
            code: 64,
        },
        Start {
            name: "unknown_flag",
            args: &["run", "--replicsa=2", "--", "true"],
            code: 64,
        },
        Start {
            name: "word",
            args: &["run", "--on-mismatch=panic", "--", "true"],
            code: 64,
        },
        Start {
            name: "too_many",
            args: &["run", "-n", "9", "--", "true"],
            code: 64,
        },
        Start {
            name: "flip_register",
            args: &[
                "run",
                "--flip",
                "replica=1 event=12 reg=rex bit=3",
                "--",
                "true",
            ],
            code: 64,
        },
        Start {
            name: "flip_victim",
            args: &["run", "--flip", "event=12 reg=rax bit=3", "--", "true"],
            code: 64,
        },
        Start {
            name: "flip_range",
            args: &[
                "run",
                "--flip",
                "replica=2 event=12 reg=rax bit=3",
                "--",
                "true",
            ],
            code: 64,
        },
        Start {
            name: "flip_empty",
            args: &["run", "--flip", "", "--", "true"],
            code: 64,
        },
        Start {
            name: "not_found",
            args: &["run", "--", "no-such-program"],
            code: 127,
        },
        Start {
            name: "missing",
            args: &["run", "--", "/no/such/program"],
            code: 127,
        },
        Start {
            name: "not_executable",
            args: &["run", "--", "/etc/passwd"],
            code: 126,
        },
        Start {
            name: "directory",
            args: &["run", "--", "/etc"],
            code: 126,
        },
        Start {
            name: "no_page",
            args: &["man", "walk"],
            code: 64,
        },
    ] {
        let output = steadfast(args);
        assert_eq!(output.status.code(), Some(code), "{name}: {}", err(&output));
        assert_eq!(out(&output), "", "{name}");
        insta::assert_snapshot!(format!("wrong_{name}"), err(&output));
    }
}

#[test]
fn help_is_a_result() {
    for (name, args) in [
        ("help", &["--help"][..]),
        ("help_run", &["run", "--help"]),
        ("help_run_short", &["run", "-h"]),
        ("help_check", &["check", "--help"]),
        ("man", &["man"]),
        ("man_run", &["man", "run"]),
        ("man_check", &["man", "check"]),
        ("help_inject", &["inject", "--help"]),
        ("man_inject", &["man", "inject"]),
        ("man_inject_gate", &["man", "inject-gate"]),
    ] {
        let output = steadfast(args);
        assert_eq!(
            (output.status.code(), err(&output).as_str()),
            (Some(0), ""),
            "{name}"
        );
        insta::assert_snapshot!(
            name,
            out(&output).replace(env!("CARGO_PKG_VERSION"), "VERSION")
        );
    }
    let version = steadfast(&["--version"]);
    assert_eq!(
        out(&version),
        concat!("steadfast ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn completions_know_the_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = steadfast(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        assert!(out(&output).contains("on-mismatch"), "{shell}");
    }
}

#[test]
fn a_closed_stderr_loses_the_text_and_keeps_the_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
    command
        .args(["run", "--", "/no/such/program"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = command.stderr(writer).status().expect("the command starts");
    assert_eq!(status.code(), Some(127));
    assert_eq!(status.signal(), None);
}

#[test]
fn argv0_does_not_matter() {
    let status = Command::new(env!("CARGO_BIN_EXE_steadfast"))
        .arg0("other")
        .arg("--version")
        .output();
    assert_eq!(
        out(&status.expect("the command starts")),
        concat!("steadfast ", env!("CARGO_PKG_VERSION"), "\n")
    );
}
