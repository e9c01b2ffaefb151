//! Faults in memory that processes share.

use super::*;

/// The page in which processes that share memory take turns (crates/agent/src/memory/domain.c): the next ticket stands first.
pub(super) const DOMAIN: u64 = 0x2a18_0000_0000;

/// Three replicas of a process that shares memory with others are repaired with what they share. With two the tree stops unless
/// the wrong one is dead. What nobody reads is no difference.
pub(super) fn in_shared_memory() -> Vec<Trial> {
    struct Row {
        name: &'static str,
        replicas: u8,
        flip: String,
        after: After,
    }
    let at = "at=shared_fork!report n=1";
    [
        Row {
            name: "memory_of_2",
            replicas: 2,
            flip: format!("replica=1 {at} mem=[[shared_fork!s]+24] bit=5"),
            after: After::Detected,
        },
        Row {
            name: "memory_of_leader_of_3",
            replicas: 3,
            flip: format!("replica=leader {at} mem=[[shared_fork!s]+24] bit=5"),
            after: After::Corrected,
        },
        Row {
            name: "memory_of_3",
            replicas: 3,
            flip: format!("replica=2 {at} mem=[[shared_fork!s]+24] bit=5"),
            after: After::Corrected,
        },
        Row {
            name: "crash_of_3",
            replicas: 3,
            flip: format!("replica=1 {at} reg=rsp bit=40"),
            after: After::Corrected,
        },
        Row {
            name: "crash_of_leader_of_3",
            replicas: 3,
            flip: format!("replica=leader {at} reg=rsp bit=40"),
            after: After::Corrected,
        },
        Row {
            name: "hang_of_3",
            replicas: 3,
            flip: format!("replica=1 {at} kind=hang"),
            after: After::Corrected,
        },
        Row {
            name: "hang_of_leader_of_3",
            replicas: 3,
            flip: format!("replica=leader {at} kind=hang"),
            after: After::Corrected,
        },
        // A word that all workers read and write: some of them have computed with it when it is found.
        Row {
            name: "word_of_workers",
            replicas: 3,
            flip: "process=1 replica=2 event=20 mem=[[shared_fork!s]+16] bit=9".to_owned(),
            after: After::Corrected,
        },
        Row {
            name: "word_of_workers_of_leaders",
            replicas: 3,
            flip: "process=2 replica=leader event=20 mem=[[shared_fork!s]+16] bit=9".to_owned(),
            after: After::Corrected,
        },
        Row {
            name: "memory_unread",
            replicas: 2,
            flip: format!("replica=1 {at} mem=[[shared_fork!s]] bit=5"),
            after: After::Agreed,
        },
        Row {
            name: "baton_unread",
            replicas: 3,
            flip: format!("replica=2 {at} mem=[{:#x}] bit=7", DOMAIN + 2048),
            after: After::Agreed,
        },
        Row {
            name: "killed_follower_of_2",
            replicas: 2,
            flip: format!("replica=1 {at} kill=9"),
            after: After::Corrected,
        },
        Row {
            name: "killed_follower_of_3",
            replicas: 3,
            flip: format!("replica=2 {at} kill=9"),
            after: After::Corrected,
        },
        // Workers die while they hold the baton, and while they wait for it.
        Row {
            name: "killed_followers_of_all_of_3",
            replicas: 3,
            flip: "process=all replica=1 event=20 kill=9".to_owned(),
            after: After::Corrected,
        },
        Row {
            name: "killed_followers_of_all_of_2",
            replicas: 2,
            flip: "process=all replica=1 event=25 kill=9".to_owned(),
            after: After::Corrected,
        },
    ]
    .into_iter()
    .map(|row| {
        Fault {
            name: format!("sharing_{}", row.name),
            replicas: row.replicas,
            stop: false,
            flip: row.flip,
            after: row.after,
        }
        .trial(shares_memory)
    })
    .chain(by_name())
    .chain(in_views())
    .chain(in_memory_objects())
    .chain(killed_leaders())
    .chain(among_threads())
    .collect()
}

/// A leader dies while its child waits, and while its child has its turn. What it shares by name cannot be attached again.
pub(super) fn killed_leaders() -> impl Iterator<Item = Trial> {
    let flip = |at: &str| format!("replica=leader at={at} kill=9");
    [2, 3]
        .into_iter()
        .flat_map(move |n| {
            [
                ("in_its_turn", n, flip("shared_leader!step n=200")),
                ("at_a_wait", n, flip("shared_leader!await n=200")),
                ("first", n, flip("shared_leader!step n=1")),
            ]
        })
        .map(|(name, replicas, flip)| {
            Fault {
                name: format!("sharing_killed_leader_{name}_of_{replicas}"),
                replicas,
                stop: false,
                flip,
                after: After::Corrected,
            }
            .trial(|| Target::guest("shared_leader.c", &[]))
        })
        .chain(std::iter::once(
            Fault {
                name: "sharing_killed_leader_by_name".to_owned(),
                replicas: 3,
                stop: false,
                flip: flip("shared_named!report n=1"),
                after: After::Detected,
            }
            .trial(shares_memory_by_name),
        ))
}

/// A copy of a file that processes share by its name is memory like any other: of a follower's, and of the leader's.
pub(super) fn by_name() -> impl Iterator<Item = Trial> {
    ["1", "leader"].into_iter().map(|replica| {
        Fault {
            name: format!("sharing_by_name_{replica}"),
            replicas: 3,
            stop: false,
            flip: format!("replica={replica} at=shared_named!report n=1 mem=[rdi] bit=5"),
            after: After::Corrected,
        }
        .trial(shares_memory_by_name)
    })
}

/// A file that processes share stays a view in each replica, which a leader that is made again maps once more.
pub(super) fn in_views() -> impl Iterator<Item = Trial> {
    let at = "at=shared_views!report n=1";
    let wrong = |replica: &str| format!("replica={replica} {at} mem=[rdi] bit=5");
    let killed = |replica: &str| format!("replica={replica} {at} kill=9");
    [
        ("of_2", 2, wrong("1"), After::Detected),
        ("of_3", 3, wrong("2"), After::Corrected),
        ("of_leader_of_3", 3, wrong("leader"), After::Corrected),
        ("killed_follower_of_2", 2, killed("1"), After::Corrected),
        ("killed_follower_of_3", 3, killed("2"), After::Corrected),
        ("killed_leader_of_2", 2, killed("leader"), After::Corrected),
        ("killed_leader_of_3", 3, killed("leader"), After::Corrected),
        // The first process's, among the calls of its turns.
        (
            "killed_early",
            2,
            "replica=leader event=92 kill=9".to_owned(),
            After::Corrected,
        ),
        (
            "killed_behind_a_vote",
            3,
            "replica=leader event=94 after-vote kill=9".to_owned(),
            After::Corrected,
        ),
    ]
    .into_iter()
    .map(|(name, replicas, flip, after)| {
        Fault {
            name: format!("sharing_a_file_{name}"),
            replicas,
            stop: false,
            flip,
            after,
        }
        .trial(shares_a_file)
    })
}

/// A memory object that was handed on: its value, which two programs compute with in turn, as it is about to be used.
pub(super) fn in_memory_objects() -> impl Iterator<Item = Trial> {
    [
        ("of_2", 2, "1", After::Detected),
        ("of_3", 3, "2", After::Corrected),
        ("of_leader_of_3", 3, "leader", After::Corrected),
    ]
    .into_iter()
    .map(|(name, replicas, replica, after)| {
        Fault {
            name: format!("sharing_an_object_{name}"),
            replicas,
            stop: false,
            flip: format!("replica={replica} at=memory_objects!ask n=1 mem=[rdi+64] bit=5"),
            after,
        }
        .trial(shares_memory_objects)
    })
}

pub(super) fn among_threads() -> impl Iterator<Item = Trial> {
    [
        ("1", 2, After::Detected),
        ("1", 3, After::Corrected),
        ("leader", 3, After::Corrected),
    ]
    .into_iter()
    .map(|(replica, replicas, after)| {
        Fault {
            name: format!("sharing_threads_{replica}_of_{replicas}"),
            replicas,
            stop: false,
            flip: format!(
                "replica={replica} at=shared_threads!report n=1 mem=[[shared_threads!s]] bit=5"
            ),
            after,
        }
        .trial(shares_memory_among_threads)
    })
}
