//! Reads the JSON Schema of a configuration. Pure.

use serde_json::{Map, Value};

/// The schema itself, or what it refers to.
pub(crate) fn target<'a>(schema: &'a Value, value: &'a Value) -> &'a Value {
    let reference = value.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
    reference.and_then(|pointer| schema.pointer(pointer)).unwrap_or(value)
}

/// Fields of an object, of the items of a list, or of the values of a map.
pub(crate) fn fields<'a>(schema: &'a Value, value: &'a Value) -> Option<&'a Map<String, Value>> {
    let value = target(schema, value);
    let inner =
        value.get("items").or_else(|| value.get("additionalProperties").filter(|one| one.is_object()));
    let holder = match value.get("properties") {
        Some(_) => value,
        None => target(schema, inner?),
    };
    holder.get("properties")?.as_object()
}
