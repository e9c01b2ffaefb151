//! What a request changes, and what it is answered.

use steadfast_crosscheck::{ObjectId, Objects as _};

use super::item::Item;
use super::reply::{Said, leading_number, meta_reply, put_value};
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

    fn put(&mut self, id: ObjectId, flags: u32, expires: u64, key: &[u8], value: &[u8]) {
        let cas = self.head.cas.saturating_add(1);
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
        let room = value.map_or(0, <[u8]>::len) + once::REPLY_MAX;
        if !self.has_room(id, key.len() + room, delta) {
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
                cas,
                form,
            } => {
                let (_, found) = self.find(key, delta);
                let now = found.and_then(Item::view).map(|view| view.cas);
                let said = match (now, cas) {
                    (Some(now), Some(cas)) if now != *cas => Said::Exists,
                    _ => self.count(key, *up, *by, *seed, *expires, delta),
                };
                self.say(form, said, key, delta)
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
                if reply.len() + view.value.len() > SAID_MAX {
                    return TOO_MUCH.to_vec();
                }
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
                if joined.len() > VALUE_MAX {
                    return Said::TooLarge;
                }
                if !self.has_room(id, key.len() + joined.len(), delta) {
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
            _ if !self.has_room(id, key.len() + value.len(), delta) => return Said::NoRoom,
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
            if !self.has_room(id, key.len() + text.len(), delta) {
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
        // As memcached: what counting makes no longer keeps its length, padded with spaces.
        let mut text = new.to_string().into_bytes();
        if text.len() < view.value.len() {
            text.resize(view.value.len(), b' ');
        }
        let expires = expires.map_or(was, |expires| self.expiry(expires));
        if !self.has_room(id, key.len() + text.len(), delta) {
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
}
