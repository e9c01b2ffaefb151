//! A client and a host in a second process, which the injector strikes: for the demonstration and for campaigns.
//!
//! Register flips of the demonstration are the injector's (steadfast_inject::live): this process stops a thread of the second one while it
//! stands in the component's code, mapped from its .cwasm file, and flips one bit of one general register. Those of a campaign are made by
//! a timer of the second process, under the same condition, which is faster by orders. Memory flips are made by the second process as well,
//! between two rounds of calls, in one body alone.
//!
//! ```text
//!   Plan ──► second process: client, host, component ──flips──► Sum: reboots by cause, wrong answers, deaths
//!              ▲ again after each death, or where asked after each wrong answer
//! ```
//!
//! Invariants
//!  1. No failure is staged: whatever happens follows from a flip.
//!  2. The client knows what each call must return, and counts what is wrong.
//!  3. An end of the second process is counted and told, in every mode.
//!
//! Not covered: flips in vector registers, and in data of the host other than what it remembers of objects.

mod table;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use steadfast_inject::chacha::{Draw, Seed};
use steadfast_inject::live::{self, Live};
use steadfast_restart::{Component, Edge, Host, Policy, Stats};
use steadfast_sys::tick::Ticks;

use crate::cli::Told;
use crate::clients::{Client, Counts, What};
use crate::load;

/// How a component is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// wasmtime as it is.
    Bare,
    /// Signal pad, checks of results, recovery.
    Single,
    /// The same with two bodies that are compared.
    Dual,
    /// One body, in a process of its own.
    Process,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Single => "single",
            Self::Dual => "dual",
            Self::Process => "process",
        }
    }

    fn policy(self) -> Policy {
        let protected = self != Self::Bare;
        Policy {
            dual: self == Self::Dual,
            recover: protected,
            spare: matches!(self, Self::Single | Self::Dual),
            checks: protected,
            // Failures are counted here; a service would give up earlier.
            resets_max: u32::MAX,
            compare_every: 4,
            ..Policy::default()
        }
    }
}

/// What is struck, and how often.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) components: PathBuf,
    pub(crate) what: What,
    pub(crate) mode: Mode,
    pub(crate) handles: usize,
    pub(crate) every: Duration,
    /// Ends after so long, or after so many flips.
    pub(crate) until: Until,
    /// A client that got a wrong answer ends, and another one begins: what one flip has left does not count twice.
    pub(crate) afresh: bool,
    pub(crate) seed: Seed,
}

/// Where a flip goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// General registers, while the component's code runs.
    Registers,
    /// Linear memory, between calls.
    Memory,
    /// General registers, while the host's own code runs: stubs, slot table, keeper, runtime.
    Host,
    /// What the host remembers of objects, between calls: slot table and keeper.
    Table,
}

impl Target {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Memory => "memory",
            Self::Host => "host",
            Self::Table => "table",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    After(Duration),
    Flips(u64),
}

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
    /// Where.
    #[arg(long, value_enum, default_value_t = Target::Memory)]
    target: Target,
    #[arg(long, default_value = "0")]
    seed: String,
}

/// What the client tells when it is asked to end, and before.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Report {
    counts: Counts,
    resets: Vec<(String, u64)>,
    recovery_ns: Option<u64>,
    recovery_max_ns: Option<u64>,
    rebuilt: u64,
    flips: u64,
}

/// What a plan came to.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) flips: u64,
    pub(crate) deaths: Vec<String>,
    /// Clients that ended with a wrong answer.
    pub(crate) wrong_ends: u64,
    pub(crate) causes: BTreeMap<String, u64>,
    pub(crate) calls: u64,
    pub(crate) wrong: u64,
    pub(crate) lost: u64,
    pub(crate) kept: usize,
    pub(crate) recovery_ns: Option<u64>,
    pub(crate) recovery_max_ns: Option<u64>,
    pub(crate) rebuilt: u64,
    pub(crate) seconds: f64,
}

impl Sum {
    /// Resets that followed from a failure.
    pub(crate) fn resets(&self) -> u64 {
        let asked = steadfast_restart::Cause::Asked.word();
        let causes = self.causes.iter().filter(|(cause, _)| *cause != asked);
        causes.map(|(_, n)| n).sum()
    }

    fn add(&mut self, report: Report) {
        self.calls += report.counts.calls;
        self.wrong += report.counts.wrong;
        self.lost += report.counts.lost;
        self.kept = report.counts.kept;
        self.rebuilt += report.rebuilt;
        self.flips += report.flips;
        self.recovery_ns = report.recovery_ns.or(self.recovery_ns);
        self.recovery_max_ns = self.recovery_max_ns.max(report.recovery_max_ns);
        for (cause, n) in report.resets {
            *self.causes.entry(cause).or_default() += n;
        }
    }
}

/// The status of a client that ended because of a wrong answer.
const WRONG: u8 = 3;

impl Plan {
    pub(crate) fn image(&self) -> PathBuf {
        self.components
            .join(format!("{}.cwasm", self.what.component()))
    }

    /// That the image exists.
    pub(crate) fn check(&self) -> Result<(), Told> {
        if self.image().exists() {
            return Ok(());
        }
        let what = anyhow::anyhow!("{} is needed and does not exist", self.image().display());
        Err(Told::setup(
            what,
            "make build-host, or --components DIR with the images",
        ))
    }

    fn start(&self, more: &[String]) -> Result<Running, Told> {
        let own = std::env::current_exe()
            .map_err(|error| Told::setup(anyhow::Error::new(error), "a mounted /proc"))?;
        let mut command = Command::new(own);
        command.args(["client", "--mode", self.mode.word()]);
        command.args(["--what", self.what.component_word()]);
        command.args(["--handles", &self.handles.to_string(), "--components"]);
        command.arg(&self.components).args(more);
        if self.afresh {
            command.arg("--afresh");
        }
        // A death by a flip is told by its status; the kernel's core file of it would only be in the way.
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| {
            let what = anyhow::Error::new(error).context("the client does not start");
            Told::setup(what, "see the cause")
        })?;
        let pipe = child.stdout.take();
        let pipe = pipe.ok_or_else(|| anyhow::anyhow!("no pipe"))?;
        let mut out = BufReader::new(pipe);
        let mut line = String::new();
        let _ = out.read_line(&mut line);
        if line.trim() != "ready" {
            let _ = child.wait();
            return Err(Told::setup(
                anyhow::anyhow!("the client did not start: {}", line.trim()),
                "steadfast host check with the component shows why",
            ));
        }
        // Read at once: a pipe that is full would stop the client.
        let lines = Arc::new(AtomicU64::new(0));
        let said = lines.clone();
        let reader = std::thread::spawn(move || {
            let mut last = Report::default();
            for line in out.lines().map_while(Result::ok) {
                said.fetch_add(1, Ordering::Relaxed);
                if let Ok(told) = serde_json::from_str(&line) {
                    last = told;
                }
            }
            last
        });
        Ok(Running {
            child,
            lines,
            reader,
        })
    }

    /// Flips in general registers while a thread stands in the component's code.
    pub(crate) fn registers(&self) -> Result<Sum, Told> {
        let ptrace = |error: std::io::Error| {
            Told::setup(
                anyhow::Error::new(error)
                    .context("the injector stops its own child by ptrace(2), which was refused"),
                "a container with CAP_SYS_PTRACE or seccomp profile that allows ptrace; kernel.yama.ptrace_scope below 3",
            )
        };
        let mut sum = Sum::default();
        let begin = Instant::now();
        // Flips that are counted take their time: a machine that is busy with other things meets the component less often.
        let (most, end) = match self.until {
            Until::Flips(most) => (most, begin + FOR_EVER),
            Until::After(time) => (u64::MAX, begin + time),
        };
        let mut due = begin + self.every;
        while Instant::now() < end && sum.flips < most {
            let running = self.start(&[])?;
            let pid = running.child.id().cast_signed();
            let mut live = Live::new(pid, &format!("{}.cwasm", self.what.component()), self.seed)
                .map_err(ptrace)?;
            // Each client is struck by other flips.
            live.skip(sum.flips);
            let mut died = false;
            while !died && Instant::now() < end && sum.flips < most {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // A flip that came late does not bring the next ones closer together.
                due = due.max(Instant::now()) + self.every;
                let patience = Duration::from_millis(500);
                match live.strike(patience.min(end.saturating_duration_since(Instant::now()))) {
                    Ok(Some(_)) => sum.flips += 1,
                    Ok(None) => {}
                    Err(error) if sum.flips == 0 => return Err(ptrace(error)),
                    // The process died in the meantime.
                    Err(_) => {}
                }
                died = steadfast_sys::procfs::has_ended(pid);
            }
            running.ask(self, &mut sum)?;
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        Ok(sum)
    }

    /// Flips that the second process makes itself, one at a time.
    pub(crate) fn drawn(&self, target: Target, most: u64) -> Result<Sum, Told> {
        let mut sum = Sum::default();
        let begin = Instant::now();
        while sum.flips < most {
            let mut text = self.seed.to_string();
            // Each client draws others.
            text.push_str(&format!("/{}", sum.flips));
            let seed = fnv(&text).to_string();
            let left = (most - sum.flips).to_string();
            let more = ["--flips", &left, "--seed", &seed, "--target", target.word()];
            let running = self.start(&more.map(str::to_owned))?;
            let before = sum.flips;
            running.ended(&mut sum, self)?;
            if sum.flips == before {
                return Err(anyhow::anyhow!("a client ended before its first flip").into());
            }
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        Ok(sum)
    }
}

/// FNV-1a: a number for each text.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

struct Running {
    child: Child,
    /// How many lines it has said.
    lines: Arc<AtomicU64>,
    reader: std::thread::JoinHandle<Report>,
}

/// How a client ended.
enum End {
    Good,
    Wrong,
    Died(String),
}

/// How long a client may take that was asked to end. One that does not hangs in the host, which is a death as well.
const ASKED: Duration = Duration::from_secs(5);
/// Longer than any campaign.
const FOR_EVER: Duration = Duration::from_secs(86_400);

impl Running {
    /// Asks it to end, waits, and adds what it came to.
    fn ask(mut self, plan: &Plan, sum: &mut Sum) -> Result<(), Told> {
        drop(self.child.stdin.take());
        let end = end_of(&mut self.child, ASKED, || false)?;
        self.add(end, plan, sum)
    }

    /// Waits for its end, and adds what it came to. One that says nothing for long hangs.
    fn ended(mut self, sum: &mut Sum, plan: &Plan) -> Result<(), Told> {
        let lines = self.lines.clone();
        let mut before = 0;
        let speaks = move || {
            let now = lines.load(Ordering::Relaxed);
            std::mem::replace(&mut before, now) != now
        };
        let end = end_of(&mut self.child, ASKED, speaks)?;
        self.add(end, plan, sum)
    }

    fn add(self, end: End, plan: &Plan, sum: &mut Sum) -> Result<(), Told> {
        let mut report = self.reader.join().unwrap_or_default();
        match end {
            End::Good => {}
            End::Wrong => sum.wrong_ends += 1,
            End::Died(why) => {
                sum.deaths.push(why);
                report.counts.lost += plan.handles as u64;
            }
        }
        sum.add(report);
        // What a second process holds are other handles than those that were opened at first.
        if !sum.deaths.is_empty() || sum.wrong_ends > 0 {
            sum.kept = 0;
        }
        Ok(())
    }
}

fn end_of(
    child: &mut Child,
    limit: Duration,
    mut speaks: impl FnMut() -> bool,
) -> Result<End, Told> {
    let client = |error| Told::from(anyhow::Error::new(error).context("the client"));
    let mut until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(client)? {
            let signal = status.signal();
            return Ok(match status.code() {
                Some(0) => End::Good,
                Some(code) if code == i32::from(WRONG) => End::Wrong,
                _ => {
                    End::Died(signal.map_or_else(|| status.to_string(), |n| format!("signal {n}")))
                }
            });
        }
        if speaks() {
            until = Instant::now() + limit;
        }
        if Instant::now() > until {
            let _ = child.kill();
            child.wait().map_err(client)?;
            return Ok(End::Died("hang of the host".into()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn causes(stats: &Stats) -> Vec<(String, u64)> {
    let resets = stats.resets.iter();
    resets
        .map(|(cause, n)| (cause.word().to_owned(), *n))
        .collect()
}

/// Rounds of calls that follow a flip before the reset that takes away what it may have left.
const ROUNDS: u32 = 3;
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
            Target::Registers if mode == Mode::Process => None,
            Target::Registers | Target::Host => {
                let file = match target {
                    Target::Host => own_name().map_err(timer)?,
                    _ => format!("{}.cwasm", what.component()),
                };
                let own = std::process::id().cast_signed();
                let text = live::text_of(own, &file).map_err(timer)?;
                let text = text.first().cloned().unwrap_or_default();
                Some(Ticks::start(&text, draw.below(u64::MAX)).map_err(timer)?)
            }
        };
        Ok(Self {
            edge,
            draw,
            bodies: if mode == Mode::Dual { 2 } else { 1 },
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
            Target::Registers | Target::Host => {
                let number = |n: u64| u32::try_from(n).unwrap_or(0);
                let (register, bit) = (self.draw.below(16), self.draw.below(64));
                self.arm(number(register), number(bit))?;
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
    /// A host, and the client's edge to the component.
    fn host(&self) -> Result<(Host, Edge), Told> {
        let mut host = Host::new(self.mode != Mode::Bare)?;
        let name = self.what.component();
        let made = |name: &str| -> Result<Component, Told> {
            let mut component = load::component(&self.components, name, self.mode.policy())?;
            component.process = (self.mode == Mode::Process).then(load::own_process);
            Ok(component)
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
            return self.strike_tables(flips);
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
        let seed = Seed::parse(&self.seed).ok_or_else(|| {
            Told::setup(
                anyhow::anyhow!("{} is no seed", self.seed),
                "--seed with a number",
            )
        })?;
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
        let mut flips = 0;
        let mut told = Instant::now();
        while !ENDED.load(Ordering::Acquire) && self.flips.is_none_or(|most| flips < most) {
            match &mut striker {
                None => client.round(),
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
        });
        Ok(if self.afresh && client.counts().wrong > 0 {
            ExitCode::from(WRONG)
        } else {
            ExitCode::SUCCESS
        })
    }
}
