//! Hostile input: whatever the bytes and bounds say, the planner answers, and what it answers
//! keeps the rules that can be checked without knowing what the code means.
#![allow(
    clippy::single_range_in_vec_init,
    reason = "a module with one function has a list of one range"
)]

use std::ops::Range;

use proptest::prelude::*;
use steadfast_patch::{
    ArenaSpec, CodeView, Coverage, Entries, Existing, Hook, Module, Patched, Place, Plan, Site,
    SiteKind, elf, find_sites, plan, plan_hooks, replan, site_at,
};

const ENTRIES: Entries = Entries {
    syscall: 1,
    entropy: u64::MAX,
};

/// Bytes with many more sites, branches and prefixes than chance would give.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        any::<u8>().prop_map(|b| vec![b]),
        prop::collection::vec(any::<u8>(), 1..6),
        prop::sample::select(vec![
            vec![0x0F, 0x05],
            vec![0x0F, 0x31],
            vec![0x0F, 0xA2],
            vec![0x0F, 0x01, 0xF9],
            vec![0x0F, 0xC7, 0xF0],
            vec![0xF3, 0x0F, 0xC7, 0xF8],
            vec![0xC7, 0xF8],
            vec![0xCD, 0x80],
            vec![0x48, 0x8B, 0x05],
            vec![0x48, 0x8D, 0x05, 0x04, 0, 0, 0],
            vec![0xE8],
            vec![0xEB, 0x02],
            vec![0x75, 0xF9],
            vec![0x0F, 0x84],
            vec![0xFF, 0x54, 0x24],
            vec![0x66],
            vec![0xF0],
            vec![0x90],
            vec![0xCC],
            vec![0xC3],
        ]),
    ];
    prop::collection::vec(piece, 0..120).prop_map(|pieces| pieces.concat())
}

fn base() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => Just(0x7F00_0000_0000),
        2 => Just(0x40_0000),
        1 => Just(0),
        1 => any::<u64>(),
        1 => (0u64..0x400).prop_map(|back| u64::MAX - back),
    ]
}

/// An address in or around the code.
fn near(base: u64, len: usize) -> impl Strategy<Value = u64> {
    let len = len as u64;
    prop_oneof![9 => (0..len + 8).prop_map(move |at| base.wrapping_add(at)), 1 => any::<u64>()]
}

fn ranges(base: u64, len: usize) -> impl Strategy<Value = Vec<Range<u64>>> {
    prop::collection::vec(
        (near(base, len), 0u64..200).prop_map(|(at, len)| at..at.wrapping_add(len)),
        0..5,
    )
}

#[derive(Debug, Clone)]
struct Case {
    base: u64,
    code: Vec<u8>,
    data: Vec<u8>,
    functions: Vec<Range<u64>>,
    leaders: Vec<u64>,
    forbidden: Vec<Range<u64>>,
    hooks: Vec<Hook>,
    lies: Vec<Patched>,
    arena: ArenaSpec,
}

fn case() -> impl Strategy<Value = Case> {
    (base(), code()).prop_flat_map(|(base, code)| {
        let len = code.len();
        let whole = Just(vec![base..base.wrapping_add(len as u64)]);
        let hook = (
            near(base, len),
            any::<bool>(),
            prop::collection::vec(any::<u8>(), 0..6),
        )
            .prop_map(|(addr, after, code)| Hook {
                addr,
                place: if after { Place::After } else { Place::Before },
                code,
            });
        let lie =
            (near(base, len), near(base, len), near(base, len)).prop_map(|(start, end, addr)| {
                Patched {
                    site: Site {
                        addr,
                        len: 2,
                        kind: SiteKind::Syscall,
                        dest: None,
                        fallback: None,
                        proven: true,
                    },
                    window: start..end,
                    trampoline: end..start,
                    resume: addr,
                    entries: ENTRIES,
                }
            });
        let arena = (
            prop_oneof![6 => Just(0x10_0000), 1 => any::<u64>()],
            prop_oneof![4 => Just(0x1000u64), 1 => 0u64..80],
        )
            .prop_map(move |(distance, len)| ArenaSpec {
                addr: base.wrapping_add(distance),
                len,
            });
        (
            prop::collection::vec(any::<u8>(), 0..64),
            prop_oneof![3 => whole, 2 => ranges(base, len)],
            prop::collection::vec(near(base, len), 0..4),
            prop_oneof![4 => Just(vec![]), 1 => ranges(base, len)],
            prop::collection::vec(hook, 0..6),
            prop_oneof![3 => Just(vec![]), 1 => prop::collection::vec(lie, 0..4)],
            arena,
        )
            .prop_map(
                move |(data, functions, leaders, forbidden, hooks, lies, arena)| Case {
                    base,
                    code: code.clone(),
                    data,
                    functions,
                    leaders,
                    forbidden,
                    hooks,
                    lies,
                    arena,
                },
            )
    })
}

fn keeps_the_rules(case: &Case, plan: &Plan, asked: usize) -> Result<(), TestCaseError> {
    prop_assert!(plan.arena.len() as u64 <= case.arena.len);
    prop_assert!(plan.map.is_sorted_by_key(|(at, _)| *at));
    let mut last = 0;
    for write in &plan.writes {
        prop_assert!(write.addr >= last && write.bytes.len() >= 5);
        last = write.addr + write.bytes.len() as u64;
        prop_assert!(write.addr >= case.base && last <= case.base + case.code.len() as u64);
        prop_assert!(write.bytes[0] == 0xE9 && write.bytes[5..].iter().all(|b| *b == 0xCC));
        for forbidden in &case.forbidden {
            prop_assert!(
                forbidden.end <= write.addr || forbidden.start >= last || forbidden.is_empty()
            );
        }
        for leader in &case.leaders {
            prop_assert!(*leader <= write.addr || *leader >= last);
        }
    }
    prop_assert!(plan.patched.len() + plan.hooked.len() + plan.refused.len() <= asked);
    for patched in &plan.patched {
        prop_assert!(patched.window.contains(&patched.site.addr));
        prop_assert!(plan.writes.iter().any(|w| w.addr == patched.window.start));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_is_answered(case in case()) {
        let module = Module {
            code: vec![CodeView { addr: case.base, bytes: &case.code }],
            data: vec![CodeView { addr: case.base.wrapping_add(0x1000), bytes: &case.data }],
            functions: case.functions.clone(),
            leaders: case.leaders.clone(),
            forbidden: case.forbidden.clone(),
            inert: case.forbidden.clone(),
        };
        let sites = find_sites(&module);
        let first = plan(&module, &sites, case.arena, &ENTRIES);
        keeps_the_rules(&case, &first, sites.len())?;
        prop_assert_eq!(first.patched.len() + first.refused.len(), sites.len());
        let _ = Coverage::of(&module, &first);
        // As if every site had trapped.
        let trapped: Vec<Site> = sites.iter().filter_map(|s| site_at(&module, s.addr, s.kind)).collect();
        prop_assert_eq!(trapped.len(), sites.len());
        let further = ArenaSpec { addr: case.arena.addr.wrapping_add(0x1000), len: case.arena.len };
        let second = replan(&module, &trapped, &ENTRIES, &case.hooks, Existing::from(&first), further);
        keeps_the_rules(&case, &second, trapped.len() + case.hooks.len() + first.patched.len())?;
        // A caller whose list of windows is nonsense gets an answer as well.
        let lied = Existing { patched: &case.lies, hooked: &[] };
        let _ = plan_hooks(&module, &case.hooks, lied, case.arena);
        let _ = replan(&module, &trapped, &ENTRIES, &case.hooks, lied, case.arena);
    }

    #[test]
    fn damaged_files_are_read_as_far_as_they_go(
        holes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        header in prop::collection::vec((0usize..0x400, any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        short in any::<bool>(),
    ) {
        // This test's own first bytes are an ELF file of the right kind wherever it runs.
        let Ok(mut file) = std::fs::read("/lib64/ld-linux-x86-64.so.2") else { return Ok(()) };
        for (at, value) in holes {
            let at = at.index(file.len());
            file[at] = value;
        }
        for (at, value) in header {
            file[at] = value;
        }
        if short {
            file.truncate(cut.index(file.len()));
        }
        if let Ok(module) = elf::module(&file, 0x7F00_0000_0000) {
            let _ = find_sites(&module);
        }
    }
}
