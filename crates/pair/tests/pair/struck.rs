//! A program of several processes, a site that joins it, and what strikes at moments that nobody chooses: processes and commands that
//! are killed, bits of memory and of disks that flip, a second join, a change of roles at once.
//!
//! `PAIR_MOMENTS`: how many rounds of each.
//!
//! Invariants
//!  1. Every line that leaves is the one that a bare run says, whatever was struck.
//!  2. One site goes on, or both have ended and said why.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::join::{Told, flags};
use crate::lost::rounds;
use crate::several::{alike, left_alone};
use crate::sites::*;
use crate::switch::order;
use crate::tree::program;

const LINES: usize = 60;

struct Case {
    dir: PathBuf,
    site: Site,
    right: Vec<String>,
}

impl Case {
    fn new(name: &str) -> Self {
        let dir = seed(name);
        let data = dir.join("data");
        fs::create_dir(&data).expect("a directory");
        let bytes: Vec<u8> = (0..40 * 4096_u32)
            .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1])
            .collect();
        fs::write(data.join("data"), bytes).expect("a file");
        let many = built(&dir, "many");
        let bare = dir.join("bare");
        fs::create_dir(&bare).expect("a directory");
        fs::copy(data.join("data"), bare.join("data")).expect("a file");
        let right = answers(Command::new(&many).current_dir(&bare), &["?"; LINES]);
        let site = Site {
            command: vec![many.display().to_string()],
            ..sqlite_site(&data)
        };
        Self { dir, site, right }
    }

    /// The next lines of a site, from `at` on; what a lost site has said may come again. Where it stops: how many came.
    fn asks(&self, site: &mut Told, at: usize, lines: usize) -> usize {
        for n in 0..lines {
            let right = &self.right[at + n];
            let before = (at + n).checked_sub(1).map(|last| &self.right[last]);
            if writeln!(site.child.stdin.as_ref().expect("piped"), "?").is_err() {
                return n;
            }
            let mut line = site.line();
            while n == 0 && Some(&line) == before {
                line = site.line();
            }
            if line.is_empty() {
                return n;
            }
            assert_eq!(&line, right, "a wrong line: {}", site.said());
        }
        lines
    }
}

fn moment(round: u64, within: u64) -> Duration {
    Duration::from_micros((round * 61 % 97) * within * 1000 / 97)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The processes of its program: helpers of the command are left out.
fn processes(site: &Child) -> Vec<u32> {
    let is = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "many")
    };
    program(site).into_iter().filter(is).collect()
}

fn kill(pid: u32) {
    steadfast_sys::child::kill(pid.cast_signed(), libc::SIGKILL);
}

fn each(name: &str, few: u64, case: impl Fn(&Case, u64) + Sync) {
    let of = Case::new(name);
    let all: Vec<u64> = rounds("PAIR_MOMENTS", few).collect();
    for some in all.chunks(3) {
        side_by_side(some, |round| case(&of, *round));
    }
    fs::remove_dir_all(&of.dir).expect("clean");
}

fn has_ended(site: &mut Told) -> bool {
    site.child.try_wait().expect("a child").is_some()
}

const BACK: &str = "the other site is back";
const JOINED: &str = "this site has joined";

/// A process of the joiner's is killed while it joins, or just after.
#[test]
fn a_process_of_the_joiner_that_is_killed_leaves_the_survivor_with_the_program() {
    each("struck-joiner", 3, |case, round| {
        let witness = Witness::new(&format!("struck-joiner-{round}"));
        let said = witness.flags(1000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        assert_eq!(case.asks(&mut a, 0, 3), 3);
        let to = flags(&said, &["--peer", &door]);
        let mut c = Told::start(&case.site, "join", &to, &witness.0, "c");
        until("it starts", || {
            !processes(&c.child).is_empty() || has_ended(&mut c)
        });
        std::thread::sleep(moment(round, 250));
        let all = processes(&c.child);
        let which = usize::try_from(round / 3).expect("few") % all.len().max(1);
        if let Some(pid) = all.get(which) {
            kill(*pid);
        }
        let came = case.asks(&mut a, 3, 3);
        until("the joiner ends", || {
            has_ended(&mut c) || a.said().contains(BACK) && came < 3
        });
        let both = format!("round {round}: {came}\n{}\n{}", a.said(), c.said());
        if came == 3 {
            assert_eq!(case.asks(&mut a, 6, 3), 3, "{both}");
            let (status, told) = a.end();
            assert_eq!(status, Some(0), "{told}");
        } else {
            // Nobody knows what the process was killed for: both have stopped.
            assert!(a.said().contains(BACK), "{both}");
            assert_eq!(a.end().0, Some(122), "{both}");
        }
    });
}

/// The survivor's command is killed while it is joined, or just after.
#[test]
fn a_survivor_that_is_killed_leaves_the_joiner_with_the_program_or_with_the_reason() {
    each("struck-survivor", 3, |case, round| {
        let witness = Witness::new(&format!("struck-survivor-{round}"));
        let said = witness.flags(1000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        assert_eq!(case.asks(&mut a, 0, 3), 3);
        let to = flags(&said, &["--peer", &door, "--patience", "2"]);
        let mut c = Told::start(&case.site, "join", &to, &witness.0, "c");
        if round % 2 == 1 {
            a.wait_for(BACK);
        }
        std::thread::sleep(moment(round, if round % 2 == 1 { 30 } else { 500 }));
        let mut came = 3;
        if round % 3 == 0 {
            came += case.asks(&mut a, 3, 1);
        }
        a.kill();
        until("it joins or ends", || {
            c.said().contains(JOINED) || has_ended(&mut c)
        });
        if c.said().contains(JOINED) {
            assert_eq!(
                case.asks(&mut c, came, 4),
                4,
                "round {round}: {}\n{}",
                a.said(),
                c.said()
            );
            let (status, told) = c.end();
            assert_eq!(status, Some(0), "round {round}: {told}");
        } else {
            assert!(
                !a.said().contains(BACK),
                "round {round}: {}\n{}",
                a.said(),
                c.said()
            );
            let (status, told) = c.end();
            assert!(matches!(status, Some(121 | 122)), "round {round}: {told}");
        }
    });
}

fn flip(memory: &Path, at: u64) -> bool {
    let Ok(file) = fs::File::options().read(true).write(true).open(memory) else {
        return false;
    };
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).is_ok() && file.write_all_at(&[byte[0] ^ 4], at).is_ok()
}

/// Where its own memory and the shared one are: (start, bytes).
fn memory(pid: u32) -> Vec<(u64, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let of = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let from = u64::from_str_radix(from, 16).ok()?;
        let bytes = u64::from_str_radix(to, 16).ok()? - from;
        let is_own = line.contains("rw-p") && (120 * 4096..200 * 4096).contains(&bytes);
        let is_shared = line.contains("rw-s") && bytes == 40 * 4096;
        (is_own || is_shared).then_some((from, bytes))
    };
    maps.lines().filter_map(of).collect()
}

/// Bits of what the joiner's processes have got flip all the time while it joins.
#[test]
fn memory_of_the_joiner_that_is_struck_while_it_comes_ends_the_attempt_or_is_found() {
    each("struck-memory", 2, |case, round| {
        let witness = Witness::new(&format!("struck-memory-{round}"));
        let said = witness.flags(2000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        assert_eq!(case.asks(&mut a, 0, 3), 3);
        let to = flags(&said, &["--peer", &door]);
        let mut c = Told::start(&case.site, "join", &to, &witness.0, "c");
        let began = Instant::now();
        let (mut struck, mut n) = (0, round);
        while !has_ended(&mut c) && !c.said().contains(JOINED) && began.elapsed() < LIMIT {
            for pid in processes(&c.child) {
                for (from, bytes) in memory(pid) {
                    n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at = from + (n >> 20) % (bytes / 128) * 128;
                    struck += u32::from(flip(Path::new(&format!("/proc/{pid}/mem")), at));
                }
            }
        }
        let came = case.asks(&mut a, 3, 5);
        let both = format!("round {round}: {struck} {came}\n{}\n{}", a.said(), c.said());
        if c.said().contains(JOINED) {
            // Nothing that was struck after it was compared may leave.
            let (status, told) = a.end();
            assert!(matches!(status, Some(0 | 122)), "{told}");
        } else {
            assert_eq!(came, 5, "{both}");
            assert_eq!(a.end().0, Some(0), "{both}");
        }
    });
}

/// The joiner's disk changes a page of what it has got.
#[test]
fn a_page_of_the_joiner_s_disk_that_changes_while_it_joins_is_repaired() {
    each("struck-disk", 2, |case, round| {
        let witness = Witness::new(&format!("struck-disk-{round}"));
        let said = witness.flags(2000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        assert_eq!(case.asks(&mut a, 0, 3), 3);
        let to = flags(&said, &["--peer", &door, "--scrub", "1000"]);
        let mut c = Told::start(&case.site, "join", &to, &witness.0, "c");
        let path = format!("/proc/{}/root/mnt/data/data", c.child.id());
        until("its file", || Path::new(&path).exists());
        std::thread::sleep(moment(round, 400));
        flip(Path::new(&path), (round * 7 % 40) * 4096 + 99);
        until("it joins or ends", || {
            c.said().contains(JOINED) || has_ended(&mut c)
        });
        let came = case.asks(&mut a, 3, 45);
        let both = format!("round {round}: {came}\n{}\n{}", a.said(), c.said());
        assert_eq!(came, 45, "{both}");
        if c.said().contains(JOINED) {
            a.kill();
            c.wait_for("this site goes on alone");
            assert_eq!(case.asks(&mut c, 48, 10), 10, "{both}{}", c.said());
            assert_eq!(c.end().0, Some(0));
        } else {
            assert_eq!(a.end().0, Some(0), "{both}");
        }
    });
}

/// One joins, is lost at once, and the next one joins; and two at a time.
#[test]
fn a_second_join_at_once_and_two_at_a_time_find_the_program_as_it_is() {
    each("struck-second", 1, |case, round| {
        let witness = Witness::new(&format!("struck-second-{round}"));
        let said = witness.flags(1000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        let to = flags(&said, &["--peer", &door, "--patience", "20"]);
        let mut at = case.asks(&mut a, 0, 3);
        let c = Told::start(&case.site, "join", &to, &witness.0, "c");
        let d = Told::start(&case.site, "join", &to, &witness.0, "d");
        until("one joins", || {
            [&c, &d].iter().any(|one| one.said().contains(JOINED))
        });
        at += case.asks(&mut a, at, 2);
        assert_eq!(at, 5, "{}", a.said());
        let (mut first, mut other) = if c.said().contains(JOINED) {
            (c, d)
        } else {
            (d, c)
        };
        first.kill();
        let told =
            |a: &Told, other: &Told| format!("round {round}: {}\n{}", a.said(), other.said());
        until("the other one joins or ends", || {
            other.said().contains(JOINED) || has_ended(&mut other)
        });
        // It has asked again until somebody was there to answer.
        assert!(other.said().contains(JOINED), "{}", told(&a, &other));
        let mut last = other;
        at += case.asks(&mut a, at, 2);
        assert_eq!(at, 7, "{}", told(&a, &last));
        a.kill();
        last.wait_for("this site goes on alone");
        assert_eq!(case.asks(&mut last, 7, 3), 3, "{}", told(&a, &last));
        assert_eq!(last.end().0, Some(0));
    });
}

/// Roles change as soon as a site has joined, and back.
#[test]
fn roles_change_right_after_a_join() {
    each("struck-roles", 1, |case, round| {
        let witness = Witness::new(&format!("struck-roles-{round}"));
        let said = witness.flags(2000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        let listen = format!("127.0.0.1:{}", free_port());
        let mut at = case.asks(&mut a, 0, 3);
        let to = flags(&said, &["--peer", &door, "--listen", &listen]);
        let mut c = Told::start(&case.site, "join", &to, &witness.0, "c");
        c.wait_for(JOINED);
        let mut answer = order("detach", &a.child);
        while answer.1.contains("is alone") {
            answer = order("detach", &a.child);
        }
        let both = format!("round {round}: {answer:?}\n{}\n{}", a.said(), c.said());
        assert_eq!(answer.0, Some(0), "{both}");
        at += case.asks(&mut c, at, 3);
        assert_eq!(at, 6, "{both}");
        assert_eq!(a.end().0, Some(0));
        let to = flags(&said, &["--peer", &listen]);
        let mut d = Told::start(&case.site, "join", &to, &witness.0, "d");
        d.wait_for(JOINED);
        c.kill();
        d.wait_for("this site goes on alone");
        assert_eq!(case.asks(&mut d, at, 3), 3, "{both}{}", d.said());
        assert_eq!(d.end().0, Some(0));
    });
}

/// What the joiner's agent is to make descriptors of: behind the log of each of its processes (abi.h, `SF_OFF_HELD`).
fn lists(command: u32) -> Vec<u64> {
    const BYTES: u64 = 0x80_0000 + (256 << 20) + (4 << 20);
    let maps = fs::read_to_string(format!("/proc/{command}/maps")).unwrap_or_default();
    let of = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let from = u64::from_str_radix(from, 16).ok()?;
        (u64::from_str_radix(to, 16).ok()? - from == BYTES).then_some(from + 0x80_0000)
    };
    maps.lines().filter_map(of).collect()
}

/// A bit in the place of an open file, between the sites' agents, flips there and back all the time.
#[test]
fn a_list_of_descriptors_that_is_struck_on_its_way_ends_the_attempt() {
    const PLACE: u64 = 4160 + 112;
    each("struck-list", 1, |case, round| {
        let witness = Witness::new(&format!("struck-list-{round}"));
        let said = witness.flags(2000);
        let (mut a, door) = left_alone(&alike(&case.site), ["127.0.0.1"; 2], &said, &witness.0);
        let to = flags(&said, &["--peer", &door]);
        let (mut refused, mut lost) = (0, 1);
        for _ in 0..8 {
            let mut c = Told::start(&case.site, "join", &to, &witness.0, "c");
            c.wait_for("has given");
            let mem = format!("/proc/{}/mem", c.child.id());
            while !has_ended(&mut c) && !c.said().contains(JOINED) {
                for list in lists(c.child.id()) {
                    for held in 0..8 {
                        flip(Path::new(&mem), list + PLACE + 256 * held);
                    }
                }
            }
            if c.said().contains(JOINED) {
                c.kill();
                lost += 1;
                a.wait_for_n("this site goes on alone", lost);
                // A strike may come too late.
                if refused > 0 {
                    break;
                }
                continue;
            }
            let (_, told) = c.end();
            assert!(told.contains("the list of it is damaged"), "{told}");
            refused += 1;
        }
        assert!(refused > 0, "{}", a.said());
        assert_eq!(case.asks(&mut a, 0, 5), 5, "{}", a.said());
        let (status, told) = a.end();
        assert_eq!(status, Some(0), "{told}");
    });
}

/// As often as it goes, each as soon as the one before is done.
#[test]
fn roles_change_again_and_again() {
    each("struck-again", 1, |case, round| {
        let witness = Witness::new(&format!("struck-again-{round}"));
        let said = witness.flags(2000);
        let [first, second] = [0; 2].map(|_| format!("127.0.0.1:{}", free_port()));
        let to = flags(&said, &["--listen", &first, "--peer", &second]);
        let b = Told::start(&case.site, "secondary", &to, &witness.0, "b");
        let to = flags(&said, &["--listen", &second, "--peer", &first]);
        let a = Told::start(&case.site, "primary", &to, &witness.0, "a");
        let (mut leads, mut follows) = (a, b);
        let mut at = case.asks(&mut leads, 0, 2);
        for change in 1..=6 {
            let deadline = Instant::now() + LIMIT;
            let mut answer = order("switch", &leads.child);
            while answer.0 != Some(0) && Instant::now() < deadline {
                answer = order("switch", &leads.child);
            }
            let both = format!(
                "round {round} {change}: {answer:?}\n{}\n{}",
                leads.said(),
                follows.said()
            );
            assert_eq!(answer.0, Some(0), "{both}");
            (leads, follows) = (follows, leads);
            let more = if (round + change) % 2 == 0 { 1 } else { 2 };
            let came = case.asks(&mut leads, at, more);
            assert_eq!(came, more, "{both}{}", leads.said());
            at += more;
        }
        leads.wait_for_n(BACK, 3);
        drop(follows.child.stdin.take());
        let (status, told) = leads.end();
        assert_eq!(status, Some(0), "{told}");
        let (status, told) = follows.end();
        assert_eq!(status, Some(0), "{told}");
    });
}
