//! Whose state faults strike when a program runs as replicas: its own, or that of what protects it.
//!
//! ```text
//!   agent      agent-wreg … agent-cf   uniform over the instructions that the agent executes in each replica
//!              agent-fixed             a bit of its code or constants   ┐ uniform over the bytes; when:
//!              agent-written           a bit of its variables or stacks │ at an instruction of the
//!   log        control                 a bit of the control block       │ program, uniform over those
//!              records                 a bit of claims, results, bytes  ┘
//!              window                  an argument, or a byte it points to, between vote and effect
//!   processes  keeper, job_control     a bit of a process that no plan of `run --flip` can reach ┐ the moment:
//!              launcher, mending       the same; and while a replica is struck as well           │ uniform over
//!              arena                   a bit of the code planted in one replica                  ┘ a run
//!              repair                  a value in a replica, and one in the code that repairs it
//!              pair                    values in two replicas
//! ```
//!
//! Invariants
//!  1. `window` is a condition ("a fault strikes there"), `repair` and `pair` are two faults: none is summed with others.
//!  2. The injector's own stack and state are left out: no particle strikes what is not there.
//!
//! Not covered: the kernel; the first process of a namespace (`--equal-pids=on`); memory that the processes share with the replicas, struck from outside (`log` strikes it); threads of the
//! launcher other than its first, in their registers.

mod beside;
mod own;
pub(crate) mod strike;

use serde::{Deserialize, Serialize};
use steadfast_report::results::Place;

use crate::chacha::{Draw, Seed};
use crate::models::{Model, Shape};

pub use self::strike::{Strike, Whom};

/// Whose state faults strike.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Victim {
    /// The program's: code, registers, memory.
    #[default]
    Program,
    /// The agent's in each replica.
    Agent,
    /// The control block and the log; and events between vote and effect.
    Log,
    /// Processes around the replicas, planted code, and two faults in one run.
    Processes,
}

impl Victim {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Program, Self::Agent, Self::Log, Self::Processes];

    /// The word in flags and files.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Agent => "agent",
            Self::Log => "log",
            Self::Processes => "processes",
        }
    }

    /// The victim of this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Whether it is the default one: files do not name it.
    #[must_use]
    pub fn is_program(&self) -> bool {
        *self == Self::Program
    }

    /// Names of the fault types, in the order of the plan.
    #[must_use]
    pub fn fault_types(self, models: &[Model]) -> Vec<String> {
        let words: &[&str] = match self {
            Self::Program => return models.iter().map(|m| m.word().to_owned()).collect(),
            Self::Agent => {
                let of = models.iter().map(|m| format!("agent-{}", m.word()));
                return of.chain(own::BYTES.map(str::to_owned)).collect();
            }
            Self::Log => &own::LOG,
            Self::Processes => &beside::ALL,
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }
}

/// What two replicas execute of the agent in a run without a fault.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Counts {
    /// By replica: distance from the agent's start, and executions.
    pub replicas: Vec<Vec<(u64, u64)>>,
    /// Events of the run.
    pub events: u64,
}

/// One execution of an instruction of the program.
pub(crate) struct Execution {
    /// `at=MODULE+OFFSET n=N`.
    pub(crate) text: String,
    pub(crate) place: Place,
    pub(crate) n: u64,
}

/// Draws an execution, uniformly over those at which `run --flip` can strike.
pub(crate) type Sites<'a> = &'a dyn Fn(&mut Draw) -> Option<Execution>;

/// One drawn fault.
#[derive(Debug, Default)]
pub(crate) struct Drawn {
    pub(crate) fault: String,
    pub(crate) place: Option<Place>,
    pub(crate) n: Option<u64>,
    pub(crate) register: Option<String>,
    pub(crate) bits: Vec<u16>,
    pub(crate) strike: Option<Strike>,
}

impl Drawn {
    /// An effect at an execution of the program.
    fn at(execution: Execution, before: &str, effect: &str) -> Self {
        Self {
            fault: format!("{before}{} {effect}", execution.text),
            place: Some(execution.place),
            n: Some(execution.n),
            ..Self::default()
        }
    }
}

/// Faults of one type.
pub(crate) struct Group {
    pub(crate) name: String,
    /// Executions, bytes or events that can have it, and those of them that can be struck.
    pub(crate) population: u64,
    pub(crate) reachable: u64,
    pub(crate) drawn: Vec<Drawn>,
}

/// What is to be drawn.
pub(crate) struct Wanted<'a> {
    pub(crate) models: &'a [Model],
    pub(crate) shape: Shape,
    pub(crate) runs: u64,
    pub(crate) seed: &'a Seed,
    /// Bytes that the program reads.
    pub(crate) input: u64,
}

/// The faults of a victim.
///
/// # Errors
/// What the agent's own file lacks.
pub(crate) fn draw(
    victim: Victim,
    wanted: &Wanted<'_>,
    counts: &Counts,
    sites: Sites<'_>,
) -> Result<Vec<Group>, String> {
    match victim {
        Victim::Program => Ok(Vec::new()),
        Victim::Agent => own::agent(wanted, counts, sites),
        Victim::Log => Ok(own::log(wanted, counts, sites)),
        Victim::Processes => beside::draw(wanted, sites),
    }
}

#[cfg(test)]
mod tests;
