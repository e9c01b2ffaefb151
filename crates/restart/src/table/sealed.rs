//! A number that says whether it has changed by itself: its upper bits are a hash of the lower ones.

/// A number below 2^40: a reset each microsecond lasts for twelve days, and one each millisecond for 34 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sealed(pub(super) u64);

const BITS: u32 = 40;

impl Sealed {
    pub(crate) const fn of(n: u64) -> Self {
        let n = n & ((1 << BITS) - 1);
        // 2^64 over the golden ratio (Knuth, vol. 3, section 6.4): each bit of the number changes the product's upper bits.
        let hash = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(n | hash >> BITS << BITS)
    }

    /// The number; none where it has changed.
    pub(crate) fn get(self) -> Option<u64> {
        let n = self.0 & ((1 << BITS) - 1);
        (self == Self::of(n)).then_some(n)
    }
}

impl PartialEq<u64> for Sealed {
    fn eq(&self, n: &u64) -> bool {
        *self == Self::of(*n)
    }
}

/// Why a handle cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bad {
    Stale,
    Corrupt,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flip_of_one_bit_is_noticed() {
        for n in [0, 1, 2, 3, 4, 77, 1 << 20, (1 << 40) - 1] {
            let sealed = Sealed::of(n);
            assert_eq!((sealed.get(), sealed == n), (Some(n), true));
            for bit in 0..64 {
                let changed = Sealed(sealed.0 ^ 1 << bit);
                assert_eq!(changed.get(), None, "bit {bit} of {n}");
                assert!(changed != n);
            }
        }
    }
}
