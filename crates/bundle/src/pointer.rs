//! Access to JSON values by JSON pointer.

use serde_json::Value;

/// String at a JSON pointer. Empty if there is no string.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Items of the array at a JSON pointer. Empty if there is no array.
pub fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
