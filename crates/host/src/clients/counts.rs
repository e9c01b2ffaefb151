//! What each client counts, and how it finds its functions.

use serde::{Deserialize, Serialize};
use steadfast_restart::{CallError, Edge};

/// What a client counted.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    /// Answers that were not what they had to be.
    pub(crate) wrong: u64,
    /// Handles that the client had to open again.
    pub(crate) lost: u64,
    /// Handles that still name what they named at first.
    pub(crate) kept: usize,
}

/// The places of functions, by their names.
pub(super) fn functions<const N: usize>(
    edge: &Edge,
    names: [&str; N],
) -> Result<[usize; N], CallError> {
    let mut places = [0; N];
    for (place, name) in places.iter_mut().zip(names) {
        *place = edge.function(name)?;
    }
    Ok(places)
}
