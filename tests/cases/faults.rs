//! Faults: flips, crashes, hangs and kills, in leader and follower, at chosen places; the output must be the bare one.
//!
//! Flips are armed with the project's fault grammar. Each alarm has a case that makes it ring and one that keeps it
//! silent; flips in a single replica prove that the fault itself works, since there it must change the output.
//!
//! Not covered: rates. Campaigns draw flips at random over the whole run; here each has its place.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use steadfast_integrity::event::{Line, What};
use steadfast_integrity::exit::{Own, Verdict};

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{Log, first_difference, last_lines, output_difference, protector, repeat};
use crate::programs;
use crate::run::{Invocation, Ran, Stdin};
use crate::sample::{all, apart, paired, sampled};

// A replica that answers no command is given 20 s (docs/concepts/replication.md); the rest is room on a machine that does other work.
const LIMIT: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
/// Offset of `live` in struct sf_group (crates/agent/src/abi.h).
const LIVE: usize = 776;
/// Offset in `sf_calls` of the kind of write's second argument (crates/agent/src/calls.h, struct sf_call).
const WRITE_ROW: usize = 72 + 12 + 8;

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
}

impl Target {
    fn guest(source: &str, args: &[&str]) -> Result<Self, String> {
        Ok(Self {
            program: build::guest(source, Variant::Dynamic)?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            stdin: Stdin::Null,
        })
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
            let bare = target.invocation(Vec::new()).run(&dir, LIMIT)?;
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
            &["--on-mismatch", mode, "--flip", &self.flip],
        ));
        let run = {
            let _group = (self.replicas > 1).then(one_group);
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
                None => Err(
                    "the fault changed nothing, so its protected twin proves nothing".to_owned(),
                ),
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

/// A shorter run for cases that strike at every event.
fn short() -> Result<Target, String> {
    Target::guest("steady.c", &["6"])
}

/// A thread that is parked in a semaphore while another makes a thousand calls.
fn parked() -> Result<Target, String> {
    Target::guest("threads_parked.c", &[])
}

/// Three threads that compute while the first one sleeps.
fn computing() -> Result<Target, String> {
    Target::guest("threads_compute.c", &[])
}

/// A heap of several huge pages, part of it closed for a while.
fn heap() -> Result<Target, String> {
    Target::guest("heap.c", &[])
}

/// Two programs, one in the place of the other.
fn two() -> Result<Target, String> {
    Target::guest("execve.c", &[])
}

fn long() -> Result<Target, String> {
    Target::guest("steady.c", &["30"])
}

/// What a bad multiplier gets wrong.
fn products() -> Result<Target, String> {
    Target::guest("products.c", &["20"])
}

/// Operands whose addresses the stack pointer forms.
fn operands() -> Result<Target, String> {
    Target::guest("operands.c", &["20"])
}

/// A bad core under one replica: its every multiplication is wrong, and goes on to be wrong when that replica has been
/// made again. The run ends with the right bytes, and its events name that replica and the core on which it was struck.
fn bad_core(replicas: u8, who: u8) -> Trial {
    let name = format!("bad_core::blamed_{who}_of_{replicas}");
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = products()?;
        let bare = target.invocation(Vec::new()).run(&dir, LIMIT)?;
        let fault = Fault {
            name: name.clone(),
            replicas,
            stop: false,
            flip: format!("replica={who} class=int-mul in=products n=1.. reg=rax after bit=13"),
            after: After::Corrected,
        };
        fault
            .strike(&target, &bare, &dir)
            .map_err(|why| fault.failed(&why, &dir))?;
        let log = Log::read(&dir.join("events"))?;
        let struck = log.lines.iter().find_map(|line| match &line.event.what {
            What::Fault(hit) => Some((hit.replica.0, hit.core)),
            _ => None,
        });
        let blamed = log.lines.iter().find_map(|line| match &line.event.what {
            What::Recovery(recovery) => Some((recovery.replica.map(|id| id.0), recovery.core)),
            _ => None,
        });
        let losses = log
            .lines
            .iter()
            .filter(|line| matches!(line.event.what, What::Recovery(_)))
            .count();
        if losses < 2 {
            return Err(fault.failed("a core that is bad was so once", &dir));
        }
        let Some(((replica, core), (loser, on))) = struck.zip(blamed) else {
            return Err(fault.failed("no event says who was struck, or who was wrong", &dir));
        };
        if (Some(replica), core) != (loser, on) || replica != who {
            let why =
                format!("replica {replica} on {core:?} was struck, {loser:?} on {on:?} was blamed");
            return Err(fault.failed(&why, &dir));
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Survives a wild address, and doubles numbers by one instruction.
fn survivor() -> Result<Target, String> {
    Target::guest("survivor.c", &["20"])
}

/// Computes for some tenths of a second.
fn longer() -> Result<Target, String> {
    Target::guest("steady.c", &["2000"])
}

/// A fault at a moment of time. When it comes is the machine's affair: nothing wrong leaves each time, and of ten runs it has
/// to be there in one. Two replicas may meet it before there is a snapshot to decide by, and stop. What docs/reference/limits-run.md leaves
/// open at some moments (what the leader is about to write, bytes that it has just read) is not struck.
fn by_the_clock(name: &str, replicas: u8, flip: &'static str) -> Trial {
    let name = format!("clock::{name}");
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = longer()?;
        let bare = target.invocation(Vec::new()).run(&dir, LIMIT)?;
        let fault = Fault {
            name: name.clone(),
            replicas,
            stop: false,
            flip: flip.to_owned(),
            after: After::DetectedOrRight,
        };
        for _ in 0..10 {
            fault
                .strike(&target, &bare, &dir)
                .map_err(|why| fault.failed(&why, &dir))?;
            let log = Log::read(&dir.join("events"))?;
            if log.report.faults.iter().any(|fault| fault.hits > 0) {
                Bench::get().passed(&dir);
                return Ok(());
            }
        }
        Err(fault.failed("none of ten runs met its moment", &dir))
    })
}

/// A program whose first event is its first write.
fn smallest() -> Result<Target, String> {
    Ok(Target {
        program: build::guest("asm_only.S", Variant::Bare)?,
        args: Vec::new(),
        stdin: Stdin::Null,
    })
}

/// A program, and itself once more in its place.
fn again() -> Result<Target, String> {
    Target::guest("again.c", &[])
}

/// A defect without an end strikes the program that takes this one's place too, and one with an end does not: bare, by the
/// lines that are wrong; under two replicas, by the repairs before and behind the exec.
fn goes_on_after_exec() -> Trial {
    let name = "bad_core::goes_on_after_exec";
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = again()?;
        let bare = target.invocation(Vec::new()).run(&dir, LIMIT)?;
        let fault = |replicas, hits: &str, after| {
            let who = if replicas > 1 { "replica=1 " } else { "" };
            Fault {
                name: name.to_owned(),
                replicas,
                stop: false,
                flip: format!("{who}class=int-mul in=again {hits} reg=rax after bit=13"),
                after,
            }
        };
        for (hits, wrong) in [
            ("n=1..", ["before", "after"].as_slice()),
            ("n=1..9", &["before"]),
        ] {
            let fault = fault(1, hits, After::Unprotected);
            fault
                .strike(&target, &bare, &dir)
                .map_err(|why| fault.failed(&why, &dir))?;
            let struck = fs::read_to_string(dir.join("stdout"))?;
            let right = String::from_utf8_lossy(&bare.stdout).into_owned();
            let differ: Vec<&str> = right
                .lines()
                .zip(struck.lines())
                .filter(|(a, b)| a != b)
                .filter_map(|(a, _)| a.split(' ').next())
                .collect();
            if differ != wrong {
                let why = format!("{hits}: the lines {differ:?} are wrong, expected {wrong:?}");
                return Err(fault.failed(&why, &dir));
            }
        }
        let fault = fault(2, "n=1..", After::Corrected);
        fault
            .strike(&target, &bare, &dir)
            .map_err(|why| fault.failed(&why, &dir))?;
        let log = Log::read(&dir.join("events"))?;
        let is_exec = |line: &Line| matches!(line.event.what, What::Exec(_));
        let Some(exec) = log.lines.iter().position(is_exec) else {
            return Err(fault.failed("no event says that another program took its place", &dir));
        };
        let repaired = |lines: &[Line]| {
            lines
                .iter()
                .any(|line| matches!(line.event.what, What::Recovery(_)))
        };
        if !repaired(&log.lines[..exec]) || !repaired(&log.lines[exec..]) {
            return Err(fault.failed("no repair before, or none behind, the exec", &dir));
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// State in huge pages.
fn huge() -> Result<Target, String> {
    Target::guest("huge_state.c", &[])
}

/// Root's program that becomes an ordinary user before it works.
fn dropped() -> Result<Target, String> {
    Target::guest("drop_steady.c", &["400"])
}

/// One that keeps its user and drops its capabilities.
fn dropped_caps() -> Result<Target, String> {
    let mut target = dropped()?;
    target.args.push("caps".to_owned());
    Ok(target)
}

/// Memory that no child is to get, of a program that is repaired by copies of it.
fn advised() -> Result<Target, String> {
    Target::guest("advice.c", &["200"])
}

/// A loop of seconds whose length alone is struck.
fn uneven() -> Result<Target, String> {
    Target::guest("uneven.c", &[])
}

/// A table that nobody may store to any more when it is struck.
fn closed() -> Result<Target, String> {
    Target::guest("closed.c", &[])
}

/// Shows a vector register just behind the instruction that is struck.
fn vector_stored_twice() -> Result<Target, String> {
    Target::guest("vector_once.c", &[])
}

/// Goes on after a SIGKILL to itself that was refused.
fn refused_kill() -> Result<Target, String> {
    Target::guest("own_kill.c", &[])
}

/// A write of which not all can be read: what can is written, and has to be compared.
fn edges() -> Result<Target, String> {
    Target::guest("edges.c", &[])
}

/// Much address space, little memory.
fn sparse() -> Result<Target, String> {
    Target::guest("sparse.c", &["400"])
}

/// A file mapped shared: stores that wait for their write-back.
fn mapped() -> Result<Target, String> {
    Target::guest("mmap_shared_rounds.c", &[])
}

fn database() -> Result<Target, String> {
    Target::program("sqlite3_wal")
}

fn compressor() -> Result<Target, String> {
    Target::program("bzip2")
}

/// A flip that changes the output of a single replica, which is shown each time, and its protected forms.
struct Family {
    name: &'static str,
    flip: &'static str,
    target: fn() -> Result<Target, String>,
}

/// How a family is protected: replicas, whether a difference stops, who is struck.
const WAYS: &[(&str, u8, bool, &str)] = &[
    ("leader_of_2", 2, false, "leader"),
    ("follower_of_2", 2, false, "follower"),
    ("leader_of_3", 3, false, "leader"),
    ("follower_of_3", 3, false, "2"),
    ("last_of_5", 5, false, "4"),
    ("leader_of_2_stops", 2, true, "leader"),
    ("follower_of_2_stops", 2, true, "follower"),
    ("follower_of_3_stops", 3, true, "1"),
];

const fn family(
    name: &'static str,
    flip: &'static str,
    target: fn() -> Result<Target, String>,
) -> Family {
    Family { name, flip, target }
}

const FAMILIES: &[Family] = &[
    // The value that every later line depends on; early, in the middle, near the end; a low and a high bit.
    family("value_early", "at=steady!flip_here n=1 reg=rax bit=0", long),
    family(
        "value_middle",
        "at=steady!flip_here n=60000 reg=rax bit=17",
        long,
    ),
    family(
        "value_late",
        "at=steady!flip_here n=122000 reg=rax bit=63",
        long,
    ),
    // The stack pointer and the next instruction: the replica crashes.
    family(
        "stack_pointer",
        "at=steady!flip_here n=30000 reg=rsp bit=40",
        long,
    ),
    family(
        "instruction_pointer",
        "at=steady!flip_here n=30000 ip bit=44",
        long,
    ),
    // A thread that does not run: its stack pointer, its way back, its own variables (thread.h).
    family(
        "parked_stack_pointer",
        "event=500 mem=[0x2e10000080c0] bit=3",
        parked,
    ),
    family(
        "parked_way_back",
        "event=500 mem=[0x2e10000080c8] bit=5",
        parked,
    ),
    family(
        "parked_fs_base",
        "event=500 mem=[0x2e1000008040] bit=3",
        parked,
    ),
    family(
        "bad_core",
        "class=int-mul in=products n=1.. reg=rax after bit=13",
        products,
    ),
    // An instruction of a class is left out, and what follows it stands inside its window; a loop ends early.
    family(
        "left_out",
        "class=int-mul in=products n=700 kind=skip",
        products,
    ),
    family(
        "other_way",
        "class=branch in=products!main n=700 kind=invert",
        products,
    ),
    // Code that goes wrong on the way: a number becomes three times another one instead of twice.
    family("code", "at=survivor!twice n=700 code bit=30", survivor),
    // Memory operands, of addresses that the stack pointer forms: one instruction.
    family(
        "stack_store",
        "at=operands!store_here n=700 waddr bit=3",
        operands,
    ),
    family(
        "stack_load",
        "at=operands!load_here n=700 raddr bit=4",
        operands,
    ),
    family(
        "stack_push",
        "at=operands!push_here n=700 waddr bit=5",
        operands,
    ),
    // A store to a file mapped shared, which no call carries: early and late, whole pages of words apart.
    family(
        "mapped_early",
        "at=mmap_shared_rounds!flip_here n=1 mem=[rax] bit=5",
        mapped,
    ),
    family(
        "mapped_late",
        "at=mmap_shared_rounds!flip_here n=1200 mem=[rax+4] bit=31",
        mapped,
    ),
    family(
        "without_rights",
        "at=drop_steady!flip_here n=60000 reg=rax bit=17",
        dropped,
    ),
    // State in huge pages, which a snapshot shares and the follower copies: before and after the first.
    family(
        "huge_early",
        "at=huge_state!flip_here n=7000 reg=rax bit=40",
        huge,
    ),
    family(
        "huge_late",
        "at=huge_state!flip_here n=240000 reg=rax bit=3",
        huge,
    ),
];

fn families() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, family) in FAMILIES.iter().enumerate() {
        let mut fault = |way: &str, replicas, stop, who: &str, after| {
            let fault = Fault {
                name: format!("{}::{way}", family.name),
                replicas,
                stop,
                flip: format!("{who}{}", family.flip),
                after,
            };
            trials.push(fault.trial(family.target));
        };
        fault("alone", 1, false, "", After::Unprotected);
        for (column, &(way, replicas, stop, who)) in WAYS.iter().enumerate() {
            if sampled(row, column) {
                let after = if stop {
                    After::Detected
                } else {
                    After::Corrected
                };
                fault(way, replicas, stop, &format!("replica={who} "), after);
            }
        }
    }
    trials
}

/// Strikes at every `step`-th event of a short program, one run each. Every event, in both roles, is struck with two
/// replicas; the rest takes samples, for time.
fn at_every_event(
    step: usize,
    name: &'static str,
    replicas: u8,
    who: &'static str,
    effect: &'static str,
    after: After,
    target: fn() -> Result<Target, String>,
) -> Trial {
    let events = move |log: &Log| (1..=log.report.events).step_by(step).collect();
    at_events(name, replicas, who, effect, after, target, events)
}

/// Strikes where one program takes the place of another, as often as it takes for the moments in between to come up.
fn at_the_exec(name: &'static str, replicas: u8, who: &'static str, effect: &'static str) -> Trial {
    let events = |log: &Log| {
        let of_exec = log.lines.iter().filter_map(|line| match &line.event.what {
            What::Exec(exec) => Some(exec.event.0),
            _ => None,
        });
        of_exec.flat_map(|event| [event; 24]).collect()
    };
    at_events(
        name,
        replicas,
        who,
        effect,
        After::DetectedOrRight,
        two,
        events,
    )
}

/// Strikes at each of the events that `choose` finds in a run without a fault.
fn at_events(
    name: &'static str,
    replicas: u8,
    who: &'static str,
    effect: &'static str,
    after: After,
    target: fn() -> Result<Target, String>,
    choose: impl Fn(&Log) -> Vec<u64> + Send + 'static,
) -> Trial {
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = target()?;
        let bare = target.invocation(Vec::new()).run(&dir, LIMIT)?;
        let events = dir.join("events");
        let healthy = {
            let _group = one_group();
            target
                .invocation(protector(replicas, &events, &[]))
                .run(&dir, LIMIT)?
        };
        if let Some(why) = output_difference(&bare, &healthy) {
            return Err(format!("without a fault: {why}").into());
        }
        let log = Log::read(&events)?;
        let last = log.report.events;
        let struck = choose(&log);
        if last < 10 || struck.is_empty() {
            return Err(format!("only {last} events, {} to strike at", struck.len()).into());
        }
        for event in struck {
            let fault = Fault {
                name: name.to_owned(),
                replicas,
                stop: false,
                flip: format!("replica={who} event={event} {effect}"),
                after,
            };
            fault
                .strike(&target, &bare, &dir)
                .map_err(|why| fault.failed(&format!("at event {event} of {last}: {why}"), &dir))?;
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Sends a signal to one replica from outside, at moments spread over the run, with its number from the event file.
fn from_outside(
    name: &'static str,
    replicas: u8,
    which: usize,
    signal: Signal,
    resume: bool,
) -> Trial {
    struck_from_outside(name, replicas, which, signal, resume, || {
        Target::guest("steady.c", &["400"])
    })
}

fn struck_from_outside(
    name: &'static str,
    replicas: u8,
    which: usize,
    signal: Signal,
    resume: bool,
    target: fn() -> Result<Target, String>,
) -> Trial {
    struck_after(
        &[0, 3, 10, 25, 60],
        name,
        replicas,
        which,
        signal,
        resume,
        target,
    )
}

/// Nobody comes to an event for longer than a replica may take that hangs.
fn killed_in_a_computation() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (row, replicas) in [2, 3].into_iter().enumerate() {
        for (who, name) in [
            [
                "leader_of_2_killed_in_a_computation",
                "leader_of_3_killed_in_a_computation",
            ],
            [
                "follower_of_2_killed_in_a_computation",
                "follower_of_3_killed_in_a_computation",
            ],
        ]
        .into_iter()
        .map(|names| names[row])
        .enumerate()
        {
            if paired(0, row, who) {
                trials.push(struck_after(
                    &[10],
                    name,
                    replicas,
                    who,
                    Signal::SIGKILL,
                    false,
                    computation,
                ));
            }
        }
    }
    trials
}

fn computation() -> Result<Target, String> {
    Target::guest("compute.c", &["2500"])
}

/// Its end is waited for twice and more where one does not come to it.
fn short_computation() -> Result<Target, String> {
    Target::guest("compute.c", &["500"])
}

/// One replica leaves a long computation early, or crashes in it, or never comes to its end: who comes to the next event
/// first is not right for that.
fn apart_in_a_computation() -> Vec<Trial> {
    const EARLY: &str = "reg=rdx bit=63";
    const CRASH: &str = "ip bit=45";
    const ENDLESS: &str = "reg=rdx bit=40";
    let mut trials = Vec::new();
    for (row, (name, effect, replicas)) in [
        ("early", EARLY, [2, 3]),
        ("crash", CRASH, [3, 2]),
        ("endless", ENDLESS, [2, 3]),
    ]
    .into_iter()
    .enumerate()
    {
        for (column, replicas) in replicas.into_iter().enumerate() {
            for (role, who) in ["leader", "follower"].into_iter().enumerate() {
                if !paired(row, column, role) {
                    continue;
                }
                let flip = format!("replica={who} at=compute!flip_here n=7000 {effect}");
                let target = if effect == ENDLESS {
                    short_computation
                } else {
                    computation
                };
                let name = format!("{who}_{name}_of_{replicas}_in_a_computation");
                trials.push(
                    Fault {
                        name,
                        replicas,
                        stop: false,
                        flip,
                        after: After::Corrected,
                    }
                    .trial(target),
                );
            }
        }
    }
    let flip = format!("replica=follower at=compute!flip_here n=7000 {EARLY}");
    let name = "early_stops_of_2_in_a_computation".to_owned();
    trials.push(
        Fault {
            name,
            replicas: 2,
            stop: true,
            flip,
            after: After::Detected,
        }
        .trial(computation),
    );
    trials
}

fn shares_memory() -> Result<Target, String> {
    Target::guest("shared_fork.c", &[])
}

/// The page in which processes that share memory take turns (crates/agent/src/domain.c): the next ticket stands first.
const DOMAIN: u64 = 0x2a18_0000_0000;

fn shares_memory_by_name() -> Result<Target, String> {
    Target::guest("shared_named.c", &[])
}

fn shares_memory_among_threads() -> Result<Target, String> {
    Target::guest("shared_threads.c", &[])
}

/// Three replicas of a process that shares memory with others are repaired with what they share. With two, and where a leader
/// is killed, the tree stops. What nobody reads is no difference.
fn in_shared_memory() -> Vec<Trial> {
    let at = "at=shared_fork!report n=1";
    [
        (
            "memory_of_2",
            2,
            format!("replica=1 {at} mem=[[shared_fork!s]+24] bit=5"),
            After::Detected,
        ),
        (
            "memory_of_leader_of_3",
            3,
            format!("replica=leader {at} mem=[[shared_fork!s]+24] bit=5"),
            After::Corrected,
        ),
        (
            "memory_of_3",
            3,
            format!("replica=2 {at} mem=[[shared_fork!s]+24] bit=5"),
            After::Corrected,
        ),
        (
            "crash_of_3",
            3,
            format!("replica=1 {at} reg=rsp bit=40"),
            After::Corrected,
        ),
        (
            "crash_of_leader_of_3",
            3,
            format!("replica=leader {at} reg=rsp bit=40"),
            After::Corrected,
        ),
        (
            "hang_of_3",
            3,
            format!("replica=1 {at} kind=hang"),
            After::Corrected,
        ),
        (
            "hang_of_leader_of_3",
            3,
            format!("replica=leader {at} kind=hang"),
            After::Corrected,
        ),
        // A word that all workers read and write: some of them have computed with it when it is found.
        (
            "word_of_workers",
            3,
            "process=1 replica=2 event=20 mem=[[shared_fork!s]+16] bit=9".to_owned(),
            After::Corrected,
        ),
        (
            "word_of_workers_of_leaders",
            3,
            "process=2 replica=leader event=20 mem=[[shared_fork!s]+16] bit=9".to_owned(),
            After::Corrected,
        ),
        (
            "memory_unread",
            2,
            format!("replica=1 {at} mem=[[shared_fork!s]] bit=5"),
            After::Agreed,
        ),
        (
            "baton",
            2,
            format!("replica=1 {at} mem=[{DOMAIN:#x}] bit=7"),
            After::Detected,
        ),
        (
            "baton_unread",
            3,
            format!("replica=2 {at} mem=[{:#x}] bit=7", DOMAIN + 2048),
            After::Agreed,
        ),
        (
            "killed_follower_of_2",
            2,
            format!("replica=1 {at} kill=9"),
            After::Corrected,
        ),
        (
            "killed_follower_of_3",
            3,
            format!("replica=2 {at} kill=9"),
            After::Corrected,
        ),
        // Workers die while they hold the baton, and while they wait for it.
        (
            "killed_followers_of_all_of_3",
            3,
            "process=all replica=1 event=20 kill=9".to_owned(),
            After::Corrected,
        ),
        (
            "killed_followers_of_all_of_2",
            2,
            "process=all replica=1 event=25 kill=9".to_owned(),
            After::Corrected,
        ),
        (
            "killed_leader",
            2,
            format!("replica=leader {at} kill=9"),
            After::Detected,
        ),
    ]
    .into_iter()
    .map(|(name, replicas, flip, after)| {
        Fault {
            name: format!("sharing_{name}"),
            replicas,
            stop: false,
            flip,
            after,
        }
        .trial(shares_memory)
    })
    .chain(by_name())
    .chain(among_threads())
    .collect()
}

/// A copy of a file that processes share by its name is memory like any other: of a follower's, and of the leader's.
fn by_name() -> impl Iterator<Item = Trial> {
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

fn among_threads() -> impl Iterator<Item = Trial> {
    [
        ("2", 2, After::Detected),
        ("1", 3, After::Corrected),
        ("leader", 3, After::Corrected),
    ]
    .into_iter()
    .map(|(replica, replicas, after)| {
        let struck = if replica == "2" { "1" } else { replica };
        Fault {
            name: format!("sharing_threads_{replica}_of_{replicas}"),
            replicas,
            stop: false,
            flip: format!(
                "replica={struck} at=shared_threads!report n=1 mem=[[shared_threads!s]] bit=5"
            ),
            after,
        }
        .trial(shares_memory_among_threads)
    })
}

/// A repair while the leader waits in the middle of a call for whoever takes the bytes, or sends them: the program is told
/// that all of them were moved.
fn goes_on(how: &'static str) -> Trial {
    const WHOLE: usize = 1 << 20;
    Trial::test(format!("faults::{how}_goes_on"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{how}-goes-on"));
        let guest = build::guest("write_whole.c", Variant::Dynamic)?;
        let events = dir.join("events");
        let _group = one_group();
        let (mut socket, theirs) = UnixStream::pair()?;
        let (pipe, end) = std::io::pipe()?;
        let (mut from, to): (Box<dyn Read>, Stdio) = match how {
            "sendmsg" => (
                Box::new(socket.try_clone()?),
                OwnedFd::from(theirs.try_clone()?).into(),
            ),
            _ => (Box::new(pipe), end.into()),
        };
        let run = std::process::Command::new(Bench::get().binary())
            .args(["run", "-n", "2", "--events"])
            .args([
                events.as_os_str(),
                "--".as_ref(),
                guest.as_os_str(),
                how.as_ref(),
            ])
            .stdin(OwnedFd::from(theirs))
            .stdout(to)
            .stderr(Stdio::piped())
            .spawn()?;
        let receives = how.starts_with("recv");
        let bytes: Vec<u8> = (b'a'..b'a' + 23).cycle().take(WHOLE).collect();
        // The first bytes are there: it waits for more, or for more room.
        let mut moved = vec![0; if receives { "ready\n".len() } else { 1000 }];
        from.read_exact(&mut moved)?;
        if receives {
            moved.clear();
            socket.write_all(&bytes[..1000])?;
        }
        thread::sleep(Duration::from_millis(100));
        kill(Pid::from_raw(replica_pid(&events, 1)?), Signal::SIGKILL)?;
        thread::sleep(Duration::from_millis(300));
        if receives {
            socket.write_all(&bytes[1000..])?;
        }
        from.read_to_end(&mut moved)?;
        let ended = run.wait_with_output()?;
        if !ended.status.success() || moved != bytes {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            return Err(format!("{}, {} bytes\n{said}", ended.status, moved.len()).into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// While a signal waits in the leader's hand, and while replicas meet for it.
fn killed_with_a_signal(name: &'static str, replicas: u8, which: usize) -> Trial {
    let delays = &[22, 27, 32, 40, 50, 70];
    struck_after(
        delays,
        name,
        replicas,
        which,
        Signal::SIGKILL,
        false,
        || Target::guest("sig_spin.c", &[]),
    )
}

fn struck_after(
    delays_ms: &'static [u64],
    name: &'static str,
    replicas: u8,
    which: usize,
    signal: Signal,
    resume: bool,
    target: fn() -> Result<Target, String>,
) -> Trial {
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = target()?;
        let bare = target.invocation(Vec::new()).run(&dir, LIMIT)?;
        for &delay_ms in delays_ms {
            let events = dir.join("events");
            let _ = fs::remove_file(&events);
            let invocation = target.invocation(protector(replicas, &events, &[]));
            let _group = one_group();
            let run = invocation.start(&dir)?;
            run.await_output("round 0 ", LIMIT)?;
            let pid = replica_pid(&events, which)?;
            thread::sleep(Duration::from_millis(delay_ms));
            // It may have ended by itself: then nothing is shown, and nothing is wrong.
            let _ = kill(Pid::from_raw(pid), signal);
            if resume {
                thread::sleep(Duration::from_millis(150));
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
            let run = run.wait(LIMIT)?;
            run.nothing_left(GRACE)?;
            if let Some(why) = output_difference_but_stderr(&bare, &run) {
                return Err(format!(
                    "{signal} to replica {which} after {delay_ms} ms: {why}\n{}  files:  {}\n  repeat: {}",
                    last_lines(&run),
                    dir.display(),
                    repeat(&format!("faults::{name}"))
                )
                .into());
            }
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// The process of a replica: the first line of the event file names it as soon as the group runs.
pub(crate) fn replica_pid(events: &Path, which: usize) -> Result<i32, String> {
    let text = fs::read_to_string(events).map_err(|error| format!("events: {error}"))?;
    let line = text
        .lines()
        .next()
        .ok_or("the event file is empty although the program has spoken")?;
    let line: steadfast_integrity::event::Line =
        serde_json::from_str(line).map_err(|error| format!("events: {error}"))?;
    let What::RunStart(start) = line.event.what else {
        return Err("events do not begin with run_start".to_owned());
    };
    let replica = start.replicas.get(which).ok_or("no such replica")?;
    i32::try_from(replica.pid).map_err(|error| error.to_string())
}

/// All replicas at once, as `killall -9` finds them by their name: the program was killed, and nobody is to blame.
fn all_killed() -> Trial {
    Trial::test("faults::all_killed", || {
        let dir = Bench::get().case_dir("faults-all-killed");
        for replicas in [2, 3] {
            let events = dir.join("events");
            let _ = fs::remove_file(&events);
            let target = Target::guest("sleeper.c", &[])?;
            let invocation = target.invocation(protector(replicas, &events, &[]));
            let _group = one_group();
            let run = invocation.start(&dir)?;
            run.await_output("ready\n", LIMIT)?;
            let pids: Vec<i32> = (0..usize::from(replicas))
                .map(|r| replica_pid(&events, r))
                .collect::<Result<_, _>>()?;
            for pid in pids {
                kill(Pid::from_raw(pid), Signal::SIGKILL)?;
            }
            let run = run.wait(LIMIT)?;
            run.nothing_left(GRACE)?;
            if run.end() != "signal 9" {
                return Err(format!(
                    "ended with {}, expected signal 9\n{}",
                    run.end(),
                    last_lines(&run)
                )
                .into());
            }
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// A memory controller of its own, where the tests may make one: the kernel kills a replica, or the launcher.
fn memory_limit() -> Trial {
    Trial::test("faults::memory_limit", || {
        let dir = Bench::get().case_dir("faults-memory-limit");
        let guest = build::guest("memory_hog.c", Variant::Dynamic)?;
        let Some(group) = MemoryGroup::make(96 << 20) else {
            return address_space_limit(&dir, &guest);
        };
        let invocation = Invocation {
            wrapper: vec![
                "/bin/sh".to_owned(),
                "-c".to_owned(),
                format!("echo $$ >{}/cgroup.procs && exec \"$@\"", group.0.display()),
                "sh".to_owned(),
            ],
            protector: protector(2, &dir.join("events"), &[]),
            program: guest,
            args: vec!["256".to_owned()],
            ..Invocation::default()
        };
        let _lock = one_group();
        let run = invocation.run(&dir, LIMIT)?;
        run.nothing_left(Duration::from_secs(1))?;
        // Two replicas need twice 256 MiB and have 96: the run cannot succeed, and must not pretend to.
        if run.status.code() == Some(0) || String::from_utf8_lossy(&run.stdout).contains("all") {
            return Err(format!("succeeded within the limit\n{}", last_lines(&run)).into());
        }
        if !"0\n64\n128\n192\n".as_bytes().starts_with(&run.stdout) {
            return Err(format!("wrong output\n{}", last_lines(&run)).into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Without a controller: the limit that every process has, which both replicas meet at the same place.
fn address_space_limit(dir: &Path, guest: &Path) -> Result<(), Failed> {
    let events = dir.join("events");
    let invocation = Invocation {
        wrapper: ["/usr/bin/prlimit", "--as=400000000"]
            .map(str::to_owned)
            .to_vec(),
        protector: protector(2, &events, &[]),
        program: guest.to_path_buf(),
        args: vec!["1024".to_owned()],
        ..Invocation::default()
    };
    let _lock = one_group();
    let run = invocation.run(dir, LIMIT)?;
    run.nothing_left(GRACE)?;
    if run.status.code() == Some(0) {
        return Err(format!("succeeded within the limit\n{}", last_lines(&run)).into());
    }
    Bench::get().passed(dir);
    Ok(())
}

/// A control group with a memory limit, removed when dropped.
#[derive(Debug)]
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn make(bytes: u64) -> Option<Self> {
        let name = format!("guests-{}", std::process::id());
        // Version 1 and version 2 name the limit differently; swap must not help out.
        for (root, limit, swap) in [
            (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
            ),
            ("/sys/fs/cgroup", "memory.max", "memory.swap.max"),
        ] {
            let dir = Path::new(root).join(&name);
            if fs::create_dir(&dir).is_err() {
                continue;
            }
            let group = Self(dir);
            if fs::write(group.0.join(limit), bytes.to_string()).is_ok() {
                let swap_bytes = if limit == "memory.max" { 0 } else { bytes };
                let _ = fs::write(group.0.join(swap), swap_bytes.to_string());
                return Some(group);
            }
        }
        None
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Flips in what protects: found by campaigns (`make campaign`), each kept as one case.
fn in_the_protection() -> Vec<Trial> {
    let case = |name: &str, replicas, flip: String, after| {
        Fault {
            name: format!("protection::{name}"),
            replicas,
            stop: false,
            flip,
            after,
        }
        .trial(compressor)
    };
    let mut trials = Vec::new();
    // A leader that is struck when the kernel has answered and the log does not say so yet: a read whose bytes are
    // gone, a close that cannot be made twice.
    for (row, n) in [20, 45, 60, 80, 100].into_iter().enumerate() {
        for replicas in [2, 3] {
            if !paired(0, row, usize::from(replicas)) {
                continue;
            }
            let flip = format!("replica=leader at=agent!sf_result_begin n={n} kind=crash");
            trials.push(case(
                &format!("answered_{n}_of_{replicas}"),
                replicas,
                flip,
                After::Right,
            ));
        }
    }
    // What a replica knows of itself (struct sf_me): its slot, its count of events, where the log begins. It goes on as
    // somebody else, or at an event that nobody comes to, and all wait for each other.
    let words = [
        ("slot", 0, 6),
        ("count", 8, 46),
        ("count_low", 8, 3),
        ("base", 16, 20),
    ];
    for (row, (what, offset, bit)) in words.into_iter().enumerate() {
        for (who, replica) in [("leader", 0), ("follower", 1)] {
            for replicas in [2, 3] {
                if !paired(row, replica, usize::from(replicas)) {
                    continue;
                }
                let flip = format!(
                    "replica={replica} at=agent!sf_arrive n=40 mem=[agent!me+{offset}] bit={bit}"
                );
                trials.push(case(
                    &format!("{what}_of_{who}_of_{replicas}"),
                    replicas,
                    flip,
                    After::Right,
                ));
            }
        }
    }
    trials.extend([
        // Input that changes in the log before its sum is made: everybody but the leader would believe it.
        case(
            "input_torn",
            2,
            "replica=leader at=agent!sf_check n=60 mem=[rdi+1] bit=5".to_owned(),
            After::DetectedOrRight,
        ),
        case(
            "input_torn_of_3",
            3,
            "replica=leader at=agent!sf_check n=60 mem=[rdi+1] bit=5".to_owned(),
            After::DetectedOrRight,
        ),
        // Words of the control block (struct sf_group): an alarm that nobody raised, a number of replicas, one more that
        // lives.
        case(
            "alarm",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+16] bit=7".to_owned(),
            After::Right,
        ),
        case(
            "alarm_known",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+16] bit=0".to_owned(),
            After::Right,
        ),
        case(
            "alarm_of_a_hang",
            2,
            "replica=1 at=agent!sf_arrive n=40 mem=[log+16] mask=0x5".to_owned(),
            After::Agreed,
        ),
        case(
            "replicas",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[log+12] bit=3".to_owned(),
            After::Right,
        ),
        case(
            "live",
            2,
            format!("replica=0 at=agent!sf_arrive n=40 mem=[log+{LIVE}] bit=5"),
            After::Right,
        ),
        case(
            "live_of_3",
            3,
            format!("replica=0 at=agent!sf_arrive n=40 mem=[log+{LIVE}] bit=5"),
            After::Right,
        ),
        // The row of a call in the agent's table: a repair of the program's memory does not mend it.
        case(
            "table",
            2,
            format!(
                "replica=leader at=agent!sf_arrive n=40 mem=[agent!sf_calls+{WRITE_ROW}] bit=1"
            ),
            After::Right,
        ),
        case(
            "table_of_follower",
            2,
            format!("replica=1 at=agent!sf_arrive n=40 mem=[agent!sf_calls+{WRITE_ROW}] bit=1"),
            After::Right,
        ),
        // Code: the follower dies at every event until it is mended or made anew.
        case(
            "code",
            2,
            "replica=1 at=agent!sf_arrive n=40 mem=[agent!sf_arrive+40] bit=4".to_owned(),
            After::Right,
        ),
        case(
            "leader_code",
            2,
            "replica=0 at=agent!sf_arrive n=40 mem=[agent!sf_arrive+40] bit=4".to_owned(),
            After::Right,
        ),
    ]);
    trials
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = in_the_protection();
    trials.extend(crate::frames::trials());
    trials.extend(crate::children::trials());
    trials.extend(crate::awaited::trials());
    trials.extend(families());
    trials.push(goes_on_after_exec());
    trials.extend(in_shared_memory());
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
        for (suffix, replicas, who, after) in [
            ("alone", 1, "", After::Unprotected),
            ("leader_of_2", 2, "replica=leader ", After::Corrected),
            ("follower_of_3", 3, "replica=2 ", After::Corrected),
        ] {
            let fault = Fault {
                name: format!("{name}::{suffix}"),
                replicas,
                stop: false,
                flip: format!("{who}{flip}"),
                after,
            };
            trials.push(fault.trial(operands));
        }
    }
    // A vector register: wrong from an instruction on, or for it alone.
    for (name, once, after) in [
        ("vector_from_here", "", After::Unprotected),
        ("vector_here_alone", " once", After::Harmless),
    ] {
        let flip = format!("at=vector_once!flip_here n=1 reg=xmm5{once} bit=3");
        let fault = Fault {
            name: name.to_owned(),
            replicas: 1,
            stop: false,
            flip,
            after,
        };
        trials.push(fault.trial(vector_stored_twice));
    }
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
        // Every event, in both roles.
        at_every_event(1, "kill_follower_at_every_event", 2, "follower", "kill=9", After::Corrected, short),
        at_every_event(1, "kill_leader_at_every_event", 2, "leader", "kill=9", After::Corrected, short),
        at_every_event(apart(2), "crash_follower_at_events", 2, "follower", "kind=crash", After::Corrected, short),
        at_every_event(apart(2), "crash_leader_at_events", 2, "leader", "kind=crash", After::Corrected, short),
        at_every_event(apart(12), "hang_follower_at_events", 2, "follower", "kind=hang", After::Corrected, short),
        at_every_event(apart(12), "hang_leader_at_events", 2, "leader", "kind=hang", After::Corrected, short),
        at_every_event(3, "kill_leader_of_3_at_events", 3, "leader", "kill=9", After::Corrected, short),
        at_every_event(3, "kill_follower_of_3_at_events", 3, "follower", "kill=9", After::Corrected, short),
        at_every_event(apart(2), "exec_leader_killed", 2, "leader", "kill=9", After::Right, two),
        at_every_event(apart(2), "exec_follower_killed", 3, "follower", "kill=9", After::Right, two),
        // Behind the vote about the exec, which the leader makes meanwhile.
        at_the_exec("exec_follower_crashes", 2, "follower", "after-vote kind=crash"),
        at_every_event(2, "number_at_events", 2, "leader", "reg=rax bit=2", After::Right, short),
        at_every_event(2, "argument_at_events", 2, "follower", "reg=rsi bit=12", After::Right, short),
        at_every_event(2, "buffer_at_events", 2, "leader", "mem=[rsi] bit=3", After::Right, short),
        // With a file mapped shared: before and after the vote on a write-back, and a leader that has to map it anew.
        at_every_event(apart(5), "mapped_before_vote", 3, "leader", "mem=[rdi+0x10010] bit=5", After::Right, mapped),
        at_every_event(apart(5), "mapped_after_vote", 3, "leader", "after-vote mem=[rdi+0x10010] bit=5", After::Right, mapped),
        at_every_event(11, "mapped_leader_killed", 2, "leader", "kill=9", After::Corrected, mapped),
        at_every_event(11, "mapped_follower_killed", 2, "follower", "kill=9", After::Corrected, mapped),
        at_every_event(61, "database_leader_killed", 2, "leader", "kill=9", After::Corrected, database),
        at_every_event(83, "database_leader_of_3_killed", 3, "leader", "kill=9", After::Corrected, database),
        // A leader made anew has a heap with a closed part, or one that a mapping has stopped.
        at_every_event(apart(3), "heap_leader_killed", 2, "leader", "kill=9", After::Corrected, heap),
        at_every_event(apart(7), "heap_leader_of_3_killed", 3, "leader", "kill=9", After::Corrected, heap),
        // Threads: the table of those that do not run, their order, and every role's death.
        one("queue_of_2_leader", 2, false, "replica=leader event=500 mem=[0x2e1000008000] bit=3", After::Corrected, parked),
        one("queue_of_2_follower", 2, false, "replica=1 event=500 mem=[0x2e1000008000] bit=3", After::Corrected, parked),
        one("queue_of_3_leader", 3, false, "replica=leader event=500 mem=[0x2e1000008000] bit=0", After::Corrected, parked),
        one("queue_of_3_follower", 3, false, "replica=2 event=500 mem=[0x2e1000008000] bit=0", After::Corrected, parked),
        one("futex_word_of_2", 2, false, "replica=leader event=500 mem=[0x2e1000008010] bit=3", After::Corrected, parked),
        one("futex_word_of_3", 3, false, "replica=1 event=500 mem=[0x2e1000008010] bit=3", After::Corrected, parked),
        one("order_of_2", 2, false, "replica=1 event=500 mem=[0x2e1000000000] bit=3", After::Right, parked),
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
        goes_on("write"),
        goes_on("writev"),
        goes_on("sendmsg"),
        goes_on("pwritev2"),
        goes_on("recv"),
        goes_on("recvmsg"),
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
    trials.extend(killed_in_a_computation());
    trials.extend(crate::kills::trials());
    trials
}
