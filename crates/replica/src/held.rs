//! Held: files that the program maps shared, kept for a leader that has to be made anew.
//!
//! The leader asks at the mapping and gives back at the last unmapping (crates/agent, shared.c).
//! A duplicate in this process is in nobody's way: in the group's own descriptor table, closing
//! it would drop the program's record locks on the file. A new leader opens it by way of procfs.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_sys::descriptor;

use crate::segments::{Key, Segments};

/// By number: the descriptor's own, which `/proc/PID/fd` shows.
#[derive(Debug)]
pub(crate) struct Held {
    files: HashMap<i32, (File, Key)>,
    /// Tells this group from others of the tree.
    group: usize,
    segments: Segments,
}

impl Held {
    pub(crate) fn new(segments: Segments) -> Self {
        static GROUPS: AtomicUsize = AtomicUsize::new(0);
        Self {
            files: HashMap::new(),
            group: GROUPS.fetch_add(1, Ordering::Relaxed),
            segments,
        }
    }

    pub(crate) fn group(&self) -> usize {
        self.group
    }

    /// Keeps descriptor `fd` of `pid`, if it is the file that the leader means; its number here.
    pub(crate) fn hold(&mut self, pid: i32, fd: u64, dev: u64, ino: u64) -> io::Result<i32> {
        let (file, key) = meant(pid, fd, (dev, ino))?;
        let number = file.as_raw_fd();
        self.segments.viewed(key, self.group);
        self.files.insert(number, (file, key));
        Ok(number)
    }

    /// Whether another process of the tree has this file as a view: 0, 1, or [`abi::OTHERS_IN_TURNS`].
    pub(crate) fn others_view(&self, key: Key) -> i64 {
        self.segments.viewed_by_others(key, self.group)
    }

    /// The file that `hold` gave this number.
    pub(crate) fn file(&self, number: u64) -> io::Result<File> {
        let held = i32::try_from(number)
            .ok()
            .and_then(|number| self.files.get(&number));
        held.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?
            .0
            .try_clone()
    }

    /// How many files that it holds are neither nameless nor made by this tree.
    pub(crate) fn foreign(&self) -> usize {
        let is_foreign = |(file, key): &&(File, Key)| {
            let is_named = file.metadata().is_ok_and(|about| about.nlink() > 0);
            is_named && !self.segments.is_own(*key)
        };
        let keys: HashSet<Key> = self
            .files
            .values()
            .filter(is_foreign)
            .map(|(_, key)| *key)
            .collect();
        keys.len()
    }

    /// Closes the file that `hold` gave this number.
    pub(crate) fn drop(&mut self, number: u64) {
        let held = i32::try_from(number)
            .ok()
            .and_then(|number| self.files.remove(&number));
        if let Some((_, key)) = held {
            self.segments.view_ends(key, self.group);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (_, key) in self.files.values() {
            self.segments.view_ends(*key, self.group);
        }
    }
}

/// Descriptor `fd` of `pid`, if it is of this file.
pub(crate) fn meant(pid: i32, fd: u64, key: Key) -> io::Result<(File, Key)> {
    let fd = i32::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let file = descriptor::duplicate(pid, fd)?;
    let found = file.metadata()?;
    if (found.dev(), found.ino()) != key {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    Ok((file, key))
}
