//! The `bench` command.

#![allow(
    clippy::print_stdout,
    reason = "a tool of the repository, not part of the product"
)]
#![allow(clippy::print_stderr, reason = "progress goes to standard error")]

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use steadfast_bench::column::Column;
use steadfast_bench::machine::{self, Machine};
use steadfast_bench::product::Product;
use steadfast_bench::rounds::{self, Progress, Turns};
use steadfast_bench::sample::{Failure, Runner};
use steadfast_bench::sei_tables::phases;
use steadfast_bench::spec::{Program, SpecReport};
use steadfast_bench::suites::{flips, python, slurm};
use steadfast_bench::{
    host, inject, kv, later, memory, micro, model, pair, repair, reproduce, rest, results, sei,
    sei_alarms, sei_builds, sei_servers, sei_tables, servers, spec, start, touch, trees,
};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::servers::build::{Builds, Recipe};
use steadfast_workloads::servers::source::Sources;
use steadfast_workloads::servers::{SERVERS, Server};
use steadfast_workloads::{ALL, Size, Store, Workload, find, setup};

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
struct Cli {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Common {
    /// Also write everything that was measured to FILE, as JSON
    #[arg(long, value_name = "FILE", global = true)]
    json: Option<PathBuf>,
    /// Also keep the published values in FILE, as results/README.md has it
    #[arg(long, value_name = "FILE", global = true)]
    results: Option<PathBuf>,
    /// What else the machine does meanwhile, for that file
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "nothing else running",
        global = true
    )]
    load: String,
    /// Interleaved rounds; promises are judged from 10 on
    #[arg(long, value_name = "N", default_value_t = 10, global = true)]
    pairs: usize,
    /// Seed of the order of runs, of faults and of the bootstrap
    #[arg(long, value_name = "N", default_value_t = 1, global = true)]
    seed: u64,
    /// Seconds after which a run is ended and counts as failed
    #[arg(long, value_name = "S", default_value_t = 180, global = true)]
    limit: u64,
}

#[derive(Subcommand)]
enum Action {
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
    },
    /// Memory of N replicas against N copies
    Memory {
        #[arg(long, value_delimiter = ',', default_value = "16,256")]
        mib: Vec<usize>,
    },
    /// What starting under protection costs
    Start,
    /// Children and threads: a spawn, make -j2, a switch between threads, a free mutex
    Trees,
    /// Servers under load: redis, nginx, memcached, PostgreSQL, against two unconnected copies and one
    Servers {
        /// Only jobs whose name begins so: redis, nginx, memcached, pgbench
        #[arg(long, value_delimiter = ',', value_name = "NAMES")]
        jobs: Vec<String>,
        /// Seconds of each run
        #[arg(long, value_name = "S", default_value_t = 2)]
        seconds: u64,
        /// Seconds for which idle servers are looked at; 0 leaves them out
        #[arg(long, value_name = "S", default_value_t = 10)]
        idle: u64,
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
    },
    /// Two hosts of `steadfast pair` (root): commits of sqlite3; with a server a download whose host dies, or --hold; --pairs are rounds
    Pair {
        /// A steadfast-pair [default: target/release/steadfast-pair]
        #[arg(long, value_name = "PROGRAM")]
        program: Option<PathBuf>,
        /// What it costs that acknowledgements are held back, with a server that takes bytes (crates/pair/tests/pair/sink.c)
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
enum SeiTable {
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

fn main() -> ExitCode {
    let cli = Cli::parse();
    match act(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(3)
        }
    }
}

/// What a benchmark found, before it is printed.
struct Outcome {
    table: String,
    json: serde_json::Value,
    /// What is kept in `results/`.
    rows: Vec<Row>,
    failed: bool,
    complete: bool,
}

impl Outcome {
    fn new(report: &impl Serialize, table: String, complete: bool) -> Result<Self> {
        // The tables put every failure on a line of its own that begins so.
        let failed = table.lines().any(|line| line.starts_with("error "));
        Ok(Outcome {
            table,
            json: serde_json::to_value(report)?,
            rows: Vec::new(),
            failed,
            complete,
        })
    }

    fn keeping(mut self, rows: Vec<Row>) -> Self {
        self.rows = rows;
        self
    }
}

/// Everything that takes at most so long, and the page; or all of it as small as it goes.
fn reproduced(minutes: f64, out: &Path, smallest: bool) -> Result<ExitCode> {
    let stop = interrupts()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("");
    let interrupted = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let mut say = |line: &str| eprintln!("{line}");
    let good = if smallest {
        reproduce::smallest(&root, &interrupted, &mut say)?
    } else {
        let (page, good) = reproduce::run(&root, out, minutes, &interrupted, &mut say)?;
        println!("{}", page.display());
        good
    };
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Set by the first signal that asks us to stop; a second one just ends us.
fn interrupts() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn act(cli: &Cli) -> Result<ExitCode> {
    if let Action::Reproduce {
        minutes,
        out,
        smallest,
    } = &cli.action
    {
        return reproduced(*minutes, out, *smallest);
    }
    match &cli.action {
        Action::Python {
            out,
            replicas,
            modules,
        } => {
            python::judge(out, Product::find().path(), *replicas, modules)?;
            return Ok(ExitCode::SUCCESS);
        }
        Action::Slurm { out, tasks, runs } => {
            let said = slurm::prove(out, Product::find().path(), *tasks, *runs)?;
            println!("{said}");
            return Ok(ExitCode::SUCCESS);
        }
        _ => {}
    }
    // Hours may pass until it is written down.
    let commit = machine::commit();
    let outcome = match &cli.action {
        Action::Show { files } => show(files)?,
        Action::Model {
            spec,
            micro,
            replicas,
        } => {
            let report = model::work_out(&load(spec)?, &load(micro)?, *replicas);
            Outcome::new(&report, model::render(&report), true)?
        }
        Action::Flips(ask) => {
            let product = Product::find();
            let report = flips::measure(ask, product.path(), cli.common.seed, &mut |step| {
                eprintln!("bench: {step}");
            })?;
            Outcome::new(&report, flips::render(&report), true)?.keeping(flips::rows(&report))
        }
        measured @ Action::Kv { .. } => kv(measured, &cli.common)?,
        measured @ Action::Host { .. } => host(measured, &cli.common)?,
        measured @ Action::Pair { .. } => pair(measured, &cli.common)?,
        measured => measure(measured, &cli.common)?,
    };
    print!("{}", outcome.table);
    if let Some(file) = &cli.common.json {
        save(file, &outcome.json)?;
    }
    if let Some(file) = &cli.common.results {
        keep(file, &outcome, &cli.common, commit)?;
    }
    Ok(match () {
        () if !outcome.complete => ExitCode::from(2),
        () if outcome.failed => ExitCode::FAILURE,
        () => ExitCode::SUCCESS,
    })
}

/// Adds what was measured to a file of `results/`.
fn keep(file: &Path, outcome: &Outcome, common: &Common, commit: String) -> Result<()> {
    ensure!(
        outcome.complete && !outcome.failed && !outcome.rows.is_empty(),
        "a complete measurement without errors is needed for {}: nothing was kept",
        file.display()
    );
    let mut words = vec!["bench".to_owned()];
    let mut given = std::env::args().skip(1);
    while let Some(word) = given.next() {
        let name = word.split('=').next().unwrap_or_default();
        if !["--results", "--load", "--json", "--lines"].contains(&name) {
            words.push(if word.contains([' ', ';']) {
                format!("\"{word}\"")
            } else {
                word
            });
        } else if !word.contains('=') {
            given.next();
        }
    }
    let how = results::How {
        command: words.join(" "),
        commit,
        load: common.load.clone(),
        seed: common.seed,
    };
    results::add(file, "What `bench` measured.", outcome.rows.clone(), how)
}

fn host(action: &Action, common: &Common) -> Result<Outcome> {
    let Action::Host {
        program,
        flips,
        flips_only,
        lines,
        lines_only,
        as_paper,
        vectors,
    } = action
    else {
        bail!("nothing to measure")
    };
    let groups = match (as_paper, vectors) {
        (true, _) => Some(host::Groups::Paper),
        (_, true) => Some(host::Groups::Vectors),
        _ => None,
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = root.with_file_name("build/bench");
    let lines = lines.clone();
    let plan = host::Plan {
        program: program
            .clone()
            .unwrap_or_else(|| root.with_file_name("target/release/steadfast-host")),
        flips: *flips,
        flips_only: *flips_only,
        rounds: common.pairs,
        seed: common.seed,
        lines: lines.unwrap_or_else(|| place.join("host-flips.jsonl")),
        lines_only: *lines_only,
        groups,
        place,
    };
    let rows = host::measure(&plan)?;
    let outcome = Outcome::new(&rows, host::render(&rows), true)?;
    Ok(outcome.keeping(rows))
}

fn pair(action: &Action, common: &Common) -> Result<Outcome> {
    let Action::Pair {
        program,
        hold,
        micro,
        exchange,
        digest,
        tracking,
        every,
        dirty,
        memory,
        servers,
        postmark,
        image,
        reads,
        lost,
        lose,
        only,
        server,
    } = action
    else {
        bail!("nothing to measure")
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = program
        .clone()
        .unwrap_or_else(|| root.with_file_name("target/release/steadfast-pair"));
    let place = root.with_file_name("build/bench");
    if *micro {
        let own = exchange.as_ref().map(|exchange| pair::Own {
            exchange: exchange.clone(),
            digest: digest.clone(),
            tracking: tracking.clone(),
            every: *every,
            dirty: *dirty,
            megabytes: *memory,
        });
        let (rows, table) = pair::micro(&program, common.pairs, own.as_ref(), &place.join("pair"))?;
        return Ok(Outcome::new(&rows, table, true)?.keeping(rows));
    }
    let alone = if *postmark {
        Some(pair::postmark(&program, common.pairs, &place.join("pair"))?)
    } else if let Some(megabytes) = *image {
        Some(pair::image(
            &program,
            common.pairs,
            megabytes,
            &place.join("pair"),
        )?)
    } else if let Some(pages) = *reads {
        Some(pair::reads(&program, pages, &place.join("pair"))?)
    } else if let Some(times) = *lost {
        Some(pair::lost(times, &place, &mut |step| {
            eprintln!("bench: {step}")
        })?)
    } else {
        None
    };
    if let Some(rows) = alone {
        return Ok(Outcome::new(&rows, pair::render(&rows), true)?.keeping(rows));
    }
    if *servers {
        // Other users' programs read there.
        let rows = pair::load(
            &program,
            common.pairs,
            only,
            Path::new("/tmp/steadfast-bench-pair"),
        )?;
        return Ok(Outcome::new(&rows, pair::render(&rows), true)?.keeping(rows));
    }
    let rows = pair::measure(&pair::Plan {
        program,
        rounds: common.pairs,
        hold: *hold,
        lose: lose.clone(),
        server: server.clone(),
        place,
    })?;
    let outcome = Outcome::new(&rows, pair::render(&rows), true)?;
    Ok(outcome.keeping(rows))
}

fn kv(action: &Action, common: &Common) -> Result<Outcome> {
    let Action::Kv {
        program,
        memcached,
        etcd,
        yrmcds,
        clients,
        slice_ms,
        repairs,
        strikes,
        class,
        simulated,
        runs,
        quiet,
        only,
    } = action
    else {
        bail!("nothing to measure")
    };
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("target/release/steadfast-kv");
    let plan = kv::Plan {
        program: program.clone().unwrap_or(built),
        memcached: memcached.clone(),
        etcd: etcd.clone(),
        yrmcds: yrmcds.clone(),
        rounds: common.pairs,
        clients: clients.clone(),
        slice: Duration::from_millis(*slice_ms),
        repairs: *repairs,
        strikes: *strikes,
        classes: class.clone(),
        simulated: *simulated,
        runs: *runs,
        quiet: *quiet,
        only: *only,
        seed: common.seed,
    };
    let report = kv::measure(&plan, &mut |line| eprintln!("bench: {line}"))?;
    let outcome = Outcome::new(&report.rows, report.render(), true)?;
    Ok(outcome.keeping(report.rows))
}

fn measure(action: &Action, common: &Common) -> Result<Outcome> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("build")
        .join("bench");
    let guests = place.join("guests");
    // The first signal asks the rounds to stop and print what there is.
    let stop = interrupts()?;
    let product = Product::find();
    let machine = Machine::here(&product);
    let runner = Runner::new(product, &place, Duration::from_secs(common.limit), stop)?;
    let mut says = Says::new(common.pairs);
    match action {
        Action::Spec {
            programs,
            columns,
            size,
        } => spec_report(
            &runner, machine, common, programs, columns, *size, &mut says,
        ),
        Action::Micro {
            events,
            scale,
            replicas,
        } => {
            let settings = micro::Settings {
                pairs: common.pairs,
                seed: common.seed,
                scale: *scale,
                replicas_max: *replicas,
                only: events.clone(),
            };
            let report = micro::measure(&runner, &guests, &settings, machine, &mut says)?;
            Ok(
                Outcome::new(&report, micro::render(&report), report.complete)?
                    .keeping(micro::rows(&report)),
            )
        }
        Action::Touch { mib } => {
            let report = touch::measure(
                &runner,
                &guests,
                *mib,
                common.pairs,
                common.seed,
                machine,
                &mut says,
            )?;
            Ok(
                Outcome::new(&report, touch::render(&report), report.complete)?
                    .keeping(touch::rows(&report)),
            )
        }
        Action::Repair {
            mib,
            repairs,
            faults,
        } => {
            let settings = repair::Settings {
                seed: common.seed,
                repairs: *repairs,
                faults: *faults,
                sizes_mib: mib.clone(),
            };
            let report =
                repair::measure(&runner, &guests, &settings, machine, |step| says.say(step))?;
            Ok(
                Outcome::new(&report, repair::render(&report), report.complete)?
                    .keeping(repair::rows(&report)),
            )
        }
        Action::Memory { mib } => {
            let report = memory::measure(&runner, &guests, mib, machine, |step| says.say(step))?;
            Ok(
                Outcome::new(&report, memory::render(&report), !runner.interrupted())?
                    .keeping(memory::rows(&report)),
            )
        }
        Action::Start => {
            let report = start::measure(&runner, common.pairs, common.seed, machine, &mut says);
            Ok(
                Outcome::new(&report, start::render(&report), report.complete)?
                    .keeping(start::rows(&report)),
            )
        }
        Action::Trees => {
            let report = trees::measure(
                &runner,
                &guests,
                common.pairs,
                common.seed,
                machine,
                &mut says,
            )?;
            Ok(
                Outcome::new(&report, trees::render(&report), report.complete)?
                    .keeping(trees::rows(&report)),
            )
        }
        Action::Servers {
            jobs,
            seconds,
            idle,
        } => {
            let plan = servers::Plan {
                product: &Product::find(),
                dir: &place.join("servers"),
                jobs: jobs.clone(),
                rounds: common.pairs,
                time: Duration::from_secs(*seconds),
                idle: Duration::from_secs(*idle),
                seed: common.seed,
            };
            let report = servers::measure(&plan, machine, &|| runner.interrupted(), &mut |step| {
                says.say(step);
            })?;
            let complete = report.complete && report.failures.is_empty();
            Ok(Outcome::new(&report, servers::render(&report), complete)?
                .keeping(servers::rows(&report)))
        }
        Action::ServerFlips {
            servers,
            flips,
            replicas,
            pause,
            lines,
        } => {
            let lines = lines
                .clone()
                .unwrap_or_else(|| place.join("server-flips.jsonl"));
            let plan = servers::flips::Plan {
                product: &Product::find(),
                dir: &place.join("server-flips"),
                lines: &lines,
                servers: servers.clone(),
                replicas: *replicas,
                flips: *flips,
                pause_ms: *pause,
                seed: common.seed,
            };
            let found = servers::flips::measure(&plan, &|| runner.interrupted(), &mut |step| {
                says.say(step);
            })?;
            let complete = found.complete;
            Ok(
                Outcome::new(&found, servers::flips::render(&found), complete)?
                    .keeping(servers::flips::rows(&found)),
            )
        }
        Action::Sei { scale, libsei } => {
            let built = sei::build(&guests, &Product::find(), libsei.as_deref())?;
            let report =
                sei::measure(&built, common.pairs, common.seed, *scale, machine, |step| {
                    says.say(step)
                })?;
            Ok(
                Outcome::new(&report, sei::render(&report), !runner.interrupted())?
                    .keeping(sei::rows(&report)),
            )
        }
        Action::Rest { scale, runs } => {
            let report = rest::measure(
                &Product::find(),
                &guests,
                common.pairs,
                *runs,
                common.seed,
                *scale,
                machine,
                |step| says.say(step),
            )?;
            Outcome::new(&report, rest::render(&report), !runner.interrupted())
        }
        Action::Later { scale } => {
            let report = later::measure(
                &Product::find(),
                &guests,
                common.pairs,
                common.seed,
                *scale,
                machine,
                |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, later::render(&report), !runner.interrupted())?
                    .keeping(later::rows(&report)),
            )
        }
        Action::SeiAlarms { handlers, servers } => {
            let programs = fed_servers(servers, &place, &mut says)?;
            let report = sei_alarms::measure(
                &programs,
                &place,
                *handlers,
                common.seed,
                machine,
                &|| runner.interrupted(),
                &mut |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, sei_alarms::render(&report), report.complete)?
                    .keeping(sei_alarms::rows(&report)),
            )
        }
        Action::SeiServers {
            memcached,
            dnsmasq,
            rows,
            seconds,
            rate_steps,
            low_rate,
            checks,
        } => {
            let settings = sei_servers::Settings {
                pairs: common.pairs,
                seed: common.seed,
                seconds: *seconds,
                rate_steps: *rate_steps,
                low_rate: *low_rate,
                only: rows.clone(),
            };
            let say = &mut |step: &str| says.say(step);
            let servers = sei_servers::servers(&sei_servers::ROWS, &settings);
            let mut builds =
                sei_builds::columns(&servers, memcached.as_deref(), dnsmasq.as_deref(), say)?;
            if *checks {
                builds.extend(sei_builds::without_checks(say)?);
            }
            let report = sei_servers::measure(
                &sei_servers::ROWS,
                &builds,
                &place,
                &settings,
                machine,
                &|| runner.interrupted(),
                &mut |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, sei_servers::render(&report), report.complete)?
                    .keeping(sei_servers::rows(&report)),
            )
        }
        Action::SeiTables {
            what,
            runs,
            jobs,
            budget,
            out,
            variants,
            faults,
            seconds,
        } => {
            let settings = sei_tables::Settings {
                out: out.clone().unwrap_or_else(|| place.join("sei-tables")),
                runs: *runs,
                seed: common.seed,
                jobs: *jobs,
                budget: budget.clone(),
                faults: faults.clone(),
            };
            let report = sei_report(
                &runner, machine, common, what, &settings, variants, *seconds, &mut says,
            )?;
            Ok(
                Outcome::new(&report, sei_tables::render(&report), report.complete)?
                    .keeping(sei_tables::rows(&report)),
            )
        }
        Action::Inject {
            programs,
            exact,
            no_throughput,
            memcached,
        } => {
            let plain = Builds::at(Store::default_place().servers(), 1).find(&SERVERS[0], "plain");
            let settings = inject::Settings {
                rounds: common.pairs,
                seed: common.seed,
                programs: programs.clone(),
                exact: *exact,
                throughput: !no_throughput,
                memcached: memcached.clone().or(plain.ok().map(|built| built.program)),
            };
            let place = std::env::temp_dir().join(format!("bench-inject-{}", std::process::id()));
            let report = inject::measure(
                &place,
                &settings,
                machine,
                &|| runner.interrupted(),
                &mut |step| says.say(step),
            )?;
            Ok(
                Outcome::new(&report, inject::render(&report), report.complete)?
                    .keeping(inject::rows(&report)),
            )
        }
        Action::Model { .. }
        | Action::Show { .. }
        | Action::Reproduce { .. }
        | Action::Flips(_)
        | Action::Python { .. }
        | Action::Slurm { .. }
        | Action::Kv { .. }
        | Action::Host { .. }
        | Action::Pair { .. } => {
            bail!("nothing to measure")
        }
    }
}

/// The hardened servers that are fed from within, of those names; all if none is said.
fn fed_servers(names: &[String], place: &Path, says: &mut Says) -> Result<Vec<(String, PathBuf)>> {
    let store = Store::default_place();
    let sources = Sources::at(store.sources());
    let makes = Builds::at(store.servers(), machine::cores());
    let product = Product::find();
    SERVERS
        .iter()
        .filter(|server| server.name != "nghttpd")
        .filter(|server| names.is_empty() || names.iter().any(|name| name == server.name))
        .map(|server| {
            let recipe = sei_alarms::recipe(server, product.path(), place)?;
            let built = makes.build(server, &recipe, &sources, &mut |step| says.say(step))?;
            Ok((server.name.to_owned(), built.program))
        })
        .collect()
}

#[expect(
    clippy::too_many_arguments,
    reason = "what the command line says, passed on once"
)]
fn sei_report(
    runner: &Runner,
    machine: Machine,
    common: &Common,
    what: &[SeiTable],
    settings: &sei_tables::Settings,
    only: &[String],
    seconds: f64,
    says: &mut Says,
) -> Result<sei_tables::SeiTablesReport> {
    let wanted = sei_builds::wanted(only)?;
    let recipe =
        |variant: &str, server: &Server| sei_builds::recipe(variant, server, &Product::find());
    let product = Product::find();
    let store = Store::default_place();
    let sources = Sources::at(store.sources());
    let makes = Builds::at(store.servers(), machine::cores());
    let build = |server: &'static Server, recipe: &Recipe, says: &mut Says| {
        makes.build(server, recipe, &sources, &mut |step| says.say(step))
    };
    let memcached = &SERVERS[0];
    let variant = |name: &str, built_as: &str, says: &mut Says| -> Result<sei_tables::Variant> {
        // A table of what is there needs no program.
        let program = match settings.runs {
            0 => PathBuf::new(),
            _ => build(memcached, &recipe(built_as, memcached)?, says)?.program,
        };
        Ok(sei_tables::Variant {
            name: name.to_owned(),
            program,
            hardened: name != "mc",
        })
    };
    let variants = |names: &[&str], says: &mut Says| -> Result<Vec<sei_tables::Variant>> {
        names.iter().map(|name| variant(name, name, says)).collect()
    };
    let mut report = sei_tables::SeiTablesReport {
        bench: "sei-tables".to_owned(),
        machine,
        seed: common.seed,
        table2: None,
        table3: None,
        table4: None,
        table5: None,
        figure6: None,
        complete: true,
    };
    for what in what {
        match what {
            SeiTable::Table2 => {
                let names: Vec<&str> = wanted
                    .iter()
                    .copied()
                    .filter(|name| *name != "mc-seil")
                    .collect();
                let variants = variants(&names, says)?;
                let say = &mut |step: &str| says.say(step);
                let table = sei_tables::table2(product.path(), &variants, settings, say)?;
                report.table2 = Some(table);
            }
            SeiTable::Table3 => {
                // With one thread the barrier waits for nobody, so Table 2's mc-sei does without.
                let variants = [("mc-sei", "barrier"), ("mc-seil", "mc-sei")]
                    .into_iter()
                    .filter(|(name, _)| only.is_empty() || only.iter().any(|word| word == name))
                    .map(|(name, built_as)| variant(name, built_as, says))
                    .collect::<Result<Vec<_>>>()?;
                let say = &mut |step: &str| says.say(step);
                let table = sei_tables::table3(product.path(), &variants, settings, say)?;
                report.table3 = Some(table);
            }
            SeiTable::Table4 => {
                let names: Vec<&str> = wanted
                    .iter()
                    .copied()
                    .filter(|name| ["mc", "mc-sei"].contains(name))
                    .collect();
                let variants = variants(&names, says)?;
                let say = &mut |step: &str| says.say(step);
                let table = sei_tables::table4(product.path(), &variants, settings, say)?;
                report.table4 = Some(table);
            }
            SeiTable::Table5 => {
                let dnsmasq = &SERVERS[1];
                let mut builds = Vec::new();
                for (name, file, recipe) in [
                    ("native", "native", Recipe::plain()),
                    (phases::FULL, "full", recipe("mc-sei", dnsmasq)?),
                    (phases::LEVEL, "sei", sei_builds::bare_level(dnsmasq)),
                ] {
                    let counters = store.servers().join(format!("phases-{file}.bin"));
                    let recipe = phases::beneath(recipe, &store.servers(), &counters)?;
                    let built =
                        makes.build(dnsmasq, &recipe, &sources, &mut |step| says.say(step))?;
                    builds.push(phases::Build {
                        name: name.to_owned(),
                        program: built.program,
                        counters,
                        envelope: recipe.envelope,
                    });
                }
                report.table5 = Some(phases::measure(
                    &builds,
                    &settings.out.join("phases"),
                    common.pairs,
                    seconds,
                    common.seed,
                    &mut |step| says.say(step),
                )?);
            }
            SeiTable::Figure6 => {
                let mut builds = Vec::new();
                for name in ["mc", "mc-sei"] {
                    let recipe = recipe(name, memcached)?;
                    let built =
                        makes.build(memcached, &recipe, &sources, &mut |step| says.say(step))?;
                    builds.push(sei_builds::Build {
                        column: if name == "mc" { "plain" } else { "hardened" }.to_owned(),
                        server: memcached.name.to_owned(),
                        program: built.program,
                        envelope: recipe.envelope,
                    });
                }
                let measured = sei_servers::measure(
                    &sei_servers::figure6_rows(machine::cores()),
                    &builds,
                    &settings.out,
                    &sei_servers::Settings {
                        pairs: common.pairs,
                        seed: common.seed,
                        seconds,
                        rate_steps: 6,
                        low_rate: 10_000.0,
                        only: Vec::new(),
                    },
                    report.machine.clone(),
                    &|| runner.interrupted(),
                    &mut |step| says.say(step),
                )?;
                report.complete = measured.complete;
                report.figure6 = Some(measured);
            }
        }
        if let Some(file) = &common.json {
            save(file, &serde_json::to_value(&report)?)?;
        }
    }
    Ok(report)
}

fn spec_report(
    runner: &Runner,
    machine: Machine,
    common: &Common,
    programs: &[String],
    columns: &[String],
    size: Size,
    says: &mut Says,
) -> Result<Outcome> {
    let store = Store::default_place();
    let columns = chosen_columns(columns)?;
    let mut report = SpecReport {
        bench: "spec".to_owned(),
        machine,
        size: size.name().to_owned(),
        pairs: common.pairs,
        seed: common.seed,
        complete: true,
        programs: Vec::new(),
        promises: Vec::new(),
        means: std::collections::BTreeMap::new(),
    };
    let mut rng = Rng::new(common.seed);
    for workload in chosen_programs(programs)? {
        if runner.interrupted() {
            break;
        }
        let mut program = Program {
            name: workload.name.to_owned(),
            stands_for: workload.spec.to_owned(),
            error: None,
            series: Vec::new(),
        };
        match ready(&store, workload, size, says) {
            Ok(job) => {
                let turns = Turns::of(workload.name, &job, &columns, common.pairs);
                program.series = rounds::run(runner, &turns, &mut rng, says);
            }
            Err(error) => program.error = Some(format!("{error:#}")),
        }
        report.programs.push(program);
        report.complete = !runner.interrupted();
        spec::conclude(&mut report, ALL.len());
        // Hours of work are not lost to a crash in the last program.
        if let Some(file) = &common.json {
            save(file, &serde_json::to_value(&report)?)?;
        }
    }
    Ok(Outcome::new(&report, spec::render(&report), report.complete)?.keeping(spec::rows(&report)))
}

fn ready(
    store: &Store,
    workload: &Workload,
    size: Size,
    says: &mut Says,
) -> Result<steadfast_workloads::Invocation> {
    store.invocation(workload, size).or_else(|_| {
        setup::setup(store, &[workload], &[size], &mut |step| says.say(step))?;
        store.invocation(workload, size)
    })
}

fn chosen_programs(names: &[String]) -> Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(ALL.iter().collect());
    }
    let by_name = |name: &String| {
        find(name).with_context(|| format!("no workload is called {name:?}; see: workloads list"))
    };
    names.iter().map(by_name).collect()
}

/// `corun2` stands for both of its page sizes.
fn chosen_columns(names: &[String]) -> Result<Vec<Column>> {
    let all = spec::columns();
    let is = |column: &Column, name: &str| {
        column.name == name
            || column
                .name
                .strip_prefix(name)
                .is_some_and(|rest| name.starts_with("corun") && rest.starts_with('-'))
    };
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|column| is(column, name)))
    {
        bail!("no column is called {name:?}; known: bare, corun2, corun3, n1, n2-stop, n2, n3");
    }
    Ok(all
        .into_iter()
        .filter(|column| names.is_empty() || names.iter().any(|name| is(column, name)))
        .collect())
}

fn show(files: &[PathBuf]) -> Result<Outcome> {
    let [file] = files else {
        let reports = files
            .iter()
            .map(|file| load(file))
            .collect::<Result<Vec<SpecReport>>>()?;
        let report = spec::join(reports, ALL.len()).map_err(anyhow::Error::msg)?;
        return Outcome::new(&report, spec::render(&report), report.complete);
    };
    let value: serde_json::Value = load(file)?;
    let kind = value
        .get("bench")
        .and_then(|kind| kind.as_str())
        .unwrap_or("")
        .to_owned();
    let table = match kind.as_str() {
        "spec" => spec::render(&serde_json::from_value(value.clone())?),
        "micro" => micro::render(&serde_json::from_value(value.clone())?),
        "touch" => touch::render(&serde_json::from_value(value.clone())?),
        "repair" => repair::render(&serde_json::from_value(value.clone())?),
        "memory" => memory::render(&serde_json::from_value(value.clone())?),
        "inject" => inject::render(&serde_json::from_value(value.clone())?),
        "later" => later::render(&serde_json::from_value(value.clone())?),
        "rest" => rest::render(&serde_json::from_value(value.clone())?),
        "sei" => sei::render(&serde_json::from_value(value.clone())?),
        "sei-tables" => sei_tables::render(&serde_json::from_value(value.clone())?),
        "sei-alarms" => sei_alarms::render(&serde_json::from_value(value.clone())?),
        "sei-servers" => sei_servers::render(&serde_json::from_value(value.clone())?),
        "start" => start::render(&serde_json::from_value(value.clone())?),
        "model" => model::render(&serde_json::from_value(value.clone())?),
        other => bail!(
            "{} is not a result of bench (kind {other:?})",
            file.display()
        ),
    };
    Outcome::new(&value, table, true)
}

fn load<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let text =
        fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not such a result", file.display()))
}

/// Writes beside the file and renames, so that a reader never sees half of it.
fn save(file: &Path, value: &serde_json::Value) -> Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let text = serde_json::to_string_pretty(value)? + "\n";
    fs::write(&part, text)
        .and_then(|()| fs::rename(&part, file))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Progress on standard error: one line that is overwritten on a terminal, one line per round
/// elsewhere.
struct Says {
    pairs: usize,
    terminal: bool,
    last: String,
}

impl Says {
    fn new(pairs: usize) -> Self {
        Says {
            pairs,
            terminal: std::io::stderr().is_terminal(),
            last: String::new(),
        }
    }

    fn say(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }

    fn clear(&mut self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

impl Progress for Says {
    fn step(&mut self, job: &str, round: usize, column: &str) {
        let at = format!("{job}: round {} of {}", round + 1, self.pairs);
        if self.terminal {
            eprint!("\r\x1b[K{at}, {column}");
            let _ = std::io::stderr().flush();
        } else if at != self.last {
            eprintln!("{at}");
        }
        self.last = at;
    }

    fn failed(&mut self, job: &str, round: usize, column: &str, why: &Failure) {
        self.say(&format!("{job}: round {}, {column}: {why}", round + 1));
    }
}

impl Drop for Says {
    fn drop(&mut self) {
        self.clear();
    }
}
