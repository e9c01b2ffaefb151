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
//! Not covered: statistics and connections. They answer for one replica and are not voted on.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use steadfast_crosscheck::{Digest, Index, ObjectId, Objects, Pair};

use crate::backup::Saved;
use crate::once::{self, Once, Slot, Verdict};
use crate::protocol::{Form, KEY_MAX, Request, Verb};

/// Shards; independent of how many workers there are.
pub(crate) const SHARDS: usize = 256;
/// Expiry times up to this many seconds are relative, as in memcached.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// Of one entry in the table of a shard, rounded up: a key of 16 bytes, a vector of 24, a digest of 16, at 7/8 full at most.
const ENTRY: u64 = 72;

/// flags 4, expires 8, cas 8, key length 2, value length 4.
const HEADER: usize = 26;

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

#[derive(Debug, Clone)]
struct Item {
    bytes: Vec<u8>,
    digest: Digest,
}

/// An item as read from its bytes.
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    flags: u32,
    expires: u64,
    cas: u64,
    key: &'a [u8],
    value: &'a [u8],
}

/// How a stored object is called in reports, and where in its bytes something lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) field: &'static str,
    pub(crate) byte: usize,
}

/// The whole state of a replica that is voted on.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    shards: Vec<Shard>,
    head: Head,
    /// Last submission of each origin that was executed: what makes a repeated one harmless.
    sessions: std::collections::BTreeMap<u64, u64>,
    /// Compare stored digests at each access.
    guard: bool,
    /// Bytes that all items may have.
    bytes_max: u64,
}

/// Where the log is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Digest of all entries so far.
    pub(crate) chain: u128,
    /// The leader's time, never backwards.
    pub(crate) now_ms: u64,
    /// The number of the last change: memcached's cas unique.
    pub(crate) cas: u64,
    /// Items whose last change is not above this are gone.
    pub(crate) flushed: u64,
    /// A flush that is to come, at that time.
    pub(crate) flush_at_ms: u64,
    /// Bytes of all items, as the log has made them: no allocator is asked.
    pub(crate) used: u64,
}

/// Objects that an entry has touched, in the order of first access.
#[derive(Debug, Default)]
pub(crate) struct Delta {
    touched: Vec<(ObjectId, bool)>,
    seen: std::collections::HashSet<u128, BuildHasherDefault<AsIs>>,
}

impl Delta {
    /// Each once.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ObjectId> {
        self.touched.iter().map(|(id, _)| *id)
    }

    fn add(&mut self, id: ObjectId, passive: bool) {
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

impl Item {
    fn new(flags: u32, expires: u64, cas: u64, key: &[u8], value: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADER + key.len() + value.len());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&expires.to_le_bytes());
        bytes.extend_from_slice(&cas.to_le_bytes());
        bytes.extend_from_slice(&u16::try_from(key.len()).unwrap_or(u16::MAX).to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        Self::packed(bytes)
    }

    fn packed(bytes: Vec<u8>) -> Self {
        let digest = Digest::of(&bytes);
        Self { bytes, digest }
    }

    fn view(&self) -> Option<View<'_>> {
        view(&self.bytes)
    }

    fn intact(&self) -> bool {
        Digest::of(&self.bytes) == self.digest
    }

    /// Whether an item with this header, key and value is what was voted on: they come from a reply that was made of it.
    fn is(&self, key: &[u8], value: &[u8]) -> bool {
        let header = self.bytes.get(..HEADER).unwrap_or_default();
        Digest::of(&[header, key, value].concat()) == self.digest
    }

    /// What it counts for in the limit: its bytes, and what a table needs for one entry.
    fn weight(&self) -> u64 {
        self.bytes.len() as u64 + ENTRY
    }
}

fn view(bytes: &[u8]) -> Option<View<'_>> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (flags, header) = header.split_first_chunk::<4>()?;
    let (expires, header) = header.split_first_chunk::<8>()?;
    let (cas, header) = header.split_first_chunk::<8>()?;
    let (key, header) = header.split_first_chunk::<2>()?;
    let (value, _) = header.split_first_chunk::<4>()?;
    let key_length = usize::from(u16::from_le_bytes(*key));
    let value_length = usize::try_from(u32::from_le_bytes(*value)).ok()?;
    if rest.len() != key_length.checked_add(value_length)? {
        return None;
    }
    let (key, value) = rest.split_at(key_length);
    Some(View {
        flags: u32::from_le_bytes(*flags),
        expires: u64::from_le_bytes(*expires),
        cas: u64::from_le_bytes(*cas),
        key,
        value,
    })
}

/// The key in packed bytes, for reports.
pub(crate) fn key_in(packed: &[u8]) -> Option<String> {
    view(packed).map(|view| String::from_utf8_lossy(view.key).into_owned())
}

/// What a byte of a packed item is.
pub(crate) fn place(packed: &[u8], at: usize) -> Place {
    let key_length = packed
        .get(20..22)
        .map_or(0, |b| usize::from(u16::from_le_bytes([b[0], b[1]])));
    let (field, start) = match at {
        0..4 => ("flags", 0),
        4..12 => ("expires", 4),
        12..20 => ("cas", 12),
        20..22 => ("key length", 20),
        22..HEADER => ("value length", 22),
        _ if at < HEADER + key_length => ("key", HEADER),
        _ => ("value", HEADER + key_length),
    };
    Place {
        field,
        byte: at - start,
    }
}

impl Store {
    pub(crate) fn new(guard: bool, bytes_max: u64) -> Self {
        Self {
            shards: vec![Shard::default(); SHARDS],
            head: Head::default(),
            sessions: std::collections::BTreeMap::new(),
            guard,
            bytes_max,
        }
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
        (all - slots.count(), self.head.used)
    }

    /// The last submission of an origin that was executed.
    pub(crate) fn last(&self, origin: u64) -> u64 {
        self.sessions.get(&origin).copied().unwrap_or(0)
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
            | Request::Restore { .. } => &[],
            Request::Store { key, .. }
            | Request::Delete { key, .. }
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
        self.head.used += item.weight();
        if let Some(old) = self.shards[shard_of(id)].insert(id.0, item) {
            self.head.used = self.head.used.saturating_sub(old.weight());
        }
    }

    fn remove(&mut self, id: ObjectId) {
        if let Some(old) = self.shards[shard_of(id)].remove(&id.0) {
            self.head.used = self.head.used.saturating_sub(old.weight());
        }
    }

    /// Whether an item of so many bytes may take this place.
    fn has_room(&self, id: ObjectId, bytes: usize) -> bool {
        let old = self.shards[shard_of(id)].get(&id.0).map_or(0, Item::weight);
        let new = (HEADER + bytes) as u64 + ENTRY;
        self.head.used.saturating_sub(old) + new <= self.bytes_max
    }

    /// Keeps it known that an item was made from one that did not fit its digest.
    fn spoil(&mut self, id: ObjectId) {
        if let Some(item) = self.shards[shard_of(id)].get_mut(&id.0) {
            item.digest = Digest(!Digest::of(&item.bytes).0);
        }
    }

    /// An entry begins: where the log is now.
    pub(crate) fn enter(&mut self, chain: u128, time_ms: u64, delta: &mut Delta) {
        self.head.chain = chain;
        self.head.now_ms = self.head.now_ms.max(time_ms);
        if self.head.flush_at_ms != 0 && self.head.now_ms >= self.head.flush_at_ms {
            self.head.flushed = self.head.cas;
            self.head.flush_at_ms = 0;
        }
        delta.add(head_id(), false);
    }

    /// Whether a submission is the next of its origin: a repeated one is not, and one that comes too early waits to be repeated.
    pub(crate) fn admit(&mut self, origin: u64, sequence: u64, delta: &mut Delta) -> bool {
        let last = self.sessions.entry(origin).or_insert(0);
        let next = steadfast_group::sequencer::is_next(*last, sequence);
        if next {
            *last = sequence;
        }
        delta.add(session_id(origin), false);
        next
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
            })
            .collect()
    }

    /// Everything in these shards, in the order of the object numbers: what a scrub compares.
    pub(crate) fn scrub(&self, shards: std::ops::Range<usize>, delta: &mut Delta) -> usize {
        let mut ids: Vec<u128> = self.shards[shards]
            .iter()
            .flat_map(|shard| shard.keys().copied())
            .collect();
        ids.sort_unstable();
        for id in &ids {
            delta.add(ObjectId(*id), !self.intact(ObjectId(*id)));
        }
        ids.len()
    }

    /// Objects that a read looks at.
    pub(crate) fn objects_of(request: &Request) -> impl Iterator<Item = ObjectId> {
        let keys = match request {
            Request::Get { keys, .. } => keys.as_slice(),
            Request::MetaGet { key, .. } => std::slice::from_ref(key),
            _ => &[],
        };
        keys.iter().map(|key| item_id(key))
    }

    /// What a read is answered beside the log: nothing is touched, and nothing removed. With `checked` an item that is missing, over, or does
    /// not fit its digest has no answer here.
    pub(crate) fn peek(
        &self,
        request: &Request,
        head: &Head,
        now_ms: u64,
        checked: bool,
    ) -> Option<Vec<u8>> {
        let find = |key: &[u8]| {
            let id = item_id(key);
            let item = self.shards[shard_of(id)].get(&id.0)?;
            let view = item.view()?;
            let over = view.expires != 0 && view.expires <= now_ms;
            (view.key == key && !over && view.cas > head.flushed).then_some((item, view))
        };
        match request {
            Request::Get { keys, cas, .. } => {
                let mut reply = Vec::new();
                for key in keys {
                    match find(key) {
                        Some((item, view)) => {
                            let said = put_value(&view, *cas, &mut reply);
                            if checked && !item.is(&reply[said.key], &reply[said.value]) {
                                return None;
                            }
                        }
                        None if checked => return None,
                        None => {}
                    }
                }
                reply.extend_from_slice(b"END\r\n");
                Some(reply)
            }
            Request::MetaGet {
                key,
                form:
                    Form::Meta {
                        flags,
                        quiet,
                        value,
                    },
                ..
            } => {
                let found = find(key);
                if checked && !found.is_some_and(|(item, _)| item.intact()) {
                    return None;
                }
                let said = if found.is_some() {
                    Said::Found
                } else {
                    Said::Miss
                };
                let view = found.map(|(_, view)| view);
                let reply = meta_reply(flags, *quiet, *value, said, key, view, now_ms);
                // As above: what the reply has for a value is compared after it was put there.
                let right = found.is_none_or(|(item, _)| {
                    let end = reply.len().saturating_sub(2);
                    let start = end.saturating_sub(item.view().map_or(0, |v| v.value.len()));
                    !*value || item.is(key, reply.get(start..end).unwrap_or_default())
                });
                (!checked || right).then_some(reply)
            }
            _ => None,
        }
    }

    /// Shards that a request touches; nothing for all of them.
    pub(crate) fn shards_of(request: &Request) -> Option<Vec<usize>> {
        let slot = once::of(request).map(|once| shard_of(item_id(&once::key(once.client))));
        let mut shards: Vec<usize> = match request {
            Request::Get { keys, .. } => keys.iter().map(|key| shard_of(item_id(key))).collect(),
            Request::Store { key, .. }
            | Request::Delete { key, .. }
            | Request::Count { key, .. }
            | Request::Touch { key, .. }
            | Request::MetaGet { key, .. } => vec![shard_of(item_id(key))],
            Request::Flush { .. } | Request::Restore { .. } => return None,
        };
        shards.extend(slot);
        Some(shards)
    }

    /// The item under a key, if there is one that is not over. Each look at it is an access.
    fn find(&mut self, key: &[u8], delta: &mut Delta) -> (ObjectId, Option<&Item>) {
        let id = item_id(key);
        let mut passive = false;
        let mut live = false;
        if let Some(item) = self.shards[shard_of(id)].get(&id.0) {
            passive = self.guard && !item.intact();
            live = item.view().is_some_and(|view| {
                view.key == key
                    && !(view.expires != 0 && view.expires <= self.head.now_ms)
                    && view.cas > self.head.flushed
            });
            // What does not fit its digest stays: a recovery asks who has found an own object changed.
            if !live && !passive {
                self.remove(id);
            }
        }
        delta.add(id, passive);
        let found = self.shards[shard_of(id)].get(&id.0);
        (id, found.filter(|_| live))
    }

    fn put(&mut self, id: ObjectId, flags: u32, expires: u64, key: &[u8], value: &[u8]) {
        self.head.cas += 1;
        let cas = self.head.cas;
        self.insert(id, Item::new(flags, expires, cas, key, value));
    }

    /// Whether what is made from this item has to be marked.
    fn is_spoilt(&self, id: ObjectId) -> bool {
        self.guard && !self.intact(id)
    }

    /// memcached's idea of an expiry time, as the leader's milliseconds. 0 is never, and what is over is 1.
    fn expiry(&self, seconds: i64) -> u64 {
        match seconds {
            0 => 0,
            ..0 => 1,
            1..=RELATIVE_MAX => self.head.now_ms + seconds.unsigned_abs() * 1000,
            _ => seconds.unsigned_abs() * 1000,
        }
    }

    /// Executes one request; its reply. One that has a number is executed once.
    pub(crate) fn execute(&mut self, request: &Request, delta: &mut Delta) -> Vec<u8> {
        match once::of(request) {
            Some(once) => self.execute_once(once, request, delta),
            None => self.carry_out(request, delta),
        }
    }

    fn execute_once(&mut self, once: Once<'_>, request: &Request, delta: &mut Delta) -> Vec<u8> {
        let key = once::key(once.client);
        let id = item_id(&key);
        let print = once::print(request);
        let found = self.shards[shard_of(id)].get(&id.0);
        let spoilt = self.guard && found.is_some_and(|item| !item.intact());
        let value = found.and_then(Item::view).map(|view| view.value);
        let mut slot = value.map_or_else(Slot::default, Slot::unpack);
        delta.add(id, spoilt);
        match slot.look(once, print, self.head.now_ms) {
            Verdict::Known(reply) => return reply,
            Verdict::Refused(why) => return format!("{why}\r\n").into_bytes(),
            Verdict::New => {}
        }
        // Before anything is executed: a reply that cannot be kept would be forgotten.
        let room = value.map_or(0, <[u8]>::len) + once::REPLY_MAX;
        if !self.has_room(id, key.len() + room) {
            return Said::NoRoom.text();
        }
        let reply = self.carry_out(request, delta);
        slot.keep(once, print, self.head.now_ms, &reply);
        // No number is drawn for it: the item is nobody's but the log's.
        self.insert(id, Item::new(0, 0, 0, &key, &slot.pack()));
        if spoilt {
            self.spoil(id);
        }
        reply
    }

    fn carry_out(&mut self, request: &Request, delta: &mut Delta) -> Vec<u8> {
        match request {
            Request::Get { keys, cas, touch } => self.get(keys, *cas, *touch, delta),
            Request::Store {
                verb,
                key,
                flags,
                expires,
                value,
                cas,
                form,
            } => {
                let expires = self.expiry(*expires);
                let said = self.store(*verb, key, *flags, expires, value, *cas, delta);
                self.say(form, said, key, delta)
            }
            Request::Delete { key, cas, form } => {
                let (id, found) = self.find(key, delta);
                let found = found.and_then(Item::view).map(|view| view.cas);
                let said = match (found, cas) {
                    (None, _) => Said::NotFound,
                    (Some(now), Some(cas)) if now != *cas => Said::Exists,
                    _ => {
                        self.remove(id);
                        Said::Deleted
                    }
                };
                self.say(form, said, key, delta)
            }
            Request::Count {
                key,
                up,
                by,
                seed,
                expires,
                form,
            } => {
                let said = self.count(key, *up, *by, *seed, *expires, delta);
                self.say(form, said, key, delta)
            }
            Request::Touch { key, expires, form } => {
                let said = if self.touch(key, *expires, delta) {
                    Said::Touched
                } else {
                    Said::NotFound
                };
                self.say(form, said, key, delta)
            }
            Request::Flush { after, form } => {
                if *after <= 0 {
                    self.head.flushed = self.head.cas;
                    self.head.flush_at_ms = 0;
                } else {
                    self.head.flush_at_ms = self.expiry(*after);
                }
                delta.add(head_id(), false);
                self.say(form, Said::Ok, b"", delta)
            }
            Request::Restore { items } => self.bring_back(items, delta),
            Request::MetaGet { key, touch, form } => {
                if let Some(expires) = touch {
                    self.touch(key, *expires, delta);
                }
                let found = self.find(key, delta).1.is_some();
                self.say(
                    form,
                    if found { Said::Found } else { Said::Miss },
                    key,
                    delta,
                )
            }
        }
    }

    fn get(
        &mut self,
        keys: &[Vec<u8>],
        with_cas: bool,
        touch: Option<i64>,
        delta: &mut Delta,
    ) -> Vec<u8> {
        let mut reply = Vec::new();
        for key in keys {
            if let Some(expires) = touch {
                self.touch(key, expires, delta);
            }
            if let Some(view) = self.find(key, delta).1.and_then(Item::view) {
                put_value(&view, with_cas, &mut reply);
            }
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one request")]
    fn store(
        &mut self,
        verb: Verb,
        key: &[u8],
        flags: u32,
        expires: u64,
        value: &[u8],
        cas: Option<u64>,
        delta: &mut Delta,
    ) -> Said {
        let (id, found) = self.find(key, delta);
        let found = found
            .and_then(Item::view)
            .map(|view| (view.flags, view.expires, view.cas));
        match (cas, found) {
            (Some(_), None) => return Said::NotFound,
            (Some(cas), Some((_, _, now))) if cas != now => return Said::Exists,
            _ => {}
        }
        match (verb, found) {
            (Verb::Append | Verb::Prepend, Some((flags, expires, _))) => {
                let Some(old) = self.shards[shard_of(id)].get(&id.0).and_then(Item::view) else {
                    return Said::NotStored;
                };
                let joined = if verb == Verb::Append {
                    [old.value, value].concat()
                } else {
                    [value, old.value].concat()
                };
                if joined.len() > crate::protocol::VALUE_MAX {
                    return Said::TooLarge;
                }
                if !self.has_room(id, key.len() + joined.len()) {
                    return Said::NoRoom;
                }
                let spoilt = self.is_spoilt(id);
                self.put(id, flags, expires, key, &joined);
                if spoilt {
                    self.spoil(id);
                }
            }
            (Verb::Append | Verb::Prepend | Verb::Replace, None) | (Verb::Add, Some(_)) => {
                return Said::NotStored;
            }
            _ if !self.has_room(id, key.len() + value.len()) => return Said::NoRoom,
            _ => self.put(id, flags, expires, key, value),
        }
        Said::Stored
    }

    fn touch(&mut self, key: &[u8], expires: i64, delta: &mut Delta) -> bool {
        let expires = self.expiry(expires);
        let (id, found) = self.find(key, delta);
        let Some(view) = found.and_then(Item::view) else {
            return false;
        };
        // The value and its number stay what they are.
        let changed = Item::new(view.flags, expires, view.cas, view.key, view.value);
        let spoilt = self.is_spoilt(id);
        self.insert(id, changed);
        if spoilt {
            self.spoil(id);
        }
        true
    }

    fn count(
        &mut self,
        key: &[u8],
        up: bool,
        by: u64,
        seed: Option<(u64, i64)>,
        expires: Option<i64>,
        delta: &mut Delta,
    ) -> Said {
        let (id, found) = self.find(key, delta);
        let Some(view) = found.and_then(Item::view) else {
            let Some((first, expires)) = seed else {
                return Said::NotFound;
            };
            let expires = self.expiry(expires);
            let text = first.to_string();
            if !self.has_room(id, key.len() + text.len()) {
                return Said::NoRoom;
            }
            self.put(id, 0, expires, key, text.as_bytes());
            return Said::Number(first);
        };
        let (flags, was) = (view.flags, view.expires);
        let Some(old) = leading_number(view.value) else {
            return Said::NoNumber;
        };
        let new = if up {
            old.wrapping_add(by)
        } else {
            old.saturating_sub(by)
        };
        // As memcached: what counting makes shorter keeps its length, padded with spaces.
        let mut text = new.to_string().into_bytes();
        if !up && text.len() < view.value.len() {
            text.resize(view.value.len(), b' ');
        }
        let expires = expires.map_or(was, |expires| self.expiry(expires));
        if !self.has_room(id, key.len() + text.len()) {
            return Said::NoRoom;
        }
        let spoilt = self.is_spoilt(id);
        self.put(id, flags, expires, key, &text);
        if spoilt {
            self.spoil(id);
        }
        Said::Number(new)
    }

    /// The words of a reply.
    fn say(&mut self, form: &Form, said: Said, key: &[u8], delta: &mut Delta) -> Vec<u8> {
        match form {
            Form::Silent => match said {
                // As memcached: errors are said even to who wants no reply.
                Said::NoNumber | Said::TooLarge | Said::NoRoom => said.text(),
                _ => Vec::new(),
            },
            Form::Text => said.text(),
            Form::Meta {
                flags,
                quiet,
                value,
            } => self.say_meta(flags, *quiet, *value, said, key, delta),
        }
    }

    fn say_meta(
        &mut self,
        flags: &[String],
        quiet: bool,
        value: bool,
        said: Said,
        key: &[u8],
        delta: &mut Delta,
    ) -> Vec<u8> {
        let now_ms = self.head.now_ms;
        let view = self.find(key, delta).1.and_then(Item::view);
        meta_reply(flags, quiet, value, said, key, view, now_ms)
    }

    /// Flips one bit of an item's stored bytes, behind the back of its digest: an injected fault. Where it was hit.
    pub(crate) fn strike(
        &mut self,
        key: &[u8],
        field: &str,
        byte: usize,
        bit: u8,
    ) -> Result<Place, String> {
        let id = item_id(key);
        let name = String::from_utf8_lossy(key).into_owned();
        let Some(item) = self.shards[shard_of(id)].get_mut(&id.0) else {
            return Err(format!("object item:{name} does not exist here"));
        };
        let places: Vec<usize> = (0..item.bytes.len())
            .filter(|at| place(&item.bytes, *at).field == field)
            .collect();
        let Some(at) = places.get(byte).copied() else {
            return Err(format!(
                "byte must be below {}, the length of {field} of item:{name}, found {byte}",
                places.len()
            ));
        };
        item.bytes[at] ^= 1 << bit;
        Ok(Place {
            field: place(&item.bytes, at).field,
            byte,
        })
    }

    /// Items that are not over, each with the digest that was voted on.
    pub(crate) fn saved(&self) -> Vec<Saved> {
        let slots: std::collections::HashSet<u128> =
            once::keys().map(|key| item_id(&key).0).collect();
        let head = &self.head;
        let mut items: Vec<(&u128, &Item)> = self
            .shards
            .iter()
            .flatten()
            .filter(|(id, item)| {
                let over = item.view().is_some_and(|view| {
                    view.cas <= head.flushed || (view.expires != 0 && view.expires <= head.now_ms)
                });
                !over && !slots.contains(id)
            })
            .collect();
        items.sort_unstable_by_key(|(id, _)| **id);
        items
            .into_iter()
            .map(|(_, item)| Saved {
                bytes: item.bytes.clone(),
                digest: item.digest.0,
            })
            .collect()
    }

    /// Takes items of a backup: all of them, or none where one is not what was voted on or has no room.
    fn bring_back(&mut self, items: &[Saved], delta: &mut Delta) -> Vec<u8> {
        let mut views = Vec::new();
        for item in items {
            match view(&item.bytes) {
                Some(view) if !item.is_right() || view.key.len() > KEY_MAX => {
                    return b"SERVER_ERROR an item does not fit its digest\r\n".to_vec();
                }
                Some(view) if view.cas <= self.head.flushed => {
                    return b"SERVER_ERROR a flush_all here is later than an item\r\n".to_vec();
                }
                Some(view) => views.push(view),
                None => return b"SERVER_ERROR no item\r\n".to_vec(),
            }
        }
        let new: u64 = items
            .iter()
            .map(|item| item.bytes.len() as u64 + ENTRY)
            .sum();
        if self.head.used + new > self.bytes_max {
            return Said::NoRoom.text();
        }
        for (item, view) in items.iter().zip(views) {
            let id = item_id(view.key);
            // What is stored from now on is later than all of these.
            self.head.cas = self.head.cas.max(view.cas);
            self.insert(id, Item::packed(item.bytes.clone()));
            delta.add(id, false);
        }
        format!("RESTORED {}\r\n", items.len()).into_bytes()
    }

    /// The whole state as bytes, for a replica that joins.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let mut items: Vec<(u128, &serde_bytes::Bytes, u128)> = self
            .shards
            .iter()
            .flatten()
            .map(|(id, item)| (*id, serde_bytes::Bytes::new(&item.bytes), item.digest.0))
            .collect();
        items.sort_unstable();
        postcard::to_stdvec(&(self.head.pack(), &self.sessions, items)).unwrap_or_default()
    }

    /// Takes the state of another replica. An item that did not fit its digest there is known here as one that nothing is known of: it must
    /// not become two against one.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        type Parts = (
            Vec<u8>,
            std::collections::BTreeMap<u64, u64>,
            Vec<(u128, serde_bytes::ByteBuf, u128)>,
        );
        let (head, sessions, items): Parts =
            postcard::from_bytes(bytes).map_err(|why| format!("snapshot: {why}"))?;
        let head = Head::unpack(&head).ok_or("snapshot: its head is too short")?;
        let mut shards = vec![Shard::default(); SHARDS];
        for (id, bytes, digest) in items {
            let mut item = Item {
                bytes: bytes.into_vec(),
                digest: Digest(digest),
            };
            let id = match item.view().filter(|_| item.intact()) {
                Some(view) => item_id(view.key),
                None => {
                    item.bytes = Vec::new();
                    ObjectId(id)
                }
            };
            shards[shard_of(id)].insert(id.0, item);
        }
        self.shards = shards;
        self.head = head;
        self.sessions = sessions;
        Ok(())
    }
}

impl Head {
    /// What a vote compares of it.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.pack())
    }

    fn pack(&self) -> Vec<u8> {
        let mut bytes = self.chain.to_le_bytes().to_vec();
        for number in [
            self.now_ms,
            self.cas,
            self.flushed,
            self.flush_at_ms,
            self.used,
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn unpack(bytes: &[u8]) -> Option<Self> {
        let (chain, rest) = bytes.split_first_chunk::<16>()?;
        let mut numbers = rest
            .chunks_exact(8)
            .filter_map(|chunk| chunk.try_into().ok().map(u64::from_le_bytes));
        Some(Self {
            chain: u128::from_le_bytes(*chain),
            now_ms: numbers.next()?,
            cas: numbers.next()?,
            flushed: numbers.next()?,
            flush_at_ms: numbers.next()?,
            used: numbers.next()?,
        })
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
        let (_, last) = self
            .sessions
            .iter()
            .find(|(origin, _)| session_id(**origin) == object)?;
        let origin = self
            .sessions
            .iter()
            .find(|(origin, _)| session_id(**origin) == object)?
            .0;
        let mut bytes = b"session".to_vec();
        bytes.extend_from_slice(&origin.to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
        Some(bytes)
    }

    fn intact(&self, object: ObjectId) -> bool {
        self.shards[shard_of(object)]
            .get(&object.0)
            .is_none_or(Item::intact)
    }

    /// What all items weigh is part of the head, and repaired with it.
    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        let Some(bytes) = packed else {
            self.shards[shard_of(object)].remove(&object.0);
            self.sessions
                .retain(|origin, _| session_id(*origin) != object);
            return;
        };
        if object == head_id() {
            if let Some(head) = Head::unpack(bytes) {
                self.head = head;
            }
        } else if let Some(rest) = bytes.strip_prefix(b"session")
            && let Some((origin, last)) = rest.split_first_chunk::<8>()
            && session_id(u64::from_le_bytes(*origin)) == object
            && let Ok(last) = last.try_into()
        {
            self.sessions
                .insert(u64::from_le_bytes(*origin), u64::from_le_bytes(last));
        } else {
            self.shards[shard_of(object)].insert(object.0, Item::packed(bytes.to_vec()));
        }
    }
}

/// Where key and value of an item stand in a reply.
struct Put {
    key: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

/// One item of the answer to a `get`.
fn put_value(view: &View<'_>, with_cas: bool, reply: &mut Vec<u8>) -> Put {
    reply.extend_from_slice(b"VALUE ");
    let key = reply.len()..reply.len() + view.key.len();
    reply.extend_from_slice(view.key);
    let head = if with_cas {
        format!(" {} {} {}\r\n", view.flags, view.value.len(), view.cas)
    } else {
        format!(" {} {}\r\n", view.flags, view.value.len())
    };
    reply.extend_from_slice(head.as_bytes());
    let value = reply.len()..reply.len() + view.value.len();
    reply.extend_from_slice(view.value);
    reply.extend_from_slice(b"\r\n");
    Put { key, value }
}

/// The answer to a meta command.
fn meta_reply(
    flags: &[String],
    quiet: bool,
    value: bool,
    said: Said,
    key: &[u8],
    view: Option<View<'_>>,
    now_ms: u64,
) -> Vec<u8> {
    let word = match said {
        Said::NoNumber | Said::TooLarge | Said::NoRoom => return said.text(),
        Said::Miss => "EN",
        Said::NotFound => "NF",
        Said::NotStored => "NS",
        Said::Exists => "EX",
        _ => "HD",
    };
    let hushed = match word {
        "HD" => !value && !matches!(said, Said::Found),
        "EN" => true,
        "NF" => true,
        _ => false,
    };
    if quiet && hushed {
        return Vec::new();
    }
    let is_mg = matches!(said, Said::Found | Said::Miss);
    let mut tail = String::new();
    for flag in flags {
        let (letter, _) = flag.split_at(1);
        match (letter, view) {
            ("k", _) => tail += &format!(" k{}", String::from_utf8_lossy(key)),
            ("O", _) => tail += &format!(" {flag}"),
            (_, None) => {}
            ("f", Some(view)) => tail += &format!(" f{}", view.flags),
            ("s", Some(view)) => tail += &format!(" s{}", view.value.len()),
            ("c", Some(view)) => tail += &format!(" c{}", view.cas),
            ("t", Some(view)) if view.expires == 0 => tail += " t-1",
            ("t", Some(view)) => {
                tail += &format!(" t{}", view.expires.saturating_sub(now_ms) / 1000)
            }
            _ => {}
        }
    }
    let mut reply = match (said, view) {
        (Said::Number(number), _) if value => {
            return format!("VA {}{tail}\r\n{number}\r\n", number.to_string().len()).into_bytes();
        }
        (Said::Found, Some(view)) if value => {
            let mut reply = format!("VA {}{tail}\r\n", view.value.len()).into_bytes();
            reply.extend_from_slice(view.value);
            reply
        }
        _ if word == "EN" || !is_mg || word == "HD" => format!("{word}{tail}").into_bytes(),
        _ => word.as_bytes().to_vec(),
    };
    reply.extend_from_slice(b"\r\n");
    reply
}

/// What a request comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Stored,
    NotStored,
    Exists,
    NotFound,
    Deleted,
    Touched,
    Number(u64),
    NoNumber,
    TooLarge,
    NoRoom,
    Found,
    Miss,
    Ok,
}

impl Said {
    fn text(self) -> Vec<u8> {
        match self {
            Self::Stored => "STORED",
            Self::NotStored => "NOT_STORED",
            Self::Exists => "EXISTS",
            Self::NotFound | Self::Miss => "NOT_FOUND",
            Self::Deleted => "DELETED",
            Self::Touched => "TOUCHED",
            Self::Number(number) => return format!("{number}\r\n").into_bytes(),
            Self::NoNumber => "CLIENT_ERROR cannot increment or decrement non-numeric value",
            Self::TooLarge => "SERVER_ERROR object too large for cache",
            Self::NoRoom => "SERVER_ERROR out of memory storing object",
            Self::Found | Self::Ok => "OK",
        }
        .bytes()
        .chain(*b"\r\n")
        .collect()
    }
}

/// What strtoull reads, where a space, a zero byte or the end follows.
fn leading_number(value: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let word = &value[value.iter().position(|byte| !is_space(byte))?..];
    let end = word
        .iter()
        .position(|byte| is_space(byte) || *byte == 0)
        .unwrap_or(word.len());
    let digits = word[..end].strip_prefix(b"+").unwrap_or(&word[..end]);
    (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
        .then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// The chain of the log with one more entry.
pub(crate) fn chained(chain: u128, index: Index, bytes: &[u8]) -> u128 {
    steadfast_integrity::digest::Vote128::new()
        .part(&chain.to_le_bytes())
        .part(&index.0.to_le_bytes())
        .part(bytes)
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Parsed, parse};

    fn run(store: &mut Store, text: &str) -> (String, Delta) {
        let Parsed::Request(_, request) = parse(text.as_bytes()) else {
            panic!("{text:?} is no request");
        };
        let mut delta = Delta::default();
        let reply = store.execute(&request, &mut delta);
        (String::from_utf8(reply).unwrap(), delta)
    }

    fn with_a(value: &str) -> Store {
        let mut store = Store::new(true, 1 << 20);
        run(
            &mut store,
            &format!("set a 0 0 {}\r\n{value}\r\n", value.len()),
        );
        store
    }

    #[test]
    fn no_change_makes_a_struck_item_look_intact() {
        let a = item_id(b"a");
        for change in [
            "append a 0 0 1\r\n7\r\n",
            "prepend a 0 0 1\r\n7\r\n",
            "incr a 1\r\n",
            "touch a 100\r\n",
            "gat 100 a\r\n",
        ] {
            let mut store = with_a("100");
            assert!(store.intact(a));
            store.strike(b"a", "value", 2, 0).unwrap();
            assert!(!store.intact(a));
            let (_, delta) = run(&mut store, change);
            assert!(!store.intact(a), "{change:?}");
            assert!(store.digests(&delta).iter().any(|pair| pair.passive));
            // Without a strike none of them marks anything.
            let mut store = with_a("100");
            let (_, delta) = run(&mut store, change);
            assert!(store.intact(a), "{change:?}");
            assert!(!store.digests(&delta).iter().any(|pair| pair.passive));
        }
    }

    #[test]
    fn an_item_whose_key_was_hit_is_kept_as_evidence() {
        let mut store = with_a("100");
        store.strike(b"a", "key", 0, 1).unwrap();
        let (reply, delta) = run(&mut store, "get a\r\n");
        assert_eq!(reply, "END\r\n");
        assert!(store.digests(&delta).iter().all(|pair| pair.passive));
        assert!(!store.intact(item_id(b"a")));
    }

    #[test]
    fn a_snapshot_hands_no_struck_item_on_as_a_right_one() {
        let mut store = with_a("100");
        run(&mut store, "set b 0 0 1\r\n7\r\n");
        store.strike(b"a", "value", 2, 0).unwrap();
        let mut other = Store::new(true, 1 << 20);
        other.restore(&store.snapshot()).unwrap();
        assert!(!other.intact(item_id(b"a")));
        assert_eq!(run(&mut other, "get a\r\n").0, "END\r\n");
        assert_eq!(
            run(&mut other, "get b\r\n").0,
            "VALUE b 0 1\r\n7\r\nEND\r\n"
        );
        assert_eq!(other.head(), store.head());
    }

    #[test]
    fn what_does_not_fit_is_refused_and_room_comes_back() {
        let item = HEADER as u64 + 1 + 100 + ENTRY;
        let mut store = Store::new(true, 2 * item);
        let value = "x".repeat(100);
        let set = |store: &mut Store, key: &str| {
            run(store, &format!("set {key} 0 0 100\r\n{value}\r\n")).0
        };
        assert_eq!(set(&mut store, "a"), "STORED\r\n");
        assert_eq!(set(&mut store, "b"), "STORED\r\n");
        assert_eq!(store.size(), (2, 2 * item));
        assert!(set(&mut store, "c").starts_with("SERVER_ERROR out of memory"));
        // In place of itself it fits; one byte more does not.
        assert_eq!(set(&mut store, "a"), "STORED\r\n");
        let (reply, _) = run(&mut store, "append a 0 0 1\r\nx\r\n");
        assert!(reply.starts_with("SERVER_ERROR out of memory"));
        assert_eq!(run(&mut store, "delete b\r\n").0, "DELETED\r\n");
        assert_eq!(set(&mut store, "c"), "STORED\r\n");
        assert_eq!(store.size(), (2, 2 * item));
    }
}
