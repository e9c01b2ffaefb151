//! A case whose time is taken: the slowest of a module are told behind its result, where `make test` reads them.
//!
//! Waiting for the turn of a group (`bench::groups`) is nobody's time.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

/// How many are told.
const SLOWEST: usize = 10;

static TOOK: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A case by its name.
#[derive(Debug)]
pub(crate) struct Trial(libtest_mimic::Trial);

impl Trial {
    pub(crate) fn test<R>(name: impl Into<String>, case: R) -> Self
    where
        R: FnOnce() -> Result<(), Failed> + Send + 'static,
    {
        let name = name.into();
        let of = name.clone();
        Self(libtest_mimic::Trial::test(name, move || {
            WAITED.set(Duration::ZERO);
            let begun = Instant::now();
            let ended = case();
            let took = begun.elapsed().saturating_sub(WAITED.get());
            times().push((took, of));
            ended
        }))
    }
}

impl From<Trial> for libtest_mimic::Trial {
    fn from(trial: Trial) -> Self {
        trial.0
    }
}

/// The case that this thread runs has waited for others since `begun`.
pub(crate) fn waited_since(begun: Instant) {
    WAITED.set(WAITED.get() + begun.elapsed());
}

/// The slowest cases since the last call, slowest first.
pub(crate) fn slowest() -> Vec<(Duration, String)> {
    let mut all = std::mem::take(&mut *times());
    all.sort_by(|a, b| b.cmp(a));
    all.truncate(SLOWEST);
    all
}

fn times() -> std::sync::MutexGuard<'static, Vec<(Duration, String)>> {
    TOOK.lock().unwrap_or_else(PoisonError::into_inner)
}
