//! `steadfast inject run` and `plan`: campaigns.
//!
//! Invariant: results go to standard output, everything else to standard error; an interrupt ends
//! the campaign between two runs, and the directory can be gone on with.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_inject::campaign::{Progress, Running};
use steadfast_inject::record::{Campaign, Dir, Shard};
use steadfast_report::gate::{Answer, Gate, Measure};
use steadfast_report::tabulate::Table;

use super::load;
use super::target::{Extent, OrderError, TargetArgs, duration, finish, shard, stages};
use crate::os;
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Directory of the campaign; one that holds a part of it is gone on with
    #[arg(short, long, value_name = "DIR", default_value = "inject-results")]
    out: PathBuf,

    /// Runs of each fault type
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..))]
    runs: u64,

    /// Stop as soon as this gate is decided, such as 'sdc.upper95 < 1%'
    #[arg(long, value_name = "GATE")]
    until: Option<String>,

    /// Start no run after so long, such as 10m; preparation counts, and is followed by one run at least. The same call goes on later
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,

    /// Runs at the same time [default: one for each CPU]
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,

    /// Do only this part of the plan, such as 0/4; `merge` puts parts together
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = shard)]
    shard: Shard,

    /// Write what was found as one JSON object
    #[arg(long)]
    json: bool,

    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    target: TargetArgs,
}

impl RunArgs {
    fn extent(&self) -> Extent {
        Extent {
            dir: self.out.clone(),
            runs: self.runs,
            jobs: self.jobs,
            shard: self.shard,
            budget: self.budget,
        }
    }
}

/// Plans and runs.
pub(super) fn run(args: &RunArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| campaign(args, console))
}

/// Plans only.
pub(super) fn plan(args: &RunArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| {
        let order = args.target.order(args.extent())?;
        takes_files(&args.out)?;
        let running = Running::prepare(
            &order,
            env!("CARGO_PKG_VERSION"),
            &mut stages(console, args.quiet),
        )?;
        let text = if args.json {
            json(&running.campaign)
        } else {
            planned(&running.campaign, &args.out)
        };
        console.result(&text);
        Ok(Exit::Status(0))
    })
}

fn campaign(args: &RunArgs, console: &mut Console<'_>) -> Result<Exit, OrderError> {
    let gate = match &args.until {
        Some(text) => Some(stopping(text)?),
        None => None,
    };
    let order = args.target.order(args.extent())?;
    takes_files(&args.out)?;
    let mut running = Running::prepare(
        &order,
        env!("CARGO_PKG_VERSION"),
        &mut stages(console, args.quiet),
    )?;
    if !args.quiet {
        console.say(&planned(&running.campaign, &args.out));
    }
    if let Some(budget) = args.budget.filter(|budget| running.taken() > *budget) {
        console.say(&format!(
            "preparation took {:.1} s, longer than --budget {:.1}s: one run for each call\n",
            running.taken().as_secs_f64(),
            budget.as_secs_f64(),
        ));
    }
    let stop = os::interrupted();
    let decided = || {
        gate.as_ref().is_some_and(|gate| {
            load(&args.out).is_ok_and(|results| {
                gate.judge(&Table::new(&results), None)
                    .is_ok_and(|judgement| matches!(judgement.answer, Answer::Pass | Answer::Fail))
            })
        })
    };
    let meter = Meter::new(args.quiet);
    let done = running.run(stop, &decided, &|progress| meter.show(&progress))?;
    meter.end();
    let interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    drop(running);
    let results = load(&args.out).map_err(|why| OrderError::Campaign(why.to_string(), None))?;
    let runs = Dir::new(&args.out)
        .runs()
        .map_err(|why| OrderError::Campaign(why.to_string(), None))?;
    let campaign = Dir::new(&args.out)
        .campaign()
        .map_err(|why| OrderError::Campaign(why.to_string(), None))?;
    let mut tally = std::collections::BTreeMap::new();
    for run in runs.values() {
        *tally.entry(run.outcome.outcome()).or_insert(0_u64) += 1;
    }
    if args.json {
        let object = serde_json::json!({
            "schema": 1, "dir": args.out, "planned": campaign.planned, "runs": runs.len(), "outcomes": tally,
        });
        console.result(&format!("{object}\n"));
    } else {
        let words: Vec<String> = tally
            .iter()
            .map(|(outcome, n)| format!("{n} {outcome}"))
            .collect();
        console.result(&format!(
            "{} of {} runs in {}: {}\n",
            runs.len(),
            campaign.planned,
            args.out.display(),
            words.join(", ")
        ));
        if !args.quiet {
            console.say(&format!(
                "inject: {done} now; steadfast inject report {}\n",
                args.out.display()
            ));
        }
    }
    if let Some(gate) = gate {
        let judged = gate.judge(&Table::new(&results), None);
        let code = judged.map_or_else(
            |_| Answer::Infrastructure.code(),
            |judgement| judgement.answer.code(),
        );
        return Ok(Exit::Status(code));
    }
    Ok(if interrupted {
        Exit::Signal(libc::SIGINT)
    } else {
        Exit::Status(0)
    })
}

/// Preparation takes its time, and the results need a place. What is made here to find out goes again.
fn takes_files(out: &Path) -> Result<(), OrderError> {
    let new = !out.exists();
    let trial = out.join(format!(".trial-{}", std::process::id()));
    let made = fs::create_dir_all(out).and_then(|()| fs::write(&trial, ""));
    let _ = fs::remove_file(&trial);
    if new {
        let _ = fs::remove_dir(out);
    }
    made.map_err(|why| OrderError::Flag {
        flag: "out",
        needed: format!("a directory that can be written ({why})"),
        found: out.display().to_string(),
    })
}

/// A gate that may be looked at again and again: bounds allow for it, counts and rates do not.
fn stopping(text: &str) -> Result<Gate, OrderError> {
    let wrong = |needed: &str| OrderError::Flag {
        flag: "until",
        needed: needed.into(),
        found: text.into(),
    };
    let gate = Gate::parse(text).map_err(|why| wrong(&format!("a gate ({why})")))?;
    if gate.needs_baseline() {
        return Err(wrong("a gate without a baseline"));
    }
    let bound = |one: &&steadfast_report::gate::Comparison| {
        matches!(one.field.measure, Measure::Upper(_) | Measure::Lower(_))
    };
    if gate.comparisons().iter().all(bound) {
        Ok(gate)
    } else {
        Err(wrong(
            "a gate on bounds, such as 'sdc.upper95 < 1%': a count holds before there is a run",
        ))
    }
}

#[allow(clippy::cast_precision_loss, reason = "shares for people")]
pub(super) fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        part as f64 * 100.0 / all as f64
    }
}

fn planned(campaign: &Campaign, out: &std::path::Path) -> String {
    let p = &campaign.population.clone().with_uncounted();
    let mut text = format!(
        "inject: {} runs planned in {}, seed {}\n",
        campaign.planned,
        out.display(),
        campaign.seed,
    );
    if p.counts.dynamic > 0 {
        let _ = writeln!(
            text,
            "inject: {} executed instructions at {} places, {:.2} % of them reachable",
            p.counts.dynamic,
            p.counts.sites,
            share(p.counts.reachable, p.counts.dynamic)
        );
    }
    if p.transfers > 0 {
        let _ = writeln!(
            text,
            "inject: {} transfers between the target and files",
            p.transfers
        );
    }
    for (reason, n) in &p.counts.unreachable {
        let _ = writeln!(
            text,
            "inject:   not reachable: {:.3} % ({reason})",
            share(*n, p.counts.dynamic)
        );
    }
    text.push_str(&super::profile::more_than_bare(p, "inject:   "));
    if p.counts.unstable > 0 {
        let _ = writeln!(
            text,
            "inject:   {:.3} % are executed more or less often from run to run",
            share(p.counts.unstable, p.counts.dynamic)
        );
    }
    for open in campaign
        .sandbox
        .iter()
        .filter(|line| line.starts_with("not closed"))
    {
        let _ = writeln!(text, "inject: sandbox {open}");
    }
    text
}

fn json(campaign: &Campaign) -> String {
    serde_json::to_string(campaign).unwrap_or_default() + "\n"
}

/// Progress: a line that is drawn over on a terminal, a line now and then elsewhere.
struct Meter {
    quiet: bool,
    terminal: bool,
    started: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Meter {
    fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: io::stderr().is_terminal(),
            started: Instant::now(),
            shown: Mutex::new(None),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    fn show(&self, progress: &Progress) {
        let Progress::Runs { done, of, tally } = progress else {
            return;
        };
        let pause = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        let mut shown = self.shown.lock().expect("no panics inside");
        if self.quiet || done < of && shown.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        *shown = Some(Instant::now());
        let rate = *done as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let left = (of - done) as f64 / rate.max(0.001);
        let words: Vec<String> = tally
            .iter()
            .map(|(outcome, n)| format!("{n} {outcome}"))
            .collect();
        let line = format!(
            "inject: {done} of {of}, {rate:.1}/s, {left:.0} s left: {}",
            words.join(", ")
        );
        let text = if self.terminal {
            format!("\r\x1b[K{line}")
        } else {
            format!("{line}\n")
        };
        let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    }

    fn end(&self) {
        if self.terminal && !self.quiet {
            let _ = io::Write::write_all(&mut io::stderr(), b"\r\x1b[K");
        }
    }
}
