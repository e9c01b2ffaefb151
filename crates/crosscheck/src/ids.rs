//! Numbers that would get mixed up as plain integers: replicas, log positions, objects, digests.

use std::fmt;

use serde::{Deserialize, Serialize};
use steadfast_digest::vote128;

/// A replica, by a number that no later process of it has again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Node(pub u64);

/// A position in the ordered log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Index(pub u64);

/// An object, by a number that is the same in every replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub u128);

/// What a vote compares of an object or a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Digest(pub u128);

impl ObjectId {
    /// The object of that kind and name.
    #[must_use]
    pub fn named(kind: &str, name: &[u8]) -> Self {
        Self(
            steadfast_digest::Vote128::new()
                .part(kind.as_bytes())
                .part(name)
                .finish(),
        )
    }
}

impl Digest {
    /// Of an object that does not exist. XXH3 gives no input this value that anybody has found by accident: 2^-128.
    pub const ABSENT: Self = Self(0);

    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(vote128(bytes))
    }

    /// Of an object as it is packed.
    #[must_use]
    pub fn of_packed(packed: Option<&[u8]>) -> Self {
        packed.map_or(Self::ABSENT, Self::of)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
