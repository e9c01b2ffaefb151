//! A child's leader is killed while its parent lives and waits: the parent sees the end of the child, as if nothing had been.
//!
//! A child that a process of the program kills ends, and so does one whose proxy is killed (crates/agent, ward.c).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::bench::{Bench, one_group};
use crate::build::{self, Variant};
use crate::check::{
    Log, await_keeper, await_repairs, last_lines, others_of, output_difference, protector,
};
use crate::run::{Invocation, Ran};
use crate::trial::Trial;
use crate::user::{AS_USER, reachable};

const LIMIT: Duration = Duration::from_secs(40);
/// Long enough that a child has a keeper.
const KEPT: Duration = Duration::from_millis(2500);
const GRACE: Duration = Duration::from_secs(5);
/// A child that says its number, waits until there is a file, and asks who its parent is.
const CHILD: &str = "perl -e '$|=1; open F, \">\", \"number\"; print F $$; close F; \
    select(undef, undef, undef, 0.05) until -e \"go\"; print getppid == $ARGV[0] ? \"same\\n\" : \"another\\n\"; exit 3'";
/// A copy of its parent, which loads a library by the descriptors of its leader, whoever that is by then.
const COPY: &str = "perl -e '$|=1; if (fork) { wait; print $? >> 8, \"\\n\"; exit } $0 = \"copy\"; open F, \">\", \"number\"; print F $$; close F; \
    select(undef, undef, undef, 0.05) until -e \"go\"; require POSIX; print POSIX::floor(2.5), \"\\n\"; exit 4'";
/// A child that another one sends a signal to, waits for the answer, and so on: before it is struck, while it is dead, and
/// five times after there is a file.
const BROTHER: &str = "perl -e '$|=1; pipe R, W; unlink \"done\"; if (!($a = fork)) { $SIG{USR1} = sub { syswrite W, \"x\" }; \
    open F, \">\", \"number\"; print F $$; close F; select(undef, undef, undef, 0.05) until -e \"done\"; exit 3 } \
    if (!($b = fork)) { select(undef, undef, undef, 0.01) until -s \"number\"; for ($n = 5; $n; select(undef, undef, undef, 0.1)) \
    { kill(\"USR1\", $a) == 1 or print \"nobody\\n\"; sysread R, $_, 1; $n-- if -e \"go\" } open D, \">\", \"done\"; exit 4 } \
    for ($a, $b) { waitpid $_, 0; print $? >> 8, \"\\n\" }'";
/// The same of a parent, and its child.
const SON: &str = "perl -e '$|=1; pipe R, W; $p = $$; $SIG{USR1} = sub { syswrite W, \"x\" }; if (!($b = fork)) { \
    open F, \">\", \"number\"; print F $p; close F; for ($n = 5; $n; select(undef, undef, undef, 0.1)) \
    { kill(\"USR1\", getppid()) == 1 or print \"nobody\\n\"; sysread R, $_, 1; $n-- if -e \"go\" } \
    exit((getppid() == $p) ? 4 : 5) } 1 until waitpid($b, 0) == $b; print $? >> 8, \"\\n\"'";
/// A child that has blocked a signal, and takes it when there is a file.
const BLOCKS: &str = "perl -e 'use POSIX; $s = POSIX::SigSet->new(SIGUSR1); sigprocmask(SIG_BLOCK, $s); $SIG{USR1} = sub { print \"heard\\n\" }; \
    kill USR1 => $$; $|=1; open F, \">\", \"number\"; print F $$; close F; select(undef, undef, undef, 0.05) until -e \"go\"; \
    sigprocmask(SIG_UNBLOCK, $s); print \"free\\n\"; exit 3'";
/// A parent that kills its child. The shell says "Killed" or not, bare too, by whether it hears of the end before it waits.
const KILLS: &str =
    "exec 2>/dev/null; perl -e 'sleep 1 for 1..30' & sleep 1.5; kill -9 $!; wait $!; echo $?";

fn shell(script: &str) -> Invocation {
    Invocation {
        program: "/bin/sh".into(),
        args: ["-c", script].map(str::to_owned).to_vec(),
        ..Invocation::default()
    }
}

fn number(dir: &Path) -> Result<i32, String> {
    let begun = Instant::now();
    loop {
        if let Ok(number) = fs::read_to_string(dir.join("number"))
            .unwrap_or_default()
            .parse()
        {
            return Ok(number);
        }
        if begun.elapsed() > LIMIT {
            return Err("the child does not say its number".to_owned());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Caller {
    Own,
    /// Who cannot choose the number of a process.
    OrdinaryUser,
}

/// Runs the parent, and kills its child's leader, or who has its number, so many times.
fn struck(
    script: &str,
    caller: Caller,
    replicas: u8,
    times: usize,
    dir: &Path,
) -> Result<(Ran, String, Ran), String> {
    let [said, go] = ["number", "go"].map(|name| dir.join(name));
    let touch = || fs::write(&go, "").map_err(|error| error.to_string());
    let mut invocation = shell(&format!("cd {}; {script} $$; echo $?", dir.display()));
    let is_other = caller == Caller::OrdinaryUser && geteuid().is_root();
    if is_other {
        invocation.wrapper = AS_USER.map(str::to_owned).to_vec();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777))
            .map_err(|error| error.to_string())?;
    }
    touch()?;
    let bare = invocation.run(dir, LIMIT)?;
    for file in [&said, &go] {
        fs::remove_file(file).map_err(|error| error.to_string())?;
    }
    let events = dir.join("events");
    invocation.protector = protector(replicas, &events, &["--quiet"]);
    if is_other {
        invocation.protector[0] = reachable(Bench::get().binary())?.display().to_string();
    }
    let _group = one_group();
    let run = invocation.start(dir).map_err(|error| error.to_string())?;
    let child = number(dir)?;
    await_keeper(child, others_of(replicas), LIMIT)?;
    if script != CHILD && script != COPY {
        thread::sleep(KEPT); // others have its command, too
    }
    for strike in 0..times {
        kill(Pid::from_raw(child), Signal::SIGKILL).map_err(|error| error.to_string())?;
        if strike == 0 {
            await_repairs(&events, 1, LIMIT)?;
        }
    }
    // One that has ended does not look any more.
    touch()?;
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    Ok((bare, invocation.shell_line(), ran))
}

fn goes_on(name: &str, script: &str, caller: Caller, replicas: u8) -> Result<(), String> {
    let dir = Bench::get().case_dir(name);
    let (bare, line, ran) = struck(script, caller, replicas, 1, &dir)?;
    let report = Log::read(&dir.join("events"))?.report;
    let difference = output_difference(&bare, &ran);
    if difference.is_some() || report.recoveries != 1 {
        let why = difference.unwrap_or_default();
        return Err(format!(
            "{why}\n{report:?}\n{}  run:    {line}",
            last_lines(&ran)
        ));
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Sets for polling that are told of signals by the leader before.
fn signals_are_watched(name: &str, caller: Caller, replicas: u8) -> Result<(), String> {
    let guest = build::guest("watched_signals.c", Variant::Dynamic)?;
    goes_on(name, &guest.display().to_string(), caller, replicas)
}

fn ends_when_killed_again() -> Result<(), String> {
    let dir = Bench::get().case_dir("awaited-again");
    let (_, line, ran) = struck(CHILD, Caller::Own, 2, 2, &dir)?;
    if ran.stdout != b"137\n" {
        return Err(format!("{}  run:    {line}", last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Children are killed as soon as they are seen from outside: most of them before they have said anything to the launcher.
fn ends_as_soon_as_made(replicas: u8) -> Result<(), String> {
    let dir = Bench::get().case_dir(&format!("awaited-early-{replicas}"));
    let mut invocation = Invocation {
        program: build::guest("children_struck.c", Variant::Dynamic)?,
        ..Invocation::default()
    };
    let bare = invocation.run(&dir, LIMIT)?;
    let _ = fs::remove_file(dir.join("number"));
    invocation.protector = protector(replicas, &dir.join("events"), &["--quiet"]);
    let _group = one_group();
    let run = invocation.start(&dir).map_err(|error| error.to_string())?;
    let parent = number(&dir)?;
    let mut struck = 0;
    while let Ok(children) = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")) {
        for child in children.split_whitespace() {
            let child = child.parse().map_err(|_| format!("children: {children}"))?;
            struck += u32::from(kill(Pid::from_raw(child), Signal::SIGKILL).is_ok());
        }
        if !Path::new(&format!("/proc/{parent}/fd/0")).exists() {
            break;
        }
    }
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    let difference = output_difference(&bare, &ran);
    if difference.is_some() || struck == 0 {
        let why = difference.unwrap_or_default();
        return Err(format!("{why}\n{struck} struck\n{}", last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn ends_by_its_parents_will() -> Result<(), String> {
    let dir = Bench::get().case_dir("awaited-will");
    let mut invocation = shell(KILLS);
    let bare = invocation.run(&dir, LIMIT)?;
    let events = dir.join("events");
    let _group = one_group();
    invocation.protector = protector(2, &events, &["--quiet"]);
    let ran = invocation.run(&dir, LIMIT)?;
    ran.nothing_left(GRACE)?;
    let report = Log::read(&events)?.report;
    let difference = output_difference(&bare, &ran);
    if difference.is_some() || report.recoveries != 0 || report.divergences != 0 {
        let why = difference.unwrap_or_default();
        return Err(format!("{why}\n{report:?}\n{}", last_lines(&ran)));
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, case: fn() -> Result<(), String>| {
        Trial::test(format!("faults::awaited::{name}"), move || {
            case().map_err(Failed::from)
        })
    };
    let mut all = vec![
        trial("killed_leader_of_2", || {
            goes_on("awaited-2", CHILD, Caller::Own, 2)
        }),
        trial("killed_leader_of_3", || {
            goes_on("awaited-3", CHILD, Caller::Own, 3)
        }),
        trial("killed_leader_of_a_copy_of_2", || {
            goes_on("awaited-copy-2", COPY, Caller::OrdinaryUser, 2)
        }),
        trial("killed_leader_of_a_copy_of_3", || {
            goes_on("awaited-copy-3", COPY, Caller::Own, 3)
        }),
        trial("killed_leader_of_an_ordinary_user", || {
            goes_on("awaited-user", CHILD, Caller::OrdinaryUser, 2)
        }),
        trial("killed_and_signalled_by_its_brother", || {
            goes_on("awaited-brother", BROTHER, Caller::Own, 2)
        }),
        trial("killed_and_signalled_by_its_brother_as_user", || {
            goes_on("awaited-brother-user", BROTHER, Caller::OrdinaryUser, 3)
        }),
        trial("killed_and_signalled_by_its_son", || {
            goes_on("awaited-son", SON, Caller::Own, 3)
        }),
        trial("killed_and_signalled_by_its_son_as_user", || {
            goes_on("awaited-son-user", SON, Caller::OrdinaryUser, 2)
        }),
        trial("killed_with_a_blocked_signal", || {
            goes_on("awaited-blocks", BLOCKS, Caller::Own, 2)
        }),
        trial("killed_and_watches_signals_of_2", || {
            signals_are_watched("awaited-watches-2", Caller::OrdinaryUser, 2)
        }),
        trial("killed_and_watches_signals_of_3", || {
            signals_are_watched("awaited-watches-3", Caller::Own, 3)
        }),
        trial("killed_by_its_parent", ends_by_its_parents_will),
        trial("killed_as_soon_as_made_of_1", || ends_as_soon_as_made(1)),
        trial("killed_as_soon_as_made_of_2", || ends_as_soon_as_made(2)),
        trial("killed_as_soon_as_made_of_3", || ends_as_soon_as_made(3)),
    ];
    // No process has the number of an ordinary user's child that was made again.
    if geteuid().is_root() {
        all.push(trial("killed_again", ends_when_killed_again));
    }
    all
}
