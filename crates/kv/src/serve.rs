//! `steadfast kv serve`: one replica of a group on several hosts. What is wrong with its set-up is said before anything starts.
//!
//! Invariant: a process never has a node number that another process of the group has had; its log was in memory.
//!
//! Not covered: TLS. The secret keeps out who does not listen; it goes over the network in the clear.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{TcpListener, ToSocketAddrs as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use crate::cli::Serve;
use crate::local;
use crate::meet::Who;
use crate::replica;
use crate::service::Setup;

/// Where clients are listened for unless it is said.
const CLIENT_PORT: u16 = 11211;

/// Reads the secret of a group, from a file that nobody else can read.
pub(crate) fn secret(file: &Path) -> anyhow::Result<u128> {
    let at = file.display();
    let mode = std::fs::metadata(file)
        .with_context(|| {
            format!(
                "the secret of the group is to be in {at}, and is not there\n  fix:   (umask 077; steadfast kv secret > {at}), and the same file on every host"
            )
        })?
        .permissions()
        .mode();
    ensure!(
        mode & 0o027 == 0,
        "{at} holds the secret of the group: requirement: closed to other users; found: mode {:o}\n  fix:   chmod 600 {at}",
        mode & 0o777
    );
    let text = std::fs::read_to_string(file).with_context(|| at.to_string())?;
    let text = text.trim();
    match u128::from_str_radix(text, 16) {
        Ok(secret) if text.len() == 32 => Ok(secret),
        _ => bail!(
            "{at}: requirement: 32 hexadecimal digits; found: {} characters that are not\n  fix:   (umask 077; steadfast kv secret > {at}), and the same file on every host",
            text.len()
        ),
    }
}

/// The list of peers, if it can be one.
fn checked(args: &Serve) -> anyhow::Result<()> {
    let count = args.peers.len();
    ensure!(
        count % 2 == 1 && (3..=7).contains(&count),
        "--peers: requirement: 3, 5 or 7 addresses, so that a vote has a majority; found: {count}\n  fix:   --peers HOST:PORT,HOST:PORT,HOST:PORT"
    );
    let different: BTreeSet<&String> = args.peers.iter().collect();
    ensure!(
        different.len() == count,
        "--peers: requirement: each replica once; found: an address twice in {}",
        args.peers.join(",")
    );
    for peer in &args.peers {
        let port = peer.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        ensure!(
            matches!(port, Some(Ok(1..))),
            "--peers: requirement: HOST:PORT; found: '{peer}'\n  fix:   --peers 10.0.0.1:11311,10.0.0.2:11311,10.0.0.3:11311"
        );
    }
    ensure!(
        args.replica < count as u64,
        "--replica: requirement: a place in --peers, 0 to {}; found: {}",
        count - 1,
        args.replica
    );
    Ok(())
}

fn open(at: &str, what: &str, flag: &str) -> anyhow::Result<TcpListener> {
    let cannot = || {
        format!(
            "this replica needs {at} for {what}, and it cannot be had\n  fix:   {flag}, an address of this host and a port that nobody has"
        )
    };
    let found: Vec<_> = at.to_socket_addrs().with_context(cannot)?.collect();
    TcpListener::bind(&found[..]).with_context(cannot)
}

/// A number that no process of this group has had: 44 bits of chance, so that it can be read as a floating-point number too.
fn fresh_node(slot: u64) -> anyhow::Result<u64> {
    let chance = u128::from_str_radix(&local::secret()?, 16)?;
    let generation = u64::try_from(chance >> 84)?.max(1);
    Ok(local::node(slot, generation).0)
}

pub(crate) fn run(args: &Serve) -> anyhow::Result<()> {
    checked(args)?;
    let secret = secret(&args.secret_file)?;
    let common = &args.common;
    let own = &args.peers[usize::try_from(args.replica)?];
    let listen = match &args.listen {
        Some(at) => at.clone(),
        None => {
            let host = own.rsplit_once(':').map_or("", |(host, _)| host);
            format!("{host}:{CLIENT_PORT}")
        }
    };
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
    let who = Who {
        slot: args.replica,
        node: fresh_node(args.replica)?,
        client: client.local_addr()?.to_string(),
        peers: args.peers.clone(),
        stage: common.stage.word(),
        memory_mib: common.memory,
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
            snapshot_every: common.snapshot_every,
            secret,
            scrub_s: common.scrub,
            reads: common.reads,
            who: Some(who),
        },
        client,
        peer,
        members: BTreeMap::new(),
        founds: false,
        connections: common.connections,
        http,
    })
}
