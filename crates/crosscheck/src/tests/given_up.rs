//! A replica that nothing repairs: it ends, and a fresh process takes its place. One that something reaches in time does not.

use super::*;

const OBJECT: ObjectId = ObjectId(7);

/// Replica 1 of three has lost the vote on an object, and asks the others for it, each of which answers with this, or not at all. How often it
/// has asked, and what it did in the end.
fn answered(mut answer: impl FnMut(usize) -> Option<&'static str>) -> (usize, Vec<Action>) {
    let mut core = Core::new(Node(1), 3, 1);
    core.set_members(&[1, 2, 3].map(Node), Index(0));
    let mut store = Nothing(BTreeMap::from([(OBJECT, b"wrong".to_vec())]));
    let order = Recover {
        cause: AT,
        objects: vec![OBJECT],
    };
    core.recover(AT, &order, &store);
    for node in [2, 3] {
        let pairs = vec![Pair {
            object: OBJECT,
            digest: Digest::of(b"right"),
            passive: false,
            doubt: false,
            unproven: false,
        }];
        let (index, again) = (AT, false);
        let report = Message::Report {
            index,
            pairs,
            again,
        };
        core.receive(Node(node), report, &mut store);
    }
    core.repair();
    let (mut asked, mut ended) = (0, Vec::new());
    for _ in 0..4000 {
        let actions = core.actions();
        let mut came = Vec::new();
        for action in actions {
            match action {
                Action::Send(To::One(node), Message::Fetch { .. }) => {
                    asked += 1;
                    let bytes = answer(asked).map(|word| word.as_bytes().to_vec());
                    came.extend(bytes.map(|bytes| (node, bytes)));
                }
                Action::Replace(..) | Action::Resume(_) => ended.push(action),
                _ => {}
            }
        }
        if !ended.is_empty() {
            break;
        }
        for (node, bytes) in came {
            let (index, objects) = (AT, vec![(OBJECT, Some(bytes))]);
            core.receive(node, Message::Repair { index, objects }, &mut store);
        }
        core.tick();
    }
    (asked, ended)
}

fn why(ended: &[Action]) -> &'static str {
    match ended {
        [Action::Replace(Node(1), why)] => why,
        _ => panic!("{ended:?}"),
    }
}

#[test]
fn a_burst_of_answers_that_were_hit_is_stood_and_a_second_of_them_is_not() {
    let (asked, ended) = answered(|number| Some(if number > 200 { "right" } else { "wrung" }));
    assert_eq!((asked, ended), (201, vec![Action::Resume(AT)]));
    let (asked, ended) = answered(|_| Some("wrung"));
    // A dozen at once, then one with each tick.
    assert!((240..280).contains(&asked), "{asked}");
    assert!(why(&ended).contains("other than what was voted for"));
}

#[test]
fn who_is_answered_by_nobody_says_so() {
    let (asked, ended) = answered(|_| None);
    assert_eq!(asked, 13);
    assert!(why(&ended).contains("no other replica has sent"));
    // What comes late is not too late.
    let (_, ended) = answered(|number| (number == 12).then_some("right"));
    assert_eq!(ended, [Action::Resume(AT)]);
}

/// What it receives with changes every REPAIR: whatever it had, no reply is wrong, the others go on, and its follower is as they are.
#[test]
fn who_cannot_be_repaired_is_replaced() {
    for (seed, size) in (0..6).flat_map(|seed| [(seed, 3), (seed, 5)]) {
        let outcome = judged(&Plan {
            size,
            ..hostile(&[Class::Receiver, Class::Object], seed)
        });
        assert_eq!(outcome.replaced, 1, "seed {seed}, {size} replicas");
    }
}

/// Each REPAIR may be hit, and nobody's every one is.
#[test]
fn who_can_be_repaired_is_not_replaced() {
    for (seed, size) in (0..6).flat_map(|seed| [(seed, 3), (seed, 5)]) {
        let outcome = judged(&Plan {
            size,
            fault_one_in: 12,
            ..hostile(&[Class::Repair, Class::Object], seed)
        });
        assert!(outcome.repaired > 0 && outcome.replaced == 0, "{outcome:?}");
    }
}
