//! What was made from an object outlives it: it comes back from what was given back, which is made again for that and for nobody else.

use steadfast_restart::{CallError, Component, Edge, Handle, Value};

use crate::fixture;

fn path(name: &str) -> String {
    format!("test:branch/branches@0.1.0#{name}")
}

fn asked(edge: &Edge, name: &str, args: &[Value]) -> Option<Value> {
    let answer = edge.invoke(&path(name), args);
    answer.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn made(edge: &Edge, name: &str, args: &[Value]) -> Handle {
    let value = asked(edge, name, args);
    value.and_then(|value| value.handle()).expect("an object")
}

fn number(edge: &Edge, name: &str, args: &[Value]) -> u64 {
    let value = asked(edge, name, args);
    value.and_then(|value| value.number()).expect("a number")
}

fn grow(edge: &Edge, from: Handle, n: u32) -> Handle {
    made(edge, "[method]branch.grow", &[from.into(), n.into()])
}

fn sum(edge: &Edge, of: Handle) -> u64 {
    number(edge, "[method]branch.sum", &[of.into()])
}

/// What is asked, with a step before each call.
fn story(edge: &Edge, mut step: impl FnMut()) {
    step();
    let root = made(edge, "[constructor]branch", &[1u32.into()]);
    step();
    let limb = grow(edge, root, 10);
    step();
    let (twig, other) = (grow(edge, limb, 100), grow(edge, limb, 200));
    step();
    // What it was when it was given back is what the others see for ever.
    asked(edge, "[method]branch.set", &[limb.into(), 20u32.into()]);
    step();
    edge.discard(limb).expect("live");
    step();
    assert_eq!((sum(edge, twig), sum(edge, other)), (121, 221));
    step();
    asked(edge, "[method]branch.set", &[root.into(), 2u32.into()]);
    step();
    edge.discard(root).expect("live");
    step();
    assert_eq!(
        number(edge, "count", &[]),
        4,
        "none but those that are needed"
    );
    assert_eq!(edge.stats().expect("stats").objects, 2, "what clients have");
    step();
    for gone in [root, limb] {
        let refused = edge.invoke(&path("[method]branch.sum"), &[gone.into()]);
        assert!(
            matches!(refused, Err(CallError::Stale { .. })),
            "{refused:?}"
        );
        let refused = edge.discard(gone);
        assert!(
            matches!(refused, Err(CallError::Stale { .. })),
            "{refused:?}"
        );
    }
    step();
    let leaf = grow(edge, twig, 1000);
    step();
    edge.discard(twig).expect("live");
    step();
    assert_eq!((sum(edge, leaf), sum(edge, other)), (1122, 222));
    step();
    edge.discard(other).expect("live");
    step();
    assert_eq!(sum(edge, leaf), 1122);
    edge.discard(leaf).expect("live");
    step();
    assert_eq!(number(edge, "count", &[]), 0, "nothing is left");
    assert_eq!(edge.stats().expect("stats").objects, 0);
}

const STEPS: usize = 16;

#[test]
fn a_child_outlives_its_parent_after_a_crash_at_every_call_boundary() {
    for (policy, own) in fixture::policies()
        .into_iter()
        .zip([false, false, true, false])
    {
        let mut host = fixture::host("lock", fixture::policies()[0]);
        let component = Component {
            process: own.then(fixture::own_process),
            ..fixture::component("branch", policy)
        };
        host.add(component, None).expect("it starts");
        let edge = host.edge("test", "branch", &[]).expect("an edge");
        for crash in 0..STEPS {
            for at_return in [false, true] {
                let before = edge.stats().expect("stats").resets_total();
                let mut at = 0;
                story(&edge, || {
                    if at == crash && at_return {
                        edge.fail_once().expect("it is told");
                    } else if at == crash {
                        edge.reset().expect("it comes back");
                    }
                    at += 1;
                });
                assert_eq!(at, STEPS);
                // A call that is refused, or an object that is given back, does not fail at its return.
                let resets = edge.stats().expect("stats").resets_total() - before;
                assert!(
                    resets == 1 || at_return && resets == 0,
                    "step {crash}: {resets}"
                );
                edge.reset().expect("it comes back");
            }
        }
        // Every boundary at once.
        story(&edge, || edge.reset().expect("it comes back"));
    }
}
