//! Load: clients that keep one server busy and check every reply.
//!
//! Two shapes. *Saturated*: every connection has a request under way all the time, so the server
//! never waits for the client as long as the client costs less than it does; the number is the
//! server's own CPU time per request, and the share of time it was busy says whether the client
//! was the limit. *Paced*: requests are due at moments drawn beforehand, whatever the server does,
//! and a response time runs from the moment its request was due, so a stalled server cannot hide
//! what it kept waiting.
//!
//! Invariants
//!  1. Every reply is compared with the one that is right; a wrong one ends the measurement.
//!  2. With the envelope, every reply is opened by the real receiving side.
//!  3. The client has a CPU of its own.
//!
//! Not covered: network cards. Clients and servers meet on the loopback, whose work is charged to
//! whoever sends.

pub mod deadwood;
pub mod dns;
pub mod memcached;
pub mod process;
pub mod upstream;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a saturated server did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Saturated {
    pub requests: u64,
    pub seconds: f64,
    /// CPU time of all of the server's threads.
    pub cpu_ns: u64,
    /// CPUs that the server was given.
    pub cpus: usize,
}

impl Saturated {
    #[must_use]
    pub fn cpu_ns_per_request(&self) -> f64 {
        self.cpu_ns as f64 / self.requests as f64
    }

    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The share of its CPUs' time that the server used, from 0 to 1.
    #[must_use]
    pub fn busy(&self) -> f64 {
        self.cpu_ns as f64 / 1e9 / self.seconds / self.cpus as f64
    }
}

/// What a paced server did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Paced {
    /// What was asked for, per second.
    pub rate: f64,
    pub requests: u64,
    /// From the moment a request was due to its whole reply.
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// False when requests were still waiting to be sent when the time was over: the server did
    /// not keep up, and the mean would grow with the duration.
    pub kept_up: bool,
}

impl Paced {
    fn of(rate: f64, mut times: Vec<Duration>, kept_up: bool) -> Self {
        times.sort();
        let us = |time: &Duration| time.as_secs_f64() * 1e6;
        let at = |share: usize| times.get(times.len() * share / 100).map_or(0.0, us);
        Paced {
            rate,
            requests: times.len() as u64,
            mean_us: times.iter().map(us).sum::<f64>() / times.len().max(1) as f64,
            p50_us: at(50),
            p99_us: at(99),
            kept_up,
        }
    }

    /// Whether this is a rate at which the published evaluation counts a server as keeping up.
    #[must_use]
    pub fn within(&self, mean_us_max: f64) -> bool {
        self.kept_up && self.mean_us < mean_us_max
    }
}

/// The highest rate with a mean response time under a limit, by bisection.
///
/// `probe` measures one rate. The search begins between nothing and `above`, a rate that is not
/// reached; it ends after `steps` halvings, so the result is good to `above / 2^steps`.
///
/// # Errors
/// When a probe fails.
pub fn highest_rate<E>(
    above: f64,
    steps: usize,
    mean_us_max: f64,
    mut probe: impl FnMut(f64) -> Result<Paced, E>,
) -> Result<f64, E> {
    let (mut low, mut high) = (0.0, above);
    for _ in 0..steps {
        let middle = f64::midpoint(low, high);
        if probe(middle)?.within(mean_us_max) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
