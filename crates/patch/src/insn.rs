//! What one instruction is: its length, whether control goes on behind it, whether it is a site.

use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};

use crate::{CodeView, Dest, Site, SiteKind};

/// Intel SDM vol. 2, section 2.3.11.
pub(crate) const INSN_BYTES_MAX: usize = 15;

/// The little-endian value of eight bytes.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Whether control never, or not directly, continues behind the instruction. A call counts:
/// it comes back to the module, not to the arena.
pub(crate) fn ends_block(insn: &Instruction) -> bool {
    match insn.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch => false,
        FlowControl::Call => insn.code() != Code::Syscall && insn.code() != Code::Sysenter,
        FlowControl::XbeginXabortXend => {
            matches!(insn.code(), Code::Xbegin_rel16 | Code::Xbegin_rel32)
        }
        FlowControl::Interrupt => insn.code() != Code::Int_imm8,
        _ => true,
    }
}

/// Whether nothing at all continues behind the instruction, not even by a return.
pub(crate) fn is_terminator(insn: &Instruction) -> bool {
    matches!(
        insn.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception
    )
}

/// Addresses of bytes in one part that could be the opcode of a site, ascending.
pub(crate) fn candidates(view: &CodeView<'_>, part: Range<usize>) -> Vec<u64> {
    let bytes = view.bytes;
    memchr::memchr3_iter(0x0F, 0xC7, 0xCD, &bytes[part.clone()])
        .map(|at| part.start + at)
        .filter(|&at| {
            let second = bytes.get(at + 1).copied();
            let third = bytes.get(at + 2).copied();
            match (bytes[at], second) {
                // syscall, rdtsc, sysenter, cpuid.
                (0x0F, Some(0x05 | 0x31 | 0x34 | 0xA2)) => true,
                // rdtscp.
                (0x0F, Some(0x01)) => third == Some(0xF9),
                // Group 9, /6 and /7 with a register: rdrand, rdseed, with F3 rdpid.
                (0x0F, Some(0xC7)) => third.is_some_and(|modrm| modrm >= 0xF0),
                // xbegin.
                (0xC7, Some(0xF8)) => true,
                // int 0x80.
                (0xCD, Some(0x80)) => true,
                _ => false,
            }
        })
        .map(|at| view.addr + at as u64)
        .collect()
}

/// The site that an instruction is, if it is one.
pub(crate) fn site_of(insn: &Instruction, proven: bool) -> Option<Site> {
    let kind = match insn.code() {
        Code::Syscall => SiteKind::Syscall,
        Code::Int_imm8 if insn.immediate8() == 0x80 => SiteKind::Int80,
        Code::Sysenter => SiteKind::Sysenter,
        Code::Rdtsc => SiteKind::Rdtsc,
        Code::Rdtscp => SiteKind::Rdtscp,
        Code::Cpuid => SiteKind::Cpuid,
        Code::Rdrand_r16 | Code::Rdrand_r32 | Code::Rdrand_r64 => SiteKind::Rdrand,
        Code::Rdseed_r16 | Code::Rdseed_r32 | Code::Rdseed_r64 => SiteKind::Rdseed,
        Code::Rdpid_r32 | Code::Rdpid_r64 => SiteKind::Rdpid,
        Code::Xbegin_rel16 | Code::Xbegin_rel32 => SiteKind::Xbegin,
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        reason = "register numbers are below 16, sizes below 9, lengths below 16"
    )]
    let (dest, len) = (
        (insn.op_count() > 0 && insn.op0_kind() == OpKind::Register).then(|| Dest {
            reg: insn.op0_register().number() as u8,
            bytes: insn.op0_register().size() as u8,
        }),
        insn.len() as u8,
    );
    let fallback = (kind == SiteKind::Xbegin).then(|| insn.near_branch_target());
    Some(Site {
        addr: insn.ip(),
        len,
        kind,
        dest,
        fallback,
        proven,
    })
}

/// Whether a user program can execute this without a fault by privilege. `hlt` stays in: C
/// libraries end `exit` with it.
pub(crate) fn is_user_code(insn: &Instruction) -> bool {
    let plain = matches!(
        insn.flow_control(),
        FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::Return
            | FlowControl::Exception
            | FlowControl::XbeginXabortXend
    );
    let far = insn.is_jmp_far()
        || insn.is_call_far()
        || insn.is_jmp_far_indirect()
        || insn.is_call_far_indirect();
    let site = site_of(insn, true).is_some();
    (plain || site) && !far && (!insn.is_privileged() || insn.mnemonic() == Mnemonic::Hlt)
}
