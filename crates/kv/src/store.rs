//! The replicated state: items in shards, and how requests change them. A function of the log alone.
//!
//! An item is one buffer of bytes: header, key, value. What is stored is what is digested, and what a repair sends, so the three cannot
//! disagree. Its digest is kept beside it; where both differ, the bytes changed while nobody used them.
//!
//! Invariants
//!  1. No clock, no randomness, no address, no allocator state takes part: time is the leader's, out of the log.
//!  2. Each access puts the object into the entry's delta, with a digest computed from its bytes at the end of the entry.
//!  3. Bytes that are no item any more (a header that was hit) read as no item; nothing here panics on them.
//!  4. Nothing gives bytes that do not fit their digest a digest that they fit: neither a change nor a snapshot. Only a vote, or a value
//!     that owes nothing to them, does.
//!
//! Which items are there says which one goes when room is needed: the one that was stored longest ago, by its cas number, which the log gave
//! it. A read changes nothing, so it keeps nothing. The list of them is no state: it is made from the items.
//!
//! Not covered: statistics and connections. They answer for one replica and are not voted on.

mod execute;
mod head;
mod item;
mod reads;
mod reply;
mod state;
mod strike;
#[cfg(test)]
mod tests;
mod undo;
mod weight;
mod workers;

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use steadfast_crosscheck::{Digest, ObjectId, Objects, Pair};

use self::item::{ENTRY, HEADER, Item};
use self::undo::Undo;
use self::weight::Weight;
use crate::once;
use crate::request::{Request, VALUE_MAX, Verb};

pub(crate) use self::head::{HEAD_LENGTH, Head, chained, place_in_head};
pub(crate) use self::item::{AtRest, Place, has_moved, key_in, place};
pub(crate) use self::workers::{How, Workers};

/// Shards; independent of how many workers there are.
pub(crate) const SHARDS: usize = 256;

/// Object numbers are digests already.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
}

type Shard = HashMap<u128, Item, BuildHasherDefault<AsIs>>;

/// The whole state of a replica that is voted on.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    shards: Vec<Shard>,
    head: Head,
    /// Its digest when the last entry was over.
    head_digest: Digest,
    /// Whether it fitted its digest when the entry began that is being executed.
    head_fitted: bool,
    /// Last submission of each origin that was executed: what makes a repeated one harmless.
    sessions: std::collections::BTreeMap<u64, Session>,
    /// Compare stored digests at each access.
    guard: bool,
    /// Of all items.
    weight: Weight,
    /// Bytes that all items may have.
    bytes_max: u64,
    /// Where there is no room the oldest items go; otherwise the new one is refused.
    evicts: bool,
    /// Items by their cas number; those of clients' kept replies have none, and stay.
    oldest: BTreeSet<(u64, u128)>,
    /// What these shards would have in that list, where it is elsewhere: come, or gone.
    moved: Option<Vec<(bool, u64, u128)>>,
    /// Items that had to go, here.
    evictions: u64,
    /// Bytes of the replies of the entry that is being executed.
    said: usize,
    /// What was before entries that are open.
    undo: Undo,
}

/// The last submission of an origin, and the same once more, inverted: where they do not fit one of them changed at rest.
#[derive(Debug, Clone, Copy)]
struct Session {
    last: u64,
    check: u64,
}

impl Session {
    const fn new(last: u64) -> Self {
        Self { last, check: !last }
    }

    const fn fits(self) -> bool {
        self.check == !self.last
    }

    /// What did not fit before does not fit afterwards.
    const fn advance(&mut self, last: u64) {
        let fitted = self.fits();
        *self = Self::new(last);
        if !fitted {
            self.check = last;
        }
    }
}

/// Objects that an entry has touched, in the order of first access.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    touched: Vec<(ObjectId, bool)>,
    /// Those that had changed at rest, as they were found.
    pub(crate) found: Vec<(ObjectId, AtRest)>,
    seen: std::collections::HashSet<u128, BuildHasherDefault<AsIs>>,
}

impl Delta {
    /// Each once.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.touched.iter().map(|(id, _)| *id)
    }

    /// Those that fitted their digests.
    pub(crate) fn intact(&self) -> impl Iterator<Item = ObjectId> {
        let intact = self.touched.iter().filter(|(_, passive)| !passive);
        intact.map(|(id, _)| *id)
    }

    pub(crate) fn add(&mut self, id: ObjectId, passive: bool) {
        if self.seen.insert(id.0) {
            self.touched.push((id, passive));
        } else if passive && let Some((_, was)) = self.touched.iter_mut().find(|(o, _)| *o == id) {
            *was = true;
        }
    }
}

/// The object of an item.
pub(crate) fn item_id(key: &[u8]) -> ObjectId {
    ObjectId::named("item", key)
}

pub(crate) fn head_id() -> ObjectId {
    ObjectId::named("log", b"head")
}

pub(crate) fn session_id(origin: u64) -> ObjectId {
    ObjectId::named("session", &origin.to_le_bytes())
}

/// The shard of an object.
pub(crate) fn shard_of(id: ObjectId) -> usize {
    usize::try_from(id.0 >> 64 & (SHARDS as u128 - 1)).unwrap_or(0)
}

impl Store {
    pub(crate) fn new(guard: bool, bytes_max: u64, evicts: bool) -> Self {
        Self {
            shards: vec![Shard::default(); SHARDS],
            head: Head::default(),
            head_digest: Head::default().digest(),
            head_fitted: true,
            sessions: std::collections::BTreeMap::new(),
            guard,
            weight: Weight::of(0),
            bytes_max,
            evicts,
            oldest: BTreeSet::new(),
            moved: None,
            evictions: 0,
            said: 0,
            undo: Undo::default(),
        }
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }

    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// Items and their bytes.
    pub(crate) fn size(&self) -> (usize, u64) {
        let all: usize = self.shards.iter().map(Shard::len).sum();
        let slots = once::keys().filter(|key| {
            let id = item_id(key);
            self.shards[shard_of(id)].contains_key(&id.0)
        });
        (all - slots.count(), self.weight.sum)
    }

    /// The last submission of an origin that was executed.
    pub(crate) fn last(&self, origin: u64) -> u64 {
        self.sessions.get(&origin).map_or(0, |session| session.last)
    }

    /// An object that a request would read and that does not fit its digest: for a stage that does not vote. What owes nothing to the old
    /// value may go on.
    pub(crate) fn suspect(&self, request: &Request) -> Option<ObjectId> {
        let keys = match request {
            Request::Get { keys, .. } => keys.as_slice(),
            Request::Flush { .. }
            | Request::Store {
                verb: Verb::Set,
                cas: None,
                ..
            }
            | Request::Delete { cas: None, .. }
            | Request::TooLarge { .. }
            | Request::Restore { .. } => &[],
            Request::Store { key, .. }
            | Request::Delete { key, .. }
            | Request::Stale { key, .. }
            | Request::Debug { key, .. }
            | Request::Count { key, .. }
            | Request::Touch { key, .. }
            | Request::MetaGet { key, .. } => std::slice::from_ref(key),
        };
        let slot = once::of(request).map(|once| item_id(&once::key(once.client)));
        keys.iter()
            .map(|key| item_id(key))
            .chain(slot)
            .find(|id| !self.intact(*id))
    }

    fn insert(&mut self, id: ObjectId, item: Item) {
        self.weight.add(item.weight());
        let old = self.place(id, item);
        if let Some(old) = &old {
            self.weight.sub(old.weight());
        }
        self.undo.keep(id.0, old);
    }

    fn remove(&mut self, id: ObjectId) {
        if let Some(old) = self.take(id) {
            self.weight.sub(old.weight());
            self.undo.keep(id.0, Some(old));
        }
    }

    /// Puts an item into its place, and among the oldest.
    fn place(&mut self, id: ObjectId, item: Item) -> Option<Item> {
        let cas = item.cas();
        let old = self.shards[shard_of(id)].insert(id.0, item);
        if let Some(old) = old.as_ref().and_then(Item::cas) {
            self.list(false, old, id);
        }
        if let Some(cas) = cas {
            self.list(true, cas, id);
        }
        old
    }

    fn take(&mut self, id: ObjectId) -> Option<Item> {
        let old = self.shards[shard_of(id)].remove(&id.0)?;
        if let Some(cas) = old.cas() {
            self.list(false, cas, id);
        }
        Some(old)
    }

    /// An item comes to the list of the oldest, or goes.
    fn list(&mut self, is_new: bool, cas: u64, id: ObjectId) {
        match &mut self.moved {
            Some(moved) => moved.push((is_new, cas, id.0)),
            None if is_new => drop(self.oldest.insert((cas, id.0))),
            None => drop(self.oldest.remove(&(cas, id.0))),
        }
    }

    /// What all items would weigh with one of so many bytes in this place.
    fn with(&self, id: ObjectId, bytes: usize) -> u64 {
        let old = self.shards[shard_of(id)].get(&id.0).map_or(0, Item::weight);
        let new = (HEADER + bytes) as u64 + ENTRY;
        self.weight.sum.saturating_sub(old) + new
    }

    /// Whether an item of so many bytes may take this place; makes room for it where that is wanted.
    fn has_room(&mut self, id: ObjectId, bytes: usize, delta: &mut Delta) -> bool {
        let alone = (HEADER + bytes) as u64 + ENTRY;
        if self.evicts && alone <= self.bytes_max {
            while self.with(id, bytes) > self.bytes_max {
                let Some((cas, oldest)) = self.oldest.iter().find(|(_, old)| *old != id.0).copied()
                else {
                    break;
                };
                let victim = ObjectId(oldest);
                // One whose number was hit is no longer where it is listed: it goes when it is found under the one that it has.
                let is_there = self.shards[shard_of(victim)]
                    .get(&oldest)
                    .and_then(Item::cas)
                    == Some(cas);
                let passive = self.guard && !self.intact(victim);
                self.oldest.remove(&(cas, oldest));
                if passive || is_there {
                    delta.add(victim, passive);
                }
                if is_there {
                    self.remove(victim);
                    self.evictions += 1;
                }
            }
        }
        self.with(id, bytes) <= self.bytes_max
    }

    /// Whether these requests may need room that others' items have: they touch any object then.
    pub(crate) fn may_evict(&self, requests: &[Request]) -> bool {
        self.evicts && self.weight.sum + Self::adds(requests.iter()) > self.bytes_max
    }

    /// What these requests may add to the weight of all items, at most.
    fn adds<'a>(requests: impl Iterator<Item = &'a Request>) -> u64 {
        let item = |bytes: usize| (HEADER + bytes) as u64 + ENTRY;
        let new = requests.map(|request| {
            let kept = once::of(request).map_or(0, |once| {
                let shown = usize::from(matches!(request, Request::MetaGet { .. })) * VALUE_MAX;
                item(once::key(once.client).len() + once::REPLY_MAX + shown)
            });
            item(request.stores()) + kept
        });
        new.sum()
    }

    /// Keeps it known that an item was made from one that did not fit its digest.
    fn spoil(&mut self, id: ObjectId) {
        if let Some(item) = self.shards[shard_of(id)].get_mut(&id.0) {
            item.digest = Digest(!Digest::of(&item.bytes).0);
        }
    }

    /// Counts anew what all items weigh, where that was hit.
    pub(crate) fn mend_weight(&mut self) -> bool {
        let fits = self.weight.fits();
        if !fits {
            self.weight = self.counted();
        }
        !fits
    }

    fn counted(&self) -> Weight {
        let items = self.shards.iter().flatten();
        Weight::of(items.map(|(_, item)| item.weight()).sum())
    }

    /// An entry begins: where the log is now.
    pub(crate) fn enter(&mut self, chain: u128, time_ms: u64, delta: &mut Delta) {
        self.head_fitted = self.head_fits();
        self.said = 0;
        self.head.chain = chain;
        self.head.now_ms = self.head.now_ms.max(time_ms);
        if self.head.flush_at_ms != 0 && self.head.now_ms >= self.head.flush_at_ms {
            self.head.flushed = self.head.cas;
            self.head.flush_at_ms = 0;
        }
        delta.add(head_id(), self.guard && !self.head_fitted);
    }

    /// The entry is over.
    pub(crate) fn leave(&mut self) {
        let digest = self.head.digest();
        self.head_digest = if self.head_fitted {
            digest
        } else {
            Digest(!digest.0)
        };
    }

    fn head_fits(&self) -> bool {
        self.head.digest() == self.head_digest
    }

    fn set_head(&mut self, head: Head) {
        self.head = head;
        self.head_digest = head.digest();
        self.head_fitted = true;
    }

    /// Whether a submission is the next of its origin: a repeated one is not, and one that comes too early waits to be repeated.
    pub(crate) fn admit(&mut self, origin: u64, sequence: u64, delta: &mut Delta) -> bool {
        self.undo
            .keep_session(origin, self.sessions.get(&origin).copied());
        let session = self.sessions.entry(origin).or_insert(Session::new(0));
        let fitted = session.fits();
        let next = steadfast_group::sequencer::is_next(session.last, sequence);
        if next {
            session.advance(sequence);
        }
        delta.add(session_id(origin), self.guard && !fitted);
        next
    }

    /// Whether the last submission of an origin is known for certain: its number has not changed at rest.
    pub(crate) fn is_certain(&self, origin: u64) -> bool {
        self.sessions
            .get(&origin)
            .is_none_or(|session| session.fits())
    }

    fn session(&self, object: ObjectId) -> Option<(u64, Session)> {
        let sessions = self
            .sessions
            .iter()
            .map(|(origin, session)| (*origin, *session));
        let mut sessions = sessions.filter(|(origin, _)| session_id(*origin) == object);
        sessions.next()
    }

    /// Origins that are no members any more are forgotten.
    pub(crate) fn keep_sessions(&mut self, origins: &[u64]) {
        self.sessions.retain(|origin, _| origins.contains(origin));
    }

    /// Digests of what an entry has touched, from the bytes.
    pub(crate) fn digests(&self, delta: &Delta) -> Vec<Pair> {
        delta
            .touched
            .iter()
            .map(|(id, passive)| Pair {
                object: *id,
                digest: match self.shards[shard_of(*id)].get(&id.0) {
                    Some(item) => Digest::of(&item.bytes),
                    None => Digest::of_packed(self.pack(*id).as_deref()),
                },
                passive: *passive,
                doubt: false,
                unproven: false,
            })
            .collect()
    }

    /// Everything in these shards, in the order of the object numbers: what a scrub compares. The sessions go with the first; the head is part
    /// of every entry.
    pub(crate) fn scrub(&mut self, shards: std::ops::Range<usize>, delta: &mut Delta) -> usize {
        let end = shards.end;
        if shards.start == 0 {
            for (origin, session) in &self.sessions {
                delta.add(session_id(*origin), self.guard && !session.fits());
            }
        }
        let mut ids: Vec<u128> = self.shards[shards]
            .iter()
            .flat_map(|shard| shard.keys().copied())
            .collect();
        ids.sort_unstable();
        for id in &ids {
            delta.add(ObjectId(*id), !self.intact(ObjectId(*id)));
        }
        if end == SHARDS {
            // Every item is being compared: one that was lost, and is repaired, was counted twice.
            self.weight = self.counted();
        }
        ids.len()
    }
}

impl Objects for Store {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        if let Some(item) = self.shards[shard_of(object)].get(&object.0) {
            return Some(item.bytes.clone());
        }
        if object == head_id() {
            return Some(self.head.pack());
        }
        let (origin, Session { last, .. }) = self.session(object)?;
        let mut bytes = b"session".to_vec();
        bytes.extend_from_slice(&origin.to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
        Some(bytes)
    }

    fn intact(&self, object: ObjectId) -> bool {
        if object == head_id() {
            return self.head_fits();
        }
        if let Some((_, session)) = self.session(object) {
            return session.fits();
        }
        self.shards[shard_of(object)]
            .get(&object.0)
            .is_none_or(Item::intact)
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        let Some(bytes) = packed else {
            self.remove(object);
            self.sessions
                .retain(|origin, _| session_id(*origin) != object);
            return;
        };
        if object == head_id() {
            if let Some(head) = Head::unpack(bytes) {
                self.set_head(head);
            }
        } else if let Some(rest) = bytes.strip_prefix(b"session")
            && let Some((origin, last)) = rest.split_first_chunk::<8>()
            && session_id(u64::from_le_bytes(*origin)) == object
            && let Ok(last) = last.try_into()
        {
            let session = Session::new(u64::from_le_bytes(last));
            self.sessions.insert(u64::from_le_bytes(*origin), session);
        } else {
            self.insert(object, Item::packed(bytes.to_vec()));
        }
    }
}
