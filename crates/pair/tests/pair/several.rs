//! A program of several processes: a site joins it, and goes on with all of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::join::{Told, flags};
use crate::servers::{event, get, get_at_last, nginx, page, prefork, strike_at, with_page};
use crate::sites::*;
use crate::switch::order;

/// A primary that is alone, and where it lets others in.
fn left_alone(
    sites: &[Site; 2],
    hosts: [&str; 2],
    said: &[String; 4],
    dir: &Path,
) -> (Told, String) {
    let [door, first] = hosts.map(|host| format!("{host}:{}", free_port()));
    let listen = flags(said, &["--listen", &first]);
    let mut b = Told::start(&sites[1], "secondary", &listen, dir, "b");
    let to = flags(said, &["--peer", &first, "--listen", &door]);
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
    (a, door)
}

fn joins(a: &Told, site: &Site, door: &str, said: &[String; 4], dir: &Path, n: usize) -> Told {
    let to = flags(said, &["--peer", door]);
    let c = Told::start(site, "join", &to, dir, &format!("c{n}"));
    a.wait_for_n("the other site is back", n);
    c.wait_for("this site has joined");
    c
}

#[test]
fn nginx_with_workers_is_joined_and_serves_on_when_the_site_that_led_is_lost() {
    is_joined("nginx", nginx);
}

#[test]
fn apache_with_a_process_a_client_is_joined_and_serves_on() {
    is_joined("prefork", prefork);
}

#[test]
fn apache_with_processes_of_many_threads_is_joined_and_serves_on() {
    is_joined("event", event);
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

fn alike(site: &Site) -> [Site; 2] {
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

#[test]
fn processes_that_share_an_open_file_and_a_pipe_share_them_on_the_site_that_joins() {
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
#[test]
fn processes_that_share_memory_are_joined_and_store_in_one_order() {
    let dir = seed("several-shares");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let program = built(&dir, "shares").display().to_string();
    let site = Site {
        command: vec![program, "1500".into()],
        ..sqlite_site(&data)
    };
    let witness = Witness::new("several-shares");
    let said = witness.flags(2000);
    side_by_side(&["ends", "lost"], |how| {
        let witness = Witness::new(&format!("several-shares-{how}"));
        let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
        let mut c = joins(&a, &site, &door, &said, &witness.0, 1);
        if *how == "lost" {
            std::thread::sleep(std::time::Duration::from_millis(300));
            a.kill();
            assert_eq!(c.rest(), ["4500 turns"], "{}", c.said());
        } else {
            assert_eq!(a.rest(), ["4500 turns"], "{}", a.said());
            assert_eq!(a.end().0, Some(0));
        }
        let (status, told) = c.end();
        assert_eq!(status, Some(0), "{told}");
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// What one process has, and nobody can make again: the site that leads goes on unharmed, and is joined when it is gone.
#[test]
fn what_a_child_has_and_nobody_can_make_is_refused_by_name_and_all_go_on() {
    let script = "(exec 4>gone; rm gone; while read q; do case $q in close) exec 4>&-;; esac; echo $q; done) | while read q; do echo $q; done; exit 0";
    let (dir, site) = shell("several-refused", script);
    let witness = Witness::new("several-refused");
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    assert_eq!(a.ask("one"), "one");
    let to = flags(&said, &["--peer", &door]);
    let c = Told::start(&site, "join", &to, &witness.0, "c");
    a.wait_for("did not join");
    let (status, told) = c.end();
    assert_eq!(status, Some(121), "{told}");
    assert!(told.contains("descriptor 4 of process"), "{told}");
    assert!(told.contains("a file without a name"), "{told}");
    assert_eq!(a.ask("two"), "two");
    assert_eq!(a.ask("close"), "close");
    let c = joins(&a, &site, &door, &said, &witness.0, 1);
    assert_eq!(a.ask("three"), "three");
    assert_eq!(order("detach", &c.child).0, Some(0));
    assert_eq!(c.end().0, Some(0));
    assert_eq!(a.ask("four"), "four");
    assert_eq!(a.end().0, Some(0));
    fs::remove_dir_all(dir).expect("clean");
}
