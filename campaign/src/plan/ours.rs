//! Flips in what protects: the agent, the log, the control block, the window.
//!
//! ```text
//!   wreg … cf   uniform over the instructions that the agent executes in leader and follower
//!   code, data  a bit of the agent's image in one replica  ┐ uniform over the bytes; when: at
//!   control     a bit of the control block                 ├ an instruction of the program,
//!   records     a bit of claims, results and their bytes   ┘ uniform over those
//!   window      a register or byte of an event's arguments, between its vote and its effect
//! ```
//!
//! Invariants
//!  1. The first four kinds are weighted by what is executed and stored; `window` is a condition
//!     ("a fault strikes there") and never summed with them.
//!  2. The injector's own stack and state are left out: no particle strikes what is not there.
//!
//! The agent's vDSO and the call table are constants of its image. Not covered: the processes around
//! the replicas (outside.rs), the kernel.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use anyhow::Context;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSymbol};
use steadfast_integrity::fault::Fault;

use super::{Drawer, Planned, Reach, reason, turns};
use crate::draw::Draw;
use crate::operands::Group;
use crate::profile::{Population, code_at, decoded};

/// What faults name the image's start by.
const BASE: u64 = 0x2a00_0000_0000;
/// State that only injected faults use (crates/agent/src/flip.c).
const INJECTOR: [&str; 3] = ["sf_flip_stack", "vectors", "own"];
/// Registers that hold a call's number and arguments, and where many of them point.
const ARGUMENTS: [&str; 6] = ["rax", "rdi", "rsi", "rdx", "r10", "r8"];

struct Site {
    replica: u64,
    offset: u64,
    count: u64,
    insn: Instruction,
}

fn sites(population: &Population) -> anyhow::Result<Vec<Site>> {
    let file = object::File::parse(steadfast_agent::ELF)?;
    let mut out = Vec::new();
    for (replica, counts) in (0..).zip(&population.ours) {
        out.extend(
            decoded(&file, BASE, counts).map(|(offset, count, insn)| Site {
                replica,
                offset,
                count,
                insn,
            }),
        );
    }
    Ok(out)
}

/// Every instruction of some ranges of the agent, as distances from its start.
pub(crate) fn instructions_of(ranges: &[Range<u64>]) -> anyhow::Result<Vec<(u64, Instruction)>> {
    let file = object::File::parse(steadfast_agent::ELF)?;
    let mut out = Vec::new();
    for range in ranges {
        let address = BASE + range.start;
        let code = code_at(&file, address).context("a function of the agent has code")?;
        let len = usize::try_from(range.end - range.start)?.min(code.len());
        let decoder = Decoder::with_ip(64, &code[..len], address, DecoderOptions::NONE);
        out.extend(
            decoder
                .into_iter()
                .filter(|insn| !insn.is_invalid())
                .map(|insn| (insn.ip() - BASE, insn)),
        );
    }
    Ok(out)
}

/// Bytes, drawn uniformly over several ranges.
#[derive(Debug)]
struct Bytes(Vec<Range<u64>>);

impl Bytes {
    fn without(self, holes: &[Range<u64>]) -> Self {
        let mut ranges = self.0;
        for hole in holes {
            ranges = ranges
                .into_iter()
                .flat_map(|range| {
                    let before = range.start..hole.start.clamp(range.start, range.end);
                    let after = hole.end.clamp(range.start, range.end)..range.end;
                    [before, after]
                })
                .filter(|range| !range.is_empty())
                .collect();
        }
        Self(ranges)
    }

    fn all(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    fn draw(&self, draw: &mut Draw) -> u64 {
        let mut left = draw.below(self.all());
        for range in &self.0 {
            let len = range.end - range.start;
            if left < len {
                return range.start + left;
            }
            left -= len;
        }
        unreachable!("below the sum")
    }
}

fn injector() -> anyhow::Result<Vec<Range<u64>>> {
    let file = object::File::parse(steadfast_agent::ELF)?;
    Ok(file
        .symbols()
        .filter(|s| s.name().is_ok_and(|name| INJECTOR.contains(&name)))
        .map(|s| s.address() - BASE..s.address() - BASE + s.size())
        .collect())
}

/// `runs` faults of each group.
pub(crate) fn make(
    population: &Population,
    input: u64,
    runs: u64,
    seed: u64,
) -> anyhow::Result<(Vec<Planned>, Reach)> {
    let mut reach = Reach::default();
    let mut plan = Vec::new();
    instructions(population, runs, seed, &mut reach, &mut plan)?;

    let places = steadfast_replica::own_places();
    let holes = injector()?;
    let replicas = population.ours.len();
    let results = places.results..places.results + population.events * places.result_bytes;
    let mut records: Vec<_> = places.claims[..replicas].to_vec();
    // What a program reads is most of what results carry.
    records.extend([results, places.payload..places.payload + input.max(4096)]);
    let mut drawer = Drawer::new(population)?;
    for (group, word, bytes) in [
        (Group::Code, "agent", Bytes(vec![places.fixed.clone()])),
        (
            Group::Data,
            "agent",
            Bytes(vec![places.written.clone()]).without(&holes),
        ),
        (Group::Control, "log", Bytes(vec![places.control.clone()])),
        (Group::Records, "log", Bytes(records)),
    ] {
        reach.eligible.insert(group, bytes.all());
        for i in 0..runs {
            let mut draw = Draw::new(seed, (group as u64) << 40 | i);
            let effect = format!(
                "mem=[{word}+{:#x}] bit={}",
                bytes.draw(&mut draw),
                draw.below(8)
            );
            let Some(site) = drawer.site(&effect, &mut draw)? else {
                continue;
            };
            *reach.drawn.entry(group).or_default() += 1;
            plan.push(Planned {
                id: 0,
                group,
                fault: format!("{site} {effect}"),
                victim: draw.next(),
                strike: None,
            });
        }
    }
    for i in 0..runs {
        let mut draw = Draw::new(seed, (Group::Window as u64) << 40 | i);
        let event = 1 + draw.below(population.events.max(1));
        let effect = if draw.below(2) == 0 {
            format!("reg={} bit={}", draw.one_of(&ARGUMENTS), draw.below(64))
        } else {
            let pointer = draw.one_of(&["rdi", "rsi", "rdx"]);
            format!("mem=[{pointer}+{}] bit={}", draw.below(64), draw.below(8))
        };
        plan.push(Planned {
            id: 0,
            group: Group::Window,
            fault: format!("event={event} after-vote {effect}"),
            victim: draw.next(),
            strike: None,
        });
    }
    Ok((turns(plan), reach))
}

fn instructions(
    population: &Population,
    runs: u64,
    seed: u64,
    reach: &mut Reach,
    plan: &mut Vec<Planned>,
) -> anyhow::Result<()> {
    let sites = sites(population)?;
    reach.total = sites.iter().map(|site| site.count).sum();
    let mut known: HashMap<String, Result<(), String>> = HashMap::new();
    for group in Group::INSTRUCTIONS {
        let eligible: Vec<&Site> = sites.iter().filter(|site| group.has(&site.insn)).collect();
        let ends: Vec<u64> = eligible
            .iter()
            .scan(0, |sum, site| {
                *sum += site.count;
                Some(*sum)
            })
            .collect();
        let all = ends.last().copied().unwrap_or(0);
        reach.eligible.insert(group, all);
        if all == 0 {
            continue;
        }
        let (mut made, mut draws) = (0, 0);
        while made < runs && draws < 20 * runs {
            let mut draw = Draw::new(seed ^ 0x6f75_7273, (group as u64) << 40 | draws);
            draws += 1;
            let execution = draw.below(all);
            let at = ends.partition_point(|end| *end <= execution);
            let site = eligible[at];
            let n = execution - (ends[at] - site.count) + 1;
            let Some(effect) = group.draw(&site.insn, &mut draw) else {
                continue;
            };
            let line = format!("at=agent+{:#x} n={n} {effect}", site.offset);
            let fault: Fault = line.parse().with_context(|| line.clone())?;
            let kind = effect.split(" bit=").next().unwrap_or_default();
            let plantable = known
                .entry(format!("{:#x} {kind}", site.offset))
                .or_insert_with(|| {
                    steadfast_replica::plantable_in_agent(&fault).map_err(|error| reason(&error))
                });
            *reach.drawn.entry(group).or_default() += 1;
            match plantable {
                Ok(()) => {
                    plan.push(Planned {
                        id: 0,
                        group,
                        fault: line,
                        victim: site.replica,
                        strike: None,
                    });
                    made += 1;
                }
                Err(reason) => {
                    let refused: &mut BTreeMap<String, u64> =
                        reach.refused.entry(group).or_default();
                    *refused.entry(reason.clone()).or_default() += 1;
                }
            }
        }
    }
    Ok(())
}
