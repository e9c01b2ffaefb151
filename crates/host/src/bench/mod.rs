//! `steadfast host bench`: what a reset, an object that comes back, and the record of each call cost.
//!
//! Each round measures every series once, in an order that rotates; a value of a round is the median of a batch. What is compared is compared
//! within its round. `bench host` of the repository makes published rows of the rounds.
//!
//! Not covered: components with two bodies, which run each call twice by design.

mod apart;
mod detectors;
mod fork;
mod http;
mod interference;
mod keep;
mod report;
mod series;
mod tools;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::fork::Forker;
use self::report::{Report, quantile_us};
use crate::load;
use crate::told::Told;

/// Measures resets, recovery, the record of calls, and faults on their way to the caller.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Where the components' images are [default: components beside the command, else ../lib/steadfast/components]
    #[arg(long, value_name = "DIR")]
    components: Option<PathBuf>,
    /// Interleaved rounds
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Some series alone, without the forks
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Also write each round's values into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The process that forks.
    #[arg(long, hide = true)]
    forker: bool,
}

fn names() -> PossibleValuesParser {
    series::PARTS
        .iter()
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .into()
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
        let mut report = Report::of(self.rounds);
        let asked = |name: &str| self.only.is_empty() || self.only.iter().any(|one| one == name);
        let parts = series::PARTS.iter().filter(|(name, _)| asked(name));
        let parts: Vec<_> = parts.map(|(_, part)| part).collect();
        // The forks take their turn among the others.
        let turns = parts.len() + usize::from(self.only.is_empty());
        for round in 0..self.rounds {
            for turn in 0..turns {
                let place = (round + turn) % turns;
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
            crate::told::write_json(path, &report)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
