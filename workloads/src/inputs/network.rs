//! What the min-cost-flow solver solves: vehicle scheduling over time, as in SPEC's mcf.
//!
//! Trips are nodes, ordered by their start; an arc from a trip to a later one means the same
//! vehicle can serve both. A depot feeds the network and takes the vehicles back. Each trip is
//! split into two nodes so that it can be required to be served exactly once. The solver's
//! working set grows past any second-level cache and its pivots hop through it.
//!
//! The format is DIMACS "min": `p min NODES ARCS`, `n NODE SUPPLY`, `a FROM TO LOW CAP COST`.

use std::fmt::Write as _;

use super::Rng;

pub(crate) fn dimacs(trips: usize) -> String {
    const LINKS_PER_TRIP: usize = 12;
    let mut rng = Rng::new(0x6d_6366);
    let end_of = |trip: usize| 2 * trip + 2; // a vehicle becomes free here
    let start_of = |trip: usize| 2 * trip + 3; // a vehicle is needed here
    let depot = 1;
    let mut arcs = Vec::with_capacity(trips * (LINKS_PER_TRIP + 2));
    for trip in 0..trips {
        // From and to the depot: always possible, and dear, so the optimum reuses vehicles.
        arcs.push((depot, start_of(trip), 5_000 + rng.below(5_000)));
        arcs.push((end_of(trip), depot, 200 + rng.below(800)));
        for _ in 0..LINKS_PER_TRIP {
            let gap = 1 + rng.below(trips / 8);
            if trip + gap < trips {
                arcs.push((
                    end_of(trip),
                    start_of(trip + gap),
                    gap / 8 + rng.below(3_000),
                ));
            }
        }
    }
    let mut out = format!(
        "c vehicle scheduling, {trips} trips\np min {} {}\n",
        2 * trips + 1,
        arcs.len()
    );
    for trip in 0..trips {
        let _ = writeln!(out, "n {} 1\nn {} -1", end_of(trip), start_of(trip));
    }
    for (from, to, cost) in arcs {
        let _ = writeln!(
            out,
            "a {from} {to} 0 {} {cost}",
            if from == depot || to == depot {
                trips
            } else {
                1
            }
        );
    }
    out
}
