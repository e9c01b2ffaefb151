//! A component in Rust, where a compiler has the target `wasm32-unknown-unknown`; elsewhere its build says how to get one.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::operations::{Service, status, until};
use crate::{HOST, components, err, host, out};

/// Builds and compiles it with the first compiler that can. None where none can.
fn tally() -> Option<PathBuf> {
    let restart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../restart");
    let named = std::env::var("WASM_RUSTC").ok();
    let compilers = named
        .into_iter()
        .chain(["rustc".into(), "/usr/bin/rustc".into()]);
    let built = compilers.into_iter().any(|rustc| {
        let mut build = Command::new(restart.join("components/build"));
        build.arg("--from").arg(restart.join("examples"));
        build
            .arg(components())
            .arg("tally")
            .env("WASM_RUSTC", &rustc);
        let build = build.output().expect("it runs");
        let told = err(&build);
        let lacks = format!("{rustc} has no library for wasm32-unknown-unknown");
        if !build.status.success() {
            assert!(told.contains(&lacks), "{told}");
            assert!(
                told.contains("fix:   rustup target add wasm32-unknown-unknown"),
                "{told}"
            );
        }
        build.status.success()
    });
    let file = |ending: &str| components().join(format!("tally.{ending}"));
    built.then(|| {
        let mut compile = Command::new(HOST);
        compile.arg("compile").arg(file("core.wasm"));
        compile.arg("--wit").arg(file("wit"));
        compile.arg("-o").arg(file("cwasm"));
        assert!(compile.status().expect("it runs").success(), "compile");
        file("wit")
    })
}

const APP: &str = r#"
[component.tally]

[[edge]]
from = "script"
to = "tally"

[[call]]
to = "tally"
function = "steadfast:tally/tallies@0.1.0#[constructor]tally"
args = ["visits"]
as = "a"

[[call]]
to = "tally"
function = "steadfast:tally/tallies@0.1.0#[method]tally.add"
args = ["$a", 40]
expect = 40

[[call]]
to = "tally"
function = "steadfast:tally/tallies@0.1.0#[method]tally.add"
args = ["$a", 2]
expect = 42

[[call]]
to = "tally"
function = "steadfast:tally/tallies@0.1.0#[method]tally.name"
args = ["$a"]
expect = "visits"
"#;

const TASK: &str = r#"
[[task]]
name = "visitor"
to = "tally"
function = "steadfast:tally/tallies@0.1.0#[method]tally.add"
args = ["$a", 1]
period_us = 5000
"#;

#[test]
fn a_component_in_rust_comes_back_with_its_objects() {
    let Some(wit) = tally() else {
        return;
    };
    let mut generate = Command::new(HOST);
    generate.arg("generate").arg(&wit).arg("--test");
    let held = generate.output().expect("it runs");
    assert!(held.status.success(), "{}", err(&held));
    assert!(out(&held).contains("every answer is the one without a crash"));
    let output = host("run", "tally", APP, &[]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        out(&output).ends_with("tally.name: \"visits\"\n"),
        "{}",
        out(&output)
    );
    let socket = components().join("tally.sock");
    let more = ["--control", socket.to_str().expect("a path")];
    let service = Service::start("tally-task", &format!("{APP}{TASK}"), &more, &[]);
    let pid = until("its process", || {
        let pid = status(&socket)["components"][0]["processes"][0].as_u64();
        pid.map(|pid| pid.to_string())
    });
    let killed = Command::new("kill").args(["-KILL", &pid]).status();
    assert!(killed.expect("it runs").success());
    let seen = until("the next job", || {
        Some(status(&socket)).filter(|seen| seen["components"][0]["rebuilt"] == 1)
    });
    assert_eq!(seen["tasks"][0]["failed"], 0, "{seen:#}");
    let ended = service.end();
    assert!(ended.status.success(), "{}", err(&ended));
}
