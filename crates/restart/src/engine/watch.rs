//! The hang breaker: one thread that ends calls which compute too long, without any instruction added to the component.
//!
//! A call notes its thread and its number. The thread looks at all calls once a tick; from the first look on it follows the CPU time of the
//! caller's thread, and sends a signal once the call has used its limit. The handler moves the call to the pad if it stands in component
//! text (steadfast_sys::pad), else the next tick tries again.
//!
//! Invariants
//!  1. CPU time decides: a call that waits for the processor is no hang.
//!  2. A call that has ended is never interrupted: the signal carries the call's number.
//!
//! Not covered: a component that calls others for ever. Each stretch between two such calls has the whole limit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use steadfast_sys::cpu;
use steadfast_sys::pad::Runner;

/// Short enough to bound a hang well, long enough that an idle host sleeps.
const TICK: Duration = Duration::from_millis(2);

static STARTED: OnceLock<std::io::Result<()>> = OnceLock::new();
static ALL: Mutex<Vec<Followed>> = Mutex::new(Vec::new());
/// What the thread does at its next look, for callers that have no time for it.
static LATER: Mutex<Vec<Job>> = Mutex::new(Vec::new());

type Job = Box<dyn FnOnce() + Send>;

/// Has the watching thread do it within a tick: to wake another thread takes longer than to leave a word. Never waited for.
pub(crate) fn at_next_tick(job: Job) {
    match LATER.try_lock() {
        Ok(mut later) => later.push(job),
        Err(_) => job(),
    }
}

#[derive(Debug)]
struct Watched {
    /// The call that is under way ([`Runner::pack`]), or 0. No two calls of a thread have the same number.
    runner: AtomicU64,
    limit_ns: u64,
}

/// What the watching thread knows of a body.
struct Followed {
    watched: Weak<Watched>,
    /// The call that was seen last, and its thread's CPU time at the first look.
    call: u64,
    since_ns: u64,
}

/// A body's part of it.
#[derive(Debug, Clone)]
pub(super) struct Cell(Arc<Watched>);

pub(super) fn start() -> std::io::Result<()> {
    let started = STARTED.get_or_init(|| {
        std::thread::Builder::new()
            .name("host-watch".into())
            .spawn(run)
            .map(drop)
    });
    match started {
        Ok(()) => Ok(()),
        Err(error) => Err(std::io::Error::from(error.kind())),
    }
}

fn run() {
    loop {
        std::thread::sleep(TICK);
        let later = std::mem::take(&mut *LATER.lock().unwrap_or_else(PoisonError::into_inner));
        later.into_iter().for_each(|job| job());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain_mut(|followed| {
            let Some(watched) = followed.watched.upgrade() else {
                return false;
            };
            let call = watched.runner.load(Ordering::SeqCst);
            if call == 0 {
                followed.call = 0;
                return true;
            }
            let runner = Runner::unpack(call);
            let Some(now) = cpu::thread_time_ns(runner.tid()) else {
                return true;
            };
            if followed.call != call {
                (followed.call, followed.since_ns) = (call, now);
            } else if now.saturating_sub(followed.since_ns) > watched.limit_ns {
                runner.interrupt();
            }
            true
        });
    }
}

impl Cell {
    pub(super) fn new(limit: Duration) -> Self {
        let watched = Arc::new(Watched {
            runner: AtomicU64::new(0),
            limit_ns: u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
        });
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Followed {
                watched: Arc::downgrade(&watched),
                call: 0,
                since_ns: 0,
            });
        Self(watched)
    }

    /// From here on this thread's time counts. No lock: whoever looks may run at a lower priority.
    pub(super) fn begin(&self) {
        if self.0.limit_ns == u64::MAX {
            return;
        }
        // Whoever looks late loses a tick, and a call that is over is not interrupted: the thread itself knows its number.
        let call = Runner::current().pack();
        self.0.runner.store(call, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.0.runner.store(0, Ordering::Release);
    }
}
