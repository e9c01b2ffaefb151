//! `--keep`: the host is killed (SIGKILL), and counts, files and handles go on in the next one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value as Json;

use crate::listen::{SHOP, ask, connect};
use crate::operations::{Service, free, status, until};
use crate::{HOST, Refused, components, err, host, written};

/// A lock that the script makes and takes, and a task that asks for it.
const LOCK: &str = r#"
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

[[task]]
name = "reader"
to = "lock"
function = "steadfast:lock/locks@0.1.0#[method]lock.holder"
args = ["$a"]
period_us = 5000
"#;

/// A service beneath whoever starts its host again.
struct Kept {
    service: Service,
    socket: PathBuf,
    events: PathBuf,
    /// Hosts so far.
    hosts: Vec<String>,
}

impl Kept {
    fn start(name: &str, app: &str, keep: &str) -> Self {
        let file = |ending: &str| components().join(format!("{name}.{ending}"));
        let (socket, events) = (file("sock"), file("jsonl"));
        let _ = std::fs::remove_file(&events);
        let mut command = match keep {
            "manager" => {
                let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
                let mut manager = Command::new("python3");
                manager.arg(cases.join("manager.py")).arg(HOST);
                manager
            }
            _ => Command::new(HOST),
        };
        command.arg("run").arg(written(name, app));
        command.args(["--keep", keep, "--control"]).arg(&socket);
        command.arg("--events").arg(&events);
        Self {
            service: Service::of(command),
            socket,
            events,
            hosts: Vec::new(),
        }
    }

    /// The host that runs, another one than before.
    fn host(&mut self) -> String {
        let parent = self.service.pid();
        let children = format!("/proc/{parent}/task/{parent}/children");
        let host = until("another host", || {
            let children = std::fs::read_to_string(&children).ok()?;
            let child = children.split_whitespace().next()?.to_owned();
            (!self.hosts.contains(&child)).then_some(child)
        });
        self.hosts.push(host.clone());
        host
    }

    fn kill(&mut self) {
        let host = self.host();
        let killed = Command::new("kill").args(["-KILL", &host]).status();
        assert!(killed.expect("it runs").success());
        // Its port answers for as long as it has one.
        let proc = PathBuf::from(format!("/proc/{host}"));
        until("its end", || (!proc.exists()).then_some(()));
    }

    /// What each host said of the objects of the one before.
    fn restored(&self) -> Vec<bool> {
        let events = std::fs::read_to_string(&self.events).expect("written");
        let events = events
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"));
        let kept = events.filter(|event: &Json| event["type"] == "host_kept");
        kept.map(|event| event["restored"] == true).collect()
    }
}

/// A count in the key-value store, and a lock: each host gives the next number, and the task never fails.
fn counts_go_on(keep: &str) -> Output {
    let address = free();
    let shop = SHOP.replace("ADDRESS", &address);
    let mut kept = Kept::start(&format!("keep-{keep}"), &format!("{shop}{LOCK}"), keep);
    let post = "POST /count/n HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    for count in 1..=6 {
        let mut client = connect(&address);
        assert!(ask(&mut client, post, 1).ends_with(&format!("\r\n\r\n{count}")));
        if count % 2 == 0 {
            kept.kill();
        }
    }
    let seen = until("jobs", || {
        let seen = status(&kept.socket);
        (seen["tasks"][0]["jobs"].as_u64() > Some(3)).then_some(seen)
    });
    assert_eq!(seen["tasks"][0]["failed"], 0, "{seen:#}");
    let lock = seen["components"].as_array().expect("all").iter();
    let lock = lock
        .clone()
        .find(|of| of["component"] == "lock")
        .expect("one");
    assert_eq!(
        (&lock["objects"], &lock["kept"]),
        (&1.into(), &"yes".into())
    );
    assert_eq!(lock["rebuilt"], 1, "{seen:#}");
    assert_eq!(kept.restored(), [false, true, true, true]);
    kept.service.end()
}

#[test]
fn counts_and_locks_outlive_a_host_that_is_killed() {
    let ended = counts_go_on("own");
    assert!(ended.status.success(), "{}", err(&ended));
    let told = "was killed by signal 9 and starts again in 100 ms";
    assert!(err(&ended).contains(told), "{}", err(&ended));
}

#[test]
fn a_service_manager_holds_them_as_well() {
    let ended = counts_go_on("manager");
    assert!(ended.status.success(), "{}", err(&ended));
}

/// A component process, a host, and then hosts again and again: each step up the tiers, to the last.
#[test]
fn a_host_that_is_killed_too_often_is_given_up() {
    let mut kept = Kept::start("keep-often", LOCK, "own");
    for _ in 0..6 {
        kept.kill();
    }
    until("the end", || kept.service.has_ended().then_some(()));
    let ended = kept.service.output();
    assert_eq!(ended.status.code(), Some(137), "{}", err(&ended));
    let told = err(&ended);
    assert!(told.contains("starts again in 1600 ms"), "{told}");
    assert!(told.contains("6 times in 60 s; given up"), "{told}");
}

#[test]
fn an_end_that_was_asked_for_and_a_refusal_are_passed_through() {
    let output = host("run", "keep-ends", LOCK, &["--keep", "own", "--for", "0"]);
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(err(&output), "");
    let wrong = LOCK.replace("expect = true", "expect = false");
    let output = host("run", "keep-differs", &wrong, &["--keep", "own"]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let named = LOCK.replace(
        "[component.lock]",
        "[component.\"a lock\"]\nimage = \"lock.cwasm\"",
    );
    let named = named.replace("to = \"lock\"", "to = \"a lock\"");
    let manager = |environment: &[(&str, &str)]| {
        let mut command = Command::new(HOST);
        command.arg("run").arg(written("keep-refused", LOCK));
        command
            .args(["--keep", "manager"])
            .envs(environment.iter().copied());
        command.output().expect("it runs")
    };
    Refused::by(&host("run", "keep-name", &named, &["--keep", "own"]))
        .says("found a lock")
        .fix("another name");
    Refused::by(&manager(&[("NOTIFY_SOCKET", "")]))
        .says("NOTIFY_SOCKET names none")
        .fix("--keep=own");
    Refused::by(&manager(&[
        ("NOTIFY_SOCKET", "/dev/null"),
        ("FDSTORE", "3"),
    ]))
    .says("NOTIFY_SOCKET names none")
    .fix("Type=notify");
    // Room for one component alone, and the script needs some.
    let mut command = Command::new("python3");
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    command.arg(cases.join("manager.py")).arg(HOST).arg("run");
    command
        .arg(written("keep-room", LOCK))
        .args(["--keep", "manager"]);
    let output = command.env("FDSTORE", "3").output().expect("it runs");
    assert_eq!(output.status.code(), Some(121), "{}", err(&output));
    assert!(
        err(&output).contains("FileDescriptorStoreMax=4"),
        "{}",
        err(&output)
    );
}
