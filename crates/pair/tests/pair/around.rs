//! Faults around a join, drawn at random: a server of two processes with threads, on two hosts with an image each and networks of
//! their own, whose client knows every right answer.
//!
//! A round: a host is lost; it comes back with its old disk; before that, meanwhile, or in the second after, something strikes.
//! Then the client goes on, or no site does, and each has said why.
//!
//! `PAIR_JOINS`, `PAIR_FIRST`: how many rounds, and from which on. `PAIR_JOINS_KIND`, `PAIR_JOINS_WHEN`: of one kind, at one time alone
//! (`Killed(0)`, `After`).
//!
//! Invariants
//!  1. The client gets every answer once, and each is the one that a bare run gives.
//!  2. What was acknowledged is on the disk of every site that goes on, or that ended by itself.
//!  3. Without a fault nothing is said, and both disks are equal in the end, and as their ledgers have them.
//!  4. Nothing is left: no process, no loop device.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use steadfast_sys::disk::{forget, place};

use crate::campaign::{Counts, Random};
use crate::join::Told;
use crate::lost::rounds;
use crate::sites::*;
use crate::store::{Case, Client, DATA_PAGES, Hosts, LOST_AFTER, until};
use crate::tree::program;

const ALONE: &str = "this site goes on alone";
const BACK: &str = "the other site is back";
const JOINED: &str = "this site has joined";
const DOORS: [&str; 2] = ["10.96.0.1:7450", "10.96.0.2:7450"];
/// Rounds wait most of the time.
const BESIDE: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nothing,
    /// The command of a site is killed.
    Killed(usize),
    /// A process of its program is.
    Process(usize),
    /// Its cable is pulled, and put back later.
    Cut(usize),
    /// Its command and program stand still for longer than the other one waits.
    Frozen(usize),
    /// Bits of its program's memory flip.
    Memory(usize),
    /// A bit of its disk flips.
    Disk(usize),
    /// A bit of its ledger's file.
    Ledger(usize),
}

/// The site that led is 0, the one that comes back 1.
const KINDS: [Kind; 15] = [
    Kind::Nothing,
    Kind::Killed(0),
    Kind::Killed(1),
    Kind::Process(0),
    Kind::Process(1),
    Kind::Cut(0),
    Kind::Cut(1),
    Kind::Frozen(0),
    Kind::Frozen(1),
    Kind::Memory(0),
    Kind::Memory(1),
    Kind::Disk(0),
    Kind::Disk(1),
    Kind::Ledger(0),
    Kind::Ledger(1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    Meanwhile,
    After,
}

/// Processes of the site's program; helpers of its command are left out.
fn processes(site: &Child) -> Vec<u32> {
    let is = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "store")
    };
    program(site).into_iter().filter(is).collect()
}

fn signal(pid: u32, signal: i32) {
    steadfast_sys::child::kill(pid.cast_signed(), signal);
}

fn has_ended(site: &mut Told) -> bool {
    site.child.try_wait().expect("a child").is_some()
}

/// A bit of the memory that a process writes to: its data and its stack.
fn flip_memory(pid: u32, random: &mut Random) -> bool {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let of = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let from = u64::from_str_radix(from, 16).ok()?;
        let bytes = u64::from_str_radix(to, 16).ok()? - from;
        let is_own = line.contains("rw-p") && (line.contains("/store") || bytes == 60 * 4096);
        (is_own || line.contains("[stack]")).then_some((from, bytes))
    };
    let all: Vec<(u64, u64)> = maps.lines().filter_map(of).collect();
    let Some(&(from, bytes)) = all.get(random.index(all.len().max(1))) else {
        return false;
    };
    let at = from + bytes.saturating_sub(1 + random.below(bytes.min(245_760)));
    flip_file(Path::new(&format!("/proc/{pid}/mem")), at, random)
}

/// A bit of a page of `data`, in the image where the file's block lies; the next read comes from there.
fn flip_disk(site: &Child, image: &Path, random: &mut Random) -> bool {
    let path = format!("/proc/{}/root/mnt/data/data", site.id());
    let Ok(file) = fs::File::open(path) else {
        return false;
    };
    let offset = random.below(DATA_PAGES) * 4096;
    let Some(at) = place(&file, offset).ok().flatten() else {
        return false;
    };
    flip_file(image, at + random.below(4096), random);
    forget(&file).is_ok()
}

fn flip_file(path: &Path, at: u64, random: &mut Random) -> bool {
    let Ok(file) = fs::File::options().read(true).write(true).open(path) else {
        return false;
    };
    let (mut byte, bit) = ([0], 1 << random.below(8));
    file.read_exact_at(&mut byte, at).is_ok() && file.write_all_at(&[byte[0] ^ bit], at).is_ok()
}

/// One round, from where two sites are one.
struct Round<'a> {
    hosts: &'a Hosts<'a>,
    round: u64,
    kind: Kind,
    when: When,
    shares: bool,
    a: Told,
    c: Told,
    client: Client,
    /// The fault has had an effect that the test knows of.
    struck: bool,
    /// The site that led had said that the other one is back, or that one that it has joined, when it struck.
    joined: bool,
}

impl Round<'_> {
    fn about(&self) -> String {
        format!(
            "PAIR_FIRST={} {:?} {:?} shares {} joined {} answers {}\n--- led\n{}\n--- came back\n{}",
            self.round,
            self.kind,
            self.when,
            self.shares,
            self.joined,
            self.client.answers(),
            self.a.said(),
            self.c.said()
        )
    }

    fn right(&self) -> &[String] {
        &self.hosts.case.right[usize::from(self.shares)]
    }

    fn is_joined(&self) -> bool {
        self.a.said().contains(BACK) || self.c.said().contains(JOINED)
    }

    fn site(&mut self, of: usize) -> &mut Told {
        if of == 0 { &mut self.a } else { &mut self.c }
    }

    fn strike(&mut self, random: &mut Random) {
        self.joined = self.is_joined();
        let hosts = self.hosts;
        let (cut, freeze) = (
            Duration::from_millis(LOST_AFTER),
            Duration::from_millis(LOST_AFTER * 2),
        );
        match self.kind {
            Kind::Nothing => {}
            Kind::Killed(of) => {
                self.site(of).kill();
                self.struck = true;
            }
            Kind::Process(of) => {
                let all = processes(&self.site(of).child);
                if let Some(pid) = all.get(random.index(all.len().max(1))) {
                    signal(*pid, libc::SIGKILL);
                    self.struck = true;
                }
            }
            Kind::Cut(of) => {
                hosts.cable(of, "down");
                self.struck = true;
                std::thread::sleep(cut + Duration::from_millis(random.below(1500)));
                hosts.cable(of, "up");
            }
            Kind::Frozen(of) => {
                let site = &self.site(of).child;
                let all = [program(site), vec![site.id()]].concat();
                all.iter().for_each(|pid| signal(*pid, libc::SIGSTOP));
                self.struck = true;
                std::thread::sleep(freeze);
                all.iter().rev().for_each(|pid| signal(*pid, libc::SIGCONT));
            }
            Kind::Memory(of) => {
                // A site that is alone has nobody who would object.
                if of == 0 && !self.joined {
                    return;
                }
                let all = processes(&self.site(of).child);
                if let Some(pid) = all.get(random.index(all.len().max(1))) {
                    self.struck = flip_memory(*pid, random);
                }
            }
            Kind::Disk(of) => {
                let image = hosts.image(of);
                self.struck = flip_disk(&self.site(of).child, &image, random);
            }
            Kind::Ledger(of) => {
                let path = hosts.ledger(of).join("ledger");
                let len = fs::metadata(&path).map_or(0, |meta| meta.len());
                let at = random.below(len.max(1));
                self.struck = flip_file(&path, at, random);
            }
        }
    }

    /// Until the client goes on, or nobody does.
    fn goes_on(&mut self, more: usize) -> bool {
        let before = self.client.answers();
        let came = |client: &Client| client.answers() >= before + more;
        let limit = LIMIT + LIMIT;
        let mut nobody = false;
        let holds = until(limit, || {
            nobody = has_ended(&mut self.a) && has_ended(&mut self.c);
            nobody || came(&self.client)
        });
        assert!(holds, "it hangs: {}", self.about());
        self.client.check(self.right(), &|| self.about());
        came(&self.client)
    }

    /// Who may have stopped, and who has to go on.
    fn judge(&mut self) {
        let goes_on = self.goes_on(15);
        let about = self.about();
        let (both, none) = (self.joined && self.is_joined(), !self.is_joined());
        let must = match self.kind {
            // It is said that it has joined: it goes on.
            Kind::Killed(0) => self.c.said().contains(JOINED),
            Kind::Process(0) | Kind::Memory(_) => !self.struck,
            Kind::Process(_) => none,
            Kind::Disk(0) => both || !self.struck,
            _ => true,
        };
        assert!(goes_on || !must, "nobody goes on: {about}");
    }

    /// What has come of it.
    fn end(mut self) -> String {
        let goes_on = !(has_ended(&mut self.a) && has_ended(&mut self.c));
        let acknowledged = self.client.answers();
        // The client says its last word after an answer.
        if goes_on {
            let to = self.client.child.stdin.as_ref().expect("piped");
            { to }.write_all(b"end\n").expect("it reads");
        }
        let ended = until(LIMIT, || has_ended(&mut self.a) && has_ended(&mut self.c));
        let about = self.about();
        if !ended {
            // One that was outvoted, or nobody's, would have ended.
            panic!("it does not end: {about}");
        }
        self.client.check(self.right(), &|| about.clone());
        let acknowledged = self.client.answers().max(acknowledged);
        let Round {
            hosts,
            kind,
            when,
            struck,
            a,
            c,
            ..
        } = self;
        let ends = [a.end(), c.end()];
        let codes = ends.each_ref().map(|end| end.0);
        let all = format!("{codes:?} {about}");
        for (status, said) in &ends {
            // Killed, a program that a signal or its own check has ended, or ours, with a reason.
            let ours = matches!(status, Some(121 | 122));
            assert!(!ours || said.contains("steadfast pair: "), "{all}");
            assert!(!matches!(status, Some(123)), "our bug: {all}");
        }
        let by_itself = |of: usize| codes[of] == Some(0);
        if goes_on {
            assert!(by_itself(0) || by_itself(1), "{all}");
        }
        if kind == Kind::Nothing || !struck {
            assert_eq!(codes, [Some(0); 2], "{all}");
            for (alone, (_, said)) in [1, 0].into_iter().zip(&ends) {
                for word in ["disk of", "processor or memory", "scrubber", "suspect"] {
                    assert!(!said.contains(word), "a false alarm: {all}");
                }
                assert_eq!(said.matches(ALONE).count(), alone, "a false alarm: {all}");
            }
        }
        for of in 0..2 {
            assert!(
                until(LIMIT, || !hosts.has_device(of)),
                "a device is left: {all}"
            );
        }
        for of in (0..2).filter(|of| by_itself(*of)) {
            for file in ["log", "copy"] {
                let lines = hosts.file(of, file).len() / 18;
                assert!(
                    lines >= acknowledged,
                    "{file} of {of}: {lines} of {acknowledged}: {all}"
                );
            }
            let verified = hosts.verified(of);
            let spared = matches!(kind, Kind::Disk(_) | Kind::Ledger(_));
            assert!(
                verified.contains(" 0 differences") || spared,
                "{verified}: {all}"
            );
        }
        if codes == [Some(0); 2] && !matches!(kind, Kind::Disk(_)) {
            for file in ["data", "log", "copy"] {
                assert!(hosts.file(0, file) == hosts.file(1, file), "{file}: {all}");
            }
        }
        if codes == [Some(122); 2] || codes == [None, Some(122)] {
            // Neither went on: the first one's disk has all.
            let lines = hosts.file(0, "log").len() / 18;
            assert!(lines >= acknowledged, "{lines} of {acknowledged}: {all}");
        }
        let what = match codes {
            [Some(0), Some(0)] => "both",
            [Some(0), _] => "led",
            [_, Some(0)] => "came back",
            _ => "none",
        };
        let struck = if struck { "" } else { ", not struck" };
        format!("{kind:?} {when:?}{struck}: {what}")
    }
}

/// Those that the user has chosen, by name.
fn only_of<T: Copy + std::fmt::Debug>(variable: &str, all: &[T]) -> Vec<T> {
    let Ok(only) = std::env::var(variable) else {
        return Vec::new();
    };
    let is = |one: &&T| format!("{one:?}") == only;
    all.iter().filter(is).copied().collect()
}

fn round(case: &Case, round: u64) -> String {
    let mut random = Random::new(round);
    let only = only_of("PAIR_JOINS_KIND", &KINDS);
    let kinds = if only.is_empty() { &KINDS[..] } else { &only };
    let kind = kinds[usize::try_from(round).expect("few") % kinds.len()];
    let whens = [When::Before, When::Meanwhile, When::After, When::After];
    let when = whens[random.index(4)];
    let when = only_of("PAIR_JOINS_WHEN", &whens)
        .first()
        .map_or(when, |only| *only);
    let shares = random.below(3) == 0;
    let hosts = Hosts::new(case, round);
    let first = ["--listen", DOORS[1]];
    let mut b = hosts.start(1, "secondary", &first, shares);
    let to = ["--peer", DOORS[1], "--listen", DOORS[0]];
    let a = hosts.start(0, "primary", &to, shares);
    let client = Client::start(case, hosts.cables.nets()[2]);
    let serves = until(LIMIT, || client.answers() > 5);
    assert!(serves, "{round}: {}{}", a.said(), b.said());
    b.kill();
    a.wait_for(ALONE);
    let before = client.answers();
    assert!(
        until(LIMIT, || client.answers() > before + 3),
        "{}",
        a.said()
    );
    let _ = fs::remove_file(hosts.ledger(1).join("control"));

    let to = ["--peer", DOORS[0], "--patience", "5"];
    let c = hosts.start(1, "join", &to, shares);
    let mut one = Round {
        hosts: &hosts,
        round,
        kind,
        when,
        shares,
        a,
        c,
        client,
        struck: false,
        joined: false,
    };
    match when {
        When::Before => std::thread::sleep(Duration::from_millis(random.below(80))),
        When::Meanwhile => {
            let begins = until(LIMIT, || {
                !processes(&one.c.child).is_empty() || has_ended(&mut one.c)
            });
            assert!(begins, "{}", one.about());
            std::thread::sleep(Duration::from_millis(random.below(400)));
        }
        When::After => {
            let comes = until(LIMIT, || one.is_joined() || has_ended(&mut one.c));
            assert!(
                comes && one.is_joined(),
                "it does not join: {}",
                one.about()
            );
            std::thread::sleep(Duration::from_micros(random.below(1_000_000)));
        }
    }
    one.strike(&mut random);
    one.judge();
    // Whoever joins has joined, or has given up.
    let settled = until(LIMIT + LIMIT, || one.is_joined() || has_ended(&mut one.c));
    assert!(settled, "it neither joins nor ends: {}", one.about());
    let came = one.end();
    fs::remove_dir_all(&hosts.dir).expect("clean");
    came
}

#[expect(clippy::print_stdout, reason = "a campaign tells what came of it")]
#[test]
fn faults_around_a_join_lose_no_acknowledged_write_and_bring_no_wrong_answer() {
    if !is_root() {
        return; // namespaces with networks, loop devices
    }
    let all: Vec<u64> = rounds("PAIR_JOINS", 2).collect();
    let case = Case::new("around");
    let counts = Mutex::new(Counts::new());
    for some in all.chunks(BESIDE) {
        side_by_side(some, |one| {
            let came = round(&case, *one);
            *counts.lock().expect("no panic").entry(came).or_default() += 1;
        });
    }
    for (what, n) in counts.into_inner().expect("no panic") {
        println!("{n:6} {what}");
    }
    fs::remove_dir_all(&case.dir).expect("clean");
}
