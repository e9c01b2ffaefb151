//! A group of a tree that nobody asks anything. Trees hold many: workers without a connection, shells that wait for a child.
//!
//! A look costs some 100 µs of system calls, so ten of them a second are a thousandth of a core for each group. Once nothing has moved
//! for a while, the launcher looks once a second, and has the replicas wake it at their next event (log.c, `ring`).
//! Followers look around as seldom then.
//!
//! Invariants
//!  1. A replica that comes to an event ends the rest. What a look finds without one, it finds within [`REST`]: a follower that is
//!     stopped or begins to compute while its program waits.
//!  2. The first group learns by its looks that the reaper has ended, and of other groups: it rests for [`REST_OF_FIRST`] at most.

use std::time::Duration;

use steadfast_sys::cpu;

use super::Supervisor;
use crate::group::at;

/// How long a look may be late where nothing moves.
const REST: Duration = Duration::from_secs(1);
const REST_OF_FIRST: Duration = Duration::from_millis(300);
/// Looks in a row at which nothing had moved: more than any rule counts that ends by an alarm (recovery.rs).
const LOOKS: u32 = 20;
/// CPU time from one look to the next, of which there is one each second at rest: a follower that waits in the log looks around
/// seven times a second, in some 20 to 100 µs. Who computes has the fiftyfold.
const MOMENT_NS: u64 = 2_000_000;

/// What the last look found.
#[derive(Debug, Default)]
pub(crate) struct Stillness {
    /// The event and the CPU time of each replica.
    at: Vec<(u64, u64)>,
    looks: u32,
}

impl Stillness {
    /// Takes a look; whether nothing has moved for long.
    fn look(&mut self, now: Vec<(u64, u64)>) -> bool {
        let together = now.windows(2).all(|two| two[0].0 == two[1].0);
        let still = !now.is_empty()
            && self.at.len() == now.len()
            && self.at.iter().zip(&now).all(|(before, now)| {
                before.0 == now.0 && now.1.saturating_sub(before.1) < MOMENT_NS
            });
        self.looks = match together && still {
            true => (self.looks + 1).min(LOOKS),
            false => 0,
        };
        self.at = now;
        self.looks == LOOKS
    }
}

impl Supervisor<'_> {
    /// For how long the launcher may look away, where nothing has moved for a while.
    pub(crate) fn rests(&mut self) -> Option<Duration> {
        let replicas = 0..self.replicas.len();
        let now: Option<Vec<_>> = replicas
            .map(|r| {
                let used = cpu::process_time_ns(self.process_of(r))?;
                Some((self.group.get64(at!(own r, next)), used))
            })
            .collect();
        let limit = if self.is_child() { REST } else { REST_OF_FIRST };
        self.stillness
            .look(now.unwrap_or_default())
            .then_some(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(stillness: &mut Stillness, n: u32, at: &[(u64, u64)]) -> bool {
        (0..n).fold(false, |_, _| stillness.look(at.to_vec()))
    }

    #[test]
    fn a_group_rests_when_nothing_has_moved_for_long_and_no_longer() {
        let mut stillness = Stillness::default();
        let at = [(7, 1_000_000), (7, 2_000_000)];
        assert!(!looks(&mut stillness, LOOKS, &at));
        assert!(looks(&mut stillness, 1, &at));
        // An event of one of them.
        assert!(!looks(
            &mut stillness,
            LOOKS,
            &[(8, 1_000_000), (7, 2_000_000)]
        ));
        // Both have come to it.
        let at = [(8, 1_000_000), (8, 2_000_000)];
        assert!(!looks(&mut stillness, LOOKS, &at));
        assert!(looks(&mut stillness, 1, &at));
        // One computes.
        assert!(!looks(
            &mut stillness,
            1,
            &[(8, 1_000_000), (8, 2_000_000 + MOMENT_NS)]
        ));
        // One is gone.
        assert!(!looks(&mut stillness, LOOKS + 1, &[]));
    }

    #[test]
    fn replicas_that_are_not_at_the_same_event_do_not_rest() {
        let mut stillness = Stillness::default();
        assert!(!looks(&mut stillness, 3 * LOOKS, &[(8, 0), (7, 0)]));
    }
}
