//! A wild fault in a component, in a process of its own: what makes one is the pad's self-test, which serves one test at a time.

#[path = "cases/fixture.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod fixture;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use steadfast_restart::{CallError, Cause, Component, Edge, Host, Policy, Value};
use steadfast_sys::pad::{self, Runner, Wild};

const ALL: [Wild; 3] = [Wild::Low, Wild::NotCanonical, Wild::Stack];

/// Makes a wild fault in one of the next calls of this thread, those of these numbers, while `call` runs.
fn struck<T>(wild: Wild, calls: std::ops::Range<u64>, call: impl FnOnce() -> T) -> T {
    // What would be struck in one test was meant for another one.
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock();
    // The calls of this thread are numbered.
    let here = Runner::current().pack();
    let done = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                for call in calls.clone() {
                    Runner::unpack(here + call).go_wild(wild);
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let result = call();
        done.store(true, Ordering::Release);
        result
    });
    Runner::go_no_more_wild();
    drop(one);
    result
}

#[test]
fn a_wild_fault_is_an_error_of_one_call_and_handles_stay() {
    for wild in ALL {
        let host = fixture::host(
            "bad",
            Policy {
                redo_max: 0,
                ..Policy::default()
            },
        );
        let edge = host.edge("test", "bad", &[]).expect("an edge");
        let path = |name: &str| format!("steadfast:bad/failures@0.1.0#{name}");
        let thing = edge.invoke(&path("[constructor]thing"), &[7u32.into()]);
        let thing = thing.expect("made").and_then(|v| v.handle()).expect("one");
        let failed = struck(wild, 0..8, || edge.invoke(&path("spin"), &[]));
        assert!(
            matches!(
                failed,
                Err(CallError::Poison {
                    cause: Cause::WildFault,
                    ..
                })
            ),
            "{wild:?}: {failed:?}"
        );
        let number = edge.invoke(&path("[method]thing.get"), &[thing.into()]);
        assert_eq!(
            number.expect("it is back").and_then(|v| v.number()),
            Some(7)
        );
    }
    assert!(pad::diverted() >= ALL.len());
}

/// A desk, whose frames are on the stack while its mill grinds.
fn nested(policy: Policy) -> (Host, Edge, Edge) {
    let mut host = fixture::host("mill", policy);
    let desk = Component {
        uses: vec![host.edge("desk", "mill", &[]).expect("an edge")],
        ..fixture::component("desk", Policy::default())
    };
    host.add(desk, None).expect("it starts");
    let edges = ["desk", "mill"].map(|name| host.edge("test", name, &[]).expect("an edge"));
    let [desk, mill] = edges;
    (host, desk, mill)
}

fn path(name: &str) -> String {
    format!("test:desk/desks@0.1.0#{name}")
}

/// Rounds that take some ten milliseconds at least.
const ROUNDS: u32 = 20_000_000;
/// Into the desk, out of it, into the mill.
const MILL: u64 = 3;

fn resets(edge: &Edge) -> BTreeMap<Cause, u64> {
    edge.stats().expect("stats").resets
}

#[test]
fn a_wild_fault_below_a_nested_call_is_repeated_there_and_its_caller_goes_on() {
    let (_host, desk, mill) = nested(Policy::default());
    let made = desk.invoke(&path("[constructor]desk"), &[7u32.into()]);
    let made = made.expect("made").expect("a desk");
    let ask = |rounds: u32| desk.invoke(&path("[method]desk.ask"), &[made.clone(), rounds.into()]);
    assert_eq!(ask(10), Ok(Some(Value::U32(14))));
    for (before, wild) in (0..).zip(ALL) {
        let before = BTreeMap::from_iter((before > 0).then_some((Cause::WildFault, before)));
        assert_eq!(resets(&mill), before, "silent without a fault");
        let answer = struck(wild, MILL..MILL + 1, || ask(ROUNDS));
        assert_eq!(answer, Ok(Some(Value::U32(14))), "{wild:?}");
        assert_eq!(resets(&desk), BTreeMap::new(), "the caller's frames stay");
        assert_eq!(mill.stats().expect("stats").objects, 1, "nothing is left");
    }
    assert_eq!(resets(&mill), BTreeMap::from([(Cause::WildFault, 3)]));
    desk.discard(made.handle().expect("one")).expect("live");
    assert_eq!(mill.stats().expect("stats").objects, 0);
}

#[test]
fn a_wild_fault_below_a_nested_call_that_is_not_repeated_ends_both_calls_and_no_handle() {
    let once = Policy {
        redo_max: 0,
        ..Policy::default()
    };
    let (_host, desk, mill) = nested(once);
    let made = desk.invoke(&path("[constructor]desk"), &[7u32.into()]);
    let made = made.expect("made").expect("a desk");
    let ask = |rounds: u32| desk.invoke(&path("[method]desk.ask"), &[made.clone(), rounds.into()]);
    for wild in ALL {
        let failed = struck(wild, MILL..MILL + 1, || ask(ROUNDS));
        let Err(CallError::Callee { source, .. }) = failed else {
            panic!("{wild:?}: {failed:?}");
        };
        let wild_fault = matches!(
            *source,
            CallError::Poison {
                cause: Cause::WildFault,
                ..
            }
        );
        assert!(wild_fault, "{source:?}");
        assert_eq!(ask(10), Ok(Some(Value::U32(14))), "both are back");
        assert_eq!(mill.stats().expect("stats").objects, 1, "nothing is left");
    }
    assert_eq!(resets(&desk), BTreeMap::from([(Cause::Callee, 3)]));
    assert_eq!(resets(&mill), BTreeMap::from([(Cause::WildFault, 3)]));
}
