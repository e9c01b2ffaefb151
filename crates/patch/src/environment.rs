//! Instructions that store what the x87 unit knows of its last instruction: fnstenv, fnsave, fxsave.
//!
//! Its address, that of its operand and its opcode are lost at a switch of tasks on processors that bring them back only where
//! an exception is pending, so the stored bytes are timing. This finds the places, and gives the instructions that store zeros
//! in their stead. They change neither registers nor flags.
//!
//! Not covered: operands relative to rip, and 16-bit images.
//! See AMD64 manual vol. 2, "Saving Media and x87 State"; Intel SDM vol. 1, section 8.1.10.

use iced_x86::{Code, Encoder, Instruction, MemoryOperand};

use crate::Module;
use crate::index::Index;

/// One instruction that stores these pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    pub addr: u64,
    /// Zeros over them: position independent.
    pub clear: Vec<u8>,
}

/// Where in the image they are, and whether four bytes or two.
const OF_FNSTENV: &[(i64, Code)] = &[
    (12, Code::Mov_rm32_imm32),
    (16, Code::Mov_rm32_imm32),
    (20, Code::Mov_rm32_imm32),
    (24, Code::Mov_rm16_imm16),
];
const OF_FXSAVE: &[(i64, Code)] = &[
    (6, Code::Mov_rm16_imm16),
    (8, Code::Mov_rm32_imm32),
    (12, Code::Mov_rm32_imm32),
    (16, Code::Mov_rm32_imm32),
    (20, Code::Mov_rm32_imm32),
];

/// All of them that are certainly instructions, in address order.
pub fn find_environments(module: &Module<'_>) -> Vec<Environment> {
    let index = Index::new(module);
    let mut found: Vec<Environment> = Vec::new();
    for view in &index.code {
        let x87 = memchr::memchr2_iter(0xd9, 0xdd, view.bytes).map(|at| (at, at + 1, 6));
        let fxsave = memchr::memmem::find_iter(view.bytes, b"\x0f\xae").map(|at| (at, at + 2, 0));
        for (at, modrm, digit) in x87.chain(fxsave) {
            let Some(modrm) = view.bytes.get(modrm) else {
                continue;
            };
            if modrm >> 6 == 3 || modrm >> 3 & 7 != digit {
                continue;
            }
            let insn = index.certain_at(view.addr + at as u64);
            found.extend(insn.and_then(|insn| environment_of(&insn)));
        }
    }
    found.sort_by_key(|one| one.addr);
    found.dedup();
    found
}

fn environment_of(insn: &Instruction) -> Option<Environment> {
    let fields = match insn.code() {
        Code::Fnstenv_m28byte | Code::Fnsave_m108byte => OF_FNSTENV,
        Code::Fxsave_m512byte | Code::Fxsave64_m512byte => OF_FXSAVE,
        _ => return None,
    };
    if insn.is_ip_rel_memory_operand() {
        return None;
    }
    // The encoder wants an offset as wide as the address.
    let of_32 = [insn.memory_base(), insn.memory_index()]
        .iter()
        .any(|register| register.is_gpr32());
    let mut encoder = Encoder::new(64);
    for (offset, code) in fields {
        let field = MemoryOperand::new(
            insn.memory_base(),
            insn.memory_index(),
            insn.memory_index_scale(),
            insn.memory_displacement64()
                .cast_signed()
                .checked_add(*offset)?,
            if of_32 { 4 } else { 8 },
            false,
            insn.segment_prefix(),
        );
        let store = Instruction::with2(*code, field, 0_u32).ok()?;
        encoder.encode(&store, 0).ok()?;
    }
    Some(Environment {
        addr: insn.ip(),
        clear: encoder.take_buffer(),
    })
}
