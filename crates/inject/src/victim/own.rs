//! Flips in the agent, the control block, the log, and between vote and effect.
//!
//! The agent's vDSO and the call table are constants of its image.

use std::collections::HashMap;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, Instruction, IntelFormatter};
use object::{Object, ObjectSegment, ObjectSymbol};
use steadfast_fault::Fault;
use steadfast_report::results::Place;

use super::{Counts, Drawn, Group, Sites, Wanted};
use crate::chacha::Draw;
use crate::models::Model;

pub(super) const BYTES: [&str; 2] = ["agent-fixed", "agent-written"];
pub(super) const LOG: [&str; 3] = ["control", "records", "window"];

/// State that only injected faults use (crates/agent/src/faults/flip.c).
const INJECTOR: [&str; 3] = ["sf_flip_stack", "vectors", "own"];
/// Registers that hold a call's number and arguments.
const ARGUMENTS: [&str; 6] = ["rax", "rdi", "rsi", "rdx", "r10", "r8"];
/// Those of them that many calls have a pointer in.
const POINTERS: [&str; 3] = ["rdi", "rsi", "rdx"];
/// Draws for each fault that is planned, where most places cannot be struck.
const DRAWS: u64 = 20;

/// An instruction of the agent.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) offset: u64,
    pub(super) insn: Instruction,
    replica: usize,
    count: u64,
}

/// The agent's own file.
pub(super) struct Agent {
    file: object::File<'static>,
    /// The address that faults call its start.
    base: u64,
}

impl Agent {
    pub(super) fn open() -> Result<Self, String> {
        let file = object::File::parse(steadfast_agent::ELF).map_err(|why| why.to_string())?;
        let base = file.segments().map(|s| s.address()).min();
        let base = base.ok_or("the agent has no segment")?;
        Ok(Self { file, base })
    }

    fn code(&self, offset: u64) -> Option<&[u8]> {
        self.file.segments().find_map(|segment| {
            let at = (self.base + offset).checked_sub(segment.address())?;
            segment.data().ok()?.get(usize::try_from(at).ok()?..)
        })
    }

    fn instruction(&self, offset: u64) -> Option<Instruction> {
        let at = self.base + offset;
        let insn = Decoder::with_ip(64, self.code(offset)?, at, DecoderOptions::NONE).decode();
        // What lies in no segment, as a payload's arena, is the injector's.
        (!insn.is_invalid()).then_some(insn)
    }

    /// Ranges of symbols with one of these names.
    fn named(&self, names: &[&str]) -> Vec<Range<u64>> {
        self.file
            .symbols()
            .filter(|s| s.size() > 0 && s.name().is_ok_and(|name| names.contains(&name)))
            .map(|s| s.address() - self.base..s.address() - self.base + s.size())
            .collect()
    }

    /// Every instruction of some functions.
    pub(super) fn functions(&self, names: &[&str]) -> Vec<Site> {
        let mut out = Vec::new();
        for range in self.named(names) {
            let mut offset = range.start;
            while let Some(insn) = self.instruction(offset).filter(|_| offset < range.end) {
                out.push(Site {
                    offset,
                    insn,
                    replica: 0,
                    count: 1,
                });
                offset += insn.len() as u64;
            }
        }
        out
    }

    fn place(&self, site: &Site) -> Place {
        let at = self.base + site.offset;
        let function = self
            .file
            .symbols()
            .filter(|s| s.kind() == object::SymbolKind::Text)
            .find(|s| (s.address()..s.address() + s.size()).contains(&at))
            .and_then(|s| s.name().ok().map(str::to_owned));
        let mut disassembly = String::new();
        IntelFormatter::new().format(&site.insn, &mut disassembly);
        Place {
            module: "agent".into(),
            build_id: None,
            offset: format!("{:#x}", site.offset),
            function,
            line: None,
            disassembly,
            opcode: format!("{:?}", site.insn.mnemonic()).to_lowercase(),
        }
    }
}

/// Whether the agent's hooks can carry a fault out.
pub(super) fn plantable(line: &str) -> bool {
    line.parse::<Fault>()
        .is_ok_and(|fault| steadfast_replica::plantable_in_agent(&fault).is_ok())
}

/// Flips in what the agent executes, and in its image.
pub(super) fn agent(
    wanted: &Wanted<'_>,
    counts: &Counts,
    sites: Sites<'_>,
) -> Result<Vec<Group>, String> {
    let agent = Agent::open()?;
    let mut executed = Vec::new();
    for (replica, counted) in counts.replicas.iter().enumerate() {
        for (offset, count) in counted {
            executed.extend(agent.instruction(*offset).map(|insn| Site {
                offset: *offset,
                insn,
                replica,
                count: *count,
            }));
        }
    }
    let mut out = Vec::new();
    for (number, model) in (0..).zip(wanted.models) {
        out.push(instructions(&agent, &executed, *model, number, wanted));
    }
    let places = steadfast_replica::own_places();
    let written = Bytes(vec![places.written]).without(&agent.named(&INJECTOR));
    for (number, (name, bytes)) in
        (out.len()..).zip(BYTES.into_iter().zip([Bytes(vec![places.fixed]), written]))
    {
        out.push(bytes.group(name, "agent", number, wanted, sites));
    }
    Ok(out)
}

fn instructions(
    agent: &Agent,
    executed: &[Site],
    model: Model,
    number: u32,
    wanted: &Wanted<'_>,
) -> Group {
    let eligible: Vec<&Site> = executed
        .iter()
        .filter(|site| model.concerns(&site.insn))
        .collect();
    let ends: Vec<u64> = eligible
        .iter()
        .scan(0, |sum, site| {
            *sum += site.count;
            Some(*sum)
        })
        .collect();
    let all = ends.last().copied().unwrap_or(0);
    let mut known: HashMap<(u64, String), bool> = HashMap::new();
    let (mut drawn, mut draws) = (Vec::new(), 0);
    // A type of which next to nothing can be reached gives what it has.
    while all > 0 && (drawn.len() as u64) < wanted.runs && draws < DRAWS * wanted.runs {
        let mut draw = wanted.seed.stream(number, draws);
        draws += 1;
        let execution = draw.below(all);
        let at = ends.partition_point(|end| *end <= execution);
        let site = eligible[at];
        let n = execution - (ends[at] - site.count) + 1;
        if model.obstacle(&site.insn).is_some() {
            continue;
        }
        let Some(found) = model.draw(&site.insn, wanted.shape, &mut draw) else {
            continue;
        };
        let line = format!("at=agent+{:#x} n={n} {}", site.offset, found.effect);
        // Neither the execution nor the bit decides whether it can be planted.
        let kind = found.effect.split(" bit").next().unwrap_or_default();
        let possible = known
            .entry((site.offset, kind.to_owned()))
            .or_insert_with(|| plantable(&line));
        if *possible {
            drawn.push(Drawn {
                fault: format!("replica={} {line}", site.replica),
                place: Some(agent.place(site)),
                n: Some(n),
                register: found.register,
                bits: found.bits,
                strike: None,
            });
        }
    }
    let share = u128::from(all) * drawn.len() as u128 / u128::from(draws.max(1));
    Group {
        name: format!("agent-{}", model.word()),
        population: all,
        reachable: u64::try_from(share).unwrap_or(all),
        drawn,
    }
}

/// Flips in the control block and the log, and between vote and effect.
pub(super) fn log(wanted: &Wanted<'_>, counts: &Counts, sites: Sites<'_>) -> Vec<Group> {
    let places = steadfast_replica::own_places();
    let results = places.results..places.results + counts.events * places.result_bytes;
    let mut records = places.claims[..counts.replicas.len()].to_vec();
    // What a program reads is most of what results carry.
    records.extend([
        results,
        places.payload..places.payload + wanted.input.max(4096),
    ]);
    let mut out = vec![
        Bytes(vec![places.control]).group(LOG[0], "log", 0, wanted, sites),
        Bytes(records).group(LOG[1], "log", 1, wanted, sites),
    ];
    let events = counts.events.max(1);
    let window = (0..wanted.runs).map(|run| {
        let mut draw = wanted.seed.stream(2, run);
        let event = 1 + draw.below(events);
        let effect = if draw.below(2) == 0 {
            format!("reg={} bit={}", draw.one_of(&ARGUMENTS), draw.below(64))
        } else {
            let (pointer, byte) = (*draw.one_of(&POINTERS), draw.below(64));
            format!("mem=[{pointer}+{byte}] bit={}", draw.below(8))
        };
        Drawn {
            fault: format!("event={event} after-vote {effect}"),
            ..Drawn::default()
        }
    });
    out.push(Group {
        name: LOG[2].into(),
        population: events,
        reachable: events,
        drawn: window.collect(),
    });
    out
}

/// Bytes, drawn uniformly over several ranges.
#[derive(Debug)]
pub(super) struct Bytes(pub(super) Vec<Range<u64>>);

impl Bytes {
    pub(super) fn without(self, holes: &[Range<u64>]) -> Self {
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

    pub(super) fn draw(&self, draw: &mut Draw) -> u64 {
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

    fn group(
        &self,
        name: &str,
        word: &str,
        number: usize,
        wanted: &Wanted<'_>,
        sites: Sites<'_>,
    ) -> Group {
        let number = u32::try_from(number).expect("few types");
        let one = |run| {
            let mut draw = wanted.seed.stream(number, run);
            let (byte, bit) = (self.draw(&mut draw), draw.below(8));
            let effect = format!("mem=[{word}+{byte:#x}] bit={bit}");
            Some(Drawn::at(sites(&mut draw)?, "", &effect))
        };
        Group {
            name: name.into(),
            population: self.all(),
            reachable: self.all(),
            drawn: (0..wanted.runs).filter_map(one).collect(),
        }
    }
}
