//! `steadfast host demo`: handles that survive register flips, and the same flips without protection (strike.rs makes them).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use steadfast_inject::chacha::Seed;

use crate::clients::What;
use crate::load;
use crate::strike::{Mode, Plan, Sum, Until};
use crate::told::Told;

/// Shows handles that survive register flips.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Where the components' images are [default: components beside the command, else ../lib/steadfast/components]
    #[arg(long, value_name = "DIR")]
    components: Option<PathBuf>,
    /// How long each half lasts, in seconds
    #[arg(long, default_value_t = 6)]
    seconds: u64,
    /// Milliseconds between two flips
    #[arg(long, default_value_t = 100)]
    every_ms: u64,
    /// Handles that the client holds
    #[arg(long, default_value_t = 64)]
    handles: usize,
    /// Draws registers and bits [default: random]
    #[arg(long)]
    seed: Option<String>,
    /// As many flips in each half, however long it lasts
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    flips: Option<u64>,
    /// Also write what each half came to into this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What the handles are
    #[arg(long, value_enum, default_value_t = What::Files)]
    what: What,
    /// Component and host share an address space, as with process = false: a flip may end both
    #[arg(long)]
    in_process: bool,
    /// One half only
    #[arg(long, value_enum, default_value_t = Half::Both)]
    half: Half,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Half {
    Both,
    Protected,
    Bare,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let folder = load::folder(self.components.as_deref())?;
        let image = folder.join(format!("{}.cwasm", self.what.component()));
        if !image.exists() {
            let what = anyhow::anyhow!(
                "the demonstration needs {}, which does not exist",
                image.display()
            );
            return Err(Told::setup(
                what,
                "make build-host, or --components DIR with the images",
            ));
        }
        let seed = crate::told::seed(self.seed.as_deref())?;
        let (what, component) = (self.what.word(), self.what.component());
        println!(
            "A client works with {} {what} of a component. Every {} ms, one bit of a general register of that",
            self.handles, self.every_ms
        );
        println!(
            "component flips while its code runs (in={component}.cwasm, drawn at random by the injector)."
        );
        println!("seed {seed}");
        let mut good = true;
        let mut told = Vec::new();
        if self.half != Half::Protected {
            println!("\n1. Without protection: wasmtime as it is.");
            let sum = self.half_of(&folder, seed, Mode::Bare)?;
            self.print(&sum);
            told.push(self.told("bare", &sum));
        }
        if self.half != Half::Bare {
            let (mode, place) = match self.in_process {
                true => (Mode::Dual, "two bodies compared, in the host's own process"),
                false => (
                    Mode::Processes,
                    "two bodies compared, each in a process of its own",
                ),
            };
            println!(
                "\n2. steadfast host: signal pad, {place}, objects brought back when they are used."
            );
            let sum = self.half_of(&folder, seed, mode)?;
            self.print(&sum);
            good = self.as_promised(&sum);
            if !sum.deaths.is_empty() {
                println!(
                    "\n{} of {} flips ended the process, because component and host share its memory; the client began anew with other handles.\n\
                     docs/concepts/restart.md, \"What in-process isolation does not confine\"",
                    sum.deaths.len(),
                    sum.flips
                );
            }
            told.push(self.told("protected", &sum));
        }
        if let Some(path) = &self.json {
            crate::told::write_json(path, &told)?;
        }
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn half_of(&self, components: &Path, seed: Seed, mode: Mode) -> Result<Sum, Told> {
        let plan = Plan {
            components: components.into(),
            what: self.what,
            mode,
            handles: self.handles,
            every: Duration::from_millis(self.every_ms),
            until: self.flips.map_or(
                Until::After(Duration::from_secs(self.seconds)),
                Until::Flips,
            ),
            afresh: false,
            seed,
        };
        plan.registers()
    }
}

/// What one half came to, for programs.
#[derive(Debug, Serialize)]
struct Outcome {
    half: &'static str,
    what: &'static str,
    flips: u64,
    calls: u64,
    deaths: Vec<String>,
    resets: BTreeMap<String, u64>,
    wrong: u64,
    lost: u64,
    kept: usize,
    handles: usize,
    recovery_ns: Option<u64>,
    recovery_max_ns: Option<u64>,
    rebuilt: u64,
    seconds: f64,
}

impl Demo {
    /// Every handle is the one that was opened at first, its object holds what it must, and no answer was wrong.
    fn intact(&self, sum: &Sum) -> bool {
        sum.deaths.is_empty() && self.as_promised(sum)
    }

    /// No wrong answer, and every handle kept. With `--in-process` a flip that ends the process is told, and no failure of the demonstration:
    /// in-process isolation does not promise otherwise.
    fn as_promised(&self, sum: &Sum) -> bool {
        let kept = sum.kept == self.handles || (self.in_process && !sum.deaths.is_empty());
        kept && sum.wrong == 0
    }

    fn told(&self, half: &'static str, sum: &Sum) -> Outcome {
        Outcome {
            half,
            what: self.what.component(),
            flips: sum.flips,
            calls: sum.calls,
            deaths: sum.deaths.clone(),
            resets: sum.causes.clone(),
            wrong: sum.wrong,
            lost: sum.lost,
            kept: sum.kept,
            handles: self.handles,
            recovery_ns: sum.recovery_ns,
            recovery_max_ns: sum.recovery_max_ns,
            rebuilt: sum.rebuilt,
            seconds: sum.seconds,
        }
    }

    fn print(&self, sum: &Sum) {
        let resets = sum.resets();
        let causes: Vec<_> = sum
            .causes
            .iter()
            .map(|(cause, n)| format!("{n} {cause}"))
            .collect();
        println!(
            "    calls               {} in {:.0} s",
            sum.calls, sum.seconds
        );
        println!("    flips               {}", sum.flips);
        if sum.deaths.is_empty() {
            println!("    process             alive");
        } else {
            println!(
                "    process             died {} times ({})",
                sum.deaths.len(),
                sum.deaths.join(", ")
            );
        }
        let because = if causes.is_empty() {
            String::new()
        } else {
            format!(" ({})", causes.join(", "))
        };
        println!("    reboots             {resets}{because}");
        if let (Some(median), Some(max)) = (sum.recovery_ns, sum.recovery_max_ns) {
            #[allow(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
            let us = |ns: u64| ns as f64 / 1000.0;
            println!(
                "    recovery            {:.1} us median, {:.1} us at most, {} objects brought back",
                us(median),
                us(max),
                sum.rebuilt
            );
        }
        println!("    wrong answers       {}", sum.wrong);
        println!("    handles lost        {}", sum.lost);
        println!("    open handles kept   {} of {}", sum.kept, self.handles);
        let whose = match self.what {
            What::Files => "bytes identical",
            What::Locks => "owners as taken",
            What::Threads => "choices right",
            What::Pages => "mappings right",
            What::Keys => "values identical",
            What::Requests => "counts right",
        };
        let intact = if self.intact(sum) { "yes" } else { "no" };
        println!("    {whose}     {intact}");
    }
}
