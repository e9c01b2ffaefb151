//! Faults drawn at random, some in `make test` and by the thousand in `make campaign`: no wrong answer, no wrong verdict.
//!
//! A round is a pair of sqlite3. Pages of one disk are struck one after the other, and all content is read after each, or
//! derived from and then read; sqlite3 alone, on files of its own, says what is right. Pages that the run has never written
//! are among them. Then the round ends: by itself, with the loss of a site, with a page struck on both disks, or with a
//! register or a word of the stack that flips.
//!
//! `PAIR_INJECTIONS`, `PAIR_SEED`: how many, and from where they are drawn.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::join::{Told, flags};
use crate::sites::*;

const PAGE: usize = 4096;
const A_ROUND: u64 = 12;
const CHECK: &str = "PRAGMA integrity_check;";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// xorshift64* (Vigna 2016).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(round: u64) -> Self {
        Self(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % n
    }

    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("below n")
    }
}

fn data(child: &Child) -> fs::File {
    let path = format!("/proc/{}/root/mnt/data/x.db", child.id());
    let mut open = fs::OpenOptions::new();
    open.read(true).write(true).open(path).expect("a file")
}

fn pages(file: &fs::File) -> Vec<Vec<u8>> {
    let len = usize::try_from(file.metadata().expect("a file").len()).expect("small");
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0).expect("inside");
    bytes.chunks(PAGE).map(<[u8]>::to_vec).collect()
}

const CLASSES: [&str; 5] = ["flip", "stale", "torn", "misdirected", "lost"];

/// What the disk holds in place of `now`.
fn struck(class: &str, now: &[u8], before: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    match class {
        "flip" => {
            let mut wrong = now.to_vec();
            wrong[random.index(PAGE)] ^= 1 << random.below(8);
            wrong
        }
        "stale" => before.to_vec(),
        "torn" => [&now[..PAGE / 2], &before[PAGE / 2..]].concat(),
        "misdirected" => other.to_vec(),
        _ => vec![0; PAGE],
    }
}

pub(crate) type Counts = BTreeMap<String, u64>;

fn count(counts: &mut Counts, class: &str, what: &str) {
    *counts.entry(format!("{class}: {what}")).or_default() += 1;
}

struct Round<'a> {
    a: Told,
    b: Told,
    /// Where sqlite3 alone does the same.
    model: PathBuf,
    right: String,
    before: Vec<Vec<u8>>,
    random: &'a mut Random,
    counts: &'a mut Counts,
    seed: u64,
}

impl Round<'_> {
    fn told(&self) -> String {
        format!("seed {}\n{}\n{}", self.seed, self.a.said(), self.b.said())
    }

    /// What a site says is on its way when its program has answered.
    fn tells(&self, line: &str) -> bool {
        let deadline = Instant::now() + LIMIT;
        while !self.told().contains(line) {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// One page of one disk: the answer stays right, and the page is repaired if anybody has read it.
    fn strike(&mut self) {
        let on_a = self.random.below(2) == 0;
        let class = CLASSES[self.random.index(CLASSES.len())];
        let file = data(if on_a { &self.a.child } else { &self.b.child });
        let all = pages(&file);
        let page = self.random.index(all.len());
        let before = self.before.get(page).unwrap_or(&all[page]);
        let other = &all[self.random.index(all.len())];
        let wrong = struck(class, &all[page], before, other, self.random);
        if wrong == all[page] {
            return; // that would be no fault
        }
        let at = (page * PAGE) as u64;
        file.write_all_at(&wrong, at).expect("it is stored");
        let derives = self.random.below(4) == 0;
        if derives {
            // What is written follows from what was read: garbage would be in pages that no strike has touched.
            let change = format!(
                "UPDATE t SET b = substr(b, 2) || substr(b, 1, 1) WHERE a % 7 = {};",
                self.random.below(7)
            );
            assert_eq!(self.a.ask(&format!("{change} SELECT 'on';")), "on");
            sqlite(&self.model, &change);
            self.right = sqlite(&self.model, ".sha3sum").trim().to_owned();
        }
        let answer = self.a.ask(ASK);
        assert_eq!(answer, self.right, "{class} {page}: {}", self.told());
        if derives {
            // The page may hold something else by now.
            let line = format!("x.db page {page}, ledger agrees");
            let found = self.told().contains(&line);
            if pages(&file)[page] == wrong {
                file.write_all_at(&all[page], at).expect("it is stored");
            }
            count(
                self.counts,
                class,
                if found {
                    "repaired, and derived from"
                } else {
                    "written over"
                },
            );
            return;
        }
        let line = format!(
            "disk of {}, x.db page {page}, ledger agrees",
            if on_a { 'A' } else { 'B' }
        );
        if pages(&file)[page] == all[page] {
            assert!(self.tells(&line), "{line}: {}", self.told());
            count(self.counts, class, "repaired");
        } else {
            file.write_all_at(&all[page], at).expect("it is stored");
            count(self.counts, class, "nobody has read it");
        }
    }

    fn lose(self, lost_is_a: bool) {
        let (mut lost, mut left) = if lost_is_a {
            (self.a, self.b)
        } else {
            (self.b, self.a)
        };
        lost.kill();
        let answer = left.ask_after_loss("SELECT count(*) FROM t;");
        assert_eq!(answer, "200", "seed {}: {}", self.seed, left.said());
        assert_eq!(left.ask(ASK), self.right, "{}", left.said());
        assert_eq!(left.ask(CHECK), "ok", "{}", left.said());
        count(self.counts, "loss", "the other site goes on");
        assert_eq!(left.end().0, Some(0), "seed {}", self.seed);
    }

    /// Other bytes on either disk, and neither is the right one: a bit of each, or more than a page can be put together from.
    fn strike_both(mut self) {
        let page = 2 + self.random.index(30);
        let at = (page * PAGE + 2000) as u64;
        let bytes = if self.random.below(2) == 0 { 1 } else { 8 };
        for (child, bit) in [(&self.a.child, 1), (&self.b.child, 2)] {
            let file = data(child);
            let mut wrong = vec![0; bytes];
            file.read_exact_at(&mut wrong, at).expect("inside");
            wrong.iter_mut().for_each(|byte| *byte ^= bit);
            file.write_all_at(&wrong, at).expect("stored");
        }
        let answer = self.a.ask(ASK);
        assert!(
            answer.is_empty() || answer == self.right,
            "{answer}: {}",
            self.told()
        );
        let stopped = answer.is_empty();
        let together = self.told().contains("put together from both");
        assert!(!(stopped && bytes == 1), "{}", self.told());
        assert!(!(together && bytes > 1), "{}", self.told());
        let what = if stopped {
            "stopped"
        } else if together {
            "put together"
        } else {
            "nobody has read it"
        };
        count(self.counts, "both disks", what);
        let seed = self.seed;
        let (a, b) = (self.a.end(), self.b.end());
        let scrubbed = bytes > 1 && a.0 == Some(122);
        let codes = if stopped || scrubbed {
            Some(122)
        } else {
            Some(0)
        };
        assert_eq!([a.0, b.0], [codes; 2], "seed {seed}: {}{}", a.1, b.1);
    }

    fn end(mut self) {
        assert_eq!(self.a.ask(CHECK), "ok", "{}", self.told());
        let repaired = |said: &str| said.matches("ledger agrees with").count();
        let seed = self.seed;
        let (a, b) = (self.a.end(), self.b.end());
        assert_eq!([a.0, b.0], [Some(0); 2], "seed {seed}: {}{}", a.1, b.1);
        assert_eq!(repaired(&a.1), repaired(&b.1), "both tell the same");
    }
}

/// A register, or a word of the stack, of one site flips: the program becomes what both hosts come to again, or nothing has come
/// of it.
fn flip_program(site: &Site, witness: &Witness, random: &mut Random, counts: &mut Counts) {
    let right = sqlite(&site.seed, "SELECT sum(length(b)) FROM t;");
    let replica = random.below(2);
    let registers = [
        "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r12", "r13", "r14", "r15",
    ];
    let in_memory = random.below(2) == 0;
    let place = if in_memory {
        format!("mem=[rsp+{}]", 8 * random.below(64))
    } else {
        format!("reg={}", registers[random.index(registers.len())])
    };
    let fault = format!(
        "replica={replica} event={} {place} bit={}",
        20 + random.below(120),
        random.below(64)
    );
    let address = format!("127.0.0.1:{}", free_port());
    let flip = |of: u64| {
        if of == replica {
            vec!["--flip", fault.as_str()]
        } else {
            Vec::new()
        }
    };
    let b = [vec!["--listen", &address], flip(1)].concat();
    let a = [vec!["--peer", &address], flip(0)].concat();
    let b = Told::start(site, "secondary", &b, &witness.0, "b");
    let mut a = Told::start(site, "primary", &a, &witness.0, "a");
    let answer = a.ask("SELECT sum(length(b)) FROM t;");
    let (a, b) = (a.end(), b.end());
    assert_eq!(answer, right.trim(), "{fault}: {}{}", a.1, b.1);
    assert_eq!([a.0, b.0], [Some(0); 2], "{fault}: {}{}", a.1, b.1);
    let class = if in_memory { "stack" } else { "register" };
    let mended = a.1.contains("processor or memory of");
    let what = if mended { "repaired" } else { "without effect" };
    count(counts, class, what);
    let name = if replica == 0 { 'A' } else { 'B' };
    for said in [a.1, b.1] {
        assert!(!said.contains("disk of"), "{fault}: {said}");
        let line = format!("processor or memory of {name} at event");
        assert_eq!(
            said.matches(&line).count(),
            usize::from(mended),
            "{fault}: {said}"
        );
        assert_eq!(
            said.matches("processor or memory").count(),
            usize::from(mended),
            "{said}"
        );
    }
}

#[expect(clippy::print_stdout, reason = "a campaign tells its bound")]
#[test]
fn faults_drawn_at_random_bring_no_wrong_answer_and_no_wrong_verdict() {
    let (wanted, seed) = (number("PAIR_INJECTIONS", 26), number("PAIR_SEED", 1));
    let dir = with_table("campaign");
    let site = sqlite_site(&dir);
    let mut counts = Counts::new();
    let mut round = seed;
    while counts.values().sum::<u64>() < wanted {
        let mut random = Random::new(round);
        let witness = Witness::new(&format!("campaign-{round}"));
        let said = witness.flags(2000);
        let address = format!("127.0.0.1:{}", free_port());
        let listen = ["--listen", address.as_str()];
        let b = Told::start(&site, "secondary", &flags(&said, &listen), &witness.0, "b");
        // Nobody joins: the door of a site that is alone needs a place of its own.
        let door = format!("127.0.0.1:{}", free_port());
        let to = ["--peer", address.as_str(), "--listen", door.as_str()];
        let mut a = Told::start(&site, "primary", &flags(&said, &to), &witness.0, "a");
        assert_eq!(a.ask("SELECT count(*) FROM t;"), "100");
        let before = pages(&data(&a.child));
        assert_eq!(a.ask(CHANGE), "200");
        let model = crate::sites::seed(&format!("campaign-model-{round}"));
        fs::copy(dir.join("x.db"), model.join("x.db")).expect("a copy");
        sqlite(&model, CHANGE);
        let right = sqlite(&model, ".sha3sum").trim().to_owned();
        assert_eq!(a.ask(ASK), right);
        let end = random.below(6);
        let mut one = Round {
            a,
            b,
            model: model.clone(),
            right,
            before,
            random: &mut random,
            counts: &mut counts,
            seed: round,
        };
        for _ in 0..A_ROUND {
            one.strike();
        }
        match end {
            0 => one.lose(true),
            1 => one.lose(false),
            2 => one.strike_both(),
            _ => one.end(),
        }
        if end > 2 {
            flip_program(&site, &witness, &mut random, &mut counts);
        }
        fs::remove_dir_all(model).expect("clean");
        round += 1;
    }
    let n = counts.values().sum::<u64>();
    for (class, of) in &counts {
        println!("{of:6} {class}");
    }
    // Of n without one: 95 % (Clopper and Pearson 1934).
    let bound = 100.0 * (1.0 - 0.05_f64.powf(1.0 / n as f64));
    println!(
        "{n:6} injections from seed {seed}: 0 wrong answers, 0 wrong verdicts (< {bound:.2} %)"
    );
    fs::remove_dir_all(dir).expect("clean");
}
