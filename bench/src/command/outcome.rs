//! What a benchmark found, and the files that it is kept in.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_bench::results;
use steadfast_report::published::Row;

use super::cli::Common;

/// What a benchmark found, before it is printed.
pub(crate) struct Outcome {
    pub(crate) table: String,
    pub(crate) json: serde_json::Value,
    /// What is kept in `results/`.
    pub(crate) rows: Vec<Row>,
    pub(crate) failed: bool,
    /// It was measured, and is not what it should be.
    pub(crate) differs: bool,
    pub(crate) complete: bool,
}

impl Outcome {
    pub(crate) fn new(report: &impl Serialize, table: String, complete: bool) -> Result<Self> {
        // The tables put every failure on a line of its own that begins so.
        let failed = table.lines().any(|line| line.starts_with("error "));
        Ok(Outcome {
            table,
            json: serde_json::to_value(report)?,
            rows: Vec::new(),
            failed,
            differs: false,
            complete,
        })
    }

    pub(crate) fn keeping(mut self, rows: Vec<Row>) -> Self {
        self.rows = rows;
        self
    }
}

/// Adds what was measured to a file of `results/`.
pub(crate) fn keep(file: &Path, outcome: &Outcome, common: &Common, commit: String) -> Result<()> {
    ensure!(
        outcome.complete && !outcome.failed && !outcome.rows.is_empty(),
        "a complete measurement without errors is needed for {}: nothing was kept",
        file.display()
    );
    let mut words = vec!["bench".to_owned()];
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !["--results", "--load", "--json", "--lines", "--out"].contains(&name) {
            words.push(if word.contains([' ', ';']) {
                format!("\"{word}\"")
            } else {
                word
            });
        } else if !word.contains('=') {
            given.next();
        }
    }
    let how = results::How {
        command: words.join(" "),
        commit,
        load: common.load.clone(),
        seed: common.seed,
    };
    results::add(file, "What `bench` measured.", outcome.rows.clone(), how)
}

pub(crate) fn load<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not such a result", file.display()))
}

/// Writes beside the file and renames, so that a reader never sees half of it.
pub(crate) fn save(file: &Path, value: &serde_json::Value) -> Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let text = serde_json::to_string_pretty(value)? + "\n";
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, file))
        .with_context(|| format!("cannot write {}", file.display()))
}
