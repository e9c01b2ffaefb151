//! `bench sei-alarms`: false alarms of hardened servers, counted over handlers and not over what a network lets through.
//!
//! memcached and dnsmasq are built from Debian's untouched sources with their policies and the guest `feed.c` beneath, in the
//! envelope's place: it makes requests where the server would read them and compares the replies where it would send them.
//! So handlers follow each other as fast as they run. An order says how many requests; the next one has another seed.
//!
//! Invariant: a wrong reply, an end of the server or a word of its runtime ends the count of its server, and stands in the
//! table as an alarm.
//!
//! Not covered: several connections or threads at once (`bench soak`), and the network's own code.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use steadfast_report::published::Row;
use steadfast_workloads::load::process::{Running, Split};
use steadfast_workloads::load::{dns, memcached};
use steadfast_workloads::servers::Server;
use steadfast_workloads::servers::build::{CC, Recipe};

use crate::machine::Machine;
use crate::table;

/// Requests of one order: some seconds.
const ORDER: u64 = 2_000_000;

/// No order takes so long on a machine that works.
const PATIENCE: Duration = Duration::from_secs(300);

/// feed.c: `WORD`.
const WORD: &[u8; 8] = b"sf-feed\0";

/// One server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Count {
    pub server: String,
    pub requests: u64,
    /// Handlers that were committed.
    pub handlers: u64,
    /// CPU time of the thread that handles.
    pub seconds: f64,
    /// What ended the count before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<String>,
}

/// The whole result, as it is written to a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeiAlarmsReport {
    pub bench: String,
    pub machine: Machine,
    pub seed: u64,
    /// That were asked for, of each server.
    pub handlers: u64,
    pub servers: Vec<Count>,
    pub complete: bool,
}

/// The hardened build with the guest in the envelope's place.
///
/// # Errors
/// When the guest does not compile.
pub fn recipe(server: &Server, product: &Path, place: &Path) -> Result<Recipe> {
    let wrapped =
        ["read", "recvmsg", "sendmsg", "accept", "accept4"].map(|name| format!("--wrap={name}"));
    Ok(Recipe {
        envelope: false,
        ldflags: format!("-Wl,{}", wrapped.join(",")),
        libs: feed(place)?.display().to_string(),
        ..Recipe::hardened("hardened-fed", server, product, "", &[])
    })
}

/// Compiles the guest; a changed one has another name, so a server is built anew with it.
fn feed(place: &Path) -> Result<PathBuf> {
    fs::create_dir_all(place).with_context(|| format!("cannot create {}", place.display()))?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("guests/feed.c");
    let mut hasher = DefaultHasher::new();
    fs::read(&source)
        .with_context(|| format!("cannot read {}", source.display()))?
        .hash(&mut hasher);
    let object = place.join(format!("feed-{:016x}.o", hasher.finish()));
    let ran = Command::new(CC)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-c", "-o"])
        .arg(&object)
        .arg(&source)
        .output()
        .context("the compiler could not be started")?;
    ensure!(
        ran.status.success(),
        "{} does not compile:\n{}",
        source.display(),
        String::from_utf8_lossy(&ran.stderr)
    );
    Ok(object)
}

fn order(requests: u64, seed: u64) -> Vec<u8> {
    [
        WORD.as_slice(),
        &requests.to_le_bytes(),
        &seed.to_le_bytes(),
    ]
    .concat()
}

/// Gives an order, and waits for what the guest says when it is done.
fn give(server: &str, address: SocketAddr, order: &[u8]) -> Result<String> {
    let mut reply = Vec::new();
    if server == "memcached" {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(order)?;
        stream.read_to_end(&mut reply)?;
    } else {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(order)?;
        reply.resize(128, 0);
        let got = socket.recv(&mut reply)?;
        reply.truncate(got);
    }
    Ok(String::from_utf8_lossy(&reply).into_owned())
}

/// "feed: REQUESTS requests, HANDLERS handlers, NANOSECONDS ns"
fn line_of(text: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = text
        .strip_prefix("feed: ")?
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    numbers.try_into().ok()
}

/// Counts one server's handlers until there are enough of them.
fn count(
    server: &str,
    program: &Path,
    place: &Path,
    handlers: u64,
    first_seed: u64,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<Count> {
    let mut sum = Count {
        server: server.to_owned(),
        ..Count::default()
    };
    let log = place.join(format!("{server}.log"));
    let mut running: Running = match server {
        "memcached" => memcached::start(program, &Split::shared(1)?, 256, &log)?,
        "dnsmasq" => dns::start(program, &Split::shared(1)?, place, &[])?,
        other => bail!("there is nothing to feed {other} with"),
    };
    let mut seed = first_seed;
    while sum.handlers < handlers && !interrupted() {
        let said = give(server, running.address, &order(ORDER, seed));
        if let Err(end) = running.check_alive() {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let why = log
                .lines()
                .find(|line| line.contains("steadfast:") || line.starts_with("feed: "));
            sum.alarm = Some(why.map_or_else(|| end.to_string(), str::to_owned));
            return Ok(sum);
        }
        let said = said.with_context(|| format!("{server}, seed {seed}"))?;
        let [requests, handled, ns] =
            line_of(&said).with_context(|| format!("{server} does not say what it did: {said}"))?;
        ensure!(handled > 0, "{server} handles requests without handlers");
        sum.requests += requests;
        sum.handlers += handled;
        sum.seconds += Duration::from_nanos(ns).as_secs_f64();
        seed += 1;
        say(&format!(
            "{server}: {} handlers of {handlers}",
            sum.handlers
        ));
    }
    Ok(sum)
}

/// Counts the handlers of all servers given, by name and program.
///
/// # Errors
/// When a server cannot be started or does not do as it is told; an alarm is in the report.
pub fn measure(
    servers: &[(String, PathBuf)],
    place: &Path,
    handlers: u64,
    seed: u64,
    machine: Machine,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Result<SeiAlarmsReport> {
    let place = place.join("sei-alarms");
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let servers = servers
        .iter()
        .map(|(name, program)| count(name, program, &place, handlers, seed, interrupted, say))
        .collect::<Result<Vec<_>>>()?;
    Ok(SeiAlarmsReport {
        bench: "sei-alarms".to_owned(),
        machine,
        seed,
        handlers,
        servers,
        complete: !interrupted(),
    })
}

/// What is kept in `results/`: a count that an alarm ended has one.
#[must_use]
pub fn rows(report: &SeiAlarmsReport) -> Vec<Row> {
    report
        .servers
        .iter()
        .map(|count| {
            let what = format!(
                "false alarms of {}, handlers that follow each other in one process",
                count.server
            );
            Row::share(
                &count.server,
                what,
                u64::from(count.alarm.is_some()),
                count.handlers,
            )
        })
        .collect()
}

/// The report as text.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    reason = "counts of handlers are far below 2^52"
)]
pub fn render(report: &SeiAlarmsReport) -> String {
    let rows: Vec<Vec<String>> = report
        .servers
        .iter()
        .map(|count| {
            // None in n: with 95 % confidence fewer than 3 in n (ln 20 = 3.0).
            let bound = match count.alarm {
                Some(_) => "1".to_owned(),
                None => format!("0, fewer than 1 in {}", count.handlers / 3),
            };
            vec![
                count.server.clone(),
                count.requests.to_string(),
                count.handlers.to_string(),
                format!("{:.0}", count.handlers as f64 / count.seconds.max(1e-9)),
                bound,
            ]
        })
        .collect();
    let mut text = report.machine.render();
    text += "\nHandlers in one process, no network; alarms with 95 % confidence\n";
    text += &table::render(
        &[
            "server",
            "requests",
            "handlers",
            "handlers/s",
            "false alarms",
        ],
        &rows,
    );
    text.push('\n');
    for count in &report.servers {
        if let Some(line) = &count.alarm {
            text += &format!("error {}: {line}\n", count.server);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_says_is_read() {
        assert_eq!(
            line_of("feed: 2000000 requests, 4500000 handlers, 81 ns"),
            Some([2_000_000, 4_500_000, 81])
        );
        assert_eq!(line_of("feed: a reply is wrong, request 7 of seed 1"), None);
        assert_eq!(order(2, 1).len(), 24);
    }
}
