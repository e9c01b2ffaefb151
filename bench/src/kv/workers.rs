//! What several threads that execute (`--workers`) give, by how long a request takes.
//!
//! A group of each number is started in every round, in an order that rotates; every replica has that many threads.
//!
//! Not covered: replicas with CPUs of their own. Here three of them, and their clients, share the machine's.

use std::collections::BTreeMap;

use anyhow::Result;
use steadfast_report::published::Row;

use super::load::Shape;
use super::{Group, Plan, of_mix, percent, row};

const WORKERS: [&str; 3] = ["1", "2", "4"];
/// µs that are added to each request.
const ADDED_US: [u64; 3] = [0, 10, 90];
/// SET, so that every request is an access that changes something.
const MIX: (&str, usize) = ("set", 0);

pub(super) fn workers(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let clients = plan.clients.iter().copied().max().unwrap_or(1);
    let (mix, get_percent) = MIX;
    let mut rates: BTreeMap<(u64, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..plan.rounds {
        for us in ADDED_US {
            for turn in 0..WORKERS.len() {
                let count = WORKERS[(round + turn) % WORKERS.len()];
                says(&format!(
                    "round {} of {}: {count} threads, {us} µs more for each request",
                    round + 1,
                    plan.rounds
                ));
                let plan = Plan {
                    workers: Some(count.to_owned()),
                    ..plan.clone()
                };
                let flags = ["--stage", "RDGX", "--work-us", &us.to_string()];
                let group = Group::with(&plan, &flags)?;
                let mut load =
                    group.connect(Shape::of_paper(clients, 0), plan.seed + round as u64)?;
                let found = of_mix(&mut load, get_percent, plan.slice, "RDGX")?;
                rates.entry((us, count)).or_default().push(found.rate());
            }
        }
    }
    for us in ADDED_US {
        for count in WORKERS {
            let values = &rates[&(us, count)];
            rows.push(row(
                format!("{mix}-work{us}.c{clients}.workers{count}"),
                format!("{mix}, {us} µs more, {clients} clients, {count} threads that execute"),
                values,
                "/s",
            ));
            if count != WORKERS[0] {
                rows.push(row(
                    format!("{mix}-work{us}.c{clients}.workers{count}-over-1"),
                    format!("{mix}, {us} µs more, {clients} clients, {count} threads over one"),
                    &percent(values, &rates[&(us, WORKERS[0])]),
                    "%",
                ));
            }
        }
    }
    Ok(())
}
