//! Work on all bytes of a module, divided among the processors.
//!
//! A program is stopped while its libraries are looked at, so the other processors are free.
//! Results come in the order of the bytes, whoever was first: plans do not depend on how many
//! processors there are. Where no thread can be had (limits on processes), the caller does its
//! part.

use std::ops::Range;
use std::thread::{self, available_parallelism};

/// The least that is worth a thread: one takes some 50 µs to start and to wait for, and the
/// passes over a module about 1 ns for each byte.
const LEAST: usize = 256 << 10;
/// Memory bandwidth is used up before that.
const THREADS_MAX: usize = 16;

/// What `each` says of consecutive parts of `0..len`, at least one.
pub(crate) fn in_parts<R: Send>(len: usize, each: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
    let threads = match len / LEAST {
        0 | 1 => 1,
        most => available_parallelism()
            .map_or(1, usize::from)
            .min(most)
            .min(THREADS_MAX),
    };
    let part = |n: usize| len * n / threads..len * (n + 1) / threads;
    if threads == 1 {
        return vec![each(part(0))];
    }
    let each = &each;
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads)
            .map(|n| {
                thread::Builder::new()
                    .spawn_scoped(scope, move || each(part(n)))
                    .ok()
            })
            .collect();
        let first = each(part(0));
        let rest = others
            .into_iter()
            .enumerate()
            .map(|(n, thread)| match thread {
                Some(thread) => thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                None => each(part(n + 1)),
            });
        std::iter::once(first).chain(rest).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_consecutive_and_whole() {
        for len in [0, 1, LEAST, 2 * LEAST, 3 * LEAST + 1, 100 * LEAST + 7] {
            let parts = in_parts(len, |part| part);
            assert_eq!(parts[0].start, 0);
            assert_eq!(parts[parts.len() - 1].end, len);
            assert!(
                parts.windows(2).all(|two| two[0].end == two[1].start),
                "{parts:?}"
            );
        }
    }
}
