//! A page is wrong when the link is cut: the site whose disk is right goes on, and the other one does not.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::lost::Wire;
use crate::sites::*;
use crate::status::status;

struct Cut {
    both: Both,
    wire: Wire,
    /// There as long as the sites.
    witness: Witness,
}

fn begin(dir: &Path, name: &str, lost_after: u64) -> Cut {
    let (site, witness) = (sqlite_site(dir), Witness::new(name));
    let listen = format!("127.0.0.1:{}", free_port());
    let wire = Wire::to(listen.clone());
    let flags = witness.flags(lost_after);
    let mut flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    // The program is the one that finds the page.
    flags.extend(["--scrub", "0"]);
    let mut both = Both::start_with(&site, &site, &listen, &wire.address, &flags);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    Cut {
        both,
        wire,
        witness,
    }
}

/// What is asked of the primary gets no answer there.
fn asks(both: &Both) {
    writeln!(both.to.as_ref().expect("open"), "{ASK}").expect("it reads");
}

/// The secondary answers right, and says nothing else: what the primary was asked as well, if it has heard of that, and that one's last
/// word, if it has not heard that it was said.
fn goes_on(mut both: Both, last: &str, right: &str) -> Ends {
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, ASK);
    if answer == last {
        answer.clear();
        from.read_line(&mut answer).expect("it answers");
        answer.truncate(answer.trim_end().len());
    }
    assert_eq!(answer, right, "{}", both.end().said());
    drop(both.b.stdin.take());
    let mut rest = String::new();
    from.read_to_string(&mut rest).expect("it ends");
    assert!(rest.lines().all(|line| line == right), "{rest}");
    both.end()
}

#[test]
fn a_primary_whose_page_is_wrong_leaves_the_program_to_the_secondary() {
    let dir = with_table("cut-a");
    let right = sqlite(&dir, ".sha3sum").trim().to_owned();
    let Cut {
        both,
        wire,
        witness,
    } = begin(&dir, "cut-a", 1000);
    both.strike(&both.a, PLACE, 1);
    wire.mute();
    asks(&both);
    let ends = goes_on(both, "100", &right);
    let said = ends.said();
    assert_eq!(ends.codes(), [Some(122), Some(0)], "{said}");
    assert_eq!(String::from_utf8_lossy(&ends.a.stdout), "", "{said}");
    let line = "page 8 of /mnt/data/x.db is not as the ledger has it";
    assert!(said.contains(line), "{said}");
    let line = "disk of A, x.db page 8, ledger agrees with B";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    drop(witness);
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_secondary_whose_page_is_wrong_when_the_primary_is_lost_has_it_from_the_log() {
    let dir = with_table("cut-b");
    let right = sqlite(&dir, ".sha3sum").trim().to_owned();
    let Cut {
        mut both,
        wire,
        witness,
    } = begin(&dir, "cut-b", 20_000);
    both.strike(&both.b, PLACE, 1);
    wire.mute();
    asks(&both);
    let deadline = Instant::now() + LIMIT;
    while status(&both.b).1["state"] != "arbitrating" {
        assert!(Instant::now() < deadline, "it asks for no page");
        std::thread::sleep(Duration::from_millis(20));
    }
    both.a.kill().expect("a child");
    let ends = goes_on(both, "100", &right);
    let said = ends.said();
    assert_eq!(ends.codes(), [None, Some(0)], "{said}");
    let line = "disk of B, x.db page 8, ledger agrees with A";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    drop(witness);
    fs::remove_dir_all(dir).expect("clean");
}

/// The ledger's device is one site's: the other one goes on, without a witness if the secondary is the one that leaves.
#[test]
fn a_site_whose_ledger_is_full_leaves_the_program_to_the_other_one() {
    const FULL: &str = "INSERT INTO t SELECT a+1000, b FROM t; INSERT INTO t SELECT a+10000, b FROM t; VACUUM; SELECT 'done';";
    let dir = with_table("cut-full");
    let full = || Site {
        ledger_bytes: "8k",
        ..sqlite_site(&dir)
    };
    let line = "the ledger has to be written";
    let mut both = Both::start(&sqlite_site(&dir), &full());
    assert_eq!(both.ask(FULL), "done");
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "400");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(121)], "{}", ends.said());
    assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    let alone = "the secondary has left; this site goes on alone";
    assert!(ends.said().contains(alone), "{}", ends.said());

    let witness = Witness::new("cut-full");
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(2000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = Both::start_with(&full(), &sqlite_site(&dir), &address, &address, &flags);
    assert_eq!(both.ask(FULL), "", "the secondary says it");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT count(*) FROM t;");
    if answer == "done" {
        answer.clear();
        from.read_line(&mut answer).expect("it answers");
        answer.truncate(answer.trim_end().len());
    }
    assert_eq!(answer, "400");
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(121), Some(0)], "{}", ends.said());
    assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

/// What both sites have done, and the program has written over since, is no reason to stop when one is lost.
#[test]
fn a_page_that_was_read_and_then_written_is_none_that_nobody_has_compared() {
    let dir = with_table("cut-written");
    for lost in ['A', 'B'] {
        let Cut {
            mut both,
            wire: _wire,
            witness,
        } = begin(&dir, "cut-written", 2000);
        // The last statement looks at no file.
        let change = "UPDATE t SET b = b || 'x'; SELECT 'changed';";
        assert_eq!(both.ask(change), "changed");
        sqlite(&dir, "UPDATE t SET b = b || 'x';");
        let right = sqlite(&dir, ".sha3sum").trim().to_owned();
        if lost == 'B' {
            both.b.kill().expect("a child");
            assert_eq!(both.ask(ASK), right);
            let ends = both.end();
            assert_eq!(ends.a.status.code(), Some(0), "{}", ends.said());
        } else {
            both.a.kill().expect("a child");
            let ends = goes_on(both, "changed", &right);
            assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
        }
        drop(witness);
    }
    fs::remove_dir_all(dir).expect("clean");
}
