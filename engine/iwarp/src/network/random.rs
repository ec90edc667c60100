//! The random numbers of a network.

/// Numbers that follow from a seed (splitmix64).
#[derive(Debug)]
pub(super) struct Random(pub u64);

impl Random {
    /// A number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// One of some.
    pub(super) fn choose<T: Copy>(&mut self, some: &[T]) -> T {
        some[self.below(some.len())]
    }

    /// Whether something happens that does so in one case of `count`.
    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}
