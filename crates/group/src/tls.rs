//! TLS, for connections between replicas and those of clients: rustls with ring, certificates from files.
//!
//! Between replicas both sides show a certificate of the group's authority; who makes a connection also wants the host of `--peers` in it.
//! What a process shows itself is checked by the same rules before it starts, so that an expired certificate is no surprise later.
//!
//! Not covered: revocation, and certificates that change while a process runs. A connection that is open outlives its certificate.

use std::io;
use std::net::TcpStream as StdStream;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned, version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::net::TcpStream;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Where certificates lie, each in PEM.
#[derive(Debug, Clone)]
pub struct Files {
    /// The own certificate, then those between it and the authority.
    pub certificate: PathBuf,
    /// The key of the own certificate.
    pub key: PathBuf,
    /// Whoever signed the certificates of all.
    pub authority: PathBuf,
}

/// What a process shows, and whom it believes.
#[derive(Clone)]
pub struct Tls {
    peers_in: TlsAcceptor,
    peers_out: TlsConnector,
    clients: TlsAcceptor,
    clients_known: TlsAcceptor,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn fix(flag: &str) -> String {
    format!("fix:   {flag}, a file in PEM")
}

fn certificates(file: &Path, flag: &str) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let at = file.display();
    let found: Vec<_> = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .map_err(|why| {
            anyhow!(
                "{flag} {at}: requirement: certificates; found: {why}\n  {}",
                fix(flag)
            )
        })?;
    if found.is_empty() {
        bail!(
            "{flag} {at}: requirement: a certificate; found: none\n  {}",
            fix(flag)
        );
    }
    Ok(found)
}

fn authority(file: &Path) -> anyhow::Result<Arc<RootCertStore>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, "--tls-ca")? {
        roots.add(certificate).with_context(|| {
            format!(
                "--tls-ca {}: requirement: a certificate of an authority; found: another one",
                file.display()
            )
        })?;
    }
    Ok(Arc::new(roots))
}

fn key(file: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    use std::os::unix::fs::PermissionsExt as _;
    let at = file.display();
    let key = PrivateKeyDer::from_pem_file(file).map_err(|why| {
        anyhow!(
            "--tls-key {at}: requirement: a private key; found: {why}\n  {}",
            fix("--tls-key")
        )
    })?;
    let mode = file
        .metadata()
        .with_context(|| at.to_string())?
        .permissions()
        .mode();
    if mode & 0o027 != 0 {
        bail!(
            "--tls-key {at}: requirement: closed to other users; found: mode {:o}\n  fix:   chmod 600 {at}",
            mode & 0o777
        );
    }
    Ok(key)
}

/// The host of an address, as a certificate names it.
fn host_of(at: &str) -> io::Result<ServerName<'static>> {
    let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    ServerName::try_from(host.to_owned()).map_err(io::Error::other)
}

/// Whether others will take the own certificate: now, from this authority, for this host.
fn check(
    chain: &[CertificateDer<'static>],
    roots: &Arc<RootCertStore>,
    files: &Files,
    own: &str,
) -> anyhow::Result<()> {
    let at = files.certificate.display();
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider())
        .build()
        .with_context(|| format!("--tls-ca {}", files.authority.display()))?;
    let host = host_of(own).with_context(|| format!("the host of {own}"))?;
    let (first, rest) = chain.split_first().context("no certificate")?;
    verifier
        .verify_server_cert(first, rest, &host, &[], UnixTime::now())
        .map_err(|why| {
            anyhow!(
                "--tls-cert {at}: requirement: a certificate that is valid now, for the host of {own}, from an authority of --tls-ca; found: {}\n  fix:   a new one, signed by that authority, with the host as subject alternative name",
                told(&why)
            )
        })?;
    Ok(())
}

/// An error of a handshake, in a few words.
fn told(why: &rustls::Error) -> String {
    use rustls::CertificateError as Wrong;
    match why {
        rustls::Error::InvalidCertificate(wrong) => match wrong {
            Wrong::Expired | Wrong::ExpiredContext { .. } => "one that has expired".to_owned(),
            Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
                "one that is not valid yet".to_owned()
            }
            Wrong::UnknownIssuer => "one of another authority".to_owned(),
            Wrong::BadSignature => "one of another authority of that name, or damaged".to_owned(),
            Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => {
                "one for another host".to_owned()
            }
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// What a handshake has failed of, as a message for people; its kind stays.
fn explained(why: io::Error) -> io::Error {
    let text = why
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
        .map(|inner| match inner {
            rustls::Error::InvalidCertificate(_) => format!(
                "TLS: requirement: a certificate that is valid now, for its host, from an authority of --tls-ca; found: {}",
                told(inner)
            ),
            other => format!("TLS: {other}"),
        });
    text.map_or(why, |text| io::Error::new(io::ErrorKind::InvalidData, text))
}

impl Tls {
    /// Reads and checks everything. `own` is the address by which other replicas reach this one.
    ///
    /// # Errors
    /// When a file cannot be read, the certificate is not valid now or not for `own`, or the key is that of another certificate.
    pub fn load(files: &Files, own: &str) -> anyhow::Result<Self> {
        let chain = certificates(&files.certificate, "--tls-cert")?;
        let roots = authority(&files.authority)?;
        let own_key = key(&files.key)?;
        check(&chain, &roots, files, own)?;
        let unfit = || {
            format!(
                "--tls-key {}: requirement: the key of --tls-cert {}; found: another one",
                files.key.display(),
                files.certificate.display()
            )
        };
        let versions = [&version::TLS13, &version::TLS12];
        let server = |known: bool| -> anyhow::Result<TlsAcceptor> {
            let builder = ServerConfig::builder_with_provider(provider())
                .with_protocol_versions(&versions)?;
            let builder = if known {
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
                        .build()?;
                builder.with_client_cert_verifier(verifier)
            } else {
                builder.with_no_client_auth()
            };
            let config = builder
                .with_single_cert(chain.clone(), own_key.clone_key())
                .with_context(unfit)?;
            Ok(TlsAcceptor::from(Arc::new(config)))
        };
        let client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain.clone(), own_key.clone_key())
            .with_context(unfit)?;
        let known = server(true)?;
        Ok(Self {
            peers_in: known.clone(),
            peers_out: TlsConnector::from(Arc::new(client)),
            clients: server(false)?,
            clients_known: known,
        })
    }

    pub(crate) async fn connect_peer(&self, at: &str, stream: TcpStream) -> io::Result<Stream> {
        let host = host_of(at)?;
        let shake = self.peers_out.connect(host, stream);
        let stream = within(shake).await.map_err(explained)?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    pub(crate) async fn accept_peer(&self, stream: TcpStream) -> io::Result<Stream> {
        let stream = within(self.peers_in.accept(stream)).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }

    /// A client's connection. Where it has to be `known` it shows a certificate of the authority.
    ///
    /// # Errors
    /// When the client says no TLS in time, or shows no certificate of the authority where it has to.
    pub async fn accept_client(&self, stream: TcpStream, known: bool) -> io::Result<Stream> {
        let acceptor = if known {
            &self.clients_known
        } else {
            &self.clients
        };
        let stream = within(acceptor.accept(stream)).await?;
        Ok(Stream::Tls(Box::new(stream.into())))
    }
}

async fn within<T>(shake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(HANDSHAKE, shake)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// A connection of a command that asks a replica: it believes this authority, and shows a certificate if it has one.
///
/// # Errors
/// When a file cannot be read, the address names no host, the other side is not believed, or the connection ends.
pub fn ask(
    at: &str,
    stream: StdStream,
    authority_file: &Path,
    own: Option<(&Path, &Path)>,
) -> anyhow::Result<StreamOwned<ClientConnection, StdStream>> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])?
        .with_root_certificates(authority(authority_file)?);
    let config = match own {
        Some((certificate, own_key)) => builder
            .with_client_auth_cert(certificates(certificate, "--tls-cert")?, key(own_key)?)
            .context("--tls-cert and --tls-key")?,
        None => builder.with_no_client_auth(),
    };
    let connection = ClientConnection::new(Arc::new(config), host_of(at)?)?;
    let mut stream = StreamOwned::new(connection, stream);
    while stream.conn.is_handshaking() {
        stream
            .conn
            .complete_io(&mut stream.sock)
            .map_err(explained)
            .with_context(|| format!("{at} was asked by TLS"))?;
    }
    Ok(stream)
}

/// A connection, in the clear or not.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<tokio_rustls::TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
