//! `bench inject`: what planting faults costs, how much of a program it reaches, and how many runs
//! a second it does.
//!
//! The programs were fixed before the first measurement: gzip, python3, grep, perl, sqlite3 and
//! memcached with a trace of requests. Bare and armed runs take turns, each in the same sandbox and
//! started the same way; an armed run carries a drawn fault whose execution never comes.
//!
//! Exactness is measured on the control target of `steadfast inject doctor`, where single steps
//! can follow: planted and stepped runs of one fault have to agree in what they hit and how they
//! end. Nothing is left out of a median.
//!
//! Not covered: programs protected by replicas.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use steadfast_contract::outcome::Outcome;
use steadfast_inject::campaign::{Field, Order, Running};
use steadfast_inject::chacha::Seed;
use steadfast_inject::doctor;
use steadfast_inject::models::Model;
use steadfast_inject::record::{Dir, Planned};
use steadfast_inject::sandbox::Ask;
use steadfast_inject::server::{Client, Driver, Ready};
use steadfast_inject::target::Ran;
use steadfast_report::published;
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::replay;

use crate::machine::Machine;
use crate::results;
use crate::stats::{estimate, median, quantile};
use crate::table;

/// The programs, in the order of the table.
pub const PROGRAMS: [&str; 6] = ["gzip", "python3", "grep", "perl", "sqlite3", "memcached"];

/// More executions than any run has.
const NEVER: &str = "n=1152921504606846976";

/// Seconds of each throughput row, per program.
const THROUGHPUT_S: u64 = 8;

/// Longest single run.
const PATIENCE: Duration = Duration::from_secs(30);

/// One program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub program: String,
    /// Why it was not measured.
    pub error: Option<String>,
    /// Nanoseconds of CPU time, loader included.
    pub bare: Vec<f64>,
    pub armed: Vec<f64>,
    /// Of each armed run: writing the payloads, and everything before the program goes.
    pub plant: Vec<f64>,
    pub setup: Vec<f64>,
    /// CPU time of counted runs.
    pub count: Vec<f64>,
    pub instructions: u64,
    /// Shares of executed instructions.
    pub reachable: f64,
    pub reachable_step: f64,
    /// Runs a second: with a fault that never comes, second by second, and with drawn ones.
    pub control_runs_per_s: Vec<f64>,
    pub faults_per_s: Option<f64>,
    /// What became of the latter, by outcome.
    pub outcomes: std::collections::BTreeMap<String, u64>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InjectReport {
    pub bench: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seed: u64,
    pub rows: Vec<Row>,
    /// Drawn faults that planting and stepping agree about, and all.
    pub exact: (usize, usize),
    pub different: Vec<String>,
    pub complete: bool,
}

/// How much is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    pub rounds: usize,
    pub seed: u64,
    /// Only these; all if empty.
    pub programs: Vec<String>,
    /// Drawn faults for exactness; 0 leaves it out.
    pub exact: usize,
    /// Whether throughput is measured.
    pub throughput: bool,
    /// A memcached [default: one of the machine].
    pub memcached: Option<PathBuf>,
}

/// CPU time: a planted run's wall time begins where it is let go, behind its loader.
fn nanos(ran: &Ran) -> f64 {
    ran.cpu_ns as f64
}

fn find(name: &str) -> Result<PathBuf> {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .map(|dir| Path::new(dir).join(name))
        .find(|path| path.exists())
        .with_context(|| format!("{name} is needed: apt install {name}"))
}

/// Lines of words and numbers that depend on the seed alone.
fn text(rng: &mut Rng, lines: usize) -> String {
    let mut out = String::new();
    for line in 0..lines {
        out += &format!("{line} ");
        for _ in 0..8 {
            let word: String = (0..3 + rng.below(6))
                .map(|_| char::from(b'a' + rng.below(26).to_le_bytes()[0]))
                .collect();
            out += &word;
            out.push(' ');
        }
        out += &format!("{}\n", rng.below(1_000_000));
    }
    out
}

/// The order for one program; its files lie in `dir`, which the user of the sandbox can read.
fn order(name: &str, dir: &Path, settings: &Settings) -> Result<Order> {
    let root = steadfast_inject::campaign::machine().root;
    let mut order = doctor::control(&dir.join("control"), false, root.then_some(61_000))?;
    let mut rng = Rng::new(settings.seed);
    let file = |name: &str, text: &[u8]| -> Result<String> {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path.display().to_string())
    };
    // Sizes that make a run of some 50 ms.
    let words =
        |lines: usize, rng: &mut Rng| file(&format!("{name}.txt"), text(rng, lines).as_bytes());
    let args: Vec<String> = match name {
        "gzip" => vec!["-c".into(), words(20_000, &mut rng)?],
        "python3" => vec![
            "-ISE".into(),
            "-c".into(),
            "import json\nd={str(i):[i,i*i,str(i)*3] for i in range(15000)}\nt=json.dumps(d)\nprint(len(t),sum(v[1] for v in json.loads(t).values()))".into(),
        ],
        "grep" => vec!["-cE".into(), "[aeiou]{3}.*[0-9]{4}$".into(), words(180_000, &mut rng)?],
        "perl" => vec![
            "-ne".into(),
            "$n{$_}++ for split; END { print scalar(keys %n), qq( $.\\n) }".into(),
            words(17_000, &mut rng)?,
        ],
        "sqlite3" => {
            let sql = "create table t(a integer primary key, b integer, c text);\n\
                with recursive n(i) as (select 1 union all select i+1 from n where i<60000) \
                insert into t select i, i*7919%10007, 'row '||i from n;\n\
                create index b on t(b);\nselect count(*), sum(a*b), max(c) from t where b<5000;\n";
            order.spec.stdin = Some(file("sqlite3.sql", sql.as_bytes())?.into());
            vec![":memory:".into()]
        }
        "memcached" => {
            let trace = replay::written(&replay::memcached::trace(settings.seed, 400));
            order.spec.driver = Some(Driver {
                client: Client::Trace { file: file("trace", &trace)?.into(), envelope: false },
                ready: Ready::Port(11_211),
                stop: libc::SIGKILL,
                error_reply: Some("^(SERVER_|CLIENT_)?ERROR".parse()?),
            });
            "-l 127.0.0.1 -p 11211 -U 0 -t 1 -m 64 -o no_lru_crawler,no_lru_maintainer,no_slab_reassign"
                .split(' ')
                .map(str::to_owned)
                .collect()
        }
        other => bail!("no program is called {other:?}; known: {}", PROGRAMS.join(", ")),
    };
    let program = match (name, &settings.memcached) {
        ("memcached", Some(program)) => program.clone(),
        _ => find(name)?,
    };
    order.spec.path = program.canonicalize()?;
    order.spec.argv = [vec![name.to_owned()], args].concat();
    order.spec.env = [
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C"),
        ("PYTHONHASHSEED", "0"),
        ("PERL_HASH_SEED", "0"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .to_vec();
    order.spec.file_size = 1 << 30;
    order.spec.memory = 4 << 30;
    order.spec.processes = 4096;
    order.dir = dir.join(name);
    order.scratch = dir.to_owned();
    order.models = Model::SEI.to_vec();
    order.seed = Seed::parse(&format!("{:x}", settings.seed)).context("a seed")?;
    order.only = Vec::new();
    order.detector = steadfast_inject::judge::Detector::default();
    order.patience = PATIENCE;
    Ok(order)
}

/// The fault, at an execution that never comes.
fn dummy(planned: &Planned) -> Option<String> {
    let (head, rest) = planned.fault.split_once(" n=")?;
    let (_, tail) = rest.split_once(' ')?;
    Some(format!("{head} {NEVER} {tail}"))
}

fn costs(order: &Order, rounds: usize, row: &mut Row) -> Result<()> {
    let mut order = order.clone();
    order.runs = rounds.div_ceil(order.models.len()) as u64;
    let mut field = Field::open(&order)?;
    let (drafted, profile) = field.draft(&mut |_| ())?;
    row.instructions = drafted.population.counts.dynamic;
    row.reachable = drafted.population.reachable_share();
    // What single steps reach as well: everything whose executions are counted.
    let unknown = profile.unknown as f64 / drafted.population.counts.dynamic.max(1) as f64;
    row.reachable_step = 1.0 - unknown;
    let lines: Vec<String> = drafted.plan.iter().filter_map(dummy).collect();
    for line in lines.iter().take(rounds) {
        let sandbox = field.sandbox();
        let bare = sandbox.run(&Ask::Bare(None), PATIENCE)?;
        let armed = sandbox.run(&Ask::Plant(vec![line.clone()]), PATIENCE)?;
        if (bare.status, bare.signal) != (armed.status, armed.signal) || bare.status.is_none() {
            bail!(
                "ends with {:?} bare and {:?} armed",
                bare.status,
                armed.status
            );
        }
        row.bare.push(nanos(&bare));
        row.armed.push(nanos(&armed));
        row.plant.push(armed.plant_ns as f64);
        row.setup.push(armed.setup_ns as f64);
    }
    row.count.push(nanos(&profile.ran));
    for _ in 1..rounds.min(5) {
        row.count.push(nanos(&field.profile()?.ran));
    }
    Ok(())
}

/// Runs that ended in each whole second, on all CPUs, and what became of all.
fn rate(
    order: &Order,
    lines: Vec<String>,
) -> Result<(Vec<f64>, std::collections::BTreeMap<String, u64>)> {
    let mut order = order.clone();
    order.jobs = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    order.runs = 100_000 / (7 - 6 * u64::from(!lines.is_empty()));
    order.lines = lines;
    if !order.lines.is_empty() {
        order.models = Vec::new();
    }
    let _ = fs::remove_dir_all(&order.dir);
    let mut running = Running::prepare(&order, "bench", &mut |_| ())?;
    let ended: Mutex<Vec<Duration>> = Mutex::default();
    let (stop, from) = (AtomicBool::new(false), Instant::now());
    running.run(&stop, &|| false, &|_| {
        let at = from.elapsed();
        ended.lock().expect("no panics inside").push(at);
        if at.as_secs() >= THROUGHPUT_S {
            stop.store(true, Ordering::Relaxed);
        }
    })?;
    let rate = by_second(&ended.into_inner().expect("no panics inside"));
    drop(running);
    let mut outcomes = std::collections::BTreeMap::new();
    for run in Dir::new(&order.dir).runs()?.values() {
        *outcomes
            .entry(run.outcome.outcome().word().to_owned())
            .or_default() += 1;
    }
    let _ = fs::remove_dir_all(&order.dir);
    Ok((rate, outcomes))
}

/// How many of these ends fall into each whole second of the throughput's time. What ends after it was begun within it, and is left out.
fn by_second(ended: &[Duration]) -> Vec<f64> {
    let count = |second: u64| ended.iter().filter(|at| at.as_secs() == second).count() as f64;
    (0..THROUGHPUT_S).map(count).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn throughput(order: &Order, row: &mut Row) -> Result<()> {
    let mut one = order.clone();
    one.runs = 1;
    one.models.truncate(1);
    let line = {
        let (drafted, _) = Field::open(&one)?.draft(&mut |_| ())?;
        drafted
            .plan
            .first()
            .and_then(dummy)
            .context("a drawn fault")?
    };
    row.control_runs_per_s = rate(order, vec![line])?.0;
    let (real, outcomes) = rate(order, Vec::new())?;
    row.faults_per_s = mean(&real);
    row.outcomes = outcomes;
    Ok(())
}

fn exactness(dir: &Path, settings: &Settings) -> Result<(usize, Vec<String>)> {
    let root = steadfast_inject::campaign::machine().root;
    let mut order = doctor::control(&dir.join("exact"), false, root.then_some(61_000))?;
    order.runs = settings.exact.div_ceil(Model::SEI.len()) as u64;
    order.seed = Seed::parse(&format!("{:x}", settings.seed)).context("a seed")?;
    drop(Running::prepare(&order, "bench", &mut |_| ())?);
    let doctor::Agreement {
        same, different, ..
    } = doctor::agreement(&order, u64::MAX, settings.exact)?;
    let _ = fs::remove_dir_all(&order.scratch);
    Ok((same, different))
}

/// Measures.
///
/// # Errors
/// When there is no place for it. A program that fails has its error in its row.
pub fn measure(
    dir: &Path,
    settings: &Settings,
    machine: Machine,
    interrupted: &dyn Fn() -> bool,
    says: &mut dyn FnMut(&str),
) -> Result<InjectReport> {
    // Where the user of the sandbox can read and its processes can write: not below a home directory.
    let _ = fs::remove_dir_all(dir);
    fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
    let mut report = InjectReport {
        bench: "inject".to_owned(),
        machine,
        rounds: settings.rounds,
        seed: settings.seed,
        rows: Vec::new(),
        exact: (0, 0),
        different: Vec::new(),
        complete: true,
    };
    for name in PROGRAMS {
        if !settings.programs.is_empty() && !settings.programs.iter().any(|p| p == name) {
            continue;
        }
        if interrupted() {
            report.complete = false;
            break;
        }
        says(name);
        let mut row = Row {
            program: name.to_owned(),
            error: None,
            bare: Vec::new(),
            armed: Vec::new(),
            plant: Vec::new(),
            setup: Vec::new(),
            count: Vec::new(),
            instructions: 0,
            reachable: 0.0,
            reachable_step: 0.0,
            control_runs_per_s: Vec::new(),
            faults_per_s: None,
            outcomes: std::collections::BTreeMap::new(),
        };
        let done = order(name, dir, settings).and_then(|order| {
            costs(&order, settings.rounds, &mut row)?;
            if settings.throughput {
                throughput(&order, &mut row)?;
            }
            Ok(())
        });
        row.error = done.err().map(|why| format!("{why:#}"));
        report.rows.push(row);
    }
    if settings.exact > 0 && !interrupted() {
        says("exactness");
        let (same, different) = exactness(dir, settings)?;
        report.exact = (same, same + different.len());
        report.different = different;
    }
    let _ = fs::remove_dir_all(dir);
    Ok(report)
}

fn ratios(row: &Row) -> Vec<f64> {
    row.armed
        .iter()
        .zip(&row.bare)
        .map(|(a, b)| a / b)
        .collect()
}

/// Everything before a program goes but planting.
fn starts(row: &Row) -> Vec<f64> {
    let both = row.setup.iter().zip(&row.plant);
    both.map(|(setup, plant)| setup - plant).collect()
}

fn cell(value: Option<f64>, unit: f64, digits: usize) -> String {
    value.map_or("-".into(), |value| format!("{:.digits$}", value / unit))
}

/// A kind of row: one a program, and the median of the programs.
struct Kind {
    key: &'static str,
    what: &'static str,
    unit: &'static str,
    /// What a program's value is made from, each list resampled on its own.
    lists: fn(&Row) -> Vec<Vec<f64>>,
    value: fn(&[Vec<f64>]) -> Option<f64>,
    /// Counted once of programs that never change: nothing of it varies.
    exact: bool,
}

const KINDS: [Kind; 7] = [
    Kind {
        key: "armed",
        what: "armed, not yet fired target over bare, CPU time",
        unit: "",
        lists: |row| vec![ratios(row)],
        value: |lists| median(&lists[0]),
        exact: false,
    },
    Kind {
        key: "plant",
        what: "planting",
        unit: "ms",
        lists: |row| vec![row.plant.iter().map(|ns| ns / 1e6).collect()],
        value: |lists| median(&lists[0]),
        exact: false,
    },
    Kind {
        key: "start",
        what: "sandbox and start",
        unit: "ms",
        lists: |row| vec![starts(row).iter().map(|ns| ns / 1e6).collect()],
        value: |lists| median(&lists[0]),
        exact: false,
    },
    Kind {
        key: "count",
        what: "count pass over bare, CPU time",
        unit: "",
        lists: |row| vec![row.count.clone(), row.bare.clone()],
        value: |lists| Some(median(&lists[0])? / median(&lists[1])?),
        exact: false,
    },
    Kind {
        key: "reach",
        what: "reachable share of executed instructions, without int3",
        unit: "%",
        lists: |row| vec![vec![row.reachable * 100.0]],
        value: |lists| lists[0].first().copied(),
        exact: true,
    },
    Kind {
        key: "reach-step",
        what: "the same, with single steps",
        unit: "%",
        lists: |row| vec![vec![row.reachable_step * 100.0]],
        value: |lists| lists[0].first().copied(),
        exact: true,
    },
    Kind {
        key: "runs",
        what: "runs a second, armed and never reached",
        unit: "/s",
        lists: |row| vec![row.control_runs_per_s.clone()],
        value: |lists| mean(&lists[0]),
        exact: false,
    },
];

impl Kind {
    fn row(
        &self,
        key: String,
        what: String,
        programs: &[&Row],
        rng: &mut Rng,
    ) -> Option<published::Row> {
        let lists: Vec<Vec<Vec<f64>>> = programs.iter().map(|row| (self.lists)(row)).collect();
        let each = lists.first()?.len();
        let all: Vec<&[f64]> = lists.iter().flatten().map(Vec::as_slice).collect();
        let found = estimate(&all, rng, |drawn| {
            let values: Option<Vec<f64>> = drawn.chunks(each).map(self.value).collect();
            median(&values?)
        })?;
        if self.exact {
            return Some(published::Row::exactly(
                key,
                what,
                results::digits(found.value),
                self.unit,
            ));
        }
        results::row(key, what, self.unit, Some(found))
    }
}

/// What is kept in `results/`: medians over programs, and each program's own.
#[must_use]
pub fn rows(report: &InjectReport) -> Vec<published::Row> {
    let mut rng = Rng::new(report.seed);
    let measured: Vec<&Row> = report
        .rows
        .iter()
        .filter(|row| row.error.is_none())
        .collect();
    let mut rows = Vec::new();
    for kind in &KINDS {
        let what = format!("{}, median of the programs", kind.what);
        rows.extend(kind.row(kind.key.to_owned(), what, &measured, &mut rng));
        for row in &measured {
            let key = format!("{}.{}", kind.key, row.program);
            let what = format!("{}: {}", row.program, kind.what);
            rows.extend(kind.row(key, what, &[*row], &mut rng));
        }
    }
    let (same, all) = report.exact;
    if let (Ok(same), Ok(all)) = (u64::try_from(same), u64::try_from(all))
        && all > 0
    {
        rows.push(published::Row::share(
            "exact.control",
            "drawn faults of the control target that planting and single steps agree about",
            same,
            all,
        ));
    }
    rows
}

/// The table.
#[must_use]
pub fn render(report: &InjectReport) -> String {
    let header = [
        "program",
        "CPU ms",
        "armed/bare",
        "min",
        "max",
        "plant ms",
        "min",
        "start ms",
        "count/bare",
        "reach %",
        "+step %",
        "M instr",
        "dummy/s",
        "fault/s",
    ];
    let least = |values: &[f64]| quantile(values, 0.0);
    let rows: Vec<Vec<String>> = report
        .rows
        .iter()
        .filter(|row| row.error.is_none())
        .map(|row| {
            let ratios = ratios(row);
            let rest = starts(row);
            let bare = median(&row.bare);
            vec![
                row.program.clone(),
                cell(bare, 1e6, 1),
                cell(median(&ratios), 1.0, 3),
                cell(least(&ratios), 1.0, 3),
                cell(quantile(&ratios, 1.0), 1.0, 3),
                cell(median(&row.plant), 1e6, 2),
                cell(least(&row.plant), 1e6, 2),
                cell(median(&rest), 1e6, 2),
                cell(median(&row.count).zip(bare).map(|(c, b)| c / b), 1.0, 2),
                cell(Some(row.reachable * 100.0), 1.0, 2),
                cell(Some(row.reachable_step * 100.0), 1.0, 2),
                cell(Some(row.instructions as f64), 1e6, 1),
                cell(mean(&row.control_runs_per_s), 1.0, 1),
                cell(row.faults_per_s, 1.0, 1),
            ]
        })
        .collect();
    let mut out = table::render(&header, &rows);
    let all = |of: &dyn Fn(&Row) -> Option<f64>| -> Vec<f64> {
        report
            .rows
            .iter()
            .filter(|r| r.error.is_none())
            .filter_map(of)
            .collect()
    };
    for (what, values, target) in [
        (
            "armed over bare, median",
            all(&|r| median(&ratios(r))),
            "<= 1.02",
        ),
        (
            "planting, ms",
            all(&|r| median(&r.plant).map(|p| p / 1e6)),
            "<= 1.5",
        ),
        (
            "count pass over bare",
            all(&|r| Some(median(&r.count)? / median(&r.bare)?)),
            "<= 6",
        ),
        (
            "reachable without int3, %",
            all(&|r| Some(r.reachable * 100.0)),
            ">= 97",
        ),
        (
            "reachable with single steps, %",
            all(&|r| Some(r.reachable_step * 100.0)),
            ">= 99.9",
        ),
        (
            "armed runs a second",
            all(&|r| mean(&r.control_runs_per_s)),
            ">= 35 at 50 ms on 2 CPUs",
        ),
    ] {
        out += &format!(
            "{what}: median {} over programs, {} to {} (target {target})\n",
            cell(median(&values), 1.0, 3),
            cell(quantile(&values, 0.0), 1.0, 3),
            cell(quantile(&values, 1.0), 1.0, 3),
        );
    }
    for row in report.rows.iter().filter(|row| !row.outcomes.is_empty()) {
        let words: Vec<String> = row
            .outcomes
            .iter()
            .filter(|(word, _)| **word != Outcome::NotFired.word())
            .map(|(word, n)| format!("{n} {word}"))
            .collect();
        out += &format!("{}: {}\n", row.program, words.join(", "));
    }
    if report.exact.1 > 0 {
        out += &format!(
            "exact: planted and stepped agree in {} of {} drawn faults (target: all of 1,000)\n",
            report.exact.0, report.exact.1
        );
        for line in report.different.iter().take(5) {
            out += &format!("  {line}\n");
        }
    }
    for row in &report.rows {
        if let Some(error) = &row.error {
            out += &format!("error {}: {error}\n", row.program);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What varies has an interval; what was counted says so; a program that was not measured has no row.
    #[test]
    fn each_row_has_an_interval_or_says_that_it_is_exact() {
        let row = |program: &str, rounds: usize| Row {
            program: program.to_owned(),
            error: None,
            bare: (0..rounds).map(|at| 100.0 + at as f64).collect(),
            armed: (0..rounds).map(|at| 103.0 - at as f64).collect(),
            plant: (0..rounds).map(|at| 1e6 + at as f64).collect(),
            setup: Vec::new(),
            count: vec![200.0; rounds],
            instructions: 1,
            reachable: 0.999,
            reachable_step: 1.0,
            control_runs_per_s: Vec::new(),
            faults_per_s: None,
            outcomes: std::collections::BTreeMap::new(),
        };
        let report = InjectReport {
            bench: "inject".to_owned(),
            machine: crate::tests::machine(),
            rounds: 3,
            seed: 1,
            rows: vec![row("gzip", 3), row("grep", 3)],
            exact: (4, 4),
            different: Vec::new(),
            complete: true,
        };
        let rows = rows(&report);
        let keys: Vec<&str> = rows.iter().map(|row| row.key.as_str()).collect();
        assert!(
            keys.contains(&"armed") && keys.contains(&"count.grep"),
            "{keys:?}"
        );
        assert!(!keys.iter().any(|key| key.starts_with("runs")), "{keys:?}");
        for row in &rows {
            let within = row.low.zip(row.high).is_some();
            assert_eq!(within, !row.exact, "{row:?}");
            assert_eq!(row.exact, row.key.starts_with("reach"), "{row:?}");
        }
    }

    #[test]
    fn ends_are_counted_by_the_second() {
        let ms = |ms: &[u64]| {
            ms.iter()
                .map(|ms| Duration::from_millis(*ms))
                .collect::<Vec<_>>()
        };
        let found = by_second(&ms(&[10, 999, 1000, 7999, 8001]));
        assert_eq!(found, [2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }
}
