//! Objects that move to another parent: they come back from the new one, and end with it.

use steadfast_restart::{CallError, Cause, Edge, Handle, Value};

use crate::fixture;

fn path(name: &str) -> String {
    format!("test:shelf/shelves@0.1.0#{name}")
}

fn asked(edge: &Edge, name: &str, args: &[Value]) -> Option<Value> {
    let answer = edge.invoke(&path(name), args);
    answer.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn made(edge: &Edge, name: &str, args: &[Value]) -> Handle {
    let value = asked(edge, name, args);
    value.and_then(|value| value.handle()).expect("an object")
}

fn sum(edge: &Edge, shelf: Handle) -> u64 {
    let value = asked(edge, "[method]shelf.sum", &[shelf.into()]);
    value.and_then(|value| value.number()).expect("a number")
}

fn moved(edge: &Edge, item: Handle, to: Handle) -> bool {
    let args = [item.into(), to.into()];
    asked(edge, "[method]item.move-to", &args) == Some(Value::Bool(true))
}

/// What is asked, with a step before each call.
fn story(edge: &Edge, step: impl Fn(usize)) {
    let shelf = || made(edge, "[constructor]shelf", &[]);
    let item = |on: Handle, n: u32| made(edge, "[constructor]item", &[on.into(), n.into()]);
    let at = std::cell::Cell::new(0);
    let next = || {
        step(at.get());
        at.set(at.get() + 1);
    };
    next();
    let (one, two) = (shelf(), shelf());
    next();
    let (a, b) = (item(one, 1), item(one, 2));
    next();
    assert!(moved(edge, a, two));
    next();
    assert_eq!((sum(edge, one), sum(edge, two)), (2, 1));
    next();
    let inside = made(edge, "[method]item.inside", &[b.into()]);
    next();
    let c = item(inside, 4);
    next();
    assert!(moved(edge, c, one));
    next();
    assert_eq!((sum(edge, one), sum(edge, inside)), (6, 0));
    next();
    assert!(moved(edge, b, two));
    next();
    // A move that is refused changes nothing, whatever fails.
    let d = item(two, 8);
    next();
    assert!(!moved(edge, c, two));
    next();
    assert_eq!((sum(edge, one), sum(edge, two)), (4, 11));
    next();
    // What stood there and has gone elsewhere lives on; what moved there ends.
    edge.discard(one).expect("live");
    let gone = edge.invoke(&path("[method]item.n"), &[c.into()]);
    assert!(matches!(gone, Err(CallError::Stale { .. })), "{gone:?}");
    next();
    assert_eq!(sum(edge, two), 11);
    next();
    assert_eq!(sum(edge, inside), 0, "it came along with its item");
    for object in [d, two] {
        edge.discard(object).expect("live");
    }
    assert_eq!(edge.stats().expect("stats").objects, 0);
}

const STEPS: usize = 15;

#[test]
fn an_item_comes_back_where_it_stood_last_after_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        for crash in 0..STEPS {
            for at_return in [false, true] {
                let host = fixture::host("shelf", policy);
                let edge = host.edge("test", "shelf", &[]).expect("an edge");
                story(&edge, |step| {
                    if step == crash && at_return {
                        edge.fail_once().expect("it is told");
                    } else if step == crash {
                        edge.reset().expect("it comes back");
                    }
                });
                assert_eq!(edge.stats().expect("stats").resets_total(), 1);
            }
        }
    }
}

/// Each would have to be there before the other one.
#[test]
fn a_component_that_moves_an_object_into_itself_has_failed() {
    let host = fixture::host("shelf", fixture::policies()[0]);
    let edge = host.edge("test", "shelf", &[]).expect("an edge");
    let shelf = made(&edge, "[constructor]shelf", &[]);
    let item = made(&edge, "[constructor]item", &[shelf.into(), 13u32.into()]);
    let inside = made(&edge, "[method]item.inside", &[item.into()]);
    let refused = edge.invoke(&path("[method]item.move-to"), &[item.into(), inside.into()]);
    let wrong = Cause::Wrong;
    assert!(
        matches!(refused, Err(CallError::Poison { cause, .. }) if cause == wrong),
        "{refused:?}"
    );
    let resets = edge.stats().expect("stats").resets;
    assert!(
        resets.get(&Cause::Wrong).is_some_and(|n| *n > 0),
        "{resets:?}"
    );
    // Both are where they were.
    assert_eq!((sum(&edge, shelf), sum(&edge, inside)), (13, 0));
}
