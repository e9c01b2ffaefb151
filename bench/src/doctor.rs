//! `bench doctor`: whether planted faults hit the executions that single steps hit, over the plans of campaigns.
//!
//! It is what `steadfast inject doctor DIR` says of one campaign, summed up. A fault on which the two differ stands in the table.
//!
//! Not covered: the control target, which `bench inject` asks about.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use steadfast_inject::campaign::Order;
use steadfast_inject::doctor;
use steadfast_report::published::Row;

use crate::machine::Machine;
use crate::table;

/// What came of one campaign's plan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Found {
    pub campaign: String,
    pub faults: u64,
    /// Of these, those that hit the execution that single steps hit.
    pub hit: u64,
    /// And those that did the same there, and ended alike.
    pub same: u64,
    /// Faults that lie too far from the start to be stepped to.
    pub beyond: u64,
    pub different: Vec<String>,
}

/// The whole result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DoctorReport {
    pub bench: String,
    pub machine: Machine,
    pub within: u64,
    pub campaigns: Vec<Found>,
}

fn one(campaign: &Path, within: u64, most: usize) -> Result<Found> {
    let order = Order::of(campaign, &std::env::temp_dir())?;
    let found = doctor::agreement(&order, within, most)?;
    let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    Ok(Found {
        campaign: campaign.display().to_string(),
        faults: count(found.same + found.different.len()),
        hit: count(found.same + found.hit),
        same: count(found.same),
        beyond: count(found.beyond),
        different: found.different,
    })
}

/// Runs the faults of each campaign's plan both ways: at most so many, at most so many executions from the start.
///
/// # Errors
/// When a campaign cannot be read, a sandbox fails, or no fault is near enough.
pub fn measure(
    campaigns: &[PathBuf],
    within: u64,
    most: usize,
    machine: Machine,
    say: &mut dyn FnMut(&str),
) -> Result<DoctorReport> {
    let mut found = Vec::new();
    for campaign in campaigns {
        say(&campaign.display().to_string());
        let one = one(campaign, within, most).with_context(|| campaign.display().to_string())?;
        ensure!(
            one.faults > 0,
            "{}: all {} faults lie beyond {within} executions of their instruction; fix: --within",
            one.campaign,
            one.beyond
        );
        found.push(one);
    }
    Ok(DoctorReport {
        bench: "doctor".to_owned(),
        machine,
        within,
        campaigns: found,
    })
}

/// What is kept in `results/`.
#[must_use]
pub fn rows(report: &DoctorReport) -> Vec<Row> {
    let sum = |of: fn(&Found) -> u64| report.campaigns.iter().map(of).sum::<u64>();
    let faults = sum(|found| found.faults);
    let near = format!("within {} executions", report.within);
    vec![
        Row::share(
            "exact",
            format!("drawn executions that are hit, by single steps, {near}"),
            sum(|found| found.hit),
            faults,
        ),
        Row::share(
            "exact.same",
            "with the same values and the same end",
            sum(|found| found.same),
            faults,
        ),
    ]
}

/// The table.
#[must_use]
pub fn render(report: &DoctorReport) -> String {
    let row = |found: &Found| {
        let counts = [found.faults, found.hit, found.same, found.beyond];
        let cells = counts.map(|count| count.to_string());
        [vec![found.campaign.clone()], cells.to_vec()].concat()
    };
    let rows: Vec<Vec<String>> = report.campaigns.iter().map(row).collect();
    let mut out = table::render(&["campaign", "faults", "hit", "same end", "beyond"], &rows);
    for line in report.campaigns.iter().flat_map(|found| &found.different) {
        out += &format!("  {line}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn campaigns_are_summed_up() {
        let found = |faults, hit, same| Found {
            faults,
            hit,
            same,
            ..Found::default()
        };
        let report = DoctorReport {
            bench: "doctor".to_owned(),
            machine: crate::tests::machine(),
            within: 100,
            campaigns: vec![found(220, 220, 218), found(70, 70, 67)],
        };
        let rows = rows(&report);
        assert_eq!((rows[0].hits, rows[0].n), (Some(290), Some(290)));
        assert_eq!((rows[1].hits, rows[1].n), (Some(285), Some(290)));
    }
}
