//! `steadfast host bench`: what a reset, an object that comes back, and the record of each call cost.
//!
//! Each round measures every series once, in an order that rotates; a value of a round is the median of a batch. What is compared is compared
//! within its round. `bench host` of the repository makes published rows of the rounds.
//!
//! Not covered: components with two bodies, which run each call twice by design.

mod fork;
mod http;
mod keep;
mod series;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use self::fork::Forker;
use crate::cli::Told;
use crate::load;

/// Measures resets, recovery, the record of calls, and faults on their way to the caller.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Where the components' images are [default: components beside the command, else ../lib/steadfast/components]
    #[arg(long, value_name = "DIR")]
    components: Option<PathBuf>,
    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Also write each round's values into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The process that forks.
    #[arg(long, hide = true)]
    forker: bool,
}

/// One quantity, a value a round.
#[derive(Debug, Serialize)]
struct Series {
    key: String,
    what: String,
    unit: String,
    values: Vec<f64>,
}

/// What the file holds.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    rounds: usize,
    /// Whether the task of the interference series ran under SCHED_FIFO.
    fifo: bool,
    series: Vec<Series>,
}

impl Report {
    /// Notes a value; the text is the same each time.
    pub(crate) fn put(&mut self, key: &str, what: &str, unit: &str, value: f64) {
        if let Some(series) = self.series.iter_mut().find(|series| series.key == key) {
            series.values.push(value);
            return;
        }
        self.series.push(Series {
            key: key.into(),
            what: what.into(),
            unit: unit.into(),
            values: vec![value],
        });
    }

    /// The value of the present round.
    pub(crate) fn last(&self, key: &str) -> Option<f64> {
        let series = self.series.iter().find(|series| series.key == key);
        series.and_then(|series| series.values.last()).copied()
    }

    /// A ratio of two values of the present round, in percent.
    fn percent(&mut self, key: &str, what: &str, of: &str, over: &str) {
        if let (Some(of), Some(over)) = (self.last(of), self.last(over)) {
            self.put(key, what, "%", 100.0 * of / over);
        }
    }

    fn print(&self) {
        println!(
            "{} rounds; median, then smallest and largest round",
            self.rounds
        );
        for series in &self.series {
            let mut sorted = series.values.clone();
            sorted.sort_by(f64::total_cmp);
            let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
                continue;
            };
            println!(
                "{:<26} {:>10.3} [{low:.3}, {high:.3}] {:<4} {}",
                series.key,
                sorted[sorted.len() / 2],
                series.unit,
                series.what
            );
        }
        if !self.fifo {
            println!(
                "the task of the interference series ran as an ordinary thread: SCHED_FIFO was refused"
            );
        }
    }
}

/// The median of times, in µs.
pub(crate) fn median_us(ns: Vec<u64>) -> Option<f64> {
    quantile_us(ns, 2)
}

/// The time that one in so many is below, in µs.
fn quantile_us(mut ns: Vec<u64>, one_in: usize) -> Option<f64> {
    ns.sort_unstable();
    #[allow(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
    ns.get(ns.len() / one_in).map(|ns| *ns as f64 / 1000.0)
}

impl Bench {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        if self.forker {
            return fork::serve();
        }
        let folder = load::folder(self.components.as_deref())?;
        if !folder.join("probe.cwasm").exists() {
            let what = anyhow::anyhow!(
                "the bench needs {}, which does not exist",
                folder.join("probe.cwasm").display()
            );
            return Err(Told::setup(
                what,
                "make build-host, or --components DIR with the images",
            ));
        }
        let mut forker = Forker::start()?;
        let mut report = Report {
            rounds: self.rounds,
            ..Report::default()
        };
        let parts = series::PARTS;
        for round in 0..self.rounds {
            // The forks take their turn among the others.
            for turn in 0..=parts.len() {
                let place = (round + turn) % (parts.len() + 1);
                if let Some(part) = parts.get(place) {
                    part(&folder, &mut report)?;
                } else {
                    // A fork waits for the scheduler, so on a busy machine its median says how busy it is. The faster quarter is what the
                    // work itself takes, and the harder yardstick.
                    let us = quantile_us(forker.round()?, 4).unwrap_or(f64::NAN);
                    report.put(
                        "fork",
                        "a process that changed 64 KiB: reap, fork, the child's first work; lower quartile",
                        "µs",
                        us,
                    );
                }
            }
            report.percent(
                "reset.over-fork",
                "reset and first call, 64 KiB changed, over reap and re-fork",
                "reset.probe",
                "fork",
            );
            report.percent(
                "swap.over-fork",
                "the same with a spare that stands ready",
                "swap.probe",
                "fork",
            );
            report.percent(
                "fault.pad-over-fork",
                "a wild fault until the caller has its error, over reap and re-fork",
                "fault.pad",
                "fork",
            );
        }
        report.print();
        if let Some(path) = &self.json {
            crate::cli::write_json(path, &report)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
