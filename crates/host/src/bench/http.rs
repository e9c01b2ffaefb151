//! The HTTP server: what stubs add to a request, and what a fault a second leaves of its throughput.
//!
//! One client with one connection over loopback asks, so a request has the sockets in it that any client pays for.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use steadfast_restart::{Bare, Component, Edge, Host, Process};

use super::report::Report;
use super::tools::{BATCH, in_turns, measured, plain, turns};
use crate::listen;
use crate::load;
use crate::told::Told;

const SERVE: &str = "steadfast:http/server@0.1.0#serve";
const OTHERS: [&str; 2] = ["keyvalue", "fs"];
/// With one fault, and without: so long each.
const SECOND: Duration = Duration::from_secs(1);

/// A client that asks for a value, and knows it.
struct Client {
    stream: TcpStream,
    piece: [u8; 512],
}

impl Client {
    fn new(bound: listen::Bound) -> Result<Self, Told> {
        let odd = |error: std::io::Error| anyhow::Error::new(error).context("the HTTP client");
        let address = bound.address();
        bound.spawn()?;
        let stream = TcpStream::connect(address).map_err(odd)?;
        stream.set_nodelay(true).map_err(odd)?;
        let mut client = Self {
            stream,
            piece: [0; 512],
        };
        let put = "PUT /kv/sky HTTP/1.1\r\nHost: bench\r\nContent-Length: 4\r\n\r\nblue";
        client.ask(put, "HTTP/1.1 204")?;
        Ok(client)
    }

    fn ask(&mut self, text: &str, begins: &str) -> Result<&[u8], Told> {
        let odd = |error: std::io::Error| anyhow::Error::new(error).context("the HTTP client");
        self.stream.write_all(text.as_bytes()).map_err(odd)?;
        // An answer is written whole, and shorter than a segment.
        let n = self.stream.read(&mut self.piece).map_err(odd)?;
        let answer = &self.piece[..n];
        if answer.starts_with(begins.as_bytes()) {
            return Ok(answer);
        }
        let found = String::from_utf8_lossy(answer);
        Err(anyhow::anyhow!("{begins} was due, found {found:?}").into())
    }

    fn get(&mut self) -> Result<(), Told> {
        let get = "GET /kv/sky HTTP/1.1\r\nHost: bench\r\n\r\n";
        match self.ask(get, "HTTP/1.1 200")?.ends_with(b"\r\n\r\nblue") {
            true => Ok(()),
            false => Err(anyhow::anyhow!("a wrong value").into()),
        }
    }
}

/// Components behind stubs: the host, and an edge to each.
struct Tracked {
    host: Host,
    edges: Vec<Edge>,
}

fn with_edges(folder: &Path, host: &Host) -> Result<Component, Told> {
    let uses = OTHERS.map(|to| host.edge("http", to, &[]));
    Ok(Component {
        uses: uses.into_iter().collect::<Result<_, _>>()?,
        ..measured(folder, "http", plain())?
    })
}

fn tracked(folder: &Path, process: Option<Process>) -> Result<Tracked, Told> {
    let mut host = Host::new(true)?;
    let placed = |component| Component {
        process: process.clone(),
        ..component
    };
    for name in OTHERS {
        host.add(placed(measured(folder, name, plain())?), None)?;
    }
    host.add(placed(with_edges(folder, &host)?), None)?;
    let edges = ["http", "keyvalue", "fs"].map(|to| host.edge("bench", to, &[]));
    let edges = edges.into_iter().collect::<Result<_, _>>()?;
    Ok(Tracked { host, edges })
}

fn client(edge: &Edge) -> Result<Client, Told> {
    let (edge, serve) = (edge.clone(), edge.function(SERVE)?);
    let answer = move |args: &[_]| edge.call(serve, args).ok().flatten();
    Client::new(listen::anywhere(Box::new(answer))?)
}

fn bare_client(folder: &Path, tracked: &Tracked) -> Result<Client, Told> {
    let engine = tracked.host.engine();
    let others = OTHERS.map(|name| Ok(Bare::new(engine, &measured(folder, name, plain())?)?));
    let others = others.into_iter().collect::<Result<Vec<_>, Told>>()?;
    let bare = Bare::using(engine, &with_edges(folder, &tracked.host)?, others)?;
    let serve = bare.function(SERVE);
    let serve = serve.ok_or_else(|| anyhow::anyhow!("the server has no {SERVE}"))?;
    let bare = Mutex::new(bare);
    let answer = move |args: &[_]| bare.lock().ok()?.call(serve, args).ok().flatten();
    Client::new(listen::anywhere(Box::new(answer))?)
}

/// A request for a value, with and without stubs.
pub(super) fn requests(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let server = tracked(folder, None)?;
    let mut bare = bare_client(folder, &server)?;
    let mut tracked = client(&server.edges[0])?;
    let what = "a request for a value over HTTP";
    in_turns(report, "http", what, || bare.get(), || tracked.get())
}

/// The same requests of components in the host's process and in processes of their own.
pub(super) fn apart(folder: &Path) -> Result<[f64; 2], Told> {
    let own = tracked(folder, None)?;
    let apart = tracked(folder, Some(load::own_process()))?;
    let (mut own, mut apart) = (client(&own.edges[0])?, client(&apart.edges[0])?);
    turns("process.http", || own.get(), || apart.get())
}

/// Requests a second while a component fails once, over requests a second while none does.
pub(super) fn faults(folder: &Path, report: &mut Report) -> Result<(), Told> {
    let server = tracked(folder, None)?;
    let mut client = client(&server.edges[0])?;
    for _ in 0..BATCH {
        client.get()?;
    }
    let mut ran = |fails: Option<&Edge>| -> Result<(f64, f64), Told> {
        std::thread::scope(|scope| {
            let fault = scope.spawn(|| {
                std::thread::sleep(SECOND / 2);
                fails.map_or(Ok(()), Edge::reset)
            });
            let begin = Instant::now();
            let (mut count, mut longest) = (0.0, Duration::ZERO);
            while begin.elapsed() < SECOND || !fault.is_finished() {
                let asked = Instant::now();
                client.get()?;
                longest = longest.max(asked.elapsed());
                count += 1.0;
            }
            let failed = fault.join().map_err(|_| anyhow::anyhow!("a panic"))?;
            failed?;
            Ok((
                count / begin.elapsed().as_secs_f64(),
                longest.as_secs_f64() * 1e6,
            ))
        })
    };
    let (quiet, _) = ran(None)?;
    let (mut rate, mut longest) = (0.0, 0.0_f64);
    for edge in &server.edges[..2] {
        let (this, slowest) = ran(Some(edge))?;
        rate += this / 2.0;
        longest = longest.max(slowest);
    }
    let what = "requests a second while one component fails each second, over those without";
    report.put("http.fault-a-second", what, "%", 100.0 * rate / quiet);
    let what = "the longest of these requests";
    report.put("http.fault-longest", what, "µs", longest);
    Ok(())
}
