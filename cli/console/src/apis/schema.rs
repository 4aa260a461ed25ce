//! Documentation of the fields of an API, from the schema of its CRD. Pure.

use maud::{Markup, html};
use serde_json::Value;

use crate::extensions::cut;

/// Limits of the depth and the number of shown fields.
const DEPTH: usize = 6;
const FIELDS: usize = 600;
/// Fields that every object has.
const COMMON: [&str; 3] = ["apiVersion", "kind", "metadata"];

pub(super) fn markup(schema: &Value) -> Markup {
    let mut left = FIELDS;
    let fields = fields(schema, 0, &mut left);
    html! {
        @if let Some(text) = schema["description"].as_str() { p { (cut(text)) } }
        (fields)
        @if left == 0 { p.soft { "Further fields are not shown." } }
    }
}

fn fields(schema: &Value, depth: usize, left: &mut usize) -> Markup {
    // The fields of a list are those of its items.
    let schema = if schema["type"] == "array" { &schema["items"] } else { schema };
    let Some(all) = schema["properties"].as_object().filter(|_| depth < DEPTH) else { return html! {} };
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let mut shown = Vec::new();
    for (name, field) in all.iter().filter(|(name, _)| depth > 0 || !COMMON.contains(&name.as_str())) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        shown.push((name, field, is_required(name), fields(field, depth + 1, left)));
    }
    html! {
        ul.fields {
            @for (name, field, is_required, nested) in shown {
                @let nested: Markup = nested;
                @let head = head(name, field, is_required);
                li {
                    @if nested.0.is_empty() { (head) } @else {
                        details open[depth == 0 && name == "spec"] { summary { (head) } (nested) }
                    }
                }
            }
        }
    }
}

fn head(name: &str, field: &Value, is_required: bool) -> Markup {
    let allowed: Vec<String> = field["enum"].as_array().into_iter().flatten().map(Value::to_string).collect();
    html! {
        code { strong { (name) } } " " span.soft { (kind(field)) }
        @if is_required { " " span.badge { "required" } }
        @if !field["default"].is_null() { " " span.soft { "default " (cut(&field["default"].to_string())) } }
        @if !allowed.is_empty() { " " span.soft { "allowed: " (cut(&allowed.join(", "))) } }
        @if let Some(text) = field["description"].as_str() { span.about { (cut(text)) } }
    }
}

/// Type in words.
fn kind(field: &Value) -> String {
    let name = |field: &Value| field["type"].as_str().unwrap_or("any").to_owned();
    match field["type"].as_str() {
        Some("array") => format!("list of {}", name(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map of {}", name(&field["additionalProperties"]))
        }
        _ if field["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        _ => name(field),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_documented_and_limited() {
        let schema = json!({"properties": {"kind": {"type": "string"}, "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "description": "How <large>", "default": 3},
            "names": {"type": "array", "items": {"type": "object", "properties": {"first": {"type": "string"}}}}}}}});
        let text = markup(&schema).into_string();
        for part in
            ["<strong>size</strong>", "How &lt;large&gt;", "required", "default 3", "list of object", "first"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("kind"), "{text}");
        let mut deep = json!({"type": "string"});
        for _ in 0..50 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        assert_eq!(markup(&deep).into_string().matches("<strong>a").count(), DEPTH);
    }
}
