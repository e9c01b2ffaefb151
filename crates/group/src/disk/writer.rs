//! The thread that writes what the queue hands it, and its files.

use std::io;
use std::path::PathBuf;

use openraft::alias::VoteOf;
use tokio::sync::oneshot;

use super::queue::{self, Job, Sink};
use super::segments::Segments;
use super::{VOTE, record};
use crate::entry::Types;
use crate::sync::mpsc;

struct Files {
    dir: PathBuf,
    segments: Segments,
}

impl Sink for Files {
    type Vote = VoteOf<Types>;

    fn append(&mut self, records: &[u8], highest: u64) -> io::Result<()> {
        self.segments.append(records, highest)
    }

    fn vote(&mut self, vote: &Self::Vote) -> io::Result<()> {
        record::store(&self.dir, VOTE, vote)?;
        self.segments.marker.voted()
    }

    fn purge(&mut self, record: &[u8], upto: u64) -> io::Result<()> {
        self.segments.append(record, 0)?;
        self.segments.purge(upto)
    }
}

/// Told once, when nothing can be written any more.
pub(super) type Failed = oneshot::Sender<String>;

pub(super) fn start(
    dir: PathBuf,
    segments: Segments,
    failed: Failed,
) -> io::Result<mpsc::Sender<Job<VoteOf<Types>>>> {
    let (jobs, waiting) = mpsc::channel();
    let files = Files { dir, segments };
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || queue::run(files, &waiting, |why| drop(failed.send(why))))?;
    Ok(jobs)
}
