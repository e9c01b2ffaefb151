//! A name server that knows all names by rules, in a thread, until dropped. It counts what it is asked, so that an answer from a cache can be
//! told from one that was forwarded.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::dns::{address_of, host};
use crate::dns::{self, NXDOMAIN, Record, SERVFAIL, kind};

/// The upstream's rules.
pub fn knows(name: &str, kind: u16) -> (u8, Vec<Record>) {
    let first = name.split('.').next().unwrap_or("");
    let number: u32 = first
        .get(1..)
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0);
    let record = |name: &str, kind, data: String| Record {
        name: name.to_owned(),
        kind,
        ttl: 3600,
        data,
    };
    let of = |name: &str, kind| match kind {
        kind::A => vec![record(
            name,
            kind,
            format!("198.51.{}.{}", 100 + number / 250, 1 + number % 250),
        )],
        kind::AAAA => vec![record(name, kind, format!("2001:db8:1::{:x}", number + 1))],
        kind::TXT => vec![record(name, kind, format!("text of {name}"))],
        _ => Vec::new(),
    };
    if let Some(index) = load_host(name) {
        let data = address_of(index).to_string();
        return (0, vec![record(name, kind::A, data)]);
    }
    match first.as_bytes().first() {
        Some(b'n') => (0, of(name, kind)),
        Some(b'c') => {
            // Not one that is asked for by itself: it comes into the cache with this reply.
            let target = format!("n{}.up.example", 1000 + number);
            let mut records = vec![record(name, kind::CNAME, target.clone())];
            records.extend(knows(&target, kind).1);
            (0, records)
        }
        Some(b'f') => (SERVFAIL, Vec::new()),
        _ => (NXDOMAIN, Vec::new()),
    }
}

/// The upstream, until dropped.
#[derive(Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    asked: Arc<Mutex<BTreeMap<(String, u16), u64>>>,
    total: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts answering on a port of the loopback.
    ///
    /// # Errors
    /// When no socket can be had.
    pub fn start() -> Result<Self> {
        Self::start_at(0)
    }

    /// The same on this port; 0: any.
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start_at(port: u16) -> Result<Self> {
        let socket = UdpSocket::bind(("127.0.0.1", port))
            .with_context(|| format!("UDP port {port} of the loopback cannot be had"))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut upstream = Upstream {
            address: socket.local_addr()?,
            asked: Arc::default(),
            total: Arc::default(),
            stop: Arc::default(),
            thread: None,
        };
        let (asked, total, stop) = (
            Arc::clone(&upstream.asked),
            Arc::clone(&upstream.total),
            Arc::clone(&upstream.stop),
        );
        upstream.thread = Some(std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !stop.load(Ordering::Relaxed) {
                let Ok((got, peer)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let Some(query) = dns::decode(&buffer[..got]) else {
                    continue;
                };
                let Some(question) = query.questions.first().cloned() else {
                    continue;
                };
                let (rcode, records) = knows(&question.0, question.1);
                let soa = (rcode == NXDOMAIN).then_some("up.example");
                total.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut asked) = asked.lock() {
                    *asked.entry(question).or_default() += 1;
                }
                if let Some(reply) = dns::reply(&buffer[..got], rcode, &records, soa) {
                    let _ = socket.send_to(&reply, peer);
                }
            }
        }));
        Ok(upstream)
    }

    /// How often a question has arrived.
    #[must_use]
    pub fn asked(&self, name: &str, kind: u16) -> u64 {
        let Ok(asked) = self.asked.lock() else {
            return 0;
        };
        asked.get(&(name.to_owned(), kind)).copied().unwrap_or(0)
    }

    /// How many questions have arrived.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The index of a name of the load, which a server without its hosts file asks for.
fn load_host(name: &str) -> Option<usize> {
    let index = name.strip_prefix("host-")?.get(..5)?.parse().ok()?;
    (name == host(index)).then_some(index)
}
