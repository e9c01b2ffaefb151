//! The queue before the disk, and the hand before the service, under many orders of their threads: shuttle's in place of the system's.
//!
//! Not covered: what an order of threads does not change, such as what the disk does; see `disk/tests.rs`.

#[path = "../src/sequencer/hand.rs"]
#[allow(dead_code, reason = "the test needs a part of it")]
mod hand;
#[path = "../src/disk/queue.rs"]
mod queue;

/// What the two modules find where the crate has the system's.
mod sync {
    pub(crate) use shuttle::sync::mpsc::Sender as Out;
    pub(crate) use shuttle::sync::{Mutex, MutexGuard, mpsc};
    pub(crate) use std::sync::PoisonError;
}

use std::io;
use std::sync::Arc;

use shuttle::thread;

use self::hand::Hand;
use self::queue::{Job, Sink};
use self::sync::{Mutex, mpsc};

/// Orders of the threads that are tried.
const ORDERS: usize = 2000;

fn orders(test: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(test, ORDERS);
}

/// What is durable, and what was answered meanwhile.
#[derive(Default)]
struct Seen {
    durable: Vec<u8>,
    answered: Vec<(u8, bool)>,
    failed: usize,
}

struct Disk {
    seen: Arc<Mutex<Seen>>,
    /// The write that fails, and every one behind it would not.
    fails_at: usize,
    writes: usize,
}

impl Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writes += 1;
        // Others run while the disk is busy.
        thread::yield_now();
        if self.writes == self.fails_at {
            return Err(io::Error::other("the disk is full"));
        }
        self.seen.lock().unwrap().durable.extend_from_slice(bytes);
        Ok(())
    }
}

impl Sink for Disk {
    type Vote = u8;

    fn append(&mut self, records: &[u8], highest: u64) -> io::Result<()> {
        assert_eq!(
            records.iter().max().map(|most| u64::from(*most)),
            Some(highest)
        );
        self.write(records)
    }

    fn vote(&mut self, vote: &u8) -> io::Result<()> {
        self.write(&[*vote])
    }

    fn purge(&mut self, record: &[u8], _: u64) -> io::Result<()> {
        self.write(record)
    }
}

/// Two threads hand over six jobs each; what the disk and those who wait have seen of them.
fn handed_over(fails_at: usize) -> Seen {
    let seen = Arc::<Mutex<Seen>>::default();
    let (jobs, waiting) = mpsc::channel();
    let disk = Disk {
        seen: seen.clone(),
        fails_at,
        writes: 0,
    };
    let told = seen.clone();
    let writer = thread::spawn(move || {
        queue::run(disk, &waiting, |_| told.lock().unwrap().failed += 1);
    });
    let hands: Vec<_> = (0..2)
        .map(|hand: u8| {
            let (jobs, seen) = (jobs.clone(), seen.clone());
            thread::spawn(move || {
                for number in 0..6 {
                    let record = hand * 10 + number;
                    let seen = seen.clone();
                    let done = Box::new(move |written: io::Result<()>| {
                        let mut seen = seen.lock().unwrap();
                        assert_eq!(written.is_ok(), seen.durable.contains(&record), "{record}");
                        seen.answered.push((record, written.is_ok()));
                    });
                    let job = match number {
                        2 => Job::Vote(record, done),
                        4 => Job::Purge(vec![record], record.into()),
                        _ => Job::Append(vec![record], record.into(), done),
                    };
                    assert!(jobs.send(job).is_ok());
                }
            })
        })
        .collect();
    drop(jobs);
    for hand in hands {
        hand.join().unwrap();
    }
    writer.join().unwrap();
    std::mem::take(&mut *seen.lock().unwrap())
}

fn of(hand: u8, records: &[u8]) -> Vec<u8> {
    records
        .iter()
        .copied()
        .filter(|record| record / 10 == hand)
        .collect()
}

#[test]
fn what_is_handed_over_is_durable_in_its_order_before_anybody_hears_so() {
    orders(|| {
        let seen = handed_over(usize::MAX);
        for hand in 0..2 {
            let all: Vec<u8> = (0..6).map(|number| hand * 10 + number).collect();
            assert_eq!(of(hand, &seen.durable), all);
            let answered: Vec<u8> = seen.answered.iter().map(|(record, _)| *record).collect();
            // Nobody waits for a purge.
            let waited: Vec<u8> = all.into_iter().filter(|record| record % 10 != 4).collect();
            assert_eq!(of(hand, &answered), waited);
        }
        assert!(seen.answered.iter().all(|(_, durable)| *durable));
        assert_eq!(seen.failed, 0);
    });
}

#[test]
fn behind_a_failed_write_nothing_is_written_and_everybody_hears_so() {
    orders(|| {
        let seen = handed_over(3);
        assert_eq!(seen.failed, 1);
        assert_eq!(seen.answered.len(), 10, "each once");
        for hand in 0..2 {
            let durable = of(hand, &seen.durable);
            let first: Vec<u8> = (0..6).map(|number| hand * 10 + number).collect();
            assert!(first.starts_with(&durable), "{durable:?}");
        }
    });
}

/// What reaches the service.
#[derive(Debug, PartialEq, Eq)]
enum Delivery {
    Entry(u64),
    Question(u64),
}

/// Entries from one thread, questions from another: where each question says that it stands, and where it does.
fn questions(ask: impl Fn(&Hand<u64, Delivery>, u64) -> u64 + Send + Copy + 'static) {
    let (out, service) = mpsc::channel();
    let hand = Arc::new(Hand::new(0, out));
    let log = hand.clone();
    let applies = thread::spawn(move || {
        for index in 1..=8 {
            log.go(|place| {
                *place = index;
                Delivery::Entry(index)
            });
        }
    });
    let snapshots = hand.clone();
    let asks = thread::spawn(move || (0..4).map(|n| ask(&snapshots, n)).collect::<Vec<u64>>());
    applies.join().unwrap();
    let places = asks.join().unwrap();
    assert_eq!(hand.place(), 8);
    drop(hand);
    let mut at = 0;
    for delivery in service.iter() {
        match delivery {
            Delivery::Entry(index) => at = index,
            Delivery::Question(number) => {
                assert_eq!(
                    places[usize::try_from(number).unwrap()],
                    at,
                    "question {number}"
                );
            }
        }
    }
}

#[test]
fn a_question_stands_exactly_behind_the_entry_that_it_names() {
    orders(|| questions(|hand, number| hand.ask(Delivery::Question(number))));
}

#[test]
#[should_panic(expected = "question")]
fn a_place_that_is_read_apart_from_its_question_is_noticed() {
    orders(|| {
        questions(|hand, number| {
            let place = hand.place();
            hand.ask(Delivery::Question(number));
            place
        });
    });
}
