//! The thread that writes: what comes while it waits for the disk goes out together, with one `fdatasync`.
//!
//! Invariants
//!  1. Everything is written in the order in which it was handed over.
//!  2. Nothing is called durable before the disk has said so. After an error nothing is written any more: what a failed `fsync` has left
//!     behind nobody knows.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use openraft::alias::VoteOf;
use openraft::storage::IOFlushed;
use tokio::sync::oneshot;

use super::segments::Segments;
use super::{VOTE, record};
use crate::entry::Types;

/// Bytes that are written at a time.
const BATCH: usize = 4 << 20;

/// Who hears that something is durable.
pub(super) enum Done {
    Engine(IOFlushed<Types>),
    Own(oneshot::Sender<io::Result<()>>),
}

impl Done {
    fn tell(self, written: &io::Result<()>) {
        let written = written.as_ref().copied().map_err(again);
        match self {
            Self::Engine(done) => done.io_completed(written),
            Self::Own(done) => drop(done.send(written)),
        }
    }
}

/// What is to be written.
pub(super) enum Job {
    /// Records of entries up to an index.
    Append(Vec<u8>, u64, Done),
    Vote(VoteOf<Types>, oneshot::Sender<io::Result<()>>),
    /// A record that says so, and the files that hold nothing else.
    Purge(Vec<u8>, u64),
}

/// Told once, when nothing can be written any more.
pub(super) type Failed = oneshot::Sender<String>;

pub(super) fn start(
    dir: PathBuf,
    segments: Segments,
    failed: Failed,
) -> io::Result<mpsc::Sender<Job>> {
    let (jobs, waiting) = mpsc::channel();
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || run(&dir, segments, &waiting, failed))?;
    Ok(jobs)
}

fn run(dir: &Path, mut segments: Segments, waiting: &mpsc::Receiver<Job>, failed: Failed) {
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
                let (written, next) = append(&mut segments, waiting, bytes, highest, done);
                after = next;
                written
            }
            (Job::Vote(vote, done), None) => {
                let stored = record::store(dir, VOTE, &vote).and_then(|()| segments.marker.voted());
                let _ = done.send(stored.as_ref().copied().map_err(again));
                stored
            }
            (Job::Purge(bytes, upto), None) => segments
                .append(&bytes, 0)
                .and_then(|()| segments.purge(upto)),
        };
        if let Err(error) = done {
            if let Some(failed) = failed.take() {
                let _ = failed.send(error.to_string());
            }
            why = Some(error);
        }
    }
}

/// Writes these records and those that wait behind them; the first job that is something else.
fn append(
    segments: &mut Segments,
    waiting: &mpsc::Receiver<Job>,
    mut bytes: Vec<u8>,
    mut highest: u64,
    done: Done,
) -> (io::Result<()>, Option<Job>) {
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
    let written = segments.append(&bytes, highest);
    for done in all {
        done.tell(&written);
    }
    (written, next)
}

fn refuse(job: Job, why: &io::Error) {
    match job {
        Job::Append(_, _, done) => done.tell(&Err(again(why))),
        Job::Vote(_, done) => drop(done.send(Err(again(why)))),
        Job::Purge(..) => {}
    }
}

fn again(why: &io::Error) -> io::Error {
    io::Error::new(why.kind(), why.to_string())
}
