//! What keeps a pair from starting, or from going on.

use std::io;
use std::path::PathBuf;

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;
use steadfast_replica::LaunchError;

use crate::files::FollowError;
use crate::ledger::LedgerError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PairError {
    #[error("{program} has to be a program on both sites, and is not found here")]
    NotFound { program: String },
    #[error("{} has to be there and readable", .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(
        "--witness has to be none, dir:/PATH, http://HOST:PORT, or https://HOST:PORT with --witness-ca, found {found}"
    )]
    Witness { found: String },
    #[error("the witness has to answer before anything depends on it, and {witness} does not")]
    NoWitness { witness: String, source: io::Error },
    #[error("the peer is lost, and the witness says that it goes on alone")]
    Outvoted,
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error("the peer at {address} has to answer within {seconds} s, and does not")]
    Peer {
        address: String,
        seconds: u64,
        source: io::Error,
    },
    #[error("a site has to run with this ledger, and {} does not answer", .path.display())]
    Silent { path: PathBuf, source: io::Error },
    #[error("{address} has to be free to listen on")]
    Listen { address: String, source: io::Error },
    #[error("the link has to be secured by TLS, and {what}")]
    Tls { what: String, source: io::Error },
    #[error("what the peer says has to be understood")]
    Link(#[source] io::Error),
    #[error("both sites have to have the same {what}: here {here}, there {there}")]
    Unequal {
        what: &'static str,
        here: String,
        there: String,
    },
    #[error("the protected files have to be equal on both sites:\n    {}", .lines.join("\n    "))]
    Files { lines: Vec<String> },
    #[error("the site that is said to be right has to be as its ledger has it:\n    {}", .lines.join("\n    "))]
    NotRight { lines: Vec<String> },
    #[error("the peer refuses: {0}")]
    Refused(String),
    #[error("{0}")]
    Unsupported(String, String),
    #[error("{part} has to be free for a pair, and the kernel refuses it")]
    Kernel {
        part: &'static str,
        source: io::Error,
    },
    #[error("{0}")]
    Missing(String, String),
    #[error(transparent)]
    Follow(#[from] FollowError),
    #[error("stopped: {0}")]
    Stopped(String),
    #[error(
        "stopped: process {process} computes without a call while others of the program, threads or processes, wait for their turn: perhaps it waits for one of them in a loop, which would never end here"
    )]
    Spins { process: u32 },
    #[error("stopped, and the program is left to the other site: {0}")]
    Leaves(String),
    #[error("the peer is lost, and without a witness nobody knows whether it goes on alone")]
    Lost,
    #[error("{0}")]
    Bug(String),
}

/// Of a page that the two sites have alike.
pub(crate) const ALIKE: &str = "is equal on both sites, and not as the ledgers have it";
const AS_CHANGED: &str = "if you have changed them while the pair was stopped: copy them to both hosts, and remove the file `ledger` in the ledger's directory of both";

impl PairError {
    /// It is this site's alone: what it can do no more, the other one can.
    pub(crate) fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Leaves(_)
                | Self::Ledger(_)
                | Self::Follow(
                    FollowError::Ledger(_) | FollowError::Held(_) | FollowError::Disk { .. }
                )
        )
    }

    /// Why the other site has stopped, in its own words.
    pub(crate) fn told(text: &str) -> Self {
        Self::Stopped(text.strip_prefix("stopped: ").unwrap_or(text).to_owned())
    }
}

impl Advise for PairError {
    fn exit(&self) -> Own {
        match self {
            Self::NotFound { .. } => Own::NotFound,
            Self::Launch(error) => error.exit(),
            Self::Follow(FollowError::Wrong(_) | FollowError::Disk { .. })
            | Self::Stopped(_)
            | Self::Spins { .. }
            | Self::Leaves(_)
            | Self::Lost
            | Self::Outvoted => Own::Mismatch,
            Self::Bug(_) => Own::Bug,
            _ => Own::Setup,
        }
    }

    fn fix(&self) -> Option<Remedy> {
        Some(match self {
            Self::Witness { .. } => Remedy::with_note(
                "--witness none",
                "the loss of a site then stops the program",
            ),
            Self::Launch(error) => return error.fix(),
            Self::Ledger(LedgerError::SameDevice { .. }) => Remedy::with_note(
                "--ledger on another disk",
                "errors of one disk come together",
            ),
            Self::Ledger(LedgerError::Digest { path, found, .. }) => Remedy::with_note(
                format!("--digest {found} on both sites, or rm {}", path.display()),
                "without a ledger both sites enrol anew: compare their files first",
            ),
            Self::Ledger(LedgerError::Damaged { path, .. }) => Remedy::with_note(
                format!("rm {}", path.display()),
                "both sites then enrol anew: compare their files first",
            ),
            Self::Silent { .. } => Remedy::new(
                "give the ledger of a site that runs on this machine; steadfast pair verify looks at one at rest",
            ),
            Self::Ledger(LedgerError::Busy { .. }) => Remedy::with_note(
                "end the site that runs with it first",
                "steadfast pair status says what it does",
            ),
            Self::Peer { .. } => Remedy::new(
                "start steadfast pair secondary on the other host first, and let its port through",
            ),
            Self::Tls { .. } => Remedy::with_note(
                "give both sites --tls-cert, --tls-key and --tls-ca: certificates of one authority that are valid now, the listening site's for the host in --peer",
                "openssl verify -CAfile CA CERT, openssl x509 -in CERT -noout -dates -ext subjectAltName",
            ),
            Self::Files { lines } if lines.iter().all(|line| line.ends_with(ALIKE)) => {
                Remedy::with_note(
                    AS_CHANGED,
                    "if nobody has changed them both disks are wrong alike: steadfast pair verify --restore-from takes them from a backup",
                )
            }
            Self::Files { .. } => Remedy::with_note(
                "--right primary, or --right secondary, on both sites: the other one gets its files",
                "steadfast pair verify says which pages are not as the ledger has them",
            ),
            Self::NotRight { .. } => {
                Remedy::with_note("name the other site, if its files are right", AS_CHANGED)
            }
            Self::Unequal { .. } => {
                Remedy::new("start both sites with the same command, from the same packages")
            }
            Self::Unsupported(_, fix) | Self::Missing(_, fix) => Remedy::new(fix.clone()),
            Self::NoWitness { .. } => Remedy::with_note(
                "start the witness, or mount its directory on both sites",
                "--witness none: the loss of a site then stops the program",
            ),
            Self::Spins { .. } => Remedy::with_note(
                "run a program that waits in loops without steadfast pair",
                "where it only computes for long: --spins-after with more seconds, or 0 for never",
            ),
            Self::Lost => Remedy::new(
                "start both sites again: what the program has answered is on both disks",
            ),
            Self::Outvoted => Remedy::new(
                "leave the program where it runs; before the next start copy that site's files here",
            ),
            Self::Follow(FollowError::Wrong(_)) | Self::Stopped(_) | Self::Leaves(_) => {
                Remedy::new("steadfast pair verify on both sites")
            }
            Self::Follow(FollowError::Disk { .. }) => {
                Remedy::new("replace the disk; then steadfast pair join gives this site its files")
            }
            Self::Bug(_) => Remedy::new("report this with the program and its arguments"),
            _ => return None,
        })
    }
}

/// What is acknowledged can be held back no more.
pub(crate) fn unheld(source: io::Error) -> PairError {
    PairError::Kernel {
        part: "the map that holds acknowledgements back",
        source,
    }
}

/// Prints an error as every part of Steadfast does.
pub(crate) fn print(error: &PairError) {
    use std::error::Error;
    eprintln!("steadfast pair: {error}");
    let mut source = error.source();
    // A transparent variant's source is the source of what it holds.
    while let Some(cause) = source {
        eprintln!("  cause: {cause}");
        source = cause.source();
    }
    if let Some(fix) = error.fix() {
        let note = if fix.note.is_empty() {
            String::new()
        } else {
            format!("   ({})", fix.note)
        };
        eprintln!("  fix:   {}{note}", fix.what);
    }
}
