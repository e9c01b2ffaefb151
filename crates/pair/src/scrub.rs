//! Scrubber: reads the protected files from the device in the background, and finds what the page cache hides.
//!
//! ```text
//!   pages by direct I/O ──► as the ledger has them? ──yes──► the next ones, as fast as --scrub allows
//!                               │ no, five times in a tenth of a second
//!                               ▼
//!                     suspect ──► the secondary arbitrates (secondary.rs): the primary holds its program between two
//!                                 events, both devices are read again, the wrong one is repaired
//! ```
//!
//! Invariants
//!  1. The scrubber writes nothing: between its two looks the program may have written.
//!  2. Nothing is repaired while a storage call of either program is under way.
//!
//! Not covered: a site that is alone, which has nobody to repair from; files whose names are gone.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::files::Files;
use crate::page::{PAGE, page_digest};
use crate::shared::Shared;

/// Pages that are read in one piece.
const PIECE: u64 = 64;
/// A write that is under way is in the ledger a moment later.
const LOOKS: u32 = 5;
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Between two rounds, so that few files are not read for ever.
const REST: Duration = Duration::from_secs(1);

/// A page that the device does not give as the ledger has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Suspect {
    pub(crate) path: PathBuf,
    pub(crate) page: u64,
}

/// What a scrubber works with.
#[derive(Debug)]
pub(crate) struct Scrubber<'a> {
    pub(crate) files: &'a Mutex<Files>,
    pub(crate) shared: &'a Shared,
    pub(crate) board: &'a Board,
    /// MiB a second.
    pub(crate) rate: u32,
    /// Pieces of files that were told to be unreadable.
    pub(crate) unreadable: Mutex<HashSet<(PathBuf, u64)>>,
}

impl Scrubber<'_> {
    /// Goes through all files again and again until the program ends. `found` is called with each suspect.
    pub(crate) fn run(&self, mut found: impl FnMut(Suspect)) {
        if self.rate == 0 {
            return;
        }
        while !self.is_over() {
            let paths: Vec<PathBuf> = self
                .files
                .lock()
                .expect("no panic under it")
                .ledger
                .names()
                .map(|(path, _)| path.to_path_buf())
                .collect();
            for path in paths {
                for suspect in self.file(&path) {
                    self.board.scrub_found.fetch_add(1, Ordering::Relaxed);
                    found(suspect);
                }
            }
            self.board.scrub_rounds.fetch_add(1, Ordering::Relaxed);
            self.pause(REST);
        }
    }

    fn is_over(&self) -> bool {
        self.shared.is_closing() || self.shared.has_lost()
    }

    fn pause(&self, limit: Duration) {
        let until = Instant::now() + limit;
        while !self.is_over() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10).min(until - Instant::now()));
        }
    }

    fn file(&self, path: &Path) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        let mut first = 0;
        while !self.is_over() {
            let began = Instant::now();
            let pages = {
                let files = self.files.lock().expect("no panic under it");
                files.ledger.id(path).map_or(0, |id| files.ledger.pages(id))
            };
            let count = PIECE.min(pages.saturating_sub(first));
            if count == 0 {
                break;
            }
            for page in self.differing(path, first, count) {
                if self.stays(path, page) {
                    suspects.push(Suspect {
                        path: path.to_path_buf(),
                        page,
                    });
                }
            }
            self.board.scrubbed.fetch_add(count, Ordering::Relaxed);
            first += count;
            #[allow(clippy::cast_precision_loss, reason = "a pause for some pages")]
            let due = Duration::from_secs_f64(
                count as f64 * PAGE as f64 / (f64::from(self.rate) * f64::from(1 << 20)),
            );
            self.pause(due.saturating_sub(began.elapsed()));
        }
        suspects
    }

    /// Pages of which the device gives none of the digests that they may have.
    fn differing(&self, path: &Path, first: u64, count: u64) -> HashSet<u64> {
        let bytes = match crate::disk::pages_on_device(path, first, count) {
            Ok(bytes) => bytes,
            Err(error) => {
                // What is gone by now the next round does not meet.
                if error.raw_os_error() == Some(libc::EIO) {
                    self.tell_unreadable(path, first, count, &error);
                }
                return HashSet::new();
            }
        };
        let files = self.files.lock().expect("no panic under it");
        let Some(id) = files.ledger.id(path) else {
            return HashSet::new();
        };
        (first..first + count)
            .filter(|page| {
                let from = usize::try_from(page - first).expect("a piece") * PAGE;
                let bytes = bytes.get(from..).unwrap_or_default();
                let digest = page_digest(&bytes[..bytes.len().min(PAGE)]);
                let accepted = files.ledger.accepted(id, *page);
                !accepted.is_empty() && !accepted.contains(&digest)
            })
            .collect()
    }

    /// Once: it is there in the next round as well.
    fn tell_unreadable(&self, path: &Path, first: u64, count: u64, error: &std::io::Error) {
        let mut told = self.unreadable.lock().expect("no panic under it");
        if told.insert((path.to_path_buf(), first)) {
            eprintln!(
                "steadfast pair: scrubber: {}, pages {first} to {} of this site's disk cannot be read: {error}",
                path.display(),
                first + count - 1
            );
        }
    }

    fn stays(&self, path: &Path, page: u64) -> bool {
        (0..LOOKS).all(|_| {
            self.pause(LOOK_AGAIN);
            !self.is_over() && self.differing(path, page, 1).contains(&page)
        })
    }
}
