//! `bench spec`: whole programs, and which of them.

use anyhow::{Context as _, Result, bail};
use steadfast_bench::column::Column;
use steadfast_bench::machine::Machine;
use steadfast_bench::rounds::{self, Turns};
use steadfast_bench::sample::Runner;
use steadfast_bench::spec::{self, Program, SpecReport};
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::{ALL, Size, Store, Workload, find, setup};

use super::cli::Common;
use super::outcome::{Outcome, save};
use super::says::Says;

pub(crate) fn spec_report(
    runner: &Runner,
    machine: Machine,
    common: &Common,
    programs: &[String],
    columns: &[String],
    size: Size,
    says: &mut Says,
) -> Result<Outcome> {
    let store = Store::default_place();
    let columns = chosen_columns(columns)?;
    let mut report = SpecReport {
        bench: "spec".to_owned(),
        machine,
        size: size.name().to_owned(),
        pairs: common.pairs,
        seed: common.seed,
        complete: true,
        programs: Vec::new(),
        promises: Vec::new(),
        means: std::collections::BTreeMap::new(),
    };
    let mut rng = Rng::new(common.seed);
    for workload in chosen_programs(programs)? {
        if runner.interrupted() {
            break;
        }
        let mut program = Program {
            name: workload.name.to_owned(),
            stands_for: workload.spec.to_owned(),
            error: None,
            series: Vec::new(),
        };
        match ready(&store, workload, size, says) {
            Ok(job) => {
                let turns = Turns::of(workload.name, &job, &columns, common.pairs);
                program.series = rounds::run(runner, &turns, &mut rng, says);
            }
            Err(error) => program.error = Some(format!("{error:#}")),
        }
        report.programs.push(program);
        report.complete = !runner.interrupted();
        spec::conclude(&mut report, ALL.len());
        // Hours of work are not lost to a crash in the last program.
        if let Some(file) = &common.json {
            save(file, &serde_json::to_value(&report)?)?;
        }
    }
    Ok(Outcome::new(&report, spec::render(&report), report.complete)?.keeping(spec::rows(&report)))
}

pub(crate) fn ready(
    store: &Store,
    workload: &Workload,
    size: Size,
    says: &mut Says,
) -> Result<steadfast_workloads::Invocation> {
    store.invocation(workload, size).or_else(|_| {
        setup::setup(store, &[workload], &[size], &mut |step| says.say(step))?;
        store.invocation(workload, size)
    })
}

pub(crate) fn chosen_programs(names: &[String]) -> Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let by_name = |name: &String| {
        find(name).with_context(|| format!("no workload is called {name:?}; see: workloads list"))
    };
    names.iter().map(by_name).collect()
}

/// `corun2` stands for both of its page sizes.
pub(crate) fn chosen_columns(names: &[String]) -> Result<Vec<Column>> {
    let all = spec::columns();
    let is = |column: &Column, name: &str| {
        column.name == name
            || column
                .name
                .strip_prefix(name)
                .is_some_and(|rest| name.starts_with("corun") && rest.starts_with('-'))
    };
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|column| is(column, name)))
    {
        bail!("no column is called {name:?}; known: bare, corun2, corun3, n1, n2-stop, n2, n3");
    }
    Ok(all
        .into_iter()
        .filter(|column| names.is_empty() || names.iter().any(|name| is(column, name)))
        .collect())
}
