//! The plan: which faults will be run, written before the first of them is.
//!
//! Group by group, an execution is drawn uniformly among the dynamic instructions that can have
//! a fault of the group, then the place and the bit. A draw that the engine cannot plant is
//! counted with its reason and drawn again: it is the unreachable share of the population.

mod ours;
pub(crate) mod outside;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use iced_x86::Instruction;
use object::{Object, ObjectSegment};
use serde::{Deserialize, Serialize};
use steadfast_integrity::fault::Fault;

use crate::draw::Draw;
use crate::operands::Group;
use crate::profile::{Population, decoded};

/// One fault to be run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Planned {
    pub(crate) id: u64,
    pub(crate) group: Group,
    /// Without the victim.
    pub(crate) fault: String,
    /// Modulo the number of replicas: the victim.
    pub(crate) victim: u64,
    /// What is struck from outside, beside the fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) strike: Option<outside::Strike>,
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

/// Whose state faults strike.
#[derive(
    Debug,
    Default,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    clap::ValueEnum,
    Serialize,
    Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Whose {
    /// The program's: code, registers, memory.
    #[default]
    App,
    /// The protection's: agent, log, control block, window.
    Agent,
    /// The processes around the replicas, planted code, two faults in one run.
    Rest,
}

impl Whose {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Agent => "agent",
            Self::Rest => "rest",
        }
    }
}

/// The plan in `dir`, made now if there is none.
pub(crate) fn of(
    whose: Whose,
    population: &Population,
    dir: &Path,
    runs: u64,
    seed: u64,
) -> anyhow::Result<Vec<Planned>> {
    let name = format!("{}-{seed}-{runs}", whose.word());
    let path = dir.join(format!("plan-{name}.jsonl"));
    if !path.exists() {
        let (plan, reach) = match whose {
            Whose::App => make(population, runs, seed)?,
            Whose::Agent => {
                let input = fs::metadata(dir.join("input"))?.len();
                ours::make(population, input, runs, seed)?
            }
            Whose::Rest => outside::make(population, runs, seed)?,
        };
        fs::write(
            dir.join(format!("reach-{name}.json")),
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

/// The program's files and instructions, to draw executions from.
pub(crate) struct Drawer {
    files: Vec<File>,
    sites: Vec<Site>,
    known: HashMap<String, Result<(), String>>,
    ends: Vec<u64>,
}

impl Drawer {
    pub(crate) fn new(population: &Population) -> anyhow::Result<Self> {
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
        let ends = sums(sites.iter());
        Ok(Self {
            files,
            sites,
            known: HashMap::new(),
            ends,
        })
    }

    /// Any execution of any instruction at which `effect` can be planted.
    pub(crate) fn site(&mut self, effect: &str, draw: &mut Draw) -> anyhow::Result<Option<String>> {
        let all = self.ends.last().copied().unwrap_or(0);
        for _ in 0..100 {
            let execution = draw.below(all.max(1));
            let at = self.ends.partition_point(|end| *end <= execution);
            let Some(site) = self.sites.get(at) else {
                break;
            };
            let n = execution - (self.ends[at] - site.count) + 1;
            let file = &self.files[site.module];
            let name = file.name();
            let line = format!("at={name}+{:#x} n={n}", site.offset);
            let key = format!("{name}+{:#x}", site.offset);
            let fault: Fault = format!("{line} {effect}").parse()?;
            let plantable = self.known.entry(key).or_insert_with(|| {
                steadfast_replica::plantable(&file.path, &file.bytes, &fault)
                    .map_err(|error| reason(&error))
            });
            if plantable.is_ok() {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }
}

impl File {
    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Prefix sums of executions, to draw one uniformly.
fn sums<'a>(sites: impl Iterator<Item = &'a Site>) -> Vec<u64> {
    sites
        .scan(0, |sum, site| {
            *sum += site.count;
            Some(*sum)
        })
        .collect()
}

fn make(population: &Population, runs: u64, seed: u64) -> anyhow::Result<(Vec<Planned>, Reach)> {
    let Drawer { files, sites, .. } = Drawer::new(population)?;
    let mut reach = Reach {
        total: population.total(),
        ..Reach::default()
    };
    let mut plan = Vec::new();
    let mut known: HashMap<String, Result<(), String>> = HashMap::new();
    for group in Group::INSTRUCTIONS {
        let eligible: Vec<&Site> = sites.iter().filter(|site| group.has(&site.insn)).collect();
        let ends = sums(eligible.iter().copied());
        let all = ends.last().copied().unwrap_or(0);
        reach.eligible.insert(group, all);
        if all == 0 {
            continue;
        }
        let mut made = 0;
        let mut draws = 0;
        // A group of which next to nothing can be reached gives what it has.
        while made < runs && draws < 20 * runs {
            let place = (group as u64) << 40 | draws;
            draws += 1;
            let mut draw = Draw::new(seed, place);
            let execution = draw.below(all);
            let at = ends.partition_point(|end| *end <= execution);
            let site = eligible[at];
            let n = execution - (ends[at] - site.count) + 1;
            let file = &files[site.module];
            let name = file.name();
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
                        strike: None,
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
    Ok((turns(plan), reach))
}

/// Groups take turns, so that a campaign cut short is a smaller one of the same kind.
pub(crate) fn turns(plan: Vec<Planned>) -> Vec<Planned> {
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
    (0..)
        .zip(keyed)
        .map(|(id, (_, one))| Planned { id, ..one })
        .collect()
}

/// Without the addresses.
pub(crate) fn reason(error: &steadfast_replica::Refusal) -> String {
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
    sites.extend(
        decoded(&file, start, counts).map(|(offset, count, insn)| Site {
            module,
            offset,
            count,
            insn,
        }),
    );
    Ok(())
}
