//! Asking a replica, as the commands do that talk to one.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, bail};

use crate::cli::At;

/// One of the service's own commands, over a client's connection.
pub(crate) fn ask(at: &At, line: &str) -> anyhow::Result<String> {
    // A comparison of everything takes its time.
    ask_within(at, line, Duration::from_secs(30))
}

/// The same, of one who may not answer at all.
pub(crate) fn ask_within(to: &At, line: &str, limit: Duration) -> anyhow::Result<String> {
    let at = &to.at;
    let addresses = at
        .to_socket_addrs()
        .with_context(|| format!("the host of {at} has no address"))?;
    let connect = |address| TcpStream::connect_timeout(&address, Duration::from_secs(2));
    // The first of a host's addresses that answers, or what the last one says.
    let mut stream = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in addresses {
        stream = connect(address);
        if stream.is_ok() {
            break;
        }
    }
    let stream = stream.with_context(|| {
        format!("no replica answers at {at}\n  fix:   start one: steadfast kv --local 3")
    })?;
    stream.set_read_timeout(Some(limit))?;
    let answered = |read: io::Result<usize>| {
        read.map_err(|why| match why.kind() {
            io::ErrorKind::WouldBlock => anyhow::anyhow!("{at} took the connection and says nothing for {} s\n  fix:   it stands still, or its machine does: steadfast kv status at another replica", limit.as_secs()),
            _ => why.into(),
        })
    };
    let line = format!("{line}\r\n");
    let mut answer = Vec::new();
    if let Some(authority) = &to.tls_ca {
        let own = to.tls_cert.as_deref().zip(to.tls_key.as_deref());
        let mut stream = steadfast_group::tls::ask(at, stream, authority, own)?;
        stream.write_all(line.as_bytes())?;
        answered(BufReader::new(stream).read_until(b'\n', &mut answer))?;
    } else {
        (&stream).write_all(line.as_bytes())?;
        answered(BufReader::new(stream).read_until(b'\n', &mut answer))?;
        // A replica that speaks TLS ends the connection, with an alert (RFC 8446, 5.1) or without.
        if answer.first().is_none_or(|first| *first == 0x15) {
            bail!("{at} ended the connection\n  fix:   --tls-ca FILE, if it speaks TLS");
        }
    }
    Ok(String::from_utf8_lossy(&answer).trim_end().to_owned())
}

/// What a replica says of itself and its group.
pub(crate) fn status_of(at: &At) -> anyhow::Result<serde_json::Value> {
    let answer = ask(at, "sf status")?;
    serde_json::from_str(&answer)
        .with_context(|| format!("{} is no replica of steadfast kv; it says: {answer}", at.at))
}

/// An answer of the service, as a person reads it.
pub(crate) fn plain(answer: &str) -> String {
    answer
        .trim_start_matches("ERROR ")
        .replace("; fix: ", "\n  fix:   ")
}
