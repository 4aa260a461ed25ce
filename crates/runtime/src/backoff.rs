//! Per-object retry delays: 5 ms · 2ⁿ, at most 1000 s (docs/design/api.md#retries). Pure.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(1000);

/// Number of consecutive failures by object.
#[derive(Debug, Default)]
pub struct Backoff<K> {
    failures: HashMap<K, u32>,
}

impl<K: Eq + Hash> Backoff<K> {
    /// Records a failure of `key` and returns the delay before the next attempt.
    pub fn next(&mut self, key: K) -> Duration {
        let failures = self.failures.entry(key).or_insert(0);
        let delay = BASE.saturating_mul(2u32.saturating_pow(*failures)).min(CAP);
        *failures = failures.saturating_add(1);
        delay
    }

    /// Clears the failures of `key`.
    pub fn reset<Q: ?Sized + Eq + Hash>(&mut self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
    {
        self.failures.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_cap_and_resets() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..20).map(|_| backoff.next("a").as_millis()).collect();
        assert_eq!(&delays[..4], [5, 10, 20, 40]);
        assert_eq!(delays[17], 655_360);
        assert_eq!(delays[18..], [1_000_000, 1_000_000]);
        assert_eq!(backoff.next("b").as_millis(), 5);
        backoff.reset("a");
        assert_eq!(backoff.next("a").as_millis(), 5);
        assert_eq!((0..1000).map(|_| backoff.next("b")).last(), Some(CAP));
    }
}
