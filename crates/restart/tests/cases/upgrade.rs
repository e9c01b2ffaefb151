//! Another version takes over while clients call; what it cannot take over it does not get.

use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_restart::{Component, Edge, Handle, LoadError, Model, Policy, UpgradeError, Value};

use crate::fixture;
use crate::lock::{HOLDER, NEW, TAKE};

const VERSION: &str = "steadfast:lock/locks@0.1.0#[method]lock.version";

/// The lock component's next version, under its name.
fn next(policy: Policy) -> Component {
    Component {
        name: "lock".into(),
        ..fixture::component("relock", policy)
    }
}

fn made(edge: &Edge, path: &str, args: &[Value]) -> Handle {
    let value = edge.invoke(path, args).expect("an answer");
    value.and_then(|v| v.handle()).expect("an object")
}

fn holder(edge: &Edge, lock: Handle) -> Option<u64> {
    let value = edge.invoke(HOLDER, &[lock.into()]).expect("an answer");
    value.and_then(|value| value.number())
}

#[test]
fn handles_stay_while_versions_change_under_load() {
    for policy in fixture::lazy_policies() {
        let host = fixture::host("lock", policy);
        let edge = host.edge("test", "lock", &[]).expect("an edge");
        let locks: Vec<_> = (0..16).map(|_| made(&edge, NEW, &[])).collect();
        for (owner, lock) in (1u32..).zip(&locks) {
            edge.invoke(TAKE, &[(*lock).into(), owner.into()])
                .expect("taken");
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let mut calls = 0;
                while !done.load(Ordering::SeqCst) {
                    for (owner, lock) in (1u64..).zip(&locks) {
                        assert_eq!(holder(&edge, *lock), Some(owner));
                        calls += 1;
                    }
                }
                calls
            });
            for _ in 0..10 {
                let upgraded = host.upgrade(next(policy)).expect("it fits");
                assert_eq!(upgraded.objects, 16);
            }
            done.store(true, Ordering::SeqCst);
            assert!(calls.join().expect("no wrong answer") > 0);
        });
        // Functions that are new are for edges that are new.
        assert!(edge.function(VERSION).is_err());
        let fresh = host.edge("fresh", "lock", &[]).expect("an edge");
        let lock = made(&fresh, NEW, &[]);
        assert_eq!(
            fresh.invoke(VERSION, &[lock.into()]),
            Ok(Some(Value::U32(2)))
        );
        // It fails and comes back as any component.
        edge.reset().expect("it comes back");
        assert_eq!(holder(&edge, locks[3]), Some(4));
        assert!(matches!(
            fresh.invoke(HOLDER, &[locks[3].into()]),
            Err(steadfast_restart::CallError::Foreign { .. })
        ));
    }
}

fn text(name: &str, ending: &str, changes: &[(&str, &str)]) -> String {
    let text = fixture::text(name, ending);
    changes.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    })
}

/// The lock component, with other words in its WIT or its sidecar file.
fn changed(wit: &[(&str, &str)], sidecar: &[(&str, &str)]) -> Component {
    let model = Model::generate(
        &text("lock", "wit", wit),
        &text("lock", "recover.toml", sidecar),
    );
    Component {
        model: model.expect("a model"),
        ..fixture::component("lock", Policy::default())
    }
}

#[test]
fn a_version_that_does_not_fit_is_refused_and_the_old_one_goes_on() {
    let host = fixture::host("lock", Policy::default());
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let lock = made(&edge, NEW, &[]);
    edge.invoke(TAKE, &[lock.into(), 7u32.into()])
        .expect("taken");
    let cases = [
        (
            changed(&[], &[("\"held\"", "\"owned\"")]),
            "are in state held, which it does not have",
        ),
        (
            changed(&[], &[("\"free\"", "\"idle\"")]),
            "is in state idle, it was free",
        ),
        (
            changed(&[("not-owner", "other-owner")], &[]),
            "lock.release has other types",
        ),
        (
            changed(&[("take: func(owner: u32)", "take: func(owner: u64)")], &[]),
            "lock.take has other types",
        ),
        (
            changed(
                &[("holder: func", "keeper: func")],
                &[("lock.holder", "lock.keeper")],
            ),
            "it has no function steadfast:lock/locks@0.1.0#[method]lock.holder",
        ),
        // By this file nobody holds a lock that is held: the answer differs from what the host knows.
        (
            changed(
                &[],
                &[(
                    "returns = { state = \"held\"",
                    "returns = { state = \"free\"",
                )],
            ),
            "wrong result: [method]lock.holder gave",
        ),
    ];
    for (component, why) in cases {
        let error = host.upgrade(component).expect_err(why);
        assert!(error.to_string().contains(why), "{error}, not {why}");
        assert!(!error.fix().is_empty());
        assert_eq!(holder(&edge, lock), Some(7), "{why}");
    }
    let elsewhere = Component {
        image: "/nowhere.cwasm".into(),
        ..next(Policy::default())
    };
    let error = host.upgrade(elsewhere).expect_err("no image");
    assert!(
        matches!(error, UpgradeError::Load(LoadError::Image { .. })),
        "{error}"
    );
    let stats = edge.stats().expect("stats");
    assert_eq!((stats.resets_total(), stats.objects), (0, 1));
    // The same words fit as long as no object is in that state.
    edge.discard(lock).expect("live");
    host.upgrade(changed(&[], &[("\"held\"", "\"owned\"")]))
        .expect("it fits");
    let lock = made(&edge, NEW, &[]);
    edge.invoke(TAKE, &[lock.into(), 8u32.into()])
        .expect("taken");
    edge.reset().expect("it comes back");
    assert_eq!(holder(&edge, lock), Some(8));
}

#[test]
fn data_and_names_come_into_the_new_version() {
    let host = fixture::host("fs", Policy::default());
    let edge = host.edge("test", "fs", &[]).expect("an edge");
    let path = |name: &str| format!("steadfast:fs/files@0.1.0#{name}");
    let file = made(
        &edge,
        &path("[static]file.open"),
        &["a".into(), Value::Bool(true)],
    );
    let bytes: Vec<u8> = (0..40_000u32).map(|n| n.to_le_bytes()[0]).collect();
    let args = [file.into(), 0u64.into(), bytes.as_slice().into()];
    edge.invoke(&path("[method]file.write"), &args)
        .expect("written");
    let upgraded = host
        .upgrade(fixture::component("fs", Policy::default()))
        .expect("it fits");
    assert_eq!((upgraded.objects, upgraded.names), (1, 1));
    let read = edge.invoke(
        &path("[method]file.read"),
        &[file.into(), 0u64.into(), 40_000u32.into()],
    );
    let read = read.expect("an answer").expect("a result");
    assert_eq!(read, Value::Result(Ok(Some(Box::new(Value::Bytes(bytes))))));
}

#[test]
fn a_component_that_was_given_up_serves_again() {
    let policy = Policy {
        resets_max: 0,
        rests_max: 0,
        redo_max: 0,
        ..Policy::default()
    };
    let host = fixture::host("lock", policy);
    let edge = host.edge("test", "lock", &[]).expect("an edge");
    let lock = made(&edge, NEW, &[]);
    edge.invoke(TAKE, &[lock.into(), 7u32.into()])
        .expect("taken");
    assert!(edge.reset().is_err(), "given up");
    assert!(edge.invoke(HOLDER, &[lock.into()]).is_err());
    host.upgrade(next(Policy::default())).expect("it fits");
    assert_eq!(holder(&edge, lock), Some(7));
}
