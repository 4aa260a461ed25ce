//! What the controllers read from the content of a revision.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use olm_api::{ClusterObjectSetSpec, annotations};
use olm_revision::content::{SecretKey, secrets};
use serde_json::Value;

use crate::install_error::{InstallError, api_request};

/// Existing Secrets with the content of a revision. A failed read is an error: unreachable content must not be
/// treated as lost.
pub async fn content_secrets(
    client: &Client,
    spec: Option<&ClusterObjectSetSpec>,
    system_namespace: &str,
) -> Result<BTreeMap<SecretKey, Secret>, InstallError> {
    let mut found = BTreeMap::new();
    for key in spec.into_iter().flat_map(|spec| secrets(spec, system_namespace)) {
        let api: Api<Secret> = Api::namespaced(client.clone(), &key.namespace);
        let secret = api_request(api.get_opt(&key.name), format!("getting Secret {key}")).await?;
        found.extend(secret.map(|secret| (key, secret)));
    }
    Ok(found)
}

/// Target namespaces that the pods of the first Deployment get. An empty name means all namespaces, as in the status
/// of an OperatorGroup of classic OLM. Empty without a Deployment.
pub fn target_namespaces<'a>(objects: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let annotations = "/spec/template/metadata/annotations";
    let mut deployments = objects.filter(|object| object["kind"] == "Deployment");
    let list =
        deployments.find_map(|one| one.pointer(annotations)?.get(annotations::TARGET_NAMESPACES)?.as_str());
    list.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn target_namespaces_are_those_of_the_pods() {
        let deployment = |list: &str| {
            json!({"kind": "Deployment",
                "spec": {"template": {"metadata": {"annotations": {"olm.targetNamespaces": list}}}}})
        };
        let other = json!({"kind": "Role"});
        for (objects, expected) in [
            (vec![other.clone(), deployment("a,b")], vec!["a", "b"]),
            (vec![deployment("")], vec![""]),
            (vec![other], vec![]),
        ] {
            assert_eq!(target_namespaces(objects.iter()), expected);
        }
    }
}
