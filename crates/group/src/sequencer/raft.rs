//! The sequencer that is openraft 0.10, with a volatile log.
//!
//! A process keeps nothing across its end, so one that comes back would be a voter that has forgotten its vote. Each start therefore
//! takes a node number that nobody had before, joins as a learner and is promoted while the old number is removed.
//!
//! `apply` only hands entries on: what the engine calls applied is what has been dispatched. Replies take the way of the vote.
//!
//! Not covered: a log on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, StreamExt as _};
use openraft::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf, VoteOf};
use openraft::async_runtime::WatchReceiver as _;
use openraft::entry::RaftEntry as _;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::{
    EntryResponder, IOFlushed, LogState, RaftLogStorage, RaftStateMachine, Snapshot,
};
use openraft::{EntryPayload, OptionalSend, RaftLogReader, RaftSnapshotBuilder};
use serde::{Deserialize, Serialize};
use steadfast_crosscheck::Node;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};

use super::{Delivery, Member, Sequencer};
use crate::links::{Links, Stream as Connection};
use crate::wire::{self, Hello, Post};

/// What an entry of the log carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bytes(#[serde(with = "serde_bytes")] pub Vec<u8>);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

openraft::declare_raft_types!(
    pub Types:
        D = Bytes,
        R = (),
        Node = Member,
);

pub type Raft = openraft::Raft<Types, Machine>;

/// The log keeps one part in so many of the entries between two snapshots, for followers that are a little late.
const KEEP_PART: u64 = 10;

/// How long an answer may take at least: an entry of the largest size on a machine that does other things too.
const ANSWER: Duration = Duration::from_secs(2);
/// Between two tries to hand a state out that is in doubt.
const DOUBT: Duration = Duration::from_millis(50);

/// The log in memory.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    purged: Option<LogIdOf<Types>>,
    entries: BTreeMap<u64, openraft::alias::EntryOf<Types>>,
    committed: Option<LogIdOf<Types>>,
    vote: Option<VoteOf<Types>>,
}

impl Log {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<openraft::alias::EntryOf<Types>>, io::Error> {
        Ok(self
            .lock()
            .entries
            .range(range)
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<Types>>, io::Error> {
        Ok(self.lock().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let inner = self.lock();
        let last = inner
            .entries
            .values()
            .next_back()
            .map(|entry| entry.log_id());
        Ok(LogState {
            last_purged_log_id: inner.purged,
            last_log_id: last.or(inner.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> Result<(), io::Error> {
        self.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<Types>>) -> Result<(), io::Error> {
        self.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf<Types>>, io::Error> {
        Ok(self.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = openraft::alias::EntryOf<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        {
            let mut inner = self.lock();
            for entry in entries {
                inner.entries.insert(entry.index(), entry);
            }
        }
        callback.io_completed(Ok(()));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index() + 1);
        self.lock().entries.split_off(&from);
        Ok(())
    }

    async fn purge(&mut self, upto: LogIdOf<Types>) -> Result<(), io::Error> {
        let mut inner = self.lock();
        inner.purged = Some(upto);
        inner.entries = inner.entries.split_off(&(upto.index() + 1));
        Ok(())
    }
}

/// The engine's view of the service: a place in the log, and a channel.
#[derive(Debug)]
pub struct Machine {
    hand: Arc<Mutex<Hand>>,
    current: Current,
}

/// The last state that was made or taken over.
type Current = Arc<Mutex<Option<(SnapshotMetaOf<Types>, Vec<u8>)>>>;

/// Where the log is, and what hands it on: one lock, so that a request for the state stands exactly behind the entry that it names.
#[derive(Debug)]
struct Hand {
    out: mpsc::UnboundedSender<Delivery>,
    applied: Option<LogIdOf<Types>>,
    membership: StoredMembershipOf<Types>,
}

fn locked(hand: &Mutex<Hand>) -> MutexGuard<'_, Hand> {
    hand.lock().unwrap_or_else(PoisonError::into_inner)
}

fn members_of(membership: &StoredMembershipOf<Types>) -> BTreeMap<Node, Member> {
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    membership
        .nodes()
        .filter(|(id, _)| voters.contains(id))
        .map(|(id, member)| (Node(*id), member.clone()))
        .collect()
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = Vec<u8>;
    type SnapshotBuilder = Builder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf<Types>>, StoredMembershipOf<Types>), io::Error> {
        let hand = locked(&self.hand);
        Ok((hand.applied, hand.membership.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id = entry.log_id();
            let index = id.index();
            {
                let mut hand = locked(&self.hand);
                hand.applied = Some(id);
                match entry.payload {
                    EntryPayload::Blank => {
                        let _ = hand.out.send(Delivery::Blank { index });
                    }
                    EntryPayload::Normal(Bytes(bytes)) => {
                        let _ = hand.out.send(Delivery::Entry { index, bytes });
                    }
                    EntryPayload::Membership(membership) => {
                        hand.membership = StoredMembershipOf::<Types>::new(Some(id), membership);
                        let members = members_of(&hand.membership);
                        let _ = hand.out.send(Delivery::Members { index, members });
                    }
                }
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self::SnapshotBuilder {
        Builder {
            hand: self.hand.clone(),
            current: self.current.clone(),
        }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf<Types>,
        snapshot: Vec<u8>,
    ) -> Result<(), io::Error> {
        let (done, ready) = oneshot::channel();
        let index = meta.last_log_id.map_or(0, |id| id.index());
        {
            let mut hand = locked(&self.hand);
            hand.applied = meta.last_log_id;
            hand.membership = meta.last_membership.clone();
            let members = members_of(&hand.membership);
            let _ = hand.out.send(Delivery::Install {
                index,
                members,
                bytes: snapshot.clone(),
                done,
            });
        }
        ready
            .await
            .map_err(io::Error::other)?
            .map_err(io::Error::other)?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((meta.clone(), snapshot));
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<Types, Vec<u8>>>, io::Error> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(current.as_ref().map(|(meta, bytes)| Snapshot {
            meta: meta.clone(),
            snapshot: bytes.clone(),
        }))
    }
}

/// A snapshot that is being made.
#[derive(Debug)]
pub struct Builder {
    hand: Arc<Mutex<Hand>>,
    current: Current,
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = Vec<u8>;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, Vec<u8>>, io::Error> {
        let (meta, bytes) = loop {
            let (want, have) = oneshot::channel();
            let meta = {
                let hand = locked(&self.hand);
                let _ = hand.out.send(Delivery::Snapshot(want));
                SnapshotMetaOf::<Types> {
                    last_log_id: hand.applied,
                    last_membership: hand.membership.clone(),
                }
            };
            if let Some(bytes) = have.await.map_err(io::Error::other)? {
                break (meta, bytes);
            }
            // Something in it is in doubt: later, at another place of the log.
            tokio::time::sleep(DOUBT).await;
        };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((meta.clone(), bytes.clone()));
        Ok(Snapshot {
            meta,
            snapshot: bytes,
        })
    }
}

/// A question of the engine to another replica's.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Transfer(TransferLeaderRequest<Types>),
    Snapshot(
        VoteOf<Types>,
        SnapshotMetaOf<Types>,
        #[serde(with = "serde_bytes")] Vec<u8>,
    ),
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    Transfer(TransferLeaderResponse<Types>),
    Snapshot(SnapshotResponse<Types>),
    Failed(String),
}

/// Answers the questions of one connection until it ends.
pub async fn answer(raft: &Raft, mut stream: Connection) -> io::Result<()> {
    loop {
        let failed = |why: &dyn fmt::Display| Answer::Failed(why.to_string());
        let answer = match wire::read::<Ask>(&mut stream).await? {
            Ask::Append(ask) => raft
                .append_entries(ask)
                .await
                .map_or_else(|why| failed(&why), Answer::Append),
            Ask::Vote(ask) => raft
                .vote(ask)
                .await
                .map_or_else(|why| failed(&why), Answer::Vote),
            Ask::PreVote(ask) => raft
                .pre_vote(ask)
                .await
                .map_or_else(|why| failed(&why), Answer::Vote),
            Ask::Transfer(ask) => raft
                .handle_transfer_leader(ask)
                .await
                .map_or_else(|why| failed(&why), Answer::Transfer),
            Ask::Snapshot(vote, meta, bytes) => raft
                .install_full_snapshot(
                    vote,
                    Snapshot {
                        meta,
                        snapshot: bytes,
                    },
                )
                .await
                .map_or_else(|why| failed(&why), Answer::Snapshot),
        };
        stream.write_all(&wire::frame(&answer)?).await?;
        stream.flush().await?;
    }
}

/// Makes connections for the engine.
#[derive(Debug, Clone)]
pub struct Network {
    pub me: u64,
    pub links: Links,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Line;

    async fn new_client(&mut self, target: u64, node: &Member) -> Line {
        Line {
            me: self.me,
            links: self.links.clone(),
            target,
            peer: node.peer.clone(),
            stream: None,
        }
    }
}

/// One connection: a question, then its answer.
#[derive(Debug)]
pub struct Line {
    me: u64,
    links: Links,
    target: u64,
    peer: String,
    stream: Option<Connection>,
}

impl Line {
    async fn ask(&mut self, ask: &Ask, option: &RPCOption) -> Result<Answer, Unreachable<Types>> {
        // Taken out for as long as the question lasts: one that is given up leaves no connection with half an answer behind.
        let stream = self.stream.take();
        let exchange = async {
            let mut stream = match stream {
                Some(stream) => stream,
                None => {
                    let hello = Hello::Order {
                        from: self.me,
                        to: self.target,
                        secret: self.links.secret,
                    };
                    self.links.open(&self.peer, &hello).await?
                }
            };
            stream.write_all(&wire::frame(ask)?).await?;
            stream.flush().await?;
            let answer = wire::read::<Answer>(&mut stream).await?;
            io::Result::Ok((stream, answer))
        };
        // The engine's own limit is that of a heartbeat, which a large entry would never meet.
        let limit = option.hard_ttl().max(ANSWER);
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok((_, Answer::Failed(why)))) => Err(Unreachable::new(&io::Error::other(why))),
            Ok(Ok((stream, answer))) => {
                self.stream = Some(stream);
                Ok(answer)
            }
            Ok(Err(why)) => Err(Unreachable::new(&why)),
            Err(_) => Err(Unreachable::new(&io::Error::from(io::ErrorKind::TimedOut))),
        }
    }
}

fn unexpected() -> Unreachable<Types> {
    Unreachable::new(&io::Error::other("an answer to another question"))
}

impl RaftNetworkV2<Types> for Line {
    type SnapshotData = Vec<u8>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        match self.ask(&Ask::Append(rpc), &option).await? {
            Answer::Append(answer) => Ok(answer),
            _ => Err(unexpected().into()),
        }
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.ask(&Ask::Vote(rpc), &option).await? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(unexpected().into()),
        }
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.ask(&Ask::PreVote(rpc), &option).await? {
            Answer::Vote(answer) => Ok(answer),
            _ => Err(unexpected().into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        match self.ask(&Ask::Transfer(rpc), &option).await? {
            Answer::Transfer(answer) => Ok(answer),
            _ => Err(unexpected().into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, Vec<u8>>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        match self
            .ask(
                &Ask::Snapshot(vote, snapshot.meta, snapshot.snapshot),
                &option,
            )
            .await?
        {
            Answer::Snapshot(answer) => Ok(answer),
            _ => Err(unexpected().into()),
        }
    }
}

/// The engine of one replica.
#[allow(
    missing_debug_implementations,
    reason = "the engine's own handle has none that says anything"
)]
#[derive(Clone)]
pub struct Engine {
    pub raft: Raft,
    me: u64,
    submit: mpsc::UnboundedSender<Vec<u8>>,
}

impl Engine {
    /// Starts the engine; entries come out of the receiver. `post` reaches the leader where that is another replica.
    pub async fn start(
        me: Node,
        links: Links,
        snapshot_every: u64,
        post: impl Fn(Node, Post) + Send + 'static,
    ) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<Delivery>)> {
        let (out, deliveries) = mpsc::unbounded_channel();
        let config = openraft::Config {
            cluster_name: "steadfast-kv".to_owned(),
            heartbeat_interval: 100,
            election_timeout_min: 400,
            election_timeout_max: 800,
            max_payload_entries: 512,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(snapshot_every),
            max_in_snapshot_log_to_keep: snapshot_every / KEEP_PART,
            ..openraft::Config::default()
        };
        let machine = Machine {
            hand: Arc::new(Mutex::new(Hand {
                out,
                applied: None,
                membership: StoredMembershipOf::<Types>::default(),
            })),
            current: Arc::default(),
        };
        let raft = Raft::new(
            me.0,
            Arc::new(config.validate()?),
            Network { me: me.0, links },
            Log::default(),
            machine,
        )
        .await?;
        let (submit, mut submitted) = mpsc::unbounded_channel::<Vec<u8>>();
        let own = raft.clone();
        // One task submits, so that what one replica submits stays in its order.
        tokio::spawn(async move {
            while let Some(bytes) = submitted.recv().await {
                let leader = own.metrics().borrow_watched().current_leader;
                match leader {
                    Some(leader) if leader == me.0 => {
                        let written = own.client_write_ff(Bytes(stamped(bytes)), None).await;
                        // The engine has ended, and with it the process.
                        if written.is_err() {
                            return;
                        }
                    }
                    Some(leader) => post(Node(leader), Post::Submit(bytes)),
                    // Its origin submits it again.
                    None => {}
                }
            }
        });
        Ok((
            Self {
                raft,
                me: me.0,
                submit,
            },
            deliveries,
        ))
    }

    /// Makes these the first members. Only on one of them, and only once in the life of a group.
    pub async fn found(&self, members: BTreeMap<Node, Member>) -> anyhow::Result<()> {
        let members: BTreeMap<u64, Member> = members
            .into_iter()
            .map(|(node, member)| (node.0, member))
            .collect();
        self.raft.initialize(members).await?;
        Ok(())
    }

    /// Who belongs to the group as far as the log has come to this replica, executed or not.
    #[must_use]
    pub fn members(&self) -> BTreeMap<Node, Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let nodes = metrics.membership_config.nodes();
        nodes
            .map(|(id, member)| (Node(*id), member.clone()))
            .collect()
    }

    /// Hands the lead to another member, who may decline.
    pub fn transfer(&self, to: Node) {
        let raft = self.raft.clone();
        tokio::spawn(async move {
            let _ = raft.trigger().transfer_leader(to.0).await;
        });
    }

    /// Entries that have reached this replica and that its service has not been given or has not executed yet.
    pub fn behind(&self, executed: u64) -> u64 {
        let metrics = self.raft.metrics();
        let last = metrics.borrow_watched().last_log_index.unwrap_or(0);
        last.saturating_sub(executed)
    }

    /// The last entry that any client can have been answered about: known by who leads, while its lease lasts.
    pub async fn last_committed(&self) -> Option<u64> {
        let read = self
            .raft
            .get_read_linearizer(openraft::ReadPolicy::LeaseRead)
            .await
            .ok()?;
        Some(read.read_log_id().index())
    }

    /// Whether this replica leads.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leader() == Some(Node(self.me))
    }
}

/// The leader's time goes before an entry, with a check of its own.
fn stamped(bytes: Vec<u8>) -> Vec<u8> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis());
    let now = u64::try_from(now).unwrap_or(u64::MAX).to_le_bytes();
    let mut stamped = Vec::with_capacity(12 + bytes.len());
    stamped.extend_from_slice(&now);
    stamped.extend_from_slice(&steadfast_integrity::digest::crc32c(&now).to_le_bytes());
    stamped.extend_from_slice(&bytes);
    stamped
}

/// The leader's time and the entry; a time that does not fit its check is no time.
#[must_use]
pub fn unstamped(bytes: &[u8]) -> (u64, &[u8]) {
    let Some((time, rest)) = bytes.split_first_chunk::<8>() else {
        return (0, &[]);
    };
    let Some((check, rest)) = rest.split_first_chunk::<4>() else {
        return (0, &[]);
    };
    if steadfast_integrity::digest::crc32c(time) == u32::from_le_bytes(*check) {
        (u64::from_le_bytes(*time), rest)
    } else {
        (0, rest)
    }
}

impl Sequencer for Engine {
    fn submit(&self, bytes: Vec<u8>) {
        let _ = self.submit.send(bytes);
    }

    fn leader(&self) -> Option<Node> {
        self.raft
            .metrics()
            .borrow_watched()
            .current_leader
            .map(Node)
    }

    async fn replace(&self, old: Option<Node>, new: Node, member: Member) -> Result<(), String> {
        self.raft
            .add_learner(new.0, member, true)
            .await
            .map_err(|why| why.to_string())?;
        let voters: BTreeSet<u64> = self
            .raft
            .voter_ids()
            .filter(|id| Some(Node(*id)) != old)
            .chain([new.0])
            .collect();
        self.raft
            .change_membership(voters.clone(), false)
            .await
            .map_err(|why| why.to_string())?;
        // Processes that began to join and died meanwhile.
        let abandoned: BTreeSet<u64> = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let nodes = metrics.membership_config.nodes();
            nodes
                .map(|(id, _)| *id)
                .filter(|id| !voters.contains(id))
                .collect()
        };
        if !abandoned.is_empty() {
            self.raft
                .change_membership(openraft::ChangeMembers::RemoveNodes(abandoned), false)
                .await
                .map_err(|why| why.to_string())?;
        }
        Ok(())
    }
}
