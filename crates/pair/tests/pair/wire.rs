//! What is on the wire when an address moves: the one who has it now says so, and nobody else.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::sites::*;

/// The client's host of a demo: all its network goes through there.
fn client_of(demo: u32) -> u32 {
    let deadline = Instant::now() + LIMIT;
    loop {
        let children = fs::read_to_string(format!("/proc/{demo}/task/{demo}/children"));
        let found = children.unwrap_or_default().split(' ').find_map(|pid| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            let is_it = line.contains("demo-host\0--site\0c\0");
            let bridge = format!("/proc/{pid}/net/dev");
            let up = || fs::read_to_string(bridge).is_ok_and(|all| all.contains("steadfast-c"));
            (is_it && up()).then(|| pid.parse().expect("a number"))
        });
        if let Some(found) = found {
            return found;
        }
        assert!(Instant::now() < deadline, "the demo has no client");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Who has announced 10.97.0.5 while a demo ran, in order; and what it said.
fn announced(name: &str, flags: &[&str]) -> (Vec<String>, String) {
    let dir = seed(&format!("wire-{name}"));
    let arp = built(&dir, "arp");
    let demo = Command::new(pair())
        .args(["demo", "--turns"])
        .args(flags)
        .arg("--")
        .arg(built(&dir, "sink"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let client = client_of(demo.id()).to_string();
    let mut listener = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "nsenter", "-t", &client, "-n"])
        .arg(arp)
        .arg("10.97.0.5")
        .stdout(Stdio::piped())
        .spawn()
        .expect("nsenter is installed");
    let mut lines = BufReader::new(listener.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("it listens").expect("text");
    assert_eq!(first, "listens");
    let output = demo.wait_with_output().expect("it ends");
    listener.kill().expect("a child");
    listener.wait().expect("a child");
    let all = lines.map_while(Result::ok).collect();
    fs::remove_dir_all(dir).expect("clean");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    (all, said)
}

/// Two hosts that answer to one address would be each other's clients' loss.
#[test]
fn the_address_goes_with_a_site_that_is_killed_and_no_sooner() {
    if !is_root() {
        return; // networks of their own
    }
    let dir = with_table("wire-killed");
    let flags = |address: &str| ["--hold-acks", "on", "--address", address].map(str::to_owned);
    side_by_side(&["10.98.0.5/24@v", "fd98::5/64@v"], |address| {
        let witness = Witness::new(&format!("wire-{}", &address[..4]));
        let more = flags(address);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let (mut both, cables) = cabled(&sqlite_site(&dir), &witness, 2000, &more);
        let has = |at: usize| {
            let all = cables.ip(at, "-o address show dev v");
            all.contains(&address[..address.len() - 2])
        };
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
        assert_eq!([has(0), has(1)], [true, false]);
        both.a.kill().expect("a child");
        let deadline = Instant::now() + LIMIT;
        while [has(0), has(1)] != [false, true] {
            assert!(
                Instant::now() < deadline,
                "{address}: {:?}",
                [has(0), has(1)]
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        // By itself it takes it away as well.
        drop(both.b.stdin.take());
        both.wait();
        assert_eq!([has(0), has(1)], [false, false]);
        assert_eq!(both.end().b.status.code(), Some(0));
    });
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_site_that_takes_the_address_over_announces_it_and_one_that_does_not_is_silent() {
    if !is_root() {
        return; // namespaces and packets
    }
    let (all, said) = announced("power", &["--lose", "power", "--lost-at", "220"]);
    assert!(said.contains("with 1 connections (0 cut)"), "{said}");
    assert_eq!(all.len(), 2, "A at its start, then B: {all:?}, {said}");
    // The roles go to B and back to A: both have said so before the second time.
    let (all, said) = announced("turns", &[]);
    assert_eq!(all.len(), 2, "{all:?}, {said}");
}
