//! The log as the engine sees it: in memory, and on disk too where the replica has a directory.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::RangeBounds;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use openraft::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};

use crate::disk::Keeper;
use crate::entry::Types;

/// The log.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    inner: Arc<Mutex<Inner>>,
    disk: Option<Keeper>,
}

#[derive(Debug, Default)]
struct Inner {
    purged: Option<LogIdOf<Types>>,
    entries: BTreeMap<u64, EntryOf<Types>>,
    committed: Option<LogIdOf<Types>>,
    vote: Option<VoteOf<Types>>,
}

impl Log {
    /// One that goes on with what was found on disk behind the state that ends with `purged`.
    pub(super) fn kept(
        disk: Keeper,
        purged: Option<LogIdOf<Types>>,
        entries: BTreeMap<u64, EntryOf<Types>>,
        vote: Option<VoteOf<Types>>,
    ) -> Self {
        let inner = Inner {
            purged,
            entries,
            committed: None,
            vote,
        };
        Self {
            inner: Arc::new(Mutex::new(inner)),
            disk: Some(disk),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<EntryOf<Types>>, io::Error> {
        Ok(self
            .lock()
            .entries
            .range(range)
            .map(|(_, entry)| entry.clone())
            .collect())
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<Types>>, io::Error> {
        Ok(self.lock().vote)
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, io::Error> {
        let inner = self.lock();
        let last = inner
            .entries
            .values()
            .next_back()
            .map(|entry| entry.log_id());
        Ok(LogState {
            last_purged_log_id: inner.purged,
            last_log_id: last.or(inner.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<Types>) -> Result<(), io::Error> {
        if let Some(disk) = &self.disk {
            disk.vote(*vote).await?;
        }
        self.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<Types>>) -> Result<(), io::Error> {
        self.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf<Types>>, io::Error> {
        Ok(self.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = EntryOf<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<EntryOf<Types>> = entries.into_iter().collect();
        match &self.disk {
            Some(disk) => disk.append(&entries, callback)?,
            None => callback.io_completed(Ok(())),
        }
        let mut inner = self.lock();
        inner
            .entries
            .extend(entries.into_iter().map(|entry| (entry.index(), entry)));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogIdOf<Types>>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index() + 1);
        if let Some(disk) = &self.disk {
            disk.cut(from).await?;
        }
        self.lock().entries.split_off(&from);
        Ok(())
    }

    async fn purge(&mut self, upto: LogIdOf<Types>) -> Result<(), io::Error> {
        if let Some(disk) = &self.disk {
            disk.purge(upto)?;
        }
        let mut inner = self.lock();
        inner.purged = Some(upto);
        inner.entries = inner.entries.split_off(&(upto.index() + 1));
        Ok(())
    }
}
