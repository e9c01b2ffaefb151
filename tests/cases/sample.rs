//! Which cases of a product `make test` takes.
//!
//! Products of factors (what is struck, in which role, of how many replicas) are sampled so that each value of a factor still meets
//! values of every other. `STEADFAST_ALL=1` takes all of them (`make campaign`).

/// Whether every case is wanted.
pub(crate) fn all() -> bool {
    std::env::var_os("STEADFAST_ALL").is_some()
}

/// Whether this pair of a row and a column is taken: one column of three for each row, each column equally often.
pub(crate) fn sampled(row: usize, column: usize) -> bool {
    all() || (row + column).is_multiple_of(3)
}

/// Whether this triple of factors is taken: half of them, in which every two values of two factors still meet.
pub(crate) fn paired(one: usize, two: usize, three: usize) -> bool {
    all() || (one + two + three).is_multiple_of(2)
}

/// How far apart strikes are that take seconds each: twice as far as where all are wanted.
pub(crate) fn apart(step: usize) -> usize {
    if all() { step } else { 2 * step }
}
