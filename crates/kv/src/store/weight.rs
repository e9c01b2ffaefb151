//! What all items of a replica weigh: what `--memory` limits.
//!
//! It follows from the items alone, so replicas whose items are equal have the same, and it is not voted on: two replicas with faults in
//! different items would both be wrong in it, each in its own way, and no majority would be left. It is kept twice instead.

/// The sum, and the same once more, inverted: where they do not fit one of them was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) sum: u64,
    check: u64,
}

impl Weight {
    pub(super) const fn of(sum: u64) -> Self {
        Self { sum, check: !sum }
    }

    pub(super) const fn fits(self) -> bool {
        self.check == !self.sum
    }

    /// Each of the two by itself: a slip in one is found.
    pub(super) const fn add(&mut self, bytes: u64) {
        self.sum = self.sum.wrapping_add(bytes);
        self.check = self.check.wrapping_sub(bytes);
    }

    pub(super) const fn sub(&mut self, bytes: u64) {
        self.sum = self.sum.wrapping_sub(bytes);
        self.check = self.check.wrapping_add(bytes);
    }

    /// Takes over what a part has changed since it had `before`.
    pub(super) const fn join(&mut self, part: Self, before: Self) {
        self.sum = self.sum.wrapping_add(part.sum.wrapping_sub(before.sum));
        self.check = self
            .check
            .wrapping_add(part.check.wrapping_sub(before.check));
    }
}
