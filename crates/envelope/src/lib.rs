//! The message envelope: what a receiver checks, so that a message damaged in the sender's
//! memory or processor is recognised and dropped even when the transport delivered it intact.
//!
//! Two carriers: [`stream`] frames the bytes of a connection once both ends have agreed on it in
//! plain text ([`client`] is the asking side); [`dns`] is an EDNS option of one datagram. A peer
//! that never asks sees the plain protocol. docs/reference/envelope.md is the contract of both.
//!
//! Clients' end, and with [`server`] the end of servers in Rust. Hardened servers have one in C
//! (cc/envelope). A server's end computes the checksum with the processor's instruction, a
//! client's with tables ([`crc`]), so that no single wrong implementation and no single wrong
//! circuit vouches for itself.
//!
//! Invariants
//!  1. No byte of a frame is handed out before the whole frame has been checked.
//!  2. After the first damaged frame a stream hands out nothing: where frames end is unknown.
//!  3. The nonce of the connection and the direction are under every checksum, so a frame that
//!     is delivered to another connection, or sent back, does not check.
//!
//! Not covered: someone who chooses the bytes (a checksum is no signature), and a peer that
//! never answers. Time limits are the caller's.

#![forbid(unsafe_code)]

pub mod client;
pub mod crc;
pub mod dns;
pub mod server;
pub mod stream;

#[cfg(test)]
mod tests;

/// Why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("a frame says it holds {length} bytes, and {inverted:#010x} as the inverse of that")]
    Length { length: u32, inverted: u32 },
    #[error("frame {found} arrived where {expected} was due")]
    Sequence { expected: u32, found: u32 },
    #[error("the checksum is {computed:#010x}, the message says {found:#010x}")]
    Checksum { computed: u32, found: u32 },
    #[error("the stream ended within a frame")]
    Truncated,
    #[error("the message is not well formed")]
    Malformed,
}
