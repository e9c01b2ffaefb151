//! `bench flips`: real programs as replicas, struck by flips that are drawn over what they, or their protection, execute and keep.
//!
//! Each program has a campaign of `steadfast inject` for each victim: profile, plan, runs and judgement are its own. A call goes on where
//! an earlier one stopped; `--runs 0` sums up what is there.
//!
//! Invariants
//!  1. What is summed stands in the campaigns' directories: one judge, one population.
//!  2. Runs of two faults, and of faults between vote and effect, have rows of their own.
//!
//! Not covered: programs that read clocks or random numbers into their output.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Serialize;
use steadfast_contract::outcome::Outcome;
use steadfast_inject::record::Dir;
use steadfast_inject::victim::Victim;
use steadfast_report::published::Row;
use steadfast_report::stats::{Confidence, Tally};

use super::programs::{self, ENVIRONMENT, Program};

/// Programs of the published rows, by victim.
const PROGRAM: [&str; 8] = [
    "gzip",
    "sort",
    "bzip2",
    "perl",
    "sed",
    "bunzip2",
    "grep",
    "sha256sum",
];
const AGENT: [&str; 2] = ["sort", "grep"];
const PROCESSES: [&str; 2] = ["sort", "gzip"];

/// What is asked for.
#[derive(Debug, Clone, clap::Args)]
pub struct Ask {
    /// Only these programs: bzip2, bunzip2, gzip, sort, sed, lines, sha256sum, grep, perl, cc1 [default: those of the published rows]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub programs: Vec<String>,
    /// Whose state is struck, as `steadfast inject run --victim` has it
    #[arg(long, value_delimiter = ',', value_name = "WHOSE", default_value = "program", value_parser = Victim::ALL.map(Victim::word))]
    pub victim: Vec<String>,
    /// Runs of each fault type and program; 0: sum up what is there
    #[arg(long, default_value_t = 1000)]
    pub runs: u64,
    /// Replicas; 1 is not compared with anything
    #[arg(long, short = 'n', default_value_t = 2)]
    pub replicas: u8,
    /// Runs at the same time [default: as inject]
    #[arg(long)]
    pub jobs: Option<usize>,
    /// End each campaign after so long, such as 10m; the same call goes on later
    #[arg(long, value_name = "TIME")]
    pub budget: Option<String>,
    /// Directory of campaigns
    #[arg(long, value_name = "DIR", default_value = "build/campaign")]
    pub out: PathBuf,
}

/// How the runs of one fault type of one program ended.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    pub program: String,
    pub victim: String,
    pub fault_type: String,
    pub outcomes: BTreeMap<Outcome, u64>,
}

/// All of them.
#[derive(Debug, Clone, Serialize)]
pub struct FlipsReport {
    pub replicas: u8,
    pub seed: u64,
    pub lines: Vec<Line>,
    /// From fault to alarm, ascending.
    pub latency_ns: Vec<u64>,
}

/// The campaigns that an order is made of.
fn wanted(ask: &Ask) -> Vec<(Victim, String)> {
    let victims = ask.victim.iter().filter_map(|word| Victim::from_word(word));
    let named = |victim: Victim| {
        let all: &[&str] = match victim {
            Victim::Program => &PROGRAM,
            Victim::Agent | Victim::Log => &AGENT,
            Victim::Processes => &PROCESSES,
        };
        let names = match ask.programs.as_slice() {
            [] => all.iter().map(|name| (*name).to_owned()).collect(),
            some => some.to_vec(),
        };
        names.into_iter().map(move |name| (victim, name))
    };
    victims.flat_map(named).collect()
}

/// Runs what is left of the campaigns, and sums them up.
///
/// # Errors
/// When a campaign cannot be run or read.
pub fn measure(
    ask: &Ask,
    steadfast: &Path,
    seed: u64,
    say: &mut dyn FnMut(String),
) -> Result<FlipsReport> {
    let mut report = FlipsReport {
        replicas: ask.replicas,
        seed,
        lines: Vec::new(),
        latency_ns: Vec::new(),
    };
    for (victim, name) in wanted(ask) {
        let program = programs::find(&name)?;
        let place = ask
            .out
            .join(format!("{name}-{}-n{}", victim.word(), ask.replicas));
        if ask.runs > 0 {
            say(format!("{name}, {}", victim.word()));
            run(ask, &program, victim, steadfast, seed, &place)?;
        }
        if place.join("campaign.json").exists() {
            count(&name, victim, &place, &mut report)?;
        }
    }
    report.latency_ns.sort_unstable();
    ensure!(!report.lines.is_empty(), "no run in {}", ask.out.display());
    Ok(report)
}

fn run(
    ask: &Ask,
    program: &Program,
    victim: Victim,
    steadfast: &Path,
    seed: u64,
    place: &Path,
) -> Result<()> {
    std::fs::create_dir_all(&ask.out)
        .with_context(|| format!("{} has to be writable", ask.out.display()))?;
    let input = ask.out.join(format!("{}.input", program.name));
    std::fs::write(&input, &program.input)
        .with_context(|| format!("{} has to be writable", input.display()))?;
    let mut command = Command::new(steadfast);
    command
        .args(["inject", "run", "--quiet", "--out"])
        .arg(place);
    command.arg(format!("--replicas={}", ask.replicas));
    command.arg(format!("--victim={}", victim.word()));
    command.arg(format!("--runs={}", ask.runs));
    command.arg(format!("--seed={seed:x}"));
    command.arg("--stdin").arg(&input);
    for (name, value) in ENVIRONMENT {
        command.arg(format!("--env={name}={value}"));
    }
    if let Some(jobs) = ask.jobs {
        command.arg(format!("--jobs={jobs}"));
    }
    if let Some(budget) = &ask.budget {
        command.arg(format!("--budget={budget}"));
    }
    command
        .arg("--")
        .arg(program.path()?)
        .args(&program.argv[1..]);
    let status = command
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("{} could not be started", steadfast.display()))?;
    if !status.success() {
        bail!(
            "the campaign in {} ended with {status}; the same call goes on with it",
            place.display()
        );
    }
    Ok(())
}

fn count(program: &str, victim: Victim, place: &Path, report: &mut FlipsReport) -> Result<()> {
    let dir = Dir::new(place);
    let mut by: BTreeMap<String, BTreeMap<Outcome, u64>> = BTreeMap::new();
    for run in dir.runs()?.into_values() {
        let outcomes = by.entry(run.fault_type).or_default();
        *outcomes.entry(run.outcome.outcome()).or_default() += 1;
        report
            .latency_ns
            .extend(run.detection.and_then(|detection| detection.latency_ns));
    }
    for fault_type in dir.campaign()?.fault_types {
        if let Some(outcomes) = by.remove(&fault_type.name) {
            report.lines.push(Line {
                program: program.into(),
                victim: victim.word().into(),
                fault_type: fault_type.name,
                outcomes,
            });
        }
    }
    Ok(())
}

/// Sums of outcomes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Sums {
    valid: u64,
    wrong: u64,
    ends: u64,
}

fn sums<'a>(lines: impl Iterator<Item = &'a Line>) -> Sums {
    let mut out = Sums::default();
    for (outcome, n) in lines.flat_map(|line| &line.outcomes) {
        match outcome {
            Outcome::NotFired | Outcome::Infra => continue,
            Outcome::Sdc => out.wrong += n,
            Outcome::Crash | Outcome::Hang | Outcome::FalseAlarm => out.ends += n,
            Outcome::Masked | Outcome::Detected | Outcome::Corrected => {}
        }
        out.valid += n;
    }
    out
}

/// The table.
#[must_use]
pub fn render(report: &FlipsReport) -> String {
    const SHOWN: [Outcome; 7] = [
        Outcome::Masked,
        Outcome::Corrected,
        Outcome::Detected,
        Outcome::Sdc,
        Outcome::Crash,
        Outcome::Hang,
        Outcome::NotFired,
    ];
    let mut out = format!(
        "flips, {} replicas, seed {:x}\n{:10} {:14}",
        report.replicas, report.seed, "program", "type"
    );
    for outcome in SHOWN {
        let _ = write!(out, " {:>9}", outcome.to_string());
    }
    out.push_str("  wrong of valid\n");
    for line in &report.lines {
        let _ = write!(out, "{:10} {:14}", line.program, line.fault_type);
        for outcome in SHOWN {
            let n = line.outcomes.get(&outcome).copied().unwrap_or(0);
            let _ = write!(out, " {n:>9}");
        }
        let all = sums(std::iter::once(line));
        let upper = Tally::new(all.wrong, all.valid).upper(Confidence::P95);
        let _ = writeln!(
            out,
            "  {} of {} (< {:.3} %)",
            all.wrong,
            all.valid,
            upper * 100.0
        );
    }
    let last = report.latency_ns.len().saturating_sub(1);
    if let Some(most) = report.latency_ns.last() {
        let at = |percent: usize| report.latency_ns[last * percent / 100] / 1000;
        let _ = writeln!(
            out,
            "from fault to alarm, us: p50 {} p90 {} p99 {} max {}",
            at(50),
            at(90),
            at(99),
            most / 1000
        );
    }
    out
}

/// Values that are kept.
#[must_use]
pub fn rows(report: &FlipsReport) -> Vec<Row> {
    let of = |wanted: &dyn Fn(&Line) -> bool| sums(report.lines.iter().filter(|line| wanted(line)));
    let share = |key: &str, what: &str, hits: u64, all: Sums| {
        (all.valid > 0).then(|| Row::share(key, what, hits, all.valid))
    };
    let mut out = Vec::new();
    let struck = |victim: &str| report.lines.iter().any(|line| line.victim == victim);
    if struck("program") {
        let all = of(&|line| line.victim == "program");
        let what = "wrong bytes that left, flips drawn uniformly over the program's instructions and state";
        out.push(share("app", what, all.wrong, all));
        let later = |ns: u64| report.latency_ns.partition_point(|found| *found <= ns) as u64;
        let all = report.latency_ns.len() as u64;
        for (key, what, ns) in [
            ("latency.10us", "alarms within 10 µs of the fault", 10_000),
            ("latency.100us", "within 100 µs", 100_000),
            ("latency.1ms", "within 1 ms", 1_000_000),
            ("latency.10ms", "within 10 ms", 10_000_000),
        ] {
            out.push((all > 0).then(|| Row::share(key, what, later(ns), all)));
        }
        let late = all - later(1_000_000_000);
        out.push((all > 0).then(|| Row::share("latency.1s", "not within 1 s", late, all)));
    }
    // Half of what protects is no row of the whole.
    if struck("agent") && struck("log") {
        let all = of(&|line| {
            matches!(line.victim.as_str(), "agent" | "log") && line.fault_type != "window"
        });
        let (wrong, both) = (all.wrong, all.wrong + all.ends);
        out.push(share(
            "agent.bytes",
            "wrong bytes that left, flips in agent and log",
            wrong,
            all,
        ));
        out.push(share("agent.ends", "wrong ends beside them", all.ends, all));
        out.push(share(
            "agent.both",
            "wrong bytes and wrong ends together",
            both,
            all,
        ));
        let all = of(&|line| line.fault_type == "window");
        let what = "flips struck on purpose between vote and effect";
        out.push(share(
            "window.bytes",
            &format!("wrong bytes, {what}"),
            all.wrong,
            all,
        ));
        out.push(share(
            "window.ends",
            &format!("wrong ends, {what}"),
            all.ends,
            all,
        ));
    }
    if struck("processes") {
        let one = ["keeper", "job_control", "launcher", "arena"];
        let all = of(&|line| one.contains(&line.fault_type.as_str()));
        let beside = "one fault in what stands beside the replicas: keeper, job control, launcher, planted code";
        out.push(share(
            "rest",
            &format!("wrong bytes, {beside}"),
            all.wrong,
            all,
        ));
        let all = of(&|line| line.fault_type == "launcher");
        let what = "runs that ended with their launcher, of faults in it";
        out.push(share("rest.launcher", what, all.ends, all));
        for (key, name, what) in [
            ("two.launcher-replica", "mending", "launcher and replica"),
            ("two.repair", "repair", "a replica and its repair"),
            ("two.replicas", "pair", "both of two replicas"),
        ] {
            let all = of(&|line| line.fault_type == name);
            out.push(share(
                key,
                &format!("wrong of two faults: {what}"),
                all.wrong,
                all,
            ));
        }
    }
    out.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(victim: &str, fault_type: &str, outcomes: &[(Outcome, u64)]) -> Line {
        Line {
            program: "sort".into(),
            victim: victim.into(),
            fault_type: fault_type.into(),
            outcomes: outcomes.iter().copied().collect(),
        }
    }

    fn report(lines: Vec<Line>) -> FlipsReport {
        FlipsReport {
            replicas: 2,
            seed: 7,
            lines,
            latency_ns: vec![5_000, 50_000, 2_000_000_000],
        }
    }

    #[test]
    fn runs_that_say_nothing_are_in_no_denominator() {
        let found = report(vec![line(
            "program",
            "wreg",
            &[
                (Outcome::Sdc, 1),
                (Outcome::Corrected, 8),
                (Outcome::Crash, 1),
                (Outcome::NotFired, 90),
                (Outcome::Infra, 5),
            ],
        )]);
        let kept = rows(&found);
        assert_eq!(
            (kept[0].key.as_str(), kept[0].hits, kept[0].n),
            ("app", Some(1), Some(10))
        );
        assert!(render(&found).contains("1 of 10 (<"), "{}", render(&found));
        let late = kept
            .iter()
            .find(|row| row.key == "latency.1s")
            .expect("a row");
        assert_eq!((late.hits, late.n), (Some(1), Some(3)));
    }

    #[test]
    fn two_faults_and_the_window_are_summed_with_nothing_else() {
        let log = || {
            vec![
                line("log", "control", &[(Outcome::Masked, 10)]),
                line("log", "window", &[(Outcome::Sdc, 2), (Outcome::Masked, 8)]),
            ]
        };
        assert!(
            rows(&report(log())).is_empty(),
            "the log alone is half of it"
        );
        let mut lines = log();
        lines.push(line(
            "agent",
            "agent-cf",
            &[(Outcome::Hang, 1), (Outcome::Corrected, 9)],
        ));
        let found = report(lines);
        let hits: Vec<_> = rows(&found)
            .into_iter()
            .map(|row| (row.key, row.hits, row.n))
            .collect();
        assert_eq!(hits[0], ("agent.bytes".into(), Some(0), Some(20)));
        assert_eq!(hits[2], ("agent.both".into(), Some(1), Some(20)));
        assert_eq!(hits[3], ("window.bytes".into(), Some(2), Some(10)));
        let found = report(vec![
            line(
                "processes",
                "launcher",
                &[(Outcome::Crash, 1), (Outcome::Masked, 9)],
            ),
            line(
                "processes",
                "pair",
                &[(Outcome::Sdc, 1), (Outcome::Corrected, 3)],
            ),
        ]);
        let hits: Vec<_> = rows(&found)
            .into_iter()
            .map(|row| (row.key, row.hits, row.n))
            .collect();
        assert_eq!(hits[0], ("rest".into(), Some(0), Some(10)));
        assert!(
            hits.contains(&("two.replicas".into(), Some(1), Some(4))),
            "{hits:?}"
        );
    }
}
