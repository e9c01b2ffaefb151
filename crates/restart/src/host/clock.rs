//! The time of day, for components that import it. A call asks once for each of its questions: both bodies, and a repetition of the call, read
//! the same time from the journal.
//!
//! Not covered: an object that remembers a time reads another one when it comes back, unless the time is its identity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::component::Answer;
use crate::value::Value;

/// The interface of it.
pub const WALL_CLOCK: &str = "wasi:clocks/wall-clock@0.2.0";

fn datetime(seconds: u64, nanoseconds: u32) -> Value {
    Value::Record(vec![
        ("seconds".into(), Value::U64(seconds)),
        ("nanoseconds".into(), Value::U32(nanoseconds)),
    ])
}

/// What [`Component::answers`](super::Component::answers) needs for it.
#[must_use]
pub fn wall_clock() -> BTreeMap<String, Answer> {
    clock(Arc::new(|_| {
        // A clock that stands before 1970 says 1970: there is no number for it.
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        Some(datetime(since.as_secs(), since.subsec_nanos()))
    }))
}

/// One that stands still, for tests whose answers are to be the same each time.
#[must_use]
pub fn stopped_clock() -> BTreeMap<String, Answer> {
    // A day of 2001, so that it is no small number of a test.
    clock(Arc::new(|_| Some(datetime(1_000_000_000, 0))))
}

fn clock(now: Answer) -> BTreeMap<String, Answer> {
    let resolution: Answer = Arc::new(|_| Some(datetime(0, 1)));
    let named = |name: &str, answer| (format!("{WALL_CLOCK}#{name}"), answer);
    BTreeMap::from([named("now", now), named("resolution", resolution)])
}
