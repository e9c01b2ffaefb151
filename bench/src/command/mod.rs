//! The `bench` command: its words, and what each of them measures.

pub(crate) mod cli;
mod hardened;
pub(crate) mod measure;
pub(crate) mod outcome;
pub(crate) mod parts;
mod programs;
mod says;
