//! Possible upgrades of extensions whose bundle limits the platform (docs/design/operations.md#upgrade-targets), and the
//! reports of operators about upgrades (docs/design/approvals.md#operator-conditions). Other controllers record them.
//! The platform controller reads them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use olm_api::cluster_upgrade_status::OperatorConditionMirror;
use olm_platform::UpgradeTarget;
use olm_resolve::Reach;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Reports of operators by extension and bundle, each with the UID of its OperatorCondition.
pub type ConditionReports = BTreeMap<(String, String), (String, OperatorConditionMirror)>;

/// Possible upgrades by extension, best first, and reports of operators.
#[derive(Debug, Default)]
pub struct UpgradeTargets {
    known: Mutex<HashMap<String, Arc<[UpgradeTarget]>>>,
    conditions: Mutex<ConditionReports>,
    changed: Notify,
}

impl UpgradeTargets {
    /// Records the upgrades of an extension.
    pub fn record(&self, extension: &str, reach: &Reach) {
        let hops = reach.best_first().into_iter();
        let targets: Arc<[UpgradeTarget]> =
            hops.map(|hop| UpgradeTarget::new(&hop.version, hop.offer.platform_limits())).collect();
        let before = self.known.lock().insert(extension.to_owned(), Arc::clone(&targets));
        if before.as_ref() != Some(&targets) {
            self.changed.notify_one();
        }
    }

    /// Records what the operator of a bundle reports about being upgraded, in the OperatorCondition with this UID. `None`
    /// if it reports nothing.
    pub fn record_condition(
        &self,
        extension: &str,
        (bundle, uid): (&str, &str),
        report: Option<OperatorConditionMirror>,
    ) {
        let key = (extension.to_owned(), bundle.to_owned());
        let mut conditions = self.conditions.lock();
        let report = report.map(|report| (uid.to_owned(), report));
        // An object of another namespace may have this name, too.
        if report.is_none() && conditions.get(&key).is_none_or(|(of, _)| of != uid) {
            return;
        }
        let before = match &report {
            Some(report) => conditions.insert(key, report.clone()),
            None => conditions.remove(&key),
        };
        if before != report {
            self.changed.notify_one();
        }
    }

    /// Forgets a deleted extension.
    pub fn forget(&self, extension: &str) {
        self.known.lock().remove(extension);
        self.conditions.lock().retain(|(of, _), _| of != extension);
    }

    /// Forgets the reports of all operators.
    pub fn forget_conditions(&self) {
        if !std::mem::take(&mut *self.conditions.lock()).is_empty() {
            self.changed.notify_one();
        }
    }

    /// Returns the reports of all operators.
    pub fn conditions(&self) -> ConditionReports {
        self.conditions.lock().clone()
    }

    /// Returns the upgrades of all extensions that have been recorded.
    pub fn all(&self) -> HashMap<String, Arc<[UpgradeTarget]>> {
        self.known.lock().clone()
    }

    /// Waits for a change.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn changed_upgrade_target_or_condition_notifies_once() {
        let targets = UpgradeTargets::default();
        let is_notified = || targets.changed().now_or_never().is_some();
        targets.record("a", &Reach::default());
        assert!(is_notified());
        targets.record("a", &Reach::default());
        assert!(!is_notified());
        assert_eq!(targets.all().len(), 1);
        let report = |status: &str| {
            let (status, reason, message) = (status.to_owned(), String::new(), String::new());
            Some(OperatorConditionMirror { status, reason, message })
        };
        targets.record_condition("a", ("a.v1", "u"), None);
        assert!(!is_notified());
        for status in ["False", "True"] {
            targets.record_condition("a", ("a.v1", "u"), report(status));
            assert!(is_notified());
        }
        targets.record_condition("a", ("a.v1", "u"), report("True"));
        assert!(!is_notified());
        targets.record_condition("a", ("a.v1", "other"), None);
        assert!(!is_notified());
        targets.record_condition("a", ("a.v1", "u"), None);
        assert!(is_notified());
        targets.record_condition("a", ("a.v1", "u"), report("True"));
        assert!(is_notified());
        targets.record_condition("b", ("b.v1", "u"), report("True"));
        assert!(is_notified());
        targets.forget("a");
        assert_eq!(targets.conditions().len(), 1);
        targets.forget_conditions();
        assert!(is_notified());
        targets.forget_conditions();
        assert!(targets.all().is_empty() && targets.conditions().is_empty() && !is_notified());
    }
}
