//! A leader that has company is killed: a parent's while its children live, whose program waits for them as if nothing had been (crates/agent, ward.c); and a worker's that shares memory.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{Log, last_lines, output_difference, protector};
use crate::run::Invocation;
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(40);
const GRACE: Duration = Duration::from_secs(5);
/// Long enough that the first process is beyond its start, and shorter than it takes to have its children end.
const SOON: Duration = Duration::from_millis(400);
/// Long enough that a child has a keeper.
const KEPT: Duration = Duration::from_millis(1200);
/// A repair takes some ten milliseconds.
const MENDED: Duration = Duration::from_millis(500);

/// A shell with jobs, of which two are copies and one is a program.
const SHELL: &str = "trap : USR1; (sleep 1.6; exit 7) & a=$!; sleep 1.3 & b=$!; (trap : USR2; exec sleep 30) & c=$!; echo $$ > number; \
    wait $a; echo $?; wait $b; echo $?; kill $c; wait $c; echo $?; x=$(sleep 0.1; echo after); echo $x";
/// It is killed at a `wait` that a program started by it has not ended.
const INNER: &str =
    "sh -c 'echo $$ > number; (sleep 2.6; exit 7) & sleep 2.2; echo $?; wait $!; echo $?'; echo $?";
const MAKEFILE: &str = "all: a b c\n\t@echo all\nrun := $(shell echo $$PPID > number)\n\
    a:\n\t@sleep 1.3; echo a\nb:\n\t@sleep 1.5; echo b\nc: a b\n\t@sleep 0.1; echo c\n";
const PYTHON: &str = "import subprocess, os; p = subprocess.Popen(['sleep', '1.4']); q = subprocess.Popen('read x; exit 4', \
    shell=True, stdin=subprocess.PIPE); open('number', 'w').write(str(os.getpid())); print(p.wait()); q.communicate(b'x\\n'); \
    print(q.returncode); print(subprocess.run(['sh', '-c', 'echo new; exit 6']).returncode, flush=True)";

struct Parent {
    name: &'static str,
    replicas: u8,
    /// Until it is struck, and how often that is done.
    until: Duration,
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
        // Who writes it without an end has written it at once.
        if let (Ok(number), true) = (text.parse(), begun.elapsed() > MENDED) {
            return Ok(number);
        }
        if begun.elapsed() > LIMIT {
            return Err("the parent does not say its number".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
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
        thread::sleep(self.until);
        for _ in 0..self.times {
            kill(Pid::from_raw(parent), Signal::SIGKILL).map_err(|error| error.to_string())?;
            thread::sleep(MENDED);
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
    let of = |name, replicas, program| Parent {
        name,
        replicas,
        until: SOON,
        times: 1,
        program,
    };
    let mut all = vec![
        of("guest_of_2", 2, guest),
        of("guest_of_3", 3, guest),
        of("shell_of_2", 2, shell),
        of("shell_of_3", 3, shell),
        of("make_of_2", 2, make),
        of("make_of_3", 3, make),
        of("python_of_2", 2, python),
    ];
    // Who may choose numbers has the same one again, and a child that can be made again.
    if geteuid().is_root() {
        all.push(Parent {
            times: 2,
            ..of("guest_twice", 2, guest)
        });
        all.push(Parent {
            until: KEPT,
            ..of("inner_shell", 2, inner)
        });
        all.extend(
            [("worker_of_2", 2), ("worker_of_3", 3)].map(|(name, replicas)| Parent {
                until: KEPT,
                ..of(name, replicas, worker)
            }),
        );
    }
    all.into_iter()
        .map(|parent| {
            Trial::test(format!("faults::adopted::{}", parent.name), move || {
                parent.check().map_err(Failed::from)
            })
        })
        .collect()
}
