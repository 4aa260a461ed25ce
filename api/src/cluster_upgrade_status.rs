//! ClusterUpgradeStatus: reports whether the installed extensions allow the next version of the platform
//! (docs/design/operations.md#clusterupgradestatus).
//!
//! In a group of its own, because it is not part of the API of the reference. There is one object, named `cluster`.

use crate::open_enum::open_enum;
use crate::resource::cluster_resource;
use crate::schema::{self, cel};
use crate::{Condition, ObjectMeta, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Plural of the kind, as in URLs.
pub const PLURAL: &str = "clusterupgradestatuses";

/// Verdict on the upgrade of the platform to its next version, with the extensions that block it.
/// operator-controller writes it. Wait for its condition Upgradeable before you upgrade a cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = cel(&[(
    "self.metadata.name == 'cluster'",
    "ClusterUpgradeStatus is a singleton, metadata.name must be 'cluster'",
)])))]
pub struct ClusterUpgradeStatus {
    /// Standard metadata. The name is cluster.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Decisions of the administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ClusterUpgradeStatusSpec>,
    /// The verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ClusterUpgradeStatusStatus>,
}

cluster_resource!(
    ClusterUpgradeStatus,
    ClusterUpgradeStatusSpec,
    ClusterUpgradeStatusStatus,
    PLURAL,
    names::EXT_GROUP,
    names::EXT_VERSION
);

impl ClusterUpgradeStatus {
    /// Acknowledgements of the administrator.
    pub fn acknowledgements(&self) -> &[Acknowledgement] {
        self.spec.as_ref().map(|spec| spec.acknowledgements.as_slice()).unwrap_or_default()
    }
}

/// Decisions of the administrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeStatusSpec {
    /// Bundles that do not block the update to one version, in any output of the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "atomic"))]
    pub acknowledgements: Vec<Acknowledgement>,
}

/// Bundle of an extension that does not block the update to exactly one version. It has no effect after the bundle
/// or the next version changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Acknowledgement {
    /// Name of the ClusterExtension.
    #[schemars(length(min = 1, max = 253))]
    pub extension: String,
    /// Name of the installed bundle.
    #[schemars(length(min = 1, max = 253))]
    pub bundle: String,
    /// Next version of the platform as status.platform.nextVersion shows it, such as 4.19.
    #[schemars(length(min = 1, max = 64))]
    pub platform_version: String,
    /// Reason for the acknowledgement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub comment: Option<String>,
}

/// The verdict on the platform's next version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeStatusStatus {
    /// Upgradeable reports whether the platform can be upgraded to its next version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The evaluated platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformStatus>,
    /// Number of extensions that block the next version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub blocking_extensions: Option<i32>,
    /// Extensions that declare a constraint or could not be evaluated, sorted by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500), extend("x-kubernetes-list-type" = "atomic"))]
    pub extensions: Vec<ExtensionVerdict>,
    /// True if the list of extensions was cut because it is too long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The platform, its version and the next one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlatformStatus {
    /// Kind of platform.
    #[serde(rename = "type")]
    pub type_: PlatformType,
    /// Version that the platform runs, or is being upgraded to; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_version: Option<String>,
    /// Next version; absent if not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_version: Option<String>,
    /// Source of the current version; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<VersionSource>,
}

open_enum! {
    /// Kind of platform.
    pub enum PlatformType {
        /// OpenShift.
        OpenShift,
        /// Any other Kubernetes.
        Kubernetes,
    }
}

open_enum! {
    /// Source of the platform's version.
    pub enum VersionSource {
        /// A flag of operator-controller.
        Flag,
        /// The ClusterVersion object.
        ClusterVersion,
        /// An environment variable of operator-controller.
        Environment,
        /// The API server.
        Discovery,
    }
}

/// Verdict of one extension on the next version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionVerdict {
    /// Name of the ClusterExtension.
    pub name: String,
    /// Name of the installed bundle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bundle: String,
    /// Version of the installed bundle.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Property that declares the constraint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub constraint: String,
    /// Value of the constraint.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Compatible: the constraint allows the next version. Blocking: it does not. Invalid: it cannot be read.
    /// NotApplicable: no constraint applies to this platform. Unknown: the platform's version is not known.
    /// Acknowledged: it does not allow the next version, cannot be read or compared, but an acknowledgement names
    /// the bundle and the next version.
    pub result: VerdictResult,
    /// Highest version that upgrades within the version range of the extension lead to and that would not block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_to: Option<String>,
    /// Explanation of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Report of the operator about its upgrade, for information only. Only with feature gate
    /// OperatorConditionCompat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator_condition: Option<OperatorConditionMirror>,
}

open_enum! {
    /// Verdict of a constraint on the next version.
    pub enum VerdictResult {
        /// Allows it.
        Compatible,
        /// Does not allow it.
        Blocking,
        /// Does not allow it or cannot be read, but the administrator decided otherwise.
        Acknowledged,
        /// Cannot be read.
        Invalid,
        /// Does not apply to this platform.
        NotApplicable,
        /// Cannot be compared, because the platform's version is not known.
        Unknown,
    }
}

/// The Upgradeable condition of an extension's OperatorCondition, or the override of the administrator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorConditionMirror {
    /// True, False or Unknown.
    pub status: String,
    /// Reason as one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Explanation as text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
