//! The memory manager: grants and aliases outlive a crash at every call boundary, and a revocation misses none of them.

use std::collections::BTreeMap;

use steadfast_restart::{CallError, Edge, Handle, Policy, Value};

use crate::fixture;

fn path(name: &str) -> String {
    format!("steadfast:memory/pages@0.1.0#{name}")
}

type Place = (u32, u64);

fn list(value: Option<Value>) -> Vec<Place> {
    let Some(Value::List(items)) = value else {
        panic!("a list is needed, found {value:?}");
    };
    let place = |item: Value| match item {
        Value::Record(fields) => match &fields[..] {
            [(_, Value::U32(space)), (_, Value::U64(address))] => (*space, *address),
            _ => panic!("{fields:?}"),
        },
        other => panic!("{other:?}"),
    };
    items.into_iter().map(place).collect()
}

/// A client, and what it knows: of each page its frame, its place, and the page that it was made from.
struct Pages {
    edge: Edge,
    known: BTreeMap<Handle, (u32, Place, Option<Handle>)>,
}

impl Pages {
    fn new(edge: Edge) -> Self {
        Self {
            edge,
            known: BTreeMap::new(),
        }
    }

    fn grant(&mut self, frame: u32, place: Place) -> Handle {
        let args = [frame.into(), place.0.into(), place.1.into()];
        let made = self.edge.invoke(&path("[constructor]page"), &args);
        let handle = made.expect("made").and_then(|v| v.handle()).expect("one");
        self.known.insert(handle, (frame, place, None));
        handle
    }

    fn alias(&mut self, of: Handle, place: Place) -> Handle {
        let args = [of.into(), place.0.into(), place.1.into()];
        let made = self.edge.invoke(&path("[method]page.alias"), &args);
        let handle = made.expect("made").and_then(|v| v.handle()).expect("one");
        self.known
            .insert(handle, (self.known[&of].0, place, Some(of)));
        handle
    }

    /// It, and what was made from it.
    fn tree(&self, root: Handle) -> Vec<Handle> {
        let mut all = vec![root];
        let mut next = 0;
        while let Some(of) = all.get(next).copied() {
            let children = self.known.iter().filter(|(_, page)| page.2 == Some(of));
            all.extend(children.map(|(handle, _)| *handle));
            next += 1;
        }
        all
    }

    fn places(&self, root: Handle) -> Vec<Place> {
        let tree = self.tree(root).into_iter();
        let mut places: Vec<_> = tree.map(|page| self.known[&page].1).collect();
        places.sort_unstable();
        places
    }

    fn look(&self, page: Handle) {
        let frame = self
            .edge
            .invoke(&path("[method]page.frame"), &[page.into()]);
        assert_eq!(frame, Ok(Some(Value::U32(self.known[&page].0))));
        let found = self
            .edge
            .invoke(&path("[method]page.mappings"), &[page.into()]);
        assert_eq!(list(found.expect("a list")), self.places(page));
    }

    fn gone(&mut self, root: Handle) {
        for page in self.tree(root) {
            self.known.remove(&page);
            let stale = self
                .edge
                .invoke(&path("[method]page.frame"), &[page.into()]);
            assert!(matches!(stale, Err(CallError::Stale { .. })), "{stale:?}");
        }
    }

    fn revoke(&mut self, root: Handle) {
        let found = self.edge.invoke(&path("revoke"), &[root.into()]);
        assert_eq!(list(found.expect("a list")), self.places(root));
        self.gone(root);
    }
}

#[test]
fn pages_outlive_a_crash_at_every_call_boundary() {
    for policy in fixture::policies() {
        for crash in 0..9 {
            let host = fixture::host("memory", policy);
            let mut pages = Pages::new(host.edge("test", "memory", &[]).expect("an edge"));
            let edge = pages.edge.clone();
            let mut step = fixture::crash_before(crash, &edge);
            step();
            let root = pages.grant(7, (1, 0x1000));
            step();
            let other = pages.grant(8, (1, 0x2000));
            step();
            let (a, b) = (
                pages.alias(root, (3, 0x9000)),
                pages.alias(root, (2, 0x9000)),
            );
            step();
            let inner = pages.alias(a, (2, 0x1000));
            step();
            pages.look(root);
            step();
            pages.revoke(b);
            step();
            pages.look(a);
            pages.look(inner);
            step();
            pages.revoke(root);
            step();
            pages.look(other);
            // Given back, not revoked: what was made from it ends as well.
            pages.alias(other, (4, 0x1000));
            edge.discard(other).expect("live");
            pages.gone(other);
            assert_eq!(edge.stats().expect("stats").objects, 0, "crash {crash}");
        }
    }
}

/// Numbers that look random; Marsaglia's xorshift.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).expect("small")
    }
}

#[test]
fn random_trees_agree_with_an_oracle_while_the_component_is_reset() {
    for (seed, policy) in (1..).zip(fixture::policies()) {
        let host = fixture::host("memory", policy);
        let mut pages = Pages::new(host.edge("test", "memory", &[]).expect("an edge"));
        let mut draw = Draw(seed);
        for turn in 0..400_u32 {
            if draw.below(5) == 0 {
                pages.edge.reset().expect("it comes back");
            }
            let place = (turn % 7, u64::from(turn) << 12);
            let one = draw.below(pages.known.len().max(1));
            let one = pages.known.keys().nth(one).copied();
            match (draw.below(8), one) {
                (0, _) | (_, None) => drop(pages.grant(turn, place)),
                (1, Some(page)) => pages.revoke(page),
                (2, Some(page)) => {
                    pages.edge.discard(page).expect("live");
                    pages.gone(page);
                }
                (3 | 4, Some(page)) => pages.look(page),
                (_, Some(page)) => drop(pages.alias(page, place)),
            }
        }
        let live = pages.edge.stats().expect("stats").objects;
        assert_eq!(live, pages.known.len(), "seed {seed}");
    }
}

/// Aliases of aliases of aliases: neither the host nor the component follows them by recursion.
#[test]
fn a_chain_of_aliases_comes_back_however_long_it_is() {
    const LENGTH: u64 = 20_000;
    let host = fixture::host("memory", fixture::policies()[0]);
    let mut pages = Pages::new(host.edge("test", "memory", &[]).expect("an edge"));
    let root = pages.grant(7, (0, 0));
    let mut last = root;
    for address in 1..=LENGTH {
        let args = [last.into(), 0u32.into(), address.into()];
        let made = pages.edge.invoke(&path("[method]page.alias"), &args);
        last = made.expect("made").and_then(|v| v.handle()).expect("one");
    }
    pages.edge.reset().expect("it comes back");
    let frame = pages
        .edge
        .invoke(&path("[method]page.frame"), &[last.into()]);
    assert_eq!(frame, Ok(Some(Value::U32(7))));
    pages.edge.reset().expect("it comes back");
    let found = pages.edge.invoke(&path("revoke"), &[root.into()]);
    let places: Vec<_> = (0..=LENGTH).map(|address| (0, address)).collect();
    assert_eq!(list(found.expect("a list")), places);
    assert_eq!(pages.edge.stats().expect("stats").objects, 0);
}

#[test]
fn what_was_revoked_leaves_no_memory_behind() {
    let host = fixture::host("memory", fixture::policies()[0]);
    let mut pages = Pages::new(host.edge("test", "memory", &[]).expect("an edge"));
    let size = |pages: &Pages| pages.edge.memories().expect("a copy")[0].len();
    let round = |pages: &mut Pages| {
        let page = pages.grant(7, (0, 0));
        for space in 1..=3 {
            pages.alias(page, (space, 0));
        }
        pages.revoke(page);
    };
    round(&mut pages);
    let before = size(&pages);
    for _ in 0..3000 {
        round(&mut pages);
    }
    assert_eq!(size(&pages), before);
}

/// A flipped address of an alias would leave a page mapped. Two bodies tell.
#[test]
fn a_flip_in_a_mapping_is_found_by_two_bodies() {
    const ADDRESS: u64 = 0x1234_5678_9abc_d000;
    let policy = Policy {
        compare_every: 0,
        ..fixture::policies()[2]
    };
    let host = fixture::host("memory", policy);
    let mut pages = Pages::new(host.edge("test", "memory", &[]).expect("an edge"));
    let root = pages.grant(7, (1, 0x1000));
    pages.alias(root, (2, ADDRESS));
    let memory = &pages.edge.memories().expect("a copy")[0];
    let found = memory.windows(8).position(|w| w == ADDRESS.to_le_bytes());
    assert_eq!(pages.edge.flip(1, found.expect("there"), 5), Ok(true));
    pages.revoke(root);
    assert_eq!(pages.edge.stats().expect("stats").resets_total(), 1);
}
