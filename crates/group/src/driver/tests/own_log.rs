//! A service with a log of its own: here a list that all hosts have, and that a seed makes unreliable.

use std::sync::PoisonError;

use steadfast_crosscheck::Node;

use super::super::OwnLog;
use super::*;
use crate::sequencer::{Delivery, Sequencer, stamped};
use crate::who::Member;

/// What was ordered, and who hears of it.
pub(super) struct List(Mutex<Listed>);

struct Listed {
    entries: Vec<Vec<u8>>,
    readers: Vec<mpsc::UnboundedSender<Delivery>>,
    dice: u64,
    lost: u64,
    twice: u64,
}

/// The list, as one host has it.
#[derive(Clone)]
struct Own {
    me: Node,
    list: Arc<List>,
}

fn members() -> BTreeMap<Node, Member> {
    let member = |host: usize| Member {
        slot: host as u64,
        peer: format!("{}:{PORT}", HOSTS[host]),
        client: String::new(),
    };
    (0..3)
        .map(|host| (Node(host as u64 + 1), member(host)))
        .collect()
}

/// Members are the log's first entry.
fn delivery(at: usize, bytes: &[u8]) -> Delivery {
    Delivery::Entry {
        index: at as u64 + 2,
        bytes: bytes.to_vec(),
    }
}

impl List {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Listed {
            entries: Vec::new(),
            readers: Vec::new(),
            dice: seed,
            lost: 0,
            twice: 0,
        })))
    }

    fn listed(&self) -> std::sync::MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of it from its beginning, for a host.
    pub(super) fn read(self: Arc<Self>, host: usize) -> OwnLog<impl Sequencer> {
        let (reader, deliveries) = mpsc::unbounded_channel();
        let first = Delivery::Members {
            index: 1,
            members: members(),
        };
        reader.send(first).unwrap();
        let mut listed = self.listed();
        for (at, bytes) in listed.entries.iter().enumerate() {
            reader.send(delivery(at, bytes)).unwrap();
        }
        listed.readers.push(reader);
        drop(listed);
        let sequencer = Own {
            me: Node(host as u64 + 1),
            list: self,
        };
        OwnLog {
            sequencer,
            deliveries,
        }
    }
}

impl Sequencer for Own {
    /// One in eight is lost, and one in eight comes out twice.
    fn submit(&self, bytes: Vec<u8>) {
        let listed = &mut *self.list.listed();
        let copies = match dice(&mut listed.dice, 8) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        listed.lost += u64::from(copies == 0);
        listed.twice += u64::from(copies == 2);
        for _ in 0..copies {
            let at = listed.entries.len();
            let bytes = stamped(at as u64, &bytes);
            for reader in &listed.readers {
                let _ = reader.send(delivery(at, &bytes));
            }
            listed.entries.push(bytes);
        }
    }

    fn leader(&self) -> Option<Node> {
        Some(Node(1))
    }

    fn is_leader(&self) -> bool {
        self.leader() == Some(self.me)
    }

    fn members(&self) -> BTreeMap<Node, Member> {
        members()
    }

    async fn replace(&self, _: Option<Node>, _: Node, _: Member) -> Result<(), String> {
        Err("the members are who they are".to_owned())
    }

    async fn readdress(&self, _: Node, _: Member) -> Result<(), String> {
        Err("the members are who they are".to_owned())
    }
}

#[test]
fn a_service_with_a_log_of_its_own_votes_and_counts_each_request_once() {
    let list = List::new(5);
    let (answers, repaired) = run_on(5, &[Trouble::Nothing], Some(list.clone()));
    assert!(answers.len() > 300, "{}", answers.len());
    assert_eq!(repaired, 0);
    let listed = list.listed();
    assert!(listed.lost > 20 && listed.twice > 20);
}

#[test]
fn what_flips_in_a_service_with_a_log_of_its_own_is_outvoted_and_repaired() {
    let (_, repaired) = run_on(6, &[Trouble::Strike], Some(List::new(6)));
    assert!(repaired > 0);
}
