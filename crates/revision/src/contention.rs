//! Contention: another client changes a field again after each correction (docs/design/apply.md#contention).
//!
//! Pure: the time is a parameter.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::object::ObjectKey;

/// Corrections of one field against one manager within [`WINDOW`] after which further ones are delayed.
const LIMIT: usize = 5;
/// Time without a correction after which all is forgotten.
pub const WINDOW: Duration = Duration::from_secs(10 * 60);
/// Delay of the first correction after the limit. Each further one doubles it.
const FIRST_DELAY: Duration = Duration::from_secs(10);
/// Maximum delay.
const LONGEST_DELAY: Duration = Duration::from_secs(6 * 60);
/// Number of fields in a summary.
const SHOWN_FIELDS: usize = 3;

/// Field that was corrected, and the manager that had changed it. Empty if no manager owns it: it was removed. The path
/// of the whole object is empty, too, with the UID of the revision that created it again.
type Field = (String, String);

/// Corrections of one field against one manager.
#[derive(Clone, Debug, Default)]
struct Streak {
    /// Times of the last [`LIMIT`] corrections, oldest first.
    recent: Vec<Instant>,
    count: u32,
    /// Corrections since the limit was reached.
    delayed: u32,
}

impl Streak {
    fn record(&mut self, now: Instant) {
        self.count += 1;
        self.recent.push(now);
        if self.recent.len() > LIMIT {
            self.recent.remove(0);
        }
        let is_frequent = self.recent.len() == LIMIT && now.duration_since(self.recent[0]) <= WINDOW;
        if self.delayed > 0 || is_frequent {
            self.delayed += 1;
        }
    }

    fn last(&self) -> Option<Instant> {
        self.recent.last().copied()
    }

    fn is_over(&self, now: Instant) -> bool {
        self.last().is_none_or(|last| now.duration_since(last) >= WINDOW)
    }

    /// Time of the next correction, if it is delayed.
    fn due(&self) -> Option<Instant> {
        let doublings = self.delayed.checked_sub(1)?;
        let delay = FIRST_DELAY.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_DELAY);
        Some(self.last()? + delay)
    }
}

/// Corrections by object.
#[derive(Debug, Default)]
pub struct Contentions(Mutex<HashMap<ObjectKey, BTreeMap<Field, Streak>>>);

/// Fields of an object that another client changes again and again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contention {
    /// Corrected fields in the order of their paths.
    pub fields: Vec<ContendedField>,
    /// Time until the next correction of the object, zero unless it is delayed.
    pub delay: Duration,
}

/// Field that another client has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContendedField {
    /// Path such as `.spec.replicas`. Empty for the object, which was deleted.
    pub path: String,
    /// Field manager of the other client. Empty if the field was removed, whose manager is unknown.
    pub manager: String,
    /// Corrections without 10 minutes between two of them.
    pub count: u32,
}

impl Contention {
    /// Formats `.spec.replicas, changed 3 times by "k9s"; .metadata.labels.a, removed` with the first three fields.
    pub fn summary(&self) -> String {
        let times = |count: u32| if count == 1 { String::new() } else { format!(" {count} times") };
        let field = |field: &ContendedField| match field.manager.as_str() {
            _ if field.path.is_empty() => format!("the object, deleted{}", times(field.count)),
            "" => format!("{}, removed{}", field.path, times(field.count)),
            manager => format!("{}, changed{} by {manager:?}", field.path, times(field.count)),
        };
        let mut fields: Vec<String> = self.fields.iter().take(SHOWN_FIELDS).map(field).collect();
        let more = self.fields.len().saturating_sub(SHOWN_FIELDS);
        fields.extend((more > 0).then(|| format!("and {more} more fields")));
        fields.join("; ")
    }

    /// `true` if this correction is the first after which further ones are delayed.
    pub fn begins(&self) -> bool {
        self.delay == FIRST_DELAY
    }
}

impl Contentions {
    /// Records a correction of these fields, by manager, and returns the resulting state.
    pub fn record(
        &self,
        key: &ObjectKey,
        corrected: &BTreeMap<String, Vec<String>>,
        now: Instant,
    ) -> Contention {
        let mut all = self.0.lock();
        all.retain(|_, streaks| {
            streaks.retain(|_, streak| !streak.is_over(now));
            !streaks.is_empty()
        });
        let streaks = all.entry(key.clone()).or_default();
        let mut fields = Vec::new();
        for (manager, paths) in corrected {
            for path in paths {
                let streak = streaks.entry((path.clone(), manager.clone())).or_default();
                streak.record(now);
                let manager = if path.is_empty() { String::new() } else { manager.clone() };
                let path = path.clone();
                fields.push(ContendedField { path, manager, count: streak.count });
            }
        }
        fields.sort_by(|a, b| a.path.cmp(&b.path));
        Contention { fields, delay: delay(streaks.values(), now) }
    }

    /// Records that the revision with this UID created an object again after another client had deleted it.
    pub(crate) fn record_deletion(&self, key: &ObjectKey, revision: &str, now: Instant) -> Contention {
        self.record(key, &BTreeMap::from([(revision.to_owned(), vec![String::new()])]), now)
    }

    /// `true` if the revision created the object again before, within the time that is remembered.
    pub(crate) fn was_deleted(&self, key: &ObjectKey, revision: &str) -> bool {
        let all = self.0.lock();
        all.get(key).is_some_and(|streaks| streaks.keys().any(|field| is_deletion(field, revision)))
    }

    /// State of an object whose next correction is not due yet, without the fields. For a missing object, only former
    /// deletions count, and only after creations by `creator`.
    pub fn delayed(&self, key: &ObjectKey, creator: Option<&str>, now: Instant) -> Option<Contention> {
        let all = self.0.lock();
        let counts = |field: &Field| match creator {
            Some(revision) => is_deletion(field, revision),
            None => !field.0.is_empty(),
        };
        let streaks = all.get(key)?.iter().filter(|(field, _)| counts(field));
        let delay = delay(streaks.map(|(_, streak)| streak), now);
        (!delay.is_zero()).then(|| Contention { delay, ..Contention::default() })
    }
}

fn is_deletion((path, manager): &Field, revision: &str) -> bool {
    path.is_empty() && manager == revision
}

/// Time until the next correction of an object with these streaks: the longest one of its fields.
fn delay<'a>(streaks: impl Iterator<Item = &'a Streak>, now: Instant) -> Duration {
    let due = streaks.filter(|streak| !streak.is_over(now)).filter_map(Streak::due).max();
    due.map_or(Duration::ZERO, |due| due.duration_since(now))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Corrections of an object by a controller that corrects at once unless it must wait, against a client that changes
    /// the field at these times.
    fn corrections(changes: &[Duration]) -> Vec<Duration> {
        let (contentions, start) = (Contentions::default(), Instant::now());
        let key = ObjectKey::of(&serde_json::json!({"kind": "ConfigMap", "metadata": {"name": "a"}}));
        let field = BTreeMap::from([("m".to_owned(), vec![".data.k".to_owned()])]);
        let mut done: Vec<Duration> = Vec::new();
        for change in changes {
            // A change while one waits is corrected together with it.
            if done.last().is_some_and(|last| last > change) {
                continue;
            }
            let wait =
                contentions.delayed(&key, None, start + *change).map_or(Duration::ZERO, |found| found.delay);
            contentions.record(&key, &field, start + *change + wait);
            done.push(*change + wait);
        }
        done
    }

    #[test]
    fn corrections_of_a_hot_loop_back_off_to_six_minutes() {
        let changes: Vec<Duration> = (0..3600).map(Duration::from_secs).collect();
        let times: Vec<u64> = corrections(&changes).iter().map(Duration::as_secs).collect();
        assert_eq!(times[..12], [0, 1, 2, 3, 4, 14, 34, 74, 154, 314, 634, 994]);
        assert_eq!(times.len(), 20);
    }

    #[test]
    fn corrections_start_anew_after_ten_quiet_minutes() {
        let second = Duration::from_secs;
        let mut changes: Vec<Duration> = (0..5).map(second).collect();
        changes.extend([second(604), second(605), second(606)]);
        let expected = changes.clone();
        assert_eq!(corrections(&changes), expected);
        // Rare changes are always corrected at once.
        let changes: Vec<Duration> = (0..50).map(|index| second(151 * index)).collect();
        assert_eq!(corrections(&changes), changes);
    }

    #[test]
    fn other_managers_and_fields_have_their_own_counts() {
        let (contentions, now) = (Contentions::default(), Instant::now());
        let key = ObjectKey::of(&serde_json::json!({"kind": "ConfigMap", "metadata": {"name": "a"}}));
        let by = |manager: &str, path: &str| BTreeMap::from([(manager.to_owned(), vec![path.to_owned()])]);
        for _ in 0..4 {
            for (manager, path) in [("m", ".a"), ("n", ".a"), ("", ".b")] {
                assert_eq!(contentions.record(&key, &by(manager, path), now).delay, Duration::ZERO);
            }
        }
        let found = contentions.record(&key, &by("m", ".a"), now);
        assert!(found.begins());
        assert_eq!(found.summary(), ".a, changed 5 times by \"m\"");
        assert_eq!(contentions.delayed(&key, None, now).unwrap().delay, found.delay);
        assert_eq!(contentions.delayed(&key, Some("r"), now), None);
        let found = contentions.record(&key, &by("", ".b"), now + Duration::from_secs(1));
        assert_eq!(found.summary(), ".b, removed 5 times");
        let other = ObjectKey { name: "b".to_owned(), ..key };
        assert_eq!(contentions.delayed(&other, None, now), None);
        for _ in 0..4 {
            contentions.record_deletion(&other, "r", now);
        }
        assert!(
            contentions.was_deleted(&other, "r") && contentions.delayed(&other, Some("r"), now).is_none()
        );
        let found = contentions.record_deletion(&other, "r", now);
        assert_eq!(found.summary(), "the object, deleted 5 times");
        assert_eq!(contentions.delayed(&other, Some("r"), now).unwrap().delay, found.delay);
        assert_eq!(contentions.delayed(&other, None, now), None);
        assert_eq!(contentions.delayed(&other, Some("s"), now), None, "another revision");
        assert!(!contentions.was_deleted(&other, "s"));
    }

    proptest! {
        #[test]
        fn corrections_are_bounded_and_never_stop(gaps in prop::collection::vec(0_u64..900, 1..200)) {
            let mut at = Duration::ZERO;
            let changes: Vec<Duration> = gaps.iter().map(|gap| { at += Duration::from_secs(*gap); at }).collect();
            let done = corrections(&changes);
            for change in &changes {
                let next = done.iter().find(|done| *done >= change);
                let late = next.map(|next| *next - *change);
                prop_assert!(late.is_some_and(|late| late <= LONGEST_DELAY), "{change:?} {late:?}");
                let before = done.iter().filter(|done| *done < change && **done + WINDOW > *change).count();
                if before == 0 {
                    prop_assert_eq!(late, Some(Duration::ZERO), "after a quiet time");
                }
            }
            for window in done.windows(12) {
                // 5 at once, then with delays of 10, 20, 40, 80, 160, 320 and 360 s.
                prop_assert!(window[11] - window[0] >= WINDOW, "{window:?}");
            }
        }
    }
}
