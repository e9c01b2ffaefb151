//! Spin: a program that computes without a call, and so keeps others of its threads or processes from their turns.
//!
//! ```text
//!   no event, for so much processor time ──► the agent is asked whether anybody waits for his turn ──yes──► it spins
//!                                                 │ nobody does
//!                                                 └─► it computes: asked again after as long
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

/// Of one process, by whoever asks for its news.
#[derive(Debug)]
pub struct Watch {
    /// Processor time that a program may compute while others wait; 0: as long as it likes.
    limit: u64,
    /// The log, and the event that it has claimed last.
    at: (u64, u64),
    /// Processor time that it had used when it was first seen there, or when nobody waited.
    used: u64,
    /// The number of the question that is open.
    asked: Option<u32>,
    /// What both sites have claimed last, since when, and how long the one that is ahead took for it.
    claims: (u64, u64, u64),
    since: Instant,
    took: Duration,
}

impl Watch {
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self {
            limit: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            at: (0, 0),
            used: 0,
            asked: None,
            claims: (0, 0, 0),
            since: Instant::now(),
            took: Duration::ZERO,
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
        if claims != self.claims || pauses {
            let is_ahead = a.max(b) > self.claims.1.max(self.claims.2);
            if is_ahead || claims.0 != self.claims.0 {
                self.took = self.since.elapsed();
            }
            (self.claims, self.since) = (claims, Instant::now());
        }
        let limit = Duration::from_nanos(self.limit) + 5 * self.took;
        if self.limit == 0 || a == b || self.since.elapsed() < limit {
            return None;
        }
        Some(if a > b {
            Part::Secondary
        } else {
            Part::Primary
        })
    }

    /// Whether the program of this site, if it leads, has come to no event for so long while others wait for their turn.
    pub fn spins(&mut self, site: &Site) -> bool {
        if self.limit == 0 || !site.leads() {
            return false;
        }
        let Some(used) = procfs::cpu_ns(site.pid) else {
            return false;
        };
        let at = (site.strand(), site.claimed_last(Part::Primary));
        if at != self.at {
            (self.at, self.used, self.asked) = (at, used, None);
        }
        if used.saturating_sub(self.used) < self.limit {
            return false;
        }
        let group = site.group();
        let Some(number) = self.asked else {
            let number = group.get32(at!(look_asked)).wrapping_add(1);
            group.set32(at!(look_asked), number);
            self.asked = Some(number);
            child::kill(site.pid, NUDGE);
            return false;
        };
        if group.get32(at!(look_found)) == number {
            return true;
        }
        if group.get32(at!(look_heard)) == number {
            (self.used, self.asked) = (used, None);
        } else {
            // It is heard in the program's own code alone.
            child::kill(site.pid, NUDGE);
        }
        false
    }
}
