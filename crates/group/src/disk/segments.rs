//! The log in files of one directory: `log-00000001`, `log-00000002` ..., each appended to until it is large enough.
//!
//! Invariants
//!  1. A file is begun only when the one before it is durable: only the last one can end inside a record.
//!  2. What is loaded has no hole, begins no later than behind the last stored state, and is as long as has ever been called durable.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use openraft::alias::{EntryOf, LogIdOf};
use openraft::entry::RaftEntry as _;
use serde::{Deserialize, Serialize};

use super::mark::Marker;
use super::record::{self, Fault, Next};
use crate::entry::Types;

/// Bytes after which another file is begun.
const SEGMENT: usize = 16 << 20;
const PREFIX: &str = "log-";

pub(super) type Entries = BTreeMap<u64, EntryOf<Types>>;

/// What a record of the log says.
#[derive(Debug, Serialize, Deserialize)]
enum Record {
    Entry(EntryOf<Types>),
    /// Entries from this index on are void.
    Cut(u64),
    /// Entries up to this index are part of a state.
    Purged(u64),
}

/// Appends an entry's record to `out`.
pub(super) fn put(entry: &EntryOf<Types>, out: &mut Vec<u8>) -> io::Result<()> {
    let body = postcard::to_stdvec(&Record::Entry(entry.clone())).map_err(io::Error::other)?;
    record::put(&body, out)
}

/// Appends to `out` that entries from `from` on are void.
pub(super) fn put_cut(from: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let body = postcard::to_stdvec(&Record::Cut(from)).map_err(io::Error::other)?;
    record::put(&body, out)
}

/// Appends to `out` that entries up to `upto` are part of a state.
pub(super) fn put_purged(upto: u64, out: &mut Vec<u8>) -> io::Result<()> {
    let body = postcard::to_stdvec(&Record::Purged(upto)).map_err(io::Error::other)?;
    record::put(&body, out)
}

/// The files that are appended to and removed.
#[derive(Debug)]
pub(super) struct Segments {
    dir: PathBuf,
    /// Those that are full, with the highest index in each.
    full: Vec<(PathBuf, u64)>,
    last: Option<(PathBuf, File, usize)>,
    number: u64,
    highest: u64,
    pub(super) marker: Marker,
}

impl Segments {
    /// Whether there is no file at all.
    pub(super) fn is_empty(&self) -> bool {
        self.number == 0
    }

    /// Makes bytes durable, of which `highest` is the highest index.
    pub(super) fn append(&mut self, bytes: &[u8], highest: u64) -> io::Result<()> {
        let full = self
            .last
            .as_ref()
            .is_some_and(|(_, _, length)| *length >= SEGMENT);
        if full && let Some((path, _, _)) = self.last.take() {
            self.full.push((path, self.highest));
        }
        let (_, file, length) = match &mut self.last {
            Some(last) => last,
            None => {
                self.number += 1;
                let path = self.dir.join(format!("{PREFIX}{:08}", self.number));
                let file = OpenOptions::new()
                    .append(true)
                    .create_new(true)
                    .open(&path)?;
                record::sync_dir(&self.dir)?;
                self.highest = 0;
                self.last.insert((path, file, 0))
            }
        };
        file.write_all(bytes)?;
        file.sync_data()?;
        *length += bytes.len();
        self.highest = self.highest.max(highest);
        self.marker.log(self.number, *length as u64)
    }

    /// Removes the files of which nothing behind `upto` is left.
    pub(super) fn purge(&mut self, upto: u64) -> io::Result<()> {
        let gone = self
            .full
            .iter()
            .take_while(|(_, highest)| *highest <= upto)
            .count();
        for (path, _) in self.full.drain(..gone) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// The entries behind the last state, and where a record that was being written has been cut off.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) segments: Segments,
    pub(super) entries: Entries,
    pub(super) torn: Option<String>,
}

/// Reads all files, checks that nothing is missing behind `state`, and cuts an unfinished record off the last.
pub(super) fn load(
    dir: &Path,
    state: Option<LogIdOf<Types>>,
    marker: Marker,
) -> Result<Loaded, Fault> {
    let mut loaded = Loaded {
        segments: Segments {
            dir: dir.to_path_buf(),
            full: Vec::new(),
            last: None,
            number: 0,
            highest: 0,
            marker,
        },
        entries: Entries::new(),
        torn: None,
    };
    let mut purged = None;
    let mut written = 0;
    let files = files(dir)?;
    for (i, (number, path)) in files.iter().enumerate() {
        if i > 0 && files[i - 1].0 + 1 != *number {
            return Err(Fault::damaged(path, 0, "the file before it is missing"));
        }
        let bytes = fs::read(path).map_err(|why| Fault::io(path, why))?;
        let is_last = i + 1 == files.len();
        let read = read(path, &bytes, is_last, &mut loaded.entries)?;
        purged = purged.max(read.purged);
        let segments = &mut loaded.segments;
        segments.number = *number;
        segments.highest = read.highest;
        if is_last {
            let file = OpenOptions::new()
                .append(true)
                .open(path)
                .map_err(|why| Fault::io(path, why))?;
            segments.last = Some((path.clone(), file, read.end));
            written = bytes.len();
        } else {
            segments.full.push((path.clone(), read.highest));
        }
    }
    reaches(dir, &loaded.segments)?;
    let is_stale = fit(dir, &mut loaded.entries, purged, state)?;
    cut(&mut loaded, written)?;
    if let (true, Some(state)) = (is_stale, state) {
        // The process ended between the state and this record, without which the next entry would seem to follow a hole.
        let mut bytes = Vec::new();
        put_purged(state.index(), &mut bytes)
            .and_then(|()| loaded.segments.append(&bytes, 0))
            .map_err(|why| Fault::io(dir, why))?;
    }
    Ok(loaded)
}

/// Checks that the log is as long as has ever been called durable.
fn reaches(dir: &Path, segments: &Segments) -> Result<(), Fault> {
    let mark = segments.marker.mark();
    let end = segments.last.as_ref().map_or(0, |(_, _, end)| *end as u64);
    if (segments.number, end) >= (mark.file, mark.length) {
        return Ok(());
    }
    let path = dir.join(format!("{PREFIX}{:08}", mark.file));
    let why = format!(
        "{} bytes of it were durable, and the log ends before",
        mark.length
    );
    Err(Fault::damaged(&path, 0, &why))
}

/// Cuts what is no whole record off the last file, of which so many bytes were written.
fn cut(loaded: &mut Loaded, written: usize) -> Result<(), Fault> {
    let Some((path, file, end)) = &loaded.segments.last else {
        return Ok(());
    };
    if *end < written {
        loaded.torn = Some(format!(
            "{}: {} bytes of a record that was being written are cut off",
            path.display(),
            written - end
        ));
        file.set_len(*end as u64)
            .and_then(|()| file.sync_all())
            .map_err(|why| Fault::io(path, why))?;
    }
    Ok(())
}

fn files(dir: &Path) -> Result<Vec<(u64, PathBuf)>, Fault> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(|why| Fault::io(dir, why))? {
        let entry = entry.map_err(|why| Fault::io(dir, why))?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        files.extend(number.map(|number: u64| (number, entry.path())));
    }
    files.sort_unstable();
    Ok(files)
}

/// What one file of the log says.
#[derive(Default)]
struct Read {
    /// Where its records end.
    end: usize,
    /// The highest index of an entry in it.
    highest: u64,
    /// The highest index that is said to be part of a state.
    purged: Option<u64>,
}

/// Takes the records of one file over.
fn read(path: &Path, bytes: &[u8], is_last: bool, entries: &mut Entries) -> Result<Read, Fault> {
    let mut read = Read::default();
    loop {
        let at = read.end;
        let body = match record::next(bytes, at) {
            Next::End => return Ok(read),
            Next::Torn if is_last => return Ok(read),
            Next::Torn => return Err(Fault::damaged(path, at, "a full file ends in a record")),
            Next::Damaged => {
                return Err(Fault::damaged(path, at, "a record does not fit its check"));
            }
            Next::Record(body, end) => {
                read.end = end;
                body
            }
        };
        let record = postcard::from_bytes(body)
            .map_err(|why| Fault::damaged(path, at, &format!("no record: {why}")))?;
        match record {
            Record::Cut(from) => drop(entries.split_off(&from)),
            Record::Purged(upto) => {
                *entries = entries.split_off(&(upto + 1));
                read.purged = read.purged.max(Some(upto));
            }
            Record::Entry(entry) => {
                let index = entry.index();
                read.highest = read.highest.max(index);
                entries.split_off(&index);
                let before = entries.last_key_value().map(|(last, _)| *last);
                if before.is_some_and(|last| last + 1 != index) {
                    let why = format!("entry {index} follows {before:?}");
                    return Err(Fault::damaged(path, at, &why));
                }
                entries.insert(index, entry);
            }
        }
    }
}

/// Drops what is part of the state, and checks that the rest follows it; whether something was dropped.
fn fit(
    dir: &Path,
    entries: &mut Entries,
    purged: Option<u64>,
    state: Option<LogIdOf<Types>>,
) -> Result<bool, Fault> {
    let upto = state.map(|state| state.index());
    if purged > upto {
        let why =
            format!("entries up to {purged:?} are in a state, and the one here ends at {upto:?}");
        return Err(Fault::damaged(dir, 0, &why));
    }
    let before = entries.len();
    if let Some(state) = state {
        let same = entries
            .get(&state.index())
            .is_none_or(|entry| entry.log_id() == state);
        if !same {
            let why = format!("entry {} is not the one of the state", state.index());
            return Err(Fault::damaged(dir, 0, &why));
        }
        *entries = entries.split_off(&(state.index() + 1));
    }
    let next = upto.map_or(0, |upto| upto + 1);
    match entries.first_key_value() {
        Some((first, _)) if *first != next => {
            let why = format!("the log begins with entry {first}, the state ends before {next}");
            Err(Fault::damaged(dir, 0, &why))
        }
        _ => Ok(entries.len() < before),
    }
}
