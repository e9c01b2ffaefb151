//! CLOCK_REALTIME jumps while a pair runs: the program is told so on both sites alike, and the pair itself does not ask that clock.
//!
//! The clock is the machine's: it jumps by seconds for some milliseconds, and goes on as if it had not. To two sites on two hosts a jump of
//! the primary's clock is the same, since the secondary asks none.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::sites::*;

/// Far more than the silence after which a peer is lost, and less than what a file's time is looked at for.
const JUMP_MS: i64 = 4000;
const NOW: &str = "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);";

/// Begins a jump, if the kernel lets this user.
fn jumps(program: &Path, by: i64) -> Option<(Child, BufReader<std::process::ChildStdout>)> {
    let mut child = Command::new(program)
        .args([by.to_string().as_str(), "20"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it was built");
    let mut from = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    from.read_line(&mut line).expect("it says");
    if line == "jumped\n" {
        return Some((child, from));
    }
    assert_eq!(child.wait().expect("a child").code(), Some(2));
    None
}

#[test]
fn a_jump_of_the_clock_is_the_programs_on_both_sites_and_nobodys_loss() {
    let dir = with_table("jump");
    let (site, witness) = (sqlite_site(&dir), Witness::new("jump"));
    let program = built(&witness.0, "jump");
    let address = format!("127.0.0.1:{}", free_port());
    let flags = witness.flags(1000);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut both = Both::start_with(&site, &site, &address, &address, &flags);
    let now = |both: &mut Both| -> i64 { both.ask(NOW).parse().expect("milliseconds") };
    let mut before = now(&mut both);
    for by in [JUMP_MS, -JUMP_MS] {
        // Who is late asks a clock that is right again.
        let seen = (0..20).any(|_| {
            let Some((mut child, mut rest)) = jumps(&program, by) else {
                return !is_root();
            };
            let there = now(&mut both);
            rest.read_line(&mut String::new()).expect("it says");
            assert!(child.wait().expect("a child").success());
            (there - before - by).abs() < JUMP_MS / 2
        });
        assert!(seen, "the program does not see a jump by {by} ms");
        before = now(&mut both);
    }
    assert_eq!(both.ask(CHANGE), "200");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0), Some(0)], "{}", ends.said());
    assert_eq!(ends.said(), "");
    fs::remove_dir_all(dir).expect("clean");
}
