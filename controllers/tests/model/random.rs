//! Numbers that look random and are the same again for the same seed.

/// A stream of such numbers (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    /// The stream of `seed`, another one for every `stream`.
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

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// One of them.
    pub(crate) fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them, each as often as its weight says.
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
fn the_same_seed_gives_the_same_numbers() {
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
