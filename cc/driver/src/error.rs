//! What is wrong with a command line of `steadfast cc`, and what is to be done about it.

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;

/// A command line that cannot be hardened.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum CommandError {
    /// `-shared` with what only a whole program can have.
    #[error("a program or a static library is needed for {0}, found -shared")]
    Shared(&'static str),
    /// Bitcode or IR as input: it may have been optimised without the pass.
    #[error("C or C++ source is needed, found {0}")]
    Bitcode(String),
    /// A flag that takes the pass out of clang's pipeline.
    #[error("{0} would keep the pass from running")]
    Disabled(String),
    /// One of our flags has no value.
    #[error("--{0} needs a value")]
    NoValue(&'static str),
    /// `--state` names something else.
    #[error("--state takes ecc, dup, crc or dup,crc, found {0}")]
    State(String),
    /// `--between` names something else.
    #[error("--between takes off or duplicate, found {0}")]
    Between(String),
    /// `--validate` names something else.
    #[error("--validate takes sync, async or async:HANDLERS with 1 to 4096 handlers, found {0}")]
    Validate(String),
    /// `--protect` names something else.
    #[error("--protect takes sei or full, found {0}")]
    Protect(String),
    /// `--protect=sei` with what rests on the checks that it leaves out.
    #[error("--protect=sei leaves out checks that {0} rests on")]
    Level(&'static str),
    /// `--hold-output` where nothing waits.
    #[error("--hold-output needs --validate=async, found neither that nor anything to wait for")]
    HoldAlone,
    /// Flags that exclude each other.
    #[error("--validate=async runs each handler's second run later, and {0} needs it at once")]
    Together(&'static str),
    /// `late-errors next-call` where another part has the same calls.
    #[error(
        "late-errors next-call of the policy and {0} both answer the program's own calls that write"
    )]
    Late(&'static str),
    /// `--validate=async` for C++.
    #[error("--validate=async is for C programs, found C++")]
    ValidateCxx,
    /// A processor or system that the runtime is not made for.
    #[error("code for x86-64 Linux is hardened, found {0}")]
    Target(String),
    /// clang's inner command, which loads no pass.
    #[error("clang's own command line is needed, found {0}, which is what it calls itself with")]
    Inner(String),
    /// Our commands take a program and nothing else.
    #[error("one program or object file is needed, found {found}")]
    OneFile {
        /// How many there are.
        found: usize,
    },
}

impl Advise for CommandError {
    fn exit(&self) -> Own {
        match self {
            Self::NoValue(_)
            | Self::OneFile { .. }
            | Self::State(_)
            | Self::Between(_)
            | Self::Validate(_)
            | Self::Protect(_)
            | Self::HoldAlone => Own::Usage,
            _ => Own::Setup,
        }
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(match self {
            Self::Shared(_) => {
                "build the library static (--disable-shared), or without the flag, and name the functions that handlers call in a policy"
            }
            Self::Bitcode(_) => "compile the source with `steadfast cc`",
            Self::Disabled(_) => "leave the flag out",
            Self::State(_) => "--state=dup for copies, --state=crc for checksums",
            Self::Between(_) => {
                "--between=duplicate computes code outside handlers twice; leave the flag out, or off, for neither"
            }
            Self::Validate(_) => "--validate=async:64 lets 64 handlers wait for their second run",
            Self::Protect(_) => {
                "--protect=sei for the paper's rules alone; leave the flag out, or full, for all checks"
            }
            Self::Level(_) => "leave one of the two out",
            Self::HoldAlone => {
                "add --validate=async, or leave --hold-output out: messages wait then anyway"
            }
            Self::Together(_) => "leave one of the two out",
            Self::Late(_) => "leave the flag out, or say late-errors network or stop",
            Self::ValidateCxx => {
                "leave --validate=async out: the second run comes before the effects then"
            }
            Self::Target(_) => {
                "leave the flag out, or compile this file with clang-19: it cannot be part of a hardened program"
            }
            Self::Inner(_) => {
                "call steadfast cc as clang is called; single words for the inner command go behind -Xclang"
            }
            Self::NoValue(_) => "--steadfast-policy=FILE, --explain FILE:LINE PROGRAM",
            Self::OneFile { .. } => "steadfast cc --coverage[=json] PROGRAM",
        }))
    }
}
