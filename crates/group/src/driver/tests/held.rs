//! Orders to compare that follow each other, at one driver: the test is the log, and speaks for the two other replicas.

use steadfast_crosscheck::{Message, Node, Recover};
use tokio::sync::watch;

use super::super::log::{Body, Entry, Whole, head};
use super::super::turn::Driver;
use super::*;
use crate::links::{Heard, Links};
use crate::sequencer::raft::Engine;
use crate::sequencer::{Delivery, Sequencer as _};
use crate::who::Member;
use crate::wire::Post;

fn entry(sequence: u64, body: Body) -> Vec<u8> {
    entry_of(2, sequence, body)
}

fn entry_of(origin: u64, sequence: u64, body: Body) -> Vec<u8> {
    let entry = Entry {
        origin,
        sequence,
        body,
    };
    // The leader's time and its check: eight and four bytes of zeros fit each other.
    [vec![0; 12], entry.sealed().unwrap()].concat()
}

/// A replica that never has a fault, after some of these entries: only the head is asked about.
fn head_after(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Whole {
        book: Default::default(),
        machine: Counters::default(),
    };
    for (at, bytes) in entries.iter().enumerate() {
        let index = Index(at as u64 + 1);
        whole.begin(index);
        whole.book.enter(index, bytes, 0);
        whole.finish();
    }
    whole.pack(head().id()).unwrap()
}

fn asked(driver: &mut Driver<Counters>) -> serde_json::Value {
    let (reply, answer) = std::sync::mpsc::sync_channel(1);
    driver.event(Event::Status(reply));
    serde_json::from_str(&answer.recv().unwrap()).unwrap()
}

async fn a_driver(shared: Arc<Shared>) -> Driver<Counters> {
    let who = Who {
        slot: 0,
        node: 1,
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
        scrub_s: 0,
    };
    let links = Links {
        secret: 7,
        epoch: 1,
        mixed: false,
        tls: None,
    };
    let (engine, _log, _) = Engine::start(Node(1), links.clone(), 50, None, |_, _| {})
        .await
        .unwrap();
    assert_eq!(engine.leader(), None, "the test is the log");
    let machine = Counters {
        shared,
        ..Counters::default()
    };
    let (standing, _) = watch::channel(false);
    let (news, _) = mpsc::unbounded_channel();
    Driver::new(&setup, machine, engine, links, standing, news)
}

fn join(driver: &mut Driver<Counters>) {
    let member = |slot: u64| Member {
        slot,
        peer: format!("{}:{PORT}", HOSTS[usize::try_from(slot).unwrap()]),
        client: String::new(),
    };
    let members = (0..3).map(|slot| (Node(slot + 1), member(slot))).collect();
    driver.delivered(Delivery::Members { index: 0, members });
}

/// An entry of this replica's own is hit in its queue: it has not admitted it, and the others have.
async fn an_own_entry_is_hit() {
    let mut driver = a_driver(Arc::default()).await;
    join(&mut driver);
    let deliver = |driver: &mut Driver<Counters>, index: u64, bytes: Vec<u8>| {
        driver.delivered(Delivery::Entry { index, bytes });
        driver.turn();
    };
    let request = || Body::Requests(vec![vec![0].into()]);
    let call = |driver: &mut Driver<Counters>| {
        let (caller, answer) = std::sync::mpsc::sync_channel(1);
        driver.submit(request(), vec![caller]);
        answer
    };
    let hit_one = call(&mut driver);
    let next_one = call(&mut driver);
    let mut hit = entry_of(1, 1, request());
    *hit.last_mut().unwrap() ^= 1;
    deliver(&mut driver, 1, hit);
    assert_eq!(asked(&mut driver)["counts"]["poison"], 1);
    // The order to repair what came of that is of the same origin.
    let order = Body::Recover(Recover {
        cause: Index(1),
        objects: vec![head().id()],
    });
    deliver(&mut driver, 2, entry_of(1, 3, order));
    assert_eq!(
        driver.held.len(),
        1,
        "the order was taken for a repeated one"
    );
    driver.held.clear();
    // The session is repaired; others submit on and on, so nothing is submitted again.
    assert!(driver.whole.book.admit(1, 1));
    assert!(hit_one.try_recv().is_err(), "nobody knows yet");
    deliver(&mut driver, 3, entry_of(1, 2, request()));
    assert!(
        hit_one.try_recv().unwrap().is_err(),
        "told that its reply is lost"
    );
    assert!(next_one.try_recv().is_err(), "waits for its vote");
}

/// The group of three, and what the log says; the head of this replica is struck before the first order to compare, if it is to be.
async fn two_orders(strikes: bool) {
    let shared = Arc::<Shared>::default();
    let mut driver = a_driver(shared.clone()).await;
    join(&mut driver);
    let recover = || {
        Body::Recover(Recover {
            cause: Index(1),
            objects: vec![head().id()],
        })
    };
    let entries = [
        entry(1, Body::Requests(vec![vec![0].into()])),
        entry(2, recover()),
        entry(3, recover()),
        entry(4, Body::Requests(vec![vec![0].into()])),
    ];
    let deliver = |driver: &mut Driver<Counters>, at: usize| {
        driver.delivered(Delivery::Entry {
            index: at as u64,
            bytes: entries[at - 1].clone(),
        });
    };
    deliver(&mut driver, 1);
    driver.turn();
    if strikes {
        driver.whole.book.heads.raw(head()).unwrap().chain ^= 16;
    }
    (2..=4).for_each(|at| deliver(&mut driver, at));
    driver.turn();
    assert_eq!(asked(&mut driver)["executed"], 2, "the second one waits");
    let says = |driver: &mut Driver<Counters>, node: u64, message: Message| {
        driver.heard(Heard::Post(Node(node), Post::Vote(message)));
    };
    for at in 2..=3 {
        let right = head_after(&entries[..at]);
        let index = Index(at as u64);
        for node in 2..=3 {
            let pairs = vec![Pair {
                object: head().id(),
                digest: Digest::of(&right),
                passive: false,
                doubt: false,
                unproven: false,
            }];
            let again = false;
            let report = Message::Report {
                index,
                pairs,
                again,
            };
            says(&mut driver, node, report);
        }
        if at == 2 && strikes {
            assert_eq!(asked(&mut driver)["executed"], 2, "wrong, and held");
            let objects = vec![(head().id(), Some(right))];
            says(&mut driver, 2, Message::Repair { index, objects });
        }
        driver.turn();
        // The others close it, and nobody would answer a question about it any more.
    }
    assert_eq!(asked(&mut driver)["executed"], 4);
    assert_eq!(driver.held.len(), 0);
    assert_eq!(
        driver.whole.pack(head().id()).unwrap(),
        head_after(&entries)
    );
    assert_eq!(
        shared.repaired.load(Ordering::Relaxed),
        u64::from(strikes),
        "at the first order, and only there"
    );
}

fn simulated(test: impl Future<Output = ()> + 'static) {
    let mut sim = turmoil::Builder::new().build();
    for name in &HOSTS[1..] {
        sim.host(*name, std::future::pending);
    }
    sim.client(HOSTS[0], async move {
        test.await;
        Ok(())
    });
    sim.run().unwrap();
}

#[test]
fn an_order_to_compare_waits_until_the_head_of_the_log_is_repaired() {
    simulated(two_orders(true));
}

#[test]
fn without_a_flip_orders_follow_each_other_and_nothing_is_repaired() {
    simulated(two_orders(false));
}

#[test]
fn an_order_of_the_origin_that_was_hit_is_followed_and_its_callers_are_told() {
    simulated(an_own_entry_is_hit());
}
