//! The small service that is simulated: values by number, each an object.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::Objects;
use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Pair, Recover, Tuple};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Put(u64, Vec<u8>),
    Append(u64, Vec<u8>),
    Get(u64),
    Delete(u64),
}

#[derive(Debug, Clone)]
pub(super) enum Entry {
    Batch(Vec<Request>),
    Recover(Recover),
    /// Who belongs to the group from here on.
    Members(Vec<Node>),
}

type Value = (Vec<u8>, Digest);

/// Key and object are the same number here.
#[derive(Debug, Default, Clone)]
pub(super) struct Store(pub(super) BTreeMap<u64, Value>, Undo);

/// What values were before changes, in the order of these, each with the last entry that had begun.
#[derive(Debug, Default, Clone)]
struct Undo {
    /// Nothing where nobody asks for it.
    at: Option<Index>,
    changes: Vec<(Index, u64, Option<Value>)>,
}

impl Store {
    /// An entry begins.
    pub(super) fn enter(&mut self, index: Index) {
        self.1.at = Some(index);
    }

    /// Nobody asks any more for what was before an entry that is earlier than this one.
    pub(super) fn forget(&mut self, first: Index) {
        self.1.changes.retain(|(at, ..)| *at >= first);
    }

    /// The state before an entry.
    pub(super) fn before(&self, index: Index) -> Self {
        let mut values = self.0.clone();
        let since = self.1.changes.iter().filter(|(at, ..)| *at >= index);
        for (_, key, old) in since.rev() {
            match old {
                Some(value) => values.insert(*key, value.clone()),
                None => values.remove(key),
            };
        }
        Self(values, Undo::default())
    }

    fn changed(&mut self, key: u64, old: Option<Value>) {
        if let Some(at) = self.1.at {
            self.1.changes.push((at, key, old));
        }
    }

    fn remove(&mut self, key: u64) -> bool {
        let old = self.0.remove(&key);
        let was = old.is_some();
        self.changed(key, old);
        was
    }

    pub(super) fn execute(&mut self, requests: &[Request]) -> (Tuple, Vec<Vec<u8>>) {
        let mut order: Vec<u64> = Vec::new();
        let mut passive: BTreeSet<u64> = BTreeSet::new();
        let mut replies = Vec::new();
        for request in requests {
            let (Request::Put(key, _)
            | Request::Append(key, _)
            | Request::Get(key)
            | Request::Delete(key)) = request;
            if !order.contains(key) {
                order.push(*key);
            }
            if !self.intact(ObjectId((*key).into())) {
                passive.insert(*key);
            }
            let reply = match request {
                Request::Put(key, value) => {
                    self.put(*key, value.clone());
                    b"stored".to_vec()
                }
                Request::Append(key, value) => match self.0.get(key) {
                    Some((old, _)) => {
                        let joined = [&old[..old.len().min(64)], value].concat();
                        let marked = !self.intact(ObjectId((*key).into()));
                        self.put(*key, joined);
                        // What was made of bytes that had changed at rest never fits a digest, until a vote gives it one.
                        if marked && let Some((_, digest)) = self.0.get_mut(key) {
                            digest.0 = !digest.0;
                        }
                        b"stored".to_vec()
                    }
                    None => b"not stored".to_vec(),
                },
                Request::Get(key) => self
                    .0
                    .get(key)
                    .map_or_else(|| b"miss".to_vec(), |(value, _)| value.clone()),
                Request::Delete(key) => match self.remove(*key) {
                    true => b"deleted".to_vec(),
                    false => b"not found".to_vec(),
                },
            };
            replies.push(reply);
        }
        let objects = order
            .iter()
            .map(|key| Pair {
                object: ObjectId((*key).into()),
                digest: Digest::of_packed(self.0.get(key).map(|(value, _)| value.as_slice())),
                passive: passive.contains(key),
                doubt: false,
                unproven: false,
            })
            .collect();
        let tuple = Tuple {
            objects,
            replies: replies.iter().map(|reply| Digest::of(reply)).collect(),
        };
        (tuple, replies)
    }

    /// The state as another process takes it. A value that does not fit its digest is known there as one that nothing is known of: it must not
    /// become two against one.
    pub(super) fn handed_on(&self) -> Self {
        let values = self.0.iter().map(|(key, (value, digest))| {
            let intact = Digest::of(value) == *digest;
            let value = if intact { value.clone() } else { Vec::new() };
            (*key, (value, *digest))
        });
        Self(values.collect(), Undo::default())
    }

    fn put(&mut self, key: u64, value: Vec<u8>) {
        let digest = Digest::of(&value);
        let old = self.0.insert(key, (value, digest));
        self.changed(key, old);
    }
}

fn key_of(object: ObjectId) -> u64 {
    u64::try_from(object.0).unwrap_or(u64::MAX)
}

impl Objects for Store {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.0.get(&key_of(object)).map(|(value, _)| value.clone())
    }

    fn intact(&self, object: ObjectId) -> bool {
        self.0
            .get(&key_of(object))
            .is_none_or(|(value, digest)| Digest::of(value) == *digest)
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        match packed {
            Some(value) => self.put(key_of(object), value.to_vec()),
            None => {
                self.remove(key_of(object));
            }
        }
    }
}
