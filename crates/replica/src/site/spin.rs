//! Spin: a program that computes without a call, and so keeps others of its threads or processes from their turns.
//!
//! ```text
//!   no event, for a tenth of so much processor time ──► the agent is asked whether anybody waits for his turn
//!        ──yes──► this is told; all of it ──► asked again ──yes──► it spins
//!        ──no───► it computes: asked again after as long
//! ```
//!
//! Turns change at calls (crates/agent, thread.c and domain.c). `run` changes them in the middle of a computation, where all
//! replicas meet, which takes both on one host.
//!
//! A program that comes to an event on one site, and not on the other, has hung there. The other one is waited for as long as it
//! may compute, and five times as long as this one took.

use std::time::{Duration, Instant};

use steadfast_sys::{child, procfs};

use super::{Part, Site};
use crate::group::at;
use crate::supervise::recovery::NUDGE;

/// What a program that computes does to others of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spins {
    No,
    /// For so long that somebody should know.
    Long,
    /// For longer than it may.
    TooLong,
}

/// Of one process, by whoever asks for its news.
#[derive(Debug)]
pub struct Watch {
    /// Processor time that a program may compute while others wait; 0: as long as it likes.
    limit: u64,
    /// The log, and the event that it has claimed last.
    at: (u64, u64),
    /// Processor time that it had used when it was first seen there, or when nobody waited.
    used: u64,
    told: bool,
    /// The number of the question that is open.
    asked: Option<u32>,
    /// What both sites have claimed last, since when, how long the one that is ahead took for it, and since when the other one has
    /// claimed nothing.
    claims: (u64, u64, u64),
    since: Instant,
    took: Duration,
    lags: Instant,
}

impl Watch {
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self {
            limit: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            at: (0, 0),
            used: 0,
            told: false,
            asked: None,
            claims: (0, 0, 0),
            since: Instant::now(),
            took: Duration::ZERO,
            lags: Instant::now(),
        }
    }

    /// Which site's program has not come to the event that the other one's claims, for too long. `pauses`: claims are kept from this
    /// one for now. Asked where it leads, and the other site is there.
    pub fn hangs(&mut self, site: &Site, pauses: bool) -> Option<Part> {
        let (a, b) = (
            site.claimed_last(Part::Primary),
            site.claimed_last(Part::Secondary),
        );
        let claims = (site.strand(), a, b);
        if claims != self.claims {
            self.come_to(claims);
        }
        if pauses {
            self.lags = Instant::now();
        }
        let limit = Duration::from_nanos(self.limit) + 5 * self.took;
        if self.limit == 0 || a == b || self.lags.elapsed() < limit {
            return None;
        }
        Some(if a > b {
            Part::Secondary
        } else {
            Part::Primary
        })
    }

    /// What one site took to be where it is counts from when both were at the same event: it may have done several since.
    fn come_to(&mut self, claims: (u64, u64, u64)) {
        let (strand, a, b) = self.claims;
        let was_even = a == b || strand != claims.0;
        if was_even || claims.1 == claims.2 {
            self.took = Duration::ZERO;
        }
        if claims.1 != claims.2 && (was_even || claims.1.max(claims.2) > a.max(b)) {
            self.took += self.since.elapsed();
        }
        self.since = Instant::now();
        if was_even || claims.1.min(claims.2) > a.min(b) {
            self.lags = self.since;
        }
        self.claims = claims;
    }

    /// Whether the program of this site, if it leads, has come to no event for so long while others wait for their turn.
    pub fn spins(&mut self, site: &Site) -> Spins {
        if self.limit == 0 || !site.leads() {
            return Spins::No;
        }
        let Some(used) = procfs::cpu_ns(site.pid) else {
            return Spins::No;
        };
        let at = (site.strand(), site.claimed_last(Part::Primary));
        if at != self.at {
            (self.at, self.used, self.asked) = (at, used, None);
            self.told = false;
        }
        let limit = if self.told {
            self.limit
        } else {
            self.limit / 10
        };
        if used.saturating_sub(self.used) < limit {
            return Spins::No;
        }
        let group = site.group();
        let Some(number) = self.asked else {
            let number = group.get32(at!(look_asked)).wrapping_add(1);
            group.set32(at!(look_asked), number);
            self.asked = Some(number);
            child::kill(site.pid, NUDGE);
            return Spins::No;
        };
        if group.get32(at!(look_found)) == number {
            self.asked = None;
            return if std::mem::replace(&mut self.told, true) {
                Spins::TooLong
            } else {
                Spins::Long
            };
        }
        if group.get32(at!(look_heard)) == number {
            (self.used, self.asked, self.told) = (used, None, false);
        } else {
            // It is heard in the program's own code alone.
            child::kill(site.pid, NUDGE);
        }
        Spins::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_site_took_counts_from_when_both_were_even_and_ends_when_they_are() {
        const STEP: Duration = Duration::from_millis(30);
        let mut watch = Watch::new(Duration::from_secs(1));
        watch.come_to((7, 5, 5));
        std::thread::sleep(STEP);
        // A has computed, and has done another event at once; B comes to none of them.
        watch.come_to((7, 6, 5));
        let lags = watch.lags;
        watch.come_to((7, 7, 5));
        assert!(watch.took >= STEP, "{:?}", watch.took);
        assert_eq!(watch.lags, lags);
        watch.come_to((7, 7, 6));
        assert!(watch.lags > lags && watch.took >= STEP);
        watch.come_to((7, 7, 7));
        assert_eq!(watch.took, Duration::ZERO);
        watch.come_to((8, 2, 1));
        assert!(watch.took < STEP, "of another log: {:?}", watch.took);
    }
}
