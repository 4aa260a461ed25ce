//! Kinds of the objects of a bundle, shipped or generated (docs/design/bundles.md#shipped-objects).

use serde::Serialize;

/// Kind of objects that a bundle ships, or that rendering generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleKind {
    /// API group. Empty for the core group.
    pub group: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// Namespace of its objects.
    pub scope: Scope,
    /// Phase of a revision that applies its objects (docs/design/apply.md#phases).
    pub phase: &'static str,
    /// `true` if a bundle may ship such objects besides its ClusterServiceVersion and CRDs.
    pub shipped: bool,
    /// The version that every API server serves. `None` for a kind whose CRD or server a cluster may lack.
    pub built_in: Option<&'static str>,
}

/// Namespace of the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// None: the kind is cluster-scoped.
    Cluster,
    /// The install namespace.
    InstallNamespace,
    /// As authored.
    AuthoredNamespace,
}

impl Scope {
    /// Returns `cluster`, `install namespace` or `namespace as authored`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cluster => "cluster",
            Self::InstallNamespace => "install namespace",
            Self::AuthoredNamespace => "namespace as authored",
        }
    }
}

use Scope::{AuthoredNamespace, Cluster, InstallNamespace};

const ADMISSION: &str = "admissionregistration.k8s.io";
const CONSOLE: &str = "console.openshift.io";
const MONITORING: &str = "monitoring.coreos.com";
const MONITORING_OF_COO: &str = "monitoring.rhobs";
const RBAC: &str = "rbac.authorization.k8s.io";

/// All kinds, sorted by group and kind. Existing revisions contain a `VerticalPodAutoscaler`, which is namespaced, with
/// the authored namespace.
pub const KINDS: [BundleKind; 31] = [
    shipped("", "ConfigMap", InstallNamespace, "configuration").built_in("v1"),
    shipped("", "Secret", InstallNamespace, "configuration").built_in("v1"),
    shipped("", "Service", InstallNamespace, "infrastructure").built_in("v1"),
    shipped("", "ServiceAccount", InstallNamespace, "identity").built_in("v1"),
    generated(ADMISSION, "MutatingWebhookConfiguration", Cluster, "admission").built_in("v1"),
    generated(ADMISSION, "ValidatingWebhookConfiguration", Cluster, "admission").built_in("v1"),
    generated("apiextensions.k8s.io", "CustomResourceDefinition", Cluster, "crds").built_in("v1"),
    generated("apiregistration.k8s.io", "APIService", Cluster, "publish").built_in("v1"),
    generated("apps", "Deployment", InstallNamespace, "deploy").built_in("v1"),
    shipped("autoscaling.k8s.io", "VerticalPodAutoscaler", AuthoredNamespace, "scaling"),
    generated("cert-manager.io", "Certificate", InstallNamespace, "infrastructure"),
    generated("cert-manager.io", "Issuer", InstallNamespace, "infrastructure"),
    shipped(CONSOLE, "ConsoleCLIDownload", Cluster, "publish"),
    shipped(CONSOLE, "ConsoleLink", Cluster, "publish"),
    shipped(CONSOLE, "ConsolePlugin", Cluster, "publish"),
    shipped(CONSOLE, "ConsoleQuickStart", Cluster, "publish"),
    shipped(CONSOLE, "ConsoleYAMLSample", Cluster, "publish"),
    shipped(MONITORING, "PodMonitor", InstallNamespace, "publish"),
    shipped(MONITORING, "PrometheusRule", InstallNamespace, "publish"),
    shipped(MONITORING, "ServiceMonitor", InstallNamespace, "publish"),
    shipped(MONITORING_OF_COO, "PodMonitor", InstallNamespace, "deploy"),
    shipped(MONITORING_OF_COO, "PrometheusRule", InstallNamespace, "deploy"),
    shipped(MONITORING_OF_COO, "ServiceMonitor", InstallNamespace, "deploy"),
    shipped("networking.k8s.io", "NetworkPolicy", InstallNamespace, "policies").built_in("v1"),
    generated("operators.coreos.com", "OperatorCondition", InstallNamespace, "deploy"),
    shipped("policy", "PodDisruptionBudget", InstallNamespace, "policies").built_in("v1"),
    shipped(RBAC, "ClusterRole", Cluster, "roles").built_in("v1"),
    shipped(RBAC, "ClusterRoleBinding", Cluster, "bindings").built_in("v1"),
    shipped(RBAC, "Role", InstallNamespace, "roles").built_in("v1"),
    shipped(RBAC, "RoleBinding", InstallNamespace, "bindings").built_in("v1"),
    shipped("scheduling.k8s.io", "PriorityClass", Cluster, "policies").built_in("v1"),
];

const fn shipped(group: &'static str, kind: &'static str, scope: Scope, phase: &'static str) -> BundleKind {
    BundleKind { group, kind, scope, phase, shipped: true, built_in: None }
}

const fn generated(group: &'static str, kind: &'static str, scope: Scope, phase: &'static str) -> BundleKind {
    BundleKind { shipped: false, ..shipped(group, kind, scope, phase) }
}

impl BundleKind {
    const fn built_in(self, version: &'static str) -> Self {
        Self { built_in: Some(version), ..self }
    }

    /// `apiVersion` that every API server serves, such as `apps/v1`. `None` for a kind that a cluster may lack.
    pub fn api_version(&self) -> Option<String> {
        let version = self.built_in?;
        Some(if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) })
    }

    /// Row of a group and kind.
    pub fn of(group: &str, kind: &str) -> Option<&'static Self> {
        KINDS.iter().find(|row| row.group == group && row.kind == kind)
    }
}

/// Reports whether a bundle may ship objects of this kind. Group and version are ignored.
pub fn is_supported_kind(kind: &str) -> bool {
    KINDS.iter().any(|row| row.shipped && row.kind == kind)
}

/// Namespace of the objects of a kind, in any group. `None` for unknown kinds.
pub(crate) fn scope_of(kind: &str) -> Option<Scope> {
    KINDS.iter().find(|row| row.kind == kind).map(|row| row.scope)
}

/// Reports whether objects of this kind, shipped or generated, are cluster-scoped.
pub(crate) fn is_cluster_scoped(kind: &str) -> bool {
    scope_of(kind) == Some(Cluster)
}

/// Reports whether every API server serves the group.
pub(crate) fn is_built_in(group: &str) -> bool {
    KINDS.iter().any(|row| row.group == group && row.built_in.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_sorted_and_have_one_scope_in_all_groups() {
        assert!(KINDS.is_sorted_by_key(|row| (row.group, row.kind)));
        for row in &KINDS {
            assert_eq!(scope_of(row.kind), Some(row.scope), "{}", row.kind);
        }
    }
}
