//! Where the log is, as an object that is voted on.

use steadfast_crosscheck::{Digest, Index};
use steadfast_digest::Vote128;

use super::item::Place;

/// Where the log is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Digest of all entries so far.
    pub(crate) chain: u128,
    /// The leader's time, never backwards.
    pub(crate) now_ms: u64,
    /// The number of the last request that may have changed something: memcached's cas unique.
    pub(crate) cas: u64,
    /// Items whose last change is not above this are gone.
    pub(crate) flushed: u64,
    /// A flush that is to come, at that time.
    pub(crate) flush_at_ms: u64,
}

/// Bytes of a packed head: the chain and four numbers.
pub(super) const PACKED: usize = 16 + 4 * 8;
/// The same, and what all items weigh behind it: where a strike may hit.
pub(crate) const HEAD_LENGTH: usize = PACKED + 8;

impl Head {
    /// What a vote compares of it.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(&self.pack())
    }

    pub(super) fn pack(&self) -> Vec<u8> {
        let mut bytes = self.chain.to_le_bytes().to_vec();
        for number in [self.now_ms, self.cas, self.flushed, self.flush_at_ms] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn unpack(bytes: &[u8]) -> Option<Self> {
        let (chain, rest) = bytes.split_first_chunk::<16>()?;
        let mut numbers = rest
            .chunks_exact(8)
            .filter_map(|chunk| chunk.try_into().ok().map(u64::from_le_bytes));
        Some(Self {
            chain: u128::from_le_bytes(*chain),
            now_ms: numbers.next()?,
            cas: numbers.next()?,
            flushed: numbers.next()?,
            flush_at_ms: numbers.next()?,
        })
    }
}

/// What a byte of the packed head is.
pub(crate) fn place_in_head(at: usize) -> Place {
    const NUMBERS: [&str; 5] = ["time", "cas", "flushed", "flush time", "bytes used"];
    let numbers = at.checked_sub(16);
    let field = numbers.map_or("chain", |at| {
        NUMBERS.get(at / 8).copied().unwrap_or("nothing known")
    });
    Place {
        field,
        byte: numbers.map_or(at, |at| at % 8),
    }
}

/// The chain of the log with one more entry.
pub(crate) fn chained(chain: u128, index: Index, bytes: &[u8]) -> u128 {
    Vote128::new()
        .part(&chain.to_le_bytes())
        .part(&index.0.to_le_bytes())
        .part(bytes)
        .finish()
}
