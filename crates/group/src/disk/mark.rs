//! How much of a directory has been called durable: what the next process must find there at least.
//!
//! A log that was removed, emptied, or cut where a record ends looks like one that never was longer. The mark tells the two apart.
//!
//! ```text
//!   DIR/durable    slot at byte 0 | slot at byte 512        written in turns, each a record of its own
//! ```
//!
//! Invariants
//!  1. The mark never says more than the disk has: it is written when `fdatasync` of the log has returned.
//!  2. Nobody hears that something is durable before the mark is with the kernel, where it survives the end of the process. It is forced to
//!     the disk with each file of the log that is begun and with the first vote; when the power fails it may say less than there is.
//!  3. Both slots are whole once the file is there. One that is not was hit: it is said, and written anew. What the other one says may be less
//!     by the last thing that was called durable.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::record::{self, Fault, Next};

pub(super) const DURABLE: &str = "durable";
/// A sector is written whole or not at all.
const SLOT: usize = 512;

/// What has been called durable. Every part only grows, so the greater of two is the later one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) voted: bool,
    /// The last file of the log, from 1; 0 before the first.
    pub(super) file: u64,
    /// Bytes of that file.
    pub(super) length: u64,
}

/// The file with the mark.
#[derive(Debug)]
pub(super) struct Marker {
    file: File,
    mark: Mark,
    slot: u64,
    /// What was found and mended.
    note: Option<String>,
}

impl Marker {
    /// That of a directory in which nothing has been called durable.
    pub(super) fn create(dir: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(dir.join(DURABLE))?;
        let mut marker = Self {
            file,
            mark: Mark::default(),
            slot: 0,
            note: None,
        };
        // Both slots.
        marker.put()?;
        marker.put()?;
        marker.file.sync_all()?;
        record::sync_dir(dir)?;
        Ok(marker)
    }

    /// What is there; nothing where there is no such file.
    pub(super) fn open(dir: &Path) -> Result<Option<Self>, Fault> {
        let path = dir.join(DURABLE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(Fault::io(&path, why)),
        };
        let slots = [0, SLOT].map(|at| match record::next(&bytes, at) {
            Next::Record(body, _) => postcard::from_bytes::<Mark>(body).ok(),
            _ => None,
        });
        let Some(mark) = slots.into_iter().flatten().max() else {
            return Err(Fault::damaged(&path, 0, "no slot fits its check"));
        };
        let file = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(|why| Fault::io(&path, why))?;
        // The slot that holds the mark is the last to be written over.
        let slot = u64::from(slots[0] == Some(mark));
        let mut marker = Self {
            file,
            mark,
            slot,
            note: None,
        };
        if let Some(hit) = slots.iter().position(Option::is_none) {
            marker.note = Some(format!(
                "{}: what is at byte {} does not fit its check or is missing; it says again what the other half says, and a loss of the last thing that was written would not be noticed",
                path.display(),
                hit * SLOT
            ));
            marker.put().map_err(|why| Fault::io(&path, why))?;
            let synced = marker.file.sync_data();
            synced.map_err(|why| Fault::io(&path, why))?;
        }
        Ok(Some(marker))
    }

    /// What a person is to be told about what was found.
    pub(super) fn note(&mut self) -> Option<String> {
        self.note.take()
    }

    pub(super) fn mark(&self) -> Mark {
        self.mark
    }

    /// So many bytes of the last file of the log are durable.
    pub(super) fn log(&mut self, file: u64, length: u64) -> io::Result<()> {
        let is_begun = file > self.mark.file;
        self.mark.file = file;
        self.mark.length = length;
        self.put()?;
        if is_begun {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// A vote is durable.
    pub(super) fn voted(&mut self) -> io::Result<()> {
        if self.mark.voted {
            return Ok(());
        }
        self.mark.voted = true;
        self.put()?;
        self.file.sync_data()
    }

    fn put(&mut self) -> io::Result<()> {
        let body = postcard::to_stdvec(&self.mark).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(record::HEAD + body.len());
        record::put(&body, &mut bytes)?;
        self.file.write_all_at(&bytes, self.slot * SLOT as u64)?;
        self.slot ^= 1;
        Ok(())
    }
}
