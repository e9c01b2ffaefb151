//! Strikes at what passes: one waits for the next message or queued thing of its kind, flips one bit of it, and is gone.

use std::collections::BTreeMap;

use steadfast_crosscheck::Message;

use super::{Body, Service, Stage};
use crate::strike::{Kind, Strike, Target};

/// Strikes that wait, and the bit that each flips.
#[derive(Debug, Default)]
pub(super) struct Struck(BTreeMap<Kind, usize>);

impl Struck {
    /// Strikes these bytes if they are to be.
    pub(super) fn bytes(&mut self, kind: Kind, bytes: &mut [u8]) {
        if !bytes.is_empty()
            && let Some(bit) = self.0.remove(&kind)
        {
            let at = bit % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
        }
    }

    /// The bit that is to flip in the next of this kind.
    pub(super) fn bit(&mut self, kind: Kind) -> Option<usize> {
        self.0.remove(&kind)
    }

    /// The first of these that has bytes.
    pub(super) fn first(&mut self, kind: Kind, replies: &mut [Vec<u8>]) {
        if let Some(reply) = replies.iter_mut().find(|reply| !reply.is_empty()) {
            self.bytes(kind, reply);
        }
    }

    /// What another replica is told, before the check of its frame is made.
    pub(super) fn message(&mut self, message: &mut Message) {
        match message {
            Message::Check { runs, .. } => {
                let last = runs.last_mut().and_then(|run| run.digests.last_mut());
                if let Some(digest) = last
                    && let Some(bit) = self.0.remove(&Kind::Check)
                {
                    *digest ^= 1 << bit;
                }
            }
            Message::Repair { objects, .. } => {
                let packed = objects.iter_mut().find_map(|(_, packed)| packed.as_mut());
                if let Some(packed) = packed {
                    self.bytes(Kind::Repair, packed);
                }
            }
            _ => {}
        }
    }
}

impl Kind {
    /// An entry on its way into the log.
    pub(super) const fn of(body: &Body) -> Option<Self> {
        match body {
            Body::Requests(_) => Some(Self::Entry),
            Body::Recover(_) => Some(Self::Recover),
            Body::Scrub(..) | Body::Returned => None,
        }
    }
}

impl Service {
    /// Does what a strike says, at once or to the next of its kind.
    pub(super) fn strike(&mut self, line: &str) -> Result<(), String> {
        if !self.allow_strikes {
            return Err("strikes are not allowed: requirement --allow-strikes, found a replica without it; fix: start it with --allow-strikes".to_owned());
        }
        let strike = Strike::parse(line, self.size)?;
        if strike.replica != self.slot {
            return Err(format!(
                "this is replica {}, the strike is for replica {}",
                self.slot, strike.replica
            ));
        }
        match strike.target {
            Target::Next { kind, .. } if kind.needs_votes() && self.stage < Stage::Rdgx => {
                Err(format!(
                    "this strike needs replicas that vote: requirement --stage RDGX, found {}; fix: start the group with it",
                    self.stage.word()
                ))
            }
            Target::Next { kind, .. } if self.struck.0.contains_key(&kind) => {
                Err("one of these strikes waits already".to_owned())
            }
            Target::Next { kind, bit } => {
                self.struck.0.insert(kind, bit);
                Ok(())
            }
            Target::Head { byte, bit } => {
                self.store.strike_head(byte, bit);
                Ok(())
            }
            Target::Item {
                key,
                field,
                byte,
                bit,
            } => self
                .store
                .strike(key.as_bytes(), &field, byte, bit)
                .map(drop),
        }
    }
}
