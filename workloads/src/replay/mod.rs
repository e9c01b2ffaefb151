//! Replay: what a right server answers, request by request, before any fault or any hardening.
//!
//! The answers are worked out here, by a small model of the protocol ([`memcached`]) and from the
//! configuration and the upstream's own data ([`dns`]); no server says what is right. A plain
//! build and a hardened one are held to the same answers. HTTP/2 ([`http2`]) is the exception: there
//! the bodies are known, and the rest of an answer is what the plain build gives.

pub mod dns;
pub mod http2;
pub mod ledger;
pub mod memcached;

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_envelope::client::Connection;
use steadfast_envelope::dns as envelope;

use crate::inputs::Rng;
use crate::load;
use crate::load::process::Split;
use memcached::Step;

/// What a replay found.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    pub requests: u64,
    /// What was wrong, at most [`WRONG_MAX`] of it.
    pub wrong: Vec<String>,
}

/// More wrong answers than this say nothing new.
pub const WRONG_MAX: usize = 20;

/// How a replay is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub seed: u64,
    /// Requests of the trace (memcached), or of the load (nghttpd).
    pub length: usize,
    pub envelope: bool,
    pub threads: usize,
}

/// A trace as `steadfast inject` reads it: `> N`, a line end, N bytes and a line end are sent, `< N`
/// likewise is the right reply.
#[must_use]
pub fn written(trace: &[Step]) -> Vec<u8> {
    let mut out = Vec::new();
    for step in trace {
        for (way, body) in [('>', &step.request), ('<', &step.reply)] {
            out.extend_from_slice(format!("{way} {}\n", body.len()).as_bytes());
            out.extend_from_slice(body);
            out.push(b'\n');
        }
    }
    out
}

/// Traces of several connections, which are played side by side: `@ I` says whose what follows is.
#[must_use]
pub fn written_apart(traces: &[Vec<Step>]) -> Vec<u8> {
    traces
        .iter()
        .enumerate()
        .flat_map(|(connection, trace)| {
            [format!("@ {connection}\n").into_bytes(), written(trace)].concat()
        })
        .collect()
}

/// Plays a trace to a memcached that is started for it: one request at a time first, then, to a
/// second server, several at once, cut where it happens.
///
/// # Errors
/// When the server cannot be started or stops answering.
pub fn play_memcached(program: &Path, dir: &Path, settings: Settings) -> Result<Replayed> {
    let mut found = Replayed::default();
    for batch_max in [1, 12] {
        let split = Split::shared(settings.threads)?;
        let log = dir.join("memcached.log");
        let mut server = load::memcached::start(program, &split, 256, &log)?;
        let stream = TcpStream::connect(server.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let mut rng = Rng::new(settings.seed);
        let mut connection = if settings.envelope {
            Connection::negotiate(stream, rng.next_u64())?
        } else {
            Connection::plain(stream)
        };
        if settings.envelope && !connection.enveloped() {
            bail!("a server with the message envelope is required, this one has none");
        }
        let trace = memcached::trace(settings.seed, settings.length);
        let mut rest = &trace[..];
        while !rest.is_empty() && found.wrong.len() < WRONG_MAX {
            let most = rest.len().min(1 + rng.below(batch_max));
            let drops = rest[1..most]
                .iter()
                .position(memcached::Step::drops_earlier);
            let (batch, later) = rest.split_at(drops.map_or(most, |at| at + 1));
            rest = later;
            play(&mut connection, batch, &mut found)?;
        }
        server.check_alive()?;
    }
    Ok(found)
}

fn play(
    connection: &mut Connection<TcpStream>,
    batch: &[Step],
    found: &mut Replayed,
) -> Result<()> {
    let request: Vec<u8> = batch.iter().flat_map(|step| step.request.clone()).collect();
    let right: Vec<u8> = batch.iter().flat_map(|step| step.reply.clone()).collect();
    connection.send(&request)?;
    let mut reply = Vec::new();
    while reply.len() < right.len() && right.starts_with(&reply) {
        let got = connection
            .receive(&mut reply)
            .with_context(|| format!("no whole reply to {}", shown(&request)))?;
        if got == 0 {
            bail!("the server hung up at {}", shown(&request));
        }
    }
    found.requests += batch.len() as u64;
    if reply != right {
        found.wrong.push(format!(
            "{}: {} is right, {} came",
            shown(&request),
            shown(&right),
            shown(&reply)
        ));
        // From here on replies and requests do not belong together any more.
        bail!("{}", found.wrong.join("\n"));
    }
    Ok(())
}

fn shown(bytes: &[u8]) -> String {
    let short = &bytes[..bytes.len().min(160)];
    let dots = if short.len() < bytes.len() { "..." } else { "" };
    format!("{:?}{dots}", String::from_utf8_lossy(short))
}

/// Asks a Deadwood every question twice, the second time of its cache, and compares.
///
/// # Errors
/// When the server cannot be started or stops answering.
pub fn play_deadwood(program: &Path, dir: &Path, settings: Settings) -> Result<Replayed> {
    ensure!(
        !settings.envelope,
        "Deadwood answers by sendto, which the envelope does not cover; found --envelope"
    );
    let upstream = load::upstream::Upstream::start()?;
    let split = Split::everywhere()?;
    let mut server = load::deadwood::start_forwarding(program, &split, dir, upstream.address)?;
    let mut found = Replayed::default();
    let mut questions = dns::forwarded_questions();
    let mut rng = Rng::new(settings.seed);
    rng.shuffle(&mut questions);
    for question in &questions {
        for edns in [false, true] {
            let id = (rng.next_u64() & 0xffff) as u16;
            let query = crate::dns::query(id, &question.name, question.kind, edns);
            let reply = load::dns::exchange(server.address, &query, Duration::from_secs(5))
                .with_context(|| {
                    format!("no reply about {} type {}", question.name, question.kind)
                })?;
            found.requests += 1;
            found.wrong.extend(dns::compare(question, id, &reply)?);
        }
        if found.wrong.len() >= WRONG_MAX {
            break;
        }
    }
    server.check_alive()?;
    Ok(found)
}

/// Puts each question twice, without and with an OPT record, to a dnsmasq that is started for it,
/// and compares with what is right, the number of questions to the upstream included.
///
/// # Errors
/// When the server cannot be started or stops answering.
pub fn play_dnsmasq(program: &Path, dir: &Path, settings: Settings) -> Result<Replayed> {
    let upstream = load::upstream::Upstream::start()?;
    let split = Split::everywhere()?;
    let mut server = load::dns::start(program, &split, dir, &dns::options(upstream.address))?;
    let mut found = Replayed::default();
    let mut questions = dns::questions();
    let mut rng = Rng::new(settings.seed);
    rng.shuffle(&mut questions);
    for question in &questions {
        for edns in [false, true] {
            let id = (rng.next_u64() & 0xffff) as u16;
            let mut query = crate::dns::query(id, &question.name, question.kind, edns);
            let serial = (rng.next_u64() >> 32) as u32;
            if settings.envelope {
                query = envelope::seal(&query, serial, 1232)?;
            }
            let mut reply = load::dns::exchange(server.address, &query, Duration::from_secs(5))
                .with_context(|| {
                    format!("no reply about {} type {}", question.name, question.kind)
                })?;
            if settings.envelope {
                let opened =
                    envelope::open(&reply)?.context("a reply without the message envelope")?;
                if opened.serial != serial {
                    found
                        .wrong
                        .push(format!("{}: a wrong serial", question.name));
                }
                reply = opened.message;
            }
            found.requests += 1;
            found.wrong.extend(dns::compare(question, id, &reply)?);
        }
        let forwarded = upstream.asked(&question.name, question.kind);
        if let Some(right) = question.forwarded.filter(|&right| right != forwarded) {
            found.wrong.push(format!(
                "{} type {}: asked upstream {forwarded} times, {right} is right",
                question.name, question.kind
            ));
        }
        if found.wrong.len() >= WRONG_MAX {
            break;
        }
    }
    server.check_alive()?;
    Ok(found)
}
