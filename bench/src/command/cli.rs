//! The words of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use steadfast_bench::kv;
use steadfast_bench::suites::{flips, scripts};
use steadfast_workloads::Size;

#[derive(Parser)]
#[command(
    name = "bench",
    about = "Every published number of steadfast as a command",
    after_help = "Examples:\n  \
        bench spec --json spec.json                        all programs, hours\n  \
        bench spec --size small --pairs 2 --programs bzip2 a look, seconds\n  \
        bench micro --json micro.json\n  \
        bench model --spec spec.json --micro micro.json\n  \
        bench sei-servers --pairs 2 --rows memcached\n  \
        bench sei-tables table2 --runs 400                 the paper's Table 2, a look\n\n\
        The product is target/release/steadfast of this repository, or what STEADFAST_BIN names.\n\
        Exit codes: 0 every run gave a number, 1 some failed, 2 interrupted, 3 nothing could be run.",
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) action: Action,
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Args)]
pub(crate) struct Common {
    /// Also write everything that was measured to FILE, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) json: Option<PathBuf>,
    /// Also keep the published values in FILE, as results/README.md has it
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) results: Option<PathBuf>,
    /// What else the machine does meanwhile, for that file
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "nothing else running",
        global = true
    )]
    pub(crate) load: String,
    /// Interleaved rounds; promises are judged from 10 on
    #[arg(long, value_name = "N", default_value_t = 10, global = true)]
    pub(crate) pairs: usize,
    /// Seed of the order of runs, of faults and of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    pub(crate) seed: u64,
    /// Seconds after which a run is ended and counts as failed
    #[arg(long, value_name = "S", default_value_t = 180, global = true)]
    pub(crate) limit: u64,
}

#[derive(Args)]
pub(crate) struct Beside {
    /// Programs that compute beside it all the time; results have keys of their own
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) neighbours: usize,
}

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Whole programs: bare, co-running copies, 1, 2 and 3 replicas
    Spec {
        /// Only these programs
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        programs: Vec<String>,
        /// Only these columns: bare, corun2, corun3, n1, n2-stop, n2, n3
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        columns: Vec<String>,
        /// small (0.2-0.5 s each) or full (5-10 s each)
        #[arg(long, default_value = "full")]
        size: Size,
    },
    /// One event: nanoseconds added by 1 and 2 replicas under each backstop
    Micro {
        /// Only events whose name begins so: getppid, write, read, clock, rdtsc
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        events: Vec<String>,
        /// Multiplies how often each event is made
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
        /// Highest number of replicas
        #[arg(long, default_value_t = 2)]
        replicas: u8,
    },
    /// Touch every page of a region, 4 KiB against huge pages (the paper's Table 1)
    Touch {
        #[arg(long, default_value_t = 800)]
        mib: usize,
    },
    /// How long a repair holds the program up, and how late faults are detected
    Repair {
        /// Sizes of live memory
        #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
        mib: Vec<usize>,
        /// Repairs for each size and number of replicas
        #[arg(long, default_value_t = 20)]
        repairs: usize,
        /// Faults drawn uniformly over time, for the latencies
        #[arg(long, default_value_t = 100)]
        faults: usize,
        /// Values in redis, in MiB; 0 leaves it out
        #[arg(long, default_value_t = 64, value_name = "MIB")]
        redis_mib: usize,
    },
    /// Memory of N replicas against N copies
    Memory {
        #[arg(long, value_delimiter = ',', default_value = "16,256")]
        mib: Vec<usize>,
    },
    /// What starting under protection costs
    Start,
    /// Children and threads: a spawn, make -j2, a switch between threads, a free mutex, pigz, xz and x264 with two threads
    Trees {
        /// Only jobs whose name begins so: spawn, cc1, make, cond, mutex, pigz, xz, x264
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        jobs: Vec<String>,
        #[command(flatten)]
        beside: Beside,
    },
    /// Servers under load: redis, nginx, Go's net/http, memcached, PostgreSQL, against two unconnected copies and one
    Servers {
        /// Only jobs whose name begins so: redis, nginx, go-http, memcached, pgbench
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        jobs: Vec<String>,
        /// Seconds of each run
        #[arg(long, value_name = "S", default_value_t = 2)]
        seconds: u64,
        /// Seconds for which idle servers are looked at; 0 leaves them out
        #[arg(long, value_name = "S", default_value_t = 10)]
        idle: u64,
        #[command(flatten)]
        beside: Beside,
    },
    /// Flips in servers under load, with clients that check every reply and every acknowledged write: redis with its log on disk,
    /// memcached, nginx, PostgreSQL
    ServerFlips {
        /// Only servers whose name begins so: redis, memcached, nginx, postgres
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        servers: Vec<String>,
        /// Flips that have hit, of each server
        #[arg(long, value_name = "N", default_value_t = 16)]
        flips: u64,
        /// Replicas
        #[arg(long, short = 'n', default_value_t = 3)]
        replicas: u8,
        /// Mean time between two flips of one server
        #[arg(long, value_name = "MS", default_value_t = 250)]
        pause: u64,
        /// Where each server's life is a line; a call goes on behind the last one [default: build/bench/server-flips.jsonl]
        #[arg(long, value_name = "FILE")]
        lines: Option<PathBuf>,
    },
    /// One hardened handler: empty, stores, copies, against the same handler compiled plain
    Sei {
        /// Multiplies how often each handler is called
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
        /// The source of libsei-gcc, at the commit that is asked for where it is another: measured in the same run
        #[arg(long, value_name = "DIR")]
        libsei: Option<PathBuf>,
    },
    /// State at rest with copies and checksums: what it costs a handler, and which changed bits get out
    Rest {
        /// Multiplies how often each handler is called
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
        /// Runs of the store of each build, one changed bit each
        #[arg(long, default_value_t = 2000)]
        runs: usize,
    },
    /// What the runtime of `steadfast cc` keeps for a thread
    CcMemory,
    /// A handler whose second run comes later (--validate=async), beside the other ways: cost, response time, lag
    Later {
        /// Multiplies how many events are handled
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
    /// False alarms of hardened memcached and dnsmasq, over handlers that follow each other without a network
    SeiAlarms {
        /// Handlers of each server
        #[arg(long, default_value_t = 100_000_000)]
        handlers: u64,
        /// Only these servers
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        servers: Vec<String>,
    },
    /// False alarms of hardened memcached and dnsmasq, over sockets: for each seed a server of its own, with another mix of requests
    Soak {
        /// Requests to each server, over all seeds
        #[arg(long, default_value_t = 10_000_000)]
        requests: u64,
        /// How many seeds, from --seed on
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// Workers (memcached)
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// Only these servers
        #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = ["memcached", "dnsmasq"])]
        servers: Vec<String>,
    },
    /// Every fault at every step of the model of the hardening algorithm; each rule left out; two faults
    Algorithm {
        /// Print the shortest way to each counterexample
        #[arg(long)]
        traces: bool,
        /// Only this: leave out these rules (as the table names them), and print the way to what comes of it
        #[arg(
            long,
            value_name = "RULE",
            value_delimiter = ',',
            conflicts_with = "results"
        )]
        without: Vec<String>,
    },
    /// memcached and dnsmasq, hardened at compile time against plain, server saturated
    SeiServers {
        /// A hardened memcached [default: built by this command]
        #[arg(long, value_name = "PROGRAM")]
        memcached: Option<PathBuf>,
        /// A hardened dnsmasq [default: likewise]
        #[arg(long, value_name = "PROGRAM")]
        dnsmasq: Option<PathBuf>,
        /// Only rows that are named so, or else whose name begins so, or of that server
        #[arg(long, value_delimiter = ';', value_name = "NAMES")]
        rows: Vec<String>,
        /// Seconds of each run
        #[arg(long, default_value_t = 1.5)]
        seconds: f64,
        /// Halvings of the search for the highest rate under 1 ms; 0 leaves it out
        #[arg(long, default_value_t = 6)]
        rate_steps: usize,
        /// Requests per second at which response times are compared
        #[arg(long, default_value_t = 10_000.0)]
        low_rate: f64,
        /// Also a build without each check that --protect=sei leaves out: what it costs
        #[arg(long)]
        checks: bool,
    },
    /// Tables 2, 3 and 5 and Figure 6 of the SEI paper, and a campaign in place of Table 4, beside the paper's values
    ///
    /// Campaigns are gone on with where an earlier call stopped; servers are built first.
    SeiTables {
        #[arg(required = true)]
        what: Vec<SeiTable>,
        /// Runs of each fault type (table2, table3) or of each variant (table4); 0: sum up what is there
        #[arg(long, default_value_t = 8000)]
        runs: u64,
        /// Runs at the same time [default: one for each CPU]
        #[arg(long)]
        jobs: Option<usize>,
        /// End each campaign after so long, such as 10m; the same call goes on later
        #[arg(long, value_name = "TIME")]
        budget: Option<String>,
        /// Directory of campaigns [default: build/bench/sei-tables]
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Only these variants: mc, mc-sei, mc-sei-dup, mc-sei-between (--between=duplicate), mc-sei-dup-between (both), mc-sei-recover (--recover),
        /// mc-sei-level (--protect=sei), mc-sei-without-CHECK (inputs, outputs, places, frames, locks);
        /// of table3: mc-sei (--barrier), mc-seil [default: the paper's]
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        variants: Vec<String>,
        /// Only these campaigns of table2: sei (the paper's seven types), code (flips of instructions)
        #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = ["sei", "code"])]
        faults: Vec<String>,
        /// Seconds of each timed run (table5, figure6)
        #[arg(long, default_value_t = 1.5)]
        seconds: f64,
    },
    /// Fault injection: cost of an armed run, planting, counting; reach; exactness; runs a second
    Inject {
        /// Only these: gzip, python3, grep, perl, sqlite3, memcached
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        programs: Vec<String>,
        /// Drawn faults that planting and single steps have to agree about
        #[arg(long, default_value_t = 1000)]
        exact: usize,
        /// Leave runs per second out
        #[arg(long)]
        no_throughput: bool,
        /// A memcached [default: the plain build of workloads]
        #[arg(long, value_name = "PROGRAM")]
        memcached: Option<PathBuf>,
    },
    /// Whether planted faults hit the executions that single steps hit, over the plans of campaigns (`steadfast inject plan --out DIR`)
    Doctor {
        #[arg(required = true, value_name = "DIR")]
        campaigns: Vec<PathBuf>,
        /// At most so many faults of each
        #[arg(long, value_name = "N", default_value_t = 1000)]
        most: usize,
        /// Only those that strike within so many executions of their instruction
        #[arg(long, value_name = "N", default_value_t = 20_000)]
        within: u64,
    },
    /// The stages of `steadfast kv` in turns, its repairs, and a group that is struck under load
    Kv {
        /// A steadfast-kv [default: target/release/steadfast-kv]
        #[arg(long, value_name = "PROGRAM")]
        program: Option<PathBuf>,
        /// A memcached to measure beside the stages
        #[arg(long, value_name = "PROGRAM")]
        memcached: Option<PathBuf>,
        /// Of --only rivals: an etcd [default: the one on the path]
        #[arg(long, value_name = "PROGRAM")]
        etcd: Option<PathBuf>,
        /// The same: a yrmcds [default: /usr/sbin/yrmcdsd]
        #[arg(long, value_name = "PROGRAM")]
        yrmcds: Option<PathBuf>,
        /// Threads that execute in each replica, or in each of them by its number, as `steadfast kv --workers` takes them
        #[arg(long, value_name = "N[,N...]")]
        workers: Option<String>,
        /// Numbers of clients
        #[arg(long, value_delimiter = ',', default_value = "1,5,10,20,30,100")]
        clients: Vec<usize>,
        /// Milliseconds of each slice
        #[arg(long, default_value_t = 500)]
        slice_ms: u64,
        /// Repairs that are timed
        #[arg(long, default_value_t = 200)]
        repairs: usize,
        /// Strikes under load; 0 leaves them out
        #[arg(long, default_value_t = 20_000)]
        strikes: u64,
        /// Of --only live, strikes of this class alone; may be given more than once
        #[arg(long, value_name = "CLASS")]
        class: Vec<String>,
        /// Faults that are simulated
        #[arg(long, default_value_t = 1_000_000)]
        simulated: u64,
        /// Runs whose registers are struck
        #[arg(long, default_value_t = 400)]
        runs: usize,
        /// Requests without a fault, over sockets or simulated
        #[arg(long, default_value_t = 10_000_000)]
        quiet: u64,
        /// One part alone
        #[arg(long, value_enum)]
        only: Option<kv::Part>,
    },
    /// Resets, recovery and tracking of `steadfast host`, beside a process that is forked again
    Host {
        /// A steadfast-host, with its components beside it [default: target/release/steadfast-host]
        #[arg(long, value_name = "PROGRAM")]
        program: Option<PathBuf>,
        /// Flips of each group, in registers and linear memory; 0 leaves them out
        #[arg(long, value_name = "N", default_value_t = 0)]
        flips: u64,
        /// The flips alone
        #[arg(long)]
        flips_only: bool,
        /// Where each group of flips is a line; a call goes on behind the last one [default: build/bench/host-flips.jsonl]
        #[arg(long, value_name = "FILE")]
        lines: Option<PathBuf>,
        /// Only the groups that the lines hold: nothing is struck
        #[arg(long, requires = "flips_only")]
        lines_only: bool,
        /// Flips as C³'s authors made them: scheduler, memory manager and file system, one register and eight at once
        #[arg(long, conflicts_with = "lines_only")]
        as_paper: bool,
        /// Flips in vector registers alone: lock and file system
        #[arg(long, conflicts_with_all = ["lines_only", "as_paper"])]
        vectors: bool,
        /// Some series alone, by the names that `steadfast-host bench --only` has
        #[arg(
            long,
            value_name = "NAME",
            value_delimiter = ',',
            conflicts_with = "flips_only"
        )]
        only: Vec<String>,
    },
    /// Two hosts of `steadfast pair` (root): commits of sqlite3; with a server a download whose host dies, or --hold; --pairs are rounds
    Pair {
        /// A steadfast-pair [default: target/release/steadfast-pair]
        #[arg(long, value_name = "PROGRAM")]
        program: Option<PathBuf>,
        /// What it costs that acknowledgements are held back, with a server that takes bytes (guests/pair/sink.c)
        #[arg(long, requires = "server")]
        hold: bool,
        /// The paper's micro-benchmark: its variants and a pair over `steadfast run`, beside its Table 1
        #[arg(long, conflicts_with_all = ["hold", "servers"])]
        micro: bool,
        /// With --micro: one variant alone, rebuilt and as flags of a pair: its digests exchanged with waiting or without; with the
        /// five that follow
        #[arg(long, value_name = "HOW", requires = "micro", value_parser = ["sync", "async"])]
        exchange: Option<String>,
        /// What digests are made by
        #[arg(long, default_value = "crc32c", requires = "exchange", value_parser = ["md5", "crc32c", "xxh3"])]
        digest: String,
        /// How pages of memory that change are found; mprotect is not measured in a pair, which has no such flag
        #[arg(long, default_value = "wp-async", requires = "exchange", value_parser = ["mprotect", "wp-async", "none"])]
        tracking: String,
        /// Reads between two exchanges
        #[arg(long, value_name = "N", default_value_t = 50, requires = "exchange", value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
        /// Pages of memory that are stored to between two reads
        #[arg(long, value_name = "PAGES", default_value_t = 5, requires = "exchange")]
        dirty: u32,
        /// Megabytes of memory
        #[arg(long, value_name = "MB", default_value_t = 1, requires = "exchange", value_parser = clap::value_parser!(u32).range(1..4096))]
        memory: u32,
        /// pgbench, Apache and lighttpd, over two bare copies
        #[arg(long, conflicts_with = "hold")]
        servers: bool,
        /// Debian's Postmark, over two bare copies
        #[arg(long, conflicts_with_all = ["hold", "servers", "micro"])]
        postmark: bool,
        /// A program of so many MB: how long it stands still for a repair and for a host that comes back; the ledger; pages that change
        #[arg(long, value_name = "MB", conflicts_with_all = ["hold", "servers", "micro", "postmark"])]
        image: Option<u64>,
        /// False alarms of a program that reads so many pages
        #[arg(long, value_name = "PAGES", conflicts_with_all = ["hold", "servers", "micro", "postmark", "image"])]
        reads: Option<u64>,
        /// The tests that cut the link, and that kill a site, so many times each; gone on with where an earlier call stopped
        #[arg(long, value_name = "TIMES", conflicts_with_all = ["hold", "servers", "micro", "postmark", "image", "reads"])]
        lost: Option<u64>,
        /// How the host of a server is lost: its power, its cable, or its processes stand still
        #[arg(long, default_value = "power", value_parser = ["power", "cable", "freeze"], requires = "server")]
        lose: String,
        /// With --servers: only loads whose names begin so (pgbench.1, pgbench.4, apache, lighttpd)
        #[arg(long, value_name = "NAME", default_value = "", requires = "servers")]
        only: String,
        #[arg(last = true, value_name = "SERVER")]
        server: Vec<String>,
    },
    /// Real programs as replicas, struck by flips drawn over what they, or their protection, execute and keep
    ///
    /// Campaigns are gone on with where an earlier call stopped.
    Flips(flips::Ask),
    /// Python's own tests under `steadfast run`, each of which has to end as it does bare
    Python {
        /// Where everything goes
        #[arg(long, value_name = "DIR", default_value = "build/campaign")]
        out: PathBuf,
        /// Replicas
        #[arg(long, short = 'n', default_value_t = 2)]
        replicas: u8,
        /// Only these modules (`math`, `json`)
        modules: Vec<String>,
    },
    /// Tests that other programs come with, each of which has to end protected as it does bare
    Suite {
        /// gnu: coreutils, diffutils, grep, gzip, sed; trees: bash, make; servers: debian, memcached, postgresql, redis, go;
        /// autopkgtest: Debian's tests of dnsmasq, with packages of `steadfast cc` (root)
        #[arg(value_parser = scripts::SCRIPTS)]
        script: String,
        /// Where everything goes; sources and bare runs that are there already are not made again
        #[arg(long, value_name = "DIR", default_value = "build/campaign/suites")]
        out: PathBuf,
        /// Only these suites
        suites: Vec<String>,
    },
    /// A campaign as an array job of Debian's Slurm (root), held against the same campaign in one process
    Slurm {
        /// Where everything goes
        #[arg(long, value_name = "DIR", default_value = "build/campaign")]
        out: PathBuf,
        /// Tasks of the job
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
        tasks: u32,
        /// Runs of each fault type
        #[arg(long, default_value_t = 60)]
        runs: u64,
    },
    /// What hardening the trusted rest would cost, from the files of spec and micro
    Model {
        /// What `bench spec --json` wrote
        #[arg(long, value_name = "FILE")]
        spec: PathBuf,
        /// What `bench micro --json` wrote
        #[arg(long, value_name = "FILE")]
        micro: PathBuf,
        /// Number of replicas whose overhead is modelled
        #[arg(long, default_value_t = 2)]
        replicas: u8,
    },
    /// Measure again what the specification names and this machine can, and show it beside the papers' values
    ///
    /// Resumable: a step that was done for this commit is not done again. The page is build/reproduce/index.html.
    Reproduce {
        /// Only commands that take at most so long each
        #[arg(long, value_name = "N", default_value_t = 45.0)]
        minutes: f64,
        /// Where values and page go
        #[arg(long, value_name = "DIR", default_value = "build/reproduce")]
        out: PathBuf,
        /// Measure nothing: run every command of the specification as small as it goes, to see that it runs (an hour at most)
        #[arg(long, conflicts_with_all = ["minutes", "out"])]
        smallest: bool,
    },
    /// Print the table of a file that any of these wrote, or of several of spec that measured other programs
    Show {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SeiTable {
    /// One thread: undetected errors of mc, mc-sei, mc-sei-dup
    Table2,
    /// Four threads: undetected errors with and without the checking barrier
    Table3,
    /// A core that computes wrongly, in place of an undervolted one
    Table4,
    /// Cycles of a request of a name server, by phase
    Table5,
    /// Highest rate with a mean response time under 1 ms
    Figure6,
}
