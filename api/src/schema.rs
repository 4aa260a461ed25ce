//! CRD schema fragments that Rust types cannot express.

use crate::conditions;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// CEL rule: the value is immutable.
pub(crate) const IMMUTABLE: &str = "oldSelf == self";
/// CEL rule: lowercase letters, digits and inner hyphens.
pub(crate) const DNS_LABEL: &str = "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')";
/// CEL rule: DNS labels joined by dots.
pub(crate) const DNS_SUBDOMAIN: &str =
    "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')";

/// `x-kubernetes-validations` of (rule, message) pairs, in this order.
pub(crate) fn cel(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// Object metadata as declared in a CRD. The API server adds the rest.
pub(crate) fn metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// Any JSON object.
pub(crate) fn free_form_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Embedded Kubernetes object.
pub(crate) fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Removes a keyword that the Rust type or its documentation adds to the schema of a field.
pub(crate) fn without(keyword: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.remove(keyword);
    }
}

/// Label selector (docs/design/api.md#shared-schemas). Any operator is admitted. The controller reports unknown
/// ones.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be present with exactly these values.",
                "type": "object",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "description": "Requirements on labels, all of which must hold.",
                "type": "array",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "Label key.", "type": "string"},
                        "operator": {
                            "description": "One of In, NotIn, Exists and DoesNotExist.",
                            "type": "string",
                        },
                        "values": {
                            "description": "Label values; required for In and NotIn, forbidden otherwise.",
                            "type": "array",
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                    },
                },
            },
        },
    })
}

/// List of conditions keyed by type (docs/design/api.md#shared-schemas).
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    let label = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
    let type_pattern = format!(r"^({label}(\.{label})*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$");
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "type": {
                    "description": "Type of the condition.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": type_pattern,
                },
                "status": {
                    "description": "Status of the condition: True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Reason for the status, as one word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Explanation of the status, as text for people.",
                    "type": "string",
                    "maxLength": conditions::MAX_MESSAGE_BYTES,
                },
                "lastTransitionTime": {
                    "description": "Time of the last change of status.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "Generation of the object that the condition was computed for.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}
