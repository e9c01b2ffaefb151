//! What the driver itself keeps of the log, as objects that are voted on like those of the service: where the log is, and which
//! submissions of each replica have been executed.

use serde::{Deserialize, Serialize};
use steadfast_crosscheck::{
    Arena, Critical, Index, ObjectId, Objects, Pair, Recover, Ref, State as _,
};
use steadfast_digest::{Vote128, crc32c};

use super::Machine;
use crate::sequencer::is_next;
use crate::state;

/// What an entry of the log says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) origin: u64,
    pub(super) sequence: u64,
    pub(super) body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Body {
    Requests(Vec<serde_bytes::ByteBuf>),
    Recover(Recover),
    /// All objects of this part are compared.
    Scrub(u8),
}

impl Entry {
    /// Its bytes, with a check of their own.
    pub(super) fn sealed(&self) -> Option<Vec<u8>> {
        let mut bytes = postcard::to_extend(self, vec![0; 4]).ok()?;
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        Some(bytes)
    }

    /// The entry, if it still fits the check that its origin made.
    pub(super) fn opened(bytes: &[u8]) -> Option<Self> {
        let (check, body) = bytes.split_first_chunk::<4>()?;
        if crc32c(body) != u32::from_le_bytes(*check) {
            return None;
        }
        postcard::from_bytes(body).ok()
    }

    /// What is sent in the place of a kept entry that does not fit its check any more: who executes entries in order would wait for its
    /// number for ever.
    pub(super) fn mended(kept: &[u8], origin: u64, sequence: u64) -> Option<Vec<u8>> {
        let empty = Self {
            origin,
            sequence,
            body: Body::Requests(Vec::new()),
        };
        Self::opened(kept).is_none().then(|| empty.sealed())?
    }
}

/// Where the log is: a digest of all entries so far, and the latest time that a leader has stamped one with.
#[derive(Debug, Critical)]
pub(super) struct Head {
    pub(super) chain: u128,
    now_ms: u64,
}

/// The last submission of a replica that was executed.
#[derive(Debug, Critical)]
pub(super) struct Session {
    last: u64,
}

/// The driver's own objects.
#[derive(Debug, Default, steadfast_crosscheck::State)]
pub(super) struct Book {
    pub(super) heads: Arena<Head>,
    sessions: Arena<Session>,
}

pub(super) fn head() -> Ref<Head> {
    Ref::named(b"log")
}

fn session(origin: u64) -> Ref<Session> {
    Ref::named(&origin.to_le_bytes())
}

impl Book {
    /// An entry begins; the time at it.
    pub(super) fn enter(&mut self, index: Index, bytes: &[u8], time_ms: u64) -> u64 {
        if self.heads.read(head()).is_none() {
            self.heads.put(
                head(),
                Head {
                    chain: 0,
                    now_ms: 0,
                },
            );
        }
        let Some(mut head) = self.heads.write(head()) else {
            return time_ms;
        };
        head.chain = Vote128::new()
            .part(&head.chain.to_le_bytes())
            .part(&index.0.to_le_bytes())
            .part(bytes)
            .finish();
        head.now_ms = head.now_ms.max(time_ms);
        head.now_ms
    }

    /// Whether a submission is the next of its origin: a repeated one is not, and one that comes too early waits to be repeated.
    pub(super) fn admit(&mut self, origin: u64, sequence: u64) -> bool {
        let at = session(origin);
        if self.sessions.read(at).is_none() {
            self.sessions.put(at, Session { last: 0 });
        }
        let Some(mut session) = self.sessions.write(at) else {
            return false;
        };
        let next = is_next(session.last, sequence);
        if next {
            session.last = sequence;
        }
        next
    }

    /// The last submission of an origin that was executed; nothing where its number was hit.
    pub(super) fn last(&self, origin: u64) -> Option<u64> {
        let at = session(origin);
        let known = self.sessions.owns(at.id());
        if known && !self.sessions.intact(at.id()) {
            return None;
        }
        Some(self.sessions.read(at).map_or(0, |session| session.last))
    }

    /// Origins that are no members any more are forgotten.
    pub(super) fn keep(&mut self, index: Index, origins: &[u64]) {
        let kept: Vec<Ref<Session>> = origins.iter().map(|origin| session(*origin)).collect();
        let gone: Vec<Ref<Session>> = self
            .sessions
            .refs()
            .filter(|at| !kept.contains(at))
            .collect();
        self.begin(index);
        for at in gone {
            self.sessions.remove(at);
        }
        let _ = self.finish();
    }
}

/// All objects of a replica: the driver's and the service's.
#[derive(Debug)]
pub(super) struct Whole<M> {
    pub(super) book: Book,
    pub(super) machine: M,
}

impl<M: Machine> Whole<M> {
    pub(super) fn begin(&mut self, index: Index) {
        self.book.begin(index);
        self.machine.begin(index);
    }

    pub(super) fn finish(&mut self) -> Vec<Pair> {
        let mut pairs = self.book.finish();
        pairs.extend(self.machine.finish());
        pairs
    }

    pub(super) fn objects(&self) -> Vec<ObjectId> {
        let mut all = self.book.objects();
        all.extend(self.machine.objects());
        all
    }

    pub(super) fn look(&mut self, object: ObjectId) {
        if self.book.owns(object) {
            self.book.look(object);
        } else {
            self.machine.look(object);
        }
    }

    /// The state as bytes, for a replica that joins.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let all: Vec<(ObjectId, serde_bytes::ByteBuf)> = self
            .objects()
            .into_iter()
            .filter_map(|id| Some((id, self.pack(id)?.into())))
            .collect();
        state::sealed(postcard::to_stdvec(&all).unwrap_or_default())
    }

    /// Takes another replica's state over.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<(), String> {
        let bytes =
            state::opened(bytes).ok_or("the state of another replica does not fit its digest")?;
        let all: Vec<(ObjectId, serde_bytes::ByteBuf)> = postcard::from_bytes(bytes)
            .map_err(|why| format!("the state of another replica: {why}"))?;
        for id in self.objects() {
            self.replace(id, None);
        }
        for (id, packed) in &all {
            self.replace(*id, Some(packed));
            if self.pack(*id).as_deref() != Some(packed) {
                return Err(format!(
                    "requirement: replicas with the same types; found: object {id}, which none of this one's types has"
                ));
            }
        }
        Ok(())
    }
}

impl<M: Machine> Objects for Whole<M> {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        if self.book.owns(object) {
            self.book.pack(object)
        } else {
            self.machine.pack(object)
        }
    }

    fn intact(&self, object: ObjectId) -> bool {
        if self.book.owns(object) {
            self.book.intact(object)
        } else {
            self.machine.intact(object)
        }
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        if self.book.owns(object) {
            self.book.replace(object, packed);
        } else {
            self.machine.replace(object, packed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_entry_is_replaced_if_it_was_hit_and_only_then() {
        let entry = Entry {
            origin: 3,
            sequence: 9,
            body: Body::Requests(vec![vec![1, 2].into()]),
        };
        let right = entry.sealed().unwrap();
        assert_eq!(Entry::mended(&right, 3, 9), None);
        for bit in 0..right.len() * 8 {
            let mut hit = right.clone();
            hit[bit / 8] ^= 1 << (bit % 8);
            let mended = Entry::mended(&hit, 3, 9).unwrap();
            let opened = Entry::opened(&mended).unwrap();
            assert_eq!((opened.origin, opened.sequence), (3, 9));
            assert!(matches!(opened.body, Body::Requests(none) if none.is_empty()));
        }
    }
}
