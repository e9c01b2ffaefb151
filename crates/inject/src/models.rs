//! Fault models: which instructions can have a fault, and how one is drawn there.
//!
//! The seven of SEI (Behrens et al., 2013, Table 1), flags apart from registers, and flips of
//! code. An execution is drawn first, then one of the instruction's places for the fault, then
//! bits of that place.
//!
//! Registers go by the name under which the instruction uses them, and a fault's bits are those
//! of that name: a 32-bit result is `eax`, though it clears the upper half of `rax`. The registers of
//! a system call are the kernel's: number and arguments are read, the result is written.
//!
//! Those of storage are drawn from transfers of files ([`crate::storage`]).
//!
//! Not covered: x87, MMX and segment registers; vectors of addresses.

use iced_x86::{Code, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

use steadfast_strike::falls_through;
use steadfast_strike::operand::{self, Which};

use crate::chacha::Draw;

/// A group of faults that are drawn alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Model {
    /// A register is wrong after it was written.
    Wreg,
    /// A register is wrong when it is read, and stays so.
    Rreg,
    /// A wrong value is stored.
    Wval,
    /// A wrong value is loaded.
    Rval,
    /// A store goes to a wrong place.
    Waddr,
    /// A load comes from a wrong place.
    Raddr,
    /// Execution goes on at a wrong place.
    Cf,
    /// A flag is wrong after it was written.
    Flags,
    /// An instruction's own bytes are wrong, from the start on.
    Code,
    /// A bit is wrong that is read from a file.
    Rdata,
    /// A bit is wrong that is written to a file.
    Wdata,
    /// A file is read as it was before.
    Stale,
    /// A file is read from another block.
    Misread,
    /// A file is written at another block.
    Miswrite,
    /// A write to a file is lost.
    Lost,
    /// The first sectors of a write to a file arrive.
    Torn,
}

impl Model {
    /// Those of instructions.
    pub const ALL: [Self; 9] = [
        Self::Wreg,
        Self::Rreg,
        Self::Wval,
        Self::Rval,
        Self::Waddr,
        Self::Raddr,
        Self::Cf,
        Self::Flags,
        Self::Code,
    ];
    /// Those of storage.
    pub const STORAGE: [Self; 7] = [
        Self::Rdata,
        Self::Wdata,
        Self::Stale,
        Self::Misread,
        Self::Miswrite,
        Self::Lost,
        Self::Torn,
    ];
    /// The paper's seven.
    pub const SEI: [Self; 7] = [
        Self::Wreg,
        Self::Rreg,
        Self::Wval,
        Self::Rval,
        Self::Waddr,
        Self::Raddr,
        Self::Cf,
    ];

    /// The name in flags, files and reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Wreg => "wreg",
            Self::Rreg => "rreg",
            Self::Wval => "wval",
            Self::Rval => "rval",
            Self::Waddr => "waddr",
            Self::Raddr => "raddr",
            Self::Cf => "cf",
            Self::Flags => "flags",
            Self::Code => "code",
            Self::Rdata => "rdata",
            Self::Wdata => "wdata",
            Self::Stale => "stale",
            Self::Misread => "misread",
            Self::Miswrite => "miswrite",
            Self::Lost => "lost",
            Self::Torn => "torn",
        }
    }

    /// The model of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .chain(Self::STORAGE)
            .find(|model| model.word() == word)
    }

    /// Whether it is drawn from transfers of files, not from instructions.
    #[must_use]
    pub fn is_storage(self) -> bool {
        Self::STORAGE.contains(&self)
    }

    /// Whether the instruction has what this goes wrong in.
    pub(crate) fn concerns(self, insn: &Instruction) -> bool {
        match self {
            Self::Wreg => !registers(insn, Use::Written).is_empty(),
            Self::Rreg => !registers(insn, Use::Read).is_empty(),
            Self::Wval | Self::Waddr => accesses(insn, Use::Written),
            Self::Rval | Self::Raddr => accesses(insn, Use::Read),
            Self::Cf | Self::Code => true,
            Self::Flags => !flags(insn.rflags_modified()).is_empty(),
            _ => false,
        }
    }

    /// Why it cannot be injected at an instruction that it concerns, wherever that lies.
    pub(crate) fn obstacle(self, insn: &Instruction) -> Option<&'static str> {
        let behind = matches!(
            self,
            Self::Wreg | Self::Wval | Self::Waddr | Self::Raddr | Self::Flags
        );
        if behind && !falls_through(insn) {
            return Some("nothing-behind");
        }
        let which = match self {
            Self::Wval | Self::Waddr => Which::Written,
            Self::Rval | Self::Raddr => Which::Read,
            _ => return None,
        };
        match operand::memory(insn, which) {
            Err(_) => Some("operand"),
            Ok(operand) if operand.bits() == 0 => Some("operand"),
            Ok(operand) => match self {
                Self::Waddr | Self::Raddr if operand::address(insn, &operand).is_err() => {
                    Some("no-address-register")
                }
                _ => None,
            },
        }
    }

    /// The effect part of a fault's line, at an instruction without an obstacle.
    pub(crate) fn draw(self, insn: &Instruction, bits: Shape, draw: &mut Draw) -> Option<Drawn> {
        let memory = |which, word: &str, domain: Option<u64>, draw: &mut Draw| {
            let operand = operand::memory(insn, which).ok()?;
            let domain = domain.unwrap_or(operand.bits().min(512) as u64);
            Some(bits.drawn(word, None, domain, draw))
        };
        match self {
            Self::Wreg | Self::Rreg => {
                let used = if self == Self::Wreg {
                    Use::Written
                } else {
                    Use::Read
                };
                let all = registers(insn, used);
                let (name, width) = draw.one_of(&all).clone();
                let target = format!(
                    "reg={name}{}",
                    if self == Self::Wreg { " after" } else { "" }
                );
                Some(bits.drawn(&target, Some(name), width, draw))
            }
            Self::Wval => memory(Which::Written, "wval", None, draw),
            Self::Rval => memory(Which::Read, "rval", None, draw),
            // The bits that an address has: beyond, it is no address at all.
            Self::Waddr => memory(Which::Written, "waddr", Some(48), draw),
            Self::Raddr => memory(Which::Read, "raddr", Some(48), draw),
            Self::Cf => Some(bits.drawn("ip", None, 48, draw)),
            Self::Flags => {
                let all = flags(insn.rflags_modified());
                let (name, bit) = *draw.one_of(&all);
                Some(Drawn {
                    effect: format!("flag={name} after"),
                    register: Some(name.into()),
                    bits: vec![bit],
                })
            }
            Self::Code => Some(bits.drawn("code", None, insn.len() as u64 * 8, draw)),
            _ => None,
        }
    }
}

/// What was drawn.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    pub(crate) effect: String,
    pub(crate) register: Option<String>,
    pub(crate) bits: Vec<u16>,
}

/// How many bits, and what becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// How many.
    pub count: u16,
    /// Side by side, or anywhere, no bit twice.
    pub burst: bool,
    /// Forced to this instead of inverted.
    pub stuck: Option<bool>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            count: 1,
            burst: false,
            stuck: None,
        }
    }
}

impl Shape {
    pub(crate) fn drawn(
        self,
        target: &str,
        register: Option<String>,
        domain: u64,
        draw: &mut Draw,
    ) -> Drawn {
        let count = u64::from(self.count).min(domain).max(1);
        let mut bits: Vec<u64> = Vec::new();
        if self.burst {
            let first = draw.below(domain - count + 1);
            bits.extend(first..first + count);
        }
        while (bits.len() as u64) < count {
            let bit = draw.below(domain);
            if !bits.contains(&bit) {
                bits.push(bit);
            }
        }
        bits.sort_unstable();
        let list: Vec<String> = bits.iter().map(u64::to_string).collect();
        let word = if list.len() == 1 { "bit" } else { "bits" };
        let stuck = self
            .stuck
            .map_or_else(String::new, |to| format!(" stuck={}", u8::from(to)));
        Drawn {
            effect: format!("{target} {word}={}{stuck}", list.join(",")),
            register,
            bits: bits
                .into_iter()
                .map(|bit| u16::try_from(bit).unwrap_or(u16::MAX))
                .collect(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Written,
}

impl Use {
    fn includes(self, access: OpAccess) -> bool {
        use OpAccess as A;
        match self {
            Self::Read => matches!(
                access,
                A::Read | A::CondRead | A::ReadWrite | A::ReadCondWrite
            ),
            Self::Written => matches!(
                access,
                A::Write | A::CondWrite | A::ReadWrite | A::ReadCondWrite
            ),
        }
    }
}

fn accesses(insn: &Instruction, used: Use) -> bool {
    let mut factory = InstructionInfoFactory::new();
    factory
        .info(insn)
        .used_memory()
        .iter()
        .any(|m| used.includes(m.access()))
}

/// Names and widths of the registers that are used in this way, each once.
fn registers(insn: &Instruction, used: Use) -> Vec<(String, u64)> {
    use Register as R;
    let mut factory = InstructionInfoFactory::new();
    let decoded = factory.info(insn).used_registers();
    let decoded = decoded.iter().filter(|u| used.includes(u.access()));
    // The decoder knows what the processor does at a system call, not what the kernel does (syscall(2)).
    let kernels: &[R] = match (insn.code() == Code::Syscall, used) {
        (false, _) => &[],
        (true, Use::Read) => &[R::RAX, R::RDI, R::RSI, R::RDX, R::R10, R::R8, R::R9],
        (true, Use::Written) => &[R::RAX],
    };
    let mut out: Vec<(String, u64)> = decoded
        .map(|u| narrowed(insn, u.register()))
        .chain(kernels.iter().copied())
        .filter_map(name)
        .collect();
    out.sort();
    out.dedup();
    out
}

/// The decoder calls a 32-bit result a write of all 64 bits; this is the name in the instruction.
fn narrowed(insn: &Instruction, register: Register) -> Register {
    let named = |size: usize| {
        (0..insn.op_count())
            .filter(|&at| insn.op_kind(at) == OpKind::Register)
            .map(|at| insn.op_register(at))
            .find(|named| named.size() == size && named.full_register() == register)
    };
    match (register.is_gpr64(), named(8), named(4)) {
        (true, None, Some(narrow)) => narrow,
        _ => register,
    }
}

fn name(register: Register) -> Option<(String, u64)> {
    if register.is_gpr() {
        // iced spells the low byte of r8 as r8l.
        let shown = format!("{register:?}").to_lowercase();
        let spelled = match shown.strip_suffix('l') {
            Some(stem) if stem.starts_with('r') => format!("{stem}b"),
            _ => shown,
        };
        return Some((spelled, register.size() as u64 * 8));
    }
    let shown = format!("{register:?}").to_lowercase();
    if register.is_xmm() || register.is_ymm() || register.is_zmm() {
        return Some((shown, register.size() as u64 * 8));
    }
    register.is_k().then_some((shown, 64))
}

fn flags(set: u32) -> Vec<(&'static str, u16)> {
    use iced_x86::RflagsBits as R;
    // The direction flag is left out: no program leaves it set.
    [
        (R::CF, "cf", 0),
        (R::PF, "pf", 2),
        (R::AF, "af", 4),
        (R::ZF, "zf", 6),
        (R::SF, "sf", 7),
        (R::OF, "of", 11),
    ]
    .into_iter()
    .filter(|(flag, ..)| set & flag != 0)
    .map(|(_, name, bit)| (name, bit))
    .collect()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    fn written_and_read(bytes: &[u8]) -> [Vec<(String, u64)>; 2] {
        let insn = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode();
        [Use::Written, Use::Read].map(|used| registers(&insn, used))
    }

    fn names(all: &[(String, u64)]) -> Vec<&str> {
        all.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn a_system_call_reads_its_arguments_and_writes_its_result() {
        let [written, read] = written_and_read(&[0x0f, 0x05]);
        assert_eq!(names(&written), ["r11", "rax", "rcx"]);
        assert_eq!(
            names(&read),
            ["r10", "r8", "r9", "rax", "rdi", "rdx", "rsi"]
        );
    }

    #[test]
    fn bits_are_those_of_the_name_in_the_instruction() {
        // mov eax, ebx; mov rax, rbx; add cl, 1.
        let [narrow, _] = written_and_read(&[0x89, 0xd8]);
        assert_eq!(narrow, [("eax".to_owned(), 32)]);
        let [whole, _] = written_and_read(&[0x48, 0x89, 0xd8]);
        assert_eq!(whole, [("rax".to_owned(), 64)]);
        let [byte, _] = written_and_read(&[0x80, 0xc1, 0x01]);
        assert_eq!(byte, [("cl".to_owned(), 8)]);
    }
}
