//! One value and its guards; the group of three is in `tests/guarded.rs`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::{Bytes, Guarded, unpack};
use crate::core::Objects as _;
use crate::ids::{Digest, Index};
use crate::{Arena, Critical, Encode, Ref, State, critical};

#[derive(Debug, Clone, PartialEq, Critical)]
enum Kind {
    Empty,
    Number(u32),
    Named { name: String, weight: f64 },
}

#[derive(Debug, Clone, PartialEq, Critical)]
struct Thing {
    name: String,
    count: u64,
    kinds: Vec<Kind>,
    tags: HashMap<String, u32>,
    #[critical(skip = "a cache")]
    cache: Option<usize>,
}

fn thing() -> Thing {
    Thing {
        name: "a thing".to_owned(),
        count: 7,
        kinds: vec![Kind::Empty, Kind::Number(3)],
        tags: (0..20).map(|n| (format!("tag {n}"), n)).collect(),
        cache: Some(1),
    }
}

fn bytes<T: Encode>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// Goes there and back, and no shorter bytes have a value.
fn survives<T: Encode + PartialEq + std::fmt::Debug>(value: T) {
    let there = bytes(&value);
    assert_eq!(unpack::<T>(&there), Some(value));
    for length in 0..there.len() {
        assert!(unpack::<T>(&there[..length]).is_none(), "{length} bytes");
    }
}

#[test]
fn values_of_every_kind_survive_and_their_beginnings_are_no_values() {
    survives((1_u8, -2_i16, u128::MAX, 'x'));
    survives((true, 1.5_f32, -0.0_f64));
    survives([Some("text".to_owned()), None, Some(String::new())]);
    survives(BTreeMap::from([(1_u32, vec![1_i64, 2]), (9, vec![])]));
    survives(BTreeSet::from([3_u8, 1]));
    survives(VecDeque::from([Box::new(1_u16), Box::new(2)]));
    survives(HashSet::from(["a".to_owned(), "b".to_owned()]));
    survives(vec![
        Kind::Empty,
        Kind::Number(7),
        Kind::Named {
            name: "n".to_owned(),
            weight: 0.5,
        },
    ]);
    survives(vec![Ref::<Thing>::named(b"x")]);
}

#[test]
fn a_length_beyond_what_is_left_reserves_nothing() {
    let mut huge = bytes(&u64::MAX);
    huge.extend_from_slice(&[0; 16]);
    assert!(Vec::<u8>::decode(&mut Bytes::new(&huge)).is_none());
    assert!(String::decode(&mut Bytes::new(&huge)).is_none());
    assert!(HashMap::<u8, u8>::decode(&mut Bytes::new(&huge)).is_none());
}

#[test]
fn equal_values_have_equal_bytes_in_whatever_order_they_came_to_be() {
    let forth: HashMap<u32, u8> = (0..100).map(|n| (n, 1)).collect();
    let back: HashMap<u32, u8> = (0..100).rev().map(|n| (n, 1)).collect();
    assert_eq!(bytes(&forth), bytes(&back));
    let one: HashSet<String> = (0..50).map(|n| n.to_string()).collect();
    let two: HashSet<String> = (0..50).rev().map(|n| n.to_string()).collect();
    assert_eq!(bytes(&one), bytes(&two));
    // Every NaN is one; zero and minus zero are two.
    assert_eq!(
        bytes(&f64::NAN),
        bytes(&f64::from_bits(0xfff8_0000_0000_0001))
    );
    assert_ne!(bytes(&0.0_f64), bytes(&-0.0_f64));
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_none_and_never_a_panic(any in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Some(value) = unpack::<Thing>(&any) {
            prop_assert_eq!(unpack::<Thing>(&bytes(&value)), Some(value));
        }
    }
}

#[test]
fn every_bit_of_a_packed_value_takes_part_in_its_digest() {
    let guarded = Guarded::new(thing());
    let packed = guarded.pack();
    for bit in 0..packed.len() * 8 {
        let mut other = packed.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        if let Some(value) = unpack::<Thing>(&other) {
            assert_ne!(Guarded::new(value).digest(), guarded.digest(), "bit {bit}");
        }
    }
}

#[test]
fn a_changed_field_is_named_and_what_is_skipped_is_not() {
    let mut guarded = Guarded::new(thing());
    guarded.raw().cache = None;
    assert!(guarded.check().is_empty());
    let (_, found) = guarded.read();
    assert!(found.is_empty());
    guarded.raw().tags.insert("tag 3".to_owned(), 4);
    guarded.raw().name.push('!');
    let (_, found) = guarded.read();
    let names: Vec<&str> = found.names::<Thing>().collect();
    assert_eq!(names, ["name", "tags"]);
}

#[test]
fn a_write_updates_digests_once_and_of_nothing_that_was_wrong() {
    let mut guarded = Guarded::new(thing());
    let before = guarded.digest();
    let (mut writing, found) = guarded.write();
    assert!(found.is_empty());
    writing.count += 1;
    writing.name.push('!');
    drop(writing);
    assert!(guarded.check().is_empty());
    assert_ne!(guarded.digest(), before);
    // What is made from a wrong value is wrong, in its own field and in another one.
    for derived in [
        (|thing: &mut Thing| thing.count += 1) as fn(&mut Thing),
        |thing| thing.name = thing.count.to_string(),
        |_| {},
    ] {
        let mut guarded = Guarded::new(thing());
        guarded.raw().count ^= 1 << 20;
        let (mut writing, found) = guarded.write();
        assert_eq!(found.names::<Thing>().collect::<Vec<_>>(), ["count"]);
        derived(&mut writing);
        drop(writing);
        assert!(!guarded.check().is_empty());
        let (mut writing, _) = guarded.write();
        writing.count = 7;
        drop(writing);
        assert!(!guarded.check().is_empty(), "only a vote makes it right");
    }
}

#[test]
fn a_field_that_was_not_named_may_not_change() {
    let mut guarded = Guarded::new(thing());
    let (mut writing, _) = guarded.write_only(&[ThingField::Count]);
    writing.count = 8;
    drop(writing);
    assert!(guarded.check().is_empty());
    let (mut writing, _) = guarded.write_only(&[ThingField::Count]);
    writing.count = 9;
    writing.name.push('!');
    drop(writing);
    let found = guarded.check();
    assert_eq!(found.names::<Thing>().collect::<Vec<_>>(), ["name"]);
}

#[test]
fn a_digest_that_was_hit_is_no_fault_of_the_value_and_is_mended() {
    let mut guarded = Guarded::new(thing());
    guarded.fields[1] ^= 1 << 77;
    assert!(guarded.check().is_empty());
    let (mut writing, _) = guarded.write();
    writing.name.push('!');
    drop(writing);
    assert_eq!(guarded.fields, super::digests_of(&guarded.value));
    guarded.whole ^= 1;
    assert!(guarded.check().is_empty());
    drop(guarded.write());
    assert_eq!(guarded.whole, super::sum(&guarded.fields));
    // With the digest mended the value is told again.
    guarded.raw().count ^= 1;
    assert!(!guarded.check().is_empty());
}

#[test]
fn a_panic_within_a_guard_leaves_nothing_that_looks_right() {
    let mut guarded = Guarded::new(thing());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let (mut writing, _) = guarded.write();
        writing.count = 8;
        panic!("half way through");
    }));
    assert!(panicked.is_err());
    assert_eq!(
        guarded.check().names::<Thing>().collect::<Vec<_>>(),
        ["count"]
    );
}

#[test]
fn numbers_of_objects_are_the_same_wherever_the_log_is_executed() {
    let numbers = |entries: u64| {
        let mut arena = Arena::new();
        let mut all = Vec::new();
        for index in 1..=entries {
            arena.begin(Index(index));
            all.push(arena.create(thing()).id());
            all.push(arena.create(thing()).id());
        }
        all
    };
    assert_eq!(numbers(3), numbers(3));
    assert_eq!(numbers(3).iter().collect::<BTreeSet<_>>().len(), 6);
    let named = Ref::<Thing>::named(b"x");
    assert_ne!(named.id(), Ref::<Kind>::named(b"x").id());
    assert!(Arena::<Thing>::new().owns(named.id()));
    assert!(!Arena::<Kind>::new().owns(named.id()));
}

#[test]
fn the_delta_has_each_object_once_in_the_order_of_first_access() {
    let mut arena = Arena::new();
    let [a, b, c] = [b"a", b"b", b"c"].map(|name| Ref::<Thing>::named(name));
    arena.put(a, thing());
    arena.put(b, thing());
    arena.finish();
    arena.raw(b).unwrap().count = 9;
    assert!(arena.read(c).is_none());
    assert!(arena.read(b).is_some());
    assert!(arena.remove(a).is_some());
    assert!(arena.write(b).is_some());
    let delta = arena.finish();
    let found: Vec<_> = delta
        .iter()
        .map(|pair| (pair.object, pair.passive))
        .collect();
    assert_eq!(found, [(c.id(), false), (b.id(), true), (a.id(), false)]);
    assert_eq!(delta[0].digest, Digest::ABSENT);
    assert_eq!(delta[2].digest, Digest::ABSENT);
    assert_ne!(delta[1].digest, Digest::ABSENT);
    assert_eq!(arena.found().len(), 1);
    assert!(arena.finish().is_empty());
}

#[test]
fn a_replaced_object_fits_its_digest_and_keeps_what_is_skipped() {
    let mut arena = Arena::new();
    let at = Ref::<Thing>::named(b"x");
    arena.put(at, thing());
    let right = arena.pack(at.id()).unwrap();
    arena.raw(at).unwrap().count = 1;
    arena.raw(at).unwrap().cache = Some(42);
    assert!(!arena.intact(at.id()));
    arena.replace(at.id(), Some(b"no thing"));
    assert_eq!(
        arena.raw(at).unwrap().count,
        1,
        "what is no value changes nothing"
    );
    arena.replace(at.id(), Some(&right));
    assert!(arena.intact(at.id()));
    assert_eq!(arena.pack(at.id()).unwrap(), right);
    assert_eq!(arena.raw(at).unwrap().cache, Some(42));
    arena.replace(at.id(), None);
    assert!(arena.pack(at.id()).is_none());
    arena.replace(at.id(), Some(&right));
    assert!(arena.pack(at.id()).is_some());
}

#[test]
fn types_that_differ_in_a_name_an_order_or_a_kind_have_different_shapes() {
    mod one {
        #[derive(crate::Critical)]
        pub(super) struct T {
            pub(super) a: u8,
            pub(super) b: u16,
        }
    }
    mod two {
        #[derive(crate::Critical)]
        pub(super) struct T {
            pub(super) b: u16,
            pub(super) a: u8,
        }
    }
    mod three {
        #[derive(crate::Critical)]
        pub(super) struct T {
            pub(super) a: u8,
            pub(super) b: i16,
        }
    }
    let _ = (
        one::T { a: 1, b: 1 },
        two::T { a: 1, b: 1 },
        three::T { a: 1, b: 1 },
    );
    let shapes = BTreeSet::from([one::T::SHAPE, two::T::SHAPE, three::T::SHAPE]);
    assert_eq!(shapes.len(), 3);
    assert_ne!(Arena::<one::T>::epoch(), Arena::<two::T>::epoch());
    let names: Vec<&str> = Thing::FIELDS.iter().map(|field| field.kind).collect();
    assert_eq!(
        names,
        [
            "String",
            "u64",
            "Vec<Kind>",
            "HashMap<String, u32>",
            "Option<usize>"
        ]
    );
}

#[critical]
impl Thing {
    fn weight(&self) -> u64 {
        self.count * 2
    }

    fn add(&mut self, (one, two): (u64, u64), why: &str) -> u64 {
        self.count += one + two;
        self.name.push_str(why);
        self.weight()
    }

    #[critical(only(count))]
    fn add_and_rename(&mut self, name: &str) {
        self.count += 1;
        self.name = name.to_owned();
    }
}

#[test]
fn a_method_checks_when_it_is_entered_and_updates_when_it_is_left() {
    let at = Ref::named(b"x");
    let mut things = Arena::new();
    things.put(at, thing());
    things.begin(Index(1));
    assert_eq!(things.at(at).add((1, 2), "!"), Some(20));
    assert_eq!(things.at(at).weight(), Some(20));
    assert_eq!(things.at(Ref::named(b"y")).weight(), None);
    assert!(things.intact(at.id()));
    assert_eq!(things.finish().len(), 2, "what is missing is noted as well");
    assert!(things.found().is_empty());

    things.raw(at).unwrap().count ^= 1;
    things.begin(Index(2));
    assert_eq!(
        things.at(at).weight(),
        Some(22),
        "only the vote knows better"
    );
    assert!(things.finish()[0].passive);
    assert_eq!(things.found()[0].fields, ["count"]);
}

#[test]
fn a_method_that_changes_what_it_does_not_name_is_found() {
    let at = Ref::named(b"x");
    let mut things = Arena::new();
    things.put(at, thing());
    assert_eq!(things.at(at).add_and_rename("a thing"), Some(()));
    assert!(things.intact(at.id()), "the same name is no change");
    assert_eq!(things.at(at).add_and_rename("another"), Some(()));
    assert!(!things.intact(at.id()));
}
