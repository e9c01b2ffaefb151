//! Job control: a small process that knows what the launcher cannot know.
//!
//! A stopped process notices nothing. Who stops the launcher means the program, and so does
//! who continues the leader after both were stopped: job control looks, ten times a second and
//! oftener while everything stands still, and passes it on.
//!
//! ```text
//!   MOVING ──leader stopped: launcher stops followers and itself──► LEADER
//!      ▲ ▲                     leader continued: it continues the launcher │
//!      │ └─────────────────── launcher runs, and continues the others ◄────────┘
//!      │──launcher stopped: it stops all replicas──► LAUNCHER
//!      └────────── SIGCONT to the launcher, which continues the others ◄──┘
//! ```
//!
//! A signal that reaches the launcher was meant for the program. If it was sent to the process
//! group, the leader has its own copy; job control is in that group too, blocks everything and
//! is known to nobody, so a signal that is pending there was sent to all. Where a front stands before the launcher
//! (front.rs), the group is the front's, and a stop of the front is one of the launcher.
//!
//! Not covered: a stop that lasts less than the tenth of a second between two looks.

use std::time::Duration;

use steadfast_sys::{child, futex, procfs, signals};

use crate::abi::{self, standstill};
use crate::group::{Group, at};

/// The launcher beats at least this often while it runs (supervise.rs, `WATCH`).
const LOOK: Duration = Duration::from_millis(100);
const LOOK_WHILE_STOPPED: Duration = Duration::from_millis(10);
/// It answers at once; longer means that it is gone.
const ANSWER: Duration = Duration::from_millis(500);

/// Forks it; its number.
pub(crate) fn post(group: &Group, front: Option<i32>) -> std::io::Result<i32> {
    let launcher = i32::try_from(std::process::id()).expect("a process number");
    child::helper(|| {
        if let Some(group) = front.and_then(child::group_of) {
            // Where it cannot, every signal is taken for one to the launcher alone, as after its death.
            let _ = child::join_group(group);
        }
        watch(group, launcher, front);
    })
}

fn watch(group: &Group, launcher: i32, front: Option<i32>) {
    let mut beat = group.get32(at!(beat));
    loop {
        let bell = group.get32(at!(job_bell));
        let ask = group.get32(at!(job_ask));
        if ask & !1 != group.get32(at!(job_answer)) & !1 {
            let signal = i32::try_from(ask >> 1 & 0x7f).expect("seven bits");
            let seen = signals::take(signal).is_some();
            group.set32(at!(job_answer), ask & !1 | u32::from(seen));
            futex::wake(group.memory.u32(at!(job_answer)));
        }
        let still = group.get32(at!(standstill));
        let pause = if still == standstill::LEADER {
            LOOK_WHILE_STOPPED
        } else {
            LOOK
        };
        futex::wait(group.memory.u32(at!(job_bell)), bell, pause);
        let now = group.get32(at!(beat));
        match group.get32(at!(standstill)) {
            standstill::LEADER if !procfs::is_stopped(pid(group, launcher, 0)) => {
                child::kill(launcher, libc::SIGCONT)
            }
            standstill::MOVING if front.is_some_and(procfs::is_stopped) => {
                group.set32(at!(standstill), standstill::LAUNCHER);
                // Where the launcher had stopped it, and has continued it by now.
                if !front.is_some_and(procfs::is_stopped) {
                    group.set32(at!(standstill), standstill::MOVING);
                    continue;
                }
                child::kill(launcher, libc::SIGSTOP);
                signal_all(group, launcher, libc::SIGSTOP);
            }
            standstill::MOVING if now == beat && procfs::is_stopped(launcher) => {
                group.set32(at!(standstill), standstill::LAUNCHER);
                signal_all(group, launcher, libc::SIGSTOP);
                // It may have been continued before the last of them was stopped.
                if group.get32(at!(standstill)) != standstill::LAUNCHER {
                    signal_all(group, launcher, libc::SIGCONT);
                }
            }
            _ => {}
        }
        beat = now;
    }
}

/// The process of a replica, 0 if there is none. What the launcher has left in shared memory counts
/// only for a process of its own: a fault can make the number anybody's.
fn pid(group: &Group, launcher: i32, r: usize) -> i32 {
    let pid = group.get32(at!(own r, pid)).cast_signed();
    if pid > 1 && procfs::descends(pid, launcher) {
        pid
    } else {
        0
    }
}

fn signal_all(group: &Group, launcher: i32, signal: i32) {
    for r in 0..abi::KEEPER {
        let pid = pid(group, launcher, r);
        if pid > 1 {
            child::kill(pid, signal);
        }
    }
}

/// Whether a signal that has just reached the launcher was sent to its whole group.
pub(crate) fn was_for_all(group: &Group, signal: i32) -> bool {
    let word = group.memory.u32(at!(job_answer));
    // Number of the question above the signal's seven bits; bit 0 is the answer's.
    let number = (group.get32(at!(job_ask)) >> 8).wrapping_add(1);
    let ask = number << 8 | signal.cast_unsigned() << 1;
    group.set32(at!(job_ask), ask);
    ring(group);
    let start = std::time::Instant::now();
    loop {
        let answer = group.get32(at!(job_answer));
        if answer & !1 == ask {
            return answer & 1 != 0;
        }
        let Some(left) = ANSWER.checked_sub(start.elapsed()) else {
            return false;
        };
        futex::wait(word, answer, left);
    }
}

fn ring(group: &Group) {
    let bell = group.memory.u32(at!(job_bell));
    bell.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    futex::wake(bell);
}
