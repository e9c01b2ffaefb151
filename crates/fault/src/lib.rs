//! The fault grammar: one line says which fault happens where, when and how.
//!
//! `run --flip`, `kv strike`, plan files, tests and replay lines all use this grammar and this parser; a
//! fault prints as the line that makes it again. docs/reference/fault-grammar.md is the manual, with the
//! EBNF and one example for every model.
//!
//! ```text
//! replica=1 at=bzip2+0x1a2f0 n=1000000 reg=rax bit=17
//! \_ whom _/ \________ when _________/ \_where/ \how/
//! ```
//!
//! A [`Fault`] strikes a program, a [`ServiceFault`] the objects and messages of replicas that vote. One parser reads both: a line that is
//! meant for the other kind is refused, and the error says who takes it.
//!
//! Invariants
//!  1. A [`Fault`] that exists is well formed: [`Fault::new`] goes through the parser, so there is one set of rules.
//!  2. `line.parse::<Fault>()?.to_string()` parses to an equal fault.
//!  3. No clause is ignored, no clause is given twice, nothing is assumed about when a fault
//!     happens. Defaults exist only where they cannot surprise: they are in the manual.
//!
//! Not covered: whether a site exists, is reachable or is executed that often, and whether an
//! engine supports a model. Those need the target; engines refuse before anything starts.
//!
//! Models: Table 1 of Behrens et al. (SEI, 2013) and the per-tick flips of Song et al. (C³, 2013).

#![forbid(unsafe_code)]

#[macro_use]
mod macros;

mod bits;
pub mod cpus;
pub mod ids;
mod parse;
mod place;
mod register;
mod service;
mod storage;
#[cfg(test)]
mod tests;
mod text;

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

pub use bits::Bits;
pub use parse::FaultError;
pub use place::{Index, Location, MemBase, MemExpr, Module};
pub use register::{Gpr, GprPart, Lane, LaneWidth, Register, VectorWidth};
pub use service::{Field, Passing, Place, ServiceFault, Stored};
pub use storage::{Access, Extent, PathGlob, Storage};

use crate::cpus::CpuSet;
use crate::ids::{EventIndex, ReplicaId};

/// One fault: whom it strikes, when, and what it does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fault {
    victim: Victim,
    trigger: Trigger,
    effect: Effect,
}

/// Which replica, process, thread and CPU a fault is armed in. What is not said is not restricted:
/// in a bare run there is nothing to choose from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Victim {
    /// Which replicas; must be said where there is more than one.
    pub replicas: Option<Replicas>,
    /// Which process of the guest's tree.
    pub process: Option<Processes>,
    /// Which thread.
    pub thread: Option<ThreadPath>,
    /// Only while running on one of these CPUs.
    pub cpus: Option<CpuSet>,
}

/// A choice of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Replicas {
    /// Whichever leads when the trigger is met.
    Leader,
    /// The lowest-numbered one that does not lead when the trigger is met.
    Follower,
    /// Every one: a common-mode fault.
    All,
    /// These: bit i is replica i. Not empty.
    Set(u8),
}

/// A choice of processes in a tree that forks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Processes {
    /// All of them.
    All,
    /// By order of creation, the first process being 0.
    Rank(u32),
}

/// A thread by its path in the creation tree: `main`, `main.2` (its second child), `main.2.1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ThreadPath(Vec<u32>);

/// When a fault happens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// At executions of one instruction.
    Site {
        /// Its address.
        at: Location,
        /// Which executions.
        hits: Hits,
    },
    /// At executions of any instruction of a class: the mercurial core.
    Class {
        /// The classes, in ascending order, none twice.
        classes: Vec<InsnClass>,
        /// Restricts the class to a module or a symbol.
        within: Option<Scope>,
        /// Which executions, counted over the whole class.
        hits: Hits,
    },
    /// At one event of the victim.
    Event {
        /// Which one, counted from 1.
        index: EventIndex,
        /// Before or after the replicas have agreed on it.
        phase: EventPhase,
    },
    /// At transfers between the program and its files.
    File {
        /// Which way.
        access: Access,
        /// Whose path matches this.
        path: PathGlob,
        /// Only those that move one of these bytes of the file.
        offset: Option<Extent>,
        /// Which of them.
        hits: Hits,
    },
    /// At a moment of running time; never exactly repeatable.
    Clock {
        /// Nanoseconds after the guest's first instruction; nothing means one period.
        after_ns: Option<u64>,
        /// Nanoseconds between repetitions.
        every_ns: Option<NonZeroU64>,
        /// Only if the thread is then executing here.
        within: Option<Scope>,
    },
}

/// Which executions of an instruction or a class are hit: `first`, then every `step` up to `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hits {
    /// First execution that is hit, counted from 1.
    pub first: NonZeroU64,
    /// Last one that may be hit; nothing means for ever.
    pub last: Option<NonZeroU64>,
    /// Distance between hits.
    pub step: NonZeroU64,
    /// Each of them only with this chance.
    pub odds: Option<Odds>,
}

impl Hits {
    /// One execution.
    #[must_use]
    pub const fn once(n: NonZeroU64) -> Self {
        Self {
            first: n,
            last: Some(n),
            step: NonZeroU64::MIN,
            odds: None,
        }
    }

    /// From `n` on, for ever: a persistent fault.
    #[must_use]
    pub const fn from(n: NonZeroU64) -> Self {
        Self {
            first: n,
            last: None,
            step: NonZeroU64::MIN,
            odds: None,
        }
    }

    /// Whether the `n`-th execution is a candidate; the odds, if any, are drawn on top.
    #[must_use]
    pub fn includes(&self, n: u64) -> bool {
        n >= self.first.get()
            && self.last.is_none_or(|last| n <= last.get())
            && (n - self.first.get()).is_multiple_of(self.step.get())
    }

    /// Whether at most one execution can be hit.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.last
            .is_some_and(|last| last.get() - self.first.get() < self.step.get())
    }
}

/// An intermittent fault: each candidate hits with chance 1 in `one_in`, drawn from its own seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Odds {
    /// The denominator of the chance.
    pub one_in: NonZeroU64,
    /// Seed of the draw, so that the run can be repeated.
    pub seed: u64,
}

/// A restriction to code of one module, or of one symbol in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// The module.
    pub module: Module,
    /// The symbol, from its start to its end.
    pub symbol: Option<String>,
}

/// The two moments around the vote on an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum EventPhase {
    /// Before the victim publishes its claim: what it publishes is wrong.
    #[default]
    BeforeClaim,
    /// After the vote, before the kernel (for the leader) or the guest (for a follower) reads
    /// what was voted on: the window that voting cannot see.
    AfterVote,
}

words! {
    /// Classes of instructions that share an execution unit, as far as field reports tell them
    /// apart (Hochschild et al., HotOS 2021; Wang et al., SOSP 2023).
    InsnClass {
        /// Integer add, subtract, logic, shift, compare.
        IntAlu = "int-alu",
        /// Integer multiplication.
        IntMul = "int-mul",
        /// Integer division.
        IntDiv = "int-div",
        /// Floating-point addition, subtraction, comparison, conversion.
        FpAdd = "fp-add",
        /// Floating-point multiplication and fused multiply-add.
        FpMul = "fp-mul",
        /// Floating-point division and square root.
        FpDiv = "fp-div",
        /// Vector integer arithmetic and logic.
        VecInt = "vec-int",
        /// Vector shuffles, permutations, packs.
        Shuffle = "shuffle",
        /// Reads of memory.
        Load = "load",
        /// Writes of memory.
        Store = "store",
        /// Gathers and scatters.
        Gather = "gather",
        /// CRC32 instructions.
        Crc = "crc",
        /// AES, SHA and carry-less multiplication.
        Crypto = "crypto",
        /// Locked read-modify-write and exchange.
        Atomic = "atomic",
        /// Jumps, calls, returns.
        Branch = "branch",
    }
}

words! {
    /// Whose state is hit.
    Part {
        /// The guest: its registers, code and data.
        App = "app",
        /// The agent's own registers, code and data.
        Agent = "agent",
        /// The shared log.
        Log = "log",
    }
}

words! {
    /// What happens to a replica or to an instruction, where no bits are flipped.
    Incident {
        /// The replica dies of an undefined instruction in place of the next one.
        Crash = "crash",
        /// The replica is stopped and scheduled no more.
        Stop = "stop",
        /// The replica spins for ever, burning CPU time.
        Hang = "hang",
        /// The instruction is not executed.
        Skip = "skip",
        /// The instruction is executed twice.
        Repeat = "repeat",
        /// The conditional branch goes the other way.
        Invert = "invert",
    }
}

/// What a fault does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Bits change.
    Bits {
        /// Whose.
        part: Part,
        /// In what.
        target: Target,
        /// Which, counted within the target.
        bits: Bits,
        /// To what.
        change: Change,
    },
    /// Something other than bits goes wrong.
    Incident(Incident),
    /// This signal is sent to the replica from outside.
    Kill(u8),
    /// A transfer does something else than its work.
    Storage(Storage),
}

/// What becomes of the chosen bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// They are inverted.
    Flip,
    /// They read 0.
    Stuck0,
    /// They read 1.
    Stuck1,
}

/// What holds the bits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A register.
    Register(Register, Moment),
    /// Memory anywhere; bit 0 is the least significant bit of the addressed byte.
    Memory(MemExpr, Moment),
    /// The bytes that the instruction reads from memory.
    ReadValue(Lasting),
    /// The bytes that the instruction writes to memory.
    WrittenValue,
    /// The effective address of the only memory operand.
    Address,
    /// The effective address from which the instruction reads.
    ReadAddress,
    /// The effective address to which the instruction writes.
    WrittenAddress,
    /// The address of the next instruction.
    Ip,
    /// The instruction's own bytes, from the trigger on; bit 0 is in the opcode's first byte.
    Code,
    /// Bytes that a transfer moves, from this one on: counted from `offset=` where that is given,
    /// else from the first that it moves.
    Data(u64),
}

/// On which side of the triggering instruction state is hit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Moment {
    /// Before it executes, to stay until overwritten.
    #[default]
    Before,
    /// Before it executes, and undone after it unless it overwrote the place: the operand was
    /// misread, the register is sound.
    BeforeOnly,
    /// After it has executed.
    After,
}

/// Whether a wrong value that was read stays in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Lasting {
    /// The cell is wrong from now on.
    #[default]
    Sticky,
    /// Only this read is wrong.
    ReadOnly,
}

words! {
    /// The name under which reports group faults.
    Model {
        /// A register is wrong after it was written.
        WriteRegister = "wreg",
        /// A register is wrong when it is read.
        ReadRegister = "rreg",
        /// A wrong value is stored.
        WriteValue = "wval",
        /// A wrong value is loaded.
        ReadValue = "rval",
        /// A value is stored to a wrong place.
        WriteAddress = "waddr",
        /// A value is loaded from a wrong place.
        ReadAddress = "raddr",
        /// A memory operand has a wrong address; read or write is the instruction's affair.
        Address = "addr",
        /// Execution goes on at a wrong place.
        ControlFlow = "cf",
        /// A flag is wrong.
        Flags = "flags",
        /// Memory is wrong.
        Memory = "mem",
        /// Code is wrong.
        Code = "code",
        /// A process crashes, stops, hangs or is killed.
        Process = "process",
        /// A file is read wrong.
        ReadData = "rdata",
        /// A file is written wrong.
        WriteData = "wdata",
        /// A file is read as it was before.
        Stale = "stale",
        /// A file is read from a wrong place.
        MisRead = "misread",
        /// A file is written at a wrong place.
        MisWrite = "miswrite",
        /// A write to a file is lost.
        Lost = "lost",
        /// A write to a file is torn.
        Torn = "torn",
    }
}

impl Fault {
    /// Puts a fault together.
    ///
    /// # Errors
    /// When the parts do not go together or a name cannot be written; the message speaks of the
    /// line that the fault would print as.
    pub fn new(victim: Victim, trigger: Trigger, effect: Effect) -> Result<Self, FaultError> {
        let fault = Self {
            victim,
            trigger,
            effect,
        };
        let line = fault.to_string();
        // Going through the text keeps one set of rules, and makes "prints what it parses" true
        // of every value, however it was made.
        match parse::line(&line) {
            Ok(read) if read == fault => Ok(fault),
            Ok(read) => Err(FaultError::not_canonical(&line, &read)),
            Err(why) => Err(why),
        }
    }

    /// Whom it strikes.
    #[must_use]
    pub const fn victim(&self) -> &Victim {
        &self.victim
    }

    /// When.
    #[must_use]
    pub const fn trigger(&self) -> &Trigger {
        &self.trigger
    }

    /// What it does.
    #[must_use]
    pub const fn effect(&self) -> &Effect {
        &self.effect
    }

    /// Whose state it hits; a incident hits the guest.
    #[must_use]
    pub const fn part(&self) -> Part {
        match self.effect {
            Effect::Bits { part, .. } => part,
            Effect::Incident(_) | Effect::Kill(_) | Effect::Storage(_) => Part::App,
        }
    }

    /// Whether it strikes transfers between the program and its files.
    #[must_use]
    pub const fn is_storage(&self) -> bool {
        matches!(self.trigger, Trigger::File { .. })
    }

    /// The group under which reports count it.
    #[must_use]
    pub const fn model(&self) -> Model {
        match &self.effect {
            Effect::Bits { target, .. } => match target {
                Target::Register(Register::Flags, _) => Model::Flags,
                Target::Register(_, Moment::After) => Model::WriteRegister,
                Target::Register(_, Moment::Before | Moment::BeforeOnly) => Model::ReadRegister,
                Target::Memory(..) => Model::Memory,
                Target::ReadValue(_) => Model::ReadValue,
                Target::WrittenValue => Model::WriteValue,
                Target::Address => Model::Address,
                Target::ReadAddress => Model::ReadAddress,
                Target::WrittenAddress => Model::WriteAddress,
                Target::Ip => Model::ControlFlow,
                Target::Code => Model::Code,
                Target::Data(_) => match self.trigger {
                    Trigger::File {
                        access: Access::Write,
                        ..
                    } => Model::WriteData,
                    _ => Model::ReadData,
                },
            },
            Effect::Incident(Incident::Skip | Incident::Repeat | Incident::Invert) => {
                Model::ControlFlow
            }
            Effect::Incident(Incident::Crash | Incident::Stop | Incident::Hang)
            | Effect::Kill(_) => Model::Process,
            Effect::Storage(Storage::Stale) => Model::Stale,
            Effect::Storage(Storage::Lost) => Model::Lost,
            Effect::Storage(Storage::Torn { .. }) => Model::Torn,
            Effect::Storage(Storage::Misdirected { .. }) => match self.trigger {
                Trigger::File {
                    access: Access::Write,
                    ..
                } => Model::MisWrite,
                _ => Model::MisRead,
            },
        }
    }

    /// Reads the faults of one run: one per line or separated by `;`, with `#` comments and
    /// empty lines between them.
    ///
    /// # Errors
    /// The first line that is not a fault, with its number.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, FaultError> {
        parse::plan(text)
    }
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        parse::line(line)
    }
}

impl FromStr for ServiceFault {
    type Err = FaultError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        parse::service(line)
    }
}

string_in_json!(
    Fault,
    "fault, in the grammar of docs/reference/fault-grammar.md",
    "^[^;#]+$"
);

impl Replicas {
    /// Replicas a set can name: the width of its bit mask.
    pub const COUNT_MAX: u8 = 8;

    /// The choice of one replica by number; nothing if there is no such number.
    #[must_use]
    pub const fn one(replica: ReplicaId) -> Option<Self> {
        if replica.0 < Self::COUNT_MAX {
            Some(Self::Set(1 << replica.0))
        } else {
            None
        }
    }

    /// Whether a replica is struck, given which one leads and which live.
    pub fn includes(
        &self,
        replica: ReplicaId,
        leader: ReplicaId,
        live: impl IntoIterator<Item = ReplicaId>,
    ) -> bool {
        match self {
            Self::Leader => replica == leader,
            Self::Follower => live.into_iter().filter(|&r| r != leader).min() == Some(replica),
            Self::All => true,
            Self::Set(set) => replica.0 < Self::COUNT_MAX && set >> replica.0 & 1 == 1,
        }
    }

    /// The highest number that is named, if any is.
    #[must_use]
    pub fn highest(&self) -> Option<ReplicaId> {
        match self {
            Self::Set(set) => set
                .checked_ilog2()
                .and_then(|bit| u8::try_from(bit).ok())
                .map(ReplicaId),
            Self::Leader | Self::Follower | Self::All => None,
        }
    }
}

impl ThreadPath {
    /// The first thread.
    #[must_use]
    pub const fn main() -> Self {
        Self(Vec::new())
    }

    /// A thread by the ranks of its ancestors among their siblings, each counted from 1.
    #[must_use]
    pub fn new(ranks: impl IntoIterator<Item = NonZeroU64>) -> Option<Self> {
        ranks
            .into_iter()
            .map(|rank| u32::try_from(rank.get()).ok())
            .collect::<Option<Vec<_>>>()
            .map(Self)
    }

    /// Ranks from the first thread down; empty for itself.
    #[must_use]
    pub fn ranks(&self) -> &[u32] {
        &self.0
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.victim, self.trigger, self.effect)
    }
}

impl fmt::Display for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(replicas) = &self.replicas {
            write!(f, "replica={replicas} ")?;
        }
        match self.process {
            Some(Processes::All) => f.write_str("process=all ")?,
            Some(Processes::Rank(rank)) => write!(f, "process={rank} ")?,
            None => {}
        }
        if let Some(thread) = &self.thread {
            write!(f, "thread={thread} ")?;
        }
        if let Some(cpus) = &self.cpus {
            write!(f, "cpu={cpus} ")?;
        }
        Ok(())
    }
}

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leader => f.write_str("leader"),
            Self::Follower => f.write_str("follower"),
            Self::All => f.write_str("all"),
            Self::Set(set) => {
                let mut separator = "";
                for replica in (0..Self::COUNT_MAX).filter(|replica| set >> replica & 1 == 1) {
                    write!(f, "{separator}{replica}")?;
                    separator = ",";
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for ThreadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("main")?;
        self.0.iter().try_for_each(|rank| write!(f, ".{rank}"))
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Site { at, hits } => write!(f, "at={at} {hits}"),
            Self::Class {
                classes,
                within,
                hits,
            } => {
                f.write_str("class=")?;
                for (i, class) in classes.iter().enumerate() {
                    write!(f, "{}{class}", if i == 0 { "" } else { "," })?;
                }
                in_scope(f, within.as_ref())?;
                write!(f, " {hits}")
            }
            Self::Event { index, phase } => {
                write!(f, "event={index}")?;
                match phase {
                    EventPhase::BeforeClaim => Ok(()),
                    EventPhase::AfterVote => f.write_str(" after-vote"),
                }
            }
            Self::File {
                access,
                path,
                offset,
                hits,
            } => {
                write!(f, "{access}={path}")?;
                if let Some(offset) = offset {
                    write!(f, " offset={offset}")?;
                }
                write!(f, " {hits}")
            }
            Self::Clock {
                after_ns,
                every_ns,
                within,
            } => {
                let mut separator = "";
                if let Some(after_ns) = after_ns {
                    write!(f, "time={}", parse::Duration(*after_ns))?;
                    separator = " ";
                }
                if let Some(every_ns) = every_ns {
                    write!(f, "{separator}every={}", parse::Duration(every_ns.get()))?;
                }
                in_scope(f, within.as_ref())
            }
        }
    }
}

fn in_scope(f: &mut fmt::Formatter<'_>, scope: Option<&Scope>) -> fmt::Result {
    match scope {
        Some(scope) => write!(f, " in={scope}"),
        None => Ok(()),
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.module.fmt(f)?;
        match &self.symbol {
            Some(symbol) => write!(f, "!{symbol}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Hits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n={}", self.first)?;
        match self.last {
            Some(last) if last == self.first => {}
            Some(last) => write!(f, "..{last}")?,
            None => f.write_str("..")?,
        }
        if self.step.get() > 1 {
            write!(f, "%{}", self.step)?;
        }
        match self.odds {
            Some(Odds { one_in, seed }) => write!(f, " one-in={one_in} seed={seed}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits {
                part,
                target,
                bits,
                change,
            } => {
                if *part != Part::App {
                    write!(f, " target={part}")?;
                }
                write!(f, " {target} {bits}")?;
                match change {
                    Change::Flip => Ok(()),
                    Change::Stuck0 => f.write_str(" stuck=0"),
                    Change::Stuck1 => f.write_str(" stuck=1"),
                }
            }
            Self::Incident(incident) => write!(f, " kind={incident}"),
            Self::Kill(signal) => write!(f, " kill={signal}"),
            Self::Storage(storage) => write!(f, " {storage}"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(register, moment) => write!(f, "reg={register}{moment}"),
            Self::Memory(expr, moment) => write!(f, "mem={expr}{moment}"),
            Self::ReadValue(Lasting::Sticky) => f.write_str("rval"),
            Self::ReadValue(Lasting::ReadOnly) => f.write_str("rval once"),
            Self::WrittenValue => f.write_str("wval"),
            Self::Address => f.write_str("addr"),
            Self::ReadAddress => f.write_str("raddr"),
            Self::WrittenAddress => f.write_str("waddr"),
            Self::Ip => f.write_str("ip"),
            Self::Code => f.write_str("code"),
            Self::Data(byte) => write!(f, "byte={byte}"),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "",
            Self::BeforeOnly => " once",
            Self::After => " after",
        })
    }
}
