//! Revisions that were left behind when an extension was deleted without them become those of the extension that is made
//! again under its name (docs/design/apply.md#recreated-extensions): also the older ones, which nobody decides about
//! any more, and also while no bundle can be chosen. Otherwise they would stay for ever when that one goes. Those
//! that still name the former extension as their owner go with it, and hand over what the extension of that name
//! lists by then.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use olm_api::{ClusterExtension, ClusterObjectSet, names};
use olm_revision::generate::extension_owner;
use olm_service::cluster::within_deadline;
use serde_json::json;

use super::Context;
use crate::failure::Failure;

impl Context {
    /// Sees that each of these revisions has an owner. Answers whether the extension is still there: the owner is also
    /// taken off while the extension is being deleted without its revisions, and then they must stay without, or they
    /// would go with it.
    ///
    /// # Errors
    /// The API server refuses.
    pub(super) async fn own_orphans(
        &self,
        extension: &ClusterExtension,
        sets: &[Arc<ClusterObjectSet>],
    ) -> Result<bool, Failure> {
        let name = extension.name_any();
        let orphans: Vec<_> = sets.iter().filter(|set| is_orphan(set)).collect();
        if orphans.is_empty() {
            return Ok(true);
        }
        let owner = extension_owner(&name, &extension.uid().unwrap_or_default());
        let stays = self.revisions.extension_stays(&owner).await;
        if !stays.map_err(|error| error.context("taking up revisions"))? {
            return Ok(false);
        }
        let params = PatchParams {
            field_manager: Some(names::EXTENSION_CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        for set in orphans {
            let patch = Patch::Merge(
                json!({"metadata": {"uid": set.uid(), "resourceVersion": set.resource_version(),
                    "ownerReferences": [owner.clone()]}}),
            );
            match within_deadline(self.sets.patch(&set.name_any(), &params, &patch)).await {
                Ok(_) => {
                    tracing::info!(extension = name, revision = set.name_any(), "revision taken up again")
                }
                // It is gone or has changed: an event follows.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
                Err(error) => {
                    let context = format!("taking up revision {:?}", set.name_any());
                    return Err(Failure::api(&error).context(context));
                }
            }
        }
        Ok(true)
    }
}

/// Whether nobody owns the revision, and nobody has deleted it.
fn is_orphan(set: &ClusterObjectSet) -> bool {
    set.metadata.deletion_timestamp.is_none() && set.owner_references().is_empty()
}
