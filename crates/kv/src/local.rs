//! `--local N`: a group on one machine. The parent opens the sockets, starts a process for each replica, and starts a fresh one in the
//! place of one that has died.
//!
//! Invariants
//!  1. A replica dies with its parent: it asks the kernel for that before anything else.
//!  2. The sockets stay with the parent: an address answers again as soon as its place is taken.
//!  3. One place that cannot be filled does not end the group.
//!
//! Not covered: a log on disk. What was stored is lost with more than f replicas that die at once.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use steadfast_crosscheck::Node;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::ask::ask;
use crate::cli::{At, Common, Local};
use crate::inherit;
use crate::news::News;
use crate::say;
use steadfast_group::Member;
use steadfast_group::secret::{self, node};

/// How long a group may take to elect its first leader.
const READY: Duration = Duration::from_secs(20);
/// How long a fresh process may take to be let in.
const JOIN: Duration = Duration::from_secs(20);
/// Deaths of one place in a row, each within [`CALM`] of the one before; after so many it stays empty, and the others go on.
const DEATHS_MAX: u32 = 20;
/// A process that has lived so long has not died of how it was started.
const CALM: Duration = Duration::from_secs(60);
/// The variable that tells a replica the secret of its group. An environment is readable by its own user alone, a command line by all.
pub(crate) const SECRET: &str = "STEADFAST_KV_SECRET";

struct Place {
    client: TcpListener,
    peer: TcpListener,
    generation: u64,
    child: Option<Child>,
    deaths: u32,
    born: Instant,
}

/// The group as its parent knows it.
struct Parent<'a> {
    args: &'a Local,
    common: &'a Common,
    secret: String,
    members: BTreeMap<Node, Member>,
    clients: Vec<SocketAddr>,
    /// Where it is told which process, of which generation, has not been let in.
    unwanted: mpsc::UnboundedSender<(usize, u64)>,
}

/// What the parent waits for.
enum Next {
    Ended,
    Ready,
    Died(usize),
    Unwanted(usize, u64),
}

pub(crate) fn run(args: &Local, common: &Common) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(group(args, common));
    // Who still asks a replica for something is not waited for.
    runtime.shutdown_background();
    ended
}

fn open(args: &Local) -> anyhow::Result<Vec<(TcpListener, TcpListener)>> {
    let mut sockets = Vec::new();
    for slot in 0..args.local {
        let port = match args.port {
            0 => 0,
            port => u16::try_from(u64::from(port) + slot)
                .ok()
                .context("port above 65535\n  fix:   a smaller --port")?,
        };
        let client = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
            format!(
                "replica {slot} needs port {port} of 127.0.0.1 for its clients, and it cannot be had\n  fix:   --port N, another first port, or --port 0 for any"
            )
        })?;
        sockets.push((client, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?));
    }
    Ok(sockets)
}

async fn group(args: &Local, common: &Common) -> anyhow::Result<()> {
    let sockets = open(args)?;
    let mut members = BTreeMap::new();
    for (slot, (client, peer)) in (0..).zip(&sockets) {
        let member = Member {
            slot,
            client: client.local_addr()?.to_string(),
            peer: peer.local_addr()?.to_string(),
        };
        members.insert(node(slot, 0), member);
    }
    let (unwanted, mut refused) = mpsc::unbounded_channel();
    let clients: Vec<SocketAddr> = sockets
        .iter()
        .map(|(client, _)| client.local_addr())
        .collect::<Result<_, _>>()?;
    let parent = Parent {
        args,
        common,
        secret: secret::fresh()?,
        members,
        clients: clients.clone(),
        unwanted,
    };
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut places = Vec::new();
    for (slot, (client, peer)) in (0..).zip(sockets) {
        let child = parent.spawn(slot, 0, &client, &peer)?;
        places.push(Place {
            client,
            peer,
            generation: 0,
            child: Some(child),
            deaths: 0,
            born: Instant::now(),
        });
    }
    let pids: Vec<Option<u32>> = places
        .iter()
        .map(|place| place.child.as_ref().and_then(Child::id))
        .collect();

    let ready = {
        let clients = clients.clone();
        tokio::task::spawn_blocking(move || wait_ready(&clients))
    };
    let mut ready = std::pin::pin!(ready);
    let mut told = false;
    loop {
        let next = {
            let waits = places.iter_mut().enumerate().filter_map(|(slot, place)| {
                let child = place.child.as_mut()?;
                Some(Box::pin(async move {
                    let _ = child.wait().await;
                    slot
                }))
            });
            tokio::select! {
                // First: Ctrl-C in a terminal reaches the replicas as well, and their end is none to be mended.
                biased;
                _ = interrupt.recv() => Next::Ended,
                _ = terminate.recv() => Next::Ended,
                done = &mut ready, if !told => {
                    done??;
                    Next::Ready
                }
                Some((slot, generation)) = refused.recv() => Next::Unwanted(slot, generation),
                (slot, _, _) = futures_util::future::select_all(waits) => Next::Died(slot),
            }
        };
        match next {
            Next::Ended => break,
            Next::Ready => {
                told = true;
                announce(common, &clients, &pids);
            }
            Next::Unwanted(slot, generation) => {
                let place = &mut places[slot];
                if place.generation == generation
                    && let Some(child) = &mut place.child
                {
                    // Its end is seen as any other.
                    let _ = child.start_kill();
                }
            }
            Next::Died(slot) => {
                if !told {
                    bail!("replica {slot} died before the group was ready");
                }
                parent.replace(slot, &mut places[slot]).await?;
                if places.iter().all(|place| place.child.is_none()) {
                    bail!(
                        "no replica is left\n  fix:   look at the lines above for what they died of"
                    );
                }
            }
        }
    }
    for child in places.iter_mut().filter_map(|place| place.child.as_mut()) {
        let _ = child.kill().await;
    }
    Ok(())
}

fn announce(common: &Common, clients: &[SocketAddr], pids: &[Option<u32>]) {
    let list: Vec<String> = clients.iter().map(ToString::to_string).collect();
    if common.json {
        let ready = News::Ready {
            stage: common.stage.word(),
            clients: list,
            pids: pids.to_vec(),
        };
        say::line(true, "", &ready);
        say::finish();
    } else {
        say::result(&format!(
            "ready: {} replicas, stage {}; memcached clients may use any of {}",
            list.len(),
            common.stage.word(),
            list.join(" ")
        ));
    }
}

impl Parent<'_> {
    fn spawn(
        &self,
        slot: u64,
        generation: u64,
        client: &TcpListener,
        peer: &TcpListener,
    ) -> anyhow::Result<Child> {
        let (args, common) = (self.args, self.common);
        // The program that runs, though another one may have its name by now, or nothing.
        let exe = std::env::current_exe()
            .ok()
            .filter(|path| path.exists())
            .unwrap_or_else(|| "/proc/self/exe".into());
        inherit::share(client, true)?;
        inherit::share(peer, true)?;
        let mut command = Command::new(exe);
        command
            .arg("replica")
            .args(["--slot", &slot.to_string()])
            .args(["--node", &node(slot, generation).0.to_string()])
            .args(["--size", &args.local.to_string()])
            .args(["--stage", &common.stage.word()])
            .args(["--client-fd", &client.as_raw_fd().to_string()])
            .args(["--peer-fd", &peer.as_raw_fd().to_string()])
            .args(["--parent", &std::process::id().to_string()])
            .args(["--connections", &common.connections.to_string()])
            .args(["--memory", &common.memory.to_string()])
            .args(["--full", &common.full.to_string()])
            .args(["--snapshot-every", &common.snapshot_every.to_string()])
            .args(["--scrub", &common.scrub.to_string()])
            .args(["--watchdog", &common.watchdog.to_string()])
            .args(["--reads", &common.reads.to_string()])
            .args(["--batch", &common.batch.to_string()])
            .args(["--batch-ms", &common.batch_ms.to_string()])
            .args(["--workers", &common.workers(slot).to_string()])
            .args(["--work-us", &common.work_us.to_string()])
            .env(SECRET, &self.secret)
            .stdin(std::process::Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        if generation == 0 {
            command.args([
                "--members",
                &serde_json::to_string(&self.members.values().collect::<Vec<_>>())?,
            ]);
        }
        if common.allow_strikes {
            command.arg("--allow-strikes");
        }
        if common.json {
            command.arg("--json");
        }
        let child = command.spawn().context("a replica could not be started")?;
        inherit::share(client, false)?;
        inherit::share(peer, false)?;
        Ok(child)
    }

    /// Puts a fresh process in the place of one that has died.
    async fn replace(&self, slot: usize, place: &mut Place) -> anyhow::Result<()> {
        place.child = None;
        place.deaths = in_a_row(place.deaths, place.born.elapsed());
        let number = slot as u64;
        if stays_empty(place.deaths) {
            say::error(&format!(
                "replica {number} has died {DEATHS_MAX} times in a row; its place stays empty, the others go on\n  fix:   look at the lines above for what it died of, and start the group again"
            ));
            return Ok(());
        }
        // The first is replaced at once.
        tokio::time::sleep(Duration::from_millis(50) * (place.deaths - 1)).await;
        place.generation += 1;
        place.born = Instant::now();
        let generation = place.generation;
        let child = self.spawn(number, generation, &place.client, &place.peer)?;
        let pid = child.id();
        place.child = Some(child);
        let line = format!(
            "sf replace {} {number} {} {} {}",
            self.secret,
            node(number, generation).0,
            place.peer.local_addr()?,
            place.client.local_addr()?
        );
        let mut others = self.clients.clone();
        others.remove(slot);
        let json = self.common.json;
        let unwanted = self.unwanted.clone();
        let began = place.born;
        tokio::task::spawn_blocking(move || {
            let mut last = String::new();
            while began.elapsed() < JOIN {
                for at in &others {
                    match ask(&At::plain(*at), &line) {
                        Ok(answer) if answer == "REPLACED" => {
                            let took_ms =
                                u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                            say::line(
                                json,
                                &format!(
                                    "replica {number} had died; a fresh process {} has its place after {took_ms} ms",
                                    pid.unwrap_or(0)
                                ),
                                &News::Replaced {
                                    replica: number,
                                    pid,
                                    took_ms,
                                },
                            );
                            return;
                        }
                        Ok(answer) if answer != crate::service::NOT_LEADER => last = answer,
                        _ => {}
                    }
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            say::error(&format!(
                "replica {number} had died, and the others have not let a fresh process in for {} s ({last})\n  fix:   if more than f of 2f+1 replicas died at once, what was stored is lost: start the group again",
                JOIN.as_secs()
            ));
            let _ = unwanted.send((slot, generation));
        });
        Ok(())
    }
}

/// Deaths of one place in a row, with that of a process which has lived so long.
fn in_a_row(before: u32, lived: Duration) -> u32 {
    if lived > CALM { 1 } else { before + 1 }
}

fn stays_empty(deaths: u32) -> bool {
    deaths >= DEATHS_MAX
}

fn wait_ready(clients: &[SocketAddr]) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut last = String::new();
    for at in clients {
        loop {
            if began.elapsed() > READY {
                bail!(
                    "the group has no leader after {} s; {at} says: {last}",
                    READY.as_secs()
                );
            }
            if let Ok(answer) = ask(&At::plain(*at), "sf status") {
                let status: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
                let members = status["members"].as_array().map_or(0, Vec::len);
                if status["leader"].is_u64() && members == clients.len() {
                    break;
                }
                last = answer;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_stays_empty_after_the_twentieth_death_in_a_row() {
        let mut deaths = 0;
        let mut started_again = 0;
        loop {
            deaths = in_a_row(deaths, Duration::ZERO);
            if stays_empty(deaths) {
                break;
            }
            started_again += 1;
        }
        assert_eq!((deaths, started_again), (20, 19));
        assert_eq!(in_a_row(19, CALM + Duration::from_secs(1)), 1);
    }
}
