//! A client that keeps a DNS server busy: many queries under way over one socket, told apart by
//! their identifiers.
//!
//! The names are those of a hosts file that the server reads at start; the address of each is
//! known, so every reply is checked.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use steadfast_envelope::dns as envelope;

use super::process::{Running, Split, free_address};
use super::{Paced, Saturated};
use crate::dns::{self, kind};
use crate::inputs::Rng;

/// Hosts of the generated hosts file: dnsmasq's answer comes out of its hash table of names.
pub const HOSTS: usize = 1000;

/// Queries under way: fewer than what a socket buffer of 208 KiB (Linux' default) holds, at about
/// 1 KiB of bookkeeping for a small datagram.
const WINDOW: usize = 64;

const PATIENCE: Duration = Duration::from_secs(5);

/// The name of a host.
#[must_use]
pub fn host(index: usize) -> String {
    format!("host-{index:05}.bench.test")
}

/// Its address.
#[must_use]
pub fn address_of(index: usize) -> Ipv4Addr {
    let [.., high, low] = (index as u64).to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// Writes a hosts file.
///
/// # Errors
/// When it cannot be written.
pub fn write_hosts(file: &Path) -> Result<()> {
    let text: String = (0..HOSTS)
        .map(|index| format!("{} {}\n", address_of(index), host(index)))
        .collect();
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Starts a dnsmasq that answers from a hosts file and from `more` options.
///
/// # Errors
/// As [`Running::start`].
pub fn start(program: &Path, split: &Split, dir: &Path, more: &[String]) -> Result<Running> {
    // dnsmasq changes to / before it reads them.
    let hosts = std::path::absolute(dir)?.join("hosts");
    write_hosts(&hosts)?;
    let address = free_address()?;
    let mut args: Vec<String> = [
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--pid-file=",
        "--user=root",
        "--group=root",
        "--no-resolv",
        "--no-hosts",
        "--no-poll",
        "--no-negcache",
        "--bind-interfaces",
        "--listen-address=127.0.0.1",
        "--local=/bench.test/",
        "--log-facility=-",
    ]
    .map(str::to_owned)
    .into();
    args.push(format!("--port={}", address.port()));
    args.push(format!("--addn-hosts={}", hosts.display()));
    args.extend_from_slice(more);
    Running::start(
        program,
        &args,
        address,
        split,
        &dir.join("dnsmasq.log"),
        |address| {
            let query = dns::query(1, &host(0), kind::A, false);
            // It answers before it has read its hosts, and knows none of them then.
            exchange(address, &query, Duration::from_millis(50))
                .is_ok_and(|reply| is_right(&reply, 0).is_ok())
        },
    )
}

/// Sends one datagram and waits for one.
///
/// # Errors
/// When none comes in time.
pub fn exchange(address: SocketAddr, datagram: &[u8], patience: Duration) -> Result<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(patience))?;
    socket.send(datagram)?;
    let mut reply = vec![0; 4096];
    let got = socket.recv(&mut reply)?;
    reply.truncate(got);
    Ok(reply)
}

/// Queries under way to one server.
#[derive(Debug)]
pub struct Client {
    socket: UdpSocket,
    envelope: bool,
    rng: Rng,
    /// What was asked in each place of the window; the place is the identifier.
    asked: Vec<Asked>,
    idle: Vec<usize>,
    serial: u32,
    /// Whether an empty socket is asked again instead of slept on: waking up costs a virtual
    /// machine more than a query does, and the server must not wait for its client.
    spins: bool,
    /// Whether the CPU is offered to others then: an upstream server runs on it, too.
    gives_way: bool,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    host: usize,
    serial: u32,
    due: Instant,
    waiting: bool,
}

impl Client {
    /// A client of a server that [`start`] has started.
    ///
    /// # Errors
    /// When no socket can be had.
    pub fn connect(address: SocketAddr, envelope: bool, seed: u64) -> Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut rng = Rng::new(seed);
        let [.., a, b, c, d] = rng.next_u64().to_be_bytes();
        let none = Asked {
            host: 0,
            serial: 0,
            due: Instant::now(),
            waiting: false,
        };
        Ok(Client {
            socket,
            envelope,
            rng,
            asked: vec![none; WINDOW],
            idle: (0..WINDOW).collect(),
            serial: u32::from_be_bytes([a, b, c, d]),
            spins: false,
            gives_way: false,
        })
    }

    /// The same beside an upstream server on its CPU.
    #[must_use]
    pub fn giving_way(self) -> Self {
        Client {
            gives_way: true,
            ..self
        }
    }

    fn ask(&mut self, place: usize, due: Instant) -> Result<()> {
        let asked = Asked {
            host: self.rng.below(HOSTS),
            serial: self.serial,
            due,
            waiting: true,
        };
        self.serial = self.serial.wrapping_add(1);
        self.asked[place] = asked;
        let id = u16::try_from(place)?;
        let mut query = dns::query(id, &host(asked.host), kind::A, true);
        if self.envelope {
            query = envelope::seal(&query, asked.serial, 1232)?;
        }
        self.socket.send(&query).context("a query cannot be sent")?;
        Ok(())
    }

    /// Takes one reply; `None` when there is none yet on a non-blocking socket.
    fn take(&mut self) -> Result<Option<usize>> {
        let mut buffer = [0; 2048];
        let got = match self.socket.recv(&mut buffer) {
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(None),
            Err(error) if self.spins && error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("a reply did not come"),
        };
        let mut reply = &buffer[..got];
        let opened;
        let mut serial = None;
        if self.envelope {
            opened = envelope::open(reply)?
                .context("a reply with the message envelope is required, one without it came")?;
            serial = Some(opened.serial);
            reply = &opened.message;
        }
        let place = usize::from(u16::from_be_bytes([reply[0], reply[1]]));
        let asked = self
            .asked
            .get_mut(place)
            .context("a reply that nobody asked for")?;
        ensure!(asked.waiting, "a second reply to one query");
        if serial.is_some_and(|serial| serial != asked.serial) {
            bail!(
                "a reply to another query: its serial is not {}",
                asked.serial
            );
        }
        asked.waiting = false;
        is_right(reply, asked.host)?;
        Ok(Some(place))
    }

    /// Keeps the window full for `time`, after `warm` that is not counted.
    ///
    /// # Errors
    /// When a reply is wrong or does not come.
    pub fn saturate(
        &mut self,
        server: &Running,
        warm: Duration,
        time: Duration,
    ) -> Result<Saturated> {
        while let Some(place) = self.idle.pop() {
            self.ask(place, Instant::now())?;
        }
        self.rounds(warm)?;
        let (begun, cpu) = (Instant::now(), server.cpu_ns()?);
        let requests = self.rounds(time)?;
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_ns = server.cpu_ns()? - cpu;
        while self.idle.len() < WINDOW {
            let place = self.take()?.context("interrupted")?;
            self.idle.push(place);
        }
        Ok(Saturated {
            requests,
            seconds,
            cpu_ns,
            cpus: server.cpus,
        })
    }

    fn spin(&mut self, on: bool) -> Result<()> {
        self.socket.set_nonblocking(on)?;
        self.spins = on;
        Ok(())
    }

    fn rounds(&mut self, time: Duration) -> Result<u64> {
        self.spin(true)?;
        let requests = self.spinning_rounds(time);
        self.spin(false)?;
        requests
    }

    fn spinning_rounds(&mut self, time: Duration) -> Result<u64> {
        let mut heard = Instant::now();
        let end = heard + time;
        let mut requests = 0;
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(requests);
            }
            ensure!(
                now - heard < PATIENCE,
                "the server has not answered for {PATIENCE:?}"
            );
            for _ in 0..WINDOW {
                if let Some(place) = self.take()? {
                    self.ask(place, now)?;
                    requests += 1;
                    heard = now;
                } else if self.gives_way {
                    std::thread::yield_now();
                    break;
                }
            }
        }
    }

    /// Sends queries at random moments (Poisson), `rate` per second, for `time`.
    ///
    /// # Errors
    /// When a reply is wrong or does not come.
    pub fn pace(&mut self, rate: f64, time: Duration) -> Result<Paced> {
        self.spin(true)?;
        let paced = self.pace_nonblocking(rate, time);
        self.spin(false)?;
        paced
    }

    fn pace_nonblocking(&mut self, rate: f64, time: Duration) -> Result<Paced> {
        let begun = Instant::now();
        let end = begun + time;
        let (mut due, mut kept_up, mut heard) = (begun, true, begun);
        let mut times = Vec::new();
        loop {
            let now = Instant::now();
            while due <= now && due < end {
                let Some(place) = self.idle.pop() else { break };
                self.ask(place, due)?;
                due += Duration::from_secs_f64(-(1.0 - self.rng.unit()).ln() / rate);
            }
            if now >= end {
                kept_up &= due >= end;
                due = end;
            }
            if self.idle.len() == WINDOW {
                if now >= end {
                    return Ok(Paced::of(rate, times, kept_up));
                }
                heard = now;
                std::hint::spin_loop();
                continue;
            }
            match self.take()? {
                Some(place) => {
                    times.push(self.asked[place].due.elapsed());
                    self.idle.push(place);
                    heard = now;
                }
                None if self.gives_way => std::thread::yield_now(),
                None => {}
            }
            ensure!(
                now - heard < PATIENCE,
                "the server has not answered for {PATIENCE:?}"
            );
        }
    }
}

/// One A record with the host's address, and nothing unexpected about it.
///
/// # Errors
/// What else came.
pub fn is_right(reply: &[u8], index: usize) -> Result<()> {
    let told = dns::decode(reply).context("a reply that is not well formed")?;
    let right = address_of(index).to_string();
    match told.answers.as_slice() {
        [answer]
            if told.rcode == 0
                && answer.kind == kind::A
                && answer.data == right
                && answer.name == host(index) =>
        {
            Ok(())
        }
        _ => bail!("a wrong reply: {right} is right, {told:?} came"),
    }
}
