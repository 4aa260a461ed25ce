//! Field differences between two values, with readable paths.
//!
//! Pure. List elements are matched by a name field if all of them have one, else by value.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Field with a different value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Path such as `spec.template.spec.containers[manager].image`.
    pub path: String,
    /// `None` if the field is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// `None` if the field is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
    /// `true` if the values are secret and omitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// Fields that identify list elements, the most specific first.
const NAMES: [&str; 6] = ["name", "mountPath", "containerPort", "port", "key", "ip"];

/// Fields in which `old` and `new` differ, sorted by name. A subtree that exists on one side only is one field.
pub fn changes(old: &Value, new: &Value) -> Vec<FieldChange> {
    let mut changes = Vec::new();
    compare(String::new(), Some(old), Some(new), &mut changes);
    changes
}

fn compare(path: String, old: Option<&Value>, new: Option<&Value>, changes: &mut Vec<FieldChange>) {
    match (old, new) {
        (Some(old), Some(new)) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
                compare(field(&path, key), old.get(key), new.get(key), changes);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) => compare_lists(&path, old, new, changes),
        (old, new) => {
            let (old, new) = (old.cloned(), new.cloned());
            changes.push(FieldChange { path, old, new, secret: false });
        }
    }
}

fn compare_lists(path: &str, old: &[Value], new: &[Value], changes: &mut Vec<FieldChange>) {
    let before = changes.len();
    if let Some(key) = naming_field(old, new) {
        let (before, after) = (named(old, key), named(new, key));
        let names = |items: &[Value]| items.iter().filter_map(|item| name(item, key)).collect::<Vec<_>>();
        let only_new = names(new).into_iter().filter(|name| !before.contains_key(name));
        for name in names(old).into_iter().chain(only_new) {
            let (old, new) = (before.get(&name).copied(), after.get(&name).copied());
            compare(format!("{path}[{name}]"), old, new, changes);
        }
    } else {
        let (gone, come) = (without(old, new), without(new, old));
        let is_replaced = gone.len() == come.len();
        for (number, (at, old)) in gone.into_iter().enumerate() {
            let new = come.get(number).filter(|_| is_replaced).map(|(_, new)| *new);
            compare(format!("{path}[{at}]"), Some(old), new, changes);
        }
        for (at, new) in come.into_iter().filter(|_| !is_replaced) {
            compare(format!("{path}[{at}]"), None, Some(new), changes);
        }
    }
    if changes.len() == before {
        let order = |items: &[Value]| Some(Value::Array(items.to_vec()));
        changes.push(FieldChange { path: path.to_owned(), old: order(old), new: order(new), secret: false });
    }
}

/// Field that has a unique value in each element of both lists.
fn naming_field(old: &[Value], new: &[Value]) -> Option<&'static str> {
    let names_all = |items: &[Value], key: &str| {
        let names: Option<BTreeSet<_>> = items.iter().map(|item| name(item, key)).collect();
        names.is_some_and(|names| names.len() == items.len())
    };
    NAMES.into_iter().find(|key| names_all(old, key) && names_all(new, key))
}

fn name(item: &Value, key: &str) -> Option<String> {
    match item.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Elements by name.
fn named<'a>(items: &'a [Value], key: &str) -> BTreeMap<String, &'a Value> {
    items.iter().filter_map(|item| Some((name(item, key)?, item))).collect()
}

/// Elements of `items`, with their indexes, that occur less often in `others`.
fn without<'a>(items: &'a [Value], others: &[Value]) -> Vec<(usize, &'a Value)> {
    let mut spare: BTreeMap<String, usize> = BTreeMap::new();
    for other in others {
        *spare.entry(other.to_string()).or_default() += 1;
    }
    let mut is_left = |item: &Value| match spare.get_mut(&item.to_string()) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    items.iter().enumerate().filter(|(_, item)| is_left(item)).collect()
}

fn field(path: &str, key: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '$');
    match (path, !key.is_empty() && key.chars().all(is_plain)) {
        ("", true) => key.to_owned(),
        (path, true) => format!("{path}.{key}"),
        (path, false) => format!("{path}[{}]", olm_version::quote(key)),
    }
}

/// `live` after setting the fields of `new` and removing those that only `old` sets. Equals the result of a
/// server-side apply without defaults.
pub fn applied(live: &Value, old: &Value, new: &Value) -> Value {
    match (live, new) {
        (Value::Object(live), Value::Object(new)) => {
            let none = Map::new();
            let old = old.as_object().unwrap_or(&none);
            let mut result = live.clone();
            result.retain(|key, _| new.get(key).is_some_and(|new| !new.is_null()) || !old.contains_key(key));
            // An API server drops empty values of absent fields.
            let says_something = |key: &String, value: &Value| !is_empty(value) || live.contains_key(key);
            for (key, value) in
                new.iter().filter(|(key, value)| says_something(key, value) && !value.is_null())
            {
                let old = old.get(key).unwrap_or(&Value::Null);
                let value = live.get(key).map_or_else(|| value.clone(), |live| applied(live, old, value));
                result.insert(key.clone(), value);
            }
            Value::Object(result)
        }
        (Value::Array(live), Value::Array(new)) => {
            let none = Vec::new();
            let old = old.as_array().unwrap_or(&none);
            Value::Array(applied_list(live, old, new))
        }
        _ => new.clone(),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn applied_list(live: &[Value], old: &[Value], new: &[Value]) -> Vec<Value> {
    let Some(key) = naming_field(live, new) else {
        if live.len() != new.len() {
            return new.to_vec();
        }
        let items = live.iter().zip(new).enumerate();
        let was = |at| old.get(at).unwrap_or(&Value::Null);
        return items.map(|(at, (live, new))| applied(live, was(at), new)).collect();
    };
    let (is, was, desired) = (named(live, key), named(old, key), named(new, key));
    let mut result = Vec::new();
    for item in live {
        let name = name(item, key).unwrap_or_default();
        match (desired.get(&name), was.get(&name)) {
            (Some(&new), was) => result.push(applied(item, was.copied().unwrap_or(&Value::Null), new)),
            // Owned by another field manager.
            (None, None) => result.push(item.clone()),
            (None, Some(_)) => {}
        }
    }
    result.extend(
        new.iter().filter(|item| name(item, key).is_none_or(|name| !is.contains_key(&name))).cloned(),
    );
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change_texts(old: &Value, new: &Value) -> Vec<String> {
        let shown = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".to_owned(), Value::to_string);
        let line =
            |change: FieldChange| format!("{}: {} > {}", change.path, shown(&change.old), shown(&change.new));
        changes(old, new).into_iter().map(line).collect()
    }

    #[test]
    fn change_paths_name_list_elements() {
        for (old, new, expected) in [
            (json!({"a": 1}), json!({"a": 1}), vec![]),
            (
                json!({"a": {"b": 1}}),
                json!({"a": {"b": 2, "c": {"d": 1}}}),
                vec!["a.b: 1 > 2", "a.c: - > {\"d\":1}"],
            ),
            (json!({"x.y/z": 1}), json!({}), vec!["[\"x.y/z\"]: 1 > -"]),
            (
                json!({"c": [{"name": "m", "image": "a"}, {"name": "p"}]}),
                json!({"c": [{"name": "q"}, {"name": "m", "image": "b"}]}),
                vec!["c[m].image: \"a\" > \"b\"", "c[p]: {\"name\":\"p\"} > -", "c[q]: - > {\"name\":\"q\"}"],
            ),
            (json!({"p": [{"port": 80}]}), json!({"p": [{"port": 80, "x": 1}]}), vec!["p[80].x: - > 1"]),
            (json!({"l": ["a", "b", "c"]}), json!({"l": ["a", "c"]}), vec!["l[1]: \"b\" > -"]),
            (json!({"l": ["a", "b"]}), json!({"l": ["a", "d"]}), vec!["l[1]: \"b\" > \"d\""]),
            (json!({"l": [{"x": 1, "y": 1}]}), json!({"l": [{"x": 1, "y": 2}]}), vec!["l[0].y: 1 > 2"]),
            // Only the order differs.
            (json!({"l": ["a", "b"]}), json!({"l": ["b", "a"]}), vec!["l: [\"a\",\"b\"] > [\"b\",\"a\"]"]),
            // Duplicate names identify nothing.
            (
                json!({"l": [{"name": "a"}, {"name": "a", "x": 1}]}),
                json!({"l": [{"name": "a"}]}),
                vec!["l[1]: {\"name\":\"a\",\"x\":1} > -"],
            ),
            (json!({"a": 1}), json!({"a": [1]}), vec!["a: 1 > [1]"]),
        ] {
            assert_eq!(change_texts(&old, &new), expected, "{old} {new}");
        }
    }

    #[test]
    fn applied_sets_new_fields_and_removes_dropped_ones() {
        let live = json!({"spec": {"replicas": 3, "gone": 1, "default": true, "paused": false,
            "containers": [{"name": "m", "image": "a", "pull": "Always"}, {"name": "old"}, {"name": "injected"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": ["a"]}});
        let old = json!({"spec": {"replicas": 1, "gone": 1, "containers": [{"name": "m", "image": "a"}, {"name": "old"}]}});
        let new = json!({"spec": {"replicas": 1, "paused": false, "containers": [{"name": "m", "image": "b"}, {"name": "n"}],
            "ports": [{"containerPort": 80}], "args": ["b", "c"]}});
        let nothing = json!({"spec": {"replicas": 3, "affinity": {}, "at": null, "tolerations": []}});
        assert_eq!(applied(&live, &Value::Null, &nothing), live);
        let expected = json!({"spec": {"replicas": 1, "default": true, "paused": false,
            "containers": [{"name": "m", "image": "b", "pull": "Always"}, {"name": "injected"}, {"name": "n"}],
            "ports": [{"containerPort": 80, "protocol": "TCP"}], "args": ["b", "c"]}});
        assert_eq!(applied(&live, &old, &new), expected);
    }
}
