//! What things cost here: the numbers by which fallbacks are chosen, and by which a surprising
//! overhead is explained.
//!
//! Medians of short rounds: a virtual machine is interrupted often, and the mean would measure
//! that.

#![allow(
    unsafe_code,
    reason = "fork(2), ptrace(2) and memory shared between processes"
)]

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::boxed::{self, Answer, Outcome};
use crate::memory::{self, Tracked};
use crate::{Cost, cpu, intercept};

/// Rounds of which the median is taken.
const ROUNDS: usize = 15;

pub(crate) fn costs() -> Vec<Cost> {
    let call = boxed::run(boxed::LIMIT, per_call);
    let filtered = boxed::run(boxed::LIMIT, || {
        // An address that no caller has: the filter decides by its number alone, as it does for
        // most calls.
        if intercept::filter(u64::MAX, libc::SECCOMP_RET_ALLOW) {
            per_call()
        } else {
            Answer::failed(1)
        }
    });
    let dispatched = boxed::run(boxed::LIMIT, || {
        if intercept::dispatch_on() {
            per_call()
        } else {
            Answer::failed(1)
        }
    });
    let trapped = boxed::run(boxed::LIMIT, || {
        if intercept::catch_sigsys() && intercept::filter(u64::MAX, libc::SECCOMP_RET_TRAP) {
            per_call()
        } else {
            Answer::failed(1)
        }
    });
    let pair = cpu::pair();
    let here = cpu::allowed().first().copied().unwrap_or(0);
    let across = |cost: fn(u32, u32) -> Answer| match pair {
        Some((a, b)) => boxed::run(boxed::LIMIT, || cost(a, b)),
        None => Outcome::NoChild(0),
    };
    vec![
        nanoseconds("system call", call),
        added("system call, added by a filter", call, filtered),
        added("system call, added by user dispatch", call, dispatched),
        nanoseconds("system call, trapped to a handler", trapped),
        nanoseconds("clock read", boxed::run(boxed::LIMIT, clock_read)),
        nanoseconds("hand-off by spinning, other core", across(spin)),
        nanoseconds(
            "wake by futex, same core",
            boxed::run(boxed::LIMIT, || futex(here, here)),
        ),
        nanoseconds("wake by futex, other core", across(futex)),
        nanoseconds(
            "ptrace stop, same core",
            boxed::run(boxed::LIMIT, || ptrace(here, here)),
        ),
        nanoseconds("ptrace stop, other core", across(ptrace)),
        nanoseconds("fork of 16 MiB", boxed::run(boxed::LIMIT, fork)),
        nanoseconds(
            "first write to a tracked page",
            boxed::run(boxed::LIMIT, first_write),
        ),
        nanoseconds("scan of a written page", boxed::run(boxed::LIMIT, scan)),
        hash(),
    ]
}

/// A picosecond value that came back, or why none did.
fn picoseconds(outcome: Outcome) -> Result<f64, String> {
    match outcome {
        Outcome::NoChild(0) => Err("only one CPU may be used".to_owned()),
        other => match other.fine() {
            // Exact up to 2^53 ps, which is 2.5 hours.
            Some(answer) => Ok(answer.values[0] as f64),
            None => Err(other.why(&["not possible here"])),
        },
    }
}

fn cost(name: &'static str, value: Result<f64, String>, unit: &'static str) -> Cost {
    match value {
        Ok(value) => Cost {
            name,
            value: Some(value),
            unit,
            reason: None,
        },
        Err(reason) => Cost {
            name,
            value: None,
            unit,
            reason: Some(reason),
        },
    }
}

/// One decimal is more than such a measurement has.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn nanoseconds(name: &'static str, outcome: Outcome) -> Cost {
    cost(name, picoseconds(outcome).map(|ps| rounded(ps / 1e3)), "ns")
}

fn added(name: &'static str, without: Outcome, with: Outcome) -> Cost {
    let difference = picoseconds(with).and_then(|with| {
        picoseconds(without).map(|without| rounded((with - without).max(0.0) / 1e3))
    });
    cost(name, difference, "ns")
}

/// The median over rounds of `work`, which says how many times it did what is measured.
fn median(mut work: impl FnMut() -> u64) -> Answer {
    work();
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let times = work().max(1);
            let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX / 1000);
            ns.saturating_mul(1000) / times
        })
        .collect();
    rounds.sort_unstable();
    Answer::fine([rounds[ROUNDS / 2], 0, 0, 0, 0, 0])
}

fn per_call() -> Answer {
    median(|| {
        const TIMES: u64 = 1000;
        for _ in 0..TIMES {
            black_box(intercept::raw_getppid());
        }
        TIMES
    })
}

fn clock_read() -> Answer {
    median(|| {
        const TIMES: u64 = 2000;
        for _ in 0..TIMES {
            black_box(Instant::now());
        }
        TIMES
    })
}

/// Two words on lines of their own, shared with a child.
struct Court {
    ours: &'static AtomicU32,
    theirs: &'static AtomicU32,
}

impl Court {
    fn new() -> Option<Self> {
        let page = memory::map(memory::PAGE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1)?
            .cast::<AtomicU32>();
        // SAFETY: the page is zeroed, aligned, never unmapped, and only accessed through atomics.
        let ours = unsafe { &*page };
        // 256 bytes apart: more than a line, and more than the pair that is fetched together.
        // SAFETY: inside the page, as above.
        let theirs = unsafe { &*page.wrapping_add(64) };
        Some(Self { ours, theirs })
    }

    fn turned(&self) -> Self {
        Self {
            ours: self.theirs,
            theirs: self.ours,
        }
    }
}

/// Plays a ball between two processes, a round trip at a time; half of one is a hand-off.
fn ping_pong(here: u32, there: u32, pass: fn(&Court, u32), take: fn(&Court, u32)) -> Answer {
    let Some(court) = Court::new() else {
        return Answer::failed(1);
    };
    // SAFETY: the child plays until it is killed with the group.
    match unsafe { libc::fork() } {
        -1 => return Answer::failed(1),
        0 => {
            let court = court.turned();
            cpu::pin(there);
            for ball in 1.. {
                take(&court, ball);
                pass(&court, ball);
            }
        }
        _ => {}
    }
    cpu::pin(here);
    let mut ball = 0;
    median(|| {
        const TRIPS: u32 = 500;
        for _ in 0..TRIPS {
            ball += 1;
            pass(&court, ball);
            take(&court, ball);
        }
        u64::from(TRIPS) * 2
    })
}

fn spin(here: u32, there: u32) -> Answer {
    ping_pong(
        here,
        there,
        |court, ball| court.ours.store(ball, Ordering::Release),
        |court, ball| {
            while court.theirs.load(Ordering::Acquire) != ball {
                spin_loop();
            }
        },
    )
}

fn futex(here: u32, there: u32) -> Answer {
    let pass = |court: &Court, ball| {
        court.ours.store(ball, Ordering::SeqCst);
        memory::futex_call(court.ours, libc::FUTEX_WAKE, 1);
    };
    ping_pong(here, there, pass, |court, ball| {
        loop {
            let seen = court.theirs.load(Ordering::SeqCst);
            if seen == ball {
                return;
            }
            memory::futex_call(court.theirs, libc::FUTEX_WAIT, seen);
        }
    })
}

/// Stops a child at the entry and the exit of its system calls.
fn ptrace(here: u32, there: u32) -> Answer {
    // SAFETY: the child asks to be traced and then makes one call again and again until it is
    // killed with the group.
    let child = unsafe { libc::fork() };
    match child {
        -1 => return Answer::failed(1),
        0 => {
            cpu::pin(there);
            // SAFETY: numbers only.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } == -1 {
                // SAFETY: ends this process.
                unsafe { libc::_exit(1) };
            }
            // SAFETY: stops this process for its tracer.
            unsafe { libc::raise(libc::SIGSTOP) };
            loop {
                black_box(intercept::raw_getppid());
            }
        }
        _ => {}
    }
    cpu::pin(here);
    let mut status = 0;
    boxed::wait(child, &mut status);
    if !libc::WIFSTOPPED(status) {
        return Answer::wrong(1);
    }
    median(|| {
        const STOPS: u64 = 60;
        for _ in 0..STOPS {
            // SAFETY: the child is in ptrace-stop; numbers only.
            unsafe { libc::ptrace(libc::PTRACE_SYSCALL, child, 0, 0) };
            boxed::wait(child, &mut status);
        }
        STOPS
    })
}

fn fork() -> Answer {
    const BYTES: usize = 16 << 20;
    let Some(at) = memory::map(BYTES, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1) else {
        return Answer::failed(1);
    };
    // SAFETY: advice on a mapping of ours: the cost with small pages is the one to know.
    unsafe { libc::madvise(at.cast(), BYTES, libc::MADV_NOHUGEPAGE) };
    // SAFETY: the mapping is fresh, writable and ours alone.
    unsafe { memory::touch(at, BYTES) };
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        // SAFETY: the child ends at once.
        let child = unsafe { libc::fork() };
        match child {
            -1 => return Answer::failed(1),
            // SAFETY: ends this process.
            0 => unsafe { libc::_exit(0) },
            _ => {}
        }
        times.push(start.elapsed().as_nanos());
        boxed::wait(child, &mut 0);
        // Copy the pages back from copy-on-write, so that rounds are alike.
        // SAFETY: as above; the child is gone.
        unsafe { memory::touch(at, BYTES) };
    }
    times.sort_unstable();
    let ps = u64::try_from(times[ROUNDS / 2])
        .unwrap_or(u64::MAX / 1000)
        .saturating_mul(1000);
    Answer::fine([ps, 0, 0, 0, 0, 0])
}

const TRACKED_PAGES: usize = 1024;

/// Times one half of writing tracked pages and scanning them.
fn tracked(timed: fn(&Tracked), other: fn(&Tracked), timed_first: bool) -> Answer {
    let memory = match Tracked::new(TRACKED_PAGES * memory::PAGE) {
        Ok(memory) => memory,
        Err(why) => return Answer { step: 1, ..why },
    };
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        if !timed_first {
            other(&memory);
        }
        let start = Instant::now();
        timed(&memory);
        times.push(start.elapsed().as_nanos());
        if timed_first {
            other(&memory);
        }
    }
    times.sort_unstable();
    let ps = u64::try_from(times[ROUNDS / 2])
        .unwrap_or(u64::MAX / 1000)
        .saturating_mul(1000);
    Answer::fine([ps / TRACKED_PAGES as u64, 0, 0, 0, 0, 0])
}

fn scan_all(memory: &Tracked) {
    black_box(memory.scan());
}

fn first_write() -> Answer {
    tracked(Tracked::write_all, scan_all, true)
}

fn scan() -> Answer {
    tracked(scan_all, Tracked::write_all, false)
}

fn hash() -> Cost {
    const BYTES: usize = 1 << 20;
    let outcome = boxed::run(boxed::LIMIT, || {
        let data = vec![0xa5_u8; BYTES];
        median(|| {
            black_box(crc32c::crc32c(black_box(&data)));
            1
        })
    });
    // Bytes per picosecond are terabytes per second.
    let rate = picoseconds(outcome).map(|ps| rounded(BYTES as f64 / ps.max(1.0) * 1e3));
    cost("checksum", rate, "GB/s")
}
