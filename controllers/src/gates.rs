//! The feature gates of operator-controller (docs/design/operations.md#feature-gates,
//! docs/design/architecture.md#gates-and-certificates-per-install-file).

use olm_bundle::Certificates;
use olm_extension_controller::Features;
use olm_request::Settings;
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

/// Reads the gates, `--dependency-mode` and `--upgrade-scope`, and logs gates whose value has no effect.
pub(crate) fn features(gates: &FeatureGates, dependencies: DependencyMode, scope: UpgradeScope) -> Features {
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
    Features {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_enabled_certificate_provider_wins() {
        let of = |flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            let gates = FeatureGates::parse(&KNOWN, &flags).unwrap();
            features(&gates, DependencyMode::Reject, UpgradeScope::Major)
        };
        assert_eq!(of(&[]).certificates, Certificates::CertManager);
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
            assert_eq!(of(&flags).certificates, certificates, "{flags:?}");
        }
        assert!(!of(&[]).multi_watch_namespaces);
        assert!(of(&["MultiWatchNamespaces=true"]).multi_watch_namespaces);
        assert!(!of(&[]).owned_api_services && of(&["OwnedAPIServices=true"]).owned_api_services);
        assert!(of(&["DeploymentConfig=true"]).deployment_config);
        assert!(!of(&[]).extension_plans && of(&["ExtensionPlans=true"]).extension_plans);
        assert!(!of(&[]).status_summary && of(&["StatusSummary=true"]).status_summary);
        assert!(!of(&[]).impersonation && of(&["ServiceAccountImpersonation=true"]).impersonation);
        let scoped = |scope| {
            let gates = FeatureGates::parse(&KNOWN, &[]).unwrap();
            features(&gates, DependencyMode::Reject, scope).settings.upgrade_scope
        };
        assert_eq!(scoped(UpgradeScope::Minor), Some(UpgradeScope::Minor));
        assert_eq!(scoped(UpgradeScope::Major), None);
        // Case additions-a01
        assert_eq!(of(&[]).settings, Settings::default());
        let ours = of(&["BestEffortResolution=true,ClusterConstraints=true"]).settings;
        assert!(ours.best_effort && ours.cluster_constraints && !ours.update_notifications);
        assert!(of(&["UpdateNotifications=true"]).settings.update_notifications);
        assert!(of(&["OperatorConditionCompat=true"]).settings.operator_conditions);
    }
}
