//! A client sends, and the host that leads is lost: what was acknowledged is not lost with it.
//!
//! A demo has namespaces and images of its own, and waits most of the time: those of a test run side by side.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sites::*;

/// One thread that reads, and several that hand on what they have read.
const SINK: [&str; 1] = ["sink"];
const CREW: [&str; 2] = ["crew", "serve"];

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

#[test]
fn bytes_that_the_lost_host_has_acknowledged_are_at_the_other_one() {
    if !is_root() {
        return; // namespaces, loop devices and CAP_NET_ADMIN; shown.rs asserts that the demo is refused
    }
    side_by_side(
        &[
            ("power", "57", &SINK[..]),
            ("cable", "220", &SINK),
            ("freeze", "400", &SINK),
            ("power", "220", &CREW),
        ],
        |(how, moment, server)| {
            let name = format!("{how}-{}", server[0]);
            let (status, said) = turns(&name, &["--lose", how, "--lost-at", moment], server);
            assert_eq!(status, Some(0), "{name}: {said}");
            assert!(
                said.contains("with 1 connections (0 cut)"),
                "{name}: {said}"
            );
        },
    );
    let program = format!("{}-held-freeze-sink/", std::process::id());
    assert_eq!(running(&program), 0, "nothing is left behind");
}

/// A child that has inherited the connection reads from it, or a worker that has accepted it.
#[test]
fn what_a_child_of_the_server_has_not_read_is_at_the_other_host() {
    if !is_root() {
        return;
    }
    side_by_side(
        &[
            ("power", "57", "fork"),
            ("cable", "220", "fork"),
            ("power", "220", "worker"),
            ("freeze", "400", "worker"),
        ],
        |(how, moment, server)| {
            let name = format!("{server}-{how}");
            let flags = ["--lose", how, "--lost-at", moment];
            let (status, said) = turns(&name, &flags, &["sink", server]);
            assert_eq!(status, Some(0), "{name}: {said}");
            assert!(
                said.contains("with 1 connections (0 cut)"),
                "{name}: {said}"
            );
            assert!(!said.contains("not held back"), "{name}: {said}");
        },
    );
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
    side_by_side(&[&SINK[..], &CREW], |server| {
        let flags = ["--lost-joined", "--lost-after", "2000"];
        let (status, said) = turns(&format!("joined-{}", server[0]), &flags, server);
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
    loses("off", &["--lost-at", "57", "--hold-acks", "off"], &SINK);
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
