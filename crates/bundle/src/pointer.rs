//! Access to JSON values by JSON pointer.

use serde_json::Value;

/// String at a JSON pointer. Empty if there is no string.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Strings of the array at a JSON pointer. A null item is an empty string, as for the API server, which rejects items of
/// other types.
pub fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    let is_text = |item: &&Value| item.is_null() || item.is_string();
    list(object, pointer).iter().filter(is_text).map(|item| item.as_str().unwrap_or_default())
}

/// Items of the array at a JSON pointer. Empty if there is no array.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
