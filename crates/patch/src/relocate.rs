//! Moving one instruction: what it becomes at another address.
//!
//! Bytes are kept as they are wherever they mean the same elsewhere, so that unusual
//! prefixes and encodings survive. RIP-relative operands get a new displacement. Branches
//! take their 32-bit form to the original target. A `call` pushes the *original* return
//! address, which the callee, the unwinder and the return itself rely on, then jumps.
//!
//! Nothing here touches flags, registers or the stack beyond what the instruction does.
//!
//! Not covered: `call` through a stack slot below rsp; branches whose operand-size prefix
//! AMD and Intel disagree about (Intel SDM vol. 2 JMP; AMD APM vol. 3 1.2.2): refused.

use std::ops::Range;

use iced_x86::{
    Code, ConstantOffsets, Decoder, DecoderOptions, Encoder, FlowControl, Instruction, OpKind,
    Register,
};

use crate::RefusedReason;
use crate::insn::INSN_BYTES_MAX;

/// Code being laid down at a known address.
#[derive(Debug)]
pub(crate) struct Emitter {
    base: u64,
    bytes: Vec<u8>,
    /// Where eight bytes are an address in the module.
    absolutes: Vec<u64>,
}

/// A displacement did not fit; the caller checked reach before, so this is rare and refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfReach;

impl Emitter {
    pub(crate) fn new(base: u64) -> Self {
        Emitter {
            base,
            bytes: Vec::with_capacity(64),
            absolutes: Vec::new(),
        }
    }

    pub(crate) fn here(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An address in the module, spelled out.
    pub(crate) fn absolute(&mut self, addr: u64) {
        self.absolutes.push(self.here());
        self.raw(&addr.to_le_bytes());
    }

    pub(crate) fn into_parts(self) -> (Vec<u8>, Vec<u64>) {
        (self.bytes, self.absolutes)
    }

    /// Opcode bytes, then a 32-bit displacement from the end of the instruction.
    pub(crate) fn relative(&mut self, opcode: &[u8], target: u64) -> Result<(), OutOfReach> {
        self.raw(opcode);
        let disp = rel32(self.here() + 4, target).ok_or(OutOfReach)?;
        self.raw(&disp.to_le_bytes());
        Ok(())
    }

    /// `jmp rel32`.
    pub(crate) fn jmp(&mut self, target: u64) -> Result<(), OutOfReach> {
        self.relative(&[0xE9], target)
    }
}

/// The displacement that leads from `next` to `target`.
pub(crate) fn rel32(next: u64, target: u64) -> Option<i32> {
    i32::try_from(target.wrapping_sub(next).cast_signed()).ok()
}

/// Whether every byte of `from` reaches `target` with a 32-bit displacement.
pub(crate) fn reaches(from: &Range<u64>, target: u64) -> bool {
    rel32(from.start, target).is_some() && rel32(from.end, target).is_some()
}

/// How an instruction is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Verbatim,
    RipOperand {
        target: u64,
    },
    Jmp {
        target: u64,
    },
    /// Low four bits of the opcode.
    Jcc {
        condition: u8,
        target: u64,
    },
    /// `loop*`, `jrcxz`: 8-bit forms only.
    Counted {
        target: u64,
    },
    Call {
        target: u64,
    },
    CallIndirect,
}

/// An instruction known to be movable.
#[derive(Debug, Clone)]
pub(crate) struct Movable {
    insn: Instruction,
    offsets: ConstantOffsets,
    bytes: [u8; INSN_BYTES_MAX],
    how: Move,
}

impl Movable {
    /// `bytes` start at the instruction, which the caller knows to be one.
    pub(crate) fn new(bytes: &[u8], addr: u64) -> Result<Self, RefusedReason> {
        let mut decoder = Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE);
        let insn = decoder.decode();
        if insn.code() == Code::INVALID {
            return Err(RefusedReason::NotAnInstruction);
        }
        let offsets = decoder.get_constant_offsets(&insn);
        let mut own = [0; INSN_BYTES_MAX];
        own[..insn.len()].copy_from_slice(&bytes[..insn.len()]);
        let how = how(&insn, &own[..insn.len()])?;
        Ok(Movable {
            insn,
            offsets,
            bytes: own,
            how,
        })
    }

    /// An address that the moved instruction has to reach by displacement.
    pub(crate) fn reach(&self) -> Option<u64> {
        match self.how {
            Move::Verbatim => None,
            Move::CallIndirect => self
                .insn
                .is_ip_rel_memory_operand()
                .then(|| self.insn.ip_rel_memory_address()),
            Move::RipOperand { target }
            | Move::Jmp { target }
            | Move::Jcc { target, .. }
            | Move::Counted { target }
            | Move::Call { target } => Some(target),
        }
    }

    pub(crate) fn emit(&self, out: &mut Emitter) -> Result<(), OutOfReach> {
        let bytes = &self.bytes[..self.insn.len()];
        match self.how {
            Move::Verbatim => out.raw(bytes),
            Move::RipOperand { target } => {
                let next = out.here() + bytes.len() as u64;
                let disp = rel32(next, target).ok_or(OutOfReach)?;
                let mut moved = self.bytes;
                let at = self.offsets.displacement_offset();
                moved[at..at + 4].copy_from_slice(&disp.to_le_bytes());
                out.raw(&moved[..bytes.len()]);
            }
            Move::Jmp { target } => out.jmp(target)?,
            Move::Jcc { condition, target } => out.relative(&[0x0F, 0x80 | condition], target)?,
            Move::Counted { target } => {
                // taken:  loop +2 ──┐
                // not:    jmp +5  ──┼─┐   the 8-bit branch is the last byte of `bytes`
                //         jmp target◄┘ │
                //         ...       ◄──┘
                out.raw(&bytes[..bytes.len() - 1]);
                out.raw(&[2, 0xEB, 5]);
                out.jmp(target)?;
            }
            Move::Call { target } => {
                // Behind the two instructions nothing falls through, so the literal may stand there.
                out.relative(PUSH_RIP, out.here() + PUSH_RIP_LEN + JMP_LEN)?;
                out.jmp(target)?;
                out.absolute(self.insn.next_ip());
            }
            Move::CallIndirect => {
                let jump = self.as_jump(out.here() + PUSH_RIP_LEN)?;
                out.relative(PUSH_RIP, out.here() + PUSH_RIP_LEN + jump.len() as u64)?;
                out.raw(&jump);
                out.absolute(self.insn.next_ip());
            }
        }
        Ok(())
    }

    /// An indirect call as the indirect jump that follows the push of its return address.
    fn as_jump(&self, at: u64) -> Result<Vec<u8>, OutOfReach> {
        let mut jump = self.insn;
        jump.set_code(Code::Jmp_rm64);
        if jump.op0_kind() == OpKind::Memory && jump.memory_base() == Register::RSP {
            jump.set_memory_displacement64(jump.memory_displacement64().wrapping_add(8));
            // The shortest form may no longer hold it.
            jump.set_memory_displ_size(8);
        }
        let mut encoder = Encoder::new(64);
        encoder.encode(&jump, at).map_err(|_| OutOfReach)?;
        Ok(encoder.take_buffer())
    }
}

/// `push qword ptr [rip+disp32]`: how a 64-bit return address is pushed without a register.
const PUSH_RIP: &[u8] = &[0xFF, 0x35];
const PUSH_RIP_LEN: u64 = 6;
const JMP_LEN: u64 = 5;

fn how(insn: &Instruction, bytes: &[u8]) -> Result<Move, RefusedReason> {
    let code = insn.code();
    if matches!(code, Code::Endbr64 | Code::Endbr32) {
        return Err(RefusedReason::Endbr);
    }
    let immovable = Err(RefusedReason::Immovable);
    let near = insn.op_count() > 0 && insn.op0_kind() == OpKind::NearBranch64;
    let target = insn.near_branch_target();
    let branch = match insn.flow_control() {
        FlowControl::Next | FlowControl::Exception => None,
        FlowControl::Return => {
            // Far returns pop a code segment too; they work anywhere, but nobody emits them.
            return if code == Code::Retnq || code == Code::Retnq_imm16 {
                Ok(Move::Verbatim)
            } else {
                immovable
            };
        }
        FlowControl::UnconditionalBranch if near => Some(Move::Jmp { target }),
        FlowControl::ConditionalBranch if near && insn.is_jcc_short_or_near() => {
            // Both forms, 7x and 0F 8x, keep the condition in the opcode's low four bits.
            let at = if insn.is_jcc_short() {
                bytes.len() - 2
            } else {
                bytes.len() - 5
            };
            Some(Move::Jcc {
                condition: bytes[at] & 0x0F,
                target,
            })
        }
        FlowControl::ConditionalBranch
            if near && (insn.is_loop() || insn.is_loopcc() || insn.is_jcx_short()) =>
        {
            Some(Move::Counted { target })
        }
        FlowControl::Call if near => Some(Move::Call { target }),
        // The kernel comes back to the next address, wherever that is.
        FlowControl::Call if code == Code::Syscall => None,
        FlowControl::IndirectBranch if code == Code::Jmp_rm64 => None,
        FlowControl::IndirectCall if code == Code::Call_rm64 => {
            let rsp = insn.memory_base() == Register::RSP;
            let memory = insn.op0_kind() == OpKind::Memory;
            let below = memory && rsp && insn.memory_displacement64().cast_signed() < 0;
            let narrow = memory && insn.memory_base().size() == 4;
            // The push moves rsp and writes below it before the target is read.
            if below
                || narrow
                || insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP
            {
                return immovable;
            }
            return Ok(Move::CallIndirect);
        }
        // int3 in code is a debugger's or an assertion that its owner finds by address.
        _ => return immovable,
    };
    if let Some(branch) = branch {
        return if ambiguous_size(bytes) {
            immovable
        } else {
            Ok(branch)
        };
    }
    if insn.is_ip_rel_memory_operand() {
        if insn.memory_base() != Register::RIP {
            return immovable;
        }
        return Ok(Move::RipOperand {
            target: insn.ip_rel_memory_address(),
        });
    }
    Ok(Move::Verbatim)
}

/// A 66 prefix without REX.W: 16-bit branch on AMD, ignored on Intel.
fn ambiguous_size(bytes: &[u8]) -> bool {
    let mut narrow = false;
    for &byte in bytes {
        match byte {
            0x66 => narrow = true,
            0x26 | 0x2E | 0x36 | 0x3E | 0x64 | 0x65 | 0x67 | 0xF0 | 0xF2 | 0xF3 => {}
            0x48..=0x4F => return false,
            _ => break,
        }
    }
    narrow
}
