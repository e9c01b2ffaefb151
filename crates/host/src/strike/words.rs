//! What both processes know: how a component is protected, what is struck, what the second one tells.

use serde::{Deserialize, Serialize};
use steadfast_restart::Policy;

use crate::clients::Counts;

/// How a component is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// wasmtime as it is.
    Bare,
    /// Signal pad, checks of results, recovery.
    Single,
    /// The same with two bodies that are compared.
    Dual,
    /// One body, in a process of its own.
    Process,
    /// Two bodies that are compared, each in a process of its own.
    Processes,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Single => "single",
            Self::Dual => "dual",
            Self::Process => "process",
            Self::Processes => "processes",
        }
    }

    /// Whether the component shares no memory with its host.
    pub(crate) fn apart(self) -> bool {
        matches!(self, Self::Process | Self::Processes)
    }

    pub(super) fn bodies(self) -> u8 {
        if matches!(self, Self::Dual | Self::Processes) {
            2
        } else {
            1
        }
    }

    pub(super) fn policy(self) -> Policy {
        let protected = self != Self::Bare;
        Policy {
            dual: self.bodies() == 2,
            recover: protected,
            spare: protected && self != Self::Process,
            checks: protected,
            // Failures are counted here; a service would give up earlier.
            resets_max: u32::MAX,
            compare_every: 4,
            ..Policy::default()
        }
    }
}

/// Where a flip goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Target {
    /// General registers, while the component's code runs.
    Registers,
    /// Vector registers, while the component's code runs.
    Vectors,
    /// Eight general registers at once, as C³'s injector flips them: to compare, and only when asked for.
    Eight,
    /// Linear memory, between calls.
    Memory,
    /// General registers, while the host's own code runs: stubs, slot table, keeper, runtime.
    Host,
    /// What the host remembers of objects, between calls: slot table and keeper.
    Table,
}

impl Target {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Registers => "registers",
            Self::Vectors => "vectors",
            Self::Eight => "eight",
            Self::Memory => "memory",
            Self::Host => "host",
            Self::Table => "table",
        }
    }
}

/// What the client tells when it is asked to end, and before.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) counts: Counts,
    pub(super) resets: Vec<(String, u64)>,
    pub(super) recovery_ns: Option<u64>,
    pub(super) recovery_max_ns: Option<u64>,
    pub(super) rebuilt: u64,
    pub(super) flips: u64,
    /// Where the last flip struck, where that was drawn.
    #[serde(default)]
    pub(super) at: Option<super::At>,
}

/// The status of a client that ended because of a wrong answer.
pub(super) const WRONG: u8 = 3;

/// Rounds of calls that follow a flip before the reset that takes away what it may have left.
pub(super) const ROUNDS: u32 = 3;
