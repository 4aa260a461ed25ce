//! Conversion of a CRD schema to JSON Schema draft 4, the dialect that it descends from.

use serde_json::{Map, Value, json};

use crate::schema::Schema;

/// Formats that are evaluated or constrain nothing: number formats only name a size, and `password` allows any
/// text.
const FORMATS: [&str; 12] = [
    "date-time",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uri",
    "int32",
    "int64",
    "float",
    "double",
    "password",
    "binary",
];

/// Keywords without nested schemas.
const PLAIN: [&str; 16] = [
    "type",
    "format",
    "pattern",
    "enum",
    "required",
    "maximum",
    "minimum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "multipleOf",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
];

/// Reports whether `format` is evaluated or constrains nothing.
pub(super) fn is_known_format(format: &Value) -> bool {
    format.as_str().is_some_and(|format| format.is_empty() || FORMATS.contains(&format))
}

/// Converts the part of the schema that JSON Schema can express.
pub(super) fn json_schema(schema: Schema<'_>) -> Value {
    let mut map = Map::new();
    for key in PLAIN {
        // Draft 4 does not allow empty lists.
        let value = schema.get(key).filter(|value| !matches!(value, Value::Array(list) if list.is_empty()));
        map.extend(value.map(|value| (key.to_owned(), value.clone())));
    }
    for key in ["properties", "patternProperties"] {
        let named = schema.get(key).and_then(Value::as_object).into_iter().flatten();
        let named: Map<String, Value> = named.map(|(name, value)| (name.clone(), below(value))).collect();
        map.insert(key.to_owned(), Value::Object(named));
    }
    for key in ["items", "additionalProperties", "not", "allOf", "anyOf", "oneOf"] {
        match schema.get(key) {
            Some(Value::Array(list)) if list.is_empty() => {}
            Some(Value::Array(list)) => {
                map.insert(key.to_owned(), list.iter().map(below).collect());
            }
            Some(value) => {
                map.insert(key.to_owned(), below(value));
            }
            None => {}
        }
    }
    if schema.flag("x-kubernetes-int-or-string") {
        map.entry("type").or_insert_with(|| json!(["integer", "string"]));
    }
    if schema.flag("nullable") {
        allow_null(&mut map);
    }
    Value::Object(map)
}

/// Converts a nested schema, which may be `true` or `false`.
fn below(value: &Value) -> Value {
    value.as_object().map_or_else(|| value.clone(), |map| json_schema(Schema::of(map)))
}

fn allow_null(map: &mut Map<String, Value>) {
    match map.get_mut("type") {
        Some(Value::Array(types)) => types.push(json!("null")),
        Some(type_) => *type_ = json!([type_, "null"]),
        None => {}
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.push(Value::Null);
    }
}
