//! A client of memcached's text protocol that keeps many connections busy.
//!
//! Values depend on the key alone, so every reply is known beforehand: `set` writes what is there
//! already. They are cut out of one pool of random bytes, at a place that the key decides.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steadfast_envelope::client::{AGREED, hello};
use steadfast_envelope::stream::{Front, Opener, Sealer, Sender};

use super::process::{Running, Split};
use super::{Paced, Saturated};
use crate::inputs::Rng;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    pub keys: usize,
    pub value_bytes: usize,
    /// The share of `get`; the rest is `set`.
    pub get_percent: usize,
}

/// Bytes that values are cut out of, beside their own length: enough places that neighbouring
/// keys have different values, and little enough to stay in the client's cache.
const POOL: usize = 32 << 10;

/// Sets sent at once while the store is filled.
const FILL_BATCH: usize = 64;

/// No reply takes this long on a machine that works.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a memcached with `threads` workers; slabs are moved, as by default.
///
/// # Errors
/// As [`Running::start`].
pub fn start(program: &Path, split: &Split, memory_mib: usize, log: &Path) -> Result<Running> {
    let address = super::process::free_address()?;
    let args: Vec<String> = [
        "-u".to_owned(),
        "root".to_owned(),
        "-l".to_owned(),
        "127.0.0.1".to_owned(),
        "-p".to_owned(),
        address.port().to_string(),
        "-U".to_owned(),
        "0".to_owned(),
        "-t".to_owned(),
        split.server.len().to_string(),
        "-m".to_owned(),
        memory_mib.to_string(),
    ]
    .into();
    Running::start(program, &args, address, split, log, |address| {
        TcpStream::connect(address).is_ok()
    })
}

/// Connections to one server, and what they ask.
#[derive(Debug)]
pub struct Client {
    mix: Mix,
    pool: Vec<u8>,
    lanes: Vec<Lane>,
    rng: Rng,
}

#[derive(Debug)]
struct Lane {
    stream: TcpStream,
    envelope: Option<(Sealer, Opener)>,
    request: Vec<u8>,
    sealed: Vec<u8>,
    /// The reply that is right.
    expected: Vec<u8>,
    /// How much of it has come.
    matched: usize,
    buffer: Vec<u8>,
    filled: usize,
    due: Instant,
    /// Whether it asks for bytes instead of sleeping until there are some.
    spins: bool,
}

impl Client {
    /// Opens `connections` and fills the store.
    ///
    /// # Errors
    /// When the server cannot be reached, has no envelope though one is asked for, or answers
    /// wrongly.
    pub fn connect(
        address: SocketAddr,
        connections: usize,
        envelope: bool,
        mix: Mix,
        seed: u64,
    ) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let pool = (0..POOL + mix.value_bytes)
            .map(|_| b'a' + rng.below(26).to_le_bytes()[0])
            .collect();
        let lanes = (0..connections)
            .map(|_| Lane::connect(address, envelope.then(|| rng.next_u64())))
            .collect::<Result<_>>()?;
        let mut client = Client {
            mix,
            pool,
            lanes,
            rng,
        };
        client.fill()?;
        Ok(client)
    }

    fn fill(&mut self) -> Result<()> {
        let lane = &mut self.lanes[0];
        let keys: Vec<usize> = (0..self.mix.keys).collect();
        for batch in keys.chunks(FILL_BATCH) {
            lane.request.clear();
            lane.expected.clear();
            for &key in batch {
                put_set(&mut lane.request, key, value(&self.pool, self.mix, key));
                lane.expected.extend_from_slice(b"STORED\r\n");
            }
            lane.send()?;
            lane.wait()?;
        }
        Ok(())
    }

    fn ask(&mut self, index: usize) -> Result<()> {
        let key = self.rng.below(self.mix.keys);
        let get = self.rng.chance(self.mix.get_percent);
        let lane = &mut self.lanes[index];
        let value = value(&self.pool, self.mix, key);
        lane.request.clear();
        lane.expected.clear();
        if get {
            write!(lane.request, "get key-{key:08}\r\n")?;
            write!(lane.expected, "VALUE key-{key:08} 0 {}\r\n", value.len())?;
            lane.expected.extend_from_slice(value);
            lane.expected.extend_from_slice(b"\r\nEND\r\n");
        } else {
            put_set(&mut lane.request, key, value);
            lane.expected.extend_from_slice(b"STORED\r\n");
        }
        lane.send().context("a request cannot be sent")
    }

    /// Keeps every connection busy for `time`, after `warm` that is not counted.
    ///
    /// # Errors
    /// When a reply is wrong or does not come.
    pub fn saturate(
        &mut self,
        server: &Running,
        warm: Duration,
        time: Duration,
    ) -> Result<Saturated> {
        for index in 0..self.lanes.len() {
            self.ask(index)?;
        }
        // A client that sleeps has to be woken: the server would pay for that, and wait for it.
        self.spin(true)?;
        self.rounds(warm)?;
        let (begun, cpu) = (Instant::now(), server.cpu_ns()?);
        let requests = self.rounds(time)?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_ns = server.cpu_ns()? - cpu;
        self.spin(false)?;
        for lane in &mut self.lanes {
            lane.wait()?;
        }
        Ok(Saturated {
            requests,
            seconds,
            cpu_ns,
            cpus: server.cpus,
        })
    }

    /// One connection after the other: take its reply, send its next request. While this waits
    /// for one, all others have theirs at the server.
    fn rounds(&mut self, time: Duration) -> Result<u64> {
        let end = Instant::now() + time;
        let mut requests = 0;
        while Instant::now() < end {
            for index in 0..self.lanes.len() {
                self.lanes[index].wait()?;
                self.ask(index)?;
            }
            requests += self.lanes.len() as u64;
        }
        Ok(requests)
    }

    /// Sends requests at random moments (Poisson), `rate` per second, for `time`.
    ///
    /// # Errors
    /// When a reply is wrong or does not come.
    pub fn pace(&mut self, rate: f64, time: Duration) -> Result<Paced> {
        self.spin(true)?;
        let paced = self.pace_nonblocking(rate, time);
        self.spin(false)?;
        paced
    }

    fn spin(&mut self, on: bool) -> Result<()> {
        for lane in &mut self.lanes {
            lane.stream.set_nonblocking(on)?;
            lane.spins = on;
        }
        Ok(())
    }

    fn pace_nonblocking(&mut self, rate: f64, time: Duration) -> Result<Paced> {
        let mut idle: Vec<usize> = (0..self.lanes.len()).collect();
        let mut times = Vec::new();
        let begun = Instant::now();
        let end = begun + time;
        let mut due = begun;
        let mut kept_up = true;
        let mut heard = begun;
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                let Some(index) = idle.pop() else { break };
                self.lanes[index].due = due;
                self.ask(index)?;
                due += Duration::from_secs_f64(-(1.0 - self.rng.unit()).ln() / rate);
            }
            if now >= end {
                // What was due and could not even be sent counts against the server.
                kept_up &= due >= end;
                due = end;
                if idle.len() == self.lanes.len() {
                    break;
                }
            }
            if idle.len() == self.lanes.len() {
                // Nothing is under way: spin until the next request is due.
                heard = now;
                std::hint::spin_loop();
                continue;
            }
            for index in self.readable()? {
                if self.lanes[index].receive()? {
                    times.push(self.lanes[index].due.elapsed());
                    idle.push(index);
                    heard = now;
                }
            }
            ensure!(
                now - heard < PATIENCE,
                "the server has not answered for {PATIENCE:?}"
            );
        }
        Ok(Paced::of(rate, times, kept_up))
    }

    /// Connections with something to read, and a request under way.
    fn readable(&self) -> Result<Vec<usize>> {
        let under_way = |lane: &&Lane| lane.matched < lane.expected.len();
        let waiting: Vec<usize> = (0..self.lanes.len())
            .filter(|&index| under_way(&&self.lanes[index]))
            .collect();
        let mut fds: Vec<PollFd<'_>> = waiting
            .iter()
            .map(|&index| PollFd::from_borrowed_fd(self.lanes[index].stream.as_fd(), PollFlags::IN))
            .collect();
        poll(&mut fds, Some(&Timespec::default()))?;
        let ready = waiting
            .iter()
            .zip(&fds)
            .filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready.map(|(&index, _)| index).collect())
    }
}

/// The value of a key.
fn value(pool: &[u8], mix: Mix, key: usize) -> &[u8] {
    // 40503 is 2^16 divided by the golden ratio: neighbouring keys lie far apart.
    let at = key.wrapping_mul(40_503) % POOL;
    &pool[at..at + mix.value_bytes]
}

fn put_set(request: &mut Vec<u8>, key: usize, value: &[u8]) {
    write!(request, "set key-{key:08} 0 0 {}\r\n", value.len()).expect("memory takes all");
    request.extend_from_slice(value);
    request.extend_from_slice(b"\r\n");
}

impl Lane {
    fn connect(address: SocketAddr, nonce: Option<u64>) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut envelope = None;
        if let Some(nonce) = nonce {
            stream.write_all(hello(nonce).as_bytes())?;
            let mut answer = [0; AGREED.len()];
            let got = stream.read(&mut answer)?;
            ensure!(
                answer[..got] == *AGREED,
                "a server with the message envelope is required, this one answered {:?}",
                String::from_utf8_lossy(&answer[..got])
            );
            envelope = Some((
                Sealer::new(nonce, Sender::Client),
                Opener::new(nonce, Sender::Server),
            ));
        }
        Ok(Lane {
            stream,
            envelope,
            request: Vec::new(),
            sealed: Vec::new(),
            expected: Vec::new(),
            matched: 0,
            buffer: vec![0; 64 << 10],
            filled: 0,
            due: Instant::now(),
            spins: false,
        })
    }

    fn send(&mut self) -> io::Result<()> {
        self.matched = 0;
        match &mut self.envelope {
            None => self.stream.write_all(&self.request),
            Some((sealer, _)) => {
                self.sealed.clear();
                sealer.seal(&self.request, &mut self.sealed);
                self.stream.write_all(&self.sealed)
            }
        }
    }

    /// Waits for the whole reply.
    fn wait(&mut self) -> Result<()> {
        let mut begun = None;
        loop {
            // The clock is looked at once in a while: it costs as much as an empty read.
            for _ in 0..256 {
                if self.receive()? {
                    return Ok(());
                }
            }
            let waited = begun.get_or_insert_with(Instant::now).elapsed();
            ensure!(
                waited < PATIENCE,
                "the server has not answered for {PATIENCE:?}"
            );
        }
    }

    /// Reads once; true when the reply is whole.
    fn receive(&mut self) -> Result<bool> {
        if self.matched < self.expected.len() {
            let got = match self.stream.read(&mut self.buffer[self.filled..]) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(false),
                Err(error) if self.spins && error.kind() == ErrorKind::WouldBlock => {
                    return Ok(false);
                }
                Err(error) => return Err(error).context("a reply did not come"),
            };
            self.filled += got;
            let Some((_, opener)) = &mut self.envelope else {
                self.matched +=
                    compare(&self.expected[self.matched..], &self.buffer[..self.filled])?;
                self.filled = 0;
                return Ok(self.matched == self.expected.len());
            };
            let mut start = 0;
            while let Front::Frame { payload, used } =
                opener.open(&self.buffer[start..self.filled])?
            {
                self.matched += compare(&self.expected[self.matched..], payload)?;
                start += used;
            }
            self.buffer.copy_within(start..self.filled, 0);
            self.filled -= start;
        }
        Ok(self.matched == self.expected.len())
    }
}

/// How many bytes of a right reply these are.
fn compare(expected: &[u8], found: &[u8]) -> Result<usize> {
    if expected.starts_with(found) {
        return Ok(found.len());
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    bail!(
        "a wrong reply: {:?} is right, {:?} came",
        text(expected),
        text(found)
    )
}
