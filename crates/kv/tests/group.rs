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
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use steadfast_integrity::envelope::client::{Connection, hello};
use steadfast_integrity::envelope::stream::{Sealer, Sender};
use steadfast_workloads::replay::memcached;

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
#[path = "group/tls.rs"]
mod tls;
#[path = "group/tools.rs"]
mod tools;

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
        let mut child = kv()
            .args(["--local", "3", "--port", "0", "--json", "--allow-strikes"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, events) = mpsc::channel();
        let out = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let _ = send.send(serde_json::from_str(&line).unwrap_or(Value::String(line)));
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
fn a_struck_object_is_outvoted_wherever_it_is_asked_for_and_repaired() {
    let group = Group::start(&[]);
    let value = "the quick brown fox jumps over the lazy dog";
    group.connect(0).set("a", value);
    for victim in 0..3 {
        // The victim itself is asked, and one that is right.
        for asked in [victim, (victim + 1) % 3] {
            let line = format!("replica={victim} object=item:a byte=2 bit=3");
            let struck = group.strike(&line);
            assert!(struck.status.success(), "{}", text(&struck.stderr));
            assert_eq!(group.connect(asked).get("a"), value, "asked {asked}");
            let event = group.event("repaired");
            let found = [
                "replica", "object", "field", "byte", "bit", "bits", "passive",
            ]
            .map(|name| event[name].clone());
            let wanted: [Value; 7] = [
                victim.into(),
                "item:a".into(),
                "value".into(),
                2.into(),
                3.into(),
                1.into(),
                true.into(),
            ];
            assert_eq!(found, wanted, "{event}");
            assert!(event["took_us"].as_u64().unwrap() > 0, "{event}");
        }
    }
}

#[test]
fn an_object_is_right_after_it_was_struck_in_every_field() {
    let group = Group::start(&[]);
    for (number, field) in ["value", "key", "flags", "expires", "cas", "'value length'"]
        .iter()
        .enumerate()
    {
        let name = format!("k{number}");
        let mut line = group.connect(1);
        line.set(&name, "value");
        let field = field.trim_matches('\'');
        if field == "value length" {
            continue;
        }
        let struck = group.strike(&format!(
            "replica=2 object=item:{name} field={field} byte=0 bit=1"
        ));
        assert!(struck.status.success(), "{}", text(&struck.stderr));
        assert_eq!(group.connect(2).get(&name), "value", "{field}");
        assert_eq!(group.event("repaired")["field"], field);
    }
}

#[test]
fn without_a_vote_the_same_strike_reaches_the_client_and_with_digests_alone_it_is_an_error() {
    let line = "replica=1 object=item:a byte=2 bit=3";
    let plain = Group::start(&["--stage", "RD"]);
    plain.connect(0).set("a", "hello");
    assert!(plain.strike(line).status.success());
    assert_eq!(plain.connect(1).get("a"), "hedlo");
    let guarded = Group::start(&["--stage", "RDG"]);
    guarded.connect(0).set("a", "hello");
    assert!(guarded.strike(line).status.success());
    assert_eq!(
        guarded.connect(1).get("a"),
        "SERVER_ERROR an object does not fit its digest"
    );
    assert_eq!(guarded.event("corrupt")["object"], "item:a");
    // Nor does it reach the client beside another request for the same object, or by way of a change.
    let mut line = guarded.connect(1);
    line.send(b"get a\r\nappend a 0 0 1\r\n!\r\nget a\r\nset a 0 0 3\r\nnew\r\nget a\r\n");
    let refused = "SERVER_ERROR an object does not fit its digest\r\n";
    let wanted = format!("{refused}{refused}{refused}STORED\r\nVALUE a 0 3\r\nnew\r\nEND\r\n");
    let mut said = vec![0; wanted.len()];
    line.0.read_exact(&mut said).unwrap();
    assert_eq!(text(&said), wanted);
}

#[test]
fn without_a_strike_no_alarm_rings() {
    let group = Group::start(&[]);
    let mut lines: Vec<Line> = (0..3).map(|replica| group.connect(replica)).collect();
    for round in 0..200 {
        let replica = round % 3;
        lines[replica].set(&format!("k{}", round % 17), &format!("value {round}"));
        let other = (round + 1) % 3;
        assert_eq!(
            lines[other].get(&format!("k{}", round % 17)),
            format!("value {round}")
        );
    }
    for replica in 0..3 {
        let counts = group.status(replica)["counts"].clone();
        for alarm in ["mismatches", "repairs", "refused", "poison"] {
            assert_eq!(counts[alarm], 0, "{alarm} of replica {replica}: {counts}");
        }
    }
}

#[test]
fn many_clients_at_once_and_a_strike_every_few_requests_and_no_reply_is_wrong() {
    let group = Group::start(&[]);
    let clients = 6;
    let rounds = 60;
    std::thread::scope(|scope| {
        for client in 0..clients {
            let at = &group.clients;
            scope.spawn(move || {
                let mut line = Line::to(at[client % 3]);
                for round in 0..rounds {
                    let key = format!("c{client}");
                    let value = format!("client {client} round {round}");
                    line.set(&key, &value);
                    if round % 10 == 5 {
                        // The one that has answered: another may not have executed it yet, and would mask the strike.
                        let victim = client % 3;
                        let struck = Line::to(at[victim]).ask(&format!(
                            "sf strike replica={victim} object=item:{key} byte={} bit={}\r\n",
                            round % 8,
                            round % 7
                        ));
                        assert_eq!(struck, "STRUCK\r\n");
                    }
                    assert_eq!(line.get(&key), value);
                }
            });
        }
    });
    let strikes = (clients * rounds / 10) as u64;
    // The right reply came from another replica, so the next `set` may take the place of a struck value before it is repaired.
    let least = strikes * 3 / 4;
    let until = Instant::now() + PATIENCE;
    let repairs = loop {
        let statuses: Vec<Value> = (0..3).map(|replica| group.status(replica)).collect();
        for status in &statuses {
            assert_eq!(status["counts"]["refused"], 0, "{status}");
        }
        let repairs: u64 = statuses
            .iter()
            .map(|status| status["counts"]["repairs"].as_u64().unwrap())
            .sum();
        // The last repair may still be under way behind its reply.
        if repairs >= least || Instant::now() > until {
            break repairs;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(
        (least..=strikes).contains(&repairs),
        "{repairs} of {strikes}"
    );
    // Whatever was not repaired was written anew.
    let at = group.clients[0].to_string();
    let verified = kv().args(["verify", "--at", &at]).output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
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
    let group = Group::start(&["--memory", "1"]);
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

/// Each replica in turn is asked; what one has been told the others know.
#[test]
fn replies_are_those_of_the_reference_model_whoever_is_asked() {
    let group = Group::start(&[]);
    let mut lines: Vec<Line> = (0..3).map(|replica| group.connect(replica)).collect();
    for (number, step) in memcached::swept(11, 1200).into_iter().enumerate() {
        let line = &mut lines[number % 3];
        line.send(&step.request);
        let mut reply = vec![0; step.reply.len()];
        let read = line.0.read_exact(&mut reply);
        assert!(
            read.is_ok(),
            "step {number}: {:?}: {} came",
            text(&step.request),
            text(&reply)
        );
        assert_eq!(
            text(&reply),
            text(&step.reply),
            "step {number}: {:?}",
            text(&step.request)
        );
    }
}

#[test]
fn a_comparison_of_everything_finds_what_nobody_asks_for() {
    let group = Group::start(&[]);
    let mut line = group.connect(0);
    for key in 0..40 {
        line.set(&format!("cold{key}"), "value");
    }
    let verify = || {
        let out = kv()
            .args(["verify", "--at", &group.clients[1].to_string()])
            .output()
            .unwrap();
        (out.status.code(), text(&out.stdout))
    };
    let (code, said) = verify();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("40 objects compared") && said.contains(" 0 differed"),
        "{said}"
    );
    for (replica, key) in [(0, 3), (2, 7)] {
        assert!(
            group
                .strike(&format!(
                    "replica={replica} object=item:cold{key} byte=0 bit=0"
                ))
                .status
                .success()
        );
    }
    let (code, said) = verify();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("replica [0] item:cold3") && said.contains("replica [2] item:cold7"),
        "{said}"
    );
    let (_, said) = verify();
    assert!(said.contains(" 0 differed"), "{said}");
}

#[test]
fn a_reply_that_changes_after_its_vote_reaches_a_stock_client_and_never_one_with_the_envelope() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "hello");
    let with_envelope = || {
        let stream = TcpStream::connect(group.clients[1]).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let line = Connection::negotiate(stream, 0x1234).unwrap();
        assert!(line.enveloped());
        line
    };
    let ask = |line: &mut Connection<TcpStream>, request: &str| {
        line.send(request.as_bytes())?;
        let mut said = Vec::new();
        while !said.ends_with(b"END\r\n") && !said.ends_with(b"STORED\r\n") {
            if line.receive(&mut said)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
        }
        std::io::Result::Ok(text(&said))
    };
    let mut line = with_envelope();
    let large = "y".repeat(100_000);
    let stored = ask(&mut line, &format!("set b 0 0 100000\r\n{large}\r\n"));
    assert_eq!(stored.unwrap(), "STORED\r\n");
    assert_eq!(
        ask(&mut line, "get a b\r\n").unwrap(),
        format!("VALUE a 0 5\r\nhello\r\nVALUE b 0 100000\r\n{large}\r\nEND\r\n")
    );

    // Behind the last check of a reply to a stock client there is none.
    let strike = || {
        let struck = group.strike("replica=1 message=reply bit=107");
        assert!(struck.status.success(), "{}", text(&struck.stderr));
    };
    strike();
    assert_ne!(group.connect(1).get("a"), "hello");
    strike();
    assert!(ask(&mut line, "get a\r\n").is_err());
    assert_eq!(
        ask(&mut with_envelope(), "get a\r\n").unwrap(),
        "VALUE a 0 5\r\nhello\r\nEND\r\n"
    );

    // A request that is damaged on its way is not executed.
    let stream = TcpStream::connect(group.clients[1]).unwrap();
    let mut stream = BufReader::new(stream);
    stream.get_mut().write_all(hello(9).as_bytes()).unwrap();
    let mut agreed = String::new();
    stream.read_line(&mut agreed).unwrap();
    let mut sealed = Vec::new();
    Sealer::new(9, Sender::Client).seal(b"set a 0 0 5\r\nhallo\r\n", &mut sealed);
    sealed[16 + 14] ^= 1;
    stream.get_mut().write_all(&sealed).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    assert_eq!(group.connect(1).get("a"), "hello");
}

#[test]
fn the_scrubber_finds_what_nobody_asks_for_and_is_silent_where_nothing_is_wrong() {
    // A shard every 8 ms.
    let group = Group::start(&["--scrub", "2"]);
    let mut line = group.connect(0);
    for key in 0..40 {
        line.set(&format!("cold{key}"), "value");
    }
    let counts = |replica| group.status(replica)["counts"].clone();
    let until = Instant::now() + PATIENCE;
    // Once around at least.
    while counts(1)["scrubbed"].as_u64().unwrap() < 80 {
        assert!(Instant::now() < until, "{}", counts(1));
        std::thread::sleep(Duration::from_millis(50));
    }
    for alarm in ["mismatches", "repairs", "scrub_found"] {
        assert_eq!(counts(1)[alarm], 0, "{alarm}");
    }
    let struck = group.strike("replica=2 object=item:cold3 byte=0 bit=0");
    assert!(struck.status.success(), "{}", text(&struck.stderr));
    let event = group.event("repaired");
    assert_eq!(
        (&event["object"], &event["replica"]),
        (&"item:cold3".into(), &2.into())
    );
    while counts(0)["scrub_found"] != 1 {
        assert!(Instant::now() < until, "{}", counts(0));
        std::thread::sleep(Duration::from_millis(20));
    }
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
fn what_is_wrong_on_the_command_line_is_said_with_its_fix() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (arguments, code, words) in [
        (vec!["--local", "4"], 64, "3, 5 or 7"),
        (vec!["--local", "3", "--port", &port], 121, "cannot be had"),
        (vec!["--local", "3", "--stage", "Q"], 64, "RDGX"),
        (
            vec!["status", "--at", "127.0.0.1:1"],
            121,
            "no replica answers",
        ),
    ] {
        let out = kv().args(&arguments).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let group = Group::start(&[]);
    group.connect(0).set("a", "hello");
    for (line, words) in [
        ("replica=1 object=item:a byte=5 bit=0", "below 5"),
        ("replica=1 object=item:b byte=0 bit=0", "does not exist"),
        ("replica=3 object=item:a byte=0 bit=0", "below 3"),
        ("replica=1 object=a byte=0 bit=0", "item:KEY"),
    ] {
        let out = group.strike(line);
        assert!(!out.status.success());
        assert!(
            text(&out.stderr).contains(words),
            "{line}: {}",
            text(&out.stderr)
        );
    }
    assert_eq!(group.connect(1).get("a"), "hello");
}

#[test]
fn memccapable_passes_its_checks_of_the_text_protocol() {
    let group = Group::start(&[]);
    let at = group.clients[1];
    let out = Command::new("memccapable")
        .args([
            "-h",
            "127.0.0.1",
            "-p",
            &at.port().to_string(),
            "-a",
            "-t",
            "60",
        ])
        .output()
        .expect("memccapable of libmemcached-tools, as tests/packages.txt says");
    let said = text(&out.stdout);
    assert!(
        said.contains("All tests passed"),
        "{said}{}",
        text(&out.stderr)
    );
    assert_eq!(said.matches("[pass]").count(), 27, "{said}");
}

#[test]
fn rubbish_from_a_client_is_answered_and_harms_nobody() {
    let group = Group::start(&[]);
    group.connect(0).set("a", "hello");
    for rubbish in [
        &b"\x80\0\0\0"[..],
        b"\0\0\0\r\n",
        b"set a 0 0 -1\r\n",
        b"get \xff\xfe\r\n",
        &[b'x'; 70_000],
    ] {
        let mut line = group.connect(1);
        line.send(rubbish);
        line.0
            .get_mut()
            .shutdown(std::net::Shutdown::Write)
            .unwrap();
        let mut said = Vec::new();
        let _ = line.0.read_to_end(&mut said);
        assert!(
            !said.is_empty(),
            "{:?}",
            text(&rubbish[..rubbish.len().min(20)])
        );
    }
    assert_eq!(group.connect(1).get("a"), "hello");
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
