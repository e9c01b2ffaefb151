//! Faults at every event, at the exec, at moments of time, from outside, and one that does not end.

use std::os::unix::fs::FileExt;

use nix::sys::ptrace;
use steadfast_sys::procfs;

use super::*;
use crate::adopted::hold;

/// A bad core under one replica: its every multiplication is wrong, and goes on to be wrong when that replica has been
/// made again. The run ends with the right bytes, and its events name that replica and the core on which it was struck.
pub(super) fn bad_core(replicas: u8, who: u8) -> Trial {
    let name = format!("bad_core::blamed_{who}_of_{replicas}");
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = products()?;
        let bare = target.bare(&dir)?;
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

/// A fault at a moment of time. When it comes is the machine's affair: nothing wrong leaves each time, and of ten runs it has
/// to be there in one. Two replicas may meet it before there is a snapshot to decide by, and stop.
pub(super) fn by_the_clock(name: &str, replicas: u8, flip: &'static str) -> Trial {
    let name = format!("clock::{name}");
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = longer()?;
        let bare = target.bare(&dir)?;
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

/// What the leader is about to write is struck while it waits for another replica, which is held meanwhile: the others have what it
/// came with.
pub(super) fn while_the_leader_waits() -> Trial {
    let name = "while_the_leader_waits";
    Trial::test(format!("faults::{name}"), move || {
        const LINE: &str = "what it came with\n";
        const SHARED: std::ops::Range<u64> = 0x2a10_0000_0000..DOMAIN;
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let events = dir.join("events");
        let target = Target::guest("echoes.c", &[])?;
        let bare = target.invocation(Vec::new());
        let bare = Invocation {
            stdin: Stdin::Bytes(LINE.into()),
            ..bare
        }
        .run(&dir, LIMIT)?;
        fs::remove_file(dir.join("place"))?;
        let invocation = Invocation {
            stdin: Stdin::Held,
            ..target.invocation(protector(3, &events, &["--quiet"]))
        };
        let _group = some_groups();
        let mut run = invocation.start(&dir)?;
        let place = || fs::read_to_string(dir.join("place")).unwrap_or_default();
        comes(|| place().ends_with('\n'))?;
        let at: u64 = place().trim().parse()?;
        let (leader, follower) = (replica_pid(&events, 0)?, replica_pid(&events, 2)?);
        comes(|| procfs::sleeps_in(leader) == Some(0))?;
        hold(follower)?;
        run.say(LINE)?;
        let memory = fs::File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{leader}/mem"))?;
        let mut line = [0; LINE.len()];
        comes(|| {
            let has_read = memory.read_exact_at(&mut line, at).is_ok() && line == LINE.as_bytes();
            has_read && procfs::waits_on(leader, &SHARED)
        })?;
        memory.write_all_at(&[line[5] ^ 2], at + 5)?;
        ptrace::detach(Pid::from_raw(follower), None)?;
        await_repairs(&events, 1, LIMIT)?;
        let run = run.wait(LIMIT)?;
        run.nothing_left(GRACE)?;
        let log = Log::read(&events)?;
        if let Some(why) = output_difference(&bare, &run) {
            return Err(format!("{why}\n{}{}", last_lines(&run), log.divergences()).into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Waits until something is so.
fn comes(mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > LIMIT {
            return Err("what is waited for does not come".to_owned());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The leader waits in the kernel for room in a pipe that nobody reads yet, and is struck there. What interrupts it has it look again
/// at what it is about to write.
pub(super) fn while_the_leader_waits_for_room(replicas: u8) -> Trial {
    let name = format!("clock::while_the_leader_of_{replicas}_waits_for_room");
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = Target::guest("waits_to_write.c", &["3000"])?;
        let bare = target.bare(&dir)?;
        let fault = Fault {
            name: name.clone(),
            replicas,
            stop: false,
            flip: "replica=leader time=500ms mem=[waits_to_write!line+8] bit=1".to_owned(),
            after: After::Corrected,
        };
        let events = dir.join("events");
        let invocation = Invocation {
            wrapper: ["/bin/sh", "-c", "\"$@\" | (sleep 1; cat)", "sh"]
                .map(str::to_owned)
                .to_vec(),
            ..target.invocation(protector(
                replicas,
                &events,
                &["--flip", &build::resolved(&fault.flip)?],
            ))
        };
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

/// A defect without an end strikes the program that takes this one's place too, and one with an end does not: bare, by the
/// lines that are wrong; under two replicas, by the repairs before and behind the exec.
pub(super) fn goes_on_after_exec() -> Trial {
    let name = "bad_core::goes_on_after_exec";
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let target = again()?;
        let bare = target.bare(&dir)?;
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

/// Strikes at every `step`-th event of a short program, one run each.
pub(super) fn at_every_event(
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

/// Strikes at every event of two replicas, one run each: at every other one if the other role takes those between.
pub(super) fn in_turn(
    turn: usize,
    name: &'static str,
    who: &'static str,
    effect: &'static str,
    target: fn() -> Result<Target, String>,
) -> Trial {
    let (first, step) = apart((1, 1), (1 + turn as u64, 2));
    let events = move |log: &Log| (first..=log.report.events).step_by(step).collect();
    at_events(name, 2, who, effect, After::Corrected, target, events)
}

/// Strikes where one program takes the place of another, as often as it takes for the moments in between to come up.
pub(super) fn at_the_exec(
    name: &'static str,
    replicas: u8,
    who: &'static str,
    effect: &'static str,
) -> Trial {
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
pub(super) fn at_events(
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
        let bare = target.bare(&dir)?;
        let events = dir.join("events");
        let healthy = {
            let _group = some_groups();
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
pub(super) fn from_outside(
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

pub(super) fn struck_from_outside(
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
