//! wasi:keyvalue: keys outlive a crash at every call boundary, come back one by one, and are read back against what is kept.

use std::collections::BTreeMap;

use steadfast_restart::{Cause, Edge, Handle, Model, ModelError, Policy, Value};

use crate::fixture;

fn path(name: &str) -> String {
    format!("wasi:keyvalue/store@0.2.0-draft2#{name}")
}

const INCREMENT: &str = "wasi:keyvalue/atomics@0.2.0-draft2#increment";

/// What `ok` holds.
fn ok(value: Option<Value>) -> Option<Value> {
    match value {
        Some(Value::Result(Ok(inner))) => inner.map(|inner| *inner),
        other => panic!("ok is needed, found {other:?}"),
    }
}

fn refused(value: Option<Value>) -> String {
    match value {
        Some(Value::Result(Err(Some(error)))) => match *error {
            Value::Variant(case, Some(why)) if case == "other" => match *why {
                Value::String(why) => why,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        },
        other => panic!("err is needed, found {other:?}"),
    }
}

/// A bucket, and what it must hold.
struct Bucket<'a> {
    edge: &'a Edge,
    handle: Handle,
    kept: BTreeMap<String, Vec<u8>>,
}

impl<'a> Bucket<'a> {
    fn open(edge: &'a Edge, name: &str) -> Self {
        let opened = edge.invoke(&path("open"), &[name.into()]).expect("opened");
        Self {
            edge,
            handle: opened.and_then(|v| v.handle()).expect("a bucket"),
            kept: BTreeMap::new(),
        }
    }

    fn call(&self, name: &str, more: &[Value]) -> Option<Value> {
        let args = [&[self.handle.into()], more].concat();
        let answer = self
            .edge
            .invoke(&path(&format!("[method]bucket.{name}")), &args);
        answer.expect("an answer")
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        assert_eq!(ok(self.call("set", &[key.into(), value.into()])), None);
        self.kept.insert(key.into(), value.to_vec());
    }

    fn delete(&mut self, key: &str) {
        assert_eq!(ok(self.call("delete", &[key.into()])), None);
        self.kept.remove(key);
    }

    fn increment(&mut self, key: &str, delta: i64) {
        let args = [self.handle.into(), key.into(), Value::S64(delta)];
        let found = ok(self.edge.invoke(INCREMENT, &args).expect("an answer"));
        let before = self
            .kept
            .get(key)
            .map_or("0".into(), |v| String::from_utf8_lossy(v));
        let right = before.parse::<i64>().expect("a number") + delta;
        assert_eq!(found, Some(Value::S64(right)));
        self.kept.insert(key.into(), right.to_string().into_bytes());
    }

    fn look(&self, key: &str) {
        let bytes = |bytes: &Vec<u8>| match bytes.is_empty() {
            // What an empty list is of cannot be told.
            true => Value::List(Vec::new()),
            false => Value::Bytes(bytes.clone()),
        };
        let kept = self.kept.get(key);
        let right = Value::Option(kept.map(|value| Box::new(bytes(value))));
        assert_eq!(ok(self.call("get", &[key.into()])), Some(right), "{key}");
        let there = ok(self.call("exists", &[key.into()]));
        assert_eq!(there, Some(Value::Bool(kept.is_some())), "{key}");
    }

    /// All keys, page by page.
    fn keys(&self) -> Vec<String> {
        let mut keys = Vec::new();
        let mut cursor = Value::Option(None);
        loop {
            let Some(Value::Record(fields)) = ok(self.call("list-keys", &[cursor])) else {
                panic!("a record is needed");
            };
            let [(_, Value::List(page)), (_, Value::Option(next))] = &fields[..] else {
                panic!("{fields:?}");
            };
            keys.extend(page.iter().map(|key| match key {
                Value::String(key) => key.clone(),
                other => panic!("{other:?}"),
            }));
            match next {
                None => return keys,
                Some(next) => cursor = Value::Option(Some(next.clone())),
            }
        }
    }

    fn look_at_all(&self) {
        let right: Vec<_> = self.kept.keys().cloned().collect();
        assert_eq!(self.keys(), right);
        for key in &right {
            self.look(key);
        }
    }
}

#[test]
fn keys_outlive_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        for crash in 0..11 {
            let host = fixture::host("keyvalue", policy);
            let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
            let mut step = fixture::crash_before(crash, &edge);
            step();
            let mut a = Bucket::open(&edge, "a");
            step();
            let mut b = Bucket::open(&edge, "b");
            step();
            a.set("x", b"one");
            step();
            a.set("", b"");
            step();
            b.set("x", b"two");
            step();
            a.increment("n", 41);
            step();
            a.increment("n", -50);
            step();
            a.delete("x");
            step();
            a.look("x");
            b.look("x");
            step();
            a.look_at_all();
            step();
            // A bucket outlives its handles.
            edge.discard(b.handle).expect("live");
            b.handle = Bucket::open(&edge, "b").handle;
            b.look_at_all();
        }
    }
}

#[test]
fn random_calls_agree_with_an_oracle_while_the_component_is_reset() {
    for (seed, policy) in (1..).zip(fixture::policies()) {
        let host = fixture::host("keyvalue", policy);
        let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
        let mut bucket = Bucket::open(&edge, "a");
        let mut state: u64 = seed;
        for turn in 0..400_u64 {
            // Marsaglia's xorshift.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let key = format!("key-{}", state >> 8 & 15);
            if state >> 16 & 7 == 0 {
                edge.reset().expect("it comes back");
            }
            match state & 7 {
                0..3 => bucket.set(&key, turn.to_string().as_bytes()),
                3 => bucket.delete(&key),
                4 => bucket.increment(&key, 200 - turn.cast_signed()),
                5 => assert_eq!(bucket.keys().len(), bucket.kept.len()),
                _ => bucket.look(&key),
            }
        }
        bucket.look_at_all();
    }
}

#[test]
fn a_key_comes_back_alone_and_a_list_brings_all_of_them() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let mut bucket = Bucket::open(&edge, "a");
    for n in 0..600 {
        bucket.set(&format!("{n:03}"), b"value");
    }
    edge.reset().expect("it comes back");
    let rebuilt = || edge.stats().expect("stats").rebuilt;
    bucket.look("007");
    assert_eq!(rebuilt(), 2, "the bucket and one key");
    bucket.set("008", b"new");
    bucket.look("none");
    assert_eq!(rebuilt(), 3, "the key that was set over");
    assert_eq!(bucket.keys().len(), 600);
    assert_eq!(rebuilt(), 601);
    bucket.look_at_all();
    assert_eq!(rebuilt(), 601);
}

#[test]
fn what_is_refused_changes_nothing() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let mut bucket = Bucket::open(&edge, "a");
    bucket.set("text", b"12 apples");
    bucket.set("most", i64::MAX.to_string().as_bytes());
    bucket.set("least", i64::MIN.to_string().as_bytes());
    bucket.set("minus", b"-");
    let add = |key: &str, delta: i64| {
        let args = [bucket.handle.into(), key.into(), Value::S64(delta)];
        refused(edge.invoke(INCREMENT, &args).expect("an answer"))
    };
    assert_eq!(add("text", 1), "not a number");
    assert_eq!(add("minus", 1), "not a number");
    assert_eq!(add("most", 1), "too large");
    assert_eq!(add("least", -1), "too large");
    let long = "k".repeat(1025);
    assert_eq!(add(&long, 1), "too long");
    let value: Value = b"1".as_slice().into();
    let set = bucket.call("set", &[long.as_str().into(), value]);
    assert_eq!(refused(set), "too long");
    edge.reset().expect("it comes back");
    bucket.look_at_all();
    assert_eq!(edge.stats().expect("stats").resets_total(), 1);
}

fn pairs(pairs: &[(&str, &[u8])]) -> Value {
    let pair = |(key, value): &(&str, &[u8])| Value::Tuple(vec![(*key).into(), (*value).into()]);
    Value::List(pairs.iter().map(pair).collect())
}

impl Bucket<'_> {
    fn batch(&self, name: &str, list: Value) -> Option<Value> {
        let path = format!("wasi:keyvalue/batch@0.2.0-draft2#{name}");
        self.edge
            .invoke(&path, &[self.handle.into(), list])
            .expect("an answer")
    }

    fn set_many(&mut self, new: &[(&str, &[u8])]) {
        assert_eq!(ok(self.batch("set-many", pairs(new))), None);
        for (key, value) in new {
            self.kept.insert((*key).into(), value.to_vec());
        }
    }

    fn delete_many(&mut self, keys: &[&str]) {
        let list = Value::List(keys.iter().map(|key| (*key).into()).collect());
        assert_eq!(ok(self.batch("delete-many", list)), None);
        keys.iter().for_each(|key| {
            self.kept.remove(*key);
        });
    }

    fn look_at_many(&self, keys: &[&str]) {
        let list = Value::List(keys.iter().map(|key| (*key).into()).collect());
        let pair = |key: &&str| {
            let value = self.kept.get(*key)?;
            let value = match value.is_empty() {
                true => Value::List(Vec::new()),
                false => Value::Bytes(value.clone()),
            };
            Some(Box::new(Value::Tuple(vec![(*key).into(), value])))
        };
        let right = keys.iter().map(|key| Value::Option(pair(key))).collect();
        assert_eq!(ok(self.batch("get-many", list)), Some(Value::List(right)));
    }
}

#[test]
fn batches_outlive_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        // Before each call, and at the return of each.
        for crash in 0..14 {
            let host = fixture::host("keyvalue", policy);
            let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
            let mut a = Bucket::open(&edge, "a");
            let mut step = fixture::crash_at(crash, &edge);
            step();
            a.set_many(&[("x", b"one"), ("y", b"two"), ("", b""), ("z", b"3")]);
            step();
            // Of two values for one key the last one counts.
            a.set_many(&[("x", b"first"), ("x", b"last"), ("new", b"")]);
            step();
            a.look_at_many(&["x", "none", "", "x"]);
            step();
            a.delete_many(&["y", "none", "y"]);
            step();
            a.set_many(&[]);
            a.look_at_many(&[]);
            step();
            a.increment("z", 4);
            step();
            a.look_at_many(&["y", "z", "new"]);
            a.look_at_all();
        }
    }
}

#[test]
fn a_batch_brings_its_keys_back_and_no_other_ones() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let mut bucket = Bucket::open(&edge, "a");
    for n in 0..100 {
        bucket.set(&format!("{n:03}"), b"value");
    }
    edge.reset().expect("it comes back");
    let rebuilt = || edge.stats().expect("stats").rebuilt;
    bucket.look_at_many(&["007", "009", "none"]);
    assert_eq!(rebuilt(), 3, "the bucket and two keys");
    bucket.set_many(&[("007", b"new"), ("010", b"new")]);
    assert_eq!(rebuilt(), 4);
    bucket.look_at_all();
    assert_eq!(rebuilt(), 101);
}

#[test]
fn a_batch_that_is_refused_changes_nothing() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let mut bucket = Bucket::open(&edge, "a");
    bucket.set("x", b"old");
    let long = "k".repeat(1025);
    let set = bucket.batch("set-many", pairs(&[("x", b"new"), (&long, b"")]));
    assert_eq!(refused(set), "too long");
    bucket.look_at_all();
    edge.reset().expect("it comes back");
    bucket.look_at_all();
    assert_eq!(edge.stats().expect("stats").resets_total(), 1);
}

#[test]
fn a_flipped_value_of_a_batch_is_read_back_and_right_ones_are_not_suspected() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let mut bucket = Bucket::open(&edge, "a");
    bucket.set_many(&[("key", b"a value that is nowhere else"), ("", b"")]);
    bucket.look_at_many(&["", "key", "none"]);
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
    let memory = &edge.memories().expect("a copy")[0];
    let at = memory
        .windows(7)
        .position(|w| w == b"nowhere")
        .expect("there");
    assert_eq!(edge.flip(0, at, 2), Ok(true));
    bucket.look_at_many(&["", "key", "none"]);
    let resets = edge.stats().expect("stats").resets;
    assert_eq!(resets.get(&Cause::Wrong), Some(&1), "{resets:?}");
}

/// One body alone finds a value that changed, since the host knows it.
#[test]
fn a_flipped_value_is_read_back_and_a_right_one_is_not_suspected() {
    let host = fixture::host("keyvalue", fixture::policies()[0]);
    let edge = host.edge("test", "keyvalue", &[]).expect("an edge");
    let mut bucket = Bucket::open(&edge, "a");
    bucket.set("key", b"a value that is nowhere else");
    bucket.look("key");
    assert_eq!(edge.stats().expect("stats").resets_total(), 0);
    let memory = &edge.memories().expect("a copy")[0];
    let at = memory
        .windows(7)
        .position(|w| w == b"nowhere")
        .expect("there");
    assert_eq!(edge.flip(0, at, 2), Ok(true));
    bucket.look("key");
    let resets = edge.stats().expect("stats").resets;
    assert_eq!(resets.get(&Cause::Wrong), Some(&1), "{resets:?}");
}

#[test]
fn a_sidecar_that_would_lose_keys_is_refused() {
    let wit = fixture::text("keyvalue", "wit");
    let right = fixture::text("keyvalue", "recover.toml");
    assert!(Model::generate(&wit, &right).is_ok());
    struct Change {
        from: &'static str,
        to: &'static str,
        needed: &'static str,
    }
    for Change { from, to, needed } in [
        Change {
            from: "data = \"[method]bucket.set\"",
            to: "",
            needed: "keys of a resource without data",
        },
        Change {
            from: "effect = \"put\"\nkey = \"key\"\ndata",
            to: "effect = \"put\"\ndata",
            needed: "a change of a key without key",
        },
        Change {
            from: "source = \"result\"",
            to: "",
            needed: "effect = \"put\" without data",
        },
        Change {
            from: "effect = \"delete\"\nkey = \"key\"",
            to: "effect = \"delete\"\nkey = \"other\"",
            needed: "has no parameter other",
        },
        Change {
            from: "keys = \"keys\"                 # each",
            to: "keys = \"bucket\"  # each",
            needed: "bucket is no list<string> or list<tuple<string, list<u8>>>",
        },
        Change {
            from: "keys = \"keys\"\nwhen",
            to: "keys = \"keys\"\nkey = \"keys\"\nwhen",
            needed: "key beside keys",
        },
        Change {
            from: "data = \"key-values\"",
            to: "data = \"bucket\"",
            needed: "bucket is no list<u8>",
        },
    ] {
        let text = right.replace(from, to);
        assert_ne!(text, right, "{from}");
        let error: ModelError = Model::generate(&wit, &text).expect_err(needed);
        assert!(error.to_string().contains(needed), "{needed}: {error}");
    }
}

#[test]
fn an_empty_value_that_a_component_gives_is_kept() {
    let host = fixture::host("keyvalue", Policy::default());
    let edge = host.edge("client", "keyvalue", &[]).expect("an edge");
    let bucket = ok(edge.invoke(&path("open"), &["b".into()]).expect("open"));
    let bucket = bucket.expect("a bucket");
    // A list without items as it comes out of another component: it has no type.
    for value in [Value::Bytes(b"old".into()), Value::List(Vec::new())] {
        let args = [bucket.clone(), "k".into(), value];
        ok(edge
            .invoke(&path("[method]bucket.set"), &args)
            .expect("set"));
    }
    edge.reset().expect("it comes back");
    let args = [bucket, "k".into()];
    let found = ok(edge
        .invoke(&path("[method]bucket.get"), &args)
        .expect("get"));
    let found = format!("{found:?}");
    assert_eq!(found, "Some(Option(Some(List([]))))");
    assert_eq!(edge.stats().expect("idle").resets.len(), 1, "no alarm");
}
