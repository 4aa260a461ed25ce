//! `watchNamespaceSelector` of the configuration (docs/design/namespaces.md#selector). The caller resolves the selector
//! to names, because only it can ask a cluster.

use std::collections::BTreeSet;

use olm_version::quote;
use serde_json::{Value, json};

use super::schema::{WATCH_NAMESPACES, WATCH_SELECTOR};
use crate::csv::InstallMode;
use crate::error::RenderError;
use crate::options::RenderOptions;

/// Maximum number of selected namespaces: their Roles and RoleBindings fill 8 of the 20 phases of a revision
/// (docs/design/namespaces.md#limits).
const MAX_SELECTED: usize = 200;

/// Label key: an optional DNS subdomain with a slash, and a name.
const KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// Schema of a label selector with at least one term.
pub(super) fn schema() -> Value {
    let value = json!({"type": "string", "pattern": VALUE});
    let rule = |operators: [&str; 2], then: Value| {
        let operator = json!({"operator": {"enum": operators}});
        json!({"if": {"properties": operator, "required": ["operator"]}, "then": then})
    };
    let some = json!({"required": ["values"], "properties": {"values": {"minItems": 1}}});
    let none = json!({"properties": {"values": {"maxItems": 0}}});
    let expression = json!({
        "type": "object",
        "properties": {
            "key": {"type": "string", "pattern": KEY},
            "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
            "values": {"type": "array", "items": value},
        },
        "required": ["key", "operator"],
        "additionalProperties": false,
        "allOf": [rule(["In", "NotIn"], some), rule(["Exists", "DoesNotExist"], none)],
    });
    json!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "propertyNames": {"pattern": KEY},
                "additionalProperties": value,
                "minProperties": 1,
            },
            "matchExpressions": {"type": "array", "items": expression, "minItems": 1},
        },
        "additionalProperties": false,
        "minProperties": 1,
    })
}

/// Error about a field that does not exist. `path` is the path of its parent.
pub(super) fn unknown_field(path: &str, name: &str) -> Option<String> {
    let known = match path.strip_prefix(WATCH_SELECTOR)? {
        "" => "matchExpressions, matchLabels",
        _ => "key, operator, values",
    };
    Some(format!("unknown field {}, allowed: {known}", quote(&format!("{path}.{name}"))))
}

/// Namespaces that the valid `selector` selects, sorted.
///
/// # Errors
/// The caller has not resolved the selector, it selects no namespace or too many, or it selects the install namespace
/// and the bundle does not support that.
pub(super) fn selected(
    selector: &Value,
    modes: &BTreeSet<InstallMode>,
    options: &RenderOptions<'_>,
) -> Result<Vec<String>, RenderError> {
    let field = quote(WATCH_SELECTOR);
    let invalid = |text: String| Err(RenderError::Configuration(format!("invalid configuration: {text}")));
    let Some(names) = options.selected_namespaces else {
        let names = quote(WATCH_NAMESPACES);
        return invalid(format!("field {field} needs a cluster: list the namespaces in {names} instead"));
    };
    let own = options.install_namespace;
    if names.is_empty() {
        return Err(RenderError::NoNamespace(described(selector)));
    }
    if names.len() > MAX_SELECTED {
        return invalid(format!(
            "field {field} selects {} namespaces, at most {MAX_SELECTED} are allowed",
            names.len()
        ));
    }
    if !modes.contains(&InstallMode::OwnNamespace) && names.iter().any(|name| name == own) {
        return invalid(format!(
            "field {field} selects {} (the install namespace): this operator does not support OwnNamespace install mode",
            quote(own)
        ));
    }
    let names: BTreeSet<&String> = names.iter().collect();
    Ok(names.into_iter().cloned().collect())
}

/// Selector in the notation of `kubectl get -l`.
fn described(selector: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={}", text(value)));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten().map(|one| {
        let key = text(&one["key"]);
        let values: Vec<String> = one["values"].as_array().into_iter().flatten().map(text).collect();
        let values = values.join(",");
        match one["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key,
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}
