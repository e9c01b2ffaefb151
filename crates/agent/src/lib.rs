//! The agent's image: freestanding C that the launcher writes into every replica.
//!
//! [`ELF`] is the linked image with its symbols. Its text is mapped at the address it was
//! linked for; nothing is relocated. See `agent.h` for the rules its code obeys.

/// The linked image.
pub static ELF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.elf"));

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// Name of a system call and the note of its row in `calls.def`.
#[must_use]
pub fn call(number: u32) -> (&'static str, &'static str) {
    CALLS.iter().find(|(nr, ..)| *nr == number).map_or(
        (
            "an unknown system call",
            "its number is above the highest known at build",
        ),
        |(_, name, note)| (name, note),
    )
}

/// A call or command as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub name: String,
    /// Why it is treated as it is, and what to do about it after `; fix: `.
    pub note: String,
}

/// Things that are refused like a call and have no number (`abi.h`, `SF_NR_*`).
const NO_CALLS: &[(u32, &str, &str)] = &[
    (
        0x8000_0080,
        "a 32-bit system call (int 0x80)",
        "its arguments are not understood; fix: use a 64-bit build of the program",
    ),
    (
        0x8000_0100,
        "single-stepping itself (the trace flag)",
        "the trap would strike inside the agent; fix: run the program without steadfast",
    ),
    (
        0x8000_0101,
        "opening /proc/PID/mem for writing",
        "the stores would reach one replica alone; fix: run the program without steadfast",
    ),
    (
        0x8000_0102,
        "a shared mapping that cannot be written back",
        "it is of a device, of memory without a page cache, of code that may be written, or one too many; fix: configure the program to read and write instead of mapping",
    ),
    (
        0x8000_0103,
        "mapping the same bytes of a file twice, one of the two writable",
        "a store through one mapping would not be seen through the other; fix: make the program map the file once",
    ),
    (
        0x8000_0104,
        "execve with the backstop seccomp",
        "the filter would outlive the agent and stop the new program's first call; fix: --backstop=token, or give the program that is executed to steadfast run",
    ),
    (
        0x8000_0105,
        "execve where the launcher may not trace the program",
        "the new program would run unprotected; fix: sysctl kernel.yama.ptrace_scope=1, or give the program that is executed to steadfast run",
    ),
    (
        0x8000_0106,
        "execve while instructions are counted",
        "counts are of one program; fix: give the program that is executed",
    ),
    (
        0x8000_0114,
        "execve of a program that --unprotected names, in the first process",
        "nothing would be protected any more; fix: run that program without steadfast",
    ),
    (
        0x8000_0107,
        "execve while a record lock is held (fcntl, F_SETLK)",
        "it belongs to the descriptor table that the replicas share, and would be lost; fix: lock with flock(1), or give the program that is executed to steadfast run",
    ),
    (
        0x8000_0120,
        "in a pair: a process (fork, vfork, clone) that shares writable memory with its parent",
        "the order of stores to such memory is not kept equal; fix: run the program as one process",
    ),
    (
        0x8000_0121,
        "in a pair: mapping a protected file shared to change or run it, or any file shared and writable",
        "what is stored there is in no ledger; fix: configure the program to write (sqlite3: PRAGMA locking_mode=EXCLUSIVE before WAL)",
    ),
    (
        0x8000_0123,
        "in a pair: fallocate that cuts or shifts a protected file",
        "the ledger does not follow it; fix: configure the program without it",
    ),
    (
        0x8000_0124,
        "in a pair: a write of more than 64 MiB at once",
        "its bytes do not fit into the log; fix: smaller writes",
    ),
    (
        0x8000_0126,
        "in a pair: truncate(2) by name, to a length that is no multiple of 4096",
        "the ledger does not follow it; fix: ftruncate(2) on a descriptor",
    ),
    (
        0x8000_0127,
        "in a pair: a file or directory that comes by a message (SCM_RIGHTS)",
        "the process that gets it does not know its name; fix: configure the program to open it where it is read",
    ),
    (
        0x8000_0128,
        "in a pair: a write to a part of a page that cannot be read",
        "nobody could say whether the rest of the page is right; fix: steadfast pair verify on both sites, or start the site as a user who may read the file",
    ),
    (
        0x8000_0129,
        "in a pair: a set of semaphores or a queue of System V that the program has not made",
        "the other site's host does not have it; fix: ipcrm on both hosts, if an earlier run has left it behind",
    ),
    (
        0x8000_012a,
        "in a pair: more than 128 segments, sets of semaphores or queues of System V at a time",
        "the other site would not know which of its own is meant; fix: configure the program to make fewer",
    ),
    (
        0x8000_012b,
        "in a pair: changing a protected file that another process has mapped",
        "the other process would not see it; fix: configure the program to read that file instead of mapping it",
    ),
    (
        0x8000_012c,
        "in a pair: another root directory (chroot)",
        "the ledger knows files by their whole paths, which the kernel does not tell from there on; fix: configure the program without it",
    ),
    (
        0x8000_0108,
        "a mapping that is to be copied (--private)",
        "there is no memory for the copy, and without it all replicas would have the same frames; fix: more memory (ulimit -v, the cgroup's limit), or --private without it",
    ),
    (
        0x8000_0109,
        "a child process where replicas have process numbers of their own",
        "its replicas could not be told apart; fix: --equal-pids=off",
    ),
    (
        0x8000_010a,
        "a child process with the backstop seccomp",
        "the filter would outlive the agent and stop the child's first call; fix: --backstop=token",
    ),
    (
        0x8000_010b,
        "fork with memory that parent and child would share",
        "stores of one would not be seen by the other, or outsiders could store to it unseen; fix: make the program keep the file in /dev/shm (made anew), remove its name before it forks, map it private, or start its workers by exec",
    ),
    (
        0x8000_010c,
        "a child process of a child of vfork that has not called exec yet, in a program that shares memory",
        "processes that share memory take turns, and that child has its parent's; fix: make the program use fork",
    ),
    (
        0x8000_010d,
        "a child of vfork that was killed before it called exec",
        "the replicas were in the middle of an event of the agent's; fix: run the program again",
    ),
    (
        0x8000_010e,
        "a call that waits and has memory of several processes among its arguments",
        "others would store to it while the replicas wait; fix: make the program call with memory of its own",
    ),
    (
        0x8000_0110,
        "changing a file, or mapping it once more, that processes share as memory",
        "followers have that memory, and not the file; fix: make the program store to the memory",
    ),
    (
        0x8000_0111,
        "moving or stretching a part of memory that processes share, or more than 256 parts of it",
        "the replicas could not tell any more what they share; fix: make the program map it anew",
    ),
    (
        0x8000_0113,
        "attaching a System V segment that another process has attached before, or that the program has not made",
        "outsiders may store to it at any moment; fix: make the program attach it before it forks, once, or use mmap",
    ),
    (
        0x8000_0115,
        "mapping a file of /dev/shm that one process has mapped alone, or a program of another user, or that has grown since",
        "their turns are taken from different batons; fix: fork the processes that share it, and set its length before it is mapped",
    ),
    (
        0x8000_0116,
        "mapping a file in a child process that has given up the right to open it, or changed its root, since",
        "the replicas open it by way of /proc; fix: make the program map it before it gives up rights",
    ),
    (
        0x8000_0117,
        "waiting for a lock in a file that several programs have mapped shared, outside of /dev/shm or each for itself",
        "none of them sees what another one stores there; fix: keep the lock in memory that is shared by fork (Open MPI: PMIX_MCA_gds=hash and OMPI_MCA_btl=self,tcp in its environment)",
    ),
    (
        0x8000_0112,
        "fork where there is no memory for what parent and child will share",
        "each replica needs its own; fix: more memory (ulimit -v, the cgroup's limit)",
    ),
];

/// What no child of a program can have of its flags for `clone`, the first that is found: bit, name, why not, and what to do.
const CLONE_FLAGS: &[(u64, &str, &str)] = &[
    (
        0x100,
        "CLONE_VM",
        "parent and child would go on in one memory; fix: make the program start a thread (CLONE_THREAD, CLONE_FS, CLONE_FILES, CLONE_SIGHAND), or map what both use MAP_SHARED",
    ),
    (
        0x4000,
        "CLONE_VFORK",
        "a parent waits for its child only where they have one memory; fix: make the program use vfork(2) or posix_spawn(3), or fork(2) and wait for a pipe",
    ),
    (
        0x8000,
        "CLONE_PARENT",
        "a child has to be its caller's, which makes its replicas and waits for it; fix: make the program fork without it, and wait in the process that has called",
    ),
    (
        0x400,
        "CLONE_FILES",
        "parent and child would go on with one table of descriptors; fix: make the program fork without it, and pass descriptors by SCM_RIGHTS",
    ),
    (
        0x200,
        "CLONE_FS",
        "parent and child would go on with one working directory and umask; fix: make the program fork without it",
    ),
    (
        0x800,
        "CLONE_SIGHAND",
        "parent and child would go on with one table of handlers; fix: make the program call without it, as vfork(2) does",
    ),
    (
        0x4_0000,
        "CLONE_SYSVSEM",
        "parent and child would undo each other's semaphores; fix: make the program fork without it",
    ),
    (
        0x8_0000,
        "CLONE_SETTLS",
        "only a thread can have a TLS of its own from the start; fix: make the program set it in the child (ARCH_SET_FS)",
    ),
    (
        0x1000,
        "CLONE_PIDFD",
        "no descriptor can name a process of two sites, or a thread; fix: make the program wait by its number",
    ),
    (
        0x10_0000 | 0x20_0000 | 0x100_0000,
        "CLONE_PARENT_SETTID, CLONE_CHILD_SETTID or CLONE_CHILD_CLEARTID",
        "a child in its parent's memory has no number there; fix: make the program take the number that the call answers",
    ),
    (
        0x1_0000_0000,
        "CLONE_CLEAR_SIGHAND",
        "threads have one table of handlers; fix: make the program call without it",
    ),
    (
        0x2_0000_0000,
        "CLONE_INTO_CGROUP",
        "the replicas of a child are in its caller's control group; fix: make the program move the child when it is there (cgroup.procs)",
    ),
];

/// The same of what a thread has to have in common with its process.
const THREADS_HAVE: &[(u64, &str, &str)] = &[
    (
        0x400,
        "CLONE_FILES",
        "a thread with descriptors of its own would be another process to the kernel; fix: make the program start it without unshared descriptors, or fork",
    ),
    (
        0x200,
        "CLONE_FS",
        "a thread with a working directory of its own would be another process to the kernel; fix: make the program use openat(2) and its like, or fork",
    ),
];

/// A `clone` that is refused, by the flags that `sf_spawn_odd` of the agent names; bit 63: those that are left out.
fn cloned(name: &str, note: &str, flags: u64) -> Row {
    const LEFT_OUT: u64 = 1 << 63; // SF_LEFT_OUT of calls.h
    let (table, with) = if flags & LEFT_OUT == 0 {
        (CLONE_FLAGS, "with")
    } else {
        (THREADS_HAVE, "of a thread without")
    };
    match table.iter().find(|(bit, ..)| flags & bit != 0) {
        Some((_, flag, note)) => Row {
            name: format!("{name} {with} {flag}"),
            note: (*note).into(),
        },
        None if flags != 0 => Row {
            name: format!("{name} with flags {flags:#x}"),
            note: note.into(),
        },
        None => Row {
            name: name.into(),
            note: note.into(),
        },
    }
}

/// The row that decides about a call, with its command where the call has several.
#[must_use]
pub fn command(number: u32, command: u64) -> Row {
    if let Some((_, name, note)) = NO_CALLS.iter().find(|(nr, ..)| *nr == number) {
        return Row {
            name: (*name).into(),
            note: (*note).into(),
        };
    }
    let (name, note) = call(number);
    if matches!(name, "clone" | "clone3") {
        return cloned(name, note, command);
    }
    let multiplexed = COMMANDS.iter().any(|(table, ..)| *table == name);
    if !multiplexed {
        let known = CALLS.iter().any(|(nr, ..)| *nr == number);
        let name = if known {
            name.to_owned()
        } else {
            format!("system call {}", number.cast_signed())
        };
        return Row {
            name,
            note: note.into(),
        };
    }
    match COMMANDS
        .iter()
        .find(|(table, code, ..)| *table == name && *code == command & 0xffff_ffff)
    {
        Some((_, _, what, note)) => Row {
            name: format!("{name}({what})"),
            note: (*note).into(),
        },
        None => Row {
            name: format!("{name} command {command:#x}"),
            note: note.into(),
        },
    }
}

#[cfg(test)]
mod tests;
