//! Faults in memory that processes share.

use super::*;

/// The page in which processes that share memory take turns (crates/agent/src/memory/domain.c): the next ticket stands first.
pub(super) const DOMAIN: u64 = 0x2a18_0000_0000;

/// A fault in what processes share, and what comes of it in a group of so many replicas.
fn fault(after: After, replicas: u8, name: &str, flip: impl Into<String>) -> Fault {
    Fault {
        name: format!("sharing_{name}"),
        replicas,
        stop: false,
        flip: flip.into(),
        after,
    }
}

fn corrected(replicas: u8, name: &str, flip: impl Into<String>) -> Fault {
    fault(After::Corrected, replicas, name, flip)
}

fn detected(replicas: u8, name: &str, flip: impl Into<String>) -> Fault {
    fault(After::Detected, replicas, name, flip)
}

/// What nobody reads is no difference.
fn unread(replicas: u8, name: &str, flip: impl Into<String>) -> Fault {
    fault(After::Agreed, replicas, name, flip)
}

/// Three replicas of a process that shares memory with others are repaired with what they share. With two the tree stops unless
/// the wrong one is dead.
pub(super) fn in_shared_memory() -> Vec<Trial> {
    let at = "at=shared_fork!report n=1";
    let shared = "mem=[[shared_fork!s]+24] bit=5";
    // A word that all workers read and write: some of them have computed with it when it is found.
    let word = "event=20 mem=[[shared_fork!s]+16] bit=9";
    [
        detected(2, "memory_of_2", format!("replica=1 {at} {shared}")),
        corrected(
            3,
            "memory_of_leader_of_3",
            format!("replica=leader {at} {shared}"),
        ),
        corrected(3, "memory_of_3", format!("replica=2 {at} {shared}")),
        corrected(3, "crash_of_3", format!("replica=1 {at} reg=rsp bit=40")),
        corrected(
            3,
            "crash_of_leader_of_3",
            format!("replica=leader {at} reg=rsp bit=40"),
        ),
        corrected(3, "hang_of_3", format!("replica=1 {at} kind=hang")),
        corrected(
            3,
            "hang_of_leader_of_3",
            format!("replica=leader {at} kind=hang"),
        ),
        corrected(3, "word_of_workers", format!("process=1 replica=2 {word}")),
        corrected(
            3,
            "word_of_workers_of_leaders",
            format!("process=2 replica=leader {word}"),
        ),
        unread(
            2,
            "memory_unread",
            format!("replica=1 {at} mem=[[shared_fork!s]] bit=5"),
        ),
        unread(
            3,
            "baton_unread",
            format!("replica=2 {at} mem=[{:#x}] bit=7", DOMAIN + 2048),
        ),
        corrected(2, "killed_follower_of_2", format!("replica=1 {at} kill=9")),
        corrected(3, "killed_follower_of_3", format!("replica=2 {at} kill=9")),
        // Workers die while they hold the baton, and while they wait for it.
        corrected(
            3,
            "killed_followers_of_all_of_3",
            "process=all replica=1 event=20 kill=9",
        ),
        corrected(
            2,
            "killed_followers_of_all_of_2",
            "process=all replica=1 event=25 kill=9",
        ),
    ]
    .into_iter()
    .map(|fault| fault.trial(shares_memory))
    .chain(by_name())
    .chain(in_views())
    .chain(in_memory_objects())
    .chain(written_to())
    .chain(killed_leaders())
    .chain(among_threads())
    .chain(of_words())
    .collect()
}

/// A leader dies while its child waits, and while its child has its turn.
pub(super) fn killed_leaders() -> impl Iterator<Item = Trial> {
    let killed = |at: &str| format!("replica=leader at={at} kill=9");
    let moments = [
        ("in_its_turn", killed("shared_leader!step n=200")),
        ("at_a_wait", killed("shared_leader!await n=200")),
        ("first", killed("shared_leader!step n=1")),
    ];
    let named = |replicas: u8| {
        let name = format!("killed_leader_by_name_of_{replicas}");
        let flip = killed("shared_named!report n=1");
        corrected(replicas, &name, flip).trial(shares_memory_by_name)
    };
    [2, 3]
        .into_iter()
        .flat_map(move |replicas| {
            moments.clone().map(|(moment, flip)| {
                let name = format!("killed_leader_{moment}_of_{replicas}");
                corrected(replicas, &name, flip).trial(|| Target::guest("shared_leader.c", &[]))
            })
        })
        .chain([2, 3].map(named))
}

/// A copy of a file that processes share by its name is memory like any other: of a follower's, and of the leader's.
pub(super) fn by_name() -> impl Iterator<Item = Trial> {
    ["1", "leader"].into_iter().map(|replica| {
        let flip = format!("replica={replica} at=shared_named!report n=1 mem=[rdi] bit=5");
        corrected(3, &format!("by_name_{replica}"), flip).trial(shares_memory_by_name)
    })
}

/// A file that processes share stays a view in each replica, which a leader that is made again maps once more.
pub(super) fn in_views() -> impl Iterator<Item = Trial> {
    let at = "at=shared_views!report n=1";
    let wrong = |replica: &str| format!("replica={replica} {at} mem=[rdi] bit=5");
    let killed = |replica: &str| format!("replica={replica} {at} kill=9");
    [
        detected(2, "a_file_of_2", wrong("1")),
        corrected(3, "a_file_of_3", wrong("2")),
        corrected(3, "a_file_of_leader_of_3", wrong("leader")),
        corrected(2, "a_file_killed_follower_of_2", killed("1")),
        corrected(3, "a_file_killed_follower_of_3", killed("2")),
        corrected(2, "a_file_killed_leader_of_2", killed("leader")),
        corrected(3, "a_file_killed_leader_of_3", killed("leader")),
        // The first process's, among the calls of its turns.
        corrected(2, "a_file_killed_early", "replica=leader event=92 kill=9"),
        corrected(
            3,
            "a_file_killed_behind_a_vote",
            "replica=leader event=94 after-vote kill=9",
        ),
    ]
    .into_iter()
    .map(|fault| fault.trial(shares_a_file))
}

/// A memory object that was handed on: its value, which two programs compute with in turn, as it is about to be used.
pub(super) fn in_memory_objects() -> impl Iterator<Item = Trial> {
    let wrong =
        |replica: &str| format!("replica={replica} at=memory_objects!ask n=1 mem=[rdi+64] bit=5");
    [
        detected(2, "an_object_of_2", wrong("1")),
        corrected(3, "an_object_of_3", wrong("2")),
        corrected(3, "an_object_of_leader_of_3", wrong("leader")),
    ]
    .into_iter()
    .map(|fault| fault.trial(shares_memory_objects))
}

/// A process writes to memory that another one has, and loses a replica between two writes.
pub(super) fn written_to() -> impl Iterator<Item = Trial> {
    let writer = |replica: &str| format!("replica={replica} at=memory_written!seen n=8 kill=9");
    [
        corrected(2, "written_killed_leader_of_2", writer("leader")),
        corrected(3, "written_killed_leader_of_3", writer("leader")),
        corrected(2, "written_killed_follower_of_2", writer("1")),
        corrected(3, "written_killed_follower_of_3", writer("2")),
    ]
    .into_iter()
    .map(|fault| fault.trial(|| Target::guest("memory_written.c", &[])))
}

/// A thread that waits for a word of several processes stands in a list of all (crates/agent/src/threads/parked.c): what the first
/// entry has, as its thread waits.
pub(super) fn of_words() -> impl Iterator<Item = Trial> {
    const FIRST: u64 = DOMAIN + 256 + 8;
    let struck = |replicas: u8, name: &str, at: u64, bit: u8| {
        let place = FIRST + at;
        let flip =
            format!("replica=leader at=shared_wakes!waits_on n=1 mem=[{place:#x}] bit={bit}");
        detected(replicas, &format!("parked_{name}_of_{replicas}"), flip)
    };
    [
        struck(2, "state", 0, 0),
        struck(3, "state", 0, 1),
        struck(2, "times", 0, 7),
        struck(3, "word", 8, 30),
        struck(2, "owner", 16, 3),
        struck(3, "order", 24, 1),
        struck(2, "process", 32, 2),
        struck(3, "bits", 32, 40),
        struck(2, "check", 40, 9),
    ]
    .into_iter()
    .map(|fault| fault.trial(wakes_threads))
}

pub(super) fn among_threads() -> impl Iterator<Item = Trial> {
    let wrong = |replica: &str| {
        format!("replica={replica} at=shared_threads!report n=1 mem=[[shared_threads!s]] bit=5")
    };
    [
        detected(2, "threads_1_of_2", wrong("1")),
        corrected(3, "threads_1_of_3", wrong("1")),
        corrected(3, "threads_leader_of_3", wrong("leader")),
    ]
    .into_iter()
    .map(|fault| fault.trial(shares_memory_among_threads))
}
