//! Processes that stand around the replicas of a tree: the reaper, which ends leaders that outlive the launcher, and proxies, which keep the
//! number of a child whose leader was killed. They are killed, or a bit of their memory or registers is flipped.
//!
//! What follows is the bare run's output and status. Where a proxy is struck, the child's end by a signal is as clear, and so is
//! status 122 with a beginning of the output. Nothing is left behind.
//!
//! ```text
//! AROUND=2000 AROUND_SEED=7 cargo test -p steadfast-tests -- faults::around
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use steadfast_sys::ptrace::{self, Regs};
use steadfast_sys::{child, procfs};

use crate::bench::{Bench, one_group};
use crate::check::{
    await_keeper, await_repairs, last_lines, others_of, output_difference, protector, repeat,
};
use crate::kills::{Draw, number};
use crate::run::{Invocation, Ran, Running};
use crate::sample::paired;
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(40);
const GRACE: Duration = Duration::from_secs(5);
/// Strikes in the suite; a campaign asks for thousands.
const REAPERS: u64 = 4;
const PROXIES: u64 = 2;
const LOOK: Duration = Duration::from_millis(5);

/// A copy of the shell that lives for a while, and whose end is told.
const COPY: &str = "(for i in 1 2 3 4; do echo in the copy; sleep 0.1; done; exit 3); echo $?";
/// A child that says its number, lives until there is a file, and ends.
const CHILD: &str = "perl -e '$|=1; print \"ready\\n\"; open F, \">\", \"number\"; print F $$; close F; \
    select(undef, undef, undef, 0.05) until -e \"go\"; print \"end\\n\"; exit 3'; echo $?";
/// The same with a parent that says its own.
const PARENT: &str = "perl -e '$|=1; print \"ready\\n\"; select(undef, undef, undef, 0.05) until -e \"go\"; print \"end\\n\"; \
    exit 3' & printf $$ > number; wait $!; echo $?";

fn shell(script: &str) -> Invocation {
    Invocation {
        program: "/bin/sh".into(),
        args: ["-c", script].map(str::to_owned).to_vec(),
        ..Invocation::default()
    }
}

/// What a strike does to a process.
#[derive(Debug, Clone, Copy)]
enum Strike {
    Kill,
    /// A bit of a byte of its memory, the byte drawn from what it can write, or executes.
    Memory(u64),
    /// The number of a register, and a bit of it.
    Register(usize, u64),
}

const REGISTERS: [fn(&mut Regs) -> &mut u64; 16] = [
    |regs| &mut regs.rax,
    |regs| &mut regs.rbx,
    |regs| &mut regs.rcx,
    |regs| &mut regs.rdx,
    |regs| &mut regs.rsi,
    |regs| &mut regs.rdi,
    |regs| &mut regs.rbp,
    |regs| &mut regs.rsp,
    |regs| &mut regs.r8,
    |regs| &mut regs.r9,
    |regs| &mut regs.r10,
    |regs| &mut regs.r12,
    |regs| &mut regs.r13,
    |regs| &mut regs.r14,
    |regs| &mut regs.r15,
    |regs| &mut regs.rip,
];

impl Strike {
    fn draw(draw: &mut Draw) -> Self {
        match draw.below(5) {
            0 => Self::Kill,
            1 | 2 => Self::Memory(draw.below(u64::from(u32::MAX))),
            _ => {
                let register = draw.below(REGISTERS.len() as u64);
                Self::Register(usize::try_from(register).expect("a few"), draw.below(64))
            }
        }
    }

    /// Whether anything was changed: who has ended was not hit, and no address is other than canonical.
    fn carry_out(self, pid: i32) -> io::Result<bool> {
        match self {
            Self::Kill => Ok(kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()),
            Self::Memory(seed) => memory(pid, &mut Draw::new(seed)),
            Self::Register(number, bit) => {
                let Some(stop) = ptrace::interrupt(pid)? else {
                    return Ok(false);
                };
                let mut regs = stop.regs()?;
                *REGISTERS[number](&mut regs) ^= 1 << bit;
                let set = stop.set_regs(&regs);
                stop.detach()?;
                Ok(set.is_ok())
            }
        }
    }
}

/// One bit: of a stack or other small memory, since the log, which all replicas have, is larger than all else.
fn memory(pid: i32, draw: &mut Draw) -> io::Result<bool> {
    const LARGE: u64 = 1 << 20;
    let of_its_own = |map: &procfs::Mapping| {
        let bytes = map.range.end - map.range.start;
        map.readable && !map.shared && bytes < LARGE && map.range.start >> 47 == 0
    };
    let maps = procfs::maps(pid)?;
    let maps: Vec<_> = maps.into_iter().filter(of_its_own).collect();
    if maps.is_empty() {
        return Ok(false);
    }
    let of = usize::try_from(draw.below(maps.len() as u64)).expect("few mappings");
    let range = &maps[of].range;
    let (at, bit) = (
        range.start + draw.below(range.end - range.start),
        draw.below(8),
    );
    let file = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))?;
    let mut byte = [0];
    // A page behind the end of its file, or the kernel's own.
    if file.read_exact_at(&mut byte, at).is_err() {
        return Ok(false);
    }
    byte[0] ^= 1 << bit;
    Ok(file.write_all_at(&byte, at).is_ok())
}

fn started(replicas: u8, script: &str, dir: &Path) -> Result<(Invocation, Running), String> {
    let mut invocation = shell(script);
    invocation.protector = protector(replicas, &dir.join("events"), &["--quiet"]);
    let run = invocation.start(dir).map_err(|error| error.to_string())?;
    Ok((invocation, run))
}

/// Two of the launcher's children are copies of it. The other one, which watches for stops, is older.
fn reaper(launcher: i32) -> Option<i32> {
    let exe = |pid: i32| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let own = exe(launcher)?;
    let mut copies = procfs::children(launcher);
    copies.retain(|pid| exe(*pid).as_ref() == Some(&own));
    copies.get(1).copied()
}

fn await_reaper(launcher: i32, other_than: Option<i32>) -> Result<i32, String> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        match reaper(launcher) {
            found if found.is_none() || found == other_than => thread::sleep(LOOK),
            Some(pid) => return Ok(pid),
            None => {}
        }
    }
    Err("there is no reaper".to_owned())
}

/// Nobody needs a reaper as long as the launcher lives.
fn in_a_reaper(strike: Strike, bare: &Ran, dir: &Path) -> Result<&'static str, String> {
    let (invocation, run) = started(2, COPY, dir)?;
    run.await_output("in the copy\n", LIMIT)?;
    let pid = await_reaper(run.supervisor(), None)?;
    let hit = strike.carry_out(pid).map_err(|error| error.to_string())?;
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    match output_difference(bare, &ran) {
        None if hit => Ok("right"),
        None => Ok("not hit"),
        Some(why) => Err(format!(
            "{why}\n{}  run:    {}",
            last_lines(&ran),
            invocation.shell_line()
        )),
    }
}

fn said(dir: &Path) -> Result<i32, String> {
    let begun = Instant::now();
    loop {
        match fs::read_to_string(dir.join("number"))
            .unwrap_or_default()
            .parse()
        {
            Ok(number) => return Ok(number),
            Err(_) if begun.elapsed() < LIMIT => thread::sleep(LOOK),
            Err(_) => return Err("nobody says a number".to_owned()),
        }
    }
}

/// Runs a script whose child waits, has a leader of it killed, and strikes the proxy that is left.
fn with_a_proxy(
    replicas: u8,
    script: &str,
    strike: Strike,
    bare: &Ran,
    dir: &Path,
    proxy: impl Fn(i32, &Path) -> Result<Option<i32>, String>,
) -> Result<&'static str, String> {
    for file in ["number", "go"] {
        let _ = fs::remove_file(dir.join(file));
    }
    let (invocation, run) = started(replicas, &format!("cd {}; {script}", dir.display()), dir)?;
    run.await_output("ready\n", LIMIT)?;
    let hit = match proxy(said(dir)?, &dir.join("events"))? {
        Some(pid) => strike.carry_out(pid).map_err(|error| error.to_string())?,
        None => false,
    };
    go(dir)?;
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    // What the shell says of a child that a signal has ended is above 128.
    let told = text
        .lines()
        .last()
        .and_then(|line| line.parse::<u32>().ok());
    match (ran.end().as_str(), told) {
        ("status 0", _) if ran.stdout == bare.stdout => Ok(if hit { "right" } else { "not hit" }),
        ("status 0", Some(129..=192)) => Ok("the child was ended"),
        ("status 122", _) if bare.stdout.starts_with(&ran.stdout) => Ok("stopped"),
        (end, _) => Err(format!(
            "{end}: neither right nor ended\n{}  run:    {}",
            last_lines(&ran),
            invocation.shell_line()
        )),
    }
}

fn go(dir: &Path) -> Result<(), String> {
    fs::write(dir.join("go"), "").map_err(|error| error.to_string())
}

/// An ordinary user cannot choose the number of a process: there the child ends as bare, and there is no proxy.
fn in_a_proxy(
    replicas: u8,
    strike: Strike,
    bare: &Ran,
    dir: &Path,
) -> Result<&'static str, String> {
    with_a_proxy(replicas, CHILD, strike, bare, dir, |child, events| {
        let is_kept = geteuid().is_root();
        if is_kept {
            await_keeper(child, others_of(replicas), LIMIT)?;
        }
        kill(Pid::from_raw(child), Signal::SIGKILL).map_err(|error| error.to_string())?;
        if !is_kept {
            return Ok(None);
        }
        await_repairs(events, 1, LIMIT)?;
        Ok(child::exists(child).then_some(child))
    })
}

/// The proxy of a child whose parent was made again.
fn in_a_proxy_of_an_orphan(strike: Strike, bare: &Ran, dir: &Path) -> Result<&'static str, String> {
    with_a_proxy(2, PARENT, strike, bare, dir, |parent, events| {
        kill(Pid::from_raw(parent), Signal::SIGKILL).map_err(|error| error.to_string())?;
        await_repairs(events, 1, LIMIT)?;
        // Another user's new leader has another number.
        Ok(procfs::children(parent).first().copied())
    })
}

type Case = fn(Strike, &Ran, &Path) -> Result<&'static str, String>;

fn drawn(name: &str, script: &str, some: u64, case: Case) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("around-{name}"));
    let (strikes, seed) = (number("AROUND", some), number("AROUND_SEED", 3));
    go(&dir)?;
    let bare = shell(&format!("cd {}; {script}", dir.display())).run(&dir, LIMIT)?;
    let mut draw = Draw::new(seed);
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for index in 0..strikes {
        let strike = Strike::draw(&mut draw);
        let _group = one_group();
        let end = case(strike, &bare, &dir).map_err(|why| {
            let again = repeat(&format!("faults::around::{name}"));
            format!("strike {index}, {strike:?}: {why}\n  repeat: AROUND={strikes} AROUND_SEED={seed} {again}")
        })?;
        *ends.entry(end).or_default() += 1;
    }
    if strikes != some {
        eprintln!("{strikes} strikes, {name}, seed {seed}: {ends:?}");
    }
    if geteuid().is_root() && ends.keys().all(|end| *end == "not hit") {
        return Err("no strike hit anything".into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// The reaper is killed, and is made again; then the launcher is, and the leader of a child does not outlive it.
fn another_reaper(replicas: u8) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("around-another-{replicas}"));
    let _group = one_group();
    let (_, run) = started(replicas, "(echo in the copy; sleep 30); echo $?", &dir)?;
    run.await_output("in the copy\n", LIMIT)?;
    let launcher = run.supervisor();
    let first = await_reaper(launcher, None)?;
    kill(Pid::from_raw(first), Signal::SIGKILL)?;
    await_reaper(launcher, Some(first))?;
    kill(Pid::from_raw(launcher), Signal::SIGKILL)?;
    let ran = run.wait(LIMIT)?;
    ran.nothing_left(GRACE)?;
    Bench::get().passed(&dir);
    Ok(())
}

/// One place of a proxy is struck, with two replicas and with three. One that ends too early is its child's end, by the signal that it
/// died of, and one that has only lost its way in its loop ends with its child.
fn one_strike(
    replicas: u8,
    name: &str,
    strike: Strike,
    ends: &'static [&'static str],
) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("around-proxy-{name}-{replicas}"));
    go(&dir)?;
    let bare = shell(&format!("cd {}; {CHILD}", dir.display())).run(&dir, LIMIT)?;
    let _group = one_group();
    let end = in_a_proxy(replicas, strike, &bare, &dir)?;
    // Without a proxy there is nothing to strike, and the child ends as bare.
    if geteuid().is_root() && !ends.contains(&end) {
        return Err(format!("{strike:?}: {end}, expected one of {ends:?}").into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

fn in_one_place() -> impl Iterator<Item = Trial> {
    const ENDED: &[&str] = &["the child was ended"];
    const ANY: &[&str] = &["right", "the child was ended", "stopped"];
    struct Row {
        name: &'static str,
        strike: Strike,
        ends: &'static [&'static str],
    }
    let strikes = [
        Row {
            name: "killed",
            strike: Strike::Kill,
            ends: ENDED,
        },
        Row {
            name: "instruction_pointer",
            strike: Strike::Register(15, 44),
            ends: ENDED,
        },
        Row {
            name: "stack_pointer",
            strike: Strike::Register(7, 40),
            ends: ANY,
        },
    ];
    strikes
        .into_iter()
        .enumerate()
        .flat_map(|(row, Row { name, strike, ends })| {
            [2, 3]
                .into_iter()
                .filter(move |&replicas| row == 0 || paired(row, 0, usize::from(replicas)))
                .map(move |replicas| {
                    Trial::test(
                        format!("faults::around::proxy_{name}_of_{replicas}"),
                        move || one_strike(replicas, name, strike, ends),
                    )
                })
        })
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("faults::around::reaper", || {
            drawn("reaper", COPY, REAPERS, in_a_reaper)
        }),
        Trial::test("faults::around::proxy", || {
            drawn("proxy", CHILD, PROXIES, |strike, bare, dir| {
                in_a_proxy(2, strike, bare, dir)
            })
        }),
        Trial::test("faults::around::proxy_of_an_orphan", || {
            drawn("orphan", PARENT, PROXIES, in_a_proxy_of_an_orphan)
        }),
        Trial::test("faults::around::another_reaper", || another_reaper(2)),
        Trial::test("faults::around::another_reaper_of_3", || another_reaper(3)),
    ];
    trials.extend(in_one_place());
    trials
}
