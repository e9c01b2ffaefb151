//! What whoever runs an application has of it: dumps of failures, files for what components print.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::{APP, HOST, Refused, components, err, host, out, written};

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

/// Two tasks beside each other, with an object that the script has made.
const TASKS: &str = r#"
[component.lock]

[[edge]]
from = "script"
to = "lock"

[[call]]
to = "lock"
function = "steadfast:lock/locks@0.1.0#[constructor]lock"
as = "a"

[[task]]
name = "taker"
to = "lock"
function = "steadfast:lock/locks@0.1.0#[method]lock.take"
args = ["$a", 7]
period_us = 2000

[[task]]
name = "reader"
to = "lock"
function = "steadfast:lock/locks@0.1.0#[method]lock.holder"
args = ["$a"]
period_us = 5000
"#;

/// An application that runs until it is told to end; killed where a test fails first.
pub(crate) struct Service(Child);

impl Service {
    pub(crate) fn start(
        name: &str,
        app: &str,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut host = Command::new(HOST);
        host.arg("run").arg(written(name, app)).args(more);
        host.envs(environment.iter().copied());
        Self::of(host)
    }

    pub(crate) fn of(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("it starts"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_some()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.0.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("it runs").success());
    }

    /// Asks it to end, and waits.
    pub(crate) fn end(self) -> Output {
        self.signal("-TERM");
        self.output()
    }

    /// Waits for its end.
    pub(crate) fn output(mut self) -> Output {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let streams = (self.0.stdout.take(), self.0.stderr.take());
        streams
            .0
            .expect("piped")
            .read_to_end(&mut out)
            .expect("read");
        streams
            .1
            .expect("piped")
            .read_to_end(&mut err)
            .expect("read");
        Output {
            status: self.0.wait().expect("it ends"),
            stdout: out,
            stderr: err,
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries for as long as any machine takes.
pub(crate) fn until<T>(what: &str, mut tried: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    while Instant::now() < end {
        if let Some(found) = tried() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}: nothing came within 30 s");
}

/// Its status, as soon as it answers.
pub(crate) fn status(socket: &Path) -> Json {
    until("a status", || {
        let mut top = Command::new(HOST);
        top.arg("top").arg(socket).args(["--json", "--count", "1"]);
        let output = top.output().expect("it runs");
        output
            .status
            .success()
            .then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
    })
}

fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A port that nobody listens at.
pub(crate) fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn tasks_run_and_whoever_asks_is_told_how() {
    let (socket, address) = (components().join("tasks.sock"), free());
    let name = format!("steadfast-host-{}", std::process::id());
    let manager = SocketAddr::from_abstract_name(&name).expect("a name");
    let manager = UnixDatagram::bind_addr(&manager).expect("a socket");
    let told = ("NOTIFY_SOCKET", format!("@{name}"));
    let more = ["--control", text(&socket), "--http", &address];
    let environment = [(told.0, &*told.1), ("WATCHDOG_USEC", "400000")];
    let service = Service::start("tasks", TASKS, &more, &environment);
    let jobs = |status: &Json, task: usize| status["tasks"][task]["jobs"].as_u64().unwrap_or(0);
    let seen = until("jobs", || {
        let seen = status(&socket);
        (jobs(&seen, 0) > 20 && jobs(&seen, 1) > 20).then_some(seen)
    });
    assert_eq!(seen["state"], "serving");
    let lock = &seen["components"][0];
    assert_eq!(
        (&lock["component"], &lock["objects"]),
        (&"lock".into(), &1.into())
    );
    let mut heard = String::new();
    until("all that the manager is to hear", || {
        let mut bytes = [0; 200];
        let n = manager.recv(&mut bytes).expect("told");
        heard += &String::from_utf8_lossy(&bytes[..n]);
        let wanted = ["READY=1\n", "STATUS=serving\n", "WATCHDOG=1\n"];
        wanted.iter().all(|line| heard.contains(line)).then_some(())
    });
    let metrics = get(&address, "/metrics").expect("an answer");
    assert!(
        metrics.contains("steadfast_host_objects{component=\"lock\"} 1\n"),
        "{metrics}"
    );
    assert!(metrics.contains("steadfast_host_task_failed_total{task=\"reader\"} 0\n"));
    for path in ["/healthz", "/readyz"] {
        assert!(
            get(&address, path)
                .expect("an answer")
                .starts_with("HTTP/1.1 200")
        );
    }
    let mut top = Command::new(HOST);
    top.arg("top")
        .arg(&socket)
        .args(["--count", "2", "--interval", "0.2"]);
    let shown = out(&top.output().expect("it runs"));
    assert!(
        shown.matches("taker").count() == 2 && shown.contains("calls/s"),
        "{shown}"
    );
    let ended = service.end();
    assert!(ended.status.success(), "{}", err(&ended));
    assert!(!socket.exists(), "taken away at the end");
}

#[test]
fn a_component_that_rests_is_not_ready_and_a_call_that_fails_is_counted() {
    let (socket, address) = (components().join("rests.sock"), free());
    // Each job fails; so does each release of the second task, with the component at rest.
    let app = r#"
        [component.probe]
        resets_max = 2
        rest_ms = 60000
        [[edge]]
        from = "script"
        to = "probe"
        [[task]]
        name = "trap"
        to = "probe"
        function = "steadfast:probe/probe@0.1.0#trap"
        period_us = 10000
    "#;
    let more = ["--control", text(&socket), "--http", &address];
    let service = Service::start("rests", app, &more, &[]);
    until("the rest", || {
        let ready = get(&address, "/readyz")?;
        ready.contains("a component rests").then_some(())
    });
    let seen = status(&socket);
    assert_eq!(seen["components"][0]["state"], "rests");
    assert_eq!(
        seen["components"][0]["resets"],
        serde_json::json!({"trap": 3})
    );
    assert!(
        get(&address, "/healthz")
            .expect("an answer")
            .starts_with("HTTP/1.1 200")
    );
    let ended = service.end();
    assert_eq!(ended.status.code(), Some(1), "{}", err(&ended));
    assert!(err(&ended).contains("jobs failed"), "{}", err(&ended));
}

#[test]
fn a_host_that_stands_still_is_told_and_does_not_feed_the_watchdog() {
    let address = free();
    // Nobody reads what it prints: the host blocks in a call, where no hang breaker may reach.
    let app = r#"
        [component.lock]
        [component.client]
        [[edge]]
        from = "client"
        to = "lock"
        [[edge]]
        from = "script"
        to = "client"
        [[call]]
        to = "client"
        function = "test:client/main@0.1.0#talk"
        args = [60000]
    "#;
    let service = Service::start(
        "still",
        app,
        &["--http", &address, "--hung-after", "1"],
        &[],
    );
    until("the hang", || {
        let health = get(&address, "/healthz")?;
        health.starts_with("HTTP/1.1 503").then_some(())
    });
    assert!(
        get(&address, "/readyz")
            .expect("an answer")
            .contains("hung")
    );
    drop(service);
}

#[test]
fn what_top_and_control_need_is_told() {
    let socket = components().join("nobody.sock");
    let output = Command::new(HOST)
        .arg("top")
        .arg(&socket)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(121));
    assert!(
        err(&output).contains("--control SOCKET"),
        "{}",
        err(&output)
    );
    // Left by a host that was killed: taken over. A file that is no socket stays.
    drop(std::os::unix::net::UnixListener::bind(&socket));
    let good = host("run", "left", APP, &["--control", text(&socket)]);
    assert!(good.status.success(), "{}", err(&good));
    std::fs::write(&socket, "a file").expect("written");
    let refused = host("run", "left", APP, &["--control", text(&socket)]);
    assert_eq!(refused.status.code(), Some(121), "{}", err(&refused));
    assert_eq!(
        std::fs::read_to_string(&socket).expect("still there"),
        "a file"
    );
    std::fs::remove_file(&socket).expect("removed");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refused = host("run", "taken", APP, &["--http", &address]);
    assert_eq!(refused.status.code(), Some(121), "{}", err(&refused));
}

#[test]
fn a_task_whose_numbers_make_no_sense_is_refused() {
    let refused = |from: &str, to: &str| {
        let tasks = TASKS.replacen(from, to, 1);
        Refused::by(&host("check", "no-sense", &tasks, &[]))
    };
    refused("period_us = 2000", "period_us = 0")
        .says("needs a period")
        .fix("1 at least");
    refused("period_us = 2000", "period_us = 2000\ndeadline_us = 2001")
        .says("within its period")
        .fix("1 to period_us");
    refused("period_us = 2000", "period_us = 2000\npriority = 100")
        .says("from 1 to 99")
        .fix("highest first");
    refused("name = \"taker\"", "name = \"reader\"")
        .says("two tasks are called reader")
        .fix("another name");
    refused("args = [\"$a\", 7]", "args = [\"$a\"]")
        .says("takes 2 arguments, found 1")
        .fix("args");
}

fn upgrade(socket: &Path, component: &str, image: &str) -> Output {
    let mut upgrade = Command::new(HOST);
    upgrade.arg("upgrade").arg(socket).arg(component);
    upgrade.arg(components().join(image));
    upgrade.output().expect("it runs")
}

#[test]
fn a_version_takes_over_while_tasks_call_or_is_refused_with_the_reason() {
    let socket = components().join("upgrade.sock");
    let events = components().join("upgrade.jsonl");
    let more = ["--control", text(&socket), "--events", text(&events)];
    let service = Service::start("upgrade", TASKS, &more, &[]);
    let jobs = || status(&socket)["tasks"][1]["jobs"].as_u64().unwrap_or(0);
    until("jobs", || (jobs() > 5).then_some(()));
    for _ in 0..3 {
        let done = upgrade(&socket, "lock", "relock.cwasm");
        assert!(done.status.success(), "{}", err(&done));
        assert!(
            out(&done).starts_with("lock: 1 objects and 0 names came into"),
            "{}",
            out(&done)
        );
        let before = jobs();
        until("jobs of the new version", || {
            (jobs() > before + 5).then_some(())
        });
    }
    let refused = |component: &str, image: &str| Refused::by(&upgrade(&socket, component, image));
    refused("lock", "lock.cwasm")
        .says("it has no function steadfast:lock/locks@0.1.0#[method]lock.version")
        .fix("keeps functions");
    refused("lock", "fs.cwasm")
        .says("it has no interface")
        .fix("keeps functions");
    refused("disk", "lock.cwasm")
        .says("disk is no component")
        .fix("one of lock");
    refused("lock", "nothing.cwasm")
        .says("cannot be read")
        .fix("steadfast host compile");
    let seen = status(&socket);
    assert_eq!(seen["components"][0]["resets_total"], 0);
    let ended = service.end();
    assert!(ended.status.success(), "no job has failed: {}", err(&ended));
    let events = std::fs::read_to_string(events).expect("written");
    let upgrades = events
        .lines()
        .filter(|line| line.contains("component_upgrade"));
    assert_eq!(upgrades.count(), 6, "{events}");
}
