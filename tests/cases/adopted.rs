//! A leader that has company is killed: a parent's while its children live, whose program waits for them as if nothing had been (crates/agent, ward.c); and a worker's that shares memory.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, geteuid};
use steadfast_sys::child;
use steadfast_sys::procfs::{self, children};

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{Log, await_repairs, last_lines, output_difference, protector};
use crate::run::Invocation;
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(40);
const GRACE: Duration = Duration::from_secs(5);
/// Who writes a number without an end has written it by then.
const WRITTEN: Duration = Duration::from_millis(300);
/// Long enough that a child has a keeper.
const KEPT: Duration = Duration::from_millis(1200);
/// From having children to waiting for them.
const WAITS: Duration = Duration::from_millis(100);

/// A shell with jobs, of which two are copies and one is a program. It says "Terminated" or not, bare too, by whether it hears of
/// the end before it waits.
const SHELL: &str = "trap : USR1; (sleep 1.6; exit 7) & a=$!; sleep 1.3 & b=$!; (trap : USR2; exec sleep 30) & c=$!; echo $$ > number; \
    wait $a; echo $?; wait $b; echo $?; kill $c; wait $c 2>/dev/null; echo $?; x=$(sleep 0.1; echo after); echo $x";
/// It is killed at a `wait` that a program started by it has not ended.
const INNER: &str =
    "sh -c 'echo $$ > number; (sleep 2.6; exit 7) & sleep 2.2; echo $?; wait $!; echo $?'; echo $?";
const MAKEFILE: &str = "all: a b c\n\t@echo all\nrun := $(shell echo $$PPID > number)\n\
    a:\n\t@sleep 1.3; echo a\nb:\n\t@sleep 1.5; echo b\nc: a b\n\t@sleep 0.1; echo c\n";
const PYTHON: &str = "import subprocess, os; p = subprocess.Popen(['sleep', '1.4']); q = subprocess.Popen('read x; exit 4', \
    shell=True, stdin=subprocess.PIPE); open('number', 'w').write(str(os.getpid())); print(p.wait()); q.communicate(b'x\\n'); \
    print(q.returncode); print(subprocess.run(['sh', '-c', 'echo new; exit 6']).returncode, flush=True)";

#[derive(Clone, Copy)]
enum When {
    /// It has so many children.
    Has(usize),
    /// It is a child itself, and can be made again by then.
    After(Duration),
}

struct Parent {
    name: &'static str,
    replicas: u8,
    /// When it is struck, and how often.
    when: When,
    times: usize,
    program: fn(&Path) -> Result<Invocation, String>,
}

fn command(program: &str, args: &[&str]) -> Invocation {
    Invocation {
        program: program.into(),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..Invocation::default()
    }
}

fn number(dir: &Path) -> Result<i32, String> {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(dir.join("number")).unwrap_or_default();
        if let Some(Ok(number)) = text.ends_with('\n').then(|| text.trim().parse()) {
            return Ok(number);
        }
        if let (Ok(number), true) = (text.parse(), begun.elapsed() > WRITTEN) {
            return Ok(number);
        }
        if begun.elapsed() > LIMIT {
            return Err("the parent does not say its number".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn await_children(parent: i32, count: usize) -> Result<(), String> {
    let begun = Instant::now();
    while children(parent).len() < count {
        if begun.elapsed() > LIMIT {
            return Err(format!("it has no {count} children"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(WAITS);
    Ok(())
}

impl Parent {
    fn check(&self) -> Result<(), String> {
        let dir = Bench::get().case_dir(&format!("adopted-{}", self.name));
        let mut invocation = (self.program)(&dir)?;
        let bare = invocation.run(&dir, LIMIT)?;
        fs::remove_file(dir.join("number")).map_err(|error| error.to_string())?;
        let events = dir.join("events");
        invocation.protector = protector(self.replicas, &events, &["--quiet"]);
        let _group = one_group();
        let run = invocation.start(&dir).map_err(|error| error.to_string())?;
        let parent = number(&dir)?;
        match self.when {
            When::After(time) => thread::sleep(time),
            When::Has(count) => await_children(parent, count)?,
        }
        for strike in 1..=self.times {
            if strike > 1 {
                thread::sleep(WAITS);
            }
            kill(Pid::from_raw(parent), Signal::SIGKILL).map_err(|error| error.to_string())?;
            await_repairs(&events, strike, LIMIT)?;
        }
        let ran = run.wait(LIMIT)?;
        let report = Log::read(&events)?.report;
        let difference = output_difference(&bare, &ran);
        if difference.is_some() || report.recoveries != self.times as u64 {
            let why = difference.unwrap_or_default();
            let line = invocation.shell_line();
            return Err(format!(
                "{why}\n{report:?}\n{}  run:    {line}",
                last_lines(&ran)
            ));
        }
        ran.nothing_left(GRACE)?;
        Bench::get().passed(&dir);
        Ok(())
    }
}

/// It does not wait for its child before there is a file.
const BUSY: &str = "import subprocess, os, time\np = subprocess.Popen(['sleep', '600'])\n\
    open('number', 'w').write(f'{os.getpid()} {p.pid}\\n')\n\
    while not os.path.exists('go'): time.sleep(0.05)\nprint(p.wait())";

/// What becomes of the child of a parent that was made again, and of its proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The proxy is killed: that ends the child, also while the parent does not wait.
    ProxyKilled,
    /// The child ends, and the proxy with it.
    Ends,
    /// The child ends, and its proxy does not, as if a fault had struck that.
    ProxyStays,
}

fn numbers(dir: &Path) -> Result<[i32; 2], String> {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(dir.join("number")).unwrap_or_default();
        let words = text
            .strip_suffix('\n')
            .and_then(|line| line.split_once(' '));
        if let Some((Ok(parent), Ok(child))) = words.map(|(a, b)| (a.parse(), b.parse())) {
            return Ok([parent, child]);
        }
        if begun.elapsed() > LIMIT {
            return Err("the parent does not say two numbers".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn send(pid: i32, signal: Signal) -> Result<(), String> {
    kill(Pid::from_raw(pid), signal).map_err(|error| format!("process {pid}: {error}"))
}

fn has_gone(pid: i32) -> Result<(), String> {
    let begun = Instant::now();
    while child::exists(pid) && !procfs::has_ended(pid) {
        if begun.elapsed() > GRACE {
            return Err(format!("process {pid} lives on"));
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Stops a process as no signal can tell it, until it is killed.
pub(crate) fn hold(pid: i32) -> Result<(), String> {
    let pid = Pid::from_raw(pid);
    ptrace::seize(pid, ptrace::Options::empty())
        .and_then(|()| ptrace::interrupt(pid))
        .and_then(|()| waitpid(pid, Some(WaitPidFlag::__WALL)))
        .map(drop)
        .map_err(|error| format!("proxy: {error}"))
}

fn proxied(fate: Fate, name: &str) -> Result<(), String> {
    let dir = Bench::get().case_dir(&format!("adopted-{name}"));
    let touch = || fs::write(dir.join("go"), "").map_err(|error| error.to_string());
    let signal = match fate {
        Fate::ProxyKilled => Signal::SIGKILL,
        Fate::Ends | Fate::ProxyStays => Signal::SIGTERM,
    };
    let mut invocation = command("/usr/bin/python3", &["-c", BUSY]);
    let run = invocation.start(&dir).map_err(|error| error.to_string())?;
    send(numbers(&dir)?[1], signal)?;
    touch()?;
    let bare = run.wait(LIMIT)?;
    for file in ["number", "go"] {
        fs::remove_file(dir.join(file)).map_err(|error| error.to_string())?;
    }
    let events = dir.join("events");
    invocation.protector = protector(2, &events, &["--quiet"]);
    let _group = one_group();
    let run = invocation.start(&dir).map_err(|error| error.to_string())?;
    let [parent, its] = numbers(&dir)?;
    send(parent, Signal::SIGKILL)?;
    await_repairs(&events, 1, LIMIT)?;
    let proxy = *children(parent).first().ok_or("there is no proxy")?;
    match fate {
        Fate::ProxyKilled => send(proxy, signal)?,
        Fate::Ends => send(its, signal)?,
        Fate::ProxyStays => hold(proxy).and_then(|()| send(its, signal))?,
    }
    has_gone(its)?;
    if fate != Fate::ProxyStays {
        touch()?;
    }
    let ran = run.wait(LIMIT)?;
    if fate == Fate::ProxyStays {
        send(proxy, Signal::SIGKILL)?;
        let _ = waitpid(Pid::from_raw(proxy), Some(WaitPidFlag::__WALL));
    }
    ran.nothing_left(GRACE)?;
    let wrong = match fate {
        Fate::ProxyStays if ran.end() == "status 122" && ran.stdout.is_empty() => None,
        Fate::ProxyStays => Some("expected status 122".to_owned()),
        _ => output_difference(&bare, &ran),
    };
    if let Some(why) = wrong {
        let line = invocation.shell_line();
        return Err(format!("{why}\n{}  run:    {line}", last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn stands_in(args: &[&str]) -> Result<Invocation, String> {
    Ok(Invocation {
        program: build::guest("stands_in.c", Variant::Dynamic)?,
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..Invocation::default()
    })
}

/// A child of vfork(2) has become another program, and its parent's leader is killed before it could say so: it is held where the kernel
/// lets it go on.
fn untold(replicas: u8) -> Result<(), String> {
    let dir = Bench::get().case_dir(&format!("adopted-untold-{replicas}"));
    let mut invocation = stands_in(&[])?;
    let bare = invocation.run(&dir, LIMIT)?;
    fs::remove_file(dir.join("number")).map_err(|error| error.to_string())?;
    let events = dir.join("events");
    invocation.protector = protector(replicas, &events, &["--quiet"]);
    let _group = one_group();
    let run = invocation.start(&dir).map_err(|error| error.to_string())?;
    let parent = number(&dir)?;
    await_children(parent, 1)?;
    hold(parent)?;
    send(parent, Signal::SIGKILL)?;
    let _ = waitpid(Pid::from_raw(parent), Some(WaitPidFlag::__WALL));
    await_repairs(&events, 1, LIMIT)?;
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    if let Some(why) = output_difference(&bare, &ran) {
        let line = invocation.shell_line();
        return Err(format!("{why}\n{}  run:    {line}", last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// What a child of vfork(2) had of the kernel's, and its parent had not, is lost with it.
fn apart() -> Result<(), String> {
    let dir = Bench::get().case_dir("adopted-apart");
    let mut invocation = stands_in(&["redirected"])?;
    invocation.protector = protector(3, &dir.join("events"), &["--quiet"]);
    let _group = one_group();
    let run = invocation.start(&dir).map_err(|error| error.to_string())?;
    let parent = number(&dir)?;
    await_children(parent, 1)?;
    send(parent, Signal::SIGKILL)?;
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    if ran.end() != "status 122" || !ran.stdout.is_empty() {
        return Err(format!("expected status 122\n{}", last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let guest = |_: &Path| {
        Ok(Invocation {
            program: build::guest("adopted.c", Variant::Dynamic)?,
            ..Invocation::default()
        })
    };
    let worker = |_: &Path| {
        Ok(Invocation {
            program: build::guest("shared_worker.c", Variant::Dynamic)?,
            ..Invocation::default()
        })
    };
    let shell = |_: &Path| Ok(command("/bin/sh", &["-c", SHELL]));
    let make = |dir: &Path| {
        fs::write(dir.join("Makefile"), MAKEFILE).map_err(|error| error.to_string())?;
        Ok(command("/usr/bin/make", &["-j2"]))
    };
    let python = |_: &Path| Ok(command("/usr/bin/python3", &["-c", PYTHON]));
    let inner = |_: &Path| Ok(command("/bin/sh", &["-c", INNER]));
    let of = |name, replicas, children, program| Parent {
        name,
        replicas,
        when: When::Has(children),
        times: 1,
        program,
    };
    let mut all = vec![
        of("guest_of_2", 2, 5, guest),
        of("guest_of_3", 3, 5, guest),
        of("shell_of_2", 2, 3, shell),
        of("shell_of_3", 3, 3, shell),
        of("make_of_2", 2, 2, make),
        of("make_of_3", 3, 2, make),
        of("python_of_2", 2, 2, python),
        of("stand_in_of_2", 2, 1, |_| stands_in(&[])),
        of("stand_in_of_3", 3, 1, |_| stands_in(&[])),
    ];
    // Who may choose numbers has the same one again, and a child that can be made again.
    if geteuid().is_root() {
        all.push(Parent {
            times: 2,
            ..of("guest_twice", 2, 5, guest)
        });
        all.push(Parent {
            when: When::After(KEPT),
            ..of("inner_shell", 2, 2, inner)
        });
        all.extend(
            [("worker_of_2", 2), ("worker_of_3", 3)].map(|(name, replicas)| Parent {
                when: When::After(KEPT),
                ..of(name, replicas, 0, worker)
            }),
        );
    }
    let mut trials: Vec<_> = all
        .into_iter()
        .map(|parent| {
            Trial::test(format!("faults::adopted::{}", parent.name), move || {
                parent.check().map_err(Failed::from)
            })
        })
        .collect();
    trials.push(Trial::test("faults::adopted::apart", || {
        apart().map_err(Failed::from)
    }));
    if geteuid().is_root() {
        trials.extend([2, 3].map(|replicas| {
            Trial::test(
                format!("faults::adopted::untold_of_{replicas}"),
                move || untold(replicas).map_err(Failed::from),
            )
        }));
        let fates = [
            ("proxy_killed", Fate::ProxyKilled),
            ("proxy_ends", Fate::Ends),
            ("proxy_stays", Fate::ProxyStays),
        ];
        trials.extend(fates.map(|(name, fate)| {
            Trial::test(format!("faults::adopted::{name}"), move || {
                proxied(fate, name).map_err(Failed::from)
            })
        }));
    }
    trials
}
