//! The `workloads` command: list, set up, show and verify the programs that are measured.

#![allow(
    clippy::print_stdout,
    reason = "a tool of the repository, not part of the product"
)]
#![allow(clippy::print_stderr, reason = "progress goes to standard error")]

mod server_cli;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use steadfast_workloads::{ALL, Size, Store, Workload, find, setup, verify};

#[derive(Parser)]
#[command(
    name = "workloads",
    about = "Fetch, build and show the real programs that steadfast is measured on",
    after_help = "Examples:\n  workloads setup                      everything, both sizes\n  \
        workloads setup --size small bzip2   one program, quick inputs\n  \
        sh -c \"$(workloads cmd bzip2)\" > out.bz2\n  \
        workloads verify --runs 3            same output each time? one process?"
)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// The programs, what each stands for, and whether it is ready
    List,
    /// Install packages (as root), build drivers, generate inputs
    Setup {
        #[command(flatten)]
        which: Which,
        /// Only this size: small or full [default: both]
        #[arg(long)]
        size: Option<Size>,
    },
    /// Print the command of one program as a line for sh
    Cmd {
        name: String,
        /// small (0.2-0.5 s) or full (5-10 s)
        #[arg(long, default_value = "full")]
        size: Size,
    },
    /// Run each program several times: equal outputs, no thread, no child
    Verify {
        #[command(flatten)]
        which: Which,
        #[arg(long, default_value = "small")]
        size: Size,
        /// Runs whose outputs are compared
        #[arg(long, default_value_t = 3)]
        runs: usize,
    },
    /// The servers that are hardened when they are compiled: fetch, build, check
    #[command(subcommand)]
    Server(server_cli::Action),
}

#[derive(clap::Args)]
struct Which {
    /// Programs [default: all]
    names: Vec<String>,
}

impl Which {
    fn resolve(&self) -> Result<Vec<&'static Workload>> {
        if self.names.is_empty() {
            return Ok(ALL.iter().collect());
        }
        self.names.iter().map(|name| by_name(name)).collect()
    }
}

fn by_name(name: &str) -> Result<&'static Workload> {
    let Some(workload) = find(name) else {
        let known: Vec<_> = ALL.iter().map(|workload| workload.name).collect();
        bail!(
            "no workload is called {name:?}\n  known: {}",
            known.join(" ")
        );
    };
    Ok(workload)
}

fn main() -> ExitCode {
    match act(&Cli::parse().action) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("workloads: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(action: &Action) -> Result<ExitCode> {
    let store = Store::default_place();
    match action {
        Action::List => list(&store),
        Action::Setup { which, size } => {
            let sizes = size.map_or(vec![Size::Small, Size::Full], |size| vec![size]);
            setup::setup(&store, &which.resolve()?, &sizes, &mut |step| {
                eprintln!("{step}")
            })?;
        }
        Action::Cmd { name, size } => {
            println!("{}", store.invocation(by_name(name)?, *size)?.shell_line());
        }
        Action::Verify { which, size, runs } => return verify_all(&store, which, *size, *runs),
        Action::Server(action) => return server_cli::act(&store, action),
    }
    Ok(ExitCode::SUCCESS)
}

fn list(store: &Store) {
    println!(
        "{:<11} {:<15} {:<6} {:<6} closeness",
        "name", "stands for", "small", "full"
    );
    for workload in &ALL {
        let ready = |size| {
            if store.invocation(workload, size).is_ok() {
                "ready"
            } else {
                "-"
            }
        };
        println!(
            "{:<11} {:<15} {:<6} {:<6} {}",
            workload.name,
            workload.spec,
            ready(Size::Small),
            ready(Size::Full),
            workload.closeness
        );
    }
}

fn verify_all(store: &Store, which: &Which, size: Size, runs: usize) -> Result<ExitCode> {
    let mut broken = 0;
    println!(
        "{:<11} {:>8} {:>11} {:>8}  output sha256",
        "name", "wall s", "bytes", "spawns"
    );
    for workload in which.resolve()? {
        let found = match verify::verify(store, workload, size, runs) {
            Ok(found) => found,
            Err(error) => {
                println!("{:<11} error: {error:#}", workload.name);
                broken += 1;
                continue;
            }
        };
        broken += usize::from(!found.kept());
        let spawns = found
            .spawning_calls
            .map_or("no strace".to_owned(), |calls| calls.to_string());
        let digest = match found.digests.first() {
            Some(digest) if found.digests.len() == 1 => digest.clone(),
            _ => format!("DIFFERS between runs ({} outputs)", found.digests.len()),
        };
        println!(
            "{:<11} {:>8.2} {:>11} {spawns:>8}  {digest}",
            workload.name,
            found.wall.as_secs_f64(),
            found.output_bytes
        );
    }
    Ok(if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
