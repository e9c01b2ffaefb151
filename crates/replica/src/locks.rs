//! Locks: the instructions at which a thread may come to own something that others wait for.
//!
//! A lock is taken by an instruction that reads and writes memory in one step. Before it the thread does not own that lock yet, so there
//! others have their turn now and then (crates/agent, thread.c, `aims`). What is found is a superset: that an instruction takes nothing, or
//! is never come by, costs a turn that is longer.
//!
//! Not covered: locks of plain loads and stores (Peterson's); ways through computed jumps.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// Intel SDM vol. 2, section 2.3.11.
pub(crate) const INSTRUCTION_MAX: usize = 15;
/// Instructions that are looked at, the nearest first: some functions' worth.
const LOOKED_AT: usize = 4_000;
/// Found ones; each of them has every so many turns end at it.
const MOST: usize = 16;
/// How much farther than an instruction a function is that is called, and a caller.
const CALL: u32 = 20;
const CALLER: u32 = 40;

/// Those around where a thread computes, the nearest first. `frames` are where it stands and where its callers go on, `code` answers
/// with the bytes of an instruction, `word` with a word of memory.
pub(crate) fn around(
    frames: &[u64],
    mut code: impl FnMut(u64) -> Option<Vec<u8>>,
    word: impl Fn(u64) -> Option<u64>,
) -> Vec<u64> {
    let mut ways: BinaryHeap<Reverse<(u32, u64)>> = (0..)
        .step_by(CALLER as usize)
        .zip(frames)
        .map(|(far, at)| Reverse((far, *at)))
        .collect();
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    while let Some(Reverse((far, at))) = ways.pop() {
        if seen.len() == LOOKED_AT || found.len() == MOST {
            break;
        }
        if !seen.insert(at) {
            continue;
        }
        let Some(insn) = code(at).and_then(|bytes| decode(at, &bytes)) else {
            continue;
        };
        if takes(&insn) {
            found.push(at);
        }
        for (farther, to) in leads_to(&insn, &word) {
            ways.push(Reverse((far.saturating_add(farther), to)));
        }
    }
    found
}

/// Whether an address is where a call comes back to.
pub(crate) fn is_behind_a_call(addr: u64, code: &mut impl FnMut(u64) -> Option<Vec<u8>>) -> bool {
    (2..=7).any(|len| {
        let at = addr.wrapping_sub(len);
        let insn = code(at).and_then(|bytes| decode(at, &bytes));
        insn.is_some_and(|insn| insn.next_ip() == addr && calls(&insn))
    })
}

fn decode(at: u64, bytes: &[u8]) -> Option<Instruction> {
    let insn = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    (!insn.is_invalid()).then_some(insn)
}

fn calls(insn: &Instruction) -> bool {
    let flow = insn.flow_control();
    flow == FlowControl::IndirectCall
        || flow == FlowControl::Call && insn.op0_kind() == OpKind::NearBranch64
}

/// An exchange with memory locks without a prefix.
fn takes(insn: &Instruction) -> bool {
    let memory = (0..insn.op_count()).any(|operand| insn.op_kind(operand) == OpKind::Memory);
    insn.has_lock_prefix() || insn.mnemonic() == Mnemonic::Xchg && memory
}

/// Where control may go from an instruction, and how much farther that is. Behind a system call there is an event.
fn leads_to(insn: &Instruction, word: &impl Fn(u64) -> Option<u64>) -> Vec<(u32, u64)> {
    let next = (1, insn.next_ip());
    let near = (insn.op0_kind() == OpKind::NearBranch64).then(|| insn.near_branch_target());
    // By way of a table of the linker's.
    let kept = insn
        .is_ip_rel_memory_operand()
        .then(|| word(insn.ip_rel_memory_address()))
        .flatten();
    let ways = match insn.flow_control() {
        FlowControl::Next if insn.code() != Code::Hlt => [Some(next), None],
        FlowControl::ConditionalBranch => [near.map(|to| (1, to)), Some(next)],
        FlowControl::UnconditionalBranch => [near.map(|to| (1, to)), None],
        FlowControl::IndirectBranch => [kept.map(|to| (1, to)), None],
        FlowControl::Call if near.is_some() => [near.map(|to| (CALL, to)), Some(next)],
        FlowControl::IndirectCall => [kept.map(|to| (CALL, to)), Some(next)],
        _ => [None, None],
    };
    ways.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x40_0000;

    fn search(code: &[u8], frames: &[u64], kept: u64) -> Vec<u64> {
        let at = |addr: u64| {
            let from = usize::try_from(addr.checked_sub(BASE)?).ok()?;
            code.get(from..)
                .filter(|rest| !rest.is_empty())
                .map(<[u8]>::to_vec)
        };
        around(frames, at, |_| Some(kept))
    }

    #[test]
    fn the_nearest_comes_first_and_what_no_way_leads_to_is_left_out() {
        // xchg [rdi], eax; lock dec dword ptr [rdi]; xchg eax, edx; jne to the first; ret; lock inc dword ptr [rdi]
        let code = [
            0x87, 0x07, 0xf0, 0xff, 0x0f, 0x92, 0x75, 0xf8, 0xc3, 0xf0, 0xff, 0x07,
        ];
        assert_eq!(search(&code, &[BASE + 2], 0), [BASE + 2, BASE]);
        assert_eq!(search(&code, &[BASE], 0), [BASE, BASE + 2]);
        assert_eq!(search(&code, &[BASE + 8], 0), [0_u64; 0]);
    }

    #[test]
    fn functions_that_are_called_and_callers_are_looked_at() {
        // call +7: the exchange; nop; ret; call [rip]; nop; ret; xchg [rdi], eax; ret
        let code = [
            0xe8, 0x09, 0, 0, 0, 0x90, 0xff, 0x15, 0, 0, 0, 0, 0x90, 0xc3, 0x87, 0x07, 0xc3,
        ];
        let exchange = BASE + 14;
        assert_eq!(search(&code, &[BASE], 0), [exchange]);
        assert_eq!(search(&code, &[BASE + 6], exchange), [exchange]);
        assert_eq!(search(&code, &[BASE + 16], 0), [0_u64; 0]);
        assert_eq!(search(&code, &[BASE + 16, exchange], 0), [exchange]);
        let mut at = |addr: u64| {
            let from = usize::try_from(addr.checked_sub(BASE)?).ok()?;
            code.get(from..).map(<[u8]>::to_vec)
        };
        for (addr, behind) in [(5, true), (12, true), (13, false), (0, false)] {
            assert_eq!(is_behind_a_call(BASE + addr, &mut at), behind, "{addr}");
        }
    }
}
