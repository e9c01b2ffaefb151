//! Groups of real processes: clients over sockets, bits that flip in stored objects, replicas that die.
//!
//! Invariants
//!  1. What a client is answered is judged by the reference model of memcached's commands, or by what it has stored itself.
//!  2. A group that a test has started ends with it.

#![allow(
    clippy::print_stderr,
    reason = "what a group said is told where a test fails"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;
use steadfast_envelope::client::{Connection, hello};
use steadfast_envelope::stream::{Sealer, Sender};
use steadfast_workloads::replay::memcached;

#[path = "group/answers.rs"]
mod answers;
#[path = "group/backup.rs"]
mod backup;
#[path = "group/clients.rs"]
mod clients;
#[path = "group/disk.rs"]
mod disk;
#[path = "group/false_alarm.rs"]
mod false_alarm;
#[path = "group/history.rs"]
mod history;
#[path = "group/local.rs"]
mod local;
#[path = "group/look.rs"]
mod look;
#[path = "group/messages.rs"]
mod messages;
#[path = "group/once.rs"]
mod once;
#[path = "group/reads.rs"]
mod reads;
#[path = "group/recovery.rs"]
mod recovery;
#[path = "group/serve.rs"]
mod serve;
#[path = "group/slow.rs"]
mod slow;
#[path = "group/strikes.rs"]
mod strikes;
#[path = "group/suite.rs"]
mod suite;
#[path = "group/threads.rs"]
mod threads;
#[path = "group/tls.rs"]
mod tls;
#[path = "group/tools.rs"]
mod tools;
#[path = "group/two.rs"]
mod two;

/// Machines that run these are busy with others of them.
const PATIENCE: Duration = Duration::from_secs(60);

struct Group {
    child: Child,
    clients: Vec<SocketAddr>,
    pids: Vec<u32>,
    events: mpsc::Receiver<Value>,
}

fn kv() -> Command {
    Command::new(env!("CARGO_BIN_EXE_steadfast-kv"))
}

impl Group {
    fn start(more: &[&str]) -> Self {
        Self::of(&mut kv(), more)
    }

    /// Of this program.
    fn of(program: &mut Command, more: &[&str]) -> Self {
        let mut child = program
            .args(["--local", "3", "--port", "0", "--json", "--allow-strikes"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, events) = mpsc::channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = send.send(news(&line).unwrap_or_else(Value::String));
            }
        });
        let ready = events
            .recv_timeout(PATIENCE)
            .expect("the group becomes ready");
        assert_eq!(ready["event"], "ready", "{ready}");
        let clients = list(&ready["clients"], |v| v.as_str()?.parse().ok());
        let pids = list(&ready["pids"], |v| v.as_u64()?.try_into().ok());
        Self {
            child,
            clients,
            pids,
            events,
        }
    }

    fn connect(&self, replica: usize) -> Line {
        Line::to(self.clients[replica])
    }

    fn strike(&self, line: &str) -> Output {
        let at = self.clients[0].to_string();
        kv().args(["strike", "--at", &at, line]).output().unwrap()
    }

    /// The next event of that name.
    fn event(&self, name: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = self
                .events
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("no event '{name}'"));
            assert!(event.is_object(), "{event}");
            if event["event"] == name {
                return event;
            }
        }
    }

    fn status(&self, replica: usize) -> Value {
        let said = self.connect(replica).ask("sf status\r\n");
        serde_json::from_str(&said).unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let odd = self.events.try_iter().find(|event| !event.is_object());
            assert_eq!(odd, None, "all that a group prints are events");
        }
    }
}

/// An event, as the published schema has it; else the line, and what is wrong with it.
fn news(line: &str) -> Result<Value, String> {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let text = include_str!("../../../docs/kv-events.schema.json");
        jsonschema::validator_for(&serde_json::from_str(text).unwrap()).unwrap()
    });
    let event = serde_json::from_str(line).map_err(|why| format!("{line}: {why}"))?;
    match schema.validate(&event) {
        Ok(()) => Ok(event),
        Err(why) => Err(format!("{line}: {why}")),
    }
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| read(v).unwrap())
        .collect()
}

struct Line(BufReader<TcpStream>);

impl Line {
    fn to(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends, and reads one line.
    fn ask(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The value of a key, or the line that came instead.
    fn get(&mut self, key: &str) -> String {
        let head = self.ask(&format!("get {key}\r\n"));
        if !head.starts_with("VALUE") {
            return head.trim_end().to_owned();
        }
        let length: usize = head.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
        let mut rest = vec![0; length + 7];
        self.0.read_exact(&mut rest).unwrap();
        assert!(rest.ends_with(b"\r\nEND\r\n"));
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    fn set(&mut self, key: &str, value: &str) {
        let said = self.ask(&format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()));
        assert_eq!(said, "STORED\r\n");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_replica_that_begins_with_a_snapshot_votes_and_is_not_told_struck_bytes() {
    let group = Group::start(&["--snapshot-every", "100"]);
    let leader = usize::try_from(group.status(0)["leader"].as_u64().unwrap()).unwrap();
    let victim = (leader + 1) % 3;
    let third = (leader + 2) % 3;
    let mut line = group.connect(leader);
    line.set("cold", "precious");
    // Struck where the snapshot will come from; nobody asks for it before the victim has begun anew.
    assert!(
        group
            .strike(&format!("replica={leader} object=item:cold byte=0 bit=0"))
            .status
            .success()
    );
    for round in 0..400 {
        line.set(&format!("k{}", round % 7), &format!("value {round}"));
    }
    let killed = Command::new("kill")
        .args(["-9", &group.pids[victim].to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(group.event("replaced")["replica"], victim);
    let mut fresh = group.connect(victim);
    assert_eq!(fresh.get("k0"), "value 399");
    assert_eq!(group.status(victim)["joined"], "snapshot");
    // Two have lost it and one has it: the one that found nothing wrong with its own is right.
    assert_eq!(fresh.get("cold"), "precious");
    assert_eq!(line.get("cold"), "precious");
    let repaired = [group.event("repaired"), group.event("repaired")];
    let mut who: Vec<u64> = repaired
        .iter()
        .map(|event| event["replica"].as_u64().unwrap())
        .collect();
    who.sort_unstable();
    let mut wanted = [leader as u64, victim as u64];
    wanted.sort_unstable();
    assert_eq!(who, wanted);
    assert!(
        group
            .strike(&format!("replica={third} object=item:cold byte=1 bit=1"))
            .status
            .success()
    );
    assert_eq!(group.connect(third).get("cold"), "precious");
    assert_eq!(group.event("repaired")["replica"], third);
}

#[test]
fn who_does_not_know_the_secret_changes_no_member_and_memory_has_a_limit() {
    let group = Group::start(&["--memory", "1", "--full", "refuse"]);
    let mut line = group.connect(0);
    for secret in ["0", &"f".repeat(32)] {
        let said = line.ask(&format!(
            "sf replace {secret} 1 999 127.0.0.1:1 127.0.0.1:1\r\n"
        ));
        assert!(
            said.starts_with("ERROR replace is for the parent"),
            "{said}"
        );
    }
    let value = "x".repeat(500_000);
    line.set("a", &value);
    line.set("b", &value);
    let said = line.ask(&format!("set c 0 0 {}\r\n{value}\r\n", value.len()));
    assert_eq!(said, "SERVER_ERROR out of memory storing object\r\n");
    assert_eq!(group.connect(2).get("b"), value);
    assert_eq!(group.connect(1).get("c"), "END");
}

#[test]
fn a_replica_that_is_killed_is_replaced_and_the_service_goes_on() {
    let group = Group::start(&[]);
    let leader = group.status(1)["leader"].as_u64().unwrap();
    for victim in [
        usize::try_from(leader).unwrap(),
        (usize::try_from(leader).unwrap() + 1) % 3,
    ] {
        let other = (victim + 1) % 3;
        group.connect(other).set("before", "one");
        let killed = Command::new("kill")
            .args(["-9", &group.pids[victim].to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        // Two of three go on; who led has to be found out anew.
        group.connect(other).set("during", "two");
        assert_eq!(group.event("replaced")["replica"], victim);
        // The fresh process answers at the same address, and knows what was stored before it began.
        let mut line = group.connect(victim);
        assert_eq!(line.get("before"), "one");
        assert_eq!(line.get("during"), "two");
        // And it takes part in votes: what is struck in another is outvoted with its voice.
        assert!(
            group
                .strike(&format!("replica={other} object=item:before byte=0 bit=0"))
                .status
                .success()
        );
        assert_eq!(group.connect(other).get("before"), "one");
        assert_eq!(group.event("repaired")["replica"], other);
    }
}

#[test]
fn replicas_end_with_their_parent() {
    let mut group = Group::start(&[]);
    group.child.kill().unwrap();
    group.child.wait().unwrap();
    let until = Instant::now() + PATIENCE;
    for pid in &group.pids {
        while std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| !stat.contains(") Z"))
        {
            assert!(Instant::now() < until, "{pid} still runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
