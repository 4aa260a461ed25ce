//! Pieces of CRD schema that a Rust type cannot say.

use crate::conditions;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// CEL rule: the value may not change.
pub(crate) const IMMUTABLE: &str = "oldSelf == self";
/// CEL rule: lowercase letters, digits and inner hyphens.
pub(crate) const DNS_LABEL: &str = "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')";
/// CEL rule: DNS labels joined by dots.
pub(crate) const DNS_SUBDOMAIN: &str =
    "self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')";

/// `x-kubernetes-validations` of these (rule, message) pairs, in this order.
pub(crate) fn cel(rules: &[(&str, &str)]) -> Value {
    rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect()
}

/// Object metadata as a CRD declares it: the API server knows the rest.
pub(crate) fn metadata(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object"})
}

/// Any JSON object.
pub(crate) fn free_form_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A whole Kubernetes object inside ours.
pub(crate) fn embedded_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// Takes a keyword out of a field's schema that its Rust type or its documentation put there.
pub(crate) fn without(keyword: &'static str) -> impl FnMut(&mut Schema) {
    move |schema| {
        schema.remove(keyword);
    }
}

/// A label selector (docs/design/api.md#shared-schemas). Operators are open: the controller reports the ones that it
/// does not know.
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

/// A list of conditions keyed by type (docs/design/api.md#shared-schemas).
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
                    "description": "What the condition is about.",
                    "type": "string",
                    "maxLength": 316,
                    "pattern": type_pattern,
                },
                "status": {
                    "description": "Whether it holds: True, False or Unknown.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why, as one word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, as a text for people.",
                    "type": "string",
                    "maxLength": conditions::MAX_MESSAGE_BYTES,
                },
                "lastTransitionTime": {
                    "description": "When status last changed.",
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
