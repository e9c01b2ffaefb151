//! Basic blocks: stretches of instructions that are executed equally often.
//!
//! A block starts wherever something may branch to, and behind whatever hands control on. What
//! may be branched to is a superset of the truth, so a block is perhaps cut without need, never
//! joined wrongly, indirect targets that leave no trace aside.
//!
//! Not covered: code outside of known functions, and functions that do not decode as a whole.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, OpKind};

use crate::index::{is_padding, short_branches};
use crate::insn::{ends_block, is_terminator};
use crate::plan::Survey;

/// How control leaves a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// To the next block.
    Falls,
    /// To the first address or to the next block.
    Branches(u64),
    /// To this address.
    Jumps(u64),
    /// To a function, and from there, as a rule, to the next block.
    Calls,
    /// To where only the run can tell, or nowhere.
    Leaves,
}

/// Instructions that are executed equally often, faults and signals aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    pub range: Range<u64>,
    /// Starts of its instructions.
    pub starts: Vec<u64>,
    pub end: End,
    /// Whether something may come here that no [`End`] of the same function tells of.
    pub entered: bool,
}

impl Survey<'_> {
    /// The blocks of all functions, ascending.
    pub fn blocks(&self) -> Vec<Block> {
        let index = self.index();
        let targets = self.targets();
        let mut out = Vec::new();
        for (number, unit) in index.units.iter().enumerate() {
            let decoded = index.decoded(number);
            if !decoded.clean {
                continue;
            }
            let own: BTreeSet<u64> = decoded.branches.iter().copied().collect();
            // Those of neighbours too, which no other list has.
            let short: BTreeSet<u64> = short_branches(index, &decoded, unit)
                .into_iter()
                .flatten()
                .filter(|target| !own.contains(target))
                .collect();
            let mut open: Option<Block> = None;
            // Padding that nothing falls into is never executed.
            let mut dead = false;
            for ins in &decoded.ins {
                let Some(insn) = index.instruction(ins.addr) else {
                    break;
                };
                let outside = ins.addr == unit.start
                    || targets.contains(ins.addr)
                    || short.contains(&ins.addr)
                    || decoded.landings.binary_search(&ins.addr).is_ok();
                let entered = outside || own.contains(&ins.addr);
                if entered {
                    out.extend(open.take());
                }
                dead &= !entered && is_padding(&insn);
                if dead {
                    continue;
                }
                let block = open.get_or_insert_with(|| Block {
                    range: ins.addr..ins.addr,
                    starts: Vec::new(),
                    end: End::Falls,
                    entered: false,
                });
                if block.starts.is_empty() {
                    block.entered = outside;
                }
                block.starts.push(ins.addr);
                block.range.end = ins.end();
                block.end = end(&insn);
                if block.end != End::Falls {
                    out.extend(open.take());
                }
                dead = is_terminator(&insn);
            }
            out.extend(open.take());
        }
        // Units are in order, but one may run on into the gap behind it.
        out.sort_by_key(|block| block.range.start);
        out
    }

    /// The instruction at an address.
    pub fn instruction(&self, addr: u64) -> Option<Instruction> {
        self.index().instruction(addr)
    }

    /// The bytes of an instruction.
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        self.index().bytes(range)
    }
}

fn end(insn: &Instruction) -> End {
    let near = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
    match insn.flow_control() {
        FlowControl::ConditionalBranch if near => End::Branches(insn.near_branch_target()),
        FlowControl::UnconditionalBranch if near => End::Jumps(insn.near_branch_target()),
        // A system call may not come back either.
        FlowControl::Call | FlowControl::IndirectCall => End::Calls,
        _ if ends_block(insn) => End::Leaves,
        _ => End::Falls,
    }
}
