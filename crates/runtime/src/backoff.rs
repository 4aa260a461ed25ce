//! Per-object retry delays: 5 ms · 2ⁿ, at most 1000 s (docs/design/api.md#retries). Jitter of other delays.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const BASE: Duration = Duration::from_millis(5);
const CAP: Duration = Duration::from_secs(1000);

/// Number of consecutive failures.
#[derive(Debug, Default)]
pub struct Backoff(u32);

impl Backoff {
    /// Records a failure and returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        let delay = BASE.saturating_mul(2u32.saturating_pow(self.0)).min(CAP);
        self.0 = self.0.saturating_add(1);
        delay
    }
}

/// Adds a random part of up to `most` times `delay`, so that processes and objects do not act at the same time.
pub fn with_jitter(delay: Duration, most: f64) -> Duration {
    // Each `RandomState` has a new seed.
    let random = u16::try_from(RandomState::new().hash_one(()) >> 48).unwrap_or_default();
    delay.mul_f64(1.0 + most * f64::from(random) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_adds_up_to_its_limit_and_varies() {
        let minute = Duration::from_secs(60);
        let delays: Vec<_> = (0..100).map(|_| with_jitter(minute, 0.01)).collect();
        assert!(delays.iter().all(|delay| (minute..=Duration::from_millis(60_600)).contains(delay)));
        assert!(delays.iter().any(|delay| *delay != delays[0]));
    }

    #[test]
    fn delay_doubles_up_to_cap() {
        let mut backoff = Backoff::default();
        let delays: Vec<u128> = (0..20).map(|_| backoff.next_delay().as_millis()).collect();
        assert_eq!(&delays[..4], [5, 10, 20, 40]);
        assert_eq!(delays[17], 655_360);
        assert_eq!(delays[18..], [1_000_000, 1_000_000]);
        assert_eq!((0..1000).map(|_| backoff.next_delay()).last(), Some(CAP));
    }
}
