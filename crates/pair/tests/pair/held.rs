//! A client sends, and the host that leads is lost: what was acknowledged is not lost with it.
//!
//! A demo has namespaces and images of its own, and waits most of the time: those of a test run side by side.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sites::*;

/// One thread that reads, and several that hand on what they have read.
const SINK: &[&str] = &["sink"];
const CREW: &[&str] = &["crew", "serve"];
/// One that has each connection by two descriptors.
const TWICE: &[&str] = &["sink", "twice"];

/// How the demo ended, and what it said.
fn turns(name: &str, flags: &[&str], server: &[&str]) -> (Option<i32>, String) {
    let dir = seed(&format!("held-{name}"));
    let output = Command::new(pair())
        .args(["demo", "--turns"])
        .args(flags)
        .arg("--")
        .arg(built(&dir, server[0]))
        .args(&server[1..])
        .output()
        .expect("it runs");
    fs::remove_dir_all(dir).expect("clean");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), said)
}

/// A demo whose first host is lost.
struct Loss {
    how: &'static str,
    /// How long after its start, in milliseconds.
    at_ms: &'static str,
    server: &'static [&'static str],
}

fn loss(how: &'static str, at_ms: &'static str, server: &'static [&'static str]) -> Loss {
    Loss { how, at_ms, server }
}

impl Loss {
    /// The other host goes on with the one connection. What it says.
    fn goes_on(&self) -> String {
        let name = format!("{}-{}", self.how, self.server.last().expect("a program"));
        let flags = ["--lose", self.how, "--lost-at", self.at_ms];
        let (status, said) = turns(&name, &flags, self.server);
        assert_eq!(status, Some(0), "{name}: {said}");
        assert!(
            said.contains("with 1 connections (0 cut)"),
            "{name}: {said}"
        );
        said
    }
}

#[test]
fn bytes_that_the_lost_host_has_acknowledged_are_at_the_other_one() {
    if !is_root() {
        return; // namespaces, loop devices and CAP_NET_ADMIN; shown.rs asserts that the demo is refused
    }
    let losses = [
        loss("power", "57", SINK),
        loss("cable", "220", SINK),
        loss("freeze", "400", SINK),
        loss("power", "220", CREW),
    ];
    side_by_side(&losses, |loss| drop(loss.goes_on()));
    let program = format!("{}-held-freeze-sink/", std::process::id());
    assert_eq!(running(&program), 0, "nothing is left behind");
}

/// A child that has inherited the connection reads from it, or a worker that has accepted it.
#[test]
fn what_a_child_of_the_server_has_not_read_is_at_the_other_host() {
    if !is_root() {
        return;
    }
    let losses = [
        loss("power", "57", &["sink", "fork"]),
        loss("cable", "220", &["sink", "fork"]),
        loss("power", "220", &["sink", "worker"]),
        loss("freeze", "400", &["sink", "worker"]),
    ];
    side_by_side(&losses, |loss| {
        let said = loss.goes_on();
        assert!(!said.contains("not held back"), "{said}");
    });
}

/// A server that has duplicated the connection, and reads now from one, now from the other.
#[test]
fn a_connection_that_the_program_has_by_two_descriptors_goes_on() {
    if !is_root() {
        return;
    }
    let losses = [
        loss("power", "57", TWICE),
        loss("cable", "220", TWICE),
        loss("freeze", "600", TWICE),
    ];
    side_by_side(&losses, |loss| drop(loss.goes_on()));
}

/// On a machine that is busy the server may have read all that has come when its host is lost; not each time.
fn loses(name: &str, flags: &[&str], server: &[&str]) {
    let lost = AtomicBool::new(false);
    side_by_side(&[1, 2, 3], |round| {
        let (status, said) = turns(&format!("{name}-{round}"), flags, server);
        if status == Some(1) {
            assert!(said.contains("bytes were lost or changed"), "{said}");
            lost.store(true, Ordering::SeqCst);
            return;
        }
        assert_eq!(status, Some(0), "{said}");
    });
    assert!(lost.load(Ordering::SeqCst), "nothing was lost");
}

/// Processes whose command line has this.
fn running(what: &str) -> usize {
    let lines = fs::read_dir("/proc").expect("mounted");
    lines
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(what))
        .count()
}

#[test]
fn what_was_acknowledged_before_a_site_joined_is_at_that_site() {
    if !is_root() {
        return;
    }
    side_by_side(&[SINK, CREW, TWICE], |server| {
        let flags = ["--lost-joined", "--lost-after", "2000"];
        let (status, said) = turns(&format!("joined-{}", server.concat()), &flags, server);
        assert_eq!(status, Some(0), "{said}");
        assert!(
            said.contains("goes on alone, as the witness says, with 1 connections"),
            "{said}"
        );
    });
}

#[test]
fn acknowledgements_that_are_not_held_back_lose_what_the_program_had_not_read() {
    if !is_root() {
        return;
    }
    loses("off", &["--lost-at", "57", "--hold-acks", "off"], SINK);
}

#[test]
fn by_ipv6_the_same_bytes_are_at_the_other_host() {
    if !is_root() {
        return;
    }
    const SIX: [&str; 2] = ["sink", "six"];
    side_by_side(
        &[
            ("power", &["--lost-at", "57"][..]),
            ("cable", &["--lost-at", "220"]),
            ("switch", &["--lost-joined", "--lost-after", "2000"]),
            ("off", &["--lost-at", "57", "--hold-acks", "off"]),
        ],
        |(how, flags)| {
            let lose = if *how == "cable" { "cable" } else { "power" };
            let flags = [&["--six", "--lose", lose], *flags].concat();
            if *how == "off" {
                return loses("six-off", &flags, &SIX);
            }
            let (status, said) = turns(&format!("six-{how}"), &flags, &SIX);
            assert_eq!(status, Some(0), "{how}: {said}");
            assert!(said.contains("with 1 connections"), "{how}: {said}");
        },
    );
}
