//! What one instruction does to registers and memory, as far as a fault needs to know.
//!
//! A fault in "what it reads" or "where it writes" has to find the operand, and a fault that
//! is to be undone has to know what the instruction leaves alone. Both are read off the
//! decoded instruction, before anything runs.
//!
//! Not covered: gathers and scatters (a vector of addresses), 32-bit addressing, and the
//! second address of instructions with two memory operands unless read and write tell them
//! apart.

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, OpKind, Register, UsedMemory};

/// Which memory operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Read,
    Written,
    Only,
}

/// How a register gets back what a fault took, once the instruction is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// The instruction overwrites it.
    Nothing,
    /// These bits are not written.
    Bits(u64),
    /// Perhaps written: only if it is still what the fault made of it.
    Compare,
    /// The instruction adds to it.
    Delta,
}

/// A memory operand: registers by hardware number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operand {
    pub base: Option<u8>,
    pub index: Option<u8>,
    pub scale: u8,
    pub fs: bool,
    pub displacement: u64,
    pub bytes: usize,
    repeated: bool,
}

impl Operand {
    /// Bits that a fault in the operand's value may hit.
    pub fn bits(&self) -> usize {
        // The length of a repeated move is known when it runs only.
        if self.repeated { 512 } else { self.bytes * 8 }
    }
}

/// The hardware number of a 64-bit general register.
pub fn number(register: Register) -> Option<u8> {
    register
        .is_gpr64()
        .then(|| u8::try_from(register.number()).ok())?
}

/// Whether something is read by such an access.
#[must_use]
pub fn reads(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// Whether something is written.
#[must_use]
pub fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

/// The memory operand that a fault asks for.
pub fn memory(insn: &Instruction, which: Which) -> Result<Operand, String> {
    let mut factory = InstructionInfoFactory::new();
    let used: Vec<UsedMemory> = factory.info(insn).used_memory().to_vec();
    let fits = |m: &&UsedMemory| match which {
        Which::Read => reads(m.access()),
        Which::Written => writes(m.access()),
        Which::Only => reads(m.access()) || writes(m.access()),
    };
    let found: Vec<&UsedMemory> = used.iter().filter(fits).collect();
    let what = match which {
        Which::Read => "that reads memory",
        Which::Written => "that writes memory",
        Which::Only => "with a memory operand",
    };
    let one = match found[..] {
        [one] => one,
        [] => return Err(format!("an instruction {what}")),
        _ => {
            return Err(
                "an instruction with one such operand: raddr and waddr tell two apart".into(),
            );
        }
    };
    let repeated = insn.has_rep_prefix() || insn.has_repne_prefix();
    operand(one, repeated && insn.is_string_instruction())
}

fn operand(used: &UsedMemory, repeated: bool) -> Result<Operand, String> {
    if used.vsib_size() != 0 {
        return Err("an instruction with one address, not a vector of them".into());
    }
    let plain = |register: Register| match register {
        Register::None | Register::RIP => Ok(None),
        other => number(other)
            .map(Some)
            .ok_or_else(|| "64-bit addressing".to_owned()),
    };
    Ok(Operand {
        base: plain(used.base())?,
        index: plain(used.index())?,
        scale: u8::try_from(used.scale()).unwrap_or(1),
        fs: match used.segment() {
            Register::FS => true,
            Register::GS => return Err("an operand outside the gs segment".into()),
            _ => false,
        },
        displacement: used.displacement(),
        bytes: used.memory_size().size(),
        repeated,
    })
}

/// Which register carries a wrong address into the instruction, and how it gets well again.
pub fn address(insn: &Instruction, operand: &Operand) -> Result<(u8, Undo), String> {
    let mut why = "an operand with a base or an index register".to_owned();
    let candidates = [operand.base, operand.index.filter(|_| operand.scale == 1)];
    for register in candidates.into_iter().flatten() {
        if operand.base == operand.index {
            return Err("an address that holds a register once".into());
        }
        let implicit = implicit_address(insn, register);
        if !implicit && read_as_value(insn, register) {
            why = "an address register whose value the instruction does not use besides".into();
            continue;
        }
        let undo = if implicit {
            Undo::Delta
        } else {
            register_undo(insn, register)
        };
        return Ok((register, undo));
    }
    Err(why)
}

/// Stack and string instructions step their address register along.
fn implicit_address(insn: &Instruction, register: u8) -> bool {
    match register {
        4 => insn.is_stack_instruction(),
        6 | 7 => insn.is_string_instruction(),
        _ => false,
    }
}

fn read_as_value(insn: &Instruction, register: u8) -> bool {
    // Without its address the instruction reads what it reads as values.
    let mut bare = *insn;
    bare.set_memory_base(Register::None);
    bare.set_memory_index(Register::None);
    bare.set_memory_displ_size(8);
    let mut factory = InstructionInfoFactory::new();
    factory
        .info(&bare)
        .used_registers()
        .iter()
        .any(|u| reads(u.access()) && number(u.register().full_register()) == Some(register))
}

/// What is left of a general register when the instruction has run.
pub fn register_undo(insn: &Instruction, register: u8) -> Undo {
    let mut factory = InstructionInfoFactory::new();
    let mut kept = u64::MAX;
    let mut perhaps = false;
    for used in factory.info(insn).used_registers() {
        if number(used.register().full_register()) != Some(register) {
            continue;
        }
        match used.access() {
            OpAccess::Write | OpAccess::ReadWrite => kept &= !written_bits(used.register()),
            OpAccess::CondWrite | OpAccess::ReadCondWrite => perhaps = true,
            _ => {}
        }
    }
    match (kept, perhaps) {
        (0, _) => Undo::Nothing,
        (_, true) => Undo::Compare,
        (kept, false) => Undo::Bits(kept),
    }
}

fn written_bits(register: Register) -> u64 {
    match register.size() {
        1 if matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        ) =>
        {
            0xff00
        }
        1 => 0xff,
        2 => 0xffff,
        // A 32-bit result clears the upper half (Intel SDM vol. 1, 3.4.1.1).
        _ => u64::MAX,
    }
}

/// Flags that the instruction leaves as they were.
pub fn flags_kept(insn: &Instruction) -> u64 {
    use iced_x86::RflagsBits as R;
    let modified = insn.rflags_modified();
    let bits = [
        (R::CF, 0),
        (R::PF, 2),
        (R::AF, 4),
        (R::ZF, 6),
        (R::SF, 7),
        (R::DF, 10),
        (R::OF, 11),
    ];
    !bits
        .into_iter()
        .filter(|(flag, _)| modified & flag != 0)
        .fold(0, |set, (_, bit)| set | 1 << bit)
}

/// Whether a vector register (by number) is written completely.
pub fn vector_written(insn: &Instruction, register: u8) -> bool {
    let mut factory = InstructionInfoFactory::new();
    factory.info(insn).used_registers().iter().any(|u| {
        u.register().is_vector_register()
            && u.register().number() == usize::from(register)
            && matches!(u.access(), OpAccess::Write | OpAccess::ReadWrite)
    })
}

/// The target of a conditional near branch, and its condition as encoded.
pub fn branch(insn: &Instruction, bytes: &[u8]) -> Option<(u64, u8)> {
    if !insn.is_jcc_short_or_near() || insn.op0_kind() != OpKind::NearBranch64 {
        return None;
    }
    // Both forms, 7x cb and 0F 8x cd, keep the condition in the low four bits of the opcode.
    let opcode = if insn.is_jcc_short() {
        bytes.len().checked_sub(2)?
    } else {
        bytes.len().checked_sub(5)?
    };
    Some((insn.near_branch_target(), bytes.get(opcode)? & 0x0f))
}
