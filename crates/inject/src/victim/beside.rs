//! Flips in processes around the replicas, in the code planted into them, and two faults in one run.

use super::own::{self, Agent};
use super::strike::{Strike, Whom};
use super::{Drawn, Group, Sites, Wanted};
use crate::chacha::Draw;
use crate::models::Model;

pub(super) const ALL: [&str; 7] = [
    "keeper",
    "job_control",
    "launcher",
    "mending",
    "arena",
    "repair",
    "pair",
];

/// What the agent runs while everybody is paused (crates/agent/src/vote/log.c, recover.c, epoch.c).
const REPAIR: [&str; 9] = [
    "sf_pause",
    "sf_send",
    "sf_receive",
    "sf_fork_follower",
    "fork_follower",
    "sf_again",
    "sf_as_event",
    "sf_inherit_claims",
    "sleep_as_snapshot",
];
const REGISTERS: [&str; 10] = [
    "rax", "rcx", "rdx", "rbx", "rsi", "rdi", "rbp", "r8", "r12", "r13",
];
/// Places that are looked at for a second fault.
const DRAWS: u32 = 50;

pub(super) fn draw(wanted: &Wanted<'_>, sites: Sites<'_>) -> Result<Vec<Group>, String> {
    let code = Agent::open()?.functions(&REPAIR);
    if code.is_empty() {
        return Err("the agent has none of the functions that repair".into());
    }
    let mut out = Vec::new();
    for (number, name) in (0..).zip(ALL) {
        let one = |run| {
            let mut draw = wanted.seed.stream(number, run);
            match name {
                "repair" => repair(&code, wanted, sites, &mut draw),
                "pair" => {
                    let first = value(sites, &mut draw, 0)?;
                    let second = value(sites, &mut draw, 1)?;
                    Some(both(first, &second.fault))
                }
                _ => struck(name, sites, &mut draw),
            }
        };
        out.push(Group {
            name: name.into(),
            population: wanted.runs,
            reachable: wanted.runs,
            drawn: (0..wanted.runs).filter_map(one).collect(),
        });
    }
    Ok(out)
}

/// A strike from outside, with what makes its victim matter.
fn struck(name: &str, sites: Sites<'_>, draw: &mut Draw) -> Option<Drawn> {
    let (whom, drawn) = match name {
        // Nobody asks the keeper before the leader is gone.
        "keeper" => {
            let at = sites(draw)?;
            let drawn = Drawn::at(at, "replica=leader ", "kind=crash");
            (Whom::Keeper, drawn)
        }
        "mending" => {
            let replica = draw.below(2);
            (Whom::Launcher, value(sites, draw, replica)?)
        }
        "job_control" => (Whom::JobControl, Drawn::default()),
        "arena" => (Whom::Arena, Drawn::default()),
        _ => (Whom::Launcher, Drawn::default()),
    };
    let strike = Strike {
        whom,
        permille: draw.below(1000),
        seed: draw.number(),
    };
    Some(Drawn {
        strike: Some(strike),
        ..drawn
    })
}

/// A register of a replica, at an instruction drawn uniformly over the program.
fn value(sites: Sites<'_>, draw: &mut Draw, replica: u64) -> Option<Drawn> {
    let effect = format!("reg={} bit={}", draw.one_of(&REGISTERS), draw.below(48));
    let at = sites(draw)?;
    Some(Drawn::at(at, &format!("replica={replica} "), &effect))
}

fn repair(
    code: &[own::Site],
    wanted: &Wanted<'_>,
    sites: Sites<'_>,
    draw: &mut Draw,
) -> Option<Drawn> {
    let replica = draw.below(2);
    let first = value(sites, draw, replica)?;
    for _ in 0..DRAWS {
        let site = draw.one_of(code);
        let model = *draw.one_of(&Model::SEI);
        if !model.concerns(&site.insn) || model.obstacle(&site.insn).is_some() {
            continue;
        }
        let Some(found) = model.draw(&site.insn, wanted.shape, draw) else {
            continue;
        };
        let n = 1 + draw.below(2);
        let line = format!("at=agent+{:#x} n={n} {}", site.offset, found.effect);
        if own::plantable(&line) {
            return Some(both(first, &format!("replica={} {line}", draw.below(2))));
        }
    }
    None
}

fn both(first: Drawn, second: &str) -> Drawn {
    Drawn {
        fault: format!("{}; {second}", first.fault),
        ..first
    }
}
