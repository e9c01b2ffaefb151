//! Frames and processes that a group has only once: a page that follower and snapshot share, a page of the file system's
//! cache, the keeper.
//!
//! A cell that goes wrong cannot be had from a test: what it would do is done by hand. Whoever shares the frame gets the
//! same wrong bit, by way of /proc/PID/mem; a cached page is changed through its file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::bench::{Bench, some_groups};
use crate::build::{self, Variant};
use crate::check::{Log, last_lines, protector, repeat};
use crate::faults::replica_pid;
use crate::run::{Invocation, Ran, Running, Stdin};
use crate::trial::Trial;
use steadfast_sys::procfs::children;

const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
/// Where guests/frames.c has its table.
const TABLE: u64 = 0x1000_0000_0000;
/// From a repair's being told to the new leader's going on, on a busy machine as well.
const COPIED: Duration = Duration::from_millis(300);
/// The number of exit_group(2).
const EXIT_GROUP: u64 = 231;

/// What is done when the guest is ready.
type Strike = fn(&Running, &Path) -> Result<(), String>;

fn flip(pid: i32) -> Result<(), String> {
    let open = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    let file = open.map_err(|error| format!("/proc/{pid}/mem: {error}"))?;
    let (mut byte, at) = ([0], TABLE + 80);
    file.read_exact_at(&mut byte, at)
        .and_then(|()| file.write_all_at(&[byte[0] ^ 8], at))
        .map_err(|error| format!("process {pid}: {error}"))
}

/// The last follower's page alone: its snapshot has the right bytes.
fn follower(_: &Running, dir: &Path) -> Result<(), String> {
    flip(replica_pid(&dir.join("events"), 1)?)
}

/// The frame that it shares with its snapshot.
fn shared(_: &Running, dir: &Path) -> Result<(), String> {
    let follower = replica_pid(&dir.join("events"), 1)?;
    // A snapshot may just be making way for the next; one from before the table has nothing to strike.
    for _ in 0..20 {
        if children(follower)
            .first()
            .is_some_and(|snapshot| flip(*snapshot).is_ok())
        {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    flip(follower)
}

/// A page of the cache.
fn cached(_: &Running, dir: &Path) -> Result<(), String> {
    let file = File::options().write(true).open(dir.join("table"));
    file.and_then(|file| file.write_all_at(b"?", 80))
        .map_err(|error| format!("table: {error}"))
}

fn no_strike(_: &Running, _: &Path) -> Result<(), String> {
    Ok(())
}

/// The keeper: a child that is no replica, owns no namespace, and is no copy of the launcher.
fn keeper(launcher: i32, events: &Path, replicas: usize) -> Result<i32, String> {
    let known: Vec<i32> = (0..replicas)
        .map(|r| replica_pid(events, r))
        .collect::<Result<_, _>>()?;
    let exe = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let is_keeper =
        |pid: &i32| !known.contains(pid) && children(*pid).is_empty() && exe(*pid) != exe(launcher);
    children(launcher)
        .into_iter()
        .find(is_keeper)
        .ok_or_else(|| "there is no keeper".to_owned())
}

fn keeper_then_leader(run: &Running, dir: &Path) -> Result<(), String> {
    keeper_then_leader_of(2, run, dir)
}

fn keeper_then_leader_of_3(run: &Running, dir: &Path) -> Result<(), String> {
    keeper_then_leader_of(3, run, dir)
}

fn keeper_then_leader_of(replicas: usize, run: &Running, dir: &Path) -> Result<(), String> {
    let events = dir.join("events");
    let old = keeper(run.supervisor(), &events, replicas)?;
    let leader = replica_pid(&events, 0)?;
    kill(Pid::from_raw(old), Signal::SIGKILL).map_err(|error| format!("keeper: {error}"))?;
    // Another one is there as soon as the launcher has seen it.
    until(|| match keeper(run.supervisor(), &events, replicas)? {
        pid if pid == old => Err("no other keeper was made".to_owned()),
        _ => Ok(()),
    })?;
    leader_killed(leader, &events)
}

fn leader_killed(leader: i32, events: &Path) -> Result<(), String> {
    kill(Pid::from_raw(leader), Signal::SIGKILL).map_err(|error| format!("leader: {error}"))?;
    // What is written before the old leader is gone it may still take with it.
    until(|| match fs::read_to_string(events) {
        Ok(text) if text.contains("\"recovery\"") => Ok(()),
        _ => Err("nothing was repaired".to_owned()),
    })
}

/// The leader is killed; the one that is made again has a wrong bit, and nothing of files to go back to.
fn leader_after_leader(run: &Running, dir: &Path) -> Result<(), String> {
    let events = dir.join("events");
    let known: Vec<i32> = (0..).map_while(|r| replica_pid(&events, r).ok()).collect();
    leader_killed(known[0], &events)?;
    // What is struck before its memory has been copied is overwritten.
    thread::sleep(COPIED);
    // It has the number of the last one, where that may be chosen.
    let is_struck = |pid: &i32| !known[1..].contains(pid) && flip(*pid).is_ok();
    until(
        || match children(run.supervisor()).iter().find(|pid| is_struck(pid)) {
            Some(_) => Ok(()),
            None => Err("there is no other leader".to_owned()),
        },
    )
}

/// Frames of a process by address, as far as it may be known to have them: in memory that the kernel shows, and that is not
/// the agent's. Pages of zeros have one frame anywhere.
fn frames(pid: i32) -> Result<BTreeMap<u64, u64>, String> {
    const AGENT: std::ops::Range<u64> = 0x2a00_0000_0000..0x2e10_0000_0000;
    const PRESENT: u64 = 1 << 63;
    let failed = |error: std::io::Error| format!("process {pid}: {error}");
    let open = |name: &str| File::open(format!("/proc/{pid}/{name}")).map_err(failed);
    let (pagemap, memory) = (open("pagemap")?, open("mem")?);
    let mut found = BTreeMap::new();
    for map in steadfast_sys::procfs::maps(pid).map_err(failed)? {
        let of_the_kernel = map.path.to_string_lossy().starts_with("[v");
        if !map.readable || map.shared || of_the_kernel || AGENT.contains(&map.range.start) {
            continue;
        }
        for page in map.range.step_by(4096) {
            let (mut entry, mut bytes) = ([0; 8], [0; 4096]);
            pagemap
                .read_exact_at(&mut entry, page / 4096 * 8)
                .map_err(failed)?;
            let entry = u64::from_le_bytes(entry);
            let zeros = memory.read_exact_at(&mut bytes, page).is_err() || bytes == [0; 4096];
            if entry & PRESENT != 0 && !zeros {
                found.insert(page, entry & ((1 << 55) - 1));
            }
        }
    }
    if found.values().any(|frame| *frame == 0) {
        return Err("frames are told to root alone (proc_pid_pagemap(5))".to_owned());
    }
    Ok(found)
}

/// No page of the program's has one frame in both replicas.
fn all_apart(leader: i32, follower: i32) -> Result<(), String> {
    let (leader, follower) = (frames(leader)?, frames(follower)?);
    let shared = |(page, frame): &(&u64, &u64)| follower.get(*page) == Some(*frame);
    let pages: Vec<String> = leader
        .iter()
        .filter(shared)
        .map(|(page, _)| format!("{page:x}"))
        .collect();
    match (pages.len(), leader.len()) {
        (0, 16..) => Ok(()),
        (n, of) => Err(format!(
            "{n} of {of} pages have one frame in both replicas: {}",
            pages.join(" ")
        )),
    }
}

/// The replica that is made again has frames of its own as well.
fn follower_killed(run: &Running, dir: &Path) -> Result<(), String> {
    let events = dir.join("events");
    let (leader, old) = (replica_pid(&events, 0)?, replica_pid(&events, 1)?);
    all_apart(leader, old)?;
    let before = children(run.supervisor());
    kill(Pid::from_raw(old), Signal::SIGKILL).map_err(|error| format!("follower: {error}"))?;
    let program = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let made = |pid: &i32| !before.contains(pid) && program(*pid) == program(leader);
    until(|| match children(run.supervisor()).into_iter().find(made) {
        Some(follower) => all_apart(leader, follower),
        None => Err("nothing was repaired".to_owned()),
    })
}

/// The leader is killed between the agreement on the program's end and the call that ends it.
fn killed_at_the_end() -> Trial {
    const NAME: &str = "leader_killed_at_the_end";
    Trial::test(format!("faults::{NAME}"), || {
        let dir = Bench::get().case_dir(&format!("faults-{NAME}"));
        let events = dir.join("events");
        let invocation = Invocation {
            program: build::guest("frames.c", Variant::Dynamic)?,
            args: vec!["memory".to_owned()],
            stdin: Stdin::Held,
            protector: protector(2, &events, &[]),
            ..Invocation::default()
        };
        let _group = some_groups();
        let mut run = invocation.start(&dir)?;
        run.await_output("ready", LIMIT)?;
        let leader = Pid::from_raw(replica_pid(&events, 0)?);
        ptrace::seize(leader, ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
        ptrace::interrupt(leader)?;
        run.say("\n")?;
        loop {
            match waitpid(leader, Some(WaitPidFlag::__WALL))? {
                WaitStatus::PtraceSyscall(_) if ptrace::getregs(leader)?.orig_rax == EXIT_GROUP => {
                    break;
                }
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => {
                    return Err("it ended without a call".into());
                }
                _ => ptrace::syscall(leader, None)?,
            }
        }
        kill(leader, Signal::SIGKILL)?;
        while !matches!(
            waitpid(leader, Some(WaitPidFlag::__WALL))?,
            WaitStatus::Signaled(..)
        ) {}
        let run = run.wait(LIMIT)?;
        run.nothing_left(GRACE)?;
        if run.status.code() != Some(0) {
            return Err(format!(
                "ended with {}, expected status 0\n{}",
                run.end(),
                last_lines(&run)
            )
            .into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// There is no memory for a copy: the run ends before the program goes on without one.
fn no_room_for_a_copy() -> Trial {
    const NAME: &str = "private_without_room";
    Trial::test(format!("faults::{NAME}"), || {
        let dir = Bench::get().case_dir(&format!("faults-{NAME}"));
        let table = dir.join("table");
        File::create(&table)?.set_len(1 << 30)?;
        let mut invocation = Invocation {
            program: build::guest("frames.c", Variant::Dynamic)?,
            args: vec!["tight".to_owned(), table.display().to_string()],
            ..Invocation::default()
        };
        let _group = some_groups();
        let bare = invocation.run(&dir, LIMIT)?;
        invocation.protector = protector(2, &dir.join("events"), &[]);
        let shared = invocation.run(&dir, LIMIT)?;
        invocation.protector = protector(2, &dir.join("events"), &["--private", "all"]);
        let run = invocation.run(&dir, LIMIT)?;
        run.nothing_left(GRACE)?;
        let said = String::from_utf8_lossy(&run.stderr);
        if (bare.end(), run.end()) != (shared.end(), "status 121".to_owned())
            || !said.contains("--private")
        {
            return Err(format!(
                "bare {}, shared {}\n{}",
                bare.end(),
                shared.end(),
                last_lines(&run)
            )
            .into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

/// Tries until it works.
fn until<T>(attempt: impl Fn() -> Result<T, String>) -> Result<T, String> {
    let until = Instant::now() + LIMIT;
    loop {
        match attempt() {
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
}

fn play(invocation: &Invocation, dir: &Path, strike: Strike) -> Result<Ran, String> {
    let mut run = invocation.start(dir).map_err(|error| error.to_string())?;
    run.await_output("ready", LIMIT)?;
    strike(&run, dir)?;
    run.say("\n")?;
    let run = run.wait(LIMIT)?;
    run.nothing_left(GRACE)?;
    Ok(run)
}

fn text(run: &Ran) -> String {
    String::from_utf8_lossy(&run.stdout).into_owned()
}

/// How the run has to end: with this status, and the output of a bare run in which nothing, or the same, was struck.
struct After {
    status: i32,
    bare: Strike,
    /// Or all of it, with status 0: when the last snapshot was taken before there was a table.
    or_right: bool,
    /// As many, where it is said.
    repairs: Option<u64>,
}

fn trial(
    name: &'static str,
    replicas: u8,
    flags: &'static [&'static str],
    file: bool,
    strike: Strike,
    after: After,
) -> Trial {
    Trial::test(format!("faults::{name}"), move || {
        let dir = Bench::get().case_dir(&format!("faults-{name}"));
        let table: PathBuf = dir.join("table");
        let fill = || fs::write(&table, vec![b'.'; 16384]).map_err(|error| error.to_string());
        fill()?;
        let mut args = vec!["memory".to_owned()];
        if file {
            args = vec!["file".to_owned(), table.display().to_string()];
        }
        let mut invocation = Invocation {
            program: build::guest("frames.c", Variant::Dynamic)?,
            args,
            stdin: Stdin::Held,
            ..Invocation::default()
        };
        let _group = some_groups();
        let bare = play(&invocation, &dir, after.bare)?;
        fill()?;
        let events = dir.join("events");
        invocation.protector = protector(replicas, &events, flags);
        let run = play(&invocation, &dir, strike)?;
        let (right, found) = (text(&bare), text(&run));
        let as_said = match run.status.code() {
            Some(0) => (after.status == 0 || after.or_right) && right == found,
            status => status == Some(after.status) && right.starts_with(&found),
        };
        let log = Log::read(&events)?;
        let repairs = log.report.recoveries;
        if !as_said || after.repairs.is_some_and(|said| said != repairs) {
            return Err(format!(
                "ended with {} and {found:?}, {repairs} repairs, expected status {}, {right:?} and {:?}\n{}\n{}  repeat: {}",
                run.end(),
                after.status,
                after.repairs,
                log.divergences(),
                last_lines(&run),
                repeat(&format!("faults::{name}"))
            )
            .into());
        }
        Bench::get().passed(&dir);
        Ok(())
    })
}

pub(crate) fn trials() -> Vec<Trial> {
    let right = || After {
        status: 0,
        bare: no_strike,
        or_right: false,
        repairs: None,
    };
    let as_bare = || After {
        status: 0,
        bare: cached,
        or_right: false,
        repairs: None,
    };
    // The leader's death, and the wrong bit: the second repair has harmed nothing that a third would have to mend.
    let twice = || After {
        repairs: Some(2),
        ..right()
    };
    let stopped = || After {
        status: 122,
        bare: no_strike,
        or_right: true,
        repairs: None,
    };
    vec![
        trial("frame_of_follower", 2, &[], false, follower, right()),
        trial("frame_of_follower_of_3", 3, &[], false, follower, right()),
        trial(
            "frame_shared_with_snapshot",
            2,
            &[],
            false,
            shared,
            stopped(),
        ),
        trial(
            "frame_shared_with_snapshot_private",
            2,
            &["--private", "all"],
            false,
            shared,
            stopped(),
        ),
        trial("frame_of_file", 2, &[], true, cached, as_bare()),
        trial(
            "frame_of_file_private",
            2,
            &["--private", "all"],
            true,
            cached,
            right(),
        ),
        trial(
            "private_behind_a_repair",
            2,
            &["--private", "all"],
            true,
            follower_killed,
            right(),
        ),
        no_room_for_a_copy(),
        killed_at_the_end(),
        trial(
            "leader_made_again_of_2",
            2,
            &[],
            false,
            leader_after_leader,
            twice(),
        ),
        trial(
            "leader_made_again_with_a_file_of_2",
            2,
            &[],
            true,
            leader_after_leader,
            twice(),
        ),
        trial(
            "leader_made_again_with_a_file_of_3",
            3,
            &[],
            true,
            leader_after_leader,
            twice(),
        ),
        trial("keeper_killed", 2, &[], false, keeper_then_leader, right()),
        trial(
            "keeper_of_3_killed",
            3,
            &[],
            false,
            keeper_then_leader_of_3,
            right(),
        ),
    ]
}
