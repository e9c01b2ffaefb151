//! Transplant: the memory of one process becomes that of another, page by page, in place.
//!
//! Invariant: a page is written where its bytes differ, and only there. What is the file's page in one process is given back
//! to the file in the other: a copy with the same bytes would count as memory of the program's own (epoch.c).
//!
//! Not covered: mappings that differ. The caller makes them first (recover.c, `sf_remap`), or gives up.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use steadfast_sys::memory::Remote;
use steadfast_sys::procfs;

use crate::abi::{self, cmd};
use crate::group::Group;

/// Bytes compared at a time: half of a second-level cache, for two buffers.
const COPY: usize = 256 << 10;
const PAGE: usize = 4096;
/// A paused process answers at once.
const ANSWER: Duration = Duration::from_secs(20);

/// The agent's, the log, or the page of a domain.
fn is_ours(map: &procfs::Mapping) -> bool {
    map.range.start < abi::AGENT_END && map.range.end > abi::BASE
}

/// Mappings that hold the program's state: not the agent's, the log or the kernel's.
pub(crate) fn transplanted(map: &procfs::Mapping) -> bool {
    !is_ours(map) && !of_the_kernel(map) && map.path != Path::new("[vsyscall]") && !map.shared
}

/// What the agent holds of files that are mapped shared: copies where a page is its own (settle.c).
fn is_ref(map: &procfs::Mapping) -> bool {
    abi::REFS.contains(&map.range.start) && !map.shared
}

/// Memory that processes share.
pub(crate) fn is_segment(map: &procfs::Mapping) -> bool {
    map.shared && !is_ours(map)
}

pub(crate) fn of_the_kernel(map: &procfs::Mapping) -> bool {
    [&"[vdso]", &"[vvar]", &"[vvar_vclock]"]
        .iter()
        .any(|name| map.path == Path::new(name))
}

/// What a new process has to map to be like one with these mappings (recover.c, `sf_remap`). Nothing: it has no stack.
pub(crate) fn remap_list(maps: &[procfs::Mapping]) -> Option<Vec<u8>> {
    let stack = maps.iter().find(|m| m.path == Path::new("[stack]"))?;
    let heap = || maps.iter().filter(|m| m.path == Path::new("[heap]"));
    let heap_end = heap().map(|m| m.range.end).max().unwrap_or(0);
    let list: Vec<u64> = maps
        .iter()
        // What the program has closed or made code of is no longer as brk made it.
        .filter(|m| {
            transplanted(m) && (m.path != Path::new("[heap]") || m.executable || !m.writable)
        })
        .filter(|m| m.range.end <= stack.range.start)
        .flat_map(|m| {
            let protection =
                u64::from(m.readable) | u64::from(m.writable) << 1 | u64::from(m.executable) << 2;
            [m.range.start, m.range.end - m.range.start, protection]
        })
        .collect();
    let kernel = maps.iter().filter(|m| of_the_kernel(m));
    let (from, to) = kernel.fold((u64::MAX, 0), |(from, to), m| {
        (from.min(m.range.start), to.max(m.range.end))
    });
    let words = [
        list.len() as u64 / 3,
        stack.range.start,
        stack.range.end,
        heap_end,
        from,
        to,
    ];
    let bytes: Vec<u8> = words
        .iter()
        .chain(&list)
        .flat_map(|w| w.to_le_bytes())
        .collect();
    (abi::OFF_REMAP + bytes.len() <= abi::REMAP_END).then_some(bytes)
}

fn covered(maps: &[procfs::Mapping], wanted: &procfs::Mapping) -> bool {
    maps.iter().any(|m| {
        m.range.start <= wanted.range.start
            && m.range.end >= wanted.range.end
            && (m.readable, m.writable, m.executable)
                == (wanted.readable, wanted.writable, wanted.executable)
    })
}

/// Two processes, and room for a piece of each.
struct Copier {
    from: Remote,
    to: Remote,
    theirs: Vec<u8>,
    ours: Vec<u8>,
    pages: u64,
}

impl Copier {
    fn new(from_pid: i32, to_pid: i32) -> io::Result<Self> {
        Ok(Self {
            from: Remote::open(from_pid)?,
            to: Remote::open(to_pid)?,
            theirs: vec![0; COPY],
            ours: vec![0; COPY],
            pages: 0,
        })
    }

    fn piece(&mut self, at: u64, len: usize) -> io::Result<()> {
        self.from.read_sparse(at, &mut self.theirs[..len])?;
        self.to.read_sparse(at, &mut self.ours[..len])?;
        if self.theirs[..len] == self.ours[..len] {
            return Ok(());
        }
        for page in (0..len).step_by(PAGE) {
            let right = &self.theirs[page..page + PAGE];
            if *right != self.ours[page..page + PAGE] {
                self.to.write(at + page as u64, right)?;
                self.pages += 1;
            }
        }
        Ok(())
    }

    fn run(&mut self, run: &Range<u64>) -> io::Result<()> {
        for at in run.clone().step_by(COPY) {
            let piece = at..run.end.min(at + COPY as u64);
            for own in self.apart(&piece) {
                let len = usize::try_from(own.end - own.start).expect("bounded by COPY");
                self.piece(own.start, len)?;
            }
        }
        Ok(())
    }

    /// Of a piece, what is not one and the same page in both: copies of one snapshot share what neither has written since. Both are
    /// paused, so no page goes from one to the other meanwhile.
    fn apart(&self, piece: &Range<u64>) -> Vec<Range<u64>> {
        let (Ok(theirs), Ok(ours)) = (self.from.frames(piece), self.to.frames(piece)) else {
            return vec![piece.clone()];
        };
        let mut runs: Vec<Range<u64>> = Vec::new();
        let pages = piece.clone().step_by(PAGE);
        for (at, (their, our)) in pages.zip(theirs.iter().zip(&ours)) {
            match runs.last_mut() {
                _ if their == our && *our != 0 => {}
                Some(run) if run.end == at => run.end += PAGE as u64,
                _ => runs.push(at..at + PAGE as u64),
            }
        }
        runs
    }
}

/// Copies what differs of a process's memory to the paused process of a slot. How many pages that were; nothing: their
/// mappings differ. `fresh`: the other process has nothing of files.
pub(crate) fn copy(
    group: &Group,
    from_pid: i32,
    (slot, to_pid): (usize, i32),
    fresh: bool,
) -> io::Result<Option<u64>> {
    let mut copier = Copier::new(from_pid, to_pid)?;
    let source = procfs::maps(from_pid)?;
    let Some(stack) = source.iter().find(|m| m.path == Path::new("[stack]")) else {
        return Err(io::Error::other("a process without a stack"));
    };
    group.order(slot, cmd::TOUCH, stack.range.start, ANSWER);
    let target = procfs::maps(to_pid)?;
    for map in source.iter().filter(|m| transplanted(m) || is_ref(m)) {
        if !fresh && !covered(&target, map) {
            return Ok(None);
        }
        // Of a file the new process has nothing, nor one that was new once.
        let has_the_file = |at: u64| {
            let its = target.iter().find(|its| its.range.contains(&at));
            its.is_some_and(|its| (its.inode, &its.path) == (map.inode, &map.path))
        };
        let whole = fresh && map.readable && map.inode != 0;
        let runs = if whole {
            vec![map.range.clone()]
        } else {
            copier.from.owned(map.range.clone())?
        };
        let mut stale = if fresh {
            Vec::new()
        } else {
            copier.to.owned(map.range.clone())?
        };
        for run in runs {
            copier.run(&run)?;
            stale.retain(|s| !(run.start <= s.start && s.end <= run.end));
        }
        // Pages only the loser has made its own: as the winner sees them.
        for at in stale.into_iter().flat_map(|run| run.step_by(PAGE)) {
            if !fresh && !map.writable && map.inode != 0 && has_the_file(at) {
                group.order(slot, cmd::DROP, at, ANSWER);
            } else {
                copier.piece(at, PAGE)?;
            }
        }
    }
    Ok(Some(copier.pages))
}

/// Copies what differs of the memory that processes share (domain.c), between two that hold the baton of their indexes. How many pages
/// that were; nothing: the two do not map the same.
pub(crate) fn copy_segments(from_pid: i32, to_pid: i32) -> io::Result<Option<u64>> {
    let mut copier = Copier::new(from_pid, to_pid)?;
    let (source, target) = (procfs::maps(from_pid)?, procfs::maps(to_pid)?);
    for map in source.iter().filter(|m| is_segment(m) && m.writable) {
        if !covered(&target, map) {
            return Ok(None);
        }
        copier.run(&map.range)?;
    }
    Ok(Some(copier.pages))
}

/// Copies what differs of these ranges.
pub(crate) fn copy_ranges<'a>(
    from_pid: i32,
    to_pid: i32,
    ranges: impl Iterator<Item = &'a Range<u64>>,
) -> io::Result<()> {
    let mut copier = Copier::new(from_pid, to_pid)?;
    for range in ranges {
        copier.run(range)?;
    }
    Ok(())
}
