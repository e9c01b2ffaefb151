//! `bench pair`: what two hosts cost, how long a client waits when one dies, and what it costs to hold acknowledgements back.
//!
//! `steadfast-pair bench` measures, since only that binary has the hosts; here what it says becomes rows.
//!
//! Invariant: a round that fails fails the bench.
//!
//! Not covered: hosts with cores of their own.

mod image;
mod load;
mod lost;
mod micro;
mod sites;
mod wire;

pub use image::{measure as image, reads};
pub use load::{measure as load, postmark};
pub use lost::lost;
pub use micro::{Own, measure as micro};

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use steadfast_report::published::Row;

use crate::results::digits;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    pub program: PathBuf,
    pub rounds: usize,
    /// Holding acknowledgements back, with a server that takes bytes.
    pub hold: bool,
    /// How the host of a server is lost: power, cable or freeze.
    pub lose: String,
    /// The server; none: commits of sqlite3.
    pub server: Vec<String>,
    /// Where the file of `steadfast-pair` goes.
    pub place: PathBuf,
}

#[derive(Debug, Deserialize)]
struct Measured {
    key: String,
    what: String,
    value: f64,
    low: f64,
    high: f64,
    unit: String,
    n: u64,
}

/// Measures, as root.
///
/// # Errors
/// When the command fails, or says what this does not understand.
pub fn measure(plan: &Plan) -> Result<Vec<Row>> {
    let file = plan.place.join("pair.json");
    fs::create_dir_all(&plan.place)?;
    let rounds = plan.rounds.to_string();
    let mut command = Command::new(&plan.program);
    command
        .args(["bench", "--rounds", &rounds, "--json"])
        .arg(&file);
    command.args(plan.hold.then_some("--hold"));
    if !plan.server.is_empty() {
        command
            .args(["--lose", &plan.lose, "--"])
            .args(&plan.server);
    }
    let status = command.stdout(std::process::Stdio::null()).status();
    let status =
        status.with_context(|| format!("{}\n  fix:   make build-pair", plan.program.display()))?;
    ensure!(status.success(), "{}: {status}", plan.program.display());
    let measured: Vec<Measured> = serde_json::from_str(&fs::read_to_string(&file)?)?;
    let row = |one: Measured| {
        let [value, low, high] = [one.value, one.low, one.high].map(digits);
        Row::new(one.key, one.what, value, one.unit).within(low, high, one.n)
    };
    Ok(measured.into_iter().map(row).collect())
}

/// A line each.
#[must_use]
pub fn render(rows: &[Row]) -> String {
    rows.iter()
        .map(|row| format!("{:<20} {:<76} {}\n", row.key, row.what, row.text()))
        .collect()
}
