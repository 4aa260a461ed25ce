//! Validation of an object against one schema, as in the API server.

use std::collections::HashSet;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value};

use super::schema::json_schema;
use crate::schema::{Schema, Step};
use crate::text::canonical;

/// Fields of every object, even if its schema does not name them.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Compiled schema.
#[derive(Debug)]
pub(super) struct SchemaValidator {
    schema: Map<String, Value>,
    validator: Validator,
}

impl SchemaValidator {
    /// Compiles a schema that was read before. `None` if it cannot be evaluated.
    pub(super) fn new(schema: Map<String, Value>) -> Option<Self> {
        let validator = jsonschema::options()
            .with_draft(Draft::Draft4)
            .with_pattern_options(PatternOptions::regex())
            .should_validate_formats(true)
            .build(&json_schema(Schema::of(&schema)))
            .ok()?;
        Some(Self { schema, validator })
    }

    /// Violations as `<path>: <problem>`, unsorted.
    pub(super) fn violations(&self, object: &Value) -> Vec<String> {
        let schema = Schema::of(&self.schema);
        let mut object = object.clone();
        apply_defaults(schema, &mut object);
        // Masked: messages must not contain values of objects.
        let mut violations: Vec<String> = self
            .validator
            .iter_errors(&object)
            .map(|error| line(&dotted(error.instance_path().as_str()), &error.masked().to_string()))
            .collect();
        structural_violations(schema, &object, true, &mut String::new(), &mut violations);
        violations
    }
}

fn line(path: &str, text: &str) -> String {
    let path = path.trim_start_matches('.');
    if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") }
}

/// Converts a JSON pointer: `/spec/list/0` becomes `.spec.list[0]`.
fn dotted(pointer: &str) -> String {
    let step = |step: &str| match step.parse::<usize>() {
        Ok(number) => format!("[{number}]"),
        Err(_) => format!(".{}", step.replace("~1", "/").replace("~0", "~")),
    };
    pointer.split('/').skip(1).map(step).collect()
}

/// Drops null values of fields that are not nullable, then sets missing fields that have a default.
fn apply_defaults(schema: Schema<'_>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                !value.is_null() || field(schema, name).is_none_or(|schema| schema.flag("nullable"))
            });
            for (step, child) in schema.children() {
                let (Step::Property(name), Some(default)) = (step, child.get("default")) else { continue };
                fields.entry(name).or_insert_with(|| default.clone());
            }
            for (name, value) in fields.iter_mut() {
                if let Some(schema) = field(schema, name) {
                    apply_defaults(schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.child(Step::Items) {
                items.iter_mut().for_each(|item| apply_defaults(schema, item));
            }
        }
        _ => {}
    }
}

fn field<'a>(schema: Schema<'a>, name: &str) -> Option<Schema<'a>> {
    schema.child(Step::Property(name)).or_else(|| schema.child(Step::AdditionalProperties))
}

/// Adds violations that JSON Schema does not express: unknown fields that would be dropped, and duplicate list
/// entries.
fn structural_violations(
    schema: Schema<'_>,
    value: &Value,
    is_object: bool,
    path: &mut String,
    found: &mut Vec<String>,
) {
    let length = path.len();
    match value {
        Value::Object(fields) => {
            let keeps_all = schema.flag("x-kubernetes-preserve-unknown-fields")
                || schema.get("additionalProperties").is_some_and(|all| *all == true);
            let is_object = is_object || schema.flag("x-kubernetes-embedded-resource");
            for (name, value) in
                fields.iter().filter(|(name, _)| !is_object || !COMMON.contains(&name.as_str()))
            {
                path.push('.');
                path.push_str(name);
                match field(schema, name) {
                    Some(schema) => structural_violations(schema, value, false, path, found),
                    None if keeps_all => {}
                    None => found.push(line(path, "the field would be dropped")),
                }
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            if has_duplicates(schema, items) {
                found.push(line(path, "entries are there twice"));
            }
            let Some(schema) = schema.child(Step::Items) else { return };
            for (number, item) in items.iter().enumerate() {
                path.push_str(&format!("[{number}]"));
                structural_violations(schema, item, false, path, found);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Reports whether a list of type `set` or `map` has a duplicate entry or key.
fn has_duplicates(schema: Schema<'_>, items: &[Value]) -> bool {
    let mut seen = HashSet::new();
    match schema.text("x-kubernetes-list-type") {
        "set" => !items.iter().all(|item| seen.insert(canonical(item))),
        "map" => {
            let keys = schema.list("x-kubernetes-list-map-keys");
            let key = |item: &Value| -> String {
                keys.iter().filter_map(Value::as_str).map(|key| canonical(&item[key]) + ",").collect()
            };
            !items.iter().all(|item| seen.insert(key(item)))
        }
        _ => false,
    }
}
