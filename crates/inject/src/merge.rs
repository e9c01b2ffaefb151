//! Parts of one plan, run here and there, put together as one campaign.
//!
//! Shards are plain campaign directories: the whole plan in each, and the runs of one part. What
//! may differ between them is where and when they ran; what was run, drawn, planned and compared
//! may not, or the sum would answer no question.
//!
//! Invariants
//!  1. No run is counted twice and none is lost: an id that two parts have is refused, and parts
//!     that are missing are counted, never assumed.
//!  2. Nothing is overwritten, and `campaign.json` is written last: a directory without it is no
//!     campaign, so a merge that was cut off leaves none behind.
//!
//! Not covered: parts of one run id that disagree. Both are shown by the refusal, neither wins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::campaign::{KEPT, Kept};
use crate::record::{Campaign, Dir, Population, RecordError, Run, SCHEMA, Shard};
use crate::results::{Part, parts};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// Parts that were put together.
    pub parts: usize,
    /// Runs in the whole.
    pub runs: u64,
    /// Runs that the plan asks for and no part has.
    pub missing: u64,
}

/// Why parts are not one campaign.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A file.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A file, by itself.
    #[error("{path} cannot be copied")]
    Copy {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// They were not made from the same question.
    #[error(
        "{what} must be the same in all parts: {first} has {first_value}, {other} has {other_value}"
    )]
    Different {
        /// Of what.
        what: &'static str,
        /// One directory.
        first: PathBuf,
        /// Another.
        other: PathBuf,
        /// What the one has.
        first_value: String,
        /// What the other has.
        other_value: String,
    },
    /// The same run twice.
    #[error("run {id} is in {first} and in {other}: a run counts once")]
    Duplicate {
        /// Which.
        id: u64,
        /// One directory.
        first: PathBuf,
        /// Another.
        other: PathBuf,
    },
    /// A run that does not belong to its part.
    #[error("{path}: run {id} is not of part {index} of {of} of its plan")]
    Foreign {
        /// Which directory.
        path: PathBuf,
        /// Which run.
        id: u64,
        /// The directory's part.
        index: u32,
        /// Of so many.
        of: u32,
    },
    /// There is something already.
    #[error("{path} must be new or empty")]
    NotEmpty {
        /// Where.
        path: PathBuf,
    },
    /// Nothing to merge.
    #[error("at least one part is needed")]
    Nothing,
}

/// Puts parts together in a new directory.
///
/// # Errors
/// When they are not parts of one plan, share a run, or cannot be read or written. Nothing is
/// written unless all of them fit.
pub fn merge(shards: &[PathBuf], out: &Path) -> Result<Merged, MergeError> {
    let Some(first_path) = shards.first() else {
        return Err(MergeError::Nothing);
    };
    if fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(MergeError::NotEmpty {
            path: out.to_owned(),
        });
    }
    let first_dir = Dir::new(first_path);
    let first = first_dir.campaign()?;
    let plan = first_dir.plan()?;
    let planned: BTreeSet<u64> = plan.iter().map(|line| line.id).collect();

    let mut runs: BTreeMap<u64, (Run, &PathBuf)> = BTreeMap::new();
    let mut whole = Campaign {
        shard: Shard { index: 0, of: 1 },
        ..first.clone()
    };
    let mut origins: Vec<Part> = Vec::new();
    for (position, path) in shards.iter().enumerate() {
        let dir = Dir::new(path);
        let campaign = dir.campaign()?;
        if position > 0 {
            let paths = (first_path.as_path(), path.as_path());
            same(&first, &campaign, paths)?;
            same_orders(paths)?;
            let other = dir.plan()?;
            if other != plan {
                let at = plan.iter().zip(&other).position(|(a, b)| a != b);
                let line = at.unwrap_or(plan.len().min(other.len()));
                let fault = |plan: &[crate::record::Planned]| {
                    plan.get(line).map_or("no run".to_owned(), |one| {
                        format!("run {} '{}'", one.id, one.fault)
                    })
                };
                return Err(MergeError::Different {
                    what: "the plan",
                    first: first_path.clone(),
                    other: path.clone(),
                    first_value: fault(&plan),
                    other_value: fault(&other),
                });
            }
            add(&mut whole, &campaign);
        }
        let mut count = 0;
        for (id, run) in dir.runs()? {
            if !campaign.shard.has(id) || !planned.contains(&id) {
                return Err(MergeError::Foreign {
                    path: path.clone(),
                    id,
                    index: campaign.shard.index,
                    of: campaign.shard.of,
                });
            }
            if let Some((_, before)) = runs.insert(id, (run, path)) {
                return Err(MergeError::Duplicate {
                    id,
                    first: before.clone(),
                    other: path.clone(),
                });
            }
            count += 1;
        }
        let before = parts(&dir)?;
        if before.is_empty() {
            origins.push(Part {
                schema: SCHEMA,
                shard: campaign.shard,
                machine: campaign.machine,
                commit: campaign.commit,
                unix_ms: campaign.unix_ms,
                limits: campaign.limits,
                runs: count,
            });
        }
        origins.extend(before);
    }
    write(&whole, &first_dir, &runs, &origins, out)?;
    Ok(Merged {
        parts: shards.len(),
        runs: runs.len() as u64,
        missing: (planned.len() - runs.len()) as u64,
    })
}

/// What is added up or widened.
fn add(whole: &mut Campaign, part: &Campaign) {
    whole.control_runs.runs += part.control_runs.runs;
    whole.control_runs.masked += part.control_runs.masked;
    whole.control_runs.false_alarms += part.control_runs.false_alarms;
    whole.golden.runs += part.golden.runs;
    for (sum, one) in [
        (
            &mut whole.control_runs.wall_ns_p50,
            part.control_runs.wall_ns_p50,
        ),
        (
            &mut whole.control_runs.wall_ns_p99,
            part.control_runs.wall_ns_p99,
        ),
        (&mut whole.golden.wall_ns_max, part.golden.wall_ns_max),
        (&mut whole.golden.cpu_ns_max, part.golden.cpu_ns_max),
        (&mut whole.limits.wall_ns, part.limits.wall_ns),
        (&mut whole.limits.cpu_ns, part.limits.cpu_ns),
        (&mut whole.limits.slow_ns, part.limits.slow_ns),
    ] {
        *sum = one.max(*sum);
    }
    for sentence in &part.sandbox {
        if !whole.sandbox.contains(sentence) {
            whole.sandbox.push(sentence.clone());
        }
    }
}

/// Refuses parts that differ in something.
fn equal(
    what: &'static str,
    (first, other): (&Path, &Path),
    one: &dyn Debug,
    another: &dyn Debug,
) -> Result<(), MergeError> {
    let (first_value, other_value) = (format!("{one:?}"), format!("{another:?}"));
    if first_value == other_value {
        return Ok(());
    }
    Err(MergeError::Different {
        what,
        first: first.to_owned(),
        other: other.to_owned(),
        first_value,
        other_value,
    })
}

/// What must be equal.
fn same(a: &Campaign, b: &Campaign, paths: (&Path, &Path)) -> Result<(), MergeError> {
    let equal = |what, one: &dyn Debug, other: &dyn Debug| equal(what, paths, one, other);
    let files = |campaign: &Campaign| -> Vec<String> {
        campaign
            .modules
            .iter()
            .map(|m| format!("{} {}", m.name, m.build_id.as_deref().unwrap_or("-")))
            .collect()
    };
    equal("the seed", &a.seed, &b.seed)?;
    equal("the command", &a.command, &b.command)?;
    equal("the build ids of all files", &files(a), &files(b))?;
    equal("standard input", &a.stdin, &b.stdin)?;
    equal("the environment", &a.environment, &b.environment)?;
    equal("the protection", &a.protection, &b.protection)?;
    equal("the engine", &a.engine, &b.engine)?;
    // What a sample estimates differs from part to part, and what there was time for.
    let counted = |campaign: &Campaign| Population {
        uncounted: 0,
        surplus: None,
        ..campaign.population.clone()
    };
    equal("the population", &counted(a), &counted(b))?;
    equal("the fault types", &a.fault_types, &b.fault_types)?;
    equal("the comparator", &a.comparator, &b.comparator)?;
    equal("the files of state", &a.state, &b.state)?;
    equal("the golden status", &a.golden.status, &b.golden.status)?;
    equal("the golden output", &a.golden.outputs, &b.golden.outputs)?;
    equal("the version of steadfast", &a.steadfast, &b.steadfast)?;
    Ok(())
}

/// What must be equal, too, and stands in the order that each part was begun with.
fn same_orders(paths: (&Path, &Path)) -> Result<(), MergeError> {
    let (Some(a), Some(b)) = (Kept::read(paths.0), Kept::read(paths.1)) else {
        return Ok(());
    };
    let equal = |what, one: &dyn Debug, other: &dyn Debug| equal(what, paths, one, other);
    equal("the detector", &a.detector, &b.detector)?;
    equal("the client", &a.spec.driver, &b.spec.driver)?;
    equal("the files at the start", &a.spec.input, &b.spec.input)?;
    equal("the memory", &a.spec.memory, &b.spec.memory)?;
    equal("the network", &a.network, &b.network)?;
    Ok(())
}

fn write(
    whole: &Campaign,
    first: &Dir,
    runs: &BTreeMap<u64, (Run, &PathBuf)>,
    origins: &[Part],
    out: &Path,
) -> Result<(), MergeError> {
    let to = Dir::new(out);
    to.write_plan(&first.plan()?)?;
    let profile = first.profile()?;
    if !profile.is_empty() {
        to.write_profile(&profile)?;
    }
    // With these two, runs of the whole can be repeated, and those that are missing be done.
    for name in ["golden", KEPT] {
        let from = first.path().join(name);
        if from.exists() {
            copy(&from, &out.join(name))?;
        }
    }
    for (run, from) in runs.values() {
        // Evidence lies under the campaign; a record that points elsewhere is not followed.
        if let Some(evidence) = run.evidence.as_deref().filter(|path| is_below(path)) {
            let there = from.join(evidence);
            if there.exists() {
                copy(&there, &out.join(evidence))?;
            }
        }
    }
    let mut appender = to.append()?;
    for (run, _) in runs.values() {
        appender.add(run)?;
    }
    to.write_lines("merged.jsonl", origins)?;
    to.write_campaign(whole)?;
    Ok(())
}

fn is_below(path: &str) -> bool {
    use std::path::Component;
    Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
}

fn copy(from: &Path, to: &Path) -> Result<(), MergeError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| MergeError::Copy { path, source }
    };
    let kind = fs::symlink_metadata(from).map_err(at(from))?.file_type();
    if kind.is_dir() {
        fs::create_dir_all(to).map_err(at(to))?;
        for entry in fs::read_dir(from).map_err(at(from))? {
            let entry = entry.map_err(at(from))?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if kind.is_file() {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(at(parent))?;
        }
        fs::copy(from, to).map_err(at(from))?;
    }
    // A faulty run may leave anything: links, sockets and pipes are not evidence.
    Ok(())
}

#[cfg(test)]
mod tests;
