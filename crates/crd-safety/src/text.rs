//! JSON values in messages. Reading the CRD limits their depth.

use serde_json::Value;

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

/// Compact JSON with sorted keys as the API server encodes it, with HTML characters escaped.
pub(crate) fn canonical(value: &Value) -> String {
    let mut json = value.to_string();
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

/// [`canonical`] of a schema or a list of schemas, without annotation keywords at any depth.
pub(crate) fn canonical_schema(schema: &Value) -> String {
    canonical(&constraints(schema, Role::Schema))
}

/// Copy of `value` without annotation keywords.
fn constraints(value: &Value, role: Role) -> Value {
    match (role, value) {
        (Role::Schema | Role::NamedSchemas, Value::Object(map)) => {
            let is_kept = |key: &str| matches!(role, Role::NamedSchemas) || !ANNOTATIONS.contains(&key);
            let kept = map.iter().filter(|(key, _)| is_kept(key));
            kept.map(|(key, value)| (key.clone(), constraints(value, role_below(role, key)))).collect()
        }
        (Role::Schema | Role::NamedSchemas, Value::Array(list)) => {
            list.iter().map(|item| constraints(item, role)).collect()
        }
        _ => value.clone(),
    }
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
