//! A service of guarded objects as three replicas: its memory is changed behind the guards' back, the vote finds it and repairs it.
//!
//! Invariant: the loop here knows the service by its requests and by the trait `State` alone.
//!
//! Not covered: a network that loses or reorders; the crate's simulator does.

#[path = "guarded/bank.rs"]
mod bank;

use std::collections::{BTreeMap, VecDeque};

use bank::{Bank, Request, account};
use steadfast_crosscheck::{
    Action, Core, Digest, Index, Message, Node, ObjectId, Objects as _, Recover, State as _, To,
    Tuple, refresh,
};

enum Entry {
    Request(Request),
    Recover(Recover),
    /// Everything is compared.
    Scrub,
}

struct Replica {
    core: Core,
    bank: Bank,
    next: usize,
    held: Vec<Index>,
    own: BTreeMap<Index, Vec<Vec<u8>>>,
    left: BTreeMap<Index, Vec<u8>>,
    repaired: Vec<(ObjectId, bool)>,
}

struct Group {
    log: Vec<Entry>,
    replicas: Vec<Replica>,
    messages: VecDeque<(Node, To, Message)>,
}

impl Group {
    fn new() -> Self {
        let nodes: Vec<Node> = (0..3).map(Node).collect();
        let replica = |node: &Node| {
            let mut core = Core::new(*node, 3, Bank::epoch());
            core.set_members(&nodes, Index(0));
            Replica {
                core,
                bank: Bank::default(),
                next: 0,
                held: Vec::new(),
                own: BTreeMap::new(),
                left: BTreeMap::new(),
                repaired: Vec::new(),
            }
        };
        Self {
            log: Vec::new(),
            replicas: nodes.iter().map(replica).collect(),
            messages: VecDeque::new(),
        }
    }

    /// Puts it into the log, and waits until nothing is under way; what each replica has answered.
    fn log(&mut self, entry: Entry) -> [Option<String>; 3] {
        self.log.push(entry);
        let index = Index(self.log.len() as u64);
        for _ in 0..100 {
            while self.step() {}
            for replica in &mut self.replicas {
                replica.core.tick();
            }
        }
        [0, 1, 2].map(|at| {
            let reply = self.replicas[at].left.get(&index)?;
            Some(String::from_utf8(reply.clone()).unwrap())
        })
    }

    fn ask(&mut self, request: Request) -> String {
        let replies = self.log(Entry::Request(request));
        assert!(replies.iter().all(Option::is_some), "{replies:?}");
        assert!(
            replies.iter().all(|reply| *reply == replies[0]),
            "{replies:?}"
        );
        replies[0].clone().unwrap()
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        for at in 0..3 {
            moved |= self.execute(at);
            moved |= self.act(at);
        }
        if let Some((from, to, message)) = self.messages.pop_front() {
            for at in 0..3 {
                let node = Node(at as u64);
                if node != from && (to == To::All || to == To::One(node)) {
                    self.receive(at, from, message.clone());
                }
            }
            moved = true;
        }
        moved
    }

    fn receive(&mut self, at: usize, from: Node, message: Message) {
        let replica = &mut self.replicas[at];
        if let Message::FetchReplies { index } = message {
            if let Some(replies) = replica.own.get(&index).cloned() {
                let answer = Message::Replies { index, replies };
                self.messages
                    .push_back((Node(at as u64), To::One(from), answer));
            }
            return;
        }
        replica.core.receive(from, message, &mut replica.bank);
    }

    fn execute(&mut self, at: usize) -> bool {
        let replica = &mut self.replicas[at];
        if !replica.held.is_empty() || replica.next == self.log.len() {
            return false;
        }
        let index = Index(replica.next as u64 + 1);
        let entry = &self.log[replica.next];
        replica.next += 1;
        replica.bank.begin(index);
        let mut replies = Vec::new();
        match entry {
            Entry::Request(request) => replies.push(replica.bank.execute(request).into_bytes()),
            Entry::Scrub => {
                for object in replica.bank.objects() {
                    replica.bank.look(object);
                }
            }
            Entry::Recover(_) => {}
        }
        let tuple = Tuple {
            objects: replica.bank.finish(),
            replies: replies.iter().map(|reply| Digest::of(reply)).collect(),
        };
        replica.own.insert(index, replies);
        replica.core.executed(index, tuple);
        if let Entry::Recover(order) = entry {
            replica.held.push(index);
            replica.core.recover(index, order, &replica.bank);
            replica.core.repair();
        }
        replica.core.flush();
        true
    }

    fn act(&mut self, at: usize) -> bool {
        let actions = self.replicas[at].core.actions();
        let moved = !actions.is_empty();
        for action in actions {
            let replica = &mut self.replicas[at];
            match action {
                Action::Send(to, message) => {
                    self.messages.push_back((Node(at as u64), to, message));
                }
                Action::Release(index, digests) => {
                    let replies = &replica.own[&index];
                    assert!(replies.iter().map(|r| Digest::of(r)).eq(digests));
                    let reply = replies.first().cloned().unwrap_or_default();
                    replica.left.insert(index, reply);
                }
                Action::ReleaseWith(index, replies) => {
                    if let Some((Some(right), _)) = replies.into_iter().next() {
                        replica.left.insert(index, right);
                    }
                }
                Action::Order(recover) => self.log.push(Entry::Recover(recover)),
                Action::Refresh(object, digest) => refresh(&mut replica.bank, object, digest),
                Action::Resume(index) => replica.held.retain(|held| *held != index),
                Action::Repaired {
                    object, passive, ..
                } => replica.repaired.push((object, passive)),
                Action::Undecided(index) => panic!("no majority at {index}"),
                Action::Stuck(index, _) => panic!("stuck at {index}"),
                Action::Replace(node, why) => panic!("{node}: {why}"),
                Action::Rerun(index) => panic!("nobody keeps an undo, at {index}"),
                Action::Mismatch(_) | Action::Blame { .. } | Action::Forget(_) => {}
            }
        }
        moved
    }

    /// Objects of all replicas are the same, and fit their digests.
    fn is_healed(&self) -> bool {
        let packed = |replica: &Replica| -> Vec<(ObjectId, Option<Vec<u8>>)> {
            let objects = replica.bank.objects();
            objects
                .iter()
                .map(|id| (*id, replica.bank.pack(*id)))
                .collect()
        };
        let first = packed(&self.replicas[0]);
        self.replicas.iter().all(|replica| {
            packed(replica) == first && first.iter().all(|(id, _)| replica.bank.intact(*id))
        })
    }
}

fn opened() -> Group {
    let mut group = Group::new();
    for name in ["alice", "bob"] {
        assert_eq!(group.ask(Request::Open(name)), "opened");
        assert_eq!(group.ask(Request::Deposit(name, 1000)), "paid in");
    }
    assert_eq!(group.ask(Request::Transfer("alice", "bob", 100)), "moved");
    group
}

#[test]
fn a_flipped_field_is_outvoted_and_repaired_in_every_replica() {
    for victim in 0..3 {
        let mut group = opened();
        group.replicas[victim]
            .bank
            .accounts
            .raw(account("alice"))
            .unwrap()
            .cents ^= 1 << 3;
        assert_eq!(group.ask(Request::Balance("alice")), "alice has 900");
        assert_eq!(
            group.replicas[victim].repaired,
            [(account("alice").id(), true)],
            "replica {victim}"
        );
        let found = group.replicas[victim].bank.accounts.found();
        assert_eq!(
            (found[0].kind, &found[0].fields[..]),
            ("Account", &["cents"][..])
        );
        assert!(group.is_healed());
        assert_eq!(group.ask(Request::Balance("alice")), "alice has 900");
    }
}

#[test]
fn without_guards_the_same_flip_is_a_wrong_answer() {
    // Three replicas of the same log; each answers its own clients.
    let mut plain: Vec<Bank> = (0..3).map(|_| Bank::default()).collect();
    for bank in &mut plain {
        bank.execute(&Request::Open("alice"));
        bank.execute(&Request::Deposit("alice", 900));
    }
    plain[1].accounts.raw(account("alice")).unwrap().cents ^= 1 << 3;
    let answers: Vec<String> = plain
        .iter_mut()
        .map(|bank| bank.execute(&Request::Balance("alice")))
        .collect();
    assert_eq!(answers, ["alice has 900", "alice has 908", "alice has 900"]);
}

#[test]
fn bytes_on_the_heap_a_reference_and_a_lost_object_are_repaired_as_well() {
    // The owner's name lies on the heap; a reference is a number; an object may be gone, or be there without a reason.
    type Strike = fn(&mut Bank);
    let strikes: [(&str, Strike); 4] = [
        ("owner", |bank| {
            bank.accounts.raw(account("alice")).unwrap().owner = "alicf".to_owned();
        }),
        ("last", |bank| {
            let at = account("alice");
            bank.accounts.raw(at).unwrap().last = None;
        }),
        ("transfer", |bank| {
            let at = bank.transfers.refs().next().unwrap();
            bank.transfers.raw(at).unwrap().cents = 1;
        }),
        ("lost", |bank| {
            let at = bank.transfers.refs().next().unwrap();
            bank.transfers.replace(at.id(), None);
        }),
    ];
    for (name, strike) in strikes {
        let mut group = opened();
        strike(&mut group.replicas[1].bank);
        assert_eq!(group.ask(Request::Last("alice")), "100 to bob", "{name}");
        assert_eq!(
            group.ask(Request::Balance("alice")),
            "alice has 900",
            "{name}"
        );
        assert!(group.is_healed(), "{name}");
        assert_eq!(group.replicas[1].repaired.len(), 1, "{name}");
    }
}

#[test]
fn a_change_made_from_a_flipped_value_is_undone_by_the_vote() {
    let mut group = opened();
    group.replicas[2]
        .bank
        .accounts
        .raw(account("bob"))
        .unwrap()
        .cents ^= 1 << 40;
    assert_eq!(group.ask(Request::Transfer("bob", "alice", 50)), "moved");
    assert_eq!(group.ask(Request::Balance("bob")), "bob has 1050");
    assert!(group.is_healed());
    assert!(
        group.replicas[2]
            .repaired
            .contains(&(account("bob").id(), true))
    );
}

#[test]
fn cold_objects_are_found_by_a_scrub_and_an_object_that_ends_is_gone_everywhere() {
    let mut group = opened();
    group.replicas[0]
        .bank
        .accounts
        .raw(account("bob"))
        .unwrap()
        .cents ^= 1;
    group.log(Entry::Scrub);
    assert_eq!(group.replicas[0].repaired, [(account("bob").id(), true)]);
    assert!(group.is_healed());
    assert_eq!(group.ask(Request::Close("bob")), "1100 was paid out");
    assert_eq!(group.ask(Request::Balance("bob")), "no such account");
    assert!(group.is_healed());
}

#[test]
fn without_a_flip_nothing_is_repaired_and_what_is_skipped_is_no_difference() {
    let mut group = opened();
    group.replicas[1]
        .bank
        .accounts
        .raw(account("alice"))
        .unwrap()
        .reads = 7;
    for _ in 0..50 {
        assert_eq!(group.ask(Request::Transfer("alice", "bob", 1)), "moved");
        assert_eq!(group.ask(Request::Transfer("bob", "alice", 1)), "moved");
    }
    group.log(Entry::Scrub);
    assert_eq!(group.ask(Request::Balance("alice")), "alice has 900");
    for replica in &mut group.replicas {
        assert!(replica.repaired.is_empty());
        assert!(replica.bank.found().is_empty());
    }
    assert!(
        group
            .log
            .iter()
            .all(|entry| !matches!(entry, Entry::Recover(_)))
    );
}
