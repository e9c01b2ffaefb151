//! An exhaustive check of the algorithm of `steadfast cc` (docs/concepts/hardening.md): every fault at every step of a small handler, in
//! one thread and in two.
//!
//! ```text
//!   program.rs  the algorithm as steps, each with the function of the runtime that does it; any rule can be left out
//!   machine.rs  cells, registers, and what a fault leaves
//!   search.rs   every state, breadth first; the shortest way to what must not be, in words
//! ```
//!
//! The fault is the paper's (Section 3): once, at any step, any number of variables get any values, and one thread goes on
//! at any step. What must not be: a message that its receiver takes for sound and that no history of the inputs explains
//! (Error isolation); without a fault, an alarm or a standstill (Accuracy). A history is some of the inputs, each at most
//! once, each thread's in their order. A state that was validated and is wrong shows in a later answer.
//!
//! What the model takes for granted
//!  1. Corruption coverage: no fault makes a checksum that fits, and a cell that a fault has changed is noticed by the next
//!     checked read (memory with an error-correcting code). Messages are checked by their checksum alone. A checksum is that of
//!     one message and of one direction, as the envelope's is.
//!  2. A store goes where its step says: a fault does not turn its address (the residue of SEI).
//!  3. What leaves a handler without a checksum (a write that nobody checks) is not a message.
//!  4. No fault takes a thread from outside handlers to the inside of one (`Bounds::counted`): with two threads the exclusion of
//!     Section 4.2, with one the same for an input that was handled and not yet overwritten.
//!  5. With two threads a fault strikes registers, messages and logs of one, and what they share.
//!
//! Not covered: the C code itself, whose functions the steps only name; ranges and parts of words, the log's sum and places,
//! allocation, deferred effects, retries, waits for conditions, `--state`, `--between`, `--other-core`, `--validate=async`.

mod machine;
mod program;
mod search;
#[cfg(test)]
mod tests;

pub use program::{Program, Rule};
pub use search::{Bounds, Found, Searched, Trace, search};

/// What one thread is asked: a store, one that was damaged on its way, another, and a question whose answer shows them.
pub const ONE: &[&[u8]] = &[&[1, 1 + program::DAMAGED, 2, 0]];
/// Two threads: one stores, the other asks.
pub const TWO: &[&[u8]] = &[&[1], &[0]];
/// Both store, one asks.
pub const TWO_LONG: &[&[u8]] = &[&[1], &[2, 0]];

impl Bounds {
    /// One fault, with all that the model takes for granted.
    pub const PAPER: Self = Self {
        faults: 1,
        counted: true,
        once: false,
        states: 60_000_000,
    };

    /// The same for `--protect=sei`, which takes for granted as well that no fault has an input handled again.
    pub const SEI: Self = Self {
        once: true,
        ..Self::PAPER
    };
}

/// The inputs that a row of [`Rule::NEEDED`] names.
#[must_use]
pub const fn inputs(case: usize) -> &'static [&'static [u8]] {
    match case {
        1 => ONE,
        2 => TWO,
        _ => TWO_LONG,
    }
}
