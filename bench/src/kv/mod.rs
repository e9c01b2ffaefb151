//! `bench kv`: what the stages of `steadfast kv` cost, how long a repair takes, and whether a struck group ever answers wrongly.
//!
//! Groups of the stages R, RD, RDG and RDGX are started one after the other in every round, in an order that rotates, and each answers
//! the same slices of load: SET, GET, and three GETs to a SET, at several numbers of clients. A ratio is taken within its round.
//!
//! Invariants
//!  1. Every reply is judged (`load`): a wrong one at a stage without a strike fails the bench.
//!  2. The interval of a median is that of the sign test, by the ranks of the rounds: of seven the whole range.
//!  3. A group ends with its measurement, and with the bench, whatever ends it.
//!
//! Not covered: replicas with CPUs of their own, and a network between them.

mod beside;
mod evidence;
mod faults;
pub(crate) mod load;
mod registers;
mod rivals;
mod work;
mod workers;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use steadfast_report::published::Row;

use self::load::{Clients, Load, Shape};
use crate::process::dies_with_us;

const STAGES: [&str; 4] = ["R", "RD", "RDG", "RDGX"];
/// The name of a slice, and its share of GET.
const MIXES: [(&str, usize); 3] = [("set", 0), ("get", 100), ("mixed", 75)];
/// As in the paper.
const KEY_BYTES: usize = 100;
const VALUE_BYTES: usize = 400;
/// Items of each client: few enough to be filled quickly, enough that strikes meet different ones.
const KEYS: usize = 20;
/// Of each slice, before anything counts.
const WARM: Duration = Duration::from_millis(100);
/// How long a group may take to become ready.
const READY: Duration = Duration::from_secs(30);

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// The stages in turns
    Stages,
    /// Reads beside the log
    Reads,
    /// RD and RDGX where each request takes 10 and 90 µs more
    Work,
    /// RDGX with 1, 2 and 4 threads that execute, where each request takes 0, 10 and 90 µs more
    Workers,
    /// Replies to everybody else while one object is repaired
    Beside,
    /// RDGX, memcached, yrmcds and three of etcd in turns, 30 clients (needs these programs)
    Rivals,
    /// Repairs, timed one by one
    Repairs,
    /// Throughput under faults and false alarms, in turns with none
    Faults,
    /// Strikes under load, judged by every reply
    Strikes,
    /// Strikes of every class at a group whose clients use the message envelope
    Live,
    /// Registers of a group flip under load (root; needs steadfast beside the program)
    Registers,
    /// Requests over sockets and no fault: false alarms
    Quiet,
    /// The protocol alone, simulated: faults of every class, and requests without one
    Simulated,
}

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: PathBuf,
    /// A memcached to run beside the stages.
    pub memcached: Option<PathBuf>,
    /// An etcd, as a rival.
    pub etcd: Option<PathBuf>,
    /// A yrmcds, as another one.
    pub yrmcds: Option<PathBuf>,
    /// `--workers` of every group: threads that execute, of all replicas or of each.
    pub workers: Option<String>,
    pub rounds: usize,
    pub clients: Vec<usize>,
    pub slice: Duration,
    /// Repairs that are timed.
    pub repairs: usize,
    /// Strikes under load, each judged by what the clients are answered; 0 leaves them out.
    pub strikes: u64,
    /// Of those at a group whose clients use the envelope: these classes alone, or all.
    pub classes: Vec<String>,
    /// Faults of the simulation, and requests without one.
    pub simulated: u64,
    /// Runs whose registers are struck.
    pub runs: usize,
    /// Requests that must ring no alarm.
    pub quiet: u64,
    /// One part alone.
    pub only: Option<Part>,
    pub seed: u64,
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    pub rows: Vec<Row>,
}

impl Report {
    /// A table.
    #[must_use]
    pub fn render(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let _ = writeln!(out, "{:<28} {:<66} {}", row.key, row.what, row.text());
        }
        out
    }
}

/// Measures everything that the plan asks for.
///
/// # Errors
/// When a group does not start, or answers wrongly without a strike.
pub fn measure(plan: &Plan, says: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut rows = Vec::new();
    let wants = |part| plan.only.is_none_or(|only| only == part);
    if wants(Part::Stages) {
        stages(plan, says, &mut rows)?;
    }
    if wants(Part::Reads) {
        local_reads(plan, says, &mut rows)?;
    }
    if wants(Part::Work) {
        work::work(plan, says, &mut rows)?;
    }
    if wants(Part::Beside) {
        beside::beside(plan, says, &mut rows)?;
    }
    if plan.only == Some(Part::Workers) {
        workers::workers(plan, says, &mut rows)?;
    }
    if plan.only == Some(Part::Rivals) {
        rivals::rivals(plan, says, &mut rows)?;
    }
    if wants(Part::Repairs) {
        faults::repairs(plan, says, &mut rows)?;
    }
    if wants(Part::Faults) {
        faults::faults(plan, says, &mut rows)?;
    }
    if wants(Part::Strikes) && plan.strikes > 0 {
        for stage in ["RDGX", "RD"] {
            faults::strikes(plan, stage, says, &mut rows)?;
        }
    }
    if wants(Part::Live) && plan.strikes > 0 {
        evidence::live(plan, says, &mut rows)?;
    }
    // What takes hours is asked for by name.
    if plan.only == Some(Part::Registers) {
        registers::registers(plan, says, &mut rows)?;
    }
    if plan.only == Some(Part::Quiet) {
        evidence::quiet(plan, says, &mut rows)?;
    }
    if plan.only == Some(Part::Simulated) {
        evidence::simulated(plan, says, &mut rows)?;
    }
    Ok(Report { rows })
}

/// A group, or a single server.
struct Group {
    child: Child,
    clients: Vec<SocketAddr>,
    /// Repairs, and when they were heard of.
    repaired: Arc<Mutex<Vec<(Instant, Value)>>>,
    /// That a replica is to be replaced, and why; that it was; that no vote decides on an object.
    troubles: Arc<Mutex<Vec<Value>>>,
}

impl Group {
    fn start(plan: &Plan, stage: &str) -> Result<Self> {
        Self::with(plan, &["--stage", stage])
    }

    fn with(plan: &Plan, flags: &[&str]) -> Result<Self> {
        let program = &plan.program;
        let mut command = Command::new(program);
        command
            .args(["--local", "3", "--port", "0", "--json", "--allow-strikes"])
            .args(flags);
        if let Some(workers) = &plan.workers {
            command.args(["--workers", workers]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        dies_with_us(&mut command);
        let mut child = command.spawn().with_context(|| {
            format!(
                "{} cannot be started\n  fix:   make build-kv",
                program.display()
            )
        })?;
        let out = child.stdout.take().context("the group's output")?;
        let repaired: Arc<Mutex<Vec<(Instant, Value)>>> = Arc::default();
        let (ready, told) = std::sync::mpsc::channel();
        let list = repaired.clone();
        let troubles: Arc<Mutex<Vec<Value>>> = Arc::default();
        let others = troubles.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let now = Instant::now();
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                match event["event"].as_str() {
                    Some("ready") => drop(ready.send(event)),
                    Some("repaired") => list
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((now, event)),
                    Some("replace" | "replaced" | "stuck") => others
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(event),
                    _ => {}
                }
            }
        });
        let mut group = Self {
            child,
            clients: Vec::new(),
            repaired,
            troubles,
        };
        let event = told
            .recv_timeout(READY)
            .context("the group did not become ready")?;
        for at in event["clients"].as_array().into_iter().flatten() {
            group
                .clients
                .push(at.as_str().context("an address")?.parse()?);
        }
        Ok(group)
    }

    fn memcached(program: &Path) -> Result<Self> {
        let at = steadfast_workloads::load::process::free_address()?;
        let mut command = Command::new(program);
        command
            .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "1", "-p"])
            .arg(at.port().to_string());
        Self::of_one(
            command,
            at,
            "apt-get install memcached, or --memcached PROGRAM",
        )
    }

    /// A single server of these commands.
    fn of_one(mut command: Command, at: SocketAddr, fix: &str) -> Result<Self> {
        dies_with_us(&mut command);
        let name = command.get_program().display().to_string();
        let child = command
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("{name} cannot be started\n  fix:   {fix}"))?;
        let group = Self {
            child,
            clients: vec![at],
            repaired: Arc::default(),
            troubles: Arc::default(),
        };
        let until = Instant::now() + READY;
        while TcpStream::connect(at).is_err() {
            ensure!(Instant::now() < until, "{name} does not answer at {at}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(group)
    }

    /// Clients that have stored what they own.
    fn connect(&self, shape: Shape, seed: u64) -> Result<Clients> {
        Clients::connect(&self.clients, shape, seed)
    }

    /// One of the service's own commands, to one replica.
    fn ask(&self, replica: usize, line: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.clients[replica])?;
        stream.write_all(format!("sf {line}\r\n").as_bytes())?;
        let mut said = String::new();
        BufReader::new(stream).read_line(&mut said)?;
        Ok(said.trim_end().to_owned())
    }

    /// A count, summed over the replicas.
    fn count(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for replica in 0..self.clients.len() {
            let status: Value = serde_json::from_str(&self.ask(replica, "status")?)?;
            sum += status["counts"][name].as_u64().unwrap_or(0);
        }
        Ok(sum)
    }

    /// What each replica says about itself, for a report of what does not go on.
    fn standing(&self) -> String {
        let said = (0..self.clients.len()).map(|replica| match self.ask(replica, "status") {
            Ok(said) => said,
            Err(why) => format!("replica {replica}: {why}"),
        });
        let troubles = self.troubles();
        let troubles = troubles.iter().map(Value::to_string);
        said.chain(troubles).collect::<Vec<_>>().join("\n")
    }

    fn troubles(&self) -> Vec<Value> {
        self.troubles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn repairs(&self) -> Vec<Value> {
        let all = self.repairs_at().into_iter();
        all.map(|(_, event)| event).collect()
    }

    fn repairs_at(&self) -> Vec<(Instant, Value)> {
        self.repaired
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The median of the rounds, with the interval of the sign test.
fn row(key: String, what: String, values: &[f64], unit: &str) -> Row {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = ranks_cut(sorted.len());
    let (Some(low), Some(high)) = (sorted.get(cut), sorted.iter().rev().nth(cut)) else {
        return Row::new(key, what, f64::NAN, unit);
    };
    let digits = |value: f64| format!("{value:.4e}").parse().unwrap_or(value);
    Row::new(key, what, digits(sorted[sorted.len() / 2]), unit).within(
        digits(*low),
        digits(*high),
        sorted.len() as u64,
    )
}

/// How many values may be cut off at either end of a sorted list so that the rest still covers the median in 95 % of cases: the most for
/// which so many or fewer heads in `count` throws have at most 2.5 %.
fn ranks_cut(count: usize) -> usize {
    let mut cut = 0;
    let mut chance = 0.5_f64.powf(count as f64);
    let mut sum = chance;
    while sum <= 0.025 && cut < count {
        cut += 1;
        chance *= (count - cut + 1) as f64 / cut as f64;
        sum += chance;
    }
    // Ranks from `cut` on (counted from one) stay.
    cut.saturating_sub(1)
}

fn without_a_wrong_reply(load: &Load, column: &str) -> Result<()> {
    if load.wrong + load.refused > 0 {
        bail!(
            "{column} without a fault: {} wrong replies, {} errors, such as {:?}",
            load.wrong,
            load.refused,
            load.example
        );
    }
    Ok(())
}

/// A slice with this share of GET, behind one that does not count.
fn of_mix(load: &mut Clients, get_percent: usize, time: Duration, column: &str) -> Result<Load> {
    load.mix(get_percent);
    without_a_wrong_reply(&load.saturate(WARM)?, column)?;
    let found = load.saturate(time)?;
    without_a_wrong_reply(&found, column)?;
    Ok(found)
}

/// Of each round, one rate in percent of the other.
fn percent(over: &[f64], base: &[f64]) -> Vec<f64> {
    let rounds = over.iter().zip(base);
    rounds.map(|(over, base)| 100.0 * over / base).collect()
}

type Slice = (&'static str, usize, &'static str);

fn stages(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let mut columns = STAGES.to_vec();
    if plan.memcached.is_some() {
        columns.push("memcached");
    }
    let mut rates: BTreeMap<Slice, Vec<f64>> = BTreeMap::new();
    let mut tails: BTreeMap<Slice, Vec<f64>> = BTreeMap::new();
    let mut check: Vec<f64> = Vec::new();
    let mut half: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    let most = plan.clients.iter().copied().max().unwrap_or(1);
    let mut pace = 0.0;
    for round in 0..plan.rounds {
        for turn in 0..columns.len() {
            let stage = columns[(round + turn) % columns.len()];
            says(&format!("round {} of {}: {stage}", round + 1, plan.rounds));
            let group = match &plan.memcached {
                Some(program) if stage == "memcached" => Group::memcached(program)?,
                _ => Group::start(plan, stage)?,
            };
            for &clients in &plan.clients {
                let shape = Shape::of_paper(clients, 0);
                let mut load = group.connect(shape, plan.seed + round as u64)?;
                for (mix, percent) in MIXES {
                    load.mix(percent);
                    without_a_wrong_reply(&load.saturate(WARM)?, stage)?;
                    let before = (clients == most && stage == "RDGX")
                        .then(|| Ok((group.count("check_bytes")?, group.count("requests")?)))
                        .transpose()
                        .map_err(|why: anyhow::Error| why)?;
                    let mut found = load.saturate(plan.slice)?;
                    without_a_wrong_reply(&found, stage)?;
                    if let Some((bytes, requests)) = before {
                        let bytes = group.count("check_bytes")? - bytes;
                        let requests = group.count("requests")? - requests;
                        check.push(bytes as f64 / requests.max(1) as f64);
                    }
                    rates
                        .entry((mix, clients, stage))
                        .or_default()
                        .push(found.rate());
                    tails
                        .entry((mix, clients, stage))
                        .or_default()
                        .push(found.us(990));
                }
                // Half of what the slowest stage can do, for all of them.
                if clients == most && (stage == "RD" || stage == "RDGX") {
                    load.mix(75);
                    if pace == 0.0 {
                        pace = load.saturate(plan.slice)?.rate() / 2.5;
                    }
                    let mut found = load.pace(pace, plan.slice * 2)?;
                    without_a_wrong_reply(&found, stage)?;
                    half.entry((stage, "p50")).or_default().push(found.us(500));
                    half.entry((stage, "p99")).or_default().push(found.us(990));
                }
            }
        }
    }
    for ((mix, clients, stage), values) in &rates {
        let what = format!("{mix}, {clients} clients, {stage}");
        rows.push(row(
            format!("{mix}.c{clients}.{}", stage.to_lowercase()),
            what,
            values,
            "/s",
        ));
    }
    for (mix, _) in MIXES {
        for &clients in &plan.clients {
            for (over, base) in [("RDGX", "RD"), ("RDG", "RD"), ("RD", "R")] {
                let ratio = percent(&rates[&(mix, clients, over)], &rates[&(mix, clients, base)]);
                rows.push(row(
                    format!(
                        "{mix}.c{clients}.{}-over-{}",
                        over.to_lowercase(),
                        base.to_lowercase()
                    ),
                    format!("{mix}, {clients} clients, {over} over {base}"),
                    &ratio,
                    "%",
                ));
            }
        }
    }
    for &clients in &plan.clients {
        let values = &tails[&("mixed", clients, "RDGX")];
        rows.push(row(
            format!("p99.c{clients}"),
            format!("RDGX, 75:25, {clients} clients: p99"),
            values,
            "µs",
        ));
    }
    rows.push(row(
        "check.bytes".to_owned(),
        format!("CHECK bytes for a request and peer, {most} clients"),
        &check,
        "B",
    ));
    for ((stage, share), values) in &half {
        rows.push(row(
            format!("half.{}.{share}", stage.to_lowercase()),
            format!("response time at half load, {stage}, {share}"),
            values,
            "µs",
        ));
    }
    for share in ["p50", "p99"] {
        let added: Vec<f64> = half
            .get(&("RDGX", share))
            .into_iter()
            .flatten()
            .zip(half.get(&("RD", share)).into_iter().flatten())
            .map(|(with, without)| with - without)
            .collect();
        rows.push(row(
            format!("half.added.{share}"),
            format!("response time at half load, added by RDGX over RD, {share}"),
            &added,
            "µs",
        ));
    }
    Ok(())
}

/// GET beside the log (`--reads local`) at stages RD and RDGX: the same order on both sides, and a digest of each item at RDGX alone.
fn local_reads(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let stages = ["RD", "RDGX"];
    let clients = plan.clients.iter().copied().max().unwrap_or(1);
    let mut rates: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..plan.rounds {
        for turn in 0..stages.len() {
            let stage = stages[(round + turn) % stages.len()];
            says(&format!(
                "round {} of {}: {stage}, local reads",
                round + 1,
                plan.rounds
            ));
            let group = Group::with(plan, &["--stage", stage, "--reads", "local"])?;
            let shape = Shape::of_paper(clients, 0);
            let mut load = group.connect(shape, plan.seed + round as u64)?;
            for (mix, percent) in MIXES.into_iter().filter(|(_, percent)| *percent > 0) {
                let found = of_mix(&mut load, percent, plan.slice, stage)?;
                rates.entry((mix, stage)).or_default().push(found.rate());
            }
            let status: Value = serde_json::from_str(&group.ask(0, "status")?)?;
            ensure!(
                status["reads_local"].as_u64() > Some(0),
                "no read was local: {status}"
            );
        }
    }
    for ((mix, stage), values) in &rates {
        rows.push(row(
            format!("{mix}-local.c{clients}.{}", stage.to_lowercase()),
            format!("{mix}, reads beside the log, {clients} clients, {stage}"),
            values,
            "/s",
        ));
    }
    for (mix, _) in MIXES.into_iter().filter(|(_, percent)| *percent > 0) {
        let ratio = percent(&rates[&(mix, "RDGX")], &rates[&(mix, "RD")]);
        rows.push(row(
            format!("{mix}-local.c{clients}.rdgx-over-rd"),
            format!("{mix}, reads beside the log, {clients} clients, RDGX over RD"),
            &ratio,
            "%",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_median_is_that_of_the_sign_test() {
        // The ranks that tables of the sign test have: 2 to 9 of 10, 6 to 15 of 20, 14 to 27 of 40; of five no 95 % can be had.
        let cuts = [5, 6, 7, 10, 20, 40].map(ranks_cut);
        assert_eq!(cuts, [0, 0, 0, 1, 5, 13]);
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let row = row("k".into(), "what".into(), &values, "");
        assert_eq!((row.low, row.high), (Some(2.0), Some(9.0)));
    }
}
