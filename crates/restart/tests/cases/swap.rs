//! Compare and swap of wasi:keyvalue: an operation has seen a value, and after a crash it has seen the same one.

use steadfast_restart::{CallError, Component, Edge, Handle, Host, Model, Policy, Value};

use crate::fixture;

fn atomics(name: &str) -> String {
    format!("wasi:keyvalue/atomics@0.2.0-draft2#{name}")
}

fn store(name: &str) -> String {
    format!("wasi:keyvalue/store@0.2.0-draft2#{name}")
}

fn bytes(of: Option<&str>) -> Value {
    Value::Option(of.map(|text| Box::new(text.as_bytes().into())))
}

fn ok(inner: Option<Value>) -> Value {
    Value::Result(Ok(inner.map(Box::new)))
}

/// A client that calls `step` before each of its calls.
struct Client<'a> {
    edge: &'a Edge,
    bucket: Handle,
    step: &'a mut dyn FnMut(),
}

impl Client<'_> {
    fn asked(&mut self, path: &str, args: &[Value]) -> Value {
        (self.step)();
        let answer = self.edge.invoke(path, args).expect("an answer");
        answer.expect("a result")
    }

    fn set(&mut self, key: &str, value: &str) {
        let args = [self.bucket.into(), key.into(), value.as_bytes().into()];
        let done = self.asked(&store("[method]bucket.set"), &args);
        assert_eq!(done, ok(None));
    }

    fn holds(&mut self, key: &str, value: Option<&str>) {
        let args = [self.bucket.into(), key.into()];
        let found = self.asked(&store("[method]bucket.get"), &args);
        assert_eq!(found, ok(Some(bytes(value))), "{key}");
    }

    fn begin(&mut self, key: &str) -> Handle {
        let args = [self.bucket.into(), key.into()];
        let begun = self.asked(&atomics("[static]cas.new"), &args);
        begun.handle().expect("an operation")
    }

    fn saw(&mut self, cas: Handle, value: Option<&str>) {
        let found = self.asked(&atomics("[method]cas.current"), &[cas.into()]);
        assert_eq!(found, ok(Some(bytes(value))));
    }

    /// The next operation where the value was another one.
    fn swap(&mut self, cas: Handle, value: &str) -> Option<Handle> {
        let args = [cas.into(), value.as_bytes().into()];
        match self.asked(&atomics("swap"), &args) {
            Value::Result(Ok(None)) => None,
            Value::Result(Err(Some(error))) => match *error {
                Value::Variant(case, Some(next)) if case == "cas-failed" => next.handle(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }
}

fn opened(edge: &Edge) -> Handle {
    let opened = edge.invoke(&store("open"), &["a".into()]).expect("opened");
    opened.and_then(|v| v.handle()).expect("a bucket")
}

/// Two clients of one key, a key that is not there, and a value that is empty.
fn plays(client: &mut Client<'_>) {
    client.set("x", "1");
    let (mine, theirs) = (client.begin("x"), client.begin("x"));
    assert_eq!(client.swap(mine, "2"), None);
    client.saw(theirs, Some("1"));
    let again = client.swap(theirs, "3").expect("it was changed meanwhile");
    client.holds("x", Some("2"));
    client.saw(again, Some("2"));
    assert_eq!(client.swap(again, "3"), None);
    client.holds("x", Some("3"));
    let none = client.begin("new");
    client.saw(none, None);
    let other = client.begin("new");
    assert_eq!(client.swap(none, ""), None);
    client.holds("x", Some("3"));
    let last = client.swap(other, "late").expect("it was set meanwhile");
    assert_eq!(client.swap(last, "done"), None);
    client.holds("new", Some("done"));
    for gone in [mine, theirs, again, none, other, last] {
        let stale = client
            .edge
            .invoke(&atomics("[method]cas.current"), &[gone.into()]);
        assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
    }
}

fn tried(host: &Host, crash: usize) {
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let (mut calls, mut next) = (0, fixture::crash_at(crash, &edge));
    let mut step = || {
        next();
        calls += 1;
    };
    let bucket = opened(&edge);
    let mut client = Client {
        edge: &edge,
        bucket,
        step: &mut step,
    };
    plays(&mut client);
    assert_eq!(calls, CALLS, "each call has a crash of its own");
    assert_eq!(edge.stats().expect("stats").objects, 1, "the bucket alone");
}

const CALLS: usize = 18;

#[test]
fn what_was_seen_outlives_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        // And once without one.
        for crash in 0..=2 * CALLS {
            tried(&fixture::host("keyvalue", policy), crash);
        }
    }
}

#[test]
fn what_was_seen_outlives_a_crash_of_a_process() {
    for crash in 0..2 * CALLS {
        let component = Component {
            process: Some(fixture::own_process()),
            ..fixture::component("keyvalue", Policy::default())
        };
        let mut host = Host::new(true).expect("the pad works");
        host.add(component, None).expect("it starts");
        tried(&host, crash);
    }
}

/// A swap looks at its key alone, and brings nothing else back.
#[test]
fn a_swap_brings_its_key_back_and_no_other_one() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let bucket = opened(&edge);
    let mut client = Client {
        edge: &edge,
        bucket,
        step: &mut || {},
    };
    for n in 0..50 {
        client.set(&format!("{n}"), "1");
    }
    let cas = client.begin("7");
    edge.reset().expect("it comes back");
    assert_eq!(client.swap(cas, "2"), None);
    assert_eq!(
        edge.stats().expect("stats").rebuilt,
        3,
        "bucket, operation, key"
    );
    edge.reset().expect("it comes back");
    let next = client.begin("8");
    assert_eq!(edge.stats().expect("stats").rebuilt, 5, "bucket and key");
    client.saw(next, Some("1"));
    client.holds("7", Some("2"));
}

/// Without its bucket nobody could say what a swap has changed.
#[test]
fn an_operation_whose_bucket_was_given_back_is_refused_before_it_changes_anything() {
    for reset in [false, true] {
        let host = fixture::host("keyvalue", Policy::default());
        let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
        let bucket = opened(&edge);
        let mut client = Client {
            edge: &edge,
            bucket,
            step: &mut || {},
        };
        client.set("x", "1");
        let cas = client.begin("x");
        edge.discard(bucket).expect("live");
        if reset {
            edge.reset().expect("it comes back");
        }
        let args = [cas.into(), b"2".as_slice().into()];
        let refused = edge.invoke(&atomics("swap"), &args);
        assert!(
            matches!(refused, Err(CallError::Orphan { .. })),
            "{refused:?}"
        );
        let bucket = opened(&edge);
        let mut client = Client {
            edge: &edge,
            bucket,
            step: &mut || {},
        };
        client.holds("x", Some("1"));
    }
}

#[test]
fn a_value_too_long_ends_the_operation_and_changes_nothing() {
    let host = fixture::host("keyvalue", Policy::default());
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let bucket = opened(&edge);
    let mut client = Client {
        edge: &edge,
        bucket,
        step: &mut || {},
    };
    let long = "k".repeat(1025);
    let args = [bucket.into(), long.as_str().into()];
    let refused = client.asked(&atomics("[static]cas.new"), &args);
    assert!(matches!(refused, Value::Result(Err(_))), "{refused:?}");
    let cas = client.begin("x");
    let args = [cas.into(), vec![0_u8; (1 << 20) + 1].as_slice().into()];
    let refused = edge.invoke(&atomics("swap"), &args);
    assert!(
        matches!(refused, Err(CallError::Argument { .. })),
        "{refused:?}"
    );
    assert_eq!(client.swap(cas, "1"), None, "it is as it was");
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
}

const HEAD: &str =
    "package a:b; interface i { resource r { constructor(); set: func(k: string, v: list<u8>); } ";
const TAIL: &str = " } world w { export i; }";
const KEYS: &str = "[resource.\"a:b/i/r\"]\ndata = \"[method]r.set\"\n\
    [function.\"a:b/i#[method]r.set\"]\neffect = \"put\"\nkey = \"k\"\ndata = \"v\"\n";
const OTHER: &str = "resource s { constructor(of: borrow<r>, k: string); see: func() -> u32; }
    again: func(of: borrow<r>, k: string, seen: u32) -> s; ";

fn function(name: &str, entry: &str) -> String {
    format!("[function.\"a:b/i#{name}\"]\n{entry}\n")
}

fn other(entry: &str) -> String {
    let none = "effect = \"none\"";
    let makers = ["[constructor]s", "again", "[method]s.see"].map(|name| function(name, none));
    let resource = format!("[resource.\"a:b/i/s\"]\n{entry}\n");
    format!("{KEYS}{resource}{}", makers.concat())
}

const SEEN: &str = "identity = \"a:b/i#[method]s.see\"\nagain = \"a:b/i#again\"";

fn generated(body: &str, sidecar: &str) -> Result<Model, steadfast_restart::ModelError> {
    Model::generate(&format!("{HEAD}{OTHER}{body}{TAIL}"), sidecar)
}

#[test]
fn what_an_ended_object_is_replaced_by_needs_an_identity() {
    let swap = "swap: func(of: s, v: list<u8>) -> result<_, s>;";
    let put = "effect = \"put\"\ndata = \"v\"\nwhen = \"ok\"";
    let right = other(&format!("{SEEN}\nkey = \"k\"")) + &function("swap", put);
    let model = generated(swap, &right);
    let told = model.expect("it fits").explain();
    let needed = "ends the object that it is given, and sets the key that this stood for if it returns ok; it may give another s";
    assert!(told.contains(needed), "{told}");
    let two = "resource t { constructor(); } two: func(of: s) -> result<r, t>;";
    struct Row {
        body: &'static str,
        sidecar: String,
        needed: &'static str,
    }
    for Row {
        body,
        sidecar,
        needed,
    } in [
        Row {
            body: swap,
            sidecar: other("key = \"k\"") + &function("swap", put),
            needed: "gives an object of a:b/i/s for one that it ends, and nothing says how that comes back",
        },
        Row {
            body: swap,
            sidecar: other(SEEN) + &function("swap", put),
            needed: "a change of a key other than the one that the object which it ends stands for",
        },
        Row {
            body: swap,
            sidecar: other(&format!("{SEEN}\nkey = \"l\"")) + &function("swap", put),
            needed: "has no parameter l",
        },
        Row {
            body: swap,
            sidecar: right.replace(
                "data = \"v\"\nwhen = \"ok\"",
                "data = \"v\"\nwhen = \"some\"",
            ),
            needed: "when = \"some\" of a result of another type",
        },
        Row {
            body: swap,
            sidecar: right.replace(KEYS, &function("[method]r.set", "effect = \"none\"")),
            needed: "a key of an object that has none",
        },
        Row {
            body: "all: func(of: s) -> list<s>;",
            sidecar: other(SEEN),
            needed: "more than one",
        },
        Row {
            body: two,
            sidecar: other(SEEN),
            needed: "objects of two kinds",
        },
        Row {
            body: "turn: func(of: s) -> r;",
            sidecar: other(SEEN),
            needed: "gives an object of a:b/i/r for one that it ends",
        },
    ] {
        let error = generated(body, &sidecar).expect_err(needed);
        assert!(error.to_string().contains(needed), "{needed}: {error}");
        assert!(!error.fix().is_empty());
    }
    // One that never gives any is told so.
    let never = function("turn", "gives_none = true");
    let model = generated("turn: func(of: s) -> r;", &(other(SEEN) + &never));
    assert!(model.is_ok(), "{model:?}");
}
