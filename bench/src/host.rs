//! `bench host`: what resets, recovery and tracking of `steadfast host` cost, and how flips in components end.
//!
//! `steadfast-host bench` measures, since only that binary has wasmtime; here its rounds become rows with intervals. Ratios are taken within
//! a round there.
//!
//! Invariants
//!  1. A series that lacks a round fails the bench: nothing is dropped.
//!  2. Flips of `steadfast-host campaign` are shares of what was struck, with exact intervals.
//!
//! Not covered: cores that nobody else uses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use crate::results;
use crate::stats::median_estimate;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: PathBuf,
    pub rounds: usize,
    pub seed: u64,
    /// Where the files of the host go.
    pub place: PathBuf,
    /// Flips of each group of the campaign; 0 leaves it out.
    pub flips: u64,
    /// The campaign alone.
    pub flips_only: bool,
    /// Where each group of the campaign is a line; the same plan goes on behind the last one.
    pub lines: PathBuf,
    /// Only what the lines hold: nothing is struck.
    pub lines_only: bool,
    /// Some series in place of all, by the names that `steadfast-host bench` has.
    pub only: Vec<String>,
    /// Some groups of the campaign in place of all.
    pub groups: Option<Groups>,
}

#[derive(Debug, Deserialize)]
struct Measured {
    rounds: usize,
    fifo: bool,
    series: Vec<Series>,
}

#[derive(Debug, Deserialize)]
struct Series {
    key: String,
    what: String,
    unit: String,
    values: Vec<f64>,
}

/// Runs a command of the host that writes a file, and reads the file.
fn told<T: DeserializeOwned>(program: &Path, args: &[String], file: &Path) -> Result<T> {
    let fix = "  fix:   make build-host";
    let status = Command::new(program)
        .args(args)
        .arg("--json")
        .arg(file)
        .status()
        .with_context(|| format!("{} cannot be started\n{fix}", program.display()))?;
    ensure!(
        status.success(),
        "{} {}: {status}",
        program.display(),
        args.join(" ")
    );
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).with_context(|| file.display().to_string())
}

/// The rows of all series.
///
/// # Errors
/// When the host does not run, or a series lacks a round.
pub fn measure(plan: &Plan) -> Result<Vec<Row>> {
    std::fs::create_dir_all(&plan.place).with_context(|| plan.place.display().to_string())?;
    let mut all = Vec::new();
    if !plan.flips_only {
        let mut args = vec!["bench".to_owned(), format!("--rounds={}", plan.rounds)];
        args.extend(plan.only.iter().map(|name| format!("--only={name}")));
        let found: Measured = told(&plan.program, &args, &plan.place.join("host.json"))?;
        all.extend(rows(found, plan.rounds, plan.seed)?);
    }
    if plan.flips > 0 {
        let flips = plan.flips;
        let groups = if plan.lines_only {
            let text = std::fs::read_to_string(&plan.lines);
            let text = text.with_context(|| plan.lines.display().to_string())?;
            struck(&text, flips, plan.seed)?
        } else {
            campaign(plan)?
        };
        ensure!(!groups.is_empty(), "the campaign had no group");
        for group in &groups {
            ensure!(
                group.flips >= flips,
                "{flips} flips are needed, found {} of {} {}",
                group.flips,
                group.component,
                group.mode
            );
            all.extend(group.rows());
        }
    }
    Ok(all)
}

/// A choice of groups.
#[derive(Clone, Copy, Debug)]
pub enum Groups {
    /// The components and faults of Song et al. 2013, Section IV C.
    Paper,
    /// Vector registers.
    Vectors,
}

impl Groups {
    fn flags(self) -> [&'static str; 3] {
        match self {
            // Eight registers at once and one; two bodies in processes of their own.
            Self::Paper => [
                "--what=threads,pages,files",
                "--target=registers,eight",
                "--mode=processes",
            ],
            Self::Vectors => [
                "--what=locks,files",
                "--target=vectors",
                "--mode=dual,process",
            ],
        }
    }
}

fn campaign(plan: &Plan) -> Result<Vec<Group>> {
    let mut args = vec![
        "campaign".to_owned(),
        format!("--flips={}", plan.flips),
        format!("--seed={}", plan.seed),
        format!("--lines={}", plan.lines.display()),
    ];
    if let Some(groups) = plan.groups {
        args.extend(groups.flags().map(str::to_owned));
    }
    let file = plan.place.join("host-campaign.json");
    told(&plan.program, &args, &file)
}

/// A line of a campaign.
#[derive(Debug, Deserialize)]
struct Line {
    of: Of,
    group: Group,
}

#[derive(Debug, Deserialize)]
struct Of {
    build: String,
    seed: String,
    flips: u64,
}

/// The groups of that size and seed that lines hold. Of one component they are all of one build.
fn struck(lines: &str, flips: u64, seed: u64) -> Result<Vec<Group>> {
    let mut builds = BTreeMap::new();
    let mut groups = Vec::new();
    for line in lines.lines() {
        // A command that was killed has left half a line.
        let Ok(Line { of, group }) = serde_json::from_str(line) else {
            continue;
        };
        if of.flips != flips || u64::from_str_radix(&of.seed, 16) != Ok(seed) {
            continue;
        }
        let build = builds
            .entry(group.component.clone())
            .or_insert_with(|| of.build.clone());
        ensure!(
            *build == of.build,
            "lines of one build are needed, found two of {}",
            group.component
        );
        groups.push(group);
    }
    Ok(groups)
}

/// How the flips of one group ended.
#[derive(Debug, Deserialize)]
struct Group {
    component: String,
    mode: String,
    target: String,
    flips: u64,
    escaped: u64,
    deaths: BTreeMap<String, u64>,
    wrong: u64,
    /// By the kind of code that was struck.
    #[serde(default)]
    places: BTreeMap<String, Ends>,
    resets: BTreeMap<String, u64>,
}

#[derive(Debug, Deserialize)]
struct Ends {
    struck: u64,
    escaped: u64,
    wrong: u64,
}

impl Group {
    fn rows(&self) -> Vec<Row> {
        let Self {
            component,
            mode,
            target,
            flips,
            escaped,
            wrong,
            ..
        } = self;
        let key = |word: &str| format!("{target}.{component}.{mode}.{word}");
        let what = |word: &str| format!("flips in {target}, {component}, {mode}: {word}");
        let mut rows = vec![
            Row::share(key("escaped"), what("the process died"), *escaped, *flips),
            Row::share(key("wrong"), what("wrong answers"), *wrong, *flips),
        ];
        let resets: u64 = self.resets.values().sum();
        if target == "table" {
            let what = what("a handle refused, which the client opens again");
            rows.push(Row::share(key("refused"), what, resets, *flips));
            return rows;
        }
        // One flip in the host may cost many reboots, so they are no share of the flips.
        if mode != "bare" && target != "host" && resets > 0 {
            rows.push(Row::share(
                key("recovered"),
                what("of those that showed: reset, and the client has right answers"),
                resets,
                resets + escaped + wrong,
            ));
        }
        let list = |word: &str, classes: &BTreeMap<String, u64>| {
            let each = classes.iter().map(|(class, n)| format!("{n} {class}"));
            let all = each.collect::<Vec<_>>().join(", ");
            (!all.is_empty()).then(|| format!("{word}: {all}"))
        };
        let of = |(place, ends): (&String, &Ends)| {
            let wrong = match ends.wrong {
                0 => String::new(),
                wrong => format!(", {wrong} wrong"),
            };
            format!("{place} {} of {}{wrong}", ends.escaped, ends.struck)
        };
        let places: Vec<_> = self.places.iter().map(of).collect();
        let notes = [
            list("deaths", &self.deaths),
            (!places.is_empty()).then(|| format!("of flips in {}", places.join("; in "))),
            list("reboots", &self.resets),
        ];
        let notes: Vec<_> = notes.into_iter().flatten().collect();
        if let (Some(row), false) = (rows.first_mut(), notes.is_empty()) {
            row.note = Some(notes.join("; "));
        }
        rows
    }
}

fn rows(found: Measured, rounds: usize, seed: u64) -> Result<Vec<Row>> {
    ensure!(
        found.rounds == rounds && !found.series.is_empty(),
        "{rounds} rounds are needed, found {} with {} series",
        found.rounds,
        found.series.len()
    );
    let mut rng = Rng::new(seed);
    let mut rows = Vec::new();
    for series in found.series {
        if series.values.len() != rounds || !series.values.iter().all(|value| value.is_finite()) {
            bail!(
                "{} needs {rounds} values, found {:?}",
                series.key,
                series.values
            );
        }
        let note = (series.key.starts_with("interference") && !found.fifo)
            .then(|| "SCHED_FIFO was refused".to_owned());
        let estimate = median_estimate(&series.values, &mut rng);
        let row = results::row(series.key, series.what, &series.unit, estimate);
        rows.extend(row.map(|row| Row { note, ..row }));
    }
    Ok(rows)
}

/// A table.
#[must_use]
pub fn render(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let _ = writeln!(out, "{:<28} {:<76} {}", row.key, row.what, row.text());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Measured {
        Measured {
            rounds: 3,
            fifo: false,
            series: vec![Series {
                key: "interference.eager".into(),
                what: "a series".into(),
                unit: "ns".into(),
                values: values.to_vec(),
            }],
        }
    }

    #[test]
    fn a_series_becomes_its_median_with_an_interval_and_the_remark_that_it_needs() {
        let rows = rows(series(&[3.0, 1.0, 2.0]), 3, 1).expect("complete");
        assert_eq!((rows[0].value, rows[0].n), (2.0, Some(3)));
        assert!(rows[0].low >= Some(1.0) && rows[0].high <= Some(3.0));
        assert_eq!(rows[0].note.as_deref(), Some("SCHED_FIFO was refused"));
    }

    #[test]
    fn a_group_of_flips_becomes_shares_of_what_was_struck() {
        let group = Group {
            component: "lock".into(),
            mode: "dual".into(),
            target: "registers".into(),
            flips: 1000,
            escaped: 10,
            deaths: BTreeMap::from([("signal 11".to_owned(), 10)]),
            wrong: 0,
            places: BTreeMap::from([
                (
                    "entry and return".to_owned(),
                    Ends {
                        struck: 100,
                        escaped: 8,
                        wrong: 0,
                    },
                ),
                (
                    "own code".to_owned(),
                    Ends {
                        struck: 900,
                        escaped: 2,
                        wrong: 1,
                    },
                ),
            ]),
            resets: BTreeMap::from([("trap".to_owned(), 90)]),
        };
        let rows = group.rows();
        let found: Vec<_> = rows
            .iter()
            .map(|row| (&*row.key, row.hits, row.n))
            .collect();
        assert_eq!(
            found,
            [
                ("registers.lock.dual.escaped", Some(10), Some(1000)),
                ("registers.lock.dual.wrong", Some(0), Some(1000)),
                ("registers.lock.dual.recovered", Some(90), Some(100)),
            ]
        );
        assert_eq!(
            rows[0].note.as_deref(),
            Some(
                "deaths: 10 signal 11; of flips in entry and return 8 of 100; in own code 2 of 900, 1 wrong; reboots: 90 trap"
            )
        );
        let table = Group {
            target: "table".into(),
            ..group
        };
        let last = table.rows().pop().expect("rows");
        assert_eq!(
            (&*last.key, last.hits),
            ("table.lock.dual.refused", Some(90))
        );
        assert!(rows[0].high < Some(2.0) && rows[0].low > Some(0.4));
    }

    #[test]
    fn a_round_that_is_missing_fails_the_bench() {
        for values in [&[1.0, 2.0][..], &[1.0, 2.0, f64::NAN]] {
            let why = rows(series(values), 3, 1).expect_err("incomplete");
            assert!(why.to_string().contains("needs 3 values"), "{why}");
        }
        assert!(rows(series(&[1.0, 2.0, 3.0]), 4, 1).is_err());
    }

    #[test]
    fn lines_of_other_campaigns_do_not_count_and_two_builds_are_refused() {
        let line = |build: &str, seed: &str, flips: u64| {
            let group = r#"{"component":"lock","mode":"dual","target":"registers","flips":9,"escaped":1,"deaths":{},"wrong":0,"resets":{}}"#;
            format!(
                r#"{{"of":{{"build":"{build}","seed":"{seed}","flips":{flips}}},"group":{group}}}"#
            )
        };
        let lines = [line("a", "01", 9), line("a", "02", 9), line("b", "01", 8)].join("\n\n");
        let found = struck(&format!("{lines}\n{{\"of\":"), 9, 1).expect("one build");
        assert_eq!(found.len(), 1);
        let two = [line("a", "01", 9), line("b", "01", 9)].join("\n");
        let why = struck(&two, 9, 1).expect_err("two builds");
        assert!(why.to_string().contains("two of lock"), "{why}");
    }
}
