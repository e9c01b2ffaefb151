//! A Rust service whose state is made of guarded objects, as the driver sees it: what is left to write is what a request does.

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_crosscheck::{Index, ObjectId, Objects, Pair, State};

use super::{Machine, News};

/// The state, what a request does to it, and who is told what happened.
pub struct Guarded<S, Q, E, T> {
    state: S,
    execute: E,
    told: T,
    of: PhantomData<fn(Q)>,
}

impl<S, Q, R, E, T> Guarded<S, Q, E, T>
where
    S: State,
    E: FnMut(&mut S, u64, Q) -> R,
    T: FnMut(&News),
{
    /// `execute` is given the log's time in milliseconds and a request, and says the reply.
    pub fn new(state: S, execute: E, told: T) -> Self {
        let of = PhantomData;
        Self {
            state,
            execute,
            told,
            of,
        }
    }
}

impl<S: fmt::Debug, Q, E, T> fmt::Debug for Guarded<S, Q, E, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<S: State, Q, E, T> Objects for Guarded<S, Q, E, T> {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        self.state.pack(object)
    }

    fn intact(&self, object: ObjectId) -> bool {
        self.state.intact(object)
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        self.state.replace(object, packed);
    }
}

impl<S, Q, R, E, T> Machine for Guarded<S, Q, E, T>
where
    S: State,
    Q: DeserializeOwned,
    R: Serialize,
    E: FnMut(&mut S, u64, Q) -> R,
    T: FnMut(&News),
{
    fn begin(&mut self, index: Index) {
        self.state.begin(index);
    }

    fn execute(&mut self, time_ms: u64, request: &[u8]) -> Vec<u8> {
        // No bytes are no reply: `Calls::ask` says so.
        let request = postcard::from_bytes(request);
        let reply = request.map(|request| (self.execute)(&mut self.state, time_ms, request));
        reply
            .and_then(|reply| postcard::to_stdvec(&reply))
            .unwrap_or_default()
    }

    fn finish(&mut self) -> Vec<Pair> {
        self.state.finish()
    }

    fn objects(&self) -> Vec<ObjectId> {
        self.state.objects()
    }

    fn look(&mut self, object: ObjectId) {
        self.state.look(object);
    }

    fn told(&mut self, news: &News) {
        (self.told)(news);
    }
}
