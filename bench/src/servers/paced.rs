//! Requests at random moments (Poisson), so many a second, whatever the server makes of them: an open loop.
//!
//! redis-benchmark and wrk ask again when an answer has come, so one late answer holds back those behind it and never shows as many.
//! Here a response time runs from the moment at which the request was due; where every connection waits, it waits as well.
//!
//! Invariants
//!  1. Each reply is compared with the right one, but for the head of an HTTP reply behind its first line, which has the date.
//!  2. A wrong reply, one that does not come, and a connection that ends fail the run.
//!
//! Not covered: pipelining. Each connection has one request under way. memcached has clients of its own that do the same
//! (`kv/load.rs`).

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use steadfast_workloads::inputs::Rng;

use crate::stats::quantile;

/// No server that works is silent for so long.
const PATIENCE: Duration = Duration::from_secs(15);
/// What an HTTP server may put before the body: a few hundred bytes are usual.
const HEAD_BYTES_MAX: usize = 4096;

/// A request, and what its reply begins and ends with.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) request: Vec<u8>,
    pub(super) begins: Vec<u8>,
    pub(super) ends: Vec<u8>,
}

/// How long replies took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// How often, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) connections: usize,
    /// Requests a second.
    pub(super) rate: f64,
    pub(super) time: Duration,
    pub(super) seed: u64,
}

#[derive(Debug)]
struct Line {
    stream: TcpStream,
    /// When the request under way was due.
    due: Option<Instant>,
    sent: Instant,
    input: Vec<u8>,
}

impl Question {
    /// Whether the reply is whole.
    fn is_answered(&self, input: &[u8]) -> Result<bool> {
        let head = input.len().min(self.begins.len());
        ensure!(
            input[..head] == self.begins[..head] && input.len() <= HEAD_BYTES_MAX + self.ends.len(),
            "a wrong reply: {:?}",
            String::from_utf8_lossy(&input[..input.len().min(200)])
        );
        Ok(input.ends_with(&self.ends))
    }
}

impl Line {
    fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            due: None,
            sent: Instant::now(),
            input: Vec::new(),
        })
    }

    fn ask(&mut self, question: &Question, due: Instant) -> Result<()> {
        self.stream.write_all(&question.request)?;
        self.sent = Instant::now();
        self.due = Some(due);
        Ok(())
    }

    /// Takes what has come; the response time, once the reply is whole.
    fn hear(&mut self, question: &Question) -> Result<Option<Duration>> {
        let mut part = [0; 1 << 15];
        match self.stream.read(&mut part) {
            Ok(0) => bail!("the server has ended a connection"),
            Ok(bytes) => self.input.extend_from_slice(&part[..bytes]),
            Err(why) if matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(why) => return Err(why).context("a reply"),
        }
        if !question.is_answered(&self.input)? {
            return Ok(None);
        }
        self.input.clear();
        Ok(self.due.take().map(|due| due.elapsed()))
    }
}

/// Has the thread that calls wake when a request is due, and not up to 50 µs later, as the kernel may to save wakes.
pub(super) fn wake_on_time() -> Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).context("timer slack")
}

/// Asks the same at that pace.
///
/// # Errors
/// When a reply is wrong or missing, or a connection ends.
pub(super) fn pace(address: SocketAddr, question: &Question, pace: Pace) -> Result<Times> {
    wake_on_time()?;
    let mut lines = (0..pace.connections)
        .map(|_| Line::open(address))
        .collect::<Result<Vec<_>>>()?;
    let mut rng = Rng::new(pace.seed);
    let mut times_us = Vec::new();
    let began = Instant::now();
    let mut due = began;
    loop {
        let now = Instant::now();
        let over = now - began >= pace.time;
        while due <= now && !over {
            let Some(line) = lines.iter_mut().find(|line| line.due.is_none()) else {
                break;
            };
            line.ask(question, due)?;
            due += Duration::from_secs_f64(-(1.0 - rng.unit()).ln() / pace.rate);
        }
        let waiting = lines.iter().filter(|line| line.due.is_some()).count();
        if over && waiting == 0 {
            break;
        }
        // Where nothing can be asked, only a reply changes that.
        let wait = if over || waiting == lines.len() {
            Duration::from_millis(100)
        } else {
            due.saturating_duration_since(Instant::now())
        };
        hear(&mut lines, question, wait, &mut times_us)?;
    }
    Ok(Times {
        p50_us: quantile(&times_us, 0.5).context("no reply")?,
        p99_us: quantile(&times_us, 0.99).context("no reply")?,
    })
}

/// Waits for replies for at most so long.
fn hear(
    lines: &mut [Line],
    question: &Question,
    wait: Duration,
    times_us: &mut Vec<f64>,
) -> Result<()> {
    let mut asked: Vec<&mut Line> = lines.iter_mut().filter(|line| line.due.is_some()).collect();
    let ready: Vec<bool> = {
        let mut fds: Vec<PollFd<'_>> = asked
            .iter()
            .map(|line| PollFd::new(&line.stream, PollFlags::IN))
            .collect();
        poll(&mut fds, Some(&Timespec::try_from(wait)?))?;
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    };
    for (line, ready) in asked.iter_mut().zip(ready) {
        if ready {
            let time = line.hear(question)?;
            times_us.extend(time.map(|time| time.as_secs_f64() * 1e6));
        } else {
            ensure!(
                line.sent.elapsed() < PATIENCE,
                "no whole reply within {} s",
                PATIENCE.as_secs()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const PACE: Pace = Pace {
        connections: 1,
        rate: 200.0,
        time: Duration::from_millis(200),
        seed: 1,
    };

    fn question() -> Question {
        Question {
            request: b"?\n".to_vec(),
            begins: b"+".to_vec(),
            ends: b"+right\n".to_vec(),
        }
    }

    /// A server of one connection that answers each byte with `reply`, so long after it.
    fn serve(reply: &'static [u8], late: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while matches!(stream.read(&mut [0; 2]), Ok(n) if n > 0) {
                thread::sleep(late);
                // In two parts: a reply is not always whole when it comes.
                let (one, other) = reply.split_at(reply.len() / 2);
                if stream
                    .write_all(one)
                    .and_then(|()| stream.write_all(other))
                    .is_err()
                {
                    return;
                }
            }
        });
        address
    }

    #[test]
    fn a_right_reply_has_its_time() {
        let times = pace(serve(b"+right\n", Duration::ZERO), &question(), PACE).unwrap();
        assert!(times.p50_us > 0.0 && times.p50_us <= times.p99_us);
    }

    #[test]
    fn who_waits_for_a_connection_waits_for_its_reply() {
        // 200 requests a second, each of 20 ms, on one connection: the last ones are due long before they are sent.
        let late = Duration::from_millis(20);
        let times = pace(serve(b"+right\n", late), &question(), PACE).unwrap();
        assert!(times.p99_us > 60_000.0, "{times:?}");
    }

    #[test]
    fn a_wrong_reply_fails() {
        let why = pace(serve(b"-error\n", Duration::ZERO), &question(), PACE).unwrap_err();
        // Its first part tells already.
        assert!(format!("{why:#}").contains("\"-er"), "{why:#}");
    }
}
