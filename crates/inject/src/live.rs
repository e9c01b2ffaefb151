//! The timer engine on a process that runs anyway: one flip at a time, in the code of one mapped file.
//!
//! A campaign starts its target for each fault. A demonstration, or a service under test, runs on while fault after fault strikes it. Both use
//! the same engine: a thread is stopped, a register is changed, and the thread goes on.
//!
//! Invariants
//!  1. A thread is struck only while its program counter stands in an executable mapping of the named file.
//!  2. Register and bit are drawn uniformly from the seed; each strike is told as one line of the fault grammar.
//!
//! Not covered: exact replay. The moment is the scheduler's; `steadfast inject` replays instructions.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use steadfast_fault::Fault;
use steadfast_sys::{procfs, ptrace};

use crate::chacha::{Draw, Seed};
use crate::step;

/// Strikes one process.
#[derive(Debug)]
pub struct Live {
    pid: i32,
    file: String,
    text: Vec<Range<u64>>,
    draw: Draw,
    /// Drawn and not yet struck.
    next: Option<(&'static str, u64)>,
}

/// What a strike did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// As a line of the fault grammar.
    pub line: String,
    pub rip: u64,
    pub before: u64,
    pub after: u64,
    /// How often a thread was stopped outside the file's code before.
    pub missed: u32,
}

const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// Where an executable mapping of a file of this name lies in a process.
///
/// # Errors
/// When /proc/PID/maps cannot be read.
pub fn text_of(pid: i32, file: &str) -> io::Result<Vec<Range<u64>>> {
    let named = |map: &procfs::Mapping| {
        map.executable && map.path.file_name().is_some_and(|name| name == file)
    };
    Ok(procfs::maps(pid)?
        .into_iter()
        .filter(named)
        .map(|map| map.range)
        .collect())
}

impl Live {
    /// Prepares to strike the code of `file` in a process that this one may trace.
    ///
    /// # Errors
    /// When the process has no executable mapping of that file.
    pub fn new(pid: i32, file: &str, seed: Seed) -> io::Result<Self> {
        let text = text_of(pid, file)?;
        if text.is_empty() {
            return Err(io::Error::other(format!(
                "process {pid} has no executable mapping of {file}"
            )));
        }
        Ok(Self {
            pid,
            file: file.into(),
            text,
            draw: seed.stream(0, 0),
            next: None,
        })
    }

    /// Passes over the registers and bits of so many strikes.
    pub fn skip(&mut self, strikes: u64) {
        for _ in 0..strikes {
            let _ = self.one();
        }
    }

    fn one(&mut self) -> (&'static str, u64) {
        (*self.draw.one_of(&REGISTERS), self.draw.below(64))
    }

    /// Waits until a thread stands in that code and flips one bit of one of its general registers. None when the process has ended, or
    /// nobody was met there in time.
    ///
    /// # Errors
    /// As ptrace(2).
    pub fn strike(&mut self, patience: Duration) -> io::Result<Option<Strike>> {
        let (register, bit) = match self.next {
            Some(next) => next,
            None => self.one(),
        };
        self.next = Some((register, bit));
        let line = format!("time=0ms in={} reg={register} bit={bit}", self.file);
        let fault: Fault = line
            .parse()
            .map_err(|error| io::Error::other(format!("{error}")))?;
        let end = Instant::now() + patience;
        let mut missed = 0;
        while Instant::now() < end {
            // One that sleeps stands in a system call, not in that code.
            let computing = procfs::threads_below(self.pid).into_iter();
            for (tid, _) in computing.filter(|(_, computes)| *computes) {
                let Some(stop) = ptrace::interrupt(tid)? else {
                    continue;
                };
                let rip = stop.regs()?.rip;
                let met = self.text.iter().any(|range| range.contains(&rip));
                let struck = met.then(|| step::now(&stop, &fault, patience));
                stop.detach()?;
                match struck {
                    Some(Ok((before, after))) => {
                        self.next = None;
                        return Ok(Some(Strike {
                            line,
                            rip,
                            before,
                            after,
                            missed,
                        }));
                    }
                    Some(Err(error)) => return Err(io::Error::other(error.to_string())),
                    None => missed += 1,
                }
            }
            if procfs::has_ended(self.pid)
                || !std::path::Path::new(&format!("/proc/{}", self.pid)).exists()
            {
                return Ok(None);
            }
        }
        Ok(None)
    }
}
