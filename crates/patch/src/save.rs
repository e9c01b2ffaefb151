//! Instructions that save vector state: xsave, xsavec, xsaveopt.
//!
//! They write what the processor happens to consider in use (XINUSE) and leave out the rest,
//! which differs from core to core and from run to run for the same register contents. Whoever
//! needs equal memory in several copies of a program has to complete the image afterwards;
//! this finds the places and gives the instruction that computes where the image is.
//!
//! Not covered: operands relative to rip, which compilers and loaders do not use for this.
//! See Intel SDM vol. 1, chapter 13 (XINUSE, init optimisation).

use iced_x86::{Code, Encoder, Instruction, Mnemonic};

use crate::Module;
use crate::index::Index;

/// One instruction that saves vector state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    pub addr: u64,
    /// The compact format of xsavec; else the standard one.
    pub compact: bool,
    /// `lea rcx, [operand]`: position independent.
    pub lea_rcx: Vec<u8>,
}

/// All of them that are certainly instructions, in address order.
pub fn find_saves(module: &Module<'_>) -> Vec<Save> {
    let index = Index::new(module);
    let mut found: Vec<Save> = Vec::new();
    for view in &index.code {
        for at in memchr::memmem::find_iter(view.bytes, b"\x0f\xae")
            .chain(memchr::memmem::find_iter(view.bytes, b"\x0f\xc7"))
        {
            // Groups 15 /4 and /6, group 9 /4, with a memory operand.
            let Some(modrm) = view.bytes.get(at + 2) else {
                continue;
            };
            if modrm >> 6 == 3 || !matches!(modrm >> 3 & 7, 4 | 6) {
                continue;
            }
            let insn = index.certain_at(view.addr + at as u64);
            found.extend(insn.and_then(|insn| save_of(&insn)));
        }
    }
    found.sort_by_key(|save| save.addr);
    found.dedup();
    found
}

fn save_of(insn: &Instruction) -> Option<Save> {
    let compact = match insn.mnemonic() {
        Mnemonic::Xsavec | Mnemonic::Xsavec64 => true,
        Mnemonic::Xsave | Mnemonic::Xsave64 | Mnemonic::Xsaveopt | Mnemonic::Xsaveopt64 => false,
        _ => return None,
    };
    if insn.is_ip_rel_memory_operand() {
        return None;
    }
    let mut lea = *insn;
    lea.set_code(Code::Lea_r64_m);
    lea.set_op0_kind(iced_x86::OpKind::Register);
    lea.set_op0_register(iced_x86::Register::RCX);
    lea.set_op1_kind(iced_x86::OpKind::Memory);
    let mut encoder = Encoder::new(64);
    encoder.encode(&lea, insn.ip()).ok()?;
    Some(Save {
        addr: insn.ip(),
        compact,
        lea_rcx: encoder.take_buffer(),
    })
}
