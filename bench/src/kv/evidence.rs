//! Evidence by the number: strikes of every class at a real group, requests without a fault, and the protocol alone in a simulation.
//!
//! Invariants
//!  1. All strikes of a slice at what is stored or executed hit one replica; everything is compared before another one's turn comes.
//!  2. A slice has strikes of one class, so that a wrong reply is counted against it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use steadfast_crosscheck::sim::{self, Class};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;

use super::faults::{ask, under};
use super::load::{Clients, Load, Shape};
use super::{Group, Plan, READY, VALUE_BYTES, WARM};

/// Of each class in turn.
const SLICE: Duration = Duration::from_secs(4);
/// The classes: name, the strike's clause if it waits for the next that passes, and how many a second.
const CLASSES: [(&str, Option<&str>, f64); 9] = [
    ("object", None, 250.0),
    ("check", Some("message=check"), 200.0),
    ("reply", Some("message=reply"), 200.0),
    ("replies", Some("queue=replies"), 200.0),
    ("log", Some("queue=log"), 20.0),
    // These need an object to be repaired, so one is struck first.
    ("repair", Some("message=repair"), 100.0),
    ("recover", Some("message=recover"), 20.0),
    // Each of these holds a replica's requests up until they are ordered again.
    ("entry", Some("message=entry"), 20.0),
    ("submit", Some("queue=submit"), 20.0),
];

fn shape(envelope: bool) -> Shape {
    Shape {
        keys: 100,
        envelope,
        ..Shape::of_paper(30, 75)
    }
}

/// Strikes of every class until there are enough, at a group whose clients use the envelope; then replies on their way to stock clients.
pub(super) fn live(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let wanted = |class: &usize| {
        plan.classes.is_empty() || plan.classes.iter().any(|name| name == CLASSES[*class].0)
    };
    let classes: Vec<usize> = (0..CLASSES.len()).filter(wanted).collect();
    let known = CLASSES.map(|(name, ..)| name).join(", ");
    ensure!(
        classes.len() == CLASSES.len() || classes.len() == plan.classes.len(),
        "--class is one of {known}; found {:?}",
        plan.classes
    );
    let group = Group::start(plan, "RDGX")?;
    let mut clients = group.connect(shape(true), plan.seed)?;
    clients.saturate(WARM)?;
    let mut found: BTreeMap<&str, (u64, Load)> = BTreeMap::new();
    let mut rng = Rng::new(plan.seed ^ 0x11fe);
    let mut all = 0;
    let mut told = 0;
    for turn in 0.. {
        let number = turn % classes.len();
        if all >= plan.strikes && number == 0 {
            break;
        }
        // Another replica with every round through the classes.
        let victim = turn / classes.len() % group.clients.len();
        let class = classes[number];
        let (name, ..) = CLASSES[class];
        let (load, hits) = slice(&group, &mut clients, class, victim, &mut rng)
            .and_then(|found| nothing_left(&group).map(|()| found))
            .with_context(|| format!("class {name}; the replicas say\n{}", group.standing()))?;
        all += hits;
        let sum = found.entry(name).or_default();
        sum.0 += hits;
        sum.1.add(load);
        says(&format!(
            "{all} strikes; {name}: {} of them, {} requests, {} wrong replies, {} errors",
            sum.0, sum.1.requests, sum.1.wrong, sum.1.refused
        ));
        if let Some(text) = &sum.1.example {
            says(&format!("a wrong reply: {text:?}"));
        }
        let troubles = group.troubles();
        for trouble in troubles.iter().skip(told) {
            says(&format!("{name}: {trouble}"));
        }
        told = troubles.len();
    }
    let troubles = group.troubles();
    let replaced = troubles
        .iter()
        .filter(|trouble| trouble["event"] == "replaced")
        .count();
    let mut sum = Load::default();
    for (name, (hits, load)) in found {
        rows.push(Row::share(
            format!("live.{name}.wrong"),
            format!("wrong replies, clients with the envelope, strikes of class {name}"),
            load.wrong.min(hits),
            hits,
        ));
        sum.add(load);
    }
    rows.push(Row::share(
        "live.wrong",
        format!(
            "wrong replies, clients with the envelope, strikes of all classes; {replaced} replicas were replaced"
        ),
        sum.wrong.min(all),
        all,
    ));
    rows.push(Row::share(
        "live.refused",
        "of these clients' requests, those that were answered with an error or broke off",
        sum.refused,
        sum.requests,
    ));
    // A group of its own: the last strikes at the first may still wait.
    let group = Group::start(plan, "RDGX")?;
    let mut stock = group.connect(shape(false), plan.seed)?;
    stock.saturate(WARM)?;
    let (load, hits) = slice(&group, &mut stock, 2, 0, &mut rng)?;
    rows.push(Row::share(
        "live.stock-reply.wrong",
        "wrong replies to stock clients, a reply struck between its vote and the socket",
        load.wrong.min(hits),
        hits,
    ));
    Ok(())
}

/// Load, and strikes of one class; how many hit. A strike that waits and meets nothing is not counted.
fn slice(
    group: &Group,
    clients: &mut Clients,
    class: usize,
    victim: usize,
    rng: &mut Rng,
) -> Result<(Load, u64)> {
    let (name, clause, a_second) = CLASSES[class];
    let keys: Vec<String> = (0..512).map(|_| clients.some_key(rng)).collect();
    let mut waiting = [false; 3];
    let (load, hits) = under(group, clients, SLICE, a_second, |lines, turn| {
        let mut hits = 0;
        let object = format!(
            "strike replica={victim} object=item:{} byte={} bit={}",
            keys[rng.below(keys.len())],
            rng.below(VALUE_BYTES),
            rng.below(8)
        );
        if ["object", "repair", "recover"].contains(&name) {
            hits += u64::from(ask(&mut lines[victim], &object)? == "STRUCK" && name == "object");
        }
        if let Some(clause) = clause {
            let replica = match name {
                "log" | "replies" => victim,
                // The one that is struck gives nobody a repair.
                "repair" => (victim + 1 + turn % 2) % lines.len(),
                _ => turn % lines.len(),
            };
            let bit = rng.below(if name == "check" { 128 } else { 3000 });
            let said = ask(
                &mut lines[replica],
                &format!("strike replica={replica} {clause} bit={bit}"),
            )?;
            // One that was there before has been met by then.
            hits += u64::from(said == "STRUCK" && std::mem::replace(&mut waiting[replica], true));
        }
        Ok(hits)
    })?;
    Ok((load, hits))
}

/// Compares everything until nothing differs: a fault of another replica would be the second one.
fn nothing_left(group: &Group) -> Result<()> {
    let until = Instant::now() + READY;
    loop {
        let said: Value = serde_json::from_str(&group.ask(0, "verify")?).context("verify")?;
        let differ = said["differences"].as_array().map_or(0, Vec::len);
        if said["complete"] == true && differ == 0 {
            return Ok(());
        }
        ensure!(Instant::now() < until, "replicas still differ: {said}");
    }
}

/// Requests over sockets without a fault: whoever objects is wrong.
pub(super) fn quiet(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let group = Group::start(plan, "RDGX")?;
    let mut clients = group.connect(shape(false), plan.seed)?;
    let mut requests = 0;
    let mut wrong = 0;
    while requests < plan.quiet {
        let load = clients.saturate(Duration::from_secs(10))?;
        requests += load.requests;
        wrong += load.wrong + load.refused;
        says(&format!("{requests} requests"));
    }
    let mut alarms = wrong;
    for count in ["mismatches", "repairs", "refused", "poison"] {
        alarms += group.count(count)?;
    }
    rows.push(Row::share(
        "quiet.sockets",
        "false alarms, requests over sockets, three replicas",
        alarms.min(requests),
        requests,
    ));
    Ok(())
}

/// The real protocol over a simulated network and log: faults of each class alone and of all together, then none.
pub(super) fn simulated(
    plan: &Plan,
    says: &mut dyn FnMut(&str),
    rows: &mut Vec<Row>,
) -> Result<()> {
    // A list, a report or a repair is only sent where an object was hit before; all together come last and make up the number.
    let each = plan.simulated / (Class::ALL.len() + 1) as u64;
    let mut classes: Vec<(&str, Vec<Class>, u64)> = Class::ALL
        .map(|class| (class.name(), vec![class, Class::Object], each))
        .to_vec();
    classes.push(("mixed", Class::ALL.to_vec(), plan.simulated));
    let (mut runs, mut wrong, mut faults, mut refused, mut released) = (0_u64, 0, 0, 0, 0);
    let mut replaced = 0;
    for (name, classes, wanted) in classes {
        let until = if name == "mixed" {
            plan.simulated
        } else {
            faults + wanted
        };
        let (mut made, mut bad) = (0, 0);
        let first = runs;
        let of = |number: u64| sim::Plan {
            size: if number.is_multiple_of(4) { 5 } else { 3 },
            seed: plan.seed << 32 | number,
            entries: 200,
            batch: 1 + (number % 4) as usize,
            fault_one_in: 3,
            classes: classes.clone(),
            crash: number % 8 == 1,
        };
        in_order(first, of, |outcome| {
            ensure!(
                outcome.left.is_empty(),
                "run {runs} of seed {}, {name}: {:?}",
                plan.seed,
                outcome.left
            );
            runs += 1;
            faults += outcome.faults.values().sum::<u64>();
            made += outcome.faults.get(name).copied().unwrap_or_default();
            bad += outcome.wrong;
            refused += outcome.refused;
            replaced += outcome.replaced;
            released += outcome.released;
            Ok(faults < until)
        })?;
        says(&format!(
            "{name}: {made} faults, {bad} wrong replies; {faults} in all, {replaced} replicas replaced"
        ));
        wrong += bad;
        if name != "mixed" {
            rows.push(Row::share(
                format!("simulated.{name}.wrong"),
                format!("wrong replies in simulation, faults of class {name}"),
                bad.min(made),
                made,
            ));
        }
    }
    rows.push(Row::share(
        "simulated.wrong",
        format!(
            "wrong replies in {runs} simulated runs, faults of all classes; {replaced} replicas that could not be repaired were replaced"
        ),
        wrong.min(faults),
        faults,
    ));
    rows.push(Row::share(
        "simulated.refused",
        "entries that were answered with an error in these runs, of the replies that left",
        refused,
        released,
    ));
    let mut requests = 0;
    let mut alarms = 0;
    let of = |number: u64| sim::Plan {
        size: 3,
        seed: !plan.seed << 32 | number,
        entries: 2000,
        batch: 512,
        fault_one_in: 0,
        classes: Vec::new(),
        crash: false,
    };
    let mut number = 0;
    in_order(0, of, |outcome| {
        number += 1;
        // Each request is answered by every replica.
        requests += outcome.released / 3;
        alarms += outcome.mismatches + outcome.wrong + outcome.refused + outcome.repaired;
        if number % 10 == 0 {
            says(&format!(
                "{requests} requests without a fault, {alarms} alarms"
            ));
        }
        Ok(requests < plan.quiet)
    })?;
    rows.push(Row::share(
        "quiet.process",
        "false alarms, requests in one process, the protocol of three replicas",
        alarms.min(requests),
        requests,
    ));
    Ok(())
}

/// Runs plans by their number, on every CPU, until `goes_on` does not. It is handed the outcomes in the order of the numbers: how many CPUs
/// there are changes none of what is counted.
fn in_order(
    first: u64,
    plan: impl Fn(u64) -> sim::Plan + Sync,
    mut goes_on: impl FnMut(sim::Outcome) -> Result<bool>,
) -> Result<()> {
    let threads = std::thread::available_parallelism()?.get() as u64;
    for wave in 0.. {
        // Long enough that nobody waits for long, and short enough that little is run in vain.
        let numbers = first + wave * threads * 4..first + (wave + 1) * threads * 4;
        let plan = &plan;
        let outcomes: Result<Vec<Vec<sim::Outcome>>> = std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..threads)
                .map(|lane| {
                    let numbers = numbers.clone().filter(move |n| n % threads == lane);
                    scope.spawn(move || numbers.map(|number| sim::run(&plan(number))).collect())
                })
                .collect();
            let joined = lanes.into_iter().map(|lane| lane.join());
            joined
                .map(|outcomes| outcomes.map_err(|_| anyhow::anyhow!("a simulated run panicked")))
                .collect()
        });
        let mut lanes: Vec<_> = outcomes?.into_iter().map(Vec::into_iter).collect();
        for number in numbers {
            let outcome = lanes[usize::try_from(number % threads)?]
                .next()
                .context("a lane has run all of its numbers")?;
            if !goes_on(outcome)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_handed_on_in_the_order_of_their_numbers_and_end_when_they_are_to() {
        let plan = |number: u64| sim::Plan {
            size: 3,
            seed: number,
            entries: 2,
            batch: usize::try_from(number).unwrap(),
            fault_one_in: 0,
            classes: Vec::new(),
            crash: false,
        };
        let mut released = Vec::new();
        let taken = in_order(5, plan, |outcome| {
            released.push(outcome.released);
            Ok(released.len() < 40)
        });
        assert!(taken.is_ok());
        // Two entries of so many requests, in each of three replicas.
        assert!(released.iter().copied().eq((5..45).map(|n| 6 * n)));
    }
}
