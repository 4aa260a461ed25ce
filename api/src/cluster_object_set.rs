//! ClusterObjectSet: a revision of an extension, with its objects in phases (docs/design/api.md#clusterobjectset).

use crate::cluster_extension::BundleMetadata;
use crate::open_enum::open_enum;
use crate::resource::cluster_resource;
use crate::schema::{self, DNS_LABEL, IMMUTABLE, cel};
use crate::{Condition, LabelSelector, ObjectMeta, annotations, limits};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Revision of an extension: objects that are applied in phases. A phase begins when all objects of the previous
/// one pass their probes. The content is immutable: a changed extension gets a new revision.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct ClusterObjectSet {
    /// Standard metadata. Annotations say which bundle the revision installs.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Objects, and the rules for applying them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<ClusterObjectSetSpec>,
    /// State of the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ClusterObjectSetStatus>,
}

cluster_resource!(ClusterObjectSet, ClusterObjectSetSpec, ClusterObjectSetStatus, "clusterobjectsets");

impl ClusterObjectSet {
    /// Reports whether the lifecycle state is `Archived`.
    pub fn is_archived(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.lifecycle_state == LifecycleState::Archived)
    }

    /// Reports whether the revision has a spec, is not archived, and is not being deleted.
    pub fn is_active(&self) -> bool {
        self.spec.is_some() && !self.is_archived() && self.metadata.deletion_timestamp.is_none()
    }

    /// `spec.revision`, or 0 without a spec.
    pub fn number(&self) -> i64 {
        self.spec.as_ref().map_or(0, |spec| spec.revision)
    }

    /// Bundle in the annotations. Name and version are empty without theirs.
    pub fn bundle(&self) -> BundleMetadata {
        let annotation = |key: &str| self.annotation(key).map(str::to_owned);
        BundleMetadata {
            name: annotation(annotations::BUNDLE_NAME).unwrap_or_default(),
            version: annotation(annotations::BUNDLE_VERSION).unwrap_or_default(),
            release: annotation(annotations::BUNDLE_RELEASE),
        }
    }
}

/// Desired state of a ClusterObjectSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterObjectSetSpec {
    /// Active: the objects are applied and repaired. Archived: objects that no newer revision has adopted are
    /// deleted. An archived revision cannot become active again.
    #[schemars(extend("x-kubernetes-validations" = cel(&[(
        "oldSelf == 'Active' || self == 'Archived'",
        "cannot un-archive",
    )])))]
    pub lifecycle_state: LifecycleState,
    /// Number of the revision among those of its extension; the highest is the newest. It cannot be changed.
    #[schemars(
        range(min = 1),
        extend("x-kubernetes-validations" = cel(&[(IMMUTABLE, "revision is immutable")]))
    )]
    pub revision: i64,
    /// Treatment of existing objects. Prevent: they are a collision, which stops the rollout. IfNoController:
    /// objects without a controller owner are adopted. None: all objects are adopted. It cannot be changed.
    #[schemars(extend("x-kubernetes-validations" = cel(&[(IMMUTABLE, "collisionProtection is immutable")])))]
    pub collision_protection: CollisionProtection,
    /// Objects in the order in which they are applied. Immutable once it is not empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = limits::MAX_PHASES),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["name"],
            "x-kubernetes-validations" = cel(&[("oldSelf.size() == 0 || oldSelf == self", "phases is immutable")]),
        )
    )]
    pub phases: Vec<Phase>,
    /// Minutes, counted from its creation, after which a revision that has not rolled out is reported as failed.
    /// Absent: no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 10, max = 720))]
    pub progress_deadline_minutes: Option<i32>,
    /// Probes that decide when an applied object is ready. An object that no probe selects is ready once it is
    /// applied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = limits::MAX_PROGRESSION_PROBES), extend("x-kubernetes-list-type" = "atomic"))]
    pub progression_probes: Vec<ProgressionProbe>,
}

open_enum! {
    /// Lifecycle state of a revision.
    pub enum LifecycleState {
        /// Objects are applied and repaired.
        Active,
        /// Objects that no newer revision has adopted are deleted.
        Archived,
    }
}

open_enum! {
    /// Treatment of existing objects.
    pub enum CollisionProtection {
        /// Existing objects are a collision, which stops the rollout.
        Prevent,
        /// Existing objects without a controller owner are adopted.
        IfNoController,
        /// All existing objects are adopted.
        None,
    }
}

/// Objects that are applied together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// Name of the phase.
    #[schemars(
        length(min = 1, max = 63),
        extend("x-kubernetes-validations" = cel(&[PHASE_NAME]))
    )]
    pub name: String,
    /// The objects.
    #[schemars(length(max = limits::MAX_OBJECTS_PER_PHASE))]
    pub objects: Vec<PhaseObject>,
    /// Treatment of existing objects, if it differs from that of the revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_protection: Option<CollisionProtection>,
}

/// Object of a phase, inline or as a reference to a Secret.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[(
    "has(self.object) != has(self.ref)",
    "exactly one of the fields in [object ref] must be set",
)])))]
pub struct PhaseObject {
    /// The object itself, complete with apiVersion and kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::embedded_object")]
    pub object: Option<Map<String, Value>>,
    /// Secret that contains the object.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub ref_: Option<ObjectRef>,
    /// Treatment of an existing object, if it differs from that of the phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collision_protection: Option<CollisionProtection>,
}

/// Reference to an object: JSON, plain or compressed with gzip, under a key of an immutable Secret.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Namespace of the Secret. Empty or absent: the namespace that OLM itself runs in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Key in the Secret's data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Assertions that selected objects must satisfy to be ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgressionProbe {
    /// Objects that are probed.
    pub selector: ObjectSelector,
    /// Assertions that each of these objects must satisfy.
    #[schemars(length(min = 1, max = limits::MAX_ASSERTIONS), extend("x-kubernetes-list-type" = "atomic"))]
    pub assertions: Vec<Assertion>,
}

/// Selection of objects. The member named by `type` is set, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[
    (
        "(self.type == 'GroupKind') == has(self.groupKind)",
        "groupKind is required when type is GroupKind, and forbidden otherwise",
    ),
    ("(self.type == 'Label') == has(self.label)", "label is required when type is Label, and forbidden otherwise"),
])))]
pub struct ObjectSelector {
    /// GroupKind: objects of one kind. Label: objects with certain labels.
    #[serde(rename = "type")]
    pub type_: SelectorType,
    /// The kind, for type GroupKind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_kind: Option<GroupKind>,
    /// The labels, for type Label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "probe_label_selector")]
    pub label: Option<LabelSelector>,
}

fn probe_label_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = schema::label_selector(generator);
    let rules = cel(&[(
        "has(self.matchLabels) != has(self.matchExpressions)",
        "exactly one of matchLabels or matchExpressions must be set",
    )]);
    schema.insert("x-kubernetes-validations".to_owned(), rules);
    schema
}

open_enum! {
    /// Kind of selection.
    pub enum SelectorType {
        /// By kind.
        GroupKind,
        /// By labels.
        Label,
    }
}

/// A kind of object, whatever its version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
}

/// Assertion on an object. The member named by `type` is set, and no other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = cel(&[
    (
        "(self.type == 'ConditionEqual') == has(self.conditionEqual)",
        "conditionEqual is required when type is ConditionEqual, and forbidden otherwise",
    ),
    (
        "(self.type == 'FieldsEqual') == has(self.fieldsEqual)",
        "fieldsEqual is required when type is FieldsEqual, and forbidden otherwise",
    ),
    (
        "(self.type == 'FieldValue') == has(self.fieldValue)",
        "fieldValue is required when type is FieldValue, and forbidden otherwise",
    ),
])))]
pub struct Assertion {
    /// ConditionEqual: a condition has a status. FieldsEqual: two fields are equal. FieldValue: a field has a
    /// value.
    #[serde(rename = "type")]
    pub type_: AssertionType,
    /// The condition, for type ConditionEqual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition_equal: Option<ConditionEqual>,
    /// The fields, for type FieldsEqual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_equal: Option<FieldsEqual>,
    /// The field and its value, for type FieldValue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_value: Option<FieldValue>,
}

open_enum! {
    /// Kind of assertion.
    pub enum AssertionType {
        /// A condition has a status.
        ConditionEqual,
        /// Two fields are equal.
        FieldsEqual,
        /// A field has a value.
        FieldValue,
    }
}

/// The object has this condition with this status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConditionEqual {
    /// Type of the condition.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 200))]
    pub type_: String,
    /// Expected status.
    pub status: ExpectedStatus,
}

open_enum! {
    /// Expected status of a condition.
    pub enum ExpectedStatus {
        /// The condition holds.
        True,
        /// It does not hold.
        False,
    }
}

/// Both fields exist and are equal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldsEqual {
    /// Path of the first field, such as spec.replicas.
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-validations" = cel(&[FIELD_PATH])))]
    pub field_a: String,
    /// Path of the second field, such as status.readyReplicas.
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-validations" = cel(&[FIELD_PATH])))]
    pub field_b: String,
}

/// The field exists and has this value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldValue {
    /// Path of the field, such as status.phase.
    #[schemars(length(min = 1, max = 200), extend("x-kubernetes-validations" = cel(&[FIELD_PATH])))]
    pub field_path: String,
    /// Expected value, compared as a string.
    #[schemars(length(min = 1, max = 200))]
    pub value: String,
}

/// Observed state of a ClusterObjectSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterObjectSetStatus {
    /// Progressing reports the rollout, Available whether the objects pass their probes, Succeeded whether the
    /// revision has rolled out once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Digest of each phase as first observed, which reveals changed content of Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = limits::MAX_PHASES),
        extend(
            "x-kubernetes-list-type" = "map",
            "x-kubernetes-list-map-keys" = ["name"],
            "x-kubernetes-validations" = cel(&[("oldSelf.size() == 0 || oldSelf == self", "observedPhases is immutable")]),
        )
    )]
    pub observed_phases: Vec<ObservedPhase>,
    /// Generation of the spec that this status describes. Only set with feature gate StatusSummary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Digest of a phase as first observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObservedPhase {
    /// Name of the phase.
    #[schemars(
        length(min = 1, max = 63),
        extend("x-kubernetes-validations" = cel(&[PHASE_NAME]))
    )]
    pub name: String,
    /// Digest of its objects: algorithm, colon, lowercase hex.
    #[schemars(
        length(min = 1, max = 256),
        extend("x-kubernetes-validations" = cel(&[(
            "self.matches('^[a-z0-9]+:[0-9a-f]+$')",
            "digest must be in the format '<algorithm>:<hex>'",
        )]))
    )]
    pub digest: String,
}

const PHASE_NAME: (&str, &str) = (
    DNS_LABEL,
    "the value must consist of only lowercase alphanumeric characters and hyphens, and must start and end with an alphanumeric character.",
);
const FIELD_PATH: (&str, &str) = (
    "self.matches('^[a-zA-Z0-9]+([.][a-zA-Z0-9]+)*$')",
    r#"must contain a valid field path. valid fields contain upper or lower-case alphanumeric characters separated by the "." character."#,
);
