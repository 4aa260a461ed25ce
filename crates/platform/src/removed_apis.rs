//! API versions that a Kubernetes release stops serving (docs/design/operations.md#removed-apis).

use crate::version::MinorVersion;

/// API version, its kinds, and the minor of Kubernetes 1.x that no longer serves them. Sorted by that minor.
///
/// Sources: the deprecated API migration guide
/// (<https://kubernetes.io/docs/reference/using-api/deprecation-guide/>), and for later releases the functions
/// `APILifecycleRemoved` of `k8s.io/api` v0.36.3, which the API server obeys. Before 1.31 it holds only kinds that a
/// registry+v1 bundle may contain: every supported cluster refuses the others.
const REMOVED: [(&str, &[&str], u64); 25] = [
    ("extensions/v1beta1", &["NetworkPolicy"], 16),
    (
        "admissionregistration.k8s.io/v1beta1",
        &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
        22,
    ),
    ("apiextensions.k8s.io/v1beta1", &["CustomResourceDefinition"], 22),
    ("rbac.authorization.k8s.io/v1beta1", &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"], 22),
    ("scheduling.k8s.io/v1beta1", &["PriorityClass"], 22),
    ("policy/v1beta1", &["PodDisruptionBudget"], 25),
    (
        "admissionregistration.k8s.io/v1alpha1",
        &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
        32,
    ),
    ("flowcontrol.apiserver.k8s.io/v1beta3", &["FlowSchema", "PriorityLevelConfiguration"], 32),
    (
        "admissionregistration.k8s.io/v1beta1",
        &["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"],
        34,
    ),
    ("storage.k8s.io/v1alpha1", &["VolumeAttributesClass"], 35),
    ("certificates.k8s.io/v1alpha1", &["ClusterTrustBundle"], 37),
    ("networking.k8s.io/v1beta1", &["IPAddress", "ServiceCIDR"], 37),
    ("storage.k8s.io/v1beta1", &["VolumeAttributesClass"], 37),
    (
        "admissionregistration.k8s.io/v1alpha1",
        &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
        38,
    ),
    ("coordination.k8s.io/v1alpha2", &["LeaseCandidate"], 38),
    (
        "resource.k8s.io/v1beta1",
        &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
        38,
    ),
    ("coordination.k8s.io/v1beta1", &["LeaseCandidate"], 39),
    ("resource.k8s.io/v1alpha3", &["DeviceTaintRule"], 39),
    (
        "resource.k8s.io/v1beta2",
        &["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
        39,
    ),
    (
        "admissionregistration.k8s.io/v1beta1",
        &["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"],
        40,
    ),
    ("certificates.k8s.io/v1beta1", &["ClusterTrustBundle"], 40),
    ("certificates.k8s.io/v1beta1", &["PodCertificateRequest"], 41),
    ("storagemigration.k8s.io/v1beta1", &["StorageVersionMigration"], 41),
    ("resource.k8s.io/v1alpha3", &["ResourcePoolStatusRequest"], 42),
    ("resource.k8s.io/v1beta2", &["DeviceTaintRule"], 42),
];

/// Returns the first Kubernetes version that does not serve the kind in this API version, if that is announced.
///
/// ```
/// use olm_platform::{MinorVersion, removed_in};
///
/// assert_eq!(removed_in("policy/v1beta1", "PodDisruptionBudget"), Some(MinorVersion::new(1, 25)));
/// assert_eq!(removed_in("policy/v1", "PodDisruptionBudget"), None);
/// ```
pub fn removed_in(api_version: &str, kind: &str) -> Option<MinorVersion> {
    let is_it = |row: &&(&str, &[&str], u64)| row.0 == api_version && row.1.contains(&kind);
    REMOVED.iter().find(is_it).map(|(_, _, minor)| MinorVersion::new(1, *minor))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn table_has_each_api_version_and_kind_once_in_order_of_removal() {
        let mut seen = BTreeSet::new();
        for (api_version, kinds, _) in REMOVED {
            let (group, version) = api_version.split_once('/').unwrap();
            assert!(!group.is_empty() && version.starts_with('v'), "{api_version}");
            assert!(version.contains("alpha") || version.contains("beta"), "{api_version} is stable");
            assert!(!kinds.is_empty() && kinds.is_sorted(), "{api_version}: {kinds:?}");
            for kind in kinds {
                assert!(kind.starts_with(|c: char| c.is_ascii_uppercase()), "{kind}");
                assert!(seen.insert((api_version, *kind)), "{api_version} {kind} twice");
            }
        }
        assert!(REMOVED.is_sorted_by_key(|(api_version, kinds, minor)| (*minor, *api_version, kinds[0])));
    }

    #[test]
    fn kinds_of_one_api_version_may_be_removed_at_different_times() {
        let rows = [
            ("admissionregistration.k8s.io/v1beta1", "ValidatingWebhookConfiguration", Some(22)),
            ("admissionregistration.k8s.io/v1beta1", "ValidatingAdmissionPolicy", Some(34)),
            ("admissionregistration.k8s.io/v1beta1", "MutatingAdmissionPolicy", Some(40)),
            ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", None),
            ("acme.example/v1beta1", "FlowSchema", None),
            ("v1", "ConfigMap", None),
        ];
        for (api_version, kind, minor) in rows {
            let expected = minor.map(|minor| MinorVersion::new(1, minor));
            assert_eq!(removed_in(api_version, kind), expected, "{api_version} {kind}");
        }
    }
}
