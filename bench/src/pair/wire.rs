//! Wire: a relay between two sockets of this machine that passes so many bytes a second each way, as a cable does.
//!
//! Not modelled: the delay of a cable, which is that of the relay's two threads, and its frames.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;

/// A sleep of the kernel's is no shorter than its timer slack, 50 µs: less is owed until it adds up.
const SHORTEST: Duration = Duration::from_micros(60);

/// Each piece is passed on when the last of its bits would have come.
fn pass(mut from: TcpStream, mut to: TcpStream, rate: u64) {
    let mut bytes = vec![0; 64 << 10];
    let mut free = Instant::now();
    while let Ok(n) = from.read(&mut bytes) {
        if n == 0 {
            break;
        }
        let taken = Duration::from_nanos(1_000_000_000 * n as u64 / rate);
        free = free.max(Instant::now()) + taken;
        let due = free.saturating_duration_since(Instant::now());
        if due > SHORTEST {
            std::thread::sleep(due);
        }
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn carry(a: TcpStream, to: &str, rate: u64) -> std::io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let b = loop {
        match TcpStream::connect(to) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    a.set_nodelay(true)?;
    b.set_nodelay(true)?;
    let (from_a, to_b) = (a.try_clone()?, b.try_clone()?);
    std::thread::spawn(move || pass(from_a, to_b, rate));
    std::thread::spawn(move || pass(b, a, rate));
    Ok(())
}

/// Where to connect to, to come to `to` at so many bytes a second.
pub(super) fn wire(to: String, rate: u64) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    // Whoever joins tries again: each attempt is a connection of its own.
    std::thread::spawn(move || {
        while let Ok((a, _)) = listener.accept() {
            if carry(a, &to, rate).is_err() {
                break;
            }
        }
    });
    Ok(address)
}
