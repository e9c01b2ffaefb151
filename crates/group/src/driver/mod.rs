//! One replica of a service that has no loop of its own: it executes the log, votes, and lets replies go.
//!
//! ```text
//!  callers ──► collecting ──► submit ──► log ──► queue ──► execute ──► vote ──► Release ──► callers
//!                                         │                   │          ▲
//!  peers ◄──────────── CHECK, DETAIL ... ─┼───────────────────┴──────────┘
//! ```
//!
//! Invariants
//!  1. One task owns the service's objects and the vote: the service is never entered by two threads.
//!  2. A reply leaves only after `Release`, and only if its bytes still have the digest that was voted for.
//!  3. A process that is no member yet neither submits nor votes, and hands its state to nobody before f+1 replicas have agreed on it.
//!  4. Submissions of one replica are numbered, kept until they come out of the log, and executed once, in order.
//!  5. While an object is being repaired, no entry is executed: which objects a request will touch nobody knows, and each entry changes
//!     the driver's own.
//!
//! Not covered: reads beside the log, requests that a client sends again, and a log on disk. `crates/kv` has them.

mod guarded;
mod log;
mod proven;
mod start;
#[cfg(test)]
mod tests;
mod turn;
mod vote;

use std::sync::mpsc as thread;
use std::time::Duration;

use serde::Serialize;
use steadfast_crosscheck::{Digest, Index, Node, ObjectId, Objects, Pair};
use tokio::sync::{mpsc, watch};

use self::turn::Driver;
use crate::links::{Heard, Links};
use crate::sequencer::raft::Engine;
use crate::sequencer::{Delivery, Sequencer};
use crate::tls::Tls;
use crate::who::Who;
use crate::wire::Post;
use crate::{meet, net};

pub use self::guarded::Guarded;
pub use self::start::Calls;

/// Requests in one entry.
const BATCH_MAX: usize = 512;

/// The service, as its driver sees it: a function of the log.
pub trait Machine: Objects {
    /// An entry begins.
    fn begin(&mut self, index: Index);
    /// Executes a request; its reply.
    fn execute(&mut self, time_ms: u64, request: &[u8]) -> Vec<u8>;
    /// The entry is over: digests of what it has touched, from the bytes.
    fn finish(&mut self) -> Vec<Pair>;
    /// Numbers of all objects.
    fn objects(&self) -> Vec<ObjectId>;
    /// Checks an object without using it, and notes it in the entry.
    fn look(&mut self, object: ObjectId);
    /// Something happened that a person may want to know.
    fn told(&mut self, news: &News);
}

/// What happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum News {
    /// This process belongs to the group now.
    Member { replica: u64 },
    /// Another process has been let in, or could not be.
    Joined {
        replica: u64,
        why_not: Option<String>,
    },
    /// Something keeps this process out of a group for now.
    Waiting { why: String },
    /// These replicas computed something else than f+1 others at this entry.
    Wrong {
        entry: u64,
        replicas: Vec<u64>,
        objects: Vec<String>,
    },
    /// An object of this replica was wrong and is right now.
    Repaired {
        replica: u64,
        entry: u64,
        object: String,
        /// It changed while nobody used it.
        at_rest: bool,
        /// Of its packed bytes, the first that was wrong.
        byte: Option<usize>,
        bits: u32,
        source: u64,
        took_us: u64,
    },
    /// No vote and no evidence decides on these objects: requests wait.
    Stuck { entry: u64, objects: Vec<String> },
    /// This replica has ended, and answers no more.
    Ended { why: String },
}

/// A reply that has won its vote, and the digest that was voted for.
#[derive(Debug)]
pub struct Reply {
    /// What the service answers.
    pub bytes: Vec<u8>,
    /// To be compared with the bytes once more where they leave.
    pub voted: Digest,
}

/// Where a reply goes, or why there is none.
pub type ReplyTo = thread::SyncSender<Result<Reply, &'static str>>;

/// What reaches the driver.
#[derive(Debug)]
pub enum Event {
    /// A request of a client of this replica.
    Call(Vec<u8>, ReplyTo),
    /// What this replica is doing, as one JSON object.
    Status(thread::SyncSender<String>),
}

/// How a replica is set up.
#[derive(Debug)]
pub struct Setup {
    /// Its place, and the addresses of all.
    pub who: Who,
    /// The secret of the group.
    pub secret: u128,
    /// Certificates, if replicas speak TLS with each other.
    pub tls: Option<Tls>,
    /// What the types of the objects come to: replicas with other types are not compared with.
    pub epoch: u32,
    /// Entries between two snapshots.
    pub snapshot_every: u64,
    /// Seconds in which everything is compared once; 0 for never.
    pub scrub_s: u64,
}

/// A log that a service has already, as it stands at one replica.
#[derive(Debug)]
pub struct OwnLog<S> {
    /// Takes what is to be ordered.
    pub sequencer: S,
    /// What comes out, the members first: in one order, at every replica.
    pub deliveries: mpsc::UnboundedReceiver<Delivery>,
}

/// Runs one replica until its callers are gone, or until it can answer nobody any more, and why. On this thread. Other replicas reach it by
/// the listener.
///
/// # Errors
/// With the reason why this replica can answer nobody any more: no runtime or socket, an engine that does not start, a group that it cannot join, or
/// a turn that fails.
pub fn run<M: Machine>(
    setup: Setup,
    listener: std::net::TcpListener,
    machine: M,
    received: mpsc::UnboundedReceiver<Event>,
) -> Result<(), String> {
    block_on(async {
        let listener = bound(listener)?;
        serve(setup, listener, machine, received).await
    })
}

/// The same for a service with a log of its own: it orders, and it says who belongs to the group. Votes and repairs take the listener.
///
/// # Errors
/// As [`run`], without an engine, and when the log ends.
pub fn run_on<M: Machine, S: Sequencer>(
    log: OwnLog<S>,
    setup: Setup,
    listener: std::net::TcpListener,
    machine: M,
    received: mpsc::UnboundedReceiver<Event>,
) -> Result<(), String> {
    block_on(async {
        let listener = bound(listener)?;
        serve_on(log, setup, listener, machine, received).await
    })
}

fn block_on(served: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| format!("the runtime: {why}"))?;
    let ended = runtime.block_on(served);
    // Connections that still wait for something end with it.
    runtime.shutdown_background();
    ended
}

fn bound(listener: std::net::TcpListener) -> Result<net::TcpListener, String> {
    net::taken(listener).map_err(|why| format!("the socket for replicas: {why}"))
}

fn links(setup: &Setup) -> Links {
    let [a, b, c, d] = setup.epoch.to_le_bytes();
    Links {
        secret: setup.secret,
        epoch: u16::from_le_bytes([a ^ c, b ^ d]),
        mixed: false,
        tls: setup.tls.clone(),
    }
}

/// With openraft, which has to find its group or found one.
async fn serve<M: Machine>(
    setup: Setup,
    listener: net::TcpListener,
    machine: M,
    received: mpsc::UnboundedReceiver<Event>,
) -> Result<(), String> {
    let links = links(&setup);
    let (me, slot) = (Node(setup.who.node), setup.who.slot);
    let (forward, forwarded) = mpsc::unbounded_channel();
    let post = move |to, post| {
        let _ = forward.send((to, post));
    };
    let (engine, deliveries, _) =
        Engine::start(me, links.clone(), setup.snapshot_every, None, post)
            .await
            .map_err(|why| format!("the ordering engine: {why:#}"))?;
    let (hearing, heard) = mpsc::unbounded_channel::<Heard>();
    let raft = Some(engine.raft.clone());
    tokio::spawn(links.clone().accept(listener, me, raft, hearing));
    let (standing, member) = watch::channel(false);
    let (news, told) = mpsc::unbounded_channel();
    let (waiting, joined) = (news.clone(), news.clone());
    let joins = meet::join(
        engine.clone(),
        links.clone(),
        setup.who.clone(),
        member,
        move |why| {
            let _ = waiting.send(News::Waiting {
                why: why.to_owned(),
            });
        },
    );
    let joins = async move {
        joins.await?;
        let _ = joined.send(News::Member { replica: slot });
        Ok(())
    };
    let driver = Driver::new(&setup, machine, engine, links, standing, news);
    let sources = Sources {
        deliveries,
        forwarded,
        received,
        heard,
        told,
    };
    sources.drive(driver, joins).await
}

/// With a log that says itself who belongs to the group.
async fn serve_on<M: Machine, S: Sequencer>(
    log: OwnLog<S>,
    setup: Setup,
    listener: net::TcpListener,
    machine: M,
    received: mpsc::UnboundedReceiver<Event>,
) -> Result<(), String> {
    let links = links(&setup);
    let (hearing, heard) = mpsc::unbounded_channel::<Heard>();
    let me = Node(setup.who.node);
    tokio::spawn(links.clone().accept(listener, me, None, hearing));
    let (standing, mut member) = watch::channel(false);
    let (news, told) = mpsc::unbounded_channel();
    // Nobody forwards: what is submitted is the log's.
    let (_, forwarded) = mpsc::unbounded_channel();
    let joined = news.clone();
    let slot = setup.who.slot;
    let joins = async move {
        if member.wait_for(|is_member| *is_member).await.is_ok() {
            let _ = joined.send(News::Member { replica: slot });
        }
        Ok(())
    };
    let driver = Driver::new(&setup, machine, log.sequencer, links, standing, news);
    let sources = Sources {
        deliveries: log.deliveries,
        forwarded,
        received,
        heard,
        told,
    };
    sources.drive(driver, joins).await
}

/// All that reaches a driver.
struct Sources {
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    forwarded: mpsc::UnboundedReceiver<(Node, Post)>,
    received: mpsc::UnboundedReceiver<Event>,
    heard: mpsc::UnboundedReceiver<Heard>,
    told: mpsc::UnboundedReceiver<News>,
}

impl Sources {
    async fn drive<M: Machine, S: Sequencer>(
        mut self,
        mut driver: Driver<M, S>,
        joins: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        tokio::pin!(joins);
        let mut joining = true;
        let mut ticks = tokio::time::interval(Duration::from_millis(4));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // First: it is ready once in a while, and load never ends.
                _ = ticks.tick() => driver.tick(),
                delivery = self.deliveries.recv() => match delivery {
                    Some(delivery) => driver.delivered(delivery),
                    None => return Err("the log has ended".to_owned()),
                },
                Some((to, post)) = self.forwarded.recv() => driver.forward(to, &post),
                event = self.received.recv() => match event {
                    Some(event) => driver.event(event),
                    None => return Ok(()),
                },
                Some(heard) = self.heard.recv() => driver.heard(heard),
                Some(news) = self.told.recv() => driver.tell(&news),
                joined = &mut joins, if joining => {
                    joining = false;
                    joined?;
                }
            }
            // Whatever else is there already belongs to the same turn, and so to the same CHECK and the same entry.
            for _ in 0..4 * BATCH_MAX {
                if let Ok(delivery) = self.deliveries.try_recv() {
                    driver.delivered(delivery);
                } else if let Ok(heard) = self.heard.try_recv() {
                    driver.heard(heard);
                } else if let Ok(event) = self.received.try_recv() {
                    driver.event(event);
                } else {
                    break;
                }
            }
            if let Some(why) = driver.turn() {
                return Err(why);
            }
        }
    }
}
