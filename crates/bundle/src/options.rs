//! Inputs of rendering besides the bundle.

use serde_json::Value;

use crate::bundle::BundleContent;
use crate::certificates::Certificates;
use crate::csv::InstallMode;

/// Inputs of rendering besides the bundle. The default has all feature gates off. Stored renderings have the text of
/// `Debug` in their key, so it must show every field.
#[derive(Debug, Clone, Copy, Default)]
pub struct RenderOptions<'a> {
    /// `spec.namespace` of the ClusterExtension.
    pub install_namespace: &'a str,
    /// `spec.config.inline` of the ClusterExtension, if set.
    pub config: Option<&'a Value>,
    /// Issuer of the certificates for webhooks.
    pub certificates: Certificates,
    /// Feature gate `SingleOwnNamespaceInstallSupport`: accepts bundles without AllNamespaces.
    pub single_own_namespace: bool,
    /// Feature gate `DeploymentConfig`: accepts `deploymentConfig` in the configuration.
    pub deployment_config: bool,
    /// Feature gate `MultiWatchNamespaces`: accepts `watchNamespaces` and `watchNamespaceSelector` in the
    /// configuration if the bundle supports MultiNamespace (docs/design/additions.md#several-namespaces).
    pub multi_watch_namespaces: bool,
    /// Feature gate `OwnedAPIServices`: accepts bundles with owned APIServices
    /// (docs/design/bundles.md#aggregated-apis).
    pub owned_api_services: bool,
    /// Namespaces that `watchNamespaceSelector` of the configuration selects. `None` if it is not resolved
    /// (docs/design/namespaces.md#selector).
    pub selected_namespaces: Option<&'a [String]>,
    /// Feature gate `OperatorConditionCompat`, and the cluster serves OperatorConditions: adds an OperatorCondition
    /// (docs/design/approvals.md#operator-conditions).
    pub operator_condition: bool,
    /// Annotation `aggregate-api-roles`: adds roles for the users of the APIs (docs/design/additions.md#api-roles).
    pub aggregate_api_roles: bool,
}

impl RenderOptions<'_> {
    /// Reports whether `watchNamespaces` is allowed for this bundle.
    pub(crate) fn takes_several_namespaces(&self, bundle: &BundleContent) -> bool {
        self.multi_watch_namespaces && bundle.install_modes().contains(&InstallMode::MultiNamespace)
    }
}
