//! `steadfast kv serve`: one replica of a group on several hosts. What is wrong with its set-up is said before anything starts.
//!
//! Invariant: a process never has a node number that another process of the group has had, unless it goes on with that one's log and vote.
//!
//! Not covered: secrecy without `--tls-cert`. The secret then goes over the network in the clear.

use std::collections::BTreeMap;
use std::net::{TcpListener, ToSocketAddrs as _};

use anyhow::{Context as _, ensure};
use steadfast_group::disk::Disk;
use steadfast_group::secret;
use steadfast_group::tls::{Files, Tls};
use steadfast_group::{Kept, Who};

use crate::cli::{Serve, TlsClients};
use crate::full::Full;
use crate::news::News;
use crate::replica;
use crate::say;
use crate::service::{Setup, Stage};

/// Where clients are listened for unless it is said.
const CLIENT_PORT: u16 = 11211;

fn open(at: &str, what: &str, flag: &str) -> anyhow::Result<TcpListener> {
    let cannot = || {
        format!(
            "this replica needs {at} for {what}, and it cannot be had\n  fix:   {flag}, an address of this host and a port that nobody has"
        )
    };
    let found: Vec<_> = at.to_socket_addrs().with_context(cannot)?.collect();
    TcpListener::bind(&found[..]).with_context(cannot)
}

/// The directory of this replica, if it has one.
fn disk(args: &Serve) -> anyhow::Result<Option<Disk>> {
    let Some(dir) = &args.data else {
        return Ok(None);
    };
    let stage = args.common.stage;
    ensure!(
        stage >= Stage::Rd,
        "--data: requirement: stage RD or above, where executing the log again gives the same state; found: {}\n  fix:   --stage RDGX",
        stage.word()
    );
    Disk::open(dir, args.replica, &stage.word()).map(Some)
}

pub(crate) fn run(args: &Serve) -> anyhow::Result<()> {
    secret::check_peers(&args.peers, args.replica)?;
    let own_secret = secret::read(&args.secret_file)?;
    let common = &args.common;
    let own = &args.peers[usize::try_from(args.replica)?];
    let listen = match &args.listen {
        Some(at) => at.clone(),
        None => {
            let host = own.rsplit_once(':').map_or("", |(host, _)| host);
            format!("{host}:{CLIENT_PORT}")
        }
    };
    let files = args
        .tls_cert
        .clone()
        .zip(args.tls_key.clone())
        .zip(args.tls_ca.clone());
    let tls = files
        .map(|((certificate, key), authority)| {
            let files = Files {
                certificate,
                key,
                authority,
            };
            Tls::load(&files, own)
        })
        .transpose()?;
    ensure!(
        tls.is_some() || args.tls_clients == TlsClients::Off,
        "--tls-clients: requirement: a certificate to show; found: none\n  fix:   --tls-cert FILE --tls-key FILE --tls-ca FILE"
    );
    let peer = open(
        args.bind.as_ref().unwrap_or(own),
        "the other replicas",
        "--bind ADDRESS",
    )?;
    let client = open(&listen, "its clients", "--listen ADDRESS")?;
    let http = args
        .http
        .as_ref()
        .map(|at| open(at, "monitors", "--http ADDRESS"))
        .transpose()?;
    let mut disk = disk(args)?;
    let kept = match &disk {
        Some(disk) if disk.resumes() => Kept::Log,
        Some(disk) if disk.lost() => Kept::Lost,
        _ => Kept::Nothing,
    };
    for note in disk.iter_mut().flat_map(Disk::notes) {
        say::line(
            common.json,
            &format!("replica {}: {note}", args.replica),
            &News::Disk {
                replica: args.replica,
                found: note,
            },
        );
    }
    let who = Who {
        slot: args.replica,
        node: match &disk {
            Some(disk) => disk.node(),
            None => secret::fresh_node(args.replica)?.0,
        },
        client: client.local_addr()?.to_string(),
        peers: args.peers.clone(),
        service: match common.full {
            Full::Evict => common.stage.word(),
            full @ Full::Refuse => format!("{}, --full {full}", common.stage.word()),
        },
        memory_mib: common.memory,
        kept,
    };
    replica::run(replica::Start {
        setup: Setup {
            me: steadfast_crosscheck::Node(who.node),
            slot: args.replica,
            size: args.peers.len(),
            stage: common.stage,
            allow_strikes: common.allow_strikes,
            json: common.json,
            bytes_max: common.memory << 20,
            full: common.full,
            snapshot_every: common.snapshot_every,
            secret: own_secret,
            scrub_s: common.scrub,
            watchdog_s: common.watchdog,
            batch: common.batch,
            batch_ms: common.batch_ms,
            work_us: common.work_us,
            reads: common.reads,
            epoch: args.digest_epoch,
            starts: disk.as_ref().map_or(0, Disk::starts),
            disk_faults: disk.as_ref().map_or(0, Disk::faults),
            resumes: disk.as_ref().and_then(Disk::last),
            who: Some(who),
        },
        client,
        peer,
        members: BTreeMap::new(),
        founds: false,
        connections: common.connections,
        workers: common.workers(args.replica),
        http,
        disk,
        tls,
        tls_clients: args.tls_clients,
    })
}
