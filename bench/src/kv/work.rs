//! What the vote costs where a request is more than a look into a table: each takes so many µs more, in every replica (Fig. 11 of the paper).

use std::collections::BTreeMap;

use anyhow::Result;
use steadfast_report::published::Row;

use super::load::Shape;
use super::{Group, MIXES, Plan, of_mix, percent, row};

/// µs that are added to each request, as in the paper.
const ADDED_US: [u64; 2] = [10, 90];
const STAGES: [&str; 2] = ["RD", "RDGX"];

pub(super) fn work(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let clients = plan.clients.iter().copied().max().unwrap_or(1);
    let mut rates: BTreeMap<(u64, &str, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..plan.rounds {
        for us in ADDED_US {
            for turn in 0..STAGES.len() {
                let stage = STAGES[(round + turn) % STAGES.len()];
                says(&format!(
                    "round {} of {}: {stage}, {us} µs more for each request",
                    round + 1,
                    plan.rounds
                ));
                let flags = ["--stage", stage, "--work-us", &us.to_string()];
                let group = Group::with(plan, &flags)?;
                let shape = Shape::of_paper(clients, 0);
                let mut load = group.connect(shape, plan.seed + round as u64)?;
                for (mix, percent) in MIXES {
                    let found = of_mix(&mut load, percent, plan.slice, stage)?;
                    rates
                        .entry((us, mix, stage))
                        .or_default()
                        .push(found.rate());
                }
            }
        }
    }
    for us in ADDED_US {
        for (mix, _) in MIXES {
            for stage in STAGES {
                rows.push(row(
                    format!("{mix}-work{us}.c{clients}.{}", stage.to_lowercase()),
                    format!("{mix}, {us} µs more for each request, {clients} clients, {stage}"),
                    &rates[&(us, mix, stage)],
                    "/s",
                ));
            }
            let ratio = percent(&rates[&(us, mix, "RDGX")], &rates[&(us, mix, "RD")]);
            rows.push(row(
                format!("{mix}-work{us}.c{clients}.rdgx-over-rd"),
                format!("{mix}, {us} µs more for each request, {clients} clients, RDGX over RD"),
                &ratio,
                "%",
            ));
        }
    }
    Ok(())
}
