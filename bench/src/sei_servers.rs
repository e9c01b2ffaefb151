//! `bench sei-servers`: memcached and dnsmasq, hardened against plain.
//!
//! Same source, same compiler, same flags, same CPUs, same load; the hardened build sends its
//! checksums in the message envelope and the client checks them, the plain build sends plain
//! bytes. A third build, the plain compiler with the envelope beneath, says what of the cost is
//! the envelope's, and a fourth, plain with zeroed locals, what is that of the flag which
//! hardening implies. A fifth is at the level of the paper's rules (`--protect=sei`), and measured as the paper's variants were: its checksums
//! are computed and do not leave. With `--checks` one more build for each check that is beyond these rules says what it costs.
//!
//! Three numbers of each pair of runs: the server's CPU time per request while it is saturated;
//! the highest rate with a mean response time under 1 ms, which is the published metric; and the
//! mean response time at a low rate. Ratios are taken within a round.
//!
//! A row whose server was busy less than [`BUSY_MIN`] of the time was limited by its client: its
//! throughput says nothing, and it is marked so. CPU time per request is meant to be compared
//! all the same, since what a server does for a request it does busy or not.

mod loads;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published;
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::load::process::{Running, Split, on_client_cpu};
use steadfast_workloads::load::{Paced, Saturated, deadwood, dns, highest_rate, memcached};

use crate::machine::Machine;
use crate::results;
use crate::sei_builds::{Build, CHECKS, Check, LEVEL, without_column};
use crate::stats::{Estimate, median, median_estimate};
use crate::table;
use crate::verdict::{self, Promise};

use loads::FORWARDED;
pub use loads::{Metric, ROWS, Row, figure6_rows};

/// The share of time that a saturated server must have been busy.
pub const BUSY_MIN: f64 = 0.95;

/// The limit of the published metric: a mean response time of one millisecond.
const MEAN_US_MAX: f64 = 1000.0;

/// Connections: enough that a server with a few workers always has requests waiting, few enough
/// that a round through them takes less than the limit above at 100,000 requests a second.
const CONNECTIONS: usize = 32;

/// The least share of requests of the row of forwarded names about which the other server was asked.
const FORWARDED_MIN: f64 = 0.9;

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    pub pairs: usize,
    pub seed: u64,
    /// Seconds of each saturated and each paced run.
    pub seconds: f64,
    /// Halvings of the search for the highest rate; none leaves that number out.
    pub rate_steps: usize,
    /// Requests per second at which response times are compared.
    pub low_rate: f64,
    /// Rows that are named so, or else whose name begins so; all if empty.
    pub only: Vec<String>,
}

/// One run of one build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub saturated: Saturated,
    pub low: Paced,
    /// Requests per second.
    pub rate_under_1ms: Option<f64>,
    pub peak_kib: u64,
}

/// All runs of one build under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    pub column: String,
    /// `None` where the round failed.
    pub samples: Vec<Option<Sample>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
}

/// One row, measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    pub row: String,
    pub server: String,
    pub threads: usize,
    /// Why it was not measured.
    pub pending: Option<String>,
    pub series: Vec<Series>,
    pub promises: Vec<Promise>,
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeiServersReport {
    pub bench: String,
    pub machine: Machine,
    pub pairs: usize,
    pub seed: u64,
    pub seconds: f64,
    pub low_rate: f64,
    pub complete: bool,
    pub builds: Vec<Build>,
    pub rows: Vec<Measured>,
}

/// Measures every row with every build of its server, in turns.
///
/// `interrupted` is asked between runs, `say` is told of each round.
///
/// # Errors
/// When no directory for logs can be made; a run that fails is in the report.
pub fn measure(
    rows: &[Row],
    builds: &[Build],
    place: &Path,
    settings: &Settings,
    machine: Machine,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<SeiServersReport> {
    let place = place.join("sei-servers");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let mut report = SeiServersReport {
        bench: "sei-servers".to_owned(),
        machine,
        pairs: settings.pairs,
        seed: settings.seed,
        seconds: settings.seconds,
        low_rate: settings.low_rate,
        complete: true,
        builds: builds.to_vec(),
        rows: Vec::new(),
    };
    let mut rng = Rng::new(settings.seed);
    for row in rows.iter().filter(|row| is_wanted(row, rows, settings)) {
        let own: Vec<&Build> = builds
            .iter()
            .filter(|build| build.server == row.server)
            .collect();
        if own.is_empty() {
            continue;
        }
        report.rows.push(measure_row(
            row,
            &own,
            &place,
            settings,
            &mut rng,
            interrupted,
            say,
        ));
        report.complete = !interrupted();
    }
    Ok(report)
}

/// The servers of the rows that are wanted.
#[must_use]
pub fn servers(rows: &[Row], settings: &Settings) -> BTreeSet<&'static str> {
    let wanted = rows.iter().filter(|row| is_wanted(row, rows, settings));
    wanted.map(|row| row.server).collect()
}

fn is_wanted(row: &Row, rows: &[Row], settings: &Settings) -> bool {
    let means = |name: &String| {
        let whole = rows.iter().any(|other| other.name == *name);
        row.name == *name || row.server == name || !whole && row.name.starts_with(name.as_str())
    };
    settings.only.is_empty() || settings.only.iter().any(means)
}

fn measure_row(
    row: &Row,
    builds: &[&Build],
    place: &Path,
    settings: &Settings,
    rng: &mut Rng,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Measured {
    let mut measured = Measured {
        row: row.name.to_string(),
        server: row.server.to_owned(),
        threads: row.threads,
        pending: None,
        series: builds
            .iter()
            .map(|build| Series {
                column: build.column.clone(),
                samples: Vec::new(),
                failures: Vec::new(),
            })
            .collect(),
        promises: Vec::new(),
    };
    match Split::of(row.threads) {
        Err(error) => measured.pending = Some(error.to_string()),
        Ok(split) => {
            for round in 0..settings.pairs {
                say(&format!(
                    "{}, {}: round {} of {}",
                    row.server,
                    row.name,
                    round + 1,
                    settings.pairs
                ));
                // One seed for all builds of a round: the same requests.
                let seed = rng.next_u64();
                for index in shuffled(builds.len(), rng) {
                    let series = &mut measured.series[index];
                    if interrupted() {
                        series.samples.push(None);
                        continue;
                    }
                    let sample = on_client_cpu(&split, || {
                        one(row, builds[index], &split, place, settings, seed)
                    });
                    if let Err(error) = &sample {
                        series.failures.push(format!("{error:#}"));
                        say(&format!("{}, {}: {error:#}", row.name, series.column));
                    }
                    series.samples.push(sample.ok());
                }
            }
        }
    }
    measured.promises = promises(row, &measured, settings.seed);
    measured
}

fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    rng.shuffle(&mut order);
    order
}

/// A client of either kind.
enum Client {
    Memcached(memcached::Client),
    Dns(dns::Client),
}

impl Client {
    fn saturate(&mut self, server: &Running, warm: Duration, time: Duration) -> Result<Saturated> {
        match self {
            Client::Memcached(client) => client.saturate(server, warm, time),
            Client::Dns(client) => client.saturate(server, warm, time),
        }
    }

    fn pace(&mut self, rate: f64, time: Duration) -> Result<Paced> {
        match self {
            Client::Memcached(client) => client.pace(rate, time),
            Client::Dns(client) => client.pace(rate, time),
        }
    }
}

fn one(
    row: &Row,
    build: &Build,
    split: &Split,
    place: &Path,
    settings: &Settings,
    seed: u64,
) -> Result<Sample> {
    let mut upstream = None;
    let (mut server, mut client) = match row.server {
        "memcached" => {
            // Twice what the values take: nothing is evicted, and slabs have room to be moved.
            let mib = 64 + 2 * ((row.mix.keys * (row.mix.value_bytes + 100)) >> 20);
            let log = place.join(format!("{}.log", build.column));
            let server = memcached::start(&build.program, split, mib, &log)?;
            let client = memcached::Client::connect(
                server.address,
                CONNECTIONS,
                build.envelope,
                row.mix,
                seed,
            )?;
            (server, Client::Memcached(client))
        }
        "dnsmasq" => {
            let server = dns::start(&build.program, split, place, &[])?;
            let client = dns::Client::connect(server.address, build.envelope, seed)?;
            (server, Client::Dns(client))
        }
        "deadwood" => {
            let server = if row.name == FORWARDED {
                let (server, asked) = deadwood::start_asking(&build.program, split, place)?;
                upstream = Some(asked);
                server
            } else {
                deadwood::start(&build.program, split, place)?
            };
            let mut client = dns::Client::connect(server.address, build.envelope, seed)?;
            if upstream.is_some() {
                client = client.giving_way();
            }
            (server, Client::Dns(client))
        }
        other => bail!("no client for {other}"),
    };
    let time = Duration::from_secs_f64(settings.seconds);
    let saturated = client.saturate(&server, time / 4, time)?;
    if let Some(upstream) = &upstream {
        let share = upstream.total() as f64 / saturated.requests as f64;
        ensure!(
            share >= FORWARDED_MIN,
            "Deadwood asked about {:.0} % of the names, at least {:.0} % are required",
            share * 100.0,
            FORWARDED_MIN * 100.0
        );
    }
    let low = client.pace(row.low_rate.unwrap_or(settings.low_rate), time)?;
    let rate_under_1ms = match settings.rate_steps {
        0 => None,
        steps => {
            let above = saturated.requests_per_second() * 1.25;
            Some(highest_rate(above, steps, MEAN_US_MAX, |rate| {
                client.pace(rate, time)
            })?)
        }
    };
    let peak_kib = server.peak_kib()?;
    server.check_alive()?;
    Ok(Sample {
        saturated,
        low,
        rate_under_1ms,
        peak_kib,
    })
}

impl Series {
    fn values(&self, number: impl Fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().flatten().map(number).collect()
    }

    /// Percent by which a number is above the base's, for each round in which both have one.
    fn above(&self, base: &Series, number: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let rounds = self.samples.iter().zip(&base.samples);
        rounds
            .filter_map(|(mine, theirs)| {
                Some((number(mine.as_ref()?) / number(theirs.as_ref()?) - 1.0) * 100.0)
            })
            .collect()
    }

    /// What one needs less than `full`, as a share of what that needs.
    fn price(&self, full: &Series, number: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let less = self.above(full, number);
        less.iter().map(|percent| -percent).collect()
    }

    fn busy(&self) -> Option<f64> {
        median(&self.values(|sample| sample.saturated.busy()))
    }
}

impl Measured {
    fn find(&self, column: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.column == column)
    }
}

fn promises(row: &Row, measured: &Measured, seed: u64) -> Vec<Promise> {
    let mut rng = Rng::new(seed);
    let mut judge = |column: &str, metric: Metric, target: f64| {
        let pair = measured.find(column).zip(measured.find("plain"));
        let found: Option<Estimate> = pair.and_then(|(hardened, plain)| {
            let values = match metric {
                // r times the CPU time is 1/r of the throughput.
                Metric::ThroughputLoss => hardened
                    .above(plain, |sample| sample.saturated.cpu_ns_per_request())
                    .iter()
                    .map(|percent| 100.0 * percent / (100.0 + percent))
                    .collect(),
                Metric::ResponseTime => hardened.above(plain, |sample| sample.low.mean_us),
            };
            median_estimate(&values, &mut rng)
        });
        let what = match metric {
            Metric::ThroughputLoss => "throughput lost",
            Metric::ResponseTime => "response time added",
        };
        let what = format!("{}, {}, {column}: {what}", row.server, row.name);
        let promise = Promise::at_most(&what, "%", target, verdict::SLACK_POINTS, found);
        let rounds = found.map_or(0, |found| found.rounds);
        match (&measured.pending, pair) {
            (Some(why), _) => promise.pending(why.as_str()),
            (None, None) => promise.pending("no hardened build was given"),
            // Promises are judged from ten rounds on.
            (None, Some(_)) if rounds < 10 => promise.pending(format!("{rounds} rounds of 10")),
            (None, Some((hardened, plain))) => {
                let idle = [hardened, plain]
                    .into_iter()
                    .filter_map(Series::busy)
                    .any(|busy| busy < BUSY_MIN);
                if metric == Metric::ThroughputLoss && idle {
                    promise.pending("the client was the limit")
                } else {
                    promise
                }
            }
        }
    };
    let mut all = Vec::new();
    for &(metric, target) in row.targets {
        all.push(judge("hardened", metric, target));
    }
    for &(metric, target) in row.sei {
        all.push(judge("sei", metric, target));
    }
    all
}

/// What is kept in `results/`: each row's hardened build and the envelope alone, over the plain build.
#[must_use]
pub fn rows(report: &SeiServersReport) -> Vec<published::Row> {
    let mut rng = Rng::new(report.seed);
    let mut rows = Vec::new();
    for measured in &report.rows {
        let name = match measured.row.as_str() {
            "1 KiB" => "mc1k".to_owned(),
            "DNS, A record" => "dns".to_owned(),
            "Deadwood, cached names" => "deadwood".to_owned(),
            FORWARDED => "deadwood.forwarded".to_owned(),
            other => format!("mc.{}", other.to_lowercase().replace([' ', ','], "")),
        };
        let Some(plain) = measured.find("plain") else {
            continue;
        };
        let mut add = |key: String, what: &str, values: &[f64]| {
            let what = format!("{}, {}: {what}", measured.server, measured.row);
            rows.extend(results::row(
                key,
                what,
                "%",
                median_estimate(values, &mut rng),
            ));
        };
        let cpu = |sample: &Sample| sample.saturated.cpu_ns_per_request();
        let own = match measured.server.as_str() {
            "deadwood" => "without the envelope",
            _ => "envelope included",
        };
        for (column, level, how) in [
            ("hardened", "", own),
            ("sei", ".sei", "--protect=sei, without the envelope"),
        ] {
            let Some(hardened) = measured.find(column) else {
                continue;
            };
            let added = hardened.above(plain, cpu);
            // r times the CPU time is 1/r of the throughput.
            let lost: Vec<f64> = added
                .iter()
                .map(|percent| 100.0 * percent / (100.0 + percent))
                .collect();
            let mut all = |key: &str, what: &str, values: &[f64]| {
                add(
                    format!("{name}{level}.{key}"),
                    &format!("{what}, {how}"),
                    values,
                );
            };
            all("throughput", "throughput lost", &lost);
            all("cpu", "CPU time added per request", &added);
            let response = hardened.above(plain, |sample| sample.low.mean_us);
            all("response", "response time added at a low rate", &response);
        }
        for Check {
            name: check, what, ..
        } in CHECKS
        {
            let pair = measured
                .find("hardened")
                .zip(measured.find(&without_column(check)));
            let Some((full, less)) = pair else {
                continue;
            };
            let what = format!("share of a request's CPU time, --protect=full: {what}");
            add(
                format!("{name}.price.{check}"),
                &what,
                &less.price(full, cpu),
            );
        }
        if let Some((full, level)) = measured.find("hardened").zip(measured.find(LEVEL)) {
            add(
                format!("{name}.price.level"),
                "share of a request's CPU time, --protect=full: what --protect=sei leaves out",
                &level.price(full, cpu),
            );
        }
        if let Some(envelope) = measured
            .find("envelope")
            .filter(|_| ["mc1k", "dns"].contains(&name.as_str()))
        {
            let key = format!("{}.envelope", name.trim_end_matches("1k"));
            add(
                key,
                "the envelope alone: CPU time added per request",
                &envelope.above(plain, cpu),
            );
        }
    }
    rows
}

/// The report as text.
#[must_use]
pub fn render(report: &SeiServersReport) -> String {
    let mut rng = Rng::new(report.seed);
    let mut out = report.machine.render();
    out += &format!(
        "{} rounds, seed {}, {} s a run, response times at {} requests/s{}\n",
        report.pairs,
        report.seed,
        report.seconds,
        report.low_rate,
        if report.complete { "" } else { ", INTERRUPTED" }
    );
    for build in &report.builds {
        out += &format!(
            "{} {}: {}{}\n",
            build.server,
            build.column,
            build.program.display(),
            if build.envelope {
                ", with the message envelope"
            } else {
                ""
            }
        );
    }
    out.push('\n');
    let mut rows = Vec::new();
    for measured in &report.rows {
        let base = measured.find("plain");
        for series in &measured.series {
            let middle = |values: &[f64], digits: usize| {
                median(values).map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let change = |rng: &mut Rng, number: fn(&Sample) -> f64| match base {
                Some(base) if series.column != "plain" => median_estimate(
                    &series.above(base, number),
                    rng,
                )
                .map_or("-".to_owned(), |found| {
                    format!(
                        "{:+.1} [{:+.1}, {:+.1}]",
                        found.value, found.low, found.high
                    )
                }),
                _ => String::new(),
            };
            rows.push(vec![
                format!("{} {}", measured.server, measured.row),
                series.column.clone(),
                middle(
                    &series.values(|sample| sample.saturated.cpu_ns_per_request()),
                    0,
                ),
                change(&mut rng, |sample| sample.saturated.cpu_ns_per_request()),
                middle(
                    &series.values(|sample| sample.saturated.requests_per_second() / 1e3),
                    1,
                ),
                middle(&series.values(|sample| sample.saturated.busy() * 100.0), 1),
                middle(
                    &series
                        .samples
                        .iter()
                        .flatten()
                        .filter_map(|sample| Some(sample.rate_under_1ms? / 1e3))
                        .collect::<Vec<_>>(),
                    1,
                ),
                middle(&series.values(|sample| sample.low.mean_us), 1),
                change(&mut rng, |sample| sample.low.mean_us),
                middle(&series.values(|sample| sample.peak_kib as f64 / 1024.0), 1),
            ]);
        }
    }
    out += &table::render(
        &[
            "row",
            "build",
            "CPU ns/req",
            "more %",
            "kreq/s",
            "busy %",
            "kreq/s < 1 ms",
            "mean us",
            "more %",
            "peak MiB",
        ],
        &rows,
    );
    out.push('\n');
    for measured in &report.rows {
        if let Some(why) = &measured.pending {
            out += &format!("pending {} {}: {why}\n", measured.server, measured.row);
        }
        for series in &measured.series {
            let limited = series.busy().is_some_and(|busy| busy < BUSY_MIN);
            if limited {
                out += &format!(
                    "caution {} {}, {}: the server was busy less than {:.0} % of the time; its client was the limit\n",
                    measured.server,
                    measured.row,
                    series.column,
                    BUSY_MIN * 100.0
                );
            }
            for failure in &series.failures {
                out += &format!(
                    "error   {} {}, {}: {}\n",
                    measured.server,
                    measured.row,
                    series.column,
                    failure.replace('\n', "; ")
                );
            }
        }
    }
    let all: Vec<Promise> = report
        .rows
        .iter()
        .flat_map(|row| row.promises.clone())
        .collect();
    out + &verdict::render(&all)
}
