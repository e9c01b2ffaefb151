//! `bench memory`: what N replicas take, against N copies that know nothing of each other.
//!
//! A guest fills memory, says so and waits; then the proportional set size (PSS) of every process
//! of the group, the launcher included, is summed. PSS counts a shared page once over its sharers,
//! so the sum is what the group takes from the machine. Copies and replicas take turns; a row has a reading of each a round, and its value
//! is the median of what a round's replicas take more than its copies. See smaps_rollup in proc(5).

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published;
use steadfast_workloads::inputs::Rng;

use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::sample::Runner;
use crate::stats::{Estimate, estimate, median, median_estimate};
use crate::table;
use crate::verdict::Promise;

/// How long a group has been standing still when it is measured: what starting it has needed is free by then.
const STANDING: Duration = Duration::from_millis(500);

/// What one group of processes takes, in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Footprint {
    pub processes: usize,
    pub pss: u64,
    pub rss: u64,
}

/// One row: copies and replicas side by side, a reading of each a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub mib: usize,
    pub replicas: u8,
    pub copies: Vec<Footprint>,
    pub protected: Vec<Footprint>,
    pub errors: Vec<String>,
}

impl Row {
    /// MiB that each replica takes more than a copy, by round.
    fn added_per_replica(&self) -> Vec<f64> {
        let added = |(copies, protected): (&Footprint, &Footprint)| {
            (protected.pss as f64 - copies.pss as f64) / 1024.0 / f64::from(self.replicas)
        };
        self.copies.iter().zip(&self.protected).map(added).collect()
    }

    fn read(
        &mut self,
        job: &steadfast_workloads::Invocation,
        wrapper: &[OsString],
        runner: &Runner,
    ) -> Result<()> {
        let copies: Vec<_> = (0..self.replicas)
            .map(|_| job.command())
            .collect::<std::io::Result<_>>()
            .context("copies")?;
        let copies = footprint(copies, runner).context("copies")?;
        let protected = footprint(vec![job.command_under(wrapper)?], runner).context("replicas")?;
        self.copies.push(copies);
        self.protected.push(protected);
        Ok(())
    }
}

/// The worst median of some rows, resampled together.
fn worst<'a>(rows: impl Iterator<Item = &'a Row>, rng: &mut Rng) -> Option<Estimate> {
    let lists: Vec<Vec<f64>> = rows.map(Row::added_per_replica).collect();
    let lists: Vec<&[f64]> = lists.iter().map(Vec::as_slice).collect();
    estimate(&lists, rng, |lists| {
        let medians: Option<Vec<f64>> = lists.iter().map(|list| median(list)).collect();
        medians?.into_iter().reduce(f64::max)
    })
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    pub rows: Vec<Row>,
    pub promises: Vec<Promise>,
}

/// Measures 1 to 3 replicas at the given sizes, so many times each.
///
/// # Errors
/// When the guest does not build.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    sizes_mib: &[usize],
    rounds: usize,
    seed: u64,
    machine: Machine,
    mut step: impl FnMut(&str),
) -> Result<MemoryReport> {
    let program = guest::build(guests, "hold")?;
    let mut rows: Vec<Row> = sizes_mib
        .iter()
        .flat_map(|&mib| {
            (1..=3).map(move |replicas| Row {
                mib,
                replicas,
                copies: Vec::new(),
                protected: Vec::new(),
                errors: Vec::new(),
            })
        })
        .collect();
    for round in 1..=rounds {
        for row in rows.iter_mut().filter(|row| row.errors.is_empty()) {
            if runner.interrupted() {
                break;
            }
            let (mib, replicas) = (row.mib, row.replicas);
            step(&format!(
                "memory: round {round} of {rounds}, {mib} MiB, {replicas} replicas"
            ));
            let job = guest::invocation(&program, &[&mib.to_string()]);
            let files = runner.files(false);
            let wrapper = runner.product.wrapper(replicas, runner.cpus(), &[], &files);
            if let Err(error) = row.read(&job, &wrapper, runner) {
                row.errors.push(format!("{error:#}"));
            }
        }
    }
    let promises = promises(&rows, seed);
    Ok(MemoryReport {
        bench: "memory".to_owned(),
        machine,
        rounds,
        seed,
        rows,
        promises,
    })
}

fn promises(rows: &[Row], seed: u64) -> Vec<Promise> {
    // The worst row is judged.
    let several = rows.iter().filter(|row| row.replicas > 1);
    let promise = Promise::at_most(
        "memory of a replica above that of a copy, worst row",
        "MiB",
        4.0,
        0.0,
        worst(several, &mut Rng::new(seed)),
    );
    if rows.iter().any(|row| !row.errors.is_empty()) {
        return vec![promise.pending("some rows failed")];
    }
    vec![promise]
}

/// Starts the commands, waits until each says "ready", adds up what they and their descendants
/// take, and lets them end.
fn footprint(commands: Vec<std::process::Command>, runner: &Runner) -> Result<Footprint> {
    let mut group = Group::default();
    for mut command in commands {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        group
            .children
            .push(command.spawn().context("could not start")?);
    }
    for child in &mut group.children {
        let mut line = String::new();
        let output = child.stdout.as_mut().context("no standard output")?;
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "ready\n", "said {line:?} and not that it is ready");
    }
    std::thread::sleep(STANDING);
    let mut found = Footprint::default();
    for pid in descendants(group.children.iter().map(Child::id).collect())? {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .with_context(|| format!("memory of process {pid}"))?;
        let field = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        };
        found.processes += 1;
        found.pss += field("Pss:").context("no Pss in smaps_rollup")?;
        found.rss += field("Rss:").context("no Rss in smaps_rollup")?;
    }
    group.finish(runner.limit)?;
    Ok(found)
}

/// Children that are killed unless they have been seen to end.
#[derive(Debug, Default)]
struct Group {
    children: Vec<Child>,
}

impl Group {
    fn finish(&mut self, limit: Duration) -> Result<()> {
        for child in &mut self.children {
            let mut input = child.stdin.take().context("no standard input")?;
            input.write_all(b"\n")?;
        }
        let deadline = Instant::now() + limit;
        while let Some(child) = self.children.last_mut() {
            match child.try_wait()? {
                Some(status) => {
                    ensure!(status.success(), "ended with {status}");
                    self.children.pop();
                }
                None => {
                    ensure!(Instant::now() < deadline, "did not end within {limit:?}");
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processes with all their descendants, those that have become zombies left out.
fn descendants(roots: Vec<u32>) -> Result<Vec<u32>> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // The name of the program, in brackets, may itself hold spaces and brackets.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            continue;
        };
        let Some((_, rest)) = stat.rsplit_once(')') else {
            continue;
        };
        let mut fields = rest.split_whitespace();
        let (state, parent) = (
            fields.next(),
            fields.next().and_then(|parent| parent.parse().ok()),
        );
        if let (Some(state), Some(parent)) = (state, parent)
            && state != "Z"
        {
            parents.push((pid, parent));
        }
    }
    let mut found = roots;
    let mut next = 0;
    while next < found.len() {
        let parent: u32 = found[next];
        let children = parents
            .iter()
            .filter(|&&(_, of)| of == parent)
            .map(|&(pid, _)| pid);
        let new: Vec<u32> = children.filter(|pid| !found.contains(pid)).collect();
        found.extend(new);
        next += 1;
    }
    Ok(found)
}

/// What is kept in `results/`: the worst size of each number of replicas.
#[must_use]
pub fn rows(report: &MemoryReport) -> Vec<published::Row> {
    let mut rng = Rng::new(report.seed);
    (1..=8)
        .filter_map(|n| {
            let sizes = report.rows.iter().filter(|row| row.replicas == n);
            let what = format!("memory of a replica beside that of a copy, {n} replicas");
            results::row(format!("n{n}"), what, "MiB", worst(sizes, &mut rng))
        })
        .collect()
}

/// The report as text.
#[must_use]
pub fn render(report: &MemoryReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for row in &report.rows {
        let middle = |found: &[Footprint], of: fn(&Footprint) -> u64| {
            let values: Vec<f64> = found
                .iter()
                .map(|found| of(found) as f64 / 1024.0)
                .collect();
            median(&values).map_or("-".to_owned(), |mib| format!("{mib:.1}"))
        };
        let mut line = vec![format!("{} MiB, N = {}", row.mib, row.replicas)];
        for found in [&row.copies, &row.protected] {
            line.push(match found.last() {
                Some(found) => found.processes.to_string(),
                None => "error".to_owned(),
            });
            line.push(middle(found, |found| found.pss));
            line.push(middle(found, |found| found.rss));
        }
        let added = median_estimate(&row.added_per_replica(), &mut rng);
        line.push(added.map_or("-".to_owned(), |found| {
            format!("{:+.2} [{:.2}, {:.2}]", found.value, found.low, found.high)
        }));
        rows.push(line);
    }
    let header = [
        "guest",
        "copies",
        "PSS",
        "RSS",
        "processes",
        "PSS",
        "RSS",
        "added per replica",
    ];
    let mut out = report.machine.render();
    out += "MiB of N copies, then of N replicas with their launcher, medians; PSS is what the group takes from the machine\n\n";
    out += &table::render(&header, &rows);
    out.push('\n');
    for row in &report.rows {
        for error in &row.errors {
            out += &format!("error   {} MiB, N = {}: {error}\n", row.mib, row.replicas);
        }
    }
    out + &crate::verdict::render(&report.promises)
}
