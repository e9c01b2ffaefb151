//! The population: taken once per program, kept beside the plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use steadfast_integrity::plan::Plan;

use crate::programs::{self, ENVIRONMENT, Program};

/// What a run without a fault executes.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Population {
    /// By file: offset and executions.
    pub(crate) modules: BTreeMap<PathBuf, Vec<(u64, u64)>>,
    pub(crate) agent: u64,
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

/// In a process of its own: the engine reaps every child of its process.
pub(crate) fn take(program: &str, to: &Path) -> anyhow::Result<()> {
    let program = programs::find(program)?;
    let args = program.argv[1..].iter().map(Into::into).collect();
    let plan = Plan::new(program.argv[0].clone().into(), program.path()?, args);
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
        agent: profile.agent.iter().map(|(_, count)| count).sum(),
        elsewhere: profile.elsewhere,
        lost: profile.lost,
        events: report.events,
    };
    fs::write(to, serde_json::to_vec(&population)?)?;
    Ok(())
}

/// The profile of a program, taken now if there is none yet.
pub(crate) fn of(program: &Program, dir: &Path) -> anyhow::Result<Population> {
    let path = dir.join("profile.json");
    if !path.exists() {
        let fresh = dir.join("profile.new");
        let input = dir.join("input");
        let status = Command::new(std::env::current_exe()?)
            .arg("profile")
            .arg(program.name)
            .arg(&fresh)
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(fs::File::open(&input)?)
            .stdout(Stdio::null())
            .status()?;
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
