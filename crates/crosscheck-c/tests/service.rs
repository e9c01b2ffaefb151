//! A C++ service as three replicas: its memory is changed from outside, and no client sees it. The service is that of `cc/tests`.
//!
//! Invariant: a strike flips bits in the memory of a process that runs, by `/proc/PID/mem`; nothing in the service knows of it.
//!
//! Not covered: a network that loses packets; the crate's simulator does.

mod build;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use build::compiled;

/// Machines that run these are busy with others of them.
const PATIENCE: Duration = Duration::from_secs(60);
/// An amount that memory has nowhere else.
const AMOUNT: i64 = 0x1234_5678_9abc;

struct Replica {
    child: Child,
    port: u16,
}

struct Group {
    dir: PathBuf,
    peers: String,
    replicas: Vec<Replica>,
    said: Arc<Mutex<Vec<String>>>,
}

fn free() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

impl Group {
    fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("crosscheck-c-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut group = Self {
            peers: [free(), free(), free()].join(","),
            dir,
            replicas: Vec::new(),
            said: Arc::default(),
        };
        std::fs::write(group.secret(), "0123456789abcdef0123456789abcdef\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(group.secret(), mode).unwrap();
        for number in 0..3 {
            let replica = group.one(number);
            group.replicas.push(replica);
        }
        for number in 0..3 {
            group.wait_ready(number);
        }
        group
    }

    fn secret(&self) -> PathBuf {
        self.dir.join("secret")
    }

    fn command(&self, number: usize) -> Command {
        let mut command = Command::new(compiled("http.cc"));
        command
            .args(["--replica", &number.to_string(), "--peers", &self.peers])
            .arg("--secret-file")
            .arg(self.secret())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn one(&self, number: usize) -> Replica {
        let mut child = self.command(number).spawn().unwrap();
        let err = child.stderr.take().unwrap();
        let said = self.said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(err).lines().map_while(Result::ok) {
                said.lock().unwrap().push(line);
            }
        });
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        let port = port.trim().parse().unwrap();
        Replica { child, port }
    }

    fn ask(&self, number: usize, line: &str, body: &str) -> String {
        asked(self.replicas[number].port, line, body)
    }

    fn wait(&self, what: &str, mut until: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !until() {
            assert!(Instant::now() < end, "{what}: {:#?}", self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_ready(&self, number: usize) {
        self.wait(&format!("replica {number} becomes ready"), || {
            self.ask(number, "GET /status", "")
                .contains("\"ready\":true")
        });
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    fn heard(&self, words: &[&str]) -> bool {
        let said = self.said();
        said.iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.child.kill();
            let _ = replica.child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Status and body of one exchange.
fn asked(port: u16, line: &str, body: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else {
        return String::new();
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    let _ = stream.write_all(request.as_bytes());
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).unwrap_or_default();
    format!("{status} {body}")
}

/// Flips one bit in each place of a process's memory that has this number; how many there are.
fn strike(pid: u32, number: i64) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let path = format!("/proc/{pid}/mem");
    let memory = File::options().read(true).write(true).open(path).unwrap();
    let mut struck = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        if memory.read_exact_at(&mut bytes, from).is_err() {
            continue;
        }
        for at in (0..bytes.len() - 7).step_by(8) {
            if bytes[at..at + 8] == number.to_le_bytes() {
                let place = from + at as u64 + 2;
                memory.write_all_at(&[bytes[at + 2] ^ 8], place).unwrap();
                struck += 1;
            }
        }
    }
    struck
}

fn right() -> String {
    format!("200 alice {AMOUNT}\n")
}

#[test]
fn struck_objects_of_a_cpp_service_are_repaired_and_no_wrong_reply_is_sent() {
    let group = Group::start("strike");
    let said = group.ask(0, "PUT /account/alice", &AMOUNT.to_string());
    assert_eq!(said, format!("200 alice has {AMOUNT} after 1\n"));
    assert_eq!(
        group.ask(1, "PUT /account/bob", "7"),
        "200 bob has 7 after 1\n"
    );
    assert_eq!(
        group.ask(2, "GET /account/nobody", ""),
        "404 no account nobody\n"
    );
    assert_eq!(
        group.ask(2, "PUT /account/bob", "-9"),
        "400 refused: not enough: 7\n"
    );
    assert_eq!(group.ask(1, "PUT /account/bob", "x"), "400 refused: stol\n");
    let said = group.ask(1, "PUT /account/bob", "1");
    assert_eq!(said, "200 bob has 8 after 2\n");
    for number in 0..3 {
        assert_eq!(group.ask(number, "GET /account/alice", ""), right());
    }
    assert!(
        !group.heard(&["repaired"]) && !group.heard(&["found"]),
        "{:?}",
        group.said()
    );

    for victim in 0..3 {
        // The victim itself is asked, and one that is right.
        for asked in [victim, (victim + 1) % 3] {
            group.said.lock().unwrap().clear();
            let struck = strike(group.replicas[victim].child.id(), AMOUNT);
            assert!(struck >= 3, "balance, history and index: found {struck}");
            assert_eq!(group.ask(asked, "GET /account/alice", ""), right());
            let list = group.ask(asked, "GET /list", "");
            assert_eq!(
                list,
                format!("200 8 bob\n{AMOUNT} alice\ntotal {}\n", AMOUNT + 8)
            );
            let replica = format!("\"replica\":{victim},");
            group.wait("the repair is told", || {
                group.heard(&["repaired", &replica, "\"at_rest\":true"])
                    && group.heard(&["found", "Account", "balance"])
            });
            for number in 0..3 {
                group.wait_ready(number);
            }
            assert_eq!(group.ask(victim, "GET /account/alice", ""), right());
        }
    }
    // A change that is made from a struck value.
    assert!(strike(group.replicas[1].child.id(), AMOUNT) >= 3);
    let said = group.ask(1, "PUT /account/alice", "1");
    assert_eq!(said, format!("200 alice has {} after 2\n", AMOUNT + 1));
    assert_eq!(group.ask(1, "DELETE /account/alice", ""), "200 gone\n");
    assert_eq!(group.ask(0, "GET /list", ""), "200 8 bob\ntotal 8\n");
}

#[test]
fn a_replica_that_dies_is_let_in_again_with_the_state_of_the_others() {
    let mut group = Group::start("again");
    group.ask(0, "PUT /account/alice", &AMOUNT.to_string());
    let _ = group.replicas[2].child.kill();
    let _ = group.replicas[2].child.wait();
    let said = group.ask(1, "PUT /account/bob", "7");
    assert_eq!(said, "200 bob has 7 after 1\n");
    group.replicas[2] = group.one(2);
    group.wait_ready(2);
    assert_eq!(group.ask(2, "GET /account/alice", ""), right());
    // It votes: another one is struck, and it is one of those that are right.
    assert!(strike(group.replicas[0].child.id(), AMOUNT) >= 3);
    assert_eq!(group.ask(0, "GET /account/alice", ""), right());
    assert!(
        !group.heard(&["repaired", "\"replica\":2,"]),
        "{:?}",
        group.said()
    );
}

#[test]
fn without_replicas_the_same_strike_is_a_wrong_reply() {
    let mut child = Command::new(compiled("../../../cc/tests/http.cc"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut port = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut port)
        .unwrap();
    let port = port.trim().parse().unwrap();
    asked(port, "PUT /account/alice", &AMOUNT.to_string());
    assert_eq!(asked(port, "GET /account/alice", ""), right());
    assert!(strike(child.id(), AMOUNT) >= 2);
    let said = asked(port, "GET /account/alice", "");
    let _ = child.kill();
    let _ = child.wait();
    assert_ne!(said, right());
    assert!(said.starts_with("200 alice "), "nothing notices: {said}");
}

#[test]
fn the_port_took_less_than_a_hundred_lines() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let [before, after] = ["../../cc/tests/http.cc", "tests/http.cc"].map(|name| dir.join(name));
    let said = Command::new("diff").args([before, after]).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let added = said.lines().filter(|line| line.starts_with('>')).count();
    assert!((1..100).contains(&added), "{added} lines");
}

#[test]
fn a_replica_that_is_set_up_wrongly_says_what_is_required_and_what_was_found() {
    let dir = std::env::temp_dir().join(format!("crosscheck-c-wrong-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let secret = dir.join("secret");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
    let run = |args: &[&str]| {
        let done = Command::new(compiled("http.cc"))
            .args(args)
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(121));
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let secret = secret.to_str().unwrap();
    let three = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3";
    for (args, words) in [
        (
            &["--peers", "127.0.0.1:1,127.0.0.1:2"][..],
            "3, 5 or 7 addresses",
        ),
        (&["--peers", three, "--replica", "3"], "a place in --peers"),
        (
            &["--peers", three, "--replica", "x"],
            "a number; found: 'x'",
        ),
        (&["--peers", three], "closed to other users"),
        (&["--peers"], "a value; found: none"),
    ] {
        let said = run(&[args, &["--secret-file", secret]].concat()
            [..if args.len() == 1 { 1 } else { args.len() + 2 }]);
        assert!(said.contains(words), "{args:?}: {said}");
    }
    let said = run(&["--peers", three]);
    assert!(
        said.contains("a file with the secret of the group"),
        "{said}"
    );
    let _ = std::fs::remove_dir_all(&dir);
}
