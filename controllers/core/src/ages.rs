//! Ages of times that the API server wrote, in monotonic time: steps of the wall clock do not affect them.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Number of times that are remembered: those that were asked for last.
const REMEMBERED: usize = 8;

/// Times of one object, the age of each when it was first seen, and when it was first seen.
#[derive(Debug, Default)]
pub struct Ages(Vec<(Timestamp, SignedDuration, Instant)>);

impl Ages {
    /// Returns the age of `since`. If it is new, or another time of the object is known, the age is counted from its
    /// first observation. Otherwise the wall clock gives the initial age.
    pub fn age(&mut self, since: Timestamp, is_new: bool, wall: Timestamp, now: Instant) -> SignedDuration {
        let others = !self.0.is_empty();
        let known = self.0.iter().position(|known| known.0 == since).map(|index| self.0.remove(index));
        let (_, at_first, seen) = known.unwrap_or_else(|| {
            let by_wall = wall.duration_since(since).max(SignedDuration::ZERO);
            (since, if is_new || others { SignedDuration::ZERO } else { by_wall }, now)
        });
        if self.0.len() == REMEMBERED {
            self.0.remove(0);
        }
        self.0.push((since, at_first, seen));
        at_first.saturating_add(elapsed(seen, now))
    }
}

/// Time between two observations.
pub fn elapsed(since: Instant, now: Instant) -> SignedDuration {
    SignedDuration::try_from(now.duration_since(since)).unwrap_or(SignedDuration::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn clock_step_does_not_change_age() {
        let mut now = Instant::now();
        let age =
            |ages: &mut Ages, since, is_new, wall, now| ages.age(at(since), is_new, at(wall), now).as_secs();
        let mut ages = Ages::default();
        assert_eq!(age(&mut ages, 0, false, 30, now), 30);
        for (wall, expected) in [(-7200, 40), (31, 50), (7200, 60)] {
            now += Duration::from_secs(10);
            assert_eq!(age(&mut ages, 0, false, wall, now), expected);
        }
        // A future start counts as now. A new or later one does not need the wall clock.
        assert_eq!(age(&mut Ages::default(), 50, false, 20, now), 0);
        assert_eq!(age(&mut Ages::default(), 0, true, 7200, now), 0);
        assert_eq!(age(&mut ages, 100, false, 7200, now), 0);
        now += Duration::from_secs(10);
        assert_eq!(age(&mut ages, 100, false, 0, now), 10);
        assert_eq!(age(&mut ages, 0, false, 0, now), 70);
    }

    #[test]
    fn age_memory_retains_most_recently_used_timestamps() {
        let (mut ages, now) = (Ages::default(), Instant::now());
        let later = now + Duration::from_secs(5);
        ages.age(at(0), true, at(0), now);
        for second in 1..20 {
            ages.age(at(second), false, at(0), now);
            assert_eq!(ages.age(at(0), false, at(9000), later).as_secs(), 5);
        }
        assert_eq!(ages.0.len(), REMEMBERED);
    }
}
