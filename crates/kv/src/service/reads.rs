//! Reads beside the log.
//!
//! ```text
//!   group of reads ──► question to the leader: which entry is the last? ──► executed and voted on here, up to it
//!        │                                                                    │ every item fits the digest that won its vote
//!        └── anything in doubt ──► the log and the vote, as any request       └──► reply
//! ```
//!
//! The leader answers while its lease lasts: nobody else can have been elected. A question takes every read that has come before it.
//!
//! Invariants
//!  1. A reply shows every write that was answered before its read came, whichever replica answered it.
//!  2. It is made of items and of a head that this replica has as f+1 others have, of which nothing has been written since.
//!  3. A miss takes the log: an item that was lost does not fit anything.
//!
//! Not covered: what happens to a reply while it is put together; its key and value are compared afterwards, its flags are not. A clock that
//! runs faster than the leader's by more than the lease.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use steadfast_crosscheck::{Digest, Index, Node, ObjectId, Status, To};

use super::{Event, Group, Reply, Service, Stage, local_ms};
use crate::reads::{Mode, Modes};
use crate::store::{Delta, Head, Store};
use steadfast_group::{Post, ReadAt, Sequencer as _};

/// How long a read may wait beside the log. Several times a round trip; a write that is voted on takes as long.
const PATIENCE: Duration = Duration::from_millis(100);

/// A question to the leader that has not been answered.
struct Asked {
    ticket: u64,
    since: Instant,
    groups: Vec<Group>,
}

/// Reads that wait for this replica's execution, or for a vote.
struct Waiting {
    at: ReadAt,
    since: Instant,
    groups: Vec<Group>,
}

/// What reads beside the log stand on.
#[derive(Default)]
pub(super) struct Reads {
    pub(super) modes: Modes,
    /// For the next question.
    next: Vec<Group>,
    asked: Option<Asked>,
    ticket: u64,
    waiting: VecDeque<Waiting>,
    /// Of entries that have been executed and not been voted on.
    heads: VecDeque<(Index, Head, Digest)>,
    /// The last that has won its vote, and the digest that it won with.
    settled: Option<(Head, Digest)>,
    touched: BTreeMap<Index, Vec<ObjectId>>,
    /// Objects whose last vote is not won here, and since which entry.
    open: HashMap<ObjectId, Index>,
    pub(super) local: u64,
    pub(super) plain: u64,
    /// Reads that were to be local and took the log.
    pub(super) logged: u64,
}

impl Reads {
    pub(super) fn new(modes: Modes) -> Self {
        Self {
            modes,
            ..Self::default()
        }
    }

    /// Whether anything here can be local: what is not asked for costs nothing.
    fn is_on(&self) -> bool {
        self.modes.words().any(|(_, mode)| mode == "local")
    }

    /// An entry has been executed.
    pub(super) fn executed(&mut self, index: Index, head: Head, delta: &Delta, votes: bool) {
        if !self.is_on() {
            return;
        }
        if !votes {
            self.settled = Some((head, head.digest()));
            return;
        }
        self.heads.push_back((index, head, head.digest()));
        let objects: Vec<ObjectId> = delta.objects().collect();
        for id in &objects {
            self.open.insert(*id, index);
        }
        self.touched.insert(index, objects);
    }

    /// Its vote is won here.
    pub(super) fn won(&mut self, index: Index) {
        while let Some((at, head, digest)) = self.heads.front().copied()
            && at <= index
        {
            self.heads.pop_front();
            self.settled = Some((head, digest));
        }
        for id in self.touched.remove(&index).into_iter().flatten() {
            if self.open.get(&id) == Some(&index) {
                self.open.remove(&id);
            }
        }
    }

    /// Nothing more will be known about it. Its objects stay open until another entry touches them.
    pub(super) fn forgotten(&mut self, index: Index) {
        self.touched.remove(&index);
    }

    /// A state has been taken over, on which others had agreed.
    pub(super) fn restored(&mut self, head: Head) {
        self.heads.clear();
        self.touched.clear();
        self.open.clear();
        self.settled = Some((head, head.digest()));
    }

    /// Whether everything up to there has been voted on, or will not be.
    fn has_settled(&self, upto: u64) -> bool {
        self.heads.front().is_none_or(|(index, ..)| index.0 > upto)
    }
}

impl Service {
    /// Takes a group of reads that need not go through the log; gives any other one back.
    pub(super) fn read(&mut self, group: Group) -> Option<Group> {
        match self.reads.modes.of_all(&group.requests) {
            _ if !self.is_member() || self.returning.is_some() || self.is_unproven() => Some(group),
            Mode::Voted => Some(group),
            Mode::Plain => {
                let head = self.store.head();
                let now_ms = head.now_ms.max(local_ms());
                let replies: Option<Vec<Reply>> = group
                    .requests
                    .iter()
                    .map(|request| Some(self.store.peek(request, &head, now_ms, false)?.into()))
                    .collect();
                let Some(replies) = replies else {
                    return Some(group);
                };
                self.reads.plain += replies.len() as u64;
                let _ = group.reply.send(Ok(replies));
                None
            }
            Mode::Local => {
                self.reads.next.push(group);
                None
            }
        }
    }

    /// Asks, answers, and gives up what takes too long: once a turn.
    pub(super) fn reads_turn(&mut self) {
        if self
            .reads
            .asked
            .as_ref()
            .is_some_and(|asked| asked.since.elapsed() > PATIENCE)
            && let Some(asked) = self.reads.asked.take()
        {
            self.log_reads(asked.groups);
        }
        self.answer_reads();
        if self.reads.asked.is_some() || self.reads.next.is_empty() {
            return;
        }
        let groups = std::mem::take(&mut self.reads.next);
        let Some(leader) = self.engine.leader() else {
            self.log_reads(groups);
            return;
        };
        self.reads.ticket += 1;
        let ticket = self.reads.ticket;
        self.reads.asked = Some(Asked {
            ticket,
            since: Instant::now(),
            groups,
        });
        if leader == self.me {
            self.look_up(None, ticket);
        } else {
            self.peers
                .send(To::One(leader), &Post::ReadIndex { ticket });
        }
    }

    /// Asks the own engine, for this replica or for another one.
    pub(super) fn look_up(&self, asker: Option<Node>, ticket: u64) {
        let (engine, events) = (self.engine.clone(), self.events.clone());
        tokio::spawn(async move {
            let at = engine.last_committed().await.map(|index| ReadAt {
                index,
                time_ms: local_ms(),
            });
            if let Some(events) = events.upgrade() {
                let _ = events.send(Event::ReadAt(asker, ticket, at));
            }
        });
    }

    /// The leader has answered, or is none any more.
    pub(super) fn read_at(&mut self, ticket: u64, at: Option<ReadAt>) {
        if self.reads.asked.as_ref().map(|asked| asked.ticket) != Some(ticket) {
            return;
        }
        let Some(asked) = self.reads.asked.take() else {
            return;
        };
        match at {
            Some(at) => self.reads.waiting.push_back(Waiting {
                at,
                since: asked.since,
                groups: asked.groups,
            }),
            None => self.log_reads(asked.groups),
        }
    }

    fn answer_reads(&mut self) {
        while let Some(first) = self.reads.waiting.front() {
            let upto = first.at.index;
            let late = first.since.elapsed() > PATIENCE;
            let ready = self.executed >= upto && self.reads.has_settled(upto);
            if !ready && !late {
                return;
            }
            let Some(first) = self.reads.waiting.pop_front() else {
                return;
            };
            for group in first.groups {
                let replies = if ready {
                    self.locally(&group, first.at.time_ms)
                } else {
                    None
                };
                match replies {
                    Some(replies) => {
                        self.reads.local += replies.len() as u64;
                        let _ = group.reply.send(Ok(replies));
                    }
                    None => self.log_reads(vec![group]),
                }
            }
        }
    }

    /// Replies of one group, if nothing that they are made of is in doubt.
    fn locally(&self, group: &Group, time_ms: u64) -> Option<Vec<Reply>> {
        let (head, digest) = self.reads.settled?;
        if head.digest() != digest {
            return None;
        }
        let now_ms = head.now_ms.max(time_ms);
        let checked = self.stage >= Stage::Rdg;
        let reply = |request| {
            let is_open = |id| self.reads.open.contains_key(&id);
            if Store::objects_of(request).any(is_open) {
                return None;
            }
            let bytes = self.store.peek(request, &head, now_ms, checked)?;
            let voted = (self.stage == Stage::Rdgx).then(|| Digest::of(&bytes));
            Some(Reply {
                bytes,
                voted,
                strike: None,
            })
        };
        group.requests.iter().map(reply).collect()
    }

    fn log_reads(&mut self, groups: Vec<Group>) {
        for group in groups {
            self.reads.logged += group.requests.len() as u64;
            self.collect(group);
        }
    }

    /// Whether this replica has an entry as f+1 have it: then what it touched may be read.
    pub(super) fn note_won(&mut self, index: Index) {
        if self.core.status(index, self.me) == Status::Valid {
            self.reads.won(index);
        }
    }

    /// No read is under way.
    pub(super) fn reads_are_idle(&self) -> bool {
        let reads = &self.reads;
        reads.next.is_empty() && reads.asked.is_none() && reads.waiting.is_empty()
    }
}
