//! Where the log is, and what hands it on: one lock, so that a request for the state stands exactly behind the entry that it names.
//!
//! No engine takes part, so that a test can run it under many orders of its threads: tests/queues.rs.

use crate::sync::{Mutex, MutexGuard, Out, PoisonError};

/// A place in the log, and the channel by which everything up to it has gone.
#[derive(Debug)]
pub(crate) struct Hand<P, D>(Mutex<(P, Out<D>)>);

impl<P: Clone, D> Hand<P, D> {
    pub(crate) fn new(place: P, out: Out<D>) -> Self {
        Self(Mutex::new((place, out)))
    }

    fn lock(&self) -> MutexGuard<'_, (P, Out<D>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the log is.
    pub(crate) fn place(&self) -> P {
        self.lock().0.clone()
    }

    /// Goes on to another place, and hands on what is there.
    pub(crate) fn go(&self, step: impl FnOnce(&mut P) -> D) {
        let (place, out) = &mut *self.lock();
        // Who would take it has ended, and so does the process.
        let _ = out.send(step(place));
    }

    /// Hands a question on; the place behind which it stands.
    pub(crate) fn ask(&self, question: D) -> P {
        let (place, out) = &*self.lock();
        let _ = out.send(question);
        place.clone()
    }
}
