//! Ledger: a 128-bit digest of every page of every protected file, on another device than the files.
//!
//! The ledger decides when the disks of the two sites give different bytes. Each site
//! keeps one. In memory it is a table of files; on disk it is a journal of records, each with a
//! CRC32C, that is written anew when the ledger is opened, and when it has grown.
//!
//! Invariants
//!  1. A page that was written but not yet made durable has its old digest and its new one: after
//!     a crash either may be on the disk.
//!  2. A page that a write covers in part is looked up before the write's bytes are folded in:
//!     a bad sector is never blessed.
//!  3. A torn record at the journal's end is dropped; one in the middle is an error.
//!  4. The journal is no longer than twice what it says, and [`GROWTH_MIN`]: then it is written anew.
//!
//! Not covered: times and rights of files, names of directories, extended attributes.

mod journal;

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::page::{Digest, PAGE, chosen, page_digest};

use journal::{lock, record};

/// Bytes of records behind those of a journal that was written anew: a program with few files has it written anew seldom.
const GROWTH_MIN: u64 = 8 << 20;

/// Numbers a file for as long as the ledger is in memory; a name may come to mean another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId(u64);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Page {
    now: u128,
    /// What it was when it was last made durable, if it has been written since.
    before: Option<u128>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Entry {
    size: u64,
    pages: Vec<Page>,
    /// Some page has been written since the file was last made durable.
    is_unsettled: bool,
    /// How many it has (link(2)).
    names: u32,
}

/// Why the ledger cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("the ledger has to be written, and {} refuses", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the ledger has to be whole, and {} is damaged at byte {at}", .path.display())]
    Damaged { path: PathBuf, at: usize },
    #[error("the ledger has to be on another device than the data, and {} and {} are on the same one", .ledger.display(), .data.display())]
    SameDevice { ledger: PathBuf, data: PathBuf },
    #[error("the ledger has to be made by what --digest says, {}, and {} is made by {found}", .told, .path.display())]
    Digest {
        path: PathBuf,
        told: &'static str,
        found: &'static str,
    },
    #[error("a ledger has to belong to one site, and {} is in use", .path.display())]
    Busy { path: PathBuf },
    #[error("{} has to be a directory that can be read", .path.display())]
    Directory { path: PathBuf, source: io::Error },
}

/// A page that does not have the digest it has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) path: PathBuf,
    pub(crate) page: u64,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    path: PathBuf,
    /// Held while this is open: a second site, or a look at rest, would write the journal anew beneath this one.
    _lock: Option<File>,
    journal: Option<File>,
    pending: Vec<u8>,
    /// Records have been handed to the kernel and are not on the disk for certain.
    is_unsynced: bool,
    failed: Option<io::Error>,
    /// Bytes that the journal has had since it was written anew, and how many it may have.
    grown: u64,
    growth_max: u64,
    files: HashMap<FileId, Entry>,
    names: BTreeMap<PathBuf, FileId>,
    next: u64,
    zero: u128,
    /// What the digests on the disk were made by.
    made_by: Digest,
}

impl Ledger {
    /// Opens the ledger in a directory, which is made if it is not there.
    pub(crate) fn open(dir: &Path) -> Result<Self, LedgerError> {
        let path = dir.join("ledger");
        fs::create_dir_all(dir).map_err(|source| LedgerError::Directory {
            path: dir.into(),
            source,
        })?;
        let mut this = Self::in_memory();
        this.path = path.clone();
        this._lock = Some(lock(dir)?);
        match fs::read(&path) {
            Ok(bytes) => this.replay(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(LedgerError::Directory { path, source }),
        }
        if !this.is_empty() && this.made_by != chosen() {
            return Err(LedgerError::Digest {
                path,
                told: chosen().word(),
                found: this.made_by.word(),
            });
        }
        this.rewrite()?;
        Ok(this)
    }

    /// What the digests of a ledger at rest are made by; where it cannot be read, opening it says why.
    pub(crate) fn made_by(dir: &Path) -> Digest {
        let bytes = fs::read(dir.join("ledger")).unwrap_or_default();
        journal::made_by(&bytes)
    }

    pub(crate) fn in_memory() -> Self {
        Self {
            path: PathBuf::new(),
            _lock: None,
            journal: None,
            pending: Vec::new(),
            is_unsynced: false,
            failed: None,
            grown: 0,
            growth_max: GROWTH_MIN,
            files: HashMap::new(),
            names: BTreeMap::new(),
            next: 1,
            zero: page_digest(&[]),
            made_by: Digest::Xxh3,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the ledger and what it vouches for would be lost together.
    pub(crate) fn check_device(dir: &Path, data: &[PathBuf]) -> Result<(), LedgerError> {
        use std::os::unix::fs::MetadataExt;
        let device = |path: &Path| {
            fs::metadata(path)
                .map(|meta| meta.dev())
                .map_err(|source| LedgerError::Directory {
                    path: path.into(),
                    source,
                })
        };
        let own = device(dir)?;
        for data in data {
            if device(data)? == own {
                return Err(LedgerError::SameDevice {
                    ledger: dir.into(),
                    data: data.clone(),
                });
            }
        }
        Ok(())
    }

    fn size(&mut self, id: FileId, size: u64) {
        let zero = self.zero;
        let entry = self.files.entry(id).or_default();
        entry.size = size;
        let pages = usize::try_from(size.div_ceil(PAGE as u64)).expect("64 bits");
        entry.pages.resize(
            pages,
            Page {
                now: zero,
                before: None,
            },
        );
    }

    fn settle(&mut self, id: FileId) {
        if let Some(entry) = self.files.get_mut(&id) {
            for page in &mut entry.pages {
                page.before = None;
            }
            entry.is_unsettled = false;
        }
    }

    /// Whether the file was written and not made durable since, and the disk of the ledger does not know all of it.
    pub(crate) fn is_behind(&self, id: FileId) -> bool {
        self.is_unsynced && self.files.get(&id).is_some_and(|entry| entry.is_unsettled)
    }

    pub(crate) fn id(&self, path: &Path) -> Option<FileId> {
        self.names.get(path).copied()
    }

    pub(crate) fn path(&self, id: FileId) -> Option<&Path> {
        self.names
            .iter()
            .find(|(_, other)| **other == id)
            .map(|(path, _)| path.as_path())
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.names.iter().map(|(path, id)| {
            (
                path.as_path(),
                self.files.get(id).map_or(0, |entry| entry.size),
            )
        })
    }

    /// Files and pages that it has.
    pub(crate) fn extent(&self) -> (u64, u64) {
        let pages = self.files.values().map(|entry| entry.pages.len() as u64);
        (self.names.len() as u64, pages.sum())
    }

    /// Pages of a file.
    pub(crate) fn pages(&self, id: FileId) -> u64 {
        self.files
            .get(&id)
            .map_or(0, |entry| entry.pages.len() as u64)
    }

    /// A file under a name, new or known.
    pub(crate) fn file(&mut self, path: &Path) -> FileId {
        if let Some(id) = self.id(path) {
            return id;
        }
        let id = FileId(self.next);
        self.next += 1;
        self.put_name(path, id);
        self.log_name(record::NAME, id, path);
        id
    }

    /// The digests that a page may have: what it is now, and what it was when it was last durable.
    pub(crate) fn accepted(&self, id: FileId, page: u64) -> Vec<u128> {
        let page = usize::try_from(page)
            .ok()
            .and_then(|page| self.files.get(&id)?.pages.get(page));
        page.map_or_else(Vec::new, |page| {
            std::iter::once(page.now).chain(page.before).collect()
        })
    }

    /// What a page has to be while the program runs.
    pub(crate) fn expected(&self, id: FileId, page: u64) -> Option<u128> {
        usize::try_from(page)
            .ok()
            .and_then(|page| self.files.get(&id)?.pages.get(page))
            .map(|page| page.now)
    }

    fn set(&mut self, id: FileId, page: usize, digest: u128) {
        let Some(entry) = self.files.get_mut(&id) else {
            return;
        };
        let Some(own) = entry.pages.get_mut(page) else {
            return;
        };
        own.before = own.before.or(Some(own.now));
        own.now = digest;
        entry.is_unsettled = true;
        self.log(
            record::PAGES,
            &[
                &id.0.to_le_bytes()[..],
                &(page as u64).to_le_bytes(),
                &digest.to_le_bytes(),
            ]
            .concat(),
        );
    }

    /// Takes a file as it is: at enrolment.
    pub(crate) fn enrol(&mut self, path: &Path, size: u64, digests: &[u128]) {
        let id = self.file(path);
        self.resize(id, size);
        let entry = self.files.entry(id).or_default();
        let digests = &digests[..digests.len().min(entry.pages.len())];
        for (page, digest) in entry.pages.iter_mut().zip(digests) {
            page.now = *digest;
        }
        let all = digests.iter().flat_map(|digest| digest.to_le_bytes());
        let head = [id.0.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        self.log(
            record::PAGES,
            &head.into_iter().chain(all).collect::<Vec<_>>(),
        );
        self.durable(id);
    }

    /// The entry of a page was damaged in memory: this is what its file holds, as the other site's ledger has it too.
    pub(crate) fn mend(&mut self, id: FileId, page: u64, digest: u128) {
        let Ok(page) = usize::try_from(page) else {
            return;
        };
        self.set(id, page, digest);
        let entry = self.files.get_mut(&id);
        if let Some(page) = entry.and_then(|entry| entry.pages.get_mut(page)) {
            page.before = None;
        }
    }

    fn resize(&mut self, id: FileId, size: u64) {
        self.size(id, size);
        self.log(
            record::SIZE,
            &[id.0.to_le_bytes(), size.to_le_bytes()].concat(),
        );
    }

    /// Everything that was written to a file is on the disk.
    pub(crate) fn durable(&mut self, id: FileId) {
        self.settle(id);
        self.log(record::DURABLE, &id.0.to_le_bytes());
    }

    /// Bytes have been written. `head` and `tail` are the pages that they cover in part, as they were; `cut_short`: the tail as it
    /// is, since nobody had looked at the page where the write came to end.
    pub(crate) fn wrote(
        &mut self,
        id: FileId,
        offset: u64,
        bytes: &[u8],
        [head, tail]: [Option<&[u8]>; 2],
        cut_short: bool,
    ) -> Result<(), Wrong> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset + bytes.len() as u64;
        let size = self.files.get(&id).map_or(0, |entry| entry.size);
        if end > size {
            self.resize(id, end);
        }
        let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
        for page in first..=last {
            let start = page * PAGE as u64;
            let (old, is_before) = if page == first && head.is_some() {
                (head, true)
            } else if page == last {
                (tail, !cut_short)
            } else {
                (None, true)
            };
            let mut now = [0; PAGE];
            if let Some(old) = old {
                let expected = self.expected(id, page);
                if start < size && is_before && expected != Some(page_digest(old)) {
                    return Err(Wrong {
                        path: self.path(id).unwrap_or(Path::new("")).into(),
                        page,
                    });
                }
                now[..old.len()].copy_from_slice(old);
            }
            let from = offset.max(start);
            let to = end.min(start + PAGE as u64);
            let place = |at: u64, from: u64| usize::try_from(at - from).expect("within a write");
            now[place(from, start)..place(to, start)]
                .copy_from_slice(&bytes[place(from, offset)..place(to, offset)]);
            self.set(
                id,
                usize::try_from(page).expect("64 bits"),
                page_digest(&now),
            );
        }
        Ok(())
    }

    /// The file has another length; `last`: the page of its new end, as it was.
    pub(crate) fn truncated(
        &mut self,
        id: FileId,
        size: u64,
        last: Option<&[u8]>,
    ) -> Result<(), Wrong> {
        let had = self.files.get(&id).map_or(0, |entry| entry.size);
        let page = size / PAGE as u64;
        if let Some(last) = last.filter(|_| size < had) {
            if self.expected(id, page) != Some(page_digest(last)) {
                return Err(Wrong {
                    path: self.path(id).unwrap_or(Path::new("")).into(),
                    page,
                });
            }
            self.resize(id, size);
            let keep = usize::try_from(size % PAGE as u64).expect("below a page");
            self.set(
                id,
                usize::try_from(page).expect("64 bits"),
                page_digest(&last[..keep]),
            );
            return Ok(());
        }
        self.resize(id, size);
        Ok(())
    }

    /// At least as long as that, with zeros.
    pub(crate) fn allocated(&mut self, id: FileId, size: u64) {
        if self.files.get(&id).is_some_and(|entry| entry.size < size) {
            self.resize(id, size);
        }
    }

    fn put_name(&mut self, path: &Path, id: FileId) {
        self.drop_name(path);
        self.names.insert(path.into(), id);
        self.files.entry(id).or_default().names += 1;
    }

    /// Whose it was.
    fn drop_name(&mut self, path: &Path) -> Option<FileId> {
        let id = self.names.remove(path)?;
        if let Some(entry) = self.files.get_mut(&id) {
            entry.names -= 1;
        }
        Some(id)
    }

    fn names_of(&self, id: FileId) -> u32 {
        self.files.get(&id).map_or(0, |entry| entry.names)
    }

    /// Whether the file of this name has others.
    pub(crate) fn has_other_names(&self, path: &Path) -> bool {
        self.id(path).is_some_and(|id| self.names_of(id) > 1)
    }

    fn log_name(&mut self, kind: u8, id: FileId, path: &Path) {
        use std::os::unix::ffi::OsStrExt;
        self.log(
            kind,
            &[&id.0.to_le_bytes(), path.as_os_str().as_bytes()].concat(),
        );
    }

    /// A file has one more name. Nothing: it is none that the ledger has.
    pub(crate) fn linked(&mut self, from: &Path, to: &Path) -> Option<FileId> {
        let id = self.id(from)?;
        self.log_name(record::LINKED, id, to);
        self.put_name(to, id);
        Some(id)
    }

    /// A name is gone. Who has the file open may still write to it.
    pub(crate) fn unlinked(&mut self, path: &Path) {
        match self.drop_name(path) {
            Some(id) if self.names_of(id) > 0 => self.log_name(record::UNNAMED, id, path),
            Some(id) => self.log(record::GONE, &id.0.to_le_bytes()),
            None => {}
        }
    }

    /// Between two names of one file that does nothing (rename(2)).
    pub(crate) fn renamed(&mut self, from: &Path, to: &Path) {
        if self.id(from).is_some_and(|id| self.id(to) == Some(id)) {
            return;
        }
        let moved: Vec<_> = self
            .names
            .keys()
            .filter(|path| path.starts_with(from))
            .cloned()
            .collect();
        if moved.is_empty() {
            return;
        }
        self.unlinked(to);
        for path in moved {
            let Some(id) = self.drop_name(&path) else {
                continue;
            };
            let rest = path.strip_prefix(from).expect("it starts with it");
            let new = if rest.as_os_str().is_empty() {
                to.to_path_buf()
            } else {
                to.join(rest)
            };
            if self.names_of(id) == 0 {
                self.log_name(record::NAME, id, &new);
            } else {
                self.log_name(record::LINKED, id, &new);
                self.log_name(record::UNNAMED, id, &path);
            }
            self.put_name(&new, id);
        }
    }

    /// Two names have changed places.
    pub(crate) fn exchanged(&mut self, one: &Path, other: &Path) {
        let mut aside = one.as_os_str().to_owned();
        aside.push(".exchanged");
        let aside = Path::new(&aside);
        self.renamed(one, aside);
        self.renamed(other, one);
        self.renamed(aside, other);
    }

    /// Holds a file on disk against the ledger: the pages that have none of the digests they may have. The
    /// size counts as the page behind the last.
    pub(crate) fn verify(&self, path: &Path) -> io::Result<Vec<u64>> {
        let Some(entry) = self.id(path).and_then(|id| self.files.get(&id)) else {
            return Ok(Vec::new());
        };
        let found = crate::disk::digests(path)?;
        let mut wrong: Vec<u64> = (0_u64..)
            .zip(entry.pages.iter().zip(&found.pages))
            .filter(|(_, (page, found))| page.now != **found && page.before != Some(**found))
            .map(|(page, _)| page)
            .collect();
        if found.size != entry.size && entry.pages.iter().all(|page| page.before.is_none()) {
            wrong.push(entry.size.div_ceil(PAGE as u64));
        }
        Ok(wrong)
    }
}

#[cfg(test)]
mod tests;
