//! The step engine by itself: what its stops count, and targets that never come to the next one.
//!
//! As root and as an ordinary user alike.

mod common;

use std::sync::atomic::AtomicBool;

use common::clean;
use steadfast_contract::outcome::Leaf;
use steadfast_inject::campaign::Running;
use steadfast_inject::record::{Dir, Engine};

#[test]
fn single_steps_count_each_execution_once_and_give_up_who_waits() {
    let mut order = common::order("steps", "waits", 61_119);
    common::guest(
        &mut order,
        "waits",
        &["-O1", "-nostdlib", "-static", "-fno-stack-protector"],
    );
    order.engine = Engine::Step;
    order.lines = [
        "at=waits!answer n=400 reg=rax after bit=0",
        "at=waits!answer n=401 reg=rax after bit=0",
        // What it executes is only counted, and what it pushes is looked at.
        "at=waits!answer+5 n=401 reg=rax bit=0",
        // Nothing stops it any more, and a later execution might be hit.
        "at=waits!answer n=150.. reg=rax after bit=0",
        // Whatever the clock interrupts, none is left out; what it changes nobody looks at.
        "at=waits!answer n=1.. reg=rax after bit=2",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut running = Running::prepare(&order, "test", &mut |_| ()).expect("prepared");
    running
        .run(&AtomicBool::new(false), &|| false, &|_| ())
        .expect("run");
    drop(running);
    let runs = Dir::new(&order.dir).runs().expect("runs");
    let ends: Vec<_> = (0..4)
        .map(|id| (runs[&id].hits, runs[&id].outcome))
        .collect();
    assert_eq!(
        ends,
        [
            (1, Leaf::HangDeadlock),
            (0, Leaf::NotFired),
            (0, Leaf::NotFired),
            (1, Leaf::HangDeadlock)
        ],
        "{runs:?}"
    );
    // Slow or not.
    assert_eq!(
        (runs[&4].hits, runs[&4].status),
        (400, Some(0)),
        "{:?}",
        runs[&4]
    );
    // The second line's executions come beside a clock; the third's flags are those of a program that nobody steps.
    assert!(runs[&2].differ.is_empty(), "{:?}", runs[&2]);
    clean(&order);
}
