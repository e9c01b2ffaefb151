//! A client that knows what every reply has to be, and which of its writes a server has acknowledged.
//!
//! Each client has keys of its own and one request under way, so what a key holds is what was acknowledged last. Where the
//! connection ends under a write, either value is right from then on, until one of them has been seen.
//!
//! A reply that does not come is a wrong one. Not covered: requests whose connection has ended; what two clients do to one key.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_workloads::inputs::Rng;

use super::service::{self, Service};

/// Keys of each client: few, so that each is read soon after it was written.
const KEYS: usize = 16;
const VALUE_BYTES: usize = 64;
/// A server that repairs itself answers within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Right,
    /// Neither what was written nor an error.
    Wrong(String),
}

/// One connection to a server, in its own language.
#[derive(Debug)]
struct Line {
    service: Service,
    stream: BufReader<TcpStream>,
}

impl Line {
    fn open(service: Service, address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = Self {
            service,
            stream: BufReader::new(stream),
        };
        match service {
            Service::Postgres => line.greet()?,
            Service::Redis => line.ping()?,
            Service::Memcached | Service::Nginx | Service::Go => {}
        }
        Ok(line)
    }

    /// An error while it reads what it has kept.
    fn ping(&mut self) -> Result<()> {
        self.send(b"PING\r\n")?;
        let said = self.line()?;
        ensure!(!said.starts_with("-LOADING"), "{said}");
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    /// A line without its end.
    fn line(&mut self) -> Result<String> {
        let mut text = Vec::new();
        self.stream.read_until(b'\n', &mut text)?;
        ensure!(text.ends_with(b"\r\n"), "the connection has ended");
        text.truncate(text.len() - 2);
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a value and waits for the acknowledgement.
    fn set(&mut self, key: &str, value: &str) -> Result<Reply> {
        match self.service {
            Service::Redis => {
                self.send(format!("SET {key} {value}\r\n").as_bytes())?;
                Ok(expect(&self.line()?, "+OK"))
            }
            Service::Memcached => {
                self.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes())?;
                Ok(expect(&self.line()?, "STORED"))
            }
            Service::Postgres => {
                let said = self.query(&format!(
                    "insert into kept values ('{key}', '{value}') on conflict (k) do update set v = excluded.v"
                ))?;
                Ok(expect(&said.1, "INSERT 0 1"))
            }
            Service::Nginx | Service::Go => self.get(key).map(|_| Reply::Right),
        }
    }

    /// What a key holds.
    fn get(&mut self, key: &str) -> Result<Option<String>> {
        match self.service {
            Service::Redis => {
                self.send(format!("GET {key}\r\n").as_bytes())?;
                let head = self.line()?;
                match head.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) {
                    Some(n) if n <= 1 << 16 => self.text(n, 2),
                    _ => Ok((head != "$-1").then_some(head)),
                }
            }
            Service::Memcached => {
                self.send(format!("get {key}\r\n").as_bytes())?;
                let head = self.line()?;
                match head.strip_prefix(&format!("VALUE {key} 0 ")) {
                    Some(n) => {
                        let text = self.text(n.parse().unwrap_or(0), 2)?;
                        let end = self.line()?;
                        Ok(if end == "END" { text } else { Some(end) })
                    }
                    None => Ok((head != "END").then_some(head)),
                }
            }
            Service::Postgres => {
                let said = self.query(&format!("select v from kept where k = '{key}'"))?;
                Ok(said.0)
            }
            Service::Nginx | Service::Go => self.page(),
        }
    }

    fn text(&mut self, bytes: usize, end: usize) -> Result<Option<String>> {
        let bytes = self.bytes(bytes + end)?;
        let text = &bytes[..bytes.len() - end];
        Ok(Some(String::from_utf8_lossy(text).into_owned()))
    }

    /// The file, checked as a whole: nothing, if it is right.
    fn page(&mut self) -> Result<Option<String>> {
        self.send(b"GET /file HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let status = self.line()?;
        let mut length = 0;
        loop {
            let head = self.line()?;
            if head.is_empty() {
                break;
            }
            if let Some(n) = head.strip_prefix("Content-Length: ") {
                length = n.parse().unwrap_or(0);
            }
        }
        let right = service::page();
        if status != "HTTP/1.1 200 OK" || length != right.len() {
            return Ok(Some(format!("{status}, {length} bytes")));
        }
        let body = self.bytes(length)?;
        let wrong = body
            .iter()
            .zip(&right)
            .position(|(one, other)| one != other);
        Ok(wrong.map(|at| format!("byte {at} is {}", body[at])))
    }

    // ---- PostgreSQL's protocol, version 3 ----

    fn greet(&mut self) -> Result<()> {
        let words = b"user\0postgres\0database\0postgres\0\0";
        let length = u32::try_from(words.len() + 8).expect("short");
        let mut hello = length.to_be_bytes().to_vec();
        hello.extend(196_608_u32.to_be_bytes()); // version 3.0
        hello.extend(words);
        self.send(&hello)?;
        self.answers().map(drop)
    }

    fn query(&mut self, text: &str) -> Result<(Option<String>, String)> {
        let mut message = vec![b'Q'];
        message.extend(u32::try_from(text.len() + 5)?.to_be_bytes());
        message.extend(text.as_bytes());
        message.push(0);
        self.send(&message)?;
        self.answers()
    }

    /// Up to the next "ready": the first column of the last row, and what was done, or the error.
    fn answers(&mut self) -> Result<(Option<String>, String)> {
        let (mut row, mut tag) = (None, String::new());
        loop {
            let kind = self.bytes(1)?[0];
            let length = self.bytes(4)?.try_into().map(u32::from_be_bytes);
            let length = length.unwrap_or(0) as usize;
            ensure!(
                (4..1 << 20).contains(&length),
                "a message of {length} bytes"
            );
            let body = self.bytes(length - 4)?;
            let text = |from: usize| {
                String::from_utf8_lossy(body.get(from..).unwrap_or_default())
                    .trim_end_matches('\0')
                    .to_owned()
            };
            match kind {
                b'Z' => return Ok((row, tag)),
                b'D' => row = Some(text(6)), // one column: a count of 2 bytes, a length of 4
                b'C' => tag = text(0),
                // The server ends, or is not yet there (class 57): no reply to anything.
                b'E' if text(0).contains("\0C57P0") => bail!("the connection is being ended"),
                b'E' => tag = text(0).replace('\0', " "),
                _ => {}
            }
        }
    }
}

/// Whether the other side has kept the connection, and said nothing.
fn is_silence(why: &anyhow::Error) -> bool {
    why.downcast_ref::<std::io::Error>().is_some_and(|error| {
        matches!(
            error.kind(),
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
        )
    })
}

fn expect(found: &str, right: &str) -> Reply {
    if found == right {
        Reply::Right
    } else {
        Reply::Wrong(format!("{found:?} instead of {right:?}"))
    }
}

/// What a key may hold.
#[derive(Clone, Debug, Default)]
struct Key {
    acknowledged: Option<String>,
    /// Written when the connection ended.
    maybe: Option<String>,
}

/// What one client has seen.
#[derive(Debug)]
pub(super) struct Client {
    service: Service,
    name: String,
    rng: Rng,
    keys: Vec<Key>,
    pub(super) requests: u64,
    /// Replies that were none of what they may be.
    pub(super) wrong: Vec<String>,
}

impl Client {
    pub(super) fn new(service: Service, number: usize, seed: u64) -> Self {
        Self {
            service,
            name: format!("c{number}"),
            rng: Rng::new(seed ^ number as u64),
            keys: vec![Key::default(); KEYS],
            requests: 0,
            wrong: Vec::new(),
        }
    }

    /// Asks until it is to stop, or nobody answers any more.
    pub(super) fn ask(&mut self, address: SocketAddr, stop: &AtomicBool) {
        let mut failed: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            let Ok(mut line) = Line::open(self.service, address) else {
                if failed.get_or_insert_with(Instant::now).elapsed() > Duration::from_secs(1) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            failed = None;
            while !stop.load(Ordering::Relaxed) {
                let Err(why) = self.one(&mut line) else {
                    continue;
                };
                if is_silence(&why) {
                    self.wrong
                        .push(format!("no reply within {} s", PATIENCE.as_secs()));
                }
                break;
            }
        }
    }

    /// One request; an error is the connection's.
    fn one(&mut self, line: &mut Line) -> Result<()> {
        let at = self.rng.below(KEYS);
        let key = format!("{}k{at}", self.name);
        if matches!(self.service, Service::Nginx | Service::Go) || self.rng.chance(60) {
            let found = line.get(&key)?;
            self.requests += 1;
            return self.compare(at, &key, found);
        }
        let value = format!(
            "{:0>VALUE_BYTES$}",
            format!("{key}v{:x}", self.rng.next_u64())
        );
        self.keys[at].maybe = Some(value.clone());
        let reply = line.set(&key, &value)?;
        self.requests += 1;
        match reply {
            Reply::Right => {
                self.keys[at] = Key {
                    acknowledged: Some(value),
                    maybe: None,
                };
            }
            Reply::Wrong(why) => self.wrong.push(format!("set {key}: {why}")),
        }
        Ok(())
    }

    fn compare(&mut self, at: usize, key: &str, found: Option<String>) -> Result<()> {
        let kept = &mut self.keys[at];
        if found == kept.acknowledged {
            return Ok(());
        }
        if found.is_some() && found == kept.maybe {
            *kept = Key {
                acknowledged: found,
                maybe: None,
            };
            return Ok(());
        }
        self.wrong
            .push(format!("get {key}: {found:?}, written was {kept:?}"));
        Ok(())
    }

    /// Which acknowledged writes a server that was started again no longer has.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub(super) fn lost(&mut self, address: SocketAddr) -> Result<Vec<String>> {
        let mut line = reached(self.service, address)?;
        let before = std::mem::take(&mut self.wrong);
        for at in 0..KEYS {
            let key = format!("{}k{at}", self.name);
            let found = line.get(&key)?;
            self.compare(at, &key, found)?;
        }
        Ok(std::mem::replace(&mut self.wrong, before))
    }
}

/// A connection to a server that may still be starting.
fn reached(service: Service, address: SocketAddr) -> Result<Line> {
    let begin = Instant::now();
    loop {
        match Line::open(service, address) {
            Ok(line) => return Ok(line),
            Err(why) if begin.elapsed() > PATIENCE => return Err(why).context("no connection"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// What must be there before anybody asks.
///
/// # Errors
/// When the server does not take it.
pub(super) fn prepare(service: Service, address: SocketAddr) -> Result<()> {
    let mut line = reached(service, address)?;
    if service == Service::Postgres {
        let said = line.query("create table kept (k text primary key, v text)")?;
        ensure!(said.1 == "CREATE TABLE", "create table: {}", said.1);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server of memcached's language that keeps one value, and spoils what `spoil` says.
    fn serve(spoil: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its number");
        std::thread::spawn(move || {
            let mut kept = std::collections::HashMap::new();
            let (stream, _) = listener.accept().expect("a client");
            let mut stream = BufReader::new(stream);
            let mut text = String::new();
            while stream.read_line(&mut text).is_ok_and(|n| n > 0) {
                let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
                text.clear();
                let reply = if words[0] == "set" {
                    stream.read_line(&mut text).expect("a value");
                    if spoil != "lost" {
                        kept.insert(words[1].clone(), text.trim_end().to_owned());
                    }
                    text.clear();
                    "STORED\r\n".to_owned()
                } else if let Some(value) = kept.get(&words[1]) {
                    let value = if spoil == "value" {
                        value.replace('v', "w")
                    } else {
                        value.clone()
                    };
                    format!("VALUE {} 0 {}\r\n{value}\r\nEND\r\n", words[1], value.len())
                } else {
                    "END\r\n".to_owned()
                };
                let _ = stream.get_mut().write_all(reply.as_bytes());
            }
        });
        address
    }

    fn asked(spoil: &'static str) -> Client {
        let mut client = Client::new(Service::Memcached, 0, 1);
        let mut line = Line::open(Service::Memcached, serve(spoil)).expect("a connection");
        for _ in 0..400 {
            client.one(&mut line).expect("a reply");
        }
        client
    }

    #[test]
    fn right_replies_are_silent() {
        let client = asked("");
        assert_eq!((client.requests, client.wrong.len()), (400, 0));
    }

    #[test]
    fn a_wrong_value_and_a_write_that_is_gone_are_told() {
        assert!(!asked("value").wrong.is_empty());
        assert!(!asked("lost").wrong.is_empty());
    }
}
