//! What the log is made of, as the engine names it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::who::Member;

/// What an entry of the log carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bytes(#[serde(with = "serde_bytes")] pub Vec<u8>);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

openraft::declare_raft_types!(
    pub Types:
        D = Bytes,
        R = (),
        Node = Member,
);
