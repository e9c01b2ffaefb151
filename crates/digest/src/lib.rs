//! The digest of messages and pages: CRC32C (Castagnoli), in hardware where SSE4.2 exists; and the 128 bits that a vote stands on.
//!
//! CRC32C detects every burst of up to 32 bits and every one-, two- and three-bit error in a
//! page (Koopman, DSN 2002, gives Hamming distance 4 for this polynomial well beyond 4 KiB);
//! it is not a defence against someone who chooses the bytes. The agent carries its own copy,
//! which is tested against this one.
//!
//! A vote compares states that may be long and many, where a chance of 2^-32 that two different ones look alike is too likely.
//! [`vote128`] is XXH3 of 128 bits; [`Vote128`] takes the parts of a state one after another, each framed by its length, so that
//! ("ab", "c") and ("a", "bc") differ.
//!
//! Not covered: somebody who chooses the bytes. Neither digest is cryptographic.

#![forbid(unsafe_code)]

pub use crc32c::{crc32c, crc32c_append};

use xxhash_rust::xxh3::{Xxh3Default, xxh3_128};

/// The digest of one piece of state for a vote.
#[must_use]
pub fn vote128(bytes: &[u8]) -> u128 {
    xxh3_128(bytes)
}

/// The digest of a state that comes in parts.
///
/// `Vote128::new().part(a).part(b).finish()` depends on where one part ends and the next begins.
#[derive(Clone)]
pub struct Vote128(Xxh3Default);

impl Vote128 {
    /// Of no parts yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Xxh3Default::new())
    }

    /// Adds one part: its length, then its bytes.
    #[must_use]
    pub fn part(mut self, bytes: &[u8]) -> Self {
        self.add(bytes);
        self
    }

    /// The same, for a loop.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// The digest of all parts so far.
    #[must_use]
    pub fn finish(&self) -> u128 {
        self.0.digest128()
    }
}

impl Default for Vote128 {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Vote128 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Vote128({:032x})", self.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vectors of RFC 3720, appendix B.4.
    #[test]
    fn agrees_with_the_published_vectors() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(&descending), 0x113f_db5c);
    }

    #[test]
    fn every_single_bit_flip_of_a_page_changes_it() {
        let mut page = vec![0xa5_u8; 4096];
        let right = crc32c(&page);
        for bit in 0..page.len() * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc32c(&page), right, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// Vectors of xxHash's own `xxhsum -H2`, for the empty input and for "abc".
    #[test]
    fn a_vote_agrees_with_the_published_vectors() {
        assert_eq!(vote128(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_eq!(vote128(b"abc"), 0x06b0_5ab6_733a_6185_78af_5f94_892f_3950);
    }

    #[test]
    fn a_vote_sees_every_single_bit_and_where_parts_end() {
        let mut state = vec![0x5a_u8; 512];
        let right = vote128(&state);
        for bit in 0..state.len() * 8 {
            state[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(vote128(&state), right, "bit {bit}");
            state[bit / 8] ^= 1 << (bit % 8);
        }
        assert_ne!(
            Vote128::new().part(b"ab").part(b"c").finish(),
            Vote128::new().part(b"a").part(b"bc").finish()
        );
        assert_eq!(
            Vote128::new().part(b"ab").part(b"c").finish(),
            Vote128::new().part(b"ab").part(b"c").finish()
        );
    }

    #[test]
    fn parts_append_to_the_whole() {
        let text = b"replicas publish, compare, vote";
        let (head, tail) = text.split_at(11);
        assert_eq!(crc32c_append(crc32c(head), tail), crc32c(text));
    }
}
