//! `steadfast host demo`: handles that survive register flips, and the same flips without protection.
//!
//! The flips are the injector's (steadfast_inject::live): this process stops the thread of a second one while it stands in the component's
//! code, mapped from its .cwasm file, and flips one bit of one general register. The second process is the client and the host.
//!
//! Invariants
//!  1. No failure is staged: whatever happens follows from a flip.
//!  2. The client knows what each call must return, and counts what is wrong.
//!  3. An end of the second process is counted and told, in both halves.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use steadfast_inject::chacha::Seed;
use steadfast_inject::live::Live;
use steadfast_restart::{Host, Policy, Stats};

use crate::cli::Told;
use crate::clients::{Client, Counts, What};
use crate::load;

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
    /// One half only
    #[arg(long, value_enum, default_value_t = Half::Both)]
    half: Half,
    /// The second process of the demonstration.
    #[arg(long, hide = true)]
    client: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Half {
    Both,
    Protected,
    Bare,
}

/// What the client tells when it is asked to end, and before.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Report {
    counts: Counts,
    resets: Vec<(String, u64)>,
    recovery_ns: Option<u64>,
    recovery_max_ns: Option<u64>,
    rebuilt: u64,
    self_test: u32,
}

impl Demo {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        if self.client {
            return self.serve();
        }
        let image = load::folder(self.components.as_deref())?
            .join(format!("{}.cwasm", self.what.component()));
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
        let seed = match &self.seed {
            Some(text) => Seed::parse(text).ok_or_else(|| {
                Told::setup(anyhow::anyhow!("{text} is no seed"), "--seed with a number")
            })?,
            None => Seed::fresh().map_err(|error| {
                Told::setup(anyhow::Error::new(error), "a kernel with getrandom(2)")
            })?,
        };
        let (what, component) = (self.what.word(), self.what.component());
        println!(
            "A client works with {} {what} of a component. Every {} ms one bit of a general register of that",
            self.handles, self.every_ms
        );
        println!("component flips (in={component}.cwasm, drawn at random by the injector).");
        println!("seed {seed}");
        let mut good = true;
        let mut told = Vec::new();
        if self.half != Half::Protected {
            println!("\n1. Without protection: wasmtime as it is.");
            let sum = self.half_of(seed, false)?;
            sum.print(self);
            told.push(sum.told("bare", self));
        }
        if self.half != Half::Bare {
            println!(
                "\n2. steadfast host: signal pad, two bodies compared, objects brought back when they are used."
            );
            let sum = self.half_of(seed, true)?;
            sum.print(self);
            good = sum.as_promised(self);
            if !sum.deaths.is_empty() {
                println!(
                    "\n{} of {} flips ended the process, because component and host share its memory; the client began anew with other handles.\n\
                     docs/concepts/restart.md, \"What in-process isolation does not confine\"",
                    sum.deaths.len(),
                    sum.flips
                );
            }
            told.push(sum.told("protected", self));
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&told)
                .map_err(|error| anyhow::Error::new(error).context("the report"))?;
            std::fs::write(path, text + "\n").map_err(|error| {
                let what = anyhow::Error::new(error).context(path.display().to_string());
                Told::setup(what, "--json with a path that can be written")
            })?;
        }
        Ok(if good {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn start(&self, protected: bool) -> Result<Child, Told> {
        let own = std::env::current_exe()
            .map_err(|error| Told::setup(anyhow::Error::new(error), "a mounted /proc"))?;
        let half = if protected { "protected" } else { "bare" };
        let mut command = Command::new(own);
        command
            .args([
                "demo",
                "--client",
                "--half",
                half,
                "--handles",
                &self.handles.to_string(),
                "--what",
                self.what.component_word(),
                "--components",
            ])
            .arg(load::folder(self.components.as_deref())?);
        // A death by a flip is told below; the kernel's core file of it would only be in the way.
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        child.map_err(|error| {
            Told::setup(
                anyhow::Error::new(error).context("the client does not start"),
                "see the cause",
            )
        })
    }

    fn half_of(&self, seed: Seed, protected: bool) -> Result<Sum, Told> {
        let ptrace = |error: std::io::Error| {
            Told::setup(
                anyhow::Error::new(error)
                    .context("the injector stops its own child by ptrace(2), which was refused"),
                "a container with CAP_SYS_PTRACE or seccomp profile that allows ptrace; kernel.yama.ptrace_scope below 3",
            )
        };
        let mut sum = Sum::default();
        let begin = Instant::now();
        let most = self.flips.unwrap_or(u64::MAX);
        // Flips that are counted take their time: a machine that is busy with other things meets the component less often.
        let end = begin
            + self
                .flips
                .map_or(Duration::from_secs(self.seconds), |_| FOR_EVER);
        let mut due = begin + Duration::from_millis(self.every_ms);
        while Instant::now() < end && sum.flips < most {
            let mut child = self.start(protected)?;
            let pid = child.id().cast_signed();
            let pipe = child
                .stdout
                .take()
                .ok_or_else(|| anyhow::anyhow!("no pipe"))?;
            let mut out = BufReader::new(pipe);
            let mut line = String::new();
            let _ = out.read_line(&mut line);
            if line.trim() != "ready" {
                let _ = child.wait();
                return Err(Told::setup(
                    anyhow::anyhow!("the client did not start: {}", line.trim()),
                    "steadfast host demo --client shows why",
                ));
            }
            // Read at once: a pipe that is full would stop the client.
            let reader = std::thread::spawn(move || {
                let mut last = Report::default();
                for line in out.lines().map_while(Result::ok) {
                    if let Ok(told) = serde_json::from_str(&line) {
                        last = told;
                    }
                }
                last
            });
            let mut live = Live::new(pid, &format!("{}.cwasm", self.what.component()), seed)
                .map_err(ptrace)?;
            // Each client of a half is struck by other flips.
            live.skip(sum.flips);
            let mut died = false;
            while !died && Instant::now() < end && sum.flips < most {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // A flip that came late does not bring the next ones closer together.
                due = due.max(Instant::now()) + Duration::from_millis(self.every_ms);
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
            drop(child.stdin.take());
            let status = ended(&mut child)?;
            sum.last = reader.join().unwrap_or_default();
            if let Some(why) = status {
                sum.deaths.push(why);
                sum.earlier.calls += sum.last.counts.calls;
                sum.earlier.wrong += sum.last.counts.wrong;
                sum.earlier.lost += sum.last.counts.lost + self.handles as u64;
                for (cause, n) in std::mem::take(&mut sum.last).resets {
                    *sum.causes.entry(cause).or_default() += n;
                }
            }
        }
        for (cause, n) in std::mem::take(&mut sum.last.resets) {
            *sum.causes.entry(cause).or_default() += n;
        }
        // What a second process holds are other handles than those that were opened at first.
        if !sum.deaths.is_empty() {
            sum.last.counts.kept = 0;
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        Ok(sum)
    }

    /// The client: calls until standard input ends, then tells.
    fn serve(&self) -> Result<ExitCode, Told> {
        let protected = self.half == Half::Protected;
        let policy = Policy {
            dual: protected,
            recover: protected,
            spare: protected,
            checks: protected,
            // The demonstration counts failures; a service would give up earlier.
            resets_max: u32::MAX,
            compare_every: 4,
            ..Policy::default()
        };
        let mut host = Host::new(protected)?;
        let self_test = host.engine().self_test().map_or(0, |test| test.diverted);
        host.add(
            load::component(
                &load::folder(self.components.as_deref())?,
                self.what.component(),
                policy,
            )?,
            None,
        )?;
        let edge = host.edge("demo", self.what.component(), &[])?;
        let mut client = Client::new(self.what, &edge, self.handles)?;
        static ENDED: AtomicBool = AtomicBool::new(false);
        std::thread::spawn(|| {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            ENDED.store(true, Ordering::Release);
        });
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready");
        let mut told = Instant::now();
        while !ENDED.load(Ordering::Acquire) {
            client.round();
            // So that what happened is known even when the process dies.
            if told.elapsed() > Duration::from_millis(20) {
                let so_far = Report {
                    counts: client.counts().clone(),
                    resets: causes(&edge.stats()?),
                    ..Report::default()
                };
                let _ = writeln!(
                    out,
                    "{}",
                    serde_json::to_string(&so_far).unwrap_or_default()
                );
                told = Instant::now();
            }
        }
        client.look();
        let stats = edge.stats()?;
        let mut sorted = stats.recovery_ns.clone();
        sorted.sort_unstable();
        let report = Report {
            counts: client.counts().clone(),
            recovery_ns: sorted.get(sorted.len() / 2).copied(),
            recovery_max_ns: sorted.last().copied(),
            resets: causes(&stats),
            rebuilt: stats.rebuilt,
            self_test,
        };
        let _ = writeln!(
            out,
            "{}",
            serde_json::to_string(&report).unwrap_or_default()
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn causes(stats: &Stats) -> Vec<(String, u64)> {
    let resets = stats.resets.iter();
    resets
        .map(|(cause, n)| (cause.word().to_owned(), *n))
        .collect()
}

/// Longer than any campaign.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// Waits for the client; says how it died, if it did. One that does not end hangs in the host, which is a death as well.
fn ended(child: &mut Child) -> Result<Option<String>, Told> {
    let client = |error| Told::from(anyhow::Error::new(error).context("the client"));
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(status) = child.try_wait().map_err(client)? {
            let why = || {
                let signal = status.signal();
                signal.map_or_else(|| status.to_string(), |n| format!("signal {n}"))
            };
            return Ok((!status.success()).then(why));
        }
        if Instant::now() > end {
            let _ = child.kill();
            child.wait().map_err(client)?;
            return Ok(Some("hang of the host".into()));
        }
        std::thread::sleep(Duration::from_millis(2));
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

/// What one half came to.
#[derive(Debug, Default)]
struct Sum {
    flips: u64,
    deaths: Vec<String>,
    causes: BTreeMap<String, u64>,
    earlier: Counts,
    last: Report,
    seconds: f64,
}

impl Sum {
    /// Every handle is the one that was opened at first, its object holds what it must, and no answer was wrong.
    fn intact(&self, demo: &Demo) -> bool {
        self.deaths.is_empty() && self.as_promised(demo)
    }

    /// No wrong answer, and every handle kept by a process that lived. That a flip may end the process is told, and no failure of the
    /// demonstration: in-process isolation does not promise otherwise.
    fn as_promised(&self, demo: &Demo) -> bool {
        let kept = self.last.counts.kept == demo.handles || !self.deaths.is_empty();
        kept && self.wrong() == 0
    }

    fn wrong(&self) -> u64 {
        self.last.counts.wrong + self.earlier.wrong
    }

    fn told(&self, half: &'static str, demo: &Demo) -> Outcome {
        Outcome {
            half,
            what: demo.what.component(),
            flips: self.flips,
            calls: self.last.counts.calls + self.earlier.calls,
            deaths: self.deaths.clone(),
            resets: self.causes.clone(),
            wrong: self.wrong(),
            lost: self.last.counts.lost + self.earlier.lost,
            kept: self.last.counts.kept,
            handles: demo.handles,
            recovery_ns: self.last.recovery_ns,
            recovery_max_ns: self.last.recovery_max_ns,
            rebuilt: self.last.rebuilt,
            seconds: self.seconds,
        }
    }

    fn print(&self, demo: &Demo) {
        let resets: u64 = self.causes.values().sum();
        let causes: Vec<_> = self
            .causes
            .iter()
            .map(|(cause, n)| format!("{n} {cause}"))
            .collect();
        println!(
            "    calls               {} in {:.0} s",
            self.last.counts.calls + self.earlier.calls,
            self.seconds
        );
        println!("    flips               {}", self.flips);
        if self.deaths.is_empty() {
            println!("    process             alive");
        } else {
            println!(
                "    process             died {} times ({})",
                self.deaths.len(),
                self.deaths.join(", ")
            );
        }
        let because = if causes.is_empty() {
            String::new()
        } else {
            format!(" ({})", causes.join(", "))
        };
        println!("    reboots             {resets}{because}");
        if let (Some(median), Some(max)) = (self.last.recovery_ns, self.last.recovery_max_ns) {
            #[allow(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
            let us = |ns: u64| ns as f64 / 1000.0;
            println!(
                "    recovery            {:.1} us median, {:.1} us at most, {} objects brought back",
                us(median),
                us(max),
                self.last.rebuilt
            );
        }
        println!("    wrong answers       {}", self.wrong());
        println!(
            "    handles lost        {}",
            self.last.counts.lost + self.earlier.lost
        );
        println!(
            "    open handles kept   {} of {}",
            self.last.counts.kept, demo.handles
        );
        let whose = match demo.what {
            What::Files => "bytes identical",
            What::Locks => "owners as taken",
        };
        let intact = if self.intact(demo) { "yes" } else { "no" };
        println!("    {whose}     {intact}");
    }
}
