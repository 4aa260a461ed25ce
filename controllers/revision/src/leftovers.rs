//! Reports what a removal cannot delete (docs/design/apply.md#denied-deletions): while it lasts, and at its end.

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_revision::teardown::TeardownResult;
use olm_runtime::reconcile::ReconcileError;

use super::Context;
use super::drift::subject_of;
use super::status::RevisionOutcome;

/// Reason of the Event about custom resources that outlive their revision.
const CUSTOM_RESOURCES_LEFT: &str = "CustomResourcesLeft";
/// Reason of the Event about objects whose deletion is denied.
const DELETION_DENIED: &str = "DeletionDenied";
/// Reason of the Event about objects that outlive their revision, because their deletion was denied until the end.
const OBJECTS_LEFT: &str = "ObjectsLeft";

impl Context {
    /// Reports custom resources and objects that outlive the revision. Under foreground deletion the revision waits
    /// for them.
    pub(super) async fn report_left(
        &self,
        set: &ClusterObjectSet,
        done: &TeardownResult,
    ) -> Result<ClusterObjectSet, ReconcileError> {
        let (revision, left, denied) = (set.name_any(), done.terminating.join("; "), done.denials());
        let mut notes = Vec::new();
        if !left.is_empty() {
            let note = format!(
                "revision {revision} is removed, but custom resources are left: {left}; remove their finalizers if the \
                 operator cannot"
            );
            notes.push((CUSTOM_RESOURCES_LEFT, note));
        }
        if !denied.is_empty() {
            let note = format!(
                "revision {revision} is removed, but objects are left, because their deletion is denied: {denied}"
            );
            notes.push((OBJECTS_LEFT, note));
        }
        if notes.is_empty() {
            return Ok(set.clone());
        }
        done.denied.iter().for_each(|(key, _)| self.revision_metrics.left(&key.gvk));
        notes.iter().for_each(|(reason, note)| self.publish(set, reason, note.clone()));
        let notes: Vec<String> = notes.into_iter().map(|(_, note)| note).collect();
        self.write_outcome(set, &RevisionOutcome::Blocked(notes.join("; "))).await
    }

    /// Reports objects whose deletion is denied.
    pub(super) fn report_denied(&self, set: &ClusterObjectSet, result: &TeardownResult) {
        if !result.denied.is_empty() {
            self.publish(set, DELETION_DENIED, result.denials());
        }
    }

    /// Logs a warning and publishes it on the extension, or on the revision if it has none.
    fn publish(&self, set: &ClusterObjectSet, reason: &'static str, note: String) {
        tracing::warn!(revision = set.name_any(), reason, note, "removal is incomplete");
        self.events.warning(subject_of(set), reason, note);
    }
}
