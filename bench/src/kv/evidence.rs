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
use super::{Group, KEY_BYTES, Plan, READY, VALUE_BYTES, WARM};

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
        clients: 30,
        keys: 100,
        key_bytes: KEY_BYTES,
        value_bytes: VALUE_BYTES,
        get_percent: 75,
        envelope,
    }
}

/// Strikes of every class until there are enough, at a group whose clients use the envelope; then replies on their way to stock clients.
pub(super) fn live(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let group = Group::start(&plan.program, "RDGX")?;
    let mut clients = Clients::connect(&group.clients, shape(true), plan.seed)?;
    clients.saturate(WARM)?;
    let mut found: BTreeMap<&str, (u64, Load)> = BTreeMap::new();
    let mut rng = Rng::new(plan.seed ^ 0x11fe);
    let mut all = 0;
    for turn in 0.. {
        let number = turn % CLASSES.len();
        if all >= plan.strikes && number == 0 {
            break;
        }
        // Another replica with every round through the classes.
        let victim = turn / CLASSES.len() % group.clients.len();
        let (name, ..) = CLASSES[number];
        let (load, hits) = slice(&group, &mut clients, number, victim, &mut rng)?;
        nothing_left(&group)?;
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
    }
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
        "wrong replies, clients with the envelope, strikes of all classes",
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
    let group = Group::start(&plan.program, "RDGX")?;
    let mut stock = Clients::connect(&group.clients, shape(false), plan.seed)?;
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
    let group = Group::start(&plan.program, "RDGX")?;
    let mut clients = Clients::connect(&group.clients, shape(false), plan.seed)?;
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
    for (name, classes, wanted) in classes {
        let until = if name == "mixed" {
            plan.simulated
        } else {
            faults + wanted
        };
        let (mut made, mut bad) = (0, 0);
        while faults < until {
            let seed = plan.seed << 32 | runs;
            let outcome = sim::run(&sim::Plan {
                size: if runs.is_multiple_of(4) { 5 } else { 3 },
                seed,
                entries: 200,
                batch: 1 + (runs % 4) as usize,
                fault_one_in: 3,
                classes: classes.clone(),
                crash: runs % 8 == 1,
            });
            ensure!(
                outcome.left.is_empty(),
                "seed {seed}, {name}: {:?}",
                outcome.left
            );
            runs += 1;
            faults += outcome.faults.values().sum::<u64>();
            made += outcome.faults.get(name).copied().unwrap_or_default();
            bad += outcome.wrong;
            refused += outcome.refused;
            released += outcome.released;
        }
        says(&format!(
            "{name}: {made} faults, {bad} wrong replies; {faults} in all"
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
        format!("wrong replies in {runs} simulated runs, faults of all classes"),
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
    let mut number = 0;
    while requests < plan.quiet {
        let outcome = sim::run(&sim::Plan {
            size: 3,
            seed: !plan.seed << 32 | number,
            entries: 2000,
            batch: 512,
            fault_one_in: 0,
            classes: Vec::new(),
            crash: false,
        });
        number += 1;
        // Each request is answered by every replica.
        requests += outcome.released / 3;
        alarms += outcome.mismatches + outcome.wrong + outcome.refused + outcome.repaired;
        if number % 10 == 0 {
            says(&format!(
                "{requests} requests without a fault, {alarms} alarms"
            ));
        }
    }
    rows.push(Row::share(
        "quiet.process",
        "false alarms, requests in one process, the protocol of three replicas",
        alarms.min(requests),
        requests,
    ));
    Ok(())
}
