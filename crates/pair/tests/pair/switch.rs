//! An operator has the two sites exchange roles, or takes one out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::join::{Told, alone, flags};
use crate::sites::*;
use crate::tree::program;

/// Status, and what the command says.
pub(crate) fn order(what: &str, of: &Child) -> (Option<i32>, String) {
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
pub(crate) fn two_at(address: &str, site: &Site, dir: &std::path::Path) -> (Told, Told) {
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

/// One process writes all the time, and starts a program every few lines: in between it can be given to another site.
const CREW: &str = "(n=0; while :; do echo one >>log; n=$((n+1)); [ $((n % 20)) != 0 ] || sleep 0.02; done) & \
    while read q; do echo $q; done; kill $! 2>/dev/null; wait $!; exit 0";

fn writes(site: &Child) {
    let path = format!("/proc/{}/root/mnt/data/log", site.id());
    let len = || fs::metadata(&path).map_or(0, |meta| meta.len());
    let (before, deadline) = (len(), Instant::now() + LIMIT);
    while len() == before {
        assert!(Instant::now() < deadline, "it does not write");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// As on a busy host: the other site's program comes to a halt later than a site is waited for that says nothing.
#[test]
fn a_site_that_is_slow_to_lead_is_waited_for() {
    let dir = with_table("switch-slow");
    let said = seed("switch-slow-said");
    let address = format!("127.0.0.1:{}", free_port());
    let listen = ["--listen", address.as_str(), "--lost-after", "500"];
    let mut b = Told::start(&sqlite_site(&dir), "secondary", &listen, &said, "b");
    let to = ["--peer", address.as_str(), "--lost-after", "500"];
    let mut a = Told::start(&sqlite_site(&dir), "primary", &to, &said, "a");
    assert_eq!(a.ask(CHANGE), "200");
    let stopped = program(&b.child);
    let signal = |signal| {
        for pid in &stopped {
            steadfast_sys::child::kill(pid.cast_signed(), signal);
        }
    };
    // It has done what the other one has.
    std::thread::sleep(Duration::from_millis(300));
    signal(libc::SIGSTOP);
    let answer = std::thread::scope(|scope| {
        let asked = scope.spawn(|| order("detach", &a.child));
        std::thread::sleep(Duration::from_millis(1500));
        signal(libc::SIGCONT);
        asked.join().expect("it answers")
    });
    let right = (Some(0), "the other site leads".to_owned());
    assert_eq!(answer, right, "{}{}", a.said(), b.said());
    assert_eq!(b.ask(CHANGE), "400");
    assert_eq!(a.end().0, Some(0));
    let (status, told) = b.end();
    assert_eq!(status, Some(0), "{told}");
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

#[test]
fn the_sites_exchange_roles_with_all_processes_of_a_program_and_once_more() {
    let dir = with_table("switch-crew");
    let said = seed("switch-crew-said");
    let site = Site {
        command: ["/bin/sh", "-c", CREW].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let [address, door] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let to = ["--listen", address.as_str(), "--peer", door.as_str()];
    let mut b = Told::start(&site, "secondary", &to, &said, "b");
    let to = ["--peer", address.as_str(), "--listen", door.as_str()];
    let mut a = Told::start(&site, "primary", &to, &said, "a");
    assert_eq!(a.ask("begun"), "begun");
    writes(&a.child);
    let leads = "the primary has handed its program over; this site leads";
    let exchange = |from: &Told, to: &mut Told, question: &str| {
        let began = Instant::now();
        let (status, line) = order("switch", &from.child);
        let answer = (status, line.as_str());
        assert_eq!(answer, (Some(0), "the other site leads"), "{}", from.said());
        // A process that waits for the end of one that nobody ends is waited for so long (site.rs, `kill`).
        assert!(began.elapsed() < Duration::from_secs(5), "{}", from.said());
        to.wait_for(leads);
        to.wait_for("the other site is back");
        from.wait_for("this site has joined");
        assert_eq!(to.ask(question), question, "{}", to.said());
        writes(&to.child);
        writes(&from.child);
    };
    exchange(&a, &mut b, "there");
    exchange(&b, &mut a, "here");
    // Standard input of each site is its own.
    drop(a.child.stdin.take());
    let (status, told) = a.end();
    assert_eq!(status, Some(0), "{told}");
    let (status, told) = b.end();
    assert_eq!(status, Some(0), "{told}");
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

/// It has started another program, which it ends when it is told to.
const STARTS: &str = "sleep 1000 & while read q; do [ $q != alone ] || { kill $!; wait $!; }; echo $q; done; kill $! 2>/dev/null; exit 0";

#[test]
fn a_site_that_joins_waits_while_a_process_is_another_program() {
    let dir = with_table("switch-waits");
    let said = seed("switch-waits-said");
    let site = Site {
        command: ["/bin/sh", "-c", STARTS].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let address = format!("127.0.0.1:{}", free_port());
    let (mut a, mut b) = two_at(&address, &site, &said);
    assert_eq!(a.ask("begun"), "begun");
    let (status, line) = order("detach", &a.child);
    let answer = (status, line.as_str());
    assert_eq!(answer, (Some(0), "the other site leads"), "{}", a.said());
    b.wait_for("the primary has handed its program over; this site leads");
    assert_eq!(a.end().0, Some(0));
    assert_eq!(b.ask("here"), "here", "{}", b.said());

    let join = |name| {
        let to = ["--peer", address.as_str()];
        Told::start(&site, "join", &to, &said, name)
    };
    // One that dies meanwhile is in nobody's way.
    let waits = "of the program has become another one (execve)";
    let mut c = join("c");
    b.wait_for(waits);
    c.kill();
    b.wait_for("did not join");
    let mut d = join("d");
    b.wait_for_n(waits, 3);
    assert_eq!(b.ask("waits"), "waits", "{}", b.said());
    assert_eq!(b.ask("alone"), "alone", "{}", b.said());
    b.wait_for("the other site is back");
    assert_eq!(b.ask("both"), "both");
    assert_eq!(order("detach", &b.child).0, Some(0), "{}", b.said());
    assert_eq!(d.ask("there"), "there", "{}", d.said());
    assert_eq!([b.end().0, d.end().0], [Some(0); 2]);
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

/// A process becomes another program all the time: most often it is on its way when it is to stand.
#[test]
fn a_process_that_becomes_another_program_stands_as_that() {
    let dir = with_table("switch-becomes");
    fs::write(dir.join("again"), "exec sh ./again\n").expect("a file");
    let said = seed("switch-becomes-said");
    let words = "sh ./again & while read q; do echo $q; done; kill $!; exit 0";
    let site = Site {
        command: ["/bin/sh", "-c", words].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let (mut a, mut b) = two(&site, &said);
    assert_eq!(a.ask("begun"), "begun");
    let answer = order("detach", &a.child);
    let right = (Some(0), "the other site leads".to_owned());
    assert_eq!(answer, right, "{}{}", a.said(), b.said());
    assert_eq!(b.ask("there"), "there", "{}", b.said());
    assert_eq!(a.end().0, Some(0));
    let (status, told) = b.end();
    assert_eq!(status, Some(0), "{told}");
    for dir in [dir, said] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

/// It keeps what the one before has set for its process: rights that it gave up, limits.
#[test]
fn a_program_that_has_become_another_one_is_joined_and_goes_on_as_what_it_is() {
    let dir = with_table("switch-became");
    for path in [dir.clone(), dir.join("x.db")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("a mode");
    }
    let witness = Witness::new("switch-became");
    let rights = if is_root() {
        "setpriv --reuid 1 --regid 1 --clear-groups --no-new-privs"
    } else {
        "setpriv --no-new-privs"
    };
    let words = format!("ulimit -c 1234; umask 027; exec {rights} sqlite3 -batch x.db");
    let site = Site {
        command: ["/bin/sh".into(), "-c".into(), words].to_vec(),
        ..sqlite_site(&dir)
    };
    let said = witness.flags(2000);
    let (mut a, door) = alone(&site, &witness, &said);
    let facts = |site: &Told| {
        let pid = program(&site.child).into_iter().find(|pid| {
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("sqlite3"))
        });
        let pid = pid.expect("it is sqlite3");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
        let names = [
            "Name:",
            "Umask:",
            "Uid:",
            "Gid:",
            "Groups:",
            "CapEff:",
            "NoNewPrivs:",
            "Max core",
        ];
        let told = status.lines().chain(limits.lines());
        let wanted = |line: &&str| names.iter().any(|name| line.starts_with(name));
        told.filter(wanted).map(str::to_owned).collect::<Vec<_>>()
    };
    let right = facts(&a);
    assert!(
        right.iter().any(|line| line.contains("631808")),
        "{right:?}"
    );
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&site, "join", &to, &witness.0, "c");
    a.wait_for("the other site is back");
    assert_eq!(a.ask(CHANGE), "400");
    a.kill();
    assert_eq!(c.ask_after_loss("SELECT count(*) FROM t;"), "400");
    assert_eq!(c.ask("PRAGMA integrity_check;"), "ok");
    assert_eq!(facts(&c), right);
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// Most of the time there is a child.
#[test]
fn a_program_whose_processes_come_and_go_is_joined_between_two_of_them() {
    const GOES: &str = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); (echo $i >>log); done; read q; tail -1 log; wc -l <log";
    let dir = with_table("switch-goes");
    let witness = Witness::new("switch-goes");
    let site = Site {
        command: ["/bin/sh", "-c", GOES].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let said = witness.flags(2000);
    let [first, door] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let listen = flags(&said, &["--listen", &first]);
    let mut b = Told::start(&site, "secondary", &listen, &witness.0, "b");
    let to = flags(&said, &["--peer", &first, "--listen", &door]);
    let mut a = Told::start(&site, "primary", &to, &witness.0, "a");
    writes(&a.child);
    b.kill();
    a.wait_for("this site goes on alone");
    let join = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&site, "join", &join, &witness.0, "c");
    a.wait_for("the other site is back");
    a.kill();
    assert_eq!(c.ask("?"), "300", "{}", c.said());
    assert_eq!(c.line(), "300", "each has written once: {}", c.said());
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
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
