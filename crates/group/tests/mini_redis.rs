//! mini-redis as three replicas: what one of them stores is changed in its memory, and its own client reads what it has stored.
//!
//! Invariant: a strike flips bits in the memory of a process that runs, by `/proc/PID/mem`; nothing in the service knows of it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Machines that run these are busy with others of them.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes that memory has nowhere else but where requests and entries of the log were.
const VALUE: &str = "seventy-three ducks on the pond at Aldermere";

struct Group {
    dir: PathBuf,
    replicas: Vec<(Child, u16)>,
    said: Arc<Mutex<Vec<String>>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        for (child, _) in &mut self.replicas {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// What cargo has built of `examples/mini-redis.rs`, beside this test. Where this test alone was asked for it has built no example.
fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let found = BUILT.get_or_init(|| {
        let mut path = std::env::current_exe().unwrap();
        path.pop();
        path.set_file_name("examples");
        let path = path.join("mini-redis");
        if !path.exists() {
            let built = Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--package", env!("CARGO_PKG_NAME")])
                .args(["--example", "mini-redis"])
                .status();
            assert!(built.unwrap().success());
        }
        path
    });
    found.clone()
}

impl Group {
    fn start(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("mini-redis-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let secret = dir.join("secret");
        std::fs::write(&secret, "0123456789abcdef0123456789abcdef\n").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let free: Vec<TcpListener> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let peers: Vec<String> = free
            .iter()
            .map(|listener| listener.local_addr().unwrap().to_string())
            .collect();
        drop(free);
        let mut group = Self {
            dir,
            replicas: Vec::new(),
            said: Arc::default(),
        };
        for number in 0..3 {
            let mut child = Command::new(program())
                .args([number.to_string(), peers.join(",")])
                .arg(&secret)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let err = child.stderr.take().unwrap();
            let said = group.said.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(err).lines().map_while(Result::ok) {
                    said.lock().unwrap().push(line);
                }
            });
            let mut port = String::new();
            let out = child.stdout.take().unwrap();
            BufReader::new(out).read_line(&mut port).unwrap();
            group.replicas.push((child, port.trim().parse().unwrap()));
        }
        for number in 0..3 {
            group.wait("a replica becomes ready", |group| {
                group.ask(number, &["set", "ready", "yes"]) == "+OK"
            });
        }
        group
    }

    /// The first line of a reply, or what it carries.
    fn ask(&self, number: usize, words: &[&str]) -> String {
        let stream = TcpStream::connect(("127.0.0.1", self.replicas[number].1)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        (&stream).write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap().unwrap();
        if first.starts_with('$') && first != "$-1" {
            return lines.next().unwrap().unwrap();
        }
        first
    }

    fn wait(&self, what: &str, until: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !until(self) {
            assert!(Instant::now() < end, "{what}: {:#?}", self.said.lock());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn heard(&self, words: &[&str]) -> bool {
        let said = self.said.lock().unwrap();
        said.iter()
            .any(|line| words.iter().all(|word| line.contains(word)))
    }
}

/// Flips a bit of every copy of the value that begins where an allocation may; how many there are.
fn strike(pid: u32) -> usize {
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
        for at in (0..bytes.len().saturating_sub(VALUE.len())).step_by(8) {
            if bytes[at..].starts_with(VALUE.as_bytes()) {
                let place = from + at as u64 + 9;
                memory.write_all_at(&[bytes[at + 9] ^ 4], place).unwrap();
                struck += 1;
            }
        }
    }
    struck
}

#[test]
fn a_bit_that_flips_in_one_replica_of_mini_redis_is_read_by_nobody_and_repaired() {
    let group = Group::start("strike");
    assert_eq!(group.ask(0, &["get", "ducks"]), "$-1");
    assert_eq!(group.ask(0, &["set", "ducks", VALUE]), "+OK");
    for number in 0..3 {
        assert_eq!(group.ask(number, &["get", "ducks"]), VALUE);
    }
    assert!(!group.heard(&["\"repaired\""]), "no alarm without a fault");
    assert!(!group.heard(&["\"wrong\""]), "no alarm without a fault");
    assert!(strike(group.replicas[1].0.id()) > 0);
    assert_eq!(group.ask(1, &["get", "ducks"]), VALUE);
    group.wait("the repair is told", |group| {
        group.heard(&["\"repaired\"", "\"replica\":1"])
    });
    for number in 0..3 {
        assert_eq!(group.ask(number, &["get", "ducks"]), VALUE);
    }
}

#[test]
fn a_value_expires_by_the_time_of_the_log_and_other_commands_are_refused_by_name() {
    let group = Group::start("expires");
    assert_eq!(group.ask(0, &["set", "short", "x", "px", "50"]), "+OK");
    group.wait("it expires", |group| {
        group.ask(2, &["get", "short"]) == "$-1"
    });
    assert_eq!(group.ask(1, &["get", "ready"]), "yes");
    let said = group.ask(1, &["publish", "channel", "word"]);
    assert!(said.starts_with("-ERR requirement: GET or SET"), "{said}");
    assert!(!group.heard(&["\"repaired\""]));
}

#[test]
fn without_a_majority_a_request_ends_with_an_error() {
    let mut group = Group::start("alone");
    for (child, _) in &mut group.replicas[1..] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let said = group.ask(0, &["set", "ducks", VALUE]);
    assert!(said.starts_with("-ERR the request"), "{said}");
    let said = group.ask(0, &["get", "ducks"]);
    assert!(said.starts_with("-ERR the request"), "{said}");
}

/// Lines of code that the original does not have.
fn added(port: &str, original: &str) -> usize {
    let original: Vec<&str> = original.lines().map(str::trim).collect();
    port.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//") && !original.contains(line))
        .count()
}

#[test]
fn a_port_takes_less_than_a_hundred_lines() {
    let rust = added(include_str!("../examples/mini-redis.rs"), "");
    let original = include_str!("../../../cc/tests/http.cc");
    let cpp = added(include_str!("../../crosscheck-c/tests/http.cc"), original);
    assert!(rust < 100 && cpp < 100, "{rust}, {cpp}");
    assert!(
        rust > 50 && cpp > 50,
        "{rust}, {cpp}: not what was to be counted"
    );
}
