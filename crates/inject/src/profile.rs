//! Profile: which instructions a run executes, and how often, counted at native speed.
//!
//! A counter is planted in every basic block that has room for one; blocks without room follow
//! from their neighbours, since what flows in flows out. What neither tells is bounded from above
//! and counts as unreachable.
//!
//! Invariants
//!  1. The counted run is the target's own, on this processor: no emulator chose other code.
//!  2. What is not known exactly is named, never rounded into what is.
//!
//! Not covered: code that no file backs, functions that do not decode as a whole, what an
//! interrupted block had executed when a signal or an exception left it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steadfast_patch::{Block, End, Place};

use crate::module::{Laid, SHARED_BYTES};
use crate::payload::{Hooked, Payload};
use crate::target::{Bench, Ran, SetupError};

/// Where counters lie in the shared memory.
const OFF_COUNTS: usize = 0x60_0000;
/// `jmp rel32`.
const JUMP_BYTES: u64 = 5;
/// How many instructions of a block are tried for its counter.
const TURNS: usize = 3;

/// An instruction that was executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// Which module.
    pub module: usize,
    /// Address, as found.
    pub addr: u64,
    /// How often.
    pub count: u64,
    /// Why no fault can be planted there; nothing if one can.
    pub refused: Option<String>,
    /// A short jump alone has room there, to a long one elsewhere (patch's bounces), which replicas do not plant.
    pub bounces: bool,
}

/// What a run executed.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Profile {
    /// By module and address.
    pub sites: Vec<Executed>,
    /// Upper bound of executions in blocks whose count is not known.
    pub unknown: u64,
    /// Blocks with a counter, and blocks.
    pub counted: usize,
    /// All blocks.
    pub blocks: usize,
    /// The counted run.
    pub ran: Ran,
}

/// Counts.
///
/// # Errors
/// When the target cannot be started or patched.
pub fn take(bench: &Bench, limit: Duration) -> Result<Profile, SetupError> {
    let mut laid = Vec::new();
    let mut all: Vec<Vec<Block>> = Vec::new();
    // (module, block) of each counter.
    let mut counters: Vec<(usize, usize)> = Vec::new();
    let room = (usize::try_from(SHARED_BYTES).unwrap_or(0) - OFF_COUNTS) / 8;
    for (number, module) in bench.modules.iter().enumerate() {
        let blocks = module.with_survey(|survey| survey.blocks());
        let first = counters.len();
        let hook = |addr: u64, block: usize| {
            let word = OFF_COUNTS + 8 * (first + block);
            Hooked::new(addr, Place::Before, Payload::tally(bench.counting), word)
        };
        let mut hooks: Vec<Hooked> = blocks
            .iter()
            .enumerate()
            .take(room.saturating_sub(first))
            .map(|(i, block)| {
                counters.push((number, i));
                hook(block.range.start, i)
            })
            .collect();
        let mut has = vec![true; hooks.len()];
        let mut planned = Laid::default();
        for turn in 1..=TURNS {
            let refused;
            (planned, refused) = module.lay(&hooks);
            has.fill(true);
            let mut again = false;
            for no in &refused {
                let Ok(at) = hooks.binary_search_by_key(&no.asked.addr(), |h| h.hook.addr) else {
                    continue;
                };
                has[at] = false;
                // Any instruction of a block is executed as often as its first one.
                if let Some(next) = blocks[at].starts.get(turn).filter(|_| turn < TURNS) {
                    hooks[at] = hook(*next, at);
                    again = true;
                }
            }
            if !again {
                break;
            }
        }
        for (at, has) in has.iter().enumerate() {
            if !has {
                counters[first + at].1 = usize::MAX;
            }
        }
        laid.push(planned);
        all.push(blocks);
    }
    bench.prepare(&[], &[], &[]);
    bench.shared.write(OFF_COUNTS, &vec![0; 8 * counters.len()]);
    laid.retain(|laid| !laid.writes.is_empty());
    let ran = bench.planted(&laid, limit, 0)?;
    let mut known: Vec<Vec<Option<u64>>> =
        all.iter().map(|blocks| vec![None; blocks.len()]).collect();
    let mut counted = 0;
    for (i, (module, block)) in counters.iter().enumerate() {
        if *block != usize::MAX {
            known[*module][*block] = Some(bench.shared.get64(OFF_COUNTS + 8 * i));
            counted += 1;
        }
    }
    let mut profile = Profile {
        ran,
        counted,
        blocks: all.iter().map(Vec::len).sum(),
        ..Profile::default()
    };
    for (module, blocks) in all.iter().enumerate() {
        let flow = Flow::new(blocks);
        flow.solve(&mut known[module]);
        for (i, block) in blocks.iter().enumerate() {
            match known[module][i] {
                Some(0) => {}
                Some(count) => profile
                    .sites
                    .extend(block.starts.iter().map(|&addr| Executed {
                        module,
                        addr,
                        count,
                        refused: None,
                        bounces: false,
                    })),
                None => {
                    profile.unknown += flow
                        .bound(&known[module], i)
                        .saturating_mul(block.starts.len() as u64)
                }
            }
        }
    }
    mark_refused(bench, &mut profile);
    Ok(profile)
}

/// Asks the planner about each site.
fn mark_refused(bench: &Bench, profile: &mut Profile) {
    for site in &mut profile.sites {
        let hook = steadfast_patch::Hook {
            addr: site.addr,
            place: Place::Before,
            code: vec![0x90],
        };
        let plan = bench.modules[site.module]
            .with_survey(|survey| survey.plan(std::slice::from_ref(&hook)));
        site.refused = plan.refused.first().map(|no| no.reason.name().to_owned());
        let window = plan.hooked.first().map(|hooked| &hooked.window);
        site.bounces = window.is_some_and(|window| window.end - window.start < JUMP_BYTES);
    }
}

/// Who hands control to whom within a module.
struct Flow {
    /// Successors of each block, nothing if they are not all known.
    to: Vec<Option<Vec<usize>>>,
    /// Predecessors of each block, nothing if they are not all known.
    from: Vec<Option<Vec<usize>>>,
}

impl Flow {
    fn new(blocks: &[Block]) -> Self {
        let at = |addr: u64| blocks.binary_search_by_key(&addr, |b| b.range.start).ok();
        let mut to: Vec<Option<Vec<usize>>> = Vec::with_capacity(blocks.len());
        let mut from: Vec<Option<Vec<usize>>> =
            blocks.iter().map(|b| (!b.entered).then(Vec::new)).collect();
        let mut calls = Vec::new();
        for (i, block) in blocks.iter().enumerate() {
            let behind = at(block.range.end);
            let next = match block.end {
                End::Falls => behind.map(|next| vec![next]),
                End::Branches(target) => at(target)
                    .zip(behind)
                    .map(|(target, next)| vec![target, next]),
                End::Jumps(target) => at(target).map(|target| vec![target]),
                End::Calls => {
                    calls.extend(behind);
                    None
                }
                End::Leaves => None,
            };
            let partly: Vec<usize> = match block.end {
                End::Branches(target) => at(target).into_iter().chain(behind).collect(),
                _ => next.clone().unwrap_or_default(),
            };
            for successor in partly {
                if let Some(from) = &mut from[successor] {
                    from.push(i);
                }
            }
            to.push(next);
        }
        // Where a call returns to, as many come as return.
        for block in calls {
            from[block] = None;
        }
        Self { to, from }
    }

    /// Edges between blocks of known and unknown counts, until nothing more follows.
    fn solve(&self, known: &mut [Option<u64>]) {
        let mut edges: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        loop {
            let before = (edges.len(), known.iter().flatten().count());
            #[allow(
                clippy::needless_range_loop,
                reason = "neighbours are looked up by number too"
            )]
            for i in 0..known.len() {
                for (ends, out) in [(&self.to[i], true), (&self.from[i], false)] {
                    let Some(ends) = ends else { continue };
                    let key = |other: usize| if out { (i, other) } else { (other, i) };
                    let open: Vec<usize> = ends
                        .iter()
                        .copied()
                        .filter(|o| !edges.contains_key(&key(*o)))
                        .collect();
                    let sum: u64 = ends.iter().filter_map(|o| edges.get(&key(*o))).sum();
                    match (known[i], &open[..]) {
                        (None, []) if !ends.is_empty() => known[i] = Some(sum),
                        (Some(count), [one]) => {
                            edges.insert(key(*one), count.saturating_sub(sum));
                        }
                        // What is never executed has no edges.
                        (Some(0), open) => edges.extend(open.iter().map(|o| (key(*o), 0))),
                        _ => {}
                    }
                }
            }
            if before == (edges.len(), known.iter().flatten().count()) {
                return;
            }
        }
    }

    /// What a block's count cannot exceed, as far as its neighbours tell; 0 if nobody near it was
    /// executed.
    fn bound(&self, known: &[Option<u64>], block: usize) -> u64 {
        let sum = |ends: &Option<Vec<usize>>| -> Option<u64> {
            ends.as_ref()?
                .iter()
                .map(|o| known[*o])
                .sum::<Option<u64>>()
        };
        let one = |ends: &Option<Vec<usize>>| {
            ends.as_ref()
                .and_then(|e| e.iter().filter_map(|o| known[*o]).max())
        };
        let behind = known.get(block + 1).copied().flatten();
        let ahead = block.checked_sub(1).and_then(|b| known[b]);
        [sum(&self.to[block]), sum(&self.from[block])]
            .into_iter()
            .flatten()
            .min()
            .or_else(|| one(&self.to[block]))
            .or_else(|| one(&self.from[block]))
            .or_else(|| behind.max(ahead))
            .unwrap_or(0)
    }
}

/// Counts single instructions exactly: the audit of a profile, or of a plan.
///
/// # Errors
/// As [`take`].
pub fn audit(
    bench: &Bench,
    sites: &[(usize, u64)],
    limit: Duration,
) -> Result<(Vec<Option<u64>>, Ran), SetupError> {
    let mut laid = Vec::new();
    let mut counts = vec![None; sites.len()];
    for (number, module) in bench.modules.iter().enumerate() {
        let hooks: Vec<(usize, Hooked)> = sites
            .iter()
            .enumerate()
            .filter(|(_, (m, _))| *m == number)
            .map(|(i, (_, addr))| {
                (
                    i,
                    Hooked::new(
                        *addr,
                        Place::Before,
                        Payload::tally(bench.counting),
                        OFF_COUNTS + 8 * i,
                    ),
                )
            })
            .collect();
        if hooks.is_empty() {
            continue;
        }
        let (planned, refused) =
            module.lay(&hooks.iter().map(|(_, h)| h.clone()).collect::<Vec<_>>());
        for (i, hook) in &hooks {
            if !refused.iter().any(|no| no.asked.addr() == hook.hook.addr) {
                counts[*i] = Some(0);
            }
        }
        laid.push(planned);
    }
    bench.prepare(&[], &[], &[]);
    bench.shared.write(OFF_COUNTS, &vec![0; 8 * sites.len()]);
    let ran = bench.planted(&laid, limit, 0)?;
    for (i, count) in counts.iter_mut().enumerate() {
        if let Some(count) = count {
            *count = bench.shared.get64(OFF_COUNTS + 8 * i);
        }
    }
    Ok((counts, ran))
}
