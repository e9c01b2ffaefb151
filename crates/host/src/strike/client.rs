//! The second process: a client, a host and a component, and the flips that it makes itself.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use steadfast_inject::chacha::{Draw, Seed};
use steadfast_inject::live;
use steadfast_restart::{Component, Edge, Host, Stats};
use steadfast_sys::tick::{EIGHT, Ticks, VECTOR};

use super::clock::Clock;
use super::words::{Mode, ROUNDS, Report, Target, WRONG};
use super::{exact, table};
use crate::clients::{Client, What};
use crate::load;
use crate::told::Told;

/// The second process.
#[derive(Debug, Args)]
pub(crate) struct ClientProcess {
    #[arg(long)]
    components: PathBuf,
    #[arg(long, value_enum)]
    what: What,
    #[arg(long, value_enum)]
    mode: Mode,
    #[arg(long)]
    handles: usize,
    #[arg(long)]
    afresh: bool,
    /// Flips so many bits itself, one at a time.
    #[arg(long)]
    flips: Option<u64>,
    /// Flips one bit so often, in registers of the component's processes, and calls on.
    #[arg(long, conflicts_with = "flips")]
    every_ms: Option<u64>,
    /// Where.
    #[arg(long, value_enum, default_value_t = Target::Memory)]
    target: Target,
    #[arg(long, default_value = "0")]
    seed: String,
    /// Flips at drawn instructions, from this number on.
    #[arg(long, requires = "flips")]
    exact_from: Option<u64>,
}

pub(super) fn causes(stats: &Stats) -> Vec<(String, u64)> {
    let resets = stats.resets.iter();
    resets
        .map(|(cause, n)| (cause.word().to_owned(), *n))
        .collect()
}

/// Rounds that a flip of a register may take to find the thread in the component.
const PATIENCE: u32 = 100_000;

/// Of the file that this process runs.
fn own_name() -> std::io::Result<String> {
    let path = std::env::current_exe()?;
    let name = path.file_name().unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}

/// Makes flips in this process.
struct Striker<'a> {
    edge: &'a Edge,
    draw: Draw,
    bodies: u64,
    bytes: u64,
    /// Of this process.
    ticks: Option<Ticks>,
    target: Target,
}

impl<'a> Striker<'a> {
    fn new(
        edge: &'a Edge,
        mode: Mode,
        what: What,
        target: Target,
        seed: Seed,
    ) -> Result<Self, Told> {
        let mut draw = seed.stream(1, 0);
        let timer = |error: std::io::Error| {
            let error = anyhow::Error::new(error).context("the timer that makes flips");
            Told::setup(error, "a kernel with timer_create(2) and /proc")
        };
        let ticks = match target {
            Target::Memory | Target::Table => None,
            // The process of the component has a timer of its own.
            Target::Registers | Target::Vectors | Target::Eight if mode.apart() => None,
            Target::Registers | Target::Vectors | Target::Eight | Target::Host => {
                let file = match target {
                    Target::Host => own_name().map_err(timer)?,
                    _ => format!("{}.cwasm", what.component()),
                };
                let own = std::process::id().cast_signed();
                let text = live::text_of(own, &file).map_err(timer)?;
                let text = text.first().cloned().unwrap_or_default();
                let ticks = Ticks::start(&text, draw.below(u64::MAX)).map_err(timer)?;
                // Among the reports: what a flip has ended says nothing any more.
                ticks.tell(std::os::fd::AsRawFd::as_raw_fd(&std::io::stdout()));
                Some(ticks)
            }
        };
        Ok(Self {
            edge,
            draw,
            bodies: mode.bodies().into(),
            bytes: edge.memories()?.first().map_or(1, Vec::len) as u64,
            ticks,
            target,
        })
    }

    /// The next tick that finds the component's code flips this bit.
    fn arm(&self, register: u32, bit: u32) -> Result<(), Told> {
        match &self.ticks {
            Some(ticks) => ticks.arm(register, bit),
            None if self.edge.strike(0, register, bit)? => {}
            None => return Err(anyhow::anyhow!("the component has no process to strike").into()),
        }
        Ok(())
    }

    fn struck(&self) -> Result<bool, Told> {
        match &self.ticks {
            Some(ticks) => Ok(ticks.struck()),
            None => Ok(self.edge.struck(0)?),
        }
    }

    /// One flip, and the calls that meet what it has left.
    fn one(&mut self, client: &mut Client<'_>) -> Result<(), Told> {
        // What the last one has left is gone.
        self.edge.reset()?;
        client.round();
        match self.target {
            Target::Memory => {
                let number = |n: u64| usize::try_from(n).unwrap_or(0);
                // The component's first body or its second, and where in its memory.
                let body = number(self.draw.below(self.bodies));
                let address = number(self.draw.below(self.bytes));
                let bit = self.draw.below(8).to_le_bytes()[0];
                self.edge.flip(body, address, bit)?;
            }
            // Each in a host of its own.
            Target::Table => {}
            Target::Registers | Target::Vectors | Target::Eight | Target::Host => {
                let mut below = |n: u32| u32::try_from(self.draw.below(n.into())).unwrap_or(0);
                let (register, bit) = match self.target {
                    Target::Vectors => (VECTOR + below(EIGHT - VECTOR), below(128)),
                    Target::Eight => (EIGHT, below(32)),
                    _ => (below(16), below(64)),
                };
                self.arm(register, bit)?;
                let mut rounds = 0;
                while !self.struck()? {
                    client.round();
                    rounds += 1;
                    if rounds > PATIENCE {
                        return Err(anyhow::anyhow!("no tick met the component").into());
                    }
                }
            }
        }
        for _ in 0..ROUNDS {
            client.round();
        }
        Ok(())
    }
}

impl ClientProcess {
    fn seed(&self) -> Result<Seed, Told> {
        Seed::parse(&self.seed).ok_or_else(|| {
            Told::setup(
                anyhow::anyhow!("{} is no seed", self.seed),
                "--seed with a number",
            )
        })
    }

    /// A host, and the client's edge to the component.
    fn host(&self) -> Result<(Host, Edge), Told> {
        let mut host = Host::new(self.mode != Mode::Bare)?;
        let name = self.what.component();
        let made = |name: &str| -> Result<Component, Told> {
            let mut component = load::component(&self.components, name, self.mode.policy())?;
            component.process = self.mode.apart().then(load::own_process);
            Ok(match self.exact_from {
                Some(_) => exact::slow(component),
                None => component,
            })
        };
        let mut component = made(name)?;
        for other in self.what.others() {
            host.add(made(other)?, None)?;
            component.uses.push(host.edge(name, other, &[])?);
        }
        host.add(component, None)?;
        let edge = host.edge("client", name, &[])?;
        Ok((host, edge))
    }

    /// Calls until standard input ends, or all flips in memory were made; then tells.
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        if let (Target::Table, Some(flips)) = (self.target, self.flips) {
            return table::strike(|| self.host(), self.what, self.handles, self.seed()?, flips);
        }
        if let (Some(from), Some(flips)) = (self.exact_from, self.flips) {
            let (of, how) = ((self.what, self.handles), (self.target, self.seed()?));
            return exact::strike(|| self.host(), of, how, from..from + flips);
        }
        let (_host, edge) = self.host()?;
        let mut client = Client::new(self.what, &edge, self.handles)?;
        static ENDED: AtomicBool = AtomicBool::new(false);
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ENDED.store(true, Ordering::Release);
        });
        let mut out = std::io::stdout();
        let mut tell = |report: &Report| {
            let line = serde_json::to_string(report).unwrap_or_default();
            let _ = writeln!(out, "{line}");
        };
        println!("ready");
        let seed = self.seed()?;
        let mut striker = match self.flips {
            None => None,
            Some(_) => Some(Striker::new(
                &edge,
                self.mode,
                self.what,
                self.target,
                seed,
            )?),
        };
        let every = self.every_ms.map(Duration::from_millis);
        let mut clock = every.map(|every| Clock::new(&edge, every, self.mode.bodies(), seed));
        let mut flips = 0;
        let mut told = Instant::now();
        while !ENDED.load(Ordering::Acquire) && self.flips.is_none_or(|most| flips < most) {
            match &mut striker {
                None => {
                    client.round();
                    if let Some(clock) = &mut clock {
                        flips += u64::from(clock.look()?);
                    }
                }
                Some(striker) => {
                    // Told before it is made, since it may end the process.
                    flips += 1;
                    tell(&Report {
                        counts: client.counts().clone(),
                        resets: causes(&edge.stats()?),
                        flips,
                        ..Report::default()
                    });
                    striker.one(&mut client)?;
                }
            }
            // So that what happened is known even when the process dies.
            if striker.is_none() && told.elapsed() > Duration::from_millis(20) {
                tell(&Report {
                    counts: client.counts().clone(),
                    resets: causes(&edge.stats()?),
                    flips,
                    ..Report::default()
                });
                told = Instant::now();
            }
            if self.afresh && client.counts().wrong > 0 {
                break;
            }
        }
        client.look();
        let stats = edge.stats()?;
        let mut sorted = stats.recovery_ns.clone();
        sorted.sort_unstable();
        tell(&Report {
            counts: client.counts().clone(),
            recovery_ns: sorted.get(sorted.len() / 2).copied(),
            recovery_max_ns: sorted.last().copied(),
            resets: causes(&stats),
            rebuilt: stats.rebuilt,
            flips,
            at: None,
        });
        Ok(if self.afresh && client.counts().wrong > 0 {
            ExitCode::from(WRONG)
        } else {
            ExitCode::SUCCESS
        })
    }
}
