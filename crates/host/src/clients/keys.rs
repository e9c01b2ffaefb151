//! A client of the key-value store: it knows what each key of each bucket holds.

use std::collections::BTreeMap;

use steadfast_restart::{CallError, Edge, Handle, Value};

use super::counts::{Counts, functions};
use crate::told::Told;

const KEYS: [&str; 5] = [
    "wasi:keyvalue/store@0.2.0-draft2#open",
    "wasi:keyvalue/store@0.2.0-draft2#[method]bucket.set",
    "wasi:keyvalue/store@0.2.0-draft2#[method]bucket.get",
    "wasi:keyvalue/store@0.2.0-draft2#[method]bucket.delete",
    "wasi:keyvalue/atomics@0.2.0-draft2#increment",
];

/// Of a bucket.
const NAMES: u64 = 4;
const COUNT: &str = "count";

struct Bucket {
    handle: Handle,
    keys: BTreeMap<String, Vec<u8>>,
    count: i64,
    /// Whether it is the handle that was opened at first.
    first: bool,
}

/// Sets, gets, deletes and counts.
pub(crate) struct Keys<'a> {
    edge: &'a Edge,
    functions: [usize; 5],
    buckets: Vec<Bucket>,
    turn: u64,
    pub(super) counts: Counts,
}

fn ok(inner: Option<Value>) -> Option<Value> {
    Some(Value::Result(Ok(inner.map(Box::new))))
}

fn found(value: Option<&Vec<u8>>) -> Option<Value> {
    let value = value.map(|bytes| Box::new(Value::Bytes(bytes.clone())));
    ok(Some(Value::Option(value)))
}

impl<'a> Keys<'a> {
    pub(super) fn new(edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        let mut client = Self {
            edge,
            functions: functions(edge, KEYS)?,
            buckets: Vec::new(),
            turn: 0,
            counts: Counts::default(),
        };
        for place in 0..handles {
            let bucket = client.open(place, true);
            let bucket = bucket.ok_or_else(|| anyhow::anyhow!("the component gave no bucket"))?;
            client.buckets.push(bucket);
        }
        Ok(client)
    }

    fn open(&self, place: usize, first: bool) -> Option<Bucket> {
        let name = Value::String(format!("bucket-{place}"));
        let opened = self.edge.call(self.functions[0], &[name]).ok().flatten();
        Some(Bucket {
            handle: opened?.handle()?,
            keys: BTreeMap::new(),
            count: 0,
            first,
        })
    }

    /// Calls, and notes whether the answer is right; false where there was none. What is lost is opened again.
    fn ask(
        &mut self,
        place: usize,
        function: usize,
        args: &[Value],
        right: &Option<Value>,
    ) -> bool {
        self.counts.calls += 1;
        match self.edge.call(self.functions[function], args) {
            Ok(value) => {
                self.counts.wrong += u64::from(value != *right);
                true
            }
            Err(CallError::Stale { .. }) => {
                self.counts.lost += 1;
                if let Some(bucket) = self.open(place, false) {
                    self.buckets[place] = bucket;
                }
                false
            }
            Err(_) => false,
        }
    }

    /// A key is set or deleted, another one is asked for, and one counts.
    pub(super) fn round(&mut self) {
        self.turn += 1;
        for place in 0..self.buckets.len() {
            let turn = self.turn + place as u64;
            let key = format!("key-{}", turn % NAMES);
            let handle = self.buckets[place].handle.into();
            let named = [handle, key.as_str().into()];
            if turn.is_multiple_of(7) {
                if self.ask(place, 3, &named, &ok(None)) {
                    self.buckets[place].keys.remove(&key);
                }
            } else {
                let value = turn.to_le_bytes().to_vec();
                let [handle, name] = named;
                let args = [handle, name, Value::Bytes(value.clone())];
                if self.ask(place, 1, &args, &ok(None)) {
                    self.buckets[place].keys.insert(key, value);
                }
            }
            let other = format!("key-{}", (turn + 1) % NAMES);
            let bucket = &self.buckets[place];
            let right = found(bucket.keys.get(&other));
            let args = [bucket.handle.into(), other.as_str().into()];
            self.ask(place, 2, &args, &right);
            let bucket = &self.buckets[place];
            let args = [bucket.handle.into(), COUNT.into(), Value::S64(1)];
            let count = bucket.count + 1;
            if self.ask(place, 4, &args, &ok(Some(Value::S64(count)))) {
                self.buckets[place].count = count;
            }
        }
    }

    /// Buckets whose handle was never lost and whose keys are as they must be.
    pub(super) fn kept(&self) -> usize {
        let right = |bucket: &&Bucket| {
            bucket.first
                && (0..NAMES).all(|n| {
                    let key = format!("key-{n}");
                    let args = [bucket.handle.into(), key.as_str().into()];
                    let answer = self.edge.call(self.functions[2], &args);
                    answer == Ok(found(bucket.keys.get(&key)))
                })
        };
        self.buckets.iter().filter(right).count()
    }
}
