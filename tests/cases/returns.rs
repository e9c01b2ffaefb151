//! The command returns when the program's first process has ended, as bare. What is left goes on under a process that
//! supervises it, is listed, and ends the rest when it is killed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use steadfast_contract::exit::Verdict;

use crate::bench::{Bench, some_groups};
use crate::build::{self, Variant};
use crate::check::{
    Log, await_keeper, await_repairs, last_lines, others_of, output_difference, protector,
};
use crate::left;
use crate::run::{Invocation, Ran};
use crate::status::{groups_with, said};
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
/// The shell ends at once, its child does not.
const SCRIPT: &str = "sleep 600 > /dev/null 2>&1 & echo started; exit 7";
/// Long before the child would end.
const AT_ONCE: Duration = Duration::from_secs(10);

fn leaves_a_child(words: &[&str]) -> Invocation {
    Invocation {
        program: "/bin/sh".into(),
        args: words.iter().map(|&word| word.to_owned()).collect(),
        ..Invocation::default()
    }
}

/// A run that has returned, with one process left of it; and the process that supervises that one.
fn returned(invocation: &Invocation, dir: &Path) -> Result<(Ran, i32), String> {
    let ran = invocation.run(dir, LIMIT)?;
    if ran.wall > AT_ONCE {
        return Err(format!("returned after {:?}", ran.wall));
    }
    let begun = Instant::now();
    loop {
        let now = said(&["ps", "--json"])?.remove(0);
        let own = ran.processes();
        let mut launchers = groups_with(&now, &["sleep", "600"]).into_iter();
        if let Some(launcher) = launchers.find(|pid| own.iter().any(|one| one.pid == *pid)) {
            return Ok((ran, launcher));
        }
        if begun.elapsed() > GRACE {
            return Err(format!("what is left is not listed: {now}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Killed, the supervisor takes the tree with it; asked to end, it asks the tree.
fn ends_with_its_supervisor(name: &str, signal: Signal) -> Result<(), String> {
    let dir = Bench::get().case_dir(name);
    let mut invocation = leaves_a_child(&["-c", SCRIPT]);
    let bare = invocation.run(&dir, LIMIT)?;
    left::end(&bare.processes());
    for n in [1, 2, 3] {
        let _group = some_groups();
        invocation.protector = protector(n, &dir.join("events"), &[]);
        let (ran, supervisor) = returned(&invocation, &dir)?;
        if let Some(why) = output_difference(&bare, &ran) {
            return Err(format!("{why}\n{}", last_lines(&ran)));
        }
        if ran.held_open() {
            return Err("standard output stayed open, and bare it ends".to_owned());
        }
        kill(Pid::from_raw(supervisor), signal).map_err(|error| error.to_string())?;
        ran.nothing_left(GRACE)?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// The supervisor is asked to end while the process that is left becomes another program, or has just begun: that one hears of it too.
fn ends_when_asked_at_once() -> Result<(), String> {
    let dir = Bench::get().case_dir("returns-at-once");
    for (n, delay_us) in [
        (2, 0),
        (2, 1000),
        (3, 3000),
        (2, 6000),
        (1, 10_000),
        (2, 20_000),
    ] {
        let _group = some_groups();
        let invocation = Invocation {
            protector: protector(n, &dir.join("events"), &[]),
            ..leaves_a_child(&["-c", SCRIPT])
        };
        let run = invocation.start(&dir).map_err(|error| error.to_string())?;
        let begun = Instant::now();
        let supervisor = loop {
            match run.supervisor() {
                pid if pid != run.pid() => break pid,
                _ if begun.elapsed() > LIMIT => return Err("nobody supervises".to_owned()),
                _ => thread::sleep(Duration::from_micros(100)),
            }
        };
        let ran = run.wait(LIMIT)?;
        thread::sleep(Duration::from_micros(delay_us));
        kill(Pid::from_raw(supervisor), Signal::SIGTERM).map_err(|error| error.to_string())?;
        ran.nothing_left(GRACE)
            .map_err(|why| format!("asked after {delay_us} us, {n} replicas: {why}"))?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// The number and the port that the daemon leaves.
fn pid_file(path: &Path) -> Result<(i32, u16), String> {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut words = text.strip_suffix('\n').unwrap_or_default().split(' ');
        let (pid, port) = (words.next(), words.next());
        if let (Some(Ok(pid)), Some(Ok(port))) = (pid.map(str::parse), port.map(str::parse)) {
            return Ok((pid, port));
        }
        if begun.elapsed() > LIMIT {
            return Err("the daemon leaves no file".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn doubles(port: u16) -> Result<(), String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    stream
        .set_read_timeout(Some(LIMIT))
        .map_err(|error| error.to_string())?;
    let mut replies = BufReader::new(stream.try_clone().map_err(|error| error.to_string())?);
    for number in 1..=20 {
        let mut line = String::new();
        stream
            .write_all(format!("{number}\n").as_bytes())
            .and_then(|()| replies.read_line(&mut line))
            .map_err(|error| format!("request {number}: {error}"))?;
        if line.trim().parse() != Ok(2 * number) {
            return Err(format!("twice {number} is {line:?}"));
        }
    }
    Ok(())
}

/// Is asked, and ends by its number: it removes its file.
fn asked_and_ended(ran: Ran, file: &Path, pid: i32, port: u16) -> Result<Ran, String> {
    let served = doubles(port);
    kill(Pid::from_raw(pid), Signal::SIGTERM).map_err(|error| format!("daemon: {error}"))?;
    ran.nothing_left(GRACE)?;
    served?;
    if file.exists() {
        return Err("the daemon did not end by itself".to_owned());
    }
    Ok(ran)
}

/// Starts, is asked, and ends by the number in its file; what `ends` says about it.
fn daemon(invocation: &Invocation, dir: &Path) -> Result<Ran, String> {
    let file = dir.join("daemon.pid");
    let ran = invocation.run(dir, LIMIT)?;
    let (pid, port) = pid_file(&file)?;
    asked_and_ended(ran, &file, pid, port)
}

/// Process 2 is the daemon: process 0 is the first, 1 the one between.
fn a_daemon_goes_on() -> Result<(), String> {
    let dir = Bench::get().case_dir("returns-daemon");
    let mut invocation = Invocation {
        program: build::guest("daemon.c", Variant::Dynamic)?,
        args: vec![dir.join("daemon.pid").display().to_string()],
        ..Invocation::default()
    };
    let bare = daemon(&invocation, &dir)?;
    let events = dir.join("events");
    struct Row {
        replicas: u8,
        line: Option<&'static str>,
        verdict: Verdict,
    }
    for Row {
        replicas: n,
        line,
        verdict,
    } in [
        Row {
            replicas: 2,
            line: None,
            verdict: Verdict::Agreed,
        },
        Row {
            replicas: 2,
            line: Some("process=2 replica=1 at=libc.so.6!write n=9 reg=rdx bit=1"),
            verdict: Verdict::Corrected,
        },
        Row {
            replicas: 3,
            line: Some("process=2 replica=leader at=libc.so.6!write n=9 reg=rdx bit=1"),
            verdict: Verdict::Corrected,
        },
    ] {
        let _group = some_groups();
        let flip: Vec<_> = line.map_or_else(Vec::new, |line| vec!["--flip", line, "--quiet"]);
        invocation.protector = protector(n, &events, &flip);
        let ran = daemon(&invocation, &dir)?;
        let wrong = |why: String| {
            format!(
                "{why}\n{}  run:    {}",
                last_lines(&ran),
                invocation.shell_line()
            )
        };
        if let Some(why) = output_difference(&bare, &ran) {
            return Err(wrong(why));
        }
        // Complete when the last process has ended.
        let report = Log::read(&events)?.report;
        if report.verdict != verdict || report.recoveries != u64::from(line.is_some()) {
            return Err(wrong(format!("{report:?}")));
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Asked, killed or not, and asked again: it has its number and its listener still.
fn goes_on_after(
    invocation: &Invocation,
    dir: &Path,
    replicas: u8,
    killed: bool,
) -> Result<Ran, String> {
    let file = dir.join("daemon.pid");
    let ran = invocation.run(dir, LIMIT)?;
    let (pid, port) = pid_file(&file)?;
    doubles(port)?;
    await_keeper(pid, others_of(replicas), LIMIT)?;
    if killed {
        kill(Pid::from_raw(pid), Signal::SIGKILL).map_err(|error| error.to_string())?;
        // A dying process still accepts who has come by then.
        await_repairs(&dir.join("events"), 1, LIMIT)?;
    }
    asked_and_ended(ran, &file, pid, port)
}

/// The leader of a daemon is killed, which is the program's own process as its file says.
fn a_daemon_outlives_its_leader() -> Result<(), String> {
    let dir = Bench::get().case_dir("returns-leader");
    let events = dir.join("events");
    for (n, killed) in [(2, false), (2, true), (3, true)] {
        let _group = some_groups();
        let invocation = Invocation {
            program: build::guest("daemon.c", Variant::Dynamic)?,
            args: vec![dir.join("daemon.pid").display().to_string()],
            protector: protector(n, &events, &["--quiet"]),
            ..Invocation::default()
        };
        let ran = goes_on_after(&invocation, &dir, n, killed)?;
        let report = Log::read(&events)?.report;
        let (verdict, made) = if killed {
            (Verdict::Corrected, 1)
        } else {
            (Verdict::Agreed, 0)
        };
        if (report.verdict, report.recoveries, report.divergences) != (verdict, made, made) {
            return Err(format!(
                "{n} replicas, killed: {killed}: {report:?}\n{}  run:    {}",
                last_lines(&ran),
                invocation.shell_line()
            ));
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, case: fn() -> Result<(), String>| {
        Trial::test(format!("outside::returns::{name}"), move || {
            case().map_err(Failed::from)
        })
    };
    vec![
        trial("tree_ends_with_its_killed_supervisor", || {
            ends_with_its_supervisor("returns-killed", Signal::SIGKILL)
        }),
        trial("tree_ends_when_its_supervisor_is_asked", || {
            ends_with_its_supervisor("returns-asked", Signal::SIGTERM)
        }),
        trial(
            "tree_ends_when_its_supervisor_is_asked_at_once",
            ends_when_asked_at_once,
        ),
        trial("daemon_goes_on_and_is_repaired", a_daemon_goes_on),
        trial("daemon_outlives_its_leader", a_daemon_outlives_its_leader),
    ]
}
