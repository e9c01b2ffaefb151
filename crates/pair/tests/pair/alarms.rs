//! Timers, semaphores, watches and memory by descriptor: the survivor's go on where the lost site's were.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::join::{Told, flags};
use crate::several::{alike, joins, left_alone};
use crate::sites::*;

fn alarms(name: &str, more: &[&str]) -> (PathBuf, Site) {
    let dir = seed(name);
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let mut command = vec![built(&dir, "alarms").display().to_string()];
    command.extend(more.iter().map(ToString::to_string));
    let site = Site {
        command,
        ..sqlite_site(&data)
    };
    (dir, site)
}

/// A host whose clock began elsewhere.
fn ahead(seed: &Path, command: &[String]) -> Site {
    Site {
        ahead: "100000",
        command: command.to_vec(),
        ..sqlite_site(seed)
    }
}

#[test]
fn timers_semaphores_and_watches_go_on_at_the_survivor() {
    let (dir, site) = alarms("alarms", &[]);
    let there = ahead(&site.seed, &site.command);
    let witness = Witness::new("alarms");
    let address = format!("127.0.0.1:{}", free_port());
    let said = witness.flags(5000);
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let both = Both::start_with(&site, &there, &address, &address, &said);
    // The first watch was taken away: the second one has the next number.
    let mut both = both.told("heard", "heard 1:");
    assert_eq!(both.ask("arm 5000"), "armed");
    let armed = Instant::now();
    for (asked, right) in [
        ("tick", "tick came"),
        ("tick", "tick came"),
        ("early", "early late"),
        ("take", "take came"),
        ("make a", "make a 0"),
        ("heard", "heard 2:a"),
        ("make b", "make b 0"),
    ] {
        both = both.told(asked, right);
    }
    both.a.kill().expect("a child");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, "early");
    while answer == "make b 0" {
        answer.clear();
        from.read_line(&mut answer).expect("it answers");
        answer.truncate(answer.trim_end().len());
    }
    let mut ask = |what: &str| ask_secondary(&mut both.b, &mut from, what);
    assert_eq!(answer, "early late", "{:?}", armed.elapsed());
    assert_eq!(ask("tick"), "tick came");
    assert_eq!(ask("tick"), "tick came");
    assert_eq!(ask("heard"), "heard 2:b");
    assert_eq!(ask("make c"), "make c 0");
    assert_eq!(
        ask("ready")
            .split_once(' ')
            .map(|(_, which)| which.parse().map(|which: u32| which & 12)),
        Some(Ok(12))
    );
    assert_eq!(ask("heard"), "heard 2:c");
    assert_eq!(ask("left"), "left 2");
    assert_eq!(ask("once"), "once came");
    let elapsed = armed.elapsed();
    let right = Duration::from_millis(4800)..Duration::from_secs(9);
    assert!(right.contains(&elapsed), "{elapsed:?}");
    assert_eq!(ask("early"), "early late", "it comes once");
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_site_that_joins_has_the_timers_and_semaphores() {
    let (dir, site) = alarms("alarms-join", &["plain"]);
    let witness = Witness::new("alarms-join");
    let [first, door] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
    let said = witness.flags(2000);
    let start = |site: &Site, side: &str, more: &[&str], name: &str| {
        Told::start(site, side, &flags(&said, more), &witness.0, name)
    };
    let mut b = start(&site, "secondary", &["--listen", &first], "b");
    let mut a = start(
        &site,
        "primary",
        &["--peer", &first, "--listen", &door],
        "a",
    );
    assert_eq!(a.ask("left"), "left 3");
    b.kill();
    let armed = Instant::now();
    assert_eq!(a.ask("arm 9000"), "armed");
    assert_eq!(a.ask("tick"), "tick came");
    let there = ahead(&site.seed, &site.command);
    let mut c = start(&there, "join", &["--peer", &door], "c");
    a.wait_for("the other site is back");
    c.wait_for("this site has joined");
    assert_eq!(a.ask("tick"), "tick came");
    a.kill();
    let mut answer = c.ask("early");
    while answer == "tick came" {
        answer = c.line();
    }
    assert_eq!(answer, "early late", "{:?}", armed.elapsed());
    assert_eq!(c.ask("tick"), "tick came");
    assert_eq!(c.ask("left"), "left 0");
    assert_eq!(c.ask("once"), "once came");
    let elapsed = armed.elapsed();
    let right = Duration::from_millis(8800)..Duration::from_secs(14);
    assert!(right.contains(&elapsed), "{elapsed:?}");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// By the same numbers, and the next one is the survivor's next. What nobody has read yet the joiner would never hear of.
#[test]
fn a_site_that_joins_has_the_watches() {
    let (dir, site) = alarms("alarms-watches", &[]);
    let witness = Witness::new("alarms-watches");
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&alike(&site), ["127.0.0.1"; 2], &said, &witness.0);
    for (asked, right) in [
        ("left", "left 3"),
        ("heard", "heard 1:"),
        ("watch /dev", "watch 3"),
        ("unwatch 3", "unwatch 0"),
        ("heard", "heard 3:"),
        ("make a", "make a 0"),
    ] {
        assert_eq!(a.ask(asked), right);
    }
    let to = flags(&said, &["--peer", &door]);
    let c = Told::start(&site, "join", &to, &witness.0, "refused");
    a.wait_for("did not join");
    let (status, told) = c.end();
    assert_eq!(status, Some(121), "{told}");
    assert!(told.contains("bytes are under way in it"), "{told}");
    assert_eq!(a.ask("heard"), "heard 2:a");
    let mut c = joins(&a, &site, &door, &said, &witness.0, 1);
    for (asked, right) in [
        ("make b", "make b 0"),
        ("heard", "heard 2:b"),
        ("watch /dev", "watch 4"),
        ("make c", "make c 0"),
    ] {
        assert_eq!(a.ask(asked), right);
    }
    a.kill();
    c.wait_for("this site goes on alone");
    let mut line = c.ask("heard");
    while line == "make c 0" {
        line = c.line();
    }
    assert_eq!(line, "heard 2:c");
    assert_eq!(c.ask("watch /proc"), "watch 5");
    assert_eq!(c.ask("make d"), "make d 0");
    assert_eq!(c.ask("heard"), "heard 2:d");
    let (status, told) = c.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(dir).expect("clean");
}

/// Memory that has no name, and that a child has as well.
#[test]
fn a_memory_object_goes_on_at_the_survivor() {
    let dir = seed("objects");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let program = built(&dir, "objects");
    let asked = [
        "write one",
        "read",
        "begin",
        "store two",
        "shown",
        "read",
        "write three",
        "shown",
        "store four",
        "shown",
        "read",
        "end",
    ];
    let right = answers(&mut Command::new(&program), &asked);
    let site = Site {
        command: vec![program.display().to_string()],
        ..sqlite_site(&data)
    };
    // Behind a fork, and before it.
    for lost in [5, 1] {
        let witness = Witness::new(&format!("objects-{lost}"));
        let mut both = witnessed(&site, &witness);
        for (asked, right) in asked.iter().zip(&right).take(lost) {
            both = both.told(asked, right);
        }
        both.a.kill().expect("a child");
        let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
        let mut answer = ask_secondary(&mut both.b, &mut from, asked[lost]);
        if answer == right[lost - 1] && answer != right[lost] {
            answer.clear();
            from.read_line(&mut answer).expect("it answers");
            answer.truncate(answer.trim_end().len());
        }
        assert_eq!(answer, right[lost], "{lost}");
        for (asked, right) in asked.iter().zip(&right).skip(lost + 1) {
            assert_eq!(
                ask_secondary(&mut both.b, &mut from, asked),
                *right,
                "{lost}"
            );
        }
        drop(both.b.stdin.take());
        let ends = both.end();
        assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    }
    objects_join(&site, &asked, &right);
    fs::remove_dir_all(dir).expect("clean");
}

/// The same, handed on to a site that joins: behind the fork, and before it. Seals are as they were.
fn objects_join(site: &Site, asked: &[&str], right: &[String]) {
    for lost in [6, 2] {
        let witness = Witness::new(&format!("objects-join-{lost}"));
        let said = witness.flags(2000);
        let (mut a, door) = left_alone(&alike(site), ["127.0.0.1"; 2], &said, &witness.0);
        for (asked, right) in asked.iter().zip(right).take(lost - 1) {
            assert_eq!(a.ask(asked), *right, "{lost}: {}", a.said());
        }
        let mut c = joins(&a, site, &door, &said, &witness.0, 1);
        assert_eq!(a.ask(asked[lost - 1]), right[lost - 1], "{}", a.said());
        a.kill();
        c.wait_for("this site goes on alone");
        let mut line = c.ask(asked[lost]);
        if line == right[lost - 1] && line != right[lost] {
            line = c.line();
        }
        assert_eq!(line, right[lost], "{lost}: {}", c.said());
        for (asked, right) in asked.iter().zip(right).skip(lost + 1) {
            assert_eq!(c.ask(asked), *right, "{lost}: {}", c.said());
        }
        let (status, told) = c.end();
        assert_eq!(status, Some(0), "{told}");
    }
}
