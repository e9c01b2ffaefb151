//! The population: taken once per program, kept beside the plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use object::{Object, ObjectSegment};
use serde::{Deserialize, Serialize};
use steadfast_integrity::plan::Plan;

use crate::programs::{self, ENVIRONMENT, Program};

/// An instruction takes some microseconds to step; programs here have ten million at most.
const LIMIT: Duration = Duration::from_secs(600);

/// What a run without a fault executes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Population {
    /// By file: offset and executions.
    pub(crate) modules: BTreeMap<PathBuf, Vec<(u64, u64)>>,
    pub(crate) agent: u64,
    /// Instructions of the agent by replica, where several ran: offset and executions.
    #[serde(default)]
    pub(crate) ours: Vec<Vec<(u64, u64)>>,
    pub(crate) elsewhere: u64,
    pub(crate) lost: u64,
    /// Events of the run.
    pub(crate) events: u64,
}

impl Population {
    pub(crate) fn total(&self) -> u64 {
        self.modules
            .values()
            .flatten()
            .map(|(_, count)| count)
            .sum()
    }
}

/// The bytes of a file from an address on, as far as its segment goes.
pub(crate) fn code_at<'a>(file: &object::File<'a>, address: u64) -> Option<&'a [u8]> {
    file.segments().find_map(|segment| {
        let at = usize::try_from(address.checked_sub(segment.address())?).ok()?;
        segment.data().ok()?.get(at..)
    })
}

/// Counted instructions of a file: distance from its start, executions. Without those that lie in
/// no segment: what a payload's arena holds is the injector's.
pub(crate) fn decoded(
    file: &object::File<'_>,
    start: u64,
    counts: &[(u64, u64)],
) -> impl Iterator<Item = (u64, u64, Instruction)> {
    counts.iter().filter_map(move |(offset, count)| {
        let address = start + offset;
        let code = code_at(file, address)?;
        let insn = Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then_some((*offset, *count, insn))
    })
}

/// In a process of its own: the engine reaps every child of its process.
pub(crate) fn take(program: &str, replicas: u8, to: &Path) -> anyhow::Result<()> {
    let program = programs::find(program)?;
    let args = program.argv[1..].iter().map(Into::into).collect();
    let mut plan = Plan::new(program.argv[0].clone().into(), program.path()?, args);
    plan.replicas = replicas;
    let (report, profile) = steadfast_replica::profile(&plan)?;
    let mut modules: BTreeMap<PathBuf, Vec<(u64, u64)>> = BTreeMap::new();
    for site in profile.sites {
        modules
            .entry(site.module)
            .or_default()
            .push((site.offset, site.count));
    }
    let population = Population {
        modules,
        agent: profile.agent.iter().flatten().map(|(_, count)| count).sum(),
        ours: if replicas > 1 {
            profile.agent
        } else {
            Vec::new()
        },
        elsewhere: profile.elsewhere,
        lost: profile.lost,
        events: report.events,
    };
    fs::write(to, serde_json::to_vec(&population)?)?;
    Ok(())
}

/// The profile of a program, taken now if there is none yet. With several replicas it tells what
/// the agent executes in each.
pub(crate) fn of(program: &Program, dir: &Path, replicas: u8) -> anyhow::Result<Population> {
    let path = dir.join(match replicas {
        1 => "profile.json".to_owned(),
        n => format!("profile-{n}.json"),
    });
    if !path.exists() {
        let fresh = dir.join("profile.new");
        let input = dir.join("input");
        let status = Command::new(std::env::current_exe()?)
            .arg("profile")
            .arg(program.name)
            .arg(replicas.to_string())
            .arg(&fresh)
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(fs::File::open(&input)?)
            .stdout(Stdio::null())
            .spawn()
            .and_then(|mut child| {
                let started = Instant::now();
                loop {
                    if let Some(status) = child.try_wait()? {
                        return Ok(status);
                    }
                    if started.elapsed() > LIMIT {
                        child.kill()?;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            })?;
        if !status.success() {
            bail!(
                "a profile of {} is needed, and taking it failed: {status}",
                program.name
            );
        }
        fs::rename(&fresh, &path)?;
    }
    serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())
}
