//! Kills: two processes of a group are killed one shortly after the other, whatever their roles.
//!
//! The second falls into the repair that the first one began: its donor, its copy, whoever makes the copy. What follows is
//! right output or status 122 with a beginning of it, and soon. Nothing else: a right replica is never outvoted by zeros.
//!
//! ```text
//! KILLS=2000 KILLS_SEED=7 cargo test -p steadfast-tests -- faults::pairs_of_kills
//! ```
//!
//! Not covered: three and more in one repair, and the launcher, with which everybody dies.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::bench::{Bench, some_groups};
use crate::build::{self, Variant};
use crate::check::{last_lines, protector, repeat};
use crate::faults::replica_pid;
use crate::run::{Invocation, Ran, Stdin};
use crate::trial::Trial;

/// Pairs in the suite; a campaign asks for thousands.
const PAIRS: u64 = 12;
const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
/// The second kill follows the first within this: a repair of the larger program takes about half as long.
const APART_MS: u64 = 150;
/// From the second kill to the end. Runs take a second or two, repairs below one: what is longer stands still.
const SOON: Duration = Duration::from_secs(16);

/// Whom a kill strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Leader,
    Follower(usize),
    Keeper,
}

/// xorshift64*, from one seed that is printed.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }

    fn one_of(&mut self, roles: &mut Vec<Role>) -> Role {
        let index = self.below(roles.len() as u64);
        roles.remove(usize::try_from(index).expect("a few roles"))
    }
}

/// One pair, as it was drawn.
#[derive(Debug, Clone, Copy)]
struct Pair {
    replicas: u8,
    /// MiB of state and rounds over it.
    size: (u32, u32),
    first: Role,
    second: Role,
    after_ms: u64,
    apart_us: u64,
}

impl Pair {
    fn draw(draw: &mut Draw) -> Self {
        // Three replicas leave a right one whatever two die.
        let replicas = if draw.below(4) == 0 { 2 } else { 3 };
        let mut roles = vec![Role::Leader, Role::Keeper];
        roles.extend((1..usize::from(replicas)).map(Role::Follower));
        // Half of the time the leader first: only its repair copies a process from outside.
        let first = if draw.below(2) == 0 {
            roles.remove(0)
        } else {
            draw.one_of(&mut roles)
        };
        let second = draw.one_of(&mut roles);
        let size = if draw.below(3) == 0 {
            (1, 800)
        } else {
            (48, 150)
        };
        Self {
            replicas,
            size,
            first,
            second,
            after_ms: draw.below(150),
            apart_us: draw.below(APART_MS * 1000),
        }
    }

    /// Whether a replica is left that nobody killed, and that nobody else is needed for.
    fn leaves_one(self) -> bool {
        let leader_and_keeper = [self.first, self.second].contains(&Role::Leader)
            && [self.first, self.second].contains(&Role::Keeper);
        !leader_and_keeper
            && (self.replicas == 3 || [self.first, self.second].contains(&Role::Keeper))
    }
}

/// The keeper is the launcher's other child of the program, in the launcher's own pid namespace.
fn keeper(launcher: i32, program: &Path, replicas: &[i32]) -> Option<i32> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let ours = namespace(launcher)?;
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).ok()?;
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .find(|pid| {
            let exe = fs::read_link(format!("/proc/{pid}/exe"));
            !replicas.contains(pid)
                && namespace(*pid).as_ref() == Some(&ours)
                && exe.is_ok_and(|exe| exe == program)
        })
}

/// How one pair ended.
fn strike(pair: Pair, program: &Path, bare: &Ran, dir: &Path) -> Result<&'static str, String> {
    let events = dir.join("events");
    let _ = fs::remove_file(&events);
    let invocation = Invocation {
        protector: protector(pair.replicas, &events, &[]),
        ..invocation(program, pair.size)
    };
    let _group = some_groups();
    let run = invocation.start(dir).map_err(|error| error.to_string())?;
    run.await_output("round 0 ", LIMIT)?;
    let mut pids = BTreeMap::new();
    for r in 0..usize::from(pair.replicas) {
        pids.insert(
            if r == 0 {
                Role::Leader
            } else {
                Role::Follower(r)
            },
            replica_pid(&events, r)?,
        );
    }
    let replicas: Vec<i32> = pids.values().copied().collect();
    if let Some(pid) = keeper(run.supervisor(), program, &replicas) {
        pids.insert(Role::Keeper, pid);
    }
    thread::sleep(Duration::from_millis(pair.after_ms));
    // One that has been made anew has another number, and is not meant.
    let strike = |role: Role| {
        pids.get(&role)
            .map(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL))
    };
    strike(pair.first);
    thread::sleep(Duration::from_micros(pair.apart_us));
    strike(pair.second);
    let begun = Instant::now();
    let run = run.wait(LIMIT)?;
    let took = begun.elapsed();
    run.nothing_left(GRACE)?;
    let why = |what: &str| {
        format!(
            "{what}: {} after {} ms\n{}",
            run.end(),
            took.as_millis(),
            last_lines(&run)
        )
    };
    if took > SOON {
        return Err(why("it stood still"));
    }
    if !bare.stdout.starts_with(&run.stdout) {
        return Err(why("output that no right replica wrote"));
    }
    match run.end().as_str() {
        "status 0" if run.stdout == bare.stdout => Ok("right"),
        "status 122" => Ok("stopped"),
        // Somebody has killed them all.
        "signal 9" if !pair.leaves_one() => Ok("killed"),
        _ => Err(why("neither right nor stopped")),
    }
}

fn invocation(program: &Path, (mib, rounds): (u32, u32)) -> Invocation {
    Invocation {
        program: program.to_path_buf(),
        args: vec![mib.to_string(), rounds.to_string()],
        stdin: Stdin::Null,
        ..Invocation::default()
    }
}

pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn pairs_of_kills() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("faults-pairs-of-kills");
    let program: PathBuf = build::guest("state_rounds.c", Variant::Dynamic)?;
    let (pairs, seed) = (number("KILLS", PAIRS), number("KILLS_SEED", 19));
    let mut draw = Draw::new(seed);
    let mut bare: BTreeMap<(u32, u32), Ran> = BTreeMap::new();
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for index in 0..pairs {
        let pair = Pair::draw(&mut draw);
        let bare = match bare.entry(pair.size) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(invocation(&program, pair.size).run(&dir, LIMIT)?)
            }
        };
        match strike(pair, &program, bare, &dir) {
            Ok("stopped") if pair.leaves_one() => {
                *ends.entry("stopped with a right replica left").or_default() += 1
            }
            Ok(end) => *ends.entry(end).or_default() += 1,
            Err(why) => wrong.push(format!("pair {index}, {pair:?}: {why}")),
        }
    }
    if pairs != PAIRS {
        eprintln!(
            "{pairs} pairs of kills, seed {seed}: {ends:?}, wrong {}",
            wrong.len()
        );
    }
    if !wrong.is_empty() {
        let (count, all) = (wrong.len(), wrong.join("\n"));
        let again = repeat("faults::pairs_of_kills");
        return Err(format!("{count} of {pairs}, {ends:?}\n{all}\n  files:  {}\n  repeat: KILLS={pairs} KILLS_SEED={seed} {again}", dir.display()).into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::test("faults::pairs_of_kills", pairs_of_kills)]
}
