//! Flips at given moments, in processes of the component, while a client calls on.
//!
//! A process that answers one call after the other computes for a small part of its time. Whoever stops it from outside mostly finds it waiting; a
//! timer of its own finds it in the component's code within a few calls.
//!
//! Not covered: a flip that was armed in a process that another one replaces before it is made. It counts as made.

use std::time::{Duration, Instant};

use steadfast_inject::chacha::{Draw, Seed};
use steadfast_restart::{CallError, Edge};

/// Arms one flip after the other.
pub(super) struct Clock<'a> {
    edge: &'a Edge,
    draw: Draw,
    every: Duration,
    due: Instant,
    /// How many processes take turns.
    bodies: u8,
    /// Whose turn it is.
    body: usize,
    armed: bool,
}

impl<'a> Clock<'a> {
    pub(super) fn new(edge: &'a Edge, every: Duration, bodies: u8, seed: Seed) -> Self {
        Self {
            edge,
            draw: seed.stream(0, 0),
            every,
            due: Instant::now() + every,
            bodies,
            body: 0,
            armed: false,
        }
    }

    /// Between two rounds of calls: arms the flip that is due, and says whether the last one was made.
    pub(super) fn look(&mut self) -> Result<bool, CallError> {
        if self.armed {
            self.armed = !self.edge.struck(self.body)?;
            return Ok(!self.armed);
        }
        if Instant::now() < self.due {
            return Ok(false);
        }
        // A flip that came late does not bring the next ones closer together.
        self.due = Instant::now() + self.every;
        self.body = (self.body + 1) % usize::from(self.bodies);
        let mut below = |n: u32| u32::try_from(self.draw.below(n.into())).unwrap_or(0);
        let (register, bit) = (below(16), below(64));
        // A process that is being replaced cannot be armed: the next one is, at the next moment.
        self.armed = self.edge.strike(self.body, register, bit)?;
        Ok(false)
    }
}
