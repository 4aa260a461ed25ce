//! Identity used to read, apply and remove the objects of a revision: that of operator-controller, or of the service
//! account that the revision names (docs/design/additions.md#service-account-impersonation). Watches and all other
//! requests use that of operator-controller.

use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use olm_controller_core::service_account;
use olm_revision::engine::Engine;
use olm_webhook_certificates::CertifiedCluster;

use super::Context;

impl Context {
    /// Returns the engine for the objects of this revision.
    ///
    /// # Errors
    /// The revision names an invalid service account.
    pub(super) fn engine_of(&self, set: &ClusterObjectSet) -> Result<Engine<CertifiedCluster>, String> {
        let mut cluster = self.engine.cluster().clone();
        let account = set.annotations().get(annotations::EXT_SERVICE_ACCOUNT);
        if let Some(user) = service_account::user(account, &self.system_namespace)? {
            cluster.cluster = cluster.cluster.acting_as(user);
        }
        Ok(self.engine.on(cluster))
    }
}
