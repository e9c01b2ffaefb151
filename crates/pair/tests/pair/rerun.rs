//! Errors of processor and memory after a join, one after the other: what re-runs put right in a pair that began together they put
//! right in one that was joined, also with a child beside the first process, or with threads.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use steadfast_sys::memory::Remote;

use crate::join::{Told, flags, tracked};
use crate::several::{alike, joins, left_alone};
use crate::sites::*;
use crate::tree::{is_known, program};

const LINES: usize = 4000;

struct Case {
    dir: PathBuf,
    site: Site,
    right: Vec<String>,
    at: usize,
}

impl Case {
    fn new(name: &str, more: &[&str]) -> Self {
        let dir = seed(name);
        let data = dir.join("data");
        fs::create_dir(&data).expect("a directory");
        let parted = built(&dir, "parted").display().to_string();
        let command = [&[parted.as_str()], more].concat();
        let command = command.into_iter().map(String::from).collect();
        let mut bare = Command::new(dir.join("parted"));
        let right = answers(bare.args(more), &["?"; LINES]);
        let site = Site {
            command,
            ..sqlite_site(&data)
        };
        Self {
            dir,
            site,
            right,
            at: 0,
        }
    }

    fn asks(&mut self, site: &mut Told) {
        let line = site.ask("?");
        assert_eq!(
            line,
            self.right[self.at],
            "{}: {}",
            self.dir.display(),
            site.said()
        );
        self.at += 1;
    }

    /// One at least, and until it says what was found.
    fn asks_until(&mut self, site: &mut Told, found: &str, times: usize) {
        let began = Instant::now();
        self.asks(site);
        while site.said().matches(found).count() < times {
            assert!(began.elapsed() < LIMIT, "{found}: {}", site.said());
            std::thread::sleep(Duration::from_millis(10));
            self.asks(site);
        }
    }

    /// Two sites that began together, or one of which has joined the other.
    fn pair(&self, how: &str, witness: &Witness) -> [Told; 2] {
        let mut said = witness.flags(2000);
        if let Some(tracking) = how.strip_prefix("joined, ") {
            said = tracked(said, tracking);
        }
        if how.starts_with("joined") {
            let hosts = ["127.0.0.1"; 2];
            let (a, door) = left_alone(&alike(&self.site), hosts, &said, &witness.0);
            let c = joins(&a, &self.site, &door, &said, &witness.0, 1);
            return [a, c];
        }
        let address = format!("127.0.0.1:{}", free_port());
        let start = |side, flag| {
            let to = flags(&said, &[flag, &address]);
            Told::start(&self.site, side, &to, &witness.0, side)
        };
        let b = start("secondary", "--listen");
        [start("primary", "--peer"), b]
    }
}

/// Of its memory the program says where each table is.
fn tables(site: &mut Told) -> [u64; 3] {
    let line = site.ask("where");
    let all: Vec<u64> = line
        .split(' ')
        .map(|word| u64::from_str_radix(word, 16).expect("an address"))
        .collect();
    all.try_into().expect("three of them")
}

fn strike(pid: u32, at: u64) {
    let memory = Remote::open(pid.cast_signed()).expect("it is there");
    let mut byte = [0];
    memory.read(at, &mut byte).expect("its memory");
    memory.write(at, &[byte[0] ^ 8]).expect("its memory");
}

fn child_of(first: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children"));
    let children = children.expect("it is there");
    let mut pids = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a number"));
    pids.find(|pid| is_known(*pid)).expect("it has a child")
}

fn first_of(site: &Child) -> u32 {
    program(site)[0]
}

/// Each table of the first process, and of its child, is struck on either site: one at a time, and the memory that nobody reads last.
fn is_put_right(how: &str, beside: &str) {
    let name = format!("rerun-{how}-{beside}").replace([' ', ','], "-");
    let mut case = Case::new(&name, &[beside]);
    let witness = Witness::new(&name);
    let [mut a, mut other] = case.pair(how, &witness);
    let [mine, others, unread] = tables(&mut a);
    for _ in 0..3 {
        case.asks(&mut a);
    }
    let with_threads = beside == "threads";
    let mut struck = vec![
        (false, mine + 800),
        (!with_threads, others + 800),
        (false, unread + 8000),
    ];
    if !with_threads {
        struck.push((true, unread + 8000));
    }
    for (n, (is_child, at)) in struck.iter().enumerate() {
        for name in ['A', 'B'] {
            let site = if name == 'A' { &a } else { &other };
            let first = first_of(&site.child);
            // What errs between a memory check, which may follow the answer, and its snapshot has no witness.
            std::thread::sleep(Duration::from_millis(20));
            strike(if *is_child { child_of(first) } else { first }, *at);
            let line = format!("processor or memory of {name} at event");
            case.asks_until(&mut a, &line, n + 1);
            other.wait_for_n(&line, n + 1);
        }
    }
    for site in [&a, &other] {
        let said = site.said();
        let times = said.matches("processor or memory").count();
        assert_eq!(times, 2 * struck.len(), "{said}");
        assert!(!said.contains("disk of"), "{said}");
    }
    // What was put right each time on the other site goes on there.
    a.kill();
    other.wait_for("this site goes on alone");
    let last = case.right[case.at - 1].clone();
    let mut line = other.ask("?");
    while line == last {
        line = other.line();
    }
    assert_eq!(line, case.right[case.at]);
    let (status, told) = other.end();
    assert_eq!(status, Some(0), "{told}");
    fs::remove_dir_all(&case.dir).expect("clean");
}

const HOW: [&str; 4] = ["together", "joined", "joined, wp-async", "joined, faults"];

#[test]
fn each_process_of_several_is_put_right_after_a_join_as_before_one() {
    side_by_side(&HOW, |how| is_put_right(how, "a child"));
}

/// A memory check often comes right before a look at which threads could go on, and a program that has become its re-run at the
/// check goes on to that look as the other site's does.
#[test]
fn threads_that_hand_each_other_work_are_put_right() {
    side_by_side(&HOW, |how| is_put_right(how, "threads"));
}

#[test]
fn silent_without_a_fault() {
    let all = [
        ("together", "threads"),
        ("joined", "threads"),
        ("joined", "a child"),
        ("joined, wp-async", "a child"),
        ("joined, faults", "a child"),
    ];
    side_by_side(&all, |(how, beside)| {
        let name = format!("rerun-silent-{how}-{beside}").replace([' ', ','], "-");
        let mut case = Case::new(&name, &[beside]);
        let witness = Witness::new(&name);
        let [mut a, other] = case.pair(how, &witness);
        for n in 0..600 {
            case.asks(&mut a);
            if n % 3 == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        for site in [a, other] {
            let (status, told) = site.end();
            assert_eq!(status, Some(0), "{how} {beside}: {told}");
        }
        fs::remove_dir_all(&case.dir).expect("clean");
    });
}
