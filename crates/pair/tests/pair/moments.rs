//! Moments that nobody chooses: a site dies around a join or a handover, the program makes processes when it is to halt, and a file
//! gets another one's name while a page of it is put right.
//!
//! `PAIR_MOMENTS`: how many of each.
//!
//! Invariants
//!  1. One site goes on with all that was committed, or both have ended and said why; never two go on.
//!  2. Moments follow from the number of a round: the same number, the same moment after the same line.
//!
//! Not covered: a cut link, a frozen host (lost.rs); moments of one event, which no line shows.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::join::{Told, alone, flags};
use crate::lost::rounds;
use crate::sites::*;
use crate::switch::{order, two_at};

/// Rounds wait most of the time: so many side by side.
const BESIDE: usize = 4;

fn each_of(few: u64, case: impl Fn(u64) + Sync) {
    let all: Vec<u64> = rounds("PAIR_MOMENTS", few).collect();
    for some in all.chunks(BESIDE) {
        side_by_side(some, |round| case(*round));
    }
}

/// Spread over `within`, whatever the number of rounds.
fn moment(round: u64, within: Duration) -> Duration {
    let micros = u64::try_from(within.as_micros()).expect("seconds");
    Duration::from_micros((round * 61 % 97) * micros / 97)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// It has all that was committed, and one that was on its way or not.
fn holds(site: &mut Told, round: u64) {
    let has = site.ask_after_loss("SELECT count(*) || ' ' || sum(substr(b, -1) = 'x') FROM t;");
    let may = ["200 40", "400 40", "400 80"];
    let said = site.said();
    assert!(may.contains(&has.as_str()), "round {round}: {has}\n{said}");
    assert_eq!(site.ask("PRAGMA integrity_check;"), "ok", "round {round}");
}

#[test]
fn a_survivor_that_dies_around_a_join_leaves_the_joiner_to_go_on_or_to_end_with_the_reason() {
    let dir = with_table("moments-join");
    each_of(4, |round| {
        let (site, witness) = (sqlite_site(&dir), Witness::new(&format!("joins-{round}")));
        let said = witness.flags(2000);
        let (mut a, door) = alone(&site, &witness, &said);
        let mut c = Told::start(
            &site,
            "join",
            &flags(&said, &["--peer", &door, "--patience", "2"]),
            &witness.0,
            "c",
        );
        // From the joiner's start on, or from the moment at which both say that it is back.
        if round % 2 == 1 {
            a.wait_for("the other site is back");
        }
        std::thread::sleep(moment(round, Duration::from_millis(300)));
        let busy = round % 4 > 1;
        if busy {
            writeln!(a.child.stdin.as_ref().expect("piped"), "{CHANGE}").expect("it reads");
            std::thread::sleep(moment(round, Duration::from_millis(60)));
        }
        a.kill();
        let joined = "this site has joined";
        until("it joins or ends", || {
            c.said().contains(joined) || c.child.try_wait().expect("a child").is_some()
        });
        if c.said().contains(joined) {
            holds(&mut c, round);
            let (status, told) = c.end();
            assert_eq!(status, Some(0), "round {round}: {told}");
        } else {
            assert!(!a.said().contains("the other site is back"), "{}", a.said());
            let (status, told) = c.end();
            assert!(matches!(status, Some(121 | 122)), "round {round}: {told}");
            assert!(told.contains("steadfast pair: "), "round {round}: {told}");
        }
    });
    fs::remove_dir_all(dir).expect("clean");
}

fn asked(what: &str, of: &Child) -> Child {
    let ledger = format!("/proc/{}/root/mnt/ledger", of.id());
    Command::new(pair())
        .args([what, "--ledger", &ledger])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs")
}

#[test]
fn a_site_that_dies_around_a_handover_leaves_the_other_one_and_never_two() {
    let dir = with_table("moments-handover");
    each_of(6, |round| {
        let (site, witness) = (sqlite_site(&dir), Witness::new(&format!("hands-{round}")));
        let said = witness.flags(2000);
        let address = format!("127.0.0.1:{}", free_port());
        let door = format!("127.0.0.1:{}", free_port());
        let listen = flags(&said, &["--listen", &address]);
        let b = Told::start(&site, "secondary", &listen, &witness.0, "b");
        let to = flags(&said, &["--peer", &address, "--listen", &door]);
        let mut a = Told::start(&site, "primary", &to, &witness.0, "a");
        assert_eq!(a.ask(CHANGE), "200");
        let asked = asked("detach", &a.child);
        std::thread::sleep(moment(round, Duration::from_millis(40)));
        let lost_is_a = round % 2 == 0;
        let (mut lost, mut left) = if lost_is_a { (a, b) } else { (b, a) };
        lost.kill();
        let answer = asked.wait_with_output().expect("it ends");
        let lost_said = lost.said();
        if lost_is_a {
            holds(&mut left, round);
            assert_eq!(left.end().0, Some(0), "round {round}: {lost_said}");
            return;
        }
        // The one that was to lead: it does already, or the witness has given it the program, or the first one goes on with it.
        let led = lost_said.contains("this site leads") || answer.status.success();
        until("it goes on or ends", || {
            left.said().contains("this site goes on alone")
                || left.child.try_wait().expect("a child").is_some()
        });
        if left.said().contains("this site goes on alone") {
            assert!(!led, "round {round}: {lost_said}{}", left.said());
            holds(&mut left, round);
            assert_eq!(left.end().0, Some(0), "round {round}");
            return;
        }
        let (status, told) = left.end();
        let outvoted = told.contains("the witness says that it goes on alone");
        assert!(led || outvoted, "round {round}: {lost_said}{told}");
        let may = [Some(if led { 0 } else { 122 }), Some(122)];
        assert!(may.contains(&status), "round {round}: {lost_said}{told}");
    });
    fs::remove_dir_all(dir).expect("clean");
}

/// Each number is said by a child.
const FORKS: &str =
    "i=0; while [ $i -lt 150 ]; do i=$((i+1)); (echo $i); done; echo end; read q; exit 0";

#[test]
fn a_program_that_makes_processes_all_the_time_is_halted_and_handed_over() {
    let dir = with_table("moments-forks");
    each_of(4, |round| {
        let said = seed(&format!("moments-forks-{round}"));
        let site = Site {
            command: ["/bin/sh", "-c", FORKS].map(String::from).to_vec(),
            ..sqlite_site(&dir)
        };
        let address = format!("127.0.0.1:{}", free_port());
        let (a, mut b) = two_at(&address, &site, &said);
        let (mut from, first) = lines(a, 1);
        std::thread::sleep(moment(round, Duration::from_millis(300)));
        let (status, line) = order("detach", &from.child);
        let answer = (status, line.as_str());
        assert_eq!(answer, (Some(0), "the other site leads"), "{}", from.said());
        let mut all = first;
        all.extend(from.rest());
        let there = b.lines_until("end");
        // What a child said when it was halted may be said again.
        let (last, next) = (number(&all, all.len() - 1), number(&there, 0));
        assert!(next == last || next == last + 1, "{last} and {next}");
        assert!(is_in_order(&all) && is_in_order(&there[..there.len() - 1]));
        assert_eq!(number(&there, there.len() - 2), 150, "{}", b.said());
        let (status, told) = b.end();
        assert_eq!(status, Some(0), "{told}");
        assert_eq!(from.end().0, Some(0));
        fs::remove_dir_all(said).expect("clean");
    });
    fs::remove_dir_all(dir).expect("clean");
}

fn lines(mut of: Told, n: usize) -> (Told, Vec<String>) {
    let all = (0..n).map(|_| of.line()).collect();
    (of, all)
}

fn number(lines: &[String], at: usize) -> u64 {
    lines[at].parse().expect("a number")
}

fn is_in_order(lines: &[String]) -> bool {
    let all: Vec<u64> = (0..lines.len()).map(|at| number(lines, at)).collect();
    all.windows(2).all(|two| two[1] == two[0] + 1)
}

/// One process gives another file the name all the time, and one reads what has it.
const RENAMES: &str = "(while :; do cp right f.new; mv f.new f; sleep 0.01; done) & while read q; do md5sum <f; done; kill $!";

fn flip_in(site: &Child, name: &str, at: u64) {
    let path = format!("/proc/{}/root/mnt/data/{name}", site.id());
    let Ok(file) = fs::File::options().read(true).write(true).open(path) else {
        return; // it has the other name
    };
    let mut byte = [0];
    if file.read_at(&mut byte, at).is_ok_and(|n| n == 1) {
        file.write_all_at(&[byte[0] ^ 8], at).expect("it is stored");
    }
}

fn with_right(name: &str) -> (std::path::PathBuf, String) {
    let dir = seed(name);
    let bytes: Vec<u8> = (0..10 * 4096_u32 + 77)
        .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect();
    for name in ["right", "f"] {
        fs::write(dir.join(name), &bytes).expect("a file");
    }
    let sum = Command::new("md5sum").arg(dir.join("f")).output();
    let sum = String::from_utf8(sum.expect("md5sum").stdout).expect("a sum");
    let sum = sum.split(' ').next().expect("a word").to_owned() + "  -";
    (dir, sum)
}

fn renames(dir: &Path, right: &str, struck: char) {
    let site = Site {
        command: ["/bin/sh", "-c", RENAMES].map(String::from).to_vec(),
        ..sqlite_site(dir)
    };
    let address = format!("127.0.0.1:{}", free_port());
    let mut both = Both::start_with(&site, &site, &address, &address, &["--scrub", "1000"]);
    assert_eq!(both.ask("?"), right);
    let mut answered = 0;
    for round in 0..25 {
        let child = if struck == 'A' { &both.a } else { &both.b };
        flip_in(child, "f", (round % 10) * 4096 + 99);
        std::thread::sleep(Duration::from_millis(2 * round % 9));
        if round % 3 != 0 {
            continue; // the scrubber and who copies have it
        }
        let answer = both.ask("?");
        if answer.is_empty() {
            break;
        }
        assert_eq!(answer, right, "{struck} {round}");
        answered += 1;
    }
    let ends = both.end();
    let said = ends.said();
    let other = if struck == 'A' {
        "disk of B"
    } else {
        "disk of A"
    };
    assert!(!said.contains(other), "{said}");
    // A page that is read from a file whose name another one has by then.
    let nameless = said.contains("its name is gone");
    let code = Some(if nameless { 122 } else { 0 });
    assert_eq!(ends.codes(), [code; 2], "{struck}: {said}");
    assert!(nameless || answered == 9, "{said}");
    let found = said.contains(&format!("disk of {struck}, f page"));
    assert!(nameless || found, "{said}");
}

#[test]
fn a_file_that_gets_the_name_of_one_that_is_put_right_keeps_its_own_pages() {
    let (dir, right) = with_right("moments-renames");
    side_by_side(&['A', 'B'], |struck| renames(&dir, &right, *struck));
    fs::remove_dir_all(dir).expect("clean");
}

/// One process changes names and sizes all the time, another one asks for both: what it is told is of one moment on both sites.
const ASKS: &str = "(i=0; while :; do i=$((i+1)); echo $i >>log; mv log log.a; : >n$((i%4)); mv log.a log; rm -f n[12]; done) & \
    while read q; do i=0; while [ $i -lt 12 ]; do i=$((i+1)); [ -s log ]; [ -e n1 ]; set -- * ; [ -d . ]; done; ls -l >/dev/null 2>&1; echo $q; done; kill $!";

#[test]
fn what_one_process_asks_of_names_that_another_one_changes_is_no_difference() {
    let dir = with_table("moments-asks");
    let site = Site {
        command: ["/bin/sh", "-c", ASKS].map(String::from).to_vec(),
        ..sqlite_site(&dir)
    };
    let mut both = Both::start(&site, &site);
    for round in 0..12 {
        let line = round.to_string();
        let answer = both.ask(&line);
        if answer != line {
            panic!("{answer}: {}", both.end().said());
        }
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}
