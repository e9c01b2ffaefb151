//! Histories of several clients while replicas die, are cut off and lose bits, judged by Porcupine (tests/go/judge): some order of the
//! operations has to explain every answer.
//!
//! Each replica has a network namespace, with one device to the other replicas and one to the clients: a replica that is cut off from the
//! others can still be asked. At most one replica is at fault at a time, as the protocol has it for three.
//!
//! `KV_HISTORIES=N KV_HISTORY_S=SECONDS KV_SEED=N` judge more, and longer ones.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::serve::Hosts;
use super::tools::{go_program, tool};
use super::*;

/// Set where the test runs again, in namespaces of its own.
const INSIDE: &str = "KV_HISTORY_INSIDE";
const CLIENTS: usize = 5;
/// An answer that has not come by then is unknown.
const ANSWER: Duration = Duration::from_secs(3);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// What the judge says of a history: its exit status and its words.
fn judged(judge: &Path, history: &[Value], picture: &Path) -> (Option<i32>, String) {
    let mut child = Command::new(judge)
        .arg("-picture")
        .arg(picture)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    for op in history {
        writeln!(to, "{op}").unwrap();
    }
    drop(to);
    let out = child.wait_with_output().unwrap();
    (out.status.code(), text(&out.stdout))
}

/// An operation that began and ended at these times; without an end its answer is unknown.
fn op(op: &str, value: &str, call: u64, end: Option<u64>, out: &str) -> Value {
    serde_json::json!({"client": call, "op": op, "key": "k", "value": value, "call": call, "return": end, "out": out})
}

#[test]
fn the_judge_objects_to_what_no_order_explains_and_to_nothing_else() {
    let judge = go_program("judge");
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("none.html");
    let verdict = |history: &[Value]| judged(&judge, history, &picture).0;
    let stored = op("set", "a", 1, Some(2), "STORED");
    // One after the other, at the same time, and with an answer that never came.
    for history in [
        vec![stored.clone(), op("get", "", 3, Some(4), "=a")],
        vec![stored.clone(), op("get", "", 1, Some(4), "MISS")],
        vec![
            stored.clone(),
            op("append", "b", 3, None, ""),
            op("get", "", 4, Some(5), "=a"),
            op("get", "", 6, Some(7), "=ab"),
        ],
        vec![
            op("set", "7", 1, Some(2), "STORED"),
            op("incr", "", 3, Some(4), "8"),
            op("delete", "", 5, Some(6), "DELETED"),
            op("incr", "", 7, Some(8), "NOT_FOUND"),
        ],
    ] {
        assert_eq!(verdict(&history), Some(0), "{history:?}");
    }
    // Old, lost, twice, back again, and of nobody.
    for history in [
        vec![stored.clone(), op("get", "", 3, Some(4), "MISS")],
        vec![
            stored.clone(),
            op("append", "b", 3, Some(4), "STORED"),
            op("get", "", 5, Some(6), "=a"),
        ],
        vec![
            op("set", "7", 1, Some(2), "STORED"),
            op("incr", "", 3, Some(4), "9"),
        ],
        vec![
            stored.clone(),
            op("append", "b", 3, None, ""),
            op("get", "", 4, Some(5), "=ab"),
            op("get", "", 6, Some(7), "=a"),
        ],
        vec![stored, op("get", "", 3, Some(4), "=A")],
    ] {
        assert_eq!(verdict(&history), Some(1), "{history:?}");
    }
    assert_eq!(verdict(&[]), Some(2));
}

/// Three namespaces with two networks between them; the clients' also reaches the one that this process is in.
struct Net {
    holders: Vec<Child>,
}

impl Net {
    fn new() -> Self {
        tool(&["ip", "link", "set", "lo", "up"]);
        for bridge in ["peers", "clients"] {
            tool(&["ip", "link", "add", bridge, "type", "bridge"]);
            tool(&["ip", "link", "set", bridge, "up"]);
        }
        tool(&["ip", "addr", "add", "10.78.0.254/24", "dev", "clients"]);
        let holders: Vec<Child> = (0..3)
            .map(|_| {
                Command::new("unshare")
                    .args(["--net", "--", "sh", "-c", "echo; exec sleep 100000"])
                    .stdout(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut net = Self { holders };
        for replica in 0..3 {
            // It has its namespace when it has said so.
            let out = net.holders[replica].stdout.take().unwrap();
            BufReader::new(out).read_line(&mut String::new()).unwrap();
            let pid = net.holders[replica].id().to_string();
            for (bridge, prefix) in [("peers", "10.77.0"), ("clients", "10.78.0")] {
                let outer = format!("{bridge}{replica}");
                let address = format!("{prefix}.{}/24", replica + 1);
                tool(&[
                    "ip", "link", "add", &outer, "type", "veth", "peer", "name", bridge, "netns",
                    &pid,
                ]);
                tool(&["ip", "link", "set", &outer, "master", bridge, "up"]);
                for more in [
                    vec!["addr", "add", &address, "dev", bridge],
                    vec!["link", "set", bridge, "up"],
                    vec!["link", "set", "lo", "up"],
                ] {
                    let enter = ["nsenter", "-t", &pid, "--net", "--", "ip"];
                    tool(&[&enter[..], &more].concat());
                }
            }
        }
        net
    }

    /// Cuts a replica off from the others, or joins it again.
    fn cut(&self, replica: usize, off: bool) {
        let device = format!("peers{replica}");
        tool(&[
            "ip",
            "link",
            "set",
            &device,
            if off { "down" } else { "up" },
        ]);
    }

    fn hosts(&self, name: &str, more: &[&str]) -> Hosts {
        let mut hosts = Hosts::new(name, more);
        for (replica, holder) in self.holders.iter().enumerate() {
            let own = |network: u8, port: u16| {
                SocketAddr::new(
                    IpAddr::from([10, network, 0, u8::try_from(replica + 1).unwrap()]),
                    port,
                )
            };
            hosts.peers[replica] = own(77, 11311).to_string();
            hosts.clients[replica] = own(78, 11211);
            hosts.http[replica] = own(78, 9311);
            hosts.through[replica] = ["nsenter", "-t", &holder.id().to_string(), "--net", "--"]
                .map(str::to_owned)
                .to_vec();
        }
        hosts.keep_data();
        (0..3).for_each(|replica| hosts.start(replica));
        (0..3).for_each(|replica| hosts.wait_ready(replica));
        hosts
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Numbers that depend on their seed alone.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

/// One client and what it has seen.
struct Client {
    number: usize,
    rng: Rng,
    line: Option<BufReader<TcpStream>>,
    seen: Vec<Value>,
    writes: usize,
}

impl Client {
    fn new(number: usize, seed: u64) -> Self {
        Self {
            number,
            rng: Rng(seed.wrapping_mul(1000) + number as u64 + 1),
            line: None,
            seen: Vec::new(),
            writes: 0,
        }
    }

    /// The answer of one request, or nothing.
    fn ask(line: &mut BufReader<TcpStream>, request: &str) -> Option<String> {
        line.get_mut().write_all(request.as_bytes()).ok()?;
        let mut head = String::new();
        line.read_line(&mut head).ok()?;
        let head = head.strip_suffix("\r\n")?;
        if !head.starts_with("VALUE ") {
            return Some(if head == "END" { "MISS" } else { head }.to_owned());
        }
        let mut value = vec![0; head.rsplit(' ').next()?.parse::<usize>().ok()? + 7];
        line.read_exact(&mut value).ok()?;
        let value = value.strip_suffix(b"\r\nEND\r\n")?;
        Some(format!("={}", String::from_utf8_lossy(value)))
    }

    /// One operation on some key at some replica.
    fn step(&mut self, clients: &[SocketAddr], began: Instant) {
        let counts = self.rng.below(4) == 0;
        let key = format!("{}{}", if counts { "n" } else { "k" }, self.rng.below(3));
        self.writes += 1;
        let value = if counts {
            "0".to_owned()
        } else {
            format!("{}.{} ", self.number, self.writes)
        };
        let of_kind = if counts { "incr" } else { "append" };
        let op = ["get", "get", of_kind, of_kind, "set", "delete"][self.rng.below(6)];
        let request = match op {
            "set" | "append" => format!("{op} {key} 0 0 {}\r\n{value}\r\n", value.len()),
            "incr" => format!("incr {key} 1\r\n"),
            _ => format!("{op} {key}\r\n"),
        };
        if self.line.is_none() || self.rng.below(20) == 0 {
            let at = clients[self.rng.below(clients.len())];
            let stream = TcpStream::connect_timeout(&at, Duration::from_millis(300)).ok();
            self.line = stream.and_then(|stream| {
                stream.set_nodelay(true).ok()?;
                stream.set_read_timeout(Some(ANSWER)).ok()?;
                Some(BufReader::new(stream))
            });
        }
        let Some(line) = &mut self.line else { return };
        let now = || u64::try_from(began.elapsed().as_nanos()).unwrap();
        let call = now();
        let out = Self::ask(line, &request);
        // Refused before it was ordered: nothing has happened.
        if out
            .as_ref()
            .is_some_and(|out| out.contains("this replica is"))
        {
            self.line = None;
            return;
        }
        let out = out.filter(|out| !out.starts_with("SERVER_ERROR"));
        let end = out.is_some().then(now);
        if end.is_some() || op != "get" {
            self.seen.push(serde_json::json!({
                "client": self.number, "op": op, "key": key, "value": value, "call": call, "return": end,
                "out": out.unwrap_or_default(),
            }));
        }
        if end.is_none() {
            // Whoever goes on is another client: this one's operation may still be under way.
            self.line = None;
            self.number += CLIENTS;
        }
    }
}

/// Bits of stored values flip in one replica until `over`.
fn flips(at: SocketAddr, replica: usize, rng: &mut Rng, until: Instant) {
    let mut line = Line::to(at);
    while Instant::now() < until {
        let (key, bit) = (
            ["k0", "k1", "k2", "n0", "n1", "n2"][rng.below(6)],
            rng.below(8),
        );
        line.ask(&format!(
            "sf strike replica={replica} object=item:{key} byte=0 bit={bit}\r\n"
        ));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Faults, one after the other, until the time is over; how many of each.
fn faults(hosts: &mut Hosts, net: &Net, rng: &mut Rng, until: Instant) -> [usize; 3] {
    let mut done = [0; 3];
    for kind in (0..3).cycle() {
        if Instant::now() >= until {
            break;
        }
        let replica = rng.below(3);
        let lasts = Duration::from_millis(500 + rng.below(1000) as u64);
        match kind {
            0 => flips(hosts.clients[replica], replica, rng, Instant::now() + lasts),
            1 => {
                hosts.end(replica, "-KILL");
                std::thread::sleep(lasts / 2);
                hosts.start(replica);
            }
            _ => {
                net.cut(replica, true);
                std::thread::sleep(lasts + Duration::from_secs(1));
                net.cut(replica, false);
            }
        }
        (0..3).for_each(|replica| hosts.wait_ready(replica));
        done[kind] += 1;
    }
    done
}

/// What several clients see of a group until the time is over, and what was done to it.
fn record(hosts: &mut Hosts, net: &Net, seed: u64, lasts: Duration) -> (Vec<Value>, [usize; 3]) {
    let began = Instant::now();
    let over = AtomicBool::new(false);
    let clients = hosts.clients.clone();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let (over, clients) = (&over, &clients);
                scope.spawn(move || {
                    let mut client = Client::new(number, seed);
                    while !over.load(Ordering::Relaxed) {
                        client.step(clients, began);
                        // So that a search for an order ends.
                        std::thread::sleep(Duration::from_millis(8));
                    }
                    client.seen
                })
            })
            .collect();
        let done = faults(hosts, net, &mut Rng(seed + 77), began + lasts);
        over.store(true, Ordering::Relaxed);
        let seen = all.into_iter().flat_map(|client| client.join().unwrap());
        (seen.collect(), done)
    })
}

/// Runs a test of this file again where it may make networks.
fn inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    let own = std::env::current_exe().unwrap();
    // Who judges many is told of each as it ends.
    let many = number("KV_HISTORIES", 1) > 1;
    let told = if many {
        Stdio::inherit()
    } else {
        Stdio::piped()
    };
    let out = command
        .args(["--net", "--mount", "--"])
        .arg(own)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .stderr(told)
        .output()
        .expect("unshare is installed");
    assert!(
        out.status.success(),
        "{}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    eprint!("{}", text(&out.stderr));
    false
}

#[test]
fn every_history_under_crashes_cuts_and_flips_has_an_order() {
    let judge = go_program("judge");
    if !inside("history::every_history_under_crashes_cuts_and_flips_has_an_order") {
        return;
    }
    let net = Net::new();
    let lasts = Duration::from_secs(number("KV_HISTORY_S", 8));
    let seed = number("KV_SEED", 20);
    for seed in seed..seed + number("KV_HISTORIES", 1) {
        let mut hosts = net.hosts("history", &["--snapshot-every", "300"]);
        let (history, [flips, kills, cuts]) = record(&mut hosts, &net, seed, lasts);
        let repairs = hosts.count("\"event\":\"repaired\"");
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{seed}"));
        let (code, said) = judged(&judge, &history, &kept.with_extension("html"));
        eprintln!(
            "seed {seed}: {}, {flips} replicas with flips ({repairs} repairs), {kills} killed, {cuts} cut off",
            said.trim_end()
        );
        if code != Some(0) {
            let lines: Vec<String> = history.iter().map(ToString::to_string).collect();
            fs::write(kept.with_extension("jsonl"), lines.join("\n")).unwrap();
        }
        assert_eq!(code, Some(0), "KV_SEED={seed}: see {}.*", kept.display());
        assert!(history.len() > 100, "{} operations", history.len());
        assert!(flips > 0 && kills > 0 && cuts > 0 && repairs > 0);
    }
}

#[test]
fn a_read_that_asks_nobody_is_found_out_where_its_replica_is_cut_off() {
    let judge = go_program("judge");
    if !inside("history::a_read_that_asks_nobody_is_found_out_where_its_replica_is_cut_off") {
        return;
    }
    let net = Net::new();
    let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plain.html");
    for (reads, verdict) in [("plain", Some(1)), ("local", Some(0))] {
        let hosts = net.hosts("plain", &["--reads", reads]);
        let leader = usize::try_from(hosts.status(0)["leader"].as_u64().unwrap()).unwrap();
        let alone = (leader + 1) % 3;
        let began = Instant::now();
        let now = || u64::try_from(began.elapsed().as_nanos()).unwrap();
        let mut history = Vec::new();
        let mut old = hosts.connect(alone);
        let set = |value: &str| {
            let call = now();
            hosts.connect(leader).set("k", value);
            op("set", value, call, Some(now()), "STORED")
        };
        history.push(set("old"));
        hosts.wait("it has the value", || old.get("k") == "old");
        net.cut(alone, true);
        history.push(set("new"));
        let call = now();
        old.0
            .get_mut()
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        if let Some(out) = Client::ask(&mut old.0, "get k\r\n") {
            history.push(op("get", "", call, Some(now()), &out));
        }
        net.cut(alone, false);
        let (code, said) = judged(&judge, &history, &picture);
        assert_eq!(code, verdict, "--reads {reads}: {said} {history:?}");
    }
}
