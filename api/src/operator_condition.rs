//! OperatorCondition of classic OLM: an operator reports whether it may be replaced
//! (docs/design/approvals.md#operator-conditions).

use crate::resource::{conditions, resource};
use crate::{Condition, ObjectMeta, names, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Plural of the kind, as in URLs.
pub const PLURAL: &str = "operatorconditions";
/// Name of the CRD.
pub const CRD_NAME: &str = "operatorconditions.operators.coreos.com";
/// Environment variable of an operator with the name of its OperatorCondition.
pub const NAME_VARIABLE: &str = "OPERATOR_CONDITION_NAME";

/// Channel between an operator and OLM. The operator reports conditions, such as Upgradeable, by which OLM decides
/// whether to replace it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct OperatorCondition {
    /// Standard metadata. The name is that of the ClusterServiceVersion, the namespace that of the operator.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Reports of the operator, and decisions of the administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<OperatorConditionSpec>,
    /// Conditions as OLM has observed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<OperatorConditionStatus>,
}

resource!(
    kube::core::NamespaceResourceScope,
    OperatorCondition,
    OperatorConditionSpec,
    OperatorConditionStatus,
    PLURAL,
    names::CLASSIC_GROUP,
    names::OPERATOR_CONDITION_VERSION
);
conditions!(OperatorCondition);

/// Reports of the operator, and decisions of the administrator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorConditionSpec {
    /// Service accounts of the operator. They may change this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub service_accounts: Vec<String>,
    /// Deployments of the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub deployments: Vec<String>,
    /// Conditions that the administrator sets instead of the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub overrides: Vec<Condition>,
    /// Conditions that the operator reports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// Conditions as OLM has observed them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorConditionStatus {
    /// Conditions of the spec with the generation at which OLM observed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
