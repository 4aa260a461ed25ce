//! Metadata that the controller maintains on a revision: the finalizer and the record of its objects.

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterObjectSet, annotations, finalizers};
use olm_revision::content::ContentPhase;
use olm_revision::record;
use olm_runtime::cluster::within_deadline;
use olm_runtime::reconcile::ReconcileError;
use serde_json::{Value, json};

use super::Context;
use super::removal::has_finalizer;

impl Context {
    /// Adds the finalizer, and the record of `phases` if it is missing, before anything is applied.
    pub(super) async fn add_finalizer(
        &self,
        set: &ClusterObjectSet,
        phases: &[ContentPhase],
    ) -> Result<ClusterObjectSet, ReconcileError> {
        let record = record::missing(set, phases);
        if has_finalizer(set, finalizers::TEARDOWN) && record.is_none() {
            return Ok(set.clone());
        }
        let mut all = set.finalizers().to_vec();
        if !has_finalizer(set, finalizers::TEARDOWN) {
            all.push(finalizers::TEARDOWN.to_owned());
        }
        let mut metadata = json!({ "finalizers": all });
        if let Some(record) = record {
            metadata["annotations"] = json!({ annotations::EXT_OBJECTS: record });
        }
        let stored = self.patch_metadata(set, metadata).await;
        stored.map_err(|error| ReconcileError::write("error ensuring teardown finalizer", &error))
    }

    pub(super) async fn remove_finalizer(&self, set: &ClusterObjectSet) -> Result<(), ReconcileError> {
        if !has_finalizer(set, finalizers::TEARDOWN) {
            return Ok(());
        }
        let left: Vec<&String> =
            set.finalizers().iter().filter(|name| *name != finalizers::TEARDOWN).collect();
        match self.patch_metadata(set, json!({ "finalizers": left })).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            stored => stored
                .map(drop)
                .map_err(|error| ReconcileError::write("error removing teardown finalizer", &error)),
        }
    }

    /// Patches `metadata` with the UID and resourceVersion of `set` as preconditions.
    async fn patch_metadata(
        &self,
        set: &ClusterObjectSet,
        mut metadata: Value,
    ) -> Result<ClusterObjectSet, kube::Error> {
        metadata["uid"] = json!(set.metadata.uid);
        metadata["resourceVersion"] = json!(set.metadata.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let stored = within_deadline(self.sets.patch(&set.name_any(), &PatchParams::default(), &patch)).await;
        stored.inspect(|stored| self.writes.note(stored))
    }
}
