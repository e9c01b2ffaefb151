//! The lock component.

use std::time::Duration;

use steadfast_restart::{CallError, Edge, Handle, Policy, Value};

use crate::fixture;

pub(crate) const NEW: &str = "steadfast:lock/locks@0.1.0#[constructor]lock";
pub(crate) const TAKE: &str = "steadfast:lock/locks@0.1.0#[method]lock.take";
pub(crate) const RELEASE: &str = "steadfast:lock/locks@0.1.0#[method]lock.release";
pub(crate) const HOLDER: &str = "steadfast:lock/locks@0.1.0#[method]lock.holder";

fn new(edge: &Edge) -> Handle {
    edge.invoke(NEW, &[])
        .expect("made")
        .and_then(|v| v.handle())
        .expect("a handle")
}

fn take(edge: &Edge, lock: Handle, owner: u32) -> bool {
    edge.invoke(TAKE, &[lock.into(), owner.into()])
        .expect("taken")
        == Some(Value::Bool(true))
}

fn holder(edge: &Edge, lock: Handle) -> Option<u64> {
    edge.invoke(HOLDER, &[lock.into()])
        .expect("asked")
        .and_then(|v| v.number())
}

fn release(edge: &Edge, lock: Handle, owner: u32) -> bool {
    matches!(
        edge.invoke(RELEASE, &[lock.into(), owner.into()])
            .expect("released"),
        Some(Value::Result(Ok(_)))
    )
}

/// Takes it as one who must have it; false where that takes longer.
fn wait(edge: &Edge, lock: Handle, owner: u32, limit: Duration) -> bool {
    let take = edge.function(TAKE).expect("it has one");
    let taken = edge.until(take, &[lock.into(), owner.into()], limit);
    taken.expect("no error") == Some(Some(Value::Bool(true)))
}

/// A reset before each step, or a failure at the return of the call that follows.
#[test]
fn who_must_have_a_lock_has_it_after_its_release_whatever_fails_between() {
    let long = Duration::from_secs(30);
    for policy in fixture::policies() {
        for crash in 0..12 {
            let host = fixture::host("lock", policy);
            let edge = host.edge("test", "lock", &[]).expect("an edge");
            let step = |at: usize| match crash == 2 * at || crash == 2 * at + 1 {
                true if crash % 2 == 0 => edge.reset().expect("it comes back"),
                true => edge.fail_once().expect("it is told"),
                false => {}
            };
            step(0);
            let lock = new(&edge);
            step(1);
            assert!(wait(&edge, lock, 1, Duration::ZERO), "it is free");
            step(2);
            assert!(!wait(&edge, lock, 2, Duration::from_millis(2)));
            step(3);
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| wait(&edge, lock, 2, long));
                std::thread::sleep(Duration::from_millis(2));
                step(4);
                assert!(release(&edge, lock, 1));
                assert!(waiting.join().expect("no panic"), "crash {crash}");
            });
            step(5);
            assert_eq!(holder(&edge, lock), Some(2), "crash {crash}");
            assert_eq!(edge.stats().expect("stats").resets_total(), 1);
        }
    }
}

#[test]
fn a_wait_is_woken_by_what_may_end_it_and_by_nothing_else() {
    let host = fixture::host("lock", Policy::default());
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let (lock, other) = (new(&edge), new(&edge));
    assert!(take(&edge, lock, 1));
    std::thread::scope(|scope| {
        let before = edge.calls();
        let waiting = scope.spawn(|| wait(&edge, lock, 2, Duration::from_secs(30)));
        while edge.calls() == before {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        let before = edge.calls();
        for _ in 0..50 {
            assert_eq!(holder(&edge, lock), Some(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(edge.calls() - before, 50, "nobody has tried again");
        assert!(!release(&edge, other, 1), "another lock, but it may be");
        // The release, and a try; another object that ends is a reason to look as well.
        edge.discard(other).expect("live");
        assert!(release(&edge, lock, 1));
        assert!(waiting.join().expect("no panic"));
        assert!(edge.calls() - before >= 53);
    });
    // What does not block is called once.
    let holder = edge.function(HOLDER).expect("it has one");
    let told = edge.until(holder, &[lock.into()], Duration::ZERO);
    assert_eq!(
        told.expect("an answer").flatten().and_then(|v| v.number()),
        Some(2)
    );
}

#[test]
fn a_lock_does_what_its_wit_says() {
    let host = fixture::host("lock", Policy::default());
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let lock = new(&edge);
    assert_eq!(holder(&edge, lock), None);
    assert!(take(&edge, lock, 7));
    assert!(!take(&edge, lock, 8));
    assert_eq!(holder(&edge, lock), Some(7));
    assert!(!release(&edge, lock, 8));
    assert!(release(&edge, lock, 7));
    assert!(take(&edge, lock, 8));
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
}

#[test]
fn handles_and_states_outlive_a_reset_at_every_call_boundary() {
    // The same steps with a crash before each of them: what they return may not depend on it.
    for policy in fixture::policies() {
        for crash in 0..9 {
            let host = fixture::host("lock", policy);
            let edge = host.edge("test", "lock", &[]).expect("an edge");
            let mut step = fixture::crash_before(crash, &edge);
            step();
            let (a, b) = (new(&edge), new(&edge));
            step();
            assert!(take(&edge, a, 1));
            step();
            assert!(take(&edge, b, 2));
            step();
            assert!(!take(&edge, a, 2), "crash {crash}");
            step();
            assert_eq!(
                (holder(&edge, a), holder(&edge, b)),
                (Some(1), Some(2)),
                "crash {crash}"
            );
            step();
            assert!(release(&edge, a, 1), "crash {crash}");
            step();
            assert_eq!(
                (holder(&edge, a), holder(&edge, b)),
                (None, Some(2)),
                "crash {crash}"
            );
            step();
            assert!(take(&edge, a, 3));
            step();
            assert_eq!(holder(&edge, a), Some(3));
        }
    }
}

#[test]
fn a_handle_that_was_given_back_names_nothing() {
    let host = fixture::host("lock", Policy::default());
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let lock = new(&edge);
    edge.discard(lock).expect("live");
    let again = new(&edge);
    assert_ne!(lock, again);
    assert!(matches!(
        edge.invoke(HOLDER, &[lock.into()]),
        Err(CallError::Stale { .. })
    ));
    edge.reset().expect("it comes back");
    assert!(matches!(
        edge.invoke(HOLDER, &[lock.into()]),
        Err(CallError::Stale { .. })
    ));
    assert_eq!(holder(&edge, again), None);
}

#[test]
fn no_edge_no_call() {
    let host = fixture::host("lock", Policy::default());
    let edge = host
        .edge("reader", "lock", &[HOLDER.to_owned()])
        .expect("an edge");
    assert!(matches!(
        edge.invoke(NEW, &[]),
        Err(CallError::NoEdge { .. })
    ));
    assert!(host.edge("reader", "disk", &[]).is_err());
}

#[test]
fn a_component_that_fails_too_often_rests_and_serves_again() {
    let host = fixture::host(
        "lock",
        Policy {
            resets_max: 2,
            rest: std::time::Duration::from_millis(30),
            rests_max: 1,
            ..Policy::default()
        },
    );
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let lock = new(&edge);
    assert!(take(&edge, lock, 7));
    for _ in 0..2 {
        edge.reset().expect("allowed");
    }
    assert!(matches!(edge.reset(), Err(CallError::Resting { .. })));
    assert!(matches!(
        edge.invoke(HOLDER, &[lock.into()]),
        Err(CallError::Resting { .. })
    ));
    std::thread::sleep(std::time::Duration::from_millis(40));
    assert_eq!(holder(&edge, lock), Some(7));
    assert_eq!(edge.stats().expect("stats").rests, 1);
    // It rested once and fails as often again: that is the end.
    for _ in 0..2 {
        edge.reset().expect("allowed");
    }
    assert!(matches!(edge.reset(), Err(CallError::GaveUp { .. })));
}

#[test]
fn more_resets_than_the_policy_allows_end_the_component() {
    let host = fixture::host(
        "lock",
        Policy {
            resets_max: 3,
            rests_max: 0,
            ..Policy::default()
        },
    );
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    for _ in 0..3 {
        edge.reset().expect("allowed");
    }
    assert!(matches!(edge.reset(), Err(CallError::GaveUp { .. })));
    assert!(matches!(
        edge.invoke(NEW, &[]),
        Err(CallError::GaveUp { .. })
    ));
}

#[test]
fn a_reset_brings_objects_back_at_once_where_that_is_the_policy_and_else_when_they_are_used() {
    for (eager, back) in [(true, 3), (false, 0)] {
        let policy = Policy {
            eager,
            ..Policy::default()
        };
        let host = fixture::host("lock", policy);
        let edge = host.edge("test", "lock", &[]).expect("an edge");
        let locks = [new(&edge), new(&edge), new(&edge)];
        edge.reset().expect("it comes back");
        assert_eq!(edge.stats().expect("stats").rebuilt, back);
        assert_eq!(holder(&edge, locks[0]), None);
        assert_eq!(edge.stats().expect("stats").rebuilt, back.max(1));
    }
}

#[test]
fn objects_of_an_eager_edge_come_back_at_once_and_those_of_others_when_they_are_used() {
    let host = fixture::host("lock", Policy::default());
    let edge = || host.edge("test", "lock", &[]).expect("an edge");
    let (urgent, other) = (edge().eagerly().expect("not within a call"), edge());
    let locks = [new(&urgent), new(&urgent)];
    let theirs = new(&other);
    other.reset().expect("it comes back");
    let rebuilt = || other.stats().expect("stats").rebuilt;
    assert_eq!(rebuilt(), 2);
    assert_eq!(
        (holder(&urgent, locks[0]), holder(&urgent, locks[1])),
        (None, None)
    );
    assert_eq!(rebuilt(), 2);
    assert_eq!((holder(&other, theirs), rebuilt()), (None, 3));
}

#[test]
fn what_nobody_uses_comes_back_when_the_machine_is_idle_if_that_is_asked_for() {
    for idle in [true, false] {
        let policy = Policy {
            idle,
            spare: false,
            ..Policy::default()
        };
        let host = fixture::host("lock", policy);
        let edge = host.edge("test", "lock", &[]).expect("an edge");
        let locks: Vec<_> = (0..50).map(|_| new(&edge)).collect();
        for (owner, lock) in (0..).zip(&locks) {
            assert!(take(&edge, *lock, owner));
        }
        edge.reset().expect("it comes back");
        let rebuilt = || edge.stats().expect("stats").rebuilt;
        let begin = std::time::Instant::now();
        // An idle thread waits for the whole machine.
        let limit = std::time::Duration::from_secs(if idle { 60 } else { 1 });
        while rebuilt() < 50 && begin.elapsed() < limit {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert_eq!(rebuilt(), if idle { 50 } else { 0 });
        for (owner, lock) in (0..).zip(&locks) {
            assert_eq!(holder(&edge, *lock), Some(owner));
        }
        assert_eq!(rebuilt(), 50, "each once");
    }
}
