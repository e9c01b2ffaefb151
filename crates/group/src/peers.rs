//! Connections for messages of the vote: one to every other replica, made again whenever it breaks.
//!
//! Not covered: what a broken connection has swallowed. The vote tells it again.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use steadfast_crosscheck::{Node, To};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::links::Links;
use crate::who::Member;
use crate::wire::{self, Hello, Post, SILENCE};

/// Silence after which a word is said just to be heard.
const ALIVE: Duration = Duration::from_millis(300);
/// Between attempts to reach a replica.
const RETRY: Duration = Duration::from_millis(50);
/// Messages for a replica that cannot be reached; beyond it the oldest are dropped.
const WAITING_MAX: usize = 100_000;

/// Senders to the other members.
#[derive(Debug)]
pub struct Peers {
    me: Node,
    links: Links,
    lines: HashMap<Node, mpsc::UnboundedSender<Vec<u8>>>,
}

impl Peers {
    /// To nobody yet.
    #[must_use]
    pub fn new(me: Node, links: Links) -> Self {
        Self {
            me,
            links,
            lines: HashMap::new(),
        }
    }

    /// Keeps connections to these, ends others.
    pub fn set(&mut self, members: &BTreeMap<Node, Member>) {
        self.lines.retain(|node, _| members.contains_key(node));
        for (node, member) in members {
            if *node != self.me && !self.lines.contains_key(node) {
                let (line, messages) = mpsc::unbounded_channel();
                tokio::spawn(keep(
                    self.me,
                    self.links.clone(),
                    *node,
                    member.peer.clone(),
                    messages,
                ));
                self.lines.insert(*node, line);
            }
        }
    }

    /// The bytes that each receiver gets.
    pub fn send(&self, to: To, post: &Post) -> usize {
        let Ok(bytes) = wire::frame(post) else {
            return 0;
        };
        let length = bytes.len();
        match to {
            To::All => {
                for line in self.lines.values() {
                    let _ = line.send(bytes.clone());
                }
            }
            To::One(node) => {
                if let Some(line) = self.lines.get(&node) {
                    let _ = line.send(bytes);
                }
            }
        }
        length
    }
}

/// One connection, for as long as somebody may send.
async fn keep(
    me: Node,
    links: Links,
    to: Node,
    peer: String,
    mut messages: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let hello = Hello::Vote {
        from: me.0,
        to: to.0,
        secret: links.secret,
    };
    let Ok(alive) = wire::frame(&Post::Alive) else {
        return;
    };
    let mut waiting = Vec::new();
    loop {
        // One that is stopped still has its connections opened by the kernel, and reads nothing.
        while messages.len() > WAITING_MAX {
            if messages.recv().await.is_none() {
                return;
            }
        }
        let Ok(mut stream) = links.open(&peer, &hello).await else {
            tokio::time::sleep(RETRY).await;
            if messages.is_closed() && messages.is_empty() {
                return;
            }
            continue;
        };
        loop {
            waiting.clear();
            match timeout(ALIVE, messages.recv()).await {
                Ok(None) => return,
                Ok(Some(bytes)) => waiting.extend_from_slice(&bytes),
                Err(_) => waiting.extend_from_slice(&alive),
            }
            while waiting.len() < 1 << 16 {
                let Ok(bytes) = messages.try_recv() else {
                    break;
                };
                waiting.extend_from_slice(&bytes);
            }
            let sent = async {
                stream.write_all(&waiting).await?;
                stream.flush().await
            };
            if !matches!(timeout(SILENCE, sent).await, Ok(Ok(()))) {
                break;
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
