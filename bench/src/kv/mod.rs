//! `bench kv`: what the stages of `steadfast kv` cost, how long a repair takes, and whether a struck group ever answers wrongly.
//!
//! Groups of the stages R, RD, RDG and RDGX are started one after the other in every round, in an order that rotates, and each answers
//! the same slices of load: SET, GET, and three GETs to a SET, at several numbers of clients. A ratio is taken within its round.
//!
//! Invariants
//!  1. Every reply is judged (`load`): a wrong one at a stage without a strike fails the bench.
//!  2. The interval of a median goes from the smallest to the largest of the rounds: of seven it covers 98 % (sign test).
//!  3. A group ends with its measurement, and with a bench that fails. One that is killed leaves its group behind.
//!
//! Not covered: replicas with CPUs of their own, and a network between them.

pub(crate) mod load;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use self::load::{Clients, Load, Shape};

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
/// Faults a second in the comparison with none.
const FAULTS_A_SECOND: f64 = 10.0;

/// What is measured, and for how long.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: PathBuf,
    /// A memcached to run beside the stages.
    pub memcached: Option<PathBuf>,
    pub rounds: usize,
    pub clients: Vec<usize>,
    pub slice: Duration,
    /// Repairs that are timed.
    pub repairs: usize,
    /// Strikes under load, each judged by what the clients are answered; 0 leaves them out.
    pub strikes: u64,
    /// Leave the stages out.
    pub strikes_only: bool,
    /// Reads beside the log, and nothing else.
    pub reads_only: bool,
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
    if plan.reads_only {
        local_reads(plan, says, &mut rows)?;
        return Ok(Report { rows });
    }
    if !plan.strikes_only {
        stages(plan, says, &mut rows)?;
        local_reads(plan, says, &mut rows)?;
        repairs(plan, says, &mut rows)?;
        faults(plan, says, &mut rows)?;
    }
    if plan.strikes > 0 {
        for stage in ["RDGX", "RD"] {
            strikes(plan, stage, says, &mut rows)?;
        }
    }
    Ok(Report { rows })
}

/// A group, or a single server.
struct Group {
    child: Child,
    clients: Vec<SocketAddr>,
    repaired: Arc<Mutex<Vec<Value>>>,
}

impl Group {
    fn start(program: &Path, stage: &str) -> Result<Self> {
        Self::with(program, &["--stage", stage])
    }

    fn with(program: &Path, flags: &[&str]) -> Result<Self> {
        let mut child = Command::new(program)
            .args(["--local", "3", "--port", "0", "--json", "--allow-strikes"])
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| {
                format!(
                    "{} cannot be started\n  fix:   make build-kv",
                    program.display()
                )
            })?;
        let out = child.stdout.take().context("the group's output")?;
        let repaired: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (ready, told) = std::sync::mpsc::channel();
        let list = repaired.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                match event["event"].as_str() {
                    Some("ready") => drop(ready.send(event)),
                    Some("repaired") => list
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
        let child = Command::new(program)
            .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-t", "1", "-p"])
            .arg(at.port().to_string())
            .spawn()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let group = Self {
            child,
            clients: vec![at],
            repaired: Arc::default(),
        };
        let until = Instant::now() + READY;
        while TcpStream::connect(at).is_err() {
            ensure!(Instant::now() < until, "memcached does not answer at {at}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(group)
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

    fn repairs(&self) -> Vec<Value> {
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

/// The median of the rounds, with the smallest and the largest.
fn row(key: String, what: String, values: &[f64], unit: &str) -> Row {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
        return Row::new(key, what, f64::NAN, unit);
    };
    let digits = |value: f64| format!("{value:.4e}").parse().unwrap_or(value);
    Row::new(key, what, digits(sorted[sorted.len() / 2]), unit).within(
        digits(*low),
        digits(*high),
        sorted.len() as u64,
    )
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
                _ => Group::start(&plan.program, stage)?,
            };
            for &clients in &plan.clients {
                let shape = Shape {
                    clients,
                    keys: KEYS,
                    key_bytes: KEY_BYTES,
                    value_bytes: VALUE_BYTES,
                    get_percent: 0,
                };
                let mut load = Clients::connect(&group.clients, shape, plan.seed + round as u64)?;
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
                let ratio: Vec<f64> = rates[&(mix, clients, over)]
                    .iter()
                    .zip(&rates[&(mix, clients, base)])
                    .map(|(over, base)| 100.0 * over / base)
                    .collect();
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
            let group = Group::with(&plan.program, &["--stage", stage, "--reads", "local"])?;
            let shape = Shape {
                clients,
                keys: KEYS,
                key_bytes: KEY_BYTES,
                value_bytes: VALUE_BYTES,
                get_percent: 0,
            };
            let mut load = Clients::connect(&group.clients, shape, plan.seed + round as u64)?;
            for (mix, percent) in MIXES.into_iter().filter(|(_, percent)| *percent > 0) {
                load.mix(percent);
                without_a_wrong_reply(&load.saturate(WARM)?, stage)?;
                let found = load.saturate(plan.slice)?;
                without_a_wrong_reply(&found, stage)?;
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
        let ratio: Vec<f64> = rates[&(mix, "RDGX")]
            .iter()
            .zip(&rates[&(mix, "RD")])
            .map(|(over, base)| 100.0 * over / base)
            .collect();
        rows.push(row(
            format!("{mix}-local.c{clients}.rdgx-over-rd"),
            format!("{mix}, reads beside the log, {clients} clients, RDGX over RD"),
            &ratio,
            "%",
        ));
    }
    Ok(())
}

/// One repair after the other of 512 bytes, from the mismatch to the right bytes.
fn repairs(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    says("repairs of 512 bytes");
    let group = Group::start(&plan.program, "RDGX")?;
    let mut rng = Rng::new(plan.seed);
    let shape = Shape {
        clients: 3,
        keys: KEYS,
        key_bytes: KEY_BYTES,
        value_bytes: 512,
        get_percent: 100,
    };
    let mut clients = Clients::connect(&group.clients, shape, plan.seed)?;
    for number in 0..plan.repairs {
        let key = clients.some_key(&mut rng);
        let replica = number % 3;
        let said = group.ask(
            replica,
            &format!(
                "strike replica={replica} object=item:{key} byte={} bit=3",
                rng.below(512)
            ),
        )?;
        ensure!(said == "STRUCK", "{said}");
        let until = Instant::now() + READY;
        while group.repairs().len() <= number {
            ensure!(
                Instant::now() < until,
                "strike {number} was not repaired in {READY:?}"
            );
            without_a_wrong_reply(&clients.saturate(Duration::from_millis(20))?, "a strike")?;
        }
    }
    let all = group.repairs();
    let parts = [
        (
            "took_us",
            "repair",
            "repair of 512 B, mismatch to right bytes",
        ),
        ("ordered_us", "repair.ordered", "of it: until it is ordered"),
        ("moved_us", "repair.moved", "of it: vote, fetch, replace"),
    ];
    for (field, key, what) in parts {
        let mut values: Vec<f64> = all
            .iter()
            .filter_map(|event| Some(event[field].as_u64()? as f64 / 1000.0))
            .collect();
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // The interval of a mean of so many values, by the normal law.
        let spread = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>()
            / (values.len() as f64 - 1.0).max(1.0);
        let half = 1.96 * (spread / values.len() as f64).sqrt();
        let digits = |value: f64| (value * 1000.0).round() / 1000.0;
        rows.push(
            Row::new(
                format!("{key}.mean"),
                format!("{what}, mean"),
                digits(mean),
                "ms",
            )
            .within(
                digits(mean - half),
                digits(mean + half),
                values.len() as u64,
            ),
        );
    }
    Ok(())
}

/// Ten faults a second against none, in slices that take turns in one group.
fn faults(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    says("ten faults a second, and none");
    let group = Group::start(&plan.program, "RDGX")?;
    let shape = Shape {
        clients: 30,
        keys: KEYS,
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
        get_percent: 75,
    };
    let mut clients = Clients::connect(&group.clients, shape, plan.seed)?;
    clients.saturate(WARM)?;
    let mut ratios = Vec::new();
    for round in 0..plan.rounds {
        let mut rate = [0.0; 2];
        for turn in 0..2 {
            let struck = (round + turn) % 2;
            let load = if struck == 1 {
                under_strikes(
                    &group,
                    &mut clients,
                    plan.slice * 4,
                    FAULTS_A_SECOND,
                    plan.seed + round as u64,
                )?
                .0
            } else {
                clients.saturate(plan.slice * 4)?
            };
            ensure!(load.wrong == 0, "a wrong reply: {:?}", load.example);
            rate[struck] = load.rate();
        }
        ratios.push(100.0 * rate[1] / rate[0]);
    }
    rows.push(row(
        "faults.10-over-0".to_owned(),
        "throughput with 10 faults a second over that with none".to_owned(),
        &ratios,
        "%",
    ));
    Ok(())
}

/// Load for a while, with strikes at random objects, fields, bytes and bits of random replicas; how many hit.
fn under_strikes(
    group: &Group,
    clients: &mut Clients,
    time: Duration,
    a_second: f64,
    seed: u64,
) -> Result<(Load, u64)> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let keys: Vec<String> = (0..512).map(|_| clients.some_key(&mut rng)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let striker = scope.spawn(|| -> Result<u64> {
            let mut lines = Vec::new();
            for at in &group.clients {
                let stream = TcpStream::connect(at)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(READY))?;
                lines.push(BufReader::new(stream));
            }
            let began = Instant::now();
            let mut hits = 0;
            let mut turn = 0;
            while !over.load(Ordering::Relaxed) {
                let due = began + Duration::from_secs_f64(f64::from(turn) / a_second);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                turn += 1;
                // An object is hit in one replica alone: two at a time are more than the vote promises to stand.
                let key = rng.below(keys.len());
                let replica = keys[key].bytes().map(usize::from).sum::<usize>() % lines.len();
                let (field, bytes) = [
                    ("value", VALUE_BYTES),
                    ("key", KEY_BYTES),
                    ("flags", 4),
                    ("expires", 8),
                    ("cas", 8),
                ][[0, 0, 0, 0, 0, 0, 1, 2, 3, 4][rng.below(10)]];
                let line = format!(
                    "sf strike replica={replica} object=item:{} field={field} byte={} bit={}\r\n",
                    keys[key],
                    rng.below(bytes),
                    rng.below(8)
                );
                lines[replica].get_mut().write_all(line.as_bytes())?;
                let mut said = String::new();
                lines[replica].read_line(&mut said)?;
                match said.trim_end() {
                    "STRUCK" => hits += 1,
                    // Struck before, and not repaired yet: its key or its lengths do not read.
                    said if said.starts_with("ERROR") => {}
                    said => bail!("a strike was answered with {said:?}"),
                }
            }
            Ok(hits)
        });
        let load = clients.saturate(time);
        over.store(true, Ordering::Relaxed);
        let hits = striker
            .join()
            .map_err(|_| anyhow::anyhow!("the striker panicked"))??;
        Ok((load?, hits))
    })
}

/// Strikes until there are enough, and what the clients were answered.
fn strikes(
    plan: &Plan,
    stage: &str,
    says: &mut dyn FnMut(&str),
    rows: &mut Vec<Row>,
) -> Result<()> {
    let group = Group::start(&plan.program, stage)?;
    let shape = Shape {
        clients: 30,
        keys: 100,
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
        get_percent: 75,
    };
    let mut clients = Clients::connect(&group.clients, shape, plan.seed)?;
    let mut sum = Load::default();
    let mut hits = 0;
    // Without the vote a group serves wrong values from the first second on: a look is enough.
    let wanted = if stage == "RDGX" {
        plan.strikes
    } else {
        plan.strikes.min(500)
    };
    while hits < wanted {
        let (load, struck) = under_strikes(
            &group,
            &mut clients,
            Duration::from_secs(5),
            200.0,
            plan.seed + hits,
        )?;
        hits += struck;
        sum.add(load);
        says(&format!(
            "{stage}: {hits} strikes, {} requests, {} wrong replies, {} errors{}",
            sum.requests,
            sum.wrong,
            sum.refused,
            sum.example
                .iter()
                .map(|text| format!(", such as {text:?}"))
                .collect::<String>()
        ));
    }
    let key = stage.to_lowercase();
    rows.push(Row::share(
        format!("strikes.{key}.wrong"),
        format!("wrong replies for each strike under load, {stage}"),
        sum.wrong.min(hits),
        hits,
    ));
    rows.push(Row::share(
        format!("strikes.{key}.refused"),
        format!("requests under strikes that were answered with an error, {stage}"),
        sum.refused,
        sum.requests,
    ));
    if stage == "RDGX" {
        let repairs = group.count("repairs")?;
        rows.push(Row::share(
            format!("strikes.{key}.repaired"),
            "strikes that a repair undid; a SET undoes the others".to_owned(),
            repairs.min(hits),
            hits,
        ));
    }
    Ok(())
}
