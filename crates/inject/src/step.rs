//! The step engine: faults by breakpoints and single steps from outside, in pristine code.
//!
//! Slow (a stop costs tens of microseconds) and simple: the oracle that the planted payloads are
//! checked against, and the way to instructions that have no room for a jump. It shares no code
//! with the payloads but the decoder: what it does to registers and memory is written anew in `struck`.
//!
//! | File | What |
//! |---|---|
//! | `patience` | when a run is given up |
//! | `operands` | what an instruction reads and writes |
//! | `struck` | what a fault does to a stopped thread |
//! | `timer` | the timer engine: the same changes at a moment of time |
//! | `walk` | a program by single steps, for `reach` |
//!
//! Where the target has threads, all of them and its children are followed, and counted together.
//!
//! Not covered: faults in a class; children of a target that has no threads (the first process's executions count).

mod operands;
mod patience;
mod struck;
mod timer;
mod walk;

use std::time::{Duration, Instant};

use iced_x86::Instruction;
use steadfast_fault::{Effect, Fault, Hits, Target, Trigger};
use steadfast_sandbox::{self as sandbox, Ended, Trapped};
use steadfast_strike::Refusal;
use steadfast_sys::procfs;
use steadfast_sys::ptrace::{Stopped, Waited};

use crate::payload::Counting;
use crate::target::{Bench, Hit, Ran, SetupError, Started};

use patience::{Patience, STOP, ended, given_up, os};
use struck::{Left, RESUME, Stands, Struck, cannot_wait};
pub(crate) use timer::{now, timer};
pub(crate) use walk::walk;

/// What a stop of the program turned out to be.
enum Next {
    At(Stopped),
    Ended(Ended),
}

/// Runs until the program stands at the watched address, delivering its signals, `deliver` first.
fn to_watched(
    mut stop: Stopped,
    addr: u64,
    patience: &Patience,
    mut deliver: i32,
) -> Result<Next, SetupError> {
    loop {
        let pid = stop.pid();
        let cpu = procfs::cpu_ns(pid).unwrap_or(0);
        // One that waits for something never stops by itself.
        let Some(waited) = stop
            .run_until(false, deliver, || patience.deadline())
            .map_err(os)?
        else {
            return Ok(Next::Ended(given_up()));
        };
        match waited {
            Waited::Stopped {
                stop: next, signal, ..
            } => {
                if signal == libc::SIGTRAP && next.regs().map_err(os)?.rip == addr {
                    return Ok(Next::At(next));
                }
                deliver = signal;
                stop = next;
                if patience.is_over() {
                    return Ok(Next::Ended(given_up()));
                }
            }
            other => return Ok(Next::Ended(ended(&other, cpu))),
        }
    }
}

/// Runs the target with one fault at one instruction.
///
/// # Errors
/// When it cannot be started, or the fault is of another kind.
pub(crate) fn run(bench: &Bench, faults: &[Fault], limit: Duration) -> Result<Ran, SetupError> {
    let refuse = |fault: &Fault, requirement: &str, found: &str| {
        SetupError::Fault(Box::new(Refusal {
            fault: fault.to_string(),
            requirement: requirement.into(),
            found: found.into(),
            fix: "--engine plant".into(),
        }))
    };
    let [fault] = faults else {
        return Err(SetupError::NotStarted(format!(
            "the step engine takes one fault a run, found {}",
            faults.len()
        )));
    };
    if crate::payload::bound(fault).is_some() {
        return Err(refuse(
            fault,
            "every process and thread of the target",
            "process= or thread=",
        ));
    }
    crate::payload::check(fault).map_err(|refusal| SetupError::Fault(Box::new(refusal)))?;
    let Trigger::Site { at, hits } = fault.trigger() else {
        return Err(refuse(fault, "one instruction", "another trigger"));
    };
    let (module, addr) = bench.resolve(fault, at).map_err(SetupError::Fault)?;
    let Some((insn, _)) = bench.modules[module].instruction(addr) else {
        return Err(refuse(fault, "an instruction", "none there"));
    };
    let Started { stop, at: from } = bench.launch(limit, false)?;
    let pid = stop.pid();
    let setup = from.elapsed();
    let mut hit = Hit::default();
    let mut watch = Watch {
        fault,
        insn: &insn,
        addr,
        hits,
        patience: Patience::new(pid, limit),
        n: 0,
        hit: &mut hit,
        failed: None,
    };
    let result = if bench.counting == Counting::Locked {
        watch.everybody(bench, stop, limit)
    } else {
        watch.alone(bench, stop)
    };
    let mut rest = Ended::default();
    bench.settle(watch.patience.left());
    sandbox::end_all(&mut rest, Some(pid));
    let mut ended = result?;
    ended.cpu_ns += rest.cpu_ns;
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    Ok(bench.tell(Ran {
        status: ended.status,
        signal: ended.signal,
        timed_out: ended.timed_out,
        wall_ns: ns(from.elapsed().saturating_sub(setup)),
        cpu_ns: ended.cpu_ns,
        setup_ns: ns(setup),
        hits: vec![hit],
        ..Ran::default()
    }))
}

/// The instruction of a fault, watched by a debug register.
struct Watch<'a> {
    fault: &'a Fault,
    insn: &'a Instruction,
    addr: u64,
    hits: &'a Hits,
    patience: Patience,
    n: u64,
    hit: &'a mut Hit,
    failed: Option<SetupError>,
}

impl Watch<'_> {
    /// One more execution is about to happen: carries the fault out if it is due.
    fn arrived(&mut self, stop: Stopped, among: bool) -> Stands {
        self.n += 1;
        let strikes = self.hits.includes(self.n);
        let mut struck = Struck {
            hit: self.hit,
            n: self.n,
            among,
            patience: &self.patience,
        };
        if strikes {
            let so_far = struck.hit.hits;
            let stood = struck.strike(self.fault, self.insn, stop)?;
            let nothing = struck.hit.hits == so_far;
            if let (Err(Left::Fails(stop, signal)), true) = (&stood, nothing)
                && self.is_unexecuted(stop, *signal)?
            {
                // Back from the signal's handler it is met again.
                let mut regs = stop.regs().map_err(os)?;
                regs.eflags &= !RESUME;
                stop.set_regs(&regs).map_err(os)?;
                self.n -= 1;
            }
            return Ok(stood);
        }
        if !is_stepped_over(self.insn) {
            return Ok(Ok(stop));
        }
        let stood = struck.behind(self.insn, stop)?;
        if let Err(Left::Fails(stop, signal)) = &stood {
            self.resume_flag(stop, *signal)?;
        }
        Ok(stood)
    }

    /// What a signal from elsewhere came before has been counted: back from the handler it is not met again.
    fn resume_flag(&self, stop: &Stopped, signal: i32) -> Result<(), SetupError> {
        if self.is_unexecuted(stop, signal)? {
            let mut regs = stop.regs().map_err(os)?;
            regs.eflags |= RESUME;
            stop.set_regs(&regs).map_err(os)?;
        }
        Ok(())
    }

    /// Whether a signal from elsewhere came before the instruction.
    fn is_unexecuted(&self, stop: &Stopped, signal: i32) -> Result<bool, SetupError> {
        const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL];
        Ok(stop.regs().map_err(os)?.rip == self.addr && !FAULTS.contains(&signal))
    }

    /// Whether no later execution is hit.
    fn over(&self) -> bool {
        let (first, step) = (self.hits.first.get(), self.hits.step.get());
        // Code that is wrong stays so: it goes wrong once.
        if self.n >= first && is_code(self.fault) {
            return true;
        }
        let next = match self.n.checked_sub(first) {
            None => first,
            Some(since) => self.n + step - since % step,
        };
        self.hits.last.is_some_and(|last| next > last.get())
    }

    /// A target of one thread: its first process.
    fn alone(&mut self, bench: &Bench, mut stop: Stopped) -> Result<Ended, SetupError> {
        let pid = stop.pid();
        // Libraries are not mapped yet; the debug register watches an address all the same.
        stop.watch_execution(self.addr).map_err(os)?;
        let mut deliver = 0;
        while !self.over() {
            stop = match to_watched(stop, self.addr, &self.patience, deliver)? {
                Next::At(stop) => stop,
                Next::Ended(ended) => return Ok(ended),
            };
            let stopped = Instant::now();
            (stop, deliver) = match self.arrived(stop, false)? {
                Ok(stop) => (stop, 0),
                Err(Left::Fails(stop, signal)) => (stop, signal),
                Err(Left::Ended(ended)) => return Ok(ended),
                Err(Left::Gone) => unreachable!("of one thread among others"),
            };
            self.patience.limit += stopped.elapsed() + STOP;
        }
        stop.watch_execution(0).map_err(os)?;
        stop.detach_with(deliver).map_err(os)?;
        Ok(bench.finish(pid, self.patience.left()))
    }

    /// One of several threads and processes: they share the count, as they share a planted one.
    fn everybody(
        &mut self,
        bench: &Bench,
        stop: Stopped,
        limit: Duration,
    ) -> Result<Ended, SetupError> {
        let pid = stop.pid();
        stop.watch_execution(self.addr).map_err(os)?;
        let ended = sandbox::follow(stop, limit, self).map_err(os);
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        Ok(bench.followed(pid, ended?, limit))
    }
}

/// Whether an execution that is only counted is stepped over, so that it is seen whether it happened: the resume flag
/// keeps the debug register from stopping twice, and a virtual machine under load has been seen to lose it. Not what may
/// wait in the kernel, nor what stops after each of its elements.
fn is_stepped_over(insn: &Instruction) -> bool {
    !insn.has_rep_prefix() && !insn.has_repne_prefix() && cannot_wait(insn)
}

fn is_code(fault: &Fault) -> bool {
    matches!(
        fault.effect(),
        Effect::Bits {
            target: Target::Code,
            ..
        }
    )
}

impl sandbox::Follower for Watch<'_> {
    fn born(&mut self, _: sandbox::Born) {}

    fn is_over(&self) -> bool {
        self.patience.is_over_among()
    }

    fn begins(&mut self, stop: Stopped) -> std::io::Result<Stopped> {
        stop.watch_execution(if self.over() { 0 } else { self.addr })?;
        Ok(stop)
    }

    fn trapped(&mut self, stop: Stopped) -> std::io::Result<Trapped> {
        if stop.regs()?.rip != self.addr {
            return Ok(Trapped::Goes(stop, libc::SIGTRAP));
        }
        if self.over() {
            stop.watch_execution(0)?;
            return Ok(Trapped::Goes(stop, 0));
        }
        // Stepped over, a call that makes a thread would tell of it here and nowhere else.
        let call = self.insn.code() == iced_x86::Code::Syscall;
        if call {
            stop.set_plain_options(false)?;
        }
        match self.arrived(stop, true) {
            Ok(Ok(stop)) => {
                if call {
                    stop.set_following_options()?;
                }
                Ok(Trapped::Goes(stop, 0))
            }
            Ok(Err(Left::Fails(stop, signal))) => Ok(Trapped::Goes(stop, signal)),
            Ok(Err(Left::Ended(ended))) => Ok(Trapped::Ended(ended)),
            Ok(Err(Left::Gone)) => Ok(Trapped::Gone),
            Err(error) => {
                self.failed = Some(error);
                Err(std::io::Error::other("a fault could not be carried out"))
            }
        }
    }
}
