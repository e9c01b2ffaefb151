//! A service of three replicas that has a log already: the loop of this crate executes it and votes.
//!
//! Not covered: how such a log finds its order among several processes. Here it is a list of one.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_crosscheck::{Arena, Critical, Node, Ref, State};
use steadfast_group::driver::{Calls, Guarded, News, OwnLog, Setup};
use steadfast_group::sequencer::stamped;
use steadfast_group::{Delivery, Kept, Member, Sequencer, Who};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Critical)]
struct Counter {
    hits: u64,
}

#[derive(State, Default)]
struct Counters {
    counters: Arena<Counter>,
}

impl Counters {
    fn hit(&mut self, name: &str) -> u64 {
        let at = Ref::named(name.as_bytes());
        if self.counters.read(at).is_none() {
            self.counters.put(at, Counter { hits: 0 });
        }
        let mut counter = self.counters.write(at).expect("it is there");
        counter.hits += 1;
        counter.hits
    }
}

/// The service's own log: a list that every replica is told of.
#[derive(Clone)]
struct List {
    members: BTreeMap<Node, Member>,
    readers: Arc<Mutex<(u64, Vec<UnboundedSender<Delivery>>)>>,
}

impl List {
    fn of(peers: &[String]) -> (Self, Vec<UnboundedReceiver<Delivery>>) {
        let member = |(slot, peer): (u64, &String)| {
            let (peer, client) = (peer.clone(), String::new());
            (Node(slot + 1), Member { slot, peer, client })
        };
        let members: BTreeMap<Node, Member> = (0..).zip(peers).map(member).collect();
        let (readers, deliveries): (Vec<_>, Vec<_>) =
            peers.iter().map(|_| unbounded_channel()).unzip();
        for reader in &readers {
            let (index, members) = (1, members.clone());
            reader.send(Delivery::Members { index, members }).unwrap();
        }
        let readers = Arc::new(Mutex::new((1, readers)));
        (Self { members, readers }, deliveries)
    }
}

impl Sequencer for List {
    fn submit(&self, bytes: Vec<u8>) {
        let (index, readers) = &mut *self.readers.lock().unwrap();
        *index += 1;
        for reader in readers {
            let (index, bytes) = (*index, stamped(*index, &bytes));
            let _ = reader.send(Delivery::Entry { index, bytes });
        }
    }

    fn leader(&self) -> Option<Node> {
        Some(Node(1))
    }

    fn is_leader(&self) -> bool {
        false
    }

    fn members(&self) -> BTreeMap<Node, Member> {
        self.members.clone()
    }

    async fn replace(&self, _: Option<Node>, _: Node, _: Member) -> Result<(), String> {
        Err("the members are who they are".to_owned())
    }

    async fn readdress(&self, _: Node, _: Member) -> Result<(), String> {
        Err("the members are who they are".to_owned())
    }
}

#[test]
fn a_service_gives_the_loop_its_own_log_and_a_flipped_counter_is_repaired() {
    let sockets: Vec<TcpListener> = (0..3)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let peers: Vec<String> = sockets
        .iter()
        .map(|socket| socket.local_addr().unwrap().to_string())
        .collect();
    let (list, deliveries) = List::of(&peers);
    let strikes = Arc::new(AtomicBool::new(false));
    let repairs = Arc::new(AtomicU64::new(0));
    let mut replicas = Vec::new();
    for (slot, (socket, deliveries)) in (0..).zip(sockets.into_iter().zip(deliveries)) {
        let setup = Setup {
            who: Who {
                slot,
                node: slot + 1,
                client: String::new(),
                peers: peers.clone(),
                service: "counters".to_owned(),
                memory_mib: 0,
                kept: Kept::Nothing,
            },
            secret: 7,
            tls: None,
            epoch: Counters::epoch(),
            snapshot_every: 1000,
            scrub_s: 0,
        };
        let (strikes, repairs) = (strikes.clone(), repairs.clone());
        let execute = move |state: &mut Counters, _, name: String| {
            if slot == 1 && strikes.swap(false, Ordering::Relaxed) {
                let at = Ref::named(name.as_bytes());
                state.counters.raw(at).expect("it was hit before").hits ^= 1 << 40;
            }
            state.hit(&name)
        };
        let told = move |news: &News| {
            if let News::Repaired { replica, .. } = news {
                repairs.fetch_add(1 << (8 * replica), Ordering::Relaxed);
            }
        };
        let guarded = Guarded::new(Counters::default(), execute, told);
        let log = OwnLog {
            sequencer: list.clone(),
            deliveries,
        };
        replicas.push(Calls::start_on(log, setup, socket, guarded).unwrap());
    }
    for round in 0..30 {
        if round == 10 {
            assert_eq!(repairs.load(Ordering::Relaxed), 0, "nothing was struck");
            strikes.store(true, Ordering::Relaxed);
        }
        // Each replica's own callers, in turns.
        let (calls, _) = &replicas[round % 3];
        assert_eq!(calls.ask(&"ducks".to_owned()), Ok(round as u64 + 1));
    }
    assert!(!strikes.load(Ordering::Relaxed), "it was struck");
    assert_eq!(repairs.load(Ordering::Relaxed), 1 << 8, "at replica 1");
    for (calls, ends) in replicas {
        drop(calls);
        assert_eq!(ends.join().unwrap(), Ok(()));
    }
}
