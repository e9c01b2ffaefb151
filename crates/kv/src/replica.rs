//! One replica as a process: its sockets, its engine, its service.

use std::collections::BTreeMap;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::Context as _;
use steadfast_crosscheck::Node;
use steadfast_group::disk::Disk;
use steadfast_group::sequencer::raft::Engine;
use steadfast_group::tls::Tls;
use steadfast_group::wire::Posted;
use steadfast_group::{Links, Member, Peers, Sequencer as _, meet};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::alive;
use crate::cli::TlsClients;
use crate::client;
use crate::http;
use crate::news::News;
use crate::service::{Event, Service, Setup};
use crate::store::Workers;

/// What a replica is started with.
pub(crate) struct Start {
    pub(crate) setup: Setup,
    pub(crate) client: StdListener,
    pub(crate) peer: StdListener,
    /// All members of a group that begins; nothing for a process that takes a place later.
    pub(crate) members: BTreeMap<Node, Member>,
    /// Whether this one founds the group.
    pub(crate) founds: bool,
    pub(crate) connections: usize,
    /// Threads that execute.
    pub(crate) workers: usize,
    /// Certificates, if replicas speak TLS with each other, and how clients talk to this one.
    pub(crate) tls: Option<Tls>,
    pub(crate) tls_clients: TlsClients,
    /// What it keeps across its end.
    pub(crate) disk: Option<Disk>,
    /// Where metrics and health are asked for.
    pub(crate) http: Option<StdListener>,
}

/// The log has come to an end, which it does only when the engine does.
const ENDED: &str = "the ordering engine has ended, as it does when the state cannot be written; this replica takes no further part, the others go on\n  fix:   room on the disk of --data, or another one; then start it again";

/// Runs a replica until its process is told to end.
pub(crate) fn run(start: Start) -> anyhow::Result<()> {
    alive::end_on_panic();
    // One thread: three replicas and their clients share the cores of a small machine, and a second thread would only wake the first.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(start))
}

async fn serve(start: Start) -> anyhow::Result<()> {
    let listener = |listener: StdListener| -> anyhow::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_std(listener)?)
    };
    let client = listener(start.client).context("the socket for clients")?;
    let peer = listener(start.peer).context("the socket for replicas")?;
    let (events, received) = mpsc::unbounded_channel();

    let me = start.setup.me;
    // Submissions travel as the vote's messages do; the service knows the way.
    let (forward, mut forwarded) = mpsc::unbounded_channel::<Posted>();
    let secret = start.setup.secret;
    let links = Links {
        secret,
        epoch: start.setup.epoch,
        mixed: true,
        tls: start.tls.clone(),
    };
    let (engine, log, failure) = Engine::start(
        me,
        links.clone(),
        start.setup.snapshot_every,
        start.disk,
        move |to, post| {
            let _ = forward.send((to, post));
        },
    )
    .await?;
    let mut peers = Peers::new(me, links.clone());
    peers.set(&start.members);
    let mut forwards = Peers::new(me, links.clone());
    forwards.set(&start.members);
    let ordering = engine.clone();
    let accepts = links.clone();
    tokio::spawn(accepts.accept(peer, me, Some(engine.raft.clone()), events.clone()));
    tokio::spawn(async move {
        while let Some((to, post)) = forwarded.recv().await {
            let members = ordering.members();
            if !members.is_empty() {
                forwards.set(&members);
            }
            forwards.send(steadfast_crosscheck::To::One(to), &post);
        }
    });
    let tls = start.tls.zip(start.tls_clients.known());
    let busy = Arc::new(AtomicUsize::new(0));
    tokio::spawn(client::serve(
        client,
        events.clone(),
        start.connections,
        tls,
        busy.clone(),
    ));
    if start.founds {
        engine
            .found(start.members)
            .await
            .context("the group could not be founded")?;
    }
    if let Some(http) = start.http {
        let http = listener(http).context("the socket for metrics")?;
        tokio::spawn(http::serve(http, events.clone()));
    }
    let (standing, member) = watch::channel(false);
    let who = start.setup.who.clone();
    let service = Service::new(
        &start.setup,
        Workers::start(start.workers).context("threads that execute")?,
        engine.clone(),
        peers,
        standing,
        events.downgrade(),
        busy,
    );
    let Some(who) = who else {
        service.run(received, log).await;
        anyhow::bail!(ENDED);
    };
    // What keeps it out of a group, or a signal, ends the process.
    let json = start.setup.json;
    let slot = start.setup.slot;
    let joins = async {
        meet::join(engine, links, who, member, crate::say::error)
            .await
            .map_err(|why| anyhow::anyhow!(why))?;
        crate::say::line(
            json,
            &format!("replica {slot} belongs to the group"),
            &News::Member { replica: slot },
        );
        std::future::pending::<anyhow::Result<()>>().await
    };
    let full = async {
        match failure {
            Some(failure) => failure
                .await
                .unwrap_or_else(|_| "its thread has ended".to_owned()),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // First: the engine ends on the same error, and says less about it.
        biased;
        why = full => Err(anyhow::anyhow!("--data: nothing can be written any more: {why}; this replica takes no further part, the others go on\n  fix:   room on the disk, or another one; then start it again")),
        () = service.run(received, log) => Err(anyhow::anyhow!(ENDED)),
        ended = joins => ended,
        ended = told_to_end(events, secret) => ended,
    }
}

/// SIGTERM and SIGINT: what is under way is answered, the lead is handed on, then the process ends.
async fn told_to_end(events: mpsc::UnboundedSender<Event>, secret: u128) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    let (reply, drained) = oneshot::channel();
    let _ = events.send(Event::Own(
        "drain".to_owned(),
        format!("{secret:032x}"),
        reply,
    ));
    let _ = drained.await;
    Ok(())
}
