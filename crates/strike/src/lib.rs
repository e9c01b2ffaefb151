//! Strike: what a fault does at one instruction, read off both before anything runs.
//!
//! ```text
//!   fault ──► Strike::of ──► Strike::fit(instruction) ──► a record for the code that strikes
//! ```
//!
//! `steadfast run --flip` and `steadfast inject` plant faults in different ways and share this:
//! which operand, which register, which bits, and how a place gets well again.
//!
//! Invariants
//!  1. What an instruction cannot have is refused, with what it would need.
//!  2. Nothing here knows a process, a replica or a file.
//!
//! Not covered: when a fault strikes; what the bytes of flipped code are, and where they lie, which is known to
//! who plants it.
//!
//! Numbers of [`What`]: crates/inside/include/fault.h.

pub mod class;
pub mod operand;
pub mod record;

use iced_x86::{Code, FlowControl, Instruction};
use operand::{Undo, Which};
use steadfast_fault::{
    Bits, Effect, Fault, Incident, Lasting, Location, MemBase, MemExpr, Moment, Register, Target,
};

/// Why a fault cannot be injected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the fault \"{fault}\" needs {requirement}, found {found}")]
pub struct Refusal {
    /// The fault's line.
    pub fault: String,
    /// What it needs.
    pub requirement: String,
    /// What there is.
    pub found: String,
    /// What would work.
    pub fix: String,
}

/// A refusal.
pub fn refuse(fault: &Fault, requirement: &str, found: impl Into<String>, fix: &str) -> Refusal {
    Refusal {
        fault: fault.to_string(),
        requirement: requirement.into(),
        found: found.into(),
        fix: fix.into(),
    }
}

/// What is hit, or happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the grammar's own words")]
pub enum What {
    Reg = 1,
    Vector,
    Kmask,
    Mxcsr,
    FsBase,
    Mem,
    Wval,
    Addr,
    Ip,
    Crash,
    Stop,
    Hang,
    Kill,
    Skip,
    Repeat,
    Invert,
    Code,
}

/// What an address starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Registers, or nothing.
    Registers,
    /// The fs base.
    Fs,
    /// A place in a file: [`Place::at`] turns it into a number.
    File,
    /// The log of replicas.
    Log,
    /// The entry of the event that triggers.
    Entry,
}

/// No register.
pub const NO_REG: u8 = 0xff;
/// The number that stands for the flags.
pub const REG_FLAGS: u8 = 16;

/// An address: registers and a displacement, then up to four pointers followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// What it starts from.
    pub from: From,
    /// Hardware number of the base register.
    pub base: u8,
    /// Of the index register.
    pub index: u8,
    /// What the index is multiplied by.
    pub scale: u8,
    /// Pointers followed.
    pub pointers: u8,
    /// Before the first pointer, and behind each.
    pub disp: [i64; 5],
}

/// Nothing but a displacement.
pub const NOWHERE: Place = Place {
    from: From::Registers,
    base: NO_REG,
    index: NO_REG,
    scale: 1,
    pointers: 0,
    disp: [0; 5],
};

impl Place {
    /// The same from a number, once that is known.
    #[must_use]
    pub fn at(mut self, start: u64) -> Self {
        self.from = From::Registers;
        self.disp[0] = self.disp[0].wrapping_add(start.cast_signed());
        self
    }

    fn of(fault: &Fault, expr: &MemExpr) -> Result<Self, Refusal> {
        if let MemBase::Pointer(inner) = &expr.base {
            let mut place = Self::of(fault, inner)?;
            place.pointers += 1;
            let disp = place.disp.get_mut(usize::from(place.pointers));
            *disp.ok_or_else(|| {
                refuse(
                    fault,
                    "at most four pointers to follow",
                    "more",
                    "[[rdi]+8]",
                )
            })? = expr.displacement;
            return Ok(place);
        }
        let mut place = Self {
            disp: [expr.displacement, 0, 0, 0, 0],
            ..NOWHERE
        };
        match &expr.base {
            MemBase::Register { base, index } => {
                place.base = base.number();
                if let Some(index) = index {
                    place.index = index.register.number();
                    place.scale = index.scale;
                }
            }
            MemBase::FsBase => place.from = From::Fs,
            MemBase::GsBase => {
                return Err(refuse(
                    fault,
                    "an address that programs form",
                    "the gs base",
                    "[fsbase+0x28]",
                ));
            }
            MemBase::Absolute(address) | MemBase::Static(Location::Absolute(address)) => {
                place = place.at(*address)
            }
            MemBase::Static(_) => place.from = From::File,
            MemBase::Log => place.from = From::Log,
            MemBase::Entry => place.from = From::Entry,
            MemBase::Pointer(_) => {}
        }
        Ok(place)
    }

    fn operand(operand: &operand::Operand) -> Self {
        Self {
            from: if operand.fs {
                From::Fs
            } else {
                From::Registers
            },
            base: operand.base.unwrap_or(NO_REG),
            index: operand.index.unwrap_or(NO_REG),
            scale: operand.scale,
            pointers: 0,
            disp: [operand.displacement.cast_signed(), 0, 0, 0, 0],
        }
    }
}

/// What happens at the instruction.
#[derive(Debug, Clone)]
pub struct Strike {
    /// What is hit.
    pub what: What,
    /// Its bits.
    pub mask: [u64; 8],
    /// Where, if it is memory or an address.
    pub place: Place,
    /// The place in a file that the address starts from.
    pub start: Option<Location>,
    /// The instruction behind.
    pub next: u64,
    /// Where a branch goes.
    pub target: u64,
    /// What of a register comes back.
    pub undo: Undo,
    /// Something is left to do behind the instruction.
    pub once: bool,
    /// It strikes behind the instruction alone.
    pub after: bool,
    /// Register.
    pub reg: u8,
    /// Signal.
    pub signal: u8,
    /// Condition of a branch, as encoded.
    pub condition: u8,
}

/// Whether execution goes on with the next instruction.
#[must_use]
pub fn falls_through(insn: &Instruction) -> bool {
    insn.flow_control() == FlowControl::Next || insn.code() == Code::Syscall
}

/// One above the highest bit.
#[must_use]
pub fn bits_end(mask: &[u64; 8]) -> usize {
    mask.iter().rposition(|word| *word != 0).map_or(0, |word| {
        word * 64 + 64 - usize::try_from(mask[word].leading_zeros()).unwrap_or(0)
    })
}

/// The bytes of an instruction as a fault leaves them.
#[must_use]
pub fn code(fault: &Fault, bytes: &[u8], mask: &[u64; 8]) -> Vec<u8> {
    let mask = mask.iter().flat_map(|word| word.to_le_bytes());
    let change = |byte: &u8, mask: u8| match record::change_word(fault) {
        1 => byte & !mask,
        2 => byte | mask,
        _ => byte ^ mask,
    };
    bytes
        .iter()
        .zip(mask)
        .map(|(byte, mask)| change(byte, mask))
        .collect()
}

/// The number that the `n`-th candidate of an intermittent fault draws: splitmix64, as the code
/// does that strikes inside a program.
#[must_use]
pub const fn draw(seed: u64, n: u64) -> u64 {
    let z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Nothing that an instruction does carries these out.
fn storage(fault: &Fault) -> Refusal {
    refuse(
        fault,
        "a fault at an instruction or an event",
        "one of storage",
        "`steadfast inject`, where transfers are watched from outside",
    )
}

impl Strike {
    /// What the fault says without an instruction: all there is, at an event.
    ///
    /// # Errors
    /// When no program has what it hits.
    pub fn of(fault: &Fault) -> Result<Self, Refusal> {
        let mut strike = Self {
            what: What::Reg,
            mask: [0; 8],
            place: NOWHERE,
            start: None,
            next: 0,
            target: 0,
            undo: Undo::Nothing,
            once: false,
            after: false,
            reg: NO_REG,
            signal: 0,
            condition: 0,
        };
        let moment = |strike: &mut Self, moment: Moment| {
            strike.after = moment == Moment::After;
            strike.once = moment == Moment::BeforeOnly;
        };
        strike.what = match fault.effect() {
            Effect::Bits { target, bits, .. } => {
                strike.mask = *bits.words();
                match target {
                    Target::Register(register, when) => {
                        moment(&mut strike, *when);
                        strike.register(fault, *register, bits)?
                    }
                    Target::Memory(expr, when) => {
                        moment(&mut strike, *when);
                        strike.place = Place::of(fault, expr)?;
                        if strike.place.from == From::File
                            && let MemBase::Static(location) = innermost(expr)
                        {
                            strike.start = Some(location.clone());
                        }
                        What::Mem
                    }
                    Target::ReadValue(lasting) => {
                        strike.once = *lasting == Lasting::ReadOnly;
                        What::Mem
                    }
                    Target::WrittenValue => {
                        strike.once = true;
                        What::Wval
                    }
                    Target::Address | Target::ReadAddress | Target::WrittenAddress => {
                        strike.once = true;
                        What::Addr
                    }
                    Target::Ip => What::Ip,
                    Target::Code => What::Code,
                    Target::Data(_) => return Err(storage(fault)),
                }
            }
            Effect::Incident(incident) => match incident {
                Incident::Crash => What::Crash,
                Incident::Stop => What::Stop,
                Incident::Hang => What::Hang,
                Incident::Skip => What::Skip,
                Incident::Repeat => {
                    strike.once = true;
                    What::Repeat
                }
                Incident::Invert => What::Invert,
            },
            Effect::Kill(signal) => {
                strike.signal = *signal;
                What::Kill
            }
            Effect::Storage(_) => return Err(storage(fault)),
        };
        Ok(strike)
    }

    /// Reads off the instruction what the fault needs to know of it.
    ///
    /// # Errors
    /// When this instruction cannot have it.
    pub fn fit(&mut self, fault: &Fault, insn: &Instruction, bytes: &[u8]) -> Result<(), Refusal> {
        let no = |requirement: &str| {
            refuse(
                fault,
                requirement,
                format!("{:#x}: {insn}", insn.ip()),
                "another instruction",
            )
        };
        let on = |which: Which| operand::memory(insn, which).map_err(|why| no(&why));
        self.next = insn.next_ip();
        if let Effect::Bits { target, .. } = fault.effect() {
            match target {
                Target::Register(register, _) => {
                    self.undo = match register {
                        Register::Gpr(gpr, _) => operand::register_undo(insn, gpr.number()),
                        Register::Flags => Undo::Bits(operand::flags_kept(insn)),
                        Register::Vector { index, .. } if operand::vector_written(insn, *index) => {
                            Undo::Nothing
                        }
                        _ => Undo::Bits(0),
                    };
                }
                Target::ReadValue(_) | Target::WrittenValue => {
                    let written = *target == Target::WrittenValue;
                    let operand = on(if written { Which::Written } else { Which::Read })?;
                    if bits_end(&self.mask) > operand.bits() {
                        return Err(no(&format!("a bit below {}", operand.bits())));
                    }
                    self.place = Place::operand(&operand);
                }
                Target::Address | Target::ReadAddress | Target::WrittenAddress => {
                    let operand = on(match target {
                        Target::Address => Which::Only,
                        Target::ReadAddress => Which::Read,
                        _ => Which::Written,
                    })?;
                    (self.reg, self.undo) =
                        operand::address(insn, &operand).map_err(|why| no(&why))?;
                    self.once = self.undo != Undo::Nothing;
                    self.place = Place::operand(&operand);
                    // What the segment adds is no part of the effective address.
                    self.place.from = From::Registers;
                }
                Target::Code if bits_end(&self.mask) > insn.len() * 8 => {
                    return Err(no(&format!("a bit below {}", insn.len() * 8)));
                }
                Target::Memory(..) | Target::Ip | Target::Code | Target::Data(_) => {}
            }
        }
        match self.what {
            What::Invert => {
                (self.target, self.condition) = operand::branch(insn, bytes)
                    .ok_or_else(|| no("a conditional branch on flags"))?;
            }
            What::Skip if insn.flow_control() == FlowControl::Return => {
                return Err(no("an instruction with code behind it"));
            }
            _ => {}
        }
        if (self.once || self.after) && !falls_through(insn) {
            return Err(no("an instruction that goes on with the next one"));
        }
        Ok(())
    }

    fn register(
        &mut self,
        fault: &Fault,
        register: Register,
        bits: &Bits,
    ) -> Result<What, Refusal> {
        let shift = usize::from(register.first_bit());
        self.mask = [0; 8];
        for (word, bits) in bits.words().iter().enumerate() {
            for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
                let to = word * 64 + bit + shift;
                self.mask[to / 64] |= 1 << (to % 64);
            }
        }
        Ok(match register {
            Register::Gpr(gpr, _) => {
                self.reg = gpr.number();
                What::Reg
            }
            Register::Flags => {
                // cf pf af zf sf df of; single steps and alignment checks are nobody's result.
                if self.mask[0] & !0x0cd5 != 0 {
                    let fix = "flag=cf, pf, af, zf, sf, df or of";
                    return Err(refuse(
                        fault,
                        "a flag that a program computes with",
                        "another bit",
                        fix,
                    ));
                }
                self.reg = REG_FLAGS;
                What::Reg
            }
            Register::Vector { index, .. } => {
                let high = self.mask[4..].iter().any(|word| *word != 0) || index > 15;
                let wide = self.mask[2..4].iter().any(|word| *word != 0);
                if high && !is_x86_feature_detected!("avx512f")
                    || wide && !is_x86_feature_detected!("avx")
                {
                    return Err(refuse(
                        fault,
                        "a register of this processor",
                        "one it does not have",
                        "reg=xmm0",
                    ));
                }
                self.reg = index;
                What::Vector
            }
            Register::Mask(k) => {
                if !is_x86_feature_detected!("avx512f") {
                    return Err(refuse(
                        fault,
                        "a processor with mask registers",
                        "one without",
                        "reg=rax",
                    ));
                }
                self.reg = k;
                What::Kmask
            }
            Register::Mxcsr => What::Mxcsr,
            Register::FsBase => What::FsBase,
            Register::GsBase => {
                return Err(refuse(
                    fault,
                    "a register that programs use",
                    "the gs base",
                    "reg=fsbase",
                ));
            }
        })
    }
}

fn innermost(expr: &MemExpr) -> &MemBase {
    match &expr.base {
        MemBase::Pointer(inner) => innermost(inner),
        base => base,
    }
}

#[cfg(test)]
mod tests;
