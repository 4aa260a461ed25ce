//! Other fixed names on the wire: API groups, field managers, Secret types
//! (docs/design/api.md#owners-and-field-managers, docs/design/apply.md#names-and-limits).

/// API group of catalogs, extensions and object sets.
pub const GROUP: &str = "olm.operatorframework.io";
/// Version of [`GROUP`].
pub const VERSION: &str = "v1";
/// API group of the additions of this implementation (docs/design/operations.md#clusterupgradestatus).
pub const EXT_GROUP: &str = "ext.olm.operatorframework.io";
/// Version of [`EXT_GROUP`].
pub const EXT_VERSION: &str = "v1alpha1";
/// API group of classic OLM (docs/design/approvals.md#operator-conditions).
pub const CLASSIC_GROUP: &str = "operators.coreos.com";
/// Version of OperatorConditions.
pub const OPERATOR_CONDITION_VERSION: &str = "v2";

/// Second owner of retained CRDs that outlive their extension: a Namespace that no installation contains and that
/// cannot be deleted. As an owner it must be cluster-scoped.
pub const KEEPER: &str = "kube-system";

/// Field manager of ClusterObjectSets.
pub const EXTENSION_CONTROLLER_MANAGER: &str = "olm.operatorframework.io/clusterextension-controller";
/// Field manager of the objects that a revision applies.
pub const REVISION_ENGINE_MANAGER: &str = "olm.operatorframework.io";
/// Field manager of the fields written to the upgrade status of the platform
/// (docs/design/operations.md#olm-object).
pub const CLUSTER_UPGRADE_STATUS_MANAGER: &str = "olm.operatorframework.io/cluster-upgrade-status";
/// Field manager of the CA bundles injected by the built-in provider for webhook certificates.
pub const WEBHOOK_CERTIFICATES_MANAGER: &str = "olm.operatorframework.io/webhook-certificates";

/// Type of the immutable Secrets with the objects of a revision.
pub const OBJECT_DATA_SECRET_TYPE: &str = "olm.operatorframework.io/object-data";

/// Name of the only ClusterUpgradeStatus (docs/design/operations.md#clusterupgradestatus).
pub const CLUSTER_UPGRADE_STATUS_NAME: &str = "cluster";

/// Name of the revision `number` of an extension: `<extension>-<number>`.
pub fn revision_name(extension: &str, number: i64) -> String {
    format!("{extension}-{number}")
}

/// Number in the name of a revision of an extension. `None` for other names.
pub fn revision_number(extension: &str, name: &str) -> Option<i64> {
    name.strip_prefix(extension)?.strip_prefix('-')?.parse().ok()
}

/// Name of the ExtensionPlan with this digest for the revision `number` of an extension:
/// `<extension>-<number>-<digits of the digest>` (docs/design/approvals.md#plan-objects).
pub fn plan_name(extension: &str, number: i64, digest: &str) -> String {
    const DIGITS: usize = 12;
    let digits: String = digest.trim_start_matches("sha256:").chars().take(DIGITS).collect();
    format!("{}-{digits}", revision_name(extension, number))
}

#[cfg(test)]
mod tests {
    #[test]
    fn revision_name_joins_extension_and_number() {
        assert_eq!(super::revision_name("lantern", 12), "lantern-12");
        assert_eq!(super::revision_number("lantern", "lantern-12"), Some(12));
        for other in ["lantern-x", "lantern12", "lantern-oil-12", "lamp-12"] {
            assert_eq!(super::revision_number("lantern", other), None);
        }
    }

    #[test]
    fn plan_name_joins_revision_name_and_digest() {
        assert_eq!(super::plan_name("lantern", 2, "sha256:0123456789abcdef"), "lantern-2-0123456789ab");
    }
}
