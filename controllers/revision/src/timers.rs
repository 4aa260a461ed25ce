//! Durations of the waits of revisions, in monotonic time: steps of the wall clock do not affect them.

use std::collections::HashMap;
use std::fmt::Debug;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use olm_controller_core::ages::Ages;
use olm_revision::object::ObjectKey;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum delay between two polls of an unchanged state.
const LONGEST_POLL: Duration = Duration::from_secs(60);

/// Minimum time between two passes over a superseded or paused revision.
const PASS_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the time until `due`, or `None` if it has passed.
fn time_left(due: Instant, now: Instant) -> Option<Duration> {
    Some(due.duration_since(now)).filter(|left| !left.is_zero())
}

/// Wait states by UID of the revision.
#[derive(Debug, Default)]
pub(super) struct RevisionTimers(Mutex<HashMap<String, RevisionTimer>>);

#[derive(Debug, Default)]
struct RevisionTimer {
    ages: Ages,
    /// Result of the last poll, and the time of its first occurrence.
    found: Option<(String, Instant)>,
    /// State of the revision at the last pass, and the time of that.
    last_pass: Option<(Option<u64>, Instant)>,
    /// Time of the last status write of a rollout that progresses, or of the first deferred one.
    status_write: Option<Instant>,
    /// Time since which no operator is ready.
    unattended: Option<Instant>,
    /// Unready Deployment, the time of the next read of its pods, and the cause found last.
    unready: Option<(ObjectKey, Instant, Option<String>)>,
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

    /// Returns the delay of the next pass over a superseded or paused revision, or `None` if it is due: also when the
    /// hash `state` of the revision differs from that of the last pass.
    pub(super) fn next_pass(&self, uid: &str, state: Option<u64>, now: Instant) -> Option<Duration> {
        let (passed, at) = self.0.lock().get(uid)?.last_pass?;
        time_left(at + PASS_INTERVAL, now).filter(|_| passed == state)
    }

    /// Returns `true` if the last pass found the revision in this state.
    pub(super) fn is_state_of_last_pass(&self, uid: &str, state: Option<u64>) -> bool {
        let last = self.0.lock().get(uid).and_then(|timer| timer.last_pass);
        last.is_some_and(|(passed, _)| passed == state)
    }

    /// Records a pass.
    pub(super) fn end_pass(&self, uid: &str, state: Option<u64>, now: Instant) {
        self.0.lock().entry(uid.to_owned()).or_default().last_pass = Some((state, now));
    }

    /// Returns the delay of the next status write of a rollout, or `None` if it is due, and then records `now`.
    pub(super) fn next_status_write(&self, uid: &str, interval: Duration, now: Instant) -> Option<Duration> {
        let mut timers = self.0.lock();
        let last = timers.entry(uid.to_owned()).or_default().status_write.get_or_insert(now);
        let left = time_left(*last + interval, now);
        if left.is_none() {
            *last = now;
        }
        left
    }

    /// Resets the interval of [`Self::next_status_write`].
    pub(super) fn end_rollout(&self, uid: &str) {
        if let Some(timer) = self.0.lock().get_mut(uid) {
            timer.status_write = None;
        }
    }

    /// Returns the time for which every pass has found no ready operator.
    pub(super) fn unattended(&self, uid: &str, has_operator: bool, now: Instant) -> Duration {
        let mut timers = self.0.lock();
        let since = &mut timers.entry(uid.to_owned()).or_default().unattended;
        *since = if has_operator { None } else { since.or(Some(now)) };
        since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Returns the cause found last for this unready Deployment, and the delay until its pods are to be read. If that is
    /// zero, records a read.
    pub(super) fn pods_unready(
        &self,
        uid: &str,
        key: &ObjectKey,
        interval: Duration,
        now: Instant,
    ) -> (Option<String>, Duration) {
        let mut timers = self.0.lock();
        let unready = &mut timers.entry(uid.to_owned()).or_default().unready;
        if unready.as_ref().is_none_or(|(known, ..)| known != key) {
            *unready = Some((key.clone(), now + interval, None));
        }
        let Some((_, due, cause)) = unready else { return (None, interval) };
        let left = time_left(*due, now).unwrap_or_default();
        if left.is_zero() {
            *due = now + interval;
        }
        (cause.clone(), left)
    }

    /// Records the cause that the pods of the unready Deployment have.
    pub(super) fn pods_explained(&self, uid: &str, cause: Option<String>) {
        if let Some((.., found)) = self.0.lock().get_mut(uid).and_then(|timer| timer.unready.as_mut()) {
            *found = cause;
        }
    }

    /// Ends the time since which a Deployment is unready.
    pub(super) fn pods_ready(&self, uid: &str) {
        if let Some(timer) = self.0.lock().get_mut(uid) {
            timer.unready = None;
        }
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
    fn ready_operator_resets_time_without_ready_operator() {
        let (timers, start) = (RevisionTimers::default(), Instant::now());
        let seen = [(0, false), (8, false), (9, true), (10, false), (13, false)];
        let lasted =
            seen.map(|(at, has)| timers.unattended("a", has, start + Duration::from_secs(at)).as_secs());
        assert_eq!(lasted, [0, 8, 0, 0, 3]);
    }

    #[test]
    fn pass_over_unchanged_state_waits_for_interval() {
        let (timers, start) = (RevisionTimers::default(), Instant::now());
        let left = |state, seconds| {
            let left = timers.next_pass("a", Some(state), start + Duration::from_secs(seconds));
            left.map(|left| left.as_secs())
        };
        assert_eq!(left(1, 0), None);
        timers.end_pass("a", Some(1), start);
        assert_eq!([0, 4, 5].map(|seconds| left(1, seconds)), [Some(5), Some(1), None]);
        assert_eq!(left(2, 1), None, "the revision has changed");
    }

    #[test]
    fn status_write_of_rollout_waits_for_interval() {
        let (timers, start) = (RevisionTimers::default(), Instant::now());
        let write = |seconds| {
            let now = start + Duration::from_secs(seconds);
            timers.next_status_write("b", Duration::from_secs(5), now).map(|left| left.as_secs())
        };
        assert_eq!([0, 2, 10, 11, 15].map(write), [Some(5), Some(3), None, Some(4), None]);
        timers.end_rollout("b");
        assert_eq!([90, 95].map(write), [Some(5), None], "a new rollout starts anew");
    }
}
