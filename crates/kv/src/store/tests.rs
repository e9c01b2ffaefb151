//! Items that were hit, and items that have no room.

use super::*;
use crate::protocol::{Parsed, parse};

mod meta;
/// The same entries with one thread and with several.
mod side_by_side;
/// Entries that are run again, beside the state that they have led to.
mod undo;

fn run(store: &mut Store, text: &str) -> (String, Delta) {
    let Parsed::Request(_, request) = parse(text.as_bytes()) else {
        panic!("{text:?} is no request");
    };
    let mut delta = Delta::default();
    let reply = store.execute(&request, &mut delta);
    store.leave();
    (String::from_utf8(reply).unwrap(), delta)
}

fn with_a(value: &str) -> Store {
    let mut store = Store::new(true, 1 << 20, true);
    run(
        &mut store,
        &format!("set a 0 0 {}\r\n{value}\r\n", value.len()),
    );
    store
}

#[test]
fn no_change_makes_a_struck_item_look_intact() {
    let a = item_id(b"a");
    for change in [
        "append a 0 0 1\r\n7\r\n",
        "prepend a 0 0 1\r\n7\r\n",
        "incr a 1\r\n",
        "touch a 100\r\n",
        "gat 100 a\r\n",
    ] {
        let mut store = with_a("100");
        assert!(store.intact(a));
        store.strike(b"a", "value", 2, 0).unwrap();
        assert!(!store.intact(a));
        let (_, delta) = run(&mut store, change);
        assert!(!store.intact(a), "{change:?}");
        assert!(store.digests(&delta).iter().any(|pair| pair.passive));
        // Without a strike none of them marks anything.
        let mut store = with_a("100");
        let (_, delta) = run(&mut store, change);
        assert!(store.intact(a), "{change:?}");
        assert!(!store.digests(&delta).iter().any(|pair| pair.passive));
    }
}

/// Its repair may come after the entry that says who belongs to the group.
#[test]
fn the_session_of_an_origin_that_is_no_member_is_forgotten_though_a_repair_brings_it_back() {
    let mut store = with_a("100");
    for origin in [1, 2] {
        let mut delta = Delta::default();
        assert!(store.admit(origin, 1, &mut delta));
        assert!(!store.admit(origin, 1, &mut delta));
    }
    let packed = store.pack(session_id(2));
    store.keep_sessions(&[1]);
    assert_eq!(store.pack(session_id(2)), None);
    store.replace(session_id(2), packed.as_deref());
    assert_eq!(store.last(2), 1);
    store.keep_sessions(&[1]);
    assert_eq!((store.last(1), store.last(2)), (1, 0));
    assert_eq!(store.pack(session_id(2)), None);
}

/// As memcached 1.6 answers the same commands.
#[test]
fn a_count_keeps_the_length_of_what_it_counts_unless_it_grows() {
    struct Row {
        was: &'static str,
        change: &'static str,
        said: &'static str,
        is: &'static str,
    }
    for Row {
        was,
        change,
        said,
        is,
    } in [
        Row {
            was: "10   ",
            change: "incr a 1\r\n",
            said: "11\r\n",
            is: "11   ",
        },
        Row {
            was: "007",
            change: "incr a 1\r\n",
            said: "8\r\n",
            is: "8  ",
        },
        Row {
            was: "10",
            change: "decr a 1\r\n",
            said: "9\r\n",
            is: "9 ",
        },
        Row {
            was: "9 ",
            change: "ma a N0 v\r\n",
            said: "VA 2\r\n10\r\n",
            is: "10",
        },
        Row {
            was: "+07",
            change: "ma a D3 v\r\n",
            said: "VA 2\r\n10\r\n",
            is: "10 ",
        },
        Row {
            was: "99",
            change: "incr a 1\r\n",
            said: "100\r\n",
            is: "100",
        },
    ] {
        let mut store = with_a(was);
        assert_eq!(run(&mut store, change).0, said, "{was:?}, {change:?}");
        let length = is.len();
        let found = format!("VALUE a 0 {length}\r\n{is}\r\nEND\r\n");
        assert_eq!(run(&mut store, "get a\r\n").0, found, "{was:?}, {change:?}");
    }
}

#[test]
fn an_item_whose_key_was_hit_is_kept_as_evidence() {
    let mut store = with_a("100");
    store.strike(b"a", "key", 0, 1).unwrap();
    let (reply, delta) = run(&mut store, "get a\r\n");
    assert_eq!(reply, "END\r\n");
    assert!(store.digests(&delta).iter().all(|pair| pair.passive));
    assert!(!store.intact(item_id(b"a")));
}

#[test]
fn a_snapshot_hands_no_struck_item_on_as_a_right_one() {
    let mut store = with_a("100");
    run(&mut store, "set b 0 0 1\r\n7\r\n");
    store.strike(b"a", "value", 2, 0).unwrap();
    let mut other = Store::new(true, 1 << 20, true);
    other.restore(&store.snapshot()).unwrap();
    assert_eq!(other.head(), store.head());
    assert!(!other.intact(item_id(b"a")));
    assert_eq!(run(&mut other, "get a\r\n").0, "END\r\n");
    assert_eq!(
        run(&mut other, "get b\r\n").0,
        "VALUE b 0 1\r\n7\r\nEND\r\n"
    );
}

#[test]
fn a_state_without_an_item_that_was_counted_is_not_whole() {
    let mut store = with_a("100");
    run(&mut store, "set b 0 0 1\r\n7\r\n");
    run(&mut store, "delete b\r\n");
    assert!(store.is_whole());
    let id = item_id(b"a");
    store.shards[shard_of(id)].remove(&id.0);
    assert!(!store.is_whole());
}

#[test]
fn what_does_not_fit_is_refused_and_room_comes_back() {
    let item = HEADER as u64 + 1 + 100 + ENTRY;
    let mut store = Store::new(true, 2 * item, false);
    let value = "x".repeat(100);
    let set =
        |store: &mut Store, key: &str| run(store, &format!("set {key} 0 0 100\r\n{value}\r\n")).0;
    assert_eq!(set(&mut store, "a"), "STORED\r\n");
    assert_eq!(set(&mut store, "b"), "STORED\r\n");
    assert_eq!(store.size(), (2, 2 * item));
    assert!(set(&mut store, "c").starts_with("SERVER_ERROR out of memory"));
    // In place of itself it fits; one byte more does not.
    assert_eq!(set(&mut store, "a"), "STORED\r\n");
    let (reply, _) = run(&mut store, "append a 0 0 1\r\nx\r\n");
    assert!(reply.starts_with("SERVER_ERROR out of memory"));
    assert_eq!(run(&mut store, "delete b\r\n").0, "DELETED\r\n");
    assert_eq!(set(&mut store, "c"), "STORED\r\n");
    assert_eq!(store.size(), (2, 2 * item));
}

#[test]
fn what_was_stored_longest_ago_goes_where_there_is_no_room() {
    let item = HEADER as u64 + 1 + 100 + ENTRY;
    let mut store = Store::new(true, 3 * item, true);
    let value = "x".repeat(100);
    let set = |store: &mut Store, key: &str| {
        let (reply, delta) = run(store, &format!("set {key} 0 0 100\r\n{value}\r\n"));
        assert_eq!(reply, "STORED\r\n");
        delta
    };
    for key in ["a", "b", "c", "a"] {
        set(&mut store, key);
    }
    // A read keeps nothing; a new store does.
    assert!(run(&mut store, "get b\r\n").0.starts_with("VALUE"));
    let delta = set(&mut store, "d");
    assert_eq!(run(&mut store, "get b\r\n").0, "END\r\n");
    // It is one of the objects that are voted on, as one that is not there.
    assert!(delta.objects().any(|id| id == item_id(b"b")));
    assert_eq!((store.size(), store.evictions()), ((3, 3 * item), 1));
    // Another process that takes the state has the same order.
    let mut other = Store::new(true, 3 * item, true);
    other.restore(&store.snapshot()).unwrap();
    for store in [&mut store, &mut other] {
        set(store, "e");
        assert_eq!(run(store, "get c\r\n").0, "END\r\n");
        assert!(run(store, "get a\r\n").0.starts_with("VALUE"));
    }
    // What is larger than all that there is room for drives nothing out.
    let large = "x".repeat(1000);
    let (reply, _) = run(&mut store, &format!("set f 0 0 1000\r\n{large}\r\n"));
    assert!(reply.starts_with("SERVER_ERROR out of memory"));
    assert_eq!(store.size().0, 3);
}

#[test]
fn a_flip_at_rest_is_named_whatever_the_request_made_of_it() {
    let mut store = Store::new(true, 1 << 20, true);
    run(&mut store, "set a 0 0 2\r\n17\r\n");
    run(&mut store, "ma b N0 Oonce:web:1\r\n");
    store.strike(b"a", "value", 1, 2).unwrap();
    let slot = crate::once::key("web");
    store.strike(&slot, "value", 5, 3).unwrap();
    struct Flip {
        request: &'static str,
        id: ObjectId,
        byte: usize,
        bit: u32,
    }
    for Flip {
        request,
        id,
        byte,
        bit,
    } in [
        Flip {
            request: "incr a 1\r\n",
            id: item_id(b"a"),
            byte: 1,
            bit: 2,
        },
        Flip {
            request: "ma b Oonce:web:2\r\n",
            id: item_id(&slot),
            byte: 5,
            bit: 3,
        },
    ] {
        let (_, mut delta) = run(&mut store, request);
        let (found, at_rest) = delta.found.pop().unwrap();
        let (place, flipped) = at_rest.flip().unwrap();
        assert_eq!(
            (found, place.field, place.byte, flipped),
            (id, "value", byte, bit)
        );
        assert!(delta.found.is_empty());
    }
    let (_, delta) = run(&mut store, "get b\r\n");
    assert!(delta.found.is_empty(), "what is intact is not looked at");
    // Two bits: nobody can tell which.
    store.strike(b"b", "value", 0, 0).unwrap();
    store.strike(b"b", "value", 0, 1).unwrap();
    let (_, mut delta) = run(&mut store, "get b\r\n");
    assert_eq!(delta.found.pop().unwrap().1.flip(), None);
}

#[test]
fn a_count_with_the_number_of_another_write_changes_nothing() {
    let mut store = Store::new(true, 1 << 20, true);
    run(&mut store, "set a 0 0 1\r\n7\r\n");
    let (cas, _) = run(&mut store, "mg a c\r\n");
    let cas = cas.trim_start_matches("HD c").trim_end();
    assert_eq!(run(&mut store, "ma a C99 v c\r\n").0, "EX c0\r\n");
    assert_eq!(
        run(&mut store, "get a\r\n").0,
        "VALUE a 0 1\r\n7\r\nEND\r\n"
    );
    assert_eq!(
        run(&mut store, &format!("ma a C{cas} v\r\n")).0,
        "VA 1\r\n8\r\n"
    );
    // What there is not has no number.
    assert_eq!(run(&mut store, "ma b C99 N0 J5 v\r\n").0, "VA 1\r\n5\r\n");
}

#[test]
fn a_value_above_the_limit_leaves_no_older_one_behind() {
    let mut store = Store::new(true, 1 << 20, true);
    run(&mut store, "set a 0 0 1\r\n7\r\n");
    let length = (1 << 20) + 1;
    let line = format!("set a 0 0 {length}\r\n");
    let Parsed::TooLarge(_, _, Some(request)) = parse(line.as_bytes()) else {
        panic!();
    };
    let mut delta = Delta::default();
    let reply = store.execute(&request, &mut delta);
    store.leave();
    assert_eq!(reply, b"SERVER_ERROR object too large for cache\r\n");
    assert!(delta.objects().any(|id| id == item_id(b"a")));
    assert_eq!(run(&mut store, "get a\r\n").0, "END\r\n");
    assert_eq!(store.size().0, 0);
}

#[test]
fn a_byte_of_the_head_is_named_by_what_it_is_of() {
    let places = [0, 15, 16, 31, 55, 60].map(place_in_head);
    let named = places.map(|place| (place.field, place.byte));
    assert_eq!(
        named,
        [
            ("chain", 0),
            ("chain", 15),
            ("time", 0),
            ("cas", 7),
            ("bytes used", 7),
            ("nothing known", 4)
        ]
    );
}

/// What all items weigh follows from them, whatever a fault has made of it.
#[test]
fn what_all_items_weigh_is_counted_anew_where_it_was_hit() {
    let mut store = with_a("100");
    run(&mut store, "set b 0 0 1\r\n7\r\n");
    let right = store.weight;
    assert!(store.is_whole() && !store.mend_weight(), "nothing was hit");
    store.strike_head(HEAD_LENGTH - 1, 3);
    assert!(store.head_fits() && !store.is_whole());
    assert!(store.mend_weight());
    assert_eq!(store.weight, right);
    // A repair brings an item, or takes it.
    let id = item_id(b"a");
    let packed = store.pack(id);
    store.replace(id, None);
    assert!(store.is_whole());
    store.replace(id, packed.as_deref());
    assert_eq!(store.weight, right);
    // One that was lost, and is repaired: the next comparison of everything counts it once.
    store.shards[shard_of(id)].remove(&id.0);
    assert!(!store.is_whole());
    store.replace(id, packed.as_deref());
    assert!(!store.is_whole());
    store.scrub(0..SHARDS, &mut Delta::default());
    assert!(store.is_whole());
    assert_eq!(store.weight, right);
}
