//! `bench server-flips`: bits flip in servers under load, and a client that knows every reply watches.
//!
//! ```text
//!   server, protected ── flips by the clock, one after the other ──► SIGTERM, or it has stopped itself
//!     ▲ clients: write, read, compare                                  │
//!     └────────────────────────────────────────── started again, bare: is every acknowledged write there?
//! ```
//!
//! One server takes a number of flips (an *episode*): repaired ones let it go on, and one that cannot be repaired ends it. Flips strike
//! registers and the top of the stack of whatever code a replica executes at that moment, of the program's and of libraries.
//!
//! Invariants
//!  1. An episode's flips follow from seed and number, but for when they begin; each episode is a line of a file, and a call goes
//!     on where the last one stopped.
//!  2. A flip that has not hit proves nothing: only those that have are counted.
//!  3. Without a flip nothing is wrong and nobody says anything: each server lives so once, before.
//!  4. A write counts as acknowledged when its reply has been read. redis and PostgreSQL have put it on disk by then.
//!
//! Not covered: writes to memcached, which keeps nothing over its own end; what strikes kernel or launcher.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_contract::plan::{ProgramEnd, RunReport};
use steadfast_report::published::Row;
use steadfast_report::stats::{Confidence, Tally};
use steadfast_workloads::inputs::Rng;

use super::check::{self, Client};
use super::service::{Data, Service, Started};
use crate::product::{Files, Product};
use crate::table;

/// Clients of each server.
const CLIENTS: usize = 4;
/// Flips of one episode: as many as one command takes.
const FLIPS: usize = 16;
/// A start may take so much longer than twice the one before.
const SLACK: Duration = Duration::from_secs(1);
/// Of one life: a stream that is out of step has a wrong reply for each request. The file has all.
const SHOWN: usize = 3;
const SHOWN_CHARS: usize = 160;
/// Load on a server that nothing strikes.
const QUIET: Duration = Duration::from_millis(500);

/// What is struck.
struct Target {
    name: &'static str,
    service: Service,
    /// Processes that serve clients, in the order in which the server makes processes.
    busy: Range<usize>,
    /// Each of them is made for one client: its time begins then.
    for_one: bool,
}

const TARGETS: [Target; 4] = [
    Target {
        name: "redis",
        service: Service::Redis,
        busy: 0..1,
        for_one: false,
    },
    Target {
        name: "memcached",
        service: Service::Memcached,
        busy: 0..1,
        for_one: false,
    },
    Target {
        name: "nginx",
        service: Service::Nginx,
        busy: 1..2,
        for_one: false,
    },
    Target {
        name: "postgres",
        service: Service::Postgres,
        busy: 9..13,
        for_one: true,
    },
];

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    pub product: &'a Product,
    pub dir: &'a Path,
    /// A line for each episode; those that are there are not done again.
    pub lines: &'a Path,
    /// Names of servers, or their beginnings; all if there are none.
    pub servers: Vec<String>,
    pub replicas: u8,
    /// Flips that have hit, of each server.
    pub flips: u64,
    /// Between two flips, in milliseconds: a repair is to be over by then.
    pub pause_ms: u64,
    pub seed: u64,
}

/// One server's life.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Episode {
    pub server: String,
    pub replicas: u8,
    pub seed: u64,
    pub id: u64,
    /// The lines that make its flips again, and which of them have hit.
    pub faults: Vec<String>,
    pub fired: u64,
    pub divergences: u64,
    pub recoveries: u64,
    /// Steadfast has ended it, since it could not be repaired.
    pub stopped: bool,
    /// What was said last then.
    #[serde(default)]
    pub words: String,
    pub requests: u64,
    pub wrong: Vec<String>,
    pub lost: Vec<String>,
}

/// All episodes of a file.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlipsReport {
    pub episodes: Vec<Episode>,
    pub complete: bool,
}

/// Flips until each server has had its number.
///
/// # Errors
/// When no server has such a name, one cannot be started, or an episode cannot be judged.
pub fn measure(
    plan: &Plan<'_>,
    interrupted: &dyn Fn() -> bool,
    says: &mut dyn FnMut(&str),
) -> Result<FlipsReport> {
    let wanted = |target: &&Target| {
        plan.servers.is_empty()
            || plan
                .servers
                .iter()
                .any(|name| target.name.starts_with(name.as_str()))
    };
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    let names = TARGETS.map(|target| target.name).join(", ");
    ensure!(
        !targets.is_empty(),
        "--servers: one of {names} is required, found {}",
        plan.servers.join(", ")
    );
    for target in &targets {
        target.service.check()?;
    }
    let mut report = FlipsReport {
        episodes: earlier(plan)?,
        complete: true,
    };
    for target in targets {
        let mut ready = None;
        loop {
            let (mut id, mut fired) = (0, 0);
            for one in report.episodes.iter().filter(|one| one.is_of(plan, target)) {
                id = id.max(one.id + 1);
                fired += one.fired;
            }
            if fired >= plan.flips {
                break;
            }
            if interrupted() {
                report.complete = false;
                return Ok(report);
            }
            says(&format!("{}: {fired} of {} flips", target.name, plan.flips));
            let ready = match ready {
                Some(ready) => ready,
                None => *ready.insert(quiet(plan, target).with_context(|| target.name)?),
            };
            let episode = live(plan, target, id, ready)
                .with_context(|| format!("{}, episode {id}", target.name))?;
            append(plan.lines, &episode)?;
            report.episodes.push(episode);
        }
    }
    Ok(report)
}

impl Episode {
    fn is_of(&self, plan: &Plan<'_>, target: &Target) -> bool {
        self.server == target.name && self.replicas == plan.replicas && self.seed == plan.seed
    }
}

fn earlier(plan: &Plan<'_>) -> Result<Vec<Episode>> {
    let text = fs::read_to_string(plan.lines).unwrap_or_default();
    // The last line of a call that was killed may be half of one.
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    lines
        .map(|line| serde_json::from_str(line).with_context(|| plan.lines.display().to_string()))
        .collect()
}

fn append(lines: &Path, episode: &Episode) -> Result<()> {
    let mut file = fs::File::options().append(true).create(true).open(lines)?;
    let line = serde_json::to_string(episode)? + "\n";
    Ok(file.write_all(line.as_bytes())?)
}

/// The flips of an episode.
fn drawn(plan: &Plan<'_>, target: &Target, id: u64, from: Duration) -> Vec<String> {
    const REGISTERS: [&str; 16] = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15", "rsp",
    ];
    let mut rng = Rng::new(plan.seed ^ id.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let pause = i64::try_from(plan.pause_ms).unwrap_or(i64::MAX / 4).max(2);
    let from = i64::try_from(from.as_millis()).unwrap_or(i64::MAX / 4);
    let mut at = from;
    let mut idle = Vec::new();
    (0..FLIPS)
        .map(|_| {
            at += rng.between(pause / 2, 3 * pause / 2);
            let place = if rng.chance(75) {
                format!("reg={}", rng.pick(&REGISTERS))
            } else {
                format!("mem=[rsp+{}]", 8 * rng.below(32))
            };
            // One that waits all the time keeps a flip until it goes on: a second one would be two faults at once.
            let mut process = rng.below(target.busy.end);
            if !target.busy.contains(&process) && idle.contains(&process) {
                process = target.busy.start + rng.below(target.busy.len());
            }
            idle.push(process);
            let at = if target.for_one && target.busy.contains(&process) {
                at - from
            } else {
                at
            };
            format!(
                "replica={} process={process} time={at}ms {place} bit={}",
                rng.below(plan.replicas.into()),
                rng.below(64)
            )
        })
        .collect()
}

/// A life without a fault, in which nothing may be said or wrong: how long it takes until clients are served.
fn quiet(plan: &Plan<'_>, target: &Target) -> Result<Duration> {
    fs::create_dir_all(plan.dir)?;
    let words = [format!("--replicas={}", plan.replicas)];
    let dir = plan.dir.join(target.name);
    let begun = Instant::now();
    let mut server = target
        .service
        .start_with(&dir, Some((plan.product, &words)), Data::Kept)?;
    check::prepare(target.service, server.address)?;
    let ready = begun.elapsed();
    let mut clients = clients(target, plan.seed);
    under_load(&mut server, &mut clients, QUIET);
    server.stop()?;
    let mut wrong = lost(target, &dir, &mut clients)?;
    wrong.extend(clients.into_iter().flat_map(|client| client.wrong));
    ensure!(wrong.is_empty(), "without a fault: {}", wrong.join("; "));
    Ok(ready)
}

fn clients(target: &Target, seed: u64) -> Vec<Client> {
    (0..CLIENTS)
        .map(|number| Client::new(target.service, number, seed))
        .collect()
}

/// `ready`: when clients are served, at the earliest.
fn live(plan: &Plan<'_>, target: &Target, id: u64, ready: Duration) -> Result<Episode> {
    let dir = plan.dir.join(target.name);
    let files = Files {
        report: fs::canonicalize(plan.dir)?
            .join(target.name)
            .join("report.json"),
        events: None,
    };
    let from = 2 * ready + SLACK;
    let faults = drawn(plan, target, id, from);
    let mut words = vec![
        format!("--replicas={}", plan.replicas),
        format!("--json={}", files.report.display()),
    ];
    words.extend(faults.iter().map(|fault| format!("--flip={fault}")));
    let last = from + Duration::from_millis((FLIPS as u64 + 2) * plan.pause_ms);
    let begun = Instant::now();
    let mut server = target
        .service
        .start_with(&dir, Some((plan.product, &words)), Data::Kept)?;
    let mut clients = clients(target, plan.seed ^ (id + 1) << 8);
    // One that is struck before it has its table is no server yet: what it says then is not judged.
    if check::prepare(target.service, server.address).is_ok() {
        under_load(
            &mut server,
            &mut clients,
            last.saturating_sub(begun.elapsed()),
        );
    }
    let ended = server.has_ended()?;
    server.end()?;
    let report = files
        .read_report()
        .with_context(|| format!("it said:\n{}", server.last_words()))?;
    let words = server.protectors_words();
    let lost = lost(target, &dir, &mut clients)?;
    let mut episode = judged(plan, target, id, faults, &report, clients, lost);
    if episode.stopped {
        episode.words = words;
    } else if ended {
        let end = format!("it ended by itself: {:?}", report.end);
        episode.wrong.push(end);
    }
    Ok(episode)
}

/// Lets clients ask until the last flip, or the server's end.
fn under_load(server: &mut Started, clients: &mut [Client], time: Duration) {
    let stop = AtomicBool::new(false);
    let address = server.address;
    thread::scope(|scope| {
        let asking: Vec<_> = clients
            .iter_mut()
            .map(|client| scope.spawn(|| client.ask(address, &stop)))
            .collect();
        let begin = Instant::now();
        while begin.elapsed() < time && !asking.iter().all(|one| one.is_finished()) {
            thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Acknowledged writes that are not there when the server runs on the same data, bare.
fn lost(target: &Target, dir: &Path, clients: &mut [Client]) -> Result<Vec<String>> {
    if !matches!(target.service, Service::Redis | Service::Postgres) {
        return Ok(Vec::new());
    }
    let mut server = target.service.start_with(dir, None, Data::Left)?;
    let mut lost = Vec::new();
    if clients.iter().any(|client| client.requests > 0) {
        for client in clients {
            lost.extend(client.lost(server.address)?);
        }
    }
    server.end()?;
    Ok(lost)
}

fn judged(
    plan: &Plan<'_>,
    target: &Target,
    id: u64,
    faults: Vec<String>,
    report: &RunReport,
    clients: Vec<Client>,
    lost: Vec<String>,
) -> Episode {
    Episode {
        server: target.name.to_owned(),
        replicas: plan.replicas,
        seed: plan.seed,
        id,
        faults,
        fired: report.faults.iter().filter(|fault| fault.hits > 0).count() as u64,
        divergences: report.divergences,
        recoveries: report.recoveries,
        stopped: matches!(report.end, ProgramEnd::Stopped(_)),
        words: String::new(),
        requests: clients.iter().map(|client| client.requests).sum(),
        wrong: clients
            .into_iter()
            .flat_map(|client| client.wrong)
            .collect(),
        lost,
    }
}

/// The sums of one server.
#[derive(Debug, Default)]
struct Sums {
    episodes: u64,
    fired: u64,
    recoveries: u64,
    stopped: u64,
    requests: u64,
    wrong: u64,
    lost: u64,
}

impl Sums {
    fn add(&mut self, one: &Episode) {
        self.episodes += 1;
        self.fired += one.fired;
        self.recoveries += one.recoveries;
        self.stopped += u64::from(one.stopped);
        self.requests += one.requests;
        self.wrong += one.wrong.len() as u64;
        self.lost += one.lost.len() as u64;
    }

    fn line(&self, name: String) -> Vec<String> {
        let bad = (self.wrong + self.lost).min(self.fired);
        let upper = Tally::new(bad, self.fired.max(1)).upper(Confidence::P95);
        vec![
            name,
            self.episodes.to_string(),
            self.fired.to_string(),
            self.recoveries.to_string(),
            self.stopped.to_string(),
            self.requests.to_string(),
            self.wrong.to_string(),
            self.lost.to_string(),
            if self.fired == 0 {
                "-".to_owned()
            } else {
                format!("{upper:.1e}")
            },
        ]
    }
}

/// Flips after which a client saw what it must not, of those that have hit: for docs/specification.toml.
#[must_use]
pub fn rows(report: &FlipsReport) -> Vec<Row> {
    let mut by_server: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for one in &report.episodes {
        // Several wrong replies may be one flip's: an episode that has any counts once.
        let bad = u64::from(!(one.wrong.is_empty() && one.lost.is_empty())).min(one.fired);
        for name in [&*one.server, "all"] {
            let sums = by_server
                .entry(format!("flips.{name}.n{}", one.replicas))
                .or_default();
            sums.0 += bad;
            sums.1 += one.fired;
        }
    }
    let what = "wrong or missing replies, lost acknowledged writes, of flips";
    by_server
        .into_iter()
        .map(|(key, (bad, fired))| Row::share(key, what, bad, fired))
        .collect()
}

/// The report as text.
#[must_use]
pub fn render(report: &FlipsReport) -> String {
    let mut by_server: BTreeMap<String, Sums> = BTreeMap::new();
    let mut all = Sums::default();
    for one in &report.episodes {
        let name = format!("{}, n={}", one.server, one.replicas);
        by_server.entry(name).or_default().add(one);
        all.add(one);
    }
    let mut lines: Vec<Vec<String>> = by_server
        .into_iter()
        .map(|(name, sums)| sums.line(name))
        .collect();
    lines.push(all.line("all".to_owned()));
    let heads = [
        "server",
        "lives",
        "flips",
        "repairs",
        "stopped",
        "requests",
        "wrong replies",
        "lost writes",
        "rate below (95 %)",
    ];
    let mut out = table::render(&heads, &lines);
    for one in &report.episodes {
        for (what, which) in [("wrong reply", &one.wrong), ("lost write", &one.lost)] {
            for found in which.iter().take(SHOWN) {
                let found: String = found.chars().take(SHOWN_CHARS).collect();
                out += &format!("{what}: {} {} {}: {found}\n", one.server, one.seed, one.id);
            }
        }
    }
    if !report.complete {
        out += "INTERRUPTED\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan<'a>(product: &'a Product) -> Plan<'a> {
        Plan {
            product,
            dir: Path::new("."),
            lines: Path::new("lines"),
            servers: Vec::new(),
            replicas: 3,
            flips: 1,
            pause_ms: 100,
            seed: 7,
        }
    }

    #[test]
    fn flips_follow_from_seed_and_number_and_one_that_waits_is_struck_once() {
        let product = Product::find();
        let plan = plan(&product);
        for target in &TARGETS {
            for id in 0..50 {
                let flips = drawn(&plan, target, id, Duration::from_secs(2));
                assert_eq!(flips, drawn(&plan, target, id, Duration::from_secs(2)));
                let idle: Vec<&str> = flips
                    .iter()
                    .filter_map(|flip| flip.split("process=").nth(1)?.split(' ').next())
                    .filter(|process| !target.busy.contains(&process.parse().expect("a number")))
                    .collect();
                let once: std::collections::BTreeSet<_> = idle.iter().collect();
                assert_eq!(once.len(), idle.len(), "{flips:?}");
            }
        }
    }

    #[test]
    fn a_life_with_a_wrong_reply_counts_once_and_a_quiet_one_not() {
        let life = |wrong: &[&str]| Episode {
            server: "redis".to_owned(),
            replicas: 3,
            seed: 1,
            id: 0,
            faults: Vec::new(),
            fired: 16,
            divergences: 1,
            recoveries: 1,
            stopped: false,
            words: String::new(),
            requests: 9,
            wrong: wrong.iter().map(|one| (*one).to_owned()).collect(),
            lost: Vec::new(),
        };
        let report = FlipsReport {
            episodes: vec![life(&[]), life(&["a", "b"])],
            complete: true,
        };
        let rows = rows(&report);
        let all = rows.iter().find(|row| row.key == "flips.all.n3");
        assert_eq!(all.map(|row| (row.hits, row.n)), Some((Some(1), Some(32))));
        assert!(render(&report).contains("wrong reply: redis 1 0: a"));
    }
}
