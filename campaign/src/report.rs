//! Tables of everything that has been run: by program, then the sums over all programs.
//!
//! The sums are what docs/specification.md publishes: per group the outcomes, the share of wrong
//! bytes that left with its 95 % interval, and how long faults took to be noticed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use steadfast_integrity::outcome::Outcome;

use crate::operands::Group;
use crate::plan::Reach;
use crate::profile::Population;
use crate::runner::Done;
use crate::stats::{wilson, zero_upper};

const SHOWN: [Outcome; 7] = [
    Outcome::Masked,
    Outcome::Corrected,
    Outcome::Detected,
    Outcome::Sdc,
    Outcome::Crash,
    Outcome::Hang,
    Outcome::NotFired,
];

#[derive(Debug, Default)]
struct Row(BTreeMap<Outcome, u64>);

impl Row {
    fn of(&self, outcome: Outcome) -> u64 {
        self.0.get(&outcome).copied().unwrap_or(0)
    }

    fn valid(&self) -> u64 {
        self.0
            .iter()
            .filter(|(outcome, _)| outcome.is_valid())
            .map(|(_, n)| n)
            .sum()
    }

    fn manifested(&self) -> u64 {
        self.0
            .iter()
            .filter(|(outcome, _)| outcome.is_manifested())
            .map(|(_, n)| n)
            .sum()
    }
}

fn rate(k: u64, n: u64) -> String {
    if k == 0 {
        return format!("0 (< {:.3} %)", 100.0 * zero_upper(n));
    }
    let (low, high) = wilson(k, n);
    format!("{:.2}-{:.2} %", 100.0 * low, 100.0 * high)
}

/// What one kind of campaign has found, over all programs.
#[derive(Debug, Default)]
struct Sum {
    programs: Vec<String>,
    rows: BTreeMap<&'static str, Row>,
    latencies: Vec<u64>,
    infra: u64,
}

impl Sum {
    fn add(&mut self, program: &str, text: &str) {
        self.programs.push(program.to_owned());
        for done in text
            .lines()
            .filter_map(|line| serde_json::from_str::<Done>(line).ok())
        {
            let outcome = done.leaf.outcome();
            self.infra += u64::from(outcome == Outcome::Infra);
            // The window is a condition, not a share of what is executed: ours.rs.
            let all = (done.group != Group::Window).then_some("all");
            for name in [Some(done.group.word()), all].into_iter().flatten() {
                let row = self.rows.entry(name).or_default();
                *row.0.entry(outcome).or_default() += 1;
            }
            self.latencies.extend(done.seen.latency_ns);
        }
    }

    /// Upper ends of decades and the alarms below each.
    fn histogram(&self) -> Vec<(u64, usize)> {
        (3..=10)
            .map(|exponent| {
                let (from, to) = (10_u64.pow(exponent - 1), 10_u64.pow(exponent));
                let from = if exponent == 3 { 0 } else { from };
                let within = |ns: &&u64| (from..to).contains(*ns);
                (to, self.latencies.iter().filter(within).count())
            })
            .collect()
    }

    fn json(&self) -> serde_json::Value {
        let groups: serde_json::Map<String, serde_json::Value> = self
            .rows
            .iter()
            .map(|(name, row)| {
                let (sdc, valid) = (row.of(Outcome::Sdc), row.valid());
                let upper = if sdc == 0 {
                    zero_upper(valid)
                } else {
                    wilson(sdc, valid).1
                };
                let mut fields = serde_json::Map::new();
                fields.insert("valid".into(), valid.into());
                fields.insert("manifested".into(), row.manifested().into());
                for outcome in SHOWN {
                    fields.insert(outcome.word().into(), row.of(outcome).into());
                }
                fields.insert("sdc_upper_95".into(), upper.into());
                ((*name).to_owned(), fields.into())
            })
            .collect();
        serde_json::json!({
            "programs": self.programs,
            "groups": groups,
            "spoilt": self.infra,
            "alarm_below_ns": self.histogram(),
        })
    }
}

/// Prints every table under `out`.
pub(crate) fn print(out: &Path, json: Option<&Path>) -> anyhow::Result<()> {
    let mut sums: BTreeMap<(String, String), Sum> = BTreeMap::new();
    let mut page = std::io::stdout().lock();
    let mut programs: Vec<_> = fs::read_dir(out)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|p| p.is_dir())
        .collect();
    programs.sort();
    for dir in programs {
        let name = dir
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut files: Vec<_> = fs::read_dir(&dir)?
            .flatten()
            .map(|entry| entry.path())
            .collect();
        files.sort();
        if let Ok(text) = fs::read(dir.join("profile.json")) {
            let population: Population = serde_json::from_slice(&text)?;
            writeln!(
                page,
                "\n{name}: {} dynamic instructions of {} files, {} of the agent, {} elsewhere, {} lost; {} events",
                population.total(),
                population.modules.len(),
                population.agent,
                population.elsewhere,
                population.lost,
                population.events
            )?;
        }
        for file in &files {
            let stem = file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if stem.starts_with("reach-") {
                reach(&mut page, &serde_json::from_slice(&fs::read(file)?)?)?;
            }
        }
        for file in files
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == "jsonl"))
        {
            let stem = file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let Some(what) = stem.strip_prefix("results-") else {
                continue;
            };
            let text = fs::read_to_string(file)?;
            table(&mut page, what, &text)?;
            // WHOSE-SEED-RUNS-nREPLICAS
            let mut parts = what.split('-');
            if let (Some(whose), Some(replicas)) = (parts.next(), parts.next_back()) {
                let sum = sums
                    .entry((whose.to_owned(), replicas.to_owned()))
                    .or_default();
                sum.add(&name, &text);
            }
        }
    }
    for ((whose, replicas), sum) in &sums {
        writeln!(
            page,
            "\n{whose}, {replicas}: {}; {} spoilt by the test bed",
            sum.programs.join(", "),
            sum.infra
        )?;
        rows(&mut page, &sum.rows)?;
        writeln!(page, "    from fault to alarm:")?;
        for (below, count) in sum.histogram() {
            writeln!(page, "      below {:>11} us {count:>8}", below / 1000)?;
        }
    }
    if let Some(path) = json {
        let all: serde_json::Map<String, serde_json::Value> = sums
            .iter()
            .map(|((whose, replicas), sum)| (format!("{whose}-{replicas}"), sum.json()))
            .collect();
        fs::write(path, serde_json::to_string_pretty(&all)? + "\n")?;
    }
    Ok(())
}

fn reach(page: &mut impl Write, reach: &Reach) -> anyhow::Result<()> {
    for group in Group::ALL {
        let drawn = reach.drawn.get(&group).copied().unwrap_or(0);
        let empty = BTreeMap::new();
        let refused = reach.refused.get(&group).unwrap_or(&empty);
        let sum: u64 = refused.values().sum();
        let mut reasons: Vec<_> = refused.iter().collect();
        reasons.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
        let reasons: Vec<String> = reasons
            .into_iter()
            .take(4)
            .map(|(why, n)| format!("{why} {n}"))
            .collect();
        #[allow(clippy::cast_precision_loss, reason = "for a percentage")]
        let share = |k: u64, n: u64| 100.0 * k as f64 / n.max(1) as f64;
        writeln!(
            page,
            "  {:5} eligible {:5.1} % of executions; {:4.1} % of {drawn} draws out of reach: {}",
            group.word(),
            share(
                reach.eligible.get(&group).copied().unwrap_or(0),
                reach.total
            ),
            share(sum, drawn),
            reasons.join("; ")
        )?;
    }
    Ok(())
}

fn rows(page: &mut impl Write, rows: &BTreeMap<&str, Row>) -> anyhow::Result<()> {
    write!(page, "    {:7} {:>7}", "group", "valid")?;
    for outcome in SHOWN {
        write!(page, " {:>9}", outcome.word())?;
    }
    writeln!(page, "  {:>18} {:>18}", "sdc, 95 %", "of manifested")?;
    for name in Group::ALL.iter().map(|g| g.word()).chain(["all"]) {
        let Some(row) = rows.get(name) else { continue };
        write!(page, "    {name:7} {:>7}", row.valid())?;
        for outcome in SHOWN {
            write!(page, " {:>9}", row.of(outcome))?;
        }
        let sdc = row.of(Outcome::Sdc);
        writeln!(
            page,
            "  {:>18} {:>18}",
            rate(sdc, row.valid()),
            rate(sdc, row.manifested())
        )?;
    }
    Ok(())
}

fn table(page: &mut impl Write, what: &str, text: &str) -> anyhow::Result<()> {
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    let mut latencies: Vec<u64> = Vec::new();
    let mut infra = 0;
    for done in text
        .lines()
        .filter_map(|line| serde_json::from_str::<Done>(line).ok())
    {
        let outcome = done.leaf.outcome();
        infra += u64::from(outcome == Outcome::Infra);
        for name in [done.group.word(), "all"] {
            *rows.entry(name).or_default().0.entry(outcome).or_default() += 1;
        }
        latencies.extend(done.seen.latency_ns);
    }
    writeln!(
        page,
        "  {what} (seed-runs-replicas), {infra} spoilt by the test bed"
    )?;
    self::rows(page, &rows)?;
    latencies.sort_unstable();
    if let Some(last) = latencies.len().checked_sub(1) {
        let at = |percent: usize| latencies[last * percent / 100] / 1000;
        writeln!(
            page,
            "    from fault to alarm, us: p50 {} p90 {} p99 {} max {}",
            at(50),
            at(90),
            at(99),
            at(100)
        )?;
    }
    Ok(())
}
