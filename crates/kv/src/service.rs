//! One replica's engine room: a task that executes the log, votes, and lets replies go.
//!
//! ```text
//!  connections ──► collecting ──► submit ──► log ──► queue ──► execute ──► vote ──► Release ──► connections
//!                                             │                  │          ▲
//!  peers ◄──────────────── CHECK, DETAIL ... ─┼──────────────────┴──────────┘
//! ```
//!
//! Invariants
//!  1. One task owns store and vote: nothing here is shared.
//!  2. At stage RDGX a reply leaves only after `Release`, and only if its bytes still have the digest that was voted for.
//!  3. A process that is no member yet neither submits nor votes, and hands its state to nobody before f+1 replicas have agreed on it.
//!  4. Submissions of one replica are numbered, kept until they come out of the log, and executed once, in order.
//!
//! Reads beside the log: `reads`.

mod backup;
mod own;
mod reads;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_crosscheck::{
    Action, Core, Digest, Index, Message, Node, ObjectId, Recover, Standing, To, Tuple,
};
use steadfast_group::gate::{Gate, LetIn};
use steadfast_group::sequencer::first_sequence;
use steadfast_group::sequencer::raft::{Engine, unstamped};
use steadfast_group::{Delivery, Heard, Member, Met, Peers, Post, ReadAt, Sequencer as _, Who};
use steadfast_integrity::digest::crc32c;
use steadfast_sys::manager::Manager;
use tokio::sync::{mpsc, oneshot, watch};

use crate::protocol::Request;
use crate::reads::Modes;
use crate::store::{self, Delta, SHARDS, Store};

use self::reads::Reads;

/// How digests are made; replicas of another epoch are not compared with. To be raised with every change of an object's bytes.
pub(crate) const EPOCH: u16 = 1;
/// Own entries in the log at a time; what comes meanwhile is collected into the next one.
const IN_FLIGHT: usize = 8;
/// Requests in one entry.
const BATCH_MAX: usize = 512;
/// Entries that have not come out of the log after this are submitted again.
const RESUBMIT: Duration = Duration::from_millis(300);
/// A replica that has said nothing for so long is not waited for.
const SILENT: Duration = Duration::from_millis(1500);
/// Entries that one comparison of everything is split into.
const VERIFY_PARTS: usize = 16;
const SHARDS_U32: u32 = 256;
const _: () = assert!(SHARDS_U32 as usize == SHARDS, "one number, two types");
/// An order that the log has not delivered after this is given again.
const LOST: Duration = Duration::from_secs(5);
/// Entries that may have come and not been executed while a replica still counts as ready.
const BEHIND_MAX: u64 = 2000;
/// Comparisons by the clock that are remembered, to tell what they found from what a request found.
const SCRUBS_KEPT: usize = 64;
/// What whoever does not know the secret is told.
const NOT_ALLOWED: &str = "ERROR requirement: the group's secret; found: another one, or none; fix: --secret-file FILE, as serve has it";
/// How long a replica that is drained waits for what is under way.
const DRAIN: Duration = Duration::from_secs(5);

/// How much of the protection is on: the paper's stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
#[clap(rename_all = "UPPER")]
pub(crate) enum Stage {
    /// Replication alone, each replica with its own clock.
    R,
    /// And deterministic execution.
    Rd,
    /// And digests of objects, checked at each access.
    Rdg,
    /// And the vote before replies leave, and repair.
    Rdgx,
}

impl Stage {
    /// As it is written on the command line.
    pub(crate) fn word(self) -> String {
        format!("{self:?}").to_uppercase()
    }
}

/// What an entry of the log says.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    origin: u64,
    sequence: u64,
    body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
enum Body {
    Requests(Vec<Request>),
    Recover(Recover),
    /// Everything in these shards is compared.
    Scrub(u16, u16),
    /// The origin was started again with its log, and votes from here on.
    Returned,
}

/// Where the replies of one group go, or why there are none.
pub(crate) type ReplyTo = oneshot::Sender<Result<Vec<Reply>, &'static str>>;
/// How many replies go where.
type Waiting = Vec<(usize, ReplyTo)>;
/// A state behind an entry, and who wants it.
type HandOut = (Index, Vec<u8>, oneshot::Sender<Option<Vec<u8>>>);

/// The bytes of one reply, and the digest that was voted for; none at a stage without a vote.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) voted: Option<Digest>,
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, voted: None }
    }
}

/// Requests of one connection that were sent together, and where their replies go.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) requests: Vec<Request>,
    pub(crate) reply: ReplyTo,
}

/// What reaches the task.
#[derive(Debug)]
pub(crate) enum Event {
    Group(Group),
    /// Another replica has spoken.
    Heard(Heard),
    Own(String, String, oneshot::Sender<String>),
    /// The replicas agree on a state that is to be fetched, or do not.
    Agreed(Option<Vec<u8>>, oneshot::Sender<String>),
    /// The own engine has said what reads must have seen; for another replica, if it asked.
    ReadAt(Option<Node>, u64, Option<ReadAt>),
}

impl From<Heard> for Event {
    fn from(heard: Heard) -> Self {
        Self::Heard(heard)
    }
}

struct Unacked {
    bytes: Vec<u8>,
    groups: Waiting,
    verify: bool,
}

/// Replies that wait for the vote.
struct Out {
    replies: Vec<Vec<u8>>,
    groups: Waiting,
}

struct Verify {
    waits: usize,
    indexes: Vec<Index>,
    objects: usize,
    repaired: u64,
    found: Vec<String>,
    began: Instant,
    reply: oneshot::Sender<String>,
}

#[derive(Debug, Default, Serialize)]
struct Counts {
    entries: u64,
    requests: u64,
    mismatches: u64,
    repairs: u64,
    refused: u64,
    duplicates: u64,
    poison: u64,
    local: u64,
    /// Sent to each of the others, frames included.
    check_bytes: u64,
    /// Repairs of objects that changed while nobody used them.
    passive: u64,
    /// Repairs in which one bit was wrong.
    single_bit: u64,
    /// Objects that the scrubber has compared.
    scrubbed: u64,
    /// Objects that it found different, in any replica.
    scrub_found: u64,
}

/// The task's state.
pub(crate) struct Service {
    me: Node,
    slot: u64,
    stage: Stage,
    allow_strikes: bool,
    json: bool,
    size: usize,
    core: Core,
    store: Store,
    engine: Engine,
    peers: Peers,
    members: BTreeMap<Node, Member>,
    queue: VecDeque<Delivery>,
    held: HashMap<Index, Vec<ObjectId>>,
    recovering: HashMap<Index, (Index, Instant)>,
    mismatch_at: BTreeMap<Index, Instant>,
    collecting: Vec<Group>,
    collected: usize,
    unacked: BTreeMap<u64, Unacked>,
    next: u64,
    submitted_at: Instant,
    out: HashMap<Index, Out>,
    heard: HashMap<Node, Instant>,
    verify: Option<Verify>,
    /// States that wait to be agreed on before they are handed out.
    snapshots: Vec<HandOut>,
    /// One that is being fetched for a backup.
    fetched: Option<backup::Fetched>,
    secret: u128,
    /// How this process has come to the state: by the log alone, by what it had on disk, or by another replica's state.
    joined: &'static str,
    counts: Counts,
    started: Instant,
    executed: u64,
    /// What answers those that look for a group; nothing in a group of `--local`.
    gate: Option<Gate>,
    /// Whether this process is a member.
    standing: watch::Sender<bool>,
    drain: Option<Drain>,
    /// Until f+1 replicas vote, this one among them.
    returning: Option<Return>,
    /// Whether the log is on disk.
    durable: bool,
    epoch: u16,
    /// Between two shards; nothing if the scrubber is off.
    scrub_every: Option<Duration>,
    scrub_next: usize,
    scrub_at: Instant,
    /// One that was ordered and has not been executed.
    scrub_asked: Option<Instant>,
    scrubs: VecDeque<Index>,
    notify: Manager,
    /// The bit of the next reply that is to flip behind its last check.
    strike_reply: Option<usize>,
    /// Whose clients wait for this replica's digests.
    tell: BTreeSet<Node>,
    tell_all: bool,
    reads: Reads,
    events: mpsc::WeakUnboundedSender<Event>,
}

/// A process that was started again with a log: which of the others vote decides when it takes requests.
#[derive(Debug, Default)]
struct Return {
    /// Marks up to this entry are of earlier lives.
    last: u64,
    asked: bool,
    /// Its mark has come out of the log.
    back: bool,
    voters: BTreeSet<Node>,
}

/// A replica that takes no more requests.
struct Drain {
    since: Instant,
    handed_on: Option<Instant>,
    replies: Vec<oneshot::Sender<String>>,
}

/// How a replica is set up.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) me: Node,
    pub(crate) slot: u64,
    pub(crate) size: usize,
    pub(crate) stage: Stage,
    pub(crate) allow_strikes: bool,
    pub(crate) json: bool,
    pub(crate) bytes_max: u64,
    pub(crate) snapshot_every: u64,
    /// Known to the processes of one group: who has it is one of them.
    pub(crate) secret: u128,
    /// Seconds in which everything is compared once; 0 for never.
    pub(crate) scrub_s: u64,
    pub(crate) reads: Modes,
    /// How digests are made.
    pub(crate) epoch: u16,
    /// How often a process with this node number has been started before; 0 without a directory.
    pub(crate) starts: u64,
    /// The last entry of the log that this one goes on with.
    pub(crate) resumes: Option<u64>,
    pub(crate) who: Option<Who>,
}

impl Service {
    pub(crate) fn new(
        setup: &Setup,
        engine: Engine,
        peers: Peers,
        standing: watch::Sender<bool>,
        events: mpsc::WeakUnboundedSender<Event>,
    ) -> Self {
        let scrub = setup.stage == Stage::Rdgx && setup.scrub_s > 0;
        Self {
            me: setup.me,
            slot: setup.slot,
            stage: setup.stage,
            allow_strikes: setup.allow_strikes,
            json: setup.json,
            size: setup.size,
            core: Core::new(setup.me, setup.size, setup.epoch.into()),
            store: Store::new(setup.stage >= Stage::Rdgx, setup.bytes_max),
            engine,
            peers,
            members: BTreeMap::new(),
            queue: VecDeque::new(),
            held: HashMap::new(),
            recovering: HashMap::new(),
            mismatch_at: BTreeMap::new(),
            collecting: Vec::new(),
            collected: 0,
            unacked: BTreeMap::new(),
            next: first_sequence(setup.starts),
            submitted_at: Instant::now(),
            out: HashMap::new(),
            heard: HashMap::new(),
            verify: None,
            snapshots: Vec::new(),
            fetched: None,
            secret: setup.secret,
            joined: if setup.resumes.is_some() {
                "disk"
            } else {
                "log"
            },
            counts: Counts::default(),
            started: Instant::now(),
            executed: 0,
            gate: setup.who.clone().map(Gate::new),
            standing,
            drain: None,
            durable: setup.starts > 0,
            epoch: setup.epoch,
            returning: setup.resumes.map(|last| Return {
                last,
                ..Return::default()
            }),
            scrub_every: scrub.then(|| Duration::from_secs(setup.scrub_s) / SHARDS_U32),
            scrub_next: 0,
            scrub_at: Instant::now(),
            scrub_asked: None,
            scrubs: VecDeque::new(),
            notify: Manager::from_environment(),
            strike_reply: None,
            tell: BTreeSet::new(),
            tell_all: false,
            reads: Reads::new(setup.reads),
            events,
        }
    }

    /// Runs until everybody who could send is gone.
    pub(crate) async fn run(
        mut self,
        mut events: mpsc::UnboundedReceiver<Event>,
        mut log: mpsc::UnboundedReceiver<Delivery>,
    ) {
        let mut ticks = tokio::time::interval(Duration::from_millis(4));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                delivery = log.recv() => match delivery {
                    Some(delivery) => self.queue.push_back(delivery),
                    None => return,
                },
                event = events.recv() => match event {
                    Some(event) => self.event(event),
                    None => return,
                },
                _ = ticks.tick() => {
                    self.tell_all = true;
                    self.tick();
                }
            }
            // Whatever else is there already belongs to the same turn, and so to the same CHECK and the same entry.
            for _ in 0..4 * BATCH_MAX {
                if let Ok(delivery) = log.try_recv() {
                    self.queue.push_back(delivery);
                } else if let Ok(event) = events.try_recv() {
                    self.event(event);
                } else {
                    break;
                }
            }
            self.execute();
            self.act();
            if self.stage == Stage::Rdgx {
                // Whose clients wait is told at once; the others with the next tick, unless something differs.
                for node in std::mem::take(&mut self.tell) {
                    self.core.flush_to(node);
                }
                if std::mem::take(&mut self.tell_all) {
                    self.core.flush();
                }
                self.act();
            }
            self.reads_turn();
            self.submit_collected();
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Group(group) if self.drain.is_some() => {
                let _ = group
                    .reply
                    .send(Err("this replica is draining: use another one"));
            }
            Event::Group(group) if self.is_alone() => {
                let _ = group.reply.send(Err(
                    "this replica is of a version that too few others have: use another one",
                ));
            }
            Event::Group(group) => {
                let Some(group) = self.read(group) else {
                    return;
                };
                self.collected += group.requests.len();
                self.collecting.push(group);
                if self.collected >= BATCH_MAX {
                    self.submit_collected();
                }
            }
            Event::Heard(Heard::Alive(node, alive)) => {
                if alive {
                    self.heard.insert(node, Instant::now());
                }
                self.core.set_alive(node, alive);
            }
            Event::Heard(Heard::Post(from, post)) => {
                if self
                    .heard
                    .insert(from, Instant::now())
                    .is_none_or(|last| last.elapsed() > SILENT)
                {
                    self.core.set_alive(from, true);
                }
                match post {
                    Post::Alive => {}
                    Post::Submit(bytes) => self.engine.submit(bytes),
                    Post::ReadIndex { ticket } => self.look_up(Some(from), ticket),
                    Post::ReadAt { ticket, at } => self.read_at(ticket, at),
                    Post::Vote(Message::FetchReplies { index }) => {
                        if let Some(out) = self.out.get(&index) {
                            let replies = out.replies.clone();
                            self.peers.send(
                                To::One(from),
                                &Post::Vote(Message::Replies { index, replies }),
                            );
                        }
                    }
                    Post::Vote(message) => {
                        if let Some(again) = &mut self.returning
                            && matches!(message, Message::Check { .. })
                        {
                            again.voters.insert(from);
                        }
                        self.core.receive(from, message, &mut self.store);
                    }
                }
                self.act();
            }
            Event::Heard(Heard::Epoch(node, epoch)) => {
                self.core.set_comparable(node, epoch == self.epoch);
                self.act();
            }
            Event::Own(word, rest, reply) => self.own(&word, &rest, reply),
            Event::Heard(Heard::Meet(who, reply)) => {
                let _ = reply.send(self.meet(&who));
            }
            Event::Agreed(bytes, reply) => self.agreed(bytes, reply),
            Event::ReadAt(None, ticket, at) => self.read_at(ticket, at),
            Event::ReadAt(Some(asker), ticket, at) => {
                self.peers
                    .send(To::One(asker), &Post::ReadAt { ticket, at });
            }
        }
    }

    /// A process that belongs to no group asks about this one's.
    fn meet(&mut self, other: &Who) -> Met {
        let Some(mut gate) = self.gate.take() else {
            return Met::Refused("this is a group of --local".to_owned());
        };
        let json = self.json;
        let told = move |(slot, done): LetIn| match done {
            Ok(took) => {
                let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
                crate::say::line(
                    json,
                    &format!(
                        "replica {slot} is a fresh process and belongs to the group after {took_ms} ms"
                    ),
                    &serde_json::json!({"event": "joined", "replica": slot, "took_ms": took_ms}),
                );
            }
            Err(why) => crate::say::line(
                json,
                &format!("replica {slot} could not be let in: {why}"),
                &serde_json::json!({"event": "not_joined", "replica": slot, "why": why}),
            ),
        };
        let met = gate.meet(
            other,
            &self.members,
            |node| self.alive(node),
            &self.engine,
            told,
        );
        self.gate = Some(gate);
        met
    }

    fn alive(&self, node: Node) -> bool {
        self.heard
            .get(&node)
            .is_some_and(|last| last.elapsed() < SILENT)
    }

    fn end(&self, why: &str) -> ! {
        let json = serde_json::json!({"event": "ended", "replica": self.slot, "why": why});
        self.say(why, &json);
        std::process::exit(steadfast_integrity::exit::Own::Setup.code().into());
    }

    /// Ends where the group can never agree on anything again: more than f of its processes have been followed by new ones.
    fn end_if_lost(&mut self) {
        let is_member = self.is_member();
        let Some(slots) = self.gate.as_mut().and_then(|gate| gate.lost(is_member)) else {
            return;
        };
        let (lost, fix) = if self.durable {
            (
                "",
                "bring the others back with their --data; or stop all, and steadfast kv restore a backup",
            )
        } else {
            (
                ", and with it what was stored",
                "start it again (systemd does): when all are new they found a group",
            )
        };
        self.say(
            &format!(
                "replicas {slots:?} have begun anew at the same time: the group has lost its majority{lost}; replica {} ends\n  fix:   {fix}",
                self.slot
            ),
            &serde_json::json!({"event": "lost", "replica": self.slot, "fresh": slots}),
        );
        std::process::exit(steadfast_integrity::exit::Own::Setup.code().into());
    }

    /// Why this replica should not be given requests, if so.
    fn unready(&self) -> Option<&'static str> {
        if !self.is_member() || self.returning.is_some() {
            Some("joining")
        } else if self.is_alone() {
            Some("mixed")
        } else if self.drain.is_some() {
            Some("draining")
        } else if self.engine.leader().is_none() {
            Some("no leader")
        } else if self.core.is_repairing() || !self.held.is_empty() {
            Some("repairing")
        } else if self.engine.behind(self.executed) > BEHIND_MAX {
            Some("behind")
        } else {
            None
        }
    }

    /// Orders the comparison of the next shard when it is due. Only the leader does; the others know by the log where it is.
    fn scrub(&mut self) {
        let due = self
            .scrub_every
            .is_some_and(|every| self.scrub_at.elapsed() >= every);
        // An order is lost with the leader that had it.
        let asked = self.scrub_asked.is_some_and(|at| at.elapsed() < LOST);
        if due
            && !asked
            && self.engine.is_leader()
            && self.is_member()
            && !self.core.is_repairing()
            && self.unacked.len() < IN_FLIGHT
        {
            self.scrub_asked = Some(Instant::now());
            let shard = u16::try_from(self.scrub_next).unwrap_or(0);
            self.submit(Body::Scrub(shard, shard + 1), Vec::new(), false);
        }
    }

    /// Whether nothing of this replica's clients is under way any more.
    fn drained(&mut self) {
        let others: Vec<Node> = self
            .members
            .keys()
            .copied()
            .filter(|node| *node != self.me && self.alive(*node))
            .collect();
        let leads = self.engine.is_leader();
        let idle = self.unacked.is_empty()
            && self.reads_are_idle()
            && self.out.values().all(|out| out.groups.is_empty());
        let Some(drain) = &mut self.drain else { return };
        let again = drain
            .handed_on
            .is_none_or(|at| at.elapsed() > Duration::from_secs(1));
        if leads
            && again
            && idle
            && let Some(to) = others.first()
        {
            drain.handed_on = Some(Instant::now());
            self.engine.transfer(*to);
        }
        let answer = if idle && (!leads || others.is_empty()) {
            "DRAINED"
        } else if drain.since.elapsed() > DRAIN {
            "ERROR some requests are still under way, or nobody takes the lead"
        } else {
            return;
        };
        for reply in drain.replies.drain(..) {
            let _ = reply.send(answer.to_owned());
        }
    }

    /// Whether fewer than f+1 members make digests as this one does, so that it has nobody to vote with.
    fn is_alone(&self) -> bool {
        self.stage == Stage::Rdgx && self.is_member() && self.core.comparable() <= self.size / 2
    }

    /// Whether this process has a voice. One that was started again has none before its mark: about what it executes until then the others
    /// have voted long ago.
    fn is_member(&self) -> bool {
        self.members.contains_key(&self.me)
            && self.returning.as_ref().is_none_or(|again| again.back)
    }

    /// Asks for a place in the log from which on this process, started again, votes; takes requests once f+1 replicas vote.
    fn come_back(&mut self) {
        let quorum = self.size / 2 + 1;
        let leads = self.engine.leader().is_some();
        let Some(again) = &mut self.returning else {
            return;
        };
        if again.back && again.voters.len() >= quorum {
            self.returning = None;
        } else if leads && !again.asked {
            again.asked = true;
            self.submit(Body::Returned, Vec::new(), false);
        }
    }

    /// The mark of a process that was started again has come out of the log.
    fn returned(&mut self, node: Node, index: Index) {
        self.core.returned(node, index);
        if let Some(again) = &mut self.returning
            && index.0 > again.last
        {
            again.back |= node == self.me;
            again.voters.insert(node);
        }
        self.standing.send_replace(self.is_member());
    }

    fn submit_collected(&mut self) {
        while !self.collecting.is_empty()
            && self.unacked.len() < IN_FLIGHT
            && self.is_member()
            && self.returning.is_none()
        {
            let mut requests = Vec::new();
            let mut groups = Vec::new();
            let mut taken = 0;
            for group in &self.collecting {
                if taken > 0 && requests.len() + group.requests.len() > BATCH_MAX {
                    break;
                }
                requests.extend(group.requests.iter().cloned());
                taken += 1;
            }
            for group in self.collecting.drain(..taken) {
                self.collected -= group.requests.len();
                groups.push((group.requests.len(), group.reply));
            }
            self.submit(Body::Requests(requests), groups, false);
        }
    }

    fn submit(&mut self, body: Body, groups: Waiting, verify: bool) {
        let entry = Entry {
            origin: self.me.0,
            sequence: self.next,
            body,
        };
        let Ok(mut bytes) = postcard::to_extend(&entry, vec![0; 4]) else {
            return;
        };
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        if self.unacked.is_empty() {
            self.submitted_at = Instant::now();
        }
        self.unacked.insert(
            self.next,
            Unacked {
                bytes: bytes.clone(),
                groups,
                verify,
            },
        );
        self.next += 1;
        self.engine.submit(bytes);
    }

    fn tick(&mut self) {
        if self.stage == Stage::Rdgx {
            self.core.tick();
        }
        if !self.unacked.is_empty() && self.submitted_at.elapsed() > RESUBMIT {
            self.submitted_at = Instant::now();
            for unacked in self.unacked.values() {
                self.engine.submit(unacked.bytes.clone());
            }
        }
        for (node, last) in &self.heard {
            if last.elapsed() > SILENT {
                self.core.set_alive(*node, false);
            }
        }
        while self.mismatch_at.len() > 4096 {
            self.mismatch_at.pop_first();
        }
        self.come_back();
        self.verified();
        self.hand_out();
        self.forget_fetched();
        self.scrub();
        self.drained();
        self.end_if_lost();
        let unready = self.unready();
        self.notify
            .tick(unready.is_none(), unready.unwrap_or("ready"));
    }

    /// Hands states out that f+1 replicas have by now agreed on; asks for another try where something in one is in doubt.
    fn hand_out(&mut self) {
        for (index, bytes, want) in std::mem::take(&mut self.snapshots) {
            match self.core.standing(index) {
                Standing::Agreed => {
                    let _ = want.send(Some(bytes));
                }
                Standing::Doubtful => {
                    let _ = want.send(None);
                }
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
                Delivery::Snapshot(want) => {
                    let index = Index(self.executed);
                    if self.core.standing(index) == Standing::Doubtful {
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

    fn set_members(&mut self, index: u64, members: BTreeMap<Node, Member>) {
        let nodes: Vec<Node> = members.keys().copied().collect();
        let origins: Vec<u64> = nodes.iter().map(|node| node.0).collect();
        self.store.keep_sessions(&origins);
        self.core.set_members(&nodes, Index(index));
        self.heard.retain(|node, _| members.contains_key(node));
        self.peers.set(&members);
        if let Some(gate) = &mut self.gate {
            gate.members_changed(&self.members, &members);
        }
        self.members = members;
        self.standing.send_replace(self.is_member());
    }

    /// Executes one entry; false if it has to wait for a repair.
    fn entry(&mut self, index: Index, bytes: &[u8]) -> bool {
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
        self.store.enter(chain, time_ms, &mut delta);

        let mut replies: Vec<Vec<u8>> = Vec::new();
        let mut acked = None;
        let mut recover = None;
        match &entry {
            Some(Entry {
                origin,
                body: Body::Requests(_),
                ..
            }) => {
                self.tell.insert(Node(*origin));
            }
            _ => self.tell_all = true,
        }
        match entry {
            None => self.counts.poison += 1,
            Some(Entry {
                origin,
                sequence,
                body,
            }) => {
                if self.store.admit(origin, sequence, &mut delta) {
                    if origin == self.me.0 {
                        acked = self.unacked.remove(&sequence);
                        self.submitted_at = Instant::now();
                    }
                    match body {
                        Body::Requests(requests) => {
                            self.counts.requests += requests.len() as u64;
                            for request in &requests {
                                if self.stage == Stage::Rdg
                                    && let Some(id) = self.store.suspect(request)
                                {
                                    self.corrupt(index, id);
                                    replies.push(
                                        b"SERVER_ERROR an object does not fit its digest\r\n"
                                            .to_vec(),
                                    );
                                } else {
                                    replies.push(self.store.execute(request, &mut delta));
                                }
                            }
                        }
                        Body::Recover(order) => recover = Some(order),
                        Body::Returned => self.returned(Node(origin), index),
                        Body::Scrub(from, to) => {
                            let shards = usize::from(from).min(SHARDS)..usize::from(to).min(SHARDS);
                            let single = shards.len() == 1;
                            let found = self.store.scrub(shards, &mut delta);
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
                            if let Some(verify) = &mut self.verify
                                && acked.as_ref().is_some_and(|own| own.verify)
                            {
                                verify.objects += found;
                                verify.waits -= 1;
                                verify.indexes.push(index);
                            }
                        }
                    }
                } else {
                    self.counts.duplicates += 1;
                    // Executed before, and not by this replica as it came from here: its own copy of the entry was hit, or a state
                    // that was taken over held it already.
                    if origin == self.me.0
                        && sequence <= self.store.last(origin)
                        && let Some(own) = self.unacked.remove(&sequence)
                    {
                        self.counts.refused += 1;
                        deliver(
                            own.groups,
                            Err("the request was executed, and this replica has lost its reply"),
                        );
                    }
                }
            }
        }
        let groups = acked.map(|own| own.groups).unwrap_or_default();
        let votes = self.stage == Stage::Rdgx && self.is_member();
        self.reads.executed(index, self.store.head(), &delta, votes);
        if self.stage < Stage::Rdgx {
            deliver(groups, Ok(replies.into_iter().map(Reply::from).collect()));
            return true;
        }
        if !self.is_member() {
            // What was agreed on before this process belonged to the group is not voted on again.
            deliver(groups, Err("this replica is joining the group"));
            return true;
        }
        let tuple = Tuple {
            objects: self.store.digests(&delta),
            replies: replies.iter().map(|reply| Digest::of(reply)).collect(),
        };
        self.out.insert(index, Out { replies, groups });
        self.core.executed(index, tuple);
        if let Some(recover) = recover {
            self.held.insert(index, recover.objects.clone());
            self.recovering
                .insert(index, (recover.cause, Instant::now()));
            self.core.recover(index, &recover, &self.store);
            self.core.repair();
        }
        self.act();
        true
    }

    /// Whether an entry touches what a recovery holds back.
    fn waits(&self, entry: Option<&Entry>) -> bool {
        let held: Vec<ObjectId> = self.held.values().flatten().copied().collect();
        if held.contains(&store::head_id()) {
            return !matches!(
                entry,
                Some(Entry {
                    body: Body::Recover(_),
                    ..
                })
            );
        }
        let shards: Vec<usize> = held.iter().map(|id| store::shard_of(*id)).collect();
        match entry {
            Some(Entry {
                body: Body::Requests(requests),
                origin,
                ..
            }) => {
                held.contains(&store::session_id(*origin))
                    || requests.iter().any(|request| {
                        Store::shards_of(request).is_none_or(|touched| {
                            touched.iter().any(|shard| shards.contains(shard))
                        })
                    })
            }
            Some(Entry {
                body: Body::Scrub(..),
                ..
            }) => true,
            _ => false,
        }
    }

    /// Does what the vote asks for.
    fn act(&mut self) {
        loop {
            let actions = self.core.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.action(action);
            }
        }
    }

    fn action(&mut self, action: Action) {
        match action {
            Action::Send(to, message) => {
                let check = matches!(message, Message::Check { .. });
                let bytes = self.peers.send(to, &Post::Vote(message));
                if check {
                    self.counts.check_bytes += bytes as u64;
                }
            }
            Action::Release(index, digests) => {
                self.note_won(index);
                let digests = digests.into_iter().map(|digest| (None, digest)).collect();
                self.release(index, digests);
            }
            Action::ReleaseWith(index, replies) => self.release(index, replies),
            Action::Undecided(index) => {
                self.counts.refused += 1;
                if let Some(out) = self.out.get_mut(&index) {
                    deliver(
                        std::mem::take(&mut out.groups),
                        Err("the replicas disagree"),
                    );
                }
            }
            Action::Forget(index) => {
                self.reads.forgotten(index);
                if let Some(out) = self.out.remove(&index) {
                    deliver(out.groups, Err("the vote took too long"));
                }
            }
            Action::Order(recover) => self.submit(Body::Recover(recover), Vec::new(), false),
            Action::Mismatch(index) => {
                self.counts.mismatches += 1;
                self.tell_all = true;
                self.mismatch_at.entry(index).or_insert_with(Instant::now);
            }
            Action::Blame {
                index,
                nodes,
                objects,
            } => self.blame(index, &nodes, &objects),
            Action::Repaired {
                index,
                object,
                was,
                is,
                passive,
                source,
            } => {
                self.repaired(
                    index,
                    object,
                    was.as_deref(),
                    is.as_deref(),
                    passive,
                    source,
                );
            }
            Action::Resume(index) => {
                self.held.remove(&index);
                self.recovering.remove(&index);
                self.execute();
            }
            Action::Stuck(index, objects) => {
                let names: Vec<String> = objects.iter().map(|id| self.name(*id, None)).collect();
                self.say(
                    &format!("replica {}: no majority for {} at entry {index}: requests for them wait", self.slot, names.join(", ")),
                    &serde_json::json!({"event": "stuck", "replica": self.slot, "entry": index.0, "objects": names}),
                );
            }
            Action::Replace(node, why) => {
                let slot = self
                    .members
                    .get(&node)
                    .map_or(self.slot, |member| member.slot);
                self.say(
                    &format!("replica {slot} is to be replaced: {why}"),
                    &serde_json::json!({"event": "replace", "replica": slot, "why": why}),
                );
                // Its place is taken by a fresh process; what this one holds cannot be trusted.
                if node == self.me {
                    std::process::exit(steadfast_integrity::exit::Own::Mismatch.code().into());
                }
            }
        }
    }

    /// Lets replies go, if they are still what was voted for.
    fn release(&mut self, index: Index, voted: Vec<(Option<Vec<u8>>, Digest)>) {
        let Some(out) = self.out.get_mut(&index) else {
            return;
        };
        let groups = std::mem::take(&mut out.groups);
        if groups.is_empty() {
            return;
        }
        let replies: Vec<Vec<u8>> = voted
            .iter()
            .enumerate()
            .map(|(k, (reply, _))| {
                reply
                    .clone()
                    .or_else(|| out.replies.get(k).cloned())
                    .unwrap_or_default()
            })
            .collect();
        // Between its vote and the socket a reply is only bytes in memory.
        let right = replies
            .iter()
            .zip(&voted)
            .all(|(reply, (_, digest))| Digest::of(reply) == *digest);
        if right {
            let mut replies: Vec<Reply> = replies
                .into_iter()
                .zip(&voted)
                .map(|(bytes, (_, digest))| Reply {
                    bytes,
                    voted: Some(*digest),
                })
                .collect();
            if let Some(bit) = self.strike_reply
                && let Some(reply) = replies.iter_mut().find(|reply| !reply.bytes.is_empty())
            {
                self.strike_reply = None;
                let at = bit % (reply.bytes.len() * 8);
                reply.bytes[at / 8] ^= 1 << (at % 8);
            }
            deliver(groups, Ok(replies));
        } else {
            self.counts.refused += 1;
            deliver(groups, Err("a reply was corrupted after its vote"));
        }
    }

    fn name(&self, id: ObjectId, packed: Option<&[u8]>) -> String {
        if id == store::head_id() {
            return "log:head".to_owned();
        }
        if let Some(node) = self
            .members
            .keys()
            .find(|node| store::session_id(node.0) == id)
        {
            return format!("session:{node}");
        }
        let own = steadfast_crosscheck::Objects::pack(&self.store, id);
        match packed.or(own.as_deref()).and_then(store::key_in) {
            Some(key) => crate::once::name(&key).unwrap_or_else(|| format!("item:{key}")),
            None => format!("object:{id}"),
        }
    }

    fn blame(&mut self, index: Index, nodes: &[Node], objects: &[ObjectId]) {
        let slots: Vec<u64> = nodes
            .iter()
            .filter_map(|node| self.members.get(node))
            .map(|member| member.slot)
            .collect();
        let names: Vec<String> = objects.iter().map(|id| self.name(*id, None)).collect();
        if let Some(verify) = &mut self.verify
            && verify.indexes.contains(&index)
        {
            for name in &names {
                verify.found.push(format!("replica {slots:?} {name}"));
            }
        }
        let scrub = self.scrubs.contains(&index);
        if scrub {
            self.counts.scrub_found += objects.len() as u64;
        }
        // Everybody knows; one says it: the first of those that are right.
        let speaks = self.members.keys().find(|node| !nodes.contains(node)) == Some(&self.me);
        if self.json && speaks {
            self.say(
                "",
                &serde_json::json!({"event": "mismatch", "entry": index.0, "wrong": slots, "objects": names, "scrub": scrub}),
            );
        }
    }

    fn corrupt(&mut self, index: Index, id: ObjectId) {
        self.counts.local += 1;
        let name = self.name(id, None);
        self.say(
            &format!("replica {} found {name} changed while nobody used it, at entry {index}", self.slot),
            &serde_json::json!({"event": "corrupt", "replica": self.slot, "entry": index.0, "object": name}),
        );
    }

    /// One line for one repair: what a person has to know to look for the hardware behind it.
    fn repaired(
        &mut self,
        index: Index,
        id: ObjectId,
        was: Option<&[u8]>,
        is: Option<&[u8]>,
        passive: bool,
        source: Node,
    ) {
        self.counts.repairs += 1;
        let (cause, ordered) = self
            .recovering
            .get(&index)
            .copied()
            .unwrap_or((index, Instant::now()));
        let since = self.mismatch_at.get(&cause).copied().unwrap_or(ordered);
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let took_us = us(since.elapsed());
        // From the mismatch to the recovery's place in the log, and from there to the right bytes.
        let ordered_us = us(ordered.saturating_duration_since(since));
        let moved_us = us(ordered.elapsed());
        self.counts.passive += u64::from(passive);
        let cpu = rustix::thread::sched_getcpu();
        let source = self
            .members
            .get(&source)
            .map_or(source.0, |member| member.slot);
        let name = self.name(id, is.or(was));
        let kind = if passive { "at rest" } else { "while in use" };
        let mut json = serde_json::json!({
            "event": "repaired", "replica": self.slot, "object": name, "entry": cause.0, "passive": passive,
            "cpu": cpu, "took_us": took_us, "ordered_us": ordered_us, "moved_us": moved_us, "source": source,
        });
        let what = match (was, is) {
            (Some(was), Some(is)) if was.len() == is.len() => {
                let wrong: Vec<usize> = (0..was.len()).filter(|at| was[*at] != is[*at]).collect();
                let bits: u32 = wrong
                    .iter()
                    .map(|at| (was[*at] ^ is[*at]).count_ones())
                    .sum();
                let at = wrong.first().copied().unwrap_or(0);
                let place = store::place(is, at);
                let xor = was.get(at).zip(is.get(at)).map_or(0, |(a, b)| a ^ b);
                json["field"] = place.field.into();
                json["byte"] = place.byte.into();
                json["bit"] = xor.trailing_zeros().into();
                json["bits"] = bits.into();
                self.counts.single_bit += u64::from(bits == 1);
                if bits == 1 {
                    format!(
                        "{} byte {} bit {} had flipped",
                        place.field,
                        place.byte,
                        xor.trailing_zeros()
                    )
                } else {
                    format!(
                        "{bits} bits in {} bytes were wrong, the first in {} byte {}",
                        wrong.len(),
                        place.field,
                        place.byte
                    )
                }
            }
            (Some(_), None) => "existed and should not".to_owned(),
            (None, Some(_)) => "was missing".to_owned(),
            _ => "had another length".to_owned(),
        };
        if let Some(verify) = &mut self.verify {
            verify.repaired += 1;
        }
        self.say(
            &format!(
                "replica {} object {name}: {what} ({kind}), on CPU {cpu}; repaired from replica {source} in {took_us} µs, entry {cause}",
                self.slot
            ),
            &json,
        );
    }

    fn say(&self, text: &str, json: &serde_json::Value) {
        crate::say::line(self.json, text, json);
    }
}

fn deliver(groups: Waiting, replies: Result<Vec<Reply>, &'static str>) {
    match replies {
        Ok(replies) => {
            let mut replies = replies.into_iter();
            for (count, reply) in groups {
                let _ = reply.send(Ok(replies.by_ref().take(count).collect()));
            }
        }
        Err(why) => {
            for (_, reply) in groups {
                let _ = reply.send(Err(why));
            }
        }
    }
}

fn local_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// The entry, if it still fits the check that its origin made.
fn opened(bytes: &[u8]) -> Option<Entry> {
    let (check, body) = bytes.split_first_chunk::<4>()?;
    if crc32c(body) != u32::from_le_bytes(*check) {
        return None;
    }
    postcard::from_bytes(body).ok()
}
