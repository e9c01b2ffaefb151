//! `steadfast host analyse`: which tasks meet their deadlines although components fail.
//!
//! Starts the application, runs its script, measures each task's jobs, each component's reset and each object's return on this machine, and
//! puts the largest of each, with a margin, into the sum of [`bound`].
//!
//! Not covered: what was never seen while it was measured. A bound holds for the times that stand beside it.

mod bound;
mod measure;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value as Json, json};
use steadfast_restart::Host;
use steadfast_restart::host::Listener;

use self::bound::{Bound, Faults, Recovery, System};
use crate::app::{App, Ways};
use crate::told::Told;

/// Says which tasks of an application meet their deadlines although components fail.
#[derive(Debug, Args)]
pub(crate) struct Analyse {
    /// Components, edges and tasks
    app: PathBuf,
    /// At most so many faults in any window
    #[arg(long, value_name = "N", default_value_t = 1)]
    faults: u64,
    /// The length of that window
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    window_ms: u64,
    /// Only faults that stop a component at once: a hang takes its limit of CPU time, call_ms, to be found
    #[arg(long)]
    without_hangs: bool,
    /// Added to every measured time, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 20)]
    margin: u64,
    /// Jobs of each task, and resets of each component, that are measured
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Also write everything into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One task: without a fault, on demand, eagerly, and as app.toml has it.
struct Row {
    bare: Bound,
    on_demand: Bound,
    eager: Bound,
    configured: Bound,
}

fn row(system: &System, of: usize, faults: Faults) -> Row {
    let with = |recovery| system.bound(of, Some(faults), recovery);
    Row {
        bare: system.bound(of, None, Recovery::OnDemand),
        on_demand: with(Recovery::OnDemand),
        eager: with(Recovery::Eager),
        configured: with(Recovery::Configured),
    }
}

#[allow(clippy::cast_precision_loss, reason = "times for people")]
fn micros(ns: u64) -> String {
    format!("{:.1}", ns as f64 / 1000.0)
}

fn response(bound: Bound) -> String {
    bound.response.map_or("misses".into(), micros)
}

impl Analyse {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let mut app = App::read(&self.app)?;
        self.check(&app)?;
        let eager = app.take_eager();
        let mut host = Host::new(true)?;
        let quiet: Listener = Arc::new(|_| {});
        let ways = Ways {
            listener: &quiet,
            dump: false,
            console: &|_| Ok(Arc::new(|_, _: &str| {})),
        };
        let running = app.start(&mut host, &ways)?;
        let options = measure::Options {
            jobs: self.jobs,
            margin: self.margin,
            hangs: !self.without_hangs,
        };
        let system = measure::system(&app, &running, &host, &eager, options)?;
        let faults = Faults {
            count: self.faults,
            window: self.window_ms * 1_000_000,
        };
        let rows: Vec<_> = (0..system.tasks.len())
            .map(|of| system.tasks[of].priority.map(|_| row(&system, of, faults)))
            .collect();
        self.print(&system, &rows);
        if let Some(path) = &self.json {
            crate::told::write_json(path, &self.json(&system, &rows))?;
        }
        let misses = |row: &Row| row.configured.response.is_none();
        Ok(if rows.iter().flatten().any(misses) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }

    fn check(&self, app: &App) -> Result<(), Told> {
        let wrong = |what: &str, fix: &str| Err(Told::setup(anyhow::anyhow!("{what}"), fix));
        if app.run.is_some() {
            return wrong(
                "an application of tasks alone is needed, found [run]: nothing is known of how long it holds a component",
                "a [[task]] in its place",
            );
        }
        if app.task.iter().all(|task| task.priority.is_none()) {
            return wrong(
                "a task with a priority is needed, found none: an ordinary thread has no bound",
                "[[task]] with priority = N",
            );
        }
        Ok(())
    }

    fn print(&self, system: &System, rows: &[Option<Row>]) {
        println!(
            "one processor; at most {} faults in any {} ms; measured times and {} %",
            self.faults, self.window_ms, self.margin
        );
        println!(
            "{:<16} {:>12} {:>10} {:>10} {:>8}  objects come back",
            "component", "found us", "reset us", "object us", "objects"
        );
        for it in &system.components {
            println!(
                "{:<16} {:>12} {:>10} {:>10} {:>8}  {}",
                it.name,
                micros(it.detect),
                micros(it.ready),
                micros(it.object),
                it.objects,
                if it.eager { "all at once" } else { "on demand" }
            );
        }
        println!(
            "{:<16} {:>8} {:>10} {:>10} {:>11} {:>11} {:>11} {:>11}  verdict",
            "task",
            "priority",
            "job us",
            "blocked us",
            "no fault us",
            "on demand",
            "eager",
            "deadline us"
        );
        for (task, row) in system.tasks.iter().zip(rows) {
            let Some(row) = row else {
                println!(
                    "{:<16} {:>8} {:>10}  an ordinary thread: no bound",
                    task.name,
                    "-",
                    micros(task.cost)
                );
                continue;
            };
            let verdict = if row.configured.response.is_some() {
                "meets"
            } else {
                "MISSES"
            };
            println!(
                "{:<16} {:>8} {:>10} {:>10} {:>11} {:>11} {:>11} {:>11}  {verdict}",
                task.name,
                task.priority.unwrap_or_default(),
                micros(task.cost),
                micros(row.configured.blocked),
                response(row.bare),
                response(row.on_demand),
                response(row.eager),
                micros(task.deadline),
            );
        }
    }

    fn json(&self, system: &System, rows: &[Option<Row>]) -> Json {
        let components = system.components.iter().map(|it| {
            json!({
                "component": it.name, "detect_ns": it.detect, "ready_ns": it.ready, "object_ns": it.object,
                "objects": it.objects, "eager": it.eager,
            })
        });
        let tasks = system.tasks.iter().zip(rows).map(|(task, row)| {
            let bound = |of: fn(&Row) -> Bound| {
                row.as_ref().map(|row| {
                    let bound = of(row);
                    json!({ "response_ns": bound.response, "fault_ns": bound.fault })
                })
            };
            json!({
                "task": task.name, "priority": task.priority, "job_ns": task.cost, "period_ns": task.period,
                "deadline_ns": task.deadline, "blocked_ns": row.as_ref().map(|row| row.configured.blocked),
                "no_fault": bound(|row| row.bare), "on_demand": bound(|row| row.on_demand),
                "eager": bound(|row| row.eager), "configured": bound(|row| row.configured),
            })
        });
        json!({
            "v": 1, "faults": self.faults, "window_ns": self.window_ms * 1_000_000, "margin_percent": self.margin,
            "hangs": !self.without_hangs,
            "components": components.collect::<Vec<_>>(), "tasks": tasks.collect::<Vec<_>>(),
        })
    }
}
