//! The state as a whole, as other processes take it: a snapshot for a replica that joins, items for a backup and out of one.

use std::collections::{BTreeMap, HashSet};

use steadfast_crosscheck::{Digest, ObjectId};
use steadfast_group::state;

use super::item::{ENTRY, Item, view};
use super::reply::Said;
use super::undo::Undo;
use super::{Delta, Head, SHARDS, Session, Shard, Store, item_id, shard_of};
use crate::once;
use crate::request::KEY_MAX;
use crate::saved::Saved;

impl Store {
    /// Items that are not over, each with the digest that was voted on.
    pub(crate) fn saved(&self) -> Vec<Saved> {
        let slots: HashSet<u128> = once::keys().map(|key| item_id(&key).0).collect();
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
    pub(super) fn bring_back(&mut self, items: &[Saved], delta: &mut Delta) -> Vec<u8> {
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
        if self.weight.sum + new > self.bytes_max {
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

    /// Whether all items weigh what was counted as they came and went: a state in which one is lost is handed to nobody, since it would be
    /// lost in two replicas. Nor is one whose head or sessions changed at rest: nothing would show it there.
    pub(crate) fn is_whole(&self) -> bool {
        if !self.head_fits() || !self.sessions.values().all(|session| session.fits()) {
            return false;
        }
        self.counted() == self.weight
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
        let sessions = self.sessions.iter();
        let sessions: BTreeMap<u64, u64> = sessions.map(|(id, it)| (*id, it.last)).collect();
        // Room for all of it at once, its digest included: each time that it grows all that is there is copied, and nothing is executed
        // meanwhile. Numbers and lengths of an item are at most 48 bytes, of a session 20.
        let lengths = items.iter().map(|(_, bytes, _)| bytes.len() + 48);
        let room = lengths.sum::<usize>() + 20 * sessions.len() + 256;
        let all = postcard::to_extend(
            &(self.head.pack(), sessions, items),
            Vec::with_capacity(room),
        );
        state::sealed(all.unwrap_or_default())
    }

    /// Takes the state of another replica. An item that did not fit its digest there is known here as one that nothing is known of: it must
    /// not become two against one.
    pub(crate) fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        type Parts = (
            Vec<u8>,
            BTreeMap<u64, u64>,
            Vec<(u128, serde_bytes::ByteBuf, u128)>,
        );
        let bytes = state::opened(bytes).ok_or("snapshot: it does not fit its digest")?;
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
        let listed = shards.iter().flatten();
        self.oldest = listed
            .filter_map(|(id, item)| Some((item.cas()?, *id)))
            .collect();
        self.shards = shards;
        self.undo = Undo::default();
        self.weight = self.counted();
        self.set_head(head);
        let sessions = sessions.into_iter();
        self.sessions = sessions
            .map(|(id, last)| (id, Session::new(last)))
            .collect();
        Ok(())
    }
}
