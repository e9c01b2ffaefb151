//! Journal: the ledger as records on its disk, each with a sum; rewritten whole when it is opened.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use steadfast_digest::crc32c;

use super::{FileId, GROWTH_MIN, Ledger, LedgerError, Page};
use crate::page::{Digest, chosen};

pub(super) mod record {
    pub(in crate::ledger) const NAME: u8 = 1;
    pub(in crate::ledger) const SIZE: u8 = 2;
    pub(in crate::ledger) const PAGES: u8 = 3;
    pub(in crate::ledger) const GONE: u8 = 4;
    pub(in crate::ledger) const DURABLE: u8 = 5;
    /// What digests are made by: the first record, and none in a ledger of before there was a choice (XXH3).
    pub(in crate::ledger) const MADE_BY: u8 = 6;
    /// One more name, and one less.
    pub(in crate::ledger) const LINKED: u8 = 7;
    pub(in crate::ledger) const UNNAMED: u8 = 8;
    /// kind, length, CRC32C of kind and body
    pub(in crate::ledger) const HEAD: usize = 9;
}

impl Ledger {
    pub(super) fn replay(&mut self, bytes: &[u8]) -> Result<(), LedgerError> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let whole = rest.get(..record::HEAD).and_then(|head| {
                let len = u32::from_le_bytes(head[1..5].try_into().expect("four bytes")) as usize;
                let sum = u32::from_le_bytes(head[5..9].try_into().expect("four bytes"));
                let body = rest.get(record::HEAD..record::HEAD.checked_add(len)?)?;
                (summed(head[0], body) == sum).then_some((head[0], body))
            });
            let Some((kind, body)) = whole else {
                // A crash tears the last record. Anything whole behind it means that this one was damaged since.
                return if has_record_behind(rest) {
                    Err(LedgerError::Damaged {
                        path: self.path.clone(),
                        at,
                    })
                } else {
                    Ok(())
                };
            };
            if self.take(kind, body).is_none() {
                return Err(LedgerError::Damaged {
                    path: self.path.clone(),
                    at,
                });
            }
            at += record::HEAD + body.len();
        }
        Ok(())
    }

    fn take(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        use std::os::unix::ffi::OsStrExt;
        let id = FileId(u64::from_le_bytes(body.get(..8)?.try_into().ok()?));
        let rest = &body[8..];
        let number = |at: usize| Some(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?));
        // Its name is gone, and who had it open has written on.
        if matches!(kind, record::SIZE | record::PAGES | record::DURABLE)
            && !self.files.contains_key(&id)
        {
            return Some(());
        }
        match kind {
            record::NAME => {
                self.next = self.next.max(id.0 + 1);
                self.forget_names(id);
                self.put_name(Path::new(std::ffi::OsStr::from_bytes(rest)), id);
            }
            record::LINKED if self.files.contains_key(&id) => {
                self.put_name(Path::new(std::ffi::OsStr::from_bytes(rest)), id);
            }
            record::UNNAMED => {
                let path = Path::new(std::ffi::OsStr::from_bytes(rest));
                if self.id(path) == Some(id) {
                    self.drop_name(path);
                }
            }
            record::SIZE => self.size(id, number(0)?),
            record::PAGES => {
                let first = usize::try_from(number(0)?).ok()?;
                let entry = self.files.entry(id).or_default();
                for (index, digest) in rest[8..].chunks_exact(16).enumerate() {
                    let page = entry.pages.get_mut(first + index)?;
                    page.before = page.before.or(Some(page.now));
                    page.now = u128::from_le_bytes(digest.try_into().ok()?);
                }
                entry.is_unsettled = true;
            }
            record::GONE => {
                self.forget_names(id);
                self.files.remove(&id);
            }
            record::DURABLE => self.settle(id),
            record::MADE_BY => {
                self.made_by = *Digest::ALL.get(usize::try_from(id.0).ok()?)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn forget_names(&mut self, id: FileId) {
        if self.names_of(id) > 0 {
            self.names.retain(|_, other| *other != id);
        }
        if let Some(entry) = self.files.get_mut(&id) {
            entry.names = 0;
        }
    }

    pub(super) fn log(&mut self, kind: u8, body: &[u8]) {
        let len = u32::try_from(body.len()).expect("records are small");
        self.pending.push(kind);
        self.pending.extend(len.to_le_bytes());
        self.pending.extend(summed(kind, body).to_le_bytes());
        self.pending.extend(body);
    }

    /// Writes the whole ledger anew, in place of the journal.
    pub(super) fn rewrite(&mut self) -> Result<(), LedgerError> {
        if self.path.as_os_str().is_empty() {
            return Ok(());
        }
        self.pending.clear();
        let mut told = HashSet::new();
        let names: Vec<_> = self
            .names
            .iter()
            .map(|(path, id)| (path.clone(), *id))
            .collect();
        self.log(record::MADE_BY, &(chosen() as u64).to_le_bytes());
        for (path, id) in names {
            if !told.insert(id) {
                self.log_name(record::LINKED, id, &path);
                continue;
            }
            let entry = self.files.get(&id).cloned().unwrap_or_default();
            self.log_name(record::NAME, id, &path);
            self.log(
                record::SIZE,
                &[id.0.to_le_bytes(), entry.size.to_le_bytes()].concat(),
            );
            let digests = |of: fn(&Page) -> u128| {
                entry
                    .pages
                    .iter()
                    .flat_map(|page| of(page).to_le_bytes())
                    .collect::<Vec<_>>()
            };
            let head = [id.0.to_le_bytes(), 0_u64.to_le_bytes()].concat();
            self.log(
                record::PAGES,
                &[
                    head.clone(),
                    digests(|page| page.before.unwrap_or(page.now)),
                ]
                .concat(),
            );
            self.log(record::DURABLE, &id.0.to_le_bytes());
            if entry.pages.iter().any(|page| page.before.is_some()) {
                self.log(record::PAGES, &[head, digests(|page| page.now)].concat());
            }
        }
        let (new, len) = (self.path.with_extension("new"), self.pending.len() as u64);
        let written = (|| {
            let mut file = File::create(&new)?;
            file.write_all(&self.pending)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            OpenOptions::new().append(true).open(&self.path)
        })();
        self.pending.clear();
        self.journal = Some(written.map_err(|source| LedgerError::Write {
            path: self.path.clone(),
            source,
        })?);
        (self.grown, self.growth_max) = (0, len.max(GROWTH_MIN));
        self.is_unsynced = false;
        Ok(())
    }

    pub(crate) fn has_grown(&self) -> bool {
        self.grown > self.growth_max
    }

    /// Writes the journal anew, without files that have no name and that nobody has open. Where there is no room for two of
    /// them, the old one goes on.
    pub(crate) fn compact(&mut self, is_open: impl Fn(FileId) -> bool) -> Result<(), LedgerError> {
        self.flush(false)?;
        let named: HashSet<FileId> = self.names.values().copied().collect();
        self.files
            .retain(|id, _| named.contains(id) || is_open(*id));
        if self.rewrite().is_err() {
            let _ = fs::remove_file(self.path.with_extension("new"));
            self.growth_max *= 2;
            let old = OpenOptions::new().append(true).open(&self.path);
            self.journal = Some(old.map_err(|source| LedgerError::Write {
                path: self.path.clone(),
                source,
            })?);
        }
        Ok(())
    }

    /// The journal and how far it has come, if not all of it is on its disk for certain. Whoever syncs it need not hold the ledger,
    /// and says so by [`Ledger::synced`].
    pub(crate) fn unsynced(&self) -> Option<(File, u64)> {
        let journal = self.journal.as_ref().filter(|_| self.is_unsynced)?;
        Some((journal.try_clone().ok()?, self.grown))
    }

    /// The kernel tells an error of a sync once: whoever writes next hears of it.
    pub(crate) fn synced(&mut self, grown: u64, done: io::Result<()>) {
        match done {
            Ok(()) => self.is_unsynced &= self.grown != grown,
            Err(error) => self.failed = Some(error),
        }
    }

    /// Hands what was noted to the disk; `durable`: and waits until it is there.
    pub(crate) fn flush(&mut self, durable: bool) -> Result<(), LedgerError> {
        let Some(journal) = &mut self.journal else {
            self.pending.clear();
            return Ok(());
        };
        if self.pending.is_empty() && !durable {
            return Ok(());
        }
        self.grown += self.pending.len() as u64;
        let done = self
            .failed
            .take()
            .map_or_else(|| journal.write_all(&self.pending), Err)
            .and_then(|()| if durable { journal.sync_data() } else { Ok(()) });
        self.pending.clear();
        self.is_unsynced = !durable || done.is_err();
        done.map_err(|source| LedgerError::Write {
            path: self.path.clone(),
            source,
        })
    }
}

/// What the first record says.
pub(super) fn made_by(bytes: &[u8]) -> Digest {
    let body = bytes.get(record::HEAD..record::HEAD + 8);
    let number = body.and_then(|body| body.try_into().ok().map(u64::from_le_bytes));
    Digest::ALL
        .into_iter()
        .find(|digest| bytes.first() == Some(&record::MADE_BY) && number == Some(*digest as u64))
        .unwrap_or(Digest::Xxh3)
}

pub(super) fn lock(dir: &Path) -> Result<File, LedgerError> {
    let path = dir.join("lock");
    let file = File::create(&path).map_err(|source| LedgerError::Write {
        path: path.clone(),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(LedgerError::Busy { path: dir.into() }),
        Err(fs::TryLockError::Error(source)) => Err(LedgerError::Write { path, source }),
    }
}

fn summed(kind: u8, body: &[u8]) -> u32 {
    crc32c(&[&[kind], body].concat())
}

/// Whether a whole record begins anywhere behind a place that holds none.
fn has_record_behind(bytes: &[u8]) -> bool {
    (1..bytes.len()).any(|at| {
        let rest = &bytes[at..];
        rest.get(..record::HEAD).is_some_and(|head| {
            let len = u32::from_le_bytes(head[1..5].try_into().expect("four bytes")) as usize;
            (1..=record::UNNAMED).contains(&head[0])
                && len >= 8
                && rest
                    .get(record::HEAD..record::HEAD + len)
                    .is_some_and(|body| {
                        summed(head[0], body)
                            == u32::from_le_bytes(head[5..9].try_into().expect("four bytes"))
                    })
        })
    })
}
