//! The `bench` command.

#![allow(
    clippy::print_stdout,
    reason = "a tool of the repository, not part of the product"
)]
#![allow(clippy::print_stderr, reason = "progress goes to standard error")]

mod command;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use clap::Parser as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use steadfast_bench::machine;
use steadfast_bench::product::Product;
use steadfast_bench::spec::SpecReport;
use steadfast_bench::suites::{flips, python, scripts, slurm};
use steadfast_bench::{
    algorithm, cc_memory, doctor, inject, later, memory, micro, model, repair, reproduce, rest,
    sei, sei_alarms, sei_servers, sei_tables, soak, spec, start, touch,
};
use steadfast_workloads::ALL;

use self::command::cli::{Action, Cli};
use self::command::measure::measure;
use self::command::outcome::{Outcome, keep, load, save};
use self::command::parts::{host, kv, pair};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match act(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(3)
        }
    }
}

/// Everything that takes at most so long, and the page; or all of it as small as it goes.
fn reproduced(minutes: f64, out: &Path, smallest: bool) -> Result<ExitCode> {
    let stop = interrupts()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let interrupted = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let mut say = |line: &str| eprintln!("{line}");
    let good = if smallest {
        reproduce::smallest(&root, &interrupted, &mut say)?
    } else {
        let (page, good) = reproduce::run(&root, out, minutes, &interrupted, &mut say)?;
        println!("{}", page.display());
        good
    };
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Set by the first signal that asks us to stop; a second one just ends us.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn act(cli: &Cli) -> Result<ExitCode> {
    if let Action::Reproduce {
        minutes,
        out,
        smallest,
    } = &cli.action
    {
        return reproduced(*minutes, out, *smallest);
    }
    if let Action::Slurm { out, tasks, runs } = &cli.action {
        let said = slurm::prove(out, Product::find().path(), *tasks, *runs)?;
        println!("{said}");
        return Ok(ExitCode::SUCCESS);
    }
    // Hours may pass until it is written down.
    let commit = machine::commit();
    let outcome = match &cli.action {
        Action::Show { files } => show(files)?,
        Action::Model {
            spec,
            micro,
            replicas,
        } => {
            let report = model::work_out(&load(spec)?, &load(micro)?, *replicas);
            Outcome::new(&report, model::render(&report), true)?
        }
        Action::Flips(ask) => {
            let product = Product::find();
            let report = flips::measure(ask, product.path(), cli.common.seed, &mut |step| {
                eprintln!("bench: {step}");
            })?;
            Outcome::new(&report, flips::render(&report), true)?.keeping(flips::rows(&report))
        }
        Action::Python {
            out,
            replicas,
            modules,
        } => {
            let sum = python::judge(out, Product::find().path(), *replicas, modules)?;
            let mut outcome =
                Outcome::new(&sum, python::render(&sum), true)?.keeping(python::rows(&sum));
            outcome.differs = sum.different > 0;
            outcome
        }
        Action::Suite {
            script,
            out,
            suites,
        } => {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
            let judged = scripts::judge(&root, script, out, Product::find().path(), suites)?;
            let mut outcome = Outcome::new(&judged, scripts::render(&judged), true)?
                .keeping(scripts::rows(&judged));
            outcome.differs = judged.iter().any(|one| one.different > 0);
            outcome
        }
        measured @ Action::Kv { .. } => kv(measured, &cli.common)?,
        measured @ Action::Host { .. } => host(measured, &cli.common)?,
        measured @ Action::Pair { .. } => pair(measured, &cli.common)?,
        measured => measure(measured, &cli.common)?,
    };
    print!("{}", outcome.table);
    if let Some(file) = &cli.common.json {
        save(file, &outcome.json)?;
    }
    if let Some(file) = &cli.common.results {
        keep(file, &outcome, &cli.common, commit)?;
    }
    Ok(match () {
        () if !outcome.complete => ExitCode::from(2),
        () if outcome.failed || outcome.differs => ExitCode::FAILURE,
        () => ExitCode::SUCCESS,
    })
}

fn show(files: &[PathBuf]) -> Result<Outcome> {
    let [file] = files else {
        let reports = files
            .iter()
            .map(|file| load(file))
            .collect::<Result<Vec<SpecReport>>>()?;
        let report = spec::join(reports, ALL.len()).map_err(anyhow::Error::msg)?;
        return Outcome::new(&report, spec::render(&report), report.complete);
    };
    let value: serde_json::Value = load(file)?;
    let kind = value
        .get("bench")
        .and_then(|kind| kind.as_str())
        .unwrap_or("")
        .to_owned();
    let table = match kind.as_str() {
        "spec" => spec::render(&serde_json::from_value(value.clone())?),
        "micro" => micro::render(&serde_json::from_value(value.clone())?),
        "touch" => touch::render(&serde_json::from_value(value.clone())?),
        "repair" => repair::render(&serde_json::from_value(value.clone())?),
        "memory" => memory::render(&serde_json::from_value(value.clone())?),
        "inject" => inject::render(&serde_json::from_value(value.clone())?),
        "cc-memory" => cc_memory::render(&serde_json::from_value(value.clone())?),
        "later" => later::render(&serde_json::from_value(value.clone())?),
        "rest" => rest::render(&serde_json::from_value(value.clone())?),
        "sei" => sei::render(&serde_json::from_value(value.clone())?),
        "algorithm" => algorithm::render(&serde_json::from_value(value.clone())?, false),
        "doctor" => doctor::render(&serde_json::from_value(value.clone())?),
        "soak" => soak::render(&serde_json::from_value(value.clone())?),
        "sei-tables" => sei_tables::render(&serde_json::from_value(value.clone())?),
        "sei-alarms" => sei_alarms::render(&serde_json::from_value(value.clone())?),
        "sei-servers" => sei_servers::render(&serde_json::from_value(value.clone())?),
        "start" => start::render(&serde_json::from_value(value.clone())?),
        "model" => model::render(&serde_json::from_value(value.clone())?),
        other => bail!(
            "{} is not a result of bench (kind {other:?})",
            file.display()
        ),
    };
    Outcome::new(&value, table, true)
}
