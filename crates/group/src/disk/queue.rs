//! The queue before the disk: what comes while it is written goes out together, with one `fdatasync`.
//!
//! Invariants
//!  1. Everything is written in the order in which it was handed over.
//!  2. Nothing is called durable before the disk has said so, and each job is answered once. After an error nothing is written any more:
//!     what a failed `fsync` has left behind nobody knows.
//!
//! No engine and no file takes part, so that a test can run it under many orders of its threads: tests/queues.rs.

use std::io;

use crate::sync::mpsc::Receiver;

/// Bytes that are written at a time.
const BATCH: usize = 4 << 20;

/// What writes.
pub(crate) trait Sink {
    type Vote;

    /// Records of entries up to an index.
    fn append(&mut self, records: &[u8], highest: u64) -> io::Result<()>;

    fn vote(&mut self, vote: &Self::Vote) -> io::Result<()>;

    /// A record that says so, and what holds nothing else.
    fn purge(&mut self, record: &[u8], upto: u64) -> io::Result<()>;
}

/// Hears when something is durable, or why it is not.
pub(crate) type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// What is to be written.
pub(crate) enum Job<V> {
    Append(Vec<u8>, u64, Done),
    Vote(V, Done),
    Purge(Vec<u8>, u64),
}

/// Writes until nobody is left who could hand anything over. `failed` hears of the first error.
pub(crate) fn run<S: Sink>(
    mut sink: S,
    waiting: &Receiver<Job<S::Vote>>,
    failed: impl FnOnce(String),
) {
    let mut failed = Some(failed);
    let mut why = None;
    let mut after = None;
    while let Some(job) = after.take().or_else(|| waiting.recv().ok()) {
        let done = match (job, &why) {
            (job, Some(why)) => {
                refuse(job, why);
                continue;
            }
            (Job::Append(bytes, highest, done), None) => {
                let (written, next) = append(&mut sink, waiting, bytes, highest, done);
                after = next;
                written
            }
            (Job::Vote(vote, done), None) => {
                let stored = sink.vote(&vote);
                done(again(&stored));
                stored
            }
            (Job::Purge(bytes, upto), None) => sink.purge(&bytes, upto),
        };
        if let Err(error) = done {
            if let Some(failed) = failed.take() {
                failed(error.to_string());
            }
            why = Some(error);
        }
    }
}

/// Writes these records and those that wait behind them; the first job that is something else.
fn append<S: Sink>(
    sink: &mut S,
    waiting: &Receiver<Job<S::Vote>>,
    mut bytes: Vec<u8>,
    mut highest: u64,
    done: Done,
) -> (io::Result<()>, Option<Job<S::Vote>>) {
    let mut all = vec![done];
    let mut next = None;
    while bytes.len() < BATCH && next.is_none() {
        match waiting.try_recv() {
            Ok(Job::Append(more, upto, done)) => {
                bytes.extend_from_slice(&more);
                highest = highest.max(upto);
                all.push(done);
            }
            Ok(other) => next = Some(other),
            Err(_) => break,
        }
    }
    let written = sink.append(&bytes, highest);
    for done in all {
        done(again(&written));
    }
    (written, next)
}

fn refuse<V>(job: Job<V>, why: &io::Error) {
    match job {
        Job::Append(_, _, done) | Job::Vote(_, done) => done(Err(copied(why))),
        Job::Purge(..) => {}
    }
}

fn again(written: &io::Result<()>) -> io::Result<()> {
    written.as_ref().copied().map_err(copied)
}

fn copied(why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), why.to_string())
}
