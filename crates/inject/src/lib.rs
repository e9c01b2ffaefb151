//! Fault injection: how often does a program give a wrong answer when hardware fails?
//!
//! ```text
//!   profile ──► plan ──► runs ──► report, gate
//!   (count)   (written   (one line each,
//!              first)     resumable)
//! ```
//!
//! Invariants
//!  1. Everything a later step needs is in the campaign directory ([`record`]); reports never
//!     look at the target again.
//!  2. The plan is written before the first run and follows from the seed and the profile alone.
//!  3. A fault that did not fire never counts.

pub mod campaign;
pub mod chacha;
pub mod detector;
pub mod doctor;
pub mod judge;
pub mod live;
pub mod merge;
pub mod models;
pub mod module;
mod payload;
pub mod profile;
pub mod reach;
pub mod record;
pub mod results;
pub mod sandbox;
pub mod scratch;
pub mod server;
mod step;
pub mod storage;
pub mod target;
pub mod victim;

pub use steadfast_strike::Refusal;

/// The register by which the address of an instruction's operand is made wrong.
pub(crate) struct AddressRegister {
    pub(crate) number: u8,
    /// Whether the instruction steps it along.
    pub(crate) steps: bool,
}

pub(crate) fn operand_register(
    insn: &iced_x86::Instruction,
    target: &steadfast_fault::Target,
) -> Option<AddressRegister> {
    use steadfast_fault::Target;
    use steadfast_strike::operand;
    let which = match target {
        Target::ReadAddress => operand::Which::Read,
        Target::WrittenAddress => operand::Which::Written,
        _ => operand::Which::Only,
    };
    let operand = operand::memory(insn, which).ok()?;
    let (number, undo) = operand::address(insn, &operand).ok()?;
    Some(AddressRegister {
        number,
        steps: undo == operand::Undo::Delta,
    })
}
