//! What the protocol asks of its caller, and what it says of replicas.

use crate::ids::{Digest, Index, Node, ObjectId};
use crate::message::{Message, Recover, To};

/// What a replica knows about another, or itself, at one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not verified.
    Unknown,
    /// Somebody is wrong, nobody knows who.
    Suspect,
    /// As f+1 replicas have it.
    Valid,
    /// f+1 replicas have it otherwise.
    Failed,
}

/// What is known about the state behind an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// f+1 replicas have it so.
    Agreed,
    /// Not all have said so far what they have.
    Open,
    /// Something in it differs, or is being repaired.
    Doubtful,
}

/// What the caller is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Tell another replica.
    Send(To, Message),
    /// The replies of this entry may leave. These are the digests of what leaves: compare before it does.
    Release(Index, Vec<Digest>),
    /// Some own replies of this entry were wrong: these may leave in their place. Where there is none the own one is right; the digests are
    /// those of what leaves.
    ReleaseWith(Index, Vec<(Option<Vec<u8>>, Digest)>),
    /// Nobody can tell what the right replies are: answer with an error.
    Undecided(Index),
    /// No vote says what this entry came to, and nothing changed at rest: run it again, beside the state, on the objects as they were before it, and
    /// say by [`crate::Core::reran`] what came of it. Only who [`crate::Core::keeps_undo`] is asked.
    Rerun(Index),
    /// Nobody will ask for the replies of this entry any more.
    Forget(Index),
    /// Put this into the log.
    Order(Recover),
    /// Replicas differ at this entry.
    Mismatch(Index),
    /// These replicas are wrong at this entry, on these objects.
    Blame {
        /// The entry.
        index: Index,
        /// Who; empty where all differ, and the recovery tells object by object.
        nodes: Vec<Node>,
        /// On what; empty if only replies differ.
        objects: Vec<ObjectId>,
    },
    /// An own object was wrong and is right now.
    Repaired {
        /// The recovery.
        index: Index,
        /// What was repaired.
        object: ObjectId,
        /// The bytes that were wrong, packed.
        was: Option<Vec<u8>>,
        /// The bytes that are right.
        is: Option<Vec<u8>>,
        /// The object changed while nobody used it.
        passive: bool,
        /// From whom.
        source: Node,
    },
    /// The bytes of an own object are the ones that were voted for, and the digest stored with them is not theirs: [`refresh`] it. Left so, the
    /// object would count as one that changed at rest when the next vote on it has no majority.
    Refresh(ObjectId, Digest),
    /// Nothing of this recovery holds requests back any longer.
    Resume(Index),
    /// No vote and no evidence decides on these objects: they stay held.
    Stuck(Index, Vec<ObjectId>),
    /// This replica cannot be repaired by others: replace it.
    Replace(Node, &'static str),
}

/// The objects of the service, by their numbers.
pub trait Objects {
    /// The object as bytes, the same in every replica; nothing if there is none.
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>>;

    /// Whether the digest that is stored with the object fits its bytes.
    fn intact(&self, object: ObjectId) -> bool;

    /// Makes the object what these bytes say, or removes it.
    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>);
}

/// Stores an object anew, and so the digest of its bytes with it, if these still are the ones that were voted for.
pub fn refresh(objects: &mut dyn Objects, object: ObjectId, digest: Digest) {
    let packed = objects.pack(object);
    if Digest::of_packed(packed.as_deref()) == digest {
        objects.replace(object, packed.as_deref());
    }
}
