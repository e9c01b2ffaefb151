//! Names for things that are all small integers and must never be mixed up.
//!
//! Addresses and event numbers are printed in hexadecimal and decimal respectively, and travel
//! through JSON as strings where a reader with 53-bit numbers would lose bits.
//!
//! Not covered: operating-system pids and descriptors. They come back; whoever holds one keeps
//! its serial beside it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text;

/// One of the copies of the guest, counted from 0. The number stays with the role's slot: a
/// replica that was re-forked from a winner keeps the number of the one it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct ReplicaId(pub u8);

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A logical CPU by the kernel's number, as in `/proc/cpuinfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct CoreId(pub u32);

impl fmt::Display for CoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The position of an event in the log that all replicas share, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct EventIndex(pub u64);

impl fmt::Display for EventIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An address in the guest. Not a pointer: it means nothing in the process that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GuestAddr(pub u64);

impl fmt::Display for GuestAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl FromStr for GuestAddr {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match (s.starts_with("0x"), text::number(s)) {
            (true, Some(address)) => Ok(Self(address)),
            _ => Err(format!(
                "an address is 0x and hexadecimal digits, found {s:?}"
            )),
        }
    }
}

string_in_json!(GuestAddr, "address", "^0x[0-9a-f]{1,16}$");

/// Where in the guest's code something was seen: as precise as the symbols allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Site {
    /// Address in the replica; all replicas have the same layout.
    pub address: GuestAddr,
    /// File name of the mapped object, without its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Distance from the lowest address at which the module is mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<GuestAddr>,
    /// The enclosing symbol and the distance from its start, as `memcpy+0x20`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbol: Option<String>,
    /// GNU build id of the module, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

impl Site {
    /// A site of which only the address is known.
    #[must_use]
    pub const fn at(address: GuestAddr) -> Self {
        Self {
            address,
            module: None,
            offset: None,
            symbol: None,
            build_id: None,
        }
    }
}

impl fmt::Display for Site {
    /// `libc.so.6+0x1a2f0 (memcpy+0x20)`, or as much of it as is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.module, self.offset) {
            (Some(module), Some(offset)) => write!(f, "{module}+{offset}")?,
            _ => self.address.fmt(f)?,
        }
        match &self.symbol {
            Some(symbol) => write!(f, " ({symbol})"),
            None => Ok(()),
        }
    }
}
