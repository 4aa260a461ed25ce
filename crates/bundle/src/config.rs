//! Inline configuration of a ClusterExtension: the schema that a bundle implies, and messages for what does
//! not fit it (spec 04 §9).
//!
//! `jsonschema` evaluates; the wording, the order and the choice of findings are ours (§9.4, §9.7).

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind as Kind};
use jsonschema::{Draft, PatternOptions};
use olm_version::quote;
use serde_json::{Map, Value, json};

use crate::bundle::Bundle;
use crate::csv::InstallMode;
use crate::render::{RenderError, RenderOptions};
use crate::typed::{Type, types};

const SCHEMA_ID: &str = "https://operator-framework.io/schemas/registry-v1-bundle-config.json";
const OWN_NAMESPACE: &str = "ownNamespaceInstallMode";
const SINGLE_NAMESPACE: &str = "singleNamespaceInstallMode";

/// JSON Schema (draft 7) of the configuration that `bundle` accepts. `deployment_config` is the gate of that
/// name. Two of its formats compare with the install namespace and mean nothing to other tools.
pub fn config_schema(bundle: &Bundle, deployment_config: bool) -> Value {
    let modes = bundle.install_modes();
    let mut properties = Map::new();
    let mut definitions = BTreeMap::new();
    let mut required = Vec::new();
    if let Some(watch_namespace) = watch_namespace_schema(&modes) {
        if !modes.contains(&InstallMode::AllNamespaces) {
            required.push("watchNamespace");
        }
        properties.insert("watchNamespace".into(), watch_namespace);
    }
    if deployment_config {
        let mut schema = struct_schema("DeploymentConfig", &mut definitions);
        schema["additionalProperties"] = json!(false);
        properties.insert("deploymentConfig".into(), schema);
    }
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA_ID,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if !definitions.is_empty() {
        schema["definitions"] = json!(definitions);
    }
    schema
}

/// Schema of `watchNamespace`; `None` where the bundle leaves no choice.
fn watch_namespace_schema(modes: &BTreeSet<InstallMode>) -> Option<Value> {
    let mut core = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    });
    match (modes.contains(&InstallMode::OwnNamespace), modes.contains(&InstallMode::SingleNamespace)) {
        (false, false) => return None,
        (true, false) => core["format"] = json!(OWN_NAMESPACE),
        (false, true) => core["format"] = json!(SINGLE_NAMESPACE),
        (true, true) => {}
    }
    if modes.contains(&InstallMode::AllNamespaces) {
        return Some(json!({"anyOf": [{"type": "null"}, core]}));
    }
    Some(core)
}

/// Schema of a type of the table; the types that it uses go to `definitions`.
fn struct_schema(name: &'static str, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    let fields = types().fields(name);
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.to_string(), field_schema(&field.kind, definitions))).collect();
    let required: Vec<&str> = fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    let mut schema = json!({"type": "object", "properties": properties});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn field_schema(kind: &Type, definitions: &mut BTreeMap<&'static str, Value>) -> Value {
    match kind {
        Type::String | Type::Version => json!({"type": "string"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 | Type::Int64 => json!({"type": "integer"}),
        Type::Number => json!({"type": "number"}),
        Type::Quantity | Type::IntOrString => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Type::Time => json!({"type": "string", "format": "date-time"}),
        Type::Json | Type::SchemaOrBool | Type::SchemaOrList | Type::SchemaOrStrings => {
            json!({"type": "object"})
        }
        Type::List(element) => json!({"type": "array", "items": field_schema(element, definitions)}),
        Type::Map(element) => {
            json!({"type": "object", "additionalProperties": field_schema(element, definitions)})
        }
        Type::Struct(name) => {
            if !definitions.contains_key(name) {
                definitions.insert(name, Value::Null);
                let schema = struct_schema(name, definitions);
                definitions.insert(name, schema);
            }
            json!({"$ref": format!("#/definitions/{name}")})
        }
    }
}

/// Holds the configuration of the options against the schema of the bundle; no configuration counts as `{}`.
pub(crate) fn validate(bundle: &Bundle, options: &RenderOptions<'_>) -> Result<(), RenderError> {
    let empty = json!({});
    let config = options.config.unwrap_or(&empty);
    let schema = config_schema(bundle, options.deployment_config);
    let namespace = options.install_namespace;
    let (own, other) = (namespace.to_string(), namespace.to_string());
    let validator = jsonschema::options()
        .with_draft(Draft::Draft7)
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .with_format(OWN_NAMESPACE, move |value: &str| own.is_empty() || value == own)
        .with_format(SINGLE_NAMESPACE, move |value: &str| other.is_empty() || value != other)
        .build(&schema)
        .map_err(|error| RenderError::Configuration(format!("error compiling schema: {error}")))?;
    let mut findings = Vec::new();
    for error in validator.iter_errors(config) {
        collect(&error, namespace, &mut findings);
    }
    if findings.is_empty() {
        return Ok(());
    }
    Err(RenderError::Configuration(format!("invalid configuration: {}", joined(findings))))
}

/// A finding and where it stands among the others: parents before children, unknown fields last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    place: Vec<Place>,
    text: String,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// About the value itself; the rank orders several keywords.
    Here(u8),
    Item(usize),
    Field(String),
    Unknown,
}

fn joined(mut findings: Vec<Finding>) -> String {
    findings.sort();
    // A value of the wrong format is not looked at any further.
    let misformatted: Vec<Vec<Place>> = findings
        .iter()
        .filter(|finding| finding.place.last() == Some(&Place::Here(FORMAT)))
        .filter_map(|finding| Some(finding.place.split_last()?.1.to_vec()))
        .collect();
    findings.retain(|finding| match finding.place.split_last() {
        Some((Place::Here(rank), value)) if *rank > FORMAT => {
            !misformatted.iter().any(|place| place == value)
        }
        _ => true,
    });
    if let [only] = findings.as_slice() {
        return only.text.clone();
    }
    let lines = findings.iter().map(|finding| format!("\n  - {}", finding.text));
    format!("multiple errors found:{}", lines.collect::<String>())
}

/// Rank of a format among the findings about one value.
const FORMAT: u8 = 2;

fn collect(error: &ValidationError<'_>, namespace: &str, findings: &mut Vec<Finding>) {
    let pointer = error.instance_path().to_string();
    let path = pointer.trim_start_matches('/').replace('/', ".");
    let within = |name: &str| {
        if path.is_empty() { quote(name) } else { quote(&format!("{path}.{name}")) }
    };
    let field = quote(&path);
    let value = error.instance();
    let mut add = |last: Place, text: String| {
        let mut place = place_of(&pointer);
        place.push(last);
        findings.push(Finding { place, text });
    };
    match error.kind() {
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            add(Place::Here(1), format!("required field {} is missing", within(name)));
        }
        Kind::AdditionalProperties { unexpected } => {
            for name in unexpected {
                add(Place::Unknown, format!("unknown field {}", quote(name)));
            }
        }
        Kind::Type { kind } => add(Place::Here(0), wrong_type(&path, value, &wanted(kind))),
        Kind::OneOfNotValid { .. } => add(Place::Here(0), wrong_type(&path, value, "string or number")),
        Kind::Format { format } => add(Place::Here(FORMAT), wrong_format(&path, value, format, namespace)),
        Kind::MinLength { limit } => {
            let length = value.as_str().unwrap_or_default().chars().count();
            let text = format!("field {field} must have minimum length of {limit} (len={length})");
            add(Place::Here(3), text);
        }
        Kind::MaxLength { limit } => {
            let length = value.as_str().unwrap_or_default().chars().count();
            let text = format!("field {field} must have maximum length of {limit} (len={length})");
            add(Place::Here(4), text);
        }
        Kind::Pattern { pattern } => {
            add(Place::Here(5), format!("field {field} must match pattern {}", quote(pattern)));
        }
        // The first branch only allows null, which says nothing about what is wrong.
        Kind::AnyOf { context } => {
            for error in context.last().into_iter().flatten() {
                collect(error, namespace, findings);
            }
        }
        _ => add(Place::Here(6), format!("invalid value for field {field}")),
    }
}

fn place_of(pointer: &str) -> Vec<Place> {
    let segments = pointer.split('/').skip(1);
    segments
        .map(|segment| segment.parse().map_or_else(|_| Place::Field(segment.into()), Place::Item))
        .collect()
}

fn wanted(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(several) => {
            several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn wrong_type(path: &str, value: &Value, wanted: &str) -> String {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    match (path, value) {
        ("", _) => format!("invalid type: got {got}, want {wanted}"),
        (_, Value::Null) => format!("required field {} is missing", quote(path)),
        _ => format!("invalid type for field {}: got {got}, want {wanted}", quote(path)),
    }
}

fn wrong_format(path: &str, value: &Value, format: &str, namespace: &str) -> String {
    let value = value.as_str().unwrap_or_default();
    let (value_shown, namespace) = (quote(value), quote(namespace));
    let detail = match format {
        OWN_NAMESPACE => format!(
            ": invalid value {value_shown}: must be {namespace} (the namespace where the operator is installed) \
             because this operator only supports OwnNamespace install mode"
        ),
        SINGLE_NAMESPACE => format!(
            ": invalid value {value_shown}: must be different from {namespace} (the install namespace) because \
             this operator uses SingleNamespace install mode to watch a different namespace"
        ),
        _ => String::new(),
    };
    let inner = &value_shown[1..value_shown.len() - 1];
    let inner = inner.replace("\\\"", "\"").replace('\'', "\\'");
    format!("invalid format for field {}: '{inner}' is not valid {format}{detail}", quote(path))
}
