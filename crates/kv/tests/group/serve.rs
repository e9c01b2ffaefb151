//! Replicas of `serve`, each started on its own as on a host of its own, at three addresses of the loopback.
//!
//! Not covered: a network that loses or delays packets.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;

/// Three places, their addresses, and whoever runs there.
pub(super) struct Hosts {
    pub(super) dir: PathBuf,
    pub(super) peers: Vec<String>,
    pub(super) clients: Vec<SocketAddr>,
    pub(super) http: Vec<SocketAddr>,
    pub(super) more: Vec<String>,
    running: Vec<Option<Child>>,
    keeps: bool,
    /// What each is started through, word by word.
    pub(super) through: Vec<Vec<String>>,
    said: Arc<Mutex<Vec<String>>>,
}

/// A port below those that the kernel gives to connections: one of these could be gone before a replica has it.
fn free() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 10_000;
    const PORTS: u32 = 22_000;
    loop {
        let number = std::process::id()
            .wrapping_mul(101)
            .wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % PORTS).unwrap();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap();
        }
    }
}

impl Hosts {
    pub(super) fn new(name: &str, more: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("kv-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let secret = kv().arg("secret").output().unwrap().stdout;
        let hosts = Self {
            dir,
            peers: (0..3).map(|_| free().to_string()).collect(),
            clients: (0..3).map(|_| free()).collect(),
            http: (0..3).map(|_| free()).collect(),
            more: more.iter().map(ToString::to_string).collect(),
            running: vec![None, None, None],
            keeps: false,
            through: vec![Vec::new(); 3],
            said: Arc::default(),
        };
        std::fs::write(hosts.secret(), secret).unwrap();
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(hosts.secret(), mode).unwrap();
        hosts
    }

    pub(super) fn secret(&self) -> PathBuf {
        self.dir.join("secret")
    }

    pub(super) fn command(&self, replica: usize) -> Command {
        let mut command = kv();
        command
            .args(["serve", "--json", "--allow-strikes"])
            .args(["--replica", &replica.to_string()])
            .args(["--peers", &self.peers.join(",")])
            .args(["--listen", &self.clients[replica].to_string()])
            .args(["--http", &self.http[replica].to_string()])
            .arg("--secret-file")
            .arg(self.secret())
            .args(&self.more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Each has a directory from now on.
    pub(super) fn keep_data(&mut self) {
        self.keeps = true;
    }

    pub(super) fn data(&self, replica: usize) -> PathBuf {
        self.dir.join(format!("data-{replica}"))
    }

    pub(super) fn start(&mut self, replica: usize) {
        let mut command = self.command(replica);
        if self.keeps {
            command.arg("--data").arg(self.data(replica));
        }
        if let [first, rest @ ..] = self.through[replica].as_slice() {
            let mut outer = Command::new(first);
            outer
                .args(rest)
                .arg(command.get_program())
                .args(command.get_args())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command = outer;
        }
        let mut child = command.spawn().unwrap();
        let out: Box<dyn std::io::Read + Send> = Box::new(child.stdout.take().unwrap());
        let err: Box<dyn std::io::Read + Send> = Box::new(child.stderr.take().unwrap());
        for stream in [out, err] {
            let said = self.said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    said.lock().unwrap().push(line);
                }
            });
        }
        self.running[replica] = Some(child);
    }

    pub(super) fn end(&mut self, replica: usize, signal: &str) -> ExitStatus {
        let mut child = self.running[replica].take().unwrap();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        child.wait().unwrap()
    }

    pub(super) fn pid(&self, replica: usize) -> u32 {
        self.running[replica].as_ref().unwrap().id()
    }

    pub(super) fn wait_end(&mut self, replica: usize) -> ExitStatus {
        self.running[replica].take().unwrap().wait().unwrap()
    }

    fn http(&self, replica: usize, path: &str) -> String {
        let Ok(mut stream) = TcpStream::connect(self.http[replica]) else {
            return String::new();
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said);
        said
    }

    pub(super) fn wait(&self, what: &str, until: impl FnMut() -> bool) {
        self.wait_for(what, Duration::from_millis(50), until);
    }

    /// As `wait`, looking this often.
    pub(super) fn wait_for(&self, what: &str, often: Duration, mut until: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !until() {
            assert!(
                Instant::now() < end,
                "{what}: {:#?}",
                self.said.lock().unwrap()
            );
            std::thread::sleep(often);
        }
    }

    pub(super) fn wait_ready(&self, replica: usize) {
        self.wait(&format!("replica {replica} becomes ready"), || {
            self.http(replica, "/readyz").starts_with("HTTP/1.1 200")
        });
    }

    /// Lines that have these words.
    pub(super) fn lines(&self, words: &str) -> Vec<String> {
        let said = self.said.lock().unwrap();
        let with = said.iter().filter(|line| line.contains(words));
        with.cloned().collect()
    }

    pub(super) fn count(&self, words: &str) -> usize {
        self.lines(words).len()
    }

    pub(super) fn heard(&self, words: &str) -> bool {
        self.count(words) > 0
    }

    pub(super) fn connect(&self, replica: usize) -> Line {
        Line::to(self.clients[replica])
    }

    pub(super) fn status(&self, replica: usize) -> Value {
        serde_json::from_str(&self.connect(replica).ask("sf status\r\n")).unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for child in self.running.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
        if !std::thread::panicking() {
            let said = self.said.lock().unwrap();
            let events = said.iter().filter(|line| line.starts_with('{'));
            let odd = events.filter_map(|line| news(line).err()).next();
            assert_eq!(odd, None, "each object that a replica prints is an event");
        }
    }
}

#[test]
fn replicas_started_one_by_one_found_a_group_and_a_host_that_comes_back_is_let_in() {
    let mut hosts = Hosts::new("hosts", &[]);
    hosts.start(1);
    hosts.start(2);
    // Two of three found nothing: a majority of an older group might be about.
    std::thread::sleep(Duration::from_millis(700));
    assert!(hosts.http(1, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(hosts.http(1, "/readyz").contains("joining"));
    hosts.start(0);
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts.connect(0).set("a", "one");
    assert_eq!(hosts.connect(2).get("a"), "one");

    // The lead goes where it is told to.
    let secret = hosts.secret();
    let admin = |verb: &[&str], at: SocketAddr, secret: &std::path::Path| {
        kv().args(verb)
            .args(["--at", &at.to_string()])
            .arg("--secret-file")
            .arg(secret)
            .output()
            .unwrap()
    };
    let to = (hosts.status(0)["leader"].as_u64().unwrap() + 1) % 3;
    let said = admin(
        &["transfer", "--to", &to.to_string()],
        hosts.clients[0],
        &secret,
    );
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert_eq!(hosts.status(0)["leader"], to);

    // Who has another secret drains nothing.
    let leader = usize::try_from(to).unwrap();
    let other = hosts.dir.join("other");
    std::fs::write(&other, "0".repeat(32)).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let said = admin(&["drain"], hosts.clients[leader], &other);
    assert_eq!(said.status.code(), Some(121));
    assert!(
        text(&said.stderr).contains("secret"),
        "{}",
        text(&said.stderr)
    );
    hosts.wait_ready(leader);

    // The leader is drained, then stopped: the lead is elsewhere by then, and nobody waits for an election.
    let said = admin(&["drain"], hosts.clients[leader], &secret);
    assert!(said.status.success(), "{}", text(&said.stderr));
    assert!(hosts.http(leader, "/readyz").contains("draining"));
    let refused = hosts.connect(leader).get("a");
    assert_eq!(
        refused,
        "SERVER_ERROR this replica is draining: use another one"
    );
    let next = (leader + 1) % 3;
    assert_ne!(hosts.status(next)["leader"], to);
    assert!(hosts.end(leader, "-TERM").success());
    let began = Instant::now();
    hosts.connect(next).set("b", "two");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    hosts.start(leader);
    hosts.wait_ready(leader);
    assert_eq!(hosts.connect(leader).get("b"), "two");

    // One that is killed comes back as well, votes, and is repaired.
    assert_eq!(hosts.end(next, "-KILL").signal(), Some(9));
    hosts.connect(leader).set("c", "three");
    hosts.start(next);
    hosts.wait_ready(next);
    let mut line = hosts.connect(next);
    assert_eq!(line.get("c"), "three");
    assert_eq!(
        line.ask(&format!(
            "sf strike replica={next} object=item:c byte=0 bit=0\r\n"
        )),
        "STRUCK\r\n"
    );
    assert_eq!(line.get("c"), "three");
    hosts.wait("the repair is counted", || {
        hosts
            .http(next, "/metrics")
            .contains("steadfast_kv_repairs_total 1\n")
    });
    let metrics = hosts.http(next, "/metrics");
    for line in [
        "steadfast_kv_passive_total 1\n",
        "steadfast_kv_single_bit_total 1\n",
        "steadfast_kv_member_up{replica=\"0\"} 1\n",
        "# TYPE steadfast_kv_requests_total counter\n",
    ] {
        assert!(metrics.contains(line), "{line} {metrics}");
    }

    // A second process for a place that is taken changes nothing.
    let mut second = hosts.command(0);
    let (bind, listen, http) = (free().to_string(), free().to_string(), free().to_string());
    second.args(["--bind", &bind, "--http", &http, "--listen", &listen]);
    let second = remade(&second, &["--http", "--listen"]).output().unwrap();
    assert_eq!(second.status.code(), Some(121));
    assert!(
        text(&second.stderr).contains("replica 0 of the group runs at"),
        "{}",
        text(&second.stderr)
    );
    assert_eq!(hosts.connect(0).get("c"), "three");

    // A replica that answers stays in the group. The leader is taken out of it as soon as it has died, by whoever leads then.
    let leader = usize::try_from(hosts.status(0)["leader"].as_u64().unwrap()).unwrap();
    let next = (leader + 1) % 3;
    let remove = |replica: usize| {
        let replica = replica.to_string();
        admin(
            &["remove", "--replica", &replica],
            hosts.clients[next],
            &secret,
        )
    };
    let said = remove(next);
    assert_eq!(said.status.code(), Some(121));
    assert!(text(&said.stderr).contains("found: replica"), "{said:?}");
    let pid = hosts.pid(leader).to_string();
    let killed = Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.unwrap().success());
    let said = remove(leader);
    assert!(said.status.success(), "{}", text(&said.stderr));
    hosts.wait("it is no member any more", || {
        hosts.status(next)["members"].as_array().unwrap().len() == 2
    });
}

/// The command, with the last of each of these flags alone.
fn remade(command: &Command, once: &[&str]) -> Command {
    let mut arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    for flag in once {
        let first = arguments.iter().position(|word| word == flag).unwrap();
        arguments.drain(first..first + 2);
    }
    let mut made = kv();
    made.args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    made
}

#[test]
fn a_group_that_has_lost_its_majority_says_so_and_is_founded_anew() {
    let mut hosts = Hosts::new("lost", &[]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts.connect(0).set("a", "one");
    // One at a time is no loss.
    hosts.end(1, "-KILL");
    hosts.start(1);
    hosts.wait_ready(1);
    assert_eq!(hosts.connect(1).get("a"), "one");
    for replica in [1, 2] {
        hosts.end(replica, "-KILL");
    }
    for replica in [1, 2] {
        hosts.start(replica);
    }
    let status = hosts.running[0].as_mut().unwrap().wait().unwrap();
    assert_eq!(status.code(), Some(121));
    hosts.wait("the survivor says why", || hosts.heard("\"lost\""));
    hosts.start(0);
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    assert_eq!(hosts.connect(2).get("a"), "END");
}

#[test]
fn a_replica_that_is_set_up_wrongly_says_what_is_required_and_what_was_found() {
    let hosts = Hosts::new("wrong", &[]);
    let secret = hosts.secret();
    #[derive(Clone, Copy)]
    struct Start<'a> {
        peers: &'a str,
        replica: &'a str,
        secret: &'a std::path::Path,
        more: &'a [&'a str],
    }
    let is_refused = |start: Start<'_>, words: &str| {
        let listen = free().to_string();
        let out = kv()
            .args(["serve", "--peers", start.peers])
            .args(["--replica", start.replica])
            .args(["--listen", &listen])
            .arg("--secret-file")
            .arg(start.secret)
            .args(start.more)
            .output()
            .unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(121), "{words}: {said}");
        assert!(said.contains(words), "{words}: {said}");
    };
    let peers = hosts.peers.join(",");
    let open = hosts.dir.join("open");
    std::fs::write(&open, "0".repeat(32)).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o644)).unwrap();
    let short = hosts.dir.join("short");
    std::fs::write(&short, "0".repeat(31)).unwrap();
    std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().to_string();
    let four = format!("{peers},127.0.0.1:1");
    let twice = format!("{0},{0},{1}", hosts.peers[0], hosts.peers[1]);
    let none = hosts.dir.join("none");
    let right = Start {
        peers: &peers,
        replica: "0",
        secret: &secret,
        more: &[],
    };
    let peers = |peers| Start { peers, ..right };
    is_refused(peers(&four), "3, 5 or 7");
    is_refused(peers(&twice), "address twice");
    is_refused(peers("a,b,c"), "HOST:PORT");
    let fourth = Start {
        replica: "3",
        ..right
    };
    is_refused(fourth, "0 to 2");
    let secret = |secret| Start { secret, ..right };
    is_refused(secret(&none), "not there");
    is_refused(secret(&open), "chmod 600");
    is_refused(secret(&short), "32 hexadecimal digits");
    let with = |more: &[&str], words: &str| is_refused(Start { more, ..right }, words);
    with(&["--bind", &port], "cannot be had");
    with(&["--http", &port], "--http ADDRESS");

    // Others that answer, and cannot be of one group with it.
    let mut others = Hosts::new("others", &[]);
    others.peers = hosts.peers.clone();
    std::fs::copy(hosts.secret(), others.secret()).unwrap();
    others.start(1);
    others.start(2);
    others.wait("both live", || {
        (1..3).all(|replica| others.http(replica, "/healthz").contains("ok"))
    });
    let moved = format!("{},{},{}", free(), hosts.peers[1], hosts.peers[2]);
    let other = hosts.dir.join("other");
    std::fs::write(&other, "1".repeat(32)).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    is_refused(peers(&moved), "the same --peers");
    with(&["--stage", "RD"], "the same --stage");
    with(&["--memory", "7"], "the same --memory");
    is_refused(secret(&other), "the same --secret-file");
    drop(others);

    // Replicas of another version.
    let listeners: Vec<TcpListener> = hosts.peers[1..]
        .iter()
        .map(|at| TcpListener::bind(at).unwrap())
        .collect();
    for listener in listeners {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.unwrap().write_all(b"SFKV\xfe\xff\x05\x00");
            }
        });
    }
    is_refused(right, "version 65534 with digests of epoch 5");
}

#[test]
fn a_group_is_upgraded_replica_by_replica_and_versions_are_never_called_wrong() {
    let mut hosts = Hosts::new("upgraded", &[]);
    hosts.keep_data();
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    hosts.connect(0).set("a", "one");
    let new = "--digest-epoch=3".to_owned();

    // One of three makes other digests: it has nobody to vote with, the others do not miss it.
    hosts.end(2, "-TERM");
    hosts.more.push(new.clone());
    hosts.start(2);
    hosts.wait("it says why it is not ready", || {
        hosts.http(2, "/readyz").contains("mixed")
    });
    assert!(hosts.connect(2).get("a").contains("use another one"));
    hosts.connect(1).set("b", "two");
    assert_eq!(hosts.connect(0).get("b"), "two");
    hosts.wait("nobody waits for it", || hosts.status(0)["open"] == 0);

    // Two of three: now the old one has nobody.
    hosts.end(1, "-TERM");
    hosts.start(1);
    (1..3).for_each(|replica| hosts.wait_ready(replica));
    assert!(hosts.http(0, "/readyz").contains("mixed"));
    hosts.connect(2).set("c", "three");
    assert_eq!(hosts.connect(1).get("c"), "three");

    hosts.end(0, "-TERM");
    hosts.start(0);
    hosts.wait_ready(0);
    let mut line = hosts.connect(0);
    for (key, value) in [("a", "one"), ("b", "two"), ("c", "three")] {
        assert_eq!(line.get(key), value);
    }
    for replica in 0..3 {
        let counts = &hosts.status(replica)["counts"];
        assert_eq!(counts["mismatches"], 0, "replica {replica}: {counts}");
    }
    // The alarm still rings.
    assert_eq!(
        line.ask("sf strike replica=0 object=item:a byte=0 bit=0\r\n"),
        "STRUCK\r\n"
    );
    assert_eq!(line.get("a"), "one");
    hosts.wait("the repair is counted", || {
        hosts.status(0)["counts"]["repairs"] == 1
    });
}

#[test]
fn a_replica_that_is_told_to_end_finishes_the_reply_that_it_is_writing() {
    let mut hosts = Hosts::new("drain", &[]);
    (0..3).for_each(|replica| hosts.start(replica));
    (0..3).for_each(|replica| hosts.wait_ready(replica));
    let mut line = hosts.connect(1);
    line.set("a", &"x".repeat(1_000_000));
    line.send(format!("get{}\r\n", " a".repeat(40)).as_bytes());
    // The reply has begun, and is far larger than what the sockets hold.
    let mut reply = vec![0; 40 * ("VALUE a 0 1000000\r\n".len() + 1_000_002) + 5];
    line.0.read_exact(&mut reply[..1000]).unwrap();
    let pid = hosts.pid(1).to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    std::thread::sleep(Duration::from_millis(300));
    line.0.read_exact(&mut reply[1000..]).unwrap();
    assert!(reply.ends_with(b"END\r\n"));
    assert!(hosts.wait_end(1).success());
}
