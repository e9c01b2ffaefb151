//! The time of day: the same for both bodies and for a repeated call, and an object keeps the one that it remembers.

use std::time::{SystemTime, UNIX_EPOCH};

use steadfast_restart::{Cause, Component, Edge, Host, Policy, Value, host::wall_clock};

use crate::fixture;

fn call(edge: &Edge, name: &str, args: &[Value]) -> Value {
    let answer = edge.invoke(&format!("test:mark/marks@0.1.0#{name}"), args);
    answer.expect("an answer").expect("a value")
}

fn nanoseconds(of: &Value) -> u128 {
    match of {
        Value::Record(fields) => match &fields[..] {
            [(_, Value::U64(seconds)), (_, Value::U32(rest))] => {
                u128::from(*seconds) * 1_000_000_000 + u128::from(*rest)
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn by_the_machine() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_nanos()
}

#[test]
fn two_bodies_read_one_time_and_an_object_keeps_the_one_that_it_remembers() {
    for (policy, own) in fixture::policies()
        .into_iter()
        .flat_map(|policy| [(policy, false), (policy, true)])
    {
        let component = Component {
            answers: wall_clock(),
            process: own.then(fixture::own_process),
            ..fixture::component("mark", policy)
        };
        let mut host = Host::new(true).expect("the pad works");
        host.add(component, None).expect("it starts");
        let edge = host.edge("test", "mark", &[]).expect("an edge");
        let before = by_the_machine();
        let mark = call(&edge, "[constructor]mark", &[]);
        let remembered = call(&edge, "[method]mark.at", std::slice::from_ref(&mark));
        let now = call(&edge, "now", &[]);
        let order = [
            before,
            nanoseconds(&remembered),
            nanoseconds(&now),
            by_the_machine(),
        ];
        assert!(order.is_sorted(), "{order:?}");
        assert_eq!(edge.stats().expect("stats").resets_total(), 0, "{policy:?}");
        // The call that fails has read the time: its repetition reads the same.
        edge.fail_once().expect("idle");
        call(&edge, "now", &[]);
        edge.reset().expect("it comes back");
        let kept = call(&edge, "[method]mark.at", &[mark]);
        assert_eq!(kept, remembered, "{policy:?}");
        let resets = edge.stats().expect("stats").resets;
        assert_eq!(resets, [(Cause::Asked, 2)].into(), "{policy:?}");
    }
}

#[test]
fn without_an_answer_the_clock_is_refused_by_name() {
    let mut host = Host::new(true).expect("the pad works");
    let refused = host.add(fixture::component("mark", Policy::default()), None);
    let refused = refused.expect_err("nobody answers").to_string();
    assert!(
        refused.contains("wasi:clocks/wall-clock@0.2.0"),
        "{refused}"
    );
}
