//! What a request changes, and what it is answered.

use steadfast_crosscheck::{ObjectId, Objects as _};

use super::item::{BINARY, Item, STALE, View, WON};
use super::reply::{Said, debugged, leading_number, put_value};
use super::{Delta, Store, head_id, item_id, shard_of};
use crate::once::{self, Once, Slot, Verdict};
use crate::request::{Form, Request, VALUE_MAX, Verb};

/// Expiry times up to this many seconds are relative, as in memcached.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// Bytes that a reply may have: each replica makes and keeps all of them until the vote. 64 of the largest values.
const SAID_MAX: usize = 64 * VALUE_MAX;
/// Bytes of all replies of one entry after which its reads are refused.
pub(super) const ENTRY_SAID_MAX: usize = 4 * SAID_MAX;
const TOO_MUCH: &[u8] =
    b"SERVER_ERROR more than 64 MiB in one reply, or 256 MiB asked for at once: ask for fewer keys\r\n";

impl Store {
    /// Shards that a request touches; nothing for all of them.
    pub(crate) fn shards_of(request: &Request) -> Option<Vec<usize>> {
        let slot = once::of(request).map(|once| shard_of(item_id(&once::key(once.client))));
        let mut shards: Vec<usize> = match request {
            Request::Get { keys, .. } => keys.iter().map(|key| shard_of(item_id(key))).collect(),
            Request::Store { key, .. }
            | Request::Delete { key, .. }
            | Request::TooLarge { key, .. }
            | Request::Stale { key, .. }
            | Request::Debug { key, .. }
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
            if passive && !delta.seen.contains(&id.0) {
                delta.found.push((id, item.at_rest()));
            }
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

    /// The number of what this request stores.
    fn next_cas(&self) -> u64 {
        self.head.cas.saturating_add(1)
    }

    /// Puts a changed item into its own place: made from one that was hit it stays marked.
    fn change(&mut self, id: ObjectId, item: Item) {
        let spoilt = self.is_spoilt(id);
        self.insert(id, item);
        if spoilt {
            self.spoil(id);
        }
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
            1..=RELATIVE_MAX => self
                .head
                .now_ms
                .saturating_add(seconds.unsigned_abs() * 1000),
            _ => seconds.unsigned_abs().saturating_mul(1000),
        }
    }

    /// Executes one request; its reply. One that has a number is executed once.
    pub(crate) fn execute(&mut self, request: &Request, delta: &mut Delta) -> Vec<u8> {
        // One number for each that may change something, whatever comes of it: none depends on the requests of other shards before it.
        let number = self.head.cas.saturating_add(request.numbers());
        let reads = matches!(request, Request::Get { .. } | Request::MetaGet { .. });
        let reply = if reads && self.said >= ENTRY_SAID_MAX {
            TOO_MUCH.to_vec()
        } else {
            match once::of(request) {
                Some(once) => self.execute_once(once, request, delta),
                None => self.carry_out(request, delta),
            }
        };
        self.head.cas = self.head.cas.max(number);
        self.said += reply.len();
        reply
    }

    fn execute_once(&mut self, once: Once<'_>, request: &Request, delta: &mut Delta) -> Vec<u8> {
        let key = once::key(once.client);
        let id = item_id(&key);
        let print = once::print(request);
        let found = self.shards[shard_of(id)].get(&id.0);
        let spoilt = self.guard && found.is_some_and(|item| !item.intact());
        if spoilt && !delta.seen.contains(&id.0) {
            delta.found.extend(found.map(|item| (id, item.at_rest())));
        }
        let value = found.and_then(Item::view).map(|view| view.value);
        let mut slot = value.map_or_else(Slot::default, Slot::unpack);
        delta.add(id, spoilt);
        match slot.look(once, print, self.head.now_ms) {
            Verdict::Known(reply) => return reply,
            Verdict::Refused(why) => return format!("{why}\r\n").into_bytes(),
            Verdict::New => {}
        }
        // Before anything is executed: a reply that cannot be kept would be forgotten.
        let shown = match request {
            Request::MetaGet { key, form, .. } if form.shows_value() => {
                let id = item_id(key);
                let item = self.shards[shard_of(id)].get(&id.0);
                item.map_or(0, |item| item.bytes.len())
            }
            _ => 0,
        };
        let room = value.map_or(0, <[u8]>::len) + once::REPLY_MAX + shown;
        if !self.has_room(id, key.len() + room, delta) {
            return Said::NoRoom.text();
        }
        let reply = self.carry_out(request, delta);
        slot.keep(once, print, self.head.now_ms, &reply);
        // No number is drawn for it: the item is nobody's but the log's.
        let kept = Item::new(View {
            flags: 0,
            expires: 0,
            cas: 0,
            marks: 0,
            key: &key,
            value: &slot.pack(),
        });
        self.change(id, kept);
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
                may_be_older,
                form,
            } => {
                let new = View {
                    flags: *flags,
                    expires: self.expiry(*expires),
                    cas: self.next_cas(),
                    marks: if form.is_binary() { BINARY } else { 0 },
                    key,
                    value,
                };
                let said = self.store(*verb, new, *cas, *may_be_older, delta);
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
                cas,
                form,
            } => {
                let (_, found) = self.find(key, delta);
                let now = found.and_then(Item::view).map(|view| view.cas);
                let said = match (now, cas) {
                    (Some(now), Some(cas)) if now != *cas => Said::Exists,
                    _ => {
                        let marks = if form.is_binary() { BINARY } else { 0 };
                        self.count(key, *up, *by, seed.map(|s| (s, marks)), *expires, delta)
                    }
                };
                self.say(form, said, key, delta)
            }
            Request::Stale {
                key,
                cas,
                expires,
                form,
            } => {
                let said = self.stale(key, *cas, *expires, delta);
                self.say(form, said, key, delta)
            }
            Request::Debug { key, form } => {
                let now_ms = self.head.now_ms;
                let view = self.find(key, delta).1.and_then(Item::view);
                debugged(form, key, view, now_ms)
            }
            Request::TooLarge { key, form } => {
                let (id, _) = self.find(key, delta);
                self.remove(id);
                self.say(form, Said::TooLarge, key, delta)
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
            Request::MetaGet { .. } => self.meta_get(request, delta),
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
                if reply.len() + view.value.len() > SAID_MAX {
                    return TOO_MUCH.to_vec();
                }
                put_value(&view, with_cas, &mut reply);
            }
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    /// Stores a value. `cas` is the number that the item must have; one that is lower may be let pass, and marks the value as stale.
    fn store(
        &mut self,
        verb: Verb,
        new: View<'_>,
        cas: Option<u64>,
        may_be_older: bool,
        delta: &mut Delta,
    ) -> Said {
        let (id, found) = self.find(new.key, delta);
        let joined;
        let mut new = new;
        let found = found.and_then(Item::view);
        let mut owes = false;
        match (verb, cas, found) {
            // As memcached: an `add` has nothing that it could compare.
            (Verb::Add, ..) | (_, None, _) => {}
            (Verb::Append | Verb::Prepend, Some(_), None) => return Said::NotStored,
            (_, Some(_), None) => return Said::NotFound,
            (_, Some(cas), Some(old)) if cas != old.cas => {
                let sets = matches!(verb, Verb::Set | Verb::Replace);
                if !(may_be_older && sets && 0 < cas && cas < old.cas) {
                    return Said::Exists;
                }
                new.expires = old.expires;
                new.marks |= STALE | old.marks & WON;
                owes = true;
            }
            _ => {}
        }
        match (verb, found) {
            (Verb::Append | Verb::Prepend, Some(old)) => {
                joined = if verb == Verb::Append {
                    [old.value, new.value].concat()
                } else {
                    [new.value, old.value].concat()
                };
                if joined.len() > VALUE_MAX {
                    return Said::TooLarge;
                }
                new = View {
                    flags: old.flags,
                    expires: old.expires,
                    marks: old.marks & BINARY,
                    value: &joined,
                    ..new
                };
                owes = true;
            }
            (Verb::Append | Verb::Prepend | Verb::Replace, None) | (Verb::Add, Some(_)) => {
                return Said::NotStored;
            }
            _ => {}
        }
        if !self.has_room(id, new.key.len() + new.value.len(), delta) {
            return Said::NoRoom;
        }
        let item = Item::new(new);
        if owes {
            self.change(id, item);
        } else {
            self.insert(id, item);
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
        let changed = Item::new(View { expires, ..view });
        self.change(id, changed);
        true
    }

    /// Marks an item as stale: the next to read it is told to make it anew.
    fn stale(
        &mut self,
        key: &[u8],
        cas: Option<u64>,
        expires: Option<i64>,
        delta: &mut Delta,
    ) -> Said {
        let expires = expires.map(|expires| self.expiry(expires));
        let next = self.next_cas();
        let (id, found) = self.find(key, delta);
        let Some(view) = found.and_then(Item::view) else {
            return Said::NotFound;
        };
        if cas.is_some_and(|cas| cas != view.cas) {
            return Said::Exists;
        }
        let changed = Item::new(View {
            expires: expires.unwrap_or(view.expires),
            cas: next,
            marks: view.marks & !WON | STALE,
            ..view
        });
        self.change(id, changed);
        Said::Deleted
    }

    /// A read that may touch what it finds, create what it does not, and tell its client that it is the one to make the value anew.
    fn meta_get(&mut self, request: &Request, delta: &mut Delta) -> Vec<u8> {
        let Request::MetaGet {
            key,
            touch,
            vivify,
            recache,
            form,
        } = request
        else {
            return Vec::new();
        };
        let (id, found) = self.find(key, delta);
        let found = found.and_then(Item::view);
        let is_new = found.is_none();
        if is_new && (vivify.is_none() || !self.has_room(id, key.len(), delta)) {
            let said = vivify.map_or(Said::Miss, |_| Said::NoRoom);
            return self.say(form, said, key, delta);
        }
        // Again: room may have been made.
        let found = self.shards[shard_of(id)].get(&id.0).and_then(Item::view);
        let was = found.filter(|_| !is_new).unwrap_or(View {
            flags: 0,
            expires: 0,
            cas: self.next_cas(),
            marks: if form.is_binary() { BINARY } else { 0 },
            key,
            value: b"",
        });
        let mut expires = was.expires;
        let mut shown = expires;
        let mut wins = is_new || was.marks & (STALE | WON) == STALE;
        // In the order of the request, as memcached: a `t` before a `T` tells what was before.
        for flag in form.flags() {
            match (flag.as_bytes().first(), touch, vivify, recache) {
                (Some(b'T'), Some(seconds), ..) => expires = self.expiry(*seconds),
                (Some(b'N'), _, Some(seconds), _) if is_new => expires = self.expiry(*seconds),
                (Some(b'R'), .., Some(seconds)) if !is_new && was.marks & WON == 0 => {
                    wins |= expires != 0 && expires < self.expiry(*seconds);
                }
                (Some(b't'), ..) => shown = expires,
                _ => {}
            }
        }
        let now = View {
            expires,
            marks: was.marks | if wins { WON } else { 0 },
            ..was
        };
        let reply = form.meta(
            Said::Found,
            key,
            Some(View {
                expires: shown,
                ..was
            }),
            wins,
            self.head.now_ms,
        );
        if is_new || now.expires != was.expires || now.marks != was.marks {
            let item = Item::new(now);
            self.change(id, item);
        }
        reply
    }

    fn count(
        &mut self,
        key: &[u8],
        up: bool,
        by: u64,
        seed: Option<((u64, i64), u8)>,
        expires: Option<i64>,
        delta: &mut Delta,
    ) -> Said {
        let cas = self.next_cas();
        let ends = expires.map(|expires| self.expiry(expires));
        let (id, found) = self.find(key, delta);
        let Some(view) = found.and_then(Item::view) else {
            let Some(((first, expires), marks)) = seed else {
                return Said::NotFound;
            };
            let expires = self.expiry(expires);
            let text = first.to_string();
            if !self.has_room(id, key.len() + text.len(), delta) {
                return Said::NoRoom;
            }
            let item = Item::new(View {
                flags: 0,
                expires,
                cas,
                marks,
                key,
                value: text.as_bytes(),
            });
            self.change(id, item);
            return Said::Number(first);
        };
        let Some(old) = leading_number(view.value) else {
            return Said::NoNumber;
        };
        let new = if up {
            old.wrapping_add(by)
        } else {
            old.saturating_sub(by)
        };
        // As memcached: what counting makes no longer keeps its length, padded with spaces.
        let mut text = new.to_string().into_bytes();
        if text.len() < view.value.len() {
            text.resize(view.value.len(), b' ');
        }
        let item = Item::new(View {
            expires: ends.unwrap_or(view.expires),
            cas,
            key,
            value: &text,
            ..view
        });
        if !self.has_room(id, key.len() + text.len(), delta) {
            return Said::NoRoom;
        }
        self.change(id, item);
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
            Form::Meta { .. } => {
                let now_ms = self.head.now_ms;
                let view = self.find(key, delta).1.and_then(Item::view);
                form.meta(said, key, view, false, now_ms)
            }
        }
    }
}
