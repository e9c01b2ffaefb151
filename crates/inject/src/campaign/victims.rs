//! Plans of faults in what protects: the program's part of them, and how they are written down.

use super::plan::{Certain, Pool};
use super::{CampaignError, Field, needs, os};
use crate::chacha::Draw;
use crate::models::Model;
use crate::profile::Profile;
use crate::record::{FaultType, Planned, SCHEMA};
use crate::sandbox::{Ask, Tell};
use crate::victim::{self, Counts, Execution, Victim, Wanted};

impl Field {
    /// The types of the order's victim, and the faults of each.
    pub(super) fn of_victim(
        &mut self,
        profile: &Profile,
        certain: &Certain,
    ) -> Result<(Vec<FaultType>, Vec<Vec<Planned>>), CampaignError> {
        let counts = match self.order.victim {
            Victim::Program | Victim::Processes => Counts::default(),
            Victim::Agent | Victim::Log => self.count_agent()?,
        };
        // Every executed instruction can have a fault of where execution goes on.
        let pool = self.pool(Model::Cf, profile, certain);
        if pool.from.is_empty() {
            return Err(needs(
                "an executed instruction at which a fault can strike",
                format!("{} executions, none reachable", pool.all()),
                "a wider --only",
            ));
        }
        let stdin = self.order.spec.stdin.as_ref();
        let wanted = Wanted {
            models: &self.order.models,
            shape: self.order.shape,
            runs: self.order.runs,
            seed: &self.order.seed,
            input: stdin
                .and_then(|path| std::fs::metadata(path).ok())
                .map_or(0, |file| file.len()),
        };
        let sites = |draw: &mut Draw| self.execution(&pool, draw);
        let groups = victim::draw(self.order.victim, &wanted, &counts, &sites)
            .map_err(|why| needs("the agent's own file", why, "report this"))?;
        let mut fault_types = Vec::new();
        let mut plans = Vec::new();
        for group in groups {
            let planned: Vec<Planned> = group
                .drawn
                .into_iter()
                .map(|drawn| Planned {
                    schema: SCHEMA,
                    id: 0,
                    fault_type: group.name.clone(),
                    fault: drawn.fault,
                    site: drawn.place,
                    register: drawn.register,
                    bits: drawn.bits,
                    n: drawn.n,
                    executions: None,
                    strike: drawn.strike,
                })
                .collect();
            fault_types.push(FaultType {
                name: group.name,
                population: group.population,
                reachable: group.reachable,
                planned: planned.len() as u64,
                weight: 0.0,
            });
            plans.push(planned);
        }
        Ok((fault_types, plans))
    }

    /// What the replicas execute of the agent, and how many events they have.
    fn count_agent(&mut self) -> Result<Counts, CampaignError> {
        let replicas = self.order.replicas;
        let command = self.order.protect.first().cloned().unwrap_or_default();
        let sandbox = &mut self.sandboxes[0];
        let to = sandbox.scratch().join("events");
        let mut argv = vec![command.clone(), "inject".into(), "count-agent".into()];
        argv.push(format!("--replicas={replicas}"));
        argv.push(format!("--to={}", to.display()));
        argv.push("--".into());
        argv.push(self.order.spec.path.display().to_string());
        argv.extend(self.order.spec.argv.iter().skip(1).cloned());
        let ask = Ask::Bare(Some((command.into(), argv)));
        let Tell::Ran(ran) = sandbox.ask(&ask, COUNTING.max(self.order.patience))? else {
            return Err(needs("an answer about a run", "another", "report this"));
        };
        let text = std::fs::read(&to).map_err(os("counts have to be readable"))?;
        serde_json::from_slice(&text).map_err(|_| {
            let said = std::fs::read(sandbox.scratch().join("stderr")).unwrap_or_default();
            needs(
                "a target whose replicas can be stepped through to count what the agent executes",
                format!(
                    "status {:?}, signal {:?}: {}",
                    ran.status,
                    ran.signal,
                    String::from_utf8_lossy(&said).trim()
                ),
                "a target that runs for a few milliseconds, with a small input",
            )
        })
    }

    /// One execution, uniformly over a pool.
    fn execution(&self, pool: &Pool, draw: &mut Draw) -> Option<Execution> {
        let place = draw.below((*pool.ends.last()?).max(1));
        let at = pool.ends.partition_point(|end| *end <= place);
        let candidate = pool.from.get(at)?;
        let n = place - (pool.ends[at] - candidate.count) + 1;
        let module = &self.modules[candidate.module];
        let offset = candidate.addr - module.found.lowest;
        Some(Execution {
            text: format!("at={}+{offset:#x} n={n}", module.spelled()),
            place: self.place(candidate.module, candidate.addr),
            n,
        })
    }
}

/// An instruction takes some microseconds to step.
const COUNTING: std::time::Duration = std::time::Duration::from_secs(600);
