//! The machine that the algorithm runs on: cells, registers, steps, and what a fault leaves.
//!
//! A fault gives any value to any number of cells and registers and takes one thread to any step. All these choices are
//! made when they matter and not before: what was struck is marked, and the first step that reads it branches over every
//! value. That reaches the same ends as a choice of everything at once, without the states that differ in what nobody
//! reads any more.
//!
//! A cell with an integrity check that a fault has changed stops the process at its next checked read, whatever its value. So
//! only cells that some step reads unchecked are marked at all.

use crate::program::{
    CELLS, Cell, Cond, DAMAGED, NOTHING, Op, Program, REGS, Reg, THREADS, VALUES,
};

/// The checksum of a value, which nothing else has (an uninterpreted tag): of one that is received, and of one that is sent.
const TAG_IN: u8 = 8;
const TAG_OUT: u8 = 16;
/// A checksum that a fault has made: that of no value.
const GARBAGE: u8 = 30;

/// What the C library writes into a lock that thread `t` takes.
fn owner(t: usize) -> u8 {
    1 + u8::from(t == 1)
}

const fn tag_in(value: u8) -> u8 {
    TAG_IN + value
}

const fn tag_out(value: u8) -> u8 {
    TAG_OUT + value
}

/// What a gate holds: the phase that has ended, 1 to 5, and of which event.
const fn gate(phase: u8, event: u8) -> u8 {
    phase * 8 + event % 8
}

/// Above a cell's value: a fault may have changed it; a fault has.
const STRUCK: u8 = 64;
const WRONG: u8 = 128;
const VALUE: u8 = 63;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Thread {
    pub(crate) pc: u8,
    /// STRUCK: any value.
    regs: [u8; REGS],
}

/// All that the process and its surroundings are.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    cells: [u8; CELLS],
    pub(crate) threads: [Thread; THREADS],
    /// Outside the process, where no fault strikes: how many inputs each thread has had, and the messages that receivers took
    /// for sound, one bit for each value.
    received: [u8; THREADS],
    sent: [u8; THREADS],
    pub(crate) faults: u8,
}

/// What a step comes to.
#[derive(Debug)]
pub(crate) enum Next {
    State(State),
    /// The process stops.
    Alarm,
    /// A message that receivers take for sound, and that no history explains.
    Corrupt(u8),
}

impl State {
    pub(crate) fn new(program: &Program, faults: u8) -> Self {
        let mut state = Self {
            cells: [0; CELLS],
            threads: [Thread::default(); THREADS],
            received: [0; THREADS],
            sent: [0; THREADS],
            faults,
        };
        for t in 0..program.threads {
            for cell in [Cell::Part, Cell::OutputCrc, Cell::InputCrc] {
                state.set(t, cell, NOTHING);
            }
            state.set(t, Cell::Fixed, 1);
            state.set(t, Cell::GateOdd, gate(5, 0));
            state.set(t, Cell::GateEven, gate(4, 0));
        }
        state
    }

    pub(crate) fn get(&self, t: usize, cell: Cell) -> u8 {
        self.cells[cell.at(t)] & VALUE
    }

    fn set(&mut self, t: usize, cell: Cell, value: u8) {
        self.cells[cell.at(t)] = value;
    }

    pub(crate) fn reg(&self, t: usize, reg: Reg) -> u8 {
        self.threads[t].regs[reg as usize] & VALUE
    }

    fn put(&mut self, t: usize, reg: Reg, value: u8) {
        self.threads[t].regs[reg as usize] = value;
    }

    /// Whether all inputs were handled and all threads wait for more.
    pub(crate) fn is_done(&self, program: &Program) -> bool {
        (0..program.threads).all(|t| {
            matches!(
                program.steps[usize::from(self.threads[t].pc)].op,
                Op::Receive
            ) && usize::from(self.received[t]) == program.inputs[t].len()
        })
    }

    /// One fault, in thread `t`, which goes on at `pc`.
    pub(crate) fn strike(&self, program: &Program, t: usize, pc: u8) -> Self {
        let mut s = self.clone();
        s.faults -= 1;
        s.threads[t].pc = pc;
        for (i, &live) in program.live[usize::from(pc)].iter().enumerate() {
            // Of a checksum the value counts, which may have stayed.
            let kept = if i == Reg::Crc as usize {
                s.threads[t].regs[i] & VALUE
            } else {
                0
            };
            s.threads[t].regs[i] = if live { kept | STRUCK } else { 0 };
        }
        for &cell in &program.soft {
            s.cells[cell.at(t)] |= STRUCK;
        }
        s.forget(program);
        s
    }

    /// Every way in which thread `t` can take its next step. None: it waits.
    pub(crate) fn step(&self, program: &Program, t: usize) -> Vec<Next> {
        let step = &program.steps[usize::from(self.threads[t].pc)];
        let mut ways = vec![self.clone()];
        for reg in step.op.reads_regs() {
            ways = ways
                .into_iter()
                .flat_map(|s| s.choose_reg(t, reg))
                .collect();
        }
        for cell in step.op.reads() {
            ways = ways
                .into_iter()
                .flat_map(|s| s.choose_cell(t, cell))
                .collect();
        }
        ways.into_iter()
            .filter_map(|s| s.take(program, t))
            .collect()
    }

    fn choose_reg(self, t: usize, reg: Reg) -> Vec<Self> {
        let now = self.threads[t].regs[reg as usize];
        if now & STRUCK == 0 {
            return vec![self];
        }
        let values = if reg == Reg::Crc {
            vec![now & VALUE, GARBAGE]
        } else {
            (0..VALUES).collect()
        };
        let with = |value| {
            let mut s = self.clone();
            s.put(t, reg, value);
            s
        };
        values.into_iter().map(with).collect()
    }

    fn choose_cell(self, t: usize, cell: Cell) -> Vec<Self> {
        let now = self.cells[cell.at(t)];
        if now & STRUCK == 0 {
            return vec![self];
        }
        let kept = now & VALUE;
        let values = if cell.is_crc() {
            vec![kept, GARBAGE]
        } else {
            (0..VALUES).collect()
        };
        let with = |value| {
            let mut s = self.clone();
            // What was wrong before an other fault and is left alone stays so.
            s.cells[cell.at(t)] = if value == kept {
                now & !STRUCK
            } else {
                value | WRONG
            };
            s
        };
        values.into_iter().map(with).collect()
    }

    /// Nothing that it reads is struck. None: the thread waits.
    fn take(mut self, program: &Program, t: usize) -> Option<Next> {
        let pc = self.threads[t].pc;
        let step = &program.steps[usize::from(pc)];
        for cell in step.op.reads() {
            if self.cells[cell.at(t)] & WRONG != 0 && Program::is_checked(step, cell) {
                return Some(Next::Alarm);
            }
        }
        self.threads[t].pc = pc + 1;
        match step.op {
            Op::Load(reg, cell) => self.put(t, reg, self.get(t, cell)),
            Op::Store(cell, reg) => self.set(t, cell, self.reg(t, reg)),
            Op::Set(cell, value) => self.set(t, cell, value),
            Op::Gate(phase) => {
                let cell = if phase % 2 == 1 {
                    Cell::GateOdd
                } else {
                    Cell::GateEven
                };
                self.set(t, cell, gate(phase, self.get(t, Cell::Event)));
            }
            Op::Increment(cell) => self.set(t, cell, (self.get(t, cell) + 1) % 16),
            Op::Add(a, b) => self.put(t, a, (self.reg(t, a) + self.reg(t, b)) % VALUES),
            Op::Crc(reg) => self.put(t, Reg::Crc, tag_out(self.reg(t, reg))),
            Op::Check(cond) => {
                if !self.holds(program, t, cond) {
                    return Some(Next::Alarm);
                }
            }
            Op::Unless(cond, to) => {
                if !self.holds(program, t, cond) {
                    self.threads[t].pc = to;
                }
            }
            Op::Goto(to) => self.threads[t].pc = to,
            Op::Wait(cond) => {
                if !self.holds(program, t, cond) {
                    return None;
                }
            }
            Op::Lock => {
                if self.get(t, Cell::Lock) != 0 {
                    return None;
                }
                self.set(t, Cell::Lock, owner(t));
            }
            // An ordinary mutex lets anybody unlock it.
            Op::Unlock => self.set(t, Cell::Lock, 0),
            Op::Snapshot => self.set(t, Cell::Seen, self.get(1 - t, Cell::Counter)),
            Op::Receive => {
                let &message = program.inputs[t].get(usize::from(self.received[t]))?;
                self.received[t] += 1;
                self.set(t, Cell::Input, message % DAMAGED);
                self.set(
                    t,
                    Cell::InputCrc,
                    if message < DAMAGED {
                        tag_in(message)
                    } else {
                        GARBAGE
                    },
                );
                self.set(t, Cell::Received, self.received[t]);
            }
            Op::Send => {
                let value = self.reg(t, Reg::A);
                if self.reg(t, Reg::Crc) == tag_out(value) {
                    self.sent[t] |= 1 << value;
                    if !program.explained(self.received, self.sent) {
                        return Some(Next::Corrupt(value));
                    }
                }
            }
        }
        self.forget(program);
        Some(Next::State(self))
    }

    /// What no step reads before it is written tells nothing: states that differ in it alone are one. Of cells only when no
    /// fault can take a thread elsewhere any more.
    fn forget(&mut self, program: &Program) {
        for t in 0..program.threads {
            let pc = usize::from(self.threads[t].pc);
            for (reg, live) in self.threads[t].regs.iter_mut().zip(program.live[pc]) {
                if !live {
                    *reg = 0;
                }
            }
            if self.faults == 0 {
                let private = Cell::Y.at(0)..Cell::Y.at(1) - 1;
                for at in private {
                    if program.live_cells[pc] >> at & 1 == 0 {
                        self.cells[at + Cell::Y.at(t) - Cell::Y.at(0)] = 0;
                    }
                }
            }
        }
    }

    fn holds(&self, program: &Program, t: usize, cond: Cond) -> bool {
        match cond {
            Cond::Is(cell, value) => self.get(t, cell) == value,
            Cond::Same(a, b) => self.get(t, a) == self.get(t, b),
            Cond::Differ(a, b) => self.get(t, a) != self.get(t, b),
            Cond::SameIf(flag, a, b) => self.get(t, flag) == 0 || self.get(t, a) == self.get(t, b),
            Cond::InputHolds => self.get(t, Cell::InputCrc) == tag_in(self.get(t, Cell::Input)),
            Cond::OutputHolds => self.get(t, Cell::Part) == tag_out(self.get(t, Cell::Output)),
            Cond::RegIs(reg, value) => self.reg(t, reg) == value,
            Cond::CrcIs(reg) => self.reg(t, Reg::Crc) == tag_in(self.reg(t, reg)),
            Cond::Gate(phase, back) => {
                let cell = if phase % 2 == 1 {
                    Cell::GateOdd
                } else {
                    Cell::GateEven
                };
                self.get(t, cell) == gate(phase, self.get(t, Cell::Event).wrapping_sub(back))
            }
            Cond::Owned => self.get(t, Cell::Held) == 0 || self.get(t, Cell::Lock) == owner(t),
            Cond::OtherLeft => {
                let seen = self.get(t, Cell::Seen);
                program.threads == 1
                    || seen.is_multiple_of(2)
                    || self.get(1 - t, Cell::Counter) != seen
            }
        }
    }
}
