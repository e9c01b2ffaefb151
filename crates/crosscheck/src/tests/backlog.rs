//! Replicas that are late, silent or alone: what waits for them, and what comes of many differences at once.

use super::*;

const OBJECT: ObjectId = ObjectId(7);

fn order() -> Recover {
    Recover {
        cause: AT,
        objects: vec![OBJECT],
    }
}

/// Replica 1 of three; the others are heard.
fn first() -> Core {
    let mut core = Core::new(Node(1), 3, 1);
    core.set_members(&[1, 2, 3].map(Node), Index(0));
    core
}

fn holding(word: &str) -> Nothing {
    Nothing(BTreeMap::from([(OBJECT, word.as_bytes().to_vec())]))
}

fn pair(word: &str) -> Pair {
    Pair {
        object: OBJECT,
        digest: Digest::of(word.as_bytes()),
        passive: false,
        doubt: false,
        unproven: false,
    }
}

fn report(index: Index, pair: Pair) -> Message {
    Message::Report {
        index,
        pairs: vec![pair],
        again: false,
    }
}

/// What a replica does within some time.
fn within(core: &mut Core, ticks: u32) -> Vec<Action> {
    let mut all = core.actions();
    for _ in 0..ticks {
        core.tick();
        all.extend(core.actions());
    }
    all
}

fn orders(actions: &[Action]) -> Vec<&Recover> {
    let orders = actions.iter().filter_map(|action| match action {
        Action::Order(recover) => Some(recover),
        _ => None,
    });
    orders.collect()
}

/// Two are alive and differ. This one has executed something without a voice, as one does whose votes came to no end.
#[test]
fn of_two_that_are_left_the_one_of_which_no_fault_is_known_decides() {
    let came = |actions: &[Action]| {
        let known = actions.iter().filter_map(|action| match action {
            Action::Resume(AT) => Some("goes on"),
            Action::Send(_, Message::Fetch { .. }) => Some("is repaired"),
            Action::Stuck(..) => Some("sticks"),
            _ => None,
        });
        known.collect::<Vec<_>>().first().copied()
    };
    let one = pair("other");
    let (doubt, passive, unproven) = (true, true, true);
    for (other, expected) in [
        (Pair { doubt, ..one }, "goes on"),
        (Pair { passive, ..one }, "goes on"),
        (one, "is repaired"),
        (Pair { unproven, ..one }, "sticks"),
    ] {
        let mut core = first();
        core.missed();
        core.set_alive(Node(3), false);
        let mut store = holding("own");
        core.recover(AT, &order(), &store);
        core.receive(Node(2), report(AT, other), &mut store);
        let actions = within(&mut core, 100);
        assert_eq!(came(&actions), Some(expected), "{other:?}: {actions:?}");
    }
}

/// Not heard for a while it may only be slow. When it comes to that entry it finds itself wrong.
#[test]
fn copies_are_kept_for_a_member_that_is_not_heard() {
    let mut core = first();
    core.set_alive(Node(3), false);
    let mut store = holding("right");
    core.recover(AT, &order(), &store);
    core.receive(Node(2), report(AT, pair("right")), &mut store);
    assert!(within(&mut core, 1000).contains(&Action::Resume(AT)));
    core.set_alive(Node(3), true);
    core.receive(Node(3), report(AT, pair("wrong")), &mut store);
    let objects = vec![OBJECT];
    let fetch = Message::Fetch { index: AT, objects };
    core.receive(Node(3), fetch, &mut store);
    let gives = |action: &Action| {
        matches!(action, Action::Send(To::One(Node(3)), Message::Repair { objects, .. })
            if objects[0].1.as_deref() == Some(b"right"))
    };
    assert!(core.actions().iter().any(gives));
    // One that is no member any more needs nothing.
    core.set_members(&[1, 2].map(Node), Index(5));
    within(&mut core, 64);
    assert_eq!(core.doubts(), [] as [String; 0]);
}

/// Whoever had the bytes has none any more, and the group cannot do without the one that needs them.
#[test]
fn what_nobody_can_repair_is_compared_anew_where_nobody_may_be_replaced() {
    for others in [1, 2] {
        let mut core = first();
        let mut store = holding("wrong");
        core.recover(AT, &order(), &store);
        for node in [2, 3] {
            core.receive(Node(node), report(AT, pair("right")), &mut store);
        }
        core.set_alive(Node(3), others == 2);
        let actions = within(&mut core, 2000);
        let replaced = |action: &Action| matches!(action, Action::Replace(..));
        assert_eq!(actions.iter().any(replaced), others == 2);
        assert_eq!(actions.contains(&Action::Resume(AT)), others == 1);
        if others == 2 {
            continue;
        }
        assert!(core.is_repairing());
        // The order is given again until the log has it.
        let given = orders(&actions);
        assert!(given.len() >= 2, "{given:?}");
        assert!(given.iter().all(|given| given.objects == [OBJECT]));
        core.recover(Index(2), &order(), &store);
        core.receive(Node(2), report(Index(2), pair("right")), &mut store);
        let objects = vec![(OBJECT, Some(b"right".to_vec()))];
        let index = Index(2);
        core.repair();
        core.receive(Node(2), Message::Repair { index, objects }, &mut store);
        let actions = within(&mut core, 300);
        assert!(actions.contains(&Action::Resume(index)), "{actions:?}");
        assert_eq!(orders(&actions), [] as [&Recover; 0]);
        assert_eq!(store.pack(OBJECT).as_deref(), Some(&b"right"[..]));
    }
}

/// An entry that touches one object, which this replica and the second have alike and the third has not.
fn differs(core: &mut Core, index: u64) {
    let of = |word: &str| Tuple {
        objects: vec![Pair {
            object: ObjectId(index.into()),
            ..pair(word)
        }],
        replies: Vec::new(),
    };
    core.executed(Index(index), of("right"));
    for (node, word) in [(2, "right"), (3, "wrong")] {
        let (index, tuple, again) = (Index(index), of(word), false);
        let list = Message::Detail {
            index,
            tuple,
            again,
        };
        core.receive(Node(node), list, &mut Nothing::default());
    }
}

#[test]
fn what_differs_while_an_order_is_under_way_goes_into_the_next_one() {
    let mut core = first();
    for index in 1..=100 {
        differs(&mut core, index);
    }
    let actions = core.actions();
    let [one] = orders(&actions)[..] else {
        panic!("{actions:?}");
    };
    assert_eq!(one.objects, [ObjectId(1)]);
    core.recover(Index(101), &one.clone(), &Nothing::default());
    let actions = core.actions();
    let [rest] = orders(&actions)[..] else {
        panic!("{actions:?}");
    };
    assert_eq!((rest.cause, rest.objects.len()), (Index(2), 99));
    core.recover(Index(102), &rest.clone(), &Nothing::default());
    assert_eq!(orders(&core.actions()), [] as [&Recover; 0]);
}

#[test]
fn an_entry_before_a_recovery_that_is_found_to_differ_later_needs_no_other_one() {
    let mut core = first();
    let order = Recover {
        cause: Index(1),
        objects: [2, 3].map(ObjectId).to_vec(),
    };
    core.recover(Index(3), &order, &Nothing::default());
    differs(&mut core, 2);
    assert_eq!(orders(&within(&mut core, 300)), [] as [&Recover; 0]);
    // The recovery's own place is the last that it says nothing about.
    differs(&mut core, 3);
    assert_eq!(orders(&core.actions()).len(), 1);
}

#[test]
fn a_difference_is_not_forgotten_while_its_recovery_is_late() {
    let mut core = first();
    differs(&mut core, 1);
    within(&mut core, 3000);
    let actions = within(&mut core, 300);
    assert!(!orders(&actions).is_empty());
}

/// Others go on without it, and repair what they can. It may be the one that was struck.
#[test]
fn who_was_not_heard_for_a_while_is_repaired_and_not_replaced() {
    for (seed, size) in (0..8).flat_map(|seed| [(seed, 3), (seed, 5)]) {
        let outcome = judged(&Plan {
            size,
            classes: vec![Class::Silence, Class::Object],
            fault_one_in: 12,
            ..plan(seed)
        });
        assert!(outcome.repaired > 0 && outcome.replaced == 0, "{outcome:?}");
    }
}
