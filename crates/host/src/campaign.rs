//! `steadfast host campaign`: flips drawn at random in registers and linear memory of components, and how each ended.
//!
//! | Word | Meaning |
//! |---|---|
//! | escaped | the host's process died, or hung; without a process of its own a component shares its address space |
//! | wrong | the client got a wrong answer and nothing was noticed |
//! | recovered | the component was reset and the client got the right answers |
//!
//! Everything else had no effect that anybody could see. A client that got a wrong answer begins anew, so what one flip has left does not
//! count twice.
//!
//! Not covered: flips in the host's data. A timer finds the moments, so what runs longer is struck more often.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use steadfast_report::stats::{Confidence, Tally};

use crate::cli::Told;
use crate::clients::What;
use crate::load;
use crate::strike::{Mode, Plan, Sum, Target, Until};

/// Strikes components at random and says how flips end.
#[derive(Debug, Args)]
pub(crate) struct Campaign {
    /// Where the components' images are [default: components beside the command, else ../lib/steadfast/components]
    #[arg(long, value_name = "DIR")]
    components: Option<PathBuf>,
    /// Whose code and memory [default: all of them]
    #[arg(long, value_enum, value_delimiter = ',')]
    what: Vec<What>,
    /// How it is protected [default: all of them]
    #[arg(long, value_enum, value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Where flips go [default: all of them]
    #[arg(long, value_enum, value_delimiter = ',')]
    target: Vec<Target>,
    /// Flips of each group
    #[arg(long, value_name = "N", default_value_t = 1000)]
    flips: u64,
    /// Handles that the client holds
    #[arg(long, default_value_t = 64)]
    handles: usize,
    /// Draws registers, bits and addresses [default: random]
    #[arg(long)]
    seed: Option<String>,
    /// Also write what each group came to into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What one group came to, for programs.
#[derive(Debug, Serialize)]
struct Group {
    component: &'static str,
    mode: &'static str,
    target: &'static str,
    flips: u64,
    escaped: u64,
    /// What the process died of, and how often.
    deaths: BTreeMap<String, u64>,
    wrong: u64,
    resets: BTreeMap<String, u64>,
    calls: u64,
    rebuilt: u64,
    recovery_ns: Option<u64>,
    seconds: f64,
}

impl Group {
    fn new(plan: &Plan, target: Target, sum: &Sum) -> Self {
        let mut deaths = BTreeMap::new();
        for why in &sum.deaths {
            *deaths.entry(why.clone()).or_default() += 1;
        }
        let asked = steadfast_restart::Cause::Asked.word();
        let mut resets = sum.causes.clone();
        resets.remove(asked);
        Self {
            component: plan.what.component(),
            mode: plan.mode.word(),
            target: target.word(),
            flips: sum.flips,
            escaped: sum.deaths.len() as u64,
            deaths,
            wrong: sum.wrong_ends,
            resets,
            calls: sum.calls,
            rebuilt: sum.rebuilt,
            recovery_ns: sum.recovery_ns,
            seconds: sum.seconds,
        }
    }

    fn print(&self) {
        let share = |hits: u64| {
            let interval = Tally::new(hits, self.flips).clopper_pearson(Confidence::P95);
            format!(
                "{hits} ({:.2} to {:.2} %)",
                100.0 * interval.low,
                100.0 * interval.high
            )
        };
        let causes: Vec<_> = self
            .resets
            .iter()
            .map(|(cause, n)| format!("{n} {cause}"))
            .collect();
        let deaths: Vec<_> = self
            .deaths
            .iter()
            .map(|(why, n)| format!("{n} {why}"))
            .collect();
        let list = |words: Vec<String>| match words.is_empty() {
            true => String::new(),
            false => format!(": {}", words.join(", ")),
        };
        println!(
            "{} {} {}: {} flips in {:.0} s, {} calls",
            self.component, self.target, self.mode, self.flips, self.seconds, self.calls
        );
        println!("    escaped   {}{}", share(self.escaped), list(deaths));
        println!("    wrong     {}", share(self.wrong));
        let resets: u64 = self.resets.values().sum();
        println!("    reboots   {resets}{}", list(causes));
    }
}

fn or_all<T: clap::ValueEnum + Clone>(chosen: &[T]) -> Vec<T> {
    match chosen.is_empty() {
        true => T::value_variants().to_vec(),
        false => chosen.to_vec(),
    }
}

impl Campaign {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let seed = crate::cli::seed(self.seed.as_deref())?;
        println!("seed {seed}");
        let folder = load::folder(self.components.as_deref())?;
        let mut groups = Vec::new();
        for what in or_all(&self.what) {
            for target in or_all(&self.target) {
                for mode in or_all(&self.mode) {
                    let plan = Plan {
                        components: folder.clone(),
                        what,
                        mode,
                        handles: self.handles,
                        every: Duration::ZERO,
                        until: Until::Flips(self.flips),
                        afresh: true,
                        seed,
                    };
                    plan.check()?;
                    let sum = plan.drawn(target, self.flips)?;
                    let group = Group::new(&plan, target, &sum);
                    group.print();
                    groups.push(group);
                }
            }
        }
        if let Some(path) = &self.json {
            crate::cli::write_json(path, &groups)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
