//! `bench memory`: what N replicas take, against N copies that know nothing of each other.
//!
//! A guest fills memory, says so and waits; then the proportional set size (PSS) of every process
//! of the group, the launcher included, is summed. PSS counts a shared page once over its sharers,
//! so the sum is what the group takes from the machine. See smaps_rollup in proc(5).

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published;

use crate::guest;
use crate::machine::Machine;
use crate::results;
use crate::sample::Runner;
use crate::stats::Estimate;
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

/// One row: copies and replicas side by side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub mib: usize,
    pub replicas: u8,
    pub copies: Option<Footprint>,
    pub protected: Option<Footprint>,
    pub errors: Vec<String>,
}

impl Row {
    /// MiB that each replica takes more than a copy.
    fn added_per_replica(&self) -> Option<f64> {
        let (copies, protected) = (self.copies?, self.protected?);
        let added = protected.pss as f64 - copies.pss as f64;
        Some(added / 1024.0 / f64::from(self.replicas))
    }
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryReport {
    pub bench: String,
    pub machine: Machine,
    pub rows: Vec<Row>,
    pub promises: Vec<Promise>,
}

/// Measures 1 to 3 replicas at the given sizes.
///
/// # Errors
/// When the guest does not build.
pub fn measure(
    runner: &Runner,
    guests: &Path,
    sizes_mib: &[usize],
    machine: Machine,
    mut step: impl FnMut(&str),
) -> Result<MemoryReport> {
    let program = guest::build(guests, "hold")?;
    let mut rows = Vec::new();
    for &mib in sizes_mib {
        for replicas in 1..=3_u8 {
            if runner.interrupted() {
                break;
            }
            step(&format!("memory: {mib} MiB, {replicas} replicas"));
            let job = guest::invocation(&program, &[&mib.to_string()]);
            let wrapper =
                runner
                    .product
                    .wrapper(replicas, runner.cpus(), &[], &runner.files(false));
            let mut row = Row {
                mib,
                replicas,
                copies: None,
                protected: None,
                errors: Vec::new(),
            };
            let one = || job.command();
            match (0..replicas)
                .map(|_| one())
                .collect::<std::io::Result<Vec<_>>>()
            {
                Ok(commands) => match footprint(commands, runner) {
                    Ok(found) => row.copies = Some(found),
                    Err(error) => row.errors.push(format!("copies: {error:#}")),
                },
                Err(error) => row.errors.push(format!("copies: {error}")),
            }
            match protected(&job, &wrapper, runner) {
                Ok(found) => row.protected = Some(found),
                Err(error) => row.errors.push(format!("replicas: {error:#}")),
            }
            rows.push(row);
        }
    }
    let promises = promises(&rows);
    Ok(MemoryReport {
        bench: "memory".to_owned(),
        machine,
        rows,
        promises,
    })
}

fn promises(rows: &[Row]) -> Vec<Promise> {
    // One row is one reading of a number that does not vary; the worst row is judged.
    let worst = rows
        .iter()
        .filter(|row| row.replicas > 1)
        .filter_map(Row::added_per_replica)
        .reduce(f64::max);
    let exact = worst.map(|value| Estimate {
        value,
        low: value,
        high: value,
        rounds: 1,
    });
    let promise = Promise::at_most(
        "memory of a replica above that of a copy, worst row",
        "MiB",
        4.0,
        0.0,
        exact,
    );
    if rows.iter().any(|row| !row.errors.is_empty()) {
        return vec![promise.pending("some rows failed")];
    }
    vec![promise]
}

fn protected(
    job: &steadfast_workloads::Invocation,
    wrapper: &[OsString],
    runner: &Runner,
) -> Result<Footprint> {
    footprint(vec![job.command_under(wrapper)?], runner)
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
    (1..=8)
        .filter_map(|n| {
            let all = report.rows.iter().filter(|row| row.replicas == n);
            let worst = all.filter_map(Row::added_per_replica).reduce(f64::max)?;
            let what = format!("memory of a replica beside that of a copy, {n} replicas");
            Some(published::Row::new(
                format!("n{n}"),
                what,
                results::digits(worst),
                "MiB",
            ))
        })
        .collect()
}

/// The report as text.
#[must_use]
pub fn render(report: &MemoryReport) -> String {
    let mut rows = Vec::new();
    for row in &report.rows {
        let mib = |kib: u64| format!("{:.1}", kib as f64 / 1024.0);
        let cells = |found: Option<Footprint>| match found {
            Some(found) => [found.processes.to_string(), mib(found.pss), mib(found.rss)],
            None => ["error", "-", "-"].map(str::to_owned),
        };
        let mut line = vec![format!("{} MiB, N = {}", row.mib, row.replicas)];
        line.extend(cells(row.copies));
        line.extend(cells(row.protected));
        line.push(
            row.added_per_replica()
                .map_or("-".to_owned(), |mib| format!("{mib:+.2}")),
        );
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
    out += "MiB of N copies, then of N replicas with their launcher; PSS is what the group takes from the machine\n\n";
    out += &table::render(&header, &rows);
    out.push('\n');
    for row in &report.rows {
        for error in &row.errors {
            out += &format!("error   {} MiB, N = {}: {error}\n", row.mib, row.replicas);
        }
    }
    out + &crate::verdict::render(&report.promises)
}
