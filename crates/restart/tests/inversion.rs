//! Priority inversion: a thread of low priority is in a component, one of middle priority computes, one of high priority calls. All three are
//! FIFO threads on one CPU, so the low one gets on only where the lock lends it the priority of the high one.
//!
//! In a process of its own: FIFO threads would disturb other tests, and the CPU is one for all threads that are started here.

#[path = "cases/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_restart::{Component, Host, Policy};
use steadfast_sys::cpu;

/// CPU time of the middle thread: long against what the low one still has to do.
const MIDDLE: Duration = Duration::from_millis(300);
/// CPU time that the low one holds the lock for.
const LOW: Duration = Duration::from_millis(100);

fn computes(time: Duration, until: &AtomicBool) -> bool {
    let begin = cpu::thread_time_ns(0).expect("a clock");
    let used = || u128::from(cpu::thread_time_ns(0).expect("a clock") - begin);
    while used() < time.as_nanos() {
        if until.load(Ordering::Acquire) {
            return true;
        }
    }
    false
}

fn comes(flag: impl Fn() -> bool) {
    while !flag() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// `low` holds something until it returns, `held` says whether it does, `high` waits for it. Whether `high` had it before the middle thread
/// had used up its time.
fn in_time(low: impl Fn() + Sync, held: impl Fn() -> bool + Sync, high: impl Fn() + Sync) -> bool {
    let (middle_runs, high_waits, done) = <(AtomicBool, AtomicBool, AtomicBool)>::default();
    let at = |priority| cpu::run_at(priority).expect("as before");
    std::thread::scope(|scope| {
        let middle = scope.spawn(|| {
            at(2);
            comes(&held);
            middle_runs.store(true, Ordering::Release);
            // From the wait of the high one on nothing but the lock's lending can stop this.
            comes(|| high_waits.load(Ordering::Acquire));
            computes(MIDDLE, &done)
        });
        scope.spawn(|| {
            at(3);
            comes(&held);
            comes(|| middle_runs.load(Ordering::Acquire));
            high_waits.store(true, Ordering::Release);
            high();
            done.store(true, Ordering::Release);
        });
        // Last: from here on this thread, an ordinary one, may not run for long.
        scope.spawn(|| {
            at(1);
            low();
        });
        middle.join().expect("it ends")
    })
}

/// All threads that are started from here on run on one CPU.
fn on_one_cpu() {
    let pinned = (0..1024).any(|one| cpu::pin(0, one).is_ok());
    assert!(pinned, "no CPU");
}

fn refused() -> bool {
    match cpu::run_at(1) {
        Ok(()) => {
            cpu::run_ordinarily();
            false
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            true
        }
    }
}

#[test]
fn whoever_holds_a_component_gets_the_priority_of_whoever_waits() {
    if refused() {
        return;
    }
    let policy = Policy {
        redo_max: 0,
        ..Policy::default()
    };
    let component = Component {
        call_limit: LOW,
        ..fixture::component("bad", policy)
    };
    // Its own threads are started before, and run anywhere.
    let mut host = Host::new(true).expect("the pad works");
    host.add(component, None).expect("it starts");
    on_one_cpu();
    let edge = host.edge("test", "bad", &[]).expect("an edge");
    let path = |name: &str| format!("steadfast:bad/failures@0.1.0#{name}");
    let before = edge.calls();
    let with_lending = in_time(
        // Never returns by itself: the hang breaker ends it.
        || assert!(edge.invoke(&path("spin"), &[]).is_err()),
        || edge.calls() > before,
        || assert!(edge.invoke(&path("echo"), &[5u32.into()]).is_ok()),
    );
    assert!(
        with_lending,
        "a thread of middle priority held up a high one"
    );

    // The same with a lock that lends nothing: what is tested here would be seen.
    let lock = Mutex::new(());
    let held = AtomicBool::new(false);
    let without = in_time(
        || {
            let _guard = lock.lock();
            held.store(true, Ordering::Release);
            computes(LOW, &AtomicBool::new(false));
        },
        || held.load(Ordering::Acquire),
        || drop(lock.lock()),
    );
    assert!(!without, "an inversion is needed for this test to see one");
}

/// By root: an ordinary user's half of the test above, as nobody.
#[test]
fn an_ordinary_user_is_refused_by_name() {
    if refused() {
        return;
    }
    let own = std::env::current_exe().expect("procfs");
    // Where nobody may look into the folder of this program.
    let copy = std::env::temp_dir().join(format!("inversion-{}", std::process::id()));
    std::fs::copy(&own, &copy).expect("room for a copy");
    let nobody = Command::new(&copy)
        .args(["--exact", "nobody_is_refused", "--ignored"])
        .uid(65_534)
        .gid(65_534)
        .output();
    std::fs::remove_file(&copy).expect("it was made");
    let nobody = nobody.expect("it runs");
    let told = String::from_utf8_lossy(&nobody.stdout);
    assert!(
        nobody.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

#[test]
#[ignore = "run by the test above as an ordinary user"]
fn nobody_is_refused() {
    assert!(refused());
}
