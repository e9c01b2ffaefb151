//! A site, or what connects the two, is lost.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdin, Command};
use std::time::{Duration, Instant};

use crate::sites::*;

#[test]
fn a_lost_peer_and_a_full_ledger_stop_the_program() {
    let dir = with_table("lost");
    let mut both = Both::start(&sqlite_site(&dir), &sqlite_site(&dir));
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    both.b.kill().expect("a child");
    assert_eq!(both.ask("SELECT count(*)+1 FROM t;"), "");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(122), "{}", ends.said());
    assert!(ends.said().contains("the peer is lost"), "{}", ends.said());

    let full = Site {
        ledger_bytes: "8k",
        ..sqlite_site(&dir)
    };
    let mut both = Both::start(&full, &sqlite_site(&dir));
    both.ask("INSERT INTO t SELECT a+1000, b FROM t; INSERT INTO t SELECT a+10000, b FROM t; VACUUM; SELECT 'done';");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(121), "{}", ends.said());
    assert!(
        ends.said().contains("the ledger has to be written"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn the_primary_goes_on_without_the_secondary_and_still_finds_what_its_disk_gets_wrong() {
    let dir = with_table("alone");
    let (site, witness) = (sqlite_site(&dir), Witness::new("alone"));
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask(CHANGE), "200");
    both.b.kill().expect("a child");
    let sum = both.ask(&SUM.replace(" PRAGMA integrity_check;", ""));
    assert_eq!(
        both.ask(&format!("{CHANGE} PRAGMA integrity_check;")),
        "400"
    );
    let mut line = String::new();
    both.from.read_line(&mut line).expect("it answers");
    assert_eq!(line, "ok\n");
    assert_eq!(
        sum,
        sqlite(
            &dir,
            &format!(
                "BEGIN; {CHANGE} {} ROLLBACK;",
                SUM.replace(" PRAGMA integrity_check;", "")
            )
        )
        .lines()
        .nth(1)
        .unwrap_or_default()
    );
    both.strike(&both.a, PLACE, 1);
    assert_eq!(both.ask(ASK), "", "nothing wrong leaves");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(122), "{}", ends.said());
    assert!(
        ends.said()
            .contains("the secondary is lost; this site goes on alone")
            && ends
                .said()
                .contains("not as the ledger has it, and this site is alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn the_secondary_goes_on_without_the_primary_with_what_was_committed() {
    let dir = with_table("leads");
    let (site, witness) = (sqlite_site(&dir), Witness::new("leads"));
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask(CHANGE), "200");
    both.a.kill().expect("a child");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let only = SUM.replace(" PRAGMA integrity_check;", "");
    let mut sum = ask_secondary(&mut both.b, &mut from, &only);
    // The primary's last word, if this site has not heard that it was said.
    if sum == "200" {
        sum.clear();
        from.read_line(&mut sum).expect("it answers");
        sum.truncate(sum.trim_end().len());
    }
    assert_eq!(
        sum,
        sqlite(&dir, &format!("BEGIN; {CHANGE} {only} ROLLBACK;"))
            .lines()
            .nth(1)
            .unwrap_or_default()
    );
    assert_eq!(ask_secondary(&mut both.b, &mut from, CHANGE), "400");
    assert_eq!(
        ask_secondary(&mut both.b, &mut from, "PRAGMA integrity_check;"),
        "ok"
    );
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    assert!(
        ends.said()
            .contains("the primary is lost; this site goes on alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_primary_that_was_frozen_finds_itself_outvoted_and_says_nothing_more() {
    let dir = with_table("frozen");
    let (site, witness) = (sqlite_site(&dir), Witness::new("frozen"));
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(500);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = Both::start_with(&site, &site, &address, &address, &flags);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    let signal = |child: &Child, name: &str| {
        let sent = Command::new("kill")
            .args([name, &child.id().to_string()])
            .status()
            .expect("kill is installed");
        assert!(sent.success());
    };
    signal(&both.a, "-STOP");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT 'here';");
    // The primary's last word, if this site has not heard that it was said.
    if answer == "100" {
        answer.clear();
        from.read_line(&mut answer).expect("it answers");
        answer.truncate(answer.trim_end().len());
    }
    assert_eq!(answer, "here");
    writeln!(
        both.to.as_ref().expect("open"),
        "INSERT INTO t VALUES(5000, 'x'); SELECT 'there';"
    )
    .expect("it reads");
    signal(&both.a, "-CONT");
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(0)], "{}", ends.said());
    assert_eq!(String::from_utf8_lossy(&ends.a.stdout), "");
    assert!(
        ends.said()
            .contains("the witness says that it goes on alone"),
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_preferred_primary_goes_on_without_a_witness_and_a_secondary_never_does() {
    let dir = with_table("preferred");
    let site = sqlite_site(&dir);
    let address = || format!("127.0.0.1:{}", free_port());
    let pair = |flags: &[&str]| {
        let at = address();
        let mut both = Both::start_with(&site, &site, &at, &at, flags);
        assert_eq!(first_answer(&mut both), "100");
        both
    };
    let mut both = pair(&["--prefer-primary"]);
    both.b.kill().expect("a child");
    assert_eq!(both.ask("SELECT count(*)+1 FROM t;"), "101");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(0), "{}", ends.said());
    let line = "goes on alone, as --prefer-primary says";
    assert!(ends.said().contains(line), "{}", ends.said());

    let mut both = pair(&["--prefer-primary"]);
    both.a.kill().expect("a child");
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(122), "{}", ends.said());

    let witness = Witness::new("preferred");
    let flags = witness.flags(1000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = pair(&[&flags[..], &["--prefer-primary"]].concat());
    drop(witness);
    both.b.kill().expect("a child");
    assert_eq!(both.ask("SELECT count(*)+1 FROM t;"), "101");
    let ends = both.end();
    assert_eq!(ends.a.status.code(), Some(0), "{}", ends.said());
    let risk = "if the other one reaches the witness, both go on";
    assert!(ends.said().contains(risk), "{}", ends.said());

    // The secondary alone reaches the witness: both go on, until the primary reaches it.
    let witness = Witness::new("preferred-once");
    let flags = witness.flags(600);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let listen = address();
    let wire = Wire::to(listen.clone());
    let all = [&flags[..], &["--prefer-primary"]].concat();
    let mut both = Both::start_with(&site, &site, &listen, &wire.address, &all);
    assert_eq!(first_answer(&mut both), "100");
    let place = witness.0.display().to_string();
    let a = both.a.id().to_string();
    let within_a = |words: &[&str]| {
        let mut nsenter = Command::new("nsenter");
        nsenter.args(["--target", &a, "--mount"]);
        if !is_root() {
            nsenter.args(["--user", "--preserve-credentials"]);
        }
        let done = nsenter.arg("--").args(words).status().expect("nsenter");
        assert!(done.success(), "{words:?}");
    };
    within_a(&["mount", "-t", "tmpfs", "-o", "ro", "none", &place]);
    wire.cut();
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let here = ask_secondary(&mut both.b, &mut from, "SELECT 'here';");
    assert_eq!(here, "here");
    assert_eq!(both.ask("SELECT count(*)+1 FROM t;"), "101", "so does A");
    within_a(&["umount", &place]);
    let deadline = Instant::now() + LIMIT;
    while both.a.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < deadline, "A goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(122), Some(0)], "{}", ends.said());

    // Both sites have to be told the same.
    let at = address();
    let b = start(&site, "secondary", &["--listen", &at]);
    let a = start(&site, "primary", &["--peer", &at, "--prefer-primary"]);
    let ends = Both::with(a, b).end();
    assert_eq!(ends.codes(), [Some(121); 2], "{}", ends.said());
    assert!(ends.said().contains("--prefer-primary"), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

/// Where a frame begins (link.rs): its length, four bytes, and its kind.
#[derive(Default)]
struct Frames {
    head: Vec<u8>,
    left: usize,
}

impl Frames {
    /// Where among these bytes, the next ones, a question of the secondary's begins.
    fn question(&mut self, bytes: &[u8]) -> Option<usize> {
        const ASK: u8 = 9;
        let mut found = None;
        for (at, byte) in bytes.iter().enumerate() {
            if self.left > 0 {
                self.left -= 1;
                continue;
            }
            self.head.push(*byte);
            let Ok([a, b, c, d, kind]) = <[u8; 5]>::try_from(&self.head[..]) else {
                continue;
            };
            self.head.clear();
            self.left = u32::from_le_bytes([a, b, c, d]) as usize;
            if kind & 0x7f == ASK {
                found = found.or(Some(at.saturating_sub(4)));
            }
        }
        found
    }
}

/// Between the two sites; cut, it says nothing and closes nothing.
pub(crate) struct Wire {
    pub(crate) address: String,
    cut: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Keeps what it has, for now.
    stalled: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Keeps what the secondary says, from its first question on.
    muted: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Changes a bit of what it has next.
    flips: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Wire {
    pub(crate) fn to(secondary: String) -> Self {
        use std::sync::atomic::{AtomicBool, Ordering};
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let cut = std::sync::Arc::new(AtomicBool::new(false));
        let is_cut = std::sync::Arc::clone(&cut);
        let stalled = std::sync::Arc::new(AtomicBool::new(false));
        let is_stalled = std::sync::Arc::clone(&stalled);
        let muted = std::sync::Arc::new(AtomicBool::new(false));
        let is_muted = std::sync::Arc::clone(&muted);
        let flips = std::sync::Arc::new(AtomicBool::new(false));
        let does_flip = std::sync::Arc::clone(&flips);
        std::thread::spawn(move || {
            let Ok((a, _)) = listener.accept() else {
                return;
            };
            let b = loop {
                match TcpStream::connect(&secondary) {
                    Ok(stream) => break stream,
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            let ways = [false, true].map(|back| {
                let (from, to) = if back { (&b, &a) } else { (&a, &b) };
                let (mut from, mut to) = (
                    from.try_clone().expect("a socket"),
                    to.try_clone().expect("a socket"),
                );
                let is_cut = std::sync::Arc::clone(&is_cut);
                let is_stalled = std::sync::Arc::clone(&is_stalled);
                let is_muted = std::sync::Arc::clone(&is_muted);
                let does_flip = std::sync::Arc::clone(&does_flip);
                std::thread::spawn(move || {
                    let mut bytes = [0; 65536];
                    let mut frames = Frames::default();
                    while let Ok(mut n) = from.read(&mut bytes) {
                        while is_stalled.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        if back
                            && let Some(at) = frames.question(&bytes[..n])
                            && is_muted.load(Ordering::SeqCst)
                        {
                            n = at;
                            let _ = to.write_all(&bytes[..n]);
                            while from.read(&mut bytes).is_ok_and(|n| n > 0) {}
                            n = 0;
                        }
                        if n > 0 && does_flip.swap(false, Ordering::SeqCst) {
                            bytes[n - 1] ^= 1;
                        }
                        if n == 0
                            || is_cut.load(Ordering::SeqCst)
                            || to.write_all(&bytes[..n]).is_err()
                        {
                            break;
                        }
                    }
                    if !is_cut.load(Ordering::SeqCst) {
                        let _ = to.shutdown(std::net::Shutdown::Write);
                    }
                })
            });
            for way in ways {
                let _ = way.join();
            }
            // Until the test is over: whoever listens hears nothing.
            while is_cut.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Self {
            address,
            cut,
            stalled,
            muted,
            flips,
        }
    }

    /// The primary hears nothing of the secondary any more when that asks for a page.
    pub(crate) fn mute(&self) {
        self.muted.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled
            .store(stalled, std::sync::atomic::Ordering::SeqCst);
    }

    fn flip(&self) {
        self.flips.store(true, std::sync::atomic::Ordering::SeqCst);
    }

    fn cut(&self) {
        self.cut.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// The site that goes on, and what it is asked.
struct Left<'a> {
    to: &'a ChildStdin,
    from: BufReader<&'a mut dyn Read>,
}

impl Left<'_> {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).expect("it answers");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, sql: &str) -> String {
        writeln!(self.to, "{sql}").expect("it reads");
        self.line()
    }

    /// It is alive, and has what somebody was told to be committed. `told`: what the lost site has said.
    fn holds(&mut self, told: &str, round: u64) {
        let mut told = told.contains("200");
        let mut answer = self.ask("SELECT 'alive';");
        while answer.parse::<u32>().is_ok() {
            told |= answer == "200";
            answer = self.line();
        }
        assert_eq!(answer, "alive", "round {round}");
        let has = self.ask("SELECT count(*) || ' ' || sum(substr(b, -1) = 'x') FROM t;");
        let steps = ["100 0", "200 0", "200 40"];
        let may = if told { &steps[2..] } else { &steps };
        assert!(may.contains(&has.as_str()), "round {round}: {has}");
        assert_eq!(self.ask("PRAGMA integrity_check;"), "ok", "round {round}");
    }
}

/// How many rounds, and from which one on: a round is a moment within the first 60 ms of a change.
pub(crate) fn rounds(name: &str, few: u64) -> std::ops::Range<u64> {
    let number = |name: &str, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let first = number("PAIR_FIRST", 0);
    first..first + number(name, few)
}

fn moment(round: u64) -> Duration {
    Duration::from_micros(7919 * round % 60_000)
}

/// Of the site that is lost, all that it has said; and the other one holds what it has to.
fn lose_one(both: &mut Both, lost_is_a: bool, round: u64) {
    let mut told = String::new();
    if lost_is_a {
        both.from.read_to_string(&mut told).expect("it has ended");
        let mut from = both.b.stdout.take().expect("piped");
        let mut left = Left {
            to: both.b.stdin.as_ref().expect("piped"),
            from: BufReader::new(&mut from),
        };
        left.holds(&told, round);
        drop(both.b.stdin.take());
    } else {
        let mut left = Left {
            to: both.to.as_ref().expect("open"),
            from: BufReader::new(&mut both.from),
        };
        left.holds("", round);
    }
}

/// Or what both have said.
fn first_answer(both: &mut Both) -> String {
    let answer = both.ask("SELECT count(*) FROM t;");
    if !answer.is_empty() {
        return answer;
    }
    both.wait();
    let said = [both.a.stderr.take(), both.b.stderr.take()].map(|stderr| {
        let mut said = String::new();
        let read = stderr.map(|mut stderr| stderr.read_to_string(&mut said));
        drop(read);
        said
    });
    said.concat()
}

fn is_silent(ends: &Ends, round: u64) {
    for alarm in ["disk of", "processor or memory", "ledger", "differ"] {
        let said = ends.said();
        assert!(!said.contains(alarm), "round {round}: {said}");
    }
}

/// `PAIR_CUTS`: how many.
#[test]
fn a_cut_link_leaves_one_site_that_goes_on_and_never_two() {
    let dir = with_table("cut");
    let site = sqlite_site(&dir);
    for round in rounds("PAIR_CUTS", 3) {
        let witness = Witness::new(&format!("cut-{round}"));
        let listen = format!("127.0.0.1:{}", free_port());
        let wire = Wire::to(listen.clone());
        // Whoever is the more patient comes second.
        let flags = witness.flags(600);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut both = Both::start_with(&site, &site, &listen, &wire.address, &flags);
        assert_eq!(first_answer(&mut both), "100", "round {round}");
        // In the middle of work, from the second round on.
        if round > 0 {
            writeln!(both.to.as_ref().expect("open"), "{CHANGE}").expect("it reads");
            std::thread::sleep(moment(round));
        }
        wire.cut();
        let deadline = Instant::now() + LIMIT;
        let primary_stopped = loop {
            if both.a.try_wait().expect("a child").is_some() {
                break true;
            }
            if both.b.try_wait().expect("a child").is_some() {
                break false;
            }
            assert!(Instant::now() < deadline, "nobody stops");
            std::thread::sleep(Duration::from_millis(5));
        };
        lose_one(&mut both, primary_stopped, round);
        let ends = both.end();
        let mut codes = ends.codes();
        codes.sort_unstable();
        let said = ends.said();
        assert_eq!(codes, [Some(0), Some(122)], "round {round}: {said}");
        for once in [
            "goes on alone, as the witness says",
            "the witness says that it goes on alone",
        ] {
            assert_eq!(said.matches(once).count(), 1, "round {round}: {said}");
        }
        assert!(said.contains(SILENT), "round {round}: {said}");
        is_silent(&ends, round);
    }
    fs::remove_dir_all(dir).expect("clean");
}

const SILENT: &str = "nothing more is heard of the other site: no word from it";

#[test]
fn a_frame_that_is_changed_on_its_way_is_told_and_ends_the_link() {
    let dir = with_table("changed");
    let (site, witness) = (sqlite_site(&dir), Witness::new("changed"));
    let listen = format!("127.0.0.1:{}", free_port());
    let wire = Wire::to(listen.clone());
    let flags = witness.flags(3000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = Both::start_with(&site, &site, &listen, &wire.address, &flags);
    assert_eq!(first_answer(&mut both), "100");
    wire.flip();
    let deadline = Instant::now() + LIMIT;
    let lost_is_a = loop {
        let ended = |child: &mut Child| child.try_wait().expect("a child").is_some();
        if let Some(lost) = [ended(&mut both.a), ended(&mut both.b)]
            .iter()
            .position(|ended| *ended)
        {
            break lost == 0;
        }
        assert!(Instant::now() < deadline, "nobody stops");
        std::thread::sleep(Duration::from_millis(5));
    };
    lose_one(&mut both, lost_is_a, 0);
    let ends = both.end();
    let mut codes = ends.codes();
    codes.sort_unstable();
    assert_eq!(codes, [Some(0), Some(122)], "{}", ends.said());
    let line = "a frame of the link was changed on its way";
    assert_eq!(ends.said().matches(line).count(), 1, "{}", ends.said());
    is_silent(&ends, 0);
    fs::remove_dir_all(dir).expect("clean");
}

/// `PAIR_CRASHES`: how many.
#[test]
fn a_site_that_is_killed_at_any_moment_leaves_the_other_one_and_raises_no_alarm() {
    let dir = with_table("killed");
    let site = sqlite_site(&dir);
    for round in rounds("PAIR_CRASHES", 4) {
        let witness = Witness::new(&format!("killed-{round}"));
        let mut both = witnessed(&site, &witness);
        assert_eq!(first_answer(&mut both), "100", "round {round}");
        writeln!(both.to.as_ref().expect("open"), "{CHANGE}").expect("it reads");
        std::thread::sleep(moment(round));
        let lost_is_a = round % 2 == 1;
        let lost = if lost_is_a { &mut both.a } else { &mut both.b };
        lost.kill().expect("a child");
        lost.wait().expect("a child");
        lose_one(&mut both, lost_is_a, round);
        let ends = both.end();
        let code = ends.codes()[usize::from(lost_is_a)];
        assert_eq!(code, Some(0), "round {round}: {}", ends.said());
        is_silent(&ends, round);
    }
    fs::remove_dir_all(dir).expect("clean");
}
