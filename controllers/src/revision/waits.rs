//! How long the waits of revisions have lasted, in monotonic time: a step of the wall clock shortens or lengthens none.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Longest delay between two polls of one unchanged state.
const LONGEST_POLL: Duration = Duration::from_secs(60);

/// Shortest time between two passes over a superseded revision: every step of its successor changes an object of it.
const SUPERSEDED: Duration = Duration::from_secs(5);
/// A rollout that lasts longer has its passes spread: each of them reads, and may write a status that two controllers take
/// up.
const QUICK_ROLLOUT: Duration = Duration::from_secs(2);
/// Longest time between two passes over a revision that is rolling out and changes.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// Shortest time between two passes over a rollout that has lasted for `age`.
fn rollout_interval(age: Duration) -> Duration {
    (age.saturating_sub(QUICK_ROLLOUT) / 8).min(LONGEST_INTERVAL)
}

/// Waits by UID of the revision.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<HashMap<String, Wait>>);

#[derive(Debug, Default)]
struct Wait {
    /// A time that the API server wrote, its age when it was first seen, and when that was.
    age: Option<(Timestamp, SignedDuration, Instant)>,
    /// What the last poll found, and since when.
    found: Option<(String, Instant)>,
    /// The first and the last pass of those that have an interval.
    passes: Option<(Instant, Instant)>,
    /// Since when no operator is ready.
    unattended: Option<Instant>,
}

impl Waits {
    /// Age of `since`, a time that the API server wrote. The wall clock counts only when `since` is first seen.
    pub(super) fn age(&self, uid: &str, since: Timestamp, wall: Timestamp, now: Instant) -> SignedDuration {
        let mut waits = self.0.lock();
        let age = &mut waits.entry(uid.to_owned()).or_default().age;
        let (_, at_first, seen) = match *age {
            Some(known) if known.0 == since => known,
            _ => {
                let at_first = wall.duration_since(since).max(SignedDuration::ZERO);
                *age.insert((since, at_first, now))
            }
        };
        at_first
            .saturating_add(SignedDuration::try_from(now.duration_since(seen)).unwrap_or(SignedDuration::MAX))
    }

    /// Delay until the next poll: at least `first`, and a quarter of the time that polls have found the same.
    pub(super) fn next_poll(&self, uid: &str, first: Duration, found: &impl Debug, now: Instant) -> Duration {
        let found = format!("{found:?}");
        let mut waits = self.0.lock();
        let last = &mut waits.entry(uid.to_owned()).or_default().found;
        let since = match last {
            Some((same, since)) if *same == found => *since,
            _ => last.insert((found, now)).1,
        };
        (now.duration_since(since) / 4).clamp(first, LONGEST_POLL)
    }

    /// Delay of the next pass over a revision that is superseded or rolling out, `None` if that is due.
    pub(super) fn next_pass(&self, uid: &str, is_superseded: bool, now: Instant) -> Option<Duration> {
        let mut waits = self.0.lock();
        let passes = &mut waits.entry(uid.to_owned()).or_default().passes;
        let (first, last) = passes.unwrap_or((now, now));
        let interval = if is_superseded { SUPERSEDED } else { rollout_interval(last.duration_since(first)) };
        let due = if passes.is_some() { last + interval } else { now };
        if now >= due {
            *passes = Some((first, now));
        }
        Some(due.duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Begins the intervals of [`Self::next_pass`] anew.
    pub(super) fn end_passes(&self, uid: &str) {
        if let Some(wait) = self.0.lock().get_mut(uid) {
            wait.passes = None;
        }
    }

    /// Time for which every look has found no operator ready.
    pub(super) fn unattended(&self, uid: &str, has_operator: bool, now: Instant) -> Duration {
        let mut waits = self.0.lock();
        let since = &mut waits.entry(uid.to_owned()).or_default().unattended;
        *since = if has_operator { None } else { since.or(Some(now)) };
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Forgets a revision.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    #[test]
    fn clock_step_changes_no_age() {
        let (waits, mut now) = (Waits::default(), Instant::now());
        let age = |uid, since, wall, now| waits.age(uid, at(since), at(wall), now).as_secs();
        assert_eq!(age("a", 0, 30, now), 30);
        for (wall, expected) in [(-7200, 40), (31, 50), (7200, 60)] {
            now += Duration::from_secs(10);
            assert_eq!(age("a", 0, wall, now), expected);
        }
        // What begins later is measured anew, and nothing began in the future.
        assert_eq!(age("a", 100, 101, now), 1);
        assert_eq!(age("b", 50, 20, now), 0);
    }

    #[test]
    fn polls_back_off_until_something_changes() {
        let (waits, first, mut now) = (Waits::default(), Duration::from_secs(10), Instant::now());
        let mut delays = Vec::new();
        for found in [2, 2, 2, 2, 2, 2, 2, 2, 1] {
            let delay = waits.next_poll("a", first, &found, now);
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(delays, [10, 10, 10, 10, 10, 12, 15, 19, 10]);
        // An event in between lengthens nothing.
        assert_eq!(waits.next_poll("b", first, &2, now), first);
        assert_eq!(waits.next_poll("b", first, &2, now), first);
        waits.forget("a");
        assert_eq!(waits.next_poll("a", first, &1, now), first);
    }

    #[test]
    fn operator_that_comes_back_is_waited_for_anew() {
        let (waits, start) = (Waits::default(), Instant::now());
        let seen = [(0, false), (8, false), (9, true), (10, false), (13, false)];
        let lasted =
            seen.map(|(at, has)| waits.unattended("a", has, start + Duration::from_secs(at)).as_secs());
        assert_eq!(lasted, [0, 8, 0, 0, 3]);
    }

    #[test]
    fn passes_are_an_interval_apart() {
        let (waits, start) = (Waits::default(), Instant::now());
        let at = |seconds| {
            waits.next_pass("a", true, start + Duration::from_secs(seconds)).map(|left| left.as_secs())
        };
        assert_eq!([0, 1, 4, 5, 6].map(at), [None, Some(4), Some(1), None, Some(4)]);
        let intervals = [0, 2, 10, 60].map(|age| rollout_interval(Duration::from_secs(age)).as_millis());
        assert_eq!(intervals, [0, 0, 1000, 2000]);
        let rollout = |milliseconds| {
            let left = waits.next_pass("b", false, start + Duration::from_millis(milliseconds));
            left.map(|left| left.as_millis())
        };
        assert_eq!([0, 10_000, 10_500, 11_000].map(rollout), [None, None, Some(500), None]);
        waits.end_passes("b");
        assert_eq!([90_000, 90_001].map(rollout), [None, None], "it rolls out again");
    }
}
