//! Status: what each launcher shows of its groups, and who reads it (`steadfast ps`, `steadfast top`).
//!
//! ```text
//!   supervisor ──► row of a memfd, in the launcher alone ──► /proc/LAUNCHER/fd/N ──► trees()
//! ```
//!
//! A launcher keeps one memfd with a row for each group. The memory lives as long as the launcher, so a launcher that is
//! killed leaves nothing behind. Readers find it by its name in /proc, where the kernel checks who may look.
//!
//! Invariants
//!  1. A row is read twice and taken only if both are equal and no writer was at it.
//!  2. Nothing is decided by a row: no replica has this memory, and no launcher reads its own.
//!  3. A copy of the descriptor in another process is no launcher: number and start time in the header must be the owner's.
//!  4. What an ended group has counted stays in the header, and moves there in one step for readers: sums never go back.
//!
//! Not covered: launchers of other users and of other pid namespaces. A container's trees are listed inside it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_sys::procfs;
use steadfast_sys::shared::Shared;
pub use steadfast_sys::terminal::size_of_output;

use crate::abi;

const NAME: &std::ffi::CStr = c"steadfast-status";
/// How /proc/PID/fd shows it (proc_pid_fd(5)).
const LINK: &str = "/memfd:steadfast-status (deleted)";
/// Another layout has another number, and its readers skip this one.
const MAGIC: u64 = 0x5354_4154_5553_0003;
const WORDS: usize = 32;
const ROW: usize = 8 * WORDS;
/// One row for each leader that the reaper knows, the first group's, and the header, which is row 0.
/// Leaders that the reaper knows at most; more are refused.
pub(crate) const LEADERS_MAX: usize = 4096;
const ROWS: usize = LEADERS_MAX + 2;
/// Words of the header behind the magic number: the launcher, what the caller waits for, and the groups that have ended.
const OWNER: usize = 1;
const FRONT: usize = 3;
const MOVES: usize = 5;
const PAST: usize = 6;
const HEADER: usize = 9;
/// How often a reader tries for a moment at which nobody writes.
const TRIES: usize = 100;
/// Words of a row: the replicas follow.
const VERSION: usize = 0;
const TAKEN: usize = 1;
const AT_NS: usize = 4;
const EVENTS: usize = 5;
const REPAIRS: usize = 6;
const REPLICAS: usize = 9;
const _: () = assert!(REPLICAS + abi::SLOTS_MAX <= WORDS);

/// What a group is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Running,
    /// Replicas stand still while one is made anew.
    Repairing,
    /// Job control has stopped its leader.
    Stopped,
}

impl State {
    /// As tables and JSON say it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Repairing => "repairing",
            Self::Stopped => "stopped",
        }
    }
}

/// One process that stands for a group's program. Nobody: pid 0, while it is made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replica {
    pub pid: i32,
    /// Where it was placed; the kernel chooses if nothing is said.
    pub core: Option<u32>,
}

/// One process of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The leader's: the program's own number.
    pub pid: i32,
    pub command: Vec<String>,
    /// The leader first.
    pub replicas: Vec<Replica>,
    pub threads: u32,
    /// Events since this process became a group.
    pub events: u64,
    pub repairs: u64,
    pub state: State,
    /// When the launcher wrote this, on its own clock.
    pub at_ns: u64,
}

/// What all processes of a run have counted, those that have ended too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    pub processes: u64,
    pub events: u64,
    pub repairs: u64,
}

/// One run: a launcher and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// What the caller started, while that runs; else the process that has stayed for the others.
    pub launcher: i32,
    pub groups: Vec<Group>,
    pub totals: Totals,
}

/// What a supervisor tells of its group.
#[derive(Debug, Clone)]
pub(crate) struct Shown<'a> {
    pub(crate) repairing: bool,
    pub(crate) threads: u32,
    pub(crate) events: u64,
    pub(crate) repairs: u64,
    pub(crate) at_ns: u64,
    pub(crate) replicas: &'a [Replica],
}

/// The memory of one launcher.
#[derive(Debug)]
pub(crate) struct Table {
    memory: Shared,
    /// One group at a time moves its counts to the header.
    moves: Mutex<()>,
}

impl Table {
    /// `front`: the process that the caller waits for, where that is not this one.
    pub(crate) fn new(front: Option<i32>) -> io::Result<Arc<Self>> {
        let memory = Shared::new(NAME, ROW * ROWS)?;
        if let Some(pid) = front {
            memory.set64(8 * FRONT, u64::try_from(pid).unwrap_or(0));
            memory.set64(8 * (FRONT + 1), procfs::start_time(pid).unwrap_or(0));
        }
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        memory.set64(8 * OWNER, u64::try_from(own).unwrap_or(0));
        memory.set64(8 * (OWNER + 1), procfs::start_time(own).unwrap_or(0));
        memory.set64(0, MAGIC);
        let moves = Mutex::default();
        Ok(Arc::new(Self { memory, moves }))
    }

    /// The sum over all rows, as their groups have written it last.
    pub(crate) fn events(&self) -> u64 {
        (1..ROWS)
            .filter(|row| self.memory.get64(ROW * row + 8 * TAKEN) != 0)
            .map(|row| self.memory.get64(ROW * row + 8 * EVENTS))
            .sum()
    }

    /// A row of one's own. Nothing: all are taken.
    pub(crate) fn row(self: &Arc<Self>) -> Option<Row> {
        use std::sync::atomic::Ordering::SeqCst;
        let taken = |row: &usize| self.memory.u64(ROW * row + 8 * TAKEN);
        let free =
            (1..ROWS).find(|row| taken(row).compare_exchange(0, 1, SeqCst, SeqCst).is_ok())?;
        Some(Row {
            table: Arc::clone(self),
            at: ROW * free,
            leader: (0, 0),
        })
    }
}

/// A group's place in the table; empty again when it is dropped.
#[derive(Debug)]
pub(crate) struct Row {
    table: Arc<Table>,
    at: usize,
    /// Number and start time of the leader that was shown last.
    leader: (i32, u64),
}

impl Row {
    pub(crate) fn show(&mut self, shown: &Shown<'_>) {
        let leader = shown.replicas.first().map_or(0, |replica| replica.pid);
        if leader != self.leader.0 {
            self.leader = (leader, procfs::start_time(leader).unwrap_or(0));
        }
        let count = shown.replicas.len().min(abi::SLOTS_MAX);
        let mut words = vec![
            u64::try_from(leader).unwrap_or(0),
            self.leader.1,
            shown.at_ns,
            shown.events,
            shown.repairs,
            u64::from(shown.threads),
            count as u64 | u64::from(shown.repairing) << 32,
        ];
        words.extend(shown.replicas[..count].iter().map(|replica| {
            let core = replica.core.map_or(u32::MAX, |core| core);
            u64::from(core) << 32 | u64::from(replica.pid.cast_unsigned())
        }));
        self.write(&words);
    }

    fn write(&self, words: &[u64]) {
        let memory = &self.table.memory;
        let version = memory.get64(self.at + 8 * VERSION);
        memory.set64(self.at + 8 * VERSION, version | 1);
        for (index, word) in words.iter().enumerate() {
            memory.set64(self.at + 8 * (TAKEN + 1 + index), *word);
        }
        memory.set64(self.at + 8 * VERSION, (version | 1) + 1);
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        let memory = &self.table.memory;
        let _one = self
            .table
            .moves
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let moves = memory.get64(8 * MOVES);
        memory.set64(8 * MOVES, moves | 1);
        let shown = u64::from(memory.get64(self.at + 8 * AT_NS) != 0);
        let [events, repairs] =
            [EVENTS, REPAIRS].map(|word| memory.get64(self.at + 8 * word) * shown);
        for (index, more) in [shown, events, repairs].into_iter().enumerate() {
            let past = memory.get64(8 * (PAST + index));
            memory.set64(8 * (PAST + index), past.wrapping_add(more));
        }
        self.write(&[0; REPAIRS - TAKEN]);
        memory.set64(self.at + 8 * TAKEN, 0);
        memory.set64(8 * MOVES, (moves | 1) + 1);
    }
}

/// Every running tree of this user, by the number of its launcher.
///
/// # Errors
/// When /proc cannot be read. A process that ends meanwhile is no error.
pub fn trees() -> io::Result<Vec<Tree>> {
    let own = fs::metadata("/proc/self")?.uid();
    let mut trees = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // Of one that is another's, or has just ended, nothing is read.
        if entry.metadata().is_ok_and(|meta| meta.uid() == own)
            && let Some((table, launcher)) = table_of(pid)
        {
            trees.push(tree(&table, launcher));
        }
    }
    trees.sort_by_key(|tree| tree.launcher);
    Ok(trees)
}

/// The table of process `pid`, and the number that its run is known by.
fn table_of(pid: i32) -> Option<(File, i32)> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .ok()?
        .flatten()
        .filter(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.as_os_str() == LINK))
        .filter_map(|fd| File::open(fd.path()).ok())
        .find_map(|table| {
            let header = header_of(&table)?;
            let is_its = word(&header, 0) == MAGIC
                && word(&header, OWNER) == u64::from(pid.cast_unsigned())
                && Some(word(&header, OWNER + 1)) == procfs::start_time(pid);
            let front = i32::try_from(word(&header, FRONT)).ok().filter(|front| {
                *front > 1
                    && procfs::start_time(*front) == Some(word(&header, FRONT + 1))
                    && !procfs::has_ended(*front)
            });
            is_its.then_some((table, front.unwrap_or(pid)))
        })
}

fn word(row: &[u8], index: usize) -> u64 {
    let bytes = &row[8 * index..8 * index + 8];
    u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("masked")
}

fn header_of(table: &File) -> Option<[u8; 8 * HEADER]> {
    let mut header = [0; 8 * HEADER];
    table.read_exact_at(&mut header, 0).ok()?;
    Some(header)
}

/// What a launcher shows, of one moment.
fn tree(table: &File, launcher: i32) -> Tree {
    let header = || header_of(table).unwrap_or([0; 8 * HEADER]);
    let mut before = header();
    for _ in 0..TRIES {
        let rows = rows(table);
        let after = header();
        if word(&after, MOVES).is_multiple_of(2) && after == before {
            let mut totals = Totals {
                processes: word(&after, PAST),
                events: word(&after, PAST + 1),
                repairs: word(&after, PAST + 2),
            };
            // One that has ended and is being wound up counts, and is not listed.
            for row in rows.iter().filter(|row| word(*row, AT_NS) != 0) {
                totals.processes += 1;
                totals.events = totals.events.wrapping_add(word(row, EVENTS));
                totals.repairs = totals.repairs.wrapping_add(word(row, REPAIRS));
            }
            let mut groups: Vec<Group> = rows.iter().filter_map(|row| group(row)).collect();
            groups.sort_by_key(|group| group.pid);
            return Tree {
                launcher,
                groups,
                totals,
            };
        }
        before = after;
    }
    // Its launcher stands in the middle of it.
    Tree {
        launcher,
        groups: Vec::new(),
        totals: Totals::default(),
    }
}

fn rows(table: &File) -> Vec<[u8; ROW]> {
    (1..ROWS)
        .map_while(|index| row_of(table, index))
        .filter(|row| word(row, TAKEN) != 0)
        .collect()
}

/// Nothing: no row was ever taken from here on, since the lowest free one is.
fn row_of(table: &File, index: usize) -> Option<[u8; ROW]> {
    let read = || {
        let mut row = [0; ROW];
        table.read_exact_at(&mut row, (ROW * index) as u64).ok()?;
        Some(row)
    };
    let mut last = read()?;
    for _ in 0..TRIES {
        let next = read()?;
        if next == last && word(&next, VERSION).is_multiple_of(2) {
            let ever = word(&next, VERSION) != 0 || word(&next, TAKEN) != 0;
            return ever.then_some(next);
        }
        last = next;
    }
    // Its writer stands in the middle of it.
    Some([0; ROW])
}

fn group(row: &[u8]) -> Option<Group> {
    let field = |index: usize| word(row, TAKEN + 1 + index);
    let pid = i32::try_from(field(0)).ok().filter(|pid| *pid > 1)?;
    if procfs::start_time(pid) != Some(field(1)) || procfs::has_ended(pid) {
        return None;
    }
    let count = usize::try_from(low(field(6))).ok()?.min(abi::SLOTS_MAX);
    let replicas = (0..count).map(|r| {
        let (core, pid) = (
            low(word(row, REPLICAS + r) >> 32),
            low(word(row, REPLICAS + r)),
        );
        Replica {
            pid: pid.cast_signed(),
            core: (core != u32::MAX).then_some(core),
        }
    });
    let state = match (procfs::is_stopped(pid), field(6) >> 32) {
        (true, _) => State::Stopped,
        (false, 0) => State::Running,
        (false, _) => State::Repairing,
    };
    Some(Group {
        pid,
        command: procfs::command_line(pid),
        replicas: replicas.collect(),
        threads: low(field(5)),
        events: word(row, EVENTS),
        repairs: word(row, REPAIRS),
        state,
        at_ns: word(row, AT_NS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_listed_while_its_row_lives_and_only_for_the_process_that_it_names() {
        let table = Table::new(None).expect("a memfd");
        let own = i32::try_from(std::process::id()).expect("a process number");
        let mine = || {
            let trees = trees().expect("/proc");
            trees.into_iter().find(|tree| tree.launcher == own)
        };
        assert_eq!(mine().expect("a launcher").groups, []);

        let mut row = table.row().expect("a free row");
        assert_eq!(
            mine().expect("a launcher").groups,
            [],
            "taken, not yet shown"
        );
        let replicas = [
            Replica {
                pid: own,
                core: Some(3),
            },
            Replica {
                pid: 77,
                core: None,
            },
        ];
        let shown = Shown {
            repairing: true,
            threads: 4,
            events: u64::MAX,
            repairs: 2,
            at_ns: 9,
            replicas: &replicas,
        };
        row.show(&shown);
        let totals = Totals {
            processes: 1,
            events: u64::MAX,
            repairs: 2,
        };
        let seen = mine().expect("a launcher");
        assert_eq!(seen.totals, totals);
        let groups = seen.groups;
        assert_eq!(groups.len(), 1);
        let group = &groups[0];
        assert_eq!((group.pid, group.threads, group.events), (own, 4, u64::MAX));
        assert_eq!((group.repairs, group.at_ns), (2, 9));
        assert_eq!(
            (group.state, &group.replicas[..]),
            (State::Repairing, &replicas[..])
        );
        assert!(!group.command.is_empty());

        // A number that is another process's by now: it has ended, and what it counted stays.
        table.memory.set64(row.at + 8 * (TAKEN + 2), 1);
        let ended = mine().expect("a launcher");
        assert_eq!((ended.groups, ended.totals), (Vec::new(), totals));
        row.show(&shown);
        // A writer that stands in the middle of it.
        let version = table.memory.get64(row.at);
        table.memory.set64(row.at, version | 1);
        assert_eq!(mine().expect("a launcher").groups, []);
        table.memory.set64(row.at, version);
        assert_eq!(mine().expect("a launcher").groups.len(), 1);

        let other = table.row().expect("another");
        assert_ne!(other.at, row.at);
        drop(row);
        let ended = mine().expect("a launcher");
        assert_eq!((ended.groups, ended.totals), (Vec::new(), totals));
        drop(other);
        assert_eq!(mine().expect("a launcher").totals, totals, "never shown");

        // A copy of the descriptor in a process that is no launcher.
        table.memory.set64(16, 1);
        assert_eq!(mine(), None);
    }
}
