//! Flips that change the output of a single replica, which is shown each time, and their protected forms.

use super::*;

/// A flip that changes the output of a single replica, which is shown each time, and its protected forms.
pub(super) struct Family {
    name: &'static str,
    flip: &'static str,
    target: fn() -> Result<Target, String>,
}

/// How a family is protected.
struct Way {
    name: &'static str,
    replicas: u8,
    /// Whether a difference stops the run.
    stops: bool,
    struck: &'static str,
}

const WAYS: &[Way] = &[
    Way {
        name: "leader_of_2",
        replicas: 2,
        stops: false,
        struck: "leader",
    },
    Way {
        name: "follower_of_2",
        replicas: 2,
        stops: false,
        struck: "follower",
    },
    Way {
        name: "leader_of_3",
        replicas: 3,
        stops: false,
        struck: "leader",
    },
    Way {
        name: "follower_of_3",
        replicas: 3,
        stops: false,
        struck: "2",
    },
    Way {
        name: "last_of_5",
        replicas: 5,
        stops: false,
        struck: "4",
    },
    Way {
        name: "leader_of_2_stops",
        replicas: 2,
        stops: true,
        struck: "leader",
    },
    Way {
        name: "follower_of_2_stops",
        replicas: 2,
        stops: true,
        struck: "follower",
    },
    Way {
        name: "follower_of_3_stops",
        replicas: 3,
        stops: true,
        struck: "1",
    },
];

pub(super) const fn family(
    name: &'static str,
    flip: &'static str,
    target: fn() -> Result<Target, String>,
) -> Family {
    Family { name, flip, target }
}

pub(super) const FAMILIES: &[Family] = &[
    // The value that every later line depends on; early, in the middle, near the end; a low and a high bit.
    family("value_early", "at=steady!flip_here n=1 reg=rax bit=0", long),
    family(
        "value_middle",
        "at=steady!flip_here n=60000 reg=rax bit=17",
        long,
    ),
    family(
        "value_late",
        "at=steady!flip_here n=122000 reg=rax bit=63",
        long,
    ),
    // The stack pointer and the next instruction: the replica crashes.
    family(
        "stack_pointer",
        "at=steady!flip_here n=30000 reg=rsp bit=40",
        long,
    ),
    family(
        "instruction_pointer",
        "at=steady!flip_here n=30000 ip bit=44",
        long,
    ),
    // A thread that does not run: its stack pointer, its way back, its own variables (thread.h).
    family(
        "parked_stack_pointer",
        "event=500 mem=[0x2e10000080c0] bit=3",
        parked,
    ),
    family(
        "parked_way_back",
        "event=500 mem=[0x2e10000080c8] bit=5",
        parked,
    ),
    family(
        "parked_fs_base",
        "event=500 mem=[0x2e1000008040] bit=3",
        parked,
    ),
    // Its vector state, at the control word: a reserved bit there ends who restores it.
    family(
        "parked_vector_state",
        "event=500 mem=[0x2e1000008418] bit=20",
        parked,
    ),
    family(
        "bad_core",
        "class=int-mul in=products n=1.. reg=rax after bit=13",
        products,
    ),
    // An instruction of a class is left out, and what follows it stands inside its window; a loop ends early.
    family(
        "left_out",
        "class=int-mul in=products n=700 kind=skip",
        products,
    ),
    family(
        "other_way",
        "class=branch in=products!main n=700 kind=invert",
        products,
    ),
    // Code that goes wrong on the way: a number becomes three times another one instead of twice.
    family("code", "at=survivor!twice n=700 code bit=30", survivor),
    // Memory operands, of addresses that the stack pointer forms: one instruction.
    family(
        "stack_store",
        "at=operands!store_here n=700 waddr bit=3",
        operands,
    ),
    family(
        "stack_load",
        "at=operands!load_here n=700 raddr bit=4",
        operands,
    ),
    family(
        "stack_push",
        "at=operands!push_here n=700 waddr bit=5",
        operands,
    ),
    // A store to a file mapped shared, which no call carries: early and late, whole pages of words apart.
    family(
        "mapped_early",
        "at=mmap_shared_rounds!flip_here n=1 mem=[rax] bit=5",
        mapped,
    ),
    family(
        "mapped_late",
        "at=mmap_shared_rounds!flip_here n=1200 mem=[rax+4] bit=31",
        mapped,
    ),
    family(
        "without_rights",
        "at=drop_steady!flip_here n=60000 reg=rax bit=17",
        dropped,
    ),
    // State in huge pages, which a snapshot shares and the follower copies: before and after the first.
    family(
        "huge_early",
        "at=huge_state!flip_here n=7000 reg=rax bit=40",
        huge,
    ),
    family(
        "huge_late",
        "at=huge_state!flip_here n=240000 reg=rax bit=3",
        huge,
    ),
];

pub(super) fn families() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, family) in FAMILIES.iter().enumerate() {
        let mut fault = |way: &str, replicas, stop, who: &str, after| {
            let fault = Fault {
                name: format!("{}::{way}", family.name),
                replicas,
                stop,
                flip: format!("{who}{}", family.flip),
                after,
            };
            trials.push(fault.trial(family.target));
        };
        fault("alone", 1, false, "", After::Unprotected);
        for (column, way) in WAYS.iter().enumerate() {
            if sampled(row, column) {
                let after = if way.stops {
                    After::Detected
                } else {
                    After::Corrected
                };
                let who = format!("replica={} ", way.struck);
                fault(way.name, way.replicas, way.stops, &who, after);
            }
        }
    }
    trials
}
