//! Records: what the code that strikes is told, and what it tells.
//!
//! Layouts of crates/inside/include/fault.h, which the agent's records (crates/replica/src/flips.rs)
//! and those of bare targets (crates/inject/src/payload.rs) are made of.
//!
//! Invariants
//!  1. Sizes and offsets are asserted here and in the header: neither side can change alone.
//!  2. A record says all that the code that strikes needs: it asks nobody while it does.
//!
//! Not covered: where records lie and who counts executions, which is each owner's.

use steadfast_fault::ids::CoreId;
use steadfast_fault::{Change, Effect, Fault, Hits};

use crate::operand::Undo;
use crate::{From, Place, Refusal, Strike, refuse};

/// `struct sf_choice`.
pub const CHOICE_BYTES: usize = 72;
/// `struct sf_strike`.
pub const STRIKE_BYTES: usize = 160;
/// In it: the displacement of the place, before the first pointer.
pub const STRIKE_DISP: usize = 8 + 64 + 8;
/// In it: the instruction's address.
pub const STRIKE_ADDR: usize = 8 + 64 + 48;
/// In it: where execution goes on when the instruction is left out.
pub const STRIKE_NEXT: usize = STRIKE_ADDR + 8;
/// `struct sf_struck`.
pub const STRUCK_BYTES: usize = 24 + 2 * 64;
/// In it: an address,
pub const STRUCK_AT: usize = 0;
/// a difference or a length,
pub const STRUCK_DELTA: usize = 16;
/// and bytes.
pub const STRUCK_OLD_BYTES: usize = 24;
/// `struct sf_hit`.
pub const HIT_BYTES: usize = 64;

/// `struct sf_choice` of a fault at an instruction; of one at an event without `hits`.
///
/// # Errors
/// When there is a CPU that it has no bit for.
pub fn choice(fault: &Fault, hits: Option<&Hits>) -> Result<Vec<u8>, Refusal> {
    let mut words = hits.map_or([0; 5], hit_words).to_vec();
    words.extend(cpu_words(fault)?);
    let out: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(out.len(), CHOICE_BYTES, "crates/inside/include/fault.h");
    Ok(out)
}

impl Strike {
    /// `struct sf_strike` at an address. `when` and `agent` mean something to replicas alone.
    ///
    /// # Panics
    /// When this is not the layout.
    #[must_use]
    pub fn record(&self, fault: &Fault, addr: u64, when: u8, agent: bool) -> Vec<u8> {
        let (undo_how, undo) = match self.undo {
            Undo::Nothing => (0, 0),
            Undo::Bits(mask) => (1, mask),
            Undo::Compare => (2, 0),
            Undo::Delta => (3, 0),
        };
        let words = |out: &mut Vec<u8>, words: &[u64]| {
            out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        let mut out = Vec::with_capacity(STRIKE_BYTES);
        words(&mut out, &[u64::from(self.what as u32)]);
        words(&mut out, &self.mask);
        out.extend(self.place.record());
        words(&mut out, &[addr, self.next, self.target, undo]);
        out.extend([
            change_word(fault),
            u8::from(self.once),
            self.reg,
            undo_how,
            self.signal,
            self.condition,
            when,
            u8::from(agent),
        ]);
        assert_eq!(out.len(), STRIKE_BYTES, "crates/inside/include/fault.h");
        out
    }
}

impl Place {
    /// `struct sf_place`.
    fn record(&self) -> Vec<u8> {
        let from = match self.from {
            From::File => 0, // of a module that is not mapped
            From::Registers | From::Log => 1,
            From::Fs => 2,
            From::Entry => 3,
        };
        let mut out = vec![
            from,
            self.base,
            self.index,
            self.scale,
            self.pointers,
            0,
            0,
            0,
        ];
        out.extend(self.disp.iter().flat_map(|d| d.to_le_bytes()));
        out
    }
}

/// `struct sf_hit`: the first hit, and how many there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// How many.
    pub hits: u64,
    /// Execution or event.
    pub n: u64,
    /// When.
    pub tsc: u64,
    /// The instruction.
    pub addr: u64,
    /// The 64 bits around the lowest one hit.
    pub before: u64,
    /// What became of them.
    pub after: u64,
    /// Where.
    pub cpu: u32,
    /// Times that the place could not be reached.
    pub missed: u32,
}

impl Hit {
    /// From the words of a record.
    #[must_use]
    pub fn read(word: impl Fn(usize) -> u64) -> Self {
        let half = |value: u64| u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
        Self {
            hits: word(0),
            n: word(1),
            tsc: word(2),
            addr: word(3),
            before: word(4),
            after: word(5),
            cpu: half(word(6)),
            missed: half(word(6) >> 32),
        }
    }
}

/// First, last, step, one-in, seed.
fn hit_words(hits: &Hits) -> [u64; 5] {
    let (one_in, seed) = hits
        .odds
        .map_or((0, 0), |odds| (odds.one_in.get(), odds.seed));
    [
        hits.first.get(),
        hits.last.map_or(u64::MAX, std::num::NonZero::get),
        hits.step.get(),
        one_in,
        seed,
    ]
}

/// How bits change.
pub(crate) fn change_word(fault: &Fault) -> u8 {
    match fault.effect() {
        Effect::Bits {
            change: Change::Stuck0,
            ..
        } => 1,
        Effect::Bits {
            change: Change::Stuck1,
            ..
        } => 2,
        _ => 0,
    }
}

/// The victim's CPUs as a set; empty: every one.
fn cpu_words(fault: &Fault) -> Result<[u64; 4], Refusal> {
    let mut cpus = [0_u64; 4];
    for CoreId(core) in fault.victim().cpus.iter().flat_map(|cpus| cpus.iter()) {
        let word = usize::try_from(core / 64)
            .ok()
            .and_then(|word| cpus.get_mut(word));
        *word.ok_or_else(|| refuse(fault, "a CPU below 256", core.to_string(), "cpu=0"))? |=
            1 << (core % 64);
    }
    Ok(cpus)
}
