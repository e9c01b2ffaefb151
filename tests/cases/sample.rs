//! Which cases of a product `make test` takes, and the text that programs are given.
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

/// How far apart strikes are that take long each: closer where all are wanted.
pub(crate) fn apart<T>(all_wanted: T, otherwise: T) -> T {
    if all() { all_wanted } else { otherwise }
}

/// Deterministic prose: words of a small vocabulary in lines of about 70 bytes.
pub(crate) fn sample_text(bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 24] = [
        "replica", "leader", "the", "of", "agrees", "with", "byte", "and", "a", "core", "Vote",
        "never", "Alpha", "flip", "memory", "is", "log", "event", "12", "3.14", "stack", "page",
        "Signal", "output",
    ];
    let mut text = Vec::with_capacity(bytes + 16);
    let (mut x, mut column) = (1_u32, 0);
    while text.len() < bytes {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = WORDS[(x >> 24) as usize % WORDS.len()];
        text.extend_from_slice(word.as_bytes());
        column += word.len() + 1;
        text.push(if column > 70 { b'\n' } else { b' ' });
        if column > 70 {
            column = 0;
        }
    }
    text.push(b'\n');
    text
}
