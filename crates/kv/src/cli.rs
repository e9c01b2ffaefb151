//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::full::Full;
use crate::reads::Modes;
use crate::service::{BATCH_MAX, EPOCH, Stage};

/// Threads that execute, at most: a run of requests has few times as many.
const WORKERS_MAX: usize = 16;

/// A replicated memcached server whose replicas vote on every object before a reply leaves.
///
/// `steadfast kv --local 3` starts three replicas on this machine, `steadfast kv serve` one replica of a group on several hosts. Any
/// memcached client may talk to any of them. A replica whose memory was corrupted is outvoted before its reply leaves, and repaired from
/// another one.
#[derive(Debug, Parser)]
#[command(
    name = "steadfast-kv",
    bin_name = "steadfast kv",
    version,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
    #[command(flatten)]
    pub(crate) local: Option<Local>,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Local {
    /// Replicas on this machine, an odd number: 2f+1 of them stand f faults at a time.
    #[arg(long, value_name = "N", value_parser = odd)]
    pub(crate) local: u64,
    /// First port for clients on 127.0.0.1; each replica has the next. 0 takes any.
    #[arg(long, value_name = "PORT", default_value_t = 11211)]
    pub(crate) port: u16,
}

/// What every replica of a group has.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// How much of the protection is on: R replication, D determinism, G digests of objects, X the vote and repair.
    #[arg(long, value_enum, default_value = "RDGX", ignore_case = true)]
    pub(crate) stage: Stage,
    /// Let `steadfast kv strike` flip bits of stored objects.
    #[arg(long)]
    pub(crate) allow_strikes: bool,
    /// Events on standard output, one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
    /// Client connections that a replica takes at a time.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(crate) connections: usize,
    /// MiB that the items of each replica may have.
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub(crate) memory: u64,
    /// What happens to an item for which there is no room: evict (those stored longest ago go) or refuse (memcached -M).
    #[arg(long, value_name = "WORD", default_value_t = Full::Evict, value_enum)]
    pub(crate) full: Full,
    /// Entries of the log between two snapshots, which a replica that joins begins with.
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) snapshot_every: u64,
    /// Seconds in which the scrubber compares every object once, asked for or not; 0 turns it off.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) scrub: u64,
    /// Seconds after which a replica ends that executes nothing while a majority of the others goes on; a fresh process takes its place. 0
    /// turns it off.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) watchdog: u64,
    /// How reads are answered: voted (log and vote), local (without the log, against the digest that was voted on), or plain (unchecked).
    /// One word is for all reads, a list is by command: get=local,mg=voted.
    #[arg(long, value_name = "MODES", default_value_t = Modes::default())]
    pub(crate) reads: Modes,
    /// Requests in one entry of the log, at most.
    #[arg(long, value_name = "N", default_value_t = BATCH_MAX, value_parser = batch)]
    pub(crate) batch: usize,
    /// Milliseconds for which requests wait until there are --batch of them; 0: what has come by then is an entry.
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub(crate) batch_ms: u64,
    /// Threads of a replica that execute, each for shards of its own: for all, or a list, one for each replica. What comes of it does not
    /// depend on how many there are.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = workers)]
    pub(crate) workers: Vec<usize>,
    /// Microseconds for which every replica computes with each request, so that benches have one that takes long.
    #[arg(long, hide = true, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub(crate) work_us: u64,
}

impl Common {
    /// Threads of this replica that execute.
    pub(crate) fn workers(&self, replica: u64) -> usize {
        let all = self.workers.iter().cycle();
        let at = usize::try_from(replica).unwrap_or(0);
        all.copied().nth(at).unwrap_or(1)
    }
}

/// More than [`WORKERS_MAX`] would only wait for each other.
fn workers(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=WORKERS_MAX).contains(count))
        .ok_or_else(|| {
            format!(
                "requirement: 1 to {WORKERS_MAX} threads that execute; found: {text}\n  fix:   --workers 1"
            )
        })
}

/// More than [`BATCH_MAX`] would make an entry too large.
fn batch(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=BATCH_MAX).contains(count))
        .ok_or_else(|| {
            format!(
                "requirement: 1 to {BATCH_MAX} requests; found: {text}\n  fix:   --batch {BATCH_MAX}"
            )
        })
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Serve {
    /// Which of the peers this replica is, counted from 0.
    #[arg(long, value_name = "N")]
    pub(crate) replica: u64,
    /// Addresses of all replicas for each other, HOST:PORT, in the same order everywhere: 3, 5 or 7 of them.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', required = true)]
    pub(crate) peers: Vec<String>,
    /// Where this replica listens for the others, if not at its own address of --peers.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) bind: Option<String>,
    /// Where this replica listens for clients [default: its own host of --peers, port 11211].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// A directory of this replica alone for its log and its state: it then comes back with them. Without it, both are in memory.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// A file with the secret of the group, that `steadfast kv secret` made; closed to other users.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: PathBuf,
    /// This replica's certificate, and those between it and the authority, in PEM: replicas then speak TLS with each other.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM; closed to other users.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authority that has signed the certificates of all replicas, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// How clients talk to this replica: off (in the clear), on (TLS), or known (TLS, with a certificate of --tls-ca).
    #[arg(long, value_enum, value_name = "HOW", default_value = "off")]
    pub(crate) tls_clients: TlsClients,
    /// Where /metrics, /healthz and /readyz are answered.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<String>,
    /// Makes digests as another version would, so that tests have one.
    #[arg(long, hide = true, default_value_t = EPOCH)]
    pub(crate) digest_epoch: u16,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// How clients talk to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TlsClients {
    /// In the clear.
    Off,
    /// By TLS.
    On,
    /// By TLS, and they show a certificate of the authority.
    Known,
}

impl TlsClients {
    /// Whether clients have to show a certificate; nothing where they talk in the clear.
    pub(crate) fn known(self) -> Option<bool> {
        match self {
            Self::Off => None,
            Self::On => Some(false),
            Self::Known => Some(true),
        }
    }
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Secret {
    /// The file with the secret of the group.
    #[arg(long, value_name = "FILE")]
    pub(crate) secret_file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// One replica of a group on several hosts.
    Serve(Serve),
    /// Print a new secret, for a file that all replicas of a group have.
    Secret,
    /// Answer what is under way, hand the lead on, and take no more requests: before a replica is stopped.
    Drain {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        secret: Secret,
    },
    /// Make another replica lead.
    Transfer {
        /// Which.
        #[arg(long, value_name = "N")]
        to: u64,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        secret: Secret,
    },
    /// Take a replica that does not answer out of the group: the others no longer count it.
    Remove {
        /// Which.
        #[arg(long, value_name = "N")]
        replica: u64,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        secret: Secret,
    },
    /// Compare all replicas, then write every item as they agreed on it into a file.
    Backup {
        /// The file; whoever reads it reads every value.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        secret: Secret,
    },
    /// Put the items of a backup into an empty group, through its log: every replica checks and votes.
    Restore {
        /// A file of `steadfast kv backup`.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Into a group that has items: those of the backup replace theirs.
        #[arg(long)]
        over: bool,
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        secret: Secret,
    },
    /// Flip one bit of a stored object in one replica: 'replica=1 object=item:a byte=2 bit=3'.
    Strike {
        /// Where. An object: replica=N object=item:KEY [field=value|key|flags|expires|cas|marks|key-length|value-length] byte=N bit=0..7,
        /// object=client:NAME, or object=log:head byte=0..55. The next message that passes: replica=N
        /// message=reply|check|repair|recover|entry bit=N, or queue=submit|log|run|replies|held, where bit counts over the whole message.
        /// The client of a replica whose queue is struck gets an error, or the right reply
        #[arg(value_name = "WHERE", num_args = 1.., required = true)]
        line: Vec<String>,
        #[command(flatten)]
        at: At,
    },
    /// Compare every object of every replica now, repair what differs, and print it.
    Verify {
        #[command(flatten)]
        at: At,
    },
    /// What a replica and its group are doing.
    Status {
        #[command(flatten)]
        at: At,
        /// As it comes, one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// All replicas of a group, once a second: requests, votes, repairs, and what holds them up.
    Top {
        #[command(flatten)]
        at: At,
        /// One JSON object a line instead of tables.
        #[arg(long)]
        json: bool,
        /// Time between two looks, 0.2 to 3600.
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
        interval: Duration,
        /// How often to look; without it, until Ctrl-C.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
    },
    /// What of a replica is voted on, field by field; what is not, and why.
    Coverage {
        /// As one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Shell completions.
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// The manual page.
    #[command(hide = true)]
    Man,
    /// One replica; started by `--local`.
    #[command(hide = true)]
    Replica(Replica),
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct At {
    /// A replica's address for clients; by TLS its certificate has to be for this host.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:11211", value_parser = host_and_port)]
    pub(crate) at: String,
    /// The authority of the replicas' certificates, in PEM: they are asked by TLS.
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// A certificate to show, where replicas want to know their clients.
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl At {
    /// In the clear, as replicas of `--local` are asked.
    pub(crate) fn plain(at: SocketAddr) -> Self {
        Self {
            at: at.to_string(),
            tls_ca: None,
            tls_cert: None,
            tls_key: None,
        }
    }

    /// Another replica, asked in the same way.
    pub(crate) fn also(&self, at: &str) -> Self {
        let at = at.to_owned();
        Self { at, ..self.clone() }
    }
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port = |(host, port): (&str, &str)| {
        let port = port.parse::<u16>().ok().filter(|port| *port > 0);
        (!host.is_empty()).then_some(port).flatten()
    };
    text.rsplit_once(':')
        .and_then(port)
        .map(|_| text.to_owned())
        .ok_or_else(|| "HOST:PORT is needed, as in 10.0.0.1:11211 or [::1]:11211".to_owned())
}

#[derive(Debug, clap::Args)]
pub(crate) struct Replica {
    #[arg(long)]
    pub(crate) slot: u64,
    #[arg(long)]
    pub(crate) node: u64,
    #[arg(long, value_parser = odd)]
    pub(crate) size: u64,
    #[arg(long, value_enum, ignore_case = true)]
    pub(crate) stage: Stage,
    #[arg(long)]
    pub(crate) client_fd: i32,
    #[arg(long)]
    pub(crate) peer_fd: i32,
    #[arg(long)]
    pub(crate) parent: u32,
    #[arg(long)]
    pub(crate) members: Option<String>,
    #[arg(long)]
    pub(crate) allow_strikes: bool,
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long)]
    pub(crate) connections: usize,
    #[arg(long)]
    pub(crate) memory: u64,
    #[arg(long)]
    pub(crate) full: Full,
    #[arg(long)]
    pub(crate) snapshot_every: u64,
    #[arg(long)]
    pub(crate) scrub: u64,
    #[arg(long)]
    pub(crate) watchdog: u64,
    #[arg(long)]
    pub(crate) reads: Modes,
    #[arg(long)]
    pub(crate) batch: usize,
    #[arg(long)]
    pub(crate) batch_ms: u64,
    #[arg(long)]
    pub(crate) workers: usize,
    #[arg(long)]
    pub(crate) work_us: u64,
}

fn interval(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.2..=3600.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| {
            format!("requirement: 0.2 to 3600 seconds; found: {text}\n  fix:   --interval 1")
        })
}

fn odd(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if n % 2 == 1 && (3..=7).contains(&n) => Ok(n),
        _ => Err(format!(
            "the number of replicas must be 3, 5 or 7, so that a vote has a majority; found {text}\n  fix:   --local 3"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_of_flags_is_that_of_the_code() {
        steadfast_manual::tests::assert_reference(
            "flags-kv",
            <Cli as clap::CommandFactory>::command(),
        );
    }

    #[test]
    fn an_even_number_of_replicas_is_refused_with_its_fix() {
        for n in ["2", "4", "1", "0", "x"] {
            let why = Cli::try_parse_from(["kv", "--local", n])
                .unwrap_err()
                .to_string();
            assert!(why.contains("fix:") && why.contains("3, 5 or 7"), "{why}");
        }
        let cli = Cli::try_parse_from(["kv", "--local", "5", "--stage", "rd"]).unwrap();
        assert_eq!(cli.local.unwrap().local, 5);
        assert_eq!(cli.common.stage, Stage::Rd);
    }

    #[test]
    fn the_definition_is_consistent() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
    }

    /// What Kubernetes fills in.
    const FILLED: [(&str, &str); 2] = [("$(INDEX)", "2"), ("$(POD_IP)", "10.0.0.7")];

    #[test]
    fn the_manifest_starts_replicas_with_flags_that_exist_and_as_many_as_it_names() {
        let manifest = include_str!("../kubernetes/steadfast-kv.yaml");
        let (_, args) = manifest.split_once("          args:\n").unwrap();
        let words: Vec<String> = args
            .lines()
            .map_while(|line| line.strip_prefix("            - "))
            .map(|word| {
                FILLED.iter().fold(word.to_owned(), |word, (name, value)| {
                    word.replace(name, value)
                })
            })
            .collect();
        let cli = Cli::try_parse_from(["kv".to_owned()].into_iter().chain(words)).unwrap();
        let Some(Verb::Serve(serve)) = cli.verb else {
            panic!("it starts a replica")
        };
        steadfast_group::secret::check_peers(&serve.peers, serve.replica).unwrap();
        assert!(manifest.contains(&format!("\n  replicas: {}\n", serve.peers.len())));
        assert!(serve.data.is_some());
        assert!(manifest.contains("maxUnavailable: 1") && manifest.contains("podAntiAffinity"));
    }
}
