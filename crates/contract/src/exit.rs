//! Exit codes of the command, and the verdict behind them.
//!
//! A protected program's status passes through untouched: its exit status verbatim, its death by
//! a signal by dying of the same signal. Only when Steadfast itself has something to say does a
//! code of [`Own`] appear. A program may of course return 122 of its own accord; the
//! unambiguous verdict is in `--json` and `--events`.
//!
//! Not covered: the codes of `steadfast inject gate`, which answer another question.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The codes by which Steadfast speaks for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Own {
    /// The command line is wrong: nothing was started. `EX_USAGE` of sysexits(3).
    Usage = 64,
    /// The machine, its settings or something that the program asked for does not allow
    /// protection: the run did not start, or was stopped before the unsupported thing happened.
    Setup = 121,
    /// Replicas disagreed and the run was stopped: what had been agreed stays, nothing else left.
    Mismatch = 122,
    /// Steadfast is at fault.
    Bug = 123,
    /// The program was found but cannot be executed, as env(1) says it.
    NotExecutable = 126,
    /// The program was not found, as env(1) says it.
    NotFound = 127,
}

impl Own {
    /// Every code, in ascending order: documentation and tests walk this list.
    pub const ALL: [Self; 6] = [
        Self::Usage,
        Self::Setup,
        Self::Mismatch,
        Self::Bug,
        Self::NotExecutable,
        Self::NotFound,
    ];

    /// The number given to exit(2).
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// One line for the manual.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Usage => "the command line is wrong; nothing was started",
            Self::Setup => {
                "the machine or its settings do not allow protection, or the program asked for something that is not supported"
            }
            Self::Mismatch => {
                "the replicas disagreed and the run was stopped before a wrong byte left"
            }
            Self::Bug => "Steadfast itself failed",
            Self::NotExecutable => "the program was found but cannot be executed",
            Self::NotFound => "the program was not found",
        }
    }
}

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code())
    }
}

/// How the process of the command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The program's own status, verbatim.
    Status(u8),
    /// The program died of this signal, and so does the command.
    Signal(i32),
    /// Steadfast speaks for itself.
    Own(Own),
}

/// The judgement on a whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All replicas agreed at every event.
    Agreed,
    /// They disagreed, the loser was repaired, and the run went on to its own end.
    Corrected,
    /// They disagreed and the run was stopped.
    Stopped,
    /// The program asked for something that is not supported, and was stopped before it happened.
    Refused,
    /// Only one replica ran: nothing was compared, so nothing is promised.
    Unprotected,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_documented_ones_and_distinct() {
        assert_eq!(Own::ALL.map(Own::code), [64, 121, 122, 123, 126, 127]);
    }

    #[test]
    fn every_code_has_a_meaning_of_its_own() {
        let mut meanings: Vec<_> = Own::ALL.iter().map(|own| own.meaning()).collect();
        meanings.sort_unstable();
        meanings.dedup();
        assert_eq!(meanings.len(), Own::ALL.len());
    }
}
