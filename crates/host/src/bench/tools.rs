//! What all series are measured with: hosts, batches in turns, medians.

use std::path::Path;
use std::time::Instant;

use steadfast_restart::{Component, Handle, Host, Policy, Value};

use super::report::{Report, median_us};
use crate::load;
use crate::told::Told;

/// One batch.
pub(super) const BATCH: usize = 48;
/// A component for measurements: failures are made on purpose, so none is too many.
pub(super) fn measured(folder: &Path, name: &str, policy: Policy) -> Result<Component, Told> {
    let policy = Policy {
        resets_max: u32::MAX,
        ..policy
    };
    load::component(folder, name, policy)
}

pub(super) fn plain() -> Policy {
    Policy {
        spare: false,
        ..Policy::default()
    }
}

pub(super) fn hosted(folder: &Path, name: &str, policy: Policy) -> Result<Host, Told> {
    let mut host = Host::new(true)?;
    host.add(measured(folder, name, policy)?, None)?;
    Ok(host)
}

pub(super) fn ns(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn none(what: &str) -> Told {
    anyhow::anyhow!("nothing was measured: {what}").into()
}

pub(super) fn put(
    report: &mut Report,
    key: &str,
    what: &str,
    samples: impl IntoIterator<Item = u64>,
) -> Result<(), Told> {
    let samples: Vec<u64> = samples.into_iter().collect();
    let us = median_us(samples).ok_or_else(|| none(key))?;
    report.put(key, what, "µs", us);
    Ok(())
}

pub(super) fn handle(value: Option<Value>) -> Result<Handle, Told> {
    let handle = value.as_ref().and_then(Value::handle);
    handle.ok_or_else(|| anyhow::anyhow!("the component gave no object, but {value:?}").into())
}

pub(super) const LOCKS: &str = "steadfast:lock/locks@0.1.0#";
pub(super) const FILES: &str = "steadfast:fs/files@0.1.0#";

/// Iterations of one batch, and batches of a round.
pub(super) const ITERATIONS: usize = 300;
pub(super) const TURNS: usize = 7;

/// Batches of two kinds in turns; the time of one iteration of each, in µs.
pub(super) fn turns(
    key: &str,
    mut one: impl FnMut() -> Result<(), Told>,
    mut other: impl FnMut() -> Result<(), Told>,
) -> Result<[f64; 2], Told> {
    let mut took = [Vec::new(), Vec::new()];
    // The first turn warms up.
    for turn in 0..=TURNS {
        for (which, took) in took.iter_mut().enumerate() {
            let begin = Instant::now();
            for _ in 0..ITERATIONS {
                if which == 0 { one()? } else { other()? }
            }
            if turn > 0 {
                took.push(ns(begin) / ITERATIONS as u64);
            }
        }
    }
    let [one, other] = took;
    let median = |took| median_us(took).ok_or_else(|| none(key));
    Ok([median(one)?, median(other)?])
}

/// An iteration without stubs, and what they add.
pub(super) fn in_turns(
    report: &mut Report,
    key: &str,
    what: &str,
    bare: impl FnMut() -> Result<(), Told>,
    tracked: impl FnMut() -> Result<(), Told>,
) -> Result<(), Told> {
    let [bare, tracked] = turns(key, bare, tracked)?;
    report.put(
        &format!("iterate.{key}.bare"),
        &format!("{what}, without stubs"),
        "µs",
        bare,
    );
    report.put(
        &format!("iterate.{key}"),
        &format!("{what}, added by stubs"),
        "%",
        100.0 * (tracked / bare - 1.0),
    );
    Ok(())
}
