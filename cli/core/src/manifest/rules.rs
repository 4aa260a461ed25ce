//! Validation of a ClusterExtension with the schema and the CEL rules of its CRD, as on the API server.
//!
//! Transition rules, which use `oldSelf`, are skipped: a file contains no old object.

use jsonschema::PatternOptions;
use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use olm_resolve::ValidationRule;
use olm_version::quote;
use serde_json::Value;

/// Validation error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// Path from the root of the object.
    pub(super) path: Vec<String>,
    /// Error, and the allowed values.
    pub(super) message: String,
    pub(super) kind: FaultKind,
}

/// Error class, which determines the suggestion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// Wrong type. Contains the expected JSON type.
    Type(String),
    /// Value outside of an enum. Contains the allowed values.
    Enum(Vec<String>),
    /// Unknown field.
    Unknown,
    /// Any other error.
    Value,
}

/// Schema of ClusterExtensions.
pub(super) fn schema() -> Value {
    let kind = |crd: &Value| crd["spec"]["names"]["kind"] == "ClusterExtension";
    let crd = olm_api::crds::crds().into_iter().find(kind).unwrap_or_default();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Removes null fields, as the API server does before validation, unless their schema allows null.
pub(super) fn drop_nulls(schema: &Value, object: &mut Value) {
    match object {
        Value::Object(fields) => fields.retain(|name, value| {
            let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
            let Some(schema) = known.filter(|known| known.is_object()) else { return true };
            drop_nulls(schema, value);
            !value.is_null() || schema["nullable"] == true
        }),
        Value::Array(items) => items.iter_mut().for_each(|item| drop_nulls(&schema["items"], item)),
        _ => {}
    }
}

/// Validates `object`. Returns all errors, sorted by path.
pub(super) fn faults(schema: &Value, object: &Value) -> Vec<Fault> {
    let options = jsonschema::options().with_pattern_options(PatternOptions::regex()).build(schema);
    let mut faults: Vec<Fault> = match options {
        Ok(validator) => validator.iter_errors(object).map(|error| schema_fault(&error)).collect(),
        Err(error) => vec![Fault {
            path: Vec::new(),
            message: format!("the schema of ClusterExtensions cannot be used: {error}"),
            kind: FaultKind::Value,
        }],
    };
    let mut path = Vec::new();
    walk(&with_common_fields(schema), object, &mut path, &mut faults);
    faults.sort_by(|a, b| (&a.path, &a.message).cmp(&(&b.path, &b.message)));
    faults
}

/// Schema with `apiVersion`, `kind` and `metadata`, which a CRD need not declare.
fn with_common_fields(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(properties) = schema["properties"].as_object_mut() {
        for field in ["apiVersion", "kind", "metadata"] {
            properties.entry(field).or_insert(Value::Null);
        }
    }
    schema
}

fn schema_fault(error: &ValidationError<'_>) -> Fault {
    let pointer = error.instance_path().as_str();
    let unescaped = |step: &str| step.replace("~1", "/").replace("~0", "~");
    let mut path: Vec<_> = pointer.split('/').skip(1).map(unescaped).collect();
    let value = error.instance();
    let mut kind = FaultKind::Value;
    let message = match error.kind() {
        Kind::Type { kind: allowed } => {
            let expected = match allowed {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(_) => "value".to_owned(),
            };
            let message = format!("expected {}, found {}", noun(&expected), shown(value));
            kind = FaultKind::Type(expected);
            message
        }
        Kind::Enum { options } => {
            let allowed = options.as_array().into_iter().flatten().filter_map(Value::as_str);
            let allowed: Vec<_> = allowed.map(str::to_owned).collect();
            let message = format!("{} is not allowed; allowed: {}", shown(value), allowed.join(", "));
            kind = FaultKind::Enum(allowed);
            message
        }
        Kind::Required { property } => {
            path.push(property.as_str().unwrap_or_default().to_owned());
            "the field is required".to_owned()
        }
        Kind::MaxLength { limit } => format!("{} is too long; allowed: {limit} characters", shown(value)),
        Kind::MinLength { limit } => {
            format!("{} is too short; allowed: at least {limit} characters", shown(value))
        }
        Kind::MinProperties { .. } => "the object must not be empty".to_owned(),
        Kind::Maximum { limit } => format!("{} is too large; allowed: at most {limit}", shown(value)),
        Kind::Minimum { limit } => format!("{} is too small; allowed: at least {limit}", shown(value)),
        Kind::MaxItems { limit } => format!("too many entries; allowed: {limit}"),
        _ => error.to_string(),
    };
    Fault { path, message, kind }
}

/// Readable name of a JSON type.
fn noun(kind: &str) -> &str {
    match kind {
        "string" => "a string",
        "array" => "a list",
        "object" => "an object",
        "integer" => "an integer",
        other => other,
    }
}

/// Short description of a value for a message.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => quote(&text.chars().take(80).collect::<String>()),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// Collects unknown fields, and violated CEL rules of values that match the schema.
fn walk(schema: &Value, value: &Value, path: &mut Vec<String>, faults: &mut Vec<Fault>) {
    let misshapen =
        faults.iter().any(|fault| fault.path.starts_with(path) && fault.kind != FaultKind::Unknown);
    if !misshapen {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        faults.extend(rules.filter_map(|rule| rule_fault(rule, value, path)));
    }
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            for (name, value) in fields {
                path.push(name.clone());
                if let Some(schema) = known.and_then(|known| known.get(name)) {
                    walk(schema, value, path, faults);
                } else if let Some(known) = known
                    && schema["x-kubernetes-preserve-unknown-fields"] != true
                {
                    let names: Vec<_> = known.keys().map(String::as_str).collect();
                    let message =
                        format!("unknown field {}; allowed here: {}", quote(name), names.join(", "));
                    faults.push(Fault { path: path.clone(), message, kind: FaultKind::Unknown });
                }
                path.pop();
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(index.to_string());
                walk(&schema["items"], item, path, faults);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Violation of a CEL rule by `value`, if any.
fn rule_fault(rule: &Value, value: &Value, path: &[String]) -> Option<Fault> {
    let expression = rule["rule"].as_str()?;
    let holds = || ValidationRule::compile(expression).is_ok_and(|rule| rule.holds(value));
    if expression.contains("oldSelf") || holds() {
        return None;
    }
    let message = rule["message"].as_str().unwrap_or(expression);
    let message = match value {
        Value::String(_) => format!("{}: {message}", shown(value)),
        _ => message.to_owned(),
    };
    Some(Fault { path: path.to_vec(), message, kind: FaultKind::Value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version_expression::tests::OF_PRODUCT_DOCUMENTS;
    use serde_json::json;

    fn extension(catalog: Value) -> Value {
        json!({ "metadata": { "name": "x" }, "spec": { "namespace": "ns",
            "source": { "sourceType": "Catalog", "catalog": catalog } } })
    }

    fn messages(object: &Value) -> Vec<String> {
        let faults = faults(&schema(), object);
        faults.iter().map(|fault| format!("{}: {}", fault.path.join("."), fault.message)).collect()
    }

    // Cases seeds-s2-2, seeds-s2-3
    #[test]
    fn forms_of_product_documents_are_accepted() {
        for version in OF_PRODUCT_DOCUMENTS {
            assert_eq!(
                messages(&extension(json!({ "packageName": "p", "version": version }))),
                [""; 0],
                "{version}"
            );
        }
        for channels in [json!(["latest"]), json!(["pipelines-1.14"])] {
            let catalog = json!({ "packageName": "p", "channels": channels, "version": "1.14.x",
                "upgradeConstraintPolicy": "SelfCertified" });
            assert_eq!(messages(&extension(catalog)), [""; 0]);
        }
    }

    // Cases seeds-s2-5, seeds-s2-6
    #[test]
    fn object_that_api_server_rejects_is_rejected() {
        for (catalog, expected) in [
            (
                json!({ "packageName": "p", "version": 1.14 }),
                "spec.source.catalog.version: expected a string, found the number 1.14",
            ),
            (
                json!({ "packageName": "p", "channels": "latest" }),
                "spec.source.catalog.channels: expected a list, found \"latest\"",
            ),
            (
                json!({ "packageName": "p", "version": "1.11 OR 1.13" }),
                "spec.source.catalog.version: \"1.11 OR 1.13\": invalid version expression",
            ),
            (
                json!({ "packageName": "p", "version": "1.11.x || *" }),
                "spec.source.catalog.version: \"1.11.x || *\": invalid version expression",
            ),
            (json!({}), "spec.source.catalog.packageName: the field is required"),
            (
                json!({ "packageName": "p", "channels": ["<channel_name>"] }),
                "spec.source.catalog.channels.0: \"<channel_name>\": channels entries must be valid DNS1123 subdomains",
            ),
            (
                json!({ "packageName": "p", "upgradeConstraintPolicy": "selfCertified" }),
                "spec.source.catalog.upgradeConstraintPolicy: \"selfCertified\" is not allowed; allowed: CatalogProvided, \
                 SelfCertified",
            ),
            (
                json!({ "packageName": "p", "selfCertified": true }),
                "spec.source.catalog.selfCertified: unknown field \"selfCertified\"; allowed here: channels, \
                 packageName, selector, upgradeConstraintPolicy, version",
            ),
        ] {
            assert_eq!(messages(&extension(catalog)), [expected]);
        }
        let mut object = extension(json!({ "packageName": "p" }));
        object["spec"]["source"]["sourceType"] = json!("catalog");
        assert_eq!(
            messages(&object),
            ["spec.source.sourceType: \"catalog\" is not allowed; allowed: Catalog"]
        );
        let source = json!({ "spec": { "namespace": "ns", "source": { "sourceType": "Catalog" } } });
        assert_eq!(
            messages(&source),
            ["spec.source: catalog is required when sourceType is Catalog, and forbidden otherwise"]
        );
    }

    #[test]
    fn every_cel_rule_of_schema_compiles() {
        fn check(schema: &Value, count: &mut usize) {
            for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let rule = rule["rule"].as_str().unwrap();
                if !rule.contains("oldSelf") {
                    ValidationRule::compile(rule).unwrap();
                    *count += 1;
                }
            }
            match schema {
                Value::Object(fields) => fields.values().for_each(|value| check(value, count)),
                Value::Array(items) => items.iter().for_each(|value| check(value, count)),
                _ => {}
            }
        }
        let mut count = 0;
        check(&schema(), &mut count);
        assert!(count > 8, "{count}");
    }
}
