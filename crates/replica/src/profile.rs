//! Profile: the population of dynamic instructions that a fault campaign draws from.
//!
//! The program runs once, one instruction at a time (crates/agent/src/faults/profile.c). What was
//! executed in a trampoline counts for the instruction that was moved there; jumps of ours and
//! the agent's own instructions count apart. Two replicas show what the agent does to compare.
//!
//! Not covered: code that no file backs counts as `elsewhere`; a program that depends on time
//! may take other turns when it runs a hundred times slower.

use std::collections::BTreeMap;
use std::path::PathBuf;

use steadfast_contract::plan::{Backstop, EqualPids, Plan, RunReport};

use crate::abi;
use crate::supervise::{Hearing, Supervisor};
use crate::{LaunchError, Step};

/// Shared with crates/agent/src/faults/profile.c.
const PLACES: usize = 1 << 21;
const TABLES: u8 = 3;
const OFF_TABLE: usize = abi::OFF_PAYLOAD + abi::PAYLOAD_BYTES / 2;
const AGENT_END: u64 = abi::BASE + (32 << 20);

/// One instruction, and how often it was executed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Executed {
    /// The mapped file.
    pub module: PathBuf,
    /// Distance from the lowest address at which it is mapped.
    pub offset: u64,
    /// Executions.
    pub count: u64,
}

/// What a run executed.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// Instructions of mapped files, ascending.
    pub sites: Vec<Executed>,
    /// Instructions of the agent, by replica, as distance from its start and executions.
    pub agent: Vec<Vec<(u64, u64)>>,
    /// Executions of code that no file backs.
    pub elsewhere: u64,
    /// Jumps to and from trampolines.
    pub jumps: u64,
    /// Executions that the table had no room for.
    pub lost: u64,
}

/// Runs the planned program and counts what it executes: the program as the leader does, the
/// agent in every replica. At most three.
///
/// # Errors
/// As [`crate::run`].
pub fn profile(plan: &Plan) -> Result<(RunReport, Profile), LaunchError> {
    let mut plan = plan.clone();
    // A step returns through the kernel, which the backstop would question every time.
    plan.backstop = Backstop::None;
    plan.equal_pids = EqualPids::Off;
    plan.replicas = plan.replicas.clamp(1, TABLES);
    plan.flips.clear();
    let mut nobody = ();
    let hearing = Hearing::start(&plan, None);
    let mut supervisor =
        Supervisor::start(&plan, &hearing, false, abi::option::PROFILE, &mut nobody)?;
    let ended = supervisor.watch_over();
    supervisor.kill_all();
    ended?;
    let mut profile = Profile::default();
    let mut sites: BTreeMap<(PathBuf, u64), u64> = BTreeMap::new();
    let memory = &supervisor.group.memory;
    for replica in 0..usize::from(plan.replicas) {
        let table = OFF_TABLE + 16 * (PLACES + 1) * replica;
        let mut agent = Vec::new();
        for place in 0..PLACES {
            let at = table + 16 * place;
            let (ip, count) = (memory.get64(at), memory.get64(at + 8));
            if ip == 0 {
                continue;
            }
            if (abi::BASE..AGENT_END).contains(&ip) {
                agent.push((ip - abi::BASE, count));
            } else if replica > 0 {
                // The same program once more.
            } else if let Some((module, addr)) = supervisor.modules.executed(ip) {
                *sites
                    .entry((module.path.clone(), addr - module.range.start))
                    .or_default() += count;
            } else if supervisor.modules.ours(ip) {
                profile.jumps += count;
            } else {
                profile.elsewhere += count;
            }
        }
        agent.sort_unstable();
        profile.agent.push(agent);
        profile.lost += memory.get64(table + 16 * PLACES + 8);
    }
    profile.sites = sites
        .into_iter()
        .map(|((module, offset), count)| Executed {
            module,
            offset,
            count,
        })
        .collect();
    if profile.sites.is_empty() {
        let source = std::io::Error::other("nothing was counted");
        return Err(LaunchError::Step {
            step: Step::Trace,
            source,
        });
    }
    Ok((supervisor.report(), profile))
}
