//! `bench servers`: servers under load, as Debian packages them: redis, nginx, memcached, PostgreSQL.
//!
//! | Column | What runs |
//! |---|---|
//! | `bare` | one server and its client |
//! | `floor` | two unconnected servers, each with a client of its own; its value is the mean of the two |
//! | `n2` | one server as two replicas, and its client |
//!
//! Two replicas compute everything twice, so what they can reach on a machine is what each of two bare copies reaches there. The load is the
//! field's own: redis-benchmark, wrk, pgbench. memcached's client is ours and compares every reply with the right one.
//!
//! At *half load* requests come at random moments, half as many a second as two replicas answered in that round when saturated: floor and
//! replicas get the same rate, and a response time runs from the moment at which the request was due ([`paced`]).
//!
//! Invariants
//!  1. All columns of a round follow each other, in an order drawn anew. Ratios are taken within a round.
//!  2. A client that reports an error, a wrong reply, or a protected server that tells of a divergence fails the run, which is printed.
//!  3. A server is started anew for each run, with data of its own, and nothing of it is left.
//!  4. A job whose programs are missing is named in the table as left out; the others are measured.
//!
//! Not covered: networks other than the loopback; servers or clients pinned to cores.

mod check;
pub mod flips;
mod golang;
mod load;
mod paced;
pub mod pauses;
mod service;

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use self::load::Load;
use self::service::{Service, Started};
use crate::machine::Machine;
use crate::product::Product;
use crate::results;
use crate::stats::{Estimate, median_estimate};
use crate::table;

/// A server and what is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// In results and on the command line.
    pub name: &'static str,
    what: &'static str,
    service: Service,
    load: Load,
    /// Whether response times at half load are measured too.
    half: bool,
}

/// Every job.
pub const JOBS: &[Job] = &[
    Job {
        name: "redis-get",
        what: "redis, GET of 16 bytes, 50 connections",
        service: Service::Redis,
        load: Load::Redis {
            test: "get",
            pipeline: 1,
            connections: 50,
        },
        half: true,
    },
    Job {
        name: "redis-set",
        what: "redis, SET of 16 bytes, 50 connections",
        service: Service::Redis,
        load: Load::Redis {
            test: "set",
            pipeline: 1,
            connections: 50,
        },
        half: false,
    },
    Job {
        name: "redis-get16",
        what: "redis, GET of 16 bytes, 50 connections, 16 in a pipeline",
        service: Service::Redis,
        load: Load::Redis {
            test: "get",
            pipeline: 16,
            connections: 50,
        },
        half: false,
    },
    Job {
        name: "nginx",
        what: "nginx, one worker, 20 KB, 16 connections",
        service: Service::Nginx,
        load: Load::Http { connections: 16 },
        half: true,
    },
    Job {
        name: "nginx-one",
        what: "nginx, one worker, 20 KB, one connection",
        service: Service::Nginx,
        load: Load::Http { connections: 1 },
        half: false,
    },
    Job {
        name: "go-http",
        what: "Go's net/http, 20 KB, 16 connections",
        service: Service::Go,
        load: Load::Http { connections: 16 },
        half: false,
    },
    Job {
        name: "memcached",
        what: "memcached -t 4, 100 bytes, 95 % GET, 16 connections",
        service: Service::Memcached,
        load: Load::Memcached { connections: 16 },
        half: true,
    },
    Job {
        name: "pgbench1",
        what: "PostgreSQL, pgbench TPC-B, 1 client",
        service: Service::Postgres,
        load: Load::Pgbench { clients: 1 },
        half: false,
    },
    Job {
        name: "pgbench4",
        what: "PostgreSQL, pgbench TPC-B, 4 clients",
        service: Service::Postgres,
        load: Load::Pgbench { clients: 4 },
        half: false,
    },
];

/// The servers that are looked at while nobody asks them anything.
const IDLE: [(&str, Service); 2] = [("redis", Service::Redis), ("postgres", Service::Postgres)];
const COLUMNS: [&str; 3] = ["bare", "floor", "n2"];
const HALF_COLUMNS: [&str; 2] = ["floor", "n2"];

/// What one server did for its client.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub per_second: f64,
    /// The median response time, where the client tells it.
    pub p50_us: f64,
    /// CPU time of all of the server's processes for one request.
    pub cpu_us: f64,
}

/// Response times at half load.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Paced {
    /// Requests a second.
    pub rate: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServersReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    pub complete: bool,
    /// By "job column", a sample a round; none where the run failed.
    pub samples: BTreeMap<String, Vec<Option<Sample>>>,
    /// The same at half load; none also where replicas failed when saturated.
    #[serde(default)]
    pub half: BTreeMap<String, Vec<Option<Paced>>>,
    /// Percent of a core that an idle server took, by "server column".
    pub idle: BTreeMap<String, Vec<f64>>,
    pub failures: Vec<String>,
    /// Jobs whose programs are missing, and how to get them.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub product: &'a Product,
    pub dir: &'a Path,
    /// Names of [`JOBS`], or their beginnings; all if there are none.
    pub jobs: Vec<String>,
    pub rounds: usize,
    pub time: Duration,
    pub idle: Duration,
    pub seed: u64,
}

impl Plan<'_> {
    fn wants(&self, job: &Job) -> bool {
        self.jobs.is_empty()
            || self
                .jobs
                .iter()
                .any(|name| job.name.starts_with(name.as_str()))
    }
}

/// Measures.
///
/// # Errors
/// When no job has such a name, the programs of every one are missing, or the directory cannot be written.
pub fn measure(
    plan: &Plan<'_>,
    machine: Machine,
    interrupted: &dyn Fn() -> bool,
    says: &mut dyn FnMut(&str),
) -> Result<ServersReport> {
    let jobs: Vec<&Job> = JOBS.iter().filter(|job| plan.wants(job)).collect();
    if jobs.is_empty() {
        let names: Vec<&str> = JOBS.iter().map(|job| job.name).collect();
        return Err(anyhow!(
            "--jobs: one of {} is required, found {}",
            names.join(", "),
            plan.jobs.join(", ")
        ));
    }
    let mut left_out = Vec::new();
    let jobs = those_that_are_there(jobs, &mut left_out)?;
    let mut report = ServersReport {
        bench: "servers".to_owned(),
        machine,
        rounds: plan.rounds,
        seed: plan.seed,
        complete: true,
        samples: BTreeMap::new(),
        half: BTreeMap::new(),
        idle: BTreeMap::new(),
        failures: Vec::new(),
        left_out,
    };
    let mut rng = Rng::new(plan.seed);
    for round in 0..plan.rounds {
        for job in &jobs {
            let mut columns = COLUMNS;
            rng.shuffle(&mut columns);
            for column in columns {
                if interrupted() {
                    report.complete = false;
                    return Ok(report);
                }
                says(&format!(
                    "round {} of {}: {}, {column}",
                    round + 1,
                    plan.rounds,
                    job.name
                ));
                let found = one(plan, job, column);
                if let Err(why) = &found {
                    report
                        .failures
                        .push(format!("{}, {column}: {why:#}", job.name));
                }
                let key = format!("{} {column}", job.name);
                report.samples.entry(key).or_default().push(found.ok());
            }
            let mut columns = HALF_COLUMNS;
            rng.shuffle(&mut columns);
            for column in columns.into_iter().filter(|_| job.half) {
                if interrupted() {
                    report.complete = false;
                    return Ok(report);
                }
                says(&format!(
                    "round {} of {}: {} at half load, {column}",
                    round + 1,
                    plan.rounds,
                    job.name
                ));
                let found = report
                    .rate_of_replicas(job)
                    .map(|rate| paced(plan, job, column, rate / 2.0));
                if let Some(Err(why)) = &found {
                    report
                        .failures
                        .push(format!("{} at half load, {column}: {why:#}", job.name));
                }
                let key = format!("{} {column}", job.name);
                let found = found.and_then(Result::ok);
                report.half.entry(key).or_default().push(found);
            }
        }
    }
    if !plan.idle.is_zero() {
        for (name, service) in IDLE {
            for column in ["bare", "n2"] {
                says(&format!("idle: {name}, {column}"));
                match idle(plan, service, column) {
                    Ok(percent) => report
                        .idle
                        .entry(format!("{name} {column}"))
                        .or_default()
                        .push(percent),
                    Err(why) => report
                        .failures
                        .push(format!("idle {name}, {column}: {why:#}")),
                }
            }
        }
    }
    Ok(report)
}

/// The jobs whose server and client are installed.
fn those_that_are_there<'a>(
    jobs: Vec<&'a Job>,
    left_out: &mut Vec<String>,
) -> Result<Vec<&'a Job>> {
    let mut there = Vec::new();
    for job in jobs {
        match job.service.check().and_then(|()| job.load.check()) {
            Ok(()) => there.push(job),
            Err(why) => left_out.push(format!("{}: {why:#}", job.name)),
        }
    }
    ensure!(!there.is_empty(), "{}", left_out.join("\n"));
    Ok(there)
}

fn start(plan: &Plan<'_>, service: Service, column: &str, copy: usize) -> Result<Started> {
    let protector = (column == "n2").then_some(plan.product);
    service
        .start(&plan.dir.join(format!("copy{copy}")), protector)
        .with_context(|| format!("{service:?}, copy {copy}"))
}

/// One column once: what each copy did for its client.
fn copies<T: Send>(
    plan: &Plan<'_>,
    job: &Job,
    column: &str,
    ask: impl Fn(&Started) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let count = if column == "floor" { 2 } else { 1 };
    let mut servers = (0..count)
        .map(|copy| start(plan, job.service, column, copy))
        .collect::<Result<Vec<_>>>()?;
    for server in &servers {
        job.load
            .prepare(server)
            .with_context(|| format!("the server said: {}", server.last_words()))?;
    }
    let found: Vec<Result<T>> = thread::scope(|scope| {
        let clients: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(|| ask(server)))
            .collect();
        let failed = || anyhow!("the client's thread has failed");
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or_else(|_| Err(failed())))
            .collect()
    });
    for server in &mut servers {
        server.stop()?;
    }
    found.into_iter().collect()
}

#[allow(clippy::cast_precision_loss, reason = "one or two")]
fn mean<T>(of_copies: &[T], of: fn(&T) -> f64) -> f64 {
    of_copies.iter().map(of).sum::<f64>() / of_copies.len() as f64
}

/// Saturated: the mean over the copies.
fn one(plan: &Plan<'_>, job: &Job, column: &str) -> Result<Sample> {
    let found = copies(plan, job, column, |server| {
        let before = server.cpu();
        let answers = job.load.run(server, plan.time)?;
        let cpu = server.cpu().saturating_sub(before);
        Ok(Sample {
            per_second: answers.per_second,
            p50_us: answers.p50_us,
            cpu_us: cpu.as_secs_f64() * 1e6 / answers.requests,
        })
    })?;
    Ok(Sample {
        per_second: mean(&found, |sample| sample.per_second),
        p50_us: mean(&found, |sample| sample.p50_us),
        cpu_us: mean(&found, |sample| sample.cpu_us),
    })
}

/// At a rate: the mean over the copies.
fn paced(plan: &Plan<'_>, job: &Job, column: &str, rate: f64) -> Result<Paced> {
    let found = copies(plan, job, column, |server| {
        job.load.pace(server, rate, plan.time, plan.seed)
    })?;
    Ok(Paced {
        rate,
        p50_us: mean(&found, |times| times.p50_us),
        p99_us: mean(&found, |times| times.p99_us),
    })
}

/// Percent of a core that a server takes that nobody asks.
fn idle(plan: &Plan<'_>, service: Service, column: &str) -> Result<f64> {
    let mut server = start(plan, service, column, 0)?;
    thread::sleep(Duration::from_secs(2)); // what comes behind the start
    let before = server.cpu();
    thread::sleep(plan.idle);
    let used = server.cpu().saturating_sub(before);
    server.stop()?;
    Ok(used.as_secs_f64() / plan.idle.as_secs_f64() * 100.0)
}

impl ServersReport {
    /// Requests a second that two replicas answered in the latest round, saturated.
    fn rate_of_replicas(&self, job: &Job) -> Option<f64> {
        let samples = self.samples.get(&format!("{} n2", job.name))?;
        Some(samples.last()?.as_ref()?.per_second)
    }

    /// A response time at half load, two replicas over the floor, round by round.
    fn half_over(&self, job: &str, of: fn(&Paced) -> f64, rng: &mut Rng) -> Option<Estimate> {
        let column = |name: &str| self.half.get(&format!("{job} {name}"));
        let ratios: Vec<f64> = column("n2")?
            .iter()
            .zip(column("floor")?)
            .filter_map(|(n2, floor)| Some(of(n2.as_ref()?) / of(floor.as_ref()?)))
            .collect();
        median_estimate(&ratios, rng)
    }

    /// A response time at half load, in one column.
    fn half(&self, key: &str, of: fn(&Paced) -> f64, rng: &mut Rng) -> Option<Estimate> {
        let values: Vec<f64> = self.half.get(key)?.iter().flatten().map(of).collect();
        median_estimate(&values, rng)
    }

    /// A number of `n2` over that of another column, round by round.
    fn over(
        &self,
        job: &str,
        base: &str,
        of: fn(&Sample) -> f64,
        rng: &mut Rng,
    ) -> Option<Estimate> {
        let column = |name: &str| self.samples.get(&format!("{job} {name}"));
        let ratios: Vec<f64> = column("n2")?
            .iter()
            .zip(column(base)?)
            .filter_map(|(n2, base)| Some(of(n2.as_ref()?) / of(base.as_ref()?)))
            .collect();
        median_estimate(&ratios, rng)
    }

    fn value(&self, key: &str, of: fn(&Sample) -> f64, rng: &mut Rng) -> Option<Estimate> {
        let values: Vec<f64> = self.samples.get(key)?.iter().flatten().map(of).collect();
        median_estimate(&values, rng)
    }
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &ServersReport) -> Vec<Row> {
    let mut rng = Rng::new(report.seed);
    let percent = |found: Option<Estimate>| found.map(|found| found.map(|ratio| ratio * 100.0));
    let mut rows = Vec::new();
    for job in JOBS {
        let (name, what) = (job.name, job.what);
        let floor = percent(report.over(name, "floor", |sample| sample.per_second, &mut rng));
        let bare = percent(report.over(name, "bare", |sample| sample.per_second, &mut rng));
        let cpu = report.over(name, "bare", |sample| sample.cpu_us, &mut rng);
        let p50 = report.over(name, "bare", |sample| sample.p50_us, &mut rng);
        rows.extend(results::row(
            format!("{name}.floor"),
            format!("{what}: throughput of two replicas, of the floor's"),
            "%",
            floor,
        ));
        rows.extend(results::row(
            format!("{name}.bare"),
            format!("{what}: the same, of a bare server's alone"),
            "%",
            bare,
        ));
        rows.extend(results::row(
            format!("{name}.cpu"),
            format!("{what}: CPU time per request, both replicas over bare"),
            "",
            cpu,
        ));
        rows.extend(results::row(
            format!("{name}.p50"),
            format!("{what}: median response time over bare"),
            "",
            p50,
        ));
        let median: fn(&Paced) -> f64 = |times| times.p50_us;
        for (share, of) in [("p50", median), ("p99", |times| times.p99_us)] {
            rows.extend(results::row(
                format!("{name}.half.{share}"),
                format!("{what}, at half of what two replicas reach: {share} of response times, over the floor's"),
                "",
                report.half_over(name, of, &mut rng),
            ));
            for column in HALF_COLUMNS {
                rows.extend(results::row(
                    format!("{name}.half.{share}.{column}"),
                    format!("{what}, at that rate: {share}, {column}"),
                    "µs",
                    report.half(&format!("{name} {column}"), of, &mut rng),
                ));
            }
        }
    }
    for (name, _) in IDLE {
        for column in ["bare", "n2"] {
            let values = report.idle.get(&format!("{name} {column}"));
            let found = values.and_then(|values| median_estimate(values, &mut rng));
            rows.extend(results::row(
                format!("idle.{name}.{column}"),
                format!("{name}, idle, {column}: share of a core"),
                "%",
                found,
            ));
        }
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &ServersReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut out = report.machine.render();
    out += &format!(
        "{} rounds, seed {}{}\n\n",
        report.rounds,
        report.seed,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    let mut lines = Vec::new();
    for job in JOBS {
        for column in COLUMNS {
            let key = format!("{} {column}", job.name);
            let mut cell = |of: fn(&Sample) -> f64| {
                let found = report.value(&key, of, &mut rng);
                found.map_or("-".to_owned(), |found| {
                    format!("{:.0} [{:.0}, {:.0}]", found.value, found.low, found.high)
                })
            };
            if report.samples.contains_key(&key) {
                lines.push(vec![
                    job.name.to_owned(),
                    column.to_owned(),
                    cell(|sample| sample.per_second),
                    cell(|sample| sample.p50_us),
                    cell(|sample| sample.cpu_us),
                ]);
            }
        }
    }
    out += &table::render(
        &["job", "column", "requests/s", "p50 µs", "CPU µs a request"],
        &lines,
    );
    out.push('\n');
    let lines: Vec<Vec<String>> = rows(report)
        .into_iter()
        .map(|row| vec![row.what.clone(), row.text()])
        .collect();
    out += &table::render(&["what", "median [95 %]"], &lines);
    for job in &report.left_out {
        out += &format!("left out {job}\n");
    }
    for failure in &report.failures {
        out += &format!("error   {failure}\n");
    }
    out
}
