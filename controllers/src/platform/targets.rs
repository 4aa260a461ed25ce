//! Possible upgrades of extensions whose bundle limits the platform (docs/design/operations.md#upgrade-targets). The
//! extension controller, which has the catalogs, records them. The platform controller reads them.

use std::collections::HashMap;
use std::sync::Arc;

use olm_platform::UpgradeTarget;
use olm_resolve::Reach;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Possible upgrades by extension, best first.
#[derive(Debug, Default)]
pub struct UpgradeTargets {
    known: Mutex<HashMap<String, Arc<[UpgradeTarget]>>>,
    changed: Notify,
}

impl UpgradeTargets {
    /// Records the upgrades of an extension.
    pub(crate) fn record(&self, extension: &str, reach: &Reach) {
        let hops = reach.best_first().into_iter();
        let targets: Arc<[UpgradeTarget]> =
            hops.map(|hop| UpgradeTarget::new(&hop.version, hop.offer.platform_limits())).collect();
        let before = self.known.lock().insert(extension.to_owned(), Arc::clone(&targets));
        if before.as_ref() != Some(&targets) {
            self.changed.notify_one();
        }
    }

    /// Forgets a deleted extension.
    pub(crate) fn forget(&self, extension: &str) {
        self.known.lock().remove(extension);
    }

    /// Returns the upgrades of all extensions that have been recorded.
    pub(super) fn all(&self) -> HashMap<String, Arc<[UpgradeTarget]>> {
        self.known.lock().clone()
    }

    /// Waits for a change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_a_change_notifies() {
        let targets = UpgradeTargets::default();
        let is_notified = || targets.changed().now_or_never().is_some();
        targets.record("a", &Reach::default());
        assert!(is_notified());
        targets.record("a", &Reach::default());
        assert!(!is_notified());
        assert_eq!(targets.all().len(), 1);
        targets.forget("a");
        assert!(targets.all().is_empty() && !is_notified());
    }
}
