//! What a fault does to a stopped thread: to registers, memory, an address, or the flow of control.
//!
//! Written anew here, not shared with the planted payloads: this is what they are checked against.

use iced_x86::{Instruction, InstructionInfoFactory, OpAccess};
use steadfast_fault::{Bits, Change, Effect, Fault, Incident, Lasting, Moment, Register, Target};
use steadfast_sandbox::Ended;
use steadfast_sys::ptrace::{Stopped, TRAP_HWBKPT, Waited};

use super::operands::{address_of, gpr, modified, operand_address, written};
use super::patience::{Patience, ended, given_up, os};
use crate::target::{Hit, SetupError};

/// The flag with which a debug register lets its instruction execute (Intel SDM vol. 3, 18.3.1.1).
pub(super) const RESUME: u64 = 1 << 16;

/// What an instruction may cause: blocked, these would end the program (signal(7)).
const SYNCHRONOUS: u64 = 1 << (libc::SIGILL - 1)
    | 1 << (libc::SIGTRAP - 1)
    | 1 << (libc::SIGBUS - 1)
    | 1 << (libc::SIGFPE - 1)
    | 1 << (libc::SIGSEGV - 1)
    | 1 << (libc::SIGSYS - 1);

/// Who stands behind the instruction, or why nobody does.
pub(super) type Stands = Result<Result<Stopped, Left>, SetupError>;

/// Why nobody stands behind the instruction.
pub(super) enum Left {
    Ended(Ended),
    /// The instruction fails, which is the program's own affair.
    Fails(Stopped, i32),
    /// The whole process has ended: other threads have to be collected before it can be said how.
    Gone,
}

pub(super) struct Struck<'a> {
    pub(super) hit: &'a mut Hit,
    pub(super) n: u64,
    /// There are other threads: no wait for this one alone may last.
    pub(super) among: bool,
    pub(super) patience: &'a Patience,
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

/// Whether the instruction does not enter the kernel by itself.
pub(super) fn cannot_wait(insn: &Instruction) -> bool {
    use iced_x86::{Code, FlowControl};
    let enters = matches!(
        insn.flow_control(),
        FlowControl::Interrupt | FlowControl::Exception
    );
    !enters && !matches!(insn.code(), Code::Syscall | Code::Sysenter)
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
    pub(super) fn behind(&self, insn: &Instruction, stop: Stopped) -> Stands {
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

    pub(super) fn stepped(&self, insn: &Instruction, stop: Stopped) -> Stands {
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
    pub(super) fn strike(&mut self, fault: &Fault, insn: &Instruction, stop: Stopped) -> Stands {
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

    pub(super) fn register(
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
