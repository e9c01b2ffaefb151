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
/// So many at once, and then none for a while.
const BURST: u64 = 100;
const APART: Duration = Duration::from_millis(20);
/// Fewer than these would prove nothing.
const NUDGES: u64 = 3 * BURST;
const STEADY: Duration = Duration::from_micros(300);
/// A stack of handlers had room for some tens.
const FLOOD: u64 = 20_000;

/// How they come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Storm {
    /// Some at once, and then none for a while.
    Bursts,
    /// One after the other, as long as the process lives.
    Steady,
    /// So many at once that each interrupts the handler of the one before.
    Flood,
}

/// Sends them, until the process has ended if that is sooner; how many.
fn nudge(pid: i32, storm: Storm) -> u64 {
    let (mut sent, mut apart) = (0, APART);
    let most = if storm == Storm::Flood {
        FLOOD
    } else {
        u64::MAX
    };
    while sent < most && kill(Pid::from_raw(pid), Signal::SIGSYS) != Err(Errno::ESRCH) {
        sent += 1;
        if storm == Storm::Steady {
            thread::sleep(STEADY);
        } else if storm == Storm::Bursts && sent % BURST == 0 {
            thread::sleep(apart);
            apart += apart / 2;
        }
    }
    sent
}

fn within_a_handler(name: &str, storm: Storm) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("faults-{name}"));
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
    let storm = thread::spawn(move || nudge(follower, storm));
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
    [
        ("nudges_within_a_handler", Storm::Bursts),
        ("nudges_without_an_end", Storm::Steady),
        ("nudges_at_once", Storm::Flood),
    ]
    .map(|(name, storm)| {
        Trial::test(format!("faults::{name}"), move || {
            within_a_handler(name, storm)
        })
    })
    .into()
}
