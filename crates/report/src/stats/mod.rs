//! Statistics of campaigns and benchmarks: pure functions of counts.
//!
//! | Question | Answer |
//! |---|---|
//! | a rate, shown to a reader | [`Tally::wilson`]: close to its nominal coverage |
//! | a rate, decided on | [`Tally::clopper_pearson`], [`Tally::upper`]: never below it |
//! | nothing was seen | [`Tally::upper`] of zero: 1 − 0.05^(1/n), about 3/n |
//! | groups drawn with unequal chances | [`shares`]: weighted, both kinds of interval |
//! | two programs | [`compare`]: failures per unit of work, never coverage |
//! | when to stop | [`sequential`]: valid however often one looks |
//! | how many runs | [`power`] |
//! | medians of timings | [`bootstrap`] |
//!
//! Invariants
//!  1. A statement that a gate may rest on (`upper`, `lower`, `clopper_pearson`, the guaranteed
//!     bounds of [`shares`] and [`compare`], [`sequential`]) holds with at least its confidence
//!     for every true rate and every number of runs. What is only approximate says so.
//!  2. No run proves nothing: an empty tally has the interval 0 to 1.
//!
//! Not covered: finite populations. Runs are drawn with replacement from at least a million
//! places, where the correction is below a thousandth.

pub mod bootstrap;
pub mod compare;
pub mod interval;
pub mod power;
pub mod sequential;
pub mod shares;
mod special;

pub use compare::Arm;
pub use interval::{Confidence, Interval, Tally};
pub use shares::{Share, Shares};

#[cfg(test)]
mod tests;
