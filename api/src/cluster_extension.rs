//! ClusterExtension: a package to install and keep up to date (docs/design/api.md#clusterextension).

use crate::open_enum::open_enum;
use crate::resource::cluster_resource;
use crate::schema::{self, DNS_LABEL, DNS_SUBDOMAIN, IMMUTABLE, cel};
use crate::{Condition, LabelSelector, ObjectMeta};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Package of a catalog that is installed in the cluster, with the rules for its upgrades.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct ClusterExtension {
    /// Standard metadata.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Package to install. The API server admits an extension without it, which is then reported as Blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ClusterExtensionSpec>,
    /// Installed bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ClusterExtensionStatus>,
}

cluster_resource!(ClusterExtension, ClusterExtensionSpec, ClusterExtensionStatus, "clusterextensions");

/// Desired state of a ClusterExtension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterExtensionSpec {
    /// Namespace that the package is installed into. It must exist, and cannot be changed. Cluster-scoped objects,
    /// and the Roles for watched namespaces, are created outside of it.
    #[serde(default)]
    #[schemars(
        length(max = 63),
        transform = schema::without("default"),
        extend("x-kubernetes-validations" = cel(&[
            (IMMUTABLE, "namespace is immutable"),
            (DNS_LABEL, "namespace must be a valid DNS1123 label"),
        ]))
    )]
    pub namespace: String,
    /// Deprecated and ignored: operator-controller applies the objects with its own permissions. Only with its
    /// feature gate ServiceAccountImpersonation does it apply them as this service account. Once set, it can be
    /// removed as a whole but not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<ServiceAccountReference>,
    /// Source of the package.
    pub source: ExtensionSource,
    /// Checks of the installation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallConfig>,
    /// Configuration of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<ExtensionConfig>,
    /// Minutes, counted from its creation, after which a revision that has not rolled out is reported as failed.
    /// Absent: no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 720))]
    pub progress_deadline_minutes: Option<i32>,
}

impl ClusterExtensionSpec {
    /// Package of a catalog, installed into this namespace.
    pub fn of_package(namespace: &str, catalog: CatalogFilter) -> Self {
        Self {
            namespace: namespace.to_owned(),
            service_account: None,
            source: ExtensionSource { source_type: SourceType::Catalog, catalog: Some(catalog) },
            install: None,
            config: None,
            progress_deadline_minutes: None,
        }
    }
}

/// A service account in the extension's namespace. Deprecated, and ignored without the feature gate
/// ServiceAccountImpersonation of operator-controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1))]
pub struct ServiceAccountReference {
    /// Name of the service account.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(
        length(min = 1, max = 253),
        extend("x-kubernetes-validations" = cel(&[
            (IMMUTABLE, "name is immutable once set but may be cleared"),
            (DNS_SUBDOMAIN, "name must be a valid DNS1123 subdomain. It must contain only lowercase alphanumeric characters, hyphens (-) or periods (.), start and end with an alphanumeric character, and be no longer than 253 characters"),
        ]))
    )]
    pub name: String,
}

/// Source of an extension. The member named by `sourceType` is set, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[(
    "(self.sourceType == 'Catalog') == has(self.catalog)",
    "catalog is required when sourceType is Catalog, and forbidden otherwise",
)])))]
pub struct ExtensionSource {
    /// Kind of source. Catalog: a bundle is chosen from the ClusterCatalogs.
    pub source_type: SourceType,
    /// Filter for the bundles of the catalogs, for sourceType Catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogFilter>,
}

open_enum! {
    /// Kind of extension source.
    pub enum SourceType {
        /// A bundle of a ClusterCatalog.
        Catalog,
    }
}

/// Filter for the bundles of the catalogs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogFilter {
    /// Name of the package. It cannot be changed.
    #[schemars(
        length(max = 253),
        extend("x-kubernetes-validations" = cel(&[(IMMUTABLE, "packageName is immutable"), PACKAGE_NAME]))
    )]
    pub package_name: String,
    /// Version or range of versions, such as 1.2.3, 1.2.x, or ">=1.2.0, <2.0.0". Absent: any version. Upgrades
    /// within the range are automatic.
    ///
    /// Comparisons that are separated by blanks or commas must all match, `||` separates alternatives. Operators are
    /// `=` (also if there is none), `!=`, `>`, `>=`, `<`, `<=`, `~` and `^`. Missing numbers are wildcards.
    /// Pre-releases match only if a comparison names one, as in `>=1.2.0-0`. Without a version they are admitted.
    ///
    /// Wildcards x, X and *, each with its meaning:
    /// - `1.11.x`: `>=1.11.0, <1.12.0`
    /// - `>=1.12.X`: `>=1.12.0`
    /// - `<=2.x`: `<3`
    /// - `*`: `>=0.0.0`
    ///
    /// Patch releases:
    /// - `~1.11.0`: `>=1.11.0, <1.12.0`
    /// - `~1`: `>=1, <2`
    /// - `~1.12`: `>=1.12, <1.13`
    /// - `~1.12.x`: `>=1.12.0, <1.13.0`
    /// - `~1.x`: `>=1, <2`
    ///
    /// Releases without a breaking change:
    /// - `^0`: `>=0.0.0, <1.0.0`
    /// - `^0.0`: `>=0.0.0, <0.1.0`
    /// - `^0.0.3`: `>=0.0.3, <0.0.4`
    /// - `^0.2`: `>=0.2.0, <0.3.0`
    /// - `^0.2.3`: `>=0.2.3, <0.3.0`
    /// - `^1.2.x`: `>=1.2.0, <2.0.0`
    /// - `^1.2.3`: `>=1.2.3, <2.0.0`
    /// - `^2.x`: `>=2.0.0, <3`
    /// - `^2.3`: `>=2.3, <3`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 64),
        extend("x-kubernetes-validations" = cel(&[(VERSION_RANGE, "invalid version expression")]))
    )]
    pub version: Option<String>,
    /// Channels to choose from. Absent: all channels of the package.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "channels")]
    pub channels: Vec<String>,
    /// Labels of the ClusterCatalogs to choose from. Absent or empty: all catalogs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Permitted upgrades. CatalogProvided: along the upgrade edges of the catalog's channels. SelfCertified: any
    /// change of version, downgrades included, at the user's own risk. Defaults to CatalogProvided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "CatalogProvided"))]
    pub upgrade_constraint_policy: Option<UpgradeConstraintPolicy>,
}

fn channels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "items": {
            "type": "string",
            "maxLength": 253,
            "x-kubernetes-validations": cel(&[(DNS_SUBDOMAIN, "channels entries must be valid DNS1123 subdomains")]),
        },
    })
}

open_enum! {
    /// Permitted upgrades.
    pub enum UpgradeConstraintPolicy {
        /// Upgrades along the upgrade edges of the catalog's channels.
        CatalogProvided,
        /// Any change of version.
        SelfCertified,
    }
}

/// Checks of an installation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[(
    "has(self.preflight)",
    "at least one of [preflight] are required when install is specified",
)])))]
pub struct InstallConfig {
    /// Checks before anything is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preflight: Option<PreflightConfig>,
}

/// Checks before anything is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[(
    "has(self.crdUpgradeSafety)",
    "at least one of [crdUpgradeSafety] are required when preflight is specified",
)])))]
pub struct PreflightConfig {
    /// Check for changes of CRDs that may break custom resources.
    pub crd_upgrade_safety: CrdUpgradeSafety,
}

/// Check of changed CRDs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrdUpgradeSafety {
    /// Strict: an unsafe change stops the upgrade, as it does if install is absent. None: no check.
    pub enforcement: CrdUpgradeSafetyEnforcement,
}

open_enum! {
    /// Enforcement of the check of changed CRDs.
    pub enum CrdUpgradeSafetyEnforcement {
        /// No check.
        None,
        /// An unsafe change stops the upgrade.
        Strict,
    }
}

/// Configuration of an extension. The member named by `configType` is set, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[(
    "(self.configType == 'Inline') == has(self.inline)",
    "inline is required when configType is Inline, and forbidden otherwise",
)])))]
pub struct ExtensionConfig {
    /// Location of the configuration. Inline: field inline.
    pub config_type: ConfigType,
    /// Configuration, for configType Inline. The bundle and feature gates decide which fields are allowed, for
    /// example watchNamespace and deploymentConfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::free_form_object", extend("minProperties" = 1))]
    pub inline: Option<Map<String, Value>>,
}

open_enum! {
    /// Location of a configuration.
    pub enum ConfigType {
        /// In the extension itself.
        Inline,
    }
}

/// Observed state of a ClusterExtension.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterExtensionStatus {
    /// Installed reports whether a bundle is installed, Progressing the current step or an error, Available whether
    /// the installed objects pass their probes, and Deprecated, PackageDeprecated, ChannelDeprecated and
    /// BundleDeprecated what the catalog deprecates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Installed bundle; absent if none is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<InstallStatus>,
    /// Active revisions: the installed one and those that are rolling out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub active_revisions: Vec<RevisionStatus>,
    /// Generation of the spec that this status describes. Only set with feature gate StatusSummary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Newer version that condition UpgradeAvailable names; only with feature gate UpdateNotifications.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_version: Option<String>,
    /// Namespaces that the operator watches, as in annotation olm.targetNamespaces of its pods. An empty name
    /// means all namespaces. Absent if the bundle has no Deployment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub target_namespaces: Vec<String>,
}

/// Installed bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstallStatus {
    /// The installed bundle.
    pub bundle: BundleMetadata,
}

/// Identity of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BundleMetadata {
    /// Name of the bundle.
    #[schemars(extend("x-kubernetes-validations" = cel(&[PACKAGE_NAME])))]
    pub name: String,
    /// Version of the bundle.
    #[schemars(extend("x-kubernetes-validations" = cel(&[
        ("self.matches('^[0-9]')", "version must be well-formed semver"),
    ])))]
    pub version: String,
    /// Release of the bundle. Empty: the bundle has no release. Absent: the release is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20), extend("x-kubernetes-validations" = cel(&[(
        "self == '' || self.matches('^(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)([.](0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*))*$')",
        "release must be empty or consist of dot-separated identifiers (numeric without leading zeros, or alphanumeric)",
    )])))]
    pub release: Option<String>,
}

/// Active revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RevisionStatus {
    /// Name of the ClusterObjectSet.
    pub name: String,
    /// Conditions Progressing and Available of a revision that is rolling out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

const PACKAGE_NAME: (&str, &str) = (
    DNS_SUBDOMAIN,
    "packageName must be a valid DNS1123 subdomain. It must contain only lowercase alphanumeric characters, hyphens (-) or periods (.), start and end with an alphanumeric character, and be no longer than 253 characters",
);

/// Admission pattern of the reference, including its mistakes (docs/design/api.md#version-expression), because the
/// set of accepted texts is part of the contract. The resolver interprets the accepted text.
const VERSION_RANGE: &str = r"self.matches('^\\s*(=|!=|>|<|>=|=>|<=|=<|~|~>|\\^)?\\s*v?(0|[1-9]\\d*|[xX*|])([.](0|[1-9]\\d*|[xX]|[*]\\]))?([.](0|[1-9]\\d*|[xX*]))?(-[0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?([+][0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?\\s*((\\s+|,\\s*|\\s*[|][|]\\s*)(=|!=|>|<|>=|=>|<=|=<|~|~>|\\^)?\\s*v?(0|[1-9]\\d*|[xX]|[*]\\])([.](0|[1-9]\\d*|[xX*]))?([.](0|[1-9]\\d*|[xX]|[*]\\]))?(-[0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?([+][0-9A-Za-z-]+([.][0-9A-Za-z-]+)*)?\\s*)*$')";

/// Maximum length of `spec.source.catalog.version` in characters.
pub const VERSION_MAX_CHARACTERS: usize = 64;

/// Regular expression (RE2) that the API server enforces for `spec.source.catalog.version`.
pub fn version_pattern() -> String {
    let rule = VERSION_RANGE.strip_prefix("self.matches('").and_then(|rest| rest.strip_suffix("')"));
    // CEL string literals escape backslashes.
    rule.unwrap_or_default().replace(r"\\", r"\")
}
