//! Bytes that would read the clock if they were an instruction, and whether they can be one.
//!
//! Nothing stands behind an `rdtsc` that keeps its instruction: where replicas execute one, they differ. So all bytes
//! `0f 31` and `0f 01 f9` count that no function and no control flow from one accounts for. Most are parts of
//! other instructions, or data, and that can be told in three ways:
//!
//! - They lie in a section that is not for code (linkers with one segment for all: libLLVM).
//! - What would follow makes no sense before control goes elsewhere: bytes that are no instruction, or none of a
//!   user program's, a branch out of the code or into the middle of an instruction.
//! - They lie inside an instruction: decodes from any byte before meet and say so, and nothing leads to where
//!   another decode would begin.
//!
//! Not covered: code in such sections; what is reached in a way that leaves no trace, behind data that decodes as code.

use iced_x86::{Code, Instruction, OpKind};

use crate::index::{Index, Targets};
use crate::insn::{INSN_BYTES_MAX, ends_block, is_user_code, site_of};
use crate::{Site, SiteKind};

/// As far as 8-bit branches reach from either side, and room for decodes to meet.
const AROUND: u64 = 192;
/// Code that makes sense for so many bytes before is code: of arbitrary bytes one in six begins no instruction of a
/// program's (privileged, or none).
const SENSE_MIN: u64 = 24;
/// Instructions that are looked at behind one.
const AHEAD: usize = 64;

/// Whether it is a counter that runs by itself.
pub fn reads_clock(kind: SiteKind) -> bool {
    matches!(kind, SiteKind::Rdtsc | SiteKind::Rdtscp)
}

/// Whether code begins with the bytes of one.
pub(crate) fn spells_clock(code: &[u8]) -> bool {
    code.starts_with(&[0x0F, 0x31]) || code.starts_with(&[0x0F, 0x01, 0xF9])
}

/// Whether `at`, which lies in this function or in none, is not accounted for: if a function decodes as a whole it is
/// an instruction of it or none at all.
pub(crate) fn is_open(index: &Index<'_>, unit: Option<usize>, at: u64) -> bool {
    unit.is_none_or(|unit| !index.decoded(unit).clean) && !is_inert(index, at)
}

/// Those of `open` that may be an instruction although nothing proves it. `known` are the places of other sites, ascending: they will be
/// asked about as well.
pub(crate) fn clocks(index: &Index<'_>, open: &[u64], known: &[u64]) -> Vec<Site> {
    let mut found: Vec<Site> = open
        .iter()
        .filter(|&at| known.binary_search(at).is_err() && makes_sense(index, *at))
        .filter_map(|&at| site_of(&index.instruction(at)?, false))
        .collect();
    // Where that is known by now it tells most; else the bytes around do, for less.
    if let Some(reached) = index.reached_by_now() {
        found.retain(|site| !reached.holds(site.addr));
    }
    if found.is_empty() {
        return found;
    }
    let places = found.iter().map(|site| site.addr);
    let targets = index.targets_around(&places.chain(known.iter().copied()).collect::<Vec<_>>());
    found
        .retain(|site| !is_inside(index, &targets, site.addr) && !index.reached().holds(site.addr));
    found
}

fn is_inert(index: &Index<'_>, at: u64) -> bool {
    index.module.inert.iter().any(|range| range.contains(&at))
}

/// An instruction of a program's, or padding.
fn is_sane(insn: &Instruction) -> bool {
    insn.code() == Code::Int3 || is_user_code(insn)
}

/// Whether a program could go on from here.
fn makes_sense(index: &Index<'_>, from: u64) -> bool {
    let mut at = from;
    for _ in 0..AHEAD {
        let Some(insn) = index.instruction(at).filter(is_sane) else {
            return false;
        };
        if insn.op_count() > 0
            && insn.op0_kind() == OpKind::NearBranch64
            && !may_be_entered(index, insn.near_branch_target())
        {
            return false;
        }
        // What is called may not come back: anything may stand behind.
        if ends_block(&insn) {
            return true;
        }
        at = insn.next_ip();
    }
    true
}

/// Whether an instruction may start here, as far as functions are known. A branch may skip a prefix.
fn may_be_entered(index: &Index<'_>, target: u64) -> bool {
    // What nobody defines lies at 0 (weak symbols), and is not called.
    const NOWHERE: u64 = 0x1000;
    if index.view(target).is_none() {
        return target < NOWHERE;
    }
    let Some(unit) = index.unit_holding(target) else {
        return !is_inert(index, target);
    };
    let decoded = index.decoded(unit);
    let starts = |addr: u64| decoded.starting(addr).is_some();
    let prefix = || matches!(index.rest(target - 1).first(), Some(0xF0 | 0xF2 | 0xF3));
    !decoded.clean || starts(target) || (starts(target - 1) && prefix())
}

/// The instructions from `from` on, until they make no sense or one begins at `to` or behind.
fn stream(index: &Index<'_>, from: u64, to: u64) -> Vec<Instruction> {
    let mut found = Vec::new();
    let mut at = from;
    while at < to {
        let Some(insn) = index.instruction(at).filter(is_sane) else {
            break;
        };
        at = insn.next_ip();
        found.push(insn);
    }
    found
}

/// Whether `addr` lies in the middle of an instruction that is one.
fn is_inside(index: &Index<'_>, targets: &Targets, addr: u64) -> bool {
    let around = match index.unit_holding(addr) {
        Some(unit) => Some(index.units[unit].clone()),
        None => index.gap_of(addr),
    };
    let Some(around) = around else { return false };
    let from = addr.saturating_sub(AROUND).max(around.start);
    // Of so many bytes one starts an instruction, if there is code.
    let last = (from + INSN_BYTES_MAX as u64 - 1).min(addr);
    let mut common: Option<Vec<u64>> = None;
    for start in from..=last {
        let run = stream(index, start, addr + 1);
        if run.last().is_none_or(|insn| insn.next_ip() <= addr) {
            continue;
        }
        let starts = run.iter().map(Instruction::ip);
        common = Some(match common {
            None => starts.collect(),
            Some(known) => {
                let starts: Vec<u64> = starts.collect();
                known
                    .into_iter()
                    .filter(|at| starts.binary_search(at).is_ok())
                    .collect()
            }
        });
    }
    // Where all of them meet they are one from there on.
    let Some(&met) = common.as_ref().and_then(|starts| starts.first()) else {
        return false;
    };
    if addr - met < SENSE_MIN {
        return false;
    }
    let run = stream(index, met, (addr + AROUND).min(around.end));
    let is_start = |at: u64| run.binary_search_by_key(&at, Instruction::ip).is_ok();
    let led_to = |at: u64| {
        targets.contains(at)
            || run.iter().any(|insn| {
                insn.op_count() > 0
                    && insn.op0_kind() == OpKind::NearBranch64
                    && insn.near_branch_target() == at
            })
    };
    let leads_here = |at: u64| {
        stream(index, at, addr + 1)
            .last()
            .is_some_and(|insn| insn.ip() == addr)
    };
    !is_start(addr) && !(met + 1..=addr).any(|at| !is_start(at) && leads_here(at) && led_to(at))
}
