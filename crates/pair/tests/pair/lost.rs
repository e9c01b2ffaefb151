//! A site, or what connects the two, is lost.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
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

/// Between the two sites; cut, it says nothing and closes nothing.
pub(crate) struct Wire {
    pub(crate) address: String,
    cut: std::sync::Arc<std::sync::atomic::AtomicBool>,
    /// Keeps what it has, for now.
    stalled: std::sync::Arc<std::sync::atomic::AtomicBool>,
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
            let ways = [(&a, &b), (&b, &a)].map(|(from, to)| {
                let (mut from, mut to) = (
                    from.try_clone().expect("a socket"),
                    to.try_clone().expect("a socket"),
                );
                let is_cut = std::sync::Arc::clone(&is_cut);
                let is_stalled = std::sync::Arc::clone(&is_stalled);
                std::thread::spawn(move || {
                    let mut bytes = [0; 65536];
                    while let Ok(n) = from.read(&mut bytes) {
                        while is_stalled.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
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
        }
    }

    pub(crate) fn stall(&self, stalled: bool) {
        self.stalled
            .store(stalled, std::sync::atomic::Ordering::SeqCst);
    }

    fn cut(&self) {
        self.cut.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_cut_link_leaves_one_site_that_goes_on_and_never_two() {
    let dir = with_table("cut");
    let site = sqlite_site(&dir);
    let rounds = std::env::var("PAIR_CUTS").map_or(3, |rounds| rounds.parse().expect("a number"));
    for round in 0..rounds {
        let witness = Witness::new(&format!("cut-{round}"));
        let listen = format!("127.0.0.1:{}", free_port());
        let wire = Wire::to(listen.clone());
        // Whoever is the more patient comes second.
        let flags = witness.flags(600);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let mut both = Both::start_with(&site, &site, &listen, &wire.address, &flags);
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100", "round {round}");
        // In the middle of work, from the second round on.
        if round > 0 {
            writeln!(both.to.as_ref().expect("open"), "{CHANGE}").expect("it reads");
            std::thread::sleep(Duration::from_micros(7919 * round % 60_000));
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
        let ends = if primary_stopped {
            let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
            let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT 'alive';");
            while answer.parse::<u32>().is_ok() {
                answer.clear();
                from.read_line(&mut answer).expect("it answers");
                answer = answer.trim_end().to_owned();
            }
            assert_eq!(answer, "alive", "round {round}");
            drop(both.b.stdin.take());
            both.end()
        } else {
            let mut answer = both.ask("SELECT 'alive';");
            while answer.parse::<u32>().is_ok() {
                let mut line = String::new();
                both.from.read_line(&mut line).expect("it answers");
                answer = line.trim_end().to_owned();
            }
            assert_eq!(answer, "alive", "round {round}");
            both.end()
        };
        let mut codes = ends.codes();
        codes.sort_unstable();
        assert_eq!(
            codes,
            [Some(0), Some(122)],
            "round {round}: {}",
            ends.said()
        );
        assert_eq!(
            ends.said()
                .matches("goes on alone, as the witness says")
                .count(),
            1,
            "round {round}: {}",
            ends.said()
        );
        assert_eq!(
            ends.said()
                .matches("the witness says that it goes on alone")
                .count(),
            1,
            "round {round}: {}",
            ends.said()
        );
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// `PAIR_CRASHES`: how many.
#[test]
fn a_site_that_is_killed_at_any_moment_leaves_the_other_one_and_raises_no_alarm() {
    let dir = with_table("killed");
    let site = sqlite_site(&dir);
    let rounds = std::env::var("PAIR_CRASHES").map_or(4, |text| text.parse().expect("a number"));
    for round in 0..rounds {
        let witness = Witness::new(&format!("killed-{round}"));
        let mut both = witnessed(&site, &witness);
        assert_eq!(both.ask("SELECT count(*) FROM t;"), "100", "round {round}");
        writeln!(both.to.as_ref().expect("open"), "{CHANGE}").expect("it reads");
        std::thread::sleep(Duration::from_micros(7919 * round % 60_000));
        let leads = round % 2 == 0;
        let ends = if leads {
            both.b.kill().expect("a child");
            let mut answer = both.ask("SELECT 'alive';");
            while answer.parse::<u32>().is_ok() {
                let mut line = String::new();
                both.from.read_line(&mut line).expect("it answers");
                answer = line.trim_end().to_owned();
            }
            assert_eq!(answer, "alive", "round {round}");
            assert_eq!(both.ask("PRAGMA integrity_check;"), "ok", "round {round}");
            both.end()
        } else {
            both.a.kill().expect("a child");
            let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
            let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT 'alive';");
            while answer.parse::<u32>().is_ok() {
                answer.clear();
                from.read_line(&mut answer).expect("it answers");
                answer.truncate(answer.trim_end().len());
            }
            assert_eq!(answer, "alive", "round {round}");
            let sound = ask_secondary(&mut both.b, &mut from, "PRAGMA integrity_check;");
            assert_eq!(sound, "ok", "round {round}");
            drop(both.b.stdin.take());
            both.end()
        };
        let code = ends.codes()[usize::from(!leads)];
        assert_eq!(code, Some(0), "round {round}: {}", ends.said());
        for alarm in ["disk of", "processor or memory", "ledger", "differ"] {
            assert!(
                !ends.said().contains(alarm),
                "round {round}: {}",
                ends.said()
            );
        }
    }
    fs::remove_dir_all(dir).expect("clean");
}
