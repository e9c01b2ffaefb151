//! What the analysis needs to know, measured on this machine: jobs, resets, objects, detection.
//!
//! Times are the CPU time of the measuring thread, so that a busy machine does not count; the largest of each is kept.
//!
//! Invariant: resets are counted without a spare, since the thread that refills it runs only when the machine is idle.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_restart::{Edge, Host, Value};
use steadfast_sys::cpu;
use steadfast_sys::pad::Runner;

use super::bound::{Component, System, Task};
use crate::app::{App, Running};
use crate::script;
use crate::told::Told;

/// Jobs before any is measured.
const WARM: u64 = 20;
/// Resets after each of which a job counts what it brings back.
const COUNTED: u64 = 3;
/// The hang breaker looks every 2 ms: a call is seen for the first time at one look, over its limit at another one, and in component text
/// perhaps at the next.
const BREAKER_NS: u64 = 3 * 2_000_000;

#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) jobs: u64,
    /// Percent.
    pub(super) margin: u64,
    pub(super) hangs: bool,
}

impl Options {
    fn with_margin(self, ns: u64) -> u64 {
        ns.saturating_add(ns.saturating_mul(self.margin) / 100)
    }
}

/// One task, ready to be called.
struct Job {
    edge: Edge,
    function: usize,
    args: Vec<Value>,
}

impl Job {
    /// Runs it, and says what it took.
    fn run(&self) -> Result<u64, Told> {
        let begin = own_time()?;
        self.edge.call(self.function, &self.args)?;
        Ok(own_time()?.saturating_sub(begin))
    }
}

fn own_time() -> Result<u64, Told> {
    let found = cpu::thread_time_ns(Runner::current().tid());
    found.ok_or_else(|| anyhow::anyhow!("the clock of this thread cannot be read").into())
}

/// Measures everything, in this thread. No component may be eager meanwhile: its resets would bring back all objects; `eager` names those that are
/// so in use.
pub(super) fn system(
    app: &App,
    running: &Running,
    host: &Host,
    eager: &BTreeSet<String>,
    options: Options,
) -> Result<System, Told> {
    let mut named = BTreeMap::new();
    for call in &app.call {
        if !script::scripted(call, &running.script[&call.to], &mut named)? {
            return Err(anyhow::anyhow!(
                "the script of the application does not return what it must"
            )
            .into());
        }
    }
    let detect = host.engine().self_test().map_or(0, |test| test.slowest_ns);
    let mut jobs = Vec::new();
    for task in &app.task {
        let edge = running.script[&task.to].clone();
        let function = edge.function(&task.function)?;
        let args = script::arguments(&task.args, &edge, function, &named)?;
        jobs.push(Job {
            edge,
            function,
            args,
        });
    }
    let mut tasks = Vec::new();
    for (task, job) in app.task.iter().zip(&jobs) {
        for _ in 0..WARM {
            job.run()?;
        }
        let mut cost = 0;
        for _ in 0..options.jobs {
            cost = cost.max(job.run()?);
        }
        tasks.push(Task {
            name: task.name.clone(),
            priority: task.priority,
            cost: options.with_margin(cost),
            period: ns(task.period()),
            deadline: ns(task.deadline()),
            uses: uses(job, running)?,
        });
    }
    let mut components = Vec::new();
    for (name, edge) in &running.all {
        let found = if options.hangs {
            ns(app.call_limit(name)) + BREAKER_NS
        } else {
            0
        };
        let (ready, object) = resets(edge, &jobs, options)?;
        components.push(Component {
            name: name.clone(),
            detect: options.with_margin(detect).saturating_add(found),
            ready: options.with_margin(ready),
            object: options.with_margin(object),
            objects: edge.stats()?.objects as u64,
            eager: eager.contains(name),
        });
    }
    Ok(System { tasks, components })
}

fn ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Which components a job uses, and how many objects it makes again after each one's reset.
fn uses(job: &Job, running: &Running) -> Result<Vec<Option<u64>>, Told> {
    let mut all = Vec::new();
    for edge in running.all.values() {
        let mut most = None;
        for _ in 0..COUNTED {
            edge.reset()?;
            let before = edge.stats()?;
            job.run()?;
            let after = edge.stats()?;
            let used = after.calls > before.calls;
            let again = used.then(|| after.rebuilt - before.rebuilt);
            most = most.max(again);
        }
        all.push(most);
    }
    Ok(all)
}

/// The longest reset without a spare, and the longest return of an object.
fn resets(edge: &Edge, jobs: &[Job], options: Options) -> Result<(u64, u64), Told> {
    let (mut ready, mut object) = (0, 0);
    for _ in 0..options.jobs {
        let before = edge.stats()?.swapped;
        let begin = own_time()?;
        edge.reset()?;
        let took = own_time()?.saturating_sub(begin);
        if edge.stats()?.swapped == before {
            ready = ready.max(took);
        }
        for job in jobs {
            let before = edge.stats()?;
            let (known, rebuilt) = (before.rebuild_ns.len(), before.rebuilt);
            let spent = job.run()?;
            let stats = edge.stats()?;
            // Of an object only the elapsed time is known, which a busy machine stretches; it took no more than its job has spent.
            let longest = stats.rebuild_ns.iter().skip(known).copied().max();
            // Where no more of them are noted, the job stands for it.
            let longest = longest.unwrap_or(if object == 0 { u64::MAX } else { 0 });
            if stats.rebuilt > rebuilt {
                object = object.max(longest.min(spent));
            }
        }
    }
    Ok((ready, object))
}
