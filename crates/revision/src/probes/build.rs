//! Compilation of the probes of a ClusterObjectSet, and the default probes of generated revisions
//! (docs/design/apply.md#revision-metadata, docs/design/apply.md#probes).

use std::collections::BTreeMap;

use kube::core::ParseExpressionError;
use olm_api::cluster_object_set::{
    Assertion as AssertionSpec, AssertionType, ConditionEqual, ExpectedStatus, FieldValue, FieldsEqual,
    GroupKind, ObjectSelector, ProgressionProbe, SelectorType,
};
use olm_api::{LabelSelector, LabelSelectorRequirement};

use super::{Assertion, Probe, Probes, Selector, json};

/// Error of the compilation of a probe: a type that is unknown to this version, or an invalid label selector.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ProbeError(String);

impl Probes {
    /// Compiles `spec.progressionProbes`.
    pub fn new(specs: &[ProgressionProbe]) -> Result<Self, ProbeError> {
        let probe = |spec: &ProgressionProbe| {
            Ok(Probe {
                selector: selector(&spec.selector)?,
                assertions: spec.assertions.iter().map(assertion).collect::<Result<_, _>>()?,
            })
        };
        specs.iter().map(probe).collect::<Result<_, _>>().map(Self)
    }
}

fn selector(spec: &ObjectSelector) -> Result<Selector, ProbeError> {
    match (&spec.type_, &spec.group_kind, &spec.label) {
        (SelectorType::GroupKind, Some(GroupKind { group, kind }), _) => {
            Ok(Selector::GroupKind { group: group.clone(), kind: kind.clone() })
        }
        (SelectorType::Label, _, Some(label)) => label_selector(label).map(Selector::Labels),
        (SelectorType::GroupKind, None, _) | (SelectorType::Label, _, None) => Ok(Selector::Nothing),
        (SelectorType::Other(unknown), ..) => {
            Err(ProbeError(format!("unknown progressionProbe selector type: {unknown}")))
        }
    }
}

fn label_selector(selector: &LabelSelector) -> Result<kube::core::Selector, ProbeError> {
    let invalid = |problem: String| {
        let selector = go_text(selector);
        ProbeError(format!("invalid label selector in progressionProbe ({selector}): {problem}"))
    };
    for LabelSelectorRequirement { operator, values, .. } in selector.match_expressions.iter().flatten() {
        let values = values.as_deref().unwrap_or_default();
        match operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                let rule = "for 'in', 'notin' operators, values set can't be empty";
                return Err(invalid(format!("values: Invalid value: null: {rule}")));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let rule = "values set must be empty for exists and does not exist";
                return Err(invalid(format!("values: Invalid value: {}: {rule}", json(&values.into()))));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => return Err(invalid(format!("{other:?} is not a valid label selector operator"))),
        }
    }
    selector.clone().try_into().map_err(|error: ParseExpressionError| invalid(error.to_string()))
}

/// Formats a selector in Go's plain notation, like the reference.
fn go_text(selector: &LabelSelector) -> String {
    let labels: BTreeMap<_, _> = selector.match_labels.iter().flatten().collect();
    let labels: Vec<String> = labels.into_iter().map(|(key, value)| format!("{key}:{value}")).collect();
    let expression = |LabelSelectorRequirement { key, operator, values }: &LabelSelectorRequirement| {
        format!("{{{key} {operator} [{}]}}", values.iter().flatten().cloned().collect::<Vec<_>>().join(" "))
    };
    let expressions: Vec<String> = selector.match_expressions.iter().flatten().map(expression).collect();
    format!("{{map[{}] [{}]}}", labels.join(" "), expressions.join(" "))
}

fn assertion(spec: &AssertionSpec) -> Result<Assertion, ProbeError> {
    let AssertionSpec { type_, condition_equal, fields_equal, field_value } = spec;
    match (type_, condition_equal, fields_equal, field_value) {
        (AssertionType::ConditionEqual, Some(ConditionEqual { type_, status }), ..) => {
            Ok(Assertion::ConditionEqual { r#type: type_.clone(), status: status.to_string() })
        }
        (AssertionType::FieldsEqual, _, Some(FieldsEqual { field_a, field_b }), _) => {
            Ok(Assertion::FieldsEqual { a: field_a.clone(), b: field_b.clone() })
        }
        (AssertionType::FieldValue, _, _, Some(FieldValue { field_path, value })) => {
            Ok(Assertion::FieldValue { path: field_path.clone(), value: value.clone() })
        }
        // The API server rejects a member that does not fit its type.
        (unknown, ..) => Err(ProbeError(format!("unknown progressionProbe assertion probe type: {unknown}"))),
    }
}

/// Probes of every generated revision, in their fixed order.
pub fn default_probes() -> Vec<ProgressionProbe> {
    let replicas = || AssertionSpec {
        type_: AssertionType::FieldsEqual,
        condition_equal: None,
        fields_equal: Some(FieldsEqual {
            field_a: "status.updatedReplicas".to_owned(),
            field_b: "status.replicas".to_owned(),
        }),
        field_value: None,
    };
    vec![
        kind_probe("apiextensions.k8s.io", "CustomResourceDefinition", vec![condition("Established")]),
        kind_probe("cert-manager.io", "Certificate", vec![condition("Ready")]),
        kind_probe("cert-manager.io", "Issuer", vec![condition("Ready")]),
        kind_probe("", "Namespace", vec![phase("Active")]),
        kind_probe("", "PersistentVolumeClaim", vec![phase("Bound")]),
        kind_probe("apps", "StatefulSet", vec![replicas(), condition("Available")]),
        kind_probe("apps", "Deployment", vec![replicas(), condition("Available")]),
    ]
}

/// Probe of the APIServices of a generated revision, in addition to [`default_probes`].
pub(crate) fn api_service_probe() -> ProgressionProbe {
    kind_probe("apiregistration.k8s.io", "APIService", vec![condition("Available")])
}

fn kind_probe(group: &str, kind: &str, assertions: Vec<AssertionSpec>) -> ProgressionProbe {
    ProgressionProbe {
        selector: ObjectSelector {
            type_: SelectorType::GroupKind,
            group_kind: Some(GroupKind { group: group.to_owned(), kind: kind.to_owned() }),
            label: None,
        },
        assertions,
    }
}

fn condition(name: &str) -> AssertionSpec {
    AssertionSpec {
        type_: AssertionType::ConditionEqual,
        condition_equal: Some(ConditionEqual { type_: name.to_owned(), status: ExpectedStatus::True }),
        fields_equal: None,
        field_value: None,
    }
}

fn phase(value: &str) -> AssertionSpec {
    AssertionSpec {
        type_: AssertionType::FieldValue,
        condition_equal: None,
        fields_equal: None,
        field_value: Some(FieldValue { field_path: "status.phase".to_owned(), value: value.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn build(selector: Value, assertion: Value) -> Result<Probes, ProbeError> {
        let spec = json!({"selector": selector, "assertions": [assertion]});
        Probes::new(&[serde_json::from_value(spec).unwrap()])
    }

    fn labels(expression: Value) -> Value {
        json!({"type": "Label", "label": {"matchExpressions": [expression]}})
    }

    fn field_value() -> Value {
        json!({"type": "FieldValue", "fieldValue": {"fieldPath": "data.s", "value": "ok"}})
    }

    #[test]
    fn invalid_probes_return_errors() {
        let near = json!({"key": "a", "operator": "Near", "values": ["b", "c"]});
        for (selector, assertion, message) in [
            (json!({"type": "Name"}), field_value(), "unknown progressionProbe selector type: Name"),
            (
                labels(json!({"key": "a", "operator": "Exists"})),
                json!({"type": "Cel"}),
                "unknown progressionProbe assertion probe type: Cel",
            ),
            (
                labels(near),
                field_value(),
                "invalid label selector in progressionProbe ({map[] [{a Near [b c]}]}): \
                 \"Near\" is not a valid label selector operator",
            ),
            (
                labels(json!({"key": "a", "operator": "In"})),
                field_value(),
                "invalid label selector in progressionProbe ({map[] [{a In []}]}): \
                 values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
            ),
            (
                labels(json!({"key": "a", "operator": "Exists", "values": ["b", "c"]})),
                field_value(),
                "invalid label selector in progressionProbe ({map[] [{a Exists [b c]}]}): \
                 values: Invalid value: [\"b\",\"c\"]: values set must be empty for exists and does not exist",
            ),
        ] {
            assert_eq!(build(selector, assertion).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn label_operators_select_objects() {
        let object = json!({"metadata": {"labels": {"a": "1"}}, "data": {"s": "no"}});
        for (key, operator, values, is_selected) in [
            ("a", "In", json!(["1", "2"]), true),
            ("a", "In", json!(["2"]), false),
            ("a", "NotIn", json!(["2"]), true),
            ("a", "NotIn", json!(["1"]), false),
            ("b", "NotIn", json!(["1"]), true),
            ("a", "Exists", json!([]), true),
            ("b", "Exists", json!([]), false),
            ("b", "DoesNotExist", json!([]), true),
            ("a", "DoesNotExist", json!([]), false),
        ] {
            let selector = labels(json!({"key": key, "operator": operator, "values": values}));
            // Selected objects fail the probe, all others pass.
            let result = build(selector, field_value()).unwrap().probe(&object);
            assert_eq!(!result.is_ready(), is_selected, "{key} {operator} {values}");
        }
    }
}
