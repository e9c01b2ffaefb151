//! `workloads server`: fetch, build and check the servers that are hardened at compile time.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use steadfast_workloads::servers::build::{Builds, Recipe};
use steadfast_workloads::servers::deadwood::DEADWOOD;
use steadfast_workloads::servers::source::Sources;
use steadfast_workloads::servers::suite::{self, End};
use steadfast_workloads::servers::{SERVERS, Server, find};
use steadfast_workloads::{Store, load, replay};

#[derive(Subcommand)]
pub(crate) enum Action {
    /// Download the source packages, verified by apt
    Fetch { servers: Vec<String> },
    /// Build a variant from untouched source
    Build {
        servers: Vec<String>,
        #[command(flatten)]
        recipe: RecipeArgs,
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// A clone of MaraDNS, for deadwood: kept, once its commit and the hash of its tree are right
        #[arg(long, value_name = "DIR")]
        source: Option<PathBuf>,
    },
    /// Run the server's own test suite against a build
    Suite {
        /// Test files [default: all that Debian runs]
        tests: Vec<String>,
        #[arg(long, default_value = "memcached")]
        server: String,
        #[arg(long, default_value = "plain")]
        variant: String,
        /// Start each server with -t 1
        #[arg(long)]
        single_threaded: bool,
        /// Test the server that runs at this address, with the files that any server of these commands passes
        #[arg(long, value_name = "ADDRESS", conflicts_with = "single_threaded")]
        at: Option<SocketAddr>,
        /// Seconds after which a test file is ended
        #[arg(long, default_value_t = 120)]
        limit: u64,
    },
    /// Write requests and the right replies, for `steadfast inject --driver trace:FILE`
    Trace {
        file: PathBuf,
        /// memcached, or ledger (cc/tests/http.cc)
        #[arg(long, default_value = "memcached", value_parser = ["memcached", "ledger"])]
        server: String,
        /// Requests
        #[arg(long, default_value_t = 400)]
        length: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Read every key at the end: what the requests have left behind (memcached)
        #[arg(long)]
        sweep: bool,
        /// So many connections side by side, which share the requests, and at last read every key of theirs (memcached)
        #[arg(long, conflicts_with = "sweep", value_parser = clap::value_parser!(u8).range(2..=64))]
        connections: Option<u8>,
    },
    /// Write the hosts that dnsmasq is asked for, and print the options it is to be started with, for `ask`
    Hosts {
        file: PathBuf,
        /// The port at which `ask` answers as the upstream server
        #[arg(long, default_value_t = 5354)]
        upstream: u16,
    },
    /// Ask a running dnsmasq, and print what it answers: a client for `steadfast inject run --driver`
    ///
    /// The names are those of `hosts`, and names that an upstream server knows, which this is itself meanwhile. Ends with 0 when all
    /// was answered.
    Ask {
        /// Of the server
        port: u16,
        #[arg(long, default_value_t = 5354)]
        upstream: u16,
        /// Questions
        #[arg(long, default_value_t = 200)]
        length: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Through the message envelope
        #[arg(long)]
        envelope: bool,
    },
    /// Put requests whose right answers are known, and compare
    Replay {
        server: String,
        #[arg(long, default_value = "plain")]
        variant: String,
        /// This program instead of a variant
        #[arg(long, value_name = "PROGRAM")]
        program: Option<PathBuf>,
        /// Through the message envelope
        #[arg(long)]
        envelope: bool,
        /// Requests of the trace (memcached), or of the load (nghttpd)
        #[arg(long, default_value_t = 20_000)]
        length: usize,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Workers (memcached, nghttpd)
        #[arg(long, default_value_t = 1)]
        threads: usize,
    },
}

/// What a variant is built with; without any of these, the plain build.
#[derive(Args)]
pub(crate) struct RecipeArgs {
    /// The variant's name
    #[arg(long, default_value = "plain")]
    variant: String,
    /// The compiler's command
    #[arg(long, value_name = "COMMAND")]
    cc: Option<String>,
    /// The same for C++ [default: clang++-19, or steadfast c++ where --cc is steadfast cc]
    #[arg(long, value_name = "COMMAND")]
    cxx: Option<String>,
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    cflags: Option<String>,
    #[arg(long, value_name = "FLAGS", allow_hyphen_values = true)]
    ldflags: Option<String>,
    /// Objects and archives for the end of the link
    #[arg(long, value_name = "FILES", allow_hyphen_values = true)]
    libs: Option<String>,
    /// Link the message envelope beneath it
    #[arg(long)]
    envelope: bool,
    /// Environment of configure and make
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(format!("NAME=VALUE is required, found {text:?}")),
    }
}

impl RecipeArgs {
    fn recipe(&self) -> Recipe {
        let plain = Recipe::plain();
        Recipe {
            variant: self.variant.clone(),
            cxx: match (&self.cxx, self.cc.as_deref()) {
                (Some(cxx), _) => cxx.clone(),
                (None, Some(cc))
                    if cc.ends_with("steadfast-cc") || cc.ends_with("steadfast cc") =>
                {
                    cc.replace("steadfast-cc", "steadfast-c++")
                        .replace("steadfast cc", "steadfast c++")
                }
                _ => plain.cxx,
            },
            cc: self.cc.clone().unwrap_or(plain.cc),
            cflags: self.cflags.clone().unwrap_or(plain.cflags),
            ldflags: self.ldflags.clone().unwrap_or(plain.ldflags),
            libs: self.libs.clone().unwrap_or(plain.libs),
            envelope: self.envelope,
            env: self.env.clone(),
        }
    }
}

pub(crate) fn act(store: &Store, action: &Action) -> Result<ExitCode> {
    let sources = Sources::at(store.sources());
    let mut say = |step: &str| eprintln!("{step}");
    match action {
        Action::Fetch { servers } => {
            for server in chosen(servers)? {
                println!("{}", sources.fetch(server, &mut say)?.display());
            }
        }
        Action::Build {
            servers,
            recipe,
            jobs,
            source,
        } => {
            let builds = Builds::at(store.servers(), *jobs);
            for server in chosen(servers)? {
                if let Some(source) = source {
                    sources.take(server, source)?;
                }
                let built = builds.build(server, &recipe.recipe(), &sources, &mut say)?;
                println!("{}", built.program.display());
            }
        }
        Action::Suite {
            tests,
            server,
            variant,
            single_threaded,
            at,
            limit,
        } => {
            let limit = Duration::from_secs(*limit);
            let mut told = |run: &suite::TestRun| {
                let word = match run.end {
                    End::Passed => "passed",
                    End::Failed => "FAILED",
                    End::TimedOut => "TIMED OUT",
                };
                println!("{word:<9} {:>7.1} s  {}", run.seconds, run.name);
            };
            let results = if let Some(at) = at {
                let tree = store.servers().join("memcached").join("tests-alone");
                if !tree.exists() {
                    std::fs::create_dir_all(store.servers().join("memcached"))?;
                    suite::unpack(&sources, &tree, &mut say)?;
                }
                suite::run_at(*at, &tree, tests, limit, &mut told)?
            } else {
                let built = Builds::at(store.servers(), 1).find(by_name(server)?, variant)?;
                suite::run(&built, *single_threaded, tests, limit, &mut told)?
            };
            let passed = results.iter().filter(|run| run.end == End::Passed).count();
            println!("{passed} of {} test files passed", results.len());
            for run in results.iter().filter(|run| run.end != End::Passed) {
                println!("see {}", run.log.display());
            }
            if passed < results.len() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Action::Trace {
            file,
            server,
            length,
            seed,
            sweep,
            connections,
        } => {
            if let Some(connections) = connections {
                ensure!(
                    server == "memcached",
                    "--connections is for a trace of memcached, found {server}"
                );
                let traces =
                    replay::memcached::swept_apart(*seed, *length, usize::from(*connections));
                std::fs::write(file, replay::written_apart(&traces))
                    .with_context(|| format!("cannot write {}", file.display()))?;
                return Ok(ExitCode::SUCCESS);
            }
            let trace = match server.as_str() {
                "ledger" => replay::ledger::trace(*seed, *length),
                _ if *sweep => replay::memcached::swept(*seed, *length),
                _ => replay::memcached::trace(*seed, *length),
            };
            std::fs::write(file, replay::written(&trace))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        Action::Hosts { file, upstream } => {
            replay::dns::write_asked_hosts(file)?;
            println!("--addn-hosts={}", file.display());
            let upstream = SocketAddr::from((Ipv4Addr::LOCALHOST, *upstream));
            for option in replay::dns::options(upstream) {
                println!("{option}");
            }
        }
        Action::Ask {
            port,
            upstream,
            length,
            seed,
            envelope,
        } => {
            let _upstream = load::upstream::Upstream::start_at(*upstream)?;
            let server = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
            let mut out = std::io::stdout().lock();
            let asked = replay::dns::ask(server, *seed, *length, *envelope, &mut out)?;
            if asked != replay::dns::Asked::All {
                return Ok(ExitCode::FAILURE);
            }
        }
        Action::Replay {
            server,
            variant,
            program,
            envelope,
            length,
            seed,
            threads,
        } => {
            let server = by_name(server)?;
            let program = program_of(store, server, variant, program.as_ref())?;
            let settings = replay::Settings {
                seed: *seed,
                length: *length,
                envelope: *envelope,
                threads: *threads,
            };
            let dir = store.servers();
            let found = match server.name {
                "memcached" => replay::play_memcached(&program, &dir, settings)?,
                "nghttpd" => {
                    let plain = Builds::at(store.servers(), 1)
                        .find(server, "plain")?
                        .program;
                    replay::http2::play(&plain, &program, &dir, settings)?
                }
                "deadwood" => replay::play_deadwood(&program, &dir, settings)?,
                _ => replay::play_dnsmasq(&program, &dir, settings)?,
            };
            for wrong in &found.wrong {
                println!("wrong: {wrong}");
            }
            println!("{} requests, {} wrong", found.requests, found.wrong.len());
            if !found.wrong.is_empty() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn program_of(
    store: &Store,
    server: &'static Server,
    variant: &str,
    named: Option<&PathBuf>,
) -> Result<PathBuf> {
    match named {
        Some(program) => Ok(program.clone()),
        None => Ok(Builds::at(store.servers(), 1)
            .find(server, variant)?
            .program),
    }
}

fn chosen(names: &[String]) -> Result<Vec<&'static Server>> {
    if names.is_empty() {
        return Ok(SERVERS.iter().collect());
    }
    names.iter().map(|name| by_name(name)).collect()
}

fn by_name(name: &str) -> Result<&'static Server> {
    find(name).with_context(|| {
        let known: Vec<_> = SERVERS
            .iter()
            .chain([&DEADWOOD])
            .map(|server| server.name)
            .collect();
        format!("no server is called {name:?}\n  known: {}", known.join(" "))
    })
}
