//! Custom resources of the CRDs of an extension (docs/design/additions.md#uninstall-policy).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use olm_api::conditions::messages::IN_USE;
use olm_api::limits::LIST_PAGE;
use olm_api::names::KEEPER;
use olm_api::{ClusterExtension, ClusterObjectSet, finalizers, labels};
use olm_controller_core::install_error::{InstallError, api_request};
use olm_revision::cluster::Cluster;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::served_kind;
use olm_runtime::cluster::list_all;

/// Message about the custom resources whose CRDs these revisions own. `None` if there are none.
///
/// # Errors
/// The API server did not answer.
pub(super) async fn in_use(
    client: &Client,
    extension: &ClusterExtension,
    revisions: &[ClusterObjectSet],
) -> Result<Option<String>, InstallError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let selector = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, extension.name_any()));
    let list = async |page| api_request(crds.list(&page), "listing CRDs").await;
    let mut owned = list_all(selector.limit(LIST_PAGE), list).await?;
    let owners: Vec<&str> =
        revisions.iter().filter_map(|revision| revision.metadata.uid.as_deref()).collect();
    // In a foreground deletion, garbage collection has removed the references to the revisions.
    let is_keeper = |owner: &OwnerReference| owner.kind == "Namespace" && owner.name == KEEPER;
    let is_collected = extension.finalizers().iter().any(|finalizer| finalizer == finalizers::FOREGROUND);
    owned.retain(|crd| {
        let is_ours = |owner| is_collected && is_keeper(owner) || owners.contains(&owner.uid.as_str());
        crd.owner_references().iter().any(is_ours)
    });
    owned.sort_by_key(ResourceExt::name_any);
    let cluster = KubeCluster::new(client.clone());
    let (mut count, mut first) = (0, None);
    for crd in &owned {
        let value = serde_json::to_value(crd).unwrap_or_default();
        let Some(kind) = served_kind(&value) else { continue };
        let found = cluster.instances(&kind).await.map_err(|error| {
            let context = format!("listing existing objects of CRD {:?}", crd.name_any());
            InstallError::retry(error).context(context)
        })?;
        if let Some(found) = found {
            count += found.count;
            first.get_or_insert(found.first);
        }
    }
    Ok(first.map(|first| format!("{IN_USE}{count} custom resources exist (first: {first})")))
}
