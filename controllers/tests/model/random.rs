//! Pseudorandom numbers, reproducible by seed.

/// Pseudorandom generator (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// Creates stream number `stream` of `seed`. Streams are independent.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mixed = Self(stream.wrapping_add(1));
        Self(seed ^ mixed.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// Returns a random element.
    pub(crate) fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Returns `true` in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element, with a probability proportional to its weight.
    pub(crate) fn weighted<'a, T>(&mut self, all: &'a [(usize, T)]) -> &'a T {
        let mut left = self.below(all.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in all {
            if left < *weight {
                return value;
            }
            left -= weight;
        }
        unreachable!("weights add up")
    }
}

#[test]
fn same_seed_and_stream_yield_the_same_numbers() {
    let numbers = |seed, stream| {
        let mut random = Random::new(seed, stream);
        (0..50).map(|_| random.below(1000)).collect::<Vec<_>>()
    };
    assert_eq!(numbers(7, 1), numbers(7, 1));
    assert_ne!(numbers(7, 1), numbers(7, 2));
    assert_ne!(numbers(7, 1), numbers(8, 1));
    let mut random = Random::new(1, 1);
    let picked: Vec<char> = (0..100).map(|_| *random.weighted(&[(0, 'a'), (9, 'b'), (1, 'c')])).collect();
    assert!(!picked.contains(&'a') && picked.contains(&'c'));
    assert!(picked.iter().filter(|one| **one == 'b').count() > 60);
}
