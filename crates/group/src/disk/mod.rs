//! What a replica keeps across its end: who it is, its vote, the log, and the last state that it has stored.
//!
//! ```text
//!   DIR/replica          node number, place, how often it was started, what it executes
//!   DIR/vote             the engine's
//!   DIR/log-00000001 ... entries, each with its check; an entry counts once fdatasync has returned
//!   DIR/state            the last state that f+1 replicas agreed on, and the entry behind which it stands
//!   DIR/durable          how much of the log and whether a vote has been called durable
//!   DIR/damaged/ ...     what did not fit its checks, if ever: damaged-2 and so on where that is there already
//! ```
//!
//! Invariants
//!  1. A process that goes on with a log has everything that it ever acknowledged. Where that is in doubt it takes a new node number and
//!     gets its state from the others; it never founds a group.
//!  2. What is read is checked, all of it, before the process takes part; a log that is shorter than it was is damage.
//!
//! Not covered: a directory that is put back to an older state, and a disk that says "durable" and is not. Both undo a vote.

mod mark;
mod queue;
pub mod record;
mod segments;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, bail, ensure};
use openraft::alias::{EntryOf, LogIdOf, SnapshotMetaOf, VoteOf};
use openraft::entry::RaftEntry as _;
use openraft::storage::IOFlushed;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use self::mark::{DURABLE, Marker};
use self::queue::{Done, Job};
use self::record::Fault;
use self::segments::{Entries, Loaded};
use crate::entry::Types;
use crate::secret;
use crate::sync::mpsc;

const REPLICA: &str = "replica";
const VOTE: &str = "vote";
const STATE: &str = "state";
const LOCK: &str = "lock";
const DAMAGED: &str = "damaged";
/// The version of everything in the directory.
const FORMAT: u32 = 3;

/// Who keeps the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    format: u32,
    node: u64,
    slot: u64,
    service: String,
    starts: u64,
    /// What it had was damaged, and it has nothing of the others' yet.
    lost: bool,
}

/// A state and the entry behind which it stands.
pub(crate) type State = (SnapshotMetaOf<Types>, Vec<u8>);

/// What the directory of a replica says.
#[derive(Debug)]
pub struct Disk {
    dir: PathBuf,
    identity: Identity,
    loaded: Loaded,
    vote: Option<VoteOf<Types>>,
    state: Option<State>,
    notes: Vec<String>,
    faults: u64,
    lock: File,
}

impl Disk {
    /// Opens the directory of the replica in this place, which executes this service. What is damaged is put aside.
    ///
    /// # Errors
    /// When the directory cannot be made, read or locked, belongs to another replica or service, or what is damaged in it cannot be put aside.
    pub fn open(dir: &Path, slot: u64, service: &str) -> anyhow::Result<Self> {
        let at = dir.display();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| {
                format!("--data {at}\n  fix:   a directory that this user may make")
            })?;
        let lock = locked(dir)?;
        if let Ok(Some(identity)) = record::load::<Identity>(dir, REPLICA) {
            // Before anything is cut or put aside.
            identity.check(dir, slot, service)?;
        }
        let mut notes = Vec::new();
        let mut faults = 0;
        let kept = match read(dir) {
            Err(Fault::Damaged(why)) => {
                let aside = put_aside(dir)
                    .with_context(|| format!("--data {at}: it cannot be put aside"))?;
                faults += 1;
                notes.push(format!(
                    "{why}; everything in {at} was put into {}, and this replica begins anew from the others",
                    aside.display()
                ));
                read(dir)
            }
            other => other,
        };
        let kept = kept.map_err(|fault| fault.told(dir))?;
        faults += u64::from(kept.note.is_some());
        notes.extend(kept.note);
        notes.extend(kept.loaded.torn.clone());
        let identity = match kept.identity {
            Some(identity) => identity,
            None => Identity {
                format: FORMAT,
                node: secret::fresh_node(slot)?.0,
                slot,
                service: service.to_owned(),
                starts: 0,
                // Said by the directory: the process that put something there may have ended before it stored who it is.
                lost: dir.join(DAMAGED).exists(),
            },
        };
        let mut disk = Self {
            dir: dir.to_path_buf(),
            identity,
            loaded: kept.loaded,
            vote: kept.vote,
            state: kept.state,
            notes,
            faults,
            lock,
        };
        disk.begin()?;
        Ok(disk)
    }

    /// Counts this start, before anything is said in its name.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.identity.starts += 1;
        self.identity.lost &= !self.resumes();
        record::store(&self.dir, REPLICA, &self.identity).with_context(|| {
            format!(
                "--data {}: it cannot be written\n  fix:   room on the disk, and a directory of this user",
                self.dir.display()
            )
        })
    }

    /// The node number, which stays.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.identity.node
    }

    /// How often a process with this node number has been started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.identity.starts
    }

    /// The last entry of the log or of the state to go on with, if there is one.
    #[must_use]
    pub fn last(&self) -> Option<u64> {
        let entry = self
            .loaded
            .entries
            .last_key_value()
            .map(|(index, _)| *index);
        let state = self
            .state
            .as_ref()
            .map(|(meta, _)| meta.last_log_id.map_or(0, |id| id.index()));
        entry.max(state)
    }

    /// Whether there is a log or a state to go on with.
    #[must_use]
    pub fn resumes(&self) -> bool {
        self.last().is_some()
    }

    /// Whether what was here is lost, and nothing of the others' has come yet.
    #[must_use]
    pub fn lost(&self) -> bool {
        self.identity.lost
    }

    /// What was found that did not fit its check, and is no record that was being written when the power failed.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// What a person is to be told about what was found.
    pub fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Everything that was found, and the hand that writes what comes.
    pub(crate) fn start(self) -> anyhow::Result<(Keeper, Found)> {
        let (failed, failure) = oneshot::channel();
        let jobs = writer::start(self.dir.clone(), self.loaded.segments, failed)
            .context("a thread that writes")?;
        let stored = self.state.as_ref().and_then(|(meta, _)| meta.last_log_id);
        let found = Found {
            entries: self.loaded.entries,
            vote: self.vote,
            state: self.state,
            failure,
        };
        let keeper = Keeper {
            jobs,
            dir: self.dir,
            stored: Arc::new(Mutex::new(stored)),
            _lock: Arc::new(self.lock),
        };
        Ok((keeper, found))
    }
}

impl Identity {
    fn check(&self, dir: &Path, slot: u64, service: &str) -> anyhow::Result<()> {
        let at = dir.display();
        ensure!(
            self.format == FORMAT,
            "--data {at}: requirement: format {FORMAT}; found: {}\n  fix:   the version of steadfast that wrote it, or an empty directory",
            self.format
        );
        ensure!(
            self.slot == slot,
            "--data {at}: requirement: the directory of replica {slot}; found: that of replica {}\n  fix:   a directory for each replica",
            self.slot
        );
        ensure!(
            self.service == service,
            "--data {at}: requirement: written at stage {service}; found: {}\n  fix:   --stage {}, or an empty directory",
            self.service,
            self.service
        );
        Ok(())
    }
}

fn locked(dir: &Path) -> anyhow::Result<File> {
    let lock = File::create(dir.join(LOCK)).with_context(|| format!("--data {}", dir.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!(
            "--data {}: requirement: one process for a directory; found: another one that has it\n  fix:   stop that one, or give each its own",
            dir.display()
        ),
        Err(TryLockError::Error(why)) => Err(why).context("the lock of --data"),
    }
}

/// What a directory holds.
struct Kept {
    identity: Option<Identity>,
    vote: Option<VoteOf<Types>>,
    state: Option<State>,
    loaded: Loaded,
    note: Option<String>,
}

fn read(dir: &Path) -> Result<Kept, Fault> {
    let identity: Option<Identity> = record::load(dir, REPLICA)?;
    let missing = |name| Err(Fault::damaged(&dir.join(name), 0, "it is missing"));
    let mut marker = match Marker::open(dir)? {
        Some(marker) => marker,
        None if identity.is_some() => return missing(DURABLE),
        // It is there before the identity is: an identity without it has lost it.
        None => Marker::create(dir).map_err(|why| Fault::io(&dir.join(DURABLE), why))?,
    };
    let mark = marker.mark();
    let note = marker.note();
    let state: Option<(SnapshotMetaOf<Types>, serde_bytes::ByteBuf)> = record::load(dir, STATE)?;
    let state = state.map(|(meta, bytes)| (meta, bytes.into_vec()));
    let upto = state.as_ref().and_then(|(meta, _)| meta.last_log_id);
    let kept = Kept {
        identity,
        vote: record::load(dir, VOTE)?,
        loaded: segments::load(dir, upto, marker)?,
        state,
        note,
    };
    let is_new = kept.vote.is_none() && kept.state.is_none() && kept.loaded.segments.is_empty();
    if kept.identity.is_none() && !is_new {
        return missing(REPLICA);
    }
    // The first entry of a group comes before the first vote; every other one, and every state, behind it.
    let behind = kept.state.is_some() || kept.loaded.entries.keys().any(|index| *index > 0);
    if kept.vote.is_none() && (mark.voted || behind) {
        return missing(VOTE);
    }
    Ok(kept)
}

/// Moves everything into a directory of its own. Who this was goes first, for good: what is left by a process that ends meanwhile has no
/// owner, which is damage again.
fn put_aside(dir: &Path) -> io::Result<PathBuf> {
    let names = std::iter::once(DAMAGED.to_owned())
        .chain((2u32..).map(|number| format!("{DAMAGED}-{number}")));
    let mut free = names.map(|name| dir.join(name)).filter(|at| !at.exists());
    let aside = free.next().ok_or(io::ErrorKind::AlreadyExists)?;
    fs::create_dir(&aside)?;
    match fs::rename(dir.join(REPLICA), aside.join(REPLICA)) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => sync_both(dir, &aside)?,
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_kept = name.to_string_lossy().starts_with(DAMAGED) || name == LOCK;
        if !is_kept {
            fs::rename(entry.path(), aside.join(name))?;
        }
    }
    sync_both(dir, &aside)?;
    Ok(aside)
}

/// A name that moved is in one of them when the power fails.
fn sync_both(from: &Path, to: &Path) -> io::Result<()> {
    record::sync_dir(to)?;
    record::sync_dir(from)
}

/// What was found on disk.
pub(crate) struct Found {
    pub(crate) entries: Entries,
    pub(crate) vote: Option<VoteOf<Types>>,
    pub(crate) state: Option<State>,
    /// Told once, when nothing can be written any more.
    pub(crate) failure: oneshot::Receiver<String>,
}

/// Who asked hears; nobody does if it has gone.
fn heard(done: oneshot::Sender<io::Result<()>>) -> Done {
    Box::new(move |written| drop(done.send(written)))
}

/// Writes what is to be kept.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    jobs: mpsc::Sender<Job<VoteOf<Types>>>,
    dir: PathBuf,
    /// The entry behind which the stored state stands; held while another one is written.
    stored: Arc<Mutex<Option<LogIdOf<Types>>>>,
    _lock: Arc<File>,
}

impl Keeper {
    /// `done` hears when these are durable.
    pub(crate) fn append(
        &self,
        entries: &[EntryOf<Types>],
        done: IOFlushed<Types>,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in entries {
            segments::put(entry, &mut bytes)?;
        }
        let highest = entries.last().map_or(0, |entry| entry.index());
        let done = Box::new(move |written| done.io_completed(written));
        self.send(Job::Append(bytes, highest, done))
    }

    /// Entries from an index on are void.
    pub(crate) async fn cut(&self, from: u64) -> io::Result<()> {
        let mut bytes = Vec::new();
        segments::put_cut(from, &mut bytes)?;
        let (done, written) = oneshot::channel();
        self.send(Job::Append(bytes, 0, heard(done)))?;
        written.await.map_err(io::Error::other)?
    }

    /// Entries up to an index are part of the stored state.
    pub(crate) fn purge(&self, upto: LogIdOf<Types>) -> io::Result<()> {
        let mut bytes = Vec::new();
        segments::put_purged(upto.index(), &mut bytes)?;
        self.send(Job::Purge(bytes, upto.index()))
    }

    /// Returns when the vote is durable.
    pub(crate) async fn vote(&self, vote: VoteOf<Types>) -> io::Result<()> {
        let (done, stored) = oneshot::channel();
        self.send(Job::Vote(vote, heard(done)))?;
        stored.await.map_err(io::Error::other)?
    }

    /// Returns when this state, or a later one, is durable. One that was made slowly never replaces a later one that was taken over meanwhile.
    pub(crate) async fn state(
        &self,
        meta: SnapshotMetaOf<Types>,
        bytes: impl Into<Arc<Vec<u8>>>,
    ) -> io::Result<()> {
        let bytes = bytes.into();
        let (dir, stored) = (self.dir.clone(), self.stored.clone());
        let store = move || {
            let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
            let upto = meta.last_log_id;
            if stored.is_some() && *stored >= upto {
                return Ok(());
            }
            record::store(&dir, STATE, &(meta, serde_bytes::Bytes::new(&bytes)))?;
            *stored = upto;
            Ok(())
        };
        tokio::task::spawn_blocking(store)
            .await
            .map_err(io::Error::other)?
    }

    fn send(&self, job: Job<VoteOf<Types>>) -> io::Result<()> {
        self.jobs
            .send(job)
            .map_err(|_| io::Error::other("the thread that writes has ended"))
    }
}
