//! A program that waits for itself in a loop without a call: it would never end in a pair, and is stopped with the reason.

use std::fs;
use std::time::{Duration, Instant};

use crate::sites::*;

fn spins(how: &str, more: &[&str]) -> (Ends, Duration) {
    let dir = seed(&format!("spins-{how}"));
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    let program = built(&dir, "spins");
    let site = Site {
        command: vec![program.display().to_string(), how.into()],
        ..sqlite_site(&data)
    };
    let address = format!("127.0.0.1:{}", free_port());
    let began = Instant::now();
    let ends = Both::start_with(&site, &site, &address, &address, more).end();
    let took = began.elapsed();
    fs::remove_dir_all(dir).expect("clean");
    (ends, took)
}

#[test]
fn a_thread_or_process_that_waits_for_another_one_in_a_loop_stops_both_sites_with_the_reason() {
    for how in ["thread", "process"] {
        let (ends, took) = spins(how, &["--spins-after", "1"]);
        let said = ends.said();
        assert_eq!(ends.codes(), [Some(122), Some(122)], "{how}: {said}");
        let line = "computes without a call while others of the program, threads or processes, wait for their turn";
        assert_eq!(said.matches(line).count(), 2, "{how}: {said}");
        let told = "if this goes on, both sites stop";
        assert_eq!(said.matches(told).count(), 1, "{how}: {said}");
        assert!(said.contains("--spins-after with more seconds"), "{said}");
        assert!(took > Duration::from_secs(1), "{how}: {took:?}");
        assert!(took < LIMIT / 2, "{how}: {took:?}");
    }
}

#[test]
fn one_that_computes_for_as_long_while_nobody_waits_for_a_turn_is_left_alone() {
    let (ends, took) = spins("compute", &["--spins-after", "1"]);
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    let answer = String::from_utf8_lossy(&ends.a.stdout).into_owned();
    assert_eq!(answer, "begun\ndone\n");
    assert!(took > Duration::from_secs(1), "it computed: {took:?}");
}

/// A program that stands still on the secondary alone; a host that does is lost.
#[test]
fn a_program_that_hangs_on_one_site_stops_both_with_the_reason() {
    let dir = with_table("hangs");
    let site = sqlite_site(&dir);
    let address = format!("127.0.0.1:{}", free_port());
    let mut both = Both::start_with(&site, &site, &address, &address, &["--spins-after", "1"]);
    assert_eq!(both.ask("SELECT count(*) FROM t;"), "100");
    // As long as nobody asks anything both sites stand at the same event.
    std::thread::sleep(Duration::from_millis(1500));
    for program in crate::tree::program(&both.b) {
        steadfast_sys::child::kill(program.cast_signed(), libc::SIGSTOP);
    }
    assert_eq!(both.ask("SELECT count(*) + 1 FROM t;"), "");
    let ends = both.end();
    let said = ends.said();
    assert_eq!(ends.codes(), [Some(122), Some(122)], "{said}");
    let line = "on B it has hung, or stands still";
    assert_eq!(said.matches(line).count(), 2, "{said}");
    fs::remove_dir_all(dir).expect("clean");
}
