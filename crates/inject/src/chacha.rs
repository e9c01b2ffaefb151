//! Random numbers that depend on a 256-bit seed and a place alone: ChaCha20 (RFC 8439) as a
//! counter-based generator, so a plan can be made again, whole or in parts.
//!
//! Invariant: no two streams of one seed overlap, and what one has drawn changes no other.
//!
//! Not covered: secrecy; a seed is printed.

/// The seed of a campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed([u32; 8]);

impl Seed {
    /// From 64 hexadecimal digits, or fewer, which count as the low ones.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits =
            !text.is_empty() && text.len() <= 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let padded = fits.then(|| format!("{text:0>64}"))?;
        let mut words = [0; 8];
        for (word, digits) in words.iter_mut().zip(padded.as_bytes().chunks_exact(8)) {
            *word = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(words))
    }

    /// From the operating system.
    ///
    /// # Errors
    /// When /dev/urandom cannot be read.
    pub fn fresh() -> std::io::Result<Self> {
        use std::io::Read as _;
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = chunk
                .iter()
                .fold(0, |value, byte| value << 8 | u32::from(*byte));
        }
        Ok(Self(words))
    }

    /// The stream of `place` (a run, say) for `purpose`.
    #[must_use]
    pub fn stream(self, purpose: u32, place: u64) -> Draw {
        Draw {
            key: self.0,
            nonce: [purpose, low(place), low(place >> 32)],
            counter: 0,
            block: [0; 16],
            used: 16,
        }
    }
}

impl std::fmt::Display for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|word| write!(f, "{word:08x}"))
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the low half is asked for")]
const fn low(value: u64) -> u32 {
    value as u32
}

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Draw {
    key: [u32; 8],
    nonce: [u32; 3],
    counter: u32,
    block: [u32; 16],
    used: usize,
}

impl Draw {
    /// Uniform.
    pub fn number(&mut self) -> u64 {
        if self.used + 2 > self.block.len() {
            self.block = block(&self.key, self.counter, &self.nonce);
            self.counter = self.counter.wrapping_add(1);
            self.used = 0;
        }
        let (high, low) = (self.block[self.used], self.block[self.used + 1]);
        self.used += 2;
        u64::from(high) << 32 | u64::from(low)
    }

    /// Below `bound`, which is not zero. The bias is below bound / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.number()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("below bound")
    }

    /// One of a list that is not empty.
    pub fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let at = self.below(items.len() as u64);
        &items[usize::try_from(at).expect("an index")]
    }
}

fn block(key: &[u32; 8], counter: u32, nonce: &[u32; 3]) -> [u32; 16] {
    let mut start = [0_u32; 16];
    // "expand 32-byte k"
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    start[4..12].copy_from_slice(key);
    start[12] = counter;
    start[13..].copy_from_slice(nonce);
    let mut s = start;
    let mut quarter = |a: usize, b: usize, c: usize, d: usize| {
        for (x, y, z, by) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
            s[x] = s[x].wrapping_add(s[y]);
            s[z] = (s[z] ^ s[x]).rotate_left(by);
        }
    };
    for _ in 0..10 {
        quarter(0, 4, 8, 12);
        quarter(1, 5, 9, 13);
        quarter(2, 6, 10, 14);
        quarter(3, 7, 11, 15);
        quarter(0, 5, 10, 15);
        quarter(1, 6, 11, 12);
        quarter(2, 7, 8, 13);
        quarter(3, 4, 9, 14);
    }
    for (word, start) in s.iter_mut().zip(start) {
        *word = word.wrapping_add(start);
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_the_standard() {
        // RFC 8439, 2.3.2.
        let key: Vec<u32> = (0..8)
            .map(|i: u32| {
                u32::from_le_bytes([0, 1, 2, 3].map(|b: u8| b + u8::try_from(i * 4).unwrap()))
            })
            .collect();
        let out = block(&key.try_into().unwrap(), 1, &[0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(
            out[..4],
            [0xe4e7_f110, 0x1559_3bd1, 0x1fdd_0f50, 0xc471_20a3]
        );
        assert_eq!(out[15], 0x4e3c_50a2);
    }

    #[test]
    fn a_seed_prints_as_it_is_read() {
        let seed = Seed::parse("1").unwrap();
        assert_eq!(seed.to_string(), format!("{:0>64}", "1"));
        assert_eq!(Seed::parse(&seed.to_string()), Some(seed));
        assert_ne!(seed.stream(0, 1).number(), seed.stream(0, 2).number());
        assert!(Seed::parse("x").is_none() && Seed::parse("").is_none());
    }
}
