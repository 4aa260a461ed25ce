//! Objects that the policies of `hardened.yaml` deny operator-controller (docs/design/operations.md#hardened-rights), found
//! by dry runs before anything is written.

use olm_api::names;
use olm_controller_core::install_error::InstallError;
use olm_revision::cluster::Cluster as _;
use olm_revision::kube_cluster::KubeCluster;
use serde_json::{Value, json};

use super::{MAX_CONCURRENT_CALLS, Preflight, collect_some};

/// Beginning of the names of the policies in a message of the API server.
const POLICIES: &str = "ValidatingAdmissionPolicy 'operator-controller-";

impl Preflight {
    /// Returns a message with the reasons of the policies, or `None` if they deny nothing.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(super) async fn denied_objects(
        &self,
        extension: &str,
        objects: &[Value],
    ) -> Result<Option<String>, InstallError> {
        let cluster = KubeCluster::new(self.client.clone());
        let denial = |object: &Value| {
            let (cluster, object) = (cluster.clone(), of_revision(object, extension));
            async move {
                let error = cluster.apply(&object, true).await.err();
                // Other errors are those of the rollout.
                Ok(error.map(|error| error.message).filter(|message| message.contains(POLICIES)))
            }
        };
        let limited = objects.iter().filter(|object| is_limited(object)).map(denial);
        let denials = collect_some(limited.collect(), MAX_CONCURRENT_CALLS).await?;
        let message = || {
            format!("operator-controller lacks the permission to write some objects: {}", denials.join("; "))
        };
        Ok((!denials.is_empty()).then(message))
    }
}

/// Kinds of which the policies deny some objects in every namespace.
fn is_limited(object: &Value) -> bool {
    let is_token = object["type"] == "kubernetes.io/service-account-token";
    match object["kind"].as_str() {
        Some("MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" | "ClusterRole") => true,
        Some("Secret") => is_token,
        _ => false,
    }
}

/// The object with the kind of owner that the policies require.
fn of_revision(object: &Value, extension: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": format!("{}/v1", names::GROUP),
        "kind": "ClusterObjectSet", "name": extension, "uid": "dry-run"}]);
    object
}
