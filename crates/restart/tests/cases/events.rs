//! The event and the timer component: counts that outlive a crash at every call boundary, and waits outside the component.

use std::time::Duration;

use steadfast_restart::{Edge, Handle, Policy, Value};

use crate::fixture;

fn event(name: &str) -> String {
    format!("steadfast:event/events@0.1.0#{name}")
}

fn timer(name: &str) -> String {
    format!("steadfast:timer/timers@0.1.0#{name}")
}

fn number(edge: &Edge, path: &str, args: &[Value]) -> u64 {
    let value = edge.invoke(path, args).expect("an answer");
    value.and_then(|v| v.number()).expect("a number")
}

fn made(edge: &Edge, path: &str, args: &[Value]) -> Handle {
    let value = edge.invoke(path, args).expect("an answer");
    value.and_then(|v| v.handle()).expect("an object")
}

#[test]
fn counts_of_events_outlive_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        let host = fixture::host("event", policy);
        let edge = host.edge("test", "event", &[]).expect("an edge");
        for crash in 0..6 {
            let step = |at: usize| {
                if at == crash {
                    edge.reset().expect("it comes back");
                }
            };
            step(0);
            let (a, b) = (
                made(&edge, &event("[constructor]event"), &[]),
                made(&edge, &event("[constructor]event"), &[]),
            );
            let trigger = |of: Handle, n: u32| {
                number(
                    &edge,
                    &event("[method]event.trigger"),
                    &[of.into(), n.into()],
                )
            };
            let occurred =
                |of: Handle| number(&edge, &event("[method]event.occurred"), &[of.into()]);
            step(1);
            assert_eq!(occurred(a), 0);
            step(2);
            assert_eq!(trigger(a, 3), 3);
            step(3);
            assert_eq!(trigger(a, 2), 5);
            step(4);
            assert_eq!(trigger(b, 1), 1);
            step(5);
            assert_eq!((occurred(a), occurred(b)), (5, 1), "crash {crash}");
            edge.discard(a).expect("live");
            edge.discard(b).expect("live");
        }
        assert_eq!(edge.stats().expect("stats").objects, 0);
    }
}

#[test]
fn timers_outlive_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        let host = fixture::host("timer", policy);
        let edge = host.edge("test", "timer", &[]).expect("an edge");
        for crash in 0..5 {
            let step = |at: usize| {
                if at == crash {
                    edge.reset().expect("it comes back");
                }
            };
            step(0);
            let args = [100u64.into(), 1000u64.into()];
            let of = made(&edge, &timer("[constructor]timer"), &args);
            let next = || number(&edge, &timer("[method]timer.next"), &[of.into()]);
            let advance = |now: u64| {
                number(
                    &edge,
                    &timer("[method]timer.advance"),
                    &[of.into(), now.into()],
                )
            };
            step(1);
            assert_eq!(next(), 1100);
            step(2);
            assert_eq!(advance(1099), 0);
            step(3);
            assert_eq!(advance(1350), 3);
            step(4);
            // Time that goes back takes no expiry away.
            assert_eq!((advance(1200), next()), (3, 1400), "crash {crash}");
            edge.discard(of).expect("live");
        }
    }
}

#[test]
fn whoever_waits_is_woken_by_a_trigger_and_by_none_else_and_a_reset_loses_no_wait() {
    let host = fixture::host("event", Policy::default());
    let edge = host.edge("test", "event", &[]).expect("an edge");
    let of = made(&edge, &event("[constructor]event"), &[]);
    let occurred = edge.function(&event("[method]event.occurred")).expect("it");
    let seen = |value: &Option<Value>| value.as_ref().and_then(Value::number) >= Some(2);
    // Nobody triggers: the wait ends without an answer.
    let nothing = edge.wait(occurred, &[of.into()], Duration::from_millis(20), seen);
    assert_eq!(nothing, Ok(None));
    std::thread::scope(|scope| {
        let waiting =
            scope.spawn(|| edge.wait(occurred, &[of.into()], Duration::from_secs(30), seen));
        for _ in 0..2 {
            std::thread::sleep(Duration::from_millis(5));
            edge.reset().expect("it comes back");
            let args = [of.into(), 1u32.into()];
            number(&edge, &event("[method]event.trigger"), &args);
        }
        let woken = waiting.join().expect("no panic");
        assert_eq!(woken, Ok(Some(Some(Value::U64(2)))));
    });
}
