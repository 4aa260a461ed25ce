//! The feature gates of operator-controller (docs/design/operations.md#feature-gates,
//! docs/design/architecture.md#gates-and-certificates-per-install-file).

use olm_api::ClusterExtension;
use olm_bundle::Certificates;
use olm_request::{ExtensionRules, Settings};
use olm_resolve::{DependencyMode, UpgradeScope};
use olm_runtime::gates::{FeatureGates, Gate, Stage};

/// Webhook certificates issued by the built-in provider.
const BUILTIN: &str = "WebhookProviderBuiltin";
const CERT_MANAGER: &str = "WebhookProviderCertManager";
const OPENSHIFT: &str = "WebhookProviderOpenshiftServiceCA";
const OWN_NAMESPACE: &str = "SingleOwnNamespaceInstallSupport";
const DEPLOYMENT_CONFIG: &str = "DeploymentConfig";
/// Bundles may watch a list of namespaces (docs/design/additions.md#several-namespaces).
const MULTI_WATCH: &str = "MultiWatchNamespaces";
/// Bundles may serve aggregated APIs (docs/design/bundles.md#aggregated-apis).
const OWNED_API_SERVICES: &str = "OwnedAPIServices";
/// Objects of an extension are applied as its service account
/// (docs/design/additions.md#service-account-impersonation).
const IMPERSONATION: &str = "ServiceAccountImpersonation";
/// Waiting plans are objects that can be approved (docs/design/approvals.md#plan-objects).
const EXTENSION_PLANS: &str = "ExtensionPlans";
const RELEASES: &str = "BundleReleaseSupport";
const REVISIONS: &str = "BoxcutterRuntime";
/// Unavailable catalogs may be skipped (docs/design/additions.md#best-effort-resolution).
const BEST_EFFORT: &str = "BestEffortResolution";
/// Bundles that violate constraints on the cluster are skipped.
const CLUSTER_CONSTRAINTS: &str = "ClusterConstraints";
/// Operators report in OperatorConditions whether they may be replaced (docs/design/approvals.md#operator-conditions).
const OPERATOR_CONDITIONS: &str = "OperatorConditionCompat";
/// Conditions `Ready`, `Reconciling` and `Stalled` (docs/design/additions.md#status-summary).
const STATUS_SUMMARY: &str = "StatusSummary";
/// Condition `UpgradeAvailable` names newer versions outside of the version range, too
/// (docs/design/additions.md#update-notifications).
const UPDATE_NOTIFICATIONS: &str = "UpdateNotifications";
/// Reports whether the installed extensions allow the platform's next version
/// (docs/design/operations.md#feature-gates).
pub(crate) const UPGRADE_STATUS: &str = "ClusterUpgradeStatus";

/// All gates that `--feature-gates` accepts.
pub const KNOWN: [Gate; 17] = [
    Gate { name: BEST_EFFORT, default: false, stage: Stage::Alpha },
    Gate { name: RELEASES, default: false, stage: Stage::Alpha },
    Gate { name: REVISIONS, default: true, stage: Stage::Alpha },
    Gate { name: CLUSTER_CONSTRAINTS, default: false, stage: Stage::Alpha },
    Gate { name: UPGRADE_STATUS, default: true, stage: Stage::Alpha },
    Gate { name: DEPLOYMENT_CONFIG, default: false, stage: Stage::Alpha },
    Gate { name: EXTENSION_PLANS, default: false, stage: Stage::Alpha },
    Gate { name: MULTI_WATCH, default: false, stage: Stage::Alpha },
    Gate { name: OPERATOR_CONDITIONS, default: false, stage: Stage::Alpha },
    Gate { name: OWNED_API_SERVICES, default: false, stage: Stage::Alpha },
    Gate { name: IMPERSONATION, default: false, stage: Stage::Alpha },
    Gate { name: OWN_NAMESPACE, default: false, stage: Stage::Alpha },
    Gate { name: STATUS_SUMMARY, default: false, stage: Stage::Alpha },
    Gate { name: UPDATE_NOTIFICATIONS, default: false, stage: Stage::Alpha },
    Gate { name: BUILTIN, default: false, stage: Stage::Alpha },
    Gate { name: CERT_MANAGER, default: true, stage: Stage::Ga },
    Gate { name: OPENSHIFT, default: true, stage: Stage::Ga },
];

/// Effect of the gates, and of `--dependency-mode` and `--upgrade-scope`, on extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Features {
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

    /// Reads the gates and logs those whose value has no effect.
    pub(crate) fn of(gates: &FeatureGates, dependencies: DependencyMode, scope: UpgradeScope) -> Self {
        if !gates.enabled(REVISIONS) {
            tracing::warn!("BoxcutterRuntime=false has no effect: the revision-based runtime is always used");
        }
        let providers = [
            (CERT_MANAGER, Certificates::CertManager),
            (OPENSHIFT, Certificates::OpenshiftServiceCa),
            (BUILTIN, Certificates::Builtin),
        ];
        let enabled = providers.iter().find(|(gate, _)| gates.enabled(gate));
        if let Some((gate, _)) = enabled.filter(|(gate, _)| *gate != BUILTIN && gates.enabled(BUILTIN)) {
            tracing::warn!("WebhookProviderBuiltin=true has no effect: {gate} takes precedence");
        }
        let certificates = enabled.map_or(Certificates::None, |(_, provider)| *provider);
        Self {
            single_own_namespace: gates.enabled(OWN_NAMESPACE),
            deployment_config: gates.enabled(DEPLOYMENT_CONFIG),
            multi_watch_namespaces: gates.enabled(MULTI_WATCH),
            owned_api_services: gates.enabled(OWNED_API_SERVICES),
            impersonation: gates.enabled(IMPERSONATION),
            status_summary: gates.enabled(STATUS_SUMMARY),
            extension_plans: gates.enabled(EXTENSION_PLANS),
            certificates,
            settings: Settings {
                dependencies,
                upgrade_scope: Some(scope).filter(|scope| *scope != UpgradeScope::Major),
                best_effort: gates.enabled(BEST_EFFORT),
                cluster_constraints: gates.enabled(CLUSTER_CONSTRAINTS),
                releases: gates.enabled(RELEASES),
                update_notifications: gates.enabled(UPDATE_NOTIFICATIONS),
                operator_conditions: gates.enabled(OPERATOR_CONDITIONS),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_enabled_certificate_provider_wins() {
        let features = |flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            Features::of(
                &FeatureGates::parse(&KNOWN, &flags).unwrap(),
                DependencyMode::Reject,
                UpgradeScope::Major,
            )
        };
        assert_eq!(features(&[]).certificates, Certificates::CertManager);
        let no_cert_manager = "WebhookProviderCertManager=false";
        let no_other = "WebhookProviderCertManager=false,WebhookProviderOpenshiftServiceCA=false";
        let builtin = "WebhookProviderBuiltin=true";
        for (flags, certificates) in [
            (vec![builtin], Certificates::CertManager),
            (vec![no_cert_manager], Certificates::OpenshiftServiceCa),
            (vec![no_cert_manager, builtin], Certificates::OpenshiftServiceCa),
            (vec![no_other], Certificates::None),
            (vec![no_other, builtin], Certificates::Builtin),
        ] {
            assert_eq!(features(&flags).certificates, certificates, "{flags:?}");
        }
        assert!(!features(&[]).multi_watch_namespaces);
        assert!(features(&["MultiWatchNamespaces=true"]).multi_watch_namespaces);
        assert!(!features(&[]).owned_api_services && features(&["OwnedAPIServices=true"]).owned_api_services);
        assert!(features(&["DeploymentConfig=true"]).deployment_config);
        assert!(!features(&[]).extension_plans && features(&["ExtensionPlans=true"]).extension_plans);
        assert!(!features(&[]).status_summary && features(&["StatusSummary=true"]).status_summary);
        assert!(
            !features(&[]).impersonation && features(&["ServiceAccountImpersonation=true"]).impersonation
        );
        let scoped = |scope| {
            let gates = FeatureGates::parse(&KNOWN, &[]).unwrap();
            Features::of(&gates, DependencyMode::Reject, scope).settings.upgrade_scope
        };
        assert_eq!(scoped(UpgradeScope::Minor), Some(UpgradeScope::Minor));
        assert_eq!(scoped(UpgradeScope::Major), None);
        // Case additions-a01
        assert_eq!(features(&[]).settings, Settings::default());
        let ours = features(&["BestEffortResolution=true,ClusterConstraints=true"]).settings;
        assert!(ours.best_effort && ours.cluster_constraints && !ours.update_notifications);
        assert!(features(&["UpdateNotifications=true"]).settings.update_notifications);
        assert!(features(&["OperatorConditionCompat=true"]).settings.operator_conditions);
    }
}
