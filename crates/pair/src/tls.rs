//! TLS: a connection between two sites, in the clear or encrypted, with a certificate on either side.
//!
//! ```text
//!   who connects                                      who listens
//!   checks chain and host of the other ◄── TLS 1.3 ──► checks chain of the other
//!                                      ◄── one byte ── has let it in
//! ```
//!
//! One thread writes and another one reads. The state of the connection is shared, and locked only while bytes pass through
//! it, never for a system call: who waits for the network holds nothing that the other direction needs.
//!
//! Invariants
//!  1. With certificates nothing is said in the clear, and nothing is believed before the other site has shown its own.
//!  2. Order of locks: sender, connection.
//!
//! Not covered: revocation; which certificate of the authority connects: it is the pair's alone.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore, ServerConfig};

use crate::cli::Side;
use crate::error::PairError;

/// Both have the other's packets by then, or it does not speak TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Plain bytes that pass at a time: some records (RFC 8446, section 5.1).
const PIECE: usize = 64 << 10;
const LET_IN: u8 = b'+';

/// What the command line has of certificates.
#[derive(Debug, Clone)]
pub(crate) enum Security {
    Clear,
    Certificates {
        connects: Arc<ClientConfig>,
        listens: Arc<ServerConfig>,
        /// The other site's name, for who connects.
        host: Option<String>,
    },
}

#[derive(Debug)]
pub(crate) struct Outgoing {
    stream: TcpStream,
    tls: Option<Arc<Mutex<Connection>>>,
}

#[derive(Debug)]
pub(crate) struct Incoming {
    stream: TcpStream,
    tls: Option<Arc<Mutex<Connection>>>,
    /// Encrypted bytes that have come, and how many of them have been used.
    raw: Vec<u8>,
    used: usize,
}

fn bad(
    what: impl Into<String>,
    source: impl std::error::Error + Send + Sync + 'static,
) -> PairError {
    PairError::Tls {
        what: what.into(),
        source: io::Error::other(source),
    }
}

fn authorities(ca: &Path) -> Result<RootCertStore, PairError> {
    let mut roots = RootCertStore::empty();
    for one in certificates(ca)? {
        roots
            .add(one)
            .map_err(|error| bad(format!("{} has no authority", ca.display()), error))?;
    }
    Ok(roots)
}

fn private_key(key: &Path) -> Result<PrivateKeyDer<'static>, PairError> {
    PrivateKeyDer::from_pem_file(key)
        .map_err(|error| bad(format!("{} has no private key", key.display()), error))
}

/// For a client of a server whose certificate is of `ca`; with a certificate and key of its own, or without.
pub(crate) fn client(ca: &Path, own: Option<(&Path, &Path)>) -> Result<ClientConfig, PairError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| bad("TLS 1.3 is not there", error))?
        .with_root_certificates(authorities(ca)?);
    let Some((cert, key)) = own else {
        return Ok(builder.with_no_client_auth());
    };
    builder
        .with_client_auth_cert(certificates(cert)?, private_key(key)?)
        .map_err(|error| {
            bad(
                format!("{} does not fit {}", key.display(), cert.display()),
                error,
            )
        })
}

impl Security {
    pub(crate) fn of(side: &Side) -> Result<Self, PairError> {
        let (Some(cert), Some(key), Some(ca)) = (&side.tls_cert, &side.tls_key, &side.tls_ca)
        else {
            return Ok(Self::Clear);
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(authorities(ca)?);
        let own = certificates(cert)?;
        let unfit = |error| {
            bad(
                format!("{} does not fit {}", key.display(), cert.display()),
                error,
            )
        };
        let old = |error| bad("TLS 1.3 is not there", error);
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .build()
                .map_err(|error| bad(format!("{} has no authority", ca.display()), error))?;
        let listens = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(old)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(own.clone(), private_key(key)?)
            .map_err(unfit)?;
        let connects = client(ca, Some((cert.as_path(), key.as_path())))?;
        let host = side.peer_host().map(str::to_owned);
        Ok(Self::Certificates {
            connects: Arc::new(connects),
            listens: Arc::new(listens),
            host,
        })
    }

    /// The two ends of the connection of the site that has connected.
    pub(crate) fn connected(&self, stream: TcpStream) -> Result<(Outgoing, Incoming), PairError> {
        let connection = match self {
            Self::Clear => None,
            Self::Certificates { connects, host, .. } => {
                let host = host.clone().unwrap_or_default();
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| bad(format!("{host} in --peer is no host"), error))?;
                let connection = ClientConnection::new(Arc::clone(connects), name)
                    .map_err(|error| bad("a connection cannot be made", error))?;
                Some(connection.into())
            }
        };
        set_up(stream, connection, true)
    }

    /// The same of the site that has listened.
    pub(crate) fn accepted(&self, stream: TcpStream) -> Result<(Outgoing, Incoming), PairError> {
        let connection = match self {
            Self::Clear => None,
            Self::Certificates { listens, .. } => {
                let connection = rustls::ServerConnection::new(Arc::clone(listens))
                    .map_err(|error| bad("a connection cannot be made", error))?;
                Some(connection.into())
            }
        };
        set_up(stream, connection, false)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let unreadable = |error| bad(format!("{} has no certificate", path.display()), error);
    let all = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(unreadable)?;
    if all.is_empty() {
        return Err(unreadable(rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(all)
}

fn set_up(
    stream: TcpStream,
    connection: Option<Connection>,
    connects: bool,
) -> Result<(Outgoing, Incoming), PairError> {
    stream.set_nodelay(true).map_err(PairError::Link)?;
    let tls = connection.map(|connection| Arc::new(Mutex::new(connection)));
    let mut outgoing = Outgoing {
        stream: stream.try_clone().map_err(PairError::Link)?,
        tls: tls.clone(),
    };
    let mut incoming = Incoming {
        stream,
        tls,
        raw: Vec::new(),
        used: 0,
    };
    if let Some(tls) = &outgoing.tls {
        let shaken = shake_hands(&Arc::clone(tls), &mut outgoing, &mut incoming, connects);
        shaken.map_err(|source| PairError::Tls {
            what: "the two sites do not agree on it".into(),
            source,
        })?;
    }
    Ok((outgoing, incoming))
}

/// Who connects hears of a refusal here, and not in the middle of what comes after (RFC 8446, section 4.4.2.4).
fn shake_hands(
    tls: &Mutex<Connection>,
    outgoing: &mut Outgoing,
    incoming: &mut Incoming,
    connects: bool,
) -> io::Result<()> {
    outgoing.stream.set_read_timeout(Some(HANDSHAKE))?;
    let mut stream = outgoing.stream.try_clone()?;
    {
        let mut connection = tls.lock().expect("no panic under it");
        connection.set_buffer_limit(None);
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
    }
    if connects {
        let mut let_in = [0];
        incoming.read_exact(&mut let_in)?;
        if let_in[0] != LET_IN {
            return Err(io::Error::other("this is not a steadfast pair"));
        }
    } else {
        outgoing.write_all(&[LET_IN])?;
    }
    outgoing.stream.set_read_timeout(None)
}

impl Outgoing {
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else {
            return self.stream.write_all(bytes);
        };
        for piece in bytes.chunks(PIECE) {
            let mut encrypted = Vec::with_capacity(piece.len() + 512);
            {
                let mut connection = tls.lock().expect("no panic under it");
                connection.writer().write_all(piece)?;
                while connection.wants_write() {
                    connection.write_tls(&mut encrypted)?;
                }
            }
            self.stream.write_all(&encrypted)?;
        }
        Ok(())
    }
}

/// A read that has begun keeps the limit that it began with (`SO_RCVTIMEO`): whoever has been given more time meanwhile is heard for as
/// long. The kernel counts in ticks.
fn read_in_time(stream: &mut TcpStream, to: &mut [u8]) -> io::Result<usize> {
    const TICKS: Duration = Duration::from_millis(20);
    let began = Instant::now();
    loop {
        let read = stream.read(to);
        let late = matches!(&read, Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut));
        let more = |limit| began.elapsed() + TICKS < limit;
        if !late || !stream.read_timeout()?.is_some_and(more) {
            return read;
        }
    }
}

impl Read for Incoming {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return read_in_time(&mut self.stream, to);
        };
        loop {
            {
                let mut connection = tls.lock().expect("no panic under it");
                match connection.reader().read(to) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    other => return other,
                }
                if self.used < self.raw.len() {
                    let mut rest = &self.raw[self.used..];
                    self.used += connection.read_tls(&mut rest)?;
                    connection
                        .process_new_packets()
                        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                    continue;
                }
            }
            self.raw.resize(PIECE, 0);
            self.used = 0;
            let n = read_in_time(&mut self.stream, &mut self.raw);
            self.raw.truncate(*n.as_ref().unwrap_or(&0));
            if n? == 0 {
                return Ok(0);
            }
        }
    }
}
