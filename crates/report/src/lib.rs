//! What runs add up to: rates with intervals, gates, comparisons, and the pages that show them.
//!
//! Campaigns and benchmarks of every part hand in what they counted; this crate says what that
//! supports and prints it. [`stats`] is the arithmetic, [`results`] what a campaign hands in,
//! [`report`] what it adds up to, [`gate`] what it must show, [`published`] what stays of it in the repository.
//!
//! Invariants
//!  1. Everything here is a pure function of its inputs: no clock, no file, no network, no
//!     environment, no unsafe. The same results give the same bytes.
//!  2. Statistics know no protection by name: outcomes are the shared words, groups are whatever the
//!     campaign calls them. [`published`] alone has the names of the parts.
//!  3. A rate never stands alone: it has an interval, and a zero has its upper bound.
//!
//! Not covered: reading a campaign from disk, and looking up symbols, lines and instructions.

#![forbid(unsafe_code)]

pub mod compare;
pub mod format;
pub mod gate;
pub mod html;
pub mod junit;
pub mod published;
pub mod report;
pub mod results;
pub mod rows;
pub mod stats;
pub mod tabulate;
pub mod text;

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
