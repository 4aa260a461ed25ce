//! Kubernetes API of this project: the custom resources as Rust types, their CRDs, and the names used with them
//! (conditions, labels, annotations, finalizers, field managers).
//!
//! Data and pure functions only: no I/O and no clock. The wire format is that of docs/design/api.md#api: an object
//! that is read from the API server and written back does not change, and an unknown enum value is kept instead of
//! failing the list or watch that contains it.

mod open_enum;
mod resource;
mod schema;

pub mod annotations;
pub mod cluster_catalog;
pub mod cluster_extension;
pub mod cluster_object_set;
pub mod cluster_upgrade_status;
pub mod conditions;
pub mod crds;
pub mod extension_plan;
pub mod finalizers;
pub mod labels;
pub mod limits;
pub mod names;
pub mod operator_condition;
pub mod summary;
pub mod text;

pub use cluster_catalog::{ClusterCatalog, ClusterCatalogSpec, ClusterCatalogStatus};
pub use cluster_extension::{ClusterExtension, ClusterExtensionSpec, ClusterExtensionStatus};
pub use cluster_object_set::{ClusterObjectSet, ClusterObjectSetSpec, ClusterObjectSetStatus};
pub use cluster_upgrade_status::{
    ClusterUpgradeStatus, ClusterUpgradeStatusSpec, ClusterUpgradeStatusStatus,
};
pub use extension_plan::{ExtensionPlan, ExtensionPlanSpec, ExtensionPlanStatus};
pub use operator_condition::{OperatorCondition, OperatorConditionSpec, OperatorConditionStatus};

pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time,
};
