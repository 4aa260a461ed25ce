//! Membership of revisions in an extension (docs/design/apply.md#revision-membership).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterExtension, ClusterObjectSet, labels, names};
use olm_runtime::cluster::within_deadline;

use crate::install_error::InstallError;

/// Reports whether a ClusterObjectSet with the label of this extension belongs to it: it has no controller, or an
/// extension of that name is its controller. That extension may have been deleted with orphan propagation and
/// recreated (docs/design/apply.md#recreated-extensions, docs/design/apply.md#revision-membership).
pub fn belongs_to(revision: &ClusterObjectSet, extension: &str) -> bool {
    revision.controller().is_none_or(|owner| {
        owner.kind == labels::OWNER_KIND_EXTENSION
            && owner.api_version.starts_with(&format!("{}/", names::GROUP))
            && owner.name == extension
    })
}

/// Reports whether the revision is being deleted with a former extension of the same name. `uid` is that of the
/// current one (docs/design/apply.md#recreated-extensions).
pub fn is_of_former(revision: &ClusterObjectSet, uid: Option<&str>) -> bool {
    revision.metadata.deletion_timestamp.is_some()
        && revision.controller().is_some_and(|owner| Some(owner.uid.as_str()) != uid)
}

/// Reports whether the extension of this owner reference exists and is not being deleted.
///
/// # Errors
/// The API server did not answer.
pub async fn extension_stays(client: &Client, owner: &OwnerReference) -> Result<bool, InstallError> {
    let live = live_extension(client, owner).await?;
    Ok(live.is_some_and(|live| live.metadata.deletion_timestamp.is_none()))
}

/// The extension of an owner reference. `None` if it does not exist, or has another UID.
///
/// # Errors
/// The API server did not answer.
pub async fn live_extension(
    client: &Client,
    owner: &OwnerReference,
) -> Result<Option<PartialObjectMeta<ClusterExtension>>, InstallError> {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let live = within_deadline(api.get_metadata_opt(&owner.name)).await;
    let live = live.map_err(|error| InstallError::api(&error))?;
    Ok(live.filter(|live| live.uid().as_ref() == Some(&owner.uid)))
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use serde_json::json;

    use super::*;

    fn set() -> ClusterObjectSet {
        ClusterObjectSet { metadata: ObjectMeta::default(), spec: None, status: None }
    }

    // docs/design/apply.md#revision-membership
    #[test]
    fn revision_of_other_controller_is_ignored() {
        let owned = |kind: &str, api_version: &str, name: &str, controller: bool| {
            let mut set = set();
            let owner = json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "u",
                "controller": controller}]);
            set.metadata.owner_references = serde_json::from_value(owner).unwrap();
            belongs_to(&set, "demo")
        };
        let v1 = "olm.operatorframework.io/v1";
        assert!(belongs_to(&set(), "demo"));
        assert!(owned("ClusterExtension", v1, "demo", true));
        assert!(owned("Whatever", "example.com/v1", "demo", false));
        assert!(!owned("ClusterExtension", v1, "other", true));
        assert!(!owned("ClusterExtension", "example.com/v1", "demo", true));
        assert!(!owned("Whatever", v1, "demo", true));
    }
}
