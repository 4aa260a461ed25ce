//! JSON Schema (draft 7) of the configuration that a bundle accepts (docs/design/bundles.md#configuration-schema,
//! appendix A; docs/design/additions.md#several-namespaces).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::bundle::BundleContent;
use crate::csv::InstallMode;
use crate::typed::{Type, types};

const SCHEMA_ID: &str = "https://operator-framework.io/schemas/registry-v1-bundle-config.json";
/// Formats that compare a namespace with the install namespace.
pub(super) const OWN_NAMESPACE: &str = "ownNamespaceInstallMode";
pub(super) const SINGLE_NAMESPACE: &str = "singleNamespaceInstallMode";
pub(super) const MULTI_NAMESPACE: &str = "multiNamespaceInstallMode";

pub(super) const WATCH_NAMESPACE: &str = "watchNamespace";
pub(super) const WATCH_NAMESPACES: &str = "watchNamespaces";
pub(super) const WATCH_SELECTOR: &str = "watchNamespaceSelector";
pub(super) const DEPLOYMENT_CONFIG: &str = "deploymentConfig";

/// Maximum length of `watchNamespaces`.
const MAX_WATCHED: usize = 50;

/// JSON Schema (draft 7) of the configuration that `bundle` accepts. The flags are the feature gates
/// `DeploymentConfig` and `MultiWatchNamespaces`. Formats that end in `InstallMode` compare with the install
/// namespace and have no meaning for other tools.
pub fn config_schema(bundle: &BundleContent, deployment_config: bool, multi_watch_namespaces: bool) -> Value {
    let modes = bundle.install_modes();
    let mut properties = Map::new();
    let mut definitions = BTreeMap::new();
    if let Some(one) = watch_namespace(&modes) {
        properties.insert(WATCH_NAMESPACE.into(), one);
    }
    if multi_watch_namespaces && modes.contains(&InstallMode::MultiNamespace) {
        properties.insert(WATCH_NAMESPACES.into(), watch_namespaces(&modes));
        properties.insert(WATCH_SELECTOR.into(), super::selector::schema());
    }
    let choices = watch_rules(&properties, modes.contains(&InstallMode::AllNamespaces));
    if deployment_config {
        let mut schema = struct_schema("DeploymentConfig", &mut definitions);
        schema["additionalProperties"] = json!(false);
        properties.insert(DEPLOYMENT_CONFIG.into(), schema);
    }
    let mut schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": SCHEMA_ID,
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    for (keyword, value) in choices {
        schema[keyword] = value;
    }
    if !definitions.is_empty() {
        schema["definitions"] = json!(definitions);
    }
    schema
}

/// Schema rules that require a namespace selection unless it is optional, and forbid two.
fn watch_rules(properties: &Map<String, Value>, is_optional: bool) -> Map<String, Value> {
    let fields = [WATCH_NAMESPACE, WATCH_NAMESPACES, WATCH_SELECTOR].into_iter();
    let fields: Vec<&str> = fields.filter(|field| properties.contains_key(*field)).collect();
    let mut rules = Map::new();
    if fields.len() > 1 {
        let pairs = fields.iter().enumerate().flat_map(|(index, one)| {
            fields[index + 1..].iter().map(move |other| json!({"required": [one, other]}))
        });
        rules.insert("not".into(), json!({"anyOf": pairs.collect::<Vec<_>>()}));
    }
    if !is_optional && fields.len() > 1 {
        rules.insert("anyOf".into(), fields.iter().map(|field| json!({"required": [field]})).collect());
    } else if !is_optional && !fields.is_empty() {
        rules.insert("required".into(), json!(fields));
    }
    rules
}

fn namespace(format: Option<&str>) -> Value {
    let mut schema = json!({
        "type": "string",
        "minLength": 1,
        "maxLength": 63,
        "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
    });
    if let Some(format) = format {
        schema["format"] = json!(format);
    }
    schema
}

/// Schema of `watchNamespace`. `None` if the bundle leaves no choice.
fn watch_namespace(modes: &BTreeSet<InstallMode>) -> Option<Value> {
    let (own, single) =
        (modes.contains(&InstallMode::OwnNamespace), modes.contains(&InstallMode::SingleNamespace));
    let format = match (own, single) {
        (false, false) => return None,
        (true, false) => Some(OWN_NAMESPACE),
        (false, true) => Some(SINGLE_NAMESPACE),
        (true, true) => None,
    };
    if modes.contains(&InstallMode::AllNamespaces) {
        return Some(json!({"anyOf": [{"type": "null"}, namespace(format)]}));
    }
    Some(namespace(format))
}

/// Schema of `watchNamespaces`. It may include the install namespace if the bundle supports OwnNamespace.
fn watch_namespaces(modes: &BTreeSet<InstallMode>) -> Value {
    let format = (!modes.contains(&InstallMode::OwnNamespace)).then_some(MULTI_NAMESPACE);
    json!({
        "type": "array",
        "items": namespace(format),
        "minItems": 1,
        "maxItems": MAX_WATCHED,
        "uniqueItems": true,
    })
}

/// Schema of a type of the table. The types that it uses are added to `definitions`.
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
