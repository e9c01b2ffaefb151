//! Clients that others have written, against one group and over several.
//!
//! Not covered: dalli, whose version in Debian speaks the binary protocol alone.

use std::path::Path;

use super::tools::go_program;
use super::*;

/// A client of tests/clients, with the interpreter that Debian's package of it is for.
fn script(interpreter: &str, name: &str) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/clients")
            .join(name),
    );
    command
}

fn succeeds(mut client: Command, servers: &[String]) {
    let out = client.args(servers).output().expect("scripts/setup test");
    assert!(
        out.status.success() && text(&out.stdout) == "ok\n",
        "{client:?}: {}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
}

fn strike(group: &Group, key: &str) {
    let said = group.strike(&format!("replica=1 object=item:{key} byte=8 bit=3"));
    assert!(said.status.success(), "{}", text(&said.stderr));
}

#[test]
fn clients_of_others_are_answered_as_by_memcached_and_rightly_behind_a_flip() {
    let group = Group::start(&[]);
    group.connect(0).set("struck", "balance 1000");
    let at = vec![group.clients[1].to_string()];
    for client in [
        script("/usr/bin/python3", "pymemcache_.py"),
        script("/usr/bin/python3", "pylibmc_.py"),
        Command::new(go_program("gomemcache")),
    ] {
        strike(&group, "struck");
        succeeds(client, &at);
        assert_eq!(group.event("repaired")["object"], "item:struck");
    }
}

/// nutcracker in front of some servers.
struct Proxy {
    child: Child,
    at: SocketAddr,
}

impl Proxy {
    fn start(servers: &[String]) -> Self {
        let at = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let file = std::env::temp_dir().join(format!("nutcracker-{}.yml", at.port()));
        let list: String = servers.iter().map(|at| format!("    - {at}:1\n")).collect();
        let conf = format!(
            "kv:\n  listen: {at}\n  hash: md5\n  distribution: ketama\n  timeout: 30000\n  auto_eject_hosts: false\n  servers:\n{list}"
        );
        std::fs::write(&file, conf).unwrap();
        let child = Command::new("nutcracker")
            .args([
                "--stats-port",
                &port.to_string(),
                "--stats-addr",
                "127.0.0.1",
                "--conf-file",
            ])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn()
            .expect("nutcracker is installed: scripts/setup test");
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(at).is_err() {
            assert!(Instant::now() < end, "nutcracker listens");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::fs::remove_file(file).unwrap();
        Self { child, at }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_spread_over_two_groups_each_of_which_votes_on_its_own() {
    let groups = [Group::start(&[]), Group::start(&[])];
    let servers: Vec<String> = groups
        .iter()
        .map(|group| group.clients[1].to_string())
        .collect();
    let proxy = Proxy::start(&servers);
    let mut line = Line::to(proxy.at);
    for i in 0..200 {
        line.set(&format!("k{i}"), &format!("balance {i}000"));
    }
    let items = groups
        .each_ref()
        .map(|group| group.status(0)["items"].as_u64().unwrap());
    assert_eq!(items.iter().sum::<u64>(), 200);
    assert!(items.iter().all(|items| *items > 50), "{items:?}");
    // In each group one of its keys is struck, and read through the proxy.
    for group in &groups {
        let own = (0..200)
            .find(|i| group.connect(0).get(&format!("k{i}")) != "END")
            .unwrap();
        strike(group, &format!("k{own}"));
        assert_eq!(line.get(&format!("k{own}")), format!("balance {own}000"));
        assert_eq!(group.event("repaired")["replica"], 1);
    }
    // A client that spreads by itself.
    let lib = script("/usr/bin/python3", "pylibmc_.py");
    for group in &groups {
        group.connect(0).set("struck", "balance 1000");
    }
    succeeds(lib, &servers);
    let more = groups
        .each_ref()
        .map(|group| group.status(0)["items"].as_u64().unwrap());
    assert!(
        more[0] > items[0] + 10 && more[1] > items[1] + 10,
        "{more:?}"
    );
}
