//! The scrubber: what nobody reads is found as well, and nothing is found where nothing is wrong.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::join::{Told, flip};
use crate::sites::*;
use crate::status::status;

fn byte(both: &std::process::Child) -> u8 {
    let file = fs::File::open(format!("/proc/{}/root/mnt/data/x.db", both.id())).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, PLACE).expect("inside");
    byte[0]
}

#[test]
fn a_page_that_nobody_reads_is_found_on_either_disk_and_repaired() {
    let dir = with_table("scrub");
    let site = sqlite_site(&dir);
    for (struck, line) in [
        (
            "A",
            "scrubber: disk of A, x.db page 8, ledger agrees with B",
        ),
        (
            "B",
            "scrubber: disk of B, x.db page 8, ledger agrees with A",
        ),
    ] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
        let child = if struck == "A" { &both.a } else { &both.b };
        let right = byte(child);
        both.strike(child, PLACE, 1);
        let deadline = Instant::now() + LIMIT;
        while byte(child) != right {
            assert!(Instant::now() < deadline, "{struck}: nobody repairs it");
            std::thread::sleep(Duration::from_millis(20));
        }
        // The program has gone on.
        assert_eq!(both.ask("SELECT count(*)+1 FROM t;"), "101");
        let (_, said) = status(if struck == "A" { &both.a } else { &both.b });
        assert_eq!(said["scrub_found"], 1, "{said}");
        assert_eq!(said["repairs"], 1, "{said}");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn on_both_disks_the_program_stops_and_without_a_scrubber_nobody_notices() {
    let dir = with_table("scrub-both");
    let site = sqlite_site(&dir);
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    // In one page and one sector, more bits than a page can be put together from.
    for at in 0..8 {
        both.strike(&both.a, PLACE + at, 1);
        both.strike(&both.b, PLACE + 8 + at, 1);
    }
    let deadline = Instant::now() + LIMIT;
    while both.a.try_wait().expect("a child").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("the ledgers do not tell which is right"),
        "{}",
        ends.said()
    );

    // The same on both: no read differs, and the ledgers alone know.
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    both.strike(&both.a, PLACE, 1);
    both.strike(&both.b, PLACE, 1);
    let deadline = Instant::now() + LIMIT;
    while both.a.try_wait().expect("a child").is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let ends = both.end();
    let alike = "is equal on both sites, and not as their ledgers have it";
    assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
    assert!(ends.said().contains(alike), "{}", ends.said());

    let address = format!("127.0.0.1:{}", free_port());
    let mut both = Both::start_with(&site, &site, &address, &address, &["--scrub", "0"]);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    both.strike(&both.a, PLACE, 1);
    std::thread::sleep(Duration::from_secs(2));
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}

/// A scrubber looks at each page of a file that may be wrong for a tenth of a second, and tells of them in the end.
#[test]
fn pages_that_are_cut_off_after_they_were_found_wrong_stop_nobody() {
    let dir = with_table("scrub-cut");
    let site = sqlite_site(&dir);
    let mut both = Both::start(&site, &site);
    let found = |both: &Both| status(&both.b).1["scrub_found"].as_u64().expect("a number");
    let rounds = |both: &Both| {
        status(&both.b).1["scrub_rounds"]
            .as_u64()
            .expect("a number")
    };
    let deadline = Instant::now() + LIMIT;
    loop {
        both = both.told("SELECT writefile('f', zeroblob(80000));", "80000");
        let (had, began) = (found(&both), rounds(&both));
        for page in 0..15 {
            crate::servers::strike_at(&both.b, "f", page * 4096 + 100);
        }
        // It comes by within a second, and stays for a second and a half.
        std::thread::sleep(Duration::from_millis(1600));
        let is_there_still = found(&both) == had;
        both = both.told("SELECT writefile('f', '');", "0");
        while rounds(&both) < began + 2 {
            both = both.told("SELECT 1;", "1");
            std::thread::sleep(Duration::from_millis(50));
        }
        if is_there_still && found(&both) > had {
            break;
        }
        assert!(Instant::now() < deadline, "it is never in the middle of it");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

/// Each site's scrubber has been through all files twice.
fn has_scrubbed(both: &Both) -> bool {
    let twice = |child| status(child).1["scrub_rounds"].as_u64() > Some(1);
    twice(&both.a) && twice(&both.b)
}

#[test]
fn it_is_silent_while_the_program_writes() {
    let dir = with_table("scrub-silent");
    let site = sqlite_site(&dir);
    let address = format!("127.0.0.1:{}", free_port());
    let mut both = Both::start_with(&site, &site, &address, &address, &["--scrub", "1000"]);
    let began = Instant::now();
    let mut done = 0;
    while done < 10 || !has_scrubbed(&both) {
        assert!(began.elapsed() < LIMIT, "no scrubber comes by");
        for _ in 0..5 {
            let answer = both.ask(
                "UPDATE t SET b = b || 'x' WHERE a % 3 = 0; INSERT INTO t SELECT a+1000, b FROM t WHERE a < 50; DELETE FROM t WHERE a >= 1000; SELECT 1;",
            );
            assert_eq!(answer, "1");
            done += 1;
        }
    }
    for child in [&both.a, &both.b] {
        let (_, said) = status(child);
        assert!(said["pages_scrubbed"].as_u64() > Some(20), "{said}");
        assert_eq!(said["scrub_found"], 0, "{said}");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}

/// Files are written all the time, by processes that come and go.
const CREW: &str =
    "(while :; do echo one >>log; sleep 0.02; done) & while read q; do echo $q; done; kill $!";

fn crew_site(dir: &std::path::Path) -> Site {
    Site {
        command: ["/bin/sh", "-c", CREW].map(String::from).to_vec(),
        ..sqlite_site(dir)
    }
}

#[test]
fn a_page_that_nobody_reads_is_found_while_the_program_has_several_processes() {
    let dir = with_table("scrub-crew");
    let site = crew_site(&dir);
    let address = format!("127.0.0.1:{}", free_port());
    let mut both = Both::start_with(&site, &site, &address, &address, &["--scrub", "1000"]);
    assert_eq!(both.ask("begun"), "begun");
    for (child, name) in [(&both.a, "A"), (&both.b, "B")] {
        let right = byte(child);
        both.strike(child, PLACE, 1);
        let deadline = Instant::now() + LIMIT;
        while byte(child) != right {
            assert!(Instant::now() < deadline, "{name}: nobody repairs it");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // The processes have gone on, and nothing is said of what they write.
    let log = |child: &std::process::Child| {
        let path = format!("/proc/{}/root/mnt/data/log", child.id());
        fs::metadata(path).expect("a file").len()
    };
    let (before, deadline) = (log(&both.a), Instant::now() + LIMIT);
    while log(&both.a) == before || !has_scrubbed(&both) {
        assert!(Instant::now() < deadline, "it does not write");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(both.ask("on"), "on");
    for child in [&both.a, &both.b] {
        let (_, said) = status(child);
        assert_eq!(said["repairs"], 2, "{said}");
    }
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    for line in [
        "scrubber: disk of A, x.db page 8, ledger agrees with B",
        "scrubber: disk of B, x.db page 8, ledger agrees with A",
    ] {
        assert_eq!(ends.said().matches(line).count(), 2, "{}", ends.said());
    }
    assert_eq!(ends.said().lines().count(), 4, "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

/// Flips a bit of every copy of these bytes in the memory of a command, but its code and what it shares.
fn strike_memory(child: &std::process::Child, digest: &[u8]) -> usize {
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).expect("a process");
    let memory = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{}/mem", child.id()))
        .expect("root, or the same user");
    let mut struck = 0;
    for line in maps.lines().filter(|line| line.contains(" rw-p ")) {
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let (from, to) = range.expect("proc(5)");
        let at = |text| u64::from_str_radix(text, 16).expect("proc(5)");
        let mut bytes = vec![0; usize::try_from(at(to) - at(from)).expect("64 bits")];
        if memory.read_exact_at(&mut bytes, at(from)).is_err() {
            continue;
        }
        for index in 0..bytes.len().saturating_sub(digest.len()) {
            if bytes[index..].starts_with(digest) {
                let place = at(from) + index as u64;
                memory
                    .write_all_at(&[digest[0] ^ 4], place)
                    .expect("private memory");
                struck += 1;
            }
        }
    }
    struck
}

#[test]
fn a_bit_of_a_ledger_that_flips_in_memory_is_put_right_and_no_disk_is_blamed() {
    let dir = with_table("scrub-ledger");
    let site = sqlite_site(&dir);
    // The journal as it was enrolled: a name, a size, and the digests of all pages.
    let digest = |child: &std::process::Child, page: usize| {
        let path = format!("/proc/{}/root/mnt/ledger/ledger", child.id());
        let journal = fs::read(path).expect("the ledger");
        let kind = |at: usize| {
            (
                journal[at],
                u32::from_le_bytes(journal[at + 1..at + 5].try_into().expect("four")),
            )
        };
        let mut at = 0;
        while kind(at).0 != 3 {
            at += 9 + kind(at).1 as usize;
        }
        let records = 41 * page;
        let one = if kind(at).1 == 32 {
            at + records + 9 + 16
        } else {
            at + 9 + 16 + 16 * page
        };
        journal[one..one + 16].to_vec()
    };
    let right = sqlite(&dir, ".sha3sum");
    side_by_side(&["A", "B"], |struck| {
        let place = seed(&format!("scrub-ledger-{struck}"));
        let address = format!("127.0.0.1:{}", free_port());
        let start = |side, flag| {
            let flags = [flag, address.as_str(), "--scrub", "100"];
            Told::start(&site, side, &flags, &place, side)
        };
        let b = start("secondary", "--listen");
        let mut a = start("primary", "--peer");
        assert_eq!(a.ask("SELECT count(*) FROM t;"), "100");
        let child = if *struck == "A" { &a.child } else { &b.child };
        assert!(strike_memory(child, &digest(child, 8)) > 0, "it is there");
        // The secondary tells it.
        let line = format!("ledger of {struck}, page 8 of /mnt/data/x.db");
        b.wait_for(&line);
        assert_eq!(a.ask(ASK), right.trim());
        // By now the entry vouches for its page again: a disk that errs is told from the right one.
        let child = if *struck == "A" { &a.child } else { &b.child };
        let path = format!("/proc/{}/root/mnt/data/x.db", child.id());
        flip(&path, PLACE, 1);
        assert_eq!(a.ask(ASK), right.trim());
        let (a, b) = (a.end(), b.end());
        let said = format!("{}{}", a.1, b.1);
        assert_eq!([a.0, b.0], [Some(0); 2], "{said}");
        assert_eq!(said.matches(&line).count(), 1, "{said}");
        let line = format!("disk of {struck}, x.db page 8");
        assert_eq!(said.matches(&line).count(), 2, "{said}");
        assert_eq!(said.matches("disk of").count(), 2, "{said}");
        fs::remove_dir_all(place).expect("clean");
    });
    fs::remove_dir_all(dir).expect("clean");
}
