//! Programs with threads: each of the pair's alarms rings in one of them, and nothing rings without a fault.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::processor::flipped;
use crate::sites::*;

fn crew_site(dir: &Path) -> Site {
    let crew = built(&dir.join(".."), "crew");
    Site {
        command: vec![crew.display().to_string()],
        ..sqlite_site(dir)
    }
}

/// A directory for the program, and in it one for the data.
fn with_crew(name: &str) -> (std::path::PathBuf, Site) {
    let dir = seed(name);
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    sqlite(&data, TABLE);
    let site = crew_site(&data);
    (dir, site)
}

/// What the program says without a pair.
fn bare(site: &Site) -> String {
    let mut program = Command::new(&site.command[0]);
    answers(program.current_dir(&site.seed), &["sum"]).remove(0)
}

#[test]
fn a_page_that_one_of_many_threads_reads_wrong_is_repaired_on_either_site() {
    let (dir, site) = with_crew("crew-disk");
    let right = bare(&site);
    let mut both = Both::start(&site, &site);
    for _ in 0..20 {
        assert_eq!(both.ask("sum"), right);
    }
    assert_eq!(both.ask("nap 20"), "nap 110", "ETIMEDOUT");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    for struck in ['A', 'B'] {
        let mut both = Both::start(&site, &site);
        assert_eq!(both.ask("sum"), right);
        both.strike(if struck == 'A' { &both.a } else { &both.b }, PLACE, 1);
        assert_eq!(both.ask("sum"), right);
        let ends = both.end();
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let line = format!("disk of {struck}, x.db page 8");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_wrong_claim_of_one_of_many_threads_is_repaired_by_re_runs_on_either_site() {
    let (dir, site) = with_crew("crew-flip");
    let right = bare(&site);
    for (replica, name) in [(0, 'A'), (1, 'B')] {
        let fault = format!("replica={replica} event=150 reg=rsi bit=5");
        let [a, b] = [0, 1].map(|own| if own == replica { fault.as_str() } else { "" });
        let mut both = flipped(&site, a, b, &[]);
        let sums: Vec<String> = (0..5).map(|_| both.ask("sum")).collect();
        let ends = both.end();
        assert_eq!(sums, vec![right.clone(); 5], "{fault}: {}", ends.said());
        assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
        let line = format!("processor or memory of {name} at event");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

/// Among these events are questions to the kernel, which the leader of a pair asks before the other site has claimed them, and it
/// may have gone on to another thread. `PAIR_SWEEP`: how many events lie between two.
#[test]
fn a_register_that_flips_at_any_event_of_many_threads_changes_no_answer() {
    let (dir, site) = with_crew("crew-sweep");
    let right = bare(&site);
    let step = std::env::var("PAIR_SWEEP").map_or(37, |text| text.parse().expect("a number"));
    let registers = ["rax", "rdi", "rsi", "rdx", "rbx"];
    let mut stopped = 0;
    for (number, event) in (60..260).step_by(step).enumerate() {
        let replica = number % 2;
        let register = registers[number % registers.len()];
        let fault = format!("replica={replica} event={event} reg={register} bit=3");
        let [a, b] = [0, 1].map(|own| if own == replica { fault.as_str() } else { "" });
        let mut both = flipped(&site, a, b, &[]);
        let sums: Vec<String> = (0..5).map(|_| both.ask("sum")).collect();
        let ends = both.end();
        let wrong = sums.iter().find(|sum| !sum.is_empty() && **sum != right);
        assert_eq!(wrong, None, "{fault}: {}", ends.said());
        assert!(!ends.said().contains("disk of"), "{fault}: {}", ends.said());
        match ends.codes() {
            [Some(0), Some(0)] => assert_eq!(sums, vec![right.clone(); 5], "{fault}"),
            [Some(122), Some(122)] => stopped += 1,
            other => panic!("{fault}: {other:?}: {}", ends.said()),
        }
    }
    assert_eq!(stopped, 0, "each has a snapshot to run again from");
    fs::remove_dir_all(dir).expect("clean");
}

/// Each event takes a round trip, so a signal often comes just before a call of the thread that blocks it.
#[test]
fn a_signal_ends_no_call_of_a_thread_that_blocks_it() {
    let dir = seed("masked");
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let program = built_of(&dir, "threads_masked.c");
    let bare = Command::new(&program).output().expect("it runs");
    let site = Site {
        command: vec![program.display().to_string()],
        ..sqlite_site(&data)
    };
    let ends = Both::start(&site, &site).end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.a.stdout, bare.stdout);
    fs::remove_dir_all(dir).expect("clean");
}

/// Threads wait for times of the clock of a host that is lost: the other host's is another one, earlier or later.
#[test]
fn threads_that_wait_for_a_time_go_on_at_that_time_on_the_other_host() {
    const NAP: Duration = Duration::from_millis(1500);
    let (dir, site) = with_crew("crew-clock");
    side_by_side(&[("100000", "0"), ("0", "100000")], |&(a, b)| {
        let witness = Witness::new(&format!("crew-clock-{a}"));
        let address = format!("127.0.0.1:{}", free_port());
        let flags = witness.flags(5000);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let host = |ahead| Site {
            ahead,
            command: site.command.clone(),
            ..sqlite_site(&site.seed)
        };
        let b = start(
            &host(b),
            "secondary",
            &[&["--listen", &address], &flags[..]].concat(),
        );
        let mut both = Both::with(
            start(
                &host(a),
                "primary",
                &[&["--peer", &address], &flags[..]].concat(),
            ),
            b,
        );
        assert_eq!(both.ask("nap 1"), "nap 110");
        let began = Instant::now();
        writeln!(both.to.as_ref().expect("open"), "nap {}", NAP.as_millis()).expect("it reads");
        // Every thread waits by then: the next event is the end of a wait.
        std::thread::sleep(NAP / 3);
        both.a.kill().expect("a child");
        let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
        assert_eq!(ask_secondary(&mut both.b, &mut from, "nap 1"), "nap 110");
        assert!(began.elapsed() >= NAP, "too early");
        drop(both.b.stdin.take());
        let ends = both.end();
        assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    });
    fs::remove_dir_all(dir).expect("clean");
}

pub(crate) fn redis_of(site: &Child) -> UnixStream {
    let path = format!("/proc/{}/root/mnt/redis", site.id());
    let deadline = Instant::now() + LIMIT;
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn redis(to: &mut UnixStream, command: &str, answer: &str) {
    write!(to, "{command}\r\n").expect("it reads");
    let mut got = vec![0; answer.len()];
    to.read_exact(&mut got).expect("it answers");
    assert_eq!(String::from_utf8_lossy(&got), answer);
}

#[test]
fn redis_keeps_its_log_equal_on_both_disks_and_so_does_the_process_that_saves_a_copy() {
    let dir = seed("redis");
    let words = "redis-server --port 0 --unixsocket /mnt/redis --appendonly yes --appendfsync always --auto-aof-rewrite-percentage 0 --save";
    let site = Site {
        command: words.split(' ').chain([""]).map(String::from).collect(),
        ..sqlite_site(&dir)
    };
    let mut both = Both::start(&site, &site);
    let mut client = redis_of(&both.a);
    for number in 1..=100 {
        redis(&mut client, "INCR n", &format!(":{number}\r\n"));
    }
    redis(&mut client, "GET n", "$3\r\n100\r\n");
    let log = |child: &Child| {
        let path = format!(
            "/proc/{}/root/mnt/data/appendonlydir/appendonly.aof.1.incr.aof",
            child.id()
        );
        fs::read(path).expect("the log")
    };
    assert!(log(&both.a).len() > 1000);
    assert_eq!(log(&both.a), log(&both.b));
    let copy = |child: &Child| {
        let path = format!("/proc/{}/root/mnt/data/dump.rdb", child.id());
        fs::read(path).ok()
    };
    redis(&mut client, "BGSAVE", "+Background saving started\r\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while copy(&both.a).is_none() || copy(&both.b).is_none() {
        redis(&mut client, "INCR m", ":");
        let mut rest = [0];
        while rest != *b"\n" {
            client.read_exact(&mut rest).expect("it answers");
        }
        assert!(Instant::now() < deadline, "no copy comes");
    }
    assert_eq!(copy(&both.a), copy(&both.b));
    write!(client, "SHUTDOWN NOSAVE\r\n").expect("it reads");
    both.wait();
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}
