//! Fig. 2 of the paper as tables, and the simulated group.

mod backlog;
mod given_up;
mod rerun;

use std::collections::BTreeMap;

use crate::core::{Action, Core, Objects, Status};
use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Pair, Recover, Run, To, Tuple};
use crate::sim::{Class, Plan, run};

#[derive(Default)]
struct Nothing(BTreeMap<ObjectId, Vec<u8>>);

impl Objects for Nothing {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.0.get(&object).cloned()
    }

    fn intact(&self, _: ObjectId) -> bool {
        true
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        match packed {
            Some(bytes) => {
                self.0.insert(object, bytes.to_vec());
            }
            None => {
                self.0.remove(&object);
            }
        }
    }
}

const AT: Index = Index(1);

fn tuple(word: &str) -> Tuple {
    Tuple {
        objects: vec![Pair {
            object: ObjectId(7),
            digest: Digest::of(word.as_bytes()),
            passive: false,
            doubt: false,
            unproven: false,
        }],
        replies: vec![Digest::of(word.as_bytes())],
    }
}

/// Replica 1 of a group, at entry 1, having heard these words in this order; its own word comes first.
fn heard(size: usize, words: &[(u64, &str)]) -> (Core, Vec<Action>) {
    let nodes: Vec<Node> = (1..=size as u64).map(Node).collect();
    let mut core = Core::new(Node(1), size, 1);
    core.set_members(&nodes, Index(0));
    let mut store = Nothing::default();
    for (node, word) in words {
        let tuple = tuple(word);
        if *node == 1 {
            core.executed(AT, tuple);
            continue;
        }
        let runs = vec![Run {
            first: AT,
            digests: vec![tuple.digest(1, AT)],
        }];
        core.receive(Node(*node), Message::Check { epoch: 1, runs }, &mut store);
        // Whoever differs says what is behind it.
        core.receive(
            Node(*node),
            Message::Detail {
                index: AT,
                tuple,
                again: false,
            },
            &mut store,
        );
    }
    let actions = core.actions();
    (core, actions)
}

fn released(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::Release(..)))
}

#[test]
fn states_follow_the_figure() {
    use Status::{Failed, Suspect, Unknown, Valid};
    struct Row<'a> {
        /// From which replica, and of which state.
        heard: &'a [(u64, &'a str)],
        /// Of replicas 1 to 3.
        states: [Status; 3],
        /// Whether the reply may leave.
        leaves: bool,
    }
    let rows = [
        Row {
            heard: &[(1, "a")],
            states: [Unknown, Unknown, Unknown],
            leaves: false,
        },
        Row {
            heard: &[(1, "a"), (2, "a")],
            states: [Valid, Valid, Unknown],
            leaves: true,
        },
        Row {
            heard: &[(1, "a"), (2, "b")],
            states: [Suspect, Suspect, Unknown],
            leaves: false,
        },
        Row {
            heard: &[(1, "a"), (2, "b"), (3, "a")],
            states: [Valid, Failed, Valid],
            leaves: true,
        },
        Row {
            heard: &[(1, "a"), (2, "b"), (3, "b")],
            states: [Failed, Valid, Valid],
            leaves: false,
        },
        Row {
            heard: &[(2, "b"), (3, "b"), (1, "a")],
            states: [Failed, Valid, Valid],
            leaves: false,
        },
        Row {
            heard: &[(1, "a"), (2, "b"), (3, "c")],
            states: [Suspect, Suspect, Suspect],
            leaves: false,
        },
    ];
    for row in rows {
        let (core, actions) = heard(3, row.heard);
        let found = [1, 2, 3].map(|node| core.status(AT, Node(node)));
        assert_eq!(found, row.states, "{:?}", row.heard);
        assert_eq!(released(&actions), row.leaves, "{:?}", row.heard);
    }
}

#[test]
fn five_replicas_need_three_equal() {
    assert!(!released(&heard(5, &[(1, "a"), (2, "a")]).1));
    assert!(released(
        &heard(5, &[(1, "a"), (2, "a"), (3, "b"), (4, "a")]).1
    ));
    assert!(released(
        &heard(5, &[(1, "a"), (2, "b"), (3, "c"), (4, "a"), (5, "a")]).1
    ));
}

#[test]
fn the_first_of_the_right_ones_orders_the_recovery() {
    let orders = |actions: &[Action]| {
        actions
            .iter()
            .any(|action| matches!(action, Action::Order(_)))
    };
    assert!(orders(&heard(3, &[(1, "a"), (2, "b"), (3, "a")]).1));
    assert!(
        !orders(&heard(3, &[(1, "a"), (2, "b"), (3, "b")]).1),
        "the wrong one waits"
    );
    assert!(
        !orders(&heard(3, &[(1, "a"), (2, "a"), (3, "a")]).1),
        "nobody is wrong"
    );
}

#[test]
fn digests_of_another_epoch_are_not_compared() {
    let mut core = Core::new(Node(1), 3, 1);
    core.set_members(&[Node(1), Node(2), Node(3)], Index(0));
    core.executed(AT, tuple("a"));
    let runs = vec![Run {
        first: AT,
        digests: vec![1],
    }];
    core.receive(
        Node(2),
        Message::Check { epoch: 2, runs },
        &mut Nothing::default(),
    );
    assert_eq!(core.status(AT, Node(2)), Status::Unknown);
    assert_eq!(core.actions(), []);
}

#[test]
fn one_digest_of_sixteen_bytes_stands_for_a_batch() {
    let mut core = Core::new(Node(1), 3, 1);
    for index in 1..=4 {
        core.executed(Index(index), tuple("a"));
    }
    core.flush();
    let actions = core.actions();
    let [Action::Send(_, Message::Check { runs, .. })] = actions.as_slice() else {
        panic!("found {actions:?}");
    };
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].digests.len(), 4);
}

#[test]
fn who_waits_is_told_at_once_and_nobody_is_told_twice() {
    let mut core = Core::new(Node(1), 3, 1);
    core.set_members(&[Node(1), Node(2), Node(3)], Index(0));
    let told = |core: &mut Core| -> Vec<(To, Vec<u64>)> {
        let told = core.actions().into_iter().map(|action| match action {
            Action::Send(to, Message::Check { runs, .. }) => {
                let of = |run: Run| (run.first.0..).take(run.digests.len()).collect::<Vec<_>>();
                (to, runs.into_iter().flat_map(of).collect())
            }
            other => panic!("{other:?}"),
        });
        told.collect()
    };
    core.executed(Index(1), tuple("a"));
    core.flush_to(Node(2));
    assert_eq!(told(&mut core), [(To::One(Node(2)), vec![1])]);
    core.executed(Index(2), tuple("a"));
    core.flush_to(Node(2));
    core.flush_to(Node(2));
    assert_eq!(told(&mut core), [(To::One(Node(2)), vec![2])]);
    core.executed(Index(3), tuple("a"));
    core.flush();
    assert_eq!(
        told(&mut core),
        [
            (To::One(Node(2)), vec![3]),
            (To::One(Node(3)), vec![1, 2, 3])
        ]
    );
    core.flush();
    assert_eq!(told(&mut core), []);
    core.executed(Index(4), tuple("a"));
    core.flush();
    assert_eq!(told(&mut core), [(To::All, vec![4])]);
}

#[test]
fn two_replies_alike_of_replicas_that_were_hit_do_not_outvote_the_one_that_was_not() {
    let hit = |object: &str, passive: bool, reply: &str| Tuple {
        objects: vec![Pair {
            object: ObjectId(7),
            digest: Digest::of(object.as_bytes()),
            passive,
            doubt: false,
            unproven: false,
        }],
        replies: vec![Digest::of(reply.as_bytes())],
    };
    let leaves = |own, two, three| {
        let mut core = Core::new(Node(1), 3, 1);
        core.set_members(&[Node(1), Node(2), Node(3)], Index(0));
        core.executed(AT, own);
        for (node, tuple) in [(2, two), (3, three)] {
            let message = Message::Detail {
                index: AT,
                tuple,
                again: false,
            };
            core.receive(Node(node), message, &mut Nothing::default());
        }
        released(&core.actions())
    };
    // Two replicas lost the same item to different flips, and both answer that there is none.
    let right = || hit("right", false, "VALUE");
    let (one, other) = (|| hit("x", true, "END"), || hit("y", true, "END"));
    assert!(leaves(right(), one(), other()));
    assert!(!leaves(one(), right(), other()));
}

fn plan(seed: u64) -> Plan {
    Plan {
        size: 3,
        seed,
        entries: 400,
        batch: 3,
        fault_one_in: 40,
        classes: Class::ALL.to_vec(),
        crash: false,
    }
}

fn judged(plan: &Plan) -> crate::sim::Outcome {
    let outcome = run(plan);
    assert_eq!(outcome.wrong, 0, "{plan:?}: {outcome:?}");
    assert_eq!(outcome.left, [] as [String; 0], "{plan:?}: {outcome:?}");
    outcome
}

#[test]
fn without_faults_nothing_is_repaired() {
    for seed in 0..4 {
        let outcome = judged(&Plan {
            fault_one_in: 0,
            ..plan(seed)
        });
        assert_eq!(outcome.released, 3 * 400 * 3);
        assert_eq!(
            (outcome.repaired, outcome.recoveries, outcome.refused),
            (0, 1, 0)
        );
    }
}

#[test]
fn no_class_of_faults_lets_a_wrong_reply_out() {
    for class in Class::ALL {
        let mut faults = 0;
        for seed in 0..4 {
            // Messages of a recovery exist only where something is repaired.
            let classes = match class {
                Class::Detail | Class::Report | Class::Repair | Class::Replies | Class::Loss => {
                    vec![class, Class::Object]
                }
                _ => vec![class],
            };
            let outcome = judged(&Plan {
                classes,
                fault_one_in: 10,
                ..plan(seed)
            });
            faults += outcome.faults.get(class.name()).copied().unwrap_or(0);
        }
        assert!(faults > 0, "{class:?} never struck");
    }
}

#[test]
fn all_classes_together_in_groups_of_three_and_five() {
    for size in [3, 5] {
        let repaired: u64 = (0..8)
            .map(|seed| judged(&Plan { size, ..plan(seed) }).repaired)
            .sum();
        assert!(repaired > 0, "{size} replicas");
    }
}

#[test]
fn a_report_on_an_entry_that_is_no_recovery_holds_nothing_up() {
    let mut core = Core::new(Node(1), 3, 1);
    core.set_members(&[Node(1), Node(2), Node(3)], Index(0));
    let report = Message::Report {
        index: Index(9),
        pairs: tuple("a").objects,
        again: false,
    };
    core.receive(Node(2), report, &mut Nothing::default());
    assert!(!core.is_repairing());
    core.executed(Index(9), tuple("a"));
    for _ in 0..3000 {
        core.tick();
    }
    assert_eq!(core.doubts(), [] as [String; 0]);
}

/// What hit the own copy of the log may look like an order to compare. Only what all others know of may hold requests back, also where its
/// report comes before they have executed that entry.
#[test]
fn a_recovery_that_no_other_replica_knows_of_is_given_up() {
    let nodes: Vec<Node> = (1..=3).map(Node).collect();
    let object = ObjectId(7);
    let order = Recover {
        cause: Index(0),
        objects: vec![object],
    };
    for (knows, early) in [0, 1, 2].into_iter().flat_map(|n| [(n, false), (n, true)]) {
        let mut store = Nothing::default();
        let mut cores: Vec<Core> = nodes.iter().map(|node| Core::new(*node, 3, 1)).collect();
        for core in &mut cores {
            core.set_members(&nodes, Index(0));
        }
        let report = Message::Report {
            index: AT,
            pairs: vec![Pair {
                object,
                digest: Digest::of_packed(None),
                passive: false,
                doubt: false,
                unproven: false,
            }],
            again: false,
        };
        for (at, core) in cores.iter_mut().enumerate() {
            if early && at > 0 {
                core.receive(nodes[0], report.clone(), &mut store);
            }
            if at <= knows {
                core.recover(AT, &order, &store);
            } else {
                core.executed(AT, tuple("another entry"));
            }
        }
        let mut resumed = false;
        for _ in 0..40 {
            for at in 0..3 {
                cores[at].tick();
                for action in cores[at].actions() {
                    match action {
                        Action::Resume(AT) if at == 0 => resumed = true,
                        Action::Send(to, message @ Message::Report { .. }) => {
                            for other in (0..3).filter(|other| *other != at) {
                                if to == To::All || to == To::One(nodes[other]) {
                                    cores[other].receive(nodes[at], message.clone(), &mut store);
                                }
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        assert!(resumed, "{knows} others know of it, early: {early}");
        assert!(!cores[0].is_repairing());
    }
}

/// The one question, or the one answer, that this replica has for another.
fn asked(core: &mut Core) -> Option<(Node, Message)> {
    let mut wanted = core
        .actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Send(
                To::One(node),
                message @ (Message::Fetch { .. } | Message::Repair { .. }),
            ) => Some((node, message)),
            Action::Replace(..) => panic!("it gave up"),
            _ => None,
        });
    wanted.next_back()
}

#[test]
fn large_objects_are_repaired_in_parts_even_where_every_answer_is_late() {
    let recover = Recover {
        cause: AT,
        objects: (0..20).map(ObjectId).collect(),
    };
    let filled = |byte: u8| {
        let objects = recover.objects.iter();
        Nothing(objects.map(|id| (*id, vec![byte; 100_000])).collect())
    };
    let (mut right, mut wrong) = (filled(1), filled(2));
    let replica = |node, objects: &Nothing| {
        let mut core = Core::new(Node(node), 3, 1);
        core.set_members(&[Node(1), Node(2), Node(3)], Index(0));
        core.recover(AT, &recover, objects);
        core
    };
    let mut mine = replica(1, &wrong);
    let mut others = [replica(2, &right), replica(3, &right)];
    for (node, other) in [2, 3].into_iter().zip(&mut others) {
        for action in other.actions() {
            if let Action::Send(_, report @ Message::Report { .. }) = action {
                mine.receive(Node(node), report, &mut wrong);
            }
        }
    }
    mine.repair();
    let mut question = asked(&mut mine);
    let mut parts = 0;
    while let Some((source, fetch)) = question {
        let other = &mut others[usize::try_from(source.0 - 2).unwrap()];
        other.receive(Node(1), fetch, &mut right);
        let (_, answer) = asked(other).expect("an answer");
        let Message::Repair { objects, .. } = &answer else {
            panic!("{answer:?}")
        };
        assert!((1..=3).contains(&objects.len()), "a part");
        // Meanwhile another replica is asked.
        (0..20).for_each(|_| mine.tick());
        assert!(asked(&mut mine).is_some_and(|(node, _)| node != source));
        mine.receive(source, answer, &mut wrong);
        question = asked(&mut mine);
        parts += 1;
    }
    assert_eq!(parts, 7);
    assert_eq!(wrong.0, right.0);
}

/// Two recoveries of one object, both asked about, and both open, since one replica is late. The first answer repairs it at both, and the
/// object changes rightly from there.
#[test]
fn an_answer_that_repairs_nothing_changes_no_later_recovery() {
    const OBJECT: ObjectId = ObjectId(7);
    let mut core = Core::new(Node(1), 5, 1);
    core.set_members(&[1, 2, 3, 4, 5].map(Node), Index(0));
    let mut store = Nothing::default();
    store.0.insert(OBJECT, b"wrong".to_vec());
    let order = Recover {
        cause: AT,
        objects: vec![OBJECT],
    };
    let says = |core: &mut Core, store: &mut Nothing, node, index, word: &[u8]| {
        let pairs = vec![Pair {
            object: OBJECT,
            digest: Digest::of(word),
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
        core.receive(Node(node), report, store);
    };
    let gives = |core: &mut Core, store: &mut Nothing, index| {
        let objects = vec![(OBJECT, Some(b"right".to_vec()))];
        core.receive(Node(2), Message::Repair { index, objects }, store);
    };
    for index in [Index(2), Index(3)] {
        core.recover(index, &order, &store);
        core.repair();
        for node in 2..=4 {
            says(&mut core, &mut store, node, index, b"right");
        }
    }
    gives(&mut core, &mut store, Index(2));
    let resumed = core.actions();
    for index in [Index(2), Index(3)] {
        assert!(resumed.contains(&Action::Resume(index)), "{resumed:?}");
    }
    // A request makes it something else, in all replicas, and somebody looks again.
    store.0.insert(OBJECT, b"later".to_vec());
    core.recover(Index(5), &order, &store);
    core.actions();
    gives(&mut core, &mut store, Index(3));
    assert_eq!(store.pack(OBJECT).as_deref(), Some(&b"later"[..]));
    for node in 2..=4 {
        says(&mut core, &mut store, node, Index(5), b"later");
    }
    let actions = core.actions();
    let asks = |action: &Action| matches!(action, Action::Send(_, Message::Fetch { .. }));
    assert!(!actions.iter().any(asks), "{actions:?}");
    assert!(actions.contains(&Action::Resume(Index(5))), "{actions:?}");
}

#[test]
fn a_crash_stops_nothing() {
    for seed in 0..8 {
        for size in [3, 5] {
            judged(&Plan {
                size,
                crash: true,
                ..plan(seed)
            });
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(run(&plan(3)), run(&plan(3)));
}

/// Faults nearly as often as anything else happens.
fn hostile(classes: &[Class], seed: u64) -> Plan {
    Plan {
        seed,
        entries: 200,
        fault_one_in: 3,
        classes: classes.to_vec(),
        ..plan(seed)
    }
}

#[test]
fn a_lost_report_is_asked_for_again() {
    judged(&hostile(&[Class::Loss, Class::Object], 4_294_967_530));
}

#[test]
fn a_report_that_is_hit_does_not_undo_a_vote() {
    for number in [2, 3, 5] {
        let outcome = judged(&hostile(&[Class::Report, Class::Object], 1 << 32 | number));
        assert_eq!(outcome.replaced, 0, "run {number}");
    }
}
