//! `steadfast inject run`, `plan`, `profile`, `replay` and `doctor`: the verbs that run a target.
//!
//! Invariant: results go to standard output, everything else to standard error; an interrupt ends
//! the campaign between two runs, and the directory can be gone on with.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use steadfast_inject::campaign::{Field, Order, Progress, Running};
use steadfast_inject::doctor;
use steadfast_inject::record::{Campaign, Dir, Planned, Run, Shard};
use steadfast_inject::scratch::{self, Scratch};
use steadfast_integrity::exit::{Exit, Own};
use steadfast_report::gate::{Answer, Gate, Measure};
use steadfast_report::tabulate::Table;

use super::load;
use super::target::{Extent, OrderError, TargetArgs, duration, shard, stages};
use crate::os;
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Directory of the campaign; one that holds a part of it is gone on with
    #[arg(short, long, value_name = "DIR", default_value = "inject-results")]
    out: PathBuf,

    /// Runs of each fault type
    #[arg(long, value_name = "N", default_value_t = 400)]
    runs: u64,

    /// Stop as soon as this gate is decided, such as 'sdc.upper95 < 1%'
    #[arg(long, value_name = "GATE")]
    until: Option<String>,

    /// Stop after so long, such as 10m; the same call goes on later
    #[arg(long, value_name = "TIME", value_parser = duration)]
    budget: Option<Duration>,

    /// Runs at the same time [default: one for each CPU]
    #[arg(short, long, value_name = "N")]
    jobs: Option<usize>,

    /// Do only this part of the plan, such as 0/4; `merge` puts parts together
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = shard)]
    shard: Shard,

    /// Write what was found as one JSON object
    #[arg(long)]
    json: bool,

    /// Do not show progress
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    target: TargetArgs,
}

impl RunArgs {
    fn extent(&self) -> Extent {
        Extent {
            dir: self.out.clone(),
            runs: self.runs,
            jobs: self.jobs,
            shard: self.shard,
            budget: self.budget,
        }
    }
}

/// Plans and runs.
pub(super) fn run(args: &RunArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| campaign(args, console))
}

/// Plans only.
pub(super) fn plan(args: &RunArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| {
        let order = args.target.order(args.extent())?;
        let running = Running::prepare(
            &order,
            env!("CARGO_PKG_VERSION"),
            &mut stages(console, args.quiet),
        )?;
        let text = if args.json {
            json(&running.campaign)
        } else {
            planned(&running.campaign, &args.out)
        };
        console.result(&text);
        Ok(Exit::Status(0))
    })
}

fn finish(
    console: &mut Console<'_>,
    work: impl FnOnce(&mut Console<'_>) -> Result<Exit, OrderError>,
) -> Exit {
    work(console).unwrap_or_else(|why| console.refuse(&why))
}

fn campaign(args: &RunArgs, console: &mut Console<'_>) -> Result<Exit, OrderError> {
    let gate = match &args.until {
        Some(text) => Some(stopping(text)?),
        None => None,
    };
    let order = args.target.order(args.extent())?;
    let mut running = Running::prepare(
        &order,
        env!("CARGO_PKG_VERSION"),
        &mut stages(console, args.quiet),
    )?;
    if !args.quiet {
        console.say(&planned(&running.campaign, &args.out));
    }
    let stop = os::interrupted();
    let decided = || {
        gate.as_ref().is_some_and(|gate| {
            load(&args.out).is_ok_and(|results| {
                gate.judge(&Table::new(&results), None)
                    .is_ok_and(|judgement| matches!(judgement.answer, Answer::Pass | Answer::Fail))
            })
        })
    };
    let meter = Meter::new(args.quiet);
    let done = running.run(stop, &decided, &|progress| meter.show(&progress))?;
    meter.end();
    let interrupted = stop.load(std::sync::atomic::Ordering::Relaxed);
    drop(running);
    let results = load(&args.out).map_err(|why| OrderError::Campaign(why.to_string(), None))?;
    let runs = Dir::new(&args.out)
        .runs()
        .map_err(|why| OrderError::Campaign(why.to_string(), None))?;
    let campaign = Dir::new(&args.out)
        .campaign()
        .map_err(|why| OrderError::Campaign(why.to_string(), None))?;
    let mut tally = std::collections::BTreeMap::new();
    for run in runs.values() {
        *tally.entry(run.outcome.outcome()).or_insert(0_u64) += 1;
    }
    if args.json {
        let object = serde_json::json!({
            "schema": 1, "dir": args.out, "planned": campaign.planned, "runs": runs.len(), "outcomes": tally,
        });
        console.result(&format!("{object}\n"));
    } else {
        let words: Vec<String> = tally
            .iter()
            .map(|(outcome, n)| format!("{n} {outcome}"))
            .collect();
        console.result(&format!(
            "{} of {} runs in {}: {}\n",
            runs.len(),
            campaign.planned,
            args.out.display(),
            words.join(", ")
        ));
        if !args.quiet {
            console.say(&format!(
                "inject: {done} now; steadfast inject report {}\n",
                args.out.display()
            ));
        }
    }
    if let Some(gate) = gate {
        let judged = gate.judge(&Table::new(&results), None);
        let code = judged.map_or_else(
            |_| Answer::Infrastructure.code(),
            |judgement| judgement.answer.code(),
        );
        return Ok(Exit::Status(code));
    }
    Ok(if interrupted {
        Exit::Signal(libc::SIGINT)
    } else {
        Exit::Status(0)
    })
}

/// A gate that may be looked at again and again: bounds allow for it, counts and rates do not.
fn stopping(text: &str) -> Result<Gate, OrderError> {
    let wrong = |needed: &str| OrderError::Flag {
        flag: "until",
        needed: needed.into(),
        found: text.into(),
    };
    let gate = Gate::parse(text).map_err(|why| wrong(&format!("a gate ({why})")))?;
    if gate.needs_baseline() {
        return Err(wrong("a gate without a baseline"));
    }
    let bound = |one: &&steadfast_report::gate::Comparison| {
        matches!(one.field.measure, Measure::Upper(_) | Measure::Lower(_))
    };
    if gate.comparisons().iter().all(bound) {
        Ok(gate)
    } else {
        Err(wrong(
            "a gate on bounds, such as 'sdc.upper95 < 1%': a count holds before there is a run",
        ))
    }
}

#[allow(clippy::cast_precision_loss, reason = "shares for people")]
fn share(part: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        part as f64 * 100.0 / all as f64
    }
}

fn planned(campaign: &Campaign, out: &std::path::Path) -> String {
    let p = &campaign.population;
    let mut text = format!(
        "inject: {} runs planned in {}, seed {}\n",
        campaign.planned,
        out.display(),
        campaign.seed,
    );
    if p.dynamic > 0 {
        let _ = writeln!(
            text,
            "inject: {} executed instructions at {} places, {:.2} % of them reachable",
            p.dynamic,
            p.sites,
            share(p.reachable, p.dynamic)
        );
    }
    if p.transfers > 0 {
        let _ = writeln!(
            text,
            "inject: {} transfers between the target and files",
            p.transfers
        );
    }
    for (reason, n) in &p.unreachable {
        let _ = writeln!(
            text,
            "inject:   not reachable: {:.3} % ({reason})",
            share(*n, p.dynamic)
        );
    }
    if p.unstable > 0 {
        let _ = writeln!(
            text,
            "inject:   {:.3} % are executed more or less often from run to run",
            share(p.unstable, p.dynamic)
        );
    }
    for open in campaign
        .sandbox
        .iter()
        .filter(|line| line.starts_with("not closed"))
    {
        let _ = writeln!(text, "inject: box {open}");
    }
    text
}

fn json(campaign: &Campaign) -> String {
    serde_json::to_string(campaign).unwrap_or_default() + "\n"
}

/// Progress: a line that is drawn over on a terminal, a line now and then elsewhere.
struct Meter {
    quiet: bool,
    terminal: bool,
    started: Instant,
    shown: Mutex<Option<Instant>>,
}

impl Meter {
    fn new(quiet: bool) -> Self {
        Self {
            quiet,
            terminal: io::stderr().is_terminal(),
            started: Instant::now(),
            shown: Mutex::new(None),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
    fn show(&self, progress: &Progress) {
        let Progress::Runs { done, of, tally } = progress else {
            return;
        };
        let pause = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        let mut shown = self.shown.lock().expect("no panics inside");
        if self.quiet || done < of && shown.is_some_and(|at| at.elapsed() < pause) {
            return;
        }
        *shown = Some(Instant::now());
        let rate = *done as f64 / self.started.elapsed().as_secs_f64().max(0.001);
        let left = (of - done) as f64 / rate.max(0.001);
        let words: Vec<String> = tally
            .iter()
            .map(|(outcome, n)| format!("{n} {outcome}"))
            .collect();
        let line = format!(
            "inject: {done} of {of}, {rate:.1}/s, {left:.0} s left: {}",
            words.join(", ")
        );
        let text = if self.terminal {
            format!("\r\x1b[K{line}")
        } else {
            format!("{line}\n")
        };
        let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
    }

    fn end(&self) {
        if self.terminal && !self.quiet {
            let _ = io::Write::write_all(&mut io::stderr(), b"\r\x1b[K");
        }
    }
}

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

/// Counts.
pub(super) fn profile(args: &ProfileArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| {
        let order = args.target.order(Extent::one())?;
        let mut field = Field::open(&order)?;
        let profile = field.profile()?;
        let population = field.population(&profile, None);
        let functions = field.functions(&profile);
        if args.json {
            let object = serde_json::json!({ "schema": 1, "population": population, "functions": functions });
            console.result(&format!("{object}\n"));
            return Ok(Exit::Status(0));
        }
        let mut text = format!(
            "{} executed instructions at {} places, {:.2} % of them reachable\n",
            population.dynamic,
            population.sites,
            share(population.reachable, population.dynamic)
        );
        for (reason, n) in &population.unreachable {
            let _ = writeln!(
                text,
                "  not reachable: {:.3} % ({reason})",
                share(*n, population.dynamic)
            );
        }
        text.push_str("\n executions  share  function\n");
        for f in functions.iter().take(args.top) {
            let name = f.function.as_deref().unwrap_or("(no symbol)");
            let _ = writeln!(
                text,
                "{:>11} {:>5.1} %  {}!{name}",
                f.executions,
                share(f.executions, population.dynamic),
                f.module
            );
        }
        console.result(&text);
        Ok(Exit::Status(0))
    })
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Directory of the campaign
    #[arg(value_name = "DIR")]
    out: PathBuf,

    /// Number of the run in the plan
    #[arg(value_name = "ID")]
    id: u64,

    /// Stop in gdb just before the fault, outside the box
    #[arg(long)]
    gdb: bool,

    /// Where the target runs; must be a place that its user can reach
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Write one JSON object instead of words
    #[arg(long)]
    json: bool,
}

/// Repeats one run.
pub(super) fn replay(args: &ReplayArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |console| {
        let base = args.scratch.clone().unwrap_or_else(std::env::temp_dir);
        let order = Order::of(&args.out, &base)?;
        let mut running = Running::prepare(&order, env!("CARGO_PKG_VERSION"), &mut |_| ())?;
        if args.gdb {
            let (addr, n, fault) = running.whereabouts(args.id)?;
            drop(running);
            console.say(&format!(
                "inject: {fault}\ninject: gdb stops before execution {n} of {addr:#x}\n"
            ));
            let status = Scratch::make(&base, scratch::RUNS).and_then(|place| {
                let dir = place.path().join("run");
                order.spec.lay_out(&dir)?;
                debugger(&order, addr, n).current_dir(&dir).status()
            });
            let status = status.map_err(|why| {
                OrderError::Campaign(
                    format!("--gdb needs gdb: {why}"),
                    Some("apt install gdb".into()),
                )
            })?;
            return Ok(Exit::Status(
                u8::try_from(status.code().unwrap_or(1)).unwrap_or(1),
            ));
        }
        let (planned, run, captured) = running.replay(args.id)?;
        let before = Dir::new(&args.out)
            .runs()
            .ok()
            .and_then(|runs| runs.get(&args.id).cloned());
        if args.json {
            let object = serde_json::json!({ "planned": planned, "run": run, "before": before });
            console.result(&format!("{object}\n"));
        } else {
            console.result(&told(&planned, &run, before.as_ref()));
            let stderr = captured
                .0
                .get("stderr")
                .map_or_else(String::new, |b| String::from_utf8_lossy(b).into_owned());
            console.say(&stderr);
        }
        let same = before
            .is_none_or(|before| before.outcome == run.outcome && before.outputs == run.outputs);
        Ok(if same {
            Exit::Status(0)
        } else {
            Exit::Own(Own::Mismatch)
        })
    })
}

/// gdb at the site, with the executions before it passed over. A hardware breakpoint leaves the
/// code as it is, and no shell stands between gdb and the program, which would be counted too.
fn debugger(order: &Order, addr: u64, n: u64) -> std::process::Command {
    let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
    let words: Vec<String> = order
        .spec
        .argv
        .iter()
        .skip(1)
        .map(|word| quoted(word))
        .collect();
    let stdin = order
        .spec
        .stdin
        .as_deref()
        .unwrap_or(std::path::Path::new("/dev/null"));
    let mut gdb = std::process::Command::new("gdb");
    gdb.args([
        "-q",
        "-nx",
        "-iex",
        "set debuginfod enabled off",
        "-ex",
        "set disable-randomization on",
    ]);
    // gdb adds these to what the program sees.
    gdb.args([
        "-ex",
        "unset environment LINES",
        "-ex",
        "unset environment COLUMNS",
    ]);
    for command in [
        format!(
            "starti {} < {}",
            words.join(" "),
            quoted(&stdin.display().to_string())
        ),
        format!("hbreak *{addr:#x}"),
        format!("ignore 1 {}", n - 1),
        "continue".into(),
    ] {
        gdb.arg("-ex").arg(command);
    }
    gdb.env_clear()
        .envs(order.spec.env.iter().map(|(k, v)| (k, v)));
    gdb.arg(&order.spec.path);
    gdb
}

fn told(planned: &Planned, run: &Run, before: Option<&Run>) -> String {
    let mut text = format!("{}\n", planned.fault);
    if let Some(site) = &planned.site {
        let function = site
            .function
            .as_deref()
            .map_or_else(String::new, |f| format!(" in {f}"));
        let _ = writeln!(
            text,
            "  at     {}+{}{function}: {}",
            site.module, site.offset, site.disassembly
        );
    }
    for fired in &run.fired {
        let value = |v: &Option<String>| v.clone().unwrap_or_default();
        let _ = writeln!(
            text,
            "  fired  at execution {}: {} became {}",
            fired.n,
            value(&fired.before),
            value(&fired.after)
        );
        if let Some(file) = &fired.file {
            let _ = writeln!(text, "         in {file}");
        }
    }
    let ended = match (run.status, run.signal) {
        (Some(status), _) => format!("exit status {status}"),
        (_, Some(signal)) => format!("signal {signal}"),
        _ => "given up".into(),
    };
    let _ = writeln!(
        text,
        "  {}, {ended}{}",
        run.outcome,
        if run.differ.is_empty() {
            String::new()
        } else {
            format!(", {} differ", run.differ.join(", "))
        }
    );
    if let Some(before) = before {
        let word = if before.outcome == run.outcome && before.outputs == run.outputs {
            "as before"
        } else {
            "not as before"
        };
        let _ = writeln!(text, "  {word}: {}", before.outcome);
    }
    text
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A campaign's directory: its planned faults, by both engines
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,

    /// At most so many of them
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "dir")]
    most: usize,

    /// Only those that strike within so many executions of their instruction: each is a stop of some 50 us
    #[arg(long, value_name = "N", default_value_t = 20_000, requires = "dir")]
    within: u64,

    /// Write one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Whether the planned faults of a campaign strike the executions that they name.
fn exact(
    args: &DoctorArgs,
    dir: &std::path::Path,
    console: &mut Console<'_>,
) -> Result<Exit, OrderError> {
    let order = Order::of(dir, &std::env::temp_dir())?;
    let found = doctor::agreement(&order, args.within, args.most)?;
    let all = found.same + found.different.len();
    if args.json {
        console.result(&format!(
            "{}\n",
            serde_json::json!({ "schema": 1, "found": found })
        ));
    } else {
        for one in &found.different {
            console.say(&format!("inject: {one}\n"));
        }
        console.result(&format!(
            "{} of {all} drawn faults hit the execution that single steps hit; {} do what single steps do, and {} of the others not the same twice by themselves; {} lie beyond {} executions\n",
            found.same + found.hit,
            found.same,
            found.unsteady,
            found.beyond,
            args.within
        ));
    }
    Ok(Exit::Status(u8::from(
        found.same == 0 || !found.different.is_empty(),
    )))
}

/// Examines the injector itself.
pub(super) fn doctor(args: &DoctorArgs, console: &mut Console<'_>) -> Exit {
    if let Some(dir) = &args.dir {
        return finish(console, |console| exact(args, dir, console));
    }
    finish(console, |console| {
        let place = doctor::place().map_err(|why| {
            OrderError::Campaign(
                format!("a doctor needs a directory for temporary files: {why}"),
                Some("TMPDIR=DIR".into()),
            )
        })?;
        let user = os::is_root().then_some(61_000);
        let answers = doctor::examine(place.path(), user, &mut stages(console, args.json))?;
        drop(place);
        let well = answers.iter().all(|answer| answer.ok);
        if args.json {
            let machine = steadfast_inject::campaign::machine();
            console.result(&format!("{}\n", serde_json::json!({ "schema": 1, "machine": machine, "ok": well, "answers": answers })));
        } else {
            let width = answers.iter().map(|a| a.name.len()).max().unwrap_or(0);
            let mut text = String::new();
            for answer in &answers {
                let _ = writeln!(
                    text,
                    "{}  {:<width$}  {}",
                    if answer.ok { "yes" } else { "NO " },
                    answer.name,
                    answer.found
                );
            }
            console.result(&text);
        }
        Ok(if well {
            Exit::Status(0)
        } else {
            Exit::Status(1)
        })
    })
}
