//! The state for `steadfast kv backup`, in pieces, and items that `restore` brings back.

use std::time::{Duration, Instant};

use steadfast_crosscheck::{Index, Standing};
use steadfast_digest::crc32c;
use steadfast_group::wire;
use tokio::sync::oneshot;

use super::{Event, Group, NOT_ALLOWED, Service};
use crate::request::Request;
use crate::saved::{PIECE, Saved, from_hex, to_hex};

/// What is said of a state that cannot be had now: asked for again, it may be.
pub(crate) const DOUBT: &str = "a state in doubt is no backup";
/// How long a state is kept for somebody who asks for no piece of it.
const KEPT: Duration = Duration::from_secs(60);
/// How long one that cannot be had is waited for, less than a caller waits for an answer. Repairs take milliseconds, on a busy machine many.
const CALM: Duration = Duration::from_secs(10);
/// Between two that the replicas did not agree on: each is a copy of all items.
const AGAIN: Duration = Duration::from_millis(50);

/// Somebody who waits for a state that nothing is in doubt about.
#[derive(Debug)]
pub(crate) struct Wanted {
    since: Instant,
    not_before: Instant,
    reply: oneshot::Sender<String>,
}

/// A state that is being fetched.
#[derive(Debug)]
pub(super) struct Fetched {
    bytes: Vec<u8>,
    used: Instant,
}

impl Service {
    /// `SECRET`: keeps the state as it is now, once f+1 replicas agree on it; answers with its length.
    pub(super) fn backup(&mut self, rest: &str, reply: oneshot::Sender<String>) {
        if !wire::is_secret(rest, self.secret) {
            let _ = reply.send(NOT_ALLOWED.to_owned());
            return;
        }
        let now = Instant::now();
        self.wanted.push(Wanted {
            since: now,
            not_before: now,
            reply,
        });
        self.keep_wanted();
    }

    /// Keeps the state for those who want it, as soon as no repair is under way: where faults come one after the other that is between two.
    pub(super) fn keep_wanted(&mut self) {
        let now = Instant::now();
        for wanted in std::mem::take(&mut self.wanted) {
            let repairs = self.core.standing(Index(self.executed)) == Standing::Doubtful;
            if (repairs || now < wanted.not_before) && wanted.since.elapsed() < CALM {
                self.wanted.push(wanted);
            } else if repairs || self.is_unproven() || !self.store.is_whole() {
                let _ = wanted.reply.send(format!(
                    "ERROR something is being repaired or compared: {DOUBT}; fix: run it again"
                ));
            } else {
                self.keep(wanted);
            }
        }
    }

    /// Keeps the state as it is now.
    fn keep(&mut self, wanted: Wanted) {
        let index = Index(self.executed);
        let Ok(bytes) =
            postcard::to_stdvec(&(index.0, self.store.head().now_ms, self.store.saved()))
        else {
            let answer = "ERROR the state cannot be packed".to_owned();
            let _ = wanted.reply.send(answer);
            return;
        };
        let (want, have) = oneshot::channel();
        // It is kept for minutes, and read piece by piece.
        self.snapshots
            .push((index, steadfast_group::state::sealed(bytes), want));
        let events = self.events.clone();
        tokio::spawn(async move {
            let bytes = have.await.ok().flatten();
            if let Some(events) = events.upgrade() {
                let _ = events.send(Event::Agreed(bytes, wanted));
            }
        });
    }

    /// The replicas agree on a state that is to be fetched; nothing if they do not, and a later one is kept.
    pub(super) fn agreed(&mut self, bytes: Option<Vec<u8>>, mut wanted: Wanted) {
        let answer = match bytes {
            Some(bytes) => {
                let length = bytes.len();
                let used = Instant::now();
                self.fetched = Some(Fetched { bytes, used });
                format!("BACKUP {length}")
            }
            None if wanted.since.elapsed() < CALM => {
                wanted.not_before = Instant::now() + AGAIN;
                self.wanted.push(wanted);
                return;
            }
            None => format!("ERROR the replicas differ: {DOUBT}; fix: run it again"),
        };
        let _ = wanted.reply.send(answer);
    }

    /// `SECRET OFFSET`: a piece of that state.
    pub(super) fn piece(&mut self, rest: &str) -> String {
        let (secret, offset) = rest.split_once(' ').unwrap_or((rest, ""));
        if !wire::is_secret(secret, self.secret) {
            return NOT_ALLOWED.to_owned();
        }
        let Some(fetched) = &mut self.fetched else {
            return "ERROR the state is no longer kept; fix: run it again".to_owned();
        };
        fetched.used = Instant::now();
        let length = fetched.bytes.len();
        let Some(from) = offset.parse().ok().filter(|from| *from < length) else {
            return format!("ERROR requirement: a place below {length}; found: {offset}");
        };
        let piece = &fetched.bytes[from..length.min(from + PIECE)];
        let answer = format!("PIECE {} {}", crc32c(piece), to_hex(piece));
        if from + piece.len() == length {
            self.fetched = None;
        }
        answer
    }

    /// A state that nobody asks for is dropped.
    pub(super) fn forget_fetched(&mut self) {
        self.fetched = self.fetched.take().filter(|it| it.used.elapsed() < KEPT);
    }

    /// `SECRET ITEMS`: puts items into the log; answered once they have been voted on.
    pub(super) fn restore(&mut self, rest: &str, reply: oneshot::Sender<String>) {
        let (secret, items) = rest.split_once(' ').unwrap_or((rest, ""));
        if !wire::is_secret(secret, self.secret) {
            let _ = reply.send(NOT_ALLOWED.to_owned());
            return;
        }
        let items: Option<Vec<Saved>> =
            from_hex(items).and_then(|bytes| postcard::from_bytes(&bytes).ok());
        let Some(items) = items else {
            let _ =
                reply.send("ERROR requirement: items of a backup; found: other bytes".to_owned());
            return;
        };
        let (done, voted) = oneshot::channel();
        self.event(Event::Group(Group {
            requests: vec![Request::Restore { items }],
            reply: done,
        }));
        tokio::spawn(async move {
            let answer = match voted.await {
                Ok(Ok(replies)) => replies
                    .first()
                    .map(|reply| String::from_utf8_lossy(&reply.bytes).trim_end().to_owned())
                    .unwrap_or_default(),
                Ok(Err(why)) => format!("ERROR {why}"),
                Err(_) => "ERROR the replica is ending".to_owned(),
            };
            let _ = reply.send(answer);
        });
    }
}
