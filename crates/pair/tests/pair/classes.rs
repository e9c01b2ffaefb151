//! Each kind of storage error, on each site, in the data, in the ledger, in what is full and in what flaps.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Child;
use std::time::Duration;

use crate::back::keep;
use crate::lost::Wire;
use crate::sites::*;

const PAGE: usize = 4096;

fn data(child: &Child) -> fs::File {
    let path = format!("/proc/{}/root/mnt/data/x.db", child.id());
    let mut open = fs::OpenOptions::new();
    open.read(true).write(true).open(path).expect("a file")
}

fn page(file: &fs::File, number: usize) -> Vec<u8> {
    let mut bytes = vec![0; PAGE];
    file.read_exact_at(&mut bytes, (number * PAGE) as u64)
        .expect("inside");
    bytes
}

#[test]
fn stale_torn_and_misdirected_pages_are_attributed_and_repaired_on_either_disk() {
    let dir = with_table("classes");
    let site = sqlite_site(&dir);
    for class in ["stale", "torn", "misdirected"] {
        for (struck, line) in [("A", "disk of A, x.db page"), ("B", "disk of B, x.db page")] {
            let mut both = Both::start(&site, &site);
            assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
            let file = data(if struck == "A" { &both.a } else { &both.b });
            let pages =
                usize::try_from(file.metadata().expect("a file").len()).expect("small") / PAGE;
            let before: Vec<_> = (0..pages).map(|number| page(&file, number)).collect();
            // Every letter of every text: both halves of a page of the table change.
            let change = "UPDATE t SET b = lower(b); SELECT 'changed';";
            assert_eq!(both.ask(change), "changed");
            let number = (2..pages)
                .find(|number| {
                    let now = page(&file, *number);
                    now[..PAGE / 2] != before[*number][..PAGE / 2]
                        && now[PAGE / 2..] != before[*number][PAGE / 2..]
                })
                .expect("a page of the table");
            let now = page(&file, number);
            let right = both.ask(ASK);
            let wrong = match class {
                "stale" => before[number].clone(),
                "torn" => [&now[..PAGE / 2], &before[number][PAGE / 2..]].concat(),
                _ => page(&file, number + 1),
            };
            assert_ne!(wrong, now, "{class}");
            file.write_all_at(&wrong, (number * PAGE) as u64)
                .expect("it is stored");
            assert_eq!(both.ask(ASK), right, "{class} on {struck}");
            assert_eq!(page(&file, number), now, "{class} on {struck}: repaired");
            let ends = both.end();
            assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
            let line = format!("{line} {number}, ledger agrees");
            assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_write_that_one_disk_has_lost_before_it_was_durable_is_made_good() {
    let dir = with_table("unsynced");
    let site = sqlite_site(&dir);
    for (struck, line) in [("A", "disk of A, x.db page"), ("B", "disk of B, x.db page")] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
        let file = data(if struck == "A" { &both.a } else { &both.b });
        let before = page(&file, 8);
        // No fsync: the ledgers accept the page as it was, too.
        let change = "PRAGMA synchronous=OFF; UPDATE t SET b = lower(b); SELECT 'changed';";
        assert_eq!(both.ask(change), "changed");
        let now = page(&file, 8);
        assert_ne!(before, now);
        let right = both.ask(ASK);
        let at = (8 * PAGE) as u64;
        file.write_all_at(&before, at).expect("it is stored");
        assert_eq!(both.ask(ASK), right, "on {struck}");
        assert_eq!(page(&file, 8), now, "on {struck}: repaired");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let line = format!("{line} 8, ledger agrees");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_disk_that_is_full_on_one_site_stops_the_program_and_one_that_is_on_both_does_not() {
    let dir = with_table("full");
    let room = |bytes: &'static str| Site {
        data_bytes: bytes,
        ..sqlite_site(&dir)
    };
    let more = "INSERT INTO t SELECT a+1000, b FROM t; SELECT count(*) FROM t;";
    for (a, b) in [("256k", "16m"), ("16m", "256k")] {
        let mut both = Both::start(&room(a), &room(b));
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
        assert_eq!(both.ask(more), "", "A has {a}, B {b}");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
        assert!(ends.said().contains("its disk is full"), "{}", ends.said());
    }
    let mut both = Both::start(&room("256k"), &room("256k"));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    assert_eq!(
        both.ask(&more.replace("; SELECT", ";\nSELECT")),
        "100",
        "the program is told, as without a pair"
    );
    let ends = both.end();
    assert!(ends.said().contains("full"), "{}", ends.said());
    assert!(!ends.said().contains("steadfast pair:"), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_ledger_that_is_damaged_or_of_other_files_keeps_the_pair_from_starting() {
    let dir = with_table("ledger");
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let known = keep(&both.a, "ledger-known");
    both.end();
    let journal = known.ledger.as_ref().expect("kept").join("ledger");
    let whole = fs::read(&journal).expect("a journal");
    for (at, line) in [
        (30, "is damaged at byte"),
        (whole.len() / 2, "is damaged at byte"),
    ] {
        let mut struck = whole.clone();
        struck[at] ^= 4;
        fs::write(&journal, struck).expect("a flip");
        let ends = Both::start(&known, &sqlite_site(&dir)).end();
        assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
        assert!(ends.said().contains(line), "{}", ends.said());
    }
    fs::write(&journal, whole).expect("back");
    let mut both = Both::start(&known, &known);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    assert_eq!(both.end().said(), "");
    // Equal on both sites, and not what the ledgers have: nobody knows which program wrote it.
    let path = known.seed.join("x.db");
    let file = fs::OpenOptions::new().write(true).open(path);
    file.and_then(|file| file.write_all_at(b"?", PLACE))
        .expect("a change");
    let ends = Both::start(&known, &known).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("page 8 is equal on both sites, and not as the ledgers have it"),
        "{}",
        ends.said()
    );
    let changed = "if you have changed them while the pair was stopped";
    assert!(ends.said().contains(changed), "{}", ends.said());
    assert!(!ends.said().contains("--right"), "{}", ends.said());
    for dir in [&dir, &known.seed.with_file_name("")] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

/// A write of the ledger that its disk has lost, torn or put elsewhere: the pages that it was about are listed, and nothing starts.
#[test]
fn a_ledger_whose_disk_has_lost_torn_or_misdirected_a_write_vouches_for_nothing() {
    let dir = with_table("ledger-classes");
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let journal_of = |child: &Child| {
        let path = format!("/proc/{}/root/mnt/ledger/ledger", child.id());
        fs::read(path).expect("the ledger")
    };
    let old = journal_of(&both.a);
    let change = "UPDATE t SET b = lower(b); SELECT 'changed';";
    assert_eq!(both.ask(change), "changed");
    let known = keep(&both.a, "ledger-classes-known");
    both.end();
    let journal = known.ledger.as_ref().expect("kept").join("ledger");
    let now = fs::read(&journal).expect("a journal");
    assert!(now.len() > old.len() + 8192, "{} bytes", now.len());
    let (from, to) = (now.len() - 4096, now.len() - 2048);
    let torn = [&now[..to], &vec![0; 2048][..]].concat();
    let misdirected = [&now[..from - 4096], &now[from..], &now[from..]].concat();
    struct Row<'a> {
        class: &'static str,
        bytes: &'a [u8],
        refused: bool,
    }
    for Row {
        class,
        bytes,
        refused,
    } in [
        Row {
            class: "lost",
            bytes: &old,
            refused: true,
        },
        Row {
            class: "torn",
            bytes: &torn,
            refused: true,
        },
        Row {
            class: "misdirected",
            bytes: &misdirected,
            refused: true,
        },
        Row {
            class: "right",
            bytes: &now,
            refused: false,
        },
    ] {
        fs::write(&journal, bytes).expect("a ledger");
        let mut both = Both::start(&known, &known);
        if refused {
            let ends = both.end();
            let said = ends.said();
            assert_eq!(ends.codes(), [Some(121), Some(121)], "{class}: {said}");
            let listed = said.contains("not as the ledgers have it");
            assert!(
                listed || said.contains("is damaged at byte"),
                "{class}: {said}"
            );
        } else {
            assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
            assert_eq!(both.end().said(), "", "{class}");
        }
    }
    for dir in [&dir, &known.seed.with_file_name("")] {
        fs::remove_dir_all(dir).expect("clean");
    }
}

#[test]
fn a_link_that_flaps_for_less_than_a_loss_is_waited_for() {
    let dir = with_table("flaps");
    let (site, witness) = (sqlite_site(&dir), Witness::new("flaps"));
    let listen = format!("127.0.0.1:{}", free_port());
    let wire = Wire::to(listen.clone());
    let flags = witness.flags(3000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = Both::start_with(&site, &site, &listen, &wire.address, &flags);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    for round in 0..6 {
        wire.stall(true);
        let resumed = {
            let wire = &wire;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    std::thread::sleep(Duration::from_millis(50 + 40 * round));
                    wire.stall(false);
                });
                both.ask("UPDATE t SET b = b || 'x'; SELECT 'on';")
            })
        };
        assert_eq!(resumed, "on", "round {round}");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}

/// A log of its own beside the database: without shared memory it is read and written as any file.
#[test]
fn sqlite3_with_a_log_of_its_own_is_repaired_in_log_and_database_and_survives_a_loss() {
    // A frame of the log is a head and a page (sqlite.org/fileformat2, section 4).
    const HEAD: u64 = 32;
    const FRAME: u64 = 24 + 4096;
    let dir = with_table("log");
    let model = seed("log-model");
    fs::copy(dir.join("x.db"), model.join("x.db")).expect("a copy");
    let right = sqlite(&model, &format!("{CHANGE}\n.sha3sum"));
    let right = right.lines().last().expect("a sum").to_owned();
    let twice = sqlite(&model, &format!("{CHANGE}\n.sha3sum"));
    let twice = twice.lines().last().expect("a sum").to_owned();
    let site = sqlite_site(&dir);
    side_by_side(&["A", "B"], |struck| {
        let witness = Witness::new(&format!("log-{struck}"));
        let mut both = witnessed(&site, &witness);
        assert_eq!(both.ask("PRAGMA locking_mode=EXCLUSIVE;"), "exclusive");
        assert_eq!(both.ask("PRAGMA journal_mode=WAL;"), "wal");
        assert_eq!(both.ask("PRAGMA wal_autocheckpoint=0;"), "0");
        // What is asked for is read again.
        assert_eq!(both.ask(&format!("PRAGMA cache_size=1; {CHANGE}")), "200");
        let child = if *struck == "A" { &both.a } else { &both.b };
        let path = format!("/proc/{}/root/mnt/data/x.db-wal", child.id());
        let log = fs::File::options()
            .read(true)
            .write(true)
            .open(path)
            .expect("a log");
        let frames = (log.metadata().expect("a log").len() - HEAD) / FRAME;
        assert!(frames > 50, "{frames}");
        for frame in 0..frames {
            let mut byte = [0];
            let at = HEAD + frame * FRAME + 24 + 2000;
            log.read_exact_at(&mut byte, at).expect("inside");
            log.write_all_at(&[byte[0] ^ 2], at).expect("stored");
        }
        both = both.told(".sha3sum", &right);
        both = both.told("PRAGMA wal_checkpoint(TRUNCATE);", "0|0|0");
        both.strike(if *struck == "A" { &both.a } else { &both.b }, PLACE, 1);
        both = both.told(".sha3sum", &right);
        both = both.told("PRAGMA integrity_check;", "ok");
        both.a.kill().expect("a child");
        let mut from = std::io::BufReader::new(both.b.stdout.take().expect("piped"));
        let mut answer = ask_secondary(&mut both.b, &mut from, CHANGE);
        while answer != "400" {
            assert_eq!(answer, "ok", "{struck}: the primary's last word");
            answer.clear();
            std::io::BufRead::read_line(&mut from, &mut answer).expect("it answers");
            answer.truncate(answer.trim_end().len());
        }
        assert_eq!(ask_secondary(&mut both.b, &mut from, ".sha3sum"), twice);
        let check = "PRAGMA integrity_check;";
        assert_eq!(ask_secondary(&mut both.b, &mut from, check), "ok");
        drop(both.b.stdin.take());
        let ends = both.end();
        let said = ends.said();
        assert_eq!(ends.b.status.code(), Some(0), "{said}");
        for file in ["x.db-wal page", "x.db page 8,"] {
            assert!(
                said.contains(&format!("disk of {struck}, {file}")),
                "{said}"
            );
        }
        let other = if *struck == "A" {
            "disk of B"
        } else {
            "disk of A"
        };
        assert!(!said.contains(other), "{said}");
    });
    for dir in [dir, model] {
        fs::remove_dir_all(dir).expect("clean");
    }
}
