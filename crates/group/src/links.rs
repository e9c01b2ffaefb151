//! Connections between the processes of a group: who makes one says what it is for and shows the secret. `accept` takes them.
//!
//! Where certificates are given, all of it goes by TLS.
//!
//! Not covered: a group of which some replicas have TLS and others have not. They do not reach each other.

use std::io;

use steadfast_crosscheck::Node;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::sync::oneshot;

use crate::net::TcpStream;
use crate::tls::{self, Tls};
use crate::who::{Met, Who};
use crate::wire::{self, Hello, Post};

/// A connection to another process of the group.
pub type Stream = BufReader<tls::Stream>;

/// What a process makes connections with.
#[derive(Debug, Clone)]
pub struct Links {
    /// Known to the processes of one group: who has it is one of them.
    pub secret: u128,
    /// How digests are made.
    pub epoch: u16,
    /// Whether replicas whose digests are made in another way may belong to the group: while it is upgraded, one by one.
    pub mixed: bool,
    /// Certificates, if replicas speak TLS with each other.
    pub tls: Option<Tls>,
}

/// What another process has said.
#[derive(Debug)]
pub enum Heard {
    /// A connection of this replica has begun or ended.
    Alive(Node, bool),
    /// How that replica makes its digests.
    Epoch(Node, u16),
    /// A message that is not answered.
    Post(Node, Post),
    /// A process that belongs to no group asks about this one's.
    Meet(Who, oneshot::Sender<Met>),
}

impl Links {
    /// A connection for that.
    ///
    /// # Errors
    /// When nobody can be reached there, TLS is refused, or the connection ends.
    pub async fn open(&self, at: &str, hello: &Hello) -> io::Result<Stream> {
        let stream = TcpStream::connect(at).await?;
        stream.set_nodelay(true)?;
        let stream = match &self.tls {
            Some(tls) => tls.connect_peer(at, stream).await?,
            None => tls::Stream::Plain(stream),
        };
        let mut stream = BufReader::with_capacity(1 << 16, stream);
        let hello = [&wire::preamble(self.epoch)[..], &wire::frame(hello)?].concat();
        stream.write_all(&hello).await?;
        stream.flush().await?;
        Ok(stream)
    }
}
