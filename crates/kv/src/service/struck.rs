//! Strikes at what passes: one waits for the next message or queued thing of its kind, flips one bit of it, and is gone.

use std::collections::BTreeMap;

use steadfast_crosscheck::Message;
use steadfast_fault::{Passing, Place, Stored};

use super::{Body, Service, Stage};
use crate::strike;

/// Strikes that wait, and the bit that each flips.
#[derive(Debug, Default)]
pub(super) struct Struck(BTreeMap<Passing, usize>);

impl Struck {
    /// Strikes these bytes if they are to be.
    pub(super) fn bytes(&mut self, passing: Passing, bytes: &mut [u8]) {
        if !bytes.is_empty()
            && let Some(bit) = self.0.remove(&passing)
        {
            let at = bit % (bytes.len() * 8);
            bytes[at / 8] ^= 1 << (at % 8);
        }
    }

    /// The bit that is to flip in the next of this kind.
    pub(super) fn bit(&mut self, passing: Passing) -> Option<usize> {
        self.0.remove(&passing)
    }

    /// The first of these that has bytes.
    pub(super) fn first(&mut self, passing: Passing, replies: &mut [Vec<u8>]) {
        if let Some(reply) = replies.iter_mut().find(|reply| !reply.is_empty()) {
            self.bytes(passing, reply);
        }
    }

    /// What another replica is told, before the check of its frame is made.
    pub(super) fn message(&mut self, message: &mut Message) {
        match message {
            Message::Check { runs, .. } => {
                let last = runs.last_mut().and_then(|run| run.digests.last_mut());
                if let Some(digest) = last
                    && let Some(bit) = self.0.remove(&Passing::Check)
                {
                    *digest ^= 1 << bit;
                }
            }
            Message::Repair { objects, .. } => {
                let packed = objects.iter_mut().find_map(|(_, packed)| packed.as_mut());
                if let Some(packed) = packed {
                    self.bytes(Passing::Repair, packed);
                }
            }
            _ => {}
        }
    }
}

/// An entry on its way into the log.
pub(super) const fn on_the_way(body: &Body) -> Option<Passing> {
    match body {
        Body::Requests(_) => Some(Passing::Entry),
        Body::Recover(_) => Some(Passing::Recover),
        Body::Scrub(..) | Body::Returned => None,
    }
}

impl Service {
    /// Does what a strike says, at once or to the next of its kind.
    pub(super) fn strike(&mut self, line: &str) -> Result<(), String> {
        if !self.allow_strikes {
            return Err("strikes are not allowed: requirement --allow-strikes, found a replica without it; fix: start it with --allow-strikes".to_owned());
        }
        let fault =
            strike::read(line, self.size).map_err(|why| format!("{why}; fix: {}", why.fix))?;
        let replica = u64::from(fault.replica().0);
        if replica != self.slot {
            return Err(format!(
                "this is replica {}, the strike is for replica {replica}",
                self.slot
            ));
        }
        match fault.place() {
            Place::Next { passing, .. }
                if strike::needs_votes(*passing) && self.stage < Stage::Rdgx =>
            {
                Err(format!(
                    "this strike needs replicas that vote: requirement --stage RDGX, found {}; fix: start the group with it",
                    self.stage.word()
                ))
            }
            Place::Next { passing, .. } if self.struck.0.contains_key(passing) => {
                Err("one of these strikes waits already".to_owned())
            }
            Place::Next { passing, bit } => {
                self.struck.0.insert(*passing, *bit as usize);
                Ok(())
            }
            Place::Head { byte, bit } => {
                self.store.strike_head(*byte as usize, *bit);
                Ok(())
            }
            Place::Stored {
                object,
                field,
                byte,
                bit,
            } => {
                let key = match object {
                    Stored::Item(key) => key.clone().into_bytes(),
                    Stored::Client(name) => crate::once::key(name),
                };
                let field = field.word().replace('-', " ");
                self.store
                    .strike(&key, &field, *byte as usize, *bit)
                    .map(drop)
            }
        }
    }
}
