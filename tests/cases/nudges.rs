//! Nudges: the launcher's word to a replica (SIGSYS) comes while the handler of another one makes a call of its own.
//!
//! A follower takes it from anybody. So it is sent hundreds of them while it meets the leader, in a handler that sleeps and looks in turn:
//! in some of them the handler has just made up the token of its call. Nobody may count that as lost.

use std::fs;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{Log, last_lines, output_difference, protector};
use crate::faults::replica_pid;
use crate::run::Invocation;
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
/// So many at once, and then none for a while: each interrupts what brings the replicas together, so they come less and less often.
const BURST: u64 = 100;
const APART: Duration = Duration::from_millis(20);
/// Fewer than these would prove nothing.
const NUDGES: u64 = 3 * BURST;
/// More than these, and replicas are so far apart that they need minutes to meet (limits-run.md).
const NUDGES_MAX: u64 = 4 * BURST;

/// Sends them, until the process has ended if that is sooner; how many.
fn nudge(pid: i32) -> u64 {
    let (mut sent, mut apart) = (0, APART);
    while sent < NUDGES_MAX && kill(Pid::from_raw(pid), Signal::SIGSYS) != Err(Errno::ESRCH) {
        sent += 1;
        if sent % BURST == 0 {
            thread::sleep(apart);
            apart += apart / 2;
        }
    }
    sent
}

fn within_a_handler() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("faults-nudges");
    let mut invocation = Invocation {
        program: build::guest("sig_again.c", Variant::Dynamic)?,
        args: vec!["shared".to_owned()],
        ..Invocation::default()
    };
    let bare = invocation.run(&dir, LIMIT)?;
    let events = dir.join("events");
    let _ = fs::remove_file(&events);
    invocation.protector = protector(2, &events, &["--quiet"]);
    let _group = one_group();
    let run = invocation.start(&dir)?;
    while fs::metadata(&events).map_or(0, |file| file.len()) == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let follower = replica_pid(&events, 1)?;
    let storm = thread::spawn(move || nudge(follower));
    let ran = run.wait(LIMIT)?;
    let sent = storm.join().map_err(|_| "nudges: panicked")?;
    ran.nothing_left(GRACE)?;
    let report = Log::read(&events)?.report;
    let difference = output_difference(&bare, &ran);
    if difference.is_some() || report.divergences != 0 || sent < NUDGES {
        let (why, line) = (difference.unwrap_or_default(), invocation.shell_line());
        return Err(format!(
            "{why}\n{sent} nudges, {report:?}\n{}  run:    {line}",
            last_lines(&ran)
        )
        .into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test(
        "faults::nudges_within_a_handler",
        within_a_handler,
    )]
}
