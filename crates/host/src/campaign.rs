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
//! Invariants
//!  1. With `--lines` a group that has ended is not struck again, and one that was cut short begins anew.
//!  2. Only lines of this program, this image, this seed and this number of flips and handles count.
//!
//! Not covered: flips in the host's data. Without `--exact` a timer finds the moments, so what runs longer is struck more often.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};
use steadfast_digest::Vote128;
use steadfast_report::stats::{Confidence, Tally};

use crate::clients::What;
use crate::load;
use crate::strike::{Ends, Mode, Plan, Sum, Target, Until};
use crate::told::Told;

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
    /// Where flips go [default: all of them but eight]
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
    /// Strikes at drawn instructions, by single steps, and each flip in a host of its own: it can be made again
    #[arg(long)]
    exact: bool,
    /// Makes that flip of an exact campaign again, and says where it struck
    #[arg(long, value_name = "FLIP", requires = "seed", conflicts_with_all = ["flips", "lines"])]
    replay: Option<u64>,
    /// Also write what each group came to into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Where each group that has ended is a line; the same command goes on behind the last one
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,
}

/// What one group came to, for programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Group {
    component: String,
    mode: String,
    target: String,
    flips: u64,
    escaped: u64,
    /// What the process died of, and how often.
    deaths: BTreeMap<String, u64>,
    wrong: u64,
    /// By the kind of code in which flips of registers struck, where the host makes them.
    #[serde(default)]
    places: BTreeMap<String, Ends>,
    resets: BTreeMap<String, u64>,
    calls: u64,
    rebuilt: u64,
    recovery_ns: Option<u64>,
    seconds: f64,
    /// Flips strike at drawn instructions, and have a number each.
    #[serde(default)]
    exact: bool,
}

impl Group {
    fn new(plan: &Plan, target: Target, sum: &Sum, exact: bool) -> Self {
        let mut deaths = BTreeMap::new();
        for why in &sum.deaths {
            *deaths.entry(why.clone()).or_default() += 1;
        }
        let asked = steadfast_restart::Cause::Asked.word();
        let mut resets = sum.causes.clone();
        resets.remove(asked);
        Self {
            component: plan.what.component().into(),
            mode: plan.mode.word().into(),
            target: target.word().into(),
            flips: sum.flips,
            escaped: sum.deaths.len() as u64,
            deaths,
            wrong: sum.wrong_ends,
            // Flips in the host strike no code of the component.
            places: match target {
                Target::Registers | Target::Vectors | Target::Eight => sum
                    .places
                    .iter()
                    .map(|(place, ends)| ((*place).into(), ends.clone()))
                    .collect(),
                _ => BTreeMap::new(),
            },
            resets,
            calls: sum.calls,
            rebuilt: sum.rebuilt,
            recovery_ns: sum.recovery_ns,
            seconds: sum.seconds,
            exact,
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
        for (place, ends) in &self.places {
            println!(
                "    in {place}: {} flips, {} escaped, {} wrong",
                ends.struck, ends.escaped, ends.wrong
            );
        }
    }
}

/// What a line is of.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Of {
    /// Digest of the program and of the image that was struck.
    build: String,
    seed: String,
    flips: u64,
    handles: usize,
    component: String,
    mode: String,
    target: String,
    #[serde(default)]
    exact: bool,
}

impl Of {
    fn new(plan: &Plan, target: Target, flips: u64, exact: bool) -> Result<Self, Told> {
        let program = crate::told::read(&"/proc/self/exe".into())?;
        let image = crate::told::read(&plan.image())?;
        let build = Vote128::new().part(&program).part(&image).finish();
        Ok(Self {
            build: format!("{build:032x}"),
            seed: plan.seed.to_string(),
            flips,
            handles: plan.handles,
            component: plan.what.component().into(),
            mode: plan.mode.word().into(),
            target: target.word().into(),
            exact,
        })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    of: Of,
    group: Group,
}

/// The group of a line that was written before. A line that was cut short is none.
fn done(lines: &Path, of: &Of) -> Result<Option<Group>, Told> {
    if !lines.exists() {
        return Ok(None);
    }
    let text = crate::told::read_text(&lines.to_path_buf())?;
    let mut found = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok());
    Ok(found.find(|line| line.of == *of).map(|line| line.group))
}

fn append(lines: &Path, line: &Line) -> Result<(), Told> {
    let told = |error: std::io::Error| {
        let what = anyhow::Error::new(error).context(lines.display().to_string());
        Told::setup(what, "--lines with a path that can be written")
    };
    let text = serde_json::to_string(line)
        .map_err(|error| anyhow::Error::new(error).context("the line"))?;
    let mut file = std::fs::File::options();
    let mut file = file.append(true).create(true).open(lines).map_err(told)?;
    // On a line of its own, whatever a command that was killed has left.
    write!(file, "\n{text}\n").map_err(told)
}

fn or_all<T: clap::ValueEnum + Clone>(chosen: &[T]) -> Vec<T> {
    match chosen.is_empty() {
        true => T::value_variants().to_vec(),
        false => chosen.to_vec(),
    }
}

impl Campaign {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let seed = crate::told::seed(self.seed.as_deref())?;
        println!("seed {seed}");
        let folder = load::folder(self.components.as_deref())?;
        if self.exact || self.replay.is_some() {
            // A flipped pointer leads to the same place each time.
            steadfast_sys::layout::fixed().map_err(|error| {
                let what = anyhow::Error::new(error).context("personality(2), which was refused");
                Told::setup(
                    what,
                    "a container whose seccomp profile allows ADDR_NO_RANDOMIZE",
                )
            })?;
        }
        let mut groups = Vec::new();
        let mut targets = or_all(&self.target);
        if self.target.is_empty() {
            targets.retain(|target| *target != Target::Eight);
        }
        for target in targets {
            for what in or_all(&self.what) {
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
                    let group = self.group(&plan, target)?;
                    group.print();
                    groups.push(group);
                }
            }
        }
        if let Some(path) = &self.json {
            crate::told::write_json(path, &groups)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Strikes one group, or finds it among the lines.
    fn group(&self, plan: &Plan, target: Target) -> Result<Group, Told> {
        if self.exact || self.replay.is_some() {
            fits(plan.mode, target)?;
        }
        if let Some(flip) = self.replay {
            let sum = plan.drawn(target, 1, Some(flip))?;
            if let Some(at) = sum.at {
                println!(
                    "flip {flip}: bit {} of register {}, after {} calls and {} instructions of the next one",
                    at.bit, at.register, at.call, at.instruction
                );
            }
            return Ok(Group::new(plan, target, &sum, true));
        }
        let first = self.exact.then_some(0);
        let strike = || -> Result<Group, Told> {
            let sum = plan.drawn(target, self.flips, first)?;
            Ok(Group::new(plan, target, &sum, self.exact))
        };
        let Some(lines) = &self.lines else {
            return strike();
        };
        let of = Of::new(plan, target, self.flips, self.exact)?;
        if let Some(group) = done(lines, &of)? {
            return Ok(group);
        }
        let line = Line {
            of,
            group: strike()?,
        };
        append(lines, &line)?;
        Ok(line.group)
    }
}

/// That instructions of the component can be stepped through.
fn fits(mode: Mode, target: Target) -> Result<(), Told> {
    let registers = matches!(target, Target::Registers | Target::Vectors | Target::Eight);
    if registers && !mode.apart() {
        return Ok(());
    }
    let what = anyhow::anyhow!(
        "flips at drawn instructions need registers of a component in the host's process, found {} in mode {}",
        target.word(),
        mode.word()
    );
    Err(Told::setup(
        what,
        "--target registers, vectors or eight, and --mode bare, single or dual",
    ))
}
