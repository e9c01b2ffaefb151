//! What the state was before each entry that is open, so that one can be run again beside it.
//!
//! An item that gives way is kept here instead of being dropped: nothing is copied. What an entry changes of head, weight and sessions is a
//! few numbers, kept as they were when it began.
//!
//! Invariants
//!  1. Changes are in the order in which they were made, each with the last entry that had begun: a repair belongs to the entry before it.
//!  2. What is kept has a limit. Where it is reached the earliest entries cannot be run again, and nothing else changes.
//!
//! Not covered: an item that changes at rest. The digest that was kept with it shows that, here as there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use steadfast_crosscheck::Digest;

use super::item::Item;
use super::weight::Weight;
use super::{Head, Session, Store};
use crate::request::Request;

/// Bytes of items that are kept. Votes end within milliseconds, or where a replica is silent within two seconds.
const BYTES_MAX: u64 = 64 << 20;

/// What an entry found when it began.
#[derive(Debug, Clone)]
struct Before {
    index: u64,
    head: Head,
    head_digest: Digest,
    weight: Weight,
    /// Of its origin; nothing within where there was none.
    session: Option<(u64, Option<Session>)>,
}

/// What gave way.
#[derive(Debug, Clone)]
struct Change {
    index: u64,
    id: u128,
    old: Option<Item>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Undo {
    /// The last entry that has begun; nothing where nobody will ask.
    at: Option<u64>,
    entries: VecDeque<Before>,
    changes: VecDeque<Change>,
    bytes: u64,
}

impl Undo {
    /// The same, for shards that are elsewhere for a while.
    pub(super) fn part(&self) -> Self {
        let at = self.at;
        Self {
            at,
            ..Self::default()
        }
    }

    /// They come back.
    pub(super) fn join(&mut self, part: Self) {
        self.changes.extend(part.changes);
        self.bytes += part.bytes;
        self.limit();
    }

    /// An item has come, or gone, where this one was.
    pub(super) fn keep(&mut self, id: u128, old: Option<Item>) {
        let Some(index) = self.at else { return };
        self.bytes += old.as_ref().map_or(0, Item::weight);
        self.changes.push_back(Change { index, id, old });
        self.limit();
    }

    /// The session of the entry that has begun, as it was.
    pub(super) fn keep_session(&mut self, origin: u64, old: Option<Session>) {
        if let Some(entry) = self.entries.back_mut() {
            entry.session.get_or_insert((origin, old));
        }
    }

    fn limit(&mut self) {
        while self.bytes > BYTES_MAX {
            let Some(first) = self.changes.front().map(|change| change.index) else {
                return;
            };
            self.forget(first + 1);
        }
    }

    /// Nobody asks for entries before this one any more.
    fn forget(&mut self, first: u64) {
        while self.entries.front().is_some_and(|it| it.index < first) {
            self.entries.pop_front();
        }
        while let Some(change) = self.changes.pop_front_if(|it| it.index < first) {
            self.bytes -= change.old.as_ref().map_or(0, Item::weight);
        }
    }
}

impl Store {
    /// An entry begins that may have to be run again.
    pub(crate) fn begin(&mut self, index: u64) {
        self.undo.at = Some(index);
        self.undo.entries.push_back(Before {
            index,
            head: self.head,
            head_digest: self.head_digest,
            weight: self.weight,
            session: None,
        });
    }

    /// Nobody asks any more for what was before an entry that is earlier than this one.
    pub(crate) fn forget(&mut self, first: u64) {
        self.undo.forget(first);
    }

    /// The state before an entry, as far as these requests touch it. Nothing where that is not known any more, or where they may touch
    /// any item.
    pub(crate) fn before(&self, index: u64, requests: &[Request]) -> Option<Self> {
        let entry = self.undo.entries.iter().find(|it| it.index == index)?;
        let mut shards = BTreeSet::new();
        for request in requests {
            shards.extend(Self::shards_of(request)?);
        }
        let mut store = Self::new(self.guard, self.bytes_max, self.evicts);
        for shard in &shards {
            store.shards[*shard].clone_from(&self.shards[*shard]);
        }
        let since = self.undo.changes.iter().rev();
        for change in since.take_while(|it| it.index >= index) {
            let shard = super::shard_of(steadfast_crosscheck::ObjectId(change.id));
            if !shards.contains(&shard) {
                continue;
            }
            match &change.old {
                Some(item) => store.shards[shard].insert(change.id, item.clone()),
                None => store.shards[shard].remove(&change.id),
            };
        }
        store.head = entry.head;
        store.head_digest = entry.head_digest;
        store.weight = entry.weight;
        store.sessions = self.sessions_before(entry);
        // Items of other shards are in no list here, and none has to go.
        store.moved = Some(Vec::new());
        (!store.may_evict(requests)).then_some(store)
    }

    fn sessions_before(&self, entry: &Before) -> BTreeMap<u64, Session> {
        let mut sessions = self.sessions.clone();
        match entry.session {
            Some((origin, Some(session))) => drop(sessions.insert(origin, session)),
            Some((origin, None)) => drop(sessions.remove(&origin)),
            None => {}
        }
        sessions
    }
}
