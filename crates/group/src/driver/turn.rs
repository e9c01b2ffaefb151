//! What a replica does with each thing that reaches it: the driver's state, turn by turn.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use serde::Serialize;
use steadfast_crosscheck::{Core, Digest, Index, Message, Node, ObjectId, Standing, To, Tuple};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::log::{Body, Book, Entry, Whole};
use super::proven::Comparison;
use super::{BATCH_MAX, Event, Machine, News, ReplyTo, Setup};
use crate::gate::{Gate, LetIn};
use crate::links::{Heard, Links};
use crate::peers::Peers;
use crate::sequencer::raft::Engine;
use crate::sequencer::{Delivery, Sequencer, unstamped};
use crate::who::Member;
use crate::wire::Post;

/// Own entries in the log at a time; what comes meanwhile is collected into the next one.
const IN_FLIGHT: usize = 8;
/// Entries that have not come out of the log after this are submitted again.
const RESUBMIT: Duration = Duration::from_millis(300);
/// A replica that has said nothing for so long is not waited for.
const SILENT: Duration = Duration::from_millis(1500);
/// Callers wait no longer than this for a reply: as long as an entry waits for its vote, 2,000 ticks of 4 ms.
const PATIENCE: Duration = Duration::from_secs(8);
/// The parts that a comparison of everything has.
pub(super) const PARTS: u8 = 64;

struct Unacked {
    bytes: Vec<u8>,
    callers: Vec<ReplyTo>,
    since: Instant,
}

impl Unacked {
    fn new(bytes: Vec<u8>, callers: Vec<ReplyTo>) -> Self {
        Self {
            bytes,
            callers,
            since: Instant::now(),
        }
    }
}

/// A state behind an entry, and who wants it.
type HandOut = (Index, Vec<u8>, oneshot::Sender<Option<Vec<u8>>>);

/// Replies that wait for the vote.
pub(super) struct Out {
    pub(super) replies: Vec<Vec<u8>>,
    pub(super) callers: Vec<ReplyTo>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    entries: u64,
    requests: u64,
    pub(super) mismatches: u64,
    pub(super) repairs: u64,
    pub(super) refused: u64,
    poison: u64,
    scrubbed: u64,
}

pub(super) struct Driver<M, S = Engine> {
    pub(super) me: Node,
    pub(super) slot: u64,
    pub(super) core: Core,
    pub(super) whole: Whole<M>,
    gate: Gate,
    pub(super) peers: Peers,
    /// For submissions: their way to a leader does not depend on who votes.
    forwards: Peers,
    pub(super) engine: S,
    /// Replicas that the group is set up with.
    pub(super) size: usize,
    /// Whether this process is a member.
    standing: watch::Sender<bool>,
    news: mpsc::UnboundedSender<News>,
    pub(super) members: BTreeMap<Node, Member>,
    queue: VecDeque<Delivery>,
    pub(super) held: HashSet<Index>,
    pub(super) recovering: HashMap<Index, Instant>,
    collecting: VecDeque<(Vec<u8>, ReplyTo, Instant)>,
    unacked: BTreeMap<u64, Unacked>,
    pub(super) next: u64,
    submitted_at: Instant,
    /// Times that own entries were sent again since one came out of the log.
    resubmits: u32,
    pub(super) out: HashMap<Index, Out>,
    heard_at: HashMap<Node, Instant>,
    /// States that wait to be agreed on before they are handed out.
    pub(super) snapshots: Vec<HandOut>,
    /// What was never voted on here is compared.
    pub(super) comparison: Option<Comparison>,
    /// When objects that do not fit their digests were compared last.
    pub(super) compared_at: Instant,
    pub(super) executed: u64,
    scrub_every: Option<Duration>,
    scrub_at: Instant,
    scrub_next: u8,
    pub(super) counts: Counts,
    /// Why this replica can answer nobody any more.
    pub(super) ended: Option<String>,
}

impl<M: Machine, S: Sequencer> Driver<M, S> {
    pub(super) fn new(
        setup: &Setup,
        machine: M,
        engine: S,
        links: Links,
        standing: watch::Sender<bool>,
        news: mpsc::UnboundedSender<News>,
    ) -> Self {
        let me = Node(setup.who.node);
        let parts = u32::from(PARTS);
        Self {
            me,
            slot: setup.who.slot,
            core: Core::new(me, setup.who.peers.len(), setup.epoch),
            whole: Whole {
                book: Book::default(),
                machine,
            },
            gate: Gate::new(setup.who.clone()),
            peers: Peers::new(me, links.clone()),
            forwards: Peers::new(me, links),
            engine,
            size: setup.who.peers.len(),
            standing,
            news,
            members: BTreeMap::new(),
            queue: VecDeque::new(),
            held: HashSet::new(),
            recovering: HashMap::new(),
            collecting: VecDeque::new(),
            unacked: BTreeMap::new(),
            next: 1,
            submitted_at: Instant::now(),
            resubmits: 0,
            out: HashMap::new(),
            heard_at: HashMap::new(),
            snapshots: Vec::new(),
            comparison: None,
            compared_at: Instant::now(),
            executed: 0,
            scrub_every: (setup.scrub_s > 0).then(|| Duration::from_secs(setup.scrub_s) / parts),
            scrub_at: Instant::now(),
            scrub_next: 0,
            counts: Counts::default(),
            ended: None,
        }
    }

    /// The log has delivered something.
    pub(super) fn delivered(&mut self, delivery: Delivery) {
        self.queue.push_back(delivery);
    }

    /// Something happened that a person may want to know.
    pub(super) fn tell(&mut self, news: &News) {
        self.whole.machine.told(news);
    }

    /// Everything that is there has been taken: executes it, votes, submits. Why this replica can answer nobody any more, if so.
    pub(super) fn turn(&mut self) -> Option<String> {
        self.execute();
        self.core.flush();
        self.act();
        self.submit_collected();
        self.ended.take()
    }

    pub(super) fn event(&mut self, event: Event) {
        match event {
            Event::Call(request, reply) => {
                self.collecting.push_back((request, reply, Instant::now()));
            }
            Event::Status(reply) => {
                let _ = reply.send(self.status());
            }
        }
    }

    pub(super) fn heard(&mut self, heard: Heard) {
        match heard {
            Heard::Alive(node, alive) => {
                if alive {
                    self.heard_at.insert(node, Instant::now());
                }
                self.core.set_alive(node, alive);
            }
            // Replicas with other types are not talked to.
            Heard::Epoch(..) => {}
            Heard::Meet(who, reply) => {
                let news = self.news.clone();
                let told = move |(replica, done): LetIn| {
                    let _ = news.send(News::Joined {
                        replica,
                        why_not: done.err(),
                    });
                };
                let heard = &self.heard_at;
                let alive = |node| is_alive(heard, node);
                let met = self
                    .gate
                    .meet(&who, &self.members, alive, &self.engine, told);
                let _ = reply.send(met);
            }
            Heard::Post(from, post) => {
                let last = self.heard_at.insert(from, Instant::now());
                if last.is_none_or(|last| last.elapsed() > SILENT) {
                    self.core.set_alive(from, true);
                }
                match post {
                    Post::Submit(bytes) => self.engine.submit(bytes),
                    Post::Vote(Message::FetchReplies { index }) => {
                        if let Some(out) = self.out.get(&index) {
                            let replies = out.replies.clone();
                            let answer = Post::Vote(Message::Replies { index, replies });
                            self.peers.send(To::One(from), &answer);
                        }
                    }
                    Post::Vote(message) => self.core.receive(from, message, &mut self.whole),
                    Post::Alive | Post::ReadIndex { .. } | Post::ReadAt { .. } => {}
                }
                self.act();
            }
        }
    }

    pub(super) fn forward(&mut self, to: Node, post: &Post) {
        let members = self.engine.members();
        if !members.is_empty() {
            self.forwards.set(&members);
        }
        self.forwards.send(To::One(to), post);
    }

    pub(super) fn is_member(&self) -> bool {
        self.members.contains_key(&self.me)
    }

    fn status(&self) -> String {
        let slot = |node: Node| self.members.get(&node).map(|member| member.slot);
        let alive: Vec<u64> = self
            .members
            .iter()
            .filter(|(node, _)| **node == self.me || is_alive(&self.heard_at, **node))
            .map(|(_, member)| member.slot)
            .collect();
        let repairing = self.core.is_repairing() || !self.held.is_empty();
        let leader = self.engine.leader().and_then(slot);
        serde_json::json!({
            "replica": self.slot, "ready": self.is_member() && leader.is_some() && !repairing, "leader": leader, "alive": alive,
            "executed": self.executed, "open": self.core.open(), "repairing": repairing, "objects": self.whole.machine.objects().len(),
            "counts": self.counts, "doubts": self.core.doubts(),
        })
        .to_string()
    }

    fn submit_collected(&mut self) {
        while !self.collecting.is_empty() && self.unacked.len() < IN_FLIGHT && self.is_member() {
            let taken = self.collecting.len().min(BATCH_MAX);
            let (requests, callers) = self
                .collecting
                .drain(..taken)
                .map(|(request, reply, _)| (serde_bytes::ByteBuf::from(request), reply))
                .unzip();
            self.submit(Body::Requests(requests), callers);
        }
    }

    pub(super) fn submit(&mut self, body: Body, callers: Vec<ReplyTo>) {
        let entry = Entry {
            origin: self.me.0,
            sequence: self.next,
            body,
        };
        let Some(bytes) = entry.sealed() else { return };
        if self.unacked.is_empty() {
            self.submitted_at = Instant::now();
        }
        self.engine.submit(bytes.clone());
        self.unacked.insert(self.next, Unacked::new(bytes, callers));
        self.next += 1;
    }

    /// Whoever executes entries in order waits for each number. One that was executed here alone, and undone by a repair since, is kept by
    /// nobody: an empty entry takes it.
    fn fill_gap(&mut self) {
        let Some(last) = self.whole.book.last(self.me.0) else {
            return;
        };
        for number in (last + 1..self.next).take(IN_FLIGHT) {
            let entry = Entry {
                origin: self.me.0,
                sequence: number,
                body: Body::Requests(Vec::new()),
            };
            if !self.unacked.contains_key(&number)
                && let Some(bytes) = entry.sealed()
            {
                self.unacked.insert(number, Unacked::new(bytes, Vec::new()));
            }
        }
    }

    /// Tells callers that they wait for too long: for an order, or for a repair that holds the log back here. What is in the log stays
    /// there, so it may still be executed; what was only collected is dropped.
    fn give_up(&mut self) {
        while let Some((.., since)) = self.collecting.front()
            && since.elapsed() >= PATIENCE
        {
            let late = self.collecting.pop_front().map(|(_, reply, _)| reply);
            self.counts.refused += 1;
            let why = "the request was not executed: no majority orders it";
            refuse(late.into_iter().collect(), why);
        }
        for own in self.unacked.values_mut() {
            if own.since.elapsed() >= PATIENCE && !own.callers.is_empty() {
                self.counts.refused += 1;
                let why = "the request has waited too long, and may still be executed";
                refuse(std::mem::take(&mut own.callers), why);
            }
        }
    }

    pub(super) fn tick(&mut self) {
        self.core.tick();
        self.give_up();
        if self.submitted_at.elapsed() > RESUBMIT * (1 << self.resubmits.min(4)) {
            self.submitted_at = Instant::now();
            self.fill_gap();
            // Where a repair holds the log back they have come, and each copy waits as well.
            self.resubmits = if self.held.is_empty() {
                0
            } else {
                self.resubmits + 1
            };
            for (sequence, unacked) in &mut self.unacked {
                if let Some(bytes) = Entry::mended(&unacked.bytes, self.me.0, *sequence) {
                    self.counts.refused += 1;
                    unacked.bytes = bytes;
                    let why = "the request was damaged on its way to the log";
                    refuse(std::mem::take(&mut unacked.callers), why);
                }
                self.engine.submit(unacked.bytes.clone());
            }
        }
        for (node, last) in &self.heard_at {
            if last.elapsed() > SILENT {
                self.core.set_alive(*node, false);
            }
        }
        self.hand_out();
        self.make_up();
        let due = self
            .scrub_every
            .is_some_and(|every| self.scrub_at.elapsed() >= every);
        if due && self.engine.is_leader() && self.unacked.is_empty() && !self.core.is_repairing() {
            self.scrub_at = Instant::now();
            self.submit(Body::Scrub(self.scrub_next), Vec::new());
        }
        let is_member = self.is_member();
        if let Some(slots) = self.gate.lost(is_member) {
            self.ended = Some(format!(
                "replicas {slots:?} have begun anew at the same time: the group has lost its majority, and with it what was stored\n  fix:   start this replica again: when all are new they found a group"
            ));
        }
    }

    /// Hands states out that f+1 replicas have by now agreed on; asks for another try where something in one is in doubt.
    fn hand_out(&mut self) {
        for (index, bytes, want) in std::mem::take(&mut self.snapshots) {
            match self.core.standing(index) {
                // A vote that ended before f+1 had spoken is no longer open, and nothing was agreed on.
                _ if self.core.is_unvoted() => drop(want.send(None)),
                Standing::Agreed => drop(want.send(Some(bytes))),
                Standing::Doubtful => drop(want.send(None)),
                Standing::Open => self.snapshots.push((index, bytes, want)),
            }
        }
    }

    /// Executes what the log has delivered, up to an entry that waits for a repair.
    fn execute(&mut self) {
        while let Some(delivery) = self.queue.pop_front() {
            match delivery {
                Delivery::Entry { index, bytes } => {
                    if !self.entry(Index(index), &bytes) {
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
                Delivery::Snapshot(want) => self.snapshot(want),
                Delivery::Install {
                    index,
                    members,
                    bytes,
                    done,
                } => {
                    let restored = self.whole.restore(&bytes);
                    self.core.installed(Index(index));
                    self.held.clear();
                    self.recovering.clear();
                    self.executed = index;
                    self.set_members(index, members);
                    let _ = done.send(restored);
                }
            }
        }
    }

    fn set_members(&mut self, index: u64, members: BTreeMap<Node, Member>) {
        let nodes: Vec<Node> = members.keys().copied().collect();
        let origins: Vec<u64> = nodes.iter().map(|node| node.0).collect();
        self.whole.book.keep(Index(index), &origins);
        self.core.set_members(&nodes, Index(index));
        self.heard_at.retain(|node, _| members.contains_key(node));
        self.peers.set(&members);
        self.gate.members_changed(&self.members, &members);
        self.members = members;
        self.standing.send_replace(self.is_member());
    }

    /// Executes one entry; false if it has to wait for a repair.
    fn entry(&mut self, index: Index, bytes: &[u8]) -> bool {
        let (time_ms, body) = unstamped(bytes);
        let entry = Entry::opened(body);
        // Not even an order to compare: every entry changes the head of the log and its origin's session, and what is fetched for them is
        // what they were before it.
        if !self.held.is_empty() {
            return false;
        }
        self.counts.entries += 1;
        self.whole.begin(index);
        let now_ms = self.whole.book.enter(index, bytes, time_ms);
        let mut replies = Vec::new();
        let mut callers = Vec::new();
        let mut recover = None;
        match entry {
            None => self.counts.poison += 1,
            Some(Entry {
                origin,
                sequence,
                body,
            }) => {
                let admitted = self.whole.book.admit(origin, sequence);
                if origin == self.me.0 {
                    callers = self.acked(sequence, admitted);
                    self.compared_part(sequence, index);
                }
                match body {
                    // Repeated or not: the session that says so may be what is wrong here, and no other order would repair it.
                    Body::Recover(order) => recover = Some(order),
                    _ if !admitted => {}
                    Body::Requests(requests) => {
                        self.counts.requests += requests.len() as u64;
                        let machine = &mut self.whole.machine;
                        replies.extend(requests.iter().map(|one| machine.execute(now_ms, one)));
                    }
                    Body::Scrub(part) => self.scrub(part),
                }
            }
        }
        let objects = self.whole.finish();
        if !self.is_member() {
            // What was agreed on before this process belonged to the group is not voted on again.
            self.core.missed();
            refuse(callers, "this replica is joining the group");
            return true;
        }
        let tuple = Tuple {
            objects,
            replies: replies.iter().map(|reply| Digest::of(reply)).collect(),
        };
        self.out.insert(index, Out { replies, callers });
        self.core.executed(index, tuple);
        if let Some(recover) = recover {
            self.held.insert(index);
            self.recovering.insert(index, Instant::now());
            self.core.recover(index, &recover, &self.whole);
            self.core.repair();
        }
        self.act();
        true
    }

    /// An own submission has come out of the log; who waits for its replies.
    fn acked(&mut self, sequence: u64, admitted: bool) -> Vec<ReplyTo> {
        let mut callers = Vec::new();
        if admitted {
            self.submitted_at = Instant::now();
            self.resubmits = 0;
            callers.extend(self.unacked.remove(&sequence).map(|own| own.callers));
        }
        // Executed before, and not by this replica as it came from here: it was hit in the queue, and the session repaired since.
        let Some(last) = self.whole.book.last(self.me.0) else {
            return callers.into_iter().flatten().collect();
        };
        let later = self.unacked.split_off(&(last + 1));
        for (_, own) in std::mem::replace(&mut self.unacked, later) {
            self.counts.refused += 1;
            refuse(
                own.callers,
                "the request was executed, and this replica has lost its reply",
            );
        }
        callers.into_iter().flatten().collect()
    }

    fn scrub(&mut self, part: u8) {
        let of = |id: &ObjectId| id.0 % u128::from(PARTS) == u128::from(part);
        for id in self.whole.objects().into_iter().filter(of) {
            self.whole.look(id);
            self.counts.scrubbed += 1;
        }
        self.scrub_next = (part + 1) % PARTS;
        self.scrub_at = Instant::now();
    }
}

fn is_alive(heard: &HashMap<Node, Instant>, node: Node) -> bool {
    heard.get(&node).is_some_and(|last| last.elapsed() < SILENT)
}

pub(super) fn refuse(callers: Vec<ReplyTo>, why: &'static str) {
    for caller in callers {
        let _ = caller.send(Err(why));
    }
}
