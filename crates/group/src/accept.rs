//! Connections that other replicas make: each says what it is for and shows the secret, and both are looked at here.

use std::io;
use std::time::Duration;

use steadfast_crosscheck::Node;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::links::{Heard, Links};
use crate::net::{TcpListener, TcpStream};
use crate::sequencer::raft::{self, Raft};
use crate::tls;
use crate::who::Met;
use crate::wire::{self, Hello};

/// Whoever has not said by then what it wants is no replica.
const HELLO: Duration = Duration::from_secs(5);

impl Links {
    /// Takes connections of other replicas to `me` for ever. Without an engine nobody orders over them.
    pub async fn accept<E: From<Heard> + Send + 'static>(
        self,
        listener: TcpListener,
        me: Node,
        raft: Option<Raft>,
        events: mpsc::UnboundedSender<E>,
    ) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let (links, raft, events) = (self.clone(), raft.clone(), events.clone());
            tokio::spawn(async move {
                let _ = links.hear(stream, me, raft, events).await;
            });
        }
    }

    async fn hear<E: From<Heard>>(
        &self,
        stream: TcpStream,
        me: Node,
        raft: Option<Raft>,
        events: mpsc::UnboundedSender<E>,
    ) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let stream = match &self.tls {
            Some(tls) => tls.accept_peer(stream).await?,
            None => tls::Stream::Plain(stream),
        };
        let mut stream = BufReader::with_capacity(1 << 16, stream);
        let preamble = wire::read_preamble(&mut stream, self.epoch, self.mixed);
        let epoch = match timeout(HELLO, preamble).await? {
            Ok(epoch) => epoch,
            Err(why) => {
                // So that the other side can say what it met.
                let _ = stream.write_all(&wire::preamble(self.epoch)).await;
                let _ = stream.flush().await;
                return Err(why);
            }
        };
        match timeout(HELLO, wire::read_hello(&mut stream)).await?? {
            Hello::Meet { secret, who } => {
                let met = if secret == self.secret {
                    let (reply, answer) = oneshot::channel();
                    let _ = events.send(Heard::Meet(who, reply).into());
                    answer.await.map_err(io::Error::other)?
                } else {
                    Met::Refused(
                        "requirement: the same --secret-file in all replicas; found: another secret"
                            .to_owned(),
                    )
                };
                let answer = [&wire::preamble(self.epoch)[..], &wire::frame(&met)?].concat();
                stream.write_all(&answer).await?;
                stream.flush().await
            }
            Hello::Order { secret, .. } | Hello::Vote { secret, .. } if secret != self.secret => {
                Err(io::Error::other("not of this group"))
            }
            Hello::Order { to, .. } | Hello::Vote { to, .. } if to != me.0 => {
                Err(io::Error::other("meant for a process that has gone"))
            }
            Hello::Order { .. } => match raft {
                Some(raft) => raft::answer(&raft, stream).await,
                None => Err(io::Error::other("this service orders by itself")),
            },
            Hello::Vote { from, .. } => {
                let from = Node(from);
                let _ = events.send(Heard::Epoch(from, epoch).into());
                let _ = events.send(Heard::Alive(from, true).into());
                loop {
                    match wire::read_or_end(&mut stream).await {
                        Ok(post) => {
                            let _ = events.send(Heard::Post(from, post).into());
                        }
                        Err(why) => {
                            let _ = events.send(Heard::Alive(from, false).into());
                            return Err(why);
                        }
                    }
                }
            }
        }
    }
}
