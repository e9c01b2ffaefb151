//! A component that breaks the rules of the canonical ABI: each time an error of one call, and what others hold comes back.

use steadfast_restart::{CallError, Cause, Component, Edge, Handle, Host, Policy, Value};

use crate::fixture;

fn path(name: &str) -> String {
    format!("test:rogue/acts@0.1.0#{name}")
}

fn rogue(policy: Policy, own: bool) -> (Host, Edge) {
    let component = Component {
        process: own.then(fixture::own_process),
        console: Some(std::sync::Arc::new(|_, _: &str| {})),
        call_limit: std::time::Duration::from_millis(100),
        ..fixture::component("rogue", policy)
    };
    let mut host = Host::new(true).expect("the pad works");
    host.add(component, None).expect("it starts");
    let edge = host.edge("test", "rogue", &[]).expect("an edge");
    (host, edge)
}

fn asked(edge: &Edge, name: &str, args: &[u32]) -> Result<Option<Value>, CallError> {
    let args: Vec<Value> = args.iter().map(|n| (*n).into()).collect();
    edge.invoke(&path(name), &args)
}

fn thing(edge: &Edge, n: u32) -> Handle {
    let made = asked(edge, "[constructor]thing", &[n]).expect("made");
    made.and_then(|value| value.handle()).expect("a thing")
}

fn n(edge: &Edge, of: Handle) -> Option<u64> {
    let n = edge.invoke(&path("[method]thing.n"), &[of.into()]);
    n.expect("an answer").and_then(|value| value.number())
}

/// In the host's process and in one of its own; with one body and with two.
fn everywhere(try_it: impl Fn(&Edge)) {
    let once = Policy {
        redo_max: 1,
        resets_max: u32::MAX,
        ..Policy::default()
    };
    let dual = Policy {
        dual: true,
        compare_every: 1,
        ..once
    };
    for policy in [once, dual] {
        for own in [false, true] {
            let (_host, edge) = rogue(policy, own);
            try_it(&edge);
        }
    }
}

#[test]
fn each_rule_that_is_broken_is_an_error_of_one_call_and_objects_come_back() {
    everywhere(|edge| {
        let held = thing(edge, 7);
        let pages = || asked(edge, "grow", &[0]);
        let at_the_start = pages();
        assert!(at_the_start.is_ok(), "{at_the_start:?}");
        for (name, args) in [
            ("again", &[][..]),
            ("forged", &[0]),
            ("forged", &[1]),
            ("forged", &[99]),
            ("forged", &[u32::MAX]),
            ("maybe", &[2]),
            ("maybe", &[255]),
            ("which", &[3]),
            ("which", &[u32::MAX]),
            ("letter", &[0xd800]),
            ("letter", &[0x11_0000]),
            ("words", &[u32::MAX - 3, 1]),
            ("words", &[0, 0x4000_0000]),
            ("words", &[2, 1]),
            ("texts", &[0, u32::MAX / 8]),
            ("text", &[0, u32::MAX]),
            ("text", &[u32::MAX, 1]),
            ("say", &[0, 2]),
            ("say", &[u32::MAX, 2]),
            ("unreleased", &[]),
            ("grow", &[100]),
            ("grow", &[100_000]),
            ("deep", &[10_000_000]),
        ] {
            let failed = asked(edge, name, args);
            let poison = matches!(failed, Err(CallError::Poison { attempts: 2, .. }));
            assert!(poison, "{name}({args:?}): {failed:?}");
            assert_eq!(n(edge, held), Some(7), "{name}({args:?})");
            assert_eq!(edge.stats().expect("stats").objects, 1, "{name}({args:?})");
        }
        assert_eq!(pages(), at_the_start);
    });
}

#[test]
fn what_is_within_the_rules_rings_nothing() {
    everywhere(|edge| {
        let held = thing(edge, 7);
        struct Row {
            name: &'static str,
            args: &'static [u32],
            right: Value,
        }
        for Row { name, args, right } in [
            Row {
                name: "maybe",
                args: &[0],
                right: Value::Option(None),
            },
            Row {
                name: "which",
                args: &[2],
                right: Value::Enum("three".into()),
            },
            Row {
                name: "letter",
                args: &[0xe4],
                right: Value::Char('ä'),
            },
            Row {
                name: "words",
                args: &[4, 0],
                right: Value::List(Vec::new()),
            },
            Row {
                name: "text",
                args: &[0, 0],
                right: Value::String(String::new()),
            },
        ] {
            assert_eq!(asked(edge, name, args), Ok(Some(right)), "{name}");
        }
        let length = edge.invoke(&path("length"), &["four".into()]);
        assert_eq!(length, Ok(Some(Value::U32(4))));
        let deep = asked(edge, "deep", &[1000]);
        assert!(deep.is_ok(), "{deep:?}");
        // One that it keeps to itself is nobody's.
        let spare = asked(edge, "spare", &[]).expect("made");
        let spare = spare.and_then(|value| value.handle()).expect("a thing");
        assert_eq!((n(edge, spare), n(edge, held)), (Some(2), Some(7)));
        assert_eq!(edge.stats().expect("stats").resets_total(), 0);
    });
}

/// What it does to its own memory for arguments is gone after the reset: the repetition succeeds.
#[test]
fn arguments_that_find_no_place_are_given_again() {
    everywhere(|edge| {
        let held = thing(edge, 7);
        for how in [1, 3, 4] {
            asked(edge, "sabotage", &[how]).expect("an answer");
            let length = edge.invoke(&path("length"), &["four".into()]);
            let right = Ok(Some(Value::U32(4)));
            assert_eq!(length, right, "{how}");
            assert_eq!(n(edge, held), Some(7), "{how}");
        }
    });
}

#[test]
fn an_end_that_traps_or_never_comes_ends_the_object_all_the_same() {
    everywhere(|edge| {
        let held = thing(edge, 7);
        for spins in [false, true] {
            let made = edge.invoke(&path("[constructor]brittle"), &[Value::Bool(spins)]);
            let brittle = made.expect("made").and_then(|value| value.handle());
            let brittle = brittle.expect("an object");
            assert_eq!(edge.discard(brittle), Ok(()));
            let stale = edge.discard(brittle);
            assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
            assert_eq!(n(edge, held), Some(7));
            assert_eq!(edge.stats().expect("stats").objects, 1);
        }
        let resets = edge.stats().expect("stats").resets;
        assert_eq!(resets, [(Cause::Trap, 1), (Cause::Hang, 1)].into());
    });
}
