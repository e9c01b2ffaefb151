//! Fault campaigns: how often does a program emit a wrong answer, and does protection help?
//!
//! ```text
//!   program ──► profile ──► plan ──► runs ──► report
//!               (once)     (written  (resumable,
//!                           first)    one line each)
//! ```
//!
//! Flips are drawn uniformly over the dynamic instructions of the whole process, loader and
//! libraries included, never at events. The plan is written before the first run and depends on
//! the seed and the profile alone; every run is one `steadfast run --flip` in a process group of
//! its own, judged from outside by its output, its status and its report.
//!
//! Invariants
//!  1. A fault that did not hit proves nothing: such runs are counted apart.
//!  2. The same plan is run bare (one replica, nothing compared) and protected.
//!  3. What the engine cannot reach is counted, by reason, beside every table.
//!
//! Flips in the agent and the log (`--whose=agent`), and in the processes around the replicas
//! (`--whose=rest`), have tables of their own: plan/ours.rs, plan/outside.rs.
//!
//! Not covered: programs that read clocks or random numbers into their output.

mod draw;
mod judge;
mod operands;
mod plan;
mod profile;
mod programs;
mod report;
mod runner;
mod sandbox;
mod slurm;
mod stats;
mod suite;

use std::io::Write;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Draws flips over the dynamic instructions of a program and runs them
#[derive(Debug, Parser)]
#[command(name = "steadfast-campaign", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Program of the fixed list (`list` prints it)
    #[arg(long)]
    pub(crate) program: String,
    /// Faults in each group
    #[arg(long, default_value_t = 1000)]
    pub(crate) runs: u64,
    /// Seed of every choice
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Whose state faults strike
    #[arg(long, value_enum, default_value = "app")]
    pub(crate) whose: plan::Whose,
    /// Where profile, plan and results are kept
    #[arg(long, default_value = "campaign-results")]
    pub(crate) out: PathBuf,
    /// The steadfast to test
    #[arg(long, default_value = "target/release/steadfast")]
    pub(crate) steadfast: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the programs
    List,
    /// Profile, plan and run; goes on where an earlier call stopped
    Run {
        #[command(flatten)]
        common: Common,
        /// Replicas: 1 is the bare equivalent
        #[arg(long, short = 'n', default_value_t = 2)]
        replicas: u8,
        /// Runs at the same time
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// Stop after so many seconds
        #[arg(long)]
        budget: Option<u64>,
    },
    /// Print tables of everything that has been run
    Report {
        /// Where profile, plan and results are kept
        #[arg(long, default_value = "campaign-results")]
        out: PathBuf,
        /// Also write the sums over all programs to this file
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Print the command that repeats one run
    Replay {
        #[command(flatten)]
        common: Common,
        /// Replicas
        #[arg(long, short = 'n', default_value_t = 2)]
        replicas: u8,
        /// Number of the fault in the plan
        id: u64,
    },
    /// Run a campaign as an array job of Debian's Slurm and compare it with one process
    Slurm {
        /// Where everything goes
        #[arg(long, default_value = "build/campaign")]
        out: PathBuf,
        /// The steadfast to test
        #[arg(long, default_value = "target/release/steadfast")]
        steadfast: PathBuf,
        /// Tasks of the job
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        tasks: u32,
        /// Runs of each fault type
        #[arg(long, default_value_t = 60)]
        runs: u64,
    },
    /// Run the tests that Python comes with under `steadfast run` and compare how each ends
    Suite {
        /// Where everything goes
        #[arg(long, default_value = "build/campaign")]
        out: PathBuf,
        /// The steadfast to test
        #[arg(long, default_value = "target/release/steadfast")]
        steadfast: PathBuf,
        /// Replicas
        #[arg(long, short = 'n', default_value_t = 2)]
        replicas: u8,
        /// Only these modules (`math`, `json`)
        modules: Vec<String>,
    },
    /// One profile, in a process of its own
    #[command(hide = true)]
    Profile {
        program: String,
        replicas: u8,
        to: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::List => programs::list(),
        Command::Run {
            common,
            replicas,
            jobs,
            budget,
        } => {
            sandbox::enter(&common.out)?;
            runner::campaign(&common, replicas, jobs, budget)
        }
        Command::Report { out, json } => report::print(&out, json.as_deref()),
        Command::Replay {
            common,
            replicas,
            id,
        } => runner::replay(&common, replicas, id),
        Command::Slurm {
            out,
            steadfast,
            tasks,
            runs,
        } => {
            let said = slurm::prove(&out, &steadfast, tasks, runs)?;
            writeln!(std::io::stdout(), "{said}")?;
            Ok(())
        }
        Command::Suite {
            out,
            steadfast,
            replicas,
            modules,
        } => suite::judge(&out, &steadfast, replicas, &modules),
        Command::Profile {
            program,
            replicas,
            to,
        } => profile::take(&program, replicas, &to),
    }
}
