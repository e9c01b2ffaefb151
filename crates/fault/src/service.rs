//! Faults of a service of replicas that vote: one bit of a stored object, or of the next message or queued thing of a kind.
//!
//! ```text
//! replica=1 object=item:a byte=2 bit=3
//! replica=1 message=reply bit=77
//! \_ whom _/ \_ where __/ \_ how _/
//! ```
//!
//! Invariant: it prints as the line that makes it again.
//!
//! Not covered: when. An object is struck as soon as its replica hears of it, the rest as the next of its kind passes. Nor how large a
//! group is, which objects there are and how long a field of one is: the replica that is struck refuses what it does not have.

use std::fmt;

use crate::ids::ReplicaId;

/// One bit that changes behind the back of every check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceFault {
    pub(super) replica: ReplicaId,
    pub(super) place: Place,
}

/// Where the bit is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// A stored item, or the replies that are kept for a client, which are one.
    Stored {
        /// Which.
        object: Stored,
        /// The part of its bytes.
        field: Field,
        /// The byte of that part, from 0.
        byte: u32,
        /// The bit of that byte.
        bit: u8,
    },
    /// The head of the log, as it is packed.
    Head {
        /// The byte, from 0.
        byte: u32,
        /// The bit of that byte.
        bit: u8,
    },
    /// The next of its kind.
    Next {
        /// Of which.
        passing: Passing,
        /// The bit, counted over all of it; again from its start where it is shorter.
        bit: u32,
    },
}

/// An object by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stored {
    /// What a client has stored under this key.
    Item(String),
    /// The replies that are kept for the client of this name.
    Client(String),
}

words! {
    /// A part of a stored item's bytes.
    Field {
        /// What was stored.
        Value = "value",
        /// Its key.
        Key = "key",
        /// The client's flags.
        Flags = "flags",
        /// When it expires.
        Expires = "expires",
        /// Its cas number.
        Cas = "cas",
        /// The length of its key.
        KeyLength = "key-length",
        /// Whether it is stale, or was fetched.
        Marks = "marks",
        /// The length of its value.
        ValueLength = "value-length",
    }
}

words! {
    /// What is struck as it passes.
    Passing {
        /// A reply, between its last check and the socket.
        Reply = "message=reply",
        /// The last digest of a CHECK: a false alarm, since nothing else is wrong.
        Check = "message=check",
        /// The first object of a REPAIR.
        Repair = "message=repair",
        /// The order to compare objects, on its way into the log, behind its check.
        Recover = "message=recover",
        /// Requests of clients, on their way into the log, behind their check.
        Entry = "message=entry",
        /// The same, and the copy that is kept until they come out of it.
        Submit = "queue=submit",
        /// What has come out of the log and was not executed yet.
        Log = "queue=log",
        /// The first request of an entry that is being executed: its value, or its key. It stands for a thread that computes wrongly once.
        Run = "queue=run",
        /// A reply that waits for its vote.
        Replies = "queue=replies",
        /// The number of the recovery that holds requests back: its end is the end of another one.
        Held = "queue=held",
    }
}

impl Passing {
    /// Bits that can be counted: those of a digest, or more than any message has in its first megabytes.
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::Check => 128,
            _ => 1 << 24,
        }
    }
}

impl ServiceFault {
    /// Whom it strikes.
    #[must_use]
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }

    /// Where.
    #[must_use]
    pub const fn place(&self) -> &Place {
        &self.place
    }
}

impl fmt::Display for ServiceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replica={} {}", self.replica, self.place)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stored {
                object,
                field,
                byte,
                bit,
            } => {
                write!(f, "object={object}")?;
                if *field != Field::Value {
                    write!(f, " field={field}")?;
                }
                write!(f, " byte={byte} bit={bit}")
            }
            Self::Head { byte, bit } => write!(f, "object=log:head byte={byte} bit={bit}"),
            Self::Next { passing, bit } => write!(f, "{passing} bit={bit}"),
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Item(key) => write!(f, "item:{key}"),
            Self::Client(name) => write!(f, "client:{name}"),
        }
    }
}
