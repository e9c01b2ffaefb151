//! `steadfast top --http`: what `ps` lists, for monitors.
//!
//! Invariant: counters of a program never go back while it runs, since processes that have ended still count.
//!
//! Not covered: trees of other users and of other pid namespaces; TLS.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};

use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::Own;
use steadfast_contract::monitor::{self, BUSY, Kind, Metrics, OK, Reply, UNKNOWN};
use steadfast_replica::status::{Group, State, Totals, Tree, trees};

use crate::report::printable;

#[derive(Debug, thiserror::Error)]
#[error("--http needs an address and port that nobody listens at, and {address} cannot be had")]
pub(crate) struct NoListener {
    address: SocketAddr,
    source: io::Error,
}

impl Advise for NoListener {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new(
            "--http with an address of this machine and a free port",
        ))
    }
}

/// Answers until the process is ended.
///
/// # Errors
/// When the address cannot be listened at.
pub(crate) fn serve(address: SocketAddr) -> Result<Infallible, NoListener> {
    let listener = TcpListener::bind(address).map_err(|source| NoListener { address, source })?;
    loop {
        monitor::serve(&listener, |path| reply(path, trees()));
    }
}

fn reply(path: &str, found: io::Result<Vec<Tree>>) -> Reply {
    match (path, found) {
        ("/metrics" | "/healthz", Err(why)) => (BUSY, format!("/proc cannot be read: {why}\n")),
        ("/metrics", Ok(trees)) => (OK, page(&trees)),
        ("/healthz", Ok(_)) => (OK, "ok\n".to_owned()),
        _ => (UNKNOWN, "known: /metrics, /healthz\n".to_owned()),
    }
}

/// Name, help and value of a program's counter.
type OfTree = (&'static str, &'static str, fn(&Totals) -> u64);
/// The same of a process; some can fall.
type OfProcess = (Kind, &'static str, &'static str, fn(&Group) -> u64);

const OF_TREE: [OfTree; 3] = [
    ("processes_total", "processes that were protected", |of| {
        of.processes
    }),
    (
        "events_total",
        "events that replicas have agreed on",
        |of| of.events,
    ),
    ("repairs_total", "replicas that were made again", |of| {
        of.repairs
    }),
];

const OF_PROCESS: [OfProcess; 5] = [
    (
        Kind::Counter,
        "events_total",
        "events that its replicas have agreed on",
        |of| of.events,
    ),
    (
        Kind::Counter,
        "repairs_total",
        "replicas that were made again",
        |of| of.repairs,
    ),
    (Kind::Gauge, "threads", "threads of the program", |of| {
        u64::from(of.threads)
    }),
    (Kind::Gauge, "replicas", "replicas that run it", |of| {
        of.replicas.len() as u64
    }),
    (
        Kind::Gauge,
        "repairing",
        "1 while a replica is made again",
        |of| u64::from(of.state == State::Repairing),
    ),
];

fn page(trees: &[Tree]) -> String {
    let mut page = Metrics::default();
    page.family(
        Kind::Gauge,
        "steadfast_run_programs",
        "programs that run protected",
    );
    page.sample(&[], trees.len());
    for (name, help, value) in OF_TREE {
        page.family(Kind::Counter, &format!("steadfast_run_{name}"), help);
        for tree in trees {
            page.sample(
                &[("launcher", &tree.launcher.to_string())],
                value(&tree.totals),
            );
        }
    }
    for (kind, name, help, value) in OF_PROCESS {
        page.family(kind, &format!("steadfast_run_process_{name}"), help);
        for (tree, group) in trees
            .iter()
            .flat_map(|tree| tree.groups.iter().map(move |group| (tree, group)))
        {
            let labels = [
                ("launcher", &*tree.launcher.to_string()),
                ("pid", &group.pid.to_string()),
                ("program", &program(group)),
            ];
            page.sample(&labels, value(group));
        }
    }
    page.into_text()
}

/// Its first word alone: others may hold secrets, and each new one would be a new series.
fn program(group: &Group) -> String {
    let first = group.command.first().map_or("", |word| word.as_str());
    printable(first.rsplit('/').next().unwrap_or(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_replica::status::Replica;

    fn tree() -> Tree {
        Tree {
            launcher: 40,
            groups: vec![Group {
                pid: 41,
                command: ["/usr/bin/re\ndis".to_owned(), "--password=x".to_owned()].to_vec(),
                replicas: vec![
                    Replica {
                        pid: 41,
                        core: None
                    };
                    2
                ],
                threads: 5,
                events: 350,
                repairs: 1,
                state: State::Repairing,
                at_ns: 1,
            }],
            totals: Totals {
                processes: 3,
                events: 1000,
                repairs: 2,
            },
        }
    }

    #[test]
    fn a_program_counts_what_its_ended_processes_did_and_shows_no_argument() {
        let (code, text) = reply("/metrics", Ok(vec![tree()]));
        assert_eq!(code, OK);
        for line in [
            "steadfast_run_programs 1",
            "steadfast_run_processes_total{launcher=\"40\"} 3",
            "steadfast_run_events_total{launcher=\"40\"} 1000",
            "steadfast_run_repairs_total{launcher=\"40\"} 2",
            "steadfast_run_process_events_total{launcher=\"40\",pid=\"41\",program=\"re?dis\"} 350",
            "steadfast_run_process_repairing{launcher=\"40\",pid=\"41\",program=\"re?dis\"} 1",
        ] {
            assert!(text.lines().any(|said| said == line), "{line} in\n{text}");
        }
        assert!(!text.contains("password"));
    }

    #[test]
    fn health_follows_proc_and_other_paths_are_unknown() {
        assert_eq!(reply("/healthz", Ok(Vec::new())).0, OK);
        assert_eq!(reply("/healthz", Err(io::Error::other("none"))).0, BUSY);
        assert_eq!(reply("/", Ok(Vec::new())).0, UNKNOWN);
    }
}
