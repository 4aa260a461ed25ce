//! Creation of webhook configurations with their CA bundle. The API server calls a new webhook at once, and such calls
//! fail without it, although the server runs already.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use olm_api::labels;
use olm_api::names::WEBHOOK_CERTIFICATES_MANAGER;
use olm_bundle::{Injection, InjectionKind};
use olm_revision::cluster::{Answer, Cluster, ClusterError, Instances};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_runtime::cluster::within_deadline;
use serde_json::Value;

use super::injection::injected;
use super::needs::ca_secret;
use super::secrets::trusted;

/// Cluster of the engine.
#[derive(Clone)]
pub struct CertifiedCluster {
    /// Cluster with the identity of a revision.
    pub cluster: KubeCluster,
    /// Client with our own identity.
    pub client: Client,
}

impl CertifiedCluster {
    /// Server-side apply that sets the CA bundle of a webhook configuration. `None` for other objects, and without a CA.
    async fn injection(&self, object: &Value) -> Option<Value> {
        let injection = Injection::of(object)
            .filter(|found| matches!(found.kind, InjectionKind::Validating | InjectionKind::Mutating))?;
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &injection.serving.namespace);
        let secret = async |name: &str| within_deadline(secrets.get(name)).await.ok();
        let (ca, leaf) =
            (secret(&ca_secret(&injection.serving)).await?, secret(&injection.serving.secret).await);
        let extension = object["metadata"]["labels"][labels::OWNER_NAME].as_str()?;
        let is_of_extension = ca.labels().get(labels::OWNER_NAME).is_some_and(|name| name == extension)
            && ca.labels().contains_key(labels::EXT_WEBHOOK_CERTIFICATE);
        let bundle = trusted(&ca, leaf.as_ref(), Timestamp::now());
        if !is_of_extension || bundle.is_empty() {
            None
        } else {
            injected(object, &injection, extension, &bundle)
        }
    }
}

impl Cluster for CertifiedCluster {
    async fn get(&self, key: &ObjectKey) -> Answer<Option<Value>> {
        self.cluster.get(key).await
    }

    async fn create(&self, object: &Value) -> Answer<Value> {
        let Some(mut patch) = self.injection(object).await else { return self.cluster.create(object).await };
        let created = self.cluster.create(&with_bundle(object, &patch)).await?;
        // The engine applies without the bundle, so that the field needs a second owner, as after each injection.
        patch["metadata"]["uid"] = created["metadata"]["uid"].clone();
        let key = ObjectKey::of(object);
        let GroupVersionKind { group, version, kind } = &key.gvk;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let params = PatchParams::apply(WEBHOOK_CERTIFICATES_MANAGER).force();
        match within_deadline(api.patch(&key.name, &params, &Patch::Apply(&patch))).await {
            Ok(injected) => Ok(serde_json::to_value(injected).unwrap_or(created)),
            Err(error) => {
                tracing::warn!(kind, name = key.name, %error, "CA bundle of a new object is injected later");
                Ok(created)
            }
        }
    }

    async fn apply(&self, object: &Value, dry_run: bool) -> Answer<Value> {
        self.cluster.apply(object, dry_run).await
    }

    async fn merge(&self, key: &ObjectKey, patch: &Value) -> Answer<Value> {
        self.cluster.merge(key, patch).await
    }

    async fn delete(&self, key: &ObjectKey, uid: &str, resource_version: &str) -> Result<bool, ClusterError> {
        self.cluster.delete(key, uid, resource_version).await
    }

    async fn instances(&self, gvk: &GroupVersionKind) -> Answer<Option<Instances>> {
        self.cluster.instances(gvk).await
    }

    async fn is_autoscaled(&self, key: &ObjectKey) -> bool {
        self.cluster.is_autoscaled(key).await
    }
}

/// The webhook configuration `object` with the CA bundles of `patch`.
fn with_bundle(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    let injected = patch["webhooks"].as_array().into_iter().flatten();
    for entry in injected {
        let webhooks = object["webhooks"].as_array_mut().into_iter().flatten();
        for webhook in webhooks.filter(|webhook| webhook["name"] == entry["name"]) {
            webhook["clientConfig"]["caBundle"] = entry["clientConfig"]["caBundle"].clone();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_listed_webhooks_get_the_bundle() {
        let object = json!({"webhooks": [{"name": "a", "clientConfig": {"x": 1}}, {"name": "b"}]});
        let patch = json!({"webhooks": [{"name": "a", "clientConfig": {"caBundle": "c"}}]});
        let expected =
            json!({"webhooks": [{"name": "a", "clientConfig": {"x": 1, "caBundle": "c"}}, {"name": "b"}]});
        assert_eq!(with_bundle(&object, &patch), expected);
    }
}
