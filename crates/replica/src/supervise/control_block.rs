//! Control block: what is in shared memory before a group begins (crates/agent/src/layout/abi.h).

use steadfast_contract::plan::{Backstop, CheckMemory, HugePages, OnMismatch, Plan};
use steadfast_sys::{cpu, shared::Shared};

use super::io_step;
use crate::abi::{self, option};
use crate::group::{Group, at};
use crate::{LaunchError, Step, limits};

/// Least time between two memory checks. A check and its snapshot cost about 0.3 ms for a
/// small program, which this keeps below the default budget of 1 %.
const EPOCH_US: u64 = 50_000;
/// A thread gives way to others after so long, at an event or where a payload counts (thread.c).
const SLICE_US: u64 = 10_000;
/// After a snapshot the next store to each page makes a copy of it. Measured on the reference
/// machine: 2.2 to 2.6 µs for each 4 KiB, in huge pages too, which split.
const COPY_NS: u64 = 2_400;

fn spin_ticks(plan: &Plan, cores: &[usize]) -> (u32, u32) {
    // A sleeping wake across cores costs about 40 µs (docs/specification.md): spin as long
    // before giving the core away. With fewer cores than replicas the one waited for may need
    // this very core, so yield at once.
    let us = cpu::ticks_per_us();
    if cores.len() >= usize::from(plan.replicas) {
        (us * 40, 0)
    } else {
        (us, 50)
    }
}

/// A new control block for a plan's group. `privileged`: its replicas may make namespaces as they are.
pub(crate) fn control_block(
    plan: &Plan,
    cores: &[usize],
    equal_pids: bool,
    privileged: bool,
    more: u32,
) -> Result<Group, LaunchError> {
    limits::room()?;
    let memory = io_step(Step::Memory, Shared::new(c"steadfast", abi::SHARED_BYTES))?;
    Ok(control_block_in(
        memory, plan, cores, equal_pids, privileged, more,
    ))
}

/// The same in memory that is there.
pub(crate) fn control_block_in(
    memory: Shared,
    plan: &Plan,
    cores: &[usize],
    equal_pids: bool,
    privileged: bool,
    more: u32,
) -> Group {
    let n = u32::from(plan.replicas);
    let group = Group::new(memory);
    group.set64(at!(magic), 0x5354_4541_4446_4153);
    group.set32(at!(version), 1);
    group.set32(at!(replicas), n);
    group.set32(at!(wait live), (1 << n) - 1);
    let (spin, yields) = spin_ticks(plan, cores);
    group.set32(at!(spin_tsc), spin);
    group.set32(at!(yields), yields);
    group.set64(at!(slice_tsc), u64::from(cpu::ticks_per_us()) * SLICE_US);
    let affinity = cpu::affinity();
    group
        .memory
        .write(at!(wait affinity), &affinity[..affinity.len().min(256)]);
    group
        .memory
        .write(at!(wait allowed), &affinity[..affinity.len().min(256)]);
    group.set32(
        at!(wait affinity_bytes),
        u32::try_from(affinity.len().min(256)).expect("small"),
    );
    let mut options = match plan.backstop {
        Backstop::Token => option::SUD,
        Backstop::Seccomp => option::SECCOMP,
        Backstop::Both => option::SUD | option::SECCOMP,
        Backstop::None => 0,
    };
    if plan.huge_pages == HugePages::Auto {
        options |= option::HUGE;
    }
    if equal_pids {
        options |= option::PRIV_NS;
        if !privileged {
            options |= option::USER_NS;
        }
    }
    // With three or more replicas a majority is at hand; two need the log for a replay vote.
    let retain = plan.replicas == 2 && plan.on_mismatch == OnMismatch::Recover;
    if retain {
        options |= option::RETAIN;
    }
    for (wanted, bit) in [
        (plan.private.text, option::PRIVATE_TEXT),
        (plan.private.rodata, option::PRIVATE_RODATA),
        (plan.private.rest, option::PRIVATE_REST),
    ] {
        if wanted {
            options |= bit;
        }
    }
    match plan.check_memory {
        CheckMemory::Off => {}
        CheckMemory::Dirty => options |= option::CHECK_DIRTY,
        CheckMemory::Full => options |= option::CHECK_FULL,
    }
    // Under a profile checks by the clock would come a hundred times as often as they do.
    let timed = more & option::PROFILE == 0;
    if plan.replicas > 1 && timed && (retain || plan.check_memory != CheckMemory::Off) {
        let ticks_per_us = u64::from(cpu::ticks_per_us());
        group.set64(at!(epoch_tsc), ticks_per_us * EPOCH_US);
        group.set64(at!(copy_tsc), ticks_per_us * COPY_NS / 1000);
        group.set32(at!(epoch_permille), plan.epoch_budget.permille().into());
        group.set32(at!(snapshot_broken), 1);
    }
    group.set32(at!(options), options | more);
    group
}
