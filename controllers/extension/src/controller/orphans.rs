//! Adopts revisions that were orphaned by the deletion of an extension, after an extension of the same name was
//! created (docs/design/apply.md#recreated-extensions). This includes old revisions and works while no bundle can
//! be chosen. Otherwise they would outlive the new extension. Revisions that still have the former extension as
//! owner are deleted with it, and hand their objects over to the extension of that name.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet, names};
use olm_controller_core::install_error::InstallError;
use olm_controller_core::membership::extension_stays;
use olm_revision::generate::extension_owner;
use olm_runtime::cluster::within_deadline;
use serde_json::json;

/// Sets the owner of each orphaned revision. Returns `false` if a revision changed since it was read, or if the
/// extension is gone or being deleted: orphaning removes the owners too, and a revision with a restored owner
/// would be deleted with the extension.
///
/// # Errors
/// The API server rejects a request.
pub(super) async fn adopt_orphans(
    client: &Client,
    extension: &ClusterExtension,
    revisions: &[Arc<ClusterObjectSet>],
) -> Result<bool, InstallError> {
    let name = extension.name_any();
    let orphans: Vec<_> = revisions.iter().filter(|revision| is_orphan(revision)).collect();
    if orphans.is_empty() {
        return Ok(true);
    }
    let owner = extension_owner(&name, &extension.uid().unwrap_or_default());
    let stays = extension_stays(client, &owner).await;
    if !stays.map_err(|error| error.context("adopting revisions"))? {
        return Ok(false);
    }
    let api: Api<ClusterObjectSet> = Api::all(client.clone());
    let (params, mut is_done) = (PatchParams::apply(names::EXTENSION_CONTROLLER_MANAGER), true);
    for revision in orphans {
        let patch = Patch::Merge(
            json!({"metadata": {"uid": revision.uid(), "resourceVersion": revision.resource_version(),
                "ownerReferences": [owner.clone()]}}),
        );
        match within_deadline(api.patch(&revision.name_any(), &params, &patch)).await {
            Ok(_) => {
                tracing::info!(extension = name, revision = revision.name_any(), "adopted orphaned revision")
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => is_done = false,
            Err(error) => {
                let context = format!("adopting revision {:?}", revision.name_any());
                return Err(InstallError::api(&error).context(context));
            }
        }
    }
    Ok(is_done)
}

/// Reports whether the revision has no owner and is not being deleted.
fn is_orphan(revision: &ClusterObjectSet) -> bool {
    revision.metadata.deletion_timestamp.is_none() && revision.owner_references().is_empty()
}
