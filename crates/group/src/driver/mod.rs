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
use crate::tls::Tls;
use crate::who::Who;
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|why| format!("the runtime: {why}"))?;
    let ended = runtime.block_on(async {
        let listener =
            net::taken(listener).map_err(|why| format!("the socket for replicas: {why}"))?;
        serve(setup, listener, machine, received).await
    });
    // Connections that still wait for something end with it.
    runtime.shutdown_background();
    ended
}

async fn serve<M: Machine>(
    setup: Setup,
    listener: net::TcpListener,
    machine: M,
    mut received: mpsc::UnboundedReceiver<Event>,
) -> Result<(), String> {
    let [a, b, c, d] = setup.epoch.to_le_bytes();
    let links = Links {
        secret: setup.secret,
        epoch: u16::from_le_bytes([a ^ c, b ^ d]),
        mixed: false,
        tls: setup.tls.clone(),
    };
    let (me, slot) = (Node(setup.who.node), setup.who.slot);
    let (forward, mut forwarded) = mpsc::unbounded_channel();
    let post = move |to, post| {
        let _ = forward.send((to, post));
    };
    let (engine, mut log, _) = Engine::start(me, links.clone(), setup.snapshot_every, None, post)
        .await
        .map_err(|why| format!("the ordering engine: {why:#}"))?;
    let (hearing, mut heard) = mpsc::unbounded_channel::<Heard>();
    tokio::spawn(links.clone().accept(listener, engine.raft.clone(), hearing));
    let (standing, member) = watch::channel(false);
    let (news, mut told) = mpsc::unbounded_channel();
    let waiting = news.clone();
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
    let mut driver = Driver::new(&setup, machine, engine, links, standing, news);
    tokio::pin!(joins);
    let mut joining = true;
    let mut ticks = tokio::time::interval(Duration::from_millis(4));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            // First: it is ready once in a while, and load never ends.
            _ = ticks.tick() => driver.tick(),
            Some(delivery) = log.recv() => driver.delivered(delivery),
            Some((to, post)) = forwarded.recv() => driver.forward(to, &post),
            event = received.recv() => match event {
                Some(event) => driver.event(event),
                None => return Ok(()),
            },
            Some(heard) = heard.recv() => driver.heard(heard),
            Some(news) = told.recv() => driver.tell(&news),
            joined = &mut joins, if joining => {
                joining = false;
                joined?;
                driver.tell(&News::Member { replica: slot });
            }
        }
        // Whatever else is there already belongs to the same turn, and so to the same CHECK and the same entry.
        for _ in 0..4 * BATCH_MAX {
            if let Ok(delivery) = log.try_recv() {
                driver.delivered(delivery);
            } else if let Ok(heard) = heard.try_recv() {
                driver.heard(heard);
            } else if let Ok(event) = received.try_recv() {
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
