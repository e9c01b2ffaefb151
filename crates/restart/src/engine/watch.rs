//! The hang breaker: one thread that ends calls which take too long, without any instruction added to the component.
//!
//! A call notes the coarse tick at which it began. The thread looks at all calls once a tick and sends a signal to the thread of one that is
//! over its limit; the handler moves it to the pad if it stands in component text (steadfast_sys::pad), else the next tick tries again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use steadfast_sys::pad::Runner;

/// Limits are counted in ticks: short enough to bound a hang well, long enough that an idle host sleeps.
const TICK: Duration = Duration::from_millis(2);

static TICKS: AtomicU64 = AtomicU64::new(0);
static STARTED: OnceLock<std::io::Result<()>> = OnceLock::new();
static ALL: Mutex<Vec<Weak<Watched>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Watched {
    /// 0: no call is under way; else the tick of its beginning, plus one.
    since: AtomicU64,
    /// The call that began last. Written after the end of the call before it and before `since`, so whoever reads the same call before
    /// and after `since` has read the beginning of that call, or of none.
    runner: AtomicU64,
    limit: u64,
}

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
        let now = TICKS.fetch_add(1, Ordering::Relaxed) + 1;
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|watched| {
            let Some(watched) = watched.upgrade() else {
                return false;
            };
            let runner = watched.runner.load(Ordering::SeqCst);
            let since = watched.since.load(Ordering::SeqCst);
            let over = since != 0 && now.saturating_sub(since - 1) > watched.limit;
            if over && watched.runner.load(Ordering::SeqCst) == runner {
                Runner::unpack(runner).interrupt();
            }
            true
        });
    }
}

impl Cell {
    pub(super) fn new(limit: Duration) -> Self {
        let ticks = limit.as_millis().div_ceil(TICK.as_millis()).max(1);
        let watched = Arc::new(Watched {
            since: AtomicU64::new(0),
            runner: AtomicU64::new(0),
            limit: u64::try_from(ticks).unwrap_or(u64::MAX),
        });
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&watched));
        Self(watched)
    }

    pub(super) fn begin(&self) {
        // No lock: whoever looks may run at a lower priority.
        self.0
            .runner
            .store(Runner::current().pack(), Ordering::SeqCst);
        self.0
            .since
            .store(TICKS.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.0.since.store(0, Ordering::SeqCst);
    }
}
