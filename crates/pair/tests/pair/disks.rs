//! What a disk returns wrong, and what keeps a pair from starting.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::sites::*;

#[test]
fn the_pair_answers_as_sqlite3_alone_does_and_says_nothing() {
    let dir = with_table("silent");
    let script = "INSERT INTO t SELECT a+1000, b FROM t; DELETE FROM t WHERE a % 3 = 0; UPDATE t SET b = b || 'x' WHERE a % 5 = 0;
VACUUM; PRAGMA integrity_check; .sha3sum";
    let site = sqlite_site(&dir);
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask(&script.replace(" .sha3sum", "")), "ok");
    let digest = both.ask(".sha3sum");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    assert_eq!(
        format!("ok\n{digest}\n"),
        sqlite(&dir, &script.replace(" .sha3sum", "\n.sha3sum"))
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_flip_on_either_disk_is_attributed_and_repaired_and_on_both_the_program_stops() {
    let dir = with_table("flip");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, ".sha3sum").trim().to_owned();
    for (struck, line) in [
        ("A", "disk of A, x.db page 8, ledger agrees with B"),
        ("B", "disk of B, x.db page 8, ledger agrees with A"),
    ] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask(ASK), right);
        both.strike(if struck == "A" { &both.a } else { &both.b }, PLACE, 1);
        assert_eq!(both.ask(ASK), right, "{struck}");
        assert_eq!(both.ask(ASK), right, "{struck}: again");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        assert_eq!(
            ends.said().matches(line).count(),
            2,
            "once on each site, and no second time: {}",
            ends.said()
        );
    }
    let mut both = Both::start(&site, &site);
    assert_eq!(both.ask(ASK), right);
    // More than a page can be put together from.
    for (child, with) in [(&both.a, b"AAAAAAAA"), (&both.b, b"BBBBBBBB")] {
        let path = format!("/proc/{}/root/mnt/data/x.db", child.id());
        let file = fs::OpenOptions::new().write(true).open(path);
        file.and_then(|file| file.write_all_at(with, PLACE))
            .expect("it is stored");
    }
    assert_eq!(both.ask(ASK), "", "nothing wrong leaves");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(122)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("the ledgers do not tell which is right"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_page_that_is_wrong_on_both_disks_is_put_together_from_what_each_has_left() {
    let dir = with_table("mosaic");
    let site = sqlite_site(&dir);
    let right = sqlite(&dir, ".sha3sum").trim().to_owned();
    // Of one byte, of two, and one of a page of which the other disk has nothing.
    for (on_a, on_b) in [(Some(1), PLACE), (Some(2), PLACE + 1), (None, PLACE)] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask(ASK), right);
        both.strike(&both.b, on_b, 3);
        if let Some(bit) = on_a {
            both.strike(&both.a, PLACE, bit);
        } else {
            let path = format!("/proc/{}/root/mnt/data/x.db", both.a.id());
            let file = fs::OpenOptions::new().write(true).open(path);
            file.and_then(|file| file.write_all_at(&[0; 4096], PLACE / 4096 * 4096))
                .expect("it is stored");
        }
        assert_eq!(both.ask(ASK), right, "on A {on_a:?}");
        assert_eq!(both.ask(ASK), right, "on A {on_a:?}: again");
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        for struck in ["A", "B"] {
            let line = format!(
                "disk of {struck}, x.db page 8, ledger agrees with neither: put together from both; repaired"
            );
            assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
        }
        assert_eq!(ends.said().matches("disk of").count(), 4, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn files_that_differ_at_the_start_are_listed_and_nothing_starts() {
    let (dir, other) = (with_table("equal"), with_table("other"));
    let file = fs::OpenOptions::new()
        .write(true)
        .open(other.join("x.db"))
        .expect("the database");
    file.write_all_at(b"?", PLACE).expect("it is stored");
    fs::write(dir.join("more"), "x").expect("a file");
    let ends = Both::start(&sqlite_site(&dir), &sqlite_site(&other)).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(
        ends.said()
            .contains("/mnt/data/x.db: page 8 differs, no ledger tells which is right"),
        "{}",
        ends.said()
    );
    assert!(
        ends.said()
            .contains("/mnt/data/more: the secondary does not have it"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir)
        .and_then(|()| fs::remove_dir_all(other))
        .expect("clean");
}

#[test]
fn what_a_pair_cannot_do_is_refused_by_name() {
    let dir = seed("refused");
    let site = |command: &[&str]| Site {
        seed: dir.clone(),
        ledger_bytes: "4m",
        data_bytes: "64m",
        ledger: None,
        ahead: "0",
        net: None,
        command: command.iter().map(|word| (*word).to_owned()).collect(),
    };
    let ends = Both::start(&site(&["echo", "a"]), &site(&["echo", "b"])).end();
    assert_eq!(ends.codes(), [Some(121), Some(121)], "{}", ends.said());
    assert!(ends.said().contains("the same command"), "{}", ends.said());

    // Both on the file system of the temporary directory.
    let output = Command::new(pair())
        .args(["primary", "--peer", "127.0.0.1:1", "--ledger"])
        .arg(dir.join("ledger"))
        .arg("--data")
        .arg(&dir)
        .args(["--", "true"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(121), "{said}");
    assert!(
        said.contains("the ledger has to be on another device"),
        "{said}"
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn check_starts_nothing_and_tells_what_it_finds() {
    let dir = with_table("check");
    let site = Site {
        seed: dir.clone(),
        ledger_bytes: "4m",
        data_bytes: "64m",
        ledger: None,
        ahead: "0",
        net: None,
        command: vec!["/bin/true".into()],
    };
    let output = start(&site, "check", &[])
        .wait_with_output()
        .expect("it ends");
    let said =
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("/mnt/data: 1 files")
            && said.contains("without a witness the loss of a site stops the program"),
        "{said}"
    );
    let witness = Witness::new("check");
    let flags = witness.flags(1000);
    let output = start(&site, "check", &flags.each_ref().map(String::as_str))
        .wait_with_output()
        .expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("without a witness"), "{said}");
    let script = Site {
        command: vec!["/usr/bin/ldd".into()],
        ..site
    };
    let output = start(&script, "check", &[])
        .wait_with_output()
        .expect("it ends");
    assert_eq!(output.status.code(), Some(121), "a script is no program");
    let verify = Command::new(pair())
        .args(["verify", "--ledger"])
        .arg(dir.join("none"))
        .output()
        .expect("it runs");
    assert_eq!(
        verify.status.code(),
        Some(121),
        "no ledger vouches for nothing"
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_peer_of_another_version_is_refused() {
    let dir = seed("version");
    let address = format!("127.0.0.1:{}", free_port());
    let site = Site {
        seed: dir.clone(),
        ledger_bytes: "4m",
        data_bytes: "64m",
        ledger: None,
        ahead: "0",
        net: None,
        command: vec!["true".into()],
    };
    let mut b = start(&site, "secondary", &["--listen", &address]);
    let deadline = Instant::now() + LIMIT;
    let mut stream = loop {
        match TcpStream::connect(&address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let body = br#"{"version":99,"steadfast":"9","command":["true"],"program_digest":"","directory":"","environment":[],"data":[],"witness":"none","kernel":"","processor":"","random":""}"#;
    let mut frame = u32::try_from(body.len())
        .expect("short")
        .to_le_bytes()
        .to_vec();
    frame.push(1);
    frame.extend(body);
    stream.write_all(&frame).expect("it listens");
    let output = {
        let _ = b.stdin.take();
        b.wait_with_output().expect("it ends")
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(121), "{said}");
    assert!(
        said.contains("the same protocol version: here ") && said.contains(", there 99"),
        "{said}"
    );
    fs::remove_dir_all(dir).expect("clean");
}
