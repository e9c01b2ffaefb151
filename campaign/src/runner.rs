//! The runs: one `steadfast run --flip` each, in a process group of its own.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use steadfast_integrity::outcome::{Leaf, Outcome};

use crate::Common;
use crate::judge::{self, Evidence, Golden, Seen};
use crate::operands::Group;
use crate::plan::outside::{Striker, Target, launcher_of};
use crate::plan::{self, Planned, Whose};
use crate::profile;
use crate::programs::{self, ENVIRONMENT, Program};

/// Runs with an armed fault that never hits: how long a run may take, and the false alarms.
const DUMMIES: u64 = 20;
/// A hang costs the engine a second of CPU time to see, and a re-run against the log up to
/// three; a run that is not over long after that never will be.
const LIMIT_LEAST: Duration = Duration::from_secs(15);

/// One line of a results file.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) id: u64,
    pub(crate) group: Group,
    pub(crate) leaf: Leaf,
    pub(crate) status: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) ms: u64,
    #[serde(flatten)]
    pub(crate) seen: Seen,
}

struct Bench<'a> {
    program: &'a Program,
    steadfast: PathBuf,
    dir: PathBuf,
    replicas: u8,
    limit: Duration,
    /// How long runs without a fault take.
    length: Duration,
}

fn line(fault: &str, victim: u64, replicas: u8) -> String {
    match replicas {
        // Those of outside.rs name their replicas.
        _ if fault.is_empty() || fault.starts_with("replica=") => fault.to_owned(),
        1 => fault.to_owned(),
        n => format!("replica={} {fault}", victim % u64::from(n)),
    }
}

impl Bench<'_> {
    fn command(&self, fault: Option<&str>, events: &Path) -> Command {
        let mut command = Command::new(&self.steadfast);
        command
            .arg("run")
            .arg("--quiet")
            .arg(format!("--replicas={}", self.replicas));
        command.arg(format!("--events={}", events.display()));
        if let Some(fault) = fault {
            command.arg(format!("--flip={fault}"));
        }
        command.arg("--").args(&self.program.argv);
        command.env_clear().envs(ENVIRONMENT);
        command
    }

    fn run(
        &self,
        fault: Option<&str>,
        mut striker: Option<Striker>,
        job: usize,
    ) -> anyhow::Result<(Evidence, u64)> {
        let events = self.dir.join(format!("job{job}.events"));
        let output = self.dir.join(format!("job{job}.out"));
        let complaint = self.dir.join(format!("job{job}.err"));
        // What an earlier run left must not be taken for this one's.
        let _ = fs::remove_file(&events);
        let started = Instant::now();
        let mut child = self
            .command(fault, &events)
            .stdin(File::open(self.dir.join("input"))?)
            .stdout(File::create(&output)?)
            .stderr(File::create(&complaint)?)
            .process_group(0)
            .spawn()
            .with_context(|| self.steadfast.display().to_string())?;
        let group = Pid::from_raw(i32::try_from(child.id())?);
        let mut evidence = Evidence::default();
        let target = Target {
            front: group.as_raw(),
            events: &events,
            length: self.length,
        };
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if let Some(striker) = &mut striker {
                striker.look(&target);
            }
            if started.elapsed() > self.limit {
                evidence.timed_out = true;
                let _ = fs::write(
                    self.dir.join(format!("job{job}.autopsy")),
                    autopsy(group.as_raw(), 0),
                );
                let _ = killpg(group, Signal::SIGKILL);
                break child.wait()?;
            }
            std::thread::sleep(Duration::from_micros(500));
        };
        let ms = u64::try_from(started.elapsed().as_millis())?;
        // Replicas that outlived the tool would be its fault, and ours if they stayed.
        let _ = killpg(group, Signal::SIGKILL);
        evidence.status = status.code();
        evidence.signal = status.signal();
        evidence.output = fs::read(&output)?;
        evidence.events = judge::read(&fs::read_to_string(&events).unwrap_or_default());
        if let Some(striker) = striker {
            evidence.events.hits += u64::from(striker.hit.is_some());
            evidence.events.strike = striker.hit;
        }
        Ok((evidence, ms))
    }
}

fn golden(program: &Program, dir: &Path) -> anyhow::Result<Golden> {
    let once = || -> anyhow::Result<Golden> {
        let output = Command::new(program.path()?)
            .args(&program.argv[1..])
            .env_clear()
            .envs(ENVIRONMENT)
            .stdin(File::open(dir.join("input"))?)
            .stderr(Stdio::null())
            .output()?;
        let status = output.status.code().context("the program dies by itself")?;
        Ok(Golden {
            status,
            output: output.stdout,
        })
    };
    let first = once()?;
    for _ in 0..2 {
        let again = once()?;
        if again.output != first.output || again.status != first.status {
            bail!(
                "a program with the same output every time is needed, found {}",
                program.name
            );
        }
    }
    Ok(first)
}

fn prepare(common: &Common) -> anyhow::Result<(Program, PathBuf, Vec<Planned>)> {
    let program = programs::find(&common.program)?;
    let dir = common.out.join(program.name);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("input"), &program.input)?;
    let mut population = profile::of(&program, &dir, 1)?;
    if common.whose == Whose::Agent {
        // The program's own share comes from the run in which nobody waits.
        population.ours = profile::of(&program, &dir, 2)?.ours;
    }
    let plan = plan::of(common.whose, &population, &dir, common.runs, common.seed)?;
    Ok((program, dir, plan))
}

fn results_path(dir: &Path, common: &Common, replicas: u8) -> PathBuf {
    dir.join(format!(
        "results-{}-{}-{}-n{replicas}.jsonl",
        common.whose.word(),
        common.seed,
        common.runs
    ))
}

/// Runs what of the plan has not been run yet.
pub(crate) fn campaign(
    common: &Common,
    replicas: u8,
    jobs: usize,
    budget: Option<u64>,
) -> anyhow::Result<()> {
    let (program, dir, plan) = prepare(common)?;
    let golden = golden(&program, &dir)?;
    let mut bench = Bench {
        program: &program,
        steadfast: common
            .steadfast
            .canonicalize()
            .with_context(|| common.steadfast.display().to_string())?,
        dir: dir.clone(),
        replicas,
        limit: Duration::from_secs(60),
        length: Duration::ZERO,
    };
    let results = results_path(&dir, common, replicas);
    let mut done: HashSet<u64> = HashSet::new();
    for text in fs::read_to_string(&results).unwrap_or_default().lines() {
        // A line that was cut off by a crash is run again.
        if let Ok(one) = serde_json::from_str::<Done>(text) {
            done.insert(one.id);
        }
    }
    (bench.limit, bench.length) = dummies(&bench, &golden, &plan)?;
    let left: Vec<&Planned> = plan.iter().filter(|one| !done.contains(&one.id)).collect();
    let file = Mutex::new(File::options().create(true).append(true).open(&results)?);
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let tally: Mutex<BTreeMap<Outcome, u64>> = Mutex::default();
    let started = Instant::now();
    let work = |job: usize| -> anyhow::Result<()> {
        loop {
            let over = budget.is_some_and(|seconds| started.elapsed().as_secs() >= seconds);
            if over || failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let Some(one) = left.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return Ok(());
            };
            let fault = line(&one.fault, one.victim, replicas);
            let (evidence, ms) = bench.run(
                Some(&fault)
                    .filter(|fault| !fault.is_empty())
                    .map(String::as_str),
                Striker::new(one),
                job,
            )?;
            let leaf = judge::leaf(&golden, &evidence);
            if matches!(
                leaf.outcome(),
                Outcome::Sdc | Outcome::Hang | Outcome::Infra | Outcome::Detected
            ) || replicas > 1 && leaf.outcome() == Outcome::Crash
            {
                keep(&dir, &bench, one.id, job)?;
            }
            let line = Done {
                id: one.id,
                group: one.group,
                leaf,
                status: evidence.status,
                signal: evidence.signal,
                ms,
                seen: evidence.events,
            };
            let mut text = serde_json::to_string(&line)?;
            text.push('\n');
            file.lock()
                .expect("no panics inside")
                .write_all(text.as_bytes())?;
            let mut tally = tally.lock().expect("no panics inside");
            *tally.entry(leaf.outcome()).or_default() += 1;
            let so_far: u64 = tally.values().sum();
            if so_far.is_multiple_of(200) {
                let words: Vec<String> = tally
                    .iter()
                    .map(|(outcome, n)| format!("{outcome} {n}"))
                    .collect();
                let rate = so_far * 1000
                    / u64::try_from(started.elapsed().as_millis())
                        .unwrap_or(1)
                        .max(1);
                writeln!(
                    std::io::stderr(),
                    "{} n={replicas}: {so_far} of {}, {rate}/s: {}",
                    program.name,
                    left.len(),
                    words.join(", ")
                )?;
            }
        }
    };
    let outcome: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1))
            .map(|job| scope.spawn(move || work_of(work, job)))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().expect("no panics inside"))
            .collect()
    });
    failed.store(true, Ordering::Relaxed);
    outcome.into_iter().collect()
}

fn work_of(work: impl Fn(usize) -> anyhow::Result<()>, job: usize) -> anyhow::Result<()> {
    work(job)
}

/// What the processes of a run were doing when its time was over, `depth` generations down.
fn autopsy(pid: i32, depth: usize) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let mut text = format!(
        "{:indent$}{} call {}",
        "",
        read("stat"),
        read("syscall"),
        indent = 2 * depth
    );
    if let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) {
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
            {
                text += &autopsy(child, depth + 1);
            }
        }
    }
    if depth == 0 {
        let control = steadfast_replica::own_places().control;
        if let Ok(bytes) = shared_bytes(launcher_of(pid), control.end) {
            for (index, line) in bytes
                .chunks(32)
                .enumerate()
                .filter(|(_, line)| line.iter().any(|byte| *byte != 0))
            {
                let words: Vec<String> = line
                    .chunks(4)
                    .map(|word| {
                        format!(
                            "{:08x}",
                            u32::from_le_bytes(word.try_into().unwrap_or_default())
                        )
                    })
                    .collect();
                text += &format!("{:5} {}\n", 32 * index, words.join(" "));
            }
        }
    }
    text
}

/// The beginning of the shared memory, as the launcher has it mapped.
fn shared_bytes(launcher: i32, len: u64) -> anyhow::Result<Vec<u8>> {
    use std::os::unix::fs::FileExt;
    let maps = fs::read_to_string(format!("/proc/{launcher}/maps"))?;
    let line = maps
        .lines()
        .find(|line| line.contains("/memfd:steadfast (deleted)"))
        .context("shared memory")?;
    let start = u64::from_str_radix(line.split('-').next().unwrap_or(""), 16)?;
    let mut bytes = vec![0; usize::try_from(len)?];
    File::open(format!("/proc/{launcher}/mem"))?.read_exact_at(&mut bytes, start)?;
    Ok(bytes)
}

/// Keeps what a run of interest left, beside its command.
fn keep(dir: &Path, bench: &Bench<'_>, id: u64, job: usize) -> anyhow::Result<()> {
    let to = dir.join(format!("kept-n{}", bench.replicas));
    fs::create_dir_all(&to)?;
    for kind in ["events", "out", "err", "autopsy"] {
        let from = dir.join(format!("job{job}.{kind}"));
        if from.exists() {
            fs::copy(&from, to.join(format!("{id}.{kind}")))?;
            if kind == "autopsy" {
                fs::remove_file(from)?;
            }
        }
    }
    Ok(())
}

/// Faults that are armed and never hit: the measure of time, and of false alarms.
fn dummies(
    bench: &Bench<'_>,
    golden: &Golden,
    plan: &[Planned],
) -> anyhow::Result<(Duration, Duration)> {
    let (mut slowest, mut sum) = (0, 0);
    let countable = plan
        .iter()
        .filter(|one| one.fault.contains(" n=") && !one.fault.contains(';'));
    for (i, one) in (0..DUMMIES).zip(countable.cycle()) {
        let (head, tail) = one
            .fault
            .split_once(" n=")
            .context("faults of a plan count executions")?;
        let rest = tail.split_once(' ').map_or("", |(_, rest)| rest);
        let fault = line(
            &format!("{head} n=1152921504606846976 {rest}"),
            one.victim,
            bench.replicas,
        );
        let (evidence, ms) = bench.run(Some(&fault), None, 0)?;
        slowest = slowest.max(ms);
        sum += ms;
        let right = evidence.output == golden.output && evidence.status == Some(golden.status);
        if !right || evidence.events.divergences > 0 || evidence.timed_out {
            keep(&bench.dir, bench, 1_000_000 + i, 0)?;
            bail!(
                "runs without a fault have to agree, found {:?} under {fault}",
                evidence.events
            );
        }
    }
    // A third of a run is over when it is announced.
    let length = Duration::from_millis(sum / DUMMIES * 2 / 3);
    Ok((LIMIT_LEAST.max(Duration::from_millis(20 * slowest)), length))
}

/// Prints the command that repeats a run.
pub(crate) fn replay(common: &Common, replicas: u8, id: u64) -> anyhow::Result<()> {
    let (program, dir, plan) = prepare(common)?;
    let one = plan
        .iter()
        .find(|one| one.id == id)
        .context("no such fault in the plan")?;
    let bench = Bench {
        program: &program,
        steadfast: common.steadfast.clone(),
        dir: dir.clone(),
        replicas,
        limit: Duration::MAX,
        length: Duration::ZERO,
    };
    let fault = line(&one.fault, one.victim, replicas);
    let command = bench.command(Some(&fault), Path::new("/dev/stderr"));
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            if word.contains([' ', ';', '$', '"', '[', '|', '<', '&']) {
                format!("'{word}'")
            } else {
                word.into_owned()
            }
        })
        .collect();
    let environment: Vec<String> = ENVIRONMENT
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    writeln!(
        std::io::stdout(),
        "env -i {} {} < {}",
        environment.join(" "),
        words.join(" "),
        dir.join("input").display()
    )?;
    Ok(())
}
