//! Faults: flips, crashes, hangs and kills, in leader and follower, at chosen places; the output must be the bare one.
//!
//! Flips are armed with the project's fault grammar. Each alarm has a case that makes it ring and one that keeps it
//! silent; flips in a single replica prove that the fault itself works, since there it must change the output.
//!
//! Not covered: rates. Campaigns draw flips at random over the whole run; here each has its place.

mod computation;
mod ends;
mod families;
mod moments;
mod protection;
mod shared;
mod targets;
mod turns;
mod waits;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use steadfast_contract::event::{Line, What};
use steadfast_contract::exit::{Own, Verdict};

use crate::bench::{Bench, some_groups};
use crate::build::{self, Variant};
use crate::check::{
    Log, await_repairs, first_difference, last_lines, output_difference, protector, repeat,
};
use crate::programs;
use crate::run::{Invocation, Ran, Stdin};
use crate::sample::{all, apart, paired, sampled};
use crate::trial::Trial;

use computation::*;
use ends::*;
use families::*;
use moments::*;
use protection::*;
use shared::*;
use targets::*;
use turns::*;
use waits::*;

// A replica that answers no command is given 20 s (docs/concepts/replication.md); the rest is room on a machine that does other work.
const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
/// What is expected of a run with a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// The output is right, and the verdict says that something was repaired.
    Corrected,
    /// Stopped with status 122; what left is a beginning of the right output.
    Detected,
    /// The output is right and nobody noticed anything.
    Agreed,
    /// The output is right, repaired or not: whether this flip matters depends on the compiler.
    Right,
    /// Stopped, or right: nothing wrong has left either way.
    DetectedOrRight,
    /// The output of one replica, which protects nothing, is right.
    Harmless,
    /// The output is wrong or the program died: one replica protects nothing, so the fault itself is shown to work.
    Unprotected,
}

/// A fault in a command.
#[derive(Debug, Clone)]
struct Fault {
    name: String,
    replicas: u8,
    stop: bool,
    flip: String,
    after: After,
}

/// The program that faults strike: path, arguments, standard input.
#[derive(Debug, Clone)]
struct Target {
    program: PathBuf,
    args: Vec<String>,
    stdin: Stdin,
    /// It computes for long, and always the same: all cases have one bare run.
    is_long: bool,
}

/// Bare runs, by program and arguments.
type Runs = BTreeMap<(PathBuf, Vec<String>), Arc<Ran>>;

/// Those of programs that compute for long.
static BARE: LazyLock<Mutex<Runs>> = LazyLock::new(Mutex::default);

impl Target {
    fn guest(source: &str, args: &[&str]) -> Result<Self, String> {
        Ok(Self {
            program: build::guest(source, Variant::Dynamic)?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            stdin: Stdin::Null,
            is_long: false,
        })
    }

    fn long_guest(source: &str, args: &[&str]) -> Result<Self, String> {
        Ok(Self {
            is_long: true,
            ..Self::guest(source, args)?
        })
    }

    /// What it shows without protection or fault.
    fn bare(&self, dir: &Path) -> Result<Arc<Ran>, String> {
        let run = || self.invocation(Vec::new()).run(dir, LIMIT).map(Arc::new);
        if !self.is_long {
            return run();
        }
        let key = (self.program.clone(), self.args.clone());
        let mut known = BARE.lock().map_err(|_| "a bare run panicked".to_owned())?;
        if let Some(ran) = known.get(&key) {
            return Ok(Arc::clone(ran));
        }
        let ran = run()?;
        known.insert(key, Arc::clone(&ran));
        Ok(ran)
    }

    /// A program of the common list.
    fn program(name: &str) -> Result<Self, String> {
        let Invocation {
            program,
            args,
            stdin,
            ..
        } = programs::find(name).case()?.invocation;
        Ok(Self {
            program,
            args,
            stdin,
            is_long: false,
        })
    }

    fn invocation(&self, protector: Vec<String>) -> Invocation {
        Invocation {
            protector,
            program: self.program.clone(),
            args: self.args.clone(),
            stdin: self.stdin.clone(),
            ..Invocation::default()
        }
    }
}

impl Fault {
    fn trial(self, target: fn() -> Result<Target, String>) -> Trial {
        Trial::test(format!("faults::{}", self.name), move || {
            let dir = Bench::get().case_dir(&format!("faults-{}", self.name));
            let target = target()?;
            let bare = target.bare(&dir)?;
            self.strike(&target, &bare, &dir)
                .map_err(|why| self.failed(&why, &dir))?;
            Bench::get().passed(&dir);
            Ok(())
        })
    }

    fn failed(&self, why: &str, dir: &Path) -> Failed {
        format!(
            "{why}\n  files:  {}\n  repeat: {}",
            dir.display(),
            repeat(&format!("faults::{}", self.name))
        )
        .into()
    }

    /// Runs once with the fault and judges.
    fn strike(&self, target: &Target, bare: &Ran, dir: &Path) -> Result<(), String> {
        let events = dir.join("events");
        let mode = if self.stop { "stop" } else { "recover" };
        let invocation = target.invocation(protector(
            self.replicas,
            &events,
            &[
                "--on-mismatch",
                mode,
                "--flip",
                &build::resolved(&self.flip)?,
            ],
        ));
        let run = {
            let _group = (self.replicas > 1).then(some_groups);
            let run = invocation
                .run(dir, LIMIT)
                .map_err(|why| format!("{why}\n  run:    {}", invocation.shell_line()))?;
            run.nothing_left(GRACE)?;
            run
        };
        let _ = fs::write(dir.join("stdout"), &run.stdout);
        let _ = fs::write(dir.join("stderr"), &run.stderr);
        self.judge(bare, &run, &events).map_err(|why| {
            format!(
                "{why}\n{}  run:    {}",
                last_lines(&run),
                invocation.shell_line()
            )
        })
    }

    fn judge(&self, bare: &Ran, run: &Ran, events: &Path) -> Result<(), String> {
        let log = Log::read(events)?;
        let hits: u64 = log.report.faults.iter().map(|fault| fault.hits).sum();
        if hits == 0 && !matches!(self.after, After::Right | After::DetectedOrRight) {
            return Err("the fault did not fire".to_owned());
        }
        let verdict = log.report.verdict;
        // Standard error may carry a summary here: only what the program itself shows is compared.
        let right = || match output_difference_but_stderr(bare, run) {
            Some(why) => Err(why),
            None => Ok(()),
        };
        let is = |expected: Verdict| {
            if verdict == expected {
                Ok(())
            } else {
                Err(format!(
                    "the verdict is {verdict:?}, expected {expected:?}\n{}",
                    log.divergences()
                ))
            }
        };
        match self.after {
            After::Corrected => {
                right()?;
                is(Verdict::Corrected)?;
                if !log
                    .lines
                    .iter()
                    .any(|line| matches!(line.event.what, What::Recovery(_)))
                {
                    return Err("no event says what was done".to_owned());
                }
                // Whoever is repaired goes on as the others: a fault that has struck once is found once.
                if log.report.divergences > hits {
                    let told = log.divergences();
                    return Err(format!(
                        "found more often than it struck, {hits} times\n{told}"
                    ));
                }
                Ok(())
            }
            After::Agreed => right().and_then(|()| is(Verdict::Agreed)),
            After::Harmless => right().and_then(|()| is(Verdict::Unprotected)),
            After::Right => {
                right()?;
                is(Verdict::Agreed).or_else(|_| is(Verdict::Corrected))
            }
            After::DetectedOrRight if verdict != Verdict::Stopped => right(),
            After::Detected | After::DetectedOrRight => {
                if run.status.code() != Some(i32::from(Own::Mismatch.code())) {
                    return Err(format!("ended with {}, expected status 122", run.end()));
                }
                if !bare.stdout.starts_with(&run.stdout) {
                    return Err("a byte left that bare runs do not show".to_owned());
                }
                is(Verdict::Stopped)
            }
            After::Unprotected => match output_difference(bare, run) {
                Some(_) => Ok(()),
                None => {
                    Err("the fault changed nothing, so the protected run proves nothing".to_owned())
                }
            },
        }
    }
}

fn output_difference_but_stderr(bare: &Ran, run: &Ran) -> Option<String> {
    if bare.end() != run.end() {
        return Some(format!("ended with {}, bare {}", run.end(), bare.end()));
    }
    first_difference(&bare.stdout, &run.stdout).map(|why| format!("standard output differs: {why}"))
}

/// The process of a replica: the first line of the event file names it as soon as the group runs.
pub(crate) fn replica_pid(events: &Path, which: usize) -> Result<i32, String> {
    let text = fs::read_to_string(events).map_err(|error| format!("events: {error}"))?;
    let line = text
        .lines()
        .next()
        .ok_or("the event file is empty although the program has spoken")?;
    let line: steadfast_contract::event::Line =
        serde_json::from_str(line).map_err(|error| format!("events: {error}"))?;
    let What::RunStart(start) = line.event.what else {
        return Err("events do not begin with run_start".to_owned());
    };
    let replica = start.replicas.get(which).ok_or("no such replica")?;
    i32::try_from(replica.pid).map_err(|error| error.to_string())
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = in_the_protection();
    trials.extend(crate::frames::trials());
    trials.extend(crate::children::trials());
    trials.extend(crate::awaited::trials());
    trials.extend(crate::adopted::trials());
    trials.extend(crate::around::trials());
    trials.extend(crate::spawns::trials());
    trials.extend(crate::nudges::trials());
    trials.extend(families());
    trials.push(goes_on_after_exec());
    // Whoever may not hold a process cannot say when.
    if geteuid().is_root() {
        trials.push(while_the_leader_waits());
    }
    trials.extend([2, 3].map(while_the_leader_waits_for_room));
    trials.extend(in_shared_memory());
    trials.extend(looks_behind_a_check());
    trials.extend(turns_behind_a_look());
    trials.extend(spoiled_alike());
    trials.extend(among_parked_threads());
    trials.extend(of_processes());
    trials.extend([bad_core(2, 1), bad_core(2, 0), bad_core(3, 2)]);
    trials.extend([
        by_the_clock(
            "register_of_follower",
            2,
            "replica=1 time=10ms reg=rax bit=17",
        ),
        by_the_clock(
            "register_of_leader",
            2,
            "replica=leader time=10ms reg=rbx bit=3",
        ),
        by_the_clock(
            "stack_pointer_of_3",
            3,
            "replica=2 time=10ms reg=rsp bit=40",
        ),
        by_the_clock(
            "in_the_program",
            3,
            "replica=2 every=1ms in=steady reg=xmm15 bit=3",
        ),
        by_the_clock("vector", 2, "replica=1 time=10ms reg=xmm1 bit=70"),
        by_the_clock("memory", 2, "replica=1 time=10ms mem=[rsp+8] bit=3"),
        by_the_clock("death", 2, "replica=1 time=10ms kind=crash"),
        by_the_clock("kill", 3, "replica=2 time=10ms kill=9"),
    ]);
    // Memory operands: all instructions of a class.
    for (name, flip) in [
        (
            "bad_loads",
            "class=load in=operands!turn n=1400..%1500 rval once bit=9",
        ),
        (
            "bad_stores",
            "class=store in=operands!turn n=1400..%1500 wval bit=9",
        ),
        (
            "bad_addresses",
            "class=store in=operands!turn n=1400..%1500 waddr bit=3",
        ),
    ] {
        let fault = |suffix, replicas, who, after| Fault {
            name: format!("{name}::{suffix}"),
            replicas,
            stop: false,
            flip: format!("{who}{flip}"),
            after,
        };
        trials.extend(
            [
                fault("alone", 1, "", After::Unprotected),
                fault("leader_of_2", 2, "replica=leader ", After::Corrected),
                fault("follower_of_3", 3, "replica=2 ", After::Corrected),
            ]
            .map(|fault| fault.trial(operands)),
        );
    }
    // A vector register: wrong from an instruction on, or for it alone.
    let vector = |name: &str, once: &str, after| Fault {
        name: name.to_owned(),
        replicas: 1,
        stop: false,
        flip: format!("at=vector_once!flip_here n=1 reg=xmm5{once} bit=3"),
        after,
    };
    trials.extend(
        [
            vector("vector_from_here", "", After::Unprotected),
            vector("vector_here_alone", " once", After::Harmless),
        ]
        .map(|fault| fault.trial(vector_stored_twice)),
    );
    // What a memory check has to see before a snapshot carries it on: struck in follower and leader.
    for (who, name) in [("1", "closed_follower"), ("0", "closed_leader")] {
        let flip = format!("replica={who} at=closed!flip_here n=1 mem=[closed!table+80] bit=3");
        let fault = Fault {
            name: name.to_owned(),
            replicas: 2,
            stop: false,
            flip,
            after: After::Corrected,
        };
        trials.push(fault.trial(closed));
    }
    let one =
        |name: &str, replicas, stop, flip: &str, after, target: fn() -> Result<Target, String>| {
            Fault {
                name: name.to_owned(),
                replicas,
                stop,
                flip: flip.to_owned(),
                after,
            }
            .trial(target)
        };
    trials.extend([
        // A load that faulted and was survived is over: the next one has its own address.
        one("survived", 1, false, "at=survivor!load n=700 raddr bit=46", After::Harmless, survivor),
        one("survived_twice", 1, false, "at=survivor!load n=700..701 raddr bit=46", After::Harmless, survivor),
        one("survived_of_2", 2, false, "replica=0 at=survivor!load n=700 raddr bit=46", After::Corrected, survivor),
        // Of a class: memory, a wild jump, twice instead of once, death.
        one("class_memory", 2, false, "replica=1 class=int-mul in=products n=700 mem=[rsp] bit=40", After::Right, products),
        one("class_wild", 2, false, "replica=1 class=int-mul in=products n=700 ip bit=44", After::Corrected, products),
        one("class_again", 2, false, "replica=0 class=int-mul in=products n=700 kind=repeat", After::Corrected, products),
        one("class_again_alone", 1, false, "class=int-mul in=products n=700 kind=repeat", After::Unprotected, products),
        one("class_death_of_3", 3, false, "replica=2 class=int-mul in=products n=700 kind=crash", After::Corrected, products),
        // Silent where nothing is wrong: a register that nobody reads again.
        one("dead_register_of_2", 2, false, "replica=1 at=steady!flip_here n=30000 reg=rdx bit=5", After::Agreed, long),
        one("dead_register_of_3", 3, false, "replica=leader at=steady!flip_here n=30000 reg=rdx bit=5", After::Agreed, long),
        one("dead_register_stops_nothing", 2, true, "replica=0 at=steady!flip_here n=30000 reg=rdx bit=5", After::Agreed, long),
        // Half as long again as the others need is no hang.
        one("slower_follower_of_2", 2, true, "replica=1 at=uneven!flip_here n=1 reg=rax bit=31", After::Agreed, uneven),
        // Replicas that die or stay away.
        one("crash_of_2", 2, false, "replica=1 at=steady!flip_here n=50000 kind=crash", After::Corrected, long),
        one("leader_crash_of_2", 2, false, "replica=leader at=steady!flip_here n=50000 kind=crash", After::Corrected, long),
        one("leader_crash_of_3", 3, false, "replica=leader at=steady!flip_here n=50000 kind=crash", After::Corrected, long),
        one("hang_of_2", 2, false, "replica=1 at=steady!flip_here n=50000 kind=hang", After::Corrected, long),
        one("leader_hang_of_2", 2, false, "replica=leader at=steady!flip_here n=50000 kind=hang", After::Corrected, long),
        one("leader_hang_of_3", 3, false, "replica=leader at=steady!flip_here n=50000 kind=hang", After::Corrected, long),
        // Nobody has come to any event yet.
        one("hang_before_the_first_event", 2, false, "replica=1 at=asm_only!_start n=1 kind=hang", After::Corrected, smallest),
        one("leader_hang_before_the_first_event", 2, false, "replica=0 at=asm_only!_start n=1 kind=hang", After::Corrected, smallest),
        one("hang_of_3_before_the_first_event", 3, false, "replica=2 at=asm_only!_start n=1 kind=hang", After::Corrected, smallest),
        one("hang_stops", 2, true, "replica=1 at=steady!flip_here n=50000 kind=hang", After::Detected, long),
        one("crash_stops", 2, true, "replica=1 at=steady!flip_here n=50000 kind=crash", After::Detected, long),
        // The log, the agent.
        one("log_entry", 2, false, "replica=1 event=20 mem=[entry+8] bit=3", After::Right, long),
        one("log_entry_of_3", 3, false, "replica=2 event=20 mem=[entry+8] bit=3", After::Right, long),
        // Several faults in one run, each repaired.
        one(
            "two_in_turn",
            2,
            false,
            "replica=leader at=steady!flip_here n=20000 reg=rax bit=3; replica=follower at=steady!flip_here n=90000 reg=rax bit=9",
            After::Corrected,
            long,
        ),
        one(
            "five_in_turn",
            3,
            false,
            "replica=0 at=steady!flip_here n=9000 reg=rax bit=3; replica=1 at=steady!flip_here n=30000 reg=rax bit=4; replica=2 at=steady!flip_here n=50000 reg=rax bit=5; replica=0 at=steady!flip_here n=70000 reg=rax bit=6; replica=1 at=steady!flip_here n=90000 reg=rax bit=7",
            After::Corrected,
            long,
        ),
        one("half_readable_alone", 1, false, "at=edges!flip_here n=1 mem=[rax+70] bit=3", After::Unprotected, edges),
        one("half_readable_of_3", 3, false, "replica=leader at=edges!flip_here n=1 mem=[rax+70] bit=3", After::Corrected, edges),
        one("half_readable_stops", 2, true, "replica=1 at=edges!flip_here n=1 mem=[rax+70] bit=3", After::Detected, edges),
        // A SIGKILL that the kernel has refused is no end: who dies then is repaired.
        one("killed_after_a_refused_kill", 2, false, "replica=1 at=own_kill!flip_here n=1 kill=9", After::Corrected, refused_kill),
        one("sparse_of_3", 3, false, "replica=leader event=200 reg=rsp bit=4", After::Corrected, sparse),
        // A real program on a real input.
        one("bzip2_rsp_at_event", 2, false, "replica=leader event=15 reg=rsp bit=4", After::Right, compressor),
        one("bzip2_write_buffer", 3, false, "replica=leader event=40 mem=[rsi] bit=3", After::Right, compressor),
        one("bzip2_killed", 2, false, "replica=follower event=15 kill=9", After::Corrected, compressor),
        memory_limit(),
        // Every event: the roles take turns, and each has all of them where all are wanted.
        in_turn(0, "kill_follower_at_every_event", "follower", "kill=9", short),
        in_turn(1, "kill_leader_at_every_event", "leader", "kill=9", short),
        at_every_event(apart(2, 6), "crash_follower_at_events", 2, "follower", "kind=crash", After::Corrected, short),
        at_every_event(apart(2, 6), "crash_leader_at_events", 2, "leader", "kind=crash", After::Corrected, short),
        at_every_event(apart(12, 37), "hang_follower_at_events", 2, "follower", "kind=hang", After::Corrected, short),
        at_every_event(apart(12, 41), "hang_leader_at_events", 2, "leader", "kind=hang", After::Corrected, short),
        at_every_event(apart(3, 5), "kill_leader_of_3_at_events", 3, "leader", "kill=9", After::Corrected, short),
        at_every_event(apart(3, 6), "kill_follower_of_3_at_events", 3, "follower", "kill=9", After::Corrected, short),
        at_every_event(apart(2, 7), "exec_leader_killed", 2, "leader", "kill=9", After::Right, two),
        at_every_event(apart(2, 8), "exec_follower_killed", 3, "follower", "kill=9", After::Right, two),
        // Behind the vote about the exec, which the leader makes meanwhile.
        at_the_exec("exec_follower_crashes", 2, "follower", "after-vote kind=crash"),
        at_every_event(apart(2, 5), "number_at_events", 2, "leader", "reg=rax bit=2", After::Right, short),
        at_every_event(apart(2, 5), "argument_at_events", 2, "follower", "reg=rsi bit=12", After::Right, short),
        at_every_event(apart(2, 5), "buffer_at_events", 2, "leader", "mem=[rsi] bit=3", After::Right, short),
        // With a file mapped shared: before and after the vote on a write-back, and a leader that has to map it anew.
        at_every_event(apart(5, 19), "mapped_before_vote", 3, "leader", "mem=[rdi+0x10010] bit=5", After::Right, mapped),
        at_every_event(apart(5, 19), "mapped_after_vote", 3, "leader", "after-vote mem=[rdi+0x10010] bit=5", After::Right, mapped),
        at_every_event(apart(11, 22), "mapped_leader_killed", 2, "leader", "kill=9", After::Corrected, mapped),
        at_every_event(apart(11, 31), "mapped_follower_killed", 2, "follower", "kill=9", After::Corrected, mapped),
        at_every_event(61, "database_leader_killed", 2, "leader", "kill=9", After::Corrected, database),
        at_every_event(83, "database_leader_of_3_killed", 3, "leader", "kill=9", After::Corrected, database),
        // A leader made anew has a heap with a closed part, or one that a mapping has stopped.
        at_every_event(apart(3, 13), "heap_leader_killed", 2, "leader", "kill=9", After::Corrected, heap),
        at_every_event(apart(7, 23), "heap_leader_of_3_killed", 3, "leader", "kill=9", After::Corrected, heap),
        // rdtsc that faults, in whoever is made again as well.
        at_every_event(apart(37, 71), "clock_leader_killed", 2, "leader", "kill=9", After::Corrected, clock),
        at_every_event(apart(37, 71), "clock_follower_of_3_killed", 3, "follower", "kill=9", After::Corrected, clock),
        at_every_event(apart(41, 83), "clock_leader_crashes", 2, "leader", "kind=crash", After::Corrected, clock),
        // Threads: the table of those that do not run, their order, and every role's death.
        one("queue_of_2_leader", 2, false, "replica=leader event=500 mem=[0x2e1000008000] bit=3", After::Corrected, parked),
        one("queue_of_2_follower", 2, false, "replica=1 event=500 mem=[0x2e1000008000] bit=3", After::Corrected, parked),
        one("queue_of_3_leader", 3, false, "replica=leader event=500 mem=[0x2e1000008000] bit=0", After::Corrected, parked),
        one("queue_of_3_follower", 3, false, "replica=2 event=500 mem=[0x2e1000008000] bit=0", After::Corrected, parked),
        one("futex_word_of_2", 2, false, "replica=leader event=500 mem=[0x2e1000008010] bit=3", After::Corrected, parked),
        one("futex_word_of_3", 3, false, "replica=1 event=500 mem=[0x2e1000008010] bit=3", After::Corrected, parked),
        one("order_of_2", 2, false, "replica=1 event=500 mem=[0x2e1000000000] bit=3", After::Right, parked),
        // A thread that splices while another one has the other end.
        one("splicing_leader_killed", 2, false, "replica=leader event=400 kill=9", After::Corrected, splicing),
        one("splicing_follower_of_3_killed", 3, false, "replica=2 event=150 kill=9", After::Corrected, splicing),
        // Threads that compute: the end of who is to meet.
        one("computing_leader_killed", 2, false, "replica=leader event=125 kill=9", After::Corrected, computing),
        at_every_event(397, "threads_leader_killed", 2, "leader", "kill=9", After::Corrected, parked),
        at_every_event(397, "threads_leader_of_3_killed", 3, "leader", "kill=9", After::Corrected, parked),
        at_every_event(397, "threads_follower_killed", 2, "follower", "kill=9", After::Corrected, parked),
        // From outside, at any moment.
        from_outside("sigkill_to_leader_of_2", 2, 0, Signal::SIGKILL, false),
        from_outside("sigkill_to_follower_of_2", 2, 1, Signal::SIGKILL, false),
        from_outside("sigkill_to_leader_of_3", 3, 0, Signal::SIGKILL, false),
        from_outside("sigkill_to_follower_of_3", 3, 2, Signal::SIGKILL, false),
        from_outside("sigsegv_to_follower_of_2", 2, 1, Signal::SIGSEGV, false),
        all_killed(),
        goes_on("write", 1),
        goes_on("writev", 1),
        goes_on("sendmsg", 1),
        goes_on("pwritev2", 1),
        goes_on("recv", 1),
        goes_on("recvmsg", 1),
        goes_on("write", 0),
        goes_on("writev", 0),
        goes_on("pwritev2", 0),
        goes_on("threads", 0),
        killed_with_a_signal("leader_of_2_killed_with_a_signal", 2, 0),
        killed_with_a_signal("follower_of_2_killed_with_a_signal", 2, 1),
        killed_with_a_signal("leader_of_3_killed_with_a_signal", 3, 0),
        struck_from_outside("sigkill_to_leader_of_2_without_rights", 2, 0, Signal::SIGKILL, false, dropped),
        struck_from_outside("sigkill_to_follower_of_2_without_rights", 2, 1, Signal::SIGKILL, false, dropped),
        struck_from_outside("sigkill_to_leader_of_3_without_rights", 3, 0, Signal::SIGKILL, false, dropped),
        struck_from_outside("sigkill_to_follower_of_3_without_capabilities", 3, 1, Signal::SIGKILL, false, dropped_caps),
        struck_from_outside("sigkill_to_follower_that_advised_against_copies", 2, 1, Signal::SIGKILL, false, advised),
        struck_from_outside("sigkill_to_leader_that_advised_against_copies", 2, 0, Signal::SIGKILL, false, advised),
        struck_after(&[3], "sparse_leader_killed", 2, 0, Signal::SIGKILL, false, sparse),
        from_outside("stop_and_continue_leader", 2, 0, Signal::SIGSTOP, true),
        from_outside("stop_and_continue_follower", 2, 1, Signal::SIGSTOP, true),
    ]);
    if all() {
        // By the same rule as the follower above, and seconds long.
        trials.push(one(
            "slower_leader_of_2",
            2,
            true,
            "replica=0 at=uneven!flip_here n=1 reg=rax bit=31",
            After::Agreed,
            uneven,
        ));
    }
    trials.extend(apart_in_a_computation());
    trials.extend(while_a_thread_computes());
    trials.extend(killed_in_a_computation());
    trials.extend(crate::kills::trials());
    trials
}
