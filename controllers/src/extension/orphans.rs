//! Revisions that were left behind when an extension was deleted without them become those of the extension that is made
//! again under its name (spec 05 §12): also the older ones, which nobody decides about any more, and also while no bundle
//! can be chosen. Otherwise they would stay for ever when that one goes. Those that still name the former extension as
//! their owner go with it, and hand over what the extension of that name lists by then.

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
        let uid = extension.uid().unwrap_or_default();
        let orphans: Vec<_> = sets.iter().filter(|set| is_orphan(set)).collect();
        if orphans.is_empty() {
            return Ok(true);
        }
        let live = within_deadline(self.extensions.get_opt(&name)).await;
        let live = live.map_err(|error| Failure::api(&error).context("taking up revisions"))?;
        let is_there = |live: &ClusterExtension| {
            live.uid() == extension.uid() && live.metadata.deletion_timestamp.is_none()
        };
        if !live.as_ref().is_some_and(is_there) {
            return Ok(false);
        }
        let owner = extension_owner(&name, &uid);
        let params = PatchParams {
            field_manager: Some(names::EXTENSION_CONTROLLER_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        for set in orphans {
            let patch =
                Patch::Merge(json!({"metadata": {"uid": set.uid(), "ownerReferences": [owner.clone()]}}));
            match within_deadline(self.sets.patch(&set.name_any(), &params, &patch)).await {
                Ok(_) => {
                    tracing::info!(extension = name, revision = set.name_any(), "revision taken up again")
                }
                // It is gone, or another one has its name.
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
