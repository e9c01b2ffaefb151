//! Frames of a connection: length, its inverse, sequence, checksum, payload.
//!
//! ```text
//! 0        4        8        12       16
//! | length | !length| sequence| crc   | payload, 1 to 16384 bytes |     all little endian
//! crc = CRC32C(payload, nonce, sequence, length); nonce inverted from server to client
//! ```
//!
//! The checksum covers the payload first, so that a sender which has it from elsewhere (the
//! second execution of a hardened handler) extends it without touching the payload again.
//! The length has its own check because a wrong one would make the receiver wait for ever.

use super::{Damage, crc};
use steadfast_digest as digest;

/// Bytes in front of a payload.
pub const HEADER: usize = 16;

/// The longest payload: what a receiver must hold before it may hand out the first byte. TLS
/// chose the same for its records, and it is memcached's read buffer.
pub const PAYLOAD_MAX: usize = 16 << 10;

/// Which end has sealed a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Client,
    Server,
}

/// What both ends of a connection know about one direction of it.
#[derive(Clone, Debug)]
struct Direction {
    nonce: u64,
    sequence: u32,
    /// CRC32C: the client's end by tables, the server's by the processor's instruction, as in C.
    append: fn(u32, &[u8]) -> u32,
}

impl Direction {
    /// What `sender` sends, as this `end` sees it.
    fn new(nonce: u64, sender: Sender, end: Sender) -> Self {
        let nonce = match sender {
            Sender::Client => nonce,
            Sender::Server => !nonce,
        };
        let append = match end {
            Sender::Client => crc::append,
            Sender::Server => digest::crc32c_append,
        };
        Direction {
            nonce,
            sequence: 0,
            append,
        }
    }

    fn checksum(&self, payload: &[u8], length: u32) -> u32 {
        let mut trailer = [0; 16];
        trailer[..8].copy_from_slice(&self.nonce.to_le_bytes());
        trailer[8..12].copy_from_slice(&self.sequence.to_le_bytes());
        trailer[12..].copy_from_slice(&length.to_le_bytes());
        (self.append)((self.append)(0, payload), &trailer)
    }
}

/// The sending side of one direction.
#[derive(Clone, Debug)]
pub struct Sealer {
    direction: Direction,
}

impl Sealer {
    #[must_use]
    pub fn new(nonce: u64, sender: Sender) -> Self {
        Sealer {
            direction: Direction::new(nonce, sender, sender),
        }
    }

    /// Appends the message to `out` as frames: one, unless it is longer than [`PAYLOAD_MAX`].
    pub fn seal(&mut self, message: &[u8], out: &mut Vec<u8>) {
        for payload in message.chunks(PAYLOAD_MAX) {
            let length = u32::try_from(payload.len()).expect("at most PAYLOAD_MAX");
            let checksum = self.direction.checksum(payload, length);
            for word in [length, !length, self.direction.sequence, checksum] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(payload);
            self.direction.sequence = self.direction.sequence.wrapping_add(1);
        }
    }
}

/// The receiving side of one direction.
#[derive(Clone, Debug)]
pub struct Opener {
    direction: Direction,
    damaged: Option<Damage>,
}

/// What the front of a receive buffer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Front<'a> {
    /// A whole, sound frame; `used` bytes may be dropped from the buffer.
    Frame { payload: &'a [u8], used: usize },
    /// Not yet a whole frame.
    Partial,
}

impl Opener {
    #[must_use]
    pub fn new(nonce: u64, sender: Sender) -> Self {
        let end = match sender {
            Sender::Client => Sender::Server,
            Sender::Server => Sender::Client,
        };
        Opener {
            direction: Direction::new(nonce, sender, end),
            damaged: None,
        }
    }

    /// Checks the frame at the front of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it; from then on the same error for ever.
    pub fn open<'a>(&mut self, bytes: &'a [u8]) -> Result<Front<'a>, Damage> {
        if let Some(damage) = self.damaged {
            return Err(damage);
        }
        let front = self.front(bytes);
        self.damaged = front.err();
        front
    }

    /// What it means that the peer has closed its side while `rest` was still unopened.
    ///
    /// # Errors
    /// When the stream was damaged before, or ended within a frame.
    pub fn end(&self, rest: &[u8]) -> Result<(), Damage> {
        match self.damaged {
            Some(damage) => Err(damage),
            None if rest.is_empty() => Ok(()),
            None => Err(Damage::Truncated),
        }
    }

    fn front<'a>(&mut self, bytes: &'a [u8]) -> Result<Front<'a>, Damage> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else {
            return Ok(Front::Partial);
        };
        let (words, _) = header.as_chunks::<4>();
        let [length, inverted, sequence, found] =
            [0, 1, 2, 3].map(|index| u32::from_le_bytes(words[index]));
        let size = length as usize;
        if length != !inverted || size == 0 || size > PAYLOAD_MAX {
            return Err(Damage::Length { length, inverted });
        }
        if sequence != self.direction.sequence {
            return Err(Damage::Sequence {
                expected: self.direction.sequence,
                found: sequence,
            });
        }
        let Some(payload) = rest.get(..size) else {
            return Ok(Front::Partial);
        };
        let computed = self.direction.checksum(payload, length);
        if computed != found {
            return Err(Damage::Checksum { computed, found });
        }
        self.direction.sequence = sequence.wrapping_add(1);
        Ok(Front::Frame {
            payload,
            used: HEADER + size,
        })
    }
}
