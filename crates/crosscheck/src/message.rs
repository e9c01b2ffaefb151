//! What replicas tell each other beside the log. A transport frames each message with a CRC; the log carries [`Recover`].

use serde::{Deserialize, Serialize};
use steadfast_digest::Vote128;

use crate::ids::{Digest, Index, Node, ObjectId};

/// To whom a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum To {
    /// Every other member.
    All,
    /// This one.
    One(Node),
}

/// One object and its latest digest in an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pair {
    /// Which object.
    pub object: ObjectId,
    /// Computed from its bytes, not from a stored digest.
    pub digest: Digest,
    /// The digest that was stored with the object did not fit its bytes: they changed while nobody used them.
    /// A statement about the speaker, so it is no part of what is voted on.
    pub passive: bool,
    /// An object that was passive has had its part in these bytes: they may be wrong and fit their digest. Only the protocol says so.
    pub doubt: bool,
    /// The speaker has executed or taken over something without a voice, and not everything was compared since. No fault is known of these
    /// bytes: they say less than those of who had a voice, and more than those in doubt.
    pub unproven: bool,
}

/// What a replica has computed for one entry: the delta of the state, and the replies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tuple {
    /// Each object once, in the order of its first access.
    pub objects: Vec<Pair>,
    /// One for every request of the entry.
    pub replies: Vec<Digest>,
}

impl Tuple {
    /// What CHECK carries: one digest over everything that is voted on.
    #[must_use]
    pub fn digest(&self, epoch: u32, index: Index) -> u128 {
        let mut sum = Vote128::new();
        let mut bytes = Vec::with_capacity(20 + 32 * self.objects.len() + 16 * self.replies.len());
        bytes.extend_from_slice(&epoch.to_le_bytes());
        bytes.extend_from_slice(&index.0.to_le_bytes());
        bytes.extend_from_slice(&(self.objects.len() as u64).to_le_bytes());
        for pair in &self.objects {
            bytes.extend_from_slice(&pair.object.0.to_le_bytes());
            bytes.extend_from_slice(&pair.digest.0.to_le_bytes());
        }
        for reply in &self.replies {
            bytes.extend_from_slice(&reply.0.to_le_bytes());
        }
        sum.add(&bytes);
        sum.finish()
    }

    /// The digest of one object, if the entry touched it.
    #[must_use]
    pub fn of(&self, object: ObjectId) -> Option<Digest> {
        self.objects
            .iter()
            .find(|pair| pair.object == object)
            .map(|pair| pair.digest)
    }
}

/// Digests of consecutive entries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The entry of the first digest.
    pub first: Index,
    /// One an entry.
    pub digests: Vec<u128>,
}

/// The order to compare these objects, from their bytes, at one place of the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recover {
    /// The entry at which replicas disagreed.
    pub cause: Index,
    /// Objects on which they did.
    pub objects: Vec<ObjectId>,
}

/// A message between replicas.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Digests of entries that the sender has executed.
    Check {
        /// How digests are made; those of another epoch are not comparable.
        epoch: u32,
        /// The digests.
        runs: Vec<Run>,
    },
    /// What is behind a digest, told where replicas differ.
    Detail {
        /// The entry.
        index: Index,
        /// What the sender has computed.
        tuple: Tuple,
        /// Whether the sender wants to be told the receiver's once more.
        again: bool,
    },
    /// Digests of the objects of a recovery, from their bytes; told again once they are repaired.
    Report {
        /// The recovery's place in the log.
        index: Index,
        /// In the order of the recovery's objects.
        pairs: Vec<Pair>,
        /// Whether the sender wants to be told the receiver's once more.
        again: bool,
    },
    /// Asks for objects as they were at a recovery.
    Fetch {
        /// The recovery's place in the log.
        index: Index,
        /// Which.
        objects: Vec<ObjectId>,
    },
    /// Objects as they were at a recovery; nothing stands for one that does not exist.
    Repair {
        /// The recovery's place in the log.
        index: Index,
        /// Packed.
        #[serde(with = "packed")]
        objects: Vec<(ObjectId, Option<Vec<u8>>)>,
    },
    /// Asks for the replies of an entry.
    FetchReplies {
        /// The entry.
        index: Index,
    },
    /// The replies of an entry.
    Replies {
        /// The entry.
        index: Index,
        /// One for every request.
        #[serde(with = "pieces")]
        replies: Vec<Vec<u8>>,
    },
    /// What came of a second run of an entry, on what its objects were before the first.
    Reran {
        /// The entry.
        index: Index,
        /// Of the tuple, as in a CHECK.
        digest: u128,
    },
}

/// Objects are read and written as a whole, not number by number as a `Vec<u8>` is otherwise; what is written is the same.
mod packed {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_bytes::{ByteBuf, Bytes};

    use crate::ids::ObjectId;

    type Packed = (ObjectId, Option<Vec<u8>>);

    pub(super) fn serialize<S: Serializer>(objects: &[Packed], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(
            objects
                .iter()
                .map(|(object, bytes)| (object, bytes.as_deref().map(Bytes::new))),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Packed>, D::Error> {
        let read = Vec::<(ObjectId, Option<ByteBuf>)>::deserialize(from)?;
        let objects = read.into_iter();
        Ok(objects
            .map(|(object, bytes)| (object, bytes.map(ByteBuf::into_vec)))
            .collect())
    }
}

/// The same for replies.
mod pieces {
    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_bytes::{ByteBuf, Bytes};

    pub(super) fn serialize<S: Serializer>(pieces: &[Vec<u8>], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(pieces.iter().map(|piece| Bytes::new(piece)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<Vec<u8>>, D::Error> {
        let read = Vec::<ByteBuf>::deserialize(from)?;
        Ok(read.into_iter().map(ByteBuf::into_vec).collect())
    }
}
