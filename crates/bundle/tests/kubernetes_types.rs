//! Compares the Kubernetes types in `src/typed/types.txt` with the API types of the pinned `k8s-openapi` release.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use schemars::SchemaGenerator;
use serde_json::{Map, Value};

/// Fields of a type: name to type notation.
type Fields = BTreeMap<String, String>;

fn short(name: &str) -> &str {
    name.rsplit(['.', '/']).next().unwrap()
}

fn notation(schema: &Map<String, Value>) -> String {
    if let Some(target) = schema.get("$ref") {
        let name = short(target.as_str().unwrap());
        return if name == "Quantity" { "Q".into() } else { name.to_string() };
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("array") => format!("[{}]", notation(schema["items"].as_object().unwrap())),
        Some("object") => match schema.get("additionalProperties").and_then(Value::as_object) {
            Some(element) => format!("{{{}}}", notation(element)),
            None => "JSON".into(),
        },
        Some("boolean") => "b".into(),
        Some("number") => "n".into(),
        Some("integer") => if schema["format"] == "int32" { "i" } else { "l" }.into(),
        Some("string") => "s".into(),
        other => panic!("unexpected schema type {other:?}: {schema:?}"),
    }
}

fn api_types() -> BTreeMap<String, Fields> {
    let mut generator = SchemaGenerator::default();
    generator.subschema_for::<DeploymentSpec>();
    generator.subschema_for::<CustomResourceDefinitionSpec>();
    generator.subschema_for::<PolicyRule>();
    generator.subschema_for::<RuleWithOperations>();
    let types = generator.definitions().iter().filter_map(|(name, schema)| {
        let properties = schema.get("properties")?.as_object()?.iter();
        let field =
            |(field, schema): (&String, &Value)| (field.clone(), notation(schema.as_object().unwrap()));
        Some((short(name).to_string(), properties.map(field).collect()))
    });
    types.collect()
}

fn listed_types() -> BTreeMap<String, Fields> {
    let mut types: BTreeMap<String, Fields> = BTreeMap::new();
    let mut current = String::new();
    for line in include_str!("../src/typed/types.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line;
        if !line.starts_with(' ')
            && let Some((name, rest)) = line.split_once(':')
        {
            (current, fields) = (name.to_string(), rest);
        }
        let owner = types.entry(current.clone()).or_default();
        for field in fields.split_whitespace() {
            let field = field.split('/').next().unwrap();
            let (name, notation) = field.split_once(':').unwrap_or((field, "s"));
            owner.insert(name.trim_end_matches(['!', '=', '*', '~', '?']).into(), notation.into());
        }
    }
    types
}

#[test]
fn listed_types_match_the_kubernetes_api() {
    let listed = listed_types();
    let api = api_types();
    assert!(api.len() > 100, "only {} types found", api.len());
    for (name, fields) in api {
        assert_eq!(listed.get(&name), Some(&fields), "{name}");
    }
}
