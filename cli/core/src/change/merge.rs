//! JSON merge patches (RFC 7386). Computes the smallest patch between two objects. Pure.

use serde_json::{Map, Value};

/// Patch from `before` to `after`. `None` if they are equal. Lists are replaced as a whole.
pub fn patch(before: &Value, after: &Value) -> Option<Value> {
    if before == after {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (before, after) else { return Some(after.clone()) };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| {
        let patch = match old.get(key) {
            Some(old) => patch(old, value)?,
            None => value.clone(),
        };
        Some((key.clone(), patch))
    });
    Some(Value::Object(gone.chain(changed).collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn patch_contains_only_differences() {
        for (before, after, expected) in [
            (json!({"a": 1}), json!({"a": 1}), None),
            (json!({"a": 1, "b": {"c": 1}}), json!({"a": 1, "b": {"c": 2}}), Some(json!({"b": {"c": 2}}))),
            (json!({"a": 1, "b": 2}), json!({"b": 2}), Some(json!({"a": null}))),
            (json!({}), json!({"a": {"b": [1]}}), Some(json!({"a": {"b": [1]}}))),
            (json!({"a": [1, 2]}), json!({"a": [2]}), Some(json!({"a": [2]}))),
        ] {
            assert_eq!(patch(&before, &after), expected);
        }
    }
}
