//! A simulated group: the real [`Core`] over a small service, a log and a network made of a seed, with faults of every class.
//!
//! The oracle is the same log executed without faults. No reply that leaves any replica may differ from it, and once nothing is under way
//! every object of every replica must be what it says there.
//!
//! Invariants
//!  1. The same [`Plan`] gives the same [`Outcome`].
//!  2. A fault strikes one replica, and no object is wrong in two replicas at a time: beyond that the group promises nothing.
//!
//! Not covered: transport. A message's CRC would catch most of the flips that strike one here.

mod faults;
mod replace;
mod service;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::core::{Action, Core, Objects, refresh};
use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Recover, To};

pub use self::faults::Class;
use self::service::{Entry, Request, Store};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Replicas, an odd number.
    pub size: usize,
    /// Everything random comes from it.
    pub seed: u64,
    /// Entries of the log.
    pub entries: u64,
    /// Requests in each.
    pub batch: usize,
    /// A fault in one of so many steps; 0 for none.
    pub fault_one_in: u64,
    /// Which faults.
    pub classes: Vec<Class>,
    /// One replica stops answering half way through.
    pub crash: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Replies that left, over all replicas.
    pub released: u64,
    /// Replies that left and were wrong.
    pub wrong: u64,
    /// Replies for which the client got an error instead.
    pub refused: u64,
    /// Faults that were made, by class.
    pub faults: BTreeMap<&'static str, u64>,
    /// Objects that were repaired.
    pub repaired: u64,
    /// Recoveries that went through the log.
    pub recoveries: u64,
    /// Mismatches that replicas saw.
    pub mismatches: u64,
    /// Entries that a replica has run again, since no vote decided what they came to.
    pub reruns: u64,
    /// Replicas that nobody could repair, each followed by a fresh process.
    pub replaced: u64,
    /// Entries whose replies never left, or objects that are wrong in the end: described.
    pub left: Vec<String>,
}

/// A random source good enough for a simulation: SplitMix64.
#[derive(Debug, Clone)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }
}

struct Replica {
    node: Node,
    core: Core,
    store: Store,
    /// The same entries without faults.
    shadow: Store,
    next: usize,
    held: BTreeMap<Index, Vec<ObjectId>>,
    replies: BTreeMap<Index, Vec<Vec<u8>>>,
    crashed: bool,
    /// From which entry on it has a voice.
    since: Option<Index>,
    /// It is a fresh process that has none yet.
    joins: bool,
}

impl Replica {
    fn new(node: Node, size: usize) -> Self {
        Self {
            node,
            core: Core::new(node, size, 1),
            store: Store::default(),
            shadow: Store::default(),
            next: 0,
            held: BTreeMap::new(),
            replies: BTreeMap::new(),
            crashed: false,
            since: None,
            joins: false,
        }
    }

    fn described(&self) -> String {
        format!(
            "{}: next {}, held {:?}, {:?}",
            self.node,
            self.next,
            self.held,
            self.core.doubts()
        )
    }
}

/// The whole group.
struct Group {
    plan: Plan,
    dice: Dice,
    replicas: Vec<Replica>,
    log: Vec<Entry>,
    /// What each entry's replies are without faults.
    right: Vec<Vec<Vec<u8>>>,
    model: Store,
    network: BTreeMap<(usize, usize), VecDeque<Message>>,
    outcome: Outcome,
    released: Vec<BTreeSet<u64>>,
    /// Which replica's object was struck, and how long the log was when it was right again.
    struck: BTreeMap<u64, (usize, Option<usize>)>,
    keys: u64,
    /// How many entries everybody has to have executed before the next one is computed wrongly, where a replica has crashed.
    computed: usize,
    /// How many processes there have been.
    born: u64,
    /// Who does nothing, and until when.
    silent: Option<(usize, u64)>,
    /// Whose REPAIRs are struck, and where.
    receiver: Option<(usize, u64)>,
    steps: u64,
}

/// Runs a plan to its end.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let mut group = Group::new(plan.clone());
    group.all();
    group.outcome
}

impl Group {
    fn new(plan: Plan) -> Self {
        let nodes: Vec<Node> = (1..=plan.size as u64).map(Node).collect();
        let replicas = nodes
            .iter()
            .map(|node| {
                let mut replica = Replica::new(*node, plan.size);
                replica.core.set_members(&nodes, Index(0));
                replica.core.keeps_undo();
                replica.since = Some(Index(0));
                replica
            })
            .collect();
        Self {
            dice: Dice(plan.seed),
            released: vec![BTreeSet::new(); plan.size],
            replicas,
            log: Vec::new(),
            right: Vec::new(),
            model: Store::default(),
            network: BTreeMap::new(),
            struck: BTreeMap::new(),
            outcome: Outcome::default(),
            keys: 40,
            computed: 0,
            born: plan.size as u64,
            silent: None,
            receiver: None,
            steps: 0,
            plan,
        }
    }

    fn all(&mut self) {
        let mut appended = 0;
        let mut crashed = false;
        while appended < self.plan.entries {
            self.steps += 1;
            self.speak(self.steps);
            let behind = (0..self.plan.size)
                .filter(|who| !self.replicas[*who].crashed && !self.is_silent(*who))
                .map(|who| self.log.len() - self.replicas[who].next)
                .max()
                .unwrap_or(0);
            // A crash beside an object that is wrong would be two faults at once: it waits until all is done.
            let waits = self.plan.crash && !crashed && appended >= self.plan.entries / 2;
            if behind < 24 && !waits && self.dice.below(3) == 0 {
                appended += 1;
                self.append();
            }
            if waits {
                self.sweep();
                crashed = true;
                self.crash(0);
            }
            if self.joining() {
                let fresh = self.dice.below(self.plan.size);
                let donor = self.dice.below(self.plan.size);
                self.join(fresh, donor);
            }
            self.step();
            if !waits
                && self.plan.fault_one_in > 0
                && self.dice.next().is_multiple_of(self.plan.fault_one_in)
            {
                self.fault();
            }
            if self.steps > 2000 * self.plan.entries + 100_000 {
                let doubts: Vec<_> = self.replicas.iter().map(Replica::described).collect();
                self.outcome.left.push(format!(
                    "no progress: {:?}, {} entries, {doubts:?}",
                    self.plan,
                    self.log.len(),
                ));
                return;
            }
        }
        self.sweep();
        self.judge();
    }

    /// Everything is compared, so that what nobody has touched since it was struck is found.
    fn sweep(&mut self) {
        self.settle();
        let objects: Vec<ObjectId> = (0..self.keys).map(|key| ObjectId(key.into())).collect();
        self.log.push(Entry::Recover(Recover {
            cause: Index(0),
            objects,
        }));
        self.right.push(Vec::new());
        self.settle();
    }

    fn append(&mut self) {
        let requests: Vec<Request> = (0..self.plan.batch).map(|_| self.request()).collect();
        let (_, replies) = self.model.execute(&requests);
        self.right.push(replies);
        self.log.push(Entry::Batch(requests));
    }

    fn request(&mut self) -> Request {
        let key = self.dice.next() % self.keys;
        let value = self.dice.next().to_le_bytes()[..1 + self.dice.below(8)].to_vec();
        match self.dice.below(8) {
            0..2 => Request::Put(key, value),
            2 => Request::Append(key, value),
            3 => Request::Delete(key),
            _ => Request::Get(key),
        }
    }

    fn crash(&mut self, who: usize) {
        if self.replicas[who].crashed {
            return;
        }
        self.replicas[who].crashed = true;
        let node = self.replicas[who].node;
        for replica in &mut self.replicas {
            replica.core.set_alive(node, false);
        }
        for other in 0..self.plan.size {
            self.act(other);
        }
    }

    fn is_silent(&self, who: usize) -> bool {
        self.silent.is_some_and(|(silent, _)| silent == who)
    }

    /// One thing happens: an entry is executed, a message arrives, or time passes.
    fn step(&mut self) {
        let who = self.dice.below(self.plan.size);
        if self.is_silent(who) {
            return;
        }
        match self.dice.below(16) {
            0 => {
                let replica = &mut self.replicas[who];
                if !replica.crashed {
                    replica.core.tick();
                }
            }
            1..6 => self.execute(who, None),
            _ => self.deliver(who),
        }
        self.act(who);
    }

    /// Runs the next entry, unless it waits for a repair. A struck one runs with its request changed.
    fn execute(&mut self, who: usize, flip: Option<u64>) {
        let replica = &mut self.replicas[who];
        if replica.crashed || replica.next >= self.log.len() {
            return;
        }
        let index = Index(replica.next as u64 + 1);
        let votes = replica.since.is_some();
        match &self.log[replica.next] {
            Entry::Members(nodes) => {
                let nodes = nodes.clone();
                self.members(who, index, &nodes);
            }
            // Without a voice it is not asked about anything.
            Entry::Recover(_) if !votes => {}
            Entry::Recover(recover) => {
                replica.held.insert(index, recover.objects.clone());
                replica.core.recover(index, recover, &replica.store);
                replica.core.repair();
                if who == 0 {
                    self.outcome.recoveries += 1;
                }
            }
            Entry::Batch(requests) => {
                let held = |request: &Request| {
                    let (Request::Put(key, _)
                    | Request::Append(key, _)
                    | Request::Get(key)
                    | Request::Delete(key)) = request;
                    replica
                        .held
                        .values()
                        .flatten()
                        .any(|id| id.0 == u128::from(*key))
                };
                if requests.iter().any(held) {
                    return;
                }
                let mut requests = requests.clone();
                let _ = replica.shadow.execute(&requests);
                if let Some(flip) = flip {
                    let at = usize::try_from(flip).unwrap_or(0) % requests.len();
                    let bit = flip >> 8;
                    match &mut requests[at] {
                        Request::Put(_, value) | Request::Append(_, value) if bit & 1 == 0 => {
                            value[0] ^= 1 << (bit % 8)
                        }
                        Request::Put(key, _)
                        | Request::Append(key, _)
                        | Request::Get(key)
                        | Request::Delete(key) => {
                            *key = (*key ^ (1 << (bit % 5))) % self.keys;
                        }
                    }
                }
                replica.store.enter(index);
                let (tuple, replies) = replica.store.execute(&requests);
                if votes {
                    replica.replies.insert(index, replies);
                    replica.core.executed(index, tuple);
                }
            }
        }
        self.replicas[who].next += 1;
        if self.dice.below(3) == 0 {
            self.replicas[who].core.flush();
        }
    }

    fn deliver(&mut self, to: usize) {
        let from = self.dice.below(self.plan.size);
        if self.is_empty(from, to) {
            // Nothing came, so nothing else is waiting: what is there is sent.
            if !self.replicas[to].crashed {
                self.replicas[to].core.flush();
            }
        } else {
            self.deliver_from(from, to);
        }
    }

    fn is_empty(&self, from: usize, to: usize) -> bool {
        self.network.get(&(from, to)).is_none_or(VecDeque::is_empty)
    }

    /// Does what a replica's core asks for.
    fn act(&mut self, who: usize) {
        let mut runs_again = false;
        for action in self.replicas[who].core.actions() {
            match action {
                Action::Send(to, message) => {
                    for other in 0..self.plan.size {
                        let meant = match to {
                            To::All => true,
                            To::One(node) => self.replicas[other].node == node,
                        };
                        if other != who && meant && !self.replicas[other].crashed {
                            let mut message = message.clone();
                            if let Some((_, bit)) = self.receiver.filter(|(it, _)| *it == other)
                                && self.outcome.replaced == 0
                            {
                                faults::spoil(&mut message, bit);
                            }
                            let queue = self.network.entry((who, other)).or_default();
                            queue.push_back(message);
                        }
                    }
                }
                Action::Release(index, digests) => {
                    let replies = self.replicas[who]
                        .replies
                        .get(&index)
                        .cloned()
                        .unwrap_or_default();
                    let fits = replies.len() == digests.len()
                        && replies
                            .iter()
                            .zip(&digests)
                            .all(|(r, d)| Digest::of(r) == *d);
                    if fits {
                        self.leave(who, index, &replies);
                    } else {
                        self.outcome.refused += 1;
                        self.released[who].insert(index.0);
                    }
                }
                Action::ReleaseWith(index, replies) => {
                    let own = self.replicas[who]
                        .replies
                        .get(&index)
                        .cloned()
                        .unwrap_or_default();
                    let replies: Vec<(Vec<u8>, Digest)> = replies
                        .into_iter()
                        .enumerate()
                        .map(|(k, (reply, digest))| {
                            let reply = reply.or_else(|| own.get(k).cloned());
                            (reply.unwrap_or_default(), digest)
                        })
                        .collect();
                    if replies
                        .iter()
                        .all(|(reply, digest)| Digest::of(reply) == *digest)
                    {
                        let replies: Vec<_> = replies.into_iter().map(|(reply, _)| reply).collect();
                        self.leave(who, index, &replies);
                    } else {
                        self.outcome.refused += 1;
                        self.released[who].insert(index.0);
                    }
                }
                Action::Undecided(index) => {
                    self.outcome.refused += 1;
                    self.released[who].insert(index.0);
                }
                Action::Rerun(index) => {
                    self.rerun(who, index);
                    runs_again = true;
                }
                Action::Forget(index) => {
                    let replica = &mut self.replicas[who];
                    replica.replies.remove(&index);
                    let first = replica.core.first_open();
                    replica.store.forget(first.unwrap_or(Index(u64::MAX)));
                }
                Action::Order(recover) => {
                    self.log.push(Entry::Recover(recover));
                    self.right.push(Vec::new());
                }
                Action::Repaired { .. } => self.outcome.repaired += 1,
                Action::Refresh(object, digest) => {
                    refresh(&mut self.replicas[who].store, object, digest);
                }
                Action::Resume(index) => {
                    self.replicas[who].held.remove(&index);
                }
                Action::Mismatch(_) => self.outcome.mismatches += 1,
                Action::Blame { .. } => {}
                // Told anew for as long as it lasts; what never ends is seen by `judge`.
                Action::Stuck(..) => {}
                Action::Replace(node, _) => {
                    if node == self.replicas[who].node {
                        return self.end(who);
                    }
                }
            }
        }
        if runs_again {
            self.act(who);
        }
    }

    /// Runs an entry again, on what its objects were before it.
    fn rerun(&mut self, who: usize, index: Index) {
        self.outcome.reruns += 1;
        let at = usize::try_from(index.0 - 1).unwrap_or(0);
        let replica = &mut self.replicas[who];
        let tuple = match &self.log[at] {
            Entry::Batch(requests) => Some(replica.store.before(index).execute(requests).0),
            _ => None,
        };
        replica.core.reran(index, tuple.as_ref());
    }

    /// Whether the replies of this entry have to leave a replica.
    fn answers(&self, who: usize, at: usize) -> bool {
        let index = Index(at as u64 + 1);
        matches!(self.log[at], Entry::Batch(_))
            && self.replicas[who].since.is_some_and(|since| since < index)
    }

    fn leave(&mut self, who: usize, index: Index, replies: &[Vec<u8>]) {
        let at = usize::try_from(index.0 - 1).unwrap_or(0);
        if !self.released[who].insert(index.0) {
            self.outcome
                .left
                .push(format!("entry {index} left replica {who} twice"));
        }
        self.outcome.released += replies.len() as u64;
        let right = &self.right[at];
        if right.len() != replies.len() || right.iter().zip(replies).any(|(a, b)| a != b) {
            self.outcome.wrong += 1;
        }
    }

    /// Runs until nothing is under way, or for so long that something is stuck.
    fn settle(&mut self) {
        self.speak(u64::MAX);
        for round in 0..4000 {
            for who in 0..self.plan.size {
                for from in 0..self.plan.size {
                    self.join(who, from);
                    while !self.is_empty(from, who) {
                        self.deliver_from(from, who);
                        self.act(who);
                    }
                }
                for _ in 0..64 {
                    self.execute(who, None);
                    self.act(who);
                }
                let replica = &mut self.replicas[who];
                if !replica.crashed {
                    replica.core.flush();
                    replica.core.tick();
                }
                self.act(who);
            }
            let quiet = !self.joining()
                && self.network.values().all(VecDeque::is_empty)
                && self.replicas.iter().filter(|r| !r.crashed).all(|r| {
                    r.next == self.log.len() && r.held.is_empty() && !r.core.is_repairing()
                });
            let left = (0..self.plan.size).all(|who| {
                self.replicas[who].crashed
                    || (0..self.log.len()).all(|at| {
                        !self.answers(who, at) || self.released[who].contains(&(at as u64 + 1))
                    })
            });
            if quiet && left && round > 20 {
                break;
            }
        }
    }

    fn deliver_from(&mut self, from: usize, to: usize) {
        let Some(message) = self
            .network
            .get_mut(&(from, to))
            .and_then(VecDeque::pop_front)
        else {
            return;
        };
        let sender = self.replicas[from].node;
        if self.replicas[to].crashed {
            return;
        }
        if let Message::FetchReplies { index } = &message
            && let Some(replies) = self.replicas[to].replies.get(index).cloned()
        {
            let index = *index;
            self.network
                .entry((to, from))
                .or_default()
                .push_back(Message::Replies { index, replies });
        }
        let replica = &mut self.replicas[to];
        replica.core.receive(sender, message, &mut replica.store);
    }

    fn judge(&mut self) {
        if self.joining() {
            let left = "a fresh process has no voice".to_owned();
            self.outcome.left.push(left);
        }
        for (who, replica) in self.replicas.iter().enumerate() {
            if replica.crashed {
                continue;
            }
            for at in 0..self.log.len() {
                if self.answers(who, at) && !self.released[who].contains(&(at as u64 + 1)) {
                    self.outcome.left.push(format!(
                        "entry {} never left replica {who}: {:?}",
                        at + 1,
                        replica.core.doubts()
                    ));
                }
            }
            for key in 0..self.keys {
                let id = ObjectId(key.into());
                if replica.store.pack(id) != self.model.pack(id) {
                    self.outcome
                        .left
                        .push(format!("object {key} is wrong in replica {who}"));
                } else if !replica.store.intact(id) {
                    self.outcome.left.push(format!(
                        "the digest of object {key} is wrong in replica {who}"
                    ));
                }
            }
        }
    }
}
