//! Identity used to read, apply and remove the objects of a revision: our own, or that of the service account that
//! the revision names (docs/design/additions.md#service-account-impersonation). Watches and all other requests use
//! our own.

use http::HeaderValue;
use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_revision::engine::Engine;
use olm_revision::kube_cluster::KubeCluster;

use super::Context;

impl Context {
    /// Returns the engine for the objects of this revision.
    ///
    /// # Errors
    /// The revision names an invalid service account.
    pub(super) fn engine_of(&self, set: &ClusterObjectSet) -> Result<Engine<KubeCluster>, String> {
        let cluster = self.engine.cluster();
        Ok(self.engine.on(match user(set, &self.system_namespace)? {
            Some(user) => cluster.acting_as(user),
            None => cluster.clone(),
        }))
    }
}

/// Returns the user name of the service account that the revision names. Accounts of `system_namespace` are refused:
/// they belong to us and catalogd, and the revision would gain their rights.
fn user(set: &ClusterObjectSet, system_namespace: &str) -> Result<Option<HeaderValue>, String> {
    let Some(account) = set.annotations().get(annotations::EXT_SERVICE_ACCOUNT) else { return Ok(None) };
    let user = account
        .split_once('/')
        .filter(|(namespace, name)| ![*namespace, *name].contains(&"") && !name.contains('/'))
        .filter(|(namespace, _)| *namespace != system_namespace)
        .and_then(|(namespace, name)| {
            HeaderValue::from_str(&format!("system:serviceaccount:{namespace}:{name}")).ok()
        });
    user.map(Some).ok_or_else(|| {
        let key = annotations::EXT_SERVICE_ACCOUNT;
        format!(
            "annotation {key}: Invalid value: {account:?}: must be <namespace>/<name> of a service account outside of \
             {system_namespace}"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn service_account_outside_of_system_namespace_is_accepted() {
        let set = |account: Option<&str>| -> ClusterObjectSet {
            let annotations = account.map(|account| json!({annotations::EXT_SERVICE_ACCOUNT: account}));
            serde_json::from_value(json!({"apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterObjectSet", "metadata": {"name": "demo-1", "annotations": annotations}}))
            .unwrap()
        };
        assert_eq!(user(&set(None), "system"), Ok(None));
        let named = HeaderValue::from_static("system:serviceaccount:ns:installer");
        assert_eq!(user(&set(Some("ns/installer")), "system"), Ok(Some(named)));
        for wrong in ["", "installer", "ns/", "/installer", "a/b/c", "ns/a\nb", "system/operator-controller"]
        {
            let error = user(&set(Some(wrong)), "system").unwrap_err();
            assert_eq!(
                error,
                format!(
                    "annotation ext.olm.operatorframework.io/service-account: Invalid value: {wrong:?}: must be \
                     <namespace>/<name> of a service account outside of system"
                )
            );
        }
    }
}
