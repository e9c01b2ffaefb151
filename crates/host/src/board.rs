//! What an application is doing, for people, programs and Prometheus: one look at every component, at any time.
//!
//! Invariants
//!  1. Looking never waits for a component: one that is in a call all the time is shown as busy, with what was seen last.
//!  2. The service manager's watchdog hears of the application only while it does not hang.
//!
//! An application hangs when some component has been in a call at every look, and no call anywhere has begun or failed, for
//! `--hung-after`: the hang breaker ends what computes too long, so something in the host itself stands still.
//!
//! Not covered: history. `/metrics` is for that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use steadfast_contract::monitor::{BUSY, Kind, Metrics, OK, Reply, UNKNOWN};
use steadfast_restart::Edge;
use steadfast_restart::host::{Counts, Report, State};
use steadfast_sys::manager::Manager;

use crate::dumps::Dumps;
use crate::tasks::AllCounts;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Failures of one component, as its listener hears of them.
#[derive(Debug, Default)]
struct Failures {
    by_cause: BTreeMap<&'static str, u64>,
    reset_ns: u64,
    reset_ns_max: u64,
}

#[derive(Debug)]
struct Row {
    edge: Edge,
    /// Of the last look that found it free.
    counts: Option<Counts>,
    busy: bool,
}

/// Whether anything moves.
#[derive(Debug)]
struct Pulse {
    progress: u64,
    since: Instant,
}

impl Pulse {
    /// Whether nothing has moved for longer than `limit` while something was under way.
    fn hangs(&mut self, progress: u64, busy: bool, now: Instant, limit: Duration) -> bool {
        if !busy || progress != self.progress {
            (self.progress, self.since) = (progress, now);
        }
        now.duration_since(self.since) > limit
    }
}

/// What is known of an application.
pub(crate) struct Board {
    began: Instant,
    hung_after: Duration,
    failures: Mutex<BTreeMap<String, Failures>>,
    rows: Mutex<BTreeMap<String, Row>>,
    tasks: OnceLock<AllCounts>,
    dumps: Option<Arc<Dumps>>,
    hung: AtomicBool,
    ready: AtomicBool,
}

fn open<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    pub(crate) fn new(hung_after: Duration, dumps: Option<Arc<Dumps>>) -> Self {
        Self {
            began: Instant::now(),
            hung_after,
            failures: Mutex::default(),
            rows: Mutex::default(),
            tasks: OnceLock::new(),
            dumps,
            hung: AtomicBool::new(false),
            ready: AtomicBool::new(false),
        }
    }

    /// A component has failed.
    pub(crate) fn hear(&self, report: &Report) {
        let mut failures = open(&self.failures);
        let of = failures.entry(report.component.clone()).or_default();
        *of.by_cause.entry(report.cause.word()).or_default() += 1;
        of.reset_ns += report.reset_ns;
        of.reset_ns_max = of.reset_ns_max.max(report.reset_ns);
    }

    /// All components run.
    pub(crate) fn begin(&self, all: &BTreeMap<String, Edge>, tasks: &AllCounts) {
        let row = |edge: &Edge| Row {
            edge: edge.clone(),
            counts: None,
            busy: false,
        };
        *open(&self.rows) = all
            .iter()
            .map(|(name, edge)| (name.clone(), row(edge)))
            .collect();
        let _ = self.tasks.set(tasks.clone());
        self.look();
        self.ready.store(true, Ordering::SeqCst);
    }

    fn look(&self) {
        for row in open(&self.rows).values_mut() {
            let counts = row.edge.look();
            row.busy = counts.is_none();
            row.counts = counts.or(row.counts.take());
        }
    }

    /// Looks for ever, and tells the service manager.
    pub(crate) fn watch(&self, mut manager: Manager) {
        let mut pulse = Pulse {
            progress: 0,
            since: Instant::now(),
        };
        loop {
            self.look();
            let (mut progress, mut busy) = (0, false);
            for row in open(&self.rows).values() {
                progress += row.edge.calls();
                busy |= row.busy;
            }
            let failures = open(&self.failures);
            progress += failures
                .values()
                .flat_map(|of| of.by_cause.values())
                .sum::<u64>();
            drop(failures);
            let hung = pulse.hangs(progress, busy, Instant::now(), self.hung_after);
            self.hung.store(hung, Ordering::SeqCst);
            if !hung {
                manager.tick(self.ready.load(Ordering::SeqCst), self.state());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn state(&self) -> &'static str {
        let has = |state: State| {
            let rows = open(&self.rows);
            rows.values().any(|row| {
                row.counts
                    .as_ref()
                    .is_some_and(|counts| counts.state == state)
            })
        };
        if self.hung.load(Ordering::SeqCst) {
            "hung"
        } else if !self.ready.load(Ordering::SeqCst) {
            "starting"
        } else if has(State::Gone) {
            "a component was given up"
        } else if has(State::Rests) {
            "a component rests"
        } else {
            "serving"
        }
    }

    /// Everything, as JSON.
    pub(crate) fn status(&self) -> Json {
        self.look();
        let rows = open(&self.rows);
        let failures = open(&self.failures);
        let none = Failures::default();
        let components = rows.iter().map(|(name, row)| {
            let failed = failures.get(name).unwrap_or(&none);
            let counts = row.counts.clone().unwrap_or_default();
            json!({
                "component": name,
                "state": if row.busy { "busy" } else { counts.state.word() },
                "calls": row.edge.calls(),
                "resets": failed.by_cause, "resets_total": failed.by_cause.values().sum::<u64>(),
                "reset_ns_sum": failed.reset_ns, "reset_ns_max": failed.reset_ns_max,
                "rebuilt": counts.rebuilt, "swapped": counts.swapped, "rests": counts.rests,
                "objects": counts.objects, "renewed": counts.renewed, "processes": counts.processes,
                "kept": counts.kept.word(),
            })
        });
        let components: Vec<_> = components.collect();
        drop((rows, failures));
        let tasks: Vec<_> = self
            .tasks
            .get()
            .into_iter()
            .flatten()
            .map(|(name, counts)| counts.json(name))
            .collect();
        json!({
            "v": 1, "pid": std::process::id(), "uptime_s": self.began.elapsed().as_secs(), "state": self.state(),
            "components": components, "tasks": tasks, "dumps_lost": self.dumps.as_ref().map(|dumps| dumps.lost()),
        })
    }

    /// What a monitor is answered.
    ///
    /// | Path | 200 | 503 |
    /// |---|---|---|
    /// | `/metrics` | always | |
    /// | `/healthz` | something moves, or nothing is to be done | the application hangs |
    /// | `/readyz` | every component serves | one rests or was given up, or not all have started |
    pub(crate) fn reply(&self, path: &str) -> Reply {
        let state = self.state();
        match path {
            "/metrics" => (OK, metrics(&self.status())),
            "/healthz" if state == "hung" => (BUSY, "hung\n".into()),
            "/healthz" => (OK, "ok\n".into()),
            "/readyz" if state == "serving" => (OK, "ready\n".into()),
            "/readyz" => (BUSY, format!("{state}\n")),
            _ => (UNKNOWN, "known: /metrics, /healthz, /readyz\n".into()),
        }
    }
}

/// Counters of a component: field of the status, name, help.
const COMPONENT: [(&str, &str, &str); 5] = [
    ("calls", "calls_total", "calls that were asked for"),
    ("rebuilt", "rebuilt_total", "objects that were made again"),
    (
        "swapped",
        "swapped_total",
        "resets that found a spare ready",
    ),
    ("renewed", "renewed_total", "resets that took a new process"),
    (
        "rests",
        "rests_total",
        "times that a component had failed too often and rested",
    ),
];

const TASK: [(&str, &str, &str); 3] = [
    ("jobs", "task_jobs_total", "jobs that have ended"),
    (
        "missed",
        "task_missed_total",
        "jobs that ended behind their deadline, or never began",
    ),
    (
        "failed",
        "task_failed_total",
        "jobs whose call had no result",
    ),
];

#[allow(clippy::cast_precision_loss, reason = "seconds for people")]
fn seconds(ns: &Json) -> f64 {
    ns.as_u64().unwrap_or(0) as f64 / 1e9
}

fn metrics(status: &Json) -> String {
    let mut page = Metrics::default();
    let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let (components, tasks) = (list("components"), list("tasks"));
    let label = |of: &Json, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    for (group, kind, counters) in [
        (&components, "component", &COMPONENT[..]),
        (&tasks, "task", &TASK[..]),
    ] {
        for (field, name, help) in counters {
            page.family(Kind::Counter, &format!("steadfast_host_{name}"), help);
            for of in group {
                page.sample(&[(kind, &label(of, kind))], &of[*field]);
            }
        }
    }
    page.family(
        Kind::Counter,
        "steadfast_host_resets_total",
        "failures, by cause",
    );
    for of in &components {
        let name = label(of, "component");
        for (cause, count) in of["resets"].as_object().into_iter().flatten() {
            page.sample(&[("component", &name), ("cause", cause)], count);
        }
    }
    let help = "time from failures to bodies that were ready again";
    page.family(Kind::Counter, "steadfast_host_reset_seconds_total", help);
    for of in &components {
        page.sample(
            &[("component", &label(of, "component"))],
            seconds(&of["reset_ns_sum"]),
        );
    }
    page.family(
        Kind::Gauge,
        "steadfast_host_objects",
        "objects that clients hold",
    );
    for of in &components {
        page.sample(&[("component", &label(of, "component"))], &of["objects"]);
    }
    page.family(
        Kind::Gauge,
        "steadfast_host_serves",
        "whether it neither rests nor was given up",
    );
    for of in &components {
        let serves = !["rests", "gone"].contains(&of["state"].as_str().unwrap_or_default());
        page.sample(&[("component", &label(of, "component"))], u8::from(serves));
    }
    let help = "the longest time from a release to the end of its job";
    page.family(
        Kind::Gauge,
        "steadfast_host_task_response_seconds_max",
        help,
    );
    for of in &tasks {
        page.sample(&[("task", &label(of, "task"))], seconds(&of["worst_ns"]));
    }
    if let Some(lost) = status["dumps_lost"].as_u64() {
        page.family(
            Kind::Counter,
            "steadfast_host_dumps_lost_total",
            "failures without a dump",
        );
        page.sample(&[], lost);
    }
    page.family(
        Kind::Gauge,
        "steadfast_host_uptime_seconds",
        "since the process began",
    );
    page.sample(&[], &status["uptime_s"]);
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_is_busy_and_does_not_move() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let limit = Duration::from_secs(10);
        let mut pulse = Pulse {
            progress: 0,
            since: begin,
        };
        assert!(
            !pulse.hangs(0, false, at(60), limit),
            "nothing is to be done"
        );
        assert!(!pulse.hangs(5, true, at(65), limit));
        assert!(!pulse.hangs(6, true, at(75), limit), "calls begin");
        assert!(!pulse.hangs(6, true, at(85), limit));
        assert!(pulse.hangs(6, true, at(86), limit));
        assert!(!pulse.hangs(7, true, at(87), limit), "it goes on");
    }
}
