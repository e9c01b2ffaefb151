//! The command line of `steadfast pair`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::{Deserialize, Serialize};

use crate::page::Digest;

/// One program on two hosts, each with a disk of its own: what one disk returns wrong is found, attributed and
/// repaired before the program sees it.
#[derive(Debug, Parser)]
#[command(name = "steadfast-pair", bin_name = "steadfast pair", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the program here: sockets, time and standard streams are this site's
    Primary(Side),
    /// Run the same program on this host's own files, as the primary's shadow
    Secondary(Side),
    /// Become the secondary of a site that runs the program alone, while it runs: files, memory and descriptors are copied
    Join(Side),
    /// Say what of the program, this machine and its file systems a pair supports, and start nothing
    Check(Side),
    /// Hold the protected files against a ledger, at rest
    Verify(Verify),
    /// What a site of this machine is doing; status 1 when the peer is lost or the program is held
    Status(Status),
    /// The same as a line each second, with what has come since the line before
    Top(Top),
    /// Let the other site lead from now on, with open connections, and follow it: asked of the site that leads
    Switch(Order),
    /// Take this site out of the pair: the other one goes on alone
    Detach(Order),
    /// Two hosts in namespaces on this machine, sqlite3, and a bit that flips on one disk (root)
    Demo(Demo),
    /// Time commits of sqlite3: bare, two bare copies side by side, and the pair (root)
    #[command(hide = true)]
    Bench(Bench),
    /// One host of the demo
    #[command(hide = true)]
    DemoHost(DemoHost),
    /// Shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// The manual page
    #[command(hide = true)]
    Man,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Side {
    /// Address of the other site: the secondary's, HOST:PORT, for the primary; the survivor's for a site that joins; who may
    /// connect, HOST, for the secondary
    #[arg(long, value_name = "ADDR")]
    pub(crate) peer: Option<String>,
    /// Where the secondary waits for the primary, and a site that goes on alone for one that joins
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7450")]
    pub(crate) listen: String,
    /// Who decides which site goes on alone: dir:PATH, a directory of a third machine that both mount, http://HOST:PORT or
    /// https://HOST:PORT, etcd, or none: the loss of a site then stops the program
    #[arg(long, value_name = "URL", default_value = "none")]
    pub(crate) witness: String,
    /// Where no witness answers for 5 s, or none was given, the primary goes on alone, and the secondary does not. The risk: a
    /// secondary that reaches the witness which the primary does not reach goes on as well, and two programs serve until the
    /// primary reaches it, and stops. Both sites have to be told the same
    #[arg(long)]
    pub(crate) prefer_primary: bool,
    /// With https: the authority of etcd's certificate, in PEM
    #[arg(long, value_name = "FILE")]
    pub(crate) witness_ca: Option<PathBuf>,
    /// With https: the certificate that this site shows etcd, where it asks for one
    #[arg(long, value_name = "FILE", requires_all = ["witness_key", "witness_ca"])]
    pub(crate) witness_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "witness_cert")]
    pub(crate) witness_key: Option<PathBuf>,
    /// Milliseconds without a word from the other site after which it counts as lost
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(20..=3_600_000))]
    pub(crate) lost_after: u64,
    /// The address that clients use, ADDR/LENGTH@DEVICE: the primary has it from the start, the secondary when it goes on alone
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Option<String>,
    /// Directory of this site's ledger, on another device than the data
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: PathBuf,
    /// A directory whose files are protected; more than once for several
    #[arg(long, value_name = "DIR", required = true)]
    pub(crate) data: Vec<PathBuf>,
    /// A variable of the program's environment, NAME=VALUE; nothing else is handed on but PATH, HOME and LANG
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Append incidents to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// Where files differ at the start, those of this site are right, and the other one gets them, page by page; both sites
    /// have to be told the same. It is verified against its own ledger first
    #[arg(long, value_name = "SITE")]
    pub(crate) right: Option<Right>,
    /// MiB a second that the scrubber reads from the device, past the page cache, and holds against the ledger; 0: none
    #[arg(long, value_name = "MIB", default_value_t = 4)]
    pub(crate) scrub: u32,
    /// Compare memory now and then, and keep a snapshot on each site, so that an error of processor or memory is told from
    /// the right program and repaired; off: it stops both. Both sites have to be told the same
    #[arg(long, value_name = "SWITCH", default_value = "on")]
    pub(crate) snapshots: Switch,
    /// When the primary hears what the secondary has read: sync: before it goes on from a read that is compared (--every); async:
    /// one exchange later, and before each event that is no read. The paper's variants; both sites have to be told the same
    #[arg(long, value_name = "HOW", default_value = "sync")]
    pub(crate) exchange: Exchange,
    /// Reads at a place of their own (pread) from one exchange to the next, in a program of one process and one thread; at most 62
    /// are open. With more than 1, or async, a page that the primary's disk returns wrong is repaired, and stops both sites: the
    /// program has gone on with it. Both sites have to be told the same
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) every: u32,
    /// What digests of pages are made by, in the ledger and in a verdict. Both sites have to be told the same
    #[arg(long, value_name = "FUNCTION", default_value = "xxh3")]
    pub(crate) digest: Digest,
    /// How a comparison of memory finds what has changed since the last one: none: it reads all; wp-async: the kernel keeps a list
    /// (userfaultfd, Linux 6.7); faults: who stores to a page first waits until this command has opened it, as in the paper
    /// (CAP_SYS_PTRACE). Both sites have to be told the same
    #[arg(long, value_name = "HOW", default_value = "none")]
    pub(crate) tracking: Tracking,
    /// Seconds of processor time for which a thread or process may compute without a call while others of the program wait for their
    /// turn: then it waits for one of them in a loop, which a pair has no end for, and both sites stop; a tenth of it is told. They stop as
    /// well when the program comes to an event on one site, and for so long, and five times as long as that took, not on the other.
    /// 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) spins_after: u64,
    /// With --address and a witness: acknowledge a client's bytes when the other site's program has read them as well, so that
    /// none is lost with a host; off: those are lost that the kernel has acknowledged and the other site has not heard of. Both
    /// sites have to be told the same
    #[arg(long, value_name = "SWITCH", default_value = "on")]
    pub(crate) hold_acks: Switch,
    /// Answer Prometheus here: /metrics, /healthz, /readyz; read only
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// This site's certificate, and those between it and the authority's, in PEM; with --tls-key and --tls-ca the link is
    /// encrypted, and each site proves who it is
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authority whose certificates the other site may show; make one for the pair alone
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Set by the command itself, from systemd's environment
    #[arg(long, hide = true)]
    pub(crate) notify_socket: Option<String>,
    #[arg(long, hide = true)]
    pub(crate) watchdog_usec: Option<u64>,
    /// Seconds that the primary waits for the secondary at the start, and each site for a witness that is slow to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) patience: u64,
    /// Strike the program of this site with a fault, to see what a pair does about it: replica 0 is the primary's, 1 the
    /// secondary's; docs/reference/fault-grammar.md
    #[arg(long, value_name = "FAULT")]
    pub(crate) flip: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

impl Side {
    /// Whether the primary goes on from a read before it is compared.
    pub(crate) fn runs_ahead(&self) -> bool {
        self.every > 1 || self.exchange == Exchange::Async
    }

    /// The host that --peer names, without a port and without the brackets of an IPv6 address.
    pub(crate) fn peer_host(&self) -> Option<&str> {
        let peer = self.peer.as_deref()?;
        let whole = peer.trim_matches(['[', ']']);
        if whole.parse::<std::net::IpAddr>().is_ok() {
            return Some(whole);
        }
        let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
        Some(host.trim_matches(['[', ']']))
    }

    /// Whether --peer says where the other site would let this one join.
    pub(crate) fn has_where_to_join(&self) -> bool {
        self.peer.as_ref().is_some_and(|peer| {
            peer.rsplit_once(':')
                .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        })
    }
}

/// The site whose files the other one gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Right {
    Primary,
    Secondary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Exchange {
    Sync,
    Async,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tracking {
    None,
    WpAsync,
    Faults,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Verify {
    /// Directory of the ledger
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: PathBuf,
    /// Older copies of the files: a page that is wrong is taken from there, if the ledger vouches for what the copy has
    #[arg(long, value_name = "DIR")]
    pub(crate) restore_from: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Status {
    /// Directory of the site's ledger
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: PathBuf,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Order {
    /// Directory of the site's ledger
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Top {
    /// Directory of the site's ledger
    #[arg(long, value_name = "DIR")]
    pub(crate) ledger: PathBuf,
    /// Milliseconds between two lines
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub(crate) every: u64,
    /// Lines; without it until the site ends
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Lose {
    /// Its cable is pulled, and its processes are killed
    Power,
    /// Its cable is pulled; its processes live on, and find themselves outvoted
    Cable,
    /// Its processes stand still; its kernel and its cable live on
    Freeze,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Demo {
    /// Which site's disk the bit flips on: a or b
    #[arg(long, value_name = "SITE", default_value = "b")]
    pub(crate) strike: String,
    /// Keep the images and what the two sites printed in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// With a server: milliseconds without a word after which a host counts as lost
    #[arg(long, value_name = "MS", default_value_t = 300)]
    pub(crate) lost_after: u64,
    /// With a server: how its first host is lost
    #[arg(long, value_name = "HOW", default_value = "power")]
    pub(crate) lose: Lose,
    /// The server takes bytes and digests them, and the sites exchange roles twice while a client sends
    #[arg(long, hide = true)]
    pub(crate) turns: bool,
    /// The same, but the host that leads is lost, so many milliseconds after a quarter of the bytes was sent
    #[arg(long, hide = true, value_name = "MS", requires = "turns")]
    pub(crate) lost_at: Option<u64>,
    /// The same, but the host that leads is lost after one exchange of roles
    #[arg(long, hide = true, requires = "turns")]
    pub(crate) lost_joined: bool,
    #[arg(long, hide = true, default_value = "on")]
    pub(crate) hold_acks: Switch,
    /// The client and the address of the server are those of IPv6
    #[arg(long, hide = true)]
    pub(crate) six: bool,
    /// In place of sqlite3 a server of one process, which serves /mnt/data by HTTP on port 8080: a download stays right while
    /// the bit flips, and completes although the primary's host dies in the middle
    #[arg(last = true, value_name = "SERVER")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoHost {
    #[arg(long)]
    pub(crate) site: String,
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Run the program without a pair
    #[arg(long)]
    pub(crate) bare: bool,
    /// The host comes back: the other one runs the program
    #[arg(long)]
    pub(crate) join: bool,
    #[arg(long, default_value_t = 300)]
    pub(crate) lost_after: u64,
    #[arg(long, default_value = "on")]
    pub(crate) hold_acks: Switch,
    #[arg(long)]
    pub(crate) six: bool,
    /// The server, in place of sqlite3
    #[arg(last = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Bench {
    /// Rounds; each runs every column once
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Commits in each run
    #[arg(long, default_value_t = 300)]
    pub(crate) commits: usize,
    /// Write the rows to this file, as results/README.md has them
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// With a server: milliseconds without a word after which a host counts as lost
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub(crate) lost_after: u64,
    /// With a server: how its host is lost
    #[arg(long, value_name = "HOW", default_value = "power")]
    pub(crate) lose: Lose,
    /// With a server: as for a site
    #[arg(long, value_name = "SWITCH", default_value = "on")]
    pub(crate) hold_acks: Switch,
    /// With a server that takes bytes and digests them (guests/pair/sink.c): what it costs that acknowledgements are
    /// held back
    #[arg(long, requires = "command")]
    pub(crate) hold: bool,
    /// Not commits, but rounds of the demo with this server: for how long a download stands still when its host dies
    #[arg(last = true, value_name = "SERVER")]
    pub(crate) command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_of_flags_is_that_of_the_code() {
        steadfast_manual::tests::assert_reference(
            "flags-pair",
            <Cli as clap::CommandFactory>::command(),
        );
    }

    #[test]
    fn a_peer_has_a_host_with_and_without_a_port_and_in_brackets() {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            side: Side,
        }
        for (peer, host) in [
            ("10.0.0.1:7450", "10.0.0.1"),
            ("10.0.0.1", "10.0.0.1"),
            ("[fd00::2]:7450", "fd00::2"),
            ("[fd00::2]", "fd00::2"),
            ("fd00::2", "fd00::2"),
            ("b.example:7450", "b.example"),
        ] {
            let words = [
                "pair", "--ledger", "l", "--data", "d", "--peer", peer, "--", "x",
            ];
            let only = Only::try_parse_from(words).expect("a command line");
            assert_eq!(only.side.peer_host(), Some(host));
        }
    }
}
