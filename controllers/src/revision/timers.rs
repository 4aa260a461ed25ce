//! Durations of the waits of revisions, in monotonic time: steps of the wall clock do not affect them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::ages::Ages;

/// Maximum delay between two polls of an unchanged state.
const LONGEST_POLL: Duration = Duration::from_secs(60);

/// Minimum time between two passes over a superseded revision: every step of its successor changes one of its
/// objects.
const SUPERSEDED: Duration = Duration::from_secs(5);
/// Age from which the passes over a rollout are spread: each of them reads, and may write a status that two
/// controllers react to.
const QUICK_ROLLOUT: Duration = Duration::from_secs(2);
/// Maximum time between two passes over a changing rollout.
const LONGEST_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the minimum time between two passes over a rollout of this age.
fn rollout_interval(age: Duration) -> Duration {
    (age.saturating_sub(QUICK_ROLLOUT) / 8).min(LONGEST_INTERVAL)
}

/// Wait states by UID of the revision.
#[derive(Debug, Default)]
pub(super) struct RevisionTimers(Mutex<HashMap<String, RevisionTimer>>);

#[derive(Debug, Default)]
struct RevisionTimer {
    ages: Ages,
    /// Result of the last poll, and the time of its first occurrence.
    found: Option<(String, Instant)>,
    /// Times of the first and the last pass that an interval applies to.
    passes: Option<(Instant, Instant)>,
    /// Time since which no operator is ready.
    unattended: Option<Instant>,
}

impl RevisionTimers {
    /// Returns the age of `since`, a time that the API server wrote on a revision, which may be new.
    pub(super) fn age(&self, uid: &str, since: Timestamp, is_new: bool) -> SignedDuration {
        let mut timers = self.0.lock();
        let ages = &mut timers.entry(uid.to_owned()).or_default().ages;
        ages.age(since, is_new, Timestamp::now(), Instant::now())
    }

    /// Returns the delay until the next poll: a quarter of the time for which polls have had this result, but at
    /// least `first`.
    pub(super) fn next_poll(&self, uid: &str, first: Duration, found: &impl Debug, now: Instant) -> Duration {
        let found = format!("{found:?}");
        let mut timers = self.0.lock();
        let last = &mut timers.entry(uid.to_owned()).or_default().found;
        let since = match last {
            Some((same, since)) if *same == found => *since,
            _ => last.insert((found, now)).1,
        };
        (now.duration_since(since) / 4).clamp(first, LONGEST_POLL)
    }

    /// Returns the delay of the next pass over a revision that is superseded or rolling out, or `None` if it is due.
    pub(super) fn next_pass(&self, uid: &str, is_superseded: bool, now: Instant) -> Option<Duration> {
        let mut timers = self.0.lock();
        let passes = &mut timers.entry(uid.to_owned()).or_default().passes;
        let (first, last) = passes.unwrap_or((now, now));
        let interval = if is_superseded { SUPERSEDED } else { rollout_interval(last.duration_since(first)) };
        let due = if passes.is_some() { last + interval } else { now };
        if now >= due {
            *passes = Some((first, now));
        }
        Some(due.duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Resets the intervals of [`Self::next_pass`].
    pub(super) fn end_passes(&self, uid: &str) {
        if let Some(wait) = self.0.lock().get_mut(uid) {
            wait.passes = None;
        }
    }

    /// Returns the time for which every pass has found no ready operator.
    pub(super) fn unattended(&self, uid: &str, has_operator: bool, now: Instant) -> Duration {
        let mut timers = self.0.lock();
        let since = &mut timers.entry(uid.to_owned()).or_default().unattended;
        *since = if has_operator { None } else { since.or(Some(now)) };
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_interval_grows_until_result_changes() {
        let (timers, first, mut now) = (RevisionTimers::default(), Duration::from_secs(10), Instant::now());
        let mut delays = Vec::new();
        for found in [2, 2, 2, 2, 2, 2, 2, 2, 1] {
            let delay = timers.next_poll("a", first, &found, now);
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(delays, [10, 10, 10, 10, 10, 12, 15, 19, 10]);
        // An event in between does not lengthen the interval.
        assert_eq!(timers.next_poll("b", first, &2, now), first);
        assert_eq!(timers.next_poll("b", first, &2, now), first);
        timers.forget("a");
        assert_eq!(timers.next_poll("a", first, &1, now), first);
    }

    #[test]
    fn ready_operator_resets_unattended_time() {
        let (timers, start) = (RevisionTimers::default(), Instant::now());
        let seen = [(0, false), (8, false), (9, true), (10, false), (13, false)];
        let lasted =
            seen.map(|(at, has)| timers.unattended("a", has, start + Duration::from_secs(at)).as_secs());
        assert_eq!(lasted, [0, 8, 0, 0, 3]);
    }

    #[test]
    fn passes_are_spread_by_interval() {
        let (timers, start) = (RevisionTimers::default(), Instant::now());
        let at = |seconds| {
            timers.next_pass("a", true, start + Duration::from_secs(seconds)).map(|left| left.as_secs())
        };
        assert_eq!([0, 1, 4, 5, 6].map(at), [None, Some(4), Some(1), None, Some(4)]);
        let intervals = [0, 2, 10, 60].map(|age| rollout_interval(Duration::from_secs(age)).as_millis());
        assert_eq!(intervals, [0, 0, 1000, 2000]);
        let rollout = |milliseconds| {
            let left = timers.next_pass("b", false, start + Duration::from_millis(milliseconds));
            left.map(|left| left.as_millis())
        };
        assert_eq!([0, 10_000, 10_500, 11_000].map(rollout), [None, None, Some(500), None]);
        timers.end_passes("b");
        assert_eq!([90_000, 90_001].map(rollout), [None, None], "a new rollout starts without an interval");
    }
}
