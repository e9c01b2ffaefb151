//! The clients: programs that Debian has for each server, and our own for memcached and for requests at a given rate.
//!
//! Invariant: a number counts only from a client that ended well and reported no error.
//!
//! Not covered: bytes of replies that redis-benchmark, wrk and pgbench ask for: they look at statuses and lengths.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::paced::{self, Pace, Question, Times};
use super::service::{self, Started, program};
use crate::kv::load::{Clients, Load as Heard, Shape};

/// How long a server may say that it starts.
const READY: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub(super) enum Load {
    /// By redis-benchmark.
    Redis {
        test: &'static str,
        pipeline: usize,
        connections: usize,
    },
    /// By wrk.
    Http {
        connections: usize,
    },
    /// By our own, which checks each reply.
    Memcached {
        connections: usize,
    },
    Pgbench {
        clients: usize,
    },
}

/// What the client tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answers {
    pub(super) requests: f64,
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
}

/// What a program printed.
fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    ensure!(
        out.status.success(),
        "{command:?}: {}\n{text}{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    Ok(text)
}

/// The number that stands behind a word, to which its unit may stick.
fn number_behind(text: &str, word: &str) -> Result<(f64, String)> {
    let rest = text
        .split_once(word)
        .with_context(|| format!("{word:?} is not in:\n{text}"))?
        .1;
    let first = rest.split_whitespace().next().unwrap_or_default();
    let digits = first.trim_end_matches(|c: char| c.is_alphabetic() || c == '%');
    let number = digits
        .parse()
        .with_context(|| format!("no number behind {word:?} in:\n{text}"))?;
    Ok((number, first[digits.len()..].to_owned()))
}

fn seconds(time: Duration) -> String {
    time.as_secs().max(1).to_string()
}

impl Load {
    /// # Errors
    /// When its program is missing.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Load::Redis { .. } => program("redis-benchmark", "redis-tools").map(drop),
            Load::Http { .. } => program("wrk", "wrk").map(drop),
            Load::Memcached { .. } => Ok(()),
            Load::Pgbench { .. } => program("pgbench", "postgresql").map(drop),
        }
    }

    /// What must be there before anything counts.
    ///
    /// # Errors
    /// When the server does not take it.
    pub(super) fn prepare(&self, server: &Started) -> Result<()> {
        match self {
            Load::Redis { connections, .. } => {
                redis(server, "set", 1, *connections, 1000).map(drop)
            }
            Load::Http { .. } | Load::Memcached { .. } => Ok(()),
            Load::Pgbench { .. } => initialised(server),
        }
    }

    /// Asks for so long.
    ///
    /// # Errors
    /// When a reply is wrong or missing, or the client fails.
    pub(super) fn run(&self, server: &Started, time: Duration) -> Result<Answers> {
        match self {
            Load::Redis {
                test,
                pipeline,
                connections,
            } => {
                // Its length is a number of requests: so many as take that long, by a first short look.
                let first = redis(server, test, *pipeline, *connections, 2000 * pipeline)?;
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count of requests"
                )]
                let count = (first.per_second * time.as_secs_f64()) as usize;
                redis(server, test, *pipeline, *connections, count.max(1000))
            }
            Load::Http { connections } => http(server, *connections, time),
            Load::Memcached { connections } => memcached(server, *connections, time),
            Load::Pgbench { clients } => transactions(server, *clients, time),
        }
    }

    /// Asks `rate` times a second for so long, at random moments.
    ///
    /// # Errors
    /// As above, and where nobody has such clients.
    pub(super) fn pace(
        &self,
        server: &Started,
        rate: f64,
        time: Duration,
        seed: u64,
    ) -> Result<Times> {
        let (question, connections) = match self {
            Load::Redis { connections, .. } => (kept(server)?, *connections),
            Load::Http { connections } => (page(server), *connections),
            Load::Memcached { connections } => {
                paced::wake_on_time()?;
                let mut clients =
                    Clients::connect(&[server.address], memcached_shape(*connections), seed)?;
                let mut heard = clients.pace(rate, time)?;
                all_right(&heard)?;
                return Ok(Times {
                    p50_us: heard.us(500),
                    p99_us: heard.us(990),
                });
            }
            Load::Pgbench { .. } => bail!("pgbench is not asked at a rate"),
        };
        let pace = Pace {
            connections,
            rate,
            time,
            seed,
        };
        paced::pace(server.address, &question, pace)
    }
}

/// GET of 16 bytes, which are stored first.
fn kept(server: &Started) -> Result<Question> {
    let value = "0123456789abcdef";
    let mut stream = TcpStream::connect(server.address)?;
    write!(stream, "SET kept {value}\r\n")?;
    let mut said = [0; 5];
    stream.read_exact(&mut said)?;
    ensure!(
        &said == b"+OK\r\n",
        "redis said {:?} to SET",
        String::from_utf8_lossy(&said)
    );
    Ok(Question {
        request: b"GET kept\r\n".to_vec(),
        begins: b"$16\r\n".to_vec(),
        ends: format!("$16\r\n{value}\r\n").into_bytes(),
    })
}

fn page(server: &Started) -> Question {
    let mut ends = b"\r\n\r\n".to_vec();
    ends.extend(service::page());
    Question {
        request: format!("GET /file HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).into_bytes(),
        begins: b"HTTP/1.1 200 OK\r\n".to_vec(),
        ends,
    }
}

fn redis(
    server: &Started,
    test: &str,
    pipeline: usize,
    connections: usize,
    count: usize,
) -> Result<Answers> {
    let text = output(
        Command::new(program("redis-benchmark", "redis-tools")?)
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &server.address.port().to_string(),
                "-t",
                test,
                "-d",
                "16",
                "--csv",
            ])
            .args([
                "-c",
                &connections.to_string(),
                "-P",
                &pipeline.to_string(),
                "-n",
                &count.to_string(),
            ]),
    )?;
    // A head, and "GET","rps","avg","min","p50",... in milliseconds.
    let line = text.lines().last().unwrap_or_default();
    let fields: Vec<f64> = line
        .split(',')
        .skip(1)
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .collect();
    ensure!(fields.len() >= 4, "redis-benchmark said:\n{text}");
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    Ok(Answers {
        requests: count as f64,
        per_second: fields[0],
        p50_us: fields[3] * 1e3,
    })
}

fn http(server: &Started, connections: usize, time: Duration) -> Result<Answers> {
    let text = output(
        Command::new(program("wrk", "wrk")?)
            .args([
                "-t",
                "1",
                "-c",
                &connections.to_string(),
                "-d",
                &seconds(time),
                "--latency",
            ])
            .arg(format!("http://{}/file", server.address)),
    )?;
    ensure!(
        !text.contains("Socket errors") && !text.contains("Non-2xx"),
        "wrk said:\n{text}"
    );
    let (per_second, _) = number_behind(&text, "Requests/sec:")?;
    // The blank: "99.50%" stands above it in some reports.
    let (p50, unit) = number_behind(&text, " 50%")?;
    let in_us = match unit.as_str() {
        "us" => 1.0,
        "ms" => 1e3,
        _ => 1e6,
    };
    let whole = text
        .split_once(" requests in ")
        .with_context(|| text.clone())?
        .0;
    let requests = whole
        .split_whitespace()
        .last()
        .and_then(|count| count.parse().ok());
    Ok(Answers {
        requests: requests.with_context(|| text.clone())?,
        per_second,
        p50_us: p50 * in_us,
    })
}

fn memcached_shape(connections: usize) -> Shape {
    Shape {
        clients: connections,
        keys: 20,
        key_bytes: 20,
        value_bytes: 100,
        get_percent: 95,
        envelope: false,
    }
}

fn all_right(load: &Heard) -> Result<()> {
    ensure!(
        load.wrong == 0 && load.refused == 0,
        "{} wrong replies, {} errors: {}",
        load.wrong,
        load.refused,
        load.example.clone().unwrap_or_default()
    );
    Ok(())
}

fn memcached(server: &Started, connections: usize, time: Duration) -> Result<Answers> {
    let mut clients = Clients::connect(&[server.address], memcached_shape(connections), 1)?;
    let begin = Instant::now();
    let mut load = clients.saturate(time)?;
    let wall = begin.elapsed().as_secs_f64();
    all_right(&load)?;
    #[allow(clippy::cast_precision_loss, reason = "a count of requests")]
    let requests = load.requests as f64;
    Ok(Answers {
        requests,
        per_second: requests / wall,
        p50_us: load.us(500),
    })
}

fn pgbench(server: &Started) -> Result<Command> {
    let mut command = Command::new(program("pgbench", "postgresql")?);
    command
        .args([
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-p",
            &server.address.port().to_string(),
        ])
        .current_dir(&server.dir);
    Ok(command)
}

/// The tables of TPC-B, once the server takes connections: it listens before it does.
fn initialised(server: &Started) -> Result<()> {
    let deadline = Instant::now() + READY;
    loop {
        let found = output(pgbench(server)?.args(["-i", "-q", "-s", "1", "postgres"]));
        match found {
            Err(why)
                if format!("{why:#}").contains("is starting up") && Instant::now() < deadline =>
            {
                thread::sleep(Duration::from_millis(100));
            }
            found => return found.map(drop),
        }
    }
}

fn transactions(server: &Started, clients: usize, time: Duration) -> Result<Answers> {
    let text = output(pgbench(server)?.args([
        "-n",
        "-c",
        &clients.to_string(),
        "-T",
        &seconds(time),
        "postgres",
    ]))?;
    let (requests, _) = number_behind(&text, "transactions actually processed:")?;
    let (per_second, _) = number_behind(&text, "tps =")?;
    let (mean_ms, _) = number_behind(&text, "latency average =")?;
    Ok(Answers {
        requests,
        per_second,
        p50_us: mean_ms * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_with_its_unit() {
        let text = "    Latency   172.70us  170.88us   4.92ms   99.50%\n  Latency Distribution\n     50%  1.25ms\n     75%  2.00ms\nRequests/sec:  12345.67\n";
        assert_eq!(
            number_behind(text, " 50%").unwrap(),
            (1.25, "ms".to_owned())
        );
        assert_eq!(
            number_behind(text, "Requests/sec:").unwrap(),
            (12345.67, String::new())
        );
        assert!(number_behind(text, "99%").is_err());
    }
}
