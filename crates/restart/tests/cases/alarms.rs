//! Each alarm rings once and stays silent once; mistakes of a caller reset nothing.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use steadfast_restart::{CallError, Cause, Edge, Handle, Host, Policy, Value};

use crate::fixture;
use crate::lock::{HOLDER, NEW, TAKE};

fn path(name: &str) -> String {
    format!("steadfast:bad/failures@0.1.0#{name}")
}

fn invoke(edge: &Edge, name: &str, args: &[Value]) -> Result<Option<Value>, CallError> {
    edge.invoke(&path(name), args)
}

fn made(edge: &Edge, name: &str, args: &[Value]) -> Handle {
    let value = invoke(edge, name, args).expect("an answer");
    value.and_then(|v| v.handle()).expect("an object")
}

fn number(edge: &Edge, name: &str, of: Handle) -> Option<u64> {
    invoke(edge, name, &[of.into()])
        .expect("an answer")
        .and_then(|v| v.number())
}

fn quick() -> (Host, Edge) {
    let mut component = fixture::component("bad", Policy::default());
    component.call_limit = Duration::from_millis(30);
    let mut host = Host::new(true).expect("the pad works");
    host.add(component, None).expect("it starts");
    let edge = host.edge("test", "bad", &[]).expect("an edge");
    (host, edge)
}

#[test]
fn a_request_that_always_fails_ends_in_an_error_of_its_caller_and_others_are_served() {
    let (_host, edge) = quick();
    let thing = made(&edge, "[constructor]thing", &[7u32.into()]);
    let zero = [Value::U32(0)];
    let much = [Value::U32(101)];
    struct Row<'a> {
        name: &'static str,
        args: &'a [Value],
        cause: Cause,
    }
    let cases: [Row; 6] = [
        Row {
            name: "trap",
            args: &[],
            cause: Cause::Trap,
        },
        Row {
            name: "beyond",
            args: &[],
            cause: Cause::Trap,
        },
        Row {
            name: "divide",
            args: &zero,
            cause: Cause::Trap,
        },
        Row {
            name: "spin",
            args: &[],
            cause: Cause::Hang,
        },
        Row {
            name: "echo",
            args: &much,
            cause: Cause::Range,
        },
        Row {
            name: "garbage",
            args: &[],
            cause: Cause::Range,
        },
    ];
    for Row { name, args, cause } in cases {
        let before = edge.stats().expect("stats").resets_total();
        match invoke(&edge, name, args) {
            Err(CallError::Poison {
                attempts: 4,
                cause: found,
                ..
            }) => assert_eq!(found, cause, "{name}"),
            other => panic!("{name} gave {other:?}"),
        }
        assert_eq!(edge.stats().expect("stats").resets_total(), before + 4);
        assert_eq!(number(&edge, "[method]thing.get", thing), Some(7));
    }
}

#[test]
fn what_does_not_fail_rings_nothing() {
    for dual in [false, true] {
        let policy = Policy {
            dual,
            compare_every: 1,
            ..Policy::default()
        };
        let host = fixture::host("bad", policy);
        let edge = host.edge("test", "bad", &[]).expect("an edge");
        let thing = made(&edge, "[constructor]thing", &[7u32.into()]);
        for n in 1..=100u32 {
            assert_eq!(
                invoke(&edge, "echo", &[n.into()]).map(|v| v.and_then(|v| v.number())),
                Ok(Some(n.into()))
            );
            assert_eq!(
                invoke(&edge, "divide", &[n.into()]).map(|v| v.and_then(|v| v.number())),
                Ok(Some((100 / n).into()))
            );
            let sum = invoke(&edge, "[method]thing.add", &[thing.into(), n.into()]);
            assert_eq!(sum, Ok(Some(Value::U64((1..=u64::from(n)).sum()))));
        }
        assert_eq!(edge.stats().expect("stats").resets_total(), 0);
    }
}

/// Where these bytes lie in the first body's memory.
fn find(edge: &Edge, bytes: &[u8]) -> usize {
    let memory = edge.memories().expect("memories").swap_remove(0);
    memory
        .windows(bytes.len())
        .position(|window| window == bytes)
        .expect("they are there")
}

#[test]
fn a_flip_in_memory_is_found_by_the_slot_by_the_other_body_and_by_comparison() {
    let owner = 0x5ca1_ab1e_u32;
    let plain = Policy {
        compare_every: 0,
        ..Policy::default()
    };
    struct Row {
        policy: Policy,
        body: usize,
        cause: Cause,
    }
    let cases = [
        // One body: the slot knows who holds the lock.
        Row {
            policy: plain,
            body: 0,
            cause: Cause::Wrong,
        },
        // Two: the results differ, whichever is wrong.
        Row {
            policy: Policy {
                dual: true,
                ..plain
            },
            body: 0,
            cause: Cause::Mismatch,
        },
        Row {
            policy: Policy {
                dual: true,
                ..plain
            },
            body: 1,
            cause: Cause::Mismatch,
        },
    ];
    for Row {
        policy,
        body,
        cause,
    } in cases
    {
        let host = fixture::host("lock", policy);
        let edge = host.edge("test", "lock", &[]).expect("an edge");
        let lock = edge.invoke(NEW, &[]).expect("made");
        let lock = lock.and_then(|v| v.handle()).expect("a handle");
        let taken = edge.invoke(TAKE, &[lock.into(), owner.into()]);
        assert_eq!(taken, Ok(Some(Value::Bool(true))));
        let at = find(&edge, &owner.to_le_bytes());
        assert_eq!(edge.flip(body, at, 3), Ok(true));
        let holder = edge.invoke(HOLDER, &[lock.into()]).expect("an answer");
        assert_eq!(holder.and_then(|v| v.number()), Some(owner.into()));
        let resets = edge.stats().expect("stats").resets;
        assert_eq!(resets.into_iter().collect::<Vec<_>>(), [(cause, 1)]);
    }
    // A word that no result shows yet.
    let host = fixture::host(
        "lock",
        Policy {
            dual: true,
            compare_every: 1,
            ..plain
        },
    );
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let lock = edge.invoke(NEW, &[]).expect("made");
    let lock = lock.and_then(|v| v.handle()).expect("a handle");
    let last = edge.memories().expect("memories")[0].len() - 1;
    assert_eq!(edge.flip(1, last, 0), Ok(true));
    assert_eq!(edge.flip(2, last, 0), Ok(false));
    let free = edge.invoke(HOLDER, &[lock.into()]);
    assert_eq!(free, Ok(Some(Value::Option(None))));
    let resets = edge.stats().expect("stats").resets;
    assert_eq!(resets.into_iter().collect::<Vec<_>>(), [(Cause::Memory, 1)]);
}

#[test]
fn a_flip_in_a_file_is_found_when_it_is_read() {
    let host = fixture::host("fs", Policy::default());
    let edge = host.edge("test", "fs", &[]).expect("an edge");
    let name = |name: &str| format!("steadfast:fs/files@0.1.0#{name}");
    let file = edge.invoke(&name("[static]file.open"), &["a".into(), Value::Bool(true)]);
    let file = file.expect("open").and_then(|v| v.handle()).expect("one");
    let bytes = b"bytes that must stay as they are";
    let args = [file.into(), 0u64.into(), (&bytes[..]).into()];
    edge.invoke(&name("[method]file.write"), &args)
        .expect("written");
    assert_eq!(edge.flip(0, find(&edge, bytes), 6), Ok(true));
    let args = [file.into(), 0u64.into(), 100u32.into()];
    let read = edge.invoke(&name("[method]file.read"), &args);
    let right = Value::Result(Ok(Some(Box::new(Value::from(&bytes[..])))));
    assert_eq!(read, Ok(Some(right)));
    assert_eq!(edge.stats().expect("stats").resets[&Cause::Wrong], 1);
}

#[test]
fn parents_come_back_first_and_fields_with_their_object() {
    let (_host, edge) = quick();
    let thing = made(&edge, "[constructor]thing", &[21u32.into()]);
    let part = made(&edge, "[constructor]part", &[thing.into()]);
    for n in [5u32, 6] {
        invoke(&edge, "[method]thing.add", &[thing.into(), n.into()]).expect("added");
    }
    edge.reset().expect("it comes back");
    assert_eq!(number(&edge, "[method]part.double", part), Some(42));
    assert_eq!(number(&edge, "[method]thing.sum", thing), Some(11));
    // A thing that was given back takes nothing of its part until the part would have to be made again.
    edge.discard(thing).expect("given back");
    edge.reset().expect("it comes back");
    let lost = invoke(&edge, "[method]part.double", &[part.into()]);
    assert!(matches!(lost, Err(CallError::Orphan { .. })), "{lost:?}");
}

#[test]
fn an_object_that_does_not_come_back_is_told_and_others_do() {
    let (_host, edge) = quick();
    let make = |order: u32| made(&edge, "[static]fragile.make", &[order.into()]);
    let (first, second) = (make(1), make(2));
    edge.reset().expect("it comes back");
    // The second is asked for first: its maker refuses, since there is no first.
    let lost = invoke(&edge, "[method]fragile.order", &[second.into()]);
    assert!(
        matches!(
            lost,
            Err(CallError::Poison {
                cause: Cause::Replay,
                ..
            })
        ),
        "{lost:?}"
    );
    assert_eq!(number(&edge, "[method]fragile.order", first), Some(1));
    assert_eq!(number(&edge, "[method]fragile.order", second), Some(2));
}

#[test]
fn mistakes_of_a_caller_are_told_to_it_and_reset_nothing() {
    let (_host, edge) = quick();
    let thing = made(&edge, "[constructor]thing", &[1u32.into()]);
    let part = made(&edge, "[constructor]part", &[thing.into()]);
    let count = invoke(&edge, "echo", &[]);
    assert!(
        matches!(
            count,
            Err(CallError::Count {
                needed: 1,
                found: 0,
                ..
            })
        ),
        "{count:?}"
    );
    for args in [vec![Value::U64(1)], vec!["1".into()], vec![thing.into()]] {
        let wrong = invoke(&edge, "echo", &args);
        assert!(matches!(wrong, Err(CallError::Type { .. })), "{wrong:?}");
    }
    let other = invoke(&edge, "[method]thing.get", &[part.into()]);
    assert!(matches!(other, Err(CallError::Type { .. })), "{other:?}");
    let nothing = invoke(&edge, "no-such", &[]);
    assert!(
        matches!(nothing, Err(CallError::NoFunction { .. })),
        "{nothing:?}"
    );
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
}

#[test]
fn without_recovery_objects_are_lost_and_told_stale() {
    let policy = Policy {
        recover: false,
        checks: false,
        ..Policy::default()
    };
    let host = fixture::host("bad", policy);
    let edge = host.edge("test", "bad", &[]).expect("an edge");
    let thing = made(&edge, "[constructor]thing", &[1u32.into()]);
    let failed = invoke(&edge, "trap", &[]);
    assert!(
        matches!(failed, Err(CallError::Failed { .. })),
        "{failed:?}"
    );
    let stale = invoke(&edge, "[method]thing.get", &[thing.into()]);
    assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
}

#[test]
fn whoever_calls_a_component_from_within_is_refused() {
    let place: Arc<OnceLock<Edge>> = Arc::default();
    let heard: Arc<Mutex<Vec<_>>> = Arc::default();
    let mut host = Host::new(true).expect("the pad works");
    let listener = {
        let (place, heard) = (place.clone(), heard.clone());
        move |report: &steadfast_restart::host::Report| {
            let edge: &Edge = place.get().expect("set before the first failure");
            let within = invoke(edge, "echo", &[1u32.into()]);
            heard.lock().expect("whole").push((report.cause, within));
        }
    };
    let component = fixture::component("bad", Policy::default());
    host.add(component, Some(Arc::new(listener)))
        .expect("it starts");
    let edge = host.edge("test", "bad", &[]).expect("an edge");
    place.set(edge.clone()).expect("once");
    assert!(invoke(&edge, "trap", &[]).is_err());
    let heard = heard.lock().expect("whole");
    assert_eq!(heard.len(), 4);
    for (cause, within) in heard.iter() {
        assert_eq!(*cause, Cause::Trap);
        assert!(
            matches!(within, Err(CallError::Reentered { .. })),
            "{within:?}"
        );
    }
}

#[test]
fn an_assertion_that_the_host_is_told_of_is_a_failure_of_one_call() {
    let policy = Policy {
        redo_max: 0,
        ..Policy::default()
    };
    let host = fixture::host("probe", policy);
    let edge = host.edge("test", "probe", &[]).expect("an edge");
    let path = |name: &str| format!("steadfast:probe/probe@0.1.0#{name}");
    let dirty = || edge.invoke(&path("dirty"), &[64u32.into()]);
    assert_eq!(
        (dirty(), dirty()),
        (Ok(Some(Value::U32(1))), Ok(Some(Value::U32(2))))
    );
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
    let failed = edge.invoke(&path("assert-host"), &[]);
    assert!(
        matches!(
            failed,
            Err(CallError::Poison {
                cause: Cause::Assertion,
                ..
            })
        ),
        "{failed:?}"
    );
    assert_eq!(dirty(), Ok(Some(Value::U32(1))), "its memory is new");
}

#[test]
fn a_failure_carries_what_both_bodies_held_where_it_is_asked_for() {
    for dump in [true, false] {
        let heard: Arc<Mutex<Vec<_>>> = Arc::default();
        let listener = {
            let heard = heard.clone();
            move |report: &steadfast_restart::host::Report| {
                heard.lock().expect("whole").push(report.dump.clone());
            }
        };
        let policy = Policy {
            dual: true,
            compare_every: 1,
            dump,
            ..Policy::default()
        };
        let mut host = Host::new(true).expect("the pad works");
        let component = fixture::component("lock", policy);
        host.add(component, Some(Arc::new(listener)))
            .expect("it starts");
        let edge = host.edge("test", "lock", &[]).expect("an edge");
        edge.reset()
            .expect("a reset that was asked for is no failure");
        let last = edge.memories().expect("memories")[0].len() - 1;
        assert_eq!(edge.flip(1, last, 5), Ok(true));
        edge.invoke(NEW, &[]).expect("made");
        let heard = heard.lock().expect("whole");
        assert_eq!(heard.len(), 2);
        assert!(heard[0].is_none());
        let Some(found) = &heard[1] else {
            assert!(!dump, "asked for");
            continue;
        };
        assert!(dump, "not asked for");
        let [one, other] = &found.bodies[..] else {
            panic!("{} bodies", found.bodies.len());
        };
        assert_eq!(one.memories[0][last] ^ other.memories[0][last], 1 << 5);
        assert_eq!(one.memories[0][..last], other.memories[0][..last]);
    }
}

/// One lock is used, and a bit of another one flips: the audit finds it, and nobody is told a wrong holder. Without a flip it finds nothing.
#[test]
fn an_audit_finds_what_has_changed_in_an_object_that_nobody_uses() {
    struct Row {
        audit_every: u32,
        flips: bool,
        found: bool,
    }
    for Row {
        audit_every,
        flips,
        found,
    } in [
        Row {
            audit_every: 4,
            flips: true,
            found: true,
        },
        Row {
            audit_every: 4,
            flips: false,
            found: false,
        },
        Row {
            audit_every: 0,
            flips: true,
            found: false,
        },
    ] {
        let policy = Policy {
            spare: false,
            audit_every,
            ..Policy::default()
        };
        let host = fixture::host("lock", policy);
        let edge = host.edge("test", "lock", &[]).expect("an edge");
        let new = || {
            let made = edge.invoke(NEW, &[]).expect("made");
            made.and_then(|value| value.handle()).expect("a lock")
        };
        let (used, idle) = (new(), new());
        let held = [idle.into(), 0x0102_0304u32.into()];
        assert_eq!(edge.invoke(TAKE, &held), Ok(Some(Value::Bool(true))));
        if flips {
            let memory = edge.memories().expect("it has one").remove(0);
            let owner = 0x0102_0304u32.to_le_bytes();
            let places = memory.windows(4).enumerate();
            let places: Vec<_> = places.filter(|(_, four)| *four == owner).collect();
            assert!(!places.is_empty());
            for (place, _) in places {
                assert!(edge.flip(0, place, 5).expect("a body"));
            }
        }
        for _ in 0..12 {
            let nobody = Ok(Some(Value::Option(None)));
            assert_eq!(edge.invoke(HOLDER, &[used.into()]), nobody);
        }
        let resets = edge.stats().expect("stats").resets;
        let wrong = resets.get(&Cause::Wrong).copied().unwrap_or(0);
        assert_eq!(
            (wrong, resets.values().sum::<u64>()),
            (u64::from(found), u64::from(found))
        );
    }
}
