//! Several threads that execute one entry: a fixed number of shards, each with one owner.
//!
//! ```text
//!  requests of an entry ─┬─► a run of those that touch one shard each ──► shard s by thread s mod N, in the order of the entry
//!                        └─► one that touches several or all: by itself, when what stands before it is over
//! ```
//!
//! Invariants
//!  1. What an entry comes to is the same for any number of threads: replies, objects in their order, digests, cas numbers, weights.
//!  2. A shard is with one thread at a time: it is moved there and back, so nothing is shared and nothing is locked.
//!  3. What depends on all items is decided alone: a run that might need others' room, or more replies than an entry may have, is executed
//!     in one thread. A cas number counts the requests that may change something, not the changes.
//!
//! Not covered: entries side by side. Each one's vote needs the chain of all before it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use steadfast_crosscheck::ObjectId;

use super::execute::ENTRY_SAID_MAX;
use super::weight::Weight;
use super::{Delta, SHARDS, Shard, Store};
use crate::request::{Form, Request, VALUE_MAX};

/// Requests of one run, at most.
const RUN_MAX: usize = 64;
/// Flags of a meta command in a run, at most: with their keys they make its reply longer.
const FLAGS_MAX: usize = 16;
/// What such a reply may have beside its value.
const TAIL_MAX: usize = 8 << 10;
/// Bytes that the replies of one run may have.
const RUN_SAID_MAX: usize = RUN_MAX * (VALUE_MAX + TAIL_MAX);
const _: () = assert!(RUN_SAID_MAX < ENTRY_SAID_MAX, "a run has to fit an entry");

/// The reply to a request, or the object that it would have read and that does not fit its digest.
pub(crate) type Outcome = Result<Vec<u8>, ObjectId>;

/// What is done with each request beside its execution.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct How {
    /// It takes so much more; for benches.
    pub(crate) work: Duration,
    /// One that would read a struck object is not executed.
    pub(crate) stops: bool,
}

/// The shards of one owner, and what it has to do.
struct Share {
    store: Store,
    /// With their places in the run, and the cas number before each.
    requests: Vec<(usize, u64, Request)>,
    how: How,
}

/// The same shards, and what came of it.
struct Done {
    store: Store,
    outcomes: Vec<(usize, Outcome, Delta)>,
}

/// The threads that execute beside the one that owns the store.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    others: Vec<(Sender<Share>, Receiver<Done>)>,
    /// Requests that several threads have executed side by side.
    spread: u64,
}

impl Workers {
    /// `count` owners of shards, the caller among them.
    pub(crate) fn start(count: usize) -> std::io::Result<Self> {
        let others = (1..count).map(|number| {
            let (shares, to_do) = channel::<Share>();
            let (done, over) = channel();
            std::thread::Builder::new()
                .name(format!("execute-{number}"))
                .spawn(move || {
                    for share in to_do {
                        if done.send(share.carry_out()).is_err() {
                            break;
                        }
                    }
                })?;
            Ok((shares, over))
        });
        Ok(Self {
            others: others.collect::<std::io::Result<_>>()?,
            spread: 0,
        })
    }

    /// How many threads execute, this one among them.
    pub(crate) fn count(&self) -> usize {
        self.others.len() + 1
    }

    /// Requests that several of them have executed side by side.
    pub(crate) fn spread(&self) -> u64 {
        self.spread
    }

    /// Executes the requests of an entry, in its order. Nothing if a thread is gone, and its shards with it.
    pub(crate) fn execute(
        &mut self,
        store: &mut Store,
        requests: Vec<Request>,
        how: How,
        delta: &mut Delta,
    ) -> Option<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(requests.len());
        let mut run = Vec::new();
        for request in requests {
            match only_shard(&request).filter(|_| !self.others.is_empty()) {
                Some(shard) => {
                    run.push((shard, request));
                    if run.len() == RUN_MAX {
                        self.run(store, std::mem::take(&mut run), how, delta, &mut outcomes)?;
                    }
                }
                None => {
                    self.run(store, std::mem::take(&mut run), how, delta, &mut outcomes)?;
                    outcomes.push(how.execute(store, &request, delta));
                }
            }
        }
        self.run(store, run, how, delta, &mut outcomes)?;
        Some(outcomes)
    }

    /// Executes requests that touch one shard each, all shards at a time.
    fn run(
        &mut self,
        store: &mut Store,
        run: Vec<(usize, Request)>,
        how: How,
        delta: &mut Delta,
        outcomes: &mut Vec<Outcome>,
    ) -> Option<()> {
        if run.is_empty() {
            return Some(());
        }
        let owners = self.count();
        let count = run.len();
        let mut shares: Vec<Vec<(usize, u64, Request)>> = (0..owners).map(|_| Vec::new()).collect();
        let is_free = store.is_free_for(run.iter().map(|(_, request)| request));
        let (before, mut cas) = (store.weight, store.head.cas);
        for (place, (shard, request)) in run.into_iter().enumerate() {
            // In one thread if they are not free of each other.
            let owner = if is_free { shard % owners } else { 0 };
            let numbers = request.numbers();
            shares[owner].push((place, cas, request));
            cas = cas.saturating_add(numbers);
        }
        if shares.iter().filter(|share| !share.is_empty()).count() < 2 {
            let all = shares.iter().flatten();
            outcomes.extend(all.map(|(_, _, request)| how.execute(store, request, delta)));
            return Some(());
        }
        self.spread += count as u64;
        let mut shares = shares.into_iter().enumerate();
        let (_, own) = shares.next()?;
        let mut busy = Vec::new();
        for (owner, requests) in shares.filter(|(_, requests)| !requests.is_empty()) {
            let share = Share {
                store: store.part(owner, owners),
                requests,
                how,
            };
            self.others[owner - 1].0.send(share).ok()?;
            busy.push(owner);
        }
        let own = Share {
            store: store.part(0, owners),
            requests: own,
            how,
        };
        let mut done = vec![(0, own.carry_out())];
        for owner in busy {
            done.push((owner, self.others[owner - 1].1.recv().ok()?));
        }
        let mut parts = Vec::with_capacity(count);
        for (owner, done) in done {
            store.join(done.store, owner, owners, before);
            parts.extend(done.outcomes);
        }
        store.head.cas = cas;
        parts.sort_unstable_by_key(|(place, _, _)| *place);
        for (_, outcome, touched) in parts {
            store.said += outcome.as_ref().map_or(0, Vec::len);
            delta.append(touched);
            outcomes.push(outcome);
        }
        Some(())
    }
}

impl Share {
    fn carry_out(self) -> Done {
        let Self {
            mut store,
            requests,
            how,
        } = self;
        let outcomes = requests.iter().map(|(place, cas, request)| {
            let mut delta = Delta::default();
            store.head.cas = *cas;
            let outcome = how.execute(&mut store, request, &mut delta);
            (*place, outcome, delta)
        });
        Done {
            outcomes: outcomes.collect(),
            store,
        }
    }
}

impl How {
    fn execute(self, store: &mut Store, request: &Request, delta: &mut Delta) -> Outcome {
        if self.stops
            && let Some(id) = store.suspect(request)
        {
            // Its place in the log is used up all the same.
            store.head.cas = store.head.cas.saturating_add(request.numbers());
            return Err(id);
        }
        let reply = store.execute(request, delta);
        if !self.work.is_zero() {
            let began = Instant::now();
            while began.elapsed() < self.work {
                std::hint::spin_loop();
            }
        }
        Ok(reply)
    }
}

/// The shard that a request touches, if it is one, and its reply one value at most.
fn only_shard(request: &Request) -> Option<usize> {
    let is_short = match request {
        Request::Get { keys, .. } => keys.len() == 1,
        Request::Store { form, .. }
        | Request::Delete { form, .. }
        | Request::Count { form, .. }
        | Request::Touch { form, .. }
        | Request::MetaGet { form, .. }
        | Request::Stale { form, .. }
        | Request::Debug { form, .. }
        | Request::TooLarge { form, .. } => match form {
            Form::Meta { flags, .. } => {
                let length: usize = flags.iter().map(String::len).sum();
                flags.len() <= FLAGS_MAX && length <= TAIL_MAX / 2
            }
            Form::Text | Form::Silent => true,
        },
        Request::Flush { .. } | Request::Restore { .. } => false,
    };
    match Store::shards_of(request).filter(|_| is_short)?.as_slice() {
        [shard] => Some(*shard),
        _ => None,
    }
}

impl Store {
    /// Whether none of these requests can be refused, or drive an item out, by what the others do.
    fn is_free_for<'a>(&self, requests: impl Iterator<Item = &'a Request>) -> bool {
        self.said + RUN_SAID_MAX <= ENTRY_SAID_MAX
            && self.weight.sum.saturating_add(Self::adds(requests)) <= self.bytes_max
    }

    /// The shards of one owner, as a store of their own.
    fn part(&mut self, owner: usize, owners: usize) -> Self {
        let mut part = Self::new(self.guard, self.bytes_max, self.evicts);
        self.exchange(&mut part, owner, owners);
        part.head = self.head;
        part.weight = self.weight;
        part.said = self.said;
        part.moved = Some(Vec::new());
        part.undo = self.undo.part();
        part
    }

    /// Takes them back; `before` is what all items weighed then.
    fn join(&mut self, mut part: Self, owner: usize, owners: usize, before: Weight) {
        self.exchange(&mut part, owner, owners);
        for (is_new, cas, id) in part.moved.into_iter().flatten() {
            if is_new {
                self.oldest.insert((cas, id));
            } else {
                self.oldest.remove(&(cas, id));
            }
        }
        self.weight.join(part.weight, before);
        self.undo.join(part.undo);
    }

    fn exchange(&mut self, part: &mut Self, owner: usize, owners: usize) {
        let own = (owner..SHARDS).step_by(owners);
        for shard in own {
            let here: &mut Shard = &mut self.shards[shard];
            std::mem::swap(here, &mut part.shards[shard]);
        }
    }
}

impl Delta {
    /// What a later request has touched.
    fn append(&mut self, later: Self) {
        for (id, found) in later.found {
            if !self.seen.contains(&id.0) {
                self.found.push((id, found));
            }
        }
        for (id, passive) in later.touched {
            self.add(id, passive);
        }
    }
}
