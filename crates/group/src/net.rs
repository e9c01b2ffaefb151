//! The network that replicas reach each other by: tokio's. In this crate's own tests it is turmoil's, which a seed makes, and which can
//! hold messages back, lose them, and crash hosts.

#[cfg(not(test))]
pub use tokio::net::{TcpListener, TcpStream};
#[cfg(test)]
pub use turmoil::net::{TcpListener, TcpStream};

/// A socket that somebody has bound before.
#[cfg(not(test))]
pub(crate) fn taken(listener: std::net::TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// There are no sockets in a simulation.
#[cfg(test)]
pub(crate) fn taken(_: std::net::TcpListener) -> std::io::Result<TcpListener> {
    Err(std::io::ErrorKind::Unsupported.into())
}
