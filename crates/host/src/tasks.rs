//! `[[task]]`: a function that is called once in each period, by a thread of its own, until the application ends.
//!
//! Invariants
//!  1. A job begins at its release, never earlier; a release that passes while an earlier job still runs is a missed deadline.
//!  2. Tasks with a priority share one processor, the first that is allowed: `host analyse` counts on it.
//!  3. A task whose priority the system refuses does not run at another one.
//!
//! Not covered: SCHED_DEADLINE; jobs that overlap.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use steadfast_restart::{Edge, Handle, Value};
use steadfast_sys::cpu;

use crate::app::{App, Running, Task};
use crate::events::Events;
use crate::load;
use crate::script;
use crate::told::Told;

/// What a task has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) jobs: AtomicU64,
    pub(crate) missed: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// From release to end, ns.
    pub(crate) worst_ns: AtomicU64,
}

impl Counts {
    pub(crate) fn json(&self, name: &str) -> Json {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "task": name, "jobs": of(&self.jobs), "missed": of(&self.missed), "failed": of(&self.failed),
            "worst_ns": of(&self.worst_ns),
        })
    }
}

pub(crate) type AllCounts = BTreeMap<String, Arc<Counts>>;

/// Counters of all tasks, before any runs.
pub(crate) fn counts(app: &App) -> AllCounts {
    app.task
        .iter()
        .map(|task| (task.name.clone(), Arc::default()))
        .collect()
}

/// Tasks that run.
pub(crate) struct Tasks {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    counts: AllCounts,
    /// Of each thread.
    stack: usize,
}

/// One job after the other.
struct Thread {
    task: Task,
    edge: Edge,
    function: usize,
    args: Vec<Value>,
    stop: Arc<AtomicBool>,
    counts: Arc<Counts>,
    events: Arc<Events>,
}

impl Tasks {
    /// Starts all of them; objects that the script has named are theirs too.
    pub(crate) fn start(
        app: &App,
        running: &Running,
        named: &BTreeMap<String, Handle>,
        counts: &AllCounts,
        events: &Arc<Events>,
    ) -> Result<Self, Told> {
        let mut tasks = Self {
            stop: Arc::default(),
            threads: Vec::new(),
            counts: counts.clone(),
            stack: load::stack(running.all.len()),
        };
        for task in &app.task {
            let edge = running.script[&task.to].clone();
            let function = edge.function(&task.function)?;
            let thread = Thread {
                args: script::arguments(&task.args, &edge, function, named)?,
                task: task.clone(),
                edge,
                function,
                stop: tasks.stop.clone(),
                counts: counts[&task.name].clone(),
                events: events.clone(),
            };
            tasks.spawn(thread)?;
        }
        Ok(tasks)
    }

    fn spawn(&mut self, thread: Thread) -> Result<(), Told> {
        let (name, priority) = (thread.task.name.clone(), thread.task.priority);
        let (sender, begun) = std::sync::mpsc::channel();
        let run = move || {
            let given = priority.map_or(Ok(()), |priority| {
                let one = cpu::allowed().first().copied().unwrap_or(0);
                cpu::pin(0, one).and_then(|()| cpu::run_at(priority))
            });
            let refused = given.is_err();
            let _ = sender.send(given);
            if !refused {
                thread.run();
            }
        };
        let spawned = std::thread::Builder::new()
            .name(format!("task-{name}").chars().take(15).collect())
            .stack_size(self.stack)
            .spawn(run);
        let threads = spawned.map_err(|error| {
            Told::setup(
                anyhow::Error::new(error).context(format!("task {name}")),
                "ulimit -u",
            )
        })?;
        self.threads.push(threads);
        let given = begun.recv().unwrap_or(Ok(()));
        given.map_err(|error| {
            let priority = priority.unwrap_or_default();
            let what = format!("task {name} needs SCHED_FIFO with priority {priority}");
            Told::setup(
                anyhow::Error::new(error).context(what),
                "CAP_SYS_NICE, or LimitRTPRIO= of the unit; without priority the task is an ordinary thread",
            )
        })
    }

    /// Ends all of them after the job that each is in. False where a call has failed.
    pub(crate) fn end(self) -> bool {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.thread().unpark();
            let _ = thread.join();
        }
        let failed = |counts: &Arc<Counts>| counts.failed.load(Ordering::Relaxed) > 0;
        !self.counts.values().any(failed)
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Thread {
    fn run(&self) {
        let (period, deadline) = (self.task.period(), self.task.deadline());
        let mut release = Instant::now();
        loop {
            loop {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                let left = release.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                std::thread::park_timeout(left);
            }
            if let Err(error) = self.edge.call(self.function, &self.args) {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                let line = json!({ "task": self.task.name, "error": error.to_string() });
                self.events.write("task_failed", line);
            }
            let response = release.elapsed();
            self.counts.jobs.fetch_add(1, Ordering::Relaxed);
            self.counts
                .worst_ns
                .fetch_max(ns(response), Ordering::Relaxed);
            // Each release that has passed meanwhile is one more job, which is never done.
            let passed = u64::try_from(response.as_nanos() / period.as_nanos()).unwrap_or(u64::MAX);
            let missed = passed + u64::from(response > deadline);
            self.counts.missed.fetch_add(missed, Ordering::Relaxed);
            release += period.saturating_mul(u32::try_from(passed + 1).unwrap_or(u32::MAX));
        }
    }
}
