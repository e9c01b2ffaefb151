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
//! Where to begin: `submit`, `execute`, then `vote`. Reads beside the log: `reads`; what this replica is in its group: `standing`; commands: `own`.

mod backup;
mod execute;
mod own;
mod reads;
mod standing;
mod struck;
mod submit;
mod vote;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_crosscheck::{Core, Digest, Index, Message, Node, ObjectId, Recover, Standing, To};
use steadfast_group::gate::Gate;
use steadfast_group::sequencer::first_sequence;
use steadfast_group::sequencer::raft::Engine;
use steadfast_group::{Delivery, Heard, Member, Peers, Post, ReadAt, Sequencer as _, Who};
use steadfast_sys::manager::Manager;
use tokio::sync::{mpsc, oneshot, watch};

use crate::full::Full;
use crate::reads::Modes;
use crate::request::Request;
use crate::store::{AtRest, SHARDS, Store, Workers};

pub(crate) use self::backup::DOUBT;
pub(crate) use self::own::{HEARD, NOT_LEADER, NOT_TAKEN};
use self::reads::Reads;
use self::standing::Watermark;
use self::struck::Struck;
use self::submit::Unacked;

/// How digests are made; replicas of another epoch are not compared with. To be raised with every change of an object's bytes.
pub(crate) const EPOCH: u16 = 2;
/// Requests in one entry, at most.
pub(crate) const BATCH_MAX: usize = 512;
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
    /// A bit that flips behind the last check.
    pub(crate) strike: Option<usize>,
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            voted: None,
            strike: None,
        }
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
    Agreed(Option<Vec<u8>>, backup::Wanted),
    /// The own engine has said what reads must have seen; for another replica, if it asked.
    ReadAt(Option<Node>, u64, Option<ReadAt>),
}

impl From<Heard> for Event {
    fn from(heard: Heard) -> Self {
        Self::Heard(heard)
    }
}

/// Replies that wait for the vote, and the entry that they are of.
struct Out {
    entry: Vec<u8>,
    replies: Vec<Vec<u8>>,
    groups: Waiting,
}

struct Verify {
    /// Its first submission: those before are of one that came to no end in time.
    first: u64,
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
    /// Entries that were run again, since no vote said what they came to.
    reruns: u64,
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
    /// What did not fit its check on disk when this process began.
    disk_faults: u64,
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
    /// Requests in one entry, and how long they wait until there are so many.
    batch: usize,
    batch_time: Duration,
    /// What each request takes more; for benches.
    work: Duration,
    /// The threads that execute.
    workers: Workers,
    /// Since when the first of them waits.
    collecting_since: Instant,
    unacked: BTreeMap<u64, Unacked>,
    next: u64,
    submitted_at: Instant,
    /// Times that they were sent again since one came out of the log.
    resubmits: u32,
    /// The first number of this life.
    first: u64,
    out: HashMap<Index, Out>,
    heard: HashMap<Node, Instant>,
    verify: Option<Verify>,
    /// Who wants the next one.
    verify_next: VecDeque<oneshot::Sender<String>>,
    /// Hears how the comparison has ended that makes up for entries which came to no vote.
    made_up: Option<oneshot::Receiver<String>>,
    /// States that wait to be agreed on before they are handed out.
    snapshots: Vec<HandOut>,
    /// Those who wait for one for a backup.
    wanted: Vec<backup::Wanted>,
    /// One that is being fetched for a backup.
    fetched: Option<backup::Fetched>,
    secret: u128,
    /// How this process has come to the state: by the log alone, by what it had on disk, or by another replica's state.
    joined: &'static str,
    counts: Counts,
    /// Repairs of this turn that a person has not been told yet.
    repaired: Vec<vote::Repaired>,
    /// Objects that had changed at rest when they were touched last, as they were found: until they are repaired.
    at_rest: BTreeMap<ObjectId, AtRest>,
    started: Instant,
    executed: u64,
    /// What answers those that look for a group; nothing in a group of `--local`.
    gate: Option<Gate>,
    /// Whether this process is a member.
    standing: watch::Sender<bool>,
    drain: Option<Drain>,
    /// Until f+1 replicas vote, this one among them, and everything that it has executed without a voice was compared.
    returning: Option<Return>,
    /// Whether the log is on disk.
    durable: bool,
    epoch: u16,
    /// For how long this replica may execute nothing while others go on; nothing if nobody looks.
    watchdog: Option<Duration>,
    watermark: Watermark,
    /// Between two shards; nothing if the scrubber is off.
    scrub_every: Option<Duration>,
    scrub_next: usize,
    scrub_at: Instant,
    /// One that was ordered and has not been executed.
    scrub_asked: Option<Instant>,
    scrubs: VecDeque<Index>,
    notify: Manager,
    /// What is to be struck as it passes.
    struck: Struck,
    /// Whose clients wait for this replica's digests.
    tell: BTreeSet<Node>,
    tell_all: bool,
    reads: Reads,
    events: mpsc::WeakUnboundedSender<Event>,
    /// Connections that wait for replies, or are being written to.
    busy: Arc<AtomicUsize>,
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
    /// Hears how the comparison of everything has ended.
    compared: Option<oneshot::Receiver<String>>,
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
    pub(crate) full: Full,
    pub(crate) snapshot_every: u64,
    /// Known to the processes of one group: who has it is one of them.
    pub(crate) secret: u128,
    /// Seconds in which everything is compared once; 0 for never.
    pub(crate) scrub_s: u64,
    /// Seconds without an executed entry, while others go on, after which a replica ends; 0 for never.
    pub(crate) watchdog_s: u64,
    /// Requests in one entry, and milliseconds for which they wait until there are so many.
    pub(crate) batch: usize,
    pub(crate) batch_ms: u64,
    /// Microseconds of work in each request; for benches.
    pub(crate) work_us: u64,
    pub(crate) reads: Modes,
    /// How digests are made.
    pub(crate) epoch: u16,
    /// How often a process with this node number has been started before; 0 without a directory.
    pub(crate) starts: u64,
    /// What did not fit its check on disk.
    pub(crate) disk_faults: u64,
    /// The last entry of the log that this one goes on with.
    pub(crate) resumes: Option<u64>,
    pub(crate) who: Option<Who>,
}

impl Service {
    pub(crate) fn new(
        setup: &Setup,
        workers: Workers,
        engine: Engine,
        peers: Peers,
        standing: watch::Sender<bool>,
        events: mpsc::WeakUnboundedSender<Event>,
        busy: Arc<AtomicUsize>,
    ) -> Self {
        let scrub = setup.stage == Stage::Rdgx && setup.scrub_s > 0;
        let mut core = Core::new(setup.me, setup.size, setup.epoch.into());
        core.keeps_undo();
        Self {
            me: setup.me,
            slot: setup.slot,
            stage: setup.stage,
            allow_strikes: setup.allow_strikes,
            json: setup.json,
            size: setup.size,
            core,
            store: Store::new(
                setup.stage >= Stage::Rdgx,
                setup.bytes_max,
                setup.full == Full::Evict,
            ),
            engine,
            peers,
            members: BTreeMap::new(),
            queue: VecDeque::new(),
            held: HashMap::new(),
            recovering: HashMap::new(),
            mismatch_at: BTreeMap::new(),
            collecting: Vec::new(),
            collected: 0,
            batch: setup.batch,
            batch_time: Duration::from_millis(setup.batch_ms),
            work: Duration::from_micros(setup.work_us),
            workers,
            collecting_since: Instant::now(),
            unacked: BTreeMap::new(),
            next: first_sequence(setup.starts),
            submitted_at: Instant::now(),
            resubmits: 0,
            first: first_sequence(setup.starts),
            out: HashMap::new(),
            heard: HashMap::new(),
            verify: None,
            verify_next: VecDeque::new(),
            made_up: None,
            snapshots: Vec::new(),
            wanted: Vec::new(),
            fetched: None,
            secret: setup.secret,
            joined: if setup.resumes.is_some() {
                "disk"
            } else {
                "log"
            },
            counts: Counts {
                disk_faults: setup.disk_faults,
                ..Counts::default()
            },
            repaired: Vec::new(),
            at_rest: BTreeMap::new(),
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
            watchdog: (setup.watchdog_s > 0).then(|| Duration::from_secs(setup.watchdog_s)),
            watermark: Watermark::at(0),
            scrub_every: scrub.then(|| Duration::from_secs(setup.scrub_s) / SHARDS_U32),
            scrub_next: 0,
            scrub_at: Instant::now(),
            scrub_asked: None,
            scrubs: VecDeque::new(),
            notify: Manager::from_environment(),
            struck: Struck::default(),
            tell: BTreeSet::new(),
            tell_all: false,
            reads: Reads::new(setup.reads),
            events,
            busy,
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
        let beat = self.watch();
        loop {
            beat.tell();
            let waits = !self.batch_time.is_zero() && !self.collecting.is_empty();
            let due = self.collecting_since + self.batch_time;
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
                () = tokio::time::sleep_until(due.into()), if waits => {}
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
            self.act();
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
                self.collect(group);
                if self.collected >= self.batch {
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
                            && self.core.is_comparable(from)
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
            Event::Agreed(bytes, wanted) => self.agreed(bytes, wanted),
            Event::ReadAt(None, ticket, at) => self.read_at(ticket, at),
            Event::ReadAt(Some(asker), ticket, at) => {
                self.peers
                    .send(To::One(asker), &Post::ReadAt { ticket, at });
            }
        }
    }

    fn tick(&mut self) {
        if self.stage == Stage::Rdgx {
            self.core.tick();
        }
        self.lost();
        self.submit_again();
        self.give_up();
        for (node, last) in &self.heard {
            if last.elapsed() > SILENT {
                self.core.set_alive(*node, false);
            }
        }
        while self.mismatch_at.len() > 4096 {
            self.mismatch_at.pop_first();
        }
        self.come_back();
        self.make_up();
        self.verified();
        self.hand_out();
        self.keep_wanted();
        self.forget_fetched();
        self.scrub();
        self.drained();
        self.end_if_lost();
        self.end_if_stalled();
        let unready = self.unready();
        self.notify
            .tick(unready.is_none(), unready.unwrap_or("ready"));
    }

    /// Hands states out that f+1 replicas have by now agreed on; asks for another try where something in one is in doubt.
    fn hand_out(&mut self) {
        for (index, bytes, want) in std::mem::take(&mut self.snapshots) {
            match self.core.standing(index) {
                // A vote that ended before f+1 had spoken is no longer open, and nothing was agreed on.
                _ if self.is_unproven() => drop(want.send(None)),
                Standing::Agreed => drop(want.send(Some(bytes))),
                Standing::Doubtful => drop(want.send(None)),
                Standing::Open => self.snapshots.push((index, bytes, want)),
            }
        }
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
