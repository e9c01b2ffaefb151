//! A program of several processes: a site joins it, and goes on with all of them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::join::{Told, flags};
use crate::servers::{event, get, get_at_last, nginx, page, prefork, strike_at, with_page};
use crate::sites::*;
use crate::switch::order;
use crate::tree::program;

/// A primary that is alone, and where it lets others in.
pub(crate) fn left_alone(
    sites: &[Site; 2],
    hosts: [&str; 2],
    said: &[String; 4],
    dir: &Path,
) -> (Told, String) {
    let addresses = hosts.map(|host| format!("{host}:{}", free_port()));
    let a = left_alone_at(sites, &addresses, said, dir);
    let [door, _] = addresses;
    (a, door)
}

/// The same, by the addresses of both.
pub(crate) fn left_alone_at(
    sites: &[Site; 2],
    [door, first]: &[String; 2],
    said: &[String; 4],
    dir: &Path,
) -> Told {
    let listen = flags(said, &["--listen", first]);
    let mut b = Told::start(&sites[1], "secondary", &listen, dir, "b");
    let to = flags(said, &["--peer", first, "--listen", door]);
    let a = Told::start(&sites[0], "primary", &to, dir, "a");
    let runs = |site: &Told| {
        let orders = format!("/proc/{}/root/mnt/ledger/control", site.child.id());
        Path::new(&orders).exists()
    };
    let deadline = std::time::Instant::now() + LIMIT;
    while !runs(&a) || !runs(&b) {
        assert!(
            std::time::Instant::now() < deadline,
            "{}{}",
            a.said(),
            b.said()
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    b.kill();
    a.wait_for("this site goes on alone");
    a
}

pub(crate) fn joins(
    a: &Told,
    site: &Site,
    door: &str,
    said: &[String; 4],
    dir: &Path,
    n: usize,
) -> Told {
    let to = flags(said, &["--peer", door]);
    let c = Told::start(site, "join", &to, dir, &format!("c{n}"));
    a.wait_for_n("the other site is back", n);
    c.wait_for("this site has joined");
    c
}

/// Nginx with two workers; Apache with a process a client, and with processes of many threads.
#[test]
fn servers_of_several_processes_are_joined_and_serve_on_when_the_site_that_led_is_lost() {
    type Configure = fn(&Path, u16) -> Vec<String>;
    let all: [(&str, Configure); 3] = [("nginx", nginx), ("prefork", prefork), ("event", event)];
    side_by_side(&all, |(name, configure)| is_joined(name, configure));
}

/// While a client asks all the time.
fn is_joined(name: &str, configure: impl Fn(&Path, u16) -> Vec<String>) {
    if !is_root() {
        return; // these servers start as root
    }
    let (dir, data) = with_page(&format!("several-{name}"));
    let port = free_port();
    let witness = Witness::new(&format!("several-{name}"));
    let cables = Cables::new();
    let [a, b, _] = cables.nets();
    let command = configure(&dir, port);
    let sites = [a, b].map(|net| Site {
        net: Some(net),
        command: command.clone(),
        ..sqlite_site(&data)
    });
    let said = witness.flags(2000);
    let [first, second, _] = Cables::ADDRESSES;
    let (mut one, door) = left_alone(&sites, [first, second], &said, &witness.0);
    assert_eq!(get_at_last(a, port), page());
    let (asks, answers) = (AtomicBool::new(true), AtomicU32::new(0));
    let other = std::thread::scope(|scope| {
        scope.spawn(|| {
            while asks.load(Ordering::SeqCst) {
                assert_eq!(get(a, port), Ok(page()));
                answers.fetch_add(1, Ordering::SeqCst);
            }
        });
        let other = joins(&one, &sites[1], &door, &said, &witness.0, 1);
        let before = answers.load(Ordering::SeqCst);
        while answers.load(Ordering::SeqCst) < before + 5 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        asks.store(false, Ordering::SeqCst);
        other
    });
    assert!(
        one.said().contains(" processes in the end"),
        "{}",
        one.said()
    );
    for (struck, disk) in [(&one.child, 'A'), (&other.child, 'B')] {
        strike_at(struck, "file", 9000);
        assert_eq!(get(a, port), Ok(page()));
        one.wait_for(&format!("disk of {disk}, file page 2"));
    }
    one.kill();
    for _ in 0..20 {
        assert_eq!(get_at_last(b, port), page());
    }
    let mut other = other;
    other.kill();
    let told = other.said();
    assert_eq!(told.matches("this site goes on alone").count(), 1, "{told}");
    for struck in ["disk of A, file page 2", "disk of B, file page 2"] {
        assert_eq!(told.matches(struck).count(), 1, "{told}");
    }
    fs::remove_dir_all(dir).expect("clean");
}

fn shell(name: &str, script: &str) -> (PathBuf, Site) {
    let dir = with_table(name);
    let site = Site {
        command: ["/bin/sh", "-c", script].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let sites = site;
    (dir, sites)
}

pub(crate) fn alike(site: &Site) -> [Site; 2] {
    [0; 2].map(|_| Site {
        command: site.command.clone(),
        ..sqlite_site(&site.seed)
    })
}

fn content(site: &Told, name: &str) -> String {
    let path = format!("/proc/{}/root/mnt/data/{name}", site.child.id());
    fs::read_to_string(path).unwrap_or_default()
}

/// Two of them write to one open file, whose place they share, and hand lines on by a pipe.
const HAND_ON: &str = "exec 3>out; (while read q; do echo \"a$q\" >&3; echo $q; done) | while read q; do echo \"b$q\" >&3; echo $q; done; exit 0";

fn hands_on() {
    let (dir, site) = shell("several-pipe", HAND_ON);
    let witness = Witness::new("several-pipe");
    let said = witness.flags(2000);
    let hosts = ["127.0.0.1"; 2];
    let (mut a, door) = left_alone(&alike(&site), hosts, &said, &witness.0);
    assert_eq!(a.ask("one"), "one");
    let mut c = joins(&a, &site, &door, &said, &witness.0, 1);
    assert_eq!(a.ask("two"), "two");
    a.kill();
    c.wait_for("this site goes on alone");
    // The answer that the lost site has given, or has not, may come again.
    let mut line = c.ask("three");
    while line != "three" {
        line = c.line();
    }
    assert_eq!(
        content(&c, "out"),
        "aone\nbone\natwo\nbtwo\nathree\nbthree\n"
    );
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// What one process has said to the other one is in their pipe until the file is there.
const LEAVES: &str = "(while read q; do [ $q != go ] || : >go; echo $q; done) | { until [ -e go ]; do :; done; while read q; do echo $q; done; }; exit 0";

#[test]
fn a_site_that_joins_waits_while_bytes_are_under_way_between_two_processes() {
    let (dir, site) = shell("several-under-way", LEAVES);
    let witness = Witness::new("several-under-way");
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    let to = |line: &str| writeln!(a.child.stdin.as_ref().expect("piped"), "{line}");
    to("one").expect("it reads");
    // It is in the pipe.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let join = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&site, "join", &join, &witness.0, "c");
    a.wait_for("bytes are under way");
    assert!(!a.said().contains("did not join"), "{}", a.said());
    to("go").expect("it reads");
    assert_eq!([a.line(), a.line()], ["one", "go"], "{}", a.said());
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(a.ask("two"), "two", "{}", a.said());
    a.kill();
    c.wait_for("this site goes on alone");
    let mut line = c.ask("three");
    while line == "two" {
        line = c.line();
    }
    assert_eq!(line, "three", "{}", c.said());
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// Flags of each end, ends without another one, pages that one process has, a stream at another number, what one of them polls.
#[test]
fn what_two_processes_have_otherwise_each_has_on_the_site_that_joins() {
    const FINDS: &str = "waits 1010 hangs 11 deep 0 stored 7 polled 0";
    let dir = seed("several-kept");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let site = Site {
        command: vec![built(&dir, "kept").display().to_string()],
        ..sqlite_site(&data)
    };
    let witness = Witness::new("several-kept");
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    assert_eq!(a.ask("one"), FINDS);
    let mut c = joins(&a, &site, &door, &said, &witness.0, 1);
    a.kill();
    c.wait_for("this site goes on alone");
    assert_eq!(c.ask("two"), FINDS);
    c.wait_for("to standard error");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// The sum at the end depends on the order in which they have stored, before the join and after it.
fn counts(how: &str) {
    let dir = seed(&format!("several-shares-{how}"));
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let program = built(&dir, "shares").display().to_string();
    let site = Site {
        command: vec![program, "0".into()],
        ..sqlite_site(&data)
    };
    let witness = Witness::new(&format!("several-shares-{how}"));
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    let mut c = joins(&a, &site, &door, &said, &witness.0, 1);
    // Both sites are to have turns of it.
    std::thread::sleep(std::time::Duration::from_millis(300));
    if how == "lost" {
        a.kill();
        c.wait_for("this site goes on alone");
        assert_eq!(c.ask("enough"), "all counted", "{}", c.said());
    } else {
        assert_eq!(a.ask("enough"), "all counted", "{}", a.said());
        assert_eq!(a.end().0, Some(0));
    }
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn processes_share_an_open_file_a_pipe_and_memory_on_the_site_that_joins_as_before() {
    side_by_side(&["pipe", "ends", "lost"], |how| match *how {
        "pipe" => hands_on(),
        how => counts(how),
    });
}

/// Keys and numbers of the segments of System V that a site's host has.
fn segments(site: &Child) -> String {
    let output = std::process::Command::new("nsenter")
        .args(["--target", &site.id().to_string(), "--ipc", "--"])
        .args(["cut", "-c1-21", "/proc/sysvipc/shm"])
        .output()
        .expect("nsenter is installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a site's host has in /dev/shm.
fn shm(site: &Child) -> Vec<String> {
    let found = fs::read_dir(format!("/proc/{}/root/dev/shm", site.id()));
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    found.expect("its directory").flatten().map(name).collect()
}

/// Memory by keys, by numbers and by names, and a process whose parent has ended: after a loss, a join, and another loss.
#[test]
fn what_processes_share_by_a_name_is_there_by_that_name_when_the_site_that_joined_leads() {
    const LAST: &str = "known 1 by 3 removed 8192 never 0 new 1 as it was, 8092 bytes, rights 640, child 1 gone 011";
    let dir = seed("several-keys");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let site = Site {
        command: vec![built(&dir, "keys").display().to_string()],
        ..sqlite_site(&data)
    };
    side_by_side(&["never", "first", "second"], |how| {
        let witness = Witness::new(&format!("several-keys-{how}"));
        let said = witness.flags(2000);
        let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
        assert_eq!(a.ask("?"), "2 2 2 2");
        if *how == "never" {
            assert_eq!(a.ask("last"), LAST);
            return assert_eq!(a.end().0, Some(0));
        }
        let next = format!("127.0.0.1:{}", free_port());
        let to = flags(&said, &["--peer", &door, "--listen", &next]);
        let mut c = Told::start(&site, "join", &to, &witness.0, "c");
        a.wait_for("the other site is back");
        c.wait_for("this site has joined");
        assert_eq!(a.ask("?"), "4 4 4 4");
        if *how == "first" {
            a.kill();
            c.wait_for("this site goes on alone");
            let mut line = c.ask("?");
            while line == "4 4 4 4" {
                line = c.line(); // the lost site may not have been heard to say it
            }
            assert_eq!(line, "6 6 6 6");
            let d = joins(&c, &site, &next, &said, &witness.0, 1);
            assert_eq!(c.ask("?"), "8 8 8 8");
            c.kill();
            c = d;
        } else {
            a.kill();
        }
        c.wait_for("this site goes on alone");
        let mut line = c.ask("last");
        while !line.starts_with("known") {
            line = c.line();
        }
        assert_eq!(line, LAST);
        // Nothing is left but what the command itself has.
        assert_eq!(shm(&c.child), [""; 0]);
        let left = segments(&c.child);
        let is_nameless = |line: &&str| line.split_whitespace().next() == Some("0");
        assert!(
            left.lines().skip(1).all(|line| is_nameless(&line)),
            "{left}"
        );
        let (status, told) = c.end();
        assert_eq!(status, Some(0), "{told}");
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// Each of these is refused for itself, and for as long as a process has it: the site that leads goes on unharmed, and is joined when
/// the last one is gone.
#[test]
fn what_a_child_has_and_nobody_can_make_is_refused_by_name_and_nothing_is_left() {
    struct Refused {
        what: &'static str,
        why: &'static str,
        status: i32,
    }
    let refused = [
        Refused {
            what: "file",
            why: "a file without a name",
            status: 121,
        },
        Refused {
            what: "watch",
            why: "its process cannot make the descriptors: descriptor",
            status: 122,
        },
    ];
    let dir = seed("several-odd");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let site = Site {
        command: vec![built(&dir, "odd").display().to_string()],
        ..sqlite_site(&data)
    };
    let witness = Witness::new("several-odd");
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    let to = flags(&said, &["--peer", &door]);
    for (n, Refused { what, why, status }) in (1..).zip(refused) {
        assert_eq!(a.ask(what), what, "{}", a.said());
        let before = (program(&a.child), segments(&a.child));
        let c = Told::start(&site, "join", &to, &witness.0, what);
        a.wait_for_n("did not join", n);
        // Its streams have ended: no process of it is left.
        let (ended, told) = c.end();
        assert_eq!(ended, Some(status), "{told}");
        if what == "file" {
            assert!(told.contains("of process"), "{told}");
        }
        for told in [told, a.said()] {
            assert_eq!(told.matches(why).count(), 1, "{what}: {told}");
        }
        assert_eq!(program(&a.child), before.0, "{what}");
        assert_eq!(segments(&a.child), before.1, "{what}");
        let ends = format!("no {what}");
        assert_eq!(a.ask(&ends), ends, "{}", a.said());
    }

    // Somebody may wait for it yet: so does the joiner, and another one joins when that has come.
    assert_eq!(a.ask("zombie"), "zombie");
    let mut c = Told::start(&site, "join", &to, &witness.0, "zombie");
    let waits = "has a child that has ended, and nobody has waited for it";
    a.wait_for(waits);
    assert_eq!(a.ask("waits"), "waits");
    c.kill();
    a.wait_for_n(waits, 2);
    assert_eq!(a.said().matches("did not join").count(), 3, "{}", a.said());
    assert_eq!(a.ask("no zombie"), "no zombie");
    let c = joins(&a, &site, &door, &said, &witness.0, 1);
    assert_eq!(a.ask("both"), "both");
    assert_eq!(order("detach", &c.child).0, Some(0));
    assert_eq!(c.end().0, Some(0));
    assert_eq!(a.ask("alone"), "alone");
    let (status, told) = a.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// Whoever joins begins as the first process.
#[test]
fn a_program_that_has_put_itself_into_the_background_is_not_joined_and_it_is_said_why() {
    let (dir, site) = shell(
        "several-daemon",
        "(while :; do :; sleep 0.1; done) & exit 0",
    );
    let witness = Witness::new("several-daemon");
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    let to = flags(&said, &["--peer", &door]);
    let c = Told::start(&site, "join", &to, &witness.0, "c");
    let (status, told) = c.end();
    assert_eq!(status, Some(121), "{told}");
    assert!(told.contains("put itself into the background"), "{told}");
    assert!(a.child.try_wait().expect("a child").is_none(), "it goes on");
    // The signal goes to what is left of the program.
    steadfast_sys::child::kill(a.child.id().cast_signed(), libc::SIGTERM);
    let (status, told) = a.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}
