//! JSON values in messages. Reading the CRD limits their depth.

use serde_json::{Map, Value};

/// Schema keywords that constrain nothing.
const ANNOTATIONS: [&str; 4] = ["description", "title", "example", "externalDocs"];

/// Meaning of a JSON value within a schema.
#[derive(Clone, Copy)]
enum Role {
    /// Plain data.
    Data,
    /// Schema or list of schemas.
    Schema,
    /// Schemas by name. A name may equal an annotation keyword.
    NamedSchemas,
}

/// Compact JSON with sorted keys.
pub(crate) fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, Role::Data, &mut out);
    out
}

/// [`canonical`] of a schema or a list of schemas, without annotation keywords at any depth.
pub(crate) fn canonical_schema(schema: &Value) -> String {
    let mut out = String::new();
    write(schema, Role::Schema, &mut out);
    out
}

fn write(value: &Value, role: Role, out: &mut String) {
    match value {
        Value::Object(map) => write_object(map, role, out),
        Value::Array(list) => {
            out.push('[');
            for (number, item) in list.iter().enumerate() {
                if number > 0 {
                    out.push(',');
                }
                write(item, role, out);
            }
            out.push(']');
        }
        Value::String(text) => out.push_str(&string(text)),
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn write_object(map: &Map<String, Value>, role: Role, out: &mut String) {
    let mut members: Vec<(&String, &Value)> = map.iter().collect();
    if matches!(role, Role::Schema) {
        members.retain(|(key, _)| !ANNOTATIONS.contains(&key.as_str()));
    }
    members.sort_by_key(|(key, _)| *key);
    out.push('{');
    for (number, (key, value)) in members.into_iter().enumerate() {
        if number > 0 {
            out.push(',');
        }
        out.push_str(&string(key));
        out.push(':');
        write(value, role_below(role, key), out);
    }
    out.push('}');
}

/// JSON string as the API server encodes it, with HTML characters escaped.
fn string(text: &str) -> String {
    let mut json = Value::from(text).to_string();
    for (character, escape) in [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ] {
        if json.contains(character) {
            json = json.replace(character, escape);
        }
    }
    json
}

fn role_below(role: Role, key: &str) -> Role {
    match (role, key) {
        (Role::Data, _) => Role::Data,
        (Role::NamedSchemas, _) => Role::Schema,
        (Role::Schema, "properties" | "patternProperties" | "definitions" | "dependencies") => {
            Role::NamedSchemas
        }
        (
            Role::Schema,
            "items" | "additionalItems" | "additionalProperties" | "allOf" | "anyOf" | "oneOf" | "not",
        ) => Role::Schema,
        (Role::Schema, _) => Role::Data,
    }
}

/// Number in its shortest form, with an exponent below 1e-4 and from 1e6 up (docs/design/apply.md#property-checks).
pub(crate) fn number(value: f64) -> String {
    let shortest = format!("{value:e}");
    match shortest
        .split_once('e')
        .and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)))
    {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_use_shortest_form_with_exponent_outside_range() {
        for (value, text) in [
            (0.0, "0"),
            (-0.5, "-0.5"),
            (5.0, "5"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (123_456.5, "123456.5"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (-1_234_567.0, "-1.234567e+06"),
            (1e100, "1e+100"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn canonical_schema_omits_annotations_of_schemas_only() {
        let schema = json!({
            "title": "t",
            "properties": {"title": {"type": "string", "description": "d"}},
            "default": {"title": 1, "example": 2},
            "allOf": [{"externalDocs": {"url": "u"}, "maxLength": 1}],
        });
        assert_eq!(
            canonical_schema(&schema),
            r#"{"allOf":[{"maxLength":1}],"default":{"example":2,"title":1},"properties":{"title":{"type":"string"}}}"#
        );
        assert_eq!(canonical(&json!({"b": [1, "x\"", null], "a": {}})), r#"{"a":{},"b":[1,"x\"",null]}"#);
        assert_eq!(canonical(&json!({"<": "a>&\u{2028}"})), r#"{"\u003c":"a\u003e\u0026\u2028"}"#);
    }
}
