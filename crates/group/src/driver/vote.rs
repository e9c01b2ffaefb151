//! What the vote asks for is done here, and what it found is told.

use std::time::Duration;

use steadfast_crosscheck::{Action, Digest, Index, Node, refresh};
use tokio::time::Instant;

use super::log::Body;
use super::turn::{Driver, refuse};
use super::{Machine, News, Reply};
use crate::sequencer::Sequencer;
use crate::wire::Post;

impl<M: Machine, S: Sequencer> Driver<M, S> {
    /// Does what the vote asks for.
    pub(super) fn act(&mut self) {
        loop {
            let actions = self.core.actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                self.action(action);
            }
        }
    }

    fn action(&mut self, action: Action) {
        match action {
            Action::Send(to, message) => {
                self.peers.send(to, &Post::Vote(message));
            }
            Action::Release(index, digests) => {
                self.release(
                    index,
                    digests.into_iter().map(|digest| (None, digest)).collect(),
                );
            }
            Action::ReleaseWith(index, replies) => self.release(index, replies),
            Action::Undecided(index) => {
                self.counts.refused += 1;
                if let Some(out) = self.out.get_mut(&index) {
                    refuse(std::mem::take(&mut out.callers), "the replicas disagree");
                }
            }
            // The service keeps nothing of what its objects were before.
            Action::Rerun(index) => self.core.reran(index, None),
            Action::Forget(index) => {
                if let Some(out) = self.out.remove(&index) {
                    refuse(out.callers, "the vote took too long");
                }
            }
            Action::Order(recover) => self.submit(Body::Recover(recover), Vec::new()),
            Action::Mismatch(_) => self.counts.mismatches += 1,
            Action::Blame {
                index,
                nodes,
                objects,
            } => {
                let replicas = nodes.iter().map(|node| self.slot_of(*node)).collect();
                let objects = objects.iter().map(ToString::to_string).collect();
                self.whole.machine.told(&News::Wrong {
                    entry: index.0,
                    replicas,
                    objects,
                });
            }
            Action::Repaired {
                index,
                object,
                was,
                is,
                passive,
                source,
            } => {
                self.counts.repairs += 1;
                let (byte, bits) = difference(was.as_deref(), is.as_deref());
                let took = self
                    .recovering
                    .get(&index)
                    .map_or(Duration::ZERO, Instant::elapsed);
                let news = News::Repaired {
                    replica: self.slot,
                    entry: index.0,
                    object: object.to_string(),
                    at_rest: passive,
                    byte,
                    bits,
                    source: self.slot_of(source),
                    took_us: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
                };
                self.whole.machine.told(&news);
            }
            Action::Refresh(object, digest) => {
                refresh(&mut self.whole, object, digest);
            }
            Action::Resume(index) => {
                self.held.remove(&index);
                self.recovering.remove(&index);
            }
            Action::Stuck(index, objects) => {
                let objects = objects.iter().map(ToString::to_string).collect();
                self.whole.machine.told(&News::Stuck {
                    entry: index.0,
                    objects,
                });
            }
            // What this process holds cannot be trusted: a fresh one takes its place.
            Action::Replace(node, why) if node == self.me => self.ended = Some(why.to_owned()),
            Action::Replace(..) => {}
        }
    }

    fn slot_of(&self, node: Node) -> u64 {
        self.members
            .get(&node)
            .map_or(u64::MAX, |member| member.slot)
    }

    /// Lets replies go, if they are still what was voted for.
    fn release(&mut self, index: Index, voted: Vec<(Option<Vec<u8>>, Digest)>) {
        let Some(out) = self.out.get_mut(&index) else {
            return;
        };
        let callers = std::mem::take(&mut out.callers);
        for (k, (caller, (right, voted))) in callers.into_iter().zip(voted).enumerate() {
            let bytes = right
                .or_else(|| out.replies.get(k).cloned())
                .unwrap_or_default();
            // Between its vote and its caller a reply is only bytes in memory.
            let reply = if Digest::of(&bytes) == voted {
                Ok(Reply { bytes, voted })
            } else {
                self.counts.refused += 1;
                Err("a reply was corrupted after its vote")
            };
            let _ = caller.send(reply);
        }
    }
}

/// The first byte in which two objects differ, and how many bits do; no byte where their lengths differ.
fn difference(was: Option<&[u8]>, is: Option<&[u8]>) -> (Option<usize>, u32) {
    let (Some(was), Some(is)) = (was, is) else {
        return (None, 0);
    };
    if was.len() != is.len() {
        return (None, 0);
    }
    let byte = was.iter().zip(is).position(|(one, other)| one != other);
    let bits = was
        .iter()
        .zip(is)
        .map(|(one, other)| (one ^ other).count_ones())
        .sum();
    (byte, bits)
}
