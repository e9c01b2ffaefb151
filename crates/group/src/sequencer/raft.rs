//! The sequencer that is openraft 0.10.
//!
//! Without a directory a process keeps nothing across its end, so one that comes back would be a voter that has forgotten its vote. Each
//! start therefore takes a node number that nobody had before, joins as a learner and is promoted while the old number is removed. With a
//! directory ([`crate::disk`]) it keeps its number, its vote, its log and the last state.
//!
//! `apply` only hands entries on: what the engine calls applied is what has been dispatched. Replies take the way of the vote.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openraft::OptionalSend;
use openraft::alias::{SnapshotMetaOf, SnapshotOf, VoteOf};
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use serde::{Deserialize, Serialize};
use steadfast_crosscheck::Node;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::log::Log;
use super::machine::Machine;
use super::{Delivery, Member, Sequencer, stamped};
use crate::disk::Disk;
use crate::entry::{Bytes, Types};
use crate::links::{Links, Stream as Connection};
use crate::wire::{self, Hello, Post};

pub type Raft = openraft::Raft<Types, Machine>;

/// The log keeps one part in so many of the entries between two snapshots, for followers that are a little late.
const KEEP_PART: u64 = 10;

/// The longest silence of a leader, in milliseconds; its lease lasts as long.
const ELECTION_MS: u64 = 800;
/// A lease that this process may have granted before it was started again, by a clock that runs a little differently.
const LEASE: Duration = Duration::from_millis(ELECTION_MS + ELECTION_MS / 4);
/// How long an answer may take at least: an entry of the largest size on a machine that does other things too.
const ANSWER: Duration = Duration::from_secs(2);

/// Bytes of one piece of a state: it has the time of an answer, so that 2 MiB a second are enough.
const PIECE: usize = 4 << 20;
/// What unpacking and keeping a piece may take, on a machine that does other things too: 16 MiB a second.
const UNPACKS: Duration = Duration::from_millis(250);

/// A question of the engine to another replica's.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    Transfer(TransferLeaderRequest<Types>),
    /// A state of so many bytes, which follow in pieces.
    Snapshot(VoteOf<Types>, SnapshotMetaOf<Types>, u64),
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
///
/// # Errors
/// When the connection ends, or a question on it is damaged.
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
            Ask::Snapshot(vote, meta, length) => {
                let snapshot = Arc::new(pieces(&mut stream, length).await?);
                raft.install_full_snapshot(vote, Snapshot { meta, snapshot })
                    .await
                    .map_or_else(|why| failed(&why), Answer::Snapshot)
            }
        };
        stream.write_all(&wire::frame(&answer)?).await?;
        stream.flush().await?;
    }
}

/// A whole state, from its pieces.
async fn pieces(stream: &mut Connection, length: u64) -> io::Result<Vec<u8>> {
    let mut state = Vec::new();
    while (state.len() as u64) < length {
        let piece = timeout(ANSWER, wire::read::<serde_bytes::ByteBuf>(stream)).await??;
        if piece.is_empty() {
            return Err(io::Error::other("a piece of a state without bytes"));
        }
        state.extend_from_slice(&piece);
    }
    Ok(state)
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
            let mut stream = self.opened(stream).await?;
            stream.write_all(&wire::frame(ask)?).await?;
            stream.flush().await?;
            let answer = wire::read::<Answer>(&mut stream).await?;
            io::Result::Ok((stream, answer))
        };
        // The engine's own limit is that of a heartbeat, which a large entry would never meet.
        let limit = option.hard_ttl().max(ANSWER);
        match timeout(limit, exchange).await {
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

impl Line {
    /// The connection that there is, or a new one.
    async fn opened(&self, stream: Option<Connection>) -> io::Result<Connection> {
        if let Some(stream) = stream {
            return Ok(stream);
        }
        let hello = Hello::Order {
            from: self.me,
            to: self.target,
            secret: self.links.secret,
        };
        self.links.open(&self.peer, &hello).await
    }

    /// Sends a whole state. Each piece has its own time, and other messages go on between two of them.
    async fn send(&self, ask: &Ask, state: &[u8]) -> io::Result<Answer> {
        let mut stream = timeout(ANSWER, self.opened(None)).await??;
        stream.write_all(&wire::frame(ask)?).await?;
        for piece in state.chunks(PIECE) {
            let frame = wire::frame(&serde_bytes::Bytes::new(piece))?;
            timeout(ANSWER, stream.write_all(&frame)).await??;
        }
        stream.flush().await?;
        let pieces = u32::try_from(state.len() / PIECE).unwrap_or(u32::MAX);
        let unpacks = ANSWER + UNPACKS.saturating_mul(pieces);
        timeout(unpacks, wire::read::<Answer>(&mut stream)).await?
    }
}

fn unexpected() -> Unreachable<Types> {
    Unreachable::new(&io::Error::other("an answer to another question"))
}

impl RaftNetworkV2<Types> for Line {
    type SnapshotData = Arc<Vec<u8>>;

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
        snapshot: SnapshotOf<Types, Arc<Vec<u8>>>,
        _cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let state = snapshot.snapshot;
        let ask = Ask::Snapshot(vote, snapshot.meta, state.len() as u64);
        match self.send(&ask, &state).await {
            Ok(Answer::Snapshot(answer)) => Ok(answer),
            Ok(Answer::Failed(why)) => Err(Unreachable::new(&io::Error::other(why)).into()),
            Ok(_) => Err(unexpected().into()),
            Err(why) => Err(Unreachable::new(&why).into()),
        }
    }
}

/// Hears once, when nothing can be written to the disk any more; the replica then takes no further part.
pub type Failure = oneshot::Receiver<String>;

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
    /// Starts the engine; entries come out of the receiver. `post` reaches the leader where that is another replica. Without a disk the
    /// log is in memory alone.
    ///
    /// # Errors
    /// When what the disk holds cannot be kept going, or the engine refuses it.
    pub async fn start(
        me: Node,
        links: Links,
        snapshot_every: u64,
        disk: Option<Disk>,
        post: impl Fn(Node, Post) + Send + 'static,
    ) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<Delivery>, Option<Failure>)> {
        let (out, deliveries) = mpsc::unbounded_channel();
        let config = openraft::Config {
            cluster_name: "steadfast-kv".to_owned(),
            heartbeat_interval: 100,
            election_timeout_min: 400,
            election_timeout_max: ELECTION_MS,
            max_payload_entries: 512,
            snapshot_policy: openraft::SnapshotPolicy::LogsSinceLast(snapshot_every),
            max_in_snapshot_log_to_keep: snapshot_every / KEEP_PART,
            // A member that has less than it acknowledged is sent it again; without this the leader would panic, whoever is at fault.
            allow_log_reversion: Some(true),
            ..openraft::Config::default()
        };
        let mut machine = Machine::new(out);
        let mut store = Log::default();
        let mut failure = None;
        if let Some(disk) = disk {
            let resumes = disk.resumes();
            let (keeper, found) = disk.start()?;
            let upto = found.state.as_ref().and_then(|(meta, _)| meta.last_log_id);
            machine.keep(keeper.clone(), found.state);
            store = Log::kept(keeper, upto, found.entries, found.vote);
            failure = Some(found.failure);
            if resumes {
                // The engine forgets its promise not to vote for somebody else while a leader's lease lasts.
                tokio::time::sleep(LEASE).await;
            }
        }
        let raft = Raft::new(
            me.0,
            Arc::new(config.validate()?),
            Network { me: me.0, links },
            store,
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
                        let written = own
                            .client_write_ff(Bytes(stamped(now_ms(), &bytes)), None)
                            .await;
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
            failure,
        ))
    }

    /// Makes these the first members. Only on one of them, and only once in the life of a group.
    ///
    /// # Errors
    /// When there is a group already.
    pub async fn found(&self, members: BTreeMap<Node, Member>) -> anyhow::Result<()> {
        let members: BTreeMap<u64, Member> = members
            .into_iter()
            .map(|(node, member)| (node.0, member))
            .collect();
        self.raft.initialize(members).await?;
        Ok(())
    }

    /// Hands the lead to another member, who may decline.
    pub fn transfer(&self, to: Node) {
        let raft = self.raft.clone();
        tokio::spawn(async move {
            let _ = raft.trigger().transfer_leader(to.0).await;
        });
    }

    /// A member is none any more.
    ///
    /// # Errors
    /// With the engine's words: this replica does not lead, a change is under way, or no majority is left.
    pub async fn remove(&self, node: Node) -> Result<(), String> {
        let gone = BTreeSet::from([node.0]);
        self.raft
            .change_membership(openraft::ChangeMembers::RemoveVoters(gone), false)
            .await
            .map(drop)
            .map_err(|why| why.to_string())
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
}

/// By the clock of whoever leads.
fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
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

    fn is_leader(&self) -> bool {
        self.leader() == Some(Node(self.me))
    }

    fn members(&self) -> BTreeMap<Node, Member> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let nodes = metrics.membership_config.nodes();
        nodes
            .map(|(id, member)| (Node(*id), member.clone()))
            .collect()
    }

    async fn readdress(&self, node: Node, member: Member) -> Result<(), String> {
        let nodes = BTreeMap::from([(node.0, member)]);
        self.raft
            .change_membership(openraft::ChangeMembers::SetNodes(nodes), true)
            .await
            .map(drop)
            .map_err(|why| why.to_string())
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
