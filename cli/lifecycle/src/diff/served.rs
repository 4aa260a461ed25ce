//! Writers of custom resources in versions that an upgrade no longer serves. The API server records the version of each
//! write in `managedFields`. Clients that only read leave no trace.

use std::collections::BTreeSet;

use kube::api::{Api, DynamicObject, ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use olm_cli_core::error::CliError;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::served_kind;
use olm_runtime::cluster::{describe, within_deadline};
use serde_json::Value;

use super::cluster::ComparedExtension;
use crate::crd_check::{CrdResult, UnservedVersion};

/// Page size of list calls.
const PAGE: u32 = 500;
/// Highest number of custom resources that are read of a kind. All are kept at once.
const MOST: usize = 10_000;

/// Counts the custom resources that were written in versions that are no longer served. `live` has the CRDs of the
/// cluster. Returns a warning for each CRD whose custom resources cannot be read.
///
/// # Errors
/// A signal arrived.
pub(super) async fn count_writers(
    crds: &mut [CrdResult],
    live: &[Value],
    compared: &ComparedExtension<'_>,
) -> Result<Vec<String>, CliError> {
    let mut warnings = Vec::new();
    for crd in crds.iter_mut().filter(|crd| !crd.no_longer_served.is_empty()) {
        let found = live.iter().find(|found| found["metadata"]["name"] == crd.name.as_str());
        let Some(kind) = found.and_then(served_kind) else { continue };
        let _step = compared.session.progress.step(format!("looking for clients of {}", crd.name));
        match compared.session.interruptible(writes(compared, &kind)).await? {
            Ok(objects) => {
                for version in &mut crd.no_longer_served {
                    record(version, &kind.group, &objects);
                }
            }
            Err(why) => {
                let name = &crd.name;
                warnings.push(format!(
                    "clients of {name} are not known, because its custom resources cannot be listed: {why}"
                ));
            }
        }
    }
    Ok(warnings)
}

/// Manager and API version of each write that the custom resources record.
async fn writes(
    compared: &ComparedExtension<'_>,
    kind: &GroupVersionKind,
) -> Result<Vec<Vec<(String, String)>>, String> {
    let client = compared.cluster.client();
    let found = KubeCluster::new(client.clone()).discover(kind).await;
    let (resource, _) = found.map_err(|error| error.to_string())?;
    let api: &Api<DynamicObject> = &Api::all_with(client.clone(), &resource);
    let page = |page: ListParams| async move {
        let mut found = within_deadline(api.list_metadata(&page)).await?;
        found.items.iter_mut().for_each(reduce);
        Ok::<_, kube::Error>(found)
    };
    let mut parameters = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let found = page(parameters.clone()).await.map_err(|error| describe(&error))?;
        all.extend(found.items.into_iter().map(writers));
        match found.metadata.continue_.filter(|token| !token.is_empty() && all.len() < MOST) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Removes what is not used: all objects of a kind are kept at once.
fn reduce(object: &mut PartialObjectMeta<DynamicObject>) {
    let mut fields = object.metadata.managed_fields.take().unwrap_or_default();
    fields.iter_mut().for_each(|entry| entry.fields_v1 = None);
    object.metadata = Default::default();
    object.metadata.managed_fields = Some(fields);
}

fn writers(object: PartialObjectMeta<DynamicObject>) -> Vec<(String, String)> {
    let fields = object.metadata.managed_fields.unwrap_or_default();
    fields.into_iter().filter_map(|entry| Some((entry.manager?, entry.api_version?))).collect()
}

/// Records objects and managers of the writes in `version`.
fn record(version: &mut UnservedVersion, group: &str, objects: &[Vec<(String, String)>]) {
    let api_version = format!("{group}/{}", version.version);
    let of = |writes: &[(String, String)]| -> BTreeSet<String> {
        let ours = writes.iter().filter(|(_, used)| *used == api_version);
        ours.map(|(manager, _)| manager.clone()).collect()
    };
    let managers: Vec<_> =
        objects.iter().map(|writes| of(writes)).filter(|found| !found.is_empty()).collect();
    version.objects = Some(managers.len());
    version.is_minimum = objects.len() >= MOST;
    version.managers = managers.into_iter().flatten().collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_the_version_are_counted_by_object_and_manager() {
        let write = |manager: &str, version: &str| (manager.to_owned(), format!("example.com/{version}"));
        let objects = [
            vec![write("kubectl", "v1beta1"), write("lamp-operator", "v1")],
            vec![write("lamp-operator", "v1")],
            vec![write("argocd", "v1beta1"), write("kubectl", "v1beta1")],
        ];
        let mut version = UnservedVersion::new("v1beta1");
        assert_eq!(version.to_string(), "v1beta1 is no longer served: clients that use it fail");
        record(&mut version, "example.com", &objects);
        assert_eq!(
            version.to_string(),
            "v1beta1 is no longer served: clients that use it fail; 2 custom resources were written in it, by argocd, kubectl"
        );
        record(&mut version, "other.com", &objects);
        assert_eq!(
            version.to_string(),
            "v1beta1 is no longer served: clients that use it fail; no custom resource was written in it"
        );
    }
}
