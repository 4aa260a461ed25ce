//! Pseudorandom numbers, reproducible by seed.

/// Pseudorandom generator (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Sampler(u64);

impl Sampler {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % limit
    }

    /// Chooses `count` elements of `all` without repetition, in their order.
    pub(crate) fn choose<T: Clone>(&mut self, all: &[T], count: usize) -> Vec<T> {
        let mut left: Vec<usize> = (0..all.len()).collect();
        let mut chosen = Vec::new();
        while chosen.len() < count && !left.is_empty() {
            chosen.push(left.swap_remove(self.below(left.len())));
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|index| all[index].clone()).collect()
    }
}
