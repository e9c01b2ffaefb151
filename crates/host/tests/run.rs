//! `steadfast-host run` and `check`: applications that work, and each refusal with requirement, value found and fix.

#[path = "cases/analyse.rs"]
mod analyse;
#[path = "cases/bench.rs"]
mod bench;
#[path = "cases/campaign.rs"]
mod campaign;
#[path = "cases/container.rs"]
mod container;
#[path = "cases/demo.rs"]
mod demo;
#[path = "cases/generate.rs"]
mod generate;
#[path = "cases/keep.rs"]
mod keep;
#[path = "cases/listen.rs"]
mod listen;
#[path = "cases/operations.rs"]
mod operations;
#[path = "cases/rust.rs"]
mod rust;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use operations::{Service, status, until};

const HOST: &str = env!("CARGO_BIN_EXE_steadfast-host");

/// What a command says that was refused: requirement, value found and fix.
struct Refused(String);

impl Refused {
    #[track_caller]
    fn by(output: &Output) -> Self {
        let told = err(output);
        assert_eq!(output.status.code(), Some(121), "{told}");
        Self(told)
    }

    #[track_caller]
    fn says(self, what: &str) -> Self {
        assert!(self.0.contains(what), "{what} is missing in\n{}", self.0);
        self
    }

    #[track_caller]
    fn fix(self, fix: &str) {
        let line = self.0.lines().find(|line| line.starts_with("  fix:"));
        let is_there = line.is_some_and(|line| line.contains(fix));
        assert!(is_there, "{fix} is missing in\n{}", self.0);
    }
}

/// Components and their images, made once.
fn components() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host-components");
        let restart = Path::new(env!("CARGO_MANIFEST_DIR")).join("../restart");
        for (from, name) in [
            ("components", "lock"),
            ("components", "fs"),
            ("components", "probe"),
            ("components", "scheduler"),
            ("components", "memory"),
            ("components", "keyvalue"),
            ("components", "http"),
            ("tests/components", "client"),
            ("tests/components", "relock"),
            ("tests/components", "mark"),
            ("tests/components", "deep"),
            ("tests/components", "bottom"),
        ] {
            let status = Command::new(restart.join("components/build"))
                .arg("--from")
                .arg(restart.join(from))
                .args([&out, Path::new(name)])
                .status();
            assert!(status.expect("it runs").success(), "components/build");
            let file = |ending: &str| out.join(format!("{name}.{ending}"));
            let mut compile = Command::new(HOST);
            compile.arg("compile").arg(file("core.wasm"));
            compile.arg("--wit").arg(file("wit"));
            compile.arg("-o").arg(file("cwasm"));
            assert!(compile.status().expect("it runs").success(), "compile");
        }
        out
    })
}

fn written(name: &str, app: &str) -> PathBuf {
    let path = components().join(format!("{name}.toml"));
    std::fs::write(&path, app).expect("written");
    path
}

fn host(command: &str, name: &str, app: &str, more: &[&str]) -> Output {
    let path = written(name, app);
    let mut host = Command::new(HOST);
    host.arg(command).arg(path).args(more);
    host.output().expect("it runs")
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const APP: &str = r#"
[component.lock]
dual = true

[component.client]

[[edge]]
from = "client"
to = "lock"

[run]
component = "client"
function = "test:client/main@0.1.0#run"
"#;

#[test]
fn a_client_component_works_with_another_one_and_prints() {
    let events = components().join("works.jsonl");
    let more = ["--events", events.to_str().expect("a path")];
    let output = host("run", "works", APP, &more);
    assert!(output.status.success(), "{}", err(&output));
    let line = "client: at work\n";
    assert_eq!(out(&output), format!("{line}{line}{line}client: done\n"));
    assert_eq!(err(&output), "");
    let events = std::fs::read_to_string(events).expect("written");
    let kinds: Vec<_> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        ["host_start", "component_end", "component_end", "host_end"]
    );
}

#[test]
fn an_edge_says_what_becomes_of_what_is_held_there() {
    let held = |word: &str| {
        APP.replace(
            "to = \"lock\"",
            &format!("to = \"lock\"\nheld = \"{word}\""),
        )
    };
    for word in ["keep", "release"] {
        let output = host("run", "held", &held(word), &[]);
        assert!(output.status.success(), "{}", err(&output));
    }
    let refused = host("check", "held", &held("forget"), &[]);
    assert!(err(&refused).contains("forget"), "{}", err(&refused));
    let script = held("keep").replace("from = \"client\"", "from = \"script\"");
    let refused = host("check", "held", &script, &[]);
    assert!(!refused.status.success());
    assert!(
        err(&refused).contains("a component that may fail"),
        "{}",
        err(&refused)
    );
}

/// Two objects of the script, of which a task uses one, and three that another component holds. Which of them are there after a failure says
/// whose edge is eager; at last each is used, and comes back once.
#[test]
fn an_eager_edge_brings_its_own_objects_back_at_once() {
    // What the script gives no name is given back.
    let call = |to: &str, function: &str, more: &str, name: &str| {
        format!("[[call]]\nto = \"{to}\"\nfunction = \"{function}\"\n{more}as = \"{name}\"\n")
    };
    let locks = ["a", "b"].map(|name| {
        call(
            "lock",
            "steadfast:lock/locks@0.1.0#[constructor]lock",
            "",
            name,
        )
    });
    let sessions = ["r", "s", "t"].map(|name| {
        call(
            "client",
            "test:client/main@0.1.0#[constructor]session",
            "args = [9]\n",
            name,
        )
    });
    let calls = locks.concat() + &sessions.concat();
    for (eager, back) in [(None, 1), (Some("script"), 2), (Some("client"), 1 + 3)] {
        let edge = |from: &str, to: &str| {
            let eager = eager == Some(from) && to == "lock";
            format!("[[edge]]\nfrom = \"{from}\"\nto = \"{to}\"\neager = {eager}\n")
        };
        let edges = edge("client", "lock") + &edge("script", "lock") + &edge("script", "client");
        let task = r#"
            [[task]]
            name = "reader"
            to = "lock"
            function = "steadfast:lock/locks@0.1.0#[method]lock.holder"
            args = ["$a"]
            period_us = 5000
        "#;
        let app = format!("[component.lock]\n[component.client]\n{edges}{calls}{task}");
        let socket = components().join("eager.sock");
        let more = ["--control", socket.to_str().expect("a path")];
        let service = Service::start("eager", &app, &more, &[]);
        let seen = || {
            let all = status(&socket)["components"].clone();
            let lock = all.as_array().into_iter().flatten();
            lock.clone().find(|of| of["component"] == "lock").cloned()
        };
        let before = until("all objects", || seen().filter(|of| of["objects"] == 5));
        assert_eq!(before["rebuilt"], 0, "{before:#}");
        let pid = before["processes"][0].to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.expect("it runs").success());
        let after = until("the next job", || {
            seen().filter(|of| of["resets_total"] == 1 && of["rebuilt"] != 0)
        });
        assert_eq!(after["rebuilt"], back, "{eager:?}: {after:#}");
        let ended = service.end();
        assert!(ended.status.success(), "{}", err(&ended));
    }
}

/// Eight components in one process, each with its stack nearly full when it calls the next one: the thread of a task has room for all.
#[test]
fn a_task_has_stack_for_all_components_of_a_call() {
    const DEEP: usize = 7;
    let mut app = String::from("[component.c7]\nimage = \"bottom.cwasm\"\nprocess = false\n");
    for n in 0..DEEP {
        app +=
            &format!("[component.c{n}]\nimage = \"deep.cwasm\"\nprocess = false\ncall_ms = 2000\n");
        app += &format!("[[edge]]\nfrom = \"c{n}\"\nto = \"c{}\"\n", n + 1);
    }
    app += "[[edge]]\nfrom = \"script\"\nto = \"c0\"\n";
    app += "[[task]]\nname = \"deep\"\nto = \"c0\"\nfunction = \"test:deep/chain@0.1.0#go\"\nargs = [12000]\nperiod_us = 500000\n";
    let output = host("run", "deep", &app, &["--for", "1"]);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(err(&output), "");
    // More than wasmtime gives one component is a failure of that one, and the host lives.
    let output = host(
        "run",
        "deeper",
        &app.replace("[12000]", "[1000000]"),
        &["--for", "1"],
    );
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("c0 failed"), "{}", err(&output));
    assert!(!err(&output).contains("c1 failed"), "{}", err(&output));
}

const SCRIPT: &str = r#"
[component.lock]

[[edge]]
from = "script"
to = "lock"

[[call]]
to = "lock"
function = "steadfast:lock/locks@0.1.0#[constructor]lock"
as = "a"

[[call]]
to = "lock"
function = "steadfast:lock/locks@0.1.0#[method]lock.take"
args = ["$a", 7]
expect = true

[[call]]
to = "lock"
function = "steadfast:lock/locks@0.1.0#[method]lock.holder"
args = ["$a"]
expect = 7
"#;

#[test]
fn a_call_that_blocks_waits_for_its_time_and_wait_ms_of_another_one_is_refused() {
    let call = |function: &str, more: &str| {
        format!(
            "{SCRIPT}\n[[call]]\nto = \"lock\"\nfunction = \"steadfast:lock/locks@0.1.0#[method]lock.{function}\"\n{more}\nwait_ms = 5\n"
        )
    };
    struct Row {
        app: String,
        status: i32,
        told: &'static str,
    }
    for Row { app, status, told } in [
        Row {
            app: call("take", "args = [\"$a\", 7]"),
            status: 0,
            told: "",
        },
        Row {
            app: call("take", "args = [\"$a\", 8]"),
            status: 1,
            told: "did not get what it waits for in 5 ms",
        },
        Row {
            app: call("holder", "args = [\"$a\"]"),
            status: 121,
            told: "wait_ms needs a function that blocks",
        },
    ] {
        let output = host("run", "waits", &app, &[]);
        assert_eq!(output.status.code(), Some(status), "{}", err(&output));
        assert!(err(&output).contains(told), "{}", err(&output));
    }
}

#[test]
fn a_component_reads_the_time_of_day() {
    let app = "[component.mark]\ndual = true\ncompare_every = 1\n\n[[edge]]\nfrom = \"script\"\nto = \"mark\"\n\n\
               [[call]]\nto = \"mark\"\nfunction = \"test:mark/marks@0.1.0#now\"\n";
    let output = host("run", "clock", app, &[]);
    assert!(output.status.success(), "{}", err(&output));
    // { ..., "seconds": 1790000000 }: far behind 1970, as the machine's clock.
    let told = out(&output);
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).count();
    let seconds = told.split("seconds").last().map(digits);
    assert!(seconds.is_some_and(|n| n >= 10), "{told}");
}

#[test]
fn a_script_calls_and_says_what_is_not_as_it_must_be() {
    let output = host("run", "script", SCRIPT, &[]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(out(&output).ends_with("lock.holder: 7\n"));
    let output = host("run", "no-pad", SCRIPT, &["--no-pad"]);
    assert!(output.status.success(), "{}", err(&output));
    let output = host(
        "run",
        "differs",
        &SCRIPT.replace("expect = 7", "expect = 8"),
        &[],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("must return 8, found 7"));
}

#[test]
fn a_component_that_fails_is_an_event_and_an_error_of_its_caller() {
    let app = APP.replace("#run\"", "#crash\"");
    let events = components().join("crash.jsonl");
    let output = host(
        "run",
        "crash",
        &app,
        &["--events", events.to_str().expect("a path")],
    );
    assert_eq!(output.status.code(), Some(121));
    assert_eq!(out(&output), "client: about to crash\n");
    assert!(
        err(&output).contains("failed 4 times in a row"),
        "{}",
        err(&output)
    );
    let events = std::fs::read_to_string(events).expect("written");
    let resets = events
        .lines()
        .filter(|line| line.contains("component_reset"));
    let resets: Vec<_> = resets.collect();
    assert_eq!(resets.len(), 4);
    assert!(
        resets
            .iter()
            .all(|line| line.contains("\"cause\":\"trap\""))
    );
}

#[test]
fn what_would_not_start_is_refused_by_name_and_what_would_is_not() {
    let output = host("check", "good", APP, &[]);
    assert!(output.status.success(), "{}", err(&output));
    assert!(out(&output).contains("client: 8 functions, starts"));
    let without_edge = APP.replace("[[edge]]\nfrom = \"client\"\nto = \"lock\"\n", "");
    let back = "[[edge]]\nfrom = \"lock\"\nto = \"client\"\n";
    let refused = |app: &str| Refused::by(&host("check", "refused", app, &[]));
    refused(&without_edge)
        .says("needs an import")
        .fix("[[edge]]");
    refused(&format!("{APP}{back}"))
        .says("found a cycle among client, lock")
        .fix("third component");
    refused(&APP.replace("to = \"lock\"", "to = \"disk\""))
        .says("to = \"disk\", which is no component")
        .fix("one of client, lock");
    refused(&APP.replace("to = \"lock\"", "to = \"lock\"\nallow = [\"x\"]"))
        .says("has no function x")
        .fix("--explain");
    refused(&APP.replace("#run\"", "#walk\""))
        .says("has no function")
        .fix("--explain");
    refused(&APP.replace("#run\"", "#talk\""))
        .says("without parameters")
        .fix("run: func() -> result");
    refused(&APP.replace("dual = true", "memory_mib = 0"))
        .says("the limit is 0")
        .fix("memory_mib");
    refused(&APP.replace("dual = true", "dul = true"))
        .says("is not valid")
        .fix("docs/reference/host.md");
    refused(&format!("{APP}[component.disk]\n"))
        .says("disk.cwasm, which does not exist")
        .fix("steadfast host compile");
    refused(&SCRIPT.replace("from = \"script\"", "from = \"lock\""))
        .says("cycle")
        .fix("third component");
    refused(
        &SCRIPT
            .replace("[component.lock]\n", "[component.lock]\nprocess = true\n")
            .replace(
                "to = \"lock\"\n\n",
                "to = \"lock\"\ntransport = \"direct\"\n\n",
            ),
    )
    .says("needs transport = \"direct\", found process = true at lock")
    .fix("process = false at [component.lock]");
    refused(&reached("process", "direct")).says("from script to lock needs transport = \"direct\", the one from client needs \"process\"").fix("image = \"lock.cwasm\"");
    refused(
        &SCRIPT
            .replace("[component.lock]\n", "[component.lock]\nprocess = false\n")
            .replace(
                "to = \"lock\"\n\n",
                "to = \"lock\"\ntransport = \"process\"\n\n",
            ),
    )
    .says("needs transport = \"process\", found process = false at lock")
    .fix("process = true at [component.lock]");
    refused(&SCRIPT.replace("[[edge]]\nfrom = \"script\"\nto = \"lock\"\n", ""))
        .says("no edge leads there")
        .fix("from = \"script\"");
    refused(&SCRIPT.replace("args = [\"$a\"]", "args = []"))
        .says("takes 1 arguments, found 0")
        .fix("args");
    refused("[component.lock]\n")
        .says("nobody makes the first call")
        .fix("[run]");
}

/// The client and the script both call the lock, each by the transport that its edge names.
fn reached(client: &str, script: &str) -> String {
    let edge = |from: &str, transport: &str| {
        format!("[[edge]]\nfrom = \"{from}\"\nto = \"lock\"\ntransport = \"{transport}\"\n")
    };
    let make =
        "[[call]]\nto = \"lock\"\nfunction = \"steadfast:lock/locks@0.1.0#[constructor]lock\"\n";
    let run = "[run]\ncomponent = \"client\"\nfunction = \"test:client/main@0.1.0#run\"\n";
    format!(
        "[component.lock]\n[component.client]\n{}{}{make}{run}",
        edge("client", client),
        edge("script", script)
    )
}

#[test]
fn an_edge_chooses_its_transport_and_that_is_where_the_component_runs() {
    let own = "starts in a process of its own";
    let here = "starts in the host's process";
    let agreed = |word: &str| reached(word, word);
    // One edge speaks, the other one says nothing.
    let alone = agreed("direct").replacen("transport = \"direct\"\n", "", 1);
    for (app, place) in [
        (agreed("process"), own),
        (agreed("direct"), here),
        (alone, here),
    ] {
        let output = host("check", "transport", &app, &[]);
        assert!(output.status.success(), "{}", err(&output));
        let told = out(&output);
        assert!(
            told.contains(&format!("lock: 4 functions, {place}")),
            "{told}"
        );
        // Nobody said it of the client.
        assert!(
            told.contains(&format!("client: 8 functions, {own}")),
            "{told}"
        );
        let output = host("run", "transport", &app, &[]);
        assert!(output.status.success(), "{}", err(&output));
    }
    // Both of them: two components of one image, whose objects are their own.
    let both = SCRIPT.replace(
        "[component.lock]",
        "[component.lock]\n[component.near]\nimage = \"lock.cwasm\"",
    ) + "[[edge]]\nfrom = \"script\"\nto = \"near\"\ntransport = \"direct\"\n";
    let output = host("check", "transports", &both, &[]);
    let told = out(&output);
    assert!(
        told.contains(&format!("lock: 4 functions, {own}")),
        "{told}"
    );
    assert!(
        told.contains(&format!("near: 4 functions, {here}")),
        "{told}"
    );
}

#[test]
fn a_sidecar_that_lacks_a_method_is_refused() {
    let folder = components().join("lacks");
    std::fs::create_dir_all(&folder).expect("made");
    for ending in ["cwasm", "wit"] {
        let name = format!("lock.{ending}");
        std::fs::copy(components().join(&name), folder.join(&name)).expect("copied");
    }
    std::fs::write(folder.join("lock.recover.toml"), "").expect("written");
    let app = SCRIPT.replace(
        "[component.lock]",
        "[component.lock]\nimage = \"lacks/lock.cwasm\"",
    );
    let output = host("check", "lacks", &app, &[]);
    assert_eq!(output.status.code(), Some(121));
    assert!(
        err(&output).contains("does not say what it does"),
        "{}",
        err(&output)
    );
}
