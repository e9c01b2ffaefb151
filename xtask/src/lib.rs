//! Chores that need the agent's tables or the results of benches: reading them, holding them
//! to their rules, and writing the documents that are made of them.
//!
//! The tables are C macros (crates/agent/src/tables/*.def), because the agent compiles them. This
//! crate reads the same text, so that what the documents say is what the agent does.
//!
//! Invariants
//!  1. A table with an error yields no document; every error names its file and line.
//!  2. The documents are a function of the tables alone: no clock, no machine, no order
//!     of a hash map.
//!
//! Not covered: whether a row is true of the kernel. Tests compare numbers and names with
//! other sources; sizes are measured by hand when a row is written (calls.def says how).

pub mod checks;
pub mod circles;
mod complaint;
pub mod def;
pub mod docs;
mod format;
pub mod plot;
mod public;
mod source;
pub mod specification;
pub mod tables;
pub mod tidy;

#[cfg(test)]
mod tests;
