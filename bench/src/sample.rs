//! Samples: run one column once and learn everything a table may want.
//!
//! A program's standard output goes to a file, is read back after the clock has stopped, and is
//! compared with what the first bare run wrote.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use steadfast_contract::event::Line;
use steadfast_contract::plan::RunReport;
use steadfast_workloads::Invocation;
use steadfast_workloads::store::sha256;

use crate::column::{Column, How, Pages};
use crate::machine;
use crate::process::{CutShort, Ended, Running, Setting, start, wait_all};
use crate::product::{Files, Product};

/// Everything that one run of one column told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds until the last copy had ended.
    pub wall: f64,
    /// Seconds of CPU time of all copies; under the product, of all replicas as it reports them.
    pub user: f64,
    pub system: f64,
    /// False when the product did not say what its replicas used. What it used itself, as the
    /// kernel counts it, then lacks every replica that it did not wait for.
    pub cpu_known: bool,
    /// Largest resident set of any one process.
    pub max_rss_kib: u64,
    /// SHA-256 of the output, after [`steadfast_workloads::Normalise`].
    pub output: String,
    /// The product's own report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<RunReport>,
    /// What each copy said on standard error, where guests print what they measured.
    #[serde(skip)]
    pub said: Vec<String>,
    #[serde(skip)]
    pub events: Vec<Line>,
}

impl Sample {
    /// All CPU time, in seconds; not a number when it is not known.
    #[must_use]
    pub fn cpu(&self) -> f64 {
        if self.cpu_known {
            self.user + self.system
        } else {
            f64::NAN
        }
    }

    /// Takes the product's word for what its replicas used, if it gave one.
    fn take_report(&mut self, report: RunReport) {
        let used = &report.timings.cpu_ns;
        let user: u64 = used.iter().map(|time| time.user_ns).sum();
        let system: u64 = used.iter().map(|time| time.system_ns).sum();
        self.cpu_known = user + system > 0;
        if self.cpu_known {
            self.user = user as f64 / 1e9;
            self.system = system as f64 / 1e9;
        }
        self.report = Some(report);
    }

    /// The nanoseconds that a guest measured itself, from its line `ns N`; of several copies,
    /// the slowest's.
    #[must_use]
    pub fn guest_ns(&self) -> Option<f64> {
        let ns = |text: &String| {
            text.lines()
                .find_map(|line| line.strip_prefix("ns ")?.trim().parse::<f64>().ok())
        };
        let each: Option<Vec<f64>> = self.said.iter().map(ns).collect();
        each?.into_iter().reduce(f64::max)
    }
}

/// Why a run gave no sample.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    #[error("could not start: {0}")]
    Start(String),
    #[error("ended with {status}{}", first_line(.said))]
    Status { status: String, said: String },
    #[error("did not end within {0:?}")]
    TimeLimit(Duration),
    #[error("copies wrote different bytes")]
    CopiesDiffer,
    #[error("wrote other bytes than bare")]
    OutputDiffers,
    #[error("{0}")]
    Report(String),
    #[error("interrupted")]
    Interrupted,
}

fn first_line(words: &str) -> String {
    let first = words.lines().map(str::trim).find(|line| !line.is_empty());
    first.map_or(String::new(), |line| format!(": {line}"))
}

/// Runs columns, keeping its scratch files in one directory.
#[derive(Debug)]
pub struct Runner {
    pub product: Product,
    scratch: PathBuf,
    cpus: Vec<usize>,
    /// A run that takes longer is ended and counts as failed.
    pub limit: Duration,
    /// Set when the user wants to stop.
    pub stop: Arc<AtomicBool>,
}

impl Runner {
    /// A runner whose scratch files lie in a directory of their own under `place`.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub fn new(
        product: Product,
        place: &std::path::Path,
        limit: Duration,
        stop: Arc<AtomicBool>,
    ) -> Result<Self> {
        let scratch = place.join(format!("scratch.{}", std::process::id()));
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot create {}", scratch.display()))?;
        let cpus = (0..machine::cores()).collect();
        Ok(Runner {
            product,
            scratch,
            cpus,
            limit,
            stop,
        })
    }

    /// Where replica or copy `index` runs.
    #[must_use]
    pub fn cpu(&self, index: usize) -> usize {
        self.cpus[index % self.cpus.len()]
    }

    /// The CPUs that copies and replicas are placed on, in order.
    #[must_use]
    pub fn cpus(&self) -> &[usize] {
        &self.cpus
    }

    /// Whether the user wants to stop.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Where events go when they are asked for.
    #[must_use]
    pub fn files(&self, with_events: bool) -> Files {
        Files {
            report: self.scratch.join("report.json"),
            events: with_events.then(|| self.scratch.join("events.jsonl")),
        }
    }

    /// Runs one column once.
    ///
    /// # Errors
    /// When anything keeps the run from being a sample; the run is over all the same.
    pub fn run(
        &self,
        column: &Column,
        job: &Invocation,
        with_events: bool,
    ) -> Result<Sample, Failure> {
        if self.interrupted() {
            return Err(Failure::Interrupted);
        }
        let mut job = job.clone();
        job.env.extend(column.extra_environment());
        let files = self.files(with_events);
        let starting = |error: io::Error| Failure::Start(error.to_string());
        let mut running = Vec::new();
        match &column.how {
            How::Bare { copies } => {
                for index in 0..*copies {
                    let setting = Setting {
                        cpu: Some(self.cpu(index)),
                        no_huge_pages: column.pages == Pages::Small,
                    };
                    match self.start(&job, &[], index, setting) {
                        Ok(process) => running.push(process),
                        Err(error) => {
                            // The copies that did start are not left behind.
                            let _ = wait_all(running, Duration::ZERO, &self.stop);
                            return Err(starting(error));
                        }
                    }
                }
            }
            How::Protected { replicas, flags } => {
                files.clear();
                let wrapper = self.product.wrapper(*replicas, &self.cpus, flags, &files);
                let setting = Setting {
                    cpu: None,
                    no_huge_pages: column.pages == Pages::Small,
                };
                running.push(self.start(&job, &wrapper, 0, setting).map_err(starting)?);
            }
        }
        let ended = wait_all(running, self.limit, &self.stop).map_err(starting)?;
        let mut sample = self.gather(&ended, &job)?;
        if matches!(column.how, How::Protected { .. }) {
            let unreadable = |error: anyhow::Error| Failure::Report(format!("{error:#}"));
            sample.take_report(files.read_report().map_err(unreadable)?);
            if with_events {
                sample.events = files.read_events().map_err(unreadable)?;
            }
        }
        Ok(sample)
    }

    fn start(
        &self,
        job: &Invocation,
        wrapper: &[std::ffi::OsString],
        index: usize,
        setting: Setting,
    ) -> io::Result<Running> {
        let mut command = job.command_under(wrapper)?;
        command.stdout(File::create(self.output_file(index))?);
        command.stderr(File::create(self.error_file(index))?);
        start(&mut command, setting)
    }

    fn output_file(&self, index: usize) -> PathBuf {
        self.scratch.join(format!("out.{index}"))
    }

    fn error_file(&self, index: usize) -> PathBuf {
        self.scratch.join(format!("err.{index}"))
    }

    fn gather(&self, ended: &[Ended], job: &Invocation) -> Result<Sample, Failure> {
        let mut sample = Sample {
            wall: 0.0,
            user: 0.0,
            system: 0.0,
            cpu_known: true,
            max_rss_kib: 0,
            output: String::new(),
            report: None,
            said: Vec::new(),
            events: Vec::new(),
        };
        for (index, process) in ended.iter().enumerate() {
            match process.cut_short {
                Some(CutShort::TimeLimit) => return Err(Failure::TimeLimit(self.limit)),
                Some(CutShort::Interrupt) => return Err(Failure::Interrupted),
                // A terminal sends the interrupt to the program as well, which may end first.
                None if self.interrupted() => return Err(Failure::Interrupted),
                None => {}
            }
            let said = fs::read_to_string(self.error_file(index)).unwrap_or_default();
            if !process.status.success() {
                return Err(Failure::Status {
                    status: process.status.to_string(),
                    said,
                });
            }
            sample.said.push(said);
            let unreadable = |error: io::Error| Failure::Report(format!("output: {error}"));
            let bytes = fs::read(self.output_file(index)).map_err(unreadable)?;
            let digest = sha256(&job.normalise.apply(bytes));
            if index > 0 && digest != sample.output {
                return Err(Failure::CopiesDiffer);
            }
            sample.output = digest;
            sample.wall = sample.wall.max(process.wall.as_secs_f64());
            sample.user += process.user.as_secs_f64();
            sample.system += process.system.as_secs_f64();
            sample.max_rss_kib = sample.max_rss_kib.max(process.max_rss_kib);
        }
        Ok(sample)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // Outputs of full-size programs are large; nobody wants them after the digests are known.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}
