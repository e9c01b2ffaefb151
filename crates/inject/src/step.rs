//! The step engine: faults by breakpoints and single steps from outside, in pristine code.
//!
//! Slow (a stop costs tens of microseconds) and simple: the oracle that the planted payloads are
//! checked against, and the way to instructions that have no room for a jump. It shares no code
//! with the payloads but the decoder: what it does to registers and memory is written anew here.
//!
//! The timer engine is here as well: the same changes at a moment of time.
//!
//! Where the target has threads, all of them and its children are followed, and counted together.
//!
//! Not covered: faults in a class; children of a target that has no threads (the first process's executions count).

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register as Name};
use steadfast_integrity::fault::{
    Bits, Change, Effect, Fault, Hits, Incident, Lasting, MemBase, MemExpr, Moment, Register,
    Target, Trigger,
};
use steadfast_sys::ptrace::{Regs, Stopped, TRAP_HWBKPT, Waited};
use steadfast_sys::sandbox::{self, Ended, Trapped};
use steadfast_sys::{cpu, procfs};

use steadfast_strike::Refusal;

use crate::payload::Counting;
use crate::target::{Bench, Hit, Ran, SetupError, Started, entry};

/// What a stop of the program turned out to be.
enum Next {
    At(Stopped),
    Ended(Ended),
}

fn os(source: std::io::Error) -> SetupError {
    SetupError::Os {
        what: "the program has to be traced",
        source,
    }
}

fn ended(waited: &Waited, cpu_ns: u64) -> Ended {
    match waited {
        Waited::Exited(status) => Ended {
            status: Some(*status),
            cpu_ns,
            ..Ended::default()
        },
        Waited::Signaled(signal) => Ended {
            signal: Some(*signal),
            cpu_ns,
            ..Ended::default()
        },
        Waited::Stopped { .. } => Ended::default(),
    }
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

/// What a stop costs beside what is done in it: the limits of a run are of one that nobody stops.
const STOP: Duration = Duration::from_micros(40);

/// When a run is given up. Each stop hands the processor to another process and back, and on a busy machine both wait
/// for it: a run of some hundred stops would use up its limit by that alone, and its fault would not have fired.
struct Patience {
    limit: Instant,
    pid: i32,
    /// How long the target and its tracer had waited when the run began.
    delayed: [u64; 2],
}

impl Patience {
    fn new(pid: i32, limit: Duration) -> Self {
        Self {
            limit: Instant::now() + limit,
            pid,
            delayed: Self::delays(pid),
        }
    }

    fn delays(pid: i32) -> [u64; 2] {
        [procfs::delayed_ns(pid), procfs::own_delayed_ns()].map(Option::unwrap_or_default)
    }

    fn since(&self) -> [u64; 2] {
        let now = Self::delays(self.pid);
        [0, 1].map(|who| now[who].saturating_sub(self.delayed[who]))
    }

    /// One of the two waits while the other one sleeps.
    fn deadline(&self) -> Instant {
        self.limit + Duration::from_nanos(self.since().iter().sum())
    }

    fn is_over(&self) -> bool {
        let now = Instant::now();
        now > self.limit && now > self.deadline()
    }

    /// As [`Self::is_over`], beside threads that run while their tracer looks for stops.
    fn is_over_among(&self) -> bool {
        let delay = self.since().into_iter().max().unwrap_or_default();
        Instant::now() > self.limit + Duration::from_nanos(delay)
    }

    fn left(&self) -> Duration {
        self.deadline().saturating_duration_since(Instant::now())
    }
}

fn given_up() -> Ended {
    Ended {
        timed_out: true,
        ..Ended::default()
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

/// Whether the instruction does not enter the kernel by itself.
fn cannot_wait(insn: &Instruction) -> bool {
    use iced_x86::{Code, FlowControl};
    let enters = matches!(
        insn.flow_control(),
        FlowControl::Interrupt | FlowControl::Exception
    );
    !enters && !matches!(insn.code(), Code::Syscall | Code::Sysenter)
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

/// The flag with which a debug register lets its instruction execute (Intel SDM vol. 3, 18.3.1.1).
const RESUME: u64 = 1 << 16;

/// What an instruction may cause: blocked, these would end the program (signal(7)).
const SYNCHRONOUS: u64 = 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGTRAP - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGSYS - 1);

/// Who stands behind the instruction, or why nobody does.
type Stands = Result<Result<Stopped, Left>, SetupError>;

/// Why nobody stands behind the instruction.
enum Left {
    Ended(Ended),
    /// The instruction fails, which is the program's own affair.
    Fails(Stopped, i32),
    /// The whole process has ended: other threads have to be collected before it can be said how.
    Gone,
}

struct Struck<'a> {
    hit: &'a mut Hit,
    n: u64,
    /// There are other threads: no wait for this one alone may last.
    among: bool,
    patience: &'a Patience,
}

/// Takes the trap flag of a single step out of the flags that the instruction has pushed.
fn untraced(insn: &Instruction, mut stop: Stopped) -> Result<Stopped, SetupError> {
    use iced_x86::Code;
    if matches!(insn.code(), Code::Pushfq | Code::Pushfw) {
        // Bit 8: the first of the second byte.
        let at = stop.regs().map_err(os)?.rsp + 1;
        let mut byte = [0];
        stop.read(at, &mut byte).map_err(os)?;
        stop.write(at, &[byte[0] & !1]).map_err(os)?;
    }
    Ok(stop)
}

fn changed(change: Change, value: u64, mask: u64) -> u64 {
    match change {
        Change::Flip => value ^ mask,
        Change::Stuck0 => value & !mask,
        Change::Stuck1 => value | mask,
    }
}

fn gpr(regs: &mut Regs, number: u8) -> &mut u64 {
    match number {
        0 => &mut regs.rax,
        1 => &mut regs.rcx,
        2 => &mut regs.rdx,
        3 => &mut regs.rbx,
        4 => &mut regs.rsp,
        5 => &mut regs.rbp,
        6 => &mut regs.rsi,
        7 => &mut regs.rdi,
        8 => &mut regs.r8,
        9 => &mut regs.r9,
        10 => &mut regs.r10,
        11 => &mut regs.r11,
        12 => &mut regs.r12,
        13 => &mut regs.r13,
        14 => &mut regs.r14,
        _ => &mut regs.r15,
    }
}

impl Struck<'_> {
    fn record(&mut self, before: u64, after: u64) {
        if self.hit.hits == 0 {
            (self.hit.n, self.hit.before, self.hit.after) = (self.n, before, after);
        }
        self.hit.hits += 1;
    }

    /// Executes the instruction at which the program stands. A clock of the program's would interrupt every second step of
    /// a busy machine before it executes anything: where the instruction cannot wait in the kernel, signals wait instead.
    fn behind(&self, insn: &Instruction, stop: Stopped) -> Stands {
        if !cannot_wait(insn) {
            return self.stepped(insn, stop);
        }
        let blocked = stop.blocked().map_err(os)?;
        stop.set_blocked(blocked | !SYNCHRONOUS).map_err(os)?;
        let stood = self.stepped(insn, stop)?;
        if let Ok(stop) | Err(Left::Fails(stop, _)) = &stood {
            stop.set_blocked(blocked).map_err(os)?;
        }
        Ok(stood)
    }

    fn stepped(&self, insn: &Instruction, stop: Stopped) -> Stands {
        let among = self.among;
        let repeats = insn.has_rep_prefix() || insn.has_repne_prefix();
        let step = |stop: Stopped| {
            let waited = if among {
                stop.step_among()
            } else {
                stop.run_until(true, 0, || self.patience.deadline())
            };
            waited.map_err(os)
        };
        let left = || {
            Ok(Err(if among {
                Left::Gone
            } else {
                Left::Ended(given_up())
            }))
        };
        let Some(mut waited) = step(stop)? else {
            return left();
        };
        while let Waited::Stopped {
            stop,
            signal: libc::SIGTRAP,
            ..
        } = waited
        {
            // A repeated string instruction stops after each element; where the resume flag was lost, the debug
            // register has stopped this one before it was executed.
            let again = stop.regs().map_err(os)?.rip == insn.ip()
                && (repeats || stop.trap_code().map_err(os)? == TRAP_HWBKPT);
            if !again {
                return Ok(Ok(untraced(insn, stop)?));
            }
            let Some(more) = step(stop)? else {
                return left();
            };
            waited = more;
        }
        Ok(match waited {
            // The program's own affair: where it goes on is not behind this instruction.
            Waited::Stopped { stop, signal, .. } => Err(Left::Fails(stop, signal)),
            other => Err(Left::Ended(ended(&other, 0))),
        })
    }

    /// Carries the fault out around the instruction at which the program stands.
    fn strike(&mut self, fault: &Fault, insn: &Instruction, stop: Stopped) -> Stands {
        match fault.effect() {
            Effect::Bits {
                target,
                bits,
                change,
                ..
            } => match target {
                Target::Register(register, moment) => {
                    self.at_register(insn, stop, (*register, *moment), bits, *change)
                }
                Target::Memory(..) | Target::ReadValue(_) | Target::WrittenValue => {
                    self.at_memory(insn, stop, target, bits, *change)
                }
                Target::Address | Target::ReadAddress | Target::WrittenAddress => {
                    self.at_address(insn, stop, target, bits, *change)
                }
                Target::Ip => {
                    let mut regs = stop.regs().map_err(os)?;
                    let wrong = changed(*change, regs.rip, bits.words()[0]);
                    self.record(regs.rip, wrong);
                    regs.rip = wrong;
                    stop.set_regs(&regs).map_err(os)?;
                    Ok(Ok(stop))
                }
                Target::Code => {
                    let mut stop = stop;
                    let at = stop.regs().map_err(os)?.rip;
                    self.memory(&mut stop, at, bits, *change)?;
                    Ok(Ok(stop))
                }
                // Not at an instruction: refused before anything starts.
                Target::Data(_) => Ok(Ok(stop)),
            },
            Effect::Storage(_) => Ok(Ok(stop)),
            Effect::Incident(incident) => self.incident(insn, stop, *incident),
            Effect::Kill(signal) => {
                self.record(0, 0);
                // With the resumption: who is dead already cannot be let go.
                Ok(Err(Left::Fails(stop, i32::from(*signal))))
            }
        }
    }

    fn at_register(
        &mut self,
        insn: &Instruction,
        stop: Stopped,
        (register, moment): (Register, Moment),
        bits: &Bits,
        change: Change,
    ) -> Stands {
        if moment == Moment::After {
            let stop = match self.behind(insn, stop)? {
                Ok(stop) => stop,
                Err(ended) => return Ok(Err(ended)),
            };
            self.register(&stop, register, bits, change)?;
            return Ok(Ok(stop));
        }
        let mut old = stop.regs().map_err(os)?;
        let old_vectors = matches!(register, Register::Gpr(..) | Register::Flags).then(Vec::new);
        let old_vectors = match old_vectors {
            None => stop.xstate().map_err(os)?,
            Some(none) => none,
        };
        self.register(&stop, register, bits, change)?;
        if moment == Moment::Before {
            return Ok(Ok(stop));
        }
        let mut made = stop.regs().map_err(os)?;
        let stop = match self.behind(insn, stop)? {
            Ok(stop) => stop,
            Err(ended) => return Ok(Err(ended)),
        };
        match register {
            Register::Gpr(which, _) => {
                // Overwritten bits are the instruction's; the rest comes back.
                let number = which.number();
                let (was, wrong) = (*gpr(&mut old, number), *gpr(&mut made, number));
                let mut now = stop.regs().map_err(os)?;
                let value = gpr(&mut now, number);
                let kept = !written(insn, number);
                *value = (*value & !(kept & (was ^ wrong))) | (was & kept & (was ^ wrong));
                stop.set_regs(&now).map_err(os)?;
            }
            Register::Flags => {
                let mut now = stop.regs().map_err(os)?;
                let kept = (old.eflags ^ made.eflags) & !u64::from(modified(insn));
                now.eflags = (now.eflags & !kept) | (old.eflags & kept);
                stop.set_regs(&now).map_err(os)?;
            }
            Register::Vector { index, .. } => {
                let overwritten = {
                    let mut factory = InstructionInfoFactory::new();
                    factory.info(insn).used_registers().iter().any(|u| {
                        u.register().is_vector_register()
                            && u.register().number() == usize::from(index)
                            && matches!(u.access(), OpAccess::Write | OpAccess::ReadWrite)
                    })
                };
                if !overwritten {
                    // This register alone: the instruction may have written another.
                    let mut now = stop.xstate().map_err(os)?;
                    for byte in 0..64 {
                        let at = vector_place(index, byte);
                        if let (Some(to), Some(from)) = (now.get_mut(at), old_vectors.get(at)) {
                            *to = *from;
                        }
                    }
                    stop.set_xstate(&mut now).map_err(os)?;
                }
            }
            _ => {}
        }
        Ok(Ok(stop))
    }

    /// Bytes of memory, named or as the instruction reads or writes them.
    fn at_memory(
        &mut self,
        insn: &Instruction,
        stop: Stopped,
        target: &Target,
        bits: &Bits,
        change: Change,
    ) -> Stands {
        match target {
            Target::Memory(expr, moment) => {
                let stop = if *moment == Moment::After {
                    match self.behind(insn, stop)? {
                        Ok(stop) => stop,
                        Err(ended) => return Ok(Err(ended)),
                    }
                } else {
                    stop
                };
                let (mut stop, at) = address_of(stop, expr)?;
                let Some(at) = at else {
                    self.hit.missed += 1;
                    return Ok(Ok(stop));
                };
                let old = self.memory(&mut stop, at, bits, change)?;
                if *moment != Moment::BeforeOnly {
                    return Ok(Ok(stop));
                }
                let stood = self.behind(insn, stop)?;
                undone(stood, at, &old, bits, change)
            }
            Target::ReadValue(lasting) => {
                let (mut stop, at) = operand_address(stop, insn, OpAccess::Read)?;
                let Some((at, _)) = at else {
                    self.hit.missed += 1;
                    return Ok(Ok(stop));
                };
                let old = self.memory(&mut stop, at, bits, change)?;
                if *lasting == Lasting::Sticky {
                    return Ok(Ok(stop));
                }
                let stood = self.behind(insn, stop)?;
                undone(stood, at, &old, bits, change)
            }
            Target::WrittenValue => {
                let (stop, at) = operand_address(stop, insn, OpAccess::Write)?;
                match (self.behind(insn, stop)?, at) {
                    (Ok(mut stop), Some((at, _))) => {
                        self.memory(&mut stop, at, bits, change)?;
                        Ok(Ok(stop))
                    }
                    (other, _) => Ok(other),
                }
            }
            _ => unreachable!("strike() asks for memory alone"),
        }
    }

    /// The instruction goes to a wrong place.
    fn at_address(
        &mut self,
        insn: &Instruction,
        stop: Stopped,
        target: &Target,
        bits: &Bits,
        change: Change,
    ) -> Stands {
        let access = if *target == Target::WrittenAddress {
            OpAccess::Write
        } else {
            OpAccess::Read
        };
        let (stop, at) = operand_address(stop, insn, access)?;
        let (Some((_, linear)), Some(register)) = (at, crate::operand_register(insn, target))
        else {
            self.hit.missed += 1;
            return Ok(Ok(stop));
        };
        let wrong = changed(change, linear, bits.words()[0]);
        let delta = wrong.wrapping_sub(linear);
        let mut regs = stop.regs().map_err(os)?;
        let was = *gpr(&mut regs, register.number);
        *gpr(&mut regs, register.number) = was.wrapping_add(delta);
        self.record(linear, wrong);
        stop.set_regs(&regs).map_err(os)?;
        let stop = match self.behind(insn, stop)? {
            Ok(stop) => stop,
            Err(ended) => return Ok(Err(ended)),
        };
        let mut regs = stop.regs().map_err(os)?;
        let value = gpr(&mut regs, register.number);
        if register.steps {
            *value = value.wrapping_sub(delta);
        } else if written(insn, register.number) == 0 {
            *value = was;
        }
        stop.set_regs(&regs).map_err(os)?;
        Ok(Ok(stop))
    }

    fn incident(&mut self, insn: &Instruction, stop: Stopped, incident: Incident) -> Stands {
        let mut regs = stop.regs().map_err(os)?;
        match incident {
            Incident::Skip => regs.rip = insn.next_ip(),
            Incident::Invert => {
                // Run it, then go where it did not.
                let taken = insn.near_branch_target();
                let stop = match self.behind(insn, stop)? {
                    Ok(stop) => stop,
                    Err(ended) => return Ok(Err(ended)),
                };
                let mut regs = stop.regs().map_err(os)?;
                regs.rip = if regs.rip == taken {
                    insn.next_ip()
                } else {
                    taken
                };
                self.record(0, 0);
                stop.set_regs(&regs).map_err(os)?;
                return Ok(Ok(stop));
            }
            Incident::Repeat => {
                let stop = match self.behind(insn, stop)? {
                    Ok(stop) => stop,
                    Err(ended) => return Ok(Err(ended)),
                };
                regs = stop.regs().map_err(os)?;
                regs.rip = insn.ip();
                self.record(0, 0);
                stop.set_regs(&regs).map_err(os)?;
                return self.behind(insn, stop);
            }
            Incident::Crash | Incident::Hang => {
                let mut stop = stop;
                let code: &[u8] = if incident == Incident::Crash {
                    &[0x0f, 0x0b]
                } else {
                    &[0xeb, 0xfe]
                };
                stop.write(regs.rip, code).map_err(os)?;
                self.record(0, 0);
                return Ok(Ok(stop));
            }
            Incident::Stop => {
                steadfast_sys::child::kill(stop.pid(), libc::SIGSTOP);
            }
        }
        self.record(0, 0);
        stop.set_regs(&regs).map_err(os)?;
        Ok(Ok(stop))
    }

    fn register(
        &mut self,
        stop: &Stopped,
        register: Register,
        bits: &Bits,
        change: Change,
    ) -> Result<(), SetupError> {
        let shift = u32::from(register.first_bit());
        match register {
            Register::Gpr(which, _) => {
                let mut regs = stop.regs().map_err(os)?;
                let value = gpr(&mut regs, which.number());
                let before = *value;
                *value = changed(change, before, bits.words()[0] << shift);
                let after = *value;
                self.record(before, after);
                stop.set_regs(&regs).map_err(os)
            }
            Register::Flags => {
                let mut regs = stop.regs().map_err(os)?;
                let before = regs.eflags;
                regs.eflags = changed(change, before, bits.words()[0] << shift);
                // What a debug register needs to get past its address is no flag of the program's.
                self.record(before & !RESUME, regs.eflags & !RESUME);
                stop.set_regs(&regs).map_err(os)
            }
            Register::FsBase => {
                let mut regs = stop.regs().map_err(os)?;
                let before = regs.fs_base;
                regs.fs_base = changed(change, before, bits.words()[0]);
                self.record(before, regs.fs_base);
                stop.set_regs(&regs).map_err(os)
            }
            Register::Vector { index, .. } => {
                let place = |byte: usize| vector_place(index, byte);
                self.vectors(
                    stop,
                    bits,
                    change,
                    shift,
                    place,
                    if index >= 16 { 0xe6 } else { 0x66 },
                )
            }
            Register::Mask(k) => {
                let (_, [_, places, ..]) = steadfast_sys::cpu::vector_state();
                let start = usize::try_from(places).unwrap_or(0) + 8 * usize::from(k);
                self.vectors(stop, bits, change, shift, |byte| start + byte, 0x20)
            }
            Register::Mxcsr => self.vectors(stop, bits, change, shift, |byte| 24 + byte, 2),
            Register::GsBase => Ok(()),
        }
    }

    fn vectors(
        &mut self,
        stop: &Stopped,
        bits: &Bits,
        change: Change,
        shift: u32,
        place: impl Fn(usize) -> usize,
        parts: u8,
    ) -> Result<(), SetupError> {
        let mut state = stop.xstate().map_err(os)?;
        let set: Vec<usize> = (0..512)
            .filter(|bit| bits.words()[bit / 64] >> (bit % 64) & 1 == 1)
            .map(|bit| bit + usize::try_from(shift).unwrap_or(0))
            .collect();
        let word = set.first().map_or(0, |bit| bit / 64);
        let read = |state: &[u8]| {
            (0..8).fold(0_u64, |v, i| {
                v | u64::from(state.get(place(8 * word + i)).copied().unwrap_or(0)) << (8 * i)
            })
        };
        let before = read(&state);
        for bit in set {
            if let Some(byte) = state.get_mut(place(bit / 8)) {
                let mask = 1 << (bit % 8);
                *byte = match change {
                    Change::Flip => *byte ^ mask,
                    Change::Stuck0 => *byte & !mask,
                    Change::Stuck1 => *byte | mask,
                };
            }
        }
        let after = read(&state);
        state[512] |=
            parts & u8::try_from(steadfast_sys::cpu::vector_state().0 & 0xff).unwrap_or(0);
        self.record(before, after);
        stop.set_xstate(&mut state).map_err(os)
    }

    /// Changes memory; what was there.
    fn memory(
        &mut self,
        stop: &mut Stopped,
        at: u64,
        bits: &Bits,
        change: Change,
    ) -> Result<Vec<u8>, SetupError> {
        let n = steadfast_strike::bits_end(bits.words()).div_ceil(8);
        let mut old = vec![0; n];
        if stop.read(at, &mut old).is_err() {
            self.hit.missed += 1;
            return Ok(Vec::new());
        }
        let new = apply(&old, bits, change);
        let word = bits.words().iter().position(|w| *w != 0).unwrap_or(0);
        let read = |bytes: &[u8]| {
            (0..8).fold(0_u64, |v, i| {
                v | u64::from(bytes.get(8 * word + i).copied().unwrap_or(0)) << (8 * i)
            })
        };
        self.record(read(&old), read(&new));
        stop.write(at, &new).map_err(os)?;
        Ok(old)
    }
}

/// Where a byte of a vector register is in the standard format (Intel SDM vol. 1, 13.4).
fn vector_place(index: u8, byte: usize) -> usize {
    let (_, places) = steadfast_sys::cpu::vector_state();
    let [ymm, _, high, more] = places.map(|p| usize::try_from(p).unwrap_or(0));
    let index = usize::from(index);
    match (index, byte) {
        (16.., _) => more + 64 * (index - 16) + byte,
        (_, ..16) => 160 + 16 * index + byte,
        (_, 16..32) => ymm + 16 * index + byte - 16,
        _ => high + 32 * index + byte - 32,
    }
}

fn apply(old: &[u8], bits: &Bits, change: Change) -> Vec<u8> {
    let mask: Vec<u8> = bits.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    old.iter()
        .zip(mask)
        .map(|(byte, mask)| match change {
            Change::Flip => byte ^ mask,
            Change::Stuck0 => byte & !mask,
            Change::Stuck1 => byte | mask,
        })
        .collect()
}

/// Whoever stands behind the instruction sees what was there before it.
fn undone(
    stood: Result<Stopped, Left>,
    at: u64,
    old: &[u8],
    bits: &Bits,
    change: Change,
) -> Stands {
    match stood {
        Ok(mut stop) => {
            undo(&mut stop, at, old, bits, change)?;
            Ok(Ok(stop))
        }
        // The cell was sound all along.
        Err(Left::Fails(mut stop, signal)) => {
            undo(&mut stop, at, old, bits, change)?;
            Ok(Err(Left::Fails(stop, signal)))
        }
        Err(left) => Ok(Err(left)),
    }
}

fn undo(
    stop: &mut Stopped,
    at: u64,
    old: &[u8],
    bits: &Bits,
    change: Change,
) -> Result<(), SetupError> {
    let made = apply(old, bits, change);
    let mut now = vec![0; old.len()];
    if old.is_empty() || stop.read(at, &mut now).is_err() {
        return Ok(());
    }
    for (i, byte) in now.iter_mut().enumerate() {
        if *byte == made[i] {
            *byte = old[i];
        }
    }
    stop.write(at, &now).map_err(os)
}

/// Bits of a general register that the instruction writes.
fn written(insn: &Instruction, number: u8) -> u64 {
    let mut factory = InstructionInfoFactory::new();
    factory
        .info(insn)
        .used_registers()
        .iter()
        .filter(|u| matches!(u.access(), OpAccess::Write | OpAccess::ReadWrite))
        .filter(|u| {
            u.register().is_gpr() && u.register().full_register().number() == usize::from(number)
        })
        .fold(0, |bits, u| {
            bits | match u.register() {
                Name::AH | Name::BH | Name::CH | Name::DH => 0xff00,
                r if r.size() == 1 => 0xff,
                r if r.size() == 2 => 0xffff,
                _ => u64::MAX,
            }
        })
}

fn modified(insn: &Instruction) -> u32 {
    use iced_x86::RflagsBits as R;
    let set = insn.rflags_modified();
    [
        (R::CF, 0),
        (R::PF, 2),
        (R::AF, 4),
        (R::ZF, 6),
        (R::SF, 7),
        (R::DF, 10),
        (R::OF, 11),
    ]
    .into_iter()
    .filter(|(flag, _)| set & flag != 0)
    .fold(0, |bits, (_, bit)| bits | 1 << bit)
}

/// Where the instruction accesses memory: with and without what the segment adds.
fn operand_address(
    stop: Stopped,
    insn: &Instruction,
    access: OpAccess,
) -> Result<(Stopped, Option<(u64, u64)>), SetupError> {
    let mut regs = stop.regs().map_err(os)?;
    let mut factory = InstructionInfoFactory::new();
    let read = access == OpAccess::Read;
    let used = factory.info(insn).used_memory().iter().copied().find(|m| {
        use OpAccess as A;
        match m.access() {
            A::ReadWrite | A::ReadCondWrite => true,
            A::Read | A::CondRead => read,
            A::Write | A::CondWrite => !read,
            _ => false,
        }
    });
    // An address fault may ask for the only operand, whichever way it is used.
    let used = used.or_else(|| factory.info(insn).used_memory().first().copied());
    let Some(used) = used else {
        return Ok((stop, None));
    };
    let fs = regs.fs_base;
    let address = |segment: bool, regs: &mut Regs| {
        used.virtual_address(0, |register, _, _| {
            Some(match register {
                Name::None | Name::DS | Name::ES | Name::SS | Name::CS => 0,
                Name::FS => {
                    if segment {
                        fs
                    } else {
                        0
                    }
                }
                Name::GS => 0,
                Name::RIP => insn.next_ip(),
                r if r.is_gpr64() => *gpr(regs, u8::try_from(r.number()).ok()?),
                _ => return None,
            })
        })
    };
    let found = address(true, &mut regs).zip(address(false, &mut regs));
    Ok((stop, found))
}

fn address_of(mut stop: Stopped, expr: &MemExpr) -> Result<(Stopped, Option<u64>), SetupError> {
    let mut regs = stop.regs().map_err(os)?;
    let base = match &expr.base {
        MemBase::Register { base, index } => {
            let index = index.as_ref().map_or(0, |i| {
                gpr(&mut regs, i.register.number()).wrapping_mul(u64::from(i.scale))
            });
            Some(gpr(&mut regs, base.number()).wrapping_add(index))
        }
        MemBase::FsBase => Some(regs.fs_base),
        MemBase::Absolute(address) => Some(*address),
        MemBase::Pointer(inner) => {
            let (next, at) = address_of(stop, inner)?;
            stop = next;
            let mut word = [0; 8];
            at.and_then(|at| stop.read(at, &mut word).ok())
                .map(|()| u64::from_le_bytes(word))
        }
        _ => None,
    };
    Ok((
        stop,
        base.map(|base| base.wrapping_add_signed(expr.displacement)),
    ))
}

/// The program and its tracer on one CPU: a step costs two switches then, not two wakes of an idle CPU, a quarter of the
/// time. A program that asks by sched_getaffinity(2) is told the CPUs that it may run on as ever; /proc shows the one.
struct Together {
    pid: i32,
    /// The one, by the last digits of the clock: several campaigns divide the CPUs among themselves.
    one: usize,
    /// What it may use, and what its tracer may.
    its: Vec<usize>,
    own: Vec<usize>,
}

impl Together {
    fn new(pid: i32) -> Self {
        let its = cpu::allowed_to(pid);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let digits = since.map_or(0, |since| since.subsec_micros() as usize);
        let nth = digits % its.len().max(1);
        let together = Self {
            pid,
            one: its.get(nth).copied().unwrap_or_default(),
            its,
            own: cpu::allowed(),
        };
        together.join();
        let _ = cpu::pin(0, together.one);
        together
    }

    /// A CPU more or less changes nothing but the time.
    fn join(&self) {
        let _ = cpu::pin(self.pid, self.one);
    }

    fn step(&mut self, stop: Stopped, rax: u64, deliver: i32) -> std::io::Result<Waited> {
        // Where this is the number of a system call, the next instruction may ask or say where it may run.
        let call = rax.cast_signed();
        if call != libc::SYS_sched_getaffinity && call != libc::SYS_sched_setaffinity {
            return stop.step(deliver);
        }
        let _ = cpu::bind(self.pid, &self.its);
        let waited = stop.step(deliver);
        self.its = cpu::allowed_to(self.pid);
        self.join();
        waited
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        let _ = cpu::bind(0, &self.own);
    }
}

/// Executes the program by single steps, at most so many, and tells `each` where it stands: a repeated string
/// instruction once, and whether the entry point is still to come. One that makes a process is given up.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn walk(
    bench: &Bench,
    most: u64,
    limit: Duration,
    each: &mut dyn FnMut(i32, u64, bool),
) -> Result<Ran, SetupError> {
    let Started { mut stop, at } = bench.launch(limit, false)?;
    let pid = stop.pid();
    let deadline = Instant::now() + limit;
    let entry = entry(pid).map_err(os)?;
    let mut together = Together::new(pid);
    let mut loader = entry != 0;
    let mut deliver = 0;
    let mut last = u64::MAX;
    let mut steps = 0;
    let ended = loop {
        let Regs { rip, rax, .. } = stop.regs().map_err(os)?;
        loader &= rip != entry;
        let repeats = rip == last && deliver == 0;
        if !(repeats && is_repeated(&mut stop, rip)) {
            each(pid, rip, loader);
        }
        last = rip;
        steps += 1;
        // Children and other programs are not followed: counters see them, steps do not.
        let leaves = PROCESSES.contains(&rax.cast_signed()) && is_call(&mut stop, rip);
        if steps > most || leaves || Instant::now() > deadline {
            break given_up();
        }
        match together.step(stop, rax, deliver).map_err(os)? {
            Waited::Stopped {
                stop: next, signal, ..
            } => {
                deliver = if signal == libc::SIGTRAP { 0 } else { signal };
                stop = next;
            }
            other => break ended(&other, 0),
        }
    };
    sandbox::end_all(&mut Ended::default(), Some(pid));
    Ok(Ran {
        status: ended.status,
        signal: ended.signal,
        timed_out: ended.timed_out,
        wall_ns: u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX),
        ..Ran::default()
    })
}

/// Calls that make a process or a thread, or another program of this one.
const PROCESSES: [i64; 6] = [
    libc::SYS_fork,
    libc::SYS_vfork,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
];

/// Whether `syscall` stands there.
fn is_call(stop: &mut Stopped, rip: u64) -> bool {
    let mut bytes = [0; 2];
    stop.read(rip, &mut bytes).is_ok() && bytes == [0x0f, 0x05]
}

fn is_repeated(stop: &mut Stopped, rip: u64) -> bool {
    let mut bytes = [0; 15];
    let _ = stop.read(rip, &mut bytes);
    let insn = iced_x86::Decoder::with_ip(64, &bytes, rip, iced_x86::DecoderOptions::NONE).decode();
    insn.has_rep_prefix() || insn.has_repne_prefix()
}

/// Whom a moment may strike, one after the other: a thread that computes then, any of them with the same chance;
/// where nobody does the first one, and in a part of the program whoever is there.
fn candidates(pid: i32, now: Duration, everybody: bool) -> Vec<i32> {
    let all = procfs::threads_below(pid);
    let (mut busy, mut idle): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, computes)| *computes);
    if !busy.is_empty() {
        // Moments of this engine are not repeatable: the last digits of the clock are as good as a draw.
        let first = usize::try_from(now.as_nanos() / 100 % busy.len() as u128).unwrap_or(0);
        busy.rotate_left(first);
    }
    if !everybody {
        idle.retain(|(tid, _)| *tid == pid);
    }
    busy.into_iter().chain(idle).map(|(tid, _)| tid).collect()
}

/// Runs the target and changes a register at moments of time.
///
/// # Errors
/// When it cannot be started, or the fault is of another kind.
pub(crate) fn timer(bench: &Bench, faults: &[Fault], limit: Duration) -> Result<Ran, SetupError> {
    let [fault] = faults else {
        return Err(SetupError::NotStarted(format!(
            "the timer engine takes one fault a run, found {}",
            faults.len()
        )));
    };
    let refuse = |requirement: &str, found: &str| {
        SetupError::Fault(Box::new(Refusal {
            fault: fault.to_string(),
            requirement: requirement.into(),
            found: found.into(),
            fix: "time=10ms reg=rax bit=3".into(),
        }))
    };
    let Trigger::Clock {
        after_ns,
        every_ns,
        within,
    } = fault.trigger()
    else {
        return Err(refuse("a moment of time", "another trigger"));
    };
    if crate::payload::bound(fault).is_some() {
        return Err(refuse("the first thread", "process= or thread="));
    }
    let Effect::Bits {
        target: Target::Register(register, Moment::Before),
        bits,
        change,
        ..
    } = fault.effect()
    else {
        return Err(refuse("a register that is hit, to stay", "another effect"));
    };
    let Started { stop, at } = bench.launch(limit, false)?;
    let pid = stop.pid();
    stop.detach().map_err(os)?;
    let setup = at.elapsed();
    let begin = Instant::now();
    let patience = Patience::new(pid, limit);
    let mut hit = Hit::default();
    let mut due = Duration::from_nanos(
        after_ns
            .or(every_ns.map(std::num::NonZero::get))
            .unwrap_or(0),
    );
    let mut n = 0;
    while due < limit && sandbox::alive_after(pid, due.saturating_sub(begin.elapsed())) {
        n += 1;
        let mut met = false;
        for tid in candidates(pid, begin.elapsed(), within.is_some()) {
            let Some(stop) = steadfast_sys::ptrace::interrupt(tid).map_err(os)? else {
                continue;
            };
            let rip = stop.regs().map_err(os)?.rip;
            met = bench.inside(within.as_ref(), rip);
            if met {
                Struck {
                    hit: &mut hit,
                    n,
                    among: false,
                    patience: &patience,
                }
                .register(&stop, *register, bits, *change)?;
            }
            stop.detach().map_err(os)?;
            if met {
                break;
            }
        }
        hit.missed += u64::from(!met);
        let Some(every) = every_ns else { break };
        due += Duration::from_nanos(every.get());
    }
    let ended = bench.finish(pid, limit.saturating_sub(begin.elapsed()));
    let ns = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    Ok(bench.tell(Ran {
        status: ended.status,
        signal: ended.signal,
        timed_out: ended.timed_out,
        wall_ns: ns(begin.elapsed()),
        cpu_ns: ended.cpu_ns,
        setup_ns: ns(setup),
        hits: vec![hit],
        ..Ran::default()
    }))
}

/// Strikes a stopped thread where it stands, with a fault of the timer engine, and says what the register held before and after.
pub(crate) fn now(
    stop: &Stopped,
    fault: &Fault,
    limit: Duration,
) -> Result<(u64, u64), SetupError> {
    let Effect::Bits {
        target: Target::Register(register, Moment::Before),
        bits,
        change,
        ..
    } = fault.effect()
    else {
        return Err(SetupError::NotStarted(format!(
            "{fault}: a register is needed"
        )));
    };
    let mut hit = Hit::default();
    Struck {
        hit: &mut hit,
        n: 1,
        among: false,
        patience: &Patience::new(stop.pid(), limit),
    }
    .register(stop, *register, bits, *change)?;
    Ok((hit.before, hit.after))
}
