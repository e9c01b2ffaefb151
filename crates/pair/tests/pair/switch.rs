//! An operator has the two sites exchange roles, or takes one out.

use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::join::Told;
use crate::sites::*;

/// Status, and what the command says.
fn order(what: &str, of: &Child) -> (Option<i32>, String) {
    let ledger = format!("/proc/{}/root/mnt/ledger", of.id());
    let output = Command::new(pair())
        .args([what, "--ledger", &ledger])
        .output()
        .expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).trim().to_owned(),
    )
}

fn two(site: &Site, dir: &std::path::Path) -> (Told, Told) {
    let address = format!("127.0.0.1:{}", free_port());
    two_at(&address, site, dir)
}

/// The secondary, where another site can join it later.
fn two_at(address: &str, site: &Site, dir: &std::path::Path) -> (Told, Told) {
    let door = format!("127.0.0.1:{}", free_port());
    let b = Told::start(site, "secondary", &["--listen", address], dir, "b");
    let to = ["--peer", address, "--listen", door.as_str()];
    (Told::start(site, "primary", &to, dir, "a"), b)
}

#[test]
fn the_sites_exchange_roles_the_first_one_follows_and_leads_again_when_the_other_leaves() {
    let dir = with_table("switch");
    let said = seed("switch-said");
    let (mut a, mut b) = two(&sqlite_site(&dir), &said);
    assert_eq!(a.ask(CHANGE), "200");
    let (status, line) = order("switch", &b.child);
    assert_eq!(status, Some(1), "{line}");
    assert!(line.contains("ask the one that leads"), "{line}");
    assert_eq!(a.ask("SELECT count(*) FROM t;"), "200", "as before");

    let (status, line) = order("switch", &a.child);
    assert_eq!((status, line.as_str()), (Some(0), "the other site leads"));
    b.wait_for("the primary has handed its program over; this site leads");
    assert_eq!(b.ask(CHANGE), "400");
    a.wait_for("this site has joined");
    b.wait_for("the other site is back");
    assert_eq!(b.ask("PRAGMA integrity_check;"), "ok");

    let (status, line) = order("switch", &b.child);
    assert_eq!(status, Some(1), "{line}");
    assert!(line.contains("has no port"), "{line}");
    let (status, line) = order("detach", &b.child);
    assert_eq!((status, line.as_str()), (Some(0), "the other site leads"));
    assert_eq!(b.end().0, Some(0));
    assert_eq!(a.ask(CHANGE), "800");
    assert_eq!(a.ask("PRAGMA integrity_check;"), "ok");
    let (status, told) = a.end();
    assert_eq!(status, Some(0), "{told}");
    assert!(!told.contains("lost"), "{told}");
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

/// One process writes all the time, and is told to end by a line.
const CREW: &str = "(while :; do echo one >>log; sleep 0.02; done) & \
    while read q; do [ $q != alone ] || { kill $!; wait $!; }; echo $q; done; kill $! 2>/dev/null; exit 0";

fn writes(site: &Child) {
    let path = format!("/proc/{}/root/mnt/data/log", site.id());
    let len = || fs::metadata(&path).map_or(0, |meta| meta.len());
    let (before, deadline) = (len(), Instant::now() + LIMIT);
    while len() == before {
        assert!(Instant::now() < deadline, "it does not write");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn several_processes_are_handed_over_and_are_joined_when_one_is_left() {
    let dir = with_table("switch-crew");
    let said = seed("switch-crew-said");
    let site = Site {
        command: ["/bin/sh", "-c", CREW].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let address = format!("127.0.0.1:{}", free_port());
    let (mut a, mut b) = two_at(&address, &site, &said);
    assert_eq!(a.ask("begun"), "begun");
    writes(&a.child);
    let (status, line) = order("switch", &a.child);
    assert_eq!(status, Some(1), "{line}");
    assert!(line.contains("has more than one process"), "{line}");
    assert!(line.contains("Detach it"), "{line}");
    assert_eq!(a.ask("on"), "on");
    let (status, line) = order("detach", &a.child);
    let answer = (status, line.as_str());
    assert_eq!(answer, (Some(0), "the other site leads"), "{}", a.said());
    b.wait_for("the primary has handed its program over; this site leads");
    let (status, told) = a.end();
    assert_eq!(status, Some(0), "{told}");
    assert_eq!(b.ask("here"), "here", "{}", b.said());
    writes(&b.child);

    let join = |name| {
        let to = ["--peer", address.as_str()];
        Told::start(&site, "join", &to, &said, name)
    };
    let (status, told) = join("c").end();
    assert_eq!(status, Some(121), "{told}");
    assert!(told.contains("has more than one process"), "{told}");
    assert_eq!(b.ask("alone"), "alone", "{}", b.said());
    let mut d = join("d");
    b.wait_for("the other site is back");
    assert_eq!(b.ask("both"), "both");
    assert_eq!(order("detach", &b.child).0, Some(0), "{}", b.said());
    assert_eq!(d.ask("there"), "there", "{}", d.said());
    assert_eq!([b.end().0, d.end().0], [Some(0); 2]);
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

#[test]
fn what_a_client_has_sent_and_nobody_has_read_goes_along() {
    if !is_root() {
        return; // namespaces, loop devices and CAP_NET_ADMIN; shown.rs asserts that the demo is refused
    }
    let dir = seed("sink");
    let output = Command::new(pair())
        .args(["demo", "--turns", "--lost-after", "2000", "--"])
        .arg(built(&dir, "sink"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("the server has read what was sent"), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_site_that_follows_leaves_and_the_other_one_goes_on_without_a_witness() {
    let dir = with_table("detach");
    let said = seed("detach-said");
    let (mut a, b) = two(&sqlite_site(&dir), &said);
    assert_eq!(a.ask(CHANGE), "200");
    assert_eq!(order("detach", &b.child).0, Some(0));
    assert_eq!(b.end().0, Some(0));
    assert_eq!(a.ask(CHANGE), "400");
    a.wait_for("the secondary has left, as it was asked to; this site goes on alone");
    let (status, line) = order("detach", &a.child);
    assert_eq!(status, Some(1), "{line}");
    assert!(line.contains("this site is alone"), "{line}");
    assert_eq!(a.ask("PRAGMA integrity_check;"), "ok");
    assert_eq!(a.end().0, Some(0));
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}
