//! The scheduler component: its choices outlive a crash at every call boundary, and real threads take turns by it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use steadfast_restart::{Edge, Handle, Policy, Value};

use crate::fixture;

fn path(name: &str) -> String {
    format!("steadfast:scheduler/threads@0.1.0#{name}")
}

fn thread(edge: &Edge, id: u64, priority: u32, now: u64) -> Handle {
    let args = [id.into(), priority.into(), now.into()];
    let made = edge.invoke(&path("[constructor]thread"), &args);
    made.expect("made").and_then(|v| v.handle()).expect("one")
}

fn ready(edge: &Edge, of: Handle, now: u64) {
    let args = [of.into(), now.into()];
    let done = edge.invoke(&path("[method]thread.ready"), &args);
    assert_eq!(done, Ok(None));
}

fn block(edge: &Edge, of: Handle) -> bool {
    let done = edge.invoke(&path("[method]thread.block"), &[of.into()]);
    done == Ok(Some(Value::Bool(true)))
}

fn pick(edge: &Edge) -> Option<u64> {
    let found = edge.invoke(&path("pick"), &[]).expect("an answer");
    found.and_then(|v| v.number())
}

#[test]
fn choices_outlive_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        for crash in 0..12 {
            let host = fixture::host("scheduler", policy);
            let edge = host.edge("test", "scheduler", &[]).expect("an edge");
            let mut step = fixture::crash_before(crash, &edge);
            step();
            assert_eq!(pick(&edge), None);
            let low = thread(&edge, 30, 9, 1);
            step();
            let (a, b) = (thread(&edge, 10, 5, 2), thread(&edge, 20, 5, 3));
            step();
            assert_eq!(pick(&edge), Some(10), "crash {crash}");
            step();
            // It goes behind its equal.
            ready(&edge, a, 4);
            step();
            assert_eq!(pick(&edge), Some(20), "crash {crash}");
            step();
            assert!(block(&edge, b), "crash {crash}");
            step();
            assert!(!block(&edge, b), "it waits already, crash {crash}");
            step();
            assert_eq!(pick(&edge), Some(10), "crash {crash}");
            assert!(block(&edge, a));
            step();
            assert_eq!(pick(&edge), Some(30), "crash {crash}");
            step();
            ready(&edge, b, 5);
            step();
            ready(&edge, a, 6);
            step();
            assert_eq!(pick(&edge), Some(20), "crash {crash}");
            edge.discard(b).expect("live");
            assert_eq!(pick(&edge), Some(10), "crash {crash}");
            edge.discard(a).expect("live");
            edge.discard(low).expect("live");
            assert_eq!(pick(&edge), None);
        }
    }
}

/// Two threads take turns: who was picked wakes the other one and waits itself.
#[test]
fn real_threads_play_ping_pong_while_the_scheduler_is_reset() {
    const TURNS: u64 = 60;
    let host = fixture::host("scheduler", Policy::default());
    let edge = host.edge("test", "scheduler", &[]).expect("an edge");
    let handles = [thread(&edge, 0, 5, 1), thread(&edge, 1, 5, 2)];
    let choice = edge.function(&path("pick")).expect("it");
    let (clock, turns, over) = (AtomicU64::new(3), AtomicU64::new(0), AtomicBool::new(false));
    let player = |me: u64| {
        let now = || clock.fetch_add(1, Ordering::Relaxed);
        let mine = |value: &Option<Value>| value.as_ref().and_then(Value::number) == Some(me);
        for _ in 0..TURNS {
            let picked = edge.wait(choice, &[], Duration::from_secs(30), mine);
            assert!(matches!(picked, Ok(Some(_))), "{picked:?}");
            // Nobody else runs now, and the other one ran before.
            assert_eq!(turns.fetch_add(1, Ordering::SeqCst) % 2, me);
            let (own, other) = match me {
                0 => (handles[0], handles[1]),
                _ => (handles[1], handles[0]),
            };
            ready(&edge, other, now());
            assert!(block(&edge, own));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                edge.reset().expect("it comes back");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let players = [scope.spawn(|| player(0)), scope.spawn(|| player(1))];
        let ended = players.map(std::thread::ScopedJoinHandle::join);
        over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(turns.load(Ordering::SeqCst), 2 * TURNS);
    assert!(edge.stats().expect("stats").resets_total() > 0);
}

/// The places of a number in a component's memory.
fn places(edge: &Edge, number: u64) -> Vec<usize> {
    let memory = &edge.memories().expect("a copy")[0];
    let found = memory.windows(8).enumerate();
    found
        .filter(|(_, bytes)| *bytes == number.to_le_bytes())
        .map(|(at, _)| at)
        .collect()
}

/// A flipped moment makes another thread the first one. Two bodies tell, one does not.
#[test]
fn a_flip_that_changes_the_choice_is_found_by_two_bodies_alone() {
    const MOMENT: u64 = 0x1234_5678_9abc_def0;
    for dual in [false, true] {
        let policy = Policy {
            dual,
            spare: false,
            compare_every: 0,
            ..Policy::default()
        };
        let host = fixture::host("scheduler", policy);
        let edge = host.edge("test", "scheduler", &[]).expect("an edge");
        thread(&edge, 1, 5, MOMENT - 1);
        thread(&edge, 2, 5, MOMENT);
        assert_eq!(pick(&edge), Some(1));
        let at = places(&edge, MOMENT);
        assert_eq!(at.len(), 1, "one copy of the moment");
        assert_eq!(edge.flip(0, at[0] + 7, 4), Ok(true));
        let right = if dual { 1 } else { 2 };
        assert_eq!(pick(&edge), Some(right));
        let resets = edge.stats().expect("stats").resets_total();
        assert_eq!(resets, u64::from(dual));
    }
}

/// A choice among those alone that came back before would be wrong in silence.
#[test]
fn a_choice_brings_all_threads_back_and_only_once() {
    let policy = Policy {
        spare: false,
        ..Policy::default()
    };
    let host = fixture::host("scheduler", policy);
    let (mine, theirs) = (
        host.edge("a", "scheduler", &[]).expect("an edge"),
        host.edge("b", "scheduler", &[]).expect("an edge"),
    );
    thread(&mine, 1, 5, 1);
    thread(&theirs, 2, 4, 1);
    mine.reset().expect("it comes back");
    assert_eq!(pick(&mine), Some(2), "a thread of another client");
    let rebuilt = || mine.stats().expect("stats").rebuilt;
    assert_eq!(rebuilt(), 2);
    thread(&theirs, 3, 3, 1);
    assert_eq!(pick(&mine), Some(3));
    assert_eq!(rebuilt(), 2);
}
