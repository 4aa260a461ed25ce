//! ExtensionPlan: what the next revision of a ClusterExtension changes, for approval
//! (docs/design/approvals.md#plan-objects).

use crate::open_enum::open_enum;
use crate::resource::resource;
use crate::schema::{self, cel};
use crate::{ObjectMeta, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Plural of the kind, as in URLs.
pub const PLURAL: &str = "extensionplans";

/// Changes that the next revision of a ClusterExtension makes. operator-controller creates one for each plan that waits,
/// with feature gate ExtensionPlans. Its owner is the extension.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct ExtensionPlan {
    /// Standard metadata. The name is that of the revision, with the first digits of the digest.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// The plan, and its approval.
    pub spec: ExtensionPlanSpec,
    /// State of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ExtensionPlanStatus>,
}

resource!(
    kube::core::ClusterResourceScope,
    ExtensionPlan,
    ExtensionPlanSpec,
    ExtensionPlanStatus,
    PLURAL,
    names::EXT_GROUP,
    names::EXT_VERSION
);

/// A plan, and its approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionPlanSpec {
    /// Set it to true to approve the plan. operator-controller then creates the revision, as soon as an upgrade window
    /// of the extension is open. Has the same effect as annotation ext.olm.operatorframework.io/approved of the
    /// extension with the digest of this plan, and none while the plan is superseded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approved: bool,
    /// The plan that is approved. Immutable.
    #[schemars(extend("x-kubernetes-validations" = cel(&[(schema::IMMUTABLE, "plan is immutable")])))]
    pub plan: PlannedRevision,
}

/// Changes that a new revision makes. Lists and texts have limits: see truncated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRevision {
    /// Name of the ClusterExtension.
    #[schemars(length(min = 1, max = 253))]
    pub extension: String,
    /// Number of the revision that is created from the plan.
    #[schemars(range(min = 1))]
    pub revision: i64,
    /// Digest of the bundle's image, the configuration and the rendered objects. It decides what is approved.
    #[schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"), length(max = 71))]
    pub digest: String,
    /// Bundle that the revision installs.
    pub bundle: PlannedBundle,
    /// The changes on one line.
    #[schemars(length(max = 4096))]
    pub summary: String,
    /// Objects that are created, changed or deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200), extend("x-kubernetes-list-type" = "atomic"))]
    pub objects: Vec<PlannedObject>,
    /// Permissions that subjects gain, each as a sentence.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 100),
        inner(length(max = 512)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub permissions_gained: Vec<String>,
    /// Changes of CRDs that may break existing custom resources, compared with the CRDs of the newest revision. The
    /// check before the revision is created compares with those on the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 50),
        inner(length(max = 512)),
        extend("x-kubernetes-list-type" = "atomic")
    )]
    pub crd_findings: Vec<String>,
    /// True if a list or a text was cut because it is too long. The digest covers everything. olm diff prints all
    /// changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Bundle that a plan installs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedBundle {
    /// Name of the bundle.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Version of the bundle.
    #[schemars(length(max = 253))]
    pub version: String,
    /// Catalog that has the bundle; absent if the bundle is the installed one and no catalog has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub catalog: Option<String>,
    /// Image reference of the bundle.
    #[schemars(length(max = 1024))]
    pub image: String,
    /// Digest of the image.
    #[schemars(length(max = 256))]
    pub image_digest: String,
}

/// Object that a plan changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlannedObject {
    /// Created, Changed or Deleted.
    pub change: PlannedChange,
    /// API group of the object; absent for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// Kind of the object.
    #[schemars(length(max = 253))]
    pub kind: String,
    /// Namespace of the object; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub namespace: String,
    /// Name of the object.
    #[schemars(length(max = 253))]
    pub name: String,
}

open_enum! {
    /// Change of an object.
    pub enum PlannedChange {
        /// It does not exist before.
        Created,
        /// It has other fields.
        Changed,
        /// It does not exist afterwards.
        Deleted,
    }
}

/// State of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionPlanStatus {
    /// Pending: waits for an approval or for an upgrade window. Approved: approved, and not applied yet, because it
    /// waits for an upgrade window or an install check fails. Applied: the revision was created from it. Superseded:
    /// another plan or revision replaced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PlanPhase>,
}

open_enum! {
    /// State of a plan.
    pub enum PlanPhase {
        /// Waits for an approval, an upgrade window or the operator.
        Pending,
        /// Approved and not applied yet.
        Approved,
        /// The revision was created from it.
        Applied,
        /// Another plan or revision replaced it.
        Superseded,
    }
}

impl ExtensionPlan {
    /// State of the plan. A new one has none yet, and is pending.
    pub fn phase(&self) -> PlanPhase {
        self.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or(PlanPhase::Pending)
    }

    /// Reports whether the plan has not been applied or superseded.
    pub fn is_waiting(&self) -> bool {
        matches!(self.phase(), PlanPhase::Pending | PlanPhase::Approved)
    }

    /// Reports whether the controller owner is the extension with this UID.
    pub fn belongs_to(&self, uid: Option<&str>) -> bool {
        self.controller().is_some_and(|owner| Some(owner.uid.as_str()) == uid)
    }
}
