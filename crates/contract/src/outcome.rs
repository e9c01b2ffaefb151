//! What became of an injected fault: one leaf per run, rolled up to eight words.
//!
//! Leaves follow the first rule that matches, in the order of [`Leaf::ALL`] as far as the
//! evidence of one run goes; the roll-up words are the ones that reports print. Two leaves are
//! not results at all: a fault that did not fire proves nothing about the target, and neither
//! does a run that the test bed spoiled.
//!
//! Not covered: how evidence is gathered, and rates with their intervals.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The words of every report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The fault fired and the output is right without anybody having noticed.
    Masked,
    /// A detector spoke and the run was stopped before wrong bytes left.
    Detected,
    /// A detector spoke, the damage was repaired, the output is right.
    Corrected,
    /// Silent data corruption: wrong bytes left.
    Sdc,
    /// The program died or gave up by itself.
    Crash,
    /// The program did not end within its budget.
    Hang,
    /// A detector spoke although nothing was injected.
    FalseAlarm,
    /// The fault never happened: the run is invalid and is drawn again.
    NotFired,
    /// The test bed failed: the run is invalid.
    Infra,
}

macro_rules! leaves {
    ($($(#[doc = $doc:literal])+ $leaf:ident = $word:literal => $roll:ident;)+) => {
        /// Exactly one of these is the result of a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum Leaf {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $leaf,)+
        }

        impl Leaf {
            /// All leaves, in the order in which their rules are tried.
            pub const ALL: &[Self] = &[$(Self::$leaf),+];

            /// The word in files and reports.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$leaf => $word),+ }
            }

            /// The roll-up word above this leaf.
            #[must_use]
            pub const fn outcome(self) -> Outcome {
                match self { $(Self::$leaf => Outcome::$roll),+ }
            }
        }
    };
}

leaves! {
    /// Sandbox, disk or injector failure.
    Infra = "infra" => Infra;
    /// The event record is empty.
    NotFired = "not_fired" => NotFired;
    /// A detector spoke in a run without a fault.
    FalseAlarm = "false_alarm" => FalseAlarm;
    /// A detector spoke, but only after wrong bytes had left.
    SdcLate = "sdc_late" => Sdc;
    /// A repair was claimed and the output is wrong.
    CorrectedWrong = "corrected_wrong" => Sdc;
    /// Detected, repaired, output right.
    Corrected = "corrected" => Corrected;
    /// Our runtime stopped or fenced the program.
    DetectedStop = "detected_stop" => Detected;
    /// The output is wrong, but integrity code that travels with it rejects it.
    DetectedClient = "detected_client" => Detected;
    /// Out of its CPU-time budget, still burning.
    HangLivelock = "hang_livelock" => Hang;
    /// Out of its wall-time budget, not burning.
    HangDeadlock = "hang_deadlock" => Hang;
    /// Died of a signal.
    CrashSignal = "crash_signal" => Crash;
    /// Died of an assertion or a hardening check of its own.
    CrashAssert = "crash_assert" => Crash;
    /// Ended with a status that the golden run does not have.
    ErrorExit = "error_exit" => Crash;
    /// Said that something is wrong, in its own words.
    ErrorMsg = "error_msg" => Crash;
    /// The output is a proper prefix of the golden one.
    Truncated = "truncated" => Crash;
    /// The golden trace differs, no detector spoke, and a client would accept the output.
    Sdc = "sdc" => Sdc;
    /// The output is right, but later than the slowest golden runs explain.
    Slow = "slow" => Masked;
    /// The output is right, and the final state differs from the golden one.
    MaskedLatent = "masked_latent" => Masked;
    /// The output is right, and so is the final state as far as it was looked at.
    MaskedClean = "masked_clean" => Masked;
}

impl Leaf {
    /// Whether the run says something about the target.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        self.outcome().is_valid()
    }

    /// Whether the fault became visible: the denominator "per manifested error".
    #[must_use]
    pub const fn is_manifested(self) -> bool {
        self.outcome().is_manifested()
    }
}

impl Outcome {
    /// Every roll-up word.
    pub const ALL: [Self; 9] = [
        Self::Masked,
        Self::Detected,
        Self::Corrected,
        Self::Sdc,
        Self::Crash,
        Self::Hang,
        Self::FalseAlarm,
        Self::NotFired,
        Self::Infra,
    ];

    /// The word in files and reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Masked => "masked",
            Self::Detected => "detected",
            Self::Corrected => "corrected",
            Self::Sdc => "sdc",
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::FalseAlarm => "false_alarm",
            Self::NotFired => "not_fired",
            Self::Infra => "infra",
        }
    }

    /// Whether the run counts in the denominator "per valid injection". A false alarm belongs to
    /// a run without a fault, and so to another denominator.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        !matches!(self, Self::FalseAlarm | Self::NotFired | Self::Infra)
    }

    /// Whether the run counts in the denominator "per manifested error".
    #[must_use]
    pub const fn is_manifested(self) -> bool {
        self.is_valid() && !matches!(self, Self::Masked)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_json_are_the_words_in_reports() {
        for leaf in Leaf::ALL {
            assert_eq!(
                serde_json::to_string(leaf).expect("a string"),
                format!("\"{}\"", leaf.word())
            );
        }
        for outcome in Outcome::ALL {
            assert_eq!(
                serde_json::to_string(&outcome).expect("a string"),
                format!("\"{}\"", outcome.word())
            );
        }
    }

    #[test]
    fn every_outcome_has_a_leaf() {
        for outcome in Outcome::ALL {
            assert!(
                Leaf::ALL.iter().any(|leaf| leaf.outcome() == outcome),
                "{outcome}"
            );
        }
    }

    #[test]
    fn a_wrong_output_never_counts_as_a_success() {
        for leaf in [Leaf::Sdc, Leaf::SdcLate, Leaf::CorrectedWrong] {
            assert_eq!(leaf.outcome(), Outcome::Sdc);
            assert!(leaf.is_manifested());
        }
    }

    #[test]
    fn a_run_without_a_fault_proves_nothing() {
        assert!(
            !Leaf::NotFired.is_valid() && !Leaf::Infra.is_valid() && !Leaf::FalseAlarm.is_valid()
        );
    }
}
