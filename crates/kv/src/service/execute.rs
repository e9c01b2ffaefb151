//! What comes out of the log is executed here, and what is digested goes to the vote.

use std::time::Instant;

use steadfast_crosscheck::{Digest, Index, Node, ObjectId, Recover, Standing, Tuple};
use steadfast_digest::crc32c;
use steadfast_fault::Passing;
use steadfast_group::Delivery;
use steadfast_group::sequencer::unstamped;

use super::submit::Unacked;
use super::{Body, Entry, Out, Reply, SCRUBS_KEPT, SHARDS, Service, Stage, deliver, local_ms};
use crate::news::News;
use crate::request::Request;
use crate::store::{self, Delta, How, Store};

/// Objects that had changed at rest, as they were found, that are remembered.
const AT_REST_MAX: usize = 64;

/// What an entry came to.
#[derive(Default)]
struct Done {
    replies: Vec<Vec<u8>>,
    /// What this replica kept of it, if it is its own.
    own: Option<Unacked>,
    recover: Option<Recover>,
}

impl Service {
    /// Executes what the log has delivered, up to an entry that waits for a repair.
    pub(super) fn execute(&mut self) {
        while let Some(delivery) = self.queue.pop_front() {
            match delivery {
                Delivery::Entry { index, mut bytes } => {
                    self.struck.bytes(Passing::Log, &mut bytes);
                    if !self.entry(Index(index), &mut bytes) {
                        self.queue.push_front(Delivery::Entry { index, bytes });
                        return;
                    }
                    self.executed = index;
                }
                Delivery::Members { index, members } => {
                    self.set_members(index, members);
                    self.executed = index;
                }
                Delivery::Blank { index } => self.executed = index,
                Delivery::Snapshot(want) => {
                    let index = Index(self.executed);
                    // What was executed without a voice nobody has agreed on.
                    if self.returning.is_some()
                        || self.is_unproven()
                        || self.core.standing(index) == Standing::Doubtful
                        || (self.stage == Stage::Rdgx && !self.store.is_whole())
                    {
                        let _ = want.send(None);
                    } else {
                        self.snapshots.push((index, self.store.snapshot(), want));
                    }
                }
                Delivery::Install {
                    index,
                    members,
                    bytes,
                    done,
                } => {
                    let restored = self.store.restore(&bytes);
                    if let Err(why) = &restored {
                        self.end(&format!("replica {} cannot use the state that it was given: {why}\n  fix:   the same version of steadfast in all replicas", self.slot));
                    }
                    self.core.installed(Index(index));
                    self.held.clear();
                    self.recovering.clear();
                    self.reads.restored(self.store.head());
                    // The first delivery of a process that resumes is the state that was found on disk.
                    if self.returning.is_none() || self.executed > 0 {
                        self.joined = "snapshot";
                    }
                    self.executed = index;
                    self.set_members(index, members);
                    let _ = done.send(restored);
                }
            }
        }
    }

    /// Executes one entry; false if it has to wait for a repair.
    fn entry(&mut self, index: Index, bytes: &mut Vec<u8>) -> bool {
        let (time_ms, body) = unstamped(bytes);
        let entry = opened(body);
        if !self.held.is_empty() && self.waits(entry.as_ref()) {
            return false;
        }
        self.counts.entries += 1;
        let mut delta = Delta::default();
        let time_ms = if self.stage == Stage::R {
            local_ms()
        } else {
            time_ms
        };
        let chain = store::chained(self.store.head().chain, index, bytes);
        if self.store.mend_weight() {
            self.say(
                &format!("replica {}: what all items weigh had changed while nobody used it, and was counted anew", self.slot),
                &News::Refreshed {
                    replica: self.slot,
                    object: "log:weight".to_owned(),
                },
            );
        }
        if self.votes() {
            self.store.begin(index.0);
        }
        self.store.enter(chain, time_ms, &mut delta);

        match &entry {
            Some(Entry {
                origin,
                body: Body::Requests(_),
                ..
            }) => drop(self.tell.insert(Node(*origin))),
            _ => self.tell_all = true,
        }
        let mut done = Done::default();
        match entry {
            None => {
                self.counts.poison += 1;
                // Where others find it whole the fault is here.
                delta.add(store::head_id(), true);
            }
            Some(entry) => {
                if self.store.admit(entry.origin, entry.sequence, &mut delta) {
                    done = self.admitted(index, entry, &mut delta);
                } else {
                    done.recover = self.repeated(entry);
                }
            }
        }
        self.store.leave();
        self.note_found(&mut delta);
        self.put_to_vote(index, std::mem::take(bytes), done, &delta);
        true
    }

    /// Whether what this process executes is voted on.
    fn votes(&self) -> bool {
        self.stage == Stage::Rdgx && self.is_member()
    }

    /// Runs an entry again, beside the state: what it comes to on the items as they were before it. Nothing where these are not known any
    /// more, or where it has no requests.
    pub(super) fn rerun(&self, index: Index) -> Option<Tuple> {
        let bytes = &self.out.get(&index)?.entry;
        let (time_ms, body) = unstamped(bytes);
        let Entry {
            origin,
            sequence,
            body: Body::Requests(requests),
        } = opened(body)?
        else {
            return None;
        };
        let mut store = self.store.before(index.0, &requests)?;
        let mut delta = Delta::default();
        let chain = store::chained(store.head().chain, index, bytes);
        store.enter(chain, time_ms, &mut delta);
        let mut replies = Vec::new();
        if store.admit(origin, sequence, &mut delta) {
            let run = requests.iter().map(|it| store.execute(it, &mut delta));
            replies = run.map(|reply| Digest::of(&reply)).collect();
        }
        store.leave();
        let objects = store.digests(&delta);
        Some(Tuple { objects, replies })
    }

    /// Remembers what had changed at rest, as it was found: the first request that touches it sees what hardware has made of it, the later
    /// ones what the first one has.
    fn note_found(&mut self, delta: &mut Delta) {
        if !self.at_rest.is_empty() {
            // A new value has taken its place.
            for id in delta.intact() {
                self.at_rest.remove(&id);
            }
        }
        for (id, found) in std::mem::take(&mut delta.found) {
            if self.at_rest.len() >= AT_REST_MAX {
                self.at_rest.pop_first();
            }
            self.at_rest.entry(id).or_insert(found);
        }
    }

    /// Executes what an entry says that is the next of its origin.
    fn admitted(&mut self, index: Index, entry: Entry, delta: &mut Delta) -> Done {
        let mut done = Done::default();
        if entry.origin == self.me.0 {
            done.own = self.unacked.remove(&entry.sequence);
            self.submitted_at = Instant::now();
            self.resubmits = 0;
            self.lost();
        }
        match entry.body {
            Body::Requests(requests) => {
                self.counts.requests += requests.len() as u64;
                done.replies = self.requests(index, requests, delta);
            }
            Body::Recover(order) => done.recover = Some(order),
            Body::Returned => self.returned(Node(entry.origin), index),
            Body::Scrub(from, to) => {
                let first = self.verify.as_ref().map_or(u64::MAX, |verify| verify.first);
                let own = done.own.as_ref();
                let verifies = own.is_some_and(|own| own.verify) && entry.sequence >= first;
                self.scrubbed(index, from, to, verifies, delta);
            }
        }
        done
    }

    fn requests(
        &mut self,
        index: Index,
        mut requests: Vec<Request>,
        delta: &mut Delta,
    ) -> Vec<Vec<u8>> {
        if let Some(request) = requests.first_mut() {
            self.struck.bytes(Passing::Run, request.struck());
        }
        let how = How {
            work: self.work,
            stops: self.stage == Stage::Rdg,
        };
        let outcomes = self.workers.execute(&mut self.store, requests, how, delta);
        let Some(outcomes) = outcomes else {
            self.end(&format!(
                "replica {} has lost a thread that executes, and the shards that it had",
                self.slot
            ));
        };
        let replies = outcomes.into_iter().map(|outcome| {
            outcome.unwrap_or_else(|struck| {
                self.corrupt(index, struck);
                b"SERVER_ERROR an object does not fit its digest\r\n".to_vec()
            })
        });
        replies.collect()
    }

    /// Everything in these shards is part of this entry's digests.
    fn scrubbed(&mut self, index: Index, from: u16, to: u16, verifies: bool, delta: &mut Delta) {
        let shards = usize::from(from).min(SHARDS)..usize::from(to).min(SHARDS);
        let single = shards.len() == 1;
        let found = self.store.scrub(shards, delta);
        if single {
            self.counts.scrubbed += found as u64;
            self.scrub_next = usize::from(to) % SHARDS;
            self.scrub_at = Instant::now();
            self.scrub_asked = None;
            self.scrubs.push_back(index);
            if self.scrubs.len() > SCRUBS_KEPT {
                self.scrubs.pop_front();
            }
        }
        if let Some(verify) = self.verify.as_mut().filter(|_| verifies) {
            verify.objects += found;
            verify.waits -= 1;
            verify.indexes.push(index);
        }
    }

    /// An entry that is not the next of its origin. An order to compare is followed all the same: the session that says so may be what is
    /// wrong here, and no other order would repair it.
    fn repeated(&mut self, entry: Entry) -> Option<Recover> {
        self.counts.duplicates += 1;
        if entry.origin == self.me.0 {
            self.lost();
            if entry.sequence <= self.store.last(entry.origin) {
                self.unacked.remove(&entry.sequence);
            }
        }
        match entry.body {
            Body::Recover(order) => Some(order),
            _ => None,
        }
    }

    /// Tells the callers of entries that were executed, and not by this replica as they came from here: its own copy was hit and the
    /// session repaired since, or a state that was taken over held them already. What is kept of them is submitted again in the next pause:
    /// if it is the session that was hit, they are still to be ordered.
    pub(super) fn lost(&mut self) {
        let last = self.store.last(self.me.0);
        for own in self.unacked.range_mut(..=last).map(|(_, own)| own) {
            if own.groups.is_empty() {
                continue;
            }
            self.counts.refused += 1;
            let why = "the request was executed, and this replica has lost its reply";
            deliver(std::mem::take(&mut own.groups), Err(why));
        }
    }

    /// What was executed goes to the vote, or to the callers where there is none.
    fn put_to_vote(&mut self, index: Index, entry: Vec<u8>, done: Done, delta: &Delta) {
        let Done {
            mut replies,
            own,
            recover,
        } = done;
        let groups = own.map(|own| own.groups).unwrap_or_default();
        let votes = self.votes();
        self.reads.executed(index, self.store.head(), delta, votes);
        if self.stage < Stage::Rdgx {
            deliver(groups, Ok(replies.into_iter().map(Reply::from).collect()));
            return;
        }
        if !self.is_member() {
            // What was agreed on before this process belonged to the group is not voted on again.
            self.core.missed();
            deliver(groups, Err("this replica is joining the group"));
            return;
        }
        let tuple = Tuple {
            objects: self.store.digests(delta),
            replies: replies.iter().map(|reply| Digest::of(reply)).collect(),
        };
        if !groups.is_empty() {
            self.struck.first(Passing::Replies, &mut replies);
        }
        let out = Out {
            entry,
            replies,
            groups,
        };
        self.out.insert(index, out);
        self.core.executed(index, tuple);
        if let Some(recover) = recover {
            let mut number = index.0.to_le_bytes();
            self.struck.bytes(Passing::Held, &mut number);
            let held = Index(u64::from_le_bytes(number));
            self.held.insert(held, recover.objects.clone());
            self.recovering
                .insert(index, (recover.cause, Instant::now()));
            self.core.recover(index, &recover, &self.store);
            self.core.repair();
        }
        self.act();
    }

    /// Whether an entry touches what a recovery holds back.
    fn waits(&self, entry: Option<&Entry>) -> bool {
        let held: Vec<ObjectId> = self.held.values().flatten().copied().collect();
        // Every entry changes the head, and its origin's session: what is fetched for them is what they were before it.
        if held.contains(&store::head_id())
            || entry.is_some_and(|entry| held.contains(&store::session_id(entry.origin)))
        {
            return true;
        }
        let shards: Vec<usize> = held.iter().map(|id| store::shard_of(*id)).collect();
        match entry {
            Some(Entry {
                body: Body::Requests(requests),
                ..
            }) if !held.is_empty() && self.store.may_evict(requests) => true,
            Some(Entry {
                body: Body::Requests(requests),
                ..
            }) => requests.iter().any(|request| {
                Store::shards_of(request)
                    .is_none_or(|touched| touched.iter().any(|shard| shards.contains(shard)))
            }),
            Some(Entry {
                body: Body::Scrub(..),
                ..
            }) => true,
            _ => false,
        }
    }
}

/// The entry, if it still fits the check that its origin made.
pub(super) fn opened(bytes: &[u8]) -> Option<Entry> {
    let (check, body) = bytes.split_first_chunk::<4>()?;
    if crc32c(body) != u32::from_le_bytes(*check) {
        return None;
    }
    postcard::from_bytes(body).ok()
}
