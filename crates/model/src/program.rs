//! The algorithm as steps: Figures 3 and 4 of the paper as the runtime carries them out, each with the function that does it.
//!
//! A step reads or writes one cell of the program's state, or compares some. A fault inside a comparison can do no more than
//! one that jumps over it.
//!
//! ```text
//!   receive  I  E1  R  E2  V  commit  send        gate: 0 ─I─ 1 ─E1─ 2 ─R─ 3 ─E2─ 4 ─V─ 5 ─commit─ 0
//! ```
//!
//! The handler is a store in small. Input 0 asks: the answer is X + 2Y. Any other input is added to X, then a constant that is
//! only ever read, and X to Y; the answer is the input itself. So most wrong states show in a later answer alone.

use std::fmt;

/// Data is counted modulo this.
pub(crate) const VALUES: u8 = 3;
/// Where no value is yet.
pub(crate) const NOTHING: u8 = 31;
pub(crate) const THREADS: usize = 2;
/// Added to an input: it was damaged on its way, and has not the checksum that it says.
pub(crate) const DAMAGED: u8 = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    // Shared by threads.
    X,
    Lock,
    // Of each thread.
    Counter,
    Y,
    Fixed,
    Input,
    InputCrc,
    Output,
    OutputCrc,
    /// The second run's checksum, before it is validated.
    Part,
    /// Ends of phases 1, 3, 5 and 2, 4.
    GateOdd,
    GateEven,
    Event,
    /// The number of the input that lies there, and of the last that was handled.
    Received,
    Taken,
    /// The thread's list of locks: whether it has the lock, how often this run has, how often the first run left it.
    Held,
    Count,
    CountFirst,
    /// Barrier: the other thread's counter when it was first looked at.
    Seen,
    // O_v, O_c, N and U of the paper, by index of what handlers write.
    Old(u8),
    Logged(u8),
    New(u8),
    Again(u8),
}

const OWN: usize = 29;
pub(crate) const CELLS: usize = 2 + OWN * THREADS;

impl Cell {
    pub(crate) const fn at(self, thread: usize) -> usize {
        let own = match self {
            Self::X => return 0,
            Self::Lock => return 1,
            Self::Counter => 0,
            Self::Y => 1,
            Self::Fixed => 2,
            Self::Input => 3,
            Self::InputCrc => 4,
            Self::Output => 5,
            Self::OutputCrc => 6,
            Self::Part => 7,
            Self::GateOdd => 8,
            Self::Held => 9,
            Self::Count => 10,
            Self::CountFirst => 11,
            Self::Seen => 12,
            Self::Old(v) => 13 + v as usize,
            Self::Logged(v) => 16 + v as usize,
            Self::New(v) => 19 + v as usize,
            Self::Again(v) => 22 + v as usize,
            Self::GateEven => 25,
            Self::Event => 26,
            Self::Received => 27,
            Self::Taken => 28,
        };
        2 + own + thread * OWN
    }

    pub(crate) const fn is_crc(self) -> bool {
        matches!(self, Self::InputCrc | Self::OutputCrc | Self::Part)
    }

    const fn is_shared(self) -> bool {
        matches!(self, Self::X | Self::Lock | Self::Counter)
    }

    /// Messages have their checksum and no other check.
    const fn is_message(self) -> bool {
        matches!(
            self,
            Self::Input | Self::InputCrc | Self::Output | Self::OutputCrc
        )
    }
}

/// What handlers write, in the order of the log.
const WRITTEN: [Cell; 3] = [Cell::Output, Cell::X, Cell::Y];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reg {
    A,
    B,
    /// What the runtime has on its way from one cell to another.
    Way,
    /// Of a checksum. A fault cannot make one that is right (corruption coverage).
    Crc,
}
pub(crate) const REGS: usize = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Cond {
    Is(Cell, u8),
    Same(Cell, Cell),
    Differ(Cell, Cell),
    /// The first is 0, or the others are equal.
    SameIf(Cell, Cell, Cell),
    /// The input, the output has its checksum.
    InputHolds,
    OutputHolds,
    RegIs(Reg, u8),
    CrcIs(Reg),
    /// The gate of this phase has been passed, in this event or so many before.
    Gate(u8, u8),
    /// The lock that is in the list says that it is this thread's.
    Owned,
    /// The other thread is in no handler, or not in the one that was seen.
    OtherLeft,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Op {
    Load(Reg, Cell),
    Store(Cell, Reg),
    Set(Cell, u8),
    Increment(Cell),
    /// This phase has ended.
    Gate(u8),
    Add(Reg, Reg),
    Crc(Reg),
    Check(Cond),
    /// On to the next step if it holds, else there.
    Unless(Cond, u8),
    Goto(u8),
    Wait(Cond),
    Lock,
    Unlock,
    Snapshot,
    Receive,
    Send,
}

impl Cond {
    fn cells(self) -> Vec<Cell> {
        match self {
            Self::Is(a, _) => vec![a],
            Self::Same(a, b) | Self::Differ(a, b) => vec![a, b],
            Self::InputHolds => vec![Cell::Input, Cell::InputCrc],
            Self::OutputHolds => vec![Cell::Output, Cell::Part],
            Self::SameIf(a, b, c) => vec![a, b, c],
            Self::RegIs(..) | Self::CrcIs(_) => vec![],
            Self::Gate(phase, _) => vec![
                if phase % 2 == 1 {
                    Cell::GateOdd
                } else {
                    Cell::GateEven
                },
                Cell::Event,
            ],
            Self::Owned => vec![Cell::Held, Cell::Lock],
            Self::OtherLeft => vec![Cell::Seen, Cell::Counter],
        }
    }

    fn regs(self) -> Vec<Reg> {
        match self {
            Self::RegIs(reg, _) => vec![reg],
            Self::CrcIs(reg) => vec![reg, Reg::Crc],
            _ => vec![],
        }
    }
}

impl Op {
    pub(crate) fn reads(self) -> Vec<Cell> {
        match self {
            Self::Load(_, cell) | Self::Increment(cell) => vec![cell],
            Self::Check(c) | Self::Unless(c, _) | Self::Wait(c) => c.cells(),
            Self::Gate(_) => vec![Cell::Event],
            Self::Lock => vec![Cell::Lock],
            Self::Snapshot => vec![Cell::Counter],
            _ => vec![],
        }
    }

    pub(crate) fn writes(self) -> Vec<Cell> {
        match self {
            Self::Store(cell, _) | Self::Set(cell, _) => vec![cell],
            Self::Gate(phase) => vec![if phase % 2 == 1 {
                Cell::GateOdd
            } else {
                Cell::GateEven
            }],
            Self::Snapshot => vec![Cell::Seen],
            Self::Receive => vec![Cell::Input, Cell::InputCrc, Cell::Received],
            _ => vec![],
        }
    }

    pub(crate) fn reads_regs(self) -> Vec<Reg> {
        match self {
            Self::Store(_, reg) | Self::Crc(reg) => vec![reg],
            Self::Add(a, b) => vec![a, b],
            Self::Check(c) | Self::Unless(c, _) | Self::Wait(c) => c.regs(),
            Self::Send => vec![Reg::A, Reg::Crc],
            _ => vec![],
        }
    }

    fn writes_reg(self) -> Option<Reg> {
        match self {
            Self::Load(reg, _) => Some(reg),
            Self::Crc(_) => Some(Reg::Crc),
            _ => None,
        }
    }

    /// Whether other threads can tell when it happens.
    pub(crate) fn is_seen(self) -> bool {
        matches!(self, Self::Lock | Self::Unlock | Self::Receive | Self::Send)
            || self
                .reads()
                .into_iter()
                .chain(self.writes())
                .any(Cell::is_shared)
    }
}

/// Rules of the gates: before a gate is set, and behind it.
const GATES: [(Rule, Rule); 5] = [
    (Rule::GateI, Rule::BehindI),
    (Rule::GateE1, Rule::BehindE1),
    (Rule::GateR, Rule::BehindR),
    (Rule::GateE2, Rule::BehindE2),
    (Rule::GateV, Rule::BehindV),
];

/// What can be left out of the algorithm, to see what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Phase I, line 1: the input's checksum.
    I1,
    R1,
    /// Logging before a write; without it nothing is put back.
    R2,
    /// Figure 4b, line 3: not logged twice.
    R2Line3,
    /// Line 5: the log has the old value.
    R2Line5,
    /// Line 7: after the write the log has an entry.
    R2Line7,
    R3,
    /// A lock that is released is held, in the first run; and it stays held until V.
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    /// R4 and R9: locks are released when V has passed, not at once.
    Deferred,
    /// R: what was kept of the first run is read back.
    ReadBack,
    /// R: what was put back is read back.
    PutBack,
    V1,
    V2,
    V3,
    V4,
    V5,
    /// V: both runs hold each lock as often.
    Locks,
    /// V: what is in the list of locks is this thread's by the C library's word as well.
    Owner,
    /// End of a phase: the gate is where the phase began.
    GateI,
    GateE1,
    GateR,
    GateE2,
    GateV,
    /// Behind the gate: the one before it is where it should be.
    BehindI,
    BehindE1,
    BehindR,
    BehindE2,
    BehindV,
    /// Before locks are released, and before the handler counts as left.
    GateEffects,
    GateCommit,
    Barrier,
    /// An input is handled once.
    Once,
}

impl Rule {
    pub const ALL: [Self; 37] = [
        Self::I1,
        Self::R1,
        Self::R2,
        Self::R2Line3,
        Self::R2Line5,
        Self::R2Line7,
        Self::R3,
        Self::R4,
        Self::R5,
        Self::R6,
        Self::R7,
        Self::R8,
        Self::R9,
        Self::Deferred,
        Self::ReadBack,
        Self::PutBack,
        Self::V1,
        Self::V2,
        Self::V3,
        Self::V4,
        Self::V5,
        Self::Locks,
        Self::Owner,
        Self::GateI,
        Self::GateE1,
        Self::GateR,
        Self::GateE2,
        Self::GateV,
        Self::BehindI,
        Self::BehindE1,
        Self::BehindR,
        Self::BehindE2,
        Self::BehindV,
        Self::GateEffects,
        Self::GateCommit,
        Self::Barrier,
        Self::Once,
    ];
}

impl Rule {
    /// What one fault does harm without, and where: with one thread, two, or two that both store (3).
    pub const NEEDED: [(&'static [Self], usize); 21] = [
        (&[Self::I1], 1),
        (&[Self::R1], 1),
        (&[Self::R2], 1),
        (&[Self::R2Line3], 1),
        (&[Self::R2Line5], 1),
        (&[Self::R2Line7], 1),
        (&[Self::R3], 2),
        (&[Self::R5], 1),
        (&[Self::R7], 1),
        (&[Self::R8], 2),
        (&[Self::Deferred], 2),
        (&[Self::PutBack], 1),
        (&[Self::V1], 1),
        (&[Self::V2], 1),
        (&[Self::V4], 1),
        (&[Self::GateI], 1),
        (&[Self::Owner], 3),
        (&[Self::Barrier], 2),
        (&[Self::Once], 1),
        (
            &[Self::GateE1, Self::BehindE1, Self::GateR, Self::BehindR],
            1,
        ),
        (
            &[
                Self::GateE1,
                Self::GateR,
                Self::GateE2,
                Self::GateV,
                Self::BehindE1,
            ],
            1,
        ),
    ];

    /// What `--protect=sei` leaves out: the paper does not say that an input is handled once. With [`Bounds::SEI`].
    pub const BEYOND: [Self; 1] = [Self::Once];

    /// What this model does not need, with ONE and TWO: left out alone, each of these lets nothing out. Why is not looked into here; a larger
    /// handler may need them.
    pub const SPARE: [Self; 18] = [
        Self::ReadBack,
        Self::R4,
        Self::R6,
        Self::R9,
        Self::V3,
        Self::V5,
        Self::Locks,
        Self::GateE1,
        Self::GateR,
        Self::GateE2,
        Self::GateV,
        Self::BehindI,
        Self::BehindE1,
        Self::BehindR,
        Self::BehindE2,
        Self::BehindV,
        Self::GateEffects,
        Self::GateCommit,
    ];
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) phase: &'static str,
    /// The function of the runtime, and what it does there.
    pub(crate) what: &'static str,
    /// Whether its reads of state are checked.
    checked: bool,
}

/// The algorithm for so many threads, with all rules but some.
#[derive(Debug)]
pub struct Program {
    pub(crate) threads: usize,
    pub(crate) inputs: Vec<Vec<u8>>,
    pub(crate) steps: Vec<Step>,
    /// By step: registers that some later step reads before it is written.
    pub(crate) live: Vec<[bool; REGS]>,
    /// The same of cells, by a mask of Cell::at(0).
    pub(crate) live_cells: Vec<u64>,
    /// Cells that some step reads unchecked.
    pub(crate) soft: Vec<Cell>,
    /// The steps that count a handler as begun, and as left.
    pub(crate) counted: (u8, u8),
    /// Behind the check that the input is new, and the end of V: from here on it is handled.
    pub(crate) handled: (u8, u8),
    /// Where an input is taken in.
    pub(crate) taken_in: u8,
}

struct Builder {
    steps: Vec<Step>,
    without: Vec<Rule>,
    phase: &'static str,
    checked: bool,
    threads: usize,
}

impl Builder {
    fn has(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }

    fn here(&self) -> u8 {
        u8::try_from(self.steps.len()).expect("the program has fewer than 256 steps")
    }

    fn step(&mut self, what: &'static str, op: Op) -> usize {
        self.steps.push(Step {
            op,
            phase: self.phase,
            what,
            checked: self.checked,
        });
        self.steps.len() - 1
    }

    fn rule(&mut self, rule: Rule, what: &'static str, op: Op) {
        if self.has(rule) {
            self.step(what, op);
        }
    }

    /// What is behind the branch has been made: it goes there.
    fn land(&mut self, branch: usize) {
        let here = self.here();
        match &mut self.steps[branch].op {
            Op::Unless(_, to) | Op::Goto(to) => *to = here,
            op => unreachable!("{op:?} has no target"),
        }
    }

    /// The end of phase k: all before it have ended, in this event; then this one has; then the one before is looked at
    /// once more, for who comes by a jump to where the gate is set.
    fn gate(&mut self, k: u8) {
        let (before, after) = GATES[usize::from(k) - 1];
        let old = |k: u8| {
            if k > 2 {
                Cond::Gate(k - 2, 0)
            } else {
                Cond::Gate(6 - k, 1)
            }
        };
        let last = if k > 1 {
            Cond::Gate(k - 1, 0)
        } else {
            Cond::Gate(4, 1)
        };
        self.rule(
            before,
            "sf_gate: the phase was not passed before",
            Op::Check(old(k)),
        );
        self.rule(before, "sf_gate: the one before was", Op::Check(last));
        self.step("sf_gate: the phase is passed", Op::Gate(k));
        self.rule(
            after,
            "sf_gate: the one before was, seen from behind",
            Op::Check(last),
        );
    }

    fn write(&mut self, v: u8, from: Reg) {
        let cell = WRITTEN[v as usize];
        let (old, logged, again) = (Cell::Old(v), Cell::Logged(v), Cell::Again(v));
        if self.phase == "E1" {
            if self.has(Rule::R2) {
                let known = self.step(
                    "log_first: not logged yet? (R2, line 1)",
                    Op::Unless(Cond::Is(logged, 0), 0),
                );
                self.step("log_first: old value read", Op::Load(Reg::Way, cell));
                self.step(
                    "log_first: old value kept (line 2)",
                    Op::Store(old, Reg::Way),
                );
                self.rule(
                    Rule::R2Line3,
                    "log_first: not logged twice (line 3)",
                    Op::Check(Cond::Is(logged, 0)),
                );
                self.step("log_first: logged (line 4)", Op::Set(logged, 1));
                self.rule(
                    Rule::R2Line5,
                    "log_first: the log has the value (line 5)",
                    Op::Check(Cond::Same(cell, old)),
                );
                self.land(known);
            }
            self.step("the handler stores", Op::Store(cell, from));
            if self.has(Rule::R2) {
                self.rule(
                    Rule::R2Line7,
                    "sf_store_check: it is logged (line 7)",
                    Op::Check(Cond::Is(logged, 1)),
                );
            }
            return;
        }
        self.rule(Rule::R6, "log_second: seen again (R6)", Op::Set(again, 1));
        self.step("the handler stores", Op::Store(cell, from));
        self.rule(
            Rule::R6,
            "sf_store_check: it was seen (R6)",
            Op::Check(Cond::Is(again, 1)),
        );
    }

    fn lock(&mut self) {
        let first = self.phase == "E1";
        if first || !self.has(Rule::Deferred) {
            self.step("take: the lock is taken", Op::Lock);
        }
        if first {
            if self.has(Rule::R3) {
                self.step("take: in the list of locks (R3)", Op::Set(Cell::Held, 1));
            }
            self.step("take: counted", Op::Set(Cell::Count, 1));
        } else if self.has(Rule::R8) {
            self.step(
                "take: the first run has taken it (R8)",
                Op::Check(Cond::Is(Cell::Held, 1)),
            );
            self.step("take: counted (R8)", Op::Set(Cell::Count, 1));
        }
    }

    fn unlock(&mut self) {
        let rule = if self.phase == "E1" {
            Rule::R4
        } else {
            Rule::R9
        };
        self.rule(
            rule,
            "release: this thread has it (R4, R9)",
            Op::Check(Cond::Is(Cell::Count, 1)),
        );
        self.step("release: counted", Op::Set(Cell::Count, 0));
        if !self.has(Rule::Deferred) {
            self.step("release: the lock is released at once", Op::Unlock);
        }
    }

    fn handler(&mut self) {
        let many = self.threads > 1;
        if many {
            self.lock();
        }
        self.step("the handler reads its input", Op::Load(Reg::A, Cell::Input));
        let stores = self.step("does the input ask?", Op::Unless(Cond::RegIs(Reg::A, 0), 0));
        self.step("the handler reads X", Op::Load(Reg::A, Cell::X));
        if !many {
            self.step("the handler reads Y", Op::Load(Reg::B, Cell::Y));
            self.step("the handler adds", Op::Add(Reg::A, Reg::B));
            self.step("the handler adds", Op::Add(Reg::A, Reg::B));
        }
        let answer = self.step("on to the answer", Op::Goto(0));
        self.land(stores);
        self.step("the handler reads X", Op::Load(Reg::B, Cell::X));
        self.step("the handler adds", Op::Add(Reg::B, Reg::A));
        self.write(1, Reg::B);
        if !many {
            self.step(
                "the handler reads a constant",
                Op::Load(Reg::A, Cell::Fixed),
            );
            self.step("the handler adds", Op::Add(Reg::B, Reg::A));
            self.write(1, Reg::B);
            self.step("the handler reads Y", Op::Load(Reg::A, Cell::Y));
            self.step("the handler adds", Op::Add(Reg::B, Reg::A));
            self.write(2, Reg::B);
        }
        self.step("the handler reads its input", Op::Load(Reg::A, Cell::Input));
        self.land(answer);
        self.write(0, Reg::A);
        if many {
            self.unlock();
        }
        if self.phase == "E2" && self.has(Rule::R7) {
            self.step(
                "sf_output_append: the answer is read",
                Op::Load(Reg::A, Cell::Output),
            );
            self.step("sf_output_append: its checksum (R7)", Op::Crc(Reg::A));
            self.step("sf_output_append: is kept", Op::Store(Cell::Part, Reg::Crc));
        }
    }

    fn reset(&mut self) {
        for v in 0..self.written() {
            let (cell, old, new) = (WRITTEN[v as usize], Cell::Old(v), Cell::New(v));
            let skip = self.step(
                "swap_words: written?",
                Op::Unless(Cond::Is(Cell::Logged(v), 1), 0),
            );
            self.step("swap_words: new value read", Op::Load(Reg::Way, cell));
            self.step("swap_words: to N", Op::Store(new, Reg::Way));
            self.rule(
                Rule::ReadBack,
                "swap_words: N has it",
                Op::Check(Cond::Same(cell, new)),
            );
            self.step("swap_words: old value read", Op::Load(Reg::Way, old));
            self.step("swap_words: put back", Op::Store(cell, Reg::Way));
            self.rule(
                Rule::PutBack,
                "swap_words: memory has it",
                Op::Check(Cond::Same(cell, old)),
            );
            self.land(skip);
        }
    }

    fn written(&self) -> u8 {
        if self.threads > 1 { 2 } else { 3 }
    }
}

impl Program {
    #[must_use]
    pub fn new(inputs: &[&[u8]], without: &[Rule]) -> Self {
        let threads = inputs.len();
        let mut b = Builder {
            steps: Vec::new(),
            without: without.to_vec(),
            phase: "receive",
            checked: true,
            threads,
        };
        let many = threads > 1;
        b.step("the envelope receives", Op::Receive);

        let taken_in = b.here();
        b.phase = "I";
        if b.has(Rule::I1) {
            b.step("sf_input: the input is read", Op::Load(Reg::A, Cell::Input));
            b.step(
                "sf_input: its checksum is read",
                Op::Load(Reg::Crc, Cell::InputCrc),
            );
            b.step(
                "sf_input: they fit, or it is dropped",
                Op::Unless(Cond::CrcIs(Reg::A), 0),
            );
        }
        b.rule(
            Rule::Once,
            "sf_provenance_input: not handled before",
            Op::Check(Cond::Differ(Cell::Received, Cell::Taken)),
        );
        let begun = b.here();
        b.step("count_event: another event", Op::Increment(Cell::Event));
        let entered = b.here();
        b.step(
            "count_event: the counter is odd",
            Op::Increment(Cell::Counter),
        );
        for v in 0..b.written() {
            b.step("open_run: the log is empty", Op::Set(Cell::Logged(v), 0));
            b.step(
                "open_run: nothing was seen again",
                Op::Set(Cell::Again(v), 0),
            );
        }
        b.step("open_run: no checksum", Op::Set(Cell::Part, NOTHING));
        if many {
            b.step("sf_locks_begin", Op::Set(Cell::Count, 0));
        }
        b.gate(1);

        b.phase = "E1";
        b.checked = b.has(Rule::R1);
        b.handler();
        b.checked = true;
        b.gate(2);

        b.phase = "R";
        b.reset();
        if many {
            b.step(
                "sf_locks_between_runs: count read",
                Op::Load(Reg::Way, Cell::Count),
            );
            b.step(
                "sf_locks_between_runs: and kept",
                Op::Store(Cell::CountFirst, Reg::Way),
            );
            b.step("sf_locks_between_runs: none", Op::Set(Cell::Count, 0));
        }
        b.gate(3);

        b.phase = "E2";
        b.checked = b.has(Rule::R5);
        b.handler();
        b.checked = true;
        b.gate(4);

        b.phase = "V";
        b.checked = b.has(Rule::V1);
        for v in 0..b.written() {
            let (cell, new, logged, again) = (
                WRITTEN[v as usize],
                Cell::New(v),
                Cell::Logged(v),
                Cell::Again(v),
            );
            b.rule(
                Rule::V4,
                "compare_words: memory is N (V4)",
                Op::Check(Cond::SameIf(logged, cell, new)),
            );
            if b.has(Rule::R6) && b.has(Rule::R2) {
                b.rule(
                    Rule::V5,
                    "compare_words: the same words (V5)",
                    Op::Check(Cond::Same(logged, again)),
                );
            }
        }
        if b.has(Rule::R7) {
            b.rule(
                Rule::V3,
                "check_outputs: the answer has its checksum (V3)",
                Op::Check(Cond::OutputHolds),
            );
        }
        b.rule(
            Rule::V2,
            "check_message: the input has its checksum (V2)",
            Op::Check(Cond::InputHolds),
        );
        if many {
            b.rule(
                Rule::Locks,
                "sf_locks_check: held alike",
                Op::Check(Cond::Same(Cell::Count, Cell::CountFirst)),
            );
            if b.has(Rule::R3) && b.has(Rule::Deferred) {
                b.rule(
                    Rule::Owner,
                    "sf_locks_check: the lock says so, too",
                    Op::Check(Cond::Owned),
                );
            }
        }
        b.checked = true;
        b.step(
            "sf_provenance_taken: which input",
            Op::Load(Reg::Way, Cell::Received),
        );
        b.step(
            "sf_provenance_taken: was handled",
            Op::Store(Cell::Taken, Reg::Way),
        );
        let validated = b.here();
        b.gate(5);

        b.phase = "commit";
        b.step(
            "commit: the second run's checksum is read",
            Op::Load(Reg::Crc, Cell::Part),
        );
        b.step(
            "commit: and leaves with the answer",
            Op::Store(Cell::OutputCrc, Reg::Crc),
        );
        b.rule(
            Rule::GateEffects,
            "commit: V was passed",
            Op::Check(Cond::Gate(5, 0)),
        );
        if many && b.has(Rule::Deferred) {
            let none = b.step(
                "sf_locks_release: held?",
                Op::Unless(Cond::Is(Cell::Held, 1), 0),
            );
            b.step("sf_locks_release: released", Op::Unlock);
            b.step("sf_locks_release: not in the list", Op::Set(Cell::Held, 0));
            b.land(none);
        }
        b.rule(
            Rule::GateCommit,
            "commit: V was passed, before others count on it",
            Op::Check(Cond::Gate(5, 0)),
        );
        let left = b.here();
        b.step("commit: the counter is even", Op::Increment(Cell::Counter));

        b.phase = "send";
        if many && b.has(Rule::Barrier) {
            b.step("sf_barrier: who is inside", Op::Snapshot);
            b.step("sf_barrier: has left", Op::Wait(Cond::OtherLeft));
        }
        b.step(
            "the envelope reads the answer",
            Op::Load(Reg::A, Cell::Output),
        );
        if b.has(Rule::R7) {
            b.step("sf_crc_pop", Op::Load(Reg::Crc, Cell::OutputCrc));
        } else {
            b.step("the envelope computes a checksum", Op::Crc(Reg::A));
        }
        b.step("the envelope sends", Op::Send);
        b.step("sf_crc_pop: taken", Op::Set(Cell::OutputCrc, NOTHING));
        b.step("to the next message", Op::Goto(0));

        let mut program = Self {
            threads,
            inputs: inputs.iter().map(|i| i.to_vec()).collect(),
            steps: b.steps,
            live: Vec::new(),
            live_cells: Vec::new(),
            soft: Vec::new(),
            counted: (entered, left),
            handled: (begun, validated),
            taken_in,
        };
        program.look();
        program
    }

    /// Which reads of a step see that a fault has changed a cell.
    pub(crate) fn is_checked(step: &Step, cell: Cell) -> bool {
        if cell.is_message() {
            return false;
        }
        match step.phase {
            // Of the runtime's own cells V is told by V1 (check(U), check(N)), the others are always checked.
            "V" => step.checked,
            _ => step.checked || !matches!(cell, Cell::X | Cell::Y | Cell::Fixed),
        }
    }

    /// Liveness, and which cells a fault can change so that it matters.
    fn look(&mut self) {
        let n = self.steps.len();
        self.live = vec![[false; REGS]; n];
        self.live_cells = vec![0; n];
        loop {
            let mut changed = false;
            for pc in (0..n).rev() {
                let op = self.steps[pc].op;
                let (mut regs, mut cells) = ([false; REGS], 0u64);
                let next = match op {
                    Op::Goto(to) => vec![to as usize],
                    Op::Unless(_, to) => vec![pc + 1, to as usize],
                    _ => vec![pc + 1],
                };
                for to in next {
                    for (reg, live) in regs.iter_mut().zip(self.live[to]) {
                        *reg |= live;
                    }
                    cells |= self.live_cells[to];
                }
                if let Some(reg) = op.writes_reg() {
                    regs[reg as usize] = false;
                }
                for reg in op.reads_regs() {
                    regs[reg as usize] = true;
                }
                for cell in op.writes() {
                    cells &= !(1 << cell.at(0));
                }
                for cell in op.reads() {
                    cells |= 1 << cell.at(0);
                }
                changed |= regs != self.live[pc] || cells != self.live_cells[pc];
                self.live[pc] = regs;
                self.live_cells[pc] = cells;
            }
            if !changed {
                break;
            }
        }
        for step in &self.steps {
            for cell in step.op.reads() {
                if !Self::is_checked(step, cell) && !self.soft.contains(&cell) {
                    self.soft.push(cell);
                }
            }
        }
    }

    /// Whether some of the inputs, in some order that keeps each thread's own, make every message that was sent.
    pub(crate) fn explained(&self, received: [u8; THREADS], sent: [u8; THREADS]) -> bool {
        self.history(received, sent, &mut [0; THREADS], 0, [0; THREADS])
    }

    /// `done`: of each thread the inputs that are behind.
    fn history(
        &self,
        received: [u8; THREADS],
        sent: [u8; THREADS],
        done: &mut [u8; THREADS],
        x: u8,
        y: [u8; THREADS],
    ) -> bool {
        if sent.iter().all(|&s| s == 0) {
            return true;
        }
        for t in 0..self.threads {
            for k in (done[t]..received[t]).filter(|&k| self.inputs[t][usize::from(k)] < DAMAGED) {
                let (mut x, mut y, mut sent, mut next) = (x, y, sent, *done);
                let answer = self.reference(self.inputs[t][usize::from(k)], &mut x, &mut y[t]);
                sent[t] &= !(1 << answer);
                next[t] = k + 1;
                if self.history(received, sent, &mut next, x, y) {
                    return true;
                }
            }
        }
        false
    }

    /// The handler, as its author means it.
    fn reference(&self, input: u8, x: &mut u8, y: &mut u8) -> u8 {
        let many = self.threads > 1;
        if input == 0 {
            return if many { *x } else { (*x + 2 * *y) % VALUES };
        }
        *x = (*x + input) % VALUES;
        if !many {
            *x = (*x + 1) % VALUES;
            *y = (*y + *x) % VALUES;
        }
        input
    }
}
