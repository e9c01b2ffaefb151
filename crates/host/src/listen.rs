//! `[[listen]]`: connections from outside, whose bytes a component answers.
//!
//! ```text
//!   client ──bytes──► thread of the connection ──serve(what was not used so far)──► component
//!      ▲                        │
//!      └────────output──────────┘
//! ```
//!
//! The component sees bytes and no socket. What has come and was not used lies here, so a component that fails in the middle of a request
//! is asked again with the same bytes, and the client notices nothing.
//!
//! Invariants
//!  1. A connection never holds more than [`INPUT_MAX`] bytes that were not used, and no thread waits for a silent client longer than `idle_s`.
//!  2. Beyond `connections_max` a client is told 503 and nothing else is read.
//!  3. A component that has no answer ends this connection alone.
//!
//! Not covered: TLS; protocols in which the server speaks first.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use steadfast_restart::{Edge, Shape, Value};

use crate::load;
use crate::told::Told;

/// Head and body of the largest request, with room for the next one's start.
const INPUT_MAX: usize = 256 << 10;

const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// Where to listen, and which function answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listen {
    address: String,
    pub(crate) component: String,
    /// `serve: func(input: list<u8>) -> record { used: u32, output: list<u8>, close: bool }`
    function: String,
    #[serde(default = "connections")]
    connections_max: usize,
    #[serde(default = "idle")]
    idle_s: u64,
}

fn connections() -> usize {
    64
}

fn idle() -> u64 {
    30
}

/// What a component says to its input.
struct Answer {
    used: usize,
    output: Vec<u8>,
    close: bool,
}

impl Answer {
    fn of(value: Option<Value>) -> Option<Self> {
        let Some(Value::Record(fields)) = value else {
            return None;
        };
        let mut fields = fields.into_iter().map(|(_, value)| value);
        let used = match fields.next()? {
            Value::U32(n) => usize::try_from(n).ok()?,
            _ => return None,
        };
        let output = match fields.next()? {
            Value::Bytes(bytes) => bytes,
            Value::List(items) if items.is_empty() => Vec::new(),
            _ => return None,
        };
        let close = fields.next()? == Value::Bool(true);
        Some(Self {
            used,
            output,
            close,
        })
    }
}

/// Calls the function that answers.
type Serve = Box<dyn Fn(&[Value]) -> Option<Value> + Send + Sync>;

/// One function of one component, for any number of connections.
struct Service {
    serve: Serve,
    connections_max: usize,
    idle: Duration,
    connections: AtomicUsize,
    /// Of a connection's thread.
    stack: usize,
}

/// A bound address.
pub(crate) struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    service: Arc<Service>,
}

impl Listen {
    /// Binds the address.
    pub(crate) fn bind(&self, edge: &Edge, stack: usize) -> Result<Bound, Told> {
        let function = edge.function(&self.function)?;
        let found = &edge.model().functions[function];
        let bytes = Shape::List(Box::new(Shape::U8));
        let fits = match &found.result {
            Some(Shape::Record(fields)) => {
                let shapes = fields.iter().map(|(_, shape)| shape);
                shapes.eq([&Shape::U32, &bytes, &Shape::Bool])
            }
            _ => false,
        };
        if !fits || found.params.len() != 1 || found.params[0].shape != bytes {
            let what = anyhow::anyhow!("{} cannot answer a connection", self.function);
            return Err(Told::setup(
                what,
                "a function `serve: func(input: list<u8>) -> answer`, answer a record { used: u32, output: list<u8>, close: bool }",
            ));
        }
        let edge = edge.clone();
        let serve = move |args: &[Value]| edge.call(function, args).ok().flatten();
        self.bind_to(Box::new(serve), stack)
    }

    fn bind_to(&self, serve: Serve, stack: usize) -> Result<Bound, Told> {
        let told = |error: std::io::Error| {
            let what = format!("{} cannot be listened at", self.address);
            let fix = "another address under [[listen]]";
            Told::setup(anyhow::Error::new(error).context(what), fix)
        };
        let listener = TcpListener::bind(&self.address).map_err(told)?;
        let address = listener.local_addr().map_err(told)?;
        Ok(Bound {
            listener,
            address,
            service: Arc::new(Service {
                serve,
                connections_max: self.connections_max,
                idle: Duration::from_secs(self.idle_s),
                connections: AtomicUsize::new(0),
                stack,
            }),
        })
    }
}

/// More components than the server of the bench calls.
const BENCHED: usize = 4;

/// Any free port of this machine, for the bench.
pub(crate) fn anywhere(serve: Serve) -> Result<Bound, Told> {
    let listen = Listen {
        address: "127.0.0.1:0".into(),
        component: String::new(),
        function: String::new(),
        connections_max: connections(),
        idle_s: idle(),
    };
    listen.bind_to(serve, load::stack(BENCHED))
}

/// Binds every address, then serves all of them until the process ends.
pub(crate) fn start(all: &[Listen], edges: &BTreeMap<String, Edge>) -> Result<(), Told> {
    let bound = all.iter().map(|listen| {
        let stack = load::stack(edges.len());
        let bound = listen.bind(&edges[&listen.component], stack)?;
        eprintln!(
            "steadfast host: {} listens at {}",
            listen.component, bound.address
        );
        Ok(bound)
    });
    for bound in bound.collect::<Result<Vec<_>, Told>>()? {
        bound.spawn()?;
    }
    Ok(())
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts, in a thread of its own, until the process ends.
    pub(crate) fn spawn(self) -> Result<(), Told> {
        let named = std::thread::Builder::new().name("host-listen".into());
        let spawned = named.spawn(move || self.serve());
        spawned.map_err(|error| anyhow::Error::new(error).context("a thread that accepts"))?;
        Ok(())
    }

    fn serve(self) {
        for stream in self.listener.incoming() {
            let Ok(mut stream) = stream else {
                // No descriptor is free, say: a client that leaves gives one back.
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let service = self.service.clone();
            let stack = service.stack;
            if service.connections.fetch_add(1, Ordering::AcqRel) >= service.connections_max {
                let _ = stream.set_nonblocking(true);
                let _ = stream.write_all(BUSY);
                service.connections.fetch_sub(1, Ordering::AcqRel);
                continue;
            }
            let one = move || {
                service.connection(&mut stream);
                service.connections.fetch_sub(1, Ordering::AcqRel);
            };
            let named = std::thread::Builder::new().name("host-connection".into());
            if named.stack_size(stack).spawn(one).is_err() {
                self.service.connections.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

impl Service {
    fn connection(&self, stream: &mut TcpStream) {
        let limits = stream
            .set_read_timeout(Some(self.idle))
            .and_then(|()| stream.set_write_timeout(Some(self.idle)))
            // Answers are written whole.
            .and_then(|()| stream.set_nodelay(true));
        if limits.is_err() {
            return;
        }
        let mut input = Vec::new();
        let mut piece = [0_u8; 16 << 10];
        loop {
            match stream.read(&mut piece) {
                Ok(0) => return,
                Ok(n) => input.extend_from_slice(&piece[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            if !self.answer(stream, &mut input) || input.len() > INPUT_MAX {
                return;
            }
        }
    }

    /// Answers every request that has come whole. False where the connection ends.
    fn answer(&self, stream: &mut TcpStream, input: &mut Vec<u8>) -> bool {
        while !input.is_empty() {
            let args = [Value::Bytes(std::mem::take(input))];
            let answer = (self.serve)(&args);
            let [Value::Bytes(back)] = args else {
                return false;
            };
            *input = back;
            let answer = match Answer::of(answer) {
                Some(answer) if answer.used <= input.len() => answer,
                _ => {
                    let _ = stream.write_all(BUSY);
                    return false;
                }
            };
            if stream.write_all(&answer.output).is_err() || answer.close {
                return false;
            }
            if answer.used == 0 {
                break;
            }
            input.drain(..answer.used);
        }
        true
    }
}
