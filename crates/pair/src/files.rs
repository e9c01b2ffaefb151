//! Files: from the notes of the primary's agent to the ledger, in log order, on both sites alike.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_replica::site::{Kind, Note, Step};

use crate::hold::Clients;
use crate::ledger::{FileId, Ledger, LedgerError, Wrong};
use crate::page::PAGE;

const O_TRUNC: u64 = 0o1000;
/// The kernel writes a page by itself when it is 5 to 30 s old (dirty_writeback_centisecs, dirty_expire_centisecs).
const LEDGER_AGE: Duration = Duration::from_secs(1);

/// Why the ledger cannot follow the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FollowError {
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A page that a write was about to cover in part.
    #[error("page {} of {} is not as the ledger has it, and a write covers it in part", .0.page, .0.path.display())]
    Wrong(Wrong),
    #[error(
        "the map that holds acknowledgements back has to be free for a pair, and the kernel refuses it"
    )]
    Held(#[from] std::io::Error),
    /// The primary's, at an event of which the other site has not heard.
    #[error("its disk has failed, at {}", .path.display())]
    Disk {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{}: {what} is not followed by the ledger", .path.display())]
    Unsupported { path: PathBuf, what: &'static str },
    #[error("{}: it was changed by somebody else: {found} bytes at open, {expected} in the ledger", .path.display())]
    Changed {
        path: PathBuf,
        found: u64,
        expected: u64,
    },
}

impl From<Wrong> for FollowError {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

#[derive(Debug, Clone)]
struct Open {
    path: PathBuf,
    file: Option<FileId>,
}

/// The program's descriptors, and the ledger of what it does with them.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) ledger: Ledger,
    /// Of each process, by the strand that it began with.
    open: HashMap<u64, HashMap<i32, Open>>,
    pub(crate) clients: Clients,
    data: Vec<PathBuf>,
    pub(crate) pages_read: u64,
    pub(crate) pages_written: u64,
}

/// What a descriptor's bytes belong to.
#[derive(Debug, Clone)]
pub(crate) struct Where {
    pub(crate) path: PathBuf,
    pub(crate) file: Option<FileId>,
}

impl Files {
    pub(crate) fn new(ledger: Ledger, data: Vec<PathBuf>) -> Self {
        Self {
            ledger,
            open: HashMap::from([(0, HashMap::new())]),
            clients: Clients::default(),
            data,
            pages_read: 0,
            pages_written: 0,
        }
    }

    /// For all threads of a site. One more has the ledger on its disk soon, though the program makes nothing durable: the kernel writes
    /// pages by itself, and after a loss of power the ledger has to know them.
    pub(crate) fn shared(self) -> Arc<Mutex<Self>> {
        let files = Arc::new(Mutex::new(self));
        let kept = Arc::downgrade(&files);
        std::thread::spawn(move || {
            // They are the program's: another thread takes them (status.rs).
            let _ = steadfast_sys::signals::block_all();
            loop {
                std::thread::sleep(LEDGER_AGE);
                let Some(files) = kept.upgrade() else { return };
                let unsynced = files.lock().expect("no panic under it").ledger.unsynced();
                if let Some((journal, grown)) = unsynced {
                    let done = journal.sync_data();
                    let mut files = files.lock().expect("no panic under it");
                    files.ledger.synced(grown, done);
                }
            }
        });
        files
    }

    pub(crate) fn at(&self, table: u64, fd: i32) -> Option<Where> {
        self.open.get(&table)?.get(&fd).map(|open| Where {
            path: open.path.clone(),
            file: open.file,
        })
    }

    /// The descriptors that name files, for a site that comes back, each by the name that its file has now.
    pub(crate) fn descriptors(&self, table: u64) -> Vec<(i32, PathBuf, bool)> {
        let named = |(fd, open): (&i32, &Open)| {
            let now = open.file.and_then(|file| self.ledger.path(file));
            let path = now.unwrap_or(&open.path).to_path_buf();
            (*fd, path, open.file.is_some())
        };
        let all = self.open.get(&table).into_iter().flatten();
        all.map(named).collect()
    }

    /// Whether the process of this table has been heard of: it has the descriptors of its parent.
    pub(crate) fn has_table(&self, table: u64) -> bool {
        self.open.contains_key(&table)
    }

    pub(crate) fn drop_table(&mut self, table: u64) {
        self.open.remove(&table);
    }

    /// The same, as the other site has told them.
    pub(crate) fn take_descriptors(&mut self, table: u64, all: Vec<(i32, PathBuf, bool)>) {
        self.table(table);
        for (fd, path, protected) in all {
            let file = protected.then(|| self.ledger.file(&path));
            self.table(table).insert(fd, Open { path, file });
        }
    }

    fn table(&mut self, table: u64) -> &mut HashMap<i32, Open> {
        self.open.entry(table).or_default()
    }

    pub(crate) fn is_protected(&self, path: &Path) -> bool {
        self.data.iter().any(|data| path.starts_with(data))
    }

    /// Primary: whether its disk has failed at this event. The other site has what the program asks for, and has not heard of it yet.
    pub(crate) fn fails(&self, table: u64, step: &Step) -> Result<(), FollowError> {
        let Some(note) = step.note().filter(|note| note.protected) else {
            return Ok(());
        };
        let by_descriptor = matches!(
            note.kind,
            Kind::Read | Kind::Write | Kind::Sync | Kind::Truncate | Kind::Allocate
        );
        match failure(step.ret()).filter(|_| by_descriptor) {
            None => Ok(()),
            Some(source) => {
                let at = self.at(table, note.fd);
                let path = at.map_or_else(PathBuf::new, |at| at.path);
                Err(FollowError::Disk { path, source })
            }
        }
    }

    /// Takes the next event in. Whether the ledger has to be on its disk ([`Ledger::flush`]) before anybody hears
    /// that the event is done.
    pub(crate) fn follow(
        &mut self,
        (table, strand): (u64, u64),
        step: &Step,
    ) -> Result<bool, FollowError> {
        self.clients.follow((table, strand), step)?;
        if let Some(child) = step.made(strand) {
            let copy = self.table(table).clone();
            self.open.insert(child, copy);
        }
        let durable = self.take_in(table, step)?;
        // Whoever is killed leaves files and a ledger that fit each other.
        self.ledger.flush(false)?;
        if self.ledger.has_grown() {
            let tables = self.open.values().flat_map(HashMap::values);
            let open: HashSet<FileId> = tables.filter_map(|open| open.file).collect();
            self.ledger.compact(|id| open.contains(&id))?;
        }
        Ok(durable)
    }

    fn take_in(&mut self, table: u64, step: &Step) -> Result<bool, FollowError> {
        let Some(note) = step.note() else {
            return Ok(false);
        };
        match note.kind {
            Kind::Open => self.opened(table, &note, step.extra())?,
            Kind::Close => {
                let closed = self.file(table, note.fd);
                let is_behind = closed.is_some_and(|file| self.ledger.is_behind(file));
                if note.fd >= 0 {
                    self.table(table).remove(&note.fd);
                } else {
                    self.table(table).retain(|fd, _| {
                        !(note.offset..=note.len).contains(&u64::try_from(*fd).unwrap_or(u64::MAX))
                    });
                }
                return Ok(is_behind);
            }
            Kind::Duplicate => {
                let open = self.table(table);
                let old = i32::try_from(note.len)
                    .ok()
                    .and_then(|old| open.get(&old).cloned());
                match old {
                    Some(old) => open.insert(note.fd, old),
                    None => open.remove(&note.fd),
                };
            }
            Kind::Read if note.protected => self.pages_read += pages(note.offset, note.len),
            Kind::Write if note.protected => self.wrote(table, &note, step.extra())?,
            Kind::Truncate if note.protected && step.ret() == 0 => {
                if let Some(file) = self.file(table, note.fd) {
                    let last = if note.head {
                        step.extra().get(..PAGE)
                    } else {
                        None
                    };
                    self.ledger.truncated(file, note.offset, last)?;
                }
            }
            Kind::Allocate if note.protected && step.ret() == 0 && note.len > 0 => {
                if let Some(file) = self.file(table, note.fd) {
                    self.ledger.allocated(file, note.offset + note.len);
                }
            }
            Kind::Sync if step.ret() == 0 => {
                match self.file(table, note.fd) {
                    // Everything that is written is on the disk: nobody asks for the old pages any more.
                    Some(file) => self.ledger.durable(file),
                    None if note.fd >= 0 => return Ok(false),
                    None => {}
                }
                return Ok(true);
            }
            Kind::Name if step.ret() >= 0 => self.named(&note, step.extra())?,
            _ => {}
        }
        Ok(false)
    }

    fn file(&self, table: u64, fd: i32) -> Option<FileId> {
        self.open.get(&table)?.get(&fd).and_then(|open| open.file)
    }

    fn opened(&mut self, table: u64, note: &Note, name: &[u8]) -> Result<(), FollowError> {
        let path = PathBuf::from(OsStr::from_bytes(name.strip_suffix(b"\0").unwrap_or(name)));
        let mut file = None;
        if note.protected {
            let known = self.ledger.id(&path);
            let id = self.ledger.file(&path);
            if known.is_none() || note.offset & O_TRUNC != 0 {
                self.ledger.truncated(id, 0, None)?;
            }
            let expected = self
                .ledger
                .names()
                .find(|(name, _)| *name == path)
                .map_or(0, |(_, size)| size);
            if note.len != expected {
                return Err(FollowError::Changed {
                    path,
                    found: note.len,
                    expected,
                });
            }
            file = Some(id);
        }
        self.table(table).insert(note.fd, Open { path, file });
        Ok(())
    }

    fn wrote(&mut self, table: u64, note: &Note, extra: &[u8]) -> Result<(), FollowError> {
        let Some(file) = self.file(table, note.fd).filter(|_| note.len > 0) else {
            return Ok(());
        };
        let (head, rest) = if note.head {
            extra.split_at_checked(PAGE).unwrap_or_default()
        } else {
            (&[][..], extra)
        };
        let (tail, bytes) = if note.tail {
            rest.split_at_checked(PAGE).unwrap_or_default()
        } else {
            (&[][..], rest)
        };
        let some = |page: &'_ [u8]| {
            if page.is_empty() {
                None
            } else {
                Some(page.to_vec())
            }
        };
        let (head, tail) = (some(head), some(tail));
        self.pages_written += pages(note.offset, note.len);
        let old = [head.as_deref(), tail.as_deref()];
        self.ledger
            .wrote(file, note.offset, bytes, old, note.after)?;
        Ok(())
    }

    fn named(&mut self, note: &Note, extra: &[u8]) -> Result<(), FollowError> {
        let parts: Vec<&[u8]> = extra.split(|byte| *byte == 0).collect();
        let path = |index: usize| {
            let part = |index: usize| {
                Path::new(OsStr::from_bytes(
                    parts.get(index).copied().unwrap_or_default(),
                ))
            };
            resolved(&part(index).join(part(index + 1)))
        };
        let first = path(0);
        match i64::try_from(note.offset).unwrap_or(-1) {
            libc::SYS_truncate if self.is_protected(&first) => match self.ledger.id(&first) {
                Some(file) => self.ledger.truncated(file, note.len, None)?,
                None => {
                    return Err(FollowError::Unsupported {
                        path: first,
                        what: "truncate(2) by another name than the file's own",
                    });
                }
            },
            libc::SYS_unlink | libc::SYS_unlinkat => self.ledger.unlinked(&first),
            libc::SYS_rename | libc::SYS_renameat | libc::SYS_renameat2 => {
                let second = path(2);
                if self.is_protected(&first) != self.is_protected(&second) {
                    return Err(FollowError::Unsupported {
                        path: first,
                        what: "a name that moves out of the protected directories, or in",
                    });
                }
                if note.len & u64::from(libc::RENAME_EXCHANGE) != 0 {
                    self.ledger.exchanged(&first, &second);
                } else {
                    self.ledger.renamed(&first, &second);
                }
            }
            libc::SYS_link | libc::SYS_linkat => self.linked(&first, &path(2), note.len)?,
            _ => {}
        }
        Ok(())
    }

    /// `flags` of linkat(2): by some the first path is not the name of the file itself.
    fn linked(&mut self, first: &Path, second: &Path, flags: u64) -> Result<(), FollowError> {
        let (from, to) = (self.is_protected(first), self.is_protected(second));
        let is_known = self.ledger.id(first).is_some();
        if from && to && is_known {
            self.ledger.linked(first, second);
        } else if to || (from && is_known) {
            // The ledger has files alone: what it does not know is a symbolic link, unless the call has followed one.
            if from && to && flags == 0 {
                return Ok(());
            }
            return Err(FollowError::Unsupported {
                path: first.to_path_buf(),
                what: "a second name (link) across the protected directories' border, or by way of a descriptor or a symbolic link",
            });
        }
        Ok(())
    }
}

/// What a call on an open file returns where its disk has failed: an error of the device, or a file system that takes no more writes after one
/// (`errors=remount-ro`, ext4(5)).
pub(crate) fn failure(ret: i64) -> Option<std::io::Error> {
    let errno = i32::try_from(-ret).ok()?;
    matches!(errno, libc::EIO | libc::EROFS).then(|| std::io::Error::from_raw_os_error(errno))
}

fn pages(offset: u64, len: u64) -> u64 {
    if len == 0 {
        0
    } else {
        (offset + len - 1) / PAGE as u64 - offset / PAGE as u64 + 1
    }
}

/// As the ledger knows it, which has names without symbolic links. The last part may be one by itself: a call that changes names
/// follows it no more than this does. Where the directory is not there, on a site that has not come so far, nothing is resolved.
fn resolved(path: &Path) -> PathBuf {
    let dir = path.parent().map(Path::canonicalize);
    match (dir, path.file_name()) {
        (Some(Ok(dir)), Some(name)) => dir.join(name),
        _ => normal(path),
    }
}

/// Without `.` and `..`; links are not followed.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut out, part| {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
        out
    })
}
