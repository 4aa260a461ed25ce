//! Effect of the feature gates on extensions (docs/design/operations.md#feature-gates).

use kube::runtime::reflector::{ObjectRef, Store};
use olm_api::ClusterExtension;
use olm_bundle::Certificates;
use olm_request::{ExtensionRules, Settings};

/// Effect of the gates, and of `--dependency-mode`, on extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `true` if bundles that only watch one namespace are accepted.
    pub single_own_namespace: bool,
    /// `true` if `deploymentConfig` is accepted.
    pub deployment_config: bool,
    /// `true` if bundles may watch a list of namespaces.
    pub multi_watch_namespaces: bool,
    /// `true` if bundles may serve aggregated APIs.
    pub owned_api_services: bool,
    /// `true` if objects are applied as the service account that their extension names.
    pub impersonation: bool,
    /// `true` if extensions and revisions get a status summary.
    pub status_summary: bool,
    /// `true` if plans that wait are written as ExtensionPlans.
    pub extension_plans: bool,
    /// Provider of webhook certificates.
    pub certificates: Certificates,
    /// Settings of resolution.
    pub settings: Settings,
}

impl Features {
    /// Rules of the annotations of an extension.
    pub(crate) fn rules(self, extension: &ClusterExtension) -> ExtensionRules {
        ExtensionRules::of(extension.metadata.annotations.as_ref(), self.settings)
    }

    /// `<namespace>/<name>` of the service account that applies and deletes the objects of the extension. `None`
    /// means the service account of the controller.
    pub(crate) fn account(self, extension: &ClusterExtension) -> Option<String> {
        let spec = extension.spec.as_ref().filter(|_| self.impersonation)?;
        let account = spec.service_account.as_ref().filter(|account| !account.name.is_empty())?;
        Some(format!("{}/{}", spec.namespace, account.name))
    }

    /// Reports whether the extension requires protection of its dependencies of this property type.
    pub(crate) fn protects(
        self,
        extensions: &Store<ClusterExtension>,
        extension: &str,
        property_type: &str,
    ) -> bool {
        extensions.get(&ObjectRef::new(extension)).is_some_and(|extension| {
            let rules = self.rules(&extension);
            rules.protect(&extension) && rules.counts(property_type)
        })
    }
}
