//! Faults in what says who runs: threads that are parked and the queue they stand in (crates/agent/src/threads/thread.h), and the
//! baton of processes that share memory (crates/agent/src/memory/domain.c).
//!
//! A name in braces is a field of a structure of the agent's, and stands for its offset.

use super::*;

/// Who is struck: of each structure half of these are taken, one with two replicas and one with three.
struct Victim {
    replica: u8,
    of: u8,
}

const VICTIMS: [Victim; 4] = [
    Victim { replica: 0, of: 2 },
    Victim { replica: 1, of: 2 },
    Victim { replica: 0, of: 3 },
    Victim { replica: 2, of: 3 },
];

impl Victim {
    fn leads(&self) -> bool {
        self.replica == 0
    }
}

type Program = fn() -> Result<Target, String>;

/// A structure, by number, and what a bit of it does to groups of two and of three.
struct Word {
    name: &'static str,
    /// When and where.
    place: String,
    of_2: After,
    of_3: After,
}

impl Word {
    fn trials(self, row: usize, program: Program) -> impl Iterator<Item = Trial> {
        VICTIMS
            .into_iter()
            .filter(move |victim| {
                let role = usize::from(!victim.leads());
                paired(row, role, usize::from(victim.of))
            })
            .map(move |victim| {
                let Victim { replica, of } = victim;
                let whose = if victim.leads() { "leader" } else { "follower" };
                // `served` in the page of the domain (struct domain): a word for each index, behind the next ticket.
                let served = DOMAIN + 8 * (1 + u64::from(replica));
                let place = self.place.replace("SERVED", &format!("{served:#x}"));
                Fault {
                    name: format!("turns::{}_of_{whose}_of_{of}", self.name),
                    replicas: of,
                    stop: false,
                    flip: format!("replica={replica} {place}"),
                    after: if of == 2 { self.of_2 } else { self.of_3 },
                }
                .trial(program)
            })
    }
}

fn word(name: &'static str, place: &str, of_2: After, of_3: After) -> Word {
    Word {
        name,
        place: place.to_owned(),
        of_2,
        of_3,
    }
}

/// At event 500 the second thread waits in a semaphore, and the first one runs: their entries are the third and the second of the
/// table, since the order of the queue stands before them.
pub(super) fn among_parked_threads() -> Vec<Trial> {
    use After::{Corrected, Right};
    let words = [
        word(
            "running",
            "event=500 mem=[agent!app+{sf_mirror.current}] bit=0",
            Corrected,
            Corrected,
        ),
        word(
            "alive",
            "event=500 mem=[agent!app+{sf_mirror.threads}] bit=1",
            Corrected,
            Corrected,
        ),
        word(
            "state_of_running",
            "event=500 mem=[0x2e1000004000] bit=2",
            Corrected,
            Corrected,
        ),
        // It gives way once more, or stands elsewhere among those that wait: of two threads that is the same.
        word(
            "asked_to_give_way",
            "event=500 mem=[agent!app+{sf_mirror.turn}] bit=0",
            Right,
            Right,
        ),
        word(
            "place_in_line",
            "event=500 mem=[0x2e1000008030] bit=3",
            Right,
            Right,
        ),
    ];
    let mut trials = Vec::new();
    for (row, word) in words.into_iter().enumerate() {
        trials.extend(word.trials(row, parked));
    }
    // The entry of a thread that is not there.
    let free = |replicas, who, after| Fault {
        name: format!("turns::free_entry_of_{replicas}"),
        replicas,
        stop: false,
        flip: format!("{who}event=500 mem=[0x2e100000c070] bit=3"),
        after,
    };
    trials.push(free(1, "", After::Harmless).trial(parked));
    trials.push(free(3, "replica=2 ", After::Agreed).trial(parked));
    trials
}

/// At `report` the first process is alone and has its turn; at event 20 of a worker others wait for theirs.
pub(super) fn of_processes() -> Vec<Trial> {
    use After::{Agreed, Corrected, Detected, DetectedOrRight};
    const ALONE: &str = "at=shared_fork!report n=1";
    let alone = |place: &str| format!("{ALONE} mem={place}");
    // The word from which all processes and all replicas take their tickets: nobody can tell what stood there.
    let next = word(
        "next_ticket",
        &alone(&format!("[{DOMAIN:#x}] bit=7")),
        Detected,
        Detected,
    );
    // Whether this replica has its turn: it goes on without one. Two others outvote it.
    let holds = word(
        "holds",
        &alone("[agent!me+{sf_me.holds}] bit=0"),
        Detected,
        Corrected,
    );
    // Which ticket it holds: the turn that it gives is not the next one of its index, and a repair finds replicas with different ones.
    let ticket = word(
        "ticket",
        &alone("[agent!me+{sf_me.ticket}] bit=1"),
        Detected,
        Detected,
    );
    // Whose turn it is at this replica's index: who gives it up writes the word anew.
    let turn = word(
        "turn_of_others",
        "process=1 event=20 mem=[SERVED] bit=2",
        DetectedOrRight,
        DetectedOrRight,
    );
    // What is only looked at when a replica has died.
    let given = word(
        "given_unread",
        &alone("[log+{sf_group.baton_given}] bit=1"),
        Agreed,
        Agreed,
    );
    let mut trials = Vec::new();
    for (row, word) in [next, holds, ticket, turn, given].into_iter().enumerate() {
        trials.extend(word.trials(row, shares_memory));
    }
    trials
}

/// A fault with more words for the command.
fn told(fault: Fault, words: Vec<String>, target: fn() -> Result<Target, String>) -> Trial {
    Trial::test(format!("faults::{}", fault.name), move || {
        let dir = Bench::get().case_dir(&format!("faults-{}", fault.name));
        let (target, events) = (target()?, dir.join("events"));
        let bare = target.bare(&dir)?;
        let flip = build::resolved(&fault.flip)?;
        let mut all = vec!["--flip", &flip];
        let words = words.iter().map(|word| build::resolved(word));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        all.extend(words.iter().map(String::as_str));
        let invocation = target.invocation(protector(fault.replicas, &events, &all));
        let _group = some_groups();
        let run = invocation.run(&dir, LIMIT)?;
        run.nothing_left(GRACE)?;
        fault
            .judge(&bare, &run, &events)
            .map_err(|why| fault.failed(&format!("{why}\n{}", last_lines(&run)), &dir))?;
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// A replica that loses at a memory check goes on to the look that comes behind it, as the others do: nothing is disputed a second time.
pub(super) fn looks_behind_a_check() -> impl Iterator<Item = Trial> {
    ["leader", "1"].into_iter().map(|who| {
        let fault = Fault {
            name: format!("turns::look_behind_a_check_of_{who}"),
            replicas: 2,
            stop: false,
            flip: format!("replica={who} at=looks!flip_here n=14 mem=[looks!unread+80] bit=3"),
            after: After::Corrected,
        };
        // On a busy machine a check takes its time, and the next one is far.
        let often = vec!["--epoch-budget=50".to_owned()];
        told(fault, often, || Target::guest("looks.c", &[]))
    })
}

/// One that loses at such a look takes its turn among processes behind it.
pub(super) fn turns_behind_a_look() -> impl Iterator<Item = Trial> {
    ["leader", "2"].into_iter().map(|who| {
        let fault = Fault {
            name: format!("turns::turn_behind_a_look_of_{who}"),
            replicas: 3,
            stop: false,
            flip: format!("replica={who} event=185 after-vote reg=rbx bit=5"),
            after: After::Corrected,
        };
        fault.trial(|| Target::guest("looks.c", &["shared"]))
    })
}

/// Two followers have no room for what the leader has done: that is no majority against it. Two that have found the same other result are.
pub(super) fn spoiled_alike() -> impl Iterator<Item = Trial> {
    let alike = [
        ("without_room", 1, After::Detected),
        ("otherwise", 0, After::Corrected),
    ];
    alike.into_iter().map(|(name, bit, after)| {
        let flip = |who| {
            let at = "at=steady!flip_here n=50 mem=[agent!me+{sf_me.poison}]";
            format!("replica={who} {at} bit={bit}")
        };
        let fault = Fault {
            name: format!("turns::spoiled_alike_{name}"),
            replicas: 3,
            stop: false,
            flip: flip(1),
            after,
        };
        let other = vec!["--flip".to_owned(), flip(2)];
        told(fault, other, || Target::guest("steady.c", &["60"]))
    })
}

/// A thread computes until another one has had its turn, in one replica from another number on: replicas that are to meet for that
/// turn never do. Two of three agree, and of two nobody knows who is wrong.
pub(super) fn while_a_thread_computes() -> Vec<Trial> {
    use After::{Corrected, Detected};
    const VALUE: &str = "flip_here n=100 reg=rax bit=5";
    const ENDLESS: &str = "flip_here n=100 reg=rdx bit=40";
    const MEMORY: &str = "flip_kept n=1 mem=[rax] bit=3";
    let cases = [
        ("value_of_follower_of_2", 2, 1, VALUE, Detected),
        ("endless_of_leader_of_3", 3, 0, ENDLESS, Corrected),
        ("memory_of_follower_of_2", 2, 1, MEMORY, Detected),
        ("memory_of_leader_of_3", 3, 0, MEMORY, Corrected),
        ("memory_of_follower_of_3", 3, 2, MEMORY, Corrected),
    ];
    let trial = |(name, replicas, who, effect, after)| {
        let fault = Fault {
            name: format!("turns::computing_{name}"),
            replicas,
            stop: false,
            flip: format!("replica={who} at=threads_struck!{effect}"),
            after,
        };
        fault.trial(if effect == MEMORY {
            waiting_thread
        } else {
            struck_thread
        })
    };
    cases.into_iter().map(trial).collect()
}
