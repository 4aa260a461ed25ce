//! Explains why the pods of a Deployment are not ready (docs/design/apply.md#blocked-pods).

use std::time::Duration;

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_revision::blocked_pods::MARK;
use olm_revision::cluster::Cluster;
use olm_revision::object::ObjectKey;
use olm_revision::result::RevisionResult;
use tokio::time::Instant;

use super::Context;
use super::drift::subject_of;

const REASON: &str = "PodsNotReady";

impl Context {
    /// Message of condition Available for a revision that is not complete, with the cause for which the pods of its first
    /// unready Deployment are not ready, and the delay until that has to be read again.
    pub(super) async fn explained(
        &self,
        set: &ClusterObjectSet,
        result: &RevisionResult,
    ) -> (Option<String>, Option<Duration>) {
        let (lines, uid) = (result.probe_failures(), set.uid().unwrap_or_default());
        let unready =
            result.first_unready().filter(|(key, _)| key.is("apps", "Deployment") && self.is_newest(set));
        let (Some(mut lines), Some((key, line))) = (lines.clone(), unready) else {
            self.timers.pods_ready(&uid);
            return (lines, None);
        };
        let mut again = None;
        if !line.contains(MARK) {
            let (interval, now) = (self.pace.unready, Instant::now());
            let (mut cause, left) = self.timers.pods_unready(&uid, key, interval, now);
            if left.is_zero() {
                cause = self.cause(key).await;
                self.timers.pods_explained(&uid, cause.clone());
            }
            again = Some(if left.is_zero() { interval } else { left });
            lines = lines.replacen(line, &format!("{line}{}", cause.unwrap_or_default()), 1);
        }
        if lines.contains(MARK) {
            self.events.warning(subject_of(set), REASON, lines.clone());
        }
        (Some(lines), again)
    }

    /// Ends what [`Self::explained`] reported.
    pub(super) fn pods_are_ready(&self, set: &ClusterObjectSet) {
        self.timers.pods_ready(&set.uid().unwrap_or_default());
        // The Event of the newest revision, which has the same extension, does not end with an older one.
        if self.is_newest(set) {
            self.events.resolved(&subject_of(set), REASON);
        }
    }

    /// Cause for which pods of this Deployment are not ready. `None` also without the right to read it or them.
    async fn cause(&self, key: &ObjectKey) -> Option<String> {
        let cluster = &self.engine.cluster().cluster;
        let deployment = cluster.get(key).await.ok()??;
        Some(cluster.blocked_pods(&deployment).await?.text)
    }
}
