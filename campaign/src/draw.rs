//! Random numbers that depend on a seed and a place alone, so a plan can be made again.

/// A stream of numbers: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The stream of `place` under `seed`.
    pub(crate) fn new(seed: u64, place: u64) -> Self {
        let mut mixed = Self(seed ^ place.wrapping_mul(0xd1b5_4a32_d192_ed03));
        let start = mixed.next() ^ place;
        Self(start)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Below `bound`, which is not zero. The bias is below bound / 2^64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(bound);
        u64::try_from(wide >> 64).expect("below bound")
    }

    pub(crate) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let at = self.below(items.len() as u64);
        &items[usize::try_from(at).expect("an index")]
    }
}
