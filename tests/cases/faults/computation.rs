//! Faults while nobody comes to an event for longer than a replica may take that hangs.

use super::*;

/// Nobody comes to an event for longer than a replica may take that hangs.
pub(super) fn killed_in_a_computation() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, replicas) in [2, 3].into_iter().enumerate() {
        for (who, name) in [
            [
                "leader_of_2_killed_in_a_computation",
                "leader_of_3_killed_in_a_computation",
            ],
            [
                "follower_of_2_killed_in_a_computation",
                "follower_of_3_killed_in_a_computation",
            ],
        ]
        .into_iter()
        .map(|names| names[row])
        .enumerate()
        {
            if paired(0, row, who) {
                trials.push(struck_after(
                    &[10],
                    name,
                    replicas,
                    who,
                    Signal::SIGKILL,
                    false,
                    computation,
                ));
            }
        }
    }
    trials
}

/// One replica leaves a long computation early, or crashes in it, or never comes to its end: who comes to the next event
/// first is not right for that.
pub(super) fn apart_in_a_computation() -> Vec<Trial> {
    const EARLY: &str = "reg=rdx bit=63";
    const CRASH: &str = "ip bit=45";
    const ENDLESS: &str = "reg=rdx bit=40";
    let mut trials = Vec::new();
    for (row, (name, effect)) in [("early", EARLY), ("crash", CRASH), ("endless", ENDLESS)]
        .into_iter()
        .enumerate()
    {
        let sizes = if effect == CRASH { [3, 2] } else { [2, 3] };
        for (column, replicas) in sizes.into_iter().enumerate() {
            for (role, who) in ["leader", "follower"].into_iter().enumerate() {
                if !paired(row, column, role) {
                    continue;
                }
                let flip = format!("replica={who} at=compute!flip_here n=7000 {effect}");
                let target = if effect == ENDLESS {
                    short_computation
                } else {
                    computation
                };
                let name = format!("{who}_{name}_of_{replicas}_in_a_computation");
                trials.push(
                    Fault {
                        name,
                        replicas,
                        stop: false,
                        flip,
                        after: After::Corrected,
                    }
                    .trial(target),
                );
            }
        }
    }
    let flip = format!("replica=follower at=compute!flip_here n=7000 {EARLY}");
    let name = "early_stops_of_2_in_a_computation".to_owned();
    trials.push(
        Fault {
            name,
            replicas: 2,
            stop: true,
            flip,
            after: After::Detected,
        }
        .trial(computation),
    );
    trials
}
