//! The file system component, against a map of byte vectors.

#![allow(clippy::cast_possible_truncation, reason = "drawn numbers are small")]

use std::collections::BTreeMap;

use steadfast_restart::{CallError, Edge, Handle, Policy, Value};

use crate::fixture;

const F: &str = "steadfast:fs/files@0.1.0#";

fn call(edge: &Edge, name: &str, args: &[Value]) -> Value {
    edge.invoke(&format!("{F}{name}"), args)
        .expect("an answer")
        .expect("a result")
}

fn open(edge: &Edge, path: &str, create: bool) -> Option<Handle> {
    call(
        edge,
        "[static]file.open",
        &[path.into(), Value::Bool(create)],
    )
    .handle()
}

fn read(edge: &Edge, file: Handle, offset: u64, length: u32) -> Vec<u8> {
    match call(
        edge,
        "[method]file.read",
        &[file.into(), offset.into(), length.into()],
    ) {
        Value::Result(Ok(Some(data))) => match *data {
            Value::Bytes(bytes) => bytes,
            Value::List(items) if items.is_empty() => Vec::new(),
            other => panic!("read gave {other:?}"),
        },
        other => panic!("read gave {other:?}"),
    }
}

fn write(edge: &Edge, file: Handle, offset: u64, data: &[u8]) {
    let done = call(
        edge,
        "[method]file.write",
        &[file.into(), offset.into(), data.into()],
    );
    assert_eq!(done.number(), Some(data.len() as u64));
}

fn names(edge: &Edge) -> Vec<String> {
    match call(edge, "names", &[]) {
        Value::List(items) => items
            .into_iter()
            .map(|item| {
                if let Value::String(s) = item {
                    s
                } else {
                    panic!("{item:?}")
                }
            })
            .collect(),
        other => panic!("names gave {other:?}"),
    }
}

/// The same steps on the component and on a map; a crash before step `crash`.
fn steps(edge: &Edge, seed: u32, crash: Option<usize>) {
    let mut right: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut opened: Vec<(String, Handle)> = Vec::new();
    let mut state = seed;
    let mut draw = |below: u32| {
        // xorshift32 (Marsaglia 2003): any spread will do.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state % below
    };
    for step in 0..60 {
        if crash == Some(step) || crash.is_none() && step % 7 == 3 {
            edge.reset().expect("it comes back");
        }
        let path = format!("f{}", draw(4));
        match draw(7) {
            0 | 1 => {
                let create = draw(3) > 0;
                let handle = open(edge, &path, create);
                assert_eq!(
                    handle.is_some(),
                    create || right.contains_key(&path),
                    "open {path} at step {step}, crash {crash:?}"
                );
                if let Some(handle) = handle {
                    right.entry(path.clone()).or_default();
                    opened.push((path, handle));
                }
            }
            2 | 3 if !opened.is_empty() => {
                let (path, handle) = opened[draw(opened.len() as u32) as usize].clone();
                let (offset, len) = (draw(9000) as usize, draw(5000) as usize);
                let byte = draw(256) as u8;
                write(edge, handle, offset as u64, &vec![byte; len]);
                let bytes = right.get_mut(&path).expect("open");
                if bytes.len() < offset + len {
                    bytes.resize(offset + len, 0);
                }
                bytes[offset..offset + len].fill(byte);
            }
            4 if !opened.is_empty() => {
                let (path, handle) = opened[draw(opened.len() as u32) as usize].clone();
                let length = draw(12000);
                let done = call(
                    edge,
                    "[method]file.truncate",
                    &[handle.into(), u64::from(length).into()],
                );
                assert!(matches!(done, Value::Result(Ok(_))));
                right
                    .get_mut(&path)
                    .expect("open")
                    .resize(length as usize, 0);
            }
            5 if !opened.is_empty() => {
                let (_, handle) = opened.swap_remove(draw(opened.len() as u32) as usize);
                edge.discard(handle).expect("open");
            }
            _ => {
                let busy = opened.iter().any(|(name, _)| *name == path);
                let gone = matches!(
                    call(edge, "remove", &[path.as_str().into()]),
                    Value::Result(Ok(_))
                );
                assert_eq!(
                    gone,
                    right.contains_key(&path) && !busy,
                    "remove {path} at step {step}, crash {crash:?}"
                );
                if gone {
                    right.remove(&path);
                }
            }
        }
        for (path, handle) in &opened {
            let bytes = &right[path];
            assert_eq!(
                &read(edge, *handle, 0, 1 << 16),
                bytes,
                "{path} at step {step}, crash {crash:?}"
            );
        }
    }
    assert_eq!(
        names(edge),
        right.keys().cloned().collect::<Vec<_>>(),
        "crash {crash:?}"
    );
}

#[test]
fn files_hold_what_a_map_holds() {
    let host = fixture::host("fs", Policy::default());
    let edge = host.edge("test", "fs", &[]).expect("an edge");
    steps(&edge, 1, Some(usize::MAX));
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
}

#[test]
fn files_outlive_a_crash_before_every_step() {
    for crash in 0..60 {
        let host = fixture::host(
            "fs",
            Policy {
                spare: false,
                ..Policy::default()
            },
        );
        let edge = host.edge("test", "fs", &[]).expect("an edge");
        steps(&edge, 2, Some(crash));
    }
}

#[test]
fn files_outlive_many_crashes() {
    for (seed, policy) in [
        (3, Policy::default()),
        (
            4,
            Policy {
                dual: true,
                compare_every: 1,
                ..Policy::default()
            },
        ),
        (
            5,
            Policy {
                eager: true,
                spare: false,
                ..Policy::default()
            },
        ),
    ] {
        let host = fixture::host("fs", policy);
        let edge = host.edge("test", "fs", &[]).expect("an edge");
        steps(&edge, seed, None);
    }
}

/// What is global is the name: each client has a handle of its own, and may use no other.
#[test]
fn a_name_is_the_same_file_to_every_client_whatever_fails_between() {
    let host = fixture::host("fs", Policy::default());
    let client = |from: &str| host.edge(from, "fs", &[]).expect("an edge");
    let (first, second) = (client("first"), client("second"));
    let own = open(&first, "shared", true).expect("it is made");
    write(&first, own, 0, b"from the first");
    first.reset().expect("it comes back");
    let other = open(&second, "shared", false).expect("it is there");
    assert_eq!(read(&second, other, 0, 64), b"from the first");
    write(&second, other, 5, b"second");
    second.reset().expect("it comes back");
    assert_eq!(read(&first, own, 0, 64), b"from secondrst");
    let foreign = second.discard(own);
    assert!(
        matches!(foreign, Err(CallError::Foreign { .. })),
        "{foreign:?}"
    );
}

#[test]
fn the_memory_limit_refuses_and_loses_nothing() {
    let mut component = fixture::component("fs", Policy::default());
    component.memory_bytes = 1 << 20;
    let mut host = steadfast_restart::Host::new(true).expect("the pad works");
    host.add(component, None).expect("it starts");
    let edge = host.edge("test", "fs", &[]).expect("an edge");
    let file = open(&edge, "a", true).expect("a file");
    write(&edge, file, 0, b"stays");
    let full = call(
        &edge,
        "[method]file.write",
        &[file.into(), (4u64 << 20).into(), (&b"x"[..]).into()],
    );
    assert_eq!(
        full,
        Value::Result(Err(Some(Box::new(Value::Enum("no-space".into())))))
    );
    assert_eq!(read(&edge, file, 0, 100), b"stays");
}

#[test]
fn an_argument_out_of_range_is_refused_before_the_component_sees_it() {
    let host = fixture::host("fs", Policy::default());
    let edge = host.edge("test", "fs", &[]).expect("an edge");
    let file = open(&edge, "a", true).expect("a file");
    let refused = edge.invoke(
        &format!("{F}[method]file.read"),
        &[file.into(), 0u64.into(), u32::MAX.into()],
    );
    assert!(
        matches!(
            refused,
            Err(steadfast_restart::CallError::Argument { max: 1_048_576, .. })
        ),
        "{refused:?}"
    );
}
