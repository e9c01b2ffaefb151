//! Errors of processor and memory: the claims of the two programs differ, and neither disk is blamed.

use std::fs;
use std::time::{Duration, Instant};

use crate::sites::*;

pub(crate) const QUESTION: &str = "SELECT sum(length(b)) FROM t;";

/// With faults on either site, which are none where the text is empty.
pub(crate) fn flipped(site: &Site, a: &str, b: &str, more: &[&str]) -> Both {
    let address = format!("127.0.0.1:{}", free_port());
    let start = |side: &str, flag: &str, fault: &str| {
        let fault: &[&str] = if fault.is_empty() {
            &[]
        } else {
            &["--flip", fault]
        };
        start(
            site,
            side,
            &[&[flag, address.as_str()], fault, more].concat(),
        )
    };
    let b = start("secondary", "--listen", b);
    Both::with(start("primary", "--peer", a), b)
}

pub(crate) fn register(replica: u32, event: u32) -> String {
    format!("replica={replica} event={event} reg=rbx bit=5")
}

/// Asks until a program was put right: memory is compared by the clock.
pub(crate) fn ask_until_mended(both: &mut Both, right: &str) {
    let began = Instant::now();
    loop {
        ask_until(both, right, 20);
        if crate::status::status(&both.a).1["mended"].as_u64() > Some(0) {
            return;
        }
        assert!(began.elapsed() < LIMIT, "nobody finds it");
    }
}

/// Asks so often: memory is compared by the clock.
pub(crate) fn ask_until(both: &mut Both, right: &str, rounds: u32) {
    let began = Instant::now();
    for _ in 0..rounds {
        assert_eq!(both.ask(QUESTION), right);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() < LIMIT);
}

#[test]
fn a_wrong_result_on_either_site_is_attributed_and_the_program_becomes_what_the_re_runs_are() {
    let dir = with_table("register");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, QUESTION);
    let right = right.trim();
    // The same run without a fault, and with one that no program comes to.
    for a in ["", "replica=0 event=100000000 reg=rdi bit=2"] {
        let mut both = flipped(&site, a, "", &[]);
        ask_until(&mut both, right, 30);
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        assert_eq!(ends.said(), "");
    }
    for event in [60, 90, 120] {
        for (replica, name) in [(0, 'A'), (1, 'B')] {
            let fault = register(replica, event);
            let (a, b) = if replica == 0 {
                (fault.as_str(), "")
            } else {
                ("", fault.as_str())
            };
            let mut both = flipped(&site, a, b, &[]);
            assert_eq!(both.ask(QUESTION), right, "{fault}");
            assert_eq!(both.ask(CHANGE), "200");
            assert_eq!(both.ask("PRAGMA integrity_check;"), "ok");
            let ends = both.end();
            assert_eq!(ends.codes(), [Some(0), Some(0)], "{fault}: {}", ends.said());
            let line = format!("processor or memory of {name} at event");
            assert_eq!(
                ends.said().matches(&line).count(),
                2,
                "{fault}: {}",
                ends.said()
            );
            assert!(!ends.said().contains("disk of"), "{}", ends.said());
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_bit_of_memory_that_no_event_shows_is_found_by_the_memory_check_on_either_site() {
    let dir = with_table("cell");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, QUESTION);
    for (replica, name) in [(0, 'A'), (1, 'B')] {
        // Far below the stack's end: nobody reads it.
        let fault = format!("replica={replica} event=80 mem=[rsp-20000] bit=3");
        let (a, b) = if replica == 0 {
            (fault.as_str(), "")
        } else {
            ("", fault.as_str())
        };
        let mut both = flipped(&site, a, b, &[]);
        ask_until_mended(&mut both, right.trim());
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let line = format!("processor or memory of {name} at event");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
        assert!(ends.said().contains("1 page of memory"), "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn two_wrong_programs_become_what_both_hosts_come_to_again() {
    let dir = with_table("twice");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, QUESTION);
    let mut both = flipped(
        &site,
        &register(0, 90),
        "replica=1 event=90 reg=rbx bit=6",
        &[],
    );
    assert_eq!(both.ask(QUESTION), right.trim());
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    let line = "processor or memory of A and of B at event";
    assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn without_snapshots_the_program_stops_before_anything_wrong_leaves() {
    let dir = with_table("stops");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, QUESTION);
    for replica in [0, 1] {
        let fault = register(replica, 90);
        let (a, b) = if replica == 0 {
            (fault.as_str(), "")
        } else {
            ("", fault.as_str())
        };
        let mut both = flipped(&site, a, b, &["--snapshots", "off"]);
        let answer = both.ask(QUESTION);
        assert!(answer.is_empty() || answer == right.trim(), "{answer}");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
        assert!(
            ends.said().contains("has no snapshot to run again from"),
            "{}",
            ends.said()
        );
    }
    let address = format!("127.0.0.1:{}", free_port());
    let b = start(&site, "secondary", &["--listen", &address]);
    let a = start(
        &site,
        "primary",
        &["--peer", &address, "--snapshots", "off"],
    );
    let ends = Both::with(a, b).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(ends.said().contains("word on snapshots"), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_read_that_was_repaired_is_run_again_as_it_was_repaired() {
    let dir = with_table("both-kinds");
    let site = sqlite_site(&dir);
    for struck in ["A", "B"] {
        // Behind the reads of two questions, and before the first memory check is over.
        let mut both = flipped(&site, "", &register(1, 400), &[]);
        let right = both.ask(ASK);
        both.strike(if struck == "A" { &both.a } else { &both.b }, PLACE, 1);
        for _ in 0..3 {
            assert_eq!(both.ask(ASK), right, "{struck}");
        }
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let disk = format!("disk of {struck}, x.db page 8");
        for line in [disk.as_str(), "processor or memory of B at event"] {
            assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// The primary makes it before the secondary has claimed it, and what it has brought goes with the program that was wrong.
#[test]
fn a_read_with_a_wrong_argument_on_either_site_is_made_anew() {
    let dir = with_table("argument");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, QUESTION);
    let step: usize = std::env::var("PAIR_STEP").map_or(7, |step| step.parse().expect("a number"));
    let registers = ["rsi", "rdi", "rdx", "r10"];
    for (number, event) in (80..120).step_by(step).enumerate() {
        let reg = registers[number % registers.len()];
        // Each register comes to either site; all of both with PAIR_STEP=1.
        let sites = [(0, "A"), (1, "B")];
        let one = (number + number / registers.len()) % 2;
        let struck = if step == 1 { 0..2 } else { one..one + 1 };
        for (replica, name) in &sites[struck] {
            let fault = format!("replica={replica} event={event} reg={reg} bit=4");
            let (a, b) = if *replica == 0 {
                (fault.as_str(), "")
            } else {
                ("", fault.as_str())
            };
            let mut both = flipped(&site, a, b, &[]);
            let answers: Vec<String> = (0..3).map(|_| both.ask(QUESTION)).collect();
            let ends = both.end();
            assert_eq!(answers, vec![right.trim(); 3], "{fault}: {}", ends.said());
            assert_eq!(ends.codes(), [Some(0), Some(0)], "{fault}: {}", ends.said());
            let line = format!("processor or memory of {name} at event");
            let lines = ends.said().lines().count();
            assert!([0, 2].contains(&lines), "{fault}: {}", ends.said());
            assert_eq!(
                ends.said().matches(&line).count(),
                lines,
                "{fault}: {}",
                ends.said()
            );
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// In the middle of one that the agent makes of several as well.
#[test]
fn an_error_within_a_call_that_is_made_of_several_is_attributed_and_repaired() {
    const KINDS: [&str; 6] = [
        "mapped",
        "sendfile",
        "streamed",
        "put keep",
        "put shows",
        "kept",
    ];
    let (dir, program) = crate::kinds::with_file("parts");
    let site = crate::kinds::site(&dir.join("data"), &program);
    let mut clean = flipped(&site, "", "", &[]);
    let right = KINDS.map(|kind| clean.ask(kind));
    let ends = clean.end();
    assert_eq!((ends.codes(), ends.said()), ([Some(0); 2], String::new()));
    let cases: Vec<u32> = (40..=110).step_by(10).collect();
    side_by_side(&cases, |event| {
        let fault = register(event / 10 % 2, *event);
        let (a, b, name) = if event / 10 % 2 == 0 {
            (fault.as_str(), "", 'A')
        } else {
            ("", fault.as_str(), 'B')
        };
        let mut both = flipped(&site, a, b, &[]);
        assert_eq!(KINDS.map(|kind| both.ask(kind)), right, "{fault}");
        let ends = both.end();
        let said = ends.said();
        assert_eq!(ends.codes(), [Some(0); 2], "{fault}: {said}");
        let line = format!("processor or memory of {name} at event");
        assert_eq!(said.matches(&line).count(), 2, "{fault}: {said}");
        assert!(!said.contains("disk of"), "{said}");
    });
    fs::remove_dir_all(dir).expect("clean");
}
