//! Servers as targets: a client is started when the server is ready, and what it was answered is
//! what is judged.
//!
//! ```text
//!   sandbox ── server (planted, untraced)
//!      └── driver: ready? ──► client: a command, or the built-in one ──► stop signal ──► server
//! ```
//!
//! The driver is a process of the sandbox beside the server. It ends the server when the client is
//! done, so that to every engine a server is a program that ends.
//!
//! Under `steadfast run` the server is the whole group: the stop signal goes to its launcher, which hands
//! it to the program and reports when that has ended.
//!
//! Invariants
//!  1. A run's `stdout` is what the client received (or printed), in order; the server's own words
//!     are its `stderr`.
//!  2. A whole reply that is wrong and that nobody rejected is `sdc`, whatever the server does next.
//!  3. Watching for readiness does not touch the server: sockets are looked up in procfs.
//!  4. The built-in client's connections are judged each by itself: what comes first between two of them is nobody's
//!     promise.
//!
//! Not covered: servers that outlive a run.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use steadfast_envelope::client::Connection;
use steadfast_sandbox::{self as sandbox, Ended};
use steadfast_sys::pidfd::Process;

use crate::record::Pattern;

/// How a server is driven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// Who asks.
    pub client: Client,
    /// When it may.
    pub ready: Ready,
    /// The signal that ends the server.
    pub stop: i32,
    /// Replies that say that something is wrong: an expression for a line.
    pub error_reply: Option<Pattern>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Client {
    /// A program with its arguments; what it prints is judged.
    Command(PathBuf, Vec<String>),
    /// The built-in client, which plays a file of requests and replies ([`Trace`]).
    Trace {
        /// The file.
        file: PathBuf,
        /// Through the message envelope (docs/reference/envelope.md).
        envelope: bool,
    },
}

/// When a server is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ready {
    /// Somebody listens at this port (TCP), or has taken it (UDP).
    Port(u16),
    /// This path exists; relative ones from the working directory.
    Path(PathBuf),
    /// The server has said this: an expression.
    Pattern(Pattern),
}

impl Ready {
    /// From `PORT|PATH|PATTERN`: digits, something with a slash, anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().filter(|port| *port > 0).map(Self::Port);
        }
        if text.contains('/') {
            return Some(Self::Path(text.into()));
        }
        text.parse().ok().map(Self::Pattern)
    }
}

/// A request and the reply that is right.
pub type Exchange = (Vec<u8>, Vec<u8>);

/// Requests, each with the reply that is right, of each connection.
///
/// `> N`, a line end, N bytes, a line end: sent. `< N` likewise: expected. `@ I`: what follows is connection I's, from 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace(pub Vec<Vec<Exchange>>);

/// As many connections as a trace may have.
const CONNECTIONS: usize = 64;

impl Trace {
    /// Reads one.
    ///
    /// # Errors
    /// At which byte it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut all: Vec<Vec<Exchange>> = vec![Vec::new()];
        let mut of = 0;
        let mut at = 0;
        while at < bytes.len() {
            let wrong = |what: &str| format!("{what} at byte {at}");
            let head = bytes[at..]
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or(&[]);
            let text = std::str::from_utf8(head).map_err(|_| wrong("no text"))?;
            let (way, length) = text
                .split_once(' ')
                .and_then(|(way, n)| Some((way, n.parse::<usize>().ok()?)))
                .ok_or_else(|| wrong("neither '> N' nor '< N' nor '@ I'"))?;
            let from = at + head.len() + 1;
            if way == "@" {
                if length > all.len() || length == CONNECTIONS {
                    return Err(wrong("a connection out of turn, or the 65th,"));
                }
                all.resize(all.len().max(length + 1), Vec::new());
                of = length;
                at = from;
                continue;
            }
            let body = from
                .checked_add(length)
                .filter(|end| bytes.get(*end) == Some(&b'\n'))
                .map(|end| bytes[from..end].to_vec())
                .ok_or_else(|| wrong("fewer bytes than announced"))?;
            let out = &mut all[of];
            match (way, out.last_mut()) {
                (">", _) => out.push((body, Vec::new())),
                ("<", Some((_, reply))) => reply.extend(body),
                _ => return Err(wrong("a reply before any request")),
            }
            at = from + length + 1;
        }
        if let Some(none) = all.iter().position(Vec::is_empty) {
            return Err(format!("no request on connection {none}"));
        }
        Ok(Self(all))
    }

    /// What [`Trace::parse`] reads.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (connection, exchanges) in self.0.iter().enumerate() {
            if self.0.len() > 1 {
                out.extend(format!("@ {connection}\n").bytes());
            }
            for (request, reply) in exchanges {
                for (way, body) in [('>', request), ('<', reply)] {
                    out.extend(format!("{way} {}\n", body.len()).bytes());
                    out.extend_from_slice(body);
                    out.push(b'\n');
                }
            }
        }
        out
    }
}

/// How the client fared. Of several connections the last in this order counts: a wrong reply that one of them took is one,
/// whatever the others refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Talk {
    /// It was not done.
    #[default]
    Unfinished,
    /// All was answered.
    Complete,
    /// The server hung up.
    Closed,
    /// The client's own check refused what came: the envelope's checksum or sequence.
    Rejected,
    /// A reply was wrong.
    Wrong,
}

/// What the driver has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// From the server's start until it was ready.
    pub ready_ns: Option<u64>,
    /// How the client fared.
    pub talk: Talk,
    /// Exit status of a command; of the built-in client 0 if all was answered, else 1.
    pub status: Option<i32>,
    /// Signal that the command died of.
    pub signal: Option<i32>,
    /// The server lived until it was stopped.
    pub lived: bool,
    /// Requests that were answered.
    pub answered: u64,
}

/// What a run needs to drive the server.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) driver: Driver,
    trace: Trace,
    grace: Duration,
}

impl Stage {
    /// `protected`: what the stop signal goes to is `steadfast run`, which passes it on.
    pub(crate) fn set(driver: &Driver, protected: bool) -> io::Result<Self> {
        let trace = match &driver.client {
            Client::Trace { file, .. } => {
                let said = |why: &dyn std::fmt::Display| {
                    io::Error::other(format!(
                        "a file of requests and replies is needed, found {} ({why})",
                        file.display()
                    ))
                };
                Trace::parse(&fs::read(file).map_err(|why| said(&why))?)
                    .map_err(|why| said(&why))?
            }
            Client::Command(..) => Trace::default(),
        };
        Ok(Self {
            driver: driver.clone(),
            trace,
            grace: if protected { GRACE_OF_REPLICAS } else { GRACE },
        })
    }

    /// The life of the driver. `start` starts a command inside the sandbox with a file as its output.
    pub(crate) fn drive(
        &self,
        server: i32,
        scratch: &Path,
        start: &dyn Fn(&Path, &[String]) -> io::Result<i32>,
    ) -> i32 {
        let begun = Instant::now();
        let Ok(watched) = Process::open(server) else {
            return 1;
        };
        let mut served = Served::default();
        let mut sockets = Sockets::default();
        while !self.is_ready(scratch, &mut sockets) {
            if watched.ends_within(POLL) {
                return tell(scratch, &served);
            }
        }
        served.ready_ns = u64::try_from(begun.elapsed().as_nanos()).ok();
        match &self.driver.client {
            Client::Trace { envelope, .. } => {
                (served.talk, served.answered) = self.talk(scratch, *envelope);
                served.status = Some(i32::from(served.talk != Talk::Complete));
            }
            Client::Command(path, argv) => {
                let Ok(client) = start(path, argv) else {
                    return 1;
                };
                // As long as the sandbox has patience.
                let ended = sandbox::await_end(client, Duration::from_secs(86_400));
                (served.status, served.signal) = (ended.status, ended.signal);
                served.talk = Talk::Complete;
            }
        }
        // A server that hangs up may be dying: its sockets go before it does.
        let wait = if served.talk == Talk::Complete {
            Duration::ZERO
        } else {
            DYING
        };
        served.lived = !watched.ends_within(wait);
        let code = tell(scratch, &served);
        watched.signal(self.driver.stop);
        if self.driver.stop != libc::SIGKILL && !watched.ends_within(self.grace) {
            watched.signal(libc::SIGKILL);
        }
        code
    }

    fn is_ready(&self, scratch: &Path, sockets: &mut Sockets) -> bool {
        match &self.driver.ready {
            Ready::Port(port) => {
                // The built-in client speaks TCP; a name server may have its UDP socket long before.
                let kinds: &[&str] = match self.driver.client {
                    Client::Trace { .. } => &["tcp", "tcp6"],
                    Client::Command(..) => &["tcp", "tcp6", "udp", "udp6"],
                };
                sockets.may_differ()
                    && kinds
                        .iter()
                        .any(|kind| listens(&format!("/proc/self/net/{kind}"), *port))
            }
            Ready::Path(path) => scratch.join("run").join(path).exists(),
            Ready::Pattern(pattern) => {
                let said = fs::read(scratch.join("stderr")).unwrap_or_default();
                pattern.is_in(&said)
            }
        }
    }

    /// Plays the trace, on each connection one request at a time, up to its first reply that is wrong. Connections are made
    /// in turn, each after the one before has been agreed on, so that a server that deals them out deals them alike.
    fn talk(&self, scratch: &Path, envelope: bool) -> (Talk, u64) {
        thread::scope(|scope| {
            let mut players = Vec::new();
            for (index, exchanges) in self.trace.0.iter().enumerate() {
                match self.open(scratch, envelope, index) {
                    Ok(player) => players.push(Ok(scope.spawn(move || player.play(exchanges)))),
                    Err(talk) => players.push(Err(talk)),
                }
            }
            players
                .into_iter()
                .map(|player| match player {
                    Ok(thread) => thread.join().unwrap_or((Talk::Closed, 0)),
                    Err(talk) => (talk, 0),
                })
                .fold((Talk::Unfinished, 0), |(talk, answered), (other, more)| {
                    (talk.max(other), answered + more)
                })
        })
    }

    fn open(&self, scratch: &Path, envelope: bool, index: usize) -> Result<Player, Talk> {
        let closed = |_: io::Error| Talk::Closed;
        let mut out = File::options()
            .append(true)
            .create(true)
            .open(scratch.join(replies(index)))
            .map_err(closed)?;
        let stream = Socket::connect(&self.driver.ready, scratch).map_err(closed)?;
        let brief = stream.try_clone().map_err(closed)?;
        let connection = if envelope {
            match Connection::negotiate(stream, NONCE + index as u64) {
                Ok(connection) if connection.enveloped() => connection,
                Ok(_) => {
                    out.write_all(b"(no envelope)\n").map_err(closed)?;
                    return Err(Talk::Wrong);
                }
                Err(error) if is_damage(&error) => return Err(Talk::Rejected),
                Err(_) => return Err(Talk::Closed),
            }
        } else {
            Connection::plain(stream)
        };
        Ok(Player {
            connection,
            brief,
            out,
        })
    }
}

/// The name under which a connection's replies are kept.
pub(crate) fn replies(connection: usize) -> String {
    match connection {
        0 => "stdout".into(),
        _ => format!("stdout.{connection}"),
    }
}

/// Whether a name is one that [`replies`] gives.
pub(crate) fn is_replies(name: &str) -> bool {
    name == "stdout"
        || name
            .strip_prefix("stdout.")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

fn is_damage(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidData
}

/// A way to the server.
enum Socket {
    Port(TcpStream),
    Path(UnixStream),
}

impl Socket {
    fn connect(ready: &Ready, scratch: &Path) -> io::Result<Self> {
        match ready {
            Ready::Port(port) => {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, *port))?;
                stream.set_nodelay(true)?;
                Ok(Self::Port(stream))
            }
            Ready::Path(path) => Ok(Self::Path(UnixStream::connect(
                scratch.join("run").join(path),
            )?)),
            Ready::Pattern(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Port(stream) => Self::Port(stream.try_clone()?),
            Self::Path(stream) => Self::Path(stream.try_clone()?),
        })
    }

    fn set_read_timeout(&self, limit: Duration) -> io::Result<()> {
        match self {
            Self::Port(stream) => stream.set_read_timeout(Some(limit)),
            Self::Path(stream) => stream.set_read_timeout(Some(limit)),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Port(stream) => stream.read(into),
            Self::Path(stream) => stream.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Port(stream) => stream.write(bytes),
            Self::Path(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One connection of the built-in client.
struct Player {
    connection: Connection<Socket>,
    /// The same socket, for the one read that has a limit.
    brief: Socket,
    out: File,
}

impl Player {
    fn play(mut self, exchanges: &[Exchange]) -> (Talk, u64) {
        let mut answered = 0;
        let talk = self.ask(exchanges, &mut answered);
        (talk.unwrap_or(Talk::Closed), answered)
    }

    fn ask(&mut self, exchanges: &[Exchange], answered: &mut u64) -> io::Result<Talk> {
        let mut reply = Vec::new();
        for (request, right) in exchanges {
            self.connection.send(request)?;
            reply.clear();
            while reply.len() < right.len() && right.starts_with(&reply) {
                let known = reply.len();
                let got = match self.connection.receive(&mut reply) {
                    Err(error) if is_damage(&error) => return Ok(Talk::Rejected),
                    Err(_) | Ok(0) => return Ok(Talk::Closed),
                    Ok(got) => got,
                };
                self.out.write_all(&reply[known..known + got])?;
            }
            if reply != *right {
                // The rest of the line tells an error reply from a wrong one.
                let from = reply.len();
                if !reply.ends_with(b"\n") && self.brief.set_read_timeout(REST).is_ok() {
                    let _ = self.connection.receive(&mut reply);
                    self.out.write_all(&reply[from..])?;
                }
                return Ok(Talk::Wrong);
            }
            *answered += 1;
        }
        Ok(Talk::Complete)
    }
}

/// Between two looks at a server that is not ready.
const POLL: Duration = Duration::from_micros(200);
/// How long a server that has hung up has to die of what made it hang up.
const DYING: Duration = Duration::from_millis(100);
/// How long a server has to end after the stop signal; nothing is judged by it.
const GRACE: Duration = Duration::from_secs(1);
/// The same under `steadfast run`, whose report is lost if it is killed: replicas that disagree about
/// the signal are repaired first, on a machine that may be busy.
const GRACE_OF_REPLICAS: Duration = Duration::from_secs(30);
/// How long the rest of a line is waited for; it only names the kind of a wrong reply.
const REST: Duration = Duration::from_millis(20);
/// Any number: the same in each run.
const NONCE: u64 = 0x5ead_fa57;

fn tell(scratch: &Path, served: &Served) -> i32 {
    let text = serde_json::to_vec(served).unwrap_or_default();
    i32::from(fs::write(scratch.join("served"), text).is_err())
}

/// How many sockets of each kind the sandbox's network had at the last look.
///
/// Reading a table of connections walks the whole machine's hash of them: a third of a campaign's
/// CPU time when it was done at every look. The counts cost next to nothing, and a socket enters
/// them when it enters a table.
#[derive(Default)]
struct Sockets {
    counts: Vec<String>,
    looks: u32,
}

impl Sockets {
    /// Whether a table may say something new. Equal counts may hide one socket that went for one
    /// that came, so every now and then they are not believed.
    fn may_differ(&mut self) -> bool {
        const BELIEVED_LOOKS: u32 = 50;
        let counts: Vec<String> = ["sockstat", "sockstat6"]
            .iter()
            .filter_map(|file| fs::read_to_string(format!("/proc/self/net/{file}")).ok())
            .flat_map(|text| in_use(&text))
            .collect();
        self.looks += 1;
        let none = counts.iter().all(|count| count.ends_with(" 0"));
        let same = !counts.is_empty() && (counts == self.counts || none);
        self.counts = counts;
        !same || self.looks.is_multiple_of(BELIEVED_LOOKS)
    }
}

/// `TCP: inuse 1` and its like, without what follows, which counts the whole machine.
fn in_use(sockstat: &str) -> Vec<String> {
    let kinds = ["TCP", "TCP6", "UDP", "UDP6"];
    sockstat
        .lines()
        .filter(|line| {
            line.split(':')
                .next()
                .is_some_and(|kind| kinds.contains(&kind))
        })
        .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Whether a table such as /proc/net/tcp has a socket that waits for clients at a port.
///
/// It is read in small pieces: those that listen come first, and only behind them the kernel walks
/// its hash.
fn listens(table: &str, port: u16) -> bool {
    File::open(table).is_ok_and(|file| {
        BufReader::with_capacity(128, file)
            .lines()
            .map_while(Result::ok)
            .any(|line| waits(&line, port))
    })
}

/// A line in state 0A (listening), or 07, in which UDP sockets are.
fn waits(line: &str, port: u16) -> bool {
    let mut words = line.split_whitespace().skip(1);
    let at = words
        .next()
        .and_then(|local| local.rsplit(':').next())
        .and_then(|port| u16::from_str_radix(port, 16).ok());
    at == Some(port) && matches!(words.nth(1), Some("0A" | "07"))
}

/// Waits for the server and for its driver, then ends everything. A client that still gets
/// answers is waited for: the machine is slow, the server is not hung.
pub(crate) fn finish(scratch: &Path, server: i32, driver_pid: i32, limit: Duration) -> Ended {
    // Ten times the limit, or a server that answers for ever would hold the campaign up.
    const PATIENCE: usize = 10;
    let answers = || -> u64 {
        let of = |index| fs::metadata(scratch.join(replies(index))).map(|file| file.len());
        (0..).map_while(|index| of(index).ok()).sum()
    };
    let mut ended = Ended::default();
    let mut known = 0;
    for _ in 0..PATIENCE {
        ended = sandbox::await_end(server, limit);
        let now = answers();
        if !ended.timed_out || now == known {
            break;
        }
        known = now;
    }
    let deadline = Instant::now() + limit;
    let left = if ended.timed_out {
        Duration::ZERO
    } else {
        deadline.saturating_duration_since(Instant::now())
    };
    let client = sandbox::await_end(driver_pid, left);
    let main = ended.timed_out.then_some(server);
    sandbox::end_all(&mut ended, main);
    if client.timed_out {
        sandbox::end_all(&mut Ended::default(), Some(driver_pid));
    }
    ended
}

/// What the driver left.
pub(crate) fn served(scratch: &Path) -> Served {
    fs::read(scratch.join("served"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// The name under which a client's own words are kept, beside its output.
pub(crate) const CLIENT: &str = "client";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_are_read_as_they_are_written() {
        let one = vec![
            (b"get a\r\n".to_vec(), b"END\r\n".to_vec()),
            (b"> 3\n< 3\n".to_vec(), Vec::new()),
        ];
        let other = vec![(b"@ 1\n".to_vec(), b"ERROR\r\n".to_vec())];
        for trace in [Trace(vec![one.clone()]), Trace(vec![one, other])] {
            assert_eq!(Trace::parse(&trace.to_bytes()), Ok(trace));
        }
        // Parts of two connections may stand in turns.
        assert_eq!(
            Trace::parse(b"> 1\na\n@ 1\n> 1\nb\n@ 0\n< 1\nc\n"),
            Ok(Trace(vec![
                vec![(b"a".to_vec(), b"c".to_vec())],
                vec![(b"b".to_vec(), Vec::new())]
            ]))
        );
        for bad in [
            "",
            "> 3\nab\n",
            "< 1\na\n",
            "> x\n",
            "@ 1\n> 1\na\n",
            "> 1\na\n@ 2\n> 1\nb\n",
            "> 99999999999999999999\na\n",
        ] {
            assert!(Trace::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn readiness_has_three_spellings() {
        assert_eq!(Ready::parse("11211"), Some(Ready::Port(11211)));
        assert_eq!(Ready::parse("./sock"), Some(Ready::Path("./sock".into())));
        assert_eq!(
            Ready::parse("listening"),
            Some(Ready::Pattern("listening".parse().expect("a pattern")))
        );
        assert_eq!((Ready::parse("0"), Ready::parse("70000")), (None, None));
    }

    #[test]
    fn a_listening_socket_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   0: 0100007F:2BCB 00000000:0000 0A 0:0\n   1: 0100007F:2BCC 0100007F:2BCB 01 0:0\n";
        let waits = |port| table.lines().any(|line| waits(line, port));
        assert!(waits(0x2bcb));
        assert!(!waits(0x2bcc) && !waits(80));
        let counts =
            "sockets: used 13\nTCP: inuse 1 orphan 0 tw 7\nUDP: inuse 0 mem 0\nRAW: inuse 0\n";
        assert_eq!(in_use(counts), ["TCP: inuse 1", "UDP: inuse 0"]);
    }
}
