//! A campaign directory as the results that reports, gates and comparisons are made from.
//!
//! Invariants
//!  1. Every run stands in the plan, for the same fault type, in the part that this directory was
//!     to run. Anything else was mixed in from elsewhere, and is refused.
//!  2. The target is not looked at: what a page shows of an instruction stands in the plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_report::results::{
    ControlCount, FunctionCount, Golden, Module, Provenance, Results, Run,
};

use crate::record::{self, Comparator, Dir, RecordError, Shard};
use crate::victim::Victim;

/// Why runs do not belong to their campaign.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A file cannot be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A run that the plan does not have.
    #[error("{dir}: run {id} is needed in the plan, whose last one is {last}")]
    Unplanned {
        /// Which directory.
        dir: String,
        /// The run.
        id: u64,
        /// The highest in the plan.
        last: u64,
    },
    /// A run of another fault type than the plan says.
    #[error(
        "{dir}: run {id} is of fault type '{planned}' in the plan and '{found}' in the results"
    )]
    OtherFaultType {
        /// Which directory.
        dir: String,
        /// The run.
        id: u64,
        /// By the plan.
        planned: String,
        /// By the run.
        found: String,
    },
    /// A run of another part of the plan.
    #[error("{dir}: run {id} is not of part {index} of {of}")]
    OtherShard {
        /// Which directory.
        dir: String,
        /// The run.
        id: u64,
        /// The directory's part.
        index: u32,
        /// Of so many.
        of: u32,
    },
    /// A fault type that the campaign does not list.
    #[error("{dir}: fault type '{name}' of the plan is needed among the campaign's `fault_types`")]
    NoFaultType {
        /// Which directory.
        dir: String,
        /// The name.
        name: String,
    },
}

/// One part of a merged campaign: a line of `merged.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// [`record::SCHEMA`].
    pub schema: u32,
    /// Its share of the plan.
    pub shard: Shard,
    /// Where it ran.
    pub machine: record::Machine,
    /// From which commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// When it was planned.
    pub unix_ms: u64,
    /// When its runs were given up.
    pub limits: record::Limits,
    /// Its finished runs.
    pub runs: u64,
}

/// Reads a campaign; `name` is how a replay line calls the directory.
///
/// # Errors
/// When a file cannot be read, or runs do not belong to the plan.
pub fn load(dir: &Dir, name: &str) -> Result<Results, ResultsError> {
    let campaign = dir.campaign()?;
    let plan = dir.plan()?;
    let group_of: BTreeMap<&str, usize> = campaign
        .fault_types
        .iter()
        .enumerate()
        .map(|(at, fault_type)| (fault_type.name.as_str(), at))
        .collect();
    let mut by_id = BTreeMap::new();
    for line in &plan {
        if !group_of.contains_key(line.fault_type.as_str()) {
            return Err(ResultsError::NoFaultType {
                dir: name.to_owned(),
                name: line.fault_type.clone(),
            });
        }
        by_id.insert(line.id, line);
    }
    let mut runs = Vec::new();
    for (id, run) in dir.runs()? {
        let Some(planned) = by_id.get(&id) else {
            return Err(ResultsError::Unplanned {
                dir: name.to_owned(),
                id,
                last: plan.iter().map(|line| line.id).max().unwrap_or(0),
            });
        };
        if planned.fault_type != run.fault_type {
            return Err(ResultsError::OtherFaultType {
                dir: name.to_owned(),
                id,
                planned: planned.fault_type.clone(),
                found: run.fault_type,
            });
        }
        if !campaign.shard.has(id) {
            return Err(ResultsError::OtherShard {
                dir: name.to_owned(),
                id,
                index: campaign.shard.index,
                of: campaign.shard.of,
            });
        }
        runs.push(Run {
            id,
            group: group_of[planned.fault_type.as_str()],
            leaf: run.outcome,
            fault: planned.told(),
            replay: format!("steadfast inject replay {} {id}", quoted(name)),
            place: planned.site.clone(),
            register: planned.register.clone(),
            bits: planned.bits.clone(),
            status: run.status,
            signal: run.signal,
            differ: run.differ,
            detection: run.detection,
            wall_ns: run.wall_ns,
            cpu_ns: run.cpu_ns,
            evidence: run.evidence,
        });
    }
    let functions = dir
        .profile()?
        .into_iter()
        .map(|line| FunctionCount {
            module: line.module,
            function: line.function,
            executions: line.executions,
            reachable: line.reachable,
        })
        .collect();
    Ok(Results {
        population: campaign.population.clone().with_uncounted().counts,
        groups: campaign.fault_types.clone(),
        functions,
        planned: plan
            .iter()
            .filter(|line| campaign.shard.has(line.id))
            .count() as u64,
        runs,
        control: ControlCount {
            runs: campaign.control_runs.runs,
            masked: campaign.control_runs.masked,
            false_alarms: campaign.control_runs.false_alarms,
        },
        provenance: provenance(campaign, &parts(dir)?),
    })
}

/// A word of a shell, quoted where it must be.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_./-+:,=@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The parts of a merged campaign; empty for one that was never in parts.
///
/// # Errors
/// When the list is there and cannot be read.
pub fn parts(dir: &Dir) -> Result<Vec<Part>, RecordError> {
    let path = dir.path().join("merged.jsonl");
    if path.exists() {
        record::read_lines(&path)
    } else {
        Ok(Vec::new())
    }
}

/// Status and compared bytes; a digest ends in `/` and the length of what it stands for.
fn golden(golden: &record::Golden) -> Golden {
    let length = |digest: &String| {
        digest
            .rsplit_once('/')
            .and_then(|(_, n)| n.parse::<u64>().ok())
    };
    Golden {
        status: golden.status,
        output_bytes: golden.outputs.values().filter_map(length).sum::<u64>(),
    }
}

fn provenance(campaign: record::Campaign, parts: &[Part]) -> Provenance {
    let seconds = |ns: u64| format!("{:.3} s", ns as f64 / 1e9);
    let mut settings = BTreeMap::from([
        ("golden runs".to_owned(), campaign.golden.runs.to_string()),
        (
            "golden run, slowest".to_owned(),
            format!(
                "{} wall, {} CPU",
                seconds(campaign.golden.wall_ns_max),
                seconds(campaign.golden.cpu_ns_max)
            ),
        ),
        (
            "given up as a hang after".to_owned(),
            format!(
                "{} wall, {} CPU",
                seconds(campaign.limits.wall_ns),
                seconds(campaign.limits.cpu_ns)
            ),
        ),
        ("slow after".to_owned(), seconds(campaign.limits.slow_ns)),
    ]);
    if let Some(stdin) = campaign.stdin {
        settings.insert("standard input".to_owned(), stdin);
    }
    for (name, value) in campaign.environment {
        settings.insert(format!("environment {name}"), value);
    }
    for part in parts {
        settings.insert(
            format!("part {}/{}", part.shard.index, part.shard.of),
            format!(
                "{} runs on {}, {} CPUs, kernel {}",
                part.runs, part.machine.cpu, part.machine.cpus, part.machine.kernel
            ),
        );
    }
    let comparator = match campaign.comparator {
        Comparator::Byte => "byte for byte".to_owned(),
        Comparator::Masked { patterns } => {
            let patterns: Vec<String> = patterns.into_iter().map(String::from).collect();
            format!("byte for byte, without {}", patterns.join(", "))
        }
        Comparator::Numeric { tolerance } => format!("numbers within {tolerance}"),
        Comparator::Lines => "as lines in any order".to_owned(),
        Comparator::Command { command } => format!("by {}", command.join(" ")),
    };
    Provenance {
        golden: golden(&campaign.golden),
        steadfast: campaign.steadfast,
        commit: campaign.commit,
        unix_ms: campaign.unix_ms,
        command: campaign.command,
        // Replicas are struck each; a bare target is one copy, and what protects is counted whole.
        copies: match campaign.victim {
            Victim::Program => u32::from(campaign.protection.replicas).max(1),
            _ => 1,
        },
        protection: campaign.protection.name,
        engine: campaign.engine.word().to_owned(),
        seed: campaign.seed,
        comparator,
        shard: (campaign.shard.of > 1)
            .then(|| format!("{}/{}", campaign.shard.index, campaign.shard.of)),
        modules: campaign
            .modules
            .into_iter()
            .map(|module| Module {
                executions: campaign
                    .population
                    .by_module
                    .get(&module.name)
                    .copied()
                    .unwrap_or(0),
                name: module.name,
                build_id: module.build_id,
            })
            .collect(),
        machine: campaign.machine,
        sandbox: campaign.sandbox,
        settings,
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_replay_line_can_be_pasted() {
        assert_eq!(quoted("../results-2"), "../results-2");
        assert_eq!(quoted("my results"), "'my results'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
