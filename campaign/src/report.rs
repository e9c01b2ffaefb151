//! Tables of everything that has been run.

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

/// Prints every table under `out`.
pub(crate) fn print(out: &Path) -> anyhow::Result<()> {
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
            table(&mut page, what, &fs::read_to_string(file)?)?;
        }
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
    write!(page, "    {:5} {:>7}", "group", "valid")?;
    for outcome in SHOWN {
        write!(page, " {:>9}", outcome.word())?;
    }
    writeln!(page, "  {:>18} {:>18}", "sdc, 95 %", "of manifested")?;
    for name in Group::ALL.iter().map(|g| g.word()).chain(["all"]) {
        let Some(row) = rows.get(name) else { continue };
        write!(page, "    {name:5} {:>7}", row.valid())?;
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
