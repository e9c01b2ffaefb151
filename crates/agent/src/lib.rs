//! The agent's image: freestanding C that the launcher writes into every replica.
//!
//! [`ELF`] is the linked image with its symbols. Its text is mapped at the address it was
//! linked for; nothing is relocated. See `agent.h` for the rules its code obeys.

/// The linked image.
pub static ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.elf"));

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// Name of a system call and the note of its row in `calls.def`.
#[must_use]
pub fn call(number: u32) -> (&'static str, &'static str) {
    CALLS
        .iter()
        .find(|(nr, ..)| *nr == number)
        .map_or(("an unknown system call", "its number is above the highest known at build"), |(_, name, note)| {
            (name, note)
        })
}

#[cfg(test)]
mod tests;
