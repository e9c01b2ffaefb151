//! Segments: files of /dev/shm that processes of a tree make and map by their names (crates/agent, segment.c).
//!
//! The leaders map the file itself. For each follower index there is a copy, which every process of the tree attaches by its
//! number: a System V segment, since a number needs no descriptor, and no right that a program may have given up.
//!
//! Invariants
//!  1. A file becomes a segment only if a process of this tree has made it, and at its first mapping by a process that is
//!     not alone, before anybody has stored to it through memory.
//!  2. Processes whose turns are taken from different batons (domain.c) never share one: refused.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_sys::shared::Shared;

use crate::abi;

/// In place of a segment's number: where its path stands (segment.c).
const BY_PATH: u64 = 1 << 63;

/// How a process comes to a segment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Way<'a> {
    Number(i32),
    Path(&'a Path),
}

/// Where a process is to map part of one.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// In the segment.
    pub(crate) offset: u64,
    /// 1 to read, 2 to write, 4 to execute.
    pub(crate) rights: u64,
    pub(crate) way: Way<'a>,
}

/// What a process is told to map (crates/agent, `sf_segments_anew`). Nothing: there is no room for all of it.
pub(crate) fn list(places: &[Place<'_>]) -> Option<Vec<u8>> {
    let mut words = vec![places.len() as u64];
    let mut paths = Vec::new();
    let behind = 8 * (1 + 5 * places.len());
    for place in places {
        let way = match place.way {
            Way::Number(number) => u64::try_from(number).ok()?,
            Way::Path(path) => {
                let at = behind + paths.len();
                paths.extend_from_slice(path.as_os_str().as_bytes());
                paths.push(0);
                BY_PATH | at as u64
            }
        };
        words.extend([place.at, place.bytes, place.offset, way, place.rights]);
    }
    let mut list: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    list.append(&mut paths);
    (abi::OFF_REMAP + list.len() <= abi::OFF_UNDO).then_some(list)
}

/// Device and inode.
pub(crate) type Key = (u64, u64);

/// Files that are remembered. A program that makes more of them in a tmpfs maps those that it made first as views.
const MADE_MAX: usize = 65_536;
/// Segments that nobody maps, whose files have no name any more. One that a process maps by its descriptor later is made again from
/// its file.
const UNLINKED_MAX: usize = 32;
const PAGE: u64 = 4096;

#[derive(Debug)]
struct Segment {
    key: Key,
    file: File,
    bytes: u64,
    domain: u64,
    copies: Vec<Shared>,
}

impl Segment {
    /// By its name, as long as that is its own; else by this process's descriptor, which takes a right to look at this process.
    fn path(&self) -> PathBuf {
        let fd = self.file.as_raw_fd();
        let is_its = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|about| (about.dev(), about.ino()) == self.key)
        };
        let name = fs::read_link(format!("/proc/self/fd/{fd}"));
        let held = || PathBuf::from(format!("/proc/{}/fd/{fd}", std::process::id()));
        name.ok().filter(is_its).unwrap_or_else(held)
    }
}

#[derive(Debug, Default)]
struct Known {
    made: HashSet<Key>,
    /// Memory objects of processes of the tree (memfd_create(2)): whether others have them, too.
    memory: HashMap<Key, bool>,
    order: VecDeque<Key>,
    live: Vec<Segment>,
    /// Groups that map a file as a view, and how often.
    views: HashMap<(Key, usize), usize>,
    /// Files that are, or were, views of several processes which take turns.
    in_turns: HashSet<Key>,
}

/// All that a tree knows of such files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Segments(Arc<Mutex<Known>>);

/// A process that is about to map a file.
#[derive(Debug)]
pub(crate) struct Asks {
    pub(crate) group: usize,
    pub(crate) domain: u64,
    /// How far into the file, in whole pages.
    pub(crate) end: u64,
    /// It shares memory already, or is about to, or has company.
    pub(crate) in_company: bool,
    pub(crate) followers: usize,
}

impl Segments {
    fn with<T>(&self, f: impl FnOnce(&mut Known) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A process of the tree has made this file.
    pub(crate) fn made(&self, key: Key) {
        self.with(|known| {
            if known.made.insert(key) {
                known.remember(key);
            }
        });
    }

    /// ... or this memory object.
    pub(crate) fn made_memory(&self, key: Key) {
        self.with(|known| {
            if known.memory.insert(key, false).is_none() {
                known.remember(key);
            }
        });
    }

    /// Other processes may map it from here on, if it is one.
    pub(crate) fn handed_on(&self, key: Key) {
        self.with(|known| {
            if let Some(others) = known.memory.get_mut(&key) {
                *others = true;
            }
        });
    }

    /// A process makes another one, which has its descriptors.
    pub(crate) fn all_handed_on(&self) {
        self.with(|known| known.memory.values_mut().for_each(|others| *others = true));
    }

    /// Whether it is a memory object of the tree.
    pub(crate) fn is_memory(&self, key: Key) -> bool {
        self.with(|known| known.memory.contains_key(&key))
    }

    /// Whether a process of the tree has made it, and this is remembered.
    pub(crate) fn is_own(&self, key: Key) -> bool {
        self.with(|known| known.made.contains(&key) || known.memory.contains_key(&key))
    }

    pub(crate) fn viewed(&self, key: Key, group: usize) {
        self.with(|known| *known.views.entry((key, group)).or_default() += 1);
    }

    pub(crate) fn view_ends(&self, key: Key, group: usize) {
        self.with(|known| {
            if let Some(n) = known.views.get_mut(&(key, group)) {
                *n -= 1;
                if *n == 0 {
                    known.views.remove(&(key, group));
                }
            }
        });
    }

    /// A process that has this file as a view makes a copy of itself.
    pub(crate) fn in_turns(&self, key: Key) {
        self.with(|known| {
            known.in_turns.insert(key);
        });
    }

    /// Whether a group but this one has the file as a view: 0, 1, or [`abi::OTHERS_IN_TURNS`].
    pub(crate) fn viewed_by_others(&self, key: Key, group: usize) -> i64 {
        self.with(|known| {
            if known.in_turns.contains(&key) {
                abi::OTHERS_IN_TURNS
            } else {
                known.viewed_by_others(key, group).into()
            }
        })
    }

    /// The number of the copy of this inode that follower `r` maps.
    pub(crate) fn copy_of(&self, inode: u64, r: usize) -> Option<i32> {
        self.with(|known| {
            let segment = known.live.iter().find(|one| one.key.1 == inode)?;
            segment.copies.get(r.checked_sub(1)?)?.id()
        })
    }

    /// Where the file is opened that has this copy at follower `r`.
    pub(crate) fn path_of(&self, copy: i32, r: usize) -> Option<PathBuf> {
        self.with(|known| {
            let is_copy = |one: &&Segment| {
                let copy_of = one.copies.get(r.checked_sub(1)?)?;
                (copy_of.id()? == copy).then_some(())
            };
            let segment = known.live.iter().find(|one| is_copy(one).is_some())?;
            Some(segment.path())
        })
    }

    /// How long a file is that processes share as memory, and the numbers of its copies, one for each follower; `None`: it is
    /// none.
    ///
    /// # Errors
    /// Those processes have their turns from another baton.
    pub(crate) fn copies(&self, key: Key, domain: u64) -> io::Result<Option<(u64, Vec<i32>)>> {
        self.with(|known| {
            let Some(segment) = known.live.iter().find(|one| one.key == key) else {
                return Ok(None);
            };
            if segment.domain != domain {
                return Err(io::Error::from_raw_os_error(libc::EXDEV));
            }
            let numbers = segment.copies.iter().filter_map(Shared::id).collect();
            Ok(Some((segment.bytes, numbers)))
        })
    }

    /// The numbers of a file's copies, one for each follower; `None`: it is to be a view.
    ///
    /// # Errors
    /// Why it can be neither.
    pub(crate) fn map(&self, file: File, asks: &Asks) -> io::Result<Option<Vec<i32>>> {
        let about = file.metadata()?;
        let key = (about.dev(), about.ino());
        self.with(|known| {
            known.forget_the_unlinked();
            let Some(segment) = known.live.iter().find(|one| one.key == key) else {
                if !asks.in_company || !known.may_be_shared(key) {
                    return Ok(None);
                }
                // What another group has as a view it would not see.
                if known.viewed_by_others(key, asks.group) {
                    return Err(io::Error::from_raw_os_error(libc::EBUSY));
                }
                let segment = Segment::new(key, file, asks)?;
                let numbers = segment.numbers(asks, about.len());
                known.live.push(segment);
                return numbers.map(Some);
            };
            segment.numbers(asks, about.len()).map(Some)
        })
    }
}

impl Known {
    fn remember(&mut self, key: Key) {
        self.order.push_back(key);
        if self.order.len() > MADE_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.made.remove(&oldest);
            self.memory.remove(&oldest);
        }
    }

    fn may_be_shared(&self, key: Key) -> bool {
        self.made.contains(&key) || self.memory.get(&key) == Some(&true)
    }

    fn viewed_by_others(&self, key: Key, group: usize) -> bool {
        self.views
            .keys()
            .any(|(seen, by)| *seen == key && *by != group)
    }

    fn forget_the_unlinked(&mut self) {
        let mut gone = 0;
        for index in (0..self.live.len()).rev() {
            if self.live[index]
                .file
                .metadata()
                .is_ok_and(|about| about.nlink() > 0)
            {
                continue;
            }
            gone += 1;
            if gone > UNLINKED_MAX && !self.live[index].is_attached() {
                self.live.remove(index);
            }
        }
    }
}

impl Segment {
    fn new(key: Key, file: File, asks: &Asks) -> io::Result<Self> {
        let about = file.metadata()?;
        let bytes = about.len();
        let whole = usize::try_from(bytes.next_multiple_of(PAGE)).map_err(io::Error::other)?;
        let owner = (about.uid(), about.gid());
        // Who has the file open may map it whatever its mode says by now, and a copy is asked for its own.
        let rights = about.mode() | 0o600;
        let copies = (0..asks.followers)
            .map(|_| Shared::attachable(whole, owner, rights))
            .collect::<io::Result<Vec<_>>>()?;
        fill(&file, bytes, &copies)?;
        Ok(Self {
            key,
            file,
            bytes,
            domain: asks.domain,
            copies,
        })
    }

    /// Whether a follower has a copy attached.
    fn is_attached(&self) -> bool {
        self.copies.iter().any(|copy| copy.attached() > 1)
    }

    fn numbers(&self, asks: &Asks, bytes: u64) -> io::Result<Vec<i32>> {
        let errno = io::Error::from_raw_os_error;
        if self.domain != asks.domain {
            return Err(errno(libc::EXDEV));
        }
        // A copy cannot grow, and has nothing behind its end.
        if self.bytes != bytes || asks.end > bytes.next_multiple_of(PAGE) {
            return Err(errno(libc::EFBIG));
        }
        Ok(self.copies.iter().filter_map(Shared::id).collect())
    }
}

/// What the file holds, to all copies; pages of zeros they have already.
fn fill(file: &File, bytes: u64, copies: &[Shared]) -> io::Result<()> {
    let mut page = vec![0_u8; 64 * 1024];
    let mut at = 0_u64;
    while at < bytes {
        let n = file.read_at(&mut page, at)?;
        if n == 0 {
            break;
        }
        let got = &page[..n.min(usize::try_from(bytes - at).unwrap_or(n))];
        if got.iter().any(|byte| *byte != 0) {
            for copy in copies {
                copy.write(usize::try_from(at).map_err(io::Error::other)?, got);
            }
        }
        at += got.len() as u64;
    }
    Ok(())
}
