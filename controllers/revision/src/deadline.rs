//! The progress deadline of a revision (docs/design/apply.md#progress-deadline). Pure.
//!
//! The deadline cannot pass while the revision is paused. A deadline that has passed before remains exceeded.

use jiff::{SignedDuration, Timestamp};
use olm_api::ClusterObjectSet;
use olm_api::cluster_object_set::LifecycleState;
use olm_api::conditions::{reasons, types};

use super::is_paused;

/// Progress deadline of an active revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// `spec.progressDeadlineMinutes`.
    pub minutes: i32,
    /// Duration of these minutes.
    pub limit: SignedDuration,
    /// Start of the deadline.
    pub since: Timestamp,
}

impl Deadline {
    /// Returns the minutes if the deadline has passed at this age of `since`.
    pub(crate) fn exceeded(&self, age: SignedDuration) -> Option<i32> {
        (age >= self.limit).then_some(self.minutes)
    }

    /// Returns the remaining time, if any.
    pub(crate) fn remaining(&self, age: SignedDuration) -> Option<std::time::Duration> {
        std::time::Duration::try_from(self.limit.saturating_sub(age)).ok().filter(|left| !left.is_zero())
    }
}

/// Returns the deadline of an active revision that has never succeeded and is not being deleted, if it has one.
/// `minute` is the duration of one minute.
pub(crate) fn of(set: &ClusterObjectSet, minute: SignedDuration) -> Option<Deadline> {
    let spec = set.spec.as_ref()?;
    let minutes = spec.progress_deadline_minutes.filter(|minutes| *minutes > 0)?;
    let has_run_out = || {
        set.condition(types::PROGRESSING)
            .is_some_and(|progressing| progressing.reason == reasons::PROGRESS_DEADLINE_EXCEEDED)
    };
    if set.is_true(types::SUCCEEDED)
        || is_paused(set) && !has_run_out()
        || spec.lifecycle_state != LifecycleState::Active
        || set.metadata.deletion_timestamp.is_some()
    {
        return None;
    }
    let since = set.metadata.creation_timestamp.as_ref()?.0;
    Some(Deadline { minutes, limit: minute.checked_mul(minutes)?, since })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(set: &ClusterObjectSet) -> Option<Deadline> {
        super::of(set, SignedDuration::from_mins(1))
    }

    fn set(change: impl Fn(&mut serde_json::Value)) -> ClusterObjectSet {
        let mut set = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": "demo-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "progressDeadlineMinutes": 10},
        });
        change(&mut set);
        serde_json::from_value(set).unwrap()
    }

    #[test]
    fn deadline_runs_from_creation_until_success_archival_or_deletion() {
        let deadline = of(&set(|_| ())).unwrap();
        assert_eq!(deadline.since, "2026-01-01T00:00:00Z".parse().unwrap());
        let (before, at) = (SignedDuration::from_secs(599), SignedDuration::from_secs(600));
        assert_eq!((deadline.exceeded(before), deadline.exceeded(at)), (None, Some(10)));
        assert_eq!(deadline.remaining(before).unwrap().as_secs(), 1);
        assert_eq!(deadline.remaining(at), None);
        let off: [fn(&mut serde_json::Value); 5] = [
            |set| set["metadata"]["annotations"] = json!({"ext.olm.operatorframework.io/paused": "true"}),
            |set| set["spec"]["progressDeadlineMinutes"] = json!(null),
            |set| set["spec"]["lifecycleState"] = json!("Archived"),
            |set| set["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            |set| {
                set["status"] = json!({"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
            },
        ];
        for change in off {
            assert_eq!(of(&set(change)), None);
        }
    }

    #[test]
    fn pause_does_not_reset_exceeded_deadline() {
        let late = set(|set| {
            set["metadata"]["annotations"] = json!({"ext.olm.operatorframework.io/paused": "true"});
            set["status"] = json!({"conditions": [{"type": "Progressing", "status": "False", "message": "",
                "reason": "ProgressDeadlineExceeded", "lastTransitionTime": "2026-01-01T00:10:00Z"}]});
        });
        assert_eq!(of(&late).unwrap().exceeded(SignedDuration::from_mins(11)), Some(10));
    }
}
