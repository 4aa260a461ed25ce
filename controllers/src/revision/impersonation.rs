//! Identity used to read, apply and remove the objects of a revision: that of operator-controller, or of the service
//! account that the revision names (docs/design/additions.md#service-account-impersonation). Watches and all other
//! requests use that of operator-controller.

use http::HeaderValue;
use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_revision::engine::Engine;

use super::Context;
use crate::certificates::CertifiedCluster;

impl Context {
    /// Returns the engine for the objects of this revision.
    ///
    /// # Errors
    /// The revision names an invalid service account.
    pub(super) fn engine_of(&self, set: &ClusterObjectSet) -> Result<Engine<CertifiedCluster>, String> {
        let mut cluster = self.engine.cluster().clone();
        let account = set.annotations().get(annotations::EXT_SERVICE_ACCOUNT);
        if let Some(user) = user(account, &self.system_namespace)? {
            cluster.cluster = cluster.cluster.acting_as(user);
        }
        Ok(self.engine.on(cluster))
    }
}

/// Returns the user name of the service account `<namespace>/<name>`. Accounts of `system_namespace` are refused: they
/// belong to operator-controller and catalogd, and the revision would gain their rights.
pub(crate) fn user(account: Option<&String>, system_namespace: &str) -> Result<Option<HeaderValue>, String> {
    let Some(account) = account else { return Ok(None) };
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
    use super::*;

    #[test]
    fn service_account_outside_of_system_namespace_is_accepted() {
        let of = |account: &str| user(Some(&account.to_owned()), "system");
        assert_eq!(user(None, "system"), Ok(None));
        let named = HeaderValue::from_static("system:serviceaccount:ns:installer");
        assert_eq!(of("ns/installer"), Ok(Some(named)));
        for wrong in ["", "installer", "ns/", "/installer", "a/b/c", "ns/a\nb", "system/operator-controller"]
        {
            let error = of(wrong).unwrap_err();
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
