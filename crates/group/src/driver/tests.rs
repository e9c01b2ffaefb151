//! The driver as it is, engine and connections included, over a simulated network and clock: messages are held back or lost, hosts crash
//! and begin anew, and stored bytes flip. Clients count, and a count tells whether it was counted once.
//!
//! Invariants
//!  1. A host crashes, or is cut off, or has a fault, but one at a time: more than one is more than three replicas promise to stand.
//!  2. Network, clock and faults come from a seed; the engine's own dice do not, so a seed gives alike runs and not the same one.
//!
//! Not covered: a log on disk, TLS.

mod held;
mod own_log;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_crosscheck::{Digest, Index, ObjectId, Objects, Pair};
use tokio::sync::mpsc;

use self::own_log::List;
use super::{Event, Machine, News, Setup, serve, serve_on};
use crate::net::TcpListener;
use crate::who::{Kept, Who};

const HOSTS: [&str; 3] = ["r0", "r1", "r2"];
const PORT: u16 = 7000;
const KEYS: u8 = 4;
/// So much of each run is a time of faults; behind it everything has to come to rest.
const TROUBLE: Duration = Duration::from_secs(20);
const REST: Duration = Duration::from_secs(6);

/// Counts, each with the digest of its bytes.
#[derive(Default)]
struct Counters {
    counts: BTreeMap<u128, (Vec<u8>, Digest)>,
    touched: Vec<(ObjectId, bool)>,
    shared: Arc<Shared>,
    host: usize,
}

/// What the test knows of all hosts.
#[derive(Default)]
struct Shared {
    /// Process numbers; nobody had one before.
    nodes: AtomicU64,
    /// The next access at this host finds a flipped bit.
    strike: [AtomicU64; 3],
    repaired: AtomicU64,
    answers: Mutex<Vec<Answer>>,
}

/// What a client was told, and when it had asked.
#[derive(Clone, Copy)]
struct Answer {
    host: usize,
    key: u8,
    count: u64,
    asked: Duration,
    told: Duration,
}

fn object(key: u8) -> ObjectId {
    ObjectId(1 << 100 | u128::from(key))
}

impl Objects for Counters {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.counts.get(&object.0).map(|(bytes, _)| bytes.clone())
    }

    fn intact(&self, object: ObjectId) -> bool {
        let found = self.counts.get(&object.0);
        found.is_none_or(|(bytes, digest)| Digest::of(bytes) == *digest)
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        self.counts.remove(&object.0);
        if let Some(packed) = packed {
            let counted = (packed.to_vec(), Digest::of(packed));
            self.counts.insert(object.0, counted);
        }
    }
}

impl Machine for Counters {
    fn begin(&mut self, _: Index) {
        self.touched.clear();
    }

    fn execute(&mut self, _: u64, request: &[u8]) -> Vec<u8> {
        let id = object(request[0]);
        if let Some((bytes, _)) = self.counts.get_mut(&id.0)
            && self.shared.strike[self.host].swap(0, Ordering::Relaxed) != 0
        {
            bytes[1] ^= 4;
        }
        self.look(id);
        let intact = self.intact(id);
        let old = self.pack(id).map_or(0, |bytes| number(&bytes));
        let bytes = (old + 1).to_le_bytes().to_vec();
        // What was made from a wrong count must not look right.
        let digest = if intact {
            Digest::of(&bytes)
        } else {
            Digest(!Digest::of(&bytes).0)
        };
        self.counts.insert(id.0, (bytes.clone(), digest));
        bytes
    }

    fn finish(&mut self) -> Vec<Pair> {
        let touched = std::mem::take(&mut self.touched);
        let pair = |(object, passive)| Pair {
            object,
            digest: Digest::of_packed(self.pack(object).as_deref()),
            passive,
            doubt: false,
            unproven: false,
        };
        touched.into_iter().map(pair).collect()
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.counts.keys().copied().map(ObjectId).collect()
    }

    fn look(&mut self, object: ObjectId) {
        if self.touched.iter().all(|(known, _)| *known != object) {
            self.touched.push((object, !self.intact(object)));
        }
    }

    fn told(&mut self, news: &News) {
        if matches!(news, News::Repaired { .. }) {
            self.shared.repaired.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

/// One start of a replica, and its client, for as long as its host lives. `own` is a log of the service's own.
async fn replica(host: usize, shared: Arc<Shared>, own: Option<Arc<List>>) -> turmoil::Result {
    let who = Who {
        slot: host as u64,
        node: match own {
            Some(_) => host as u64 + 1,
            None => shared.nodes.fetch_add(1, Ordering::Relaxed) + 1,
        },
        client: String::new(),
        peers: HOSTS.map(|name| format!("{name}:{PORT}")).to_vec(),
        service: "counters".into(),
        memory_mib: 0,
        kept: Kept::Nothing,
    };
    let setup = Setup {
        who,
        secret: 7,
        tls: None,
        epoch: 1,
        snapshot_every: 50,
        scrub_s: 64,
    };
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
    let machine = Counters {
        shared: shared.clone(),
        host,
        ..Counters::default()
    };
    let (calls, received) = mpsc::unbounded_channel();
    tokio::spawn(client(host, shared, calls));
    let ended = match own {
        Some(list) => serve_on(list.read(host), setup, listener, machine, received).await,
        None => serve(setup, listener, machine, received).await,
    };
    ended.map_err(Into::into)
}

/// Counts, one request after the other.
async fn client(host: usize, shared: Arc<Shared>, calls: mpsc::UnboundedSender<Event>) {
    for round in 0_u64.. {
        let key = u8::try_from(round % u64::from(KEYS)).unwrap();
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        let asked = turmoil::sim_elapsed().unwrap();
        if calls.send(Event::Call(vec![key], reply)).is_err() {
            return;
        }
        let said = loop {
            match answer.try_recv() {
                Err(std::sync::mpsc::TryRecvError::Empty) => {
                    tokio::time::sleep(Duration::from_millis(8)).await;
                }
                said => break said,
            }
        };
        // An error says nothing: the request may have been executed.
        if let Ok(Ok(reply)) = said {
            assert_eq!(Digest::of(&reply.bytes), reply.voted);
            let told = turmoil::sim_elapsed().unwrap();
            let count = number(&reply.bytes);
            shared.answers.lock().unwrap().push(Answer {
                host,
                key,
                count,
                asked,
                told,
            });
        }
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

/// What befalls a host, or its connection with the next one.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Nothing,
    Hold,
    Partition,
    Isolate,
    Crash,
    Strike,
}

const TROUBLES: [Trouble; 5] = [
    Trouble::Hold,
    Trouble::Partition,
    Trouble::Isolate,
    Trouble::Crash,
    Trouble::Strike,
];

fn befall(sim: &mut turmoil::Sim<'_>, shared: &Shared, what: Trouble, host: usize) {
    let (one, next, third) = (HOSTS[host], HOSTS[(host + 1) % 3], HOSTS[(host + 2) % 3]);
    match what {
        Trouble::Nothing => {}
        Trouble::Hold => sim.hold(one, next),
        Trouble::Partition => sim.partition(one, next),
        Trouble::Isolate => {
            sim.partition(one, next);
            sim.partition(one, third);
        }
        Trouble::Crash => sim.crash(one),
        Trouble::Strike => shared.strike[host].store(1, Ordering::Relaxed),
    }
}

fn relieve(sim: &mut turmoil::Sim<'_>, what: Trouble, host: usize) {
    let (one, next, third) = (HOSTS[host], HOSTS[(host + 1) % 3], HOSTS[(host + 2) % 3]);
    match what {
        Trouble::Nothing | Trouble::Strike => {}
        Trouble::Hold => sim.release(one, next),
        Trouble::Partition => sim.repair(one, next),
        Trouble::Isolate => {
            sim.repair(one, next);
            sim.repair(one, third);
        }
        Trouble::Crash => sim.bounce(one),
    }
}

fn until(sim: &mut turmoil::Sim<'_>, time: Duration) {
    while sim.elapsed() < time {
        sim.step().unwrap();
    }
}

fn dice(state: &mut u64, below: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*state >> 33).unwrap() % below
}

/// A run with these troubles, in an order that the seed says; what the clients were told.
fn run(seed: u64, troubles: &[Trouble]) -> (Vec<Answer>, u64) {
    run_on(seed, troubles, None)
}

/// The same on a log of the service's own.
fn run_on(seed: u64, troubles: &[Trouble], own: Option<Arc<List>>) -> (Vec<Answer>, u64) {
    let shared = Arc::<Shared>::default();
    let mut sim = turmoil::Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(3600))
        .tick_duration(Duration::from_millis(4))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(8))
        .tcp_capacity(4096)
        .build();
    for (host, name) in HOSTS.into_iter().enumerate() {
        let (shared, own) = (shared.clone(), own.clone());
        sim.host(name, move || replica(host, shared.clone(), own.clone()));
    }
    let mut state = seed;
    let mut at = Duration::from_secs(3);
    while at < TROUBLE {
        let what = troubles[dice(&mut state, troubles.len())];
        let host = dice(&mut state, 3);
        until(&mut sim, at);
        befall(&mut sim, &shared, what, host);
        at += Duration::from_millis(500 + dice(&mut state, 3000) as u64);
        until(&mut sim, at);
        relieve(&mut sim, what, host);
        // One at a time: what has just ended is noticed, and put right, before the next comes.
        at += Duration::from_secs(5);
    }
    until(&mut sim, at + REST);
    let answers = shared.answers.lock().unwrap().clone();
    counted_once(seed, &answers);
    all_answer(seed, &answers, sim.elapsed());
    (answers, shared.repaired.load(Ordering::Relaxed))
}

/// Each count was told once, and none was asked for when a larger one had been told.
fn counted_once(seed: u64, answers: &[Answer]) {
    for key in 0..KEYS {
        let mut of: Vec<&Answer> = answers.iter().filter(|one| one.key == key).collect();
        of.sort_by_key(|one| one.count);
        for two in of.windows(2) {
            assert_ne!(
                two[0].count, two[1].count,
                "seed {seed}, key {key}: counted twice"
            );
        }
        let mut told_later = Duration::MAX;
        for one in of.iter().rev() {
            assert!(
                one.asked <= told_later,
                "seed {seed}, key {key}: count {} was asked for when a larger one had been told",
                one.count
            );
            told_later = told_later.min(one.told);
        }
    }
}

/// Every host answers in the end.
fn all_answer(seed: u64, answers: &[Answer], end: Duration) {
    for (host, name) in HOSTS.into_iter().enumerate() {
        let last = answers
            .iter()
            .filter(|one| one.host == host)
            .map(|one| one.told)
            .max();
        assert!(
            last.is_some_and(|last| end - last < Duration::from_secs(3)),
            "seed {seed}: {name} answered last at {last:?}, and it is {end:?}"
        );
    }
}

#[test]
fn without_trouble_every_host_counts_and_nothing_is_repaired() {
    let (answers, repaired) = run(1, &[Trouble::Nothing]);
    assert!(answers.len() > 300, "{}", answers.len());
    assert_eq!(repaired, 0);
}

#[test]
fn a_flipped_count_is_outvoted_and_repaired() {
    let (_, repaired) = run(2, &[Trouble::Strike]);
    assert!(repaired > 0);
}

#[test]
fn messages_held_back_or_lost_and_hosts_that_crash_make_no_count_wrong() {
    let seeds = std::env::var("GROUP_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 100..100 + seeds {
        run(seed, &TROUBLES);
    }
}

#[test]
fn a_count_that_is_told_twice_or_too_late_is_noticed() {
    let answer = |count, asked, told| Answer {
        host: 0,
        key: 0,
        count,
        asked: Duration::from_secs(asked),
        told: Duration::from_secs(told),
    };
    let judged = |answers: [Answer; 2]| std::panic::catch_unwind(|| counted_once(0, &answers));
    assert!(judged([answer(1, 1, 2), answer(2, 3, 4)]).is_ok());
    assert!(judged([answer(2, 1, 4), answer(1, 3, 5)]).is_ok());
    assert!(judged([answer(1, 1, 2), answer(1, 3, 4)]).is_err());
    assert!(judged([answer(2, 1, 2), answer(1, 3, 4)]).is_err());
}
