//! How a Rust service starts a replica, and has the group execute what its clients ask.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Event, Machine, OwnLog, Reply, Setup, run, run_on, thread};
use crate::secret;
use crate::sequencer::Sequencer;
use crate::who::{Kept, Who};

/// Entries of the log between two snapshots, which a replica that joins begins with.
const SNAPSHOT_EVERY: u64 = 50_000;
/// Seconds in which everything is compared once.
const SCRUB_S: u64 = 600;

impl Setup {
    /// Replica `slot` of the group at these addresses, for a service of that name whose clients reach it at `client`; and the socket for
    /// the other replicas. Without TLS.
    ///
    /// # Errors
    /// When the addresses are no list of an odd number, the own one cannot be had, or the secret cannot be read.
    pub fn plain(
        service: &str,
        epoch: u32,
        slot: u64,
        peers: &str,
        client: SocketAddr,
        secret_file: &Path,
    ) -> anyhow::Result<(Self, TcpListener)> {
        let peers: Vec<String> = peers.split(',').map(str::to_owned).collect();
        secret::check_peers(&peers, slot)?;
        let own = &peers[usize::try_from(slot)?];
        let listener = TcpListener::bind(own).with_context(|| {
            format!("requirement: {own}, for the other replicas; found: it cannot be had\n  fix:   an address of this host and a port that nobody has")
        })?;
        let setup = Self {
            secret: secret::read(secret_file)?,
            who: Who {
                slot,
                node: secret::fresh_node(slot)?.0,
                client: client.to_string(),
                peers,
                service: service.to_owned(),
                memory_mib: 0,
                kept: Kept::Nothing,
            },
            tls: None,
            epoch,
            snapshot_every: SNAPSHOT_EVERY,
            scrub_s: SCRUB_S,
        };
        Ok((setup, listener))
    }
}

/// A replica on a thread of its own. It ends when its callers are gone.
#[derive(Debug, Clone)]
pub struct Calls(UnboundedSender<Event>);

impl Calls {
    /// Starts a replica; the thread says why it could answer nobody any more.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub fn start<M: Machine + Send + 'static>(
        setup: Setup,
        listener: TcpListener,
        machine: M,
    ) -> std::io::Result<(Self, JoinHandle<Result<(), String>>)> {
        Self::on_a_thread(move |received| run(setup, listener, machine, received))
    }

    /// The same on a log that the service has already.
    ///
    /// # Errors
    /// As [`Calls::start`].
    pub fn start_on<M: Machine + Send + 'static, S: Sequencer>(
        log: OwnLog<S>,
        setup: Setup,
        listener: TcpListener,
        machine: M,
    ) -> std::io::Result<(Self, JoinHandle<Result<(), String>>)> {
        Self::on_a_thread(move |received| run_on(log, setup, listener, machine, received))
    }

    fn on_a_thread(
        run: impl FnOnce(UnboundedReceiver<Event>) -> Result<(), String> + Send + 'static,
    ) -> std::io::Result<(Self, JoinHandle<Result<(), String>>)> {
        let (calls, received) = unbounded_channel();
        let ends = std::thread::Builder::new()
            .name("crosscheck".to_owned())
            .spawn(move || run(received))?;
        Ok((Self(calls), ends))
    }

    /// Has the group execute a request, and waits for the reply that f+1 replicas have.
    ///
    /// # Errors
    /// When there is no such reply, and why.
    pub fn call(&self, request: Vec<u8>) -> Result<Reply, &'static str> {
        const ENDED: &str = "the replica has ended";
        let (reply, answer) = thread::sync_channel(1);
        self.0
            .send(Event::Call(request, reply))
            .map_err(|_| ENDED)?;
        answer.recv().unwrap_or(Err(ENDED))
    }

    /// The same, for requests and replies of a [`Guarded`](super::Guarded) service.
    ///
    /// # Errors
    /// As [`Calls::call`].
    pub fn ask<Q: Serialize, R: DeserializeOwned>(&self, request: &Q) -> Result<R, &'static str> {
        let bytes = postcard::to_stdvec(request).map_err(|_| "the request cannot be encoded")?;
        let reply = self.call(bytes)?;
        postcard::from_bytes(&reply.bytes).map_err(|_| "the service does not know such a request")
    }
}
