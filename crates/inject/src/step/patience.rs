//! How long a run may take that is stopped and waited for, and how one that has ended did.

use std::time::{Duration, Instant};

use steadfast_sandbox::Ended;
use steadfast_sys::procfs;
use steadfast_sys::ptrace::Waited;

use crate::target::SetupError;

pub(super) fn os(source: std::io::Error) -> SetupError {
    SetupError::Os {
        what: "the program has to be traced",
        source,
    }
}

pub(super) fn ended(waited: &Waited, cpu_ns: u64) -> Ended {
    match waited {
        Waited::Exited(status) => Ended {
            status: Some(*status),
            cpu_ns,
            ..Ended::default()
        },
        Waited::Signaled(signal) => Ended {
            signal: Some(*signal),
            cpu_ns,
            ..Ended::default()
        },
        Waited::Stopped { .. } => Ended::default(),
    }
}

/// What a stop costs beside what is done in it: the limits of a run are of one that nobody stops.
pub(super) const STOP: Duration = Duration::from_micros(40);

/// When a run is given up. Each stop hands the processor to another process and back, and on a busy machine both wait
/// for it: a run of some hundred stops would use up its limit by that alone, and its fault would not have fired.
pub(super) struct Patience {
    pub(super) limit: Instant,
    pid: i32,
    /// How long the target and its tracer had waited when the run began.
    delayed: [u64; 2],
}

impl Patience {
    pub(super) fn new(pid: i32, limit: Duration) -> Self {
        Self {
            limit: Instant::now() + limit,
            pid,
            delayed: Self::delays(pid),
        }
    }

    fn delays(pid: i32) -> [u64; 2] {
        [procfs::delayed_ns(pid), procfs::own_delayed_ns()].map(Option::unwrap_or_default)
    }

    fn since(&self) -> [u64; 2] {
        let now = Self::delays(self.pid);
        [0, 1].map(|who| now[who].saturating_sub(self.delayed[who]))
    }

    /// One of the two waits while the other one sleeps.
    pub(super) fn deadline(&self) -> Instant {
        self.limit + Duration::from_nanos(self.since().iter().sum())
    }

    pub(super) fn is_over(&self) -> bool {
        let now = Instant::now();
        now > self.limit && now > self.deadline()
    }

    /// As [`Self::is_over`], beside threads that run while their tracer looks for stops.
    pub(super) fn is_over_among(&self) -> bool {
        let delay = self.since().into_iter().max().unwrap_or_default();
        Instant::now() > self.limit + Duration::from_nanos(delay)
    }

    pub(super) fn left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }
}

pub(super) fn given_up() -> Ended {
    Ended {
        timed_out: true,
        ..Ended::default()
    }
}
