//! The plan: which faults will be run, written before the first of them is.
//!
//! Group by group, an execution is drawn uniformly among the dynamic instructions that can have
//! a fault of the group, then the place and the bit. A draw that the engine cannot plant is
//! counted with its reason and drawn again: it is the unreachable share of the population.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSegment};
use serde::{Deserialize, Serialize};
use steadfast_integrity::fault::Fault;

use crate::draw::Draw;
use crate::operands::Group;
use crate::profile::Population;

/// One fault to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Planned {
    pub(crate) id: u64,
    pub(crate) group: Group,
    /// Without the victim.
    pub(crate) fault: String,
    /// Modulo the number of replicas: the victim.
    pub(crate) victim: u64,
}

/// What was drawn, and what could not be planted.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reach {
    /// Executions that can have a fault of the group, of all.
    pub(crate) eligible: BTreeMap<Group, u64>,
    pub(crate) total: u64,
    pub(crate) drawn: BTreeMap<Group, u64>,
    pub(crate) refused: BTreeMap<Group, BTreeMap<String, u64>>,
}

struct Site {
    module: usize,
    offset: u64,
    count: u64,
    insn: Instruction,
}

struct File {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// The plan in `dir`, made now if there is none.
pub(crate) fn of(
    population: &Population,
    dir: &Path,
    runs: u64,
    seed: u64,
) -> anyhow::Result<Vec<Planned>> {
    let path = dir.join(format!("plan-{seed}-{runs}.jsonl"));
    if !path.exists() {
        let (plan, reach) = make(population, runs, seed)?;
        fs::write(
            dir.join(format!("reach-{seed}-{runs}.json")),
            serde_json::to_vec_pretty(&reach)?,
        )?;
        let fresh = dir.join("plan.new");
        let mut out = BufWriter::new(fs::File::create(&fresh)?);
        for one in &plan {
            serde_json::to_writer(&mut out, one)?;
            out.write_all(b"\n")?;
        }
        out.into_inner()?.sync_all()?;
        fs::rename(&fresh, &path)?;
    }
    fs::read_to_string(&path)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| path.display().to_string()))
        .collect()
}

fn make(population: &Population, runs: u64, seed: u64) -> anyhow::Result<(Vec<Planned>, Reach)> {
    let mut files = Vec::new();
    let mut sites = Vec::new();
    for (path, counts) in &population.modules {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        decode(&bytes, counts, files.len(), &mut sites)?;
        files.push(File {
            path: path.clone(),
            bytes,
        });
    }
    let mut reach = Reach {
        total: population.total(),
        ..Reach::default()
    };
    let mut plan = Vec::new();
    let mut known: HashMap<String, Result<(), String>> = HashMap::new();
    for (g, group) in Group::ALL.into_iter().enumerate() {
        // Prefix sums of executions, to draw one uniformly.
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
        let mut made = 0;
        let mut draws = 0;
        // A group of which next to nothing can be reached gives what it has.
        while made < runs && draws < 20 * runs {
            let place = (g as u64) << 40 | draws;
            draws += 1;
            let mut draw = Draw::new(seed, place);
            let execution = draw.below(all);
            let at = ends.partition_point(|end| *end <= execution);
            let site = eligible[at];
            let n = execution - (ends[at] - site.count) + 1;
            let file = &files[site.module];
            let name = file.path.file_name().unwrap_or_default().to_string_lossy();
            let Some(effect) = group.draw(&site.insn, &mut draw) else {
                continue;
            };
            let line = format!("at={name}+{:#x} n={n} {effect}", site.offset);
            let fault: Fault = line.parse().with_context(|| line.clone())?;
            // Whether it can be planted does not depend on the execution or the bit.
            let kind = effect.split(" bit=").next().unwrap_or_default();
            let key = format!("{name}+{:#x} {kind}", site.offset);
            let plantable = known.entry(key).or_insert_with(|| {
                steadfast_replica::plantable(&file.path, &file.bytes, &fault)
                    .map_err(|error| reason(&error))
            });
            *reach.drawn.entry(group).or_default() += 1;
            match plantable {
                Ok(()) => {
                    plan.push(Planned {
                        id: 0,
                        group,
                        fault: line,
                        victim: draw.next(),
                    });
                    made += 1;
                }
                Err(reason) => {
                    *reach
                        .refused
                        .entry(group)
                        .or_default()
                        .entry(reason.clone())
                        .or_default() += 1;
                }
            }
        }
    }
    // Groups take turns, so that a campaign cut short is a smaller one of the same kind.
    let mut turns: BTreeMap<Group, u64> = BTreeMap::new();
    let mut keyed: Vec<(u64, Planned)> = plan
        .into_iter()
        .map(|one| {
            let turn = turns.entry(one.group).or_default();
            *turn += 1;
            (*turn, one)
        })
        .collect();
    keyed.sort_by_key(|(turn, one)| (*turn, one.group));
    let plan = (0..)
        .zip(keyed)
        .map(|(id, (_, one))| Planned { id, ..one })
        .collect();
    Ok((plan, reach))
}

/// Without the addresses.
fn reason(error: &steadfast_replica::FlipError) -> String {
    match error.found.split_once('(') {
        Some((_, why)) if error.requirement.contains("room") => {
            format!("window: {}", why.trim_end_matches(')'))
        }
        _ => error.requirement.clone(),
    }
}

fn decode(
    bytes: &[u8],
    counts: &[(u64, u64)],
    module: usize,
    sites: &mut Vec<Site>,
) -> anyhow::Result<()> {
    let file = object::File::parse(bytes)?;
    let start = file.segments().map(|s| s.address()).min().unwrap_or(0) & !0xfff;
    for (offset, count) in counts {
        let address = start + offset;
        let code = file.segments().find_map(|segment| {
            let at = usize::try_from(address.checked_sub(segment.address())?).ok()?;
            segment.data().ok()?.get(at..)
        });
        let Some(code) = code else { continue };
        let insn = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        if !insn.is_invalid() {
            sites.push(Site {
                module,
                offset: *offset,
                count: *count,
                insn,
            });
        }
    }
    Ok(())
}
