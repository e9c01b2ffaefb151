//! `steadfast inject profile`: what a target executes, without any fault.

use std::fmt::Write as _;

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_inject::campaign::Field;
use steadfast_inject::record::Population;

use super::run::share;
use super::target::{Extent, TargetArgs, finish};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Functions that are listed
    #[arg(long, value_name = "N", default_value_t = 15)]
    top: usize,

    #[command(flatten)]
    target: TargetArgs,
}

/// What counters make the target execute besides, a line for each module: nothing where that is nothing, or not known.
pub(super) fn more_than_bare(population: &Population, indent: &str) -> String {
    let mut text = String::new();
    for (module, more) in population.surplus.iter().flat_map(|found| &found.by_module) {
        let all = population.by_module.get(module).copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "{indent}more than in a bare run: {more} of {all} in {module} (/proc/self/maps shows it the injector)"
        );
    }
    text
}

/// Counts.
pub(super) fn profile(args: &ProfileArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| {
        let order = args.target.order(Extent::one())?;
        let mut field = Field::open(&order)?;
        let profile = field.profile()?;
        let mut population = field.population(&profile, None);
        field.beyond(&profile, &mut population)?;
        let population = population.with_uncounted();
        let functions = field.functions(&profile);
        if let (Some(said), Some(status)) = (field.said(), profile.ran.status) {
            console.say(&format!("inject: it ended with status {status}: {said}\n"));
        }
        if args.json {
            let object = serde_json::json!({ "schema": 1, "population": population, "functions": functions });
            console.result(&format!("{object}\n"));
            return Ok(Exit::Status(0));
        }
        let mut text = format!(
            "{} executed instructions at {} places, {:.2} % of them reachable\n",
            population.counts.dynamic,
            population.counts.sites,
            share(population.counts.reachable, population.counts.dynamic)
        );
        for (reason, n) in &population.counts.unreachable {
            let _ = writeln!(
                text,
                "  not reachable: {:.3} % ({reason})",
                share(*n, population.counts.dynamic)
            );
        }
        text.push_str(&more_than_bare(&population, "  "));
        text.push_str("\n executions  share  function\n");
        for f in functions.iter().take(args.top) {
            let name = f.function.as_deref().unwrap_or("(no symbol)");
            let _ = writeln!(
                text,
                "{:>11} {:>5.1} %  {}!{name}",
                f.executions,
                share(f.executions, population.counts.dynamic),
                f.module
            );
        }
        console.result(&text);
        Ok(Exit::Status(0))
    })
}
