//! Clients of memcached's text protocol that know every right reply, all in one thread.
//!
//! A connection owns its keys: nobody else writes them, so the last value that it stored is the one that a `get` must return. A wrong
//! reply is counted, and does not end the measurement; an error in place of a reply is counted apart.
//!
//! Invariants
//!  1. A value names its key and its version: one that is stale, or another key's, differs.
//!  2. After an error the old and the new value are both right until a `get` tells which it is.
//!
//! Not covered: pipelining. Each connection has one request under way.

use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steadfast_envelope::client::Connection;
use steadfast_workloads::inputs::Rng;

use super::{KEY_BYTES, KEYS, VALUE_BYTES};

/// No reply takes this long in a group that works: a replica that is replaced takes one or two seconds.
const PATIENCE: Duration = Duration::from_secs(15);

/// What clients ask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) clients: usize,
    pub(crate) keys: usize,
    pub(crate) key_bytes: usize,
    pub(crate) value_bytes: usize,
    pub(crate) get_percent: usize,
    /// Whether requests and replies go in the message envelope.
    pub(crate) envelope: bool,
}

impl Shape {
    /// As in the paper: keys of 100 bytes and values of 400, a few of them for each client.
    pub(super) const fn of_paper(clients: usize, get_percent: usize) -> Self {
        Self {
            clients,
            keys: KEYS,
            key_bytes: KEY_BYTES,
            value_bytes: VALUE_BYTES,
            get_percent,
            envelope: false,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    pub(crate) requests: u64,
    pub(crate) seconds: f64,
    pub(crate) wrong: u64,
    /// `SERVER_ERROR` in place of a reply.
    pub(crate) refused: u64,
    pub(crate) example: Option<String>,
    times_us: Vec<f64>,
}

impl Load {
    pub(crate) fn rate(&self) -> f64 {
        self.requests as f64 / self.seconds
    }

    /// The response time that so many of a thousand requests kept within.
    pub(crate) fn us(&mut self, permille: usize) -> f64 {
        self.times_us.sort_by(f64::total_cmp);
        let at = self.times_us.len() * permille / 1000;
        let at = at.min(self.times_us.len().saturating_sub(1));
        self.times_us.get(at).copied().unwrap_or(0.0)
    }

    pub(crate) fn add(&mut self, other: Load) {
        self.requests += other.requests;
        self.seconds += other.seconds;
        self.wrong += other.wrong;
        self.refused += other.refused;
        self.example = self.example.take().or(other.example);
        self.times_us.extend(other.times_us);
    }
}

/// The connections.
#[derive(Debug)]
pub(crate) struct Clients {
    shape: Shape,
    lanes: Vec<Lane>,
    rng: Rng,
    /// When each reply came, where somebody wants to know.
    ends: Option<Vec<Instant>>,
}

#[derive(Debug)]
struct Lane {
    at: SocketAddr,
    line: Connection<TcpStream>,
    envelope: bool,
    number: usize,
    /// The version stored under each key, and those that may be stored instead: of all writes that failed since.
    versions: Vec<(u64, Vec<u64>)>,
    next: u64,
    /// The request under way: its key, and the version that it stores.
    asked: Option<(usize, Option<u64>)>,
    sent: Instant,
    input: Vec<u8>,
}

#[derive(Debug, PartialEq)]
enum Said {
    Nothing,
    Right,
    Refused,
    Wrong(String),
}

impl Clients {
    /// Connects to these servers in turn, and stores every key once.
    pub(crate) fn connect(at: &[SocketAddr], shape: Shape, seed: u64) -> Result<Self> {
        let mut lanes = Vec::new();
        for number in 0..shape.clients {
            let at = at[number % at.len()];
            lanes.push(Lane {
                at,
                line: open(at, shape.envelope)?,
                envelope: shape.envelope,
                number,
                versions: vec![(0, Vec::new()); shape.keys],
                next: 0,
                asked: None,
                sent: Instant::now(),
                input: Vec::new(),
            });
        }
        let mut clients = Clients {
            shape,
            lanes,
            rng: Rng::new(seed),
            ends: None,
        };
        for key in 0..shape.keys {
            for index in 0..clients.lanes.len() {
                clients.ask(index, key, true)?;
            }
            let mut load = Load::default();
            while clients.lanes.iter().any(|lane| lane.asked.is_some()) {
                clients.hear(&mut load, Duration::from_millis(100))?;
            }
            ensure!(
                load.wrong + load.refused == 0,
                "the store cannot be filled: {:?}",
                load.example
            );
        }
        Ok(clients)
    }

    /// Remembers from now on when each reply comes.
    pub(crate) fn keep_ends(&mut self) {
        self.ends = Some(Vec::new());
    }

    /// When each reply came, in this order; no longer remembered.
    pub(crate) fn ends(&mut self) -> Vec<Instant> {
        self.ends.take().unwrap_or_default()
    }

    /// The share of `get` from now on.
    pub(crate) fn mix(&mut self, get_percent: usize) {
        self.shape.get_percent = get_percent;
    }

    /// A key of the clients' own, as the servers know it: for strikes.
    pub(crate) fn some_key(&self, rng: &mut Rng) -> String {
        name(
            rng.below(self.shape.clients),
            rng.below(self.shape.keys),
            self.shape.key_bytes,
        )
    }

    /// Every connection has a request under way all the time.
    pub(crate) fn saturate(&mut self, time: Duration) -> Result<Load> {
        let began = Instant::now();
        let mut load = Load::default();
        loop {
            let over = began.elapsed() >= time;
            for index in 0..self.lanes.len() {
                if self.lanes[index].asked.is_none() && !over {
                    self.draw(index)?;
                }
            }
            if over && self.lanes.iter().all(|lane| lane.asked.is_none()) {
                break;
            }
            self.hear(&mut load, Duration::from_millis(100))?;
        }
        load.seconds = began.elapsed().as_secs_f64();
        Ok(load)
    }

    /// Requests at random moments (Poisson), `rate` a second; a response time runs from the moment at which the request was due.
    pub(crate) fn pace(&mut self, rate: f64, time: Duration) -> Result<Load> {
        let began = Instant::now();
        let mut due = began;
        let mut load = Load::default();
        loop {
            let now = Instant::now();
            let over = now - began >= time;
            while due <= now && !over {
                let Some(index) = self.lanes.iter().position(|lane| lane.asked.is_none()) else {
                    break;
                };
                self.draw(index)?;
                self.lanes[index].sent = due;
                due += Duration::from_secs_f64(-(1.0 - self.rng.unit()).ln() / rate);
            }
            let free = self.lanes.iter().filter(|lane| lane.asked.is_none());
            let free = free.count();
            if over && free == self.lanes.len() {
                break;
            }
            // Where nothing can be asked, only a reply changes that: looking for one all the time would take a processor from the servers.
            let wait = match over || free == 0 {
                true => Duration::from_millis(20),
                false => due.saturating_duration_since(Instant::now()),
            };
            self.hear(&mut load, wait.min(Duration::from_millis(20)))?;
        }
        load.seconds = began.elapsed().as_secs_f64();
        Ok(load)
    }

    fn draw(&mut self, index: usize) -> Result<()> {
        let key = self.rng.below(self.shape.keys);
        let get = self.rng.chance(self.shape.get_percent);
        self.ask(index, key, !get)
    }

    fn ask(&mut self, index: usize, key: usize, set: bool) -> Result<()> {
        let shape = self.shape;
        let lane = &mut self.lanes[index];
        let name = name(lane.number, key, shape.key_bytes);
        let mut request = Vec::with_capacity(shape.key_bytes + shape.value_bytes + 32);
        if set {
            lane.next += 1;
            write!(request, "set {name} 0 0 {}\r\n", shape.value_bytes)?;
            put_value(&mut request, lane.number, key, lane.next, shape.value_bytes);
            request.extend_from_slice(b"\r\n");
        } else {
            write!(request, "get {name}\r\n")?;
        }
        lane.asked = Some((key, set.then_some(lane.next)));
        lane.sent = Instant::now();
        // The server ended while this connection was idle: what was not sent whole is not executed, and nobody answers it.
        if lane.line.send(&request).is_err() {
            lane.lose()?;
            lane.line
                .send(&request)
                .with_context(|| format!("{} takes no request", lane.at))?;
        }
        Ok(())
    }

    /// Waits for replies for at most this long.
    fn hear(&mut self, load: &mut Load, wait: Duration) -> Result<()> {
        let waiting: Vec<usize> = (0..self.lanes.len())
            .filter(|index| self.lanes[*index].asked.is_some())
            .collect();
        let ready: Vec<usize> = {
            let mut fds: Vec<PollFd<'_>> = waiting
                .iter()
                .map(|index| PollFd::new(self.lanes[*index].line.stream(), PollFlags::IN))
                .collect();
            poll(&mut fds, Some(&Timespec::try_from(wait)?))?;
            waiting
                .iter()
                .zip(&fds)
                .filter(|(_, fd)| !fd.revents().is_empty())
                .map(|(index, _)| *index)
                .collect()
        };
        for index in waiting {
            let lane = &mut self.lanes[index];
            let said = if ready.contains(&index) {
                lane.read(self.shape)?
            } else {
                lane.waits()?
            };
            if said == Said::Nothing {
                continue;
            }
            load.requests += 1;
            let now = Instant::now();
            load.times_us.push((now - lane.sent).as_secs_f64() * 1e6);
            self.ends.iter_mut().for_each(|ends| ends.push(now));
            match said {
                Said::Refused => load.refused += 1,
                Said::Wrong(text) => {
                    load.wrong += 1;
                    load.example.get_or_insert(text);
                }
                Said::Right | Said::Nothing => {}
            }
        }
        Ok(())
    }
}

fn open(at: SocketAddr, envelope: bool) -> Result<Connection<TcpStream>> {
    let stream = TcpStream::connect(at).with_context(|| format!("no server at {at}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let line = if envelope {
        let nonce = u64::from(stream.local_addr()?.port()) << 32 | u64::from(std::process::id());
        let line = Connection::negotiate(stream, nonce)?;
        ensure!(line.enveloped(), "{at} knows no message envelope");
        line
    } else {
        Connection::plain(stream)
    };
    line.stream().set_nonblocking(true)?;
    Ok(line)
}

fn name(client: usize, key: usize, bytes: usize) -> String {
    let mut name = format!("c{client}-k{key}-");
    while name.len() < bytes {
        name.push('x');
    }
    name
}

/// Names client, key and version, then letters that depend on them.
fn put_value(to: &mut Vec<u8>, client: usize, key: usize, version: u64, bytes: usize) {
    let end = to.len() + bytes;
    let _ = write!(to, "{client} {key} {version} ");
    let mut word = (client as u64) << 48 ^ (key as u64) << 24 ^ version;
    while to.len() < end {
        word = word
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        for byte in word.to_le_bytes() {
            to.push(b'a' + byte % 26);
        }
    }
    to.truncate(end);
}

impl Lane {
    /// The connection broke: whether the request was executed is not known.
    fn lose(&mut self) -> Result<()> {
        self.input.clear();
        self.line = open(self.at, self.envelope)?;
        Ok(())
    }

    fn read(&mut self, shape: Shape) -> Result<Said> {
        match self.line.receive(&mut self.input) {
            Ok(0) => return self.broken(),
            Ok(_) => {}
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(Said::Nothing),
            Err(why) if why.kind() == ErrorKind::Interrupted => return Ok(Said::Nothing),
            // With the envelope that is also a reply that was changed on its way.
            Err(_) => return self.broken(),
        }
        Ok(self.judge(shape))
    }

    /// Nothing has come. A reply of which a part has come, and never the rest, lost its end on its way.
    fn waits(&mut self) -> Result<Said> {
        if self.sent.elapsed() < PATIENCE {
            return Ok(Said::Nothing);
        }
        ensure!(
            !self.input.is_empty(),
            "no reply for {PATIENCE:?} from {}",
            self.at
        );
        let text = String::from_utf8_lossy(&self.input[..self.input.len().min(200)]).into_owned();
        self.unsure();
        self.asked = None;
        self.lose()?;
        Ok(Said::Wrong(format!("without its end: {text}")))
    }

    fn broken(&mut self) -> Result<Said> {
        self.unsure();
        self.lose()?;
        Ok(Said::Refused)
    }

    fn unsure(&mut self) {
        if let Some((key, Some(version))) = self.asked.take() {
            self.versions[key].1.push(version);
        }
    }

    /// What the bytes that have come say.
    fn judge(&mut self, shape: Shape) -> Said {
        let Some((key, stores)) = self.asked else {
            return Said::Wrong("bytes that nobody asked for".to_owned());
        };
        let Some(line) = self.input.windows(2).position(|two| two == b"\r\n") else {
            return Said::Nothing;
        };
        if self.input.starts_with(b"SERVER_ERROR") {
            self.input.clear();
            self.unsure();
            self.asked = None;
            return Said::Refused;
        }
        if let Some(version) = stores {
            let stored = self.input == b"STORED\r\n";
            let text = String::from_utf8_lossy(&self.input).into_owned();
            self.input.clear();
            self.asked = None;
            self.versions[key] = (version, Vec::new());
            return if stored {
                Said::Right
            } else {
                Said::Wrong(text)
            };
        }
        let whole = if self.input.starts_with(b"VALUE ") {
            self.input.len() >= line + 2 + shape.value_bytes + 7
        } else {
            true
        };
        if !whole {
            return Said::Nothing;
        }
        let (version, others) = self.versions[key].clone();
        let right = std::iter::once(version).chain(others).find(|version| {
            let mut expected = Vec::with_capacity(shape.value_bytes + shape.key_bytes + 32);
            let name = name(self.number, key, shape.key_bytes);
            let _ = write!(expected, "VALUE {name} 0 {}\r\n", shape.value_bytes);
            put_value(&mut expected, self.number, key, *version, shape.value_bytes);
            expected.extend_from_slice(b"\r\nEND\r\n");
            expected == self.input
        });
        let text = String::from_utf8_lossy(&self.input[..self.input.len().min(200)]).into_owned();
        self.input.clear();
        self.asked = None;
        match right {
            Some(version) => {
                self.versions[key] = (version, Vec::new());
                Said::Right
            }
            None => Said::Wrong(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        clients: 1,
        keys: 2,
        key_bytes: 10,
        value_bytes: 40,
        get_percent: 50,
        envelope: false,
    };

    fn lane(asked: (usize, Option<u64>), said: &[u8]) -> (Lane, Said) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut lane = Lane {
            at,
            line: open(at, false).unwrap(),
            envelope: false,
            number: 0,
            versions: vec![(3, vec![4]), (1, Vec::new())],
            next: 9,
            asked: Some(asked),
            sent: Instant::now(),
            input: said.to_vec(),
        };
        let judged = lane.judge(SHAPE);
        (lane, judged)
    }

    fn reply(key: usize, version: u64) -> Vec<u8> {
        let mut bytes = format!("VALUE {} 0 40\r\n", name(0, key, 10)).into_bytes();
        put_value(&mut bytes, 0, key, version, 40);
        bytes.extend_from_slice(b"\r\nEND\r\n");
        bytes
    }

    #[test]
    fn the_stored_value_is_right_and_so_is_one_that_may_have_been_stored() {
        for (key, version) in [(0, 3), (0, 4), (1, 1)] {
            let (lane, said) = lane((key, None), &reply(key, version));
            assert_eq!(said, Said::Right);
            assert_eq!(lane.versions[key], (version, Vec::new()));
        }
    }

    #[test]
    fn a_stale_value_a_flipped_bit_and_a_lost_item_are_wrong() {
        for key in 0..2 {
            for bit in 0..reply(key, 1).len() * 8 {
                let mut bytes = reply(key, [3, 1][key]);
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(lane((key, None), &bytes).1, Said::Right, "bit {bit}");
            }
        }
        assert!(matches!(lane((0, None), &reply(0, 2)).1, Said::Wrong(_)));
        assert!(matches!(lane((1, None), b"END\r\n").1, Said::Wrong(_)));
        assert!(matches!(
            lane((1, Some(2)), b"NOT_STORED\r\n").1,
            Said::Wrong(_)
        ));
    }

    #[test]
    fn an_error_leaves_both_values_possible() {
        let (lane, said) = lane((1, Some(7)), b"SERVER_ERROR the replicas disagree\r\n");
        assert_eq!(said, Said::Refused);
        assert_eq!(lane.versions[1], (1, vec![7]));
        // Two that fail in a row: each of them may have been executed.
        let (lane, _) = self::lane((0, Some(8)), b"SERVER_ERROR the replicas disagree\r\n");
        assert_eq!(lane.versions[0], (3, vec![4, 8]));
    }
}
