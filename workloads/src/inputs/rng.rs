//! The one generator of pseudo-random numbers behind all inputs.
//!
//! splitmix64: each output is a mix of a counter, so it has no bad seeds, and it is short
//! enough that an upgrade of a library can never change the inputs. See Steele, Lea and Flood,
//! "Fast splittable pseudorandom number generators", OOPSLA 2014.

/// A stream of numbers that depends on the seed alone.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`. The bias of the remainder is below bound / 2^64.
    ///
    /// # Panics
    /// When `bound` is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next_u64() % bound as u64).expect("usize is 64 bits here")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = high.abs_diff(low) + 1;
        low + (self.next_u64() % span).cast_signed()
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One element of a slice.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    /// Puts a list in a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }

    /// A number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        // 53 bits fill a double's mantissa, so the conversion is exact.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
