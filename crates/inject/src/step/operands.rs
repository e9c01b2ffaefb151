//! What an instruction reads and writes, and where: by its decoding and the registers that it finds.

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register as Name};
use steadfast_fault::{MemBase, MemExpr};
use steadfast_sys::ptrace::{Regs, Stopped};

use super::patience::os;
use crate::target::SetupError;

pub(super) fn gpr(regs: &mut Regs, number: u8) -> &mut u64 {
    match number {
        0 => &mut regs.rax,
        1 => &mut regs.rcx,
        2 => &mut regs.rdx,
        3 => &mut regs.rbx,
        4 => &mut regs.rsp,
        5 => &mut regs.rbp,
        6 => &mut regs.rsi,
        7 => &mut regs.rdi,
        8 => &mut regs.r8,
        9 => &mut regs.r9,
        10 => &mut regs.r10,
        11 => &mut regs.r11,
        12 => &mut regs.r12,
        13 => &mut regs.r13,
        14 => &mut regs.r14,
        _ => &mut regs.r15,
    }
}

/// Bits of a general register that the instruction writes.
pub(super) fn written(insn: &Instruction, number: u8) -> u64 {
    let mut factory = InstructionInfoFactory::new();
    factory
        .info(insn)
        .used_registers()
        .iter()
        .filter(|u| matches!(u.access(), OpAccess::Write | OpAccess::ReadWrite))
        .filter(|u| {
            u.register().is_gpr() && u.register().full_register().number() == usize::from(number)
        })
        .fold(0, |bits, u| {
            bits | match u.register() {
                Name::AH | Name::BH | Name::CH | Name::DH => 0xff00,
                r if r.size() == 1 => 0xff,
                r if r.size() == 2 => 0xffff,
                _ => u64::MAX,
            }
        })
}

pub(super) fn modified(insn: &Instruction) -> u32 {
    use iced_x86::RflagsBits as R;
    let set = insn.rflags_modified();
    [
        (R::CF, 0),
        (R::PF, 2),
        (R::AF, 4),
        (R::ZF, 6),
        (R::SF, 7),
        (R::DF, 10),
        (R::OF, 11),
    ]
    .into_iter()
    .filter(|(flag, _)| set & flag != 0)
    .fold(0, |bits, (_, bit)| bits | 1 << bit)
}

/// Where the instruction accesses memory: with and without what the segment adds.
pub(super) fn operand_address(
    stop: Stopped,
    insn: &Instruction,
    access: OpAccess,
) -> Result<(Stopped, Option<(u64, u64)>), SetupError> {
    let mut regs = stop.regs().map_err(os)?;
    let mut factory = InstructionInfoFactory::new();
    let read = access == OpAccess::Read;
    let used = factory.info(insn).used_memory().iter().copied().find(|m| {
        use OpAccess as A;
        match m.access() {
            A::ReadWrite | A::ReadCondWrite => true,
            A::Read | A::CondRead => read,
            A::Write | A::CondWrite => !read,
            _ => false,
        }
    });
    // An address fault may ask for the only operand, whichever way it is used.
    let used = used.or_else(|| factory.info(insn).used_memory().first().copied());
    let Some(used) = used else {
        return Ok((stop, None));
    };
    let fs = regs.fs_base;
    let address = |segment: bool, regs: &mut Regs| {
        used.virtual_address(0, |register, _, _| {
            Some(match register {
                Name::None | Name::DS | Name::ES | Name::SS | Name::CS => 0,
                Name::FS => {
                    if segment {
                        fs
                    } else {
                        0
                    }
                }
                Name::GS => 0,
                Name::RIP => insn.next_ip(),
                r if r.is_gpr64() => *gpr(regs, u8::try_from(r.number()).ok()?),
                _ => return None,
            })
        })
    };
    let found = address(true, &mut regs).zip(address(false, &mut regs));
    Ok((stop, found))
}

pub(super) fn address_of(
    mut stop: Stopped,
    expr: &MemExpr,
) -> Result<(Stopped, Option<u64>), SetupError> {
    let mut regs = stop.regs().map_err(os)?;
    let base = match &expr.base {
        MemBase::Register { base, index } => {
            let index = index.as_ref().map_or(0, |i| {
                gpr(&mut regs, i.register.number()).wrapping_mul(u64::from(i.scale))
            });
            Some(gpr(&mut regs, base.number()).wrapping_add(index))
        }
        MemBase::FsBase => Some(regs.fs_base),
        MemBase::Absolute(address) => Some(*address),
        MemBase::Pointer(inner) => {
            let (next, at) = address_of(stop, inner)?;
            stop = next;
            let mut word = [0; 8];
            at.and_then(|at| stop.read(at, &mut word).ok())
                .map(|()| u64::from_le_bytes(word))
        }
        _ => None,
    };
    Ok((
        stop,
        base.map(|base| base.wrapping_add_signed(expr.displacement)),
    ))
}
