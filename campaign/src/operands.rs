//! What faults of each group an instruction can have.
//!
//! Registers are those that the instruction names or uses silently, under the name by which it
//! uses them; a 32-bit result clears the upper half, so a write to `eax` is a write to `rax`.
//!
//! Not covered: x87, MMX and segment registers.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use steadfast_strike::operand::{reads, writes};

use crate::draw::Draw;

/// The groups that reports print. Which share of a group's faults is of which kind is said at
/// each arm of [`Group::draw`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Group {
    /// A register is wrong after it was written.
    Wreg,
    /// A register is wrong when it is read, and stays so.
    Rreg,
    /// A wrong value is stored.
    Wval,
    /// A wrong value is loaded from memory, and stays there.
    Rval,
    /// A load or store goes to a wrong place.
    Addr,
    /// Execution goes on at a wrong place.
    Cf,
    /// A bit of the agent's code or constants (this and the next: ours.rs).
    Code,
    /// A bit of the agent's variables or stacks.
    Data,
    /// A bit of the control block.
    Control,
    /// A bit of claims, results and the bytes that go with them.
    Records,
    /// An argument, or a byte that one points to, between vote and effect.
    Window,
    /// Processes around the replicas, planted code, and two faults at once (this and the next:
    /// outside.rs).
    Keeper,
    Init,
    Sentry,
    Launcher,
    Mending,
    Arena,
    Repair,
    Pair,
}

impl Group {
    /// Faults of an instruction.
    pub(crate) const INSTRUCTIONS: [Self; 6] = [
        Self::Wreg,
        Self::Rreg,
        Self::Wval,
        Self::Rval,
        Self::Addr,
        Self::Cf,
    ];
    pub(crate) const ALL: [Self; 19] = [
        Self::Wreg,
        Self::Rreg,
        Self::Wval,
        Self::Rval,
        Self::Addr,
        Self::Cf,
        Self::Code,
        Self::Data,
        Self::Control,
        Self::Records,
        Self::Window,
        Self::Keeper,
        Self::Init,
        Self::Sentry,
        Self::Launcher,
        Self::Mending,
        Self::Arena,
        Self::Repair,
        Self::Pair,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Wreg => "wreg",
            Self::Rreg => "rreg",
            Self::Wval => "wval",
            Self::Rval => "rval",
            Self::Addr => "addr",
            Self::Cf => "cf",
            Self::Code => "code",
            Self::Data => "data",
            Self::Control => "control",
            Self::Records => "records",
            Self::Window => "window",
            Self::Keeper => "keeper",
            Self::Init => "init",
            Self::Sentry => "sentry",
            Self::Launcher => "launcher",
            Self::Mending => "mending",
            Self::Arena => "arena",
            Self::Repair => "repair",
            Self::Pair => "pair",
        }
    }

    /// Whether a fault of this group can be drawn here.
    pub(crate) fn has(self, insn: &Instruction) -> bool {
        let on = falls_through(insn);
        match self {
            Self::Wreg => on && !registers(insn, writes).is_empty(),
            Self::Rreg => !registers(insn, reads).is_empty(),
            Self::Wval => on && memory(insn, writes).is_some(),
            Self::Rval => memory(insn, reads).is_some(),
            Self::Addr => on && (memory(insn, reads).is_some() || memory(insn, writes).is_some()),
            Self::Cf => true,
            _ => false,
        }
    }

    /// The effect part of a fault's line.
    pub(crate) fn draw(self, insn: &Instruction, draw: &mut Draw) -> Option<String> {
        match self {
            // Uniform over the registers, then over the bits of the one drawn.
            Self::Wreg => Some(on_register(&registers(insn, writes), " after", insn, draw)),
            Self::Rreg => Some(on_register(&registers(insn, reads), "", insn, draw)),
            // Uniform over the bits of the operand.
            Self::Wval => Some(format!(
                "wval bit={}",
                draw.below(memory(insn, writes)?.min(512))
            )),
            Self::Rval => Some(format!(
                "rval bit={}",
                draw.below(memory(insn, reads)?.min(512))
            )),
            // The 48 bits that an address has; where an instruction loads and stores, either.
            Self::Addr => {
                let which: Vec<&str> = [
                    (memory(insn, reads), "raddr"),
                    (memory(insn, writes), "waddr"),
                ]
                .into_iter()
                .filter_map(|(has, word)| has.map(|_| word))
                .collect();
                Some(format!("{} bit={}", draw.one_of(&which), draw.below(48)))
            }
            // A conditional branch goes the other way in one of two cases; else one of the 48 bits
            // of the address of the next instruction.
            Self::Cf if insn.is_jcc_short_or_near() && draw.below(2) == 0 => {
                Some("kind=invert".into())
            }
            Self::Cf => Some(format!("ip bit={}", draw.below(48))),
            _ => None,
        }
    }
}

fn falls_through(insn: &Instruction) -> bool {
    insn.flow_control() == FlowControl::Next
}

/// Bits of the one memory operand of this kind.
fn memory(insn: &Instruction, kind: fn(OpAccess) -> bool) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let used: Vec<UsedMemory> = factory
        .info(insn)
        .used_memory()
        .iter()
        .copied()
        .filter(|m| kind(m.access()))
        .collect();
    match used[..] {
        [one] if one.vsib_size() == 0 && one.segment() != Register::GS => {
            let bits = one.memory_size().size() as u64 * 8;
            (bits > 0).then_some(bits)
        }
        _ => None,
    }
}

/// Names and widths of the registers that are used in this way, each once; flags as one.
fn registers(insn: &Instruction, kind: fn(OpAccess) -> bool) -> Vec<(String, u64)> {
    let mut factory = InstructionInfoFactory::new();
    let mut out: Vec<(String, u64)> = factory
        .info(insn)
        .used_registers()
        .iter()
        .filter(|u| kind(u.access()))
        .filter_map(|u| {
            name(
                u.register(),
                std::ptr::fn_addr_eq(kind, writes as fn(OpAccess) -> bool),
            )
        })
        .collect();
    let flags = if std::ptr::fn_addr_eq(kind, reads as fn(OpAccess) -> bool) {
        insn.rflags_read()
    } else {
        insn.rflags_modified()
    };
    if !flag_names(flags).is_empty() {
        out.push(("flags".into(), 0));
    }
    out.sort();
    out.dedup();
    out
}

fn name(register: Register, written: bool) -> Option<(String, u64)> {
    let shown = |r: Register| format!("{r:?}").to_lowercase();
    if register.is_gpr() {
        let whole = register.is_gpr64() || register.is_gpr32() && written;
        let named = if whole {
            register.full_register()
        } else {
            register
        };
        return Some((gpr_name(named), named.size() as u64 * 8));
    }
    // Without EVEX the upper registers and the mask registers do not occur.
    if register.is_xmm() || register.is_ymm() || register.is_zmm() {
        return Some((shown(register), register.size() as u64 * 8));
    }
    register.is_k().then(|| (shown(register), 64))
}

fn gpr_name(register: Register) -> String {
    // iced spells the low byte of r8 as r8l.
    let name = format!("{register:?}").to_lowercase();
    match name.strip_suffix('l') {
        Some(stem) if stem.starts_with('r') => format!("{stem}b"),
        _ => name,
    }
}

fn flag_names(set: u32) -> Vec<&'static str> {
    use iced_x86::RflagsBits as R;
    [
        (R::CF, "cf"),
        (R::PF, "pf"),
        (R::AF, "af"),
        (R::ZF, "zf"),
        (R::SF, "sf"),
        (R::DF, "df"),
        (R::OF, "of"),
    ]
    .into_iter()
    .filter(|(bit, _)| set & bit != 0)
    .map(|(_, name)| name)
    .collect()
}

fn on_register(
    registers: &[(String, u64)],
    moment: &str,
    insn: &Instruction,
    draw: &mut Draw,
) -> String {
    let (name, bits) = draw.one_of(registers);
    if name == "flags" {
        let set = if moment.is_empty() {
            insn.rflags_read()
        } else {
            insn.rflags_modified()
        };
        return format!("flag={}{moment}", draw.one_of(&flag_names(set)));
    }
    format!("reg={name}{moment} bit={}", draw.below(*bits))
}
