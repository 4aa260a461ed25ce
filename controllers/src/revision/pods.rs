//! Explains why the pods of a Deployment are not ready (docs/design/apply.md#blocked-pods).

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_revision::blocked_pods::{MARK, of_pods, selector};
use olm_revision::object::ObjectKey;
use olm_revision::result::RevisionResult;
use olm_runtime::cluster::within_deadline;
use serde_json::Value;
use tokio::time::Instant;

use super::Context;
use super::drift::extension_of;

const REASON: &str = "PodsNotReady";
/// Maximum number of pods that are read.
const PODS: u32 = 20;

impl Context {
    /// Message of condition Available for a revision that is not complete, with the cause for which the pods of its first
    /// unready Deployment are not ready, and the delay until that has to be read again.
    pub(super) async fn explained(
        &self,
        set: &ClusterObjectSet,
        result: &RevisionResult,
    ) -> (Option<String>, Option<Duration>) {
        let (lines, uid) = (result.probe_failures(), set.uid().unwrap_or_default());
        let unready = result.first_unready().filter(|(key, _)| is_deployment(key) && self.is_newest(set));
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
            self.events.warning(about(set), REASON, lines.clone());
        }
        (Some(lines), again)
    }

    /// Ends what [`Self::explained`] reported.
    pub(super) fn pods_are_ready(&self, set: &ClusterObjectSet) {
        self.timers.pods_ready(&set.uid().unwrap_or_default());
        // The Event of the newest revision, which has the same extension, does not end with an older one.
        if self.is_newest(set) {
            self.events.over(&about(set), REASON);
        }
    }

    /// Cause in the pods of this Deployment. `None` also without the right to read them.
    async fn cause(&self, key: &ObjectKey) -> Option<String> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &key.namespace);
        let deployment = within_deadline(deployments.get(&key.name)).await.ok()?;
        let selected =
            ListParams::default().labels(&selector(&serde_json::to_value(deployment).ok()?)?).limit(PODS);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
        let pods = within_deadline(pods.list(&selected)).await.ok()?;
        let pods: Vec<Value> = pods.iter().filter_map(|pod| serde_json::to_value(pod).ok()).collect();
        Some(of_pods(&pods, jiff::Timestamp::now())?.text)
    }
}

fn is_deployment(key: &ObjectKey) -> bool {
    key.gvk.kind == "Deployment" && key.gvk.group == "apps"
}

/// The extension of the revision, else the revision.
fn about(set: &ClusterObjectSet) -> ObjectReference {
    extension_of(set).unwrap_or_else(|| ObjectReference { uid: set.uid(), ..set.object_ref(&()) })
}
